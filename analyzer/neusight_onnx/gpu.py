"""GpuSpec: what is known of a GPU. Files hold datasheet units; in here everything is in base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neusight_onnx.dtypes import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU (one die where a card carries several and software sees each as a device).

    Rates are dense peaks at the boost clock. ``peak_flops_per_s`` is keyed by the number format of the
    *pipe*: "fp32" (vector lanes), "fp32_matrix" (AMD's matrix cores in FP32), "tf32", "fp16", "bf16", "fp8",
    "int8", "fp4"; a format that the GPU lacks is absent. ``sm_count`` counts SMs (NVIDIA) or compute units (AMD).
    ``shared_memory_bytes_per_sm`` and others may be None where no source states them.
    """

    name: str
    label: str
    vendor: str
    architecture: str
    compute_capability: float | None
    process_nm: float
    sm_count: int
    fp32_lanes_per_sm: int
    clock_hz: float
    warp_size: int
    memory_bytes: int
    memory_type: str
    memory_bytes_per_s: float
    l2_bytes: int
    l1_bytes_per_sm: int | None
    shared_memory_bytes_per_sm: int | None
    register_bytes_per_sm: int | None
    max_threads_per_sm: int
    power_w: float
    peak_flops_per_s: Mapping[str, float]
    l2_bytes_per_s: float | None = None
    scaleup_bytes_per_s: float | None = None
    pcie_generation: float | None = None
    sources: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def peak(self, dtype: DataType) -> float:
        """FLOP/s of the plain (vector, IEEE) pipe for ``dtype``: FP32 lanes for every type without its own."""
        return self.peak_flops_per_s["fp32"] if dtype is not DataType.FLOAT64 else self.peak_flops_per_s["fp32"] / 2
