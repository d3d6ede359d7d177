"""What Ifs and loops become: both branches, and how often a body runs."""

from __future__ import annotations

from itertools import pairwise

import onnx
from onnx import TensorProto, helper

from graphs import inferred, split
from lowering_cases.case import BOOL
from neusight_onnx.lowering import lower


def branches() -> str:
    return (
        "z = If (flag) < then_branch = yes () => (float[4,4] a) { a = MatMul(x, x) },"
        " else_branch = no () => (float[4,4] b) { b = Relu(x) } >"
    )


def test_if_lists_both_branches() -> None:
    graph = inferred(split(branches()), {"x": (4, 4), "flag": ()}, types={"flag": BOOL})
    works = lower(graph, runtime="eager")
    name = works[0].node
    assert works[0].free == "the nodes of its body stand for it"
    assert [(work.op_type, work.branch) for work in works[1:]] == [
        ("MatMul", (f"{name}/then",)),
        ("Relu", (f"{name}/else",)),
    ]


def test_if_with_a_known_condition_runs_one() -> None:
    graph = inferred(split(branches()), {"x": (4, 4)}, constants={"flag": False})
    works = lower(graph, runtime="eager")
    assert [(work.op_type, work.count, work.free) for work in works[1:]] == [
        ("MatMul", 0, "its branch is not taken"),
        ("Relu", 1, None),
    ]


def loop_node(name: str, trips: str, body: list[onnx.NodeProto]) -> onnx.NodeProto:
    graph = helper.make_graph(
        [*body, helper.make_node("Identity", [f"{name}_go"], [f"{name}_on"])],
        f"{name}_body",
        [
            helper.make_tensor_value_info(f"{name}_i", TensorProto.INT64, ()),
            helper.make_tensor_value_info(f"{name}_go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info(f"{name}_s", TensorProto.FLOAT, (4, 4)),
        ],
        [
            helper.make_tensor_value_info(f"{name}_on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info(f"{name}_t", TensorProto.FLOAT, (4, 4)),
        ],
    )
    return helper.make_node("Loop", [trips, "", "x"], [f"{name}_out"], name=name, body=graph)


def test_loops_multiply() -> None:
    inner = loop_node("inner", "three", [helper.make_node("MatMul", ["inner_s", "w"], ["inner_t"], name="product")])
    outer = loop_node("outer", "five", [inner, helper.make_node("Relu", ["inner_out"], ["outer_t"], name="relu")])
    graph = inferred([outer], {"x": (4, 4)}, weights={"w": (4, 4)}, constants={"five": 5, "three": 3})
    counts = {work.node: work.count for work in lower(graph, runtime="eager")}
    assert counts["outer"] == 1
    assert counts["inner"] == counts["relu"] == 5
    assert counts["product"] == 15


def test_works_follow_the_graph() -> None:
    graph = inferred("a = Relu(x)\nb = Tanh(a)\ny = Neg(b)", {"x": (4,)})
    works = lower(graph, runtime="eager")
    assert [work.op_type for work in works] == ["Relu", "Tanh", "Neg"]
    assert all(first.node != second.node for first, second in pairwise(works))
