"""NeuSight's own measurements in FP32: products, convolutions, elementwise operators, softmax, layer norms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import DataError
from neusight_onnx.kernels import Conv, Elementwise, Gemm, Kernel, Normalization, Softmax, TensorSpec
from neusight_onnx.learning.datasets.parts import EVENTS, Measurements, Part
from neusight_onnx.learning.datasets.tables import Table, ints, read_table, strings

NEUSIGHT_KERNELS = "neusight/kernels_fp32.parquet"

_BINARY = ("add", "mul", "pow", "div")
_UNARY = ("tanh", "relu", "gelu")


def _neusight_kernels(operation: str, rows: Table) -> tuple[Kernel, ...]:
    """Rows of one ``op`` as kernels. A trailing ``u`` means: with a Python scalar, which costs no traffic."""
    if operation in ("bmm", "linear"):
        sizes = zip(*(ints(rows[name]) for name in ("b", "m", "n", "k")), strict=True)
        if operation == "bmm":
            return tuple(Gemm(batch=b, m=m, n=n, k=k, dtype=DataType.FLOAT32) for b, m, n, k in sizes)
        # the weight is stored (n, k), as torch.nn.Linear does, and a bias of n is added
        epilogues = (("bias",) if fused else () for fused in rows["fused"].tolist())
        return tuple(
            Gemm(m=b * m, n=n, k=k, b_is_weight=True, transpose_b=True, dtype=DataType.FLOAT32, epilogue=epilogue)
            for (b, m, n, k), epilogue in zip(sizes, epilogues, strict=True)
        )
    if operation == "conv":
        names = ("b", "in_channels", "out_channels", "filter_size", "in_size", "stride", "padding")
        return tuple(
            _conv2d(n=b, c=c, k=k, size=size, window=window, stride=stride, padding=padding)
            for b, c, k, window, size, stride, padding in zip(*(ints(rows[name]) for name in names), strict=True)
        )
    shapes = list(zip(ints(rows["rows"]), ints(rows["cols"]), strict=True))
    if operation == "softmax":
        return tuple(Softmax(rows=r, cols=c, dtype=DataType.FLOAT32) for r, c in shapes)
    if operation == "ln":
        return tuple(
            Normalization(method="layer", rows=r, cols=c, parameter_count=2 * c, dtype=DataType.FLOAT32)
            for r, c in shapes
        )
    name = operation.removesuffix("u") if operation.removesuffix("u") in _BINARY else operation
    input_count = 2 if operation in _BINARY else 1
    tensors = [TensorSpec(dtype=DataType.FLOAT32, shape=shape) for shape in shapes]
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
        dtype=DataType.FLOAT32,
    )


_CLASS_OF = {
    "bmm": "gemm",
    "linear": "gemm",
    "conv": "conv",
    "softmax": "softmax",
    "ln": "normalization",
    **dict.fromkeys((*_BINARY, *(f"{name}u" for name in _BINARY), *_UNARY), "elementwise"),
}


DRIFTING = frozenset({"conv"})
"""Classes of the NeuSight file whose sessions got slower on the host's side as they went on.

Its convolutions stand in random order, the order of measuring: the smallest times of the first 250 rows of a GPU are
59-108 us, of the last 250 328-801 us, rising all the while on all five GPUs, whatever the kernel. A kernel's own time
is what is left once that is taken off; with it, near-equal shapes agree within a few per cent. No other operation of
the file shows such a rise (their rows are sorted by size: the smallest times of equal sizes agree)."""


def _positions(sessions: Sequence[tuple[str, str, str]]) -> NDArray[np.float64]:
    """Where each row stands in its session, 0 to 1, in file order."""
    seen: dict[tuple[str, str, str], int] = {}
    place = []
    for name in sessions:
        place.append(seen.setdefault(name, 0))
        seen[name] += 1
    return np.array([at / max(seen[name] - 1, 1) for at, name in zip(place, sessions, strict=True)], dtype=np.float64)


UNFUSED = "linear_unfused"
"""Operation of a linear layer whose library added the bias apart from the product: see ``_unfused_bias``."""

_COMPILED_KERNEL = re.compile(r"sgemm_\d+x\d+x\d+_")


def _unfused_bias(table: Table, operations: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Rows of linear layers whose product ran without its bias: whole sessions, told by their kernels' names.

    PyTorch hands a product with a bias to cuBLASLt, which has the architecture's assembled kernels only
    (``maxwell_sgemm_32x128_tn``, ``volta_…``, ``ampere_…``). Compiled ones (``sgemm_128x128x8_NT_vec``) are those of
    plain cuBLAS: bmm shows them where the batch is one, which is a plain product. A session of linear layers that is
    made of them (the P4's ``test``) came from a PyTorch that put the bias into the output first: what models run
    as a product without bias, not what they run as a linear layer.
    """
    found = np.zeros(operations.size, dtype=np.bool_)
    linear = operations == "linear"
    gpu, split, name = (strings(table[column]) for column in ("gpu", "split", "kernel_name"))
    for key in sorted(set(zip(gpu[linear].tolist(), split[linear].tolist(), strict=True))):
        rows = np.flatnonzero(linear & (gpu == key[0]) & (split == key[1]))
        compiled = sum(_COMPILED_KERNEL.match(kernel) is not None for kernel in name[rows].tolist())
        found[rows] = 2 * compiled > rows.size
    return found


def _neusight(path: Path) -> list[Measurements]:
    sizes = ("b", "m", "n", "k", "rows", "cols")
    conv = ("in_channels", "out_channels", "filter_size", "in_size", "stride", "padding")
    table = read_table(path, ("split", "gpu", "op", *sizes, *conv, "latency_ms", "kernel_name"))
    operations = strings(table["op"])
    unknown = sorted(set(operations.tolist()) - set(_CLASS_OF))
    if unknown:
        raise DataError(f"{path}: unknown op {', '.join(unknown)}; known are {', '.join(sorted(_CLASS_OF))}")
    unfused = _unfused_bias(table, operations)
    table = {**table, "fused": ~unfused}
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
        gpu, split = strings(table["gpu"][order]), strings(table["split"][order])
        sessions = list(zip(gpu.tolist(), operations[order].tolist(), split.tolist(), strict=True))
        found.append(
            Measurements(
                file=NEUSIGHT_KERNELS,
                kernel_class=kernel_class,
                dtype="float32",
                timing=EVENTS,
                kernels=tuple(kernels),
                gpu=gpu,
                operation=np.where(unfused[order], UNFUSED, operations[order]),
                split=split,
                measured_us=table["latency_ms"][order].astype(np.float64) * 1e3,
                kernel_name=strings(table["kernel_name"][order]),
                position=_positions(sessions) if kernel_class in DRIFTING else None,
            )
        )
    return found


def _loaded(measurements: Measurements) -> Part:
    def load(rows: NDArray[np.int64] | None = None) -> Measurements:
        return measurements if rows is None else measurements.select(rows)

    return Part(
        file=measurements.file,
        kernel_class=measurements.kernel_class,
        dtype=measurements.dtype,
        gpu=measurements.gpu,
        load=load,
        strata=measurements.session,
    )


def read_neusight(path: Path) -> list[Part]:
    """A part per class."""
    return [_loaded(measurements) for measurements in _neusight(path)]
