"""The types in which values lie in memory, where an engine's layers hand on other ones than the graph says.

A builder that was asked for INT8 or FP8 gives layers formats of their own, after the graph has its types: a convolution
in int8 writes int8. What a value takes is what the kernel that writes it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph, Node, Value
from neusight_onnx.kernels import Conv, Elementwise, Gemm, Kernel, NodeWork, Normalization, Pooling
from neusight_onnx.lowering.precision import PLAIN


def as_stored(graph: InferredGraph, works: Mapping[str, NodeWork]) -> InferredGraph:
    """``graph`` whose values have the type that ``works`` (by node name; bodies included) write; itself if they do.

    Views, and joined results all of whose parts were made so, follow what they are made of. What a graph hands out
    keeps the type that it is declared with: the caller's buffers, or the values of the graph around a body, have it.
    """
    return _as_stored(graph, works, {})


def _as_stored(graph: InferredGraph, works: Mapping[str, NodeWork], outer: Mapping[str, DataType]) -> InferredGraph:
    values = graph.values
    kept = {declared.name for declared in graph.graph.outputs}
    narrow = {name: dtype for name, dtype in outer.items() if name in values}
    for node in graph.graph.nodes:
        work = works.get(node.name)
        if work is None or not (work.kernels or narrow):
            continue
        dtype = _written(work) if work.kernels else _handed_on(node, work, narrow)
        if dtype is None:
            continue
        # the columns of a product are its results; of the others' results a second one is of another kind
        outputs = node.outputs if work.kernels and isinstance(work.kernels[-1], Gemm) else node.outputs[:1]
        narrow.update((name, dtype) for name in outputs if name not in kept and _is_wider(values.get(name), dtype))
    bodies = {key: _as_stored(body, works, narrow) for key, body in graph.bodies.items()}
    if not narrow and all(bodies[key] is body for key, body in graph.bodies.items()):
        return graph
    stored = {**values, **{name: replace(values[name], dtype=dtype) for name, dtype in narrow.items()}}
    return replace(graph, values=stored, bodies=bodies)


def _written(work: NodeWork) -> DataType | None:
    """The type of 8 bits or less that a node's last kernel writes, None where it writes another one."""
    dtype = written_dtype(work.kernels[-1])
    return dtype if dtype is not None and dtype.bits <= 8 else None


def written_dtype(kernel: Kernel) -> DataType | None:
    """What a kernel writes its result in; None for those whose formats no builder chooses."""
    match kernel:
        case Conv() | Gemm() | Normalization():
            return kernel.output_dtype or kernel.dtype
        case Pooling() | Elementwise():
            return kernel.output.dtype
        case _:
            return None


def _handed_on(node: Node, work: NodeWork, narrow: Mapping[str, DataType]) -> DataType | None:
    """The type of a view's source, or of all that is joined; None where the graph's own holds."""
    if work.merged_into is not None:
        return None
    names = [name for name in node.inputs if name] if work.parts else node.inputs[:1]
    found = {narrow.get(name) for name in names}
    return found.pop() if len(found) == 1 else None


def _is_wider(value: Value | None, dtype: DataType) -> bool:
    return value is not None and value.dtype in PLAIN and value.dtype.bits > dtype.bits
