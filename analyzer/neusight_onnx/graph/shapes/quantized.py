"""Quantised arithmetic: what changes type, and the contrib operators that take scales beside each operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.matrix import matmul_shape
from neusight_onnx.graph.shapes.registry import rule

_CONTRIB = "com.microsoft"


_SINCE: Mapping[DataType, int] = {
    **dict.fromkeys((DataType.INT16, DataType.UINT16, DataType.INT4, DataType.UINT4), 21),
    DataType.FLOAT4E2M1: 23,
}
"""The opset from which QuantizeLinear and DequantizeLinear have a type, of those that opset 10 hasn't."""


def _require_scales_that_fit(ctx: NodeContext, quantised: DataType | None) -> None:
    """One scale, or one for each element along ``axis`` (1 where it isn't said), or for each block of them, as the
    standard has it."""
    node = ctx.node
    since = _SINCE.get(quantised, 0) if quantised is not None and not node.domain else 0
    if quantised is not None and node.version < since:
        ctx.require(False, f"{quantised.label} came with opset {since}, the model imports {node.version}")
    data, scale = ctx.value(0), ctx.value(1)
    if data.shape is None or data.is_bound or scale.shape is None or scale.is_bound:
        return
    rank, block = len(data.shape), ctx.integer("block_size", 0)
    if block:
        _require_blocks_that_fit(ctx, data.shape, scale.shape, block)
        return
    if len(scale.shape) != 1 or scale.shape == (1,) or not rank:
        return
    axis, count = ctx.integer("axis", 1), scale.shape[0]
    ctx.require(-rank <= axis < rank, f"axis {axis} is none of the {rank} dimensions of {node.inputs[0]}")
    size = data.shape[axis]
    ctx.require(count == size, f"has {count} scales for the {size} elements along axis {axis} of {node.inputs[0]}")


def _require_blocks_that_fit(ctx: NodeContext, shape: Sequence[int], scales: Sequence[int], block: int) -> None:
    """A scale for each block of ``block`` elements along ``axis``, the last of which may be shorter.

    com.microsoft's operators pack elements: theirs aren't looked at.
    """
    name, axis = ctx.node.inputs[0], ctx.integer("axis", 1)
    if ctx.node.domain:
        return
    ctx.require(block > 0, f"block_size {block} is below 1")
    ctx.require(-len(shape) <= axis < len(shape), f"axis {axis} is none of the {len(shape)} dimensions of {name}")
    wanted = list(shape)
    wanted[axis] = -(-shape[axis] // block)
    ctx.require(
        list(scales) == wanted, f"has scales of {list(scales)} for {name} in blocks of {block}, which need {wanted}"
    )


@rule("QuantizeLinear")
@rule("QuantizeLinear", domain=_CONTRIB)
def _quantize(ctx: NodeContext) -> Sequence[Value]:
    dtype = ctx.type_attribute("output_dtype", None) if ctx.integer("output_dtype", 0) else None
    dtype = dtype or (ctx.dtype(2) if ctx.has(2) else DataType.UINT8)
    _require_scales_that_fit(ctx, dtype)
    return (ctx.same(dtype=dtype),)


@rule("DequantizeLinear")
@rule("DequantizeLinear", domain=_CONTRIB)
def _dequantize(ctx: NodeContext) -> Sequence[Value]:
    dtype = ctx.type_attribute("output_dtype", None) if ctx.integer("output_dtype", 0) else None
    _require_scales_that_fit(ctx, ctx.dtype(0))
    return (ctx.same(dtype=dtype or ctx.dtype(1)),)


@rule("DynamicQuantizeLinear")
def _dynamic_quantize(ctx: NodeContext) -> Sequence[Value]:
    u8 = DataType.UINT8
    return (ctx.same(dtype=u8), ctx.tensor(DataType.FLOAT32, ()), ctx.tensor(u8, ()))


@rule("QLinearMatMul")
def _qlinear_matmul(ctx: NodeContext) -> Sequence[Value]:
    """a, its scale and zero point, b, its scale and zero point, y's scale and zero point."""
    return (ctx.tensor(ctx.dtype(7), matmul_shape(ctx, ctx.shape(0), ctx.shape(3))),)


@rule("QLinearAdd", "QLinearMul", domain=_CONTRIB)
def _qlinear_binary(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), ctx.broadcast(0, 3)),)


@rule("MulInteger", domain=_CONTRIB)
def _mul_integer(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(DataType.INT32, ctx.broadcast(0, 2)),)


@rule("QLinearWhere", domain=_CONTRIB)
def _qlinear_where(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(1), ctx.broadcast(0, 1, 4)),)


@rule("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", domain=_CONTRIB)
def _qlinear_unary(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


@rule("QLinearReduceMean", domain=_CONTRIB)
def _qlinear_reduce(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    places = {ctx.axis(axis, len(shape)) for axis in ctx.integer_list("axes") or range(len(shape))}
    if ctx.integer("keepdims", 1):
        return (ctx.tensor(ctx.dtype(0), [1 if i in places else size for i, size in enumerate(shape)]),)
    return (ctx.tensor(ctx.dtype(0), [size for i, size in enumerate(shape) if i not in places]),)


@rule("QLinearConcat", domain=_CONTRIB)
def _qlinear_concat(ctx: NodeContext) -> Sequence[Value]:
    """y's scale and zero point, then each operand with its scale and zero point."""
    shapes = [ctx.shape(index) for index in range(2, len(ctx.inputs), 3)]
    axis = ctx.axis(ctx.integer("axis", 0), len(shapes[0]))
    result = list(shapes[0])
    result[axis] = sum(shape[axis] for shape in shapes)
    return (ctx.tensor(ctx.dtype(2), result),)


@rule("QGemm", domain=_CONTRIB)
def _qgemm(ctx: NodeContext) -> Sequence[Value]:
    """a, its scale and zero point, b, its scale and zero point, c, y's scale and zero point (else floats come out)."""
    a, b = ctx.shape(0), ctx.shape(3)
    m = a[1] if ctx.integer("transA", 0) else a[0]
    n = b[0] if ctx.integer("transB", 0) else b[1]
    return (ctx.tensor(ctx.dtype(8) if ctx.has(8) else ctx.dtype(1), (m, n)),)


@rule("DynamicQuantizeMatMul", domain=_CONTRIB)
def _dynamic_quantize_matmul(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), matmul_shape(ctx, ctx.shape(0), ctx.shape(1))),)


@rule("MatMulIntegerToFloat", domain=_CONTRIB)
def _matmul_integer_to_float(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(2), matmul_shape(ctx, ctx.shape(0), ctx.shape(1))),)


@rule("GatherBlockQuantized", domain=_CONTRIB)
def _gather_block_quantized(ctx: NodeContext) -> Sequence[Value]:
    """Gather of packed rows, dequantised: in bytes of 4 bits, the last dimension holds two elements a byte."""
    shape, indices = ctx.shape(0), ctx.shape(1)
    axis = ctx.axis(ctx.integer("gather_axis", 0), len(shape))
    if ctx.dtype(0) is DataType.UINT8:
        shape = (*shape[:-1], shape[-1] * (8 // max(ctx.integer("bits", 4), 1)))
    return (ctx.tensor(ctx.dtype(2), shape[:axis] + indices + shape[axis + 1 :]),)


@rule("GatherPacked", domain=_CONTRIB)
def _gather_packed(ctx: NodeContext) -> Sequence[Value]:
    dtype = ctx.type_attribute("output_dtype", DataType.FLOAT16)
    return (ctx.tensor(dtype, (*ctx.shape(1), ctx.integer("K", 0))),)


@rule("QuantizeWithOrder", domain=_CONTRIB)
def _quantize_with_order(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=DataType.INT8),)


@rule("DequantizeWithOrder", domain=_CONTRIB)
def _dequantize_with_order(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=ctx.type_attribute("to", DataType.FLOAT32)),)


@rule("QOrderedGelu", "QOrderedAttention", "QOrderedLongformerAttention", domain=_CONTRIB)
def _ordered(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


@rule("QOrderedMatMul", domain=_CONTRIB)
def _ordered_matmul(ctx: NodeContext) -> Sequence[Value]:
    """a, its scale, b, its scale, y's scale."""
    return (ctx.tensor(ctx.dtype(0), matmul_shape(ctx, ctx.shape(0), ctx.shape(2))),)
