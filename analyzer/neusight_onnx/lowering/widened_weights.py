"""Weights of few bits that a runtime widens before it multiplies.

ONNX Runtime's CUDA provider multiplies weights of 2, 4 and 8 bits as they are stored for a few rows only, as in a step
of decoding; for more, as in a prompt, it widens them all into scratch memory and calls cuBLAS. The launches of
onnxruntime-gpu 1.31.1 on stand-ins of CUDA's libraries show it (``benchmarks/cuda_standin.py``, an A100's figures;
4,096 x 4,096 weights of 4 and 8 bits, blocks of 16 to 128, FP16): ``MatMulFloat4BitsKernelM1`` for one row,
``MatMulFloat4BatchedKernel`` up to 16, ``Dequantize4BitsKernel`` and ``cublasGemmEx`` from 17 on, and for any number of
rows where the columns are no multiple of 8. Its kernels that multiply narrow weights on matrix units
(``fpA_intB_gemm``) are switched off unless a session asks for them.

The scales' bytes stay with the product. Blocks of more than 128 weights, which are widened for any number of rows, too,
aren't told from others: a product doesn't know its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeGuard

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Gemm, Kernel, NodeWork, TensorSpec
from neusight_onnx.runtime import Runtime

COLUMNS = 8
"""Its kernels for narrow weights take multiples of so many columns (4,095 columns launch the widening)."""
FLOATS = frozenset({DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16})


def with_widened_weights(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` with a kernel that widens the weights before each product that ``runtime`` has no narrow kernel for."""
    most = runtime.narrow_rows
    if most is None:
        return tuple(works)
    return tuple([_widened(work, most) if any(map(_is_narrow, work.kernels)) else work for work in works])


def widened_products(works: Sequence[NodeWork], runtime: Runtime) -> int:
    """Products of ``works`` before which a kernel widens the weights because they have more rows than ``runtime``
    multiplies narrow ones for; each as often as it runs."""
    most = runtime.narrow_rows
    return sum(
        work.count
        for work in works
        if most is not None
        for kernel, following in pairwise(work.kernels)
        if _widens(kernel) and isinstance(following, Gemm) and following.b_is_weight and following.m > most
    )


def _widens(kernel: Kernel) -> bool:
    return (
        isinstance(kernel, Elementwise) and kernel.operations == ("dequantize",) and kernel.inputs[0].dtype.is_integer
    )


def _is_narrow(kernel: Kernel) -> TypeGuard[Gemm]:
    """Whether ``kernel`` is one product of floating-point rows with integer weights."""
    return (
        isinstance(kernel, Gemm)
        and kernel.b_dtype is not None
        and kernel.b_is_weight
        and kernel.batch == 1
        and kernel.dtype in FLOATS
        and kernel.b_dtype.is_integer
    )


def _widened(work: NodeWork, most_rows: int) -> NodeWork:
    kernels: list[Kernel] = []
    for kernel in work.kernels:
        if _is_narrow(kernel) and (kernel.m > most_rows or kernel.n % COLUMNS):
            shape = (kernel.n, kernel.k) if kernel.transpose_b else (kernel.k, kernel.n)
            stored = TensorSpec(dtype=kernel.b_dtype or kernel.dtype, shape=shape)
            wide = TensorSpec(dtype=kernel.dtype, shape=shape)
            kernels.append(Elementwise(operations=("dequantize",), inputs=(stored,), output=wide))
            kernel = replace(kernel, b_dtype=None)
        kernels.append(kernel)
    return replace(work, kernels=tuple(kernels))
