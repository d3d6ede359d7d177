"""Sizes between two ends: for every size that is possible, the truth lies between the ends that inference gives."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from neusight_onnx.graph.model import InferredGraph, Value
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer

MOST = 12
"""k, the number of elements of x that are not zero, is 0 to this."""


def inferred(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], outputs: list[str], k: int | None
) -> InferredGraph:
    """A graph over v (50 floats) and ``k`` (one int64): a constant, or counted in x where it is None."""
    given = {name: numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()}
    given["v"] = numpy_helper.from_array(np.zeros(50, np.float32), "v")
    inputs = []
    if k is None:
        given["one"], given["two"] = (
            numpy_helper.from_array(np.array([size]), name) for name, size in (("one", 1), ("two", 2))
        )
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [MOST])]
        nodes = [
            helper.make_node("NonZero", ["x"], ["found"]),
            helper.make_node("Shape", ["found"], ["sizes"]),
            helper.make_node("Slice", ["sizes", "one", "two"], ["k"]),
            *nodes,
        ]
    else:
        given["k"] = numpy_helper.from_array(np.array([k]), "k")
    graph = helper.make_graph(
        nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], list(given.values())
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return infer(read_model_bytes(model.SerializeToString()))


def low(value: Value) -> tuple[int, ...]:
    assert value.shape is not None
    return (value.shape_low or (0,) * len(value.shape)) if value.is_bound else value.shape


def assert_between(truth: Value, interval: Value, what: object) -> None:
    assert truth.shape is not None
    if interval.shape is not None:
        assert len(truth.shape) == len(interval.shape), what
        assert all(
            least <= size <= most for least, size, most in zip(low(interval), truth.shape, interval.shape, strict=True)
        ), (what, low(interval), truth.shape, interval.shape)
    if interval.data is not None and truth.data is not None:
        least = interval.data if interval.data_low is None else interval.data_low
        assert (least <= truth.data).all(), (what, least, truth.data)
        assert (truth.data <= interval.data).all(), (what, truth.data, interval.data)


PLACES = {
    "k": lambda k: k,
    "-k": lambda k: -k,
    "k-5": lambda k: k - 5,
    "5-k": lambda k: 5 - k,
    "k-40": lambda k: k - 40,
    "-k-1": lambda k: -k - 1,
    "0": lambda k: 0,
    "20": lambda k: 20,
    "-1": lambda k: -1,
    "end": lambda k: 2**62,
}


def place_nodes() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Values of the names of PLACES, with a p before."""
    constants = {f"c{size}": np.array([size]) for size in (1, 5, 40)}
    constants |= {f"p{name}": np.array([PLACES[name](0)]) for name in ("0", "20", "-1", "end")}
    nodes = [
        helper.make_node("Identity", ["k"], ["pk"]),
        helper.make_node("Neg", ["k"], ["p-k"]),
        helper.make_node("Sub", ["k", "c5"], ["pk-5"]),
        helper.make_node("Sub", ["c5", "k"], ["p5-k"]),
        helper.make_node("Sub", ["k", "c40"], ["pk-40"]),
        helper.make_node("Sub", ["p-k", "c1"], ["p-k-1"]),
    ]
    return nodes, constants


def sliced(size: int, start: int, end: int, step: int) -> int:
    """How many elements ONNX's Slice keeps: Python's rule, but a start before the front goes back from the front."""
    if step < 0 and start < -size:
        start = -size
    return len(range(size)[start:end:step])


def test_slices_of_a_known_size() -> None:
    """v[start:end:step] for every k."""
    nodes, constants = place_nodes()
    constants |= {"axis": np.array([0]), **{f"s{step}": np.array([step]) for step in (1, 3, -1, -2)}}
    cases = list(itertools.product(PLACES, PLACES, (1, 3, -1, -2)))
    for index, (start, end, step) in enumerate(cases):
        nodes.append(helper.make_node("Slice", ["v", f"p{start}", f"p{end}", "axis", f"s{step}"], [f"y{index}"]))
    result = inferred(nodes, constants, ["y0"], None)
    loose = 0
    for index, (start, end, step) in enumerate(cases):
        lengths = [sliced(50, PLACES[start](k), PLACES[end](k), step) for k in range(MOST + 1)]
        value = result.values[f"y{index}"]
        assert value.shape is not None
        assert low(value)[0] <= min(lengths), (start, end, step)
        assert max(lengths) <= value.shape[0], (start, end, step)
        moves = ("k" in start) + ("k" in end)
        if moves < 2:  # one end moves: not a bound only, but the least and the most
            assert (*low(value), *value.shape) == (min(lengths), max(lengths)), (start, end, step)
        else:
            loose += value.shape[0] > max(lengths)
    assert loose > 0  # ends that move together are taken to move each by itself: a bound, no more


@pytest.mark.parametrize(
    ("start", "end"),
    [("-3", "end"), ("5", "end"), ("-5", "3"), ("0", "-4"), ("-20", "-2"), ("2", "7"), ("-1", "-9"), ("k-5", "end")],
)
@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_slices_of_a_size_that_depends_on_data(start: str, end: str, step: int) -> None:
    """g[start:end:step] where g itself has k elements."""
    nodes, constants = place_nodes()
    ends = {}
    for name in (start, end):
        if name not in PLACES:
            constants[f"p{name}"] = np.array([int(name)])
        ends[name] = PLACES.get(name, lambda k, size=name: int(size))
    constants |= {"axis": np.array([0]), "zero": np.array([0]), "step": np.array([step])}
    nodes.append(helper.make_node("Slice", ["v", "zero", "k"], ["g"]))
    nodes.append(helper.make_node("Slice", ["g", f"p{start}", f"p{end}", "axis", "step"], ["y"]))
    value = inferred(nodes, constants, ["y"], None).values["y"]
    lengths = [sliced(k, ends[start](k), ends[end](k), step) for k in range(MOST + 1)]
    assert value.shape is not None
    assert low(value)[0] <= min(lengths)
    assert max(lengths) <= value.shape[0]
    if start != "k-5":
        assert (*low(value), *value.shape) == (min(lengths), max(lengths))


def test_the_slice_that_was_shown_as_empty() -> None:
    """v[20:-k] of 50: 0 elements at k = 0 (the end is the front), 29 at k = 1."""
    nodes, constants = place_nodes()
    nodes.append(helper.make_node("Slice", ["v", "p20", "p-k"], ["y"]))
    value = inferred(nodes, constants, ["y"], None).values["y"]
    assert (value.shape, value.is_bound, value.shape_low) == ((29,), True, (0,))


def operator(
    op_type: str, *inputs: str, count: int = 1, **attributes: object
) -> tuple[str, tuple[str, ...], int, dict[str, object]]:
    return op_type, inputs, count, attributes


OPERATORS = {
    "expand to what must fit": ([operator("Expand", "w1", "k")], range(MOST + 1)),
    "expand ten to k: 1 or 10": ([operator("Expand", "w10", "k")], (1, 10)),
    "pad, and cut": (
        [operator("Sub", "c5", "k"), operator("Concat", "c0", "0", axis=0), operator("Pad", "v", "1")],
        range(MOST + 1),
    ),
    "tile": ([operator("Tile", "w10", "k")], range(MOST + 1)),
    "equal parts": (
        [operator("Slice", "v", "c0", "k"), operator("Split", "0", count=5, num_outputs=5)],
        range(1, MOST + 1),
    ),
    "parts that are counted": (
        [operator("Sub", "c50", "k"), operator("Concat", "k", "0", axis=0), operator("Split", "v", "1", count=2)],
        range(MOST + 1),
    ),
    "a range that goes down": (
        [operator("Squeeze", "k"), operator("Range", "c5s", "0", "down"), operator("Range", "0", "c5s", "down")],
        range(MOST + 1),
    ),
    "a range whose step changes its sign": (
        [operator("Sub", "k", "c5"), operator("Squeeze", "0"), operator("Range", "c0s", "c40s", "1")],
        [k for k in range(MOST + 1) if k != 5],
    ),
    "a range whose step grows": (
        [operator("Add", "k", "c1"), operator("Squeeze", "0"), operator("Range", "c0s", "c40s", "1")],
        range(MOST + 1),
    ),
    "resize": (
        [
            operator("Reshape", "v", "image"),
            operator("Concat", "c1", "c1", "k", axis=0),
            operator("Resize", "0", "", "", "1"),
        ],
        range(1, MOST + 1),
    ),
    "one-hot": ([operator("Squeeze", "k"), operator("OneHot", "ids", "0", "levels")], range(1, MOST + 1)),
    "top k": ([operator("TopK", "v", "k", count=2)], range(MOST + 1)),
    "zeros": ([operator("ConstantOfShape", "k")], range(MOST + 1)),
}
"""What is inferred, and for which k the model is valid. An input that is a number: the first output of that step."""

CONSTANTS = {
    **{f"c{size}": np.array([size]) for size in (0, 1, 5, 7, 40, 50)},
    **{f"c{size}s": np.array(size) for size in (0, 5, 40)},
    "down": np.array(-1),
    "w1": np.zeros(1, np.float32),
    "w10": np.zeros(10, np.float32),
    "image": np.array([1, 1, 50]),
    "ids": np.array([1, 2]),
    "levels": np.zeros(2, np.float32),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_shapes_for_every_size(name: str) -> None:
    steps, valid = OPERATORS[name]
    nodes = []
    for index, (op_type, inputs, count, attributes) in enumerate(steps):
        names = [f"t{item}_0" if item.isdigit() else item for item in inputs]
        nodes.append(helper.make_node(op_type, names, [f"t{index}_{place}" for place in range(count)], **attributes))
    outputs = [output for node in nodes for output in node.output]
    interval = inferred(nodes, CONSTANTS, outputs, None)
    for k in valid:
        exact = inferred(nodes, CONSTANTS, outputs, k)
        for output in outputs:
            assert interval.values[output].shape is not None
            assert_between(exact.values[output], interval.values[output], (k, output))
    last = interval.values[outputs[-1]]
    assert last.is_bound or name == "expand ten to k: 1 or 10"


BINARY = ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Pow", "BitwiseAnd", "Gather", "Where", "And")
UNARY = ("Neg", "Abs", "Sign", "Relu", "Bool", "Float", "Half", "BitwiseNot", "Not", "Square", "Prod")
TABLE = [3, -7, 0, 9, 2, -1, 8, 8, 1, 5, -4, 6, 7]
"""As many as k has values, so that k itself is an index of it."""


@st.composite
def arithmetic(draw: st.DrawFn) -> list[tuple[str, tuple[str, ...]]]:
    """Some steps of arithmetic on k, constants and each other."""
    names = ["k", "k", "c0", "c1", "c5", "c7", "m3", "m1"]
    steps: list[tuple[str, tuple[str, ...]]] = []
    for _ in range(draw(st.integers(1, 6))):
        op_type = draw(st.sampled_from(BINARY + UNARY))
        inputs = tuple(draw(st.sampled_from(names)) for _ in range(2 if op_type in BINARY else 1))
        steps.append((op_type, inputs))
        names += [f"t{len(steps) - 1}"] * 2
    return steps


def arithmetic_nodes(steps: list[tuple[str, tuple[str, ...]]]) -> list[onnx.NodeProto]:
    make = helper.make_node
    nodes = []
    for index, (op_type, inputs) in enumerate(steps):
        out, mid = f"t{index}", f"u{index}"
        first = inputs[0]
        match op_type:
            case "Gather":
                nodes += [make("Mod", [first, "c13"], [mid]), make("Gather", ["table", mid], [out])]
            case "Where":
                nodes += [make("Greater", [*inputs], [mid]), make("Where", [mid, *inputs], [out])]
            case "And":
                nodes += [make("Cast", [first], [f"{mid}a"], to=9), make("Cast", [inputs[1]], [f"{mid}b"], to=9)]
                nodes += [make("And", [f"{mid}a", f"{mid}b"], [mid]), make("Cast", [mid], [out], to=7)]
            case "Bool":
                nodes += [make("Cast", [first], [mid], to=9), make("Cast", [mid], [out], to=7)]
            case "Not":
                nodes += [make("Cast", [first], [mid], to=9), make("Not", [mid], [f"{mid}a"])]
                nodes += [make("Cast", [f"{mid}a"], [out], to=7)]
            case "Float":
                nodes += [make("Cast", [first], [mid], to=11), make("Cast", [mid], [out], to=7)]
            case "Half":
                nodes += [make("Cast", [first], [mid], to=11), make("Mul", [mid, "minus_half"], [f"{mid}a"])]
                nodes += [make("Cast", [f"{mid}a"], [out], to=7)]
            case "Square":
                nodes.append(make("Pow", [first, "c2"], [out]))
            case "Prod":
                nodes += [
                    make("Concat", [first, "m3", "k"], [mid], axis=0),
                    make("ReduceProd", [mid], [out], keepdims=0),
                ]
                nodes[-1].output[0] = f"{mid}a"
                nodes.append(make("Reshape", [f"{mid}a", "c1"], [out]))
            case _:
                nodes.append(make(op_type, [*inputs], [out]))
    return nodes


@settings(max_examples=100, deadline=None)
@given(arithmetic())
def test_contents_for_every_size(steps: list[tuple[str, tuple[str, ...]]]) -> None:
    """Whatever is computed from k in integers is between both ends; so is the size of what it is the size of."""
    constants = {
        **{f"c{size}": np.array([size]) for size in (0, 1, 2, 5, 7, 13)},
        "m3": np.array([-3]),
        "m1": np.array([-1]),
        "table": np.array(TABLE),
        "minus_half": np.array([-0.5]),
        "none": np.array(0),
        "many": np.array(60_000),
    }
    nodes = arithmetic_nodes(steps)
    names = [output for node in nodes for output in node.output]
    nodes.append(helper.make_node("Clip", [f"t{len(steps) - 1}", "none", "many"], ["size"]))
    nodes.append(helper.make_node("ConstantOfShape", ["size"], ["y"]))
    interval = inferred(nodes, constants, ["y"], None)
    for k in range(MOST + 1):
        exact = inferred(nodes, constants, ["y"], k)
        if any(exact.values[name].data is None for name in names):
            continue  # a division by 0, or another step that is invalid for this k
        if any((np.abs(exact.values[name].data) > 2**31).any() for name in names):
            continue  # integers that may have overflowed
        for name in [*names, "y"]:
            assert_between(exact.values[name], interval.values[name], (k, name))
