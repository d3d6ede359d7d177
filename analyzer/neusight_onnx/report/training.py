"""Words for a step of training, the same in every format: its phases, and what is kept for the gradients."""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.report.model import Report, TrainingSummary
from neusight_onnx.report.quantities import capacity, counted, duration, parameters, percent, printable

PHASES = ("forward", "backward", "optimizer")


def phase_shares(report: Report) -> Iterator[tuple[str, float, float]]:
    """(phase, us, share of the latency) of the phases that take time."""
    total_ms = report.totals.latency_ms
    for phase in PHASES:
        spent_ms = report.totals.phases.get(f"{phase}_ms", 0.0)
        if spent_ms > 0:
            yield phase, spent_ms * 1e3, spent_ms / total_ms if total_ms else 0.0


def phases_text(report: Report) -> str:
    return ", ".join(f"{phase} {duration(us)} ({percent(share)})" for phase, us, share in phase_shares(report))


def kept_text(training: TrainingSummary) -> str:
    """What the run forward leaves for the run backwards, and which node keeps most of it."""
    by_node: dict[str, int] = {}
    for tensor in training.saved:
        by_node[tensor.node] = by_node.get(tensor.node, 0) + tensor.byte_count
    most = max(by_node, key=lambda node: by_node[node], default=None)
    text = f"{capacity(training.saved_bytes)} for the gradients of {counted(len(by_node), 'node')}"
    return text if most is None else f"{text}; {printable(most)} keeps {capacity(by_node[most])}"


def trained_text(training: TrainingSummary) -> str:
    """How much is trained, by what."""
    accumulated = f", {training.grad_accumulation:,} runs a step" if training.grad_accumulation > 1 else ""
    recomputed = "" if training.recompute == "none" else f", {training.recompute} recomputed"
    return (
        f"{parameters(training.trained_parameter_count)} parameters, {training.optimizer} (optimizer), "
        f"{training.loss} (loss){accumulated}{recomputed}"
    )
