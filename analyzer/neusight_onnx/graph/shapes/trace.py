"""A value traced back to what it is computed from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neusight_onnx.graph.model import Node


def in_order(
    name: str, needs: Callable[[str, int], tuple[Node | None, Sequence[str]] | None]
) -> list[tuple[str, Node | None]]:
    """What a value is computed from, each behind what it needs, with the node that makes it.

    ``needs``: of a value, and how many were reached with it, the node that makes it (None: it is not followed further)
    and the values that this reads; None where the value is known already.
    """
    order: list[tuple[str, Node | None]] = []
    reached: set[str] = set()
    waiting: list[tuple[str, Node | None, bool]] = [(name, None, False)]
    while waiting:
        current, node, is_ready = waiting.pop()
        if is_ready:
            order.append((current, node))
            continue
        if current in reached:
            continue
        reached.add(current)
        found = needs(current, len(reached))
        if found is not None:
            node, others = found
            waiting.append((current, node, True))
            waiting += [(other, None, False) for other in others if other]
    return order
