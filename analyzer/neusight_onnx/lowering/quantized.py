"""What quantises and dequantises, and what folding makes of operators between such pairs: integers multiply, scales and
zero points ride along; bytes at the true bit width."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Gemm, Reduction, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.conv import conv_kernel
from neusight_onnx.lowering.gemm import gemm_kernels, product
from neusight_onnx.lowering.matrix_operands import is_weight
from neusight_onnx.lowering.quantized_parameters import parameter_bytes, unless_same
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


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
    read = parameter_bytes(context, *range(3, residual))
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
        kernels = product(context, linear=linear and context.lazy and is_weight(context, 1))
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
                b_dtype=unless_same(right, left),
                output_dtype=unless_same(output, left),
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
