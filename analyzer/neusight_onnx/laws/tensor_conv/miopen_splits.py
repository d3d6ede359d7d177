"""AMD: into how many parts MIOpen's kernels split the reduction of a weight's gradient, which is over positions.

Each takes columns of shape (1, kernels) and tiles as (n, m, threads, split), (4, candidates, 1), and gives parts of
shape (candidates, kernels).
"""

from __future__ import annotations

from functools import cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Columns
from neusight_onnx.laws.tensor_conv.miopen_solvers import is_half, merged

ROUNDS = (1, 2, 3, 4)
"""Blocks a compute unit that assembled kernels' grids are filled up to."""

_LEAST_DEPTH = 64.0
_IMAGE_BLOCKS = 32.0
"""Blocks an image beyond which assembled kernels of several taps don't split. MI100 and MI210 alike: 128 channels of
3x3 over 12,544 positions take as long for one image as for two and for four (97, 93 and 90 us beside transposes), which
reach .9 of the peak; tiles times parts that give the time of one image are 16 to 40 for 16 to 128 channels. From eight
images on it binds no more, and 1x1 is split as if it had one dimension of positions."""


def filling(cols: Columns, gpu: GpuSpec, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of assembled kernels: as many as fill the compute units with ``tile``'s last entry of blocks each.

    ``gemm_k_global_split`` is what the grid has room for, whatever divides (MIOpen, as remembered).
    """
    tiles = _tiles(cols, tile)
    within = np.where(cols["taps"] > 1.0, _IMAGE_BLOCKS * cols["batch"] / tiles, np.inf)
    filled = np.minimum(tile[3] * gpu.sm_count / tiles, within)
    return _whole(np.minimum(filled, cols["k"] / _LEAST_DEPTH))


_GRID_BLOCKS = 20.0
"""Blocks a compute unit up to which compiled kernels are split (``maxGridSize = 20 * num_cu`` in rocMLIR's
``calculateKBlockNum``, the same in MIOpen's solvers in HIP; as remembered)."""

_MLIR_DEPTH = 32.0
"""Positions that a block of MLIR's takes at once (``KPerBlock * KPack``), by which those of its images divide; on both
GPUs 32 fits the find database better than 16 and 64."""


def of_images(cols: Columns, gpu: GpuSpec, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of compiled kernels in HIP: the most that divide the images and stay within the largest grid.

    Of 9,370 that ``V4R4Xdlops`` has in the find database 3 % are of one to three images, which a sixth of all are.
    """
    return _most(cols, _GRID_BLOCKS * gpu.sm_count / _tiles(cols, tile), depth=1.0)


def of_mlir(cols: Columns, gpu: GpuSpec, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of those that MLIR makes: likewise, if tiles divide the product and a part's positions are whole steps.

    Others are padded and not split (its kernels that add have no padding, and none is for bfloat16; as remembered).
    The law's error on those in the find database that it splits is 12 % on an MI210 and 22 % on an MI100, where few are
    (median), on the others 14 % and 11 %.
    """
    found = _most(cols, _GRID_BLOCKS * gpu.sm_count / _tiles(cols, tile), depth=_MLIR_DEPTH)
    n, m = np.rint(merged(cols)["n"]), cols["m"]
    divides = (np.mod(n, tile[0]) == 0.0) & (np.mod(m, tile[1]) == 0.0) & is_half(cols)
    return np.where(divides, found, 1.0)


def _tiles(cols: Columns, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = cols["b"] * np.ceil(cols["n"] / tile[0]) * np.ceil(cols["m"] / tile[1])
    return found


def _whole(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.maximum(np.floor(parts), 1.0)
    return found


def _most(cols: Columns, limit: NDArray[np.float64], *, depth: float) -> NDArray[np.float64]:
    """The largest number of parts up to ``limit`` that divides the images, each with a multiple of ``depth`` positions;
    1 where none does."""
    found = np.ones_like(limit)
    batch, out = cols["batch"][0], cols["out"][0]
    for images in np.unique(batch):
        rows = np.flatnonzero(batch == images)
        for parts in _divisors(int(images)):
            fits = (parts <= limit[:, rows]) & (np.mod(images / parts * out[rows], depth) == 0.0)
            found[:, rows] = np.where(fits, float(parts), found[:, rows])
    return found


@cache
def _divisors(images: int) -> tuple[int, ...]:
    """Rising."""
    small = [part for part in range(1, isqrt(images) + 1) if images % part == 0]
    return tuple(sorted({*small, *(images // part for part in small)}))
