"""RNN, GRU and LSTM: one product of all inputs with their weights, then steps that wait for each other."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Gemm, Kernel, Recurrent
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Free, Kernels, Outcome, lowers
from neusight_onnx.lowering.views import Layout

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4, "DynamicQuantizeLSTM": 4}


@lowers("RNN", "GRU", "LSTM", gives="recurrent", note="a gemm for the inputs, then serial steps")
@lowers("DynamicQuantizeLSTM", domain="com.microsoft", gives="recurrent", note="with int8 weights")
def recurrent(context: NodeContext) -> Outcome:
    """X (steps, b, in), or (b, steps, in) by ``layout``; R (d, gates * h, h) or, quantised, (d, h, gates * h)."""
    quantised = context.node.op_type == "DynamicQuantizeLSTM"
    source, weights = context.shape(0), context.shape(2)
    steps, b = (source[1], source[0]) if context.integer("layout", 0) == 1 else (source[0], source[1])
    gates = GATES[context.node.op_type]
    directions = weights[0]
    h = weights[1] if quantised else weights[2]
    dtype = context.dtype(0)
    weight = context.dtype(1) if context.dtype(1) is not dtype else None
    inputs = Gemm(
        batch=directions,
        a_batch=None if directions == 1 else 1,
        m=steps * b,
        n=gates * h,
        k=source[2],
        transpose_b=not quantised,
        b_is_weight=True,
        dtype=DataType.UINT8 if quantised else dtype,
        a_dtype=dtype if quantised else None,
        b_dtype=weight,
        output_dtype=dtype if quantised else None,
        epilogue=("bias",) if context.has(3) else (),
    )
    serial = Recurrent(
        cell="lstm" if quantised else context.node.op_type.lower(),
        steps=steps,
        directions=directions,
        b=b,
        h=h,
        gates=gates,
        dtype=dtype,
        weight_dtype=weight,
        extra_outputs=context.other_outputs(),
    )
    kernels: tuple[Kernel, ...] = (*context.contiguous(0), inputs, serial)
    return Kernels(kernels=kernels, layouts=_side_by_side(context, steps, directions, b, h))


def _side_by_side(context: NodeContext, steps: int, directions: int, b: int, h: int) -> tuple[Layout | None, ...]:
    """cuDNN writes both directions of a step beside each other, (steps, b, d * h), as PyTorch's module returns them;
    ONNX has (steps, d, b, h), which the file transposes."""
    if not context.lazy or directions == 1 or not context.has_output(0) or context.out().shape[:1] != (steps,):
        return ()
    row = directions * h
    return (Layout(strides=(b * row, h, row, 1), origins=()),)


@lowers("Reordered", domain="neusight", gives="free", note="recognised: weights in ONNX's order of gates")
def reordered(context: NodeContext) -> Outcome:
    return Free(reason="PyTorch holds the weights as cuDNN reads them")


@lowers("AttnLSTM", domain="com.microsoft", gives="recurrent", note="without its attention over the memory")
def attentive(context: NodeContext) -> Outcome:
    return recurrent(context)
