"""A sweep for a reader at a terminal: a table with a chart for each series, then what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neusight_onnx.report.comparison_terminal import figure_table
from neusight_onnx.report.comparison_words import left_out_note
from neusight_onnx.report.grouping import folded
from neusight_onnx.report.layout import Canvas, bullets, columns, heading, render
from neusight_onnx.report.quantities import dims_text, printable
from neusight_onnx.report.sweep import Point, Series, Sweep
from neusight_onnx.report.sweep_words import (
    cells,
    charted,
    found_cells,
    found_heads,
    heads,
    notes,
    refusals,
    settings,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


def sweep_to_terminal(sweep: Sweep, canvas: Canvas) -> str:
    """Each series along the axis, the longest bar being the largest figure of all series."""
    from rich.text import Text

    model = printable(sweep.model_path.replace("\\", "/").rsplit("/", 1)[-1])
    parts: list[RenderableType] = [
        Text.assemble((model, "bold"), (" on ", "dim"), (printable(sweep.gpu.label), "bold")),
        Text(canvas.dot.join(map(printable, settings(sweep))), style="dim"),
    ]
    most = max(charted(point, sweep) for point in sweep.points)
    left_out: list[str] = []
    for series in sweep.series:
        parts.append(heading(printable(dims_text(series.dims, ", "))) if series.dims else Text())
        points = [sweep.points[index] for index in series.points]
        rows = [(_style(point, series, sweep), cells(point, sweep)) for point in points]
        shares = [charted(point, sweep) / most if most else 0.0 for point in points]
        title = "throughput" if sweep.axis_is_batch else "latency"
        table, left_out = figure_table(heads(sweep), rows, canvas, chart=(title, shares))
        parts.append(table)
    found = [[printable(cell) for cell in found_cells(series, sweep)] for series in sweep.series]
    titles = [(printable(title), "right") for title in found_heads(sweep)]
    parts += [heading(f"Found, sizes of {printable(sweep.axis)}"), columns(titles, found, canvas), Text()]
    parts += [
        Text(printable(note), style="dim") for note in (*notes(sweep, left_out), *left_out_note(left_out, canvas.width))
    ]
    warnings = [*refusals(sweep), *(notice.message for notice in sweep.warnings)]
    for title, items, style in (("Warnings", warnings, "yellow"), ("Assumptions", folded(sweep.assumptions), "")):
        if items:
            parts += [heading(title), bullets([printable(item) for item in items], canvas, style)]
    return render(parts, canvas)


def _style(point: Point, series: Series, sweep: Sweep) -> str:
    if point.totals is None or not point.totals.memory.fits:
        return "dim"
    return "bold green" if point.dims[sweep.axis] == series.knee else ""
