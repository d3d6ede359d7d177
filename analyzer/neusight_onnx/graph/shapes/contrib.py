"""The other com.microsoft operators that ONNX Runtime's optimisers and exporters emit."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.registry import rule

_CONTRIB = "com.microsoft"


@rule(
    *("BiasAdd", "BiasGelu", "BiasSoftmax", "FastGelu", "Gelu", "QuickGelu", "ScaledSiLU", "GatedAdd"),
    *("MoEPacked", "HyperConnectionPostMix", "SampleOp"),
    domain=_CONTRIB,
)
def _like_first(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


@rule("MoE", "QMoE", domain=_CONTRIB)
def _mixture(ctx: NodeContext) -> Sequence[Value]:
    """Like the tokens; each goes to ``k`` of the experts that the scores (tokens, experts) are of."""
    chosen, scores = ctx.integer("k", 1), ctx.value(1).shape
    if scores:
        ctx.require(1 <= chosen <= scores[-1], f"its k is {chosen}, not 1 to its {scores[-1]} experts ({ctx.shown(1)})")
    activation = ctx.text("activation_type", "relu")
    if activation not in (*_PLAIN_ACTIVATIONS, *_GATED_ACTIVATIONS):
        known = ", ".join((*_PLAIN_ACTIVATIONS, *_GATED_ACTIVATIONS))
        raise ctx.error(f"its activation_type is '{activation[:40]}', none of {known}")
    _require_width_of_experts(ctx, activation)
    return (ctx.same(),)


_PLAIN_ACTIVATIONS = ("relu", "gelu", "silu", "identity", "relu2")
_GATED_ACTIVATIONS = ("swiglu", "geglu")
"""Activations of experts (MoE and QMoE in ONNX Runtime's ContribOperators.md; relu2 and geglu on CUDA only)."""

_EXPERT_BITS = (2, 3, 4, 8)
"""Bits of QMoE's weights (the same)."""


def _require_width_of_experts(ctx: NodeContext, activation: str) -> None:
    """fc1 (experts, f i, hidden), fc2 (experts, hidden, i): f is 2 where fc1 holds gate and value of a gated
    activation, else 1. Weights of few bits may be packed along any dimension, so whole tensors are compared."""
    quantised = ctx.node.op_type == "QMoE"
    fc1, fc2, fc3 = (2, 5, 8) if quantised else (2, 4, 6)
    first, second = (_expert_elements(ctx, place, name) for place, name in ((fc1, "fc1"), (fc2, "fc2")))
    parts = 2 if activation in _GATED_ACTIVATIONS and not ctx.has(fc3) else 1
    if first is None or second is None:
        return
    ctx.require(
        first == parts * second,
        f"with activation_type '{activation}' its fc1 has {parts} times the weights of its fc2, "
        f"not {first:,} ({ctx.shown(fc1)}) to {second:,} ({ctx.shown(fc2)})",
    )


def _expert_elements(ctx: NodeContext, place: int, name: str) -> int | None:
    """Weights in a tensor of experts, None where its shape or type isn't known."""
    value = ctx.value(place)
    if value.shape is None or value.dtype is None:
        return None
    if ctx.node.op_type != "QMoE" or value.dtype.is_float:
        return prod(value.shape)
    bits = ctx.integer(f"{name}_expert_weight_bits", 0) or ctx.integer("expert_weight_bits", 4)
    ctx.require(bits in _EXPERT_BITS, f"its weights have {bits} bits, not {', '.join(map(str, _EXPERT_BITS))}")
    return prod(value.shape) * value.dtype.bits // bits


@rule("ComplexMul", "ComplexMulConj", domain=_CONTRIB)
def _complex_product(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), ctx.broadcast(0, 1)),)


@rule("BiasSplitGelu", domain=_CONTRIB)
def _bias_split_gelu(ctx: NodeContext) -> Sequence[Value]:
    """(n, s, 2 d) -> (n, s, d)."""
    shape = ctx.shape(0)
    return (ctx.tensor(ctx.dtype(0), (*shape[:-1], shape[-1] // 2)),)


@rule("SwiGLU", domain=_CONTRIB)
def _swiglu(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    return (ctx.same() if ctx.has(1) else ctx.tensor(ctx.dtype(0), (*shape[:-1], shape[-1] // 2)),)


@rule("BiasDropout", domain=_CONTRIB)
def _bias_dropout(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(), ctx.same(dtype=DataType.BOOL))


@rule("BitmaskDropout", "BitmaskBiasDropout", domain=_CONTRIB)
def _bitmask_dropout(ctx: NodeContext) -> Sequence[Value]:
    """The mask has one bit an element, in words of 32."""
    value = ctx.same()
    return (value, ctx.tensor(DataType.UINT32, (-(-value.element_count // 32),)))


@rule("TorchEmbedding", domain=_CONTRIB)
def _embedding(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), (*ctx.shape(1), ctx.shape(0)[1])),)


@rule("NGramRepeatBlock", domain=_CONTRIB)
def _block_ngrams(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(1),)


@rule("MurmurHash3", domain=_CONTRIB)
def _murmur(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=DataType.UINT32 if ctx.integer("positive", 1) else DataType.INT32),)


@rule("Rfft", domain=_CONTRIB)
def _rfft(ctx: NodeContext) -> Sequence[Value]:
    """(..., n) -> (..., n // 2 + 1, 2)."""
    shape = ctx.shape(0)
    last = shape[-1] // 2 + 1 if ctx.integer("onesided", 1) else shape[-1]
    return (ctx.tensor(ctx.dtype(0), (*shape[:-1], last, 2)),)


@rule("Irfft", domain=_CONTRIB)
def _irfft(ctx: NodeContext) -> Sequence[Value]:
    """(..., n // 2 + 1, 2) -> (..., n)."""
    shape = ctx.shape(0)
    last = (shape[-2] - 1) * 2 if ctx.integer("onesided", 1) else shape[-2]
    return (ctx.tensor(ctx.dtype(0), (*shape[:-2], last)),)


@rule("DynamicTimeWarping", domain=_CONTRIB)
def _time_warping(ctx: NodeContext) -> Sequence[Value]:
    """(1, m, n) or (m, n) -> (2, k), a path of max(m, n) to m + n - 1 steps."""
    *_, m, n = ctx.shape(0)
    how = f"a path of at most {m + n - 1} steps through {m} x {n}"
    return (ctx.bound(DataType.INT32, (2, max(m + n - 1, 0)), (2, max(m, n)), how),)


@rule("GreedySearch", "Sampling", domain=_CONTRIB)
def _search(ctx: NodeContext) -> Sequence[Value]:
    """ids (b, s), max_length -> (b, max_length)."""
    return (ctx.tensor(DataType.INT32, (ctx.shape(0)[0], ctx.integers(1)[0])),)


@rule("BeamSearch", "WhisperBeamSearch", domain=_CONTRIB)
def _beam_search(ctx: NodeContext) -> Sequence[Value]:
    """ids (b, s), max_length l, beams m, returned r -> (b, r, l), scores (b, r)."""
    b = ctx.shape(0)[0]
    length, returned = ctx.integers(1)[0], ctx.integers(4)[0]
    return (ctx.tensor(DataType.INT32, (b, returned, length)), ctx.tensor(DataType.FLOAT32, (b, returned)))


@rule("LinearAttentionGate", domain=_CONTRIB)
def _linear_attention_gate(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(), ctx.same())


@rule("GatedDeltaNet", domain=_CONTRIB)
def _gated_delta_net(ctx: NodeContext) -> Sequence[Value]:
    """q (..., hq, d), v (..., hv, v) -> (..., max(hq, hv), v), state (b, hv, v, d); ... is tokens or b, s. Packed:
    (..., 2 hq d + hv v)."""
    if ctx.has(2):
        *tokens, h_v, v = ctx.shape(2)
        h_q, d = ctx.shape(0)[-2:]
        output = ctx.tensor(ctx.dtype(0), (*tokens, max(h_q, h_v), v))
        if ctx.has(6):
            return (output, ctx.same(6))
        batch = ctx.shape(3)[0] - 1 if ctx.has(3) else tokens[0] if len(tokens) == 2 else 1
        return (output, ctx.tensor(DataType.FLOAT32, (batch, h_v, v, d)))
    _, h_v, v, d = ctx.shape(6)
    *tokens, width = ctx.shape(0)
    h_k = max((width - h_v * v) // (2 * d), 1)
    return (ctx.tensor(ctx.dtype(0), (*tokens, max(h_k, h_v), v)), ctx.same(6))


@rule("Mamba2Verify", domain=_CONTRIB)
def _mamba_verify(ctx: NodeContext) -> Sequence[Value]:
    rows = ctx.shape(0)[0]
    (inner,) = ctx.shape(8)
    channels = ctx.shape(1)[1]
    return (
        ctx.tensor(ctx.dtype(0), (rows, inner)),
        ctx.same(1),
        ctx.same(2),
        ctx.tensor(ctx.dtype(0), (rows, channels)),
        ctx.tensor(DataType.FLOAT32, (rows, inner)),
    )


@rule("ConvStateReplay", "GatedDeltaNetStateReplay", domain=_CONTRIB)
def _replay(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(2),)


@rule("HyperConnectionPreMix", domain=_CONTRIB)
def _pre_mix(ctx: NodeContext) -> Sequence[Value]:
    """Flattened (..., c h) with num_branches c, or grouped (..., c, h) -> (..., h)."""
    shape, gates = ctx.shape(0), ctx.shape(1)
    branches = ctx.integer("num_branches", 0)
    if branches and len(shape) == len(gates) and gates[-1] in (branches, shape[-1]):
        return (ctx.tensor(ctx.dtype(0), (*shape[:-1], shape[-1] // branches)),)
    return (ctx.tensor(ctx.dtype(0), (*shape[:-2], shape[-1])),)


@rule("HyperConnectionLowRankMix", domain=_CONTRIB)
def _low_rank_mix(ctx: NodeContext) -> Sequence[Value]:
    """streams (..., c h), injection (c h, c) -> (..., h), gate (..., c), streams."""
    *lead, width = ctx.shape(0)
    c = ctx.shape(4)[1]
    dtype = ctx.dtype(0)
    return (ctx.tensor(dtype, (*lead, width // max(c, 1))), ctx.tensor(dtype, (*lead, c)), ctx.same())


@rule("EngramGate", domain=_CONTRIB)
def _engram_gate(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(), ctx.same())


@rule("MoEGroupRouter", domain=_CONTRIB)
def _group_router(ctx: NodeContext) -> Sequence[Value]:
    """(..., experts) -> (tokens, experts) three times; experts are as many as there are biases."""
    tokens = prod(ctx.shape(0)[:-1])
    (experts,) = ctx.shape(1)
    scores = ctx.tensor(DataType.FLOAT32, (tokens, experts))
    return (ctx.tensor(ctx.dtype(0), (tokens, experts)), scores, scores)


@rule("RouterGateUpProj", domain=_CONTRIB)
def _router_gate_up(ctx: NodeContext) -> Sequence[Value]:
    """x (..., k), weight (k, r + 2 i) -> (..., r), (..., i)."""
    lead = ctx.shape(0)[:-1]
    router = ctx.integer("router_size", 0)
    dtype = ctx.dtype(0)
    inner = (ctx.shape(1)[1] - router) // 2
    return (ctx.tensor(dtype, (*lead, router)), ctx.tensor(dtype, (*lead, inner)))
