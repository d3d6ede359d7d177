"""FP32 gradients of weights on AMD: Winograd in passes, kernels assembled for lanes, and what splits the reduction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Conv
from neusight_onnx.laws.tensor_conv.columns import columns
from neusight_onnx.laws.tensor_conv.direct import element_us
from neusight_onnx.laws.tensor_conv.estimate import ideal_us
from neusight_onnx.laws.tensor_conv.law import CONV_FP32_WEIGHT_AMD
from neusight_onnx.laws.tensor_conv.miopen_lanes import lanes_us
from neusight_onnx.laws.tensor_conv.miopen_passes import passes_us
from neusight_onnx.laws.tensor_conv.miopen_solvers import assembled_times, compiled_times
from neusight_onnx.laws.tensor_conv.solver_tiles import DYNAMIC_TILE, LANES_TILE, WINOGRAD_TILE
from neusight_onnx.laws.tensor_conv.tiles import TILE, with_tiles
from neusight_onnx.laws.tensor_conv.winograd import passes, winograd_saving
from tensor_conv_cases import BASE

PRIORS = {constant.name: constant.prior for constant in CONV_FP32_WEIGHT_AMD.constants}
KERNEL = replace(BASE, direction="weight", dtype=DataType.FLOAT32, channels_last=False)
POINTWISE = replace(KERNEL, filter=(1, 1))
VOLUME = replace(
    KERNEL, filter=(1, 1, 1), strides=(1,) * 3, dilations=(1,) * 3, spatial=(1, 7, 7), out=(1, 7, 7), c=2048, k=1024
)


def _square(side: int, **changes: Any) -> Conv:
    return replace(KERNEL, spatial=(side, side), out=(side, side), **changes)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({}, (64, 8 * 25), id="28 positions in pieces of 6"),
        pytest.param({"out": (20, 20)}, (49, 8 * 16), id="20 positions in pieces of 5"),
        pytest.param({"out": (4, 4)}, (36, 8), id="4 positions are a piece"),
        pytest.param({"filter": (5, 5)}, (64, 8 * 49), id="5x5"),
        pytest.param({"strides": (2, 2), "out": (14, 14)}, (25, 8 * 49), id="stride 2"),
        pytest.param({"groups": 2}, (0, 0), id="groups"),
        pytest.param({"filter": (1, 7)}, (0, 0), id="1x7"),
        pytest.param({"direction": "forward"}, (0, 0), id="forward"),
    ],
)
def test_winograd_in_passes_has_the_pieces_that_multiply_least(changes: dict[str, Any], found: tuple[int, int]) -> None:
    assert passes(replace(_square(28), **changes)) == found


@pytest.mark.parametrize(
    ("changes", "saving"),
    [
        pytest.param({}, 1.5**2, id="3x3: F(3, 2), which has one piece of three"),
        pytest.param({"filter": (1, 7), "out": (18, 18)}, 0.75 * 42 / 32, id="1x7: F(2, 3), pieces of two"),
        pytest.param({"filter": (1, 1), "groups": 3, "out": (18, 18)}, 0.75**2, id="1x1 in groups"),
        pytest.param({"strides": (2, 2)}, 0.0, id="no stride"),
    ],
)
def test_winograd_of_weights_has_taps_as_outputs(changes: dict[str, Any], saving: float) -> None:
    assert winograd_saving(replace(KERNEL, **changes)) == pytest.approx(saving)


@pytest.mark.parametrize(
    ("gpu", "kernel", "measured_us"),
    [
        pytest.param("mi50", _square(38, n=32, c=256, k=256), 2640.0, id="mi50"),
        pytest.param("mi50", _square(14, n=32, c=512, k=48, filter=(5, 5)), 908.3, id="mi50-5x5"),
        pytest.param("mi100", _square(17, n=32, c=1024, k=256), 1070.2, id="mi100"),
        pytest.param("mi210", replace(_square(25, n=32, c=512, k=1024), out=(23, 23)), 2369.3, id="mi210"),
    ],
)
def test_winograd_in_passes_multiplies_on_matrix_cores_where_there_are_any(
    gpu: str, kernel: Conv, measured_us: float
) -> None:
    """Of ``ConvWinograd3x3MultipassWrW``: by direct FLOPs 1.5 times an MI50's lanes, twice an MI100's and MI210's."""
    spec = load_gpu(gpu)
    cols, tile, _ = with_tiles(columns((kernel,)), spec, PRIORS)
    found = passes_us(cols, spec, PRIORS, tile)[0]
    assert found == pytest.approx(measured_us, rel=0.3)
    assert ideal_us(cols, spec)[0] < found


@pytest.mark.parametrize(
    ("gpu", "kernel", "measured_us"),
    [
        pytest.param("mi50", replace(POINTWISE, n=32, c=256, spatial=(28, 28), out=(28, 28)), 332.5, id="1x1"),
        pytest.param("mi50", _square(14, n=128, c=1024, k=1024, groups=32), 1743.0, id="groups"),
        pytest.param("mi50", _square(14, n=32, c=120, k=120), 234.4, id="3x3"),
        pytest.param("mi100", _square(14, n=128, c=1024, k=1024, groups=64), 543.7, id="mi100-groups"),
    ],
)
def test_kernels_assembled_for_lanes(gpu: str, kernel: Conv, measured_us: float) -> None:
    """Of ``ConvAsmBwdWrW1x1`` and ``ConvAsmBwdWrW3x3``."""
    assert element_us(columns((kernel,)), load_gpu(gpu), PRIORS)[0] == pytest.approx(measured_us, rel=0.3)


def test_where_there_are_none_assembled_for_3x3() -> None:
    cases = (_square(28), replace(_square(28), out=(26, 26)), _square(28, strides=(2, 2)), _square(28, c=66, groups=2))
    assert np.isfinite(element_us(columns(cases), load_gpu("mi100"), PRIORS)).tolist() == [True, False, False, False]
    assert not np.isfinite(element_us(columns(cases), load_gpu("mi210"), PRIORS)).any()


@pytest.mark.parametrize("gpu", ["mi50", "mi100"])
def test_no_kernel_on_lanes_splits_the_reduction(gpu: str) -> None:
    """64 x 128 weights are a tile or two, for 200,704 positions; those assembled for matrix cores split them."""
    cols, _, _ = with_tiles(columns((replace(POINTWISE, n=64),)), load_gpu(gpu), PRIORS)
    assert cols[LANES_TILE[3]].tolist() == cols[WINOGRAD_TILE[3]].tolist() == [1.0]
    assert cols[TILE[3]][0] > 16
    assert (DYNAMIC_TILE[0] in cols) is (gpu == "mi50")


@pytest.mark.parametrize(("gpu", "side", "measured_us"), [("mi210", 7, 696.8), ("mi100", 4, 259.8)])
def test_a_position_takes_kernels_compiled_for_lanes_long_however_few_the_weights(
    gpu: str, side: int, measured_us: float
) -> None:
    """Of ``ConvHipImplicitGemmV4R4WrW``, with 1,024 x 2,048 weights; 64 x 64 of them take 235 ns a position or more."""
    spec = load_gpu(gpu)
    case = replace(VOLUME, n=32, out=(1, side, side), strides=(1, 1, 1) if side == 7 else (1, 2, 2))
    cols, tile, _ = with_tiles(columns((case, replace(case, c=64, k=64))), spec, PRIORS)
    many, few = lanes_us(cols, spec, PRIORS, tile)
    assert many == pytest.approx(measured_us, rel=0.35)
    assert few > 0.14 * 32 * side**2


def test_lanes_take_weights_that_divide() -> None:
    """Rows and columns by 32; GCN's assembled kernels want positions by 32 as well, those compiled by 4."""
    mi50 = load_gpu("mi50")
    whole = replace(POINTWISE, n=1, spatial=(8, 8), out=(8, 8), c=1024, k=1024)
    cases = (whole, replace(whole, spatial=(6, 6), out=(6, 6)), replace(whole, c=1000), replace(whole, groups=2))
    cols, tile, _ = with_tiles(columns(cases), mi50, PRIORS)
    found = lanes_us(cols, mi50, PRIORS, tile)
    assert np.isfinite(found).tolist() == [True, True, False, False]
    compiled = lanes_us({name: cols[name] for name in cols if name not in DYNAMIC_TILE}, mi50, PRIORS, tile)
    assert (found < compiled).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("times", "split", "launches"),
    [(assembled_times, 1, 1), (assembled_times, 8, 1), (compiled_times, 1, 0), (compiled_times, 8, 1)],
)
def test_fp32_is_added_where_it_lies(times: Any, split: int, launches: int) -> None:
    """Zeros of 4 bytes a weight and their launch stand beside the product; nothing is converted."""
    mi210 = load_gpu("mi210")
    tile = np.array([[64.0], [64.0], [256.0], [split]])
    kernel = replace(KERNEL, k=4096)
    beside = times(columns((kernel,)), mi210, PRIORS, tile)["launch"][0] - PRIORS["floor_us"]
    zeros_us = 4e6 * kernel.c * kernel.k * 9 / mi210.memory_bytes_per_s
    assert beside == pytest.approx(launches * (PRIORS["zero_us"] + zeros_us), rel=0.15)
