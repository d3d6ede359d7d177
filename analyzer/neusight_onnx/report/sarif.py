"""The result of a check as SARIF 2.1.0 (OASIS), which code-scanning services read."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath
from urllib.parse import quote

from neusight_onnx.report.check_words import Checkout, file_path
from neusight_onnx.report.json_text import Json
from neusight_onnx.report.quantities import printable
from neusight_onnx.report.verdict import Finding, Rule, Verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def verdict_to_sarif(verdict: Verdict, checkout: Checkout | None = None) -> str:
    """One run: all rules, and a result for each finding, allowed ones as suppressed with their justification.

    Paths are relative to the root of ``checkout``, as code scanning takes them.
    """
    places = {rule.code: index for index, rule in enumerate(verdict.rules)}
    run: dict[str, Json] = {
        "tool": {
            "driver": {
                "name": "neusight-onnx",
                "version": verdict.tool_version,
                "rules": [_rule(rule) for rule in verdict.rules],
            }
        },
        "results": [_result(finding, places[finding.code], checkout) for finding in verdict.findings],
        "columnKind": "utf16CodeUnits",
        "properties": {
            "passed": verdict.passed,
            "targets": [
                {
                    "name": printable(target.name),
                    "gpu": target.gpu.name,
                    "passed": target.passed,
                    "assumptions": [printable(text) for text in target.assumptions],
                }
                for target in verdict.targets
            ],
        },
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule: Rule) -> dict[str, Json]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in "".join(c if c.isalnum() else " " for c in rule.title).split()),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": f"{rule.explanation} What would do: {rule.fix}."},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _result(finding: Finding, index: int, checkout: Checkout | None) -> dict[str, Json]:
    location: dict[str, Json] = {
        # services that show findings in a file want a line of it; a model has none, so its first stands for all
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(file_path(finding, checkout))},
            "region": {"startLine": 1},
        }
    }
    if finding.node is not None:
        location["logicalLocations"] = [{"fullyQualifiedName": printable(finding.node)}]
    about = "" if finding.node is None else f" at {printable(finding.node)}"
    result: dict[str, Json] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity.value,
        "message": {"text": f"{printable(finding.message)}{about} (on {printable(', '.join(finding.targets))})"},
        "locations": [location],
        "partialFingerprints": {"finding/v1": _fingerprint(finding, checkout)},
        "properties": {"fix": printable(finding.fix), "targets": [printable(name) for name in finding.targets]},
    }
    if finding.allowed is not None:
        result["suppressions"] = [{"kind": "external", "justification": printable(finding.allowed)}]
    return result


def _uri(path: str) -> str:
    """A path as a relative URI reference, or a file URI if it is absolute; reserved characters are escaped."""
    pure = PurePath(path)
    escaped = quote(pure.as_posix(), safe="/", errors="surrogatepass")  # a name of a file need not be text
    return f"file://{escaped}" if pure.is_absolute() else escaped


def _fingerprint(finding: Finding, checkout: Checkout | None) -> str:
    """The same in each run for the same thing found, whatever the figures in its message are."""
    parts = (finding.code, file_path(finding, checkout), finding.node or "", *sorted(finding.targets))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
