"""The order in which a runtime executes the nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.graph.model import Node


def demand_order(nodes: Sequence[Node], reads: Sequence[Sequence[str]]) -> list[int]:
    """Indices of ``nodes`` in ONNX Runtime's default order; ``reads[i]`` is what node i reads.

    It walks back from the nodes that nothing follows, the last of them first, and from each to the producers of its
    inputs, the last in the file first; a node comes when all that it needs has come. Observed with its profiler.
    """
    producer = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    before: list[list[int]] = []
    is_leaf = [True] * len(nodes)
    for index, names in enumerate(reads):
        found = sorted({at for name in names if (at := producer.get(name)) is not None and at != index})
        before.append(found)
        for at in found:
            is_leaf[at] = False
    order: list[int] = []
    seen = [False] * len(nodes)
    stack = [index for index, leaf in enumerate(is_leaf) if leaf]
    while stack:
        index = stack.pop()
        if index < 0:
            order.append(~index)
        elif not seen[index]:
            seen[index] = True
            stack.append(~index)
            stack.extend(at for at in before[index] if not seen[at])
    return order
