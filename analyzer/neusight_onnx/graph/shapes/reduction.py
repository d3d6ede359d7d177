"""Operators that reduce axes, search along them, or sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.registry import rule

# Evaluated on small tensors, for sizes are reduced too; the others are shapes only.
_REDUCTIONS: dict[str, Callable[..., Any] | None] = {
    "ReduceSum": np.sum,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceMean": np.mean,
    "ReduceL1": None,
    "ReduceL2": None,
    "ReduceLogSum": None,
    "ReduceLogSumExp": None,
    "ReduceSumSquare": None,
}


@rule(*_REDUCTIONS)
@rule("ReduceSumInteger", domain="com.microsoft")
def _reduce(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    rank = len(shape)
    keep = ctx.integer("keepdims", 1)
    axes: Sequence[int] | None
    if ctx.has(1):
        if ctx.data(1) is None and ctx.shape(1) != (0,):
            if not keep:
                ctx.known(1)
            how = "its axes depend on data, so it keeps at most its input's shape"
            high = [max(size, 1) for size in shape]  # a reduced axis has size 1 even if it was empty
            return (ctx.bound(ctx.dtype(0), high, [min(size, 1) for size in shape], how),)
        axes = ctx.integers(1) if ctx.data(1) is not None else ()
    else:
        axes = ctx.integer_list("axes")
    if not axes:
        if ctx.integer("noop_with_empty_axes", 0):
            return (ctx.tensor(ctx.dtype(0), shape, ctx.data(0)),)
        axes = range(rank)
    places = {ctx.axis(axis, rank) for axis in axes}
    if keep:
        result = tuple(1 if place in places else size for place, size in enumerate(shape))
    else:
        result = tuple(size for place, size in enumerate(shape) if place not in places)
    dtype = ctx.dtype(0)
    data = ctx.data(0)
    function = _REDUCTIONS.get(ctx.node.op_type)
    if data is None or function is None or data.size == 0 or _is_product_that_falls(ctx, "ReduceProd"):
        return (ctx.tensor(dtype, result),)
    reduced = function(data, axis=tuple(places)) if places else data
    return (ctx.tensor(dtype, result, np.asarray(reduced).astype(data.dtype).reshape(result)),)


def _is_product_that_falls(ctx: NodeContext, op_type: str) -> bool:
    """Whether it is a product of intervals, some factors of which may be negative: then its ends are elsewhere."""
    if not ctx.bounded or ctx.node.op_type != op_type:
        return False
    return any(data is None or bool((data < 0).any()) for data in (ctx.data(0), ctx.opposite(0)))


@rule("ArgMax", "ArgMin")
def _arg(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    place = ctx.axis(ctx.integer("axis", 0), len(shape))
    middle = (1,) if ctx.integer("keepdims", 1) else ()
    result = shape[:place] + middle + shape[place + 1 :]
    data = ctx.data(0)
    if data is None or not data.size or ctx.bounded or ctx.integer("select_last_index", 0):
        return (ctx.tensor(DataType.INT64, result),)
    found = (np.argmax if ctx.node.op_type == "ArgMax" else np.argmin)(data, place)
    return (ctx.tensor(DataType.INT64, result, np.asarray(found, np.int64).reshape(result)),)


@rule("CumSum", "CumProd")
def _cumulate(ctx: NodeContext) -> Sequence[Value]:
    data, axis = ctx.data(0), ctx.data(1)
    if data is None or axis is None or ctx.integer("exclusive", 0) or ctx.integer("reverse", 0):
        return (ctx.same(),)
    if _is_product_that_falls(ctx, "CumProd"):
        return (ctx.same(),)
    function = np.cumsum if ctx.node.op_type == "CumSum" else np.cumprod
    result = function(data, axis=ctx.axis(int(axis.ravel()[0]), data.ndim)).astype(data.dtype)
    return (ctx.tensor(ctx.dtype(0), data.shape, result),)


@rule("TopK")
def _top_k(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    place = ctx.axis(ctx.integer("axis", -1), len(shape))
    if ctx.node.version < 10:
        kept = ctx.integer("k", 1)
    elif ctx.data(1) is None:
        low = [*shape[:place], 0, *shape[place + 1 :]]
        how = f"k depends on data, so it keeps at most the {shape[place]} that there are"
        return (ctx.bound(ctx.dtype(0), shape, low, how), ctx.bound(DataType.INT64, shape, low, how))
    else:
        kept = ctx.integers(1)[0]
    if kept > shape[place]:
        ctx.require(False, f"cannot take the top {kept} of axis {place} of {list(shape)}")
        kept = shape[place]
    result = (*shape[:place], kept, *shape[place + 1 :])
    return (ctx.tensor(ctx.dtype(0), result), ctx.tensor(DataType.INT64, result))


@rule("Det")
def _determinant(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), ctx.shape(0)[:-2]),)


@rule("NegativeLogLikelihoodLoss")
def _nll_loss(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(1) if ctx.text("reduction", "mean") == "none" else ()
    return (ctx.tensor(ctx.dtype(0), shape),)


@rule("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(1) if ctx.text("reduction", "mean") == "none" else ()
    return (ctx.tensor(ctx.dtype(0), shape), ctx.same())


@rule("IsAllFinite", domain="com.microsoft")
def _is_all_finite(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(DataType.BOOL, ()),)
