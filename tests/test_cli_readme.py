"""What the README says of the command line is what the command line says of itself."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
import typer

from neusight_onnx.cli import main
from neusight_onnx.cli.app import command_line
from neusight_onnx.cli.options import Precision, RuntimeName
from neusight_onnx.precision import FORMATS, PRECISIONS
from neusight_onnx.predictor import list_predictors
from neusight_onnx.runtime import KNOWN_RUNTIMES

README = Path(__file__).parents[1] / "README.md"
OPTIONS = README.parent / "docs" / "options.md"
TRAINING = README.parent / "docs" / "training.md"


def block(name: str, page: Path = README) -> str:
    """The text between ``<!-- name -->`` and ``<!-- /name -->`` of a page without its code fence."""
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)```\n<!-- /{name} -->", page.read_text("utf-8"), re.DOTALL)
    assert found is not None, f"{page.name} has no block '{name}'"
    return found[1]


def renew(name: str, page: Path, text: str) -> None:
    """Put ``text`` into the block, where goldens are to be renewed."""
    if os.environ.get("NEUSIGHT_UPDATE_GOLDEN"):
        old, new = (f"<!-- {name} -->\n```text\n{shown}```" for shown in (block(name, page), text))
        page.write_text(page.read_text("utf-8").replace(old, new), "utf-8")


def words(help_text: str) -> list[str]:
    """Help without what differs between releases of typer: line breaks, and the brackets around names and choices."""
    return re.sub(r"[][{}<>]", " ", help_text).split()


def commands() -> list[str]:
    """Every command that takes options of its own, as it is typed; "predictors list" is one."""
    found = []
    group = typer.main.get_command(command_line())
    for name, command in group.commands.items():  # type: ignore[attr-defined]  # of a group, which typer calls a command
        found += [f"{name} {inner}" for inner in getattr(command, "commands", {})] or [name]
    return found


@pytest.mark.parametrize("command", commands())
def test_options_shows_the_help(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    renew(f"help {command}", OPTIONS, text)
    assert words(block(f"help {command}", OPTIONS)) == words(text)


SHOWN = {**dict.fromkeys(["report", "compare", "precision", "sweep", "diff", "what-if"], README), "training": TRAINING}


@pytest.mark.parametrize(("name", "page"), SHOWN.items())
def test_pages_show_a_real_report(
    name: str, page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions are deterministic: the block is what the command before it prints, to the last digit.

    Of --what-if it is the table alone, the rest being the report. After new predictors, or a change that moves a
    figure: NEUSIGHT_UPDATE_GOLDEN=1 pytest tests/test_cli_readme.py
    """
    before = page.read_text("utf-8").partition(f"<!-- {name} -->")[0]
    commands = re.findall(
        r"^neusight-onnx (.*)$", before.rpartition("\n```\n\n")[0].rpartition("```\n")[2], re.MULTILINE
    )
    assert commands
    (tmp_path / "examples").symlink_to(README.parent / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    for command in commands:
        assert main(shlex.split(command)) == 0
    text = capsys.readouterr().out
    if name == "what-if":
        text = text.partition("\nWhat if\n")[2].partition("\n\n")[0] + "\n"
    renew(name, page, text)
    assert block(name, page) == text, f"{page.name} shows another report; NEUSIGHT_UPDATE_GOLDEN=1 renews it"


AMD = "convolutions, fp16 and bf16, AMD"
HELD_OUT = {
    "README.md": {
        "matrix products": "gemm_fp32",
        "convolutions": "conv_fp32",
        "elementwise": "elementwise_fp32",
        "softmax": "softmax_fp32",
        "normalization": "normalization_fp32",
        "matrix products, bf16": "gemm_bf16",
        "matrix products, fp8": "gemm_fp8",
        "matrix products, int8": "gemm_int8",
        "fused attention, bf16": "attention_bf16",
        "fused attention, fp8": "attention_fp8",
        "matrix products, 16 and 8 bits, AMD": "gemm_matrix_amd",
        "convolutions, fp16: forward and gradient of the input": "conv_matrix",
        "convolutions, fp16: gradient of the weight": "conv_matrix_weight",
        "convolutions, fp32: gradient of the input": "conv_fp32_data",
        "convolutions, fp32: gradient of the weight": "conv_fp32_weight",
        f"{AMD}: forward and gradient of the input": "conv_matrix_amd",
        f"{AMD}: gradient of the weight": "conv_matrix_weight_amd",
        "convolutions, fp32, AMD: forward and gradient of the input": "conv_fp32_amd",
        "convolutions, fp32, AMD: gradient of the weight": "conv_fp32_weight_amd",
    },
    "docs/kernel-times.md": {f"`{name}`": name for name in ("attention_bf16", "attention_bf16_kv8", "attention_fp8")},
}
"""Page -> first cell of a row whose last two are held-out errors -> the predictor that they are of."""


@pytest.mark.parametrize(
    ("page", "label", "name"), [(page, *row) for page, rows in HELD_OUT.items() for row in rows.items()]
)
def test_pages_show_the_errors_of_the_shipped_predictors(page: str, label: str, name: str) -> None:
    """What ``predictors list`` says; NEUSIGHT_UPDATE_GOLDEN=1 renews the pages after a training."""
    file = README.parent / page
    predictor = next(found for found in list_predictors() if found.name == name)
    errors = (predictor.leave_one_gpu_out_percent, predictor.new_shapes_percent)
    cells = " | ".join(f"{error:.1f} %" for error in errors)
    row = re.compile(rf"(?m)^(\| {re.escape(label)} \| (?:[^|\n]+ \| )*?)([\d.]+ % \| [\d.]+ %) \|$")
    if os.environ.get("NEUSIGHT_UPDATE_GOLDEN"):
        file.write_text(row.sub(rf"\g<1>{cells} |", file.read_text("utf-8")), "utf-8")
    assert [found[1] for found in row.findall(file.read_text("utf-8"))] == [cells]


@pytest.mark.parametrize("command", ["check", "explain"])
def test_commands_about_checks_run(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(rf"^neusight-onnx ({command} .*?)(  #.*)?$", README.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    monkeypatch.chdir(README.parent)
    assert main(shlex.split(found[1])) == 0
    out, err = capsys.readouterr()
    assert out
    assert err == ""


def commands() -> list[str]:
    """Every command, groups spelled out: "analyze", "predictors list", …"""
    group = typer.main.get_group(command_line())
    found = []
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        found += [f"{name} {each}" for each in inner] if inner else [name]
    return found


@pytest.mark.parametrize("command", commands())
def test_readme_names_every_command_and_each_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(rf"`neusight-onnx {command}|^neusight-onnx {command}|`{command}", README.read_text(), re.MULTILINE)
    assert main([*command.split(), "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"Usage: neusight-onnx {command}")
    assert err == ""


def supported(row: str) -> tuple[set[str], set[str]]:
    """What the README's table says of ``row``: the words in backticks now, and not yet."""
    line = next(line for line in README.read_text("utf-8").splitlines() if line.startswith(f"| {row} |"))
    now, later = line.strip("|").split("|")[1:]
    return set(re.findall(r"`([\w-]+)`", now)), set(re.findall(r"`([\w-]+)`", later))


@pytest.mark.parametrize(
    ("row", "now", "known"),
    [("precision", set(FORMATS), set(PRECISIONS) - {"auto"}), ("runtime", set(KNOWN_RUNTIMES), set(KNOWN_RUNTIMES))],
    ids=["precision", "runtime"],
)
def test_readme_says_what_is_supported(row: str, now: set[str], known: set[str]) -> None:
    assert supported(row) == (now, known - now)


def test_options_offer_what_the_library_knows() -> None:
    assert {precision.value for precision in Precision} == set(PRECISIONS)
    assert {runtime.value for runtime in RuntimeName} == set(KNOWN_RUNTIMES)
