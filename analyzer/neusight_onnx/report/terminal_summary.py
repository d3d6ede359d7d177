"""The summary of a report at a terminal: the answer first, then why it is that, then what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.report.execution import fusion_text, host_text, idle_text, tokens_text
from neusight_onnx.report.grouping import Slice, by_bound, nothing_costed
from neusight_onnx.report.layout import Canvas, Part, bar, facts, legend, stacked_bar
from neusight_onnx.report.memory import largest_batch_text, memory_parts, tensor_name
from neusight_onnx.report.model import FITS, TIGHT, Coverage, MemoryEstimate, Report, TrainingSummary
from neusight_onnx.report.peak import share_of_peak
from neusight_onnx.report.quantities import (
    capacity,
    counted,
    duration,
    percent,
    printable,
    scaled,
    shorten,
    significant,
)
from neusight_onnx.report.terminal_kernels import BOUND_STYLES
from neusight_onnx.report.training import kept_text, phase_shares, trained_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_BAR_WIDTH = 28
_LABEL_WIDTH = 14
"""Columns before the values of the summary."""

_WHOLE_BAR = 0.97
"""A bar of which one segment takes more than this shows nothing that words don't."""

_PEAK_TENSORS = 2
"""Tensors alive at the peak that the summary names; the JSON has ten."""

_PHASE_STYLES = {"forward": "green", "backward": "cyan", "optimizer": "yellow"}
_BOUND_ORDER = ("compute", "issue", "memory", "l2", "latency", "floor", "pcie", "cpu", "host")


def summary(report: Report, canvas: Canvas) -> Table:
    """The answer first, then why it is that, then what it takes, then how much of the model it is about."""
    cause = nothing_costed(report)
    if cause is not None:
        return facts([("Latency", _unknown(cause)), ("Nodes", _nodes(report.coverage, canvas))])
    rows: list[tuple[str, RenderableType]] = [("Latency", _latency(report)), ("Throughput", _throughput(report))]
    if report.training is not None and report.kernels:
        rows.append(("Phases", _phases(report, canvas)))
    if report.kernels:
        rows.append(("Bound by", _bounds(report, canvas)))
    if report.fusion.saved_kernel_count > 0:
        rows.append(("Fusion", fusion_text(report.fusion)))
    rows += [
        ("Work", _work(report)),
        *([] if report.training is None else [("Trained", _trained(report.training, canvas))]),
        ("Memory", _memory(report.totals.memory, canvas)),
        ("Nodes", _nodes(report.coverage, canvas)),
    ]
    if report.kernels:
        rows.append(("Predicted", _methods(report.coverage)))
    return facts(rows)


def _unknown(cause: str) -> Text:
    from rich.text import Text

    return Text.assemble(("unknown: nothing could be costed", "bold yellow"), "\n", printable(cause))


def _latency(report: Report) -> Text:
    from rich.text import Text

    totals, coverage = report.totals, report.coverage
    text = Text()
    if totals.partial:
        text.append("at least ", style="yellow")
    text.append(duration(totals.latency_ms * 1e3), style="bold green" if not totals.partial else "bold")
    text.append(
        f"   {totals.interval * 100:.0f} % interval {duration(totals.latency_low_ms * 1e3)}"
        f" to {duration(totals.latency_high_ms * 1e3)}"
    )
    if totals.partial:
        verb = "is" if coverage.unsupported_node_count == 1 else "are"
        text.append(
            f"\n{coverage.unsupported_node_count:,} of {counted(coverage.node_count, 'node')} {verb} not in it: "
            "see 'Not supported'",
            style="yellow",
        )
    if totals.overhead_ms > 0:
        text.append(
            f"\n{duration(totals.kernel_ms * 1e3)} in kernels, {duration(totals.overhead_ms * 1e3)} the GPU waits "
            "for the host",
            style="dim",
        )
    if report.host.is_bound:
        text.append(f"\n{host_text(report.host)}", style="yellow")
    return text


def _throughput(report: Report) -> Text:
    from rich.text import Text

    totals = report.totals
    if idle := idle_text(totals):
        return Text(idle)
    most = "at most " if totals.partial else ""
    return Text.assemble(
        (f"{most}{significant(totals.throughput_per_s)} samples/s", "bold"),
        f" at batch size {totals.batch_size:,}{tokens_text(totals)}",
    )


def _phases(report: Report, canvas: Canvas) -> Text:
    shares = list(phase_shares(report))
    parts = tuple(Part(label=name, share=share, style=_PHASE_STYLES[name]) for name, _, share in shares)
    return _bar_with_legend(parts, [f"{name} {duration(us)}" for name, us, _ in shares], canvas)


def _trained(training: TrainingSummary, canvas: Canvas) -> Text:
    from rich.text import Text

    return Text.assemble(trained_text(training), ("\nkept: " + kept_text(training), "dim"))


def _work(report: Report) -> Text:
    from rich.text import Text

    totals = report.totals
    text = Text(
        f"{scaled(totals.flops, 'FLOP')} ({scaled(totals.macs, 'MAC')}), "
        f"{scaled(totals.read_bytes, 'B')} read, {scaled(totals.write_bytes, 'B')} written"
    )
    if totals.kernel_ms > 0:
        flops_per_s = totals.flops / totals.latency_ms * 1e3
        bytes_per_s = (totals.read_bytes + totals.write_bytes) / totals.latency_ms * 1e3
        of_peak = share_of_peak(report, flops_per_s)
        text.append(
            f"\n{scaled(flops_per_s, 'FLOP/s')}{of_peak}, {scaled(bytes_per_s, 'B/s')}"
            f" ({_of_memory_peak(bytes_per_s / report.gpu.memory_bytes_per_s)})",
            style="dim",
        )
    return text


def _of_memory_peak(share: float) -> str:
    """What kernels read and write against what the memory moves: more than that is what caches still held."""
    return f"{percent(share)} of peak" + (", caches serve the rest" if share > 1 else "")


def _memory(memory: MemoryEstimate, canvas: Canvas) -> Text:
    from rich.text import Text

    style = {FITS: "green", TIGHT: "yellow"}.get(memory.verdict, "bold red")
    filled = bar(memory.peak_bytes / memory.available_bytes, _BAR_WIDTH, canvas)
    text = Text()
    text.append(filled, style="cyan" if memory.fits else "red")
    text.append(("." if canvas.plain else "░") * (_BAR_WIDTH - len(filled)), style="dim")
    text.append(f"  {capacity(memory.peak_bytes)} of {capacity(memory.available_bytes)}: ")
    text.append(memory.verdict, style)
    lines = [f"\nbetween {capacity(memory.low_bytes)} and {capacity(memory.high_bytes)}\n"]
    lines.append(canvas.dot.join(f"{name} {capacity(size)}" for name, size in memory_parts(memory) if size))
    text.append("".join(lines), style="dim")
    if memory.peak_tensors:
        text.append("\n" + _at_peak(memory, canvas), style="dim")
    if memory.largest_batch is not None:
        text.append("\n" + largest_batch_text(memory.largest_batch))
    return text


def _at_peak(memory: MemoryEstimate, canvas: Canvas) -> str:
    """What is alive at the peak, the largest first, in one line of names and sizes."""
    room = max((canvas.width - _LABEL_WIDTH) // 2 - 12, 12)
    shown = [
        f"{shorten(printable(tensor_name(tensor)), room, canvas.ellipsis)} {capacity(tensor.byte_count)}"
        for tensor in memory.peak_tensors[:_PEAK_TENSORS]
    ]
    where = "" if memory.peak_node is None else f" at {shorten(printable(memory.peak_node), room, canvas.ellipsis)}"
    return f"most alive{where}: " + ", ".join(shown)


def _nodes(coverage: Coverage, canvas: Canvas) -> Text:
    count = max(coverage.node_count, 1)
    parts = (
        Part(label="in kernels", share=coverage.kernel_node_count / count, style="green"),
        Part(label="free", share=coverage.free_node_count / count, style="bright_black"),
        Part(label="unsupported", share=coverage.unsupported_node_count / count, style="red"),
    )
    counts = (coverage.kernel_node_count, coverage.free_node_count, coverage.unsupported_node_count)
    labels = [f"{number:,} {part.label}" for number, part in zip(counts, parts, strict=True)]
    return _bar_with_legend(parts, labels, canvas)


def _methods(coverage: Coverage) -> Text:
    from rich.text import Text

    share = coverage.latency_share
    styles = (("learned", "green"), ("analytic", "yellow"), ("unsupported", "red"))
    shown = [(label, style) for label, style in styles if share.get(label, 0.0) > 0]
    text = Text(", ").join(Text(f"{percent(share[label])} {label}", style=style) for label, style in shown)
    return text.append(" (share of the kernels' time)", style="dim")


def _bounds(report: Report, canvas: Canvas) -> Text:
    from rich.text import Text

    slices = sorted(by_bound(report), key=_bound_rank)
    parts = tuple(
        Part(label=part.label, share=part.share, style=BOUND_STYLES.get(part.label, "bright_black")) for part in slices
    )
    labels = [f"{printable(part.label)} {percent(part.share)}" for part in parts]
    if max(part.share for part in parts) > _WHOLE_BAR:
        in_words = sorted(zip(parts, labels, strict=True), key=lambda pair: -pair[0].share)
        return Text(", ").join(Text(label, style=part.style) for part, label in in_words)
    return _bar_with_legend(parts, labels, canvas)


def _bound_rank(part: Slice) -> int:
    return _BOUND_ORDER.index(part.label) if part.label in _BOUND_ORDER else len(_BOUND_ORDER)


def _bar_with_legend(parts: Sequence[Part], labels: Sequence[str], canvas: Canvas) -> Text:
    text = stacked_bar(parts, _BAR_WIDTH, canvas)
    text.append(" " * (_BAR_WIDTH - text.cell_len))
    room = canvas.width - _LABEL_WIDTH
    names = legend(parts, labels, room, canvas)
    fits_beside = "\n" not in names.plain and _BAR_WIDTH + 2 + names.cell_len <= room
    text.append("  " if fits_beside else "\n")
    return text.append_text(names)
