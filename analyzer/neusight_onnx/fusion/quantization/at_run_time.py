"""What finds no partner is quantised or dequantised in every run, constants of the file, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from neusight_onnx.fusion.quantization.folding import DOMAINS
from neusight_onnx.graph.model import InferredGraph, Node, Value, file_name
from neusight_onnx.kernels import NodeWork

_ROUNDING = frozenset({"QuantizeLinear", "DequantizeLinear"})


def rounding_apart(works: Sequence[NodeWork]) -> list[NodeWork]:
    """The work of QuantizeLinear and DequantizeLinear that stayed operators of their own."""
    return [work for work in works if work.op_type in _ROUNDING and work.kernels]


def rounding_kernels(works: Sequence[NodeWork]) -> dict[str, int]:
    """How many kernels only quantise or dequantise, by node of the file: a product where pairs are asked for."""
    counts: Counter[str] = Counter()
    for work in rounding_apart(works):
        counts[file_name(work.node)] += len(work.kernels)
    return counts


def dequantized_at_run_time(graph: InferredGraph) -> InferredGraph:
    """``graph`` unfolded, in which constants that are dequantised are so in every run, as
    :func:`~neusight_onnx.fusion.quantization.fold.fold_quantization` has it for those that find no partner."""
    bodies = {key: dequantized_at_run_time(body) for key, body in graph.bodies.items()}
    is_same = all(bodies[key] is body for key, body in graph.bodies.items())
    if is_same and not any(node.op_type == "DequantizeLinear" for node in graph.graph.nodes):
        return graph
    values = dict(graph.values)
    keep_at_run_time(graph.graph.nodes, values)
    return replace(graph, values=values, bodies=bodies)


def keep_at_run_time(nodes: Iterable[Node], values: dict[str, Value]) -> None:
    """A constant that is still dequantised is so in every run, and so is what is made from it.

    Small contents that shape inference knows are none of a GPU's business and stay as they are.
    """
    late: set[str] = set()
    for node in nodes:
        begins = node.op_type == "DequantizeLinear" and node.domain in DOMAINS
        if not begins and late.isdisjoint(node.inputs):
            continue
        for name in node.outputs:
            value = values.get(name)
            if value is not None and value.is_constant and value.data is None:
                values[name] = replace(value, is_constant=False)
                late.add(name)
