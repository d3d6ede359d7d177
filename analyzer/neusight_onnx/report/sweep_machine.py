"""A sweep for programs: JSON (docs/report-schema.md describes every key) and CSV, one row a point."""

from __future__ import annotations

import csv
from io import StringIO

from neusight_onnx.report.comparison_machine import dim_column, flat
from neusight_onnx.report.json_text import Json, json_text, rounded
from neusight_onnx.report.machine import figures_json, notice_json
from neusight_onnx.report.sweep import KNEE_SHARE, Point, Sweep
from neusight_onnx.runtime import release_of

SCHEMA_VERSION = 1


def sweep_to_json(sweep: Sweep) -> str:
    """The points in their order, one a line."""
    limit_ms = sweep.max_latency_ms
    return json_text(
        {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "neusight-onnx", "version": sweep.tool_version},
            "model": {"path": sweep.model_path, "sha256": sweep.model_sha256},
            "gpu": sweep.gpu.name,
            "mode": sweep.mode,
            "precision": sweep.precision,
            "product_formats": list(sweep.product_formats),
            "runtime": sweep.runtime,
            "runtime_release": release_of(sweep.runtime),
            "cuda_graph": sweep.cuda_graph,
            "include_io": sweep.include_io,
            "channels_last": sweep.channels_last,
            "dims": dict(sweep.dims),
            "varied": list(sweep.varied),
            "derived": list(sweep.derived),
            "axis": sweep.axis,
            "axis_is_batch": sweep.axis_is_batch,
            "knee_share": KNEE_SHARE,
            "max_latency_ms": None if limit_ms is None else rounded(limit_ms),
            "at": sweep.at,
            "points": [*_points(sweep)],
            "series": [
                {
                    "dims": dict(series.dims),
                    "knee": series.knee,
                    "largest_that_fits": series.largest_that_fits,
                    "largest_in_time": series.largest_in_time,
                    "not_judged": list(series.not_judged),
                }
                for series in sweep.series
            ],
            "assumptions": list(sweep.assumptions),
            "warnings": [notice_json(notice) for notice in sweep.warnings],
        }
    )


def sweep_to_csv(sweep: Sweep) -> str:
    """One row a point: how it is run, under the names that a comparison's rows have; a column ``dims.NAME`` for each
    dim that varies; then the keys of the JSON's points."""
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    records = _points(sweep)
    keys = [key for key in records[0] if key != "dims"]
    run: dict[str, Json] = {
        "gpu": sweep.gpu.name,
        "precision": sweep.precision,
        "product_formats": list(sweep.product_formats),
        "runtime": sweep.runtime,
        "runtime_release": release_of(sweep.runtime),
    }
    writer.writerow([*run, *map(dim_column, sweep.varied), *keys])
    for point, record in zip(sweep.points, records, strict=True):
        sizes = (point.dims[name] for name in sweep.varied)
        writer.writerow([*map(flat, run.values()), *sizes, *(flat(record[key]) for key in keys)])
    return buffer.getvalue()


def _points(sweep: Sweep) -> list[dict[str, Json]]:
    """Every key of each point; the figures are null where the model refuses the sizes."""
    figures = [_figures(point) for point in sweep.points]
    keys = next(found for found in figures if found)
    return [
        {"dims": dict(point.dims), "refused": point.refused, **(found or dict.fromkeys(keys))}
        for point, found in zip(sweep.points, figures, strict=True)
    ]


def _figures(point: Point) -> dict[str, Json]:
    if point.totals is None:
        return {}
    return figures_json(point.totals, point.bound_shares, point.unsupported_count)
