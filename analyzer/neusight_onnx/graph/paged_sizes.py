"""Sizes that a paged cache's inputs leave free, though PagedAttention makes them of others (ContribOperators.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from neusight_onnx.errors import shown
from neusight_onnx.graph.model import Declared, Dim, Graph, Node

PAGED = frozenset({("com.microsoft", "PagedAttention"), ("com.microsoft", "SparsePagedAttention")})
QUERY, KEY_CACHE, VALUE_CACHE, OFFSETS, PAST_LENGTHS, TABLE = 0, 3, 4, 5, 6, 7
"""Their inputs: query (tokens, h d), caches (blocks, block, g, d), the sequences' first tokens (b + 1,), past tokens of
each (b,), and its blocks (b, most)."""

_DEFAULT_TOKENS = 128
"""Keys and values that each sequence has room for, as without pages."""

_DEFAULT_BLOCK = 256
"""Tokens of a block whose length is free: what ONNX Runtime GenAI's builder writes (``paged_block_size``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A size that others make: the product of ``factors`` (symbols or sizes) in parts of ``by``, and ``more``."""

    factors: tuple[str | int, ...]
    by: str | int = 1
    more: int = 0
    why: str = ""

    def size(self, symbols: Mapping[str, int]) -> int | None:
        """None where the size of a symbol isn't known."""
        sizes = [symbols.get(factor) if isinstance(factor, str) else factor for factor in (self.by, *self.factors)]
        known = [size for size in sizes if size is not None]
        return -(-prod(known[1:]) // known[0]) + self.more if len(known) == len(sizes) and known[0] else None

    @property
    def note(self) -> str:
        if self.by != 1:
            return f"default: {self.why} in blocks of {shown(self.by) if isinstance(self.by, str) else self.by}"
        text = " x ".join(shown(factor) if isinstance(factor, str) else str(factor) for factor in self.factors)
        return "default: " + text + (f" + {self.more}" if self.more else "") + (f", {self.why}" if self.why else "")


def paged_sizes(graph: Graph) -> dict[str, Derived]:
    """Symbol of an input -> what makes its size: offsets are one more than sequences, there is a new token for each,
    and blocks for all of them. Those that others are made of come first."""
    found: dict[str, Derived] = {}
    inputs: dict[str, Declared] = {}
    for node in graph.nodes:
        if (node.domain, node.op_type) in PAGED and len(node.inputs) > TABLE:
            inputs = inputs or {declared.name: declared for declared in graph.inputs}
            for symbol, derived in _sizes_of(node, inputs):
                found.setdefault(symbol, derived)
    return found


def _sizes_of(node: Node, inputs: Mapping[str, Declared]) -> list[tuple[str, Derived]]:
    batch, most = _dim(node, inputs, TABLE, 0), _dim(node, inputs, TABLE, 1)
    batch = _dim(node, inputs, PAST_LENGTHS, 0) if batch is None else batch
    block = _dim(node, inputs, KEY_CACHE, 1)
    sizes: list[tuple[Dim, Derived]] = []
    if isinstance(block, str):
        sizes.append((block, Derived(factors=(_DEFAULT_BLOCK,), why="the tokens of a block")))
    if isinstance(block, str) or (block is not None and block > 0):
        sizes.append((most, Derived(factors=(_DEFAULT_TOKENS,), by=block, why=f"room for {_DEFAULT_TOKENS} tokens")))
    if batch is not None:
        sizes.append((_dim(node, inputs, OFFSETS, 0), Derived(factors=(batch,), more=1)))
        tokens = {_dim(node, inputs, QUERY, 0)} | {
            declared.shape[0]
            for declared in inputs.values()
            if declared.shape is not None
            and len(declared.shape) == 1
            and declared.dtype is not None
            and declared.dtype.is_integer
            and declared.name not in (node.inputs[OFFSETS], node.inputs[PAST_LENGTHS])
        }
        sizes += [(dim, Derived(factors=(batch,), why="a new token each")) for dim in tokens if dim != batch]
        if most is not None:
            blocks = {_dim(node, inputs, cache, 0) for cache in (KEY_CACHE, VALUE_CACHE)}
            sizes += [(dim, Derived(factors=(batch, most))) for dim in blocks]
    return [(symbol, derived) for symbol, derived in sizes if isinstance(symbol, str)]


def _dim(node: Node, inputs: Mapping[str, Declared], place: int, axis: int) -> Dim:
    """A dimension of an operator's input that is the model's; None where it has no name or is none."""
    declared = inputs.get(node.inputs[place]) if place < len(node.inputs) else None
    shape = None if declared is None else declared.shape
    return shape[axis] if shape is not None and axis < len(shape) else None
