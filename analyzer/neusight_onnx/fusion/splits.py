"""How ONNX Runtime takes one tensor apart: Slices and Gathers as one Split.

As its optimiser writes files (GatherSliceToSplitFusion, 1.32; ``benchmarks/fusion_ort.py`` compares): queries, keys and
values that lie in one tensor, halves of a rotary embedding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from neusight_onnx.graph.model import InferredGraph, Node, Value
from neusight_onnx.graph.reshape_targets import becomes_constant


@dataclass(frozen=True, slots=True)
class _Part:
    """What a Slice or a Gather by one index takes along ``axis``: [``start``, ``stop``), ``kept`` as a dimension."""

    axis: int
    start: int
    stop: int
    kept: bool


def taken_apart(graph: InferredGraph) -> InferredGraph:
    """``graph`` with one Split where operators take a tensor apart; bodies of control flow, too."""
    bodies = {key: taken_apart(body) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    return _as_splits(graph)


def _as_splits(graph: InferredGraph) -> InferredGraph:
    splits: dict[str, Node] = {}
    gone: set[str] = set()
    known: set[str] | None = None
    fixed = fixes_sizes(graph)
    inputs = {declared.name: declared for declared in graph.graph.inputs}
    taken: dict[str, list[Node]] = defaultdict(list)
    for node in graph.graph.nodes:
        if node.op_type in ("Gather", "Slice"):
            for name in dict.fromkeys(node.inputs):
                taken[name].append(node)
    for name, nodes in taken.items():
        value = graph.values.get(name)
        if len(nodes) < 2 or value is None or value.is_constant or value.data is not None or value.shape is None:
            continue
        known = sized(graph) if known is None else known
        if name not in known:
            continue
        parts = [_part(node, name, value.shape, graph.values, fixed=fixed) for node in nodes]
        places = sorted((part.start, part.stop, at) for at, part in enumerate(parts) if part is not None)
        axes = {part.axis for part in parts if part is not None}
        if len(places) < len(nodes) or len(axes) != 1:
            continue
        (axis,) = axes
        said = inputs.get(name, graph.graph.declared.get(name))
        if said is not None and said.shape is not None and not isinstance(said.shape[axis], int):
            continue  # as many parts as it has at these sizes
        ends = [0, *(stop for _, stop, _ in places)]
        if any(start != end for (start, _, _), end in zip(places, ends, strict=False)) or ends[-1] != value.shape[axis]:
            continue
        first = nodes[0]
        splits[first.name] = Node(
            name=first.name,
            op_type="Split",
            version=first.version,
            inputs=(name,),
            outputs=tuple(nodes[at].outputs[0] for _, _, at in places),
            attributes={"axis": axis},
            origins=tuple(origin for node in nodes for origin in node.stands_for),
        )
        gone.update(node.name for node in nodes[1:])
    if not splits:
        return graph
    listed = (splits.get(node.name, node) for node in graph.graph.nodes if node.name not in gone)
    return replace(graph, graph=replace(graph.graph, nodes=tuple(listed)))


def fixes_sizes(graph: InferredGraph) -> bool:
    """Whether the file leaves no size of an input open: what follows from sizes is a constant then."""
    return all(isinstance(size, int) for declared in graph.graph.inputs for size in declared.shape or ())


def sized(graph: InferredGraph) -> set[str]:
    """Values of which ONNX Runtime knows more than the open sizes: behind a Reshape to what is computed it knows none.

    A Reshape whose target its optimiser makes a constant of is none of those, nor one whose result the file declares.
    A target that something else reads, another Reshape say, stays as it is.
    """
    values = graph.values
    found = {declared.name for declared in graph.graph.inputs}
    if fixes_sizes(graph):
        return found.union(*(node.outputs for node in graph.graph.nodes))
    producers = {name: node for node in graph.graph.nodes for name in node.outputs if name}
    reads = Counter(name for node in graph.graph.nodes for name in node.inputs)
    for node in graph.graph.nodes:
        if not node.inputs:
            found.update(node.outputs)
            continue
        given = [name for name in node.inputs if name and not ((value := values.get(name)) and value.is_constant)]
        if node.op_type == "Reshape" and not node.domain and len(node.inputs) > 1:
            source, target = node.inputs[:2]
            made = producers.get(target)
            known = target not in given or (
                made is not None
                and made.op_type == "Concat"
                and reads[target] == 1
                and becomes_constant(made, source, producers, values)
            )
        elif node.op_type == "Expand" and not node.domain:
            known = node.inputs[1] not in given
        elif node.op_type == "Concat":
            known = found.issuperset(given)
        else:
            known = not given or not found.isdisjoint(given)
        if known:
            found.update(node.outputs)
            continue
        for name in node.outputs:
            said = graph.graph.declared.get(name)
            if said is not None and said.shape is not None:
                found.add(name)
    return found


def _part(node: Node, source: str, shape: tuple[int, ...], values: Mapping[str, Value], *, fixed: bool) -> _Part | None:
    """What a node takes of ``source``; None if that isn't known to be one range along one axis."""
    if node.domain or node.inputs[0] != source or node.inputs.count(source) > 1:
        return None
    if node.op_type == "Gather":
        index = _numbers(values, node.inputs[1], fixed=fixed)
        axis = node.attributes.get("axis", 0)
        wanted = values.get(node.inputs[1])
        if index is None or len(index) != 1 or not isinstance(axis, int) or wanted is None:
            return None
        axis %= len(shape)
        start = index[0] % shape[axis] if shape[axis] else 0
        return _Part(axis, start, start + 1, bool(wanted.shape))
    if len(node.inputs) < 3:
        return None
    given = [_numbers(values, name, fixed=fixed) if name else None for name in node.inputs[1:]]
    starts, ends = given[0], given[1]
    axes = given[2] if len(node.inputs) > 3 and node.inputs[3] else (0,)
    steps = given[3] if len(node.inputs) > 4 and node.inputs[4] else (1,)
    if starts is None or ends is None or axes is None or steps != (1,) or len(starts) != 1 or len(axes) != 1:
        return None
    axis = axes[0] % len(shape)
    start, stop, _ = slice(starts[0], ends[0]).indices(shape[axis])
    return _Part(axis, start, stop, True) if start < stop else None


def _numbers(values: Mapping[str, Value], name: str, *, fixed: bool) -> tuple[int, ...] | None:
    """Integers that the file has as constants, or that follow from sizes where it has those ``fixed`` (the halves of
    torch's ``chunk``); what follows from open sizes the optimiser doesn't know."""
    value = values.get(name)
    if (
        value is None
        or not (value.is_constant or fixed)
        or value.data is None
        or value.data_low is not None
        or value.data.dtype.kind not in "iu"
    ):
        return None
    return tuple(int(item) for item in np.asarray(value.data).reshape(-1))
