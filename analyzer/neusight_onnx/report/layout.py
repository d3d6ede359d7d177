"""What the terminal reports share: bars, facts with a label, tables; Rich is imported only when one is rendered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from neusight_onnx.report.quantities import shorten

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉"
_SHADES = "█▒░▞▪▬"
"""Without colour: neighbours that are told apart at a glance ("▓" beside "█" is not)."""

_PLAIN_SHADES = "#=-.:o"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """Where a report is shown: ``width`` in columns, ``colour`` by ANSI sequences, ``plain`` for ASCII only."""

    width: int
    colour: bool = False
    plain: bool = False

    @property
    def ellipsis(self) -> str:
        return "..." if self.plain else "…"

    @property
    def dot(self) -> str:
        """What parts the items of a line."""
        return " | " if self.plain else " · "


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A segment of a stacked bar: what it is called, its share of 1, its colour where there is colour."""

    label: str
    share: float
    style: str


def render(parts: Sequence[RenderableType], canvas: Canvas) -> str:
    """Text of ``parts`` from top to bottom, without trailing blanks, with a line break at the end."""
    from rich.console import Console

    buffer = StringIO()
    console = Console(
        file=buffer,
        width=canvas.width,
        height=1000,
        force_terminal=canvas.colour,
        color_system="standard" if canvas.colour else None,
        no_color=not canvas.colour,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        safe_box=True,
    )
    for part in parts:
        console.print(part)
    text = buffer.getvalue()
    if canvas.plain:
        text = text.replace("µs", "us").replace("…", "...").replace("·", "|")
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def bar(share: float, width: int, canvas: Canvas) -> str:
    """A bar of at most ``width`` columns; what is above zero shows at least an eighth of a column."""
    filled = min(max(share, 0.0), 1.0) * width
    if canvas.plain:
        return "#" * (max(1, round(filled)) if share > 0 else 0)
    eighths = max(1, round(filled * 8)) if share > 0 else 0
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def stacked_bar(parts: Sequence[Part], width: int, canvas: Canvas) -> Text:
    """Segments in ``width`` columns, a gap between them; told apart by colour, or by shade without it.

    What is above zero gets a column at least, at the cost of the widest. The shares add up to 1, or are all 0.
    """
    from rich.text import Text

    columns_left = width - max(sum(part.share > 0 for part in parts) - 1, 0)
    sizes = [max(1, round(part.share * columns_left)) if part.share > 0 else 0 for part in parts]
    if any(sizes):
        sizes[sizes.index(max(sizes))] += columns_left - sum(sizes)
    text = Text()
    for index, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if size and text:
            text.append(" ")
        text.append(shade(index, canvas) * size, style=part.style)
    return text


def legend(parts: Sequence[Part], labels: Sequence[str], width: int, canvas: Canvas) -> Text:
    """What the segments of a stacked bar mean, in lines of at most ``width`` columns that break between entries."""
    from rich.text import Text

    text = Text()
    used = 0
    for index, (part, label) in enumerate(zip(parts, labels, strict=True)):
        entry = Text.assemble((shade(index, canvas), part.style), " ", label)
        if used and used + 2 + entry.cell_len > width:
            text.append("\n")
            used = 0
        elif used:
            text.append("  ")
            used += 2
        text.append_text(entry)
        used += entry.cell_len
    return text


def shade(index: int, canvas: Canvas) -> str:
    """The glyph of a stacked bar's segment."""
    if canvas.plain:
        return _PLAIN_SHADES[index % len(_PLAIN_SHADES)]
    return _SHADES[0] if canvas.colour else _SHADES[index % len(_SHADES)]


def facts(rows: Sequence[tuple[str, RenderableType]]) -> Table:
    """Label and value, line by line; values wrap under themselves."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0), expand=False)
    table.add_column(no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(Text(f"  {label}", style="dim"), value)
    return table


_LEAST_FOLDED = 8
_LEAST_NAME = 6
"""Columns that a wrapped text and a name that is cut keep at least."""


def columns(
    specs: Sequence[tuple[str, str]], rows: Sequence[Sequence[str | Text]], canvas: Canvas, *, headed: bool = True
) -> Table:
    """A table without frames: ``specs`` are (heading, "left" | "right" | "fold"); only "fold" columns wrap.

    Where there is no room for all, columns stand nearer if that suffices; else "left" ones are cut, the widest first,
    and never figures, which are "right": cut short, they say something else.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = [
        max([Text(heading).cell_len if headed else 0, *(_widest_line(row[at]) for row in cells)])
        for at, (heading, _) in enumerate(specs)
    ]
    least = [
        min(width, _LEAST_FOLDED) if kind == "fold" else width for width, (_, kind) in zip(widths, specs, strict=True)
    ]
    gap = 1 if 0 <= canvas.width - sum(least) - (len(specs) - 1) < len(specs) - 1 else 2
    table = Table(
        box=None,
        padding=(0, gap, 0, 0),
        pad_edge=False,
        show_edge=False,
        show_header=headed,
        header_style="dim" if canvas.colour else "",
    )
    excess = sum(least) + gap * (len(specs) - 1) - canvas.width
    for _ in range(excess):
        cut = max((at for at, (_, kind) in enumerate(specs) if kind == "left"), key=lambda at: least[at], default=None)
        if cut is None or least[cut] <= _LEAST_NAME:
            break
        least[cut] -= 1
    for at, (heading, kind) in enumerate(specs):
        is_cut = kind == "left" and least[at] < widths[at]
        table.add_column(
            heading,
            justify="right" if kind == "right" else "left",
            no_wrap=kind != "fold",
            overflow="fold" if kind == "fold" else "ellipsis",
            max_width=least[at] if is_cut else None,
        )
    for row in cells:
        table.add_row(*row)
    return table


def _widest_line(text: Text) -> int:
    return max(line.cell_len for line in text.split(allow_blank=True)) if text else 0


def fit(text: str, width: int, canvas: Canvas) -> Text:
    """``text`` in at most ``width`` columns, shortened in the middle; wide characters count as two columns."""
    from rich.text import Text

    for kept in range(width, 0, -1):
        fitted = Text(shorten(text, kept, canvas.ellipsis))
        if fitted.cell_len <= width:
            return fitted
    return Text()


def heading(title: str) -> Text:
    """The title of a section, with the blank line before it."""
    from rich.text import Text

    return Text.assemble("\n", (title, "bold"))


def bullets(items: Sequence[str], canvas: Canvas, style: str = "") -> Table:
    """A list whose items wrap under themselves."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in items:
        table.add_row(Text("  -" if canvas.plain else "  •", style=style or "dim"), Text(item))
    return table
