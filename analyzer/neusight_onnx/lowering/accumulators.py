"""What FP16 products accumulate in: FP32, but where a runtime has kernels of FP16 sums as well and takes the fastest.

On GeForce cards those multiply twice as fast; on others both are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Gemm, Kernel, NodeWork
from neusight_onnx.runtime import Runtime


def with_accumulators(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` and their alternatives with the FP16 products and convolutions that may accumulate in FP16 marked so.

    Those that write FP32 don't, nor those of weights in few bits, whose kernels are others.
    """
    if not runtime.sums_fp16:
        return tuple(works)
    return tuple(
        replace(work, kernels=_marked(work.kernels), alternatives=tuple(_marked(way) for way in work.alternatives))
        if work.kernels and any(_sums_fp16(kernel) for way in (work.kernels, *work.alternatives) for kernel in way)
        else work
        for work in works
    )


def _marked(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    return tuple(_in_half(kernel) for kernel in kernels)


def _in_half(kernel: Kernel) -> Kernel:
    if isinstance(kernel, Gemm | Conv) and _sums_fp16(kernel):
        return replace(kernel, accumulator=DataType.FLOAT16)
    return kernel


def _sums_fp16(kernel: Kernel) -> bool:
    match kernel:
        case Gemm():
            operands = (kernel.dtype, kernel.a_dtype, kernel.b_dtype, kernel.output_dtype)
        case Conv():
            operands = (kernel.dtype, kernel.input_dtype, kernel.weight_dtype, kernel.output_dtype)
        case _:
            return False
    return all(dtype in (None, DataType.FLOAT16) for dtype in operands)
