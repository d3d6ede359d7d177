"""Orders of dimensions: the ``perm`` of a Transpose, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.graph.model import Array, Node

Order = tuple[int, ...]
"""``perm`` of a Transpose: dimension i of its result is dimension ``order[i]`` of its input."""


def order_of(node: Node | None) -> Order | None:
    """The order of a Transpose; None for another operator."""
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    given = node.attributes.get("perm")
    return tuple(place for place in given if isinstance(place, int)) if isinstance(given, tuple) else None


def moved_data(data: Array | None, order: Order) -> Array | None:
    return None if data is None else data.transpose(order)


def inverse_of(order: Order) -> Order:
    found = [0] * len(order)
    for place, source in enumerate(order):
        found[source] = place
    return tuple(found)


def composed(first: Order, second: Order) -> Order:
    """The order of a Transpose by ``first`` and then by ``second``."""
    return tuple(first[place] for place in second)


def squeezed(order: Order, places: Sequence[int]) -> Order:
    """``order`` without the result's dimensions ``places``."""
    sources = sorted(order[place] for place in range(len(order)) if place not in places)
    return tuple(sources.index(order[place]) for place in range(len(order)) if place not in places)


def reordered_axes(axes: Sequence[int], order: Order) -> tuple[int, ...]:
    return tuple(order[axis % len(order)] for axis in axes)
