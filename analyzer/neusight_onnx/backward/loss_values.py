"""The results of a graph that the loss is taken of."""

from __future__ import annotations

from collections.abc import Mapping

from neusight_onnx.backward.recurrent_weights import RECURRENT
from neusight_onnx.graph.model import InferredGraph, Node


def loss_values(graph: InferredGraph, needing: Mapping[str, int]) -> tuple[str, ...]:
    """The results that nothing else is made of; else the first.

    States and caches are read by the nodes behind them, as they are or before they were packed.
    """
    makers = {name: node for node in graph.graph.nodes for name in node.outputs if name}
    readers: dict[str, int] = {}
    for node in graph.graph.nodes:
        for name in dict.fromkeys(node.inputs):
            readers[name] = readers.get(name, 0) + 1
    names = [declared.name for declared in graph.graph.outputs if declared.name in needing]
    last = tuple(dict.fromkeys(name for name in names if not _is_read_on(name, makers, readers)))
    return last or tuple(dict.fromkeys(names[:1]))


_PACKING = frozenset({"Concat", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze", "Cast"})


_PACKED_STEPS = 8


def _is_read_on(name: str, makers: Mapping[str, Node], readers: Mapping[str, int]) -> bool:
    """Whether nodes read a result, or all that it was packed from. The last state of a recurrent layer counts as read:
    it is for the caller's next run."""
    if readers.get(name, 0):
        return True
    pending, seen = [(name, 0)], 0
    while pending:
        current, depth = pending.pop()
        node = makers.get(current)
        is_state = node is not None and node.op_type in RECURRENT and current in node.outputs[1:]
        if is_state or (depth and readers.get(current, 0) > 1):
            seen += 1
            continue
        if node is None or node.op_type not in _PACKING or node.domain or depth == _PACKED_STEPS:
            return False
        sources = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        pending += [(source, depth + 1) for source in sources]
    return seen > 0
