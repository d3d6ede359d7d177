"""A comparison for an issue, a pull request or a wiki page."""

from __future__ import annotations

from neusight_onnx.report.comparison import Comparison
from neusight_onnx.report.comparison_words import heads, lines, notes, same_for_all
from neusight_onnx.report.grouping import folded
from neusight_onnx.report.markdown_text import table, text


def comparison_to_markdown(comparison: Comparison) -> str:
    """The table, best first and in bold, then what it rests on."""
    rows = []
    for index, cells in enumerate(lines(comparison)):
        row = [text(cell) for cell in cells]
        rows.append([f"**{cell}**" if cell else "" for cell in row] if index == 0 and comparison.has_best else row)
    settings = ", ".join(map(text, same_for_all(comparison)))
    sections = [
        f"# {text(comparison.model_path)}: {len(comparison.cases):,} compared",
        f"{settings}; neusight-onnx {text(comparison.tool_version)}",
        table([text(title) for title, _ in heads(comparison)], rows),
        "\n".join(f"- {text(note)}" for note in notes(comparison)),
    ]
    for title, items in (
        ("Warnings", [notice.message for notice in comparison.warnings]),
        ("Assumptions", folded(comparison.assumptions)),
    ):
        if items:
            sections += [f"## {title}", "\n".join(f"- {text(item)}" for item in items)]
    return "\n\n".join(sections) + "\n"
