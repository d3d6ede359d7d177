"""The law of matrix products on FP32 pipes."""

from __future__ import annotations

from neusight_onnx.laws.base import Law
from neusight_onnx.laws.gemm.columns import columns
from neusight_onnx.laws.gemm.constants import CONSTANTS
from neusight_onnx.laws.gemm.estimate import estimate
from neusight_onnx.laws.gemm.features import FEATURES, features
from neusight_onnx.laws.gemm.tiles import pin, quicker_shares

GEMM = Law(
    kernel_class="gemm",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
    quicker=quicker_shares,
)
