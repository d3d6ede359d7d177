"""All kernel classes, and what a report calls each."""

from __future__ import annotations

from typing import TypeAlias

from neusight_onnx.kernels.attention import Attention
from neusight_onnx.kernels.host import HostWork, Transfer
from neusight_onnx.kernels.movement import GatherScatter, Movement, Sort
from neusight_onnx.kernels.opaque import Opaque
from neusight_onnx.kernels.pointwise import Elementwise
from neusight_onnx.kernels.products import Conv, Gemm, Recurrent
from neusight_onnx.kernels.rows import Normalization, Pooling, Reduction, Softmax

Kernel: TypeAlias = (
    Gemm
    | Conv
    | Elementwise
    | Softmax
    | Normalization
    | Reduction
    | Pooling
    | Attention
    | GatherScatter
    | Movement
    | Sort
    | Recurrent
    | Opaque
    | Transfer
    | HostWork
)

KERNEL_CLASSES: dict[type, str] = {
    Gemm: "gemm",
    Conv: "conv",
    Elementwise: "elementwise",
    Softmax: "softmax",
    Normalization: "normalization",
    Reduction: "reduction",
    Pooling: "pooling",
    Attention: "attention",
    GatherScatter: "gather_scatter",
    Movement: "movement",
    Sort: "sort",
    Recurrent: "recurrent",
    Opaque: "opaque",
    Transfer: "transfer",
    HostWork: "host",
}
"""The report's name of each kernel class."""
