"""CSV files of our own measurements: a row a kernel that was timed, or skipped with the reason.

``measurements/`` writes them, ``datasets`` reads them, both with what stands here. A row holds the kernel as JSON, so
that it comes back as the value that it was; the columns beside it are for people.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import DataError
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import KERNEL_CLASSES, Attention, Conv, Gemm, Kernel
from neusight_onnx.learning.kernel_text import kernel_from_text

COLUMNS: tuple[str, ...] = (
    "gpu",
    "device_name",
    "compute_capability",
    "kernel_class",
    "precision",
    "layout",
    "cache",
    "latency_us",
    "low_us",
    "high_us",
    "status",
    "reason",
    "launches",
    "repeats",
    "buffer_sets",
    "set_bytes",
    "kernel_name",
    "cudnn_benchmark",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "power_w",
    "temperature_c",
    "torch",
    "cuda",
    "cudnn",
    "driver",
    "measured_at",
    "kernel",
)
"""In the order of the file. ``measurements/README.md`` says what each holds."""

NEEDED = ("gpu", "precision", "layout", "cache", "latency_us", "status", "kernel")
"""Columns without which a file is no file of measurements."""

MEASURED, SKIPPED = "measured", "skipped"
"""What ``status`` may be."""

STORED = {
    "fp32": DataType.FLOAT32,
    "tf32": DataType.FLOAT32,
    "fp16": DataType.FLOAT16,
    "bf16": DataType.BFLOAT16,
}
"""What ``precision`` may be, and the type of the kernel's tensors then."""

COLD, WARM = "cold", "warm"
"""What ``cache`` may be: whether so many copies of the operands took turns that none was in the L2 any more."""

LAYOUTS = ("", "nhwc")
"""What ``layout`` may be."""

_LONGEST_FIELD = 1 << 20

_SHORTEST_US, _LONGEST_US = 0.1, 3.6e9
"""No launch takes less than some hundred cycles of a clock of 1 to 3 GHz, and a run ends after minutes, not an hour."""

_MOST_BYTES = 1 << 42
"""4 TiB, ten times the memory of the largest GPU (``specs/``): what moves more was never run as one kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A row that holds a time. ``layout``: "nhwc", or empty where there is one way only or the usual one was taken."""

    gpu: str
    kernel: Kernel
    precision: str
    layout: str
    cache: str
    latency_us: float
    kernel_name: str


def is_measured(path: Path) -> bool:
    """Whether a file is one of measurements, by its first line."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            header = next(csv.reader([stream.readline(_LONGEST_FIELD)]), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return {"kernel", "latency_us"} <= set(header)


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a file as text, by column. Raises DataError if it can't be read or lacks a column that is needed."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{path} has no column {', '.join(missing)}; it is no file of measurements")
            for row in reader:
                # a row that was cut off (the run was ended) has no value in its last columns
                if all(isinstance(row.get(name), str) for name in NEEDED):
                    yield {name: value or "" for name, value in row.items() if isinstance(name, str)}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"can't read {path}: {error}; expected a CSV file of measurements") from error


def measured_rows(path: Path) -> list[MeasuredRow]:
    """The rows that hold a time. Raises DataError with the row's number where one can't be understood."""
    found = []
    for number, row in enumerate(read_rows(path), start=2):
        where = f"{path}, row {number}"
        if row["status"] == SKIPPED:
            continue
        for column, known in _CHOICES.items():
            if row[column] not in known:
                names = ", ".join(name or "empty" for name in known)
                raise DataError(f"{where}: {column} {row[column][:40]!r} is none of {names}")
        try:
            kernel, latency_us = kernel_from_text(row["kernel"]), _number(row["latency_us"], "latency_us")
            _require_agreement(row, kernel)
        except ValueError as error:
            raise DataError(f"{where}: {error}; remove the row or measure it again") from error
        if not _SHORTEST_US <= latency_us <= _LONGEST_US:
            shown = row["latency_us"][:40]
            raise DataError(
                f"{where}: latency_us is {shown}, which no kernel takes; remove the row or measure it again"
            )
        found.append(
            MeasuredRow(
                gpu=row["gpu"],
                kernel=kernel,
                precision=row["precision"],
                layout=row["layout"],
                cache=row["cache"],
                latency_us=latency_us,
                kernel_name=row.get("kernel_name", ""),
            )
        )
    return found


_CHOICES: dict[str, Sequence[str]] = {
    "status": (MEASURED, SKIPPED),
    "precision": tuple(STORED),
    "layout": LAYOUTS,
    "cache": (COLD, WARM),
}
"""What columns of few words may be."""


def _require_agreement(row: Mapping[str, str], kernel: Kernel) -> None:
    """ValueError where the columns beside a kernel say another one, or no GPU could have run it."""
    kernel_class = KERNEL_CLASSES[type(kernel)]
    if row.get("kernel_class") not in (None, "", kernel_class):
        raise ValueError(f"kernel_class is {row['kernel_class'][:40]!r}, but its kernel is a {kernel_class}")
    dtype, stored = kernel_dtype(kernel), STORED[row["precision"]]
    # what only moves or compares integers runs alike in every precision
    if dtype is not stored and (dtype.is_float or isinstance(kernel, Attention | Conv | Gemm)):
        raise ValueError(f"precision is {row['precision']}, but its kernel is in {dtype.label}")
    if kernel.read_bytes + kernel.write_bytes > _MOST_BYTES:
        raise ValueError("its kernel moves more than 4 TiB, which no GPU holds")


def _number(text: str, column: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{column} is {text[:40]!r}, which is no number") from None


def line(values: Mapping[str, object]) -> list[str]:
    """A row in the order of the columns; a column that isn't given is empty."""
    return ["" if values.get(name) is None else str(values[name]) for name in COLUMNS]


def append(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Adds rows to a file, which gets its header if it is new. Raises DataError if it can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists() or path.stat().st_size == 0
        with path.open("a", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            if new:
                writer.writerow(COLUMNS)
            writer.writerows(line(row) for row in rows)
    except OSError as error:
        raise DataError(f"can't write {path}: {error.strerror}; give another file") from error
