"""Releases of runtimes: what one did not do yet, or did otherwise, of what its description today says.

:mod:`neusight_onnx.runtime` describes each runtime as its newest known release is. A :class:`History` lists what
changed on the way there, newest last, one :class:`Change` for each; a release is today's description with every change
undone that came after it. So what hangs on a release stands in one table of its runtime
(``onnxruntime.py``, ``pytorch.py``, ``tensorrt.py``), and nothing else asks for release numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from neusight_onnx.errors import NotSupportedError

Release: TypeAlias = tuple[int, ...]
"""Numbers of a release, the first ones of it where the last ones don't matter: (1, 13) is the newest 1.13."""

_NUMBERS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a runtime does from release ``since`` on, and what ``before`` it did instead.

    Both are parts of sentences for the report and the documentation, ``source`` says where it is known from.
    ``lacks``: the names of fusion rules (:class:`~neusight_onnx.fusion.patterns.search.Pattern`) that earlier releases
    don't have, ``had``: of those that only they have. ``fields``: what fields of
    :class:`~neusight_onnx.runtime.Runtime` were in them. ``in_training``: it changes steps of training alone.
    ``last``: the release before ``since``, where that isn't one less in its last number.
    """

    since: Release
    what: str
    before: str
    source: str
    lacks: frozenset[str] = frozenset()
    had: frozenset[str] = frozenset()
    fields: Mapping[str, object] = field(default_factory=dict)
    last: Release | None = None
    in_training: bool = False

    @property
    def last_before(self) -> Release:
        """The last release without it."""
        return (*self.since[:-1], self.since[-1] - 1) if self.last is None else self.last

    @property
    def names(self) -> frozenset[str]:
        """What of a :class:`~neusight_onnx.runtime.Runtime` it changes: names of fields and of rules."""
        return self.lacks | self.had | frozenset(self.fields)

    @property
    def only_widens(self) -> bool:
        """Whether it is about what a release takes (GPUs, number formats), and not about what it does with it."""
        taken = {"least_capability", "most_capability", "lacks_formats", "compiled_for", "has_ptx"}
        return not (self.lacks or self.had) and set(self.fields) <= taken

    def is_overruled(self, older: Iterable[Change]) -> bool:
        """Whether nothing is left of what was ``before`` it where changes that came before it are undone, too."""
        overruled = {name for change in older for name in change.fields}
        return not (self.lacks or self.had) and set(self.fields) <= overruled


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The releases of a runtime that something is known of, and what changed from one to the other.

    ``newest`` is the one that the runtime's description is of. ``project``: whose releases they are.
    """

    project: str
    first: Release
    newest: Release
    changes: tuple[Change, ...] = ()

    def after(self, release: Release) -> Iterator[Change]:
        """What came after a release, the newest first: what it did not do yet."""
        later = [change for change in self.changes if is_before(release, change.since)]
        return iter(sorted(later, key=lambda change: change.since, reverse=True))


def is_before(release: Release, since: Release) -> bool:
    """Whether ``release`` came before ``since``. What it leaves out is the newest: (1,) doesn't come before (1, 9)."""
    return release < since[: len(release)]


def release_text(release: Release) -> str:
    return ".".join(map(str, release))


def parse_release(text: str, where: str) -> Release:
    """ "1.9" as (1, 9); ``where`` is what has it, for the message. NotSupportedError for what is no release."""
    if not _NUMBERS.fullmatch(text):
        raise NotSupportedError(f"{where}: {text[:40]!a} is no release; write its numbers, such as @1.9")
    return tuple(map(int, text.split(".")))
