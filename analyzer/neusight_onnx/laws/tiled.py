"""What the laws of tiled products share: the choice among tiles, how many an SM holds, and what runs at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.laws.base import Column, Columns

Cost = Callable[[Mapping[str, NDArray[np.float64]], NDArray[np.float64]], NDArray[np.float64]]
"""(columns of shape (1, kernels), tiles as (n, m, threads, split), (4, candidates, 1)) -> (candidates, kernels)."""

TILE_COLUMNS = ("tile_n", "tile_m", "tile_threads", "split_k")
"""Columns that hold a chosen tile."""


def cheapest(menu: NDArray[np.float64], cols: Columns, cost: Cost, *, chunk: int) -> NDArray[np.float64]:
    """The tile of ``menu``, shape (4, candidates), that costs each kernel the least: shape (4, kernels).

    ``chunk``: kernels at once, so that what they need of all candidates fits a cache.
    """
    tile = menu[:, :, None]
    size = next(iter(cols.values())).size
    chosen = np.empty((4, size))
    for start in range(0, size, chunk):
        rows = slice(start, start + chunk)
        part = {name: column[None, rows] for name, column in cols.items()}
        chosen[:, rows] = menu[:, np.argmin(cost(part, tile), axis=0)]
    return chosen


def with_tile(cols: Columns, tile: NDArray[np.float64]) -> dict[str, Column]:
    """The columns with a tile in them."""
    return {**cols, **dict(zip(TILE_COLUMNS, tile, strict=True))}


def pinned_tile(cols: Columns) -> NDArray[np.float64] | None:
    """The tile that columns hold, shape (4, kernels); None if they hold none."""
    return np.stack([cols[name] for name in TILE_COLUMNS]) if TILE_COLUMNS[0] in cols else None


REGISTERS = 65536.0
"""32-bit registers of an SM, from Maxwell on (CUDA C++ Programming Guide, technical specifications)."""
_DEEP_TILE = 64.0
"""Elements of a thread from which on an FP32 product's kernel takes 128 registers a thread, else 64: the waves that
Pascal's grids show are of 8 blocks of 64 threads with 8x8 elements, and of 4 of 256 threads with 4x4."""
_STAGED_K = 16.0
_PADDING_BYTES = 1024.0
"""Steps of k that a block holds of its panels in shared memory, two stages of eight, and what it pads them with: 7
blocks of 64x64 and not 8 fit the 64 KB of a P100's SM (its waves are of 392)."""


def resident_blocks(
    n: NDArray[np.float64], m: NDArray[np.float64], threads: NDArray[np.float64], *, shared_bytes: float = np.inf
) -> NDArray[np.float64]:
    """Blocks of n x m tiles in FP32 that an NVIDIA SM holds at once, by registers and shared memory; at least 1."""
    registers = threads * np.where(n * m / threads >= _DEEP_TILE, 128.0, 64.0)
    by_shared = shared_bytes / (4.0 * _STAGED_K * (n + m) + _PADDING_BYTES)
    found: NDArray[np.float64] = np.maximum(np.floor(np.minimum(REGISTERS / registers, by_shared)), 1.0)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The blocks of a product ``(b, m, k) @ (b, k, n)``, each with a tile of the output and a part of k.

    ``n``, ``m``: tiles along each side. ``blocks``: all of them; ``per_sm``: those that the busiest SM works through;
    ``occupancy``: those that an SM holds at once; ``resident``: those that all SMs hold.
    """

    n: NDArray[np.float64]
    m: NDArray[np.float64]
    blocks: NDArray[np.float64]
    per_sm: NDArray[np.float64]
    occupancy: NDArray[np.float64]
    resident: NDArray[np.float64]

    @property
    def waves(self) -> NDArray[np.float64]:
        """How many times all SMs are filled; a begun one counts."""
        found: NDArray[np.float64] = np.maximum(np.ceil(self.blocks / self.resident), 1.0)
        return found


def grid_of(
    cols: Mapping[str, NDArray[np.float64]],
    tile: NDArray[np.float64],
    *,
    sm_count: float,
    occupancy: NDArray[np.float64],
) -> Grid:
    """The grid of products with columns b, m, n in a tile (n, m, threads, split)."""
    t1, t2, _, z = tile
    grid_n, grid_m = np.ceil(cols["n"] / t1), np.ceil(cols["m"] / t2)
    blocks = cols["b"] * grid_n * grid_m * z
    return Grid(
        n=grid_n,
        m=grid_m,
        blocks=blocks,
        per_sm=np.ceil(blocks / sm_count),
        occupancy=occupancy,
        resident=sm_count * occupancy,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """The blocks that run at once: a patch of the output, ``n`` by ``m`` tiles, in some ``entries`` of the batch."""

    blocks: NDArray[np.float64]
    n: NDArray[np.float64]
    m: NDArray[np.float64]
    entries: NDArray[np.float64]


def wave_of(grid: Grid, tile: NDArray[np.float64]) -> Wave:
    """The wave of a grid: a nearly square patch, or several entries where one is smaller."""
    t1, t2, _, _ = tile
    blocks = np.minimum(grid.resident, grid.blocks)
    n = np.clip(np.sqrt(blocks * t2 / t1), 1.0, grid.n)
    m = np.clip(blocks / n, 1.0, grid.m)
    n = np.clip(blocks / m, 1.0, grid.n)
    return Wave(blocks=blocks, n=n, m=m, entries=np.maximum(blocks / (n * m), 1.0))
