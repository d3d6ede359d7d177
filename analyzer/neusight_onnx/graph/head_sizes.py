"""Sizes of heads that a cache of keys and values leaves free, though the operator that reads it fixes them.

ONNX Runtime GenAI's builder gives the last dimension of a cache a symbol (``kv_cache_dim``), since one in four bits has
half of it. The operator's queries tell it: ContribOperators.md, GroupQueryAttention and MultiHeadAttention, "past_key".
"""

from __future__ import annotations

from collections.abc import Mapping

from neusight_onnx.graph.model import Graph, Node

_CACHES: Mapping[tuple[str, str], tuple[int, int]] = {
    ("", "Attention"): (4, 5),
    ("com.microsoft", "GroupQueryAttention"): (3, 4),
    ("com.microsoft", "MultiHeadAttention"): (6, 7),
    ("com.microsoft", "SparseAttention"): (3, 4),
}
"""Which inputs are past keys and values, (b, g, t, d) each."""

_STEPS = 8
"""Operators in a row that are followed from queries back to a product whose width is known."""


def head_sizes(graph: Graph) -> dict[str, int]:
    """The sizes of symbols that are the last dimension of an input that an attention operator reads as its past.

    A cache whose queries' width isn't told by the file has none.
    """
    inputs = {declared.name: declared for declared in graph.inputs}
    free = {
        name: declared.shape[-1]
        for name, declared in inputs.items()
        if declared.shape is not None and len(declared.shape) == 4 and isinstance(declared.shape[-1], str)
    }
    if not free:
        return {}
    producers: dict[str, Node] | None = None
    sizes: dict[str, int] = {}
    for node in graph.nodes:
        for place in _CACHES.get((node.domain, node.op_type), ()):
            symbol = free.get(node.inputs[place]) if place < len(node.inputs) else None
            if not isinstance(symbol, str) or symbol in sizes:
                continue
            if producers is None:
                producers = {output: other for other in graph.nodes for output in other.outputs}
            size = _head_size(graph, producers, node)
            if size is not None:
                sizes[symbol] = size
    return sizes


def _head_size(graph: Graph, producers: Mapping[str, Node], node: Node) -> int | None:
    """query (b, s, h d), or packed (b, s, (h + 2 g) d), or (b, h, s, d) -> d; half of it in four bits."""
    width = _width(graph, producers, node.inputs[0])
    if width is None:
        return None
    declared = graph.declared.get(node.inputs[0])
    if node.op_type == "Attention" and declared is not None and len(declared.shape or ()) == 4:
        return width
    heads = _count(node, "q_num_heads") or _count(node, "num_heads")
    groups = _count(node, "kv_num_heads") or heads
    is_packed = len(node.inputs) < 2 or not node.inputs[1]
    count = heads + 2 * groups if is_packed else heads
    if count < 1 or width % count:
        return None
    size = width // count
    return (size + 1) // 2 if _count(node, "kv_cache_bit_width") == 4 else size


def _width(graph: Graph, producers: Mapping[str, Node], name: str) -> int | None:
    """The last dimension of a value: as the file declares it, or by the weight of the product that it comes from."""
    for _ in range(_STEPS):
        declared = graph.declared.get(name)
        last = declared.shape[-1] if declared is not None and declared.shape else None
        if isinstance(last, int) and last > 0:
            return last
        node = producers.get(name)
        if node is None:
            return None
        if node.op_type == "MatMulNBits":
            return _count(node, "N") or None
        if node.op_type == "MatMul":
            weight = graph.initializers.get(node.inputs[1])
            return weight.shape[-1] if weight is not None and weight.shape else None
        if node.op_type not in ("Add", "Cast", "Identity") or not node.inputs:
            return None
        name = next((put for put in node.inputs if put not in graph.initializers), node.inputs[0])
    return None


def _count(node: Node, name: str) -> int:
    number = node.attributes.get(name)
    return number if isinstance(number, int) else 0
