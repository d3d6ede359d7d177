"""How the lengths of a cache hang together, as the operators that append to it have it: total = past + new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from neusight_onnx.graph.model import Array, Declared, Graph, Node, Value

_APPENDING: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = {
    ("", "Attention"): ((4, 1), (5, 2)),
    ("", "Concat"): ((0, 0),),
    ("com.microsoft", "Attention"): ((4, 1),),
    ("com.microsoft", "GroupQueryAttention"): ((3, 1), (4, 2)),
    ("com.microsoft", "MultiHeadAttention"): ((6, 1), (7, 2)),
}
"""(input of the past, output of the present), which is longer by the new tokens: onnx's Operators.md,
ContribOperators.md."""

_APPENDERS = frozenset(op_type for _, op_type in _APPENDING)

_TOTAL_LENGTH = 6
"""GroupQueryAttention's input total_sequence_length."""


def present_lengths(graph: Graph) -> dict[str, str]:
    """Symbol of a present -> that of the past which new tokens make it of, for pasts that are inputs of the model.

    Both are what the file declares where the two shapes differ, in one dimension. An If's branches count, too: what
    one makes is also declared as the If's output.
    """
    inputs = {declared.name: declared for declared in graph.inputs}
    found: dict[str, str] = {}
    for node, declared in _declared_around(graph):
        if node.op_type not in _APPENDERS:
            continue
        for past, present in _pairs(node):
            pair = _longer(inputs.get(past), declared.get(present))
            if pair is not None:
                found.setdefault(pair[1], pair[0])
    return found


def kept_buffers(graph: Graph, values: Mapping[str, Value]) -> frozenset[str]:
    """The presents that are as long as the past they continue: buffers with room for more tokens than there are.

    ONNX Runtime GenAI binds both to one, whose length is none of the total that the file calls it by.
    """
    return frozenset(
        present
        for node in graph.nodes
        if node.op_type in _APPENDERS
        for past, present in _pairs(node)
        if past in values and present in values and values[past].shape == values[present].shape is not None
    )


def _pairs(node: Node) -> Iterator[tuple[str, str]]:
    """The names of a past and its present."""
    for past, present in _APPENDING.get((node.domain, node.op_type), ()):
        if past < len(node.inputs) and present < len(node.outputs):
            yield node.inputs[past], node.outputs[present]


def _declared_around(graph: Graph) -> Iterator[tuple[Node, Mapping[str, Declared]]]:
    """The nodes of a graph and of its Ifs' branches, with what is declared there of values."""
    pending = [(graph, {**graph.declared, **{declared.name: declared for declared in graph.outputs}})]
    while pending:
        current, declared = pending.pop()
        for node in current.nodes:
            yield node, declared
            if node.op_type != "If" or node.domain:
                continue
            for body in node.attributes.values():
                if isinstance(body, Graph):
                    outputs = zip(body.outputs, node.outputs, strict=False)
                    made = {inner.name: declared[outer] for inner, outer in outputs if outer in declared}
                    own = {item.name: item for item in (*body.declared.values(), *body.outputs) if item.shape}
                    pending.append((body, made | own))


def _longer(past: Declared | None, present: Declared | None) -> tuple[str, str] | None:
    if past is None or present is None or past.shape is None or present.shape is None:
        return None
    pairs = [(old, new) for old, new in zip(past.shape, present.shape, strict=False) if old != new]
    if len(past.shape) != len(present.shape) or len(pairs) != 1:
        return None
    old, new = pairs[0]
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def total_lengths(graph: Graph, values: Mapping[str, Array]) -> dict[str, int]:
    """Input -> its value, for inputs that tell an attention operator how many tokens are past and new together."""
    return {
        name: int(values[name].ravel()[0])
        for node in graph.nodes
        if (node.domain, node.op_type) == ("com.microsoft", "GroupQueryAttention") and len(node.inputs) > _TOTAL_LENGTH
        for name in (node.inputs[_TOTAL_LENGTH],)
        if name in values and values[name].size
    }
