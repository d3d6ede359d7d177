"""Where ONNX Runtime's ScatterND writes into its operand, which it else copies first.

Its planner gives the result the operand's memory if a kernel of this run made it and nobody else reads it, views of it
included, and if the result is no output of the graph, which has memory of its own (1.31.1 on stand-ins).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from neusight_onnx.graph.model import IN_PLACE, InferredGraph, Node, kept_values

VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


def with_writes_in_place(graph: InferredGraph) -> InferredGraph:
    """``graph`` with these nodes marked, in bodies of control flow, too."""
    bodies = {key: with_writes_in_place(body) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    nodes = graph.graph.nodes
    if not any(node.op_type == "ScatterND" and not node.domain for node in nodes):
        return graph
    reads = Counter(name for node in nodes for name in node.inputs)
    kept = kept_values(graph)
    own: set[str] = set()
    marked: list[Node] = []
    for node in nodes:
        source = node.inputs[0] if node.inputs else ""
        is_free = source in own and reads[source] == 1 and source not in kept
        if node.op_type == "ScatterND" and not node.domain and is_free and kept.isdisjoint(node.outputs):
            node = replace(node, attributes={**node.attributes, IN_PLACE: 1})
        if is_free or node.op_type not in VIEWS:
            own.update(name for name in node.outputs if name and not graph.values[name].is_constant)
        marked.append(node)
    return replace(graph, graph=replace(graph.graph, nodes=tuple(marked)))
