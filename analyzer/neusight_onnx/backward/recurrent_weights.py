"""Weights of recurrent layers as modules hold them.

PyTorch's exporter reorders the gates of an LSTM or GRU for ONNX (``_reform_weights`` of torch/onnx/symbolic_opset9.py).
Where it doesn't fold constants, as for training, the file cuts every weight into gates and joins them again. The module
hands cuDNN what it holds: neither forwards nor backwards is anything moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from neusight_onnx.graph.bodies import reads_of
from neusight_onnx.graph.model import InferredGraph, Node, made_name

OWN = "neusight"
REORDERED = "Reordered"
RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_MOVING = frozenset({"Concat", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
_WEIGHTS = slice(1, 4)
"""Where a recurrent operator reads its weights, those between steps and biases."""


def with_held_weights(graph: InferredGraph) -> InferredGraph:
    """``graph`` with one node, which costs nothing, for all that brings weights into ONNX's order."""
    makers = {name: node for node in graph.graph.nodes for name in node.outputs if name}
    made: dict[str, Node] = {}
    for node in graph.graph.nodes:
        if node.op_type not in RECURRENT or node.domain:
            continue
        for name in node.inputs[_WEIGHTS]:
            found = None if name in made else _reordered(name, makers, graph)
            if found is not None:
                made[name] = found
    if not made:
        return graph
    nodes = [made.get(node.outputs[0], node) if node.outputs else node for node in graph.graph.nodes]
    kept = tuple(_read_on(nodes, {declared.name for declared in graph.graph.outputs}, made))
    return replace(graph, graph=replace(graph.graph, nodes=kept))


def _reordered(name: str, makers: Mapping[str, Node], graph: InferredGraph) -> Node | None:
    """The node that stands for what makes a weight, where that moves each element of some initializers once."""
    leaves: dict[str, None] = {}
    passed: dict[str, Node] = {}
    pending = [name]
    while pending:
        current = pending.pop()
        if current in graph.graph.initializers:
            leaves[current] = None
            continue
        node = makers.get(current)
        if node is None or node.op_type not in _MOVING or node.domain:
            return None
        if node.name not in passed:
            passed[node.name] = node
            pending += reversed(node.inputs) if node.op_type == "Concat" else node.inputs[:1]
    value = graph.values.get(name)
    whole = 0 if value is None or value.shape is None else prod(value.shape)
    held = sum(prod(graph.graph.initializers[leaf].shape) for leaf in leaves)
    if held != whole or not any(node.op_type in ("Concat", "Slice", "Split") for node in passed.values()):
        return None
    return Node(
        name=made_name(name, "reordered"),
        op_type=REORDERED,
        domain=OWN,
        version=1,
        inputs=tuple(leaves),
        outputs=(name,),
        origins=tuple(origin for node in reversed(passed.values()) for origin in node.stands_for),
    )


def _read_on(nodes: Iterable[Node], results: set[str], made: Mapping[str, Node]) -> list[Node]:
    """``nodes`` without those that nobody reads any more and that a node of ``made`` stands for."""
    gone = {origin.name for node in made.values() for origin in node.origins}
    read = set(results)
    kept: list[Node] = []
    for node in reversed(list(nodes)):
        if node.name in gone and read.isdisjoint(node.outputs):
            continue
        kept.append(node)
        read.update(reads_of(node))
    return kept[::-1]
