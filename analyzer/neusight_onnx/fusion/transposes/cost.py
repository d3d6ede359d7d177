"""Whether a move is worth its while: dimensions that are left to move, before and after."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.fusion.transposes.moving import Moving
from neusight_onnx.fusion.transposes.orders import Order, order_of
from neusight_onnx.fusion.transposes.rules import RULES, rule_of
from neusight_onnx.graph.model import Node

UNKNOWN_RANK = 5
"""Dimensions that a tensor counts as where they aren't known."""


def leading_to_transposes(nodes: Sequence[Node], work: Moving) -> frozenset[str]:
    """Values that a Transpose reads, at once or behind operators that Transposes can move over."""
    found: set[str] = set()
    for node in reversed(nodes):
        if node.op_type == "Transpose" and order_of(node) is not None:
            found.add(node.inputs[0])
            continue
        rule = None if found.isdisjoint(node.outputs) else rule_of(node)
        if rule is not None and rule.transposes:
            found.update(node.inputs[place] for place in rule.operands(node, work))
    return frozenset(found)


def cost_of(work: Moving, name: str, order: Order) -> int:
    """What it costs to have a value in the order from before a Transpose by ``order``."""
    value = work.values.get(name)
    if value is not None and value.is_constant:
        return 0
    maker = work.maker(name)
    made = order_of(maker)
    if made is None:
        return counted_rank(work, name)
    goes = made == order and name not in work.kept
    goes = goes and all(_can_be_moved_over(work.nodes[reader], work) for reader in work.readers[name])
    return -counted_rank(work, name) if goes else 0


def counted_rank(work: Moving, name: str) -> int:
    """Dimensions of a value that a Transpose would have to move, as far as ONNX Runtime knows: all but those of 1.

    It doesn't know the sizes behind a Reshape to a computed shape, and symbols stand for any size.
    """
    value = work.values.get(name)
    if value is None or value.shape is None:
        return UNKNOWN_RANK
    said = work.declared.get(name)
    if said is not None and said.shape is not None:
        return sum(size != 1 for size in said.shape)
    if name in work.sized:
        return sum(size != 1 for size in value.shape)
    maker = work.maker(name)
    reduced = maker is not None and rule_of(maker) in (RULES["ReduceSum"], RULES["ArgMax"])
    return len(value.shape) - (value.shape.count(1) if reduced else 0)


def _can_be_moved_over(node: Node, work: Moving) -> bool:
    rule = rule_of(node)
    return order_of(node) is not None or (rule is not None and bool(rule.operands(node, work)))
