"""Attention of ai.onnx, and as exporters write it."""

from __future__ import annotations

from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Attention
from neusight_onnx.lowering.attention.formula import by_formula, has_fused_kernel
from neusight_onnx.lowering.attention.provider_standard import standard_attention
from neusight_onnx.lowering.attention.pytorch_operands import are_copied, head_copies, result_layouts, with_operands
from neusight_onnx.lowering.attention.shapes import cache_write, heads_of
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers

DROPS = "neusight_dropout"
"""Attribute of a node whose attention drops weights, which training gives it."""


@lowers("Attention", gives="attention", note="grouped queries, causal mask, cache")
def attention(context: NodeContext) -> Outcome:
    """Q (b, h, s, d), K (b, g, t, d), V (b, g, t, v); a cache lengthens t; present keys and values are written.

    Causal, query i sees the keys up to its own place, which is i behind a cache (past keys, or keys of a given length);
    without one it is i itself: keys behind the last query are never looked at.
    """
    b, h, s, d = heads_of(context.shape(0), context.integer("q_num_heads", 1))
    _, g, t, _ = heads_of(context.shape(1), context.integer("kv_num_heads", 1))
    v = heads_of(context.shape(2), context.integer("kv_num_heads", 1))[3]
    causal = context.integer("is_causal", 0) == 1
    if context.has(4):
        t += context.shape(4)[2]
    elif causal and not context.has(6):
        t = min(t, s)
    before, behind = context.integer("left_window_size", -1), context.integer("right_window_size", -1)
    window = before + 1 + (0 if causal else behind) if before >= 0 and (causal or behind >= 0) else None
    kernel = Attention(
        b=b,
        h=h,
        g=g,
        s=s,
        t=t,
        d=d,
        v=v,
        causal=causal,
        window=window,
        mask=context.spec(3) if context.has(3) else None,
        dtype=context.dtype(0),
        kv_dtype=None if context.dtype(1) is context.dtype(0) else context.dtype(1),
        cache_write_elements=cache_write(context, 1, 2),
        extra_outputs=context.other_outputs(3),
        dropout=context.integer(DROPS, 0) == 1,
    )
    if context.lazy and not has_fused_kernel(kernel, context.executor):
        return Kernels(kernels=by_formula(kernel, context.executor, copied=are_copied(context)))
    copies = [copy for index in range(3) for copy in head_copies(context, index)]
    if context.runtime == "onnxruntime":
        tokens_first = len(context.shape(0)) == 3
        past = context.shape(4)[2] if context.has(4) else 0
        counted = context.has(6)
        return Kernels(kernels=standard_attention(kernel, tokens_first=tokens_first, past=past, counts_keys=counted))
    return Kernels(kernels=(*copies, *with_operands(context, kernel)), layouts=result_layouts(context, kernel))


@lowers("ScaledDotProductAttention", domain="neusight", gives="attention", note="recognised: as exporters write it")
def recognised(context: NodeContext) -> Outcome:
    """q (..., s, d), k transposed (..., d, t) (where "transposed_key" is 0: (..., t, d)), v (..., t, v), and a mask.

    ``by_parts``: the runtime has no fused kernel for them. In INT8 the time of FP16 stands, as no such kernel was ever
    measured.
    """
    query, key, value = context.shape(0), context.shape(1), context.shape(2)
    if not context.integer("transposed_key", 1):
        key = (*key[:-2], key[-1], key[-2])
    heads = query[-3] if len(query) > 2 else 1
    kernel = Attention(
        b=prod(query[:-3]),
        h=heads,
        g=key[-3] if len(key) > 2 else 1,
        s=query[-2],
        t=key[-1],
        d=query[-1],
        v=value[-1],
        mask=context.spec(3) if context.has(3) and context.spec(3).element_count > 1 else None,
        dtype=DataType.FLOAT16 if context.dtype(0) is DataType.INT8 else context.dtype(0),
        dropout=context.integer(DROPS, 0) == 1,
    )
    if context.integer("by_parts", 0):
        return Kernels(kernels=kernel.parts())
    if context.lazy and (len(query) == BY_FORMULA or not has_fused_kernel(kernel, context.executor)):
        copied = are_copied(context)
        return Kernels(kernels=by_formula(kernel, context.executor, batch=query[:-2] or (1,), copied=copied))
    return Kernels(kernels=with_operands(context, kernel), layouts=result_layouts(context, kernel))


BY_FORMULA = 5
"""Dimensions of queries that PyTorch has no fused kernel for (``check_tensor_shapes`` of ATen's sdp_utils_cpp.h)."""


@lowers("FlexAttention", domain="ai.onnx.preview", gives="attention")
def flexible(context: NodeContext) -> Outcome:
    b, h, s, d = heads_of(context.shape(0), 1)
    _, g, t, _ = heads_of(context.shape(1), 1)
    kernel = Attention(b=b, h=h, g=g, s=s, t=t, d=d, v=context.shape(2)[-1], dtype=context.dtype(0))
    return Kernels(kernels=(kernel,))
