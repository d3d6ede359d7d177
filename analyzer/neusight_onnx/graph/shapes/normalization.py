"""Normalizations, in training too, and the contrib operators that fuse them with what comes before."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.registry import rule

_CONTRIB = "com.microsoft"


@rule("BatchNormalization")
def _batch(ctx: NodeContext) -> Sequence[Value]:
    """y like x; in training the running (and in old opsets the saved) mean and variance, (c) each."""
    statistics = [ctx.same(3), ctx.same(4)] if ctx.has(4) else []
    return (ctx.same(), *statistics, *statistics)


@rule("InstanceNormalization", "GroupNormalization", "RMSNormalization")
@rule("GroupNorm", "BranchwiseRMSNorm", "GatedRMSNorm", "QOrderedLayerNormalization", domain=_CONTRIB)
def _plain(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


def _statistics(ctx: NodeContext, axis: int) -> Value:
    shape = ctx.shape(0)
    place = ctx.axis(axis, len(shape))
    stash = ctx.type_attribute("stash_type", DataType.FLOAT32)
    return ctx.tensor(stash, (*shape[:place], *(1,) * (len(shape) - place)))


@rule("LayerNormalization")
def _layer(ctx: NodeContext) -> Sequence[Value]:
    """y like x; mean and 1 / deviation with the normalized axes of size 1."""
    statistics = _statistics(ctx, ctx.integer("axis", -1))
    return (ctx.same(), statistics, statistics)


@rule("SimplifiedLayerNormalization")
@rule("SimplifiedLayerNormalization", domain=_CONTRIB)
def _simplified(ctx: NodeContext) -> Sequence[Value]:
    """Has the type of its scale, which may be wider or narrower than the input's."""
    return (ctx.same(dtype=ctx.dtype(1)), _statistics(ctx, ctx.integer("axis", -1)))


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=_CONTRIB)
def _skip(ctx: NodeContext) -> Sequence[Value]:
    """y like x, mean and 1 / deviation, and the sum of input, skip and bias."""
    statistics = _statistics(ctx, -1)
    return (ctx.same(), statistics, statistics, ctx.same())


@rule("SkipGroupNorm", domain=_CONTRIB)
def _skip_group(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(), ctx.same())


@rule("EmbedLayerNormalization", domain=_CONTRIB)
def _embed(ctx: NodeContext) -> Sequence[Value]:
    """ids (b, s), table (v, h) -> (b, s, h), mask_index (b), sum of embeddings (b, s, h)."""
    ids = ctx.shape(0)
    h = ctx.shape(2)[-1]
    output = ctx.tensor(ctx.dtype(2), (*ids, h))
    return (output, ctx.tensor(DataType.INT32, ids[:1]), output)


@rule("QEmbedLayerNormalization", domain=_CONTRIB)
def _embed_quantized(ctx: NodeContext) -> Sequence[Value]:
    """As EmbedLayerNormalization with 8-bit tables; scales (input 8 on) have the output's type."""
    ids = ctx.shape(0)
    scale_dtype = ctx.dtype(8) if ctx.has(8) else DataType.FLOAT32
    return (ctx.tensor(scale_dtype, (*ids, ctx.shape(2)[-1])), ctx.tensor(DataType.INT32, ids[:1]))


@rule("RMSNormRotary", domain=_CONTRIB)
def _rms_rotary(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)
