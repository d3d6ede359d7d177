"""Bodies of control flow: which graphs a node holds, and what they take from around them."""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.graph.model import Graph, Node


def bodies_of(node: Node) -> Iterator[Graph]:
    """The graphs among a node's attributes."""
    for value in node.attributes.values():
        if isinstance(value, Graph):
            yield value
        elif isinstance(value, tuple):
            yield from (body for body in value if isinstance(body, Graph))


def nodes_of(graph: Graph) -> Iterator[Node]:
    """Every node, those of bodies after the node that they belong to."""
    for node in graph.nodes:
        yield node
        for body in bodies_of(node):
            yield from nodes_of(body)


def reads_of(node: Node) -> tuple[str, ...]:
    """What a node reads, once each, with what its bodies take from around them."""
    if not node.inputs and not node.attributes:
        return ()
    names = dict.fromkeys(node.inputs)
    names.pop("", None)
    for body in bodies_of(node) if node.attributes else ():
        names.update(dict.fromkeys(_captures(body)))
    return tuple(names)


def _captures(graph: Graph) -> set[str]:
    read = {declared.name for declared in graph.outputs}
    own = {*(declared.name for declared in graph.inputs), *graph.initializers}
    for node in graph.nodes:
        read.update(reads_of(node))
        own.update(node.outputs)
    return read - own
