"""A chart of one model at many sizes, as a page of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from neusight_onnx.report.html.page import page_text
from neusight_onnx.report.json_text import Json, rounded
from neusight_onnx.report.quantities import capacity, duration, printable, shorten, significant

_MOST_NAME = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One size: ``dims`` bound by name, latencies in ms, samples per second, bytes of the GPU's memory.

    ``verdict`` is that of the memory: "fits", "tight" or "does not fit". ``label`` tells series apart that have the
    same sizes (a GPU, a precision).
    """

    dims: Mapping[str, int]
    latency_ms: float
    latency_low_ms: float
    latency_high_ms: float
    throughput_per_s: float
    memory_bytes: int
    verdict: str
    label: str = ""


def sweep_to_html(
    points: Sequence[SweepPoint],
    *,
    title: str,
    subtitle: str,
    tool_version: str,
    memory_available_bytes: int | None = None,
    latency_limit_ms: float | None = None,
    notes: Sequence[str] = (),
) -> str:
    """One HTML file: latency, throughput and memory over the size that varies most, and all points in a table.

    ``notes`` are sentences above the chart: the knee, the largest batch that fits. Limits become lines in the chart.
    """
    names = list(dict.fromkeys(name for point in points for name in point.dims))
    values = {name: sorted({point.dims[name] for point in points if name in point.dims}) for name in names}
    varying = [name for name in names if len(values[name]) > 1]
    axis = max(varying or names, key=lambda name: len(values[name]), default="")
    others = [name for name in varying if name != axis]
    data: dict[str, Json] = {
        "kind": "sweep",
        "axis": _shown(axis),
        "limit_ms": latency_limit_ms,
        "available": memory_available_bytes,
        "points": [
            {
                "x": point.dims.get(axis, 0),
                "series": ", ".join(
                    [*([_shown(point.label)] if point.label else []), *(f"{_shown(n)}={point.dims[n]}" for n in others)]
                ),
                "ms": rounded(point.latency_ms),
                "low": rounded(point.latency_low_ms),
                "high": rounded(point.latency_high_ms),
                "rate": rounded(point.throughput_per_s),
                "bytes": point.memory_bytes,
                "fits": point.verdict,
            }
            for point in points
        ],
    }
    body = [
        '<main><section class="card" id="sweep"><div class="head"><h2>Over the sizes</h2>'
        '<div class="tools"></div></div>',
        "".join(f"<p>{escape(printable(note))}</p>" for note in notes),
        '<div class="chart tall" id="sweep-chart"></div><p class="hint foot">Bands are intervals; hollow points do not '
        "fit the memory.</p></section>",
        '<section class="card"><h2>All points</h2><div class="scroll"><table class="plain"><thead><tr>',
        "".join(f"<th>{escape(head)}</th>" for head in _heads(names, points)),
        "</tr></thead><tbody>",
        "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(point, names, points)) + "</tr>"
            for point in points
        ),
        "</tbody></table></div></section></main>",
    ]
    return page_text(
        title=title, heading=printable(title), subtitle=subtitle, body="".join(body), data=data, version=tool_version
    )


def _heads(names: Sequence[str], points: Sequence[SweepPoint]) -> list[str]:
    labelled = [""] if any(point.label for point in points) else []
    return [*labelled, *map(_shown, names), "latency", "interval", "samples/s", "memory", "verdict"]


def _cells(point: SweepPoint, names: Sequence[str], points: Sequence[SweepPoint]) -> list[str]:
    labelled = [_shown(point.label)] if any(other.label for other in points) else []
    return [
        *labelled,
        *(f"{point.dims[name]:,}" if name in point.dims else "" for name in names),
        duration(point.latency_ms * 1e3),
        f"{duration(point.latency_low_ms * 1e3)} to {duration(point.latency_high_ms * 1e3)}",
        significant(point.throughput_per_s),
        capacity(point.memory_bytes),
        point.verdict,
    ]


def _shown(name: str) -> str:
    return printable(shorten(name, _MOST_NAME))
