"""Instructions of ONNX Runtime's own CUDA kernels, by element, warp or block.

The kernels of onnxruntime-gpu 1.31.1 were launched on stand-ins of CUDA's libraries, and the machine code for compute
capability 8.0 and 9.0 of what ran was interpreted with the arguments of the launch, whose path it took
(``benchmarks/ort_instructions.py`` does it again; code for 7.5 has about as many as that for 8.0). What is counted
there by pipe, too, shows that none of them binds before the issue slots do, but for up to 19 % the integer lanes in
Relu and the 64 FP32 lanes of compute capability 7.5 and 8.0 in BiasGelu of 32 bits.

Elsewhere the counts are taken over, not counted: Blackwell issues what code for 9.0 does; GPUs before Volta, whose
integer products take several instructions, and AMD's, for which builds compile the same sources, what code for 8.0
does.

:mod:`neusight_onnx.laws.issue` says which of them a kernel's are, and how long they take.
"""

from __future__ import annotations

from dataclasses import dataclass

LIBRARY = "onnxruntime"
"""Kernels whose ``library`` it is."""

WARP = 32


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
