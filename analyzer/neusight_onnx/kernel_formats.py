"""The number format of a kernel: it decides the pipe that computes it, and the predictor that it is looked up by."""

from __future__ import annotations

from typing import assert_never

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    HostWork,
    Kernel,
    Movement,
    Normalization,
    Opaque,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    Sort,
    Transfer,
)

_SAME_PIPE: dict[DataType, DataType] = {
    DataType.FLOAT16: DataType.BFLOAT16,
    DataType.UINT8: DataType.INT8,
    DataType.FLOAT8E4M3FNUZ: DataType.FLOAT8E4M3FN,
    DataType.FLOAT8E5M2: DataType.FLOAT8E4M3FN,
    DataType.FLOAT8E5M2FNUZ: DataType.FLOAT8E4M3FN,
}
"""Types whose products have kernels of the same shape and rate as those of another type, which was measured."""

MATRIX_FORMATS = frozenset(
    {
        DataType.FLOAT16,
        DataType.BFLOAT16,
        DataType.TFLOAT32,
        DataType.INT8,
        DataType.UINT8,
        DataType.FLOAT8E4M3FN,
        DataType.FLOAT8E4M3FNUZ,
        DataType.FLOAT8E5M2,
        DataType.FLOAT8E5M2FNUZ,
        DataType.FLOAT4E2M1,
    }
)
"""Types that matrix units multiply."""

OF_WEIGHT = "/weight"
OF_DATA = "/data"
"""End the label of a convolution's gradient of its weight, or input: other kernels than forward. On matrix units the
gradient of the input shares the predictor of forward convolutions, which was trained on both."""


def kernel_dtype(kernel: Kernel) -> DataType:
    """The type that a kernel computes in, which decides its pipe and its predictor.

    Of an elementwise kernel that is its widest floating-point operand (else what it writes).
    """
    match kernel:
        case Elementwise():
            floats = [spec.dtype for spec in (*kernel.inputs, kernel.output) if spec.dtype.is_float]
            return max(floats, key=lambda dtype: dtype.bits, default=kernel.output.dtype)
        case Pooling():
            return kernel.input.dtype
        case (
            Gemm()
            | Conv()
            | Softmax()
            | Normalization()
            | Reduction()
            | Attention()
            | GatherScatter()
            | Movement()
            | Sort()
            | Recurrent()
            | Opaque()
            | Transfer()
            | HostWork()
        ):
            return kernel.dtype
        case _:
            assert_never(kernel)


def measured_format(dtype: DataType) -> str:
    """The format whose measured products stand for those of ``dtype``."""
    return _SAME_PIPE.get(dtype, dtype).label


def product_label(kernel: Gemm) -> str:
    """The number formats of a product, as predictors are named by: "float32", "bfloat16", "bfloat16+int8", ….

    After the plus: what the weights are stored as, where that is narrower than what is multiplied. float16 and
    bfloat16 run the same kernels on matrix units at the same rate, and so do the 8-bit integers, and the 8-bit floats.
    Integers of 2 bits, of which nothing was measured, are unpacked as those of 4: the same kernel, which reads less.
    """
    label = measured_format(kernel.dtype)
    stored = kernel.b_dtype or kernel.dtype
    if stored.bits >= kernel.dtype.bits or kernel.dtype.bits > 16:  # vector lanes: the law of FP32 reads any width
        return label
    return f"{label}+int{max(stored.bits, 4)}" if stored.is_integer else f"{label}+{stored.label}"


def attention_label(kernel: Attention) -> str:
    """The number formats of fused attention, as predictors are named by: "bfloat16", "bfloat16+float8e4m3fn", ….

    After the plus: what keys and values are stored as, where that is narrower; one format of 8 bits stands for all.
    Backwards it is another kernel, which was not measured.
    """
    label = measured_format(kernel.dtype)
    stored = kernel.kv_dtype or kernel.dtype
    if kernel.backward:
        return f"{label} backward"
    if stored.bits >= kernel.dtype.bits or kernel.dtype.bits > 16:
        return label
    return f"{label}+{DataType.FLOAT8E4M3FN.label if stored.bits == 8 else stored.label}"


def predictor_label(kernel: Kernel) -> str:
    """The number format that a kernel's predictor is looked up by, with the gradients of weights apart."""
    match kernel:
        case Gemm():
            return product_label(kernel)
        case Attention():
            return attention_label(kernel)
        case Conv() if kernel.direction == "weight":
            return kernel.dtype.label + OF_WEIGHT
        case Conv() if kernel.direction == "data" and kernel.dtype not in MATRIX_FORMATS:
            return kernel.dtype.label + OF_DATA
        case _:
            return kernel_dtype(kernel).label
