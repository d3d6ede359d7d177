"""Words for a model under changes, beside its base."""

from __future__ import annotations

from neusight_onnx.report.comparison_words import Shown, figure_heads, figures, shown_of
from neusight_onnx.report.difference_words import change
from neusight_onnx.report.grouping import by_bound
from neusight_onnx.report.model import Report, deciding_first
from neusight_onnx.report.precision_words import short_precision

BASE = "as it is"


def variant_heads(report: Report) -> tuple[tuple[str, str], ...]:
    """(title, "left" or "right") of each column."""
    precision = (("precision", "left"),) if _differ_in_precision(report) else ()
    return (("what if", "left"), *precision, ("change", "right"), *figure_heads(_shown(report)))


def variant_rows(report: Report) -> list[list[str]]:
    """The base, then each variant with the change of its latency."""
    base = report.totals
    shares = {part.label: part.share for part in by_bound(report)}
    shares = deciding_first(shares, is_host_bound=report.host.is_bound)
    shown = _shown(report)
    settings = report.settings
    own = [short_precision(settings.precision, settings.product_formats)] if _differ_in_precision(report) else []
    rows = [[BASE, *own, "", *figures(base, shares, shown)]]
    for variant in report.what_if:
        changed = change(base.latency_ms, variant.totals.latency_ms)
        found = figures(variant.totals, variant.bound_shares, shown)
        rows.append(
            [
                variant.changes,
                *([short_precision(variant.precision, variant.product_formats)] if own else []),
                changed,
                *found,
            ]
        )
    return rows


def _differ_in_precision(report: Report) -> bool:
    own = report.settings
    return any(
        (variant.precision, variant.product_formats) != (own.precision, own.product_formats)
        for variant in report.what_if
    )


def _shown(report: Report) -> Shown:
    return shown_of((report.totals, *(variant.totals for variant in report.what_if)))
