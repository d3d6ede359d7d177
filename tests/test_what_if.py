"""``analyze --what-if`` and ``--set``: the same model under a change, and what is no change."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from neusight_onnx import analyze, load_gpu
from neusight_onnx.cli import main
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import changed_gpu
from neusight_onnx.gpu.changes import FIELDS
from neusight_onnx.gpu.keys import NUMBER_KEYS, PEAK_KEYS
from neusight_onnx.gpu.power import idle_w
from test_report_machine import SCHEMA, documented_keys, keys_of

ROOT = Path(__file__).parents[1]
RESNET = str(ROOT / "examples" / "resnet50.onnx")
H100 = load_gpu("h100")
GOOD = ["analyze", RESNET, "--gpu", "h100", "--dim", "batch=8"]


def test_one_key_changes_one_figure() -> None:
    found = changed_gpu(H100, {"mem_bw_gbs": 4800}, "here")
    assert found.memory_bytes_per_s == 4.8e12
    assert found == replace(
        H100,
        name="h100-sxm with memory_bandwidth_gb_s=4800",
        label=f"{H100.label} with memory_bandwidth_gb_s=4800",
        aliases=(),
        device_names=(),
        memory_bytes_per_s=4.8e12,
        idle_power_w=idle_w(H100),
    )


def test_units_and_clock_scale_the_peaks() -> None:
    """Twice the SMs at half the clock: the same peaks; a peak that is given stays as given."""
    twice = {"sm_count": 2 * H100.sm_count}
    assert changed_gpu(H100, twice, "here").peak_flops_per_s == {
        pipe: 2 * rate for pipe, rate in H100.peak_flops_per_s.items()
    }
    half = {**twice, "boost_mhz": H100.clock_hz / 2e6}
    assert changed_gpu(H100, half, "here").peak_flops_per_s == pytest.approx(H100.peak_flops_per_s)
    given = changed_gpu(H100, {**twice, "tf32_tflops": 100.0}, "here").peak_flops_per_s
    assert given["tf32"] == 1e14
    assert given["fp32"] == 2 * H100.peak_flops_per_s["fp32"]


def test_every_number_of_a_file_but_the_warp_can_change() -> None:
    peaks_and_warp = {*PEAK_KEYS, "warp_size"}
    assert {key.name for key in NUMBER_KEYS} - peaks_and_warp == set(FIELDS)
    found = changed_gpu(H100, {"pcie_lanes": 8, "pcie_generation": 4, "scaleup_gb_s": 100}, "here")
    assert (found.pcie_lane_count, found.pcie_generation, found.scaleup_bytes_per_s) == (8, 4, 1e11)


def test_fewer_lanes_slow_the_copies() -> None:
    figures = [
        analyze(RESNET, gpu=gpu, batch=8, include_io=True).totals.latency_ms
        for gpu in (H100, changed_gpu(H100, {"pcie_lanes": 4}, "here"))
    ]
    assert figures[1] > 1.05 * figures[0]


@pytest.mark.parametrize("tops", [20, 2000])
@pytest.mark.parametrize(
    ("gpu", "runtime", "precision"),
    [("jetson-agx-orin-64gb", "tensorrt", "fp16"), ("rtx-4090", "tensorrt", "fp16"), ("a100", "onnxruntime", "tf32")],
)
def test_the_rate_of_a_format_that_isnt_run_changes_nothing(gpu: str, runtime: str, precision: str, tops: int) -> None:
    """INT8's rate tells a shipped GeForce card; a change of it makes no other card one, nor unmakes it."""
    specs = (load_gpu(gpu), changed_gpu(load_gpu(gpu), {"int8_tops": tops}, "here"))
    before, after = (analyze(RESNET, gpu=spec, batch=8, runtime=runtime, precision=precision).totals for spec in specs)
    assert (after.latency_ms, after.latency_high_ms) == (before.latency_ms, before.latency_high_ms)


@pytest.mark.parametrize(
    ("gpu", "scaled"),
    [
        pytest.param("a100", {"fp32"}, id="tensor cores"),
        pytest.param("mi210", {"fp32"}, id="matrix cores"),
        pytest.param("v100", {"fp32", "int8"}, id="dot products beside tensor cores"),
        pytest.param("mi50", {"fp32", "fp16", "int8"}, id="packed halves"),
    ],
)
def test_lanes_scale_what_runs_on_lanes(gpu: str, scaled: set[str]) -> None:
    spec = load_gpu(gpu)
    found = changed_gpu(spec, {"fp32_lanes_per_sm": 2 * spec.fp32_lanes_per_sm}, "here").peak_flops_per_s
    assert {pipe for pipe, rate in found.items() if rate == 2 * spec.peak_flops_per_s[pipe]} == scaled & set(found)
    assert all(found[pipe] == rate for pipe, rate in spec.peak_flops_per_s.items() if pipe not in scaled)


def test_integers_stay_integers() -> None:
    found = changed_gpu(H100, {"memory_gb": 141.0, "l2_mb": 60.5, "sm_count": 100.0}, "here")
    assert (found.memory_bytes, found.l2_bytes, found.sm_count) == (141 * 2**30, 63_438_848, 100)
    assert all(isinstance(size, int) for size in (found.memory_bytes, found.l2_bytes, found.sm_count))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"memory_bandwidth_gbs": 1.0}, "'memory_bandwidth_gb_s' is the nearest", id="unknown"),
        pytest.param({"mem_bw_gbs": 0.0}, "memory bandwidth in GB/s as a number from 5", id="zero"),
        pytest.param({"boost_mhz": 1.98}, "boost clock in MHz", id="wrong unit"),
        pytest.param({"sm_count": 1.5}, "a whole number", id="half an SM"),
        pytest.param({"fp32_tflops": 1000.0}, "sm_count x fp32_lanes_per_sm", id="a peak that nothing gives"),
        pytest.param({"memory_bytes_per_s": 1e12}, "'memory_bandwidth_gb_s' is the nearest", id="of the JSON"),
        pytest.param({"power_w": 300.0, "tdp_w": 300.0}, "'tdp_w' is changed twice", id="one key by two names"),
        pytest.param({"l2_bandwidth_gb_s": 100.0}, "whatever memory delivers passes the L2", id="L2 below memory"),
        pytest.param({"vendor": 1.0}, "has no key 'vendor'", id="not a figure"),
    ],
)
def test_figures_that_can_not_be(changes: dict[str, float], says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(says)):
        changed_gpu(H100, changes, "here")


def test_each_change_stands_beside_the_base(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["gpu.mem_bw_gbs=4800", "runtime=compiled", "dim.batch=16,runtime=compiled"]
    options = [part for text in changes for part in ("--what-if", text)]
    assert main([*GOOD, *options, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    base = analyze(RESNET, gpu="h100", dims={"batch": 8})
    fast = changed_gpu(H100, {"mem_bw_gbs": 4800}, "")
    expected = [
        analyze(RESNET, gpu=fast, dims={"batch": 8}),
        analyze(RESNET, gpu="h100", dims={"batch": 8}, runtime="compiled"),
        analyze(RESNET, gpu="h100", dims={"batch": 16}, runtime="compiled"),
    ]
    assert document["totals"]["latency_ms"] == pytest.approx(base.totals.latency_ms, rel=1e-5)
    assert [found["changes"] for found in document["what_if"]] == changes
    for found, report in zip(document["what_if"], expected, strict=True):
        assert found["latency_ms"] == pytest.approx(report.totals.latency_ms, rel=1e-5)
        assert found["latency_ratio"] == pytest.approx(report.totals.latency_ms / base.totals.latency_ms, rel=1e-5)
        assert found["memory_bytes"] == report.totals.memory.peak_bytes
    assert document["what_if"][0]["latency_ratio"] < 1


def test_a_set_change_is_the_base(capsys: pytest.CaptureFixture[str]) -> None:
    change = ["--set", "gpu.mem_bw_gbs=4800,runtime=compiled"]
    assert main([*GOOD, *change, "--what-if", "gpu.mem_bw_gbs=2000", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gpu"]["memory_bytes_per_s"] == 4.8e12
    assert document["gpu"]["name"] == "h100-sxm with memory_bandwidth_gb_s=4800"
    assert document["settings"]["runtime"] == "compiled"
    (variant,) = document["what_if"]
    slow = changed_gpu(H100, {"mem_bw_gbs": 2000}, "")
    report = analyze(RESNET, gpu=slow, dims={"batch": 8}, runtime="compiled")
    assert variant["latency_ms"] == pytest.approx(report.totals.latency_ms, rel=1e-5)


@pytest.mark.parametrize("form", ["csv", "html", "trace"])
def test_a_set_change_is_the_base_of_every_format(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GOOD, "--set", "runtime=compiled", "--format", form]) == 0
    changed = capsys.readouterr().out
    assert main([*GOOD, "--runtime", "compiled", "--format", form]) == 0
    assert changed == capsys.readouterr().out


@pytest.mark.parametrize("form", ["rich", "markdown"])
def test_shown_beside_the_base(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GOOD, "--what-if", "gpu.mem_bw_gbs=4800", "--format", form]) == 0
    text = capsys.readouterr().out
    lines = [line.strip("| ") for line in text.splitlines()]
    (base,) = (line for line in lines if line.startswith("as it is"))
    (variant,) = (line for line in lines if line.replace("\\", "").startswith("gpu.mem_bw_gbs=4800"))
    assert re.search(r"-\d+\.\d %", variant)
    assert "%" not in base
    assert main([*GOOD, "--format", form]) == 0
    assert "as it is" not in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 100])
def test_a_change_is_broken_between_changes(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*GOOD, "--what-if", "gpu.memory_bandwidth_gb_s=4800,runtime=compiled,precision=fp16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    begun = [line.split(" ")[0] for line in lines[lines.index("What if") + 2 :][:4]]
    assert begun[1] == "gpu.memory_bandwidth_gb_s=4800,"
    assert begun[2] == "runtime=compiled,precision=fp16"


def test_json_is_documented_key_by_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GOOD, "--what-if", "runtime=tensorrt,precision=int8", "--format", "json"]) == 0
    document = {"what_if": json.loads(capsys.readouterr().out)["what_if"]}
    text = SCHEMA.read_text("utf-8").partition("`neusight-onnx analyze MODEL --what-if")[2]
    documented = documented_keys(text.partition("\n`neusight-onnx")[0])
    maps = {path for path, kind in documented.items() if kind.startswith("map")}
    assert keys_of(document, "", maps) == set(documented)


def test_switches_are_named_as_options_and_configuration_name_them(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["runtime=eager,channels-last=true", "runtime=eager,channels_last=on"]
    assert main([*GOOD, *(part for change in changes for part in ("--what-if", change)), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["what_if"]
    assert [row.pop("changes") for row in found] == changes
    assert found[0] == found[1]


def test_a_run_that_the_host_holds_up_is_bound_by_it_in_base_and_change(capsys: pytest.CaptureFixture[str]) -> None:
    bert = ["analyze", str(ROOT / "examples" / "bert_base.onnx"), "--gpu", "h100", "--dim", "batch=8,sequence=128"]
    assert main([*bert, "--top", "0", "--what-if", "gpu.mem_bw_gbs=4800", "--format", "markdown"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if re.match(r"\| (as it is|gpu)", line)]
    assert [row.strip("| ").rsplit("|", 1)[1].strip() for row in rows] == ["host", "host"]


MISUSE = {
    "precision without units": (["--what-if", "precision=fp4"], ["fp4 on h100-sxm", "no FP4 units"]),
    "precision by two": (
        ["--set", "precision=fp16", "--precision", "fp32"],
        ["--set and --precision fp32 contradict each other; keep one of them"],
    ),
    "runtime by two": (
        ["--set", "runtime=tensorrt", "--runtime", "eager"],
        ["--set and --runtime eager contradict each other; keep one of them"],
    ),
    "graph by two": (
        ["--set", "cuda_graph=off", "--cuda-graph"],
        ["--set and --cuda-graph contradict each other; keep one of them"],
    ),
    "order by two": (
        ["--set", "channels_last=off", "--channels-last", "--runtime", "eager"],
        ["--set and --channels-last contradict each other; keep one of them"],
    ),
    "size by two": (["--set", "batch=16"], ["--set and --dim batch 8 contradict each other; keep one of them"]),
    "no such precision": (["--set", "precision=fp33"], ["--set precision=fp33: unknown precision 'fp33'"]),
    "switch": (["--what-if", "cuda_graph=yes"], ["cuda_graph=on", "'yes'"]),
    "unknown runtime": (["--what-if", "runtime=openvino"], ["--what-if runtime=openvino: unknown runtime 'openvino'"]),
    "unknown key": (["--what-if", "speed=2"], ["'speed'", "gpu.KEY"]),
    "unknown figure": (["--what-if", "gpu.mem_bw_gb=2"], ["no key 'mem_bw_gb'", "'mem_bw_gbs' is the nearest"]),
    "a key begun": (["--what-if", "gpu.mem_bw=2"], ["no key 'mem_bw'", "'mem_bw_gbs' is the nearest"]),
    "no value": (["--what-if", "runtime"], ["is no change"]),
    "no number": (["--what-if", "gpu.mem_bw_gbs=much"], ["'much' is no number"]),
    "endless": (["--what-if", "gpu.mem_bw_gbs=inf"], ["is no number"]),
    "impossible": (["--what-if", "gpu.mem_bw_gbs=-1"], ["a number from 5"]),
    "twice, by two names": (["--what-if", "cuda-graph=on,cuda_graph=on"], ["changed twice"]),
    "twice, by two options": (
        ["--set", "gpu.sm_count=54", "--set", "gpu.sm_count=264"],
        ["--set gpu.sm_count=54,gpu.sm_count=264: 'gpu.sm_count' is changed twice; keep one"],
    ),
    "twice, by a short name": (
        ["--set", "gpu.mem_bw_gbs=4000", "--set", "gpu.memory_bandwidth_gb_s=5000"],
        ["'memory_bandwidth_gb_s' is changed twice; keep one"],
    ),
    "twice": (["--what-if", "runtime=eager,runtime=compiled"], ["changed twice"]),
    "no size": (["--what-if", "dim.batch=0"], ["--what-if dim.batch=0: ", "must be positive"]),
    "unknown dim": (["--what-if", "dim.bach=2"], ["bach", "batch"]),
    "size": (["--set", "dim.batch=-2"], ["batch=-2"]),
    "format": (["--what-if", "runtime=compiled", "--format", "csv"], ["--what-if goes with --format rich, json and"]),
    "format of a change": (["--set", "runtime=compiled", "--format", "model-explorer"], ["but model-explorer"]),
}


@pytest.mark.parametrize(("more", "says"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_is_one_line(more: list[str], says: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GOOD, *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for text in says:
        assert text in err


def test_an_unknown_key_is_told_every_key_that_is_taken() -> None:
    with pytest.raises(SpecError, match=r"known are .*memory_bandwidth_gb_s.*mem_bw_gbs.*power_w"):
        changed_gpu(H100, {"zzzzz": 1.0}, "here")
