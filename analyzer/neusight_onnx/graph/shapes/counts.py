"""What the counts that a network predicts are likely to be, so that all sizes that are read from them agree.

A length regulator (FastSpeech2 and its kin) repeats each token as often as its duration says, and makes room for as
many frames as the durations add up to. Each repeat and the sum are sizes of their own, in nodes far apart; they agree
only if they are computed from the same durations. So what a size is computed from is followed back to the value in
which a network's real numbers become counts (a Round, Ceil, Floor, or a Cast to integers): its source. A content is
assumed for the source, and what lies between it and the size is evaluated.

The source's elements are what the graph limits them to. Where it doesn't, they are shares of the longest dimension of
the model's inputs if something adds them up (30 durations of one frame each for 30 tokens), else each is that long. A
``--value`` for the source replaces the assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.errors import BindingError, shown
from neusight_onnx.graph.binding_text import written_shape
from neusight_onnx.graph.model import Node, Value
from neusight_onnx.graph.shapes.context import MAX_DATA, NUMPY, Session
from neusight_onnx.graph.shapes.ranges import ends_of
from neusight_onnx.graph.shapes.trace import in_order

MAX_NODES = 512
"""Nodes that are followed back from one size."""

MAX_STEPS = 24
"""Nodes between a rounding and what was counted before it."""

_Array = NDArray[np.float64]


class Counts(NamedTuple):
    """The likely content of a value, of its shape; ``sources``: what it was computed from, that isn't known;
    ``is_told``: the user gave the content of each of them."""

    data: _Array
    sources: frozenset[str]
    is_told: bool


_RESHAPES = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_ROUNDS: Mapping[str, Callable[[_Array], _Array]] = {"Round": np.rint, "Ceil": np.ceil, "Floor": np.floor}
_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Neg": np.negative, "Abs": np.abs},
    **{"Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less},
    **{"LessOrEqual": np.less_equal, "Where": lambda chosen, a, b: np.where(chosen != 0, a, b)},
    **_ROUNDS,
}
_REDUCES: Mapping[str, Callable[..., Any]] = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min}
_SUMS = frozenset({"ReduceSum", "CumSum", "SplitToSequence"})
_FOLLOWED = frozenset(
    {
        *(*_RESHAPES, *_ELEMENTWISE, *_REDUCES, "Cast", "Split", "Gather", "Concat", "CumSum", "Clip", "Max", "Min"),
        *("Expand", "SequenceAt"),
    }
)
_KEEPS_COUNTS = _RESHAPES | {"Cast", "Clip", "Max", "Where", "Transpose", "Gather", "Expand", *_ROUNDS}
"""What may lie between a source and the sum of its elements."""


def likely_counts(name: str, session: Session, longest: int, most: int) -> Counts | None:
    """The likely content of a value that sizes are read from; None where what it is made of isn't followed.

    ``longest``: the longest dimension of the model's inputs; ``most``: a limit up to that limits a size.
    """
    known: dict[str, Counts | None] = {}

    def needs(current: str, reached: int) -> tuple[Node | None, Sequence[str]] | None:
        found = session.counts(current)
        if current in found:
            known[current] = found[current]
            return None
        if reached > MAX_NODES:
            known[current] = found[current] = None
            return None
        node = _followed(current, session)
        return node, () if node is None else _read(node, session)

    for current, node in in_order(name, needs):
        known[current] = session.counts(current)[current] = _evaluate(current, node, session, known, longest, most)
    return known[name]


def _read(node: Node, session: Session) -> Sequence[str]:
    """What the node computes its result from: of a sequence's element, what the sequence was split from."""
    if node.op_type != "SequenceAt":
        return node.inputs
    split = session.maker(node.inputs[0])
    return (split.inputs[0], *node.inputs[1:]) if split is not None and split.op_type == "SplitToSequence" else ("",)


def _followed(name: str, session: Session) -> Node | None:
    """The node that makes the value, if it computes counts from counts."""
    value, node = session.value(name), session.maker(name)
    if value is None or node is None or node.domain or node.op_type not in _FOLLOWED or not any(node.inputs[:1]):
        return None
    if value.data is not None and value.data_low is None:
        return None
    if not any(_read(node, session)):
        return None
    is_integer = value.dtype is not None and value.dtype.is_integer
    is_rounded = node.op_type in _ROUNDS or (node.op_type == "Cast" and is_integer)
    return None if is_rounded and not _is_whole(node.inputs[0], session) else node


def _is_whole(name: str, session: Session) -> bool:
    """Whether a value is computed from counts, as a mean or a product of them is."""
    waiting, reached = [name], {name}
    for _ in range(MAX_STEPS):
        if not waiting:
            break
        current = waiting.pop()
        value, node = session.value(current), session.maker(current)
        if value is None or (value.data is not None and value.data_low is None):
            continue
        if value.dtype is not None and value.dtype.is_integer:
            return True
        if node is None or node.domain or node.op_type not in _FOLLOWED:
            continue
        if node.op_type in _ROUNDS:
            return True
        # what is compared or chosen by says nothing of what is chosen
        inputs = node.inputs[1:] if node.op_type == "Where" else node.inputs
        waiting += [other for other in inputs if other and other not in reached]
        reached.update(inputs)
    return False


def _evaluate(
    name: str, node: Node | None, session: Session, known: Mapping[str, Counts | None], longest: int, most: int
) -> Counts | None:
    value = session.value(name)
    if value is None or value.kind != "tensor" or value.shape is None or value.is_bound:
        return None
    if value.data is not None and value.data_low is None:
        is_number = value.data.dtype.kind in "iufb"
        return Counts(value.data.astype(np.float64), frozenset(), True) if is_number else None
    if prod(value.shape) > MAX_DATA or value.dtype not in NUMPY:
        return None
    if node is None:
        return _source(name, value, session, longest, most)
    names = _read(node, session)
    inputs = [known.get(other) if other else None for other in names]
    if any(counts is None for counts, other in zip(inputs, names, strict=True) if other):
        return None
    found = [counts for counts in inputs if counts is not None]
    try:
        data = _computed(name, node, value, [None if item is None else item.data for item in inputs], session)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    if data is None or data.shape != value.shape or not np.isfinite(data).all():
        return None
    sources = frozenset[str]().union(*(counts.sources for counts in found))
    return Counts(data, sources, all(counts.is_told for counts in found))


def _source(name: str, value: Value, session: Session, longest: int, most: int) -> Counts | None:
    assert value.shape is not None
    told = session.told(name)
    if told is not None:
        if told.shape not in ((), value.shape):
            raise BindingError(
                f"--value {shown(name)} has the shape {written_shape(told.shape)}, the value has "
                f"{written_shape(value.shape)}; one number stands for all elements"
            )
        return Counts(np.broadcast_to(told.astype(np.float64), value.shape), frozenset({name}), True)
    low, high = ends_of(name, session)
    axis = max((axis for axis, size in enumerate(value.shape) if size > 1), default=None)
    if (high <= most).all():
        data = np.broadcast_to(high, value.shape)  # its limit, which its elements are counted at where they are sizes
    elif axis is None or not _is_summed(name, session):
        data = np.full(value.shape, float(longest))
    else:
        size = value.shape[axis]
        each, more = divmod(max(longest, size), size)
        line = each + (np.arange(size) < more)
        data = np.broadcast_to(line.reshape(-1, *(1,) * (len(value.shape) - axis - 1)), value.shape)
    return Counts(np.clip(data, low, high).astype(np.float64), frozenset({name}), False)


def _is_summed(name: str, session: Session) -> bool:
    """Whether something adds the elements of the value up, or takes each apart to repeat something as often."""
    waiting, looked_at = [name], 0
    while waiting and looked_at < MAX_NODES:
        current = waiting.pop()
        for node in session.readers(current)[: MAX_NODES - looked_at]:
            looked_at += 1
            is_content = node.op_type in ("Max", "Where") or current == node.inputs[0]
            if node.domain or not is_content:
                continue  # read as an index, a shape, ...
            if node.op_type in _SUMS:
                return True
            if node.op_type in _KEEPS_COUNTS:
                waiting += node.outputs[:1]
    return False


def _computed(name: str, node: Node, value: Value, inputs: list[_Array | None], session: Session) -> _Array | None:
    assert value.shape is not None
    first = inputs[0]
    given = [data for data in inputs if data is not None]
    if first is None:
        return None
    op_type = node.op_type
    with np.errstate(all="ignore"):
        if op_type in _RESHAPES:
            return first.reshape(value.shape)
        if op_type in _ELEMENTWISE:
            result = np.asarray(_ELEMENTWISE[op_type](*given), np.float64)
            is_integer = value.dtype is not None and value.dtype.is_integer
            return np.trunc(result) if op_type == "Div" and is_integer else result
        if op_type in _REDUCES:
            return _reduced(node, value.shape, first, inputs)
        match op_type:
            case "Cast":
                return np.trunc(first) if value.dtype is not None and value.dtype.is_integer else first
            case "Max" | "Min":
                return np.asarray((np.maximum if op_type == "Max" else np.minimum).reduce(np.broadcast_arrays(*given)))
            case "Clip":
                return _clipped(node, first, inputs)
            case "Concat":
                axis = node.attributes.get("axis", 1)
                return np.concatenate(given, axis) if isinstance(axis, int) else None
            case "CumSum":
                return np.cumsum(first, int(given[1].ravel()[0])) if not node.attributes.get("exclusive") else None
            case "Gather":
                axis = node.attributes.get("axis", 0)
                return np.asarray(first.take(given[1].astype(np.int64), axis)) if isinstance(axis, int) else None
            case "Expand":
                return np.broadcast_to(first, value.shape)
            case "SequenceAt":
                return _element(session.maker(node.inputs[0]), first, given[1], value.shape)
            case "Split":
                return _part(name, node, first, value.shape, session)
    return None


def _reduced(node: Node, shape: tuple[int, ...], data: _Array, inputs: list[_Array | None]) -> _Array:
    axes = (
        node.attributes.get("axes") if len(inputs) < 2 or inputs[1] is None else inputs[1].astype(int).ravel().tolist()
    )
    function = _REDUCES[node.op_type]
    reduced = function(data) if axes is None else function(data, axis=tuple(axes))  # type: ignore[arg-type]  # else a TypeError
    return np.asarray(reduced, np.float64).reshape(shape)


def _clipped(node: Node, data: _Array, inputs: list[_Array | None]) -> _Array:
    least, most = (inputs[at] if at < len(inputs) else None for at in (1, 2))
    if node.version < 11:
        least, most = (
            np.asarray(limit, np.float64) if isinstance(limit, (int, float)) else None
            for limit in (node.attributes.get("min"), node.attributes.get("max"))
        )
    data = data if least is None else np.maximum(data, least)
    return data if most is None else np.minimum(data, most)


def _part(name: str, node: Node, data: _Array, shape: tuple[int, ...], session: Session) -> _Array | None:
    axis = node.attributes.get("axis", 0)
    if not isinstance(axis, int):
        return None
    start = 0
    for output in node.outputs:
        if output == name:
            return data.take(range(start, start + shape[axis]), axis)
        part = session.value(output)
        if part is None or part.shape is None:
            return None
        start += part.shape[axis]
    return None


def _element(split: Node | None, data: _Array, index: _Array, shape: tuple[int, ...]) -> _Array | None:
    """An element of a sequence, all of whose elements are of one size."""
    axis = 0 if split is None else split.attributes.get("axis", 0)
    if not isinstance(axis, int):
        return None
    size = shape[axis] if len(shape) == data.ndim else 1
    start = int(index.ravel()[0]) * size
    return data.take(range(start, start + size), axis).reshape(shape)
