"""Sequences and optionals: their members are carried one by one where they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Array, Declared, Value
from neusight_onnx.graph.shapes.context import MAX_DATA, NUMPY, NodeContext, UnknownShape
from neusight_onnx.graph.shapes.registry import rule

_I64 = DataType.INT64


def greatest(values: Sequence[Value]) -> Value:
    """One value that bounds them all: per dimension the greatest size; shape None if their ranks differ."""
    first = values[0]
    shapes = {value.shape for value in values}
    if len(shapes) == 1 and not any(value.is_bound for value in values):
        return replace(first, data=None, data_low=None)
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or len({len(shape) for shape in known}) > 1:
        cause = next((value.unknown_because for value in values if value.unknown_because), None)
        return Value(dtype=first.dtype, shape=None, unknown_because=cause)
    lows = [
        ((value.shape_low or (0,) * len(value.shape)) if value.is_bound else value.shape)
        for value in values
        if value.shape is not None
    ]
    high = tuple(max(sizes) for sizes in zip(*known, strict=True))
    low = tuple(min(sizes) for sizes in zip(*lows, strict=True))
    return Value(
        dtype=first.dtype,
        shape=high,
        is_bound=high != low,
        shape_low=low if high != low else None,
        is_constant=all(value.is_constant for value in values),
    )


def sequence_of(elements: Sequence[Value], dtype: DataType | None = None) -> Value:
    """A sequence with known members; its shape is the bound of theirs (None for an empty one)."""
    if not elements:
        return Value(dtype=dtype, shape=None, kind="sequence", elements=())
    joined = greatest(elements)
    return replace(joined, kind="sequence", elements=tuple(elements))


def _members(ctx: NodeContext, index: int) -> tuple[Value, ...] | None:
    value = ctx.value(index)
    if value.kind == "optional" and value.elements:
        value = value.elements[0]
    return value.elements


def _length_low(ctx: NodeContext, index: int) -> int | None:
    """The least number of members where that isn't exact."""
    value = ctx.value(index)
    if value.kind == "optional" and value.elements:
        value = value.elements[0]
    return value.length_low


def _alike(members: Sequence[Value], count: int, length_low: int) -> Value:
    """A sequence of unsure length, any place of which may hold any of these."""
    if count < 1 or not members:
        return sequence_of((), members[0].dtype if members else None)
    return replace(sequence_of([greatest(members)] * count), length_low=max(length_low, 0))


def _member(value: Value) -> Value:
    """Any member of a sequence whose members are not known one by one."""
    return replace(value, kind="tensor", elements=None)


@rule("SequenceConstruct", intervals=True)
def _construct(ctx: NodeContext) -> Sequence[Value]:
    return (sequence_of([ctx.value(index) for index in range(len(ctx.inputs))]),)


@rule("SequenceEmpty", intervals=True)
def _empty(ctx: NodeContext) -> Sequence[Value]:
    return (sequence_of((), ctx.type_attribute("dtype", DataType.FLOAT32)),)


def _position(ctx: NodeContext, index: int, length: int) -> int | None:
    """The place that an input names, counted from the front; None if it isn't known."""
    data = ctx.data(index)
    if data is None:
        return None
    position = int(data.ravel()[0])
    return position + length if position < 0 else position


@rule("SequenceAt", intervals=True)
def _at(ctx: NodeContext) -> Sequence[Value]:
    members = _members(ctx, 0)
    if members is None:
        return (_member(ctx.value(0)),)
    if not members:
        raise ctx.error("its sequence is empty")
    position = _position(ctx, 1, len(members))
    counts_from_end = _length_low(ctx, 0) is not None and position is not None and bool(ctx.known(1).ravel()[0] < 0)
    if position is None or counts_from_end:
        return (greatest(members),)
    if not 0 <= position < len(members):
        raise ctx.error(f"position {position} is outside its sequence of {len(members)}")
    return (members[position],)


@rule("SequenceInsert", intervals=True)
def _insert(ctx: NodeContext) -> Sequence[Value]:
    members = _members(ctx, 0)
    new = ctx.value(1)
    if members is None:
        joined = greatest([_member(ctx.value(0)), new])
        return (replace(joined, kind="sequence"),)
    length_low = _length_low(ctx, 0)
    if length_low is not None:
        return (_alike([*members, new], len(members) + 1, length_low + 1),)
    position = _position(ctx, 2, len(members)) if ctx.has(2) else len(members)
    if position is None:
        joined = greatest([*members, new])
        return (sequence_of([joined] * (len(members) + 1)),)
    return (sequence_of([*members[:position], new, *members[position:]]),)


@rule("SequenceErase", intervals=True)
def _erase(ctx: NodeContext) -> Sequence[Value]:
    members = _members(ctx, 0)
    if members is None:
        return (ctx.value(0),)
    length_low = _length_low(ctx, 0)
    if length_low is not None:
        return (_alike(members, len(members) - 1, length_low - 1),)
    position = _position(ctx, 1, len(members)) if ctx.has(1) else len(members) - 1
    if position is None:
        return (sequence_of([greatest(members)] * (len(members) - 1), ctx.dtype(0)),)
    return (sequence_of([*members[:position], *members[position + 1 :]], ctx.dtype(0)),)


@rule("SequenceLength", intervals=True)
def _length(ctx: NodeContext) -> Sequence[Value]:
    members = _members(ctx, 0)
    value = ctx.tensor(_I64, (), None if members is None else np.array(len(members), np.int64))
    low = _length_low(ctx, 0)
    return (value if low is None else replace(value, data_low=np.array(low, np.int64)),)


@rule("SplitToSequence")
def _split_to_sequence(ctx: NodeContext) -> Sequence[Value]:
    """Parts along an axis: of the sizes given, of one size, or single slices (without the axis if keepdims is 0)."""
    shape = ctx.shape(0)
    axis = ctx.axis(ctx.integer("axis", 0), len(shape))
    size = shape[axis]
    dtype = ctx.dtype(0)

    def part(length: int) -> Value:
        return ctx.tensor(dtype, (*shape[:axis], length, *shape[axis + 1 :]))

    if not ctx.has(1):
        keeps = ctx.integer("keepdims", 1)
        member = part(1) if keeps else ctx.tensor(dtype, shape[:axis] + shape[axis + 1 :])
        return (sequence_of([member] * size, dtype) if size <= MAX_DATA else replace(member, kind="sequence"),)
    split = ctx.data(1)
    if split is None:
        low = [*shape[:axis], 0, *shape[axis + 1 :]]
        bounded = ctx.bound(dtype, shape, low, f"its part sizes depend on data, each is at most {size}")
        return (replace(bounded, kind="sequence"),)
    if split.ndim == 0:
        length = int(split)
        if length < 1:
            raise ctx.error(f"its parts have size {length}")
        sizes = [length] * (size // length) + ([size % length] if size % length else [])
        if len(sizes) > MAX_DATA:
            return (replace(part(length), kind="sequence"),)
    else:
        sizes = ctx.integers(1)
    return (sequence_of([part(length) for length in sizes], dtype),)


@rule("ConcatFromSequence", intervals=True)
def _concat_from_sequence(ctx: NodeContext) -> Sequence[Value]:
    members = _members(ctx, 0)
    if members is None:
        raise UnknownShape(ctx.value(0).unknown_because)
    if not members:
        raise ctx.error("its sequence is empty")
    stacked = bool(ctx.integer("new_axis", 0))
    joined = greatest(members)
    if joined.shape is None:
        raise UnknownShape(joined.unknown_because)
    rank = len(joined.shape)
    axis = ctx.axis(ctx.integer("axis", 0), rank + stacked)

    def along(shape: tuple[int, ...], sizes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        if stacked:
            return (*shape[:axis], len(sizes), *shape[axis:])
        return (*shape[:axis], sum(size[axis] for size in sizes), *shape[axis + 1 :])

    highs = [member.shape for member in members if member.shape is not None]
    high = along(joined.shape, highs)
    length_low = _length_low(ctx, 0)
    if length_low is None and not any(member.is_bound for member in members):
        return (ctx.tensor(joined.dtype, high, _joined_data(members, axis, stacked=stacked)),)
    lows = [
        (member.shape_low or (0,) * rank) if member.is_bound else shape
        for member, shape in zip(members, highs, strict=True)
    ]
    floor = along(joined.shape_low or joined.shape, lows if length_low is None else lows[: max(length_low, 1)])
    value = ctx.tensor(joined.dtype, high)
    return (replace(value, is_bound=floor != high, shape_low=floor if floor != high else None),)


def _joined_data(members: Sequence[Value], axis: int, *, stacked: bool) -> Array | None:
    arrays = [member.data for member in members if member.data is not None and member.data_low is None]
    if len(arrays) < len(members) or sum(array.size for array in arrays) > MAX_DATA:
        return None
    return np.stack(arrays, axis) if stacked else np.concatenate(arrays, axis)


@rule("Optional", intervals=True)
def _optional(ctx: NodeContext) -> Sequence[Value]:
    if ctx.has(0):
        value = ctx.value(0)
        return (Value(dtype=value.dtype, shape=value.shape, kind="optional", elements=(value,)),)
    declared = ctx.attribute("type")
    dtype = declared.dtype if isinstance(declared, Declared) else None
    return (Value(dtype=dtype, shape=None, kind="optional", elements=()),)


@rule("OptionalHasElement", intervals=True)
def _optional_has(ctx: NodeContext) -> Sequence[Value]:
    known: bool | None
    if not ctx.has(0):
        known = False
    else:
        value = ctx.value(0)
        known = True if value.kind != "optional" else None if value.elements is None else bool(value.elements)
    data = None if known is None else np.array(known, NUMPY[DataType.BOOL])
    return (ctx.tensor(DataType.BOOL, (), data),)


@rule("OptionalGetElement", intervals=True)
def _optional_get(ctx: NodeContext) -> Sequence[Value]:
    value = ctx.value(0)
    if value.kind != "optional":
        return (value,)
    if value.elements:
        return (value.elements[0],)
    if value.elements is None and value.shape is not None:
        return (replace(value, kind="tensor"),)
    raise UnknownShape(value.unknown_because)
