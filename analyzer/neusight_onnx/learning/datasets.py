"""Reads measured kernels: files of public measurements -> kernels, each with its GPU, session and latency.

A data folder has the layout of the README beside the data; any subset of its files will do. Only this module
knows the files' columns, and only ``learning`` imports pyarrow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import BY_LABEL, DataType
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
        """Equal numbers for equal kernels, in order of first appearance: what must not be split between folds."""
        number_of: dict[Kernel, int] = {}
        return np.array([number_of.setdefault(kernel, len(number_of)) for kernel in self.kernels], dtype=np.int64)

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
        epilogues = (("bias",) if fused else () for fused in rows["fused"].tolist())
        return tuple(
            Gemm(m=b * m, n=n, k=k, b_is_weight=True, transpose_b=True, dtype=_FP32, epilogue=epilogue)
            for (b, m, n, k), epilogue in zip(sizes, epilogues, strict=True)
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
    gpu, split, name = (_strings(table[column]) for column in ("gpu", "split", "kernel_name"))
    for key in sorted(set(zip(gpu[linear].tolist(), split[linear].tolist(), strict=True))):
        rows = np.flatnonzero(linear & (gpu == key[0]) & (split == key[1]))
        compiled = sum(_COMPILED_KERNEL.match(kernel) is not None for kernel in name[rows].tolist())
        found[rows] = 2 * compiled > rows.size
    return found


def _neusight(path: Path) -> list[Measurements]:
    sizes = ("b", "m", "n", "k", "rows", "cols")
    conv = ("in_channels", "out_channels", "filter_size", "in_size", "stride", "padding")
    table = _table(path, ("split", "gpu", "op", *sizes, *conv, "latency_ms", "kernel_name"))
    operations = _strings(table["op"])
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
        gpu, split = _strings(table["gpu"][order]), _strings(table["split"][order])
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
                kernel_name=_strings(table["kernel_name"][order]),
                position=_positions(sessions) if kernel_class in DRIFTING else None,
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows of one file that are of one kernel class and dtype; ``load`` makes the kernels, which takes a while.

    ``load`` is None where rows have no kernel in this program yet; ``gpu`` names the GPU of each row.
    ``variant``: which of several implementations in the file ran (a framework), where times must not be pooled.
    """

    file: str
    kernel_class: str
    dtype: str
    gpu: NDArray[np.str_]
    load: Callable[[], Measurements] | None
    variant: str = ""


def _loaded(measurements: Measurements) -> Part:
    return Part(
        file=measurements.file,
        kernel_class=measurements.kernel_class,
        dtype=measurements.dtype,
        gpu=measurements.gpu,
        load=lambda: measurements,
    )


def _read_neusight(path: Path) -> list[Part]:
    return [_loaded(measurements) for measurements in _neusight(path)]


def _parts_by_dtype(
    file: str,
    table: Table,
    labels: NDArray[np.str_],
    kernel_class: str,
    make: Callable[[Table, DataType], list[Kernel]],
) -> list[Part]:
    """Device-timed rows, one part per label; a label that is no dtype of ours has no kernels."""
    parts = []
    for label in sorted(set(labels.tolist())):
        rows = np.flatnonzero((labels == label) & (table["latency_ms"] > 0))
        part = {name: column[rows] for name, column in table.items()}
        dtype = BY_LABEL.get(label)
        gpu = np.char.lower(np.char.replace(_strings(part["gpu"]), "NV ", ""))

        def load(
            part: Table = part, dtype: DataType | None = dtype, gpu: NDArray[np.str_] = gpu, label: str = label
        ) -> Measurements:
            assert dtype is not None, "a part without a dtype isn't loaded"
            kernels = tuple(make(part, dtype))
            return Measurements(
                file=file,
                kernel_class=kernel_class,
                dtype=label,
                timing=DEVICE,
                kernels=kernels,
                gpu=gpu,
                operation=np.full(len(kernels), kernel_class),
                split=np.full(len(kernels), "all"),
                measured_us=part["latency_ms"].astype(np.float64) * 1e3,
                kernel_name=np.full(len(kernels), ""),
            )

        parts.append(
            Part(file=file, kernel_class=kernel_class, dtype=label, gpu=gpu, load=load if dtype is not None else None)
        )
    return parts


def _weights(table: Table, dtype: DataType) -> list[Kernel]:
    """Linear layers (m, k) @ (k, n); the weight is stored (n, k)."""
    sizes = zip(*(_ints(table[name]) for name in ("m", "n", "k")), strict=True)
    return [Gemm(m=m, n=n, k=k, dtype=dtype, b_is_weight=True, transpose_b=True) for m, n, k in sizes]


TENSOR_CORE_GEMM = "tensor_core_gemm/gemm.parquet"
AMD_GEMM = "tensor_core_gemm/aiter_gemm_amd.parquet"
VIDUR_LAYERS = "layers/vidur_layers_fp16.parquet"
MIOPEN_CONV = "conv/miopen_conv.parquet"
DEEPBENCH = "conv/deepbench.parquet"
ATTENTION = tuple(f"attention/{name}.parquet" for name in ("context", "generation", "encoder"))


_BF16, _FP8 = DataType.BFLOAT16, DataType.FLOAT8E4M3FN

_MATRIX_UNIT_FORMATS: Mapping[str, tuple[str, DataType, DataType, DataType]] = {
    "bfloat16": ("bfloat16", _BF16, _BF16, _BF16),
    # activations arrive in 16 bits: the rows include the kernel that converts them
    "fp8": ("float8e4m3fn", _FP8, _BF16, _FP8),
    "fp8_static": ("float8e4m3fn", _FP8, _BF16, _FP8),
    "sq": ("int8", DataType.INT8, DataType.INT8, DataType.INT8),
    "int8_wo": ("bfloat16+int8", _BF16, _BF16, DataType.INT8),
    "int4_wo": ("bfloat16+int4", _BF16, _BF16, DataType.INT4),
    "nvfp4": ("float4e2m1", DataType.FLOAT4E2M1, _BF16, DataType.FLOAT4E2M1),
}
"""The file's formats: the predictor's label, what is multiplied, what activations and weights are stored as.

``fp8_static`` takes the activations' scale as given; it is judged by ``fp8``'s predictor, not trained on. ``fp8_block``
has a scale a block of 128: other kernels, without a predictor (its frameworks differ by up to 20 times)."""

TRAINED_VARIANTS: Mapping[str, str] = {
    "bfloat16": "vllm",
    "float8e4m3fn": "sglang",
    "int8": "trtllm",
    "bfloat16+int8": "trtllm",
    "bfloat16+int4": "trtllm",
    "float4e2m1": "trtllm",
}
"""The framework whose rows a predictor is trained on. vLLM's 16-bit products are PyTorch's linear. SGLang's FP8
converts activations in 2-3 us, TensorRT-LLM's in 9, on every GPU; vLLM's levels differ from GPU to GPU. The other
formats are TensorRT-LLM's alone on most GPUs."""


def _read_tensor_core_gemm(path: Path) -> list[Part]:
    """A part per format and framework: their times must not be pooled."""
    table = _table(path, ("gpu", "framework", "dtype", "m", "n", "k", "latency_ms"))
    label, framework = _strings(table["dtype"]), _strings(table["framework"])
    parts = []
    for name, variant in sorted(set(zip(label.tolist(), framework.tolist(), strict=True))):
        rows = np.flatnonzero((label == name) & (framework == variant) & (table["latency_ms"] > 0))
        variant = f"{variant}, static scale" if name == "fp8_static" else variant
        part = {column: values[rows] for column, values in table.items()}
        known = _MATRIX_UNIT_FORMATS.get(name)
        gpu = np.char.lower(_strings(part["gpu"]))

        def load(
            part: Table = part,
            known: tuple[str, DataType, DataType, DataType] | None = known,
            gpu: NDArray[np.str_] = gpu,
            variant: str = variant,
        ) -> Measurements:
            assert known is not None, "a part of an unknown format isn't loaded"
            dtype, multiplied, a_dtype, b_dtype = known
            sizes = zip(*(_ints(part[column]) for column in ("m", "n", "k")), strict=True)
            kernels = tuple(
                Gemm(
                    m=m,
                    n=n,
                    k=k,
                    dtype=multiplied,
                    a_dtype=None if a_dtype is multiplied else a_dtype,
                    b_dtype=None if b_dtype is multiplied else b_dtype,
                    output_dtype=None if multiplied is _BF16 else _BF16,
                    b_is_weight=True,
                    transpose_b=True,
                )
                for m, n, k in sizes
            )
            return Measurements(
                file=TENSOR_CORE_GEMM,
                kernel_class="gemm",
                dtype=dtype,
                timing=DEVICE,
                kernels=kernels,
                gpu=gpu,
                operation=np.full(len(kernels), variant),
                split=np.full(len(kernels), "all"),
                measured_us=part["latency_ms"].astype(np.float64) * 1e3,
                kernel_name=np.full(len(kernels), ""),
            )

        parts.append(
            Part(
                file=TENSOR_CORE_GEMM,
                kernel_class="gemm",
                dtype=name if known is None else known[0],
                gpu=gpu,
                load=None if known is None else load,
                variant=variant,
            )
        )
    return parts


def _read_amd_gemm(path: Path) -> list[Part]:
    table = _table(path, ("gpu", "dtype", "b", "m", "n", "k", "latency_ms"))

    def make(rows: Table, dtype: DataType) -> list[Kernel]:
        sizes = zip(*(_ints(rows[name]) for name in ("b", "m", "n", "k")), strict=True)
        return [Gemm(batch=b, m=m, n=n, k=k, dtype=dtype, b_is_weight=True, transpose_b=True) for b, m, n, k in sizes]

    return _parts_by_dtype(AMD_GEMM, table, _strings(table["dtype"]), "gemm", make)


def _read_vidur(path: Path) -> list[Part]:
    table = _table(path, ("gpu", "dtype", "gemm_m", "gemm_n", "gemm_k", "latency_ms"))
    rows = np.flatnonzero(table["gemm_m"] > 0)
    table = {name.removeprefix("gemm_"): column[rows] for name, column in table.items()}
    return _parts_by_dtype(VIDUR_LAYERS, table, _strings(table["dtype"]), "gemm", _weights)


def _sides(values: NDArray[Any]) -> list[tuple[int, ...]]:
    return [tuple(int(side) for side in value.split("x")) for value in values.tolist()]


def _read_miopen(path: Path) -> list[Part]:
    """Forward convolutions only: the backward ones are other kernels. Naive solvers are no library's choice."""
    names = ("gpu", "dtype", "direction", "ndim", "n", "c", "d", "h", "w", "k", "od", "oh", "ow", "fd", "fh", "fw")
    table = _table(path, (*names, "stride", "dilation", "groups", "latency_ms", "solver"))
    naive = np.array(["Naive" in name for name in _strings(table["solver"]).tolist()])
    rows = np.flatnonzero((_strings(table["direction"]) == "fwd") & ~naive)
    table = {name: column[rows] for name, column in table.items()}
    labels = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "INT8": "int8"}
    dtype = np.array([labels.get(name, name) for name in _strings(table["dtype"]).tolist()])

    def make(part: Table, dtype: DataType) -> list[Kernel]:
        size = {name: _ints(part[name]) for name in (*names[4:], "ndim", "groups")}
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
                    dtype=dtype,
                )
            )
        return kernels

    return _parts_by_dtype(MIOPEN_CONV, table, dtype, "conv", make)


def _read_deepbench(path: Path) -> list[Part]:
    """FP32 and FP16 products and forward convolutions; recurrent layers are many kernels and no row of ours."""
    conv_names = ("w", "h", "c", "batch", "s_fw", "r_fh", "pad_w", "pad_h", "stride_w", "stride_h")
    table = _table(path, ("gpu", "precision", "op", "m", "n", "k", "direction", "latency_ms", *conv_names))
    precision, op = _strings(table["precision"]), _strings(table["op"])
    plain = np.isin(precision, ("Float",))
    products = np.flatnonzero(plain & (op == "gemm") & (table["m"] > 0))
    # some sheets leave the filter's or the stride's columns empty
    whole = np.minimum.reduce([np.nan_to_num(table[name]) for name in ("s_fw", "r_fh", "stride_w", "stride_h")]) > 0
    forward = np.flatnonzero(plain & whole & (op == "conv") & (_strings(table["direction"]) == "fwd"))

    def product(part: Table, dtype: DataType) -> list[Kernel]:
        sizes = zip(*(_ints(part[name]) for name in ("m", "n", "k")), strict=True)
        # column-major in the source: its n columns are our rows
        return [Gemm(m=n, n=m, k=k, dtype=dtype, b_is_weight=True) for m, n, k in sizes]

    def convolution(part: Table, dtype: DataType) -> list[Kernel]:
        size = {name: _ints(part[name]) for name in ("k", *conv_names)}
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
                    dtype=dtype,
                )
            )
        return kernels

    parts = []
    for rows, kernel_class, make in ((products, "gemm", product), (forward, "conv", convolution)):
        part = {name: column[rows] for name, column in table.items()}
        parts += _parts_by_dtype(DEEPBENCH, part, np.full(rows.size, "float32"), kernel_class, make)
    return parts


def _attention_reader(file: str) -> Callable[[Path], list[Part]]:
    def read(path: Path) -> list[Part]:
        table = _table(path, ("gpu", "attn_dtype"))
        gpu, label = _strings(table["gpu"]), _strings(table["attn_dtype"])
        return [
            Part(file=file, kernel_class="attention", dtype=name, gpu=gpu[label == name], load=None)
            for name in sorted(set(label.tolist()))
        ]

    return read


READERS: dict[str, Callable[[Path], list[Part]]] = {
    NEUSIGHT_KERNELS: _read_neusight,
    TENSOR_CORE_GEMM: _read_tensor_core_gemm,
    AMD_GEMM: _read_amd_gemm,
    VIDUR_LAYERS: _read_vidur,
    MIOPEN_CONV: _read_miopen,
    DEEPBENCH: _read_deepbench,
    **{file: _attention_reader(file) for file in ATTENTION},
}
"""What can be read, by the file's path in the data folder."""

TRAINING_FILES = (NEUSIGHT_KERNELS,)
"""What FP32 predictors are fitted on."""

MATRIX_UNIT_FILES = (TENSOR_CORE_GEMM,)
"""What predictors of products on matrix units are fitted on."""


def measured_folder(path: Path) -> Path:
    """The folder of measured data: ``path``, or its ``data`` where that holds the files and ``path`` does not."""
    inner = path / "data"
    holds = any((path / name).is_file() for name in READERS)
    return inner if not holds and any((inner / name).is_file() for name in READERS) else path


def has_files(data_folder: Path, files: Sequence[str]) -> bool:
    """Whether the folder of measured data has one of ``files``."""
    folder = measured_folder(data_folder)
    return any((folder / name).is_file() for name in files)


def read_parts(data_folder: Path, files: Sequence[str] | None = None) -> list[Part]:
    """Reads those of ``files`` (default: all that have a reader) that the folder has, without making kernels.

    Raises DataError if the folder has none of them, or one can't be read.
    """
    if not data_folder.exists():
        raise DataError(f"{data_folder} does not exist; pass the folder that holds the measured data")
    if not data_folder.is_dir():
        raise DataError(f"{data_folder} is a file; pass the folder that holds the measured data")
    wanted = tuple(READERS) if files is None else tuple(files)
    folder = measured_folder(data_folder)
    present = [name for name in wanted if (folder / name).is_file()]
    if not present:
        raise DataError(f"{data_folder} has none of {', '.join(wanted)}; pass the folder that holds the measured data")
    return [part for name in present for part in READERS[name](folder / name)]


def read_measurements(data_folder: Path, files: Sequence[str]) -> list[Measurements]:
    """Reads ``files`` as far as the folder has them, kernels made. Raises DataError as ``read_parts`` does."""
    return [part.load() for part in read_parts(data_folder, files) if part.load is not None]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
