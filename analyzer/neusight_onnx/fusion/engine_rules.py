"""What ONNX Runtime and TensorRT merge beyond the named formulas of :mod:`neusight_onnx.fusion.patterns`.

Rules of the same form, applied to a graph in which those are recognised. ONNX Runtime's were read off the files that
its own optimiser writes (1.32, level "all", without the passes for CPUs; ``benchmarks/fusion_ort.py`` compares), those
of TensorRT are in its developer guide ("Types of Fusions").
"""

from __future__ import annotations

from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.known_shapes import Shape
from neusight_onnx.fusion.patterns.search import Match, Pattern, Search, Trail
from neusight_onnx.graph.model import Node

ORT = frozenset({"onnxruntime"})
ENGINES = frozenset({"onnxruntime", "tensorrt"})
NOT_FIXED = "the file neither fixes all sizes of its inputs nor shows that what is added has one shape"
"""ONNX Runtime compares shapes, and behind a Reshape to a computed shape it knows none."""


def _scalar(search: Search, node: Node, name: str) -> str | None:
    """The other operand of ``name * scalar`` or ``name / scalar``, if it is a known number: a constant, or what follows
    from sizes that the file fixes."""
    if node.op_type == "Div" and node.inputs[0] != name:
        return None
    other = node.inputs[1] if node.inputs[0] == name else node.inputs[0]
    if search.shape(other) not in ((), (1,)):
        return None
    value = search.values.get(other)
    follows = search.fixed and value is not None and value.data is not None and value.data_low is None
    return other if follows or search.is_constant(other) else None


def _into_product(search: Search, anchor: Node) -> Match | str:
    """Numbers that scale a product or its operands, and Transposes of an operand's last two dimensions, become
    attributes of the product (ONNX Runtime: MatMulScaleFusion, MatmulTransposeFusion; it does so for each product that
    reads one of them, and what then nothing reads is gone)."""
    trail = Trail(search)
    trail.add(anchor)
    inputs = list(anchor.inputs)
    attributes = dict(anchor.attributes)
    is_changed = False
    if anchor.inputs[0] == anchor.inputs[1]:
        return "both operands are one value"
    for place, flag in ((0, "transA"), (1, "transB")):
        if search.is_constant(inputs[place]):
            continue  # it is scaled and transposed when the model is loaded
        is_shared = False
        for _ in range(2):  # a scale behind or before a Transpose
            attempt = Trail(search, nodes=dict(trail.nodes))
            node = attempt.up(inputs[place], "Transpose", "Mul", "Div")
            if node is None or node.outputs[0] in search.kept:
                break
            is_shared = is_shared or len(search.consumers.get(node.outputs[0], ())) != 1
            if is_shared and search.runtime not in ORT:
                break
            if node.op_type == "Transpose":
                flags = _flags_of(search, node, anchor, flag)
                # a product swaps what lies behind the batch after it moved the batch
                taken = (*flags, flag.replace("trans", "transBatch"))
                if not flags or any(attributes.get(name, 0) for name in taken):
                    break
                source = node.inputs[0]
                attributes.update(dict.fromkeys(flags, 1))
            else:
                found = next((item for item in node.inputs if _scalar(search, node, item) is not None), None)
                if found is None or search.is_constant(found):
                    break
                source = found
            if not is_shared:
                trail = attempt
            inputs[place] = source
            is_changed = True
    output = anchor.outputs[0]
    attempt = Trail(search, nodes=dict(trail.nodes))
    behind = attempt.down(output, "Mul", "Div")
    if behind is not None and _scalar(search, behind, output) is not None:
        trail = attempt
        output = behind.outputs[0]
    if len(trail.nodes) == 1 and not is_changed:
        return "no number scales it, and no operand's last two dimensions are swapped right before"
    return trail.finish("FusedMatMul", tuple(inputs), output, domain="com.microsoft", attributes=attributes)


def _flags_of(search: Search, transpose: Node, product: Node, flag: str) -> tuple[str, ...]:
    """Attributes of a product that read an operand as before a Transpose; () if none do.

    ``flag`` ("transA") swaps the last two dimensions. ONNX Runtime has another ("transBatchA") for rows that lie
    in front of the batch, as sequences in front of heads do, where both operands have as many dimensions.
    """
    shape, order = search.shape(transpose.outputs[0]), transpose.attributes.get("perm")
    rank = len(shape or ())
    if rank < 2 or not isinstance(order, tuple):
        return ()
    if order == (*range(rank - 2), rank - 1, rank - 2):
        return (flag,)
    ranks = {len(search.shape(name) or ()) for name in product.inputs}
    if search.runtime not in ORT or rank < 3 or ranks != {rank}:
        return ()
    of_batch = flag.replace("trans", "transBatch")
    found = {(*range(1, rank - 1), 0, rank - 1): (of_batch,), (*range(1, rank), 0): (of_batch, flag)}
    return found.get(order, ())


def _bias_gelu(search: Search, anchor: Node) -> Match | str:
    """GELU of x + a constant vector (BiasGeluFusion, FastGeluFusion)."""
    trail = Trail(search)
    trail.add(anchor)
    plus = trail.up(anchor.inputs[0], "Add")
    if plus is None:
        return "nothing is added before"
    shape = search.shape(plus.outputs[0])
    vectors = [name for name in plus.inputs if search.is_constant(name) and search.shape(name) == (shape or ())[-1:]]
    if len(vectors) != 1:
        return "what is added before is no constant vector over the last dimension"
    if not search.fixed and not search.executor.biased_gelu_at_open_sizes:
        known = search.known_shape(plus.outputs[0])
        if not known or not isinstance(known[-1], int):
            return NOT_FIXED
    x = next(name for name in plus.inputs if name != vectors[0])
    tanh = anchor.attributes.get("approximate") == "tanh"
    op_type = "FastGelu" if tanh else "BiasGelu"
    return trail.finish(op_type, (x, vectors[0]), anchor.outputs[0], domain="com.microsoft")


def _skip_layer_norm(search: Search, anchor: Node) -> Match | str:
    """LayerNorm of a sum that nothing else reads, one addend perhaps with a constant vector (SkipLayerNormFusion,
    BiasSkipLayerNormFusion)."""
    if len(anchor.inputs) < 2 or len(anchor.outputs) > 1:
        return "it has no scale, or more results than one"
    trail = Trail(search)
    trail.add(anchor)
    plus = trail.up(anchor.inputs[0], "Add")
    if plus is None:
        return "its input is no sum"
    shapes = [search.shape(name) for name in plus.inputs]
    if shapes[0] is None or shapes[0] != shapes[1] or len(shapes[0]) not in (2, 3):
        return "the two addends differ in shape, or have other than two or three dimensions"
    axis = anchor.attributes.get("axis", -1)
    if axis not in (-1, len(shapes[0]) - 1):
        return "it isn't over the last dimension alone"
    if not search.fixed:
        known, other = (search.known_shape(name) for name in plus.inputs)
        if known is None or known != other or None in known or not search.executor.norms_of_sums_at_open_sizes:
            return NOT_FIXED
    inputs = (*plus.inputs, *anchor.inputs[1:])
    for place, name in enumerate(plus.inputs):
        attempt = Trail(search, nodes=dict(trail.nodes))
        biased = attempt.up(name, "Add")
        if biased is None or len(search.consumers.get(biased.outputs[0], ())) != 1 or len(inputs) != 4:
            continue
        vectors = [item for item in biased.inputs if search.is_constant(item) and search.shape(item) == shapes[0][-1:]]
        in_order = search.executor.joins_first_bias or vectors == [biased.inputs[1]]
        if len(vectors) == 1 and in_order and biased.outputs[0] not in search.kept:
            x = next(item for item in biased.inputs if item != vectors[0])
            trail = attempt
            inputs = (x, plus.inputs[1 - place], *anchor.inputs[1:], vectors[0])
            break
    return trail.finish("SkipLayerNormalization", inputs, anchor.outputs[0], domain="com.microsoft")


def _bias_softmax(search: Search, anchor: Node) -> Match | str:
    """Softmax of x + a mask (BiasSoftmaxFusion, which only the CUDA provider has).

    Where the file leaves sizes open it has to show that the mask can be repeated so.
    """
    shape = search.shape(anchor.inputs[0])
    axis = anchor.attributes.get("axis", -1 if anchor.version >= 13 else 1)
    if not shape or not isinstance(axis, int) or axis % len(shape) != len(shape) - 1:
        return "it isn't over the last dimension"
    trail = Trail(search)
    trail.add(anchor)
    plus = trail.up(anchor.inputs[0], "Add")
    if plus is None:
        return "nothing is added before"
    whole = [name for name in plus.inputs if search.shape(name) == shape]
    masks = [name for name in plus.inputs if (search.shape(name) or ())[-1:] == shape[-1:]]
    if not whole or len(masks) != 2:
        return "what is added doesn't broadcast over whole rows"
    mask = next((name for name in masks if name != whole[0]), masks[-1])
    if not _is_repeated(search.shape(mask), shape):
        return "the mask is repeated over other dimensions than its kernel can"
    if not search.fixed and not _is_repeated(search.known_shape(mask), search.known_shape(whole[0])):
        return NOT_FIXED
    return trail.finish(
        "BiasSoftmax",
        (whole[0], mask),
        anchor.outputs[0],
        domain="com.microsoft",
        attributes={"axis": len(shape) - 1},  # it knows no negative one, and without any flattens all behind the first
    )


def _is_repeated(mask: Shape | None, scores: Shape | None) -> bool:
    """Whether its kernel can repeat a mask over the scores: the mask has their last dimensions and 1 in front of them,
    or their first ones and their last and 1 in between. So (b, 1, s, t) isn't over (b, h, s, t)."""
    if mask is None or scores is None or None in scores or mask[-1:] != scores[-1:]:
        return False
    mask = (1,) * (len(scores) - len(mask)) + mask
    own = next((place for place, dim in enumerate(mask) if dim != 1), len(mask))
    shared = next((place for place, dim in enumerate(mask) if dim != scores[place]), len(mask))
    return mask[own:] == scores[own:] or all(dim == 1 for dim in mask[shared:-1])


def _constant_into_conv(search: Search, anchor: Node) -> Match | str:
    """Factors and addends per channel behind a convolution join its weights (ConvMulFusion, ConvAddFusion).

    From the first one on as many as follow: a normalization with frozen statistics is a factor and an addend.
    ONNX Runtime looks for the convolution in the first operand alone.
    """
    trail = Trail(search)
    trail.add(anchor)
    orders = (tuple(anchor.inputs), tuple(reversed(anchor.inputs)))[: 1 if search.runtime == "onnxruntime" else 2]
    for name, other in orders:
        attempt = Trail(search, nodes=dict(trail.nodes))
        conv = attempt.up(name, "Conv")
        if conv is None:
            continue
        if not search.is_constant(other) or not search.is_constant(conv.inputs[1]):
            return "what is multiplied or added is no constant"
        output = search.shape(conv.outputs[0])
        if output is None or search.shape(other) is None:
            return "a shape is not known"
        if not _is_by_channel(search, anchor, other, output):
            return "it isn't one number a channel"
        if len(conv.inputs) > 2 and not search.is_constant(conv.inputs[2]):
            return "the convolution's bias is no constant"
        bias = conv.inputs[2:3]
        last, constant = anchor, other
        while True:
            if last.op_type == "Add" and not bias:
                bias = (constant,)
            ahead = Trail(search, nodes=dict(attempt.nodes))
            following = ahead.down(last.outputs[0], "Mul", "Add")
            found = None if following is None else ahead.other(following, last.outputs[0])
            if following is None or found is None or not search.is_constant(found):
                break
            if not _is_by_channel(search, following, found, output):
                break
            if search.runtime == "onnxruntime" and found == following.inputs[0]:
                break
            attempt, last, constant = ahead, following, found
        return attempt.finish(
            "Conv", (*conv.inputs[:2], *bias), last.outputs[0], version=conv.version, attributes=conv.attributes
        )
    return "it doesn't follow a convolution"


def _is_by_channel(search: Search, node: Node, constant: str, output: tuple[int, ...]) -> bool:
    """Whether a constant of a Mul or Add is one number a channel of a convolution's output (n, c, *spatial)."""
    shape = search.shape(constant)
    if shape is None or search.shape(node.outputs[0]) != output:
        return False
    by_channel = (output[1], *(1 for _ in output[2:]))
    one_for_all = node.op_type == "Mul" and prod(shape) == 1 and len(shape) <= len(output)
    return one_for_all or shape in (by_channel, (1, *by_channel))


def _into_conv(search: Search, anchor: Node, *, summed: bool) -> Match | str:
    """Relu of a convolution in FP32, or of the sum of one and a tensor of its result's shape (ConvActivationFusion,
    ConvAddActivationFusion): one call of cuDNN's, which adds the bias, too."""
    trail = Trail(search)
    trail.add(anchor)
    plus = trail.up(anchor.inputs[0], "Add") if summed else None
    if summed and plus is None:
        return "it isn't of a sum"
    for name in (anchor.inputs[0],) if plus is None else plus.inputs:
        attempt = Trail(search, nodes=dict(trail.nodes))
        conv = attempt.up(name, "Conv")
        value = None if conv is None else search.values.get(conv.outputs[0])
        if conv is None or value is None:
            continue
        if value.dtype is not DataType.FLOAT32:
            return "the convolution isn't in FP32"
        inputs = conv.inputs
        if plus is not None:
            other = plus.inputs[1] if plus.inputs[0] == name else plus.inputs[0]
            if search.is_constant(other) or search.shape(other) != value.shape:
                return "what is added has another shape, or is constant"
            inputs = (*conv.inputs[:2], conv.inputs[2] if len(conv.inputs) > 2 else "", other)
        attributes = {**conv.attributes, "activation": "Relu"}
        return attempt.finish("FusedConv", inputs, anchor.outputs[0], domain="com.microsoft", attributes=attributes)
    return "it doesn't follow a convolution"


def _activation_into_conv(search: Search, anchor: Node) -> Match | str:
    return _into_conv(search, anchor, summed=False)


def _sum_and_activation_into_conv(search: Search, anchor: Node) -> Match | str:
    return _into_conv(search, anchor, summed=True)


def _clipped_relu(search: Search, anchor: Node) -> Match | str:
    """Clip of a Relu that nothing else reads is a Clip from zero on (ReluClipFusion)."""
    trail = Trail(search)
    trail.add(anchor)
    relu = trail.up(anchor.inputs[0], "Relu")
    if relu is None:
        return "it doesn't follow a Relu"
    if not all(search.is_constant(name) for name in anchor.inputs[1:] if name):
        return "its limits are no constants"
    inputs = (relu.inputs[0], *anchor.inputs[1:])
    return trail.finish("Clip", inputs, anchor.outputs[0], version=anchor.version, attributes=anchor.attributes)


ENGINE_RULES: tuple[Pattern, ...] = (
    Pattern(name="scale or transpose into product", anchors=("MatMul",), runtimes=ENGINES, find=_into_product),
    Pattern(name="bias and GELU", anchors=("Gelu",), runtimes=ORT, find=_bias_gelu),
    Pattern(name="sum and layer normalization", anchors=("LayerNormalization",), runtimes=ORT, find=_skip_layer_norm),
    Pattern(name="mask and softmax", anchors=("Softmax",), runtimes=ORT, find=_bias_softmax),
    Pattern(name="Relu into Clip", anchors=("Clip",), runtimes=ORT, find=_clipped_relu),
    Pattern(name="constant into convolution", anchors=("Mul", "Add"), runtimes=ENGINES, find=_constant_into_conv),
    # what earlier releases had (releases/onnxruntime.py)
    Pattern(name="activation into convolution", anchors=("Relu",), runtimes=ORT, find=_activation_into_conv),
    Pattern(
        name="sum and activation into convolution", anchors=("Relu",), runtimes=ORT, find=_sum_and_activation_into_conv
    ),
)
