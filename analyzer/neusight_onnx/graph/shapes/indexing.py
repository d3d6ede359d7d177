"""Gather, Scatter and what else places elements by indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import (
    MAX_DATA,
    Data,
    NodeContext,
)
from neusight_onnx.graph.shapes.registry import rule


@rule("Gather")
def _gather(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    indices = ctx.shape(1)
    axis = ctx.axis(ctx.integer("axis", 0), len(shape)) if shape else ctx.axis(0, 0)
    result = shape[:axis] + indices + shape[axis + 1 :]
    data, where = ctx.data(0), ctx.data(1)
    span = ctx.value(1).span if where is None else (int(where.min()), int(where.max())) if where.size else None
    if shape and span is not None:
        least, most = span
        ctx.require(
            -shape[axis] <= least and most < shape[axis],
            f"its indices are {least} to {most}, but axis {axis} has {shape[axis]} elements ({ctx.shown(0)})",
        )
    if data is not None:
        if where is not None:
            if ctx.bounded and not np.array_equal(where, ctx.opposite(1)):  # type: ignore[arg-type]  # None is unequal
                return (_gather_between(ctx, data, where, result),)
            if prod(result) <= MAX_DATA:
                return (ctx.tensor(ctx.dtype(0), result, np.asarray(data.take(where, axis))),)
        elif data.size and data.ndim == 1 and ctx.value(0).dtype is not None:
            return (_gather_anywhere(ctx, data, result),)
    return (ctx.tensor(ctx.dtype(0), result),)


def _gather_between(ctx: NodeContext, data: Data, where: Data, result: tuple[int, ...]) -> Value:
    """This run's end of what a vector holds between two ends of an index, which may count from the back, too."""
    other = ctx.opposite(1)
    if other is None or other.shape != where.shape or data.ndim != 1 or not data.size or where.size > MAX_DATA:
        return ctx.tensor(ctx.dtype(0), result)
    pick = np.min if ctx.low_run else np.max
    picked = []
    for first, last in zip(
        np.minimum(where, other).ravel().tolist(), np.maximum(where, other).ravel().tolist(), strict=True
    ):
        parts = [data[max(first, 0) : last + 1]] if last >= 0 else []
        if first < 0:
            parts.append(data[max(first + data.size, 0) : min(last, -1) + data.size + 1])
        taken = np.concatenate(parts)
        if not taken.size:
            return ctx.tensor(ctx.dtype(0), result)
        picked.append(pick(taken))
    return ctx.tensor(ctx.dtype(0), result, np.asarray(picked, data.dtype).reshape(result))


def _gather_anywhere(ctx: NodeContext, data: Data, result: tuple[int, ...]) -> Value:
    """Which element is taken depends on data: an interval from the least to the greatest of a small vector."""
    dtype = ctx.dtype(0)
    if ctx.bounded or dtype is None or not dtype.is_integer or prod(result) > MAX_DATA:
        return ctx.tensor(dtype, result)
    high = np.full(result, data.max())
    low = np.full(result, data.min())
    exact = bool(np.array_equal(high, low))
    return Value(dtype=dtype, shape=result, data=high, data_low=None if exact else low, is_constant=ctx.constant)


@rule("GatherElements")
def _gather_elements(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(1)
    data, indices = ctx.data(0), ctx.data(1)
    if data is None or indices is None or prod(shape) > MAX_DATA:
        return (ctx.tensor(ctx.dtype(0), shape),)
    if ctx.bounded and not np.array_equal(indices, ctx.opposite(1)):  # type: ignore[arg-type]  # None is unequal
        return (ctx.tensor(ctx.dtype(0), shape),)
    axis = ctx.axis(ctx.integer("axis", 0), data.ndim)
    wrapped = np.where(indices < 0, indices + data.shape[axis], indices)
    return (ctx.tensor(ctx.dtype(0), shape, np.take_along_axis(data, wrapped, axis)),)


@rule("GatherND")
@rule("GatherND", domain="com.microsoft")
def _gather_nd(ctx: NodeContext) -> Sequence[Value]:
    """data (batch…, *rest), indices (batch…, *q, k) -> (batch…, *q, *rest[k:])."""
    shape, indices = ctx.shape(0), ctx.shape(1)
    batch = ctx.integer("batch_dims", 0)
    if not indices or indices[-1] + batch > len(shape):
        raise ctx.error(f"its indices {list(indices)} reach deeper than its data {list(shape)}")
    result = indices[:-1] + shape[batch + indices[-1] :]
    data, where = ctx.data(0), ctx.data(1)
    if data is None or where is None or batch or ctx.bounded or prod(result) > MAX_DATA:
        return (ctx.tensor(ctx.dtype(0), result),)
    picked = data[tuple(np.moveaxis(where, -1, 0))]
    return (ctx.tensor(ctx.dtype(0), result, np.asarray(picked).reshape(result)),)


@rule("ScatterElements", "Scatter")
def _scatter_elements(ctx: NodeContext) -> Sequence[Value]:
    data, indices, updates = ctx.data(0), ctx.data(1), ctx.data(2)
    if data is None or indices is None or updates is None or ctx.text("reduction", "none") != "none":
        return (ctx.same(),)
    if ctx.bounded and not np.array_equal(indices, ctx.opposite(1)):  # type: ignore[arg-type]  # None is unequal
        return (ctx.same(),)
    result = data.copy()
    axis = ctx.axis(ctx.integer("axis", 0), data.ndim)
    np.put_along_axis(result, np.where(indices < 0, indices + data.shape[axis], indices), updates, axis)
    return (ctx.tensor(ctx.dtype(0), result.shape, result),)


@rule("ScatterND")
def _scatter_nd(ctx: NodeContext) -> Sequence[Value]:
    data, indices, updates = ctx.data(0), ctx.data(1), ctx.data(2)
    if data is None or indices is None or updates is None or ctx.text("reduction", "none") != "none":
        return (ctx.same(),)
    if ctx.bounded and not np.array_equal(indices, ctx.opposite(1)):  # type: ignore[arg-type]  # None is unequal
        return (ctx.same(),)
    result = data.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return (ctx.tensor(ctx.dtype(0), result.shape, result),)


@rule("TensorScatter")
def _tensor_scatter(ctx: NodeContext) -> Sequence[Value]:
    """Cache (b, ..., tokens, ...) and update (b, ..., new tokens, ...) give a cache."""
    cache, update = ctx.value(0).shape, ctx.value(1).shape
    if cache is not None and update is not None and not len(cache) == len(update) > 1:
        ctx.require(
            False, f"cannot write {ctx.shown()} into each other: a cache and what is new have one rank, 2 or more"
        )
    return (ctx.same(),)


@rule("OneHot")
def _one_hot(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    depth = int(ctx.known(1).ravel()[0])
    axis = ctx.axis(ctx.integer("axis", -1), len(shape) + 1)
    result = (*shape[:axis], depth, *shape[axis:])
    indices, values = ctx.data(0), ctx.data(2)
    if indices is None or values is None or ctx.bounded or not 0 < prod(result) <= MAX_DATA:
        return (ctx.tensor(ctx.dtype(2), result),)
    places = np.arange(depth).reshape((depth,) + (1,) * (len(shape) - axis))
    wanted = np.expand_dims(indices.astype(np.int64), axis)
    hot = np.where(wanted < 0, wanted + depth, wanted) == places  # an index outside of the depth is nowhere hot
    off, on = values.ravel().tolist()
    return (ctx.tensor(ctx.dtype(2), result, np.where(hot, on, off).astype(values.dtype)),)
