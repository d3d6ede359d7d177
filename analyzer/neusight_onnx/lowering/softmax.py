"""Softmax and its relatives."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from neusight_onnx.kernels import Elementwise, Softmax, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers

WARP_COLS = 1024
"""Elements of the widest row that ONNX Runtime's BiasSoftmax takes in one kernel."""


@lowers("Softmax", "LogSoftmax", "Hardmax", gives="softmax")
def softmax(context: NodeContext) -> Outcome:
    """Before opset 13 everything from ``axis`` (default 1) on is one row; since then ``axis`` (default -1) alone is."""
    shape = context.shape(0)
    rank = max(len(shape), 1)
    if context.version < 13 and context.node.domain == "":
        axis = context.integer("axis", 1) % rank
        cols, inner = prod(shape[axis:]), 1
    else:
        axis = context.integer("axis", -1) % rank
        cols, inner = (shape[axis] if shape else 1), prod(shape[axis + 1 :])
    kernel = Softmax(
        rows=prod(shape) // cols if cols else 0,
        cols=cols,
        inner=max(inner, 1),
        dtype=context.dtype(0),
        output_dtype=None if context.out().dtype is context.dtype(0) else context.out().dtype,
        log=context.node.op_type == "LogSoftmax",
        library="pytorch" if context.runtime == "eager" and context.executor.softmax_in_registers else "",
    )
    return Kernels(kernels=(*context.contiguous(0), kernel))


@lowers("BiasSoftmax", domain="com.microsoft", gives="softmax", note="x + bias, then softmax")
def bias_softmax(context: NodeContext) -> Outcome:
    """One kernel for rows that a warp holds; for wider ones a sum of its own and cuDNN's softmax.

    Source: launches of ONNX Runtime 1.31.1 on stand-ins, rows of 64 to 2,048, in float32 and float16: one kernel up to
    1,024 elements, a sum from 1,025 on. That cuDNN computes the softmax behind it is as its source is remembered; the
    stand-in doesn't show it.
    """
    shape = context.shape(0)
    axis = context.integer("axis", 1) % max(len(shape), 1)
    cols = prod(shape[axis:])
    plain = Softmax(rows=prod(shape) // cols if cols else 0, cols=cols, dtype=context.dtype(0))
    if cols <= WARP_COLS:
        return Kernels(kernels=(replace(plain, fused=("add",), extra_inputs=(context.spec(1),)),))
    inputs = (context.spec(0), context.spec(1))
    return Kernels(kernels=(Elementwise(operations=("add",), inputs=inputs, output=context.spec(0)), plain))


@lowers("MaskedSoftmax", domain="neusight", gives="softmax", note="recognised: scale, mask and softmax in one")
def masked(context: NodeContext) -> Outcome:
    """Input 0 is x; the other inputs are what is multiplied, added or selected by. ``fused`` names the steps."""
    shape = context.shape(0)
    out = context.out().shape
    fused = context.text("fused", "")
    extra: list[TensorSpec] = []
    for index in range(1, len(context.inputs)):
        value = context.value(index)
        if value is not None and value.element_count != 1:
            extra.append(context.spec(index))
    kernel = Softmax(
        rows=prod(out[:-1]),
        cols=out[-1] if out else 1,
        dtype=context.dtype(0),
        output_dtype=None if context.out().dtype is context.dtype(0) else context.out().dtype,
        fused=tuple(name for name in fused.split(",") if name),
        extra_inputs=tuple(extra),
    )
    copies = context.contiguous(0) if len(shape) == len(out) else ()
    return Kernels(kernels=(*copies, kernel))
