"""Sizes that data decide and that the user tells: they hold from the node that decides them on."""

from __future__ import annotations

import pytest
from onnx import parser

from neusight_onnx.errors import BindingError
from neusight_onnx.graph.bindings import Bindings, make_bindings
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.kernels import Sort
from neusight_onnx.lowering import lower
from neusight_onnx.preparation import ShapedModel, infer_shapes

HEADER = '<ir_version: 9, opset_import: ["" : 18]>\n'


def detector(threshold: str = "0.25") -> Model:
    """3 classes of 50 boxes, of which at most 5 a class are kept: 15."""
    text = f"""g (float[1, 50, 4] boxes, float[1, 3, 50] scores) => (float[1, num_dets, 4] dets)
      <int64 most = {{5}}, float iou = {{0.5}}, float threshold = {{{threshold}}}, int64 two = {{2}}> {{
        selected = NonMaxSuppression(boxes, scores, most, iou, threshold)
        index = Gather<axis = 1>(selected, two)
        picked = Gather<axis = 1>(boxes, index)
        dets = Exp(picked)
    }}"""
    return read_model_bytes(parser.parse_model(HEADER + text).SerializeToString())


def shaped(model: Model, **given: object) -> ShapedModel:
    return infer_shapes(model, make_bindings(**given))  # type: ignore[arg-type]  # rows of the table below


TOLD = [
    ("by the output's symbol", {"dims": {"num_dets": 7}}),
    ("by the shape of what counts", {"shapes": {"selected": (7, 3)}}),
    ("by the shape of the output", {"shapes": {"dets": (1, 7, 4)}}),
    ("by the shape of a value between", {"shapes": {"picked": (1, 7, 4)}}),
]


@pytest.mark.parametrize("given", [row[1] for row in TOLD], ids=[row[0] for row in TOLD])
def test_a_told_size_holds_from_the_node_that_decides_it(given: dict[str, object]) -> None:
    values = shaped(detector(), **given).expected.values
    found = {name: values[name].shape for name in ("selected", "index", "picked", "dets")}
    assert found == {"selected": (7, 3), "index": (7,), "picked": (1, 7, 4), "dets": (1, 7, 4)}
    assert not any(values[name].is_bound for name in found)


def test_the_nearest_node_that_gives_the_size_is_taken() -> None:
    """The mask's elements are counted before, and decide nothing of what comes out."""
    text = """g (float[20] x, float[30] z) => (int64[1, n] y) {
        first = NonZero(x)  some = Cast<to = 1>(first)  sum = ReduceSum<keepdims = 0>(some)
        more = Add(z, sum)  y = NonZero(more)
    }"""
    model = read_model_bytes(parser.parse_model(HEADER + text).SerializeToString())
    values = shaped(model, dims={"n": 4}).expected.values
    assert (values["y"].shape, values["first"].shape) == ((1, 4), (1, 20))


TOP = """g (float[4, 50] x, int64[1] k) => (float[4, kk] best, int64[4, kk] places) { best, places = TopK(x, k) }"""
"""k is an input, so that nothing in the graph says it."""


@pytest.mark.parametrize(
    "given",
    [{"dims": {"kk": 3}}, {"shapes": {"best": (4, 3)}}, {"shapes": {"places": (4, 3)}}],
    ids=["symbol", "values", "places"],
)
def test_a_selection_whose_count_is_an_input_is_sized_by_either_output(given: dict[str, object]) -> None:
    graph = shaped(read_model_bytes(parser.parse_model(HEADER + TOP).SerializeToString()), **given).expected
    assert {graph.values[name].shape for name in ("best", "places")} == {(4, 3)}
    (kernel,) = (kernel for work in lower(graph, runtime="eager") for kernel in work.kernels)
    assert isinstance(kernel, Sort)
    assert (kernel.kept, kernel.output_bytes) == (3, 4 * 3 * (4 + 8))


def test_a_selection_of_as_many_as_were_counted_is_sized_by_what_counts() -> None:
    text = """g (float[50] x, float[20] z) => (float[kk] best) <int64 one = {1}, int64[1] ones = {1}> {
        found = NonZero(z)  sizes = Shape(found)  k = Gather(sizes, one)  flat = Reshape(k, ones)
        best, places = TopK(x, flat)
    }"""
    model = read_model_bytes(parser.parse_model(HEADER + text).SerializeToString())
    values = shaped(model, dims={"kk": 3}).expected.values
    assert values["found"].shape == (1, 3)
    assert {values[name].shape for name in ("best", "places")} == {(3,)}


def test_more_than_there_can_be_is_refused() -> None:
    with pytest.raises(BindingError, match="15 at most in 'dets'; give no more"):
        shaped(detector(), dims={"num_dets": 16})


CANDIDATES = [
    ("not told", "0.25", {}, None),
    ("told: ten for each box kept", "0.25", {"num_dets": 7}, 70),
    ("no more than there are", "0.25", {"num_dets": 15}, 150),
    ("no threshold drops any", "0.0", {"num_dets": 7}, None),
]


@pytest.mark.parametrize(
    ("threshold", "dims", "expected"), [row[1:] for row in CANDIDATES], ids=[row[0] for row in CANDIDATES]
)
def test_candidates_of_a_suppression(threshold: str, dims: dict[str, int], expected: int | None) -> None:
    graph = infer_shapes(detector(threshold), Bindings(dims=dims)).expected
    (kernel,) = (
        kernel for work in lower(graph, runtime="tensorrt") for kernel in work.kernels if isinstance(kernel, Sort)
    )
    assert (kernel.rows, kernel.cols, kernel.candidates) == (3, 50, expected)
