"""Number formats a user can ask for, what each means for a model, and which GPUs can't run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import NotSupportedError, OptionError, shown
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.keys import PEAK_KEYS
from neusight_onnx.gpu.sense import formats_of

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What a model is computed in.

    ``plain``: the type of what the file holds as float16, bfloat16 or float32; None leaves each as it is stored.
    ``mixed``: not all of it changes, but what the runtime's own conversion changes (autocast, a block list, a builder's
    flag). ``products``: what products multiply instead (``by_cudnn``: of those that cuDNN computes alone, convolutions
    and recurrent layers); ``weights``: what linear layers store their weights as.
    """

    name: str
    plain: DataType | None = None
    mixed: bool = False
    products: DataType | None = None
    by_cudnn: bool = False
    weights: DataType | None = None


_FP32, _FP16, _BF16 = DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16

FORMATS: Mapping[str, Precision] = {
    found.name: found
    for found in (
        Precision(name="fp32", plain=_FP32),
        Precision(name="tf32", plain=_FP32, products=DataType.TFLOAT32),
        Precision(name="fp16", plain=_FP16, mixed=True),
        Precision(name="bf16", plain=_BF16, mixed=True),
        Precision(name="fp16-model", plain=_FP16),
        Precision(name="bf16-model", plain=_BF16),
        # what isn't a linear layer runs in 16 bits: in float16, which every GPU with units for 8-bit integers has;
        # 8- and 4-bit floats came after bfloat16, and PyTorch's frameworks hand them bfloat16
        Precision(name="int8", plain=_FP16, products=DataType.INT8, weights=DataType.INT8),
        Precision(name="int4w", plain=_FP16, weights=DataType.INT4),
        Precision(name="fp8", plain=_BF16, products=DataType.FLOAT8E4M3FN, weights=DataType.FLOAT8E4M3FN),
        Precision(name="fp4", plain=_BF16, products=DataType.FLOAT4E2M1, weights=DataType.FLOAT4E2M1),
    )
}

PRECISIONS = (AUTO, *FORMATS)

_NAMES: Mapping[DataType, str] = {_FP32: "fp32", _FP16: "fp16", _BF16: "bf16", DataType.FLOAT64: "fp64"}
"""What a file's own floats are called; fp64 can't be asked for."""


def resolve(precision: str, stored: DataType) -> Precision:
    """What ``precision`` means for a model whose plain floats are stored as ``stored``; NotSupportedError if nothing.

    A file that stores 16 bits was converted as a whole: so is it to another 16-bit type.
    """
    if not isinstance(precision, str):
        raise OptionError(f"precision is {shown(repr(precision))}; give a name, such as 'auto' or 'fp16'")
    if precision == AUTO:
        return Precision(name=_NAMES.get(stored, stored.label))
    found = FORMATS.get(precision)
    if found is None:
        raise NotSupportedError(f"unknown precision '{precision[:40]}'; choose from {', '.join(PRECISIONS)}")
    if found.mixed and stored.bits <= 16:
        return Precision(name=found.name, plain=found.plain)
    return found


def as_quantised(precision: Precision, stored: DataType, narrow_products: str) -> Precision:
    """``precision`` of a model stored in ``stored`` by whoever quantises it for a runtime of these ``narrow_products``.

    "widened": 8-bit integers come from a file of QuantizeLinear and DequantizeLinear alone, whose floats stay as they
    are stored. "calibrated": what 8- and 4-bit floats leave is float16 by NVIDIA's Model Optimizer, bfloat16 only where
    the file stores it (0.47: ``high_precision_dtype`` of modelopt.onnx.quantization is "fp16"; nvfp4_exporter casts to
    "Half" but beside weights of bfloat16; torch_onnx refuses to convert a quantised graph between the two).
    """
    if is_of_pairs(precision, narrow_products):
        return replace(precision, plain=None)
    if narrow_products == "calibrated" and precision.plain is _BF16 and stored is not _BF16:
        return replace(precision, plain=_FP16)
    return precision


def is_of_pairs(precision: Precision, narrow_products: str) -> bool:
    """Whether QuantizeLinear and DequantizeLinear nodes of a file ask for a precision, in a runtime of these
    ``narrow_products``."""
    return narrow_products == "widened" and precision.products is DataType.INT8 and precision.weights is not None


UNITS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "tf32": ("TF32", ("fp16",), "a GPU since Ampere (NVIDIA) or of CDNA 3 (AMD)"),
    "bf16": ("bfloat16", ("fp16",), "a GPU since Ampere (NVIDIA) or CDNA (AMD)"),
    "int8": ("INT8", ("fp8", "fp16"), "a GPU since Turing (NVIDIA) or CDNA (AMD)"),
    "fp8": ("FP8", ("int8", "fp16"), "a GPU since Ada or Hopper (NVIDIA) or CDNA 3 (AMD)"),
    "fp4": ("FP4", ("fp8", "int8", "fp16"), "a GPU since Blackwell (NVIDIA) or CDNA 4 (AMD)"),
}
"""Per format whose peak a GPU must state: what its units are called, what would do on a GPU that states the peak of
that, nearest first (no slower than float16), and which GPUs have it. float16 runs everywhere: on vector lanes where
there is nothing else."""


def keeps_fp32(precision: Precision) -> bool:
    """Whether products of float32 are to be IEEE FP32 whatever the runtime does by itself: what ``fp32`` asks for."""
    return precision.plain is _FP32 and precision.products is None


TF32_BY_CUDNN = "tf32-cudnn"
"""What float32 is called whose convolutions and recurrent layers alone multiply TF32. It can't be asked for."""


def in_tf32(precision: Precision, *, by_cudnn: bool) -> Precision:
    """What a model is computed in whose runtime multiplies float32 in TF32 unasked, ``by_cudnn`` in cuDNN alone."""
    if precision.name != "fp32":
        return precision
    name = TF32_BY_CUDNN if by_cudnn else "tf32"
    return replace(precision, name=name, products=DataType.TFLOAT32, by_cudnn=by_cudnn)


def takes_tf32(gpu: GpuSpec) -> bool:
    """Whether libraries of NVIDIA find units for TF32 on a GPU."""
    return gpu.compute_capability is not None and "tf32" in gpu.peak_flops_per_s


def refusal(precision: Precision, gpu: GpuSpec) -> str | None:
    """Why a GPU can't run a precision, and what would do; None if it can."""
    name = precision.name.removesuffix("-model")
    peaks = gpu.peak_flops_per_s
    if name not in UNITS or name in peaks:
        return None
    units, others, since = UNITS[name]
    least = peaks.get("fp16", 0.0)  # Volta's 8-bit integers are slower than its tensor cores in 16 bits
    can = " or ".join([*(other for other in others if other in peaks and peaks[other] >= least), "fp32"][:2])
    if leaves_out(gpu, name):
        lacks = f"no rate of its {units} units is stated"
        would_do = f"give {_KEYS[name]} in a GPU file, or use {can}"
    else:
        lacks, would_do = f"the GPU has no {units} units", f"use {can} on it, or take {since}"
    return f"precision {precision.name} on {gpu.name}: {lacks}; {would_do}"


_KEYS: Mapping[str, str] = {pipe: key for key, pipe in PEAK_KEYS.items()}


def leaves_out(gpu: GpuSpec, name: str) -> bool:
    """Whether a GPU's generation has units for a format ("tf32", "int8", ...) whose rate its file doesn't state."""
    return name not in gpu.peak_flops_per_s and name in formats_of(gpu)


def said_of_missing_tf32(gpu: GpuSpec, runtime: str) -> str | None:
    """That float32 isn't multiplied in TF32 on a GPU of NVIDIA's since Ampere, whose file doesn't state that rate."""
    if gpu.compute_capability is None or not leaves_out(gpu, "tf32"):
        return None
    return (
        f"float32 is multiplied in IEEE FP32, as the GPU's file states no {_KEYS['tf32']}: its generation has units "
        f"for TF32, which {runtime} takes unasked"
    )
