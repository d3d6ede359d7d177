"""End-to-end accuracy on measured models: ours beside NeuSight, roofline, Habitat and Li et al.

    python benchmarks/accuracy.py SHARED [--format text|json] [-o FILE]

SHARED holds ``data/neusight/end_to_end*.csv`` (measured latencies; judge only, nothing is trained on them) and
``models/neusight/*.onnx``. Cases are judged from the ONNX file with the shipped predictors, ``--runtime eager
--precision fp32`` (rows with option "fusion": ``--runtime compiled``, where that is modelled).

Where SHARED holds ``data/neusight/operators_in_models_dev.parquet``, too, a second table tells the kernels' error from
the composition's: our composition is fed with the operators measured inside the models.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from neusight_onnx import __version__
from neusight_onnx.backward import Training, make_training
from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import NeusightError, PredictorError
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model
from neusight_onnx.outcome import predict_totals
from neusight_onnx.precision import FORMATS
from neusight_onnx.predictor import Predictors, list_predictors, load_predictors, without_gpu
from neusight_onnx.preparation import PreparedModel, infer_shapes, prepare
from neusight_onnx.report.model import Totals
from operators import OPERATORS, composed_us, node_times
from operators import read_cases as read_operator_cases

TRAINING = "train"
"""The option under which cases of training stand."""

# The file that holds the graph of a measured model, for inference (the models' README says which).
MODEL_FILES = {
    "bert_large": "bert_large.onnx",
    "gpt2_large": "gpt2_large.onnx",
    "gpt3_xl": "gpt3_xl.onnx",
    "gpt3_27": "gpt3_2.7b.onnx",
    "opt_13": "opt_1.3b.onnx",
    "switchxl4": "switchxl4.onnx",
}
TRAINING_FILES = {"bert_large": "bert_large_pretraining.onnx"}
"""Where training was measured with another head."""

DROPOUT = {"opt_13": "residual=0.1"}
"""Rates of the models' published configurations where they aren't 0.1 everywhere: OPT drops at the end of residual
branches alone (attention_dropout 0.0)."""

BASELINES = ("neusight_ms", "roofline_ms", "habitat_ms", "li_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured case with every prediction of it, in ms (None: no prediction)."""

    model: str
    option: str
    sequence: int
    batch: int
    gpu: str
    vendor: str
    seen: bool
    measured_ms: float
    ours_ms: float
    low_ms: float
    high_ms: float
    left_out_ms: float | None
    left_out_low_ms: float | None
    left_out_high_ms: float | None
    neusight_ms: float | None
    roofline_ms: float | None
    habitat_ms: float | None
    li_ms: float | None

    @property
    def covered(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.low_ms <= self.measured_ms <= self.high_ms

    @property
    def left_out_covered(self) -> bool | None:
        """The same for predictors that never saw the GPU; None where there are none."""
        if self.left_out_low_ms is None or self.left_out_high_ms is None:
            return None
        return self.left_out_low_ms <= self.measured_ms <= self.left_out_high_ms

    def error(self, column: str) -> float | None:
        """Signed relative error of the prediction in ``column``."""
        predicted = getattr(self, column)
        return None if predicted is None else predicted / self.measured_ms - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where the error of one eager case comes from, relative and signed.

    ``composition``: our composition of measured operators against the measured model. ``kernels``: our composition of
    predicted kernels against that of measured operators. ``total``: both together.
    """

    case: str
    composition: float
    kernels: float
    total: float


def read_splits(shared: Path, cases: Sequence[Case]) -> list[Split]:
    """Kernel and composition error of every eager case whose operators were measured, too."""
    if not (shared / OPERATORS).is_file():
        return []
    measured_us = {
        (case.model, case.sequence, case.batch, case.gpu): 1e3 * case.measured_ms for case in cases if not case.option
    }
    splits = []
    for case in read_operator_cases(shared):
        model_us = measured_us.get((case.model, case.sequence, case.batch, case.gpu))
        if model_us is None:
            continue
        times = node_times(case)
        composed, predicted = composed_us(times, from_measured=True), composed_us(times, from_measured=False)
        splits.append(
            Split(
                case=case.title,
                composition=composed / model_us - 1,
                kernels=predicted / composed - 1,
                total=predicted / model_us - 1,
            )
        )
    return splits


def free_sizes(model: Model) -> list[str]:
    """Names of the sizes that the model leaves free."""
    return sorted({dim for value in model.graph.inputs for dim in value.shape or () if isinstance(dim, str)})


def without(predictors: Predictors, prepared: PreparedModel, gpu: GpuSpec) -> Totals | None:
    """The totals as if nothing had been measured on the GPU; None for one that is in no training set, or where the
    manifest has no constants that were fitted without it."""
    if not any(gpu.name in predictor.gpus for predictor in predictors.values()):
        return None
    try:
        return predict_totals(prepared, gpu, predictors=without_gpu(predictors, gpu.name))
    except PredictorError:
        return None


def training_of(row: dict[str, str]) -> Training:
    """How the measured program trained: forward and backward, without loss or optimizer; gradients were never cleared,
    so that each run added to them."""
    plan = make_training(optimizer="none", loss="none", dropout=DROPOUT.get(row["model"], "0.1"))
    return replace(plan, gradients_held=True)


def read_cases(shared: Path) -> tuple[list[Case], list[str]]:
    """Predicts every case of every end-to-end file; returns the cases, and why others were left out."""
    seen_gpus = {name for predictor in list_predictors() for name in predictor.gpus}
    models: dict[str, Model] = {}
    prepared: dict[tuple[str, str, str, str], PreparedModel] = {}
    shipped = load_predictors(data_folder("predictors"))
    cases: list[Case] = []
    left_out: dict[str, int] = {}
    files = sorted((shared / "data" / "neusight").glob("end_to_end*.csv"))
    if not files:
        sys.exit(f"error: no data/neusight/end_to_end*.csv under {shared}")
    for file in files:
        with file.open(newline="") as handle:
            rows = list(csv.DictReader(handle))
        for row in rows:
            option = row["option"]
            if (row["mode"], option) not in (("inf", ""), ("inf", "fusion"), ("train", "")):
                reason = f"mode {row['mode']}, option {option or '-'}: not modelled yet"
                left_out[reason] = left_out.get(reason, 0) + 1
                continue
            try:
                training = training_of(row) if row["mode"] == "train" else None
                option = option if training is None else TRAINING
                file_of = MODEL_FILES if training is None else {**MODEL_FILES, **TRAINING_FILES}
                path = shared / "models" / "neusight" / file_of[row["model"]]
                model = models.get(path.name) or models.setdefault(path.name, read_model(path))
                runtime = "compiled" if option == "fusion" else "eager"
                key = (path.name, row["batch"], row["sequence"], option)
                if key not in prepared:
                    # every other free size is a length: the measured encoder and decoder ran the same one
                    sizes = {
                        name: int(row["batch"] if name == "batch" else row["sequence"]) for name in free_sizes(model)
                    }
                    shaped = infer_shapes(model, make_bindings(sizes, None, None, None))
                    prepared[key] = prepare(shaped, precision=FORMATS["fp32"], runtime=runtime, training=training)
                gpu = load_gpu(row["gpu"])
                totals = predict_totals(prepared[key], gpu)
                left_out_totals = without(shipped, prepared[key], gpu)
            except NeusightError as error:
                left_out[str(error)] = left_out.get(str(error), 0) + 1
                continue
            cases.append(
                Case(
                    model=row["model"],
                    option=option,
                    sequence=int(row["sequence"]),
                    batch=int(row["batch"]),
                    gpu=row["gpu"],
                    vendor=gpu.vendor,
                    seen=row["gpu"] in seen_gpus,
                    measured_ms=float(row["measured_ms"]),
                    ours_ms=totals.latency_ms,
                    low_ms=totals.latency_low_ms,
                    high_ms=totals.latency_high_ms,
                    left_out_ms=left_out_totals.latency_ms if left_out_totals else None,
                    left_out_low_ms=left_out_totals.latency_low_ms if left_out_totals else None,
                    left_out_high_ms=left_out_totals.latency_high_ms if left_out_totals else None,
                    **{name: float(row[name]) if row.get(name) else None for name in BASELINES},
                )
            )
    return cases, [f"{count} rows: {reason}" for reason, count in left_out.items()]


def summary(cases: Sequence[Case], column: str) -> str:
    """Mean, median, worst absolute error and mean signed error of one column, in per cent."""
    errors = [error for case in cases if (error := case.error(column)) is not None]
    if not errors:
        return "-"
    absolute = [abs(error) for error in errors]
    return (
        f"{statistics.mean(absolute):6.1%} {statistics.median(absolute):6.1%} {max(absolute):6.1%} "
        f"{statistics.mean(errors):+6.1%} ({len(errors)})"
    )


def coverage(cases: Sequence[Case]) -> str:
    """How many measured latencies lie in the interval, and how wide it is; with the GPU left out, too."""
    width = statistics.median((case.high_ms - case.low_ms) / 2 / case.ours_ms for case in cases)
    text = f"80 % interval holds {sum(case.covered for case in cases)} of {len(cases)}, +-{width:.0%} (median)"
    left = [case for case in cases if case.left_out_covered is not None]
    if left:
        width = statistics.median(
            (case.left_out_high_ms - case.left_out_low_ms) / 2 / case.left_out_ms for case in left
        )
        text += f"; GPU left out: {sum(case.left_out_covered is True for case in left)} of {len(left)}, +-{width:.0%}"
    return text


def split_table(splits: Sequence[Split]) -> list[str]:
    """Kernel and composition error of each case, and their means."""
    names = ("composition", "kernels", "total")
    lines = [
        "where the error comes from (eager, operators measured inside the models)",
        "composition: measured operators composed by us / measured model - 1",
        "kernels: predicted kernels / measured operators, both composed by us, - 1",
        "total: predicted model / measured model - 1",
        "",
        f"{'case':<38}" + "".join(f"{name:>14}" for name in names),
    ]
    lines += [f"{split.case:<38}" + "".join(f"{getattr(split, name):>+14.1%}" for name in names) for split in splits]
    for label, pick in (
        ("mean absolute", lambda errors: statistics.mean(map(abs, errors))),
        ("median absolute", lambda errors: statistics.median(map(abs, errors))),
        ("median signed", statistics.median),
    ):
        values = "".join(f"{pick([getattr(split, name) for split in splits]):>+14.1%}" for name in names)
        lines.append(f"{label:<38}{values}")
    return lines


def table(cases: Sequence[Case], splits: Sequence[Split], left_out: Iterable[str]) -> str:
    """The whole result as text."""
    columns = ("ours_ms", *BASELINES)
    lines = [
        f"neusight-onnx {__version__}, Python {platform.python_version()}, {platform.machine()}; "
        "predictors trained on single kernels only, see predictors/manifest.json",
        "",
        f"{'model':<11}{'seq':>5}{'batch':>6} {'gpu':<16}{'option':<8}{'measured':>10}"
        + "".join(f"{name.removesuffix('_ms'):>17}" for name in columns)
        + f"   {'in 80 % interval':<24}{'GPU left out':>16}   in 80 % interval",
    ]
    for case in cases:
        cells = ""
        for name in columns:
            predicted, error = getattr(case, name), case.error(name)
            cells += f"{'-':>17}" if predicted is None else f"{predicted:>9.1f} {error:>+6.1%} "
        error, inside = case.error("left_out_ms"), case.left_out_covered
        left = "" if error is None else f"{case.left_out_ms:>9.1f} {error:>+6.1%}"
        if inside is not None:
            left += f"   {'yes' if inside else 'no'} [{case.left_out_low_ms:.0f}, {case.left_out_high_ms:.0f}]"
        interval = f"{'yes' if case.covered else 'no'} [{case.low_ms:.0f}, {case.high_ms:.0f}]"
        lines.append(
            f"{case.model:<11}{case.sequence:>5}{case.batch:>6} {case.gpu:<16}{case.option:<8}"
            f"{case.measured_ms:>10.1f}{cells}   {interval:<24}{left}"
        )
    groups: list[tuple[str, Callable[[Case], bool]]] = [
        ("NVIDIA, inference", lambda case: case.vendor == "NVIDIA" and not case.option),
        ("  on GPUs with training data", lambda case: case.vendor == "NVIDIA" and not case.option and case.seen),
        ("  on GPUs without", lambda case: case.vendor == "NVIDIA" and not case.option and not case.seen),
        ("AMD, inference", lambda case: case.vendor == "AMD" and not case.option),
        ("fusion", lambda case: case.option == "fusion"),
        ("NVIDIA, training", lambda case: case.vendor == "NVIDIA" and case.option == TRAINING),
        ("AMD, training", lambda case: case.vendor == "AMD" and case.option == TRAINING),
    ]
    for key in ("gpu", "model"):
        groups += [
            (f"{key} {name}", lambda case, key=key, name=name: getattr(case, key) == name and not case.option)
            for name in sorted({getattr(case, key) for case in cases})
        ]
    lines += ["", f"{'absolute error: mean, median, worst; bias (rows)':<48}", ""]
    for label, belongs in groups:
        chosen = [case for case in cases if belongs(case)]
        if chosen:
            lines.append(f"{label} ({len(chosen)} rows)")
            lines += [f"    {name.removesuffix('_ms'):<10}{summary(chosen, name)}" for name in columns]
            if any(case.left_out_ms is not None for case in chosen):
                lines.append(f"    {'left out':<10}{summary(chosen, 'left_out_ms')}")
            lines.append(f"    {coverage(chosen)}")
    if splits:
        lines += ["", *split_table(splits)]
    lines += ["", *(f"left out: {reason}" for reason in left_out)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    cases, left_out = read_cases(arguments.shared)
    splits = read_splits(arguments.shared, cases)
    if arguments.format == "json":
        found = {"cases": [asdict(case) for case in cases], "splits": [asdict(split) for split in splits]}
        text = json.dumps({**found, "left_out": left_out}, indent=1)
    else:
        text = table(cases, splits, left_out)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
