"""The optimiser's pass: each operator behind a Transpose, once."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.fusion.splits import sized
from neusight_onnx.fusion.transposes.cost import cost_of, counted_rank, leading_to_transposes
from neusight_onnx.fusion.transposes.edits import apply, merge
from neusight_onnx.fusion.transposes.moving import Moving, in_order
from neusight_onnx.fusion.transposes.orders import order_of
from neusight_onnx.fusion.transposes.rules import rule_of
from neusight_onnx.graph.model import InferredGraph, Node, kept_values


def with_moved_transposes(graph: InferredGraph) -> InferredGraph:
    """``graph`` with its Transposes where ONNX Runtime's optimiser moves them; in bodies of control flow, too."""
    bodies = {key: with_moved_transposes(body) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    if not any(node.op_type == "Transpose" and order_of(node) for node in graph.graph.nodes):
        return graph
    work = Moving(
        values=dict(graph.values),
        kept=kept_values(graph),
        sized=sized(graph),
        declared=dict(graph.graph.declared),
        fixed=all(isinstance(size, int) for declared in graph.graph.inputs for size in declared.shape or ()),
    )
    for node in graph.graph.nodes:
        work.add(node)
    leading = leading_to_transposes(graph.graph.nodes, work)
    changed = False
    for node in graph.graph.nodes:
        current = work.nodes.get(node.name)
        if current is not None and not work.transposed.isdisjoint(current.inputs):
            changed |= any(_moves(work, current, place, leading) for place in range(len(current.inputs)))
    if not changed:
        return graph
    nodes = tuple(in_order(work, [node.name for node in graph.graph.nodes]))
    return replace(graph, graph=replace(graph.graph, nodes=nodes, declared=work.declared), values=work.values)


def _moves(work: Moving, node: Node, place: int, leading: frozenset[str]) -> bool:
    """Moves the Transpose that makes an input over ``node``, if there is one and it is worth its while."""
    transpose = work.maker(node.inputs[place])
    order = order_of(transpose)
    if transpose is None or order is None:
        return False
    if order_of(node) is not None:
        merge(work, transpose, node)
        return True
    rule = rule_of(node)
    if rule is None:
        return False
    operands = rule.operands(node, work)
    if place not in operands or not _is_known(work, node, operands):
        return False
    cost = sum(cost_of(work, node.inputs[other], order) for other in operands)
    if cost < 0 and rule.transposes and leading.isdisjoint(node.outputs):
        cost += max(counted_rank(work, name) for name in node.outputs)
    if cost >= 0:
        return False
    moved = rule.move(node, order, work)
    if moved is None:
        return False
    apply(work, node, moved, order, operands)
    return True


def _is_known(work: Moving, node: Node, operands: tuple[int, ...]) -> bool:
    """Whether the operands that would be reordered and the results have shapes: values whose sizes only a run tells, or
    that an unknown operator makes, have none."""
    names = (*(node.inputs[place] for place in operands), *filter(None, node.outputs))
    return all(work.rank(name) is not None for name in names)
