"""Products of integers that the file has as operators: scales and zero points ride along in the epilogue."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Gemm, Kernel, Reduction, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.conv import conv_kernel
from neusight_onnx.lowering.gemm import matmul_dims
from neusight_onnx.lowering.matrix_operands import is_weight
from neusight_onnx.lowering.quantized_parameters import parameter_bytes, unless_same
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


@lowers("MatMulInteger", gives="gemm", note="8-bit integers -> int32")
def matmul_integer(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(1),
        dtype=context.dtype(0),
        b_is_weight=is_weight(context, 1),
        b_dtype=unless_same(context.dtype(1), context.dtype(0)),
        output_dtype=DataType.INT32,
        extra_read_bytes=parameter_bytes(context, 2, 3),
    )
    return Kernels(kernels=(kernel,))


@lowers("MatMulInteger16", domain="com.microsoft", gives="gemm")
def matmul_integer16(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(1),
        dtype=DataType.INT16,
        b_is_weight=is_weight(context, 1),
        output_dtype=DataType.INT32,
    )
    return Kernels(kernels=(kernel,))


@lowers("QLinearMatMul", gives="gemm", note="int8, requantised in the epilogue")
def qlinear_matmul(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(3),
        dtype=context.dtype(0),
        b_is_weight=is_weight(context, 3),
        b_dtype=unless_same(context.dtype(3), context.dtype(0)),
        output_dtype=unless_same(context.out().dtype, context.dtype(0)),
        epilogue=("requantize",),
        extra_read_bytes=parameter_bytes(context, 1, 2, 4, 5, 6, 7),
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
        extra_read_bytes=parameter_bytes(context, 4, 5) + (context.spec(8).byte_count if biased else 0),
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
        b_is_weight=is_weight(context, 3),
        dtype=context.dtype(0),
        b_dtype=unless_same(context.dtype(3), context.dtype(0)),
        output_dtype=unless_same(context.out().dtype, context.dtype(0)),
        epilogue=("requantize",),
        extra_read_bytes=parameter_bytes(context, 4, 5) + (context.spec(6).byte_count if context.has(6) else 0),
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
            b_is_weight=is_weight(context, 1),
            b_dtype=unless_same(context.dtype(1), DataType.UINT8),
            output_dtype=out.dtype,
            epilogue=("dequantize", "bias") if context.has(4) else ("dequantize",),
            extra_read_bytes=parameter_bytes(context, 2, 3),
        ),
    )
    return Kernels(kernels=kernels)


@lowers("MatMulIntegerToFloat", domain="com.microsoft", gives="gemm")
def matmul_to_float(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(1),
        dtype=context.dtype(0),
        b_is_weight=is_weight(context, 1),
        b_dtype=unless_same(context.dtype(1), context.dtype(0)),
        output_dtype=context.out().dtype,
        epilogue=("dequantize", "bias") if context.has(6) else ("dequantize",),
        extra_read_bytes=parameter_bytes(context, 2, 3, 4, 5),
    )
    return Kernels(kernels=(kernel,))


@lowers("QOrderedMatMul", domain="com.microsoft", gives="gemm")
def ordered_matmul(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(2),
        dtype=DataType.INT8,
        b_is_weight=is_weight(context, 2),
        epilogue=("requantize",),
        extra_read_bytes=parameter_bytes(context, 3, 5),
    )
    return Kernels(kernels=(kernel,))
