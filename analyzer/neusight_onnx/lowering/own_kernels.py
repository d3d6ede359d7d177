"""Whose kernels go over elements and attend, by runtime.

ONNX Runtime's CUDA provider has its own (:mod:`neusight_onnx.laws.issue` lists those that were counted). TensorRT's
are made for their shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.kernels import (
    GENERATED,
    Attention,
    Elementwise,
    GatherScatter,
    Kernel,
    Move,
    Movement,
    NodeWork,
    Normalization,
    Reduction,
    Softmax,
    Sort,
)
from neusight_onnx.runtime import Runtime

BY_ONNXRUNTIME = (Attention, Elementwise, GatherScatter, Movement, Normalization, Reduction, Softmax, Sort)
"""Classes of kernels that its provider has its own of; others are cuDNN's, cuBLAS's, or costed alike."""
COPIES = frozenset({"cast", "concat", "copy", "expand", "pad", "slice", "split", "tile", "transpose"})
"""Of those that copy; the others are costed as PyTorch's, as resizing in one or three dimensions is."""
RESIZED_TAPS = frozenset({1, 4, 16})
"""Neighbours that an element of an image is resized from by kernels whose instructions are counted."""
PLACED = frozenset({"concat", "copy", "expand", "flip", "pad", "slice", "split", "tile", "transpose"})
"""Copies that find places at all: those that a kernel made for their shapes finds for nothing."""
LOOK_UPS = frozenset({"embedding", "gather"})
"""Copies by index that Gather makes."""
VECTOR_BITS = 128
"""What a thread loads at once at most."""


def with_own_kernels(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` with the kernels over elements, and of attention, that ``runtime`` has."""
    own, at_once = OWN[runtime.elementwise], runtime.skip_norm_at_once
    known: dict[Kernel, Kernel] = {}

    def of(kernel: Kernel) -> Kernel:
        other = known.get(kernel)
        if other is None:
            other = own(kernel)
            if isinstance(other, GatherScatter) and other.operation in LOOK_UPS:
                other = _looking_up_vectors(other, runtime.vector_lookups)
            if isinstance(other, Elementwise | Softmax | Normalization | Reduction) and other.moves:
                moves = tuple([_looking_up(move, runtime.vector_lookups) for move in other.moves])
                other = replace(other, moves=moves)
            if at_once and isinstance(other, Normalization) and "add" in other.fused:
                other = replace(other, at_once=at_once)
            known[kernel] = other
        return other

    # layers that repeat share their kernels, which are slow to compare
    instead: dict[int, tuple[Kernel, ...]] = {}
    result = []
    for work in works:
        kernels = work.kernels
        if kernels:
            new = instead.get(id(kernels))
            if new is None:
                new = tuple(map(of, kernels))
                new = instead[id(kernels)] = kernels if new == kernels else new
            if new is not kernels:
                work = work.with_kernels(new)
        result.append(work)
    return tuple(result)


def _generated(kernel: Kernel) -> Kernel:
    if isinstance(kernel, Elementwise | Softmax | Normalization):
        return replace(kernel, generated=True)
    if isinstance(kernel, GatherScatter):
        return replace(kernel, library=GENERATED if kernel.operation in LOOK_UPS else "own")
    return replace(kernel, library=GENERATED) if isinstance(kernel, Movement) and kernel.operation in PLACED else kernel


def _by_pytorch(kernel: Kernel) -> Kernel:
    return replace(kernel, library="pytorch") if isinstance(kernel, Attention) else kernel


def _looking_up(move: Move, which: str) -> Move:
    """A lookup of a generated kernel as it would be by itself."""
    if isinstance(move, GatherScatter) and move.operation in LOOK_UPS:
        return _looking_up_vectors(move, which)
    return move


def _looking_up_vectors(kernel: GatherScatter, which: str) -> GatherScatter:
    """``kernel`` copying 16 bytes at a time if its runs are of these; ``which``: as ``Runtime.vector_lookups``."""
    if which == "none" or kernel.access or kernel.run * kernel.dtype.bits % VECTOR_BITS:
        return kernel
    is_row = kernel.moved == kernel.index_count * kernel.run
    return replace(kernel, access="vector") if which == "any" or is_row else kernel


def _by_onnxruntime(kernel: Kernel) -> Kernel:
    if not isinstance(kernel, BY_ONNXRUNTIME) or kernel.library:
        return kernel
    if isinstance(kernel, GatherScatter) and (
        kernel.operation not in LOOK_UPS or kernel.index_count == kernel.moved  # GatherElements
    ):
        return kernel
    if isinstance(kernel, Sort) and kernel.operation != "topk":
        return kernel
    if isinstance(kernel, Movement) and kernel.operation not in COPIES and kernel.taps not in RESIZED_TAPS:
        return kernel
    return replace(kernel, library="onnxruntime")


OWN = {"pytorch": _by_pytorch, "generated": _generated, "onnxruntime": _by_onnxruntime}
"""By what a runtime has for kernels over elements (``Runtime.elementwise``)."""
