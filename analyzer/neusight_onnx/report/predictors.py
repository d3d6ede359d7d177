"""What is shipped to predict with, and how well it does on measured data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.predictor import PredictorInfo
from neusight_onnx.report.json_text import json_text, record_json
from neusight_onnx.report.layout import Canvas, columns, heading, render
from neusight_onnx.report.quantities import counted, printable, scaled

if TYPE_CHECKING:
    from rich.console import RenderableType


def predictors_to_json(predictors: Sequence[PredictorInfo]) -> str:
    """``{"predictors": [...]}``, each with its held-out errors by GPU and operation."""
    return json_text({"predictors": [record_json(predictor) for predictor in predictors]})


def predictors_to_terminal(predictors: Sequence[PredictorInfo], canvas: Canvas) -> str:
    """One line a predictor, then what each was trained on."""
    from rich.text import Text

    heads = (
        ("name", "left"),
        ("dtype", "left"),
        ("rows", "right"),
        ("GPUs", "right"),
        ("new GPU", "right"),
        ("new shapes", "right"),
        ("size", "right"),
    )
    rows = [
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
        heading("Trained on"),
        columns((("", "left"), ("", "fold")), trained, canvas, headed=False),
    ]
    return render(parts, canvas)


def _percent(error: float | None) -> str:
    """An error, or a dash where nothing was left out: one GPU alone was measured."""
    return "-" if error is None else f"{error:.1f} %"
