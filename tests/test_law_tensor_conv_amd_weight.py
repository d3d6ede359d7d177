"""Gradients of weights on matrix cores of AMD: what stands beside their products, and what splits them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from neusight_onnx.data_files import data_folder
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Conv
from neusight_onnx.laws.tensor_conv.columns import columns
from neusight_onnx.laws.tensor_conv.direct import element_us
from neusight_onnx.laws.tensor_conv.image_products import image_constants, images_us
from neusight_onnx.laws.tensor_conv.miopen_solvers import assembled_times, hip_times, mlir_times
from neusight_onnx.laws.tensor_conv.solver_tiles import HIP_TILE
from neusight_onnx.laws.tensor_conv.tiles import TILE, with_tiles
from neusight_onnx.predictor import load_predictors, predict
from tensor_conv_cases import BASE, BF16, FP16, WEIGHT_AMD_PRIORS

KERNEL = replace(BASE, direction="weight", channels_last=False)
POINTWISE = replace(KERNEL, filter=(1, 1))
UNSPLIT = np.array([[64.0], [64.0], [256.0], [1.0]])
SPLIT = np.array([[64.0], [64.0], [256.0], [8.0]])


@pytest.mark.parametrize("images", [1, 2, 16])
def test_compiled_kernels_split_the_reduction_between_images(images: int) -> None:
    """64 x 128 weights of 1x1 are a tile or two: assembled kernels split 3,136 positions as far as units are idle."""
    kernel = replace(POINTWISE, n=images, dtype=BF16)
    cols, _, _ = with_tiles(columns((kernel,)), load_gpu("mi100"), WEIGHT_AMD_PRIORS)
    assert cols[HIP_TILE[3]][0] <= images
    assert cols[TILE[3]][0] > 16


def _launch_us(kernel: Conv, gpu: str, times: Any, tile: Any) -> float:
    parts = times(columns((kernel,)), load_gpu(gpu), WEIGHT_AMD_PRIORS, tile)
    return float(parts["launch"][0])


@pytest.mark.parametrize(
    ("changes", "kernels", "bytes_"),
    [
        pytest.param({"dtype": FP16}, 1, 2, id="pairs of halves are added where they lie"),
        pytest.param({"dtype": FP16, "c": 3}, 2, 10, id="single halves in FP32"),
        pytest.param({"dtype": BF16}, 2, 10, id="bfloat16 in FP32"),
    ],
)
@pytest.mark.parametrize("tile", [UNSPLIT, SPLIT], ids=["unsplit", "split"])
def test_sums_of_assembled_gradients(changes: dict[str, Any], kernels: int, bytes_: int, tile: Any) -> None:
    """A launch each that zeroes and converts, split or not: in FP32 4 bytes are written, 4 read and 2 written."""
    kernel = replace(KERNEL, k=4096, **changes)
    gpu = load_gpu("mi210")
    alone = sum(WEIGHT_AMD_PRIORS[name] for name in ("floor_us", "zero_us", "cast_us")[: 1 + kernels])
    moved_us = _launch_us(kernel, "mi210", assembled_times, tile) - alone
    peak_us = 1e6 * bytes_ * kernel.c * kernel.k * 9 / gpu.memory_bytes_per_s
    assert 1.0 < moved_us / peak_us < 1.4


@pytest.mark.parametrize(
    ("times", "tile", "sums"),
    [
        pytest.param(mlir_times, UNSPLIT, False, id="MLIR writes its result"),
        pytest.param(mlir_times, SPLIT, True, id="split"),
        pytest.param(hip_times, UNSPLIT, True, id="HIP adds in FP32"),
    ],
)
def test_sums_of_compiled_gradients(times: Any, tile: Any, sums: bool) -> None:
    beside = _launch_us(KERNEL, "mi100", times, tile) - WEIGHT_AMD_PRIORS["floor_us"]
    assert (beside > WEIGHT_AMD_PRIORS["zero_us"] + WEIGHT_AMD_PRIORS["cast_us"]) is sums
    assert (beside == pytest.approx(0.0)) is not sums


def test_a_conversion_is_of_the_assembled_and_compiled_kernels_alone() -> None:
    """It takes longer than zeros, with fitted constants, too; a product an image adds to what the one before left."""
    mi210 = load_gpu("mi210")
    fitted = load_predictors(data_folder("predictors"))["conv", "matrix/weight+amd"].constants
    assert fitted["cast_us"] > 1.5 * fitted["zero_us"]
    image = replace(POINTWISE, n=1, c=512, k=16, dtype=BF16)
    cols, tile, image_tile = with_tiles(columns((image,)), mi210, WEIGHT_AMD_PRIORS)
    slow = {**WEIGHT_AMD_PRIORS, "zero_us": 99.0, "cast_us": 99.0}
    before, after = (images_us(cols, mi210, c, image_tile)[0] for c in (WEIGHT_AMD_PRIORS, slow))
    assert before == pytest.approx(after)
    before, after = (assembled_times(cols, mi210, c, tile)["launch"][0] for c in (WEIGHT_AMD_PRIORS, slow))
    assert after - before == pytest.approx(198.0 - WEIGHT_AMD_PRIORS["zero_us"] - WEIGHT_AMD_PRIORS["cast_us"])


@pytest.mark.parametrize("gpu", ["mi100", "mi210", "mi300x"])
def test_channels_that_fill_no_load_come_one_by_one(gpu: str) -> None:
    """Address clocks a channel of 7x7 filters: a load of an assembled kernel brings eight, or one of three."""
    spec = load_gpu(gpu)
    unaddressed = {**WEIGHT_AMD_PRIORS, "address_overhead": 1e-9}

    def of_a_channel(c: int) -> float:
        stem = replace(KERNEL, n=64, c=c, k=64, filter=(7, 7), spatial=(224, 224), out=(112, 112), strides=(2, 2))
        cols, tile, _ = with_tiles(columns((stem,)), spec, WEIGHT_AMD_PRIORS)
        more, less = (assembled_times(cols, spec, of, tile)["issue"][0] for of in (WEIGHT_AMD_PRIORS, unaddressed))
        return float(more - less) / c

    assert of_a_channel(3) > 4.0 * of_a_channel(8)
    assert of_a_channel(4) < 2.5 * of_a_channel(8)
    assert of_a_channel(64) > 0.5 * of_a_channel(8)


@pytest.mark.parametrize(
    ("kernel", "measured_us"),
    [
        pytest.param(replace(POINTWISE, n=16, c=1216, k=128, spatial=(7, 7), out=(7, 7)), 33.6, id="multiply-adds"),
        pytest.param(replace(POINTWISE, n=32, c=64, k=16, spatial=(55, 55), out=(55, 55)), 101.9, id="positions"),
        pytest.param(replace(POINTWISE, n=32, c=256, k=48, spatial=(35, 35), out=(35, 35)), 110.6, id="both"),
    ],
)
def test_a_kernel_on_vector_lanes_takes_pointwise_gradients(kernel: Conv, measured_us: float) -> None:
    """Of ``ConvAsmBwdWrW1x1`` on an MI100, in bfloat16."""
    found = element_us(columns((replace(kernel, dtype=BF16),)), load_gpu("mi100"), WEIGHT_AMD_PRIORS)[0]
    assert found == pytest.approx(measured_us, rel=0.25)


@pytest.mark.parametrize(
    ("gpu", "changes", "has"),
    [
        pytest.param("mi100", {}, True, id="float16"),
        pytest.param("mi210", {"dtype": BF16}, True, id="bfloat16 of CDNA2"),
        pytest.param("mi210", {}, False, id="float16 of CDNA2"),
        pytest.param("mi300x", {}, True, id="float16 of CDNA3"),
        pytest.param("mi100", {"filter": (3, 3)}, False, id="taps"),
        pytest.param("mi100", {"channels_last": True}, False, id="channels last"),
        pytest.param("mi100", {"direction": "forward"}, False, id="forward"),
    ],
)
def test_which_gradients_it_takes(gpu: str, changes: dict[str, Any], has: bool) -> None:
    found = element_us(columns((replace(POINTWISE, **changes),)), load_gpu(gpu), WEIGHT_AMD_PRIORS)
    assert bool(np.isfinite(found[0])) is has


def test_assembled_kernels_and_products_move_elements_in_whole_loads() -> None:
    """Gradients of 64 by 256 channels over (n, h, w, c), 512 images of 56 x 56, move 1,000 GB/s on an MI100."""
    mi100 = load_gpu("mi100")
    kernel = replace(POINTWISE, n=512, c=64, k=256, channels_last=True)
    cols, tile, _ = with_tiles(columns((kernel,)), mi100, WEIGHT_AMD_PRIORS)
    as_compiled = {**WEIGHT_AMD_PRIORS, "assembled_operations": WEIGHT_AMD_PRIORS["move_operations"]}
    fewer, more = (assembled_times(cols, mi100, c, tile)["issue"][0] for c in (WEIGHT_AMD_PRIORS, as_compiled))
    assert fewer < more
    assert image_constants(mi100, WEIGHT_AMD_PRIORS)["move_operations"] == WEIGHT_AMD_PRIORS["assembled_operations"]


@pytest.mark.parametrize("gpu", ["mi100", "mi210", "mi300x", "mi355x"])
@pytest.mark.parametrize("kernel", [KERNEL, POINTWISE, replace(KERNEL, dtype=BF16)], ids=["taps", "1x1", "bfloat16"])
def test_more_images_take_no_less(gpu: str, kernel: Conv) -> None:
    times = predict([replace(kernel, n=n) for n in (1, 2, 4, 8, 16, 32, 64)], load_gpu(gpu))
    assert {found.predictor for found in times} == {"conv_matrix_weight_amd"}
    latencies = [found.latency_us for found in times]
    assert all(after > 0.99 * before for before, after in pairwise(latencies)), latencies
