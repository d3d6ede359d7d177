"""Nodes that give integers alone: which stand apart while a graph is prepared; each is counted all the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from graphs import inferred
from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.redundant import Redundant, without_redundant
from neusight_onnx.lowering.known_numbers import known_apart, works_of_known
from neusight_onnx.lowering.walk import CONSTANT

NUMBERS = """
axes = Constant <value_ints: ints = [0]> ()
scale = Constant <value_float: float = 2.0> ()
column = Unsqueeze(x, axes)
y = Mul(column, scale)
"""


@pytest.mark.parametrize(
    ("nodes", "outputs", "apart"),
    [
        pytest.param(NUMBERS, ["y"], ["axes"], id="integers-not-floats"),
        pytest.param(NUMBERS, ["y", "axes"], [], id="a-result-stays"),
        pytest.param("y = Relu(x)", ["y"], [], id="none"),
    ],
)
def test_which_nodes_stand_apart(nodes: str, outputs: list[str], apart: list[str]) -> None:
    graph = inferred(nodes, {"x": (4,)}, outputs=outputs)
    left, found = known_apart(graph)
    assert [node.outputs[0] for node in found] == apart
    assert [node for node in graph.graph.nodes if node not in found] == list(left.graph.nodes)
    assert left.values == graph.values, "rules ask for the values"
    assert {work.free for work in works_of_known(found)} <= {CONSTANT}


def test_what_a_body_reads_stays() -> None:
    text = """
    one = Constant <value_ints: ints = [1]> ()
    y = If (flag) <then_branch = a () => (int64[1] p) { p = Identity(one) }, else_branch = b () => (int64[1] q) {
        q = Identity(one) }>
    """
    nodes = [parser.parse_node(part) for part in (text.strip().split("\n", 1))]
    graph = inferred(nodes, {"flag": ()}, types={"flag": onnx.TensorProto.BOOL})
    assert known_apart(graph) == (graph, ())


def test_each_node_is_counted(tmp_path: Path) -> None:
    head = '<ir_version: 9, opset_import: ["" : 17]> g (float[4] x) => (float[1, 4] y) {'
    onnx.save(parser.parse_model(head + NUMBERS + "}"), tmp_path / "m.onnx")
    coverage = analyze(tmp_path / "m.onnx", gpu="t4").coverage
    assert (coverage.node_count, coverage.kernel_node_count, coverage.free_node_count) == (4, 1, 3)
    assert coverage.free_reasons[CONSTANT] == 2


def test_what_is_redundant_is_the_same_at_other_sizes() -> None:
    """The same nodes with other sizes; as soon as a type differs, a Cast is none any more and is looked at anew."""
    graph = inferred("a = Cast<to: int = 1>(x)\nb = Relu(a)\nc = Relu(a)\ny = Add(b, c)", {"x": (4, 8)})
    shared = Redundant()
    expected = without_redundant(graph).graph.nodes
    assert [node.op_type for node in expected] == ["Relu", "Add"]
    assert shared.without(graph).graph.nodes == expected
    larger = replace(graph, values={name: replace(value, shape=(16, 8)) for name, value in graph.values.items()})
    assert shared.without(larger).graph.nodes is shared.without(graph).graph.nodes
    assert shared.without(larger).values is larger.values
    narrow = replace(graph, values={**graph.values, "x": replace(graph.values["x"], dtype=DataType.FLOAT16)})
    found = shared.without(narrow).graph.nodes
    assert [node.op_type for node in found] == ["Cast", "Relu", "Add"]
    assert np.all(
        [one.name == other.name for one, other in zip(found, without_redundant(narrow).graph.nodes, strict=True)]
    )
