"""The competing times of a product, and how they join."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.gemm.machine import Machine, clock_level
from neusight_onnx.laws.gemm.memory import dram_s, strip_dram_s
from neusight_onnx.laws.tiled import Grid, grid_of, resident_blocks

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
    turns, hiding = _in_flight(cols, unit, tile, grid)
    smallness = 16.0 * (1.0 / t1 + 1.0 / t2)
    base = c["matrix_overhead"] if unit.is_matrix else c["pipe_overhead"]
    issue = 1.0 + c["issue_overhead"] if unit.single_issue else 1.0
    steady = base * issue * (1.0 + c["tile_overhead"] * smallness ** c["tile_exponent"])
    full_s = turns * 2.0 * t1 * t2 * (kz + c["epilogue_k"]) * unit.sm_count / unit.flops_per_s
    full_s = full_s * (steady + c["latency_warps"] / hiding)
    tile_energy = 1.0 + c["small_tile_energy"] * np.maximum(4.0 * smallness - 1.0, 0.0)
    # SMs that have fewer blocks draw less
    busy = blocks / (turns * unit.sm_count)
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


def _in_flight(
    cols: Mapping[str, NDArray[np.float64]], unit: Machine, tile: NDArray[np.float64], grid: Grid
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Blocks that the SM with the most of them computes one after another, and by how much its warps hide latency.

    That SM ends last: others, with fewer blocks, don't slow it. One warp on each of four schedulers hides 4, two of
    them 16: a V100's blocks of 64x64 take .31 longer than their FMAs with one and .02 with two, an A100's of 128x128,
    with two, .02. On AMD's GPUs, and in convolutions, whose constants are fitted so, 2,048 elements hide 1.
    """
    t1, t2, threads, _ = tile
    if unit.is_matrix or "left_along_k" not in cols:
        return grid.per_sm, np.minimum(grid.per_sm, grid.occupancy) * t1 * t2 / 2048.0
    turns = _turns(grid.per_sm, threads) if unit.pairs_blocks else grid.per_sm
    warps = np.minimum(turns, grid.occupancy) * threads / 32.0 / unit.schedulers
    return turns, 4.0 * warps**2


def _turns(per_sm: NDArray[np.float64], threads: NDArray[np.float64]) -> NDArray[np.float64]:
    """How long an SM from Volta on computes for so many blocks, in times that its schedulers take together for one.

    A block of 64 threads is two warps, on two of the four schedulers; the next one goes to the same two, the third and
    fourth to the others. So 64x64 tiles of a batch take a V100 2.6, 4.1, 4.3, 4.4, 6.3, 8.3, 8.9 and 9.1 such times
    where an SM has 1 to 8 of them (medians, k > 256), and a T4, whose clock varies, 2.7, 4.5, 4.7, 4.8, 7.2, 9.2, 9.4
    and 11.5 at least; 128x64 tiles, of 128 threads, take times in proportion.
    """
    pairs: NDArray[np.float64] = 4.0 * np.floor(per_sm / 4.0) + 2.0 * np.minimum(per_sm % 4.0, 2.0)
    return np.where(threads <= 64.0, pairs, per_sm)


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
