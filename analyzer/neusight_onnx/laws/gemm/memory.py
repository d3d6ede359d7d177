"""What a product's blocks read from DRAM: operands once, what waves read again, what blocks that drift apart do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.gemm.machine import Machine
from neusight_onnx.laws.tiled import Grid, wave_of

# memory of a GPU is mapped in pages of 64 KiB at least (of 2 MiB where an allocation is as large)
_PAGE_BYTES = 65536.0
# a page that a bank of GDDR5 opens, and the share of the peak that is left where each opens for 32 bytes alone: four in
# 23 ns (tFAW) on each channel of 32 bits at 6 Gbit/s (JEDEC's GDDR5 and makers' data sheets, as remembered). A P4 then
# streams 44 GB/s; its batches of up to 128 columns read a left operand of 512 steps and more at 43.5
_BANK_PAGE_BYTES = 2048.0
_OPENED_SHARE = 0.23


def dram_s(
    cols: Mapping[str, NDArray[np.float64]],
    unit: Machine,
    c: Constants,
    tile: NDArray[np.float64],
    grid: Grid,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in s of DRAM: of what waves of blocks must read, and of what blocks that drift apart read."""
    t1, t2, _, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    kz = np.ceil(k / z)
    wave = wave_of(grid, tile)
    unique, once = cols["read_bytes"] + cols["write_bytes"], _once_bytes(cols, z)
    # blocks of a wave drift apart along k by a share of it; once the steps between them no longer fit L2 at once,
    # each block reads its panels from DRAM by itself
    step_bytes = wave.entries * (wave.n * t1 * cols["b_bytes"] + wave.m * t2 * cols["a_bytes"])
    deep = kz * step_bytes / (c["drift_span"] * unit.l2_bytes)
    whole = c["dram_efficiency"]
    if "left_along_k" not in cols:
        # a convolution's product, whose left operand is gathered, has no layout to tell apart
        entry = cols["a_bytes"] * m * k + cols["b_bytes"] * k * n
        spill = c["reload_knee"] * entry / unit.l2_bytes
        again = np.maximum(grid.waves * kz * step_bytes - unique, 0.0) * spill / (1.0 + spill)
        panels = grid.blocks * kz * (t1 * cols["b_bytes"] + t2 * cols["a_bytes"])
        drift = panels / c["drift_efficiency"] * deep**2 / (1.0 + deep**2)
        return (once + again) / (whole * unit.bytes_per_s), drift / unit.bytes_per_s
    # each row of waves reads the right operand anew unless L2 still holds it, each wave of it its rows of the left
    right, left = cols["b_bytes"] * k * n, cols["a_bytes"] * k * np.minimum(wave.m * t2, m)
    spill_right, spill_left = (_spill(c["spill_knee"] * size * wave.entries / unit.l2_bytes) for size in (right, left))
    extra_right = b * right * np.maximum(grid.m / wave.m - 1.0, 0.0) * spill_right
    extra_left = b * cols["a_bytes"] * k * m * np.maximum(grid.n / wave.n - 1.0, 0.0) * spill_left
    # an operand stored along k is read 32 bytes of a row at a time, one stored along n or m in long runs
    again, apart = np.minimum(c["reload_efficiency"], whole), np.minimum(c["drift_efficiency"], whole)
    if not unit.is_pascal_library:
        again, apart = whole, np.minimum(c["drift_efficiency"] * c["fetch_gain"], whole)
    right_k, left_k = cols["right_along_k"] > 0.0, cols["left_along_k"] > 0.0
    memory = once / whole + extra_right / np.where(right_k, again, whole) + extra_left / np.where(left_k, again, whole)
    alone = t1 * cols["b_bytes"] / np.where(right_k, apart, whole) + t2 * cols["a_bytes"] / np.where(
        left_k, apart, whole
    )
    return memory / unit.bytes_per_s, grid.blocks * kz * alone * deep / (1.0 + deep) / unit.bytes_per_s


def _once_bytes(cols: Mapping[str, NDArray[np.float64]], split: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes that DRAM moves if every operand is read once: with a bias, and the parts of a split reduction."""
    output = cols["write_bytes"]
    found: NDArray[np.float64] = cols["read_bytes"] + output + 0.5 * cols["bias"] * output
    return found + np.where(split > 1.0, 2.0 * split * output, 0.0)


def strip_dram_s(
    cols: Mapping[str, NDArray[np.float64]],
    unit: Machine,
    c: Constants,
    tile: NDArray[np.float64],
    grid: Grid,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in s of DRAM, and of rows longer than a page, where blocks run in the grid's order, n first.

    A strip of the output, one tile high, reads the whole right operand. Strips that are in flight together share it
    while they are in step; a strip that is in flight in part never is. Blocks drift apart like random walks, by the
    root of the steps. So on a P4 the tile of 128 rows moves half of what that of 64 moves, and is 1.8 times as fast.
    """
    t1, t2, _, z = tile
    b, n, k = cols["b"], cols["n"], cols["k"]
    kz = np.ceil(k / z)
    blocks, resident = grid.blocks, grid.resident
    wave_n = np.minimum(np.minimum(resident, blocks), grid.n)
    strips = np.clip(np.floor(resident / wave_n), 1.0, grid.m)
    entries = np.clip(np.floor(resident / (grid.n * grid.m)), 1.0, b)
    step_bytes = entries * (wave_n * t1 * cols["b_bytes"] + strips * t2 * cols["a_bytes"])
    deep = np.sqrt(kz * step_bytes / (c["drift_span"] * unit.l2_bytes))
    apart = deep / (1.0 + deep)
    right = cols["b_bytes"] * k * n
    in_step, alone = grid.m / strips - 1.0, grid.m - 1.0
    again = b * right * _spill(c["spill_knee"] * right * entries / unit.l2_bytes)
    again = again * np.maximum(in_step + apart * (alone - in_step), 0.0)
    # an operand stored along k is read 32 bytes of a row at a time, one stored along n in long runs
    whole = c["dram_efficiency"]
    rows = np.minimum(c["reload_efficiency"] * (k * cols["b_bytes"] / 4096.0) ** -c["row_fade"], whole)
    memory = _once_bytes(cols, z) / whole + again / np.where(cols["right_along_k"] > 0.0, rows, whole)
    if unit.opens_pages:
        memory = memory + _first_read(cols, cols["left_along_k"] * cols["a_bytes"] * cols["m"], whole)
        memory = memory + _first_read(cols, cols["right_along_k"] * cols["b_bytes"] * n, whole)
    pages = (kz * cols["b_bytes"] / _PAGE_BYTES) ** 2
    along_k = t1 * cols["right_along_k"] + t2 * cols["left_along_k"]
    waits = blocks * (kz / 8.0) * along_k * pages / (1.0 + pages) / np.minimum(unit.sm_count, blocks)
    return memory / unit.bytes_per_s, 1e-9 * c["row_ns"] * waits


def _first_read(
    cols: Mapping[str, NDArray[np.float64]], step_bytes: NDArray[np.float64], whole: float
) -> NDArray[np.float64]:
    """Bytes at DRAM's peak that a first read of an operand stored along k costs beyond its stream's.

    ``step_bytes``: of one step of k in one entry. Blocks read 32 bytes of a row at a time; a page serves the rows that
    it holds.
    """
    row_bytes = cols["k"] * cols["a_bytes"]
    opened = np.minimum(_OPENED_SHARE * np.maximum(_BANK_PAGE_BYTES / row_bytes, 1.0), whole)
    found: NDArray[np.float64] = cols["b"] * cols["k"] * step_bytes * (1.0 / opened - 1.0 / whole)
    return found


def _spill(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of re-read bytes that L2 no longer holds, from what passes between two uses over L2's size."""
    share: NDArray[np.float64] = ratio**2 / (1.0 + ratio**2)
    return share
