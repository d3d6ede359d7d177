"""XQA, by which ONNX Runtime decodes grouped queries from a cache that is one buffer for past and present.

A block of eight warps holds the heads that share keys, one query each, and walks over tiles of keys: four warps
multiply queries by 64 keys each, four more the probabilities by their values. What launches and machine code of
onnxruntime-gpu 1.31.1 say is in ``benchmarks/evidence/attention_kernels.md``; none of its times was measured.
"""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Columns, Constants

FEW_ROWS, MANY_ROWS = 16.0, 32.0
"""Rows that the heads of a group are padded to: 132 products of 16 x 8 x 16 (HMMA.16816) in the code for up to 16 of
them, 264 for 32."""

STEP_KEYS = 256.0
"""Keys of a step: four warps' 64."""

WARPS = 8.0
"""Of a block, 128 x 1 x 2 threads, whose 63 to 166 KB of shared memory leave room for no second one on an SM."""

MERGE_TRIPS, TRIP_CYCLES = 2.0, 750.0
"""The last block of a sequence adds the parts of all: it counts who is done and reads what they left in L2, one after
the other; of such reads ``block_cycles_flashinfer`` says what they take."""


def rows_of(heads: Column) -> Column:
    """Rows of a block's tile for so many heads that share keys."""
    return np.where(heads <= FEW_ROWS, FEW_ROWS, MANY_ROWS)


def parts_of(blocks: Column, steps: Column, gpu: GpuSpec) -> Column:
    """Parts that the keys of each of ``blocks`` sequences and key heads are cut into: as many as one block an SM
    allows, of a step at least."""
    found: Column = np.clip(np.floor(float(gpu.sm_count) / blocks), 1.0, np.maximum(steps, 1.0))
    return found


def merge_s(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """Time that adding parts takes, in s; ``cols`` are pinned."""
    cycles = MERGE_TRIPS * TRIP_CYCLES + c["split_cycles"] * cols["split_k"]
    return np.where(cols["added"] > 0, cycles / gpu.clock_hz, 0.0)
