"""Number formats a user can ask for, and which of them have a model."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import NotSupportedError

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8", "fp8", "auto")
SUPPORTED: dict[str, DataType] = {"fp32": DataType.FLOAT32}
"""Precisions with predictors, and the type that floating-point tensors then have."""

_NAMES: dict[DataType, str] = {
    DataType.FLOAT32: "fp32",
    DataType.FLOAT64: "fp64",
    DataType.FLOAT16: "fp16",
    DataType.BFLOAT16: "bf16",
}


def resolve(precision: str, stored: DataType) -> str:
    """The precision that ``precision`` means for a model stored as ``stored``; NotSupportedError if it has no model."""
    supported = ", ".join(sorted(SUPPORTED))
    if precision not in PRECISIONS:
        raise NotSupportedError(f"unknown precision '{precision}'; choose from {', '.join(PRECISIONS)}")
    if precision == "auto":
        name = _NAMES.get(stored, stored.label)
        if name not in SUPPORTED:
            raise NotSupportedError(
                f"the model is stored in {name}, which has no predictors yet; supported now: {supported} "
                f"(--precision fp32 analyses it as if it were stored in float32)"
            )
        return name
    if precision not in SUPPORTED:
        raise NotSupportedError(f"precision '{precision}' has no predictors yet; supported now: {supported}")
    return precision
