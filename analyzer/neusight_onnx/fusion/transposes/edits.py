"""Edits of the graph: an operator in another order with Transposes behind it, two Transposes made one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from neusight_onnx.fusion.transposes.moving import Moving, name_also
from neusight_onnx.fusion.transposes.orders import Order, composed, inverse_of, order_of
from neusight_onnx.fusion.transposes.rules import Moved
from neusight_onnx.graph.model import Node, Origin, Value


def apply(work: Moving, node: Node, moved: Moved, order: Order, operands: tuple[int, ...]) -> None:
    """Puts the moved operator in the place of ``node``: its operands in the old order, Transposes behind it."""
    inverse = inverse_of(order)
    inputs = list(moved.node.inputs)
    before = [maker for place in operands if (maker := work.maker(node.inputs[place])) is not None]
    for place in operands:
        inputs[place] = _in_old_order(work, inputs[place], inverse, before)
    outputs: list[str] = []
    behind: list[tuple[str, str, Order]] = []
    for name, into in zip(node.outputs, moved.orders, strict=True):
        is_read = name in work.kept or bool(work.readers.get(name))
        if not is_read or into is None or into == tuple(range(len(into))):
            outputs.append(name)
            continue
        outputs.append(work.reordered(name, inverse_of(into)))
        behind.append((outputs[-1], name, into))
    new = replace(moved.node, inputs=tuple(inputs), outputs=tuple(outputs), origins=node.stands_for)
    work.change(node, new)
    gone: list[Origin] = []
    for made_by in dict.fromkeys(item.name for item in before):
        transpose = work.nodes[made_by]
        if order_of(transpose) is not None and not work.is_read(transpose):
            work.drop(transpose)
            gone.extend(transpose.stands_for)
    for name, result, into in behind:
        work.add(
            Node(
                name=work.new_name(node.name),
                op_type="Transpose",
                version=13,
                inputs=(name,),
                outputs=(result,),
                attributes={"perm": into},
                origins=tuple(dict.fromkeys(gone)) or node.stands_for,
            )
        )
    if gone and not behind:
        name_also(work, new, gone)


def _in_old_order(work: Moving, name: str, inverse: Order, before: Sequence[Node]) -> str:
    """The value that an operand has in the order from before the Transpose: known already, or behind one more."""
    value = work.values[name]
    rank = work.rank(name)
    missing = 0 if rank is None else len(inverse) - rank
    if missing:
        name = _with_more_dimensions(work, name, missing)
    if value.is_constant:
        return work.reordered(name, inverse)
    maker = work.maker(name)
    made = order_of(maker)
    if maker is not None and made is not None:
        left = composed(made, inverse)
        source = maker.inputs[0]
        if left == tuple(range(len(left))):
            return source
        return _transposed(work, source, left, maker.stands_for)
    origins = tuple(dict.fromkeys(origin for node in before if order_of(node) for origin in node.stands_for))
    return _transposed(work, name, inverse, origins)


def _with_more_dimensions(work: Moving, name: str, count: int) -> str:
    """The value with ``count`` dimensions of 1 in front, as it broadcasts."""
    made = work.new_name(name)
    work.make(made, partial(_with_ones, name, count))
    maker = work.maker(name)
    if not work.values[name].is_constant:
        axes = {"axes": tuple(range(count))}
        work.add(
            Node(
                name=made,
                op_type="Unsqueeze",
                version=11,
                inputs=(name,),
                outputs=(made,),
                attributes=axes,
                origins=() if maker is None else maker.stands_for,
            )
        )
    return made


def _with_ones(name: str, count: int, values: Mapping[str, Value]) -> Value:
    value = values[name]
    assert value.shape is not None
    ones = (1,) * count
    low = value.shape_low
    shape_low = None if low is None else (*ones, *low)
    return replace(value, shape=(*ones, *value.shape), shape_low=shape_low, data=None, data_low=None)


def _transposed(work: Moving, name: str, order: Order, origins: tuple[Origin, ...]) -> str:
    """The value behind a Transpose: one that there is already, or a new one."""
    for reader in work.readers.get(name, ()):
        if order_of(work.nodes[reader]) == order:
            return work.nodes[reader].outputs[0]
    made = work.reordered(name, order)
    work.add(
        Node(
            name=made,
            op_type="Transpose",
            version=13,
            inputs=(name,),
            outputs=(made,),
            attributes={"perm": order},
            origins=origins,
        )
    )
    return made


def merge(work: Moving, first: Node, second: Node) -> None:
    """Two Transposes in a row become one, or none where they cancel."""
    order, behind = order_of(first), order_of(second)
    assert order is not None
    assert behind is not None
    both = composed(order, behind)
    source, result = first.inputs[0], second.outputs[0]
    cancel = both == tuple(range(len(both)))
    if not cancel:
        new = replace(second, inputs=(source,), attributes={"perm": both})
    else:
        new = replace(second, op_type="Identity", inputs=(source,), attributes={})
    work.change(second, new)
    if not work.is_read(first):
        work.drop(first)
        new = name_also(work, new, first.stands_for)
    if cancel and result not in work.kept:
        for reader in tuple(work.readers.get(result, ())):
            node = work.nodes[reader]
            inputs = tuple(source if name == result else name for name in node.inputs)
            work.change(node, replace(node, inputs=inputs, origins=node.stands_for))
        work.drop(new)
        owner = work.maker(source)
        if owner is not None:
            name_also(work, owner, new.stands_for)
