"""The order in which convolutions find their tensors: (n, c, *spatial) as a model has them, or (n, *spatial, c).

Kernels on matrix units want the second; a library that gets the first transposes before and behind.
PyTorch's tensors lie in the one or the other, which operators pass on (``strides.py``, the rules of lowering): in the
second where the user gives images and filters in it, or where TorchInductor does. An engine has formats of its own:
pooling and resizing between its convolutions take whole vectors of channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Conv, Kernel, Movement, NodeWork, Pooling
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.conv import conv_kernel
from neusight_onnx.lowering.views import AS_EXPORTED, Order
from neusight_onnx.runtime import Runtime

WIDEST_ORDERED_BITS = 16
"""Of wider types only TF32 is multiplied on matrix units; FP32's kernels read (n, c, *spatial)."""


def wants_channels_last(dtype: DataType) -> bool:
    """Whether the kernels of convolutions in a type read (n, *spatial, c) alone."""
    return dtype.bits <= WIDEST_ORDERED_BITS or dtype is DataType.TFLOAT32


WIDEST_POOLED_BITS = 32
"""Of elements that an engine pools by vectors of channels: layers of TensorRT for RTX 1.7 pool FP32 channels last, too,
for compute capabilities 7.5 and 8.6, alone and between convolutions."""

FEW_CHANNELS = 64
"""A convolution with at most so many channels in and out is one of few channels to Inductor."""

GROUPED, IN_OUT, FEW, OTHER = "grouped", "more in than out", "few channels", "other"
LAST_OVER_FIRST: dict[str, float] = {GROUPED: 1.358, IN_OUT: 0.725, FEW: 0.783, OTHER: 0.823}
"""Time of a convolution channels last over that of the order (n, c, h, w), as Inductor weighs it at inference: averages
of its authors' benchmark, by kind (``GROUPED_MULTIPLIER`` and so on in torch/_inductor/graph.py, the same in PyTorch
2.4 and 2.13)."""


def with_layouts(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` with the convolutions, pooling and resizing marked that an engine runs in formats of channels: those of
    TensorRT in 16 and 8 bits are kHWC8 and kCHW32 for both ("I/O Formats" and "Data Format Description" of its
    developer guide), vectors of 16 and 32 bytes; that of TF32 is kHWC.

    Other runtimes' are as they are: what lies channels last was marked when it was lowered.
    """
    if not runtime.conv_layout.startswith("nhwc"):
        return tuple(works)
    return tuple(
        replace(work, kernels=tuple(map(_ordered, work.kernels)))
        if any(isinstance(kernel, Conv | Movement | Pooling) for kernel in work.kernels)
        else work
        for work in works
    )


def _ordered(kernel: Kernel) -> Kernel:
    if isinstance(kernel, Pooling) and _is_windowed(kernel):
        return replace(kernel, access="vector")
    if isinstance(kernel, Movement) and kernel.taps:
        return replace(kernel, run=kernel.shape[1], library="own")
    if isinstance(kernel, Conv) and wants_channels_last(kernel.dtype):
        return replace(kernel, channels_last=True)
    return kernel


def _is_windowed(kernel: Pooling) -> bool:
    """Whether it is pooling of vectors: not by regions, whose places are data, nor of wider elements."""
    return kernel.operation != "region" and kernel.input.dtype.bits <= WIDEST_POOLED_BITS


IMAGES, VOLUMES = 4, 5
"""Ranks of tensors that PyTorch has channels last; those of lines, (n, c, length), have no such order."""


def order_of(graph: InferredGraph, runtime: Runtime, *, training: bool) -> Order:
    """Which convolutions of a graph a runtime has work channels last."""
    if runtime.channels_last:
        return Order(ranks=frozenset({IMAGES, VOLUMES}), given=True)
    if runtime.reorders and is_reordered(tuple(_convolutions(graph, runtime)), training=training):
        return Order(ranks=frozenset({IMAGES}))
    return AS_EXPORTED


def _convolutions(graph: InferredGraph, runtime: Runtime) -> Iterator[Conv]:
    """The convolutions of a graph and its bodies whose sizes are known."""
    find = graph.values.get
    for node in graph.graph.nodes:
        if node.op_type in ("Conv", "ConvTranspose") and not node.domain:
            inputs, outputs = (tuple([find(name) for name in names]) for names in (node.inputs, node.outputs))
            if all(value is not None and value.shape is not None for value in (*inputs[:2], *outputs)):
                context = NodeContext(node, inputs, outputs, runtime, {}, graph)
                yield conv_kernel(context, transposed=node.op_type == "ConvTranspose")
    for body in graph.bodies.values():
        yield from _convolutions(body, runtime)


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
