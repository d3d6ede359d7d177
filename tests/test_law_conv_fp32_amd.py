"""FP32 convolutions on AMD: vector lanes, Winograd, and which of MIOpen's solvers there are, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.laws.catalog import law_of
from neusight_onnx.laws.matrix_units import peaks
from neusight_onnx.laws.tensor_conv.columns import columns
from neusight_onnx.laws.tensor_conv.estimate import algorithms_us, ideal_us
from neusight_onnx.laws.tensor_conv.law import CONV_FP32_AMD, CONV_FP32_WEIGHT_AMD, TENSOR_CONV_AMD
from neusight_onnx.laws.tensor_conv.miopen_lanes import lanes_us, winograd_us
from neusight_onnx.laws.tensor_conv.tiles import with_tiles
from neusight_onnx.laws.tensor_conv.winograd import winograd_saving
from neusight_onnx.predictor import load_predictors, predictor_for
from tensor_conv_cases import BASE

FP32 = replace(BASE, n=64, dtype=DataType.FLOAT32, channels_last=False)
VOLUME = replace(FP32, spatial=(8, 8, 8), out=(8, 8, 8), filter=(3, 3, 3), strides=(1,) * 3, dilations=(1,) * 3)
PRIORS = {constant.name: constant.prior for constant in CONV_FP32_AMD.constants}


def test_which_law_fp32_convolutions_of_amd_have() -> None:
    assert law_of("conv", "float32+amd") is CONV_FP32_AMD
    assert law_of("conv", "float32/weight+amd") is CONV_FP32_WEIGHT_AMD
    assert law_of("conv", "matrix+amd") is TENSOR_CONV_AMD


@pytest.mark.parametrize(("gpu", "peak"), [("mi50", 13.41e12), ("mi100", 46.1e12), ("mi210", 45.3e12)])
def test_fp32_multiplies_on_matrix_cores_where_there_are_any(gpu: str, peak: float) -> None:
    assert peaks(load_gpu(gpu), columns((FP32,))["pipe"]).tolist() == pytest.approx([peak])


@pytest.mark.parametrize(
    ("filter_", "strides", "saving"),
    [
        ((3, 3), (1, 1), 2.25),  # 6 multiply-adds by 4, on both axes
        ((5, 5), (1, 1), (10 / 8) ** 2),  # two pieces of three taps
        ((1, 7), (1, 1), 0.5 * 14 / 12),
        ((3, 3), (2, 2), 0.75**2),  # places of two taps and of one, a piece each
        ((7, 7), (2, 2), (14 / 12) ** 2),  # places of four taps and of three: two pieces and one
        ((1, 1), (1, 1), 0.0),
    ],
)
def test_winograd_is_made_of_pieces_of_three_taps(
    filter_: tuple[int, int], strides: tuple[int, int], saving: float
) -> None:
    kernel = replace(FP32, filter=filter_, strides=strides)
    assert winograd_saving(kernel) == pytest.approx(saving)
    assert winograd_saving(replace(kernel, groups=2)) == 0.0


def test_a_large_winograd_on_an_mi50_takes_the_lanes_by_what_it_saves() -> None:
    """256 images of 256 channels over 56 x 56: 947 GFLOP, 31 ms for 2.25 times fewer at 13.41 TFLOP/s.

    Those that were measured reach 1.6 to 1.8 of that peak by direct FLOPs: 39 to 44 ms.
    """
    mi50 = load_gpu("mi50")
    cols, tile, image_tile = with_tiles(columns((replace(FP32, n=256, c=256, k=256),)), mi50, PRIORS)
    winograd = winograd_us(cols, mi50, PRIORS, tile)
    assert 39e3 < winograd[0] < 46e3
    assert lanes_us(cols, mi50, PRIORS, tile)[0] > 2 * winograd[0]
    # it has no matrix cores, so no other kernel of implicit GEMM
    assert algorithms_us(cols, mi50, PRIORS, tile, image_tile)[0][0].tolist() == winograd.tolist()
    # and Winograd may be faster than the direct FLOPs at the peak, which bound other filters
    flops = cols["flops"] / 13.41e6
    assert ideal_us(cols, mi50)[0] == pytest.approx(flops[0] / 4)


@pytest.mark.parametrize("direction", ["forward", "data", "weight"])
def test_lanes_take_three_axes_that_divide(direction: str) -> None:
    """64 and 128 channels, 32,768 positions: all divide. 48 channels don't by 32; images go one by one there."""
    mi210 = load_gpu("mi210")
    whole = replace(VOLUME, direction=direction)
    cases = (whole, replace(whole, c=48, k=48, filter=(1, 3, 3)), replace(whole, groups=2))
    cols, tile, image_tile = with_tiles(columns(cases), mi210, PRIORS)
    product, images, _ = algorithms_us(cols, mi210, PRIORS, tile, image_tile)[0]
    assert np.isfinite(product).tolist() == [True, False, False]
    assert np.all(np.isfinite(images))


def test_without_predictors_of_their_own_they_have_those_of_all_gpus() -> None:
    shipped = load_predictors(data_folder("predictors"))
    rest = {key: found for key, found in shipped.items() if not key[1].startswith("float32") or "+amd" not in key[1]}
    mi50 = load_gpu("mi50")
    found = predictor_for(FP32, mi50, rest)
    assert found is not None
    assert found.name == "conv_fp32"
    own = predictor_for(FP32, mi50, shipped)
    assert own is not None
    assert own.name == "conv_fp32_amd"


@pytest.mark.parametrize(
    ("channels", "filter_", "ratio"),
    [
        # Winograd's products, which lanes bind at one rate; bytes beside, as the find database has it of 1x1
        pytest.param(1024, (3, 3), 1.0, id="lanes"),
        pytest.param(16, (1, 1), 0.77, id="bytes"),
    ],
)
def test_halves_on_an_mi50_take_fp32s_rate_on_half_the_bytes(
    channels: int, filter_: tuple[int, int], ratio: float
) -> None:
    wide = replace(FP32, n=256, c=channels, k=channels, filter=filter_)
    half, single = (
        CONV_FP32_AMD.estimate(CONV_FP32_AMD.columns((replace(wide, dtype=dtype),)), load_gpu("mi50"), PRIORS)
        for dtype in (DataType.FLOAT16, DataType.FLOAT32)
    )
    assert half.latency_us[0] / single.latency_us[0] == pytest.approx(ratio, abs=0.1)


def test_halves_on_an_mi50_are_as_doubtful_as_two_steps_from_what_was_measured() -> None:
    shipped = load_predictors(data_folder("predictors"))
    mi50 = load_gpu("mi50")
    found, own = (predictor_for(replace(FP32, dtype=dtype), mi50, shipped) for dtype in (DataType.FLOAT16, FP32.dtype))
    assert found is not None
    assert own is not None
    assert found.name == own.name
    assert found.interval.unseen == found.amd_interval.seen == pytest.approx(2**0.5 * own.amd_interval.unseen)
