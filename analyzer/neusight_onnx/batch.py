"""How many samples a run takes: what throughput, and a cost a million samples, count."""

from __future__ import annotations

from collections.abc import Mapping

from neusight_onnx.errors import shown
from neusight_onnx.graph.dimension_roles import can_be_batch, is_batch_symbol
from neusight_onnx.graph.model import Declared, InferredGraph
from neusight_onnx.graph.paged_sizes import paged_sizes

_IMAGES = (4, 5)
"""Ranks of (n, c, h, w) and (n, c, d, h, w)."""


def batch_of(inferred: InferredGraph, symbols: Mapping[str, int], given: int | None = None) -> tuple[int, str | None]:
    """(samples a run, the line that says how that was guessed): the size that the user gave the batch as such, or that
    of the symbol that is named as one.

    Without one, it is the first dimension of the first input with several: where the model leaves it free and doesn't
    name it as something else (a sequence, an image's height), or fixes it with rank 4 or 5 or for integers (token ids),
    or keeps it in the first output (rows in, rows out). Else 1. Nothing is said where that is 1, too.
    """
    if given is not None:
        return given, None
    derived = paged_sizes(inferred.graph)
    for name, size in symbols.items():
        if is_batch_symbol(name) and name not in derived:
            return size, None
    for declared in inferred.graph.inputs:
        shape = inferred.values[declared.name].shape
        if not declared.shape or not shape or len(shape) < 2:
            continue
        first, name = declared.shape[0], shown(declared.name)
        place = f"the first dimension of '{name}'"
        if isinstance(first, str):
            if can_be_batch(first, declared):
                return shape[0], f"samples a run: {shown(first)}, {place}; no dimension is named as a batch"
            return 1, f"samples a run: 1; no dimension is named as a batch, nor {shown(first)}, {place}"
        if shape[0] == 1:
            return 1, None
        if first is None or _is_of_samples(declared, shape, inferred):
            return shape[0], f"samples a run: {shape[0]:,}, {place}; no dimension is named as a batch"
        return 1, f"samples a run: 1; no dimension is named as a batch, and the output lacks {place}, {shape[0]:,}"
    return 1, None


def _is_of_samples(declared: Declared, shape: tuple[int, ...], inferred: InferredGraph) -> bool:
    """Whether the first dimension of an input, whose size the model fixes, looks like a batch."""
    if len(shape) in _IMAGES or (declared.dtype is not None and declared.dtype.is_integer):
        return True
    outputs = (inferred.values.get(item.name) for item in inferred.graph.outputs)
    kept = next((value.shape for value in outputs if value is not None and value.shape), None)
    return kept is not None and kept[0] == shape[0]
