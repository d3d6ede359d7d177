"""Quantised operators: integers multiply, scales and zero points ride along; bytes at the true bit width."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import cast

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    Normalization,
    Pooling,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.conv import conv_kernel
from neusight_onnx.lowering.gemm import gemm_kernels, matmul_dims, product
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers

PACKED = {2: DataType.UINT2, 4: DataType.UINT4, 8: DataType.UINT8, 16: DataType.UINT16}


def _bytes(context: NodeContext, *indices: int) -> int:
    """Bytes of scales and zero points; a single number costs nothing."""
    return sum(
        spec.byte_count for index in indices if context.has(index) and (spec := context.spec(index)).element_count > 1
    )


def _is_weight(context: NodeContext, index: int) -> bool:
    value = context.value(index)
    return value is not None and value.is_constant


def _unless_same(dtype: DataType, other: DataType) -> DataType | None:
    return None if dtype is other else dtype


def _along_axis(spec: TensorSpec, rank: int, axis: int) -> TensorSpec:
    """A vector (c,) that lies along ``axis`` of a tensor of ``rank``, as a shape that broadcasts to it; others as they
    are: a scale for each block has the tensor's rank."""
    if len(spec.shape) != 1 or not -rank <= axis < rank:
        return spec
    return replace(spec, shape=(*spec.shape, *(1,) * (rank - 1 - axis % rank)))


def _scaled(context: NodeContext, operation: str, *, parameters: tuple[int, ...] = (1, 2)) -> Kernels:
    """One pass over x (of any rank) -> the same shape; scales and zero points are a number, (c,) along ``axis``, or
    blocks of it."""
    rank, axis = len(context.shape(0)), context.integer("axis", 1)
    scales = (_along_axis(context.spec(index), rank, axis) for index in parameters if context.has(index))
    inputs = (context.spec(0), *(spec for spec in scales if spec.element_count > 1))
    return Kernels(kernels=(Elementwise(operations=(operation,), inputs=inputs, output=context.out()),))


@lowers("QuantizeLinear", gives="elementwise", note="what isn't folded into its neighbours")
@lowers("QuantizeLinear", domain="com.microsoft", gives="elementwise")
def quantize(context: NodeContext) -> Outcome:
    return _scaled(context, "quantize")


@lowers("DequantizeLinear", gives="elementwise", note="what isn't folded into its neighbours")
@lowers("DequantizeLinear", domain="com.microsoft", gives="elementwise")
def dequantize(context: NodeContext) -> Outcome:
    return _scaled(context, "dequantize")


def _folded_epilogue(context: NodeContext, output: DataType) -> tuple[tuple[str, ...], int]:
    """(what a folded product does to its sums, bytes read beside its operands).

    Inputs are (left, right, bias, then scales and zero points, last a residual tensor if there is one); a bias has a
    type of its own, mostly int32.
    """
    steps = cast("tuple[str, ...]", context.node.attributes["applied"])
    residual = len(context.inputs) - context.integer("has_residual", 0)
    read = _bytes(context, *range(3, residual))
    if residual < len(context.inputs) and context.dtype(residual) is not output:  # else "add" counts it
        steps = tuple("broadcast_add" if step == "add" else step for step in steps)
        read += context.spec(residual).byte_count
    if context.has(2):
        bias = context.spec(2)
        if bias.dtype is output:
            return ("bias", *steps), read
        return ("broadcast_add", *steps), read + bias.byte_count
    return steps, read


@lowers(
    "QuantizedMatMul",
    "QuantizedLinear",
    "QuantizedGemm",
    domain="neusight",
    gives="gemm",
    note="recognised: DequantizeLinear, the product, its activation, QuantizeLinear; or quantised weights alone",
)
def folded_product(context: NodeContext) -> Outcome:
    """The product of quantised operands, or of floats with quantised weights (``weight_only``)."""
    kind = context.node.op_type
    linear = kind == "QuantizedLinear" or (kind == "QuantizedMatMul" and len(context.shape(1)) == 2)
    if kind == "QuantizedGemm":
        kernels = gemm_kernels(context, ())
    else:
        kernels = product(context, linear=linear and context.lazy and _is_weight(context, 1))
    output = context.out().dtype
    steps, read = _folded_epilogue(context, output)
    left, right = context.dtype(0), context.dtype(1)
    if context.has(2) and context.spec(2).element_count > context.out().shape[-1]:
        steps = tuple("add" if step == "bias" else step for step in steps)  # a matrix, not a vector
    return Kernels(
        kernels=tuple(
            replace(
                kernel,
                dtype=left,
                b_dtype=_unless_same(right, left),
                output_dtype=_unless_same(output, left),
                epilogue=steps,
                extra_read_bytes=read,
            )
            if isinstance(kernel, Gemm)
            else kernel
            for kernel in kernels
        )
    )


@lowers(
    "QuantizedConv",
    "QuantizedConvTranspose",
    domain="neusight",
    gives="conv",
    note="recognised: DequantizeLinear, the convolution, its activation, QuantizeLinear",
)
def folded_conv(context: NodeContext) -> Outcome:
    steps, read = _folded_epilogue(context, context.out().dtype)
    kernel = conv_kernel(
        context,
        transposed=context.node.op_type == "QuantizedConvTranspose",
        epilogue=steps,
        extra_read_bytes=read,
    )
    copies = context.contiguous(0, channels_last=True)
    return Kernels(kernels=(*copies, kernel), layouts=context.channels_last_output())


@lowers(
    "RescalingConcat",
    domain="neusight",
    gives="elementwise",
    note="recognised: DequantizeLinear of parts with several scales, Concat, QuantizeLinear",
)
def rescaling_concat(context: NodeContext) -> Outcome:
    """Each part is read, and written at its place in the scale of the whole."""
    parts = tuple(context.spec(index) for index in range(len(context.inputs)))
    operations = ("concat", "dequantize", "quantize")
    return Kernels(kernels=(Elementwise(operations=operations, inputs=parts, output=context.out(), generated=True),))


@lowers("QuantizeBFP", "QuantizeWithOrder", domain="com.microsoft", gives="elementwise")
def quantize_block(context: NodeContext) -> Outcome:
    return _scaled(context, "quantize", parameters=())


@lowers("DequantizeBFP", "DequantizeWithOrder", domain="com.microsoft", gives="elementwise")
def dequantize_block(context: NodeContext) -> Outcome:
    return _scaled(context, "dequantize", parameters=())


@lowers("DynamicQuantizeLinear", gives="depends", note="a reduction for the range, then quantize")
def dynamic(context: NodeContext) -> Outcome:
    source, out = context.spec(0), context.out()
    scalar = TensorSpec(dtype=source.dtype, shape=(2,))
    extent = Reduction(operation="minmax", outputs=1, reduced=source.element_count, dtype=source.dtype, output=scalar)
    return Kernels(kernels=(extent, Elementwise(operations=("quantize",), inputs=(source,), output=out)))


@lowers("MatMulInteger", gives="gemm", note="8-bit integers -> int32")
def matmul_integer(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(1),
        dtype=context.dtype(0),
        b_is_weight=_is_weight(context, 1),
        b_dtype=_unless_same(context.dtype(1), context.dtype(0)),
        output_dtype=DataType.INT32,
        extra_read_bytes=_bytes(context, 2, 3),
    )
    return Kernels(kernels=(kernel,))


@lowers("MatMulInteger16", domain="com.microsoft", gives="gemm")
def matmul_integer16(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(1),
        dtype=DataType.INT16,
        b_is_weight=_is_weight(context, 1),
        output_dtype=DataType.INT32,
    )
    return Kernels(kernels=(kernel,))


@lowers("QLinearMatMul", gives="gemm", note="int8, requantised in the epilogue")
def qlinear_matmul(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(3),
        dtype=context.dtype(0),
        b_is_weight=_is_weight(context, 3),
        b_dtype=_unless_same(context.dtype(3), context.dtype(0)),
        output_dtype=_unless_same(context.out().dtype, context.dtype(0)),
        epilogue=("requantize",),
        extra_read_bytes=_bytes(context, 1, 2, 4, 5, 6, 7),
    )
    return Kernels(kernels=(kernel,))


@lowers("QLinearConv", gives="conv", note="int8, requantised in the epilogue")
@lowers("QLinearConv", domain="com.microsoft", gives="conv")
def qlinear_conv(context: NodeContext) -> Outcome:
    biased = context.has(8)
    kernel = conv_kernel(
        context,
        weight=3,
        last=context.integer("channels_last", 0) == 1,
        dtype=context.dtype(0),
        epilogue=("requantize",),
        extra_read_bytes=_bytes(context, 4, 5) + (context.spec(8).byte_count if biased else 0),
    )
    return Kernels(kernels=(kernel,))


@lowers("QGemm", domain="com.microsoft", gives="gemm")
def qgemm(context: NodeContext) -> Outcome:
    """A at 0, B at 3, C (int32) at 6; without y_scale the output is float."""
    left, right = context.shape(0), context.shape(3)
    swap_a, swap_b = context.integer("transA", 0) == 1, context.integer("transB", 0) == 1
    m, k = reversed(left) if swap_a else left
    kernel = Gemm(
        m=m,
        n=right[0] if swap_b else right[1],
        k=k,
        transpose_a=swap_a,
        transpose_b=swap_b,
        b_is_weight=_is_weight(context, 3),
        dtype=context.dtype(0),
        b_dtype=_unless_same(context.dtype(3), context.dtype(0)),
        output_dtype=_unless_same(context.out().dtype, context.dtype(0)),
        epilogue=("requantize",),
        extra_read_bytes=_bytes(context, 4, 5) + (context.spec(6).byte_count if context.has(6) else 0),
    )
    return Kernels(kernels=(kernel,))


@lowers("DynamicQuantizeMatMul", domain="com.microsoft", gives="gemm", note="quantises its input first")
def dynamic_matmul(context: NodeContext) -> Outcome:
    source, out = context.spec(0), context.out()
    packed = TensorSpec(dtype=DataType.UINT8, shape=source.shape)
    scalar = TensorSpec(dtype=source.dtype, shape=(2,))
    kernels: tuple[Kernel, ...] = (
        Reduction(operation="minmax", outputs=1, reduced=source.element_count, dtype=source.dtype, output=scalar),
        Elementwise(operations=("quantize",), inputs=(source,), output=packed),
        matmul_dims(
            source.shape,
            context.shape(1),
            dtype=DataType.UINT8,
            b_is_weight=_is_weight(context, 1),
            b_dtype=_unless_same(context.dtype(1), DataType.UINT8),
            output_dtype=out.dtype,
            epilogue=("dequantize", "bias") if context.has(4) else ("dequantize",),
            extra_read_bytes=_bytes(context, 2, 3),
        ),
    )
    return Kernels(kernels=kernels)


@lowers("MatMulIntegerToFloat", domain="com.microsoft", gives="gemm")
def matmul_to_float(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(1),
        dtype=context.dtype(0),
        b_is_weight=_is_weight(context, 1),
        b_dtype=_unless_same(context.dtype(1), context.dtype(0)),
        output_dtype=context.out().dtype,
        epilogue=("dequantize", "bias") if context.has(6) else ("dequantize",),
        extra_read_bytes=_bytes(context, 2, 3, 4, 5),
    )
    return Kernels(kernels=(kernel,))


@lowers("MatMulNBits", domain="com.microsoft", gives="gemm", note="weights of 2, 4 or 8 bits, scales a block")
def matmul_nbits(context: NodeContext) -> Outcome:
    """A (..., k) @ B, stored as (n, blocks, bytes): n * k weights of ``bits`` bits, the last block padded."""
    k, n = context.integer("K", 1), context.integer("N", 1)
    out = context.out()
    packed = PACKED.get(context.integer("bits", 4), DataType.UINT8)
    # a last block that is padded
    beyond = max(context.spec(1).byte_count - packed.bytes_of(n * k), 0)
    kernel = Gemm(
        m=out.element_count // max(n, 1),
        n=n,
        k=k,
        transpose_b=True,
        b_is_weight=True,
        dtype=context.dtype(0),
        b_dtype=packed,
        epilogue=("bias",) if context.has(5) else (),
        extra_read_bytes=_bytes(context, 2, 3, 4) + beyond,
    )
    return Kernels(kernels=(kernel,))


def _narrow(context: NodeContext, m: int, n: int, place: int, epilogue: tuple[str, ...]) -> Gemm:
    """A product with weights of ``bits`` bits; ``place`` is that of their scales."""
    return Gemm(
        m=m,
        n=n,
        k=context.integer("K", 1),
        transpose_b=True,
        b_is_weight=True,
        dtype=context.dtype(0),
        b_dtype=PACKED.get(context.integer("bits", 4), DataType.UINT8),
        epilogue=epilogue,
        extra_read_bytes=_bytes(context, place),
    )


def _skipped_norm(context: NodeContext, rows: int, first_sum: int) -> tuple[Normalization, ...]:
    """The normalization (and the sum before it, perhaps written as output ``first_sum``) in front of the products."""
    if not context.has(2):
        return ()
    cols = context.integer("K", 1)
    norm = Normalization(
        method="rms",
        rows=rows,
        cols=cols,
        parameter_count=cols,
        dtype=context.dtype(0),
        fused=("add",) if context.has(1) else (),
        extra_inputs=(context.spec(1),) if context.has(1) else (),
        extra_outputs=context.other_outputs(first_sum),
    )
    return (norm,)


@lowers("MatMulNBitsQkv", domain="com.microsoft", gives="gemm", note="a normalization and three products")
def narrow_qkv(context: NodeContext) -> Outcome:
    rows = context.spec(0).element_count // max(context.integer("K", 1), 1)
    widths = (context.integer("Nq", 1), context.integer("Nkv", 1), context.integer("Nkv", 1))
    products = tuple(
        _narrow(context, rows, width, place, ("bias",) if context.has(place + 1) else ())
        for width, place in zip(widths, (4, 7, 10), strict=True)
    )
    return Kernels(kernels=(*_skipped_norm(context, rows, 3), *products))


@lowers("MatMulNBitsMlp", domain="com.microsoft", gives="gemm", note="a normalization, two products, gate times value")
def narrow_mlp(context: NodeContext) -> Outcome:
    rows = context.spec(0).element_count // max(context.integer("K", 1), 1)
    width = context.integer("N", 1)
    gate, value = (
        _narrow(context, rows, width, place, ("bias",) if context.has(place + 1) else ()) for place in (4, 7)
    )
    out = context.out()
    joined = Elementwise(operations=(context.text("activation", "silu"), "mul"), inputs=(out, out), output=out)
    return Kernels(kernels=(*_skipped_norm(context, rows, 1), gate, value, joined))


@lowers(
    "MatMulNBitsQLoRA", domain="com.microsoft", gives="gemm", note="the product, and two narrow ones of the adapter"
)
def narrow_adapted(context: NodeContext) -> Outcome:
    rows = context.spec(0).element_count // max(context.integer("K", 1), 1)
    width, rank = context.integer("N", 1), context.shape(3)[0]
    small = PACKED.get(context.integer("lora_bits", 4), DataType.UINT8)
    dtype = context.dtype(0)
    down = Gemm(
        m=rows,
        n=rank,
        k=context.integer("K", 1),
        transpose_b=True,
        b_is_weight=True,
        dtype=dtype,
        b_dtype=small,
        extra_read_bytes=_bytes(context, 4),
    )
    up = Gemm(
        m=rows,
        n=width,
        k=rank,
        transpose_b=True,
        b_is_weight=True,
        dtype=dtype,
        b_dtype=small,
        epilogue=("add",),
        extra_read_bytes=_bytes(context, 6),
    )
    return Kernels(kernels=(_narrow(context, rows, width, 2, ()), down, up))


@lowers("MatMulBnb4", "MatMulFpQ4", domain="com.microsoft", gives="gemm", note="weights of 4 bits")
def matmul_four_bits(context: NodeContext) -> Outcome:
    out = context.out()
    k = context.integer("K", context.shape(0)[-1])
    n = context.integer("N", out.shape[-1])
    kernel = Gemm(
        m=out.element_count // max(n, 1),
        n=n,
        k=k,
        transpose_b=True,
        b_is_weight=True,
        dtype=context.dtype(0),
        b_dtype=DataType.UINT4,
        extra_read_bytes=_bytes(context, 2),
    )
    return Kernels(kernels=(kernel,))


@lowers("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", domain="com.microsoft", gives="gemm")
def matmul_float_blocks(context: NodeContext) -> Outcome:
    out = context.out()
    n = out.shape[-1]
    four = "Fp4" in context.node.op_type
    kernel = Gemm(
        m=out.element_count // max(n, 1),
        n=n,
        k=context.shape(0)[-1],
        transpose_b=True,
        b_is_weight=True,
        dtype=context.dtype(0),
        b_dtype=DataType.FLOAT4E2M1 if four else DataType.FLOAT8E4M3FN,
        extra_read_bytes=_bytes(context, 2, 3),
    )
    return Kernels(kernels=(kernel,))


@lowers("QOrderedMatMul", domain="com.microsoft", gives="gemm")
def ordered_matmul(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(2),
        dtype=DataType.INT8,
        b_is_weight=_is_weight(context, 2),
        epilogue=("requantize",),
        extra_read_bytes=_bytes(context, 3, 5),
    )
    return Kernels(kernels=(kernel,))


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


@lowers("GatherBlockQuantized", domain="com.microsoft", gives="gather_scatter", note="rows at their true bit width")
def gather_blocks(context: NodeContext) -> Outcome:
    out, places = context.out(), context.spec(1)
    bits = context.integer("bits", 4)
    packed = PACKED.get(bits, DataType.UINT8)
    gathered = GatherScatter(
        operation="embedding",
        moved=out.element_count,
        run=out.shape[-1] if out.shape else 1,
        dtype=packed,
        index_count=places.element_count,
        index_dtype=places.dtype,
    )
    values = TensorSpec(dtype=packed, shape=out.shape)
    block = max(context.integer("block_size", 128), 1)
    parameters = (-(-out.element_count // block),)
    read = [values, TensorSpec(dtype=out.dtype, shape=parameters)]
    if context.has(3):
        read.append(TensorSpec(dtype=packed, shape=parameters))
    widened = Elementwise(operations=("dequantize",), inputs=tuple(read), output=out)
    return Kernels(kernels=(gathered, widened))


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
