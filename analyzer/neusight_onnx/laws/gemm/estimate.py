"""The law's answer: latency, what it is made of, the tile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import p_norm
from neusight_onnx.laws.base import Column, Columns, Constants, LawResult
from neusight_onnx.laws.gemm import gemv
from neusight_onnx.laws.gemm.machine import doubt, machine
from neusight_onnx.laws.gemm.tiles import choose
from neusight_onnx.laws.gemm.times import join, times
from neusight_onnx.laws.tiled import pinned_tile


def _pinned(cols: Columns, gpu: GpuSpec, constants: Constants) -> NDArray[np.float64]:
    pinned = pinned_tile(cols)
    return choose(cols, gpu, constants) if pinned is None else pinned


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline: FLOPs at the peak of the pipe, unique bytes at the peak of DRAM, whichever takes longer."""
    unit = machine(gpu)
    compute = cols["flops"] / unit.flops_per_s
    memory = (cols["read_bytes"] + cols["write_bytes"]) / unit.bytes_per_s
    return 1e6 * np.maximum(compute, memory)


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer; ``cols`` may carry a pinned tile."""
    unit = machine(gpu)
    tile = _pinned(cols, gpu, constants)
    vector = gemv.is_vector(cols, gpu)
    tile = np.where(vector, gemv.tiles(cols), tile)
    parts = times(cols, unit, constants, tile)
    latency = join(parts, constants, tile[3])
    if vector.any():
        streams = gemv.stream_s(cols, gpu, constants, parts["blocks"])
        streamed = constants["floor_us"] + p_norm((1e6 * streams[0], 1e6 * streams[1]), constants["norm"])
        latency = np.where(vector, streamed, latency)
        parts = parts | {name: np.where(vector, 0.0, parts[name]) for name in ("compute", "shared", "drift")}
        parts["memory"], parts["l2"] = (
            np.where(vector, stream, parts[name]) for name, stream in zip(("memory", "l2"), streams, strict=True)
        )
    return LawResult(
        latency_us=latency,
        ideal_us=ideal_us(cols, gpu),
        parts_us={
            "compute": 1e6 * parts["compute"],
            "memory": 1e6 * parts["memory"],
            "l2": 1e6 * parts["l2"],
            "shared": 1e6 * parts["shared"],
            "drift": 1e6 * parts["drift"],
            "launch": np.full(latency.shape, constants["floor_us"]),
        },
        tile={"n": tile[0], "m": tile[1], "threads": tile[2], "split_k": tile[3]},
        tile_count=parts["blocks"],
        wave_count=np.maximum(np.ceil(parts["blocks"] / (unit.sm_count * parts["occupancy"])), 1.0),
        doubt_log_sd=np.where(vector, gemv.DOUBT_LOG_SD, doubt(unit, parts["level"], 1e6 * parts["compute"] / latency)),
        unmeasured=vector,
    )
