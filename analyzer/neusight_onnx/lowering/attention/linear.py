"""Linear attention: each head keeps a state of its keys and values in place of them."""

from __future__ import annotations

from neusight_onnx.kernels import Opaque
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


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
