"""Where a tensor's elements lie: strides, views and the copies that lazy views cost later.

PyTorch turns Transpose, Slice, Expand and most Reshapes into *views*: other strides over the same memory, no
kernel. Who needs the elements in another place pays a copy. This module knows strides (in elements, as
PyTorch's ``Tensor.stride()``); which operator accepts what is the business of the operators' rules.

The semantics are those that PyTorch documents for ``Tensor.view`` (a new dimension must be a subspace of an old
one, or span old ones d, d+1, ... with ``stride[i] == stride[i+1] * size[i+1]``) and for the memory format of
pointwise results (inputs' order of dimensions is kept where it is unambiguous).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Origin
from neusight_onnx.kernels import Movement

NAMED_VIEWS = 8
"""Views that a layout remembers, the latest: a chain of thousands would cost time and tell a reader nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Strides of a value that isn't contiguous, and the nodes (views) that made it so, the latest last."""

    strides: tuple[int, ...]
    origins: tuple[Origin, ...] = ()


def latest(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    """The last ``NAMED_VIEWS`` of them, each once."""
    return tuple(dict.fromkeys(origins))[-NAMED_VIEWS:]


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


def expand_strides(shape: tuple[int, ...], strides: tuple[int, ...], new_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides after broadcasting ``shape`` to ``new_shape``: 0 along dimensions that are repeated."""
    added = len(new_shape) - len(shape)
    return (0,) * added + tuple(
        0 if size == 1 and new != 1 else stride
        for size, new, stride in zip(shape, new_shape[added:], strides, strict=True)
    )


def pointwise_strides(
    shape: tuple[int, ...], operands: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> tuple[int, ...]:
    """Strides of what a pointwise kernel writes, given (shape, strides) of its operands.

    Dimensions are sorted by the operands' strides, the first operand that tells two dimensions apart deciding;
    the result is dense in that order.
    """
    expanded = [
        tuple(0 if size == 1 else stride for size, stride in zip(given, strides, strict=True))
        for given, strides in ((given, strides) for given, strides in operands)
    ]
    padded = [(0,) * (len(shape) - len(strides)) + strides for strides in expanded]

    def order(first: int, second: int) -> int:
        for strides in padded:
            low, high = strides[first], strides[second]
            if low == 0 or high == 0:
                continue
            if low != high:
                return -1 if low < high else 1
            if shape[first] > shape[second]:
                return 1
        return 0

    axes = list(range(len(shape) - 1, -1, -1))
    for index in range(1, len(axes)):
        at = index
        for other in range(index - 1, -1, -1):
            comparison = order(axes[other], axes[at])
            if comparison > 0:
                axes[other], axes[at] = axes[at], axes[other]
                at = other
            elif comparison < 0:
                break
    result = [0] * len(shape)
    stride = 1
    for axis in axes:
        result[axis] = stride
        stride *= max(shape[axis], 1)
    return tuple(result)


def touched_elements(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Different elements behind a view: repeated ones (stride 0) count once."""
    return prod(size for size, stride in zip(shape, strides, strict=True) if stride != 0)


def copy_kernel(dtype: DataType, shape: tuple[int, ...], strides: tuple[int, ...]) -> Movement:
    """The kernel that makes a view contiguous: reads what the view shows, writes all of ``shape``.

    ``Movement.shape`` is the source in memory order, ``permutation`` says where the result's axes come from
    (None: the order stays, the source only has gaps or repeats).
    """
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    memory = sorted(axes, key=lambda axis: (-strides[axis], axis))
    place = {axis: index for index, axis in enumerate(memory)}
    permutation = tuple(place[axis] for axis in axes)
    ordered = permutation == tuple(range(len(axes)))
    return Movement(
        operation="copy",
        dtype=dtype,
        shape=tuple(shape[axis] for axis in memory),
        permutation=None if ordered else permutation,
        read=dtype.bytes_of(touched_elements(shape, strides)),
        written=dtype.bytes_of(prod(shape)),
    )
