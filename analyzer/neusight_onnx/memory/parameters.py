"""Parameters of a model: how many, how many bytes."""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Initializer, Model, Node
from neusight_onnx.memory.bodies import bodies_of


def parameter_summary(model: Model) -> tuple[int, int]:
    """(number of parameters, their bytes): initializers and constants of all graphs, a shared one once.

    Not counted, for it is not learned: int64 (indices, shapes), bool (masks) and string tensors, int32 tensors of at
    most 8 elements, and single numbers written as Constant nodes (scale factors, epsilons).
    """
    count = size = 0
    seen: set[int] = set()
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        tensors = [tensor for tensor in graph.initializers.values() if _is_parameter(tensor)]
        for node in graph.nodes:
            if node.op_type == "Constant" and node.domain == "":
                tensors.extend(_constant(node))
            pending.extend(bodies_of(node))
        for tensor in tensors:
            # The body of a function that is called twice holds the same tensor twice; small ones are alike by chance.
            if tensor.data is None and id(tensor) in seen:
                continue
            seen.add(id(tensor))
            count += tensor.element_count
            size += tensor.byte_count
    return count, size


def _constant(node: Node) -> Iterator[Initializer]:
    for name in ("value", "sparse_value"):
        tensor = node.attributes.get(name)
        if isinstance(tensor, Initializer) and tensor.element_count > 1 and _is_parameter(tensor):
            yield tensor


def _is_parameter(tensor: Initializer) -> bool:
    if tensor.dtype in (DataType.INT64, DataType.BOOL, DataType.STRING):
        return False
    return tensor.dtype is not DataType.INT32 or tensor.element_count > 8
