"""A difference for a reader at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neusight_onnx.report.difference import Difference
from neusight_onnx.report.difference_words import (
    classes,
    headline,
    kernel_cells,
    kernel_dims,
    settings,
    totals,
    unsupported,
)
from neusight_onnx.report.layout import Canvas, bullets, columns, fit, heading, render
from neusight_onnx.report.quantities import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"new": "red", "gone": "green", "changed": ""}


def difference_to_terminal(difference: Difference, canvas: Canvas, *, top: int = 10) -> str:
    """What became of the latency, then by class, then the ``top`` kernels with the largest change."""
    from rich.text import Text

    old, new = difference.old, difference.new
    worse = difference.failed or (difference.limit is None and new.latency_ms > old.latency_ms)
    good = "yellow" if difference.unjudged is not None else "bold green"
    parts: list[RenderableType] = [
        Text(printable(headline(difference)), style="bold red" if worse else good),
        Text(printable(f"old: {canvas.dot.join([old.source, *settings(old)])}"), style="dim"),
        Text(printable(f"new: {canvas.dot.join([new.source, *settings(new)])}"), style="dim"),
        Text(),
        columns((("", "left"), ("old", "right"), ("new", "right"), ("change", "right")), totals(difference), canvas),
        heading("Time by kernel class"),
        columns(
            (("", "left"), ("old", "right"), ("new", "right"), ("difference", "right"), ("change", "right")),
            [[printable(cell) for cell in row] for row in classes(difference)],
            canvas,
        ),
    ]
    shown = difference.kernels[:top]
    if shown:
        parts.append(heading(f"Kernels that differ: {len(shown)} of {len(difference.kernels)}"))
        rows = []
        for item in shown:
            status, what, runs, delta = kernel_cells(item)
            name = Text.assemble(fit(printable(what), max(canvas.width - 34, 20), canvas))
            name.append(f"\n{printable(kernel_dims(item))}", style="dim")
            rows.append([Text(status, style=_STYLES[status]), name, Text(runs), Text(delta)])
        heads = (("", "left"), ("kernel", "fold"), ("runs", "right"), ("difference", "right"))
        parts.append(columns(heads, rows, canvas))
    remarks = [*unsupported(difference), *difference.notes]
    if remarks:
        parts += [heading("Notes"), bullets([printable(note) for note in remarks], canvas, "yellow")]
    return render(parts, canvas)
