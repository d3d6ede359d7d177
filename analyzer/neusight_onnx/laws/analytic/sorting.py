"""Sorts, the largest of a row, suppression of boxes, places that aren't zero."""

from __future__ import annotations

from math import ceil, log2

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Sort
from neusight_onnx.laws.analytic.pipes import vector_flops_per_s
from neusight_onnx.laws.analytic.work import BLOCK_REDUCTION_US, SERIAL_ITERATION_CYCLES, Work
from neusight_onnx.laws.bandwidth import l2_miss_fraction
from neusight_onnx.laws.issue import instructions_per_us

SORT_BITS_PER_PASS = 8
"""Digits of a radix pass (CUB's default)."""
OVERLAP_OPERATIONS = 30.0
"""Issue slots x 2 of one intersection over union of two boxes: four min/max, two areas, a division."""
SUPPRESSED_STEP_CYCLES = 120.0
"""A step of ONNX Runtime's walk over a box that is suppressed already: a bit in shared memory (it has a bit a box:
launches of 1.31.1) and barriers of its one block of 1,024 threads. One that is kept reads its row of the mask as well.
An estimate."""
TOP_K_BLOCK = 256
"""Threads of the one block that ONNX Runtime's ``RadixTopK`` gives a row (launches of 1.31.1)."""
TOP_K_BLOCKS_PER_SM = 6
"""Blocks that a streaming multiprocessor holds: of 1,536 threads, as most have."""
TOP_K_SWEEPS = 3
"""Loops over the row beside one for each byte of the key: signs are counted, then what passes, then it is written (the
machine code of 1.31.1: seven loops for float32, four of them with a histogram in shared memory, none unrolled)."""
TOP_K_STEP_CYCLES = 300.0
"""One iteration: a load that hits the L2 (190 to 270 cycles: micro-benchmarks of V100 to H100) and what depends on it.
What misses waits as ``SERIAL_ITERATION_CYCLES`` says."""
TOP_K_CUT_KEPT, TOP_K_CUT_COLUMNS = 256, 4096
"""Rows of more columns are cut among blocks where no more are kept and keys are float32 or float16 (``hybrid_topk``,
``smallk_topk``; launches of 1.31.1: 4,096 and 4,608 columns, 256 and 300 kept). Of a million columns one block keeps
64, many keep 16: not followed."""
BITONIC_COLUMNS = 256
"""Rows of up to so many columns ONNX Runtime sorts in shared memory, however few are kept: ``BitonicTopK``, a block of
256 threads each (``topk_impl.cuh``, as its source is remembered)."""
BITONIC_STAGE_CYCLES = 100.0
"""A step of such a network: two loads from shared memory, two stores, a barrier. An estimate."""
NETWORK_INSTRUCTIONS, IDLE_INSTRUCTIONS = 20.0, 6.0
"""Of a thread in one step: places, two keys and two indices, a comparison, an exchange; of one without a pair, which
finds that out and waits at the barrier. An estimate from the source."""
SELECT_BITS, SELECT_SWEEPS = 2, 2
"""PyTorch selects by digits of so many bits (``RADIX_BITS`` of ``SortingRadixSelect.cuh``, as remembered), a loop over
the row each, and writes what is larger and what is equal in two more (``gatherTopK``)."""
SELECT_THREADS = 1024
"""Threads of the block that takes a row there at most; shorter rows get whole warps (the same)."""
SELECT_INSTRUCTIONS = 60.0
"""Of a thread in one loop over the row: a load, the digit, a ballot and a count for each of its four values, atomics,
two barriers, a look at the counts. An estimate from the source."""
BLOCKS_PER_SM = 32
"""Blocks that an SM holds at most: CUDA programming guide (16 to 32)."""
BY_MANY_BLOCKS = ((20, 20_000), (40, 10_000), (80, 8000), (199, 5000), (799, 3000), (4000, 800))
"""(Rows up to, columns from) which on PyTorch has several blocks share a row; with more rows from 400 columns on
(``should_use_multiblock`` of ``TensorTopK.cu``, as remembered)."""
LONG_ROW_OF_MANY = 400
EXPONENT_BITS = {DataType.FLOAT16: 5, DataType.BFLOAT16: 8, DataType.FLOAT32: 8, DataType.FLOAT64: 11}
"""IEEE 754, and of bfloat16 float32's. Integers have none: all their digits are looked at."""
SORT_SMALL = 1024
"""Rows that PyTorch sorts within a block's shared memory in one pass."""


def sort_work(kernel: Sort, gpu: GpuSpec) -> Work:
    key = kernel.dtype.bits / 8
    elements = float(kernel.rows * kernel.cols)
    pair = key + 8.0  # PyTorch and ONNX sort with 64-bit indices
    if _has_a_block_a_row(kernel):
        return _top_k_by_one_block(kernel, gpu)
    selects = kernel.operation == "topk" and kernel.kept > 0
    if selects and kernel.library == "onnxruntime" and kernel.cols <= BITONIC_COLUMNS:
        return _top_k_by_a_network(kernel, gpu)
    if selects and kernel.library != "onnxruntime" and not _is_shared_by_blocks(kernel):
        return _top_k_by_digits(kernel, gpu)
    if kernel.cols <= SORT_SMALL and kernel.operation != "nms" and not selects:
        stages = log2(max(kernel.cols, 2)) ** 2 / 2.0  # bitonic network in shared memory
        lane_rate = gpu.sm_count * gpu.fp32_lanes_per_sm * gpu.clock_hz
        return Work(
            bytes=elements * key + kernel.output_bytes,
            compute_us=elements * stages * 20.0 / lane_rate * 1e6,
            serial_us=stages * 100.0 / gpu.clock_hz * 1e6,
            tile_count=float(max(kernel.rows, 1)),
            tile_threads=min(max(kernel.cols / 2.0, 32.0), 1024.0),
        )
    passes = max(1, ceil(kernel.dtype.bits / SORT_BITS_PER_PASS))
    if kernel.operation == "nms":
        candidates = float(kernel.rows * kernel.cols if kernel.candidates is None else kernel.candidates)
        longest = min(float(kernel.cols), candidates)
        pairs = candidates * longest / 2.0
        pairwise = pairs * OVERLAP_OPERATIONS / vector_flops_per_s(gpu, kernel.dtype) * 1e6
        # suppression walks the candidates in order, one bit mask of 64 a step
        walk, sorts = longest * SERIAL_ITERATION_CYCLES, passes + 1
        if kernel.library == "onnxruntime":  # it sorts in kernels of their own
            kept, sorts = min(float(kernel.kept), longest), 0
            walk = kept * SERIAL_ITERATION_CYCLES + (longest - kept) * SUPPRESSED_STEP_CYCLES
        return Work(
            bytes=elements * 2.0 * pair * min(sorts, passes) + kernel.output_bytes,
            compute_us=pairwise,
            serial_us=walk / gpu.clock_hz * 1e6,
            memory_efficiency=0.6,
            launches=sorts + 2,
            tile_count=max(1.0, ceil(elements / 64)),
            tile_threads=64.0,
        )
    if kernel.operation == "nonzero":
        passes = 1  # one prefix sum over flags
    # selection reads the keys a pass and moves nothing; a sort reads and writes keys and indices
    bytes_ = elements * 2.0 * pair * passes
    if selects:
        bytes_ = elements * key * passes + (0.0 if kernel.kept < kernel.cols // 4 else _sorted_bytes(kernel, pair))
    return Work(
        bytes=bytes_ + kernel.output_bytes,
        memory_efficiency=0.6,  # scattered writes of a radix pass; CUB reports 60-70 % of the copy rate
        working_set=bytes_ / passes,
        serial_us=passes * BLOCK_REDUCTION_US,
        launches=passes + 2 if kernel.cols > SORT_SMALL else 2,
        tile_count=max(1.0, ceil(elements / 4096)),
        tile_threads=256.0,
    )


def _has_a_block_a_row(kernel: Sort) -> bool:
    if kernel.library != "onnxruntime" or kernel.operation != "topk" or kernel.cols <= TOP_K_BLOCK:
        return False
    is_cut = kernel.kept <= TOP_K_CUT_KEPT and kernel.cols > TOP_K_CUT_COLUMNS
    return not is_cut or kernel.dtype not in (DataType.FLOAT32, DataType.FLOAT16)


def _sorted_bytes(kernel: Sort, pair: float) -> float:
    """What sorting those that are kept moves, keys and indices."""
    passes = max(1, ceil(kernel.dtype.bits / SORT_BITS_PER_PASS))
    return 2.0 * pair * kernel.rows * kernel.kept * passes


def _network_stages(count: int) -> float:
    """Steps of a bitonic network over ``count`` elements, filled up to a power of two."""
    steps = max(count - 1, 1).bit_length()
    return steps * (steps + 1) / 2.0


def _top_k_by_a_network(kernel: Sort, gpu: GpuSpec) -> Work:
    """``BitonicTopK``: a block sorts its row in shared memory, each thread an element of it."""
    stages = _network_stages(kernel.cols)
    waves = ceil(kernel.rows / (gpu.sm_count * max(gpu.max_threads_per_sm // TOP_K_BLOCK, 1)))
    pairs = kernel.cols / 2.0
    issued = kernel.rows * stages * (pairs * NETWORK_INSTRUCTIONS + (TOP_K_BLOCK - pairs) * IDLE_INSTRUCTIONS)
    return Work(
        bytes=kernel.read_bytes + kernel.output_bytes,
        compute_us=issued / instructions_per_us(gpu),
        serial_us=max(waves, 1) * stages * BITONIC_STAGE_CYCLES / gpu.clock_hz * 1e6,
        tile_count=float(max(kernel.rows, 1)),
        wave_count=float(max(waves, 1)),
    )


def _is_shared_by_blocks(kernel: Sort) -> bool:
    """Whether PyTorch has several blocks select from a row."""
    longest = next((cols for rows, cols in BY_MANY_BLOCKS if kernel.rows <= rows), LONG_ROW_OF_MANY)
    return kernel.cols >= longest


def _top_k_by_digits(kernel: Sort, gpu: GpuSpec) -> Work:
    """PyTorch's ``sbtopk``: a block selects from its row digit by digit, and another kernel sorts what is kept.

    The search ends where one key has the digits found so far: floats of a row have signs and exponents in common, and
    as many more bits as tell the row's elements apart.
    """
    key = kernel.dtype.bits / 8
    warp = gpu.warp_size
    threads = min(ceil(max(kernel.cols, 1) / warp) * warp, SELECT_THREADS)
    told = kernel.dtype.bits
    if kernel.dtype in EXPONENT_BITS:
        told = min(told, 1 + EXPONENT_BITS[kernel.dtype] + max(kernel.cols - 1, 1).bit_length())
    sweeps = ceil(told / SELECT_BITS) + SELECT_SWEEPS
    steps = sweeps * ceil(kernel.cols / threads)
    at_once = gpu.sm_count * min(BLOCKS_PER_SM, max(gpu.max_threads_per_sm // threads, 1))
    waves = max(ceil(kernel.rows / at_once), 1)
    bytes_ = float(kernel.read_bytes)
    missed = float(l2_miss_fraction(np.array([bytes_]), gpu)[0])
    step = TOP_K_STEP_CYCLES + missed * (SERIAL_ITERATION_CYCLES - TOP_K_STEP_CYCLES) / sweeps
    cycles = waves * steps * step
    issued = kernel.rows * threads * steps * SELECT_INSTRUCTIONS
    sorts = kernel.kept > 1
    if sorts:
        cycles += _network_stages(min(kernel.kept, SORT_SMALL)) * BITONIC_STAGE_CYCLES
    kept_bytes = 0.0
    if kernel.kept > SORT_SMALL:
        kept_bytes = _sorted_bytes(kernel, key + 8.0)
    return Work(
        bytes=bytes_ + kernel.output_bytes + kept_bytes,
        compute_us=issued / instructions_per_us(gpu),
        serial_us=cycles / gpu.clock_hz * 1e6,
        launches=2 if sorts else 1,
        tile_count=float(max(kernel.rows, 1)),
        wave_count=float(waves),
    )


def _top_k_by_one_block(kernel: Sort, gpu: GpuSpec) -> Work:
    """``RadixTopK``: a block walks its row once for each byte of the key and a few times more, an element a thread."""
    key = kernel.dtype.bits / 8
    bytes_ = kernel.rows * kernel.cols * key
    sweeps = ceil(key) + TOP_K_SWEEPS
    missed = float(l2_miss_fraction(np.array([bytes_]), gpu)[0])
    step = TOP_K_STEP_CYCLES + missed * (SERIAL_ITERATION_CYCLES - TOP_K_STEP_CYCLES)
    walk_us = sweeps * ceil(kernel.cols / TOP_K_BLOCK) * step / gpu.clock_hz * 1e6
    waves = ceil(kernel.rows / (gpu.sm_count * TOP_K_BLOCKS_PER_SM))
    return Work(
        bytes=sweeps * bytes_ + kernel.output_bytes,
        working_set=bytes_,
        serial_us=waves * (walk_us + ceil(key) * BLOCK_REDUCTION_US),  # behind each digit its counts are walked
        tile_count=float(max(kernel.rows, 1)),
        wave_count=float(max(waves, 1)),
    )
