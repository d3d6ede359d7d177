"""``operators`` and ``gpus``: what is known."""

from __future__ import annotations

from typing import Annotated

import typer

from neusight_onnx.cli.files import canvas_for
from neusight_onnx.cli.options import (
    GpuFormat,
    ListFormat,
    gpus_begun,
)
from neusight_onnx.cli.output import emit

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
