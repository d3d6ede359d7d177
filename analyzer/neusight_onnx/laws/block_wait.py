"""How long blocks of ONNX Runtime's row kernels wait for themselves: for their loads, reductions and barriers.

A block of threads takes a row, whose warps reduce it together, so that most of the time none of them can issue. What
hides that is other blocks, of which an SM holds ``r``. A row of ``i`` issue slots whose block by itself takes ``a``
cycles (``i`` and the waits) takes an SM::

    Tr = (i^p + (a / r)^p)^(1/p)            r = min(threads of an SM / threads of a block, blocks that it holds)

and a kernel at least ``a``. T4 holds two of the blocks of 512 threads that reduce attention's scores over 384 keys,
V100 and A100 four: 1,057 and 709 cycles a row by this, 620 by the issue slots alone.

``a`` and ``p`` are read off the machine code: ``benchmarks/block_wait.py`` plays it on an SM, instruction by
instruction, with the waits that the compiler wrote into it and latencies of memory and shuffles as published
(onnxruntime-gpu 1.31.1, code for compute capability 8.0; early SkipLayerNormalization: 1.11.1, 7.5). DRAM is idle
there, which under load answers later. Nobody measured these kernels, and the measured ones that were played, PyTorch's
layer normalization (``benchmarks/block_wait_check.py``), are bound by bytes: they don't say how long a block waits.
Fitted to them are 3,000 cycles and 500 a load before rows share an SM, where a row by itself is played in 3,600.

Softmax of more than 1,024 columns, which no warp holds, joins its bytes otherwise (``SOFTMAX_LONG_SHARPNESS``), and its
like was measured.

Other kernels have no such time here: means of rows and today's SkipLayerNormalization hardly wait, that of 1.13 to
1.15 wasn't played, and PyTorch's laws contain what its kernels wait. Latencies in cycles are taken over for all GPUs;
those of AMD's memory are longer, so that its blocks wait at least as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Kernel, Normalization, Softmax
from neusight_onnx.laws.bandwidth import capability, is_amd, p_norm
from neusight_onnx.laws.base import Column
from neusight_onnx.laws.issue import SHARPNESS as BYTES_SHARPNESS
from neusight_onnx.laws.issue_counts import ATTENTION_SOFTMAX_COLUMNS, LIBRARY, SOFTMAX_WARP_COLUMNS, WARP
from neusight_onnx.laws.issue_rows import skip_threads, softmax_block, softmax_operands

SHARPNESS = 3.0
"""Of the soft maximum with the issue slots: 1.31's kernels played on SMs of 1,024 to 2,048
threads lie within 10 % (48 keys, whose issue slots are short: 16 %); for what 1.11's are off see below."""

SOFTMAX_WAIT = {"mask": 1340.0, "lengths": 1360.0, "no mask": 1180.0}
"""Cycles that a block of attention's softmax waits, beside issuing: 1,260 to 1,480 from 16 to 1,024 keys with a mask,
1,330 to 1,430 with lengths, 1,160 to 1,260 with neither. 1.11's waits 950 (384 keys, a mask)."""
SOFTMAX_LARGE_WAIT, SOFTMAX_LARGE_COLUMN, SOFTMAX_LARGE_THREADS = 1750.0, 1.5, 256
"""The same with more than 1,024 columns, and for each of them, by 256 threads (2,048 were played)."""
SOFTMAX_LONG_WAIT, SOFTMAX_VECTOR_WAIT, SOFTMAX_TAIL_WAIT = (1350.0, 1600.0), (900.0, 1150.0), (650.0, 690.0)
"""Of Softmax of more than 1,024 columns in 32 and in 16 bits: once, for each turn of the block by vectors, and by
single elements. Played with as many blocks as an SM holds, 1,500 to 16,384 columns are within 10 %."""
SOFTMAX_LONG_SHARPNESS = 1.3
"""Of the soft maximum of such a row's time on its SM with its bytes: near a sum, since a pass over the row begins when
the one before has ended in all threads. In 32 bits PyTorch 2.1 has the same kernel: its measured rows on V100, T4 and
A100 are 6, 7 and 9 % from the played ones joined so (``benchmarks/softmax_check.py``); a sum 10, 21 and 17, a power of
2 19, 10 and 18."""
LAYER_WAIT, LAYER_COLUMN, LAYER_THREADS = (2400.0, 1800.0), (4.9, 11.0), 64
"""Of LayerNormalization in 32 and 16 bits, and for each column: Welford's formula divides once a step, which the next
one waits for (384, 1,024 and 4,096 columns; 1.11 has blocks of 128 threads, which no law tells apart)."""
LAYER_REGISTERS = (56, 40)
SM_REGISTERS = 65_536
"""Of an SM or compute unit at least, 32 bits each (NVIDIA's CUDA programming guide, since Kepler)."""
SKIP_ONCE_WAIT = 1040.0
"""Of SkipLayerNormalization before 1.13 where the block is as wide as its row (384 columns; 845 in 32 bits)."""
SKIP_WAIT, SKIP_STEP = 600.0, 960.0
"""Where the row is wider: once, and for each element of a thread (768 and 1,024 columns, 16 bits: within 2 %; 32 bits:
down to 24 % less)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """The block of a row: its ``threads``, the ``registers`` of each, the cycles that it ``waits`` beside issuing."""

    threads: float
    waits: float
    registers: int = 32

    def resident(self, gpu: GpuSpec) -> float:
        """How many an SM holds, at least one."""
        threads = min(gpu.max_threads_per_sm, SM_REGISTERS / self.registers)
        return max(min(threads // self.threads, most_blocks(gpu)), 1.0)


def block_of(kernel: Kernel) -> RowBlock | None:
    """None where it isn't one that was played."""
    match kernel:
        case Softmax() if kernel.library == LIBRARY and kernel.by_block and kernel.cols:
            if kernel.cols > ATTENTION_SOFTMAX_COLUMNS:
                waits = SOFTMAX_LARGE_WAIT + SOFTMAX_LARGE_COLUMN * kernel.cols
                return RowBlock(threads=SOFTMAX_LARGE_THREADS, waits=waits)
            threads = max(2.0 ** ceil(log2(kernel.cols)), WARP)
            return RowBlock(threads=threads, waits=SOFTMAX_WAIT[softmax_operands(kernel)])
        case Softmax() if is_long_softmax(kernel):
            return softmax_row(kernel)
        case Normalization() if kernel.library == LIBRARY and kernel.method == "layer" and not kernel.backward:
            if "add" not in kernel.fused:
                narrow = kernel.dtype.bits <= 16
                waits = LAYER_WAIT[narrow] + LAYER_COLUMN[narrow] * kernel.cols
                return RowBlock(threads=LAYER_THREADS, waits=waits, registers=LAYER_REGISTERS[narrow])
            if kernel.at_once != 1:
                return None
            threads = skip_threads(kernel.cols, kernel.at_once)
            each = ceil(kernel.cols / threads)
            return RowBlock(threads=threads, waits=SKIP_ONCE_WAIT if each == 1 else SKIP_WAIT + SKIP_STEP * each)
        case _:
            return None


def softmax_row(kernel: Softmax) -> RowBlock:
    """The block of a row that no warp holds, in ONNX Runtime and in PyTorch until 2.1."""
    narrow, block = kernel.dtype.bits <= 16, softmax_block(kernel)
    vectors = SOFTMAX_VECTOR_WAIT[narrow] * block.vectors
    tail = SOFTMAX_TAIL_WAIT[narrow] * ceil(block.tail / block.threads)
    return RowBlock(threads=block.threads, waits=SOFTMAX_LONG_WAIT[narrow] + vectors + tail)


def is_long_softmax(kernel: Kernel) -> bool:
    """Whether it is ONNX Runtime's softmax of rows that no warp holds, in 16 bits.

    In 32 bits PyTorch's law is that of the same kernel, measured, and contains what it waits.
    """
    return (
        isinstance(kernel, Softmax)
        and kernel.library == LIBRARY
        and kernel.cols > SOFTMAX_WARP_COLUMNS
        and kernel.inner <= 1
        and kernel.dtype.bits <= 16
        and not (kernel.by_block or kernel.fused or kernel.backward)
    )


def sharpness(kernels: Sequence[Kernel]) -> Column:
    """Of the soft maximum of a kernel's time on the SMs with that of its bytes."""
    found = [SOFTMAX_LONG_SHARPNESS if is_long_softmax(kernel) else BYTES_SHARPNESS for kernel in kernels]
    return np.asarray(found, dtype=np.float64)


def most_blocks(gpu: GpuSpec) -> int:
    """Blocks that an SM holds at most (NVIDIA's CUDA programming guide, technical specifications per compute
    capability; AMD's compute units hold as many waves as threads)."""
    if is_amd(gpu):
        return 32
    return {7.5: 16, 8.6: 16, 8.7: 16, 8.9: 24, 12.0: 24, 12.1: 24}.get(capability(gpu), 32)


def with_waits(kernels: Sequence[Kernel], gpu: GpuSpec, issue_us: Column) -> tuple[Column, Column]:
    """(us of the issue slots and waits together, of the waits alone) of kernels whose issue slots take ``issue_us``."""
    alone = np.zeros_like(issue_us)
    for index, kernel in enumerate(kernels):
        block = block_of(kernel)
        if block is not None:
            assert isinstance(kernel, Softmax | Normalization)
            resident = block.resident(gpu)
            rows = max(kernel.rows, 1)
            each_us = issue_us[index] * gpu.sm_count / rows + block.waits / gpu.clock_hz * 1e6
            alone[index] = each_us * max(rows / (gpu.sm_count * resident), 1.0)
    return np.asarray(p_norm((issue_us, alone), SHARPNESS), dtype=np.float64), alone
