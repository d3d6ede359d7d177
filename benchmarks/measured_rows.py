"""Rows of whole models that were measured in public: what ran them, and which graph stands for each."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

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
