"""``analyze`` from end to end, on the example models that ship, with the predictors that ship."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from neusight_onnx import analyze
from neusight_onnx.cli import main
from test_report_machine import SCHEMA, documented_keys, keys_of

EXAMPLES = Path(__file__).parents[1] / "examples"
RESNET = [str(EXAMPLES / "resnet50.onnx"), "--gpu", "a100", "--dim", "batch=8"]
BERT = [str(EXAMPLES / "bert_base.onnx"), "--gpu", "t4", "--dim", "batch=8,sequence=128"]
MODELS = pytest.mark.parametrize("arguments", [RESNET, BERT], ids=["resnet50", "bert_base"])


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(["analyze", *arguments])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found = json.loads(run(capsys, *arguments, "--format", "json"))
    assert isinstance(found, dict)
    return found


@MODELS
def test_json_keeps_its_promises(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, *arguments)
    totals, coverage, kernels = found["totals"], found["coverage"], found["kernels"]
    kernels_ms = sum(kernel["latency_us"] for kernel in kernels) / 1e3
    assert kernels_ms == pytest.approx(totals["kernel_ms"], rel=1e-5)
    assert totals["kernel_ms"] + totals["overhead_ms"] == pytest.approx(totals["latency_ms"], rel=1e-5)
    assert totals["latency_low_ms"] <= totals["latency_ms"] <= totals["latency_high_ms"]
    assert totals["throughput_per_s"] == pytest.approx(8e3 / totals["latency_ms"], rel=1e-5)
    for quantity in ("flops", "read_bytes", "write_bytes"):
        assert totals[quantity] == sum(kernel[quantity] for kernel in kernels)
    memory = totals["memory"]
    parts = ("weight_bytes", "activation_bytes", "workspace_bytes", "allocator_bytes", "context_bytes")
    assert memory["peak_bytes"] == sum(memory[part] for part in parts)
    counts = ("kernel_node_count", "free_node_count", "unsupported_node_count")
    assert coverage["node_count"] == sum(coverage[count] for count in counts) == found["model"]["node_count"]
    assert coverage["unsupported_node_count"] == 0
    assert not totals["partial"]
    assert sum(coverage["latency_share"].values()) == pytest.approx(1.0, rel=1e-5)
    assert sum(coverage["free_reasons"].values()) == coverage["free_node_count"]
    assert len({kernel["id"] for kernel in kernels}) == len(kernels)
    for kernel in kernels:
        assert 0 < kernel["utilization"] <= 1
        assert 0 < kernel["latency_low_us"] <= kernel["latency_us"] <= kernel["latency_high_us"]
        assert kernel["nodes"]


@MODELS
def test_every_key_of_a_real_report_is_documented(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    documented = documented_keys(SCHEMA.read_text("utf-8").partition("# The machine-readable inspection")[0])
    maps = {path for path, kind in documented.items() if kind.startswith("map")}
    lists = {path.rpartition("[]")[0] for path in documented if path.endswith("]")} | {"unsupported", "warnings"}
    found = keys_of(report(capsys, *arguments), "", maps)
    assert found - lists <= set(documented)


def resnet50_macs() -> int:
    """Multiply-adds of one 224 x 224 image by the paper's table: stem, four stages of bottlenecks, classifier."""
    macs = 112 * 112 * 64 * 3 * 7 * 7
    channels = 64
    for blocks, width, size in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            # the 1x1 before a stride of 2 (in every stage but the first) still sees the larger image
            before = size * 2 if block == 0 and width > 64 else size
            macs += before**2 * channels * width + size**2 * (9 * width * width + width * 4 * width)
            macs += size**2 * channels * 4 * width if block == 0 else 0
            channels = 4 * width
    return macs + channels * 1000


@pytest.mark.parametrize(
    ("arguments", "macs"),
    [
        pytest.param(RESNET, 8 * resnet50_macs(), id="resnet50"),
        # 12 layers: 4 projections of 768 x 768, 2 of 768 x 3072, scores and their use over 128 tokens; the pooler
        pytest.param(
            BERT, 8 * (12 * (128 * (4 * 768 * 768 + 2 * 768 * 3072) + 2 * 128 * 128 * 768) + 768 * 768), id="bert_base"
        ),
    ],
)
def test_multiply_adds(arguments: list[str], macs: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, *arguments)["totals"]["macs"] == macs


def test_terminal_report_says_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, *RESNET, "--top", "3")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    for pattern in (
        r"^resnet50.onnx on NVIDIA A100",
        r"^inference · tf32 · onnxruntime · batch=8 · 175 nodes · 25.6 M parameters$",
        r"^  Latency +[\d.]+ (ms|µs)   80 % interval [\d.]+ (ms|µs) to [\d.]+ (ms|µs)$",
        r"^  Throughput +[\d,]+ samples/s at batch size 8$",
        r"^  Memory .* of 80.0 GiB: fits$",
        r"174 in kernels .* 0 unsupported$",
        r"^  conv +53 ",
        r"^Slowest kernels  3 of \d+ different ones",
        r"^  3  .*(compute|memory|l2|latency|launch)$",
        r"^Assumptions$",
    ):
        assert re.search(pattern, text, re.MULTILINE), pattern
    assert not re.search(r"^  4  ", text, re.MULTILINE)


def test_formats_agree(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = report(capsys, *RESNET)["kernels"]
    rows = list(csv.DictReader(StringIO(run(capsys, *RESNET, "--format", "csv"))))
    assert [(row["id"], float(row["latency_us"])) for row in rows] == [(k["id"], k["latency_us"]) for k in kernels]
    assert "| conv | 53 |" in run(capsys, *RESNET, "--format", "markdown")


def test_library_and_command_line_agree(capsys: pytest.CaptureFixture[str]) -> None:
    found = analyze(EXAMPLES / "resnet50.onnx", gpu="a100", dims={"batch": 8})
    assert report(capsys, *RESNET)["totals"]["latency_ms"] == pytest.approx(found.totals.latency_ms, rel=1e-5)


@pytest.mark.parametrize("report_format", ["rich", "json", "csv", "markdown"])
def test_output_file_holds_what_standard_output_would(
    report_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report"
    assert run(capsys, *RESNET, "--format", report_format, "-o", str(target)) == ""
    assert target.read_text("utf-8") == run(capsys, *RESNET, "--format", report_format)


def test_defaults_stand_under_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, str(EXAMPLES / "bert_base.onnx"), "--gpu", "t4")
    assert found["settings"]["dims"] == {"batch": 1, "sequence": 128}
    for symbol in ("batch", "sequence"):
        assert any(line.startswith(f"{symbol} = ") and f"--dim {symbol}=N" in line for line in found["assumptions"])


@pytest.mark.parametrize(
    ("options", "dims"),
    [
        pytest.param(["--dim", "batch=2", "--dim", "sequence=64"], {"batch": 2, "sequence": 64}, id="two options"),
        pytest.param(["--dim", "batch=2,sequence=64"], {"batch": 2, "sequence": 64}, id="one option"),
        pytest.param(["--shape", "input_ids=2x64"], {"batch": 2, "sequence": 64}, id="shape"),
        pytest.param(["--shape", "input_ids=2x64", "--dim", "batch=2"], {"batch": 2, "sequence": 64}, id="agreeing"),
    ],
)
def test_bindings(options: list[str], dims: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, str(EXAMPLES / "bert_base.onnx"), "--gpu", "t4", *options)
    assert found["settings"]["dims"] == dims
    assert found["totals"]["batch_size"] == 2


def test_a_gpu_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from test_cli_errors import GPU_FILE

    (tmp_path / "mine.toml").write_text(GPU_FILE)
    found = report(capsys, RESNET[0], "--gpu", str(tmp_path / "mine.toml"))
    assert found["gpu"]["architecture"] == "Roadrunner"
    assert found["gpu"]["peak_flops_per_s"]["fp32"] == 51.2e12
