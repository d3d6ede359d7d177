"""What TensorRT's parser refuses: operators that it doesn't have, and forms of those that it has.

Its answers to the standard's single-node tests, and to a node of each operator: TensorRT for RTX 1.7, whose parser is
onnx-tensorrt's, as TensorRT's is. Left out is what hangs on libraries of plugins that TensorRT ships and TensorRT for
RTX doesn't (DeformConv, NonZero, RoiAlign, ScatterElements with a reduction). Operators of com.microsoft that the
latter reads (GroupQueryAttention, MultiHeadAttention, MatMulNBits and a few more, "TensorRT-RTX MultiHeadAttention" in
its messages) aren't among those that onnx-tensorrt's docs/operators.md lists.
"""

from __future__ import annotations

from collections.abc import Mapping

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Node, Value


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MISSING = _named(
    """
    Adagrad Adam Affine AffineGrid Bernoulli BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad
    Col2Im Compress ConcatFromSequence ConvInteger Crop CumProd DFT Det DynamicQuantizeLinear ImageDecoder MatMulInteger
    MaxRoiPool MaxUnpool MelWeightMatrix MemcpyFromHost MemcpyToHost Momentum Multinomial NegativeLogLikelihoodLoss
    Optional OptionalGetElement OptionalHasElement QLinearConv QLinearMatMul RegexFullMatch Scale SequenceAt
    SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SoftmaxCrossEntropyLoss
    SplitToSequence StringConcat StringNormalizer StringSplit SwiGLU TfIdfVectorizer Unique
    """
)
"""Operators of ai.onnx. Those of every other domain are missing, too."""

_NO_TYPES = frozenset(
    {DataType.INT2, DataType.INT16, DataType.UINT2, DataType.UINT4, DataType.UINT16, DataType.UINT32, DataType.UINT64}
    | {DataType.FLOAT8E4M3FNUZ, DataType.FLOAT8E5M2, DataType.FLOAT8E5M2FNUZ, DataType.FLOAT8E8M0}
    | {DataType.STRING}
)
"""Types that no tensor of an engine has."""

_NO_BYTES = _named("Add Div Greater GreaterOrEqual Less LessOrEqual Max MaxPool Min Mod Mul Sub")
"""What doesn't compute in UINT8, which an engine reads and converts; of constants the parser takes it."""

_SAMPLED = frozenset({"align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn"})
"""Resize's ways from places of the result to those of the operand."""


MOST_TAKEN = 3840
"""What K of a TopK may be: "currently only values of K up to 3840 are supported" (``INetworkDefinition::addTopK`` of
TensorRT's API reference, ``NvInfer.h``)."""


def why_refused(node: Node, values: Mapping[str, Value]) -> str | None:
    """What of a node of the file the parser lacks, by its operator and form; None where it takes it."""
    if node.domain:
        return f"{node.domain}::{node.op_type}"
    if node.op_type in _MISSING:
        return node.op_type
    form = _lacking_form(node, values)
    return None if form is None else f"{node.op_type} {form}"


def _lacking_form(node: Node, values: Mapping[str, Value]) -> str | None:
    found = [value for name in (*node.inputs, *node.outputs) if (value := values.get(name)) is not None]
    types = [value.dtype for value in found]
    lacking = next((dtype for dtype in types if dtype in _NO_TYPES), None)
    is_computed = not all(value.is_constant for value in found)
    if lacking is None and node.op_type in _NO_BYTES and DataType.UINT8 in types[:1] and is_computed:
        lacking = DataType.UINT8
    if lacking is not None:
        return f"of {lacking.label}"
    given = node.attributes.get
    match node.op_type:
        case "Attention":
            return _lacking_attention(node, values)
        case "AveragePool" | "LpPool" | "MaxPool" if any(step != 1 for step in _numbers(given("dilations"))):
            return "with dilations"
        case "LpPool" | "GlobalLpPool" if given("p", 2) not in (1, 2):
            return "of a norm but 1 and 2"
        case "LayerNormalization" | "MaxPool" if sum(map(bool, node.outputs)) > 1:
            return "with more than one result"
        case "BatchNormalization" if given("training_mode", 0):
            return "with training_mode"
        case "Mod" if not given("fmod", 0) and types and types[0] is not None and not types[0].is_integer:
            return "of floats without fmod"
        case "Resize" if given("antialias", 0):
            return "with antialias"
        case "Resize" if given("keep_aspect_ratio_policy", "stretch") != "stretch":
            return "with keep_aspect_ratio_policy"
        case "Resize" if (mode := given("coordinate_transformation_mode", "half_pixel")) not in _SAMPLED:
            return f"with coordinate_transformation_mode {mode!r}"
        case "ScatterND" if given("reduction", "none") != "none":
            return "with a reduction"
        case "TopK" if (count := _taken(node, values)) is not None and count > MOST_TAKEN:
            return f"of {count:,} elements, more than {MOST_TAKEN:,}"
        case "TensorScatter" if given("mode", "linear") != "linear":
            return "of a circular cache"
    return None


def _taken(node: Node, values: Mapping[str, Value]) -> int | None:
    """K of a TopK, which was an attribute before opset 10; None where it isn't known."""
    given = node.attributes.get("k")
    if isinstance(given, int):
        return given
    value = values.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if value is None or value.data is None or value.data_low is not None or value.data.size != 1:
        return None
    return int(value.data.reshape(-1)[0])


def _lacking_attention(node: Node, values: Mapping[str, Value]) -> str | None:
    given = node.attributes.get
    if any(node.outputs[1:]) or any(node.inputs[4:6]):
        return "with past or present keys and values: concatenate the cache before it"
    if given("softcap", 0.0):
        return "with softcap"
    if given("softmax_precision") is not None:
        return "with softmax_precision"
    if given("is_causal", 0) and len(node.inputs) > 3 and node.inputs[3]:
        return "with is_causal and a mask"
    shapes = [values[name].shape if name in values else None for name in node.inputs[1:3]]
    if len(shapes) == 2 and None not in shapes and shapes[0] != shapes[1]:
        return "with values of another width than keys"
    return None


def _numbers(attribute: object) -> tuple[object, ...]:
    return tuple(attribute) if isinstance(attribute, tuple | list) else ()
