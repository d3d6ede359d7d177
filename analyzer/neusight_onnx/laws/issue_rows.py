"""Instructions of ONNX Runtime's kernels that take rows: softmax, normalizations, running sums."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Normalization, Reduction, Softmax
from neusight_onnx.laws.issue_counts import (
    ATTENTION_SOFTMAX,
    ATTENTION_SOFTMAX_COLUMNS,
    ATTENTION_SOFTMAX_LARGE,
    CUMSUM_BLOCK,
    CUMSUM_BLOCK_FIXED,
    CUMSUM_BLOCK_STEP,
    CUMSUM_FIXED,
    CUMSUM_STEP,
    INSTRUCTIONS,
    LAYER_ROW,
    LAYER_ROW_NARROW,
    LAYER_STEP,
    LAYER_STEP_NARROW,
    LIBRARY,
    RMS_ELEMENT,
    SKIP_FOURS,
    SKIP_FOURS_COLUMNS,
    SKIP_ONCE,
    SKIP_ROW,
    SKIP_STEP,
    SOFTMAX_BLOCK_TAIL,
    SOFTMAX_BLOCK_VECTOR,
    SOFTMAX_BLOCK_WARP,
    SOFTMAX_EMPTY_STEP,
    SOFTMAX_ROW,
    SOFTMAX_STEP,
    SOFTMAX_WARP_COLUMNS,
    VECTOR_BYTES,
    WARP,
)


def softmax(kernel: Softmax) -> float:
    """Instructions of all threads of Softmax: a warp a row, of wide ones a block; 0 but along the last axis."""
    if kernel.inner > 1 or not kernel.cols:
        return 0.0
    if kernel.cols > SOFTMAX_WARP_COLUMNS:
        narrow, block = kernel.dtype.bits <= 16, softmax_block(kernel)
        vectors = SOFTMAX_BLOCK_VECTOR[narrow] * block.vectors
        tail = SOFTMAX_BLOCK_TAIL[narrow] * block.tail / block.threads
        return kernel.rows * block.threads * (SOFTMAX_BLOCK_WARP[narrow] + vectors + tail)
    steps = ceil(kernel.cols / WARP)
    padded = max(2.0 ** ceil(log2(kernel.cols)), WARP) / WARP
    each = SOFTMAX_ROW + SOFTMAX_STEP * steps + SOFTMAX_EMPTY_STEP * max(padded - steps, 0.0)
    return kernel.rows * WARP * each


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxBlock:
    """The block of a row of more than 1,024 columns: its ``threads``, how often all of them load a vector of 16 bytes
    in one of three passes, and the columns that are left as a ``tail``, an element a thread."""

    threads: int
    vectors: int
    tail: int


def softmax_block(kernel: Softmax) -> SoftmaxBlock:
    """Source: ``SoftMax_getBlockSize``, as remembered; launches of 1.31.1 on stand-ins, 1,025 to 6,144 columns."""
    lanes = max(VECTOR_BYTES * 8 // max(kernel.dtype.bits, 8), 1)
    half = min(kernel.cols // lanes, 1024) // 2
    threads = max(1 << max(half - 1, 0).bit_length(), WARP)
    vectors = kernel.cols // (lanes * threads)
    return SoftmaxBlock(threads=threads, vectors=vectors, tail=kernel.cols - vectors * lanes * threads)


def attention_softmax(kernel: Softmax, *, hopper: bool) -> float:
    """Instructions of all threads of the softmax between attention's products, a block a row."""
    if kernel.cols > ATTENTION_SOFTMAX_COLUMNS:
        return kernel.rows * kernel.cols * ATTENTION_SOFTMAX_LARGE.each(hopper=hopper)
    threads = max(2.0 ** ceil(log2(max(kernel.cols, 1))), WARP)
    return kernel.rows * threads * ATTENTION_SOFTMAX[softmax_operands(kernel)].each(hopper=hopper)


def softmax_operands(kernel: Softmax) -> str:
    """What says which keys there are: "mask", "lengths" of keys, "no mask"."""
    if not kernel.extra_inputs:
        return "no mask"
    return "lengths" if all(len(spec.shape) == 1 for spec in kernel.extra_inputs) else "mask"


def normalized(kernel: Normalization, *, hopper: bool) -> float:
    """Instructions of all threads of a layer or RMS normalization; 0 of others."""
    n = kernel.rows * kernel.cols
    if kernel.method not in ("layer", "rms"):
        return 0.0
    if "add" in kernel.fused and kernel.at_once:
        return kernel.rows * _added_first(kernel)
    if "add" in kernel.fused:
        return n * INSTRUCTIONS[f"skip {kernel.method}"].each(hopper=hopper)
    if kernel.method == "rms":
        return n * RMS_ELEMENT
    narrow = kernel.dtype.bits <= 16
    row, step = (LAYER_ROW_NARROW, LAYER_STEP_NARROW) if narrow else (LAYER_ROW, LAYER_STEP)
    return kernel.rows * WARP * (row + step * ceil(kernel.cols / WARP))


def sums_all_before(kernel: Reduction) -> bool:
    """Whether each element's thread sums all before it: in cumulative sums by ONNX Runtime, but of int64."""
    return kernel.library == LIBRARY and kernel.operation == "cumsum" and kernel.dtype is not DataType.INT64


def summed_before(kernel: Reduction) -> float:
    """Elements that a thread of such a kernel sums, on average."""
    return (kernel.reduced + 1) / 2.0


def running_sums(kernel: Reduction, *, hopper: bool) -> float:
    """Instructions of all threads of a cumulative sum."""
    if not sums_all_before(kernel):
        each = CUMSUM_BLOCK_FIXED + CUMSUM_BLOCK_STEP * ceil(kernel.reduced / CUMSUM_BLOCK)
        return kernel.outputs * CUMSUM_BLOCK * each
    step = CUMSUM_STEP["integer" if kernel.dtype.is_integer else "float"].each(hopper=hopper)
    each = CUMSUM_FIXED.each(hopper=hopper) + step * summed_before(kernel)
    return kernel.outputs * kernel.reduced * each


def skip_threads(cols: int, at_once: int) -> int:
    """Threads of a row's block in releases before 1.16 (blocks of 16 launches, 64 to 4,096 columns)."""
    if at_once == 4 and cols <= SKIP_FOURS_COLUMNS:
        return next(threads for threads in (32, 96, 192, 256) if threads * at_once >= cols)
    if cols == 384:
        return 384
    return next((threads for threads in (32, 128) if threads >= cols), 256)


def _added_first(kernel: Normalization) -> float:
    """Instructions of a row's block, all lanes."""
    bits = 0 if kernel.dtype.bits <= 16 else 1
    threads = skip_threads(kernel.cols, kernel.at_once)
    if kernel.at_once == 4 and kernel.cols <= SKIP_FOURS_COLUMNS:
        return threads * SKIP_FOURS[bits]
    if threads >= kernel.cols:
        return threads * SKIP_ONCE[bits]
    return threads * (SKIP_ROW[bits] + SKIP_STEP[bits] * ceil(kernel.cols / threads))
