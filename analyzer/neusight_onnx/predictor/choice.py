"""Which predictor stands for a kernel on a GPU: its own, one for kernels like it, or none."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernel_formats import MATRIX_FORMATS, OF_DATA, OF_WEIGHT, predictor_label
from neusight_onnx.kernels import KERNEL_CLASSES, Attention, Conv, Gemm, Kernel, Normalization, Softmax
from neusight_onnx.predictor.manifest import Predictor, Predictors
from neusight_onnx.similarity import VECTOR_NAMES

MATRIX = "matrix"
"""Label of a predictor for all formats of matrix units: the law knows them by their peaks, some were measured."""
ON_AMD = "+amd"
"""Ends the label of a predictor for AMD's matrix cores, or its convolutions in FP32: its libraries are others."""
_GCN_LANES = 64
"""Lanes of a wave on GCN and CDNA; of RDNA's there are 32."""
_SIXTEEN_BITS = frozenset({DataType.FLOAT16, DataType.BFLOAT16})
_VECTOR_CLASSES = frozenset({"elementwise", "normalization", "softmax"})


def predictor_for(kernel: Kernel, gpu: GpuSpec, predictors: Predictors) -> Predictor | None:
    """The predictor of a kernel on a GPU, None where only the analytic law stands.

    It is the same for all kernels of one class, label (``predictor_label``) and dtype, generated or not, empty or not,
    on matrix units or not (``on_vector_lanes``, ``Gemm.on_lanes``), and of attention by the same kernel
    (``attention_kernel``).
    """
    if multiplies_nothing(kernel):
        return None
    kernel_class, label = KERNEL_CLASSES[type(kernel)], predictor_label(kernel)
    if isinstance(kernel, Attention) and (used := attention_kernel(kernel, gpu)):
        found = predictors.get((kernel_class, DataType.BFLOAT16.label))
        return None if found is None else replace(_law_alone(found), dtype=used)
    if isinstance(kernel, Gemm | Conv | Attention) and kernel.dtype in MATRIX_FORMATS:
        return _for_matrix_units(kernel, kernel_class, label, gpu, predictors)
    if isinstance(kernel, Conv) and kernel.dtype is DataType.FLOAT32 and _is_gcn_or_cdna(gpu):
        direction = OF_WEIGHT if kernel.direction == "weight" else ""
        own = predictors.get((kernel_class, f"{DataType.FLOAT32.label}{direction}{ON_AMD}"))
        if own is not None:
            return own
    if isinstance(kernel, Conv) and kernel.direction != "forward":
        return _fp32_gradient(kernel, gpu, predictors) if kernel.dtype is DataType.FLOAT32 else None
    found = predictors.get((kernel_class, label)) or _stand_in(kernel_class, label, predictors)
    return _law_alone(found) if found is not None and is_streamed(kernel) else found


def multiplies_nothing(kernel: Kernel) -> bool:
    """Whether a size of a product, convolution or attention is 0: at most zeros are written, by no measured kernel."""
    return isinstance(kernel, Gemm | Conv | Attention) and kernel.macs == 0


def attention_kernel(kernel: Kernel, gpu: GpuSpec) -> str:
    """Which kernel its library has for attention on a GPU, "" where it is as those that were measured."""
    if not isinstance(kernel, Attention) or not kernel.library:
        return ""
    from neusight_onnx.laws.attention.kernel_choice import kernel_of

    return kernel_of(kernel, gpu)


def on_vector_lanes(kernel: Kernel) -> bool:
    """Whether a product in 16 bits has kernels with no matrix unit in them on NVIDIA's GPUs: few rows by weights of
    fewer bits."""
    if not isinstance(kernel, Gemm) or kernel.b_dtype is None or kernel.b_dtype.bits >= kernel.dtype.bits:
        return False
    from neusight_onnx.laws.tensor_gemm.columns import batch_and_rows
    from neusight_onnx.laws.unpacked_weights import LANE_ROWS

    return kernel.dtype in _SIXTEEN_BITS and batch_and_rows(kernel)[1] < LANE_ROWS


def is_streamed(kernel: Kernel) -> bool:
    """Whether a compiler wrote a kernel over rows: the trees have seen PyTorch's, which are other kernels."""
    return isinstance(kernel, Softmax | Normalization) and kernel.is_streamed


def _for_matrix_units(
    kernel: Gemm | Conv | Attention, kernel_class: str, label: str, gpu: GpuSpec, predictors: Predictors
) -> Predictor | None:
    """That of the format, else the one that formats share; TF32's products take the law of 16-bit ones."""
    from neusight_onnx.laws.catalog import law_of
    from neusight_onnx.laws.matrix_units import serves

    if isinstance(kernel, Gemm) and kernel.on_lanes and serves(gpu, kernel.dtype):
        found = predictors.get((kernel_class, DataType.FLOAT32.label))
        return None if found is None else replace(found, narrow_operands=True)
    if not serves(gpu, kernel.dtype):  # it runs other kernels than were measured
        return _on_fp32_lanes(kernel, kernel_class, gpu, predictors)
    direction = OF_WEIGHT if label.endswith(OF_WEIGHT) else ""
    vendor = ON_AMD if gpu.vendor == "AMD" else ""
    shared = predictors.get((kernel_class, f"{MATRIX}{direction}{vendor}"))
    if shared is not None:
        return shared if label.removesuffix(OF_WEIGHT) in shared.formats else _law_alone(shared)
    found = predictors.get((kernel_class, label))
    if found is None and label == DataType.TFLOAT32.label and law_of(kernel_class, label) is not None:
        found = predictors.get((kernel_class, DataType.BFLOAT16.label))
        return None if found is None else _law_alone(found)
    if found is None and isinstance(kernel, Gemm) and "+" in label and kernel.b_dtype is not None:
        # weights in narrow floats are unpacked before they are multiplied, as integers of as many bits are
        found = predictors.get((kernel_class, f"{DataType.BFLOAT16.label}+int{kernel.b_dtype.bits}"))
        return None if found is None else _law_alone(found)
    return _without_matrix_units(found) if found is not None and on_vector_lanes(kernel) else found


def _on_fp32_lanes(
    kernel: Gemm | Conv | Attention, kernel_class: str, gpu: GpuSpec, predictors: Predictors
) -> Predictor | None:
    """FP32's predictor for float16's products on a GPU that has nothing faster for them than its FP32 lanes.

    Nor do GCN's packed halves make its convolutions much faster: of the same ones that an MI50 ran in both, float16's
    take .77 (1x1) and .87 (others) of float32's time forward, .80 and .84 for the input's gradient (medians of
    MIOpen's find database), which is about what operands of half as many bytes save. Gradients of weights stay with
    the law of all GPUs: AMD's, fitted without that GPU, is 75 % off there. RDNA's convolutions in float16, of which
    none was measured, are taken the same way from those in float32: the analytic law, which knows no algorithm but the
    direct one, had them take twice as long as in float32.
    """
    from neusight_onnx.laws.analytic.pipes import pipe_flops_per_s

    if kernel.dtype is not DataType.FLOAT16 or isinstance(kernel, Attention):  # bfloat16 came with its units
        return None
    packed = pipe_flops_per_s(gpu, kernel.dtype)[0] > gpu.peak_flops_per_s["fp32"]
    if packed and not (isinstance(kernel, Conv) and gpu.vendor == "AMD"):
        return None
    found: Predictor | None
    own = predictors.get(("conv", f"{DataType.FLOAT32.label}{ON_AMD}"))
    if isinstance(kernel, Conv) and kernel.direction != "weight" and _is_gcn(gpu) and own is not None:
        found = _wider(own if kernel.direction == "forward" else _law_alone(own))
    elif isinstance(kernel, Conv) and kernel.direction != "forward":
        found = _fp32_gradient(kernel, gpu, predictors)
    else:
        found = predictors.get((kernel_class, DataType.FLOAT32.label))
        found = _wider(found) if found is not None and packed else found
    return None if found is None else replace(found, narrow_operands=True)


def _wider(predictor: Predictor) -> Predictor:
    """A predictor for kernels that differ from those that were measured twice, in GPU or format: its interval is that
    of two such steps."""
    unseen = sqrt(2.0) * predictor.amd_interval.unseen
    widths = replace(predictor.amd_interval, seen=unseen, unseen=unseen)
    return replace(predictor, interval=widths, amd_interval=widths)


def _fp32_gradient(kernel: Conv, gpu: GpuSpec, predictors: Predictors) -> Predictor | None:
    """That of a convolution's gradient on FP32's lanes: on NVIDIA its own, else the law of forward ones alone."""
    label = DataType.FLOAT32.label
    own = predictors.get(("conv", label + (OF_WEIGHT if kernel.direction == "weight" else OF_DATA)))
    if own is not None and gpu.vendor == "NVIDIA":
        return own
    found = predictors.get(("conv", label))
    return None if found is None else _law_alone(found)


def _is_gcn_or_cdna(gpu: GpuSpec) -> bool:
    """Whether MIOpen's FP32 kernels that were measured are an AMD GPU's: RDNA's waves are of 32, its kernels others."""
    return gpu.vendor == "AMD" and gpu.warp_size == _GCN_LANES


def _is_gcn(gpu: GpuSpec) -> bool:
    """Whether an AMD GPU's fastest 16-bit instructions are packed ones of vector lanes (GCN)."""
    return _is_gcn_or_cdna(gpu) and gpu.fp32_matrix_flops_per_s is None


def _without_matrix_units(predictor: Predictor) -> Predictor:
    """A predictor for kernels that have no matrix unit in them: how fast these are doesn't make GPUs unlike."""
    gpu_vectors, law_vectors = (
        tuple(vector[: len(VECTOR_NAMES)] for vector in vectors)
        for vectors in (predictor.gpu_vectors, predictor.law_vectors)
    )
    return replace(predictor, gpu_vectors=gpu_vectors, law_vectors=law_vectors)


def _law_alone(predictor: Predictor) -> Predictor:
    """A predictor for a format, or gradients, that no kernel was fitted in: the law with its constants.

    Without the trees, which have seen other kernels, and with the interval of a GPU that was not measured. What the law
    gets wrong of a format it gets wrong of all its kernels, which left-out GPUs don't show: they err in common as much
    as kernels do that have an analytic estimate.
    """
    from neusight_onnx.laws.analytic.estimate import LEVEL_SHARE

    interval, amd_interval = (
        replace(widths, unseen_level_share=max(widths.unseen_level_share, LEVEL_SHARE))
        for widths in (predictor.interval, predictor.amd_interval)
    )
    return replace(
        predictor, gpu_vectors=(), law_vectors=(), unseen_weight=0.0, interval=interval, amd_interval=amd_interval
    )


def _stand_in(kernel_class: str, label: str, shipped: Predictors) -> Predictor | None:
    """FP32's law for vector kernels in 16 and 8 bits that none of their own was fitted for."""
    from neusight_onnx.laws.catalog import NARROW_LABELS

    if label not in NARROW_LABELS or kernel_class not in _VECTOR_CLASSES:
        return None
    found = shipped.get((kernel_class, DataType.FLOAT32.label))
    return None if found is None else replace(_law_alone(found), dtype=label)
