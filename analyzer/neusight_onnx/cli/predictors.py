"""``predictors``: what predicts the kernels' times, and how well it does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neusight_onnx.cli.files import canvas_for
from neusight_onnx.cli.options import (
    TableFormat,
    TableFormatOption,
)
from neusight_onnx.cli.output import emit
from neusight_onnx.cli.progress import working
from neusight_onnx.errors import DataError

LIST_EXAMPLES = """\
Examples:

\b
  neusight-onnx predictors list
  neusight-onnx predictors list --format json
"""
EVALUATE_EXAMPLES = """\
Examples:

\b
  neusight-onnx predictors evaluate measured/
  neusight-onnx predictors evaluate measured/ --all-rows --format json
"""


def predictors(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        emit(context.get_help() + "\n", None)


def list_command(table_format: TableFormatOption = TableFormat.RICH) -> None:
    """List the shipped predictors with their held-out errors."""
    from neusight_onnx.predictor import list_predictors
    from neusight_onnx.report.predictors import predictors_to_json, predictors_to_terminal

    found = list_predictors()
    as_json = table_format is TableFormat.JSON
    emit(predictors_to_json(found) if as_json else predictors_to_terminal(found, canvas_for(None)), None)


def evaluate_command(
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
