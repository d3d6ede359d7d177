"""The interval of a whole from the intervals of its kernels.

A kernel errs with the run that it is part of (GPU, clock, DRAM, library: all kernels of one kind err alike) and by
itself. Errors of one kind add up over the kernels; errors that have nothing to do with each other partly cancel: their
squares add.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import expm1, hypot, log, sqrt
from statistics import NormalDist

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

    def low_us(self, prediction: Prediction) -> float:
        """The low end of what is left of a kernel's interval."""
        return prediction.latency_us - self.low * (prediction.latency_us - prediction.low_us)

    def high_us(self, prediction: Prediction) -> float:
        return prediction.latency_us + self.high * (prediction.high_us - prediction.latency_us)


ALIKE = frozenset({"gemm", "conv"})
"""Classes whose levels go together: one pipe, one clock, one library's tiles, and in 16 bits the same constants. With
each of five NVIDIA GPUs left out, the medians of the errors of FP32 products and convolutions are A100 -5, -3 %; P100
-1, -0; P4 2, 0; T4 -6, -4; V100 11, 9: a correlation of .99. Softmax goes against them (4, -1, 3, 4, -9 %), LayerNorm
goes its own way (0, -6, 4, -1, 0), and so does attention in 16 bits beside products (A100, B200, H100, L40S: -4, 3, 4,
4 and 3, -2, 2, -3)."""


def _level_of(share: Share) -> str:
    """What kernels have one level. Learned and analytic ones of a class have two."""
    if share.prediction.method == "learned":
        return "learned product" if share.kernel_class in ALIKE else f"learned {share.kernel_class}"
    return share.kernel_class


def cancelling(shares: Iterable[Share]) -> Cancelling:
    """Root of the sum of squares over the sum: levels by group, the rest by kernel.

    Kernels of a class share a level, products and convolutions one; those with an analytic estimate have another: how
    well gathers do says nothing of pooling. Equal kernels (one prediction for all) err alike altogether. 1 where
    nothing has an interval.
    """
    counts: dict[tuple[int, str], int] = {}
    first: dict[tuple[int, str], Share] = {}
    for share in shares:
        key = id(share.prediction), share.kernel_class
        counts[key] = counts.get(key, 0) + share.count
        first.setdefault(key, share)
    levels: dict[str, list[float]] = {}
    own: dict[int, list[float]] = {}
    sums = [0.0, 0.0]
    for key, share in first.items():
        prediction = share.prediction
        level = levels.setdefault(_level_of(share), [0.0, 0.0])
        rest = own.setdefault(key[0], [0.0, 0.0])
        of_level, of_kernel = sqrt(prediction.level_share), sqrt(1.0 - prediction.level_share)
        time_us = counts[key] * prediction.latency_us
        for i, (end_us, sign) in enumerate(((prediction.low_us, -1.0), (prediction.high_us, 1.0))):
            # variances are of logs: the parts of a wide interval are no shares of its width in us
            width = log(end_us / prediction.latency_us)
            level[i] += sign * time_us * expm1(of_level * width)
            rest[i] += sign * time_us * expm1(of_kernel * width)
            sums[i] += sign * time_us * expm1(width)
    found = []
    for i, total in enumerate(sums):
        squares = sum(part[i] ** 2 for part in (*levels.values(), *own.values()))
        found.append(min(sqrt(squares) / total, 1.0) if total > 0 else 1.0)
    return Cancelling(low=found[0], high=found[1])


BOTH_LOW = NormalDist().inv_cdf(sqrt(0.1)) / NormalDist().inv_cdf(0.1)
""".37 of an 80 % half width: how far two independent, equally sure times are both below their medians in a tenth of
the cases, and so the longer of them."""


EITHER_HIGH = sqrt(2.0) - NormalDist().inv_cdf(sqrt(0.9)) / NormalDist().inv_cdf(0.9)
""".14 of an 80 % half width: by how much the longer of two such times stays below 1.41 half widths above their medians
in nine tenths of the cases, 1.27."""


def combined_us(
    middle: float, *, kernels: tuple[float, float], host: tuple[float, float], both: tuple[float, float]
) -> tuple[float, float]:
    """(low, high) of a time of ``middle`` us.

    ``kernels``: the time with every kernel at the low and at the high end of what is left of its interval; ``host``:
    with a fast and with a slow host; ``both``: with both at that end. Host and kernels err independently: what each
    does by itself adds in squares. Where they take about as long, the run gets shorter only if both do, and one alone
    makes it as long as both together.
    """
    by_kernels, by_host = middle - kernels[0], middle - host[0]
    together = max(middle - both[0] - by_kernels - by_host, 0.0)
    low = hypot(by_kernels, by_host) + BOTH_LOW * together
    by_kernels, by_host = kernels[1] - middle, host[1] - middle
    in_common = max(by_kernels + by_host - (both[1] - middle), 0.0)
    high = hypot(by_kernels, by_host) - EITHER_HIGH * in_common
    return max(middle - low, 0.0), middle + high
