"""What a rule sees of its node: inputs, attributes, and how to make results or say what is wrong.

Shapes that depend on data are intervals. A node with such an input is inferred twice: once with every input at
its greatest size, once at its least, and the two results are the ends of its outputs' intervals. So a rule is
written as if everything was exact, with two things to mind: where a result *falls* as an input grows (the
subtrahend, the start of a range), it asks for that input's other end (``opposite``); and a check that exact sizes
must pass is made through ``require``, which is silent while sizes are intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import BY_ONNX_CODE, DataType
from neusight_onnx.errors import ModelError, shown
from neusight_onnx.graph.model import Array, Attribute, Graph, InferredGraph, Initializer, Node, TripCount, Value

MAX_ELEMENTS = 1 << 60
"""No tensor has more elements: 2^60 of one byte are more than any machine holds, and int64 sizes must not overflow."""

MAX_DATA = 4096
"""Elements up to which the content of a tensor is carried: shape arithmetic is small, weights are not."""

_MAX_MESSAGE = 600
"""Characters: messages hold shapes and names, which a broken file can make very long."""

NUMPY: dict[DataType, np.dtype[np.generic]] = {
    DataType.FLOAT32: np.dtype(np.float32),
    DataType.FLOAT64: np.dtype(np.float64),
    DataType.FLOAT16: np.dtype(np.float16),
    DataType.INT8: np.dtype(np.int8),
    DataType.INT16: np.dtype(np.int16),
    DataType.INT32: np.dtype(np.int32),
    DataType.INT64: np.dtype(np.int64),
    DataType.UINT8: np.dtype(np.uint8),
    DataType.UINT16: np.dtype(np.uint16),
    DataType.UINT32: np.dtype(np.uint32),
    DataType.UINT64: np.dtype(np.uint64),
    DataType.BOOL: np.dtype(np.bool_),
}
"""Types whose content is evaluated; content of other types (strings, narrow floats) is not carried."""


Data: TypeAlias = NDArray[Any]
"""Content as rules compute with it; what its elements are stands in the value's dtype."""

NEGATIVE = "a dimension of its output would be negative"
"""What a node is refused for whose input is shorter than what it takes from it."""


class UnknownShape(Exception):  # noqa: N818  # not a fault, a rule's way to say that it can't tell
    """The outputs of a node can't be told. ``cause`` is the first node that is to blame, None: this one."""

    def __init__(self, cause: str | None = None) -> None:
        super().__init__(cause)
        self.cause = cause


class Session(Protocol):
    """What rules may ask of the walk that they are part of.

    ``consulted`` becomes True when one does: its answer then depends on more than its node and inputs.
    """

    consulted: bool

    def assume(self, text: str) -> None:
        """Add a sentence to the assumptions of the result."""

    def trip_count(self, node: str) -> int | None:
        """What the user said about how often a Loop or Scan runs."""

    def symbol(self, name: str) -> int | None:
        """The size that a symbolic dimension is bound to."""

    def producer(self, name: str) -> Node | None:
        """The node of this graph (not of outer ones) that makes a value."""

    def maker(self, name: str) -> Node | None:
        """The node that makes a value, of this graph or of an outer one; None for what enters a graph."""

    def value(self, name: str) -> Value | None:
        """What is known of a value that has been inferred already."""

    def found(self, name: str) -> dict[str, Any]:
        """Where to keep what is found out about the content of a value, as long as its graph is walked."""

    def counts(self, name: str) -> dict[str, Any]:
        """Where to keep what counts a value is likely to hold, as long as its graph is walked."""

    def readers(self, name: str) -> Sequence[Node]:
        """The nodes that read a value, of the graph that makes it."""

    def told(self, name: str) -> Array | None:
        """The content that the user gave for what a node makes."""

    def told_shape(self, name: str) -> tuple[int, ...] | None:
        """What the user said of the size of a value that depends on data."""

    def expects(self, name: str, shape: tuple[int, ...]) -> bool:
        """Note the size that a value has on average where it depends on data; True if this walk is to go on with it."""

    def guesses(self, name: str, shape: tuple[int, ...]) -> bool:
        """As ``expects``, where nothing but likeness tells the size."""

    def affords(self, inferences: int) -> bool:
        """Whether so many more inferences of nodes are within the budget that keeps loops within loops finite."""

    def deciding_input(self, node: Node, name: str) -> str | None:
        """The input of the model whose value alone decides that of ``name``, if it is a small tensor that can be given;
        noted as what decides ``node``."""

    def infer_body(
        self, node: Node, attribute: str, graph: Graph, inputs: Mapping[str, Value], *, certain: bool
    ) -> InferredGraph:
        """Infer the body of a control-flow node and record it. ``certain``: it is known to run, so faults count."""

    def keep_bodies(self, node: Node, attribute: str, groups: Sequence[tuple[int, InferredGraph]]) -> None:
        """Record bodies other than the one that was inferred last, each with the number of trips that it stands for."""

    def faults(self) -> int:
        """How many nodes of bodies that may not run have refused their inputs so far."""

    def leave_out(self, node: Node, attribute: str, reason: str, faults: int = 0) -> None:
        """Record that a body never runs, and why, which explains so many of those refusals."""

    def keep_trip_count(self, node: Node, trip_count: TripCount) -> None:
        """Record how often a Loop or Scan runs."""


def broadcast_shapes(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape to which two shapes broadcast by numpy's rule; None if they don't."""
    if first == second or not second:
        return first
    if not first:
        return second
    if len(first) < len(second):
        first, second = second, first
    lead = len(first) - len(second)
    result = list(first)
    for index, size in enumerate(second, lead):
        other = first[index]
        if other != size:
            if other == 1:
                result[index] = size
            elif size != 1:
                return None
    return tuple(result)


def initializer_value(initializer: Initializer) -> Value:
    """An initializer as a value: its content is carried if it was read, is small, and its type is evaluated."""
    data = initializer.data
    expected = NUMPY.get(initializer.dtype)
    if data is not None and (expected is None or data.size > MAX_DATA):
        data = None
    elif data is not None and (data.dtype != expected or data.shape != initializer.shape):
        data = data.astype(expected).reshape(initializer.shape)
    return Value(dtype=initializer.dtype, shape=initializer.shape, data=data, is_constant=True)


class NodeContext:
    """One node with what is known of its inputs; short-lived, made for one call of its rule."""

    __slots__ = ("bounded", "constant", "inputs", "low_run", "node", "opposites", "silent_session")

    def __init__(
        self,
        node: Node,
        inputs: Sequence[Value | None],
        opposites: Sequence[Value | None],
        session: Session,
        *,
        constant: bool,
        bounded: bool = False,
        low_run: bool = False,
    ) -> None:
        self.node = node
        self.inputs = inputs
        self.opposites = opposites
        self.silent_session = session
        self.constant = constant
        self.bounded = bounded
        self.low_run = low_run

    @property
    def session(self) -> Session:
        """The walk; asking for it is noted."""
        self.silent_session.consulted = True
        return self.silent_session

    # Inputs

    def has(self, index: int) -> bool:
        """Whether the optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        """The input; ModelError if the node lacks it."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise self.error(f"input {index} is missing")
        return value

    def shape(self, index: int) -> tuple[int, ...]:
        """The input's shape; UnknownShape if it isn't known."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise self.error(f"input {index} is missing")
        if value.shape is None:
            raise UnknownShape(value.unknown_because)
        return value.shape

    def rank(self, index: int) -> int:
        return len(self.shape(index))

    def dtype(self, index: int) -> DataType | None:
        return self.value(index).dtype

    def data(self, index: int) -> Data | None:
        """The content of the input at this run's end of its interval; None if not known (or not given)."""
        value = self.inputs[index] if index < len(self.inputs) else None
        return None if value is None else value.data

    def opposite(self, index: int) -> Data | None:
        """The content of the input at the other end of its interval: where the result falls as it grows."""
        value = self.opposites[index] if index < len(self.opposites) else None
        return None if value is None else value.data

    def known(self, index: int) -> Data:
        """The content of the input; UnknownShape if it isn't known."""
        value = self.value(index)
        if value.data is None:
            raise UnknownShape(value.unknown_because)
        return value.data

    def integers(self, index: int) -> list[int]:
        """The content of the input as integers, flattened; UnknownShape if it isn't known."""
        data = self.known(index)
        items: list[int] = data.ravel().tolist()
        return items if data.dtype.kind in "iu" else [int(item) for item in items]

    def all_data(self) -> list[Data] | None:
        """The content of every input; None unless all are known."""
        result = []
        for value in self.inputs:
            if value is None or value.data is None:
                return None
            result.append(value.data)
        return result

    def exact_dims(self, index: int) -> tuple[bool, ...]:
        """For each dimension of the input whether both ends of its interval agree."""
        shape = self.shape(index)
        other = self.opposites[index]
        if other is None or other.shape is None or len(other.shape) != len(shape):
            return (not self.bounded,) * len(shape)
        return tuple(a == b for a, b in zip(shape, other.shape, strict=True))

    # Attributes

    def attribute(self, name: str) -> Attribute:
        return self.node.attributes.get(name)

    def integer(self, name: str, default: int) -> int:
        value = self.node.attributes.get(name)
        if value is None:
            return default
        if isinstance(value, int):
            return value
        raise self.error(f"attribute {name} is no integer")

    def number(self, name: str, default: float) -> float:
        value = self.node.attributes.get(name)
        if value is None:
            return default
        if isinstance(value, (int, float)):
            return value
        raise self.error(f"attribute {name} is no number")

    def text(self, name: str, default: str) -> str:
        value = self.node.attributes.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        raise self.error(f"attribute {name} is no string")

    def integer_list(self, name: str) -> tuple[int, ...] | None:
        value = self.node.attributes.get(name)
        if value is None:
            return None
        if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
            return value  # type: ignore[return-value]  # checked in the line above
        raise self.error(f"attribute {name} is no list of integers")

    def number_list(self, name: str) -> tuple[float, ...] | None:
        value = self.node.attributes.get(name)
        if value is None:
            return None
        if isinstance(value, tuple) and all(isinstance(item, (int, float)) for item in value):
            return value  # type: ignore[return-value]  # checked in the line above
        raise self.error(f"attribute {name} is no list of numbers")

    def list_length(self, name: str) -> int | None:
        """How many items a list attribute (or a tensor attribute) has; None if it isn't given."""
        value = self.node.attributes.get(name)
        if isinstance(value, tuple):
            return len(value)
        if isinstance(value, Initializer):
            return value.element_count
        return None

    def tensor_attribute(self, name: str) -> Initializer | None:
        value = self.node.attributes.get(name)
        if value is None or isinstance(value, Initializer):
            return value
        raise self.error(f"attribute {name} is no tensor")

    def graph_attribute(self, name: str) -> Graph:
        value = self.node.attributes.get(name)
        if isinstance(value, Graph):
            return value
        raise self.error(f"attribute {name} is no graph")

    def type_attribute(self, name: str, default: DataType | None) -> DataType | None:
        """An attribute that holds an ONNX element type's code."""
        value = self.node.attributes.get(name)
        if value is None:
            return default
        dtype = BY_ONNX_CODE.get(value) if isinstance(value, int) else None
        if dtype is not None:
            return dtype
        raise self.error(f"attribute {name} names no element type: {value!r}")

    def axis(self, axis: int, rank: int) -> int:
        """``axis`` counted from the front; ModelError if the rank doesn't have it."""
        if not -rank <= axis < rank:
            raise self.error(f"axis {axis} is outside the rank {rank} of its input")
        return axis + rank if axis < 0 else axis

    # Results

    def of_same_elements(self, made: Value) -> Value:
        """``made``, which has each element of the first input at least once, with the least and the greatest of them
        where they are integers that are known, but too many for ``data``."""
        data = self.data(0)
        if made.data is not None or not made.element_count:
            return made
        span = self.value(0).span
        if data is not None and data.size and data.dtype.kind in "iu" and not self.bounded:
            span = (int(data.min()), int(data.max()))
        return made if span is None else replace(made, span=span)

    def tensor(self, dtype: DataType | None, shape: Sequence[int], data: Array | None = None) -> Value:
        """A tensor of exactly this shape, with its content if that is known and small."""
        dims = tuple(shape)
        count = prod(dims)
        if dims and (count < 0 or min(dims) < 0):
            if self.low_run:  # the least size of an interval: it can't be less than nothing
                dims = tuple(max(dim, 0) for dim in dims)
            else:
                raise self.error(f"{NEGATIVE}: {list(dims)}")
        if count > MAX_ELEMENTS:
            if self.bounded:  # a bound so high says nothing
                raise UnknownShape(None)
            raise self.error(f"its output {list(dims)} would have more than 2^60 elements")
        return Value(dtype=dtype, shape=dims, data=data, is_constant=self.constant)

    def bound(self, dtype: DataType | None, high: Sequence[int], low: Sequence[int], how: str) -> Value:
        """A tensor whose shape depends on data: at most ``high``, at least ``low``; ``how`` goes to the assumptions.

        ``how`` reads on after the operator and the output's name: "at most 64 rows, its input has 64 elements".
        """
        value = self.tensor(dtype, high)
        floor = tuple(low)
        if value.shape == floor:
            return value
        name = next((output for output in self.node.outputs if output), self.node.name)
        if not self.low_run and self.session.told_shape(name) is None:
            self.session.assume(f"{self.node.op_type} '{name}': {how}")
        return Value(dtype=dtype, shape=value.shape, is_bound=True, shape_low=floor, is_constant=self.constant)

    def same(self, index: int = 0, dtype: DataType | None = None) -> Value:
        """A tensor of the shape of an input, and of its dtype unless another is given."""
        value = self.value(index)
        if value.shape is None:
            raise UnknownShape(value.unknown_because)
        return Value(dtype=dtype or value.dtype, shape=value.shape, is_constant=self.constant)

    def broadcast(self, *indices: int) -> tuple[int, ...]:
        """The shape to which the inputs (all by default) broadcast; ModelError if they don't."""
        indices = indices or tuple(range(len(self.inputs)))
        if self.bounded:
            return self._broadcast_intervals(indices)
        result = self.shape(indices[0])
        for index in indices[1:]:
            shape = self.shape(index)
            if shape != result:
                joined = broadcast_shapes(result, shape)
                if joined is None:
                    raise self.error(
                        f"its inputs {self.shown(*indices)} do not broadcast: a dimension is neither equal nor 1"
                    )
                result = joined
        return result

    def _broadcast_intervals(self, indices: Sequence[int]) -> tuple[int, ...]:
        """An exact dimension other than 1 decides; without one, the greatest (in the low run the least) size."""
        rank = max(self.rank(index) for index in indices)
        exact: list[int | None] = [None] * rank
        open_sizes: list[list[int]] = [[] for _ in range(rank)]
        for index in indices:
            shape = self.shape(index)
            lead = rank - len(shape)
            for place, (size, is_exact) in enumerate(zip(shape, self.exact_dims(index), strict=True), lead):
                if not is_exact:
                    open_sizes[place].append(size)
                elif size != 1:
                    exact[place] = size
        pick = min if self.low_run else max
        return tuple(
            decided if decided is not None else (pick(sizes) if sizes else 1)
            for decided, sizes in zip(exact, open_sizes, strict=True)
        )

    # Faults

    def shown(self, *indices: int) -> str:
        """The shapes of inputs with their names, for messages."""
        parts = []
        for index in indices or range(len(self.inputs)):
            value = self.inputs[index] if index < len(self.inputs) else None
            if value is not None and value.shape is not None:
                parts.append(f"{self.node.inputs[index]} {list(value.shape)}")
        return " and ".join(parts)

    def error(self, message: str, *, at_any_size: bool = False) -> ModelError:
        """A ModelError that names this node; ``at_any_size``: as it has it."""
        return ModelError(
            f"{shown(self.node.op_type)} node '{shown(self.node.name)}': {shown(message, _MAX_MESSAGE)}",
            node=self.node.name,
            at_any_size=at_any_size,
        )

    def require(self, condition: bool, message: str) -> None:
        """ModelError unless the condition holds; silent while sizes are intervals, whose ends may disagree."""
        if not condition and not self.bounded:
            raise self.error(message)
