"""ONNX Runtime's transpose optimiser: Transposes move towards each other until they cancel or become one.

Its rules (``onnx_transpose_optimization.cc``; those of 1.32, held by ``benchmarks/fusion_ort.py``): a Transpose of an
operand moves behind an operator that works in any order of dimensions where that leaves fewer dimensions to move.
Operands that would have to be put into the order from before it count as many as they have, constants none, one that a
Transpose made less than none; results count, too, unless another Transpose comes behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from neusight_onnx.fusion.splits import sized
from neusight_onnx.graph.model import (
    Array,
    Attribute,
    Declared,
    InferredGraph,
    Node,
    Origin,
    Value,
    kept_values,
    made_name,
)

UNKNOWN_RANK = 5
"""Dimensions that a tensor counts as where they aren't known."""
Order = tuple[int, ...]
"""``perm`` of a Transpose: dimension i of its result is dimension ``order[i]`` of its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """An operator that reads its operands as they were before the Transpose; its inputs still have the old names.

    ``orders``: for each result the order of the Transpose that is now behind it; None where there is none.
    """

    node: Node
    orders: tuple[Order | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """``operands``: places of the inputs that change their order together; ``transposes``: so do the results, at a cost
    where no Transpose takes it over (behind a Reshape none is asked for)."""

    operands: Callable[[Node, _Moving], tuple[int, ...]]
    move: Callable[[Node, Order, _Moving], _Moved | None]
    transposes: bool = True


@dataclass(slots=True)
class _Moving:
    """A graph on its way: nodes by name, who makes and who reads a value.

    ``kept``: values that must stay. ``sized``: those whose sizes ONNX Runtime knows; ``declared``: what the file says.
    ``transposed``: those that a Transpose makes. ``fixed``: the file leaves no size of an input open.
    """

    values: dict[str, Value]
    kept: frozenset[str]
    sized: set[str]
    declared: Mapping[str, Declared]
    nodes: dict[str, Node] = field(default_factory=dict)
    makers: dict[str, str] = field(default_factory=dict)
    readers: dict[str, dict[str, None]] = field(default_factory=dict)
    transposed: set[str] = field(default_factory=set)
    fixed: bool = False
    made: int = 0

    def add(self, node: Node) -> None:
        own, readers = node.name, self.readers
        self.nodes[own] = node
        for name in node.outputs:
            if name:
                self.makers[name] = own
        for name in node.inputs:
            read = readers.get(name)
            if read is None:
                readers[name] = {own: None}
            else:
                read[own] = None
        if node.op_type == "Transpose" and _order_of(node) is not None:
            self.transposed.update(node.outputs)

    def drop(self, node: Node) -> None:
        del self.nodes[node.name]
        self.transposed.difference_update(node.outputs)
        for name in node.outputs:
            self.makers.pop(name, None)
        for name in node.inputs:
            self.readers[name].pop(node.name, None)

    def change(self, node: Node, new: Node) -> None:
        """Puts ``new``, which has the same name, in the place of ``node``."""
        self.drop(node)
        self.add(new)

    def maker(self, name: str) -> Node | None:
        made_by = self.makers.get(name)
        return None if made_by is None else self.nodes[made_by]

    def rank(self, name: str) -> int | None:
        value = self.values.get(name)
        return None if value is None or value.shape is None else len(value.shape)

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Integers that the file has as constants."""
        value = self.values.get(name)
        if value is None or not value.is_constant or value.data is None or value.data_low is not None:
            return None
        return tuple(int(item) for item in value.data.reshape(-1)) if value.data.dtype.kind in "iu" else None

    def constant(self, numbers: Sequence[int], like: str) -> str:
        """A new constant of integers, of the type of ``like``."""
        value = self.values[like]
        name = self.new_name(like)
        assert value.data is not None
        self.values[name] = replace(value, data=np.array(numbers, value.data.dtype), shape=(len(numbers),))
        return name

    def new_name(self, name: str) -> str:
        self.made += 1
        return made_name(name, "moved", str(self.made))

    def reordered(self, name: str, order: Order) -> str:
        """A new value: ``name`` with its dimensions in another order."""
        value = self.values[name]
        assert value.shape is not None
        made = self.new_name(name)
        if name in self.sized:
            self.sized.add(made)
        low = value.shape_low
        self.values[made] = replace(
            value,
            shape=tuple(value.shape[place] for place in order),
            shape_low=None if low is None else tuple(low[place] for place in order),
            data=_moved(value.data, order),
            data_low=_moved(value.data_low, order),
        )
        return made

    def is_read(self, node: Node) -> bool:
        return any(name in self.kept or self.readers.get(name) for name in node.outputs)


def with_moved_transposes(graph: InferredGraph) -> InferredGraph:
    """``graph`` with its Transposes where ONNX Runtime's optimiser moves them; in bodies of control flow, too."""
    bodies = {key: with_moved_transposes(body) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    if not any(node.op_type == "Transpose" and _order_of(node) for node in graph.graph.nodes):
        return graph
    work = _Moving(
        values=dict(graph.values),
        kept=kept_values(graph),
        sized=sized(graph),
        declared=graph.graph.declared,
        fixed=all(isinstance(size, int) for declared in graph.graph.inputs for size in declared.shape or ()),
    )
    for node in graph.graph.nodes:
        work.add(node)
    leading = _leading_to_transposes(graph.graph.nodes, work)
    changed = False
    for node in graph.graph.nodes:
        current = work.nodes.get(node.name)
        if current is not None and not work.transposed.isdisjoint(current.inputs):
            changed |= any(_moves(work, current, place, leading) for place in range(len(current.inputs)))
    if not changed:
        return graph
    nodes = tuple(_in_order(work, [node.name for node in graph.graph.nodes]))
    return replace(graph, graph=replace(graph.graph, nodes=nodes), values=work.values)


def _order_of(node: Node | None) -> Order | None:
    """The order of a Transpose; None for another operator."""
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    given = node.attributes.get("perm")
    return tuple(place for place in given if isinstance(place, int)) if isinstance(given, tuple) else None


def _rule_of(node: Node) -> _Rule | None:
    return None if node.domain else RULES.get(node.op_type)


def _leading_to_transposes(nodes: Sequence[Node], work: _Moving) -> frozenset[str]:
    """Values that a Transpose reads, at once or behind operators that Transposes can move over."""
    found: set[str] = set()
    for node in reversed(nodes):
        if node.op_type == "Transpose" and _order_of(node) is not None:
            found.add(node.inputs[0])
            continue
        rule = None if found.isdisjoint(node.outputs) else _rule_of(node)
        if rule is not None and rule.transposes:
            found.update(node.inputs[place] for place in rule.operands(node, work))
    return frozenset(found)


def _moves(work: _Moving, node: Node, place: int, leading: frozenset[str]) -> bool:
    """Moves the Transpose that makes an input over ``node``, if there is one and it is worth its while."""
    transpose = work.maker(node.inputs[place])
    order = _order_of(transpose)
    if transpose is None or order is None:
        return False
    if _order_of(node) is not None:
        _merge(work, transpose, node)
        return True
    rule = _rule_of(node)
    if rule is None:
        return False
    operands = rule.operands(node, work)
    if place not in operands or not _is_known(work, node, operands):
        return False
    cost = sum(_cost(work, node.inputs[other], order) for other in operands)
    if cost < 0 and rule.transposes and leading.isdisjoint(node.outputs):
        cost += max(_counted_rank(work, name) for name in node.outputs)
    if cost >= 0:
        return False
    moved = rule.move(node, order, work)
    if moved is None:
        return False
    _apply(work, node, moved, order, operands)
    return True


def _is_known(work: _Moving, node: Node, operands: tuple[int, ...]) -> bool:
    """Whether the operands that would be reordered and the results have shapes: values whose sizes only a run tells, or
    that an unknown operator makes, have none."""
    names = (*(node.inputs[place] for place in operands), *filter(None, node.outputs))
    return all(work.rank(name) is not None for name in names)


def _counted_rank(work: _Moving, name: str) -> int:
    """Dimensions of a value that a Transpose would have to move, as far as ONNX Runtime knows: all but those of 1.

    It doesn't know the sizes behind a Reshape to a computed shape, and symbols stand for any size.
    """
    value = work.values.get(name)
    if value is None or value.shape is None:
        return UNKNOWN_RANK
    said = work.declared.get(name)
    if said is not None and said.shape is not None:
        return sum(size != 1 for size in said.shape)
    if name in work.sized:
        return sum(size != 1 for size in value.shape)
    maker = work.maker(name)
    reduced = maker is not None and _rule_of(maker) in (RULES["ReduceSum"], RULES["ArgMax"])
    return len(value.shape) - (value.shape.count(1) if reduced else 0)


def _cost(work: _Moving, name: str, order: Order) -> int:
    """What it costs to have a value in the order from before a Transpose by ``order``."""
    value = work.values.get(name)
    if value is not None and value.is_constant:
        return 0
    maker = work.maker(name)
    made = _order_of(maker)
    if made is None:
        return _counted_rank(work, name)
    goes = made == order and name not in work.kept
    goes = goes and all(_can_be_moved_over(work.nodes[reader], work) for reader in work.readers[name])
    return -_counted_rank(work, name) if goes else 0


def _can_be_moved_over(node: Node, work: _Moving) -> bool:
    rule = _rule_of(node)
    return _order_of(node) is not None or (rule is not None and bool(rule.operands(node, work)))


def _apply(work: _Moving, node: Node, moved: _Moved, order: Order, operands: tuple[int, ...]) -> None:
    """Puts the moved operator in the place of ``node``: its operands in the old order, Transposes behind it."""
    inverse = _inverse(order)
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
        outputs.append(work.reordered(name, _inverse(into)))
        behind.append((outputs[-1], name, into))
    new = replace(moved.node, inputs=tuple(inputs), outputs=tuple(outputs), origins=node.stands_for)
    work.change(node, new)
    gone: list[Origin] = []
    for made_by in dict.fromkeys(item.name for item in before):
        transpose = work.nodes[made_by]
        if _order_of(transpose) is not None and not work.is_read(transpose):
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
        _name_also(work, new, gone)


def _in_old_order(work: _Moving, name: str, inverse: Order, before: Sequence[Node]) -> str:
    """The value that an operand has in the order from before the Transpose: known already, or behind one more."""
    value = work.values[name]
    rank = work.rank(name)
    missing = 0 if rank is None else len(inverse) - rank
    if missing:
        name = _with_more_dimensions(work, name, missing)
    if value.is_constant:
        return work.reordered(name, inverse)
    maker = work.maker(name)
    made = _order_of(maker)
    if maker is not None and made is not None:
        left = _composed(made, inverse)
        source = maker.inputs[0]
        if left == tuple(range(len(left))):
            return source
        return _transposed(work, source, left, maker.stands_for)
    origins = tuple(dict.fromkeys(origin for node in before if _order_of(node) for origin in node.stands_for))
    return _transposed(work, name, inverse, origins)


def _with_more_dimensions(work: _Moving, name: str, count: int) -> str:
    """The value with ``count`` dimensions of 1 in front, as it broadcasts."""
    value = work.values[name]
    assert value.shape is not None
    made = work.new_name(name)
    work.values[made] = replace(
        value,
        shape=(*(1 for _ in range(count)), *value.shape),
        shape_low=None if value.shape_low is None else (*(1 for _ in range(count)), *value.shape_low),
        data=None,
        data_low=None,
    )
    maker = work.maker(name)
    if not value.is_constant:
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


def _transposed(work: _Moving, name: str, order: Order, origins: tuple[Origin, ...]) -> str:
    """The value behind a Transpose: one that there is already, or a new one."""
    for reader in work.readers.get(name, ()):
        if _order_of(work.nodes[reader]) == order:
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


def _merge(work: _Moving, first: Node, second: Node) -> None:
    """Two Transposes in a row become one, or none where they cancel."""
    order, behind = _order_of(first), _order_of(second)
    assert order is not None
    assert behind is not None
    both = _composed(order, behind)
    source, result = first.inputs[0], second.outputs[0]
    cancel = both == tuple(range(len(both)))
    if not cancel:
        new = replace(second, inputs=(source,), attributes={"perm": both})
    else:
        new = replace(second, op_type="Identity", inputs=(source,), attributes={})
    work.change(second, new)
    if not work.is_read(first):
        work.drop(first)
        new = _name_also(work, new, first.stands_for)
    if cancel and result not in work.kept:
        for reader in tuple(work.readers.get(result, ())):
            node = work.nodes[reader]
            inputs = tuple(source if name == result else name for name in node.inputs)
            work.change(node, replace(node, inputs=inputs, origins=node.stands_for))
        work.drop(new)
        owner = work.maker(source)
        if owner is not None:
            _name_also(work, owner, new.stands_for)


def _name_also(work: _Moving, node: Node, origins: Sequence[Origin]) -> Node:
    """``node`` stands for more of the file's nodes, which are gone."""
    new = replace(node, origins=tuple(dict.fromkeys((*node.stands_for, *origins))))
    work.nodes[node.name] = new
    return new


def _in_order(work: _Moving, places: Sequence[str]) -> Iterator[Node]:
    """The nodes, each behind those that make its inputs, otherwise as they stood."""
    done: set[str] = set()
    makers, nodes = work.makers, work.nodes
    # what is made by a node that isn't done yet, of those that stand: all that a place waits for
    waiting = set(makers)
    for name in (*places, *nodes):
        if name not in nodes or name in done:
            continue
        pending = [name]
        while pending:
            node = nodes[pending[-1]]
            waited = (
                () if waiting.isdisjoint(node.inputs) else [makers[item] for item in node.inputs if item in waiting]
            )
            if waited and node.name not in done:
                pending.extend(waited)
                continue
            pending.pop()
            if node.name not in done:
                done.add(node.name)
                waiting.difference_update(node.outputs)
                yield node


def _moved(data: Array | None, order: Order) -> Array | None:
    return None if data is None else data.transpose(order)


def _inverse(order: Order) -> Order:
    found = [0] * len(order)
    for place, source in enumerate(order):
        found[source] = place
    return tuple(found)


def _composed(first: Order, second: Order) -> Order:
    """The order of a Transpose by ``first`` and then by ``second``."""
    return tuple(first[place] for place in second)


def _squeezed(order: Order, places: Sequence[int]) -> Order:
    """``order`` without the result's dimensions ``places``."""
    sources = sorted(order[place] for place in range(len(order)) if place not in places)
    return tuple(sources.index(order[place]) for place in range(len(order)) if place not in places)


# --- what a Transpose can move over -----------------------------------------------------------------------------------


def _first(node: Node, work: _Moving) -> tuple[int, ...]:
    return (0,)


def _all(node: Node, work: _Moving) -> tuple[int, ...]:
    return tuple(range(len(node.inputs)))


def _not_scalars(node: Node, work: _Moving) -> tuple[int, ...]:
    return tuple(place for place, name in enumerate(node.inputs) if work.rank(name) != 0)


def _pointwise(node: Node, order: Order, work: _Moving) -> _Moved | None:
    return _Moved(node=node, orders=tuple(order for _ in node.outputs))


def _broadcast(node: Node, order: Order, work: _Moving) -> _Moved | None:
    ranks = [work.rank(name) for name in node.inputs]
    if any(rank is None or rank > len(order) for rank in ranks):
        return None
    return _pointwise(node, order, work)


def _axis(node: Node, order: Order, default: int) -> int | None:
    axis = node.attributes.get("axis", default)
    return axis % len(order) if isinstance(axis, int) else None


def _with(node: Node, **attributes: Attribute) -> Node:
    return replace(node, attributes={**node.attributes, **attributes})


def _over_axis(node: Node, order: Order, work: _Moving) -> _Moved | None:
    """Softmax and its kin since opset 13, and Concat: one axis."""
    if node.op_type != "Concat" and node.version < 13:
        return None
    axis = _axis(node, order, -1)
    return None if axis is None else _pointwise(_with(node, axis=order[axis]), order, work)


def _axes(node: Node, work: _Moving, place: int = 1) -> tuple[int, ...] | None:
    if len(node.inputs) > place and node.inputs[place]:
        return work.numbers(node.inputs[place])
    given = node.attributes.get("axes")
    return tuple(axis for axis in given if isinstance(axis, int)) if isinstance(given, tuple) else None


def _with_axes(node: Node, axes: Sequence[int], work: _Moving, place: int = 1) -> Node:
    if len(node.inputs) > place and node.inputs[place]:
        name = work.constant(axes, node.inputs[place])
        return replace(node, inputs=(*node.inputs[:place], name, *node.inputs[place + 1 :]))
    return _with(node, axes=tuple(axes))


def _reduction(node: Node, order: Order, work: _Moving) -> _Moved | None:
    axes = _axes(node, work)
    if axes is None and len(node.inputs) > 1 and node.inputs[1]:
        return None
    if not axes:
        has_order = node.attributes.get("keepdims", 1) or node.attributes.get("noop_with_empty_axes", 0)
        return _Moved(node=node, orders=(order if has_order else None,))
    places = [axis % len(order) for axis in axes]
    new = _with_axes(node, [order[place] for place in places], work)
    kept = node.attributes.get("keepdims", 1)
    return _Moved(node=new, orders=(order if kept else _squeezed(order, places),))


def _arg(node: Node, order: Order, work: _Moving) -> _Moved | None:
    axis = _axis(node, order, 0)
    if axis is None:
        return None
    kept = node.attributes.get("keepdims", 1)
    return _Moved(node=_with(node, axis=order[axis]), orders=(order if kept else _squeezed(order, [axis]),))


def _squeeze(node: Node, order: Order, work: _Moving) -> _Moved | None:
    axes = _axes(node, work)
    if axes is None:
        return None
    places = [axis % len(order) for axis in axes]
    new = _with_axes(node, sorted(order[place] for place in places), work)
    return _Moved(node=new, orders=(_squeezed(order, places),))


def _unsqueeze(node: Node, order: Order, work: _Moving) -> _Moved | None:
    axes = _axes(node, work)
    if axes is None:
        return None
    rank = len(order) + len(axes)
    new = {axis % rank for axis in axes}
    old = [place for place in range(rank) if place not in new]
    into = list(range(rank))
    for place, source in zip(old, order, strict=True):
        into[place] = old[source]
    return _Moved(node=node, orders=(tuple(into),))


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


def _reshape(node: Node, order: Order, work: _Moving) -> _Moved | None:
    """(6, 4, 5) -> (2, 3, 4, 5), whose input is (6, 5, 4) in the old order: (2, 3, 5, 4) and a Transpose.

    Only where it takes dimensions apart, into sizes that are constants, in a file that leaves no size open.
    """
    source, out = work.values[node.inputs[0]], work.values[node.outputs[0]]
    parts = _split_dimensions(source.shape, out.shape)
    if not work.fixed or parts is None or work.numbers(node.inputs[1]) is None:
        return None
    moved = [parts[place] for place in _inverse(order)]
    starts = [sum(len(part) for part in moved[:place]) for place in range(len(moved))]
    into = tuple(start + at for source in order for start in (starts[source],) for at in range(len(moved[source])))
    target = work.constant([size for part in moved for size in part], node.inputs[1])
    return _Moved(node=replace(node, inputs=(node.inputs[0], target)), orders=(into,))


def _split(node: Node, order: Order, work: _Moving) -> _Moved | None:
    """Parts of one place may be without the axis, as Gathers take them."""
    axis = _axis(node, order, 0)
    if axis is None:
        return None
    orders: list[Order] = []
    for name in node.outputs:
        value = work.values.get(name)
        if value is None or value.shape is None or value.data is not None:
            return None
        orders.append(_squeezed(order, [axis]) if len(value.shape) < len(order) else order)
    return _Moved(node=_with(node, axis=order[axis]), orders=tuple(orders))


def _by_one_index(node: Node, work: _Moving) -> tuple[int, ...]:
    """A Gather by a constant index without dimensions; others stay behind their Transpose."""
    index = work.values.get(node.inputs[1])
    return (0,) if index is not None and index.is_constant and index.shape == () else ()


def _gather(node: Node, order: Order, work: _Moving) -> _Moved | None:
    axis = _axis(node, order, 0)
    return None if axis is None else _Moved(node=_with(node, axis=order[axis]), orders=(_squeezed(order, [axis]),))


def _shape(node: Node, order: Order, work: _Moving) -> _Moved | None:
    """Sizes are known before the run: who reads them gets the same ones."""
    value = work.values.get(node.outputs[0])
    return None if value is None or value.data is None else _Moved(node=node, orders=(None,))


def _slice(node: Node, order: Order, work: _Moving) -> _Moved | None:
    if node.version < 10:
        axes = _axes(node, work, len(node.inputs))
        return None if axes is None else _pointwise(_with(node, axes=_reordered(axes, order)), order, work)
    starts = work.values.get(node.inputs[1])
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = work.numbers(node.inputs[3])
        if axes is None:
            return None
        return _pointwise(_with_axes(node, _reordered(axes, order), work, 3), order, work)
    like = node.inputs[1]
    if starts is None or starts.shape is None or starts.data is None:
        return None
    name = work.constant(_reordered(range(starts.data.size), order), like)
    work.values[name] = replace(work.values[name], is_constant=True)
    return _pointwise(replace(node, inputs=(*node.inputs[:3], name, *node.inputs[4:])), order, work)


def _reordered(axes: Sequence[int], order: Order) -> tuple[int, ...]:
    return tuple(order[axis % len(order)] for axis in axes)


def _pad(node: Node, order: Order, work: _Moving) -> _Moved | None:
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = work.numbers(node.inputs[3])
        return None if axes is None else _pointwise(_with_axes(node, _reordered(axes, order), work, 3), order, work)
    pads = work.numbers(node.inputs[1]) if node.version >= 11 else None
    if pads is None or len(pads) != 2 * len(order):
        return None
    rank = len(order)
    inverse = _inverse(order)
    name = work.constant([pads[side + place] for side in (0, rank) for place in inverse], node.inputs[1])
    return _pointwise(replace(node, inputs=(node.inputs[0], name, *node.inputs[2:])), order, work)


def _tile(node: Node, order: Order, work: _Moving) -> _Moved | None:
    repeats = work.numbers(node.inputs[1]) if len(node.inputs) == 2 else None
    if repeats is None or len(repeats) != len(order):
        return None
    name = work.constant([repeats[place] for place in _inverse(order)], node.inputs[1])
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

RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(_UNARY, _Rule(operands=_first, move=_pointwise)),
    **dict.fromkeys(_BROADCAST, _Rule(operands=_not_scalars, move=_broadcast)),
    **dict.fromkeys(_REDUCING, _Rule(operands=_first, move=_reduction)),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), _Rule(operands=_first, move=_over_axis)),
    **dict.fromkeys(("ArgMax", "ArgMin"), _Rule(operands=_first, move=_arg)),
    "Concat": _Rule(operands=_all, move=_over_axis),
    "Gather": _Rule(operands=_by_one_index, move=_gather),
    "Pad": _Rule(operands=_first, move=_pad),
    "Reshape": _Rule(operands=_first, move=_reshape, transposes=False),
    "Shape": _Rule(operands=_first, move=_shape, transposes=False),
    "Slice": _Rule(operands=_first, move=_slice),
    "Split": _Rule(operands=_first, move=_split),
    "Squeeze": _Rule(operands=_first, move=_squeeze),
    "Tile": _Rule(operands=_first, move=_tile),
    "Unsqueeze": _Rule(operands=_first, move=_unsqueeze),
}
