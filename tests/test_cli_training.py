"""``--mode training`` on the command line: what it takes, what it refuses, what its reports say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neusight_onnx.cli import main

EXAMPLES = Path(__file__).parents[1] / "examples"
BERT = [str(EXAMPLES / "bert_base.onnx"), "--gpu", "a100", "--dim", "batch=2,sequence=16"]
RESNET = [str(EXAMPLES / "resnet50.onnx"), "--gpu", "a100", "--dim", "batch=2"]
TRAIN = ["--mode", "training"]

REFUSED: dict[str, tuple[list[str], str]] = {
    "an option of training alone": (
        ["analyze", *BERT, "--optimizer", "sgd"],
        "--optimizer is about training; add --mode training",
    ),
    "one of compare": (["compare", *BERT, "--dropout", "0.1"], "--dropout is about training; add --mode training"),
    "one of sweep": (
        ["sweep", *RESNET[:-1], "batch=1,2", "--grad-accumulation", "4"],
        "--grad-accumulation is about training",
    ),
    "an optimizer": (["analyze", *BERT, *TRAIN, "--optimizer", "lion"], "'lion' is not one of"),
    "a rate": (["analyze", *BERT, *TRAIN, "--dropout", "2"], "dropout '2' is no rate"),
    "no runs": (["analyze", *BERT, *TRAIN, "--grad-accumulation", "0"], "give a number from 1"),
    "a pattern of nothing": (["analyze", *BERT, *TRAIN, "--freeze", "decoder*"], "'decoder*' matches no parameter"),
    "everything frozen": (["analyze", *BERT, *TRAIN, "--freeze", "*"], "there is nothing to train: --freeze leaves"),
    "another runtime": (
        ["analyze", *BERT, *TRAIN, "--runtime", "tensorrt"],
        "training has no model in runtime 'tensorrt'; supported now: --runtime compiled, eager",
    ),
    "quantised": (["analyze", *BERT, *TRAIN, "--precision", "int8"], "training in int8 has no model"),
    "quantised, without units": (
        ["analyze", RESNET[0], "--gpu", "t4", *TRAIN, "--precision", "fp8"],
        "training in fp8 has no model",
    ),
    "copies": (["analyze", *BERT, *TRAIN, "--include-io"], "counted at inference only"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_in_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def report(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main([*arguments, "--format", "json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_phases_add_up_and_training_takes_longer(capsys: pytest.CaptureFixture[str]) -> None:
    inference = report(["analyze", *BERT], capsys)["totals"]
    found = report(["analyze", *BERT, *TRAIN], capsys)
    totals = found["totals"]
    assert found["settings"]["mode"] == "training"
    assert sum(totals["phases"].values()) == pytest.approx(totals["latency_ms"], rel=1e-4)
    assert totals["flops"] > 2.5 * inference["flops"]
    assert {row["phase"] for row in found["kernels"]} == {"forward", "backward", "optimizer"}
    training = found["training"]
    assert training["gradient_bytes"] == 4 * training["trained_parameter_count"]
    assert training["optimizer_state_bytes"] == 8 * training["trained_parameter_count"]
    assert training["saved_bytes"] == sum(tensor["byte_count"] for tensor in training["saved"])
    memory = totals["memory"]
    parts = ("weight", "activation", "gradient", "optimizer", "workspace", "allocator", "context")
    assert sum(memory[f"{part}_bytes"] for part in parts) == memory["peak_bytes"]


def test_accumulated_runs_count_all_samples(capsys: pytest.CaptureFixture[str]) -> None:
    totals = report(["analyze", *RESNET, *TRAIN, "--grad-accumulation", "4"], capsys)["totals"]
    assert totals["throughput_per_s"] == pytest.approx(4 * 2 / totals["latency_ms"] * 1e3, rel=1e-4)


def test_a_terminal_report_tells_the_phases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", *RESNET, *TRAIN]) == 0
    out = capsys.readouterr().out
    assert "Phases" in out
    assert "forward" in out
    assert "for the gradients of" in out


@pytest.mark.parametrize("layout", ["markdown", "html", "csv", "trace"])
def test_every_format_has_the_backward_kernels(layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", *RESNET, *TRAIN, "--format", layout]) == 0
    assert "backward" in capsys.readouterr().out


def test_check_judges_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Latency between that of a run and that of a step: the run passes, the step doesn't; a file says the same."""
    run = report(["analyze", *RESNET], capsys)["totals"]["latency_high_ms"]
    limit = f"{2 * run:.3f}ms"
    allow = ["--allow", "NSX201=not needed"]
    assert main(["check", *RESNET, *allow, "--max-latency", limit]) == 0
    assert main(["check", *RESNET, *allow, "--max-latency", limit, *TRAIN]) == 1
    target = (
        f"model = {str(EXAMPLES / 'resnet50.onnx')!r}\ngpu = 'a100'\ndims = {{ batch = 2 }}\nmax-latency = '{limit}'"
    )
    for key, code in (("", 0), ("training = true", 1), ("training = { optimizer = 'sgd', dropout = 'off' }", 1)):
        file = tmp_path / "neusight.toml"
        file.write_text(f"[[target]]\n{target}\n{key}\nallow = {{ NSX201 = 'not needed' }}\n", "utf-8")
        assert main(["check", "--config", str(file)]) == code
    capsys.readouterr()


CONFIGURED = {
    "training = 'yes'": "'training' is 'yes'; write true, or a table",
    "training = { optimiser = 'sgd' }": "training: unknown key 'optimiser': 'optimizer' is the nearest",
    "training = { optimizer = 'lion' }": "training: optimizer 'lion' is not known",
    "training = { dropout = true }": "training: 'dropout' is true",
    "training = { grad-accumulation = 1.5 }": "'grad-accumulation' is 1.5",
    "training = { freeze = 3 }": "'freeze' is 3; give a pattern",
}


@pytest.mark.parametrize(("line", "message"), CONFIGURED.items(), ids=CONFIGURED)
def test_a_configured_step_is_checked(
    line: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "neusight.toml"
    file.write_text(f"[[target]]\nmodel = 'm.onnx'\ngpu = 'a100'\n{line}\n", "utf-8")
    assert main(["check", "--config", str(file)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_several_steps_beside_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """The figures of compare and sweep are those of analyze."""
    whole = report(["analyze", *RESNET, *TRAIN, "--optimizer", "sgd"], capsys)["totals"]["latency_ms"]
    cases = report(["compare", *RESNET, "--gpu", "t4", *TRAIN, "--optimizer", "sgd"], capsys)["cases"]
    assert whole in [case["latency_ms"] for case in cases]
    points = report(["sweep", *RESNET[:-1], "batch=2,4", *TRAIN, "--optimizer", "sgd"], capsys)["points"]
    assert points[0]["latency_ms"] == whole


def test_a_step_and_a_run_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, more in (("run", []), ("step", TRAIN)):
        assert main(["analyze", *RESNET, *more, "--format", "json", "-o", str(tmp_path / f"{name}.json")]) == 0
    assert main(["diff", str(tmp_path / "run.json"), str(tmp_path / "step.json")]) == 0
    assert "the mode differs: inference, now training" in capsys.readouterr().out
