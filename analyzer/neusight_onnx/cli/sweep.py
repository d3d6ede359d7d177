"""``sweep``: one model on one GPU at many sizes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neusight_onnx.cli.execution import Execution
from neusight_onnx.cli.files import canvas_for, gpu_file, model_path, one_gpu, read_guarded, target_path
from neusight_onnx.cli.formats import DEFAULT_FORMAT, format_for
from neusight_onnx.cli.options import ModelArgument, OneGpuOption, OutputOption
from neusight_onnx.cli.output import check_target, emit
from neusight_onnx.cli.progress import working
from neusight_onnx.cli.sizes import SizeLists
from neusight_onnx.cli.verbosity import warn_of_gaps
from neusight_onnx.errors import ComparisonError

if TYPE_CHECKING:
    from neusight_onnx.report.sweep import Sweep


class SweepFormat(StrEnum):
    RICH = "rich"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"


EXAMPLES = """\
Examples:

\b
  neusight-onnx sweep model.onnx --gpu a100 --batch 1,2,4,...,256
  neusight-onnx sweep model.onnx --gpu a100 --batch 1..64*2 --max-latency 50ms
  neusight-onnx sweep model.onnx --gpu t4 --dim seq=128..512+128 --format csv
  neusight-onnx sweep model.onnx --gpu t4 --batch 1..8 --format html -o s.html
"""


def sweep_command(
    model: ModelArgument,
    gpus: OneGpuOption,
    sizes: SizeLists,
    execution: Execution,
    max_latency: Annotated[
        list[str] | None,
        typer.Option("--max-latency", metavar="TIME", help="Find the largest size within it: 20ms, 800us."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="upper|median",
            help="Where in its interval the latency is judged.",
            show_default="upper",
        ),
    ] = None,
    asked_format: Annotated[
        SweepFormat | None, typer.Option("--format", help="How to report.", show_default=DEFAULT_FORMAT)
    ] = None,
    output: OutputOption = None,
) -> None:
    """Predict MODEL on a GPU at many sizes. What fits, what is fast enough, where a larger batch gains no more."""
    gpu = one_gpu(gpus)
    path, target = model_path(model), target_path(output)
    report_format = format_for(asked_format, target, SweepFormat)
    check_target(target, (path, "the model itself"), *((file, "the GPU file itself") for file in gpu_file(gpu)))
    with working(f"sweeping {path.name} on {gpu}"):
        from neusight_onnx.checks.limits import given_once, parse_limits
        from neusight_onnx.comparison.points import sweep

        given = {"max-latency": tuple(max_latency or ()), "at": tuple(at or ())}
        limits = parse_limits(
            {name: text for name, texts in given.items() for text in given_once(f"--{name}", texts)}, "--"
        )
        if at and limits.max_latency_ms is None:
            raise ComparisonError("--at says where --max-latency is judged; give it, too")
        bindings = sizes.bindings()
        found = sweep(
            read_guarded(path, target),
            gpu=gpu,
            dims=sizes.dims(),
            batch=sizes.batches(),
            shapes=bindings.shapes,
            values=bindings.values,
            trip_counts=bindings.trip_counts,
            precision=execution.precision.value,
            runtime=execution.runtime,
            cuda_graph=execution.run.cuda_graph,
            include_io=execution.run.include_io,
            channels_last=execution.run.channels_last,
            max_latency_ms=limits.max_latency_ms,
            at=limits.judged_at,
            training=execution.run.training.plan(),
        )
    emit(_report(found, report_format, target), target)


def _report(found: Sweep, report_format: SweepFormat, target: Path | None) -> str:
    match report_format:
        case SweepFormat.JSON:
            from neusight_onnx.report.sweep_machine import sweep_to_json

            return sweep_to_json(found)
        case SweepFormat.CSV:
            from neusight_onnx.report.sweep_machine import sweep_to_csv

            warn_of_gaps(found.warnings)
            return sweep_to_csv(found)
        case SweepFormat.MARKDOWN:
            from neusight_onnx.report.sweep_markdown import sweep_to_markdown

            return sweep_to_markdown(found)
        case SweepFormat.HTML:
            from neusight_onnx.report.html import sweep_to_html

            return sweep_to_html(found)
        case SweepFormat.RICH:
            from neusight_onnx.report.sweep_terminal import sweep_to_terminal

            return sweep_to_terminal(found, canvas_for(target))
