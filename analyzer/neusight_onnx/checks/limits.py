"""Limits as people write them: "20ms", "14GiB", "500/s", "100M"."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

from neusight_onnx.errors import CheckError

_TIME_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4}
"""Both signs for micro (U+00B5, U+03BC) are in use."""

_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_RATES = {"/s": 1.0, "/sec": 1.0, "/second": 1.0, "/min": 1 / 60, "/h": 1 / 3600}
_TOKEN_RATES = {f"{name}{per}": factor for name in ("tokens", "token", "tok") for per, factor in _RATES.items()}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}

UPPER, MEDIAN = "upper", "median"
FITS = "fits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a target must keep to; None: no such limit.

    ``max_memory_bytes`` and ``memory_fits`` exclude each other, as do ``min_throughput_per_s``, of samples, and
    ``min_tokens_per_s``. ``at``: "upper" judges latency, throughput and
    memory at the pessimistic end of the interval, "median" at the prediction itself.
    """

    max_latency_ms: float | None = None
    min_throughput_per_s: float | None = None
    min_tokens_per_s: float | None = None
    max_memory_bytes: int | None = None
    memory_fits: bool = False
    max_unsupported: int | None = None
    max_parameters: int | None = None
    at: str | None = None
    texts: Mapping[str, str] | None = None
    """Each limit as it was written, by its name in a configuration ("max-latency")."""

    @property
    def judged_at(self) -> str:
        return self.at or UPPER

    @property
    def judge_throughput(self) -> bool:
        """Whether there is one of samples or of tokens."""
        return self.min_throughput_per_s is not None or self.min_tokens_per_s is not None

    @property
    def judge_time(self) -> bool:
        """Whether there is one of latency or throughput."""
        return self.max_latency_ms is not None or self.judge_throughput

    @property
    def depend_on_sizes(self) -> bool:
        """Whether any of them is kept or missed by the sizes of the inputs: latency, throughput, memory."""
        return self.judge_time or self.memory_fits or self.max_memory_bytes is not None

    def over(self, base: Limits) -> Limits:
        """These, and those of ``base`` where these say nothing; one of memory or throughput replaces the other kind."""
        changed: dict[str, object] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and value is not False and item.name != "texts":
                changed[item.name] = value
        if self.memory_fits:
            changed["max_memory_bytes"] = None
        elif self.max_memory_bytes is not None:
            changed["memory_fits"] = False
        if self.judge_throughput:
            changed["min_throughput_per_s"] = self.min_throughput_per_s
            changed["min_tokens_per_s"] = self.min_tokens_per_s
        return replace(base, texts={**(base.texts or {}), **(self.texts or {})}, **changed)  # type: ignore[arg-type]  # names and values are those of the same class


LIMIT_KEYS = ("max-latency", "min-throughput", "max-memory", "max-unsupported", "max-parameters", "at")
"""The limits by their names in a configuration, which are those of the options without their dashes."""


def parse_limits(written: Mapping[str, str | int | float], where: str = "") -> Limits:
    """Limits from texts (or numbers, where no unit is needed) by their names; CheckError for what can't be meant.

    ``where`` stands before each complaint: "--" for options, the place in a file for a configuration.
    """
    values: dict[str, object] = {}
    for key, value in written.items():
        place = f"{where}{key}"
        text = str(value).strip()
        match key:
            case "max-latency":
                values["max_latency_ms"] = _quantity(text, _TIME_MS, place, "20ms (us, ms or s)")
            case "min-throughput":
                per_s = _quantity(" ".join(text.split()), _RATES | _TOKEN_RATES, place, "500/s or '500 tokens/s'")
                values["min_tokens_per_s" if "tok" in text.lower() else "min_throughput_per_s"] = per_s
            case "max-memory" if text.lower() == FITS:
                values["memory_fits"] = True
            case "max-memory":
                values["max_memory_bytes"] = int(_quantity(text, _BYTES, place, f"14GiB, 14000MB or {FITS}"))
            case "max-unsupported":
                values["max_unsupported"] = _count(text, place, "a number of nodes such as 0")
            case "max-parameters":
                values["max_parameters"] = _count(text, place, "a number such as 25600000, 100M or 7B")
            case "at" if text in (UPPER, MEDIAN):
                values["at"] = text
            case "at":
                raise CheckError(f"{place} {text[:40]!a}: choose {UPPER} or {MEDIAN}")
            case _:
                raise CheckError(f"{place}: no such limit; known are {', '.join(LIMIT_KEYS)}")
    texts = {key: str(value).strip() for key, value in written.items() if key != "at"}
    return Limits(**values, texts=texts)  # type: ignore[arg-type]  # each value was made by the case of its name


_NUMBER = re.compile(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?)\s*(.*)", re.IGNORECASE | re.DOTALL)


def _split(text: str, place: str, example: str) -> tuple[float, str]:
    found = _NUMBER.fullmatch(text) if len(text) <= 60 else None
    if found is None:
        raise CheckError(f"{place} {text[:60]!a} does not begin with a number; write {example}")
    return float(found[1].replace("_", "")), found[2].strip()


def _quantity(text: str, units: Mapping[str, float], place: str, example: str) -> float:
    number, unit = _split(text, place, example)
    factor = units.get(unit) or units.get(unit.lower())
    if factor is None:
        which = f"{unit[:30]!a} is no unit here" if unit else "a unit is missing"
        raise CheckError(f"{place} {text[:60]!a}: {which}; write {example}")
    if not 0 < number * factor < math.inf:
        raise CheckError(f"{place} {text[:60]!a}: not a finite number above zero, so no limit; write {example}")
    return number * factor


def _count(text: str, place: str, example: str) -> int:
    number, unit = _split(text, place, example)
    factor = _COUNTS.get(unit.lower())
    if factor is None:
        raise CheckError(f"{place} {text[:60]!a}: {unit[:30]!a} is no unit here; write {example}")
    count = number * factor
    if not 0 <= count < 2**63 or count != int(count):
        raise CheckError(f"{place} {text[:60]!a}: not a whole number from zero; write {example}")
    return int(count)


def given_once(option: str, texts: tuple[str, ...]) -> Iterator[str]:
    """The one text that was given to ``option``; none if there was none, CheckError if there were two that differ."""
    different = tuple(dict.fromkeys(text.strip() for text in texts))
    if len(different) > 1:
        raise CheckError(f"{option} is given twice, as {different[0][:40]!a} and {different[1][:40]!a}; keep one")
    yield from different
