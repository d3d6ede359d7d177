"""Kernels of fused attention as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import APPENDING, IN_PAGES, Attention, Kernel
from neusight_onnx.laws.base import Column
from neusight_onnx.laws.matrix_units import PIPES

GIVEN_BYTES = 2.0
"""Least bytes of an element that a cache's kernel is given: a product's output in 16 bits, also where queries, keys and
values are converted to 8 (TensorRT-LLM's preprocessing)."""

_COLUMNS = (
    "b",
    "h",
    "g",
    "s",
    "t",
    "d",
    "v",
    "causal",
    "window",
    "windowed",
    "query_bytes",
    "kv_bytes",
    "seen_bytes",
    "past_bytes",
    "io_bytes",
    "cache_bytes",
    "mask_reads",
    "read_bytes",
    "write_bytes",
    "flops",
    "pipe",
    "burst",
    "mask_bytes",
    "by_onnxruntime",
    "by_pytorch",
    "appends",
    "in_pages",
    "dropout",
)

_PIPE_OF: dict[DataType, str] = {
    DataType.FLOAT16: "fp16",
    DataType.BFLOAT16: "bf16",
    DataType.FLOAT8E4M3FN: "fp8",
    DataType.FLOAT8E4M3FNUZ: "fp8",
    DataType.FLOAT8E5M2: "fp8",
    DataType.FLOAT8E5M2FNUZ: "fp8",
    DataType.FLOAT32: "tf32",
    DataType.TFLOAT32: "tf32",
}


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Attention kernels as columns: sizes, bytes an element of queries and keys, bytes by what they are.

    ``seen_bytes`` are the keys and values that are read, ``past_bytes`` those of them that a cache held before and that
    L2 has lost since; ``io_bytes`` queries, output and what else is read or written once; ``mask_reads`` what all heads
    read of a mask. ``appends``: FlashAttention 2 writes new keys to the cache itself; ``in_pages``: it
    looks keys up.
    """
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Attention)
        query, stored = kernel.dtype.bits / 8, (kernel.kv_dtype or kernel.dtype).bits / 8
        # an empty tensor still launches a kernel: that of one element
        b, h, g, s, t, d, v = (
            max(size, 1) for size in (kernel.b, kernel.h, kernel.g, kernel.s, kernel.t, kernel.d, kernel.v)
        )
        keys = max(kernel.seen_keys, 1)
        seen = stored * b * g * keys * (d + v)
        mask = kernel.mask.byte_count if kernel.mask else 0
        # one that has a value a pair is read again by every head; one that has a value a key is nothing beside the keys
        reads = (
            b * h * s * keys * kernel.mask.dtype.bits / 8 if kernel.mask and kernel.mask.element_count >= s * t else 0.0
        )
        extra = sum(spec.byte_count for spec in kernel.extra_outputs)
        past = 0.0 if kernel.past_in_l2 else max(1.0 - s / keys, 0.0) * (1.0 - kernel.kept_in_l2)
        rows.append(
            (
                b,
                h,
                g,
                s,
                t,
                d,
                v,
                float(kernel.causal),
                min(kernel.window or t, t),
                float(kernel.window is not None),
                query,
                stored,
                seen,
                past * seen,
                query * b * h * s * (d + v) + mask + extra,
                kernel.cache_write_elements * (max(query, GIVEN_BYTES) + stored),
                reads,
                kernel.read_bytes,
                kernel.write_bytes,
                2.0 * kernel.macs,
                float(PIPES.index(_PIPE_OF[kernel.dtype])),
                float(kernel.burst),
                mask,
                float(kernel.library == "onnxruntime"),
                float(kernel.library == "pytorch"),
                float(APPENDING in kernel.variants),
                float(IN_PAGES in kernel.variants),
                float(kernel.dropout),
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


def columns_of(used: str, **instead: float) -> Callable[[Sequence[Kernel]], dict[str, Column]]:
    """Columns of kernels that are all of one of ``kernel_choice``'s kinds: a column of that name says so. ``instead``:
    other values of some columns."""

    def found(kernels: Sequence[Kernel]) -> dict[str, Column]:
        others = {name: np.full(len(kernels), value) for name, value in instead.items()}
        return {**columns(kernels), used: np.ones(len(kernels)), **others}

    return found
