"""How near a GPU and a shape are to those that a predictor was trained on: by quantities, never by name.

The residual of a law learns what measured GPUs do beyond physics: which kernel a library picks, how well it runs
there. That carries over to a GPU only as far as the two are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec

VECTOR_NAMES: tuple[str, ...] = (
    "vendor_is_amd",
    "log_compute_capability",
    "log_lanes_per_sm",
    "log_sm_count",
    "log_clock",
    "log_l2_per_sm",
    "log_ridge",
    "log_watt_per_flop",
)
MATRIX_VECTOR_NAMES = (*VECTOR_NAMES, "log_matrix_rate")
"""The same for predictors of matrix units: with the FLOPs a clock and SM of 16-bit products, sums in FP32."""

# What a quantity's log ratio weighs in the distance. A library chooses kernels by instruction set and SM (compute
# capability, lanes), so these weigh most; the law itself carries bandwidth, clock and power, so these weigh little.
# The rate of matrix units is of the SM, too: what an L40S's kernels show beyond the law lowers no error on an RTX 4090,
# which is one with half of that rate (LLM layers in 16 bits: 7.3 % with three quarters of its residual, 4.7 % without)
_WEIGHTS = np.array([10.0, 4.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25, 1.0])

FAMILIAR_DISTANCE = 0.35
"""At this distance the residual's weight is 1/e. The same die with other memory or power (A100 PCIe 40 GB, SXM
80 GB) lies at 0.1-0.2 and keeps three quarters or more; Turing against Volta (0.6) and Hopper against Ampere (1.0)
keep next to nothing: leave-one-GPU-out says that nothing is to be gained there."""


def gpu_vector(gpu: GpuSpec, *, matrix_units: bool = False) -> tuple[float, ...]:
    """The GPU as numbers, in the order of ``VECTOR_NAMES`` (``MATRIX_VECTOR_NAMES`` with ``matrix_units``); ratios of
    base units in natural log."""
    flops = gpu.peak_flops_per_s["fp32"]
    matrix = gpu.peak_flops_per_s.get("fp16", flops) / (gpu.sm_count * gpu.clock_hz)
    return (
        0.0 if gpu.compute_capability is not None else 1.0,
        # AMD has no such number; its process stands for the generation (CDNA 7 nm, CDNA2 6 nm, CDNA3 5 nm), at a
        # quarter: one library builds its kernels for all of them, and what the MI100 shows carries over to the MI210
        # and back (leave-one-GPU-out errors of batched products fall with the share of the residual that is applied)
        log(gpu.compute_capability) if gpu.compute_capability is not None else -log(gpu.process_nm) / 4,
        log(gpu.fp32_lanes_per_sm),
        log(gpu.sm_count),
        log(gpu.clock_hz),
        log(gpu.l2_bytes / gpu.sm_count),
        log(flops / gpu.memory_bytes_per_s),
        log(gpu.power_w / flops),
        *((log(matrix),) if matrix_units else ()),
    )


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Weighted Euclidean distance of two vectors of ``gpu_vector``; 0 for equal GPUs."""
    return _distances(first, [second])[0]


def _distances(vector: Sequence[float], others: Sequence[Sequence[float]]) -> list[float]:
    gaps = _WEIGHTS[: len(vector)] * (np.array(vector) - np.array(others))
    found: list[float] = np.sqrt((gaps**2).sum(axis=1)).tolist()
    return found


def _distances_from(gpu: GpuSpec, trained: Sequence[Sequence[float]]) -> list[float]:
    """Of a GPU from each of a predictor's training GPUs, by the quantities that their vectors have."""
    if not trained:
        return []
    return _distances(gpu_vector(gpu, matrix_units=len(trained[0]) == len(MATRIX_VECTOR_NAMES)), trained)


def remoteness(gpu: GpuSpec, trained: Sequence[Sequence[float]]) -> float:
    """What an unseen GPU's interval is widened by: 1 as near the training set as any of its GPUs is to the others.

    Beyond, it grows with the root of the distance, as if what is new came in steps that err independently: left-out
    GPUs show nothing that lies so far out.
    """
    if len(trained) < 2:
        return 1.0
    nearest = min(_distances_from(gpu, trained))
    tried = _farthest(tuple(map(tuple, trained)))
    return sqrt(max(1.0, nearest / tried)) if tried > 0 else 1.0


@lru_cache(maxsize=64)
def _farthest(trained: tuple[tuple[float, ...], ...]) -> float:
    """The distance to its nearest of the training set's GPU that is farthest from the others."""
    return max(min(distance(one, other) for j, other in enumerate(trained) if i != j) for i, one in enumerate(trained))


def gpu_weight(gpu: GpuSpec, trained: Sequence[Sequence[float]]) -> float:
    """1 for a GPU of the training set, falling to 0 with the distance to the nearest one."""
    nearest = min(_distances_from(gpu, trained), default=float("inf"))
    return exp(-((nearest / FAMILIAR_DISTANCE) ** 2))


def nearest_of(gpu: GpuSpec, trained: Sequence[Sequence[float]]) -> int:
    """Place of the trained GPU that is nearest; ValueError where there is none."""
    distances = _distances_from(gpu, trained)
    return distances.index(min(distances))


CHOSEN = frozenset({"log_tile_n", "log_tile_m", "log_split_k"})
"""Features that a library chooses from a menu: a size that no measured GPU's menu holds is nothing far from it."""


NEGLIGIBLE = 0.01
"""Weight of a GPU that isn't worth another look at the trees."""


REMAINDER = "_mod_"
"""In the names of features that are what a size leaves of whole vectors or tiles."""


def shape_weight(
    features: NDArray[np.float32],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    names: Sequence[str],
    *,
    any_remainder: bool = False,
) -> NDArray[np.float64]:
    """1 inside the training data's range of every feature, falling with what sticks out of it, shape (n,).

    The sum of the excesses counts, each in units of that feature's range: a tenth of a range outside keeps 0.85.
    ``names`` are those of the features; those of ``CHOSEN`` don't count. With ``any_remainder`` neither do remainders
    of which more than one was measured: 48 of a tile of 64 fill it in part as 16 and 32 do, and are no further.
    """
    span = np.maximum(high - low, 1e-6)
    met = [any_remainder and REMAINDER in name and bool(wide) for name, wide in zip(names, high > low, strict=True)]
    counted = np.array([name not in CHOSEN and not some for name, some in zip(names, met, strict=True)], dtype=float)
    excess = np.maximum(np.maximum(low - features, features - high), 0.0) / span
    total: NDArray[np.float64] = np.exp(-(((excess @ counted) / 0.25) ** 2))
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """What is applied beyond the law of some kernels, log, shape (n,), and how far within what was measured each is."""

    correction: NDArray[np.float64]
    inside: NDArray[np.float64]


def carried_over(
    trees: Callable[[NDArray[np.float32]], NDArray[np.float64]],
    inside: Callable[[NDArray[np.float32]], NDArray[np.float64]],
    features: NDArray[np.float32],
    near: float,
    unseen_weight: float,
    other: Callable[[], NDArray[np.float32] | None],
    *,
    applied_of: Callable[[NDArray[np.float32]], NDArray[np.float64]] | None = None,
) -> Residual:
    """The share of the trees' residual that is applied to kernels on a GPU.

    ``trees``: what they say beyond the law, log; ``inside``: how far within what was measured kernels are, both of
    features, shape (n,). On a trained GPU (``near`` is 1) all of it, within the range of shapes. On another, ``near``
    of what the nearest trained GPU shows of the same kernels, whose features there ``other`` gives (None where they
    aren't known), and ``unseen_weight`` of what the trees make of a GPU like this for the rest. Trees that have no
    weight aren't asked: to load them takes longer than a law's answer.

    ``applied_of``: how much of the residual is applied, by features; None: as far as they are ``inside``.

    By its own features a GPU would get what the trees know of other kernels or of other GPUs: with more L2 that of
    smaller products, with faster memory that of a GPU of another generation, and could come out slower for it. So the
    law alone says what another figure changes. It carries over as well: MI100 and MI210 left out in turn, each with
    .6 of what the other shows, are 8.1 % off in four kernel classes of FP32, by their own features 8.2 (trees on a
    sample).
    """
    weight_of = inside if applied_of is None else applied_of
    nothing = np.zeros(len(features))
    parts = []
    if near < 1.0:
        within = inside(features)
        applied = unseen_weight * weight_of(features) * trees(features) if unseen_weight else nothing
        parts.append((1.0 - near, applied, within))
    if near > NEGLIGIBLE:
        theirs = None if near == 1.0 else other()
        seen = features if theirs is None else theirs
        within = inside(seen)
        parts.append((near, weight_of(seen) * trees(seen), within))
    return Residual(
        correction=sum((weight * part for weight, part, _ in parts), nothing),
        inside=sum((weight * within for weight, _, within in parts), nothing),
    )
