"""How long the SMs take to issue the instructions of ONNX Runtime's own CUDA kernels.

Those kernels load and store one element at a time, four a thread, find each by 64-bit addresses, and where operands
broadcast or places move by a division a dimension; sums of rows are kept by Welford's formula with a division a step.
Each of an SM's four schedulers issues a warp's instruction a clock, so that a kernel of ``i`` instructions an element
takes at least::

    Ti = n * i / (lanes issued for * SMs * clock)

which competes with its bytes (other warps issue while one waits). On GPUs whose memory is quick for their SMs (HBM)
it is often the larger of the two. The counts stand in :mod:`neusight_onnx.laws.issue_counts`.

Kernels that aren't in the table (cuDNN's, cuBLAS's, copies by the driver) have no such bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Elementwise, GatherScatter, Kernel, Movement, Normalization, Reduction, Softmax
from neusight_onnx.laws.bandwidth import capability, is_amd, p_norm
from neusight_onnx.laws.base import Column
from neusight_onnx.laws.issue_counts import INSTRUCTIONS, LIBRARY
from neusight_onnx.laws.issue_elements import merged, moved, pointwise
from neusight_onnx.laws.issue_rows import attention_softmax, normalized, running_sums, softmax

__all__ = [
    "ISSUE_LANES",
    "LIBRARY",
    "SHARPNESS",
    "instructions_of",
    "instructions_per_us",
    "issue_lanes",
    "issue_us",
    "merged",
    "with_issue",
]

SHARPNESS = 8.0
"""Of the soft maximum with the time that memory and the rest take: the elementwise law's."""

ISSUE_LANES = 128.0
"""Lanes of an SM that an instruction is issued for in a clock: four schedulers of a warp each, Volta and later
(NVIDIA's white papers)."""


def instructions_of(kernel: Kernel, *, hopper: bool) -> float:
    """Instructions of all threads of a kernel by ONNX Runtime, for each lane; 0 where it isn't one that was counted."""
    match kernel:
        case Elementwise() if kernel.library == LIBRARY:
            return kernel.output.element_count * pointwise(kernel, hopper=hopper)
        case Movement() if kernel.library == LIBRARY:
            return moved(kernel, hopper=hopper)
        case GatherScatter() if kernel.library == LIBRARY and kernel.operation in ("embedding", "gather"):
            return kernel.moved * INSTRUCTIONS["gather"].each(hopper=hopper)
        case Softmax() if kernel.library == LIBRARY and kernel.by_block:
            return attention_softmax(kernel, hopper=hopper)
        case Softmax() if kernel.library == LIBRARY and not kernel.fused and not kernel.backward:
            return softmax(kernel)
        case Normalization() if kernel.library == LIBRARY and not kernel.backward:
            return normalized(kernel, hopper=hopper)
        case Reduction() if kernel.library == LIBRARY and kernel.inner == 1 and kernel.operation in ("sum", "mean"):
            return kernel.outputs * kernel.reduced * INSTRUCTIONS["reduce"].each(hopper=hopper)
        case Reduction() if kernel.library == LIBRARY and kernel.operation == "cumsum":
            return running_sums(kernel, hopper=hopper)
        case _:
            return 0.0


def issue_lanes(gpu: GpuSpec) -> float:
    """Lanes of an SM that an instruction is issued for in a clock; before Volta and on AMD, as many as it has."""
    if is_amd(gpu) or capability(gpu) < 7.0:
        return float(gpu.fp32_lanes_per_sm)
    return ISSUE_LANES


def issue_us(kernels: Sequence[Kernel], gpu: GpuSpec) -> Column | None:
    """Time that each kernel's instructions take to be issued, in us; None where none of them was counted."""
    if not any(getattr(kernel, "library", "") == LIBRARY for kernel in kernels):
        return None
    hopper = not is_amd(gpu) and capability(gpu) >= 9.0
    counts = [instructions_of(kernel, hopper=hopper) for kernel in kernels]
    return np.asarray(counts, dtype=np.float64) / instructions_per_us(gpu)


def instructions_per_us(gpu: GpuSpec) -> float:
    """Instructions, each of a lane, that the SMs issue in a microsecond at the boost clock."""
    return issue_lanes(gpu) * gpu.sm_count * gpu.clock_hz * 1e-6


def with_issue(latency_us: Column, launch_us: Column, issue: Column, sharpness: float | Column = SHARPNESS) -> Column:
    """The time of a kernel that issues while others of its warps wait for memory; not less than without."""
    body = np.maximum(latency_us - launch_us, 0.0)
    return np.asarray(np.maximum(latency_us, launch_us + p_norm((body, issue), sharpness)), dtype=np.float64)
