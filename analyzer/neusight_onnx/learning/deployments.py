"""What kernels of one class have in common in a run: how far another deployment's level lies from the predicted one.

What a kernel errs by itself cancels over a model's kernels; what a run's kernels of one class err in common does not:
the card, its clock and cooling, the version of the library, how another program calls it, and on a GPU that was not
measured what the law gets wrong of it. Rows that a predictor is trained on show none of that: their session's level is
fitted. So it is told from

- *on measured GPUs* (the deployment): rows of the same GPUs that others measured, with other programs and libraries,
  and the slowest version of the library that was trained on, whose rows are those of its fastest;
- *on other GPUs*: the rows of each trained GPU by the law with the constants of a fit without it, where the variance of
  another deployment adds, for these rows have the training's; and rows of GPUs that no training file holds, whose
  errors have both in them.

A run is the products with weights of as many rows, the convolutions of one batch size and direction, the attention of
as many keys; of other classes all rows of a GPU. With the predicted times as weights, w, of its kernels' errors, e, the
expected square of the mean error is C + q O and the mean square C + O, where q = sum of w^2, C the common and O the
kernels' own variance: that gives C. Written to ``deployments.json`` beside the manifest; whole models are not read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.errors import DataError, OutputError, SpecError
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import Attention, Conv, Gemm, Kernel
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.learning.datasets.conv import DEEPBENCH
from neusight_onnx.learning.datasets.llm_layers import LLM_LAYERS, VIDUR_LAYERS
from neusight_onnx.learning.datasets.parts import EVENTS, Measurements, Part
from neusight_onnx.learning.datasets.products import TENSOR_CORE_GEMM, read_slowest_versions
from neusight_onnx.learning.datasets.registry import has_files, measured_folder, read_parts
from neusight_onnx.learning.datasets.training_rows import (
    TRAINED_ATTENTION,
    TRAINED_VARIANTS,
    TRAINING_FILES,
    read_attention,
)
from neusight_onnx.learning.heldout import OWN_SHARE, launch_shown, scored_rows
from neusight_onnx.learning.shared_predictors import SHARED_PREDICTORS, shared_parts, shared_rows
from neusight_onnx.predictor import (
    Predictor,
    Predictors,
    estimate,
    load_predictors,
    predictor_for,
    without_gpu,
)
from neusight_onnx.predictor.intervals import EIGHTY_PERCENT
from neusight_onnx.predictor.manifest import DEPLOYMENTS_NAME, DEPLOYMENTS_VERSION
from neusight_onnx.similarity import gpu_weight

SAMPLED_ROWS = 3000
"""Rows of a GPU and source that are looked at: with 50 runs of 60 kernels each, C is known to a fifth."""

LEAST_KERNELS = 4
"""Different kernels that a run must have to say what they have in common."""

MEASURED_FROM = 0.5
"""Weight of ``gpu_weight`` from which on a GPU counts as one that was measured: the same die in another form."""

FAMILY_GPUS = 2.0
"""The variance of a predictor is taken together with that of its kin as if those were two GPUs more (a moderated
variance; Smyth, "Linear models and empirical Bayes methods", 2004, where the weight is fitted to thousands of genes):
of the two GPUs that convolutions in 16 bits were measured on, the variance is hardly known. A judgement."""

OF_MANY_PROGRAMS = (f"{DEEPBENCH}, gemm",)
"""Sources whose products are those of many programs, so that those with as many rows belong to no run: all of them
count as one, which shows the level of the GPU and the library."""

NARROW = ("fp8", "int8", "w8a16", "w4a16", "fp4", "kv8")
"""How the names of predictors end whose frameworks differ by how they convert and unpack: kin of each other only."""


LEFT_OUT = ", left out"
"""Ends the name of a source whose GPU the predictor was trained on."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the runs of a source on a GPU have in common: the variance of their log errors, over so many runs."""

    gpu: str
    source: str
    variance: float
    run_count: int


def run_of(kernel: Kernel) -> tuple[object, ...]:
    """What kernels of one class that are run together share."""
    match kernel:
        case Gemm():
            return (kernel.m,) if kernel.b_is_weight else ()
        case Conv():
            return kernel.n, kernel.direction
        case Attention():
            return kernel.s > 1, kernel.t
        case _:
            return ()


def common_variance(
    kernels: Sequence[Kernel],
    log_error: NDArray[np.float64],
    predicted_us: NDArray[np.float64],
    *,
    one_run: bool = False,
) -> tuple[float, int] | None:
    """The variance that the errors of a run's kernels have in common, and how many runs there are; None without any.

    May come out below zero, as an estimate of a variance near zero does. ``log_error`` and ``predicted_us`` have shape
    (kernels,). A kernel that was measured several times counts once. ``one_run``: all kernels are taken for one.
    """
    runs: dict[tuple[object, ...], dict[Kernel, list[int]]] = {}
    for place, kernel in enumerate(kernels):
        runs.setdefault(() if one_run else run_of(kernel), {}).setdefault(kernel, []).append(place)
    common, share = [], []
    for members in runs.values():
        if len(members) < LEAST_KERNELS:
            continue
        error = np.array([np.mean(log_error[places]) for places in members.values()])
        weight = np.array([predicted_us[places[0]] for places in members.values()])
        weight = weight / weight.sum()
        alone = float(np.sum(weight**2))
        common.append(float(np.sum(weight * error)) ** 2 - alone * float(np.sum(weight * error**2)))
        share.append(1.0 - alone)
    return (sum(common) / sum(share), len(common)) if share and sum(share) > 0 else None


def deployments(data_folder: Path, output: Path, *, log: Callable[[str], None] = print) -> dict[str, Any]:
    """Writes ``deployments.json`` of the predictors in ``output`` and returns its content.

    What the file says of predictors that no row of the data tells of is kept.
    Raises DataError (nothing to read), PredictorError (no predictors there), NeusightError (the ``learning`` extra is
    missing), OutputError (it can't be written).
    """
    predictors = load_predictors(output)
    found: dict[tuple[str, bool], dict[bool, list[Evidence]]] = {}
    for name, amd, measured, evidence in _evidence(data_folder, predictors):
        found.setdefault((name, amd), {True: [], False: []})[measured].append(evidence)
    if not found:
        raise DataError(f"{data_folder} has no kernels that predictors are trained on or judged by: nothing to tell")
    entries = _entries(found, predictors)
    for name, entry in entries.items():
        for vendor, parts in (("", entry), (" (AMD)", entry.get("amd", {}))):
            for part, value in parts.items():
                if part != "amd":
                    log(f"{name}{vendor}: a half width of {value['half_width_log']:.3f} (log) in common, {part}")
    path = output / DEPLOYMENTS_NAME
    kept = _untold(path, entries, {predictor.name for predictor in predictors.values()})
    if kept:
        log(f"no rows that tell of {', '.join(sorted(kept))}: kept as they were")
    told = {name: {**kept, **entries}[name] for name in sorted({*kept, *entries})}
    content = {"schema_version": DEPLOYMENTS_VERSION, "coverage": 0.8, "predictors": told}
    try:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"can't write {path}: {error.strerror}") from error
    return content


def _untold(path: Path, entries: Mapping[str, Any], names: AbstractSet[str]) -> dict[str, Any]:
    """What a file of before says of predictors among ``names`` that have no new entry."""
    if not path.is_file():
        return {}
    old: dict[str, Any] = json.loads(path.read_bytes())["predictors"]
    return {name: entry for name, entry in old.items() if name in names and name not in entries}


_Found = tuple[str, bool, bool, Evidence]
"""A predictor's name, whether the evidence is of AMD's GPUs, whether of measured ones, and the evidence."""


def _evidence(data_folder: Path, predictors: Predictors) -> Iterator[_Found]:
    """All that the folder tells of the predictors."""
    for source, measurements in _trained_rows(data_folder):
        for name, gpu, rows in _by_gpu(measurements):
            without = without_gpu(predictors, gpu.name)
            kernel = measurements.kernels[int(rows[0])]
            known, left = predictor_for(kernel, gpu, predictors), predictor_for(kernel, gpu, without)
            # the only GPU that was measured leaves nothing but the priors
            if known is None or left is None or name not in known.gpus or len(known.gpus) < 2:
                continue
            yield from _told(f"{source}{LEFT_OUT}", measurements, rows, gpu, left, measured=False)
    for source, measurements in _others_rows(data_folder):
        for _, gpu, rows in _by_gpu(measurements):
            used = predictor_for(measurements.kernels[int(rows[0])], gpu, predictors)
            if used is None or not used.gpu_vectors:
                continue
            measured = gpu_weight(gpu, used.gpu_vectors) >= MEASURED_FROM
            if measured or not source.startswith(TENSOR_CORE_GEMM):
                yield from _told(source, measurements, rows, gpu, used, measured=measured)


def _told(
    source: str,
    measurements: Measurements,
    rows: NDArray[np.int64],
    gpu: GpuSpec,
    used: Predictor,
    *,
    measured: bool,
) -> Iterator[_Found]:
    part = measurements.select(rows)
    predicted_us = np.asarray(estimate(part.kernels, gpu, used).latency_us)
    kernel_us, kept = part.measured_us, np.ones(len(part), dtype=np.bool_)
    if part.timing == EVENTS:
        launch = launch_shown(part, predicted_us, dict.fromkeys(set(part.gpu.tolist()), gpu), part.kernel_class)
        kernel_us = kernel_us - launch.before_us
        kept = launch.before_us <= (1.0 - OWN_SHARE) * part.measured_us
    counted = np.zeros(len(part), dtype=np.bool_)
    counted[scored_rows(part)] = True
    kept &= counted
    kernels = [part.kernels[i] for i in np.flatnonzero(kept).tolist()]
    error = np.log(kernel_us[kept] / predicted_us[kept])
    found = common_variance(kernels, error, predicted_us[kept], one_run=source in OF_MANY_PROGRAMS)
    if found is not None:
        variance, count = found
        yield (
            used.name,
            is_amd(gpu),
            measured,
            Evidence(gpu=gpu.name, source=source, variance=variance, run_count=count),
        )


def _by_gpu(measurements: Measurements) -> Iterator[tuple[str, GpuSpec, NDArray[np.int64]]]:
    """The GPUs that have a spec, with at most ``SAMPLED_ROWS`` of the rows of each session, always the same ones."""
    for name in sorted(set(measurements.gpu.tolist())):
        try:
            gpu = load_gpu(name)
        except SpecError:
            continue
        chosen = []
        of_gpu = np.flatnonzero(measurements.gpu == name)
        sessions = measurements.session[of_gpu]
        for session in sorted(set(sessions.tolist())):
            rows = of_gpu[sessions == session]
            if rows.size > SAMPLED_ROWS:
                random = np.random.default_rng(crc32(f"{measurements.file}/{session}".encode()))
                rows = random.choice(rows, SAMPLED_ROWS, replace=False)
            chosen.append(rows)
        yield name, gpu, np.sort(np.concatenate(chosen))


def _trained_rows(data_folder: Path) -> Iterator[tuple[str, Measurements]]:
    """The rows that predictors are trained on, with their file."""
    if has_files(data_folder, TRAINING_FILES):
        for part in read_parts(data_folder, TRAINING_FILES):
            if part.load is not None:
                yield part.file, part.load(part.sample(SAMPLED_ROWS))
    if has_files(data_folder, (TENSOR_CORE_GEMM,)):
        for part in read_parts(data_folder, (TENSOR_CORE_GEMM,)):
            if part.load is not None and part.variant == TRAINED_VARIANTS.get(part.dtype):
                yield part.file, part.load(part.sample(SAMPLED_ROWS))
    for label in TRAINED_ATTENTION:
        found = read_attention(data_folder, label, sampled=SAMPLED_ROWS)
        if found is not None:
            yield found.file, found
    folder = measured_folder(data_folder)
    for shared in SHARED_PREDICTORS:
        if (folder / shared.file).is_file():
            found = shared_rows(shared, shared_parts(shared, folder), lambda _: None, sampled=SAMPLED_ROWS)
            if found is not None:
                yield shared.file, found


def _others_rows(data_folder: Path) -> Iterator[tuple[str, Measurements]]:
    """Rows of other deployments: what another program, library or laboratory measured of kernels of trained classes."""
    folder = measured_folder(data_folder)
    files = [file for file in (VIDUR_LAYERS, LLM_LAYERS, DEEPBENCH) if (folder / file).is_file()]
    for part in read_parts(data_folder, files) if files else ():
        if part.load is not None and part.kernel_class in ("gemm", "conv", "attention") and _is_of_others(part):
            yield f"{part.file}, {part.kernel_class}", part.load(part.sample(SAMPLED_ROWS))
    path = folder / TENSOR_CORE_GEMM
    if path.is_file():
        for part in read_parts(data_folder, (TENSOR_CORE_GEMM,)):
            trained = TRAINED_VARIANTS.get(part.dtype)
            if part.load is not None and part.variant != trained and ", " not in part.variant:
                yield f"{part.file}, {part.variant}", part.load(part.sample(SAMPLED_ROWS))
        for part in read_slowest_versions(path):
            if part.load is not None and part.variant == TRAINED_VARIANTS.get(part.dtype):
                yield f"{part.file}, {part.variant}, slowest version", part.load(part.sample(SAMPLED_ROWS))


def _is_of_others(part: Part) -> bool:
    """Whether no predictor is trained on a part's rows, and they are kernels as programs of today run.

    DeepBench's convolutions in 16 bits and its gradients in FP32 are training rows; its products in 8 bits ran before
    cuBLAS had kernels on tensor cores for matrices in the usual order.
    """
    of_products = (part.kernel_class, part.dtype) == ("gemm", "float16")
    in_fp32 = part.dtype == "float32" and (part.kernel_class == "gemm" or part.variant == "forward")
    return part.file != DEEPBENCH or in_fp32 or of_products


def _family(name: str) -> tuple[str, bool]:
    kernel_class, form = name.split("_", 1)
    return kernel_class, form in NARROW


def _by_gpu_mean(evidence: Sequence[Evidence]) -> dict[str, float]:
    """Variance by GPU, the sources of a GPU weighing the same; at least zero."""
    found: dict[str, list[float]] = {}
    for item in evidence:
        found.setdefault(item.gpu, []).append(item.variance)
    return {gpu: max(float(np.mean(values)), 0.0) for gpu, values in found.items()}


def _sessions(predictor: Predictor) -> dict[str, float]:
    """The variance that training found between sessions or frameworks on each GPU; nothing where it found none."""
    width = predictor.interval.session
    return dict.fromkeys(predictor.gpus, (width / EIGHTY_PERCENT) ** 2) if width else {}


def _moderated(by_gpu: Mapping[str, float], kin: Sequence[float]) -> tuple[float, float]:
    """The variance with that of its kin, and its degrees of freedom."""
    values = list(by_gpu.values())
    if not kin:
        return float(np.mean(values)) if values else 0.0, float(len(values))
    freedom = FAMILY_GPUS + len(values)
    return (FAMILY_GPUS * float(np.mean(kin)) + sum(values)) / freedom, freedom


def _half_width(variance: float, freedom: float) -> float:
    """Half width in log that 80 % of levels lie within: of Student's t, for the variance is known from few GPUs."""
    from scipy.stats import t  # type: ignore[import-untyped]  # it ships no annotations

    return float(t.ppf(0.9, max(freedom, 1.0))) * float(np.sqrt(variance))


def _entries(
    found: Mapping[tuple[str, bool], Mapping[bool, Sequence[Evidence]]], predictors: Predictors
) -> dict[str, dict[str, Any]]:
    """What ``deployments.json`` says of each predictor, by name; of AMD's GPUs under "amd" where it has others, too."""
    by_name = {predictor.name: predictor for predictor in predictors.values()}
    measured = {key: _by_gpu_mean(evidence[True]) or _sessions(by_name[key[0]]) for key, evidence in found.items()}
    deployment = {key: _moderated(by_gpu, _of_kin(key, measured)) for key, by_gpu in measured.items()}
    beyond: dict[tuple[str, bool], dict[str, float]] = {}
    for key, evidence in found.items():
        left_out = _by_gpu_mean([item for item in evidence[False] if item.source.endswith(LEFT_OUT)])
        others = _by_gpu_mean([item for item in evidence[False] if not item.source.endswith(LEFT_OUT)])
        beyond[key] = {**{gpu: value + deployment[key][0] for gpu, value in left_out.items()}, **others}
    entries: dict[str, dict[str, Any]] = {}
    for key in sorted(found):
        parts = {
            "measured": _described(*deployment[key], found[key][True]),
            "unmeasured": _described(*_moderated(beyond[key], _of_kin(key, beyond)), found[key][False]),
        }
        parts = {part: described for part, described in parts.items() if described}
        name, amd = key
        if amd and (name, False) in found:
            entries[name]["amd"] = parts
        else:
            entries[name] = parts
    return entries


def _described(variance: float, freedom: float, evidence: Sequence[Evidence]) -> dict[str, Any]:
    if not freedom:
        return {}
    return {
        "half_width_log": round(_half_width(variance, freedom), 4),
        "log_sd": round(variance**0.5, 4),
        "degrees_of_freedom": freedom,
        "evidence": [
            {
                "gpu": item.gpu,
                "source": item.source,
                "log_sd": round(max(item.variance, 0.0) ** 0.5, 4),
                "run_count": item.run_count,
            }
            for item in sorted(evidence, key=lambda item: (item.gpu, item.source))
        ],
    }


def _of_kin(key: tuple[str, bool], by_gpu: Mapping[tuple[str, bool], Mapping[str, float]]) -> list[float]:
    """The variances of all predictors whose levels tell of this one's: of one class, vendor and kind of format.

    Of the other vendor's where none of this one's is known: that nobody measured another library doesn't make it alike.
    """
    by_vendor: dict[bool, list[float]] = {True: [], False: []}
    for (name, amd), values in by_gpu.items():
        if _family(name) == _family(key[0]):
            by_vendor[amd].extend(values.values())
    return by_vendor[key[1]] or by_vendor[not key[1]]
