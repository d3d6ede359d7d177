"""What earlier releases of ONNX Runtime merged: graphs that their wheels prepare (``fusion_releases.md``)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx import analyze, load_gpu
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.kernels import Gemm, Kernel
from neusight_onnx.lowering import lower
from neusight_onnx.lowering.eights import with_units_for_eights
from neusight_onnx.predictor import predict
from neusight_onnx.runtime import get_runtime

BERT = Path(__file__).parents[1] / "examples" / "bert_base.onnx"
HALF = TensorProto.FLOAT16
TOKENS = {"x": (2, 8, 16)}
VECTORS = {"g": (16,), "b": (16,)}
WEIGHT = {"w": (16, 16)}
NUMBERS = {"two": 2.0, "e": 1e-5}

# as PyTorch's exporter writes it of FP32, and since 2.x of a module in FP16
NORM = """
m = ReduceMean<axes=[-1]>(x)
d = Sub(x, m)
p = Pow(d, two)
v = ReduceMean<axes=[-1]>(p)
a = Add(v, e)
r = Sqrt(a)
q = Div(d, r)
h = Mul(q, g)
y = Add(h, b)
"""
NORM_IN_FP32 = """
m = ReduceMean<axes=[-1]>(x)
d = Sub(x, m)
c = Cast<to=1>(d)
p = Pow(c, two)
v = ReduceMean<axes=[-1]>(p)
a = Add(v, e)
r = Sqrt(a)
q = Div(c, r)
n = Cast<to=10>(q)
h = Mul(n, g)
y = Add(h, b)
"""
SQUARED = NORM.replace("Pow(d, two)", "Mul(d, d)")
BY_TANH = """
c = Pow(x, three)
k = Mul(c, kappa)
s = Add(x, k)
t = Mul(s, root)
u = Tanh(t)
o = Add(u, one)
h = Mul(x, half)
y = Mul(h, o)
"""
OF_TANH = {"three": 3.0, "kappa": 0.044715, "root": 0.7978845608, "one": 1.0, "half": 0.5}
CONV = "c = Conv<pads=[1,1,1,1]>(x, w)\n"
IMAGE = {"x": (1, 8, 4, 4)}
FILTERS = {"w": (8, 8, 3, 3)}

AS_WRITTEN = ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]

SQUARED_AS_WRITTEN = [name.replace("Pow", "Mul") for name in AS_WRITTEN]

# name, nodes, inputs, weights, constants, types, opset, {release: operators}
GRAPHS = [
    ("norm", NORM, TOKENS, VECTORS, NUMBERS, {}, 13, {"1.11": ["LayerNormalization"], "1.31": ["LayerNormalization"]}),
    (
        "norm of squares by Mul",
        SQUARED,
        TOKENS,
        VECTORS,
        NUMBERS,
        {},
        13,
        {"1.11": SQUARED_AS_WRITTEN, "1.31": SQUARED_AS_WRITTEN},
    ),
    (
        "norm, Pow of opset 15",
        NORM,
        TOKENS,
        VECTORS,
        NUMBERS,
        {},
        15,
        {"1.12": AS_WRITTEN, "1.13": ["LayerNormalization"]},
    ),
    (
        "norm that casts",
        NORM_IN_FP32,
        TOKENS,
        VECTORS,
        NUMBERS,
        {"x": HALF, "g": HALF, "b": HALF},
        13,
        {
            "1.11": ["ReduceMean", "Sub", "Cast", *AS_WRITTEN[2:7], "Cast", "Mul", "Add"],
            "1.12": ["ReduceMean", "Sub", "RMSNormalization", "Add"],
            "1.13": ["ReduceMean", "Sub", "RMSNormalization", "Add"],
            "1.14": ["LayerNormalization"],
        },
    ),
    (
        "GELU by tanh, Pow of opset 15",
        BY_TANH,
        TOKENS,
        {},
        OF_TANH,
        {},
        15,
        {"1.12": ["Pow", "Mul", "Add", "Mul", "Tanh", "Add", "Mul", "Mul"], "1.13": ["Gelu"]},
    ),
    (
        "SiLU",
        "s = Sigmoid(x)\ny = Mul(x, s)",
        TOKENS,
        {},
        {},
        {},
        13,
        {"1.13": ["Sigmoid", "Mul"], "1.14": ["Swish"]},
    ),
    (
        "sum with 0",
        "z = Relu(x)\na = Add(z, o)\ny = Sqrt(a)",
        TOKENS,
        {},
        {"o": 0.0},
        {},
        13,
        {"1.16": ["Relu", "Add", "Sqrt"], "1.17": ["Relu", "Sqrt"]},
    ),
    (
        "linear layer",
        "p = MatMul(x, w)\ny = Add(p, b)",
        TOKENS,
        {**WEIGHT, "b": (16,)},
        {},
        {},
        13,
        {"1.20": ["MatMul", "Add"], "1.21": ["Linear"]},
    ),
    (
        "convolution and Relu",
        CONV + "y = Relu(c)",
        IMAGE,
        FILTERS,
        {},
        {},
        13,
        {"1.11": ["FusedConv"], "1.19": ["FusedConv"], "1.20": ["Conv", "Relu"], "1.31": ["Conv", "Relu"]},
    ),
    (
        "convolution and Relu in FP16",
        CONV + "y = Relu(c)",
        IMAGE,
        FILTERS,
        {},
        {"x": HALF, "w": HALF},
        13,
        {"1.11": ["Conv", "Relu"]},
    ),
    (
        "convolution, sum and Relu",
        CONV + "s = Add(c, z)\ny = Relu(s)",
        {**IMAGE, "z": (1, 8, 4, 4)},
        FILTERS,
        {},
        {},
        13,
        {"1.17": ["FusedConv"], "1.18": ["Conv", "Add", "Relu"]},
    ),
]


@pytest.mark.parametrize(
    ("nodes", "inputs", "weights", "constants", "types", "opset", "release", "expected"),
    [(*row[1:7], release, expected) for row in GRAPHS for release, expected in row[7].items()],
    ids=[f"{row[0]} {release}" for row in GRAPHS for release in row[7]],
)
def test_what_a_release_merges(
    nodes: str,
    inputs: dict[str, tuple[int, ...]],
    weights: dict[str, tuple[int, ...]],
    constants: dict[str, object],
    types: dict[str, int],
    opset: int,
    release: str,
    expected: list[str],
) -> None:
    graph = inferred(nodes, inputs, weights=weights, constants=constants, types=types, opset=opset)
    fused = fused_graph(graph, get_runtime(f"onnxruntime@{release}"))
    assert [node.op_type for node in fused.graph.nodes] == expected


@pytest.mark.parametrize(
    ("bias", "expected"),
    [("Add(p, b)", ["MatMul", "SkipLayerNormalization"]), ("Add(b, p)", ["MatMul", "Add", "SkipLayerNormalization"])],
)
def test_a_bias_joins_a_normalized_sum_as_second_operand_alone(bias: str, expected: list[str]) -> None:
    nodes = f"p = MatMul(x, w)\na = {bias}\ns = Add(a, z)\ny = LayerNormalization(s, g, h)"
    graph = inferred(nodes, {**TOKENS, "z": (2, 8, 16)}, weights={**WEIGHT, **VECTORS, "h": (16,)})
    fused = fused_graph(graph, get_runtime("onnxruntime@1.13"))
    assert [node.op_type for node in fused.graph.nodes] == expected


def _attention(release: str, padding: tuple[int, ...] | None, *, half: bool = True) -> list[Kernel]:
    kind = HALF if half else TensorProto.FLOAT
    inputs = {"x": (2, 384, 64), **({"k": padding} if padding else {})}
    graph = inferred(
        f"y = com.microsoft.Attention<num_heads=2>(x, w, b{', k' if padding else ''})",
        inputs,
        weights={"w": (64, 192), "b": (192,)},
        types={"x": kind, "w": kind, "b": kind, "k": TensorProto.INT32},
    )
    return [kernel for work in lower(graph, runtime=f"onnxruntime@{release}") for kernel in work.kernels]


@pytest.mark.parametrize(
    ("release", "padding", "half", "is_fused"),
    [
        ("1.12", None, True, False),
        ("1.12", (2,), True, False),
        ("1.13", None, True, False),
        ("1.13", (2,), True, True),
        ("1.13", (2,), False, False),
        ("1.14", None, True, True),
        ("1.14", (2,), True, True),
        ("1.14", None, False, True),
        ("1.31", (2, 384), True, False),
    ],
)
def test_attention_operators(release: str, padding: tuple[int, ...] | None, half: bool, is_fused: bool) -> None:
    kinds = Counter(type(kernel).__name__ for kernel in _attention(release, padding, half=half))
    parts = Counter() if is_fused else Counter(Gemm=2, Softmax=1, Movement=1)
    first = Counter(Gemm=1, Movement=2 if release == "1.12" else 1)
    assert kinds == first + parts + (Counter(Attention=1) if is_fused else Counter())


def test_hard_swish_was_two_kernels() -> None:
    graph = inferred("y = HardSwish(x)", TOKENS, opset=14)
    names = {
        release: [
            kernel.operations for work in lower(graph, runtime=f"onnxruntime@{release}") for kernel in work.kernels
        ]
        for release in ("1.23", "1.24")
    }
    assert names == {"1.23": [("hardsigmoid",), ("mul",)], "1.24": [("hardswish",)]}


def test_runtimes_share_no_rewritten_graph() -> None:
    """Sizes of one model share what has no redundant nodes, releases that take out different ones don't."""
    times = [
        analyze(BERT, gpu="t4", dims={"batch": 2, "sequence": 128}, runtime=runtime).totals.latency_ms
        for runtime in ("onnxruntime@1.11", "onnxruntime", "onnxruntime@1.11")
    ]
    assert times[0] == times[2] > times[1]


@pytest.mark.parametrize(
    ("release", "words", "on_lanes"), [("1.6", 50_257, True), ("1.6", 50_256, False), ("1.7", 50_257, False)]
)
def test_matrix_units_wanted_eights(release: str, words: int, on_lanes: bool) -> None:
    types = {"x": HALF, "w": HALF}
    graph = inferred("y = MatMul(x, w)", {"x": (128, 768)}, weights={"w": (768, words)}, types=types)
    works = with_units_for_eights(lower(graph, runtime=f"onnxruntime@{release}"), get_runtime(f"onnxruntime@{release}"))
    (product,) = [kernel for work in works for kernel in work.kernels]
    v100 = load_gpu("v100-pcie-16gb")
    on_units = predict([Gemm(m=128, n=words, k=768, b_is_weight=True, dtype=DataType.FLOAT16)], v100)[0].latency_us
    assert (predict([product], v100)[0].latency_us > 2 * on_units) == on_lanes
