"""Transposes that only put channels where the file's convolutions want them, where the runtime's want them last.

An engine's convolutions of 16 and 8 bits read (n, *spatial, c). What a file computes in that order (normalizations over
channels) and transposes to (n, c, *spatial) for a convolution lies as that reads it: engines of TensorRT for RTX 1.7
have no kernel for such a Transpose (``benchmarks/results/fusion_trt.md``: CAFormer, ConvNeXt).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from neusight_onnx.fusion.epilogues import CONVOLUTIONS
from neusight_onnx.fusion.patterns.search import OWN
from neusight_onnx.graph.model import InferredGraph, Node

WIDEST_BITS = 16
"""Of wider types, convolutions read (n, c, *spatial)."""


def read_channels_last(graph: InferredGraph) -> InferredGraph:
    """``graph`` with Transposes to (n, c, *spatial) read in place where nothing but narrow convolutions reads them.

    Of the main graph; a value that a body reads is left alone.
    """
    nodes = graph.graph.nodes
    moves = [node for node in nodes if _brings_channels_forward(graph, node)]
    if not moves:
        return graph
    readers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        for name in node.inputs:
            readers[name].append(node)
    kept = {declared.name for declared in graph.graph.outputs}
    for body in graph.bodies.values():
        kept.update(_read(body))
    found = {
        node.name: replace(node, op_type="InPlace", domain=OWN, attributes={})
        for node in moves
        if (name := node.outputs[0]) not in kept
        and readers[name]
        and all(_is_convolved(reader, name) for reader in readers[name])
    }
    return replace(graph, graph=replace(graph.graph, nodes=tuple(found.get(node.name, node) for node in nodes)))


def _brings_channels_forward(graph: InferredGraph, node: Node) -> bool:
    """Whether it is a Transpose of (n, *spatial, c), in 16 bits or fewer, to (n, c, *spatial)."""
    axes = node.attributes.get("perm")
    if node.op_type != "Transpose" or node.domain or not isinstance(axes, tuple):
        return False
    rank = len(axes)
    value = graph.values.get(node.outputs[0])
    is_narrow = value is not None and value.dtype is not None and value.dtype.bits <= WIDEST_BITS
    return is_narrow and rank > 2 and axes == (0, rank - 1, *range(1, rank - 1))


def _is_convolved(node: Node, name: str) -> bool:
    """Whether a node is a convolution of a value, which it reads as nothing else."""
    key = (node.domain, node.op_type)
    if key == (OWN, "WithEpilogue"):
        key = (str(node.attributes["product_domain"]), str(node.attributes["product"]))
    return key in CONVOLUTIONS and node.inputs[0] == name and name not in node.inputs[1:]


def _read(body: InferredGraph) -> Iterator[str]:
    for node in body.graph.nodes:
        yield from node.inputs
    for inner in body.bodies.values():
        yield from _read(inner)
