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
    to be trusted (standard deviation in log), before fitting. ``fitted``: FP32 kernels of such GPUs are in the training
    data; a family without them stays at its prior, and ``log_sd`` widens the interval of its GPUs. ``fabric``:
    the fraction is DRAM's alone, see :func:`fabric_share`.
    """

    name: str
    fraction: float
    log_sd: float
    source: str
    fitted: bool = False
    fabric: bool = False


PASCAL_TURING = MemoryFamily(
    name="pascal_turing",
    fraction=0.751,
    log_sd=0.03,
    source="FP32 elementwise kernels, event-timed: P4 .752, P100 .755, T4 .746; P100's HBM2 is no better than GDDR",
    fitted=True,
)
HBM = MemoryFamily(
    name="hbm",
    fraction=0.972,
    log_sd=0.03,
    source="DRAM alone, before the way to the SMs: V100 .923 and A100-40GB .893 in all (FP32 elementwise). Judged on "
    "the A100-80GB: .840 by the law, .840 in fp16 adds of 250 MB and more",
    fitted=True,
    fabric=True,
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
    fitted=True,
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


FABRIC_BYTES_PER_CLOCK_PER_SM = 20.0
FABRIC_BYTES_PER_CLOCK_PER_SM_HOPPER = 25.0
"""What an SM gets through the crossbar: L2 read bandwidth in micro-benchmarks (see ``L2_BYTES_PER_CLOCK_PER_SM``).
Hopper's is set so that the H100 comes to the middle (.89) of the .87-.91 that its quantise kernels reach."""
FABRIC_SHARPNESS = 2.3
"""How softly DRAM and crossbar limit together: what takes V100 PCIe (8.1 bytes a clock and SM) and A100-40GB (10.2) to
their .923 and .893 from one DRAM fraction."""


def fabric_share(gpu: GpuSpec) -> float:
    """Share of DRAM's rate that gets through the crossbar: (1 + (DRAM peak / crossbar)^p)^(-1/p).

    The more bytes a clock DRAM has for each SM, the more of its time it waits for requests in flight.
    """
    hopper = capability(gpu) >= 9.0
    rate = FABRIC_BYTES_PER_CLOCK_PER_SM_HOPPER if hopper else FABRIC_BYTES_PER_CLOCK_PER_SM
    ratio = gpu.memory_bytes_per_s / (rate * gpu.sm_count * gpu.clock_hz)
    return float((1.0 + ratio**FABRIC_SHARPNESS) ** (-1.0 / FABRIC_SHARPNESS))


def achieved_fraction(gpu: GpuSpec, constants: Constants) -> float:
    """Share of the data sheet's DRAM bandwidth that a streaming kernel gets: ``constants``', else the table's."""
    family = memory_family(gpu)
    fraction = min(1.0, constants.get(f"dram_{family.name}", family.fraction))
    return fraction * fabric_share(gpu) if family.fabric else fraction


def dram_doubt_log_sd(gpu: GpuSpec) -> float:
    """Standard deviation (log) of the DRAM rate on a GPU that was not measured, beyond what left-out GPUs show.

    Zero where the training data shows the memory family. The crossbar's share was told from two GPUs that are in it,
    and Hopper's isn't among them: leaving one out proves little there.
    """
    family = memory_family(gpu)
    return 0.0 if family.fitted and not family.fabric else family.log_sd


def dram_bytes_per_s(gpu: GpuSpec, constants: Constants) -> float:
    """Bytes/s that a streaming kernel gets from DRAM, by ``constants`` or, where they lack it, by the table."""
    return gpu.memory_bytes_per_s * achieved_fraction(gpu, constants)


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
