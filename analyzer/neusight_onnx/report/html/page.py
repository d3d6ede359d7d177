"""The page: what can be read without scripts, the style, the scripts, and their data, in one file.

A strict content security policy stands in it: nothing is fetched, and only the style and the script whose digests it
names are run. What comes from the model's file is escaped text in HTML, and data in JSON that can't end its element.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from neusight_onnx.report.execution import fusion_text, host_text, idle_text, run_texts, tokens_text
from neusight_onnx.report.grouping import (
    Slice,
    by_bound,
    by_kernel_class,
    folded,
    interval_assumption,
    nothing_costed,
    unsupported_groups,
)
from neusight_onnx.report.html.data import report_data
from neusight_onnx.report.json_text import Json
from neusight_onnx.report.memory import largest_batch_text
from neusight_onnx.report.model import DOES_NOT_FIT, FITS, MemoryEstimate, Report
from neusight_onnx.report.peak import share_of_peak
from neusight_onnx.report.precision_words import precision_of
from neusight_onnx.report.quantities import (
    capacity,
    counted,
    duration,
    parameters,
    percent,
    printable,
    scaled,
    shape_text,
    shorten,
    significant,
)
from neusight_onnx.report.training import kept_text, phase_shares

_FOLDER = Path(__file__).parent
_SCRIPTS = ("base.js", "roofline.js", "classes.js", "memory.js", "kernels.js", "sweep.js", "main.js")
BOUNDS = ("compute", "issue", "memory", "l2", "latency", "floor", "pcie", "cpu", "host")
"""What can bound a kernel, and the host; each has a colour in the style."""

_MOST_LISTED = 200
"""Entries of a list (warnings, unsupported operators) on the page."""
_MOST_TEXT = 2_000
_MOST_NAME = 160


def to_html(report: Report) -> str:
    """The report as one HTML file. Memory over time is in it if the report has a timeline of it."""
    settings = report.settings
    dims = [f"{_name(name)}={size}" for name, size in settings.dims.items()]
    run = run_texts(
        settings.runtime,
        cuda_graph=settings.cuda_graph,
        include_io=settings.include_io,
        channels_last=settings.channels_last,
    )
    precision = precision_of(report)
    chips = [settings.mode, precision, *run, *dims[:_MOST_LISTED]]
    facts = f"{counted(report.model.node_count, 'node')}, {parameters(report.model.parameter_count)} parameters"
    cause = nothing_costed(report)
    body = [
        "<main>",
        _unknown(cause) if cause is not None else _tiles(report),
        _warnings(report),
        _charts(report) if report.kernels else "",
        _memory(report.totals.memory) if cause is None else "",
        _KERNELS if report.kernels else "",
        _unsupported(report),
        _background(report),
        "</main>",
    ]
    model = report.model.path.rsplit("/", 1)[-1]
    return page_text(
        title=f"{model} on {report.gpu.label}",
        heading=f"{_name(model)} <span>on</span> {_name(report.gpu.label)}",
        heading_is_html=True,
        subtitle=" · ".join([*chips, facts]),
        body="".join(body),
        data=report_data(report),
        version=report.tool_version,
    )


def page_text(
    *,
    title: str,
    heading: str,
    subtitle: str,
    body: str,
    data: Mapping[str, Json],
    version: str,
    heading_is_html: bool = False,
) -> str:
    """The whole file. ``title``, ``subtitle`` and ``heading`` are texts (unless it is said to be HTML), ``body`` is
    HTML; ``data`` is what the scripts draw, its key "kind" says which of them."""
    style = _read("page.css")
    script = "\n".join(_read(name) for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    shown = heading if heading_is_html else escape(heading)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="neusight-onnx {escape(version)}">
<link rel="icon" href="data:,">
<title>{_text(shorten(title, _MOST_NAME))}</title>
<style>{style}</style>
</head>
<body>
<header class="top"><div><h1>{shown}</h1><p class="sub">{_text(subtitle)}</p></div>
<div class="theme" role="group" aria-label="Colours" hidden>
<button type="button" data-theme-choice="auto">Auto</button>
<button type="button" data-theme-choice="light">Light</button>
<button type="button" data-theme-choice="dark">Dark</button>
</div></header>
<noscript><p class="note">Scripts are off: the charts and the table of kernels stay empty.</p></noscript>
{body}
<footer>Predicted by neusight-onnx {escape(version)}, not measured.</footer>
<div class="tip" id="tip" role="status" hidden></div>
<script type="application/json" id="data">{_json(data)}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(data: Mapping[str, Json]) -> str:
    """JSON in which nothing can end the element around it, or begin a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(text: str) -> str:
    return escape(printable(shorten(text, _MOST_TEXT)))


def _name(text: str) -> str:
    return escape(printable(shorten(text, _MOST_NAME)))


# --- what can be read without scripts ---------------------------------------------------------------------------------


def _unknown(cause: str) -> str:
    return f'<section class="card bad"><h2>No latency</h2><p>Nothing could be costed: {_text(cause)}</p></section>'


def _tiles(report: Report) -> str:
    totals, memory = report.totals, report.totals.memory
    least, most = ("at least ", "at most ") if totals.partial else ("", "")
    seconds = totals.latency_ms / 1e3
    flops_per_s = totals.flops / seconds if seconds else 0.0
    rate = f"{scaled(flops_per_s, 'FLOP/s')}{share_of_peak(report, flops_per_s)}" if seconds else ""
    moved = totals.read_bytes + totals.write_bytes
    return "".join(
        [
            '<section class="tiles" aria-label="Summary">',
            _tile(
                "Latency",
                f"{least}{duration(totals.latency_ms * 1e3)}",
                _interval(totals.latency_low_ms, totals.latency_ms, totals.latency_high_ms)
                + f"<p>{totals.interval * 100:.0f} % interval {duration(totals.latency_low_ms * 1e3)} to "
                f"{duration(totals.latency_high_ms * 1e3)}</p>" + _host(report),
                "wide",
            ),
            _tile(
                "Throughput",
                idle_text(totals) or f"{most}{significant(totals.throughput_per_s)} <small>samples/s</small>",
                f"<p>at batch size {totals.batch_size:,}{tokens_text(totals)}</p>",
            ),
            _tile("Bound by", *_bound(by_bound(report))),
            _tile(
                "Memory",
                f'{capacity(memory.peak_bytes)} <span class="badge {_grade(memory)}">{escape(memory.verdict)}</span>',
                _bar([("part k0", memory.peak_bytes / memory.available_bytes)])
                + f"<p>{capacity(memory.low_bytes)} to {capacity(memory.high_bytes)} of "
                f"{capacity(memory.available_bytes)}</p>",
            ),
            _tile(
                "Work",
                scaled(totals.flops, "FLOP"),
                f"<p>{rate}</p><p>{scaled(moved, 'B')} moved"
                + (f", {scaled(moved / seconds, 'B/s')}" if seconds else "")
                + "</p>",
            ),
            _tile("Nodes", *_nodes(report)),
            "" if report.training is None else _trained(report),
            "</section>",
        ]
    )


def _host(report: Report) -> str:
    """How long the GPU waits for the host, and whether it is the host that takes the time."""
    totals = report.totals
    parts = f"{duration(totals.kernel_ms * 1e3)} in kernels, {duration(totals.overhead_ms * 1e3)} waiting for the host"
    waits = f"<p>{parts}</p>" if totals.overhead_ms > 0 else ""
    return waits + (f'<p class="fair">{host_text(report.host)}</p>' if report.host.is_bound else "")


def _trained(report: Report) -> str:
    assert report.training is not None, "asked in training only"
    phases = "".join(f"<p>{phase} {duration(us)}, {percent(share)}</p>" for phase, us, share in phase_shares(report))
    kept = f"<p>kept: {_text(kept_text(report.training))}</p>"
    return _tile("Step of training", _text(report.training.optimizer), phases + kept)


def _tile(label: str, value: str, more: str, extra: str = "") -> str:
    return f'<div class="tile {extra}"><h2>{label}</h2><p class="value">{value}</p>{more}</div>'


def _interval(low: float, middle: float, high: float) -> str:
    """A rule from nothing to the high end, with the interval and the prediction on it."""
    if high <= 0:
        return ""
    start, at = 100 * low / high, 100 * middle / high
    return (
        '<svg class="rule" width="100%" height="12" aria-hidden="true"><rect class="track" width="100%" height="4" '
        f'y="4" rx="2"/><rect class="span" x="{start:.2f}%" width="{100 - start:.2f}%" height="4" y="4" rx="2"/>'
        f'<circle class="mark" cx="{at:.2f}%" cy="6" r="5"/></svg>'
    )


def _bar(parts: Iterable[tuple[str, float]]) -> str:
    """A stacked bar of shares of 1, each with its style."""
    drawn = []
    start = 0.0
    for style, share in parts:
        width = min(share, 1.0 - start)
        drawn.append(f'<rect class="{style}" x="{100 * start:.2f}%" width="{100 * max(width, 0.0):.2f}%" height="8"/>')
        start += width
    return (
        '<svg class="bar" width="100%" height="8" aria-hidden="true"><rect class="track" width="100%" height="8"/>'
        f"{''.join(drawn)}</svg>"
    )


def _bound(slices: Sequence[Slice]) -> tuple[str, str]:
    """The largest part as the value; all parts as a bar with its legend."""
    if not slices:
        return "nothing", ""
    largest = max(slices, key=lambda part: part.share)
    styles = [f"b-{part.label}" if part.label in BOUNDS else "k8" for part in slices]
    legend = "".join(
        f'<span><i class="dot {style}"></i>{escape(part.label)} {percent(part.share)}</span>'
        for style, part in zip(styles, slices, strict=True)
    )
    bar = _bar((f"part {style}", part.share) for style, part in zip(styles, slices, strict=True))
    return f"{escape(largest.label)} <small>{percent(largest.share)}</small>", f'{bar}<p class="legend">{legend}</p>'


def _grade(memory: MemoryEstimate) -> str:
    return {FITS: "good", DOES_NOT_FIT: "bad"}.get(memory.verdict, "fair")


def _nodes(report: Report) -> tuple[str, str]:
    coverage = report.coverage
    missing = coverage.unsupported_node_count
    count = f"{coverage.node_count:,}"
    badge = f' <span class="badge bad">{missing:,} not supported</span>' if missing else ""
    shares = ", ".join(f"{percent(share)} {escape(name)}" for name, share in coverage.latency_share.items() if share)
    return count + badge, (
        f"<p>{coverage.kernel_node_count:,} in kernels, {coverage.free_node_count:,} free</p>"
        + (f"<p>time: {shares}</p>" if shares else "")
        + (f"<p>fusion: {fusion_text(report.fusion)}</p>" if report.fusion.saved_kernel_count > 0 else "")
    )


def _warnings(report: Report) -> str:
    notices = [
        _text(notice.message) + (f" <code>{_name(notice.node)}</code>" if notice.node else "")
        for notice in report.warnings
    ]
    return f'<section class="card fair"><h2>Warnings</h2>{_list(notices)}</section>' if notices else ""


def _list(items: Sequence[str]) -> str:
    """A list of HTML texts; of a long one the first, and how many there are."""
    more = f"<li>and {len(items) - _MOST_LISTED:,} more</li>" if len(items) > _MOST_LISTED else ""
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items[:_MOST_LISTED]) + more + "</ul>"


def _charts(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{escape(part.label)}</td><td>{part.kernel_count:,}</td><td>{duration(part.latency_us)}</td>"
        f"<td>{percent(part.share)}</td></tr>"
        for part in by_kernel_class(report)
    )
    return (
        '<div class="two"><section class="card" id="classes"><div class="head"><h2>Time by kernel class</h2></div>'
        f'<noscript><table class="plain"><tr><th>class</th><th>kernels</th><th>time</th><th>share</th></tr>{rows}'
        '</table></noscript><div class="bars classes"></div><h2>The operators that take most of it</h2>'
        '<div class="bars" id="operators"></div></section>'
        '<section class="card" id="roofline"><div class="head"><h2>Roofline</h2><p class="hint">a point a kernel, its '
        'area its share of the time</p></div><div class="chart tall"></div><p class="hint foot"></p></section></div>'
    )


_PARTS = (
    ("weights", "weight_bytes"),
    ("activations", "activation_bytes"),
    ("workspace", "workspace_bytes"),
    ("allocator", "allocator_bytes"),
    ("context", "context_bytes"),
    ("gradients", "gradient_bytes"),
    ("optimizer", "optimizer_bytes"),
)


def _memory(memory: MemoryEstimate) -> str:
    parts = [(f"m{place}", label, int(getattr(memory, name))) for place, (label, name) in enumerate(_PARTS)]
    whole = max(memory.peak_bytes, 1)
    bar = _bar((f"part {style}", size / whole) for style, _, size in parts)
    legend = "".join(
        f'<span><i class="dot {style}"></i>{label} {capacity(size)}</span>' for style, label, size in parts if size
    )
    alive = "".join(
        f"<tr><td><code>{_name(tensor.name)}</code></td><td>{escape(tensor.kind)}</td>"
        f"<td>{capacity(tensor.byte_count)}</td></tr>"
        for tensor in memory.peak_tensors
    )
    at = f" while <code>{_name(memory.peak_node)}</code> runs" if memory.peak_node else ""
    table = (
        f"<details><summary>Alive at the peak{at}</summary><div class=scroll><table class=plain><thead><tr>"
        f"<th>tensor</th><th>kind</th><th>size</th></tr></thead><tbody>{alive}</tbody></table></div></details>"
        if alive
        else ""
    )
    chart = '<div class="chart" id="memory-chart"></div>' if memory.timeline else ""
    found = memory.largest_batch
    largest = "" if found is None else f"<p>{_text(largest_batch_text(found))}</p>"
    return (
        '<section class="card" id="memory"><div class="head"><h2>Memory over time</h2><p class="hint">tensors alive: '
        f'the area after each node, the line at most while it runs</p></div>{bar}<p class="legend">{legend}</p>'
        f"{largest}{chart}{table}</section>"
    )


_KERNELS = """<section class="card" id="kernels"><div class="head"><h2>Kernels</h2>
<div class="tools">
<input type="search" id="filter" placeholder="Filter: node, operator, dims" aria-label="Filter kernels"
 autocomplete="off" spellcheck="false">
<select id="class" aria-label="Kernel class"><option value="">all classes</option></select>
<select id="bound" aria-label="Bound"><option value="">all bounds</option></select>
<label class="check"><input type="checkbox" id="fused"> of several nodes</label>
<label class="check"><input type="checkbox" id="grouped" checked> equal ones together</label>
</div></div>
<p class="hint" id="count" role="status"></p>
<div class="grid" id="grid" tabindex="0"><table aria-describedby="count"><thead></thead><tbody></tbody></table></div>
<div class="detail" id="detail" hidden></div></section>"""


def _unsupported(report: Report) -> str:
    groups = unsupported_groups(report.unsupported)
    if not groups:
        return ""
    rows = "".join(
        f"<tr><td>{_name(group.op_type)}</td><td>{group.extent}</td><td><code>{_name(group.node)}</code></td>"
        f"<td>{_text(group.reason)}</td></tr>"
        for group in groups[:_MOST_LISTED]
    )
    return (
        '<section class="card bad"><h2>Not supported: counted as nothing</h2><div class="scroll"><table class="plain">'
        f"<thead><tr><th>operator</th><th>nodes</th><th>first</th><th>reason</th></tr></thead><tbody>{rows}</tbody></table>"
        "</div></section>"
    )


def _background(report: Report) -> str:
    model, gpu = report.model, report.gpu
    assumptions = [_text(item) for item in (*folded(report.assumptions), *interval_assumption(report))]
    memory = [_text(item) for item in report.totals.memory.assumptions]
    free = [f"{count:,} {_text(reason)}" for reason, count in report.coverage.free_reasons.items()]
    values = [
        f"{word} <code>{_name(value.name)}</code> {escape(value.dtype or 'unknown type')} "
        + (escape(shape_text(value.shape)) if value.shape is not None else "of unknown shape")
        for word, found in (("input", model.inputs), ("output", model.outputs))
        for value in found
    ]
    opsets = ", ".join(f"{_name(domain or 'ai.onnx')} {version}" for domain, version in list(model.opsets.items())[:20])
    facts = [
        f"file <code>{_name(model.path)}</code>",
        f"IR version {model.ir_version}, opsets {opsets}",
        f"weights {capacity(model.weight_bytes)}",
        *([f"sha256 <code>{escape(model.sha256)}</code>"] if model.sha256 else []),
    ]
    card = [
        f"{escape(gpu.label)}: {gpu.sm_count:,} "
        f"{'SMs' if gpu.vendor == 'NVIDIA' else 'compute units'} at {gpu.clock_hz / 1e6:,.0f} MHz, "
        f"{escape(gpu.architecture)}",
        f"{capacity(gpu.memory_bytes)} {escape(gpu.memory_type)} at {scaled(gpu.memory_bytes_per_s, 'B/s')}, "
        f"L2 {capacity(gpu.l2_bytes)}",
        *(f"{escape(pipe)} {scaled(rate, 'FLOP/s')}" for pipe, rate in gpu.peak_flops_per_s.items()),
    ]
    sections = (
        ("Assumptions", assumptions),
        ("Assumptions about memory", memory),
        ("Free nodes", free),
        ("Model", [*facts, *values]),
        ("GPU", card),
    )
    return (
        '<section class="card background">'
        + "".join(
            f"<details{' open' if title == 'Assumptions' else ''}><summary>{title} "
            f"<small>{len(items):,}</small></summary>"
            f"{_list(items)}</details>"
            for title, items in sections
            if items
        )
        + "</section>"
    )
