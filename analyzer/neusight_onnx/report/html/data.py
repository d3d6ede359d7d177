"""What the page's scripts are given: kernels in columns, points of the roofline, memory over time; all of bounded size.

A file decides names, their length and their number. A page must stay readable by a browser whatever the file holds, so
names are cut, rows are limited, and what is left out is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.report.grouping import by_kernel_class, common_name, place_of
from neusight_onnx.report.json_text import Json, rounded
from neusight_onnx.report.model import KernelRow, MemoryPoint, Report
from neusight_onnx.report.peak import peaks_of
from neusight_onnx.report.quantities import dims_text, printable, shorten, tile_text

MOST_ROWS = 20_000
"""Kernels in the table; of a longer run the slowest."""

MOST_POINTS = 1_500
"""Different kernels in the roofline plot; they hide each other long before."""

MOST_STEPS = 1_000
"""Places along the memory chart; a screen has some thousand columns."""

_MOST_NAME = 200
_MOST_NODES = 12
_CUT_NAME = 48
"""What is left of a name once all names together are over the budget."""

NAME_BUDGET = 8_000_000
"""Characters of all names together: what keeps a file of hostile names under some 15 MB."""

_ROOFS = {
    "fp32": "FP32",
    "fp32_matrix": "FP32, matrix cores",
    "tf32": "TF32",
    "fp16": "FP16, {units}",
    "fp16_accumulate": "FP16, sums in FP16",
    "bf16": "BF16, {units}",
    "int8": "INT8, {units}",
    "fp8": "FP8, {units}",
    "fp4": "FP4, {units}",
}
"""Peaks in the order in which they are listed, and what they are called."""
_ROOFS_OF_DTYPE = {
    "float16": ("fp16", "fp16_accumulate"),
    "bfloat16": ("bf16",),
    "int8": ("int8",),
    "uint8": ("int8",),
    "float8e4m3fn": ("fp8",),
    "float8e5m2": ("fp8",),
    "float4e2m1": ("fp4",),
    "tf32": ("tf32",),
}


@dataclass(slots=True, kw_only=True)
class _Names:
    """A table of texts, each stored once."""

    texts: list[Json] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    characters: int = 0

    def add(self, text: str) -> int:
        short = shorten(text, _MOST_NAME if self.characters < NAME_BUDGET else _CUT_NAME)
        place = self.places.get(short)
        if place is None:
            place = self.places[short] = len(self.texts)
            shown = printable(short)
            self.characters += len(shown)
            self.texts.append(shown)
        return place


def report_data(report: Report) -> dict[str, Json]:
    """The numbers behind the page of ``report``; times in us, sizes in bytes, rates per second."""
    names = _Names()
    rows = _kept_rows(report.kernels)
    keys: dict[tuple[object, ...], int] = {}
    members: dict[int, list[KernelRow]] = defaultdict(list)
    for row in rows:
        members[keys.setdefault(_key(row), len(keys))].append(row)
    left_out = len(report.kernels) - len(rows)
    kernel_us = sum(row.latency_us for row in rows)
    classes = by_kernel_class(report)
    class_places = {part.label: place for place, part in enumerate(classes)}
    return {
        "kind": "report",
        "total_us": rounded(report.totals.latency_ms * 1e3),
        "host_us": rounded(report.totals.overhead_ms * 1e3),
        "bandwidth": report.gpu.memory_bytes_per_s,
        "roofs": _roofs(report),
        "classes": [
            {
                "name": printable(part.label),
                "us": rounded(part.latency_us),
                "share": rounded(part.share),
                "count": part.kernel_count,
                "flops": part.flops,
                "bytes": part.byte_count,
            }
            for part in classes
        ],
        "left_out": left_out,
        "left_out_us": rounded(sum(row.latency_us for row in report.kernels) - kernel_us) if left_out else 0,
        "most_points": MOST_POINTS,
        "groups": [
            _group(group, class_places[group[0].kernel_class], names)
            for group in (members[key] for key in keys.values())
        ],
        "rows": [
            [
                keys[_key(row)],
                names.add(place_of(row)),
                row.count,
                [names.add(node) for node in row.nodes[:_MOST_NODES]] if len(row.nodes) > 1 else 0,
                len(row.nodes),
            ]
            for row in rows
        ],
        "memory": _memory(report, names),
        "names": names.texts,
    }


def _kept_rows(kernels: Sequence[KernelRow]) -> Sequence[KernelRow]:
    """All, or the slowest of too many, in the order in which they run."""
    if len(kernels) <= MOST_ROWS:
        return kernels
    slowest = sorted(range(len(kernels)), key=lambda place: -kernels[place].latency_us)[:MOST_ROWS]
    return [kernels[place] for place in sorted(slowest)]


def _key(row: KernelRow) -> tuple[object, ...]:
    """Equal for kernels that differ in nothing but where they stand and how often they run."""
    return (
        row.phase,
        row.kernel_class,
        row.op_types,
        row.dtype,
        tuple(row.dims.items()),
        tuple(row.tile.items()),
        row.wave_count,
        row.bound,
        row.predictor,
        row.utilization,
        row.latency_us / row.count,
        row.flops // row.count,
        row.read_bytes // row.count,
        row.write_bytes // row.count,
    )


def _group(rows: Sequence[KernelRow], class_place: int, names: _Names) -> Json:
    first = rows[0]
    return {
        "place": names.add(common_name([place_of(row) for row in rows])),
        "class": class_place,
        "ops": names.add("+".join(first.op_types[:_MOST_NODES])),
        "dtype": first.dtype,
        "dims": names.add(dims_text(first.dims)),
        "tile": tile_text(first.tile),
        "tiles": first.tile_count,
        "waves": first.wave_count,
        "bound": first.bound,
        "by": first.predictor,
        "util": rounded(first.utilization),
        "us": rounded(first.latency_us / first.count),
        "low": rounded(first.latency_low_us / first.count),
        "high": rounded(first.latency_high_us / first.count),
        "flops": first.flops // first.count,
        "read": first.read_bytes // first.count,
        "write": first.write_bytes // first.count,
        "runs": sum(row.count for row in rows),
    }


def _roofs(report: Report) -> list[Json]:
    """The peaks that the kernels of this report run against: FP32, and those of the types and precision in use."""
    dtypes = {row.dtype for row in report.kernels if row.flops}
    used = {"fp32", report.settings.precision, *(pipe for dtype in dtypes for pipe in _ROOFS_OF_DTYPE.get(dtype, ()))}
    if report.gpu.vendor != "NVIDIA":
        used.add("fp32_matrix")
    peaks = peaks_of(report)
    return [
        {"name": label.format(units=_units(report.gpu, pipe)), "flops": peaks[pipe]}
        for pipe, label in _ROOFS.items()
        if pipe in used and pipe in peaks
    ]


def _units(gpu: GpuSpec, pipe: str) -> str:
    """What multiplies: Pascal has no tensor cores, Volta's take FP16 alone."""
    if not gpu.has_matrix_units or (pipe == "int8" and gpu.int8_on_lanes):
        return "vector lanes"
    return "tensor cores" if gpu.vendor == "NVIDIA" else "matrix cores"


def _memory(report: Report, names: _Names) -> Json:
    memory = report.totals.memory
    timeline = memory.timeline
    if not timeline:
        return None
    base = memory.weight_bytes + memory.context_bytes
    return {
        "node_count": len(timeline),
        "base": base,
        "available": memory.available_bytes,
        "steps": [
            [start, names.add(point.node), live, point.peak_bytes] for start, point, live in _steps_of_memory(timeline)
        ],
    }


def _steps_of_memory(timeline: Sequence[MemoryPoint]) -> list[tuple[int, MemoryPoint, int]]:
    """(place, point, live bytes) at no more than MOST_STEPS places: of neighbours the one with the highest peak."""
    width = -(-len(timeline) // MOST_STEPS)
    found = []
    for start in range(0, len(timeline), width):
        part = timeline[start : start + width]
        at = max(range(len(part)), key=lambda place: part[place].peak_bytes)
        found.append((start + at, part[at], max(point.live_bytes for point in part)))
    return found
