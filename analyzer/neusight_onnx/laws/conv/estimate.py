"""The law's answer: the quickest of the algorithms, with its tile and parts."""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Columns, Constants, LawResult
from neusight_onnx.laws.conv.algorithms import (
    ALGORITHMS,
    FUSED_OCCUPANCY,
    FUSED_TILE,
    Times,
    algorithm_times,
    pin,
    tile_of,
)
from neusight_onnx.laws.conv.constants import ELEMENT_LOG_SD, KIND_LOG_SD, WINOGRAD_SAVING
from neusight_onnx.laws.gemm.machine import doubt, machine


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline, with Winograd's multiply-adds where it applies: a 3x3 convolution may beat the direct FLOP count."""
    unit = machine(gpu)
    flops = cols["flops"] / np.where(cols["winograd"] > 0, WINOGRAD_SAVING, 1.0)
    memory = (cols["read_bytes"] + cols["write_bytes"]) / unit.bytes_per_s
    return 1e6 * np.maximum(flops / unit.flops_per_s, memory)


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer: the quickest of the algorithms."""
    if "direct_n" not in cols:
        cols = pin(cols, gpu, constants)
    times = algorithm_times(cols, gpu, constants)
    return answered(
        times,
        cols,
        gpu,
        constants,
        latency_us=times.all_us.min(axis=0),
        ideal_us=ideal_us(cols, gpu),
        kind_log_sd=np.hypot(cols["gradient_log_sd"], np.where(cols["winograd"] > 0, 0.0, KIND_LOG_SD)),
        element_log_sd=np.hypot(cols["gradient_log_sd"], ELEMENT_LOG_SD),
    )


def answered(
    times: Times,
    cols: Columns,
    gpu: GpuSpec,
    constants: Constants,
    *,
    latency_us: Column,
    ideal_us: Column,
    kind_log_sd: Column,
    element_log_sd: Column,
) -> LawResult:
    """The answer from the algorithms' times, with the tile and the parts of the quickest one.

    ``kind_log_sd``: doubt (log) beside that of clocks, ``element_log_sd`` that of a kernel per output element.
    """
    best = np.argmin(times.all_us, axis=0)
    unit = machine(gpu)
    threads = 256.0
    count = latency_us.size
    tiles = np.stack(
        [
            tile_of(cols, "direct"),
            np.broadcast_to(FUSED_TILE, (4, count)),
            tile_of(cols, "staged"),
            np.broadcast_to(np.array([[1.0], [threads], [threads], [1.0]]), (4, count)),
        ]
    )
    blocks = np.stack(
        [
            times.direct["blocks"],
            times.fused["blocks"],
            times.staged["blocks"],
            np.ceil(cols["output_elements"] / threads),
        ]
    )
    resident = np.stack(
        [
            times.direct["occupancy"],
            np.full(count, FUSED_OCCUPANCY),
            times.staged["occupancy"],
            np.full(count, max(gpu.max_threads_per_sm / threads, 1.0)),
        ]
    )
    zero = np.zeros(count)
    compute = 1e6 * np.stack([times.direct["compute"], times.fused["compute"], times.staged["compute"], zero])
    memory = np.stack(
        [
            1e6 * times.direct["memory"],
            1e6 * times.fused["memory"],
            1e6 * times.staged["memory"] + times.transforms_us,
            times.traffic_us,
        ]
    )
    l2 = 1e6 * np.stack([times.direct["l2"], times.fused["l2"], times.staged["l2"], zero])
    level = np.stack([times.direct["level"], times.fused["level"], times.staged["level"], np.ones(count)])
    every = np.arange(count)
    element = ALGORITHMS.index("element")
    tile = tiles[best, :, every].T
    blocks = blocks[best, every]
    return LawResult(
        latency_us=latency_us,
        ideal_us=ideal_us,
        parts_us={
            "compute": np.where(best == element, times.all_us[element] - constants["floor_us"], compute[best, every]),
            "memory": memory[best, every],
            "l2": l2[best, every],
            "launch": np.full(count, constants["floor_us"]),
        },
        tile={"n": tile[0], "m": tile[1], "threads": tile[2], "split_k": tile[3]},
        tile_count=blocks,
        wave_count=np.maximum(np.ceil(blocks / (unit.sm_count * resident[best, every])), 1.0),
        doubt_log_sd=np.hypot(
            doubt(unit, level[best, every], compute[best, every] / latency_us),
            np.where(best == element, element_log_sd, kind_log_sd),
        ),
    )
