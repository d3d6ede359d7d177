"""Reductions, cumulative sums and pooling."""

from __future__ import annotations

from math import ceil

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Pooling, Reduction
from neusight_onnx.laws.analytic.pipes import vector_flops_per_s
from neusight_onnx.laws.analytic.work import (
    BLOCK_REDUCTION_US,
    SECTOR_BYTES,
    SERIAL_ITERATION_CYCLES,
    VECTOR_BITS,
    Work,
)
from neusight_onnx.laws.elementwise import fused_cost, integer_lanes_per_sm
from neusight_onnx.laws.issue_counts import CUMSUM_BLOCK, LIBRARY
from neusight_onnx.laws.issue_rows import summed_before, sums_all_before

REDUCTION_EFFICIENCY = 0.90
"""Against an elementwise kernel: NVIDIA's reductions come near the copy rate; the tail of the tree costs the rest."""
SCAN_EFFICIENCY = 0.50
"""Cumulative sums: PyTorch scans a row in a block, synchronising between chunks."""
SCAN_THREADS, SCAN_AT_ONCE = 512, 4.0
"""Threads of such a block, and elements that each takes at once."""
SUMMED_STEP_CYCLES = 4.0 + 200.0 / 16.0
"""A step of a thread that sums all before its element (ONNX Runtime's ``_CumSumKernel``): an addition that waits for
the one before, and a sixteenth of a load that hits L2, since so many are asked for at once (its machine code)."""
BLOCK_A_ROW = frozenset({"channel_moments"})
"""Reductions with a block of 512 threads for each row, whose threads load an element at a time: the statistics of
PyTorch's own batch normalization in row-major order (``batch_norm_collect_statistics_kernel``: Welford's division
stands between two loads)."""
POOL_OPERATIONS = 8.0
POOL_OUTPUT_OPERATIONS = 60.0
"""Integer and compare operations of a pooling kernel: bounds, offset, load, compare for each tap; four integer
divisions of about 15 instructions for each output."""
POOL_COMPARED_BITS = 32
"""Bits of elements that an instruction compares or adds in a pooling kernel that takes 16 bytes of channels at once,
whose place and bounds it works out once a vector: two of 16 (``__hmax2``, ``__hadd2``); 8-bit ones are taken to be
widened for it."""


def _summed_before(kernel: Reduction, gpu: GpuSpec) -> Work:
    """A cumulative sum whose threads each sum all before their element: what its loads ask of L2, and the longest.

    Threads side by side sum the same elements (``inner`` = 1) or neighbours, step by step, so that a block asks L2 for
    as many as lie together, the rest is L1's. Blocks run in order: those at work read one stretch of the tensor.
    Instructions, which decide mostly, are :mod:`neusight_onnx.laws.issue`'s.
    """
    element, count = kernel.dtype.bits / 8, kernel.outputs * kernel.reduced
    asked = max(min(kernel.inner, CUMSUM_BLOCK) * element, SECTOR_BYTES)
    again = ceil(count / CUMSUM_BLOCK) * summed_before(kernel) * asked
    stretch = kernel.reduced * kernel.inner
    at_work = ceil(gpu.sm_count * gpu.max_threads_per_sm / max(stretch, 1)) * stretch
    return Work(
        bytes=again + kernel.read_bytes + kernel.write_bytes,
        working_set=min(count, at_work) * element * 2.0,
        serial_us=kernel.reduced * SUMMED_STEP_CYCLES / gpu.clock_hz * 1e6,
        tile_count=float(max(ceil(count / CUMSUM_BLOCK), 1)),
        wave_count=max(1.0, ceil(count / (gpu.sm_count * gpu.max_threads_per_sm))),
    )


def reduction_work(kernel: Reduction, gpu: GpuSpec) -> Work:
    if sums_all_before(kernel):
        return _summed_before(kernel, gpu)
    bytes_ = float(kernel.read_bytes + kernel.write_bytes)
    elements = kernel.outputs * kernel.reduced
    scan = kernel.operation.startswith("cum")
    threads = gpu.sm_count * gpu.max_threads_per_sm
    # a scan has a block a row; a reduction cuts long rows among blocks
    by_block = scan or kernel.operation in BLOCK_A_ROW
    in_block, at_once = SCAN_THREADS, 1.0 if kernel.operation in BLOCK_A_ROW else SCAN_AT_ONCE
    if scan and kernel.library == LIBRARY:
        in_block, at_once = CUMSUM_BLOCK, 1.0
    lanes = min(threads, max(kernel.outputs, 1) * in_block) if by_block else min(threads, max(elements / 4.0, 1.0))
    iterations = elements / (at_once * lanes)
    serial = BLOCK_REDUCTION_US + iterations * SERIAL_ITERATION_CYCLES / gpu.clock_hz * 1e6
    few = kernel.outputs < gpu.sm_count and kernel.reduced > 4096 and not by_block
    cost = elements * (10.0 + fused_cost(kernel.fused)) + kernel.outputs * fused_cost(kernel.epilogue)
    return Work(
        bytes=bytes_,
        compute_us=cost / vector_flops_per_s(gpu, kernel.dtype) * 1e6,
        serial_us=serial,
        memory_efficiency=SCAN_EFFICIENCY if scan else REDUCTION_EFFICIENCY,
        launches=2 if few else 1,  # partial results of several blocks meet again
        tile_count=float(max(kernel.outputs, 1)),
        wave_count=max(1.0, ceil(kernel.outputs * in_block / threads)),
    )


def pooling_work(kernel: Pooling, gpu: GpuSpec) -> Work:
    outputs = kernel.output.element_count
    lane_rate = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
    operations = outputs * (kernel.window * POOL_OPERATIONS + POOL_OUTPUT_OPERATIONS)
    if kernel.access == "vector":
        operations *= kernel.input.dtype.bits / VECTOR_BITS
        operations += outputs * kernel.window * max(kernel.input.dtype.bits, 16) / POOL_COMPARED_BITS
    # few outputs with a large window (global pooling) are reduced by a warp each
    serial = BLOCK_REDUCTION_US if kernel.window > 64 else 0.0
    return Work(
        bytes=kernel.read_bytes + kernel.write_bytes,
        compute_us=operations / lane_rate * 1e6,
        serial_us=serial,
        memory_efficiency=REDUCTION_EFFICIENCY,
        tile_count=max(1.0, ceil(outputs / 256)),
        tile_threads=256.0,
    )
