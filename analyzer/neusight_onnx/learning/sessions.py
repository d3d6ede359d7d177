"""Sessions of measurements: the host's time in them, their speed, and their smallest times, which show the host's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.learning.datasets.parts import EVENTS, Measurements

HOST_KNOTS = 9
"""Points, evenly spaced over a session whose host time drifts, at which that time is a number of its own; between
them it is on the line that joins them."""
INFORMATIVE_RATIO = 1.4
"""Rows below this many times what the session's smallest kernels take say nothing about the kernel."""


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
