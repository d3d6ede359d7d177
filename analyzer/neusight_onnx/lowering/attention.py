"""Fused attention, of ai.onnx and of the contributed operators."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.cache_sizes import keeps_a_window
from neusight_onnx.kernels import (
    Attention,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    Opaque,
    Softmax,
    TensorSpec,
)
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.formula_attention import as_numbers, by_formula, has_fused_kernel, takes_flash
from neusight_onnx.lowering.gemm import bias_before
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.provider_attention import (
    appended,
    by_parts,
    cache_joined,
    heads_apart,
    is_one_kernel,
    lengths_of,
    projected_apart,
)
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers
from neusight_onnx.lowering.standard_attention import standard_attention
from neusight_onnx.lowering.views import Layout


def _heads(shape: tuple[int, ...], heads: int) -> tuple[int, int, int, int]:
    """(b, h, s, d) of a (b, h, s, d) or a (b, s, h * d) tensor."""
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    b, s, hidden = shape
    return b, heads, s, hidden // max(heads, 1)


def _cache_write(context: NodeContext, *indices: int) -> int:
    """Elements appended to a cache: those of the outputs at ``indices``, which are written whole by the standard."""
    return sum(context.out(index).element_count for index in indices if context.has_output(index))


@lowers("Attention", gives="attention", note="grouped queries, causal mask, cache")
def attention(context: NodeContext) -> Outcome:
    """Q (b, h, s, d), K (b, g, t, d), V (b, g, t, v); a cache lengthens t; present keys and values are written.

    Causal, query i sees the keys up to its own place, which is i behind a cache (past keys, or keys of a given length);
    without one it is i itself: keys behind the last query are never looked at.
    """
    b, h, s, d = _heads(context.shape(0), context.integer("q_num_heads", 1))
    _, g, t, _ = _heads(context.shape(1), context.integer("kv_num_heads", 1))
    v = _heads(context.shape(2), context.integer("kv_num_heads", 1))[3]
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
        cache_write_elements=_cache_write(context, 1, 2),
        extra_outputs=context.other_outputs(3),
    )
    if context.lazy and not has_fused_kernel(kernel, context.executor):
        return Kernels(kernels=by_formula(kernel, context.executor, copied=_copied(context)))
    copies = [copy for index in range(3) for copy in _head_copies(context, index)]
    if context.runtime == "onnxruntime":
        tokens_first = len(context.shape(0)) == 3
        past = context.shape(4)[2] if context.has(4) else 0
        counted = context.has(6)
        return Kernels(kernels=standard_attention(kernel, tokens_first=tokens_first, past=past, counts_keys=counted))
    return Kernels(kernels=(*copies, *_with_its_operands(context, kernel)), layouts=_result(context, kernel))


def _result(context: NodeContext, kernel: Attention) -> tuple[Layout | None, ...]:
    """How PyTorch's fused attention writes (b, h, s, v): as (b, s, h, v), a view of which it returns, so that merging
    heads is free. FlashAttention writes in the order of the queries, and padded heads row by row as they are computed.
    """
    shape = context.out().shape
    if not context.lazy or len(shape) != 4:
        return ()
    _, h, s, v = shape
    _, of_head, of_token, _ = context.strides(0) if len(context.shape(0)) == 4 else (0, 0, 1, 0)
    padded = -(-v // FLASH_STEP) * FLASH_STEP
    if takes_flash(kernel) and padded != v:
        return (context.view(0, shape, (h * s * padded, s * padded, padded, 1)),)
    if takes_flash(kernel) and h > 1 and s > 1 and of_head > of_token:
        return ()
    return (context.view(0, shape, (s * h * v, v, h * v, 1)),)


@lowers("ScaledDotProductAttention", domain="neusight", gives="attention", note="recognised: as exporters write it")
def recognised(context: NodeContext) -> Outcome:
    """q (..., s, d), k transposed (..., d, t) (where "transposed_key" is 0: (..., t, d)), v (..., t, v), and a mask.

    ``by_parts``: the runtime has no fused kernel for them.
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
        dtype=context.dtype(0),
    )
    if context.integer("by_parts", 0):
        return Kernels(kernels=kernel.parts())
    if context.lazy and (len(query) == BY_FORMULA or not has_fused_kernel(kernel, context.executor)):
        copied = _copied(context)
        return Kernels(kernels=by_formula(kernel, context.executor, batch=query[:-2] or (1,), copied=copied))
    return Kernels(kernels=_with_its_operands(context, kernel), layouts=_result(context, kernel))


BY_FORMULA = 5
"""Dimensions of queries that PyTorch has no fused kernel for (``check_tensor_shapes`` of ATen's sdp_utils_cpp.h)."""

HEADS_BEHIND_TOKENS = 3
"""Dimensions of (b, s, h * d), whose heads are a view."""

MASK_STEP = 8
"""Columns that rows of a mask are padded to a multiple of before PyTorch's memory-efficient kernel (``pad_bias`` of
ATen's native/transformers/attention.cpp)."""

FLASH_STEP = 8
"""Columns that heads are padded to a multiple of before FlashAttention (``pad_last_dim`` of the same file)."""


def _with_its_operands(context: NodeContext, kernel: Attention) -> tuple[Kernel, ...]:
    """A fused kernel and what PyTorch does to its operands before.

    A mask of truth values becomes one of numbers; in eager mode rows that are no multiple of ``MASK_STEP`` columns are
    padded, by a fill and a copy. FlashAttention's heads are padded to a multiple of ``FLASH_STEP`` in the same way; a
    compiler pads in one kernel.
    """
    if not context.lazy:
        return (kernel,)
    eager = context.runtime == "eager"
    if takes_flash(kernel) and kernel.d % FLASH_STEP:
        sizes = ((kernel.h, kernel.s), (kernel.g, kernel.t), (kernel.g, kernel.t))
        shapes = [(kernel.b, heads, rows, kernel.d) for heads, rows in sizes]
        return (*(step for shape in shapes for step in _padded(kernel.dtype, shape, FLASH_STEP, eager=eager)), kernel)
    mask = kernel.mask
    if mask is None:
        return (kernel,)
    before: tuple[Kernel, ...] = ()
    if mask.dtype is DataType.BOOL:
        before = as_numbers(kernel) if eager else as_numbers(kernel)[-1:]
        mask = replace(mask, dtype=kernel.dtype)
    if eager and mask.shape and mask.shape[-1] % MASK_STEP:
        before = (*before, *_padded(mask.dtype, mask.shape, MASK_STEP, eager=True))
    return (*before, replace(kernel, mask=mask))


def _padded(dtype: DataType, shape: tuple[int, ...], step: int, *, eager: bool) -> tuple[Kernel, ...]:
    """A tensor copied to one whose rows are a multiple of ``step`` long: a fill and a copy, compiled one kernel."""
    source = TensorSpec(dtype=dtype, shape=shape)
    target = replace(source, shape=(*shape[:-1], -(-shape[-1] // step) * step))
    if not eager:
        return (Elementwise(operations=("pad",), inputs=(source,), output=target, generated=True),)
    size = source.byte_count
    return fill(target), Movement(operation="copy", dtype=dtype, shape=shape, read=size, written=size)


def _copied(context: NodeContext) -> tuple[bool, ...]:
    """Whether a product copies queries, keys and values: the dimensions before the last two aren't one in memory."""
    found = []
    for index in range(3):
        shape, strides = context.shape(index), context.strides(index)
        if len(shape) == HEADS_BEHIND_TOKENS:
            found.append(shape[0] > 1 and shape[1] > 1)
            continue
        batch = [(size, step) for size, step in zip(shape[:-2], strides[:-2], strict=True) if size > 1]
        found.append(any(outer != size * inner for (_, outer), (size, inner) in pairwise(batch)))
    return tuple(found)


def _head_copies(context: NodeContext, index: int) -> tuple[Movement, ...]:
    """Fused attention takes any strides as long as the last dimension is dense; else its input is copied."""
    return () if context.layout(index) is None or context.strides(index)[-1] == 1 else context.contiguous(index)


@lowers("FlexAttention", domain="ai.onnx.preview", gives="attention")
def flexible(context: NodeContext) -> Outcome:
    b, h, s, d = _heads(context.shape(0), 1)
    _, g, t, _ = _heads(context.shape(1), 1)
    kernel = Attention(b=b, h=h, g=g, s=s, t=t, d=d, v=context.shape(2)[-1], dtype=context.dtype(0))
    return Kernels(kernels=(kernel,))


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
    core = replace(attention, cache_write_elements=2 * b * attention.h * s * attention.d if cached else 0)
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
        cache_write_elements=_cache_write(context, 1, 2),
        extra_outputs=context.other_outputs(3),
    )
    if context.runtime == "onnxruntime" and not masked_decoder and not attention.extra_outputs:
        padding = context.spec(4) if context.has(4) else None
        having = context.executor.fused_attention
        if not is_one_kernel(attention, padding=padding, having=having, takes_bias=True):
            return Kernels(kernels=_heads_by_parts(context, attention, padding))
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
    kernels.append(
        Attention(
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
    )
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
        )
    )
    return Kernels(kernels=tuple(kernels))


def _cache_dtype(context: NodeContext) -> DataType | None:
    """The format of past keys and values; None where it is that of the queries. Two of four bits are in a byte."""
    if not context.has(3) or context.dtype(3) is context.dtype(0):
        return None
    return DataType.UINT4 if context.integer("kv_cache_bit_width", 8) == 4 else context.dtype(3)


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
        cache_write_elements=_cache_write(context, 1, 2),
    )
    return Kernels(kernels=(query, cross, core))


@lowers("LinearAttention", gives="opaque", note="a state of (d, v) per head, updated step by step")
@lowers("LinearAttention", "GatedDeltaNet", domain="com.microsoft", gives="opaque")
def linear_attention(context: NodeContext) -> Outcome:
    """Each step updates and reads a (d, v) state per head: 2 multiply-adds an element of it each."""
    out = context.out()
    heads = max(context.integer("q_num_heads", context.integer("num_heads", 1)), 1)
    d = context.shape(0)[-1] // (heads if len(context.shape(0)) == 3 else 1)
    work = 4 * out.element_count * d
    read = sum(context.spec(index).byte_count for index in range(len(context.inputs)) if context.has(index))
    written = sum(context.out(index).byte_count for index in range(len(context.outputs)) if context.has_output(index))
    kernel = Opaque(operation="linear_attention", operation_count=work, dtype=out.dtype, read=read, written=written)
    return Kernels(kernels=(kernel,))


@lowers("RelativePositionBias", "GatedRelativePositionBias", domain="com.microsoft", gives="movement")
def position_bias(context: NodeContext) -> Outcome:
    out = context.out()
    read = sum(context.spec(index).byte_count for index in range(len(context.inputs)) if context.has(index))
    kernel = Movement(operation="expand", dtype=out.dtype, shape=out.shape, read=read, written=out.byte_count)
    return Kernels(kernels=(kernel,))


@lowers(
    "MoE",
    "QMoE",
    domain="com.microsoft",
    gives="depends",
    note="gemms over the k chosen experts of each token, chosen independently",
)
def mixture(context: NodeContext) -> Outcome:
    """tokens * k rows in all through fc1 (hidden -> inner), its activation, and fc2 (inner -> hidden).

    Weights of the experts that some token chooses are read once; the rows are spread evenly over those. Tokens are
    taken to choose independently, each expert as often: what a decoder's few tokens leave out isn't read. Around the
    products, as ONNX Runtime's CUDA kernels: scores of the experts, rows put together by expert, the k results of a
    token added. A gate (fc1 twice as wide, or fc3 beside it) multiplies in a kernel of its own.
    """
    quantised = context.node.op_type == "QMoE"
    source, scores = context.spec(0), context.spec(1)
    hidden = source.shape[-1]
    tokens = source.element_count // max(hidden, 1)
    chosen = context.integer("k", 1)
    rows = tokens * chosen
    fc1, fc2, fc3 = (2, 5, 8) if quantised else (2, 4, 6)
    first_type, second_type = _expert_weights(context, fc1, "fc1"), _expert_weights(context, fc2, "fc2")
    wide = _expert_width(context, fc1, first_type, hidden)
    inner = _expert_width(context, fc2, second_type, hidden)
    activation = context.text("activation_type", "relu").lower()
    gated = context.has(fc3) or wide == 2 * inner
    kernels: list[Kernel] = [
        Softmax(rows=tokens, cols=scores.shape[-1], dtype=scores.dtype),
        GatherScatter(
            operation="gather",
            moved=rows * hidden,
            run=hidden,
            dtype=source.dtype,
            index_count=rows,
            index_dtype=DataType.INT32,
        ),
    ]
    epilogue = () if gated else (activation,)
    experts = _chosen_experts(context.shape(fc1)[0], tokens, chosen)
    kernels += _expert_products(context, fc1, rows, experts, wide, hidden, first_type, epilogue)
    if context.has(fc3):
        kernels += _expert_products(
            context, fc3, rows, experts, inner, hidden, _expert_weights(context, fc3, "fc3"), ()
        )
    if gated:
        step = {"swiglu": "silu", "geglu": "gelu"}.get(activation, activation)
        one = TensorSpec(dtype=source.dtype, shape=(rows, inner))
        kernels.append(Elementwise(operations=(step, "mul"), inputs=(one, one), output=one))
    kernels += _expert_products(context, fc2, rows, experts, hidden, inner, second_type, ())
    results = TensorSpec(dtype=source.dtype, shape=(rows, hidden))
    steps = ("mul", "add") * (chosen - 1) + ("mul",)
    kernels.append(Elementwise(operations=steps, inputs=(results,), output=context.out()))
    return Kernels(kernels=tuple(kernels))


def _expert_width(context: NodeContext, place: int, dtype: DataType, hidden: int) -> int:
    """The dimension of an expert's weights that isn't the hidden one; their last dimension may be packed."""
    weights = context.spec(place)
    return 8 * weights.byte_count // dtype.bits // max(weights.shape[0] * hidden, 1)


def _chosen_experts(stored: int, tokens: int, chosen: int) -> int:
    """How many of the experts some token chooses, as expected where each token takes ``chosen`` of them by chance."""
    left_out = (1 - min(chosen / max(stored, 1), 1)) ** tokens
    return max(round(stored * (1 - left_out)), 1)


def _expert_products(
    context: NodeContext,
    place: int,
    rows: int,
    experts: int,
    n: int,
    k: int,
    weight: DataType,
    epilogue: tuple[str, ...],
) -> list[Gemm]:
    """``rows`` spread over ``experts``, (m, k) @ (k, n) each, in one grouped product: a block takes a tile of whichever
    expert, so that experts with a row more wait for no others. Empty where there are no rows.

    Of the scales, zero points and biases the experts that have rows read their share.
    """
    quantised = context.node.op_type == "QMoE"
    dtype = context.dtype(0)
    stored = context.shape(place)[0]
    batch = min(experts, rows)
    bias = place + 2 if quantised else place + 1
    beside = [bias]
    if quantised:
        beside += [place + 1, {2: 11, 5: 12, 8: 13}[place]]
    extra = sum(context.spec(index).byte_count for index in beside if context.has(index))
    steps = ("broadcast_add", *epilogue) if context.has(bias) else epilogue
    if not batch:
        return []
    return [
        Gemm(
            batch=batch,
            m=-(-rows // batch),
            n=n,
            k=k,
            b_is_weight=True,
            dtype=dtype,
            b_dtype=None if weight is dtype else weight,
            epilogue=steps,
            extra_read_bytes=extra * batch // stored,
            uneven_rows=rows if rows % batch else None,
        )
    ]


def _expert_weights(context: NodeContext, place: int, name: str) -> DataType:
    """The type of experts' weights: integers of ``expert_weight_bits`` packed into bytes, else what is stored."""
    stored = context.dtype(place)
    if context.node.op_type != "QMoE" or stored.is_float:
        return stored
    bits = context.integer(f"{name}_expert_weight_bits", 0) or context.integer("expert_weight_bits", 4)
    return {2: DataType.UINT2, 4: DataType.UINT4}.get(bits, stored)
