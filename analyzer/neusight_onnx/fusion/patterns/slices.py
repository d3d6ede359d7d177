"""Slices that exporters write by an index for each element: read by a Gather, assigned by a ScatterND."""

from __future__ import annotations

from neusight_onnx.fusion.patterns.search import OWN, Match, Search
from neusight_onnx.graph.model import COPIED_PLACES, Node, Value

_OF_INDICES = frozenset(
    {"Add", "Cast", "Concat", "ConstantOfShape", "Equal", "Expand", "Gather", "Identity", "Mul", "Range", "Reshape"}
    | {"Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where"}
)
"""Operators that exporters make the indices of a slice with."""
MOST_INDEX_NODES = 128
MOST_SETTLED_NUMBERS = 128
"""Known numbers that the host computes; more of them are a tensor of the GPU."""


def _is_settled(value: Value | None) -> bool:
    known = value is not None and value.data is not None and value.data.size <= MOST_SETTLED_NUMBERS
    return known or (value is not None and value.is_constant)


def slice_assignment(search: Search, anchor: Node) -> Match | str:
    """``x[..., a:b] = y``: exporters write a ScatterND and make an index for each element, from shapes alone."""
    made: dict[str, Node] = {}
    waiting = [anchor.inputs[1]]
    ranges = 0
    while waiting:
        name = waiting.pop()
        value = search.values.get(name)
        node = search.producers.get(name)
        if node is None or node.name in made or _is_settled(value):
            continue
        if node.op_type in ("Shape", "Size") and not node.domain:
            continue
        if node.domain or node.op_type not in _OF_INDICES or len(made) == MOST_INDEX_NODES:
            return "its indices don't follow from shapes alone"
        made[node.name] = node
        ranges += node.op_type == "Range"
        waiting.extend(node.inputs)
    if not ranges:
        return "its indices are no ranges"
    inner = {**made, anchor.name: anchor}
    shared = True
    while shared:
        shared = False
        for node in tuple(made.values()):
            users = [user.name for name in node.outputs for user in search.consumers.get(name, ())]
            leaks = any(name in search.kept for name in node.outputs) or any(user not in inner for user in users)
            if node.name in inner and (leaks or node.name in search.taken):
                del inner[node.name]
                shared = True
    return Match(
        nodes=tuple(inner.values()),
        op_type="SliceAssignment",
        inputs=(anchor.inputs[0], anchor.inputs[2]),
        output=anchor.outputs[0],
        domain=OWN,
    )


def gathered_range(search: Search, anchor: Node) -> Match | str:
    """``Gather(x, Range(a, b, 1))``: ``x[a:b]`` (GatherToSliceFusion of ONNX Runtime, 1.31)."""
    places = search.producers.get(anchor.inputs[1])
    if places is None or places.op_type != "Range" or places.domain:
        return "its places are no range"
    if search.fixed:
        return "the range is a constant where the file fixes all sizes"
    if places.outputs[0] in search.kept or len(search.consumers[places.outputs[0]]) != 1:
        return "its range is read elsewhere"
    first, last, step = (search.number(name) for name in places.inputs)
    if first is None or last is None or step != 1 or first < 0:
        return "its places aren't known or don't follow one another"
    axis = anchor.attributes.get("axis", 0)
    return Match(
        nodes=(places, anchor),
        op_type="Slice",
        inputs=(anchor.inputs[0],),
        output=anchor.outputs[0],
        version=1,  # whose places are attributes
        attributes={
            "starts": (int(first),),
            "ends": (int(last),),
            "axes": (axis if isinstance(axis, int) else 0,),
            COPIED_PLACES: len({name for name in places.inputs if not search.is_constant(name)}),
        },
    )
