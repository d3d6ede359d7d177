"""Convolutions and their gradients: MIOpen's performance database, and DeepBench with its products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Direction, Gemm, Kernel
from neusight_onnx.learning.datasets.parts import Part, device_part, parts_by_dtype
from neusight_onnx.learning.datasets.products import CONSTANT_OPERAND
from neusight_onnx.learning.datasets.tables import Table, ints, read_table, strings, take

MIOPEN_CONV = "conv/miopen_conv.parquet"
DEEPBENCH = "conv/deepbench.parquet"


def _sides(values: NDArray[Any]) -> list[tuple[int, ...]]:
    return [tuple(int(side) for side in value.split("x")) for value in values.tolist()]


_DIRECTIONS: Mapping[str, Direction] = {"fwd": "forward", "bwd_data": "data", "bwd_weights": "weight"}


def _by_direction(
    file: str,
    table: Table,
    labels: NDArray[np.str_],
    make: Callable[[Table, DataType], list[Kernel]],
    *,
    kernel_name: str | None = None,
) -> list[Part]:
    """Parts of convolutions by number format and direction, which are other kernels each: the part's variant."""
    names = strings(table["direction"])
    return [
        part
        for name, direction in _DIRECTIONS.items()
        for rows in (np.flatnonzero(names == name),)
        for part in parts_by_dtype(
            file,
            take(table, rows),
            labels[rows],
            "conv",
            make,
            operation=direction,
            variant=direction,
            kernel_name=kernel_name,
        )
    ]


_INT8_UNTIMED = "one untuned solver, times that don't follow size"
"""MIOpen's 144 convolutions in INT8 are MLIR's alone, one image each, 4-27 us. The rank correlation of their times
with their FLOPs is .04, .13 and -.08 (MI100, MI210, MI50), of two GPUs' times .13-.22; the same shapes in float16 have
.46-.58 and .86-.96. An MI50 would multiply 116 TOP/s of its 54. They judge nothing."""


def read_miopen(path: Path) -> list[Part]:
    """Convolutions and their gradients; naive solvers are no library's choice."""
    names = ("gpu", "dtype", "direction", "ndim", "n", "c", "d", "h", "w", "k", "od", "oh", "ow", "fd", "fh", "fw")
    table = read_table(path, (*names, "layout", "stride", "dilation", "groups", "latency_ms", "solver"))
    naive = np.array(["Naive" in name for name in strings(table["solver"]).tolist()])
    table = take(table, np.flatnonzero(~naive))
    labels = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "INT8": "int8"}
    dtype = np.array([labels.get(name, name) for name in strings(table["dtype"]).tolist()])

    def make(part: Table, dtype: DataType) -> list[Kernel]:
        size = {name: ints(part[name]) for name in (*names[4:], "ndim", "groups")}
        last = [text.startswith("NHWC") for text in part["layout"].tolist()]
        direction = [_DIRECTIONS[name] for name in part["direction"].tolist()]
        kernels: list[Kernel] = []
        for i, (stride, dilation) in enumerate(zip(_sides(part["stride"]), _sides(part["dilation"]), strict=True)):
            axes = ("d", "h", "w") if size["ndim"][i] == 3 else ("h", "w")
            kernels.append(
                Conv(
                    n=size["n"][i],
                    c=size["c"][i],
                    k=size["k"][i],
                    groups=size["groups"][i],
                    spatial=tuple(size[axis][i] for axis in axes),
                    out=tuple(size[f"o{axis}"][i] for axis in axes),
                    filter=tuple(size[f"f{axis}"][i] for axis in axes),
                    strides=stride,
                    dilations=dilation,
                    direction=direction[i],
                    channels_last=last[i],
                    dtype=dtype,
                    burst=True,
                )
            )
        return kernels

    int8 = dtype == DataType.INT8.label
    timed = np.flatnonzero(~int8)
    parts = _by_direction(MIOPEN_CONV, take(table, timed), dtype[timed], make, kernel_name="solver")
    if int8.any():
        rows = take(table, np.flatnonzero(int8))
        parts.append(device_part(MIOPEN_CONV, "conv", DataType.INT8.label, rows, None, reason=_INT8_UNTIMED))
    return parts


_DEEPBENCH_FORMATS = {
    "Float": "float32",
    "16 bit inputs, 16 bit multiplication, 32 bit addition": "float16",
}
"""Precision of a sheet -> label. "16 bit inputs, 32 bit multiplication" (P100) is a mode of the library that no runtime
of today asks for."""
_DEEPBENCH_INT8 = "GEMM, Conv: Int8"


_ZEROS = CONSTANT_OPERAND**2
"""Energy of products over that on real values in DeepBench's rows in 16 and 8 bits, whose operands are all zero: it
copies uniform numbers from [0, 1) to the integers that stand for them (as its source is remembered)."""


def _deepbench_format(precision: str) -> str:
    return "int8" if precision.startswith(_DEEPBENCH_INT8) else _DEEPBENCH_FORMATS.get(precision, "")


_BESIDE_THE_FILTER = ("w", "h", "c", "batch", "k", "pad_w", "pad_h", "stride_w", "stride_h")


def _with_filters(table: Table, convolutions: NDArray[np.bool_]) -> Table:
    """The table with the filters that sheets leave empty (P100, 1080 Ti), from rows of the same sizes that state one.

    All sheets of a format hold one list of convolutions; of no other sizes in it are there two filters. Where there
    are, or a size isn't on the list, the filter stays empty.
    """
    sizes = np.stack([table[name] for name in _BESIDE_THE_FILTER])
    filters = np.stack([table["s_fw"], table["r_fh"]])
    known: dict[tuple[float, ...], set[tuple[float, float]]] = {}
    for i in np.flatnonzero(convolutions & np.all(filters > 0, axis=0)).tolist():
        known.setdefault(tuple(sizes[:, i].tolist()), set()).add((filters[0, i], filters[1, i]))
    found = filters.copy()
    for i in np.flatnonzero(convolutions & np.all(np.isnan(filters), axis=0)).tolist():
        of_size = known.get(tuple(sizes[:, i].tolist()), set())
        if len(of_size) == 1:
            found[:, i] = next(iter(of_size))
    return {**table, "s_fw": found[0], "r_fh": found[1]}


def read_deepbench(path: Path) -> list[Part]:
    """Products and convolutions in FP32, FP16 on tensor cores and INT8; recurrent layers are many kernels, no row of
    ours. Times hold whatever the library's benchmark ran, with CUDA 8 to 10."""
    conv_names = ("w", "h", "c", "batch", "s_fw", "r_fh", "pad_w", "pad_h", "stride_w", "stride_h")
    gemm_names = ("m", "n", "k", "transA", "transB")
    table = read_table(path, ("gpu", "precision", "op", *gemm_names, "direction", "latency_ms", *conv_names))
    labels = np.array([_deepbench_format(name) for name in strings(table["precision"]).tolist()], dtype=np.str_)
    op = strings(table["op"])
    products = np.flatnonzero((labels != "") & (op == "gemm") & (table["m"] > 0))
    table = _with_filters(table, (op == "conv") & (labels == "float32"))
    # some sheets leave the filter's or the stride's columns empty
    whole = np.minimum.reduce([np.nan_to_num(table[name]) for name in ("s_fw", "r_fh", "stride_w", "stride_h")]) > 0
    convolutions = (labels != "") & (op == "conv") & (table["latency_ms"] > 0)
    complete = np.flatnonzero(convolutions & whole)

    def product(part: Table, dtype: DataType) -> list[Kernel]:
        sizes = zip(*(ints(part[name]) for name in ("m", "n", "k")), strict=True)
        # column-major in the source: its n columns are our rows, its A is our right operand, along k where transposed
        turned = zip(*((strings(part[name]) == "T").tolist() for name in ("transB", "transA")), strict=True)
        return [
            Gemm(
                m=n,
                n=m,
                k=k,
                transpose_a=left,
                transpose_b=right,
                dtype=dtype,
                b_is_weight=True,
                repeated=True,
                burst=True,
                activity=1.0 if dtype is DataType.FLOAT32 else _ZEROS,
                # the benchmark's own choice (PAD_KERNELS in its gemm_bench.cu, as remembered). Rows of 7,133 and 1,530
                # elements run at the rate of others, where cuBLAS 10 takes matrix units for multiples of 8 alone
                row_padding="stored",
            )
            for (m, n, k), (left, right) in zip(sizes, turned, strict=True)
        ]

    def convolution(part: Table, dtype: DataType) -> list[Kernel]:
        size = {name: ints(part[name]) for name in ("k", *conv_names)}
        direction = [_DIRECTIONS[name] for name in part["direction"].tolist()]
        kernels: list[Kernel] = []
        for i in range(len(size["k"])):
            spatial, window = (size["h"][i], size["w"][i]), (size["r_fh"][i], size["s_fw"][i])
            stride, pad = (size["stride_h"][i], size["stride_w"][i]), (size["pad_h"][i], size["pad_w"][i])
            out = tuple((spatial[j] + 2 * pad[j] - window[j]) // stride[j] + 1 for j in (0, 1))
            kernels.append(
                Conv(
                    n=size["batch"][i],
                    c=size["c"][i],
                    k=size["k"][i],
                    spatial=spatial,
                    out=out,
                    filter=window,
                    strides=stride,
                    dilations=(1, 1),
                    direction=direction[i],
                    # whatever the order was, nothing was transposed: 16-bit 1x1 rows take input and output once at
                    # .7-.8 of DRAM's peak (V100)
                    channels_last=dtype is not DataType.FLOAT32,
                    dtype=dtype,
                    by_cudnn7=True,
                    burst=True,
                    activity=1.0 if dtype is DataType.FLOAT32 else _ZEROS,
                )
            )
        return kernels

    parts = parts_by_dtype(DEEPBENCH, take(table, products), labels[products], "gemm", product)
    parts += _by_direction(DEEPBENCH, take(table, complete), labels[complete], convolution)
    left = {
        ("conv", "sheets that leave out the filter or the stride"): convolutions & ~whole,
        ("recurrent", "several kernels in one figure"): np.char.startswith(op, "rnn"),
        ("gemm or conv", "a mode that no runtime asks for"): (labels == "") & np.isin(op, ("gemm", "conv")),
    }
    for (kernel_class, reason), mask in left.items():
        if mask.any():
            part = take(table, np.flatnonzero(mask))
            parts.append(device_part(DEEPBENCH, kernel_class, "any", part, None, reason=reason))
    return parts
