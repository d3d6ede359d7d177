"""What DRAM and L2 deliver: achieved fractions by memory family, cache residency, the roofline.

Families are told apart by fields of the spec (vendor, compute capability, architecture, memory type), never by a
GPU's name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Constant, Constants


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFamily:
    """GPUs whose streaming kernels reach the same share of the data sheet's DRAM bandwidth.

    ``fraction`` is achieved / peak for kernels that read and write (copies, elementwise); ``log_sd`` how far it is
    to be trusted (standard deviation in log), before fitting.
    """

    name: str
    fraction: float
    log_sd: float
    source: str


PASCAL_TURING = MemoryFamily(
    name="pascal_turing",
    fraction=0.751,
    log_sd=0.03,
    source="FP32 elementwise kernels, event-timed: P4 .752, P100 .755, T4 .746; P100's HBM2 is no better than GDDR",
)
HBM = MemoryFamily(
    name="hbm",
    fraction=0.90,
    log_sd=0.03,
    source="V100 .923 and A100-40GB .893 (FP32 elementwise), A100-80GB .84-.87 (fp16 add), H100 "
    ".87-.91 (quantise kernels), .86-.92 (bf16 weight streaming at m <= 4)",
)
HBM_BLACKWELL = MemoryFamily(
    name="hbm_blackwell",
    fraction=0.84,
    log_sd=0.08,
    source="B200: .79-.86 in its best large quantise kernels, .78-.86 streaming bf16 weights at m <= 4",
)
GDDR6_ECC = MemoryFamily(
    name="gddr6",
    fraction=0.80,
    log_sd=0.08,
    source="L40S .76-.80 (quantise kernels), .84 (weight streaming); ECC is stored in line and on by default on "
    "data-centre cards. Cards without ECC reach more (RTX A6000 .92 "
    "streaming weights), but no field of the spec tells them apart",
)
GDDR6X = MemoryFamily(
    name="gddr6x",
    fraction=0.90,
    log_sd=0.06,
    source="RTX 4090 .89-.94 and RTX 3090 .85-.92 streaming bf16 weights; GDDR7 assumed alike",
)
LPDDR = MemoryFamily(
    name="lpddr",
    fraction=0.80,
    log_sd=0.10,
    source="assumed as GDDR6: memory shared with the CPU's traffic, no measurement at hand",
)
CDNA = MemoryFamily(
    name="amd",
    fraction=0.848,
    log_sd=0.03,
    source="FP32 elementwise kernels, event-timed: MI100 .836, MI210 .860",
)
CDNA3 = MemoryFamily(
    name="amd_cdna3",
    fraction=0.80,
    log_sd=0.08,
    source="assumed for MI300 and later: published copies reach 4.0-4.3 of 5.3 TB/s",
)

MEMORY_FAMILIES: tuple[MemoryFamily, ...] = (PASCAL_TURING, HBM, HBM_BLACKWELL, GDDR6_ECC, GDDR6X, LPDDR, CDNA, CDNA3)


def is_amd(gpu: GpuSpec) -> bool:
    """Whether the GPU executes waves of AMD's kind (ROCm's kernels, 64 lanes on CDNA)."""
    return gpu.vendor.lower() == "amd"


def capability(gpu: GpuSpec) -> float:
    """CUDA compute capability; 0 where there is none (AMD), a modern one (9.0) where NVIDIA's is not stated."""
    if gpu.compute_capability is not None:
        return gpu.compute_capability
    return 0.0 if is_amd(gpu) else 9.0


def memory_family(gpu: GpuSpec) -> MemoryFamily:
    """The family that a GPU's memory system belongs to."""
    memory = gpu.memory_type.upper()
    if is_amd(gpu):
        recent = any(mark in gpu.architecture.upper() for mark in ("CDNA3", "CDNA4"))
        return CDNA3 if recent else CDNA
    version = capability(gpu)
    if version < 7.0 or version == 7.5:
        return PASCAL_TURING
    if memory.startswith("HBM"):
        return HBM_BLACKWELL if version >= 10.0 else HBM
    if memory.startswith(("GDDR6X", "GDDR7")):
        return GDDR6X
    if memory.startswith("LPDDR"):
        return LPDDR
    return GDDR6_ECC


DRAM_CONSTANTS: tuple[Constant, ...] = tuple(
    Constant(name=f"dram_{family.name}", prior=family.fraction, prior_log_sd=family.log_sd, source=family.source)
    for family in MEMORY_FAMILIES
)
"""The fractions as constants of a law: families with measurements are fitted, the others stay at their prior."""


def dram_bytes_per_s(gpu: GpuSpec, constants: Constants) -> float:
    """Bytes/s that a streaming kernel gets from DRAM, by ``constants`` or, where they lack it, by the table."""
    family = memory_family(gpu)
    return gpu.memory_bytes_per_s * min(1.0, constants.get(f"dram_{family.name}", family.fraction))


L2_BYTES_PER_CLOCK_PER_SM = 20.0
"""Micro-benchmarks of L2 read bandwidth (Jia et al. 2018/2019, "Dissecting the NVIDIA Volta/Turing GPU architecture"):
V100 2155 GB/s = 19.5 bytes a clock and SM, T4 1270 = 20, P100 1624 = 21.8; A100 3235 = 21.2 (PipeWeave)."""


def l2_bytes_per_s(gpu: GpuSpec) -> float:
    """L2 bandwidth: the spec's, else so many bytes a clock and SM; never less than DRAM's."""
    stated = gpu.l2_bytes_per_s or L2_BYTES_PER_CLOCK_PER_SM * gpu.sm_count * gpu.clock_hz
    return max(stated, 1.2 * gpu.memory_bytes_per_s)


L2_HALF = 0.80
L2_SHARPNESS = 12.0
"""Elementwise kernels over the same tensors again and again on an A100-40GB (40 MB of L2): 28 MB still stream faster
than DRAM could, 36 MB stream at DRAM speed; half of the bytes miss at .8 of the capacity."""


def l2_miss_fraction(working_set_bytes: Column, gpu: GpuSpec) -> Column:
    """Share of re-used bytes that come from DRAM when ``working_set_bytes`` lie between use and re-use; 0..1."""
    x = np.maximum(working_set_bytes, 1.0) / (L2_HALF * max(gpu.l2_bytes, 1))
    return np.asarray(1.0 / (1.0 + x**-L2_SHARPNESS), dtype=np.float64)


def roofline_us(flops: Column, bytes_: Column, flops_per_s: float, gpu: GpuSpec) -> Column:
    """Time at the roofline in us: peak of the pipe or data-sheet DRAM bandwidth, whichever binds; above 0."""
    return np.maximum(np.maximum(flops / flops_per_s, bytes_ / gpu.memory_bytes_per_s) * 1e6, 1e-6)


def p_norm(terms: tuple[Column, ...], power: float) -> Column:
    """Smooth maximum of competing times, overflow-safe: (sum t^power)^(1/power)."""
    stacked = np.stack(terms)
    top = np.maximum(stacked.max(axis=0), 1e-12)
    return np.asarray(top * ((stacked / top) ** power).sum(axis=0) ** (1.0 / power), dtype=np.float64)
