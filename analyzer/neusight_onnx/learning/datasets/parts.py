"""Measured kernels, and the parts of files whose kernels are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import BY_LABEL, DataType
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import Attention, Kernel
from neusight_onnx.learning.datasets.tables import Table, grouped, strings, take

EVENTS = "events"
"""Timed by events around one launch on an idle GPU: the host's launch time is part of the figure."""
DEVICE = "device"
"""The kernel's own time (replay of a graph of many launches, or a profiler)."""


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Measured kernels of one class, dtype and file; every array has an entry for each of ``kernels``.

    ``operation`` is the file's own name of what ran ("bmm", "linear", …), ``split`` the part of the file,
    ``kernel_name`` what the profiler saw (empty: unknown). A *session* is a GPU x operation x split: rows that
    were measured in one go, so that they share the host's launch time and the state of the card.

    ``position``: where in its session a row was measured, from 0 (first) to 1 (last), for sessions whose host time
    drifts; None: the host time of a session is one number.
    """

    file: str
    kernel_class: str
    dtype: str
    timing: str
    kernels: tuple[Kernel, ...]
    gpu: NDArray[np.str_]
    operation: NDArray[np.str_]
    split: NDArray[np.str_]
    measured_us: NDArray[np.float64]
    kernel_name: NDArray[np.str_]
    position: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.kernels)

    @cached_property
    def session(self) -> NDArray[np.str_]:
        """The session of each row, "gpu/operation/split"."""
        parts = zip(self.gpu.tolist(), self.operation.tolist(), self.split.tolist(), strict=True)
        return np.array(["/".join(part) for part in parts], dtype=np.str_)

    @cached_property
    def shape_group(self) -> NDArray[np.int64]:
        """Equal numbers for equal kernels, in order of first appearance: what must not be split between folds.

        Attention with and without the kernel that writes the cache beside it is one shape.
        """
        number_of: dict[Kernel, int] = {}
        kernels = [without_cache_write(kernel) for kernel in self.kernels]
        return np.array([number_of.setdefault(kernel, len(number_of)) for kernel in kernels], dtype=np.int64)

    @property
    def scored_us(self) -> float:
        """Rows below are not judged: they show the launch and not the kernel."""
        return 50.0 if self.timing == EVENTS else 5.0

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Measurements:
        """The given rows only (a mask or indices)."""
        indices = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Measurements(
            file=self.file,
            kernel_class=self.kernel_class,
            dtype=self.dtype,
            timing=self.timing,
            kernels=tuple(self.kernels[i] for i in indices),
            gpu=self.gpu[indices],
            operation=self.operation[indices],
            split=self.split[indices],
            measured_us=self.measured_us[indices],
            kernel_name=self.kernel_name[indices],
            position=None if self.position is None else self.position[indices],
        )


def without_cache_write(kernel: Kernel) -> Kernel:
    """The kernel, attention without the writing of the cache beside it."""
    return replace(kernel, cache_write_elements=0) if isinstance(kernel, Attention) else kernel


class Loader(Protocol):
    """Makes the measurements of a part, or of the given rows of it (indices into its ``gpu``)."""

    def __call__(self, rows: NDArray[np.int64] | None = None) -> Measurements: ...


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows of one file that are of one kernel class and dtype; ``load`` makes the kernels, which takes a while.

    ``load`` is None where rows have no kernel in this program, with the ``reason``; ``gpu`` names the GPU of each row.
    ``variant``: which of several implementations in the file ran (a framework), where times must not be pooled.
    ``strata``: what a sample takes its rows from evenly, one name a row; None: the GPUs.
    """

    file: str
    kernel_class: str
    dtype: str
    gpu: NDArray[np.str_]
    load: Loader | None
    variant: str = ""
    reason: str = ""
    strata: NDArray[np.str_] | None = None

    def sample(self, count: int) -> NDArray[np.int64]:
        """Rows, at most ``count`` of each stratum, in order; the same ones every time."""
        chosen = []
        for (name,), rows in grouped(self.gpu if self.strata is None else self.strata):
            if rows.size > count:
                key = "/".join((self.file, self.kernel_class, self.dtype, self.variant, name))
                random = np.random.default_rng(crc32(key.encode()))
                rows = random.choice(rows, count, replace=False)
            chosen.append(rows)
        return np.sort(np.concatenate(chosen))


def device_part(
    file: str,
    kernel_class: str,
    dtype: str,
    table: Table,
    make: Callable[[Table], Sequence[Kernel]] | None,
    *,
    operation: str = "",
    kernel_name: str | None = None,
    variant: str = "",
    reason: str = "",
) -> Part:
    """A part of rows that hold the kernel's own time; ``operation`` defaults to the class.

    ``kernel_name``: the column of the table that says what ran.
    """
    gpu = np.char.lower(np.char.replace(strings(table["gpu"]), "NV ", "")).astype(np.str_)

    def load(rows: NDArray[np.int64] | None = None) -> Measurements:
        assert make is not None, "a part without kernels isn't loaded"
        part = table if rows is None else take(table, rows)
        kernels = tuple(make(part))
        count = len(kernels)
        return Measurements(
            file=file,
            kernel_class=kernel_class,
            dtype=dtype,
            timing=DEVICE,
            kernels=kernels,
            gpu=gpu if rows is None else gpu[rows],
            operation=np.full(count, operation or kernel_class),
            split=np.full(count, "all"),
            measured_us=part["latency_ms"].astype(np.float64) * 1e3,
            kernel_name=np.full(count, "") if kernel_name is None else strings(part[kernel_name]),
        )

    return Part(
        file=file,
        kernel_class=kernel_class,
        dtype=dtype,
        gpu=gpu,
        load=None if make is None else load,
        variant=variant,
        reason=reason,
    )


def parts_by_dtype(
    file: str,
    table: Table,
    labels: NDArray[np.str_],
    kernel_class: str,
    make: Callable[[Table, DataType], list[Kernel]],
    *,
    operation: str = "",
    variant: str = "",
    kernel_name: str | None = None,
) -> list[Part]:
    """Device-timed rows, one part per label; a label that is no dtype of ours has no kernels."""
    parts = []
    for (label,), members in grouped(labels):
        rows = members[table["latency_ms"][members] > 0]
        dtype = BY_LABEL.get(label)

        def of_dtype(part: Table, dtype: DataType | None = dtype) -> list[Kernel]:
            assert dtype is not None, "a part without a dtype isn't loaded"
            return make(part, dtype)

        if rows.size:
            parts.append(
                device_part(
                    file,
                    kernel_class,
                    label,
                    take(table, rows),
                    of_dtype if dtype is not None else None,
                    operation=operation,
                    variant=variant,
                    kernel_name=kernel_name,
                    reason="" if dtype is not None else f"no number format of this name: {label}",
                )
            )
    return parts


def joined(parts: Sequence[Part]) -> list[Part]:
    """Parts that agree in all but their rows as one."""
    groups: dict[tuple[str, ...], list[Part]] = {}
    for part in parts:
        key = (part.file, part.kernel_class, part.dtype, part.variant, part.reason, str(part.load is None))
        groups.setdefault(key, []).append(part)
    return [members[0] if len(members) == 1 else _join(members) for members in groups.values()]


def _join(members: Sequence[Part]) -> Part:
    first = members[0]
    ends = np.cumsum([member.gpu.size for member in members])

    def load(rows: NDArray[np.int64] | None = None) -> Measurements:
        wanted = np.arange(ends[-1]) if rows is None else rows
        place = np.searchsorted(ends, wanted, side="right")
        loaded = []
        for i, member in enumerate(members):
            assert member.load is not None, "parts without kernels are not joined with others"
            own = wanted[place == i] - (ends[i] - member.gpu.size)
            if own.size:
                loaded.append(member.load(own))
        order = np.argsort(np.concatenate([np.flatnonzero(place == i) for i in range(len(members))]), kind="stable")
        kernels = [kernel for part in loaded for kernel in part.kernels]

        def column(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(part, name) for part in loaded])[order]

        return Measurements(
            file=first.file,
            kernel_class=first.kernel_class,
            dtype=first.dtype,
            timing=loaded[0].timing,
            kernels=tuple(kernels[i] for i in order.tolist()),
            gpu=column("gpu"),
            operation=column("operation"),
            split=column("split"),
            measured_us=column("measured_us"),
            kernel_name=column("kernel_name"),
        )

    return Part(
        file=first.file,
        kernel_class=first.kernel_class,
        dtype=first.dtype,
        gpu=np.concatenate([member.gpu for member in members]),
        load=None if first.load is None else load,
        variant=first.variant,
        reason=first.reason,
    )


def one_after_another(parts: Sequence[Measurements]) -> Measurements:
    """Rows of parts of one class and timing; file, class and dtype are the first one's."""
    return replace(
        parts[0],
        kernels=tuple(kernel for part in parts for kernel in part.kernels),
        gpu=np.concatenate([part.gpu for part in parts]),
        operation=np.concatenate([part.operation for part in parts]),
        split=np.concatenate([part.split for part in parts]),
        measured_us=np.concatenate([part.measured_us for part in parts]),
        kernel_name=np.concatenate([part.kernel_name for part in parts]),
    )


def known_gpus(measurements: Measurements, log: Callable[[str], None] = print) -> dict[str, GpuSpec]:
    """Specs of the GPUs that rows name; GPUs without a spec are reported and left out."""
    specs: dict[str, GpuSpec] = {}
    for name in sorted(set(measurements.gpu.tolist())):
        try:
            specs[name] = load_gpu(name)
        except SpecError as error:
            count = int(np.count_nonzero(measurements.gpu == name))
            log(f"{measurements.file}: {count} rows of {name} skipped: {error}")
    return specs
