"""Products whose output is one row or one column: the library streams the matrix past the vector, without tiles.

``(b, 1, k) @ (b, k, n) -> (b, 1, n)`` and ``(b, m, k) @ (b, k, 1) -> (b, m, 1)``. cuBLAS hands such products to kernels
of their own (``gemv2T_kernel_val``, ``gemvNSP_kernel`` and ``gemmSN_*`` in profiles of decoders at batch 1, *as
remembered*; no document says when). The tiles of :mod:`.tiles` would compute 128 rows for one. cuBLASLt, which gets
the products with a bias, has tiles alone: three rows ran ``ampere_sgemm_128x32_sliced1x4_tn``.

No such product was measured in FP32. The nearest are DeepBench's of 8 rows on a V100 (512 and 1,024 x 8 x 500,000): .89
and .92 of the data sheet's DRAM bandwidth where the matrix lies along its outputs, what elementwise kernels reach there
(.92); .63 along k.

In 16 bits products of one row and 32 columns or more were measured, and the law of ``tensor_gemm`` was fitted to
them; of these kernels it takes those for a single output (:func:`is_dot`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import dram_bytes_per_s
from neusight_onnx.laws.base import Column, Constants

THREADS = 128.0
BLOCK_BYTES = 8192.0
"""Of the matrix, a block of 128 threads: four loads of 16 bytes each, which hide DRAM's latency. Assumed; it decides
how many SMs a small product keeps busy."""
DOUBT_LOG_SD = 0.25
"""Standard deviation (log) of such a product's time: between .63 and .92 of the bandwidth lies a factor of 1.45."""


def is_vector(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.bool_]:
    """Which products run such kernels, without a bias: of one row or column in NVIDIA's library; of AMD's, whose choice
    between ``rocblas_gemv`` and Tensile's products isn't known, of two vectors alone (``rocblas_dot``)."""
    if "bias" not in cols:
        return np.zeros(cols["m"].shape, dtype=np.bool_)
    outer = (np.minimum if gpu.vendor == "NVIDIA" else np.maximum)(cols["m"], cols["n"])
    found: NDArray[np.bool_] = (outer == 1.0) & (cols["bias"] == 0.0)
    return found


def is_dot(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.bool_]:
    """Which products in 16 bits on matrix units are of two vectors, stored as they are multiplied: blocks share k, and
    a second kernel adds up (``dot_kernel`` and ``reduce_1Block_kernel`` in profiles, as remembered)."""
    stored = (cols["a_bytes"] == 2.0) & (cols["b_bytes"] == 2.0) & (cols["converted_bytes"] == 0.0)
    found: NDArray[np.bool_] = stored & (np.maximum(cols["m"], cols["n"]) == 1.0) & is_vector(cols, gpu)
    return found


def tiles(cols: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """What a block covers, as (n, m, threads, split): some outputs whole, or a part of the reduction of one."""
    bytes_along_k = cols["k"] * np.where(cols["m"] == 1.0, cols["b_bytes"], cols["a_bytes"])
    outputs = np.clip(np.floor(BLOCK_BYTES / bytes_along_k), 1.0, np.maximum(cols["m"], cols["n"]))
    split = np.where(outputs > 1.0, 1.0, np.ceil(bytes_along_k / BLOCK_BYTES))
    is_row = cols["m"] == 1.0
    one = np.ones_like(outputs)
    return np.stack([np.where(is_row, outputs, one), np.where(is_row, one, outputs), THREADS * one, split])


def stream_s(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, constants: Constants, blocks: Column
) -> tuple[Column, Column]:
    """Times in s of DRAM, which streams as for elementwise kernels, and of L2, which feeds SMs that have a block."""
    memory = (cols["read_bytes"] + cols["write_bytes"]) / dram_bytes_per_s(gpu, {})
    moved = cols["b"] * (cols["a_bytes"] * cols["m"] * cols["k"] + cols["b_bytes"] * cols["k"] * cols["n"])
    busy = np.minimum(blocks, float(gpu.sm_count))
    return memory, moved / (constants["l2_bytes_per_clock"] * busy * gpu.clock_hz)
