"""Strides of tensors, in elements as PyTorch's ``Tensor.stride()`` gives them, and how views change them.

The semantics are those that PyTorch documents for ``Tensor.view``: a new dimension must be a subspace of an old one, or
span old ones d, d+1, ... with ``stride[i] == stride[i+1] * size[i+1]``.
"""

from __future__ import annotations

from math import prod


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides: the last dimension's is 1."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether row-major order is memory order; strides of dimensions of size 1 say nothing."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return True
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def is_channels_last(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether (n, c, *spatial) lies in memory as (n, *spatial, c), densely."""
    if len(shape) not in (4, 5):
        return False
    order = (0, *range(2, len(shape)), 1)
    return is_contiguous(tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order))


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of (n, c, *spatial) that lies in memory as (n, *spatial, c), densely."""
    order = (0, *range(2, len(shape)), 1)
    dense = contiguous_strides(tuple(shape[axis] for axis in order))
    strides = [0] * len(shape)
    for place, axis in enumerate(order):
        strides[axis] = dense[place]
    return tuple(strides)


def suggests_channels_last(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """What PyTorch's ``suggest_memory_format`` says of (n, c, *spatial): its dimensions lie in the order (n, *spatial,
    c), with gaps (a slice of the channels) or without. By ``is_channels_last_strides_2d_s4`` and its sibling for three
    spatial axes (c10/core/MemoryFormat.h).
    """
    if len(shape) not in (4, 5) or strides[1] == 0 or 0 in shape:
        return False
    least = 0
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        if strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * (shape[axis] if shape[axis] > 1 else 1)
    return True


def view_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], new_shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the same elements seen as ``new_shape``; None where that takes a copy.

    Works from the last dimension: old dimensions that follow each other in memory form a run; each new dimension
    must lie within one run.
    """
    if prod(shape) == 0:
        return contiguous_strides(new_shape)
    runs: list[tuple[int, int]] = []
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if runs and stride == runs[-1][0] * runs[-1][1]:
            runs[-1] = (runs[-1][0] * size, runs[-1][1])
        else:
            runs.append((size, stride))
    if not runs:
        return contiguous_strides(new_shape)
    place = 0
    left, stride = runs[0]
    result = []
    for size in reversed(new_shape):
        if size != 1 and left == 1:
            place += 1
            if place == len(runs):
                return None
            left, stride = runs[place]
        if left % size:
            return None
        result.append(stride)
        left //= size
        stride *= size
    if left != 1 or place != len(runs) - 1:
        return None
    return tuple(reversed(result))


def regrouped_order(
    shape: tuple[int, ...], grouped: tuple[int, ...], order: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The order of ``shape``'s dimensions that a reshape to ``grouped``, a transpose to ``order`` and a reshape to
    ``target`` come to, (b, h, n, d) -> (b*h, n, d) -> (b*h, d, n) -> (b, h, d, n) say; None where they come to none.
    """
    groups: list[range] = []
    at = 0
    for size in grouped:
        start, elements = at, 1
        while elements != size and at < len(shape):
            elements *= shape[at]
            at += 1
        if elements != size:
            return None
        groups.append(range(start, at))
    if at != len(shape):
        return None
    found = tuple(axis for group in order for axis in groups[group])
    return found if target == tuple(shape[axis] for axis in found) else None


def expand_strides(shape: tuple[int, ...], strides: tuple[int, ...], new_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides after broadcasting ``shape`` to ``new_shape``: 0 along dimensions that are repeated."""
    added = len(new_shape) - len(shape)
    return (0,) * added + tuple(
        0 if size == 1 and new != 1 else stride
        for size, new, stride in zip(shape, new_shape[added:], strides, strict=True)
    )
