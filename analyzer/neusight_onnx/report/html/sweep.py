"""A sweep as a page: latency, throughput and memory over the sizes, what was found, and every point in a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from neusight_onnx.report.grouping import folded
from neusight_onnx.report.html.page import page_text
from neusight_onnx.report.json_text import Json, rounded
from neusight_onnx.report.model import Totals
from neusight_onnx.report.quantities import dims_text, printable, shorten
from neusight_onnx.report.sweep import Point, Sweep
from neusight_onnx.report.sweep_words import cells, found_cells, found_heads, heads, notes, refusals, settings

_MOST_NAME = 120
_MOST_TEXT = 1_000
_MOST_LISTED = 200
_MOST_ROWS = 2_000
"""Points in the tables; all are in the chart."""


def sweep_to_html(sweep: Sweep) -> str:
    """The sweep as one HTML file that needs no network; limits of latency and memory are lines in the chart."""
    model = sweep.model_path.rsplit("/", 1)[-1]
    tables = []
    left = _MOST_ROWS
    for series in sweep.series:
        shown = series.points[: max(left, 0)]
        left -= len(shown)
        if not shown:
            break
        head = f"<h3>{_text(dims_text(series.dims, ', '))}</h3>" if series.dims else ""
        rows = (cells(sweep.points[index], sweep) for index in shown)
        tables.append(head + _table([title for title, _ in heads(sweep)], rows))
    if left < 0 or sum(len(series.points) for series in sweep.series) > _MOST_ROWS:
        tables.append(f'<p class="hint">The tables show the first {_MOST_ROWS:,} points.</p>')
    warnings = [*refusals(sweep), *(notice.message for notice in sweep.warnings)]
    body = [
        '<main><section class="card" id="sweep"><div class="head"><h2>Over the sizes</h2>'
        '<div class="tools"></div></div>',
        '<div class="chart tall" id="sweep-chart"></div><p class="hint foot">Bands are intervals; hollow points do not '
        "fit the memory.</p></section>",
        '<section class="card"><h2>Found, sizes of ',
        f"{_text(sweep.axis)}</h2>",
        _table(found_heads(sweep), (found_cells(series, sweep) for series in sweep.series[:_MOST_LISTED])),
        "</section>",
        _section("Warnings", warnings, "card fair"),
        f'<section class="card" id="points"><h2>All points</h2>{"".join(tables)}</section>',
        _section("Notes", [*notes(sweep), *folded(sweep.assumptions)], "card background"),
        "</main>",
    ]
    return page_text(
        title=f"{model} on {sweep.gpu.label}: sweep of {', '.join(sweep.varied)}",
        heading=f"{_shown(model)} on {sweep.gpu.label}: sweep of {_shown(', '.join(sweep.varied))}",
        subtitle=" · ".join(settings(sweep)),
        body="".join(body),
        data=_data(sweep),
        version=sweep.tool_version,
    )


def _data(sweep: Sweep) -> dict[str, Json]:
    others = [name for name in sweep.varied if name != sweep.axis]
    costed = [(point, point.totals) for point in sweep.points if point.totals is not None and point.is_costed]
    return {
        "kind": "sweep",
        "axis": _shown(sweep.axis),
        "limit_ms": sweep.max_latency_ms,
        "available": sweep.gpu.memory_bytes,
        "points": [_point(point, totals, sweep.axis, others) for point, totals in costed],
    }


def _point(point: Point, totals: Totals, axis: str, others: Sequence[str]) -> Json:
    return {
        "x": point.dims[axis],
        "series": ", ".join(f"{_shown(name)}={point.dims[name]}" for name in others),
        "ms": rounded(totals.latency_ms),
        "low": rounded(totals.latency_low_ms),
        "high": rounded(totals.latency_high_ms),
        "rate": rounded(totals.throughput_per_s),
        "bytes": totals.memory.peak_bytes,
        "fits": totals.memory.verdict,
    }


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(title)}</th>" for title in titles)
    lines = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="plain"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def _section(title: str, items: Sequence[str], style: str) -> str:
    if not items:
        return ""
    more = f"<li>and {len(items) - _MOST_LISTED:,} more</li>" if len(items) > _MOST_LISTED else ""
    listed = "".join(f"<li>{_text(item)}</li>" for item in items[:_MOST_LISTED]) + more
    return f'<section class="{style}"><h2>{title}</h2><ul>{listed}</ul></section>'


def _text(text: str) -> str:
    return escape(printable(shorten(text, _MOST_TEXT)))


def _shown(name: str) -> str:
    return printable(shorten(name, _MOST_NAME))
