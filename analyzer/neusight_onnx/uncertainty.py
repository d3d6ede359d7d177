"""The interval of a whole from the intervals of its kernels.

A kernel errs with its GPU (DRAM, clock, library: all kernels of one kind err alike) and by itself. Errors of one kind
add up over the kernels; errors that have nothing to do with each other partly cancel: their squares add.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot, sqrt

from neusight_onnx.predictor import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How often a prediction occurs in the whole, and the kind of kernel it is for."""

    prediction: Prediction
    kernel_class: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelling:
    """What is left of the kernels' intervals where their errors partly cancel, over their sum; 0..1, each side."""

    low: float
    high: float


def cancelling(shares: Iterable[Share]) -> Cancelling:
    """Root of the sum of squares over the sum: levels by group, the rest by kernel.

    All learned kernels share one level, those with an analytic estimate share it by class: how well gathers do says
    nothing of pooling. Equal kernels (one prediction for all) err alike altogether. 1 where nothing has an interval.
    """
    levels: dict[str, list[float]] = {}
    own: dict[int, list[float]] = {}
    sums = [0.0, 0.0]
    for share in shares:
        prediction = share.prediction
        group = "" if prediction.method == "learned" else share.kernel_class
        sides = (prediction.latency_us - prediction.low_us, prediction.high_us - prediction.latency_us)
        of_level, of_kernel = sqrt(prediction.level_share), sqrt(1.0 - prediction.level_share)
        level = levels.setdefault(group, [0.0, 0.0])
        rest = own.setdefault(id(prediction), [0.0, 0.0])
        for i, side in enumerate(sides):
            level[i] += share.count * side * of_level
            rest[i] += share.count * side * of_kernel
            sums[i] += share.count * side
    found = []
    for i, total in enumerate(sums):
        squares = sum(part[i] ** 2 for part in (*levels.values(), *own.values()))
        found.append(min(sqrt(squares) / total, 1.0) if total > 0 else 1.0)
    return Cancelling(low=found[0], high=found[1])


def combined_us(
    middle: float, *, kernels: tuple[float, float], host: tuple[float, float], left: Cancelling
) -> tuple[float, float]:
    """(low, high) of a time of ``middle`` us.

    ``kernels``: the time with every kernel at the low and at the high end of its interval; ``host``: with a fast and
    with a slow host. Host and kernels err independently.
    """
    low = hypot((middle - kernels[0]) * left.low, middle - host[0])
    high = hypot((kernels[1] - middle) * left.high, host[1] - middle)
    return max(middle - low, 0.0), middle + high
