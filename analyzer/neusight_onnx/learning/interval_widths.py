"""How wide intervals must be, by the errors on what was left out (``predictor.intervals`` reads what this writes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.gemm.machine import holds_clock
from neusight_onnx.learning.datasets.parts import Measurements
from neusight_onnx.learning.heldout import Scored
from neusight_onnx.learning.sessions import Session

COVERAGE = 0.8
"""Share of cases that an interval is meant to hold."""

LONE_GPU_HALF_WIDTH_LOG = 0.5
"""Half width (log) on another GPU where one alone was measured, so that nothing shows it. A judgement: products on
matrix units in formats that were measured on two GPUs err by .53-.63 on the one that is left out."""

MOST_COVERAGE = 0.9
"""Quantile of held-out errors that a width is, at most: the tail beyond is made of the odd rows of single sessions."""

_SESSION_WIDTHS = ("session_half_width_log", "throttled_session_half_width_log")


def interval_of(
    measurements: Measurements,
    unseen: Mapping[str, Scored],
    seen: Scored,
    *,
    law_alone: Mapping[str, NDArray[np.float64]],
    sessions: Mapping[str, Session],
    specs: Mapping[str, GpuSpec],
) -> dict[str, Any]:
    """Widths from held-out errors, and how often a GPU's rows lie in the width that the other GPUs give.

    AMD's GPUs run other kernels by other libraries: where there are two, they have widths of their own ("amd").
    """
    amd = {gpu for gpu, spec in specs.items() if is_amd(spec)}
    apart = len(amd) >= 2 and len(specs) - len(amd) >= 2
    others = set(specs) - amd if apart else set(specs)
    gpu_of = measurements.gpu[seen.rows]
    if measurements.position is not None:
        gpu_of = gpu_of[seen.own]
    judged = judged_errors(measurements, seen)

    def of(gpus: set[str]) -> dict[str, Any]:
        return _widths(
            {gpu: judged_errors(measurements, unseen[gpu]) for gpu in sorted(gpus & set(unseen))},
            {gpu: judged[gpu_of == gpu] for gpu in sorted(gpus & set(gpu_of.tolist()))},
            {gpu: law_alone[gpu] for gpu in sorted(gpus & set(law_alone))},
            [session for session in sessions.values() if session.name.split("/", 1)[0] in gpus],
            specs,
        )

    usual = of(others)
    own = with_session_widths(of(amd), usual) if apart else {}
    return {
        "coverage": COVERAGE,
        **usual,
        **({"amd": own} if own else {}),
        "method": "the width that holds 80 % of held-out errors and half a GPU more, GPUs weighing the same: seen from "
        "new shapes, unseen from left-out GPUs, law from left-out GPUs without the residual; coverage: rows of a GPU "
        "inside the width that the other GPUs' errors give; level_share: of the variance, what a GPU's rows "
        "have in common; session: 80 % of the levels of other sessions on a measured GPU (AMD has one each: the "
        "others' there)",
    }


def judged_errors(measurements: Measurements, scored: Scored) -> NDArray[np.float64]:
    """Errors that make intervals: of the kernel's own time where the host's time drifts, else of the event time.

    A host time of several hundred us would hide most of a kernel's error in the event time.
    """
    return scored.log_error if measurements.position is None else scored.own_log_error


def _widths(
    unseen: Mapping[str, NDArray[np.float64]],
    seen: Mapping[str, NDArray[np.float64]],
    law_alone: Mapping[str, NDArray[np.float64]],
    sessions: Sequence[Session],
    specs: Mapping[str, GpuSpec],
) -> dict[str, Any]:
    """The widths of some GPUs from their held-out errors in log."""

    def share(count: int) -> float:
        # one more GPU than were left out is to be covered: with few of them, the quantile lies a little higher
        return min(COVERAGE * (1.0 + 0.5 / max(count, 1)), MOST_COVERAGE)

    seen_width = width_of(list(seen.values()), share(len(seen)))
    if unseen:
        unseen_width = max(width_of(list(unseen.values()), share(len(unseen))), seen_width)
    else:
        unseen_width = max(2.0 * seen_width, LONE_GPU_HALF_WIDTH_LOG)
    law_width = (
        max(width_of(list(law_alone.values()), share(len(law_alone))), unseen_width) if law_alone else unseen_width
    )
    steady, throttled = _session_widths(sessions, specs)
    return {
        "seen_half_width_log": rounded(seen_width),
        "unseen_half_width_log": rounded(unseen_width),
        "law_half_width_log": rounded(law_width),
        "seen_level_share": rounded(_level_share(list(seen.values()))),
        "unseen_level_share": rounded(_level_share(list(unseen.values()))) if unseen else 1.0,
        "session_half_width_log": rounded(steady),
        "throttled_session_half_width_log": rounded(throttled),
        "left_out_coverage": _coverage(unseen, share(len(unseen) - 1)),
        "seen_coverage": _coverage(seen, share(len(seen) - 1)),
    }


def width_of(errors: Sequence[NDArray[np.float64]], coverage: float = COVERAGE) -> float:
    """Half width in log that holds ``coverage`` of absolute errors, every GPU weighing the same."""
    values = np.concatenate([np.abs(error) for error in errors])
    weights = np.concatenate([np.full(error.size, 1.0 / error.size) for error in errors])
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(share, coverage)), values.size - 1)])


def _level_share(errors: Sequence[NDArray[np.float64]]) -> float:
    """Share of the errors' variance that the rows of a GPU have in common, every GPU weighing the same."""
    levels = np.array([np.median(error) for error in errors])
    common = float(np.mean(levels**2))
    own = float(np.mean([np.mean((error - np.median(error)) ** 2) for error in errors]))
    return common / (common + own) if common + own > 0 else 1.0


def _coverage(errors: Mapping[str, NDArray[np.float64]], coverage: float) -> dict[str, float]:
    """How many of a GPU's rows lie in the width that the other GPUs' errors give."""
    return {
        gpu: round(float(np.mean(np.abs(error) <= width_of([errors[o] for o in errors if o != gpu], coverage))), 3)
        for gpu, error in errors.items()
        if len(errors) > 1
    }


def _session_widths(sessions: Sequence[Session], specs: Mapping[str, GpuSpec]) -> tuple[float, float]:
    """Half widths in log of the speed of another session: of cards that hold their boost clock, of those that can not.

    From the fitted levels of the sessions beside the one that is a GPU's own (its level is 1 by definition).
    """
    spread: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for session in sessions:
        gpu = session.name.split("/", 1)[0]
        if session.level != 1.0 and session.used:
            spread[holds_clock(specs[gpu])].setdefault(gpu, []).append(abs(float(np.log(session.level))))
    steady, throttled = (
        width_of([np.array(levels) for levels in spread[holds].values()]) if spread[holds] else 0.0
        for holds in (True, False)
    )
    return steady, max(steady, throttled)


def with_session_widths(widths: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Widths of some GPUs; the spread between sessions is that of ``others`` where these show none.

    With one session a GPU nothing tells how far another would be off, which is no proof that it would be equal.
    """
    shown = any(widths[name] for name in _SESSION_WIDTHS)
    return {**widths, **({} if shown else {name: others[name] for name in _SESSION_WIDTHS})}


def implementation_widths(levels: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Another framework's kernels stand for another session on a measured GPU: 80 % of their levels."""
    if not levels:
        return {}
    width = rounded(width_of([np.array(found) for found in levels.values()]))
    return {
        "session_half_width_log": width,
        "throttled_session_half_width_log": width,
        "session_method": "80 % of the levels of another framework's kernels against the trained ones",
    }


def rounded(value: float) -> float:
    """Six significant digits, as a manifest has them."""
    return float(f"{value:.6g}")
