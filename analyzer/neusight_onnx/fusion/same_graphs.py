"""Graphs that are equal at two sizes of a model, made one object: what was worked out of one is seen to hold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from neusight_onnx.graph.model import Graph, InferredGraph, Initializer, Node


@dataclass(slots=True)
class SameGraphs:
    """What each step of fusion left at the sizes before: rules most often make the same nodes of a model."""

    known: dict[str, Graph] = field(default_factory=dict)

    def of(self, step: str, graph: InferredGraph) -> InferredGraph:
        """``graph`` behind ``step``; its facts with the graph that there was before, if that is equal."""
        known = self.known.get(step)
        if known is graph.graph:
            return graph
        if known is None or not _are_same(known, graph.graph):
            self.known[step] = graph.graph
            return graph
        return replace(graph, graph=known)


def _are_same(one: Graph, other: Graph) -> bool:
    return (
        len(one.nodes) == len(other.nodes)
        and one.inputs is other.inputs
        and one.outputs is other.outputs
        and one.initializers is other.initializers
        and one.declared is other.declared
        and all(map(_are_equal, one.nodes, other.nodes))
    )


def _are_equal(one: Node, other: Node) -> bool:
    if one is other:
        return True
    if one.name != other.name or one.attributes.keys() != other.attributes.keys():
        return False
    for name, value in one.attributes.items():
        also = other.attributes[name]
        # what holds arrays, or nodes, is compared by identity
        if value is not also and (_holds_more(value) or _holds_more(also) or value != also):
            return False
    return (one.op_type, one.domain, one.version, one.inputs, one.outputs, one.origins) == (
        other.op_type,
        other.domain,
        other.version,
        other.inputs,
        other.outputs,
        other.origins,
    )


def _holds_more(value: object) -> bool:
    members = value if isinstance(value, tuple) else (value,)
    return any(isinstance(member, Graph | Initializer) for member in members)
