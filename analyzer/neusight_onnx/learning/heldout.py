"""Errors on what a predictor has not seen: a GPU left out whole, a generation left out, or shapes left out.

Only rows of at least ``SCORED_US`` count, and of an operation measured in two splits only ``test`` (the sizes of real
models). What was measured is the event time, so the session's launch floor turns a predicted kernel time into one
(:func:`event_us`). The floor is read off the session's smallest kernels, whose rows are below ``SCORED_US`` and are not
scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Law
from neusight_onnx.laws.catalog import apply_law
from neusight_onnx.learning.datasets import EVENTS, Measurements
from neusight_onnx.learning.fitting import (
    LawFit,
    ResidualSettings,
    fit_law,
    fit_residual,
    residual_rows,
)
from neusight_onnx.similarity import gpu_vector, gpu_weight, residual_weight, shape_weight

SCORED_US = 50.0
"""Below this an event-timed row shows the host's launch time and not the kernel."""

TINY_US = 8.0
SMALL_US = 25.0
"""Kernels that the law puts below ``TINY_US`` show the session's launch floor; where a session has hardly any, those
below ``SMALL_US`` do, less exactly: their own time is taken off."""

USUAL_FLOOR_US = 25.0
"""Launch floor where a folder has no tiny kernel of a GPU: the middle of what the five NVIDIA GPUs show (14-53)."""

LAUNCH_SHARES: Mapping[str, float] = {
    "gemm": 0.8,
    "conv": 0.8,
    "elementwise": 0.6,
    "softmax": 0.85,
    "normalization": 1.0,
}
"""Share of the launch floor that passes before the kernel starts. The host dispatches the operator, launches, then
records the end event; a kernel that still runs hides that last part, so that an event pair shows
max(floor, share x floor + kernel). Median of (measured - law) / smallest times over rows of 50-120 us: elementwise
.45-.6 on NVIDIA (.65-.85 on AMD), softmax .6-.95, LayerNorm, which allocates three outputs first, .85-1.1 (V100 .58),
gemm .4-.9; with the whole floor added, elementwise rows of that size come out 14-26 % too slow.
"""

ENOUGH_ROWS = 5
"""Small kernels that a session must have for a floor of its own."""

FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Predicted kernel times of rows of a class, in us, with the launch floor of each and what was measured."""

    kernel_class: str
    rows: NDArray[np.int64]
    kernel_us: NDArray[np.float64]
    floor_us: NDArray[np.float64]
    measured_us: NDArray[np.float64]

    @property
    def log_error(self) -> NDArray[np.float64]:
        """log(predicted / measured) of the event time."""
        found: NDArray[np.float64] = np.log(
            event_us(self.kernel_us, self.floor_us, self.kernel_class) / self.measured_us
        )
        return found


def event_us(kernel_us: NDArray[np.float64], floor_us: NDArray[np.float64], kernel_class: str) -> NDArray[np.float64]:
    """What an event pair around kernels of such times shows; the kernel's own time where the floor is zero."""
    found: NDArray[np.float64] = np.maximum(floor_us, LAUNCH_SHARES[kernel_class] * floor_us + kernel_us)
    return found


def launch_floors(
    measured_us: NDArray[np.float64],
    kernel_us: NDArray[np.float64],
    gpu: NDArray[np.str_],
    operation: NDArray[np.str_],
    split: NDArray[np.str_],
    kernel_class: str,
) -> NDArray[np.float64]:
    """Launch floor of each row, in us: the median of what the tiny kernels of its session show.

    A tiny kernel shows the floor that :func:`event_us` turns into its measured time. A session (GPU, operation,
    split) with fewer than five of them takes the floor of the same operation's other sessions on that GPU, else
    the smallest floor of the GPU's other operations; a GPU without any takes ``USUAL_FLOOR_US``.
    """
    shown = np.minimum(measured_us, (measured_us - kernel_us) / LAUNCH_SHARES[kernel_class])
    floors = np.empty(measured_us.size)

    def floor_of(rows: NDArray[np.bool_]) -> float | None:
        for limit_us in (TINY_US, SMALL_US):
            small = rows & (kernel_us < limit_us)
            if np.count_nonzero(small) >= ENOUGH_ROWS:
                return max(float(np.median(shown[small])), 0.0)
        return None

    for name in sorted(set(gpu.tolist())):
        of_gpu = gpu == name
        operations = sorted(set(operation[of_gpu].tolist()))
        by_operation = {op: floor_of(of_gpu & (operation == op)) for op in operations}
        least = min((floor for floor in by_operation.values() if floor is not None), default=USUAL_FLOOR_US)
        for op in operations:
            for part in sorted(set(split[of_gpu & (operation == op)].tolist())):
                rows = of_gpu & (operation == op) & (split == part)
                floor = floor_of(rows)
                if floor is None:
                    borrowed = by_operation[op]
                    # a borrowed floor above a measured time is none
                    floor = min(least if borrowed is None else borrowed, float(measured_us[rows].min()))
                floors[rows] = floor
    return floors


def scored_rows(measurements: Measurements) -> NDArray[np.int64]:
    """Rows that count: at least ``SCORED_US``, of the ``test`` split where the operation has both."""
    sessions = set(measurements.session.tolist())
    counts = {
        name: not (name.endswith("/train") and name.removesuffix("train") + "test" in sessions) for name in sessions
    }
    chosen = np.array([counts[name] for name in measurements.session.tolist()], dtype=np.bool_)
    return np.flatnonzero(chosen & (measurements.measured_us >= SCORED_US))


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A fitted law with its residual trees (None: law alone)."""

    law: Law
    fit: LawFit
    booster: Any | None
    feature_low: NDArray[np.float64]
    feature_high: NDArray[np.float64]
    vectors: tuple[tuple[float, ...], ...]


def train_once(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    *,
    seed: int,
    settings: ResidualSettings | None,
    excluded_groups: NDArray[np.bool_] | None = None,
) -> Trained:
    """Fits law and residual on the rows whose GPU is in ``specs``, less the shapes of ``excluded_groups`` (a mask)."""
    kept = measurements if excluded_groups is None else measurements.select(~excluded_groups)
    fit = fit_law(law, kept, specs, seed=seed)
    width = len(law.feature_names)
    vectors = tuple(gpu_vector(specs[gpu]) for gpu in fit.gpus)
    if settings is None:
        nothing = np.zeros(width)
        return Trained(law=law, fit=fit, booster=None, feature_low=nothing, feature_high=nothing, vectors=vectors)
    residuals = residual_rows(law, kept, specs, fit, settings, seed=seed)
    return Trained(
        law=law,
        fit=fit,
        booster=fit_residual(residuals, law.feature_names, settings, seed=seed),
        feature_low=residuals.features.min(axis=0).astype(np.float64),
        feature_high=residuals.features.max(axis=0).astype(np.float64),
        vectors=vectors,
    )


def predict_rows(
    trained: Trained, measurements: Measurements, rows: NDArray[np.int64], gpu: GpuSpec, *, unseen_weight: float
) -> NDArray[np.float64]:
    """Kernel times in us of rows of one GPU, as the shipped predictor would give them."""
    answer = apply_law(trained.law, measurements.select(rows).kernels, gpu, trained.fit.constants)
    latency = answer.result.latency_us
    if trained.booster is not None:
        inside = shape_weight(answer.features, trained.feature_low, trained.feature_high, trained.law.feature_names)
        share = residual_weight(gpu_weight(gpu, trained.vectors), inside, unseen_weight)
        residual = trained.booster.predict(answer.features.astype(np.float64), num_threads=1)
        latency = latency * np.exp(share * residual)
    return np.maximum(latency, answer.result.ideal_us)


def floors_of(law: Law, measurements: Measurements, specs: Mapping[str, GpuSpec], fit: LawFit) -> NDArray[np.float64]:
    """Launch floor of every row whose GPU is in ``specs`` (zero where the kernel's own time was measured)."""
    if measurements.timing != EVENTS:
        return np.zeros(len(measurements))
    kernel_us = np.full(len(measurements), np.inf)
    for gpu in sorted(set(measurements.gpu.tolist()) & set(specs)):
        # only rows near the floor can be tiny: the rest need not be estimated
        of_gpu = measurements.gpu == gpu
        near = np.flatnonzero(of_gpu & (measurements.measured_us < 4 * SCORED_US))
        if near.size:
            answer = apply_law(law, measurements.select(near).kernels, specs[gpu], fit.constants)
            kernel_us[near] = answer.result.latency_us
    return launch_floors(
        measurements.measured_us,
        kernel_us,
        measurements.gpu,
        measurements.operation,
        measurements.split,
        law.kernel_class,
    )


def leave_out(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    groups: Mapping[str, Sequence[str]],
    *,
    seed: int,
    settings: ResidualSettings | None,
    unseen_weights: Sequence[float] = (0.0,),
) -> dict[str, dict[float, Scored]]:
    """For each group of GPUs: everything trained without them, then scored on them.

    ``unseen_weights`` are tried in turn. Keys: group, then weight.
    """
    counted = scored_rows(measurements)
    found: dict[str, dict[float, Scored]] = {}
    for group, left_out in groups.items():
        rest = {name: spec for name, spec in specs.items() if name not in left_out}
        if not set(measurements.gpu.tolist()) & set(rest):
            continue
        trained = train_once(law, measurements, rest, seed=seed, settings=settings)
        floors = floors_of(law, measurements, {name: specs[name] for name in left_out}, trained.fit)
        for weight in unseen_weights:
            parts: list[Scored] = []
            for gpu in left_out:
                rows = counted[measurements.gpu[counted] == gpu]
                if rows.size:
                    parts.append(
                        Scored(
                            kernel_class=law.kernel_class,
                            rows=rows,
                            kernel_us=predict_rows(trained, measurements, rows, specs[gpu], unseen_weight=weight),
                            floor_us=floors[rows],
                            measured_us=measurements.measured_us[rows],
                        )
                    )
            if parts:
                found.setdefault(group, {})[weight] = _joined(parts)
    return found


def new_shapes(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    *,
    seed: int,
    settings: ResidualSettings | None,
) -> Scored:
    """Folds by exact shape: a shape is scored by a model that saw the GPU but not the shape, on any GPU."""
    group = measurements.shape_group
    # a shape's fold is a permutation by seed, so that neighbours in the file don't share a fold
    fold_of = np.random.default_rng(seed).permutation(int(group.max()) + 1) % FOLDS
    counted = scored_rows(measurements)
    parts: list[Scored] = []
    for fold in range(FOLDS):
        excluded = fold_of[group] == fold
        trained = train_once(law, measurements, specs, seed=seed, settings=settings, excluded_groups=excluded)
        floors = floors_of(law, measurements, specs, trained.fit)
        for gpu in trained.fit.gpus:
            rows = counted[(measurements.gpu[counted] == gpu) & excluded[counted]]
            if rows.size:
                parts.append(
                    Scored(
                        kernel_class=law.kernel_class,
                        rows=rows,
                        kernel_us=predict_rows(trained, measurements, rows, specs[gpu], unseen_weight=0.0),
                        floor_us=floors[rows],
                        measured_us=measurements.measured_us[rows],
                    )
                )
    return _joined(parts)


def _joined(parts: Sequence[Scored]) -> Scored:
    return Scored(
        kernel_class=parts[0].kernel_class,
        rows=np.concatenate([part.rows for part in parts]),
        kernel_us=np.concatenate([part.kernel_us for part in parts]),
        floor_us=np.concatenate([part.floor_us for part in parts]),
        measured_us=np.concatenate([part.measured_us for part in parts]),
    )


def mape_percent(log_error: NDArray[np.float64]) -> float:
    """Mean absolute percentage error of log(predicted / measured)."""
    return 100.0 * float(np.mean(np.abs(np.expm1(log_error))))
