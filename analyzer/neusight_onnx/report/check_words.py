"""Words for the result of a check, the same in every format."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import PurePath

from neusight_onnx.report.execution import idle_text, run_texts, tokens_text
from neusight_onnx.report.grouping import folded
from neusight_onnx.report.precision_words import precision_text
from neusight_onnx.report.quantities import NAME_WIDTH, capacity, counted, dims_text, duration, shorten, significant
from neusight_onnx.report.verdict import Finding, TargetVerdict, Verdict


def headline(verdict: Verdict) -> str:
    """One sentence: "failed: 1 of 2 targets; 2 errors, 1 warning, 1 allowed"."""
    left_out = len(not_judged(verdict))
    failed = sum(not target.passed for target in verdict.targets) + left_out
    of = counted(len(verdict.targets) + left_out, "target")
    outcome = f"failed: {failed:,} of {of}" if failed else f"passed: {of}"
    counts = [
        counted(sum(each.severity == severity for each in verdict.findings if each.allowed is None), severity)
        for severity in ("error", "warning", "note")
    ]
    allowed = sum(each.allowed is not None for each in verdict.findings)
    counts = [text for text in counts if not text.startswith("0 ")] + ([f"{allowed:,} allowed"] if allowed else [])
    return f"{outcome}; {', '.join(counts) or 'nothing found'}"


def not_judged(verdict: Verdict) -> tuple[Finding, ...]:
    """The findings that are all there is of their target, which could not be meant as it was written."""
    judged = {target.name for target in verdict.targets}
    return tuple(each for each in verdict.findings if each.targets and judged.isdisjoint(each.targets))


def place(finding: Finding) -> str:
    """Where a finding is: "model.onnx: node", without the node where it is the model as a whole."""
    return finding.model if finding.node is None else f"{finding.model}: {shorten(finding.node, NAME_WIDTH)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """The repository that was checked: its ``root``, and the ``folder`` that paths of models are relative to."""

    root: PurePath
    folder: PurePath


def file_path(finding: Finding, checkout: Checkout | None = None) -> str:
    """The file of a finding as services look for it: from the repository's root, with slashes, without "." and "..".

    What shows findings in the files of a pull request takes "a/../b.onnx" for another file than "b.onnx". A file
    outside of the repository, or without one, keeps its path.
    """
    if checkout is not None:
        whole = PurePath(posixpath.normpath((checkout.folder / finding.model).as_posix()))
        if whole.is_relative_to(checkout.root):
            return whole.relative_to(checkout.root).as_posix()
    return posixpath.normpath(PurePath(finding.model).as_posix())


def latency_text(target: TargetVerdict) -> str:
    """ "8.36 ms (5.93 ms to 12.2 ms)", or "-" where nothing predicts it; ">" where nodes count as nothing."""
    totals = target.totals
    if totals is None:
        return "-"
    if not totals.latency_ms:
        return "0 µs: nothing runs"
    low, high = duration(totals.latency_low_ms * 1e3), duration(totals.latency_high_ms * 1e3)
    return f"{'>' if totals.partial else ''}{duration(totals.latency_ms * 1e3)} ({low} to {high})"


def throughput_text(target: TargetVerdict) -> str:
    """ "957/s", or "-" where nothing predicts it or no kernel runs; "<" where nodes count as nothing."""
    totals = target.totals
    if totals is None or idle_text(totals):
        return "-"
    return f"{'<' if totals.partial else ''}{significant(totals.throughput_per_s)}/s"


def throughput_in_full(target: TargetVerdict) -> str:
    """ "35.1/s, 1 new token each: 35.1 tokens/s", as a limit may be in either; as :func:`throughput_text` elsewhere."""
    totals = target.totals
    return throughput_text(target) + ("" if totals is None else tokens_text(totals))


def memory_text(target: TargetVerdict) -> str:
    """ "661 MiB of 80.0 GiB: fits"."""
    memory = target.memory
    if memory is None:
        return "-"
    return f"{capacity(memory.peak_bytes)} of {capacity(memory.available_bytes)}: {memory.verdict}"


def limits_text(target: TargetVerdict) -> str:
    """ "max-latency 20ms, max-memory fits (at median)"; "none" without limits."""
    texts = ", ".join(f"{name} {text}" for name, text in target.limits.items())
    return f"{texts} (at median)" if texts and target.at == "median" else texts or "none"


def settings_text(target: TargetVerdict, separator: str = ", ") -> str:
    """ "fp32, eager, batch=8"; "training, fp32, eager, batch=8"."""
    mode = "" if target.mode == "inference" else target.mode
    run = run_texts(
        target.runtime, cuda_graph=target.cuda_graph, include_io=target.include_io, channels_last=target.channels_last
    )
    between = "," if separator == ", " else ", "  # with a blank, lines break between dims and not within a number
    parts = [mode, precision_text(target.precision, target.product_formats), *run, dims_text(target.dims, between)]
    return separator.join(part for part in parts if part)


def assumptions_text(verdict: Verdict) -> list[str]:
    """What stands in for what neither a model nor a target says, each once, with the targets if not all rest on it."""
    held: dict[str, list[str]] = {}
    for target in verdict.targets:
        for text in target.assumptions:
            held.setdefault(text, []).append(target.name)
    every = len(verdict.targets)
    return folded(text if len(names) == every else f"{text} (on {', '.join(names)})" for text, names in held.items())
