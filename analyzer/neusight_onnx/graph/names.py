"""Names of a model as they can be written on a command line, and back.

A file may name a symbol, an input or a node anything: with line breaks, commas, "=", a megabyte of it. What a message
says to type must work, so such names have a written form, and every option takes either.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

MOST_WRITTEN = 80
"""Characters of a name in a hint; of a longer one only both ends are written, with "…" between them."""

_CUT = "…"
_PLAIN = re.compile(r"[^\s,=\\]+(?: +[^\s,=\\]+)*")
"""Names that options take as they are: a comma, "=" and spaces at the ends have a meaning there."""


def written(name: str) -> str:
    """The name as an option takes it: control characters, commas, "=" and backslashes become escapes (\\x2c)."""
    if len(name) > MOST_WRITTEN:
        end = MOST_WRITTEN // 2
        return f"{_in_escapes(name[:end])}{_CUT}{_in_escapes(name[-end:])}"
    return _in_escapes(name)


def _in_escapes(short: str) -> str:
    if not short.isprintable() or not _PLAIN.fullmatch(short):
        return "".join(
            char
            if char.isprintable() and char not in ",=\\" and (not char.isspace() or 0 < place < len(short) - 1)
            else _escaped(char)
            for place, char in enumerate(short)
        )
    return short


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def option(flag: str, name: str, value: object) -> str:
    """``--flag NAME=value``, in quotes where a shell would take the name apart."""
    return options(flag, {name: value})


def options(flag: str, values: Mapping[str, object]) -> str:
    """``--flag NAME=value,OTHER=value``, in quotes where a shell would take a name apart."""
    text = ",".join(f"{written(name)}={value}" for name, value in values.items())
    plain = all(re.fullmatch(r"[^\s'\"\\`$&|;<>()*?!#~\x00-\x1f]+", written(name)) for name in values)
    return f"{flag} {text if plain else shlex.quote(text)}"


def is_written(text: str) -> bool:
    """Whether ``text`` may be the written form of another name."""
    return "\\" in text or _CUT in text


def named(text: str, known: Collection[str]) -> str:
    """The name of ``known`` that ``text`` is or is the written form of; ``text`` itself if there is none or several."""
    if text in known or not is_written(text):
        return text
    found = [name for name in known if written(name) == text]
    return found[0] if len(found) == 1 else text


def is_pattern(text: str) -> bool:
    """Whether ``text`` may stand for several names, as a shell's pattern does (``*``, ``?``, ``[...]``)."""
    return any(char in text for char in "*?[")


def matching(pattern: str, known: Collection[str]) -> list[str]:
    """The names of ``known`` that ``pattern`` matches, sorted."""
    return sorted(name for name in known if name and fnmatchcase(name, pattern))
