"""Attention that a graph writes out, in 16 bits one kernel of PyTorch: what is taken for it, and what isn't."""

from __future__ import annotations

import pytest

from graphs import inferred
from neusight_onnx import analyze
from neusight_onnx.fusion.called_attention import with_called_attention
from neusight_onnx.graph.model import InferredGraph

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
        "talking heads: the scores are mixed before the softmax",
        KEYS + "p = MatMul(q, t)\nr = Reshape(p, rows)\nw = Softmax<axis=-1>(r)\ny = MatMul(w, s)",
        {"s": (16, 8)},
        None,
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
    constants = {"scale": [0.35], "root": [2.83], "rows": [-1, 16]}
    used = {name: value for name, value in constants.items() if name in nodes}
    return inferred(nodes, INPUTS | inputs, constants=used)


@pytest.mark.parametrize(("nodes", "inputs", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_written_attention(
    nodes: str, inputs: dict[str, tuple[int, ...]], expected: tuple[str, ...] | None, runtime: str
) -> None:
    graph = graph_of(nodes, inputs)
    called = with_called_attention(graph, runtime=runtime, autocast=True)
    found = [node for node in called.graph.nodes if node.op_type == "ScaledDotProductAttention"]
    if expected is None:
        assert called is graph
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
