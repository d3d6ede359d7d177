"""The operators that are known, and what each becomes: for a terminal, as Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neusight_onnx.report.json_text import json_text, record_json
from neusight_onnx.report.layout import Canvas, columns, heading, render

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_MEANING = (
    "Each operator becomes kernels of a class, is free (no kernel; the note says why), or is unsupported (the note "
    "says why). 'depends': several classes, or which one follows from attributes, types or the runtime. An operator "
    "that is not in the list is reported as unsupported, and what follows it takes the shapes that the file declares."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator: ``kernel_class`` is that of the report, or "free", "depends", "unsupported"."""

    domain: str
    op_type: str
    kernel_class: str
    note: str = ""


def operators_to_json(operators: Sequence[Operator]) -> str:
    """``{"operators": [...]}``, one an entry."""
    return json_text({"operators": [record_json(operator) for operator in operators]})


def operators_to_terminal(operators: Sequence[Operator], canvas: Canvas) -> str:
    """A table for each domain."""
    from rich.text import Text

    parts: list[RenderableType] = [Text(_summary(operators)), Text(_MEANING, style="dim")]
    heads = (("operator", "left"), ("kernel class", "left"), ("note", "fold"))
    for domain, members in _by_domain(operators):
        rows: list[tuple[str | Text, ...]] = [
            (Text(each.op_type, style="bold"), each.kernel_class, Text(each.note, style="dim")) for each in members
        ]
        parts += [heading(f"{domain} ({len(members)})"), columns(heads, rows, canvas)]
    return render(parts, canvas)


def operators_to_markdown(operators: Sequence[Operator]) -> str:
    """A page with a table for each domain."""
    lines = ["# Operators", "", _summary(operators), "", _MEANING]
    for domain, members in _by_domain(operators):
        lines += ["", f"## {domain}", "", "| operator | kernel class | note |", "| --- | --- | --- |"]
        lines += [f"| {each.op_type} | {each.kernel_class} | {each.note} |" for each in members]
    return "\n".join(lines) + "\n"


def _summary(operators: Sequence[Operator]) -> str:
    counts = Counter("kernels" if each.kernel_class not in _STATES else each.kernel_class for each in operators)
    kernels = counts["kernels"] + counts["depends"]
    return (
        f"{len(operators)} operators: {kernels} become kernels, {counts['free']} are free, "
        f"{counts['unsupported']} are unsupported."
    )


_STATES = frozenset({"free", "depends", "unsupported"})


def _by_domain(operators: Sequence[Operator]) -> list[tuple[str, list[Operator]]]:
    """(domain, its operators), in the order in which domains first occur."""
    domains: dict[str, list[Operator]] = {}
    for operator in operators:
        domains.setdefault(operator.domain or "ai.onnx", []).append(operator)
    return list(domains.items())
