"""A step of training: the kernels of each gradient, worked out by hand, in eager mode and as compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.backward import as_trained, make_training, train
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.called_attention import with_called_attention
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import Attention, Conv, Gemm, Reduction, Softmax
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.precision import FORMATS
from neusight_onnx.predictor import predict
from neusight_onnx.preparation import infer_shapes, prepare
from training_graphs import BARE, FIRST, W, X, attention_block, backwards, shown, shown_whole, trained

BY_W = "gemm 1x16x8x4 A"
"""The weight is kept as (n, k) by PyTorch's Linear: its gradient is g^T (16, 4) @ x (4, 8)."""

KERNELS: dict[str, tuple[str, Mapping[str, tuple[int, ...]], Mapping[str, list[str]]]] = {
    # A second linear layer: both gradients, g (4, 2) @ w2^T and g^T @ h; for the first one the weight's alone.
    "linear": (
        FIRST + "m = MatMul (h, w2)\ny = Add (m, b)",
        {"w2": (16, 2), "b": (2,)},
        {"Linear": ["gemm 1x4x16x2", "gemm 1x2x16x4 A", "sum 2 of 4"], "MatMul": [BY_W]},
    ),
    "gemm": (
        FIRST + "y = Gemm <transB=1> (h, w2, b)",
        {"w2": (2, 16), "b": (2,)},
        {"Gemm": ["gemm 1x4x16x2", "gemm 1x2x16x4 A", "sum 2 of 4"], "MatMul": [BY_W]},
    ),
    "relu keeps its result": (FIRST + "y = Relu (h)", {}, {"Relu": ["threshold_backward [64, 64] -> 64"]}),
    "sqrt: g / (2 y)": (FIRST + "y = Sqrt (h)", {}, {"Sqrt": ["mul [64] -> 64", "div [64, 64] -> 64"]}),
    "a sum passes its gradient on": (FIRST + "y = Add (h, h2)\n", {"h2": (4, 16)}, {"MatMul": [BY_W]}),
    "a bias of a channel is summed": (FIRST + "y = Add (h, b)\nz = Relu (y)", {"b": (1,)}, {"MatMul": [BY_W]}),
    "broadcast operands are summed": (
        FIRST + "y = Mul (h, b)",
        {"b": (4, 1)},
        {"Mul": ["mul [64, 4] -> 64", "mul [64, 64] -> 64", "sum 4 of 16"]},
    ),
    "x * x: both products and their sum": (
        FIRST + "y = Mul (h, h)",
        {},
        {"Mul": ["mul [64, 64] -> 64", "mul [64, 64] -> 64", "add [64, 64] -> 64"]},
    ),
    # x + 1.0 (a b): g (b 1.0) for a, g (a 1.0) for b, g itself for x; what was broadcast is summed
    "addcmul": (
        FIRST + "p = Mul (a, h)\nv = Mul (p, unit)\ny = Add (b, v)",
        {"a": (1, 16), "b": (1, 16)},
        {
            "Addcmul": [
                *("sum 16 of 4", "mul [64] -> 64", "mul [64, 64] -> 64", "sum 16 of 4"),
                *("mul [16] -> 16", "mul [64, 16] -> 64"),
            ],
            "MatMul": [BY_W],
        },
    ),
    "a divisor: -g ((a / b) / b)": (
        FIRST + "y = Div (h2, h)",
        {"h2": (4, 16)},
        {
            "Div": [
                "div [64, 64] -> 64",
                "neg [64] -> 64",
                "div [64, 64] -> 64",
                "div [64, 64] -> 64",
                "mul [64, 64] -> 64",
            ]
        },
    ),
    "two readers: gradients are added": (
        FIRST + "a = Relu (h)\nb = Tanh (h)\ny = Mul (a, b)",
        {},
        {
            "Mul": ["mul [64, 64] -> 64", "mul [64, 64] -> 64"],
            "Tanh": ["tanh_backward [64, 64] -> 64"],
            "Relu": ["threshold_backward [64, 64] -> 64", "add [64, 64] -> 64"],
        },
    ),
    "softmax: g y, then rows": (
        FIRST + "y = Softmax (h)",
        {},
        {"Softmax": ["mul [64, 64] -> 64", "softmax backward 4x16"]},
    ),
    "log-softmax in one": (FIRST + "y = LogSoftmax (h)", {}, {"LogSoftmax": ["softmax backward 4x16"]}),
    "layer normalization: two kernels": (
        FIRST + "y = LayerNormalization (h, s, b)",
        {"s": (16,), "b": (16,)},
        {"LayerNormalization": ["layer backward 4x16", "norm_parameters 16 of 4"]},
    ),
    "a mean: the gradient repeated and divided": (
        FIRST + "y = ReduceMean <axes=[1]> (h)",
        {},
        {"ReduceMean": ["div [4] -> 64"]},
    ),
    "a slice: zeros and a copy": (
        FIRST + "y = Slice (h, start, stop)",
        {},
        {"Slice": ["fill 64", "copy 32"]},
    ),
    "a split: the parts joined": (
        FIRST + "a, b = Split (h)\ny = Mul (a, b)",
        {},
        {"Split": ["concat 64"], "Mul": ["mul [32, 32] -> 32", "mul [32, 32] -> 32"]},
    ),
    "of a split with one part in use the rest is zero": (
        FIRST + "a, b = Split (h)\ny = Relu (a)",
        {},
        {"Split": ["fill 32", "concat 64"]},
    ),
    "joining is undone by views": (
        FIRST + "y = Concat <axis=1> (h, h2)",
        {"h2": (4, 4)},
        {"MatMul": [BY_W]},
    ),
    "a vector behind rows: every row gets it, its own is a product with all rows": (
        FIRST + "y = MatMul (h, v)",
        {"v": (16,)},
        {"MatMul": ["mul [4, 16] -> 64", "gemm 1x16x1x4 A", BY_W]},
    ),
    "a vector before matrices": (
        FIRST + "i = Reshape (h, stack)\ny = MatMul (v, i)",
        {"v": (2,)},
        {"MatMul": ["mul [32, 2] -> 64", "gemm 1x2x1x32 A", BY_W]},
    ),
    "a vector before one matrix is a row": (
        FIRST + "y = MatMul (v, h)",
        {"v": (4,)},
        {"MatMul": ["gemm 1x1x4x16 B", "gemm 1x4x16x1 A", BY_W]},
    ),
    "two vectors": (
        FIRST + "i = Reshape (h, flat)\ny = MatMul (i, v)",
        {"v": (64,)},
        {"MatMul": ["mul [1, 64] -> 64", "mul [1, 64] -> 64", BY_W]},
    ),
    "a transpose is a view": (FIRST + "y = Transpose (h)", {}, {"MatMul": ["gemm 1x16x8x4"]}),
    "a group normalization": (
        FIRST + "i = Reshape (h, images)\ny = GroupNormalization <num_groups=2> (i, s4, b4)",
        {"s4": (4,), "b4": (4,)},
        {
            "GroupNormalization": [
                "channel_moments 16 of 4",
                "mul [8, 4] -> 16",
                "sum 8 of 2",
                "mul+mul+add+add [64, 16, 64, 8, 8] -> 64",
                "sum 4 of 4",
            ]
        },
    ),
    "an instance normalization": (
        FIRST + "i = Reshape (h, images)\ny = InstanceNormalization (i, s4, b4)",
        {"s4": (4,), "b4": (4,)},
        {"InstanceNormalization": ["batch backward 16x4", "sum 4 of 4", "sum 4 of 4"]},
    ),
    "a flip": (FIRST + "y = Slice (h, last, first, one, back)", {}, {"Slice": ["flip 64"]}),
    "a place is chosen": (FIRST + "y = Where (c, h, zero)", {}, {"Where": ["fill 1", "where [64, 64] -> 64"]}),
    "a place is filled": (FIRST + "y = Where (c, number, h)", {}, {"Where": ["copy 64", "where [64, 64] -> 64"]}),
    "cast back": (FIRST + "y = Cast <to=10> (h)", {}, {"Cast": ["cast 64"]}),
}


ROLL = (
    FIRST + "tail = Slice (h, three, last, axis)\nhead = Slice (h, zero, UNTIL, axis)\ny = Concat <axis=1> (tail, head)"
)


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        pytest.param("three", {"Slice": ["concat 64"]}, id="both parts: one kernel rolls the gradient back"),
        pytest.param(
            "four",
            {"Slice": ["fill 64", "copy 16", "fill 64", "copy 52", "add [64, 64] -> 64"]},
            id="a column in both parts: zeros and a copy each, and their sum",
        ),
    ],
)
def test_a_roll(until: str, expected: Mapping[str, list[str]]) -> None:
    constants = {"zero": [0], "three": [3], "four": [4], "last": [99], "axis": [1]}
    found = backwards(trained(inferred(ROLL.replace("UNTIL", until), X, weights=W, constants=constants))[2])
    assert found == {**expected, "MatMul": [BY_W]}


@pytest.mark.parametrize(("nodes", "weights", "expected"), KERNELS.values(), ids=KERNELS)
def test_kernels(nodes: str, weights: Mapping[str, tuple[int, ...]], expected: Mapping[str, list[str]]) -> None:
    graph = inferred(
        nodes,
        {**X, "c": (4, 16)},
        weights={**W, **weights},
        constants={
            "start": [0, 0],
            "stop": [4, 8],
            "zero": [0.0],
            "number": 0.0,
            "images": [4, 4, 2, 2],
            "stack": [2, 2, 16],
            "flat": [-1],
            "last": [-1],
            "first": [-99],
            "one": [1],
            "unit": 1.0,
            "back": [-1],
        },
        types={"c": TensorProto.BOOL},
    )
    found = backwards(trained(graph)[2])
    assert {name: found.get(name) for name in expected} == expected


IMAGES: dict[str, tuple[str, Mapping[str, tuple[int, ...]], Mapping[str, list[str]]]] = {
    "convolution: the input's and the weight's direction, the bias's sum": (
        "a = Conv <pads=[1,1,1,1]> (x, w)\ny = Conv <pads=[1,1,1,1]> (a, v, b)",
        {"w": (4, 3, 3, 3), "v": (5, 4, 3, 3), "b": (5,)},
        {"Conv": ["conv data", "conv weight", "sum 5 of 128", "conv weight"]},
    ),
    "batch normalization takes statistics and gives three gradients at once": (
        "a = Conv <pads=[1,1,1,1]> (x, w)\ny = BatchNormalization (a, s, b, m, v)",
        {"w": (4, 3, 3, 3), "s": (4,), "b": (4,), "m": (4,), "v": (4,)},
        {"BatchNormalization": ["batch backward 4x128"]},
    ),
    # 8 x 8 to 4 x 4 by windows of 3, two apart: an element lies in up to 2 x 2 of them
    "max pooling: zeros, then each element looks at its windows": (
        "a = Conv <pads=[1,1,1,1]> (x, w)\ny = MaxPool <kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]> (a)",
        {"w": (4, 3, 3, 3)},
        {"MaxPool": ["fill 512", "max_backward 512 window 4"]},
    ),
    "global pooling: the mean's gradient repeated": (
        "a = Conv <pads=[1,1,1,1]> (x, w)\ny = GlobalAveragePool (a)",
        {"w": (4, 3, 3, 3)},
        {"GlobalAveragePool": ["div [8] -> 512"]},
    ),
}


@pytest.mark.parametrize(("nodes", "weights", "expected"), IMAGES.values(), ids=IMAGES)
def test_kernels_of_images(
    nodes: str, weights: Mapping[str, tuple[int, ...]], expected: Mapping[str, list[str]]
) -> None:
    found = backwards(trained(inferred(nodes, {"x": (2, 3, 8, 8)}, weights=weights))[2])
    assert {name: found.get(name) for name in expected} == expected


def test_attention_of_products() -> None:
    """g of a (2 2 6 4) is strided, so that the product copies it; q's, k's and v's are copied where heads join."""
    steps = {
        step.work.node: [shown(kernel) for kernel in step.work.kernels] for step in trained(attention_block())[2].steps
    }
    by_output = dict(zip([node.outputs[0] for node in attention_block().graph.nodes], _names(), strict=True))
    linear = ["gemm 1x12x8x8", "gemm 1x8x8x12 A"]
    assert steps[by_output["a"]] == ["copy 96", "gemm 4x6x6x4 B", "gemm 4x6x4x6 A"]
    assert steps[by_output["p"]] == ["mul [144, 144] -> 144", "softmax backward 24x6"]
    assert steps[by_output["d"]] == ["div [144] -> 144"]
    assert steps[by_output["s"]] == ["gemm 4x6x4x6 B", "gemm 4x4x6x6 A"]
    assert [steps[by_output[name]] for name in ("q4", "v4")] == [["copy 96"], ["copy 96"]]
    # the gradient of k^T has a head's columns in rows: heads join as a view, but tokens don't
    assert steps[by_output["k4"]] == []
    assert steps[by_output["k"]] == ["copy 96", *linear, "add [96, 96] -> 96"]
    assert steps[by_output["o"]] == linear
    assert steps[by_output["v"]] == [*linear, "add [96, 96] -> 96"]
    assert steps[by_output["t"]] == ["fill 80", "scatter_add 96"]


def _names() -> list[str]:
    return [node.name for node in attention_block().graph.nodes]


@pytest.mark.parametrize(
    ("b", "s", "before"),
    [
        pytest.param(2, 6, ["mul [96, 96] -> 96", "sum 24 of 4", "copy 24"], id="one block of keys"),
        # launches of torch 2.9.1: 96 heads of 128 keys are split among blocks, which add to zeros; 384 heads aren't
        pytest.param(
            48, 128, ["mul [49152, 49152] -> 49152", "sum 12288 of 4", "copy 12288", "fill 49152"], id="shared queries"
        ),
        pytest.param(192, 128, ["mul [196608, 196608] -> 196608", "sum 49152 of 4", "copy 49152"], id="blocks enough"),
    ],
)
def test_fused_attention_goes_backwards_in_one_kernel(b: int, s: int, before: list[str]) -> None:
    """Scores anew, four more products: 2.5 times the multiply-adds, b * 2 * s * s * (4 + 4) of them forwards.

    In FP32 g * result is multiplied, summed and turned before.
    """
    graph = inferred(
        "q = MatMul (x, w)\ny = Attention (q, q, q)",
        {"x": (b, 2, s, 8)},
        weights={"w": (8, 4)},
        opset=23,
    )
    found = backwards(trained(graph)[2])["Attention"]
    assert found[: len(before) + 1] == [*before, f"attention backward {5 * b * 2 * s * s * 8 // 2}"]


def test_masked_attention_trains_by_the_kernels_of_inference() -> None:
    """A mask has the memory-efficient kernel both ways; backwards it sums g * result itself, over zeros in FP32."""
    graph = inferred(
        "q = MatMul (x, w)\ny = Attention (q, q, q, m)",
        {"x": (2, 2, 64, 8), "m": (64, 64)},
        weights={"w": (8, 16)},
        types=dict.fromkeys("xmw", TensorProto.FLOAT16),
        opset=23,
    )
    found = backwards(trained(graph)[2])["Attention"]
    assert found[:2] == [f"fill {2 * 2 * 64 * 16}", f"attention backward {5 * 2 * 2 * 64 * 64 * 32 // 2}"]


def test_attention_in_training_is_pytorchs() -> None:
    path = Path(__file__).parents[1] / "examples" / "bert_base.onnx"
    shaped = infer_shapes(read_model(path), make_bindings(dims={"batch": 2, "sequence": 64}))
    prepared = prepare(shaped, precision=FORMATS["bf16"], runtime="eager", training=BARE)
    both = [each for work in prepared.work for each in work.kernels if isinstance(each, Attention)]
    assert {(each.backward, each.library) for each in both} == {(False, "pytorch"), (True, "pytorch")}


def test_attention_of_five_dimensions_goes_backwards_by_its_formula() -> None:
    """Heads of 4, in 2 x 3 x 2 groups of 6 tokens: the gradients of both products, the softmax and the scales."""
    nodes = """
x2 = MatMul (x, w)
h = Mul (x2, root)
t = Transpose <perm=[0,1,2,4,3]> (x2)
u = Mul (t, root)
s = MatMul (h, u)
p = Softmax <axis=-1> (s)
y = MatMul (p, x2)
"""
    graph = inferred(nodes, {"x": (2, 3, 2, 6, 8)}, weights={"w": (8, 4)}, constants={"root": 0.5})
    called = with_called_attention(graph, runtime="eager", autocast=True)
    found = backwards(trained(called)[2])["ScaledDotProductAttention"]
    assert [kernel for kernel in found if kernel.startswith("gemm")] == [
        "gemm 12x6x6x4 B",
        "gemm 12x6x4x6 A",
        "gemm 12x6x4x6",
        "gemm 12x4x6x6 A",
    ]
    assert [kernel for kernel in found if not kernel.startswith("gemm")] == [
        "mul [432, 432] -> 432",
        "softmax backward 72x6",
        *["mul [288] -> 288"] * 2,
        "add [288, 288] -> 288",  # of what is queries and values at once
    ]


@pytest.mark.parametrize(("release", "casts"), [("2.4", 0), ("2.5", 4)])
def test_attention_by_its_formula_goes_backwards_in_the_type_that_it_ran_in(release: str, casts: int) -> None:
    """In 16 bits before PyTorch 2.5, without casts; then in FP32, where the gradient is cast on its way in and out."""
    heads = (2, 4, 3, 16, 8)
    nodes = """
q = MatMul (x, w)
t = Transpose <perm=[0,1,2,4,3]> (k)
s = MatMul (q, t)
p = Softmax <axis=-1> (s)
y = MatMul (p, v)
"""
    half = dict.fromkeys(("x", "k", "v", "w"), TensorProto.FLOAT16)
    graph = inferred(nodes, dict.fromkeys("xkv", heads), weights={"w": (8, 8)}, types=half)
    runtime = f"eager@{release}"
    form = as_trained(with_called_attention(graph, runtime=runtime, autocast=False), BARE).graph
    lowered = lower_laid_out(form, runtime=runtime)
    step = train(form, lowered.works, lowered.strides, BARE, runtime)
    (work,) = [item.work for item in step.steps if "Scaled" in item.work.op_type]
    kernels = [kernel for kernel in work.kernels if isinstance(kernel, Gemm | Softmax)]
    assert {kernel.dtype for kernel in kernels} == {DataType.FLOAT32 if casts else DataType.FLOAT16}
    assert sum(getattr(kernel, "operations", ()) == ("cast",) for kernel in work.kernels) == casts


@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.BFLOAT16], ids=["float32", "bfloat16"])
def test_fused_attention_takes_as_much_longer_backwards(dtype: DataType) -> None:
    """2.5 times the multiply-adds, each 1.16 times as long; what runs beside it stays as it is."""
    forward = Attention(b=2, h=4, g=4, s=256, t=256, d=64, v=64, dtype=dtype)
    other = Gemm(m=64, n=64, k=64, dtype=dtype)
    alone, before = predict([forward, other], load_gpu("a100"))
    again, after, beside = predict([forward, replace(forward, backward=True), other], load_gpu("a100"))
    assert after.latency_us == pytest.approx(2.5 * 1.16 * alone.latency_us)
    assert after.method == "analytic"
    assert (again, beside) == (alone, before)


def test_dropout_within_attention_draws_its_numbers_both_ways() -> None:
    """Once forwards and once backwards; the products behind stay as they are."""
    kept = Attention(b=16, h=12, g=12, s=512, t=512, d=64, v=64, dtype=DataType.BFLOAT16)
    dropped = replace(kept, dropout=True)
    both = [kept, dropped, replace(kept, backward=True), replace(dropped, backward=True)]
    forward, slower, backward, slower_backward = (item.latency_us for item in predict(both, load_gpu("a100")))
    assert slower > 1.1 * forward
    assert slower_backward - backward == pytest.approx(slower - forward)


# --- As a compiler runs it --------------------------------------------------------------------------------------------

FUSED: dict[str, tuple[str, Mapping[str, tuple[int, ...]], list[str]]] = {
    # g is there; one kernel reads it, relu's and tanh's results
    "a chain is one kernel": (
        FIRST + "a = Relu (h)\ny = Tanh (a)",
        {},
        ["tanh_backward+threshold_backward [64, 64, 64] -> 64", BY_W],
    ),
    # the product in between reads the gradient behind the relu, so that the chain ends there
    "a product breaks a chain": (
        FIRST + "a = Relu (h)\nb = MatMul (a, w2)\ny = Tanh (b)",
        {"w2": (16, 16)},
        [
            "tanh_backward [64, 64] -> 64",
            "gemm 1x4x16x16",
            "gemm 1x16x16x4 A",
            "threshold_backward [64, 64] -> 64",
            BY_W,
        ],
    ),
    # both branches and their sum read g, a and b, each once: a is relu's result and b's partner, b tanh's and a's
    "branches meet in one": (
        FIRST + "a = Relu (h)\nb = Tanh (h)\ny = Mul (a, b)",
        {},
        ["mul+mul+tanh_backward+threshold_backward+add [64, 64, 64] -> 64", BY_W],
    ),
    "a softmax takes in what stands behind it": (
        FIRST + "a = Softmax (h)\ny = Tanh (a)",
        {},
        ["softmax backward 4x16 tanh_backward", BY_W],
    ),
}


@pytest.mark.parametrize(("nodes", "weights", "expected"), FUSED.values(), ids=FUSED)
def test_compiled(nodes: str, weights: Mapping[str, tuple[int, ...]], expected: list[str]) -> None:
    graph = inferred(nodes, X, weights={**W, **weights})
    lowered = lower_laid_out(graph, runtime="compiled")
    result = train(graph, lowered.works, lowered.strides, BARE, "compiled", merged=lowered.works)
    found = [kernel for work in result.works if work.phase == "backward" for kernel in work.kernels]
    assert [shown_whole(kernel) for kernel in found] == expected


def _in_order(kernel: Gemm | Conv) -> Gemm | Conv:
    """A convolution that a compiler has channels last as it is without."""
    return replace(kernel, channels_last=False) if isinstance(kernel, Conv) else kernel


@pytest.mark.parametrize("name", ["bert", "gpt", "resnet", "mobilenet"])
def test_a_compiler_leaves_the_products_and_saves_bytes(name: str) -> None:
    model = read_model(Path(__file__).parent / "trained" / f"{name}.onnx")
    shaped = infer_shapes(model, make_bindings({"batch": 2}, None, None, None))
    plan = make_training(dropout="0.1")
    # both channels last, as a compiler reorders images; in row-major order a kernel that reads its operands twice
    # (all gradients of a batch normalization) counts them once
    last = name in ("resnet", "mobilenet")
    kernels = {}
    for runtime in ("eager", "compiled"):
        work = prepare(shaped, precision=FORMATS["fp32"], runtime=runtime, channels_last=last, training=plan).work
        kernels[runtime] = [kernel for item in work if item.phase == "backward" for kernel in item.kernels]
    products = {
        runtime: Counter(_in_order(kernel) for kernel in found if isinstance(kernel, Gemm | Conv))
        for runtime, found in kernels.items()
    }
    assert products["compiled"] == products["eager"]
    eager, compiled = (
        sum(kernel.read_bytes + kernel.write_bytes for kernel in kernels[runtime]) for runtime in ("eager", "compiled")
    )
    assert 0.3 * eager < compiled < eager
    # a compiler splits sums over channels in two kernels each, where PyTorch's own blocks add up what others left
    split = [
        kernel for kernel in kernels["compiled"] if isinstance(kernel, Reduction) and kernel.operation == "sum_parts"
    ]
    assert len(kernels["compiled"]) - len(split) < len(kernels["eager"])
