"""Slice: its places exactly, and the ends of what it gives where bounds or sizes are intervals."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import (
    NodeContext,
)
from neusight_onnx.graph.shapes.registry import rule


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
        sizes = ordered(shape[place], other_shape[place])
        start = ordered(starts[index], starts[index] if other_starts is None else other_starts[index])
        end = ordered(ends[index], ends[index] if other_ends is None else other_ends[index])
        step = ordered(steps[index], steps[index] if other_steps is None else other_steps[index])
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


def ordered(first: int, second: int) -> tuple[int, int]:
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
