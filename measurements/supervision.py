"""Keeps a run going: measuring happens in a process of its own, which is started anew where it ends too early.

A kernel may leave the GPU unusable for its process, end the process, or never come back. What was measured is in the
file by then, and what was being measured beside it (``session.begin``), so that the next process goes on behind it. No
torch here.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from measurements.session import LOST, begun_file

START_S = 180.0
"""A process that has not begun a case by then hangs: torch and CUDA take 5 to 60 s to start."""
STALL_S = 60.0
"""A case that lasts longer hangs: cuDNN tries its algorithms of a large convolution in a few seconds."""
GRACE_S = 20.0
"""What a run may take beyond its time: the case that has begun."""
LEAST_S = 10.0
"""With less time left no process is started again."""
FRUITLESS = 2
"""Processes in a row that end early without a row of their own until it is given up."""
POLL_S = 0.2


class Running(Protocol):
    """A process, as ``subprocess.Popen`` is one."""

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


def measuring(arguments: Sequence[str]) -> Callable[[float], Running]:
    """Starts a process of this program that measures by itself, with the minutes that it is given."""

    def start(seconds: float) -> Running:
        own = [sys.executable, "-m", "measurements", *arguments, "--alone", "--minutes", f"{seconds / 60:.4f}"]
        return subprocess.Popen(own)

    return start


def supervise(
    start: Callable[[float], Running],
    path: Path,
    *,
    seconds: float,
    say: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Runs processes of ``start`` until one has ended by itself or the time is up; the exit code of it all.

    0: as planned; 1: the time isn't used up, but one process after the other ended early; else a process's own error.
    A process that a signal ended has a negative code.
    """
    begin = clock()
    left, fruitless = seconds, 0
    while True:
        before = _size(path)
        code = _watched(start(left), path, until=begin + seconds + GRACE_S, clock=clock, sleep=sleep)
        if code is not None and code != LOST and code >= 0:
            return code
        left = seconds - (clock() - begin)
        if left < LEAST_S:
            return 0
        fruitless = 0 if _size(path) > before else fruitless + 1
        if fruitless >= FRUITLESS:
            say(f"given up: {FRUITLESS} processes ended early without a row")
            return 1
        say("the process ended early; measuring goes on in another one")


def _watched(
    process: Running, path: Path, *, until: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> int | None:
    """The exit code of a process, None where it had to be ended: it hung, or its time was up."""
    seen, since, patience = _state(path), clock(), START_S
    while True:
        code = process.poll()
        if code is not None:
            return code
        state = _state(path)
        if state != seen:
            seen, since, patience = state, clock(), STALL_S
        if clock() >= until or clock() - since > patience:
            process.kill()
            process.wait()
            return None
        sleep(POLL_S)


def _state(path: Path) -> tuple[int, int]:
    try:
        begun = begun_file(path).stat().st_mtime_ns
    except OSError:
        begun = 0
    return _size(path), begun


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
