"""What fusion saved: the kernels that are executed, against one for each of the file's nodes that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.kernels import NodeWork

VIEWS = frozenset({"Constant", "Dropout", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze"})
"""Operators that have no kernel of their own in any runtime."""
LAZY = frozenset({"Expand", "Slice", "Split", "Transpose"})
"""Those that have none where tensors have strides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """``fused_count`` kernels do the work of ``node_count`` nodes that would each be a kernel alone.

    A node that several of them compute anew, as compilers do with cheap ones, is one node.

    ``kernel_count`` and ``byte_count``: kernels, and bytes that kernels read or write, which there are less for it.
    """

    fused_count: int = 0
    node_count: int = 0
    kernel_count: int = 0
    byte_count: int = 0


def savings(unfused: InferredGraph, works: Iterable[NodeWork], *, lazy: bool) -> Savings:
    """``works`` (of the fused graph) against the nodes of ``unfused`` that they name; linear in both."""
    nodes = {node.name: (node, graph) for graph in _graphs(unfused) for node in graph.graph.nodes}
    alone: dict[str, tuple[int, int]] = {}
    fused = together = 0
    for work in works:
        is_own = work.op_type == "Cast" and work.node not in nodes  # a precision's, in front of what it names
        if not work.kernels or len(work.origins) < 2 or is_own:
            continue
        members = {name: found for name, _ in work.origins if (found := nodes.get(name)) and _has_kernel(*found, lazy)}
        if len(members) < 2 or len(work.kernels) >= len(members):
            continue  # as many kernels as the nodes would be: an engine's builder found them quicker apart
        for name, found in members.items():
            count, byte_count = alone.get(name, (0, 0))
            alone[name] = max(count, work.count), byte_count or _byte_count(*found)
        fused += work.count * len(work.kernels)
        together += work.count * sum(kernel.read_bytes + kernel.write_bytes for kernel in work.kernels)
    node_count = sum(count for count, _ in alone.values())
    return Savings(
        fused_count=fused,
        node_count=node_count,
        kernel_count=node_count - fused,
        byte_count=sum(count * byte_count for count, byte_count in alone.values()) - together,
    )


def _graphs(graph: InferredGraph) -> Iterator[InferredGraph]:
    yield graph
    for body in graph.bodies.values():
        yield from _graphs(body)


def _has_kernel(node: Node, graph: InferredGraph, lazy: bool) -> bool:
    if not node.domain and (node.op_type in VIEWS or (lazy and node.op_type in LAZY)):
        return False
    outputs = [graph.values.get(name) for name in node.outputs if name]
    return not all(value is None or value.is_constant or value.data is not None for value in outputs)


def _byte_count(node: Node, graph: InferredGraph) -> int:
    """Bytes of a node's operands and results, each once; unknown ones and single numbers are none."""
    total = 0
    for name in dict.fromkeys((*node.inputs, *node.outputs)):
        value = graph.values.get(name)
        if value is not None and value.shape is not None and value.dtype is not None and value.element_count > 1:
            total += value.dtype.bytes_of(value.element_count)
    return total
