"""An evaluation of the predictors for a reader (its JSON is made where it is defined)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from neusight_onnx.learning.evaluate import ANALYTIC, MIXED, ErrorSummary, Evaluation, SkippedRows
from neusight_onnx.report.layout import Canvas, bullets, columns, heading, render
from neusight_onnx.report.quantities import counted, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_ABOVE = " and above"
_MOST_PERCENT = 9_999
_BY = {ANALYTIC: "law", MIXED: "both"}


def evaluation_to_terminal(evaluation: Evaluation, canvas: Canvas) -> str:
    """A table for each file, kernel class and dtype, of the rows that show the kernel; below it what was not judged and
    how rows were treated."""
    from rich.text import Text

    title = Text.assemble(("Shipped predictors on ", ""), (printable(evaluation.data_folder), "bold"))
    rows_judged = (
        "all rows"
        if evaluation.sampled_rows is None
        else f"a sample of at most {evaluation.sampled_rows:,} rows a GPU (in event-timed files: a session)"
    )
    note = Text(
        f"{rows_judged}; mean, median: absolute error; bias: median signed error; roofline: its mean error; "
        f"inside: rows within the {evaluation.interval * 100:.0f} % interval; * the GPU was in no training set; "
        "law: no predictor for such kernels, the analytic law answered",
        style="dim",
    )
    parts: list[RenderableType] = [title, note]
    heads = (
        ("  GPU", "left"),
        ("rows", "right"),
        ("mean", "right"),
        ("median", "right"),
        ("bias", "right"),
        ("roofline", "right"),
        ("inside", "right"),
        ("by", "left"),
    )
    short: list[str] = []
    tables = groupby(evaluation.groups, key=lambda group: (group.file, group.kernel_class, group.dtype, group.variant))
    for (file, kernel_class, dtype, variant), found in tables:
        groups = list(found)
        name = f"{printable(kernel_class)} {dtype}, {printable(file)}{f' ({printable(variant)})' if variant else ''}"
        shown = [group for group in groups if group.size.endswith(_ABOVE)]
        if not shown:
            short.append(f"{counted(groups[0].row_count, 'row')} of {name}: too short to show the kernel")
            continue
        parts += [
            heading(f"{name}, {shown[0].size}"),
            columns(heads, [_row(group) for group in shown], canvas),
        ]
    if evaluation.skipped or short:
        lines = [*_skipped(evaluation.skipped), *short]
        parts += [heading("Not judged"), bullets(lines, canvas, "yellow")]
    parts += [heading("How rows were treated"), Text(evaluation.treatment, style="dim")]
    return render(parts, canvas)


def _row(group: ErrorSummary) -> tuple[str, ...]:
    return (
        f"  {printable(group.gpu)}{'*' if group.trained_on is False else ''}",
        f"{group.row_count:,}",
        _error(group.mape_percent),
        _error(group.median_ape_percent),
        _error(group.bias_percent, sign="+"),
        _error(group.roofline_mape_percent),
        f"{group.coverage * 100:.0f} %",
        _BY.get(group.method, ""),
    )


def _error(per_cent: float, sign: str = "") -> str:
    """An error with a decimal; one so large that rows can't be what they claim leaves the table its columns."""
    return f"{per_cent:{sign}.1f} %" if per_cent < _MOST_PERCENT else f"> {_MOST_PERCENT:,} %"


def _skipped(skipped: Sequence[SkippedRows]) -> list[str]:
    """One line for all rows of a file that have the same reason."""
    groups: dict[tuple[str, str], list[SkippedRows]] = defaultdict(list)
    for rows in skipped:
        groups[rows.file, rows.reason].append(rows)
    lines = []
    for (file, reason), members in groups.items():
        if not any(rows.row_count for rows in members):
            lines.append(f"{printable(file)}: {printable(reason)}")
            continue
        count = counted(sum(rows.row_count for rows in members), "row")
        kinds = ", ".join(dict.fromkeys(f"{rows.dtype} {printable(rows.kernel_class)}" for rows in members))
        names = list(dict.fromkeys(rows.gpu for rows in members))
        gpus = printable(names[0]) if len(names) == 1 else counted(len(names), "GPU")
        lines.append(f"{count} of {kinds} on {gpus} in {printable(file)}: {printable(reason)}")
    return lines
