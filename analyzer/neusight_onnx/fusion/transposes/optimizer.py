"""The optimiser's pass: each operator behind a Transpose, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from neusight_onnx.fusion.splits import fixes_sizes, sized
from neusight_onnx.fusion.transposes.asked import AskedValues, Facts
from neusight_onnx.fusion.transposes.cost import cost_of, counted_rank, leading_to_transposes, without_rank
from neusight_onnx.fusion.transposes.edits import apply, merge
from neusight_onnx.fusion.transposes.moving import Moving, Recipe, in_order
from neusight_onnx.fusion.transposes.orders import order_of
from neusight_onnx.fusion.transposes.rules import rule_of
from neusight_onnx.graph.model import Graph, InferredGraph, Node, kept_values


@dataclass(slots=True)
class Moves:
    """What the pass made of a graph, for the same nodes at other sizes.

    It asks for ranks, for dimensions of 1 and for constants. ``recipes``: how it made values; ``after`` is the same
    graph where it moved nothing.
    """

    before: Graph | None = None
    after: Graph | None = None
    recipes: Sequence[tuple[str, Recipe]] = ()
    facts: Facts = field(default_factory=lambda: Facts(()))

    def again(self, graph: InferredGraph) -> InferredGraph | None:
        """``graph`` with the moves that were made before; None where it could be another one to the pass."""
        if self.before is not graph.graph or self.after is None or not self.facts.hold_of(graph.values):
            return None
        if self.after is self.before:
            return graph
        values = dict(graph.values)
        for name, recipe in self.recipes:
            values[name] = recipe(values)
        return replace(graph, graph=self.after, values=values)


def with_moved_transposes(graph: InferredGraph, known: Moves | None = None) -> InferredGraph:
    """``graph`` with its Transposes where ONNX Runtime's optimiser moves them; in bodies of control flow, too.

    ``known``: shared between the sizes of a model.
    """
    bodies = {key: with_moved_transposes(body) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    # what the file fixes is cut and put together by its sizes
    fixed = fixes_sizes(graph)
    is_shared = known is not None and not fixed and not bodies
    if known is not None and is_shared and (moved := known.again(graph)) is not None:
        return moved
    if not any(node.op_type == "Transpose" and order_of(node) for node in graph.graph.nodes):
        return graph
    values = AskedValues(graph.values)
    work = Moving(
        values=values,
        kept=kept_values(graph),
        sized=sized(graph),
        declared=dict(graph.graph.declared),
        fixed=fixed,
        rankless=without_rank(graph.graph.nodes, graph.graph.declared),
    )
    result = _moved(graph, work)
    if known is not None and is_shared:
        known.before, known.after, known.recipes = graph.graph, result.graph, work.recipes
        known.facts = Facts.of(graph.values, values.asked)
    return result


def _moved(graph: InferredGraph, work: Moving) -> InferredGraph:
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
    moved = replace(graph.graph, nodes=nodes, declared=work.declared)
    return replace(graph, graph=moved, values=dict(work.values))


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
