"""What DRAM and L2 deliver: achieved fractions by memory family, cache residency, the roofline.

Families are told apart by fields of the spec (vendor, compute capability, architecture, memory type), never by a
GPU's name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Constant, Constants, Reuse


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFamily:
    """GPUs whose streaming kernels reach the same share of the data sheet's DRAM bandwidth.

    ``fraction`` is achieved / peak for kernels that read and write (copies, elementwise); ``log_sd`` how far it is
    to be trusted (standard deviation in log), before fitting. ``fitted``: FP32 kernels of such GPUs are in the training
    data; a family without them stays at its prior, and ``log_sd`` widens the interval of its GPUs. ``by_channel``:
    ``fraction`` is that of a channel of ``CHANNEL_GB_S``, from which :func:`channel_share` tells every other.
    """

    name: str
    fraction: float
    log_sd: float
    source: str
    fitted: bool = False
    by_channel: bool = False


PASCAL_TURING = MemoryFamily(
    name="pascal_turing",
    fraction=0.751,
    log_sd=0.03,
    source="FP32 elementwise kernels, event-timed: P4 .752, P100 .755, T4 .746; P100's HBM2 is no better than GDDR",
    fitted=True,
)
HBM = MemoryFamily(
    name="hbm",
    fraction=0.893,
    log_sd=0.03,
    source="FP32 elementwise kernels, event-timed: A100-40GB .893, whose channels deliver 19.4 GB/s each; V100 (14.0) "
    ".923",
    fitted=True,
    by_channel=True,
)
GDDR6_ECC = MemoryFamily(
    name="gddr6",
    fraction=0.75,
    log_sd=0.08,
    source="taken from the two measured cards with GDDR and ECC, T4 .746 and P4 .752; ECC is in line and on by default "
    "on data-centre cards",
)
GDDR6_BARE = MemoryFamily(
    name="gddr6_bare",
    fraction=0.90,
    log_sd=0.08,
    source="GeForce cards have no ECC, whose codes lie among the data and take an eighth or so of the bandwidth, and "
    "it is off by default on workstation cards. Not measured by elementwise kernels. Weights of products of up to 8 "
    "rows stream at .92-.97 of the peak on an RTX A6000, at .85-.92 on an RTX 3090 (LLMServingSim's profiles of Llama "
    "3.1 8B): no less than from GDDR6X. An RTX 2080 Ti's copies reach .85-.9, as remembered",
)
GDDR6X = MemoryFamily(
    name="gddr6x",
    fraction=0.90,
    log_sd=0.06,
    source="not measured: public STREAM results of RTX 3090 and 4090, as remembered, are .90-.93, and a kernel with a "
    "tail reaches a little less. GDDR7 assumed alike",
)
LPDDR = MemoryFamily(
    name="lpddr",
    fraction=0.80,
    log_sd=0.10,
    source="assumed between GDDR6 with ECC and without: it is shared with the CPU's traffic, no measurement at hand",
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

MEMORY_FAMILIES: tuple[MemoryFamily, ...] = (
    PASCAL_TURING,
    HBM,
    GDDR6_ECC,
    GDDR6_BARE,
    GDDR6X,
    LPDDR,
    CDNA,
    CDNA3,
)


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
        return CDNA3 if gpu.amd_generation.startswith(("cdna3", "cdna4")) else CDNA
    version = capability(gpu)
    if version >= 7.5 and memory == "GDDR6" and not gpu.has_inline_ecc:
        return GDDR6_BARE
    if version < 7.0 or version == 7.5:
        return PASCAL_TURING
    if memory.startswith("HBM"):
        return HBM
    if memory.startswith(("GDDR6X", "GDDR7")):
        return GDDR6X
    if memory.startswith("LPDDR"):
        return LPDDR
    return GDDR6_ECC


DRAM_CONSTANTS: tuple[Constant, ...] = tuple(
    Constant(name=f"dram_{family.name}", prior=family.fraction, prior_log_sd=family.log_sd, source=family.source)
    for family in MEMORY_FAMILIES
    if family is not GDDR6_BARE
)
"""The fractions as constants of a law: families with measurements are fitted, the others stay at their prior. Cards
without ECC have no row that would fit one, and the table's share."""


CHANNEL_GB_S = 19.4375
"""Rate of one of the A100-40GB's channels: 1,555 GB/s over 5,120 bits in (pseudo) channels of 64. The anchor of
``HBM``."""
HBM2_CHANNEL_BITS = 64
HBM3_CHANNEL_BITS = 32
"""Width of a pseudo channel, which opens rows and turns around by itself: a stack's 1,024 bits are 16 of them in HBM2
and HBM2E (JEDEC JESD235), 32 in HBM3 and HBM3E (JESD238)."""
HBM_PIN_GBIT_S = {"HBM2": 2.0, "HBM2E": 3.2, "HBM3": 5.2, "HBM3E": 6.4}
"""What a pin delivers where the width of the memory's bus isn't stated: the speed at which most of a kind is sold."""


def channel_gb_s(gpu: GpuSpec) -> float:
    """GB/s of one pseudo channel of HBM, from the width of the bus, else what that kind of memory usually has."""
    kind = gpu.memory_type.upper()
    bits = HBM3_CHANNEL_BITS if kind.startswith(("HBM3", "HBM4")) else HBM2_CHANNEL_BITS
    if gpu.memory_bus_bits:
        return gpu.memory_bytes_per_s / 1e9 * bits / gpu.memory_bus_bits
    return bits / 8 * HBM_PIN_GBIT_S.get(kind, HBM_PIN_GBIT_S["HBM3E" if bits == HBM3_CHANNEL_BITS else "HBM2"])


def has_partitioned_l2(gpu: GpuSpec) -> bool:
    """Whether L2 is two partitions: NVIDIA's dies with HBM since Ampere (A100 white paper)."""
    return gpu.memory_type.upper().startswith("HBM") and (gpu.compute_capability or 0.0) >= 8.0


def channel_share(gpu: GpuSpec, anchor: float) -> float:
    """Share of the peak that channels of HBM deliver, if those of ``CHANNEL_GB_S`` deliver ``anchor``.

    What a channel loses (opening rows, turning from reads to writes, refreshing) takes so many ns a byte moved whatever
    its speed, since cells did not become faster: a byte takes 1 / rate + loss, and the share is 1 / (1 + rate x loss).
    One loss takes V100 and A100-40GB to their .923 and .893 within .002; the A100 left out, it is predicted at .897.
    """
    loss = (1.0 / anchor - 1.0) / CHANNEL_GB_S
    return 1.0 / (1.0 + channel_gb_s(gpu) * loss)


def achieved_fraction(gpu: GpuSpec, constants: Constants) -> float:
    """Share of the data sheet's DRAM bandwidth that a streaming kernel gets: ``constants``', else the table's."""
    family = memory_family(gpu)
    fraction = min(1.0, constants.get(f"dram_{family.name}", family.fraction))
    return channel_share(gpu, fraction) if family.by_channel else fraction


def dram_doubt_log_sd(gpu: GpuSpec) -> float:
    """Standard deviation (log) of the DRAM rate on a GPU that was not measured, beyond what left-out GPUs show.

    Zero where the training data shows the memory family. A channel's loss was told from two GPUs with HBM2, and no
    HBM2E or HBM3 is among them: leaving one out proves little there.
    """
    family = memory_family(gpu)
    return 0.0 if family.fitted and not family.by_channel else family.log_sd


def dram_bytes_per_s(gpu: GpuSpec, constants: Constants) -> float:
    """Bytes/s that a streaming kernel gets from DRAM, by ``constants`` or, where they lack it, by the table."""
    return gpu.memory_bytes_per_s * achieved_fraction(gpu, constants)


L2_BYTES_PER_CLOCK_PER_SM = 20.0
"""Micro-benchmarks of L2 read bandwidth (Jia et al. 2018/2019, "Dissecting the NVIDIA Volta/Turing GPU architecture"):
V100 2155 GB/s = 19.5 bytes a clock and SM, T4 1270 = 20, P100 1624 = 21.8; A100 3235 = 21.2 (PipeWeave)."""


L2_BYTES_PER_CLOCK_PER_HOPPER_SM = 33.7
"""The same of Hopper: H100 8,820 GB/s (PipeWeave). Data-centre Blackwell is taken to have no less."""


L2_BYTES_PER_CLOCK_PER_GDDR_SM = 17.0
"""The same of cards with GDDR since Ampere (compute capability 8.6 and later, but for 9 and 10): A40 16.6, RTX A6000
17.9, L20 17.3, L40 16.0, RTX 6000 Ada 17.8, RTX PRO 6000 15.1 at its boost clock and 16.9 at that which PipeWeave
states; an RTX 4090's 5-5.5 TB/s (public micro-benchmarks, as remembered) are 16-17."""


CDNA3_L2_BYTES_PER_CLOCK_PER_BYTE = 2048.0 / 2**22
CDNA3_CU_BYTES_PER_CLOCK = 64.0
CDNA3_L2_SHARE = 0.6
"""CDNA3 and CDNA4: each die's 4 MiB of L2 read 2 KB a clock (16 channels of 128 bytes: AMD's CDNA 3 white paper, as
remembered), a compute unit takes a line of 64 bytes of it. What streams get of that is taken from NVIDIA's: V100's
2,155 GB/s are .76 of 2,048 bytes a clock, A100's 3,235 .45 of 5,120 (A100 white paper). That is above the Infinity
Cache's 17 TB/s on MI300X. Not measured; earlier AMD GPUs are taken to be as NVIDIA's SMs."""


L2_LEAST_OVER_DRAM = 1.2
"""An L2 is quicker than the memory behind it, which is all that is known where its rate comes out below: assumed."""


L2_LOG_SD, L2_LOG_SD_OF_HOPPER, L2_LOG_SD_OF_AMD = 0.07, 0.3, 0.3
"""How far such rates lie from the constants (log), of an SM: the GPUs named with them differ by 6-7 % from each other.
Of Hopper two dies are known that have the same L2's rate in all, an H100's 132 SMs and an H20's 78 (8,815 GB/s by
PipeWeave): what is cut is not the L2. Of AMD no
rate was measured: a judgement, of as much."""


def l2_doubt_log_sd(gpu: GpuSpec) -> float:
    """Standard deviation (log) of the L2's rate where the spec doesn't state it."""
    if gpu.l2_bytes_per_s:
        return 0.0
    if is_amd(gpu):
        return L2_LOG_SD_OF_AMD
    return L2_LOG_SD_OF_HOPPER if 9.0 <= capability(gpu) < 12.0 else L2_LOG_SD


def stream_doubt_log_sd(gpu: GpuSpec, memory_us: Column, l2_us: Column, latency_us: Column) -> Column:
    """Standard deviation (log) of a kernel that streams, by how much of its time DRAM takes, and the L2 beyond it."""
    dram = dram_doubt_log_sd(gpu) * np.minimum(memory_us / latency_us, 1.0)
    l2 = l2_doubt_log_sd(gpu) * np.clip((l2_us - memory_us) / latency_us, 0.0, 1.0)
    return np.asarray(np.hypot(dram, l2), dtype=np.float64)


def l2_bytes_per_s(gpu: GpuSpec) -> float:
    """L2 bandwidth: the spec's, else so many bytes a clock and SM; at least ``L2_LEAST_OVER_DRAM`` times DRAM's."""
    version = capability(gpu)
    bytes_per_clock = L2_BYTES_PER_CLOCK_PER_SM
    if not is_amd(gpu) and 9.0 <= version < 12.0:
        bytes_per_clock = L2_BYTES_PER_CLOCK_PER_HOPPER_SM
    elif not is_amd(gpu) and version > 8.0:
        bytes_per_clock = L2_BYTES_PER_CLOCK_PER_GDDR_SM
    a_clock = bytes_per_clock * gpu.sm_count
    if gpu.amd_generation.startswith(("cdna3", "cdna4")):
        read = min(CDNA3_L2_BYTES_PER_CLOCK_PER_BYTE * gpu.l2_bytes, CDNA3_CU_BYTES_PER_CLOCK * gpu.sm_count)
        a_clock = CDNA3_L2_SHARE * read
    return max(gpu.l2_bytes_per_s or a_clock * gpu.clock_hz, L2_LEAST_OVER_DRAM * gpu.memory_bytes_per_s)


L2_HALF = 0.80
L2_SHARPNESS = 12.0
"""Elementwise kernels over the same tensors again and again on an A100-40GB (40 MB of L2): 28 MB still stream faster
than DRAM could, 36 MB stream at DRAM speed; half of the bytes miss at .8 of the capacity."""


def l2_miss_fraction(working_set_bytes: Column, gpu: GpuSpec) -> Column:
    """Share of re-used bytes that come from DRAM when ``working_set_bytes`` lie between use and re-use; 0..1."""
    x = np.maximum(working_set_bytes, 1.0) / (L2_HALF * max(gpu.l2_bytes, 1))
    return np.asarray(1.0 / (1.0 + x**-L2_SHARPNESS), dtype=np.float64)


REUSE_DISTANCE = 3.0
"""Bytes that pass between two uses of a line, over those of one kernel: in a model a kernel reads what the one before
wrote, beside an operand that is a few kernels old, and writes where one of the last few results lay. Assumed, to be on
the safe side of kernels that are timed again and again on the same tensors; :func:`reuse` says what hangs on it."""


def missed_bytes(bytes_: Column, gpu: GpuSpec) -> Column:
    """Bytes that DRAM is assumed to deliver: of lines that are replaced at random, exp(-distance / L2) survive."""
    return np.asarray(bytes_ * -np.expm1(-REUSE_DISTANCE * bytes_ / max(gpu.l2_bytes, 1)), dtype=np.float64)


def stream_ideal_us(flops: Column, bytes_: Column, flops_per_s: float, gpu: GpuSpec) -> Column:
    """The roofline of a kernel that streams its operands, in us: what no interval goes below; above 0.

    The peak of the pipe, data-sheet DRAM bandwidth for what the L2 doesn't hold even of a kernel that follows itself,
    or twice the L2's measured bandwidth, whichever binds.
    """
    missed = np.minimum(bytes_ * l2_miss_fraction(bytes_, gpu), missed_bytes(bytes_, gpu))
    memory = missed / gpu.memory_bytes_per_s
    l2 = bytes_ / (2.0 * l2_bytes_per_s(gpu))
    return np.maximum(np.maximum(np.maximum(flops / flops_per_s, memory), l2) * 1e6, 1e-6)


def reuse(bytes_: Column, latency_us: Column, launch_us: Column | float, dram: float, gpu: GpuSpec) -> Reuse:
    """What hangs on ``REUSE_DISTANCE`` in the time of a kernel of so many unique bytes.

    ``latency_us``: the time without it, where the L2 holds what fits; ``dram``: bytes/s that DRAM delivers.
    """
    missed = missed_bytes(bytes_, gpu)
    memory_us = missed / gpu.memory_bytes_per_s * 1e6
    found = np.maximum(latency_us, memory_us)
    from_dram_us = launch_us + missed / dram * 1e6
    return Reuse(memory_us=memory_us, less=latency_us / found, more=np.maximum(from_dram_us / found, 1.0))


def p_norm(terms: tuple[Column, ...], power: float | Column) -> Column:
    """Smooth maximum of competing times, overflow-safe: (sum t^power)^(1/power)."""
    stacked = np.stack(terms)
    top = np.maximum(stacked.max(axis=0), 1e-12)
    return np.asarray(top * ((stacked / top) ** power).sum(axis=0) ** (1.0 / power), dtype=np.float64)
