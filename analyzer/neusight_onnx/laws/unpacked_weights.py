"""What products do otherwise whose weights are stored in fewer bits than they are multiplied in (8 or 4 beside 16).

As TensorRT-LLM's kernels, which they were measured with: CUTLASS's, whose warps unpack each tile of weights in
registers between its load and its product, and for few rows a matrix-vector product on vector lanes. Both go with the
clock: fitted on A100 or on L40S alone, a step takes 560 or 490 clocks, an element of k of the other 3.0 on both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import capability
from neusight_onnx.laws.base import Column, Constant, Constants
from neusight_onnx.tiling import Tile

OWN: tuple[Constant, ...] = (
    Constant(
        name="unpack_step_cycles",
        prior=400.0,
        prior_log_sd=0.5,
        source="clocks of a block's step of 64 of k, its weights unpacked between load and product: 128 columns and "
        "512 to 1,536 of k, which isn't split, take 350 clocks a step on an A100 and 570 on an L40S; fitted",
    ),
    Constant(
        name="unpack_lane_cycles",
        prior=3.1,
        prior_log_sd=0.3,
        source="clocks an element of k of the matrix-vector product, however few columns: 128 columns of 16,384 and "
        "65,536 take 2.6-3.5 (L40S), 3.1 (A100); fitted",
    ),
    Constant(
        name="split_us",
        prior=3.5,
        prior_log_sd=0.4,
        source="at 1.7 GHz: zeroing and adding of a split. Products of 128 columns lie on a line in k from 4,096 on "
        "that meets k = 0 at 8 us on an A100 and 5 on an L40S, unsplit ones at 3; fitted",
    ),
    Constant(
        name="unpack_overhead",
        prior=0.08,
        prior_log_sd=0.5,
        source="added share of the pipe's time: products of .05-.4 ms with weights of 8 bits take 1.01-1.03 (A100) and "
        "1.12-1.15 (L40S) times what vLLM's of the same sizes take in 16 bits, with 4 bits 1.05-1.09 and 1.11-1.14; "
        "fitted",
    ),
)

_REPLACED = frozenset({"step_ns", *(constant.name for constant in OWN)})

LANE_ROWS = 16.0
"""Rows below which vector lanes may multiply them (TensorRT-LLM's matrix-vector kernels take fewer, as its source is
remembered): 1,024 columns of 1,024 take an L40S 3-4 us up to 8 rows and 5-6 with 16, an A100 4-5 and 11."""
LANES_TILE = Tile(n=2, m=16, threads=128)
"""The lanes' kernel in the menu of tiles: two columns a block, as INT8's (``VECTOR_COLUMNS``), and all of the few rows.

The library times both kinds and takes the quicker: on an A100 a row by 128 columns of 65,536 of 8 bits takes 146 us,
2.2 ns an element of k as at 1,024 to 16,384, and one by 1,024 columns, eight times as many, 91, as 16 rows do. Up to 8
rows by k = 65,536, their GPU left out, the law is 26 (A100) and 13 % (L40S) off without the choice in 4 bits, 10 and 9
with it; 23 and 8, 10 and 6 in 8 bits.

Each block fetches all rows for its columns: 4,096 columns of 1,536 to 4,096 take an A100 9-16 us with a row, and with
eight 14-23, as with 16. Over all k that brings 18.2 and 12.5 % to 15.8 and 11.6 in 4 bits, 12.8 and 8.3 to 11.6 and 7.8
in 8; with one column a block, or four, they are .4-.6 higher on average.
"""
PACKED_PER_CLOCK, PACKED_PER_CLOCK_OF_DATA_CENTRES = 128.0, 256.0
"""Multiply-adds in 16 bits a clock and SM of vector lanes, and the same of 8.0, 9.0 and 10.x (CUDA C++ Programming
Guide, throughput of arithmetic instructions)."""

ROWS_OF_A_WEIGHT = 8
"""Rows that a weight is multiplied for once it is read, where lanes do it (GPTQ's kernels of ExLlama and llama.cpp's,
as their sources are remembered)."""

STEP_BYTES = 128.0
"""Of k as multiplied, in a step."""
MOST_PARTS = 4.0
"""Parts that a reduction is split into: from 16,384 of k on a step takes a third to a quarter of what it takes unsplit.
TensorRT-LLM's source allows seven, as it is remembered; with up to six the errors on a GPU left out are .7 higher."""


def constants_of(plain: Sequence[Constant]) -> tuple[Constant, ...]:
    """The constants of plain products with those of unpacked weights in their places."""
    return (*(constant for constant in plain if constant.name not in _REPLACED), *OWN)


def unpacks(c: Constants) -> bool:
    """Whether constants are those of unpacked weights."""
    return "unpack_step_cycles" in c


def with_lanes(tiles: tuple[Tile, ...], c: Constants) -> tuple[Tile, ...]:
    """A menu with the lanes' kernel beside those of matrix units, where weights are unpacked."""
    return (*tiles, LANES_TILE) if unpacks(c) else tiles


def on_lanes(tile: NDArray[np.float64], c: Constants) -> NDArray[np.bool_]:
    """Whether a tile (n, m, threads, split) is the lanes' kernel, by its columns: matrix units have none so narrow."""
    found: NDArray[np.bool_] = (tile[0] == LANES_TILE.n) & unpacks(c)
    return found


def missing(cols: Mapping[str, NDArray[np.float64]], c: Constants, tile: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tiles that kernels of unpacked weights don't have: lanes for many rows or in parts, and many parts."""
    lanes = on_lanes(tile, c) & ((cols["m"] >= LANE_ROWS) | (tile[3] > 1.0))
    found: NDArray[np.bool_] = lanes | ((tile[3] > MOST_PARTS) & unpacks(c))
    return found


def lanes_of_rows_s(rows: float, weights: float, gpu: GpuSpec) -> float:
    """Time in s of vector lanes for a multiply-add of each weight in each of so many rows, in 16 bits."""
    version = capability(gpu)
    wide = version == 8.0 or 9.0 <= version < 12.0
    per_clock = PACKED_PER_CLOCK_OF_DATA_CENTRES if wide else PACKED_PER_CLOCK
    return weights * rows / (per_clock * gpu.sm_count * gpu.clock_hz)


def lanes_s(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> Column:
    """Time of the lanes' instructions of such products, in s: a multiply-add a row, and one to unpack, for each weight.

    Eight rows of 16,384 by 65,536 weights of 4 bits take an A100 342 us, 165 multiply-adds a clock and SM.
    """
    found: Column = cols["b"] * cols["n"] * cols["k"] * (cols["m"] + 1.0) * lanes_of_rows_s(1.0, 1.0, gpu)
    return found


def column_s(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants) -> Column:
    """Time of one of their blocks, which goes through all of k for its columns, in s."""
    found: Column = cols["k"] * c["unpack_lane_cycles"] / gpu.clock_hz
    return found
