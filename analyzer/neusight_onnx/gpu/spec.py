"""GpuSpec: what is known of a GPU, in base units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from neusight_onnx.dtypes import DataType


@lru_cache(maxsize=64)
def plain_architecture(written: str) -> str:
    """An architecture in one spelling: "cdna3" of "CDNA3", "CDNA 3", "cdna-3" and "AMD CDNA™ 3"."""
    return re.sub(r"[\s_™-]|^amd|\(tm\)", "", written.casefold())


CDNA_FP32_RATE = 256.0
"""FLOPs in FP32 a clock of a compute unit's matrix cores, on CDNA to CDNA4 (AMD's white papers: 46.1 TFLOP/s of an
MI100's 120 at 1.502 GHz, 163.4 of an MI300X's 304 at 2.1 GHz)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU (one die where a card carries several and software sees each as a device).

    Rates are dense peaks at the boost clock. ``peak_flops_per_s`` is keyed by the number format of the
    *pipe*: "fp32" (vector lanes), "fp32_matrix" (AMD's matrix cores in FP32), "tf32", "fp16", "bf16", "fp8",
    "int8", "fp4"; a format that the GPU lacks is absent. ``fp16``, ``bf16`` and ``fp8`` accumulate in FP32;
    "fp16_accumulate" is FP16 accumulating in FP16, where a file states it (:attr:`fp16_accumulate_flops_per_s`).
    ``sm_count`` counts SMs (NVIDIA) or compute units (AMD).
    ``shared_memory_bytes_per_sm`` and others may be None where no source states them.
    ``l1_bytes_per_sm`` is the capacity of the L1 cache, on NVIDIA since Volta shared with shared memory.
    ``last_level_cache_bytes``: a memory-side cache behind the L2 (AMD's Infinity Cache); no law reads it.
    ``idle_power_w``: what it draws with its clocks up and nothing to do; None: by its memory (``gpu/power.py``).
    ``stated_to_halve``: :attr:`halves_fp32_sums` of a GPU whose rates may no longer tell it; None: they do.
    ``memory_bus_bits``: width of the bus to memory; with HBM it tells how fast one of its channels is.
    ``inline_ecc``: 1 where ECC's codes lie among the data of GDDR, 0 where they don't; None: by
    :attr:`has_inline_ecc`.
    ``gpus_per_card``: how many such GPUs a card or module has, which is sold and rented whole; None: one.
    ``device_names`` are what ``nvidia-smi`` and PyTorch print. ``name`` is the canonical name, ``label`` for people.
    ``asked_as`` is the name that it was asked by where that isn't its alone: ``also_named`` are the GPUs that may be
    meant as well ("v100"); without any, it is that of a machine that a cloud rents, with one such GPU or several.
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
    idle_power_w: float | None = None
    last_level_cache_bytes: int | None = None
    memory_bus_bits: int | None = None
    inline_ecc: int | None = None
    scaleup_bytes_per_s: float | None = None
    pcie_generation: float | None = None
    pcie_lane_count: int | None = None
    gpus_per_card: int | None = None
    stated_to_halve: bool | None = None
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    device_names: tuple[str, ...] = ()
    asked_as: str | None = field(default=None, compare=False)
    also_named: tuple[str, ...] = field(default=(), compare=False)

    def peak(self, dtype: DataType) -> float:
        """FLOP/s of the plain (vector, IEEE) pipe for ``dtype``: FP32 lanes for every type without its own."""
        return self.peak_flops_per_s["fp32"] if dtype is not DataType.FLOAT64 else self.peak_flops_per_s["fp32"] / 2

    @property
    def shares_memory(self) -> bool:
        """Whether the GPU's memory is the CPU's: LPDDR, which systems on a chip have and cards don't."""
        return self.memory_type.upper().startswith("LPDDR")

    @property
    def halves_fp32_sums(self) -> bool:
        """Whether matrix units run FP16 at half their rate where they accumulate in FP32: GeForce cards of NVIDIA's.

        They are told by a rate of FP16 that is a quarter of the 8-bit integers', where all others have half of it.
        """
        if self.stated_to_halve is not None:
            return self.stated_to_halve
        peaks = self.peak_flops_per_s
        return self.compute_capability is not None and peaks.get("int8", 0.0) > 3.0 * peaks.get("fp16", float("inf"))

    @property
    def has_inline_ecc(self) -> bool:
        """Whether ECC takes bandwidth of a card with GDDR: as stated, else of all but GeForce cards."""
        if self.inline_ecc is not None:
            return bool(self.inline_ecc)
        return self.memory_type.upper().startswith("GDDR") and not self.halves_fp32_sums

    @property
    def amd_generation(self) -> str:
        """The architecture of an AMD GPU in one spelling, "" of others."""
        return plain_architecture(self.architecture) if self.vendor.casefold() == "amd" else ""

    @property
    def fp32_matrix_flops_per_s(self) -> float | None:
        """Dense peak of matrix cores that take FP32: AMD's CDNA has them, no other GPU does.

        What the file states, else :data:`CDNA_FP32_RATE` a clock and compute unit.
        """
        stated = self.peak_flops_per_s.get("fp32_matrix")
        if stated is not None or not self.amd_generation.startswith("cdna"):
            return stated
        return CDNA_FP32_RATE * self.sm_count * self.clock_hz

    @property
    def has_matrix_units(self) -> bool:
        """Whether products run on units of their own: NVIDIA's since Volta, AMD's CDNA; else on vector lanes (Pascal's
        8-bit dot products, packed halves of GCN and RDNA)."""
        if self.compute_capability is None:
            return self.fp32_matrix_flops_per_s is not None
        return self.compute_capability >= 7.0

    @property
    def int8_on_lanes(self) -> bool:
        """Whether 8-bit integers are multiplied by vector lanes (DP4A): NVIDIA's before Xavier and Turing, whose tensor
        cores were the first that take them. Volta's take FP16 alone."""
        return self.compute_capability is not None and self.compute_capability < 7.2

    @property
    def fp16_accumulate_flops_per_s(self) -> float | None:
        """Dense peak of FP16 that accumulates in FP16; None without matrix units for FP16.

        What the file states, else that of FP32 sums, twice of it where those are halved: NVIDIA's white papers of
        Turing, GA102 (RTX 3090: 142 and 71 TFLOPS), Ada (RTX 4090: 330.3 and 165.2) and RTX Blackwell (RTX 5090: 419
        and 209.5) state both. On all other cards the two are alike.
        """
        peaks = self.peak_flops_per_s
        if "fp16_accumulate" in peaks or "fp16" not in peaks:
            return peaks.get("fp16_accumulate")
        return peaks["fp16"] * (2.0 if self.halves_fp32_sums else 1.0)
