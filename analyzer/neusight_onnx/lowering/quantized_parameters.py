"""What quantised operators read beside numbers: scales and zero points; and the types of what they multiply."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.lowering.context import NodeContext


def parameter_bytes(context: NodeContext, *indices: int) -> int:
    """Bytes of scales and zero points; a single number costs nothing."""
    return sum(
        spec.byte_count for index in indices if context.has(index) and (spec := context.spec(index)).element_count > 1
    )


def unless_same(dtype: DataType, other: DataType) -> DataType | None:
    return None if dtype is other else dtype
