"""Which branch of an If a run takes that continues a cache.

Optimum merges a decoder's first step and those behind it into one file ("decoder_model_merged.onnx"): an If whose
condition is an input (``use_cache_branch``) runs nodes that read the past keys and values, or others that don't. Sizes
that say that there is a past say with it which of them is meant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from neusight_onnx.graph.model import Graph, Node, Value

_PASSING = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_STEPS = 8
"""Operators in a row that are followed from a condition back to an input."""


def cache_branches(graph: Graph, caches: Collection[str]) -> dict[str, bool]:
    """Input -> the value of it with which a run reads its past: the condition of an If of which just one branch does.

    ``caches``: the names of the inputs that hold the past. An input of which Ifs disagree has no entry.
    Nodes that lack inputs, which nobody has looked for yet, are passed over.
    """
    if not caches:
        return {}
    conditions = [node for node in graph.nodes if node.op_type == "If" and not node.domain and node.inputs]
    inputs = {declared.name for declared in graph.inputs}
    producers = {name: node for node in graph.nodes for name in node.outputs} if conditions else {}
    found: dict[str, set[bool]] = {}
    for node in conditions:
        source = node.inputs[0]
        for _ in range(_STEPS):
            maker = producers.get(source)
            if maker is None or maker.op_type not in _PASSING or maker.domain or not maker.inputs:
                break
            source = maker.inputs[0]
        then, other = (_reads(node, name, caches) for name in ("then_branch", "else_branch"))
        if source in inputs and then != other:
            found.setdefault(source, set()).add(then)
    return {name: branches.pop() for name, branches in found.items() if len(branches) == 1}


def _reads(node: Node, branch: str, names: Collection[str]) -> bool:
    """Whether a branch, or what is nested in it, reads one of these values of the graph around."""
    first = node.attributes.get(branch)
    pending = [first] if isinstance(first, Graph) else []
    while pending:
        body = pending.pop()
        for inner in body.nodes:
            if any(name in names for name in inner.inputs):
                return True
            pending.extend(value for value in inner.attributes.values() if isinstance(value, Graph))
    return False


def left_empty(graph: Graph, values: Mapping[str, Value]) -> frozenset[str]:
    """The outputs that an If of ``graph`` leaves without elements: names in their shapes tell of its other branch.

    A merged decoder's step returns no keys of the encoder's tokens, which the first step has returned.
    """
    return frozenset(
        name
        for node in graph.nodes
        if node.op_type == "If" and not node.domain
        for name in node.outputs
        if name in values and 0 in (values[name].shape or ())
    )
