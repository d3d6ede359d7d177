"""The laws of convolutions on matrix units: NVIDIA's and AMD's."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.laws.base import Law
from neusight_onnx.laws.tensor_conv.columns import columns
from neusight_onnx.laws.tensor_conv.constants import (
    AMD_CONSTANTS,
    CONSTANTS,
    FP32_AMD_CONSTANTS,
    FP32_WEIGHT_AMD_CONSTANTS,
    WEIGHT_AMD_CONSTANTS,
)
from neusight_onnx.laws.tensor_conv.estimate import estimate
from neusight_onnx.laws.tensor_conv.features import (
    AMD_FEATURES,
    FEATURES,
    FP32_AMD_FEATURES,
    amd_features,
    features,
    fp32_amd_features,
)
from neusight_onnx.laws.tensor_conv.miopen_solvers import counterpart
from neusight_onnx.laws.tensor_conv.tiles import pin

TENSOR_CONV = Law(
    kernel_class="conv",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
    constants_of=("gemm", DataType.BFLOAT16.label),
)

TENSOR_CONV_AMD = replace(
    TENSOR_CONV,
    constants=AMD_CONSTANTS,
    feature_names=AMD_FEATURES,
    features=amd_features,
    constants_of=None,
    counterpart=counterpart,
)
"""The same law for AMD."""

TENSOR_CONV_WEIGHT_AMD = replace(TENSOR_CONV_AMD, constants=WEIGHT_AMD_CONSTANTS)
"""The same for the weight's gradient: sums beside it, tiles of compiled kernels, and a kernel on lanes of its own."""

CONV_FP32_AMD = replace(
    TENSOR_CONV_AMD,
    constants=FP32_AMD_CONSTANTS,
    feature_names=FP32_AMD_FEATURES,
    features=fp32_amd_features,
    counterpart=None,
)
"""The same in FP32: on matrix cores where a GPU has them, on vector lanes, and Winograd."""

CONV_FP32_WEIGHT_AMD = replace(CONV_FP32_AMD, constants=FP32_WEIGHT_AMD_CONSTANTS)
"""The same for the weight's gradient: zeros beside it, tiles of compiled kernels, and kernels on lanes of its own."""
