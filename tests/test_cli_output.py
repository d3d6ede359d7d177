"""Where output goes: files written whole or not at all, standard output that ends early, terminals and pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import stat
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from neusight_onnx import __version__
from neusight_onnx.cli import main
from neusight_onnx.cli.output import check_target, emit
from neusight_onnx.errors import OutputError

RESNET = str(Path(__file__).parents[1] / "examples" / "resnet50.onnx")


@pytest.fixture
def umask_027() -> Iterator[None]:
    old = os.umask(0o027)
    yield
    os.umask(old)


def test_a_new_file_has_the_mode_that_open_would_give(tmp_path: Path, umask_027: None) -> None:
    emit("new\n", tmp_path / "report.txt")
    assert (tmp_path / "report.txt").read_text() == "new\n"
    assert stat.S_IMODE((tmp_path / "report.txt").stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["report.txt"]


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old, and longer than the new one\n")
    target.chmod(0o604)
    emit("new\n", target)
    assert target.read_text() == "new\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old\n")
    (tmp_path / "link.txt").symlink_to("real.txt")
    emit("new\n", tmp_path / "link.txt")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new\n"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    emit("through\n", pipe)
    reader.join(10)
    assert read == ["through\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "^C"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old\n")

    def fail(descriptor: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    expected = OutputError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        emit("new\n", target)
    assert target.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [target]


def test_text_that_utf8_cannot_hold_is_escaped(tmp_path: Path) -> None:
    emit("lone \udc80 surrogate\n", tmp_path / "report.txt")
    assert (tmp_path / "report.txt").read_text() == "lone \\udc80 surrogate\n"


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="embedded null"):
        check_target(tmp_path / "a\0b")


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    check_target(Path("-"))
    emit("text\n", Path("-"))
    assert capsys.readouterr().out == "text\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"neusight-onnx {__version__}\n"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m neusight_onnx`` through a shell, so that pipes and redirections are real ones."""
    line = " ".join((sys.executable, "-m", "neusight_onnx", *command))
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
    )


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        pytest.param(("gpus", "--format", "json", "|", "head", "-c1"), {0, 141}, "", id="reader goes away"),
        pytest.param(
            ("gpus", ">/dev/full"),
            {2},
            "error: can't write to standard output: no space left on device; give a file to -o\n",
            id="disk full",
        ),
        pytest.param(("gpus", ">&-"), {2}, "error: standard output is closed; give a file to -o\n", id="closed"),
        pytest.param(("gpus", "a1000x", "2>&-"), {2}, "", id="error output closed"),
    ],
)
def test_standard_output_that_fails(command: tuple[str, ...], code: set[int], error: str) -> None:
    result = run(*command)
    assert result.returncode in code
    assert result.stderr == error


def test_piped_output_has_no_colour_and_no_spinner() -> None:
    result = run("gpus", "a100", FORCE_COLOR="")
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_an_ascii_locale_gets_ascii() -> None:
    result = run("gpus", "a100", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert result.stdout.isascii()
    assert "Sources\n  - " in result.stdout


@pytest.mark.parametrize("arguments", [[], ["predictors"]], ids=["program", "group"])
def test_without_a_command_there_is_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("Usage: neusight-onnx")


def test_interrupt_is_quiet_and_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> tuple[()]:
        raise KeyboardInterrupt

    monkeypatch.setattr("neusight_onnx.gpu.available_gpus", interrupt)
    assert main(["gpus"]) == 130
    assert capsys.readouterr() == ("", "")


def on_a_terminal(*command: str, stream: str, **environment: str) -> str:
    """What ``command`` writes to ``stream`` if that is a terminal of 100 columns; the other one is a pipe."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    ends = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: theirs}
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    with subprocess.Popen(
        command, stdout=ends["stdout"], stderr=ends["stderr"], env={**clean, "TERM": "xterm", **environment}
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # Linux says EIO when the last writer has closed the terminal
                break
            if not chunk:
                break
            written += chunk
        process.communicate(timeout=60)
    os.close(ours)
    return written.decode()


def test_a_terminal_gets_colour_unless_it_is_unwanted() -> None:
    command = (sys.executable, "-m", "neusight_onnx", "gpus", "a100")
    assert "\x1b[1m" in on_a_terminal(*command, stream="stdout")
    assert "\x1b" not in on_a_terminal(*command, stream="stdout", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(*command, stream="stdout", TERM="dumb")


@pytest.mark.parametrize(
    ("seconds", "environment", "shows"),
    [
        pytest.param(0.0, {}, False, id="short work"),
        pytest.param(1.5, {}, True, id="long work"),
        pytest.param(1.5, {"NO_COLOR": "1"}, False, id="no sequences wanted"),
        pytest.param(1.5, {"TERM": "dumb"}, False, id="no sequences understood"),
    ],
)
def test_only_long_work_shows_a_sign_of_life(seconds: float, environment: dict[str, str], shows: bool) -> None:
    program = (
        "import time; from neusight_onnx.cli.progress import working\n"
        f"with working('analysing m.onnx'): time.sleep({seconds})"
    )
    written = on_a_terminal(sys.executable, "-c", program, stream="stderr", **environment)
    assert ("analysing m.onnx" in written) is shows
    assert ("\x1b" in written) is shows


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        pytest.param(["--help"], {"numpy", "onnx", "onnxruntime", "rich.console", "pydantic"}, id="help"),
        pytest.param(["gpus", "a100"], {"numpy", "onnx", "onnxruntime", "pydantic"}, id="gpus"),
        pytest.param(["predictors", "list"], {"onnx", "onnxruntime", "scipy", "lightgbm", "pyarrow"}, id="predictors"),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], absent: set[str]) -> None:
    program = (
        "import sys; from neusight_onnx.cli import main\n"
        f"assert main({arguments!r}) == 0; print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not absent & set(result.stderr.split())


@pytest.mark.parametrize(
    ("command", "name", "begins"),
    [
        ("analyze", "r.json", "{"),
        ("analyze", "r.CSV", "id,phase,"),
        ("analyze", "r.md", "#"),
        ("analyze", "r.html", "<!doctype html>"),
        ("analyze", "r.txt", "resnet50.onnx on"),
        ("compare", "r.csv", "gpu,gpu_model,precision,"),
        ("sweep", "r.csv", "gpu,precision,"),
        ("check", "r.xml", "<?xml"),
        ("check", "r.sarif", "{"),
        ("check", "r.txt", "failed:"),
        ("inspect", "r.json", "{"),
    ],
)
def test_a_report_has_the_format_that_its_files_name_says(command: str, name: str, begins: str, tmp_path: Path) -> None:
    """Where --format isn't given, and the command writes that; a file "r.csv" with a report for a terminal in it would
    be found out by the program that reads it."""
    target = tmp_path / name
    options = [] if command == "inspect" else ["--gpu", "t4"]
    options += ["--batch", "1,2"] if command == "sweep" else []
    assert main([command, RESNET, *options, "-o", str(target)]) in (0, 1)
    assert target.read_text("utf-8").lower().startswith(begins.lower())
    assert main([command, RESNET, *options, "--format", "rich", "-o", str(target)]) in (0, 1)
    assert not target.read_text("utf-8").startswith(("{", "<", "id,", "gpu,"))
