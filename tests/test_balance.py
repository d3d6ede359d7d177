"""Mixtures of experts without a capacity: bounds hold any routing, the cost takes an even one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphs import split, value_info
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import InferredGraph, Model
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import at_expected_sizes, bind_and_infer
from neusight_onnx.inspection import inspect_model
from neusight_onnx.kernels import Gemm
from neusight_onnx.lowering import lower

TOKENS, EXPERTS, CHOSEN = 12, 4, 2
NUMBERS: dict[str, object] = {
    "zero": np.array(0),
    "one": np.array(1),
    "two": np.array([2]),
    "depth": np.array(EXPERTS),
    "levels": np.array([0, 1]),
    "all": np.arange(EXPERTS),
    "from1": np.array([1]),
    "to2": np.array([2]),
    "flat": np.array([-1]),
    "wide": np.zeros((2, 24), np.int64),
    "zeros": np.zeros(EXPERTS, np.int64),
    "ones": np.ones(TOKENS * CHOSEN, np.int64),
    "all_rows": np.array([TOKENS * CHOSEN]),
    "four": np.array([4]),
    "zeros16": np.zeros(16, np.int64),
    "ones4": np.ones(4, np.int64),
}
# p (12, 4): the router's probabilities
MIXTRAL = """
    v, choice = TopK(p, two)
    hot = OneHot<axis=-1>(choice, depth, levels)
    mask = Transpose<perm=[2, 1, 0]>(hot)
    slice = Gather<axis=0>(mask, one)
    places = NonZero(slice)
"""
SLICED = """
    v, choice = TopK(p, two)
    hot = OneHot<axis=-1>(choice, depth, levels)
    mask = Transpose<perm=[2, 1, 0]>(hot)
    slice = Slice(mask, from1, to2, zeroaxis)
    row = Squeeze(slice, zeroaxis)
    places = NonZero(row)
"""
COMPARED = """
    v, choice = TopK(p, two)
    mask = Equal(choice, one)
    places = NonZero(mask)
"""
SWITCH = """
    choice = ArgMax<axis=-1, keepdims=1>(p)
    hot = Equal(choice, all)
    slice = Gather<axis=1>(hot, zero)
    row = Reshape(slice, flat)
    places = NonZero(row)
"""
GROUPED = """
    v, choice = TopK(p, two)
    chosen = Reshape(choice, flat)
    sorted, order = TopK<largest=0>(chosen, all_rows)
    counts = ScatterElements<reduction="add">(zeros, sorted, ones)
    ends = CumSum(counts, zero)
    end0, end1, end2, end3 = Split<num_outputs=4>(ends)
    s0 = Squeeze(end0)
    s1 = Squeeze(end1)
    s2 = Squeeze(end2)
    s3 = Squeeze(end3)
"""
LEVELS = """
    rounded = Floor(q)
    level = Cast<to=7>(rounded)
    first = Constant<value_int=0>()
    none = Equal(level, first)
    n0 = NonZero(none)
    single = Equal(two, level)
    n2 = NonZero(single)
    second = Constant<value_int=1>()
    hot = Equal(level, second)
    as_int = Cast<to=6>(hot)
    places = NonZero(as_int)
"""
MASKED = """
    v, choice = TopK(p, two)
    hot = OneHot<axis=-1>(choice, depth, levels)
    kept = Mul(hot, attended)
    slice = Gather<axis=2>(kept, one)
    places = NonZero(slice)
"""


def model(nodes: str) -> Model:
    listed = split(nodes)
    constants = {**NUMBERS, "zeroaxis": np.array([0])}
    graph = helper.make_graph(
        listed,
        "router",
        [
            value_info("p", (TOKENS, EXPERTS), TensorProto.FLOAT),
            value_info("p2", (2, 16), TensorProto.FLOAT),
            value_info("q", (20,), TensorProto.FLOAT),
            value_info("x", (TOKENS, 16), TensorProto.FLOAT),
            value_info("attended", (TOKENS, CHOSEN, EXPERTS), TensorProto.INT64),
            value_info("w", (16, 32), TensorProto.FLOAT),
        ],
        [value_info(listed[-1].output[0], None, TensorProto.FLOAT)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return read_model_bytes(made.SerializeToString())


def both(nodes: str, bindings: Bindings | None = None) -> tuple[InferredGraph, InferredGraph]:
    """The graph at its bounds, and at expected sizes."""
    loaded, given = model(nodes), bindings or Bindings()
    bound, inferred = bind_and_infer(loaded, given)
    return inferred, at_expected_sizes(loaded, given, bound, inferred)


@pytest.mark.parametrize(
    ("nodes", "most", "expected"),
    [
        # 12 tokens choose 2 of 4: 24 choices, 6 an expert; a slice has 24 elements
        pytest.param(MIXTRAL, (2, 24), (2, 6), id="one-hot, transposed, gathered"),
        pytest.param(SLICED, (2, 24), (2, 6), id="one-hot, transposed, sliced"),
        pytest.param(COMPARED, (2, 24), (2, 6), id="choices compared with an expert's number"),
        pytest.param(SWITCH, (1, 12), (1, 3), id="one choice compared with all numbers"),
        pytest.param(MASKED, (2, 24), (2, 6), id="masked one-hot"),
    ],
)
def test_a_router_without_a_capacity(nodes: str, most: tuple[int, ...], expected: tuple[int, ...]) -> None:
    bounds, even = both(nodes)
    assert (bounds.values["places"].shape, bounds.values["places"].is_bound) == (most, True)
    assert (even.values["places"].shape, even.values["places"].is_bound) == (expected, False)
    assert f"'places' has {expected[1]} columns, not the {most[1]} that it can have" in even.assumptions[-1]
    assert not any("places" in text and "at most" in text for text in even.assumptions)


def test_levels_share_what_is_compared_with_each_of_them() -> None:
    """20 boxes on one of three levels each: 7 a level, however many one may have."""
    bounds, even = both(LEVELS)
    for name in ("n0", "n2", "places"):
        assert (bounds.values[name].shape, bounds.values[name].is_bound) == ((1, 20), True)
        assert (even.values[name].shape, even.values[name].is_bound) == ((1, 7), False)
    assert "boxes over levels of a pyramid, at 3 places: 'n0' has 7 columns, not the 20" in even.assumptions[-1]


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param("level = Cast<to=7>(q)\nmask = Equal(level, one)\nplaces = NonZero(mask)", id="one number"),
        pytest.param(
            "level = Cast<to=7>(q)\nmask = Equal(level, one)\nplaces = NonZero(mask)\n"
            "other = Equal(level, zero)\nleft = Where(other, q, q)",
            id="another's places aren't taken",
        ),
        pytest.param("places = NonZero(p)", id="any tensor"),
        pytest.param("slice = Gather<axis=0>(p, one)\nplaces = NonZero(slice)", id="a slice of any tensor"),
        pytest.param("mask = Equal(x, x)\nplaces = NonZero(mask)", id="any comparison"),
        pytest.param(
            "v, choice = TopK(p, two)\nhot = OneHot<axis=-1>(choice, depth, levels)\n"
            "slice = Gather<axis=0>(hot, one)\nplaces = NonZero(slice)",
            id="a token's slice of a one-hot",
        ),
        pytest.param("v, choice = TopK(p, two)\nmask = Equal(v, v)\nplaces = NonZero(mask)", id="values, not indices"),
    ],
)
def test_what_is_no_router_stays_at_its_bound(nodes: str) -> None:
    bounds, even = both(nodes)
    assert even is bounds
    assert bounds.values["places"].is_bound


@pytest.mark.parametrize(
    ("start", "limit"), [("zero", "s0"), ("s0", "s1"), ("s2", "s3")], ids=["first", "second", "last"]
)
def test_rows_between_running_counts_are_an_experts(start: str, limit: str) -> None:
    """torch's grouped products: 24 choices of 12 tokens, sorted by expert; 6 rows each, 24 at most."""
    bounds, even = both(f"{GROUPED}\n    rows = Range({start}, {limit}, one)")
    assert (bounds.values["rows"].shape, bounds.values["rows"].is_bound) == ((24,), True)
    assert (even.values["rows"].shape, even.values["rows"].is_bound) == ((6,), False)
    assert "'rows' has 6 elements, not the 24 that it can have" in even.assumptions[-1]


@pytest.mark.parametrize(
    ("start", "limit"), [("s0", "s2"), ("s1", "s0"), ("one", "s0"), ("zero", "s1")], ids=["two", "back", "one", "far"]
)
def test_what_lies_between_other_counts_is_no_group(start: str, limit: str) -> None:
    bounds, _ = both(f"{GROUPED}\n    rows = Range({start}, {limit}, one)")
    assert bounds.expected.get("rows") != (6,)


def test_few_tokens_leave_experts_without_rows() -> None:
    """2 tokens choose 2 of 16: 16 (1 - (14 / 16)^2) = 3.75 experts get the 4 rows."""
    wide = GROUPED.split("    s0")[0].replace("(p, two)", "(p2, two)").replace("num_outputs=4", "num_outputs=16")
    ends = ", ".join(f"end{i}" for i in range(16))
    wide = wide.replace("end0, end1, end2, end3 =", f"{ends} =").replace("(zeros,", "(zeros16,")
    wide = wide.replace("ones)", "ones4)").replace("(chosen, all_rows)", "(chosen, four)")
    lines = [f"    s{i} = Squeeze(end{i})" for i in range(16)]
    lines += [f"    rows{i} = Range(s{i - 1}, s{i}, one)" for i in range(1, 16)]
    even = both("\n".join([wide, *lines]))[1]
    sizes = [even.values[f"rows{i}"].shape for i in range(1, 16)]
    assert sizes == [(1,)] * 3 + [(0,)] * 12


def test_the_users_size_counts() -> None:
    bounds, even = both(MIXTRAL, Bindings(shapes={"places": (2, 20)}))
    assert even is bounds
    assert bounds.values["places"].shape == (2, 20)


EXPERT = f"""{MIXTRAL}
    tokens = Gather<axis=0>(places, one)
    rows = Gather<axis=0>(x, tokens)
    y = MatMul(rows, w)
"""


def test_the_cost_is_that_of_an_even_share() -> None:
    """6 rows of 16 times (16, 32), not 24 rows; the values that inspect shows keep their bounds."""
    _, even = both(EXPERT)
    (gemm,) = [kernel for work in lower(even, runtime="eager") for kernel in work.kernels if isinstance(kernel, Gemm)]
    assert (gemm.m, gemm.n, gemm.k) == (6, 32, 16)
    shown = inspect_model(model(EXPERT))
    assert shown.macs == 6 * 32 * 16
    assert (shown.values["y"].shape, shown.values["y"].is_bound) == ((24, 32), True)


def test_sizes_that_contradict_at_an_even_share_stay_at_their_bounds() -> None:
    """places fit 24 columns of a constant and not 6: at the bound the sum is possible, at the share it isn't."""
    nodes = f"{MIXTRAL}\n    sum = Add(places, wide)"
    loaded = model(nodes)
    bound, inferred = bind_and_infer(loaded, Bindings())
    assert at_expected_sizes(loaded, Bindings(), bound, inferred) is inferred


def test_a_real_mixture_of_experts() -> None:
    """Four experts, two of them for each of 128 tokens: 64 rows each."""
    path = Path(__file__).parents[2] / "shared" / "models" / "torch_ts" / "mixtral_mini_moe.onnx"
    if not path.exists():
        pytest.skip("the folder of real models is not here")
    shown = inspect_model(path)
    assert any("64 columns, not the 256" in text for text in shown.assumptions)
