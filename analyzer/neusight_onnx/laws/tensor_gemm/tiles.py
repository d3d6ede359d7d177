"""The choice among tiles and splits: the menu's quickest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import unpacked_weights
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Column, Columns, Constants
from neusight_onnx.laws.matrix_units import PIPES
from neusight_onnx.laws.tensor_gemm import unaligned
from neusight_onnx.laws.tensor_gemm.constants import own_constants
from neusight_onnx.laws.tensor_gemm.times import LONGEST_MEASURED, batched, few_columns, join, times
from neusight_onnx.laws.tiled import cheapest, pinned_tile, with_tile
from neusight_onnx.tiling import (
    DEEP_MATRIX_UNIT_SPLITS,
    matrix_unit_candidates,
    matrix_unit_tiles,
    small_matrix_unit_tiles,
)

SERIAL_PIPES = ("int8",)
"""Pipes whose trained kernels don't split k among blocks: products of few tiles take a time in proportion to k however
few they are (TensorRT-LLM's INT8, of CUTLASS)."""

_CHUNK = 128
"""Kernels at once: some 200 candidates of them fill the cache of a core and no more."""


_OF_16_BITS = [PIPES.index(name) for name in ("fp16", "bf16", "fp16_accumulate")]
_SERIAL = np.array([name in SERIAL_PIPES for name in PIPES])


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """The columns with the tile fixed: that of the menu with the smallest time; a split only where the format's kernels
    have one."""
    c = own_constants(gpu, constants)
    amd = is_amd(gpu)

    def cost(part: Mapping[str, NDArray[np.float64]], tile: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = times(part, gpu, c, tile)
        # a part of a split has something to do, and splits are for grids that leave SMs idle
        useless = (tile[3] > 1.0) & ((parts["kz"] < 64.0) | (parts["blocks"] > 4.0 * gpu.sm_count))
        missing = (tile[3] > 1.0) & _SERIAL[part["pipe"].astype(np.int64)] & (not amd)
        missing = missing | ((tile[3] > 1.0) & (part["unsplit"] > 0.0))
        missing = missing | unpacked_weights.missing(part, c, tile)
        missing = missing | (unaligned.is_unaligned(part, gpu) & (tile[0] * tile[1] > unaligned.LARGEST_TILE))
        return np.where(useless | missing, np.inf, join(parts, c, tile[3]))

    tiles = unpacked_weights.with_lanes(matrix_unit_tiles(gpu), c)
    tile = np.empty((4, cols["k"].size))

    def choose(rows: NDArray[np.bool_], menu: NDArray[np.float64]) -> None:
        at = np.flatnonzero(rows)
        if at.size:
            tile[:, at] = cheapest(menu, {name: column[at] for name, column in cols.items()}, cost, chunk=_CHUNK)

    long = (cols["k"] > LONGEST_MEASURED) & (cols["multiplied_bytes"] == 2.0) & (not amd)
    small = np.isin(cols["pipe"], _OF_16_BITS) & (cols["unpacks"] == 0.0) & (batched(cols) | few_columns(cols))
    for has_small, own in ((False, tiles), (True, (*tiles, *small_matrix_unit_tiles(gpu)))):
        choose((small == has_small) & ~long, matrix_unit_candidates(own))
        choose((small == has_small) & long, matrix_unit_candidates(own, splits=DEEP_MATRIX_UNIT_SPLITS))
    return with_tile(cols, tile)


def tile_of(cols: Columns, gpu: GpuSpec, constants: Constants) -> NDArray[np.float64]:
    pinned = pinned_tile(cols)
    if pinned is None:
        pinned = pinned_tile(pin(cols, gpu, constants))
        assert pinned is not None
    return pinned
