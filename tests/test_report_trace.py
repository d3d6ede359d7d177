"""The trace: the rules of Chrome's trace-event format, and that it tells what the report tells."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neusight_onnx import analyze
from neusight_onnx.report.model import Report, TimelineSpan
from neusight_onnx.report.trace import to_trace
from report_cases import HOSTILE, KERNELS, REPORT

ROOT = Path(__file__).parents[1]

# The phases that are used here, and the keys that the format asks of each beside ph, pid and tid.
NEEDED = {"M": {"name", "args"}, "X": {"name", "cat", "ts", "dur", "args"}, "s": {"name", "cat", "ts", "id"}}
NEEDED["f"] = NEEDED["s"] | {"bp"}


def spans_by_hand() -> tuple[TimelineSpan, ...]:
    """Host costs of 10 us: the first kernel starts at 10, the others when the one before has ended."""
    found = []
    end = 10.0
    for place, row in enumerate(KERNELS):
        found.append(
            TimelineSpan(
                node=row.nodes[0],
                op_type=row.op_types[0],
                kernel_id=row.id,
                run_count=row.count,
                host_start_us=10.0 * place,
                host_us=10.0,
                gpu_start_us=end,
                gpu_us=row.latency_us,
            )
        )
        end += row.latency_us
    view = replace(
        found[0], node="/View", op_type="Reshape", kernel_id=None, host_start_us=40.0, gpu_start_us=0.0, gpu_us=0.0
    )
    return (*found, view)


BY_HAND = replace(
    REPORT,
    timeline=spans_by_hand(),
    totals=replace(REPORT.totals, latency_ms=(2 * 2200.0 + 290.0 + 30.25 + 10.0) / 1e3),
)


@pytest.fixture(scope="module", params=["resnet50", "bert_base", "by hand"])
def report(request: pytest.FixtureRequest) -> Report:
    if request.param == "by hand":
        return BY_HAND
    return analyze(ROOT / "examples" / f"{request.param}.onnx", gpu="a100", dims={"batch": 2}, timeline=True)


def events_of(report: Report) -> list[dict[str, Any]]:
    document = json.loads(to_trace(report))
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    return list(document["traceEvents"])


def test_every_event_has_what_the_format_asks_for(report: Report) -> None:
    for event in events_of(report):
        assert event["ph"] in NEEDED
        assert NEEDED[event["ph"]] | {"ph", "pid", "tid"} == set(event)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        for key in ("ts", "dur"):
            assert event.get(key, 0) >= 0
        if "bp" in event:
            assert event["bp"] == "e"


def test_rows_have_names_and_their_spans_do_not_overlap(report: Report) -> None:
    events = events_of(report)
    named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert list(named.values()) == ["predicted run", "host: launches", "GPU: stream 0"]
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert set(rows) == set(named)
    for spans in rows.values():
        for (_, end), (start, _) in itertools.pairwise(spans):
            assert start >= end - 1e-6


def test_every_arrow_starts_in_a_launch_and_ends_at_a_kernel(report: Report) -> None:
    events = events_of(report)
    arrows = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            assert event["ph"] not in arrows[event["id"]], "an id is used once"
            arrows[event["id"]][event["ph"]] = event
    assert len(arrows) == sum(event["ph"] == "X" and event["tid"] == 3 for event in events)
    starts = {event["ts"] for event in events if event["ph"] == "X" and event["tid"] == 2}
    begins = {event["ts"] for event in events if event["ph"] == "X" and event["tid"] == 3}
    for arrow in arrows.values():
        assert arrow["s"]["ts"] in starts
        assert arrow["f"]["ts"] in begins
        assert arrow["s"]["ts"] <= arrow["f"]["ts"]


def test_the_run_lasts_as_long_as_the_report_says(report: Report) -> None:
    events = [event for event in events_of(report) if event["ph"] == "X"]
    latency_us = report.totals.latency_ms * 1e3
    assert min(event["ts"] for event in events) == 0
    assert events[0]["name"] == "one run"
    assert events[0]["dur"] == pytest.approx(latency_us, abs=1e-3)
    assert max(event["ts"] + event["dur"] for event in events[1:]) == pytest.approx(latency_us, abs=2e-3)


def test_kernels_are_those_of_the_report(report: Report) -> None:
    kernels = [event for event in events_of(report) if event["ph"] == "X" and event["tid"] == 3]
    assert sum(event["args"]["flops"] for event in kernels) == report.totals.flops
    assert sum(event["args"]["read_bytes"] for event in kernels) == report.totals.read_bytes
    busy_us = sum(event["args"]["latency_us"] * event["args"]["runs"] for event in kernels)
    assert busy_us == pytest.approx(report.totals.kernel_ms * 1e3, rel=1e-3)
    assert {event["cat"] for event in kernels} == {row.kernel_class for row in report.kernels}


def test_an_event_by_hand() -> None:
    event = next(event for event in events_of(BY_HAND) if event["ph"] == "X" and event["cat"] == "softmax")
    assert (event["ts"], event["dur"]) == (4410.0, 290.0)
    assert event["name"] == "softmax /h.0/attn/Softmax"
    assert event["args"] == {
        "nodes": ["/h.0/attn/Softmax"],
        "kernel_class": "softmax",
        "dtype": "float32",
        "dims": "rows=65536 cols=512",
        "tile": "",
        "runs": 2,
        "flops": 2 * 5 * 65536 * 512,
        "read_bytes": 2 * 4 * 65536 * 512,
        "write_bytes": 2 * 4 * 65536 * 512,
        "bound": "memory",
        "utilization": 0.91,
        "latency_us": 145.0,
        "low_us": 135.0,
        "high_us": 160.0,
        "predictor": "softmax-fp32",
    }


def test_names_are_cut_and_printable() -> None:
    row = replace(KERNELS[0], nodes=(HOSTILE * 100_000,) * 40, dims={HOSTILE: HOSTILE})
    span = replace(spans_by_hand()[0], node=HOSTILE * 100_000, op_type=HOSTILE)
    text = to_trace(replace(REPORT, kernels=(row,), timeline=(span,)))
    assert len(text) < 20_000
    assert "\\u0000" not in text
    assert "\\u001b" not in text
    assert "and 24 more" in text
