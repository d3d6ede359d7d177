"""What tests of the law of convolutions on matrix units begin with: a convolution, and constants."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv
from neusight_onnx.laws.tensor_conv.constants import CONSTANTS
from neusight_onnx.laws.tensor_conv.law import TENSOR_CONV_AMD, TENSOR_CONV_WEIGHT_AMD

FP16, BF16, INT8, TF32 = DataType.FLOAT16, DataType.BFLOAT16, DataType.INT8, DataType.TFLOAT32

FP8 = DataType.FLOAT8E4M3FN

PRIORS = {constant.name: constant.prior for constant in CONSTANTS}

AMD_PRIORS = {constant.name: constant.prior for constant in TENSOR_CONV_AMD.constants}

WEIGHT_AMD_PRIORS = {constant.name: constant.prior for constant in TENSOR_CONV_WEIGHT_AMD.constants}

# the pipe at its peak, without overheads, padding of taps or a power limit, so that times are plain arithmetic
PLAIN = {
    **PRIORS,
    "pipe_overhead": 1.0,
    "tile_overhead": 0.0,
    "latency_warps": 0.0,
    "epilogue_k": 0.0,
    "energy_pj": 1e-6,
    "index_overhead": 1.0,
    "tap_channels": 0.0,
    "volume_overhead": 1.0,
}

BASE = Conv(
    n=8,
    c=64,
    k=128,
    spatial=(56, 56),
    out=(56, 56),
    filter=(3, 3),
    strides=(1, 1),
    dilations=(1, 1),
    channels_last=True,
    dtype=FP16,
)
