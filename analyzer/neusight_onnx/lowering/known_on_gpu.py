"""Values that follow from sizes alone and that ONNX Runtime's CUDA provider computes by kernels all the same.

Shape and Size leave their result in the host's memory, and nodes that compute with such results go to the CPU where
they can. One that reads them as a size that its CUDA kernel takes from the host (of a Range, an Expand, a Slice)
stays on the GPU, and so does all that follows: positions and masks of a decoder, ten to thirty small kernels whatever
its depth. (``GetCpuPreferredNodes`` of ``onnxruntime/core/framework/fallback_cpu_capability.cc``, as remembered; two
dozen graphs that onnxruntime-gpu 1.31.1 ran on stand-ins agree: ``benchmarks/evidence/onnxruntime.md``.)
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph, Node, Value
from neusight_onnx.lowering.reduction import REDUCE

OWN = "neusight"

_HOST_INPUTS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "": {
        **dict.fromkeys(("CumSum", "Expand", "OneHot", "Reshape", "Split", "Squeeze", "Tile", "TopK"), (1,)),
        **dict.fromkeys(("Trilu", "Unsqueeze", *REDUCE), (1,)),
        "ConstantOfShape": (0,),
        "NonMaxSuppression": (2,),
        "Pad": (1, 2, 3),
        "Range": (0, 1, 2),
        "Resize": (2, 3),
        "Slice": (1, 2, 3, 4),
    },
    "com.microsoft": {
        "Attention": (6,),
        "DecoderMaskedMultiHeadAttention": (7, 8),
        "DecoderMaskedSelfAttention": (6, 7),
        "DynamicSparseAttention": (10,),
        "GroupQueryAttention": (6,),
        "MultiHeadAttention": (8,),
        "PagedAttention": (16,),
        "RelativePositionBias": (1, 2),
        "SparseAttention": (7,),
        "SparsePagedAttention": (21,),
    },
}
"""By domain, inputs that kernels of ONNX Runtime's CUDA provider read in the host's memory: where such a value is made
on the GPU, the graph that provider prepares has a MemcpyToHost, and no MemcpyFromHost where it is made on the CPU
(1.31.1 on stand-ins, ``benchmarks/cuda_standin.py``, one small graph for each integer input). Of attention's they are
the lengths of past and total and the width of a beam. Of other inputs and operators nothing is said."""


def host_inputs(node: Node) -> tuple[int, ...]:
    """Places of the inputs that the node's CUDA kernel reads in the host's memory."""
    return _HOST_INPUTS.get(node.domain, {}).get(node.op_type, ())


MOST_CONSTANT_NUMBERS = 100
"""Elements up to which a constant goes to the CPU along with a node (``kSmallInitializerThreshold`` there)."""

_NEVER_ON_CPU = frozenset({DataType.FLOAT16, DataType.BFLOAT16})
"""Types of operands that keep a node on the GPU."""


_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})


def has_open_sizes(graph: InferredGraph) -> bool:
    """Whether the file leaves a size of an input open; where it fixes all, such values are folded at load."""
    return any(not isinstance(size, int) for declared in graph.graph.inputs for size in declared.shape or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Where values that follow from sizes are computed.

    ``on_gpu``: nodes of known results that run on the GPU. ``on_host``: values that the CPU makes. ``beside_inputs``:
    nodes that run on the CPU, too, and whose results aren't known, since they read inputs of the model beside sizes.
    """

    on_gpu: frozenset[str] = frozenset()
    on_host: frozenset[str] = frozenset()
    beside_inputs: frozenset[str] = frozenset()


def where_known(graph: InferredGraph) -> Known:
    """Of the nodes and values of the graph, its bodies apart; nothing where the file fixes all sizes."""
    if not has_open_sizes(graph):
        return Known()
    values = graph.values
    given = {declared.name for declared in graph.graph.inputs}
    on_host: set[str] = set()
    folded: set[str] = set()
    found: set[str] = set()
    beside: set[str] = set()
    for node in graph.graph.nodes:
        if on_host.isdisjoint(node.inputs) and folded.isdisjoint(node.inputs) and _computes_data(node, values):
            continue  # what isn't computed of sizes
        outputs = [values.get(name) for name in node.outputs if name]
        for value in outputs:
            if value is None or not value.is_constant:
                break
        else:
            continue
        if node.op_type in ("Shape", "Size") and not node.domain:
            # how many numbers describe a shape hangs on no size
            (folded if node.inputs[0] in on_host else on_host).update(node.outputs)
        elif all(_is_fixed(name, values.get(name), folded) for name in node.inputs):
            folded.update(node.outputs)
        elif _goes_to_cpu(node, graph, given, on_host, folded):
            on_host.update(node.outputs)
            if any(value is not None and value.data is None for value in outputs):
                beside.add(node.name)
        elif all(value is not None and value.data is not None for value in outputs):
            found.add(node.name)
    return Known(on_gpu=frozenset(found), on_host=frozenset(on_host), beside_inputs=frozenset(beside))


def _computes_data(node: Node, values: Mapping[str, Value]) -> bool:
    """Whether it reads what isn't known first, and its first result isn't known either."""
    if not node.inputs or node.op_type in ("Shape", "Size"):
        return False
    read, result = values.get(node.inputs[0]), values.get(node.outputs[0])
    return read is not None and not read.is_constant and result is not None and result.data is None


def _is_fixed(name: str, value: Value | None, folded: Set[str]) -> bool:
    return not name or name in folded or (value is not None and value.is_constant)


def _goes_to_cpu(node: Node, graph: InferredGraph, given: Set[str], on_host: Set[str], folded: Set[str]) -> bool:
    """Whether all that it reads is there: results of the CPU, inputs of the model and constants of few numbers."""
    if node.domain == OWN or node.op_type in _CONTROL_FLOW or on_host.isdisjoint(node.inputs):
        return False
    from_host = host_inputs(node)
    for place, name in enumerate(node.inputs):
        value = graph.values.get(name)
        if value is not None and value.dtype in _NEVER_ON_CPU:
            return False
        if name in on_host:
            if place in from_host:
                return False
        elif _is_fixed(name, value, folded):
            if value is not None and value.shape is not None and value.element_count > MOST_CONSTANT_NUMBERS:
                return False
        elif name not in given:
            return False
    return True
