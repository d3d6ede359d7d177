"""A comparison for programs: JSON (docs/report-schema.md describes every key) and CSV, one row a case."""

from __future__ import annotations

import csv
from io import StringIO

from neusight_onnx.report.comparison import Case, Comparison
from neusight_onnx.report.json_text import Json, json_text, rounded
from neusight_onnx.report.machine import figures_json, notice_json
from neusight_onnx.report.quantities import dims_text, printable
from neusight_onnx.runtime import release_of

SCHEMA_VERSION = 1


def comparison_to_json(comparison: Comparison) -> str:
    """The cases in their order, one a line."""
    return json_text(
        {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "neusight-onnx", "version": comparison.tool_version},
            "model": {"path": comparison.model_path, "sha256": comparison.model_sha256},
            "mode": comparison.mode,
            "cuda_graph": comparison.cuda_graph,
            "include_io": comparison.include_io,
            "channels_last": comparison.channels_last,
            "sort": comparison.sort.value,
            "has_best": comparison.has_best,
            "varied": list(comparison.varied),
            "currency": comparison.currency,
            "cases": [case_json(case) for case in comparison.cases],
            "assumptions": list(comparison.assumptions),
            "warnings": [notice_json(notice) for notice in comparison.warnings],
        }
    )


def comparison_to_csv(comparison: Comparison) -> str:
    """One row a case, under the keys of the JSON, with a column ``dims.NAME`` for each dim; bounds read
    "compute=0.87 memory=0.06"."""
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    records = [case_json(case) for case in comparison.cases]
    names = list(dict.fromkeys(name for case in comparison.cases for name in case.dims))
    writer.writerow([column for key in records[0] for column in (map(dim_column, names) if key == "dims" else [key])])
    for case, record in zip(comparison.cases, records, strict=True):
        row: list[Json] = []
        for key, value in record.items():
            row += [case.dims.get(name) for name in names] if key == "dims" else [flat(value)]
        writer.writerow(row)
    return buffer.getvalue()


def dim_column(name: str) -> str:
    """The column of a dim's sizes, named as in the JSON: a dim may be called as another column is ("batch_size")."""
    return f"dims.{printable(name)}"


def flat(value: Json) -> Json:
    """A value of the JSON as one cell of a CSV."""
    if isinstance(value, dict):
        return dims_text({name: item if isinstance(item, int | str) else str(item) for name, item in value.items()})
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return printable(value) if isinstance(value, str) else value


def case_json(case: Case) -> dict[str, Json]:
    """Every key of a case."""
    totals = case.totals
    ends = (None, totals.latency_low_ms, totals.latency_high_ms)
    costs = [cost(at) for cost in (case.cost, case.token_cost) for at in ends]
    cost, low, high, of_tokens, low_of_tokens, high_of_tokens = (
        None if each is None else rounded(each) for each in costs
    )
    return {
        "gpu": case.gpu.name,
        "gpu_model": case.gpu_model,
        "precision": case.precision,
        "product_formats": list(case.product_formats),
        "runtime": case.runtime,
        "runtime_release": release_of(case.runtime),
        "dims": dict(case.dims),
        **figures_json(totals, case.bound_shares, case.unsupported_count),
        "price_per_h": case.price_per_h,
        "cost_per_million": cost,
        "cost_low_per_million": low,
        "cost_high_per_million": high,
        "cost_per_million_tokens": of_tokens,
        "cost_low_per_million_tokens": low_of_tokens,
        "cost_high_per_million_tokens": high_of_tokens,
    }
