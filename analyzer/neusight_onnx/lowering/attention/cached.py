"""Attention of com.microsoft that language models decode by: grouped queries, a cache, pages."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.cache_sizes import keeps_a_window
from neusight_onnx.kernels import BY_XQA, IN_PAGES, Attention, Elementwise, Kernel, TensorSpec
from neusight_onnx.lowering.attention.provider import appended, grouped_variants, lengths_of
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


@lowers("GroupQueryAttention", "SparseAttention", domain="com.microsoft", gives="attention", note="causal, cached")
def grouped(context: NodeContext) -> Outcome:
    """query (b, s, h * d) or packed (b, s, (h + 2 g) * d); key and value (b, s, g * d); past (b, g, p, d).

    t is the length of the present keys where they are an output of known shape, else past + s. The cache is
    taken to be appended to: only the new keys and values are written.
    """
    heads = max(context.integer("num_heads", 1), 1)
    groups = max(context.integer("kv_num_heads", heads), 1)
    query = context.shape(0)
    b, s = query[0], query[1]
    packed_width = heads + 2 * groups
    d = query[-1] // (heads if context.has(1) else packed_width)
    total = context.ints(6) if context.node.op_type == "GroupQueryAttention" else None
    if total and keeps_a_window(context.node) and context.has(3):
        t = max(min(total[0], context.shape(3)[2] + s), s)
    elif total:
        t = total[0]
    elif context.node.op_type in ("GroupQueryAttention", "SparseAttention") and context.has(3):
        past = context.shape(3)[2]
        present = context.out(1).shape[2] if context.has_output(1) else past + s
        t = max(present, s)
    else:
        t = s
    rotary = context.integer("do_rotary", 0) == 1
    appended_apart = context.runtime == "onnxruntime" and context.node.op_type == "GroupQueryAttention"
    kernels: list[Kernel] = []
    if appended_apart:
        kernels += [lengths_of(b), appended(b, s, heads, groups, d, context.dtype(0), rotary=rotary)]
    elif rotary:
        rotated = TensorSpec(dtype=context.dtype(0), shape=(b, s, (heads + groups) * d))
        kernels.append(Elementwise(operations=("mul", "mul", "add"), inputs=(rotated,), output=rotated))
    window = context.integer("local_window_size", -1)
    mask_index = 10 if context.node.op_type == "GroupQueryAttention" else None
    attention = Attention(
        b=b,
        h=heads,
        g=groups,
        s=s,
        t=t,
        d=d,
        v=d,
        causal=context.integer("causal", context.integer("is_causal", 1)) == 1,
        window=window if window > 0 else None,
        mask=context.spec(mask_index) if mask_index is not None and context.has(mask_index) else None,
        dtype=context.dtype(0),
        kv_dtype=_cache_dtype(context),
        cache_write_elements=0 if appended_apart else 2 * b * groups * s * d,
        extra_outputs=context.other_outputs(3),
    )
    if appended_apart:
        decodes = s == 1 and context.has(3)
        asked = grouped_variants(
            attention,
            context.executor,
            decodes=decodes,
            softcap=context.real("softcap", 0.0) != 0.0,
            sinks=context.has(11),
        )
        attention = replace(attention, variants=asked)
        if BY_XQA in asked:
            kernels.append(fill(TensorSpec(dtype=DataType.INT32, shape=(b, groups))))
    kernels.append(attention)
    return Kernels(kernels=tuple(kernels))


@lowers(
    "PagedAttention",
    "SparsePagedAttention",
    domain="com.microsoft",
    gives="attention",
    note="causal; a cache in blocks, taken to be full where the past lengths aren't known",
)
def paged(context: NodeContext) -> Outcome:
    """query (tokens, h * d), or packed with keys and values; key_cache (blocks, block, g, d), block_table (b, most).

    The tokens are spread evenly over the b sequences. Behind each stand its past tokens: their mean where their number
    is known, else as many as its row of the table has room for, or its share of all blocks.
    """
    heads = max(context.integer("num_heads", 1), 1)
    groups = max(context.integer("kv_num_heads", heads), 1)
    tokens, width = context.shape(0)
    d = width // (heads if context.has(1) else heads + 2 * groups)
    b = max(context.spec(5).element_count - 1, 1)
    s = -(-tokens // b)
    lengths = context.ints(6)
    blocks, block = context.shape(3)[:2]
    room = min(context.shape(7)[-1] * block, blocks * block // b)
    t = s + -(-sum(lengths) // len(lengths)) if lengths else max(room, s)
    kernels: list[Kernel] = []
    if context.integer("do_rotary", 0) == 1:
        rotated = TensorSpec(dtype=context.dtype(0), shape=(tokens, (heads + groups) * d))
        kernels.append(Elementwise(operations=("mul", "mul", "add"), inputs=(rotated,), output=rotated))
    window = context.integer("local_window_size", -1)
    kernels.append(
        Attention(
            b=b,
            h=heads,
            g=groups,
            s=s,
            t=t,
            d=d,
            v=d,
            causal=context.integer("is_causal", 1) == 1,
            window=window if window > 0 else None,
            dtype=context.dtype(0),
            kv_dtype=_cache_dtype(context),
            cache_write_elements=2 * tokens * groups * d,
            variants=(IN_PAGES,) if context.runtime == "onnxruntime" else (),
        )
    )
    return Kernels(kernels=tuple(kernels))


def _cache_dtype(context: NodeContext) -> DataType | None:
    """The format of past keys and values; None where it is that of the queries. Two of four bits are in a byte."""
    if not context.has(3) or context.dtype(3) is context.dtype(0):
        return None
    return DataType.UINT4 if context.integer("kv_cache_bit_width", 8) == 4 else context.dtype(3)
