"""``diff``: what a change of a model cost."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neusight_onnx.cli.execution import Execution
from neusight_onnx.cli.files import canvas_for, gpu_file, model_path, one_gpu, read_guarded, target_path
from neusight_onnx.cli.formats import DEFAULT_FORMAT, format_for
from neusight_onnx.cli.options import OutputOption, gpus_begun
from neusight_onnx.cli.output import check_target, emit
from neusight_onnx.cli.progress import working
from neusight_onnx.cli.sizes import Sizes

if TYPE_CHECKING:
    from neusight_onnx.report.difference import Difference

_GREW_EXIT_CODE = 1

EXAMPLES = """\
Examples:

\b
  neusight-onnx diff old.onnx new.onnx --gpu t4 --batch 8
  neusight-onnx diff old.onnx new.onnx --gpu t4 --fail-over 5% --format json
  neusight-onnx diff baseline.json new.onnx --gpu t4 --fail-over 5%
  neusight-onnx diff old.json new.json
"""


class DiffFormat(StrEnum):
    RICH = "rich"
    JSON = "json"
    MARKDOWN = "markdown"


def diff_command(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A model, or a report of analyze --format json (*.json).")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The one to compare with it, likewise.")],
    gpus: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu",
            metavar="NAME|FILE.toml",
            help="The GPU that models are analysed on.",
            autocompletion=gpus_begun,
        ),
    ] = None,
    *,
    sizes: Sizes,
    execution: Execution,
    fail_over: Annotated[
        str | None, typer.Option("--fail-over", metavar="SHARE", help="Exit code 1 if the latency grew by more: 5%.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, metavar="N", help="Kernels in detail (rich and markdown).")] = 10,
    asked_format: Annotated[
        DiffFormat | None, typer.Option("--format", help="How to report.", show_default=DEFAULT_FORMAT)
    ] = None,
    output: OutputOption = None,
) -> None:
    """Compare two models, or two saved reports. In total and by class; kernels that came, went or changed."""
    gpu = one_gpu(gpus) if gpus else None
    target = target_path(output)
    report_format = format_for(asked_format, target, DiffFormat)
    paths = (model_path(old), model_path(new))
    files = [(path, "one of the files to compare") for path in paths]
    check_target(target, *files, *((file, "the GPU file itself") for file in gpu_file(gpu or "")))
    with working(f"comparing {paths[0].name} with {paths[1].name}"):
        from neusight_onnx.comparison.changes import diff, is_report, parse_limit

        limit = None if fail_over is None else parse_limit(fail_over)
        bindings, training = sizes.bindings(), execution.run.training.plan()
        difference = diff(
            *(path if is_report(path) else read_guarded(path, target) for path in paths),
            gpu=gpu,
            dims=bindings.dims,
            shapes=bindings.shapes,
            values=bindings.values,
            trip_counts=bindings.trip_counts,
            batch=bindings.batch,
            precision=execution.precision.value,
            runtime=execution.runtime,
            cuda_graph=execution.run.cuda_graph,
            include_io=execution.run.include_io,
            channels_last=execution.run.channels_last,
            training=training,
            limit=limit,
        )
    emit(_report(difference, report_format, top, target), target)
    if difference.failed:
        raise typer.Exit(_GREW_EXIT_CODE)


def _report(difference: Difference, report_format: DiffFormat, top: int, target: Path | None) -> str:
    match report_format:
        case DiffFormat.JSON:
            from neusight_onnx.report.difference_machine import difference_to_json

            return difference_to_json(difference)
        case DiffFormat.MARKDOWN:
            from neusight_onnx.report.difference_machine import difference_to_markdown

            return difference_to_markdown(difference, top=top)
        case DiffFormat.RICH:
            from neusight_onnx.report.difference_terminal import difference_to_terminal

            return difference_to_terminal(difference, canvas_for(target), top=top)
