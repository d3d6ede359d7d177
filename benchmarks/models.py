"""Whole models measured in public against what the analyser says of their graphs, by runtime and GPU.

    python benchmarks/models.py SHARED [--more FOLDER]... [--as-measured FOLDER] [--only TEXT] [--every N]
                                [--format text|json] [-o FILE]

SHARED holds ``data/end_to_end/measured_models*.parquet`` and ``models/index_e2e.csv``, which says which graph fits
which rows. These rows judge: nothing is trained or tuned on them. What was measured how stands with each group:

- timm (vision models, images as the file has them): PyTorch, autocast to FP16, mean step; eager and torch.compile,
  images in (n, c, h, w) order; eager with images and filters in (n, h, w, c) order, a group of its own ("channels
  last"); steps of training, too, with cross-entropy and SGD with momentum (the default of timm's benchmark, as
  remembered), dropout as the file has it;
- NVIDIA's BERT under Triton: the server's compute time (that of PyTorch isn't waited for there: its client's average);
- transformer-deploy, ONNX Runtime's transformers page: latencies as printed;
- PaddleClas: as printed by its ``tools/infer/predict.py``, whose timer holds the copies of input and output between
  host and GPU (``copy_from_cpu``, ``copy_to_cpu``; as remembered), so that ours holds them, too.

Each row is judged under the release that measured it (``--runtime NAME@RELEASE``): the one that its label states, else
that of its source's date (``SOURCES``, with the reasons). The figures under today's release, as if that had run them,
stand beside them, in the lines that end in "today's release".

Rows of ONNX Runtime that were measured on a file that its transformers' optimiser had rewritten are judged on what the
same tool makes of the graph (its weights being zeros, a causal mask lower triangular; of a GPT-2 without what the
release that measured it refuses to read), where sympy is installed, which it needs; else on the file as it is, which
runs more kernels. They are a group of their own, in which both tables of ONNX Runtime's transformers page are ("ONNX
Runtime uses optimizer for model optimization, and IO binding is enabled", as remembered; the label of one says so).

Where the graph at hand isn't the file that was measured and the recipe of that is known, ``--as-measured FOLDER`` has
the file built anew (``as_measured.py`` makes such a folder and says which they are). Its rows are judged twice: on the
graph at hand, as without the option, and on that file, in groups of their own ("file as measured"). The targets have a
line each in which those files stand for the graphs at hand.

FOLDER has graphs of further models, built anew from public definitions (``more_models.py`` makes such a folder), and
``index.csv`` with columns of ``index_e2e.csv``. Read are ``file`` (in FOLDER), ``csv_model`` (what the rows call the
model, without "timm/"), ``source_repo`` (of its rows; empty: of any), ``img_size`` or ``sequence``,
``applies_to_rows`` and ``notes``, and ``family``, which it alone has. Such graphs stand for what was measured by name
and size; they judge the rows for which SHARED has none, in groups of their own ("equivalent graph"), never in the
targets. ``--only "equivalent graph"`` leaves these.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import platform
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from neusight_onnx import __version__
from neusight_onnx.analysis import predict_report
from neusight_onnx.backward.plan import make_training
from neusight_onnx.errors import NeusightError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import PreparedModel, infer_shapes, prepare
from neusight_onnx.runtime import get_runtime

GPUS = {
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA V100-PCIE-16GB": "v100-pcie-16gb",
    "T4": "t4",
    "Tesla T4": "t4",
    "V100": "v100-sxm2-32gb",
    "V100 32GB": "v100-sxm2-32gb",
}
"""The labels of the rows; a bare V100 is taken for the card of NVIDIA's servers."""

RUNTIMES: tuple[tuple[str, str, str], ...] = (
    # (in the row's label, runtime, group); the first that fits
    ("torch.compile", "compiled", "compiled"),
    ("pytorch eager", "eager", "eager"),
    ("Triton, PyTorch", "torchscript", "eager, by TorchScript"),  # its backend for PyTorch runs TorchScript (LibTorch)
    ("Pytorch", "eager", "eager"),
    ("PyTorch", "eager", "eager"),
    ("torchscript", "torchscript", "eager, by TorchScript"),
    ("TorchScript", "torchscript", "eager, by TorchScript"),
    ("TensorRT", "tensorrt", "tensorrt"),
    ("optimizer", "onnxruntime", "onnxruntime, optimised file"),
    ("optimized", "onnxruntime", "onnxruntime, optimised file"),
    ("onnxruntime 1.4.0", "onnxruntime", "onnxruntime, optimised file"),
    ("ONNX Runtime", "onnxruntime", "onnxruntime"),
    ("onnxruntime", "onnxruntime", "onnxruntime"),
)
PRECISIONS = {"fp32": "fp32", "float32": "fp32", "fp16": "fp16", "float16": "fp16", "float16(autocast)": "fp16"}
STATED = re.compile(r"(?:onnxruntime|torchscript|pytorch eager|torch\.compile) (\d+\.\d+)")
"""The release in a row's label."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is known of the releases of a source's rows whose labels state none: ``path`` is part of its place,
    ``releases`` those of each runtime, ``why`` says from what."""

    path: str
    releases: dict[str, str]
    why: str


SOURCES = (
    Source(
        path="LanguageModeling/BERT/triton",
        releases={"onnxruntime": "1.9", "tensorrt": "8.0", "torchscript": "1.10"},
        why="the pages ask for Triton's container 21.10, whose release notes list ONNX Runtime 1.9.0, TensorRT 8.0.3 "
        "and PyTorch 1.10.0a0 (as remembered)",
    ),
    Source(
        path="docs/benchmarks.md",
        releases={"onnxruntime": "1.9", "tensorrt": "8.2", "eager": "1.10"},
        why="transformer-deploy published them in November and December 2021, on Triton 21.10 and 21.11 with ONNX "
        "Runtime 1.9 and 1.10, TensorRT 8.2 and PyTorch 1.10 (as remembered)",
    ),
    Source(
        path="docs/en/models/",
        releases={"tensorrt": "7.0"},
        why="PaddleClas measured in 2020 and 2021; Paddle's packages of that time were built with TensorRT 6.0 to 7.2 "
        "(as remembered): the earliest that is known stands for them",
    ),
    Source(
        path="docs/bert_guide.md",
        releases={"eager": "1.8"},
        why="FasterTransformer's guide asks for NVIDIA's container of PyTorch 20.12, which has 1.8 (as remembered)",
    ),
)
"""Releases by source, none of them chosen by what it predicts."""


def release_of(label: str, path: str, runtime: str) -> str | None:
    """The release that measured a row, by its label or its source; None where neither says."""
    if (found := STATED.search(label)) is not None:
        return found[1]
    source = next((source for source in SOURCES if source.path in path), None)
    return None if source is None else source.releases.get(runtime)


CHANNELS_LAST = "nhwc"
"""In the label of rows whose images and filters lie as (n, h, w, c)."""
LAST = "channels last"
COPIES = ("Paddle Inference",)
"""Labels begin so of rows whose time holds the copies of inputs and outputs."""
SERVER_COMPUTE = "Server Compute Infer (ms)"
EQUIVALENT = "equivalent graph"
"""In the group of rows that a graph of ``--more`` stands for."""
AS_MEASURED = "file as measured"
"""In the group of rows judged on a file of ``--as-measured``."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measured row beside ours. ``analytic_share``: of the predicted time, without a learned predictor;
    ``class_shares``: of the predicted time, by kernel class."""

    model: str
    file: str
    is_vision: bool
    group: str
    source: str
    gpu: str
    precision: str
    batch: int
    size: str
    measured_ms: float
    ours_ms: float
    low_ms: float
    high_ms: float
    kernel_ms: float
    analytic_share: float
    class_shares: dict[str, float]
    release: str = ""
    family: str = ""

    @property
    def is_equivalent(self) -> bool:
        return self.group.endswith(EQUIVALENT)

    @property
    def is_as_measured(self) -> bool:
        return self.group.endswith(AS_MEASURED)

    @property
    def row(self) -> tuple[object, ...]:
        """What tells a measured row from others, whatever it is judged on."""
        return self.model, self.source, self.gpu, self.precision, self.batch, self.size, self.measured_ms

    @property
    def error(self) -> float:
        return self.ours_ms / self.measured_ms - 1.0

    @property
    def factor(self) -> float:
        return max(self.ours_ms / self.measured_ms, self.measured_ms / self.ours_ms)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A row to be judged: the graph (``file`` in ``folder``), its sizes, what ran it."""

    folder: Path
    file: str
    model: str
    is_vision: bool
    dims: tuple[tuple[str, int], ...]
    runtime: str
    channels_last: bool
    include_io: bool
    group: str
    source: str
    gpu: str
    precision: str
    batch: int
    size: str
    measured_ms: float
    release: str | None = None
    family: str = ""

    @property
    def is_rewritten(self) -> bool:
        """Whether ONNX Runtime's optimiser of transformers had rewritten the file that was measured."""
        return self.group.startswith(OPTIMISED) and not self.group.endswith(AS_MEASURED)

    @property
    def has_sums(self) -> bool:
        """Whether SkipLayerNormalization has the sum for an output, as EmbedLayerNormalization has: 1.4 and 1.9 refuse
        a file of both ("output size 4 not in range [min=1, max=3]"), 1.14 brought the former, as remembered."""
        return self.release is None or tuple(map(int, self.release.split("."))) >= (1, 14)

    @property
    def called(self) -> str:
        """The runtime as it is judged: at its release, where that isn't as today's in all that is known."""
        if self.release is None:
            return self.runtime
        found = get_runtime(f"{self.runtime}@{self.release}")
        same = replace(found, release=None, newer=None) == get_runtime(self.runtime)
        return self.runtime if same else found.label


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A line of an index: a graph and the rows that it fits."""

    folder: Path
    row: Mapping[str, str]
    is_equivalent: bool

    def says(self, column: str) -> str:
        """What the index has in a column, which it may lack."""
        return self.row.get(column) or ""


def graphs_of(shared: Path, more: Sequence[Path]) -> dict[str, list[Graph]]:
    """The graphs by the model's name in the rows, SHARED's first."""
    indices = [(shared / "models", "index_e2e.csv", False), *((folder, "index.csv", True) for folder in more)]
    found: dict[str, list[Graph]] = {}
    for folder, name, is_equivalent in indices:
        try:
            with (folder / name).open(newline="") as handle:
                for row in csv.DictReader(handle):
                    if row["file"] and row["csv_model"]:
                        graph = Graph(folder=folder, row=row, is_equivalent=is_equivalent)
                        found.setdefault(row["csv_model"], []).append(graph)
        except (OSError, KeyError) as error:
            sys.exit(f"error: {folder / name} is not an index of graphs: {error}")
    return found


@dataclass(frozen=True, kw_only=True)
class MeasuredFile:
    """A file built anew as it was measured, and its rows: ``runtime`` begins their label, ``dtype`` is theirs."""

    path: Path
    csv_model: str
    source_repo: str
    runtime: str
    dtype: str

    def fits(self, row: Mapping[str, object]) -> bool:
        is_model = (row["model"], row["source_repo"]) == (self.csv_model, self.source_repo)
        return is_model and row["dtype"] == self.dtype and str(row["runtime"]).startswith(self.runtime)


def measured_files(folder: Path) -> list[MeasuredFile]:
    """The files that a folder of ``as_measured.py`` lists."""
    try:
        with (folder / "index.csv").open(newline="") as handle:
            return [
                MeasuredFile(
                    path=folder / row["file"],
                    csv_model=row["csv_model"],
                    source_repo=row["source_repo"],
                    runtime=row["runtime"],
                    dtype=row["dtype"],
                )
                for row in csv.DictReader(handle)
            ]
    except (OSError, KeyError) as error:
        sys.exit(f"error: {folder / 'index.csv'} is not an index of files as measured: {error}")


def matching(
    shared: Path, more: Sequence[Path] = (), as_measured: Path | None = None
) -> tuple[list[Wanted], dict[str, int]]:
    """The rows with a graph, those with a file as measured a second time on that, and how many others there are for
    which reason."""
    files = sorted((shared / "data" / "end_to_end").glob("measured_models*.parquet"))
    if not files:
        sys.exit(f"error: no data/end_to_end/measured_models*.parquet under {shared}")
    by_model = graphs_of(shared, more)
    rebuilt = [] if as_measured is None else measured_files(as_measured)
    found: list[Wanted] = []
    left_out: dict[str, int] = {}
    for row in (row for file in files for row in pq.read_table(file).to_pylist()):
        name = row["model"].removeprefix("timm/") if row["source_repo"].endswith("image-models") else row["model"]
        wanted = _wanted(row, by_model.get(name, []))
        if isinstance(wanted, str):
            left_out[wanted] = left_out.get(wanted, 0) + 1
        else:
            found.append(wanted)
            for made in (made for made in rebuilt if made.fits(row)):
                group = f"{wanted.group}, {AS_MEASURED}"
                found.append(replace(wanted, folder=made.path.parent, file=made.path.name, group=group))
    return found, left_out


def _wanted(row: dict[str, object], graphs: Sequence[Graph]) -> Wanted | str:
    text = {key: "" if value is None else str(value) for key, value in row.items()}
    if not graphs:
        return "no graph of the model"
    runtime = next((item for item in RUNTIMES if item[0] in text["runtime"]), None)
    precision = PRECISIONS.get(text["dtype"].lower())
    gpu = GPUS.get(text["gpu"])
    if runtime is None or precision is None or gpu is None:
        return f"{text['runtime']}, {text['dtype']} on {text['gpu']}: not modelled"
    if text["metric"] == SERVER_COMPUTE and runtime[1] == "torchscript":
        return "PyTorch under Triton: the server doesn't wait for the GPU"
    is_triton = text["source_path"].startswith("PyTorch/LanguageModeling") and runtime[1] != "torchscript"
    if is_triton and text["metric"] != SERVER_COMPUTE:
        return "what a client of Triton saw, beside the server's own time"
    graph = _graph_of(text, graphs)
    if graph is None:
        return "measured with other sizes, or another form of the model, than the graph has"
    sizes: dict[str, int] = {"batch": int(text["batch"])}
    size = text["input"] if text["input"] else f"seq={graph.says('sequence')}"
    for part in size.split(","):
        key, _, value = part.strip().partition("=")
        if key in ("seq", "past") and value:
            sizes["past" if key == "past" else "sequence"] = int(float(value))
    if "past" in sizes:
        sizes["sequence"] = 1
    return Wanted(
        folder=graph.folder,
        file=graph.row["file"],
        model=text["model"].removeprefix("timm/"),
        is_vision=graph.row["file"].startswith("timm/") and not graph.is_equivalent,
        dims=tuple(sizes.items()),
        runtime=runtime[1],
        release=release_of(text["runtime"], text["source_path"], runtime[1]),
        channels_last=CHANNELS_LAST in text["runtime"],
        include_io=text["runtime"].startswith(COPIES),
        group=", ".join(
            (
                runtime[2],
                *([LAST] if CHANNELS_LAST in text["runtime"] else []),
                *(["training"] if text["phase"] != "infer" else []),
                *([EQUIVALENT] if graph.is_equivalent else []),
            )
        ),
        source=text["runtime"],
        gpu=gpu,
        precision=precision,
        batch=int(text["batch"]),
        size=size,
        measured_ms=float(text["latency_ms"]),
        family=graph.says("family"),
    )


def _graph_of(text: dict[str, str], graphs: Sequence[Graph]) -> Graph | None:
    """The graph that a row was measured on: of these image sizes, and re-parameterised where it was."""
    for graph in graphs:
        said = graph.says
        if graph.is_equivalent and said("source_repo") not in ("", text["source_repo"]):
            continue
        if said("img_size"):
            size = text["input"].partition("=")[2] or text["input"].removeprefix("crop ").rstrip("?")
            if not size or float(size) != float(said("img_size")):
                continue
        applies = said("applies_to_rows")
        if applies and ("2.9.1 rows (" in applies) != ("2.9.1" in text["runtime"]):
            continue
        if "res 224x224" in said("notes") and "224" not in text["input"]:
            continue
        if not said("img_size") and not text["input"] and not said("sequence"):
            continue
        return graph
    return None


OPTIMISED = "onnxruntime, optimised file"


def rewritten(path: Path, folder: Path, *, has_sums: bool) -> Path:
    """What ONNX Runtime's optimiser of transformers makes of a BERT or GPT-2; ImportError where it lacks something.

    ``has_sums``: whether the release that runs it has normalizations that hand on the sum that they normalize.
    """
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    from fusion_ort import with_weights

    logging.disable(logging.WARNING)
    source = with_weights(path, folder)
    # the tool finds a BERT's heads by itself; of a GPT-2 it wants to be told: those of the smallest
    kind, heads, width = ("gpt2", 12, 768) if path.name.startswith("gpt2") else ("bert", 0, 0)
    options = FusionOptions(kind)
    if kind == "gpt2" and not has_sums:  # a GPT-2 reads each sum once more, behind the normalization
        options.enable_skip_layer_norm = options.enable_embed_layer_norm = False
    made = optimize_model(
        str(source), model_type=kind, num_heads=heads, hidden_size=width, opt_level=0, optimization_options=options
    )
    target = folder / "rewritten.onnx"
    made.save_model_to_file(str(target), use_external_data_format=True)
    return target


def _read(row: Wanted, left_out: dict[str, int]) -> Model:
    path = row.folder / row.file
    if not row.is_rewritten:
        return read_model(path)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return read_model(rewritten(path, Path(folder), has_sums=row.has_sums))
        except ImportError as error:
            left_out[f"{path.name} judged as it is, not as ONNX Runtime's optimiser rewrites it: {error}"] = 1
            return read_model(path)


def _place(row: Wanted) -> tuple[object, ...]:
    """Rows with one file, and then with one preparation, are neighbours."""
    return row.folder, row.file, row.is_rewritten, row.called, row.group, row.include_io, row.precision, row.dims


def judged(rows: Sequence[Wanted], left_out: dict[str, int]) -> list[Case]:
    """Ours beside each row; models are read once, prepared once for each runtime and size."""
    cases: list[Case] = []
    last: tuple[tuple[object, ...], Model] | None = None
    prepared: dict[tuple[object, ...], PreparedModel] = {}
    for row in sorted(rows, key=_place):
        try:
            wanted = (row.folder, row.file, row.is_rewritten, row.has_sums)
            if last is None or last[0] != wanted:
                last = (wanted, _read(row, left_out))
                prepared = {}
            model = last[1]
            key = (row.called, row.group, row.include_io, row.precision, row.dims)
            if key not in prepared:
                prepared = {key: _prepared(model, row)}
            report = predict_report(prepared[key], load_gpu(row.gpu), asked_precision=row.precision)
        except NeusightError as error:
            reason = f"{row.file}: {str(error)[:150]}"
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        kernel_us = sum(kernel.latency_us for kernel in report.kernels)
        classes: dict[str, float] = {}
        for kernel in report.kernels:
            classes[kernel.kernel_class] = classes.get(kernel.kernel_class, 0.0) + kernel.latency_us / kernel_us
        totals = report.totals
        cases.append(
            Case(
                model=row.model,
                file=row.file,
                is_vision=row.is_vision,
                group=row.group,
                source=row.source,
                gpu=row.gpu,
                precision=row.precision,
                batch=row.batch,
                size=row.size,
                measured_ms=row.measured_ms,
                ours_ms=totals.latency_ms,
                low_ms=totals.latency_low_ms,
                high_ms=totals.latency_high_ms,
                kernel_ms=totals.kernel_ms,
                analytic_share=report.coverage.latency_share["analytic"],
                class_shares=classes,
                release=row.release or "",
                family=row.family,
            )
        )
    return cases


def judged_both(rows: Sequence[Wanted], left_out: dict[str, int]) -> tuple[list[Case], dict[tuple[object, ...], Case]]:
    """Ours beside each row under the release that measured it, and those under today's of the rows where it differs."""
    others = [replace(row, release=None) for row in rows if row.called != row.runtime]
    today = judged(others, {})
    return judged(rows, left_out), {_identity(case): case for case in today}


def _identity(case: Case) -> tuple[object, ...]:
    return case.file, case.group, case.source, case.gpu, case.precision, case.batch, case.size, case.measured_ms


def under_today(cases: Sequence[Case], today: Mapping[tuple[object, ...], Case]) -> list[Case]:
    return [today.get(_identity(case), case) for case in cases]


def size_of(name: str, sizes: Mapping[str, int]) -> int:
    """The size of an open dim of a file, by its name."""
    if "batch" in name:
        return sizes["batch"]
    sequence, past = sizes.get("sequence", 1), sizes.get("past", 0)
    if "total" in name or "+" in name:
        return past + sequence
    return past if "past" in name else sequence


def _prepared(model: Model, row: Wanted) -> PreparedModel:
    free = {dim for declared in model.graph.inputs for dim in declared.shape or () if isinstance(dim, str)}
    sizes = dict(row.dims)
    dims = {name: size_of(name, sizes) for name in sorted(free)}
    shaped = infer_shapes(model, make_bindings(dims, None, None, None))
    precision = resolve(row.precision, stored_precision(model))
    plan = make_training(optimizer="momentum") if ", training" in row.group else None
    return prepare(
        shaped,
        precision=precision,
        runtime=row.called,
        channels_last=row.channels_last,
        include_io=row.include_io,
        training=plan,
    )


def rank_correlation(cases: Sequence[Case]) -> float | None:
    """Spearman's, between measured and predicted times; None for fewer than five."""
    if len(cases) < 5:
        return None

    def ranks(values: Sequence[float]) -> list[float]:
        order = sorted(range(len(values)), key=values.__getitem__)
        found = [0.0] * len(values)
        for rank, place in enumerate(order):
            found[place] = float(rank)
        return found

    return statistics.correlation(
        ranks([case.measured_ms / case.batch for case in cases]), ranks([case.ours_ms / case.batch for case in cases])
    )


def line(label: str, cases: Sequence[Case]) -> str:
    errors = [case.error for case in cases]
    absolute = [abs(error) for error in errors]
    rank = rank_correlation(cases)
    inside = sum(case.low_ms <= case.measured_ms <= case.high_ms for case in cases)
    below = statistics.median(1.0 - case.low_ms / case.ours_ms for case in cases)
    above = statistics.median(case.high_ms / case.ours_ms - 1.0 for case in cases)
    return (
        f"{label:<58}{len(cases):>5}{statistics.mean(absolute):>8.1%}{statistics.median(absolute):>8.1%}"
        f"{statistics.median(errors):>+8.1%}{max(absolute):>8.0%}{'' if rank is None else f'{rank:.3f}':>7}"
        f"{inside / len(cases):>7.0%}{f'-{below:.0%} +{above:.0%}':>12}"
        f"{statistics.mean(case.analytic_share for case in cases):>9.0%}"
    )


HEADS = (
    f"{'':<58}{'rows':>5}{'mean':>8}{'median':>8}{'bias':>8}{'worst':>8}{'rank':>7}{'in 80%':>7}{'interval':>12}"
    f"{'analytic':>9}"
)


TODAY = "    today's release"


def table(
    cases: Sequence[Case],
    left_out: dict[str, int],
    *,
    every: int,
    today: Mapping[tuple[object, ...], Case] | None = None,
) -> str:
    """``today``: what today's release would make of the rows that an earlier one measured, where that differs."""
    today = today or {}
    lines = [
        f"neusight-onnx {__version__}, Python {platform.python_version()}, {platform.machine()}; "
        "predictors trained on single kernels only, see predictors/manifest.json",
        *(["", f"every {every}. row only"] if every > 1 else []),
        "",
        "Errors are absolute (bias: the median of the signed ones). rank: Spearman's correlation of the time a sample.",
        "in 80%: measured within our 80 % interval; interval: its ends around the prediction, medians.",
        "analytic: share of the predicted time without a learned predictor.",
        "Each row is judged under the release that measured it, and beside it as if today's had, where that differs.",
    ]

    def chosen(test: Callable[[Case], bool]) -> list[Case]:
        return [case for case in cases if test(case)]

    at_hand = chosen(lambda case: not case.is_as_measured)
    rebuilt = {case.row: case for case in cases if case.is_as_measured}

    def as_measured(members: Sequence[Case]) -> list[Case]:
        """The same rows, on files as measured where there are some; none where there is no such file."""
        found = [rebuilt.get(case.row, case) for case in members]
        return found if found != members else []

    served = [
        case
        for case in at_hand
        if case.group.startswith("onnx") and case.precision == "fp16" and case.batch >= 8 and not case.is_equivalent
    ]
    targets: list[tuple[str, list[Case]]] = [
        (
            "vision, batch >= 64, eager (median <= 15 %, rank >= .95)",
            chosen(lambda case: case.is_vision and case.batch >= 64 and case.group == "eager"),
        ),
        (
            "    the same, images channels last",
            chosen(lambda case: case.is_vision and case.batch >= 64 and case.group == f"eager, {LAST}"),
        ),
        ("onnxruntime, fp16, batch >= 8 (median <= 20 %)", served),
        ("    the same rows, on files as measured", as_measured(served)),
    ]
    if any(not case.is_equivalent for case in cases):
        lines += ["", "Targets", HEADS]
    for label, members in targets:
        lines += _with_today(label, members, today)
    single = [case for case in at_hand if case.batch == 1 and not case.is_equivalent]
    for label, members in (
        ("batch 1 within a factor of 1.5 (80 %)", single),
        ("    the same rows, on files as measured", as_measured(single)),
    ):
        if members:
            near, was = (sum(case.factor <= 1.5 for case in found) for found in (members, under_today(members, today)))
            lines.append(
                f"{label}: {near} of {len(members)}, {near / len(members):.0%}"
                f" (today's release: {was}, {was / len(members):.0%})"
            )
    lines += ["", "By runtime, GPU and precision", HEADS]
    for key in sorted({(case.group, case.gpu, case.precision) for case in cases}):
        members = chosen(lambda case, key=key: (case.group, case.gpu, case.precision) == key)
        lines += _with_today(", ".join(key), members, today)
        lines += _by_batch(members)
    if any(case.family for case in cases):
        lines += ["", "Equivalent graphs by family, runtime, GPU and precision", HEADS]
    for key in sorted({(case.family, case.group, case.gpu, case.precision) for case in cases if case.family}):
        members = chosen(lambda case, key=key: (case.family, case.group, case.gpu, case.precision) == key)
        family, group, gpu, precision = key
        shown = group.removesuffix(f", {EQUIVALENT}")
        lines += _with_today(f"{family}: {shown}, {gpu}, {precision}", members, today)
        lines += _by_batch(members)
    lines += ["", "By what was measured", HEADS]
    for source in sorted({(case.group, case.source, case.gpu, case.release) for case in cases}):
        members = chosen(lambda case, key=source: (case.group, case.source, case.gpu, case.release) == key)
        group, said, gpu, release = source
        # a label that has its release needs none beside it
        shown = f", taken as {release}" if release and STATED.search(said) is None else ""
        lines += _with_today(f"{group}, {said}, {gpu}{shown}", members, today)
    lines += ["", "By what a model spends most of its predicted time on, eager and compiled", HEADS]
    for name, members in _by_class(chosen(lambda case: case.group in ("eager", "compiled"))):
        lines.append(line(name, members))
    lines += ["", "By model (all its rows)", HEADS]
    named: dict[str, list[Case]] = {}
    for case in cases:
        named.setdefault(f"{case.model}, {AS_MEASURED}" if case.is_as_measured else case.model, []).append(case)
    lines += [line(name, members) for name, members in sorted(named.items())]
    lines += ["", *(f"left out: {count} rows: {reason}" for reason, count in sorted(left_out.items()))]
    return "\n".join(lines)


def _with_today(label: str, members: Sequence[Case], today: Mapping[tuple[object, ...], Case]) -> list[str]:
    """The line of some rows, and the one as if today's release had run them, where that isn't the same."""
    if not members:
        return []
    others = under_today(members, today)
    differ = any(other.ours_ms != case.ours_ms for other, case in zip(others, members, strict=True))
    return [line(label, members), *([line(TODAY, others)] if differ else [])]


def _by_batch(members: Sequence[Case]) -> list[str]:
    parts = {label: [case for case in members if test(case.batch)] for label, test in BATCHES}
    return [line(f"    batch {label}", part) for label, part in parts.items() if 0 < len(part) < len(members)]


BATCHES: tuple[tuple[str, Callable[[int], bool]], ...] = (
    ("1", lambda batch: batch == 1),
    ("2 to 7", lambda batch: 1 < batch < 8),
    ("8 to 63", lambda batch: 8 <= batch < 64),
    (">= 64", lambda batch: batch >= 64),
)


def _by_class(cases: Iterable[Case]) -> list[tuple[str, list[Case]]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        largest = max(case.class_shares, key=case.class_shares.__getitem__)
        groups.setdefault(f"{case.group}: {largest}", []).append(case)
    return sorted(groups.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    parser.add_argument(
        "--more",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="graphs of further models, with their index",
    )
    parser.add_argument(
        "--as-measured", type=Path, metavar="FOLDER", help="files built anew as they were measured, with their index"
    )
    parser.add_argument("--only", default="", help="rows whose model, file or runtime holds this text")
    parser.add_argument("--every", type=int, default=1, help="every n-th row only")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows, left_out = matching(arguments.shared, arguments.more, arguments.as_measured)
    rows = [row for row in rows if arguments.only in f"{row.file} {row.model} {row.group} {row.source} {row.gpu}"]
    cases, today = judged_both(rows[:: arguments.every], left_out)
    if not cases:
        sys.exit("error: no row is left to be judged")
    if arguments.format == "json":
        as_today = [case.ours_ms for case in under_today(cases, today)]
        found = [asdict(case) | {"today_ms": ms} for case, ms in zip(cases, as_today, strict=True)]
        text = json.dumps({"cases": found, "left_out": left_out}, indent=1)
    else:
        text = table(cases, left_out, every=arguments.every, today=today)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
