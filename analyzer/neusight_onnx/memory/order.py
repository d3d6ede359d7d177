"""The order in which a runtime executes the nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from neusight_onnx.graph.model import Node


def demand_order(nodes: Sequence[Node], reads: Sequence[Sequence[str]]) -> list[int]:
    """Indices of ``nodes`` in ONNX Runtime's default order; ``reads[i]`` is what node i reads.

    It walks back from the nodes that nothing follows, the last of them first, and from each to the producers of its
    inputs, the last in the file first; a node comes when all that it needs has come. Observed with its profiler.
    """
    return list(_ordered(tuple(node.outputs for node in nodes), tuple(map(tuple, reads))))


@lru_cache(maxsize=8)
def _ordered(writes: tuple[tuple[str, ...], ...], reads: tuple[tuple[str, ...], ...]) -> tuple[int, ...]:
    """The same by names, which are those of the run before where only sizes changed."""
    producer = {name: index for index, outputs in enumerate(writes) for name in outputs if name}
    before: list[list[int]] = []
    is_leaf = [True] * len(writes)
    for index, names in enumerate(reads):
        found = sorted({at for name in names if (at := producer.get(name)) is not None and at != index})
        before.append(found)
        for at in found:
            is_leaf[at] = False
    order: list[int] = []
    seen = [False] * len(writes)
    stack = [index for index, leaf in enumerate(is_leaf) if leaf]
    while stack:
        index = stack.pop()
        if index < 0:
            order.append(~index)
        elif not seen[index]:
            seen[index] = True
            stack.append(~index)
            stack.extend(at for at in before[index] if not seen[at])
    return tuple(order)
