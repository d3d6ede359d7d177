"""The clock that a power limit leaves: how energy goes with the clock.

Power is ``idle + energy of an operation x operations a second``; idle power is the GPU's
(:func:`~neusight_onnx.gpu.power.idle_w`). At a lower clock the voltage is lower, too, and energy goes with the square
of the voltage. What is here serves the laws of products in FP32 and on matrix units alike; the energies of their
operations are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

REFERENCE_CLOCK_HZ = 1.4e9
"""Clock that the laws' energies are stated at, whatever the process: about where an A100's and a V100's ranges end."""

ENERGY_EXPONENT = 0.6
"""Energy of an operation goes with this power of the clock, so power with 1.6: between a voltage that stays at its
lowest (1) and one in proportion to the clock (3). From .3 of a card's highest clock on that is a lowest voltage of .70
of the highest, as cards are made. The clock is the absolute one: of one process, parts with lower clocks have lower
voltages.

Fitted to products in 16 bits on A100, H100, B200 and L40S by three frameworks, whose operands take different energies,
to layers on RTX 3090, 4090 and A6000 and to DeepBench's on T4 and V100, all beyond 1 ms. Exponents of .5, .6 and .7
explain them equally well (soft-L1 cost 6.40, 6.40, 6.43). A floor at .8 of the card's own highest clock with the square
of the clock above it is no different (6.37), so kernels don't decide between the two; but no card's voltage ends at .9
of its highest (the root of .8). The cube above .7 of that clock costs 7.5, energies that only the process tells 6.8 and
more. With the exponent, foundries' energies of 16/12, 8, 7 and 5 nm hold without a factor of their own, but for Ada's
matrix units."""

EXPONENT_SPREAD = 0.6
"""How far off it may be (one standard deviation) where no such clock was measured: at 0 the voltage stays at its
lowest, at 1.2 it follows the clock nearly as GeForce cards' does in the upper part of their range."""


def energy_at(clock_hz: float) -> float:
    """Energy of an operation at a clock over that at ``REFERENCE_CLOCK_HZ``."""
    return float((clock_hz / REFERENCE_CLOCK_HZ) ** ENERGY_EXPONENT)


LEVEL_STEPS = 3
"""Newton's steps for a level. The function is concave in log, so that they come from below: the second starts on the
branch that holds, the third ends within a thousandth."""


def level_under_limit(
    boost_s: NDArray[np.float64],
    limit_s: NDArray[np.float64],
    waits_s: Sequence[NDArray[np.float64]],
    *,
    norm: float,
) -> NDArray[np.float64]:
    """Clock over boost clock at which a kernel draws just what its power limit leaves for arithmetic; above 1 where it
    may have more.

    ``boost_s``: time at the boost clock of what goes with the clock, ``waits_s``: times that compete with it and don't
    (p-norm of power ``norm``); ``limit_s``: what the arithmetic's energy at the boost clock takes at that power. At the
    level x the kernel takes ``((boost_s / x)^p + waits_s^p)^(1/p)`` and ``x^ENERGY_EXPONENT`` of that energy, so that
    its power is the limit where ``limit_s x^ENERGY_EXPONENT`` is that time. What a limit leaves is the same whatever
    clock the maker states.
    """
    waiting = np.sum([wait**norm for wait in np.broadcast_arrays(*waits_s)], axis=0) if waits_s else np.zeros(1)
    running = boost_s**norm
    log_limit = np.log(limit_s)
    log_level = np.zeros(np.broadcast_shapes(running.shape, log_limit.shape, waiting.shape))
    for _ in range(LEVEL_STEPS):
        slower = running * np.exp(-norm * log_level)
        whole = slower + waiting
        off = log_limit + ENERGY_EXPONENT * log_level - np.log(whole) / norm
        log_level = log_level - off / (ENERGY_EXPONENT + slower / whole)
    return np.exp(log_level)


def below(level: NDArray[np.float64], *, sharpness: float, top: float = 1.0) -> NDArray[np.float64]:
    """A level, at most ``top``: a smooth minimum, since a limit bites gradually as load varies."""
    limited: NDArray[np.float64] = top * (1.0 + (level / top) ** -sharpness) ** (-1.0 / sharpness)
    return limited


def power_level(budget_share: NDArray[np.float64], *, sharpness: float, top: float = 1.0) -> NDArray[np.float64]:
    """Sustained over boost clock of what arithmetic alone bounds, at most ``top`` (:func:`below`).

    ``budget_share``: power left for arithmetic over what it takes at the boost clock.
    """
    return below(budget_share ** (1.0 / (1.0 + ENERGY_EXPONENT)), sharpness=sharpness, top=top)
