"""Targets of Reshapes that a file computes and ONNX Runtime's optimiser makes constants of."""

from __future__ import annotations

from collections.abc import Mapping

from neusight_onnx.graph.model import Node, Value


def becomes_constant(target: Node, source: str, producers: Mapping[str, Node], values: Mapping[str, Value]) -> bool:
    """Whether ONNX Runtime's ReshapeFusion makes a constant of the Concat ``target``, to which ``source`` is reshaped.

    It does where all numbers but one are constants, or the sizes that ``source`` has at the same place.
    """
    others = 0
    for place, name in enumerate(target.inputs):
        value = values.get(name)
        if value is not None and value.is_constant:
            others += _number(value) == -1
        elif not _is_size_of(name, source, place, producers, values):
            others += 1
    return others <= 1


def _is_size_of(name: str, source: str, place: int, producers: Mapping[str, Node], values: Mapping[str, Value]) -> bool:
    """Whether a value is ``Shape(source)[place]``, as Gather (and Unsqueeze) or Slice take it."""
    node = producers.get(name)
    if node is not None and node.op_type == "Unsqueeze":
        node = producers.get(node.inputs[0])
    if node is None or node.op_type not in ("Gather", "Slice") or len(node.inputs) < 2:
        return False
    shape = producers.get(node.inputs[0])
    if shape is None or shape.op_type != "Shape" or shape.inputs[0] != source:
        return False
    index = values.get(node.inputs[1])
    return index is not None and index.is_constant and _number(index) == place


def _number(value: Value) -> int | None:
    if value.data is None or value.data.size != 1 or value.data.dtype.kind not in "iu":
        return None
    return int(value.data.reshape(-1)[0])
