"""Which format a report has: the one that was asked for, else what the name of its file says."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from neusight_onnx.errors import OutputError, shown

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


_OF_OTHERS = frozenset({".docx", ".jsonl", ".pdf", ".png", ".rst", ".svg", ".tsv", ".xlsx", ".yaml", ".yml"})
"""Suffixes of kinds of files that no command writes. What is not known here (report.new, llama-3.1) is text."""


def format_for(asked: _Format | None, target: Path | None, formats: type[_Format]) -> _Format:
    """``asked``, else the one of ``formats`` that the suffix of ``target`` stands for ("x.csv": CSV), "rich" where it
    has none, or one of no kind; OutputError for a kind of file that the command doesn't write."""
    if asked is not None:
        return asked
    suffix = "" if target is None else target.suffix.lower()
    named = _OF_SUFFIX.get(suffix)
    if named is None and suffix not in _OF_OTHERS:
        return formats("rich")
    for each in formats:
        if each.value == named:
            return each
    written = {each.value for each in formats}
    suffixes = [known for known, name in _OF_SUFFIX.items() if name in written]
    raise OutputError(
        f"-o {shown(str(target), 200)}: this command has no format for {shown(suffix, 20)}; "
        f"end it in {', '.join(suffixes)} or .txt, or give a --format ({', '.join(each.value for each in formats)})"
    )
