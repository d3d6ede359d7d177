"""PyTorch's EmbeddingBag, which exporters write as a loop over its bags.

``nn.EmbeddingBag`` is exported (``embedding_bag`` of torch/onnx/symbolic_opset11.py and later) as a Loop whose trip
takes a bag's indices by a Slice between two offsets, gathers their rows and reduces them. In PyTorch it is one kernel,
``EmbeddingBag_updateOutputKernel_sum_mean`` or ``.._max`` (launches of 2.9.1 on stand-ins for CUDA's libraries). Other
runtimes execute the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neusight_onnx.fusion.patterns.search import OWN
from neusight_onnx.graph.model import InferredGraph, Node

_BETWEEN = frozenset({"Unsqueeze", "Cast", "Identity"})
_REDUCED = frozenset({"ReduceMax", "ReduceMean", "ReduceSum"})


def with_embedding_bags(graph: InferredGraph) -> InferredGraph:
    """``graph`` with each such loop as one operator of its weight and its indices; of the main graph alone."""
    found: dict[str, Node] = {}
    for node in graph.graph.nodes:
        if node.op_type == "Loop" and not node.domain and (bag := _bag(graph, node)) is not None:
            found[node.name] = bag
    if not found:
        return graph
    nodes = tuple(found.get(node.name, node) for node in graph.graph.nodes)
    bodies = {key: body for key, body in graph.bodies.items() if key[0] not in found}
    trips = {name: count for name, count in graph.trip_counts.items() if name not in found}
    repeats = {name: keys for name, keys in graph.repeats.items() if name not in found}
    kept = replace(graph.graph, nodes=nodes)
    return replace(graph, graph=kept, bodies=bodies, trip_counts=trips, repeats=repeats)


def _bag(graph: InferredGraph, loop: Node) -> Node | None:
    """A loop as one operator, or None: its body carries nothing and gives each trip the reduced rows of a slice."""
    body = graph.bodies.get((loop.name, "body"))
    if body is None or len(loop.outputs) != 1:
        return None
    inner = body.graph
    if len(inner.inputs) != 2 or len(inner.outputs) != 2:
        return None
    makers = {name: node for node in inner.nodes for name in node.outputs}
    reduced = makers.get(inner.outputs[1].name)
    rows = None if reduced is None or reduced.op_type not in _REDUCED else makers.get(reduced.inputs[0])
    taken = None if rows is None or rows.op_type != "Gather" else makers.get(rows.inputs[1])
    if reduced is None or rows is None or taken is None or taken.op_type != "Slice" or len(taken.inputs) < 3:
        return None
    weight, indices = rows.inputs[0], taken.inputs[0]
    trip = inner.inputs[0].name
    if weight in makers or indices in makers or not all(_is_offset(makers, name, trip) for name in taken.inputs[1:3]):
        return None
    operation = reduced.op_type.removeprefix("Reduce").lower()
    return replace(
        loop, op_type="EmbeddingBag", domain=OWN, inputs=(weight, indices), attributes={"operation": operation}
    )


def _is_offset(makers: Mapping[str, Node], name: str, trip: str) -> bool:
    """Whether a value is what a vector from outside the loop has at the place of the trip."""
    node = makers.get(name)
    while node is not None and node.op_type in _BETWEEN:
        node = makers.get(node.inputs[0])
    return node is not None and node.op_type == "Gather" and node.inputs[0] not in makers and node.inputs[1] == trip
