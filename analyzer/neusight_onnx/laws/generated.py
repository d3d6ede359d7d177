"""Row kernels that a compiler generates (layer and RMS normalization, softmax): one stream over rows that stay on chip.

Inductor's persistent reductions and TensorRT's kernels load a row once, several short rows a block, reduce it in
registers and shared memory, and write. So they take what their bytes do, as elementwise kernels (``Td``, ``Tl``, ``Tc``
of that law), and at least the latency of one row. Rows beyond ``HELD_ELEMENTS`` are gone through twice (mean and
variance, or maximum and sum, come from one pass), the second time out of the L2 as far as the rows in flight fit.
No kernel of this kind was measured; PyTorch's own, by the laws beside this one, are slower on short and on long rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import l2_bytes_per_s, l2_miss_fraction
from neusight_onnx.laws.base import Column

HELD_ELEMENTS = 16_384.0
"""1,024 threads with 16 elements each in registers: 64 KiB in FP32, a quarter of an SM's register file."""
BLOCK_THREADS = 1024.0
VECTOR_BYTES = 16.0
ROW_THREADS = 32.0
"""A short row takes a warp at least, so that a block holds several."""
START_CYCLES = 3000.0
"""One row by itself: two loads from DRAM, two block reductions, a store (the law of normalizations, prior)."""
STEP_CYCLES = 500.0
"""One more load of a block that waits for DRAM (the same)."""
SHARPNESS = 8.0
"""Of the soft maximum: the elementwise law's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStream:
    """What such kernels add to their unique bytes: ``again_bytes`` through DRAM; and times in us."""

    again_bytes: Column
    l2_us: Column
    latency_us: Column


def row_stream(
    rows: Column, cols: Column, element_bytes: Column, read: Column, written: Column, gpu: GpuSpec
) -> RowStream:
    """``rows`` of ``cols`` elements; ``read`` and ``written`` are unique bytes."""
    twice = cols > HELD_ELEMENTS
    row_bytes = cols * element_bytes
    per_sm = max(gpu.max_threads_per_sm // BLOCK_THREADS, 1.0)
    in_flight = np.minimum(rows, gpu.sm_count * per_sm) * row_bytes
    body = np.where(twice, rows * row_bytes, 0.0)
    # fewer blocks than SMs: the others' share of the L2's bandwidth lies idle
    blocks = np.maximum(np.minimum(rows, rows * cols / ROW_THREADS), 1.0)
    idle = np.maximum(gpu.sm_count / blocks, 1.0)
    steps = np.ceil(row_bytes / (VECTOR_BYTES * BLOCK_THREADS)) - 1.0
    return RowStream(
        again_bytes=body * l2_miss_fraction(in_flight, gpu),
        l2_us=(read + written + body) * idle / l2_bytes_per_s(gpu) * 1e6,
        latency_us=(START_CYCLES + STEP_CYCLES * steps * np.where(twice, 2.0, 1.0)) / gpu.clock_hz * 1e6,
    )
