"""How kernels over elements find operands that broadcast, in runtimes that don't run PyTorch's.

ONNX Runtime's CUDA provider has three kernels for a binary operator (``cuda/math/binary_elementwise_ops``): operands of
one shape, or a number; the left one whole and the right one with a single dimension that isn't 1 (a vector over
channels or over the last dimension, which two divisions find); anything else by one division a dimension. Its fused
biases (BiasGelu and the like) and cuDNN's addition of a convolution's bias are of the second kind. TensorRT's kernels
are made for their shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.kernels import Elementwise, Kernel, NodeWork
from neusight_onnx.runtime import Runtime

OF_A_VECTOR = 2
"""Divisions an element for a vector over one dimension: by what lies inside it, and by its length."""


def with_own_broadcasts(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` with the kernels over elements that ``runtime`` has; those of PyTorch's runtimes as they are."""
    if runtime.elementwise == "pytorch":
        return tuple(works)
    own = _generated if runtime.elementwise == "generated" else _by_divisions
    result = []
    for work in works:
        if any(isinstance(kernel, Elementwise) for kernel in work.kernels):
            work = replace(work, kernels=tuple([own(kernel) for kernel in work.kernels]))
        result.append(work)
    return tuple(result)


def _generated(kernel: Kernel) -> Kernel:
    return replace(kernel, generated=True) if isinstance(kernel, Elementwise) else kernel


def _by_divisions(kernel: Kernel) -> Kernel:
    if not isinstance(kernel, Elementwise):
        return kernel
    n = kernel.output.element_count
    spread = [spec for spec in kernel.inputs if 1 < spec.element_count < n]
    if not spread:
        return replace(kernel, divisions=0) if "where" in kernel.operations else kernel
    is_vector = (
        len(spread) == 1 and sum(size != 1 for size in spread[0].shape) == 1 and spread[0] is not kernel.inputs[0]
    )
    return replace(kernel, divisions=OF_A_VECTOR if is_vector else len(kernel.output.shape))
