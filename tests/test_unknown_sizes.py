"""Sizes that are computed from data: between the ends that the graph leaves, or a stated cap; and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import parser

from neusight_onnx.errors import BindingError
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import at_expected_sizes, bind_and_infer
from neusight_onnx.graph.shapes.unknown_sizes import MOST
from neusight_onnx.lowering import lower


def inferred(text: str, **bindings: Any) -> tuple[InferredGraph, InferredGraph]:
    """With bounds, and as costs are counted."""
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')
    model = read_model_bytes(proto.SerializeToString())
    given = Bindings(**bindings)
    bound, result = bind_and_infer(model, given)
    return result, at_expected_sizes(model, given, bound, result)


@dataclass(frozen=True)
class Case:
    """``expected``: name -> (greatest shape, least shape); equal where exact. ``says``: parts of the assumptions."""

    text: str
    expected: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    says: tuple[str, ...] = ()
    bindings: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "the greatest of indices, one-hot: at most as many as there are to choose from": Case(
        """g (float[4, 7] x) => (float[a] y)
           <int64 zero = {0}, int64 one = {1}, float[2] levels = {0, 1}> {
             best = ArgMax<axis = 1, keepdims = 0>(x)
             last = ReduceMax<keepdims = 0>(best)
             count = Add(last, one)
             r = Range(zero, count, one)
             y = OneHot(best, count, levels)
        }""",
        # indices are 0 to 6, so count is 1 to 7
        {"r": ((7,), (1,)), "y": ((4, 7), (4, 1))},
        ("Range 'r': its size depends on data, at most [7]",),
    ),
    "segments: as many as the rows that name them can be different": Case(
        """g (int64[6] ids, float[6, 3] x) => (float[a, b] y) <int64[1] three = {3}> {
             some, i, inv, n = Unique(ids)
             last = ReduceMax<keepdims = 1>(inv)
             s = Shape(some)
             t = Concat<axis = 0>(s, three)
             y = ConstantOfShape(t)
        }""",
        {"y": ((6, 3), (1, 3))},
    ),
    "a box of an image, clipped: each size has ends of its own": Case(
        """g (float[5, 4] x, float[1, 1, 8, 8] mask) => (float[a, b, c, d] y)
           <int64[1] second = {1}, int64[1] third = {2}, int64[1] row = {0}, float none = {0}, float far = {100},
            int64[1] one = {1}, float[1] half = {0.5}, int64[2] ones = {1, 1}> {
             inside = Clip(x, none, far)
             whole = Cast<to = 7>(inside)
             left = Gather<axis = 1>(whole, second)
             right = Gather<axis = 1>(whole, third)
             width = Sub(right, left)
             grown = Add(width, one)
             mine = Gather<axis = 0>(grown, row)
             flat = Reshape(mine, one)
             w = Max(flat, one)
             p = Gather<axis = 0>(x, row)
             q = Sigmoid(p)
             r = ReduceMax<keepdims = 0>(q)
             scaled = Mul(r, far)
             c = Ceil(scaled)
             h0 = Cast<to = 7>(c)
             h1 = Reshape(h0, one)
             h = Max(h1, one)
             sizes = Concat<axis = 0>(ones, h, w)
             y = Resize(mask, , , sizes)
        }""",
        # right - left + 1 is -99 to 101; sigmoid times 100 is 0 to 100
        {"y": ((1, 1, 100, 101), (1, 1, 1, 1))},
    ),
    "a loop's body reads sizes from outside": Case(
        """g (float[3, 1] x, float[1, 1, 4, 4] mask) => (float[a, b, c, d] y)
           <int64 trips = {3}, bool go = {1}, float low = {2}, float high = {9}, int64[3] ones = {1, 1, 1},
            int64[1] flat = {1}> {
             inside = Clip(x, low, high)
             whole = Cast<to = 7>(inside)
             y = Loop(trips, go) <body = b (int64 i, bool c) => (bool d, float[p, q, r, s] z) {
                 d = Identity(c)
                 mine = Gather<axis = 0>(whole, i)
                 w = Reshape(mine, flat)
                 sizes = Concat<axis = 0>(ones, w)
                 z = Resize(mask, , , sizes)
             }>
        }""",
        {"y": ((3, 1, 1, 1, 9), (3, 1, 1, 1, 2))},
    ),
    "sums: as many as there are, at the most of each": Case(
        """g (bool[4, 6] keep) => (float[a] y) <int64 zero = {0}, int64[1] axis = {0}, int64 one = {1}> {
             n = Cast<to = 7>(keep)
             total = ReduceSum<keepdims = 0>(n)
             r = Range(zero, total, one)
             double = Add(total, total)
             negative = Neg(double)
             more = Sub(one, negative)
             size = Abs(more)
             t = Unsqueeze(size, axis)
             y = ConstantOfShape(t)
        }""",
        {"r": ((24,), (0,)), "y": ((49,), (1,))},  # 1 + 2 x 24
    ),
    "bytes are at most 255, with pads of their own": Case(
        """g (uint8[2] n, float[3, 5] x) => (float[a, b] y) <int64[2] none = {0, 0}> {
             wide = Cast<to = 7>(n)
             pads = Concat<axis = 0>(none, wide)
             y = Pad(x, pads)
             repeats = Cast<to = 7>(n)
             t = Tile(x, repeats)
        }""",
        {"y": ((258, 260), (3, 5)), "t": ((765, 1275), (0, 0))},
    ),
    "one unknown dimension of a reshape holds what the others leave": Case(
        """g (int64[1] k, float[6, 4] x) => (float[a, b] y) <int64[1] three = {3}> {
             t = Concat<axis = 0>(k, three)
             y = Reshape(x, t)
        }""",
        {"y": ((8, 3), (0, 3))},
    ),
    "nothing limits a length: a cap, said": Case(
        """g (int32[2] lengths) => (bool[a, b] mask) <int32 zero = {0}, int32 one = {1}, int64[1] last = {1}> {
             most = ReduceMax<keepdims = 0>(lengths)
             r = Range(zero, most, one)
             each = Unsqueeze(lengths, last)
             mask = Less(r, each)
        }""",
        {"r": ((MOST,), (0,)), "mask": ((2, MOST), (2, 0))},
        (
            "Range 'r': its size is read from the input 'lengths', nothing in the graph keeps it small; "
            "taken to be at most [65536]; --value lengths=... gives it",
        ),
    ),
    "a limit that is none": Case(
        """g (float z) => (float[a] r)
           <float zero = {0}, float far = {1e30}, float less = {1000000}, float one = {1}> {
             x = Clip(z, zero, far)
             r = Range(zero, x, one)
             y = Clip(z, zero, less)
             s = Range(zero, y, one)
        }""",
        {"r": ((MOST,), (0,)), "s": ((1_000_000,), (0,))},
    ),
    "a value that the user gives leaves nothing open": Case(
        """g (int32[2] lengths) => (bool[a, b] mask) <int32 zero = {0}, int32 one = {1}, int64[1] last = {1}> {
             most = ReduceMax<keepdims = 0>(lengths)
             r = Range(zero, most, one)
             each = Unsqueeze(lengths, last)
             mask = Less(r, each)
        }""",
        {"mask": ((2, 30), (2, 30))},
        bindings={"values": {"lengths": np.array([30, 20], np.int32)}},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_ends(case: Case) -> None:
    result, _ = inferred(case.text, **case.bindings)
    for name, (high, low) in case.expected.items():
        value = result.values[name]
        assert value.shape == high, name
        assert value.is_bound is (high != low), name
        assert (value.shape_low if value.is_bound else value.shape) == low, name
    for text in case.says:
        assert any(text in assumption for assumption in result.assumptions), result.assumptions


SPOKEN = """g (int64[1, 40] ids, float[1, 40] durations) => (float[a] y) <float zero = {0}, float one = {1}> {
     frames = Exp(durations)
     whole = Ceil(frames)
     total = ReduceSum<keepdims = 0>(whole)
     r = Range(zero, total, one)
     y = Sin(r)
}"""


def test_what_nothing_limits_costs_as_much_as_the_longest_input() -> None:
    bounds, costed = inferred(SPOKEN)
    assert bounds.values["y"].shape == (MOST,)
    assert bounds.values["y"].is_bound
    assert costed.values["y"].shape == (40,)
    assert any("the cost is that of [40], as long as the longest dimension" in text for text in costed.assumptions)
    assert not any("experts" in text for text in costed.assumptions)
    assert all(work.unsupported is None for work in lower(costed, runtime="eager"))


def test_the_user_says_what_nothing_limits() -> None:
    bounds, costed = inferred(SPOKEN, shapes={"r": (700,)})
    assert bounds.values["y"].shape == costed.values["y"].shape == (700,)
    assert not bounds.values["y"].is_bound
    with pytest.raises(BindingError, match="at most"):
        inferred(SPOKEN, shapes={"r": (MOST + 1,)})


OPERATIONS = {
    "rising": ("y = Relu(x)", -2.0, 3.0, 0, 3),
    "absolute": ("y = Abs(x)", -4.0, 3.0, 0, 4),
    "absolute below zero": ("y = Abs(x)", -4.0, -3.0, 3, 4),
    "negative": ("y = Neg(x)", -4.0, 3.0, 0, 4),
    "product of both signs": ("y = Mul(x, x)", -4.0, 3.0, 0, 16),  # as of two values: -12 to 16
    "quotient": ("k = Clip(x, one, two)  y = Div(x, k)", -4.0, 3.0, 0, 3),
    "difference": ("y = Sub(two, x)", -4.0, 1.0, 1, 6),
    "least": ("y = Min(x, two)", 1.0, 9.0, 1, 2),
    "one or the other": ("c = Less(x, one)  y = Where(c, x, two)", 1.0, 9.0, 1, 9),
    "remainder": ("i = Cast<to = 7>(x)  m = Mod(i, seven)  y = Cast<to = 1>(m)", 1.0, 99.0, 0, 6),
    "square root": ("y = Sqrt(x)", 4.0, 81.0, 2, 9),
}


@pytest.mark.parametrize(("operation", "least", "most", "low", "high"), OPERATIONS.values(), ids=OPERATIONS.keys())
def test_ends_of_operators(operation: str, least: float, most: float, low: int, high: int) -> None:
    """x lies between ``least`` and ``most``, so a range of as many elements as y says has from ``low`` to ``high``."""
    text = f"""g (float z) => (float[a] r)
        <float least = {{{least}}}, float most = {{{most}}}, float zero = {{0}}, float one = {{1}}, float two = {{2}},
         int64 seven = {{7}}> {{
          x = Clip(z, least, most)
          {operation}
          r = Range(zero, y, one)
    }}"""
    result, _ = inferred(text)
    value = result.values["r"]
    assert value.shape == (high,)
    assert value.shape_low == (low,)


def test_long_chains_are_followed_as_far_as_the_budget_goes() -> None:
    steps = "\n".join(f"v{i + 1} = Neg(v{i})" for i in range(3000))
    text = f"""g (float z) => (float[a] r) <float zero = {{0}}, float one = {{1}}> {{
        v0 = Sigmoid(z)
        {steps}
        r = Range(zero, v3000, one)
    }}"""
    bounds, _ = inferred(text)
    assert bounds.values["r"].shape == (MOST,)


PICKED = """g (float[100] scores, float[100, 4] boxes) => (float[a, b] y)
    <float limit = {0.5}, int64[1] axis = {0}, int64[1] last = {1}> {
    mask = Greater(scores, limit)
    n0 = NonZero(mask)
    n1 = NonZero(mask)
    i0 = Squeeze(n0, axis)
    i1 = Squeeze(n1, axis)
    kept = Gather<axis = 0>(scores, i0)
    column = Unsqueeze(kept, last)
    rows = Gather<axis = 0>(boxes, i1)
    y = Mul(column, rows)
}"""


def test_what_one_mask_picks_is_given_once() -> None:
    bounds, _ = inferred(PICKED)
    assert bounds.assumptions[0].endswith("its input has 100 elements; --shape n0=1xN changes it")
    bounds, costed = inferred(PICKED, shapes={"n0": (1, 7)})
    assert bounds.values["y"].shape == costed.values["y"].shape == (7, 4)
    assert not bounds.values["y"].is_bound
    assert not bounds.assumptions
    with pytest.raises(BindingError, match="at most"):
        inferred(PICKED, shapes={"n0": (1, 101)})
