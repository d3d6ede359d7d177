"""Fits a law's constants, and a LightGBM model of what the law leaves over.

A row's measured time is ``H + T / level``: ``H`` the host's launch time of its session (zero where the kernel's
own time was measured), ``T`` the law's answer, ``level`` the session's speed against the GPU's normal one. Findings
on the data say that host time adds (an event pair around one launch sees both), so that is what is fitted. Constants
are shared by all GPUs; ``H`` and ``level`` are nuisances of a session, fitted beside them and dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Columns, Constants, Law
from neusight_onnx.laws.catalog import apply_law
from neusight_onnx.learning.datasets import EVENTS, Measurements, require

ROWS_PER_SESSION = 500
"""Rows that a session brings to the fit of some twenty constants; more rows of one session add no information."""

PRIOR_WEIGHT = 60.0
"""A prior pulls like so many rows that miss by one soft-L1 scale: rows of one session err alike, not independently."""

SOFT_SCALE = 0.08
"""Residuals in log beyond this count by their size, not by their square (soft L1)."""

LEVEL_LOG_SD = 0.1
"""How far the speed of a session on a card that holds its clock is expected from 1 (log)."""
THROTTLED_LEVEL_LOG_SD = 1.0
"""The same where the power limit does not allow the boost clock: the card may have been hot as well."""
FULL_POWER_W_PER_GFLOPS = {16: 0.0150, 12: 0.0150, 7: 0.0085}
"""W that a GFLOP/s of FP32 peak takes at full load, by process (nm): a card with less can't hold its boost clock."""
HOST_LOG_SD = 0.25
"""How well the smallest measured time of a session tells its host time (log)."""
LOST_SESSION_LOG_LEVEL = 0.6
"""A session further than this from its GPU's other session ran something else (another library, a hot card)."""
INFORMATIVE_RATIO = 1.4
"""Rows below this many times the session's host time say nothing about the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a session's rows have in common: host time, level (speed against normal), and whether it is used."""

    name: str
    host_us: float
    level: float
    row_count: int
    used: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """Constants of a law, the sessions they were fitted on, and the GPUs these came from."""

    constants: Mapping[str, float]
    sessions: Mapping[str, Session]
    gpus: tuple[str, ...]


def host_floor_us(measured_us: NDArray[np.float64]) -> float:
    """Smallest times of a session (first percentile), its host time plus a tiny kernel, in us."""
    return float(np.percentile(measured_us, 1.0))


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


def _reference_sessions(measurements: Measurements, sessions: Sequence[str]) -> set[str]:
    """Sessions whose level is the GPU's own: the ``test`` split of an operation, else the only one there is."""
    by_operation: dict[str, list[str]] = {}
    for name in sessions:
        by_operation.setdefault(name.rsplit("/", 1)[0], []).append(name)
    chosen: set[str] = set()
    for prefix, names in by_operation.items():
        chosen.add(f"{prefix}/test" if f"{prefix}/test" in names else sorted(names)[0])
    return chosen


def _level_log_sd(spec: GpuSpec) -> float:
    nodes = np.array(sorted(FULL_POWER_W_PER_GFLOPS))
    need = np.interp(spec.process_nm, nodes, [FULL_POWER_W_PER_GFLOPS[int(node)] for node in nodes])
    holds = spec.power_w / (spec.peak_flops_per_s["fp32"] / 1e9) >= need
    return LEVEL_LOG_SD if holds else THROTTLED_LEVEL_LOG_SD


def _soften(errors: Column) -> tuple[Column, Column]:
    """Soft L1 as a change of variable (its square is the loss), and its derivative; priors stay quadratic beside it."""
    ratio = errors / SOFT_SCALE
    root = np.sqrt(1.0 + ratio**2)
    softened = SOFT_SCALE * np.sign(errors) * np.sqrt(2.0 * (root - 1.0))
    slope = np.sqrt((root + 1.0) / 2.0) / root
    return softened, slope


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

    Soft-L1 least squares on log(measured / predicted), with the constants' priors, balanced over sessions. Where
    the law has discrete choices they are made anew in each of ``rounds``. Deterministic for a given seed.
    """
    optimize = require("scipy.optimize")
    random = np.random.default_rng(seed)
    known = np.array([gpu in specs for gpu in measurements.gpu.tolist()], dtype=np.bool_)
    names = sorted(set(measurements.session[known].tolist()))
    index_of = {name: i for i, name in enumerate(names)}
    event_timed = measurements.timing == EVENTS
    hosts = np.full(len(names), 1e-6)
    blocks_rows: dict[str, list[NDArray[np.int64]]] = {}
    counts = np.zeros(len(names), dtype=np.int64)
    for name, i in index_of.items():
        rows = np.flatnonzero(measurements.session == name)
        counts[i] = rows.size
        if event_timed:
            operation = np.flatnonzero(np.char.startswith(measurements.session, name.rsplit("/", 1)[0] + "/"))
            hosts[i] = min(host_floor_us(measurements.measured_us[operation]), measurements.measured_us[rows].min())
            rows = rows[measurements.measured_us[rows] > INFORMATIVE_RATIO * hosts[i]]
        if rows.size > ROWS_PER_SESSION:
            rows = np.sort(random.choice(rows, ROWS_PER_SESSION, replace=False))
        blocks_rows.setdefault(name.split("/", 1)[0], []).append(rows)
    blocks: list[_Block] = []
    for gpu, parts in sorted(blocks_rows.items()):
        rows = np.concatenate(parts)
        part = measurements.select(rows)
        blocks.append(
            _Block(
                spec=specs[gpu],
                columns=law.columns(part.kernels),
                measured_us=part.measured_us,
                session=np.array([index_of[name] for name in part.session.tolist()], dtype=np.int64),
            )
        )
    reference = _reference_sessions(measurements, names)
    level_sd = np.array([0.0 if name in reference else _level_log_sd(specs[name.split("/", 1)[0]]) for name in names])
    priors = np.log([constant.prior for constant in law.constants])
    prior_sd = np.array([constant.prior_log_sd for constant in law.constants])
    given = dict(fixed or {})
    free = [i for i, constant in enumerate(law.constants) if constant.name not in given and constant.prior_log_sd > 0]
    logs = priors.copy()
    for i, constant in enumerate(law.constants):
        if constant.name in given:
            logs[i] = np.log(given[constant.name])
    host_prior = np.log(np.maximum(hosts * 0.75, 1e-6))
    free_host = np.arange(len(names)) if event_timed else np.zeros(0, dtype=np.int64)
    free_level = np.flatnonzero(level_sd > 0)
    used = np.ones(len(names), dtype=np.bool_)
    host_log = host_prior.copy()
    level_log = np.zeros(len(names))

    def constants_of(values: NDArray[np.float64]) -> dict[str, float]:
        return {constant.name: float(np.exp(value)) for constant, value in zip(law.constants, values, strict=True)}

    for _ in range(max(rounds, 1)):
        pinned = [
            law.pin(block.columns, block.spec, constants_of(logs)) if law.pin else block.columns for block in blocks
        ]
        session = np.concatenate([block.session for block in blocks])
        measured = np.concatenate([block.measured_us for block in blocks])
        per_session = np.bincount(session, minlength=len(names)).astype(np.float64)
        weight = np.sqrt(used[session] * np.where(per_session > 0, 300.0 / np.maximum(per_session, 30.0), 0.0)[session])
        nc, nh, nl = len(free), len(free_host), len(free_level)

        def unpack(x: NDArray[np.float64], current: NDArray[np.float64] = logs) -> tuple[Any, Any, Any]:
            values = current.copy()
            values[free] = x[:nc]
            host = host_prior.copy()
            host[free_host] = x[nc : nc + nh]
            level = np.zeros(len(names))
            level[free_level] = x[nc + nh :]
            return values, host, level

        def times(values: NDArray[np.float64], columns: Sequence[Columns] = tuple(pinned)) -> Any:
            constants = constants_of(values)
            return np.concatenate(
                [law.estimate(c, block.spec, constants).latency_us for c, block in zip(columns, blocks, strict=True)]
            )

        def split(x: NDArray[np.float64], rows: Any = session) -> Any:
            values, host, level = unpack(x)
            kernel = times(values) * np.exp(-level[rows])
            return values, kernel, np.exp(host)[rows] if event_timed else np.zeros(rows.size)

        strength = np.sqrt(PRIOR_WEIGHT) * SOFT_SCALE

        def pulls(x: NDArray[np.float64]) -> Any:
            values, host, level = unpack(x)
            return np.concatenate(
                [
                    strength * (values[free] - priors[free]) / prior_sd[free],
                    strength * (host[free_host] - host_prior[free_host]) / HOST_LOG_SD,
                    strength * level[free_level] / level_sd[free_level],
                ]
            )

        def residuals(x: NDArray[np.float64], weights: Column = weight, seen: Column = measured) -> Any:
            _, kernel, host_us = split(x)
            return np.concatenate([weights * _soften(np.log(seen / (kernel + host_us)))[0], pulls(x)])

        def jacobian(x: NDArray[np.float64], weight: Column = weight, rows: Any = session, seen: Any = measured) -> Any:
            values, kernel, host_us = split(x)
            total = kernel + host_us
            weights = weight * _soften(np.log(seen / total))[1]
            matrix = np.zeros((rows.size + x.size, x.size))
            step = 1e-4
            for j, i in enumerate(free):
                moved = values.copy()
                moved[i] += step
                later = times(moved) * np.exp(-unpack(x)[2][rows])
                matrix[: rows.size, j] = -weights * (later - kernel) / step / total
            columns = np.arange(rows.size)
            if event_timed:
                matrix[columns, nc + rows] = -weights * host_us / total
            place = np.full(len(names), -1)
            place[free_level] = nc + nh + np.arange(nl)
            has = place[rows] >= 0
            matrix[columns[has], place[rows[has]]] = (weights * kernel / total)[has]
            scale = np.concatenate([prior_sd[free], np.full(nh, HOST_LOG_SD), level_sd[free_level]])
            matrix[rows.size :] = np.diag(strength / scale)
            return matrix

        start = np.concatenate([logs[free], host_log[free_host], level_log[free_level]])
        found = optimize.least_squares(residuals, start, jac=jacobian, max_nfev=40, xtol=1e-5, ftol=1e-6)
        logs, host_log, level_log = unpack(found.x)
        used &= np.abs(level_log) <= LOST_SESSION_LOG_LEVEL
    sessions = {
        name: Session(
            name=name,
            host_us=float(np.exp(host_log[i])) if event_timed else 0.0,
            level=float(np.exp(level_log[i])),
            row_count=int(counts[i]),
            used=bool(used[i]),
        )
        for name, i in index_of.items()
    }
    gpus = tuple(sorted({name.split("/", 1)[0] for name in names}))
    return LawFit(constants=constants_of(logs), sessions=sessions, gpus=gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualSettings:
    """Settings of the LightGBM model of log(kernel time / law)."""

    tree_count: int = 300
    leaf_count: int = 24
    learning_rate: float = 0.06
    rows_per_leaf: int = 40
    feature_fraction: float = 0.6
    l2: float = 5.0
    rows_per_session: int = 8000
    test_weight: float = 3.0


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """Rows for the residual model: features (n, f) float32, log(kernel time / law), weights, and which rows they are."""

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
    """What the fitted law leaves over on informative rows of the sessions in use, the session's level taken out."""
    random = np.random.default_rng(seed)
    features, ratios, weights, kept = [], [], [], []
    for gpu in fit.gpus:
        rows = np.flatnonzero(measurements.gpu == gpu)
        names = measurements.session[rows].tolist()
        host = np.array([fit.sessions[name].host_us for name in names])
        level = np.array([fit.sessions[name].level for name in names])
        used = np.array([fit.sessions[name].used for name in names])
        clear = used & (measurements.measured_us[rows] > INFORMATIVE_RATIO * host)
        session = measurements.session[rows]
        for name in sorted(set(session[clear].tolist())):
            of_session = np.flatnonzero(clear & (session == name))
            if of_session.size > settings.rows_per_session:
                keep = random.choice(of_session, settings.rows_per_session, replace=False)
                clear[np.setdiff1d(of_session, keep)] = False
        rows, host, level = rows[clear], host[clear], level[clear]
        if not rows.size:
            continue
        answer = apply_law(law, measurements.select(rows).kernels, specs[gpu], fit.constants)
        kernel_us = measurements.measured_us[rows] - host
        features.append(answer.features)
        ratios.append(np.log(kernel_us * level / answer.result.latency_us))
        # a row near the floor tells little: the error of the host time is a larger share of what is left
        clarity = kernel_us / measurements.measured_us[rows]
        session = measurements.session[rows]
        _, inverse, count = np.unique(session, return_inverse=True, return_counts=True)
        test = measurements.split[rows] == "test"
        weights.append(clarity**2 * np.where(test, settings.test_weight, 1.0) / np.sqrt(count[inverse]))
        kept.append(rows)
    weight = np.concatenate(weights)
    return Residuals(
        features=np.concatenate(features),
        log_ratio=np.concatenate(ratios),
        weight=weight / weight.mean(),
        rows=np.concatenate(kept),
    )


def fit_residual(residuals: Residuals, feature_names: Sequence[str], settings: ResidualSettings, *, seed: int) -> Any:
    """Trains LightGBM (L1) on residual rows; one thread and fixed seeds, so that the same rows give the same trees."""
    lightgbm = require("lightgbm")
    data = lightgbm.Dataset(
        residuals.features,
        label=np.clip(residuals.log_ratio, -2.0, 2.0),
        weight=residuals.weight,
        feature_name=list(feature_names),
        params={"verbose": -1, "max_bin": 255},
    )
    parameters = {
        "objective": "regression_l1",
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
