"""Judges the law and the residual of each kernel class: ``python benchmarks/kernels.py DATA [--only NAME] [...]``.

Prints, and writes to benchmarks/results/kernels.md: errors leave-one-GPU-out, leave-one-generation-out and on new
shapes per class, number format, GPU and operation, as they stand in the manifest of the shipped predictors (the
manifest names the data they were measured on; a folder with other data is trained anew into a temporary folder), the
roofline's beside them, the intervals' coverage; every file of the folder with its GPU left out, also where nothing was
trained on it; and what each ingredient of the law of matrix products brings: the leave-one-GPU-out error without it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import DataError, NeusightError
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernel_formats import kernel_dtype, measured_format, predictor_label
from neusight_onnx.kernels import Gemm
from neusight_onnx.laws.base import Columns, Constants, Law
from neusight_onnx.laws.gemm import tiles as gemm_tiles
from neusight_onnx.laws.gemm.law import GEMM
from neusight_onnx.learning import fitting
from neusight_onnx.learning.__main__ import main as learn
from neusight_onnx.learning.datasets.parts import Measurements, known_gpus
from neusight_onnx.learning.datasets.registry import file_sha256, measured_folder, read_measurements, read_parts
from neusight_onnx.learning.datasets.training_rows import TRAINING_FILES
from neusight_onnx.learning.evaluate import ALL, ANALYTIC, SAMPLED_ROWS, evaluate, judge
from neusight_onnx.learning.extras import require
from neusight_onnx.learning.fitting import ResidualSettings
from neusight_onnx.learning.heldout import (
    SCORED_US,
    Scored,
    Trained,
    launches_of,
    mape_percent,
    predict_rows,
    scored_rows,
    scored_sessions,
    train_once,
)
from neusight_onnx.learning.shared_predictors import SHARED_PREDICTORS
from neusight_onnx.predictor import load_predictors
from neusight_onnx.similarity import gpu_vector
from neusight_onnx.tiling import Tile, candidates
from residuals import SCORED_PER_CELL, TRAINED_PER_CELL, residual_ingredients

PROTOCOLS = ("leave_one_gpu_out", "leave_one_generation_out", "new_shapes")
NEVER = 1e12
"""A constant that makes a rate so high that its part of the law vanishes."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The law of matrix products without one ingredient."""

    name: str
    law: Law = GEMM
    fixed: Mapping[str, float] | None = None
    settings: ResidualSettings | None = None
    unseen_weight: float = 0.0
    session_levels: bool = True


def with_tiles(tiles: tuple[Tile, ...], *, split: bool) -> Law:
    """The law with one menu for every GPU."""

    def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, NDArray[np.float64]]:
        chosen = gemm_tiles.choose_from(candidates(tiles, split=split), cols, gpu, constants)
        names = ("tile_n", "tile_m", "tile_threads", "split_k")
        return {**cols, **dict(zip(names, chosen, strict=True))}

    return replace(GEMM, pin=pin)


def variants() -> list[Variant]:
    """The law, and the law without each ingredient."""
    square = (Tile(n=128, m=128, threads=256),)
    generic = (*square, Tile(n=128, m=64, threads=128), Tile(n=64, m=64, threads=64), Tile(n=32, m=32, threads=128))
    trees = fitting.RESIDUALS["gemm"]
    return [
        Variant(name="the law"),
        Variant(name="levels of sessions not told apart", session_levels=False),
        Variant(name="no power limit", fixed={"energy_pj": 1e-6}),
        Variant(name="7 nm at the foundry's energy", fixed={"energy_7nm": 0.5}),
        Variant(name="no shared-memory roof", fixed={"shared_efficiency": NEVER}),
        Variant(name="no L2 roof", fixed={"l2_bytes_per_clock": NEVER}),
        Variant(name="no reload from DRAM (unique bytes only)", fixed={"spill_knee": 1e-9}),
        Variant(name="reloads at the rate of streams", fixed={"reload_efficiency": 1.0}),
        Variant(name="rows of any length reloaded alike", fixed={"row_fade": 1e-9}),
        Variant(name="no wait for rows longer than a page", fixed={"row_ns": 1e-9}),
        Variant(name="no large-K divergence", fixed={"drift_span": NEVER}),
        Variant(name="no wider fetch from Volta on", fixed={"fetch_gain": 1.0}),
        Variant(name="no occupancy (latency hiding)", fixed={"latency_warps": 1e-9}),
        Variant(name="one 128x128 tile for all, no split-K", law=with_tiles(square, split=False)),
        Variant(name="one menu for all, no split-K", law=with_tiles(generic, split=False)),
        Variant(name="one menu for all, split-K", law=with_tiles(generic, split=True)),
        Variant(name="half the residual's trees on the unseen GPU", settings=trees, unseen_weight=0.5),
        Variant(name="the residual's trees in full on the unseen GPU", settings=trees, unseen_weight=1.0),
    ]


def leave_one_gpu_out(
    variant: Variant, measurements: Measurements, specs: Mapping[str, GpuSpec], gpus: Sequence[str]
) -> dict[tuple[str, str], float]:
    """Mean error in per cent by GPU and operation."""
    counted = scored_rows(measurements)
    errors: dict[tuple[str, str], float] = {}
    for gpu in gpus:
        rest = {name: spec for name, spec in specs.items() if name != gpu}
        if variant.fixed is None:
            trained = train_once(variant.law, measurements, rest, seed=0, settings=variant.settings)
        else:
            fit = fitting.fit_law(variant.law, measurements, rest, seed=0, fixed=variant.fixed)
            nothing = np.zeros(len(variant.law.feature_names))
            trained = Trained(
                law=variant.law,
                fit=fit,
                booster=None,
                feature_low=nothing,
                feature_high=nothing,
                vectors=tuple(gpu_vector(rest[name]) for name in fit.gpus),
                specs=tuple(rest[name] for name in fit.gpus),
            )
        launches = launches_of(variant.law, measurements, {gpu: specs[gpu]}, trained.fit)
        rows = counted[measurements.gpu[counted] == gpu]
        scored = Scored(
            rows=rows,
            kernel_us=predict_rows(trained, measurements, rows, specs[gpu], unseen_weight=variant.unseen_weight),
            launch=launches.take(rows),
            measured_us=measurements.measured_us[rows],
        )
        operation = measurements.operation[rows]
        for name in sorted(set(operation.tolist())):
            errors[gpu, name] = mape_percent(scored.log_error[operation == name])
    return errors


def without_session_levels(run: Callable[[], dict[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
    """Runs with the levels of all sessions held at 1 by their priors."""
    before = fitting.LEVEL_LOG_SD, fitting.THROTTLED_LEVEL_LOG_SD
    fitting.LEVEL_LOG_SD = fitting.THROTTLED_LEVEL_LOG_SD = 1e-4
    try:
        return run()
    finally:
        fitting.LEVEL_LOG_SD, fitting.THROTTLED_LEVEL_LOG_SD = before


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---" for _ in header) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def shares(coverage: Mapping[str, float]) -> str:
    """Mean over the GPUs, and each of them, in per cent."""
    if not coverage:
        return "-"
    each = ", ".join(f"{gpu} {100 * share:.0f}" for gpu, share in sorted(coverage.items()))
    return f"{100 * float(np.mean(list(coverage.values()))):.0f} ({each})"


Rooflines = Mapping[tuple[str, str, str, str], float]
"""Mean error of the roofline in per cent, by kernel class, label of the predictor, GPU and operation."""

ANY = "matrix"
"""Stands for the labels of shared predictors, whose operations name the format."""


def rooflines(folder: Path, entries: Sequence[Mapping[str, Any]], predictors: Path) -> Rooflines:
    """The roofline on the rows that predictors are scored on: of each file a sample."""
    shipped = load_predictors(predictors)
    classes = {entry["kernel_class"] for entry in entries}
    files = {file["path"] for entry in entries for file in entry["training"]["files"]}
    found: dict[tuple[str, str, str, str], list[tuple[int, float]]] = {}
    for part in read_parts(folder, sorted(files)):
        if part.load is None or part.kernel_class not in classes:
            continue
        measurements = part.load(part.sample(SAMPLED_ROWS))
        specs = known_gpus(measurements, log=lambda text: None)
        label = predictor_label(measurements.kernels[0])
        scored = np.isin(measurements.session, sorted(scored_sessions(measurements)))
        for operation in sorted(set(measurements.operation.tolist())):
            rows = scored & (measurements.operation == operation) & np.isin(measurements.gpu, sorted(specs))
            if not rows.any():
                continue
            formats = {part.dtype, measured_format(kernel_dtype(measurements.kernels[0]))}
            names = {(label, operation), (part.dtype, operation)}
            names |= {(ANY, f"{part.variant} {name}") for name in formats}
            for group in judge(measurements.select(rows), specs, shipped):
                if group.gpu == ALL or not group.size.endswith("and above"):
                    continue
                for own, name in names:
                    key = (part.kernel_class, own, specs[group.gpu].name, name)
                    found.setdefault(key, []).append((group.row_count, group.roofline_mape_percent))
    return {
        key: sum(count * error for count, error in members) / sum(count for count, _ in members)
        for key, members in found.items()
    }


def roofline_cell(roofline: Rooflines, entry: Mapping[str, Any], cell: tuple[str, str]) -> list[float]:
    """The roofline's error on a predictor's GPU and operation; empty where it isn't known."""
    label = ANY if entry["dtype"] in {shared.label for shared in SHARED_PREDICTORS} else entry["dtype"]
    error = roofline.get((entry["kernel_class"], label, *cell))
    return [] if error is None else [error]


def lone_gpus(entry: Mapping[str, Any]) -> set[str]:
    """GPUs of a predictor that are the only ones of their generation: leaving them out leaves it out."""
    names = [gpu["name"] for gpu in entry["training"]["gpus"]]
    generation = {name: load_gpu(name).architecture for name in names}
    kept = list(generation.values())
    return {name for name in names if kept.count(generation[name]) == 1}


def by_protocol(entry: Mapping[str, Any]) -> dict[str, dict[tuple[str, str], Mapping[str, Any]]]:
    """Held-out errors by protocol, GPU and operation; a lone GPU of its generation stands for that, too."""
    found: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {name: {} for name in PROTOCOLS}
    for row in entry["held_out"]["rows"]:
        found.setdefault(row["protocol"], {})[row["gpu"], row["operation"]] = row
    lone = lone_gpus(entry)
    for key, row in found["leave_one_gpu_out"].items():
        if key[0] in lone:
            found["leave_one_generation_out"].setdefault(key, row)
    return found


def summary(entries: Sequence[Mapping[str, Any]], roofline: Rooflines) -> list[str]:
    """A line per predictor: mean over GPU x operation of each protocol, the roofline's on the same cells."""
    rows = []
    for entry in entries:
        errors = by_protocol(entry)
        cells = [f"{_mean([row['mape_percent'] for row in errors[name].values()])}" for name in PROTOCOLS]
        left_out = errors["leave_one_gpu_out"]
        worst = max(left_out.values(), key=lambda row: float(row["mape_percent"]), default=None)
        keys = left_out or errors["new_shapes"]
        own = [error for key in keys for error in roofline_cell(roofline, entry, key)]
        rows.append(
            [
                entry["name"],
                ", ".join(gpu["name"] for gpu in entry["training"]["gpus"]),
                f"{sum(row['row_count'] for row in errors['new_shapes'].values()):,}",
                *cells,
                _mean([row["median_ape_percent"] for row in left_out.values()]),
                f"{worst['mape_percent']:.1f} ({worst['gpu']})" if worst else "-",
                _mean(own),
            ]
        )
    header = ("predictor", "GPUs", "rows scored", "GPU left out", "generation left out", "new shapes")
    return [
        "## All predictors",
        "",
        "Mean absolute error in %, mean over GPU x operation, of rows of at least 50 us where launches were timed by "
        "events, 5 us where the kernel's own time was measured; beside it the median of the absolute errors, which odd "
        "rows don't move, mean over GPU x operation. A GPU that is alone in its generation counts in both "
        "columns. Roofline: on the same cells.",
        "",
        *table((*header, "median, GPU left out", "worst GPU left out", "roofline"), rows),
        "",
    ]


def _mean(errors: Sequence[float]) -> str:
    return f"{float(np.mean(errors)):.1f}" if errors else "-"


def left_out_files(folder: Path, predictors: Path, classes: Sequence[str] | None) -> list[str]:
    """Every file, each GPU as if nothing had been measured on it."""
    found = evaluate(folder, predictors=predictors, leave_out=True, classes=classes)
    rows = [
        [
            group.file.rpartition("/")[2],
            f"{group.kernel_class} {group.dtype}",
            group.variant,
            group.gpu,
            f"{group.row_count:,}",
            f"{group.mape_percent:.1f} ({group.bias_percent:+.1f})",
            f"{group.median_ape_percent:.1f}",
            f"{group.roofline_mape_percent:.1f}",
            f"{100 * group.coverage:.0f}",
            {ANALYTIC: "analytic"}.get(group.method, ""),
        ]
        for group in found.groups
        if group.gpu != ALL and group.size.endswith("and above")
    ]
    header = ("file", "kernels", "variant", "GPU", "rows", "mean (bias)", "median", "roofline", "inside", "law")
    return [
        "## Every file, the GPU left out",
        "",
        "The law with the constants of a fit without the GPU, no residual; rows as above, at most "
        f"{SAMPLED_ROWS:,} a GPU. Errors in %; inside: rows within the 80 % interval. Variants are what the file tells "
        "apart: frameworks, profilers, layers. analytic: no predictor for such kernels.",
        "",
        *table(header, rows),
        "",
    ]


def held_out_tables(entry: Mapping[str, Any], roofline: Rooflines) -> list[str]:
    """The manifest's errors of one predictor: a row per GPU and operation, a column per protocol."""
    held, interval = entry["held_out"], entry["interval"]
    errors = by_protocol(entry)
    keys = sorted({key for found in errors.values() for key in found})

    def cell(name: str, key: tuple[str, str]) -> str:
        row = errors[name].get(key)
        if not row:
            return ""
        return f"{row['mape_percent']:.1f}, {row['median_ape_percent']:.1f} ({row['bias_percent']:+.1f})"

    rows = [
        [
            *key,
            str(next(errors[name][key]["row_count"] for name in reversed(PROTOCOLS) if key in errors[name])),
            *(cell(name, key) for name in PROTOCOLS),
            _mean(roofline_cell(roofline, entry, key)),
        ]
        for key in keys
    ]
    means = " | ".join(
        f"{name} {value:.1f} %" for name in PROTOCOLS if (value := held.get(f"{name}_percent")) is not None
    )
    own: list[str] = []
    if "own_time" in held:
        by_gpu = [
            [gpu]
            + [
                f"{cell['mape_percent']:.1f} ({cell['bias_percent']:+.1f}), {cell['row_count']} rows" if cell else ""
                for cell in (held["own_time"][name].get(gpu) for name in ("leave_one_gpu_out", "new_shapes"))
            ]
            for gpu in sorted(held["own_time"]["new_shapes"])
        ]
        own = [
            f"Kernels' own times: {held['own_time']['rule']}.",
            "",
            *table(("GPU", "GPU left out", "new shapes"), by_gpu),
            "",
        ]
    return [
        f"## {entry['name']}",
        "",
        f"Mean over GPU x operation: {means}. Residual on an unseen GPU: weight {entry['unseen_residual_weight']:g}.",
        "",
        *table(("GPU", "operation", "rows", "GPU left out", "generation left out", "new shapes", "roofline"), rows),
        "",
        *own,
        *interval_lines("80 % interval", interval),
        *(interval_lines("On AMD", interval["amd"]) if "amd" in interval else ()),
        "",
    ]


def interval_lines(name: str, interval: Mapping[str, Any]) -> list[str]:
    """Widths and coverage of one group of GPUs."""
    return [
        f"{name}, half width in log: seen {interval['seen_half_width_log']:.3f} "
        f"({interval.get('seen_level_share', 1):.0%} of its variance is common to a GPU), another session "
        f"{interval.get('session_half_width_log', 0):.3f} (throttled cards "
        f"{interval.get('throttled_session_half_width_log', 0):.3f}), unseen {interval['unseen_half_width_log']:.3f} "
        f"({interval.get('unseen_level_share', 1):.0%} common).",
        "Rows of a GPU inside the width that the other GPUs give, in %: left out "
        f"{shares(interval['left_out_coverage'])}; new shapes {shares(interval.get('seen_coverage', {}))}.",
    ]


@contextmanager
def judged_predictors(folder: Path) -> Iterator[tuple[Path, str]]:
    """The shipped predictors if they were made from this data, else ones trained now; and which of the two."""
    shipped = data_folder("predictors")
    if (shipped / "manifest.json").is_file():
        entries = json.loads((shipped / "manifest.json").read_bytes())["predictors"]
        wanted = {file["path"]: file["sha256"] for entry in entries for file in entry["training"]["files"]}
        if all((folder / name).is_file() and file_sha256(folder / name) == digest for name, digest in wanted.items()):
            yield shipped, "errors as measured when the shipped predictors were trained on this very data"
            return
    with tempfile.TemporaryDirectory() as temporary:
        if learn(["train", str(folder), "--output", temporary]):
            raise DataError(f"nothing could be trained on {folder}")
        yield Path(temporary), "trained anew: the shipped predictors were made from other data"


def ablations(folder: Path) -> list[str]:
    """Leave-one-GPU-out error of the law of matrix products without each ingredient (NVIDIA GPUs)."""
    found = [part for part in read_measurements(folder, TRAINING_FILES) if part.kernel_class == "gemm"]
    if not found:
        return []
    measurements = found[0]
    specs = known_gpus(measurements)
    gpus = [name for name, spec in specs.items() if spec.compute_capability is not None]
    rows: list[list[str]] = []
    header: list[str] = []
    for variant in variants():

        def run(variant: Variant = variant) -> dict[tuple[str, str], float]:
            return leave_one_gpu_out(variant, measurements, specs, gpus)

        errors = run() if variant.session_levels else without_session_levels(run)
        header = header or [f"{gpu.split('-')[0]} {operation}" for gpu, operation in errors]
        mean = float(np.mean(list(errors.values())))
        rows.append([variant.name, f"{mean:.1f}", *(f"{value:.0f}" for value in errors.values())])
        print(f"{variant.name}: {mean:.1f} %", file=sys.stderr)
    return [
        "## What each ingredient of the gemm law brings",
        "",
        "Leave-one-GPU-out error in %, NVIDIA GPUs; constants are fitted anew without the ingredient.",
        "",
        *table(("variant", "mean", *header), rows),
        "",
    ]


def repeatability_lines(folder: Path) -> list[str]:
    """How far rows of one session scatter that differ in hardly anything: no predictor of shapes does better."""
    found = [part for part in read_measurements(folder, TRAINING_FILES) if part.kernel_class == "gemm"]
    if not found:
        return []
    part = found[0]
    shown = part.measured_us >= SCORED_US
    rows = []
    for name in sorted(set(part.session.tolist())):
        own = np.flatnonzero(shown & (part.session == name))
        gpu, operation, split = name.split("/")
        gaps = batch_gaps(part, own) if operation == "bmm" and split == "test" else near_gaps(part, own)
        if gaps.size >= MANY_GAPS:
            rows.append((gpu, operation, split, str(gaps.size), f"{100 * float(np.mean(gaps)):.1f}"))
    return [
        "## How repeatable rows of matrix products are",
        "",
        "No shape is in a session twice. bmm of 'test': each row against the line through its neighbours in batch "
        "(same m, n, k), the scatter of three rows taken for that of one. Others: pairs whose sizes differ by at most "
        "5 % in all (Euclidean, log), by time per multiply-add. Mean absolute deviation of one row in %: the least "
        "error that a predictor by shape can have.",
        "",
        *table(("GPU", "operation", "split", "comparisons", "scatter"), rows),
        "",
    ]


MANY_GAPS = 20
"""Comparisons that make a mean."""


def _sizes(part: Measurements, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    kernels = [part.kernels[i] for i in rows.tolist()]
    return np.array(
        [(k.batch, k.m, k.n, k.k) for k in kernels if isinstance(k, Gemm)],
        dtype=np.float64,
    ).reshape(-1, 4)


def batch_gaps(part: Measurements, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Deviation of each row's log time from its neighbours in batch, over sqrt(1.5)."""
    sizes, time = _sizes(part, rows), np.log(part.measured_us[rows])
    gaps: list[float] = []
    for shape in sorted({tuple(row) for row in sizes[:, 1:].tolist()}):
        own = np.flatnonzero((sizes[:, 1:] == np.array(shape)).all(axis=1))
        own = own[np.argsort(sizes[own, 0])]
        batch, shown = np.log(sizes[own, 0]), time[own]
        for i in range(1, own.size - 1):
            line = np.interp(batch[i], batch[[i - 1, i + 1]], shown[[i - 1, i + 1]])
            gaps.append(abs(float(shown[i] - line)) / 1.5**0.5)
    return np.array(gaps)


def near_gaps(part: Measurements, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Difference in log time per multiply-add of pairs of nearly equal size, over sqrt(2)."""
    spatial = require("scipy.spatial")
    sizes = np.log(_sizes(part, rows))
    pairs = spatial.cKDTree(sizes).query_pairs(0.05, output_type="ndarray")
    rate = np.log(part.measured_us[rows]) - sizes.sum(axis=1)
    found: NDArray[np.float64] = np.abs(rate[pairs[:, 0]] - rate[pairs[:, 1]]) / 2**0.5
    return found


def residual_lines(folder: Path) -> list[str]:
    """What each ingredient of the residual model of matrix products brings."""
    measured = read_measurements(folder, TRAINING_FILES)
    found = [part for part in measured if part.kernel_class == "gemm"]
    if not found:
        return []
    rows = residual_ingredients(measured, known_gpus(found[0]))
    return [
        "## What each ingredient of the gemm residual brings",
        "",
        f"From a sample ({TRAINED_PER_CELL} rows a session to train on, {SCORED_PER_CELL} a session scored): errors "
        "lie above those of the whole data, and compare variants with each other. Error in %, mean over GPU x "
        "operation; the GPU left out is an NVIDIA one, and the residual is applied to it in full.",
        "",
        *table(("variant", "GPU left out", "new shapes"), rows),
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report and writes it to benchmarks/results/kernels.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of measured data, or the folder that holds it as data/")
    parser.add_argument("--no-ablations", action="store_true", help="only the tables of the predictors and files")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="a predictor (gemm_bf16) or a kernel class (conv), repeatable: prints those, without ablations, and "
        "writes nothing",
    )
    options = parser.parse_args(arguments)
    try:
        folder = measured_folder(options.data)
        with judged_predictors(folder) as (predictors, how):
            entries = json.loads((predictors / "manifest.json").read_bytes())["predictors"]
            lines = report(folder, predictors, chosen(entries, options.only), how, named=bool(options.only))
        if not options.no_ablations and not options.only:
            lines += ablations(folder)
            lines += repeatability_lines(folder)
            lines += residual_lines(folder)
    except NeusightError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    text = "\n".join(lines)
    print(text)
    if options.only:
        return 0
    target = Path(__file__).parent / "results" / "kernels.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return 0


def chosen(entries: Sequence[dict[str, Any]], names: Sequence[str] | None) -> list[dict[str, Any]]:
    """The entries of the predictors or kernel classes of these names. Raises DataError if a name is of neither."""
    if not names:
        return list(entries)
    known = {entry[key] for entry in entries for key in ("name", "kernel_class")}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise DataError(f"no predictor or kernel class {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return [entry for entry in entries if entry["name"] in names or entry["kernel_class"] in names]


def report(folder: Path, predictors: Path, entries: Sequence[dict[str, Any]], how: str, *, named: bool) -> list[str]:
    """The tables of the predictors, then every file (of ``named`` predictors: of their classes)."""
    shown = entries[0]["held_out"]["protocol"]
    lines = [
        "# Kernel predictors on what they have not seen",
        "",
        "Made by `make bench-kernels DATA=…` (`benchmarks/kernels.py`); "
        f"{platform.machine()}, Python {platform.python_version()}; {how}.",
        "",
        shown,
        "Cells: mean absolute error in %, its median over the rows (median signed error).",
        "",
    ]
    roofline = rooflines(folder, entries, predictors)
    lines += summary(entries, roofline)
    for entry in entries:
        heading, *rest = held_out_tables(entry, roofline)
        protocol = entry["held_out"]["protocol"]
        lines += [heading, *(["", protocol] if protocol != shown else []), *rest]
        shown = protocol
    classes = sorted({entry["kernel_class"] for entry in entries}) if named else None
    return lines + left_out_files(folder, predictors, classes)


if __name__ == "__main__":
    sys.exit(main())
