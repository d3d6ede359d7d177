"""Which format a report has: the one that was asked for, else what the name of its file says."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TypeVar

_Format = TypeVar("_Format", bound=StrEnum)

_OF_SUFFIX = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".sarif": "sarif",
    ".xml": "junit",
}
DEFAULT_FORMAT = "rich, or what -o's suffix says"


def format_for(asked: _Format | None, target: Path | None, formats: type[_Format]) -> _Format:
    """``asked``, else the one of ``formats`` that the suffix of ``target`` stands for ("x.csv": CSV, where the
    command writes that), else "rich"."""
    if asked is not None:
        return asked
    named = None if target is None else _OF_SUFFIX.get(target.suffix.lower())
    return next((each for each in formats if each.value == named), formats("rich"))
