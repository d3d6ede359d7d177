"""The report for a reader at a terminal, made to be understood in 80 columns, with and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neusight_onnx.report.comparison_terminal import figure_table
from neusight_onnx.report.comparison_words import left_out_note
from neusight_onnx.report.execution import run_texts
from neusight_onnx.report.grouping import (
    by_kernel_class,
    folded,
    interval_assumption,
    nothing_costed,
    unsupported_groups,
)
from neusight_onnx.report.layout import Canvas, bar, bullets, columns, heading, render
from neusight_onnx.report.model import Coverage, Report
from neusight_onnx.report.precision_words import precision_of
from neusight_onnx.report.quantities import counted, duration, parameters, percent, printable, shorten
from neusight_onnx.report.terminal_kernels import kernels
from neusight_onnx.report.terminal_summary import summary
from neusight_onnx.report.what_if import variant_heads, variant_rows

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_MOST_WARNINGS = 8
_MOST_UNSUPPORTED = 8


def to_terminal(report: Report, *, width: int, colour: bool, top: int = 10, plain: bool = False) -> str:
    """The report in ``width`` columns; ``top`` kernels in detail; ``plain`` keeps to ASCII.

    Assumptions that hold for every such run are only counted: :func:`~neusight_onnx.report.execution.standing_text`.
    """
    canvas = Canvas(width=width, colour=colour, plain=plain)
    parts: list[RenderableType] = [
        _header(report, canvas),
        summary(report, canvas),
        *_what_if(report, canvas),
        *_classes(report, canvas),
        *kernels(report, top, canvas),
        *_unsupported(report, canvas),
        *_warnings(report, canvas),
        *_assumptions(report, canvas),
        *_free_nodes(report.coverage, canvas),
    ]
    return render(parts, canvas)


def _what_if(report: Report, canvas: Canvas) -> list[RenderableType]:
    from rich.text import Text

    if not report.what_if:
        return []
    rows = [("", row) for row in variant_rows(report)]
    table, left_out = figure_table(variant_heads(report), rows, canvas)
    return [heading("What if"), table, *(Text(note, style="dim") for note in left_out_note(left_out, canvas.width))]


def _header(report: Report, canvas: Canvas) -> Text:
    from rich.text import Text

    settings = report.settings
    model = printable(report.model.path.replace("\\", "/").rsplit("/", 1)[-1])
    gpu = printable(report.gpu.label)
    room = max(canvas.width - len(gpu) - 4, 12)
    facts_line = canvas.dot.join(
        [
            settings.mode,
            precision_of(report),
            *run_texts(
                settings.runtime,
                cuda_graph=settings.cuda_graph,
                include_io=settings.include_io,
                channels_last=settings.channels_last,
            ),
            *(f"{printable(name)}={size}" for name, size in settings.dims.items()),
            counted(report.model.node_count, "node"),
            f"{parameters(report.model.parameter_count)} parameters",
        ]
    )
    return Text.assemble(
        (shorten(model, room, canvas.ellipsis), "bold"),
        (" on ", "dim"),
        (gpu, "bold"),
        "\n",
        (facts_line, "dim"),
        "\n",
        (("-" if canvas.plain else "─") * canvas.width, "dim"),
    )


def _classes(report: Report, canvas: Canvas) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    slices = by_kernel_class(report)
    if nothing_costed(report) is not None:
        return []
    if not slices:
        return [heading("Time by kernel class"), Text("  no kernel runs on the GPU", style="dim")]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    overhead_us = report.totals.overhead_ms * 1e3
    labels = [*(part.label for part in slices), *(["waiting for host"] if overhead_us > 0 else [])]
    times = [duration(part.latency_us) for part in slices] + [duration(overhead_us)]
    counts = [f"{part.kernel_count:,}" for part in slices]
    # names, counts, times, shares and what parts them; a bar may be short, a figure may not be cut
    used = 2 + max(map(len, labels)) + 2 + max(7, *map(len, counts)) + 2 + max(map(len, times)) + 2 + 6 + 2
    room = max(min(canvas.width - 46, canvas.width - used), 4)
    largest = max(part.share for part in slices)
    table.add_row("", *(Text(name, style="dim") for name in ("kernels", "time", "share")), "")
    for part in slices:
        table.add_row(
            Text(f"  {printable(part.label)}"),
            Text(f"{part.kernel_count:,}"),
            Text(duration(part.latency_us)),
            Text(percent(part.share)),
            Text(bar(part.share / largest if largest else 0.0, room, canvas), style="cyan"),
        )
    if overhead_us > 0:
        share = overhead_us / (report.totals.latency_ms * 1e3)
        table.add_row(
            Text("  waiting for host", style="dim"),
            "",
            Text(duration(overhead_us)),
            Text(percent(share)),
            Text(bar(share / largest if largest else 0.0, room, canvas)[:room], style="bright_black"),
        )
    return [heading("Time by kernel class"), table]


def _unsupported(report: Report, canvas: Canvas) -> list[RenderableType]:
    groups = unsupported_groups(report.unsupported)
    if not groups:
        return []
    items = [
        f"{printable(group.op_type)}: {printable(group.reason)} ({group.extent}, "
        f"first {shorten(printable(group.node), 48, canvas.ellipsis)})"
        for group in groups[:_MOST_UNSUPPORTED]
    ]
    items += _rest(len(groups), _MOST_UNSUPPORTED)
    return [heading("Not supported: counted as nothing"), bullets(items, canvas, "red")]


def _assumptions(report: Report, canvas: Canvas) -> list[RenderableType]:
    own = [item for item in report.assumptions if item not in report.standing]
    always = len(report.assumptions) - len(own)
    items = [printable(item) for item in (*folded(own), *(() if always else interval_assumption(report)))]
    if always:
        always += len(interval_assumption(report))
        items.append(
            f"{always} more hold for every such run (what the host costs, what isn't counted, how the interval was "
            "made): -v says them, as every other --format does"
        )
    return [heading("Assumptions"), bullets(items, canvas)] if items else []


def _free_nodes(coverage: Coverage, canvas: Canvas) -> list[RenderableType]:
    if not coverage.free_reasons:
        return []
    reasons = sorted(coverage.free_reasons.items(), key=lambda item: -item[1])
    rows = [(f"  {number:,}", printable(reason)) for reason, number in reasons]
    table = columns((("", "right"), ("", "fold")), rows, canvas, headed=False)
    return [heading(f"Free: {counted(coverage.free_node_count, 'node')} without a kernel"), table]


def _warnings(report: Report, canvas: Canvas) -> list[RenderableType]:
    if not report.warnings:
        return []
    items = []
    for notice in report.warnings[:_MOST_WARNINGS]:
        place = f" ({shorten(printable(notice.node), 48, canvas.ellipsis)})" if notice.node else ""
        items.append(f"{printable(notice.message)}{place}")
    items += _rest(len(report.warnings), _MOST_WARNINGS)
    return [heading("Warnings"), bullets(items, canvas, "yellow")]


def _rest(count: int, most: int) -> list[str]:
    return [f"and {count - most:,} more; --format json lists all"] if count > most else []
