"""What many predictions of one model assume, said once."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"'[^']*'")
_FIGURE = re.compile(r"\d[\d.,e+-]*")


def assumed_by_all(assumptions: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The assumptions of several cases, in order; of those that differ in figures only, the first with a remark.

    What an undecided If costs is another figure at each size and on each GPU; figures in quoted names are none.
    """
    kinds: dict[str, dict[str, None]] = {}
    for of_case in assumptions:
        for text in of_case:
            kinds.setdefault(_kind(text), {}).setdefault(text)
    found = []
    for texts in kinds.values():
        first = next(iter(texts))
        found.append(first if len(texts) == 1 else f"{first} (of one case; in others the figures differ)")
    return tuple(found)


def _kind(text: str) -> str:
    names = _NAME.findall(text)
    return " ".join([_FIGURE.sub("0", _NAME.sub("'", text)), *names])
