"""What is shipped to predict with, and how well it does on measured data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.predictor import PredictorInfo
from neusight_onnx.report.comparison_words import left_out_note
from neusight_onnx.report.json_text import json_text, record_json
from neusight_onnx.report.layout import Canvas, columns, heading, render
from neusight_onnx.report.quantities import counted, printable, scaled

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


def predictors_to_json(predictors: Sequence[PredictorInfo]) -> str:
    """``{"predictors": [...]}``, each with its held-out errors by GPU and operation."""
    return json_text({"predictors": [record_json(predictor) for predictor in predictors]})


def predictors_to_terminal(predictors: Sequence[PredictorInfo], canvas: Canvas) -> str:
    """One line a predictor, then what each was trained on."""
    from rich.text import Text

    heads: tuple[tuple[str, str], ...] = (
        ("name", "left"),
        ("dtype", "left"),
        ("rows", "right"),
        ("GPUs", "right"),
        ("new GPU", "right"),
        ("new shapes", "right"),
        ("size", "right"),
    )
    rows: list[tuple[str | Text, ...]] = [
        (
            Text(printable(predictor.name), style="bold"),
            printable(predictor.dtype),
            f"{predictor.row_count:,}",
            str(len(predictor.gpus)),
            _percent(predictor.leave_one_gpu_out_percent),
            _percent(predictor.new_shapes_percent),
            scaled(predictor.byte_count, "B"),
        )
        for predictor in predictors
    ]
    left_out: list[str] = []
    in_columns = zip([title for title, _ in heads], *rows, strict=True)
    if sum(2 + max(len(str(cell)) for cell in column) for column in in_columns) - 2 > canvas.width:
        left_out = ["dtype"]  # the name says as much
        heads = tuple(head for head in heads if head[0] not in left_out)
        rows = [(row[0], *row[2:]) for row in rows]
    note = Text(
        f"\n{counted(len(predictors), 'predictor')}, {scaled(sum(each.byte_count for each in predictors), 'B')}. "
        "new GPU: mean absolute error on a GPU that was left out of training; new shapes: on shapes that were left "
        "out. Other kernel classes have an analytic estimate.",
        style="dim",
    )
    trained = [(f"  {printable(each.name)}", ", ".join(printable(gpu) for gpu in each.gpus)) for each in predictors]
    parts: list[RenderableType] = [
        columns(heads, rows, canvas),
        note,
        *(Text(text, style="dim") for text in left_out_note(left_out, canvas.width)),
        heading("Trained on"),
        columns((("", "left"), ("", "fold")), trained, canvas, headed=False),
    ]
    return render(parts, canvas)


def _percent(error: float | None) -> str:
    """An error, or a dash where nothing was left out: one GPU alone was measured."""
    return "-" if error is None else f"{error:.1f} %"
