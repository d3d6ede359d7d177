"""The laws of fused attention: of the newest kernels, of FlashAttention 2, of CUTLASS's, XQA's and cuDNN's."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.laws.attention.columns import columns, columns_of
from neusight_onnx.laws.attention.constants import CONSTANTS
from neusight_onnx.laws.attention.estimate import estimate
from neusight_onnx.laws.attention.features import FEATURES, features
from neusight_onnx.laws.attention.kernel_choice import CUDNN, FLASH2, MEMORY_EFFICIENT, XQA
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

XQA_ATTENTION = replace(ATTENTION, columns=columns_of(XQA))
"""XQA's decoding of grouped queries."""

CUDNN_ATTENTION = replace(ATTENTION, columns=columns_of(CUDNN, by_onnxruntime=0.0, appends=0.0, in_pages=0.0))
"""cuDNN's, of which nothing was measured: that of the newest kernels."""

BY_KERNEL = {
    FLASH2: FLASH2_ATTENTION,
    MEMORY_EFFICIENT: EFFICIENT_ATTENTION,
    XQA: XQA_ATTENTION,
    CUDNN: CUDNN_ATTENTION,
}
"""By ``kernel_choice.kernel_of``: the law of kernels other than the newest."""
