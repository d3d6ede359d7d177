"""How kernels over elements find operands that broadcast, in runtimes that don't run PyTorch's.

ONNX Runtime's CUDA provider has three kernels for a binary operator (``cuda/math/binary_elementwise_ops``): operands of
one shape, or a number; the left one whole and the right one with a single dimension that isn't 1 (a vector over
channels or over the last dimension, which two divisions find); anything else by one division a dimension. Its fused
biases (BiasGelu and the like) and cuDNN's addition of a convolution's bias are of the second kind. TensorRT's kernels
are made for their shapes. The same goes for kernels that copy: Concat and Split of ONNX Runtime divide by what lies
inside the axis and by its size, the others once a dimension; Gather divides by what lies inside the axis and by the
number of indices (``_GatherKernel`` of its library, 1.31.1, takes two DivMod).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.kernels import Elementwise, GatherScatter, Kernel, Movement, NodeWork, Normalization, Softmax
from neusight_onnx.runtime import Runtime

OF_A_VECTOR = 2
"""Divisions an element for a vector over one dimension: by what lies inside it, and by its length."""


DIVISIONS_OF_COPIES = {"concat": 2, "split": 2}
"""The same of copies; those of ``BY_DIMENSION`` make one a dimension."""
BY_DIMENSION = frozenset({"expand", "flip", "pad", "slice", "tile"})
PLACED = BY_DIMENSION | DIVISIONS_OF_COPIES.keys() | {"copy", "transpose"}
"""Copies that find places at all: those that a kernel made for their shapes finds without a division."""
OF_A_LOOK_UP = 2
LOOK_UPS = frozenset({"embedding", "gather"})
"""Copies by index that Gather makes."""


def with_own_broadcasts(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` with the kernels over elements that ``runtime`` has; those of PyTorch's runtimes as they are."""
    if runtime.elementwise == "pytorch":
        return tuple(works)
    own = _generated if runtime.elementwise == "generated" else _by_divisions
    known: dict[Kernel, Kernel] = {}
    result = []
    for work in works:
        is_other = False
        for kernel in work.kernels:
            if kernel not in known:
                known[kernel] = own(kernel)
            is_other |= known[kernel] is not kernel
        result.append(replace(work, kernels=tuple([known[kernel] for kernel in work.kernels])) if is_other else work)
    return tuple(result)


def _generated(kernel: Kernel) -> Kernel:
    if isinstance(kernel, Elementwise | Softmax | Normalization):
        return replace(kernel, generated=True)
    if isinstance(kernel, GatherScatter):
        return replace(kernel, divisions=0)
    return replace(kernel, divisions=0) if isinstance(kernel, Movement) and kernel.operation in PLACED else kernel


def _by_divisions(kernel: Kernel) -> Kernel:
    if isinstance(kernel, Movement) and kernel.divisions is None:
        each = len(kernel.shape) if kernel.operation in BY_DIMENSION else None
        return replace(kernel, divisions=DIVISIONS_OF_COPIES.get(kernel.operation, each))
    if isinstance(kernel, GatherScatter):
        by_element = kernel.index_count == kernel.moved  # GatherElements
        return kernel if kernel.operation not in LOOK_UPS or by_element else replace(kernel, divisions=OF_A_LOOK_UP)
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
