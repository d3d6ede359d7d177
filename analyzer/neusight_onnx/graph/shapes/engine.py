"""One pass over the nodes in order: each node's rule turns what is known of its inputs into its outputs."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError, ModelError, shown
from neusight_onnx.graph.binding_text import listed
from neusight_onnx.graph.bindings import SYMBOL_CONTRADICTION, Bindings, BoundInputs, bind_inputs, symbols_of_unknown
from neusight_onnx.graph.cache_branches import left_empty
from neusight_onnx.graph.dimension_roles import DEFAULT_LENGTHS, default_size, places_of, role_of
from neusight_onnx.graph.model import (
    Array,
    Declared,
    Graph,
    InferredGraph,
    Initializer,
    Model,
    Node,
    Notice,
    TripCount,
    Value,
)
from neusight_onnx.graph.names import option
from neusight_onnx.graph.shapes.context import NodeContext, UnknownShape, initializer_value
from neusight_onnx.graph.shapes.demands import unmet
from neusight_onnx.graph.shapes.fallback import infer_by_schema
from neusight_onnx.graph.shapes.memo import Memo
from neusight_onnx.graph.shapes.ranges import Ends
from neusight_onnx.graph.shapes.registry import INTERVALS, RANDOM, RULES, Rule
from neusight_onnx.graph.shapes.unknown_sizes import PLACES, possible_sizes
from neusight_onnx.graph.signatures import OPEN_DOMAIN, first_version, unknown_attributes, wrong_elements
from neusight_onnx.graph.signatures import fault as fault_of_form
from neusight_onnx.graph.sizes_by_weights import lengths_of_tables, most_positions

MAX_DEPTH = 60
"""Bodies within bodies; protobuf's own limit on nesting (100 messages, three a body) stops files before this."""

MAX_INFERENCES = 100_000
"""Nodes inferred in bodies, all trips together, beyond which loops are no longer followed trip by trip: 1 to 2 s."""

_DECLARED_ZERO = "a dimension that an input declares as 0 is taken as 0, for the model does not accept another size"
_OTHER_DEFAULT = "the first default of a length does not fit the model, so another is taken"
_BY_TABLE = "a length is the one that fits the table of weights that is added to it, as the defaults don't"

FAULTS = (ArithmeticError, LookupError, TypeError, ValueError)
"""What numpy and rules raise on inputs that no valid node has; turned into a ModelError that names the node."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """The state of one inference: what the user bound, and what has been noted so far. Private to this module."""

    bindings: Bindings
    symbols: dict[str, int]
    memo: Memo
    consulted: bool = False
    """Whether a rule has asked for more than its inputs since this was last set to False."""
    assumptions: dict[str, None] = field(default_factory=dict)
    warnings: list[Notice] = field(default_factory=list)
    stale: dict[str, str] = field(default_factory=dict)
    formed: set[str] = field(default_factory=set)
    """Nodes whose form has been looked at and is right."""
    sound: dict[tuple[object, ...], tuple[str, ...]] = field(default_factory=dict)
    """Facts of nodes whose form is right -> the attributes that they have and their operator has not."""
    guessed: bool = False
    """Whether the type of a value is only likely, so that types say nothing against a node any more."""
    ignored: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """(operator, attribute that it does not have) -> the nodes that have it."""
    scopes: list[_Scope] = field(default_factory=list)
    at_expected: bool = False
    """Go on with expected sizes where they are known, not with bounds."""
    expected: dict[str, tuple[int, ...]] = field(default_factory=dict)
    likely: set[str] = field(default_factory=set)
    """Those of the expected sizes that nothing in the graph tells."""
    deciders: dict[tuple[str, str], str | None] = field(default_factory=dict)
    inferences: int = 0
    swallowed: int = 0
    """Faults in bodies that may not run: they stop nothing, yet say that the sizes do not fit the body."""
    unsettled: int = 0
    """Those of them that no If has explained by taking the other branch."""

    def assume(self, text: str) -> None:
        self.assumptions[text] = None

    def trip_count(self, node: str) -> int | None:
        return self.bindings.trip_counts.get(node)

    def symbol(self, name: str) -> int | None:
        return self.symbols.get(name)

    def producer(self, name: str) -> Node | None:
        return self.scopes[-1].producer(name)

    def maker(self, name: str) -> Node | None:
        for scope in reversed(self.scopes):
            node = scope.producer(name)
            if node is not None:
                return node
            if scope.enters(name):
                return None
        return None

    def value(self, name: str) -> Value | None:
        return self.scopes[-1].values.get(name)

    def found(self, name: str) -> dict[str, Ends]:
        for scope in reversed(self.scopes):
            if name in scope.own:
                return scope.ends
        return {}

    def expects(self, name: str, shape: tuple[int, ...]) -> bool:
        if name in self.bindings.shapes:
            return False
        self.expected[name] = shape
        return self.at_expected

    def guesses(self, name: str, shape: tuple[int, ...]) -> bool:
        self.likely.add(name)
        return self.expects(name, shape)

    def affords(self, inferences: int) -> bool:
        return self.inferences + inferences <= MAX_INFERENCES

    def deciding_input(self, node: Node, name: str) -> str | None:
        key = (node.name, name)
        if key not in self.deciders:
            self.deciders[key] = _deciding_input(name, self.scopes)
        return self.deciders[key]

    def infer_body(
        self, node: Node, attribute: str, graph: Graph, inputs: Mapping[str, Value], *, certain: bool
    ) -> InferredGraph:
        scope = self.scopes[-1]
        self.inferences += len(graph.nodes) + 5  # a body itself costs as much as some nodes
        body = _infer_graph(graph, inputs, self, outer=scope.values, certain=certain and scope.certain)
        scope.bodies[(node.name, attribute)] = body
        return body

    def keep_bodies(self, node: Node, attribute: str, groups: Sequence[tuple[int, InferredGraph]]) -> None:
        scope = self.scopes[-1]
        keys = [attribute if index == 0 else f"{attribute}#{index}" for index in range(len(groups))]
        scope.bodies.update(((node.name, key), body) for key, (_, body) in zip(keys, groups, strict=True))
        if len(groups) > 1:
            scope.repeats[node.name] = tuple((key, count) for key, (count, _) in zip(keys, groups, strict=True))

    def faults(self) -> int:
        return self.unsettled

    def leave_out(self, node: Node, attribute: str, reason: str, faults: int = 0) -> None:
        self.scopes[-1].bodies.pop((node.name, attribute), None)
        self.scopes[-1].idle[(node.name, attribute)] = reason
        self.unsettled -= faults

    def keep_trip_count(self, node: Node, trip_count: TripCount) -> None:
        self.scopes[-1].trip_counts[node.name] = trip_count


@dataclass(slots=True, kw_only=True)
class _Scope:
    """A graph while it is walked; ``producers`` is filled by the first rule that looks back."""

    graph: Graph
    values: MutableMapping[str, Value]
    own: Mapping[str, Value]
    certain: bool
    bodies: dict[tuple[str, str], InferredGraph] = field(default_factory=dict)
    trip_counts: dict[str, TripCount] = field(default_factory=dict)
    repeats: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    idle: dict[tuple[str, str], str] = field(default_factory=dict)
    producers: dict[str, Node] = field(default_factory=dict)
    ends: dict[str, Ends] = field(default_factory=dict)

    def enters(self, name: str) -> bool:
        return name in self.graph.initializers or any(declared.name == name for declared in self.graph.inputs)

    def producer(self, name: str) -> Node | None:
        if not self.producers:
            self.producers = {output: node for node in self.graph.nodes for output in node.outputs if output}
        return self.producers.get(name)


MOST_NODES_TO_A_DECISION = 64
"""Nodes between an input and what it decides that are followed: conditions are compared, not computed at length."""

MOST_DECIDING_ELEMENTS = 16
"""A value that a user can be expected to write down."""


def _deciding_input(name: str, scopes: Sequence[_Scope]) -> str | None:
    """The only input of the model on which a value depends, if it is a small tensor of integers or booleans."""
    inputs = {declared.name for declared in scopes[0].graph.inputs}
    reached: set[str] = set()
    waiting = [(len(scopes) - 1, name)]
    for _ in range(MOST_NODES_TO_A_DECISION):
        if not waiting:
            break
        depth, current = waiting.pop()
        while depth > 0 and scopes[depth].producer(current) is None:
            if any(declared.name == current for declared in scopes[depth].graph.inputs):
                return None  # carried from trip to trip
            depth -= 1
        value = scopes[depth].values.get(current)
        if value is None:
            return None
        if value.is_constant or (value.data is not None and value.data_low is None):
            continue
        producer = scopes[depth].producer(current)
        if producer is None:
            if current not in inputs:
                return None
            reached.add(current)
        elif producer.domain or (producer.domain, producer.op_type) in RANDOM or _has_body(producer):
            return None
        else:
            waiting += [(depth, other) for other in producer.inputs if other]
    if waiting or len(reached) != 1:
        return None
    found = reached.pop()
    value = scopes[0].values[found]
    is_small = value.shape is not None and value.element_count <= MOST_DECIDING_ELEMENTS
    is_discrete = value.dtype is not None and (value.dtype.is_integer or value.dtype is DataType.BOOL)
    return found if is_small and is_discrete else None


def _has_body(node: Node) -> bool:
    return any(isinstance(attribute, Graph) for attribute in node.attributes.values())


def infer(model: Model, bindings: Bindings | None = None) -> InferredGraph:
    """The dtype and shape of every value of a model, with all dimensions bound.

    Small integer, boolean and floating-point tensors are carried with their content, so that shapes computed in
    the graph (Shape, Gather, Concat, Range, ...) are exact. Where a shape depends on data, the result holds an
    upper bound, marked ``is_bound``, and the assumptions say how it was found; a ``--shape`` for that value makes it
    exact. Unknown operators don't stop the
    walk: what the file declares for their outputs (or a ``--shape`` for that value) stands in, and otherwise
    everything that needs them is unknown, each value naming the first node to blame.

    Raises ModelError (or BindingError, from the inputs) where the shapes contradict an operator, naming the node.
    """
    return bind_and_infer(model, bindings or Bindings())[1]


def bind_and_infer(model: Model, bindings: Bindings, memo: Memo | None = None) -> tuple[BoundInputs, InferredGraph]:
    """Bind the inputs and infer, as :func:`infer` does, and give both.

    Where the model leaves a length free and contradicts its default (a table of 77 positions against 128 tokens),
    the other defaults are tried in turn, also where only a body that may not run contradicts it: the default that
    the fewest nodes refuse is taken. Where none fits, the lengths of tables that the graph adds are tried (1,500
    positions of Whisper's encoder, 3,000 frames). What the user bound is never changed. The fault of the first default
    is raised if none fits, and stands in the assumptions if another does. ``memo``: of this model's graph, to be shared
    between inferences at several sizes.
    """
    memo = memo or Memo(graph=model.graph)
    first: ModelError | None = None
    best: tuple[int, BoundInputs, InferredGraph] | None = None
    by_table = False
    for lengths in DEFAULT_LENGTHS:
        bound = bind_inputs(model, bindings, lengths)
        try:
            swallowed, result = _infer_bound(model, bindings, bound, memo=memo)
        except ModelError as error:
            first = first or error
        else:
            if best is None or swallowed < best[0]:
                best = (swallowed, bound, result)
            if not swallowed:
                break
        if not bound.has_default_length:
            break
        if lengths is DEFAULT_LENGTHS[-1] and best is None:
            best = _at_a_table_s_length(model, bindings, memo)
            by_table = best is not None
    takes_zero = best is None and any(0 in (declared.shape or ()) for declared in model.graph.inputs)
    if takes_zero:
        bound = bind_inputs(model, bindings, replace(DEFAULT_LENGTHS[0], keeps_zero=True))
        with suppress(ModelError):
            swallowed, result = _infer_bound(model, bindings, bound, memo=memo)
            best = (swallowed, bound, result)
    if best is None:
        assert first is not None
        raise _beyond_positions(model, bindings, first)
    _, bound, result = best
    _check_not_empty(model, bindings, bound, result)
    _check_dims_are_taken(model, bindings, result)
    if first is not None:
        reason = f"{_DECLARED_ZERO if takes_zero else _BY_TABLE if by_table else _OTHER_DEFAULT}: {first}"
        result = replace(result, assumptions=(*result.assumptions, reason))
    return bound, result


def _beyond_positions(model: Model, bindings: Bindings, error: ModelError) -> ModelError | BindingError:
    """``error``, or what explains it: lengths that the user gave and that are beyond the model's positions."""
    table = most_positions(model.graph)
    if table is None:
        return error
    positions, name = table
    places = places_of(model.graph.inputs)
    for symbol, size in bindings.dims.items():
        if symbol in places and size > positions and role_of(symbol, places[symbol]) in ("past", "total", "sequence"):
            return BindingError(
                f"--dim {shown(symbol)}={size}: the model has {positions:,} positions ({shown(name)!r} masks no more), "
                f"past and new ones together; {error}"
            )
    return error


def _at_a_table_s_length(model: Model, bindings: Bindings, memo: Memo) -> tuple[int, BoundInputs, InferredGraph] | None:
    for length in lengths_of_tables(model.graph):
        with suppress(ModelError):
            bound = bind_inputs(model, bindings, replace(DEFAULT_LENGTHS[0], sequence=length))
            swallowed, result = _infer_bound(model, bindings, bound, memo=memo)
            if not swallowed:
                return swallowed, bound, result
    return None


def _check_not_empty(model: Model, bindings: Bindings, bound: BoundInputs, result: InferredGraph) -> None:
    """BindingError where inputs that the user made empty leave an output empty, too: then nothing is executed."""
    empty = [name for name, value in bound.values.items() if value.shape and 0 in value.shape]
    as_declared = {declared.name for declared in model.graph.inputs if 0 in (declared.shape or ())}
    empty = [name for name in empty if name not in bindings.values and name not in as_declared]
    if not empty:
        return
    for declared in model.graph.outputs:
        value = result.values.get(declared.name)
        if value is not None and value.shape and 0 in value.shape and not value.is_bound:
            raise BindingError(
                f"with '{shown(empty[0])}' empty, the output '{shown(declared.name)}' {list(value.shape)} has no "
                "elements; give the sizes of a run that computes something"
            )


def _check_dims_are_taken(model: Model, bindings: Bindings, result: InferredGraph) -> None:
    """BindingError where the user sizes a symbol that no input has, and everything that has it is of another size."""
    places = places_of(model.graph.inputs)
    unknown = set(symbols_of_unknown(model.graph)) if bindings.dims.keys() - places else set()
    asked = {name: size for name, size in bindings.dims.items() if name not in places and name not in unknown}
    computed = _computed_sizes(model.graph, asked, result.values)
    bounds = _computed_sizes(model.graph, asked.keys() - computed, result.values, bounds=True)
    for symbol, sizes in (computed | bounds).items():
        if asked[symbol] not in sizes:
            size, name = next(iter(sizes.items()))
            told = (
                f"the data decide it, {size} at most in {shown(name)!r}; {option('--shape', name, '…')} sizes that"
                if symbol in bounds
                else f"the graph makes it {size} in {shown(name)!r}; bind what that is made of, "
                f"{listed('symbols', symbol, places)}"
            )
            raise BindingError(f"--dim {shown(symbol)}={asked[symbol]}: no input has this symbol, and {told}")


def at_expected_sizes(model: Model, bindings: Bindings, bound: BoundInputs, inferred: InferredGraph) -> InferredGraph:
    """``inferred`` for counting costs: sizes that depend on data are those expected, where that is known, not bounds.

    So the experts of a mixture share its tokens, which their bounds would count for each of them, and what nothing in
    the graph limits is as long as the longest dimension of an input. One more walk; a graph without such sizes comes
    back as it is. What is expected stands in the assumptions, in place of the bounds.
    """
    if not inferred.expected:
        return inferred
    try:
        _, result = _infer_bound(model, bindings, bound, at_expected=True)
    except ModelError:
        return inferred  # sizes that are related in a way that isn't understood: the bounds hold
    kept = [text for text in inferred.assumptions if text.startswith((_OTHER_DEFAULT, _DECLARED_ZERO, _BY_TABLE))]
    shared = {name: shape for name, shape in result.expected.items() if name not in result.likely}
    if not shared:
        return replace(result, assumptions=(*result.assumptions, *kept))
    name, shape = next(iter(shared.items()))
    most = inferred.values[name].shape if name in inferred.values else None
    kind = "columns" if len(shape) > 1 else "elements"
    reason = (
        f"the cost takes tokens to be spread evenly over experts, at {len(shared)} places: '{name}' has "
        f"{shape[-1]} {kind}" + (f", not the {most[-1]} that it can have" if most else "") + "; "
        f"{option('--shape', name, 'x'.join(map(str, shape)))} with another size changes it"
    )
    return replace(result, assumptions=(*result.assumptions, *kept, reason))


def infer_bound(model: Model, bindings: Bindings, bound: BoundInputs) -> InferredGraph:
    """As :func:`infer`, where the inputs are bound already."""
    return _infer_bound(model, bindings, bound)[1]


def _infer_bound(
    model: Model, bindings: Bindings, bound: BoundInputs, *, at_expected: bool = False, memo: Memo | None = None
) -> tuple[int, InferredGraph]:
    """The graph, and how many nodes of bodies that may not run refused their inputs."""
    memo = memo or Memo(graph=model.graph)
    assert memo.graph is model.graph, "a memo is that of one model"
    walk = _Walk(bindings=bindings, symbols=dict(bound.symbols), memo=memo, at_expected=at_expected)
    try:
        with np.errstate(all="ignore"):
            result = _infer_graph(model.graph, bound.values, walk, outer=None, certain=True)
    except ModelError as error:
        disputed = next((notice for notice in bound.warnings if notice.code == SYMBOL_CONTRADICTION), None)
        if disputed is None:
            raise
        # the likely cause: inputs that were meant to agree
        raise BindingError(f"{disputed.message}; but then {error}") from error
    warnings = [*bound.warnings, *walk.warnings, *_stale_notices(walk.stale), *_ignored_notices(walk.ignored)]
    warnings += _contradicted_symbols(model.graph, bound, result.values)
    if memo.too_new is None:
        memo.too_new = tuple(_too_new_notices(model.graph))
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


def declared_value(declared: Declared, symbols: Mapping[str, int], *, cause: str | None) -> Value:
    """What the file declares, with symbols replaced by their sizes; shape None if a dimension is left open."""
    shape: list[int] | None = None
    if declared.shape is not None:
        shape = []
        for dim in declared.shape:
            size = symbols.get(dim) if isinstance(dim, str) else dim
            if size is None or size < 0:
                shape = None
                break
            shape.append(size)
    return Value(
        dtype=declared.dtype,
        shape=None if shape is None else tuple(shape),
        kind=declared.kind,
        unknown_because=cause if shape is None else None,
    )


def _infer_graph(
    graph: Graph,
    inputs: Mapping[str, Value],
    walk: _Walk,
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
    scope = _Scope(graph=graph, values=values, own=own, certain=certain)
    walk.scopes.append(scope)
    if len(walk.scopes) > MAX_DEPTH:
        raise ModelError(f"bodies of control-flow nodes are nested more than {MAX_DEPTH} deep, in '{graph.name}'")
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
                if value.is_bound and name in walk.bindings.shapes:
                    own[name] = _as_told(name, value, walk.bindings.shapes[name])
                elif outer is None and name in walk.bindings.shapes:
                    own[name] = value
                    _check_told(name, value, walk.bindings.shapes[name])
                else:
                    own[name] = value
    finally:
        walk.scopes.pop()
    if memo is not None and not memo.others:
        memo.settle(own)
    _note_stale(graph, own, walk)
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
    walk: _Walk,
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
        if unknown.cause is None and rule is not None:
            limited = _infer_possible_sizes(node, rule, inputs, walk)
            if limited is not None:
                return limited
            _size_giver(node, inputs, walk)  # noted, for the reason why nothing is known of it
        if unknown.cause is None and len(walk.scopes) == 1 and first_version(node.domain, node.op_type) is None:
            _default_declared(node, graph, walk)
        stand_ins = _stand_ins(node, graph, walk, inputs, cause=unknown.cause or node.name)
        if unknown.cause is None and first_version(node.domain, node.op_type) is None:
            _say_what_gives(node, stand_ins, walk)
        return stand_ins if unknown.cause or rule is None else _declared_bounds(node, stand_ins, walk)
    except ModelError:
        if certain:
            raise
        walk.swallowed += 1
        walk.unsettled += 1
        return _stand_ins(node, graph, walk, inputs, cause=node.name)
    except FAULTS as fault:
        if certain:
            context = NodeContext(node, inputs, inputs, walk, constant=False)
            shapes = context.shown()
            raise context.error(f"does not accept its inputs{' ' if shapes else ''}{shapes} ({fault})") from fault
        walk.swallowed += 1
        walk.unsettled += 1
        return _stand_ins(node, graph, walk, inputs, cause=node.name)
    if len(results) == len(node.outputs):
        lacks_shape = False
        for value in results:
            if value.shape is None and value.kind == "tensor":
                lacks_shape = True
        if lacks_shape:
            stand_ins = _stand_ins(node, graph, walk, inputs, cause=node.name)
            return [
                stand_in if value.shape is None and value.kind == "tensor" and stand_in.shape is not None else value
                for value, stand_in in zip(results, stand_ins, strict=True)
            ]
    elif len(results) > len(node.outputs):
        results = results[: len(node.outputs)]
    else:
        return [*results, *_stand_ins(node, graph, walk, inputs, cause=node.name)[len(results) :]]
    if key is None or walk.consulted or walk.guessed or bounded or any(unknown_attributes(node)):
        return results  # it depends on more than the key says, or something is to be noted of each node
    return walk.memo.keep(key, inputs, results)


def _check_form(node: Node, inputs: Sequence[Value | None], walk: _Walk) -> None:
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
        reason = fault_of_form(node) or unmet(node, inputs) or (None if walk.guessed else wrong_elements(node, inputs))
        if reason is not None:
            walk.formed.discard(node.name)
            raise NodeContext(node, inputs, inputs, walk, constant=False).error(reason)
        known = walk.sound[facts] = tuple(unknown_attributes(node))
    for name in known:
        walk.ignored.setdefault((node.op_type, name), []).append(node.name)


def _infer_interval(
    node: Node, rule: Rule, inputs: list[Value | None], walk: _Walk, *, constant: bool
) -> Sequence[Value]:
    """Run the rule at both ends of its inputs' intervals and join what it says."""
    lows = [None if value is None else low_end(value) for value in inputs]
    highs = [None if value is None else _high_end(value) for value in inputs]
    results = rule(NodeContext(node, highs, lows, walk, constant=constant, bounded=True))
    least: Sequence[Value | None]
    try:
        least = rule(NodeContext(node, lows, highs, walk, constant=constant, bounded=True, low_run=True))
    except (UnknownShape, ModelError, *FAULTS):
        # sizes at the low end may be impossible together (0 rows against 5); then nothing is known of the least
        least = [None] * len(results)
    return [join_ends(high, low) for high, low in zip(results, least, strict=True)]


def _infer_possible_sizes(
    node: Node, rule: Rule, inputs: Sequence[Value | None], walk: _Walk
) -> Sequence[Value] | None:
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
        results = _infer_interval(node, rule, sizes.inputs, walk, constant=False)
        likely = None if sizes.likely is None else _infer_interval(node, rule, sizes.likely, walk, constant=False)[0]
    except (UnknownShape, ModelError, *FAULTS):
        return None  # the ends don't go together: nothing is said
    value = results[0]
    if value.shape is None or name in walk.bindings.shapes:
        return results
    decider = _size_giver(node, inputs, walk)
    why = "its size depends on data" if decider is None else f"its size is read from the input '{shown(decider)}'"
    if likely is not None and likely.shape is not None and walk.expects(name, likely.shape):
        walk.assume(
            f"{node.op_type} '{shown(name)}': {why} and nothing in the graph keeps it small; the "
            f"cost is that of {list(likely.shape)}, as long as the longest dimension of an input; "
            + _what_changes(name, likely.shape, decider)
        )
        walk.likely.add(name)
        return (likely,)
    if value.is_bound:
        what = "nothing in the graph keeps it small; " if likely is not None else ""
        how = f"taken to be at most {list(value.shape)}" if likely is not None else f"at most {list(value.shape)}"
        walk.assume(f"{node.op_type} '{shown(name)}': {why}, {what}{how}; {_what_changes(name, value.shape, decider)}")
        if likely is not None:
            walk.likely.add(name)
    return results


def _size_giver(node: Node, inputs: Sequence[Value | None], walk: _Walk) -> str | None:
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


def _inputs_of_model(walk: _Walk) -> list[Value]:
    outermost = walk.scopes[0]
    return [outermost.values[declared.name] for declared in outermost.graph.inputs if declared.name in outermost.values]


def low_end(value: Value) -> Value:
    """The value with every size that depends on data at its least."""
    if not value.is_bound and value.data_low is None:
        return value
    shape = value.shape
    if value.is_bound and shape is not None:
        shape = value.shape_low if value.shape_low is not None else (0,) * len(shape)
    elements = None if value.elements is None else tuple(low_end(element) for element in value.elements)
    data = value.data if value.data_low is None else value.data_low
    return replace(value, shape=shape, data=data, data_low=None, is_bound=False, shape_low=None, elements=elements)


def _high_end(value: Value) -> Value:
    """The value with every size that depends on data at its greatest."""
    if not value.is_bound and value.data_low is None:
        return value
    return replace(value, is_bound=False, shape_low=None, data_low=None)


def join_ends(high: Value, low: Value | None) -> Value:
    """One value from the results at both ends."""
    shape = high.shape
    if shape is None:
        return high
    high_floor = (high.shape_low or (0,) * len(shape)) if high.is_bound else shape
    if low is None or low.shape is None or len(low.shape) != len(shape):
        floor = (0,) * len(shape)
        data: Array | None = None
        data_low: Array | None = None
    else:
        low_floor = (low.shape_low or (0,) * len(shape)) if low.is_bound else low.shape
        floor = tuple(min(pair) for pair in zip(high_floor, low_floor, strict=True))
        shape = tuple(max(pair) for pair in zip(shape, low.shape, strict=True))
        data, data_low = _join_data(high.data, low.data)
    is_bound = floor != shape
    if is_bound:
        data = data_low = None
    elements = high.elements
    if elements is not None and low is not None and low.elements is not None:
        elements = (
            tuple(join_ends(a, b) for a, b in zip(elements, low.elements, strict=True))
            if len(elements) == len(low.elements)
            else None
        )
    return replace(
        high,
        shape=shape,
        is_bound=is_bound,
        shape_low=floor if is_bound else None,
        data=data,
        data_low=data_low,
        elements=elements,
    )


def _join_data(high: Array | None, low: Array | None) -> tuple[Array | None, Array | None]:
    if high is None or low is None or high.shape != low.shape:
        return None, None
    if np.array_equal(high, low):
        return high, None
    return np.maximum(high, low), np.minimum(high, low)


def _stand_ins(node: Node, graph: Graph, walk: _Walk, inputs: Sequence[Value | None], *, cause: str) -> list[Value]:
    """What stands in for the outputs of a node that could not be inferred: the user's word, then the file's."""
    result = []
    for name in node.outputs:
        given = walk.bindings.shapes.get(name) if name else None
        declared = graph.declared.get(name) if name else None
        if declared is None and name:
            declared = next((output for output in graph.outputs if output.name == name), None)
        value = (
            Value(dtype=None, shape=None, unknown_because=cause)
            if declared is None
            else declared_value(declared, walk.symbols, cause=cause)
        )
        if given is not None:
            value = replace(value, shape=tuple(given), unknown_because=None)
        if value.dtype is None and (node.domain, node.op_type) in _TYPED:
            value = replace(value, dtype=_stated_dtype(node, inputs))
        if value.dtype is None:
            value = replace(value, dtype=_likely_dtype(inputs))
            walk.guessed = True
        result.append(value)
    return result


def _default_declared(node: Node, graph: Graph, walk: _Walk) -> None:
    """Sizes for the symbols that stand in the declared outputs of an unknown operator and nowhere in the inputs."""
    for name in node.outputs:
        declared = graph.declared.get(name) or next((item for item in graph.outputs if item.name == name), None)
        if declared is None or name in walk.bindings.shapes:
            continue
        for axis, dim in enumerate(declared.shape or ()):
            if isinstance(dim, str) and dim not in walk.symbols:
                size = walk.symbols[dim] = default_size(dim, declared, axis)
                walk.assume(
                    f"{shown(dim)} = {size} (default, only what {node.op_type} '{shown(node.name)}' gives has it; "
                    f"{option('--dim', dim, 'N')} changes it)"
                )


def _say_what_gives(node: Node, stand_ins: Sequence[Value], walk: _Walk) -> None:
    """How the shapes can be given that an unknown operator leaves open."""
    open_names = [name for name, value in zip(node.outputs, stand_ins, strict=True) if name and value.shape is None]
    if open_names:
        walk.assume(
            f"{node.op_type} '{shown(node.name)}': what shape an unknown operator gives is not known; "
            f"{option('--shape', open_names[0], 'AxB')} gives it, so that what follows is counted"
        )


def _as_told(name: str, value: Value, shape: tuple[int, ...]) -> Value:
    """A size that depends on data, which the user knows; it must be possible."""
    assert value.shape is not None
    low = value.shape_low or (0,) * len(value.shape)
    if len(shape) != len(value.shape) or any(
        not least <= size <= most for least, size, most in zip(low, shape, value.shape, strict=True)
    ):
        raise BindingError(
            f"--shape {shown(name)}={'x'.join(map(str, shape))}: its shape depends on data, but it is at least "
            f"{list(low)} and at most {list(value.shape)}"
        )
    return replace(value, shape=shape, is_bound=False, shape_low=None)


def _check_told(name: str, value: Value, shape: tuple[int, ...]) -> None:
    """BindingError where the user gives a value another shape than it has."""
    if value.kind == "tensor" and value.shape is not None and value.shape != tuple(shape):
        raise BindingError(
            f"--shape {shown(name)}={'x'.join(map(str, shape)) or 'scalar'}: its shape follows from the inputs, it is "
            f"{list(value.shape)}; bind the inputs or symbols that it is made of"
        )


def _declared_bounds(node: Node, stand_ins: Sequence[Value], walk: _Walk) -> Sequence[Value]:
    """The operator's shape depends on data that isn't known; what the file declares is its word, and no more."""
    result = []
    for name, value in zip(node.outputs, stand_ins, strict=True):
        if name and value.shape and name not in walk.bindings.shapes:
            walk.assume(
                f"{node.op_type} '{name}': its shape depends on data; {list(value.shape)} is what the file declares"
            )
            value = replace(value, is_bound=True, shape_low=(0,) * len(value.shape))
        result.append(value)
    return result


_TYPED = frozenset({("", "ConstantOfShape"), ("", "Range"), ("com.microsoft", "Range")})
"""Operators whose type does not follow from that of the sizes that they read as others' does."""


def _stated_dtype(node: Node, inputs: Sequence[Value | None]) -> DataType | None:
    if node.op_type == "Range":
        return next((value.dtype for value in inputs if value is not None), None)
    content = node.attributes.get("value")
    return content.dtype if isinstance(content, Initializer) else DataType.FLOAT32


def _likely_dtype(inputs: Sequence[Value | None]) -> DataType | None:
    """An unknown operator most often keeps the type of its first floating-point input."""
    known = [value.dtype for value in inputs if value is not None and value.dtype is not None]
    return next((dtype for dtype in known if dtype.is_float), None)


def _note_stale(graph: Graph, own: Mapping[str, Value], walk: _Walk) -> None:
    # inputs are bound as declared, or refused; a declared 0 is free
    known = walk.stale.keys() | {declared.name for declared in graph.inputs}
    zero_is_free = any(_is_bound_otherwise(declared, own) for declared in graph.inputs)
    for declared in (*graph.declared.values(), *graph.outputs):
        value = own.get(declared.name)
        if declared.name in known or value is None or value.shape is None or declared.shape is None:
            continue
        if value.kind != "tensor" or value.is_bound:
            continue
        dims = tuple(None if dim == 0 and zero_is_free else dim for dim in declared.shape)
        if _contradicts(dims, value.shape):
            shown = ", ".join("?" if dim is None else str(dim) for dim in declared.shape)
            walk.stale[declared.name] = (
                f"'{declared.name}' is declared as [{shown}] but its shape is {list(value.shape)}"
            )


def _is_bound_otherwise(declared: Declared, own: Mapping[str, Value]) -> bool:
    """Whether an input declares a 0 that was read as free."""
    value = own.get(declared.name)
    shape = None if value is None else value.shape
    if declared.shape is None or shape is None or len(shape) != len(declared.shape):
        return False
    return any(dim == 0 != size for dim, size in zip(declared.shape, shape, strict=True))


def _contradicts(declared: tuple[int | str | None, ...], shape: tuple[int, ...]) -> bool:
    if declared == shape:
        return False
    if len(declared) != len(shape):
        return True
    return any(isinstance(dim, int) and dim >= 0 and dim != size for dim, size in zip(declared, shape, strict=True))


def _stale_notices(stale: Mapping[str, str]) -> list[Notice]:
    if not stale:
        return []
    first, *others = stale.values()
    more = f", and {len(others):,} more are" if others else ""
    message = f"{first}{more}: the file's value_info is stale, the inferred shapes are used"
    return [Notice(code="stale-value-info", message=message, details=tuple(others))]


def _contradicted_symbols(graph: Graph, bound: BoundInputs, values: Mapping[str, Value]) -> list[Notice]:
    """One notice for each symbol whose size the user gave and that the graph computes another size of.

    No operator need refuse that: the length of a mask and that of past and new keys meet in none if a mask is only
    summed over, or broadcasts.
    """
    given = {symbol: size for symbol, size in bound.symbols.items() if symbol not in bound.defaults}
    places = places_of(graph.inputs)
    notices = []
    for symbol, computed in _computed_sizes(graph, given, values).items():
        sizes = {size: name for size, name in computed.items() if size != given[symbol]}
        if not sizes:
            continue
        where = "in the inputs" if symbol in places else "as it was given"
        message = (
            f"{shown(symbol)!r} is {given[symbol]} {where}, but the graph makes it "
            + " and ".join(f"{size} in {shown(name)!r}" for size, name in sizes.items())
            + ": inputs that contradict each other, or a wrong name in the file; the computed sizes are used"
            + (f" ({option('--dim', symbol, str(next(iter(sizes))))} would agree)" if len(sizes) == 1 else "")
        )
        notices.append(Notice(code="dim-contradiction", message=message))
    return notices


def _computed_sizes(
    graph: Graph, symbols: Container[str], values: Mapping[str, Value], *, bounds: bool = False
) -> dict[str, dict[int, str]]:
    """Of those of ``symbols`` that the file writes at what nodes give: each size there, with the first that has it.

    ``bounds``: of values whose shape depends on data alone; else of the others.
    """
    passed_over = {declared.name for declared in graph.inputs}
    passed_over |= left_empty(graph, values)
    computed: dict[str, dict[int, str]] = {}
    for declared in (*graph.outputs, *graph.declared.values()):
        value = values.get(declared.name)
        if declared.name in passed_over or value is None or value.is_bound is not bounds or value.shape is None:
            continue
        if declared.shape is None or len(declared.shape) != len(value.shape):
            continue
        for symbol, size in zip(declared.shape, value.shape, strict=True):
            if isinstance(symbol, str) and symbol in symbols:
                computed.setdefault(symbol, {}).setdefault(size, declared.name)
    return computed


def _too_new_notices(graph: Graph) -> list[Notice]:
    """One for each operator that the opset which the model imports does not have yet."""
    users: dict[tuple[str, str, int], str] = {}
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in current.nodes:
            if node.version and node.domain != OPEN_DOMAIN:
                users.setdefault((node.domain, node.op_type, node.version), node.name)
            for item in node.attributes.values():
                pending += [body for body in (item if isinstance(item, tuple) else (item,)) if isinstance(body, Graph)]
    notices = []
    for (domain, op_type, version), name in users.items():
        first = first_version(domain, op_type)
        if first is not None and version < first:
            notices.append(
                Notice(
                    code="operator-newer-than-opset",
                    message=f"{op_type} came with opset {first}, the model imports {version} ('{shown(name)}' is the "
                    "first): runtimes refuse it",
                    node=name,
                )
            )
    return notices


def _ignored_notices(ignored: Mapping[tuple[str, str], Sequence[str]]) -> list[Notice]:
    """One for each attribute that its operator does not have: most often of another version of it, or misspelt."""
    notices = []
    for (op_type, attribute), nodes in ignored.items():
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        notices.append(
            Notice(
                code="unknown-attribute",
                message=f"{shown(op_type)} has no attribute '{shown(attribute)}' at the model's opset: ignored "
                f"('{shown(nodes[0])}'{more}); ONNX Runtime refuses such a model",
                node=nodes[0],
            )
        )
    return notices
