"""Linear attention: each head keeps a state of its keys and values in place of them."""

from __future__ import annotations

from neusight_onnx.kernels import Opaque, StateSteps
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers

SPLIT_ROWS = (64, 128)
"""Rows of a state whose columns ONNX Runtime spreads over blocks, by registers whose number is compiled in; a state of
others has one block (launches of onnxruntime-gpu 1.31.1 on stand-ins, states of 32 to 192 rows)."""
WARP_ROWS = (64, 128, 256)
"""The same of GatedDeltaNet, with a warp a column."""
CHUNK_SIZE, CHUNKED_TOKENS = 128, 32
"""States of (128, 128) in 16 bits are updated by chunks of 64 tokens, from 32 tokens on (17 are not; the same)."""


@lowers("LinearAttention", gives="opaque", note="a state of (d, v) per head, updated step by step")
@lowers("LinearAttention", domain="com.microsoft", gives="opaque")
def linear_attention(context: NodeContext) -> Outcome:
    """Q (b, s, h d), K (b, s, g d), V (b, s, g v): g states of (d, v), read by max(h, g) heads."""
    b, s, width = context.shape(0)
    h, g = max(context.integer("q_num_heads", 1), 1), max(context.integer("kv_num_heads", 1), 1)
    d, v = width // h, context.shape(2)[2] // g
    return _updated(context, b, s, max(h, g), g, d, v, spread="columns" if d in SPLIT_ROWS else "states")


@lowers("GatedDeltaNet", domain="com.microsoft", gives="opaque")
def gated_delta_net(context: NodeContext) -> Outcome:
    """Tokens of all samples behind one another, or (b, s); states (b, g, v, d), read by as many heads as go out."""
    *_, h, v = context.out().shape
    *_, d = context.shape(6) if context.has(6) else context.shape(0)
    b, g = context.out(1).shape[:2] if context.has_output(1) else (1, h)
    count = context.out().element_count // max(h * v, 1)
    s = -(-count // max(b, 1))
    if d == v == CHUNK_SIZE and context.dtype(0).bits == 16 and s >= CHUNKED_TOKENS:
        return _updated(context, b, s, h, g, d, v, spread="chunks")
    return _updated(context, b, s, h, g, d, v, spread="warps" if d in WARP_ROWS else "states")


def _updated(context: NodeContext, b: int, s: int, h: int, g: int, d: int, v: int, *, spread: str) -> Outcome:
    """Each of s steps of b samples updates g states of (d, v) and reads them for h heads: a multiply-add an element
    each, another where what it holds is read before (delta), a product where it decays. ``spread`` is as in
    :class:`StateSteps`."""
    rule = context.text("update_rule", "gated_delta")
    gated, delta = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")
    elements = b * s * d * v
    work = elements * (2 * h + (2 + gated + 2 * delta) * g)
    read = sum(context.spec(index).byte_count for index in range(len(context.inputs)) if context.has(index))
    written = sum(context.out(index).byte_count for index in range(len(context.outputs)) if context.has_output(index))
    steps = StateSteps(states=b * g, steps=s, d=d, v=v, gated=gated, delta=delta, spread=spread)
    kernel = Opaque(
        operation="linear_attention",
        operation_count=work,
        dtype=context.out().dtype,
        read=read,
        written=written,
        state_steps=steps,
    )
    return Kernels(kernels=(kernel,))
