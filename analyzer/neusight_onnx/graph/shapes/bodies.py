"""What the rules of If, Loop, Scan and SequenceMap share: joining what may come out, keeping a body for each trip."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import shown
from neusight_onnx.graph.model import (
    Array,
    Attribute,
    Declared,
    Graph,
    InferredGraph,
    Node,
    Value,
    name_in_trip,
)
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.sequence import greatest

KEPT_NODES = 2_000
"""Nodes of all trips of one loop, together, up to which trips of different sizes are costed one by one.

A budget of time and of rows in the report: from lowering to the report a node takes some 0.5 ms, so this is 1 s.
"""


def known_array(value: Value | None) -> Array | None:
    """The content of a value if it is exact."""
    return None if value is None or value.data_low is not None else value.data


def known_integer(value: Value | None) -> int | None:
    """The only element of a value, if it is known exactly."""
    data = known_array(value)
    return None if data is None or data.size != 1 else int(data.ravel()[0])


def outputs_of(body: InferredGraph) -> list[Value]:
    unknown = Value(dtype=None, shape=None, unknown_because=body.graph.name)
    return [body.values.get(output.name, unknown) for output in body.graph.outputs]


def node_count(graph: Graph) -> int:
    """Nodes of a graph and of the bodies in it."""
    count = 0
    pending = [graph]
    while pending:
        current = pending.pop()
        count += len(current.nodes)
        for node in current.nodes:
            for attribute in node.attributes.values():
                if isinstance(attribute, Graph):
                    pending.append(attribute)
                elif isinstance(attribute, tuple):
                    pending.extend(item for item in attribute if isinstance(item, Graph))
    return count


# --- One of several values --------------------------------------------------------------------------------------------


def without_content(value: Value) -> Value:
    """The value's shape, exact as it is; its content may be another."""
    if value.data is None and value.data_low is None and not value.is_constant:
        return value
    return replace(value, data=None, data_low=None, is_constant=False)


def any_of(values: Sequence[Value]) -> Value:
    """What is known of a value that is one of these: exact where they agree, else between the least and the most."""
    first = values[0]
    if any(value.kind != first.kind for value in values):
        return without_content(first)
    if first.kind != "tensor":
        return _any_list(values)
    if any(value.shape is None for value in values):
        return next(value for value in values if value.shape is None)
    if any(value.shape != first.shape or value.is_bound for value in values):
        return _between(values)
    if any(value.data is None for value in values):
        return without_content(first)
    return _joined_content(values)


def _any_list(values: Sequence[Value]) -> Value:
    """Sequences: member by member, as many as the longest has; optionals, and unknown members: what any can be."""
    first = values[0]
    lists = [value.elements for value in values if value.elements is not None]
    lengths = {len(elements) for elements in lists}
    if len(lists) == len(values) and (len(lengths) == 1 or first.kind == "sequence"):
        elements = tuple(
            any_of([members[place] for members in lists if place < len(members)]) for place in range(max(lengths))
        )
        least = min(len(value.elements or ()) if value.length_low is None else value.length_low for value in values)
        length_low = None if least == len(elements) else least
        if not elements:
            return replace(first, is_constant=False)
        joined = greatest(elements)
        return replace(joined, kind=first.kind, elements=elements, length_low=length_low, is_constant=False)
    members = [member for value in values for member in value.elements or ()]
    members += [replace(value, kind="tensor") for value in values if value.elements is None]
    if not members:
        return replace(first, elements=None, length_low=None, is_constant=False)
    return replace(greatest(members), kind=first.kind, elements=None, length_low=None, is_constant=False)


def _between(values: Sequence[Value]) -> Value:
    ranks = {len(value.shape) for value in values if value.shape is not None}
    if len(ranks) == 1:
        return replace(greatest(values), data=None, data_low=None, is_constant=False)
    largest = max(values, key=lambda value: value.element_count)
    assert largest.shape is not None
    return Value(dtype=largest.dtype, shape=largest.shape, is_bound=True, shape_low=(0,) * len(largest.shape))


def _joined_content(values: Sequence[Value]) -> Value:
    """Tensors of one shape with known content: the content where all agree, an interval of integers else."""
    first = values[0]
    highs = [value.data for value in values if value.data is not None]
    lows = [value.data if value.data_low is None else value.data_low for value in values]
    ends = [*highs, *(low for low in lows if low is not None)]
    if all(np.array_equal(end, ends[0]) for end in ends):
        return replace(first, is_constant=False)
    if first.dtype is None or not (first.dtype.is_integer or first.dtype is DataType.BOOL):
        return without_content(first)
    return replace(first, data=np.maximum.reduce(ends), data_low=np.minimum.reduce(ends), is_constant=False)


# --- Bodies of several trips ------------------------------------------------------------------------------------------


def keep_trips(ctx: NodeContext, attribute: str, trips: Sequence[InferredGraph]) -> None:
    """Record the body of each trip: alike ones once, with how many trips each stands for.

    Where that would be too many nodes, equally long stretches of trips have the sizes of the trip in their middle;
    that is said.
    """
    groups: list[tuple[int, InferredGraph]] = []
    known: dict[object, int] = {}
    for body in trips:
        place = known.setdefault(_sizes(body), len(groups))
        if place == len(groups):
            groups.append((1, body))
        else:
            groups[place] = (groups[place][0] + 1, groups[place][1])
    most = max(KEPT_NODES // max(max(map(_kept_nodes, (body for _, body in groups)), default=1), 1), 1)
    if len(groups) > most:
        ends = [len(trips) * index // most for index in range(most + 1)]
        groups = [(end - start, trips[(start + end) // 2]) for start, end in pairwise(ends)]
        which = (
            f"those of trip {len(trips) // 2 + 1} stand for the average"
            if most == 1
            else f"{most} of them, evenly spaced, stand for all"
        )
        ctx.session.assume(
            f"{ctx.node.op_type} '{shown(ctx.node.name)}': sizes change from trip to trip, and {len(trips)} are too "
            f"many to cost one by one; {which}"
        )
    keep_groups(ctx, attribute, groups)


def keep_groups(ctx: NodeContext, attribute: str, groups: Sequence[tuple[int, InferredGraph]]) -> None:
    """Record bodies, each with how many trips it stands for."""
    ctx.session.keep_bodies(
        ctx.node,
        attribute,
        [
            (count, body if index == 0 else _renamed(body, name_in_trip("", ctx.node.name, index), {}, ()))
            for index, (count, body) in enumerate(groups)
        ],
    )


def _kept_nodes(body: InferredGraph) -> int:
    return len(body.graph.nodes) + sum(map(_kept_nodes, body.bodies.values()))


def _own(body: InferredGraph) -> Mapping[str, Value]:
    return body.values.maps[0] if isinstance(body.values, ChainMap) else body.values


def _sizes(body: InferredGraph) -> object:
    """All that decides what a body costs; two bodies of one graph with equal ones cost the same."""
    return (
        tuple([_size(value) for value in _own(body).values()]),
        tuple(body.idle),
        tuple((name, trips.count) for name, trips in body.trip_counts.items()),
        tuple(body.repeats.items()),
        tuple((key, _sizes(inner)) for key, inner in body.bodies.items()),
    )


def _size(value: Value) -> object:
    members = None if value.elements is None else tuple([_size(element) for element in value.elements])
    return value.shape, value.dtype, value.data is None, value.is_constant, members


def _renamed(
    body: InferredGraph, suffix: str, names: Mapping[str, str], outer: Sequence[MutableMapping[str, Value]]
) -> InferredGraph:
    """The body with other names for its nodes and values, which are unique in a model; ``origins`` keep the file's.

    Constants keep their names: they are the same in every trip. ``names``, ``outer``: of the bodies around it.
    """
    own = _own(body)
    changed = {
        **names,
        **{
            name: name + suffix
            for name, value in own.items()
            if not value.is_constant and name not in body.graph.initializers
        },
    }
    around = tuple(outer) or (tuple(body.values.maps[1:]) if isinstance(body.values, ChainMap) else ())
    renamed = {changed.get(name, name): value for name, value in own.items()}
    maps = (renamed, *around)
    return replace(
        body,
        graph=_renamed_graph(body.graph, suffix, changed),
        values=ChainMap(*maps),
        bodies={
            (node + suffix, attribute): _renamed(inner, suffix, changed, maps)
            for (node, attribute), inner in body.bodies.items()
        },
        trip_counts={node + suffix: trips for node, trips in body.trip_counts.items()},
        idle={(node + suffix, attribute): reason for (node, attribute), reason in body.idle.items()},
        repeats={node + suffix: kept for node, kept in body.repeats.items()},
    )


def _renamed_graph(graph: Graph, suffix: str, names: Mapping[str, str]) -> Graph:
    """The graph and the bodies in it; what they define themselves has new names in ``names`` already or gets none."""

    def declared(items: tuple[Declared, ...]) -> tuple[Declared, ...]:
        return tuple(replace(item, name=names.get(item.name, item.name)) for item in items)

    def attribute(value: Attribute) -> Attribute:
        return _renamed_graph(value, suffix, names) if isinstance(value, Graph) else value

    def node(item: Node) -> Node:
        has_bodies = any(isinstance(value, Graph) for value in item.attributes.values())
        return replace(
            item,
            name=item.name + suffix,
            inputs=tuple(names.get(name, name) for name in item.inputs),
            outputs=tuple(names.get(name, name) for name in item.outputs),
            attributes=(
                {name: attribute(value) for name, value in item.attributes.items()} if has_bodies else item.attributes
            ),
            origins=item.stands_for,
        )

    return replace(
        graph,
        nodes=tuple(node(item) for item in graph.nodes),
        inputs=declared(graph.inputs),
        outputs=declared(graph.outputs),
    )


# --- Along an axis ----------------------------------------------------------------------------------------------------


def stacked(value: Value, trips: int, low_trips: int, axis: int) -> Value:
    """Slices of one shape put side by side along a new axis."""
    if value.shape is None:
        return value
    place = axis if axis >= 0 else axis + len(value.shape) + 1
    shape = (*value.shape[:place], trips, *value.shape[place:])
    floor = (value.shape_low or (0,) * len(value.shape)) if value.is_bound else value.shape
    low = (*floor[:place], low_trips, *floor[place:])
    is_bound = low != shape
    return Value(dtype=value.dtype, shape=shape, is_bound=is_bound, shape_low=low if is_bound else None)
