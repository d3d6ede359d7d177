"""Masks of truth values that an exporter wrote as numbers, in front of calls of ``scaled_dot_product_attention``.

The function turns such a mask into numbers itself, in every call (``convert_boolean_attn_mask``: two numbers and a
selection, seen in each layer's launches of a LlamaForCausalLM). Exporters write the selection of 0 and the lowest
number, one for each call (TorchScript) or one for all that share the mask (dynamo).
"""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.patterns.search import OWN
from neusight_onnx.graph.model import InferredGraph, Node, Value

LOWEST = -6e4
"""What is as low as float16 goes (-65,504), or lower."""
MASK = 3
"""Which input of attention the mask is."""


def with_truth_masks(graph: InferredGraph) -> InferredGraph:
    """``graph`` (recognised for eager mode) with the truth values as masks of its calls; in bodies nothing changes."""
    selections = {
        node.outputs[0]: node for node in graph.graph.nodes if node.op_type == "Where" and _is_mask(node, graph)
    }
    if not selections:
        return graph
    calls = [node for node in graph.graph.nodes if _is_call(node) and node.inputs[MASK] in selections]
    if not calls:
        return graph
    changed = {
        node.name: replace(
            node,
            inputs=(*node.inputs[:MASK], selections[node.inputs[MASK]].inputs[0], *node.inputs[MASK + 1 :]),
            origins=(*selections[node.inputs[MASK]].stands_for, *node.stands_for),
        )
        for node in calls
    }
    nodes = [changed.get(node.name, node) for node in graph.graph.nodes]
    read = {name for node in nodes for name in node.inputs} | {declared.name for declared in graph.graph.outputs}
    read.update(name for body in graph.bodies.values() for node in body.graph.nodes for name in node.inputs)
    gone = {node.inputs[MASK] for node in calls} - read
    kept = tuple(node for node in nodes if node.op_type != "Where" or node.outputs[0] not in gone)
    return replace(graph, graph=replace(graph.graph, nodes=kept))


def _is_call(node: Node) -> bool:
    return node.op_type == "ScaledDotProductAttention" and node.domain == OWN and len(node.inputs) > MASK


def _is_mask(node: Node, graph: InferredGraph) -> bool:
    condition, seen, hidden = (graph.values.get(name) for name in node.inputs)
    if condition is None or condition.dtype is not DataType.BOOL or node.domain:
        return False
    zero, lowest = _number(seen), _number(hidden)
    return zero == 0 and lowest is not None and lowest <= LOWEST


def _number(value: Value | None) -> float | None:
    if value is None or value.data is None or value.data.size != 1:
        return None
    return float(value.data.reshape(-1)[0])
