"""JSON and CSV: whole golden reports, the promise of the sums, and every key documented."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from neusight_onnx import analyze
from neusight_onnx.cli import main
from neusight_onnx.report.json_text import rounded
from neusight_onnx.report.machine import CSV_COLUMNS, to_csv, to_json
from neusight_onnx.report.model import Report
from neusight_onnx.report.quantities import printable
from report_cases import GPU, HOSTILE, KERNELS, REPORT, TRAINING, empty_report, hostile_report

BERT = Path(__file__).parents[1] / "examples" / "bert_base.onnx"
SCHEMA = Path(__file__).parents[1] / "docs" / "report-schema.md"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(1234567.0, 1234570.0, id="large"),
        pytest.param(0.00012345678, 0.000123457, id="small"),
        pytest.param(0.0, 0.0, id="zero"),
        pytest.param(2.5, 2.5, id="short"),
    ],
)
def test_rounded(value: float, expected: float) -> None:
    assert rounded(value) == expected


@pytest.mark.parametrize("report", [REPORT, hostile_report(), empty_report()], ids=["fixed", "hostile", "empty"])
def test_kernels_and_overhead_add_up_to_the_total(report: Report) -> None:
    found = json.loads(to_json(report))
    kernels_ms = sum(kernel["latency_us"] for kernel in found["kernels"]) / 1e3
    total_ms = found["totals"]["latency_ms"]
    # each of the figures is rounded to six digits: half a unit in the sixth
    assert kernels_ms + found["totals"]["overhead_ms"] == pytest.approx(total_ms, rel=1e-5)
    assert kernels_ms == pytest.approx(found["totals"]["kernel_ms"], rel=1e-5)


def test_names_survive_json_untouched() -> None:
    text = to_json(hostile_report())
    assert text.isascii()
    found = json.loads(text)
    assert found["kernels"][0]["nodes"] == [HOSTILE]
    assert found["model"]["path"] == HOSTILE


def test_json_has_one_kernel_a_line() -> None:
    lines = [line for line in to_json(REPORT).splitlines() if line.startswith('    {"id"')]
    assert len(lines) == len(KERNELS)
    assert json.loads(lines[0].rstrip(","))["id"] == "0.0"


@pytest.mark.parametrize(("partial", "expected"), [(False, 0.0), (True, None)], ids=["free nodes only", "unsupported"])
def test_a_latency_that_is_not_known_is_null(partial: bool, expected: float | None) -> None:
    report = empty_report()
    report = replace(report, totals=replace(report.totals, partial=partial))
    totals = json.loads(to_json(report))["totals"]
    keys = ("latency_ms", "latency_low_ms", "latency_high_ms", "throughput_per_s")
    assert {totals[key] for key in keys} == {expected}


def test_json_refuses_what_is_no_number() -> None:
    broken = replace(REPORT, gpu=replace(GPU, clock_hz=float("nan")))
    with pytest.raises(ValueError, match="Out of range float"):
        to_json(broken)


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(StringIO(to_csv(hostile_report()))))
    assert [row["id"] for row in rows] == [row.id for row in KERNELS]
    assert rows[0]["nodes"] == printable(HOSTILE)
    assert to_csv(hostile_report()).count("\n") == 1 + len(KERNELS)
    assert float(rows[2]["latency_us"]) == 290.0
    assert rows[1]["tile"] == "m=128 n=128 k=8"
    assert tuple(rows[0]) == CSV_COLUMNS


def test_csv_columns_are_the_keys_of_the_json() -> None:
    assert list(json.loads(to_json(REPORT))["kernels"][0]) == list(CSV_COLUMNS)


def documented_keys(text: str) -> dict[str, str]:
    """Path -> type of every row of the tables."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            for path in re.findall(r"`([^`]+)`", cells[0]):
                found[path] = cells[1]
    return found


def keys_of(value: object, path: str, maps: set[str]) -> set[str]:
    """Paths of the leaves of ``value`` in the notation of the tables; maps and empty lists are leaves."""
    if path in maps or not isinstance(value, dict | list):
        return {path}
    if isinstance(value, dict):
        return {
            leaf
            for key, member in value.items()
            for leaf in keys_of(member, f"{path}.{key}" if path else str(key), maps)
        }
    if path.endswith(".shape"):
        return {path}
    return {leaf for member in value for leaf in keys_of(member, f"{path}[]", maps)}


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    report_part = SCHEMA.read_text(encoding="utf-8").partition("# The machine-readable inspection")[0]
    documented = documented_keys(report_part)
    maps = {path for path, kind in documented.items() if kind.startswith("map")}
    report = replace(REPORT, training=TRAINING, settings=replace(REPORT.settings, product_formats=("int8",)))
    assert keys_of(json.loads(to_json(report)), "", maps) == set(documented)


def test_python_writes_what_the_command_line_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(BERT), "--gpu", "t4", "--runtime", "tensorrt", "--format", "json"]) == 0
    printed = capsys.readouterr().out
    report = analyze(BERT, gpu="t4", runtime="tensorrt", explain_fusion=True)
    assert to_json(report).rstrip() == printed.rstrip()
    assert report.fusion.near_misses
    unasked = json.loads(to_json(analyze(BERT, gpu="t4", runtime="tensorrt")))
    assert "near_misses" not in unasked["fusion"]
