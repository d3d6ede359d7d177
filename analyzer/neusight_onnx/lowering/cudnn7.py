"""Which convolutions have the kernels of cuDNN 7, in releases of runtimes that were built for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Kernel, NodeWork


def with_first_kernels(works: Sequence[NodeWork]) -> tuple[NodeWork, ...]:
    """``works`` and their alternatives with convolutions in FP16 marked so (``Conv.by_cudnn7``)."""
    return tuple(
        replace(work, kernels=_marked(work.kernels), alternatives=tuple(map(_marked, work.alternatives)))
        if any(isinstance(kernel, Conv) for way in (work.kernels, *work.alternatives) for kernel in way)
        else work
        for work in works
    )


def _marked(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    return tuple(
        replace(kernel, by_cudnn7=True) if isinstance(kernel, Conv) and kernel.dtype is DataType.FLOAT16 else kernel
        for kernel in kernels
    )
