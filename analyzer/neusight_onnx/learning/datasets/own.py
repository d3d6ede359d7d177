"""Own measurements: the CSV files that ``measurements/`` of the repository writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import BY_LABEL
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import KERNEL_CLASSES, Attention, Conv, Gemm, Kernel
from neusight_onnx.learning.datasets.parts import DEVICE, Measurements, Part
from neusight_onnx.learning.measured import MeasuredRow, is_measured, measured_rows

OWN = "own"
"""Operation of rows of own measurements: sessions of their own, on GPUs that others measured as well."""

OWN_FOLDER = "measurements"
"""Folder of a data folder with CSV files of own measurements (``measurements/`` of the repository writes them)."""


def own_files(folder: Path) -> list[str]:
    """The CSV files of own measurements that lie in a folder or in its ``measurements``, relative to it."""
    if not folder.is_dir():
        return []
    inner = [f"{OWN_FOLDER}/{path.name}" for path in sorted((folder / OWN_FOLDER).glob("*.csv"))]
    return [path.name for path in sorted(folder.glob("*.csv")) if is_measured(path)] + inner


def read_own(file: str, path: Path) -> list[Part]:
    """A part per class, number format, layout and state of the cache."""
    rows: dict[tuple[str, str, str], list[MeasuredRow]] = {}
    for row in measured_rows(path):
        kernel = _as_measured(row)
        variant = ", ".join(filter(None, (row.layout, row.cache)))
        label = row.precision if kernel is None else kernel_dtype(kernel).label
        rows.setdefault((KERNEL_CLASSES[type(row.kernel)], label, variant), []).append(row)
    return [_own_part(file, *key, members) for key, members in sorted(rows.items())]


def _own_part(file: str, kernel_class: str, label: str, variant: str, members: Sequence[MeasuredRow]) -> Part:
    names = {name: _canonical(name) for name in {row.gpu for row in members}}
    gpu = np.array([names[row.gpu] for row in members], dtype=np.str_)
    kernels = [_as_measured(row) for row in members]

    def load(rows: NDArray[np.int64] | None = None) -> Measurements:
        chosen = np.arange(len(members)) if rows is None else rows
        known = [kernel for i in chosen.tolist() if (kernel := kernels[i]) is not None]
        assert len(known) == chosen.size, "a part of an unknown format isn't loaded"
        own = [members[i] for i in chosen.tolist()]
        return Measurements(
            file=file,
            kernel_class=kernel_class,
            dtype=label,
            timing=DEVICE,
            kernels=tuple(known),
            gpu=gpu[chosen],
            operation=np.full(len(own), OWN),
            split=np.full(len(own), "all"),
            measured_us=np.array([row.latency_us for row in own], dtype=np.float64),
            kernel_name=np.array([row.kernel_name for row in own], dtype=np.str_),
        )

    known = kernels[0] is not None
    return Part(
        file=file,
        kernel_class=kernel_class,
        dtype=label,
        gpu=gpu,
        load=load if known else None,
        variant=variant,
        reason="" if known else f"no kernels in {label} yet",
    )


def _canonical(name: str) -> str:
    """The canonical name of a GPU; of one that isn't known the name itself."""
    try:
        return load_gpu(name).name
    except SpecError:
        return name


def _as_measured(row: MeasuredRow) -> Kernel | None:
    """The kernel in the order and with the type that it ran in. None: there is no such type."""
    kernel = row.kernel
    if isinstance(kernel, Conv) and row.layout == "nhwc":
        kernel = replace(kernel, channels_last=True)
    if isinstance(kernel, Attention | Conv | Gemm):
        kernel = replace(kernel, burst=True)
    return _multiplied_as(kernel, row.precision)


def _multiplied_as(kernel: Kernel, precision: str) -> Kernel | None:
    """The kernel with the type that is multiplied: TF32's tensors are those of FP32. None: there is no such type."""
    if precision != "tf32" or not isinstance(kernel, (Gemm, Conv, Attention)):
        return kernel
    multiplied = BY_LABEL.get("tf32")
    return None if multiplied is None else replace(kernel, dtype=multiplied)
