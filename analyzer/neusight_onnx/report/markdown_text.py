"""Markdown that stays what it is: tables, and texts whose marks are escaped."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.report.quantities import printable


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; its cells are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def text(content: str) -> str:
    """``content`` on one line, with what Markdown would take as markup escaped."""
    escaped = printable(content).replace("\\", "\\\\")
    for mark in "|`*_[]<>#":
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped


def code(content: str) -> str:
    """``content`` as code; in a table a bar must be escaped even there, and a backtick would end it."""
    return "`" + printable(content).replace("|", "\\|").replace("`", "'") + "`"
