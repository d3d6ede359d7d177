"""Fourier transforms, windows, random numbers, text, and the training operators."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext, UnknownShape
from neusight_onnx.graph.shapes.registry import rule


@rule("DFT")
def _dft(ctx: NodeContext) -> Sequence[Value]:
    """(..., n, ..., 1 or 2) -> n bins (n // 2 + 1 if one-sided), real and imaginary part last."""
    shape = list(ctx.shape(0))
    inverse, one_sided = ctx.integer("inverse", 0), ctx.integer("onesided", 0)
    axis = ctx.integer("axis", 1) if ctx.node.version < 20 else -2
    if ctx.has(2):
        axis = ctx.integers(2)[0]
    place = ctx.axis(axis, len(shape))
    length = ctx.integers(1)[0] if ctx.has(1) else None
    if inverse and one_sided:
        shape[place] = 2 * (shape[place] - 1) if length is None else length
        shape[-1] = 1
        return (ctx.tensor(ctx.dtype(0), shape),)
    size = shape[place] if length is None else length
    shape[place] = size // 2 + 1 if one_sided else size
    shape[-1] = 2
    return (ctx.tensor(ctx.dtype(0), shape),)


@rule("STFT")
def _stft(ctx: NodeContext) -> Sequence[Value]:
    """signal (b, n, 1 or 2), step, window (w) or frame length w -> (b, (n - w) // step + 1, bins, 2)."""
    b, n, *_ = ctx.shape(0)
    step = ctx.integers(1)[0]
    if ctx.has(3):
        width = ctx.integers(3)[0]
    elif ctx.has(2):
        (width,) = ctx.shape(2)
    else:
        raise ctx.error("it has neither a window nor a frame length")
    bins = width // 2 + 1 if ctx.integer("onesided", 1) else width
    frames = (n - width) // step + 1
    return (ctx.tensor(ctx.dtype(0), (b, frames, bins, 2)),)


@rule("BlackmanWindow", "HammingWindow", "HannWindow")
def _window(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.type_attribute("output_datatype", DataType.FLOAT32), (ctx.integers(0)[0],)),)


@rule("MelWeightMatrix")
def _mel_weights(ctx: NodeContext) -> Sequence[Value]:
    """mel bins m, transform length n -> (n // 2 + 1, m)."""
    dtype = ctx.type_attribute("output_datatype", DataType.FLOAT32)
    return (ctx.tensor(dtype, (ctx.integers(1)[0] // 2 + 1, ctx.integers(0)[0])),)


@rule("RandomNormal", "RandomUniform", deterministic=False)
def _random(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.type_attribute("dtype", DataType.FLOAT32), ctx.integer_list("shape") or ()),)


@rule("RandomNormalLike", "RandomUniformLike", deterministic=False)
def _random_like(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=ctx.type_attribute("dtype", ctx.dtype(0))),)


@rule("Multinomial", deterministic=False)
def _multinomial(ctx: NodeContext) -> Sequence[Value]:
    dtype = ctx.type_attribute("dtype", DataType.INT32)
    return (ctx.tensor(dtype, (ctx.shape(0)[0], ctx.integer("sample_size", 1))),)


@rule("StringNormalizer")
def _string_normalizer(ctx: NodeContext) -> Sequence[Value]:
    """(c) or (1, c): what is no stop word stays, and never less than one (empty) string."""
    shape = ctx.shape(0)
    if not ctx.list_length("stopwords"):
        return (ctx.same(),)
    high = (*shape[:-1], max(shape[-1], 1))
    low = (*shape[:-1], 1)
    return (ctx.bound(DataType.STRING, high, low, f"at most {high[-1]} strings, if none is a stop word"),)


@rule("StringConcat")
def _string_concat(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(DataType.STRING, ctx.broadcast(0, 1)),)


@rule("StringSplit")
def _string_split(ctx: NodeContext) -> Sequence[Value]:
    """(...) -> (..., k) with k the most pieces of any string (maxsplit + 1 at most), and the count of each (...)."""
    shape = ctx.shape(0)
    counts = ctx.tensor(DataType.INT64, shape)
    splits = ctx.attribute("maxsplit")
    if not isinstance(splits, int):
        return (Value(dtype=DataType.STRING, shape=None, unknown_because=ctx.node.name), counts)
    how = f"at most {splits + 1} pieces of each string"
    return (ctx.bound(DataType.STRING, (*shape, splits + 1), (*shape, 0), how), counts)


@rule("RegexFullMatch")
def _regex(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=DataType.BOOL),)


_MOST_TOKENS = 65_536
"""Tokens that no text is taken to exceed, a generous assumption: what depends on it is done by the host."""


@rule("Tokenizer", domain="com.microsoft")
def _tokenizer(ctx: NodeContext) -> Sequence[Value]:
    """(c) -> (c, t), (n, c) -> (n, c, t), t the most tokens that a text of them has."""
    shape = ctx.shape(0)
    how = f"taken to be at most {_MOST_TOKENS} tokens, which its texts decide"
    return (ctx.bound(DataType.STRING, (*shape, _MOST_TOKENS), (*shape, 0), how),)


@rule("TfIdfVectorizer")
def _tf_idf(ctx: NodeContext) -> Sequence[Value]:
    """(c) -> (k), (n, c) -> (n, k), k one more than the greatest index of an n-gram."""
    indexes = ctx.integer_list("ngram_indexes") or (-1,)
    return (ctx.tensor(DataType.FLOAT32, (*ctx.shape(0)[:-1], max(indexes) + 1)),)


@rule("ImageDecoder")
def _image(ctx: NodeContext) -> Sequence[Value]:
    raise UnknownShape(None)


@rule("Gradient", domain="ai.onnx.preview.training")
def _gradient(ctx: NodeContext) -> Sequence[Value]:
    """One derivative for each of ``xs``, the first inputs, of their shapes."""
    names = ctx.list_length("xs") or len(ctx.node.outputs)
    return [ctx.same(index) for index in range(names)]


@rule("Adagrad", "Adam", "Momentum", domain="ai.onnx.preview.training")
def _optimizer(ctx: NodeContext) -> Sequence[Value]:
    """rate, step, then n tensors, n gradients and each kind of state n times -> new tensors and states."""
    kinds = 4 if ctx.node.op_type == "Adam" else 3
    count = (len(ctx.inputs) - 2) // kinds
    updated = [ctx.same(2 + index) for index in range(count)]
    states = [ctx.same(2 + 2 * count + index) for index in range((kinds - 2) * count)]
    return [*updated, *states]
