"""Which values are carried along with their shapes, and what that costs."""

from __future__ import annotations

import time
import tracemalloc

import onnx
from onnx import helper

from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer
from shape_texts import inferred, shape


def test_constants_stay_constant_and_random_numbers_do_not() -> None:
    text = """g (float[2, 3] x) => (float[a] y) <float[3] w = {1.0, 2.0, 3.0}, int64[2] t = {2, 3}> {
        a = Add(w, w)
        b = Expand(a, t)
        r = RandomNormal<shape = [3]>()
        c = Add(a, r)
        s = Shape(x)
        y = Add(x, b)
    }"""
    values = inferred(text).values
    constant = {name for name in ("a", "b", "r", "c", "s", "y") if values[name].is_constant}
    assert constant == {"a", "b"}


def test_a_huge_constant_is_never_made() -> None:
    text = """g (float[1] x) => (float[a, b] y) <int64[2] t = {30000, 30000}, int64[2] ones = {1, 1}> {
        y = ConstantOfShape(t)
        e = Expand(x, t)
        z = Add(y, e)
        k = Tile(z, ones)
    }"""
    tracemalloc.start()
    result = inferred(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shape(result, "k") == (30000, 30000)
    assert result.values["y"].data is None
    assert peak < 20e6


def _seconds_of_chain(length: int) -> float:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", onnx.TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info(f"v{length}", onnx.TensorProto.FLOAT, [2, 3])],
    )
    model = read_model_bytes(helper.make_model(graph).SerializeToString())
    start = time.process_time()
    result = infer(model, Bindings())
    assert shape(result, f"v{length}") == (2, 3)
    return time.process_time() - start


def test_a_long_chain_takes_linear_time_and_no_recursion() -> None:
    _seconds_of_chain(2_000)
    short = sorted(_seconds_of_chain(2_000) for _ in range(5))[2]
    long = min(_seconds_of_chain(20_000) for _ in range(3))
    assert long < 20 * max(short, 0.01)
