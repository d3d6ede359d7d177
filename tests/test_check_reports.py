"""The formats of ``check``: their standards' structure, and names that try to break out of them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import pytest

from check_cases import CASES, limits
from neusight_onnx.checks import Target, check, explained
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.report.check_json import verdict_to_json
from neusight_onnx.report.check_markdown import verdict_to_markdown
from neusight_onnx.report.check_terminal import verdict_to_terminal
from neusight_onnx.report.check_words import Checkout
from neusight_onnx.report.github import verdict_to_github
from neusight_onnx.report.junit import verdict_to_junit
from neusight_onnx.report.layout import Canvas
from neusight_onnx.report.rules import rules_to_json, rules_to_markdown, rules_to_terminal
from neusight_onnx.report.sarif import verdict_to_sarif
from neusight_onnx.report.verdict import Finding, Severity, Verdict
from test_report_machine import SCHEMA, documented_keys, keys_of

HOSTILE = "::error::a\n%0A,<b>&\"'|`]]>\x00\x1b[31m\ufffe\ud800 ##[error] é"
MADE_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def target(name: str, case: str, **changes: object) -> Target:
    return replace(CASES[case].target(), name=name, **changes)


def verdict() -> Verdict:
    """Three targets: one that fails, one whose only finding is allowed, one that has a note and wasn't predicted."""
    found = check(
        [
            target("slow", "latency", limits=limits(max_latency="1us", max_memory="fits"), cuda_graph=True),
            target(
                "open",
                "unbound",
                bindings=make_bindings(),
                limits=limits(max_memory="fits"),
                allow=(("NSX301", "any batch"),),
            ),
            target("noted", "stale"),
        ]
    )
    *others, noted = found.targets
    return replace(found, targets=(*others, replace(noted, totals=None, not_predicted="the GPU has no such units")))


def hostile() -> Verdict:
    """The same with a name that every format must write harmlessly, wherever a name from outside can stand."""
    base = verdict()
    findings = tuple(
        replace(each, model=HOSTILE, node=HOSTILE, message=HOSTILE, fix=HOSTILE, targets=(HOSTILE,))
        for each in base.findings
    )
    allowed = tuple(replace(each, allowed=each.allowed and HOSTILE) for each in findings)
    targets = tuple(
        replace(each, name=HOSTILE, model=HOSTILE, dims={HOSTILE: 1}, limits={"max-latency": HOSTILE})
        for each in base.targets
    )
    return replace(base, findings=allowed, targets=targets, config=HOSTILE)


VERDICTS = pytest.mark.parametrize("make", [verdict, hostile], ids=["plain", "hostile"])


# --- JUnit ------------------------------------------------------------------------------------------------------------

# Element -> (attributes that it must have, that it may have, children in order with how many there may be): written
# down from what the schemas in use require: Apache Ant's JUnit format (testsuite with name, timestamp without a zone,
# hostname, counts, time, package and id; properties, test cases, system-out and system-err in this order; at most one
# outcome a test case) and, of attributes beyond those, what Jenkins' xUnit plugin takes (skipped).
MANY = 10**9
JUNIT: Mapping[str, tuple[set[str], set[str], list[tuple[str, int, int]]]] = {
    "testsuites": (set(), set(), [("testsuite", 0, MANY)]),
    "testsuite": (
        {"name", "timestamp", "hostname", "tests", "failures", "errors", "time", "package", "id"},
        {"skipped"},
        [("properties", 1, 1), ("testcase", 0, MANY), ("system-out", 1, 1), ("system-err", 1, 1)],
    ),
    "properties": (set(), set(), [("property", 0, MANY)]),
    "property": ({"name", "value"}, set(), []),
    "testcase": ({"name", "classname", "time"}, set(), [("skipped", 0, 1), ("error", 0, 1), ("failure", 0, 1)]),
    "failure": ({"type"}, {"message"}, []),
    "error": ({"type"}, {"message"}, []),
    "skipped": (set(), {"message"}, []),
    "system-out": (set(), set(), []),
    "system-err": (set(), set(), []),
}
FORMS = {
    "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
    "tests": r"\d+",
    "failures": r"\d+",
    "errors": r"\d+",
    "skipped": r"\d+",
    "id": r"\d+",
    "time": r"\d+(\.\d+)?",
    "hostname": r"\S+",
    "name": r"(?s).+",
}


def junit_faults(element: ElementTree.Element) -> list[str]:
    required, optional, children = JUNIT[element.tag]
    faults = [f"{element.tag} lacks {name}" for name in required - element.attrib.keys()]
    faults += [f"{element.tag} has {name}" for name in element.attrib.keys() - required - optional]
    faults += [
        f"{element.tag} {name}={text!r}"
        for name, text in element.attrib.items()
        if name in FORMS and not re.fullmatch(FORMS[name], text)
    ]
    tags = [child.tag for child in element]
    order = [name for name, _, _ in children]
    if any(tag not in order for tag in tags):
        return [*faults, f"{element.tag} holds {tags}"]
    if tags != sorted(tags, key=order.index):
        faults.append(f"{element.tag}: order {tags}")
    faults += [
        f"{element.tag}: {tags.count(name)} {name}"
        for name, low, high in children
        if not low <= tags.count(name) <= high
    ]
    return faults + [fault for child in element for fault in junit_faults(child)]


@VERDICTS
def test_junit_is_valid(make: Callable[[], Verdict]) -> None:
    root = ElementTree.fromstring(verdict_to_junit(make(), made_at=MADE_AT).encode())
    assert root.tag == "testsuites"
    assert junit_faults(root) == []
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped"))


def test_the_validator_of_junit_finds_faults() -> None:
    text = verdict_to_junit(verdict(), made_at=MADE_AT)
    for old, new in {
        ' hostname="localhost"': "",
        'timestamp="2026-01-02T03:04:05"': 'timestamp="2026-01-02T03:04:05Z"',
        "<system-err></system-err>": "",
        "<properties>": "<system-err/><properties>",
        "<testsuites>": '<testsuites colour="red">',
    }.items():
        assert old in text
        assert junit_faults(ElementTree.fromstring(text.replace(old, new, 1).encode()))


def of_int8(base: Verdict) -> Verdict:
    return replace(base, targets=tuple(replace(each, product_formats=("int8",)) for each in base.targets))


def test_junit_names_formats_that_a_file_stores() -> None:
    root = ElementTree.fromstring(verdict_to_junit(of_int8(verdict()), made_at=MADE_AT).encode())
    said = {each.attrib["value"] for each in root.iter("property") if each.attrib["name"] == "precision"}
    assert said
    assert all("int8" in each for each in said)


def test_junit_tells_what_failed_and_what_is_allowed() -> None:
    root = ElementTree.fromstring(verdict_to_junit(verdict(), made_at=MADE_AT).encode())
    outcomes = {
        suite.attrib["name"]: {
            case.attrib["name"].split()[0]: case[0].tag for case in suite.findall("testcase") if len(case)
        }
        for suite in root
    }
    assert outcomes == {"slow": {"NSX101": "failure"}, "open": {"NSX301": "skipped"}, "noted": {}}
    skipped = root.find("testsuite[@name='open']/testcase/skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "allowed: any batch"
    said = root.findtext("testsuite[@name='noted']/system-out")
    assert said is not None
    assert said.startswith("note NSX305 case.onnx")


# --- SARIF ------------------------------------------------------------------------------------------------------------

TEXT, WHOLE = str, int


def members(required: Mapping[str, Any], optional: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return required, optional


# What SARIF 2.1.0 (OASIS standard, sections 3.13 to 3.58) says of the objects that are written here: members that must
# be there, members that may, and their types; no other member is allowed. A list has one entry, the type of what it
# holds; a set holds the values that may stand; a compiled expression is the form of a text.
LEVEL = {"none", "note", "warning", "error"}
MESSAGE = members({"text": TEXT}, {})
ANYTHING = object()
RULE = members(
    {"id": TEXT},
    {
        "name": TEXT,
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "defaultConfiguration": members({}, {"level": LEVEL}),
    },
)
LOCATION = members(
    {},
    {
        "physicalLocation": members(
            {"artifactLocation": members({"uri": re.compile(r"[A-Za-z0-9\-._~:/?#@!$&'()*+,;=%]+")}, {})},
            {"region": members({"startLine": WHOLE}, {})},
        ),
        "logicalLocations": [members({}, {"name": TEXT, "fullyQualifiedName": TEXT})],
    },
)
RESULT = members(
    {"message": MESSAGE},
    {
        "ruleId": TEXT,
        "ruleIndex": WHOLE,
        "level": LEVEL,
        "locations": [LOCATION],
        "partialFingerprints": ANYTHING,
        "properties": ANYTHING,
        "suppressions": [members({"kind": {"inSource", "external"}}, {"justification": TEXT})],
    },
)
SARIF = members(
    {
        "version": {"2.1.0"},
        "runs": [
            members(
                {"tool": members({"driver": members({"name": TEXT}, {"version": TEXT, "rules": [RULE]})}, {})},
                {"results": [RESULT], "columnKind": {"utf16CodeUnits", "unicodeCodePoints"}, "properties": ANYTHING},
            )
        ],
    },
    {"$schema": re.compile(r"https://\S+")},
)


def sarif_faults(found: object, wanted: Any, place: str = "$") -> list[str]:
    if wanted is ANYTHING:
        return []
    if isinstance(wanted, tuple):
        required, optional = wanted
        if not isinstance(found, dict):
            return [f"{place} is no object"]
        known = {**required, **optional}
        faults = [f"{place} lacks {name}" for name in required if name not in found]
        faults += [f"{place} has {name}" for name in found if name not in known]
        return faults + [
            fault
            for name, member in found.items()
            if name in known
            for fault in sarif_faults(member, known[name], f"{place}.{name}")
        ]
    if isinstance(wanted, list):
        if not isinstance(found, list):
            return [f"{place} is no list"]
        return [fault for at, each in enumerate(found) for fault in sarif_faults(each, wanted[0], f"{place}[{at}]")]
    if isinstance(wanted, set):
        return [] if found in wanted else [f"{place} is {found!r}"]
    if isinstance(wanted, re.Pattern):
        return [] if isinstance(found, str) and wanted.fullmatch(found) else [f"{place} is {found!r}"]
    return [] if isinstance(found, wanted) and not isinstance(found, bool) else [f"{place} is {found!r}"]


@VERDICTS
def test_sarif_is_valid(make: Callable[[], Verdict]) -> None:
    document = json.loads(verdict_to_sarif(make()))
    assert sarif_faults(document, SARIF) == []
    (run,) = document["runs"]
    assert any(target["assumptions"] for target in run["properties"]["targets"])
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_the_validator_of_sarif_finds_faults() -> None:
    def spoilt(change: Callable[[dict[str, Any]], object]) -> list[str]:
        document = json.loads(verdict_to_sarif(verdict()))
        change(document)
        return sarif_faults(document, SARIF)

    assert spoilt(lambda document: document.pop("version")) == ["$ lacks version"]
    assert spoilt(lambda document: document["runs"][0]["results"][0].pop("message"))
    assert spoilt(lambda document: document["runs"][0]["results"][0].update(level="bad"))
    assert spoilt(lambda document: document["runs"][0]["results"][0].update(colour="red"))
    assert spoilt(lambda document: document["runs"][0]["tool"]["driver"].pop("name"))


def test_sarif_suppresses_what_is_allowed() -> None:
    results = json.loads(verdict_to_sarif(verdict()))["runs"][0]["results"]
    assert [(each["ruleId"], each["level"], "suppressions" in each) for each in results] == [
        ("NSX101", "error", False),
        ("NSX305", "note", False),
        ("NSX301", "warning", True),
    ]
    assert results[2]["suppressions"] == [{"kind": "external", "justification": "any batch"}]
    assert results[2]["locations"][0]["logicalLocations"] == [{"fullyQualifiedName": "batch"}]


def test_sarif_fingerprints_do_not_depend_on_figures() -> None:
    base = verdict()

    def prints(found: Verdict) -> list[str]:
        results = json.loads(verdict_to_sarif(found))["runs"][0]["results"]
        return [each["partialFingerprints"]["finding/v1"] for each in results]

    changed = replace(base, findings=tuple(replace(each, message="another figure") for each in base.findings))
    moved = replace(base, findings=tuple(replace(each, node="another node") for each in base.findings))
    assert prints(base) == prints(changed)
    assert len(set(prints(base))) == 3
    assert not set(prints(base)) & set(prints(moved))


# --- GitHub, Markdown, terminal, JSON ---------------------------------------------------------------------------------


def test_github_annotates() -> None:
    lines = verdict_to_github(verdict()).splitlines()
    assert lines[0].startswith("::error file=case.onnx,title=NSX101 latency above the limit::latency is ")
    assert "80 %25 interval" in lines[0]
    assert lines[1].startswith("::notice file=case.onnx,title=NSX305 declared shapes are stale::")
    assert lines[2].startswith("allowed NSX301 symbolic dim not bound (case.onnx: batch): any batch")
    assert lines[3] == "assumed runs are replayed as CUDA graphs (--cuda-graph) (on slow)"
    assert lines[4].startswith("assumed batch = 1 (default")
    assert lines[4].endswith("(on open)")
    assert lines[5] == "neusight-onnx check failed: 1 of 3 targets; 1 error, 1 note, 1 allowed"


@pytest.mark.parametrize(
    ("given", "named"), [("./ci/../m.onnx", "m.onnx"), ("a//b/m.onnx", "a/b/m.onnx"), ("../m.onnx", "../m.onnx")]
)
def test_services_find_the_file(given: str, named: str) -> None:
    """They match paths as texts with those of the pull request."""
    base = verdict()
    moved = replace(base, findings=tuple(replace(each, model=given) for each in base.findings))
    assert verdict_to_github(moved).startswith(f"::error file={named},")
    (first, *_) = json.loads(verdict_to_sarif(moved))["runs"][0]["results"]
    assert first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == named


def test_github_takes_no_orders_from_names() -> None:
    text = verdict_to_github(hostile())
    lines = text.splitlines()
    assert text.isprintable() is False
    assert text.replace("\n", "").isprintable()
    # two findings become commands, each one line with its own data; nothing else is read as one
    assert [line.split(" ")[0] for line in lines if line.startswith("::")] == ["::error", "::notice"]
    assert not any("##[" in line for line in lines if not line.startswith("::"))
    for line in lines[:2]:
        properties = line.split("::")[1]
        assert properties.count(",") == 1
        assert "%0A" not in line.replace("%250A", "")


@VERDICTS
def test_text_formats_hold_no_control_characters(make: Callable[[], Verdict]) -> None:
    found = make()
    for text in (
        verdict_to_markdown(found),
        verdict_to_terminal(found, Canvas(width=80)),
        verdict_to_terminal(found, Canvas(width=60, plain=True)),
        verdict_to_github(found),
        verdict_to_junit(found, made_at=MADE_AT),
    ):
        assert text.replace("\n", "").isprintable()
        assert text.endswith("\n")


def test_markdown_is_a_comment() -> None:
    text = verdict_to_markdown(verdict())
    assert text.startswith("### neusight-onnx check failed: 1 of 3 targets; 1 error, 1 note, 1 allowed\n")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[1] for line in rows[2:]] == ["**failed**", "passed", "passed"]
    assert len({line.count(" | ") for line in rows}) == 1
    assert "- **error NSX101** latency above the limit: `case.onnx` (on slow)" in text
    assert "- NSX301 symbolic dim not bound (`case.onnx: batch`): any batch" in text


def test_markdown_of_hostile_names_keeps_its_table() -> None:
    rows = [line for line in verdict_to_markdown(hostile()).splitlines() if line.startswith("| ")]
    assert len(rows) == 5
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {8}


def test_terminal_says_all() -> None:
    text = " ".join(verdict_to_terminal(verdict(), Canvas(width=120)).split())
    for part in (
        "failed: 1 of 3 targets; 1 error, 1 note, 1 allowed",
        "slow failed",
        "open passed",
        "the limit 1us",
        "allowed: any batch",
        "not predicted: the GPU has no such units",
        "neusight-onnx explain NSX101 says more",
    ):
        assert part in text


@pytest.mark.parametrize(
    "write",
    [lambda found: verdict_to_terminal(found, Canvas(width=200)), verdict_to_markdown, verdict_to_json],
    ids=["rich", "markdown", "json"],
)
def test_what_was_assumed_is_said(write: Callable[[Verdict], str]) -> None:
    case = "trips assumed, no limit that rests on them"
    found = check(
        [target("loop", case), target("given", case, bindings=make_bindings({"batch": 2}, None, None, {"repeat": 3}))]
    )
    assert found.passed
    assert ["taken to run once" in " ".join(each.assumptions) for each in found.targets] == [True, False]
    text = write(found)
    assert "Loop 'repeat' is taken to run once" in text
    assert "--trip-count repeat=N" in text


def test_a_clean_result_is_short() -> None:
    clean = check([target("only", "sound")])
    text = verdict_to_terminal(clean, Canvas(width=100))
    assert text.startswith("passed: 1 target; nothing found\n")
    assert "Findings" not in text
    assert verdict_to_github(clean) == "neusight-onnx check passed: 1 target; nothing found\n"


def test_every_key_of_the_json_is_documented() -> None:
    section = SCHEMA.read_text("utf-8").partition("`neusight-onnx check MODEL --format json` prints")[2]
    documented = documented_keys(section.partition("\n`neusight-onnx")[0])
    maps = {path for path, kind in documented.items() if kind.startswith("map")}
    assert keys_of(json.loads(verdict_to_json(of_int8(verdict()))), "", maps) == set(documented)


def test_json_says_all() -> None:
    found = json.loads(verdict_to_json(verdict()))
    assert (found["passed"], found["fail_on"], found["config"]) == (False, "warning", None)
    assert [each["passed"] for each in found["targets"]] == [False, True, True]
    assert [(each["code"], each["fails"], each["allowed"]) for each in found["findings"]] == [
        ("NSX101", True, None),
        ("NSX305", False, None),
        ("NSX301", False, "any batch"),
    ]
    assert verdict_to_json(hostile()).isascii()
    assert json.loads(verdict_to_json(hostile()))["findings"][0]["node"] == HOSTILE


@pytest.mark.parametrize(
    ("severity", "fail_on", "fails"),
    [
        ("error", "error", True),
        ("error", "note", True),
        ("warning", "error", False),
        ("warning", "warning", True),
        ("note", "warning", False),
        ("note", "note", True),
    ],
)
def test_severities(severity: str, fail_on: str, fails: bool) -> None:
    finding = Finding(
        code="NSX101",
        title="t",
        severity=Severity(severity),
        model="m",
        node=None,
        message="m",
        fix="f",
        targets=("x",),
    )
    base = replace(verdict(), fail_on=Severity(fail_on), findings=(finding,))
    assert base.fails(finding) is fails
    assert base.passed is not fails
    assert replace(base, findings=(replace(finding, allowed="so"),)).passed


def test_rules_in_every_format() -> None:
    rules = explained()
    assert [rule["code"] for rule in json.loads(rules_to_json(rules))["rules"]] == [rule.code for rule in rules]
    assert rules_to_terminal(rules, Canvas(width=80), in_full=False).count("NSX") == len(rules)
    assert "tensor cores" in rules_to_terminal(explained("NSX403"), Canvas(width=80), in_full=True)
    assert rules_to_markdown(rules).count("\n## NSX") == len(rules)


def test_paths_are_those_from_the_root_of_the_repository() -> None:
    one = replace(verdict().findings[0], model="models/../net.onnx", node=None)
    checkout = Checkout(root=PurePosixPath("/repo"), folder=PurePosixPath("/repo/sub"))
    found = replace(verdict(), findings=(one,))
    assert "file=sub/net.onnx," in verdict_to_github(found, checkout)
    assert '"uri": "sub/net.onnx"' in verdict_to_sarif(found, checkout)
    outside = replace(found, findings=(replace(one, model="../../net.onnx"),))
    assert "file=../../net.onnx," in verdict_to_github(outside, checkout)


def test_lines_of_a_target_break_between_its_dims() -> None:
    base = verdict()
    dims = {"a_dim_of_a_long_name": 123456, "another_of_a_long_name": 234567, "a_third_of_a_long_name": 345678}
    text = verdict_to_terminal(
        replace(base, targets=(replace(base.targets[0], dims=dims),), findings=()), Canvas(width=60)
    )
    for name, size in dims.items():
        assert f"{name}={size}" in text
