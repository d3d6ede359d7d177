"""Models of vision, audio, diffusion and detection as exporters write them, through everything that a user could ask.

    python benchmarks/zoo_vision.py EXPORTED [--only PART,...] [--names TEXT] [--jobs N] [--title TEXT] [-o FILE]

EXPORTED is what ``zoo_vision_models.py`` or ``zoo_framework_models.py`` wrote (with a Python that has the libraries
that the models are from): files, and beside each what is known of it. Of each file:

- *shapes*: every value's shape beside the one that ONNX Runtime computed: right, bounded, wrong;
- *FLOPs*: products, convolutions, attention and recurrent cells of ours over those that PyTorch counted;
- *launches*: kernels in eager mode, beside those that PyTorch launched on the stand-ins for CUDA's libraries;
- *runs*: each of four runtimes with each of four precisions on each of four GPUs: refused with a reason, or a report
  whose latency lies in a finite interval; *high/low* is the widest one, *analytic* the largest share of the time
  that no predictor was trained for, *no kernel* the nodes that are not supported by a runtime at most;
- *batch*: how the latency under ONNX Runtime grows from a batch of 1 to 64 on an A100, and whether a larger batch is
  ever quicker than a smaller one;
- *seconds*: one analysis with everything imported.

Exit code 1 if something crashed, a shape is wrong, or a latency isn't finite.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neusight_onnx import __version__, analyze
from neusight_onnx.analysis import predict_report
from neusight_onnx.errors import NeusightError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import Attention, Conv, Gemm, Recurrent
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import infer_shapes, prepare
from neusight_onnx.report.model import Report
from neusight_onnx.runnable import require_runnable

RUNTIMES = ("eager", "compiled", "onnxruntime", "tensorrt")
PRECISIONS = ("fp32", "fp16", "bf16", "int8")
GPUS = ("a100", "rtx-4090", "t4", "mi300x")
BATCHES = (1, 4, 16, 64)


@dataclass(kw_only=True)
class Row:
    """One file, and what was found; ``fault``: why there is nothing."""

    file: str
    fault: str = ""
    nodes: int = 0
    shapes_right: int = 0
    shapes_bounded: int = 0
    shapes_wrong: list[str] = field(default_factory=list)
    flops_ratio: float | None = None
    crashes: list[str] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    analytic: float = 0.0
    unsupported_count: int = 0
    worst_interval: float = 0.0
    seconds: float = 0.0
    launches: tuple[int, int] | None = None
    batches: list[float] = field(default_factory=list)
    quicker: list[str] = field(default_factory=list)


def files_of(folder: Path, names: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each exported file with what was said of it."""
    for path in sorted(folder.glob("*.onnx")):
        said = path.with_suffix(".json")
        if said.is_file() and names in path.stem:
            yield path, json.loads(said.read_text())


def judge_shapes(model: Model, said: Mapping[str, Any], row: Row) -> None:
    inspected = infer_shapes(model, make_bindings(None, shapes_given(model, said), None, None))
    for name, actual in said["shapes"].items():
        value = inspected.inferred.values.get(name)
        if value is None or value.shape is None:
            row.shapes_wrong.append(f"{name}: unknown, is {actual}")
        elif list(value.shape) == actual:
            row.shapes_right += 1
        elif value.is_bound:
            row.shapes_bounded += 1
        else:
            row.shapes_wrong.append(f"{name}: {list(value.shape)}, is {actual}")


def shapes_given(model: Model, said: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    asked = {item.name for item in model.graph.inputs}
    return {name: tuple(shape) for name, shape in said["inputs"].items() if name in asked}


def flops_of(model: Model, said: Mapping[str, Any]) -> int:
    """FLOPs of products, convolutions, attention and recurrent cells, as eager mode runs the file."""
    shaped = infer_shapes(model, make_bindings(None, shapes_given(model, said), None, None))
    prepared = prepare(shaped, precision=resolve("auto", stored_precision(model)), runtime="eager")
    return sum(
        2 * kernel.macs * work.count
        for work in prepared.work
        for kernel in work.kernels
        if isinstance(kernel, Gemm | Conv | Attention | Recurrent)
    )


def launches_of(path: Path, said: Mapping[str, Any], launched: Path) -> tuple[int, int]:
    """Kernels and copies of a run in eager mode: PyTorch's, a line each in ``launched``, and ours."""
    model = read_model(path)
    report = analyze(model, gpu="a100", shapes=shapes_given(model, said), precision="fp32", runtime="eager")
    return len(launched.read_text().splitlines()), sum(kernel.count for kernel in report.kernels)


def judge_run(row: Row, name: str, report: Report) -> None:
    """What one report shows of a run (runtime, precision, GPU)."""
    totals = report.totals
    figures = (totals.latency_low_ms, totals.latency_ms, totals.latency_high_ms)
    nothing = not report.kernels and bool(report.unsupported)  # no node could be costed: the latency means nothing
    if not nothing:
        if not all(map(math.isfinite, figures)) or not 0 < figures[0] <= figures[1] <= figures[2]:
            row.crashes.append(f"{name}: latency {figures}")
            return
        row.worst_interval = max(row.worst_interval, figures[2] / figures[0])
    row.unsupported_count = max(row.unsupported_count, len(report.unsupported))
    for node in report.unsupported:
        row.unsupported[f"{node.op_type}: {node.reason}"] += 1
    row.analytic = max(row.analytic, report.coverage.latency_share["analytic"])


def judge_runs(path: Path, said: Mapping[str, Any], row: Row) -> None:
    model = read_model(path)
    given = shapes_given(model, said)
    analyze(model, gpu="a100", shapes=given)  # what is loaded once
    start = time.perf_counter()
    row.nodes = analyze(path, gpu="a100", shapes=given).coverage.node_count
    row.seconds = time.perf_counter() - start
    shaped = infer_shapes(model, make_bindings(None, given, None, None))
    for runtime in RUNTIMES:
        for precision in PRECISIONS:
            where = f"{runtime}/{precision}"
            try:
                resolved = resolve(precision, stored_precision(model))
                prepared = prepare(shaped, precision=resolved, runtime=runtime)
                for spec in map(load_gpu, GPUS):
                    where = f"{runtime}/{precision}/{spec.name}"
                    try:
                        require_runnable(model, resolved, runtime, spec)
                        judge_run(row, where, predict_report(prepared, spec, asked_precision=precision))
                    except NeusightError as error:
                        row.refusals[str(error)] += 1
            except NeusightError as error:
                row.refusals[str(error)] += len(GPUS)
            except Exception as error:  # a traceback is what this looks for
                row.crashes.append(f"{where}: {type(error).__name__}: {str(error)[:150]}")


def judge_batches(path: Path, row: Row) -> None:
    """Latency by batch; whether a larger one is quicker by more than a hundredth."""
    last = 0.0
    for batch in BATCHES:
        try:
            latency = analyze(path, gpu="a100", batch=batch).totals.latency_ms
        except NeusightError as error:
            row.quicker.append(f"batch {batch}: {str(error)[:150]}")
            return
        if latency < 0.99 * last:
            row.quicker.append(f"{latency:.3f} ms at {batch}, {last:.3f} ms at the batch before")
        row.batches.append(latency)
        last = latency


def judge(path: Path, said: Mapping[str, Any], parts: Sequence[str]) -> Row:
    row = Row(file=path.stem)
    try:
        if "shapes" in parts and "shapes" in said:
            judge_shapes(read_model(path), said, row)
        if "flops" in parts and said.get("flops"):
            row.flops_ratio = flops_of(read_model(path), said) / said["flops"]
        launched = path.with_name(f"{path.stem.rpartition('__')[0]}.launches")
        if "launches" in parts and launched.is_file() and said["form"] in ("ts", "dynamo"):
            row.launches = launches_of(path, said, launched)
        if "runs" in parts:
            judge_runs(path, said, row)
        if "batch" in parts and said["form"] == "ts":
            judge_batches(path, row)
    except NeusightError as error:
        row.fault = str(error)
    except Exception as error:  # a traceback is what this looks for
        row.crashes.append(f"{type(error).__name__}: {str(error)[:200]}")
    return row


HEAD = ("model", "nodes", "shapes", "FLOPs", "launches", "high/low", "analytic", "no kernel", "1 to 64", "seconds")


def cells_of(row: Row) -> tuple[str, ...]:
    shapes = f"{row.shapes_right:,}"
    if row.shapes_bounded or row.shapes_wrong:
        shapes += f", {row.shapes_bounded} bounded, {len(row.shapes_wrong)} wrong"
    growth = f"{row.batches[-1] / row.batches[0]:.1f}x" if len(row.batches) == len(BATCHES) else ""
    return (
        row.file,
        f"{row.nodes:,}",
        shapes if row.shapes_right or row.shapes_wrong else "",
        "" if row.flops_ratio is None else f"{row.flops_ratio:.3f}",
        "" if row.launches is None else f"{row.launches[0]:,} / {row.launches[1]:,}",
        f"{row.worst_interval:.1f}",
        f"{row.analytic:.0%}",
        f"{row.unsupported_count}" if row.unsupported_count else "",
        growth,
        f"{row.seconds:.2f}",
    )


TITLE = "Vision, audio, diffusion, detection and quantised models as exporters write them"


def table(rows: Sequence[Row], title: str) -> str:
    """All rows, and below what a reader should know of them."""
    right = sum(row.shapes_right for row in rows)
    wrong = [f"{row.file}: {text}" for row in rows for text in row.shapes_wrong]
    crashes = [f"{row.file}: {text}" for row in rows for text in row.crashes]
    refused: Counter[str] = Counter()
    unsupported: Counter[str] = Counter()
    for row in rows:
        refused.update(row.refusals)
        unsupported.update(dict.fromkeys(row.unsupported, 1))
    counted = [row.launches for row in rows if row.launches is not None]
    lines = [
        f"# {title}",
        "",
        f"neusight-onnx {__version__}, Python {platform.python_version()}, {platform.machine()}; {len(rows)} files of "
        f"{len({row.file.rpartition('__')[0] for row in rows})} models with random weights.",
        f"Runtimes {', '.join(RUNTIMES)}; precisions {', '.join(PRECISIONS)}; GPUs {', '.join(GPUS)}.",
        f"{right:,} shapes right, {sum(row.shapes_bounded for row in rows)} bounded, {len(wrong)} wrong; "
        f"{len(crashes)} crashes; kernels in eager mode, PyTorch's / ours, in all: "
        f"{sum(a for a, _ in counted):,} / {sum(b for _, b in counted):,} ({len(counted)} models).",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---|" + "---:|" * (len(HEAD) - 1),
        *(f"| {' | '.join(cells_of(row))} |" for row in rows if not row.fault),
    ]
    for heading, texts in (
        ("Refused as a whole", [f"{row.file}: {row.fault}" for row in rows if row.fault]),
        ("Crashes", crashes),
        ("Wrong shapes", wrong),
        ("A larger batch that is quicker, or refused", [f"{row.file}: {text}" for row in rows for text in row.quicker]),
        ("Runs refused", [f"{count} x {text}" for text, count in refused.most_common()]),
        ("Nodes without a kernel (files)", [f"{count} x {text}" for text, count in unsupported.most_common()]),
    ):
        if texts:
            lines += ["", f"## {heading}", "", *(f"- {text}" for text in texts)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="EXPORTED")
    parser.add_argument("--only", default="shapes,flops,launches,runs,batch")
    parser.add_argument("--names", default="", help="only files whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="files at a time")
    parser.add_argument("--title", default=TITLE)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(max_workers=arguments.jobs) as pool:
        found = [
            pool.submit(judge, path, said, arguments.only.split(","))
            for path, said in files_of(arguments.folder, arguments.names)
        ]
        for item in found:
            rows.append(item.result())
            print(" ".join(cells_of(rows[-1])), *rows[-1].crashes, rows[-1].fault, file=sys.stderr, flush=True)
    if not rows:
        sys.exit(f"error: nothing exported in {arguments.folder}")
    text = table(rows, arguments.title)
    if arguments.output:
        arguments.output.write_text(text)
    print(text)
    return 1 if any(row.crashes or row.shapes_wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
