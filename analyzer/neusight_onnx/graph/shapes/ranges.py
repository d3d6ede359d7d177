"""Between which ends the elements of a value lie, found by looking back from a size that depends on data.

Contents of small tensors travel with the walk; contents of large ones do not. So where a size is read from data (the
greatest of some lengths, the width of a box), the operators between it and what limits it (a clip, a sigmoid, an index
among so many) are followed back, and the ends are carried forward again. An end is infinite where nothing limits it.
Small tensors have ends for each element, large ones one pair for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Node, Value
from neusight_onnx.graph.shapes.context import MAX_DATA, Session
from neusight_onnx.graph.shapes.trace import in_order

MAX_NODES = 512
"""Nodes that are followed back from one size: from a pasted mask's width to the clip of its box are some 100."""

_Array = NDArray[np.float64]


class Ends(NamedTuple):
    """The least and the most of each element, of the value's shape; of shape () where that stands for all elements."""

    low: _Array
    high: _Array


def _ends(low: float, high: float) -> Ends:
    return Ends(np.asarray(low, np.float64), np.asarray(high, np.float64))


_ANY = _ends(-inf, inf)
_UNIT = _ends(0, 1)
_SIGNED_UNIT = _ends(-1, 1)

# What limits its result whatever the input is.
_LIMITED: Mapping[str, Ends] = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax", "Hardmax", "Bernoulli"), _UNIT),
    **dict.fromkeys(("Tanh", "Erf", "Softsign", "Sin", "Cos", "Sign"), _SIGNED_UNIT),
}

# Functions that never fall as their input grows.
_RISING: Mapping[str, Callable[[_Array], _Array]] = {
    "Ceil": np.ceil,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": lambda x: np.where(x > 0, np.log(np.maximum(x, np.finfo(np.float64).tiny)), -inf),
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Sqrt": lambda x: np.sqrt(np.maximum(x, 0)),
}

# Results that hold elements of the first input, and of no other.
_MOVES = frozenset(
    {
        *("Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Split"),
        *("Gather", "GatherElements", "GatherND", "Slice", "Compress", "ReverseSequence", "DepthToSpace"),
        *("SpaceToDepth", "ReduceMax", "ReduceMin", "ReduceMean", "MaxPool", "GlobalMaxPool", "GlobalAveragePool"),
    }
)

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div"})
_JOINED: Mapping[str, tuple[int, int | None]] = {
    "Concat": (0, None),
    "Where": (1, 3),
    "ScatterElements": (0, 1),
    "ScatterND": (0, 1),
    "OneHot": (2, 3),
}
"""Results that hold elements of these inputs (from, to), as they are; a scatter's updates are the third input."""

_FOLLOWED = frozenset(
    {
        *(*_RISING, *_MOVES, *_ARITHMETIC, *_JOINED, "Cast", "Neg", "Abs", "Clip", "Min", "Max", "Pad", "ReduceSum"),
        *("CumSum", "Range", "Mod", "TopK", "Unique", "Trilu"),
    }
)


def ends_of(name: str, session: Session) -> Ends:
    """Between which ends the elements of a value lie; each value is looked at once in each inference of its graph."""
    known: dict[str, Ends] = {}

    def needs(current: str, reached: int) -> tuple[Node | None, Sequence[str]] | None:
        found = session.found(current).get(current)
        if found is not None:
            known[current] = found
            return None
        value = session.value(current)
        node = None if value is None or value.data is not None else session.maker(current)
        if node is not None and (reached > MAX_NODES or node.domain != ""):
            node = None
        return node, node.inputs if node is not None and node.op_type in _FOLLOWED else ()

    order = in_order(name, needs)
    with np.errstate(all="ignore"):
        for current, node in order:
            ends = known[current] = _evaluate(current, node, session, known)
            session.found(current)[current] = ends
    return known[name]


def _evaluate(name: str, node: Node | None, session: Session, known: Mapping[str, Ends]) -> Ends:
    value = session.value(name)
    if value is None or value.kind != "tensor":
        return _ANY
    if value.data is not None:
        return _of_data(value)
    ends = _ANY if node is None else _of_node(name, node, value, session, known)
    limits = _NARROW.get(value.dtype, _ANY)
    low, high = np.maximum(ends.low, limits.low), np.minimum(ends.high, limits.high)
    if np.isnan(low).any() or np.isnan(high).any() or (low > high).any():
        return limits
    shape = low.shape
    if shape and (value.is_bound or shape != value.shape):
        return Ends(low.min(initial=inf), high.max(initial=-inf)) if low.size else limits
    return Ends(low, high)


def _of_data(value: Value) -> Ends:
    data = value.data
    assert data is not None
    least = data if value.data_low is None else value.data_low
    if data.dtype.kind not in "iufb" or not data.size:
        return _ANY
    return Ends(least.astype(np.float64), data.astype(np.float64))


_NARROW: Mapping[DataType | None, Ends] = {
    DataType.BOOL: _UNIT,
    DataType.INT8: _ends(-128, 127),
    DataType.UINT8: _ends(0, 255),
    DataType.INT16: _ends(-32_768, 32_767),
    DataType.UINT16: _ends(0, 65_535),
    DataType.UINT32: _ends(0, inf),
    DataType.UINT64: _ends(0, inf),
}


def _of_node(name: str, node: Node, value: Value, session: Session, known: Mapping[str, Ends]) -> Ends:
    limited = _LIMITED.get(node.op_type)
    if limited is not None:
        return limited
    inputs = [known.get(other, _ANY) for other in node.inputs]
    shapes = [_shape(other, session) for other in node.inputs]
    op_type = node.op_type
    index = _index_limit(name, node, shapes)
    if index is not None:
        return index
    if op_type in _RISING:
        function = _RISING[op_type]
        return Ends(function(inputs[0].low), function(inputs[0].high))
    if op_type in _ARITHMETIC:
        ends = _arithmetic(op_type, inputs[0], inputs[1])
        if op_type == "Div" and value.dtype is not None and value.dtype.is_integer:
            return Ends(np.trunc(ends.low), np.trunc(ends.high))  # towards 0: -1 by 2 is 0
        return ends
    if op_type in _JOINED:
        return _joined(node, value, inputs, shapes)
    if op_type in _MOVES:
        return _moved(node, value, inputs[0], session) if op_type == "Split" or name == node.outputs[0] else _ANY
    match op_type:
        case "Cast":
            return _cast(inputs[0], value.dtype)
        case "Neg":
            return Ends(-inputs[0].high, -inputs[0].low)
        case "Abs":
            low, high = np.abs(inputs[0].low), np.abs(inputs[0].high)
            least = np.where((inputs[0].low < 0) & (inputs[0].high > 0), 0, np.minimum(low, high))
            return Ends(least, np.maximum(low, high))
        case "Clip":
            return _clip(node, inputs)
        case "Min" | "Max":
            pick = np.minimum if op_type == "Min" else np.maximum
            low, high = inputs[0]
            for other in inputs[1:]:
                low, high = pick(low, other.low), pick(high, other.high)
            return Ends(low, high)
        case "Pad" | "Trilu":
            return _hull(inputs[0], _filling(node, inputs))
        case "ReduceSum" | "CumSum":
            source, result = shapes[0], _shape(node.outputs[0], session)
            if source is None or result is None:
                return _ANY
            count = prod(source) // max(prod(result), 1) if op_type == "ReduceSum" else max(source, default=1)
            low, high = _hull(inputs[0])
            # any number of them up to that: the size may itself be a bound
            return Ends(np.minimum(low, count * low), np.maximum(high, count * high))
        case "Range":
            return _hull(inputs[0], inputs[1])
        case "Mod":
            divisor = inputs[1]
            if divisor.low.min() > 0 and not node.attributes.get("fmod"):
                most = divisor.high - 1 if value.dtype is not None and value.dtype.is_integer else divisor.high
                return Ends(np.zeros_like(most), most)
            return _ANY
        case "TopK" | "Unique":
            return _hull(inputs[0])
        case _:
            return _ANY


def _filling(node: Node, inputs: list[Ends]) -> Ends:
    """What a Pad puts around its input, or a Trilu in place of it."""
    if node.op_type == "Pad" and len(node.inputs) > 2 and node.inputs[2]:
        return inputs[2]
    number = node.attributes.get("value", 0)
    return _ends(number, number) if isinstance(number, (int, float)) else _ANY


def _shape(name: str, session: Session) -> tuple[int, ...] | None:
    value = session.value(name) if name else None
    return None if value is None else value.shape


def _index_limit(name: str, node: Node, shapes: list[tuple[int, ...] | None]) -> Ends | None:
    """An index among so many; None for other results."""
    shape = shapes[0] if shapes else None
    if shape is None:
        return None
    most: int | None = None
    match node.op_type:
        case "ArgMax" | "ArgMin" | "NonZero" | "NonMaxSuppression":
            most = max((*shape, *(shapes[1] or ())) if node.op_type == "NonMaxSuppression" else shape, default=1)
        case "TopK" if name == node.outputs[-1] and len(node.outputs) == 2:
            most = max(shape, default=1)
        case "Unique" if name != node.outputs[0]:
            most = prod(shape) + 1  # the counts go up to all of them
        case _:
            return None
    return _ends(0, max(most - 1, 0))


def _hull(*items: Ends) -> Ends:
    return _ends(
        min((float(item.low.min()) for item in items if item.low.size), default=-inf),
        max((float(item.high.max()) for item in items if item.high.size), default=inf),
    )


def _arithmetic(op_type: str, a: Ends, b: Ends) -> Ends:
    """Sums and differences end to end; products and quotients at the least and most of the four corners."""
    if a.low.shape != b.low.shape and a.low.ndim and b.low.ndim:
        try:
            shape = np.broadcast_shapes(a.low.shape, b.low.shape)
        except ValueError:
            shape = None
        if shape is None or prod(shape) > MAX_DATA:
            a, b = _hull(a), _hull(b)
    if op_type == "Add":
        return Ends(a.low + b.low, a.high + b.high)
    if op_type == "Sub":
        return Ends(a.low - b.high, a.high - b.low)
    if op_type == "Div" and not ((b.low > 0).all() or (b.high < 0).all()):
        return _ANY
    corners = [x * y if op_type == "Mul" else x / y for x in a for y in b]
    # 0 times infinity is 0 here: the infinite end stands for some number, however large
    corners = [np.where(np.isnan(corner), 0.0, corner) for corner in corners]
    return Ends(np.minimum.reduce(corners), np.maximum.reduce(corners))


def _cast(item: Ends, dtype: DataType | None) -> Ends:
    if dtype is None or not (dtype.is_integer or dtype is DataType.BOOL):
        return item
    if dtype is DataType.BOOL:
        return _UNIT
    return Ends(np.trunc(_widened(item.low, -1)), np.trunc(_widened(item.high, 1)))


_SLACK = 1e-6
"""What single precision may add to a number that is computed in it, of its size: several roundings of 2^-24."""


def _widened(end: _Array, direction: int) -> _Array:
    """A number just below an integer may come out as that integer; one that is an integer is taken to be exact."""
    exact = np.isinf(end) | (end == np.rint(end))
    return np.where(exact, end, end + direction * _SLACK * np.abs(end))


def _clip(node: Node, inputs: list[Ends]) -> Ends:
    low, high = inputs[0]
    if node.version < 11:
        from_below, from_above = node.attributes.get("min"), node.attributes.get("max")
        least = _ends(from_below, from_below) if isinstance(from_below, (int, float)) else None
        most = _ends(from_above, from_above) if isinstance(from_above, (int, float)) else None
    else:
        least = inputs[1] if len(node.inputs) > 1 and node.inputs[1] else None
        most = inputs[2] if len(node.inputs) > 2 and node.inputs[2] else None
    if least is not None:
        low, high = np.maximum(low, least.low), np.maximum(high, least.high)
    if most is not None:
        low, high = np.minimum(low, most.low), np.minimum(high, most.high)
    return Ends(low, high)


def _joined(node: Node, value: Value, inputs: list[Ends], shapes: list[tuple[int, ...] | None]) -> Ends:
    first, last = _JOINED[node.op_type]
    parts = inputs[first:last]
    if node.op_type.startswith("Scatter"):
        if node.attributes.get("reduction", "none") != "none":
            return _ANY
        parts = [*parts, inputs[2]]
    elif node.op_type == "Concat" and _is_small(value):
        axis = node.attributes.get("axis", 1)
        if isinstance(axis, int) and all(shape is not None for shape in shapes):
            lows = [np.broadcast_to(part.low, shape) for part, shape in zip(parts, shapes, strict=True) if shape]
            highs = [np.broadcast_to(part.high, shape) for part, shape in zip(parts, shapes, strict=True) if shape]
            if lows:
                return Ends(np.concatenate(lows, axis), np.concatenate(highs, axis))
    elif node.op_type == "Where" and _is_small(value) and value.shape is not None:
        lows = [np.broadcast_to(part.low, value.shape) for part in parts]
        highs = [np.broadcast_to(part.high, value.shape) for part in parts]
        return Ends(np.minimum(*lows), np.maximum(*highs))
    return _hull(*parts)


def _is_small(value: Value) -> bool:
    return value.shape is not None and not value.is_bound and prod(value.shape) <= MAX_DATA


def _moved(node: Node, value: Value, source: Ends, session: Session) -> Ends:
    """Which element goes where, for small tensors whose ends are told one by one; else what all of them have."""
    low, high = source
    if not low.ndim or not _is_small(value) or value.shape is None:
        return _hull(source)
    match node.op_type:
        case "Identity" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "Dropout" if low.size == prod(value.shape):
            return Ends(low.reshape(value.shape), high.reshape(value.shape))
        case "Gather":
            indices = session.value(node.inputs[1])
            axis = node.attributes.get("axis", 0)
            if indices is not None and indices.data is not None and indices.data_low is None and isinstance(axis, int):
                where = indices.data.astype(np.int64)
                return Ends(np.asarray(low.take(where, axis)), np.asarray(high.take(where, axis)))
        case "ReduceMax" | "ReduceMin" if prod(value.shape) == 1:
            function = np.max if node.op_type == "ReduceMax" else np.min
            return _ends(float(function(low)), float(function(high)))
    return _hull(source)
