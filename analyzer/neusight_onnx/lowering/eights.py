"""Which FP16 products matrix units don't take where a library wants rows of multiples of eight elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Gemm, Kernel, NodeWork
from neusight_onnx.runtime import Runtime

_EIGHT = 8


def with_units_for_eights(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` with the FP16 products marked that FP32's lanes compute, where ``runtime`` has such a library."""
    if not runtime.units_want_eights:
        return tuple(works)
    return tuple(
        replace(work, kernels=tuple(_marked(kernel) for kernel in work.kernels))
        if any(isinstance(kernel, Gemm) for kernel in work.kernels)
        else work
        for work in works
    )


def _marked(kernel: Kernel) -> Kernel:
    if not isinstance(kernel, Gemm) or kernel.dtype is not DataType.FLOAT16:
        return kernel
    rows = (
        kernel.m if kernel.transpose_a else kernel.k,
        kernel.k if kernel.transpose_b else kernel.n,
        kernel.n,
    )
    return replace(kernel, on_lanes=any(size % _EIGHT for size in rows))
