"""Copies between host and GPU, and what the CPU computes."""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels.opaque import TreeWalk


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy between host and GPU over PCIe: ``direction`` is "to_host" or "to_device".

    ``is_waited_for``: the host goes on only when it has ended.
    """

    direction: str
    dtype: DataType
    byte_count: int
    is_waited_for: bool = True

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return 0

    @property
    def read_bytes(self) -> int:
        return self.byte_count

    @property
    def write_bytes(self) -> int:
        return self.byte_count


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """An operator that the CPU computes, the GPU waiting. ``mac_count``: of its operations, the multiply-adds of
    products and convolutions of ``dtype``. ``walk`` is as in :class:`Opaque`."""

    operation: str
    operation_count: int
    dtype: DataType
    read: int
    written: int
    mac_count: int = 0
    walk: TreeWalk | None = None

    @property
    def macs(self) -> int:
        return self.mac_count

    @property
    def flops(self) -> int:
        return self.operation_count

    @property
    def read_bytes(self) -> int:
        return self.read

    @property
    def write_bytes(self) -> int:
        return self.written
