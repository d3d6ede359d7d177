"""The dtype and shape of a tensor that a kernel touches."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from neusight_onnx.dtypes import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Dtype and shape of a tensor that a kernel touches."""

    dtype: DataType
    shape: tuple[int, ...]

    @property
    def element_count(self) -> int:
        return prod(self.shape)

    @property
    def byte_count(self) -> int:
        return self.dtype.bytes_of(self.element_count)


def bytes_of(specs: tuple[TensorSpec, ...]) -> int:
    return sum(spec.byte_count for spec in specs)
