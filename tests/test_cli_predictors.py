"""``predictors list``: what is shipped, for a reader and as JSON."""

from __future__ import annotations

import json
import re

import pytest

from neusight_onnx.cli import main
from neusight_onnx.predictor import HeldOut, PredictorInfo, list_predictors
from neusight_onnx.report.layout import Canvas
from neusight_onnx.report.predictors import predictors_to_json, predictors_to_terminal

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
    text = predictors_to_terminal([GEMM], Canvas(width=80))
    assert re.search(r"^gemm-fp32 +gemm +float32 +12,345 +3 +13.5 % +4.2 % +1.23 MB$", text, re.MULTILINE)
    assert re.search(r"^  gemm-fp32 +p4, t4, a100-pcie-40gb$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80


def test_json() -> None:
    (found,) = json.loads(predictors_to_json([GEMM]))["predictors"]
    assert found["gpus"] == ["p4", "t4", "a100-pcie-40gb"]
    assert found["held_out"][0]["mape_percent"] == 13.4568
    assert set(found) == set(PredictorInfo.__dataclass_fields__)


@pytest.mark.parametrize("table_format", ["rich", "json"])
def test_what_is_shipped(table_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = list_predictors()
    assert main(["predictors", "list", "--format", table_format]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert shipped
    for predictor in shipped:
        assert predictor.name in out
