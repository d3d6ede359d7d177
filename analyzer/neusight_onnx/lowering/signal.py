"""Transforms, determinants and other real work without a class of its own."""

from __future__ import annotations

from math import log2, prod

from neusight_onnx.kernels import Opaque
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.movement import TEXT
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


def opaque(context: NodeContext, operation: str, work: int) -> Kernels:
    """``work`` operations that read every input and write every output once."""
    read = sum(context.spec(index).byte_count for index in range(len(context.inputs)) if context.has(index))
    written = sum(context.out(index).byte_count for index in range(len(context.outputs)) if context.has_output(index))
    kernel = Opaque(operation=operation, operation_count=work, dtype=context.out().dtype, read=read, written=written)
    return Kernels(kernels=(kernel,))


def transform_work(transforms: int, length: int) -> int:
    """Operations of complex FFTs: 5 n log2 n each, the customary count."""
    return round(5 * transforms * length * log2(length)) if length > 1 else 0


@lowers("DFT", gives="opaque", note="5 n log2 n operations a transform")
def dft(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    axes = context.ints(2) if context.has(2) else None
    axis = (axes[0] if axes else context.integer("axis", -2 if context.version >= 20 else 1)) % len(shape)
    lengths = context.ints(1) if context.has(1) else None
    length = lengths[0] if lengths else shape[axis]
    transforms = prod(shape[:-1]) // max(shape[axis], 1)
    return opaque(context, "fft", transform_work(transforms, length))


@lowers("Rfft", "Irfft", domain="com.microsoft", gives="opaque")
def rfft(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    rank = context.integer("signal_ndim", 1)
    inverse = context.node.op_type == "Irfft"
    signal = context.out().shape[-rank:] if inverse else shape[-rank:]
    length = prod(signal)
    count = context.out().element_count if inverse else context.spec(0).element_count
    return opaque(context, "fft", transform_work(count // max(length, 1), length))


@lowers("STFT", gives="opaque", note="a transform of each frame")
def stft(context: NodeContext) -> Outcome:
    """signal (b, length, 1 or 2) -> (b, frames, bins, 2)."""
    lengths = context.ints(3) if context.has(3) else None
    out = context.out().shape
    if lengths:
        length = lengths[0]
    elif context.has(2):
        length = prod(context.shape(2))
    else:
        length = 2 * (out[2] - 1)
    return opaque(context, "fft", transform_work(out[0] * out[1], length))


@lowers("Det", gives="opaque", note="n^3 / 3 multiply-adds")
def determinant(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    return opaque(context, "lu", 2 * prod(shape[:-2]) * shape[-1] ** 3 // 3)


@lowers("Inverse", domain="com.microsoft", gives="opaque", note="n^3 multiply-adds")
def inverse(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    return opaque(context, "inverse", 2 * prod(shape[:-2]) * shape[-1] ** 3)


@lowers("TfIdfVectorizer", gives="opaque", note="of numbers; text is handled on the host")
def ngrams(context: NodeContext) -> Outcome:
    if context.node.attributes.get("pool_strings"):
        return TEXT
    return opaque(context, "tfidf", context.spec(0).element_count * max(context.integer("max_gram_length", 1), 1))


@lowers("NGramRepeatBlock", "DynamicTimeWarping", domain="com.microsoft", gives="opaque")
def contributed(context: NodeContext) -> Outcome:
    return opaque(context, context.node.op_type.lower(), context.spec(0).element_count)


@lowers("Adagrad", "Adam", "Momentum", domain="ai.onnx.preview.training", gives="opaque", note="an optimizer's step")
def optimizer(context: NodeContext) -> Outcome:
    elements = sum(
        context.out(index).element_count for index in range(len(context.outputs)) if context.has_output(index)
    )
    return opaque(context, context.node.op_type.lower(), 4 * elements)
