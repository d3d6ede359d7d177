"""Convolutions on vector lanes, beside those on matrix units: depthwise ones, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.laws.tensor_conv.columns import columns as conv_columns
from neusight_onnx.laws.tensor_conv.estimate import estimate
from tensor_conv_cases import BASE, FP16, INT8, PRIORS


def test_a_depthwise_convolution_has_a_kernel_an_element() -> None:
    """96 channels of 64 x 56 x 56: 19.3 M elements of 9 taps of 6 operations and 40 more, on 108 x 64 integer lanes.

    1.81e9 operations at 9.75e12 a second are 186 us; its bytes take 45. Channels that make no vectors of eight do so in
    any order of tensors.
    """
    a100 = load_gpu("a100-sxm-80gb")
    kernel = replace(BASE, n=64, c=96, k=96, groups=96, channels_last=False)
    elements = 64 * 96 * 3136
    result = estimate(conv_columns((kernel,)), a100, PRIORS)
    lanes = 108 * 64 * a100.clock_hz
    assert result.latency_us[0] == pytest.approx(1e6 * elements * (9 * 6 + 40) / lanes + 2.8, rel=0.02)
    assert result.tile["n"].tolist() == [1]
    assert result.tile_count.tolist() == [elements / 256]
    odd = replace(kernel, c=100, k=100, groups=100, channels_last=True)
    times = estimate(conv_columns((odd, replace(odd, channels_last=False))), a100, PRIORS).latency_us
    assert times[0] == pytest.approx(times[1], rel=0.01)


@pytest.mark.parametrize("dtype", [FP16, INT8])
def test_threads_of_a_depthwise_convolution_hold_eight_channels(dtype: DataType) -> None:
    """96 channels of 64 x 56 x 56, channels last: a vector has 6 operations a tap and 40, a channel 4 a tap.

    19.3 M elements x (49 (6/8 + 4) + 40/8) = 4.6e9 instructions, of which an SM issues 128 a clock whatever its integer
    lanes are: 235 us on an A100; bytes take up to 45.
    """
    a100 = load_gpu("a100-sxm-80gb")
    kernel = replace(BASE, n=64, c=96, k=96, groups=96, filter=(7, 7), dtype=dtype)
    elements = 64 * 96 * 3136
    (time_us,) = estimate(conv_columns((kernel,)), a100, PRIORS).latency_us
    work_us = 1e6 * elements * (49 * (6 / 8 + 4) + 40 / 8) / (108 * 128 * a100.clock_hz)
    assert time_us == pytest.approx(work_us + 2.8, rel=0.02)
    # a gradient's kernel is another
    (back_us,) = estimate(conv_columns((replace(kernel, direction="weight"),)), a100, PRIORS).latency_us
    assert back_us > time_us
