"""A LightGBM model of what a fitted law leaves over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Law
from neusight_onnx.laws.catalog import apply_law
from neusight_onnx.learning.datasets.parts import Measurements
from neusight_onnx.learning.extras import require
from neusight_onnx.learning.sessions import INFORMATIVE_RATIO, session_floors_us

if TYPE_CHECKING:
    from neusight_onnx.learning.fitting import LawFit

HIDDEN_SHARE = 0.25
"""A kernel that the law puts below this share of its session's smallest times is hidden behind the host. The residual
is told to leave it to the law: it would extrapolate from kernels ten times as long otherwise."""


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
