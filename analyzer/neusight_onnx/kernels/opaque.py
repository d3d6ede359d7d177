"""Work without a class of its own."""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.dtypes import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """Real work that fits no other class (FFT, tree ensembles, string kernels that are not on the host, …)."""

    operation: str
    operation_count: int
    dtype: DataType
    read: int
    written: int

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.operation_count

    @property
    def read_bytes(self) -> int:
        return self.read

    @property
    def write_bytes(self) -> int:
        return self.written
