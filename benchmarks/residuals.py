"""What each ingredient of the residual model of matrix products brings, from a sample: both protocols, one table.

Law and sessions are fitted as they ship (for a left-out GPU without its rows); only the model of what the law leaves
differs between variants. A sample of rows is trained on and scored, so that the errors lie above the manifest's; they
compare variants with each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.catalog import LAWS, apply_law
from neusight_onnx.laws.gemm.law import GEMM
from neusight_onnx.learning.datasets.parts import Measurements
from neusight_onnx.learning.extras import require
from neusight_onnx.learning.fitting import RESIDUALS, LawFit, ResidualSettings, fit_law, residual_rows
from neusight_onnx.learning.heldout import event_us, launches_of, mape_percent, scored_rows
from neusight_onnx.similarity import gpu_vector

Array = NDArray[np.float64]

TRAINED_PER_CELL = 400
SCORED_PER_CELL = 150
"""Rows of a GPU x operation (and split) that are trained on, and scored."""

SETTINGS = RESIDUALS["gemm"]
FALLING = ("wave_fraction", "n_fill", "m_fill", "log_k_per_split", "log_blocks_per_sm")
"""Features of which more can only help: fuller waves and tiles, deeper reductions, more blocks."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Rows with what a model may see of them, and what it is to say."""

    features: Array
    raw: Array
    law_us: Array
    ideal_us: Array
    kernel_us: Array
    weight: Array
    rows: NDArray[np.int64]


Model = Callable[[Array], Array]
Fitter = Callable[[Array, Array, Array], Model]
"""Features, targets, weights -> a model of features."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to get from features to log(kernel time / base)."""

    name: str
    fit: Fitter | None
    raw: bool = False
    on_law: bool = True
    shared: bool = False


def raw_columns(measurements: Measurements, rows: NDArray[np.int64], specs: Mapping[str, GpuSpec]) -> Array:
    """Sizes and the GPU's figures as they are, in log: what a model sees that gets no physics."""
    kernels = [measurements.kernels[i] for i in rows.tolist()]
    sizes = np.array([[getattr(kernel, name) for name in ("batch", "m", "n", "k")] for kernel in kernels], dtype=float)
    figures = np.array([gpu_vector(specs[gpu]) for gpu in measurements.gpu[rows].tolist()])
    return np.hstack([np.log(sizes), figures])


def cells(
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    fit: LawFit,
    rows: NDArray[np.int64],
    kernel_us: Array,
    weight: Array,
) -> Cells:
    """What the law says of rows, in the order of ``rows``."""
    features = np.zeros((rows.size, len(GEMM.feature_names)))
    law_us, ideal_us = np.zeros(rows.size), np.zeros(rows.size)
    for gpu in sorted(set(measurements.gpu[rows].tolist())):
        place = np.flatnonzero(measurements.gpu[rows] == gpu)
        answer = apply_law(GEMM, measurements.select(rows[place]).kernels, specs[gpu], fit.constants)
        features[place] = answer.features
        law_us[place], ideal_us[place] = answer.result.latency_us, answer.result.ideal_us
    return Cells(
        features=features,
        raw=raw_columns(measurements, rows, specs),
        law_us=law_us,
        ideal_us=ideal_us,
        kernel_us=kernel_us,
        weight=weight,
        rows=rows,
    )


def sample(
    measurements: Measurements, rows: NDArray[np.int64], limit: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """At most ``limit`` rows of each session."""
    kept = []
    session = measurements.session[rows]
    for name in sorted(set(session.tolist())):
        own = rows[session == name]
        kept.append(random.choice(own, limit, replace=False) if own.size > limit else own)
    return np.sort(np.concatenate(kept))


def training_cells(measurements: Measurements, specs: Mapping[str, GpuSpec], fit: LawFit) -> Cells:
    """A sample of the residual's own rows; kernel times with host and session's level taken out."""
    known = {gpu: specs[gpu] for gpu in fit.gpus}
    limited = ResidualSettings(row_limit=TRAINED_PER_CELL * len(fit.sessions))
    found = residual_rows(GEMM, measurements, known, fit, limited, seed=0)
    made = cells(measurements, specs, fit, found.rows, np.zeros(found.rows.size), found.weight)
    return Cells(
        features=made.features,
        raw=made.raw,
        law_us=made.law_us,
        ideal_us=made.ideal_us,
        kernel_us=made.law_us * np.exp(found.log_ratio),
        weight=found.weight,
        rows=found.rows,
    )


def trees(*, objective: str = "huber", monotone: Sequence[int] | None = None) -> Fitter:
    """LightGBM with the shipped settings; L1 knows no monotone constraints."""

    def fit(features: Array, target: Array, weight: Array) -> Model:
        lightgbm = require("lightgbm")
        parameters: dict[str, Any] = {
            "objective": objective,
            "alpha": SETTINGS.huber,
            "learning_rate": SETTINGS.learning_rate,
            "num_leaves": SETTINGS.leaf_count,
            "min_data_in_leaf": SETTINGS.rows_per_leaf,
            "feature_fraction": SETTINGS.feature_fraction,
            "lambda_l2": SETTINGS.l2,
            "seed": 0,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbose": -1,
        }
        if monotone is not None:
            parameters["monotone_constraints"] = list(monotone)
        data = lightgbm.Dataset(features, label=np.clip(target, -2.0, 2.0), weight=weight)
        booster = lightgbm.train(parameters, data, num_boost_round=SETTINGS.tree_count)

        def model(seen: Array) -> Array:
            found: Array = booster.predict(seen, num_threads=1)
            return found

        return model

    return fit


def perceptron(*, width: int = 64, epochs: int = 60, batch: int = 256, rate: float = 2e-3) -> Fitter:
    """Two hidden layers of ``width`` with tanh, trained by Adam on the absolute error; numpy only."""

    def fit(features: Array, target: Array, weight: Array) -> Model:
        random = np.random.default_rng(0)
        centre, spread = features.mean(axis=0), features.std(axis=0) + 1e-6
        # float32 for speed; columns beyond five deviations say nothing that training showed
        inputs = np.clip((features - centre) / spread, -5.0, 5.0)
        sizes = (features.shape[1], width, width, 1)
        layers = [random.normal(0.0, 1.0 / np.sqrt(a), (a, b)) for a, b in pairwise(sizes)]
        offsets = [np.zeros(b) for b in sizes[1:]]
        parameters = [*layers, *offsets]
        first, second = ([np.zeros_like(p) for p in parameters] for _ in range(2))
        step = 0
        for epoch in range(epochs):
            order = random.permutation(len(inputs))
            pace = rate * 0.5 * (1.0 + np.cos(np.pi * epoch / epochs))
            for start in range(0, len(order), batch):
                chosen = order[start : start + batch]
                seen = [inputs[chosen]]
                for layer, offset in zip(layers[:-1], offsets[:-1], strict=True):
                    seen.append(np.tanh(seen[-1] @ layer + offset))
                error = (seen[-1] @ layers[-1] + offsets[-1])[:, 0] - np.clip(target[chosen], -2.0, 2.0)
                slope = (weight[chosen] * np.tanh(error / 0.05))[:, None] / len(chosen)
                gradients: list[Array] = [np.zeros(0)] * len(parameters)
                for index in range(len(layers) - 1, -1, -1):
                    gradients[index] = seen[index].T @ slope
                    gradients[len(layers) + index] = slope.sum(axis=0)
                    slope = (slope @ layers[index].T) * (1.0 - seen[index] ** 2)
                step += 1
                for index, gradient in enumerate(gradients):
                    first[index] += 0.1 * (gradient - first[index])
                    second[index] += 0.001 * (gradient**2 - second[index])
                    unbiased = first[index] / (1.0 - 0.9**step)
                    parameters[index] -= pace * unbiased / (np.sqrt(second[index] / (1.0 - 0.999**step)) + 1e-8)

        def model(seen: Array) -> Array:
            values = np.clip((seen - centre) / spread, -5.0, 5.0)
            for layer, offset in zip(layers[:-1], offsets[:-1], strict=True):
                values = np.tanh(values @ layer + offset)
            found: Array = (values @ layers[-1] + offsets[-1])[:, 0]
            return found

        return model

    return fit


def variants() -> list[Variant]:
    signs = [-1 if name in FALLING else 0 for name in GEMM.feature_names]
    return [
        Variant(name="the law alone", fit=None),
        Variant(name="law x trees of dimensionless features (shipped)", fit=trees()),
        Variant(name="one model for gemm, softmax, normalization and elementwise", fit=trees(), shared=True),
        Variant(name="L1 instead of Huber's loss", fit=trees(objective="regression_l1")),
        Variant(name="monotone in fills, waves and depth", fit=trees(monotone=signs)),
        Variant(name="law x trees of raw sizes and GPU figures", fit=trees(), raw=True),
        Variant(name="roofline x trees of dimensionless features", fit=trees(), on_law=False),
        Variant(name="roofline x trees of raw sizes and GPU figures", fit=trees(), raw=True, on_law=False),
        Variant(name="law x MLP of dimensionless features (2 x 64)", fit=perceptron()),
        Variant(name="roofline x MLP of raw sizes and GPU figures (2 x 64)", fit=perceptron(), raw=True, on_law=False),
    ]


def predicted_us(variant: Variant, train: Cells, score: Cells, others: tuple[Array, Array, Array] | None) -> Array:
    """Kernel times in us of the rows of ``score``; ``others``: features, targets and weights of other classes."""
    if variant.fit is None:
        return np.maximum(score.law_us, score.ideal_us)
    base, scored_base = (train.law_us, score.law_us) if variant.on_law else (train.ideal_us, score.ideal_us)
    seen, asked = (train.raw, score.raw) if variant.raw else (train.features, score.features)
    target, weight = np.log(train.kernel_us / base), train.weight
    if variant.shared and others is not None:
        more, more_target, more_weight = others
        padded = np.hstack([np.zeros((len(more), seen.shape[1])), more])
        seen = np.vstack([np.hstack([seen, np.zeros((len(seen), more.shape[1]))]), padded])
        asked = np.hstack([asked, np.zeros((len(asked), more.shape[1]))])
        target, weight = np.concatenate([target, more_target]), np.concatenate([weight, more_weight])
    found = scored_base * np.exp(variant.fit(seen, target, weight)(asked))
    return np.maximum(found, score.ideal_us)


def other_classes(measured: Sequence[Measurements], specs: Mapping[str, GpuSpec]) -> tuple[Array, Array, Array]:
    """Residual rows of the other classes, each with columns of its own: what a shared model would see besides."""
    blocks, targets, weights = [], [], []
    for part in measured:
        law = LAWS[part.kernel_class]
        known = {gpu: specs[gpu] for gpu in sorted(set(part.gpu.tolist())) if gpu in specs}
        fit = fit_law(law, part, known, seed=0)
        limited = ResidualSettings(row_limit=TRAINED_PER_CELL // 4 * len(fit.sessions))
        found = residual_rows(law, part, known, fit, limited, seed=0)
        blocks.append(found.features.astype(np.float64))
        targets.append(found.log_ratio)
        weights.append(found.weight)
    width = sum(block.shape[1] for block in blocks)
    rows, start = [], 0
    for block in blocks:
        padded = np.zeros((len(block), width))
        padded[:, start : start + block.shape[1]] = block
        rows.append(padded)
        start += block.shape[1]
    return np.vstack(rows), np.concatenate(targets), np.concatenate(weights)


def cell_errors(measurements: Measurements, rows: NDArray[np.int64], log_error: Array) -> list[float]:
    """Mean error in per cent of each GPU x operation."""
    gpu, operation = measurements.gpu[rows], measurements.operation[rows]
    pairs = sorted(set(zip(gpu.tolist(), operation.tolist(), strict=True)))
    return [mape_percent(log_error[(gpu == name) & (operation == op)]) for name, op in pairs]


def residual_ingredients(measured: Sequence[Measurements], specs: Mapping[str, GpuSpec]) -> list[tuple[str, ...]]:
    """A row per variant: name, leave-one-GPU-out error (NVIDIA GPUs) and new-shape error (all GPUs) in per cent."""
    measurements = next(part for part in measured if part.kernel_class == "gemm")
    rest = [part for part in measured if part.kernel_class in ("softmax", "normalization", "elementwise")]
    random = np.random.default_rng(0)
    scored = sample(measurements, scored_rows(measurements), SCORED_PER_CELL, random)
    scored = scored[np.isin(measurements.gpu[scored], sorted(specs))]
    others = other_classes(rest, specs) if rest else None
    unseen: dict[str, list[float]] = {variant.name: [] for variant in variants()}
    new: dict[str, list[float]] = {variant.name: [] for variant in variants()}

    def run(into: dict[str, list[float]], fit: LawFit, train: Cells, rows: NDArray[np.int64]) -> None:
        of_gpus = {gpu: specs[gpu] for gpu in sorted(set(measurements.gpu[rows].tolist()))}
        launch = launches_of(GEMM, measurements, of_gpus, fit).take(rows)
        score = cells(measurements, specs, fit, rows, measurements.measured_us[rows], np.ones(rows.size))
        for variant in variants():
            kernel_us = predicted_us(variant, train, score, others)
            error = np.log(event_us(kernel_us, launch) / measurements.measured_us[rows])
            into[variant.name] += cell_errors(measurements, rows, error)

    for left_out in sorted(gpu for gpu, spec in specs.items() if spec.compute_capability is not None):
        fit = fit_law(GEMM, measurements, {gpu: spec for gpu, spec in specs.items() if gpu != left_out}, seed=0)
        run(unseen, fit, training_cells(measurements, specs, fit), scored[measurements.gpu[scored] == left_out])
        print(f"residuals without {left_out}", file=sys.stderr)
    fit = fit_law(GEMM, measurements, specs, seed=0)
    group = measurements.shape_group
    fold_of = np.random.default_rng(1).permutation(int(group.max()) + 1) % 5
    train = training_cells(measurements, specs, fit)
    kept = np.flatnonzero(fold_of[group[train.rows]] != 0)
    train = Cells(
        features=train.features[kept],
        raw=train.raw[kept],
        law_us=train.law_us[kept],
        ideal_us=train.ideal_us[kept],
        kernel_us=train.kernel_us[kept],
        weight=train.weight[kept],
        rows=train.rows[kept],
    )
    every = scored_rows(measurements)
    every = every[np.isin(measurements.gpu[every], sorted(specs)) & (fold_of[group[every]] == 0)]
    run(new, fit, train, sample(measurements, every, SCORED_PER_CELL, random))
    return [(name, f"{float(np.mean(unseen[name])):.1f}", f"{float(np.mean(new[name])):.1f}") for name in unseen]
