"""Softmax of more than 1,024 columns by PyTorch since 2.7, as its kernels were played; nobody measured them in 16 bits.

Up to 2,048 columns a warp holds a row in registers (``softmax_warp_forward``, four warps a block), beyond a block of
1,024 threads does (``cunn_SoftMaxForwardReg``), and rows that are too long for that are read three times. Two such
blocks an SM hide little of what each waits, and an SM of 1,536 threads holds one.

Source: launches of torch 2.9.1 on stand-ins, whose machine code for compute capability 8.0 was played on an SM
(``benchmarks/sm_player.py``) in FP16: 1,025 to 24,576 columns are within 12 % of what is said here.
"""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Kernel, Softmax
from neusight_onnx.laws.bandwidth import p_norm
from neusight_onnx.laws.base import Column
from neusight_onnx.laws.block_wait import SHARPNESS, RowBlock

LIBRARY = "pytorch"
"""``Softmax.library`` of these kernels."""

MEASURED_COLUMNS = 1024
"""Up to so many columns the kernel is the measured one, in twice the bytes."""
LONGEST_WARP_ROW = 2048
REGISTER_COLUMNS = 9216
"""Widest row of a block that keeps it: 8,200 columns are, 12,288 aren't; nine elements a thread were the most seen."""
WIDE_COLUMNS, WIDE_REGISTERS = 6144, 40
"""More columns take a thread more than 32 registers, so that an SM holds one block: 28 at 4,096, 35 at 8,192."""

WARP_ROW, WARP_COLUMN, WARP_WAIT, WARP_COLUMN_WAIT = 294.0, 0.15, 3240.0, 3.95
"""Cycles of an SM's four schedulers for a row and each of its columns, and what a block of four rows waits beside."""
BLOCK_ROW, BLOCK_COLUMN, LONG_ROW, LONG_COLUMN = 620.0, 0.45, 160.0, 0.35
BLOCK_WAIT, BLOCK_COLUMN_WAIT = 1000.0, 0.15
ROWS_A_BLOCK, WARP_THREADS, WARP_REGISTERS, BLOCK_THREADS = 4, 128, 80, 1024


def is_played(kernel: Kernel) -> bool:
    """Whether it is such a kernel."""
    return (
        isinstance(kernel, Softmax)
        and kernel.library == LIBRARY
        and kernel.cols > MEASURED_COLUMNS
        and kernel.inner <= 1
        and kernel.dtype.bits <= 16
        and not (kernel.fused or kernel.backward)
    )


def rows_us(rows: Column, cols: Column, gpu: GpuSpec) -> Column:
    """What the rows take the SMs, in us, their bytes left out."""
    return np.asarray([_us(float(n), float(c), gpu) for n, c in zip(rows, cols, strict=True)], dtype=np.float64)


def _us(rows: float, cols: float, gpu: GpuSpec) -> float:
    if cols <= LONGEST_WARP_ROW:
        issue, together = WARP_ROW + WARP_COLUMN * cols, ROWS_A_BLOCK
        waits = WARP_WAIT + WARP_COLUMN_WAIT * cols
        block = RowBlock(threads=WARP_THREADS, waits=waits, registers=WARP_REGISTERS)
    else:
        kept = cols <= REGISTER_COLUMNS
        issue = BLOCK_ROW + BLOCK_COLUMN * cols if kept else LONG_ROW + LONG_COLUMN * cols
        together, registers = 1, WIDE_REGISTERS if WIDE_COLUMNS < cols <= REGISTER_COLUMNS else 32
        block = RowBlock(threads=BLOCK_THREADS, waits=BLOCK_WAIT + BLOCK_COLUMN_WAIT * cols, registers=registers)
    alone = issue * together + block.waits
    blocks = max(rows / together / gpu.sm_count, 1.0 / gpu.sm_count)
    busy = np.asarray([issue * together * blocks]), np.asarray([alone * max(blocks / block.resident(gpu), 1.0)])
    return float(p_norm(busy, SHARPNESS)[0]) / gpu.clock_hz * 1e6
