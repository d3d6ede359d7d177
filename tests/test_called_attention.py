"""Attention that a graph writes out, in 16 bits one kernel of PyTorch: what is taken for it, and what isn't."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.called_attention import with_called_attention
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Gemm, Softmax
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.autocast import autocast

HEADS = (2, 4, 16, 8)
"""(b, h, s, d) of queries, keys and values."""

INPUTS = {"q": HEADS, "k": HEADS, "v": HEADS}
KEYS = "t = Transpose<perm=[0,1,3,2]>(k)\n"

# id, nodes, inputs beside q, k, v, the operator's inputs (None: left as it is written)
ROWS: list[tuple[str, str, dict[str, tuple[int, ...]], tuple[str, ...] | None]] = [
    (
        "queries scaled, as timm writes it",
        "a = Mul(q, scale)\n" + KEYS + "p = MatMul(a, t)\nw = Softmax<axis=-1>(p)\ny = MatMul(w, v)",
        {},
        ("q", "t", "v"),
    ),
    (
        "the product scaled and masked, as Hugging Face writes it",
        KEYS + "p = MatMul(q, t)\nd = Div(p, root)\nm = Add(d, mask)\nw = Softmax<axis=-1>(m)\ny = MatMul(w, v)",
        {"mask": (2, 1, 1, 16)},
        ("q", "t", "v", "mask"),
    ),
    (
        "nothing scaled, the mask first",
        KEYS + "p = MatMul(q, t)\nm = Add(mask, p)\nw = Softmax<axis=-1>(m)\ny = MatMul(w, v)",
        {"mask": (16, 16)},
        ("q", "t", "v", "mask"),
    ),
    (
        "the softmax in float32",
        KEYS + "p = MatMul(q, t)\nl = Cast<to=1>(p)\nw = Softmax<axis=-1>(l)\nn = Cast<to=1>(w)\ny = MatMul(n, v)",
        {},
        ("q", "t", "v"),
    ),
    (
        "a mask that a condition fills in, as GPT-2 writes it",
        KEYS + "p = MatMul(q, t)\nd = Div(p, root)\nm = Where(keep, d, low)\nw = Softmax<axis=-1>(m)\ny = MatMul(w, v)",
        {"keep": (1, 1, 16, 16)},
        ("q", "t", "v", "keep"),
    ),
    (
        "filled where the condition holds, behind a scale of the queries",
        "a = Mul(q, scale)\n"
        + KEYS
        + "p = MatMul(a, t)\nm = Where(keep, low, p)\nw = Softmax<axis=-1>(m)\ny = MatMul(w, v)",
        {"keep": (1, 1, 16, 16)},
        ("q", "t", "v", "keep"),
    ),
    (
        "filled and added, the larger mask stands for both",
        KEYS + "p = MatMul(q, t)\nm = Where(keep, p, low)\nn = Add(m, mask)\nw = Softmax<axis=-1>(n)\ny = MatMul(w, v)",
        {"keep": (1, 1, 16, 16), "mask": (2, 1, 1, 16)},
        ("q", "t", "v", "keep"),
    ),
    (
        "heads in the batch, the mask added and limited in four dimensions, as OPT writes it",
        "t = Transpose<perm=[0,2,1]>(k3)\np = MatMul(q3, t)\nr = Reshape(p, apart)\nm = Add(r, mask)\nl = Max(m, low)\n"
        "b = Reshape(l, joined)\nw = Softmax<axis=-1>(b)\ny = MatMul(w, v3)",
        {"q3": (8, 16, 8), "k3": (8, 16, 8), "v3": (8, 16, 8), "mask": (2, 1, 16, 16)},
        ("q3", "t", "v3", "mask"),
    ),
    (
        "filled behind an added bias, as BLOOM writes it, which doesn't call the function",
        KEYS + "p = MatMul(q, t)\nn = Add(p, mask)\nm = Where(keep, n, low)\nw = Softmax<axis=-1>(m)\ny = MatMul(w, v)",
        {"keep": (1, 1, 16, 16), "mask": (4, 1, 16)},
        None,
    ),
    (
        "filled with a tensor",
        KEYS + "p = MatMul(q, t)\nm = Where(keep, p, mask)\nw = Softmax<axis=-1>(m)\ny = MatMul(w, v)",
        {"keep": (1, 1, 16, 16), "mask": (2, 4, 16, 16)},
        None,
    ),
    (
        "talking heads: the scores are mixed before the softmax",
        KEYS + "p = MatMul(q, t)\nr = Reshape(p, rows)\nw = Softmax<axis=-1>(r)\ny = MatMul(w, s)",
        {"s": (16, 8)},
        None,
    ),
    (
        "channels attend to channels, as DaViT writes it: queries and values lie across",
        KEYS + "p = MatMul(t, v)\nw = Softmax<axis=-1>(p)\nr = Transpose<perm=[0,1,3,2]>(q)\ny = MatMul(w, r)",
        {},
        None,
    ),
    (
        "tokens first, so that heads are a view whose rows are dense",
        "h = Transpose<perm=[0,2,1,3]>(f)\n" + KEYS + "p = MatMul(h, t)\nw = Softmax<axis=-1>(p)\ny = MatMul(w, v)",
        {"f": (2, 16, 4, 8)},
        ("h", "t", "v"),
    ),
    (
        "a softmax over another axis",
        KEYS + "p = MatMul(q, t)\nw = Softmax<axis=2>(p)\ny = MatMul(w, v)",
        {},
        None,
    ),
    (
        "weights that something else reads",
        KEYS + "p = MatMul(q, t)\nw = Softmax<axis=-1>(p)\ny = MatMul(w, v)\nz = Relu(w)\no = MatMul(z, y)",
        {},
        None,
    ),
    (
        "weights as the right operand",
        KEYS + "p = MatMul(q, t)\nw = Softmax<axis=-1>(p)\ny = MatMul(g, w)",
        {"g": (2, 4, 8, 16)},
        None,
    ),
    (
        "a scale for each head",
        "a = Mul(q, each)\n" + KEYS + "p = MatMul(a, t)\nw = Softmax<axis=-1>(p)\ny = MatMul(w, v)",
        {"each": (4, 1, 1)},
        ("a", "t", "v"),
    ),
]


def graph_of(nodes: str, inputs: dict[str, tuple[int, ...]]) -> InferredGraph:
    constants = {
        "scale": [0.35],
        "root": [2.83],
        "rows": [-1, 16],
        "low": -65504.0,
        "apart": [2, 4, 16, 16],
        "joined": [8, 16, 16],
    }
    used = {name: value for name, value in constants.items() if name in nodes}
    return inferred(nodes, INPUTS | inputs, constants=used, types={"keep": TensorProto.BOOL})


@pytest.mark.parametrize(("nodes", "inputs", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_written_attention(
    nodes: str, inputs: dict[str, tuple[int, ...]], expected: tuple[str, ...] | None, runtime: str
) -> None:
    graph = graph_of(nodes, inputs)
    called = with_called_attention(graph, runtime=runtime, autocast=True)
    found = [node for node in called.graph.nodes if node.op_type == "ScaledDotProductAttention"]
    if expected is None:
        assert called.graph is graph.graph
        return
    assert [node.inputs for node in found] == [expected]
    assert found[0].outputs == ("y",)
    assert not any(node.op_type in ("Softmax", "MatMul") for node in called.graph.nodes)
    assert any(said.startswith("1 attention that") for said in called.assumptions)


def test_float32_is_executed_as_it_is_written() -> None:
    graph = graph_of(ROWS[0][1], {})
    assert with_called_attention(graph, runtime="eager", autocast=False) is graph


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("fp32", 0), ("tf32", 0), ("fp16", 12), ("bf16", 12), ("fp16-model", 12), ("int8", 12)],
)
@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_precision_decides(precision: str, expected: int, runtime: str) -> None:
    report = analyze(
        "examples/bert_base.onnx",
        gpu="a100",
        precision=precision,
        runtime=runtime,
        dims={"batch": 2, "sequence": 64},
    )
    attentions = sum(row.count for row in report.kernels if row.kernel_class == "attention")
    softmaxes = sum(row.count for row in report.kernels if row.kernel_class == "softmax")
    assert (attentions, softmaxes) == (expected, 12 - expected)
    assert any("scaled_dot_product_attention" in said for said in report.assumptions) == (expected > 0)


@pytest.mark.parametrize(
    ("row", "left"),
    [
        ("filled behind an added bias, as BLOOM writes it, which doesn't call the function", 1),
        ("a mask that a condition fills in, as GPT-2 writes it", 0),
        ("weights as the right operand", 1),
    ],
)
def test_what_is_left_as_written_is_said(row: str, left: int) -> None:
    nodes, inputs = next((nodes, inputs) for name, nodes, inputs, _ in ROWS if name == row)
    called = with_called_attention(graph_of(nodes, inputs), runtime="eager", autocast=True)
    said = [text for text in called.assumptions if "executed as written" in text]
    assert len(said) == left
    assert all(text.startswith("1 attention that") for text in said)


CALL = "qs = Mul(q, scale)\nks = Mul(t, scale)\nc = MatMul(qs, ks)\ncw = Softmax<axis=-1>(c)\nz = MatMul(cw, v)\n"
"""As exporters write a call: both factors scaled."""
WRITTEN = "p = MatMul(q, t)\nd = Div(p, root)\nw = Softmax<axis=-1>(d)\ny = MatMul(w, z)"
WINDOWS = (
    "e = MatMul(q, t)\nr = Reshape(e, windows)\nm = Add(r, each)\nb = Reshape(m, apart)\nmw = Softmax<axis=-1>(b)\n"
    "z = MatMul(mw, v)\n"
)
"""As Swin is written: a mask of each window, the same for all images."""


@pytest.mark.parametrize(
    ("before", "expected", "said"),
    [
        ("z = Identity(v)\n", 1, "1 attention that the graph writes out: one kernel each"),
        (CALL, 0, "1 attention that the graph writes out, executed as written: other attention of this file is a call"),
        (WINDOWS, 0, "that the graph writes out, executed as written: masks of windows"),
    ],
    ids=["nothing is known", "the other one is a call", "the other one is of masked windows"],
)
@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_the_file_says_that_attention_is_the_models_own(before: str, expected: int, said: str, runtime: str) -> None:
    constants = {"scale": [0.6], "root": [2.83], "windows": [1, 2, 4, 16, 16], "apart": [2, 4, 16, 16]}
    nodes = KEYS + before + WRITTEN
    graph = inferred(
        nodes,
        INPUTS | {"each": (1, 2, 1, 16, 16)},
        constants={name: value for name, value in constants.items() if name in nodes},
    )
    called = with_called_attention(graph, runtime=runtime, autocast=True)
    products = {name for node in called.graph.nodes if node.op_type == "MatMul" for name in node.outputs}
    assert ("y" not in products) == bool(expected)
    assert any(said in text for text in called.assumptions)


def test_calls_alone_are_not_said_to_be_written() -> None:
    graph = inferred(KEYS + CALL, INPUTS, constants={"scale": [0.6]})
    assert with_called_attention(graph, runtime="eager", autocast=True) is graph


def test_a_classifiers_softmax_is_no_attention() -> None:
    graph = inferred("p = MatMul(x, w)\ny = Softmax<axis=-1>(p)", {"x": (4, 8)}, weights={"w": (8, 3)})
    assert with_called_attention(graph, runtime="eager", autocast=True) is graph


def test_five_dimensions_have_no_kernel_and_are_computed_in_float32() -> None:
    """As PyTorch 2.9.1 compiles it: three copies that cast, two products in FP32 and a softmax between them."""
    groups = (2, 3, 4, 16, 8)
    nodes = "t = Transpose<perm=[0,1,2,4,3]>(k)\np = MatMul(q, t)\nw = Softmax<axis=-1>(p)\ny = MatMul(w, v)"
    graph = inferred(nodes, {"q": groups, "k": groups, "v": groups})
    cast = autocast(
        with_called_attention(graph, runtime="compiled", autocast=True), DataType.FLOAT16, runtime="compiled"
    )
    (work,) = [work for work in lower_laid_out(cast, runtime="compiled").works if "Scaled" in work.op_type]
    assert [type(kernel).__name__ for kernel in work.kernels] == ["Elementwise"] * 3 + ["Gemm", "Softmax", "Gemm"]
    scores, softmax, product = work.kernels[3:]
    assert scores == Gemm(batch=24, m=16, n=16, k=8, transpose_b=True, dtype=DataType.FLOAT32)
    assert isinstance(softmax, Softmax)
    assert (softmax.rows, softmax.cols, softmax.dtype) == (384, 16, DataType.FLOAT32)
    assert product == Gemm(batch=24, m=16, n=8, k=16, dtype=DataType.FLOAT32)
    assert "1 attention of five dimensions" in cast.assumptions[0]


def test_in_eager_mode_five_dimensions_are_computed_in_float32_kernel_by_kernel() -> None:
    """As PyTorch 2.9.1 launches it for timm's Hiera and NesT: scaled operands, products, and a softmax that minds rows
    without a key."""
    groups = (2, 3, 4, 16, 8)
    nodes = "t = Transpose<perm=[0,1,2,4,3]>(k)\np = MatMul(q, t)\nw = Softmax<axis=-1>(p)\ny = MatMul(w, v)"
    graph = inferred(nodes, {"q": groups, "k": groups, "v": groups})
    cast = autocast(with_called_attention(graph, runtime="eager", autocast=True), DataType.FLOAT16, runtime="eager")
    (work,) = [work for work in lower_laid_out(cast, runtime="eager").works if "Scaled" in work.op_type]
    kinds = [
        str(getattr(kernel, "operation", "") or getattr(kernel, "operations", "") or type(kernel).__name__)
        for kernel in work.kernels
    ]
    # the weights are cast, too, though nobody reads them
    softmax = ["Softmax", "('eq',)", "and", "fill", "('where',)", "cast"]
    assert kinds == ["cast"] * 3 + ["('mul',)"] * 2 + ["Gemm", *softmax, "Gemm", "cast"]
    products = [kernel for kernel in work.kernels if isinstance(kernel, Gemm)]
    assert products == [
        Gemm(batch=24, m=16, n=16, k=8, transpose_b=True, dtype=DataType.FLOAT32),
        Gemm(batch=24, m=16, n=8, k=16, dtype=DataType.FLOAT32),
    ]


@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_five_dimensions_of_64_bits_stay_in_them(runtime: str) -> None:
    """PyTorch's formula widens 16 bits; what is wider already it doesn't narrow."""
    groups = (2, 3, 4, 16, 8)
    nodes = "t = Transpose<perm=[0,1,2,4,3]>(k)\nqs = Mul(q, root)\nks = Mul(t, root)\np = MatMul(qs, ks)\n"
    nodes += "w = Softmax<axis=-1>(p)\ny = MatMul(w, v)"
    double = dict.fromkeys(("q", "k", "v", "root"), TensorProto.DOUBLE)
    graph = inferred(nodes, dict.fromkeys("qkv", groups), weights={"root": ()}, types=double)
    works = lower_laid_out(recognise(graph, runtime=runtime), runtime=runtime).works
    (work,) = [work for work in works if "Scaled" in work.op_type]
    assert [kernel.dtype for kernel in work.kernels if isinstance(kernel, Gemm | Softmax)] == [DataType.FLOAT64] * 3
    operations = [getattr(kernel, "operation", "") or getattr(kernel, "operations", ()) for kernel in work.kernels]
    assert not any("cast" in operation for operation in operations)
