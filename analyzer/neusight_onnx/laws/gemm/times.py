"""The competing times of a product, and how they join."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.gemm.machine import Machine, clock_level
from neusight_onnx.laws.gemm.memory import dram_s, strip_dram_s
from neusight_onnx.laws.tiled import grid_of, resident_blocks

# elements of accumulators that fit the registers of an AMD CU beside everything else
_RESIDENT_ELEMENTS = 32768.0
_MOST_RESIDENT = 16.0


def times(
    cols: Mapping[str, NDArray[np.float64]],
    unit: Machine,
    c: Constants,
    tile: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """Competing times in s and what they are made of; ``tile`` is (n, m, threads, split) of any common shape."""
    t1, t2, threads, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    kz = np.ceil(k / z)
    grid = grid_of(cols, tile, sm_count=unit.sm_count, occupancy=_occupancy(unit, tile))
    blocks, per_sm, occupancy = grid.blocks, grid.per_sm, grid.occupancy
    # elements in flight on the SM that has the most blocks, which ends last, in units of eight warps of 8x8 register
    # tiles: SMs with fewer don't slow it
    warps = np.minimum(per_sm, occupancy) * t1 * t2 / 2048.0
    smallness = 16.0 * (1.0 / t1 + 1.0 / t2)
    base = c["matrix_overhead"] if unit.is_matrix else c["pipe_overhead"]
    issue = 1.0 + c["issue_overhead"] if unit.single_issue else 1.0
    steady = base * issue * (1.0 + c["tile_overhead"] * smallness ** c["tile_exponent"])
    full_s = per_sm * 2.0 * t1 * t2 * (kz + c["epilogue_k"]) * unit.sm_count / unit.flops_per_s
    full_s = full_s * (steady + c["latency_warps"] / warps)
    tile_energy = 1.0 + c["small_tile_energy"] * np.maximum(4.0 * smallness - 1.0, 0.0)
    # SMs that have fewer blocks draw less
    busy = blocks / (per_sm * unit.sm_count)
    level = clock_level(unit, c, busy / steady, tile_energy)
    long = full_s * 1e3 / (full_s * 1e3 + c["throttle_ms"])
    pipe_s = full_s / level**long

    entry = cols["a_bytes"] * m * k + cols["b_bytes"] * k * n
    memory_s, drift_s = dram_s(cols, unit, c, tile, grid)
    if unit.is_pascal_library and "left_along_k" in cols:
        # assembled kernels run in the grid's order. The compiled ones, which only a plain product without bias runs,
        # walk squares (grids of 4 x 10 x 4 for 20 x 8 tiles), as those of later GPUs seem to
        strips = (b > 1.0) | (cols["bias"] > 0.0)
        strip_memory_s, strip_drift_s = strip_dram_s(cols, unit, c, tile, grid)
        memory_s = np.where(strips, strip_memory_s, memory_s)
        drift_s = np.where(strips, strip_drift_s, drift_s)
    right, left = t1 * cols["b_bytes"], t2 * cols["a_bytes"]
    if unit.is_matrix and "left_along_k" in cols:
        right = right * (1.0 + c["camping"] * cols["right_along_k"] * _camped(k * cols["b_bytes"]))
        left = left * (1.0 + c["camping"] * cols["left_along_k"] * _camped(k * cols["a_bytes"]))
    panels = blocks * kz * (right + left)
    l2_s = panels / (c["l2_bytes_per_clock"] * np.minimum(blocks, unit.sm_count) * unit.clock_hz)
    # bytes that register tiles read from shared memory: 4 (1/r + 1/c) an FMA, halved by broadcasts
    side = np.sqrt(t1 * t2 / threads)
    shared_s = per_sm * t1 * t2 * kz * 0.5 * cols["a_bytes"] * (2.0 / side) / (128.0 * unit.clock_hz)
    shared_s = shared_s / c["shared_efficiency"] / level**long
    if unit.is_matrix:
        shared_s = shared_s * 0.25  # a matrix instruction reads each operand once for four lanes
    return {
        "compute": pipe_s,
        "memory": memory_s,
        "l2": l2_s,
        "shared": shared_s,
        "drift": drift_s,
        "blocks": blocks,
        "per_sm": per_sm,
        "occupancy": occupancy,
        "level": level,
        "entry": entry + np.zeros_like(blocks),
        "steady": steady,
        "kz": kz,
    }


def _occupancy(unit: Machine, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Blocks of a tile that an SM holds at once."""
    t1, t2, threads, _ = tile
    blocks = _RESIDENT_ELEMENTS / (t1 * t2) if unit.is_matrix else resident_blocks(t1, t2, threads)
    found: NDArray[np.float64] = np.clip(blocks, 1.0, _MOST_RESIDENT)
    return found


def _camped(stride_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How badly rows so far apart share a cache's channels: 0 up to multiples of 64 KiB, 1 at 128, 3 from 256 on."""
    whole = stride_bytes.astype(np.int64)
    found: NDArray[np.float64] = np.minimum((whole & -whole) / 65536.0, 4.0) - 1.0
    return np.maximum(found, 0.0)


_PARTS = ("compute", "memory", "l2", "shared", "drift")


def join(parts: Mapping[str, NDArray[np.float64]], c: Constants, split_k: NDArray[np.float64]) -> NDArray[np.float64]:
    power = c["norm"]
    largest = np.maximum.reduce([parts[name] for name in _PARTS])
    total = sum((parts[name] / largest) ** power for name in _PARTS)
    joined: NDArray[np.float64] = c["floor_us"] + 1e6 * largest * total ** (1.0 / power)
    return joined + np.where(split_k > 1.0, c["split_us"], 0.0)
