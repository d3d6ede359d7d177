"""What ONNX Runtime and TensorRT make of small graphs: kernels before and after, by hand, and why not more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engine_graphs import ATTENTION, CONV_RELU, FEED_FORWARD, HEADS, IMAGE, RESNET, TOKENS, built, shown
from graphs import inferred, split
from neusight_onnx.analysis import analyze
from neusight_onnx.cli.app import run
from neusight_onnx.comparison.cases import compare
from neusight_onnx.comparison.what_if import Question, variants
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.engine_rules import ENGINE_RULES
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.fusion.runtimes import fused_graph, fusion_verdicts
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import Elementwise, Gemm, Movement, Softmax, TensorSpec
from neusight_onnx.preparation import infer_shapes, works_of
from neusight_onnx.runtime import RUNTIMES


@pytest.mark.parametrize(
    ("nodes", "inputs", "half", "runtime", "expected"),
    [
        pytest.param(
            CONV_RELU,
            IMAGE,
            False,
            "eager",
            [
                "conv",
                "elementwise add",
                "normalization",
                "elementwise relu",
                "conv",
                "elementwise add",
                "elementwise relu",
            ],
            id="convolutions, eager",
        ),
        # the normalization is in the weights; cuDNN's convolution has neither bias nor activation
        pytest.param(
            CONV_RELU,
            IMAGE,
            False,
            "onnxruntime",
            ["conv", "elementwise add", "elementwise relu", "conv", "elementwise add", "elementwise relu"],
            id="convolutions, onnxruntime",
        ),
        pytest.param(
            CONV_RELU, IMAGE, False, "tensorrt", ["conv bias relu", "conv add relu"], id="convolutions, tensorrt"
        ),
        # all sizes are fixed, so that both biases go into Gemm, which spreads them first
        pytest.param(
            FEED_FORWARD,
            TOKENS,
            False,
            "onnxruntime",
            ["movement bias", "gemm add", "elementwise gelu", "movement bias", "gemm add", "normalization add"],
            id="feed-forward, onnxruntime",
        ),
        pytest.param(
            FEED_FORWARD,
            TOKENS,
            False,
            "tensorrt",
            ["gemm bias gelu", "gemm", "normalization add add"],
            id="feed-forward, tensorrt: nothing but the normalization reads the sum",
        ),
        pytest.param(
            FEED_FORWARD + "z = Add(y, s)\n",
            TOKENS,
            False,
            "tensorrt",
            ["gemm bias gelu", "gemm bias add", "normalization add"],
            id="feed-forward, tensorrt: the sum goes on, too",
        ),
        pytest.param(
            ATTENTION,
            HEADS,
            False,
            "onnxruntime",
            ["gemm", "softmax add", "gemm"],
            id="attention, onnxruntime: scale and transposition in the product, the mask in the softmax",
        ),
        pytest.param(
            ATTENTION, HEADS, False, "tensorrt", ["gemm", "softmax div add", "gemm"], id="attention, tensorrt in FP32"
        ),
        pytest.param(ATTENTION, HEADS, True, "tensorrt", ["attention"], id="attention, tensorrt in FP16"),
        pytest.param(
            ATTENTION.replace("Add(s, mask)", "Add(mask, s)"),
            HEADS | {"mask": (2, 4, 6, 6)},
            True,
            "tensorrt",
            ["attention"],
            id="attention, tensorrt: what is added is each head's own",
        ),
        pytest.param(
            ATTENTION.replace("Add(s, mask)", "Add(s, exped)").replace("a =", "exped = Exp(mask)\na ="),
            HEADS | {"mask": (2, 4, 6, 6)},
            True,
            "tensorrt",
            ["elementwise exp", "attention"],
            id="attention, tensorrt: what is added is computed",
        ),
        pytest.param(
            ATTENTION.replace("MatMul(p2, v)", "MatMul(c2, v)").replace(
                "y =", "c1 = Cast<to=10>(p2)\nc2 = Cast<to=10>(c1)\ny ="
            ),
            HEADS,
            True,
            "tensorrt",
            ["attention"],
            id="attention, tensorrt: casts that change nothing",
        ),
        pytest.param(
            ATTENTION.replace("Softmax<axis=-1>(a)", "Softmax<axis=-1>(c1)")
            .replace("p2 =", "c1 = Cast<to=1>(a)\np2 =")
            .replace("y = MatMul(p2, v)", "c2 = Cast<to=10>(p2)\ny = MatMul(c2, v)"),
            HEADS,
            True,
            "tensorrt",
            ["attention"],
            id="attention, tensorrt: the softmax in FP32, the scores scaled and masked before",
        ),
    ],
)
def test_kernels(nodes: str, inputs: dict[str, tuple[int, ...]], half: bool, runtime: str, expected: list[str]) -> None:
    graph = built(nodes, inputs, half=half)
    assert shown(graph, runtime) == expected
    origins = {origin.name for node in fused_graph(graph, RUNTIMES[runtime]).graph.nodes for origin in node.origins}
    named = origins | {node.name for node in fused_graph(graph, RUNTIMES[runtime]).graph.nodes}
    assert {node.name for node in graph.graph.nodes} <= named


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs", "runtime", "rule", "words"),
    [
        pytest.param(
            "c = Conv(x, w)\nr = Relu(c)\ny = Add(r, c)",
            IMAGE,
            None,
            "tensorrt",
            "epilogue of a product",
            "is used elsewhere",
            id="a convolution's result with two readers",
        ),
        pytest.param(
            "c = Conv(x, w)\ny = Relu(c)",
            IMAGE,
            ["y", "c"],
            "tensorrt",
            "epilogue of a product",
            "is used elsewhere",
            id="a convolution's result that is asked for",
        ),
        pytest.param(
            "c = Conv(x, w)\ny = Softplus(c)",
            IMAGE,
            None,
            "tensorrt",
            "epilogue of a product",
            "no kernel that applies Softplus",
            id="an activation that convolutions don't have",
        ),
        pytest.param(
            "c = Conv(x, w)\nd = Conv(x, w)\ne = Conv(x, w)\ns = Add(c, d)\ny = Add(s, e)",
            IMAGE,
            None,
            "tensorrt",
            "epilogue of a product",
            "one tensor at most",
            id="two residual sums",
        ),
        pytest.param(
            ATTENTION, HEADS, None, "tensorrt", "attention in one kernel", "16 and 8 bits only", id="attention in FP32"
        ),
        pytest.param(
            "s = Add(x, x)\nr = Relu(s)\nt = Add(s, r)\ny = LayerNormalization(t, scale, shift)",
            TOKENS,
            ["y", "t"],
            "onnxruntime",
            "sum and layer normalization",
            "used elsewhere",
            id="a sum that is read twice",
        ),
        pytest.param(
            "m = MatMul(x, w)\ny = Gelu(m)",
            TOKENS,
            None,
            "onnxruntime",
            "bias and GELU",
            "nothing is added",
            id="GELU without a bias",
        ),
    ],
)
def test_refusals_say_why(
    nodes: str,
    inputs: dict[str, tuple[int, ...]],
    outputs: list[str] | None,
    runtime: str,
    rule: str,
    words: str,
) -> None:
    said = fusion_verdicts(built(nodes, inputs, outputs=outputs), RUNTIMES[runtime])
    reasons = [verdict.reason or "" for verdict in said if verdict.rule == rule]
    assert any(words in reason for reason in reasons), said


def test_linear_layers_of_one_input_are_one_product() -> None:
    """(2 x 6, 16) by three (16, 8): n = 24; biases are added where the parts are read, here in one sum."""
    nodes = "\n".join(f"m{i} = MatMul(x, w{i})\na{i} = Add(m{i}, b{i})" for i in range(3))
    graph = inferred(
        f"{nodes}\ny = Sum(a0, a1, a2)",
        TOKENS,
        weights={f"w{i}": (16, 8) for i in range(3)} | {f"b{i}": (8,) for i in range(3)},
    )
    runtime = RUNTIMES["tensorrt"]
    product, *rest = [kernel for work in works_of(fused_graph(graph, runtime), runtime) for kernel in work.kernels]
    assert product == Gemm(m=12, n=24, k=16, b_is_weight=True, dtype=DataType.FLOAT32)
    assert [getattr(kernel, "operations", ()) for kernel in rest] == [("add",) * 5]


@pytest.mark.parametrize(
    ("gpu", "runtime", "asked", "executed"),
    [
        ("a100", "onnxruntime", "auto", "tf32"),
        ("a100", "tensorrt", "auto", "tf32"),
        ("a100", "onnxruntime", "fp32", "fp32"),
        ("a100", "onnxruntime", "tf32", "tf32"),
        ("a100", "onnxruntime", "fp16", "fp16"),
        ("t4", "onnxruntime", "auto", "fp32"),
        # no library of NVIDIA's runs there
        ("mi300x", "onnxruntime", "auto", "fp32"),
    ],
)
def test_runtimes_that_multiply_float32_in_tf32_unasked(gpu: str, runtime: str, asked: str, executed: str) -> None:
    report = analyze(RESNET, gpu=gpu, dims={"batch": 2}, runtime=runtime, precision=asked)
    assert report.settings.precision == executed
    products = {row.dtype for row in report.kernels if row.kernel_class in ("conv", "gemm")}
    assert products == {{"fp32": "float32", "fp16": "float16"}.get(executed, executed)}
    said = [text for text in report.assumptions if "unasked" in text]
    assert len(said) == (executed == "tf32" and asked == "auto")
    if executed == "tf32":
        explicit = analyze(RESNET, gpu=gpu, dims={"batch": 2}, runtime=runtime, precision="tf32")
        assert report.totals.latency_ms == explicit.totals.latency_ms
        assert {row.dtype for row in report.kernels if row.kernel_class == "elementwise"} <= {"float32"}


def test_what_is_executed_alike_is_compared_once() -> None:
    """auto is tf32 on an A100 and fp32 on a T4, which has no TF32."""
    found = compare(RESNET, gpus=["a100", "t4"], precisions=["auto", "fp32", "tf32"], dims={"batch": 1})
    cases = sorted((case.gpu.name, case.precision) for case in found.cases)
    assert cases == [("a100-sxm-80gb", "fp32"), ("a100-sxm-80gb", "tf32"), ("t4", "fp32")]
    assert "precision" in found.varied


def test_a_mask_of_open_size_joins_the_softmax_where_the_file_shows_one_shape(tmp_path: Path) -> None:
    text = "s = Add(x, m)\ny = Softmax<axis = -1>(s)"
    for mask, merged in ((["batch", "tokens"], True), (["batch", 1], False), (["batch", "others"], False)):
        graph = helper.make_graph(
            split(text),
            "g",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens"]),
                helper.make_tensor_value_info("m", TensorProto.FLOAT, mask),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )
        path = tmp_path / "model.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        sizes = make_bindings(
            dict.fromkeys({"batch", "tokens", *(item for item in mask if isinstance(item, str))}, 6), None, None, None
        )
        shaped = infer_shapes(read_model(path), sizes)
        found = [node.op_type for node in fused_graph(shaped.expected, RUNTIMES["onnxruntime"]).graph.nodes]
        assert found == (["BiasSoftmax"] if merged else ["Add", "Softmax"])


@pytest.mark.parametrize("width", [1024, 1025])
def test_softmax_with_a_mask_is_over_the_last_dimension(width: int) -> None:
    """(2, 4, 6, width) is 48 rows, whatever ``axis`` was counted from; a warp holds 1,024 elements of one."""
    sizes = {"x": (2, 4, 6, width), "m": (2, 1, 1, width)}
    graph = fused_graph(inferred("s = Add(x, m)\ny = Softmax<axis = -1>(s)", sizes), RUNTIMES["onnxruntime"])
    *before, softmax = [kernel for work in works_of(graph, RUNTIMES["onnxruntime"]) for kernel in work.kernels]
    assert isinstance(softmax, Softmax)
    assert (softmax.rows, softmax.cols, softmax.fused) == (48, width, ("add",) if width == 1024 else ())
    assert [kernel.operations for kernel in before if isinstance(kernel, Elementwise)] == [("add",)] * (width > 1024)
    mask = TensorSpec(dtype=DataType.FLOAT32, shape=sizes["m"])
    assert mask in (softmax.extra_inputs or cast(Elementwise, before[0]).inputs)


def test_onnxruntime_runs_quantised_pairs_one_by_one() -> None:
    """Its CUDA provider has no kernels between the pairs: it dequantises, multiplies in FP32, and quantises again."""
    nodes = """
        a = QuantizeLinear(x, s, z)
        b = DequantizeLinear(a, s, z)
        w = DequantizeLinear(wq, s, z)
        m = MatMul(b, w)
        c = QuantizeLinear(m, s, z)
        y = DequantizeLinear(c, s, z)
    """
    graph = inferred(
        nodes,
        {"x": (6, 16)},
        constants={"s": np.float32(0.1), "z": np.int8(0), "wq": np.zeros((16, 8), np.int8)},
    )
    assert shown(graph, "onnxruntime") == [
        "elementwise quantize",
        "elementwise dequantize",
        "elementwise dequantize",
        "gemm",
        "elementwise quantize",
        "elementwise dequantize",
    ]
    # TensorRT multiplies integers; the pairs at the ends stay
    assert shown(graph, "tensorrt") == ["elementwise quantize", "gemm requantize", "elementwise dequantize"]


def test_a_product_swaps_behind_the_batch_only_after_it_moved_the_batch() -> None:
    """(5, 6, 4) -> (5, 4, 6) -> (4, 5, 6): both attributes together would read (6, 4, 5)."""
    nodes = "s = Transpose<perm=[0,2,1]>(a)\nt = Transpose<perm=[1,0,2]>(s)\ny = MatMul(t, b)"
    shapes = {"a": (5, 6, 4), "b": (4, 6, 7)}
    (swap, product) = recognise(inferred(nodes, shapes), runtime="onnxruntime", rules=ENGINE_RULES).graph.nodes
    assert (swap.op_type, product.inputs, product.attributes) == ("Transpose", ("s", "b"), {"transBatchA": 1})
    turned = "s = Transpose<perm=[1,0,2]>(a)\nt = Transpose<perm=[0,2,1]>(s)\ny = MatMul(t, b)"
    (product,) = recognise(
        inferred(turned, {"a": (5, 4, 6), "b": (4, 5, 7)}), runtime="onnxruntime", rules=ENGINE_RULES
    ).graph.nodes
    assert (product.inputs, product.attributes) == (("a", "b"), {"transA": 1, "transBatchA": 1})


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        pytest.param("y = Sigmoid(c)", ["conv sigmoid"], id="sigmoid"),
        pytest.param("y = Tanh(c)", ["conv tanh"], id="tanh"),
        pytest.param("y = HardSwish(c)", ["conv hardswish"], id="hard swish"),
        pytest.param("y = HardSigmoid(c)", ["conv hardsigmoid"], id="hard sigmoid"),
        pytest.param("y = Elu(c)", ["conv elu"], id="elu"),
        pytest.param("s = Sigmoid(c)\ny = Mul(c, s)", ["conv silu"], id="SiLU"),
        pytest.param("y = Softplus(c)", ["conv", "elementwise softplus"], id="softplus"),
        pytest.param("y = Mish(c)", ["conv", "elementwise mish"], id="mish"),
        pytest.param("a = Add(c, x)\nt = Sigmoid(a)\ny = Mul(a, t)", ["conv add silu"], id="a sum, then SiLU"),
        pytest.param("r = Relu(c)\ny = Add(r, x)", ["conv relu add"], id="ReLU, then a sum"),
        pytest.param("h = HardSwish(c)\ny = Add(h, x)", ["conv hardswish add"], id="hard swish, then a sum"),
        pytest.param(
            "h = HardSwish(c)\nm = ReduceMean<keepdims=1>(h, places)\ng = Conv(m, w)\ny = Mul(h, g)",
            ["conv", "reduction mean", "conv", "elementwise hardswish mul"],
            id="squeeze and excitation",
        ),
        pytest.param(
            "h = Relu(c)\nm = ReduceMean<keepdims=1>(h, places)\ng = Conv(m, w)\ny = Mul(h, g)",
            ["conv relu", "reduction mean", "conv", "elementwise mul"],
            id="squeeze and excitation, ReLU",
        ),
    ],
)
def test_what_a_convolution_applies_in_tensorrt(behind: str, expected: list[str]) -> None:
    graph = inferred(
        f"c = Conv(x, w)\n{behind}",
        {"x": (2, 4, 8, 8)},
        weights={"w": (4, 4, 1, 1)},
        constants={"places": [2, 3]} if "places" in behind else {},
        outputs=["y"],
        opset=22,
    )
    assert shown(graph, "tensorrt") == expected


@pytest.mark.parametrize(
    ("nodes", "half", "expected"),
    [
        pytest.param("", True, ["normalization", "conv"], id="in 16 bits"),
        pytest.param(
            "",
            False,
            ["normalization", "movement transpose", "conv"],
            id="in FP32, whose kernels read the file's order",
        ),
        pytest.param(
            "\nz = Relu(t)",
            True,
            ["normalization", "conv", "elementwise transpose relu"],
            id="read by others",
        ),
    ],
)
def test_channels_that_a_convolution_wants_last_lie_so(nodes: str, half: bool, expected: list[str]) -> None:
    """A normalization over channels, in the order of its own, in front of a convolution."""
    graph = inferred(
        f"n = LayerNormalization(x, g)\nt = Transpose<perm=[0,3,1,2]>(n)\ny = Conv(t, w){nodes}",
        {"x": (2, 8, 8, 16)},
        weights={"g": (16,), "w": (4, 16, 1, 1)},
        types=dict.fromkeys(("x", "g", "w"), 10) if half else None,
        outputs=["y", *(["z"] if nodes else [])],
        opset=22,
    )
    assert sorted(shown(graph, "tensorrt")) == sorted(expected)


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        pytest.param("y = Gelu(m)", ["gemm gelu"], id="GELU"),
        pytest.param("y = HardSwish(m)", ["gemm hardswish"], id="hard swish"),
        pytest.param("y = LeakyRelu(m)", ["gemm leaky_relu"], id="leaky ReLU"),
        pytest.param("r = Relu(m)\ny = Add(r, x)", ["gemm relu add"], id="ReLU, then a sum"),
        pytest.param("y = Tanh(m)", ["gemm", "elementwise tanh"], id="tanh"),
        pytest.param("y = Sigmoid(m)", ["gemm", "elementwise sigmoid"], id="sigmoid"),
        pytest.param("s = Sigmoid(m)\ny = Mul(m, s)", ["gemm", "elementwise silu"], id="SiLU"),
    ],
)
def test_what_a_product_applies_in_tensorrt(behind: str, expected: list[str]) -> None:
    graph = inferred(f"m = MatMul(x, w)\n{behind}", {"x": (2, 4, 16)}, weights={"w": (16, 16)}, outputs=["y"], opset=22)
    assert shown(graph, "tensorrt") == expected


def test_a_what_if_keeps_or_changes_the_graph() -> None:
    """Beside a captured run: the same under more bandwidth (captured, too), and launched kernel by kernel."""
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    base = Question(
        gpu=load_gpu("h100"),
        precision="fp32",
        runtime="onnxruntime",
        bindings=make_bindings({"batch": 1}, None, None, None),
        cuda_graph=True,
    )
    faster, launched = variants(read_model(path), base, ["gpu.memory_bandwidth_gb_s=4800", "cuda_graph=off"])
    graph_ms = RUNTIMES["onnxruntime"].graph_us / 1e3
    assert faster.totals.overhead_ms == pytest.approx(graph_ms)
    assert launched.totals.overhead_ms > 10 * graph_ms


def test_verbose_says_why_nothing_was_merged(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    assert run(["analyze", str(path), "--gpu", "t4", "--runtime", "tensorrt", "-v"]) == 0
    said = capsys.readouterr().err
    assert "not merged by 'epilogue of a product'" not in said  # every one of its activations is in a convolution
    assert "not merged by 'constant into convolution': stage1.0.add and 15 other nodes" in said


JOINED = {
    "a library writes at its place": ("p = MatMul(x, w)\ny = Concat<axis=-1>(p, x)", ["Gemm", "Movement 384"]),
    "but at one place only": ("p = MatMul(x, w)\ny = Concat<axis=-1>(p, p)", ["Gemm", "Movement 384"]),
    "one reader computes it from its parts": (
        "n = Neg(x)\nr = Concat<axis=-1>(n, x)\ny = Relu(r)",
        ["Elementwise"],
    ),
    "however many they are": (
        "".join(f"n{at} = Neg(x{at})\n" for at in range(3))
        + f"r = Concat<axis=-1>({', '.join(f'x{at}' for at in range(12))}, n0, n1, n2)\ny = Relu(r)",
        ["Elementwise"],
    ),
    "special functions aren't computed for every element that they are broadcast to": (
        "c = Cos(p)\ny = Mul(large, c)",
        ["Elementwise", "Elementwise"],
    ),
    "cheap ones are": ("c = Cos(p)\ny = Mul(x, c)", ["Elementwise"]),
}


@pytest.mark.parametrize(("nodes", "expected"), JOINED.values(), ids=JOINED.keys())
def test_what_engines_write_in_place_or_compute_anew(nodes: str, expected: list[str]) -> None:
    """x (6, 16), 384 bytes; large (4096, 1024) times a vector: 25 million FLOPs of cosines against 6,144."""
    shapes = {"x": (6, 16)} | {f"x{at}": (6, 16) for at in range(12)}
    shapes |= {"large": (4096, 1024), "p": (1024,) if "large" in nodes else (16,)}
    used = {
        name: shape for name, shape in shapes.items() if f"{name} =" not in nodes and re.search(rf"\b{name}\b", nodes)
    }
    graph = inferred(nodes, used, weights={"w": (16, 16)} if "w)" in nodes else {})
    works = works_of(fused_graph(graph, RUNTIMES["tensorrt"]), RUNTIMES["tensorrt"])
    found = [kernel for work in works for kernel in work.kernels]
    names = [f"Movement {item.written}" if isinstance(item, Movement) else type(item).__name__ for item in found]
    assert names == expected


@pytest.mark.parametrize("clash", ["add0/bias", "add1/bias"])
def test_a_node_that_is_called_as_a_bias_would_be_changes_nothing(clash: str) -> None:
    """Linear layers of one input, taken apart into their product and biases, which merge with what is behind."""
    text = "h = MatMul(x, w)\na = Add(h, b)\ni = MatMul(x, w)\nc = Add(i, b)\ne = Relu(a)\nf = Tanh(c)\ny = Add(e, f)"
    found = []
    for name in ("relu", clash):
        nodes = split(text)
        for node, own in zip(nodes, ("mm0", "add0", "mm1", "add1", name, "tanh", "sum"), strict=True):
            node.name = own
        graph = inferred(nodes, TOKENS, weights={"w": (16, 32), "b": (32,)})
        works = works_of(fused_graph(graph, RUNTIMES["tensorrt"]), RUNTIMES["tensorrt"])
        found.append([kernel for work in works for kernel in work.kernels])
    assert found[0] == found[1]
    assert [type(kernel) for kernel in found[0]] == [Gemm, Elementwise]


def test_a_scale_by_column_is_read_with_the_product() -> None:
    """(32, 64) @ (64, 16) times one number a column."""
    graph = inferred("m = MatMul(x, w)\ny = Mul(m, s)", {"x": (32, 64)}, weights={"w": (64, 16), "s": (16,)}, opset=20)
    runtime = RUNTIMES["tensorrt"]
    ((kernel,),) = [work.kernels for work in works_of(fused_graph(graph, runtime), runtime)]
    assert isinstance(kernel, Gemm)
    assert kernel.epilogue == ("mul",)
    assert kernel.read_bytes == 4 * (32 * 64 + 64 * 16 + 16)
