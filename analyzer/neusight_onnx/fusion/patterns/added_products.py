"""PyTorch's ``addcmul``: a sum with a product, one kernel in eager mode."""

from __future__ import annotations

from neusight_onnx.fusion.patterns.search import OWN, Match, Search, Trail
from neusight_onnx.graph.model import Node


def addcmul(search: Search, anchor: Node) -> Match | str:
    """x + 1.0 * (a * b), the factor written out.

    No model multiplies by 1, but both exporters of PyTorch write addcmul's ``value``, whatever it is: TorchScript's
    behind the product (``symbolic_opset9.addcmul``), dynamo's before it (``aten_addcmul``). A sum and a product without
    that factor may be two operators of the model.
    """
    trail = Trail(search)
    trail.add(anchor)
    factors = [name for name in anchor.inputs if search.number(name) != 1.0]
    if len(factors) != 1:
        return "nothing is multiplied by 1"
    result = anchor.outputs[0]
    operands: tuple[str, ...]
    if (product := trail.down(result, "Mul")) is not None:
        other = trail.other(product, result)
        if other is None:
            return "it is multiplied by itself"
        operands, result = (factors[0], other), product.outputs[0]
    elif (product := trail.up(factors[0], "Mul")) is not None:
        operands = product.inputs
    else:
        return "what is multiplied by 1 is no product"
    total = trail.down(result, "Add")
    added = None if total is None else trail.other(total, result)
    if total is None or added is None:
        return "nothing is added to the product"
    return trail.finish("Addcmul", (added, *operands), total.outputs[0], domain=OWN)
