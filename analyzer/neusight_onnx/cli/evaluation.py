"""An evaluation of the predictors for a reader (its JSON is made where it is defined)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from neusight_onnx.learning.evaluate import Evaluation, SkippedRows
from neusight_onnx.report.layout import Canvas, bullets, columns, heading, render
from neusight_onnx.report.quantities import counted, printable

if TYPE_CHECKING:
    from rich.console import RenderableType


def evaluation_to_terminal(evaluation: Evaluation, canvas: Canvas) -> str:
    """A table for each file, kernel class and dtype; below it what was skipped and how rows were treated."""
    from rich.text import Text

    title = Text.assemble(("Shipped predictors on ", ""), (printable(evaluation.data_folder), "bold"))
    note = Text(
        "mean, median: absolute error; bias: median signed error; roofline: mean error of the roofline; "
        f"inside: rows within the {evaluation.interval * 100:.0f} % interval; * the GPU was in no training set",
        style="dim",
    )
    parts: list[RenderableType] = [title, note]
    heads = (
        ("  GPU", "left"),
        ("size", "left"),
        ("rows", "right"),
        ("mean", "right"),
        ("median", "right"),
        ("bias", "right"),
        ("roofline", "right"),
        ("inside", "right"),
    )
    tables = groupby(evaluation.groups, key=lambda group: (group.file, group.kernel_class, group.dtype, group.variant))
    for (file, kernel_class, dtype, variant), groups in tables:
        rows = [
            (
                f"  {printable(group.gpu)}{'*' if group.trained_on is False else ''}",
                group.size.replace(" us and above", " us +").replace("below ", "< "),
                f"{group.row_count:,}",
                f"{group.mape_percent:.1f} %",
                f"{group.median_ape_percent:.1f} %",
                f"{group.bias_percent:+.1f} %",
                f"{group.roofline_mape_percent:.1f} %",
                f"{group.coverage * 100:.0f} %",
            )
            for group in groups
        ]
        name = f"{printable(kernel_class)} {dtype}, {printable(file)}{f' ({printable(variant)})' if variant else ''}"
        parts += [heading(name), columns(heads, rows, canvas)]
    if evaluation.skipped:
        parts += [heading("Not judged"), bullets(_skipped(evaluation.skipped), canvas, "yellow")]
    parts += [heading("How rows were treated"), Text(evaluation.treatment, style="dim")]
    return render(parts, canvas)


def _skipped(skipped: Sequence[SkippedRows]) -> list[str]:
    """One line for all rows of a file that have the same reason."""
    groups: dict[tuple[str, str], list[SkippedRows]] = defaultdict(list)
    for rows in skipped:
        groups[rows.file, rows.reason].append(rows)
    lines = []
    for (file, reason), members in groups.items():
        count = counted(sum(rows.row_count for rows in members), "row")
        kinds = ", ".join(dict.fromkeys(f"{rows.dtype} {printable(rows.kernel_class)}" for rows in members))
        names = list(dict.fromkeys(rows.gpu for rows in members))
        gpus = printable(names[0]) if len(names) == 1 else counted(len(names), "GPU")
        lines.append(f"{count} of {kinds} on {gpus} in {printable(file)}: {printable(reason)}")
    return lines
