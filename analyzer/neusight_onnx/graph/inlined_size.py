"""How large a model is once its functions are inlined, counted before anything is inlined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neusight_onnx.errors import ModelError, shown
from neusight_onnx.graph.arrangement import with_bodies
from neusight_onnx.graph.raw import FunctionKey, RawFunction, RawModel, RawNode

MAX_NODES = 1_000_000
"""Nodes (and calls) after inlining; a file beyond it is a bomb: a few bytes can double the count at each level."""

MAX_CALLS = 64
"""Depth of functions and subgraphs within each other; exporters reach some ten."""


def refuse_bombs(model: RawModel) -> None:
    """Counts the nodes and calls after inlining before anything is inlined; finds functions that call themselves."""
    counts: dict[FunctionKey, int] = {}
    total = _inlined_count(model.graph.nodes, model.functions, counts, ())
    if total > MAX_NODES:
        raise ModelError(f"has more than {MAX_NODES:,} nodes with its functions inlined; it looks like a bomb")


def _inlined_count(
    nodes: Sequence[RawNode],
    functions: Mapping[FunctionKey, RawFunction],
    counts: dict[FunctionKey, int],
    calls: tuple[FunctionKey, ...],
) -> int:
    if len(calls) > MAX_CALLS:
        raise ModelError(f"nests functions more than {MAX_CALLS} deep")
    total = 0
    for node in with_bodies(nodes):
        total += 1
        key = (node.domain, node.op_type, node.overload)
        function = functions.get(key)
        if function is None:
            continue
        if key in calls:
            raise ModelError(f"has a function that calls itself: {shown(function.name)!r}")
        if key not in counts:
            counts[key] = _inlined_count(function.nodes, functions, counts, (*calls, key))
        total += counts[key]
    return total
