"""A sweep for an issue, a pull request or a wiki page."""

from __future__ import annotations

from neusight_onnx.report.grouping import folded
from neusight_onnx.report.markdown_text import table, text
from neusight_onnx.report.quantities import dims_text
from neusight_onnx.report.sweep import Sweep
from neusight_onnx.report.sweep_words import cells, found_cells, found_heads, heads, notes, refusals, settings


def sweep_to_markdown(sweep: Sweep) -> str:
    """What was found first, then each series."""
    sections = [
        f"# {text(sweep.model_path)} on {text(sweep.gpu.label)}: sweep of {text(', '.join(sweep.varied))}",
        f"{', '.join(map(text, settings(sweep)))}; neusight-onnx {text(sweep.tool_version)}",
        f"Found, sizes of {text(sweep.axis)}:",
        table(
            [text(title) for title in found_heads(sweep)],
            [[text(cell) for cell in found_cells(series, sweep)] for series in sweep.series],
        ),
    ]
    for series in sweep.series:
        sections += [f"## {text(dims_text(series.dims, ', '))}"] if series.dims else []
        rows = [[text(cell) for cell in cells(sweep.points[index], sweep)] for index in series.points]
        sections.append(table([text(title) for title, _ in heads(sweep)], rows))
    sections.append("\n".join(f"- {text(note)}" for note in notes(sweep)))
    for title, items in (
        ("Warnings", [*refusals(sweep), *(notice.message for notice in sweep.warnings)]),
        ("Assumptions", folded(sweep.assumptions)),
    ):
        if items:
            sections += [f"## {title}", "\n".join(f"- {text(item)}" for item in items)]
    return "\n\n".join(sections) + "\n"
