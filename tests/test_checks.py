"""What ``check`` finds: every code by a model that has that fault and no other, and by near misses."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, defs, helper

from check_cases import CASES, Case, file_cases, limits, rounded
from models import decoder, graph, linear, model, node, value
from models.mutations import mutated, originals
from neusight_onnx.checks import MISTAKEN, Target, check
from neusight_onnx.checks.registry import CHECKS, TOPICS, known_code, register
from neusight_onnx.checks.registry import Scope as CheckScope
from neusight_onnx.errors import BindingError, CheckError, ModelError, NeusightError, NotSupportedError, SpecError
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.signatures import first_version
from neusight_onnx.graph.versions import LAST_OPSETS
from neusight_onnx.report.check_terminal import verdict_to_terminal
from neusight_onnx.report.check_words import headline
from neusight_onnx.report.junit import verdict_to_junit
from neusight_onnx.report.layout import Canvas
from neusight_onnx.report.sarif import verdict_to_sarif
from neusight_onnx.report.verdict import Severity
from test_check_reports import MADE_AT, SARIF, junit_faults, sarif_faults

ORIGINALS = originals()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_findings(case: Case) -> None:
    verdict = check([case.target()])
    # kernels of a few microseconds each: that the host is slower goes without saying
    # and so does that PyTorch runs no quantised file, where a file shall show something else by eager launches
    aside = {"NSX109", "NSX509"} - case.codes
    findings = [each for each in verdict.findings if each.code not in aside]
    found = {finding.code for finding in findings}
    assert found == case.codes, [(each.code, each.node, each.message) for each in verdict.findings]
    notes = {finding.code for finding in findings if finding.severity is Severity.NOTE}
    assert notes == case.notes
    of_pytorch = any(each.code == "NSX509" for each in verdict.findings)
    assert verdict.passed is (case.codes == case.notes and not of_pytorch)
    first = min(findings, key=lambda finding: finding.code, default=None)
    if case.node is not None:
        assert first is not None
        assert first.node == case.node
    if case.says:
        assert any(case.says in finding.message for finding in verdict.findings)
    if case.fix:
        assert any(case.fix in finding.fix for finding in verdict.findings)
    for finding in verdict.findings:
        assert finding.targets == ("case",)
        assert finding.fix
        assert "\n" not in finding.message + finding.fix


def test_external_data_of_files(tmp_path: Path) -> None:
    for path, code in file_cases(tmp_path).values():
        verdict = check([Target(name="x", model=path, gpu="t4", bindings=make_bindings({"batch": 2}))])
        assert [finding.code for finding in verdict.findings] == [code] * bool(code)


def test_every_code_has_a_case() -> None:
    covered = {code for case in CASES.values() for code in case.codes}
    # external data needs files, an unread model another target, an allowance a plan: tested below
    assert covered | {"NSX202", "NSX207", "NSX901", "NSX902"} == set(CHECKS)


@pytest.mark.parametrize("code", CHECKS)
def test_a_code_is_well_told(code: str) -> None:
    rule = CHECKS[code].rule
    assert code[3] in TOPICS
    assert rule.title[0].islower() or rule.title.split()[0].isupper() or rule.title.startswith(("IR ", "INT8"))
    assert "\n" not in rule.fix
    assert len(rule.explanation) > 60
    assert rule.explanation.endswith(".")


@pytest.mark.parametrize("code", ["NSX101", "NSX1", "NSX701", "ABC101"], ids=["taken", "short", "no topic", "prefix"])
def test_a_bad_code_is_refused(code: str) -> None:
    before = dict(CHECKS)
    with pytest.raises(ValueError, match=code):
        register(code, "x", severity=Severity.NOTE, scope=CheckScope.MODEL, explanation="x", fix="x", function=None)
    assert before == CHECKS


def test_an_unknown_code_names_the_nearest() -> None:
    assert known_code(" nsx101 ", "here") == "NSX101"
    with pytest.raises(CheckError, match=r"here: 'NSX110' is no code of a check: nearest are NSX1\d\d"):
        known_code("NSX110", "here")


# --- judging ----------------------------------------------------------------------------------------------------------


def target(**changes: object) -> Target:
    base = Target(
        name="one",
        model=read_model_bytes(linear().SerializeToString(), label="linear.onnx"),
        gpu="t4",
        bindings=make_bindings({"batch": 2}),
    )
    return replace(base, **changes)


@pytest.mark.parametrize("kind", ["latency", "throughput", "memory"])
def test_limits_are_judged_at_the_upper_end_unless_at_median(kind: str) -> None:
    totals = check([target()]).targets[0].totals
    assert totals is not None
    assert totals.latency_ms < totals.latency_high_ms
    middle_ms = (totals.latency_ms + totals.latency_high_ms) / 2
    texts = {
        "latency": {"max_latency": f"{middle_ms:.9f}ms"},
        "throughput": {"min_throughput": f"{2e3 / middle_ms:.9f}/s"},
        "memory": {"max_memory": f"{(totals.memory.peak_bytes + totals.memory.high_bytes) // 2}B"},
    }[kind]
    assert not check([target(limits=limits(**texts))]).passed
    assert check([target(limits=limits(**texts, at="median"))]).passed


def test_a_limit_of_tokens_is_of_those_that_the_cache_grows_by() -> None:
    """A run of 8 sequences and one token each: as many tokens as samples a second, 3 each: thrice as many."""
    read = read_model_bytes(decoder().SerializeToString())
    for new, past in ((1, 100), (3, 98)):
        sizes = make_bindings({"past_sequence_length": past, "sequence_length": new}, batch=8)
        judged = target(model=read, gpu="l4", runtime="onnxruntime", bindings=sizes)
        totals = check([judged]).targets[0].totals
        assert totals is not None
        high_per_s = 8 * new / totals.latency_high_ms * 1e3
        for share, passes in ((0.99, True), (1.01, False)):
            kept = limits(min_throughput=f"{share * high_per_s:.6f} tokens/s")
            found = {each.code: each.message for each in check([replace(judged, limits=kept)]).findings}
            assert ("NSX102" not in found) is passes
        assert "tokens/s at batch size 8 (upper latency), the limit" in found["NSX102"]


def test_a_limit_of_tokens_is_missed_where_none_are_counted() -> None:
    verdict = check([target(limits=limits(min_throughput="1 tokens/s"))])
    (found,) = (each for each in verdict.findings if each.code != "NSX109")
    assert (found.code, found.severity) == ("NSX102", Severity.ERROR)
    assert "keeps no keys and values" in found.message
    assert "500/s" in found.fix


def test_a_limit_of_tokens_and_one_of_samples_replace_each_other() -> None:
    samples, tokens = limits(min_throughput="5/s"), limits(min_throughput="7 tokens/s")
    for own, base in ((samples, tokens), (tokens, samples)):
        both = own.over(base)
        assert (both.min_throughput_per_s, both.min_tokens_per_s) == (own.min_throughput_per_s, own.min_tokens_per_s)
    assert limits(max_latency="5ms").over(tokens).min_tokens_per_s == 7.0


@pytest.mark.parametrize(
    ("gpu", "runtime", "cuda_graph", "says", "says_not"),
    [
        pytest.param(
            "b200", "onnxruntime", False, ["--runtime tensorrt"], ["--cuda-graph", "faster GPU"], id="launches"
        ),
        pytest.param("b200", "tensorrt", False, ["--cuda-graph"], ["--runtime", "faster GPU"], id="merged"),
        pytest.param("mi300x", "onnxruntime", False, ["--runtime compiled"], ["tensorrt", "faster GPU"], id="AMD"),
        pytest.param("b200", "tensorrt", True, ["faster GPU"], ["--cuda-graph"], id="captured"),
        pytest.param("p4", "onnxruntime", False, ["faster GPU"], ["--cuda-graph"], id="the GPU takes longer"),
    ],
)
def test_a_host_bound_target_is_told_what_helps_there(
    gpu: str, runtime: str, cuda_graph: bool, says: list[str], says_not: list[str]
) -> None:
    path = Path(__file__).parent.parent / "examples" / "bert_base.onnx"
    target = Target(
        name="x",
        model=path,
        gpu=gpu,
        precision="fp16",
        runtime=runtime,
        cuda_graph=cuda_graph,
        bindings=make_bindings({"batch": 1, "sequence": 16}),
        limits=limits(max_latency="1us", min_throughput="1000000/s"),
    )
    fixes = {finding.code: finding.fix for finding in check([target]).findings}
    for text in says:
        assert text in fixes["NSX101"]
    for text in says_not:
        assert text not in fixes["NSX101"]
    bound = "faster GPU" not in says
    assert bound == ("NSX109" in fixes)
    assert ("smaller batch" in fixes["NSX101"]) != bound
    assert "larger batch" in fixes["NSX102"]


@pytest.mark.parametrize(("domain", "advised"), [("com.microsoft", False), ("", True)], ids=["ORT's own", "ONNX's"])
def test_a_runtime_that_refuses_the_file_is_not_advised(domain: str, advised: bool) -> None:
    """TensorRT's parser has no operator of com.microsoft: taking it would give NSX506 in place of NSX109."""
    last = node("Gelu", "h20", "y", "last", domain=domain)
    chain = [node("Sin", "x" if i == 0 else f"h{i}", f"h{i + 1}", f"sin{i}") for i in range(20)]
    whole = graph([*chain, last], [value("x", ["batch", 4])], [value("y", ["batch", 4])])
    proto = model(whole, opsets={"": 20, "com.microsoft": 1})
    read = read_model_bytes(proto.SerializeToString(), label="gelu.onnx")
    verdict = check([target(model=read, gpu="b200", runtime="onnxruntime", limits=limits(max_latency="1ns"))])
    fixes = {finding.code: finding.fix for finding in verdict.findings}
    assert "--cuda-graph" in fixes["NSX109"]
    assert [("--runtime tensorrt" in fixes[code]) for code in ("NSX101", "NSX109")] == [advised, advised]


def test_a_run_that_cannot_be_captured_is_not_told_to_be() -> None:
    chain = [node("Relu", "x" if i == 0 else f"h{i}", f"h{i + 1}", f"relu{i}") for i in range(20)]
    branches = {
        f"{name}_branch": graph([node(op, "h20", "z")], [], [value("z", ["batch", 4])])
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    whole = graph(
        [*chain, helper.make_node("If", ["c"], ["y"], "branch", **branches)],
        [value("x", ["batch", 4]), value("c", [], TensorProto.BOOL)],
        [value("y", ["batch", 4])],
    )
    read = read_model_bytes(model(whole).SerializeToString(), label="if.onnx")
    verdict = check([target(model=read, gpu="b200", runtime="onnxruntime", limits=limits(max_latency="1ns"))])
    fixes = {finding.code: finding.fix for finding in verdict.findings}
    assert "NSX109" in fixes
    assert not [fix for fix in fixes.values() if "--cuda-graph" in fix]


def test_a_limit_that_is_just_kept_is_kept() -> None:
    totals = check([target()]).targets[0].totals
    assert totals is not None
    assert check([target(limits=limits(max_latency=f"{totals.latency_high_ms!r}ms"))]).passed


@pytest.mark.parametrize(
    ("fail_on", "passes"), [(Severity.ERROR, True), (Severity.WARNING, False), (Severity.NOTE, False)], ids=str
)
def test_fail_on(fail_on: Severity, passes: bool) -> None:
    """NSX301, a warning where memory is limited."""
    assert check([target(bindings=make_bindings(), limits=limits(max_memory="fits"))], fail_on=fail_on).passed is passes


def test_notes_fail_if_asked() -> None:
    case = CASES["mask, fp32"].target()
    assert check([case]).passed
    assert not check([case], fail_on=Severity.NOTE).passed


def test_findings_of_several_targets_are_one() -> None:
    free = make_bindings()
    verdict = check([target(name=gpu, gpu=gpu, bindings=free) for gpu in ("t4", "a100")])
    assert verdict.passed
    assert [(finding.code, finding.targets) for finding in verdict.findings] == [("NSX301", ("t4", "a100"))]


def test_only_the_targets_at_fault_fail() -> None:
    slow = limits(max_latency="1us")
    verdict = check([target(name="strict", limits=slow), target(name="free"), target(name="free")])
    assert [(each.name, each.passed) for each in verdict.targets] == [
        ("strict", False),
        ("free", True),
        ("free (2)", True),
    ]
    assert not verdict.passed


def test_what_is_allowed_fails_nothing() -> None:
    verdict = check([target(bindings=make_bindings(), allow=(("NSX301", "any batch will do"),))])
    assert verdict.passed
    assert [(finding.code, finding.allowed) for finding in verdict.findings] == [("NSX301", "any batch will do")]


def test_an_allowance_that_nothing_needs_is_noted() -> None:
    allow = (("NSX301", "any batch will do"), ("NSX201", "fetched later"))
    verdict = check([target(name="open", bindings=make_bindings(), allow=allow), target(name="bound", allow=allow)])
    assert verdict.passed
    noted = [finding for finding in verdict.findings if finding.code == "NSX901"]
    assert [finding.message for finding in noted] == ["NSX201 is allowed (fetched later), but nothing needs it"]
    assert noted[0].targets == ("open", "bound")


def test_an_allowance_of_a_file_that_nothing_needs_is_noted_there() -> None:
    kept, own = ("NSX201", "fetched later"), ("NSX203", "stripped")
    verdict = check([target(allow=(kept, own), allow_written=(kept,))], config=Path("ci/neusight.toml"))
    assert {finding.message[:6]: finding.model for finding in verdict.findings} == {
        "NSX201": "ci/neusight.toml",
        "NSX203": "linear.onnx",
    }


def test_what_is_not_costed_has_no_latency() -> None:
    case = CASES["nothing to judge"].target()
    (judged,) = check([case]).targets
    assert judged.totals is None
    assert judged.not_predicted == "nothing could be costed (2 unsupported nodes)"
    assert judged.memory is not None


def test_codes_are_those_that_had_something_to_judge() -> None:
    free, limited = check([target(name="free"), target(name="limited", limits=limits(max_latency="1s"))]).targets
    assert set(limited.codes) - set(free.codes) == {"NSX101", "NSX108", "NSX109", "NSX307"}


def test_a_precision_that_the_gpu_lacks_is_checked_but_not_timed() -> None:
    verdict = check([target(precision="bf16", gpu="t4")])
    assert not verdict.passed
    (judged,) = verdict.targets
    assert judged.totals is None
    assert judged.not_predicted is not None
    assert judged.memory is not None


def test_a_stored_precision_has_the_name_of_the_option() -> None:
    (judged,) = check([CASES["bf16, A100"].target()]).targets
    assert judged.precision == "bf16"


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        pytest.param({"gpu": "a1000"}, SpecError, "unknown GPU", id="GPU"),
        pytest.param({"bindings": make_bindings({"bach": 2})}, BindingError, "bach", id="dim"),
        pytest.param({"precision": "int9"}, NotSupportedError, "int9", id="precision that there is not"),
        pytest.param({"runtime": "openvino"}, NotSupportedError, "openvino", id="runtime"),
    ],
)
def test_misuse_names_the_target(changes: dict[str, object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        check([target(**changes)])
    with pytest.raises(error, match=f"^target 'wrong': .*{says}"):
        check([target(name="wrong", **changes), target(name="as wrong", **changes)])


@pytest.mark.parametrize("fail_on", list(Severity))
def test_a_target_that_cannot_be_meant_stops_no_other(fail_on: Severity) -> None:
    wrong = target(name="wrong", gpu="a1000", allow=(("NSX902", "never mind"),))
    verdict = check([wrong, target()], fail_on=fail_on)
    (finding,) = [each for each in verdict.findings if each.code == MISTAKEN]
    assert (finding.severity, finding.targets, finding.allowed) == (Severity.ERROR, ("wrong",), None)
    assert "target 'wrong': unknown GPU 'a1000'" in finding.message
    assert [(judged.name, judged.passed) for judged in verdict.targets] == [(target().name, True)]
    assert not verdict.passed
    assert headline(verdict).startswith("failed: 1 of 2 targets; 1 error")
    suites = ElementTree.fromstring(verdict_to_junit(verdict, made_at=MADE_AT))
    assert not junit_faults(suites)
    assert [(suite.get("name"), suite.get("errors")) for suite in suites] == [(target().name, "0"), ("wrong", "1")]
    said = verdict_to_terminal(verdict, Canvas(width=80))
    assert "--allow NSX902" not in said
    assert "wrong  not judged" in said.splitlines()


def test_a_model_that_cannot_be_read_stops_no_other_target(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(linear().SerializeToString()[:-9])
    bad = target(name="bad", model=damaged, allow=(("NSX201", "later"),))
    gone = target(name="gone", model=tmp_path / "gone.onnx")
    verdict = check([target(), bad, gone], fail_on=Severity.ERROR)
    found = {finding.targets: finding for finding in verdict.findings}
    assert {(each.code, each.severity) for each in found.values()} == {("NSX207", Severity.ERROR)}
    assert "damaged or cut short" in found["bad",].message
    assert "does not exist" in found["gone",].message
    assert [judged.passed for judged in verdict.targets] == [True, False, False]
    assert verdict.targets[1].precision == "auto"  # as asked, not what an empty file would store
    assert verdict.targets[1].codes == ("NSX207",)
    assert 'type="NSX207"' in verdict_to_junit(verdict, made_at=MADE_AT)
    assert not junit_faults(ElementTree.fromstring(verdict_to_junit(verdict, made_at=MADE_AT)))
    with pytest.raises(ModelError, match=r"^target 'bad': .*damaged or cut short"):
        check([bad, gone])


def test_a_limit_of_what_a_runtime_refuses_is_not_for_max_unsupported() -> None:
    case = replace(CASES["a scale of zero"], model=rounded(zero=3), runtime="tensorrt", limits=limits(max_latency="1s"))
    (finding,) = [each for each in check([case.target()]).findings if each.code == "NSX108"]
    assert "no limit was judged" in finding.message
    assert "--max-unsupported" not in finding.fix


def test_nothing_to_check_is_misuse() -> None:
    with pytest.raises(CheckError, match="nothing to check"):
        check([])


@settings(max_examples=60, deadline=None)
@given(which=st.integers(0, len(ORIGINALS) - 1), seed=st.integers(0, 2**32))
def test_damaged_models_are_checked_or_refused(which: int, seed: int) -> None:
    content = mutated(ORIGINALS[which], random.Random(seed))
    verdict, refusal = None, ""
    try:
        model = read_model_bytes(content, label="damaged.onnx")
        verdict = check([Target(name=gpu, model=model, gpu=gpu, precision="fp16") for gpu in ("p4", "h100")])
    except NeusightError as error:
        refusal = str(error)
    assert "\n" not in refusal
    if verdict is not None:
        assert sarif_faults(json.loads(verdict_to_sarif(verdict)), SARIF) == []
        assert junit_faults(ElementTree.fromstring(verdict_to_junit(verdict, made_at=MADE_AT).encode())) == []
        assert verdict_to_terminal(verdict, Canvas(width=80))


# --- facts that the checks rest on ------------------------------------------------------------------------------------


def test_opsets_in_which_operators_end_are_those_of_onnx() -> None:
    last: dict[str, int] = {}
    kept: dict[str, int] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            if schema.deprecated:
                last[schema.name] = schema.since_version - 1
            else:
                kept[schema.name] = max(kept.get(schema.name, 0), schema.since_version)
    # GroupNormalization was corrected, which onnx writes as a deprecation of its first version
    assert {name: version for name, version in last.items() if kept.get(name, 0) <= version} == LAST_OPSETS


@pytest.mark.parametrize(
    ("domain", "op_type", "version"),
    [("", "Abs", 1), ("", "Gelu", 20), ("ai.onnx.ml", "TreeEnsemble", 5), ("acme", "Mystery", None)],
    ids=str,
)
def test_first_version(domain: str, op_type: str, version: int | None) -> None:
    assert first_version(domain, op_type) == version


def test_a_target_takes_sizes_as_analyze_does() -> None:
    loaded = read_model_bytes(linear().SerializeToString(), label="m.onnx")
    for sizes in ({"dims": {"batch": 8}}, {"batch": 8}, {"shapes": {"x": [8, 4]}}):
        target = Target(name="t", model=loaded, gpu="t4", **sizes)
        assert replace(target, name="u").bindings == target.bindings
        (judged,) = check([target]).targets
        assert judged.totals is not None
        assert judged.totals.batch_size == 8
    with pytest.raises(BindingError, match="either"):
        Target(name="t", model=loaded, gpu="t4", batch=8, bindings=make_bindings({"batch": 8}))
    with pytest.raises(BindingError, match="give an integer"):
        Target(name="t", model=loaded, gpu="t4", dims={"batch": "8"})  # type: ignore[dict-item]  # wrong on purpose
