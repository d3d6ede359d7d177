"""JSON as this product writes it: ASCII, line by line, six significant digits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_DIGITS = 6
"""Significant digits of a float in the JSON: far below any error of a prediction, and stable between machines."""


def rounded(value: float) -> float:
    """``value`` with six significant digits."""
    return float(f"{value:.{_DIGITS}g}")


def json_text(document: Mapping[str, Json]) -> str:
    """JSON that reads and compares line by line: the members of each top-level object or list stand on lines of
    their own, each written by the fast encoder (the indenting one costs seconds on a large model)."""
    lines = []
    for key, value in document.items():
        if isinstance(value, dict) and value:
            members = ",\n    ".join(f"{json.dumps(name)}: {_compact(member)}" for name, member in value.items())
            text = f"{{\n    {members}\n  }}"
        elif isinstance(value, list) and value:
            text = "[\n    " + ",\n    ".join(_compact(member) for member in value) + "\n  ]"
        else:
            text = _compact(value)
        lines.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def record_json(record: DataclassInstance) -> dict[str, Json]:
    """Every field of a dataclass under its own name, which ends in its unit; dataclasses within likewise."""
    return {field.name: _plain(getattr(record, field.name)) for field in fields(record)}


def _plain(value: object) -> Json:
    if is_dataclass(value) and not isinstance(value, type):
        return record_json(value)
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return rounded(value)
        case Mapping():
            return {str(key): _plain(member) for key, member in value.items()}
        case tuple() | list():
            return [_plain(member) for member in value]
        case _:
            raise TypeError(f"no JSON for {type(value).__name__}")


_compact: Callable[[Json], str] = json.JSONEncoder(allow_nan=False).encode
"""One encoder for all calls: ``json.dumps`` with an option makes a new one each time."""
