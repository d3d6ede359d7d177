"""Shapes that can't be told, that contradict each other, or what the file declares."""

from __future__ import annotations

from typing import Any

import pytest

from neusight_onnx.errors import ModelError
from shape_texts import inferred, node_name, shape


def test_a_declared_size_of_0_is_free_and_not_stale() -> None:
    result = inferred("g (float[0, 256] x) => (float[a, b] y) { y = Relu(x) }")
    assert shape(result, "y") == (1, 256)
    assert not result.warnings


def test_an_unknown_operator_names_itself_to_all_that_follows() -> None:
    text = """g (float[2, 8] x, float[8, 4] w) => (float[a, b] y) {
        m = my.custom.MyOp(x)
        r = Relu(m)
        y = MatMul(r, w)
        other = Relu(x)
    }"""
    result = inferred(text)
    name = node_name(result, "MyOp")
    for value in ("m", "r", "y"):
        assert shape(result, value) is None
        assert result.values[value].unknown_because == name
    assert shape(result, "other") == (2, 8)
    told = inferred(text, shapes={"m": (2, 8)})
    assert shape(told, "y") == (2, 4)


def test_an_unknown_operator_has_the_shape_that_the_file_declares() -> None:
    text = """g (float[B, 8] x, float[8, 4] w) => (float[B, 4] y)
       <float[B, 8] m> { m = my.custom.MyOp(x)  y = MatMul(m, w) }"""
    assert shape(inferred(text, dims={"B": 3}), "y") == (3, 4)


def test_stale_value_info_is_named_and_not_believed() -> None:
    text = (
        """g (float[4, 16] x, float[16, 32] w) => (float[4, 32] y) <float[9, 9] a> { a = MatMul(x, w)  y = Relu(a) }"""
    )
    result = inferred(text)
    assert shape(result, "a") == (4, 32)
    (warning,) = [notice for notice in result.warnings if notice.code == "stale-value-info"]
    assert "'a'" in warning.message
    assert "[9, 9]" in warning.message
    assert "[4, 32]" in warning.message
    assert not warning.details


def test_stale_value_infos_are_counted() -> None:
    """One line however many there are; the others are details, which -v says."""
    text = """g (float[4, 16] x, float[16, 32] w) => (float[4, 32] y)
        <float[9, 9] a, float[8, 8] b, float[7, 7] c> { a = MatMul(x, w)  b = Relu(a)  c = Relu(b)  y = Relu(c) }"""
    (warning,) = [notice for notice in inferred(text).warnings if notice.code == "stale-value-info"]
    assert warning.message.startswith("'a' is declared as [9, 9] but its shape is [4, 32], and 2 more are: ")
    assert [detail.split(" is declared")[0] for detail in warning.details] == ["'b'", "'c'"]


PRESENT = """g (float[batch, past, 8] cache, float[batch, new, 8] key, float[batch, total] mask)
    => (float[batch, total, 8] present, float[batch] count) <int64[1] axes = {1}> {
    present = Concat<axis = 1>(cache, key)  count = ReduceSum<keepdims = 0>(mask, axes) }"""


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        pytest.param({}, (), id="all left open"),
        pytest.param({"past": 3, "new": 4}, (), id="the sum left open"),
        pytest.param({"past": 3, "new": 4, "total": 7}, (), id="the sum"),
        pytest.param(
            {"past": 3, "new": 4, "total": 5}, ("'total' is 5", "7 in 'present'", "--dim total=7"), id="another size"
        ),
    ],
)
def test_sizes_that_contradict_each_other_are_named(dims: dict[str, int], said: tuple[str, ...]) -> None:
    """No operator refuses them: the mask is only summed over."""
    found = [notice.message for notice in inferred(PRESENT, dims=dims).warnings if notice.code == "dim-contradiction"]
    assert len(found) == bool(said)
    assert all(text in found[0] for text in said)


FAULTS = {
    "baked-in reshape": (
        "g (float[B, 8] x) => (float[a] y) <int64[2] t = {3, 8}> { y = Reshape(x, t) }",
        {"dims": {"B": 4}},
        ("Reshape", "'x' [4, 8]", "[3, 8]", "baked in"),
    ),
    "matmul": (
        "g (float[B, 8] x, float[9, 4] w) => (float[a] y) { y = MatMul(x, w) }",
        {},
        ("MatMul", "8 is not 9", "x [1, 8]", "w [9, 4]"),
    ),
    "broadcast": (
        "g (float[B, 8] x, float[3, 8] z) => (float[a] y) { y = Add(x, z) }",
        {"dims": {"B": 2}},
        ("Add", "x [2, 8]", "z [3, 8]", "broadcast"),
    ),
    "concat": (
        "g (float[2, 8] x, float[3, 9] z) => (float[a] y) { y = Concat<axis = 0>(x, z) }",
        {},
        ("Concat", "x [2, 8]", "z [3, 9]"),
    ),
    "axis": (
        "g (float[2] x) => (float[a] y) { y = Softmax<axis = 0>(x)  z = ArgMax<axis = 3>(x) }",
        {},
        ("ArgMax", "axis 3"),
    ),
    "window": (
        "g (float[1, 1, 2] x, float[1, 1, 5] w) => (float[a] y) { y = Conv(x, w) }",
        {},
        ("Conv", "window of 5"),
    ),
    "channels": (
        "g (float[1, 3, 9] x, float[8, 4, 3] w) => (float[a] y) { y = Conv(x, w) }",
        {},
        ("Conv", "3 channels"),
    ),
    "too large": (
        "g (float[1] x) => (float[a] y) <int64[3] t = {4000000000, 4000000000, 4000000000}> { y = Expand(x, t) }",
        {},
        ("Expand", "2^60"),
    ),
    "negative size": (
        "g (float[3] x) => (float[a] y) <int64[2] p = {-2, -2}> { y = Pad(x, p) }",
        {},
        ("Pad", "negative"),
    ),
    "index outside": (
        "g (float[3, 2] x) => (int64 y) <int64 i = {5}> { s = Shape(x)  y = Gather(s, i) }",
        {},
        ("Gather", "x"),
    ),
    "positions beyond a table": (
        """g (float[a] x) => (float[a, 2] y) <float[4, 2] table = {0, 0, 0, 0, 0, 0, 0, 0}, int64 zero = {0},
           int64 one = {1}, int64[1] first = {0}> {
             s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)  y = Gather(table, where) }""",
        {"dims": {"a": 5}},
        ("Gather", "indices are 0 to 4, but axis 0 has 4", "table [4, 2]"),
    ),
    "positions beyond a table, too many to carry": (
        """g (float[a] x) => (float[1, a, 2] y) <float[4, 2] table = {0, 0, 0, 0, 0, 0, 0, 0}, int64 zero = {0},
           int64 one = {1}, int64[1] first = {0}> {
             s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)  row = Unsqueeze(where, first)
             narrow = Cast<to = 6>(row)  y = Gather(table, narrow) }""",
        {"dims": {"a": 100_000}},
        ("Gather", "indices are 0 to 99999, but axis 0 has 4"),
    ),
    "positions behind a cache, too many to carry": (
        """g (float[a] x, float[5000, 2] table) => (float[1, a, 2] y) <int64 zero = {0}, int64 one = {1},
           int64 past = {100}, int64[2] row = {1, -1}> {
             s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)  behind = Add(where, past)
             rows = Reshape(behind, row)  y = Gather(table, rows) }""",
        {"dims": {"a": 4950}},
        ("Gather", "indices are 100 to 5049, but axis 0 has 5000"),
    ),
    "positions of several samples, too many to carry": (
        """g (float[b, a] x, float[64, 2] table) => (float[b, a, 2] y) <int64 zero = {0}, int64 one = {1}> {
             s = Shape(x)  n = Gather(s, one)  where = Range(zero, n, one)  rows = Expand(where, s)
             y = Gather(table, rows) }""",
        {"dims": {"a": 65, "b": 64}},
        ("Gather", "indices are 0 to 64, but axis 0 has 64"),
    ),
    "before a table": (
        "g (float[4, 2] x, int64[1] i) => (float[1, 2] y) <int64[1] j = {-5}> { y = Gather(x, j) }",
        {},
        ("Gather", "indices are -5 to -5, but axis 0 has 4"),
    ),
    "what is new for a cache has no dimensions": (
        "g (float[2, 64, 8] past, float new) => (float[a, b, c] y) { y = TensorScatter(past, new) }",
        {},
        ("TensorScatter", "one rank, 2 or more"),
    ),
    "missing input": ("g (float[3] x) => (float[a] y) { y = MatMul(x) }", {}, ("MatMul", "has 1 input, needs 2")),
}


@pytest.mark.parametrize(("text", "bindings", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_contradictions_name_the_node_and_the_shapes(
    text: str, bindings: dict[str, Any], says: tuple[str, ...]
) -> None:
    with pytest.raises(ModelError) as caught:
        inferred(text, **bindings)
    for part in says:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("length", "formula"),
    [
        (4900, "i = Add(where, past)"),
        (5100, "i = Sub(where, past)"),
        (5001, "mirror = Sub(last, where)  i = Add(where, mirror)"),  # no two are the greatest at one place
    ],
    ids=["behind", "before", "of two that vary"],
)
def test_positions_within_a_table_are_taken(length: int, formula: str) -> None:
    text = f"""g (float[a] x, float[5001, 2] table) => (float[a, 2] y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64 past = {{100}}, int64 last = {{5000}}> {{
          s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)  {formula}  y = Gather(table, i) }}"""
    assert inferred(text, dims={"a": length}).values["y"].shape == (length, 2)


def test_other_integers_of_the_shape_of_positions_have_not_their_range() -> None:
    """Equal values are made one object; 5,100 positions and 5,100 zeros (types of tokens) are not equal."""
    text = """g (float[a] x, float[8, 2] table) => (float[a, 2] y) <int64 zero = {0}, int64 one = {1}> {
          s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)
          types = ConstantOfShape<value = int64[1] {0}>(s)  y = Gather(table, types) }"""
    assert inferred(text, dims={"a": 5100}).values["y"].shape == (5100, 2)


def test_another_default_length_is_tried_where_the_first_contradicts_the_model() -> None:
    text = """g (int64[batch, seq] ids, float[9, 4] table, float[1, 77, 4] positions) => (float[a] y)
        <int64[1] zero = {0}, int64[1] one = {1}> {
        words = Gather(table, ids)
        s = Shape(ids)
        n = Gather(s, one)
        places = Slice(positions, zero, n, one)
        y = Add(words, places)
    }"""
    result = inferred(text)
    assert shape(result, "y") == (1, 64, 4)
    assert any("does not fit" in assumption and "[1, 128, 4]" in assumption for assumption in result.assumptions)
    with pytest.raises(ModelError, match="broadcast"):
        inferred(text, dims={"seq": 128})
