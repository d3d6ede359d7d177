"""A comparison for a reader at a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.report.comparison import Comparison
from neusight_onnx.report.comparison_words import SPARED, heads, left_out_note, lines, notes, same_for_all, spared
from neusight_onnx.report.grouping import folded
from neusight_onnx.report.layout import Canvas, bar, bullets, columns, heading, render
from neusight_onnx.report.quantities import counted, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


_LEAST_CHART = 12
_MOST_CHART = 48
_FOLDED = ("GPU", "what if")
_MOST_CHANGE = 32
"""Columns for which others are left out, so that a change needs no break."""

_LEAST_NAME = 9
"""Columns of a name at least, which may break; figures may not: cut short, they say something else."""


def comparison_to_terminal(comparison: Comparison, canvas: Canvas) -> str:
    """The table, best first, then what it rests on."""
    from rich.text import Text

    model = printable(comparison.model_path.replace("\\", "/").rsplit("/", 1)[-1])
    about = [counted(len(comparison.cases), "case"), *same_for_all(comparison)]
    parts: list[RenderableType] = [
        Text.assemble((model, "bold"), "  ", (canvas.dot.join(map(printable, about)), "dim"), "\n")
    ]
    rows = []
    for index, (case, cells) in enumerate(zip(comparison.cases, lines(comparison), strict=True)):
        is_best = index == 0 and comparison.has_best
        style = "bold green" if is_best else "" if case.totals.memory.fits else "dim"
        rows.append((style, ["*" if is_best else "", *cells]))
    table, left_out = figure_table((("", "left"), *heads(comparison)), rows, canvas, spared=spared(comparison))
    explained = [f"* {note}" if note.startswith("best") else note for note in notes(comparison, left_out)]
    parts += [table, Text()]
    parts += [Text(printable(note), style="dim") for note in (*explained, *left_out_note(left_out, canvas.width))]
    warnings = [notice.message for notice in comparison.warnings]
    for title, items, style in (
        ("Warnings", warnings, "yellow"),
        ("Assumptions", folded(comparison.assumptions), ""),
    ):
        if items:
            parts += [heading(title), bullets([printable(item) for item in items], canvas, style)]
    return render(parts, canvas)


def figure_table(
    heads: Sequence[tuple[str, str]],
    rows: Sequence[tuple[str, Sequence[str]]],
    canvas: Canvas,
    *,
    spared: Sequence[str] = SPARED,
    chart: tuple[str, Sequence[float]] | None = None,
) -> tuple[Table, list[str]]:
    """A table of (style, cells), and the columns of ``spared`` that are left out because the lines would not fit.

    ``chart``: the title of a last column, and the share of 1 that the bar of each row shows there.
    """
    from rich.text import Text

    kept = list(range(len(heads)))

    widths = [max(len(title), *(len(cells[at]) for _, cells in rows)) for at, (title, _) in enumerate(heads)]
    folded_at = {at for at, (title, _) in enumerate(heads) if title in _FOLDED}
    least = {at: min(widths[at], _LEAST_NAME) for at in folded_at}
    for at in folded_at:
        if heads[at][0] == "what if":  # a change is read as a whole, several may stand below one another
            longest = max(len(change) for _, cells in rows for change in re.split(r"(?<=,)", cells[at]))
            least[at] = max(least[at], min(longest, _MOST_CHANGE))

    def width() -> int:
        return sum(2 + least.get(at, widths[at]) for at in kept) - 2

    dropped = []
    room = canvas.width if chart is None else canvas.width - _LEAST_CHART - 2
    for title in spared:
        spare_at = next((at for at in kept if heads[at][0] == title), None)
        if spare_at is not None and width() > room:
            kept.remove(spare_at)
            dropped.append(title)
    spare = max(room - width(), 0)

    def cell(at: int, text: str) -> str:
        text = printable(text).replace("µs", "us") if canvas.plain else printable(text)
        return _broken(text, least[at] + spare) if at in folded_at else text

    shown = [[Text(cell(at, cells[at]), style=style) for at in kept] for style, cells in rows]
    sides = [(printable(heads[at][0]), "fold" if at in folded_at else heads[at][1]) for at in kept]
    if chart is not None:
        sides.append((chart[0], "left"))
        columns_left = min(max(canvas.width - width() - 2, _LEAST_CHART), _MOST_CHART)
        for line, share, (style, _) in zip(shown, chart[1], rows, strict=True):
            line.append(Text(bar(share, columns_left, canvas), style=style))
    return columns(sides, shown, canvas), dropped


def _broken(name: str, width: int) -> str:
    """``name`` in lines of at most ``width``, broken after a sign where there is one: "a100-sxm-" and "80gb"."""
    if len(name) <= width:
        return name
    lines = [""]
    for whole in re.split(r"(?<=,)", name):
        # what commas part stays together where it can
        for part in [whole] if len(whole) <= width else re.split(r"(?<=[-_/=. ])", whole):
            if lines[-1] and len(lines[-1]) + len(part) > width:
                lines.append(part)
            else:
                lines[-1] += part
    return "\n".join(lines)
