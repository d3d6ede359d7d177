"""Fits a law's constants, and a LightGBM model of what the law leaves over.

A row's measured time is ``H + T / level``: ``H`` the host's launch time of its session (zero where the kernel's
own time was measured), ``T`` the law's answer, ``level`` the session's speed against the GPU's normal one. Findings
on the data say that host time adds (an event pair around one launch sees both), so that is what is fitted. Constants
are shared by all GPUs; ``H`` and ``level`` are nuisances of a session, fitted beside them and dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Columns, Law
from neusight_onnx.laws.catalog import apply_law
from neusight_onnx.laws.gemm.machine import holds_clock
from neusight_onnx.learning.datasets.parts import EVENTS, Measurements
from neusight_onnx.learning.extras import require

ROWS_PER_SESSION = 500
"""Rows that a session brings to the fit of some twenty constants; more rows of one session add no information."""

ROWS_IN_ALL = 12_000
"""Rows of all sessions together that the constants are fitted on: elementwise kernels have more than a hundred
sessions, and time goes with rows x sessions^2."""

SESSION_WEIGHT = 300.0
"""All rows of a session weigh together like so many, however many they are."""

SOFT_SCALE = 0.08
"""Residuals in log beyond this count by their size, not by their square (soft L1)."""

PRIOR_STRENGTH = sqrt(60.0) * SOFT_SCALE
"""One standard deviation off the prior costs like 60 rows that miss by one soft-L1 scale: rows of a session err alike,
so that a session's 300 rows are not 300 independent ones."""

LEVEL_LOG_SD = 0.1
"""How far the speed of a session on a card that holds its clock is expected from 1 (log)."""
THROTTLED_LEVEL_LOG_SD = 1.0
"""The same where the power limit does not allow the boost clock: the card may have been hot as well."""
HOST_SHARE: Mapping[str, float] = {
    "gemm": 0.75,
    "conv": 0.9,
    "elementwise": 0.5,
    "softmax": 0.75,
    "normalization": 0.75,
}
"""Host time before the kernel in the smallest times of a session: the rest is the tiny kernel, and what the host does
after the launch. Elementwise kernels of more than 100 us lie 13-18 us (A100, V100, P4, T4) and 20-29 us (P100) above
their bandwidth line, half of the smallest times; with a larger share the fit makes DRAM too fast instead.
"""
HOST_KNOTS = 9
"""Points, evenly spaced over a session whose host time drifts, at which that time is a number of its own; between
them it is on the line that joins them."""
DRIFT_ROWS_PER_SESSION = 2000
"""Rows of a drifting session that are fitted: each of its points needs some."""
HOST_LOG_SD = 0.5
"""How well the smallest measured time of a session tells its host time (log)."""
LOST_SESSION_LOG_LEVEL = 0.6
"""A session further than this from its GPU's other session ran something else (another library, a hot card)."""
INFORMATIVE_RATIO = 1.4
"""Rows below this many times what the session's smallest kernels take say nothing about the kernel."""
HIDDEN_SHARE = 0.25
"""A kernel that the law puts below this share of its session's smallest times is hidden behind the host. The residual
is told to leave it to the law: it would extrapolate from kernels ten times as long otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a session's rows have in common: host time, level (speed against normal), and whether it is used.

    ``host_knots_us``: the host time at evenly spaced points of the session, one number where it doesn't drift.
    """

    name: str
    host_knots_us: tuple[float, ...]
    level: float
    row_count: int
    used: bool

    @property
    def host_us(self) -> float:
        """Host time in the middle of the session."""
        return float(np.mean(self.host_knots_us))

    def host_at_us(self, position: NDArray[np.float64]) -> NDArray[np.float64]:
        """Host time of rows at these positions, 0 to 1."""
        knots = np.array(self.host_knots_us)
        found: NDArray[np.float64] = np.interp(position, np.linspace(0.0, 1.0, knots.size), knots)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """Constants of a law, the sessions they were fitted on, and the GPUs these came from."""

    constants: Mapping[str, float]
    sessions: Mapping[str, Session]
    gpus: tuple[str, ...]


def host_floor_us(measured_us: NDArray[np.float64]) -> float:
    """Smallest times of a session (first percentile), its host time plus a tiny kernel, in us."""
    return float(np.percentile(measured_us, 1.0))


def session_floors_us(measurements: Measurements) -> dict[str, float]:
    """Smallest times of each session, in us: those of the operation's other sessions on the GPU where these are less.

    Zero where the kernel's own time was measured.
    """
    names = sorted(set(measurements.session.tolist()))
    if measurements.timing != EVENTS:
        return dict.fromkeys(names, 0.0)
    operation = np.array([name.rsplit("/", 1)[0] for name in measurements.session.tolist()])
    floors = {}
    for name in names:
        siblings = measurements.measured_us[operation == name.rsplit("/", 1)[0]]
        floors[name] = min(host_floor_us(siblings), float(measurements.measured_us[measurements.session == name].min()))
    return floors


def take(columns: Columns, rows: NDArray[np.int64]) -> dict[str, Column]:
    """The given rows of every column."""
    return {name: column[rows] for name, column in columns.items()}


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Rows of one GPU, ready for the law."""

    spec: GpuSpec
    columns: Columns
    measured_us: Column
    session: NDArray[np.int64]
    position: Column


def _reference_sessions(sessions: Sequence[str]) -> set[str]:
    """Sessions whose level is the GPU's own: the ``test`` split of an operation, else the only one there is."""
    by_operation: dict[str, list[str]] = {}
    for name in sessions:
        by_operation.setdefault(name.rsplit("/", 1)[0], []).append(name)
    return {
        f"{prefix}/test" if f"{prefix}/test" in names else sorted(names)[0] for prefix, names in by_operation.items()
    }


def _level_log_sd(spec: GpuSpec) -> float:
    return LEVEL_LOG_SD if holds_clock(spec) else THROTTLED_LEVEL_LOG_SD


def _soften(errors: Column) -> tuple[Column, Column]:
    """Soft L1 as a change of variable (its square is the loss), and its derivative; priors stay quadratic beside it."""
    ratio = errors / SOFT_SCALE
    root = np.sqrt(1.0 + ratio**2)
    softened = SOFT_SCALE * np.sign(errors) * np.sqrt(2.0 * (root - 1.0))
    slope = np.sqrt((root + 1.0) / 2.0) / root
    return softened, slope


@dataclass(frozen=True, kw_only=True)
class _Problem:
    """One round's least squares. The unknowns x are logs: free constants, then hosts, then free levels.

    ``free`` and ``free_level`` are indices into the law's constants and into sessions; hosts are all free where
    rows are event-timed, else absent. A row's host time lies between those of the knots ``left`` and ``right``
    (indices into the hosts), ``right_share`` of the way.
    """

    law: Law
    blocks: Sequence[_Block]
    weight: Column
    prior: Column
    prior_sd: Column
    fixed: Column
    free: NDArray[np.int64]
    host_prior: Column
    event_timed: bool
    level_sd: Column
    free_level: NDArray[np.int64]
    session: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    right_share: Column
    measured_us: Column

    def unpack(self, x: Column) -> tuple[Column, Column, Column]:
        """Logs of all constants, of all hosts and of all levels."""
        constants = self.fixed.copy()
        constants[self.free] = x[: self.free.size]
        host_count = self.host_prior.size if self.event_timed else 0
        host = x[self.free.size : self.free.size + host_count] if self.event_timed else self.host_prior
        level = np.zeros(self.level_sd.size)
        level[self.free_level] = x[self.free.size + host_count :]
        return constants, host, level

    def start(self) -> Column:
        hosts = self.host_prior if self.event_timed else np.zeros(0)
        return np.concatenate([self.fixed[self.free], hosts, np.zeros(self.free_level.size)])

    def _kernel_us(self, constants: Column, level: Column) -> Column:
        named = named_constants(self.law, constants)
        times = [self.law.estimate(block.columns, block.spec, named).latency_us for block in self.blocks]
        found: Column = np.concatenate(times) * np.exp(-level[self.session])
        return found

    def _host_us(self, host: Column) -> Column:
        if not self.event_timed:
            return np.zeros(self.session.size)
        knots = np.exp(host)
        found: Column = (1.0 - self.right_share) * knots[self.left] + self.right_share * knots[self.right]
        return found

    def residuals(self, x: Column) -> Column:
        constants, host, level = self.unpack(x)
        predicted = self._kernel_us(constants, level) + self._host_us(host)
        pulls = [(constants[self.free] - self.prior[self.free]) / self.prior_sd[self.free]]
        if self.event_timed:
            pulls.append((host - self.host_prior) / HOST_LOG_SD)
        pulls.append(level[self.free_level] / self.level_sd[self.free_level])
        errors = self.weight * _soften(np.log(self.measured_us / predicted))[0]
        return np.concatenate([errors, PRIOR_STRENGTH * np.concatenate(pulls)])

    def jacobian(self, x: Column) -> Column:
        """Constants by forward differences, hosts and levels exactly."""
        constants, host, level = self.unpack(x)
        kernel, host_us = self._kernel_us(constants, level), self._host_us(host)
        total = kernel + host_us
        weight = self.weight * _soften(np.log(self.measured_us / total))[1]
        rows, step = self.session.size, 1e-4
        matrix = np.zeros((rows + x.size, x.size))
        for column, index in enumerate(self.free.tolist()):
            moved = constants.copy()
            moved[index] += step
            matrix[:rows, column] = -weight * (self._kernel_us(moved, level) - kernel) / step / total
        every = np.arange(rows)
        first_level = self.free.size
        scales = [self.prior_sd[self.free]]
        if self.event_timed:
            knots = np.exp(host)
            np.add.at(
                matrix,
                (every, self.free.size + self.left),
                -weight * (1.0 - self.right_share) * knots[self.left] / total,
            )
            np.add.at(
                matrix, (every, self.free.size + self.right), -weight * self.right_share * knots[self.right] / total
            )
            first_level += self.host_prior.size
            scales.append(np.full(self.host_prior.size, HOST_LOG_SD))
        scales.append(self.level_sd[self.free_level])
        place = np.full(self.level_sd.size, -1)
        place[self.free_level] = first_level + np.arange(self.free_level.size)
        has_level = place[self.session] >= 0
        matrix[every[has_level], place[self.session[has_level]]] = (weight * kernel / total)[has_level]
        matrix[rows:] = np.diag(PRIOR_STRENGTH / np.concatenate(scales))
        return matrix


def named_constants(law: Law, logs: Column) -> dict[str, float]:
    """Constants by name from their logs, in the law's order."""
    return {constant.name: float(np.exp(value)) for constant, value in zip(law.constants, logs, strict=True)}


def fit_law(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    *,
    seed: int,
    rounds: int = 2,
    fixed: Mapping[str, float] | None = None,
) -> LawFit:
    """Fits ``law.constants`` to all rows whose GPU is in ``specs``; ``fixed`` constants keep the given value.

    Soft-L1 least squares on log(measured / predicted), with the constants' priors (a constant without spread in its
    prior is not fitted), balanced over sessions. Where the law has discrete choices they are made anew in each of
    ``rounds``. Deterministic for a given seed.
    """
    optimize = require("scipy.optimize")
    known = np.array([gpu in specs for gpu in measurements.gpu.tolist()], dtype=np.bool_)
    names = sorted(set(measurements.session[known].tolist()))
    event_timed = measurements.timing == EVENTS
    rows_of, hosts_of, counts = _rows_to_fit(measurements, names, seed=seed)
    hosts = np.concatenate(hosts_of)
    first_knot = np.concatenate([[0], np.cumsum([knots.size for knots in hosts_of])]).astype(np.int64)
    blocks = _blocks(law, measurements, specs, names, rows_of)
    references = _reference_sessions(names)
    level_sd = np.array([0.0 if name in references else _level_log_sd(specs[name.split("/", 1)[0]]) for name in names])
    given = dict(fixed or {})
    prior = np.log([constant.prior for constant in law.constants])
    logs = np.log([given.get(constant.name, constant.prior) for constant in law.constants])
    prior_sd = np.array([constant.prior_log_sd for constant in law.constants])
    free = np.array([i for i, c in enumerate(law.constants) if c.name not in given and c.prior_log_sd > 0], dtype=int)
    session = np.concatenate([block.session for block in blocks])
    spans = np.diff(first_knot)[session] - 1
    place = np.concatenate([block.position for block in blocks]) * spans
    left = np.minimum(np.floor(place).astype(np.int64), np.maximum(spans - 1, 0))
    per_session = np.bincount(session, minlength=len(names)).astype(np.float64)
    balance = np.sqrt(SESSION_WEIGHT / np.maximum(per_session, 0.1 * SESSION_WEIGHT))
    used = np.ones(len(names), dtype=np.bool_)
    host, level = np.log(hosts), np.zeros(len(names))
    right = np.minimum(left + 1, spans)
    for _ in range(max(rounds, 1)):
        named = named_constants(law, logs)
        pinned = [replace(b, columns=law.pin(b.columns, b.spec, named)) for b in blocks] if law.pin else blocks
        problem = _Problem(
            law=law,
            blocks=pinned,
            weight=(balance * used)[session],
            prior=prior,
            prior_sd=prior_sd,
            fixed=logs,
            free=free,
            host_prior=np.log(hosts),
            event_timed=event_timed,
            level_sd=level_sd,
            free_level=np.flatnonzero(level_sd > 0),
            session=session,
            left=first_knot[session] + left,
            right=first_knot[session] + right,
            right_share=place - left,
            measured_us=np.concatenate([block.measured_us for block in blocks]),
        )
        found = optimize.least_squares(
            problem.residuals, problem.start(), jac=problem.jacobian, max_nfev=40, xtol=1e-5, ftol=1e-6
        )
        logs, host, level = problem.unpack(found.x)
        used &= np.abs(level) <= LOST_SESSION_LOG_LEVEL
    sessions = {
        name: Session(
            name=name,
            host_knots_us=tuple(np.exp(host[first_knot[i] : first_knot[i + 1]]).tolist()) if event_timed else (0.0,),
            level=float(np.exp(level[i])),
            row_count=int(counts[i]),
            used=bool(used[i]),
        )
        for i, name in enumerate(names)
    }
    gpus = tuple(sorted({name.split("/", 1)[0] for name in names}))
    return LawFit(constants=named_constants(law, logs), sessions=sessions, gpus=gpus)


def _rows_to_fit(
    measurements: Measurements, names: Sequence[str], *, seed: int
) -> tuple[list[NDArray[np.int64]], list[Column], NDArray[np.int64]]:
    """Per session: the rows that are fitted, the host times expected in us (one a knot), how many rows there are."""
    random = np.random.default_rng(seed)
    rows_of: list[NDArray[np.int64]] = []
    hosts: list[Column] = []
    counts = np.zeros(len(names), dtype=np.int64)
    floors = session_floors_us(measurements)
    per_session = min(ROWS_PER_SESSION, ROWS_IN_ALL // max(len(names), 1))
    for i, name in enumerate(names):
        rows = np.flatnonzero(measurements.session == name)
        counts[i] = rows.size
        if measurements.timing == EVENTS:
            # the smallest times of the operation's sessions are host time and a tiny kernel
            rows = rows[measurements.measured_us[rows] > INFORMATIVE_RATIO * floors[name]]
            hosts.append(np.array([HOST_SHARE[measurements.kernel_class] * floors[name]]))
        else:
            # the smallest show a launch that is shorter than that of kernels which fetch much: the residual has them
            rows = rows[measurements.measured_us[rows] >= measurements.scored_us]
            hosts.append(np.array([1e-6]))
        limit = per_session
        if measurements.position is not None and measurements.timing == EVENTS:
            of_session = np.flatnonzero(measurements.session == name)
            envelope = lower_envelope_us(measurements.measured_us[of_session], measurements.position[of_session])
            hosts[-1] = HOST_SHARE[measurements.kernel_class] * envelope
            limit = DRIFT_ROWS_PER_SESSION
        if rows.size > limit:
            rows = np.sort(random.choice(rows, limit, replace=False))
        rows_of.append(rows)
    return rows_of, hosts, counts


def near_knot(position: NDArray[np.float64], knot: int) -> NDArray[np.bool_]:
    """Rows nearer than one step to a knot of a drifting session."""
    found: NDArray[np.bool_] = np.abs(position * (HOST_KNOTS - 1) - knot) < 1.0
    return found


def lower_envelope_us(measured_us: NDArray[np.float64], position: NDArray[np.float64]) -> NDArray[np.float64]:
    """Smallest times around each knot of a drifting session, in us; a stretch without rows takes the session's."""
    overall = host_floor_us(measured_us)
    return np.array(
        [
            host_floor_us(measured_us[rows]) if np.any(rows) else overall
            for rows in (near_knot(position, knot) for knot in range(HOST_KNOTS))
        ]
    )


def _blocks(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    names: Sequence[str],
    rows_of: Sequence[NDArray[np.int64]],
) -> list[_Block]:
    index_of = {name: i for i, name in enumerate(names)}
    by_gpu: dict[str, list[NDArray[np.int64]]] = {}
    for name, rows in zip(names, rows_of, strict=True):
        by_gpu.setdefault(name.split("/", 1)[0], []).append(rows)
    blocks = []
    for gpu, parts in sorted(by_gpu.items()):
        part = measurements.select(np.concatenate(parts))
        if len(part):
            blocks.append(
                _Block(
                    spec=specs[gpu],
                    columns=law.columns(part.kernels),
                    measured_us=part.measured_us,
                    session=np.array([index_of[name] for name in part.session.tolist()], dtype=np.int64),
                    position=np.zeros(len(part)) if part.position is None else part.position,
                )
            )
    return blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualSettings:
    """Settings of the LightGBM model of log(kernel time / law).

    ``huber``: errors in log beyond it count by their size, not by their square; 0: all by their size (L1).
    ``hidden_clarity``: kernels hidden behind the host count at least as rows of which the kernel is that share.
    ``bounded``: rows that are neither clear of the host nor hidden count alike; they show at most how long a kernel is.
    """

    tree_count: int = 300
    leaf_count: int = 24
    learning_rate: float = 0.06
    rows_per_leaf: int = 40
    feature_fraction: float = 0.6
    l2: float = 5.0
    row_limit: int = 80_000
    test_weight: float = 3.0
    huber: float = 0.0
    hidden_clarity: float = 0.0
    bounded: bool = False


RESIDUALS: Mapping[str, ResidualSettings] = {
    # a library's choices follow the exact sizes, so all rows, small leaves and many trees pay (new shapes, two folds,
    # mean over GPU x operation: 500 trees 5.1 %, 700 5.0, 1,000 4.9; more weight on real sizes, another Huber's width,
    # sums and differences of sizes as features: none)
    "gemm": ResidualSettings(
        tree_count=1000,
        leaf_count=64,
        rows_per_leaf=6,
        learning_rate=0.1,
        feature_fraction=0.8,
        l2=1.0,
        huber=0.1,
        row_limit=400_000,
        # DeepBench's 512 and 1,024 x 16 x 512 take 10-20 us on V100, T4 and P100, as the law says; trees that were told
        # little of the hidden rows and nothing of those next to them made them 14-37
        hidden_clarity=1.0 - 1.0 / INFORMATIVE_RATIO,
        bounded=True,
    ),
    # as the least clear of the rows that are informative: with the few per cent of their own, trees go on to the
    # smallest kernels with what the next larger ones show, and on the T4 that is a host that slowed down by 7 us in
    # the middle of its session (relu of 200,000 to 700,000 elements: 39 us whatever the size, of fewer 32)
    "elementwise": ResidualSettings(hidden_clarity=1.0 - 1.0 / INFORMATIVE_RATIO),
}
"""Settings by kernel class where the usual ones are not the best."""


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """Rows for the residual model: features (n, f) float32, log(kernel time / law), weights, indices of the rows."""

    features: NDArray[np.float32]
    log_ratio: NDArray[np.float64]
    weight: NDArray[np.float64]
    rows: NDArray[np.int64]


def residual_rows(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    fit: LawFit,
    settings: ResidualSettings,
    *,
    seed: int,
) -> Residuals:
    """What the fitted law leaves over on informative rows of the sessions in use, the session's level taken out.

    Kernels that are hidden behind the host (``HIDDEN_SHARE``) come along with nothing left over. Of those between
    hidden and clear the time beyond the host's is a bound (``settings.bounded``): the law stands unless it is longer.
    """
    random = np.random.default_rng(seed)
    per_session = max(settings.row_limit // max(len(fit.sessions), 1), 200)
    floor_of = session_floors_us(measurements)
    features, ratios, weights, kept = [], [], [], []
    for gpu in fit.gpus:
        rows = np.flatnonzero(measurements.gpu == gpu)
        names = measurements.session[rows].tolist()
        rows = rows[np.array([fit.sessions[name].used for name in names], dtype=np.bool_)]
        names = measurements.session[rows].tolist()
        position = np.zeros(rows.size) if measurements.position is None else measurements.position[rows]
        host = np.zeros(rows.size)
        for name in set(names):
            of_session = measurements.session[rows] == name
            host[of_session] = fit.sessions[name].host_at_us(position[of_session])
        shown = np.maximum(host, np.array([floor_of[name] for name in names]))
        # of a drifting session the kernels that are hidden even where the host is quickest
        least = np.array([max(min(fit.sessions[name].host_knots_us), floor_of[name]) for name in names])
        clear = measurements.measured_us[rows] > INFORMATIVE_RATIO * shown
        keep = _at_most(per_session, clear, names, random) | _at_most(per_session // 4, ~clear, names, random)
        if not keep.any():
            continue
        rows, host, least, clear = rows[keep], host[keep], least[keep], clear[keep]
        session = measurements.session[rows]
        level = np.array([fit.sessions[name].level for name in session.tolist()])
        measured = measurements.measured_us[rows]
        answer = apply_law(law, measurements.select(rows).kernels, specs[gpu], fit.constants)
        law_us = answer.result.latency_us
        hidden = ~clear & (law_us < HIDDEN_SHARE * least)
        # what the host leaves over is no shorter than what it would hide
        left_us = np.maximum(measured - host, np.where(clear, 1e-3, HIDDEN_SHARE * least))
        kernel_us = np.where(hidden, law_us, left_us)
        told = clear | hidden | settings.bounded
        features.append(answer.features[told])
        ratio = np.where(hidden, 0.0, np.log(kernel_us * level / law_us))
        ratios.append(np.where(clear, ratio, np.minimum(ratio, 0.0))[told])
        # a row near the floor tells little: the error of the host time is a larger share of what is left
        clarity = kernel_us / measured
        clarity = np.where(hidden, np.maximum(clarity, settings.hidden_clarity), clarity)
        _, inverse, count = np.unique(session, return_inverse=True, return_counts=True)
        test = measurements.split[rows] == "test"
        weights.append((clarity**2 * np.where(test, settings.test_weight, 1.0) / np.sqrt(count[inverse]))[told])
        kept.append(rows[told])
    weight = np.concatenate(weights)
    return Residuals(
        features=np.concatenate(features),
        log_ratio=np.concatenate(ratios),
        weight=weight / weight.mean(),
        rows=np.concatenate(kept),
    )


def _at_most(
    limit: int, chosen: NDArray[np.bool_], names: Sequence[str], random: np.random.Generator
) -> NDArray[np.bool_]:
    """The chosen rows, in a session of more than ``limit`` a sample of so many."""
    session = np.array(names, dtype=np.str_)
    kept = chosen.copy()
    for name in sorted(set(names)):
        rows = np.flatnonzero(chosen & (session == name))
        if rows.size > limit:
            kept[np.setdiff1d(rows, random.choice(rows, limit, replace=False))] = False
    return kept


def fit_residual(residuals: Residuals, feature_names: Sequence[str], settings: ResidualSettings, *, seed: int) -> Any:
    """Trains LightGBM (L1, or Huber's loss) on residual rows.

    One thread and fixed seeds, so that the same rows give the same trees.
    """
    lightgbm = require("lightgbm")
    data = lightgbm.Dataset(
        residuals.features,
        label=np.clip(residuals.log_ratio, -2.0, 2.0),
        weight=residuals.weight,
        feature_name=list(feature_names),
        params={"verbose": -1, "max_bin": 255},
    )
    parameters = {
        **({"objective": "huber", "alpha": settings.huber} if settings.huber else {"objective": "regression_l1"}),
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.leaf_count,
        "min_data_in_leaf": settings.rows_per_leaf,
        "feature_fraction": settings.feature_fraction,
        "lambda_l2": settings.l2,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbose": -1,
    }
    return lightgbm.train(parameters, data, num_boost_round=settings.tree_count)
