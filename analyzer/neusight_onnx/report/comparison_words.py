"""Words for a comparison, the same in every format that is read by people."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from neusight_onnx.report.comparison import Case, Comparison, SortKey
from neusight_onnx.report.execution import run_texts
from neusight_onnx.report.model import DOES_NOT_FIT, FITS, TIGHT, Totals
from neusight_onnx.report.quantities import (
    capacity,
    counted,
    dims_text,
    duration,
    duration_range,
    significant,
)

BEST = {
    SortKey.LATENCY: "the lowest latency",
    SortKey.THROUGHPUT: "the highest throughput",
    SortKey.MEMORY: "the least memory",
    SortKey.COST: "the lowest cost",
}
"""What the best case has."""

UNKNOWN = "unknown"
INTERVAL, PER_S, MEMORY, BOUND = "interval", "per s", "memory", "bound"
SPARED = (BOUND, PER_S, INTERVAL, MEMORY)
"""Columns that a narrow terminal does without, these first; throughput is the batch over the latency."""
_SORTED_BY = {SortKey.THROUGHPUT: PER_S, SortKey.MEMORY: MEMORY}

_SHORT_VERDICTS = {FITS: "fits", TIGHT: "tight", DOES_NOT_FIT: "too large"}


def heads(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """(title, "left" or "right") of each column: what the cases differ in, then the figures."""
    named = [("GPU", "left")]
    named += [(title, "left") for title in ("precision", "runtime") if title in comparison.varied]
    named += [(name, "right") for name in varied_dims(comparison)]
    return (*named, *figure_heads(comparison_fits(comparison)), *([("cost", "right")] if is_priced(comparison) else []))


def cells(case: Case, comparison: Comparison) -> list[str]:
    """One line of the table, as :func:`heads` names its columns."""
    found = [case.gpu.name]
    found += [case.precision] if "precision" in comparison.varied else []
    found += [case.runtime] if "runtime" in comparison.varied else []
    found += [str(case.dims.get(name, "")) for name in varied_dims(comparison)]
    found += figures(case.totals, case.bound_shares, all_fit=comparison_fits(comparison))
    if is_priced(comparison):
        cost = case.cost()
        found.append("-" if cost is None else significant(cost))
    return found


def is_priced(comparison: Comparison) -> bool:
    """Whether the price of any GPU is known."""
    return any(case.price_per_h is not None for case in comparison.cases)


def comparison_fits(comparison: Comparison) -> bool:
    """Whether all cases fit, so that no column needs to say so."""
    return all(case.totals.memory.verdict == FITS for case in comparison.cases)


def figure_heads(all_fit: bool) -> tuple[tuple[str, str], ...]:
    """The columns of :func:`figures`."""
    fits = () if all_fit else (("fits", "left"),)
    return (("latency", "right"), (INTERVAL, "right"), (PER_S, "right"), (MEMORY, "right"), *fits, (BOUND, "left"))


def figures(totals: Totals, bound_shares: Mapping[str, float], *, all_fit: bool) -> list[str]:
    """Latency, interval, samples a second, memory, whether it fits unless all do, and what bounds most of the time.

    Where something counts as nothing, latency and throughput are bounds: ">8.36 ms", "<957".
    """
    memory = totals.memory
    least, most = (">", "<") if totals.partial else ("", "")
    kept = [capacity(memory.peak_bytes), *([] if all_fit else [_SHORT_VERDICTS[memory.verdict]])]
    if totals.partial and not totals.latency_ms:
        return [UNKNOWN, "-", "-", *kept, "-"]
    return [
        f"{least}{duration(totals.latency_ms * 1e3)}",
        duration_range(totals.latency_low_ms * 1e3, totals.latency_high_ms * 1e3),
        f"{most}{significant(totals.throughput_per_s)}" if totals.latency_ms else "-",
        *kept,
        next(iter(bound_shares), "-"),
    ]


def varied_dims(comparison: Comparison) -> tuple[str, ...]:
    return tuple(name for name in comparison.varied if name not in ("gpu", "precision", "runtime"))


def same_for_all(comparison: Comparison) -> list[str]:
    """The settings that all cases share, one text each."""
    first = comparison.cases[0]
    fixed = {
        name: size
        for name, size in first.dims.items()
        if name not in comparison.varied and all(case.dims.get(name) == size for case in comparison.cases)
    }
    found = [] if comparison.mode == "inference" else [comparison.mode]
    found += [] if "precision" in comparison.varied else [first.precision]
    run = run_texts(
        first.runtime,
        cuda_graph=comparison.cuda_graph,
        include_io=comparison.include_io,
        channels_last=comparison.channels_last,
    )
    if "runtime" in comparison.varied:
        run[:1] = ["in CUDA graphs"] if comparison.cuda_graph else []
    found += run
    return [*found, *([dims_text(fixed, ",")] if fixed else [])]


def spared(comparison: Comparison) -> tuple[str, ...]:
    """:data:`SPARED` without the column that the cases are sorted by."""
    return tuple(title for title in SPARED if title != _SORTED_BY.get(comparison.sort))


def left_out_note(left_out: Collection[str], width: int) -> list[str]:
    """What is said of columns that a terminal of ``width`` has no room for."""
    return [f"left out to fit {width} columns: {', '.join(left_out)}"] if left_out else []


def legend(interval: float, *, all_fit: bool, left_out: Collection[str] = ()) -> list[str]:
    """What the columns of :func:`figures` are, but for those that are left out; one line, or none."""
    parts = [] if INTERVAL in left_out else [f"interval: {interval * 100:.0f} % of cases"]
    parts += [] if PER_S in left_out else ["per s: samples"]
    parts += ["all fit the memory with room"] if all_fit else []
    parts += (
        []
        if BOUND in left_out
        else ["bound: what most of the time is spent on, or the host where it takes longer than all kernels"]
    )
    return ["; ".join(parts)] if parts else []


def notes(comparison: Comparison, left_out: Collection[str] = ()) -> list[str]:
    """What the table needs to be understood, the best case first; columns that are left out need nothing."""
    cases = comparison.cases
    found = []
    if comparison.has_best:
        rest = " of those that fit" if not comparison_fits(comparison) else ""
        found.append(f"best: {BEST[comparison.sort]}{rest}")
    elif not any(case.totals.memory.fits for case in cases):
        found.append("none fits: the latencies are those of a GPU with more memory")
    found += legend(cases[0].totals.interval, all_fit=comparison_fits(comparison), left_out=left_out)
    if is_priced(comparison):
        of_what = "inferences" if comparison.mode == "inference" else "samples"
        found.append(f"cost: {f'in {comparison.currency} ' if comparison.currency else ''}of a million {of_what}")
    if any(case.totals.partial for case in cases):
        nodes = max(case.unsupported_count for case in cases)
        found.append(f"> at least, < at most: {counted(nodes, 'node')} not supported and counted as nothing")
    return found
