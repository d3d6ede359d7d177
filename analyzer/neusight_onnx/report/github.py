"""The result of a check as GitHub's workflow commands, which become annotations on a pull request."""

from __future__ import annotations

from neusight_onnx.report.check_words import Checkout, assumptions_text, file_path, headline, place
from neusight_onnx.report.quantities import NAME_WIDTH, printable, shorten
from neusight_onnx.report.verdict import Severity, Verdict

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def verdict_to_github(verdict: Verdict, checkout: Checkout | None = None) -> str:
    """A command for each finding that is not allowed, then plain lines: what is allowed, what is assumed, the outcome.

    The commands are those of GitHub's documentation, "Workflow commands for GitHub Actions".
    Paths are relative to the root of ``checkout``.
    """
    lines = [
        f"::{_COMMANDS[finding.severity]} file={_property(file_path(finding, checkout))},"
        f"title={_property(f'{finding.code} {finding.title}')}::"
        + _data(
            f"{'' if finding.node is None else f'{shorten(finding.node, NAME_WIDTH)}: '}{finding.message}; "
            f"fix: {finding.fix} "
            f"(on {', '.join(finding.targets)})"
        )
        for finding in verdict.findings
        if finding.allowed is None
    ]
    lines += [
        _plain(f"allowed {finding.code} {finding.title} ({place(finding)}): {finding.allowed}")
        for finding in verdict.findings
        if finding.allowed is not None
    ]
    lines += [_plain(f"assumed {text}") for text in assumptions_text(verdict)]
    return "\n".join([*lines, _plain(f"neusight-onnx check {headline(verdict)}")]) + "\n"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _plain(text: str) -> str:
    """A line that is no command, whatever names are in it: those begin with "::" or hold "##["."""
    return printable(text).replace("::", ": :").replace("##[", "## [")
