"""Attention of com.microsoft, with and without its projection."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from neusight_onnx.kernels import Attention, Elementwise, Gemm, Kernel, Movement, TensorSpec
from neusight_onnx.lowering.attention.provider import (
    by_parts,
    cache_joined,
    fused_variants,
    heads_apart,
    is_one_kernel,
    projected_apart,
)
from neusight_onnx.lowering.attention.shapes import cache_write
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.gemm import bias_before
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


def _projection(context: NodeContext, *, tokens: int, weights: int, bias: int) -> Gemm:
    """(tokens, hidden) @ (hidden, q + k + v)."""
    k, n = context.shape(weights)[-2:]
    kind = context.dtype(0)
    return Gemm(
        m=tokens,
        n=n,
        k=k,
        b_is_weight=True,
        dtype=kind,
        b_dtype=None if context.dtype(weights) is kind else context.dtype(weights),
        output_dtype=None if context.out().dtype is kind else context.out().dtype,
        epilogue=("bias",) if context.has(bias) else (),
    )


@lowers(
    "Attention", "DecoderMaskedSelfAttention", domain="com.microsoft", gives="attention", note="with its projection"
)
@lowers("QAttention", "LongformerAttention", "QOrderedAttention", domain="com.microsoft", gives="attention")
def with_projection(context: NodeContext) -> Outcome:
    """input (b, s, hidden) @ weights (hidden, q + k + v), then attention over the past and the present."""
    quantised = context.node.op_type == "QAttention"
    b, s, _ = context.shape(0)
    heads = max(context.integer("num_heads", 1), 1)
    sizes = context.integers("qkv_hidden_sizes")
    total = context.shape(1)[-1]
    q, _, v = sizes if sizes and len(sizes) == 3 else (total // 3,) * 3
    past_index = 8 if quantised else 4
    t = s
    if not quantised and context.node.op_type == "LongformerAttention":
        past_index = len(context.inputs)
    if context.has(past_index):
        t += context.shape(past_index)[3]
    present = 1 if context.has_output(1) else 0
    window = 2 * context.integer("window", 0) + 1 if context.node.op_type == "LongformerAttention" else None
    mask = context.spec(5) if not quantised and context.node.op_type == "Attention" and context.has(5) else None
    out = context.out()
    projection = _projection(context, tokens=b * s, weights=1, bias=2)
    attention = Attention(
        b=b,
        h=heads,
        g=heads,
        s=s,
        t=t,
        d=q // heads,
        v=v // heads,
        causal=context.integer("unidirectional", 0) == 1,
        window=None if window is None else min(window, t),
        mask=mask,
        dtype=out.dtype,
        cache_write_elements=context.out(1).element_count if present else 0,
    )
    if context.runtime == "onnxruntime" and context.node.op_type == "Attention":
        return Kernels(kernels=_in_the_provider(context, projection, attention))
    return Kernels(kernels=(projection, attention))


def _in_the_provider(context: NodeContext, projection: Gemm, attention: Attention) -> tuple[Kernel, ...]:
    """The kernels of com.microsoft's Attention in ONNX Runtime's CUDA provider; its product comes without its bias."""
    b, s = attention.b, attention.s
    padding = context.spec(3) if context.has(3) else None
    cached = context.has(4) or context.has_output(1)
    kernels: list[Kernel]
    if context.executor.biases_attention_first:
        kernels = [
            *bias_before(context, (projection,)),
            projected_apart(attention, tokens=s, width=projection.n, biased=False),
        ]
    else:
        kernels = [replace(projection, epilogue=()), projected_apart(attention, tokens=s, width=projection.n)]
    if cached:
        shared = context.integer("past_present_share_buffer", 0) == 1
        written = context.out(1) if context.has_output(1) else context.spec(4)
        if not shared:
            kernels.append(cache_joined(written))
    written_to_cache = 2 * b * attention.h * s * attention.d if cached else 0
    core = replace(attention, cache_write_elements=written_to_cache, variants=fused_variants(context.executor))
    having = context.executor.fused_attention
    if is_one_kernel(attention, padding=padding, having=having, with_cache=cached):
        return (*kernels, core)
    return (*kernels, *by_parts(attention, padding=padding))


@lowers("PackedAttention", domain="com.microsoft", gives="attention", note="costed without padding")
def packed(context: NodeContext) -> Outcome:
    """input (tokens, hidden); the sequences' lengths aren't known: tokens / batch each."""
    tokens = context.shape(0)[0]
    batch = max(context.spec(4).element_count - 1, 1)
    heads = max(context.integer("num_heads", 1), 1)
    sizes = context.integers("qkv_hidden_sizes")
    total = context.shape(1)[-1]
    q, _, v = sizes if sizes and len(sizes) == 3 else (total // 3,) * 3
    s = -(-tokens // batch)
    kernel = Attention(
        b=batch,
        h=heads,
        g=heads,
        s=s,
        t=s,
        d=q // heads,
        v=v // heads,
        mask=context.spec(5) if context.has(5) else None,
        dtype=context.dtype(0),
    )
    return Kernels(kernels=(_projection(context, tokens=tokens, weights=1, bias=2), kernel))


@lowers("PackedMultiHeadAttention", domain="com.microsoft", gives="attention", note="costed without padding")
def packed_heads(context: NodeContext) -> Outcome:
    tokens, hidden = context.shape(0)[0], prod(context.out().shape[1:])
    batch = max(context.spec(5).element_count - 1, 1)
    heads = max(context.integer("num_heads", 1), 1)
    s = -(-tokens // batch)
    d = hidden // heads
    mask = context.spec(6) if context.has(6) else None
    kernel = Attention(b=batch, h=heads, g=heads, s=s, t=s, d=d, v=d, mask=mask, dtype=context.dtype(0))
    return Kernels(kernels=(kernel,))


@lowers("MultiHeadAttention", "DecoderMaskedMultiHeadAttention", domain="com.microsoft", gives="attention")
def multi_head(context: NodeContext) -> Outcome:
    """query (b, s, h * d), or packed (b, s, h, 3, d); key, value (b, t, ...) or (b, h, t, d); a cache before them."""
    heads = max(context.integer("num_heads", 1), 1)
    query = context.shape(0)
    masked_decoder = context.node.op_type == "DecoderMaskedMultiHeadAttention"
    past, mask, bias = (5, 4, 10) if masked_decoder else (6, 5, 3)
    b, s = query[0], query[1]
    out = context.out()
    v = out.shape[-1] // heads
    d = query[4] if len(query) == 5 else query[-1] // heads
    t = s
    if context.has(1):
        key = context.shape(1)
        t = key[2] if len(key) == 4 else key[1]
    if context.has(past) and not (context.has(1) and len(context.shape(1)) == 4):
        t += context.shape(past)[2]
    attention = Attention(
        b=b,
        h=heads,
        g=heads,
        s=s,
        t=t,
        d=d,
        v=v,
        causal=context.integer("unidirectional", 0) == 1,
        mask=context.spec(mask) if context.has(mask) else None,
        dtype=context.dtype(0),
        cache_write_elements=cache_write(context, 1, 2),
        extra_outputs=context.other_outputs(3),
    )
    if context.runtime == "onnxruntime" and not masked_decoder and not attention.extra_outputs:
        padding = context.spec(4) if context.has(4) else None
        having = context.executor.fused_attention
        if not is_one_kernel(attention, padding=padding, having=having, takes_bias=True):
            return Kernels(kernels=_heads_by_parts(context, attention, padding))
        attention = replace(attention, variants=fused_variants(context.executor))
    kernels: list[Kernel] = []
    if context.has(bias):
        # its parts are added to query, key and value; a cache has had it
        for index in range(3):
            if context.has(index) and (len(context.shape(index)) == 3 or len(query) == 5):
                size = TensorSpec(dtype=context.dtype(index), shape=context.shape(index))
                part = TensorSpec(dtype=context.dtype(bias), shape=(prod(size.shape[2:]),))
                kernels.append(Elementwise(operations=("add",), inputs=(size, part), output=size))
    return Kernels(kernels=(*kernels, attention))


def _heads_by_parts(context: NodeContext, attention: Attention, padding: TensorSpec | None) -> tuple[Kernel, ...]:
    """MultiHeadAttention by parts: queries, keys and values to heads first, with their biases; the cache; the parts."""
    biased = context.has(3)
    kernels: list[Kernel] = []
    if len(context.shape(0)) == 5 or not context.has(1):
        width = prod(context.shape(0)[2:])
        kernels.append(projected_apart(attention, tokens=attention.s, width=width, biased=biased))
    else:
        packed = len(context.shape(1)) == 5
        for index, depth in ((0, attention.d), (1, attention.d), (2, attention.v)):
            if context.has(index) and len(context.shape(index)) == 3:
                part = replace(attention, d=depth)
                kernels.append(heads_apart(part, tokens=context.shape(index)[1], biased=biased))
            elif index == 1 and packed:
                tokens, width = context.shape(1)[1], prod(context.shape(1)[2:])
                kernels.append(projected_apart(attention, tokens=tokens, width=width, biased=biased))
    kernels += [cache_joined(context.out(index)) for index in (1, 2) if context.has_output(index)]
    return (*kernels, *by_parts(attention, padding=padding))


@lowers("DecoderAttention", domain="com.microsoft", gives="attention", note="with its projections")
def decoder(context: NodeContext) -> Outcome:
    """query (s, b, hidden), key (t, b, hidden), weights (hidden, hidden) and (hidden, 2 * hidden)."""
    s, b, hidden = context.shape(0)
    t = context.shape(1)[0]
    heads = max(context.integer("num_heads", 1), 1)
    dtype = context.dtype(0)
    query = Gemm(m=s * b, n=hidden, k=hidden, b_is_weight=True, dtype=dtype, epilogue=("bias",))
    cross = Gemm(m=t * b, n=2 * hidden, k=hidden, b_is_weight=True, dtype=dtype, epilogue=("bias",))
    core = Attention(
        b=b,
        h=heads,
        g=heads,
        s=s,
        t=t,
        d=hidden // heads,
        v=hidden // heads,
        dtype=dtype,
        cache_write_elements=cache_write(context, 1, 2),
    )
    return Kernels(kernels=(query, cross, core))


@lowers("RelativePositionBias", "GatedRelativePositionBias", domain="com.microsoft", gives="movement")
def position_bias(context: NodeContext) -> Outcome:
    out = context.out()
    read = sum(context.spec(index).byte_count for index in range(len(context.inputs)) if context.has(index))
    kernel = Movement(operation="expand", dtype=out.dtype, shape=out.shape, read=read, written=out.byte_count)
    return Kernels(kernels=(kernel,))
