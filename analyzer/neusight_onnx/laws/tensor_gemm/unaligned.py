"""Products whose rows are no multiple of 16 bytes: other kernels, which load less at once.

A matrix whose rows (its contiguous dimension) aren't whole vectors of 16 bytes can be fetched neither by TMA nor by
copies of 16 bytes to shared memory. What cuBLASLt has instead is in the names of its kernels (CUDA 12.8):

- rows of an even number of 16-bit elements: ``cutlass_80_tensorop_s16816gemm_{f16,bf16}_*_align2`` beside ``align8``
  and none between, whose copies (``cp.async``) are of 4 bytes; for Hopper besides
  ``sm90_xmma_gemm_*_aligna4_alignc4`` and ``aligna2_alignc2``, which multiply by WGMMA;
- of an odd number: ``cutlass_75_tensorop_s1688gemm_{f16,bf16}_*_align1`` (``cutlass_70_*`` for Volta) and no newer.
  ``cp.async`` has no copies of 2 bytes (PTX ISA), so that each element is loaded to a register and stored to shared
  memory, one step in flight;
- TF32: ``cutlass_80_tensorop_s1688gemm_*_align1`` beside ``align4``: copies of 4 bytes;
- for data-centre Blackwell ``cutlass3x_sm100_tensorop_*_align8`` alone, so that the others' mma serves it;
- no tile is larger than 256 x 128.

Products of 8 bits and less have no part in it: their callers pad (cuBLASLt takes FP8 and INT8 on its fast kernels only
with rows of whole vectors), and so do weights that are stored narrower. Nor has AMD, of whose libraries' kernels for
such rows nothing is known here. Nothing of it was measured: no public row has such a product. Only the instructions
that it takes are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.kernels import Gemm
from neusight_onnx.laws.bandwidth import capability, is_amd
from neusight_onnx.laws.base import Column, Constants
from neusight_onnx.laws.matrix_units import PIPES
from neusight_onnx.laws.tiled import Grid

VECTOR_BYTES = 16
LOG_SD = 0.25
"""How well the time of such a kernel is known (log) where loads and products bind it. A judgement: people report 1.3 to
3 times an aligned product's time, and which kernel a library's heuristics take isn't public."""
LARGEST_TILE = 256.0 * 128.0
_FRAGMENT_SIDE = 64.0
"""Side of a warp's tile: it reads its operands from shared memory for itself (CUTLASS's default for 128x128 tiles)."""
_SHARED_BYTES_PER_CLOCK = 128.0
_MOST_LANES, _FEW_LANES = 32.0, 16.0

COPIES_QUICKER = 1.1
"""How much quicker padded copies must make a product for a compiler to take them (``should_pad`` in Inductor's
``pad_mm.py``, 2.9), which times both."""

_TF32 = float(PIPES.index("tf32"))
_WHOLE = float(VECTOR_BYTES)


def vectors(kernel: Gemm, rows: int) -> tuple[float, float]:
    """Bytes that lie together and aligned in all rows, at most 16: of both operands, and of the result.

    ``rows``: of an entry of the batch. A single one, or a single column, is the work of kernels for vectors, which
    load to registers and multiply there: by 2 bytes a lane an SM takes more than its share of any DRAM's bandwidth.
    """
    narrow = kernel.dtype.bits < 16 or (kernel.b_dtype or kernel.dtype).bits < kernel.dtype.bits
    if narrow or kernel.row_padding == "stored" or rows == 1 or kernel.n == 1:
        return _WHOLE, _WHOLE
    size = kernel.dtype.bits // 8
    m, n, k = rows, kernel.n, kernel.k
    left = _together(k, m, size) if kernel.transpose_a else _together(m, k, size)
    right = _together(n, k, size) if kernel.transpose_b else _together(k, n, size)
    result = _together(m, n, (kernel.output_dtype or kernel.dtype).bits // 8)
    return min(left, right), result


def _together(rows: int, columns: int, size: int) -> float:
    """Of a matrix with rows that follow one another; one row or column is a vector, however long."""
    return float(gcd(columns * size, VECTOR_BYTES)) if rows > 1 and columns > 1 else _WHOLE


def aligned(cols: Mapping[str, NDArray[np.float64]]) -> dict[str, Column]:
    """The columns of the same products with rows of whole vectors."""
    whole = np.full_like(cols["k"], _WHOLE)
    return {**cols, "operand_vector": whole, "result_vector": whole}


def is_unaligned(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.bool_]:
    """Which products have rows, of an operand or of the result, that aren't whole vectors."""
    if "operand_vector" not in cols or is_amd(gpu):
        return np.zeros(cols["k"].shape, dtype=np.bool_)
    found: NDArray[np.bool_] = np.minimum(cols["operand_vector"], cols["result_vector"]) < _WHOLE
    return found


def through_registers(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.bool_]:
    """Which products load single elements of 16 bits, one step in flight."""
    return is_unaligned(cols, gpu) & (cols.get("operand_vector", cols["k"]) < 4.0)


def by_warps(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.bool_]:
    """Which products multiply by mma though the GPU has newer instructions."""
    kind = instructions(gpu)
    apart = is_unaligned(cols, gpu)
    if kind == "mma" or not apart.any():
        return np.zeros(apart.shape, dtype=np.bool_)
    odd = np.minimum(cols["operand_vector"], cols["result_vector"]) < 4.0
    found: NDArray[np.bool_] = apart if kind == "tcgen05" else apart & (odd | (cols["pipe"] == _TF32))
    return found


def doubt_log_sd(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, busy_share: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Standard deviation (log) of a time by what isn't known of these kernels; ``busy_share``: part of it that the pipe
    takes. Where nobody measured the rate of mma, as much again."""
    unknown = LOG_SD * np.where(by_warps(cols, gpu) & (instructions(gpu) == "tcgen05"), np.sqrt(2.0), 1.0)
    found: NDArray[np.float64] = np.where(is_unaligned(cols, gpu), unknown, 0.0) * np.minimum(busy_share, 1.0)
    return found


def copies_us(
    cols: Mapping[str, NDArray[np.float64]], floor_us: NDArray[np.float64], dram_bytes_per_s: float
) -> NDArray[np.float64]:
    """Time of two kernels that copy both operands to padded rows, in us."""
    operands = cols["b"] * cols["k"] * (cols["m"] * cols["a_bytes"] + cols["n"] * cols["b_bytes"])
    found: NDArray[np.float64] = 2.0 * floor_us + 2e6 * operands / dram_bytes_per_s
    return found


def load_lanes(gpu: GpuSpec) -> float:
    """Load and store units of an SM: 32 of GPUs for data centres, 16 of others since Turing (NVIDIA's white papers)."""
    generation = capability(gpu)
    return _MOST_LANES if generation in (7.0, 7.2, 8.0) or 9.0 <= generation < 12.0 else _FEW_LANES


def with_loads(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    grid: Grid,
    kz: NDArray[np.float64],
    multiplied_s: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Time of the pipe at the boost clock, ``multiplied_s``, with loads and stores beyond those of whole vectors."""
    apart = is_unaligned(cols, gpu)
    if not apart.any():
        return multiplied_s
    t1, t2, _, _ = tile
    size = cols["multiplied_bytes"]
    # 8 bytes at once are Hopper's alone
    once = cols["operand_vector"]
    wgmma = (instructions(gpu) == "wgmma") & ~by_warps(cols, gpu)
    once = np.where((once == 8.0) & ~wgmma, 4.0, once)
    passes = np.where((once < 4.0) | (capability(gpu) < 8.0), 2.0, 1.0)
    accesses = np.where(once < _WHOLE, size * (passes / once - 1.0 / _WHOLE), 0.0)
    loaded = kz * (np.minimum(t1, cols["n"]) + np.minimum(t2, cols["m"])) * accesses / load_lanes(gpu)
    fragments = kz * t1 * t2 * 2.0 / _FRAGMENT_SIDE * size / _SHARED_BYTES_PER_CLOCK
    fragments = np.where((once < _WHOLE) & ~wgmma, fragments, 0.0)
    results = np.minimum(t1, cols["n"]) * np.minimum(t2, cols["m"])
    written = results * cols["out_bytes"] * (1.0 / cols["result_vector"] - 1.0 / _WHOLE) / load_lanes(gpu)
    loads_s = grid.per_sm * (loaded + fragments + written) / gpu.clock_hz
    power = c.get("norm_of_lanes", c["norm"])
    joined = multiplied_s * (1.0 + (loads_s / multiplied_s) ** power) ** (1.0 / power)
    return np.where(apart, joined, multiplied_s)
