"""How shapes of attention's tensors read."""

from __future__ import annotations

from neusight_onnx.lowering.context import NodeContext


def heads_of(shape: tuple[int, ...], heads: int) -> tuple[int, int, int, int]:
    """(b, h, s, d) of a (b, h, s, d) or a (b, s, h * d) tensor."""
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    b, s, hidden = shape
    return b, heads, s, hidden // max(heads, 1)


def cache_write(context: NodeContext, *indices: int) -> int:
    """Elements appended to a cache: those of the outputs at ``indices``, which are written whole by the standard."""
    return sum(context.out(index).element_count for index in indices if context.has_output(index))
