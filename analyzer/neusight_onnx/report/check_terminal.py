"""The result of a check for a reader at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neusight_onnx.report.check_words import (
    assumptions_text,
    headline,
    latency_text,
    limits_text,
    memory_text,
    not_judged,
    place,
    settings_text,
    throughput_text,
)
from neusight_onnx.report.execution import host_text, tokens_text
from neusight_onnx.report.layout import Canvas, bullets, facts, heading, render
from neusight_onnx.report.quantities import printable
from neusight_onnx.report.verdict import Finding, Severity, TargetVerdict, Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

_NO_LIMITS = "none (--max-latency, --min-throughput, --max-memory, ... set some)"
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def verdict_to_terminal(verdict: Verdict, canvas: Canvas) -> str:
    """Each target with its figures, then each finding with what would do, the allowed ones last."""
    from rich.text import Text

    good = verdict.passed
    parts: list[RenderableType] = [Text(headline(verdict), style="bold green" if good else "bold red")]
    if verdict.config is not None:
        parts.append(Text(f"by {printable(verdict.config)}", style="dim"))
    for target in verdict.targets:
        parts += _target(target, canvas)
    for mistaken in verdict.mistaken:
        parts.append(Text.assemble("\n", (printable(mistaken.name), "bold"), "  ", ("not judged", "red")))
    open_findings = [finding for finding in verdict.findings if finding.allowed is None]
    allowed = [finding for finding in verdict.findings if finding.allowed is not None]
    several = len(verdict.targets) > 1
    for title, findings in (("Findings", open_findings), ("Allowed", allowed)):
        if findings:
            parts.append(heading(title))
            for index, finding in enumerate(findings):
                parts += [Text(), _finding(finding, several=several)] if index else [_finding(finding, several=several)]
    if assumed := assumptions_text(verdict):
        parts += [heading("Assumptions"), bullets([printable(item) for item in assumed], canvas)]
    if open_findings:
        example = open_findings[0]
        allows = "" if example in not_judged(verdict) else f"; --allow {example.code}=REASON allows it"
        parts.append(Text(f"\nneusight-onnx explain {example.code} says more{allows}", style="dim"))
    return render(parts, canvas)


def _target(target: TargetVerdict, canvas: Canvas) -> list[RenderableType]:
    from rich.text import Text

    word, style = ("passed", "green") if target.passed else ("failed", "red")
    title = Text.assemble("\n", (printable(target.name), "bold"), "  ", (word, style))
    latency = latency_text(target)
    if target.not_predicted is not None:
        latency = f"not predicted: {target.not_predicted}"
    elif target.totals is not None and target.totals.latency_ms:
        share = f"{target.totals.interval * 100:.0f} %"
        latency = f"{latency}, {share} interval; {throughput_text(target)} at batch size {target.totals.batch_size:,}"
        latency += tokens_text(target.totals)
    if target.host is not None and target.host.is_bound:
        latency += f"\n{host_text(target.host)}"
    rows = [
        ("GPU", printable(f"{target.gpu.label}{canvas.dot}{settings_text(target, canvas.dot)}")),
        ("Latency", "\n".join(map(printable, latency.split("\n")))),
        ("Memory", memory_text(target)),
        ("Limits", printable(limits_text(target) if target.limits else _NO_LIMITS)),
    ]
    return [title, facts([(label, Text(text)) for label, text in rows])]


def _finding(finding: Finding, *, several: bool) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    text = Text()
    text.append(f"{finding.severity} ", style=_STYLES[finding.severity])
    text.append(finding.code, style="bold")
    text.append(f" {finding.title}\n")
    text.append(f"{printable(place(finding))}\n", style="dim")
    text.append(printable(finding.message))
    if finding.allowed is not None:
        text.append(f"\nallowed: {printable(finding.allowed)}", style="dim")
    else:
        text.append(f"\nfix: {printable(finding.fix)}")
    if several:
        text.append(f"\non: {printable(', '.join(finding.targets))}", style="dim")
    return Padding(text, (0, 0, 0, 2))
