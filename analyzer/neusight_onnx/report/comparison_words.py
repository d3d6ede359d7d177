"""Words for a comparison, the same in every format that is read by people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from neusight_onnx.report.comparison import Comparison, SortKey
from neusight_onnx.report.execution import idle_text, run_texts
from neusight_onnx.report.model import DOES_NOT_FIT, FITS, TIGHT, Totals
from neusight_onnx.report.precision_words import precision_text, short_precision
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
INTERVAL, PER_S, TOKENS_PER_S, MEMORY, BOUND = "interval", "per s", "tokens/s", "memory", "bound"
SPARED = (BOUND, PER_S, TOKENS_PER_S, INTERVAL, MEMORY)
"""Columns that a narrow terminal does without, these first; throughput is the batch over the latency."""
_SORTED_BY = {SortKey.THROUGHPUT: (PER_S, TOKENS_PER_S), SortKey.MEMORY: (MEMORY,)}

_SHORT_VERDICTS = {FITS: "fits", TIGHT: "tight", DOES_NOT_FIT: "too large"}


@dataclass(frozen=True, slots=True)
class Shown:
    """What the columns of runs beside each other show.

    ``all_fit``: all runs fit, so that no column needs to say so. ``in_tokens``: throughput is told in tokens, as every
    run keeps keys and values; else in samples.
    """

    all_fit: bool
    in_tokens: bool

    @property
    def throughput(self) -> str:
        """The title of throughput's column."""
        return TOKENS_PER_S if self.in_tokens else PER_S


def shown_of(runs: Iterable[Totals]) -> Shown:
    """What the columns of ``runs`` beside each other show."""
    listed = list(runs)
    return Shown(
        all_fit=all(totals.memory.verdict == FITS for totals in listed),
        in_tokens=all(totals.tokens_per_s is not None for totals in listed),
    )


def heads(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """(title, "left" or "right") of each column: what the cases differ in, then the figures."""
    named = [("GPU", "left")]
    named += [("precision", "left")] if _differ_in_precision(comparison) else []
    named += [("runtime", "left")] if "runtime" in comparison.varied else []
    named += [(name, "right") for name in varied_dims(comparison)]
    return (*named, *figure_heads(_shown(comparison)), *([("cost", "right")] if is_priced(comparison) else []))


def lines(comparison: Comparison) -> Iterator[list[str]]:
    """The lines of the table, as :func:`heads` names its columns; one for each case."""
    shown, dims, priced = _shown(comparison), varied_dims(comparison), is_priced(comparison)
    for case in comparison.cases:
        is_machine = case.gpu.asked_as is not None and not case.gpu.also_named
        found = [f"{case.gpu.name} ({case.gpu_model})" if is_machine else case.gpu.name]
        found += [short_precision(case.precision, case.product_formats)] if _differ_in_precision(comparison) else []
        found += [case.runtime] if "runtime" in comparison.varied else []
        found += [str(case.dims.get(name, "")) for name in dims]
        found += figures(case.totals, case.bound_shares, shown)
        if priced:
            cost = comparison.cost(case)
            found.append("-" if cost is None else significant(cost))
        yield found


def _differ_in_precision(comparison: Comparison) -> bool:
    return len({(case.precision, case.product_formats) for case in comparison.cases}) > 1


def is_priced(comparison: Comparison) -> bool:
    """Whether the price of any GPU is known."""
    return any(case.price_per_h is not None for case in comparison.cases)


def _shown(comparison: Comparison) -> Shown:
    return shown_of(case.totals for case in comparison.cases)


def figure_heads(shown: Shown) -> tuple[tuple[str, str], ...]:
    """The columns of :func:`figures`."""
    fits = () if shown.all_fit else (("fits", "left"),)
    numbers = ("latency", INTERVAL, shown.throughput, MEMORY)
    return (*((title, "right") for title in numbers), *fits, (BOUND, "left"))


def figures(totals: Totals, bound_shares: Mapping[str, float], shown: Shown) -> list[str]:
    """Latency, interval, throughput, memory, whether it fits unless all do, and what bounds most of the time.

    "-" where no kernel runs. Where something counts as nothing, latency and throughput are bounds: ">8.36 ms", "<957".
    """
    memory = totals.memory
    least, most = (">", "<") if totals.partial else ("", "")
    kept = [capacity(memory.peak_bytes), *([] if shown.all_fit else [_SHORT_VERDICTS[memory.verdict]])]
    throughput = totals.tokens_per_s if shown.in_tokens else totals.throughput_per_s
    if totals.partial and not totals.latency_ms:
        return [UNKNOWN, "-", "-", *kept, "-"]
    return [
        f"{least}{duration(totals.latency_ms * 1e3)}",
        duration_range(totals.latency_low_ms * 1e3, totals.latency_high_ms * 1e3),
        f"{most}{significant(throughput)}" if throughput is not None and not idle_text(totals) else "-",
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
    found += [] if _differ_in_precision(comparison) else [precision_text(first.precision, first.product_formats)]
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
    return tuple(title for title in SPARED if title not in _SORTED_BY.get(comparison.sort, ()))


def left_out_note(left_out: Collection[str], width: int) -> list[str]:
    """What is said of columns that a terminal of ``width`` has no room for."""
    return [f"left out to fit {width} columns: {', '.join(left_out)}"] if left_out else []


def legend(interval: float, shown: Shown, *, left_out: Collection[str] = ()) -> list[str]:
    """What the columns of :func:`figures` are, but for those that are left out; one line, or none."""
    parts = [] if INTERVAL in left_out else [f"interval: {interval * 100:.0f} % of cases"]
    parts += [] if shown.in_tokens or PER_S in left_out else ["per s: samples"]
    parts += ["all fit the memory with room"] if shown.all_fit else []
    parts += (
        []
        if BOUND in left_out
        else ["bound: what most of the time is spent on, or the host where it takes longer than all kernels"]
    )
    return ["; ".join(parts)] if parts else []


def notes(comparison: Comparison, left_out: Collection[str] = ()) -> list[str]:
    """What the table needs to be understood, the best case first; columns that are left out need nothing."""
    cases = comparison.cases
    any_partial = any(case.totals.partial for case in cases)
    found = []
    if comparison.has_best:
        among = [] if _shown(comparison).all_fit else ["that fit"]
        among += ["whose nodes all have a cost"] if any_partial else []
        found.append(f"best: {BEST[comparison.sort]}{' of those ' if among else ''}{' and '.join(among)}")
    elif not any(case.totals.memory.fits for case in cases):
        found.append("none fits: the latencies are those of a GPU with more memory")
    elif any_partial:
        found.append("none is the best: what fits has nodes that count as nothing")
    found += legend(cases[0].totals.interval, _shown(comparison), left_out=left_out)
    if is_priced(comparison):
        of_what = "inferences" if comparison.mode == "inference" else "samples"
        of_what = "tokens" if comparison.in_tokens else of_what
        found.append(f"cost: {f'in {comparison.currency} ' if comparison.currency else ''}of a million {of_what}")
    if any_partial:
        nodes = max(case.unsupported_count for case in cases)
        found.append(f"> at least, < at most: {counted(nodes, 'node')} not supported and counted as nothing")
    return found
