"""The predicted run as Chrome's trace events, for Perfetto (ui.perfetto.dev), chrome://tracing and speedscope.

The format is the "Trace Event Format" of the Chromium project, its JSON object form: complete events ("X") for spans,
metadata ("M") for the names of rows, flow events ("s", "f") for the arrows from a launch to its kernel. Times: us.
"""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.report.json_text import Json, json_text, rounded
from neusight_onnx.report.machine import known
from neusight_onnx.report.model import KernelRow, Report, TimelineSpan
from neusight_onnx.report.precision_words import precision_of
from neusight_onnx.report.quantities import printable, shorten, tile_text

_PROCESS = 1
_RUN_ROW, _HOST_ROW, _GPU_ROW = 1, 2, 3
_ROWS = {_RUN_ROW: "predicted run", _HOST_ROW: "host: launches", _GPU_ROW: "GPU: stream 0"}

_MOST_NAME = 200
"""Characters of a name: what a person reads on hovering, whatever the file holds."""
_MOST_NODES = 16
_MOST_ARROWS = 20_000
"""Arrows beyond this many only cost: no view draws them apart."""
_NS_DIGITS = 3
"""Digits behind the point of a time in us."""


def to_trace(report: Report) -> str:
    """JSON text of the timeline of ``report``, which must have one (``analyze(..., timeline=True)``).

    The run lasts from 0 to the latency of the report, to the nanosecond.
    """
    assert report.timeline is not None, "a trace needs the timeline"
    totals, settings = report.totals, report.settings
    rows = {row.id: row for row in report.kernels}
    return json_text(
        {
            "displayTimeUnit": "ms",
            "otherData": {
                "tool": f"neusight-onnx {report.tool_version}",
                "model": _name(report.model.path),
                "gpu": report.gpu.label,
                "precision": precision_of(report),
                "runtime": settings.runtime,
                "runtime_release": settings.runtime_release,
                "dims": " ".join(f"{_name(name)}={size}" for name, size in settings.dims.items()),
                "latency_ms": known(totals, totals.latency_ms),
                "latency_low_ms": known(totals, totals.latency_low_ms),
                "latency_high_ms": known(totals, totals.latency_high_ms),
                "note": "predicted, not measured",
            },
            "traceEvents": [
                *_names(report),
                _run(report),
                *(event for place, span in enumerate(report.timeline) for event in _events(place, span, rows)),
            ],
        }
    )


def _names(report: Report) -> Iterator[Json]:
    label = f"{_name(report.model.path)} on {report.gpu.label}, predicted"
    yield {"ph": "M", "name": "process_name", "pid": _PROCESS, "tid": 0, "args": {"name": label}}
    for row, name in _ROWS.items():
        yield {"ph": "M", "name": "thread_name", "pid": _PROCESS, "tid": row, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": _PROCESS, "tid": row, "args": {"sort_index": row}}


def _run(report: Report) -> Json:
    totals = report.totals
    return {
        "ph": "X",
        "name": "one run",
        "cat": "run",
        "pid": _PROCESS,
        "tid": _RUN_ROW,
        "ts": 0,
        "dur": round(totals.latency_ms * 1e3, _NS_DIGITS),
        "args": {
            "low_us": round(totals.latency_low_ms * 1e3, _NS_DIGITS),
            "high_us": round(totals.latency_high_ms * 1e3, _NS_DIGITS),
            "interval": totals.interval,
            "partial": totals.partial,
        },
    }


def _events(place: int, span: TimelineSpan, rows: dict[str, KernelRow]) -> Iterator[Json]:
    node = _name(span.node)
    row = None if span.kernel_id is None else rows[span.kernel_id]
    start = round(span.host_start_us, _NS_DIGITS)
    yield {
        "ph": "X",
        "name": _name(span.op_type),
        "cat": "host",
        "pid": _PROCESS,
        "tid": _HOST_ROW,
        "ts": start,
        "dur": _until(span.host_start_us + span.host_us, start),
        "args": {"node": node, "runs": span.run_count},
    }
    if row is None:
        return
    begin = round(span.gpu_start_us, _NS_DIGITS)
    if place < _MOST_ARROWS:
        arrow: dict[str, Json] = {"name": "launch", "cat": "launch", "id": place, "pid": _PROCESS}
        yield {"ph": "s", "tid": _HOST_ROW, "ts": start, **arrow}
        yield {"ph": "f", "bp": "e", "tid": _GPU_ROW, "ts": begin, **arrow}
    yield {
        "ph": "X",
        "name": f"{row.kernel_class} {node}" if row.phase == "forward" else f"{row.kernel_class} {row.phase} {node}",
        "cat": row.kernel_class,
        "pid": _PROCESS,
        "tid": _GPU_ROW,
        "ts": begin,
        "dur": _until(span.gpu_start_us + span.gpu_us, begin),
        "args": _arguments(span, row),
    }


def _until(end_us: float, start: float) -> float:
    """A duration that ends where the rounded end is: neighbours neither overlap nor part by rounding."""
    return max(round(round(end_us, _NS_DIGITS) - start, _NS_DIGITS), 0.0)


def _arguments(span: TimelineSpan, row: KernelRow) -> dict[str, Json]:
    """What stands behind a span; FLOPs and bytes are those of its ``runs`` together, the interval is that of one."""
    nodes: list[Json] = [_name(name) for name in row.nodes[:_MOST_NODES]]
    if len(row.nodes) > _MOST_NODES:
        nodes.append(f"and {len(row.nodes) - _MOST_NODES:,} more")
    return {
        "nodes": nodes,
        "kernel_class": row.kernel_class,
        "dtype": row.dtype,
        "dims": " ".join(f"{_name(name)}={_size(value)}" for name, value in row.dims.items()),
        "tile": tile_text(row.tile),
        "runs": span.run_count,
        "flops": row.flops // row.count * span.run_count,
        "read_bytes": row.read_bytes // row.count * span.run_count,
        "write_bytes": row.write_bytes // row.count * span.run_count,
        "bound": row.bound,
        "utilization": rounded(row.utilization),
        "latency_us": rounded(row.latency_us / row.count),
        "low_us": rounded(row.latency_low_us / row.count),
        "high_us": rounded(row.latency_high_us / row.count),
        "predictor": row.predictor,
    }


def _size(value: int | str | tuple[int, ...]) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else _name(str(value))


def _name(text: str) -> str:
    return printable(shorten(text, _MOST_NAME))
