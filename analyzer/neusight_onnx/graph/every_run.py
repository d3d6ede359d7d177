"""What depends on parameters alone: engines compute it once, when they load the model, PyTorch in every run.

A module that normalises a table of relative positions and projects it (DeBERTa), or standardises its weights, does so
in each forward pass, with a compiler as well (``torch._inductor.config.freezing`` is off). Exporters fold much of it
into the file, of which nothing shows; what a file still has as nodes is run. What only arranges or casts a parameter
is how the file stores it, and few numbers are Python's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from neusight_onnx.graph.model import Node, Value

MOST_SHAPE_NUMBERS = 128
"""A tensor of PyTorch has at most 64 dimensions, and nothing that describes a shape more than two numbers for each
(pads). What is larger and follows from shapes alone (positions, a mask of ones) is a tensor: eager mode computes it on
the GPU in every run."""

STORES = frozenset({"Constant", "ConstantOfShape", "DequantizeLinear", "Identity", "QuantizeLinear"})
"""What a file keeps values by."""

ARRANGES = frozenset(
    {
        "Cast",
        "CastLike",
        "Concat",
        "Expand",
        "Flatten",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
"""What a file may store a parameter by that the module has as it is used."""


def is_computed(node: Node, outputs: Sequence[Value | None], computed: set[str]) -> bool:
    """Whether PyTorch computes a node of constants in every run; its results' names join ``computed`` then."""
    if node.op_type in STORES or (node.op_type in ARRANGES and computed.isdisjoint(node.inputs)):
        return False
    if not any(value is not None and _is_tensor(value) for value in outputs):
        return False
    computed.update(node.outputs)
    return True


def _is_tensor(value: Value) -> bool:
    """Whether it is more than numbers of a shape, or one of Python's."""
    if value.kind != "tensor" or value.shape is None or value.dtype is None:
        return False
    return prod(value.shape) > (1 if value.dtype.is_float else MOST_SHAPE_NUMBERS)
