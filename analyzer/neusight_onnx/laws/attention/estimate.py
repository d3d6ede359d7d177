"""The estimate of the law of fused attention, and its roofline."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention.kernel_choice import doubt_log_sd
from neusight_onnx.laws.attention.rates import dense_peaks
from neusight_onnx.laws.attention.schedule import pin
from neusight_onnx.laws.attention.times import times
from neusight_onnx.laws.bandwidth import p_norm
from neusight_onnx.laws.base import Column, Columns, Constants, LawResult

BLOCK_NORM = 8.0
"""Power of the norm that joins a block's steps with those of all: where every SM has one block the two are the same."""


_PARTS = ("compute", "latency", "memory", "l2")


def joined_us(parts: Mapping[str, Column], c: Constants) -> Column:
    """Latency in us: floor, start and end of a block, p-norm of the competing times, what stands beside them."""
    busy = p_norm((parts["compute"], parts["latency"]), BLOCK_NORM)
    competing = p_norm((busy - parts["start"], parts["memory"], parts["l2"]), c["norm"])
    joined: Column = 1e6 * (parts["floor"] + parts["start"] + competing + parts["beside"])
    return joined


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline: FLOPs at the dense peak of the pipe, unique bytes at the peak of DRAM, whichever takes longer.

    Bytes that the L2 can hold needn't come from DRAM, so only what exceeds it counts, and keys that it has lost since.
    """
    compute = cols["flops"] / dense_peaks(cols, gpu)
    beyond = np.maximum(cols["read_bytes"] + cols["write_bytes"] - gpu.l2_bytes, 0.0)
    memory = np.maximum(beyond, cols["past_bytes"]) / gpu.memory_bytes_per_s
    return 1e6 * np.maximum(compute, memory)


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer; ``cols`` may be pinned."""
    if "blocks" not in cols:
        cols = pin(cols, gpu, constants)
    parts = times(cols, gpu, constants)
    latency = joined_us(parts, constants)
    return LawResult(
        latency_us=latency,
        ideal_us=ideal_us(cols, gpu),
        parts_us={**{name: 1e6 * parts[name] for name in _PARTS}, "launch": 1e6 * parts["floor"]},
        tile={"queries": cols["tile_q"], "keys": cols["tile_k"], "split_k": cols["split_k"]},
        tile_count=cols["blocks"],
        wave_count=np.maximum(np.ceil(cols["blocks"] / gpu.sm_count), 1.0),
        doubt_log_sd=doubt_log_sd(cols, gpu),
    )
