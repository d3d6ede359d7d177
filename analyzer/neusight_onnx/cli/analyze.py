"""``analyze``: how fast a model runs on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neusight_onnx.cli.execution import Execution
from neusight_onnx.cli.files import canvas_for, gpu_file, model_path, one_gpu, read_guarded, target_path
from neusight_onnx.cli.formats import DEFAULT_FORMAT, format_for
from neusight_onnx.cli.options import (
    ModelArgument,
    OneGpuOption,
    OutputOption,
)
from neusight_onnx.cli.output import check_target, emit
from neusight_onnx.cli.progress import working
from neusight_onnx.cli.sizes import Sizes
from neusight_onnx.cli.verbosity import Verbosity, say, verbosity, warn_of_gaps
from neusight_onnx.collection import no_collection
from neusight_onnx.errors import ComparisonError, NotSupportedError

if TYPE_CHECKING:
    from neusight_onnx.backward import Training
    from neusight_onnx.comparison.what_if import Question
    from neusight_onnx.graph.bindings import Bindings
    from neusight_onnx.graph.model import Model
    from neusight_onnx.report.model import Report

EXAMPLES = """\
Examples:

\b
  neusight-onnx analyze model.onnx --gpu a100 --batch 8
  neusight-onnx analyze model.onnx --gpu h100 --format json -o report.json
  neusight-onnx analyze model.onnx --gpu l4 --format html -o report.html
  neusight-onnx analyze model.onnx --gpu t4 --format trace -o trace.json
"""


class ReportFormat(StrEnum):
    RICH = "rich"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"
    TRACE = "trace"
    MODEL_EXPLORER = "model-explorer"


_WITH_VARIANTS = (ReportFormat.RICH, ReportFormat.JSON, ReportFormat.MARKDOWN)
_WITH_LARGEST_BATCH = (*_WITH_VARIANTS, ReportFormat.HTML)
_WITH_MEMORY_TIMELINE = (ReportFormat.JSON, ReportFormat.HTML)


def analyze_command(
    model: ModelArgument,
    gpus: OneGpuOption,
    sizes: Sizes,
    execution: Execution,
    asked_format: Annotated[
        ReportFormat | None, typer.Option("--format", help="How to report.", show_default=DEFAULT_FORMAT)
    ] = None,
    output: OutputOption = None,
    top: Annotated[int, typer.Option("--top", min=0, metavar="N", help="Kernels in detail (rich and markdown).")] = 10,
    largest_batch: Annotated[
        bool, typer.Option("--largest-batch", help="Find the largest batch that fits the GPU's memory.")
    ] = False,
    memory_timeline: Annotated[
        bool, typer.Option("--memory-timeline", help="Add the bytes alive after each node (json, html).")
    ] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", metavar="KEY=VALUE", help="Show a change beside it: gpu.mem_bw_gbs=4800."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Make the change in the report itself: runtime=tensorrt."),
    ] = None,
) -> None:
    """Predict the latency of MODEL on a GPU."""
    gpu = one_gpu(gpus)
    path, target = model_path(model), target_path(output)
    report_format = format_for(asked_format, target, ReportFormat)
    check_target(target, (path, "the model itself"), *((file, "the GPU file itself") for file in gpu_file(gpu)))
    with working(f"analysing {path.name} on {gpu}"), no_collection():
        bindings = sizes.bindings()
        training = execution.run.training.plan()
        _require_format(report_format, execution, bool(what_if), bool(setting), largest_batch, memory_timeline)
        guarded = read_guarded(path, target)
        if report_format is ReportFormat.MODEL_EXPLORER:
            from neusight_onnx.cli.annotate import model_explorer_text

            text = model_explorer_text(path, gpu, bindings, execution, training)
        else:
            base = _question(gpu, bindings, execution, training, setting or ())
            report = _answered(
                guarded,
                base,
                what_if or (),
                explain_fusion=report_format is ReportFormat.JSON or verbosity() is Verbosity.VERBOSE,
                memory_timeline=memory_timeline or report_format is ReportFormat.HTML,
                with_largest_batch=largest_batch,
                timeline=report_format is ReportFormat.TRACE,
            )
            if verbosity() is Verbosity.VERBOSE:
                from neusight_onnx.report.execution import near_misses_text, standing_text

                details = (f"warning: {text}" for notice in report.warnings for text in notice.details)
                say((*near_misses_text(report.fusion), *standing_text(report), *details))
            text = _report_text(report, report_format, target, top)
    emit(text, target)


def _require_format(
    report_format: ReportFormat,
    execution: Execution,
    variants: bool,
    is_changed: bool,
    largest_batch: bool,
    memory_timeline: bool,
) -> None:
    """Raises a NeusightError for what a format can't show."""
    if variants and report_format not in _WITH_VARIANTS:
        raise ComparisonError("--what-if goes with --format rich, json and markdown")
    if is_changed and report_format is ReportFormat.MODEL_EXPLORER:
        raise ComparisonError("--set goes with every --format but model-explorer")
    if largest_batch and report_format not in _WITH_LARGEST_BATCH:
        raise NotSupportedError("--largest-batch goes with --format rich, json, markdown and html")
    if memory_timeline and report_format not in _WITH_MEMORY_TIMELINE:
        raise NotSupportedError("--memory-timeline goes with --format json and html")
    only_totals = execution.run.cuda_graph or execution.run.include_io
    if only_totals and report_format is ReportFormat.MODEL_EXPLORER:
        raise NotSupportedError("--cuda-graph and --include-io go with every --format but model-explorer")


def _question(
    gpu: str, bindings: Bindings, execution: Execution, training: Training | None, setting: Sequence[str]
) -> Question:
    """What is asked: the options, with the changes of ``--set`` made in them."""
    from neusight_onnx.comparison.what_if import Question, changed
    from neusight_onnx.gpu import load_gpu
    from neusight_onnx.runtime import default_runtime

    given = Question(
        gpu=load_gpu(gpu),
        precision=execution.precision.value,
        runtime=execution.runtime or default_runtime(training=training is not None),
        bindings=bindings,
        training=training,
        cuda_graph=execution.run.cuda_graph,
        include_io=execution.run.include_io,
        channels_last=execution.run.channels_last,
    )
    if not setting:
        return given
    asked = changed(given, ",".join(setting), "--set")  # together, so that what is given twice is found
    _refuse_contradictions(given, asked, is_runtime_given=execution.runtime is not None)
    return asked


def _answered(
    guarded: Path | Model,
    base: Question,
    what_if: Sequence[str],
    *,
    explain_fusion: bool,
    memory_timeline: bool,
    with_largest_batch: bool,
    timeline: bool,
) -> Report:
    """The report that answers ``base``, with each change of ``--what-if`` beside it."""
    from neusight_onnx.analysis import analyze
    from neusight_onnx.comparison.what_if import changed, variants
    from neusight_onnx.graph.read import read_model

    for text in what_if:
        changed(base, text, "--what-if")  # refused before any work
    loaded = guarded if not what_if or not isinstance(guarded, Path) else read_model(guarded)
    report = analyze(
        loaded,
        gpu=base.gpu,
        dims=base.bindings.dims,
        shapes=base.bindings.shapes,
        values=base.bindings.values,
        trip_counts=base.bindings.trip_counts,
        batch=base.bindings.batch,
        precision=base.precision,
        runtime=base.runtime,
        cuda_graph=base.cuda_graph,
        include_io=base.include_io,
        channels_last=base.channels_last,
        explain_fusion=explain_fusion,
        memory_timeline=memory_timeline,
        with_largest_batch=with_largest_batch,
        timeline=timeline,
        training=base.training,
    )
    if not what_if or isinstance(loaded, Path):
        return report
    found = variants(loaded, base, what_if)
    warnings = (*report.warnings, *(notice for variant in found for notice in variant.warnings))
    return replace(report, what_if=found, warnings=warnings)


def _report_text(report: Report, report_format: ReportFormat, target: Path | None, top: int) -> str:
    match report_format:
        case ReportFormat.JSON:
            from neusight_onnx.report.machine import to_json

            return to_json(report)
        case ReportFormat.CSV:
            from neusight_onnx.report.machine import to_csv

            warn_of_gaps(report.warnings)
            return to_csv(report)
        case ReportFormat.MARKDOWN:
            from neusight_onnx.report.markdown import to_markdown

            return to_markdown(report, top=top)
        case ReportFormat.HTML:
            from neusight_onnx.report.html import to_html

            return to_html(report)
        case ReportFormat.TRACE:
            from neusight_onnx.report.trace import to_trace

            return to_trace(report)
        case _:
            from neusight_onnx.report.terminal import to_terminal

            canvas = canvas_for(target)
            return to_terminal(report, width=canvas.width, colour=canvas.colour, plain=canvas.plain, top=top)


def _refuse_contradictions(given: Question, base: Question, *, is_runtime_given: bool) -> None:
    """ComparisonError where ``--set`` says otherwise than an option that was given."""
    before, after = given.bindings, base.bindings
    differs = {
        f"--precision {given.precision}": given.precision not in ("auto", base.precision),
        f"--runtime {given.runtime}": is_runtime_given and given.runtime != base.runtime,
        "--cuda-graph": given.cuda_graph and not base.cuda_graph,
        "--include-io": given.include_io and not base.include_io,
        "--channels-last": given.channels_last and not base.channels_last,
        f"--batch {before.batch}": before.batch not in (None, after.batch),
        **{f"--dim {name} {size}": size != after.dims.get(name, after.batch) for name, size in before.dims.items()},
    }
    option = next((option for option, does in differs.items() if does), None)
    if option is not None:
        raise ComparisonError(f"--set and {option} contradict each other; keep one of them")
