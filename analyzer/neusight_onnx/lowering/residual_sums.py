"""Sums of residual blocks, which PyTorch's models write into their first operand (``x += shortcut``).

The result has that operand's type, where ``x + shortcut`` has the wider one. A file has an Add for both. Residual
networks write it so: torchvision's, timm's and Detectron2's, as OpenMMLab's (``out += identity``), a batch
normalization before it and the activation behind. Under autocast it tells where the shortcut has come through an
operator that takes float32: HRNet's, behind its resized branches (timm's, as torch 2.9.1 launches it, has 135 sums in
16 bits and 46 in float32, which are the sums of its branches).
"""

from __future__ import annotations

from collections import Counter

from neusight_onnx.graph.model import InferredGraph, kept_values

_ACTIVATIONS = frozenset({"Elu", "Gelu", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu", "Swish"})
_RESIZES = frozenset({"Resize", "Upsample"})
"""What comes from there is a coarser level, no shortcut: the sum of two levels is a model's own."""


def sums_in_place(graph: InferredGraph) -> frozenset[str]:
    """The names of the Adds of ``graph``, without its bodies, that are such sums."""
    nodes = graph.graph.nodes
    maker = {name: node.op_type for node in nodes for name in node.outputs}
    if "BatchNormalization" not in maker.values():
        return frozenset()
    reads = Counter(name for node in nodes for name in node.inputs)
    kept = kept_values(graph)
    activated = {node.inputs[0] for node in nodes if node.op_type in _ACTIVATIONS}
    found = set()
    for node in nodes:
        if node.op_type != "Add" or node.domain:
            continue
        (first, second), (total,) = node.inputs, node.outputs
        inner = {first, total}
        is_block = maker.get(first) == "BatchNormalization" and total in activated and maker.get(second) not in _RESIZES
        if is_block and all(reads[name] == 1 for name in inner) and kept.isdisjoint(inner):
            found.add(node.name)
    return frozenset(found)
