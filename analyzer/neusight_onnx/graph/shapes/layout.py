"""Operators that change the shape of a tensor or move its elements, and shape arithmetic itself."""

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
    broadcast_shapes,
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


@rule("Shape")
def _shape(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    attributes = ctx.node.attributes
    if attributes:
        shape = shape[ctx.integer("start", 0) : ctx.integer("end", len(shape))]
    return (ctx.tensor(DataType.INT64, (len(shape),), np.array(shape, _INT64)),)


@rule("Size")
def _size(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(DataType.INT64, (), np.array(prod(ctx.shape(0)), _INT64)),)


@rule("Reshape")
def _reshape(ctx: NodeContext) -> Sequence[Value]:
    """A target of sizes; 0 copies the input's dimension (unless allowzero), one -1 takes what is left."""
    shape = ctx.shape(0)
    if ctx.node.version < 5:
        target = list(ctx.integer_list("shape") or ())
    elif ctx.data(1) is None:
        return (_reshape_to_unknown(ctx),)
    else:
        target = ctx.integers(1)
    if target.count(-1) > 1 or min(target, default=0) < -1:
        raise ctx.error(f"its target {target} has more than one -1, or another negative size")
    if ctx.bounded:
        result = _reshape_interval(ctx, shape, target)
    else:
        copies = not ctx.integer("allowzero", 0)
        result = [
            _copied(ctx, shape, target, place) if size == 0 and copies else size for place, size in enumerate(target)
        ]
        count = prod(shape)
        if -1 in target:
            place = target.index(-1)
            known = -prod(result)
            if (count % known if known else count) != 0:
                raise ctx.error(_reshape_fault(ctx, shape, target))
            result[place] = count // known if known else 0
        elif prod(result) != count:
            raise ctx.error(_reshape_fault(ctx, shape, target))
    data = ctx.data(0)
    data = data.reshape(result) if data is not None and data.size == prod(result) else None
    return (ctx.of_same_elements(ctx.tensor(ctx.dtype(0), result, data)),)


def _copied(ctx: NodeContext, shape: tuple[int, ...], target: list[int], place: int) -> int:
    if place >= len(shape):
        raise ctx.error(f"its target {target} copies dimension {place}, which its input {list(shape)} lacks")
    return shape[place]


def _reshape_interval(ctx: NodeContext, shape: tuple[int, ...], target: list[int]) -> list[int]:
    """This run's end of each dimension. The open one grows with the input and shrinks as the others grow; an interval
    that stands among the input's dimensions and in the target (rows of which there are k) cancels out."""
    opposite = ctx.opposite(1)
    source = ctx.opposites[0]
    others = target if opposite is None else [int(item) for item in opposite.ravel().tolist()]
    other_shape = shape if source is None or source.shape is None else source.shape
    copies = not ctx.integer("allowzero", 0)
    pairs: list[tuple[int, int]] = []
    for place, (size, other) in enumerate(zip(target, others, strict=True)):
        if size == other == 0 and copies:
            pairs.append((_copied(ctx, shape, target, place), other_shape[place]))
        else:
            pairs.append((size, other))
    if -1 in target:
        place = target.index(-1)
        sources = list(zip(shape, other_shape, strict=True))
        left = 1
        for index, pair in enumerate(pairs):
            if index == place:
                continue
            if pair[0] != pair[1] and pair in sources:
                sources.remove(pair)
            else:
                left *= pair[1]
        count = prod(size for size, _ in sources)
        # what divides is 0 only as the end of an interval: then there may be as many as there are elements
        open_size = (count if not ctx.low_run else 0) if left == 0 else count // left
        pairs[place] = (open_size, open_size)
    return [size for size, _ in pairs]


def _reshape_fault(ctx: NodeContext, shape: tuple[int, ...], target: list[int]) -> str:
    name = ctx.node.inputs[0]
    text = f"cannot make {target} of '{name}' {list(shape)}, {prod(shape)} elements"
    fixed = prod(size for size in target if size > 0)
    if ctx.value(1).is_constant if ctx.has(1) else True:
        text += (
            f"; the target is a constant of the file, so sizes are baked in that the inputs must agree with "
            f"(a multiple of {fixed} elements): bind the free dimensions to the sizes that the model was exported with"
        )
    return text


def _reshape_to_unknown(ctx: NodeContext) -> Value:
    """The target's content isn't known: one dimension holds everything, more are beyond us."""
    target_shape = ctx.shape(1)
    if target_shape == (1,):
        return ctx.tensor(ctx.dtype(0), (prod(ctx.shape(0)),))
    if target_shape == (0,):
        return ctx.tensor(ctx.dtype(0), ())
    raise UnknownShape(ctx.value(1).unknown_because)


@rule("Flatten")
def _flatten(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    axis = ctx.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ctx.error(f"axis {axis} is outside the rank {len(shape)} of its input")
    axis = axis + len(shape) if axis < 0 else axis
    result = (prod(shape[:axis]), prod(shape[axis:]))
    data = ctx.data(0)
    return (ctx.tensor(ctx.dtype(0), result, None if data is None else data.reshape(result)),)


def _axes(ctx: NodeContext, first_input_version: int) -> list[int] | None:
    """The axes of a Squeeze or Unsqueeze: an attribute in older opsets, an input since; None if not given."""
    if ctx.node.version >= first_input_version:
        if ctx.has(1):
            return ctx.integers(1)
        if "axes" not in ctx.node.attributes:
            return None
    axes = ctx.integer_list("axes")
    return None if axes is None else list(axes)


@rule("Squeeze")
def _squeeze(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    axes = _axes(ctx, 13)
    if axes is None:
        # dimensions that are 1 at both ends; one that merely may be 1 at run time is kept
        exact = ctx.exact_dims(0)
        result = tuple(size for size, is_exact in zip(shape, exact, strict=True) if size != 1 or not is_exact)
        source = ctx.opposites[0]
        ends = zip(shape, shape if source is None or source.shape is None else source.shape, strict=True)
        if any(least <= 1 <= most and least != most for least, most in map(sorted, ends)):
            ctx.session.assume(
                f"Squeeze '{ctx.node.outputs[0]}': its rank depends on data: a dimension that may be 1, and so be "
                "dropped, is kept"
            )
    else:
        dropped = {ctx.axis(axis, len(shape)) for axis in axes}
        for axis in dropped:
            if shape[axis] != 1:
                ctx.require(False, f"cannot drop axis {axis} of {list(shape)}: its size is not 1")
        result = tuple(size for axis, size in enumerate(shape) if axis not in dropped)
    data = ctx.data(0)
    made = ctx.tensor(ctx.dtype(0), result, None if data is None else data.reshape(result))
    return (ctx.of_same_elements(made),)


@rule("Unsqueeze")
def _unsqueeze(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    axes = _axes(ctx, 13)
    if axes is None:
        raise ctx.error("it has no axes")
    rank = len(shape) + len(axes)
    places = {ctx.axis(axis, rank) for axis in axes}
    if len(places) != len(axes):
        raise ctx.error(f"an axis is named twice in {axes}")
    rest = iter(shape)
    result = tuple(1 if axis in places else next(rest) for axis in range(rank))
    data = ctx.data(0)
    made = ctx.tensor(ctx.dtype(0), result, None if data is None else data.reshape(result))
    return (ctx.of_same_elements(made),)


@rule("ExpandDims", domain="com.microsoft")
def _expand_dims(ctx: NodeContext) -> Sequence[Value]:
    shape = list(ctx.shape(0))
    shape.insert(ctx.axis(ctx.integers(1)[0], len(shape) + 1), 1)
    return (ctx.tensor(ctx.dtype(0), shape),)


@rule("Transpose")
def _transpose(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    permutation = ctx.integer_list("perm")
    if permutation is None:
        permutation = tuple(range(len(shape) - 1, -1, -1))
    if len(permutation) != len(shape) or sorted(ctx.axis(axis, len(shape)) for axis in permutation) != list(
        range(len(shape))
    ):
        raise ctx.error(f"perm {list(permutation)} does not fit its input {list(shape)}")
    data = ctx.data(0)
    return (
        ctx.tensor(
            ctx.dtype(0), [shape[axis] for axis in permutation], None if data is None else data.transpose(permutation)
        ),
    )


@rule("Concat")
def _concat(ctx: NodeContext) -> Sequence[Value]:
    first = ctx.shape(0)
    axis = ctx.integer("axis", 1)
    rank = len(first)
    if not -rank <= axis < rank:
        raise ctx.error(f"axis {axis} is outside the rank {rank} of its input")
    if axis < 0:
        axis += rank
    total = 0
    result = list(first)
    arrays: list[Data] | None = []
    for index, value in enumerate(ctx.inputs):
        shape = ctx.shape(index)
        if len(shape) != rank:
            raise ctx.error(f"cannot join tensors of different rank: {ctx.shown()}")
        total += shape[axis]
        if rank > 1:
            for place, size in enumerate(shape):
                if place != axis and size != result[place]:
                    ctx.require(False, f"cannot join along axis {axis}: {ctx.shown()} differ in dimension {place}")
                    result[place] = min(size, result[place]) if ctx.low_run else max(size, result[place])
        if arrays is not None:
            if value is None or value.data is None:
                arrays = None
            else:
                arrays.append(value.data)
    result[axis] = total
    data = np.concatenate(arrays, axis) if arrays and prod(result) <= MAX_DATA else None
    return (ctx.tensor(ctx.dtype(0), result, data),)


@rule("Split")
def _split(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    axis = ctx.axis(ctx.integer("axis", 0), len(shape))
    size = shape[axis]
    count = len(ctx.node.outputs)
    sizes: Sequence[int] | None = None
    if ctx.has(1):
        if ctx.data(1) is None:
            high = list(shape)
            low = [*shape[:axis], 0, *shape[axis + 1 :]]
            how = f"its part sizes depend on data, so each is at most the {size} that there are"
            return [ctx.bound(ctx.dtype(0), high, low, how) for _ in range(count)]
        sizes = ctx.integers(1)
    elif "split" in ctx.node.attributes:
        sizes = ctx.integer_list("split")
    if sizes is None:
        number = max(ctx.integer("num_outputs", count), 1)
        part = -(-size // number)
        if number < count:
            raise ctx.error(f"it has {count} outputs but num_outputs is {number}")
        sizes = [max(min(part, size - index * part), 0) for index in range(count)]
        if ctx.bounded:
            sizes = _split_ends(ctx, axis, number, count)
        ctx.require(
            "num_outputs" in ctx.node.attributes or size % number == 0,
            f"cannot divide axis {axis} of {list(shape)} into {number} equal parts",
        )
    elif sum(sizes) != size:
        ctx.require(False, f"the parts {list(sizes)} do not add up to axis {axis} of {list(shape)}")
    if len(sizes) < count:
        raise ctx.error(f"it has {count} outputs but only {len(sizes)} parts")
    data = ctx.data(0)
    if ctx.bounded and data is not None and (not ctx.has(1) or not np.array_equal(ctx.known(1), ctx.opposite(1))):  # type: ignore[arg-type]  # None is unequal
        data = None  # which elements a part holds is open
    results = []
    start = 0
    for part in sizes:
        piece = None
        if data is not None:
            piece = data[(slice(None),) * axis + (slice(start, start + part),)]
        results.append(ctx.tensor(ctx.dtype(0), (*shape[:axis], part, *shape[axis + 1 :]), piece))
        start += part
    return results


def _split_ends(ctx: NodeContext, axis: int, number: int, count: int) -> list[int]:
    """This run's end of each of ``number`` parts, all but the last of which are equal.

    Between multiples of ``number`` a part stays or grows with the size, just behind one it may fall: the last of three
    parts has 2 of 6, and 1 of 7.
    """
    source = ctx.opposites[0]
    size = ctx.shape(0)[axis]
    other = size if source is None or source.shape is None else source.shape[axis]
    low, high = _ordered(size, other)
    turn = low // number * number + 1 if ctx.low_run else high // number * number
    sizes = {size, turn} if low <= turn <= high else {size}
    pick = min if ctx.low_run else max
    return [
        pick(max(min(-(-size // number), size - index * -(-size // number)), 0) for size in sizes)
        for index in range(count)
    ]


@rule("Slice")
def _slice(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    rank = len(shape)
    if ctx.node.version < 10:
        starts = list(ctx.integer_list("starts") or ())
        ends = list(ctx.integer_list("ends") or ())
        axes = list(ctx.integer_list("axes") or range(len(starts)))
        steps = [1] * len(starts)
    else:
        if any(ctx.has(index) and ctx.data(index) is None for index in (1, 2, 3, 4)):
            return (_slice_bound(ctx, shape),)
        axes = ctx.integers(3) if ctx.has(3) else list(range(len(ctx.integers(1))))
        steps = ctx.integers(4) if ctx.has(4) else [1] * len(axes)
        starts, ends = ctx.integers(1), ctx.integers(2)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ctx.error(f"its starts {starts}, ends {ends}, axes {axes} and steps {steps} differ in length")
    if 0 in steps and not ctx.bounded:
        raise ctx.error("a step is 0")
    places = [ctx.axis(axis, rank) for axis in axes]
    if ctx.bounded:
        return (_slice_interval(ctx, shape, starts, ends, places, steps),)
    result = list(shape)
    pieces: list[slice] = [slice(None)] * rank
    for start, end, place, step in zip(starts, ends, places, steps, strict=True):
        result[place] = _slice_length(shape[place], start, end, step)
        pieces[place] = _python_slice(shape[place], start, end, step)
    data = ctx.data(0)
    if data is not None:
        data = data[tuple(pieces)]
        return (ctx.tensor(ctx.dtype(0), data.shape, data),)
    return (ctx.tensor(ctx.dtype(0), result),)


def _slice_places(size: int, start: int, end: int, step: int) -> tuple[int, int]:
    """Start and end counted from the front and moved into the axis, as ONNX says."""
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return min(max(start, 0), size), min(max(end, 0), size)
    return min(max(start, 0), size - 1), min(max(end, -1), size - 1)


def _slice_length(size: int, start: int, end: int, step: int) -> int:
    start, end = _slice_places(size, start, end, step)
    return max(-((start - end) // step), 0) if size else 0


def _python_slice(size: int, start: int, end: int, step: int) -> slice:
    start, end = _slice_places(size, start, end, step)
    return slice(start, None if step < 0 and end == -1 else end, step)


def _slice_interval(
    ctx: NodeContext,
    shape: tuple[int, ...],
    starts: list[int],
    ends: list[int],
    places: list[int],
    steps: list[int],
) -> Value:
    """This run's end of each sliced axis, whatever start, end and size are within their intervals."""
    source = ctx.opposites[0]
    other_shape = shape if source is None or source.shape is None else source.shape
    others = [ctx.opposite(index) if ctx.has(index) else None for index in (1, 2, 3, 4)]
    if len(other_shape) != len(shape) or any(
        ctx.has(index) and (other is None or other.size != len(starts))
        for index, other in zip((1, 2, 3, 4), others, strict=True)
    ):
        return _slice_bound(ctx, shape)
    told = [None if other is None else [int(item) for item in other.ravel().tolist()] for other in others]
    other_starts, other_ends, other_axes, other_steps = told
    if other_axes is not None and other_axes != ctx.integers(3):
        return _slice_bound(ctx, shape)
    pick = min if ctx.low_run else max
    result = list(shape)
    pieces: list[slice] = [slice(None)] * len(shape)
    is_exact = shape == other_shape
    for index, place in enumerate(places):
        sizes = _ordered(shape[place], other_shape[place])
        start = _ordered(starts[index], starts[index] if other_starts is None else other_starts[index])
        end = _ordered(ends[index], ends[index] if other_ends is None else other_ends[index])
        step = _ordered(steps[index], steps[index] if other_steps is None else other_steps[index])
        # the nearer to 0 a step is, the more it takes
        nearest = [
            one for one in ((max(step[0], 1), step[1]), (min(step[1], -1), step[0])) if step[0] <= one[0] <= step[1]
        ]
        chosen = [furthest if ctx.low_run else near for near, furthest in nearest]
        if not chosen:
            raise ctx.error("a step is 0")
        result[place] = pick(_slice_end(sizes, start, end, one, low_run=ctx.low_run) for one in chosen)
        if start[0] == start[1] and end[0] == end[1] and step[0] == step[1] and is_exact:
            pieces[place] = _python_slice(sizes[1], start[0], end[0], step[0])
        else:
            is_exact = False
    data = ctx.data(0)
    if data is not None and is_exact:
        return ctx.tensor(ctx.dtype(0), result, data[tuple(pieces)])
    return ctx.tensor(ctx.dtype(0), result)


def _ordered(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first <= second else (second, first)


def _slice_end(
    sizes: tuple[int, int], starts: tuple[int, int], ends: tuple[int, int], step: int, *, low_run: bool
) -> int:
    """The most (in the low run the least) that a slice keeps, ``sizes``, ``starts`` and ``ends`` each being anything
    from the first to the second.

    Among starts of one sign, and among ends of one sign, the length rises or falls all along, so the ends of both
    signs decide. With those it is made of straight lines over the size, which bend where a place reaches the front
    or the back of the axis.
    """
    longest = not low_run
    first = _decisive(starts, lowest=(step > 0) is longest)
    last = _decisive(ends, lowest=(step < 0) is longest)
    pick = max if longest else min
    found = []
    for start in first:
        for end in last:
            bends = (abs(place) + shift for place in (start, end) for shift in (-1, 0, 1))
            found += [
                _slice_length(size, start, end, step)
                for size in {*sizes, *(bend for bend in bends if sizes[0] < bend < sizes[1])}
            ]
    return pick(found)


def _decisive(places: tuple[int, int], *, lowest: bool) -> list[int]:
    """The lowest (or highest) of the places that count from the front, and of those that count from the back."""
    low, high = places
    if not low < 0 <= high:
        return [low if lowest else high]
    return [low, 0] if lowest else [-1, high]


def _slice_bound(ctx: NodeContext, shape: tuple[int, ...]) -> Value:
    """Start, end or step depend on data: what is kept is at most all of each axis that is sliced."""
    axes = ctx.data(3)
    if axes is not None:
        places = {ctx.axis(int(axis), len(shape)) for axis in axes.ravel().tolist()}
    elif ctx.has(3):
        places = set(range(len(shape)))
    else:
        (length,) = ctx.shape(1)
        places = set(range(min(length, len(shape))))
    low = [0 if place in places else size for place, size in enumerate(shape)]
    return ctx.bound(
        ctx.dtype(0), shape, low, f"its start or end depends on data, so it keeps at most all of {list(shape)}"
    )


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


@rule("Expand")
def _expand(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    if ctx.data(1) is None:
        if ctx.shape(1) == (0,):
            return (ctx.value(0),)
        raise UnknownShape(ctx.value(1).unknown_because)
    target = tuple(ctx.integers(1))
    result = _expand_interval(ctx, shape, target) if ctx.bounded else broadcast_shapes(shape, target)
    if result is None:
        raise ctx.error(f"cannot expand {ctx.node.inputs[0]} {list(shape)} to {list(target)}")
    data = ctx.data(0)
    if data is not None and (prod(result) > MAX_DATA or broadcast_shapes(data.shape, result) != result):
        data = None
    data = None if data is None else np.broadcast_to(data, result)
    return (ctx.of_same_elements(ctx.tensor(ctx.dtype(0), result, data)),)


def _expand_interval(ctx: NodeContext, shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """An exact dimension other than 1 decides; without one, the greatest (in the low run the least) size."""
    rank = max(len(shape), len(target))
    opposite = ctx.opposite(1)
    others = target if opposite is None else tuple(int(item) for item in opposite.ravel().tolist())
    is_exact = (True,) * (rank - len(shape)) + ctx.exact_dims(0)
    first = (1,) * (rank - len(shape)) + shape
    second = (1,) * (rank - len(target)) + target
    third = (1,) * (rank - len(others)) + others
    result = []
    for size, is_fixed, wanted, other in zip(first, is_exact, second, third, strict=True):
        if is_fixed:
            result.append(wanted if size == 1 else size)
        elif wanted == other:
            result.append(size if wanted == 1 else wanted)
        else:
            result.append(min(size, wanted) if ctx.low_run else max(size, wanted))
    return tuple(result)


@rule("Tile")
def _tile(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    if ctx.node.version < 6:
        result = list(shape)
        place = ctx.axis(ctx.integers(2)[0], len(shape))
        result[place] *= ctx.integers(1)[0]
        return (ctx.tensor(ctx.dtype(0), result),)
    repeats = ctx.integers(1)
    if len(repeats) != len(shape):
        raise ctx.error(f"its repeats {repeats} do not fit its input {list(shape)}")
    result = [size * repeat for size, repeat in zip(shape, repeats, strict=True)]
    data = ctx.data(0)
    data = np.tile(data, repeats) if data is not None and 0 <= prod(result) <= MAX_DATA else None
    return (ctx.tensor(ctx.dtype(0), result, data),)


@rule("Pad")
def _pad(ctx: NodeContext) -> Sequence[Value]:
    """Each padded axis grows by what is put before and behind it (or shrinks, where that is negative)."""
    shape = ctx.shape(0)
    rank = len(shape)
    if ctx.node.version < 2:
        pads = list(ctx.integer_list("paddings") or ())
    elif ctx.node.version < 11:
        pads = list(ctx.integer_list("pads") or ())
    else:
        pads = ctx.integers(1)
    axes = [ctx.axis(axis, rank) for axis in ctx.integers(3)] if ctx.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes):
        raise ctx.error(f"its pads {pads} do not fit its input {list(shape)}")
    result = list(shape)
    widths = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        before, behind = pads[index], pads[index + len(axes)]
        result[axis] += before + behind
        widths[axis] = (before, behind)
    data = ctx.data(0)
    mode = ctx.text("mode", "constant")
    fill = ctx.data(2) if ctx.has(2) else np.zeros((), _INT64)
    if data is None or mode != "constant" or fill is None or min(pads, default=0) < 0 or prod(result) > MAX_DATA:
        return (ctx.tensor(ctx.dtype(0), result),)
    padded = np.pad(data, widths, constant_values=fill.ravel()[0] if fill.size else 0)
    return (ctx.tensor(ctx.dtype(0), result, padded),)


@rule("Pad", domain="com.microsoft")
def _pad_contrib(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    pads = ctx.integers(1)
    if len(pads) != 2 * len(shape):
        raise ctx.error(f"its pads {pads} do not fit its input {list(shape)}")
    return (ctx.tensor(ctx.dtype(0), [size + pads[i] + pads[i + len(shape)] for i, size in enumerate(shape)]),)


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


@rule("Trilu")
@rule("Trilu", domain="com.microsoft")
def _trilu(ctx: NodeContext) -> Sequence[Value]:
    data = ctx.data(0)
    if data is None or ctx.bounded or (ctx.has(1) and ctx.data(1) is None):
        return (ctx.same(),)
    offset = ctx.integers(1)[0] if ctx.has(1) else 0
    result = np.triu(data, offset) if ctx.integer("upper", 1) else np.tril(data, offset)
    return (ctx.tensor(ctx.dtype(0), data.shape, result.astype(data.dtype)),)


@rule("ReverseSequence")
def _reverse_sequence(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


@rule("DepthToSpace")
def _depth_to_space(ctx: NodeContext) -> Sequence[Value]:
    """(n, c, h, w) -> (n, c / b², h b, w b)."""
    n, c, h, w = ctx.shape(0)
    block = ctx.integer("blocksize", 1)
    ctx.require(c % (block * block) == 0, f"{c} channels do not divide into blocks of {block}x{block}")
    return (ctx.tensor(ctx.dtype(0), (n, c // (block * block), h * block, w * block)),)


@rule("SpaceToDepth")
def _space_to_depth(ctx: NodeContext) -> Sequence[Value]:
    """(n, c, h, w) -> (n, c b², h / b, w / b)."""
    n, c, h, w = ctx.shape(0)
    block = ctx.integer("blocksize", 1)
    ctx.require(h % block == 0 and w % block == 0, f"{h}x{w} does not divide into blocks of {block}x{block}")
    return (ctx.tensor(ctx.dtype(0), (n, c * block * block, h // block, w // block)),)


@rule("CenterCropPad")
def _center_crop_pad(ctx: NodeContext) -> Sequence[Value]:
    shape = list(ctx.shape(0))
    sizes = ctx.integers(1)
    axes = ctx.integer_list("axes") or tuple(range(len(shape)))
    for axis, size in zip(axes, sizes, strict=True):
        shape[ctx.axis(axis, len(shape))] = size
    return (ctx.tensor(ctx.dtype(0), shape),)


@rule("Col2Im")
def _col_to_image(ctx: NodeContext) -> Sequence[Value]:
    """(n, c * prod(block), l) -> (n, c, *image)."""
    n, columns, _ = ctx.shape(0)
    image = ctx.integers(1)
    block = ctx.integers(2)
    return (ctx.tensor(ctx.dtype(0), (n, columns // max(prod(block), 1), *image)),)


@rule("UnfoldTensor", domain="com.microsoft")
def _unfold(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    axis = ctx.axis(ctx.integer("dim", -1), len(shape))
    size, step = ctx.integer("size", 1), ctx.integer("step", 1)
    windows = (shape[axis] - size) // step + 1
    return (ctx.tensor(ctx.dtype(0), (*shape[:axis], windows, *shape[axis + 1 :], size)),)


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


@rule("Crop")
def _crop(ctx: NodeContext) -> Sequence[Value]:
    """An experimental operator of early opsets: cuts (left, top, right, bottom), or to a scale (h, w)."""
    n, c, h, w = ctx.shape(0)
    left, top, right, bottom = ctx.integer_list("border") or (0, 0, 0, 0)
    scale = ctx.integer_list("scale")
    if scale:
        return (ctx.tensor(ctx.dtype(0), (n, c, *scale)),)
    return (ctx.tensor(ctx.dtype(0), (n, c, h - top - bottom, w - left - right)),)
