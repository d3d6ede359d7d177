"""The state of one inference: what the user bound, where the walk stands, and what has been noted so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import (
    Array,
    Graph,
    InferredGraph,
    Node,
    Notice,
    TripCount,
    Value,
)
from neusight_onnx.graph.shapes.counts import Counts
from neusight_onnx.graph.shapes.memo import Memo
from neusight_onnx.graph.shapes.ranges import Ends
from neusight_onnx.graph.shapes.registry import RANDOM

MAX_INFERENCES = 100_000
"""Nodes inferred in bodies, all trips together, beyond which loops are no longer followed trip by trip: 1 to 2 s."""


@dataclass(slots=True, kw_only=True)
class Walk:
    """The state of one inference: what the user bound, and what has been noted so far."""

    infer_graph: Callable[..., InferredGraph]
    """``engine.infer_graph``, for the bodies of control flow."""
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
    ignored: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    """(operator, attribute that it does not have) -> the nodes that have it."""
    opened: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """Unknown operator -> its nodes whose shape nothing tells, each with an output of that node."""
    scopes: list[Scope] = field(default_factory=list)
    at_expected: bool = False
    """Go on with expected sizes where they are known, not with bounds."""
    at_most_likely: bool = False
    """Take likely sizes as the most of what is possible: sizes that contradict each other go on as intervals do."""
    expected: dict[str, tuple[int, ...]] = field(default_factory=dict)
    likely: set[str] = field(default_factory=set)
    """Those of the expected sizes that nothing in the graph tells."""
    said: set[str] = field(default_factory=set)
    """Sources of counts (see ``counts``) whose assumption has been stated."""
    used: set[str] = field(default_factory=set)
    """Values of nodes whose content the user gave and that sizes were read from."""
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

    def counts(self, name: str) -> dict[str, Counts | None]:
        return next((scope.counts for scope in reversed(self.scopes) if name in scope.own), {})

    def readers(self, name: str) -> Sequence[Node]:
        for scope in reversed(self.scopes):
            if name in scope.own or scope.producer(name) is not None:
                return scope.readers_of(name)
        return ()

    def told(self, name: str) -> Array | None:
        array = self.bindings.values.get(name)
        if array is None or self.scopes[0].producer(name) is None:
            return None
        self.used.add(name)
        return array

    def told_shape(self, name: str) -> tuple[int, ...] | None:
        return self.scopes[-1].shapes.get(name)

    def expects(self, name: str, shape: tuple[int, ...]) -> bool:
        if name in self.bindings.shapes:
            return False
        self.expected[name] = shape
        return self.at_expected and not self.at_most_likely

    def guesses(self, name: str, shape: tuple[int, ...]) -> bool:
        self.likely.add(name)
        return self.expects(name, shape)

    def affords(self, inferences: int) -> bool:
        return self.inferences + inferences <= MAX_INFERENCES

    def deciding_input(self, node: Node, name: str) -> str | None:
        key = (node.name, name)
        if key not in self.deciders:
            self.deciders[key] = deciding_input(name, self.scopes)
        return self.deciders[key]

    def infer_body(
        self, node: Node, attribute: str, graph: Graph, inputs: Mapping[str, Value], *, certain: bool
    ) -> InferredGraph:
        scope = self.scopes[-1]
        self.inferences += len(graph.nodes) + 5  # a body itself costs as much as some nodes
        body = self.infer_graph(graph, inputs, self, outer=scope.values, certain=certain and scope.certain)
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
class Scope:
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
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """What the user said of sizes that depend on data, here and of the same mask."""
    ends: dict[str, Ends] = field(default_factory=dict)
    counts: dict[str, Counts | None] = field(default_factory=dict)
    readers: dict[str, list[Node]] = field(default_factory=dict)

    def enters(self, name: str) -> bool:
        return name in self.graph.initializers or any(declared.name == name for declared in self.graph.inputs)

    def producer(self, name: str) -> Node | None:
        if not self.producers:
            self.producers = {output: node for node in self.graph.nodes for output in node.outputs if output}
        return self.producers.get(name)

    def readers_of(self, name: str) -> Sequence[Node]:
        """The nodes of this graph, not of its bodies, that read the value."""
        if not self.readers:
            for node in self.graph.nodes:
                for source in node.inputs:
                    self.readers.setdefault(source, []).append(node)
        return self.readers.get(name, ())


def told_shapes(graph: Graph, given: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    """``given``, and as much for each other NonZero of a mask of which one was given: exporters write one for each
    tensor that the mask picks from, and all find the same elements. A TopK's values and places are as many, too."""
    if not given:
        return given
    pairs = [node.outputs for node in graph.nodes if node.op_type == "TopK" and not node.domain]
    alike = {other: given[name] for pair in pairs for name in pair if name in given for other in pair if other}
    given = {**alike, **given}
    non_zero = [node for node in graph.nodes if node.op_type == "NonZero" and not node.domain and node.inputs]
    masks = {node.inputs[0]: given[node.outputs[0]] for node in non_zero if node.outputs and node.outputs[0] in given}
    others = {output: masks[node.inputs[0]] for node in non_zero if node.inputs[0] in masks for output in node.outputs}
    return {**others, **given}


MOST_NODES_TO_A_DECISION = 64
"""Nodes between an input and what it decides that are followed: conditions are compared, not computed at length."""

MOST_DECIDING_ELEMENTS = 16
"""A value that a user can be expected to write down."""


def deciding_input(name: str, scopes: Sequence[Scope]) -> str | None:
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
