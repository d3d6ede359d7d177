"""The result of a check as a comment on a pull request."""

from __future__ import annotations

from neusight_onnx.report.check_words import (
    assumptions_text,
    headline,
    latency_text,
    limits_text,
    memory_text,
    place,
    settings_text,
    throughput_in_full,
)
from neusight_onnx.report.markdown_text import code, table, text
from neusight_onnx.report.verdict import Finding, Verdict


def verdict_to_markdown(verdict: Verdict) -> str:
    """A table of targets, one of findings, and what is allowed with its reasons."""
    sections = [
        f"### neusight-onnx check {text(headline(verdict))}",
        table(
            ("target", "verdict", "settings", "latency", "throughput", "memory", "limits"),
            [
                (
                    text(target.name),
                    "passed" if target.passed else "**failed**",
                    text(settings_text(target)),
                    latency_text(target),
                    throughput_in_full(target),
                    memory_text(target),
                    text(limits_text(target)),
                )
                for target in verdict.targets
            ],
        ),
    ]
    several = len(verdict.targets) > 1
    sections += [_finding(finding, several=several) for finding in verdict.findings if finding.allowed is None]
    allowed = [finding for finding in verdict.findings if finding.allowed is not None]
    if allowed:
        sections.append(
            "Allowed:\n\n"
            + "\n".join(
                f"- {finding.code} {text(finding.title)} ({code(place(finding))}): {text(finding.allowed or '')}"
                for finding in allowed
            )
        )
    if assumed := assumptions_text(verdict):
        sections.append("Assumptions:\n\n" + "\n".join(f"- {text(item)}" for item in assumed))
    sections += [
        f"_{text(target.name)}: latency not predicted, {text(target.not_predicted)}_"
        for target in verdict.targets
        if target.not_predicted is not None
    ]
    sections.append(f"<sub>neusight-onnx {text(verdict.tool_version)}; fails on {verdict.fail_on} and worse</sub>")
    return "\n\n".join(sections) + "\n"


def _finding(finding: Finding, *, several: bool) -> str:
    where = f" (on {', '.join(map(text, finding.targets))})" if several else ""
    return (
        f"- **{finding.severity} {finding.code}** {text(finding.title)}: {code(place(finding))}{where}  \n"
        f"  {text(finding.message)}  \n"
        f"  Fix: {text(finding.fix)}"
    )
