"""Whether a move is worth its while: dimensions that are left to move, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neusight_onnx.fusion.transposes.moving import Moving
from neusight_onnx.fusion.transposes.orders import Order, order_of
from neusight_onnx.fusion.transposes.rules import RULES, rule_of
from neusight_onnx.graph.model import Declared, Graph, Node

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


def without_rank(nodes: Sequence[Node], declared: Mapping[str, Declared]) -> frozenset[str]:
    """Values whose count of dimensions ONNX Runtime doesn't know.

    What an If makes whose branches differ in it, as PyTorch's tracing writes ``squeeze`` of an open size, and what
    operators that Transposes can move over make of it.
    """
    found: set[str] = set()
    for node in nodes:
        rule = rule_of(node)
        unknown = _ranks_of_branches(node) if node.op_type == "If" else rule is not None and rule.transposes
        if unknown and (node.op_type == "If" or not found.isdisjoint(node.inputs)):
            found.update(name for name in node.outputs if name not in declared or declared[name].shape is None)
    return frozenset(found)


def _ranks_of_branches(node: Node) -> bool:
    """Whether the branches of an If say that they make tensors of different ranks."""
    branches = [node.attributes.get(key) for key in ("then_branch", "else_branch")]
    ranks = [
        [None if output.shape is None else len(output.shape) for output in branch.outputs]
        for branch in branches
        if isinstance(branch, Graph)
    ]
    return len(ranks) == 2 and ranks[0] != ranks[1]


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
    if value is None or value.shape is None or name in work.rankless:
        return UNKNOWN_RANK
    return len(value.shape) - _known_ones(work, name)


def _known_ones(work: Moving, name: str) -> int:
    """Dimensions of 1 that ONNX Runtime knows of: where it knows the sizes, and those that an Unsqueeze or a reduction
    leaves whatever the sizes are."""
    value = work.values.get(name)
    if value is None or value.shape is None:
        return 0
    said = work.declared.get(name)
    if said is not None and said.shape is not None:
        return sum(size == 1 for size in said.shape)
    maker = work.maker(name)
    if name in work.sized or (maker is not None and rule_of(maker) in (RULES["ReduceSum"], RULES["ArgMax"])):
        return value.shape.count(1)
    if maker is None or not (maker.op_type == "Unsqueeze" or order_of(maker)):
        return 0
    before = work.values.get(maker.inputs[0])
    added = len(value.shape) - len(before.shape) if before is not None and before.shape is not None else 0
    return added + _known_ones(work, maker.inputs[0])


def _can_be_moved_over(node: Node, work: Moving) -> bool:
    rule = rule_of(node)
    return order_of(node) is not None or (rule is not None and bool(rule.operands(node, work)))
