"""Sizes that inputs leave free, though the weights that meet them take no other: channels, positions."""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.graph.model import Graph, Initializer

_MOST_TABLES = 3
_STRIDES = (1, 2, 4)
"""What convolutions in front of a table of positions may shorten a length by (Whisper's by 2)."""


def channel_sizes(graph: Graph) -> dict[str, tuple[int, str]]:
    """Symbol -> its size and what that is, for channels of inputs that a convolution reads: x (n, c, ...) by a weight
    (k, c / groups, ...)."""
    inputs = {declared.name: declared.shape for declared in graph.inputs}
    sizes: dict[str, tuple[int, str]] = {}
    for node in graph.nodes:
        if node.op_type != "Conv" or node.domain or len(node.inputs) < 2:
            continue
        shape, weight = inputs.get(node.inputs[0]), graph.initializers.get(node.inputs[1])
        if shape is None or weight is None or len(shape) != len(weight.shape) or len(shape) < 3:
            continue
        groups = node.attributes.get("group", 1)
        symbol = shape[1]
        if isinstance(symbol, str) and isinstance(groups, int) and groups > 0 and weight.shape[1] > 0:
            sizes.setdefault(symbol, (weight.shape[1] * groups, "the channels of a convolution's weight"))
    return sizes


def lengths_of_tables(graph: Graph) -> Iterator[int]:
    """Lengths that a model may take alone: those of tables (length, width) of weights that are added to something, and
    of what convolutions shorten to them."""
    rows: dict[int, None] = {}
    for node in graph.nodes:
        if node.op_type == "Add" and not node.domain:
            for name in node.inputs:
                table = graph.initializers.get(name)
                if table is not None and 2 <= len(table.shape) <= 3 and table.dtype.is_float and table.shape[-2] > 1:
                    rows[table.shape[-2]] = None
    for length in list(rows)[:_MOST_TABLES]:
        yield from (length * stride for stride in _STRIDES)


def most_positions(graph: Graph) -> tuple[int, str] | None:
    """How many positions a model has, and the table that says so: a causal mask of constants (1, 1, n, n) that is
    sliced to the tokens of a run (GPT-2's). None where there is no such mask, or they differ."""
    made = {
        node.outputs[0]: node.attributes.get("value")
        for node in graph.nodes
        if node.op_type == "Constant" and node.outputs
    }
    found: dict[int, str] = {}
    for node in graph.nodes:
        if node.op_type == "Slice" and not node.domain and node.inputs:
            mask = graph.initializers.get(node.inputs[0]) or made.get(node.inputs[0])
            if isinstance(mask, Initializer) and len(mask.shape) == 4 and mask.shape[2] == mask.shape[3] > 1:
                found.setdefault(mask.shape[2], node.inputs[0])
    return next(iter(found.items())) if len(found) == 1 else None
