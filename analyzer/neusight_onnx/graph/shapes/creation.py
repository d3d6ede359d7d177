"""Operators that make a tensor from none, or from its sizes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, prod

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.balance import group_between
from neusight_onnx.graph.shapes.context import (
    MAX_DATA,
    NUMPY,
    Data,
    NodeContext,
    UnknownShape,
    initializer_value,
)
from neusight_onnx.graph.shapes.registry import rule

_INT64 = np.dtype(np.int64)


@rule("Constant")
def _constant(ctx: NodeContext) -> Sequence[Value]:
    tensor = ctx.tensor_attribute("value") or ctx.tensor_attribute("sparse_value")
    if tensor is not None:
        return (initializer_value(tensor),)
    for name, dtype in (("value_int", DataType.INT64), ("value_float", DataType.FLOAT32)):
        scalar = ctx.attribute(name)
        if isinstance(scalar, (int, float)):
            return (ctx.tensor(dtype, (), np.asarray(scalar, NUMPY[dtype])),)
    for name, dtype in (("value_ints", DataType.INT64), ("value_floats", DataType.FLOAT32)):
        items = ctx.attribute(name)
        if isinstance(items, tuple):
            data = np.asarray(items, NUMPY[dtype]) if len(items) <= MAX_DATA else None
            return (ctx.tensor(dtype, (len(items),), data),)
    if ctx.attribute("value_string") is not None:
        return (ctx.tensor(DataType.STRING, ()),)
    strings = ctx.attribute("value_strings")
    if isinstance(strings, tuple):
        return (ctx.tensor(DataType.STRING, (len(strings),)),)
    raise ctx.error("it has none of the attributes that hold a constant")


@rule("ConstantOfShape")
def _constant_of_shape(ctx: NodeContext) -> Sequence[Value]:
    tensor = ctx.tensor_attribute("value")
    dtype = DataType.FLOAT32 if tensor is None else tensor.dtype
    if ctx.data(0) is None:
        if ctx.shape(0) == (0,):
            return (ctx.tensor(dtype, ()),)
        raise UnknownShape(ctx.value(0).unknown_because)
    shape = ctx.integers(0)
    data = None
    if dtype in NUMPY and 0 <= prod(shape) <= MAX_DATA and min(shape, default=0) >= 0:
        if tensor is None:
            data = np.zeros(shape, np.float32)
        elif tensor.data is not None and tensor.data.size == 1:
            data = np.full(shape, tensor.data.ravel()[0], NUMPY[dtype])
    return (ctx.tensor(dtype, shape, data),)


@rule("Range")
@rule("Range", domain="com.microsoft")
def _range(ctx: NodeContext) -> Sequence[Value]:
    step_data = ctx.data(2) if ctx.has(2) else np.ones((), _INT64)
    start_data = ctx.opposite(0)
    if ctx.data(1) is None and step_data is not None and (step_data == 1).all():
        group = group_between(ctx.node.inputs[0], ctx.node.inputs[1], ctx.session)
        if group is not None:
            if ctx.session.expects(ctx.node.outputs[0], (group.share,)):
                return (ctx.tensor(ctx.dtype(0), (group.share,)),)
            how = f"at most {group.most} elements, the rows of one group of those that its count divides"
            return (ctx.bound(ctx.dtype(0), (group.most,), (0,), how),)
    if ctx.data(0) is None or start_data is None:
        raise UnknownShape(ctx.value(0).unknown_because)
    if step_data is None:
        raise UnknownShape(ctx.value(2).unknown_because)
    limit_data = ctx.known(1)
    dtype = ctx.dtype(0)
    if ctx.bounded:
        return (ctx.tensor(dtype, (_range_end(ctx, step_data),)),)
    start, limit, step = (item.ravel()[0].item() for item in (start_data, limit_data, step_data))
    if step == 0:
        raise ctx.error("its step is 0")
    count = _range_count(start, limit, step)
    if count <= MAX_DATA:
        data = (start + np.arange(count) * step).astype(start_data.dtype)
        return (ctx.tensor(dtype, (count,), data),)
    last = start + (count - 1) * step
    span = (min(start, last), max(start, last)) if isinstance(start, int) and isinstance(step, int) else None
    return (replace(ctx.tensor(dtype, (count,)), span=span),)


def _range_count(start: float, limit: float, step: float) -> int:
    count = -((start - limit) // step) if isinstance(step, int) else ceil((limit - start) / step)
    return max(int(count), 0)


def _range_end(ctx: NodeContext, step_data: Data) -> int:
    """The most (in the low run the least) numbers that a range has, its start, limit and step being intervals."""
    opposites = [ctx.opposite(index) if ctx.has(index) else step_data for index in (0, 1, 2)]
    ends = [ctx.known(0), ctx.known(1), step_data]
    (start_low, start_high), (limit_low, limit_high), (step_low, step_high) = (
        sorted((end.ravel()[0].item(), (end if other is None else other).ravel()[0].item()))
        for end, other in zip(ends, opposites, strict=True)
    )
    if step_low > 0:
        if ctx.low_run:
            return _range_count(start_high, limit_low, step_high)
        return _range_count(start_low, limit_high, step_low)
    if step_high < 0:
        if ctx.low_run:
            return _range_count(start_low, limit_high, step_low)
        return _range_count(start_high, limit_low, step_high)
    if ctx.low_run:
        return 0
    if not isinstance(step_low, int):
        raise UnknownShape(None)  # a step as near to 0 as can be
    rising = _range_count(start_low, limit_high, 1) if step_high > 0 else 0
    falling = _range_count(start_high, limit_low, -1) if step_low < 0 else 0
    return max(rising, falling)


@rule("EyeLike")
def _eye_like(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=ctx.type_attribute("dtype", ctx.dtype(0))),)
