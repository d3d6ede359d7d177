"""What many predictions of one model assume, said once, and what sets some of them apart."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from neusight_onnx.graph.model import Notice
from neusight_onnx.runtime import get_runtime

_NAME = re.compile(r"'[^']*'")
_FIGURE = re.compile(r"\d[\d.,e+-]*")


def assumed_by_all(assumptions: Iterable[Iterable[str]], settings: Sequence[tuple[str, ...]] = ()) -> tuple[str, ...]:
    """The assumptions of several cases, in order; of those that differ in figures only, the first with a remark.

    What an undecided If costs is another figure at each size and on each GPU; figures in quoted names are none.
    ``settings``: what each case is, as (precision, runtime, GPU, sizes such as "batch=8" ...), as far as these vary; of
    an assumption that some lack it is said which have it, or that some do where these are many.
    """
    kinds: dict[str, dict[str, None]] = {}
    met: dict[str, dict[tuple[str, ...], None]] = {}
    for place, of_case in enumerate(assumptions):
        for text in of_case:
            kinds.setdefault(_kind(text), {}).setdefault(text)
            if settings:
                met.setdefault(_kind(text), {}).setdefault(settings[place])
    found = []
    for kind, texts in kinds.items():
        first = next(iter(texts))
        where = _where(first, tuple(met.get(kind, ())), frozenset(settings))
        differs = "" if len(texts) == 1 else " (of one case; in others the figures differ)"
        found.append(f"{first}{where}{differs}")
    return tuple(found)


def widened_at_some(widens: Mapping[tuple[str, ...], Collection[bool]]) -> Iterator[Notice]:
    """Warns where some sizes widen weights of few bits and others don't. ``widens``: whether each case does, by what it
    is run in, such as (precision, runtime), the runtime last."""
    for name in dict.fromkeys(setting[-1] for setting, found in widens.items() if len(set(found)) > 1):
        rows = get_runtime(name).narrow_rows
        yield Notice(
            code="widened",
            message=f"{name} multiplies weights of few bits as stored up to {rows} rows (samples times tokens), "
            "and has a kernel widen all of them before each product of more: sizes on both sides are here, between "
            "which the latency jumps",
        )


_MOST_NAMED = 4
"""Settings that an assumption's remark lists."""


def _where(text: str, own: Sequence[tuple[str, ...]], every: frozenset[tuple[str, ...]]) -> str:
    """Which settings an assumption holds for, by the fewest parts of them that decide it; "" for all, and where
    ``text`` names the GPU itself."""
    if len(own) == len(every) or (own and all(len(each) > 2 and f"'{each[2]}'" in text for each in own)):
        return ""
    places = [place for place in range(len(own[0])) if len({setting[place] for setting in every}) > 1]
    for number in range(1, len(places) + 1):
        for chosen in combinations(places, number):
            parts = dict.fromkeys(tuple(setting[place] for place in chosen) for setting in own)
            if {setting for setting in every if tuple(setting[place] for place in chosen) in parts} == set(own):
                if len(parts) > _MOST_NAMED:
                    break
                return f" (holds for {', '.join(_setting_text(chosen, part) for part in parts)})"
    return " (of some cases)"


def _setting_text(places: Sequence[int], parts: Sequence[str]) -> str:
    text = ""
    for place, part in zip(places, parts, strict=True):
        link = ("", " in ", " on ")[place] if place < 3 else " " if "=" in text else " at "
        text += f"{link if text else ''}{part}"
    return text


def _kind(text: str) -> str:
    names = _NAME.findall(text)
    return " ".join([_FIGURE.sub("0", _NAME.sub("'", text)), *names])
