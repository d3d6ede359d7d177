"""The slowest kernels of a report at a terminal: a line and its details each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.report.grouping import KernelGroup, merged_text, slowest
from neusight_onnx.report.layout import Canvas, fit, heading
from neusight_onnx.report.model import KernelRow, Report
from neusight_onnx.report.quantities import counted, dims_text, duration, percent, printable, size_text, tile_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

BOUND_STYLES = {
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

_SILENT_DIMS = ("read", "written", "b_is_weight", "b_is_cast_weight", "any_tile", "by_cudnn7", "row_padding")
"""Of no use for telling kernels apart; the JSON has them."""

_FLAG_DIMS = ("transpose_a", "transpose_b", "transposed", "causal", "log", "backward")
_UNIT_DIMS = ("strides", "dilations")
"""Dims that say nothing where they are all 1."""


def kernels(report: Report, top: int, canvas: Canvas) -> list[RenderableType]:
    """The ``top`` slowest under a heading that says how many there are; nothing where no kernel runs."""
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
        text.append(number.rjust(width), style=BOUND_STYLES.get(number, "") if title == "bound" else "")
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
