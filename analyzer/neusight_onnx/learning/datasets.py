"""Reads measured kernels: files of public measurements -> kernels, each with its GPU, session and latency.

A data folder has the layout of the README beside the data; any subset of its files will do. Only this module
knows the files' columns, and only ``learning`` imports pyarrow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import DataError, NeusightError
from neusight_onnx.kernels import Conv, Elementwise, Gemm, Kernel, Normalization, Softmax, TensorSpec

EXTRA_HINT = "pip install 'neusight-onnx[learning]'"

EVENTS = "events"
"""Timed by events around one launch on an idle GPU: the host's launch time is part of the figure."""
DEVICE = "device"
"""The kernel's own time (replay of a graph of many launches, or a profiler)."""


def require(module: str) -> Any:
    """Imports a package of the ``learning`` extra, or says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module.split(".")[0]:
            raise
        raise NeusightError(f"{module.split('.')[0]} is not installed: {EXTRA_HINT}") from error


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Measured kernels of one class, dtype and file; every array has an entry for each of ``kernels``.

    ``operation`` is the file's own name of what ran ("bmm", "linear", …), ``split`` the part of the file,
    ``kernel_name`` what the profiler saw (empty: unknown). A *session* is a GPU x operation x split: rows that
    were measured in one go, so that they share the host's launch time and the state of the card.
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

    def __len__(self) -> int:
        return len(self.kernels)

    @cached_property
    def session(self) -> NDArray[np.str_]:
        """The session of each row, "gpu/operation/split"."""
        parts = zip(self.gpu.tolist(), self.operation.tolist(), self.split.tolist(), strict=True)
        return np.array(["/".join(part) for part in parts], dtype=np.str_)

    @cached_property
    def shape_group(self) -> NDArray[np.int64]:
        """Equal numbers for equal kernels, in order of first appearance: what must not be split between folds."""
        number_of: dict[Kernel, int] = {}
        return np.array([number_of.setdefault(kernel, len(number_of)) for kernel in self.kernels], dtype=np.int64)

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
        )


NEUSIGHT_KERNELS = "neusight/kernels_fp32.parquet"

Table = Mapping[str, NDArray[Any]]


def _table(path: Path, columns: Sequence[str]) -> Table:
    parquet = require("pyarrow.parquet")
    arrow = require("pyarrow")
    try:
        table = parquet.read_table(path, columns=list(columns))
    except (OSError, arrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"can't read {path}: {reason}; expected a parquet file with {', '.join(columns)}") from error
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise DataError(f"{path} has no column {', '.join(missing)}")
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in columns}


def _ints(values: NDArray[Any]) -> list[int]:
    found: list[int] = np.nan_to_num(values.astype(np.float64)).astype(np.int64).tolist()
    return found


def _strings(values: NDArray[Any]) -> NDArray[np.str_]:
    return np.array(["" if value is None else str(value) for value in values.tolist()], dtype=np.str_)


_FP32 = DataType.FLOAT32
_BINARY = ("add", "mul", "pow", "div")
_UNARY = ("tanh", "relu", "gelu")


def _neusight_kernels(operation: str, rows: Table) -> tuple[Kernel, ...]:
    """Rows of one ``op`` as kernels. A trailing ``u`` means: with a Python scalar, which costs no traffic."""
    if operation in ("bmm", "linear"):
        sizes = zip(*(_ints(rows[name]) for name in ("b", "m", "n", "k")), strict=True)
        if operation == "bmm":
            return tuple(Gemm(batch=b, m=m, n=n, k=k, dtype=_FP32) for b, m, n, k in sizes)
        # the weight is stored (n, k), as torch.nn.Linear does, and a bias of n is added
        return tuple(
            Gemm(m=b * m, n=n, k=k, b_is_weight=True, transpose_b=True, dtype=_FP32, epilogue=("bias",))
            for b, m, n, k in sizes
        )
    if operation == "conv":
        names = ("b", "in_channels", "out_channels", "filter_size", "in_size", "stride", "padding")
        return tuple(
            _conv2d(n=b, c=c, k=k, size=size, window=window, stride=stride, padding=padding)
            for b, c, k, window, size, stride, padding in zip(*(_ints(rows[name]) for name in names), strict=True)
        )
    shapes = list(zip(_ints(rows["rows"]), _ints(rows["cols"]), strict=True))
    if operation == "softmax":
        return tuple(Softmax(rows=r, cols=c, dtype=_FP32) for r, c in shapes)
    if operation == "ln":
        return tuple(
            Normalization(method="layer", rows=r, cols=c, parameter_count=2 * c, dtype=_FP32) for r, c in shapes
        )
    name = operation.removesuffix("u") if operation.removesuffix("u") in _BINARY else operation
    input_count = 2 if operation in _BINARY else 1
    tensors = [TensorSpec(dtype=_FP32, shape=shape) for shape in shapes]
    return tuple(Elementwise(operations=(name,), inputs=(tensor,) * input_count, output=tensor) for tensor in tensors)


def _conv2d(*, n: int, c: int, k: int, size: int, window: int, stride: int, padding: int) -> Conv:
    out = (size + 2 * padding - window) // stride + 1
    return Conv(
        n=n,
        c=c,
        k=k,
        spatial=(size, size),
        out=(out, out),
        filter=(window, window),
        strides=(stride, stride),
        dilations=(1, 1),
        dtype=_FP32,
    )


_CLASS_OF = {
    "bmm": "gemm",
    "linear": "gemm",
    "conv": "conv",
    "softmax": "softmax",
    "ln": "normalization",
    **{name: "elementwise" for name in (*_BINARY, *(f"{name}u" for name in _BINARY), *_UNARY)},
}


def _read_neusight(path: Path) -> list[Measurements]:
    columns = ("split", "gpu", "op", "b", "m", "n", "k", "rows", "cols", "in_channels", "out_channels", "filter_size")
    columns += ("in_size", "stride", "padding", "latency_ms", "kernel_name")
    table = _table(path, columns)
    operations = _strings(table["op"])
    unknown = sorted(set(operations.tolist()) - set(_CLASS_OF))
    if unknown:
        raise DataError(f"{path}: unknown op {', '.join(unknown)}; known are {', '.join(sorted(_CLASS_OF))}")
    found = []
    for kernel_class in sorted(set(_CLASS_OF.values())):
        kernels: list[Kernel] = []
        indices: list[NDArray[np.int64]] = []
        for operation in (name for name, of in _CLASS_OF.items() if of == kernel_class):
            rows = np.flatnonzero((operations == operation) & (table["latency_ms"] > 0))
            kernels += _neusight_kernels(operation, {name: column[rows] for name, column in table.items()})
            indices.append(rows)
        order = np.concatenate(indices)
        if not order.size:
            continue
        found.append(
            Measurements(
                file=NEUSIGHT_KERNELS,
                kernel_class=kernel_class,
                dtype="float32",
                timing=EVENTS,
                kernels=tuple(kernels),
                gpu=_strings(table["gpu"][order]),
                operation=operations[order],
                split=_strings(table["split"][order]),
                measured_us=table["latency_ms"][order].astype(np.float64) * 1e3,
                kernel_name=_strings(table["kernel_name"][order]),
            )
        )
    return found


READERS: dict[str, Callable[[Path], list[Measurements]]] = {NEUSIGHT_KERNELS: _read_neusight}
"""What can be read, by the file's path in the data folder."""

TRAINING_FILES = (NEUSIGHT_KERNELS,)
"""What predictors are fitted on."""


def read_measurements(data_folder: Path, files: Sequence[str] | None = None) -> list[Measurements]:
    """Reads those of ``files`` (default: all that have a reader) that the folder has.

    Raises DataError if the folder has none of them, or one can't be read.
    """
    wanted = tuple(READERS) if files is None else tuple(files)
    present = [name for name in wanted if (data_folder / name).is_file()]
    if not present:
        raise DataError(f"{data_folder} has none of {', '.join(wanted)}; pass the folder that holds the measured data")
    return [measurements for name in present for measurements in READERS[name](data_folder / name)]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
