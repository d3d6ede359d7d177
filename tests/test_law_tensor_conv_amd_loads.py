"""Convolutions on matrix cores of AMD as tensors lie: what loads of few elements take, and who waits for them."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest

from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Conv
from neusight_onnx.laws.tensor_conv import implicit_gemm
from neusight_onnx.laws.tensor_conv.columns import columns
from neusight_onnx.laws.tensor_conv.direct import element_us
from neusight_onnx.laws.tensor_conv.estimate import algorithms_us
from neusight_onnx.laws.tensor_conv.miopen_solvers import as_they_lie_us, compiled_us
from neusight_onnx.laws.tensor_conv.tiles import with_tiles
from tensor_conv_cases import AMD_PRIORS, BASE, BF16, FP16, PLAIN

LYING = replace(BASE, channels_last=False)
POINTWISE = replace(LYING, filter=(1, 1))
SQUARE = np.array([[128.0], [128.0], [256.0], [1.0]])


@pytest.mark.parametrize(
    ("kernel", "rows", "columns_"),
    [
        # 3,136 positions are 8 x 392, 14 x 14 are 4 x 49, 7 x 7 are odd; a filter's channels and taps lie together
        pytest.param(POINTWISE, 8, 8, id="forward"),
        pytest.param(replace(POINTWISE, spatial=(14, 14), out=(14, 14)), 4, 8, id="14x14"),
        pytest.param(replace(POINTWISE, spatial=(7, 7), out=(7, 7)), 1, 8, id="7x7"),
        pytest.param(replace(POINTWISE, strides=(2, 2), out=(28, 28)), 1, 8, id="stride"),
        pytest.param(LYING, 1, 8, id="taps"),
        pytest.param(replace(LYING, c=3), 1, 1, id="27-weights-a-filter"),
        # channels of a filter lie 9 taps apart
        pytest.param(replace(LYING, direction="data"), 1, 1, id="input-with-taps"),
        pytest.param(replace(POINTWISE, direction="data", c=12), 8, 4, id="input"),
        pytest.param(replace(LYING, direction="weight"), 8, 1, id="weight-with-taps"),
        pytest.param(replace(POINTWISE, direction="weight"), 8, 8, id="weight"),
        pytest.param(replace(LYING, channels_last=True), 8, 8, id="channels-last"),
        pytest.param(replace(LYING, channels_last=True, direction="data", c=4), 8, 4, id="channels-last-input"),
    ],
)
def test_how_many_elements_a_load_brings(kernel: Conv, rows: int, columns_: int) -> None:
    found = columns((kernel,))
    assert (found["a_together"][0], found["b_together"][0]) == (rows, columns_)


def test_single_loads_take_as_many_clocks_as_the_first_bfloat16_products() -> None:
    """A step of k of a 128 x 128 tile fetches 256 elements, 64 clocks at four addresses each; its products are 32,768
    FLOPs, 64 clocks at an MI100's 512 a clock and compute unit."""
    mi100 = load_gpu("mi100")
    alone = {"fetch_operations": 0.0, "move_operations": 0.0, "step_ns": 0.0}
    kernel = replace(LYING, n=128, c=512, k=512, direction="data", dtype=BF16)
    parts = implicit_gemm.times(
        columns((kernel,)), mi100, {**AMD_PRIORS, **PLAIN, **alone}, SQUARE, address_overhead=1.0
    )
    assert parts["issue"][0] / parts["compute"][0] == pytest.approx(1.0, rel=0.01)


def test_what_lies_beyond_the_product_in_a_tile_is_not_loaded() -> None:
    """Groups of 16 filters: a tile of 32 holds 16 columns, which lie together, and 32 of 3,136 rows, which behind taps
    don't. A step of k loads 2 and 32 times, at four addresses a clock."""
    mi210 = load_gpu("mi210")
    kernel = replace(LYING, n=1, c=512, k=512, groups=32, dtype=BF16)
    tile = np.array([[32.0], [32.0], [128.0], [1.0]])
    with_loads, without = (
        implicit_gemm.times(columns((kernel,)), mi210, {**AMD_PRIORS, **PLAIN}, tile, address_overhead=overhead)
        for overhead in (1.0, 0.0)
    )
    clocks = (with_loads["issue"][0] - without["issue"][0]) * mi210.clock_hz
    tiles_a_unit = ceil(32 * 98 / mi210.sm_count)
    assert clocks / (tiles_a_unit * 16 * 9) == pytest.approx((2 + 32) / 4)


@pytest.mark.parametrize("direction", ["forward", "data"])
def test_compiled_kernels_wait_for_single_loads(direction: Any) -> None:
    """Most the gradient of an input, both of whose operands come singly where a filter has taps."""
    mi100 = load_gpu("mi100")
    kernels = (replace(POINTWISE, n=128, c=512, k=512, dtype=BF16), replace(LYING, n=128, c=512, k=512, dtype=BF16))
    cols = columns([replace(kernel, direction=direction) for kernel in kernels])
    whole = compiled_us(cols, mi100, {**AMD_PRIORS, "address_overhead": 1e-9}, SQUARE)
    plain, taps = compiled_us(cols, mi100, AMD_PRIORS, SQUARE) / whole
    assert plain < 1.02
    assert taps > (1.1 if direction == "data" else 1.02)


@pytest.mark.parametrize(
    ("gpu", "changes", "has"),
    [
        pytest.param("mi100", {}, True, id="float16"),
        pytest.param("mi100", {"dtype": BF16}, False, id="bfloat16"),
        pytest.param("mi100", {"groups": 2}, False, id="groups"),
        pytest.param("mi100", {"direction": "weight"}, False, id="weight"),
        pytest.param("mi210", {}, False, id="cdna2"),
    ],
)
def test_assembled_kernels_of_cdna_alone_read_tensors_as_they_lie(gpu: str, changes: dict[str, Any], has: bool) -> None:
    """16 channels over 1x1: transposes would take as long again, and compiled kernels more beside the product."""
    spec = load_gpu(gpu)
    constants = {**AMD_PRIORS, "compiled_overhead": 4.0}
    kernel = replace(POINTWISE, n=256, c=256, k=64, dtype=FP16)
    cols, tile, images = with_tiles(columns((replace(kernel, **changes),)), spec, constants)
    product = algorithms_us(cols, spec, constants, tile, images)[0][0]
    lying = as_they_lie_us(cols, spec, constants, tile)
    assert bool(product[0] == lying[0]) is has


@pytest.mark.parametrize("images", [1, 2])
def test_a_direct_kernels_threads_take_channels_one_after_the_other(images: int) -> None:
    """1x1 gradients of 7x7 inputs over 128 channels in bfloat16 on an MI100, which no product takes: 128 x 500 ns are
    64 us; 64-71 us are measured for one image and for two."""
    kernel = replace(POINTWISE, n=images, c=1248, k=128, spatial=(7, 7), out=(7, 7), direction="data", dtype=BF16)
    assert element_us(columns((kernel,)), load_gpu("mi100"), AMD_PRIORS)[0] == pytest.approx(68, rel=0.08)


def test_a_filter_over_one_axis_is_one_row() -> None:
    one_axis = {"spatial": (49,), "out": (49,), "strides": (1,), "dilations": (1,), "direction": "data", "dtype": BF16}
    kernels = [replace(POINTWISE, n=1, c=128, k=128, filter=(taps,), **one_axis) for taps in (1, 3)]
    one, three = element_us(columns(kernels), load_gpu("mi100"), AMD_PRIORS)
    assert three < 1.1 * one
