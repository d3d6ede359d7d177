"""Checks targets: reads each model once, shapes it once for each set of sizes, lowers it once for each runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import assert_never

from neusight_onnx import __version__
from neusight_onnx.checks import baked_sizes, file, formats, numerics, operators, shapes, standard, thresholds
from neusight_onnx.checks.config import CONFIG_NAME, in_words_of_a_file, named_apart
from neusight_onnx.checks.formats import kernel_types
from neusight_onnx.checks.registry import CHECKS, Found, Scope, known_code, register
from neusight_onnx.checks.subject import Subject, Target
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import CheckError, ModelError, NeusightError, NotSupportedError, OptionError, shown
from neusight_onnx.execution import formats_of_products
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.contents import LOOKED_AT_BYTES, Contents, contents_of
from neusight_onnx.graph.model import Graph, Model, Notice, file_name
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.memory import memory_on, parameter_summary
from neusight_onnx.outcome import predict_outcome
from neusight_onnx.precision import resolve
from neusight_onnx.report.quantities import counted
from neusight_onnx.report.verdict import Finding, MistakenTarget, Rule, Severity, TargetVerdict, Verdict
from neusight_onnx.runnable import refused
from neusight_onnx.runtime import get_runtime
from neusight_onnx.workbench import Workbench, fingerprint, kept

_TOPICS = (thresholds, file, standard, shapes, baked_sizes, formats, operators, numerics)
"""Importing them fills the registry."""

UNREAD = "NSX207"
register(
    UNREAD,
    "model that can't be read",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The file of the target's model is not there, or is damaged, or is no ONNX model: nothing else of the "
    "target was judged. The other targets are. Where no target's model can be read, the check ends with exit code 2 "
    "and no report.",
    fix="give the path of a sound file, or export or fetch it again",
    function=None,
)

UNUSED = "NSX901"
register(
    UNUSED,
    "allowance without a finding",
    severity=Severity.NOTE,
    scope=Scope.TARGET,
    explanation="A finding is allowed that none of the targets has: the cause is gone, and with it the reason. Left "
    "in place, the allowance would hide the next one.",
    fix="remove it",
    function=None,
)


MISTAKEN = "NSX902"
register(
    MISTAKEN,
    "target that can't be meant as it is written",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="A GPU that is not known, a dim that the model hasn't, a precision or runtime that there is not: "
    "nothing of the target was judged. The other targets are, the report has them, and the exit code is 2. It can't be "
    "allowed. Where there is no other target, there is no report.",
    fix="correct the target, as the message says",
    function=None,
)


def check(
    targets: Target | Sequence[Target], *, fail_on: Severity | str = Severity.WARNING, config: Path | None = None
) -> Verdict:
    """Judges a target, or every one of several, by all checks of the registry.

    ``fail_on``: the mildest finding that fails, "error", "warning" or "note". ``config`` is the file that the targets
    came from, for the report.

    What several targets share (a model, its sizes, its lowering) is worked out once. A model that can't be read is a
    finding of its targets if another can, and so is a mistake of who asks, such as an unknown GPU, dim or precision
    (:data:`MISTAKEN`; the verdict has it in ``mistaken``). Raises a :class:`~neusight_onnx.errors.NeusightError`
    where no target can be judged.
    """
    if isinstance(targets, Target):
        targets = (targets,)
    if not isinstance(targets, Sequence) or not all(isinstance(target, Target) for target in targets):
        raise OptionError(f"targets is {shown(repr(targets))}; give a Target, or a list of them")
    if fail_on not in tuple(Severity):
        raise CheckError(f"fail_on is {shown(repr(fail_on))}; choose {', '.join(map(repr, map(str, Severity)))}")
    if not targets:
        raise CheckError(f"there is nothing to check; give a model and a GPU, or targets in {CONFIG_NAME}")
    named = named_apart(targets)
    bench = _Bench()
    subjects: list[Subject] = []
    mistakes: list[tuple[Target, NeusightError]] = []
    for target in named:
        try:
            subjects.append(_subject(bench, target, alone=len(named) == 1))
        except NeusightError as mistake:
            mistakes.append((target, mistake))
    if all(subject.unread is not None for subject in subjects):
        if mistakes:
            raise mistakes[0][1]
        first = subjects[0]
        assert first.unread is not None
        raise _naming(first.unread, first.target, alone=len(named) == 1)
    findings = _findings(subjects)
    findings += [_mistaken(target, mistake, config) for target, mistake in mistakes]
    findings += _unused(subjects, findings, config)
    order = tuple(Severity)
    findings.sort(key=lambda finding: (finding.allowed is not None, order.index(finding.severity), finding.code))
    verdict = Verdict(
        tool_version=__version__,
        fail_on=Severity(fail_on),
        config=None if config is None else str(config),
        targets=(),
        findings=tuple(findings),
        rules=rules(),
        mistaken=tuple(_mistaken_target(target, mistake) for target, mistake in mistakes),
    )
    return replace(verdict, targets=tuple(_target_verdict(subject, verdict) for subject in subjects))


def rules() -> tuple[Rule, ...]:
    """What every code stands for, in order."""
    return tuple(CHECKS[code].rule for code in sorted(CHECKS))


def explained(*codes: str) -> tuple[Rule, ...]:
    """The rules of ``codes`` in that order, each once, or all there are; CheckError for a code that there is not."""
    asked = dict.fromkeys(known_code(code, "explain") for code in codes)
    return tuple(CHECKS[code].rule for code in asked) if asked else rules()


def _findings(subjects: Sequence[Subject]) -> list[Finding]:
    """What the checks find, each thing once, with all targets that it holds for."""
    known: dict[tuple[object, ...], tuple[Found, ...]] = {}
    findings: dict[tuple[object, ...], Finding] = {}
    for subject in subjects:
        reasons = dict(subject.target.allow)
        for code, entry in CHECKS.items():
            if not _judges(code, subject):
                continue
            key = (code, *_identity(subject, entry.scope))
            if key not in known:
                known[key] = _found(code, subject)
            for item in known[key]:
                finding = Finding(
                    code=code,
                    title=entry.rule.title,
                    severity=item.severity or entry.rule.severity,
                    model=subject.model.path,
                    node=None if item.node is None else file_name(item.node),
                    message=item.message,
                    fix=item.fix or entry.rule.fix,
                    targets=(),
                    allowed=reasons.get(code),
                )
                same = (code, finding.severity, finding.model, finding.node, item.message, finding.allowed)
                earlier = findings.get(same, finding)
                findings[same] = replace(earlier, targets=(*earlier.targets, subject.target.name))
    return list(findings.values())


def _mistaken(target: Target, mistake: NeusightError, config: Path | None) -> Finding:
    """At the file that the target stands in, else at its model."""
    rule = CHECKS[MISTAKEN].rule
    written = target.written_in or config
    return Finding(
        code=MISTAKEN,
        title=rule.title,
        severity=rule.severity,
        model=_path_of(target) if written is None else str(written),
        node=None,
        message=str(mistake).removeprefix(f"{target.written_in}: "),  # the place says it
        fix=rule.fix,
        targets=(target.name,),
        allowed=None,
    )


def _mistaken_target(target: Target, mistake: NeusightError) -> MistakenTarget:
    """What was asked for, as it was written."""
    return MistakenTarget(
        name=target.name,
        model=_path_of(target),
        gpu=target.gpu.name if isinstance(target.gpu, GpuSpec) else str(target.gpu),
        mode=_mode_of(target),
        precision=target.precision,
        runtime=target.runtime,
        cuda_graph=target.cuda_graph,
        include_io=target.include_io,
        channels_last=target.channels_last,
        dims=dict(target.bindings.dims),
        limits=dict(target.limits.texts or {}),
        at=target.limits.judged_at,
        mistake=str(mistake),
    )


def _path_of(target: Target) -> str:
    return target.model.path if isinstance(target.model, Model) else str(target.model)


def _mode_of(target: Target) -> str:
    return "inference" if target.training is None else "training"


def _judges(code: str, subject: Subject) -> bool:
    """Whether a check has something to look at; of a model that can't be read there is nothing but that."""
    if subject.unread is not None:
        return code == UNREAD
    entry = CHECKS[code]
    return entry.function is not None and entry.applies(subject)


def _found(code: str, subject: Subject) -> tuple[Found, ...]:
    if subject.unread is not None:
        return (Found(message=str(subject.unread)),)
    function = CHECKS[code].function
    return () if function is None else tuple(function(subject))


def _identity(subject: Subject, scope: Scope) -> tuple[object, ...]:
    """What a check of this scope looks at: equal for subjects that it would say the same of."""
    model = id(subject.model)
    match scope:
        case Scope.MODEL:
            return (model,)
        case Scope.SHAPES:
            return (model, fingerprint(subject.target.bindings))
        case Scope.WORK:
            target = subject.target
            run = (target.runtime, target.training, target.cuda_graph, target.include_io, target.channels_last)
            return (model, fingerprint(target.bindings), subject.precision, *run)
        case Scope.TARGET:
            return (subject.target.name,)
        case _:
            assert_never(scope)


def _unused(subjects: Sequence[Subject], findings: Sequence[Finding], config: Path | None) -> list[Finding]:
    """A note for every allowance that none of the targets which have it needed, at the file that it stands in."""
    used = {(finding.code, finding.allowed) for finding in findings}
    holders: dict[tuple[str, str], list[Subject]] = {}
    for subject in subjects:
        for allowance in subject.target.allow:
            if allowance not in used and subject.unread is None:
                holders.setdefault(allowance, []).append(subject)
    rule = CHECKS[UNUSED].rule
    return [
        Finding(
            code=UNUSED,
            title=rule.title,
            severity=rule.severity,
            model=having[0].model.path
            if config is None or allowance not in having[0].target.allow_written
            else str(config),
            node=None,
            message=f"{allowance[0]} is allowed ({allowance[1]}), but nothing needs it",
            fix=rule.fix,
            targets=tuple(subject.target.name for subject in having),
        )
        for allowance, having in holders.items()
    ]


def _target_verdict(subject: Subject, verdict: Verdict) -> TargetVerdict:
    target = subject.target
    nothing = subject.totals is not None and not subject.totals.latency_ms and bool(subject.opaque)
    uncosted = f"nothing could be costed ({counted(len(subject.opaque), 'unsupported node')})" if nothing else None
    own = [finding for finding in verdict.findings if target.name in finding.targets]
    return TargetVerdict(
        name=target.name,
        model=subject.model.path,
        gpu=subject.gpu,
        mode="inference" if subject.target.training is None else "training",
        precision=target.precision  # as asked: nothing says what the file stores
        if subject.unread is not None
        else subject.executed_precision or subject.precision.name,
        product_formats=subject.product_formats,
        runtime=target.runtime,
        cuda_graph=target.cuda_graph if subject.prepared is None else subject.prepared.runtime.captured,
        include_io=target.include_io,
        channels_last=target.channels_last,
        dims={} if subject.shaped is None else dict(subject.shaped.bound.symbols),
        limits=dict(target.limits.texts or {}),
        at=target.limits.judged_at,
        codes=tuple(
            code for code in sorted(CHECKS) if _judges(code, subject) or any(code == each.code for each in own)
        ),
        parameter_count=subject.parameter_count,
        unsupported_count=len(subject.opaque),
        totals=None if nothing else subject.totals,
        not_predicted=subject.not_predicted or uncosted,
        memory=subject.memory,
        passed=not any(verdict.fails(finding) for finding in own),
        assumptions=subject.assumptions,
        host=subject.host,
    )


# --- from a target to what is known of it -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """What has been worked out so far, by what it was made from. Private to this module."""

    work: Workbench = field(default_factory=Workbench)
    parameters: dict[int, int] = field(default_factory=dict)
    kernel_types: dict[int, frozenset[tuple[DataType, bool]]] = field(default_factory=dict)
    contents: dict[int, Contents] = field(default_factory=dict)


def _subject(bench: _Bench, target: Target, *, alone: bool) -> Subject:
    """The target with all that can be worked out; errors name it if there are others or a file has it."""
    try:
        return _worked_out(bench, target)
    except NeusightError as error:
        raise _naming(error, target, alone=alone) from None


def _naming(error: NeusightError, target: Target, *, alone: bool) -> NeusightError:
    """The error with the target's name in front if there are others, and with the file that has it."""
    if target.written_in is not None:
        return type(error)(f"{target.written_in}: target '{target.name}': {in_words_of_a_file(str(error))}")
    return error if alone else type(error)(f"target '{target.name}': {error}")


def _unreadable(target: Target, gpu: GpuSpec, error: ModelError) -> Subject:
    """A target of whose model nothing is known but why it can't be read."""
    nothing = Graph(name="", nodes=(), inputs=(), outputs=(), initializers={}, declared={})
    path = str(target.model)
    model = Model(path=path, sha256="", byte_count=0, ir_version=0, producer="", opsets={}, graph=nothing)
    stored = stored_precision(model)
    return Subject(
        target=target,
        model=model,
        gpu=gpu,
        parameter_count=0,
        stored=stored,
        precision=resolve(target.precision, stored),
        not_predicted="the model can't be read",
        unread=error,
    )


def _worked_out(bench: _Bench, target: Target) -> Subject:
    get_runtime(target.runtime, channels_last=target.channels_last)
    gpu = bench.work.gpu(target.gpu)
    try:
        model = bench.work.model(target.model)
    except ModelError as error:
        return _unreadable(target, gpu, error)
    stored = stored_precision(model)
    precision = resolve(target.precision, stored)
    refusal = refused(model, precision, target.runtime, gpu)
    not_predicted = None if refusal is None else refusal.message
    subject = Subject(
        target=target,
        model=model,
        gpu=gpu,
        parameter_count=kept(bench.parameters, id(model), lambda: parameter_summary(model)[0]),
        stored=stored,
        precision=precision,
        not_predicted=not_predicted,
    )
    try:
        shaped = bench.work.shaped(model, target.bindings)
    except ModelError as fault:  # why it has no shapes at these sizes is for a check to say
        return replace(subject, fault=fault)
    prepared = bench.work.prepared(
        shaped,
        precision=precision,
        runtime=target.runtime,
        training=target.training,
        cuda_graph=target.cuda_graph,
        include_io=target.include_io,
        channels_last=target.channels_last,
    )
    contents = kept(bench.contents, id(model), lambda: contents_of(model))
    outcome = None
    if not_predicted is None:
        try:
            outcome = predict_outcome(prepared, gpu, with_host=True)
        except NotSupportedError as refusal_of_work:  # NSX402 and NSX405 say so
            not_predicted = str(refusal_of_work)
    return replace(
        subject,
        not_predicted=not_predicted,
        precision=prepared.precision,
        shaped=shaped,
        prepared=prepared,
        kernel_types=kept(bench.kernel_types, id(prepared), lambda: kernel_types(prepared.work)),
        opaque=_opaque(prepared.work),
        totals=None if outcome is None else outcome.totals,
        host=None if outcome is None else outcome.host,
        executed_precision=None if outcome is None else outcome.precision,
        product_formats=formats_of_products(prepared.work) if outcome is None else outcome.product_formats,
        memory=memory_on(prepared.memory, gpu) if outcome is None else outcome.totals.memory,
        assumptions=(
            *(prepared.graph.assumptions if outcome is None else outcome.assumptions),
            *_not_looked_at(contents),
        ),
        contents=contents,
        share_at_bounds=0.0 if outcome is None else outcome.share_at_bounds,
        padding=None if outcome is None else outcome.padding,
        little_narrowed=None if outcome is None else _little_narrowed(outcome.warnings),
    )


def _not_looked_at(contents: Contents) -> tuple[str, ...]:
    if not contents.left_out_bytes:
        return ()
    return (
        f"{contents.left_out_bytes:,} bytes of weights were not looked at for NaN and for what float16 can't hold: "
        f"of a model, {LOOKED_AT_BYTES // 2**30} GiB are",
    )


def _little_narrowed(warnings: Sequence[Notice]) -> str | None:
    return next((notice.message for notice in warnings if notice.code == "little_narrowed"), None)


def _opaque(work: Sequence[NodeWork]) -> tuple[NodeWork, ...]:
    """The work that is not supported, each node of the file once: trips of a loop may have works of their own."""
    found: dict[str, NodeWork] = {}
    for item in work:
        if item.unsupported is not None:
            found.setdefault(file_name(item.node), item)
    return tuple(found.values())
