"""Kernel classes: what a GPU executes, with exact work and traffic, independent of any GPU.

Units: ``flops`` counts floating-point (or integer, for integer types) operations, one multiply-add being 2;
``read_bytes`` and ``write_bytes`` are the unique bytes of operands at their true bit width, each counted once
(what caches lose is the predictor's business).

A kernel is a value: two layers of the same shape are equal kernels. Where a kernel came from stands in
:class:`NodeWork`.
"""

from __future__ import annotations

from neusight_onnx.kernels.attention import APPENDING, BY_CUDNN, BY_XQA, CUDNN_ATTENTION_CAPABILITY, IN_PAGES, Attention
from neusight_onnx.kernels.host import HostWork, Transfer
from neusight_onnx.kernels.kinds import KERNEL_CLASSES, Kernel
from neusight_onnx.kernels.movement import GENERATED, GatherScatter, Move, Movement, Sort
from neusight_onnx.kernels.node_work import NodeWork
from neusight_onnx.kernels.opaque import Opaque, StateSteps, TreeWalk
from neusight_onnx.kernels.operations import ELEMENTWISE_FLOPS
from neusight_onnx.kernels.pointwise import Elementwise
from neusight_onnx.kernels.products import Conv, Direction, Gemm, Recurrent
from neusight_onnx.kernels.rows import Normalization, Pooling, Reduction, Softmax
from neusight_onnx.kernels.tensors import TensorSpec

__all__ = [
    "APPENDING",
    "BY_CUDNN",
    "BY_XQA",
    "CUDNN_ATTENTION_CAPABILITY",
    "ELEMENTWISE_FLOPS",
    "GENERATED",
    "IN_PAGES",
    "KERNEL_CLASSES",
    "Attention",
    "Conv",
    "Direction",
    "Elementwise",
    "GatherScatter",
    "Gemm",
    "HostWork",
    "Kernel",
    "Move",
    "Movement",
    "NodeWork",
    "Normalization",
    "Opaque",
    "Pooling",
    "Recurrent",
    "Reduction",
    "Softmax",
    "Sort",
    "StateSteps",
    "TensorSpec",
    "Transfer",
    "TreeWalk",
]
