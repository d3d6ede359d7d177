"""The result of a check as JUnit XML, which build servers show as tests.

There is no one standard: the elements, their order and attributes are those on which the schemas of Apache Ant (also
known as windyroad's) and Jenkins' xUnit plugin agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from xml.sax.saxutils import escape, quoteattr

from neusight_onnx.report.check_words import (
    latency_text,
    limits_text,
    memory_text,
    not_judged,
    place,
    throughput_in_full,
)
from neusight_onnx.report.execution import run_texts
from neusight_onnx.report.precision_words import precision_text
from neusight_onnx.report.quantities import printable
from neusight_onnx.report.verdict import Finding, TargetVerdict, Verdict


def verdict_to_junit(verdict: Verdict, *, made_at: datetime) -> str:
    """A suite for each target, a test for each check that had something to judge.

    A test fails by findings that fail the check, and is skipped where they are all allowed; milder ones are its output.
    ``made_at``: the time of the check.
    """
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    for number, target in enumerate(verdict.targets):
        lines += _suite(verdict, target, number, made_at)
    for number, finding in enumerate(not_judged(verdict), len(verdict.targets)):
        lines += _not_judged(finding, number, made_at)
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _suite(verdict: Verdict, target: TargetVerdict, number: int, made_at: datetime) -> Iterator[str]:
    titles = {rule.code: rule.title for rule in verdict.rules}
    found = {code: _of(verdict, target, code) for code in target.codes}
    failed = {code: [each for each in items if verdict.fails(each)] for code, items in found.items()}
    skipped = {code for code, items in found.items() if items and all(each.allowed is not None for each in items)}
    yield (
        f'  <testsuite name={_value(target.name)} package="neusight-onnx" id="{number}" hostname="localhost" '
        f'timestamp="{made_at:%Y-%m-%dT%H:%M:%S}" time="0" tests="{len(target.codes)}" '
        f'failures="{sum(map(bool, failed.values()))}" errors="0" skipped="{len(skipped)}">'
    )
    yield "    <properties>"
    for name, text in _properties(target, verdict):
        yield f"      <property name={_value(name)} value={_value(text)}/>"
    yield "    </properties>"
    for code in target.codes:
        start = f'    <testcase name={_value(f"{code} {titles[code]}")} classname={_value(target.name)} time="0"'
        if failed[code]:
            yield f"{start}>"
            summary = _value("; ".join(finding.message for finding in failed[code]))
            yield f'      <failure message={summary} type="{code}">{_text(failed[code])}</failure>'
            yield "    </testcase>"
        elif code in skipped:
            reasons = dict.fromkeys(f"allowed: {finding.allowed}" for finding in found[code])
            yield f"{start}>"
            yield f"      <skipped message={_value('; '.join(reasons))}/>"
            yield "    </testcase>"
        else:
            yield f"{start}/>"
    mild = [each for code in target.codes for each in found[code] if not verdict.fails(each) and each.allowed is None]
    yield f"    <system-out>{_text(mild)}</system-out>"
    yield "    <system-err></system-err>"
    yield "  </testsuite>"


def _not_judged(finding: Finding, number: int, made_at: datetime) -> Iterator[str]:
    """The suite of a target of which nothing was judged: one test, an error."""
    name = _value(finding.targets[0])
    yield (
        f'  <testsuite name={name} package="neusight-onnx" id="{number}" hostname="localhost" '
        f'timestamp="{made_at:%Y-%m-%dT%H:%M:%S}" time="0" tests="1" failures="0" errors="1" skipped="0">'
    )
    yield "    <properties></properties>"
    yield f'    <testcase name={_value(f"{finding.code} {finding.title}")} classname={name} time="0">'
    yield f'      <error message={_value(finding.message)} type="{finding.code}">{_text([finding])}</error>'
    yield "    </testcase>"
    yield "    <system-out></system-out>"
    yield "    <system-err></system-err>"
    yield "  </testsuite>"


def _of(verdict: Verdict, target: TargetVerdict, code: str) -> list[Finding]:
    return [finding for finding in verdict.findings if finding.code == code and target.name in finding.targets]


def _properties(target: TargetVerdict, verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield "tool", f"neusight-onnx {verdict.tool_version}"
    yield "model", target.model
    yield "gpu", target.gpu.label
    yield "precision", precision_text(target.precision, target.product_formats)
    yield (
        "runtime",
        ", ".join(
            run_texts(
                target.runtime,
                cuda_graph=target.cuda_graph,
                include_io=target.include_io,
                channels_last=target.channels_last,
            )
        ),
    )
    for name, size in target.dims.items():
        yield f"dim {name}", str(size)
    yield "limits", limits_text(target)
    yield "latency", target.not_predicted or latency_text(target)
    yield "throughput", throughput_in_full(target)
    yield "memory", memory_text(target)
    for number, text in enumerate(target.assumptions, 1):
        yield f"assumption {number}", text


def _text(findings: Sequence[Finding]) -> str:
    lines = [
        f"{finding.severity} {finding.code} {place(finding)}: {finding.message}; fix: {finding.fix}"
        for finding in findings
    ]
    return "\n".join(escape(printable(line)) for line in lines)


def _value(text: str) -> str:
    """A quoted attribute; characters that XML can't hold are written as backslash escapes."""
    return quoteattr(printable(text))
