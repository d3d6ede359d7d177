"""What is known of GPUs: all in a table, one in full with its sources."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.report.json_text import json_text, record_json, rounded
from neusight_onnx.report.layout import Canvas, bullets, columns, facts, heading, render
from neusight_onnx.report.quantities import capacity, counted, printable, scaled, significant

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_PIPES = (
    ("fp32", "FP32"),
    ("fp32_matrix", "FP32, matrix cores"),
    ("tf32", "TF32"),
    ("fp16", "FP16"),
    ("fp16_accumulate", "FP16, sums in FP16"),
    ("bf16", "BF16"),
    ("fp8", "FP8"),
    ("int8", "INT8"),
    ("fp4", "FP4"),
)


def gpus_to_json(gpus: Sequence[GpuSpec]) -> str:
    """``{"gpus": [...]}``, each as the report's "gpu"."""
    return json_text({"gpus": [record_json(gpu) for gpu in gpus]})


def gpu_to_json(gpu: GpuSpec) -> str:
    """The report's "gpu" on its own."""
    return json_text({"gpu": record_json(gpu)})


def gpus_to_csv(gpus: Sequence[GpuSpec]) -> str:
    """One row a GPU, under the keys of the JSON but for texts and names; each peak rate has a column of its own."""
    pipes = [pipe for pipe, _ in _PIPES if any(pipe in gpu.peak_flops_per_s for gpu in gpus)]
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    records = [record_json(gpu) for gpu in gpus]
    of_a_question = ("asked_as", "stated_to_halve")
    keys = [key for key, value in records[0].items() if not isinstance(value, list | dict) and key not in of_a_question]
    writer.writerow([*keys, *(f"{pipe}_flops_per_s" for pipe in pipes)])
    for gpu, record in zip(gpus, records, strict=True):
        rates = [gpu.peak_flops_per_s.get(pipe) for pipe in pipes]
        writer.writerow(
            [
                *(printable(cell) if isinstance(cell := record[key], str) else cell for key in keys),
                *(rate and rounded(rate) for rate in rates),
            ]
        )
    return buffer.getvalue()


def gpus_to_terminal(gpus: Sequence[GpuSpec], canvas: Canvas) -> str:
    """All ``gpus``, one a line, the maker of the most first, then by generation and name; rates are dense peaks."""
    from rich.text import Text

    heads = (
        ("name", "left"),
        ("architecture", "left"),
        ("SMs", "right"),
        ("memory", "right"),
        ("GB/s", "right"),
        ("FP32", "right"),
        ("FP16", "right"),
        ("W", "right"),
    )
    makers = Counter(gpu.vendor for gpu in gpus)
    rows: list[tuple[str | Text, ...]] = [
        (
            Text(printable(gpu.name), style="bold"),
            printable(gpu.architecture),
            str(gpu.sm_count),
            capacity(gpu.memory_bytes),
            f"{gpu.memory_bytes_per_s / 1e9:.0f}",
            _teraflops(gpu, "fp32"),
            _teraflops(gpu, "fp16"),
            f"{gpu.power_w:.0f}",
        )
        for gpu in sorted(gpus, key=lambda gpu: (-makers[gpu.vendor], _generation(gpu)))
    ]
    note = Text(
        f"\n{counted(len(gpus), 'GPU')}; FP32 and FP16: dense peak in TFLOP/s. "
        "'neusight-onnx gpus NAME' shows one in full.",
        style="dim",
    )
    return render([columns(heads, rows, canvas), note], canvas)


def gpu_to_terminal(gpu: GpuSpec, canvas: Canvas) -> str:
    """Everything that is known of one GPU, and where it comes from."""
    from rich.text import Text

    unit = "SMs" if gpu.vendor == "NVIDIA" else "compute units"
    capability = f", compute capability {gpu.compute_capability:.1f}" if gpu.compute_capability is not None else ""
    lanes = "" if gpu.pcie_lane_count is None else f" x{gpu.pcie_lane_count}"
    pcie = "" if gpu.pcie_generation is None else f"PCIe {gpu.pcie_generation:g}{lanes}"
    scaleup = (
        "" if gpu.scaleup_bytes_per_s is None else f"{scaled(gpu.scaleup_bytes_per_s, 'B/s')} a direction to peers"
    )
    last_level = "" if gpu.last_level_cache_bytes is None else f", {capacity(gpu.last_level_cache_bytes)} behind it"
    bus = "" if gpu.memory_bus_bits is None else f" over {gpu.memory_bus_bits:,} bits"
    l2_rate = "" if gpu.l2_bytes_per_s is None else f", {scaled(gpu.l2_bytes_per_s, 'B/s')}"
    rows: list[tuple[str, RenderableType]] = [
        ("Names", Text(", ".join(printable(name) for name in (gpu.name, *gpu.aliases, *gpu.device_names)))),
        *([("Also", Text(_others(gpu)))] if gpu.asked_as is not None else []),
        ("Chip", Text(f"{printable(gpu.vendor)} {printable(gpu.architecture)}{capability}, {gpu.process_nm:g} nm")),
        (
            "Processors",
            Text(
                f"{gpu.sm_count} {unit} of {gpu.fp32_lanes_per_sm} FP32 lanes at {gpu.clock_hz / 1e9:.2f} GHz, "
                f"{gpu.max_threads_per_sm:,} threads each, warps of {gpu.warp_size}"
            ),
        ),
        ("Per SM", Text(_per_sm(gpu))),
        (
            "Memory",
            Text(
                f"{capacity(gpu.memory_bytes)} {printable(gpu.memory_type)}, "
                f"{scaled(gpu.memory_bytes_per_s, 'B/s', 4)}{bus}"
            ),
        ),
        ("L2 cache", Text(f"{capacity(gpu.l2_bytes)}{l2_rate}{last_level}")),
        ("Power", Text(f"{gpu.power_w:.0f} W")),
        ("Links", Text(", ".join(part for part in (pcie, scaleup) if part) or "not stated")),
    ]
    summed = gpu.fp16_accumulate_flops_per_s
    rates = dict(gpu.peak_flops_per_s) | ({"fp16_accumulate": summed} if summed and gpu.halves_fp32_sums else {})
    peaks = [
        (f"  {label}", f"{significant(rates[pipe] / 1e12)} {'TOP/s' if pipe == 'int8' else 'TFLOP/s'}")
        for pipe, label in _PIPES
        if pipe in rates
    ]
    parts: list[RenderableType] = [
        Text(printable(gpu.label), style="bold"),
        facts(rows),
        heading("Dense peak rates"),
        columns((("", "left"), ("", "right")), peaks, canvas, headed=False),
    ]
    for title, items in (("Notes", gpu.notes), ("Sources", gpu.sources)):
        if items:
            parts += [heading(title), bullets([printable(item) for item in items], canvas)]
    return render(parts, canvas)


def _others(gpu: GpuSpec) -> str:
    asked = printable(gpu.asked_as or "")
    others = ", ".join(printable(name) for name in gpu.also_named)
    return f"'{asked}' may be {others} as well" if others else f"in '{asked}', by general knowledge"


def _generation(gpu: GpuSpec) -> tuple[str, float, str, list[tuple[int, str]]]:
    """Sorts by maker, by generation (NVIDIA's newest first), and by name as people count: a2 before a10."""
    parts = [(int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", gpu.name)]
    return (gpu.vendor, -(gpu.compute_capability or 0.0), gpu.architecture, parts)


def _per_sm(gpu: GpuSpec) -> str:
    sizes = (
        ("L1", gpu.l1_bytes_per_sm),
        ("shared memory", gpu.shared_memory_bytes_per_sm),
        ("registers", gpu.register_bytes_per_sm),
    )
    return ", ".join(f"{name} {'not stated' if size is None else capacity(size)}" for name, size in sizes)


def _teraflops(gpu: GpuSpec, pipe: str) -> str:
    rate = gpu.peak_flops_per_s.get(pipe)
    return "-" if rate is None else significant(rate / 1e12)
