"""Other ways in which an engine could do a node's work: its builder times them and keeps the quickest.

"TensorRT may decide not to fuse an MHA graph into a single kernel based on performance evaluations" (developer guide,
"Multi-Head Attention Fusion"); of the tactics of each layer the builder takes the fastest ("Optimizing Builder
Performance"). So what is merged here is never slower than what it replaces: attention by parts, a product and its
epilogue in two kernels (a library splits the reduction of a plain product, and has tiles for it that it lacks with an
epilogue), products of one operand one by one. Which of them is the quickest hangs on the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.engine_attention import by_parts
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.kernels import Attention, Elementwise, Gemm, Kernel, NodeWork, TensorSpec
from neusight_onnx.runtime import Runtime

SPLITTABLE = frozenset({DataType.FLOAT32, DataType.TFLOAT32, DataType.FLOAT16, DataType.BFLOAT16})
"""What is multiplied where a kernel of its own may follow a product; sums of integers are scaled in the product."""
ADDED = {"bias": "add"}
"""Steps of an epilogue that have another name as an operation."""


def with_alternatives(graph: InferredGraph, works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` of ``graph``, as they will be run, each with what else its kernels could be. Linear in both."""
    if not runtime.times_kernels:
        return tuple(works)
    widths = {node.name: _widths(part, node) for part, node in _nodes(graph) if node.op_type == "SharedLinear"}
    found = []
    for work in works:
        ways = _ways(work, widths.get(work.node, ())) if work.kernels else ()
        found.append(replace(work, alternatives=ways) if ways else work)
    return tuple(found)


def _nodes(graph: InferredGraph) -> Iterator[tuple[InferredGraph, Node]]:
    for node in graph.graph.nodes:
        yield graph, node
    for body in graph.bodies.values():
        yield from _nodes(body)


def _widths(graph: InferredGraph, node: Node) -> tuple[int, ...]:
    shapes = [value.shape for name in node.outputs if (value := graph.values.get(name)) is not None]
    return tuple(shape[-1] for shape in shapes if shape)


def _ways(work: NodeWork, widths: tuple[int, ...]) -> tuple[tuple[Kernel, ...], ...]:
    if any(isinstance(kernel, Attention) for kernel in work.kernels):
        return (by_parts(work).kernels,)
    if not isinstance(last := work.kernels[-1], Gemm) or last.dtype not in SPLITTABLE:
        return ()
    before = work.kernels[:-1]
    found: list[tuple[Kernel, ...]] = []
    products = [replace(last, n=width) for width in widths] if sum(widths) == last.n else []
    if products:
        found.append((*before, *products))
    if last.epilogue:
        found.append((*before, *_apart(last)))
    if last.epilogue and products:
        found.append((*before, *(kernel for product in products for kernel in _apart(product))))
    return tuple(found)


def _apart(kernel: Gemm) -> tuple[Gemm, Elementwise]:
    """The product, and its epilogue in a kernel of its own."""
    stored = DataType.FLOAT32 if kernel.dtype is DataType.TFLOAT32 else kernel.dtype
    dtype = kernel.output_dtype or stored
    result = TensorSpec(dtype=dtype, shape=(kernel.batch * kernel.m, kernel.n))
    operands = {"bias": TensorSpec(dtype=dtype, shape=(kernel.n,)), "add": result}
    inputs = [result, *(operands[step] for step in kernel.epilogue if step in operands)]
    if kernel.extra_read_bytes:
        inputs.append(TensorSpec(dtype=dtype, shape=(max(kernel.extra_read_bytes * 8 // dtype.bits, 1),)))
    return (
        replace(kernel, epilogue=(), extra_read_bytes=0),
        Elementwise(
            operations=tuple(ADDED.get(step, step) for step in kernel.epilogue),
            inputs=tuple(inputs),
            output=result,
            generated=True,
        ),
    )
