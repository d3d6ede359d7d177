"""The order in which convolutions find their tensors: (n, c, *spatial) as a model has them, or (n, *spatial, c).

Kernels on matrix units of 16 and 8 bits want the second; a library that gets the first transposes before and behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from neusight_onnx.kernels import Conv, Kernel, NodeWork
from neusight_onnx.runtime import Runtime

WIDEST_ORDERED_BITS = 16
"""Wider types have kernels that read (n, c, *spatial)."""

FEW_CHANNELS = 64
"""Inductor leaves a model as it is whose convolutions all have at most so many channels in and out."""


def with_layouts(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` with the convolutions that the runtime gives their tensors channels last marked as such.

    A runtime that keeps the model's order leaves them as they are: an input that lies channels last because of a
    transpose before was marked when it was lowered.
    """
    if not runtime.conv_layout.startswith("nhwc"):
        return tuple(works)
    found = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Conv)]
    if runtime.name == "compiled" and not is_reordered(found):
        return tuple(works)
    return tuple(
        replace(work, kernels=tuple(_ordered(kernel) for kernel in work.kernels))
        if any(isinstance(kernel, Conv) for kernel in work.kernels)
        else work
        for work in works
    )


def _ordered(kernel: Kernel) -> Kernel:
    if isinstance(kernel, Conv) and kernel.dtype.bits <= WIDEST_ORDERED_BITS:
        return replace(kernel, channels_last=True)
    return kernel


def is_reordered(convolutions: Sequence[Conv]) -> bool:
    """Whether TorchInductor puts a model's convolutions into channels-last order (PyTorch 2.x, decide_layout_opt).

    Not if one of them has groups of more than one channel, if one with a filter has at most half as many channels out
    as in, or if all have few channels. Its further rule, on models with 300 operators a convolution, is left out.
    """
    kinds = [(kernel.c // kernel.groups, kernel.k, prod(kernel.filter)) for kernel in convolutions]
    if not kinds or any(kernel.groups > 1 and c > 1 for kernel, (c, _, _) in zip(convolutions, kinds, strict=True)):
        return False
    if any(2 * k <= c and taps > 1 for c, k, taps in kinds):
        return False
    return any(c > FEW_CHANNELS or k > FEW_CHANNELS for c, k, _ in kinds)
