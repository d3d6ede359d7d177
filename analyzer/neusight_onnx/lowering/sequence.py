"""Sequences, optionals and text: handled on the host."""

from __future__ import annotations

from neusight_onnx.kernels import Movement
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Free, Kernels, Outcome, Unsupported, lowers


@lowers(
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    gives="free",
    note="a list on the host: no element moves",
    needs_shapes=False,
)
def sequence(context: NodeContext) -> Outcome:
    return Free(reason="a list on the host: no element moves", host=True)


@lowers(
    "Optional", "OptionalGetElement", "OptionalHasElement", gives="free", note="passes its input on", needs_shapes=False
)
def optional(context: NodeContext) -> Outcome:
    return Free(reason="passes its input on")


@lowers("ConcatFromSequence", gives="movement", needs_shapes=False)
def concat(context: NodeContext) -> Outcome:
    if not context.has_output(0):
        value = context.outputs[0] if context.outputs else None
        cause = value.unknown_because if value is not None else None
        return Unsupported(reason=f"shape unknown because of {cause or context.node.name}")
    out = context.out()
    size = out.byte_count
    return Kernels(kernels=(Movement(operation="concat", dtype=out.dtype, shape=out.shape, read=size, written=size),))


@lowers("SplitToSequence", gives="movement", note="views in eager and compiled", needs_shapes=False)
def split(context: NodeContext) -> Outcome:
    source = context.value(0)
    if context.lazy:
        return Free(reason="a view: strides change, no element moves", host=True)
    if source is None or source.shape is None:
        cause = source.unknown_because if source is not None else None
        return Unsupported(reason=f"shape unknown because of {cause or context.node.name}")
    spec = context.spec(0)
    kernel = Movement(
        operation="split", dtype=spec.dtype, shape=spec.shape, read=spec.byte_count, written=spec.byte_count
    )
    return Kernels(kernels=(kernel,))


@lowers(
    "StringConcat",
    "StringNormalizer",
    "StringSplit",
    "RegexFullMatch",
    gives="free",
    note="text is handled on the host",
    needs_shapes=False,
)
@lowers(
    "Tokenizer",
    "MurmurHash3",
    domain="com.microsoft",
    gives="free",
    note="text is handled on the host",
    needs_shapes=False,
)
def text(context: NodeContext) -> Outcome:
    return Free(reason="text is handled on the host", host=True)


@lowers("ImageDecoder", gives="free", note="images are decoded on the host", needs_shapes=False)
def image(context: NodeContext) -> Outcome:
    return Free(reason="images are decoded on the host", host=True)
