"""A step of a block of fused attention: the products of a tile of queries by a tile of keys, and their softmax."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention import dropout, memory_efficient, mma_fp8
from neusight_onnx.laws.attention.kernel_choice import (
    MEMORY_EFFICIENT,
    XQA,
    has_narrow_keys,
    is_flash3_in_fp8,
    is_mma_in_fp8,
    unit_of,
)
from neusight_onnx.laws.attention.rates import (
    SHARED_BYTES_PER_CLOCK,
    dense_peaks,
    exponentials_per_clock,
    instruction_rates,
    share_of_full_rate,
)
from neusight_onnx.laws.attention.tiles import FEW_QUERIES, RESIDENT_BLOCKS, WARPS, padded_widths
from neusight_onnx.laws.bandwidth import is_amd, l2_bytes_per_s, p_norm
from neusight_onnx.laws.base import Column, Columns, Constants
from neusight_onnx.laws.matrix_units import AMD_OVERHEAD, CDNA3_CLOCKS, clocks_over_cdna

UNOVERLAPPED_HEAD = 192.0
"""Widest head whose softmax FlashAttention 3 in FP8 hides behind products where keys are in pages (its tiles)."""


ROWS_OF_INSTRUCTION = 16.0
"""Rows of the smaller matrix instructions of CDNA, ``v_mfma_*_16x16x16`` (AMD CDNA 3 ISA)."""
CDNA3_LOADS = 16.0
"""Bytes of two operands an element of a key (2) by multiply-adds a clock (1,024), over LDS's bytes a clock (128)."""


class Step(NamedTuple):
    """Cycles of an SM: ``products``, ``softmax``, both with another block on it (``beside_others``), both ``alone``.

    ``width``: columns of keys and values that are multiplied, with their padding.
    """

    products: Column
    softmax: Column
    beside_others: Column
    alone: Column
    width: Column


def step_of(cols: Columns, gpu: GpuSpec, c: Constants) -> Step:
    """The step of each kernel; ``cols`` are pinned."""
    unit = unit_of(cols, gpu)
    pairs = cols["tile_q"] * cols["tile_k"]
    width_d, width_v = padded_widths(cols, gpu)
    if MEMORY_EFFICIENT in cols:
        width_v = memory_efficient.build_of(cols, gpu)["width_v"]
    width = width_d + width_v
    overhead: Column | float = c["pipe_overhead_tcgen05" if unit == "tcgen05" else "pipe_overhead"]
    if is_amd(gpu):
        overhead = _matrix_core_overhead(cols, gpu)
    elif unit == "mma":
        # what the pipe doesn't do takes as many clocks on a halved one
        overhead = 1.0 + (overhead - 1.0) * share_of_full_rate(cols, gpu)
    products = overhead * 2.0 * pairs * width * float(gpu.sm_count) * gpu.clock_hz / instruction_rates(cols, gpu)
    vector = c["vector_instructions_tcgen05" if unit == "tcgen05" else "vector_instructions"]
    softmax = c["exp_overhead"] * pairs * (1.0 / exponentials_per_clock(gpu) + vector / gpu.fp32_lanes_per_sm)
    softmax = softmax + cols["dropout"] * pairs * dropout.FLASH / gpu.fp32_lanes_per_sm
    if unit == "mma":
        return _mma_step(cols, gpu, c, products, softmax, width_d, width_v)
    exposed = np.full(pairs.shape, c[f"exposed_{unit}"])
    if unit == "wgmma":
        alone_in_fp8 = is_flash3_in_fp8(cols, gpu) & (cols["d"] > UNOVERLAPPED_HEAD)
        exposed = np.where(alone_in_fp8 | (cols["tile_q"] == FEW_QUERIES), 1.0, exposed)
    overlapped = _overlapped(products, softmax, exposed)
    if unit == "wgmma":
        # warps of their own load and transpose
        transposed = is_flash3_in_fp8(cols, gpu) * c["producer_cycles"] * cols["tile_k"] * width_v
        overlapped = p_norm((overlapped, transposed), c["norm"])
    beside_others, alone = overlapped + c["step_cycles"], overlapped + c["step_latency_cycles"]
    return Step(products, softmax, beside_others, alone, width)


def _matrix_core_overhead(cols: Columns, gpu: GpuSpec) -> Column:
    """Time of a step's products on AMD's matrix cores over that at their peak, never below that of products alone.

    As products have it: the pipe's, and beside it what goes through LDS. A block writes its keys and values there once,
    and each wave of other rows, of which there are four at most, reads them: of CDNA3 at 128 bytes a clock (16 bits by
    1,024 multiply-adds a clock, 8 bits by twice as many) 16 clocks for each one of products and row.
    """
    readers = np.minimum(cols["tile_q"] / ROWS_OF_INSTRUCTION, WARPS)
    loads = CDNA3_LOADS * (readers + 1.0) / cols["tile_q"]
    clocks = clocks_over_cdna(gpu, dense_peaks(cols, gpu), cols["query_bytes"]) / CDNA3_CLOCKS
    found: Column = 1.0 + clocks * (AMD_OVERHEAD * (1.0 + loads) - 1.0)
    return found


def _overlapped(products: Column, softmax: Column, exposed: Column | float) -> Column:
    """Time of both, of whose shorter one so large a share isn't hidden behind the other."""
    found: Column = np.maximum(products, softmax) + exposed * np.minimum(products, softmax)
    return found


def _mma_step(
    cols: Columns, gpu: GpuSpec, c: Constants, products: Column, softmax: Column, width_d: Column, width_v: Column
) -> Step:
    """The step by mma instructions, which also unpacks keys, loads them from shared memory, and spills registers.

    From shared memory each warp loads all keys and values, but with FlashInfer's tile of 16 rows and XQA's, of which it
    has its own: beside the products, but in FP8 before them; AMD's overhead has its kernels' loads.
    """
    tile_q, tile_k, narrow, queries8 = cols["tile_q"], cols["tile_k"], has_narrow_keys(cols), is_mma_in_fp8(cols, gpu)
    width = width_d + width_v
    converted = narrow * np.where(tile_q > 16.0, WARPS, 1.0) * width
    softmax = softmax + c["convert_instructions"] * converted * tile_k / gpu.fp32_lanes_per_sm
    loading = np.where((narrow & (tile_q == 16.0)) | (XQA in cols), 1.0, cols["warps"])
    loaded = loading * tile_k * width * cols["kv_bytes"] / SHARED_BYTES_PER_CLOCK
    if MEMORY_EFFICIENT in cols:
        softmax = memory_efficient.issue_cycles(cols, gpu)
        loaded = memory_efficient.loaded_bytes(cols, gpu) / SHARED_BYTES_PER_CLOCK
    apart = queries8 | is_amd(gpu)
    products = np.where(apart, products, p_norm((products, loaded), c["norm"]))
    of_fp8 = tile_q * tile_k * c["pack_cycles"] + loaded + mma_fp8.vector_cycles(cols, gpu, width_v)
    softmax = softmax + queries8 * of_fp8
    spilled = queries8 * mma_fp8.spilled_bytes(cols, gpu) / _l2_bytes_per_clock(cols, gpu, c)
    beside_others = p_norm((_overlapped(products, softmax, c["exposed_mma"]), spilled), c["norm"]) + c["step_cycles"]
    # alone on its SM, a block hides nothing behind another
    alone = products + softmax + spilled + c["step_latency_cycles"]
    return Step(products, softmax, np.where(cols["resident"] < RESIDENT_BLOCKS, alone, beside_others), alone, width)


def _l2_bytes_per_clock(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """Bytes a clock and SM from L2: what its port takes, and its share of what the L2 gives all that work."""
    at_work = np.minimum(cols["blocks"], float(gpu.sm_count))
    found: Column = np.minimum(c["l2_bytes_per_clock"] * gpu.clock_hz, l2_bytes_per_s(gpu) / at_work) / gpu.clock_hz
    return found
