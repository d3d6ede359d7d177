"""Sizes that are read from predicted counts: those of one length regulator agree, and one option changes them all."""

from __future__ import annotations

from time import perf_counter
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


def inferred(text: str, **bindings: Any) -> tuple[InferredGraph, InferredGraph]:
    """With bounds, and as costs are counted."""
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')
    model = read_model_bytes(proto.SerializeToString())
    given = Bindings(**bindings)
    bound, result = bind_and_infer(model, given)
    return result, at_expected_sizes(model, given, bound, result)


def said(graph: InferredGraph) -> list[str]:
    return [text for text in graph.assumptions if "keeps it small" in text]


def regulator(tokens: int, longest: int = 1) -> str:
    """(1, tokens, 4) -> each token repeated by its duration, in a tensor of as many frames as they add up to."""
    parts = range(tokens)
    repeats = "\n".join(
        f"""row{i} = Unsqueeze(token{i}, first)
            target{i} = Concat<axis = 0>(one, duration{i}, four)
            wide{i} = Expand(row{i}, target{i})
            frames{i} = Reshape(wide{i}, flat)"""
        for i in parts
    )
    return f"""g (float[{tokens}, 4] x, float[1, {tokens}] d, float[{longest}] other) => (float[a, b, c] y)
        <int64[1] first = {{0}}, int64[1] one = {{1}}, int64[1] last = {{1}}, int64[1] four = {{4}},
         int64[2] flat = {{-1, 4}}, float zero = {{0}}, float unit = {{1}}> {{
          e = Exp(d)
          less = Sub(e, unit)
          round = Round(less)
          kept = Clip(round, zero)
          whole = Cast<to = 7>(kept)
          sum = ReduceSum(whole, last)
          total = Reshape(sum, one)
          room = Concat<axis = 0>(total, four)
          y0 = ConstantOfShape(room)
          line = Squeeze(whole, first)
          {", ".join(f"duration{i}" for i in parts)} = Split<axis = 0, num_outputs = {tokens}>(line)
          {", ".join(f"part{i}" for i in parts)} = Split<axis = 0, num_outputs = {tokens}>(x)
          {" ".join(f"token{i} = Identity(part{i})" for i in parts)}
          {repeats}
          all = Concat<axis = 0>({", ".join(f"frames{i}" for i in parts)})
          y = Add(y0, all)
    }}"""


def test_repeats_add_up_to_the_frames() -> None:
    bounds, costed = inferred(regulator(5))
    assert bounds.values["y0"].shape == (MOST, 4)
    # 5 durations for the 5 of the longest dimension
    assert costed.values["wide0"].shape == (1, 1, 4)
    assert costed.values["y0"].shape == costed.values["all"].shape == costed.values["y"].shape == (5, 4)
    assert said(costed) == [
        "ConstantOfShape 'y0': its size depends on data and nothing in the graph keeps it small; the cost is that of "
        "[5, 4], as long as the longest dimension of an input, with 1 in each element of 'round'; --value round=N "
        "changes it, with all sizes that are read from there"
    ]


def test_frames_are_shared_out_where_an_input_is_longer() -> None:
    _, costed = inferred(regulator(5, longest=12))
    assert [costed.values[f"wide{i}"].shape for i in range(5)] == [(1, size, 4) for size in (3, 3, 2, 2, 2)]
    assert costed.values["y"].shape == (12, 4)


@pytest.mark.parametrize(
    ("told", "sizes"),
    [(np.array(7), (7,) * 5), (np.array([[1, 0, 4, 2, 2]]), (1, 0, 4, 2, 2)), (np.array(2.0), (2,) * 5)],
    ids=["one for all", "each", "a float"],
)
def test_the_user_gives_the_counts(told: np.ndarray, sizes: tuple[int, ...]) -> None:
    for graph in inferred(regulator(5), values={"round": told}):
        assert [graph.values[f"wide{i}"].shape for i in range(5)] == [(1, size, 4) for size in sizes]
        assert graph.values["y0"].shape == (int(np.broadcast_to(told, (1, 5)).sum()), 4)
        assert not graph.values["y0"].is_bound
        assert not said(graph)


@pytest.mark.parametrize(
    ("name", "told", "message"),
    [
        ("round", np.ones((1, 4)), "has the shape 1x4, the value has 1x5"),
        ("round", np.array(-1), "numbers from 0"),
        ("round", np.array(np.nan), "numbers from 0"),
        ("y", np.array(3), "no size is read from it"),
        ("wrong", np.array(3), "no input of this name"),
    ],
    ids=["shape", "negative", "not a number", "no size", "no value"],
)
def test_counts_that_can_not_be_taken(name: str, told: np.ndarray, message: str) -> None:
    with pytest.raises(BindingError, match=message):
        inferred(regulator(5), values={name: told})


def test_repeats_in_a_loop_over_a_sequence() -> None:
    """As PyTorch exports repeat_interleave where the number of tokens is open."""
    text = """g (float[6, 4] x, float[6] d) => (float[a, b] y)
        <int64 six = {6}, bool go = {1}, int64[1] first = {0}, int64[1] four = {4}, int64[1] one = {1},
         int64[6] ones = {1, 1, 1, 1, 1, 1}, int64[2] flat = {-1, 4}> {
          frames = Ceil(d)
          whole = Cast<to = 7>(frames)
          total = ReduceSum<keepdims = 1>(whole)
          room = Concat<axis = 0>(total, four)
          y0 = ConstantOfShape(room)
          counts = SplitToSequence<axis = 0>(whole, ones)
          rows = SplitToSequence<axis = 0>(x, ones)
          none = SequenceEmpty<dtype = 1>()
          list = Loop(six, go, none) <body = b (int64 i, bool c, seq(float) before) => (bool d0, seq(float) after) {
              d0 = Identity(c)
              count = SequenceAt(counts, i)
              row = SequenceAt(rows, i)
              target = Concat<axis = 0>(count, four)
              wide = Expand(row, target)
              after = SequenceInsert(before, wide)
          }>
          all = ConcatFromSequence<axis = 0>(list)
          y = Add(y0, all)
    }"""
    _, costed = inferred(text)
    assert costed.values["all"].shape == costed.values["y"].shape == (6, 4)
    assert len(said(costed)) == 1
    _, costed = inferred(text, values={"frames": np.array([1, 2, 3, 4, 5, 6])})
    assert costed.values["all"].shape == costed.values["y"].shape == (21, 4)


def test_repeats_that_a_loop_puts_together_are_shares() -> None:
    """repeat_interleave of predicted counts, whose sum is read from its result alone (Kokoro's alignment)."""
    text = """g (float[6] x, float[1, 6] d) => (float[a] y)
        <int64 none0 = {0}, int64 six = {6}, bool go = {1}, int64[6] ones = {1, 1, 1, 1, 1, 1}> {
          frames = Round(d)
          lines = Cast<to = 7>(frames)
          whole = Gather<axis = 0>(lines, none0)
          counts = SplitToSequence<axis = 0>(whole, ones)
          rows = SplitToSequence<axis = 0>(x, ones)
          none = SequenceEmpty<dtype = 1>()
          list = Loop(six, go, none) <body = b (int64 i, bool c, seq(float) before) => (bool d0, seq(float) after) {
              d0 = Identity(c)
              count = SequenceAt(counts, i)
              row = SequenceAt(rows, i)
              wide = Expand(row, count)
              after = SequenceInsert(before, wide)
          }>
          y = ConcatFromSequence<axis = 0>(list)
    }"""
    _, costed = inferred(text)
    assert costed.values["y"].shape == (6,)
    limited = text.replace("Round(d)", "Round(scaled)").replace(
        "frames =", "p = Sigmoid(d)  scaled = Mul(p, nine)  frames ="
    )
    limited = limited.replace("int64 six", "float nine = {9}, int64 six")
    _, costed = inferred(limited)
    assert costed.values["y"].shape == (54,)  # 9 each, as a limit that is known where sizes are read is counted
    assert "; the cost is that of [9], with 9, the most that it can be, in each element of 'frames'; " in (
        " ".join(costed.assumptions)
    )


def test_what_is_computed_from_the_sum_follows_it() -> None:
    """8 samples a frame, in a batch of lines of which the longest counts; 2 x 3 durations of 3, 2, 2 for 7."""
    text = """g (float[2, 3] d, float[7] other) => (float[a] y)
        <int64 none = {0}, int64 step = {1}, int64 eight = {8}, int64[1] last = {1}> {
          frames = Ceil(d)
          whole = Cast<to = 7>(frames)
          sums = ReduceSum<keepdims = 0>(whole, last)
          most = ReduceMax<keepdims = 0>(sums)
          samples = Mul(most, eight)
          y = Range(none, samples, step)
    }"""
    _, costed = inferred(text)
    assert costed.values["y"].shape == (56,)
    assert "the cost is that of [56], with 2 to 3 in each element of 'frames'" in said(costed)[0]


def test_counts_that_nothing_adds_up_are_lengths() -> None:
    text = """g (float[3] lengths, float[3, 40] x) => (bool[a, b] mask)
        <float none = {0}, float step = {1}, int64[1] last = {1}> {
          whole = Ceil(lengths)
          most = ReduceMax<keepdims = 0>(whole)
          r = Range(none, most, step)
          each = Unsqueeze(whole, last)
          mask = Less(r, each)
    }"""
    _, costed = inferred(text)
    assert costed.values["mask"].shape == (3, 40)


def test_likely_sizes_that_contradict_each_other_are_the_most() -> None:
    """Two lengths that are predicted apart can't be told to agree; each is at most as long as an input, not 65,536."""
    text = """g (float[3, 20] x, float[2] d) => (float[a] y) <float none = {0}, float step = {1}, int64[1] axis = {0}> {
          a = ReduceMax<keepdims = 0>(x)
          p = Ceil(a)
          r = Range(none, p, step)
          b = ReduceMin<keepdims = 0>(x)
          q = Ceil(b)
          twice = Add(q, q)
          s = Range(none, twice, step)
          y = Add(r, s)
    }"""
    _, costed = inferred(text)
    value = costed.values["y"]
    assert value.is_bound
    assert value.shape == (40,)


def test_long_ways_back_take_bounded_time() -> None:
    """2,000 sizes, each a step further from the prediction: what was evaluated once is not evaluated again."""
    steps = "\n".join(
        f"v{i + 1} = Add(v{i}, one)  t{i} = Unsqueeze(v{i + 1}, first)  y{i} = Expand(x, t{i})" for i in range(2000)
    )
    text = f"""g (float z, float[1] x) => (float[a] y0) <int64 one = {{1}}, int64[1] first = {{0}}> {{
        r = Round(z)
        v0 = Cast<to = 7>(r)
        {steps}
    }}"""
    begin = perf_counter()
    _, costed = inferred(text)
    assert perf_counter() - begin < 20
    assert costed.values["y1999"].shape == (2001,)
