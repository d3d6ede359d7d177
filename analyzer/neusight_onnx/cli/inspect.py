"""``inspect``: what a model is made of."""

from __future__ import annotations

from typing import Annotated

import typer

from neusight_onnx.cli.files import canvas_for, model_path, read_guarded, target_path
from neusight_onnx.cli.formats import DEFAULT_FORMAT, format_for
from neusight_onnx.cli.options import (
    ModelArgument,
    OutputOption,
    TableFormat,
)
from neusight_onnx.cli.output import check_target, emit
from neusight_onnx.cli.progress import working
from neusight_onnx.cli.sizes import Sizes

EXAMPLES = """\
Examples:

\b
  neusight-onnx inspect model.onnx
  neusight-onnx inspect model.onnx --values --format json -o values.json
"""


def inspect_command(
    model: ModelArgument,
    sizes: Sizes,
    with_values: Annotated[bool, typer.Option("--values", help="Add dtype and shape of every tensor.")] = False,
    asked_format: Annotated[
        TableFormat | None, typer.Option("--format", help="How to print it.", show_default=DEFAULT_FORMAT)
    ] = None,
    output: OutputOption = None,
) -> None:
    """Show what MODEL is made of, without a GPU."""
    path, target = model_path(model), target_path(output)
    table_format = format_for(asked_format, target, TableFormat)
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
