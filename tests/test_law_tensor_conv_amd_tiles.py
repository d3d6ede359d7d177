"""Convolutions on AMD: each of MIOpen's solvers has the tile that is its own best."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks.plausibility import laws_alone, raised
from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import Conv
from neusight_onnx.laws.tensor_conv.columns import columns
from neusight_onnx.laws.tensor_conv.implicit_gemm import joined_us
from neusight_onnx.laws.tensor_conv.miopen_solvers import compiled_times, lying_times
from neusight_onnx.laws.tensor_conv.solver_tiles import COMPILED_TILE, LYING_TILE
from neusight_onnx.laws.tensor_conv.tiles import TILE, pin
from neusight_onnx.predictor import load_predictors, predict
from neusight_onnx.tiling import matrix_unit_candidates, matrix_unit_convolution_tiles
from tensor_conv_cases import AMD_PRIORS, BASE, BF16

LYING = replace(BASE, c=128, channels_last=False)
KERNELS = {
    "3x3": replace(LYING, spatial=(28, 28), out=(28, 28)),
    "3x3-stride-2": replace(LYING, strides=(2, 2), out=(28, 28)),
    "1x1": replace(LYING, c=512, k=2048, filter=(1, 1), spatial=(7, 7), out=(7, 7)),
    "1x1-stride-2": replace(LYING, c=256, k=512, filter=(1, 1), strides=(2, 2), out=(28, 28)),
    "stem": replace(LYING, c=3, k=64, filter=(7, 7), strides=(2, 2), spatial=(224, 224), out=(112, 112)),
    "stem-channels-last": replace(
        BASE, c=3, k=64, filter=(7, 7), strides=(2, 2), spatial=(224, 224), out=(112, 112), channels_last=True
    ),
    "input": replace(LYING, spatial=(28, 28), out=(28, 28), direction="data"),
    "input-1x1": replace(LYING, c=512, k=2048, filter=(1, 1), spatial=(7, 7), out=(7, 7), direction="data"),
    "float32": replace(LYING, spatial=(28, 28), out=(28, 28), dtype=DataType.FLOAT32),
    "float32-stem": replace(
        LYING, c=3, k=64, filter=(7, 7), strides=(2, 2), spatial=(224, 224), out=(112, 112), dtype=DataType.FLOAT32
    ),
    "bfloat16": replace(LYING, spatial=(28, 28), out=(28, 28), dtype=BF16),
}
BATCHES = tuple(2**power for power in range(9))
GPUS = ("mi100", "mi210", "mi300x", "mi350x", "mi355x")


def _latencies_us(kernel: Conv, gpu: GpuSpec) -> list[float]:
    """Of more and more images, by the law alone with the constants that are shipped: trees are steps."""
    predictors = laws_alone(load_predictors(data_folder("predictors")))
    found = predict([replace(kernel, n=n) for n in BATCHES], gpu, predictors=predictors)
    assert {prediction.predictor for prediction in found} <= {"conv_matrix_amd", "conv_fp32_amd"}
    return [prediction.latency_us for prediction in found]


@pytest.mark.parametrize("images", [1, 16])
@pytest.mark.parametrize(
    ("names", "times"), [(COMPILED_TILE, compiled_times), (LYING_TILE, lying_times)], ids=["compiled", "as they lie"]
)
def test_a_solver_has_the_tile_that_is_its_own_best(names: tuple[str, ...], times: Any, images: int) -> None:
    """512 by 2,048 channels of 49 positions: none unsplit is better, nor that of assembled kernels of (n, h, w, c)."""
    mi100 = load_gpu("mi100")
    cols = pin(columns((replace(KERNELS["1x1"], n=images),)), mi100, AMD_PRIORS)
    unsplit = matrix_unit_candidates(matrix_unit_convolution_tiles(mi100), splits=(1,))
    menu = np.column_stack([*([cols[name][0] for name in of] for of in (names, TILE)), unsplit])
    rows = {name: column[None] for name, column in cols.items()}
    us = joined_us(times(rows, mi100, AMD_PRIORS, menu[:, :, None]), AMD_PRIORS)
    assert us.argmin() == 0


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_more_images_take_no_less(gpu: str, kernel: Conv) -> None:
    latencies = _latencies_us(kernel, load_gpu(gpu))
    assert all(after > 0.99 * before for before, after in pairwise(latencies)), latencies


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_more_compute_units_take_no_longer(gpu: str, kernel: Conv) -> None:
    few = load_gpu(gpu)
    times = [_latencies_us(kernel, of) for of in (few, raised(few, "sm_count", 1.25))]
    assert all(after < 1.02 * before for before, after in zip(*times, strict=True)), times
