"""What the codes of findings stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.report.json_text import json_text
from neusight_onnx.report.layout import Canvas, columns, facts, render
from neusight_onnx.report.markdown_text import code, table, text
from neusight_onnx.report.verdict import Rule

if TYPE_CHECKING:
    from rich.console import RenderableType


def rules_to_json(rules: Sequence[Rule]) -> str:
    return json_text(
        {
            "rules": [
                {
                    "code": rule.code,
                    "title": rule.title,
                    "severity": rule.severity.value,
                    "explanation": rule.explanation,
                    "fix": rule.fix,
                }
                for rule in rules
            ]
        }
    )


def rules_to_markdown(rules: Sequence[Rule]) -> str:
    """A table, and below it the explanation of each."""
    parts = [
        table(
            ("code", "severity", "finding", "what would do"),
            [(rule.code, rule.severity.value, text(rule.title), _marked(rule.fix)) for rule in rules],
        )
    ]
    parts += [f"## {rule.code}: {text(rule.title)}\n\n{_marked(rule.explanation)}" for rule in rules]
    return "\n\n".join(parts) + "\n"


def _marked(sentence: str) -> str:
    """A text of ours for Markdown: what stands between backticks is code there, too."""
    parts = sentence.split("`")
    return "".join(code(part) if place % 2 else text(part) for place, part in enumerate(parts))


def rules_to_terminal(rules: Sequence[Rule], canvas: Canvas, *, in_full: bool) -> str:
    """A line each; ``in_full`` with explanation."""
    from rich.text import Text

    if not in_full:
        rows = [(rule.code, rule.severity.value, rule.title) for rule in rules]
        heads = (("code", "left"), ("severity", "left"), ("finding", "fold"))
        hint = Text("\nneusight-onnx explain CODE says more", style="dim")
        return render([columns(heads, rows, canvas), hint], canvas)
    parts: list[RenderableType] = []
    for rule in rules:
        parts += [
            *([Text()] if parts else []),
            Text.assemble((rule.code, "bold"), f" {rule.title} ({rule.severity})"),
            facts([("Why", Text(rule.explanation)), ("Fix", Text(rule.fix))]),
        ]
    return render(parts, canvas)
