"""Fits a law's constants; what the law leaves over is :mod:`neusight_onnx.learning.residuals`'.

A row's measured time is ``H + T / level``: ``H`` the host's launch time of its session (zero where the kernel's
own time was measured), ``T`` the law's answer, ``level`` the session's speed against the GPU's normal one. Findings
on the data say that host time adds (an event pair around one launch sees both), so that is what is fitted. Constants
are shared by all GPUs; ``H`` and ``level`` are nuisances of a session, fitted beside them and dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Law
from neusight_onnx.laws.gemm.machine import holds_clock
from neusight_onnx.learning.datasets.parts import EVENTS, Measurements
from neusight_onnx.learning.extras import require
from neusight_onnx.learning.law_problem import Block, Problem, named_constants
from neusight_onnx.learning.residuals import RESIDUALS, ResidualSettings, fit_residual, residual_rows
from neusight_onnx.learning.sessions import (
    HOST_KNOTS,
    INFORMATIVE_RATIO,
    Session,
    host_floor_us,
    lower_envelope_us,
    near_knot,
    session_floors_us,
)

__all__ = [
    "HOST_KNOTS",
    "RESIDUALS",
    "LawFit",
    "ResidualSettings",
    "Session",
    "fit_law",
    "fit_residual",
    "host_floor_us",
    "near_knot",
    "residual_rows",
]

ROWS_PER_SESSION = 500
"""Rows that a session brings to the fit of some twenty constants; more rows of one session add no information."""

ROWS_IN_ALL = 12_000
"""Rows of all sessions together that the constants are fitted on: elementwise kernels have more than a hundred
sessions, and time goes with rows x sessions^2."""

SESSION_WEIGHT = 300.0
"""All rows of a session weigh together like so many, however many they are."""

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
DRIFT_ROWS_PER_SESSION = 2000
"""Rows of a drifting session that are fitted: each of its points needs some."""
LOST_SESSION_LOG_LEVEL = 0.6
"""A session further than this from its GPU's other session ran something else (another library, a hot card)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """Constants of a law, the sessions they were fitted on, and the GPUs these came from."""

    constants: Mapping[str, float]
    sessions: Mapping[str, Session]
    gpus: tuple[str, ...]


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
        problem = Problem(
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


def _blocks(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    names: Sequence[str],
    rows_of: Sequence[NDArray[np.int64]],
) -> list[Block]:
    index_of = {name: i for i, name in enumerate(names)}
    by_gpu: dict[str, list[NDArray[np.int64]]] = {}
    for name, rows in zip(names, rows_of, strict=True):
        by_gpu.setdefault(name.split("/", 1)[0], []).append(rows)
    blocks = []
    for gpu, parts in sorted(by_gpu.items()):
        part = measurements.select(np.concatenate(parts))
        if len(part):
            blocks.append(
                Block(
                    spec=specs[gpu],
                    columns=law.columns(part.kernels),
                    measured_us=part.measured_us,
                    session=np.array([index_of[name] for name in part.session.tolist()], dtype=np.int64),
                    position=np.zeros(len(part)) if part.position is None else part.position,
                )
            )
    return blocks
