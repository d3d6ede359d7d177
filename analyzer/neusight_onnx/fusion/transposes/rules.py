"""What a Transpose can move over, and how that operator works in the order from before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from neusight_onnx.fusion.transposes.moving import Moving
from neusight_onnx.fusion.transposes.orders import Order, inverse_of, reordered_axes, squeezed
from neusight_onnx.graph.model import Attribute, Node, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """An operator that reads its operands as they were before the Transpose; its inputs still have the old names.

    ``orders``: for each result the order of the Transpose that is now behind it; None where there is none.
    """

    node: Node
    orders: tuple[Order | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``operands``: places of the inputs that change their order together; ``transposes``: so do the results, at a cost
    where no Transpose takes it over (behind a Reshape none is asked for)."""

    operands: Callable[[Node, Moving], tuple[int, ...]]
    move: Callable[[Node, Order, Moving], Moved | None]
    transposes: bool = True


def _first(node: Node, work: Moving) -> tuple[int, ...]:
    return (0,)


def _all(node: Node, work: Moving) -> tuple[int, ...]:
    return tuple(range(len(node.inputs)))


def _not_scalars(node: Node, work: Moving) -> tuple[int, ...]:
    return tuple(place for place, name in enumerate(node.inputs) if work.rank(name) != 0)


def _pointwise(node: Node, order: Order, work: Moving) -> Moved | None:
    return Moved(node=node, orders=tuple(order for _ in node.outputs))


def _broadcast(node: Node, order: Order, work: Moving) -> Moved | None:
    ranks = [work.rank(name) for name in node.inputs]
    if any(rank is None or rank > len(order) for rank in ranks):
        return None
    return _pointwise(node, order, work)


def _axis(node: Node, order: Order, default: int) -> int | None:
    axis = node.attributes.get("axis", default)
    return axis % len(order) if isinstance(axis, int) else None


def _with(node: Node, **attributes: Attribute) -> Node:
    return replace(node, attributes={**node.attributes, **attributes})


def _over_axis(node: Node, order: Order, work: Moving) -> Moved | None:
    """Softmax and its kin since opset 13, and Concat: one axis."""
    if node.op_type != "Concat" and node.version < 13:
        return None
    axis = _axis(node, order, -1)
    return None if axis is None else _pointwise(_with(node, axis=order[axis]), order, work)


def _axes(node: Node, work: Moving, place: int = 1) -> tuple[int, ...] | None:
    if len(node.inputs) > place and node.inputs[place]:
        return work.numbers(node.inputs[place])
    given = node.attributes.get("axes")
    return tuple(axis for axis in given if isinstance(axis, int)) if isinstance(given, tuple) else None


def _with_axes(node: Node, axes: Sequence[int], work: Moving, place: int = 1) -> Node:
    if len(node.inputs) > place and node.inputs[place]:
        name = work.constant(axes, node.inputs[place])
        return replace(node, inputs=(*node.inputs[:place], name, *node.inputs[place + 1 :]))
    return _with(node, axes=tuple(axes))


def _reduction(node: Node, order: Order, work: Moving) -> Moved | None:
    axes = _axes(node, work)
    if axes is None and len(node.inputs) > 1 and node.inputs[1]:
        return None
    if not axes:
        has_order = node.attributes.get("keepdims", 1) or node.attributes.get("noop_with_empty_axes", 0)
        return Moved(node=node, orders=(order if has_order else None,))
    places = [axis % len(order) for axis in axes]
    new = _with_axes(node, [order[place] for place in places], work)
    kept = node.attributes.get("keepdims", 1)
    return Moved(node=new, orders=(order if kept else squeezed(order, places),))


def _arg(node: Node, order: Order, work: Moving) -> Moved | None:
    axis = _axis(node, order, 0)
    if axis is None:
        return None
    kept = node.attributes.get("keepdims", 1)
    return Moved(node=_with(node, axis=order[axis]), orders=(order if kept else squeezed(order, [axis]),))


def _squeeze(node: Node, order: Order, work: Moving) -> Moved | None:
    axes = _axes(node, work)
    if axes is None:
        return None
    places = [axis % len(order) for axis in axes]
    new = _with_axes(node, sorted(order[place] for place in places), work)
    return Moved(node=new, orders=(squeezed(order, places),))


def _unsqueeze(node: Node, order: Order, work: Moving) -> Moved | None:
    axes = _axes(node, work)
    if axes is None:
        return None
    rank = len(order) + len(axes)
    new = {axis % rank for axis in axes}
    old = [place for place in range(rank) if place not in new]
    into = list(range(rank))
    for place, source in zip(old, order, strict=True):
        into[place] = old[source]
    return Moved(node=node, orders=(tuple(into),))


def _split_dimensions(
    before: tuple[int, ...] | None, after: tuple[int, ...] | None
) -> tuple[tuple[int, ...], ...] | None:
    """For each dimension of a Reshape's input what it is split into; None where it puts dimensions together."""
    if before is None or after is None:
        return None
    found: list[tuple[int, ...]] = []
    start = 0
    for size in before:
        end, product = start, 0
        while end < len(after) and (not product or product < size):
            product = (product or 1) * after[end]
            end += 1
        if product != size:
            return None
        found.append(after[start:end])
        start = end
    return tuple(found) if start == len(after) and len(after) > len(before) else None


def _reshape(node: Node, order: Order, work: Moving) -> Moved | None:
    """(6, 4, 5) -> (2, 3, 4, 5), whose input is (6, 5, 4) in the old order: (2, 3, 5, 4) and a Transpose.

    Only where it takes dimensions apart, into sizes that are constants, in a file that leaves no size open.
    """
    source, out = work.values[node.inputs[0]], work.values[node.outputs[0]]
    parts = _split_dimensions(source.shape, out.shape)
    if not work.fixed or parts is None or work.numbers(node.inputs[1]) is None:
        return None
    moved = [parts[place] for place in inverse_of(order)]
    starts = [sum(len(part) for part in moved[:place]) for place in range(len(moved))]
    into = tuple(start + at for source in order for start in (starts[source],) for at in range(len(moved[source])))
    target = work.constant([size for part in moved for size in part], node.inputs[1])
    return Moved(node=replace(node, inputs=(node.inputs[0], target)), orders=(into,))


def _split(node: Node, order: Order, work: Moving) -> Moved | None:
    """Parts of one place may be without the axis, as Gathers take them."""
    axis = _axis(node, order, 0)
    if axis is None:
        return None
    orders: list[Order] = []
    for name in node.outputs:
        value = work.values.get(name)
        if value is None or value.shape is None or value.data is not None:
            return None
        orders.append(squeezed(order, [axis]) if len(value.shape) < len(order) else order)
    return Moved(node=_with(node, axis=order[axis]), orders=tuple(orders))


def _by_one_index(node: Node, work: Moving) -> tuple[int, ...]:
    """A Gather by a constant index without dimensions; others stay behind their Transpose."""
    index = work.values.get(node.inputs[1])
    return (0,) if index is not None and index.is_constant and index.shape == () else ()


def _gather(node: Node, order: Order, work: Moving) -> Moved | None:
    axis = _axis(node, order, 0)
    return None if axis is None else Moved(node=_with(node, axis=order[axis]), orders=(squeezed(order, [axis]),))


def _shape(node: Node, order: Order, work: Moving) -> Moved | None:
    """Sizes are known before the run: who reads them gets the same ones."""
    value = work.values.get(node.outputs[0])
    return None if value is None or value.data is None else Moved(node=node, orders=(None,))


def _slice(node: Node, order: Order, work: Moving) -> Moved | None:
    if node.version < 10:
        axes = _axes(node, work, len(node.inputs))
        return None if axes is None else _pointwise(_with(node, axes=reordered_axes(axes, order)), order, work)
    starts = work.values.get(node.inputs[1])
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = work.numbers(node.inputs[3])
        if axes is None:
            return None
        return _pointwise(_with_axes(node, reordered_axes(axes, order), work, 3), order, work)
    like = node.inputs[1]
    if starts is None or starts.shape is None or starts.data is None:
        return None
    name = work.constant(reordered_axes(range(starts.data.size), order), like)
    work.make(name, partial(_as_constant, name))
    return _pointwise(replace(node, inputs=(*node.inputs[:3], name, *node.inputs[4:])), order, work)


def _as_constant(name: str, values: Mapping[str, Value]) -> Value:
    return replace(values[name], is_constant=True)


def _pad(node: Node, order: Order, work: Moving) -> Moved | None:
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = work.numbers(node.inputs[3])
        return None if axes is None else _pointwise(_with_axes(node, reordered_axes(axes, order), work, 3), order, work)
    pads = work.numbers(node.inputs[1]) if node.version >= 11 else None
    if pads is None or len(pads) != 2 * len(order):
        return None
    rank = len(order)
    inverse = inverse_of(order)
    name = work.constant([pads[side + place] for side in (0, rank) for place in inverse], node.inputs[1])
    return _pointwise(replace(node, inputs=(node.inputs[0], name, *node.inputs[2:])), order, work)


def _tile(node: Node, order: Order, work: Moving) -> Moved | None:
    repeats = work.numbers(node.inputs[1]) if len(node.inputs) == 2 else None
    if repeats is None or len(repeats) != len(order):
        return None
    name = work.constant([repeats[place] for place in inverse_of(order)], node.inputs[1])
    return _pointwise(replace(node, inputs=(node.inputs[0], name)), order, work)


_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Dropout",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
]
_BROADCAST = [
    "Add",
    "And",
    "BitShift",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "Or",
    "PRelu",
    "Pow",
    "Sub",
    "Sum",
    "Where",
    "Xor",
]
_REDUCING = [
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
]

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_UNARY, Rule(operands=_first, move=_pointwise)),
    **dict.fromkeys(_BROADCAST, Rule(operands=_not_scalars, move=_broadcast)),
    **dict.fromkeys(_REDUCING, Rule(operands=_first, move=_reduction)),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), Rule(operands=_first, move=_over_axis)),
    **dict.fromkeys(("ArgMax", "ArgMin"), Rule(operands=_first, move=_arg)),
    "Concat": Rule(operands=_all, move=_over_axis),
    "Gather": Rule(operands=_by_one_index, move=_gather),
    "Pad": Rule(operands=_first, move=_pad),
    "Reshape": Rule(operands=_first, move=_reshape, transposes=False),
    "Shape": Rule(operands=_first, move=_shape, transposes=False),
    "Slice": Rule(operands=_first, move=_slice),
    "Split": Rule(operands=_first, move=_split),
    "Squeeze": Rule(operands=_first, move=_squeeze),
    "Tile": Rule(operands=_first, move=_tile),
    "Unsqueeze": Rule(operands=_first, move=_unsqueeze),
}


def rule_of(node: Node) -> Rule | None:
    return None if node.domain else RULES.get(node.op_type)
