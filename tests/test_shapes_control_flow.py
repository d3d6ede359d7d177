"""Shapes behind loops, Ifs and Scans, and how often loops run."""

from __future__ import annotations

import time

import onnx
import pytest
from onnx import helper

from neusight_onnx.errors import BindingError
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer
from shape_texts import inferred, node_name, shape

LOOP = """g (float[4, 32] x, float[32, 32] w, int64 n) => (float[4, 32] y) <int64 m = {{{trips}}}, bool go = {{1}}> {{
    y, stacked = Loop({limit}, go, x) <body = b (int64 i, bool c, float[4, 32] v)
       => (bool c2, float[4, 32] v2, float[4, 32] slice) {{
        c2 = Identity(c)
        v2 = MatMul(v, w)
        slice = Identity(v2)
    }}>
}}"""


def loop_text(limit: str, trips: int = 5) -> str:
    return LOOP.format(trips=trips, limit=limit)


def test_loop_with_a_constant_trip_count() -> None:
    result = inferred(loop_text("m"))
    assert shape(result, "y") == (4, 32)
    assert shape(result, "stacked") == (5, 4, 32)
    name = node_name(result, "Loop")
    assert result.trip_counts[name].count == 5
    assert result.trip_counts[name].source == "constant"
    body = result.bodies[(name, "body")]
    assert shape(body, "v2") == (4, 32)
    assert shape(body, "w") == (32, 32), "bodies see the values around them"


def test_a_trip_count_beyond_the_maximum_is_refused() -> None:
    with pytest.raises(BindingError, match="runs at most 5 times"):
        inferred(loop_text("m"), trip_counts={node_name(inferred(loop_text("m")), "Loop"): 7})


def test_loop_whose_trip_count_is_an_input() -> None:
    unknown = inferred(loop_text("n"))
    name = node_name(unknown, "Loop")
    assert unknown.trip_counts[name].count == 1
    assert any(f"--trip-count {name}=N" in text for text in unknown.assumptions)
    assert shape(unknown, "stacked") == (1, 4, 32)
    told = inferred(loop_text("n"), trip_counts={name: 7})
    assert (told.trip_counts[name].count, told.trip_counts[name].source) == (7, "--trip-count")
    assert shape(told, "stacked") == (7, 4, 32)
    given = inferred(loop_text("n"), values={"n": 3})
    assert shape(given, "stacked") == (3, 4, 32)


def test_a_long_loop_is_not_unrolled() -> None:
    start = time.perf_counter()
    result = inferred(loop_text("m", 2_000_000_000))
    assert shape(result, "stacked") == (2_000_000_000, 4, 32)
    assert time.perf_counter() - start < 1


GROWING = """g (float[2, 3] x) => (float[a, b] y) <int64 m = {{{trips}}}, bool go = {{1}}> {{
    y, sizes = Loop(m, go, x) <body = b (int64 i, bool c, float[p, q] v) => (bool c2, float[p, q] v2, int64[r] s) {{
        c2 = Identity(c)
        v2 = Concat<axis = 0>(v, x)
        s = Shape(v2)
    }}>
}}"""


def test_a_loop_that_grows_is_unrolled() -> None:
    result = inferred(GROWING.format(trips=6))
    assert shape(result, "y") == (14, 3)  # 2 + 6 x 2 rows
    assert not result.values["y"].is_bound
    assert shape(result, "sizes") == (6, 2)
    name = node_name(result, "Loop")
    assert [count for _, count in result.repeats[name]] == [1] * 6
    rows = []
    for key, _ in result.repeats[name]:
        body = result.bodies[(name, key)]
        assert shape(body, body.graph.outputs[2].name) == (2,)
        rows.append(shape(body, body.graph.outputs[1].name))
    assert rows == [(4, 3), (6, 3), (8, 3), (10, 3), (12, 3), (14, 3)], "every trip has its own sizes"


def test_a_loop_that_grows_for_long_is_extrapolated() -> None:
    result = inferred(GROWING.format(trips=1_000_000))
    assert shape(result, "y") == (2_000_002, 3)
    assert result.values["y"].is_bound


def test_loop_ended_by_its_condition() -> None:
    text = """g (float[2] x)
       => (float[a, b] y) <int64 m = {100}, bool go = {1}, int64 zero = {0}, int64 one = {1}, int64 four = {4}> {
        k, y = Loop(m, go, zero) <body = b (int64 i, bool c, int64 v) => (bool c2, int64 v2, float[2] s) {
            v2 = Add(v, one)
            c2 = Less(v2, four)
            s = Identity(x)
        }>
    }"""
    result = inferred(text)
    assert shape(result, "y") == (4, 2)
    assert not result.values["y"].is_bound
    assert result.trip_counts[node_name(result, "Loop")].count == 4


def test_a_while_loop_over_constants_is_counted() -> None:
    # k = 0, 2, 4, ... while k + 2 < 12: six trips
    text = """g (float[3, 8] x) => (float[a, b, c] rows)
       <int64 start = {0}, int64 step = {2}, int64 limit = {12}, bool go = {1}> {
         k, rows = Loop(, go, start) <body = b (int64 i, bool c, int64 n) => (bool more, int64 next, float[p, q] row) {
           next = Add(n, step)
           more = Less(next, limit)
           row = Relu(x)
         }>
    }"""
    result = inferred(text)
    assert shape(result, "rows") == (6, 3, 8)
    assert int(result.values["k"].data) == 12
    assert not result.bodies[(node_name(result, "Loop"), "body")].values["next"].is_constant


def test_loop_that_data_may_end_early() -> None:
    text = """g (float[2] x) => (float[a, b] y) <int64 m = {9}, bool go = {1}> {
        y = Loop(m, go) <body = b (int64 i, bool c) => (bool c2, float[2] s) {
            top = ReduceMax<keepdims = 0>(x)
            c2 = Cast<to = 9>(top)
            s = Identity(x)
        }>
    }"""
    result = inferred(text)
    assert shape(result, "y") == (9, 2)
    assert result.values["y"].is_bound
    assert result.values["y"].shape_low == (1, 2), "the first trip happens for sure"
    assert any("at most 9 times" in text for text in result.assumptions)


def test_if_with_a_known_condition_takes_its_branch_and_says_so_of_the_other() -> None:
    text = """g (float[2, 4] x) => (float[a] y) <int64 two = {2}> {
        s = Shape(x)
        n = Size(s)
        c = Equal(n, two)
        y = If(c) <then_branch = t () => (float[a] p) { p = Transpose(x) },
                   else_branch = e () => (float[a] q) { ax = Constant<value_ints = [0]>()  q = Squeeze(x, ax) }>
    }"""
    result = inferred(text)  # the other branch is invalid for these sizes: it never runs
    assert shape(result, "y") == (4, 2)
    assert not result.values["y"].is_bound
    name = node_name(result, "If")
    assert set(result.bodies) == {(name, "then_branch")}
    assert result.idle == {(name, "else_branch"): "its branch is not taken"}


def test_a_condition_of_bounded_size_refuses_nothing() -> None:
    """EmbeddingBag in a Loop compares offsets[i] with offsets[i + 1]: one element each, which only a run knows."""
    text = """g (int64[1] i, int64[1] j, int64[9] offsets, float[4, 2] x) => (float[a, b] y) {
        o = Slice(offsets, i, j)
        e = Equal(o, o)
        y = If(e) <then_branch = t () => (float[4, 2] p) { p = Relu(x) },
                   else_branch = f () => (float[4, 2] q) { q = Neg(x) }>
    }"""
    assert shape(inferred(text), "y") == (4, 2)


def test_scan_over_two_axes() -> None:
    text = """g (float[3] s0, float[7, 3] x) => (float[3] last) {
        last, ys = Scan<num_scan_inputs = 1, body = b (float[3] s, float[3] xi) => (float[3] s2, float[3, 1] o) {
            s2 = Add(s, xi)
            shape = Constant<value_ints = [3, 1]>()
            o = Reshape(s2, shape)
        }, scan_output_axes = [1]>(s0, x)
    }"""
    result = inferred(text)
    assert shape(result, "last") == (3,)
    assert shape(result, "ys") == (3, 7, 1)
    assert result.trip_counts[node_name(result, "Scan")].count == 7


def test_loops_within_loops_take_bounded_time() -> None:
    """Ten loops, each in the body of the one before, 100 trips each: 10^20 trips in all."""

    def body(depth: int) -> onnx.GraphProto:
        inner = (
            [helper.make_node("Loop", ["m", "go", f"v{depth}"], [f"w{depth}"], body=body(depth + 1))]
            if depth < 10
            else [helper.make_node("Relu", [f"v{depth}"], [f"w{depth}"])]
        )
        keep = helper.make_node("Identity", [f"c{depth}"], [f"d{depth}"])
        tensor, scalar = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL
        return helper.make_graph(
            [*inner, keep],
            f"body{depth}",
            [
                helper.make_tensor_value_info(f"i{depth}", onnx.TensorProto.INT64, []),
                helper.make_tensor_value_info(f"c{depth}", scalar, []),
                helper.make_tensor_value_info(f"v{depth}", tensor, [2]),
            ],
            [
                helper.make_tensor_value_info(f"d{depth}", scalar, []),
                helper.make_tensor_value_info(f"w{depth}", tensor, [2]),
            ],
        )

    graph = helper.make_graph(
        [helper.make_node("Loop", ["m", "go", "x"], ["y"], body=body(1))],
        "outer",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
        [helper.make_tensor("m", onnx.TensorProto.INT64, [], [100]), helper.make_tensor("go", 9, [], [True])],
    )
    start = time.process_time()
    result = infer(read_model_bytes(helper.make_model(graph).SerializeToString()), Bindings())
    assert shape(result, "y") == (2,)
    assert time.process_time() - start < 10
