"""What a report says in words of how a runtime executes the model: fusion and the host."""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.report.grouping import interval_assumption
from neusight_onnx.report.model import FusionSummary, HostSummary, Report, Totals
from neusight_onnx.report.quantities import counted, duration, scaled, significant


def fusion_text(fusion: FusionSummary) -> str:
    """What fusion saved, in a line."""
    traffic = ""
    if fusion.saved_bytes > 0:
        traffic = f" and {scaled(fusion.saved_bytes, 'B')} of traffic"
    return (
        f"{counted(fusion.fused_node_count, 'node')} in {counted(fusion.fused_kernel_count, 'kernel')}: "
        f"{counted(fusion.saved_kernel_count, 'kernel')}{traffic} less than one each"
    )


def near_misses_text(fusion: FusionSummary) -> Iterator[str]:
    """Why rules of the runtime didn't merge what they looked at, equal reasons in one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for item in fusion.near_misses or ():
        groups.setdefault((item.rule, item.reason), []).append(item.node)
    for (rule, reason), nodes in groups.items():
        others = f" and {counted(len(nodes) - 1, 'other node')}" if len(nodes) > 1 else ""
        yield f"not merged by '{rule}': {nodes[0]}{others}: {reason}"


def standing_text(report: Report) -> Iterator[str]:
    """The assumptions that hold for every such run, which a report in a terminal only counts."""
    for text in (*(each for each in report.assumptions if each in report.standing), *interval_assumption(report)):
        yield f"assumed of every such run: {text}"


def host_text(host: HostSummary) -> str:
    """That the host takes longer than the GPU, and from which batch on it doesn't."""
    until = f", no longer from a batch of about {host.free_from_batch:,} on" if host.free_from_batch else ""
    return f"host-bound: the host takes {duration(host.host_ms * 1e3)}{until}"


def idle_text(totals: Totals) -> str | None:
    """Why a run has no throughput to speak of: no kernel runs, so that the GPU bounds none; None where one does."""
    if totals.kernel_ms > 0:
        return None
    return "none: no kernel runs" if totals.latency_ms else "none: nothing runs"


def tokens_text(totals: Totals) -> str:
    """What samples a second are in tokens, where a model keeps keys and values; with a comma in front, else nothing."""
    if totals.tokens_per_s is None or idle_text(totals):
        return ""
    count = totals.memory.new_token_count or 0
    tokens = counted(count, "new token") if isinstance(count, int) else f"{significant(count)} new tokens"
    return f", {tokens} each: {significant(totals.tokens_per_s)} tokens/s"


def run_texts(runtime: str, *, cuda_graph: bool, include_io: bool, channels_last: bool) -> list[str]:
    """What executes the model and how, a text each."""
    order = ["channels last"] if channels_last else []
    copies = ["with copies of inputs and outputs"] if include_io else []
    return [f"{runtime} in a CUDA graph" if cuda_graph else runtime, *order, *copies]
