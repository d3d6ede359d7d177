"""The report for an issue, a pull request or a wiki page."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.report.execution import fusion_text, host_text, idle_text, run_texts, tokens_text
from neusight_onnx.report.grouping import (
    by_bound,
    by_kernel_class,
    folded,
    interval_assumption,
    merged_text,
    nothing_costed,
    slowest,
    unsupported_groups,
)
from neusight_onnx.report.markdown_text import code as _code
from neusight_onnx.report.markdown_text import table as _table
from neusight_onnx.report.markdown_text import text as _text
from neusight_onnx.report.memory import largest_batch_text, memory_parts
from neusight_onnx.report.model import Coverage, KernelRow, Report
from neusight_onnx.report.precision_words import precision_of
from neusight_onnx.report.quantities import (
    capacity,
    counted,
    dims_text,
    duration,
    parameters,
    percent,
    scaled,
    significant,
    tile_text,
)
from neusight_onnx.report.training import kept_text, phases_text, trained_text
from neusight_onnx.report.what_if import variant_heads, variant_rows


def to_markdown(report: Report, *, top: int = 10) -> str:
    """The report as Markdown with tables; ``top`` kernels in detail."""
    settings = report.settings
    run = run_texts(
        settings.runtime,
        cuda_graph=settings.cuda_graph,
        include_io=settings.include_io,
        channels_last=settings.channels_last,
    )
    dims = [f"{_text(name)}={size}" for name, size in settings.dims.items()]
    cause = nothing_costed(report)
    sections = [
        f"# {_text(report.model.path)} on {_text(report.gpu.label)}",
        f"{', '.join([settings.mode, precision_of(report), *run, *dims])}; "
        f"{counted(report.model.node_count, 'node')}, {parameters(report.model.parameter_count)} parameters; "
        f"neusight-onnx {report.tool_version}",
        _table(("", ""), _summary(report) if cause is None else _empty_summary(report, cause)),
        *_what_if(report),
        *(_by_kernel_class(report) if cause is None else ()),
        *_slowest(report, top),
        *_not_supported(report),
        *_list(
            "Warnings",
            [f"{notice.message} ({notice.node})" if notice.node else notice.message for notice in report.warnings],
        ),
        *_list("Assumptions", (*folded(report.assumptions), *interval_assumption(report))),
    ]
    return "\n\n".join(sections) + "\n"


def _what_if(report: Report) -> list[str]:
    if not report.what_if:
        return []
    heads = [_text(title) for title, _ in variant_heads(report)]
    return ["## What if", _table(heads, [[_text(cell) for cell in row] for row in variant_rows(report)])]


def _by_kernel_class(report: Report) -> list[str]:
    totals = report.totals
    rows = [
        (_text(part.label), f"{part.kernel_count:,}", duration(part.latency_us), percent(part.share))
        for part in by_kernel_class(report)
    ]
    waited = percent(totals.overhead_ms / totals.latency_ms if totals.latency_ms else 0.0)
    rows.append(("waiting for host", "", duration(totals.overhead_ms * 1e3), waited))
    return ["## Time by kernel class", _table(("class", "kernels", "time", "share"), rows)]


def _slowest(report: Report, top: int) -> list[str]:
    rows = [
        (
            _code(group.place),
            _text(_class(group.row)),
            _text(dims_text(group.row.dims)),
            tile_text(group.row.tile),
            f"{group.row.wave_count:,}" if group.row.wave_count else "",
            f"{group.row.utilization * 100:.0f} %",
            _text(group.row.bound),
            f"{group.run_count:,}",
            duration(group.latency_us),
            percent(group.share),
        )
        for group in slowest(report)[:top]
    ]
    heads = ("node", "class", "dims", "tile", "waves", "utilization", "bound", "runs", "time", "share")
    return ["## Slowest kernels", _table(heads, rows)] if rows else []


def _not_supported(report: Report) -> list[str]:
    rows = [
        (
            _text(group.op_type),
            f"{group.node_count:,}" + (f", {group.behind_count:,} behind" if group.behind_count else ""),
            _code(group.node),
            _text(group.reason),
        )
        for group in unsupported_groups(report.unsupported)
    ]
    heads = ("operator", "nodes", "first", "reason")
    return ["## Not supported: counted as nothing", _table(heads, rows)] if rows else []


def _class(row: KernelRow) -> str:
    merged = merged_text(row)
    of = f" of {merged}" if merged else ""
    return f"{row.kernel_class}{of}" if row.phase == "forward" else f"{row.kernel_class}{of}, {row.phase}"


def _summary(report: Report) -> list[tuple[str, str]]:
    totals, coverage, memory = report.totals, report.coverage, report.totals.memory
    least, most = ("at least ", "at most ") if totals.partial else ("", "")
    shares = [f"{percent(share)} {_text(name)}" for name, share in coverage.latency_share.items() if share > 0]
    rows = [
        (
            "**Latency**",
            f"**{least}{duration(totals.latency_ms * 1e3)}**, {totals.interval * 100:.0f} % interval "
            f"{duration(totals.latency_low_ms * 1e3)} to {duration(totals.latency_high_ms * 1e3)}",
        ),
        (
            "of which",
            f"{duration(totals.kernel_ms * 1e3)} in kernels, {duration(totals.overhead_ms * 1e3)} waiting for the host",
        ),
        (
            "**Throughput**",
            idle_text(totals)
            or f"{most}{significant(totals.throughput_per_s)} samples/s at batch size {totals.batch_size:,}"
            f"{tokens_text(totals)}",
        ),
        ("of which", "" if report.training is None else _text(phases_text(report))),
        ("host", host_text(report.host) if report.host.is_bound else ""),
        ("**Fusion**", fusion_text(report.fusion) if report.fusion.saved_kernel_count > 0 else ""),
        ("**Bound by**", ", ".join(f"{_text(part.label)} {percent(part.share)}" for part in by_bound(report))),
        (
            "**Work**",
            f"{scaled(totals.flops, 'FLOP')} ({scaled(totals.macs, 'MAC')}), "
            f"{scaled(totals.read_bytes, 'B')} read, {scaled(totals.write_bytes, 'B')} written",
        ),
        (
            "**Memory**",
            f"{capacity(memory.peak_bytes)} ({capacity(memory.low_bytes)} to {capacity(memory.high_bytes)}) of "
            f"{capacity(memory.available_bytes)}: {memory.verdict if memory.fits else '**does not fit**'}",
        ),
        ("of which", ", ".join(f"{name} {capacity(size)}" for name, size in memory_parts(memory) if size)),
        ("**Trained**", "" if report.training is None else _text(trained_text(report.training))),
        ("kept", "" if report.training is None else _text(kept_text(report.training))),
        ("largest batch", "" if memory.largest_batch is None else _text(largest_batch_text(memory.largest_batch))),
        ("**Nodes**", _nodes(coverage)),
        ("**Predicted**", ", ".join(shares)),
    ]
    return [row for row in rows if row[1]]


def _empty_summary(report: Report, cause: str) -> list[tuple[str, str]]:
    return [
        ("**Latency**", f"**unknown**: nothing could be costed; {_text(cause)}"),
        ("**Nodes**", _nodes(report.coverage)),
    ]


def _nodes(coverage: Coverage) -> str:
    reasons = [f"{number:,} {_text(reason)}" for reason, number in coverage.free_reasons.items()]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"{coverage.kernel_node_count:,} in kernels, {coverage.free_node_count:,} free{why}, "
        f"{coverage.unsupported_node_count:,} not supported"
    )


def _list(title: str, items: Sequence[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {_text(item)}" for item in items)] if items else []
