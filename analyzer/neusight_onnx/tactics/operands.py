"""What layers read and write, and the kernels that turn one type into another."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    Conv,
    Elementwise,
    Gemm,
    Kernel,
    Pooling,
    TensorSpec,
)


def turn(operation: str, tensor: TensorSpec, dtype: DataType) -> Elementwise:
    return Elementwise(operations=(operation,), inputs=(tensor,), output=replace(tensor, dtype=dtype))


def cast(tensor: TensorSpec, dtype: DataType) -> Elementwise:
    """The kernel that gives a tensor another type. It isn't part of its neighbours: in an engine of TensorRT for RTX
    (1.7) a Cast between a mean and a convolution in float32 is a kernel, as are those of inputs and outputs."""
    return replace(turn("cast", tensor, dtype), generated=True)


def operand_of(kernel: Kernel) -> TensorSpec | None:
    match kernel:
        case Gemm():
            return TensorSpec(dtype=kernel.a_dtype or kernel.dtype, shape=(kernel.m, kernel.k))
        case Conv():
            return TensorSpec(dtype=kernel.input_dtype or kernel.dtype, shape=(kernel.n, kernel.c, *kernel.spatial))
        case Pooling():
            return kernel.input
        case _:
            return None


def result_of(kernel: Gemm | Conv) -> TensorSpec:
    shape = (kernel.m, kernel.n) if isinstance(kernel, Gemm) else (kernel.n, kernel.k, *kernel.out)
    return TensorSpec(dtype=kernel.output_dtype or kernel.dtype, shape=shape)


def written(kernel: Conv) -> DataType:
    return kernel.output_dtype or kernel.dtype
