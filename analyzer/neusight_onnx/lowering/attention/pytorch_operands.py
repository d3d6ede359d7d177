"""What PyTorch does to the operands of fused attention before its kernel, and how the result lies in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Attention, Elementwise, Kernel, Movement, TensorSpec
from neusight_onnx.lowering.attention.formula import as_numbers, takes_flash
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.views import Layout

HEADS_BEHIND_TOKENS = 3
"""Dimensions of (b, s, h * d), whose heads are a view."""

MASK_STEP = 8
"""Columns that rows of a mask are padded to a multiple of before PyTorch's memory-efficient kernel (``pad_bias`` of
ATen's native/transformers/attention.cpp)."""

FLASH_STEP = 8
"""Columns that heads are padded to a multiple of before FlashAttention (``pad_last_dim`` of the same file)."""


def result_layouts(context: NodeContext, kernel: Attention) -> tuple[Layout | None, ...]:
    """How PyTorch's fused attention writes (b, h, s, v): as (b, s, h, v), a view of which it returns, so that merging
    heads is free. FlashAttention writes in the order of the queries, and padded heads row by row as they are computed.
    """
    shape = context.out().shape
    if not context.lazy or len(shape) != 4:
        return ()
    _, h, s, v = shape
    _, of_head, of_token, _ = context.strides(0) if len(context.shape(0)) == 4 else (0, 0, 1, 0)
    padded = -(-v // FLASH_STEP) * FLASH_STEP
    if takes_flash(kernel) and padded != v:
        return (context.view(0, shape, (h * s * padded, s * padded, padded, 1)),)
    if takes_flash(kernel) and h > 1 and s > 1 and of_head > of_token:
        return ()
    return (context.view(0, shape, (s * h * v, v, h * v, 1)),)


def with_operands(context: NodeContext, kernel: Attention) -> tuple[Kernel, ...]:
    """A fused kernel and what PyTorch does to its operands before.

    A mask of truth values becomes one of numbers; in eager mode rows that are no multiple of ``MASK_STEP`` columns are
    padded, by a fill and a copy. FlashAttention's heads are padded to a multiple of ``FLASH_STEP`` in the same way; a
    compiler pads in one kernel.
    """
    if not context.lazy:
        return (kernel,)
    eager = context.runtime == "eager"
    if takes_flash(kernel) and kernel.d % FLASH_STEP:
        sizes = ((kernel.h, kernel.s), (kernel.g, kernel.t), (kernel.g, kernel.t))
        shapes = [(kernel.b, heads, rows, kernel.d) for heads, rows in sizes]
        return (*(step for shape in shapes for step in _padded(kernel.dtype, shape, FLASH_STEP, eager=eager)), kernel)
    mask = kernel.mask
    if mask is None:
        return (kernel,)
    before: tuple[Kernel, ...] = ()
    if mask.dtype is DataType.BOOL:
        before = as_numbers(kernel) if eager else as_numbers(kernel)[-1:]
        mask = replace(mask, dtype=kernel.dtype)
    if eager and mask.shape and mask.shape[-1] % MASK_STEP:
        before = (*before, *_padded(mask.dtype, mask.shape, MASK_STEP, eager=True))
    return (*before, replace(kernel, mask=mask))


def _padded(dtype: DataType, shape: tuple[int, ...], step: int, *, eager: bool) -> tuple[Kernel, ...]:
    """A tensor copied to one whose rows are a multiple of ``step`` long: a fill and a copy, compiled one kernel."""
    source = TensorSpec(dtype=dtype, shape=shape)
    target = replace(source, shape=(*shape[:-1], -(-shape[-1] // step) * step))
    if not eager:
        return (Elementwise(operations=("pad",), inputs=(source,), output=target, generated=True),)
    size = source.byte_count
    return fill(target), Movement(operation="copy", dtype=dtype, shape=shape, read=size, written=size)


def are_copied(context: NodeContext) -> tuple[bool, ...]:
    """Whether a product copies queries, keys and values: the dimensions before the last two aren't one in memory."""
    found = []
    for index in range(3):
        shape, strides = context.shape(index), context.strides(index)
        if len(shape) == HEADS_BEHIND_TOKENS:
            found.append(shape[0] > 1 and shape[1] > 1)
            continue
        batch = [(size, step) for size, step in zip(shape[:-2], strides[:-2], strict=True) if size > 1]
        found.append(any(outer != size * inner for (_, outer), (size, inner) in pairwise(batch)))
    return tuple(found)


def head_copies(context: NodeContext, index: int) -> tuple[Movement, ...]:
    """Fused attention takes any strides as long as the last dimension is dense; else its input is copied."""
    return () if context.layout(index) is None or context.strides(index)[-1] == 1 else context.contiguous(index)
