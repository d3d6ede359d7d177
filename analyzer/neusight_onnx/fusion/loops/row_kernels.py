"""Reductions as a loop compiler sees them: the space they run over, and the pointwise rest of their formula."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Kernel, Normalization, Pooling, Reduction, Softmax

RowKernel: TypeAlias = Softmax | Normalization | Reduction
SCANS = ("cum",)
"""Prefixes of reductions that stay library calls."""
ROW_METHODS = frozenset({"layer", "rms", "lp", "group", "instance"})
STATISTICS = {"layer": 2, "group": 2, "instance": 2, "rms": 1, "softmax": 2}
"""Numbers a row that a reduction leaves for the pointwise rest of its formula: mean and variance, maximum and sum."""
_NORMED = ("sub", "mul", "mul", "add")
APPLIED = {
    "layer": _NORMED,
    "group": _NORMED,
    "instance": _NORMED,
    "rms": ("mul", "mul"),
    "softmax": ("sub", "exp", "div"),
}
"""That rest."""
SPLIT_COLUMNS = 8192
"""Longer rows are reduced in two kernels where there are few (``reduction_split_factor``); nothing merges behind."""
SPLIT_ROWS = 200
"""So few: twice the GPU's multiprocessors. About a hundred stand for those, as graphs are prepared for all GPUs."""


def is_loop(kernel: RowKernel) -> bool:
    """Whether a compiler writes this reduction itself."""
    match kernel:
        case Reduction(operation=operation):
            return not operation.startswith(SCANS)
        case Normalization(method=method):
            return method in ROW_METHODS
        case Softmax():
            return True


def space_of(kernel: RowKernel) -> tuple[int, int, int]:
    """(rows, columns, distance of neighbours in a row)."""
    match kernel:
        case Reduction():
            return kernel.outputs, kernel.reduced, kernel.inner
        case Softmax():
            return kernel.rows, kernel.cols, kernel.inner
        case Normalization():
            return kernel.rows, kernel.cols, 1


def stored_as(kernel: RowKernel, dtype: DataType, written: DataType) -> RowKernel:
    """The kernel with rows that are stored as ``dtype`` and results as ``written``."""
    if isinstance(kernel, Reduction):
        return replace(kernel, dtype=dtype)
    return replace(kernel, dtype=dtype, output_dtype=None if written is dtype else written)


def row_name(kernel: RowKernel) -> str:
    """What reports call the reduction, and :data:`STATISTICS` lists it by."""
    match kernel:
        case Reduction():
            return kernel.operation
        case Softmax():
            return "softmax"
        case Normalization():
            return kernel.method


def as_reduction(kernel: Kernel) -> Kernel:
    """Average pooling over a whole image is a mean (``adaptive_avg_pool2d`` to one element)."""
    if isinstance(kernel, Pooling) and kernel.operation == "global_average" and not kernel.extra_inputs:
        outputs = kernel.output.element_count
        return Reduction(
            operation="mean", outputs=outputs, reduced=kernel.window, dtype=kernel.input.dtype, output=kernel.output
        )
    return kernel


def casts_first(kernel: Kernel) -> bool:
    """Whether a softmax of 16 bits is told to give 32: its formula begins with a cast then."""
    return isinstance(kernel, Softmax) and kernel.output_dtype is not None and kernel.output_dtype is not kernel.dtype


def second_step(kernel: Reduction) -> Reduction:
    """What reduces the parts of rows that a first kernel has reduced."""
    return Reduction(
        operation=kernel.operation,
        outputs=kernel.outputs,
        reduced=-(-kernel.reduced // SPLIT_COLUMNS),
        dtype=kernel.output.dtype,
        output=kernel.output,
    )
