"""A difference for programs, and for a comment on a pull request."""

from __future__ import annotations

from neusight_onnx.report.difference import Difference, Side
from neusight_onnx.report.difference_words import (
    classes,
    headline,
    kernel_cells,
    kernel_dims,
    settings,
    totals,
    unsupported,
)
from neusight_onnx.report.json_text import Json, json_text, record_json, rounded
from neusight_onnx.report.markdown_text import table, text

SCHEMA_VERSION = 1


def difference_to_json(difference: Difference) -> str:
    """Every kernel that differs, one a line; docs/report-schema.md describes every key."""
    growth = difference.growth
    kernels: list[Json] = []
    for item in difference.kernels:
        kernels.append({**record_json(item), "delta_us": rounded(item.delta_us)})  # noqa: PERF401 - the type is wider
    return json_text(
        {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "neusight-onnx", "version": difference.tool_version},
            "old": _side(difference.old),
            "new": _side(difference.new),
            "growth": None if growth is None else rounded(growth),
            "limit": difference.limit,
            "unjudged": difference.unjudged,
            "failed": difference.failed,
            "kernels": kernels,
            "new_unsupported": _operators(difference.new_unsupported),
            "gone_unsupported": _operators(difference.gone_unsupported),
            "notes": list(difference.notes),
        }
    )


def _side(side: Side) -> dict[str, Json]:
    found = record_json(side)
    if not side.is_costed:
        found.update(
            dict.fromkeys(("latency_ms", "latency_low_ms", "latency_high_ms", "throughput_per_s", "tokens_per_s"))
        )
    return found


def _operators(found: tuple[tuple[str, str, int], ...]) -> list[Json]:
    return [{"op_type": op_type, "reason": reason, "node_count": count} for op_type, reason, count in found]


def difference_to_markdown(difference: Difference, *, top: int = 10) -> str:
    """For a comment on a pull request: the headline, the totals, the classes, the ``top`` kernels."""
    old, new = difference.old, difference.new
    sections = [
        f"### neusight-onnx diff: {text(headline(difference))}",
        f"old {text(', '.join([old.source, *settings(old)]))}; new {text(', '.join([new.source, *settings(new)]))}",
        table(("", "old", "new", "change"), totals(difference)),
        table(
            ("time by class", "old", "new", "difference", "change"),
            [[text(cell) for cell in row] for row in classes(difference)],
        ),
    ]
    if difference.kernels[:top]:
        rows = []
        for item in difference.kernels[:top]:
            status, what, runs, delta = kernel_cells(item)
            rows.append([status, text(what), text(kernel_dims(item)), text(runs), delta])
        sections.append(table(("", "kernel", "dims", "runs", "difference"), rows))
    remarks = [*unsupported(difference), *difference.notes]
    sections += ["\n".join(f"- {text(note)}" for note in remarks)] if remarks else []
    return "\n\n".join(sections) + "\n"
