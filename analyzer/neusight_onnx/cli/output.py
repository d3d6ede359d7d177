"""Where reports go: a file, written whole or not at all, or standard output."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

import typer

from neusight_onnx.errors import OutputError

STANDARD_OUTPUT = Path("-")

_BROKEN_PIPE_EXIT_CODE = 141
"""128 + SIGPIPE: what a shell reports of a program whose reader went away."""


def check_target(target: Path | None, *inputs: tuple[Path, str]) -> None:
    """Refuses, before any work is done, a place that can't be written or that is one of the ``inputs``; OutputError.

    An input is a path and what it is in words; other names of the same file (links of either kind) count, too.
    """
    if target is None or target == STANDARD_OUTPUT:
        return
    for path, what in inputs:
        if _is_same(target, path):
            raise OutputError(f"-o is {what} ({path}); name another file")
    if not target.is_absolute() and not _has_working_directory():
        raise OutputError(f"can't write {target}: the working directory is gone; give an absolute path to -o")
    try:
        target.lstat()
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise OutputError(f"can't write {target}: {target.parent} is not a folder; give another place to -o") from None
    except (OSError, ValueError) as error:
        raise OutputError(f"can't write {target}: {_reason(error)}; give another place to -o") from error
    if os.path.isdir(target):
        raise OutputError(f"{target} is a folder; give a file's name to -o, such as {target / 'report.json'}")
    folder = target.parent
    if not os.path.isdir(folder):
        raise OutputError(f"can't write {target}: {folder} does not exist; create it first or give another place to -o")
    if os.path.exists(target) and not _may_write(target):
        raise OutputError(f"can't write {target}: it is read-only; give another place to -o")
    if not _may_write(folder) and not _is_special(target):
        raise OutputError(f"can't write {target}: no permission to write in {folder}; give another place to -o")


def emit(text: str, target: Path | None) -> None:
    """Writes ``text`` to ``target`` (UTF-8), or to standard output if that is None or "-"; OutputError.

    A file is written under another name beside the target and then moved over it: readers see the old content or
    the new one, and a failure leaves nothing behind.
    """
    if target is None or target == STANDARD_OUTPUT:
        _emit_to_standard_output(text)
        return
    check_target(target)
    try:
        if _is_special(target):
            target.write_text(text, encoding="utf-8", errors="backslashreplace")
        else:
            data = text.encode("utf-8", "backslashreplace")
            _replace(Path(os.path.realpath(target)), lambda file: _write_all(file, data))
    except OSError as error:
        raise OutputError(f"can't write {target}: {_reason(error)}; give another place to -o") from error


def emit_file(write: Callable[[BinaryIO], None], target: Path) -> None:
    """Has ``write`` fill a file beside ``target``, and moves it over that: whole or not at all; OutputError."""
    check_target(target)
    try:
        if _is_special(target):
            with target.open("wb") as file:
                write(file)
        else:
            _replace(Path(os.path.realpath(target)), write)
    except OSError as error:
        raise OutputError(f"can't write {target}: {_reason(error)}; give another place to -o") from error


def standard_output_is_plain() -> bool:
    """True if standard output can show ASCII only."""
    return "utf" not in (getattr(sys.stdout, "encoding", None) or "").lower()


def _is_same(target: Path, other: Path) -> bool:
    """Whether both name one file; where one of them does not exist, whether they would."""
    try:
        return target.samefile(other)
    except (OSError, ValueError):
        pass
    try:
        return os.path.realpath(target) == os.path.realpath(other)
    except (OSError, ValueError):  # a name with a zero byte; a path from a working directory that is gone
        return False


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _may_write(place: Path) -> bool:
    return os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _is_special(target: Path) -> bool:
    """A device or pipe (/dev/stdout, a FIFO): it is written to, never replaced."""
    return os.path.exists(target) and not os.path.isfile(target)


def _write_all(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _replace(target: Path, write: Callable[[BinaryIO], None]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(_mode_for(target))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode_for(target: Path) -> int:
    """The mode of the file that is replaced; else what ``open`` would give a new file (mkstemp gives 0600)."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _emit_to_standard_output(text: str) -> None:
    stream = sys.stdout
    if stream is None:
        raise OutputError("standard output is closed; give a file to -o")
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _discard_standard_output()
        raise typer.Exit(_BROKEN_PIPE_EXIT_CODE) from None
    except OSError as error:
        _discard_standard_output()
        raise OutputError(f"can't write to standard output: {_reason(error)}; give a file to -o") from error


def _discard_standard_output() -> None:
    """Points standard output at nothing, so that the interpreter's last flush doesn't fail a second time."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reason(error: OSError | ValueError) -> str:
    # a ValueError is what Python says of names that no system call can take, such as one with a zero byte
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number is not None else str(error)
