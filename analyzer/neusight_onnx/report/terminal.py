"""The report for a reader at a terminal, made to be understood in 80 columns, with and without colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.report.comparison_terminal import figure_table
from neusight_onnx.report.comparison_words import left_out_note
from neusight_onnx.report.execution import fusion_text, host_text, idle_text, run_texts, tokens_text
from neusight_onnx.report.grouping import (
    KernelGroup,
    Slice,
    by_bound,
    by_kernel_class,
    folded,
    interval_assumption,
    merged_text,
    nothing_costed,
    slowest,
    unsupported_groups,
)
from neusight_onnx.report.layout import (
    Canvas,
    Part,
    bar,
    bullets,
    columns,
    facts,
    fit,
    heading,
    legend,
    render,
    stacked_bar,
)
from neusight_onnx.report.memory import largest_batch_text, memory_parts, tensor_name
from neusight_onnx.report.model import FITS, TIGHT, Coverage, KernelRow, MemoryEstimate, Report, TrainingSummary
from neusight_onnx.report.peak import share_of_peak
from neusight_onnx.report.precision_words import precision_of
from neusight_onnx.report.quantities import (
    capacity,
    counted,
    dims_text,
    duration,
    parameters,
    percent,
    printable,
    scaled,
    shorten,
    significant,
    size_text,
    tile_text,
)
from neusight_onnx.report.training import kept_text, phase_shares, trained_text
from neusight_onnx.report.what_if import variant_heads, variant_rows

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
_MOST_WARNINGS = 8
_MOST_UNSUPPORTED = 8

_PHASE_STYLES = {"forward": "green", "backward": "cyan", "optimizer": "yellow"}
_BOUND_STYLES = {
    "compute": "green",
    "issue": "bright_green",
    "memory": "cyan",
    "l2": "blue",
    "latency": "magenta",
    "floor": "yellow",
    "pcie": "red",
}
_OPERATION_DIMS = ("operation", "operations", "method", "cell")
"""Dims that say what a kernel does, and read better without their name."""

_SILENT_DIMS = ("read", "written", "b_is_weight", "b_is_cast_weight", "any_tile", "by_cudnn7")
"""Of no use for telling kernels apart; the JSON has them."""

_FLAG_DIMS = ("transpose_a", "transpose_b", "transposed", "causal", "log", "backward")
_UNIT_DIMS = ("strides", "dilations")
"""Dims that say nothing where they are all 1."""

_BOUND_ORDER = ("compute", "issue", "memory", "l2", "latency", "floor", "pcie", "cpu", "host")


def to_terminal(report: Report, *, width: int, colour: bool, top: int = 10, plain: bool = False) -> str:
    """The report in ``width`` columns; ``top`` kernels in detail; ``plain`` keeps to ASCII.

    Assumptions that hold for every such run are only counted: :func:`~neusight_onnx.report.execution.standing_text`.
    """
    canvas = Canvas(width=width, colour=colour, plain=plain)
    parts: list[RenderableType] = [
        _header(report, canvas),
        _summary(report, canvas),
        *_what_if(report, canvas),
        *_classes(report, canvas),
        *_kernels(report, top, canvas),
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


def _summary(report: Report, canvas: Canvas) -> Table:
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
        Part(label=part.label, share=part.share, style=_BOUND_STYLES.get(part.label, "bright_black")) for part in slices
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


def _kernels(report: Report, top: int, canvas: Canvas) -> list[RenderableType]:
    from rich.text import Text

    groups = slowest(report)
    shown = groups[:top]
    if not shown:
        return []
    number_width = len(str(len(shown))) + 2
    # a figure that is longer than usual takes its room from the names
    widths = [max(usual, *(len(_numbers(group)[at]) + 1 for group in shown)) for at, usual in enumerate(_NUMBER_WIDTHS)]
    name_width = max(canvas.width - number_width - sum(widths) - 2, 4)
    title = heading("Slowest kernels")
    if len(shown) < len(groups):
        kernel_us = report.totals.kernel_ms * 1e3
        share = sum(group.latency_us for group in shown) / kernel_us if kernel_us > 0 else 0.0
        title.append(
            f"  {len(shown)} of {len(groups)} different ones, {percent(share)} of the kernels' time", style="dim"
        )
    head = Text(" " * number_width + "  " + "node".ljust(name_width), style="dim")
    for name, width in zip(_NUMBERS, widths, strict=True):
        head.append(name.rjust(width))
    lines: list[RenderableType] = [head]
    # what nearly every kernel computes in goes without saying
    usual_dtype = Counter(row.dtype for row in report.kernels).most_common(1)[0][0]
    for index, group in enumerate(shown, 1):
        lines.append(_kernel_line(index, group, number_width, name_width, widths, canvas))
        lines.append(_kernel_details(group, usual_dtype, number_width + 2, canvas))
    return [title, *lines]


_NUMBERS = ("time", "share", "util", "waves", "bound")
_NUMBER_WIDTHS = (9, 8, 7, 7, 9)


def _numbers(group: KernelGroup) -> tuple[str, ...]:
    """The cells under :data:`_NUMBERS`."""
    row = group.row
    waves = f"{row.wave_count:,}" if row.wave_count else "-"
    return (
        duration(group.latency_us),
        percent(group.share),
        f"{row.utilization * 100:.0f} %",
        waves,
        printable(row.bound),
    )


def _kernel_line(
    index: int, group: KernelGroup, number_width: int, name_width: int, widths: Sequence[int], canvas: Canvas
) -> Text:
    from rich.text import Text

    text = Text()
    text.append(str(index).rjust(number_width), style="dim")
    text.append("  ")
    name = fit(printable(group.place), name_width - 1, canvas)
    name.stylize("bold")
    text.append_text(name)
    text.append(" " * max(name_width - name.cell_len, 0))
    for title, number, width in zip(_NUMBERS, _numbers(group), widths, strict=True):
        text.append(number.rjust(width), style=_BOUND_STYLES.get(number, "") if title == "bound" else "")
    return text


def _kernel_details(group: KernelGroup, usual_dtype: str, indent: int, canvas: Canvas) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    row = group.row
    operations = [str(value) for name, value in row.dims.items() if name in _OPERATION_DIMS]
    dtype = () if row.dtype == usual_dtype else (row.dtype,)
    phase = () if row.phase == "forward" else (row.phase,)
    merged = merged_text(row)
    of = ("of", merged) if merged else ()
    items = [*phase, " ".join((row.kernel_class, *operations, *dtype, *of)), _sizes(row)]
    if row.tile:
        items.append(f"tile {tile_text(row.tile)} ({counted(row.tile_count, 'tile')})")
    if group.run_count > 1:
        items.append(f"{group.run_count:,} runs of {duration(group.latency_us / group.run_count)}")
    if row.method != "learned":
        items.append(row.method)
    text = Text(canvas.dot.join(printable(item) for item in items if item), style="dim", overflow="fold")
    return Padding(text, (0, 0, 0, indent))


def _sizes(row: KernelRow) -> str:
    """The dims that tell a kernel from others of its class, in the words of someone who knows the class."""
    sizes: dict[str, int | str | tuple[int, ...]] = {}
    flags = []
    inputs = []
    for name, value in row.dims.items():
        if name in _OPERATION_DIMS or name in _SILENT_DIMS:
            continue
        if name in _FLAG_DIMS:
            flags.append(name)
        elif name.startswith("inputs_"):
            inputs.append(size_text(value))
        elif not (name in _UNIT_DIMS and isinstance(value, tuple) and set(value) == {1}):
            sizes[name] = value
    output = sizes.pop("output", None) if inputs else None
    flow = f"{', '.join(inputs)} -> {size_text(output)}" if output is not None else ", ".join(inputs)
    return " ".join(part for part in (flow, dims_text(sizes), *flags) if part)


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
