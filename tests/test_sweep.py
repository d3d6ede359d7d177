"""``sweep``: every point is an analysis; the knee and the largest sizes; its reports and its command."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import pytest

from models import external_tensor, graph, linear, model, node, tensor, value
from neusight_onnx import analyze, compare, sweep
from neusight_onnx.cli import main
from neusight_onnx.comparison.points import _series
from neusight_onnx.errors import BindingError, ComparisonError, ModelError, NeusightError, NotSupportedError
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model, read_model_bytes
from neusight_onnx.graph.shapes import Memo
from neusight_onnx.preparation import infer_shapes
from neusight_onnx.report.comparison_words import same_for_all
from neusight_onnx.report.layout import Canvas
from neusight_onnx.report.sweep import Point
from neusight_onnx.report.sweep_machine import sweep_to_json
from neusight_onnx.report.sweep_terminal import sweep_to_terminal
from test_report_machine import SCHEMA, documented_keys, keys_of

ROOT = Path(__file__).parents[1]
BERT = ROOT / "examples" / "bert_base.onnx"
SHARED = Path(os.environ.get("NEUSIGHT_SHARED", ROOT.parent / "shared"))
GPT3 = SHARED / "models" / "neusight" / "gpt3_xl.onnx"


def positions() -> onnx.ModelProto:
    """ids (batch, seq) -> a table of 128 positions added to x (batch, seq, 8): longer sequences are refused."""
    return model(
        graph(
            [
                node("Shape", "x", "shape", "shape"),
                node("Slice", "shape one two", "seq", "seq"),
                node("Slice", "table zero seq", "rows", "rows"),
                node("Add", "x rows", "y", "add"),
            ],
            [value("x", ["batch", "seq", 8])],
            [value("y", None)],
            [
                tensor("table", np.zeros((128, 8), np.float32)),
                *(tensor(name, np.array([at], np.int64)) for at, name in enumerate(("zero", "one", "two"))),
            ],
        )
    )


# --- points -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["eager", "compiled", "onnxruntime", "tensorrt"])
def test_every_point_has_the_figures_of_an_analysis(runtime: str) -> None:
    found = sweep(BERT, gpu="t4", dims={"batch": (1, 3, 8), "sequence": (64, 128)}, runtime=runtime)
    assert [dict(point.dims) for point in found.points] == [
        {"batch": batch, "sequence": length} for batch in (1, 3, 8) for length in (64, 128)
    ]
    for point in found.points:
        report = analyze(BERT, gpu="t4", dims=dict(point.dims), runtime=runtime)
        assert point.totals == report.totals
        assert point.unsupported_count == len(report.unsupported)


@pytest.mark.skipif(not GPT3.exists(), reason="the model is not in this repository; NEUSIGHT_SHARED names its folder")
def test_a_sweep_of_a_large_model_equals_separate_analyses() -> None:
    sizes = {"batch": (1, 2, 8), "seq": (128, 1000)}
    found = sweep(GPT3, gpu="a100", dims=sizes)
    for point in found.points:
        assert point.totals == analyze(GPT3, gpu="a100", dims=dict(point.dims)).totals


@pytest.mark.parametrize("path", [BERT, ROOT / "examples" / "resnet50.onnx"], ids=lambda path: path.stem)
def test_what_rules_said_before_is_what_they_would_say(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes of all values, with a memo that has seen other sizes, equal those of a walk that keeps nothing."""
    read = read_model(path)
    memo = Memo(graph=read.graph)
    for batch in (1, 3, 1):
        found = infer_shapes(read, make_bindings({"batch": batch}), memo).inferred
        assert memo.answers
        with monkeypatch.context() as patched:
            patched.setattr(Memo, "keep", lambda self, key, inputs, results: results)
            alone = infer_shapes(read, make_bindings({"batch": batch})).inferred
        assert found.values.keys() == alone.values.keys()
        for name, known in alone.values.items():
            other = found.values[name]
            assert replace(other, data=None) == replace(known, data=None)
            contents = [None if item.data is None else (item.data.dtype, item.data.tolist()) for item in (known, other)]
            assert contents[0] == contents[1]
        assert found.assumptions == alone.assumptions
        assert found.warnings == alone.warnings


def test_what_the_model_refuses_is_a_point_with_the_reason() -> None:
    read = read_model_bytes(positions().SerializeToString())
    found = sweep(read, gpu="t4", dims={"seq": (64, 128, 200), "batch": (1, 2)})
    assert [point.totals is None for point in found.points] == [False] * 4 + [True] * 2
    assert "add" in (found.points[4].refused or "")
    text = sweep_to_terminal(found, Canvas(width=80))
    assert "refused with seq=200 batch=1 and 1 more: " in text
    document = json.loads(sweep_to_json(found))
    assert document["points"][5]["latency_ms"] is None
    assert set(document["points"][5]) == set(document["points"][0])
    with pytest.raises(ModelError, match="refuses all of these sizes; with seq=200: "):
        sweep(read, gpu="t4", dims={"seq": (200, 300)})


def test_dims_that_follow_from_others_are_not_fixed() -> None:
    """total = past + 1: given with the input that has it, another size at each point."""
    main = graph(
        [node("Relu", "x", "y"), node("Relu", "z", "w")],
        [value("x", ["batch", "past"]), value("z", ["batch", "past + 1"])],
        [value("y", None), value("w", None)],
    )
    read = read_model_bytes(model(main).SerializeToString())
    found = sweep(read, gpu="t4", dims={"batch": 2, "past": (3, 7)})
    assert (found.dims, found.derived) == ({"batch": 2}, ("past + 1",))
    text = sweep_to_terminal(found, Canvas(width=120))
    assert "past + 1: another size at other points" in text
    assert "batch=2 " in text
    assert sweep(read, gpu="t4", dims={"batch": (2, 3), "past": 3}).derived == ()
    compared = compare(read, gpus=["t4"], dims={"batch": 2, "past": (3, 7)})
    assert same_for_all(compared)[-1] == "batch=2"


def test_what_is_not_costed_fits_all_the_same() -> None:
    lost = model(
        graph([node("Mystery", "x", "y", "odd", "own")], [value("x", ["batch", 4])], [value("y", None)]),
        opsets={"": 17, "own": 1},
    )
    (series,) = sweep(read_model_bytes(lost.SerializeToString()), gpu="t4", dims={"batch": (1, 2)}).series
    assert (series.knee, series.largest_that_fits) == (None, 2)


# --- knee and largest -------------------------------------------------------------------------------------------------


def made(rows: list[tuple[int, float, float, str]]) -> list[Point]:
    """Points of (batch, latency ms, its upper end, verdict)."""
    base = analyze(BERT, gpu="t4", dims={"batch": 1, "sequence": 16}).totals
    return [
        Point(
            dims={"batch": batch},
            totals=replace(
                base,
                latency_ms=latency_ms,
                latency_high_ms=high_ms,
                throughput_per_s=1e3 * batch / latency_ms,
                memory=replace(base.memory, verdict=verdict),
            ),
            bound_shares={},
            unsupported_count=0,
        )
        for batch, latency_ms, high_ms, verdict in rows
    ]


# throughput 100, 190, 200, 205: 90 % of 205 is 184.5, so that the knee is at 2
CURVE = [(1, 10.0, 12.0, "fits"), (2, 10.5, 13.0, "fits"), (4, 20.0, 26.0, "fits"), (8, 39.0, 50.0, "fits")]
TIGHT = [*CURVE[:3], (8, 39.0, 50.0, "tight")]
LARGE = [(batch, low, high, "does not fit") for batch, low, high, _ in CURVE]


@pytest.mark.parametrize(
    ("rows", "limit_ms", "at", "expected"),
    [
        pytest.param(CURVE, None, "upper", (2, 8, None), id="no limit"),
        pytest.param(CURVE, 26.0, "upper", (2, 8, 4), id="upper end"),
        pytest.param(CURVE, 25.9, "upper", (2, 8, 2), id="just above"),
        pytest.param(CURVE, 39.0, "median", (2, 8, 8), id="median"),
        pytest.param(CURVE, 1.0, "median", (2, 8, None), id="never"),
        pytest.param(TIGHT, 99.0, "upper", (2, 4, 4), id="tight is not fitting"),
        pytest.param(LARGE, 99.0, "upper", (None, None, None), id="nothing fits"),
        pytest.param(list(reversed(CURVE)), None, "upper", (2, 8, None), id="any order"),
    ],
)
def test_knee_and_largest(
    rows: list[tuple[int, float, float, str]],
    limit_ms: float | None,
    at: str,
    expected: tuple[int | None, int | None, int | None],
) -> None:
    (series,) = _series(made(rows), "batch", limit_ms, at, is_batch=True)
    assert (series.knee, series.largest_that_fits, series.largest_in_time) == expected


@pytest.mark.parametrize(
    ("partial", "limit_ms", "expected", "not_judged"),
    [
        pytest.param({1, 2, 4, 8}, 26.0, (None, 8, None), ("knee", "largest_in_time"), id="all"),
        pytest.param({8}, 50.0, (None, 8, None), ("knee", "largest_in_time"), id="one that may be in time"),
        pytest.param({8}, 26.0, (None, 8, 4), ("knee",), id="one that is too slow already"),
        pytest.param({1}, 26.0, (None, 8, 4), ("knee",), id="a smaller one"),
        pytest.param({1}, None, (None, 8, None), ("knee",), id="no limit"),
    ],
)
def test_lower_bounds_are_not_judged(
    partial: set[int],
    limit_ms: float | None,
    expected: tuple[int | None, int | None, int | None],
    not_judged: tuple[str, ...],
) -> None:
    points = [
        replace(point, totals=replace(point.totals, partial=point.dims["batch"] in partial))
        for point in made(CURVE)
        if point.totals is not None
    ]
    (series,) = _series(points, "batch", limit_ms, "upper", is_batch=True)
    assert (series.knee, series.largest_that_fits, series.largest_in_time) == expected
    assert series.not_judged == not_judged


def test_what_is_not_judged_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("Relu", "x", "h"), node("Mystery", "h", "y", "odd", "own")]
    some = graph(nodes, [value("x", ["batch", 4096])], [value("y", None)])
    onnx.save(model(some, opsets={"": 17, "own": 1}), path := tmp_path / "m.onnx")
    asked = ["sweep", str(path), "--gpu", "t4", "--batch", "1,8", "--max-latency", "1s"]
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert text.count("not judged") == 2
    assert "1 node not supported and counted as nothing: latencies are lower" in text
    assert main([*asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["series"][0]["largest_in_time"] is None
    assert found["series"][0]["not_judged"] == ["knee", "largest_in_time"]
    assert [notice["code"] for notice in found["warnings"]] == ["unsupported"]


def test_series_run_along_the_batch() -> None:
    found = sweep(BERT, gpu="t4", dims={"batch": (1, 2), "sequence": (16, 32)})
    assert found.axis == "batch"
    assert [dict(series.dims) for series in found.series] == [{"sequence": 16}, {"sequence": 32}]
    assert [series.points for series in found.series] == [(0, 2), (1, 3)]
    other = sweep(BERT, gpu="t4", dims={"batch": 2, "sequence": (16, 32)})
    assert (other.axis, other.axis_is_batch, other.dims) == ("sequence", False, {"batch": 2})
    assert other.series[0].knee is None
    assert "knee" not in sweep_to_terminal(other, Canvas(width=80))


def test_largest_that_fits_is_where_analyze_says_fits() -> None:
    found = sweep(ROOT / "examples" / "resnet50.onnx", gpu="t4", dims={"batch": (1, 512, 2048, 4096)})
    fitting = [point.dims["batch"] for point in found.points if point.totals and point.totals.memory.verdict == "fits"]
    assert 0 < len(fitting) < 4
    assert found.series[0].largest_that_fits == max(fitting)


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        pytest.param({"dims": {}}, ComparisonError, "nothing to sweep", id="no dim"),
        pytest.param({"dims": {"batch": 8}}, ComparisonError, "nothing to sweep", id="one size"),
        pytest.param({"dims": {"bath": (1, 2)}}, BindingError, "bath", id="unknown dim"),
        pytest.param({"dims": {"batch": range(1, 1030)}}, ComparisonError, "1,029 cases", id="too many"),
        pytest.param({"precision": "fp8"}, NotSupportedError, "no FP8 units", id="precision"),
        pytest.param({"runtime": "openvino"}, NotSupportedError, "'openvino'", id="runtime"),
        pytest.param({"at": "mean"}, ComparisonError, "'mean'", id="at"),
    ],
)
def test_refusals(arguments: dict[str, object], kind: type[NeusightError], says: str) -> None:
    with pytest.raises(kind, match=re.escape(says)):
        sweep(BERT, **{"gpu": "t4", "dims": {"batch": (1, 2)}, **arguments})  # type: ignore[arg-type]  # wrong on purpose


def test_sweep_and_compare_agree() -> None:
    swept = sweep(BERT, gpu="t4", dims={"batch": (1, 2), "sequence": 16})
    compared = compare(BERT, gpus=["t4"], dims={"batch": (1, 2), "sequence": 16}, sort="memory")
    assert {point.dims["batch"]: point.totals for point in swept.points} == {
        case.dims["batch"]: case.totals for case in compared.cases
    }


# --- reports ----------------------------------------------------------------------------------------------------------


def test_json_is_documented_key_by_key() -> None:
    found = sweep(BERT, gpu="t4", dims={"batch": (1, 2), "sequence": (16, 32)}, max_latency_ms=5.0)
    text = SCHEMA.read_text("utf-8").partition("`neusight-onnx sweep MODEL --format json` prints")[2]
    documented = documented_keys(text.partition("\n`neusight-onnx")[0])
    maps = {path for path, kind in documented.items() if kind.startswith("map")}
    missing = {"warnings[].node"}  # optional
    series = tuple(replace(each, not_judged=("knee",)) for each in found.series)
    found = replace(found, assumptions=("an assumption",), derived=("total",), series=series, product_formats=("int8",))
    assert keys_of(json.loads(sweep_to_json(found)), "", maps) | missing == set(documented)


def test_formats_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", str(BERT), "--gpu", "t4", "--dim", "batch=1,4,sequence=16,32", "--max-latency", "9ms"]
    texts = {}
    for form in ("rich", "json", "csv", "markdown"):
        assert main([*command, "--format", form]) == 0
        texts[form] = capsys.readouterr().out
    document = json.loads(texts["json"])
    rows = list(csv.DictReader(StringIO(texts["csv"])))
    assert [float(row["latency_ms"]) for row in rows] == [point["latency_ms"] for point in document["points"]]
    assert {(row["gpu"], row["precision"], row["runtime"], row["runtime_release"]) for row in rows} == {
        tuple(document[key] for key in ("gpu", "precision", "runtime", "runtime_release"))
    }
    assert [(int(row["dims.batch"]), int(row["dims.sequence"])) for row in rows] == [(1, 16), (1, 32), (4, 16), (4, 32)]
    for form in ("rich", "markdown"):
        assert texts[form].count("sequence=") == 2
        for series in document["series"]:
            keys = ("knee", "largest_that_fits", "largest_in_time")
            sizes = [series["dims"]["sequence"], *(series[key] for key in keys)]
            row = r"[ |]+".join("none" if size is None else str(size) for size in sizes)
            assert re.search(rf"^[ |]*{row}[ |]*$", texts[form], re.MULTILINE), (form, row)
    assert document["max_latency_ms"] == 9.0


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    found = sweep(BERT, gpu="t4", dims={"batch": (1, 8, 4000), "sequence": (16, 512)}, max_latency_ms=5.0)
    for canvas in (Canvas(width=width), Canvas(width=width, plain=True)):
        text = sweep_to_terminal(found, canvas)
        assert max(map(len, text.splitlines())) <= width
        assert text.isascii() or not canvas.plain
        assert canvas.ellipsis not in text
        assert "\x1b" not in text


def test_the_chart_is_to_scale() -> None:
    """Bars are as long as the throughputs, the longest being the highest of all series."""
    found = sweep(BERT, gpu="t4", dims={"batch": (1, 4), "sequence": (16, 256)})
    text = sweep_to_terminal(found, Canvas(width=120, plain=True))
    bars = [len(bar) for bar in re.findall(r" (#+)$", text, re.MULTILINE)]
    order = [index for series in found.series for index in series.points]
    figures = [totals.throughput_per_s for index in order if (totals := found.points[index].totals)]
    assert len(bars) == 4
    for bar, figure in zip(bars, figures, strict=True):
        assert bar == pytest.approx(max(bars) * figure / max(figures), abs=1)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(positions(), tmp_path / "model.onnx")
    onnx.save(linear(external_tensor("w", [4, 3], "w.bin")), tmp_path / "external.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


GOOD = ["sweep", "model.onnx", "--gpu", "t4", "--dim", "batch=1,2"]
MISUSE = {
    "no dim": (["sweep", "model.onnx", "--gpu", "t4"], ["nothing to sweep"]),
    "one size": (["sweep", "model.onnx", "--gpu", "t4", "--dim", "batch=2"], ["nothing to sweep"]),
    "no GPU": (["sweep", "model.onnx", "--dim", "batch=1,2"], ["--gpu"]),
    "range": ([*GOOD, "--dim", "seq=8..1"], ["backwards"]),
    "wrong unit": ([*GOOD, "--max-latency", "20mss"], ["'mss' is no unit", "20ms"]),
    "limit twice": ([*GOOD, "--max-latency", "1ms", "--max-latency", "2ms"], ["given twice"]),
    "at": ([*GOOD, "--at", "mean"], ["upper or median"]),
    "at without a limit": ([*GOOD, "--at", "median"], ["--at says where --max-latency is judged"]),
    "no range": ([*GOOD, "--dim", "seq=1..2..3"], ["--dim seq=1..2..3: 1..2..3 is no range; write 1,2,8"]),
    "precision": ([*GOOD, "--precision", "bf16"], ["bf16 on t4", "no bfloat16 units"]),
    "all refused": ([*GOOD, "--dim", "seq=200..300+50"], ["refuses all", "seq=200"]),
    "too many": ([*GOOD, "--dim", "seq=1..1000"], ["2,000 cases"]),
    "output is the weights": (
        ["sweep", "external.onnx", "--gpu", "t4", "--dim", "batch=1,2", "-o", "w.bin"],
        ["model's weights"],
    ),
}


@pytest.mark.parametrize(("arguments", "says"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_is_one_line(
    arguments: list[str], says: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for text in says:
        assert text in err


def test_examples_of_the_help_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--help"]) == 0
    commands = re.findall(r"^ *neusight-onnx (sweep .*)$", capsys.readouterr().out, re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        assert main(shlex.split(command)) == 0, command


@pytest.mark.parametrize("limit", [-1.0, 0.0, float("nan")])
def test_a_latency_that_no_run_has_is_no_limit(limit: float) -> None:
    with pytest.raises(ComparisonError, match=r"max_latency_ms is .*; give milliseconds above 0"):
        sweep(Path("never-read.onnx"), gpu="t4", dims={"batch": (1, 2)}, max_latency_ms=limit)


@pytest.mark.parametrize("name", ["batch_size", "gpu", "latency_ms"])
@pytest.mark.parametrize("command", ["sweep", "compare"])
def test_a_dim_may_be_called_as_a_column_is(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    main_graph = graph([node("Relu", "x", "y")], [value("x", [name, 4])], [value("y", [name, 4])])
    path.write_bytes(model(main_graph).SerializeToString())
    assert main([command, str(path), "--gpu", "t4", "--dim", f"{name}=2,8", "--format", "csv"]) == 0
    head, *rows = csv.reader(StringIO(capsys.readouterr().out))
    assert len(set(head)) == len(head)
    assert sorted(row[head.index(f"dims.{name}")] for row in rows) == ["2", "8"]
