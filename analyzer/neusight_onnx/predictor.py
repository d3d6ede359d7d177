"""Predicts kernels: law x exp(weight x residual). The only module that imports onnxruntime, and only when it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import PredictorError
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import KERNEL_CLASSES, Kernel, kernel_dtype
from neusight_onnx.similarity import gpu_weight, residual_weight, shape_weight

if TYPE_CHECKING:
    from neusight_onnx.laws.base import Column, LawResult

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1
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
    ``bound``: "compute", "memory", "l2", "latency", "launch". ``method``: "learned" (fitted on measurements of this
    kernel class and dtype) or "analytic" (a stated efficiency). ``predictor``: the name in the manifest, or "analytic".
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Errors on what was left out: rows of at least 50 us, percentages; ``bias`` is the median signed error."""

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
class Predictor:
    """What a manifest entry says, ready for use; ``sha256`` is checked when the trees are loaded."""

    name: str
    kernel_class: str
    dtype: str
    path: Path
    sha256: str
    constants: Mapping[str, float]
    gpu_vectors: tuple[tuple[float, ...], ...]
    feature_low: NDArray[np.float64]
    feature_high: NDArray[np.float64]
    unseen_weight: float
    seen_half_width_log: float
    unseen_half_width_log: float
    law_half_width_log: float


def predict(kernels: Sequence[Kernel], gpu: GpuSpec) -> tuple[Prediction, ...]:
    """Predicts each kernel, in order; one call of onnxruntime per kernel class, equal kernels predicted once.

    Kernels of a class and dtype without a predictor get the analytic law. Raises PredictorError where a predictor is
    missing or is not the one that its manifest describes.
    """
    groups: dict[tuple[str, str], dict[Kernel, None]] = {}
    for kernel in kernels:
        groups.setdefault((KERNEL_CLASSES[type(kernel)], kernel_dtype(kernel).label), {})[kernel] = None
    shipped = load_predictors(data_folder("predictors"))
    found: dict[Kernel, Prediction] = {}
    for key, unique in groups.items():
        predictor = shipped.get(key)
        members = tuple(unique)
        answers = _analytic(members, gpu) if predictor is None else _learned(members, gpu, predictor)
        found.update(zip(members, answers, strict=True))
    return tuple(found[kernel] for kernel in kernels)


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
def load_predictors(folder: Path) -> Mapping[tuple[str, str], Predictor]:
    """Predictors of a folder by (kernel class, dtype), each checked against its law; read once per process."""
    from neusight_onnx.laws.catalog import LAWS

    found: dict[tuple[str, str], Predictor] = {}
    for entry in _manifest_entries(folder):
        try:
            law = LAWS.get(entry["kernel_class"])
            constants = {name: float(constant["value"]) for name, constant in entry["constants"].items()}
            predictor = Predictor(
                name=entry["name"],
                kernel_class=entry["kernel_class"],
                dtype=entry["dtype"],
                path=folder / entry["file"],
                sha256=entry["sha256"],
                constants=constants,
                gpu_vectors=tuple(tuple(gpu["vector"]) for gpu in entry["training"]["gpus"]),
                feature_low=np.array(entry["feature_low"], dtype=np.float64),
                feature_high=np.array(entry["feature_high"], dtype=np.float64),
                unseen_weight=float(entry["unseen_residual_weight"]),
                seen_half_width_log=float(entry["interval"]["seen_half_width_log"]),
                unseen_half_width_log=float(entry["interval"]["unseen_half_width_log"]),
                law_half_width_log=float(entry["interval"]["law_half_width_log"]),
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
    return found


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
    """A predictor's answer for n kernels on one GPU: the law, the latency with its interval in us, n entries each."""

    law: LawResult
    latency_us: Column
    low_us: Column
    high_us: Column


def estimate(kernels: Sequence[Kernel], gpu: GpuSpec, predictor: Predictor) -> Estimate:
    """Applies a predictor to kernels of its class; latency is at least the ideal time, and so is the interval."""
    from neusight_onnx.laws.catalog import LAWS, apply_law

    answer = apply_law(LAWS[predictor.kernel_class], kernels, gpu, predictor.constants)
    law, features = answer.result, answer.features
    session = _session(predictor.path, predictor.sha256, predictor.name)
    residual = session.run(None, {"features": features})[0][:, 0].astype(np.float64)
    near = gpu_weight(gpu, predictor.gpu_vectors)
    names = LAWS[predictor.kernel_class].feature_names
    inside = shape_weight(features, predictor.feature_low, predictor.feature_high, names)
    weight = residual_weight(near, inside, predictor.unseen_weight)
    latency = np.maximum(law.latency_us * np.exp(weight * residual), law.ideal_us)
    # a known shape on a known GPU, a known shape on another GPU, a shape of which only the law has an idea
    known = near * predictor.seen_half_width_log + (1.0 - near) * predictor.unseen_half_width_log
    width = inside * known + (1.0 - inside) * max(predictor.law_half_width_log, known)
    if law.doubt_log_sd is not None:
        width = np.hypot(width, EIGHTY_PERCENT * law.doubt_log_sd * (1.0 - near * inside))
    low = np.maximum(latency * np.exp(-width), law.ideal_us)
    return Estimate(law=law, latency_us=latency, low_us=low, high_us=latency * np.exp(width))


def _learned(kernels: tuple[Kernel, ...], gpu: GpuSpec, predictor: Predictor) -> list[Prediction]:
    return _predictions(kernels, gpu, estimate(kernels, gpu, predictor), method="learned", predictor=predictor.name)


def _analytic(kernels: tuple[Kernel, ...], gpu: GpuSpec) -> list[Prediction]:
    from neusight_onnx.laws.analytic import HALF_WIDTH_LOG, analytic_estimate

    law = analytic_estimate(kernels, gpu)
    latency = np.maximum(law.latency_us, law.ideal_us)
    low = np.maximum(latency * exp(-HALF_WIDTH_LOG), np.minimum(law.ideal_us, latency))
    answer = Estimate(law=law, latency_us=latency, low_us=low, high_us=latency * exp(HALF_WIDTH_LOG))
    return _predictions(kernels, gpu, answer, method="analytic", predictor="analytic")


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
        )
        for i, (kernel, time, bottom, top, ideal, tile_count, wave_count, part) in enumerate(rows)
    ]


def _bound(part: str, latency_us: float, kernel: Kernel, gpu: GpuSpec) -> str:
    """What bounds a kernel, in a reader's words, from the largest of the law's parts.

    A law's time in the pipe holds idle lanes and half-empty waves, too. "compute" is said only where the pipe at its
    peak would need a good part of the time; otherwise memory may, else nothing is near its limit: "latency".
    """
    from neusight_onnx.laws.analytic import pipe_flops_per_s

    name = _BOUND_OF_PART.get(part, part)
    if name != "compute":
        return name
    compute_us = 1e6 * kernel.flops / pipe_flops_per_s(gpu, kernel_dtype(kernel))[0]
    memory_us = 1e6 * (kernel.read_bytes + kernel.write_bytes) / gpu.memory_bytes_per_s
    if compute_us >= memory_us and compute_us >= BUSY_SHARE * latency_us:
        return "compute"
    return "memory" if memory_us >= BUSY_SHARE * latency_us else "latency"
