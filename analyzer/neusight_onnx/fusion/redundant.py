"""What ONNX Runtime's optimiser takes out before it merges: what changes nothing, and what was computed before.

CastElimination, DivMulFusion, ExpandElimination, NoopElimination, NotWhereFusion and CommonSubexpressionElimination
(1.32, level 1),
as ``benchmarks/fusion_ort.py`` compares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, replace
from operator import is_

from neusight_onnx.fusion.known_shapes import Shape, known_shapes
from neusight_onnx.fusion.splits import fixes_sizes
from neusight_onnx.graph.model import InferredGraph, Initializer, Node, Origin, Value, kept_values

ANEW = frozenset(
    {"Bernoulli", "Constant", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
    | {"RandomUniformLike", "If", "Loop", "Scan", "SequenceMap"}
)
"""Operators that stay where they stand several times: random ones, those with bodies, constants (which are free)."""


SHARED_ELEMENTS = 8
"""How many elements constants have at most of which equal ones are one (ConstantSharing, 1.32: 8 are, 9 aren't)."""

ABSORBED = frozenset({"Div", "Mul", "Transpose"})
"""What several products may each take into them."""


def without_redundant(graph: InferredGraph, *, neutral: bool = True) -> InferredGraph:
    """``graph`` without them, in bodies of control flow, too; another node lists those that are gone as origins.

    ``neutral``: whether sums with 0, products with 1 and the like are among them.
    """
    bodies = {key: without_redundant(body, neutral=neutral) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    kept = kept_values(graph)
    given = frozenset(declared.name for declared in graph.graph.inputs)
    negations = _negated_conditions(graph, kept)
    inverted = _inverted_factors(graph, kept)
    inverses: dict[str, Node] = {}
    ones, expanded = _targets_of_ones(graph), _expanding_nothing(graph)
    negated: dict[str, str] = {}
    instead: dict[str, str] = {}
    known: dict[tuple[str, str], dict[Hashable, Node]] = {}
    first: dict[tuple[str, str], Node] = {}
    passed: dict[str, list[Origin]] = {}
    gone: dict[str, list[Origin]] = {}
    nodes: list[Node] = []
    for node in graph.graph.nodes:
        if node.op_type in ANEW or not node.inputs:
            nodes.append(_reading(node, instead))
            continue
        node = _reading(node, instead)
        if node.name in negations:
            negated[node.outputs[0]] = node.inputs[0]
            passed.setdefault(node.inputs[0], []).extend(node.stands_for)
            continue
        if node.name in inverted:
            inverses[node.outputs[0]] = node
            continue
        if inverses and node.op_type == "Mul" and not inverses.keys().isdisjoint(node.inputs):
            divisor = next(inverses[name] for name in node.inputs if name in inverses)
            factor = next(name for name in node.inputs if name != divisor.outputs[0])
            both = tuple(dict.fromkeys((*divisor.stands_for, *node.stands_for)))
            node = replace(node, op_type="Div", inputs=(factor, divisor.inputs[1]), origins=both)
        if negated and node.inputs[0] in negated:
            condition, if_true, if_false = node.inputs
            node = replace(node, inputs=(negated[condition], if_false, if_true))
        if kept.isdisjoint(node.outputs):
            passes = node.op_type in PASSING and (neutral or node.op_type not in NEUTRAL)
            source = _unchanged(node, graph.values, given, ones, expanded) if passes else None
            if source is not None:
                instead[node.outputs[0]] = source
                passed.setdefault(source, []).extend(node.stands_for)
                continue
            same = _known_before(node, first, known, graph.values)
            if same is not None:
                instead.update(zip(node.outputs, same.outputs, strict=True))
                gone.setdefault(same.name, []).extend(node.stands_for)
                continue
        nodes.append(node)
    if not instead and not negated and not inverses:
        return graph
    # what makes the operand of one that passes it on names it, or, behind an input of the graph, what reads it next
    for node in nodes if passed else ():
        for name in node.outputs:
            if name in passed:
                gone.setdefault(node.name, []).extend(passed.pop(name))
    for name, origins in passed.items():
        gone.setdefault(name, []).extend(origins)
    for place, node in enumerate(nodes):
        if node.name in gone or not gone.keys().isdisjoint(node.inputs):
            more = [origin for name in (node.name, *node.inputs) for origin in gone.pop(name, ())]
            nodes[place] = replace(node, origins=tuple(dict.fromkeys((*node.stands_for, *more))))
    return replace(graph, graph=replace(graph.graph, nodes=tuple(nodes)))


def _negated_conditions(graph: InferredGraph, kept: Set[str]) -> frozenset[str]:
    """The Nots that nothing but conditions of Wheres reads, which choose the other way round instead."""
    found = {
        node.outputs[0]: node.name
        for node in graph.graph.nodes
        if node.op_type == "Not" and not node.domain and node.outputs[0] not in kept
    }
    if found:
        read = dict.fromkeys(found, False)
        for node in graph.graph.nodes:
            for place, name in enumerate(node.inputs):
                if name in read:
                    read[name] = True
                    if node.op_type != "Where" or node.domain or place:
                        found.pop(name, None)
        return frozenset(node for name, node in found.items() if read[name])
    return frozenset()


def _inverted_factors(graph: InferredGraph, kept: Set[str]) -> frozenset[str]:
    """The divisions of 1 that one product alone reads, as one of its factors: the other one is divided instead."""
    found: dict[str, str] = {}
    for node in graph.graph.nodes:
        if node.op_type == "Div" and not node.domain and len(node.inputs) == 2 and node.outputs[0] not in kept:
            one, divisor = (graph.values.get(name) for name in node.inputs)
            if one is None or one.data is None or not one.is_constant or one.data.size != 1:
                continue
            fits = divisor is not None and divisor.shape is not None and one.data.ndim <= len(divisor.shape)
            if fits and float(one.data.reshape(())) == 1.0:
                found[node.outputs[0]] = node.name
    if not found:
        return frozenset()
    reads = Counter(name for node in graph.graph.nodes for name in node.inputs if name in found)
    inverted = set()
    for node in graph.graph.nodes:
        if node.op_type == "Mul" and not node.domain and len(node.inputs) == 2:
            factor = next((name for name in node.inputs if name in found), None)
            if factor is not None and reads[factor] == 1:
                inverted.add(found[factor])
    return frozenset(inverted)


@dataclass(slots=True)
class Redundant:
    """What :func:`without_redundant` left of a graph, for the same model at other sizes.

    It asks for no sizes: nodes and what is constant are the model's at all of them, so that of values only their types
    and ranks could differ.
    """

    before: tuple[Node, ...] = ()
    facts: tuple[object, ...] = ()
    after: tuple[Node, ...] | None = None

    def without(self, graph: InferredGraph, *, neutral: bool = True) -> InferredGraph:
        """``without_redundant(graph)``; bodies of control flow, which data may choose, are looked at anew."""
        if graph.bodies:
            return without_redundant(graph, neutral=neutral)
        nodes = graph.graph.nodes
        passing = [node for node in nodes if node.op_type in PASSING]
        read = [_fact(graph.values.get(name)) for node in passing for name in (*node.inputs, *node.outputs)]
        facts = (neutral, *read)
        is_known = len(nodes) == len(self.before) and all(map(is_, nodes, self.before)) and facts == self.facts
        if self.after is None or not is_known:
            self.before, self.facts, self.after = nodes, facts, without_redundant(graph, neutral=neutral).graph.nodes
        return replace(graph, graph=replace(graph.graph, nodes=self.after))


def _fact(value: Value | None) -> object:
    return None if value is None else (value.dtype, None if value.shape is None else len(value.shape))


def _reading(node: Node, instead: Mapping[str, str]) -> Node:
    """``node`` with other operands ``instead`` of those that are gone."""
    if instead.keys().isdisjoint(node.inputs):
        return node
    return Node(  # as ``replace`` does it in thrice the time, for many nodes
        name=node.name,
        op_type=node.op_type,
        domain=node.domain,
        version=node.version,
        inputs=tuple([instead.get(name, name) for name in node.inputs]),
        outputs=node.outputs,
        attributes=node.attributes,
        origins=node.origins,
    )


def without_unread(graph: InferredGraph, before: InferredGraph) -> InferredGraph:
    """``graph`` without nodes whose results were read ``before`` its rules were applied and no longer are.

    What reads their operand now names them.
    """
    bodies = {key: without_unread(body, before.bodies[key]) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    if graph.graph is before.graph:
        return graph
    was_read = {name for node in before.graph.nodes for name in node.inputs}
    read = Counter(name for node in graph.graph.nodes for name in node.inputs)
    kept = kept_values(graph)
    gone: dict[str, list[Origin]] = {}
    nodes: list[Node] = []
    for node in reversed(graph.graph.nodes):
        is_unread = not any(read[name] or name in kept or name not in was_read for name in node.outputs)
        if is_unread and node.op_type in ABSORBED:
            read.subtract(node.inputs)
            tensor = next((name for name in node.inputs if not graph.values[name].is_constant), node.inputs[0])
            gone[tensor] = [*node.stands_for, *(origin for name in node.outputs for origin in gone.pop(name, ()))]
        else:
            nodes.append(node)
    if not gone:
        return graph
    for place in reversed(range(len(nodes))):
        more = [origin for name in nodes[place].inputs for origin in gone.pop(name, ())]
        if more:
            nodes[place] = replace(nodes[place], origins=tuple(dict.fromkeys((*nodes[place].stands_for, *more))))
    return replace(graph, graph=replace(graph.graph, nodes=tuple(reversed(nodes))))


NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
"""Operators on two operands and the number that leaves the other one as it is (NoopElimination)."""
PASSING = frozenset({"Cast", "Expand", *NEUTRAL})
"""Operators that may pass an operand on as it is."""


def _expanding_nothing(graph: InferredGraph) -> frozenset[str]:
    """Results of Expands to a constant shape that the operand has: ones, or the sizes that are known at load."""
    expands = [node for node in graph.graph.nodes if node.op_type == "Expand" and not node.domain]
    if not expands:
        return frozenset()
    fixed = fixes_sizes(graph)
    known: dict[str, Shape] | None = None
    found = set()
    for node in expands:
        source, target = (graph.values.get(name) for name in node.inputs[:2])
        if source is None or source.shape is None or target is None or target.data is None:
            continue
        sizes = [int(size) for size in target.data.reshape(-1)]
        if len(sizes) > len(source.shape) or target.data_low is not None or not (target.is_constant or fixed):
            continue
        own: Shape | None = source.shape if fixed and not source.is_bound else None
        if own is None and any(size != 1 for size in sizes):
            known = known_shapes(graph.graph, graph.values) if known is None else known
            own = known.get(node.inputs[0])
            if own is None or len(own) != len(source.shape):
                continue
        last = (own or source.shape)[len(source.shape) - len(sizes) :]
        if all(size in (1, dim) for size, dim in zip(sizes, last, strict=True)):
            found.add(node.outputs[0])
    return frozenset(found)


def _targets_of_ones(graph: InferredGraph) -> frozenset[str]:
    """Ones, as many as a computed shape has numbers (exporters' ``repeat`` expands to them): constants at load."""
    nodes = graph.graph.nodes
    expanded = {node.inputs[1] for node in nodes if node.op_type == "Expand" and len(node.inputs) == 2}
    if not expanded:
        return frozenset()
    producers = {name: node for node in nodes for name in node.outputs}
    found = set()
    for name in expanded:
        filled = producers.get(name)
        if filled is None or filled.op_type != "ConstantOfShape" or not filled.inputs:
            continue
        number = filled.attributes.get("value")
        is_one = isinstance(number, Initializer) and number.data is not None and bool((number.data == 1).all())
        counted = producers.get(filled.inputs[0])
        if counted is None or counted.op_type != "Shape" or not counted.inputs:
            continue
        shape = producers.get(counted.inputs[0])
        if is_one and shape is not None and shape.op_type == "Concat":
            found.add(name)
    return frozenset(found)


def _unchanged(
    node: Node,
    values: Mapping[str, Value],
    given: frozenset[str],
    ones: frozenset[str] = frozenset(),
    expanded: frozenset[str] = frozenset(),
) -> str | None:
    """The operand that a node passes on: of a Cast to its own type, beside a neutral number, or expanded to ``ones``.

    ``given``: inputs of the graph, behind which a neutral number stays. ``expanded``: results of Expands that have the
    shape of what is expanded.
    """
    if node.domain:
        return None
    if node.op_type == "Expand":
        if node.outputs[0] in expanded:
            return node.inputs[0]
        source, target = values.get(node.inputs[0]), values.get(node.outputs[0])
        if ones.isdisjoint(node.inputs[1:2]) or source is None or target is None:
            return None
        shapes = source.shape, target.shape
        return node.inputs[0] if None not in shapes and len(shapes[0] or ()) == len(shapes[1] or ()) else None
    if node.op_type == "Cast":
        source, target = values.get(node.inputs[0]), values.get(node.outputs[0])
        alike = source is not None and target is not None and source.dtype is not None and source.dtype is target.dtype
        return node.inputs[0] if alike else None
    neutral = NEUTRAL.get(node.op_type)
    if neutral is None or len(node.inputs) != 2:
        return None
    pairs = ((0, 1), (1, 0)) if node.op_type in ("Add", "Mul") else ((0, 1),)
    for passed, number in pairs:
        value, other = values.get(node.inputs[number]), values.get(node.inputs[passed])
        if value is None or other is None or value.data is None or not value.is_constant or value.data.size != 1:
            continue
        rank = None if other.shape is None else len(other.shape)
        is_neutral = float(value.data.reshape(())) == neutral
        if is_neutral and rank is not None and value.data.ndim <= rank and node.inputs[passed] not in given:
            return node.inputs[passed]
    return None


def _known_before(
    node: Node,
    first: dict[tuple[str, str], Node],
    known: dict[tuple[str, str], dict[Hashable, Node]],
    values: Mapping[str, Value],
) -> Node | None:
    """A node that computes the same; ``first`` and ``known`` hold those of one operator and operand, and learn."""
    operand = node.inputs[0]
    value = values.get(operand)
    if value is not None and value.is_constant:
        operand = node.inputs[-1]
    rough = (node.op_type, operand)
    alone = first.setdefault(rough, node)
    if alone is node:
        return None
    alike = known.get(rough)
    if alike is None:
        alike = known[rough] = {_key(alone, values): alone}
    key = _key(node, values)
    same = node if key is None else alike.setdefault(key, node)
    return None if same is node else same


def _key(node: Node, values: Mapping[str, Value]) -> Hashable:
    """What two nodes share that give the same; None for one that is left alone."""
    attributes: list[Hashable] = []
    for name, given in sorted(node.attributes.items()):
        if isinstance(given, Initializer):
            if given.data is None:
                return None
            attributes.append((name, given.dtype, given.shape, given.data.tobytes()))
        else:
            attributes.append((name, repr(given)))
    inputs = tuple(_shared(values.get(name)) or name for name in node.inputs)
    return node.domain, node.op_type, node.version, inputs, len(node.outputs), tuple(attributes)


def _shared(value: Value | None) -> Hashable:
    """A small constant: equal ones are one (ConstantSharing)."""
    if value is None or not value.is_constant or value.data is None or value.data.size > SHARED_ELEMENTS:
        return None
    return value.dtype, value.shape, value.data.tobytes()
