"""The table of checks: a code, what it stands for, and the function that looks for it. A code is given once, for ever.

Codes are grouped: 1xx limits, 2xx the file, 3xx shapes, 4xx number formats, 5xx operators, 6xx numerics, 9xx the check
itself. One that is retired is not given again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from neusight_onnx.checks.subject import Subject
from neusight_onnx.errors import CheckError
from neusight_onnx.report.verdict import Rule, Severity

TOPICS = {
    "1": "limits",
    "2": "file",
    "3": "shapes",
    "4": "number formats",
    "5": "operators",
    "6": "numerics",
    "9": "the check itself",
}
"""First digit of a code -> its topic."""


class Scope(IntEnum):
    """What a check looks at, so that it runs once for all targets that share it."""

    MODEL = 1
    SHAPES = 2
    """The model at the target's sizes."""
    WORK = 3
    """That, lowered for the target's precision and runtime."""
    TARGET = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A finding before it is told which targets it holds for; None: as the registry says."""

    message: str
    node: str | None = None
    severity: Severity | None = None
    fix: str | None = None


Function: TypeAlias = "Callable[[Subject], Iterator[Found]]"
Applies: TypeAlias = "Callable[[Subject], bool]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """``applies`` says whether there is something to judge (a limit that was given); ``function`` None: the runner's
    own, such as an allowance that nothing needed."""

    rule: Rule
    scope: Scope
    applies: Applies
    function: Function | None


CHECKS: dict[str, Check] = {}


def _always(subject: Subject) -> bool:
    del subject
    return True


def register(
    code: str,
    title: str,
    *,
    severity: Severity,
    scope: Scope,
    explanation: str,
    fix: str,
    function: Function | None,
    applies: Applies = _always,
) -> None:
    """Adds a check to the table; ValueError where the code is taken or badly formed."""
    if code in CHECKS or not re.fullmatch(r"NSX[1-69]\d\d", code):
        raise ValueError(f"{code} is taken, or no code")
    rule = Rule(code=code, title=title, severity=severity, explanation=explanation, fix=fix)
    CHECKS[code] = Check(rule=rule, scope=scope, applies=applies, function=function)


def checks(
    code: str,
    title: str,
    *,
    severity: Severity,
    scope: Scope,
    explanation: str,
    fix: str,
    applies: Applies = _always,
) -> Callable[[Function], Function]:
    """Registers the decorated function as the check of ``code``."""

    def add(function: Function) -> Function:
        register(
            code,
            title,
            severity=severity,
            scope=scope,
            explanation=explanation,
            fix=fix,
            function=function,
            applies=applies,
        )
        return function

    return add


def known_code(text: str, where: str) -> str:
    """``text`` in capitals if it is a code; CheckError, naming the nearest, if it isn't."""
    code = text.strip().upper()
    if code in CHECKS:
        return code
    from difflib import get_close_matches  # only on this way out

    begun = [known for known in CHECKS if code and known.startswith(code)]
    same_topic = [known for known in CHECKS if known.startswith(code[:4])] if re.fullmatch(r"NSX\d+", code) else CHECKS
    near = begun[:3] or get_close_matches(code[:20], same_topic, n=3, cutoff=0.5)
    hint = f"nearest are {', '.join(near)}; " if near else ""
    raise CheckError(f"{where}: {text[:60]!a} is no code of a check: {hint}`neusight-onnx explain` lists all")
