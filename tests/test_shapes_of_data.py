"""Sizes that depend on data: the greatest and the least that they can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from neusight_onnx.errors import BindingError
from shape_texts import inferred, shape


@dataclass(frozen=True)
class BoundCase:
    """``expected``: name -> (greatest shape, least shape); equal where exact. ``says``: parts of the assumptions."""

    text: str
    expected: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    says: tuple[str, ...] = ()
    bindings: Mapping[str, Any] = field(default_factory=dict)


BOUNDED = {
    "non-zero, and what is made of it": BoundCase(
        """g (float[4, 16] x, float[64, 8] rows, float[8, 3] w) => (int64[a, b] nz)
           <int64[1] one = {1}, int64[2] t = {-1, 4}> {
             nz = NonZero(x)
             tr = Transpose(nz)
             first, second = Split<axis = 1, num_outputs = 2>(tr)
             flat = Squeeze(first, one)
             taken = Gather<axis = 0>(rows, flat)
             y = MatMul(taken, w)
             back = Add(y, y)
             shaped = Reshape(taken, t)
        }""",
        {
            "nz": ((2, 64), (2, 0)),
            "tr": ((64, 2), (0, 2)),
            "flat": ((64,), (0,)),
            "taken": ((64, 8), (0, 8)),
            "y": ((64, 3), (0, 3)),
            "back": ((64, 3), (0, 3)),
            "shaped": ((128, 4), (0, 4)),
        },
        ("NonZero 'nz': at most 64 columns, its input has 64 elements",),
    ),
    "a bound through Shape, arithmetic and Range": BoundCase(
        """g (float[10] x) => (int64[a] r) <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 twenty = {20}> {
             nz = NonZero(x)
             s = Shape(nz)
             k = Gather(s, one)
             double = Mul(k, two)
             r = Range(zero, double, one)
             rest = Sub(twenty, k)
             q = Range(zero, rest, one)
             late = Range(k, twenty, one)
             e = Expand(zero, s)
        }""",
        {
            "r": ((20,), (0,)),
            "q": ((20,), (10,)),  # 20 - k with k from 0 to 10
            "late": ((20,), (10,)),
            "e": ((1, 10), (1, 0)),
        },
    ),
    "a bound dimension cancels in a reshape, by its size, by 0 or by -1": BoundCase(
        """g (float[10] x, float[10, 6, 4] rows) => (float[a] y)
           <int64[1] m = {-1}, int64[1] one = {1}, int64[3] z = {0, -1, 2}, int64[3] t = {-1, 3, 8}> {
             nz = NonZero(x)
             flat = Reshape(nz, m)
             taken = Gather(rows, flat)
             s = Shape(nz)
             k = Gather(s, one)
             target = Concat<axis = 0>(k, m)
             y = Reshape(taken, target)
             copied = Reshape(taken, z)
             rest = Reshape(taken, t)
        }""",
        {"y": ((10, 24), (0, 24)), "copied": ((10, 12, 2), (0, 12, 2)), "rest": ((10, 3, 8), (0, 3, 8))},
    ),
    "a running count caps what a router chooses": BoundCase(
        """g (int64[2, 10] expert, float[20, 8] tokens) => (float[a, b] taken)
           <int64 depth = {4}, int64[2] levels = {0, 1}, int64 axis = {-2}, int64 limit = {3}, int64 one = {1},
            int64[1] flat = {-1}, int64[1] last = {2}> {
             chosen = OneHot<axis = -1>(expert, depth, levels)
             running = CumSum(chosen, axis)
             fits = LessOrEqual(running, limit)
             number = Cast<to = 7>(fits)
             mask = Mul(chosen, number)
             mine = Gather<axis = 2>(mask, one)
             line = Reshape(mine, flat)
             nz = NonZero(line)
             index = Squeeze(nz)
             taken = Gather<axis = 0>(tokens, index)
             below = Less(running, limit)
             fewer = Cast<to = 7>(below)
             tighter = Mul(fewer, chosen)
             all = NonZero(tighter)
             others = Unsqueeze(expert, last)
             unrelated = Mul(number, others)
             loose = NonZero(unrelated)
        }""",
        {
            # at most 3 of 10 tokens of each of 2 sequences
            "nz": ((1, 6), (1, 0)),
            "taken": ((6, 8), (0, 8)),
            # below 3: at most 2 of each of 2 sequences and 4 experts
            "all": ((3, 16), (3, 0)),
            # the running count is not one of these elements: nothing caps them
            "loose": ((3, 80), (3, 0)),
        },
        ("at most 6 columns: a running count caps",),
    ),
    "a line of a softmax adds up to 1: few of its elements are above a share": BoundCase(
        """g (float[5, 40] x) => (int64[a, b] nz)
           <float quarter = {0.25}, int64[1] one = {1}, int64[1] end = {99}, int64[1] flat = {-1}, float none = {0}> {
             p = Softmax<axis = 1>(x)
             q = Slice(p, one, end, one)
             r = Reshape(q, flat)
             high = Greater(r, quarter)
             nz = NonZero(high)
             least = LessOrEqual(quarter, p)
             other = NonZero(least)
             columns = Softmax<axis = 0>(x)
             above = GreaterOrEqual(columns, quarter)
             third = NonZero(above)
             below = Less(p, quarter)
             loose = NonZero(below)
             any = Greater(p, none)
             all = NonZero(any)
        }""",
        {
            # 4 of each of 5 lines, or of each of 40 columns
            "nz": ((1, 20), (1, 0)),
            "other": ((2, 20), (2, 0)),
            "third": ((2, 160), (2, 0)),
            "loose": ((2, 200), (2, 0)),
            "all": ((2, 200), (2, 0)),
        },
        ("NonZero 'nz': at most 20 columns: each line of a softmax adds up to 1, so at most 4 pass 0.25",),
    ),
    "an exact operand decides what a bound broadcasts to": BoundCase(
        "g (float[10] x, float[4] z) => (float[a] y) { nz = NonZero(x)  c = Cast<to = 1>(nz)  y = Add(c, z) }",
        {"y": ((1, 4), (1, 4))},
    ),
    "a bound joined to something exact": BoundCase(
        "g (float[10] x, int64[1, 3] z) => (int64[a, b] y) { nz = NonZero(x)  y = Concat<axis = 1>(nz, z) }",
        {"y": ((1, 13), (1, 3))},
    ),
    "non-maximum suppression": BoundCase(
        """g (float[2, 50, 4] boxes, float[2, 3, 50] scores) => (int64[a, b] y) <int64 most = {5}>
           { y = NonMaxSuppression(boxes, scores, most) }""",
        {"y": ((30, 3), (0, 3))},  # 2 images, 3 classes, 5 boxes
        ("at most 30 rows",),
    ),
    "non-maximum suppression keeps no more boxes than there are": BoundCase(
        """g (float[1, 7, 4] boxes, float[1, 3, 7] scores) => (int64[a, b] y) <int64 most = {100}>
           { y = NonMaxSuppression(boxes, scores, most) }""",
        {"y": ((21, 3), (0, 3))},
    ),
    "unique, compress": BoundCase(
        """g (float[3, 4] x, bool[2] c) => (float[a] y) {
             y, i, inv, n = Unique(x)
             k = Compress<axis = 1>(x, c)
        }""",
        {"y": ((12,), (1,)), "i": ((12,), (1,)), "inv": ((12,), (12,)), "n": ((12,), (1,)), "k": ((3, 2), (3, 0))},
    ),
    "top-k, slice and split with sizes that aren't known": BoundCase(
        """g (float[3, 9] x, int64[1] k, int64[2] parts) => (float[a] y) <int64[1] z = {0}, int64[1] one = {1}> {
             y, i = TopK(x, k)
             s = Slice(x, z, k, one)
             a1, a2 = Split<axis = 1>(x, parts)
        }""",
        {"y": ((3, 9), (3, 0)), "s": ((3, 9), (3, 0)), "a1": ((3, 9), (3, 0)), "a2": ((3, 9), (3, 0))},
        ("k depends on data",),
    ),
    "if with a condition from data: the larger branch": BoundCase(
        """g (bool c, float[2, 4] x) => (float[a, b] y) {
             y = If(c) <then_branch = t () => (float[a, b] p) { p = Concat<axis = 0>(x, x) },
                        else_branch = e () => (float[a, b] q) { q = Identity(x) }>
        }""",
        {"y": ((4, 4), (2, 4))},
        ("If 'y': its condition depends on data",),
    ),
}


@pytest.mark.parametrize("case", BOUNDED.values(), ids=BOUNDED.keys())
def test_bounds(case: BoundCase) -> None:
    result = inferred(case.text, **case.bindings)
    for name, (high, low) in case.expected.items():
        value = result.values[name]
        assert value.shape == high, name
        assert value.is_bound is (high != low), name
        assert (value.shape_low if value.is_bound else value.shape) == low, name
    for text in case.says:
        assert any(text in assumption for assumption in result.assumptions), result.assumptions


def test_the_user_may_say_how_large_something_is_that_depends_on_data() -> None:
    text = "g (float[10] x) => (int64[a] y) <int64[1] m = {-1}> { nz = NonZero(x)  y = Reshape(nz, m) }"
    result = inferred(text, shapes={"nz": (1, 4)})
    assert shape(result, "y") == (4,)
    assert not result.values["y"].is_bound
    with pytest.raises(BindingError, match="at most"):
        inferred(text, shapes={"nz": (1, 11)})


COUNTED = """g (float[6] x, float[6, 4] rows) => (float[a, b] y)
    <int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64[1] i = {{1}}, int64[1] m = {{-1}},
     int64[1] six = {{6}}, float[6] given = {{{given}}}> {{
        nz = NonZero({source})
        s = Shape(nz)
        k = Gather(s, one)
        k1 = Gather(s, i)
        flat = Reshape(nz, m)
        y = Gather<axis = 0>(rows, flat)
        half = Div(k, two)
        r = Range(zero, half, one)
        tail = Slice(rows, k1, six)
        head = Slice(rows, i, k1)
    }}"""


def test_a_bound_contains_every_run() -> None:
    """For every number of non-zero elements the true shapes lie between both ends."""
    zeros = ", ".join(["0.0"] * 6)
    bounds = inferred(COUNTED.format(source="x", given=zeros))
    for count in range(7):
        content = ", ".join("1.0" if index < count else "0.0" for index in range(6))
        known = inferred(COUNTED.format(source="given", given=content))
        assert shape(known, "tail") == (6 - count, 4)
        for name in ("nz", "flat", "y", "r", "tail", "head"):
            true, bound = known.values[name], bounds.values[name]
            assert true.shape is not None
            assert bound.shape is not None
            assert not true.is_bound
            assert bound.is_bound
            assert bound.shape_low is not None
            ends = zip(bound.shape_low, true.shape, bound.shape, strict=True)
            assert all(low <= size <= high for low, size, high in ends), (name, count)
