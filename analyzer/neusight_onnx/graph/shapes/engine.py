"""One pass over the nodes in order: each node's rule turns what is known of its inputs into its outputs."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace

import numpy as np

from neusight_onnx.errors import BindingError, ModelError, shown
from neusight_onnx.graph.bindings import SYMBOL_CONTRADICTION, Bindings, BoundInputs
from neusight_onnx.graph.model import (
    Graph,
    InferredGraph,
    Model,
    Node,
    Notice,
    Value,
)
from neusight_onnx.graph.names import option
from neusight_onnx.graph.shapes.context import NodeContext, UnknownShape, initializer_value
from neusight_onnx.graph.shapes.demands import impossible, unmet
from neusight_onnx.graph.shapes.ends import high_end, join_ends, low_end
from neusight_onnx.graph.shapes.fallback import infer_by_schema
from neusight_onnx.graph.shapes.memo import Memo
from neusight_onnx.graph.shapes.notices import (
    contradicted_symbols,
    ignored_notices,
    note_stale,
    stale_notices,
    too_new_notices,
)
from neusight_onnx.graph.shapes.ranges import ends_of
from neusight_onnx.graph.shapes.registry import INTERVALS, RANDOM, RULES, Rule
from neusight_onnx.graph.shapes.stand_ins import (
    as_told,
    check_told,
    declared_bounds,
    default_declared,
    say_what_gives,
    stand_in_values,
)
from neusight_onnx.graph.shapes.unknown_sizes import MOST, PLACES, possible_sizes
from neusight_onnx.graph.shapes.walk import Scope, Walk, told_shapes
from neusight_onnx.graph.signatures import fault as fault_of_form
from neusight_onnx.graph.signatures import first_version, unknown_attributes, wrong_elements

MAX_DEPTH = 60
"""Bodies within bodies; protobuf's own limit on nesting (100 messages, three a body) stops files before this."""

FAULTS = (ArithmeticError, LookupError, TypeError, ValueError)
"""What numpy and rules raise on inputs that no valid node has; turned into a ModelError that names the node."""


def walk_model(
    model: Model,
    bindings: Bindings,
    bound: BoundInputs,
    *,
    at_expected: bool = False,
    at_most_likely: bool = False,
    memo: Memo | None = None,
) -> tuple[int, InferredGraph]:
    """The graph, and how many nodes of bodies that may not run refused their inputs.

    ``at_expected``: at the sizes that costs are counted at; ``at_most_likely``: with those that nothing limits as the
    most that they can be.
    """
    memo = memo or Memo(graph=model.graph)
    assert memo.graph is model.graph, "a memo is that of one model"
    walk = Walk(
        infer_graph=infer_graph,
        bindings=bindings,
        symbols=dict(bound.symbols),
        memo=memo,
        at_expected=at_expected,
        at_most_likely=at_most_likely,
    )
    try:
        with np.errstate(all="ignore"):
            result = infer_graph(model.graph, bound.values, walk, outer=None, certain=True)
    except ModelError as error:
        disputed = next((notice for notice in bound.warnings if notice.code == SYMBOL_CONTRADICTION), None)
        if disputed is None:
            raise
        # the likely cause: inputs that were meant to agree
        raise BindingError(f"{disputed.message}; but then {error}") from error
    unused = next((name for name in bindings.values if name not in bound.values and name not in walk.used), None)
    if unused is not None:
        raise BindingError(f"--value {shown(unused)}: no size is read from it, or its content follows from the inputs")
    warnings = [*bound.warnings, *walk.warnings, *stale_notices(walk.stale), *ignored_notices(walk.ignored)]
    warnings += contradicted_symbols(model.graph, bound, result.values)
    if memo.too_new is None:
        memo.too_new = tuple(too_new_notices(model.graph))
    warnings += memo.too_new
    if not model.graph.nodes:
        warnings.append(Notice(code="no-nodes", message="the model has no nodes: there is nothing to execute"))
    result = replace(
        result,
        expected=walk.expected,
        likely=frozenset(walk.likely),
        deciders={node: name for (node, _), name in walk.deciders.items() if name is not None},
        assumptions=(*bound.assumptions, *walk.assumptions),
        warnings=tuple(warnings),
    )
    return walk.swallowed, result


def infer_graph(
    graph: Graph,
    inputs: Mapping[str, Value],
    walk: Walk,
    *,
    outer: MutableMapping[str, Value] | None,
    certain: bool,
) -> InferredGraph:
    # nodes of bodies may be copies, made for this walk and gone after it
    memo = walk.memo if outer is None and graph is walk.memo.graph else None
    own: dict[str, Value] = {}
    if memo is None:
        own.update(inputs)
        own.update((name, initializer_value(item)) for name, item in graph.initializers.items())
    else:
        own.update((name, memo.one(value)) for name, value in inputs.items())
        own.update((name, memo.initializer(item)) for name, item in graph.initializers.items())
    values: MutableMapping[str, Value]
    if outer is None:
        values = own
    elif isinstance(outer, ChainMap):
        values = ChainMap(own, *outer.maps)
    else:
        values = ChainMap(own, outer)
    shapes = told_shapes(graph, walk.bindings.shapes)
    scope = Scope(graph=graph, values=values, own=own, certain=certain, shapes=shapes)
    walk.scopes.append(scope)
    if len(walk.scopes) > MAX_DEPTH:
        message = f"bodies of control-flow nodes are nested more than {MAX_DEPTH} deep, in '{graph.name}'"
        raise ModelError(message, at_any_size=True)
    nodes = graph.nodes
    is_settled = memo is not None and memo.others and not walk.bindings.shapes
    if memo is not None and is_settled:
        own.update(memo.given)
        nodes = memo.others
    try:
        for node in nodes:
            if memo is None:
                outputs = _infer_node(node, graph, values, walk, certain=certain)
            else:
                key = memo.key(node, own)
                known = memo.answers.get(key)
                outputs = _infer_node(node, graph, own, walk, certain=certain, key=key) if known is None else known
            for name, value in zip(node.outputs, outputs, strict=True):
                if not name:
                    continue
                if value.is_bound and name in shapes:
                    own[name] = as_told(name, value, shapes[name])
                elif outer is None and name in walk.bindings.shapes:
                    own[name] = value
                    check_told(name, value, walk.bindings.shapes[name])
                else:
                    own[name] = value
    finally:
        walk.scopes.pop()
    if memo is not None and not memo.others:
        memo.settle(own)
    note_stale(graph, own, walk)
    return InferredGraph(
        graph=graph,
        values=values,
        bodies=scope.bodies,
        trip_counts=scope.trip_counts,
        repeats=scope.repeats,
        idle=scope.idle,
    )


def _infer_node(
    node: Node,
    graph: Graph,
    values: Mapping[str, Value],
    walk: Walk,
    *,
    certain: bool,
    key: tuple[int, ...] | None = None,
) -> Sequence[Value]:
    """What is known of a node's outputs; kept in the walk's memo under ``key`` if that is given and it may be."""
    inputs: list[Value | None] = []
    constant = True
    bounded = False
    for name in node.inputs:
        if not name:
            inputs.append(None)
            continue
        value = values.get(name)
        if value is None:
            value = Value(dtype=None, shape=None, unknown_because=node.name)
        inputs.append(value)
        if not value.is_constant:
            constant = False
        if value.is_bound or value.data_low is not None:
            bounded = True
    operator = (node.domain, node.op_type)
    rule = RULES.get(operator)
    if constant and operator in RANDOM:
        constant = False
    if key is not None:  # nodes of a body are inferred while the rule of its node runs
        walk.consulted = False
    try:
        if node.name not in walk.formed:
            _check_form(node, inputs, walk)
        if rule is None:
            context = NodeContext(node, inputs, inputs, walk, constant=constant)
            results: Sequence[Value] = infer_by_schema(context)
        elif bounded and operator not in INTERVALS:
            results = _infer_interval(node, rule, inputs, walk, constant=constant)
        else:
            results = rule(NodeContext(node, inputs, inputs, walk, constant=constant))
    except UnknownShape as unknown:
        return _stand_ins(node, graph, inputs, walk, rule, unknown)
    except ModelError:
        if certain:
            raise
        walk.swallowed += 1
        walk.unsettled += 1
        return stand_in_values(node, graph, walk, inputs, cause=node.name)
    except FAULTS as fault:
        if certain:
            context = NodeContext(node, inputs, inputs, walk, constant=False)
            shapes = context.shown()
            raise context.error(f"does not accept its inputs{' ' if shapes else ''}{shapes} ({fault})") from fault
        walk.swallowed += 1
        walk.unsettled += 1
        return stand_in_values(node, graph, walk, inputs, cause=node.name)
    if len(results) != len(node.outputs):
        if len(results) < len(node.outputs):
            return [*results, *stand_in_values(node, graph, walk, inputs, cause=node.name)[len(results) :]]
        results = results[: len(node.outputs)]
    else:
        for value in results:
            if value.shape is None and value.kind == "tensor":
                return _with_stand_ins(node, graph, inputs, walk, results)
    if key is None or walk.consulted or walk.guessed or bounded or any(unknown_attributes(node)):
        return results  # it depends on more than the key says, or something is to be noted of each node
    return walk.memo.keep(key, inputs, results)


def _stand_ins(
    node: Node,
    graph: Graph,
    inputs: Sequence[Value | None],
    walk: Walk,
    rule: Rule | None,
    unknown: UnknownShape,
) -> Sequence[Value]:
    """What stands for the outputs of a node whose rule can't tell their shapes."""
    if unknown.cause is not None:
        return stand_in_values(node, graph, walk, inputs, cause=unknown.cause)
    if rule is not None:
        limited = _infer_possible_sizes(node, rule, inputs, walk)
        if limited is not None:
            return limited
        _size_giver(node, inputs, walk)  # noted, for the reason why nothing is known of it
    is_unknown_operator = first_version(node.domain, node.op_type) is None
    if is_unknown_operator and len(walk.scopes) == 1:
        default_declared(node, graph, walk)
    stand_ins = stand_in_values(node, graph, walk, inputs, cause=node.name)
    if is_unknown_operator:
        say_what_gives(node, stand_ins, walk)
    return stand_ins if rule is None else declared_bounds(node, stand_ins, walk)


def _with_stand_ins(
    node: Node, graph: Graph, inputs: Sequence[Value | None], walk: Walk, results: Sequence[Value]
) -> Sequence[Value]:
    """``results`` with what the file declares in place of tensors without a shape."""
    stand_ins = stand_in_values(node, graph, walk, inputs, cause=node.name)
    return [
        stand_in if value.shape is None and value.kind == "tensor" and stand_in.shape is not None else value
        for value, stand_in in zip(results, stand_ins, strict=True)
    ]


def _check_form(node: Node, inputs: Sequence[Value | None], walk: Walk) -> None:
    """ModelError if the operator can't have such inputs, outputs or attributes.

    Models repeat themselves: what was found right is known by its facts. Attributes count as equal if they are the same
    objects, as those that the reader has seen before are; they live as long as the model.
    """
    walk.formed.add(node.name)
    attributes = node.attributes
    facts = (
        node.op_type,
        node.domain,
        node.version,
        len(node.outputs),
        *attributes,
        *map(id, attributes.values()),
        *[None if value is None else (value.shape, id(value.dtype), value.is_bound) for value in inputs],
    )
    known = walk.sound.get(facts)
    if known is None:
        form = fault_of_form(node)
        types = None if walk.guessed else wrong_elements(node, inputs)
        reason = form or unmet(node, inputs) or types
        if reason is not None:
            walk.formed.discard(node.name)
            fault = NodeContext(node, inputs, inputs, walk, constant=False).error(reason)
            fault.at_any_size = reason in (form, types, impossible(node))
            raise fault
        known = walk.sound[facts] = tuple(unknown_attributes(node))
    for name in known:
        walk.ignored.setdefault((node.domain, node.op_type, name), []).append(node.name)


def _infer_interval(
    node: Node, rule: Rule, inputs: list[Value | None], walk: Walk, *, constant: bool
) -> Sequence[Value]:
    """Run the rule at both ends of its inputs' intervals and join what it says."""
    lows = [None if value is None else low_end(value) for value in inputs]
    highs = [None if value is None else high_end(value) for value in inputs]
    results = rule(NodeContext(node, highs, lows, walk, constant=constant, bounded=True))
    least: Sequence[Value | None]
    try:
        least = rule(NodeContext(node, lows, highs, walk, constant=constant, bounded=True, low_run=True))
    except (UnknownShape, ModelError, *FAULTS):
        # sizes at the low end may be impossible together (0 rows against 5); then nothing is known of the least
        least = [None] * len(results)
    return [join_ends(high, low) for high, low in zip(results, least, strict=True)]


def _infer_possible_sizes(node: Node, rule: Rule, inputs: Sequence[Value | None], walk: Walk) -> Sequence[Value] | None:
    """The outputs where a size that the node reads is not known, but between which ends it lies; None if it isn't."""
    (name,) = node.outputs[:1]
    if not name or len(node.outputs) > 1:
        return None
    longest = max(
        (size for value in _inputs_of_model(walk) for size in value.shape or () if value.kind == "tensor"), default=1
    )
    try:
        sizes = possible_sizes(node, inputs, walk, longest)
        if sizes is None:
            return None
        is_at_most = walk.at_most_likely and sizes.likely is not None
        ends = sizes.at_most_likely if is_at_most else sizes.inputs
        results = _infer_interval(node, rule, ends, walk, constant=False)
        likely = None if sizes.likely is None else _infer_interval(node, rule, sizes.likely, walk, constant=False)[0]
    except (UnknownShape, ModelError, *FAULTS):
        return None  # the ends don't go together: nothing is said
    value = results[0]
    if value.shape is None or name in walk.bindings.shapes:
        return results
    decider = _size_giver(node, inputs, walk)
    if likely is not None and likely.shape is not None:
        walk.likely.add(name)
        goes_on = walk.expects(name, likely.shape)
        source = next(iter(sizes.sources)) if len(sizes.sources) == 1 and decider is None else None
        shape = likely.shape if walk.at_expected else value.shape
        _say_likely(node, shape, decider, source, longest, walk)
        return (likely,) if goes_on else results
    if value.is_bound:
        walk.assume(
            f"{node.op_type} '{shown(name)}': {_why_open(decider)}, at most {list(value.shape)}; "
            + _what_changes(name, value.shape, decider)
        )
    return results


def _say_likely(
    node: Node, shape: tuple[int, ...], decider: str | None, source: str | None, longest: int, walk: Walk
) -> None:
    """What is assumed of a size that nothing in the graph limits; once for all that are read from one source."""
    name = node.outputs[0]
    known = None if source is None else walk.counts(source).get(source)
    is_node_s = source is not None and walk.scopes[0].producer(source) is not None
    if source is not None and known is not None and is_node_s:
        if source in walk.said:
            return
        walk.said.add(source)
    what = f"{node.op_type} '{shown(name)}': {_why_open(decider)}"
    change = _what_changes(name, shape, decider)
    if source is not None and is_node_s:
        change = f"{option('--value', source, 'N')} changes it, with all sizes that are read from there"
    if not walk.at_expected:
        walk.assume(f"{what}, nothing in the graph keeps it small; taken to be at most {list(shape)}; {change}")
        return
    open_end = " and nothing in the graph keeps it small"
    like = ", as long as the longest dimension of an input" if longest in shape else ""
    if source is not None and known is not None:
        least, most = int(known.data.min()), int(known.data.max())
        held = f"{least}" if least == most else f"{least} to {most}"
        if (ends_of(source, walk).high <= MOST).all():
            open_end, like, held = "", "", f"{held}, the most that it can be,"
        like += f", with {held} in {'' if known.data.size == 1 else 'each element of '}'{shown(source)}'"
    walk.assume(f"{what}{open_end}; the cost is that of {list(shape)}{like}; {change}")


def _why_open(decider: str | None) -> str:
    return "its size depends on data" if decider is None else f"its size is read from the input '{shown(decider)}'"


def _size_giver(node: Node, inputs: Sequence[Value | None], walk: Walk) -> str | None:
    """The input of the model from which the node reads a size that isn't known; None if there is no such input."""
    for place in PLACES.get((node.domain, node.op_type), ()):
        value = inputs[place] if place < len(inputs) else None
        if value is not None and value.data is None:
            decider = walk.deciding_input(node, node.inputs[place])
            if decider is not None:
                return decider
    return None


def _what_changes(name: str, shape: tuple[int, ...], decider: str | None) -> str:
    if decider is not None:
        return f"{option('--value', decider, '...')} gives it"
    return f"{option('--shape', name, 'x'.join(map(str, shape)))} with another size changes it"


def _inputs_of_model(walk: Walk) -> list[Value]:
    outermost = walk.scopes[0]
    return [outermost.values[declared.name] for declared in outermost.graph.inputs if declared.name in outermost.values]
