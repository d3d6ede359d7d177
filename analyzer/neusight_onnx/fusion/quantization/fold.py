"""Pairs of QuantizeLinear and DequantizeLinear fold into the operators between them, in one walk over a graph."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.fusion.patterns.search import OWN
from neusight_onnx.fusion.quantization.at_run_time import keep_at_run_time
from neusight_onnx.fusion.quantization.carriers import CARRIERS, fold_carrier
from neusight_onnx.fusion.quantization.folding import indexed
from neusight_onnx.fusion.quantization.products import (
    INTEGER_PRODUCTS,
    PRODUCTS,
    fold_integer_product,
    fold_product,
    is_narrow_product,
)
from neusight_onnx.fusion.quantization.unused import without_unused
from neusight_onnx.graph.model import InferredGraph


def fold_quantization(graph: InferredGraph, *, only_weights: bool = False, generated: bool = False) -> InferredGraph:
    """``graph`` with quantised operators in place of what stands between DequantizeLinear and QuantizeLinear.

    Holds in every runtime: a file with such pairs is meant for one that has these kernels. Apply it to recognised
    graphs, whose operators are those that a runtime executes. Nodes list what they swallowed as origins. A graph
    without DequantizeLinear and products of integers comes back as it is, its bodies folded.

    ``only_weights``: what ONNX Runtime's CUDA provider makes a MatMulNBits of, and nothing else
    (``is_narrow_product``). ``generated``: as a compiler has it, whose kernels round what they compute, as those
    of TensorRT for RTX 1.7: a Resize of floats writes few bits, and a Concat of parts with several scales, which can't
    be written by what makes its parts, is one pointwise kernel from integers to integers.
    """
    bodies = {
        key: fold_quantization(body, only_weights=only_weights, generated=generated)
        for key, body in graph.bodies.items()
    }
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    nodes = graph.graph.nodes
    if not any(node.op_type == "DequantizeLinear" or node.op_type in INTEGER_PRODUCTS for node in nodes):
        return graph
    folding = indexed(graph)
    for node in nodes:
        if node.name in folding.gone or node.name in folding.replaced:
            continue
        if only_weights:
            if is_narrow_product(folding, node):
                fold_product(folding, node)
        elif node.op_type in PRODUCTS and node.domain in ("", OWN):
            fold_product(folding, node)
        elif node.op_type in INTEGER_PRODUCTS and not node.domain:
            fold_integer_product(folding, node)
        elif node.op_type in CARRIERS and not node.domain:
            fold_carrier(folding, node, generated=generated)
    left = without_unused(
        [folding.replaced.get(node.name, node) for node in nodes if node.name not in folding.gone], folding
    )
    keep_at_run_time(left, folding.values)
    return replace(graph, graph=replace(graph.graph, nodes=tuple(left)), values=folding.values)
