"""A graph while its pairs are folded: who makes and uses its values, and what became of its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from neusight_onnx.fusion.patterns.search import LONGEST_CHAIN
from neusight_onnx.graph.model import InferredGraph, Node, Origin, Value, kept_values

DOMAINS = ("", "com.microsoft")
"""Those that have QuantizeLinear and DequantizeLinear."""


@dataclass(slots=True)
class Folding:
    """One graph: ``kept`` values have readers outside; ``gone`` nodes were merged, ``replaced`` ones run otherwise."""

    values: dict[str, Value]
    producers: Mapping[str, Node]
    consumers: Mapping[str, list[Node]]
    kept: frozenset[str]
    gone: set[str] = field(default_factory=set)
    replaced: dict[str, Node] = field(default_factory=dict)

    def is_constant(self, name: str) -> bool:
        value = self.values.get(name)
        return value is not None and value.is_constant

    def element_count(self, name: str) -> int | None:
        value = self.values.get(name)
        return None if value is None or value.shape is None else value.element_count

    def dequantizer(self, name: str) -> Node | None:
        """The DequantizeLinear that makes a value, Identity between them (as of shared weights) being nothing."""
        for _ in range(LONGEST_CHAIN):
            node = self.producers.get(name)
            if node is None:
                return None
            if node.op_type == "DequantizeLinear" and node.domain in DOMAINS:
                return node
            if node.op_type != "Identity" or node.domain:
                return None
            name = node.inputs[0]
        return None

    def only_user(self, name: str) -> Node | None:
        users = self.consumers.get(name, ())
        return users[0] if len(users) == 1 and name not in self.kept else None

    def quantizer(self, name: str) -> Node | None:
        """The QuantizeLinear that alone uses a value."""
        node = self.only_user(name)
        if node is None or node.op_type != "QuantizeLinear" or node.domain not in DOMAINS:
            return None
        return node if node.inputs[0] == name and name not in node.inputs[1:] else None


def indexed(graph: InferredGraph) -> Folding:
    producers: dict[str, Node] = {}
    consumers: dict[str, list[Node]] = defaultdict(list)
    for node in graph.graph.nodes:
        producers.update((name, node) for name in node.outputs if name)
        for name in dict.fromkeys(node.inputs):
            consumers[name].append(node)
    return Folding(values=dict(graph.values), producers=producers, consumers=consumers, kept=kept_values(graph))


def origins(merged: Iterable[Node], node: Node) -> tuple[Origin, ...]:
    """The nodes of the file that ``node`` now stands for, itself last."""
    found = [origin for each in (*merged, node) for origin in each.stands_for]
    return tuple(dict.fromkeys(found))
