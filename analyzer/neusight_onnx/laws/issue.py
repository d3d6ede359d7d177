"""How long the SMs take to issue the instructions of ONNX Runtime's own CUDA kernels.

Those kernels load and store one element at a time, four a thread, find each by 64-bit addresses, and where operands
broadcast or places move by a division a dimension; sums of rows are kept by Welford's formula with a division a step.
Each of an SM's four schedulers issues a warp's instruction a clock, so that a kernel of ``i`` instructions an element
takes at least::

    Ti = n * i / (lanes issued for * SMs * clock)

which competes with its bytes (other warps issue while one waits). On GPUs whose memory is quick for their SMs (HBM)
it is often the larger of the two. ``INSTRUCTIONS`` holds the counts: the kernels of onnxruntime-gpu 1.31.1 were
launched on stand-ins of CUDA's libraries, and the machine code for compute capability 8.0 and 9.0 of what ran was
interpreted with the arguments of the launch, whose path it took (``benchmarks/ort_instructions.py`` does it again; code
for 7.5 has about as many as that for 8.0). What is counted there by pipe, too, shows that none of them binds before the
issue slots do, but for up to 19 % the integer lanes in Relu and the 64 FP32 lanes of compute capability 7.5 and 8.0 in
BiasGelu of 32 bits.

Elsewhere the counts are taken over, not counted: Blackwell issues what code for 9.0 does; GPUs before Volta, whose
integer products take several instructions, and AMD's, for which builds compile the same sources, what code for 8.0
does.

Kernels that aren't in the table (cuDNN's, cuBLAS's, copies by the driver) have no such bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, gcd, log2, prod

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import (
    Elementwise,
    GatherScatter,
    Kernel,
    Movement,
    Normalization,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.laws.bandwidth import capability, is_amd, p_norm
from neusight_onnx.laws.base import Column

SHARPNESS = 8.0
"""Of the soft maximum with the time that memory and the rest take: the elementwise law's."""

ISSUE_LANES = 128.0
"""Lanes of an SM that an instruction is issued for in a clock: four schedulers of a warp each, Volta and later
(NVIDIA's white papers)."""

WARP = 32

LIBRARY = "onnxruntime"
"""Kernels whose ``library`` it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """Instructions an element, ``fixed + dimensions * by_dimension``: in code for compute capability 8.0, and for 9.0,
    which computes addresses in uniform registers and takes more of them."""

    fixed: float
    fixed_hopper: float
    by_dimension: float = 0.0
    by_dimension_hopper: float = 0.0

    def each(self, dimensions: int = 0, *, hopper: bool) -> float:
        if hopper:
            return self.fixed_hopper + dimensions * self.by_dimension_hopper
        return self.fixed + dimensions * self.by_dimension


INSTRUCTIONS: dict[str, Instructions] = {
    # _UnaryElementWise, _BinaryElementWiseSimple, _BinaryElementWiseRhsPerChannelBatchN and ..Batch1 (nothing stands
    # before the vector's dimension), _BinaryElementWise
    "unary": Instructions(fixed=16.5, fixed_hopper=18.75),
    "binary": Instructions(fixed=16.5, fixed_hopper=17.0),
    "vector": Instructions(fixed=24.0, fixed_hopper=27.5),
    "vector first": Instructions(fixed=19.0, fixed_hopper=21.75),
    "broadcast one": Instructions(fixed=18.0, fixed_hopper=19.0, by_dimension=8.0, by_dimension_hopper=11.0),
    "broadcast both": Instructions(fixed=18.25, fixed_hopper=19.5, by_dimension=9.0, by_dimension_hopper=13.0),
    # _TenaryElementWiseSimple, _TenaryElementWise with one or two operands to find
    "where": Instructions(fixed=20.0, fixed_hopper=21.75),
    "where broadcast": Instructions(fixed=26.0, fixed_hopper=23.5, by_dimension=9.0, by_dimension_hopper=12.0),
    # Transpose3DKernel and, of a matrix in 16 bits, transposeNoOverlap, each place of whole tiles (down to 28 and 19
    # where columns are few); Transpose4DKernelParallelizeMultipleElements.. (of 16 bytes); TransposeKernel
    "transpose tile": Instructions(fixed=36.5, fixed_hopper=41.25),
    "transpose matrix": Instructions(fixed=30.5, fixed_hopper=33.5),
    "transpose vector": Instructions(fixed=63.0, fixed_hopper=66.0),
    "transpose": Instructions(fixed=18.0, fixed_hopper=22.0, by_dimension=8.0, by_dimension_hopper=11.0),
    # _SliceKernel; _ConcatKernelSameConcatDim; _SplitKernelSameSplitDim, _SplitKernel, _SplitSmallInnerKernel (a vector
    # of up to 16 bytes: 67 to 87, the more parts the more)
    "slice": Instructions(fixed=10.25, fixed_hopper=11.5, by_dimension=8.0, by_dimension_hopper=11.0),
    "concat": Instructions(fixed=29.75, fixed_hopper=35.5),
    "split": Instructions(fixed=30.25, fixed_hopper=37.25),
    "split unequal": Instructions(fixed=43.75, fixed_hopper=51.25),
    "split vector": Instructions(fixed=75.0, fixed_hopper=75.0),
    # ExpandKernel2D; ExpandKernel over the three dimensions that are left when neighbours merge
    "expand 2d": Instructions(fixed=20.0, fixed_hopper=26.0),
    "expand": Instructions(fixed=39.5, fixed_hopper=48.75),
    # BroadcastBiasKernel (Gemm's bias, which divides by a size that isn't prepared); _PadNCHWInput..; _GatherKernel
    "bias": Instructions(fixed=92.0, fixed_hopper=99.0),
    "pad": Instructions(fixed=87.0, fixed_hopper=98.0),
    "gather": Instructions(fixed=43.0, fixed_hopper=50.0),
    # reduce_matrix_columns_kernel; SkipLayerNormKernelSmall without and with a mean
    "reduce": Instructions(fixed=42.8, fixed_hopper=41.2),
    "skip rms": Instructions(fixed=20.5, fixed_hopper=21.4),
    "skip layer": Instructions(fixed=27.3, fixed_hopper=29.8),
    # VectorizedBiasGeluKernel of 16 and 32 bits; FastGeluKernel2, FastGeluKernel, without and with a bias
    "bias gelu 16": Instructions(fixed=36.0, fixed_hopper=37.0),
    "bias gelu 32": Instructions(fixed=68.75, fixed_hopper=71.5),
    "fast gelu 16": Instructions(fixed=31.5, fixed_hopper=31.5),
    "fast gelu 32": Instructions(fixed=41.0, fixed_hopper=45.0),
    "bias fast gelu 16": Instructions(fixed=44.0, fixed_hopper=44.5),
    "bias fast gelu 32": Instructions(fixed=66.0, fixed_hopper=71.0),
    "clip": Instructions(fixed=34.0, fixed_hopper=39.0),
    # _ResizeNearestKernel2D, _ResizeBilinearKernel, _ResizeBiCubicKernel
    "resize 1": Instructions(fixed=42.0, fixed_hopper=53.0),
    "resize 4": Instructions(fixed=91.0, fixed_hopper=94.0),
    "resize 16": Instructions(fixed=192.0, fixed_hopper=187.0),
}
"""Of ONNX Runtime's kernels, each element of the result; of "vector" transposes and splits, each vector."""

TRANSPOSED_TILE = 32
"""Rows and columns of the tiles by which matrices are transposed: lanes beyond the matrix issue as well."""

INNER_PARTS = 4
"""Parts of the last dimension that ``_SplitSmallInnerKernel`` takes at most."""
VECTOR_BYTES = 16

OPERATION_INSTRUCTIONS: dict[str, float] = {
    "sigmoid": 26.0,
    "tanh": 18.0,
    "erf": 29.0,
    "gelu": 65.0,
    "exp": 11.0,
    "log": 28.0,
    "sqrt": 12.0,
    "reciprocal": 12.0,
    "div": 11.0,
    "pow": 88.0,
    "softplus": 43.0,
    "softsign": 16.0,
    "silu": 28.0,
    "hardswish": 19.0,
    "sin": 27.0,
    "cos": 28.0,
}
"""What an operation takes beyond a kernel that only moves its element: the lesser of 16 and 32 bits, compute capability
8.0; the others take 0 to 7, left out."""

SOFTMAX_WARP_COLUMNS = 1024
SOFTMAX_ROW, SOFTMAX_STEP, SOFTMAX_EMPTY_STEP = 40.0, 32.0, 18.0
"""Instructions of a warp that holds a row (``softmax_warp_forward``): once, for each 32 columns, and for each 32 that
the kernel of the next power of two has beyond them. Counts of 32 to 1,024 columns follow it within 4 %."""
SOFTMAX_BLOCK_WARP = (186.0, 220.0)
SOFTMAX_BLOCK_VECTOR = (140.0, 300.0)
SOFTMAX_BLOCK_TAIL = (52.0, 57.0)
"""Instructions of a warp of the kernel of a block a row (``softmax_block_forward``), in 32 and in 16 bits: once, for
each turn of the block by vectors of 16 bytes, and for each by single elements (:class:`SoftmaxBlock`). Counts of 1,025
to 16,384 columns follow them within 8 %."""

ATTENTION_SOFTMAX = {
    "mask": Instructions(fixed=155.0, fixed_hopper=180.0),
    "lengths": Instructions(fixed=108.0, fixed_hopper=122.0),
    "no mask": Instructions(fixed=120.0, fixed_hopper=144.0),
}
"""Of the softmax between attention's products (SoftmaxWithRawMaskSmallKernel, MaskedSoftmaxKernelSmall,
SoftmaxKernelSmall), each thread of a row's block: as many as there are columns, up to the next power of two, and a warp
at least. Most are the two reductions over the block. Counts of 16 to 1,024 columns are within 6 % for a mask (48: 14 %
more) and 22 % for the others; 1.11's are as many (a mask 151 to 164, lengths 114 to 122)."""
ATTENTION_SOFTMAX_COLUMNS = 1024
ATTENTION_SOFTMAX_LARGE = Instructions(fixed=60.0, fixed_hopper=67.0)
"""Of SoftmaxWithRawMaskLargeKernel, which takes more columns: each element."""

LAYER_ROW, LAYER_STEP = 790.0, 47.3
LAYER_ROW_NARROW, LAYER_STEP_NARROW = 723.0, 63.7
"""Instructions of the warps of a row's block (``cuApplyLayerNorm``) in 32 and in 16 bits: once, and every 32 columns.
The counts of 384, 768, 1,024 and 4,096 columns follow it within 1 %."""
SKIP_FOURS = (166.0, 133.0)
"""Of the kernel that adds a residual and normalizes in releases before 1.16, each thread of a row's block, in 16 and in
32 bits (code for compute capability 8.0): four elements each (128 to 1,024 columns: 149 to 168 and 119 to 134)."""
SKIP_ONCE = (132.0, 105.0)
"""One element each, where the block is as wide as the row (128 and 384 columns: within 3 %)."""
SKIP_ROW, SKIP_STEP = (165.0, 140.0), (27.0, 21.5)
"""Once, and for each element of a thread, where the row is wider than the block (512 to 4,096 columns: within 14 %)."""
SKIP_FOURS_COLUMNS = 1024
"""Columns of the widest row that threads of four elements take."""
RMS_ELEMENT = 17.0
"""The same kernel without a mean, an element: 17 (4,096 columns in 16 bits) to 29."""

CUMSUM_FIXED = Instructions(fixed=80.0, fixed_hopper=88.0)
CUMSUM_STEP = {
    "float": Instructions(fixed=4.14, fixed_hopper=3.76),
    "integer": Instructions(fixed=3.69, fixed_hopper=3.25),
}
"""Of ``_CumSumKernel``, each element of the result, and each of those before it, all of which its thread sums (a loop
unrolled by 16, a load and an addition a step). Counts of 20 to 600 elements along the axis follow it within 2 %."""
CUMSUM_BLOCK = 256
"""Threads of a block of ``_CumSumKernel``; and of the block that scans a row of int64, in shared memory, so many at
once (``_CumSumInt64BlockKernel``)."""
CUMSUM_BLOCK_FIXED, CUMSUM_BLOCK_STEP = 44.0, 79.0
"""Instructions of a thread of the latter: once, and for each 256 elements of the row (20 to 600: within 1 %)."""


def instructions_of(kernel: Kernel, *, hopper: bool) -> float:
    """Instructions of all threads of a kernel by ONNX Runtime, for each lane; 0 where it isn't one that was counted."""
    match kernel:
        case Elementwise() if kernel.library == LIBRARY:
            return kernel.output.element_count * _pointwise(kernel, hopper=hopper)
        case Movement() if kernel.library == LIBRARY:
            return _moved(kernel, hopper=hopper)
        case GatherScatter() if kernel.library == LIBRARY and kernel.operation in ("embedding", "gather"):
            return kernel.moved * INSTRUCTIONS["gather"].each(hopper=hopper)
        case Softmax() if kernel.library == LIBRARY and kernel.by_block:
            return _softmax_by_block(kernel, hopper=hopper)
        case Softmax() if kernel.library == LIBRARY and not kernel.fused and not kernel.backward:
            return _softmax(kernel)
        case Normalization() if kernel.library == LIBRARY and not kernel.backward:
            return _normalized(kernel, hopper=hopper)
        case Reduction() if kernel.library == LIBRARY and kernel.inner == 1 and kernel.operation in ("sum", "mean"):
            return kernel.outputs * kernel.reduced * INSTRUCTIONS["reduce"].each(hopper=hopper)
        case Reduction() if kernel.library == LIBRARY and kernel.operation == "cumsum":
            return _running_sums(kernel, hopper=hopper)
        case _:
            return 0.0


def _pointwise(kernel: Elementwise, *, hopper: bool) -> float:
    n, narrow = kernel.output.element_count, kernel.output.dtype.bits <= 16
    bits = "16" if narrow else "32"
    found = [spec for spec in kernel.inputs if 1 < spec.element_count < n]
    match kernel.operations:
        case ("add", "gelu"):
            return INSTRUCTIONS[f"bias gelu {bits}"].each(hopper=hopper)
        case ("add", "gelu_tanh"):
            return INSTRUCTIONS[f"bias fast gelu {bits}"].each(hopper=hopper)
        case ("gelu_tanh",):
            return INSTRUCTIONS[f"fast gelu {bits}"].each(hopper=hopper)
        case ("clamp",):
            return INSTRUCTIONS["clip"].each(hopper=hopper)
        case _:
            pass
    dimensions = len(kernel.output.shape)
    if "where" in kernel.operations:
        base = INSTRUCTIONS["where broadcast"].each(dimensions, hopper=hopper) if found else None
        base = INSTRUCTIONS["where"].each(hopper=hopper) if base is None else base
    elif not found:
        base = INSTRUCTIONS["binary" if len(kernel.inputs) > 1 else "unary"].each(hopper=hopper)
    elif is_vector_on_the_right(kernel.inputs, n):
        is_first = _elements_before(found[0].shape, kernel.output.shape) == 1
        base = INSTRUCTIONS["vector first" if is_first else "vector"].each(hopper=hopper)
    else:
        both = "both" if len(found) > 1 else "one"
        base = INSTRUCTIONS[f"broadcast {both}"].each(dimensions, hopper=hopper)
    return base + sum(OPERATION_INSTRUCTIONS.get(name, 0.0) for name in kernel.operations)


def is_vector_on_the_right(inputs: Sequence[TensorSpec], output_elements: int) -> bool:
    """Whether one operand, not the first, is a vector along one dimension and the others are whole or numbers."""
    spread = [spec for spec in inputs if 1 < spec.element_count < output_elements]
    return len(spread) == 1 and sum(size != 1 for size in spread[0].shape) == 1 and spread[0] is not inputs[0]


def _elements_before(vector: Sequence[int], output: Sequence[int]) -> int:
    """Elements of the dimensions before the one that a vector lies along: (64, 1, 1) on (2, 64, 9, 9) has 2."""
    places = [len(output) - len(vector) + axis for axis, size in enumerate(vector) if size != 1]
    return prod(output[: places[0]])


def _moved(kernel: Movement, *, hopper: bool) -> float:
    size = max(kernel.dtype.bits / 8, 1.0)
    count = kernel.written / size
    rank = len(kernel.shape)
    match kernel.operation:
        case "transpose" if kernel.permutation is not None:
            return _transposed(kernel.shape, kernel.permutation, kernel.dtype, hopper=hopper)
        case "slice":
            return count * INSTRUCTIONS["slice"].each(rank, hopper=hopper)
        case "split" if 0 < len(kernel.parts) <= INNER_PARTS and kernel.run < kernel.shape[-1]:
            vector = gcd(int(kernel.run * size), VECTOR_BYTES)
            return kernel.written / vector * INSTRUCTIONS["split vector"].each(hopper=hopper)
        case "split":
            name = "split" if len(set(kernel.parts)) < 2 else "split unequal"
            return count * INSTRUCTIONS[name].each(hopper=hopper)
        case "bias" | "concat" | "pad":
            return count * INSTRUCTIONS[kernel.operation].each(hopper=hopper)
        case "expand":
            return count * INSTRUCTIONS["expand" if rank > 2 else "expand 2d"].each(hopper=hopper)
        case "resize":
            return count * INSTRUCTIONS[f"resize {kernel.taps}"].each(hopper=hopper)
        case "cast":
            return count * INSTRUCTIONS["unary"].each(hopper=hopper)
        case _:
            return 0.0


def _transposed(shape: Sequence[int], permutation: Sequence[int], dtype: DataType, *, hopper: bool) -> float:
    sizes, order = merged(shape, permutation)
    rank, count = len(order), prod(sizes)
    if order == tuple(range(rank)):
        return 0.0  # a copy
    is_matrix = order == (1, 0)
    if is_matrix and dtype in (DataType.FLOAT32, DataType.FLOAT64):
        return 0.0  # cuBLAS's
    if order == (0, 2, 1) or (is_matrix and dtype in (DataType.FLOAT16, DataType.BFLOAT16)):
        *batch, rows, columns = sizes
        tiles = prod(batch) * ceil(rows / TRANSPOSED_TILE) * ceil(columns / TRANSPOSED_TILE)
        each = INSTRUCTIONS["transpose matrix" if is_matrix else "transpose tile"].each(hopper=hopper)
        return tiles * TRANSPOSED_TILE**2 * each
    row_bytes = sizes[-1] * dtype.bits / 8
    if order[-1] == rank - 1 and rank <= 4 and row_bytes % VECTOR_BYTES == 0:
        return count * dtype.bits / 8 / VECTOR_BYTES * INSTRUCTIONS["transpose vector"].each(hopper=hopper)
    return count * INSTRUCTIONS["transpose"].each(rank, hopper=hopper)


def merged(shape: Sequence[int], permutation: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and permutation of what is left when dimensions of one element go and neighbours that stay such merge.

    (2, 3, 4, 5) by (0, 2, 3, 1) is (2, 3, 20) by (0, 2, 1).
    """
    axes = [axis for axis in permutation if shape[axis] != 1]
    left = [axis for axis in range(len(shape)) if shape[axis] != 1]
    follows = dict(pairwise(left))
    sizes: dict[int, int] = {}
    head = -1
    for index, axis in enumerate(axes):
        if index == 0 or follows.get(axes[index - 1]) != axis:
            head = axis
        sizes[head] = sizes.get(head, 1) * shape[axis]
    heads = sorted(sizes)
    return tuple(sizes[axis] for axis in heads), tuple(heads.index(axis) for axis in sizes)


def _softmax(kernel: Softmax) -> float:
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


def _softmax_by_block(kernel: Softmax, *, hopper: bool) -> float:
    if kernel.cols > ATTENTION_SOFTMAX_COLUMNS:
        return kernel.rows * kernel.cols * ATTENTION_SOFTMAX_LARGE.each(hopper=hopper)
    threads = max(2.0 ** ceil(log2(max(kernel.cols, 1))), WARP)
    return kernel.rows * threads * ATTENTION_SOFTMAX[softmax_operands(kernel)].each(hopper=hopper)


def softmax_operands(kernel: Softmax) -> str:
    """What says which keys there are: "mask", "lengths" of keys, "no mask"."""
    if not kernel.extra_inputs:
        return "no mask"
    return "lengths" if all(len(spec.shape) == 1 for spec in kernel.extra_inputs) else "mask"


def _normalized(kernel: Normalization, *, hopper: bool) -> float:
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


def _running_sums(kernel: Reduction, *, hopper: bool) -> float:
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


def issue_lanes(gpu: GpuSpec) -> float:
    """Lanes of an SM that an instruction is issued for in a clock; before Volta and on AMD, as many as it has."""
    if is_amd(gpu) or capability(gpu) < 7.0:
        return float(gpu.fp32_lanes_per_sm)
    return ISSUE_LANES


def issue_us(kernels: Sequence[Kernel], gpu: GpuSpec) -> Column | None:
    """Time that each kernel's instructions take to be issued, in us; None where none of them was counted."""
    if not any(getattr(kernel, "library", "") == LIBRARY for kernel in kernels):
        return None
    hopper = not is_amd(gpu) and capability(gpu) >= 9.0
    counts = [instructions_of(kernel, hopper=hopper) for kernel in kernels]
    return np.asarray(counts, dtype=np.float64) / instructions_per_us(gpu)


def instructions_per_us(gpu: GpuSpec) -> float:
    """Instructions, each of a lane, that the SMs issue in a microsecond at the boost clock."""
    return issue_lanes(gpu) * gpu.sm_count * gpu.clock_hz * 1e-6


def with_issue(latency_us: Column, launch_us: Column, issue: Column, sharpness: float | Column = SHARPNESS) -> Column:
    """The time of a kernel that issues while others of its warps wait for memory; not less than without."""
    body = np.maximum(latency_us - launch_us, 0.0)
    return np.asarray(np.maximum(latency_us, launch_us + p_norm((body, issue), sharpness)), dtype=np.float64)
