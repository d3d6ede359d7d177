"""Reads measured kernels: files of public measurements -> kernels, each with its GPU, session and latency.

A data folder has the layout of the README beside the data; any subset of its files will do. Only this module
knows the files' columns, and only ``learning`` imports pyarrow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import BY_LABEL, DataType
from neusight_onnx.errors import DataError, NeusightError, SpecError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Attention,
    Conv,
    Direction,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Normalization,
    Reduction,
    Softmax,
    TensorSpec,
    kernel_dtype,
    predictor_label,
)
from neusight_onnx.learning.measured import MeasuredRow, is_measured, measured_rows

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
        """Equal numbers for equal kernels, in order of first appearance: what must not be split between folds.

        Attention with and without the kernel that writes the cache beside it is one shape.
        """
        number_of: dict[Kernel, int] = {}
        kernels = [_alone(kernel) for kernel in self.kernels]
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


def _alone(kernel: Kernel) -> Kernel:
    return replace(kernel, cache_write_elements=0) if isinstance(kernel, Attention) else kernel


NEUSIGHT_KERNELS = "neusight/kernels_fp32.parquet"

Table = Mapping[str, NDArray[Any]]


def _table(path: Path, columns: Sequence[str]) -> Table:
    parquet = require("pyarrow.parquet")
    arrow = require("pyarrow")
    try:
        present = parquet.read_schema(path).names
        missing = [name for name in columns if name not in present]
        table = None if missing else parquet.read_table(path, columns=list(columns))
    except (OSError, arrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"can't read {path}: {reason}; expected a parquet file with {', '.join(columns)}") from error
    if table is None:
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
        for (name,), rows in _groups(self.gpu if self.strata is None else self.strata):
            if rows.size > count:
                key = "/".join((self.file, self.kernel_class, self.dtype, self.variant, name))
                random = np.random.default_rng(crc32(key.encode()))
                rows = random.choice(rows, count, replace=False)
            chosen.append(rows)
        return np.sort(np.concatenate(chosen))


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


def _take(table: Table, rows: NDArray[np.int64]) -> Table:
    return {name: column[rows] for name, column in table.items()}


def _device_part(
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
    gpu = np.char.lower(np.char.replace(_strings(table["gpu"]), "NV ", "")).astype(np.str_)

    def load(rows: NDArray[np.int64] | None = None) -> Measurements:
        assert make is not None, "a part without kernels isn't loaded"
        part = table if rows is None else _take(table, rows)
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
            kernel_name=np.full(count, "") if kernel_name is None else _strings(part[kernel_name]),
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


def _groups(*columns: NDArray[Any]) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
    """Rows that agree in all columns, by what they hold there, in order."""
    keys = list(zip(*(_strings(column).tolist() for column in columns), strict=True))
    rows: dict[tuple[str, ...], list[int]] = {}
    for i, key in enumerate(keys):
        rows.setdefault(key, []).append(i)
    return [(key, np.array(rows[key], dtype=np.int64)) for key in sorted(rows)]


def _read_neusight(path: Path) -> list[Part]:
    return [_loaded(measurements) for measurements in _neusight(path)]


def _parts_by_dtype(
    file: str,
    table: Table,
    labels: NDArray[np.str_],
    kernel_class: str,
    make: Callable[[Table, DataType], list[Kernel]],
    *,
    operation: str = "",
    variant: str = "",
) -> list[Part]:
    """Device-timed rows, one part per label; a label that is no dtype of ours has no kernels."""
    parts = []
    for (label,), members in _groups(labels):
        rows = members[table["latency_ms"][members] > 0]
        dtype = BY_LABEL.get(label)

        def of_dtype(part: Table, dtype: DataType | None = dtype) -> list[Kernel]:
            assert dtype is not None, "a part without a dtype isn't loaded"
            return make(part, dtype)

        if rows.size:
            parts.append(
                _device_part(
                    file,
                    kernel_class,
                    label,
                    _take(table, rows),
                    of_dtype if dtype is not None else None,
                    operation=operation,
                    variant=variant,
                    reason="" if dtype is not None else f"no number format of this name: {label}",
                )
            )
    return parts


def _weights(table: Table, dtype: DataType) -> list[Kernel]:
    """Linear layers (m, k) @ (k, n); the weight is stored (n, k)."""
    sizes = zip(*(_ints(table[name]) for name in ("m", "n", "k")), strict=True)
    return [Gemm(m=m, n=n, k=k, dtype=dtype, b_is_weight=True, transpose_b=True, repeated=True) for m, n, k in sizes]


TENSOR_CORE_GEMM = "tensor_core_gemm/gemm.parquet"
AMD_GEMM = "tensor_core_gemm/aiter_gemm_amd.parquet"
VIDUR_LAYERS = "layers/vidur_layers_fp16.parquet"
MIOPEN_CONV = "conv/miopen_conv.parquet"
DEEPBENCH = "conv/deepbench.parquet"
LLM_LAYERS = "layers/llmservingsim_layers.parquet"
QUANTIZE = "quantize/quantize.parquet"
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

_NO_PREDICTOR = {"fp8_block": "kernels with a scale a block of 128, whose frameworks differ by up to 20 times"}

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
        part = _take(table, rows)
        known = _MATRIX_UNIT_FORMATS.get(name)

        def make(part: Table, known: tuple[str, DataType, DataType, DataType] | None = known) -> list[Kernel]:
            assert known is not None, "a part of an unknown format isn't loaded"
            _, multiplied, a_dtype, b_dtype = known
            sizes = zip(*(_ints(part[column]) for column in ("m", "n", "k")), strict=True)
            return [
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
                    repeated=True,
                )
                for m, n, k in sizes
            ]

        parts.append(
            _device_part(
                TENSOR_CORE_GEMM,
                "gemm",
                name if known is None else known[0],
                part,
                None if known is None else make,
                operation=variant,
                variant=variant,
                reason="" if known is not None else _NO_PREDICTOR.get(name, f"{name} is no format of ours"),
            )
        )
    return parts


_AMD_LABELS = {"float8_e4m3fnuz": "float8e4m3fnuz", "float8_e4m3": "float8e4m3fn"}


OTHER_KERNELS = "tuned, a scale a block"
"""Variant of products that scale blocks of 128 by themselves: other kernels than a product's, slower by a third."""


def _read_amd_gemm(path: Path) -> list[Part]:
    """Best of tuning; kernels with a scale a block, and those that want their weights shuffled, are apart."""
    table = _table(path, ("gpu", "dtype", "scheme", "b", "m", "n", "k", "latency_ms"))
    scheme = _strings(table["scheme"])
    variant = np.where(
        np.char.find(scheme, "blockscale") >= 0,
        OTHER_KERNELS,
        np.where(np.char.find(scheme, "preshuffle") >= 0, "tuned, shuffled weights", "tuned"),
    )

    def make(rows: Table, dtype: DataType) -> list[Kernel]:
        sizes = zip(*(_ints(rows[name]) for name in ("b", "m", "n", "k")), strict=True)
        output = None if dtype is _BF16 else _BF16
        return [
            Gemm(
                batch=b,
                m=m,
                n=n,
                k=k,
                dtype=dtype,
                output_dtype=output,
                b_is_weight=True,
                transpose_b=True,
                repeated=True,
            )
            for b, m, n, k in sizes
        ]

    labels = np.array([_AMD_LABELS.get(name, name) for name in _strings(table["dtype"]).tolist()])
    return [
        part
        for (name,), rows in _groups(variant)
        for part in _parts_by_dtype(AMD_GEMM, _take(table, rows), labels[rows], "gemm", make, variant=name)
    ]


def _read_vidur(path: Path) -> list[Part]:
    """Layers of language models as Vidur profiled them, each alone, its median to 1 us.

    Models with a gated MLP are those of Llama's kind (RMSNorm, SiLU); phi-2 has LayerNorm and GELU, and turns only a
    part of each head (``_ROTARY_DIMS``).
    """
    names = ("model", "op", "num_tokens", "tp", "n_head", "n_kv_head", "n_embd", "n_expanded_embd", "gated")
    table = _table(path, ("gpu", "dtype", *names, "gemm_m", "gemm_n", "gemm_k", "latency_ms"))
    table = {name.removeprefix("gemm_"): column for name, column in table.items()}
    products = np.nan_to_num(table["m"].astype(np.float64)) > 0
    parts = _parts_by_dtype(
        VIDUR_LAYERS,
        _take(table, np.flatnonzero(products)),
        _strings(table["dtype"])[products],
        "gemm",
        _weights,
        operation="linear",
    )
    for (op,), members in _groups(table["op"]):
        rows = members[~products[members]]
        if not rows.size:
            continue
        part = _take(table, rows)
        labels = _strings(part["dtype"])
        if op not in _VIDUR_OPS:
            parts.append(_device_part(VIDUR_LAYERS, op, "float16", part, None, reason=f"no kernel for the layer {op}"))
            continue
        kernel_class, make = _VIDUR_OPS[op]

        def kernels(part: Table, dtype: DataType, make: Callable[[_Layer, DataType], Kernel] = make) -> list[Kernel]:
            return [make(layer, dtype) for layer in _vidur_layers(part)]

        parts += _parts_by_dtype(VIDUR_LAYERS, part, labels, kernel_class, kernels, operation=op, variant=op)
    return parts


_ROTARY_DIMS = {"microsoft/phi-2": 32}
"""Elements of a head that are turned, where it isn't all of them: 0.4 of 80 (``partial_rotary_factor``, its config)."""


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A layer of a language model on one of ``tp`` GPUs: what it holds there, for ``tokens`` tokens."""

    tokens: int
    width: int
    expanded: int
    heads: int
    turned: int
    gated: bool


def _vidur_layers(table: Table) -> list[_Layer]:
    sizes = zip(
        *(_ints(table[name]) for name in ("num_tokens", "tp", "n_head", "n_kv_head", "n_embd", "n_expanded_embd")),
        strict=True,
    )
    gated, model = table["gated"].tolist(), _strings(table["model"]).tolist()
    return [
        _Layer(
            tokens=tokens,
            width=width,
            expanded=expanded // tp,
            heads=(heads + kv_heads) // tp,
            turned=_ROTARY_DIMS.get(model[i], width // heads),
            gated=bool(gated[i]),
        )
        for i, (tokens, tp, heads, kv_heads, width, expanded) in enumerate(sizes)
    ]


def _norm_layer(layer: _Layer, dtype: DataType) -> Kernel:
    method, parameters = ("rms", layer.width) if layer.gated else ("layer", 2 * layer.width)
    return Normalization(
        method=method,
        rows=layer.tokens,
        cols=layer.width,
        parameter_count=parameters,
        dtype=dtype,
        access="element" if layer.gated else "",
    )


def _added_norm_layer(layer: _Layer, dtype: DataType) -> Kernel:
    """RMSNorm of a sum with the residual, which is written as well."""
    rows = TensorSpec(dtype=dtype, shape=(layer.tokens, layer.width))
    return Normalization(
        method="rms",
        rows=layer.tokens,
        cols=layer.width,
        parameter_count=layer.width,
        dtype=dtype,
        fused=("add",),
        extra_inputs=(rows,),
        extra_outputs=(rows,),
    )


def _activation_layer(layer: _Layer, dtype: DataType) -> Kernel:
    rows = TensorSpec(dtype=dtype, shape=(layer.tokens, layer.expanded))
    if layer.gated:
        return Elementwise(operations=("silu", "mul"), inputs=(rows, rows), output=rows)
    return Elementwise(operations=("gelu_tanh",), inputs=(rows,), output=rows)


def _early_activation_layer(layer: _Layer, dtype: DataType) -> Kernel:
    """As vLLM had it until 2024: a thread loads one element at a time."""
    kernel = _activation_layer(layer, dtype)
    assert isinstance(kernel, Elementwise)
    return replace(kernel, access="element")


def _rotary_layer(layer: _Layer, dtype: DataType) -> Kernel:
    """Queries and keys in place; cosines and sines are read by token, each for half a head."""
    heads = TensorSpec(dtype=dtype, shape=(layer.tokens, layer.heads, layer.turned))
    table = TensorSpec(dtype=dtype, shape=(layer.tokens, 1, layer.turned))
    return Elementwise(operations=("mul", "mul", "add"), inputs=(heads, table), output=heads, access="element")


def _residual_layer(layer: _Layer, dtype: DataType) -> Kernel:
    rows = TensorSpec(dtype=dtype, shape=(layer.tokens, layer.width))
    return Elementwise(operations=("add",), inputs=(rows, rows), output=rows)


def _embedding_layer(layer: _Layer, dtype: DataType) -> Kernel:
    return GatherScatter(
        operation="embedding",
        moved=layer.tokens * layer.width,
        run=layer.width,
        dtype=dtype,
        index_count=layer.tokens,
        index_dtype=DataType.INT64,
        access="element",
    )


def _late_embedding_layer(layer: _Layer, dtype: DataType) -> Kernel:
    """As PyTorch has it since 2.7: rows are copied 16 bytes at a time."""
    kernel = _embedding_layer(layer, dtype)
    assert isinstance(kernel, GatherScatter)
    return replace(kernel, access="vector")


_VIDUR_OPS: Mapping[str, tuple[str, Callable[[_Layer, DataType], Kernel]]] = {
    "emb": ("gather_scatter", _embedding_layer),
    "input_layernorm": ("normalization", _norm_layer),
    "post_attention_layernorm": ("normalization", _norm_layer),
    "attn_rope": ("elementwise", _rotary_layer),
    "mlp_act": ("elementwise", _early_activation_layer),
    "add": ("elementwise", _residual_layer),
}
"""Layers without a product: class and kernel of each."""


@dataclass(frozen=True, kw_only=True)
class _LanguageModel:
    """Sizes of a language model, from the ``config.json`` that its makers publish; ``expanded`` is an expert's."""

    width: int
    expanded: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int


_LANGUAGE_MODELS: Mapping[str, _LanguageModel] = {
    "meta-llama/Llama-3.1-8B": _LanguageModel(
        width=4096, expanded=14_336, heads=32, kv_heads=8, head=128, vocabulary=128_256
    ),
    "meta-llama/Llama-3.1-70B": _LanguageModel(
        width=8192, expanded=28_672, heads=64, kv_heads=8, head=128, vocabulary=128_256
    ),
    "mistralai/Mixtral-8x7B-v0.1": _LanguageModel(
        width=4096, expanded=14_336, heads=32, kv_heads=8, head=128, vocabulary=32_000
    ),
    "microsoft/Phi-mini-MoE-instruct": _LanguageModel(
        width=4096, expanded=960, heads=32, kv_heads=8, head=128, vocabulary=32_064
    ),
}

_V0_LAYERS = "v0 layers"
_V1 = "v1 vLLM"


def _projection(layer: str, model: _LanguageModel, tp: int) -> tuple[int, int] | None:
    """(n, k) of a layer that is a product with a weight, on one of ``tp`` GPUs; None: it is none."""
    queries, keys = model.heads * model.head, model.kv_heads * model.head
    sizes = {
        "qkv_proj": ((queries + 2 * keys) // tp, model.width),
        "q_proj": (queries // tp, model.width),
        "k_proj": (keys // tp, model.width),
        "v_proj": (keys // tp, model.width),
        "o_proj": (model.width, queries // tp),
        "gate_up_proj": (2 * model.expanded // tp, model.width),
        "gate_proj": (model.expanded // tp, model.width),
        "up_proj": (model.expanded // tp, model.width),
        "down_proj": (model.width, model.expanded // tp),
        # experts stay whole: they take as long on one of two or four GPUs as on one alone
        "expert.w1": (model.expanded, model.width),
        "expert.w2": (model.width, model.expanded),
        "expert.w3": (model.expanded, model.width),
        "lm_head": (model.vocabulary // tp, model.width),
    }
    return sizes.get(layer)


def _read_llm_layers(path: Path) -> list[Part]:
    """Layers of language models as LLMServingSim profiled them: v1 under vLLM, v0 in PyTorch.

    Of v0 only the products are credible (its norms and RoPE take a multiple of what the bytes need). A mixed step of
    attention, prefill beside decode, is one figure for several kernels; so is the sampler.
    """
    names = ("model", "tp", "layer", "tokens", "sequences", "prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    table = _table(path, ("gpu", *names, "profiler", "latency_ms"))
    parts = []
    for (profiler, model_name, layer, tp), members in _groups(
        *(table[name] for name in ("profiler", "model", "layer", "tp"))
    ):
        rows = members[table["latency_ms"][members] > 0]
        if not rows.size:
            continue
        model = _LANGUAGE_MODELS.get(model_name)
        kernel_class, make, reason = _llm_layer(profiler, layer, model, int(tp))
        if layer == "attention" and make is not None:
            prefill, decode = (np.nan_to_num(table[name][rows]) > 0 for name in ("prefill_chunk", "n_decode"))
            mixed = prefill & decode
            if mixed.any():
                parts.append(
                    _device_part(
                        LLM_LAYERS,
                        "attention",
                        "bfloat16",
                        _take(table, rows[mixed]),
                        None,
                        variant=profiler,
                        reason="prefill and decode in one figure",
                    )
                )
            rows = rows[~mixed]
        if rows.size:
            parts.append(
                _device_part(
                    LLM_LAYERS,
                    kernel_class,
                    "bfloat16",
                    _take(table, rows),
                    make,
                    operation=layer,
                    variant=f"{profiler}, {'linear' if kernel_class == 'gemm' else layer}",
                    reason=reason,
                )
            )
    return _joined(parts)


def _joined(parts: Sequence[Part]) -> list[Part]:
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


_LlmMaker = Callable[[Table], Sequence[Kernel]]


def _llm_layer(profiler: str, layer: str, model: _LanguageModel | None, tp: int) -> tuple[str, _LlmMaker | None, str]:
    """(class, what makes the kernels, why there are none) of a layer."""
    if model is None:
        return layer, None, "sizes of the model are not known"
    found = _projection(layer, model, tp)
    if found is not None:
        n, k = found

        def product(rows: Table) -> list[Kernel]:
            # the vocabulary is needed for the last token of each sequence only
            tokens = np.where(np.isnan(rows["tokens"].astype(np.float64)), rows["sequences"], rows["tokens"])
            # vLLM's layers were timed inside the model
            alone = profiler != _V1
            return [
                Gemm(m=m, n=n, k=k, dtype=_BF16, b_is_weight=True, transpose_b=True, repeated=alone)
                for m in _ints(tokens)
            ]

        return "gemm", product, ""
    if profiler != _V1:
        return layer, None, "of this profiler only the products are credible"
    if layer == "attention":
        heads, kv_heads, head = model.heads // tp, max(model.kv_heads // tp, 1), model.head

        def attention(rows: Table) -> list[Kernel]:
            sizes = (_ints(rows[name]) for name in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode"))
            return [
                Attention(
                    b=1 if chunk else decoding,
                    h=heads,
                    g=kv_heads,
                    s=chunk or 1,
                    t=before + chunk if chunk else keys,
                    d=head,
                    v=head,
                    causal=True,
                    dtype=_BF16,
                )
                for chunk, before, decoding, keys in zip(*sizes, strict=True)
            ]

        return "attention", attention, ""
    if layer not in _V1_OPS:
        return layer, None, "several kernels in one figure"
    kernel_class, make = _V1_OPS[layer]

    def one(rows: Table) -> list[Kernel]:
        return [
            make(
                _Layer(
                    tokens=tokens,
                    width=model.width,
                    expanded=model.expanded // tp,
                    heads=(model.heads + model.kv_heads) // tp,
                    turned=model.head,
                    gated=True,
                ),
                _BF16,
            )
            for tokens in _ints(rows["tokens"])
        ]

    return kernel_class, one, ""


_V1_OPS: Mapping[str, tuple[str, Callable[[_Layer, DataType], Kernel]]] = {
    "embedding": ("gather_scatter", _late_embedding_layer),
    "layernorm": ("normalization", _added_norm_layer),
    "final_layernorm": ("normalization", _added_norm_layer),
    "rotary_emb": ("elementwise", _rotary_layer),
    "act_fn": ("elementwise", _activation_layer),
}
"""Layers of vLLM without a product: class and kernel of each."""


def _read_quantize(path: Path) -> list[Part]:
    """Quantising 16-bit activations to FP8: ``scale_matrix`` with a scale at hand, ``computescale`` the greatest value.

    One row a framework and size, the fastest of its versions. vLLM's ``computescale`` is the difference of two timings,
    below what reading takes; SGLang has 20 rows of it, and its ``scale_matrix`` takes ten times what its bytes do.

    The same buffers are replayed: what fits the L2 stays there, which no model has, where other kernels run between.
    Rows of less than ``REPLAY_REACH`` L2s are a part of their own.
    """
    table = _table(path, ("gpu", "framework", "version", "kernel", "m", "k", "latency_ms"))
    fastest: dict[tuple[str, ...], int] = {}
    keys = zip(*(_strings(table[name]).tolist() for name in ("gpu", "framework", "kernel", "m", "k")), strict=True)
    latency = table["latency_ms"]
    for i, key in enumerate(keys):
        if latency[i] > 0 and (key not in fastest or latency[i] < latency[fastest[key]]):
            fastest[key] = i
    table = _take(table, np.array(sorted(fastest.values()), dtype=np.int64))
    reached = _in_reach(table)
    parts = []
    for (kernel, framework, near), rows in _groups(table["kernel"], table["framework"], reached):
        make, kernel_class = _QUANTIZE_KERNELS.get(kernel, (None, kernel))
        reason = "" if make is not None else f"no kernel for {kernel}"
        if kernel == "computescale" and framework != "TRTLLM":
            make, reason = None, "a difference of two timings, below what reading takes"
        parts.append(
            _device_part(
                QUANTIZE,
                kernel_class,
                "bfloat16",
                _take(table, rows),
                make,
                operation=kernel,
                variant=", ".join(filter(None, (framework.lower(), kernel, near))),
                reason=reason,
            )
        )
    return parts


REPLAY_REACH = 4.0
"""Sizes of the L2 from which on a replay reads and writes DRAM all but wholly: at twice its size, what the L2 holds
back is still 10 to 20 %."""


def _in_reach(table: Table) -> NDArray[np.str_]:
    """A word for rows of quantisers whose operands a replay finds in the L2 as a whole or in part, else empty."""
    most: dict[str, float] = {}
    for name in sorted(set(_strings(table["gpu"]).tolist())):
        try:
            most[name] = REPLAY_REACH * load_gpu(name).l2_bytes
        except SpecError:
            most[name] = 0.0
    # an element is read in two bytes and, where it is scaled, written in one
    element = np.where(_strings(table["kernel"]) == "computescale", 2.0, 3.0)
    size = element * table["m"].astype(np.float64) * table["k"].astype(np.float64)
    limit = np.array([most[name] for name in _strings(table["gpu"]).tolist()])
    return np.where(size < limit, "replayed in the L2", "")


def _scale_kernels(table: Table) -> list[Kernel]:
    return [
        Elementwise(
            operations=("quantize",),
            inputs=(TensorSpec(dtype=_BF16, shape=(m, k)),),
            output=TensorSpec(dtype=_FP8, shape=(m, k)),
        )
        for m, k in zip(_ints(table["m"]), _ints(table["k"]), strict=True)
    ]


def _greatest_kernels(table: Table) -> list[Kernel]:
    return [
        Reduction(
            operation="max",
            outputs=1,
            reduced=m * k,
            dtype=_BF16,
            output=TensorSpec(dtype=_FP32, shape=(1,)),
            fused=("abs",),
        )
        for m, k in zip(_ints(table["m"]), _ints(table["k"]), strict=True)
    ]


_QUANTIZE_KERNELS: Mapping[str, tuple[Callable[[Table], list[Kernel]], str]] = {
    "scale_matrix": (_scale_kernels, "elementwise"),
    "computescale": (_greatest_kernels, "reduction"),
}


def _sides(values: NDArray[Any]) -> list[tuple[int, ...]]:
    return [tuple(int(side) for side in value.split("x")) for value in values.tolist()]


_DIRECTIONS: Mapping[str, Direction] = {"fwd": "forward", "bwd_data": "data", "bwd_weights": "weight"}


def _by_direction(
    file: str, table: Table, labels: NDArray[np.str_], make: Callable[[Table, DataType], list[Kernel]]
) -> list[Part]:
    """Parts of convolutions by number format and direction, which are other kernels each: the part's variant."""
    names = _strings(table["direction"])
    return [
        part
        for name, direction in _DIRECTIONS.items()
        for rows in (np.flatnonzero(names == name),)
        for part in _parts_by_dtype(
            file, _take(table, rows), labels[rows], "conv", make, operation=direction, variant=direction
        )
    ]


def _read_miopen(path: Path) -> list[Part]:
    """Convolutions and their gradients; naive solvers are no library's choice."""
    names = ("gpu", "dtype", "direction", "ndim", "n", "c", "d", "h", "w", "k", "od", "oh", "ow", "fd", "fh", "fw")
    table = _table(path, (*names, "layout", "stride", "dilation", "groups", "latency_ms", "solver"))
    naive = np.array(["Naive" in name for name in _strings(table["solver"]).tolist()])
    table = _take(table, np.flatnonzero(~naive))
    labels = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "INT8": "int8"}
    dtype = np.array([labels.get(name, name) for name in _strings(table["dtype"]).tolist()])

    def make(part: Table, dtype: DataType) -> list[Kernel]:
        size = {name: _ints(part[name]) for name in (*names[4:], "ndim", "groups")}
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
                )
            )
        return kernels

    return _by_direction(MIOPEN_CONV, table, dtype, make)


_DEEPBENCH_FORMATS = {
    "Float": "float32",
    "16 bit inputs, 16 bit multiplication, 32 bit addition": "float16",
}
"""Precision of a sheet -> label. "16 bit inputs, 32 bit multiplication" (P100) is a mode of the library that no runtime
of today asks for."""
_DEEPBENCH_INT8 = "GEMM, Conv: Int8"


def _deepbench_format(precision: str) -> str:
    return "int8" if precision.startswith(_DEEPBENCH_INT8) else _DEEPBENCH_FORMATS.get(precision, "")


def _read_deepbench(path: Path) -> list[Part]:
    """Products and convolutions in FP32, FP16 on tensor cores and INT8; recurrent layers are many kernels, no row of
    ours. Times hold whatever the library's benchmark ran, with CUDA 8 to 10."""
    conv_names = ("w", "h", "c", "batch", "s_fw", "r_fh", "pad_w", "pad_h", "stride_w", "stride_h")
    table = _table(path, ("gpu", "precision", "op", "m", "n", "k", "direction", "latency_ms", *conv_names))
    labels = np.array([_deepbench_format(name) for name in _strings(table["precision"]).tolist()], dtype=np.str_)
    op = _strings(table["op"])
    products = np.flatnonzero((labels != "") & (op == "gemm") & (table["m"] > 0))
    # some sheets leave the filter's or the stride's columns empty
    whole = np.minimum.reduce([np.nan_to_num(table[name]) for name in ("s_fw", "r_fh", "stride_w", "stride_h")]) > 0
    convolutions = (labels != "") & (op == "conv") & (table["latency_ms"] > 0)
    complete = np.flatnonzero(convolutions & whole)

    def product(part: Table, dtype: DataType) -> list[Kernel]:
        sizes = zip(*(_ints(part[name]) for name in ("m", "n", "k")), strict=True)
        # column-major in the source: its n columns are our rows
        return [Gemm(m=n, n=m, k=k, dtype=dtype, b_is_weight=True, repeated=True) for m, n, k in sizes]

    def convolution(part: Table, dtype: DataType) -> list[Kernel]:
        size = {name: _ints(part[name]) for name in ("k", *conv_names)}
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
                )
            )
        return kernels

    parts = _parts_by_dtype(DEEPBENCH, _take(table, products), labels[products], "gemm", product)
    parts += _by_direction(DEEPBENCH, _take(table, complete), labels[complete], convolution)
    left = {
        ("conv", "sheets that leave out the filter or the stride"): convolutions & ~whole,
        ("recurrent", "several kernels in one figure"): np.char.startswith(op, "rnn"),
        ("gemm or conv", "a mode that no runtime asks for"): (labels == "") & np.isin(op, ("gemm", "conv")),
    }
    for (kernel_class, reason), mask in left.items():
        if mask.any():
            part = _take(table, np.flatnonzero(mask))
            parts.append(_device_part(DEEPBENCH, kernel_class, "any", part, None, reason=reason))
    return parts


_ATTENTION_FORMATS = {"bfloat16": _BF16, "fp8": _FP8}

_WITHOUT_CACHE_WRITE: Mapping[str, tuple[str, ...] | None] = {
    "sglang": None,
    "trtllm": (),
    "vllm": ("vllm_flash_attn", "vllm_flashinfer", "vllm_triton_attn"),
}
"""Implementations by framework whose times hold the attention alone (None: all of them).

vLLM's other kernels are those of a later release, whose times hold the kernel that appends keys and values to the cache
as well: between the two lie 2.5 us and 1.1 (H100) to 3 (B200) times the time of its bytes at the DRAM's peak.
TensorRT-LLM splits, rotates and converts queries, keys and values in one kernel before, so that queries count as
written, too.
"""

_ATTENTION_FAULTS: Mapping[str, str] = {
    "vllm_vit_flash_attn": "slowed",
    "vllm_flash_attn_fa4": "wide heads",
}
"""Kernels of a framework whose rows are judged, but trained on nowhere.

``vllm_vit_flash_attn``: an encoder of 16 heads of 64 with 8 x 4,096 tokens takes an H100 3.7 ms, the next release's
kernel 1.2 ms, while smaller ones agree: something else ran on these cards. ``vllm_flash_attn_fa4`` stands in on H100
for heads of more than 256, which no other kernel there has."""


def _unsplit(gpu: NDArray[np.str_], source: NDArray[np.str_], table: Table) -> NDArray[np.bool_]:
    """Decoding with FlashAttention 2 where every query head has keys of its own: its entry for sequences of several
    lengths cuts rows of keys into parts only together with packing. PyTorch and ONNX Runtime call another entry."""
    flash = np.isin(source, ("vllm_flash_attn", "vllm_flash_attn_fa2"))
    alone = (table["num_heads"] == table["num_key_value_heads"]) & (table["isl"] == 1)
    older = {name: _older_than_hopper(name) for name in set(gpu[flash & alone].tolist())}
    found: NDArray[np.bool_] = flash & alone & np.array([older.get(name, False) for name in gpu.tolist()])
    return found


def _older_than_hopper(gpu: str) -> bool:
    try:
        capability = load_gpu(gpu.lower()).compute_capability
    except SpecError:
        return False
    return capability is not None and capability < 9.0


def _attention_reader(file: str) -> Callable[[Path], list[Part]]:
    """``context``: prefill, causal; ``generation``: one query a sequence; ``encoder``: all pairs, as many key heads.

    One part per number format, that of the cache, framework and kernel: they differ by a factor. Rows repeat a kernel
    in a CUDA graph, so that what fits L2 is there.
    """
    operation = Path(file).stem
    cached = operation != "encoder"
    of_cache = ("step", "num_key_value_heads") if cached else ()
    names = ("batch_size", "isl", "num_heads", "head_dim", "window_size", *of_cache)

    def make(table: Table, dtype: DataType, cache: DataType, writes: bool, queries_too: bool) -> list[Kernel]:
        size = {name: _ints(table[name]) for name in names}
        kernels: list[Kernel] = []
        for i in range(len(size["isl"])):
            queries, batch, width = size["isl"][i], size["batch_size"][i], size["head_dim"][i]
            heads, groups = size["num_heads"][i], size["num_key_value_heads" if cached else "num_heads"][i]
            written = 2 * groups + (heads if queries_too else 0)
            kernels.append(
                Attention(
                    b=batch,
                    h=heads,
                    g=groups,
                    s=queries,
                    t=queries + (size["step"][i] if cached else 0),
                    d=width,
                    v=width,
                    causal=cached,
                    window=size["window_size"][i] or None,
                    dtype=dtype,
                    kv_dtype=None if cache is dtype else cache,
                    cache_write_elements=written * batch * queries * width if writes else 0,
                    past_in_l2=True,
                )
            )
        return kernels

    def read(path: Path) -> list[Part]:
        cache = ("kv_cache_dtype",) if cached else ()
        table = _table(path, ("gpu", "framework", "kernel_source", "attn_dtype", *cache, *names, "latency_ms"))
        source = _strings(table["kernel_source"])
        unsplit = _unsplit(_strings(table["gpu"]), source, table) if cached else np.zeros(source.size, dtype=np.bool_)
        note = np.array([_ATTENTION_FAULTS.get(name, "") for name in source.tolist()], dtype=np.str_)
        note = np.where(unsplit, "keys unsplit", note)
        formats = [table["attn_dtype"], table["kv_cache_dtype" if cached else "attn_dtype"]]
        parts = []
        for key, members in _groups(*formats, table["framework"], source, note):
            label, kept, framework, name, fault = key
            rows = members[table["latency_ms"][members] > 0]
            dtype, cache_dtype = _ATTENTION_FORMATS.get(label), _ATTENTION_FORMATS.get(kept)
            known = dtype is not None and cache_dtype is not None
            alone = _WITHOUT_CACHE_WRITE.get(framework)
            writes = cached and framework in _WITHOUT_CACHE_WRITE and alone is not None and name not in alone

            def of_format(
                part: Table,
                dtype: DataType | None = dtype,
                cache_dtype: DataType | None = cache_dtype,
                writes: bool = writes,
                queries_too: bool = framework == "trtllm",
            ) -> list[Kernel]:
                assert dtype is not None, "a part of an unknown format isn't loaded"
                assert cache_dtype is not None, "a part of an unknown format isn't loaded"
                return make(part, dtype, cache_dtype, writes, queries_too)

            details = (f"{framework}, {name}", f"{kept} cache" if kept != label else "", fault)
            if rows.size:
                parts.append(
                    _device_part(
                        file,
                        "attention",
                        dtype.label if dtype is not None else label,
                        _take(table, rows),
                        of_format if known else None,
                        operation=operation,
                        kernel_name="kernel_source",
                        variant=", ".join(detail for detail in details if detail),
                        reason="" if known else f"no number format of this name: {label}, {kept}",
                    )
                )
        return parts

    return read


TRAINED_ATTENTION: Mapping[str, str] = {
    "bfloat16": "vllm",
    "bfloat16+float8e4m3fn": "vllm",
    "float8e4m3fn": "trtllm",
}
"""The framework whose rows a predictor of attention is trained on, by the predictor's label.

vLLM runs what other programs run, too: FlashAttention 2 on A100 and L40S, 3 on H100, TensorRT-LLM's kernels on B200
(FlashAttention 4 in encoders), FlashInfer where the cache is in FP8 on L40S. TensorRT-LLM's own rows hold kernels
before it; they are the only ones in FP8 throughout that three GPUs have."""


def read_attention(data_folder: Path, label: str) -> Measurements | None:
    """What a predictor of attention is trained on, all its files together; None if there are no such rows.

    Kernels that a framework falls back to (Triton's), and rows with a fault, are left out. Raises DataError as
    ``read_parts`` does.
    """
    parts = _plain_attention(data_folder, label)
    found = [load() for framework, load in parts if framework == TRAINED_ATTENTION[label]]
    return replace(one_after_another(found), dtype=label) if found else None


def _plain_attention(data_folder: Path, label: str) -> Iterator[tuple[str, Loader]]:
    """Framework and loader of the parts that a predictor of attention could be trained on."""
    for part in read_parts(data_folder, ATTENTION):
        framework, source, *rest = part.variant.split(", ")
        of_label = part.dtype == label.split("+")[0] and ("fp8 cache" in rest) == ("+" in label)
        if part.load is not None and of_label and "triton" not in source and set(rest) <= {"fp8 cache"}:
            yield framework, part.load


ENOUGH_SHAPES = 20
"""Shapes that two implementations share from which on they tell how far the two are apart."""


def implementation_levels(data_folder: Path, measurements: Measurements) -> dict[str, list[float]]:
    """How far other frameworks' kernels are from those that a predictor of attention is trained on, by GPU.

    One level a kernel and operation: the median of log(other / trained) over at least ``ENOUGH_SHAPES`` shapes that
    both measured, of rows that count. Only frameworks whose times hold the attention alone show its level.
    """
    trained: dict[tuple[str, Kernel], float] = {}
    own = zip(measurements.kernels, measurements.gpu.tolist(), measurements.measured_us.tolist(), strict=True)
    for kernel, gpu, time in own:
        trained.setdefault((gpu, _alone(kernel)), time)
    levels: dict[str, list[float]] = {}
    for framework, load in _plain_attention(data_folder, measurements.dtype):
        alone = _WITHOUT_CACHE_WRITE.get(framework, ()) is None
        if framework == TRAINED_ATTENTION[measurements.dtype] or not alone:
            continue
        other = load()
        ratios: dict[str, list[float]] = {}
        for kernel, gpu, time in zip(other.kernels, other.gpu.tolist(), other.measured_us.tolist(), strict=True):
            same = trained.get((gpu, _alone(kernel)), 0.0)
            if min(same, time) >= measurements.scored_us:
                ratios.setdefault(gpu, []).append(float(np.log(time / same)))
        for gpu, found in ratios.items():
            if len(found) >= ENOUGH_SHAPES:
                levels.setdefault(gpu, []).append(float(np.median(found)))
    return levels


OWN = "own"
"""Operation of rows of own measurements: sessions of their own, on GPUs that others measured as well."""


def with_own(measurements: Measurements, data_folder: Path) -> tuple[Measurements, list[str]]:
    """Measurements with the own ones that have the same predictor behind them, and the files that these are from.

    Raises DataError if a file of own measurements can't be read.
    """
    folder = measured_folder(data_folder)
    label = predictor_label(measurements.kernels[0])
    found, files = [measurements], []
    for name in own_files(folder):
        parts = [part for part in read_parts(folder, (name,)) if part.kernel_class == measurements.kernel_class]
        loaded = [part.load() for part in parts if part.load is not None]
        own = [rows for rows in loaded if predictor_label(rows.kernels[0]) == label]
        found += own
        files += [name] if own else []
    return (one_after_another(found) if files else measurements), files


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


READERS: dict[str, Callable[[Path], list[Part]]] = {
    NEUSIGHT_KERNELS: _read_neusight,
    TENSOR_CORE_GEMM: _read_tensor_core_gemm,
    AMD_GEMM: _read_amd_gemm,
    VIDUR_LAYERS: _read_vidur,
    LLM_LAYERS: _read_llm_layers,
    QUANTIZE: _read_quantize,
    MIOPEN_CONV: _read_miopen,
    DEEPBENCH: _read_deepbench,
    **{file: _attention_reader(file) for file in ATTENTION},
}
"""What can be read, by the file's path in the data folder."""

TRAINING_FILES = (NEUSIGHT_KERNELS,)
"""What FP32 predictors are fitted on."""

MATRIX_UNIT_FILES = (TENSOR_CORE_GEMM,)
"""What predictors of products on matrix units are fitted on."""


OWN_FOLDER = "measurements"
"""Folder of a data folder with CSV files of own measurements (``measurements/`` of the repository writes them)."""


def own_files(folder: Path) -> list[str]:
    """The CSV files of own measurements that lie in a folder or in its ``measurements``, relative to it."""
    if not folder.is_dir():
        return []
    inner = [f"{OWN_FOLDER}/{path.name}" for path in sorted((folder / OWN_FOLDER).glob("*.csv"))]
    return [path.name for path in sorted(folder.glob("*.csv")) if is_measured(path)] + inner


def _read_own(file: str, path: Path) -> list[Part]:
    """A part per class, number format, layout and state of the cache."""
    rows: dict[tuple[str, str, str], list[MeasuredRow]] = {}
    for row in measured_rows(path):
        kernel = _as_measured(row)
        variant = ", ".join(filter(None, (row.layout, row.cache)))
        label = row.precision if kernel is None else kernel_dtype(kernel).label
        rows.setdefault((KERNEL_CLASSES[type(row.kernel)], label, variant), []).append(row)
    return [_own_part(file, *key, members) for key, members in sorted(rows.items())]


def _own_part(file: str, kernel_class: str, label: str, variant: str, members: Sequence[MeasuredRow]) -> Part:
    gpu = np.array([row.gpu for row in members], dtype=np.str_)
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


def _as_measured(row: MeasuredRow) -> Kernel | None:
    """The kernel in the order and with the type that it ran in. None: there is no such type."""
    ordered = isinstance(row.kernel, Conv) and row.layout == "nhwc"
    kernel = replace(row.kernel, channels_last=True) if isinstance(row.kernel, Conv) and ordered else row.kernel
    return _multiplied_as(kernel, row.precision)


def _multiplied_as(kernel: Kernel, precision: str) -> Kernel | None:
    """The kernel with the type that is multiplied: TF32's tensors are those of FP32. None: there is no such type."""
    if precision != "tf32" or not isinstance(kernel, (Gemm, Conv, Attention)):
        return kernel
    multiplied = BY_LABEL.get("tf32")
    return None if multiplied is None else replace(kernel, dtype=multiplied)


def measured_folder(path: Path) -> Path:
    """The folder of measured data: ``path``, or its ``data`` where that holds the files and ``path`` does not."""
    inner = path / "data"

    def holds(folder: Path) -> bool:
        return any((folder / name).is_file() for name in READERS) or bool(own_files(folder))

    return inner if not holds(path) and holds(inner) else path


def has_files(data_folder: Path, files: Sequence[str]) -> bool:
    """Whether the folder of measured data has one of ``files``."""
    folder = measured_folder(data_folder)
    return any((folder / name).is_file() for name in files)


def files_in(data_folder: Path, files: Sequence[str] | None = None) -> list[str]:
    """Those of ``files`` (default: all that have a reader) that the folder has. Raises DataError if it has none."""
    if not data_folder.exists():
        raise DataError(f"{data_folder} does not exist; pass the folder that holds the measured data")
    if not data_folder.is_dir():
        raise DataError(f"{data_folder} is a file; pass the folder that holds the measured data")
    folder = measured_folder(data_folder)
    wanted = (*READERS, *own_files(folder)) if files is None else tuple(files)
    present = [name for name in wanted if (folder / name).is_file()]
    if not present:
        own = " or CSV files of measurements/" if files is None else ""
        raise DataError(
            f"{data_folder} has none of {', '.join(wanted)}{own}; pass the folder that holds the measured data"
        )
    return present


def read_parts(data_folder: Path, files: Sequence[str] | None = None) -> list[Part]:
    """Reads those of ``files`` (default: all that have a reader) that the folder has, without making kernels.

    Raises DataError if the folder has none of them, or one can't be read.
    """
    folder = measured_folder(data_folder)
    return [
        part
        for name in files_in(data_folder, files)
        for part in (READERS[name](folder / name) if name in READERS else _read_own(name, folder / name))
    ]


def read_measurements(data_folder: Path, files: Sequence[str]) -> list[Measurements]:
    """Reads ``files`` as far as the folder has them, kernels made. Raises DataError as ``read_parts`` does."""
    return [part.load() for part in read_parts(data_folder, files) if part.load is not None]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
