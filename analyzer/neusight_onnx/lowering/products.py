"""Other formats of products in work that is lowered already: TF32, and linear layers in 8 and 4 bits, by runtime."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from math import ceil
from typing import TypeGuard

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Pooling,
    Recurrent,
    TensorSpec,
)

_FP32 = DataType.FLOAT32

_QUANTIZED = (DataType.INT8,)
"""Formats whose measured products got activations that were converted already: a kernel before them does it. In the
predictors of 8- and 4-bit floats that kernel is in the product's own time."""

EXPERTS = "MoE"
"""The operator of com.microsoft whose weights, in three dimensions, are those of experts."""

GROUP = 128
"""Weights in 4 bits that share a scale and a zero point: what GPTQ and AWQ take unless told otherwise (``group_size``
of AutoGPTQ, ``q_group_size`` of AutoAWQ)."""

_GROUP_BITS = 16 + 4
"""A scale in float16, a zero point in 4 bits."""


def group_bytes(weight_count: int, weights: DataType) -> int:
    """Bytes of the scales and zero points of so many weights; 0 but for those in 4-bit integers."""
    return ceil(weight_count / GROUP) * _GROUP_BITS // 8 if weights is DataType.INT4 else 0


_RECURRENT = frozenset({"RNN", "GRU", "LSTM"})


def with_products(
    works: Sequence[NodeWork],
    products: DataType | None,
    weights: DataType | None,
    *,
    how: str = "converted",
    by_cudnn: bool = False,
    kept: Container[str] = (),
    packs_experts: bool = False,
) -> tuple[NodeWork, ...]:
    """``works`` with other formats of products.

    ``weights`` None: every product of float32 multiplies ``products`` (TF32). Else the products of linear layers alone,
    whose weights are constants of the model: they store them as ``weights`` and multiply ``products`` (None: the
    16-bit activations as they are); what they read and write otherwise stays in 16 bits.
    ``by_cudnn``: not every product of float32 multiplies TF32, but those that PyTorch has cuDNN compute.
    ``how``: a runtime's ``narrow_products``. "calibrated": scales are known beforehand, so that activations are
    quantised by the layer that makes them, and convolutions and pooling run in int8 from one to the next.
    "widened": nothing multiplies ``products``: 8- and 4-bit floats become plain ones inside the product. 8-bit integers
    don't come here but by pairs of the file (:mod:`neusight_onnx.fusion.quantization.static`).
    ``kept``: nodes that stay as they are. A mixture of experts does, too, but for ``packs_experts``: its weights, where
    ``products`` is None.
    """
    known: dict[Kernel, tuple[Kernel, ...]] = {}

    def changed(kernel: Kernel) -> tuple[Kernel, ...]:
        found = known.get(kernel)
        if found is None:
            if weights is None:
                found = (in_tf32(kernel),)
            elif how == "calibrated" and products is not None:
                found = (_calibrated(kernel, products),)
            elif how == "widened" and products is not None:
                found = (replace(kernel, b_dtype=weights),) if _is_linear(kernel) else (kernel,)
            else:
                found = _linear(kernel, products, weights)
            known[kernel] = found
        return found

    # layers that repeat share their kernels, which are slow to compare
    instead: dict[int, tuple[Kernel, ...]] = {}
    found = []
    for work in works:
        if not work.kernels or work.node in kept or (by_cudnn and not _is_cudnns(work)):
            found.append(work)
            continue
        if weights is not None and work.op_type == EXPERTS:
            stores = packs_experts and products is None
            kernels = _packed(work.kernels, weights) if stores else work.kernels
        else:
            kernels = instead.get(id(work.kernels), ())
            if not kernels:
                kernels = tuple([new for kernel in work.kernels for new in changed(kernel)])
                kernels = instead[id(work.kernels)] = work.kernels if kernels == work.kernels else kernels
        found.append(work if kernels is work.kernels else work.with_kernels(kernels))
    return tuple(found)


def _is_cudnns(work: NodeWork) -> bool:
    """Whether PyTorch hands an operator's products to cuDNN: all of a recurrent layer's, that of its inputs, too
    (``ATen/native/cudnn/RNN.cpp``), and convolutions. torchvision's deformable one gathers columns for cuBLAS."""
    if work.op_type in _RECURRENT:
        return True
    return work.op_type != "DeformConv" and any(isinstance(kernel, Conv) for kernel in work.kernels)


def in_tf32(kernel: Kernel) -> Kernel:
    """A kernel with TF32's products; a depthwise convolution has none, so that it stays on the FP32 lanes."""
    multiplies = isinstance(kernel, Gemm | Conv | Attention | Recurrent) and kernel.dtype is _FP32
    if isinstance(kernel, Conv) and kernel.is_depthwise:
        return kernel
    return replace(kernel, dtype=DataType.TFLOAT32) if multiplies else kernel  # type: ignore[arg-type]  # one of four


def _is_linear(kernel: Kernel) -> TypeGuard[Gemm]:
    """Whether a kernel is a linear layer's product that multiplies what is stored in 16 bits."""
    if not isinstance(kernel, Gemm) or not kernel.b_is_weight or kernel.batch != 1:
        return False
    return kernel.dtype.bits == 16 and kernel.a_dtype is None and kernel.b_dtype is None


def _packed(kernels: Sequence[Kernel], weights: DataType) -> tuple[Kernel, ...]:
    """A mixture of experts with weights in few bits: QMoE's, which are unpacked inside the product, and whose gates are
    stored beside what they multiply, so that no run copies them there."""
    return tuple(
        [
            _stored_in(kernel, weights)
            if isinstance(kernel, Gemm) and kernel.dtype.bits == 16 and kernel.b_dtype is None
            else kernel
            for kernel in kernels
            if not isinstance(kernel, Movement)
        ]
    )


def _stored_in(kernel: Gemm, weights: DataType) -> Gemm:
    matrices = kernel.batch if kernel.b_batch is None else kernel.b_batch
    beside = group_bytes(matrices * kernel.k * kernel.n, weights)
    return replace(kernel, b_dtype=weights, extra_read_bytes=kernel.extra_read_bytes + beside)


def _linear(kernel: Kernel, products: DataType | None, weights: DataType) -> tuple[Kernel, ...]:
    if not _is_linear(kernel):
        return (kernel,)
    stored = kernel.dtype
    output = kernel.output_dtype or stored
    if products is None:
        return (_stored_in(kernel, weights),)
    if products not in _QUANTIZED:
        return (replace(kernel, dtype=products, a_dtype=stored, output_dtype=output),)
    shape = (kernel.m, kernel.k)
    before = Elementwise(
        operations=("quantize",),
        inputs=(TensorSpec(dtype=stored, shape=shape),),
        output=TensorSpec(dtype=products, shape=shape),
    )
    return (before, replace(kernel, dtype=products, output_dtype=output))


def _calibrated(kernel: Kernel, products: DataType) -> Kernel:
    if isinstance(kernel, Conv) and kernel.dtype.bits == 16 and products is DataType.INT8:
        return replace(kernel, dtype=products)
    if isinstance(kernel, Pooling) and products is DataType.INT8:
        return _pooled(kernel, products)
    if not isinstance(kernel, Gemm) or not kernel.b_is_weight or kernel.batch != 1 or kernel.dtype.bits != 16:
        return kernel
    return replace(kernel, dtype=products, output_dtype=kernel.output_dtype or kernel.dtype)


def _pooled(kernel: Pooling, products: DataType) -> Pooling:
    """Pooling of a tensor that lies in ``products`` already, where TensorRT has kernels for it."""
    operation = kernel.operation.removeprefix("global_")
    if operation not in ("max", "average") or kernel.input.dtype.bits != 16 or kernel.extra_outputs:
        return kernel
    return replace(
        kernel,
        input=replace(kernel.input, dtype=products),
        output=replace(kernel.output, dtype=products),
    )
