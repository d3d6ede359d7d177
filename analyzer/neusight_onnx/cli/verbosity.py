"""``-q`` and ``-v``, which every command takes: how much is said on standard error beside errors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, cast

import typer
from typer.core import TyperOption

from neusight_onnx.report.quantities import duration, printable

if TYPE_CHECKING:
    from neusight_onnx.graph.model import Notice


class Verbosity(Enum):
    """QUIET: nothing but errors. NORMAL: a sign of life on a terminal, and what a CSV's rows lack.
    VERBOSE: what was done, and how long it took, too."""

    QUIET = "quiet"
    NORMAL = "normal"
    VERBOSE = "verbose"


_ASKED: ContextVar[Verbosity] = ContextVar("neusight_onnx_verbosity", default=Verbosity.NORMAL)
"""That of the command that runs; each run of the command line sets it anew."""


class _Command(Protocol):
    params: list[object]


def verbosity() -> Verbosity:
    return _ASKED.get()


@contextmanager
def own_verbosity() -> Iterator[None]:
    """A command line of its own: what an earlier one in the same process asked for is not its business."""
    token = _ASKED.set(Verbosity.NORMAL)
    try:
        yield
    finally:
        _ASKED.reset(token)


def add_verbosity(command: object) -> None:
    """Gives ``-q`` and ``-v`` to a command of the command line, or to all in a group."""
    inner = cast("Mapping[str, object] | None", getattr(command, "commands", None))
    if inner is not None:
        for each in inner.values():
            add_verbosity(each)
        return
    cast("_Command", command).params += [
        _flag(["-q", "--quiet"], "Say nothing on standard error but errors.", Verbosity.QUIET),
        _flag(["-v", "--verbose"], "Say on standard error what was done and how long it took.", Verbosity.VERBOSE),
    ]


@contextmanager
def timed(message: str) -> Iterator[None]:
    """Says ``message`` and how long the block took, if that was asked for."""
    if verbosity() is not Verbosity.VERBOSE or sys.stderr is None:
        yield
        return
    start = perf_counter()
    yield
    print(f"{printable(message)}: {duration((perf_counter() - start) * 1e6, plain=True)}", file=sys.stderr)


def say(lines: Iterable[str]) -> None:
    """Writes lines about what was done, if that was asked for."""
    if verbosity() is Verbosity.VERBOSE and sys.stderr is not None:
        for line in lines:
            print(printable(line), file=sys.stderr)


_LEFT_OUT = frozenset({"partial", "precision", "refused", "runtime"})


def warn_of_gaps(notices: Iterable[Notice]) -> None:
    """The warnings of a report that tell what its rows lack, for a format without room for them; ``-q`` keeps them
    back."""
    if verbosity() is Verbosity.QUIET or sys.stderr is None:
        return
    for notice in notices:
        if notice.code in _LEFT_OUT:
            print(f"warning: {printable(notice.message)}", file=sys.stderr)


def _flag(names: list[str], text: str, meaning: Verbosity) -> TyperOption:
    def ask(_context: object, _parameter: object, wanted: bool) -> None:
        if not wanted:
            return
        if _ASKED.get() not in (Verbosity.NORMAL, meaning):
            raise typer.BadParameter("-q and -v contradict each other")
        _ASKED.set(meaning)

    return TyperOption(param_decls=names, is_flag=True, default=False, expose_value=False, callback=ask, help=text)
