"""Judges the shipped predictors on measured kernels, without training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import BY_LABEL
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import measured_format
from neusight_onnx.learning.datasets import EVENTS, Measurements, Part, read_parts
from neusight_onnx.learning.fitting import HOST_KNOTS
from neusight_onnx.learning.heldout import (
    FLOOR_PERCENTILE,
    LAUNCH_SHARES,
    SMALL_US,
    SMALLEST_SHARE,
    TINY_US,
    USUAL_FLOORS_US,
    Launch,
    event_us,
    launch_shown,
)
from neusight_onnx.predictor import Predictor, estimate, load_predictors
from neusight_onnx.similarity import gpu_weight

EVALUATION_VERSION = 1

FLOOR_SPREAD = 0.1
"""How far a launch floor may lie from the median of its session's small kernels: launches vary by 5-10 % in a session,
and the share that passes before the kernel starts by as much."""

ALL = "all"

TREATMENT = (
    "Event-timed files (neusight/kernels_fp32.parquet) hold the host's launch time: a kernel time t becomes "
    "max(floor, share x floor + t), the roofline's alike, with the share that passes before the kernel starts (on "
    "NVIDIA, on AMD: "
    + "; ".join(f"{name} {nvidia:g}, {amd:g}" for name, (nvidia, amd) in LAUNCH_SHARES.items())
    + f"). The floor of a session (GPU, operation, split) is the {FLOOR_PERCENTILE:g}th percentile of what its kernels "
    f"predicted below {TINY_US:g} us (else {SMALL_US:g} us) took, at least five of them; else that of the operation's "
    "other sessions on the GPU; else a usual one (us: "
    + ", ".join(f"{name} {floor:g}" for name, floor in USUAL_FLOORS_US.items())
    + "). Sessions of convolutions, whose host slows down as they go on, have a floor at each of "
    f"{HOST_KNOTS} evenly spaced points, the median of measured - predicted over the {100 * SMALLEST_SHARE:g} % "
    "smallest kernels around it, and it passes before the kernel starts. "
    "That floor is all that is taken from measured times; intervals allow for an error of "
    f"{100 * FLOOR_SPREAD:g} % in it. Other files hold the kernel's own time: nothing is added."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Errors of one group of rows, in per cent; ``gpu`` and ``size`` may be "all". ``bias``: median signed error.

    ``trained_on``: whether the predictor saw rows of this GPU (None for all GPUs together). ``coverage``: share of
    rows inside the predicted interval. ``variant``: which of the file's implementations ran, where it has several.
    """

    file: str
    kernel_class: str
    dtype: str
    gpu: str
    size: str
    row_count: int
    mape_percent: float
    median_ape_percent: float
    bias_percent: float
    roofline_mape_percent: float
    roofline_median_ape_percent: float
    coverage: float
    trained_on: bool | None
    variant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRows:
    """Rows that were not judged, with the reason."""

    file: str
    kernel_class: str
    dtype: str
    gpu: str
    row_count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What ``evaluate`` found: by file, class, dtype, GPU and size; groups over all GPUs have gpu "all"."""

    data_folder: str
    interval: float
    treatment: str
    groups: tuple[ErrorSummary, ...]
    skipped: tuple[SkippedRows, ...]


def evaluate(folder: Path | str, *, predictors: Path | None = None) -> Evaluation:
    """Judges the predictors of ``predictors`` (default: the shipped ones) on a folder laid out as the training data.

    Any subset of the files will do, and any GPU that has a spec; other rows are counted in ``skipped``.
    Raises DataError if nothing can be read, PredictorError if the predictors are unusable, NeusightError if the
    ``learning`` extra isn't installed.
    """
    shipped = load_predictors(data_folder("predictors") if predictors is None else predictors)
    groups: list[ErrorSummary] = []
    skipped: list[SkippedRows] = []
    specs: dict[str, GpuSpec | str] = {}
    for part in read_parts(Path(folder)):
        names, counts = np.unique(part.gpu, return_counts=True)
        predictor = shipped.get((part.kernel_class, _looked_up(part)))
        missing = None if predictor else f"no predictor for {part.dtype} {part.kernel_class}"
        reasons = {name: missing or _why_unknown(name, specs) for name in names.tolist()}
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            reason = reasons[name]
            if reason is not None:
                skipped.append(
                    SkippedRows(
                        file=part.file,
                        kernel_class=part.kernel_class,
                        dtype=part.dtype,
                        gpu=name,
                        row_count=count,
                        reason=reason,
                    )
                )
        if predictor is None or part.load is None or all(reasons.values()):
            continue
        measurements = part.load()
        known = np.array([reasons[name] is None for name in measurements.gpu.tolist()], dtype=np.bool_)
        found = {name: spec for name, spec in specs.items() if isinstance(spec, GpuSpec)}
        judged = _judge(measurements.select(known), found, predictor)
        groups += [replace(group, variant=part.variant) for group in judged]
    return Evaluation(
        data_folder=str(folder), interval=0.8, treatment=TREATMENT, groups=tuple(groups), skipped=tuple(skipped)
    )


def _looked_up(part: Part) -> str:
    """The label of the part's predictor: products of float16 have that of bfloat16, and so on."""
    dtype = BY_LABEL.get(part.dtype)
    return part.dtype if part.kernel_class != "gemm" or dtype is None else measured_format(dtype)


def _why_unknown(name: str, specs: dict[str, GpuSpec | str]) -> str | None:
    """Why rows of a GPU can't be judged, None if they can; looks every name up once."""
    if name not in specs:
        try:
            specs[name] = load_gpu(name)
        except SpecError as error:
            specs[name] = f"no spec: {error}"
    found = specs[name]
    return found if isinstance(found, str) else None


def _judge(measurements: Measurements, specs: Mapping[str, GpuSpec], predictor: Predictor) -> list[ErrorSummary]:
    size = len(measurements)
    latency, low, high, ideal = (np.zeros(size) for _ in range(4))
    for gpu in sorted(set(measurements.gpu.tolist())):
        rows = np.flatnonzero(measurements.gpu == gpu)
        unique: dict[Any, int] = {}
        place = np.array([unique.setdefault(measurements.kernels[i], len(unique)) for i in rows.tolist()])
        answer = estimate(tuple(unique), specs[gpu], predictor)
        latency[rows], low[rows] = answer.latency_us[place], answer.low_us[place]
        high[rows], ideal[rows] = answer.high_us[place], answer.law.ideal_us[place]
    measured, kind = measurements.measured_us, measurements.kernel_class
    launch = Launch(floor_us=np.zeros(size), before_us=np.zeros(size))
    if measurements.timing == EVENTS:
        launch = launch_shown(measurements, latency, specs, kind)
    error = event_us(latency, launch) / measured - 1.0
    roofline = event_us(ideal, launch) / measured - 1.0
    least = event_us(low, launch.times(1.0 - FLOOR_SPREAD))
    most = event_us(high, launch.times(1.0 + FLOOR_SPREAD))
    inside = (least <= measured) & (measured <= most)
    limit_us = measurements.scored_us
    sizes = {ALL: measured > 0, f"below {limit_us:g} us": measured < limit_us}
    sizes[f"{limit_us:g} us and above"] = measured >= limit_us
    groups = []
    for gpu in (ALL, *sorted(set(measurements.gpu.tolist()))):
        of_gpu = measured > 0 if gpu == ALL else measurements.gpu == gpu
        seen = None if gpu == ALL else gpu_weight(specs[gpu], predictor.gpu_vectors) > 0.9999
        for name, of_size in sizes.items():
            rows = np.flatnonzero(of_gpu & of_size)
            if rows.size:
                groups.append(_summary(measurements, gpu, name, error[rows], roofline[rows], inside[rows], seen))
    return groups


def _summary(
    measurements: Measurements,
    gpu: str,
    size: str,
    error: NDArray[np.float64],
    roofline: NDArray[np.float64],
    inside: NDArray[np.bool_],
    trained_on: bool | None,
) -> ErrorSummary:
    return ErrorSummary(
        file=measurements.file,
        kernel_class=measurements.kernel_class,
        dtype=measurements.dtype,
        gpu=gpu,
        size=size,
        row_count=int(error.size),
        mape_percent=round(100 * float(np.mean(np.abs(error))), 2),
        median_ape_percent=round(100 * float(np.median(np.abs(error))), 2),
        bias_percent=round(100 * float(np.median(error)), 2),
        roofline_mape_percent=round(100 * float(np.mean(np.abs(roofline))), 2),
        roofline_median_ape_percent=round(100 * float(np.median(np.abs(roofline))), 2),
        coverage=round(float(np.mean(inside)), 3),
        trained_on=trained_on,
    )


def evaluation_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation as JSON values; only grows."""
    return {"schema_version": EVALUATION_VERSION, **asdict(evaluation)}
