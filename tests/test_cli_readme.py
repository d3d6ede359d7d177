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
from neusight_onnx.runtime import KNOWN_RUNTIMES, RUNTIMES

README = Path(__file__).parents[1] / "README.md"


def block(name: str) -> str:
    """The text between ``<!-- name -->`` and ``<!-- /name -->`` without its code fence."""
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)```\n<!-- /{name} -->", README.read_text("utf-8"), re.DOTALL)
    assert found is not None, f"the README has no block '{name}'"
    return found[1]


def words(help_text: str) -> list[str]:
    """Help without what differs between releases of typer: line breaks, and the brackets around names and choices."""
    return re.sub(r"[][{}<>]", " ", help_text).split()


@pytest.mark.parametrize("command", ["analyze", "inspect", "check", "compare", "sweep", "diff"])
def test_readme_shows_the_help(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    if os.environ.get("NEUSIGHT_UPDATE_GOLDEN"):
        old = f"<!-- help {command} -->\n```text\n{block(f'help {command}')}```"
        new = f"<!-- help {command} -->\n```text\n{text}```"
        README.write_text(README.read_text("utf-8").replace(old, new), "utf-8")
    assert words(block(f"help {command}")) == words(text)


@pytest.mark.parametrize("name", ["report", "compare", "precision", "sweep", "diff", "what-if", "training"])
def test_readme_shows_a_real_report(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions are deterministic: the block is what the command before it prints, to the last digit.

    Of --what-if it is the table alone, the rest being the report. After new predictors, or a change that moves a
    figure: NEUSIGHT_UPDATE_GOLDEN=1 pytest tests/test_cli_readme.py
    """
    before = README.read_text("utf-8").partition(f"<!-- {name} -->")[0]
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
    if os.environ.get("NEUSIGHT_UPDATE_GOLDEN"):
        old, new = (f"<!-- {name} -->\n```text\n{shown}```" for shown in (block(name), text))
        README.write_text(README.read_text("utf-8").replace(old, new), "utf-8")
    assert block(name) == text, "the README shows another report; NEUSIGHT_UPDATE_GOLDEN=1 renews it"


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
    [("precision", set(FORMATS), set(PRECISIONS) - {"auto"}), ("runtime", set(RUNTIMES), set(KNOWN_RUNTIMES))],
    ids=["precision", "runtime"],
)
def test_readme_says_what_is_supported(row: str, now: set[str], known: set[str]) -> None:
    assert supported(row) == (now, known - now)


def test_options_offer_what_the_library_knows() -> None:
    assert {precision.value for precision in Precision} == set(PRECISIONS)
    assert {runtime.value for runtime in RuntimeName} == set(KNOWN_RUNTIMES)
