"""``torch.roll`` in a file: both parts of a tensor along an axis, joined the other way round."""

from __future__ import annotations

from collections import Counter

from neusight_onnx.graph.bodies import reads_of
from neusight_onnx.graph.model import InferredGraph, Node


def rolls_of(graph: InferredGraph) -> dict[str, str | None]:
    """By the name of a Slice that is part of a roll: of the later one the result of the other, of the earlier one None.

    PyTorch rolls a gradient back by one kernel an axis (launches of torch 2.9.1), which stands where the later one is.
    """
    nodes = graph.graph.nodes
    places = {name: place for place, node in enumerate(nodes) for name in node.outputs if name}
    uses = Counter(name for node in nodes for name in reads_of(node))
    uses.update(declared.name for declared in graph.graph.outputs)
    found: dict[str, str | None] = {}
    for node in nodes:
        if node.op_type != "Concat" or node.domain or len(node.inputs) != 2:
            continue
        if any(name not in places or uses[name] > 1 for name in node.inputs):
            continue
        tail, head = (nodes[places[name]] for name in node.inputs)
        if _are_both_parts(tail, head, graph, node):
            first, last = sorted((tail, head), key=lambda part: places[part.outputs[0]])
            found[first.name], found[last.name] = None, first.outputs[0]
    return found


def _are_both_parts(tail: Node, head: Node, graph: InferredGraph, joined: Node) -> bool:
    """Whether two Slices take a tensor's end and its beginning along the axis that joins them, each element once."""
    if any(part.op_type != "Slice" or part.domain or len(part.inputs) < 4 for part in (tail, head)):
        return False
    axis = joined.attributes.get("axis")
    whole, end, start = (_shape(graph, name) for name in (tail.inputs[0], tail.outputs[0], head.outputs[0]))
    if tail.inputs[0] != head.inputs[0] or not isinstance(axis, int) or not len(whole) == len(end) == len(start) > 0:
        return False
    axis %= len(whole)
    size = whole[axis]
    if any(_numbers(graph, part, 3) not in ([axis], [axis - len(whole)]) for part in (tail, head)):
        return False
    if any(len(part.inputs) > 4 and _numbers(graph, part, 4) != [1] for part in (tail, head)):
        return False
    cut = size - end[axis]
    return _numbers(graph, tail, 1) in ([cut], [cut - size]) and _numbers(graph, head, 1) == [0] and start[axis] == cut


def _shape(graph: InferredGraph, name: str) -> tuple[int, ...]:
    value = graph.values.get(name)
    return () if value is None or value.shape is None else value.shape


def _numbers(graph: InferredGraph, node: Node, index: int) -> list[int] | None:
    """The known whole numbers of an input; None where they aren't."""
    value = graph.values.get(node.inputs[index])
    return None if value is None or value.data is None else [int(number) for number in value.data.reshape(-1)]
