"""Gradients of FP32 convolutions on NVIDIA: their products, zeros, splits and Winograd's tiles, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Conv, Direction
from neusight_onnx.laws.catalog import apply_law, law_of
from neusight_onnx.laws.conv.constants import GRADIENT_LOG_SD
from neusight_onnx.laws.conv.law import CONV
from neusight_onnx.laws.conv_gradient import CONSTANTS, CONV_GRADIENT, columns, estimate, ideal_us, pin
from neusight_onnx.predictor import load_predictors, predict

PRIORS = {constant.name: constant.prior for constant in CONSTANTS}


def gradient(direction: Direction, n: int, c: int, side: int, k: int, window: int, stride: int = 1) -> Conv:
    """A square convolution's gradient; 3x3 and larger windows are padded so that only a stride makes images smaller."""
    out = (side + 2 * (window // 2) - window) // stride + 1
    return Conv(
        n=n,
        c=c,
        k=k,
        spatial=(side, side),
        out=(out, out),
        filter=(window, window),
        strides=(stride, stride),
        dilations=(1, 1),
        direction=direction,
        dtype=DataType.FLOAT32,
    )


def test_which_law_gradients_have() -> None:
    assert law_of("conv", "float32/data") is CONV_GRADIENT
    assert law_of("conv", "float32/weight") is CONV_GRADIENT
    assert law_of("conv", "float32") is CONV


@pytest.mark.parametrize(
    ("kernel", "rows", "depth", "zeroed_bytes"),
    [
        # every output once, and the input's 16 x 512 x 784 floats are zeroed before
        pytest.param(gradient("data", 16, 512, 28, 1024, 1, 2), 16 * 196, 1024, 4 * 16 * 512 * 784, id="1x1"),
        # every input, which meets 9 / 4 of the taps
        pytest.param(gradient("data", 8, 64, 56, 128, 3, 2), 8 * 3136, 128 * 2.25, 0, id="3x3"),
        # taps along one axis alone: a row of outputs, or all 28 inputs of it with 1.5 of 3 taps
        pytest.param(
            replace(gradient("data", 8, 64, 28, 128, 1, 2), filter=(1, 3)),
            8 * 14 * 28,
            128 * 1.5,
            4 * 8 * 64 * 784,
            id="1x3",
        ),
    ],
)
def test_what_a_stride_skips_is_zeroed_and_not_multiplied(
    kernel: Conv, rows: float, depth: float, zeroed_bytes: float
) -> None:
    found = columns((kernel,))
    assert [found[name][0] for name in ("strided", "rows", "depth", "zeroed_bytes")] == [1, rows, depth, zeroed_bytes]
    assert columns((replace(kernel, strides=(1, 1), out=kernel.spatial),))["strided"].tolist() == [0.0]


def test_zeros_take_a_kernel_and_the_lines_that_hold_them() -> None:
    """8 x 256 x 56 x 56 floats, 25.7 MB: written once, then read and written with what is met, at .7 of 900 GB/s.

    DeepBench's V100 takes 140 us for it, 58 forward.
    """
    v100 = load_gpu("v100-sxm2-32gb")
    kernel = gradient("data", 8, 256, 56, 128, 1, 2)
    with_zeros = columns((kernel,))
    without = {**with_zeros, "zeroed_bytes": np.zeros(1)}
    added = estimate(with_zeros, v100, PRIORS).latency_us - estimate(without, v100, PRIORS).latency_us
    fill_us = PRIORS["step_us"] + 25.69e6 / (0.7 * 900e3)
    assert fill_us < added[0] < fill_us + 25.69e6 / (0.7 * 900e3)


@pytest.mark.parametrize(
    ("kernel", "products", "rows"),
    [
        # F(4x4, 3x3): 7 x 7 tiles of 28 x 28, images padded to 16
        pytest.param(gradient("data", 8, 64, 28, 64, 3), 36, 16 * 49, id="data-3x3"),
        pytest.param(gradient("data", 16, 64, 26, 64, 5), 64, 16 * 49, id="data-5x5"),
        # of the weight's gradient no images are padded
        pytest.param(gradient("weight", 8, 64, 28, 64, 3), 36, 8 * 49, id="weight"),
        pytest.param(gradient("weight", 8, 64, 28, 64, 3, 2), 1, 1, id="strided"),
        pytest.param(gradient("weight", 8, 64, 28, 64, 1), 1, 1, id="1x1"),
        pytest.param(replace(gradient("weight", 8, 64, 28, 64, 3), groups=2), 1, 1, id="grouped"),
    ],
)
def test_winograd_tiles_are_of_four_outputs(kernel: Conv, products: int, rows: int) -> None:
    found = columns((kernel,))
    assert (found["products"][0], found["staged_rows"][0]) == (products, rows)


@pytest.mark.parametrize(
    ("direction", "gpu", "measured_us"),
    [("weight", "v100-sxm2-32gb", 766), ("weight", "t4", 2237), ("data", "gtx-1080-ti", 1146)],
)
def test_winograd_takes_less_than_direct_multiply_adds_at_the_peak(
    direction: Direction, gpu: str, measured_us: float
) -> None:
    """DeepBench's 16 images of 256 channels over 28 x 28 for 512: 29.6 GFLOP, a quarter of that by Winograd's tiles."""
    spec, kernel = load_gpu(gpu), gradient(direction, 16, 256, 28, 512, 3)
    direct_us = 29.6e9 / spec.peak_flops_per_s["fp32"] * 1e6
    assert measured_us < direct_us
    cols = columns((kernel,))
    assert ideal_us(cols, spec)[0] == pytest.approx(direct_us / 4, rel=0.01)
    assert predict((kernel,), spec)[0].latency_us == pytest.approx(measured_us, rel=0.35)


@pytest.mark.parametrize(
    ("kernel", "gpu", "measured_us"),
    [
        # DeepBench's, of every kind that used to be off by a factor of two
        pytest.param(gradient("data", 16, 512, 28, 1024, 1, 2), "v100-sxm2-32gb", 477, id="strided-1x1"),
        pytest.param(gradient("data", 16, 64, 56, 256, 1, 2), "t4", 219, id="strided-1x1-turing"),
        pytest.param(gradient("weight", 16, 256, 14, 1024, 1), "v100-sxm2-32gb", 206, id="weight-1x1"),
        pytest.param(gradient("weight", 16, 1024, 14, 256, 1), "p100-pcie-16gb", 345, id="weight-1x1-pascal"),
        pytest.param(gradient("weight", 8, 128, 28, 128, 3), "t4", 232, id="weight-winograd"),
        pytest.param(gradient("weight", 8, 3, 224, 64, 3), "t4", 1756, id="weight-of-images"),
    ],
)
def test_gradients_take_what_was_measured(kernel: Conv, gpu: str, measured_us: float) -> None:
    assert predict((kernel,), load_gpu(gpu))[0].latency_us == pytest.approx(measured_us, rel=0.35)


def test_few_weights_have_their_reduction_shared_out_until_all_sms_are_busy() -> None:
    """64 x 27 weights over 802,816 positions: one tile, on 80 SMs."""
    v100 = load_gpu("v100-sxm2-32gb")
    found = pin(columns((gradient("weight", 16, 3, 224, 64, 3),)), v100, PRIORS)
    assert found["direct_split"][0] >= 80


def test_few_input_channels_have_a_thread_an_element() -> None:
    """16 images, 3 channels, 64 filters of 3 x 3 over 224 x 224: 1.39e9 multiply-adds at .2 a lane and clock.

    A P100 (3,584 lanes at 1.33 GHz) takes 1,452 us.
    """
    p100, kernel = load_gpu("p100-pcie-16gb"), gradient("data", 16, 3, 224, 64, 3)
    answer = estimate(columns((kernel,)), p100, PRIORS)
    assert answer.tile["n"].tolist() == [1.0]
    assert answer.latency_us[0] == pytest.approx(1.387e9 / (0.2 * 3584 * 1.329e3), rel=0.03)
    assert estimate(columns((replace(kernel, c=4),)), p100, PRIORS).tile["n"][0] > 1.0


@pytest.mark.parametrize("gpu", ["p40", "v100", "t4", "a100", "a10", "rtx-4090", "h100-sxm", "rtx-5090", "b200-sxm"])
@pytest.mark.parametrize("direction", ["data", "weight"])
def test_more_images_and_channels_take_no_less(direction: Direction, gpu: str) -> None:
    """By the law, and never faster than its roofline. Twice the images may fill a round of tiles better: 6 %."""
    spec = load_gpu(gpu)
    constants = load_predictors(data_folder("predictors"))["conv", f"float32/{direction}"].constants
    sizes = [(c, k, side) for c, k in ((3, 64), (64, 64), (256, 64), (64, 256), (512, 512)) for side in (7, 28, 56)]
    for window, stride in ((1, 1), (1, 2), (3, 1), (3, 2), (5, 1)):
        for c, k, side in sizes:
            images = tuple(gradient(direction, n, c, side, k, window, stride) for n in (1, 2, 4, 8, 16, 32, 64))
            answer = estimate(columns(images), spec, constants)
            assert np.all(np.diff(answer.latency_us) >= -0.06 * answer.latency_us[:-1]), (c, k, side, window, stride)
            assert np.all(answer.latency_us >= answer.ideal_us)
        # from 4 input channels on, below which there is another kernel
        for k, side in ((64, 28), (256, 14)):
            wide = tuple(gradient(direction, 16, c, side, k, window, stride) for c in (4, 16, 64, 256, 1024))
            assert np.all(np.diff(estimate(columns(wide), spec, constants).latency_us) >= 0.0), (k, side, window)


def test_kinds_that_nobody_measured_have_wider_intervals() -> None:
    """Groups, dilations and three axes: the doubt of gradients before any was fitted."""
    plain = gradient("weight", 8, 64, 28, 64, 3)
    volume = replace(plain, spatial=(8, 8, 8), out=(8, 8, 8), filter=(3, 3, 3), strides=(1,) * 3, dilations=(1,) * 3)
    others = (replace(plain, groups=4), replace(plain, groups=64), replace(plain, dilations=(2, 2)), volume)
    answer = estimate(columns((plain, *others)), load_gpu("v100"), PRIORS)
    assert answer.unmeasured is not None
    assert answer.unmeasured.tolist() == [False, True, True, True, True]
    assert answer.doubt_log_sd is not None
    assert answer.doubt_log_sd[0] < 0.1
    assert np.all(answer.doubt_log_sd[1:] >= GRADIENT_LOG_SD["weight"])


def test_numbers_are_finite_for_any_shape() -> None:
    plain = gradient("data", 1, 1, 1, 1, 1)
    kernels = (
        plain,
        replace(plain, spatial=(5,), out=(5,), filter=(1,), strides=(1,), dilations=(1,)),
        replace(gradient("data", 4, 8, 9, 16, 3, 2), transposed=True, out=(19, 19)),
        replace(gradient("data", 4, 8, 9, 16, 3, 2), channels_last=True),
        gradient("data", 2, 64, 7, 64, 1, 8),
    )
    every = [replace(kernel, direction=way) for kernel in kernels for way in ("data", "weight")]
    for gpu in ("p4", "t4", "a100", "rtx-4090"):
        answer = apply_law(CONV_GRADIENT, every, load_gpu(gpu), PRIORS)
        assert np.all(np.isfinite(answer.result.latency_us))
        assert np.all(answer.result.latency_us > 0)
        assert np.all(np.isfinite(answer.features))
        assert answer.features.shape == (len(every), len(CONV_GRADIENT.feature_names))
