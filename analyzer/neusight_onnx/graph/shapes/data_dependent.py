"""Operators whose output's size depends on what their inputs hold: exact where that is known, else bounded."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.names import option
from neusight_onnx.graph.shapes.balance import even_share
from neusight_onnx.graph.shapes.capacity import most_nonzero
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.registry import rule

_I64 = DataType.INT64


def _what_changes(ctx: NodeContext, shape: str) -> str:
    return f"; {option('--shape', ctx.node.outputs[0], shape)} changes it" if any(ctx.node.outputs[:1]) else ""


@rule("NonZero")
def _non_zero(ctx: NodeContext) -> Sequence[Value]:
    """(d0, d1, ...) -> (rank, k), k non-zero elements."""
    shape = ctx.shape(0)
    data = ctx.data(0)
    if data is not None and not ctx.bounded:
        found = np.array(np.nonzero(np.atleast_1d(data)), np.int64)
        return (ctx.tensor(_I64, found.shape, found),)
    rank = max(len(shape), 1)
    count = prod(shape)
    how = f"at most {count} columns, its input has {count} elements"
    capped = most_nonzero(ctx.node.inputs[0], ctx.session)
    if capped is not None and capped.most < count:
        count = capped.most
        how = f"at most {count} columns: {capped.why}"
    share = even_share(ctx.node.inputs[0], ctx.session)
    if share is not None and share < count and ctx.session.expects(ctx.node.outputs[0], (rank, share)):
        return (ctx.tensor(_I64, (rank, share)),)
    return (ctx.bound(_I64, (rank, count), (rank, 0), how + _what_changes(ctx, f"{rank}xN")),)


@rule("Compress")
def _compress(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    axis = ctx.attribute("axis")
    condition_size = prod(ctx.shape(1))
    source = (prod(shape),) if axis is None else shape
    place = 0 if axis is None else ctx.axis(ctx.integer("axis", 0), len(shape))
    condition = ctx.data(1)
    if condition is not None and not ctx.bounded:
        kept = int(np.count_nonzero(condition))
        return (ctx.tensor(ctx.dtype(0), (*source[:place], kept, *source[place + 1 :])),)
    most = min(condition_size, source[place])
    written = "x".join("N" if axis == place else str(size) for axis, size in enumerate(source))
    how = f"at most {most} of axis {place}, as many as its condition has elements" + _what_changes(ctx, written)
    return (
        ctx.bound(
            ctx.dtype(0), (*source[:place], most, *source[place + 1 :]), (*source[:place], 0, *source[place + 1 :]), how
        ),
    )


@rule("Unique")
def _unique(ctx: NodeContext) -> Sequence[Value]:
    """y with k distinct elements (or slices along the axis); indices (k), inverse (n), counts (k)."""
    shape = ctx.shape(0)
    axis = ctx.attribute("axis")
    source = (prod(shape),) if axis is None else shape
    place = 0 if axis is None else ctx.axis(ctx.integer("axis", 0), len(shape))
    size = source[place]
    inverse = ctx.tensor(_I64, (size,))
    data = ctx.data(0)
    if data is not None and not ctx.bounded:
        kept = np.unique(data, axis=None if axis is None else place).shape[place]
        y = ctx.tensor(ctx.dtype(0), (*source[:place], kept, *source[place + 1 :]))
        return (y, ctx.tensor(_I64, (kept,)), inverse, ctx.tensor(_I64, (kept,)))
    least = min(size, 1)
    how = f"at most {size} distinct elements, as many as axis {place} of its input has"
    y = ctx.bound(
        ctx.dtype(0), (*source[:place], size, *source[place + 1 :]), (*source[:place], least, *source[place + 1 :]), how
    )
    count = ctx.bound(_I64, (size,), (least,), how)
    return (y, count, inverse, count)


@rule("Unique", domain="com.microsoft")
def _unique_contrib(ctx: NodeContext) -> Sequence[Value]:
    (size,) = ctx.shape(0)
    how = f"at most {size} distinct elements, its input has {size}"
    count = ctx.bound(_I64, (size,), (min(size, 1),), how)
    return (ctx.bound(ctx.dtype(0), (size,), (min(size, 1),), how), ctx.tensor(_I64, (size,)), count)


@rule("NonMaxSuppression")
def _non_max_suppression(ctx: NodeContext) -> Sequence[Value]:
    """boxes (b, n, 4), scores (b, c, n) -> (k, 3), k <= b c min(n, max_output_boxes_per_class)."""
    batch, boxes, _ = ctx.shape(0)
    classes = ctx.shape(1)[1]
    # per class: none unless the input says how many; unknown: every box may stay
    kept = (int(ctx.data(2).ravel()[0]) if ctx.data(2) is not None else boxes) if ctx.has(2) else 0  # type: ignore[union-attr]  # the same call is checked
    rows = batch * classes * min(boxes, max(kept, 0))
    how = f"at most {rows} rows: {batch} images, {classes} classes, {min(boxes, max(kept, 0))} boxes each"
    if ctx.has(4):
        how += f", and all {boxes} boxes as candidates"
    return (ctx.bound(_I64, (rows, 3), (0, 3), how + _what_changes(ctx, "Nx3")),)
