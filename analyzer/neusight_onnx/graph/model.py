"""The graph as the rest of the product sees it: no protobuf, no weights, every function inlined.

``read`` makes a :class:`Model`; ``shapes`` turns its graph into an :class:`InferredGraph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType

Array: TypeAlias = NDArray[np.generic]
Dim: TypeAlias = int | str | None
"""A declared dimension: its size, the name of a symbol, or None where nothing is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the file itself says of a value: graph inputs, outputs and value_info.

    ``kind`` is "tensor", "sparse_tensor", "sequence", "optional" or "map"; dtype and shape are those of the tensor (of
    the elements of a sequence). ``shape`` None: no shape is declared.
    """

    name: str
    dtype: DataType | None = None
    shape: tuple[Dim, ...] | None = None
    kind: str = "tensor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Initializer:
    """A constant that the file holds: a weight, or a small integer tensor that shapes depend on.

    ``data`` is kept only for small tensors; a weight's bytes are never read. ``external`` is the file's name
    (as written in the model) if the bytes lie outside the model file; ``missing`` if that file is not there.
    ``stored_at``: where in that file, or in the model's, the packed bytes of one begin whose data was not kept.
    """

    name: str
    dtype: DataType
    shape: tuple[int, ...]
    data: Array | None = None
    external: str | None = None
    missing: bool = False
    stored_at: int | None = None

    @property
    def element_count(self) -> int:
        return prod(self.shape)

    @property
    def byte_count(self) -> int:
        return self.dtype.bytes_of(self.element_count)


Attribute: TypeAlias = (
    "int | float | str | bytes | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]"
    " | Initializer | tuple[Initializer, ...] | Declared | tuple[Declared, ...] | Graph | tuple[Graph, ...] | None"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A node of the user's file (after inlining functions): what the report names."""

    name: str
    op_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operator.

    ``name`` is unique within the model (made from the operator and its place if the file has none or repeats
    one) and carries the trail of inlined functions (``Lin/MatMul``). ``domain`` is "" for ai.onnx.
    ``inputs`` and ``outputs`` name values, "" for an optional one that is absent. ``version`` is the imported
    opset of the domain. ``origins`` are the file's nodes that this one stands for: itself, unless a pattern
    was recognised and replaced by one operator.
    """

    name: str
    op_type: str
    domain: str = ""
    version: int = 0
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()

    @property
    def stands_for(self) -> tuple[Origin, ...]:
        """The file's nodes that this one stands for, itself where ``origins`` names none."""
        return self.origins or (Origin(name=self.name, op_type=self.op_type),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph or the body of a control-flow node; nodes are in topological order."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    initializers: Mapping[str, Initializer]
    declared: Mapping[str, Declared]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that the user should know; ``code`` is stable. ``details``: what the message only counts."""

    code: str
    message: str
    node: str | None = None
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model file, read. ``graph.inputs`` are the true inputs (initializers listed as inputs are left out)."""

    path: str
    sha256: str
    byte_count: int
    ir_version: int
    producer: str
    opsets: Mapping[str, int]
    graph: Graph
    warnings: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What is known of one value after inference, with every dimension bound.

    ``shape`` None: unknown (``unknown_because`` names the first cause, a node). ``is_bound``: the true shape
    depends on data, ``shape`` is an upper bound. ``data``: the value itself, if it is known and small.
    ``is_constant``: made from initializers and constants only, so computed once when the model is loaded.
    ``is_cast_weight``: such a constant in another type, which every run casts anew (PyTorch's autocast does).
    ``elements``: the members of a sequence.
    ``shape_low``: where ``is_bound``, the least that each dimension can be (equal where a dimension is exact).
    ``length_low``: where it is set, a sequence has at most ``elements``, and at least so many of them, the first ones.
    ``data_low``: where it is set, ``data`` is not the value itself but the most that each element can be, and
    this the least (a size that was read from a bound).
    ``span``: the least and the greatest of integers that are known, but too many for ``data`` (positions of a text).
    """

    dtype: DataType | None
    shape: tuple[int, ...] | None
    data: Array | None = None
    is_bound: bool = False
    is_constant: bool = False
    is_cast_weight: bool = False
    kind: str = "tensor"
    elements: tuple[Value, ...] | None = None
    unknown_because: str | None = None
    shape_low: tuple[int, ...] | None = None
    data_low: Array | None = None
    length_low: int | None = None
    span: tuple[int, int] | None = None

    @property
    def element_count(self) -> int:
        """Elements of the tensor; only to be asked where the shape is known."""
        assert self.shape is not None
        return prod(self.shape)


_MADE = "\0"
"""No name of a file holds it: ``decoder`` writes it as an escape."""


def made_name(name: str, *what: str) -> str:
    """A name that no node or value of any file has, for what is made beside the one called ``name``, by what it is."""
    return _MADE.join((name, *what))


IN_PLACE = "in place"
"""Attribute of a node that writes into its first operand; none of a file's operators has one with a space."""

COPIED_PLACES = "copied places"
"""Attribute of a Slice whose three places ONNX Runtime brings to the GPU and back: how many aren't there before."""


def name_in_trip(name: str, loop: str, trip: int) -> str:
    """A name of its own for a node or value of a loop's body in one of several kinds of trip."""
    return made_name(name, "", loop, str(trip))


def file_name(name: str) -> str:
    """The name in the file of a node or value, or of the one that it was made beside (:func:`made_name`)."""
    return name.partition(_MADE)[0]


def readable_name(name: str) -> str:
    """A name for a reader, with what was made beside it ("x/float16"); the kinds of a loop's trips go by one name."""
    return name.partition(2 * _MADE)[0].rstrip(_MADE).replace(_MADE, "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class TripCount:
    """How often the body of a Loop or Scan runs, and where that number comes from."""

    count: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredGraph:
    """A graph with the facts of all its values.

    ``values`` holds every value that nodes of this graph may name, values of outer graphs included.
    ``bodies`` maps (node name, attribute name) to the inferred body of a control-flow node;
    ``trip_counts`` maps the name of a Loop or Scan node to its trip count.
    ``expected``: sizes that values have on average where they depend on data in a way that is understood.
    ``likely``: those of them that nothing in the graph tells, only what such sizes are like.
    ``repeats``: where the trips of a loop differ in size, the attribute names under which ``bodies`` holds the bodies
    of its node (the first is the attribute's own) and how many trips each stands for; nodes and values of the others
    have names of their own, and the file's nodes as origins. ``idle``: why the body of a node and attribute never runs;
    it has no entry in ``bodies``. ``deciders``: of the whole graph, the input that alone decides which branch of an If
    is taken, or which size a node's result has, by the name of the node.
    """

    graph: Graph
    values: Mapping[str, Value]
    bodies: Mapping[tuple[str, str], InferredGraph] = field(default_factory=dict)
    trip_counts: Mapping[str, TripCount] = field(default_factory=dict)
    expected: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    likely: frozenset[str] = frozenset()
    repeats: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    idle: Mapping[tuple[str, str], str] = field(default_factory=dict)
    deciders: Mapping[str, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()


def kept_values(graph: InferredGraph) -> frozenset[str]:
    """Names that others than the graph's own nodes read: its outputs, and what bodies of control flow take from it."""
    found = {declared.name for declared in graph.graph.outputs}
    for body in graph.bodies.values():
        found |= kept_values(body)
        found.update(name for node in body.graph.nodes for name in node.inputs)
    return frozenset(found)
