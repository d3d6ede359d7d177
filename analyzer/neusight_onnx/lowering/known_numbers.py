"""Numbers that an exporter writes as nodes: the integers of axes, sizes and indices, two in five nodes of its graph.

Rules ask what such a value is, never which node gives it, and it takes no memory of the GPU. So the steps from fusion
to memory walk over the other nodes alone, and the nodes are put back where every node of the file is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.graph.model import InferredGraph, Node, kept_values
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.walk import CONSTANT

_INTEGERS = "iub"
"""Kinds of numpy's types: converters change the nodes of floats with a model's precision."""


def known_apart(graph: InferredGraph) -> tuple[InferredGraph, tuple[Node, ...]]:
    """``graph`` without its Constant nodes of known integers, whose values it keeps, and these nodes.

    What the graph gives or a body of control flow reads stays a node.
    """
    kept = kept_values(graph)
    values = graph.values
    apart: list[Node] = []
    others: list[Node] = []
    for node in graph.graph.nodes:
        if node.op_type == "Constant" and not node.domain:
            value = values.get(node.outputs[0])
            is_known = value is not None and value.data is not None and value.data.dtype.kind in _INTEGERS
            (apart if is_known and node.outputs[0] not in kept else others).append(node)
        else:
            others.append(node)
    if not apart:
        return graph, ()
    return replace(graph, graph=replace(graph.graph, nodes=tuple(others))), tuple(apart)


def works_of_known(nodes: Sequence[Node]) -> list[NodeWork]:
    """The work of such nodes: none."""
    return [
        NodeWork(node=node.name, op_type=node.op_type, origins=((node.name, node.op_type),), free=CONSTANT)
        for node in nodes
    ]
