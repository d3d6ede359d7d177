"""Words for a sweep, the same in every format that is read by people."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from neusight_onnx.report.comparison_words import Shown, figure_heads, figures, legend, shown_of
from neusight_onnx.report.execution import run_texts
from neusight_onnx.report.precision_words import precision_text
from neusight_onnx.report.quantities import counted, dims_text, duration
from neusight_onnx.report.sweep import KNEE_SHARE, Point, Series, Sweep


def _shown(sweep: Sweep) -> Shown:
    return shown_of(point.totals for point in sweep.points if point.totals is not None)


def heads(sweep: Sweep) -> tuple[tuple[str, str], ...]:
    """(title, "left" or "right") of each column of a series."""
    return ((sweep.axis, "right"), *figure_heads(_shown(sweep)))


def cells(point: Point, sweep: Sweep) -> list[str]:
    """One line of a series, as :func:`heads` names its columns."""
    size = f"{point.dims[sweep.axis]:,}"
    if point.totals is None:
        return [size, "refused", *[""] * (len(heads(sweep)) - 2)]
    return [size, *figures(point.totals, point.bound_shares, _shown(sweep))]


def charted(point: Point, sweep: Sweep) -> float:
    """What the chart shows: throughput along a batch, else latency."""
    if point.totals is None:
        return 0.0
    return point.totals.throughput_per_s if sweep.axis_is_batch else point.totals.latency_ms


def limit_text(sweep: Sweep) -> str:
    """ "at most 20.0 ms at the upper end of the interval"."""
    assert sweep.max_latency_ms is not None
    where = "at the upper end of the interval" if sweep.at == "upper" else "at the median"
    return f"at most {duration(sweep.max_latency_ms * 1e3)} {where}"


def found_heads(sweep: Sweep) -> list[str]:
    """Columns of what was found, one line a series."""
    others = [name for name in sweep.varied if name != sweep.axis]
    knee = ["knee"] if sweep.axis_is_batch else []
    limit = [f"within {duration(sweep.max_latency_ms * 1e3)}"] if sweep.max_latency_ms is not None else []
    return [*others, *knee, "fits up to", *limit]


def found_cells(series: Series, sweep: Sweep) -> list[str]:
    """One line of what was found, as :func:`found_heads` names its columns."""
    found = {"knee": series.knee} if sweep.axis_is_batch else {}
    found["largest_that_fits"] = series.largest_that_fits
    if sweep.max_latency_ms is not None:
        found["largest_in_time"] = series.largest_in_time
    named = [f"{size:,}" for size in series.dims.values()]
    none = {name: "not judged" if name in series.not_judged else "none" for name in found}
    return [*named, *(none[name] if size is None else f"{size:,}" for name, size in found.items())]


def notes(sweep: Sweep, left_out: Collection[str] = ()) -> list[str]:
    """What the tables need to be understood; columns that are left out need nothing."""
    totals = next(point.totals for point in sweep.points if point.totals is not None)
    found = legend(totals.interval, _shown(sweep), left_out=left_out)
    if sweep.axis_is_batch:
        found.append(
            f"knee: the smallest {sweep.axis} with {KNEE_SHARE * 100:.0f} % of the highest throughput of those that fit"
        )
    if sweep.max_latency_ms is not None:
        found.append(f"within: of those that fit, the largest with a latency of {limit_text(sweep)}")
    found.append("only the sizes swept count; what lies between them was not tried")
    if sweep.derived:
        found.append(f"{', '.join(sweep.derived)}: another size at other points, as those that are swept ask for")
    if any(point.totals is not None and point.totals.partial for point in sweep.points):
        nodes = max(point.unsupported_count for point in sweep.points)
        found.append(f"> at least, < at most: {counted(nodes, 'node')} not supported and counted as nothing")
    return found


def refusals(sweep: Sweep) -> list[str]:
    """Why points were refused, each fault once, with the first sizes that have it."""
    reasons: dict[str, list[Point]] = {}
    for point in sweep.points:
        if point.refused is not None:
            # what is wrong names the sizes; it is the same fault at others
            reasons.setdefault(re.sub(r"\d+", "0", point.refused), []).append(point)
    return [f"{_where(points)}: {points[0].refused}" for points in reasons.values()]


def _where(points: Sequence[Point]) -> str:
    more = f" and {len(points) - 1} more" if len(points) > 1 else ""
    return f"refused with {dims_text(points[0].dims)}{more}"


def settings(sweep: Sweep) -> list[str]:
    """What all points share, one text each."""
    fixed = dims_text(sweep.dims, ",")
    mode = [] if sweep.mode == "inference" else [sweep.mode]
    run = run_texts(
        sweep.runtime, cuda_graph=sweep.cuda_graph, include_io=sweep.include_io, channels_last=sweep.channels_last
    )
    return [
        *mode,
        precision_text(sweep.precision, sweep.product_formats),
        *run,
        *([fixed] if fixed else []),
        counted(len(sweep.points), "point"),
    ]
