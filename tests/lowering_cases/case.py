"""A case of lowering: nodes, and the kernels of the last one."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnx import TensorProto

from neusight_onnx.kernels import Elementwise, Movement

INT8, UINT8, INT32, INT64, BOOL, STRING, F16 = (
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
    TensorProto.FLOAT16,
)
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Nodes, and the kernels of the last one: (class, what its fields or figures must be)."""

    name: str
    nodes: str
    inputs: Shapes
    expected: list[tuple[type, dict[str, object]]]
    weights: Shapes = field(default_factory=dict)
    constants: dict[str, object] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    opset: int = 17
    runtime: str = "eager"


def ew(*operations: str, read: int, written: int) -> tuple[type, dict[str, object]]:
    return Elementwise, {"operations": operations, "read_bytes": read, "write_bytes": written}


def moved(operation: str, read: int, written: int) -> tuple[type, dict[str, object]]:
    return Movement, {"operation": operation, "read_bytes": read, "write_bytes": written}
