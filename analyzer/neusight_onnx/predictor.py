"""Predicts kernels: law x exp(weight x residual). The only module that imports onnxruntime, and only when it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import PredictorError, SpecError
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    MATRIX_FORMATS,
    OF_WEIGHT,
    Attention,
    Conv,
    Gemm,
    HostWork,
    Kernel,
    Normalization,
    Softmax,
    Transfer,
    kernel_dtype,
    predictor_label,
)
from neusight_onnx.power import holds_clock
from neusight_onnx.similarity import carried_over, gpu_weight, nearest_of, remoteness, shape_weight

if TYPE_CHECKING:
    from neusight_onnx.laws.base import Column, LawResult

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1
DEPLOYMENTS_NAME = "deployments.json"
DEPLOYMENTS_VERSION = 1
REBUILD = "rebuild with `make predictors`"

EIGHTY_PERCENT = 1.2816
"""Half width of a normal distribution's central 80 % in standard deviations."""

BUSY_SHARE = 0.15
"""Share of a kernel's time that a unit at its peak rate must need to be called its bound: below, what the kernel waits
for is its own latency (too few tiles, dependent steps), whatever the unit. Chosen, not measured: it decides a word in
the report, no time."""

# parts of a law that are one bound to a reader
_BOUND_OF_PART = {"drift": "memory", "shared": "compute", "serial": "latency"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One kernel on one GPU.

    ``latency_us`` is the time on the GPU (no host time), at least the physical ceiling and above zero; the
    interval holds the truth in ``interval`` of cases. ``utilization`` is ideal time / latency, in (0, 1].
    ``bound``: "compute", "memory", "l2", "latency", "launch", "pcie", "cpu". ``method``: "learned" (fitted on
    measurements of this kernel class and dtype) or "analytic" (a stated efficiency). ``predictor``: the name in the
    manifest, or "analytic".
    ``level_share``: share of the interval's variance that kernels of its class in a run have in common, 0..1.
    """

    latency_us: float
    low_us: float
    high_us: float
    tile: Mapping[str, int] = field(default_factory=dict)
    tile_count: int
    wave_count: int
    utilization: float
    bound: str
    method: str
    predictor: str
    level_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Errors on what was left out, in per cent; ``bias`` is the median signed error.

    Rows of at least 50 us, 5 us where the kernel's own time was measured.
    """

    protocol: str
    gpu: str
    operation: str
    row_count: int
    mape_percent: float
    median_ape_percent: float
    bias_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorInfo:
    """A shipped predictor as its manifest describes it; errors are None where too little data gave none."""

    name: str
    kernel_class: str
    dtype: str
    gpus: tuple[str, ...]
    row_count: int
    file: str
    byte_count: int
    leave_one_gpu_out_percent: float | None
    new_shapes_percent: float | None
    held_out: tuple[HeldOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Half widths in log of the intervals of a predictor, and what share of their variance is the GPU's level.

    ``seen``: a new shape on a measured GPU in the session that was measured; ``session`` and ``throttled_session``:
    another session on it, where the card holds its boost clock and where it can't; ``unseen``: another GPU; ``law``:
    a shape outside the training data, for which only the law stands. ``deployment``: what the kernels of a run have in
    common on a measured GPU with another library, program and card; ``beyond``: on a GPU that was not measured.
    """

    seen: float
    unseen: float
    law: float
    seen_level_share: float = 1.0
    unseen_level_share: float = 1.0
    session: float = 0.0
    throttled_session: float = 0.0
    deployment: float = 0.0
    beyond: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """What a manifest entry says, ready for use; ``sha256`` is checked when the trees are loaded.

    ``left_out``: by name of a trained GPU, the constants that a fit without it gave. ``formats``: labels of the number
    formats whose kernels were measured, or run as those that were. ``narrow_operands``: it stands for products of
    fewer bits that run on FP32's lanes. ``law_vectors``: of the GPUs whose measurements carry the law, also through
    constants that it shares with another predictor.
    """

    name: str
    kernel_class: str
    dtype: str
    path: Path
    sha256: str
    constants: Mapping[str, float]
    gpus: tuple[str, ...]
    gpu_vectors: tuple[tuple[float, ...], ...]
    feature_low: NDArray[np.float64]
    feature_high: NDArray[np.float64]
    unseen_weight: float
    interval: Widths
    amd_interval: Widths
    left_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    formats: tuple[str, ...] = ()
    narrow_operands: bool = False
    law_vectors: tuple[tuple[float, ...], ...] = ()


Predictors: TypeAlias = Mapping[tuple[str, str], Predictor]
"""Predictors by kernel class and dtype."""


def predict(kernels: Sequence[Kernel], gpu: GpuSpec, *, predictors: Predictors | None = None) -> tuple[Prediction, ...]:
    """Predicts each kernel, in order; one call of onnxruntime per kernel class, equal kernels predicted once.

    ``predictors``: default the shipped ones. Kernels of a class and dtype without one get the analytic law. Raises
    PredictorError where a predictor is missing or is not the one that its manifest describes.
    """
    turned = [kernel for kernel in kernels if isinstance(kernel, Attention) and kernel.backward]
    if turned:
        rest = [_forward_of(kernel) for kernel in kernels]
        answers_for = dict(zip(rest, predict(rest, gpu, predictors=predictors), strict=True))
        return tuple(_backward(kernel, answers_for[_forward_of(kernel)]) for kernel in kernels)
    groups: dict[tuple[str, str, DataType, bool, bool], dict[Kernel, None]] = {}
    objects = {id(kernel): kernel for kernel in kernels}  # layers that repeat share theirs, which are slow to compare
    for kernel in objects.values():
        # float16 shares bfloat16's predictor, but a GPU may multiply in one of the two only
        label, dtype = predictor_label(kernel), kernel_dtype(kernel)
        key = KERNEL_CLASSES[type(kernel)], label, dtype, _is_streamed(kernel), _multiplies_nothing(kernel)
        groups.setdefault(key, {})[kernel] = None
    shipped = load_predictors(data_folder("predictors")) if predictors is None else predictors
    found: dict[Kernel, Prediction] = {}
    for unique in groups.values():
        members = tuple(unique)
        predictor = predictor_for(members[0], gpu, shipped)
        answers = _analytic(members, gpu) if predictor is None else _learned(members, gpu, predictor)
        found.update(zip(members, answers, strict=True))
    twins = {kernel: twin for kernel in found if (twin := _wide_twin(kernel)) is not None}
    if twins:
        limits = predict(tuple(twins.values()), gpu, predictors=shipped)
        found.update((kernel, _at_most(found[kernel], limit)) for kernel, limit in zip(twins, limits, strict=True))
    permitted = {kernel: replace(kernel, dtype=DataType.FLOAT32) for kernel in found if _may_multiply_fp32(kernel, gpu)}
    if permitted:
        in_fp32 = predict(tuple(permitted.values()), gpu, predictors=shipped)
        found.update((kernel, _quicker(found[kernel], wide)) for kernel, wide in zip(permitted, in_fp32, strict=True))
    answers_of = {key: found[kernel] for key, kernel in objects.items()}
    return tuple([answers_of[id(kernel)] for kernel in kernels])


def _may_multiply_fp32(kernel: Kernel, gpu: GpuSpec) -> TypeGuard[Gemm | Conv]:
    """Whether a product or convolution is in TF32 on units for it, which is a permission: libraries keep FP32's kernels
    in the choice, such as Winograd's and matrix-vector products, and take those that they expect to be quicker."""
    from neusight_onnx.laws.tensor_gemm import serves

    is_tf32 = isinstance(kernel, Gemm | Conv) and kernel.dtype is DataType.TFLOAT32
    return is_tf32 and serves(gpu, DataType.TFLOAT32)


def _quicker(one: Prediction, other: Prediction) -> Prediction:
    return other if other.latency_us < one.latency_us else one


def _wide_twin(kernel: Kernel) -> Kernel | None:
    """PyTorch's layer normalization or softmax of the same rows in FP32, for one in 16 or 8 bits; else None.

    Normalization loads four elements at a time whatever their size, softmax 16 bytes: half the bytes take no longer.
    The law of normalization in 16 bits was fitted to rows of 2,560 columns alone, that of softmax to none, and FP32's
    trees know more.
    """
    from neusight_onnx.laws.catalog import NARROW_LABELS

    match kernel:
        case Normalization(method="layer", access=""):
            is_pytorchs = not kernel.is_streamed
        case Softmax():
            is_pytorchs = not kernel.generated
        case _:
            return None
    if not is_pytorchs or predictor_label(kernel) not in NARROW_LABELS:
        return None
    return replace(
        kernel,
        dtype=DataType.FLOAT32,
        output_dtype=None,
        extra_inputs=tuple([replace(spec, dtype=DataType.FLOAT32) for spec in kernel.extra_inputs]),
        extra_outputs=tuple([replace(spec, dtype=DataType.FLOAT32) for spec in kernel.extra_outputs]),
    )


def _at_most(found: Prediction, limit: Prediction) -> Prediction:
    """``found``, moved with its interval to the latency of ``limit`` where it is longer."""
    share = limit.latency_us / found.latency_us
    if share >= 1.0:
        return found
    return replace(
        found,
        latency_us=limit.latency_us,
        low_us=found.low_us * share,
        high_us=found.high_us * share,
        utilization=min(found.utilization / share, 1.0),
    )


ATTENTION_BACKWARD = 1.16
"""Time of fused attention's multiply-adds backwards over forwards: at best 73 % of A100's peak forwards and 63 %
backwards (FlashAttention-2, Dao 2023)."""


def _forward_of(kernel: Kernel) -> Kernel:
    return replace(kernel, backward=False) if isinstance(kernel, Attention) else kernel


def _backward(kernel: Kernel, forward: Prediction) -> Prediction:
    """Fused attention backwards, which nothing was fitted to: the forward kernel's time for as much more work."""
    if not isinstance(kernel, Attention) or not kernel.backward:
        return forward
    from neusight_onnx.laws.analytic import HALF_WIDTH_LOG, LEVEL_SHARE

    factor = ATTENTION_BACKWARD * kernel.macs / max(_forward_of(kernel).macs, 1)
    latency_us = factor * forward.latency_us
    return replace(
        forward,
        latency_us=latency_us,
        low_us=latency_us * exp(-HALF_WIDTH_LOG),
        high_us=latency_us * exp(HALF_WIDTH_LOG),
        utilization=forward.utilization / ATTENTION_BACKWARD,
        method="analytic",
        predictor="analytic",
        level_share=LEVEL_SHARE,
    )


def predictor_for(kernel: Kernel, gpu: GpuSpec, predictors: Predictors) -> Predictor | None:
    """The predictor of a kernel on a GPU, None where only the analytic law stands.

    It is the same for all kernels of one class, label (``predictor_label``) and dtype, generated or not, empty or not.
    """
    if _multiplies_nothing(kernel):
        return None
    kernel_class, label = KERNEL_CLASSES[type(kernel)], predictor_label(kernel)
    if isinstance(kernel, Gemm | Conv | Attention) and kernel.dtype in MATRIX_FORMATS:
        return _for_matrix_units(kernel, kernel_class, label, gpu, predictors)
    if isinstance(kernel, Conv) and kernel.direction != "forward":
        found = predictors.get((kernel_class, kernel.dtype.label))
        return None if found is None else _law_alone(found)
    found = predictors.get((kernel_class, label)) or _stand_in(kernel_class, label, predictors)
    return _law_alone(found) if found is not None and _is_streamed(kernel) else found


def _multiplies_nothing(kernel: Kernel) -> bool:
    """Whether a size of a product, convolution or attention is 0: at most zeros are written, by no measured kernel."""
    return isinstance(kernel, Gemm | Conv | Attention) and kernel.macs == 0


def _is_streamed(kernel: Kernel) -> bool:
    """Whether a compiler wrote a kernel over rows: the trees have seen PyTorch's, which are other kernels."""
    return isinstance(kernel, Softmax | Normalization) and kernel.is_streamed


MATRIX = "matrix"
"""Label of a predictor for all formats of matrix units: the law knows them by their peaks, some were measured."""
ON_AMD = "+amd"
"""Ends the label of a predictor for AMD's matrix cores, whose libraries are others."""


def _for_matrix_units(
    kernel: Gemm | Conv | Attention, kernel_class: str, label: str, gpu: GpuSpec, predictors: Predictors
) -> Predictor | None:
    """That of the format, else the one that formats share; TF32's products take the law of 16-bit ones."""
    from neusight_onnx.laws.catalog import law_of
    from neusight_onnx.laws.tensor_gemm import serves

    if not serves(gpu, kernel.dtype):  # it runs other kernels than were measured
        return _on_fp32_lanes(kernel, kernel_class, gpu, predictors)
    direction = OF_WEIGHT if label.endswith(OF_WEIGHT) else ""
    vendor = ON_AMD if gpu.compute_capability is None else ""
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
    return found


def _on_fp32_lanes(
    kernel: Gemm | Conv | Attention, kernel_class: str, gpu: GpuSpec, predictors: Predictors
) -> Predictor | None:
    """FP32's predictor for float16's products on a GPU that has nothing faster for them than its FP32 lanes.

    Nor do GCN's packed halves make its convolutions much faster: of the same ones that an MI50 ran in both, float16's
    take .77 (1x1) and .87 (others) of float32's time forward, .80 and .84 for the input's gradient (medians of
    MIOpen's find database), which is about what operands of half as many bytes save.
    """
    from neusight_onnx.laws.analytic import pipe_flops_per_s

    if kernel.dtype is not DataType.FLOAT16 or isinstance(kernel, Attention):  # bfloat16 came with its units
        return None
    packed = pipe_flops_per_s(gpu, kernel.dtype)[0] > gpu.peak_flops_per_s["fp32"]
    if packed and not (isinstance(kernel, Conv) and _is_gcn(gpu)):
        return None
    found = predictors.get((kernel_class, DataType.FLOAT32.label))
    if found is not None and isinstance(kernel, Conv) and kernel.direction != "forward":
        found = _law_alone(found)
    return None if found is None else replace(found, narrow_operands=True)


_GCN_LANES = 64
"""Lanes of a wave on GCN and CDNA; of RDNA's there are 32."""


def _is_gcn(gpu: GpuSpec) -> bool:
    """Whether an AMD GPU's fastest 16-bit instructions are packed ones of vector lanes (GCN)."""
    return gpu.vendor == "AMD" and gpu.warp_size == _GCN_LANES and "fp32_matrix" not in gpu.peak_flops_per_s


def _law_alone(predictor: Predictor) -> Predictor:
    """A predictor for a format, or gradients, that no kernel was fitted in: the law with its constants.

    Without the trees, which have seen other kernels, and with the interval of a GPU that was not measured. What the law
    gets wrong of a format it gets wrong of all its kernels, which left-out GPUs don't show: they err in common as much
    as kernels do that have an analytic estimate.
    """
    from neusight_onnx.laws.analytic import LEVEL_SHARE

    interval, amd_interval = (
        replace(widths, unseen_level_share=max(widths.unseen_level_share, LEVEL_SHARE))
        for widths in (predictor.interval, predictor.amd_interval)
    )
    return replace(
        predictor, gpu_vectors=(), law_vectors=(), unseen_weight=0.0, interval=interval, amd_interval=amd_interval
    )


_VECTOR_CLASSES = frozenset({"elementwise", "normalization", "softmax"})


def _stand_in(kernel_class: str, label: str, shipped: Predictors) -> Predictor | None:
    """FP32's law for vector kernels in 16 and 8 bits that none of their own was fitted for."""
    from neusight_onnx.laws.catalog import NARROW_LABELS

    if label not in NARROW_LABELS or kernel_class not in _VECTOR_CLASSES:
        return None
    found = shipped.get((kernel_class, DataType.FLOAT32.label))
    return None if found is None else replace(_law_alone(found), dtype=label)


def without_gpu(predictors: Predictors, gpu: str) -> Predictors:
    """The predictors as if nothing had been measured on the GPU of that name: the law with the constants of a fit
    without it, and no residual, whose trees have seen it.

    A class that wasn't trained on the GPU stays as it is. Raises PredictorError where there are no such constants.
    """
    found = {}
    for key, predictor in predictors.items():
        if gpu not in predictor.gpus:
            found[key] = predictor
            continue
        if gpu not in predictor.left_out:
            raise PredictorError(f"{predictor.name} holds no constants that were fitted without {gpu}; {REBUILD}")
        found[key] = replace(
            predictor, constants=predictor.left_out[gpu], gpu_vectors=(), law_vectors=(), unseen_weight=0.0
        )
    return found


def list_predictors(folder: Path | None = None) -> tuple[PredictorInfo, ...]:
    """What is shipped, from the manifest alone (onnxruntime isn't needed).

    Raises PredictorError if there is no manifest or it can't be understood.
    """
    folder = data_folder("predictors") if folder is None else folder
    infos = []
    for entry in _manifest_entries(folder):
        try:
            path = folder / entry["file"]
            infos.append(
                PredictorInfo(
                    name=entry["name"],
                    kernel_class=entry["kernel_class"],
                    dtype=entry["dtype"],
                    gpus=tuple(gpu["name"] for gpu in entry["training"]["gpus"]),
                    row_count=entry["training"]["row_count"],
                    file=entry["file"],
                    byte_count=path.stat().st_size if path.is_file() else 0,
                    leave_one_gpu_out_percent=entry["held_out"]["leave_one_gpu_out_percent"],
                    new_shapes_percent=entry["held_out"]["new_shapes_percent"],
                    held_out=tuple(HeldOut(**row) for row in entry["held_out"]["rows"]),
                )
            )
        except (KeyError, TypeError) as error:
            raise PredictorError(f"{folder / MANIFEST_NAME}: entry without {error}; {REBUILD}") from error
    return tuple(infos)


def _manifest_entries(folder: Path) -> list[dict[str, Any]]:
    path = folder / MANIFEST_NAME
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise PredictorError(f"{path} is missing: no predictors are installed; {REBUILD}") from error
    except (OSError, ValueError) as error:
        raise PredictorError(f"can't read {path}: {error}; {REBUILD}") from error
    if not isinstance(manifest, dict) or manifest.get("schema_version") != MANIFEST_VERSION:
        version = manifest.get("schema_version") if isinstance(manifest, dict) else None
        raise PredictorError(f"{path} has schema version {version}, this version reads {MANIFEST_VERSION}; {REBUILD}")
    entries: list[dict[str, Any]] = manifest["predictors"]
    return entries


@lru_cache(maxsize=4)
def load_predictors(folder: Path) -> Predictors:
    """Predictors of a folder by (kernel class, dtype), each checked against its law; read once per process."""
    from neusight_onnx.laws.catalog import law_of

    found: dict[tuple[str, str], Predictor] = {}
    shared: dict[tuple[str, str], tuple[str, str] | None] = {}
    common = _common(folder)
    for entry in _manifest_entries(folder):
        try:
            usual, amd = (common.get((entry["name"], vendor), {}) for vendor in ("", "amd"))
            law = law_of(entry["kernel_class"], entry["dtype"])
            constants = {name: float(constant["value"]) for name, constant in entry["constants"].items()}
            predictor = Predictor(
                name=entry["name"],
                kernel_class=entry["kernel_class"],
                dtype=entry["dtype"],
                path=folder / entry["file"],
                sha256=entry["sha256"],
                constants=constants,
                gpus=tuple(gpu["name"] for gpu in entry["training"]["gpus"]),
                gpu_vectors=tuple(tuple(gpu["vector"]) for gpu in entry["training"]["gpus"]),
                feature_low=np.array(entry["feature_low"], dtype=np.float64),
                feature_high=np.array(entry["feature_high"], dtype=np.float64),
                unseen_weight=float(entry["unseen_residual_weight"]),
                interval=replace(_widths(entry["interval"]), **usual),
                amd_interval=replace(_widths(entry["interval"].get("amd", entry["interval"])), **(amd or usual)),
                left_out=entry.get("left_out_constants", {}),
                formats=tuple(entry.get("formats", (entry["dtype"],))),
            )
            names = tuple(entry["features"])
        except (KeyError, TypeError, ValueError) as error:
            raise PredictorError(f"{folder / MANIFEST_NAME}: entry without {error}; {REBUILD}") from error
        if law is None or names != law.feature_names or set(constants) != {c.name for c in law.constants}:
            raise PredictorError(
                f"{folder / MANIFEST_NAME}: {predictor.name} was made for another law of {predictor.kernel_class} "
                f"(features or constants differ); {REBUILD}"
            )
        found[predictor.kernel_class, predictor.dtype] = predictor
        shared[predictor.kernel_class, predictor.dtype] = law.constants_of
    for key, predictor in tuple(found.items()):
        source = found.get(shared[key] or key, predictor)
        vectors = dict.fromkeys((*predictor.gpu_vectors, *source.gpu_vectors))
        found[key] = replace(predictor, law_vectors=tuple(vectors))
    return found


def _common(folder: Path) -> dict[tuple[str, str], dict[str, float]]:
    """What kernels of a run have in common, by predictor and "amd" or "": nothing where the folder doesn't say.

    Raises PredictorError where it can't be understood.
    """
    path = folder / DEPLOYMENTS_NAME
    if not path.is_file():
        return {}
    found: dict[tuple[str, str], dict[str, float]] = {}
    try:
        content = json.loads(path.read_bytes())
        if content["schema_version"] != DEPLOYMENTS_VERSION:
            raise PredictorError(f"{path} has another schema version than {DEPLOYMENTS_VERSION}; {REBUILD}")
        for name, entry in content["predictors"].items():
            for vendor, parts in (("", entry), ("amd", entry.get("amd", {}))):
                found[name, vendor] = {
                    field: float(parts[part]["half_width_log"])
                    for part, field in (("measured", "deployment"), ("unmeasured", "beyond"))
                    if part in parts
                }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PredictorError(f"can't understand {path}: {error!r}; {REBUILD}") from error
    return found


def _widths(interval: Mapping[str, Any]) -> Widths:
    """The widths of a manifest entry; one without the newer keys has one level and no spread between sessions."""
    return Widths(
        seen=float(interval["seen_half_width_log"]),
        unseen=float(interval["unseen_half_width_log"]),
        law=float(interval["law_half_width_log"]),
        seen_level_share=float(interval.get("seen_level_share", 1.0)),
        unseen_level_share=float(interval.get("unseen_level_share", 1.0)),
        session=float(interval.get("session_half_width_log", 0.0)),
        throttled_session=float(interval.get("throttled_session_half_width_log", 0.0)),
    )


@lru_cache(maxsize=64)
def _session(path: Path, sha256: str, name: str) -> Any:
    """The trees of a predictor in onnxruntime, one thread; loaded once per process."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PredictorError(f"can't read predictor {name} ({path}): {error.strerror}; {REBUILD}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PredictorError(f"{path} is not the file that the manifest describes (sha256 differs); {REBUILD}")
    import onnxruntime  # type: ignore[import-untyped]  # it ships no annotations

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A predictor's answer for n kernels on one GPU: the law, the latency with its interval in us, n entries each.

    ``level_share``: share of the interval's variance (in log) that is the GPU's level.
    """

    law: LawResult
    latency_us: Column
    low_us: Column
    high_us: Column
    level_share: Column


def estimate(kernels: Sequence[Kernel], gpu: GpuSpec, predictor: Predictor) -> Estimate:
    """Applies a predictor to kernels of its class; latency is at least the ideal time, and so is the interval."""
    if predictor.narrow_operands:
        return _of_narrow_operands(kernels, gpu, predictor)
    from neusight_onnx.laws.bandwidth import is_amd
    from neusight_onnx.laws.catalog import apply_law, law_of

    used = law_of(predictor.kernel_class, predictor.dtype)
    assert used is not None, "a predictor without a law isn't loaded"
    answer = apply_law(used, kernels, gpu, predictor.constants)
    law, features = answer.result, answer.features
    names = used.feature_names
    told = 1.0 if law.unmeasured is None else np.where(law.unmeasured, 0.0, 1.0)

    def trees(of: NDArray[np.float32]) -> Column:
        session = _session(predictor.path, predictor.sha256, predictor.name)
        found: Column = session.run(None, {"features": of})[0][:, 0].astype(np.float64)
        return found

    def inside(of: NDArray[np.float32]) -> Column:
        return told * shape_weight(of, predictor.feature_low, predictor.feature_high, names)

    def of_the_nearest() -> NDArray[np.float32] | None:
        other = _measured_gpu(predictor.gpus[nearest_of(gpu, predictor.gpu_vectors)])
        if other is None:
            return None
        return apply_law(used, kernels, other, predictor.constants).features

    near = gpu_weight(gpu, predictor.gpu_vectors)
    carried = carried_over(trees, inside, features, near, predictor.unseen_weight, of_the_nearest)
    latency = np.maximum(law.latency_us * np.exp(carried.correction), law.ideal_us)
    law, latency = _issued(kernels, gpu, law, latency)
    widths = predictor.amd_interval if is_amd(gpu) else predictor.interval
    remote = remoteness(gpu, predictor.law_vectors)
    spread = half_widths(widths, gpu, near, carried.inside, remote, law.doubt_log_sd)
    low = np.maximum(latency * np.exp(-spread.width), law.ideal_us)
    high = latency * np.exp(spread.width)
    return Estimate(law=law, latency_us=latency, low_us=low, high_us=high, level_share=spread.level_share)


@lru_cache(maxsize=64)
def _measured_gpu(name: str) -> GpuSpec | None:
    """A GPU that predictors were fitted on, read once; None where its file isn't here."""
    try:
        return load_gpu(name)
    except SpecError:
        return None


def _of_narrow_operands(kernels: Sequence[Kernel], gpu: GpuSpec, predictor: Predictor) -> Estimate:
    """Products of 16 bits on FP32's lanes: the FP32 product's time, by what its law says that fewer bytes save.

    The residual is that of the FP32 product, whose features it was fitted to; the interval is at least that of a GPU
    that was not measured, for no such product was.
    """
    from neusight_onnx.laws.catalog import apply_law, law_of

    used = law_of(predictor.kernel_class, predictor.dtype)
    assert used is not None, "a predictor without a law isn't loaded"
    law = apply_law(used, kernels, gpu, predictor.constants).result
    wide = estimate([_in_fp32(kernel) for kernel in kernels], gpu, replace(predictor, narrow_operands=False))
    latency = np.maximum(wide.latency_us * np.minimum(law.latency_us / wide.law.latency_us, 1.0), law.ideal_us)
    least = exp(predictor.interval.unseen)
    return Estimate(
        law=law,
        latency_us=latency,
        low_us=np.maximum(latency / np.maximum(wide.latency_us / wide.low_us, least), law.ideal_us),
        high_us=latency * np.maximum(wide.high_us / wide.latency_us, least),
        level_share=wide.level_share,
    )


def _in_fp32(kernel: Kernel) -> Kernel:
    match kernel:
        case Gemm():
            return replace(kernel, dtype=DataType.FLOAT32, a_dtype=None, b_dtype=None, output_dtype=None)
        case Conv():
            return replace(kernel, dtype=DataType.FLOAT32)
        case _:
            return kernel


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Half widths in log of n intervals, and the share of their variance that is the GPU's level."""

    width: Column
    level_share: Column


def half_widths(
    widths: Widths,
    gpu: GpuSpec,
    near: float,
    inside: Column,
    remote: float,
    doubt_log_sd: Column | None,
) -> Spread:
    """A known shape on a known GPU, one on another GPU, one that only the law knows: mixed by how near each is.

    ``near`` and ``inside``: weights of ``similarity``, 0..1; ``remote``: factor on what is not near. What a run's
    kernels have in common is no kernel's own: another deployment, what an unmeasured GPU's kernels err alike, and the
    doubt about constants that no measured GPU shows. Rows of left-out GPUs have the deployment of the others, so that
    another one's variance adds to theirs, as to that of measured GPUs.
    """
    session = widths.session if holds_clock(gpu) else widths.throttled_session
    deployment = max(session, widths.deployment) ** 2
    seen_own = (1.0 - widths.seen_level_share) * widths.seen**2
    unseen = max(remote * widths.unseen, widths.seen) ** 2
    beyond = max((remote * widths.beyond) ** 2, widths.unseen_level_share * unseen + deployment)
    unseen_variance = max(unseen + deployment, beyond + seen_own)
    known_variance = near * (widths.seen**2 + deployment) + (1.0 - near) * unseen_variance
    own_variance = near * seen_own + (1.0 - near) * (unseen_variance - beyond)
    outside = max((remote * widths.law) ** 2 + deployment, known_variance)
    outside_own = max(outside - max(beyond, widths.unseen_level_share * outside), 0.0)
    variance = inside * known_variance + (1.0 - inside) * outside
    own = inside * own_variance + (1.0 - inside) * outside_own
    if doubt_log_sd is not None:
        variance = variance + (EIGHTY_PERCENT * doubt_log_sd * (1.0 - near * inside)) ** 2
    variance = np.maximum(variance, 1e-12)
    return Spread(width=np.sqrt(variance), level_share=np.clip(1.0 - own / variance, 0.0, 1.0))


def _learned(kernels: tuple[Kernel, ...], gpu: GpuSpec, predictor: Predictor) -> list[Prediction]:
    return _predictions(kernels, gpu, estimate(kernels, gpu, predictor), method="learned", predictor=predictor.name)


def _issued(kernels: Sequence[Kernel], gpu: GpuSpec, law: LawResult, latency_us: Column) -> tuple[LawResult, Column]:
    """The law's parts and the latency of kernels, held to what their instructions take to be issued."""
    from neusight_onnx.laws.issue import issue_us, with_issue

    issue = issue_us(kernels, gpu)
    if issue is None:
        return law, latency_us
    parts = {**law.parts_us, "compute": np.maximum(law.parts_us["compute"], issue)}
    return replace(law, parts_us=parts), with_issue(latency_us, law.parts_us["launch"], issue)


def analytic_answer(kernels: Sequence[Kernel], gpu: GpuSpec) -> Estimate:
    """What the analytic law says of kernels that have no predictor; its interval is a judgement."""
    from neusight_onnx.laws.analytic import HALF_WIDTH_LOG, LEVEL_SHARE, analytic_estimate

    law = analytic_estimate(kernels, gpu)
    law, latency = _issued(kernels, gpu, law, np.maximum(law.latency_us, law.ideal_us))
    low = np.maximum(latency * exp(-HALF_WIDTH_LOG), np.minimum(law.ideal_us, latency))
    return Estimate(
        law=law,
        latency_us=latency,
        low_us=low,
        high_us=latency * exp(HALF_WIDTH_LOG),
        level_share=np.full_like(latency, LEVEL_SHARE),
    )


def _analytic(kernels: tuple[Kernel, ...], gpu: GpuSpec) -> list[Prediction]:
    return _predictions(kernels, gpu, analytic_answer(kernels, gpu), method="analytic", predictor="analytic")


def _predictions(
    kernels: tuple[Kernel, ...], gpu: GpuSpec, answer: Estimate, *, method: str, predictor: str
) -> list[Prediction]:
    law, latency = answer.law, answer.latency_us
    assert bool(np.all((latency > 0) & np.isfinite(latency))), "a law gives a time for every kernel"
    names = list(law.parts_us)
    largest = np.argmax(np.stack([np.broadcast_to(law.parts_us[name], latency.shape) for name in names]), axis=0)
    tiles = {name: values.astype(np.int64).tolist() for name, values in law.tile.items()}
    rows = zip(
        kernels,
        latency.tolist(),
        answer.low_us.tolist(),
        answer.high_us.tolist(),
        law.ideal_us.tolist(),
        law.tile_count.tolist(),
        law.wave_count.tolist(),
        largest.tolist(),
        answer.level_share.tolist(),
        strict=True,
    )
    return [
        Prediction(
            latency_us=time,
            low_us=bottom,
            high_us=top,
            tile={name: values[i] for name, values in tiles.items()},
            tile_count=max(int(tile_count), 1),
            wave_count=max(int(wave_count), 1),
            utilization=min(ideal / time, 1.0),
            bound=_bound(names[part], time, kernel, gpu),
            method=method,
            predictor=predictor,
            level_share=level_share,
        )
        for i, (kernel, time, bottom, top, ideal, tile_count, wave_count, part, level_share) in enumerate(rows)
    ]


def _bound(part: str, latency_us: float, kernel: Kernel, gpu: GpuSpec) -> str:
    """What bounds a kernel, in a reader's words, from the largest of the law's parts.

    A law's time in the pipe holds idle lanes and half-empty waves, too. "compute" is said only where the pipe at its
    peak would need a good part of the time; otherwise memory may, else nothing is near its limit: "latency".
    """
    from neusight_onnx.laws.analytic import pipe_flops_per_s

    if isinstance(kernel, Transfer | HostWork):
        return "pcie" if isinstance(kernel, Transfer) else "cpu"
    name = _BOUND_OF_PART.get(part, part)
    memory_us = 1e6 * (kernel.read_bytes + kernel.write_bytes) / gpu.memory_bytes_per_s
    if name == "launch" and memory_us >= 0.5 * latency_us:
        return "memory"  # raised to the roofline
    if name != "compute":
        return name
    accumulator = kernel.accumulator if isinstance(kernel, Gemm | Conv) else None
    compute_us = 1e6 * kernel.flops / pipe_flops_per_s(gpu, kernel_dtype(kernel), accumulator)[0]
    if compute_us >= memory_us and compute_us >= BUSY_SHARE * latency_us:
        return "compute"
    return "memory" if memory_us >= BUSY_SHARE * latency_us else "latency"
