"""Judges the shipped predictors on measured kernels, without training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import DataError, SpecError
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernel_formats import predictor_label
from neusight_onnx.kernels import Kernel
from neusight_onnx.learning.datasets.parts import EVENTS, Measurements, Part
from neusight_onnx.learning.datasets.registry import files_in, files_without_reader, read_parts
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
from neusight_onnx.learning.sessions import HOST_KNOTS
from neusight_onnx.predictor import Predictors, analytic_answer, estimate, load_predictors, predictor_for, without_gpu
from neusight_onnx.similarity import gpu_weight

EVALUATION_VERSION = 1

SAMPLED_ROWS = 1000
"""Rows that are judged of each GPU (of an event-timed file: of each session) unless all are asked for: the mean of a
thousand errors that scatter by 20 % is known to 0.6 points."""

LEARNED, ANALYTIC, MIXED = "learned", "analytic", "mixed"
"""What predicted: a predictor, the analytic law (none is there for the class and number format), or both."""

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
    ``method``: "learned", "analytic" (no predictor for these kernels; the law's constants are stated, not fitted) or
    "mixed".
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
    method: str = LEARNED


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRows:
    """Rows that were not judged, with the reason; of a file that can't be read nothing else is known, not even how many
    rows."""

    file: str
    kernel_class: str
    dtype: str
    gpu: str
    row_count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What ``evaluate`` found: by file, class, dtype, GPU and size; groups over all GPUs have gpu "all".

    ``sampled_rows``: how many rows of a GPU (or session) were judged at most, None: all.
    """

    data_folder: str
    interval: float
    treatment: str
    sampled_rows: int | None
    groups: tuple[ErrorSummary, ...]
    skipped: tuple[SkippedRows, ...]


def evaluate(
    folder: Path | str,
    *,
    predictors: Path | None = None,
    all_rows: bool = False,
    leave_out: bool = False,
    classes: Collection[str] | None = None,
) -> Evaluation:
    """Judges the predictors of ``predictors`` (default: the shipped ones) on a folder laid out as the training data.

    Any subset of the files will do, and any GPU that has a spec; other rows, files that can't be read, and those that
    nothing reads are counted in ``skipped``. Without ``all_rows``, at most ``SAMPLED_ROWS`` of each GPU are judged, the
    same ones every time.
    ``leave_out``: each GPU as if nothing had been measured on it (:func:`~neusight_onnx.predictor.without_gpu`).
    ``classes``: only these kernel classes.
    Raises DataError if nothing can be read, PredictorError if the predictors are unusable, NeusightError if the
    ``learning`` extra isn't installed.
    """
    shipped = load_predictors(data_folder("predictors") if predictors is None else predictors)
    groups: list[ErrorSummary] = []
    skipped: list[SkippedRows] = []
    specs: dict[str, GpuSpec | str] = {}
    parts, faults = _readable(Path(folder))
    for file, reason in {**faults, **files_without_reader(Path(folder))}.items():
        skipped.append(SkippedRows(file=file, kernel_class="", dtype="", gpu="", row_count=0, reason=reason))
    for part in parts:
        if classes is not None and part.kernel_class not in classes:
            continue
        names, counts = np.unique(part.gpu, return_counts=True)
        missing = part.reason or "no kernel for them" if part.load is None else None
        reasons = {name: missing or _why_unknown(name, specs) for name in names.tolist()}
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            why = reasons[name]
            if why is not None:
                skipped.append(_skip(part, name, count, why))
        if part.load is None:
            continue
        known = np.array([reasons[name] is None for name in part.gpu.tolist()], dtype=np.bool_)
        rows = np.flatnonzero(known) if all_rows else part.sample(SAMPLED_ROWS)
        rows = rows[known[rows]]
        if rows.size:
            found = {name: spec for name, spec in specs.items() if isinstance(spec, GpuSpec)}
            judged = judge(part.load(rows), found, shipped, leave_out=leave_out)
            groups += [replace(group, variant=part.variant) for group in judged]
    return Evaluation(
        data_folder=str(folder),
        interval=0.8,
        treatment=TREATMENT,
        sampled_rows=None if all_rows else SAMPLED_ROWS,
        groups=tuple(groups),
        skipped=tuple(skipped),
    )


def _readable(folder: Path) -> tuple[list[Part], dict[str, str]]:
    """The parts of all files that can be read, and by file what is wrong with the others."""
    parts: list[Part] = []
    faults: dict[str, DataError] = {}
    for name in files_in(folder):
        try:
            parts += read_parts(folder, (name,))
        except DataError as error:
            faults[name] = error
    if faults and not parts:
        raise next(iter(faults.values()))
    return parts, {name: str(error) for name, error in faults.items()}


def _skip(part: Part, gpu: str, count: int, reason: str) -> SkippedRows:
    kind = part.kernel_class
    return SkippedRows(file=part.file, kernel_class=kind, dtype=part.dtype, gpu=gpu, row_count=count, reason=reason)


def _why_unknown(name: str, specs: dict[str, GpuSpec | str]) -> str | None:
    """Why rows of a GPU can't be judged, None if they can; looks every name up once."""
    if name not in specs:
        try:
            specs[name] = load_gpu(name)
        except SpecError as error:
            specs[name] = f"no spec: {error}"
    found = specs[name]
    return found if isinstance(found, str) else None


def judge(
    measurements: Measurements, specs: Mapping[str, GpuSpec], predictors: Predictors, *, leave_out: bool = False
) -> list[ErrorSummary]:
    """Errors of predictors on measurements whose GPUs are all in ``specs``: by GPU and size, and of all GPUs."""
    size = len(measurements)
    latency, low, high, ideal = (np.zeros(size) for _ in range(4))
    learned, seen = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    for gpu in sorted(set(measurements.gpu.tolist())):
        own = without_gpu(predictors, specs[gpu].name) if leave_out else predictors
        labels: dict[str, list[int]] = {}
        for i in np.flatnonzero(measurements.gpu == gpu).tolist():
            labels.setdefault(predictor_label(measurements.kernels[i]), []).append(i)
        for members in labels.values():
            unique: dict[Kernel, int] = {}
            place = np.array([unique.setdefault(measurements.kernels[i], len(unique)) for i in members])
            predictor = predictor_for(next(iter(unique)), specs[gpu], own)
            if predictor is None:
                answer = analytic_answer(tuple(unique), specs[gpu])
            else:
                answer = estimate(tuple(unique), specs[gpu], predictor)
                learned[members] = True
                seen[members] = gpu_weight(specs[gpu], predictor.gpu_vectors) > 0.9999
            latency[members], low[members] = answer.latency_us[place], answer.low_us[place]
            high[members], ideal[members] = answer.high_us[place], answer.law.ideal_us[place]
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
        trained_on = None if gpu == ALL else bool(seen[of_gpu].all())
        for name, of_size in sizes.items():
            rows = np.flatnonzero(of_gpu & of_size)
            if rows.size:
                found = _summary(measurements, gpu, name, error[rows], roofline[rows], inside[rows], trained_on)
                method = LEARNED if learned[rows].all() else MIXED if learned[rows].any() else ANALYTIC
                groups.append(replace(found, method=method))
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
