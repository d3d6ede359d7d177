"""Which of the measured rows predictors are trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from neusight_onnx.kernel_formats import predictor_label
from neusight_onnx.kernels import Gemm, Kernel
from neusight_onnx.learning.datasets.attention import ATTENTION, TIMED_ALONE
from neusight_onnx.learning.datasets.neusight import NEUSIGHT_KERNELS
from neusight_onnx.learning.datasets.own import own_files
from neusight_onnx.learning.datasets.parts import Measurements, Part, one_after_another, without_cache_write
from neusight_onnx.learning.datasets.products import TENSOR_CORE_GEMM
from neusight_onnx.learning.datasets.registry import has_files, measured_folder, read_parts

TRAINED_VARIANTS: Mapping[str, str] = {
    "bfloat16": "sglang",
    "float8e4m3fn": "trtllm",
    "int8": "trtllm",
    "bfloat16+int8": "trtllm",
    "bfloat16+int4": "trtllm",
    "float4e2m1": "sglang",
}
"""The framework whose rows a predictor is trained on. SGLang's 16-bit products are PyTorch's linear, as vLLM's are,
on operands that switch as real ones do. TensorRT-LLM's FP8 products are cuBLASLt's, as PyTorch's (``_scaled_mm``) are
and an engine's nearest; what converts their operands was measured apart, so that the law can tell the product from it.
SGLang's and vLLM's are CUTLASS's with choices of their own. SGLang's go over all rows before the next 128 columns: an
L40S whose L2 doesn't hold the rows reads them from DRAM for each (16,384 of 8,192 for 8,192 columns, 8.6 GB, in 12.5
ms, of 16,384 for 1,024 columns, 2.1 GB, in 3.1). vLLM's weights switch little. In NVFP4 SGLang's and vLLM's rows agree
within a tenth; TensorRT-LLM's take 1.5 times as long up to 512 rows, longer than its own 16-bit products, and 1.25
times beyond. INT8 and narrow weights are TensorRT-LLM's alone on most GPUs."""

TRAINED_ATTENTION: Mapping[str, str] = {
    "bfloat16": "vllm",
    "bfloat16+float8e4m3fn": "vllm",
    "float8e4m3fn": "trtllm",
}
"""The framework whose rows a predictor of attention is trained on, by the predictor's label.

vLLM runs what other programs run, too: FlashAttention 2 on A100 and L40S, 3 on H100, TensorRT-LLM's kernels on B200
(FlashAttention 4 in encoders), FlashInfer where the cache is in FP8 on L40S. TensorRT-LLM's own rows hold kernels
before it; they are the only ones in FP8 throughout that three GPUs have."""


def read_attention(data_folder: Path, label: str, *, sampled: int | None = None) -> Measurements | None:
    """What a predictor of attention is trained on, all its files together; None if there are no such rows.

    Kernels that a framework falls back to (Triton's), and rows with a fault, are left out. ``sampled``: at most so many
    rows of each GPU and kernel. Raises DataError as ``read_parts`` does.
    """
    parts = [part for part in _plain_attention(data_folder, label) if _framework(part) == TRAINED_ATTENTION[label]]
    found = [part.load(None if sampled is None else part.sample(sampled)) for part in parts if part.load is not None]
    return replace(one_after_another(found), dtype=label) if found else None


def _framework(part: Part) -> str:
    return part.variant.split(", ")[0]


def _plain_attention(data_folder: Path, label: str) -> Iterator[Part]:
    """The parts that a predictor of attention could be trained on."""
    if not has_files(data_folder, ATTENTION):
        return
    for part in read_parts(data_folder, ATTENTION):
        _, source, *rest = part.variant.split(", ")
        of_label = part.dtype == label.split("+")[0] and ("fp8 cache" in rest) == ("+" in label)
        if part.load is not None and of_label and "triton" not in source and set(rest) <= {"fp8 cache"}:
            yield part


ENOUGH_SHAPES = 20
"""Shapes that two implementations share from which on they tell how far the two are apart."""


CONVERTED_US = 50.0
"""Rows from which on products whose activations a kernel converts before tell how far two implementations are apart:
those kernels take 2-3 us in SGLang and vLLM and 9 in TensorRT-LLM, so that shorter rows show them."""


def implementation_levels(data_folder: Path, measurements: Measurements) -> dict[str, list[float]]:
    """How far other frameworks' kernels are from those that a predictor of attention is trained on, by GPU.

    One level a kernel and operation: the median of log(other / trained) over at least ``ENOUGH_SHAPES`` shapes that
    both measured, of rows that count. Only frameworks whose times hold the attention alone show its level.
    """
    others = (
        part.load()
        for part in _plain_attention(data_folder, measurements.dtype)
        if part.load is not None
        and _framework(part) != TRAINED_ATTENTION[measurements.dtype]
        and TIMED_ALONE.get(_framework(part), ()) is None
    )
    return _levels(measurements, others)


def product_levels(parts: Sequence[Part], measurements: Measurements) -> dict[str, list[float]]:
    """The same of a predictor of products: parts of its number format that other frameworks measured.

    Those with a scale given beforehand are apart, as are those on vector lanes: they show no level.
    """
    others = (
        part.load()
        for part in parts
        if part.load is not None
        and part.dtype == measurements.dtype
        and part.variant != TRAINED_VARIANTS[part.dtype]
        and ", " not in part.variant
    )
    return _levels(measurements, others)


def _compared(kernel: Kernel) -> Kernel:
    """The kernel as frameworks share it: whatever is written beside attention, whatever a product's operands hold,
    however they are converted and however many copies of them there are."""
    kernel = without_cache_write(kernel)
    return replace(kernel, activity=1.0, tensor_scale=False, rotated=False) if isinstance(kernel, Gemm) else kernel


def _levels(measurements: Measurements, others: Iterable[Measurements]) -> dict[str, list[float]]:
    """Medians of log(other / trained) by GPU, one for each of ``others`` that shares enough shapes."""
    trained: dict[tuple[str, Kernel], float] = {}
    own = zip(measurements.kernels, measurements.gpu.tolist(), measurements.measured_us.tolist(), strict=True)
    for kernel, gpu, time in own:
        trained.setdefault((gpu, _compared(kernel)), time)
    levels: dict[str, list[float]] = {}
    for other in others:
        ratios: dict[str, list[float]] = {}
        for kernel, gpu, time in zip(other.kernels, other.gpu.tolist(), other.measured_us.tolist(), strict=True):
            same = trained.get((gpu, _compared(kernel)), 0.0)
            converts = isinstance(kernel, Gemm) and kernel.a_dtype is not None
            if min(same, time) >= (CONVERTED_US if converts else measurements.scored_us):
                ratios.setdefault(gpu, []).append(float(np.log(time / same)))
        for gpu, found in ratios.items():
            if len(found) >= ENOUGH_SHAPES:
                levels.setdefault(gpu, []).append(float(np.median(found)))
    return levels


def with_own(measurements: Measurements, data_folder: Path) -> tuple[Measurements, list[str]]:
    """Measurements with the own ones that have the same predictor behind them, and the files that these are from.

    Raises DataError if a file of own measurements can't be read.
    """
    folder = measured_folder(data_folder)
    label = predictor_label(measurements.kernels[0])
    found, files = [measurements], []
    for name in own_files(folder):
        parts = [part for part in read_parts(folder, (name,)) if part.kernel_class == measurements.kernel_class]
        loaded = [part.load() for part in parts if part.load is not None]
        own = [rows for rows in loaded if predictor_label(rows.kernels[0]) == label]
        found += own
        files += [name] if own else []
    return (one_after_another(found) if files else measurements), files


TRAINING_FILES = (NEUSIGHT_KERNELS,)
"""What FP32 predictors are fitted on."""

MATRIX_UNIT_FILES = (TENSOR_CORE_GEMM,)
"""What predictors of products on matrix units are fitted on."""
