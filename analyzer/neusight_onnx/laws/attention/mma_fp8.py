"""Fused attention of 8-bit queries on mma (Ada, workstation Blackwell): what its kernels need of an SM.

TensorRT-LLM's fmha_v2, whose generator and kernels FlashInfer ships. All queries, keys, values, scores and sums of a
step stand in registers, and the output leaves through shared memory in FP32. Tiles go with the width of heads, and some
need more than there is:

- Heads of 33 to 64 and of 193 to 256: more registers than a thread can have. The compiler *spills* them: stores them to
  local memory and loads them again in every step. What the L1 doesn't hold of them goes to L2.
- Heads wider than 128: so much shared memory that an SM with 100 KB has one block, whose waiting nothing hides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Columns


class MmaFp8Kernel(NamedTuple):
    """A kernel of the library's table: the widest head it is for, and what it needs.

    ``stack_bytes`` are a thread's local memory, ``spilled_bytes`` what it stores there and loads from there in a step.
    """

    head: float
    queries: float
    keys: float
    shared_bytes: float
    stack_bytes: float
    spilled_bytes: float


MMA_FP8_KERNELS = (
    MmaFp8Kernel(head=32, queries=128, keys=128, shared_bytes=12_288, stack_bytes=40, spilled_bytes=96),
    MmaFp8Kernel(head=48, queries=128, keys=128, shared_bytes=24_576, stack_bytes=408, spilled_bytes=1_644),
    MmaFp8Kernel(head=64, queries=128, keys=128, shared_bytes=24_576, stack_bytes=608, spilled_bytes=2_820),
    MmaFp8Kernel(head=128, queries=64, keys=32, shared_bytes=32_768, stack_bytes=0, spilled_bytes=0),
    MmaFp8Kernel(head=160, queries=64, keys=32, shared_bytes=65_536, stack_bytes=0, spilled_bytes=0),
    MmaFp8Kernel(head=192, queries=64, keys=32, shared_bytes=65_536, stack_bytes=16, spilled_bytes=40),
    MmaFp8Kernel(head=np.inf, queries=64, keys=32, shared_bytes=65_536, stack_bytes=496, spilled_bytes=1_592),
)
"""Tiles by the generator (``enumerate_qmma_flash_kernels``, FlashInfer 0.7.4), shared memory by the kernels' traits,
local memory by the compiler's report (ptxas -v of CUDA 12.9 and 13.5, which agree) on causal kernels for compute
capability 8.9, all of it counted as the loop's. With keys in pages or a window it is up to a fifth more."""

RESIDENT_BLOCKS = 2.0
"""Most blocks on an SM: of 128 threads with 215 registers and more, 65,536 registers hold two."""

WARPS = 4.0
"""Warps of a block: each has rows of queries of its own and loads all keys and values."""

RESERVED_BYTES = 1024.0
"""Shared memory that a block has beside its own (CUDA C++ Programming Guide, technical specifications, from 8.0)."""

CARVE_OUTS = (8.0, 16.0, 32.0, 64.0, 100.0)
"""KB of shared memory that the unified cache is divided by (Ada tuning guide, unified shared memory and L1)."""

UNIFIED_BYTES = 128.0 * 1024.0
"""L1 and shared memory together where the spec states none: of 8.6, 8.9 and 12.x (Ada tuning guide)."""

SHUFFLES_PER_CLOCK = 64.0
"""Of an SM, of four bytes: byte permutes (CUDA C++ Programming Guide, throughput of arithmetic instructions)."""


def of_kernel(cols: Columns, field: str) -> Column:
    """A field of the table for each kernel, by the wider of its heads."""
    widest = [kernel.head for kernel in MMA_FP8_KERNELS]
    values = np.array([getattr(kernel, field) for kernel in MMA_FP8_KERNELS], dtype=np.float64)
    found: Column = values[np.searchsorted(widest, np.maximum(cols["d"], cols["v"]))]
    return found


def resident_blocks(cols: Columns, shared_bytes: float) -> Column:
    """Blocks that run on an SM with so much shared memory at once."""
    fits = np.floor(shared_bytes / (of_kernel(cols, "shared_bytes") + RESERVED_BYTES))
    return np.clip(fits, 1.0, RESIDENT_BLOCKS)


def vector_cycles(cols: Columns, gpu: GpuSpec, width_v: Column) -> Column:
    """Cycles of an SM for what a step does beside products, exponentials and FlashAttention's vector instructions.

    Scores and probabilities are scaled apart from the exponential, sums once a step of few keys. A warp loads the
    step's keys and values before it multiplies the first, and puts values of 8 bits in another order: ldmatrix
    transposes 16.
    """
    tile_k = cols["tile_k"]
    scaled = (2.0 + width_v / tile_k) * cols["tile_q"] * tile_k / gpu.fp32_lanes_per_sm
    shuffled = WARPS * tile_k * width_v / 4.0 / SHUFFLES_PER_CLOCK
    found: Column = scaled + shuffled
    return found


def spilled_bytes(cols: Columns, gpu: GpuSpec) -> Column:
    """Bytes that a step's spilled registers move between an SM and L2: those that the L1 has no room for."""
    threads = WARPS * gpu.warp_size
    used = cols["resident"] * (of_kernel(cols, "shared_bytes") + RESERVED_BYTES)
    carved = 1024.0 * np.array(CARVE_OUTS)
    unified = gpu.l1_bytes_per_sm or UNIFIED_BYTES
    left = np.maximum(unified - carved[np.minimum(np.searchsorted(carved, used), carved.size - 1)], 0.0)
    touched = cols["resident"] * threads * of_kernel(cols, "stack_bytes")
    missed = np.maximum(1.0 - left / np.maximum(touched, 1.0), 0.0)
    found: Column = missed * threads * of_kernel(cols, "spilled_bytes")
    return found
