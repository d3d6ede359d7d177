"""Products and convolutions with what joins their constant operands: a bias, a batch normalization."""

from __future__ import annotations

from neusight_onnx.fusion.patterns.search import OWN, Match, Search, Trail
from neusight_onnx.graph.model import Node


def linear(search: Search, anchor: Node) -> Match | str:
    """x @ constant matrix + constant vector."""
    weight = search.shape(anchor.inputs[1])
    if weight is None or len(weight) != 2 or not search.is_constant(anchor.inputs[1]):
        return "the right operand is no constant matrix"
    trail = Trail(search)
    trail.add(anchor)
    plus = trail.down(anchor.outputs[0], "Add")
    if plus is None:
        return "nothing is added to the product alone"
    bias = trail.other(plus, anchor.outputs[0])
    shape = None if bias is None else search.shape(bias)
    if bias is None or shape is None or not search.is_constant(bias):
        return "what is added is no constant"
    if not shape or shape[-1] != weight[1] or any(size != 1 for size in shape[:-1]):
        return "what is added is no vector over the columns"
    if search.shape(plus.outputs[0]) != search.shape(anchor.outputs[0]):
        return "the addition changes the shape"
    if search.runtime == "onnxruntime" and len(shape) != 1:
        return "the vector has more dimensions than one, which ONNX Runtime's MatMulAddFusion doesn't take"
    if search.runtime == "onnxruntime" and not search.fixed and len(search.shape(anchor.inputs[0]) or ()) > 2:
        return "of more than two dimensions, and the file leaves sizes open: MatMulAddFusion asks for fixed ones"
    if not search.executor.biased_stacks and len(search.shape(anchor.inputs[0]) or ()) > 2:
        return "of more than two dimensions, which MatMulAddFusion of this release doesn't take"
    return trail.finish("Linear", (*anchor.inputs, bias), plus.outputs[0], domain=OWN)


def conv_batch_norm(search: Search, anchor: Node) -> Match | str:
    """A BatchNormalization behind a convolution, transposed or not, is folded into its weights."""
    trail = Trail(search)
    trail.add(anchor)
    conv = trail.up(anchor.inputs[0], "Conv", "ConvTranspose")
    if conv is None:
        return "it doesn't follow a convolution"
    if not search.is_constant(conv.inputs[1]):
        return "the convolution's weight is no constant"
    made = search.producers.get(trail.root(conv.inputs[1]))
    if search.runtime == "onnxruntime" and made is not None and made.op_type == "DequantizeLinear":
        return "the convolution's weight is dequantised, which ONNX Runtime does in every run"
    return trail.finish(
        conv.op_type,
        (conv.inputs[0], conv.inputs[1], anchor.inputs[2]),
        anchor.outputs[0],
        version=conv.version,
        attributes=conv.attributes,
    )
