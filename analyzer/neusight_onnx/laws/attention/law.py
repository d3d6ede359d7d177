"""The laws of fused attention: of the newest kernels, of FlashAttention 2 and of CUTLASS's."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.laws.attention.columns import columns, columns_of
from neusight_onnx.laws.attention.constants import CONSTANTS
from neusight_onnx.laws.attention.estimate import estimate
from neusight_onnx.laws.attention.features import FEATURES, features
from neusight_onnx.laws.attention.kernel_choice import FLASH2, MEMORY_EFFICIENT
from neusight_onnx.laws.attention.schedule import pin
from neusight_onnx.laws.base import Law

ATTENTION = Law(
    kernel_class="attention",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
)

FLASH2_ATTENTION = replace(ATTENTION, columns=columns_of(FLASH2))
"""FlashAttention 2 where the newest kernels are others."""

EFFICIENT_ATTENTION = replace(ATTENTION, columns=columns_of(MEMORY_EFFICIENT))
"""CUTLASS's memory-efficient attention."""
