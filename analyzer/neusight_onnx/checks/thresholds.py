"""NSX1xx: the limits that the user set, and memory, which limits every target."""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.checks.limits import MEDIAN
from neusight_onnx.checks.registry import Found, Scope, checks
from neusight_onnx.checks.subject import Subject
from neusight_onnx.compatibility import not_made_for
from neusight_onnx.lowering.placement import refusals
from neusight_onnx.preparation import why_uncaptured
from neusight_onnx.report.execution import host_text
from neusight_onnx.report.model import DOES_NOT_FIT, TIGHT, MemoryEstimate, Totals
from neusight_onnx.report.quantities import capacity, counted, duration, percent, significant
from neusight_onnx.report.verdict import Severity
from neusight_onnx.runnable import refused
from neusight_onnx.runtime import get_runtime

_MEMORY_FIX = "take a smaller batch or sequence, a narrower number format or a GPU with more memory"


@checks(
    "NSX101",
    "latency above the limit",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The predicted latency of one run exceeds --max-latency. It is judged at the upper end of the "
    "interval, so that a model which passes is slower than the limit in at most one case of ten (of an 80 % "
    "interval, a tenth lies above); --at median judges the prediction itself. Sizes that depend on data (the boxes "
    "that a detector keeps) count at the most that they can be, unless the target gives them; where that decides, the "
    "finding says so.",
    fix="take a faster GPU or runtime, or a smaller batch; `neusight-onnx analyze` shows what is slow",
    applies=lambda subject: subject.target.limits.max_latency_ms is not None,
)
def latency(subject: Subject) -> Iterator[Found]:
    limits, totals = subject.target.limits, subject.totals
    if totals is None or not totals.latency_ms or limits.max_latency_ms is None:
        return
    judged_ms = totals.latency_ms if limits.judged_at == MEDIAN else totals.latency_high_ms
    if judged_ms > limits.max_latency_ms:
        yield Found(
            message=f"latency is {_interval(totals, limits.judged_at)}, the limit {_limit(subject, 'latency')}"
            + _of_bounds(subject, judged_ms, limits.max_latency_ms),
            fix=_size_to_give(subject) or _less_to_launch(subject, larger=False),
        )


@checks(
    "NSX102",
    "throughput below the limit",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="Samples a second, which is the batch size over the latency of a run, fall short of --min-throughput. "
    "The latency is taken at the upper end of its interval unless --at median is given. Where no dim is named as a "
    "batch, the report's assumptions say what was taken for one. A limit in tokens (--min-throughput '500 tokens/s') "
    "is of the tokens that a run appends to the cache of keys and values, samples a second times new tokens each; a "
    "model that keeps none has no such figure, and misses it.",
    fix="take a larger batch, a faster GPU or runtime; `neusight-onnx analyze` shows what is slow",
    applies=lambda subject: subject.target.limits.judge_throughput,
)
def throughput(subject: Subject) -> Iterator[Found]:
    limits, totals = subject.target.limits, subject.totals
    if totals is None or not totals.latency_ms:
        return
    judged_ms = totals.latency_ms if limits.judged_at == MEDIAN else totals.latency_high_ms
    for unit, limit, at_median in (
        ("", limits.min_throughput_per_s, totals.throughput_per_s),
        (" tokens", limits.min_tokens_per_s, totals.tokens_per_s),
    ):
        if limit is None:
            continue
        if at_median is None:
            keeps = totals.memory.cache_sharing != "none"
            why = "how many tokens a run appends isn't known" if keeps else "the model keeps no keys and values"
            yield Found(
                message=f"{why}, so that its throughput isn't counted in tokens; the limit is "
                f"{_limit(subject, 'throughput')}",
                fix="give the limit in samples a second, such as 500/s",
            )
            continue
        judged_per_s = at_median * totals.latency_ms / judged_ms
        if judged_per_s < limit:
            yield Found(
                message=f"throughput is {significant(judged_per_s)}{unit}/s at batch size {totals.batch_size:,} "
                f"({limits.judged_at} latency), the limit {_limit(subject, 'throughput')}"
                + _of_bounds(subject, limit, judged_per_s),
                fix=_size_to_give(subject) or _less_to_launch(subject, larger=True),
            )


_MUCH_AT_BOUNDS = 0.1
"""A share of the time at sizes that are bounds above which a limit that is missed may be missed by those alone."""


def _of_bounds(subject: Subject, judged: float, limit: float) -> str:
    """What a missed limit owes to sizes that are bounds; ``judged`` / ``limit``: how far it is missed."""
    share = subject.share_at_bounds
    if share < _MUCH_AT_BOUNDS:
        return ""
    kept = ", and without it the limit would be kept" if judged * (1.0 - share) <= limit else ""
    return (
        f"; {percent(share)} of the kernels' time goes to sizes that depend on data, counted at the most that they can "
        f"be{kept}"
    )


def _size_to_give(subject: Subject) -> str | None:
    if subject.share_at_bounds < _MUCH_AT_BOUNDS:
        return None
    return (
        "say how much the data leave (--dim with the output's symbol, or the --shape that the assumptions name, a "
        "pattern of names such as '*NonZero*=1x200' for many; dims or shapes in the target), take a faster GPU or a "
        "smaller batch"
    )


@checks(
    "NSX103",
    "memory above the limit",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The estimated device memory of a run (weights, live activations, workspace, the allocator's share "
    "and the framework's context) exceeds --max-memory. It is judged at the upper end of its range unless --at "
    "median is given. Several processes or models on one GPU each need a limit of their own.",
    fix=_MEMORY_FIX,
    applies=lambda subject: subject.target.limits.max_memory_bytes is not None,
)
def memory_limit(subject: Subject) -> Iterator[Found]:
    limits, memory = subject.target.limits, subject.memory
    if memory is None or limits.max_memory_bytes is None:
        return
    judged_bytes = memory.peak_bytes if limits.judged_at == MEDIAN else memory.high_bytes
    if judged_bytes > limits.max_memory_bytes:
        which = "median" if limits.judged_at == MEDIAN else f"upper end; {capacity(memory.peak_bytes)} expected"
        yield Found(
            message=f"needs {capacity(judged_bytes)} of device memory ({which}), the limit {_limit(subject, 'memory')}"
        )


def missed(subject: Subject) -> bool:
    """Whether a limit of latency, throughput or memory is missed."""
    limited = (
        latency,
        throughput,
        memory_limit,
        *([memory_fits, memory_tight] if subject.target.limits.memory_fits else []),
    )
    return any(True for check in limited for _ in check(subject))


def _in_one_buffer(memory: MemoryEstimate) -> str:
    """What the figures say of a cache."""
    return " with past and present keys and values in one buffer" if memory.cache_sharing == "once" else ""


@checks(
    "NSX104",
    "does not fit the GPU's memory",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The estimated device memory of a run exceeds what the GPU has: it would fail with an out-of-memory "
    "error. This is looked at for every target, with --max-memory or without. Past and present keys and values are one "
    "buffer where an operator writes in place, for memory and latency alike: two that the caller binds apart take the "
    "cache once more.",
    fix=_MEMORY_FIX,
)
def memory_fits(subject: Subject) -> Iterator[Found]:
    memory = subject.memory
    if memory is not None and memory.verdict == DOES_NOT_FIT:
        yield Found(
            message=f"needs about {capacity(memory.peak_bytes)} of device memory{_in_one_buffer(memory)}, "
            f"{subject.gpu.name} has {capacity(memory.available_bytes)}"
        )


@checks(
    "NSX105",
    "the GPU's memory is tight",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="The expected need is within the GPU's memory, but the upper end of its range is not, or leaves too "
    "little of it: drivers, displays and fragmentation take a share. docs/memory.md says where the line is. An "
    "error with --max-memory fits.",
    fix=_MEMORY_FIX,
)
def memory_tight(subject: Subject) -> Iterator[Found]:
    memory = subject.memory
    if memory is not None and memory.verdict == TIGHT:
        yield Found(
            message=f"may need up to {capacity(memory.high_bytes)} of device memory{_in_one_buffer(memory)}, "
            f"{subject.gpu.name} has {capacity(memory.available_bytes)}",
            severity=Severity.ERROR if subject.target.limits.memory_fits else None,
        )


@checks(
    "NSX106",
    "more unsupported nodes than allowed",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="Nodes that have no model of their cost count as nothing, so every figure is a lower bound. "
    "--max-unsupported says how many of them are accepted; NSX502 and NSX503 are mere notes then.",
    fix="replace the operators, or give the shapes that are unknown with --shape",
    applies=lambda subject: subject.target.limits.max_unsupported is not None,
)
def unsupported(subject: Subject) -> Iterator[Found]:
    limit = subject.target.limits.max_unsupported
    if limit is not None and len(subject.opaque) > limit:
        first = subject.opaque[0]
        yield Found(
            message=f"{counted(len(subject.opaque), 'node is', 'nodes are')} not supported, the limit {limit:,}; "
            f"first {first.op_type}: {first.unsupported}",
            node=first.node,
        )


@checks(
    "NSX107",
    "more parameters than allowed",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The model has more parameters (weights, shared ones counted once) than --max-parameters.",
    fix="take the smaller variant of the model, or prune it",
    applies=lambda subject: subject.target.limits.max_parameters is not None,
)
def parameters(subject: Subject) -> Iterator[Found]:
    limit = subject.target.limits.max_parameters
    if limit is not None and subject.parameter_count > limit:
        yield Found(message=f"has {subject.parameter_count:,} parameters, the limit {limit:,}")


def _predicts(subject: Subject) -> bool:
    return subject.target.limits.judge_time


@checks(
    "NSX108",
    "limit not judged, or on a lower bound",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="Some nodes are not supported and count as nothing, so the true latency is higher than the figure "
    "that was judged: a limit that is kept by it may still be missed. With --max-unsupported, which accepts that, "
    "it is a note. Where nothing at all can be predicted, since the runtime refuses the model or none of it could be "
    "costed, no limit can be judged: an error all the same.",
    fix="replace the operators that are not supported, or accept them with --max-unsupported N",
    applies=_predicts,
)
def lower_bound(subject: Subject) -> Iterator[Found]:
    if subject.not_predicted is not None:
        yield Found(
            message=f"{subject.not_predicted}; no limit was judged",
            severity=Severity.ERROR,
            fix="mend what keeps the model from running there, which the message names: only then is there a figure",
        )
    if subject.totals is None or not subject.opaque:
        return
    count = counted(len(subject.opaque), "unsupported node")
    if not subject.totals.latency_ms:
        yield Found(
            message=f"nothing could be costed ({count}), so no limit was judged",
            severity=Severity.ERROR,
            fix="replace the operators that are not supported, or give the shapes that they leave open with --shape",
        )
        return
    accepted = subject.target.limits.max_unsupported is not None
    yield Found(
        message=f"latency and throughput were judged without {count}",
        severity=Severity.NOTE if accepted else None,
    )


@checks(
    "NSX109",
    "the host takes longer than the GPU",
    severity=Severity.NOTE,
    scope=Scope.TARGET,
    explanation="Launching the run's kernels takes the CPU longer than the GPU takes to execute them, so that the GPU "
    "waits and a faster one changes little. The message says from which batch on it would no longer be so: doublings "
    "are predicted, up to 1,024 times the batch at hand, where the model has one to vary. It is looked at where a "
    "limit of latency or throughput hangs on it; reports say it of every target.",
    fix="launch once (--cuda-graph, or cuda-graph = true in the target), take a runtime that merges more "
    "(--runtime tensorrt) or a larger batch",
    applies=_predicts,
)
def host_bound(subject: Subject) -> Iterator[Found]:
    if subject.host is not None and subject.host.is_bound and subject.totals is not None and subject.totals.kernel_ms:
        kernels = duration(subject.totals.kernel_ms * 1e3)
        yield Found(
            message=f"{host_text(subject.host)}; the GPU's kernels take {kernels}",
            fix=_less_to_launch(subject, larger=True),
        )


def _less_to_launch(subject: Subject, *, larger: bool) -> str | None:
    """What would do where the host takes longer than the GPU, of what this target can have: a faster GPU changes
    little there, a smaller batch nothing. None where it doesn't. ``larger``: a larger batch would do, too.
    """
    target, host = subject.target, subject.host
    if host is None or not host.is_bound or subject.totals is None or not subject.totals.kernel_ms:
        return None
    ways = []
    prepared = subject.prepared
    if not target.cuda_graph and target.training is None and prepared is not None and not why_uncaptured(prepared):
        ways.append("launch once (--cuda-graph, or cuda-graph = true in the target)")
    merging = "compiled" if target.training is not None else "tensorrt"
    merging = "compiled" if not_made_for(merging, subject.gpu) else merging
    if get_runtime(target.runtime).name not in ("tensorrt", merging) and _would_run(subject, merging):
        ways.append(f"take a runtime that merges more (--runtime {merging})")
    if larger and host.free_from_batch is not None:
        ways.append("take a larger batch")
    if not ways:
        return "take a host with a faster CPU: no other setting of the target has it launch less"
    *before, last = ways
    text = f"{', '.join(before)} or {last}" if before else last
    return text if larger else f"{text}: the host is what takes longest"


def _would_run(subject: Subject, runtime: str) -> bool:
    """Whether another runtime takes the target's file and its precision on its GPU."""
    if refused(subject.model, subject.precision, runtime, subject.gpu) is not None:
        return False
    parses = get_runtime(runtime).fallback == "refused"
    return not parses or subject.shaped is None or not refusals(subject.shaped.inferred)


def _interval(totals: Totals, at: str) -> str:
    median = duration(totals.latency_ms * 1e3)
    if at == MEDIAN:
        return f"{median} (median)"
    share = f"{totals.interval * 100:.0f} %"
    return f"{duration(totals.latency_high_ms * 1e3)} (upper end of the {share} interval; median {median})"


def _limit(subject: Subject, what: str) -> str:
    texts = subject.target.limits.texts or {}
    return texts.get(f"max-{what}") or texts.get(f"min-{what}") or "?"
