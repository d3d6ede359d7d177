"""The laws of products on matrix units: NVIDIA's, with narrow weights, and AMD's."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.laws import unpacked_weights
from neusight_onnx.laws.base import Law
from neusight_onnx.laws.tensor_gemm.columns import columns
from neusight_onnx.laws.tensor_gemm.constants import CONSTANTS, amd_product_constants
from neusight_onnx.laws.tensor_gemm.estimate import estimate
from neusight_onnx.laws.tensor_gemm.features import FEATURES, features
from neusight_onnx.laws.tensor_gemm.tiles import pin

TENSOR_GEMM = Law(
    kernel_class="gemm",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
)

UNPACKED_GEMM = replace(TENSOR_GEMM, constants=unpacked_weights.constants_of(CONSTANTS), same_kernels=True)
"""The same law where weights are stored in fewer bits than they are multiplied in, on NVIDIA's GPUs. TensorRT-LLM's
kernels for mma are built from one source for Ampere, Ada and consumer Blackwell (as remembered)."""


TENSOR_GEMM_AMD = replace(TENSOR_GEMM, constants=amd_product_constants(CONSTANTS))
"""The same law for AMD: priors of its libraries, fitted on its kernels."""
