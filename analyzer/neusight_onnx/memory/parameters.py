"""Parameters of a model: how many, how many bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.bodies import bodies_of
from neusight_onnx.graph.model import Initializer, Model, Node


def parameter_summary(model: Model) -> tuple[int, int]:
    """(number of parameters, their bytes): initializers and constants of all graphs, a shared one once.

    Not counted, for it is not learned: int64 (indices, shapes), bool (masks) and string tensors, int32 tensors of at
    most 8 elements, single numbers written as Constant nodes (scale factors, epsilons), and the scales and zero points
    of quantised weights, whose bytes do count. Weights of 2 and 4 bits that lie packed in bytes count as many as they
    are.
    """
    count = size = 0
    seen: set[int] = set()
    graphs = [model.graph]
    for graph in graphs:
        graphs.extend(body for node in graph.nodes for body in bodies_of(node))
    # a body reads weights of the graphs around it: names are unique in a model
    in_a_byte = _packed(node for graph in graphs for node in graph.nodes)
    scales = _scales(node for graph in graphs for node in graph.nodes)
    for graph in graphs:
        tensors = [tensor for tensor in graph.initializers.values() if _is_parameter(tensor)]
        for node in graph.nodes:
            if node.op_type == "Constant" and node.domain == "":
                tensors.extend(_constant(node))
        for tensor in tensors:
            # The body of a function that is called twice holds the same tensor twice; small ones are alike by chance.
            if tensor.data is None and id(tensor) in seen:
                continue
            seen.add(id(tensor))
            size += tensor.byte_count
            if tensor.name in scales:
                continue
            count += tensor.element_count * (in_a_byte.get(tensor.name, 1) if tensor.dtype.bits == 8 else 1)
    return count, size


_PACKED: Mapping[str, tuple[str, int, tuple[int, ...]]] = {
    "MatMulNBits": ("bits", 4, (1,)),
    "MatMulBnb4": ("bits", 4, (1,)),
    "GatherBlockQuantized": ("bits", 4, (0,)),
    "QMoE": ("expert_weight_bits", 4, (2, 5, 8)),
}
"""Operators of com.microsoft whose weights lie packed in bytes: the attribute that says their bits and what it is by
default, the inputs (ContribOperators.md of ONNX Runtime). QMoE's are the experts' three matrices."""


_SCALES: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "DequantizeLinear"): (1, 2),
    ("", "QuantizeLinear"): (1, 2),
    ("com.microsoft", "DequantizeLinear"): (1, 2),
    ("com.microsoft", "QuantizeLinear"): (1, 2),
    ("com.microsoft", "MatMulNBits"): (2, 3),
    ("com.microsoft", "MatMulBnb4"): (2,),
    ("com.microsoft", "GatherBlockQuantized"): (2, 3),
    ("com.microsoft", "QMoE"): (3, 6, 9, 11, 12, 13),
}
"""Inputs that are scales and zero points of what another input stores in few bits (as for :data:`_PACKED`)."""


def _scales(nodes: Iterable[Node]) -> frozenset[str]:
    """The values that are scales and zero points."""
    return frozenset(
        node.inputs[place]
        for node in nodes
        for place in _SCALES.get((node.domain, node.op_type), ())
        if place < len(node.inputs)
    )


def _packed(nodes: Iterable[Node]) -> dict[str, int]:
    """How many weights a byte of these values holds."""
    found: dict[str, int] = {}
    for node in nodes:
        if node.domain != "com.microsoft" or node.op_type not in _PACKED:
            continue
        attribute, default, places = _PACKED[node.op_type]
        bits = node.attributes.get(attribute, default)
        if isinstance(bits, int) and bits in (2, 4):
            found |= {node.inputs[place]: 8 // bits for place in places if place < len(node.inputs)}
    return found


def _constant(node: Node) -> Iterator[Initializer]:
    for name in ("value", "sparse_value"):
        tensor = node.attributes.get(name)
        if isinstance(tensor, Initializer) and tensor.element_count > 1 and _is_parameter(tensor):
            yield tensor


def _is_parameter(tensor: Initializer) -> bool:
    if tensor.dtype in (DataType.INT64, DataType.BOOL, DataType.STRING):
        return False
    return tensor.dtype is not DataType.INT32 or tensor.element_count > 8
