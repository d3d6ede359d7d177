"""Scratch memory of a node while it runs: between its kernels, and within them by the library's algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Recurrent,
    Sort,
)


class Scratch(NamedTuple):
    """Bytes at the low end, expected, at the high end."""

    low: int
    expected: int
    high: int


NONE = Scratch(0, 0, 0)
_ASKING = (Attention, Conv, Sort)
_FUSED_OR_NOT = frozenset(
    {"DecoderAttention", "FlexAttention", "LongformerAttention", "PackedAttention", "PackedMultiHeadAttention"}
) | {"QAttention", "QOrderedAttention"}
"""Attention that is costed as one kernel without asking whether its library has one."""
_COPYING = ("copy", "transpose")
"""Movements between a node's kernels that bring operands into the order that its products want."""

_INDEX_BYTES = 4
_LSE_BYTES = 4
_SORT_INDEX_BYTES = 8
_FLASH_QUERIES = 64
_FLASH_KEYS = 64
"""Queries and keys of a block of FlashAttention's split kernel (for wide heads; narrow ones have 128 or 256 keys)."""
_FLASH_MOST_SPLITS = 128
_FLASH_FULL_BLOCKS = 256
"""Blocks that leave no room for a split on any GPU: 0.8 x 2 x 160 multiprocessors."""


def uses_blas(work: NodeWork) -> bool:
    """Whether a node's kernels go through the BLAS library, which then holds its workspace."""
    return any(isinstance(kernel, Gemm | Recurrent) for kernel in work.kernels)


def scratch_of(work: NodeWork) -> Scratch:
    """What a node holds beside its operands and results while it runs.

    Between kernels: copies of operands, and operands that were dequantised, stay until the node's last kernel; of other
    results that only the next kernel reads, the largest counts. Within kernels: the largest of them.
    """
    kernels, is_settled = work.kernels, work.op_type not in _FUSED_OR_NOT
    if not kernels:
        return NONE
    if len(kernels) == 1:
        return _within(kernels[0], is_settled) if isinstance(kernels[0], _ASKING) else NONE
    copies = most = before = 0
    for kernel, following in pairwise(kernels):
        size = kernel.write_bytes
        if isinstance(kernel, Movement):
            copies += size if kernel.operation in _COPYING else 0
        elif _dequantises(kernel):
            copies += size
        elif _dequantises(following):
            # gone before the other operands are there
            before = max(before, copies + size + following.write_bytes)
        else:
            most = max(most, size)
    between = max(copies + most, before)
    within = [_within(kernel, is_settled) for kernel in kernels]
    return Scratch(*(between + max(level) for level in zip(*within, strict=True)))


def _dequantises(kernel: Kernel) -> bool:
    return isinstance(kernel, Elementwise) and kernel.operations == ("dequantize",)


def scratch_backwards(kernels: Sequence[Kernel], made: Sequence[int]) -> Scratch:
    """What the gradient of a node holds beside what it makes, gradients of so many bytes each, while it runs.

    Kernels write those gradients, or in place into one that was filled with zeros; of the other results, copies of
    strided operands stay and of the rest the largest counts.
    """
    left = list(made)
    copies = most = 0
    for kernel in reversed(kernels):
        size = kernel.write_bytes
        in_place = isinstance(kernel, GatherScatter | Sort) or (isinstance(kernel, Movement) and kernel.read == 0)
        if in_place:
            continue
        if size in left:
            left.remove(size)
        elif isinstance(kernel, Movement) and kernel.operation == "copy":
            copies += size
        else:
            most = max(most, size)
    within = [_within(kernel) for kernel in kernels] or [NONE]
    return Scratch(*(copies + most + max(level) for level in zip(*within, strict=True)))


def _within(kernel: Kernel, is_settled: bool = True) -> Scratch:
    match kernel:
        case Conv():
            return _convolution(kernel)
        case Attention():
            return _attention(kernel, is_settled)
        case Sort():
            return _sort(kernel)
        case _:
            return NONE


def _convolution(kernel: Conv) -> Scratch:
    """cuDNN: implicit GEMM needs none, with precomputed indices (the usual choice) one index for each place of the
    output and of the filter; Winograd in separate steps (F(4x4, 3x3): tiles of 6 x 6 for 4 x 4 results; Lavin and Gray
    2016) holds the transformed input, filter and output. The kinds of algorithm are those of cudnnConvolutionFwdAlgo_t;
    which one is taken isn't known beforehand, so the last is the high end where it applies."""
    indices = _INDEX_BYTES * (prod(kernel.out) + kernel.c // kernel.groups * prod(kernel.filter))
    high = indices
    unit = all(step == 1 for step in (*kernel.strides, *kernel.dilations))
    if kernel.filter == (3, 3) and unit and kernel.groups == 1 and not kernel.transposed:
        tiles = kernel.n * prod(-(-size // 4) for size in kernel.out)
        high = max(indices, kernel.dtype.bytes_of(36 * (tiles * (kernel.c + kernel.k) + kernel.c * kernel.k)))
    return Scratch(0, indices, high)


def _attention(kernel: Attention, is_settled: bool) -> Scratch:
    """Fused attention (b, h, s, d) x (b, g, t, d) writes one number a query for the softmax, float32 (FlashAttention,
    Dao et al. 2022).

    At the high end, where ``is_settled`` that a library's fused kernel runs (PyTorch's and ONNX Runtime's conditions
    are asked when a node is lowered, and what fails them comes as products): it adds up results in float32, as those of
    heads beyond its tile's width in CUTLASS's memory-efficient kernel, and in FlashAttention one for each part that
    the keys of few queries are split into. Else the scores (b, h, s, t) and their softmax, of products.
    """
    lse = _LSE_BYTES * kernel.b * kernel.h * kernel.s
    if kernel.library and is_settled and not kernel.extra_outputs:
        sums = _split_count(kernel) * lse * (kernel.v + 1)
        return Scratch(0, lse, lse + sums)
    scores = 2 * kernel.dtype.bytes_of(kernel.b * kernel.h * kernel.s * kernel.t)
    return Scratch(0, lse, max(lse, scores))


def _split_count(kernel: Attention) -> int:
    """The most parts that FlashAttention 2 splits keys into (``num_splits_heuristic`` of its ``flash_api.cpp``, as
    remembered): none where blocks of queries fill 80 % of twice the multiprocessors, at most 128, at most one for
    each block of keys."""
    blocks = kernel.b * kernel.h * -(-kernel.s // _FLASH_QUERIES)
    if blocks >= _FLASH_FULL_BLOCKS:
        return 1
    return max(min(_FLASH_MOST_SPLITS, -(-kernel.t // _FLASH_KEYS)), 1)


def _sort(kernel: Sort) -> Scratch:
    """A radix sort goes back and forth between two buffers of keys and int64 indices (CUB's DeviceRadixSort): one of
    them is scratch. Short rows are sorted within a block and need none."""
    buffer = kernel.rows * (kernel.dtype.bytes_of(kernel.cols) + _SORT_INDEX_BYTES * kernel.cols)
    return Scratch(0, buffer, buffer)
