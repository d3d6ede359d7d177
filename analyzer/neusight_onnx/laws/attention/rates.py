"""What a GPU gives fused attention: FLOP/s of the pipe, exponentials, shared memory, streams of DRAM."""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions, mma_share
from neusight_onnx.laws.attention import memory_efficient
from neusight_onnx.laws.attention.kernel_choice import MEMORY_EFFICIENT, has_narrow_keys, unit_of
from neusight_onnx.laws.bandwidth import capability, channel_share, is_amd, memory_family
from neusight_onnx.laws.base import Column, Columns
from neusight_onnx.laws.matrix_units import PIPES, rate_share

STREAM_FRACTIONS = {
    "pascal_turing": 0.751,
    "gddr6": 0.80,
    "gddr6_bare": 0.90,
    "gddr6x": 0.90,
    "lpddr": 0.80,
    "amd": 0.848,
    "amd_cdna3": 0.80,
}
"""Share of the DRAM peak that streams get, by memory family: with these the law was fitted. They are its own, since
kernels in 16 and 8 bits (quantise kernels, streamed weights: L40S .76-.84, RTX 3090 and 4090 .85-.94) have set some."""

EXPONENTIALS_PER_CLOCK = 16.0
"""Of an SM's special-function units: 16 results a clock (CUDA C++ Programming Guide, throughput of arithmetic
instructions, 8.0 to 10.x), which FlashAttention 3 (Shah et al. 2024) names as the limit next to the products. CDNA's
transcendentals run at a quarter of the rate of its 64 lanes (AMD CDNA 3 ISA), which is the same."""

QUICK_EXPONENTIALS_PER_CLOCK = 32.0
"""The same of Blackwell Ultra (compute capability 10.3), whose special-function units NVIDIA doubled for attention (as
remembered); FlashAttention 4 computes no exponential by polynomials there ("fast hardware ex2", ``is_sm103`` in
``flash_fwd_sm100.py``). Nothing was measured."""

SHARED_BYTES = 100.0 * 1024.0
"""Shared memory of an SM where the spec states none: that of compute capability 8.6, 8.9 and 12.x (CUDA C++ Programming
Guide, technical specifications)."""

SHARED_BYTES_PER_CLOCK = 128.0
"""Of an SM: 32 banks of four bytes (CUDA C++ Programming Guide)."""


def pipe_indices(cols: Columns, gpu: GpuSpec) -> Column:
    """Each kernel's pipe: with keys in 8 bits Hopper and Blackwell convert the queries, others the keys."""
    if instructions(gpu) == "mma":
        return cols["pipe"]
    return np.where(has_narrow_keys(cols), float(PIPES.index("fp8")), cols["pipe"])


def instruction_rates(cols: Columns, gpu: GpuSpec) -> Column:
    """FLOP/s that the instructions which the kernels are written in reach at most.

    With the share of ``mma`` FlashAttention 2 comes out at 320 and 379 TFLOP/s on an H100 for heads of 64 and 128; its
    authors say 35 % of the peak, 346 (Shah et al. 2024).
    """
    peaks = dense_peaks(cols, gpu)
    return peaks if unit_of(cols, gpu) == instructions(gpu) else peaks * mma_share(gpu)


def dense_peaks(cols: Columns, gpu: GpuSpec) -> Column:
    """Dense FLOP/s of each kernel's pipe; a format that the GPU lacks runs on the 16-bit one, else on vector lanes."""
    if MEMORY_EFFICIENT in cols:
        return memory_efficient.rate(cols, gpu)
    peaks = gpu.peak_flops_per_s
    wider = peaks.get("fp16", peaks.get("bf16", peaks["fp32"]))
    found: Column = np.array([peaks.get(name, wider) for name in PIPES])[pipe_indices(cols, gpu).astype(np.int64)]
    return found


def share_of_full_rate(cols: Columns, gpu: GpuSpec) -> Column:
    """Rate of each kernel's pipe over that of an SM that isn't halved (GeForce cards halve sums in FP32), 0..1.

    FP32 on matrix units is three products in TF32, which is halved where 16 bits are; on vector lanes nothing is.
    """
    share = rate_share(gpu, pipe_indices(cols, gpu), np.minimum(cols["query_bytes"], 2.0))
    if MEMORY_EFFICIENT in cols and "tf32" not in gpu.peak_flops_per_s:
        share = np.where(cols["query_bytes"] > 2.0, 1.0, share)
    return share


def exponentials_per_clock(gpu: GpuSpec) -> float:
    """Results a clock of an SM's special-function units."""
    is_ultra = not is_amd(gpu) and 10.3 <= capability(gpu) < 11.0
    return QUICK_EXPONENTIALS_PER_CLOCK if is_ultra else EXPONENTIALS_PER_CLOCK


def shared_bytes_of(gpu: GpuSpec) -> float:
    """Shared memory of an SM."""
    return float(gpu.shared_memory_bytes_per_sm or SHARED_BYTES)


def stream_fraction(gpu: GpuSpec) -> float:
    """Share of the DRAM peak that streams get; of HBM what its channels deliver (``bandwidth.channel_share``)."""
    family = memory_family(gpu)
    return channel_share(gpu, family.fraction) if family.by_channel else STREAM_FRACTIONS[family.name]
