"""RNN, GRU, LSTM and their quantised and attentive kin."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.registry import rule


@rule("RNN", "GRU", "LSTM")
@rule("DynamicQuantizeLSTM", "AttnLSTM", domain="com.microsoft")
def _recurrent(ctx: NodeContext) -> Sequence[Value]:
    """x (s, b, i), recurrence weight (d, gates * h, h) -> y (s, d, b, h), last states (d, b, h); layout 1: b first.

    The quantised LSTM stores its weights transposed, (d, h, 4 * h).
    """
    x = ctx.shape(0)
    if len(x) != 3:
        raise ctx.error(f"needs (steps, batch, features), not {ctx.shown(0)}")
    first, second, _ = x
    d = 2 if ctx.text("direction", "forward") == "bidirectional" else 1
    recurrence = ctx.shape(2)
    transposed = ctx.node.op_type == "DynamicQuantizeLSTM"
    h = ctx.integer("hidden_size", 0) or (recurrence[1] if transposed else recurrence[-1])
    width = recurrence[1] if transposed else recurrence[-1]
    ctx.require(h == width, f"hidden_size is {h}, its recurrence weight has {width} ({ctx.shown(2)})")
    ctx.require(d == recurrence[0], f"{d} direction(s) do not fit its recurrence weight ({ctx.shown(2)})")
    dtype = ctx.dtype(0)
    if ctx.integer("layout", 0):
        state = ctx.tensor(dtype, (first, d, h))
        return (ctx.tensor(dtype, (first, second, d, h)), state, state)
    state = ctx.tensor(dtype, (d, second, h))
    return (ctx.tensor(dtype, (first, d, second, h)), state, state)
