"""Keys and values of earlier tokens: which output continues which input, and whether both are one buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.graph.paged_sizes import PAGED, TABLE

_PAIRS: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {
    ("", "Attention"): ((4, 1), (5, 2)),
    ("", "TensorScatter"): ((0, 0),),
    ("com.microsoft", "Attention"): ((4, 1),),
    ("com.microsoft", "QAttention"): ((8, 1),),
    ("com.microsoft", "DecoderMaskedSelfAttention"): ((4, 1),),
    ("com.microsoft", "MultiHeadAttention"): ((6, 1), (7, 2)),
    ("com.microsoft", "DecoderMaskedMultiHeadAttention"): ((5, 1), (6, 2)),
    ("com.microsoft", "GroupQueryAttention"): ((3, 1), (4, 2)),
    ("com.microsoft", "SparseAttention"): ((3, 1), (4, 2)),
    ("com.microsoft", "PagedAttention"): ((3, 1), (4, 2)),
    ("com.microsoft", "SparsePagedAttention"): ((3, 1), (4, 2)),
}
"""(input of the past, output of the present) by operator: the operators' documentation (onnx, ContribOperators.md)."""

_SHARING = frozenset(
    {"TensorScatter", "GroupQueryAttention", "SparseAttention", "PagedAttention", "SparsePagedAttention"}
)
"""Operators documented to update the cache in place where past and present are bound to one buffer."""

_PASSING = frozenset({"Cast", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose"}) | {
    "Unsqueeze"
}
"""Operators behind which a cache's content is still the same: how exporters pack and unpack it."""

_STEPS = 8
"""Such operators in a row that are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePair:
    """An output of the model that is an input with something appended. ``shared``: both are the same memory.

    ``new_tokens``: so many a sample, of a paged cache on average; None where that isn't known.
    """

    past: str
    present: str
    shared: bool
    new_tokens: float | None = None


def cache_pairs(graph: InferredGraph) -> tuple[CachePair, ...]:
    """The caches of a model: inputs that an attention operator, or a Concat, continues into an output.

    In the only branch of an If that can run, too: decoders whose first step is another branch.
    """
    inputs = {name for declared in graph.graph.inputs if _holds_numbers(graph, name := declared.name)}
    if not inputs:
        return ()
    outputs = {declared.name for declared in graph.graph.outputs}
    pairs = list(_pairs_of(graph, inputs, outputs))
    for node in graph.graph.nodes:
        if node.op_type != "If" or node.domain:
            continue
        taken = [body for (name, _), body in graph.bodies.items() if name == node.name]
        if len(taken) == 1:
            (body,) = taken
            names = dict(zip((item.name for item in body.graph.outputs), node.outputs, strict=False))
            around = replace(body, values={**{name: graph.values[name] for name in inputs}, **body.values})
            found = _pairs_of(around, inputs, {name for name, outer in names.items() if outer in outputs})
            pairs += [replace(pair, present=names[pair.present]) for pair in found]
    return tuple(pairs)


def _pairs_of(graph: InferredGraph, inputs: set[str], outputs: set[str]) -> tuple[CachePair, ...]:
    """Those of one graph's own nodes, between the model's inputs and the graph's outputs."""
    asking = [node for node in graph.graph.nodes if (node.domain, node.op_type) in _PAIRS]
    joins = [node for node in graph.graph.nodes if node.op_type == "Concat" and not node.domain]
    if not asking and not joins:
        return ()
    producers: dict[str, Node] = {}
    onward: dict[str, str] = {}
    for node in graph.graph.nodes:
        if node.domain or not node.inputs:
            continue
        passes = node.op_type in _PASSING
        for name in node.outputs:
            if passes:
                producers[name] = node
        # New keys and values are packed with others by a Concat of unsqueezed parts; that is no cache by itself.
        if passes or node.op_type == "Concat":
            for name in node.inputs[:1] if passes else node.inputs:
                if node.outputs and (name not in onward or node.outputs[0] in outputs):
                    onward[name] = node.outputs[0]
    found: dict[str, CachePair] = {}
    for node in asking:
        for past, present in _PAIRS[(node.domain, node.op_type)]:
            if past < len(node.inputs) and present < len(node.outputs):
                first = _back(node.inputs[past], inputs, producers)
                last = _ahead(node.outputs[present], outputs, onward)
                if first is not None and last is not None:
                    # behind casts the operator's own past and present are other buffers than the model's
                    direct = (first, last) == (node.inputs[past], node.outputs[present])
                    shared = direct and _is_shared(node)
                    found[last] = CachePair(past=first, present=last, shared=shared, new_tokens=_appended(graph, node))
    for node in joins:
        start = _back(node.inputs[0], inputs, producers) if len(node.inputs) == 2 else None
        if start is None or not _holds_numbers(graph, start):
            continue
        end = _ahead(node.outputs[0], outputs, onward)
        if end is not None and end not in found and _grew(graph, node):
            count = _growth(graph, node.inputs[0], node.outputs[0])
            found[end] = CachePair(past=start, present=end, shared=False, new_tokens=count)
    return tuple(found.values())


def _growth(graph: InferredGraph, before: str, after: str) -> int | None:
    """By how much the one dimension is longer in which two values differ."""
    first, last = (graph.values.get(name) for name in (before, after))
    if first is None or last is None or first.shape is None or last.shape is None:
        return None
    pairs = [(old, new) for old, new in zip(first.shape, last.shape, strict=False) if old != new]
    if len(first.shape) != len(last.shape) or len(pairs) != 1:
        return None
    return pairs[0][1] - pairs[0][0]


_TOKEN_AXES = {3: 1, 4: 2, 5: 1}
"""Rank of an operator's queries, (b, s, h d), (b, h, s, d) or packed (b, s, h, 3, d) -> their dimension of tokens."""


def _appended(graph: InferredGraph, node: Node) -> float | None:
    """How many tokens a sample an operator appends to a cache: its queries, whatever the cache grows by."""
    queries = graph.values.get(node.inputs[1 if node.op_type == "TensorScatter" else 0])
    if queries is None or queries.shape is None:
        return None
    if (node.domain, node.op_type) in PAGED:
        table = graph.values.get(node.inputs[TABLE]) if len(node.inputs) > TABLE else None
        return _share(queries.shape[0], table.shape[0]) if table is not None and table.shape else None
    if node.op_type == "TensorScatter":
        return queries.shape[_attribute_axis(node, len(queries.shape))]
    axis = _TOKEN_AXES.get(len(queries.shape))
    return None if axis is None else queries.shape[axis]


def _share(tokens: int, sequences: int) -> float | None:
    """Tokens of each of so many sequences whose tokens are packed in one row; an int where all can have as many."""
    if not sequences:
        return None
    return tokens / sequences if tokens % sequences else tokens // sequences


def _attribute_axis(node: Node, rank: int) -> int:
    axis = node.attributes.get("axis")
    return (axis if isinstance(axis, int) else -2) % rank


def _is_shared(node: Node) -> bool:
    return node.op_type in _SHARING or node.attributes.get("past_present_share_buffer") == 1


def _back(name: str, inputs: set[str], producers: Mapping[str, Node]) -> str | None:
    for _ in range(_STEPS):
        if name in inputs:
            return name
        node = producers.get(name)
        if node is None:
            return None
        name = node.inputs[0]
    return None


def _ahead(name: str, outputs: set[str], onward: Mapping[str, str]) -> str | None:
    for _ in range(_STEPS):
        if name in outputs:
            return name
        following = onward.get(name)
        if following is None:
            return None
        name = following
    return None


def _holds_numbers(graph: InferredGraph, name: str) -> bool:
    value = graph.values.get(name)
    if value is None or value.dtype is None or value.dtype is DataType.BOOL:
        return False
    return value.dtype.is_float or value.dtype.bits <= 8  # quantised caches are of 4 or 8 bits, masks and ids wider


def _grew(graph: InferredGraph, node: Node) -> bool:
    """Whether a Concat appends tokens to rows: three dimensions or more (heads or layers, tokens, channels)."""
    value = graph.values.get(node.outputs[0])
    return value is not None and value.shape is not None and len(value.shape) >= 3
