"""Operators between pairs that run on quantised values themselves: what moves, compares or averages elements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neusight_onnx.fusion.patterns.search import OWN
from neusight_onnx.fusion.quantization.folding import Folding, origins
from neusight_onnx.fusion.quantization.products import ACTIVATIONS
from neusight_onnx.graph.model import Node

POINTWISE = ACTIVATIONS | {"Abs", "Add", "Div", "Max", "Min", "Mul", "Neg", "PRelu", "Sub", "Sum"}
REDUCING = frozenset(
    {"AveragePool", "GlobalAveragePool", "GlobalLpPool", "LpPool", "LogSoftmax", "ReduceMean", "ReduceSum", "Softmax"}
)
MOVING = frozenset(
    {
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GlobalMaxPool",
        "Identity",
        "MaxPool",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""What hands elements on as they are: it runs on quantised ones if they mean the same before and behind it."""
CARRIERS = POINTWISE | REDUCING | MOVING | {"Concat", "Resize", "Upsample"}
_ALL_INPUTS = POINTWISE | {"Concat"}


def fold_carrier(folding: Folding, node: Node, *, generated: bool) -> None:
    """An operator between pairs runs on the quantised values themselves."""
    is_resized = generated and node.op_type in ("Resize", "Upsample") and folding.dequantizer(node.inputs[0]) is None
    inputs = list(node.inputs)
    pairs: list[Node] = []
    for place, name in enumerate(inputs if node.op_type in _ALL_INPUTS else inputs[:1]):
        pair = folding.dequantizer(name)
        if pair is not None and all(folding.element_count(scale) == 1 for scale in pair.inputs[1:] if scale):
            pairs.append(pair)
            inputs[place] = pair.inputs[0]
        elif name and not is_resized and not (folding.is_constant(name) and folding.element_count(name) == 1):
            if node.op_type == "Gather":
                _fold_lookup(folding, node)
            return
    quantizers = [folding.quantizer(name) for name in node.outputs if name]
    found = [quantizer for quantizer in quantizers if quantizer is not None]
    fits = node.op_type not in MOVING or all(_same_scale(folding, pairs[0], each) for each in found if pairs)
    if not (pairs or is_resized) or not found or len(found) < len(quantizers) or not fits:
        if node.op_type == "Gather":
            _fold_lookup(folding, node)
        return
    folding.gone.update(quantizer.name for quantizer in found)
    written = iter(found)
    rescales = (
        generated and node.op_type == "Concat" and not all(_same_scale(folding, pair, found[0]) for pair in pairs)
    )
    folding.replaced[node.name] = replace(
        node,
        op_type="RescalingConcat" if rescales else node.op_type,
        domain=OWN if rescales else node.domain,
        inputs=tuple(inputs),
        outputs=tuple(next(written).outputs[0] if name else "" for name in node.outputs),
        origins=origins([*pairs, *found], node),
    )


def _fold_lookup(folding: Folding, node: Node) -> None:
    """Rows of a quantised table: only those that are looked up are dequantised."""
    pair = folding.dequantizer(node.inputs[0])
    table = None if pair is None else folding.values.get(pair.inputs[0])
    if pair is None or table is None or not table.is_constant or table.shape is None or table.dtype is None:
        return
    scales = folding.element_count(pair.inputs[1]) or 1
    folding.replaced[node.name] = replace(
        node,
        op_type="GatherBlockQuantized",
        domain="com.microsoft",
        inputs=(pair.inputs[0], node.inputs[1], *pair.inputs[1:]),
        attributes={"bits": table.dtype.bits, "block_size": max(table.element_count // scales, 1)},
        origins=origins([pair], node),
    )


def _same_scale(folding: Folding, before: Node, behind: Node) -> bool:
    """Whether elements mean the same in front of a DequantizeLinear and behind a QuantizeLinear."""
    source, target = folding.values.get(before.inputs[0]), folding.values.get(behind.outputs[0])
    if source is None or target is None or source.dtype is not target.dtype:
        return False
    for place in (1, 2):
        first, second = (node.inputs[place] if place < len(node.inputs) else "" for node in (before, behind))
        if first == second:
            continue
        known = [folding.values[name].data if name in folding.values else None for name in (first, second)]
        one, other = known
        if one is None or other is None or not np.array_equal(one, other):
            return False
    return True
