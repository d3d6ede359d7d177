"""The commands of ``neusight-onnx``. Whatever is heavy is imported by the command that needs it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from neusight_onnx import __version__
from neusight_onnx.cli.execution import Execution
from neusight_onnx.cli.files import canvas_for, gpu_file, model_path, one_gpu, read_guarded, target_path
from neusight_onnx.cli.groups import with_groups
from neusight_onnx.cli.options import (
    GpuFormat,
    ListFormat,
    ModelArgument,
    OneGpuOption,
    OutputOption,
    TableFormat,
    TableFormatOption,
    gpus_begun,
)
from neusight_onnx.cli.output import check_target, emit
from neusight_onnx.cli.progress import working
from neusight_onnx.cli.repeats import refuse_repeats
from neusight_onnx.cli.sizes import Sizes
from neusight_onnx.cli.verbosity import Verbosity, add_verbosity, own_verbosity, say, verbosity, warn_of_gaps
from neusight_onnx.collection import no_collection
from neusight_onnx.errors import ComparisonError, DataError, NeusightError, NotSupportedError
from neusight_onnx.report.quantities import printable

if TYPE_CHECKING:
    from neusight_onnx.comparison.what_if import Question
    from neusight_onnx.report.model import Report

PROGRAM = "neusight-onnx"
_MISUSE_EXIT_CODE = 2
_INTERRUPTED_EXIT_CODE = 130
"""128 + SIGINT, as a shell reports it."""

ANALYZE_EXAMPLES = """\
Examples:

\b
  neusight-onnx analyze model.onnx --gpu a100 --batch 8
  neusight-onnx analyze model.onnx --gpu h100 --format json -o report.json
  neusight-onnx analyze model.onnx --gpu l4 --format html -o report.html
  neusight-onnx analyze model.onnx --gpu t4 --format trace -o trace.json
"""
INSPECT_EXAMPLES = """\
Examples:

\b
  neusight-onnx inspect model.onnx
  neusight-onnx inspect model.onnx --values --format json -o values.json
"""
OPERATORS_EXAMPLES = """\
Examples:

\b
  neusight-onnx operators
  neusight-onnx operators --format json
"""
GPUS_EXAMPLES = """\
Examples:

\b
  neusight-onnx gpus
  neusight-onnx gpus h100
  neusight-onnx gpus rtx ada
  neusight-onnx gpus --format csv
  neusight-onnx gpus l40s --format toml
"""
PREDICTORS_LIST_EXAMPLES = """\
Examples:

\b
  neusight-onnx predictors list
  neusight-onnx predictors list --format json
"""
PREDICTORS_EVALUATE_EXAMPLES = """\
Examples:

\b
  neusight-onnx predictors evaluate measured/
  neusight-onnx predictors evaluate measured/ --all-rows --format json
"""

# typer raises the exceptions of click: of the package in older releases, of a copy of its own in newer ones.
_click_exceptions = importlib.import_module(typer.BadParameter.__module__)


class _ClickError(Protocol):
    def format_message(self) -> str: ...


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


def _show_version(wanted: bool) -> None:
    if wanted:
        emit(f"{PROGRAM} {__version__}\n", None)
        raise typer.Exit


def neusight_onnx(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Predicts how fast an ONNX model runs on a GPU you do not have."""
    if context.invoked_subcommand is None:
        emit(context.get_help() + "\n", None)


def predictors(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        emit(context.get_help() + "\n", None)


def analyze_command(
    model: ModelArgument,
    gpus: OneGpuOption,
    sizes: Sizes,
    execution: Execution,
    report_format: Annotated[ReportFormat, typer.Option("--format", help="How to report.")] = ReportFormat.RICH,
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
    check_target(target, (path, "the model itself"), *((file, "the GPU file itself") for file in gpu_file(gpu)))
    with working(f"analysing {path.name} on {gpu}"), no_collection():
        bindings = sizes.bindings()
        training = execution.run.training.plan()
        if (what_if or setting) and report_format not in _WITH_VARIANTS:
            raise ComparisonError("--what-if and --set go with --format rich, json and markdown")
        if largest_batch and report_format not in _WITH_LARGEST_BATCH:
            raise NotSupportedError("--largest-batch goes with --format rich, json, markdown and html")
        if memory_timeline and report_format not in _WITH_MEMORY_TIMELINE:
            raise NotSupportedError("--memory-timeline goes with --format json and html")
        only_totals = execution.run.cuda_graph or execution.run.include_io
        if only_totals and report_format is ReportFormat.MODEL_EXPLORER:
            raise NotSupportedError("--cuda-graph and --include-io go with every --format but model-explorer")
        guarded = read_guarded(path, target)
        if report_format is ReportFormat.MODEL_EXPLORER:
            from neusight_onnx.cli.annotate import model_explorer_text

            text = model_explorer_text(path, gpu, bindings, execution, training)
        else:
            from neusight_onnx.analysis import analyze
            from neusight_onnx.comparison.what_if import Question, changed, variants
            from neusight_onnx.gpu import load_gpu
            from neusight_onnx.graph.read import read_model
            from neusight_onnx.runtime import default_runtime

            base = Question(
                gpu=load_gpu(gpu),
                precision=execution.precision.value,
                runtime=execution.runtime or default_runtime(training=training is not None),
                bindings=bindings,
                training=training,
                cuda_graph=execution.run.cuda_graph,
                include_io=execution.run.include_io,
                channels_last=execution.run.channels_last,
            )
            if setting:  # together, so that what is given twice is found
                given, base = base, changed(base, ",".join(setting), "--set")
                _refuse_contradictions(given, base, is_runtime_given=execution.runtime is not None)
            for text in what_if or ():
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
                explain_fusion=report_format is ReportFormat.JSON or verbosity() is Verbosity.VERBOSE,
                memory_timeline=memory_timeline or report_format is ReportFormat.HTML,
                with_largest_batch=largest_batch,
                timeline=report_format is ReportFormat.TRACE,
                training=base.training,
            )
            if what_if and not isinstance(loaded, Path):
                found = variants(loaded, base, what_if)
                warnings = (*report.warnings, *(notice for variant in found for notice in variant.warnings))
                report = replace(report, what_if=found, warnings=warnings)
            if verbosity() is Verbosity.VERBOSE:
                from neusight_onnx.report.execution import near_misses_text, standing_text

                details = (f"warning: {text}" for notice in report.warnings for text in notice.details)
                say((*near_misses_text(report.fusion), *standing_text(report), *details))
            text = _report_text(report, report_format, target, top)
    emit(text, target)


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


def inspect_command(
    model: ModelArgument,
    sizes: Sizes,
    with_values: Annotated[bool, typer.Option("--values", help="Add dtype and shape of every tensor.")] = False,
    table_format: TableFormatOption = TableFormat.RICH,
    output: OutputOption = None,
) -> None:
    """Show what MODEL is made of, without a GPU."""
    path, target = model_path(model), target_path(output)
    check_target(target, (path, "the model itself"))
    with working(f"reading {path.name}"):
        bindings = sizes.bindings()
        from neusight_onnx.inspection import inspect_model

        inspection = inspect_model(
            read_guarded(path, target),
            dims=bindings.dims,
            shapes=bindings.shapes,
            values=bindings.values,
            trip_counts=bindings.trip_counts,
            batch=bindings.batch,
        )
    from neusight_onnx.report.inspection import inspection_to_json, inspection_to_terminal

    if table_format is TableFormat.JSON:
        emit(inspection_to_json(inspection, with_values=with_values), target)
    else:
        emit(inspection_to_terminal(inspection, canvas_for(target), with_values=with_values), target)


def operators_command(
    list_format: Annotated[ListFormat, typer.Option("--format", help="How to print it.")] = ListFormat.RICH,
) -> None:
    """List the operators that are known, and what each becomes."""
    from neusight_onnx.inspection import known_operators
    from neusight_onnx.report.operators import operators_to_json, operators_to_markdown, operators_to_terminal

    found = known_operators()
    match list_format:
        case ListFormat.JSON:
            emit(operators_to_json(found), None)
        case ListFormat.MARKDOWN:
            emit(operators_to_markdown(found), None)
        case ListFormat.RICH:
            emit(operators_to_terminal(found, canvas_for(None)), None)


def gpus_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME|WORD...]",
            help="Show this one in full (or a FILE.toml), or list those with all the words.",
            autocompletion=gpus_begun,
        ),
    ] = None,
    gpu_format: Annotated[
        GpuFormat, typer.Option("--format", help="How to print it; toml: one GPU's file, to change.")
    ] = GpuFormat.RICH,
) -> None:
    """List the GPUs that are known, or show one with its sources."""
    from neusight_onnx.errors import SpecError
    from neusight_onnx.gpu import available_gpus, find_gpus
    from neusight_onnx.gpu.template import template_of
    from neusight_onnx.report.gpus import gpu_to_json, gpu_to_terminal, gpus_to_csv, gpus_to_json, gpus_to_terminal

    gpus = find_gpus(" ".join(names)) if names else available_gpus()
    is_one = len(gpus) == 1
    match gpu_format:
        case GpuFormat.JSON:
            emit(gpu_to_json(gpus[0]) if is_one else gpus_to_json(gpus), None)
        case GpuFormat.CSV:
            emit(gpus_to_csv(gpus), None)
        case GpuFormat.TOML:
            if not is_one:
                raise SpecError("--format toml: a GPU file is of one GPU; name the one that is nearest to yours")
            emit(template_of(gpus[0]), None)
        case GpuFormat.RICH:
            canvas = canvas_for(None)
            emit(gpu_to_terminal(gpus[0], canvas) if is_one else gpus_to_terminal(gpus, canvas), None)


def predictors_list_command(table_format: TableFormatOption = TableFormat.RICH) -> None:
    """List the shipped predictors with their held-out errors."""
    from neusight_onnx.predictor import list_predictors
    from neusight_onnx.report.predictors import predictors_to_json, predictors_to_terminal

    found = list_predictors()
    as_json = table_format is TableFormat.JSON
    emit(predictors_to_json(found) if as_json else predictors_to_terminal(found, canvas_for(None)), None)


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


def predictors_evaluate_command(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A folder of measured kernels.")],
    table_format: TableFormatOption = TableFormat.RICH,
    all_rows: Annotated[
        bool, typer.Option("--all-rows", help="Judge every row in place of a sample; takes minutes.")
    ] = False,
) -> None:
    """Judge the shipped predictors on measured kernels, without training."""
    if not data:
        raise DataError("the path of the measured data is empty; give a folder")
    with working(f"judging the predictors on {data}"):
        from neusight_onnx.learning.evaluate import evaluate, evaluation_to_json

        evaluation = evaluate(Path(data), all_rows=all_rows)
    if table_format is TableFormat.JSON:
        from neusight_onnx.report.json_text import json_text

        emit(json_text(evaluation_to_json(evaluation)), None)
    else:
        from neusight_onnx.cli.evaluation import evaluation_to_terminal

        emit(evaluation_to_terminal(evaluation, canvas_for(None)), None)
    if not evaluation.groups:
        raise DataError(f"nothing in {data} was judged, for the reasons above; give kernels measured on a known GPU")


_CLI = "neusight_onnx.cli"
# In the order of the help: a command's module, its function there, and the examples of its help.
_COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "analyze": (f"{_CLI}.app", "analyze_command", "ANALYZE_EXAMPLES"),
    "inspect": (f"{_CLI}.app", "inspect_command", "INSPECT_EXAMPLES"),
    "annotate": (f"{_CLI}.annotate", "annotate_command", "EXAMPLES"),
    "check": (f"{_CLI}.check", "check_command", "CHECK_EXAMPLES"),
    "explain": (f"{_CLI}.check", "explain_command", "EXPLAIN_EXAMPLES"),
    "compare": (f"{_CLI}.compare", "compare_command", "EXAMPLES"),
    "diff": (f"{_CLI}.diff", "diff_command", "EXAMPLES"),
    "sweep": (f"{_CLI}.sweep", "sweep_command", "EXAMPLES"),
    "operators": (f"{_CLI}.app", "operators_command", "OPERATORS_EXAMPLES"),
    "gpus": (f"{_CLI}.app", "gpus_command", "GPUS_EXAMPLES"),
}
_PREDICTORS = "predictors"


def command_line(only: str | None = None) -> typer.Typer:
    """The command line, or the part that runs the command ``only``: a cold start needn't load and build the others."""
    app = typer.Typer(
        name=PROGRAM,
        # adds --install-completion and --show-completion; the shell that runs is found out only when they are used
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(neusight_onnx)
    for name, (module, function, examples) in _COMMANDS.items():
        if only in (None, name):
            home = importlib.import_module(module)
            app.command(name, epilog=getattr(home, examples))(with_groups(getattr(home, function)))
    if only in (None, _PREDICTORS):
        group = typer.Typer(rich_markup_mode=None, help="What predicts the kernels' times, and how well it does.")
        group.callback(invoke_without_command=True)(predictors)
        group.command("list", epilog=PREDICTORS_LIST_EXAMPLES)(predictors_list_command)
        group.command("evaluate", epilog=PREDICTORS_EVALUATE_EXAMPLES)(predictors_evaluate_command)
        app.add_typer(group, name=_PREDICTORS)
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Parses, runs and returns the exit code; what a user can mend becomes one line on standard error."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    asked = given[0] if given and given[0] in (*_COMMANDS, _PREDICTORS, "--version") else None
    command = typer.main.get_command(command_line(asked))
    add_verbosity(command)
    refuse_repeats(command)
    with own_verbosity():
        try:
            result = command.main(args=given, prog_name=PROGRAM, standalone_mode=False)
        except NeusightError as error:
            return _complain(_error_message(error), error.exit_code)
        except _click_exceptions.ClickException as error:
            return _complain(_list_where_one_is_taken(error, given) or _usage_message(error), _MISUSE_EXIT_CODE)
        except (typer.Abort, KeyboardInterrupt):
            return _INTERRUPTED_EXIT_CODE
        return result if isinstance(result, int) else 0


def _error_message(error: NeusightError) -> str:
    """What is wrong; with ``-v`` also the error's stable code and what was behind it."""
    if verbosity() is not Verbosity.VERBOSE:
        return str(error)
    behind = f"; behind it: {type(error.__cause__).__name__}: {error.__cause__}" if error.__cause__ is not None else ""
    return f"{error} [{error.code}{behind}]"


def _usage_message(error: _ClickError) -> str:
    """One line of what typer would print as several, with where to read on."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else PROGRAM
    return f"{message[:1].lower()}{message[1:]}; '{command} --help' shows what it takes"


def _list_where_one_is_taken(error: _ClickError, given: Sequence[str]) -> str | None:
    """That an option takes one, and which command takes several, where a list was given to it; None of other slips."""
    names = getattr(getattr(error, "param", None), "opts", ())
    option = next((name for name in ("--precision", "--runtime") if name in names), None)
    if option is None:
        return None
    behind = [after for before, after in pairwise(given) if before == option]
    written = [*behind, *(text.removeprefix(f"{option}=") for text in given if text.startswith(f"{option}="))]
    several = next((text for text in written if "," in text), None)
    if several is None:
        return None
    return (
        f"{option} {several[:60]!a}: '{given[0]}' takes one; '{PROGRAM} compare' takes several, and sizes as --batch "
        "1,2,4"
    )


def _complain(message: str, exit_code: int) -> int:
    if sys.stderr is not None:
        print(f"error: {printable(message)}", file=sys.stderr)
    return exit_code
