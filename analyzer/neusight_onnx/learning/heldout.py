"""Errors on what a predictor has not seen: a GPU left out whole, a generation left out, or shapes left out.

Only rows of at least ``SCORED_US`` count, and of an operation measured in two splits only ``test`` (the sizes of real
models). What was measured is the event time, so the session's launch turns a predicted kernel time into one
(:func:`event_us`). Its floor is read off the session's smallest kernels, whose rows are below ``SCORED_US`` and are not
scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernel_formats import OF_DATA, OF_WEIGHT
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Law
from neusight_onnx.laws.catalog import apply_law, features_elsewhere
from neusight_onnx.learning.datasets.parts import EVENTS, Measurements
from neusight_onnx.learning.fitting import LawFit, fit_law
from neusight_onnx.learning.residuals import ResidualSettings, fit_residual, residual_rows
from neusight_onnx.learning.sessions import HOST_KNOTS, near_knot
from neusight_onnx.similarity import carried_over, gpu_vector, gpu_weight, nearest_of, shape_weight

SCORED_US = 50.0
"""Below this an event-timed row shows the host's launch time and not the kernel."""

TINY_US = 8.0
SMALL_US = 25.0
"""Kernels that the law puts below ``TINY_US`` end while the host is still busy and show the session's launch floor;
where a session has hardly any, the quickest of those below ``SMALL_US`` do."""

FLOOR_PERCENTILE = 10.0
"""Of the small kernels' measured times: the floor is flat, and what lies above it has begun to show the kernel."""

USUAL_FLOORS_US: Mapping[str, float] = {
    "bmm": 34.0,
    "linear": 55.0,
    "linear_unfused": 55.0,
    "conv": 66.0,
    "softmax": 34.0,
    "ln": 47.0,
    "elementwise": 31.0,
}
"""Launch floor by operation (else by kernel class) where a folder has no small kernel of a GPU: the median of what the
five NVIDIA GPUs show; AMD's two lie a third to a half below. A module with parameters (linear, ln, conv) takes longer
to dispatch than a function of one or two tensors."""
USUAL_FLOOR_US = 34.0
"""The same for an operation that is not in the list."""

LAUNCH_SHARES: Mapping[str, tuple[float, float]] = {
    "gemm": (0.72, 0.95),
    "conv": (0.72, 0.95),
    "elementwise": (0.47, 0.72),
    "softmax": (0.72, 0.95),
    "normalization": (0.72, 0.95),
}
"""Share of the launch floor that passes before the kernel starts, on NVIDIA and on AMD.

The host dispatches the operator, launches, then records the end event; a kernel that still runs hides that last part,
so that an event pair shows max(floor, share x floor + kernel). Measured: the host time that the laws' fits find in the
sessions of real sizes over the floor that small kernels show. Softmax .65-.75 on the five NVIDIA GPUs, LayerNorm
.64-.84, linear .67-.83, bmm .57-.9, elementwise .42-.58; on MI100 and MI210 .95 (softmax, LayerNorm) and .63-.78
(elementwise): recording the event takes the CUDA hosts 9-25 us, the ROCm ones 1-5.
"""

ENOUGH_ROWS = 5
"""Small kernels that a session must have for a floor of its own."""

SMALLEST_SHARE = 0.04
"""Share of the kernels around a point of a drifting session, the smallest by prediction, that show the host's time."""

OWN_SHARE = 0.5
"""The kernel's own time is judged where it is at least this share of what was measured."""

FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The host's part of event-timed rows, in us: what the smallest kernel shows, what passes before a kernel starts.

    Both are zero where the kernel's own time was measured.
    """

    floor_us: NDArray[np.float64]
    before_us: NDArray[np.float64]

    def take(self, rows: NDArray[np.int64]) -> Launch:
        """The given rows only."""
        return Launch(floor_us=self.floor_us[rows], before_us=self.before_us[rows])

    def times(self, factor: float) -> Launch:
        """A host that takes so many times as long."""
        return Launch(floor_us=factor * self.floor_us, before_us=factor * self.before_us)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Predicted kernel times of rows of a class, in us, with the launch of each and what was measured."""

    rows: NDArray[np.int64]
    kernel_us: NDArray[np.float64]
    launch: Launch
    measured_us: NDArray[np.float64]

    @property
    def log_error(self) -> NDArray[np.float64]:
        """log(predicted / measured) of the event time."""
        found: NDArray[np.float64] = np.log(event_us(self.kernel_us, self.launch) / self.measured_us)
        return found

    @property
    def own(self) -> NDArray[np.bool_]:
        """Rows whose kernel is at least ``OWN_SHARE`` of what was measured."""
        found: NDArray[np.bool_] = self.launch.before_us <= (1.0 - OWN_SHARE) * self.measured_us
        return found

    @property
    def own_log_error(self) -> NDArray[np.float64]:
        """log(predicted / measured) of the kernel's own time, on the rows of ``own`` only."""
        own = self.own
        found: NDArray[np.float64] = np.log(self.kernel_us[own] / (self.measured_us - self.launch.before_us)[own])
        return found


def event_us(kernel_us: NDArray[np.float64], launch: Launch) -> NDArray[np.float64]:
    """What an event pair around kernels of such times shows; the kernel's own time where there is no launch in it."""
    found: NDArray[np.float64] = np.maximum(launch.floor_us, launch.before_us + kernel_us)
    return found


def launch_floors(
    measured_us: NDArray[np.float64],
    kernel_us: NDArray[np.float64],
    gpu: NDArray[np.str_],
    operation: NDArray[np.str_],
    split: NDArray[np.str_],
    kernel_class: str,
) -> NDArray[np.float64]:
    """Launch floor of each row, in us: what the quickest small kernels of its session took.

    A session (GPU, operation, split) with fewer than ``ENOUGH_ROWS`` small kernels takes the floor of the same
    operation's other sessions on that GPU, else the usual one of the operation, but none above what it measured.
    """
    floors = np.empty(measured_us.size)

    def floor_of(rows: NDArray[np.bool_]) -> float | None:
        for limit_us in (TINY_US, SMALL_US):
            small = rows & (kernel_us < limit_us)
            if np.count_nonzero(small) >= ENOUGH_ROWS:
                return float(np.percentile(measured_us[small], FLOOR_PERCENTILE))
        return None

    for name, op in sorted(set(zip(gpu.tolist(), operation.tolist(), strict=True))):
        of_operation = (gpu == name) & (operation == op)
        usual = USUAL_FLOORS_US.get(op, USUAL_FLOORS_US.get(kernel_class, USUAL_FLOOR_US))
        for part in sorted(set(split[of_operation].tolist())):
            rows = of_operation & (split == part)
            floor = floor_of(rows)
            if floor is None:
                borrowed = floor_of(of_operation)
                floor = min(usual if borrowed is None else borrowed, float(measured_us[rows].min()))
            floors[rows] = floor
    return floors


def drifting_floors(
    measured_us: NDArray[np.float64],
    kernel_us: NDArray[np.float64],
    position: NDArray[np.float64],
    session: NDArray[np.str_],
) -> NDArray[np.float64]:
    """Launch floor of rows of sessions whose host time drifts, in us.

    At evenly spaced points of a session: the median of measured - kernel over the smallest kernels around (by their
    predicted time, so that nothing measured selects them). Between the points, and beyond the outermost, on the line
    that joins neighbours.
    """
    found = np.empty(measured_us.size)
    for name in sorted(set(session.tolist())):
        of_session = np.flatnonzero(session == name)
        measured, kernel, place = measured_us[of_session], kernel_us[of_session], position[of_session]
        points: dict[float, float] = {}
        for knot in range(HOST_KNOTS):
            rows = np.flatnonzero(near_knot(place, knot))
            if rows.size:
                count = min(max(round(SMALLEST_SHARE * rows.size), ENOUGH_ROWS), rows.size)
                smallest = rows[np.argsort(kernel[rows], kind="stable")[:count]]
                points[float(np.mean(place[smallest]))] = float(np.median(measured[smallest] - kernel[smallest]))
        found[of_session] = np.maximum(_broken_line(place, points), 0.0)
    return found


def _broken_line(place: NDArray[np.float64], points: Mapping[float, float]) -> NDArray[np.float64]:
    """The line through ``points`` (place -> value) at ``place``, its ends carried on."""
    x = np.array(sorted(points))
    y = np.array([points[at] for at in x.tolist()])
    found: NDArray[np.float64] = np.interp(place, x, y)
    if x.size > 1:
        slope = np.diff(y) / np.diff(x)
        found += slope[0] * np.minimum(place - x[0], 0.0) + slope[-1] * np.maximum(place - x[-1], 0.0)
    return found


def launch_shown(
    measurements: Measurements, kernel_us: NDArray[np.float64], specs: Mapping[str, GpuSpec], kernel_class: str
) -> Launch:
    """The launch of event-timed rows, read off small kernels, given what the kernels are predicted to take.

    All GPUs of the rows are in ``specs``. Where the host's time drifts along a session it passes before the kernel
    starts (it adds the same to kernels of a tenth and of three times that time), else ``LAUNCH_SHARES`` say how much.
    """
    m = measurements
    if m.position is not None:
        floors = drifting_floors(m.measured_us, kernel_us, m.position, m.session)
        return Launch(floor_us=floors, before_us=floors)
    floors = launch_floors(m.measured_us, kernel_us, m.gpu, m.operation, m.split, kernel_class)
    return launch_of(floors, m.gpu, specs, kernel_class)


def launch_of(
    floor_us: NDArray[np.float64], gpu: NDArray[np.str_], specs: Mapping[str, GpuSpec], kernel_class: str
) -> Launch:
    """The launch of rows with such floors on GPUs that are all in ``specs``."""
    nvidia, amd = LAUNCH_SHARES[kernel_class]
    shares = {name: amd if is_amd(specs[name]) else nvidia for name in set(gpu.tolist())}
    return Launch(floor_us=floor_us, before_us=floor_us * np.array([shares[name] for name in gpu.tolist()]))


def scored_sessions(measurements: Measurements) -> set[str]:
    """Sessions that count: of an operation that was measured in two splits, ``test`` only."""
    sessions = set(measurements.session.tolist())
    return {
        name for name in sessions if not (name.endswith("/train") and name.removesuffix("train") + "test" in sessions)
    }


def scored_rows(measurements: Measurements) -> NDArray[np.int64]:
    """Rows that count: long enough to show the kernel, of a session that counts."""
    counts = scored_sessions(measurements)
    chosen = np.array([name in counts for name in measurements.session.tolist()], dtype=np.bool_)
    return np.flatnonzero(chosen & (measurements.measured_us >= measurements.scored_us))


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A fitted law with its residual trees (None: law alone)."""

    law: Law
    fit: LawFit
    booster: Any | None
    feature_low: NDArray[np.float64]
    feature_high: NDArray[np.float64]
    vectors: tuple[tuple[float, ...], ...]
    specs: tuple[GpuSpec, ...]


def on_matrix_units(measurements: Measurements) -> bool:
    """Whether rows are of matrix units, or AMD's which may be, whose rate then tells GPUs apart."""
    return measurements.dtype not in ("float32", f"float32{OF_DATA}", f"float32{OF_WEIGHT}")


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
    used = tuple(specs[gpu] for gpu in fit.gpus)
    vectors = tuple(gpu_vector(gpu, matrix_units=on_matrix_units(measurements)) for gpu in used)
    if settings is None:
        nothing = np.zeros(width)
        return Trained(
            law=law, fit=fit, booster=None, feature_low=nothing, feature_high=nothing, vectors=vectors, specs=used
        )
    residuals = residual_rows(law, kept, specs, fit, settings, seed=seed)
    return Trained(
        law=law,
        fit=fit,
        booster=fit_residual(residuals, law.feature_names, settings, seed=seed),
        feature_low=residuals.features.min(axis=0).astype(np.float64),
        feature_high=residuals.features.max(axis=0).astype(np.float64),
        vectors=vectors,
        specs=used,
    )


def predict_rows(
    trained: Trained, measurements: Measurements, rows: NDArray[np.int64], gpu: GpuSpec, *, unseen_weight: float
) -> NDArray[np.float64]:
    """Kernel times in us of rows of one GPU, as the shipped predictor would give them."""
    kernels = measurements.select(rows).kernels
    answer = apply_law(trained.law, kernels, gpu, trained.fit.constants)
    latency = answer.result.latency_us
    if trained.booster is not None:
        names, booster = trained.law.feature_names, trained.booster
        unmeasured = answer.result.unmeasured
        told = 1.0 if unmeasured is None else np.where(unmeasured, 0.0, 1.0)

        def trees(of: NDArray[np.float32]) -> NDArray[np.float64]:
            found: NDArray[np.float64] = booster.predict(of.astype(np.float64), num_threads=1)
            return found

        def inside(of: NDArray[np.float32]) -> NDArray[np.float64]:
            return told * shape_weight(of, trained.feature_low, trained.feature_high, names)

        def of_the_nearest() -> NDArray[np.float32]:
            other = trained.specs[nearest_of(gpu, trained.vectors)]
            return features_elsewhere(trained.law, kernels, gpu, other, trained.fit.constants)

        near = gpu_weight(gpu, trained.vectors)
        carried = carried_over(trees, inside, answer.features, near, unseen_weight, of_the_nearest)
        latency = latency * np.exp(carried.correction)
    return np.maximum(latency, answer.result.least_us)


def launches_of(law: Law, measurements: Measurements, specs: Mapping[str, GpuSpec], fit: LawFit) -> Launch:
    """Launch of every row whose GPU is in ``specs`` (zero elsewhere, and where the kernel's own time was measured)."""
    nothing = Launch(floor_us=np.zeros(len(measurements)), before_us=np.zeros(len(measurements)))
    if measurements.timing != EVENTS:
        return nothing
    kernel_us = np.full(len(measurements), np.inf)
    for gpu in sorted(set(measurements.gpu.tolist()) & set(specs)):
        # only rows near the floor can be tiny: the rest need not be estimated
        of_gpu = measurements.gpu == gpu
        limit_us = 4 * SCORED_US if measurements.position is None else np.inf
        near = np.flatnonzero(of_gpu & (measurements.measured_us < limit_us))
        if near.size:
            answer = apply_law(law, measurements.select(near).kernels, specs[gpu], fit.constants)
            kernel_us[near] = answer.result.latency_us
    known = np.flatnonzero(np.isin(measurements.gpu, sorted(specs)))
    part = measurements.select(known)
    found = launch_shown(part, kernel_us[known], specs, law.kernel_class)
    nothing.floor_us[known], nothing.before_us[known] = found.floor_us, found.before_us
    return nothing


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What came of training without some GPUs: the law's constants, and the scores on them by residual weight."""

    constants: Mapping[str, float]
    scored: Mapping[float, Scored]


def leave_out(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    groups: Mapping[str, Sequence[str]],
    *,
    seed: int,
    settings: ResidualSettings | None,
    unseen_weights: Sequence[float] = (0.0,),
) -> dict[str, LeftOut]:
    """For each group of GPUs: everything trained without them, then scored on them.

    ``unseen_weights`` are tried in turn.
    """
    counted = scored_rows(measurements)
    found: dict[str, LeftOut] = {}
    for group, left_out in groups.items():
        rest = {name: spec for name, spec in specs.items() if name not in left_out}
        if not set(measurements.gpu.tolist()) & set(rest):
            continue
        trained = train_once(law, measurements, rest, seed=seed, settings=settings)
        launches = launches_of(law, measurements, {name: specs[name] for name in left_out}, trained.fit)
        scored: dict[float, Scored] = {}
        for weight in unseen_weights:
            parts: list[Scored] = []
            for gpu in left_out:
                rows = counted[measurements.gpu[counted] == gpu]
                if rows.size:
                    parts.append(
                        Scored(
                            rows=rows,
                            kernel_us=predict_rows(trained, measurements, rows, specs[gpu], unseen_weight=weight),
                            launch=launches.take(rows),
                            measured_us=measurements.measured_us[rows],
                        )
                    )
            if parts:
                scored[weight] = _joined(parts)
        if scored:
            found[group] = LeftOut(constants=trained.fit.constants, scored=scored)
    return found


def new_shapes(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    *,
    seed: int,
    settings: ResidualSettings | None,
    fold_count: int = FOLDS,
) -> Scored:
    """Folds by exact shape: a shape is scored by a model that saw the GPU but not the shape, on any GPU.

    ``fold_count``: how many of the folds are trained and scored; one holds a fifth of the shapes.
    """
    group = measurements.shape_group
    # a shape's fold is a permutation by seed, so that neighbours in the file don't share a fold
    fold_of = np.random.default_rng(seed).permutation(int(group.max()) + 1) % FOLDS
    counted = scored_rows(measurements)
    parts: list[Scored] = []
    for fold in range(fold_count):
        excluded = fold_of[group] == fold
        trained = train_once(law, measurements, specs, seed=seed, settings=settings, excluded_groups=excluded)
        launches = launches_of(law, measurements, specs, trained.fit)
        for gpu in trained.fit.gpus:
            rows = counted[(measurements.gpu[counted] == gpu) & excluded[counted]]
            if rows.size:
                parts.append(
                    Scored(
                        rows=rows,
                        kernel_us=predict_rows(trained, measurements, rows, specs[gpu], unseen_weight=0.0),
                        launch=launches.take(rows),
                        measured_us=measurements.measured_us[rows],
                    )
                )
    return _joined(parts)


def _joined(parts: Sequence[Scored]) -> Scored:
    return Scored(
        rows=np.concatenate([part.rows for part in parts]),
        kernel_us=np.concatenate([part.kernel_us for part in parts]),
        launch=Launch(
            floor_us=np.concatenate([part.launch.floor_us for part in parts]),
            before_us=np.concatenate([part.launch.before_us for part in parts]),
        ),
        measured_us=np.concatenate([part.measured_us for part in parts]),
    )


def mape_percent(log_error: NDArray[np.float64]) -> float:
    """Mean absolute percentage error of log(predicted / measured)."""
    return 100.0 * float(np.mean(np.abs(np.expm1(log_error))))
