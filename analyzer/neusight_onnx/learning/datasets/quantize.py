"""Kernels that quantise activations to FP8."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Elementwise, Kernel, Reduction, TensorSpec
from neusight_onnx.learning.datasets.parts import Part, device_part
from neusight_onnx.learning.datasets.tables import Table, grouped, ints, read_table, strings, take

QUANTIZE = "quantize/quantize.parquet"


def read_quantize(path: Path) -> list[Part]:
    """Quantising 16-bit activations to FP8: ``scale_matrix`` with a scale at hand, ``computescale`` the greatest value.

    One row a framework and size, the fastest of its versions. vLLM's ``computescale`` is the difference of two timings,
    below what reading takes; SGLang has 20 rows of it, and its ``scale_matrix`` takes ten times what its bytes do.

    The same buffers are replayed: what fits the L2 stays there, which no model has, where other kernels run between.
    Rows of less than ``REPLAY_REACH`` L2s are a part of their own.
    """
    table = read_table(path, ("gpu", "framework", "version", "kernel", "m", "k", "latency_ms"))
    fastest: dict[tuple[str, ...], int] = {}
    keys = zip(*(strings(table[name]).tolist() for name in ("gpu", "framework", "kernel", "m", "k")), strict=True)
    latency = table["latency_ms"]
    for i, key in enumerate(keys):
        if latency[i] > 0 and (key not in fastest or latency[i] < latency[fastest[key]]):
            fastest[key] = i
    table = take(table, np.array(sorted(fastest.values()), dtype=np.int64))
    reached = _in_reach(table)
    parts = []
    for (kernel, framework, near), rows in grouped(table["kernel"], table["framework"], reached):
        make, kernel_class = _QUANTIZE_KERNELS.get(kernel, (None, kernel))
        reason = "" if make is not None else f"no kernel for {kernel}"
        if kernel == "computescale" and framework != "TRTLLM":
            make, reason = None, "a difference of two timings, below what reading takes"
        parts.append(
            device_part(
                QUANTIZE,
                kernel_class,
                "bfloat16",
                take(table, rows),
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
    for name in sorted(set(strings(table["gpu"]).tolist())):
        try:
            most[name] = REPLAY_REACH * load_gpu(name).l2_bytes
        except SpecError:
            most[name] = 0.0
    # an element is read in two bytes and, where it is scaled, written in one
    element = np.where(strings(table["kernel"]) == "computescale", 2.0, 3.0)
    size = element * table["m"].astype(np.float64) * table["k"].astype(np.float64)
    limit = np.array([most[name] for name in strings(table["gpu"]).tolist()])
    return np.where(size < limit, "replayed in the L2", "")


def _scale_kernels(table: Table) -> list[Kernel]:
    return [
        Elementwise(
            operations=("quantize",),
            inputs=(TensorSpec(dtype=DataType.BFLOAT16, shape=(m, k)),),
            output=TensorSpec(dtype=DataType.FLOAT8E4M3FN, shape=(m, k)),
        )
        for m, k in zip(ints(table["m"]), ints(table["k"]), strict=True)
    ]


def _greatest_kernels(table: Table) -> list[Kernel]:
    return [
        Reduction(
            operation="max",
            outputs=1,
            reduced=m * k,
            dtype=DataType.BFLOAT16,
            output=TensorSpec(dtype=DataType.FLOAT32, shape=(1,)),
            fused=("abs",),
        )
        for m, k in zip(ints(table["m"]), ints(table["k"]), strict=True)
    ]


_QUANTIZE_KERNELS: Mapping[str, tuple[Callable[[Table], list[Kernel]], str]] = {
    "scale_matrix": (_scale_kernels, "elementwise"),
    "computescale": (_greatest_kernels, "reduction"),
}
