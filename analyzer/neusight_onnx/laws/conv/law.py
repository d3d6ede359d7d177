"""The law of convolutions, put together."""

from __future__ import annotations

from neusight_onnx.laws.base import Law
from neusight_onnx.laws.conv.algorithms import pin
from neusight_onnx.laws.conv.columns import columns
from neusight_onnx.laws.conv.constants import CONSTANTS
from neusight_onnx.laws.conv.estimate import estimate
from neusight_onnx.laws.conv.features import FEATURES, features

CONV = Law(
    kernel_class="conv",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
)
