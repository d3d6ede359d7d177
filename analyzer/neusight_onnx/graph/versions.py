"""Which IR and opset versions are known: those of the installed onnx package."""

from __future__ import annotations

_ALWAYS_KNOWN = {"": 22, "ai.onnx.ml": 5, "ai.onnx.training": 1}
"""Of onnx 1.17, the oldest release that the package installs with; newer versions are looked up in onnx itself."""

_ALWAYS_KNOWN_IR = 10


def newest_known(domain: str) -> int:
    """The newest opset of ``domain`` that the installed onnx defines; 1 for domains that are not onnx's."""
    # Imported here: it takes 160 ms, and only files with something odd or new need it.
    from onnx import helper

    column = _COLUMNS.get(domain)
    if column is None:
        return 1
    return max((int(row[column]) for row in helper.VERSION_TABLE if len(row) > column), default=1)


_COLUMNS = {"": 2, "ai.onnx.ml": 3, "ai.onnx.training": 4}
"""Columns of onnx.helper.VERSION_TABLE: release, IR version, then an opset each."""


def newer_opset(domain: str, version: int) -> int | None:
    """The newest known version of ``domain`` if ``version`` is newer still, else None."""
    if domain not in _COLUMNS or version <= _ALWAYS_KNOWN.get(domain, 0):
        return None
    known = newest_known(domain)
    return known if version > known else None


def newer_ir(version: int) -> int | None:
    """The newest known IR version if ``version`` is newer still, else None."""
    if version <= _ALWAYS_KNOWN_IR:
        return None
    from onnx import IR_VERSION

    return int(IR_VERSION) if version > IR_VERSION else None


FIRST_OPSETS: dict[str, int] = {
    name: version
    for version, names in {
        7: "Acos Asin Atan Cos Multinomial Sin Tan",
        8: "Expand Scan",
        9: "Acosh Asinh Atanh Compress ConstantOfShape Cosh Erf EyeLike IsNaN MaxUnpool MeanVarianceNormalization "
        "NonZero OneHot Scatter Shrink Sign Sinh TfIdfVectorizer Where",
        10: "ConvInteger DequantizeLinear IsInf MatMulInteger Mod NonMaxSuppression QLinearConv QLinearMatMul "
        "QuantizeLinear Resize ReverseSequence RoiAlign StringNormalizer ThresholdedRelu",
        11: "BitShift ConcatFromSequence CumSum Det DynamicQuantizeLinear GatherElements GatherND Range Round "
        "ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert "
        "SequenceLength SplitToSequence Unique",
        12: "Celu Einsum GreaterOrEqual LessOrEqual NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
        14: "HardSwish Trilu",
        15: "Bernoulli CastLike Optional OptionalGetElement OptionalHasElement",
        16: "GridSample",
        17: "BlackmanWindow DFT HammingWindow HannWindow LayerNormalization MelWeightMatrix STFT SequenceMap",
        18: "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im GroupNormalization Mish",
        19: "DeformConv",
        20: "AffineGrid Gelu ImageDecoder RegexFullMatch StringConcat StringSplit",
        23: "Attention RMSNormalization RotaryEmbedding",
        24: "Swish TensorScatter",
        26: "BitCast CumProd",
        27: "CausalConvWithState LinearAttention",
        28: "SwiGLU",
    }.items()
    for name in names.split()
}
"""Operator of ai.onnx -> the first opset that has it, where that isn't 1 (onnx.defs; a test compares what it knows)."""

LAST_OPSETS: dict[str, int] = {"Upsample": 9, "Scatter": 10}
"""Operator of ai.onnx -> the last opset in which it isn't deprecated (onnx.defs; a test compares)."""
