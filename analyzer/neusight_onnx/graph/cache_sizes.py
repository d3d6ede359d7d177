"""Sizes of a cache of keys and values that its inputs leave free, though the operators that read it fix them.

ONNX Runtime GenAI's builder gives the last dimension of a cache a symbol (``kv_cache_dim``), since one in four bits has
half of it, and another to the length of those that layers with a window keep (``past_sliding_length``). The operators
tell both: ContribOperators.md, GroupQueryAttention ("past_key", "sliding_window_cache") and MultiHeadAttention.
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


def cache_sizes(graph: Graph) -> dict[str, tuple[int, str]]:
    """Symbol -> its size and what that is, for dimensions of inputs that an attention operator reads as its past.

    The last one is the size of the heads, where the file tells how wide the queries are. The length is the window's of
    operators that keep no more than that.
    """
    free = {
        declared.name: declared.shape
        for declared in graph.inputs
        if declared.shape is not None
        and len(declared.shape) == 4
        and any(isinstance(dim, str) for dim in declared.shape[2:])
    }
    if not free:
        return {}
    producers: dict[str, Node] | None = None
    sizes: dict[str, tuple[int, str]] = {}
    for node in graph.nodes:
        for place in _CACHES.get((node.domain, node.op_type), ()):
            dims = free.get(node.inputs[place]) if place < len(node.inputs) else None
            if dims is None:
                continue
            length, last = dims[2:]
            if isinstance(length, str) and keeps_a_window(node):
                sizes.setdefault(length, (_count(node, "local_window_size"), "the window of its layers"))
            if isinstance(last, str) and last not in sizes:
                producers = producers or {output: other for other in graph.nodes for output in other.outputs}
                size = _head_size(graph, producers, node)
                if size is not None:
                    sizes[last] = (size, "the size of the heads")
    return sizes


def keeps_a_window(node: Node) -> bool:
    """Whether an attention operator's cache is as long as its window, however long the sequence."""
    return bool(_count(node, "sliding_window_cache")) and _count(node, "local_window_size") > 0


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
        if node.op_type == "MatMul" and len(node.inputs) > 1:
            weight = graph.initializers.get(node.inputs[1])
            return weight.shape[-1] if weight is not None and weight.shape else None
        if node.op_type not in ("Add", "Cast", "Identity") or not node.inputs:
            return None
        name = next((put for put in node.inputs if put not in graph.initializers), node.inputs[0])
    return None


def _count(node: Node, name: str) -> int:
    number = node.attributes.get(name)
    return number if isinstance(number, int) else 0
