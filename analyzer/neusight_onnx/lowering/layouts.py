"""The order in which convolutions find their tensors: (n, c, *spatial) as a model has them, or (n, *spatial, c).

Kernels on matrix units of 16 and 8 bits want the second; a library that gets the first transposes before and behind.
Pooling between them takes whole vectors of channels where an engine keeps the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.kernels import Conv, Kernel, NodeWork, Pooling
from neusight_onnx.runtime import Runtime

WIDEST_ORDERED_BITS = 16
"""Wider types have kernels that read (n, c, *spatial)."""

FEW_CHANNELS = 64
"""A convolution with at most so many channels in and out is one of few channels to Inductor."""

GROUPED, IN_OUT, FEW, OTHER = "grouped", "more in than out", "few channels", "other"
LAST_OVER_FIRST: dict[str, float] = {GROUPED: 1.358, IN_OUT: 0.725, FEW: 0.783, OTHER: 0.823}
"""Time of a convolution channels last over that of the order (n, c, h, w), as Inductor weighs it at inference: averages
of its authors' benchmark, by kind (``GROUPED_MULTIPLIER`` and so on in torch/_inductor/graph.py, the same in PyTorch
2.4 and 2.13)."""


def with_layouts(works: Sequence[NodeWork], runtime: Runtime, *, training: bool = False) -> tuple[NodeWork, ...]:
    """``works`` with the convolutions that the runtime gives their tensors channels last marked as such, and in an
    engine the pooling: TensorRT's formats of it in 16 and 8 bits are those of convolutions, kHWC8 and kCHW32 ("I/O
    Formats" and "Data Format Description" of its developer guide), vectors of 16 and 32 bytes.

    ``training``: they are a step of training, for which Inductor has another rule. A runtime that keeps the model's
    order leaves them as they are: an input that lies channels last because of a transpose before was marked when it was
    lowered.
    """
    if not runtime.conv_layout.startswith("nhwc"):
        return tuple(works)
    found = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Conv)]
    is_engine = True
    if runtime.name == "compiled":
        if not is_reordered(found, training=training):
            return tuple(works)
        is_engine = False
    changed = (Conv, Pooling) if is_engine else (Conv,)
    return tuple(
        replace(work, kernels=tuple(_ordered(kernel, is_engine=is_engine) for kernel in work.kernels))
        if any(isinstance(kernel, changed) for kernel in work.kernels)
        else work
        for work in works
    )


def _ordered(kernel: Kernel, *, is_engine: bool) -> Kernel:
    """``is_engine``: pooling, too, and over any number of spatial axes, not only the two that Inductor reorders."""
    if isinstance(kernel, Pooling) and is_engine and _is_windowed(kernel):
        return replace(kernel, access="vector")
    if not isinstance(kernel, Conv) or (len(kernel.out) != 2 and not is_engine):
        return kernel
    if kernel.dtype.bits <= WIDEST_ORDERED_BITS:
        return replace(kernel, channels_last=True)
    return kernel


def _is_windowed(kernel: Pooling) -> bool:
    """Whether it is pooling of vectors: not by regions, whose places are data, nor of wider elements."""
    return kernel.operation != "region" and kernel.input.dtype.bits <= WIDEST_ORDERED_BITS


def is_reordered(convolutions: Sequence[Conv], *, training: bool = False) -> bool:
    """Whether TorchInductor puts a model's convolutions into channels-last order (``decide_layout_opt`` of PyTorch 2.1
    and later).

    At inference where that saves time by its weights of each kind's FLOPs (``LAST_OVER_FIRST``). In training not if one
    of them has groups of more than one channel, if one with a filter has at most half as many channels out as in, or if
    all have few channels. Its further rule, on models with 300 operators a convolution, is left out: those have few.
    """
    kinds = [_kind(kernel) for kernel in convolutions]
    if not kinds:
        return False
    if training:
        return GROUPED not in kinds and IN_OUT not in kinds and any(kind != FEW for kind in kinds)
    before = sum(kernel.macs for kernel in convolutions)
    return sum(kernel.macs * LAST_OVER_FIRST[kind] for kernel, kind in zip(convolutions, kinds, strict=True)) <= before


def _kind(kernel: Conv) -> str:
    """What Inductor takes a convolution for, by the first two sizes of its weight and the first side of its filter."""
    first, second = kernel.k, kernel.c // kernel.groups
    if kernel.transposed:
        first, second = kernel.c, kernel.k // kernel.groups
    if kernel.groups > 1 and second > 1:
        return GROUPED
    if first <= FEW_CHANNELS and second <= FEW_CHANNELS:
        return FEW
    return IN_OUT if 2 * first <= second and kernel.filter[0] > 1 else OTHER
