"""Operators that change the shape of a tensor or move its elements, and shapes as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import (
    MAX_DATA,
    Data,
    NodeContext,
    UnknownShape,
    broadcast_shapes,
)
from neusight_onnx.graph.shapes.registry import rule
from neusight_onnx.graph.shapes.slicing import ordered

_INT64 = np.dtype(np.int64)


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
    low, high = ordered(size, other)
    turn = low // number * number + 1 if ctx.low_run else high // number * number
    sizes = {size, turn} if low <= turn <= high else {size}
    pick = min if ctx.low_run else max
    return [
        pick(max(min(-(-size // number), size - index * -(-size // number)), 0) for size in sizes)
        for index in range(count)
    ]


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


@rule("Crop")
def _crop(ctx: NodeContext) -> Sequence[Value]:
    """An experimental operator of early opsets: cuts (left, top, right, bottom), or to a scale (h, w)."""
    n, c, h, w = ctx.shape(0)
    left, top, right, bottom = ctx.integer_list("border") or (0, 0, 0, 0)
    scale = ctx.integer_list("scale")
    if scale:
        return (ctx.tensor(ctx.dtype(0), (n, c, *scale)),)
    return (ctx.tensor(ctx.dtype(0), (n, c, h - top - bottom, w - left - right)),)
