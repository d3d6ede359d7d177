"""Judges the law and the residual of each kernel class: ``python benchmarks/kernels.py DATA [--no-ablations]``.

Prints, and writes to benchmarks/results/kernels.md: errors leave-one-GPU-out, leave-one-generation-out and on new
shapes per class, GPU and operation, as they stand in the manifest of the shipped predictors (the manifest names the
data they were measured on; a folder with other data is trained anew into a temporary folder), the intervals' coverage,
and what each ingredient of the law of matrix products brings: the leave-one-GPU-out error without it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import NeusightError
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Gemm
from neusight_onnx.laws import gemm
from neusight_onnx.laws.base import Columns, Constants, Law
from neusight_onnx.laws.gemm import GEMM
from neusight_onnx.learning import fitting
from neusight_onnx.learning.datasets import (
    MATRIX_UNIT_FILES,
    TRAINING_FILES,
    Measurements,
    file_sha256,
    has_files,
    measured_folder,
    read_measurements,
    require,
)
from neusight_onnx.learning.fitting import ResidualSettings
from neusight_onnx.learning.heldout import (
    SCORED_US,
    Scored,
    Trained,
    launches_of,
    mape_percent,
    predict_rows,
    scored_rows,
    train_once,
)
from neusight_onnx.learning.train import known_gpus, train, train_matrix_units
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
        chosen = gemm.choose_from(candidates(tiles, split=split), cols, gpu, constants)
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


def held_out_tables(entry: Mapping[str, Any]) -> list[str]:
    """The manifest's errors of one predictor: a row per GPU and operation, a column per protocol."""
    held, interval = entry["held_out"], entry["interval"]
    cells: dict[tuple[str, str], dict[str, str]] = {}
    counts: dict[tuple[str, str], int] = {}
    for row in held["rows"]:
        key = (row["gpu"], row["operation"])
        cells.setdefault(key, {})[row["protocol"]] = f"{row['mape_percent']:.1f} ({row['bias_percent']:+.1f})"
        counts[key] = row["row_count"]
    rows = [
        [gpu, operation, str(counts[gpu, operation]), *(cells[gpu, operation].get(name, "") for name in PROTOCOLS)]
        for gpu, operation in sorted(cells)
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
        *table(("GPU", "operation", "rows", "GPU left out", "generation left out", "new shapes"), rows),
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


def manifest_for(folder: Path) -> tuple[dict[str, Any], str]:
    """The shipped manifest if it was made from this data, else one trained now; and which of the two."""
    files = (*TRAINING_FILES, *MATRIX_UNIT_FILES)
    digests = {name: file_sha256(folder / name) for name in files if (folder / name).is_file()}
    shipped = data_folder("predictors") / "manifest.json"
    if shipped.is_file():
        manifest = json.loads(shipped.read_bytes())
        entries = manifest["predictors"]
        if {file["path"]: file["sha256"] for entry in entries for file in entry["training"]["files"]} == digests:
            return manifest, "errors as measured when the shipped predictors were trained on this very data"
    with tempfile.TemporaryDirectory() as temporary:
        manifest = train(folder, Path(temporary)) if has_files(folder, TRAINING_FILES) else {}
        if has_files(folder, MATRIX_UNIT_FILES):
            manifest = train_matrix_units(folder, Path(temporary))
        return manifest, "trained anew: the shipped predictors were made from other data"


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
    parser.add_argument("--no-ablations", action="store_true", help="only the tables of the predictors")
    options = parser.parse_args(arguments)
    try:
        folder = measured_folder(options.data)
        manifest, how = manifest_for(folder)
        lines = [
            "# Kernel predictors on what they have not seen",
            "",
            "Made by `make bench-kernels DATA=…` (`benchmarks/kernels.py`); "
            f"{platform.machine()}, Python {platform.python_version()}; {how}.",
            "",
            manifest["predictors"][0]["held_out"]["protocol"],
            "Cells: mean absolute error in % (median signed error).",
            "",
        ]
        shown = manifest["predictors"][0]["held_out"]["protocol"]
        for entry in manifest["predictors"]:
            heading, *rest = held_out_tables(entry)
            protocol = entry["held_out"]["protocol"]
            lines += [heading, *(["", protocol] if protocol != shown else []), *rest]
            shown = protocol
        if not options.no_ablations:
            lines += ablations(folder)
            lines += repeatability_lines(folder)
            lines += residual_lines(folder)
    except NeusightError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    text = "\n".join(lines)
    print(text)
    target = Path(__file__).parent / "results" / "kernels.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
