"""AMD: tiles of MIOpen's solvers beside assembled kernels of (n, *spatial, c), as columns of :func:`.tiles.pin`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.laws.base import Columns

_TILE = ("tile_n", "tile_m", "tile_threads", "split_k")
COMPILED_TILE = tuple(f"compiled_{name}" for name in _TILE)
HIP_TILE = tuple(f"hip_{name}" for name in _TILE)
MLIR_TILE = tuple(f"mlir_{name}" for name in _TILE)
"""Of compiled gradients of weights in 16 bits, which the two split by other rules."""
LYING_TILE = tuple(f"lying_{name}" for name in _TILE)
"""Of assembled kernels that read (n, c, *spatial)."""
LANES_TILE = tuple(f"lanes_{name}" for name in _TILE)
DYNAMIC_TILE = tuple(f"dynamic_{name}" for name in _TILE)
"""Of assembled kernels on GCN's lanes."""
PASSES_TILE = tuple(f"passes_{name}" for name in _TILE)
"""Of the products of Winograd in several passes."""
WINOGRAD_TILE = tuple(f"winograd_{name}" for name in _TILE)


def own_tile(cols: Columns, names: tuple[str, ...], tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """The tile of a solver, (4, kernels): its own where it was chosen, else ``tile``."""
    return np.stack([cols[name] for name in names]) if names[0] in cols else tile
