"""What fusion shares between the sizes of a model: the same answers as without, and anew where they could differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from onnx import parser

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.patterns.registry import Index
from neusight_onnx.fusion.runtimes import FusedBefore, fused_and_said
from neusight_onnx.fusion.same_graphs import SameGraphs
from neusight_onnx.fusion.transposes.optimizer import Moves, with_moved_transposes
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import InferredGraph, Value
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import Memo, bind_and_infer
from neusight_onnx.lowering.shape_arithmetic import Folded
from neusight_onnx.precision import resolve
from neusight_onnx.runtime import RUNTIMES
from neusight_onnx.workbench import Workbench

HEADS = """<ir_version: 9, opset_import: ["" : 17]>
g (float[n, s, 6] x, float[n, s, s] mask) => (float[n, s, 6] y) {
    sizes = Shape(x)
    zero = Constant <value = int64 {0}> ()
    axes = Constant <value_ints: ints = [0]> ()
    heads = Constant <value_ints: ints = [2, 3]> ()
    batch = Gather(sizes, zero)
    first = Unsqueeze(batch, axes)
    length = Constant <value_ints: ints = [-1]> ()
    apart = Concat<axis: int = 0>(first, length, heads)
    split = Reshape(x, apart)
    turned = Transpose<perm: ints = [0, 2, 1, 3]>(split)
    half = Constant <value_float: float = 0.5> ()
    scaled = Mul(turned, half)
    kept = Relu(scaled)
    back = Transpose<perm: ints = [0, 2, 1, 3]>(kept)
    y = Reshape(back, sizes)
}"""
MODEL = read_model_bytes(parser.parse_model(HEADS).SerializeToString())
MEMO = Memo(graph=MODEL.graph)


def at(**dims: int) -> InferredGraph:
    return bind_and_infer(MODEL, make_bindings(dims), MEMO)[1]


def told(value: Value) -> tuple[object, ...]:
    return value.dtype, value.shape, value.is_constant, None if value.data is None else value.data.tolist()


def assert_equal(one: InferredGraph, other: InferredGraph) -> None:
    assert [node.name for node in one.graph.nodes] == [node.name for node in other.graph.nodes]
    assert [(node.inputs, node.outputs) for node in one.graph.nodes] == [
        (node.inputs, node.outputs) for node in other.graph.nodes
    ]
    assert {name: told(value) for name, value in one.values.items()} == {
        name: told(value) for name, value in other.values.items()
    }


def test_moves_are_made_again_at_other_sizes() -> None:
    moves = Moves()
    first = with_moved_transposes(at(n=2, s=5), moves)
    assert [node.op_type for node in first.graph.nodes].count("Transpose") == 0, "two that cancel"
    again = with_moved_transposes(at(n=3, s=7), moves)
    assert again.graph is first.graph
    assert again.values["split"].shape == (3, 7, 2, 3)
    assert_equal(again, with_moved_transposes(at(n=3, s=7)))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda graph: at(n=1, s=1), id="dimensions-of-1"),
        pytest.param(
            lambda graph: replace(
                graph, values={**graph.values, "turned": replace(graph.values["turned"], shape=None)}
            ),
            id="no-shape",
        ),
        pytest.param(
            lambda graph: replace(graph, graph=replace(graph.graph, nodes=graph.graph.nodes[:-1])), id="other-nodes"
        ),
    ],
)
def test_moves_are_looked_for_anew(other: object) -> None:
    graph = at(n=2, s=5)
    moves = Moves()
    with_moved_transposes(graph, moves)
    changed = other(graph)  # type: ignore[operator]  # a parameter of pytest
    assert moves.again(changed) is None
    assert_equal(with_moved_transposes(changed, moves), with_moved_transposes(changed))


@pytest.mark.parametrize("runtime", ["onnxruntime", "tensorrt", "compiled", "eager"])
def test_a_runtime_s_graph_is_one_object_at_all_sizes(runtime: str) -> None:
    before = FusedBefore()
    found = [fused_and_said(at(n=n, s=5), RUNTIMES[runtime], explained=False, before=before)[0] for n in (2, 3, 4)]
    assert found[0].graph is found[1].graph is found[2].graph
    assert_equal(found[2], fused_and_said(at(n=4, s=5), RUNTIMES[runtime], explained=False)[0])


def test_what_is_compared_shares_its_sizes() -> None:
    bench, precision = Workbench(), resolve("auto", DataType.FLOAT32)
    found = [
        bench.prepared(bench.shaped(MODEL, make_bindings({"n": n, "s": 5})), precision=precision, runtime="onnxruntime")
        for n in (2, 3)
    ]
    assert found[0].graph.graph is found[1].graph.graph
    assert found[0].shaped.memo is found[1].shaped.memo


def test_equal_graphs_are_one() -> None:
    graph = at(n=2, s=5)
    same = SameGraphs()
    assert same.of("step", graph) is graph
    copies = tuple(replace(node) for node in graph.graph.nodes)
    copied = replace(graph, graph=replace(graph.graph, nodes=copies))
    assert same.of("step", copied).graph is graph.graph
    assert same.of("other step", copied) is copied
    scaled = replace(copies[-4], attributes={"alpha": 0.5})
    changed = replace(graph, graph=replace(graph.graph, nodes=(*copies[:-4], scaled, *copies[-3:])))
    assert same.of("step", changed) is changed
    assert same.of("step", graph).graph is graph.graph


def test_an_index_is_that_of_its_graph() -> None:
    graph = at(n=2, s=5)
    index = Index()
    first = index.search(graph, RUNTIMES["onnxruntime"])
    assert index.search(at(n=3, s=5), RUNTIMES["onnxruntime"]).producers is first.producers
    fewer = replace(graph, graph=replace(graph.graph, nodes=graph.graph.nodes[:-1]))
    assert "y" not in index.search(fewer, RUNTIMES["onnxruntime"]).producers


def test_folded_sizes_are_those_of_graph_and_work() -> None:
    graph = at(n=2, s=5)
    sizes = {node.name for node in graph.graph.nodes if node.op_type in ("Shape", "Gather", "Unsqueeze", "Concat")}
    folded = Folded()
    found = folded.of(graph, sizes)
    assert {node.op_type for node in graph.graph.nodes if node.name in found} == {"Gather", "Unsqueeze", "Concat"}
    assert folded.of(at(n=3, s=5), set(sizes)) is found
    assert folded.of(graph, set()) == set()
