"""Which products run in any tile that an engine's own library has: batches in FP32, of the tiles that it timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Gemm, Kernel, NodeWork


def with_engine_tiles(works: Sequence[NodeWork]) -> tuple[NodeWork, ...]:
    """``works`` and their alternatives with batches of FP32 products marked so (``Gemm.any_tile``)."""
    return tuple(
        replace(work, kernels=_marked(work.kernels), alternatives=tuple(map(_marked, work.alternatives)))
        if any(_has_batch(way) for way in (work.kernels, *work.alternatives))
        else work
        for work in works
    )


def _has_batch(kernels: tuple[Kernel, ...]) -> bool:
    return any(isinstance(kernel, Gemm) and _is_batch(kernel) for kernel in kernels)


def _is_batch(kernel: Gemm) -> bool:
    return kernel.batch > 1 and kernel.dtype is DataType.FLOAT32


def _marked(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    return tuple(
        replace(kernel, any_tile=True) if isinstance(kernel, Gemm) and _is_batch(kernel) else kernel
        for kernel in kernels
    )
