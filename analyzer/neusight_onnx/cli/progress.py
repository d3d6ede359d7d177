"""A sign of life on long work: only on a terminal, only on standard error, gone when the work is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from neusight_onnx.cli.verbosity import Verbosity, timed, verbosity
from neusight_onnx.report.quantities import printable

_PATIENCE_S = 0.5
"""Shorter work shows nothing: a flash would only disturb."""


def wants_sequences() -> bool:
    """Whether the user's terminal should get escape sequences: colours, or a cursor that moves."""
    # https://no-color.org: the variable's presence counts, unless it is empty
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@contextmanager
def working(message: str) -> Iterator[None]:
    """Shows ``message`` with a spinner while the block runs, if it runs longer than half a second (not with ``-q``).

    With ``-v`` a line says afterwards how long it took.

    A spinner is drawn with sequences that move the cursor: whoever wants none of those (NO_COLOR, TERM=dumb) gets none.
    """
    quiet = verbosity() is Verbosity.QUIET
    if quiet or sys.stderr is None or not sys.stderr.isatty() or not wants_sequences():
        with timed(message):
            yield
        return
    done = Event()
    thread = Thread(target=_spin, args=(printable(message), done), daemon=True)
    thread.start()
    with timed(message):
        try:
            yield
        finally:
            done.set()
            thread.join()


def _spin(message: str, done: Event) -> None:
    if done.wait(_PATIENCE_S):
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(message), spinner="dots"):
        done.wait()
