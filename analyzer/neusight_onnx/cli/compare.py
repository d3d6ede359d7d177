"""``compare``: one model on several GPUs, in several precisions, runtimes and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neusight_onnx.cli.execution import RunOptions
from neusight_onnx.cli.files import canvas_for, gpu_file, model_path, read_guarded, several_gpus, target_path
from neusight_onnx.cli.formats import DEFAULT_FORMAT, format_for
from neusight_onnx.cli.options import (
    DEFAULT_RUNTIMES,
    GpusOption,
    ModelArgument,
    OutputOption,
    Precision,
    RuntimeName,
    list_begun,
)
from neusight_onnx.cli.output import check_target, emit
from neusight_onnx.cli.progress import working
from neusight_onnx.cli.sizes import SizeLists
from neusight_onnx.cli.verbosity import warn_of_gaps
from neusight_onnx.errors import ComparisonError

if TYPE_CHECKING:
    from neusight_onnx.comparison.prices import Prices
    from neusight_onnx.gpu import GpuSpec
    from neusight_onnx.report.comparison import Comparison


class TableReportFormat(StrEnum):
    RICH = "rich"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


class SortOption(StrEnum):
    LATENCY = "latency"
    THROUGHPUT = "throughput"
    MEMORY = "memory"
    COST = "cost"


EXAMPLES = """\
Examples:

\b
  neusight-onnx compare model.onnx --gpu a100,l4,t4 --batch 8
  neusight-onnx compare model.onnx --all-gpus --batch 1,8,32 --sort throughput
  neusight-onnx compare model.onnx --gpu l4,t4 --price l4=.8/h --sort cost
  neusight-onnx compare model.onnx --gpu h100 --runtime onnxruntime,tensorrt
"""


def compare_command(
    model: ModelArgument,
    gpu: GpusOption = None,
    all_gpus: Annotated[bool, typer.Option("--all-gpus", help="Every GPU that 'gpus' lists.")] = False,
    *,
    sizes: SizeLists,
    precision: Annotated[
        list[str] | None,
        typer.Option(
            "--precision",
            metavar="NAMES",
            help="Number formats: fp32,fp16.",
            show_default="auto",
            autocompletion=list_begun(Precision),
        ),
    ] = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            "--runtime",
            metavar="NAMES",
            help="What runs it: onnxruntime,tensorrt, or releases: onnxruntime@1.9,onnxruntime.",
            show_default=DEFAULT_RUNTIMES,
            autocompletion=list_begun(RuntimeName),
        ),
    ] = None,
    run: RunOptions,
    price: Annotated[
        list[str] | None, typer.Option("--price", metavar="GPU=AMOUNT/h", help="Price of an hour: a100=2.1/h.")
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option("--prices", metavar="FILE", help="Prices: a .toml or .csv file, or '-' (standard input)."),
    ] = None,
    sort: Annotated[SortOption, typer.Option("--sort", help="What comes first.")] = SortOption.LATENCY,
    asked_format: Annotated[
        TableReportFormat | None, typer.Option("--format", help="How to report.", show_default=DEFAULT_FORMAT)
    ] = None,
    output: OutputOption = None,
) -> None:
    """Compare MODEL on several GPUs, at several sizes, in one table."""
    path, target = model_path(model), target_path(output)
    report_format = format_for(asked_format, target, TableReportFormat)
    files = [(file, "a GPU file itself") for name in several_gpus(gpu) for file in gpu_file(name)]
    files += [(Path(prices), "the file of prices itself")] if prices and prices != "-" else []
    check_target(target, (path, "the model itself"), *files)
    with working(f"comparing {path.name}"):
        from neusight_onnx.comparison.cases import compare
        from neusight_onnx.gpu import available_gpus

        if all_gpus and gpu:
            raise ComparisonError("--all-gpus and --gpu exclude each other; give one of them")
        bindings = sizes.bindings()
        comparison = compare(
            read_guarded(path, target),
            gpus=available_gpus() if all_gpus else several_gpus(gpu),
            dims=sizes.dims(),
            batch=sizes.batches(),
            shapes=bindings.shapes,
            values=bindings.values,
            trip_counts=bindings.trip_counts,
            precisions=_listed(precision, "--precision") or ("auto",),
            runtimes=_listed(runtime, "--runtime"),
            cuda_graph=run.cuda_graph,
            include_io=run.include_io,
            channels_last=run.channels_last,
            prices=_prices(prices, price, several_gpus(gpu)),
            sort=sort.value,
            training=run.training.plan(),
        )
    emit(_report(comparison, report_format, target), target)


def _listed(texts: list[str] | None, option: str) -> tuple[str, ...]:
    """The names in comma-separated lists, each once."""
    names = [name.strip() for text in texts or () for name in text.split(",")]
    if not all(names):
        raise ComparisonError(f"{option} has an empty name; write names with commas between them")
    return tuple(dict.fromkeys(names))


def _prices(file: str | None, options: list[str] | None, gpus: Sequence[str]) -> Prices:
    """The prices of GPUs, which are called as ``--gpu`` or as the table calls them: a file by its stem."""
    from neusight_onnx.comparison.prices import Prices, parse_prices, read_prices
    from neusight_onnx.gpu import load_gpu
    from neusight_onnx.regular_files import STANDARD_INPUT

    if file == "":
        raise ComparisonError("--prices is empty; give a .toml or .csv file, or '-' for standard input")
    files = {path.stem: path for name in gpus for path in gpu_file(name)}

    def load(name: str) -> GpuSpec:
        return load_gpu(files.get(name, name))

    given = parse_prices(options or (), load)
    path = STANDARD_INPUT if file == "-" else None if file is None else Path(file)
    return given.over(Prices() if path is None else read_prices(path, load))


def _report(comparison: Comparison, report_format: TableReportFormat, target: Path | None) -> str:
    match report_format:
        case TableReportFormat.JSON:
            from neusight_onnx.report.comparison_machine import comparison_to_json

            return comparison_to_json(comparison)
        case TableReportFormat.CSV:
            from neusight_onnx.report.comparison_machine import comparison_to_csv

            warn_of_gaps(comparison.warnings)
            return comparison_to_csv(comparison)
        case TableReportFormat.MARKDOWN:
            from neusight_onnx.report.comparison_markdown import comparison_to_markdown

            return comparison_to_markdown(comparison)
        case TableReportFormat.RICH:
            from neusight_onnx.report.comparison_terminal import comparison_to_terminal

            return comparison_to_terminal(comparison, canvas_for(target))
