"""What all commands have in common: examples in their help, -q and -v, completion; and the guide to reading reports."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import typer

from models import graph, model, node, value
from neusight_onnx.cli import main
from neusight_onnx.cli.app import command_line

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "read-the-report.md"


def commands() -> list[str]:
    found = []
    for name, command in typer.main.get_group(command_line()).commands.items():
        inner = getattr(command, "commands", None)
        found += [f"{name} {each}" for each in inner] if inner else [name]
    return found


def examples(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main([*command.split(), "--help"]) == 0
    _, found, text = capsys.readouterr().out.partition("Examples:")
    assert found, f"the help of {command} has no examples"
    return re.findall(r"^ *(neusight-onnx .*)$", text, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the examples name: model.onnx with a batch, and a file of targets."""
    nodes = [node("MatMul", "x x2", "a", "mm"), node("Relu", "a", "y", "act")]
    inputs = [value("x", ("batch", 8, 64)), value("x2", ("batch", 64, 8))]
    onnx.save(model(graph(nodes, inputs, [value("y", ("batch", 8, 8))])), tmp_path / "model.onnx")
    (tmp_path / "neusight.toml").write_text('[[target]]\nname = "t"\nmodel = "model.onnx"\ngpu = "t4"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


# the others' examples name files and dims of their own: their own tests run them, or nothing can (measured data)
EXAMPLES_RUN = ("analyze", "annotate", "inspect", "check", "explain", "operators", "gpus", "predictors list")


@pytest.mark.parametrize("command", EXAMPLES_RUN)
def test_the_examples_of_the_help_run(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = examples(command, capsys)
    assert found
    for line in found:
        assert line.startswith(f"neusight-onnx {command}")
        # 1: what check says of this model is its own tests' business
        assert main(shlex.split(line)[1:]) in ((0, 1) if command == "check" else (0,)), line
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", commands())
def test_every_command_takes_q_and_v(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert examples(command, capsys)
    for flag in ("-q", "--quiet", "-v", "--verbose"):
        assert main([*command.split(), flag, "--no-such-option"]) == 2
        assert "no-such-option" in capsys.readouterr().err
    assert main([*command.split(), "-q", "-v"]) == 2
    assert "contradict" in capsys.readouterr().err


WORKING = {
    "analyze": ["--gpu", "t4"],
    "inspect": [],
    "annotate": ["--gpu", "t4", "-o", "out.onnx"],
    "check": ["--gpu", "t4"],
    "compare": ["--gpu", "t4", "--gpu", "a100"],
    "sweep": ["--gpu", "t4", "--dim", "batch=1,2"],
}


@pytest.mark.parametrize("command", WORKING)
def test_v_says_how_long_it_took_and_q_nothing(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [command, "model.onnx", *WORKING[command]]
    code = main([*arguments, "-q"])
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert main([*arguments, "-v"]) == code
    loud = capsys.readouterr()
    assert loud.out == quiet.out
    *before, last = loud.err.splitlines()
    assert re.fullmatch(r"[a-z]+ing model\.onnx.*: [\d.,]+ (us|ms|s)", last)
    assert all(line.startswith(("not merged by '", "assumed of every such run: ")) for line in before)


def test_v_names_the_code_of_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "absent.onnx", "--gpu", "t4"]) == 2
    plain = capsys.readouterr().err
    assert main(["analyze", "absent.onnx", "--gpu", "t4", "-v"]) == 2
    assert capsys.readouterr().err == plain.rstrip("\n") + " [model]\n"


def run(*arguments: str, **environment: str) -> str:
    command = [sys.executable, "-m", "neusight_onnx", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return done.stdout


def test_completion_knows_commands_and_options() -> None:
    variable = {"_NEUSIGHT_ONNX_COMPLETE": "complete_bash"}
    assert run(COMP_WORDS="neusight-onnx an", COMP_CWORD="1", **variable).split() == ["analyze", "annotate"]
    options = run(COMP_WORDS="neusight-onnx analyze --me", COMP_CWORD="2", **variable).split()
    assert options == ["--memory-timeline"]
    for command in ("analyze", "compare", "check", "diff"):
        gpus = run(COMP_WORDS=f"neusight-onnx {command} --gpu h2", COMP_CWORD="3", **variable).split()
        assert gpus == ["h20", "h200-nvl", "h200-sxm"]
        assert run(COMP_WORDS=f"neusight-onnx {command} --bat", COMP_CWORD="2", **variable).split() == ["--batch"]
    listed = run(COMP_WORDS="neusight-onnx compare m.onnx --runtime eager,", COMP_CWORD="4", **variable).split()
    assert listed == ["eager,compiled", "eager,onnxruntime", "eager,tensorrt", "eager,torchscript"]
    listed = run(COMP_WORDS="neusight-onnx compare m.onnx --precision bf", COMP_CWORD="4", **variable).split()
    assert listed == ["bf16", "bf16-model"]
    given_shell = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # not the one that runs the tests
    assert "_NEUSIGHT_ONNX_COMPLETE" in run("--show-completion", "bash", **given_shell)


# --- the guide --------------------------------------------------------------------------------------------------------


def guide_commands() -> list[str]:
    blocks = re.split(r"^```", GUIDE.read_text("utf-8"), flags=re.MULTILINE)[1::2]
    lines = [line for block in blocks if block.startswith("\n") for line in block.splitlines() if line]
    assert all(line.startswith("neusight-onnx ") for line in lines)
    return [line.partition("  #")[0].strip() for line in lines]


@pytest.mark.parametrize("command", guide_commands())
def test_commands_of_the_guide(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(command)[1:]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    if "-o" in arguments:
        assert out == ""
        assert (tmp_path / arguments[arguments.index("-o") + 1]).stat().st_size > 1_000
    else:
        assert "Latency" in out


def test_the_guide_names_every_key_of_a_node(tmp_path: Path) -> None:
    from neusight_onnx.annotation import NodeCost, node_notes

    cost = NodeCost(
        latency_us=1.0,
        low_us=1.0,
        high_us=1.0,
        kernel_classes=("gemm",),
        bound="memory",
        flops=1,
        byte_count=1,
        run_count=2,
        fuses=("b",),
        fused_into="c",
        reason="r",
        calls=2,
    )
    keys = {*node_notes(cost, 1.0), "unsupported"}
    text = GUIDE.read_text("utf-8")
    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []


HTML_MISUSE = {
    "unknown format": (["--format", "pdf"], "'pdf' is not one of"),
    "no folder": (["--format", "html", "-o", "nowhere/r.html"], "does not exist"),
    "a folder": (["--format", "trace", "-o", "."], "is a folder"),
    "the model": (["--format", "model-explorer", "-o", "model.onnx"], "the model itself"),
}


@pytest.mark.parametrize(("arguments", "said"), HTML_MISUSE.values(), ids=HTML_MISUSE)
def test_misuse_is_one_line(arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "model.onnx").read_bytes()
    assert main(["analyze", "model.onnx", "--gpu", "t4", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert (folder / "model.onnx").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param("analyze model.onnx --gpu h100 --gpu a100", "compare", id="analyze on two GPUs"),
        pytest.param("sweep model.onnx --gpu h100 --gpu a100", "compare", id="sweep on two GPUs"),
        pytest.param("annotate model.onnx --gpu h100 --gpu a100 -o out.onnx", "compare", id="annotate for two GPUs"),
        pytest.param("diff model.onnx model.onnx --gpu h100 --gpu a100", "compare", id="diff on two GPUs"),
        *(
            pytest.param(f"analyze model.onnx --gpu t4 --largest-batch --format {form}", "markdown and html", id=form)
            for form in ("csv", "trace", "model-explorer")
        ),
        *(
            pytest.param(f"analyze model.onnx --gpu t4 --memory-timeline --format {form}", "json and html", id=form)
            for form in ("rich", "markdown", "csv", "trace", "model-explorer")
        ),
    ],
)
def test_what_would_be_left_out_in_silence_is_refused(
    arguments: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1
    assert not (folder / "out.onnx").exists()


def test_the_page_shows_the_largest_batch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "model.onnx", "--gpu", "t4", "--largest-batch", "--format", "html"]) == 0
    assert "largest batch that fits: batch=" in capsys.readouterr().out


def test_a_bad_dim_of_the_only_target_names_file_and_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "neusight.toml").write_text('[[target]]\nmodel = "model.onnx"\ngpu = "t4"\ndims = { btch = 2 }\n')
    assert main(["check"]) == 2
    err = capsys.readouterr().err
    assert "neusight.toml: target 'model.onnx on t4': " in err
    assert "btch" in err


@pytest.mark.parametrize(
    ("arguments", "name", "there_are"),
    [
        pytest.param("check model.onnx --gpu t4", "c.html", ".json, .md", id="check, HTML"),
        pytest.param("check model.onnx --gpu t4", "c.csv", ".json, .md", id="check, CSV"),
        pytest.param("compare model.onnx --gpu t4", "c.HTML", ".json, .csv, .md", id="compare, HTML"),
        pytest.param("diff model.onnx model.onnx --gpu t4", "d.csv", ".json", id="diff, CSV"),
        pytest.param("sweep model.onnx --gpu t4 --batch 1,2", "s.xml", ".json, .csv, .md", id="sweep, XML"),
        pytest.param("inspect model.onnx", "i.pdf", ".json", id="what no command writes"),
    ],
)
def test_a_file_of_a_kind_that_a_command_does_not_write_is_refused(
    arguments: str, name: str, there_are: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments.split(), "-o", name]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: -o {name}: this command has no format for .")
    assert there_are in err
    assert err.count("\n") == 1
    assert not (folder / name).exists()


@pytest.mark.parametrize("name", ["c.txt", "c", "model-3.1"])
def test_text_is_what_other_files_have(name: str, folder: Path) -> None:
    assert main(["inspect", "model.onnx", "-o", name]) == 0
    assert "model.onnx" in (folder / name).read_text().splitlines()[0]


def test_the_guide_says_how_bounds_are_decided() -> None:
    from neusight_onnx.predictor.predictions import BUSY_SHARE

    table = GUIDE.read_text("utf-8").partition("## What bounds a kernel")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\w+) \|", table, re.MULTILINE)[1:] == [
        "compute",
        "issue",
        "memory",
        "l2",
        "latency",
        "floor",
        "pcie",
        "cpu",
        "host",
    ]
    assert set(re.findall(r"(\d+) %", table)) == {f"{BUSY_SHARE * 100:.0f}"}


@pytest.mark.parametrize("command", ["analyze", "check", "compare", "sweep", "diff", "annotate", "inspect", "gpus"])
def test_help_fits_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []
