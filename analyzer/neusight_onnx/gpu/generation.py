"""Which matrix instructions a GPU's library kernels are written in, and what that is taken from where nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from neusight_onnx.gpu.spec import GpuSpec

Instructions = Literal["mma", "wgmma", "tcgen05"]

NEWEST_KNOWN = 12.1
"""Compute capability of the newest generation that is known here: consumer Blackwell (12.0; 12.1 is the GB10's)."""

MOST_OF_MMA = 2048.0
"""Dense FLOPs of 16 bits a clock and SM of the fastest units that ``mma`` serves (A100; its white paper). Its operands
come from registers; every faster unit has had instructions that read shared memory (Hopper 4,096, Blackwell 8,192)."""

MOST_OF_WGMMA = 4096.0
"""The same of the fastest units that WGMMA serves (Hopper)."""

_SLACK = 1.4
"""As of ``sense.MOST_OF_DENSE``: peaks are stated at other clocks than the boost clock."""

MMA_SHARE: Mapping[Instructions, float] = {"mma": 1.0, "wgmma": 0.629, "tcgen05": 0.315}
"""Share of the dense peak that mma instructions reach, by those that set it: 62.9 % on Hopper (Luo et al. 2024,
"Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking"); on data-centre Blackwell, whose
peak is twice Hopper's a clock and SM, taken as so many FLOPs a clock as Hopper's, which nobody measured publicly."""


def is_unknown(gpu: GpuSpec) -> bool:
    """Whether a GPU is of a generation after all that are known."""
    return gpu.compute_capability is not None and gpu.compute_capability > NEWEST_KNOWN


def instructions(gpu: GpuSpec) -> Instructions:
    """``mma`` before Hopper, on GeForce and workstation cards after it and on AMD's GPUs; WGMMA on Hopper; tcgen05 on
    Blackwell for data centres. A generation that isn't known has tcgen05 where its figures are of such a GPU."""
    capability = gpu.compute_capability
    if capability is None or capability < 9.0:
        return "mma"
    if capability < 10.0:
        return "wgmma"
    if capability < 12.0 or (is_unknown(gpu) and _of_a_data_centre(gpu) is not None):
        return "tcgen05"
    return "mma"


def _of_a_data_centre(gpu: GpuSpec) -> str | None:
    """What of a GPU's figures says that it is made for data centres; None where nothing does."""
    if gpu.memory_type.upper().startswith("HBM"):
        return f"it has {gpu.memory_type}"
    rate = _flops_a_clock(gpu)
    return f"an SM does {rate:,.0f} FLOPs of 16 bits a clock" if rate > _SLACK * MOST_OF_MMA else None


def mma_share(gpu: GpuSpec) -> float:
    """Share of the dense peak that mma instructions reach on a GPU.

    Of a generation that isn't known, that of the known one whose units have its FLOPs a clock and SM: so many by mma
    there are already, and no generation has had fewer than the one before.
    """
    if not is_unknown(gpu):
        return MMA_SHARE[instructions(gpu)]
    rate = _flops_a_clock(gpu) / _SLACK
    return MMA_SHARE["mma" if rate <= MOST_OF_MMA else "wgmma" if rate <= MOST_OF_WGMMA else "tcgen05"]


def _flops_a_clock(gpu: GpuSpec) -> float:
    """Dense FLOPs of 16 bits a clock and SM."""
    return max(gpu.peak_flops_per_s.get(pipe, 0.0) for pipe in ("fp16", "bf16")) / (gpu.sm_count * gpu.clock_hz)


def said_of_unknown(gpu: GpuSpec) -> str | None:
    """Which instructions an unknown generation is taken to have, and why; None of a known one."""
    if not is_unknown(gpu):
        return None
    why = _of_a_data_centre(gpu)
    taken = (
        f"those of data-centre Blackwell (compute capability 10.0, tcgen05), because {why}"
        if why is not None
        else "those of consumer Blackwell (compute capability 12.0, mma), because it has no HBM and an SM does "
        f"{MOST_OF_MMA:,.0f} FLOPs of 16 bits a clock or fewer"
    )
    of_mma = (
        f"kernels in mma alone, as FlashAttention 2, reach {100 * mma_share(gpu):.0f} % of the peak, which is "
        "what a known SM of such a rate gives them; "
        if instructions(gpu) != "mma"
        else ""
    )
    return (
        f"compute capability {gpu.compute_capability:.1f} is of a generation after those that are known (to "
        f"{NEWEST_KNOWN:.1f}): its matrix instructions are taken to be {taken}; {of_mma}intervals are wider for it"
    )
