"""A step of training: kernels, gradients and bytes worked out by hand (float32, 4 bytes an element)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from graphs import inferred, split, value_info
from neusight_onnx.backward import Trained, Training, as_trained, make_training, train
from neusight_onnx.backward.form import dropout_places
from neusight_onnx.backward.registry import RULES, differentiates
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import NeusightError, TrainingError
from neusight_onnx.fusion.called_attention import with_called_attention
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Pooling,
    Reduction,
    Softmax,
)
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.autocast import autocast
from neusight_onnx.lowering.precision import as_precision
from neusight_onnx.memory import run_memory
from neusight_onnx.precision import FORMATS
from neusight_onnx.predictor import predict
from neusight_onnx.preparation import infer_shapes, prepare

BARE = Training(optimizer="none", loss="none")


def trained(graph: InferredGraph, plan: Training = BARE) -> tuple[InferredGraph, Sequence[NodeWork], Trained]:
    form = as_trained(recognise(graph, runtime="eager"), plan).graph
    lowered = lower_laid_out(form, runtime="eager")
    return form, lowered.works, train(form, lowered.works, lowered.strides, plan, "eager")


def shown(kernel: Kernel) -> str:
    """A kernel in a word and its sizes."""
    match kernel:
        case Gemm():
            flags = "".join(name for name, is_set in (("A", kernel.transpose_a), ("B", kernel.transpose_b)) if is_set)
            return f"gemm {kernel.batch}x{kernel.m}x{kernel.n}x{kernel.k}{flags and ' ' + flags}"
        case Conv():
            return f"conv {kernel.direction}"
        case Elementwise():
            reads = [spec.element_count for spec in kernel.inputs]
            return f"{'+'.join(kernel.operations)} {reads} -> {kernel.output.element_count}"
        case Reduction():
            return f"{kernel.operation} {kernel.outputs} of {kernel.reduced}"
        case Softmax():
            return f"softmax{' backward' if kernel.backward else ''} {kernel.rows}x{kernel.cols}"
        case Normalization():
            return f"{kernel.method}{' backward' if kernel.backward else ''} {kernel.rows}x{kernel.cols}"
        case Pooling():
            return f"{kernel.operation} {kernel.output.element_count} window {kernel.window}"
        case GatherScatter():
            return f"{kernel.operation} {kernel.moved}"
        case Movement():
            return f"{kernel.operation} {prod(kernel.shape)}"
        case Attention():
            return f"attention{' backward' if kernel.backward else ''} {kernel.macs}"
        case _:
            return type(kernel).__name__.lower()


def backwards(result: Trained) -> dict[str, list[str]]:
    """Kernels of the steps that have some, by operator; nodes of an operator in the order of the run backwards."""
    found: dict[str, list[str]] = {}
    for step in result.steps:
        if step.work.kernels:
            found.setdefault(step.work.op_type, []).extend(shown(kernel) for kernel in step.work.kernels)
    return found


# The first product's result is h (4, 16), which needs a gradient; x doesn't.
FIRST = "h = MatMul (x, w)\n"
X, W = {"x": (4, 8)}, {"w": (8, 16)}
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


ATTENTION = """
t = Gather (table, ids)
q = MatMul (t, wq)
k = MatMul (t, wk)
v = MatMul (t, wv)
q4 = Reshape (q, heads)
k4 = Reshape (k, heads)
v4 = Reshape (v, heads)
qh = Transpose <perm=[0,2,1,3]> (q4)
kh = Transpose <perm=[0,2,3,1]> (k4)
vh = Transpose <perm=[0,2,1,3]> (v4)
s = MatMul (qh, kh)
d = Div (s, scale)
p = Softmax (d)
a = MatMul (p, vh)
at = Transpose <perm=[0,2,1,3]> (a)
a3 = Reshape (at, joined)
o = MatMul (a3, wo)
y = Add (o, t)
"""


def attention_block() -> InferredGraph:
    """Two sequences of 6 tokens, 2 heads of 4, a table of 10 rows."""
    return inferred(
        ATTENTION,
        {"ids": (2, 6)},
        weights={"table": (10, 8), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (8, 8)},
        constants={"heads": [0, 0, 2, 4], "joined": [0, 0, 8], "scale": [2.0]},
        types={"ids": TensorProto.INT64},
    )


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


def shown_whole(kernel: Kernel) -> str:
    """With what it writes beside its result, or what is fused into it."""
    if isinstance(kernel, Elementwise) and kernel.extra_outputs:
        return f"{shown(kernel)} + {[spec.element_count for spec in kernel.extra_outputs]}"
    if isinstance(kernel, Softmax) and kernel.fused:
        return f"{shown(kernel)} {'+'.join(kernel.fused)}"
    return shown(kernel)


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


# --- Who needs a gradient ---------------------------------------------------------------------------------------------


def parameters(result: Trained) -> set[str]:
    return {parameter.name for parameter in result.parameters}


def test_frozen_weights_have_none() -> None:
    graph = inferred(FIRST + "a = Relu (h)\ny = MatMul (a, w2)", X, weights={**W, "w2": (16, 2)})
    assert parameters(trained(graph)[2]) == {"w", "w2"}
    frozen = trained(graph, make_training(optimizer="none", loss="none", freeze=["w"]))[2]
    assert parameters(frozen) == {"w2"}
    assert backwards(frozen) == {"MatMul": ["gemm 1x2x16x4 A"]}, "nothing before w2 needs a gradient"


WITHOUT_GRADIENT: dict[str, tuple[str, Mapping[str, tuple[int, ...]], set[str]]] = {
    "statistics of a batch normalization": (
        FIRST + "y = BatchNormalization (h, s, b, m, v)",
        {"s": (16,), "b": (16,), "m": (16,), "v": (16,)},
        {"w", "s", "b"},
    ),
    "a number that scales": (FIRST + "y = Mul (h, c)", {"c": (1,)}, {"w"}),
    "what prepares the input": (
        "a = Sub (x, mean)\nb = Div (a, std)\n" + "y = MatMul (b, w)",
        {"mean": (8,), "std": (8,)},
        {"w"},
    ),
    "what scales the input": ("a = Mul (x, g)\ny = MatMul (a, w)", {"g": (8,)}, {"w"}),
    "but not a normalization of it": (
        "s = Mul (x, x)\nm = ReduceMean <axes=[1]> (s)\nd = Sqrt (m)\nn = Div (x, d)\n"
        "a = Mul (n, g)\ny = MatMul (a, w)",
        {"g": (8,)},
        {"g", "w"},
    ),
    "a slope of all channels that the exporter reshapes": (
        FIRST + "t = Unsqueeze (slope, first)\ny = PRelu (h, t)",
        {"slope": (1,)},
        {"slope", "w"},
    ),
    "a bias of one": (FIRST + "m = MatMul (h, w2)\ny = Add (m, b)", {"w2": (16, 1), "b": (1,)}, {"w", "w2", "b"}),
    "a bias of one in a Gemm": (FIRST + "y = Gemm (h, w2, b)", {"w2": (16, 1), "b": (1,)}, {"w", "w2", "b"}),
    "frequencies of rotary positions": (
        "f = Mul (x, freq)\ns = Sin (f)\nh = MatMul (s, w)\ny = Mul (h, s2)\n",
        {"freq": (8,), "s2": (4, 16)},
        {"w", "s2"},
    ),
    "what only makes a mask": (
        FIRST + "c = Greater (h, t)\ny = Where (c, h, zero)",
        {"t": (4, 16), "zero": (1,)},
        {"w"},
    ),
}


@pytest.mark.parametrize(("nodes", "weights", "expected"), WITHOUT_GRADIENT.values(), ids=WITHOUT_GRADIENT)
def test_what_is_trained(nodes: str, weights: Mapping[str, tuple[int, ...]], expected: set[str]) -> None:
    graph = inferred(nodes, X, weights={**W, **weights}, constants={"first": [0]})
    assert parameters(trained(graph)[2]) == expected


def test_a_bias_of_one_channel_is_trained() -> None:
    graph = inferred("y = Conv (x, w, b)", {"x": (2, 3, 8, 8)}, weights={"w": (1, 3, 1, 1), "b": (1,)})
    result = trained(graph)[2]
    assert parameters(result) == {"w", "b"}
    assert backwards(result) == {"Conv": ["conv weight", "sum 1 of 128"]}


def test_a_number_with_a_name_of_a_module_is_trained() -> None:
    """Of a temperature the exporter keeps the name; the constants that it writes have none with a dot."""
    scaled = helper.make_node("Mul", ["h", "head.temperature"], ["y"])
    graph = inferred([*split(FIRST), scaled], X, weights={**W, "head.temperature": (1,)})
    result = trained(graph)[2]
    assert parameters(result) == {"w", "head.temperature"}
    assert backwards(result)["Mul"] == ["mul [64] -> 64", "mul [64, 64] -> 64", "sum 1 of 64"]


def test_weights_without_a_gradient_are_named() -> None:
    graph = inferred("a = Mul (x, g)\nh = MatMul (a, w)\ny = Mul (h, c)", X, weights={**W, "g": (8,), "c": (1,)})
    said = trained(graph)[2].said
    assert any("128 of 137 floating-point weights are trained, 1 is a single number" in text for text in said)
    assert any("'g' is not trained" in text for text in said)


def test_statistics_that_the_exporter_stores_once_are_not_named() -> None:
    """Of equal weights it stores one and has an Identity make the others."""
    nodes = FIRST + "v = Identity (m)\ny = BatchNormalization (h, s, b, m, v)"
    graph = inferred(nodes, X, weights={**W, "s": (16,), "b": (16,), "m": (16,)})
    assert not any("not trained" in text for text in trained(graph)[2].said)


RECURRENT = "y, last, state = LSTM <hidden_size=3> (x, w, r, , , h0, c0)\n"


@pytest.mark.parametrize(
    ("reader", "before"),
    [
        pytest.param("z = Relu (y)", ["recurrent"], id="the results of all steps"),
        pytest.param("z = Relu (last)", ["fill 30", "recurrent"], id="the last state: zeros for the steps' results"),
        pytest.param("z = Relu (state)", ["fill 30", "recurrent"], id="the cell's state"),
    ],
)
def test_a_recurrent_layer_by_its_results_and_of_its_initial_states(reader: str, before: Sequence[str]) -> None:
    """5 steps of 2 sequences, 4 features and 3 hidden ones: the results are 5 x 2 x 3."""
    weights = {"w": (1, 12, 4), "r": (1, 12, 3), "h0": (1, 2, 3), "c0": (1, 2, 3)}
    result = trained(inferred(RECURRENT + reader, {"x": (5, 2, 4)}, weights=weights))[2]
    assert parameters(result) == weights.keys()
    assert backwards(result)["LSTM"] == [*before, "gemm 1x12x4x10 A", "gemm 1x12x3x10 A"]


GATES = """
    i = Slice (u, zero, three)
    rest = Slice (u, three, twelve)
    w = Concat <axis=0> (rest, i)
    w3 = Unsqueeze (w, zero)
    y, last, state = LSTM <hidden_size=3> (x, w3, r)
"""


def test_weights_are_in_the_order_that_the_module_holds_them_in() -> None:
    """An exporter that doesn't fold constants cuts them into gates: 32 launches of its own, real ones are none."""
    graph = inferred(
        GATES,
        {"x": (5, 2, 4)},
        weights={"u": (12, 4), "r": (1, 12, 3)},
        constants={"zero": [0], "three": [3], "twelve": [12]},
    )
    _, works, result = trained(graph)
    assert parameters(result) == {"u", "r"}
    assert backwards(result) == {"LSTM": ["recurrent", "gemm 1x12x4x10 A", "gemm 1x12x3x10 A"]}
    assert [work.op_type for work in works if work.kernels] == ["LSTM"]


def test_a_weight_of_which_a_part_is_left_out_is_cut() -> None:
    graph = inferred(
        "w = Slice (u, zero, twelve)\nw3 = Unsqueeze (w, zero)\ny, last, state = LSTM <hidden_size=3> (x, w3, r)",
        {"x": (5, 2, 4)},
        weights={"u": (20, 4), "r": (1, 12, 3)},
        constants={"zero": [0], "twelve": [12]},
    )
    assert backwards(trained(graph)[2])["Slice"] == ["fill 80", "copy 48"]


def test_a_state_passes_its_gradient_to_the_encoder() -> None:
    """And no loss is taken of the last states that a recurrent layer hands back beside its results."""
    nodes = (
        "a, last, state = LSTM <hidden_size=3> (x, w, r)\ny, h, c = LSTM <hidden_size=3> (x2, w2, r2, , , last, state)"
    )
    weights = {"w": (1, 12, 4), "r": (1, 12, 3), "w2": (1, 12, 4), "r2": (1, 12, 3)}
    graph = inferred(nodes, {"x": (5, 2, 4), "x2": (7, 2, 4)}, weights=weights, outputs=["y", "h", "c"])
    result = trained(graph)[2]
    assert parameters(result) == weights.keys()
    assert result.losses == ("y",)


def test_weights_that_a_body_takes_from_outside_are_not_passed_over() -> None:
    body = helper.make_graph(
        split("row = MatMul (x, w)\non = Identity (go)"),
        "body",
        [value_info("trip", [], TensorProto.INT64), value_info("go", [], TensorProto.BOOL)],
        [value_info("on", [], TensorProto.BOOL), value_info("row", [4, 16], TensorProto.FLOAT)],
    )
    loop = helper.make_node("Loop", ["count", ""], ["rows"], body=body)
    graph = inferred(
        [loop, *split("y = MatMul (rows, w2)")],
        X,
        weights={**W, "w2": (16, 2)},
        constants={"count": np.array(3, np.int64)},
    )
    result = trained(graph)[2]
    assert parameters(result) == {"w", "w2"}
    unsupported = [step.work.unsupported for step in result.steps if step.work.op_type == "Loop"]
    assert unsupported == ["in training: gradients through the body of Loop are not modelled yet"]


def test_a_loss_is_taken_of_what_nothing_else_is_made_of() -> None:
    """Not of keys and values that attention reads, packed into one tensor as exporters do, nor of a hidden state."""
    nodes = """
        k = MatMul (x, wk)
        v = MatMul (x, wv)
        s = Mul (k, v)
        y = Relu (s)
        k1 = Unsqueeze (k, zero)
        v1 = Unsqueeze (v, zero)
        present = Concat <axis=0> (k1, v1)
        reshaped = Reshape (y, flat)
    """
    graph = inferred(
        nodes,
        X,
        weights={"wk": (8, 16), "wv": (8, 16)},
        constants={"zero": [0], "flat": [-1]},
        outputs=["reshaped", "s", "present"],
    )
    assert trained(graph)[2].losses == ("reshaped",)


def test_a_block_without_gradient_is_named() -> None:
    graph = inferred(
        FIRST + "a = ArgMax <axis=1, keepdims=0> (h)\nb = Gather (table, a)\ny = MatMul (b, w2)",
        X,
        weights={**W, "table": (16, 3), "w2": (3, 2)},
    )
    result = trained(graph)[2]
    assert parameters(result) == {"table", "w2"}
    assert any("no gradient passes ArgMax" in text for text in result.said)


NOTHING: dict[str, tuple[str, Mapping[str, tuple[int, ...]], Training, str]] = {
    "no weights": ("y = Relu (x)", {}, BARE, "the results depend on no floating-point weight"),
    "what prepares the input": ("y = Mul (x, g)", {"g": (8,)}, BARE, "'g' is not trained"),
    "all frozen": (FIRST + "y = Relu (h)", W, make_training(freeze=["w*"]), "--freeze leaves no parameter"),
    "behind a choice": (FIRST + "y = ArgMax (h)", W, BARE, "no gradient reaches a parameter, for none passes ArgMax"),
    "a pattern of nothing": (
        FIRST + "y = Mul (h, c)",
        {"c": (1,), **W},
        make_training(freeze=["encoder*"]),
        "'encoder*' matches no parameter; there are 'w'",
    ),
    "the beginning of names": (
        "h = MatMul (x, layer0_w)\ny = Relu (h)",
        {"layer0_w": (8, 16)},
        make_training(freeze=["layer0"]),
        "'layer0' matches no parameter; 'layer0*' matches 1",
    ),
    "the middle of names": (
        "h = MatMul (x, m_layer0_w)\ny = Relu (h)",
        {"m_layer0_w": (8, 16)},
        make_training(freeze=["layer0"]),
        "'layer0' matches no parameter; '*layer0*' matches 1",
    ),
    "a number that is never trained": (
        FIRST + "y = Mul (h, half)",
        {"half": (1,), **W},
        make_training(freeze=["half"]),
        "'half' matches only what is never trained ('half'); there are 'w'",
    ),
}


@pytest.mark.parametrize(("nodes", "weights", "plan", "message"), NOTHING.values(), ids=NOTHING)
def test_nothing_to_train(nodes: str, weights: Mapping[str, tuple[int, ...]], plan: Training, message: str) -> None:
    with pytest.raises(TrainingError, match=re.escape(message)):
        trained(inferred(nodes, X, weights=weights), plan)


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "optimizer": ({"optimizer": "lion"}, "optimizer 'lion' is not known; choose one of adamw"),
    "loss": ({"loss": "hinge"}, "loss 'hinge' is not known"),
    "accumulation": ({"grad_accumulation": 0}, "give a number from 1"),
    "rate": ({"dropout": "1"}, "is no rate"),
    "word": ({"dropout": "some"}, "is no rate"),
    "place": ({"dropout": "head=0.1"}, "'head' is no place; there are attention, residual, embedding"),
    "place twice": ({"dropout": "residual=0.1,residual=0.2"}, "'residual' is given twice"),
    "freeze": ({"freeze": [""]}, "the pattern of frozen parameters is empty"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_plans_that_cant_be_meant(options: dict[str, object], message: str) -> None:
    with pytest.raises(NeusightError, match=message):
        make_training(**options)  # type: ignore[arg-type]  # a table of options


def test_a_second_rule_for_an_operator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gradient of ai\.onnx::Softmax has a rule already"):
        differentiates("Softmax")(RULES["", "Softmax"])


# --- Loss, optimizer, accumulation, dropout ---------------------------------------------------------------------------


def test_cross_entropy_and_adamw() -> None:
    """(4, 16): log-softmax and a mean forwards; zeros, targets and log-softmax's gradient backwards."""
    result = trained(inferred(FIRST + "y = Relu (h)", X, weights=W), make_training(optimizer="adamw"))[2]
    loss = [work for work in result.works if work.op_type == "loss"]
    assert [shown(kernel) for kernel in loss[0].kernels] == ["softmax 4x16", "mean 1 of 4"]
    assert [shown(kernel) for kernel in loss[1].kernels] == ["fill 64", "scatter 4", "softmax backward 4x16"]
    steps = [shown(kernel) for work in result.works if work.phase == "optimizer" for kernel in work.kernels]
    whole, two = "[128] -> 128", "[128, 128] -> 128"
    expected = [f"mul {whole}", f"lerp {two}", f"mul {whole}", f"addcmul {two}", f"sqrt {whole}", f"div {whole}"]
    assert steps == [*expected, f"add {whole}", "addcdiv [128, 128, 128] -> 128"]


@pytest.mark.parametrize("runtime", ["eager", "eager@1.13"])
def test_a_fused_step_is_one_kernel(runtime: str) -> None:
    """fused=True: weight, gradient and two moments are read, all but the gradient written; nothing else exists."""
    plan = make_training(optimizer="adamw-fused")
    form = as_trained(recognise(inferred(FIRST + "y = Relu (h)", X, weights=W), runtime="eager"), plan).graph
    lowered = lower_laid_out(form, runtime="eager")
    result = train(form, lowered.works, lowered.strides, plan, runtime)
    (step,) = [kernel for work in result.works if work.node == "optimizer/fused_adamw" for kernel in work.kernels]
    assert (step.read_bytes, step.write_bytes) == (4 * 4 * 128, 3 * 4 * 128)
    assert result.optimizer.temporary_bytes == 0


def test_accumulated_gradients() -> None:
    """Three runs: the kernels three times, two additions to each gradient, one step."""
    graph = inferred(FIRST + "y = Relu (h)", X, weights=W)
    result = trained(graph, make_training(optimizer="sgd", grad_accumulation=3))[2]
    counts = {(work.op_type, work.phase): work.count for work in result.works if work.kernels}
    assert counts["MatMul", "forward"] == counts["MatMul", "backward"] == counts["loss", "backward"] == 3
    assert counts["AccumulateGrad", "backward"] == 2
    assert counts["Optimizer", "optimizer"] == 1


BLOCKS = """
[/net/layer.0/up/Gemm] a = Gemm <transB=1> (x, w0)
[/net/layer.0/Relu] b = Relu (a)
[/net/layer.0/down/Gemm] c = Gemm <transB=1> (b, v0)
[/net/layer.1/up/Gemm] d = Gemm <transB=1> (c, w1)
[/net/layer.1/Relu] e = Relu (d)
[/net/layer.1/down/Gemm] f = Gemm <transB=1> (e, v1)
[/net/head/Gemm] y = Gemm <transB=1> (f, h)
"""
BLOCK_WEIGHTS = {"w0": (16, 8), "v0": (8, 16), "w1": (16, 8), "v1": (8, 16), "h": (2, 8)}


def blocks_graph() -> InferredGraph:
    nodes = []
    for line in BLOCKS.strip().splitlines():
        name, _, text = line.removeprefix("[").partition("] ")
        node = split(text)[0]
        node.name = name
        nodes.append(node)
    return inferred(nodes, X, weights=BLOCK_WEIGHTS)


def test_blocks_run_forward_again() -> None:
    """Kept are what the blocks read (x, which is the model's, and c) and the head's operand f, 4 x 8 each."""
    form, works, result = trained(blocks_graph(), make_training(optimizer="none", loss="none", recompute="blocks"))
    run = [(work.node.removeprefix("/net/"), work.phase) for work in result.works if work.kernels]
    again = [name for name, phase in run if phase == "backward"]
    second = ["layer.1/up/Gemm", "layer.1/Relu", "layer.1/down/Gemm"]
    first = ["layer.0/up/Gemm", "layer.0/Relu", "layer.0/down/Gemm"]
    assert again == ["head/Gemm", *second, *reversed(second), *first, *reversed(first)]
    memory = run_memory(form, works, "eager", trained=result)
    assert [(tensor.name, tensor.byte_count) for tensor in memory.saved] == [("f", 128), ("c", 128)]
    # The most is alive in the first block's Relu, its up's gradient beside its own: x, y, b (4 x 16) and both
    # gradients of 4 x 16, and what the parameters have by then: all but w0's.
    parameters = 16 + 2 * 128 + 128
    assert memory.found.peak_bytes == 4 * (32 + 8 + 64 + 2 * 64 + parameters)


def test_the_whole_runs_forward_again() -> None:
    result = trained(blocks_graph(), make_training(optimizer="none", loss="none", recompute="all"))[2]
    phases = [work.phase for work in result.works if work.kernels]
    assert phases == ["forward"] * 7 + ["backward"] * (7 + 7)


@pytest.mark.parametrize(("recompute", "behind_the_head"), [("none", 768 + 64 + 128 + 64 + 128), ("blocks", 64)])
def test_copies_of_autocast_live_until_their_gradient(recompute: str, behind_the_head: int) -> None:
    """Autocast's context ends with the run forward, which its cache outlives by nothing.

    Behind the gradient of the head there are x, y, the gradients of h and f, and without recomputation what the layers
    keep: the copies of v0, w1 and v1 (256 B each; w0's is for no gradient, as x has none), x's copy, b, c and e. With
    it the second block's input c. In the end x, y and the parameters' gradients are left.
    """
    graph = autocast(blocks_graph(), DataType.BFLOAT16, runtime="eager")
    form, works, result = trained(graph, make_training(optimizer="none", loss="none", recompute=recompute))
    timeline = run_memory(form, works, "eager", trained=result, timeline=True).found.timeline or []
    alive = {point.node: point.live_bytes for point in timeline}
    assert alive["/net/head/Gemm (backward)"] == 128 + 16 + 32 + 64 + behind_the_head
    assert timeline[-1].live_bytes == 128 + 16 + 4 * (4 * 128 + 16)


def test_blocks_without_numbers_are_not_found() -> None:
    graph = inferred(TWO_LAYERS, X, weights={"w": (16, 8), "b": (16,), "w2": (2, 16), "b2": (2,)})
    with pytest.raises(TrainingError, match="the names of nodes show no repeated blocks"):
        trained(graph, make_training(recompute="blocks"))


def test_dropout_stands_where_models_have_it() -> None:
    graph = attention_block()
    names = {node.outputs[0]: node.outputs[0] for node in graph.graph.nodes}
    assert dropout_places(graph) == {names["t"]: "embedding", names["p"]: "attention", names["o"]: "residual"}
    plan = make_training(optimizer="none", loss="none", dropout="attention=0.1")
    _, works, result = trained(graph, plan)
    masks = [work for work in works if work.op_type == "Dropout"]
    assert [shown(kernel) for work in masks for kernel in work.kernels] == ["dropout [144] -> 144"]
    assert masks[0].kernels[0].write_bytes == 144 * 4 + 144, "a mask of a byte an element"
    assert backwards(result)["Dropout"] == ["mul [144, 144] -> 144"]
    off = trained(graph, make_training(optimizer="none", loss="none", dropout="off"))[1]
    assert not any(work.op_type == "Dropout" for work in off)


def test_dropout_is_put_within_calls_of_attention() -> None:
    graph = inferred("q = MatMul (x, w)\ny = Attention (q, q, q)", {"x": (2, 2, 6, 8)}, weights={"w": (8, 4)}, opset=23)
    plan = make_training(optimizer="none", loss="none", dropout="attention=0.1")
    form = as_trained(graph, plan)
    assert "training: dropout is put where the file has none: 1 within attention (--dropout)" in form.said
    _, works, result = trained(graph, plan)
    (forward,) = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Attention)]
    (backward,) = [k for step in result.steps for k in step.work.kernels if isinstance(k, Attention)]
    assert forward.dropout
    assert backward.dropout
    assert not any(
        getattr(kernel, "dropout", False)
        for work in trained(graph, make_training(dropout="residual=0.1"))[1]
        for kernel in work.kernels
    )


def test_dropped_weights_of_attention_by_its_formula_are_kept() -> None:
    """2 x 3 x 2 x 6 x 6 weights: a kernel with a mask behind the softmax, one with it backwards."""
    nodes = """
t = Transpose <perm=[0,1,2,4,3]> (k)
q = MatMul (x, w)
s = MatMul (q, t)
p = Softmax <axis=-1> (s)
y = MatMul (p, v)
"""
    graph = inferred(nodes, dict.fromkeys("xkv", (2, 3, 2, 6, 8)), weights={"w": (8, 8)})
    called = with_called_attention(graph, runtime="eager", autocast=True)
    kept_bytes = []
    for rate in ("attention=0.1", "off"):
        _, works, result = trained(called, make_training(optimizer="none", loss="none", dropout=rate))
        is_on = rate != "off"
        forward = [shown_whole(kernel) for work in works for kernel in work.kernels]
        assert ("dropout [432] -> 432 + [432]" in forward) is is_on
        (step,) = [step for step in result.steps if step.work.op_type == "ScaledDotProductAttention"]
        masked = [kernel for kernel in step.work.kernels if kernel.read_bytes == 432 * 4 + 432]
        assert len(masked) == is_on
        kept_bytes.append(step.kept_bytes)
    assert kept_bytes[0] - kept_bytes[1] == 432 * 4 + 432


@pytest.mark.parametrize(
    ("dropout", "lacking"),
    [
        ("0.1", "behind the softmax of attention or at the end of residual branches or behind the embeddings"),
        ("residual=0.1", "at the end of residual branches"),
        ("off", None),
        (None, None),
    ],
)
def test_dropout_without_a_place_is_warned_of(dropout: str | None, lacking: str | None) -> None:
    graph = inferred(FIRST + "y = Relu (h)", X, weights=W)
    warnings = as_trained(graph, make_training(dropout=dropout)).graph.warnings
    assert [notice.message for notice in warnings] == ([f"--dropout: no place was found {lacking}"] if lacking else [])


def test_the_files_own_dropout_runs() -> None:
    graph = inferred(FIRST + "d = Dropout (h, rate)\ny = Relu (d)", X, weights=W, constants={"rate": [0.5]})
    assert backwards(trained(graph)[2])["Dropout"] == ["mul [64, 64] -> 64"]
    idle = inferred(FIRST + "d = Dropout (h, rate)\ny = Relu (d)", X, weights=W, constants={"rate": [0.0]})
    assert "Dropout" not in backwards(trained(idle)[2])


def test_a_folded_batch_normalization_runs_again() -> None:
    """Weight and bias have names of the exporter: 2 x 4 x 8 x 8 results, normalized over 128 in each of 4 channels."""
    weights = {"onnx::Conv_7": (4, 3, 3, 3), "onnx::Conv_8": (4,), "head.weight": (5, 4, 1, 1), "head.bias": (5,)}
    nodes = [
        helper.make_node("Conv", ["x", "onnx::Conv_7", "onnx::Conv_8"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "head.weight", "head.bias"], ["y"]),
    ]
    _, works, result = trained(inferred(nodes, {"x": (2, 3, 8, 8)}, weights=weights))
    forward = [shown(kernel) for work in works for kernel in work.kernels]
    assert forward == ["conv forward", "add [1] -> 1", "batch 4x128", "conv forward", "add [640, 5] -> 640"]
    assert backwards(result)["BatchNormalization"] == ["batch backward 4x128"]
    assert result.parameter_count == 108 + 4 + 4 + 20 + 5, "a scale beside the shift"


# --- Memory -----------------------------------------------------------------------------------------------------------

LAYER = FIRST + "y = Relu (h)"
TWO_LAYERS = "h = Gemm <transB=1> (x, w, b)\na = Relu (h)\ny = Gemm <transB=1> (a, w2, b2)"
NET = (
    "c = Conv <pads=[1,1,1,1]> (x, w)\nn = BatchNormalization (c, s, b, m, v)\nr = Relu (n)\ny = GlobalAveragePool (r)"
)
MODELS: dict[str, tuple[str, tuple[int, ...], Mapping[str, tuple[int, ...]], int, int]] = {
    # nodes, input, weights, trained parameters, bytes kept of the run forward (inputs left out)
    "a layer": (LAYER, (4, 8), W, 128, 64 * 4),  # relu's result
    "two layers": (
        TWO_LAYERS,
        (4, 8),
        {"w": (16, 8), "b": (16,), "w2": (2, 16), "b2": (2,)},
        128 + 16 + 32 + 2,
        64 * 4,  # relu's result is the second layer's operand, too
    ),
    "a convolution": (
        NET,
        (2, 3, 8, 8),
        {"w": (4, 3, 3, 3), "s": (4,), "b": (4,), "m": (4,), "v": (4,)},
        108 + 4 + 4,
        2 * 512 * 4 + 2 * 4 * 4,  # the convolution's result, relu's, mean and deviation of four channels
    ),
}

STATES = {"none": 0, "sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "adamw-fused": 2}


@pytest.mark.parametrize("optimizer", STATES)
@pytest.mark.parametrize(("nodes", "shape", "weights", "count", "kept"), MODELS.values(), ids=MODELS)
def test_bytes_by_hand(
    optimizer: str, nodes: str, shape: tuple[int, ...], weights: Mapping[str, tuple[int, ...]], count: int, kept: int
) -> None:
    plan = make_training(optimizer=optimizer, loss="none")
    form, works, result = trained(inferred(nodes, {"x": shape}, weights=weights), plan)
    assert result.parameter_count == count
    assert result.optimizer.state_bytes == STATES[optimizer] * 4 * count
    assert result.optimizer.master_bytes == 0
    memory = run_memory(form, works, "eager", trained=result)
    assert sum(tensor.byte_count for tensor in memory.saved) == kept
    storages = zip(memory.found.kinds, memory.found.sizes, strict=True)
    sizes = [(kind, size) for kind, size in storages if kind in ("gradient", "optimizer")]
    assert sum(size for kind, size in sizes if kind == "gradient") == 4 * count
    assert sum(size for kind, size in sizes if kind == "optimizer") == STATES[optimizer] * 4 * count


def test_mixed_precision_has_master_weights() -> None:
    """float16 weights and gradients; in float32 a copy of the weights and both states: 2 + 2 + 4 + 8 bytes each."""
    graph = as_precision(inferred(LAYER, X, weights=W), DataType.FLOAT16)
    result = trained(graph, make_training(optimizer="adam", loss="none"))[2]
    assert [parameter.spec.byte_count for parameter in result.parameters] == [2 * 128]
    assert result.optimizer.master_bytes == 4 * 128
    assert result.optimizer.state_bytes == 8 * 128


def test_the_peak_of_two_layers() -> None:
    """By hand. Alive at the worst moment, the second layer's gradients being made: x (4 x 8), relu's result (4 x 16)
    that is kept, y (4 x 2) that the caller holds, its gradient, and those that are made: a's (4 x 16), w2's, b2's."""
    graph = inferred(TWO_LAYERS, X, weights={"w": (16, 8), "b": (16,), "w2": (2, 16), "b2": (2,)})
    form, works, result = trained(graph)
    peak = run_memory(form, works, "eager", trained=result).found
    second = 4 * (32 + 64 + 8 + 8 + 64 + 32 + 2)
    # relu's: h's gradient beside a's; y's has gone
    relu = 4 * (32 + 64 + 8 + 64 + 64 + 32 + 2)
    # the first layer's: h's gradient, w's and b's beside; a and its gradient have gone
    first = 4 * (32 + 8 + 64 + 32 + 2 + 128 + 16)
    assert peak.peak_bytes == max(second, relu, first)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param("ReduceMean <axes=[2,3], keepdims=0> (c)", (2, 8, 1, 1), id="gone"),
        pytest.param("ReduceMean <axes=[2,3]> (c)", (2, 8, 1, 1), id="kept"),
        pytest.param("ReduceL1 <axes=[0,3], keepdims=0> (c)", (1, 8, 8, 1), id="equal sizes on both sides"),
    ],
)
def test_a_mean_repeats_its_gradient_along_what_was_reduced(node: str, expected: tuple[int, ...]) -> None:
    """x (2, 3, 8, 8) -> 8 filters of 3x3: sizes alone don't tell which axis of a (2, 8, 8, 8) is gone."""
    graph = inferred(f"c = Conv <pads=[1,1,1,1]> (x, w)\ny = {node}", {"x": (2, 3, 8, 8)}, weights={"w": (8, 3, 3, 3)})
    result = trained(graph)[2]
    found = {
        kernel.inputs[-1].shape
        for work in result.works
        if work.phase == "backward" and work.op_type.startswith("Reduce")
        for kernel in work.kernels
        if isinstance(kernel, Elementwise)
    }
    assert found - {(2, 8, 8, 8)} == {expected}  # but the whole input
