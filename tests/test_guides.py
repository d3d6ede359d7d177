"""Every command, file and line of Python that a guide of docs/ shows is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import onnx
import pytest

from models import decoder
from neusight_onnx.cli import main

ROOT = Path(__file__).parents[1]
GUIDES = ("choose-a-gpu.md", "find-what-is-slow.md", "language-models.md", "precision.md", "training.md")
"""docs/gate-a-pull-request.md has a test of its own, beside those of ``check``."""

FILES = {("choose-a-gpu.md", "toml"): "prices.toml", ("choose-a-gpu.md", "csv"): "prices.csv"}
"""Where the text of a block belongs, by guide and language."""


def blocks(guide: str) -> list[tuple[str, str]]:
    """(language, text) of each block; commands have no language."""
    text = (ROOT / "docs" / guide).read_text("utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found
    return found


def commands() -> list[tuple[str, str, int]]:
    """(guide, command, exit code) of every line in a block without a language."""
    found = []
    for guide in GUIDES:
        for language, text in blocks(guide):
            for line in text.splitlines() if not language else []:
                assert line.startswith("neusight-onnx "), line
                command, _, comment = line.partition("  #")
                code = re.search(r"exit code (\d)", comment)
                found.append((guide, command.strip(), int(code[1]) if code else 0))
    return found


def project(folder: Path, guide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder as the guide describes it: the examples, its files, and a decoder."""
    (folder / "examples").symlink_to(ROOT / "examples")
    for language, text in blocks(guide):
        if (guide, language) in FILES:
            (folder / FILES[guide, language]).write_text(text, "utf-8")
    onnx.save(decoder(), folder / "decoder.onnx")
    monkeypatch.chdir(folder)


@pytest.mark.parametrize(
    ("guide", "command", "code"), commands(), ids=[f"{guide}: {command[14:80]}" for guide, command, _ in commands()]
)
def test_commands(
    guide: str,
    command: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project(tmp_path, guide, monkeypatch)
    for _, before, _ in commands()[: commands().index((guide, command, code))]:
        # a command may read what another one wrote
        if " -o " in before and before.split(" -o ")[1] in command:
            assert main(shlex.split(before)[1:]) == 0
    capsys.readouterr()
    arguments = shlex.split(command)[1:]
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert err == ""
    if "-o" in arguments:
        assert out == ""
        assert (tmp_path / arguments[arguments.index("-o") + 1]).stat().st_size > 300
    else:
        assert out


PRINTED = {
    "choose-a-gpu.md": [f"{gpu} {{'batch': 1, 'sequence': 128}} fits" for gpu in ("l4", "a100-sxm-80gb")],
    "find-what-is-slow.md": ["False ('the runtime differs: onnxruntime, now tensorrt',)"],
    "training.md": ["25,557,032 parameters, 102,228,128 bytes of gradients"],
}
"""What the Python of a guide may print."""


@pytest.mark.parametrize("guide", PRINTED)
def test_python(
    guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path, guide, monkeypatch)
    programs = [text for language, text in blocks(guide) if language == "python"]
    assert programs
    for program in programs:
        exec(compile(program, guide, "exec"), {})
    assert capsys.readouterr().out.strip() in PRINTED[guide]


def test_errors_of_training_are_those_of_the_last_run() -> None:
    """What docs/training.md says of FP32's measured steps is what ``make bench-accuracy`` printed."""
    printed = (ROOT / "benchmarks" / "results" / "accuracy.txt").read_text("utf-8")
    shown = " ".join((ROOT / "docs" / "training.md").read_text("utf-8").split())

    def ours(maker: str) -> list[str]:
        """The mean, the median and the worst."""
        return printed.partition(f"\n{maker}, training (3 rows)\n")[2].split("\n", 1)[0].replace("%", " %").split()

    _, mean, _, _, _, worst, *_ = ours("NVIDIA")
    assert f"on a V100: within {worst} % (three cases, mean {mean} %)" in shown
    assert f"on an MI100 {ours('AMD')[1]} % off on average" in shown
