"""The laws by kernel class, and how one is applied to kernels on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernel_formats import OF_DATA, OF_WEIGHT
from neusight_onnx.kernels import Kernel
from neusight_onnx.laws.attention.law import ATTENTION, BY_KERNEL
from neusight_onnx.laws.base import Columns, Constants, Law, LawResult
from neusight_onnx.laws.conv.law import CONV
from neusight_onnx.laws.conv_gradient import CONV_GRADIENT
from neusight_onnx.laws.elementwise import ELEMENTWISE
from neusight_onnx.laws.gemm.law import GEMM
from neusight_onnx.laws.narrow import NARROW_LAWS
from neusight_onnx.laws.normalization import NORMALIZATION
from neusight_onnx.laws.softmax import SOFTMAX
from neusight_onnx.laws.tensor_conv.law import (
    CONV_FP32_AMD,
    CONV_FP32_WEIGHT_AMD,
    TENSOR_CONV,
    TENSOR_CONV_AMD,
    TENSOR_CONV_WEIGHT_AMD,
)
from neusight_onnx.laws.tensor_gemm.law import TENSOR_GEMM, TENSOR_GEMM_AMD, UNPACKED_GEMM

LAWS: Mapping[str, Law] = {law.kernel_class: law for law in (GEMM, CONV, ELEMENTWISE, SOFTMAX, NORMALIZATION)}
"""The laws of FP32 kernels."""

NARROW_LABELS = frozenset(
    {"float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "int8", "uint8"}
)
"""Formats of 16 and 8 bits."""

ATTENTION_FORMATS = ("bfloat16", "bfloat16+float8e4m3fn", "float8e4m3fn")
"""Number formats of fused attention that have a law; others keep the analytic estimate."""

MATRIX_UNIT_LAWS: Mapping[str, Law] = {law.kernel_class: law for law in (TENSOR_GEMM, TENSOR_CONV)}
"""The laws of kernels on matrix units."""

MATRIX_CORE_LAWS: Mapping[str, Law] = {law.kernel_class: law for law in (TENSOR_GEMM_AMD, TENSOR_CONV_AMD)}
"""The same on AMD's matrix cores."""


def law_of(kernel_class: str, label: str) -> Law | None:
    """The law of a class in a number format (``kernel_formats.predictor_label``), None where there is none."""
    if kernel_class == "gemm" and "+int" in label:
        return UNPACKED_GEMM
    if kernel_class == "conv" and label.startswith("float32") and label.endswith("+amd"):
        return CONV_FP32_WEIGHT_AMD if OF_WEIGHT in label else CONV_FP32_AMD
    if kernel_class == "conv" and label.endswith(f"{OF_WEIGHT}+amd"):
        return TENSOR_CONV_WEIGHT_AMD
    if kernel_class == "conv" and label in (f"float32{OF_DATA}", f"float32{OF_WEIGHT}"):
        return CONV_GRADIENT
    if label != "float32" and kernel_class in MATRIX_UNIT_LAWS:
        return (MATRIX_CORE_LAWS if label.endswith("+amd") else MATRIX_UNIT_LAWS)[kernel_class]
    if kernel_class == "attention":
        return ATTENTION if label in ATTENTION_FORMATS else BY_KERNEL.get(label)
    if label in NARROW_LABELS:
        return NARROW_LAWS.get(kernel_class, LAWS.get(kernel_class))
    return LAWS.get(kernel_class)


@dataclass(frozen=True, slots=True, kw_only=True)
class LawAnswer:
    """A law's result for kernels, and the residual model's features of them, (kernels, features) float32."""

    result: LawResult
    features: NDArray[np.float32]


def apply_law(
    law: Law, kernels: Sequence[Kernel], gpu: GpuSpec, constants: Constants, columns: Columns | None = None
) -> LawAnswer:
    """Kernels -> columns -> result and features; discrete choices are made once. ``columns``: those of the kernels,
    which are the same on each GPU, from one who asks for several."""
    if columns is None:
        columns = law.columns(kernels)
    if law.pin is not None:
        columns = law.pin(columns, gpu, constants)
    result = law.estimate(columns, gpu, constants)
    return LawAnswer(result=result, features=law.features(columns, gpu, constants, result))


def features_elsewhere(
    law: Law,
    kernels: Sequence[Kernel],
    gpu: GpuSpec,
    other: GpuSpec,
    constants: Constants,
    columns: Columns | None = None,
) -> NDArray[np.float32]:
    """Features, on another GPU, of what shows there what the law leaves over of kernels on ``gpu``; ``columns`` as in
    :func:`apply_law`, of ``kernels``."""
    if law.counterpart is not None:
        kernels, columns = [law.counterpart(kernel, gpu, other) for kernel in kernels], None
    return apply_law(law, kernels, other, constants, columns).features
