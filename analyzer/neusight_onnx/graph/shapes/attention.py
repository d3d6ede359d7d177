"""Attention: ai.onnx's, and the contrib family with caches, packing and grouped heads.

Letters: b batch, s queries, t keys (past ones included), h query heads, g key-value heads, d head size,
v value head size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.cache_sizes import keeps_a_window
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.paged_sizes import KEY_CACHE, OFFSETS, PAST_LENGTHS, TABLE, VALUE_CACHE
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.registry import rule

_CONTRIB = "com.microsoft"


def _require_same_heads(ctx: NodeContext, query: int, key: int) -> None:
    """Scores are products of a query's head and a key's, so both have one size."""
    ctx.require(query == key, f"its queries have heads of {query}, its keys of {key}: the sizes must be equal")


def _require_cache(ctx: NodeContext, index: int, whole: Mapping[int, tuple[str, int]]) -> None:
    """ModelError where new keys or values can't go on a cache: ``whole`` has what a dimension of it holds and how much
    of that the new ones have. ONNX Runtime refuses to run such a node."""
    if not ctx.has(index):
        return
    cache = ctx.shape(index)
    for axis, (what, size) in whole.items():
        if axis < len(cache):
            ctx.require(
                cache[axis] == size,
                f"its cache '{ctx.node.inputs[index]}' has {cache[axis]:,} {what}, the new keys and values {size:,}: "
                "both must agree",
            )


def _require_caches(ctx: NodeContext, first: int, b: int, g: int, sizes: tuple[int, int]) -> None:
    """Past keys (b, g, t, d) at input ``first`` and values (b, g, t, v) behind them; ``sizes``: d and v."""
    for index, size in zip((first, first + 1), sizes, strict=True):
        _require_cache(ctx, index, {0: ("samples", b), 1: ("heads", g), 3: ("numbers a head", size)})


@rule("Attention")
def _attention(ctx: NodeContext) -> Sequence[Value]:
    """Q (b, h, s, d), K (b, g, t, d), V (b, g, t, v) -> (b, h, s, v); in three dimensions heads are joined."""
    q, k, v = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    dtype = ctx.dtype(0)
    if len(q) == 4:
        b, h, s, width = q
        _, g, new, d = k
        head = v[3]
        output = ctx.tensor(dtype, (b, h, s, head))
        for name, heads, index in (("q_num_heads", h, 0), ("kv_num_heads", g, 1)):
            said = ctx.integer(name, heads)
            ctx.require(
                said == heads, f"its {name} is {said}, but input {index} ({ctx.shown(index)}) has {heads} heads"
            )
    else:
        b, s, _ = q
        h = ctx.integer("q_num_heads", 0)
        g = ctx.integer("kv_num_heads", 0)
        if h < 1 or g < 1:
            raise ctx.error("its inputs have three dimensions, so it needs q_num_heads and kv_num_heads")
        new, d, head = k[1], k[2] // g, v[2] // g
        width = q[2] // h
        for size, heads, what in ((q[2], h, "query"), (k[2], g, "key"), (v[2], g, "value")):
            ctx.require(size % heads == 0, f"its {what} of {size} does not divide into {heads} heads")
        output = ctx.tensor(dtype, (b, s, h * head))
    ctx.require(h % g == 0, f"{g} heads of keys and values do not divide {h} of queries")
    _require_same_heads(ctx, width, d)
    mode = ctx.integer("qk_matmul_output_mode", 0)
    # without a fourth output nothing looks at it, ONNX Runtime neither
    ctx.require(0 <= mode <= 3 or not any(ctx.node.outputs[3:]), f"its qk_matmul_output_mode is {mode}, not 0 to 3")
    _require_caches(ctx, 4, b, g, (d, head))
    past = ctx.shape(4)[2] if ctx.has(4) else 0
    t = past + new
    return (
        output,
        ctx.tensor(ctx.dtype(1), (b, g, t, d)),
        ctx.tensor(ctx.dtype(2), (b, g, t, head)),
        ctx.tensor(dtype, (b, h, s, t)),
    )


@rule("FlexAttention", domain="ai.onnx.preview")
def _flex_attention(ctx: NodeContext) -> Sequence[Value]:
    """Q (b, h, s, d), V (b, g, t, v) -> (b, h, s, v)."""
    return (ctx.tensor(ctx.dtype(0), (*ctx.shape(0)[:3], ctx.shape(2)[3])),)


@rule("LinearAttention")
@rule("LinearAttention", domain=_CONTRIB)
def _linear_attention(ctx: NodeContext) -> Sequence[Value]:
    """Q (b, s, h d), K (b, s, g d), V (b, s, g v) -> (b, s, max(h, g) v), state (b, g, d, v)."""
    b, s, width = ctx.shape(0)
    h, g = ctx.integer("q_num_heads", 1), ctx.integer("kv_num_heads", 1)
    v = ctx.shape(2)[2] // g
    state = ctx.same(3) if ctx.has(3) else ctx.tensor(ctx.dtype(0), (b, g, width // h, v))
    return (ctx.tensor(ctx.dtype(0), (b, s, max(h, g) * v)), state)


@rule("RotaryEmbedding")
@rule("RotaryEmbedding", "MRotaryEmbedding", domain=_CONTRIB)
def _rotary(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


@rule("GemmaRotaryEmbedding", domain=_CONTRIB)
def _gemma_rotary(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(1), ctx.same(3))


@rule("Attention", "QAttention", domain=_CONTRIB)
def _projected_attention(ctx: NodeContext) -> Sequence[Value]:
    """input (b, s, i), weight (i, q + k + v) -> (b, s, v), and the cache (2, b, h, past + s, d)."""
    b, s, _ = ctx.shape(0)
    heads = ctx.integer("num_heads", 1)
    sizes = ctx.integer_list("qkv_hidden_sizes")
    width = ctx.shape(1)[-1]
    v = sizes[2] if sizes else width // 3
    if sizes:
        _require_same_heads(ctx, sizes[0] // heads, sizes[1] // heads)
    d = (sizes[1] if sizes else width // 3) // heads
    is_quantised = ctx.node.op_type == "QAttention"
    dtype = ctx.dtype(3) if is_quantised else ctx.dtype(0)
    past_index = 8 if is_quantised else 4
    past = 0
    _require_cache(ctx, past_index, {1: ("samples", b), 2: ("heads", heads), 4: ("numbers a head", d)})
    if ctx.has(past_index):
        if ctx.integer("past_present_share_buffer", 0):
            return (ctx.tensor(dtype, (b, s, v)), ctx.same(past_index))
        past = ctx.shape(past_index)[3]
    return (ctx.tensor(dtype, (b, s, v)), ctx.tensor(dtype, (2, b, heads, past + s, d)))


@rule("DecoderMaskedSelfAttention", domain=_CONTRIB)
def _decoder_masked_self(ctx: NodeContext) -> Sequence[Value]:
    b, s, _ = ctx.shape(0)
    return (ctx.tensor(ctx.dtype(0), (b, s, ctx.shape(1)[-1] // 3)), ctx.same(4))


@rule("MultiHeadAttention", "DecoderMaskedMultiHeadAttention", domain=_CONTRIB)
def _multi_head(ctx: NodeContext) -> Sequence[Value]:
    """query (b, s, h d), key (b, t, h d) or (b, h, t, d), value alike -> (b, s, h v), caches (b, h, past + t, d)."""
    heads = ctx.integer("num_heads", 1)
    query = ctx.shape(0)
    dtype = ctx.dtype(0)
    if len(query) == 5:  # packed (b, s, h, 3, d)
        b, s, _, _, d = query
        v, new = d, s
    else:
        b, s = query[0], query[1]
        d = query[2] // heads
        v, new = d, s
        if ctx.has(1):
            key = ctx.shape(1)
            if len(key) == 5:  # packed (b, t, h, 2, d)
                new, v = key[1], key[4]
            elif len(key) == 4:  # (b, h, t, d)
                new = key[2]
                v = ctx.shape(2)[3] if ctx.has(2) else d
            else:
                new = key[1]
                v = ctx.shape(2)[2] // heads if ctx.has(2) else d
                _require_same_heads(ctx, d, key[2] // heads)
        elif ctx.node.op_type == "DecoderMaskedMultiHeadAttention" or not ctx.has(2):
            d = v = query[2] // 3 // heads
    is_masked = ctx.node.op_type == "DecoderMaskedMultiHeadAttention"
    past_index = 5 if is_masked else 6
    past = 0
    if not is_masked:
        _require_caches(ctx, past_index, b, heads, (d, v))
    if ctx.has(past_index):
        past = ctx.shape(past_index)[2]
        if ctx.integer("past_present_share_buffer", 0) or (ctx.has(past_index + 2)):
            # a buffer of full length, written in place
            past, new = past, 0
        elif ctx.has(1) and len(ctx.shape(1)) == 4:
            new = 0 if is_masked else new
    t = past + new
    return (
        ctx.tensor(dtype, (b, s, heads * v)),
        ctx.tensor(dtype, (b, heads, t, d)),
        ctx.tensor(dtype, (b, heads, t, v)),
        ctx.tensor(dtype, (b, heads, s, t)),
    )


@rule("GroupQueryAttention", domain=_CONTRIB)
def _group_query(ctx: NodeContext) -> Sequence[Value]:
    """query (b, s, h d) or packed (b, s, (h + 2 g) d) -> (b, s, h d), caches (b, g, t, d)."""
    b, s, width = ctx.shape(0)
    h, g = ctx.integer("num_heads", 1), ctx.integer("kv_num_heads", 1)
    ctx.require(h % g == 0, f"kv_num_heads {g} does not divide num_heads {h}")
    is_packed = not ctx.has(1)
    d = width // (h + 2 * g) if is_packed else width // h
    dtype = ctx.dtype(0)
    output = ctx.tensor(dtype, (b, s, h * d))
    new = s if is_packed else ctx.shape(1)[1]
    if not is_packed and ctx.rank(1) == 3:
        _require_same_heads(ctx, d, ctx.shape(1)[2] // g)
    # two numbers of 4 bits lie in a byte
    stored = -(-d // 2) if ctx.integer("kv_cache_bit_width", 0) == 4 else d
    _require_caches(ctx, 3, b, g, (stored, stored))
    past = ctx.shape(3)[2] if ctx.has(3) else 0
    total = ctx.data(6)
    if total is not None and total.size and not ctx.bounded:
        all_tokens = int(total.ravel()[0])
        ctx.require(
            new <= all_tokens <= past + new or (past > 0 and keeps_a_window(ctx.node) and all_tokens >= new),
            f"total_sequence_length is {all_tokens}, but its cache holds {past} and {new} are new; bind the total, the "
            "past and the new tokens so that they agree",
        )
    _require_rows_for(ctx, int(total.ravel()[0]) if total is not None and total.size else past)
    if past and keeps_a_window(ctx.node):
        t = past
    elif total is not None and total.size:
        t = max(past, int(total.ravel()[0]))
    else:
        t = past + new
        if past and not ctx.low_run:
            ctx.session.assume(
                f"GroupQueryAttention: a cache of {past} grows to {t} "
                f"(total_sequence_length '{ctx.node.inputs[6]}' is an input: --value sets it)"
                if len(ctx.node.inputs) > 6
                else f"GroupQueryAttention: a cache of {past} grows to {t}"
            )
    caches = []
    for index in (3, 4):
        if ctx.has(index):
            cache = ctx.shape(index)
            caches.append(ctx.tensor(ctx.dtype(index), (*cache[:2], t, *cache[3:])))
        else:
            caches.append(ctx.tensor(dtype, (b, g, t, d)))
    return (output, *caches, ctx.tensor(dtype, (b, h, s, t)))


def _require_rows_for(ctx: NodeContext, tokens: int) -> None:
    """ModelError where GroupQueryAttention rotates more tokens, past and new ones, than its table has rows for, which
    ONNX Runtime refuses to run. ``tokens``: where their number isn't known those of the past, which may be a buffer."""
    if ctx.integer("do_rotary", 0) == 1 and ctx.has(7) and ctx.shape(7):
        rows = ctx.shape(7)[0]
        ctx.require(
            tokens <= rows,
            f"its table of rotations '{ctx.node.inputs[7]}' has {rows:,} positions, fewer than the {tokens:,} tokens, "
            "past and new ones together; bind fewer",
        )


@rule("SparseAttention", domain=_CONTRIB)
def _sparse(ctx: NodeContext) -> Sequence[Value]:
    """As GroupQueryAttention with caches of full length, written in place."""
    b, s, width = ctx.shape(0)
    h, g = ctx.integer("num_heads", 1), ctx.integer("kv_num_heads", 1)
    d = width // h if ctx.has(1) else width // (h + 2 * g)
    _require_caches(ctx, 3, b, g, (d, d))
    return (ctx.tensor(ctx.dtype(0), (b, s, h * d)), ctx.same(3), ctx.same(4))


@rule("PagedAttention", "SparsePagedAttention", domain=_CONTRIB)
def _paged(ctx: NodeContext) -> Sequence[Value]:
    """query (tokens, h d) or packed -> (tokens, h d), and both caches (blocks, block, g, d).

    Offsets of the b sequences (b + 1,), their past lengths (b,), their blocks (b, most).
    """
    tokens, width = ctx.shape(0)
    (b, most), (blocks, block) = ctx.shape(TABLE), ctx.shape(KEY_CACHE)[:2]
    (offsets,), (pasts,) = ctx.shape(OFFSETS), ctx.shape(PAST_LENGTHS)
    ctx.require(block > 0, "its blocks have room for no token")
    ctx.require(offsets == b + 1, f"its {b} sequences have {b + 1} offsets, not {offsets}")
    ctx.require(pasts == b, f"its {b} sequences have {b} past lengths, not {pasts}")
    ctx.require(tokens >= b, f"its {b} sequences have a new token each at least, not {tokens} together")
    lengths = ctx.data(PAST_LENGTHS)
    if lengths is None:
        ctx.require(b <= blocks, f"its {b} sequences need a block each at least, its cache has {blocks}")
        if blocks < b * most and not ctx.low_run:
            ctx.session.assume(
                f"{ctx.node.op_type}: a cache has {blocks} blocks, fewer than the "
                f"{b} x {most} that the table has room for: each sequence is taken to have its share of them"
            )
    elif lengths.size and not ctx.bounded:
        ctx.require(int(lengths.min()) >= 0, f"a sequence has {int(lengths.min())} past tokens")
        longest = -(-(int(lengths.max()) + 1) // block)
        ctx.require(
            longest <= most,
            f"a sequence of {int(lengths.max())} and a new token takes {longest} blocks, its table has {most}",
        )
        needed = sum(-(-(int(length) + 1) // block) for length in lengths.ravel())
        ctx.require(needed <= blocks, f"its sequences take {needed} blocks of {block}, its cache has {blocks}")
    h, g = ctx.integer("num_heads", 1), ctx.integer("kv_num_heads", 1)
    d = width // h if ctx.has(1) else width // (h + 2 * g)
    for cache in (KEY_CACHE, VALUE_CACHE):
        if ctx.dtype(cache) is ctx.dtype(0):  # in other types numbers may be packed
            _require_cache(ctx, cache, {2: ("heads", g), 3: ("numbers a head", d)})
    return (ctx.tensor(ctx.dtype(0), (tokens, h * d)), ctx.same(3), ctx.same(4))


@rule("PackedAttention", domain=_CONTRIB)
def _packed(ctx: NodeContext) -> Sequence[Value]:
    """input (tokens, i), weight (i, q + k + v) -> (tokens, v)."""
    sizes = ctx.integer_list("qkv_hidden_sizes")
    v = sizes[2] if sizes else ctx.shape(1)[-1] // 3
    return (ctx.tensor(ctx.dtype(0), (ctx.shape(0)[0], v)),)


@rule("PackedMultiHeadAttention", domain=_CONTRIB)
def _packed_multi_head(ctx: NodeContext) -> Sequence[Value]:
    """query (tokens, h d) with value (tokens, h v), or packed (tokens, h, 3, d) -> (tokens, h v)."""
    query = ctx.shape(0)
    if len(query) == 4:
        return (ctx.tensor(ctx.dtype(0), (query[0], query[1] * query[3])),)
    return (ctx.tensor(ctx.dtype(0), (query[0], ctx.shape(2)[1] if ctx.has(2) else query[1])),)


@rule("LongformerAttention", domain=_CONTRIB)
def _longformer(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


@rule("DecoderAttention", domain=_CONTRIB)
def _decoder(ctx: NodeContext) -> Sequence[Value]:
    """query (s, b, h d), key (t, b, h d) -> (s, b, h d), caches (b, h, t, d)."""
    _, b, width = ctx.shape(0)
    heads = ctx.integer("num_heads", 1)
    t = ctx.shape(1)[0]
    static, past = ctx.data(8), ctx.data(9)
    if ctx.has(6) and past is not None and past.any():
        cached = ctx.shape(6)[2]
        t = cached if static is not None and static.any() else cached + ctx.shape(0)[0]
    cache = ctx.tensor(ctx.dtype(0), (b, heads, t, width // heads))
    return (ctx.same(), cache, cache)


@rule("RelativePositionBias", domain=_CONTRIB)
def _relative_position(ctx: NodeContext) -> Sequence[Value]:
    """table (buckets, h), s, t -> (1, h, s, t)."""
    return (ctx.tensor(ctx.dtype(0), (1, ctx.shape(0)[1], ctx.integers(1)[0], ctx.integers(2)[0])),)


@rule("GatedRelativePositionBias", domain=_CONTRIB)
def _gated_relative_position(ctx: NodeContext) -> Sequence[Value]:
    if ctx.has(6):
        b, s = ctx.shape(6)
    else:
        b, s, _ = ctx.shape(0)
    return (ctx.tensor(ctx.dtype(0), (b, ctx.integer("num_heads", 1), s, s)),)


@rule("RemovePadding", domain=_CONTRIB)
def _remove_padding(ctx: NodeContext) -> Sequence[Value]:
    """(b, s, h) -> (tokens, h), offsets (b, s), cumulated lengths (b + 1), longest (1)."""
    b, s, h = ctx.shape(0)
    how = f"at most {b * s} tokens, none of them padding"
    i32 = DataType.INT32
    return (
        ctx.bound(ctx.dtype(0), (b * s, h), (0, h), how),
        ctx.tensor(i32, (b, s)),
        ctx.tensor(i32, (b + 1,)),
        ctx.tensor(i32, (1,)),
    )


@rule("RestorePadding", domain=_CONTRIB)
def _restore_padding(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), (*ctx.shape(1), ctx.shape(0)[-1])),)
