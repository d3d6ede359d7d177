"""``predictors list``: what is shipped, for a reader and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from neusight_onnx.cli import main
from neusight_onnx.cli.evaluation import evaluation_to_terminal
from neusight_onnx.learning.evaluate import ErrorSummary, Evaluation, SkippedRows, evaluation_to_json
from neusight_onnx.predictor import HeldOut, PredictorInfo, list_predictors
from neusight_onnx.report.json_text import json_text
from neusight_onnx.report.layout import Canvas
from neusight_onnx.report.predictors import predictors_to_json, predictors_to_terminal
from test_report_machine import SCHEMA, documented_keys, keys_of

GEMM = PredictorInfo(
    name="gemm-fp32",
    kernel_class="gemm",
    dtype="float32",
    gpus=("p4", "t4", "a100-pcie-40gb"),
    row_count=12_345,
    file="gemm-fp32.onnx",
    byte_count=1_234_567,
    leave_one_gpu_out_percent=13.46,
    new_shapes_percent=4.2,
    held_out=(
        HeldOut(
            protocol="leave-one-gpu-out",
            gpu="t4",
            operation="linear",
            row_count=321,
            mape_percent=13.456789,
            median_ape_percent=9.5,
            bias_percent=-1.25,
        ),
    ),
)


def test_reader() -> None:
    for width in (60, 80, 120):
        long_name = replace(GEMM, name="gemm_of_a_very_long_name", row_count=1_234_567)
        (row,) = (
            line
            for line in predictors_to_terminal([long_name], Canvas(width=width)).splitlines()
            if "1,234,567" in line
        )
        assert ("gemm_of_a_very_long_name" in row) is (width > 60)
    text = predictors_to_terminal([GEMM], Canvas(width=80))
    assert re.search(r"^gemm-fp32 +float32 +12,345 +3 +13.5 % +4.2 % +1.23 MB$", text, re.MULTILINE)
    assert re.search(r"^  gemm-fp32 +p4, t4, a100-pcie-40gb$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80


def test_json() -> None:
    (found,) = json.loads(predictors_to_json([GEMM]))["predictors"]
    assert found["gpus"] == ["p4", "t4", "a100-pcie-40gb"]
    assert found["held_out"][0]["mape_percent"] == 13.4568
    assert set(found) == set(PredictorInfo.__dataclass_fields__)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        pytest.param(lambda: predictors_to_json([GEMM]), "predictors list", id="list"),
        pytest.param(lambda: json_text(evaluation_to_json(EVALUATION)), "predictors evaluate DATA", id="evaluate"),
    ],
)
def test_every_key_is_documented_and_every_documented_key_exists(text: Callable[[], str], command: str) -> None:
    _, _, section = SCHEMA.read_text("utf-8").partition(f"`neusight-onnx {command} --format json` prints")
    documented = set(documented_keys(section.partition("\n`neusight-onnx")[0]))
    assert keys_of(json.loads(text()), "", set()) == documented


@pytest.mark.parametrize("table_format", ["rich", "json"])
def test_what_is_shipped(table_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = list_predictors()
    assert main(["predictors", "list", "--format", table_format]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert shipped
    for predictor in shipped:
        assert predictor.name in out


def summary(gpu: str, trained_on: bool | None, size: str = "all") -> ErrorSummary:
    return ErrorSummary(
        file="neusight/kernels_fp32.parquet",
        kernel_class="gemm",
        dtype="float32",
        gpu=gpu,
        size=size,
        row_count=1234,
        mape_percent=9.876,
        median_ape_percent=5.0,
        bias_percent=-0.5,
        roofline_mape_percent=45.6,
        roofline_median_ape_percent=44.0,
        coverage=0.81,
        trained_on=trained_on,
    )


def skipped(dtype: str, gpu: str, reason: str) -> SkippedRows:
    return SkippedRows(file="x.parquet", kernel_class="conv", dtype=dtype, gpu=gpu, row_count=1, reason=reason)


EVALUATION = Evaluation(
    data_folder="measured",
    interval=0.8,
    treatment="The session's launch floor is added.",
    sampled_rows=1000,
    groups=(
        summary("all", None),
        summary("all", None, "50 us and above"),
        summary("t4", True, "50 us and above"),
        replace(summary("rtx-pro-6000-server", False, "50 us and above"), method="analytic"),
        replace(summary("all", None), kernel_class="softmax"),
    ),
    skipped=(
        skipped("float16", "t4", "no predictor for float16"),
        skipped("bfloat16", "t4", "no predictor for bfloat16"),
        skipped("bfloat16", "p4", "no predictor for bfloat16"),
        SkippedRows(file="y.parquet", kernel_class="", dtype="", gpu="", row_count=0, reason="y has no column k"),
    ),
)


def test_evaluation_for_a_reader() -> None:
    text = evaluation_to_terminal(EVALUATION, Canvas(width=80))
    assert max(map(len, text.splitlines())) <= 80
    for pattern in (
        r"^gemm float32, neusight/kernels_fp32.parquet, 50 us and above$",
        r"^a sample of at most 1,000 rows a GPU",
        r"^  all +1,234 +9.9 % +5.0 % +-0.5 % +45.6 % +81 %$",
        r"^  t4 +1,234 ",
        r"^  rtx-pro-6000-server\* +1,234 .* law$",
        r"1,234 rows of softmax float32, neusight/kernels_fp32.parquet: too short",
        r"y.parquet: y has no column k$",
        r"1 row of float16 conv on t4 in x.parquet: no predictor for float16$",
        r"2 rows of bfloat16 conv on 2 GPUs in x.parquet: no predictor for bfloat16$",
        r"^The session's launch floor is added.$",
    ):
        assert re.search(pattern, text, re.MULTILINE), pattern


def test_errors_beyond_measure_leave_the_table_its_columns() -> None:
    """Rows that claim what no GPU does have errors of a dozen digits."""
    huge = replace(summary("t4", True, "50 us and above"), mape_percent=1e12, bias_percent=1e12)
    text = evaluation_to_terminal(replace(EVALUATION, groups=(huge,)), Canvas(width=80))
    assert re.search(r"^  t4 +1,234 +> 9,999 % +5.0 % +> 9,999 % +45.6 % +81 %$", text, re.MULTILINE)


def test_evaluation_as_json_and_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("neusight_onnx.learning.evaluate.evaluate", lambda data, all_rows: EVALUATION)
    assert main(["predictors", "evaluate", "measured", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [group["gpu"] for group in found["groups"]] == ["all", "all", "t4", "rtx-pro-6000-server", "all"]
    assert main(["predictors", "evaluate", "measured"]) == 0
    assert "Not judged" in capsys.readouterr().out


def test_an_evaluation_of_nothing_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report says why, then the exit code is 2."""
    monkeypatch.setattr(
        "neusight_onnx.learning.evaluate.evaluate", lambda data, all_rows: replace(EVALUATION, groups=())
    )
    assert main(["predictors", "evaluate", "measured"]) == 2
    printed = capsys.readouterr()
    assert "Not judged" in printed.out
    assert printed.err.startswith("error: nothing in measured was judged")
