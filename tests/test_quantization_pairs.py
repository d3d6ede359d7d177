"""What ONNX Runtime rounds that a quantised file doesn't: one DequantizeLinear a reader, pairs around movements.

Expected is what the graph of onnxruntime-gpu 1.31.1's CUDA provider has, prepared on stand-ins for CUDA's libraries.
"""

from __future__ import annotations

from collections import Counter

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.quantization.pairs import with_pairs_of_their_own
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.lowering import lower
from neusight_onnx.runtime import RUNTIMES

SHORT = {"QuantizeLinear": "Q", "DequantizeLinear": "D"}
PAIR = "q = QuantizeLinear({0}, s, z)\nd = DequantizeLinear(q, s, z)\n"
WEIGHTS = {"w": (32, 32), "v": (32,), "s": (), "s2": (), "z": ()}
TYPES = {"w": TensorProto.INT8, "z": TensorProto.INT8}

CASES = {
    "two readers": (PAIR.format("x") + "a = Sin(d)\ny = Mul(d, a)", "Q D D Sin Mul"),
    "one reader, twice": (PAIR.format("x") + "y = Mul(d, d)", "Q D D Mul"),
    "a reader and the graph": (PAIR.format("x") + "y = Sin(d)", "Q D D Sin", "d"),
    "a constant that two read": (
        "d = DequantizeLinear(w, s, z)\na = MatMul(x, d)\nb = Relu(a)\ny = MatMul(b, d)",
        "D D MatMul Relu MatMul",
    ),
    "Transpose in front": (
        "a = Sin(x)\nb = Transpose<perm=[1, 0]>(a)\n" + PAIR.format("b") + "y = Tanh(d)",
        "Sin Q D Transpose Q D Tanh",
    ),
    "Transpose of an input in front": (
        "b = Transpose<perm=[1, 0]>(x)\n" + PAIR.format("b") + "y = Tanh(d)",
        "Q D Transpose Q D Tanh",
    ),
    "two movements in front": (
        "a = Sin(x)\nb = Transpose<perm=[1, 0]>(a)\nc = Unsqueeze(b, one)\n" + PAIR.format("c") + "y = Tanh(d)",
        "Sin Q D Transpose Q D Unsqueeze Q D Tanh",
    ),
    "Flatten in front": ("b = Flatten(x)\n" + PAIR.format("b") + "y = Tanh(d)", "Flatten Q D Tanh"),
    "in front, the source read elsewhere": (
        "a = Sin(x)\nb = Transpose<perm=[1, 0]>(a)\n" + PAIR.format("b") + "y = Add(d, a)",
        "Sin Transpose Q D Add",
    ),
    "in front, the result read elsewhere": (
        "a = Sin(x)\nb = Transpose<perm=[1, 0]>(a)\n" + PAIR.format("b") + "y = Add(d, b)",
        "Sin Transpose Q D Add",
    ),
    "Transpose behind": (
        PAIR.format("x") + "b = Transpose<perm=[1, 0]>(d)\ny = Tanh(b)",
        "Q D Transpose Q D Tanh",
    ),
    "behind, two readers": (
        PAIR.format("x") + "b = Transpose<perm=[1, 0]>(d)\ne = Tanh(b)\nf = Sin(b)\ny = Add(e, f)",
        "Q D Transpose Q D D Tanh Sin Add",
    ),
    "behind, one of two readers moves": (
        PAIR.format("x") + "b = Transpose<perm=[1, 0]>(d)\ne = Tanh(b)\nf = Sin(d)\ny = Add(e, f)",
        "Q D D Transpose Q D Tanh Sin Add",
    ),
    "two movements behind": (
        PAIR.format("x") + "b = Transpose<perm=[1, 0]>(d)\nc = Unsqueeze(b, one)\ny = Tanh(c)",
        "Q D Transpose Q D Unsqueeze Q D Tanh",
    ),
    "behind, the graph's output": (PAIR.format("x") + "y = Transpose<perm=[1, 0]>(d)", "Q D Transpose Q D"),
    "rounded anew behind": (
        PAIR.format("x")
        + "b = Transpose<perm=[1, 0]>(d)\nr = QuantizeLinear(b, s2, z)\ne = DequantizeLinear(r, s2, z)\ny = Tanh(e)",
        "Q D Transpose Q D Tanh",
    ),
    "a constant moves": (
        PAIR.format("x") + "e = DequantizeLinear(w, s, z)\nt = Transpose<perm=[1, 0]>(e)\ny = MatMul(d, t)",
        "Q D D Transpose MatMul",
    ),
    "an Identity shares it": (
        PAIR.format("x")
        + "b = Identity(d)\nc = Identity(b)\ne = Tanh(b)\nf = Sin(c)\ng = Cos(d)\nh = Add(e, f)\ny = Add(h, g)",
        "Q D D D Tanh Sin Cos Add Add",
    ),
    "a scale a channel": (
        "q = QuantizeLinear<axis=0>(x, v)\nd = DequantizeLinear<axis=0>(q, v)\n"
        "b = Transpose<perm=[1, 0]>(d)\ny = Tanh(b)",
        "Q D Transpose Tanh",
    ),
}


def graph_of(nodes: str, *outputs: str) -> InferredGraph:
    return inferred(
        nodes,
        {"x": (32, 32)},
        weights={name: shape for name, shape in WEIGHTS.items() if name in nodes},
        constants={"one": [1]},
        types=TYPES,
        opset=17,
        outputs=("y", *outputs),
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_pairs_of_their_own(case: tuple[str, ...]) -> None:
    nodes, expected, *outputs = case
    graph = with_pairs_of_their_own(graph_of(nodes, *outputs))
    assert " ".join(SHORT.get(node.op_type, node.op_type) for node in graph.graph.nodes) == expected
    written = [name for node in graph.graph.nodes for name in node.outputs]
    assert len(set(written)) == len(written)
    assert {"y", *outputs} <= set(written)
    reads = Counter(name for node in graph.graph.nodes for name in node.inputs)
    dequantized = [node.outputs[0] for node in graph.graph.nodes if node.op_type == "DequantizeLinear"]
    assert all(reads[name] == (name not in ("y", *outputs)) for name in dequantized)


def test_what_is_added_stands_for_the_rounding_of_the_file_and_has_its_type() -> None:
    before = graph_of(CASES["Transpose behind"][0])
    graph = with_pairs_of_their_own(before)
    *_, rounding = (node for node in before.graph.nodes if node.op_type == "DequantizeLinear")
    added = [node for node in graph.graph.nodes if node.op_type in SHORT and node not in before.graph.nodes]
    assert [node.stands_for for node in added] == [rounding.stands_for] * 2
    assert [graph.values[node.outputs[0]].dtype for node in added] == [DataType.INT8, DataType.FLOAT32]
    assert [graph.values[node.outputs[0]].shape for node in added] == [(32, 32)] * 2


@pytest.mark.parametrize(("runtime", "dequantized"), [("onnxruntime", 2), ("tensorrt", 1)])
def test_only_onnxruntime_rounds_for_each_reader(runtime: str, dequantized: int) -> None:
    graph = graph_of(PAIR.format("x") + "a = Sin(d)\ny = Mul(d, a)")
    works = lower(fused_graph(graph, RUNTIMES[runtime]), runtime=runtime)
    assert sum(work.op_type == "DequantizeLinear" for work in works if work.kernels) == dequantized


def test_what_reads_two_copies_is_no_formula_of_one_value() -> None:
    """x * sigmoid(x) of a dequantised x stays two kernels: each operand is its own DequantizeLinear's."""
    graph = fused_graph(graph_of(PAIR.format("x") + "a = Sigmoid(d)\ny = Mul(d, a)"), RUNTIMES["onnxruntime"])
    assert Counter(node.op_type for node in graph.graph.nodes)["Sigmoid"] == 1


@pytest.mark.parametrize(("opset", "apart"), [(17, 1), (21, 0)])
def test_a_weight_transposed_behind_its_scales_is_read_small_from_opset_21_on(opset: int, apart: int) -> None:
    graph = inferred(
        "d = DequantizeLinear<axis=0>(w, v)\nt = Transpose(d)\ny = MatMul(x, t)",
        {"x": (6, 32)},
        weights={"w": (32, 32), "v": (32,)},
        types=TYPES,
        opset=opset,
    )
    works = lower(fused_graph(graph, RUNTIMES["onnxruntime"]), runtime="onnxruntime")
    assert sum(work.op_type == "DequantizeLinear" for work in works if work.kernels) == apart
