"""One predictor: fitted, judged on what is left out, exported, and all of it written down as its manifest entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Law
from neusight_onnx.learning import export
from neusight_onnx.learning.datasets.parts import EVENTS, Measurements
from neusight_onnx.learning.heldout import (
    FOLDS,
    OWN_SHARE,
    SCORED_US,
    LeftOut,
    Scored,
    Trained,
    leave_out,
    mape_percent,
    new_shapes,
    on_matrix_units,
    train_once,
)
from neusight_onnx.learning.interval_widths import interval_of, judged_errors, rounded
from neusight_onnx.learning.residuals import RESIDUALS, ResidualSettings, residual_rows
from neusight_onnx.similarity import FAMILIAR_DISTANCE, MATRIX_VECTOR_NAMES, VECTOR_NAMES

UNSEEN_WEIGHTS = (0.0, 0.5, 1.0)
"""Weights of the residual on an unseen GPU that are tried; the best by leave-one-GPU-out error is shipped."""

WEIGHT_GAIN_PERCENT = 1.0
"""The residual is used on unseen GPUs only if it lowers that error by so many points: less is chance, with few GPUs."""

DTYPE_SUFFIX = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float8e4m3fn": "fp8",
    "int8": "int8",
    "bfloat16+int8": "w8a16",
    "bfloat16+int4": "w4a16",
    "float4e2m1": "fp4",
    "matrix": "matrix",
    "matrix/weight": "matrix_weight",
    "matrix+amd": "matrix_amd",
    "matrix/weight+amd": "matrix_weight_amd",
    "float32/data": "fp32_data",
    "float32/weight": "fp32_weight",
    "float32+amd": "fp32_amd",
    "float32/weight+amd": "fp32_weight_amd",
    "bfloat16+float8e4m3fn": "bf16_kv8",
}
"""How a predictor's file names the number format (``kernel_formats.predictor_label``)."""

MANY_ROWS = 40_000
"""From so many rows on they bear ``MATRIX_UNIT_SETTINGS``; formats with fewer have the usual trees."""

PROTOCOL = (
    f"Rows of at least {SCORED_US:g} us, 5 us where the kernel's own time was measured; where an operation was "
    "measured in two splits, 'test' (sizes of real models) is scored. leave_one_gpu_out: constants, sessions and trees "
    "fitted without any row of that GPU; leave_one_generation_out: without any GPU of that architecture; new_shapes: "
    f"{FOLDS} folds by exact kernel (one of them for products on matrix units with {MANY_ROWS:,} rows), trained on the "
    "GPU but never on the shape. The session's launch floor, read off "
    "its kernels below 50 us, is added to the predicted kernel time (of convolutions, whose host slows down as a "
    "session goes on, a floor that follows it, read off the smallest kernels by prediction; nothing where the kernel's "
    "own time was measured). "
    "Error of a predictor: mean over GPU x operation."
)


def train_class(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    *,
    seed: int,
    files: Sequence[Mapping[str, str]],
    log: Callable[[str], None] = print,
    settings: ResidualSettings | None = None,
    thorough: bool = False,
    unseen_weights: Sequence[float] = UNSEEN_WEIGHTS,
) -> tuple[dict[str, Any], bytes]:
    """One predictor: its manifest entry and its ONNX file.

    ``thorough``: GPUs are left out with all of the trees, however many rows there are.
    """
    settings = RESIDUALS.get(law.kernel_class, ResidualSettings()) if settings is None else settings
    name = f"{law.kernel_class}_{DTYPE_SUFFIX[measurements.dtype]}"
    many = len(measurements) >= MANY_ROWS and measurements.timing != EVENTS
    # whether trees help on an unseen GPU at all shows with a quarter of them
    few = replace(settings, tree_count=settings.tree_count // 4, row_limit=settings.row_limit // 4)
    tried = leave_out(
        law,
        measurements,
        specs,
        {gpu: (gpu,) for gpu in specs},
        seed=seed,
        settings=few if many and not thorough else settings,
        unseen_weights=unseen_weights,
    )
    weight = best_weight(tried, measurements)
    log(f"{name}: residual weight on unseen GPUs {weight:g}")
    trained = train_once(law, measurements, specs, seed=seed, settings=settings)
    unseen = {gpu: left.scored[weight] for gpu, left in tried.items()}
    by_generation = leave_out(
        law, measurements, specs, _generations(specs), seed=seed, settings=settings, unseen_weights=(weight,)
    )
    # a fifth of many rows is enough to tell the error
    seen = new_shapes(law, measurements, specs, seed=seed, settings=settings, fold_count=1 if many else FOLDS)
    rows = [row for gpu in sorted(unseen) for row in error_rows("leave_one_gpu_out", measurements, unseen[gpu])]
    for key in sorted(by_generation):
        rows += error_rows("leave_one_generation_out", measurements, by_generation[key].scored[weight])
    rows += error_rows("new_shapes", measurements, seen)
    residuals = residual_rows(law, measurements, specs, trained.fit, settings, seed=seed)
    model = export.to_onnx(trained.booster, name=name, feature_count=len(law.feature_names))
    compared = export.parity_rows(residuals.features, seed=seed)
    worst = export.parity(model, trained.booster, compared)
    summary = {key: _mean_error(rows, key) for key in ("leave_one_gpu_out", "new_shapes")}
    log(f"{name}: " + ", ".join(f"{key} {value:.1f} %" for key, value in summary.items() if value is not None))
    entry = {
        "name": name,
        "kernel_class": law.kernel_class,
        "dtype": measurements.dtype,
        "file": f"{name}.onnx",
        "constants": _constants(law, trained),
        "left_out_constants": _left_out_constants(law, specs, tried),
        "features": list(law.feature_names),
        # to the last digit: of a feature that all rows share (one GPU's ridge) a rounded bound leaves every row outside
        "feature_low": trained.feature_low.tolist(),
        "feature_high": trained.feature_high.tolist(),
        "unseen_residual_weight": weight,
        "familiar_distance": FAMILIAR_DISTANCE,
        "gpu_vector_names": list(MATRIX_VECTOR_NAMES if on_matrix_units(measurements) else VECTOR_NAMES),
        "training": _training(measurements, specs, trained, settings, files=files, seed=seed),
        "held_out": {
            "protocol": PROTOCOL,
            **{f"{key}_percent": None if value is None else rounded(value) for key, value in summary.items()},
            "rows": rows,
            **_own_times(measurements, unseen, seen),
        },
        "interval": interval_of(
            measurements,
            unseen,
            seen,
            law_alone={gpu: judged_errors(measurements, left.scored[0.0]) for gpu, left in tried.items()},
            sessions=trained.fit.sessions,
            specs=specs,
        ),
        "parity": {"row_count": len(compared), "largest_relative_error": float(f"{worst:.3g}")},
    }
    return entry, model


def _generations(specs: Mapping[str, GpuSpec]) -> dict[str, Sequence[str]]:
    """The GPUs of each architecture that has several."""
    found: dict[str, list[str]] = {}
    for gpu, spec in specs.items():
        found.setdefault(spec.architecture, []).append(gpu)
    return {architecture: gpus for architecture, gpus in found.items() if len(gpus) > 1}


def _constants(law: Law, trained: Trained) -> dict[str, Any]:
    return {
        constant.name: {
            "value": rounded(trained.fit.constants[constant.name]),
            "prior": constant.prior,
            "prior_log_sd": rounded(constant.prior_log_sd),
            "source": constant.source,
        }
        for constant in law.constants
    }


def _left_out_constants(law: Law, specs: Mapping[str, GpuSpec], tried: Mapping[str, LeftOut]) -> dict[str, Any]:
    """The constants without each GPU; without the only one that was measured, nothing but the priors is left."""
    return {
        gpu: {
            constant.name: rounded(tried[gpu].constants[constant.name] if gpu in tried else constant.prior)
            for constant in law.constants
        }
        for gpu in specs
    }


def best_weight(tried: Mapping[str, LeftOut], measurements: Measurements) -> float:
    """Weight of the residual on an unseen GPU with the least leave-one-GPU-out error; 0 unless it is clearly better."""
    if not tried:
        return 0.0
    errors = {
        weight: float(np.mean([_gpu_error(measurements, left.scored[weight]) for left in tried.values()]))
        for weight in next(iter(tried.values())).scored
    }
    best = min(errors, key=lambda weight: errors[weight])
    return best if errors[best] < errors[0.0] - WEIGHT_GAIN_PERCENT else 0.0


def _training(
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    trained: Trained,
    settings: ResidualSettings,
    *,
    files: Sequence[Mapping[str, str]],
    seed: int,
) -> dict[str, Any]:
    return {
        "files": [dict(entry) for entry in files],
        "row_count": int(sum(session.row_count for session in trained.fit.sessions.values())),
        "gpus": [
            {"name": gpu, "vector": [rounded(value) for value in vector]}
            for gpu, vector in zip(trained.fit.gpus, trained.vectors, strict=True)
        ],
        "sessions": [
            {
                "name": session.name,
                "host_us": round(session.host_us, 1),
                **(
                    {"host_along_us": [round(value, 1) for value in session.host_knots_us]}
                    if len(session.host_knots_us) > 1
                    else {}
                ),
                "level": round(session.level, 3),
                "row_count": session.row_count,
                "used": session.used,
            }
            for session in trained.fit.sessions.values()
        ],
        "dtype": measurements.dtype,
        "seed": seed,
        "residual": asdict(settings),
    }


def error_rows(protocol: str, measurements: Measurements, scored: Scored) -> list[dict[str, Any]]:
    """A row per GPU and operation, as ``predictor.HeldOut`` reads it."""
    found = []
    gpu, operation = measurements.gpu[scored.rows], measurements.operation[scored.rows]
    pairs = sorted(set(zip(gpu.tolist(), operation.tolist(), strict=True)))
    for name, op in pairs:
        error = scored.log_error[(gpu == name) & (operation == op)]
        found.append(
            {
                "protocol": protocol,
                "gpu": name,
                "operation": op,
                "row_count": int(error.size),
                "mape_percent": round(mape_percent(error), 2),
                "median_ape_percent": round(100 * float(np.median(np.abs(np.expm1(error)))), 2),
                "bias_percent": round(100 * float(np.expm1(np.median(error))), 2),
            }
        )
    return found


def _own_times(measurements: Measurements, unseen: Mapping[str, Scored], seen: Scored) -> dict[str, Any]:
    """Errors of kernels' own times (measured less the host's time) by GPU, where the host's time drifts."""
    if measurements.position is None:
        return {}
    gpu_of = measurements.gpu[seen.rows][seen.own]
    errors = {
        "leave_one_gpu_out": {gpu: scored.own_log_error for gpu, scored in unseen.items()},
        "new_shapes": {gpu: seen.own_log_error[gpu_of == gpu] for gpu in sorted(set(gpu_of.tolist()))},
    }
    found = {
        protocol: {
            gpu: {
                "row_count": int(error.size),
                "mape_percent": round(mape_percent(error), 2),
                "bias_percent": round(100 * float(np.expm1(np.median(error))), 2),
            }
            for gpu, error in by_gpu.items()
        }
        for protocol, by_gpu in errors.items()
    }
    rule = (
        "measured less the host's time, which grows along these sessions, against the predicted kernel, on rows where "
        f"it is at least {100 * OWN_SHARE:g} % of what was measured"
    )
    return {"own_time": {"rule": rule, **found}}


def _mean_error(rows: Sequence[Mapping[str, Any]], protocol: str) -> float | None:
    errors = [row["mape_percent"] for row in rows if row["protocol"] == protocol]
    return float(np.mean(errors)) if errors else None


def _gpu_error(measurements: Measurements, scored: Scored) -> float:
    return float(np.mean([row["mape_percent"] for row in error_rows("", measurements, scored)]))
