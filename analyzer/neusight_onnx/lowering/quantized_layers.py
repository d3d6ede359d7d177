"""Quantised operators that multiply no matrices: pointwise ones, pooling, softmax, normalizations, embeddings."""

from __future__ import annotations

from math import prod

from neusight_onnx.kernels import Elementwise, GatherScatter, Movement, Normalization, Pooling, Softmax
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


@lowers("QOrderedGelu", domain="com.microsoft", gives="elementwise")
def ordered_gelu(context: NodeContext) -> Outcome:
    kernel = Elementwise(operations=("dequantize", "gelu", "quantize"), inputs=(context.spec(0),), output=context.out())
    return Kernels(kernels=(kernel,))


@lowers("QOrderedLayerNormalization", domain="com.microsoft", gives="normalization")
def ordered_norm(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    kernel = Normalization(method="layer", rows=prod(shape[:-1]), cols=shape[-1], dtype=context.dtype(0))
    return Kernels(kernels=(kernel,))


POINTWISE = {
    "QLinearAdd": (("add",), (0, 3)),
    "QLinearMul": (("mul",), (0, 3)),
    "QLinearSigmoid": (("sigmoid",), (0,)),
    "QLinearLeakyRelu": (("leaky_relu",), (0,)),
    "QLinearWhere": (("where",), (0, 1, 4)),
}


@lowers(*POINTWISE, domain="com.microsoft", gives="elementwise")
def qlinear_pointwise(context: NodeContext) -> Outcome:
    operations, places = POINTWISE[context.node.op_type]
    inputs = tuple(context.spec(index) for index in places)
    kernel = Elementwise(
        operations=("dequantize", *operations, "quantize"),
        inputs=tuple(spec for spec in inputs if spec.element_count != 1) or inputs[:1],
        output=context.out(),
    )
    return Kernels(kernels=(kernel,))


@lowers("QLinearAveragePool", "QLinearGlobalAveragePool", domain="com.microsoft", gives="pooling")
def qlinear_pool(context: NodeContext) -> Outcome:
    source, out = context.spec(0), context.out()
    whole = context.node.op_type == "QLinearGlobalAveragePool"
    spatial = source.shape[1:-1] if context.integer("channels_last", 0) else source.shape[2:]
    window = prod(spatial) if whole else prod(context.integers("kernel_shape") or ())
    operation = "global_average" if whole else "average"
    return Kernels(kernels=(Pooling(operation=operation, input=source, output=out, window=window),))


@lowers("QLinearSoftmax", domain="com.microsoft", gives="softmax")
def qlinear_softmax(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    rank = max(len(shape), 1)
    old = context.integer("opset", 13) < 13
    axis = context.integer("axis", 1 if old else -1) % rank
    cols = prod(shape[axis:]) if old else shape[axis]
    kernel = Softmax(
        rows=prod(shape) // cols if cols else 0,
        cols=cols,
        inner=1 if old else max(prod(shape[axis + 1 :]), 1),
        dtype=context.dtype(0),
        fused=("quantize",),
    )
    return Kernels(kernels=(kernel,))


@lowers("QLinearConcat", domain="com.microsoft", gives="movement")
def qlinear_concat(context: NodeContext) -> Outcome:
    """Inputs come as (tensor, scale, zero point) from index 2 on."""
    out = context.out()
    read = sum(context.spec(index).byte_count for index in range(2, len(context.inputs), 3))
    kernel = Movement(
        operation="concat", dtype=out.dtype, shape=out.shape, read=read, written=out.byte_count, flops_per_element=2
    )
    return Kernels(kernels=(kernel,))


@lowers("QEmbedLayerNormalization", domain="com.microsoft", gives="depends", note="embeddings added, then normalized")
def quantised_embedding(context: NodeContext) -> Outcome:
    out = context.out()
    cols = out.shape[-1]
    tables = [index for index in (2, 3, 4) if context.has(index)]
    rows = tuple(
        GatherScatter(
            operation="embedding",
            moved=out.element_count,
            run=cols,
            dtype=context.dtype(index),
            index_count=context.spec(0).element_count,
            index_dtype=context.dtype(0),
        )
        for index in tables
    )
    norm = Normalization(
        method="layer",
        rows=out.element_count // cols if cols else 0,
        cols=cols,
        parameter_count=2 * cols,
        dtype=out.dtype,
        fused=("add",) * (len(rows) - 1),
        extra_outputs=context.other_outputs(),
    )
    return Kernels(kernels=(*rows, norm))
