"""Where a tensor's elements lie: strides, views and the copies that lazy views cost later.

PyTorch turns Transpose, Slice, Expand and most Reshapes into *views*: other strides over the same memory, no
kernel. Who needs the elements in another place pays a copy. This module knows layouts; which operator accepts what
is the business of the operators' rules.

The semantics are those that PyTorch documents for the memory format of pointwise results (inputs' order of
dimensions is kept where it is unambiguous).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which convolutions work channels last, by the ``ranks`` of their tensors. ``given``: images and filters lie so
    already, as the user has them; else a compiler copies those that don't."""

    ranks: frozenset[int] = frozenset()
    given: bool = False


AS_EXPORTED = Order()
"""No convolution but those whose input lies channels last."""


def latest(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    """The last ``NAMED_VIEWS`` of them, each once."""
    return tuple(dict.fromkeys(origins))[-NAMED_VIEWS:]


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
