"""Which kernel NVIDIA's library runs on Pascal for a product that adds a bias: its tile and its split of the reduction.

``(m, k) @ (k, n) + (n,) -> (m, n)``. PyTorch hands such a product to cuBLASLt, whose FP32 kernels on Pascal are
assembled ones of three tiles (``maxwell_sgemm_{32x128,64x64,128x32}``). It chooses by how the grid fills waves of
blocks, whatever the tile reads. The rules below were read off kernel names and grids of two GPUs, not off times: they
name tile and split of 89 % of a P4's linear layers of random sizes (where the 64x64 tile takes up to 1.8 times as long
as the 32x128), 91 % of a P100's, and 99 % of a P100's of real sizes. No document describes them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.tiled import resident_blocks
from neusight_onnx.tiling import fp32_tiles

SHORT_K = 256.0
"""A reduction of at most so many steps stays whole, however few blocks there are."""
PART_K = 64.0
"""Steps that a part of a split reduction keeps at least."""
WORKSPACE_BYTES = 2.0**20
"""PyTorch's workspace for cuBLASLt (``CUBLASLT_WORKSPACE_SIZE``: 1 MiB by default). Parts that fit it are kept there to
be added; outputs of which it can't hold two are added in place, in as many parts as fill the machine."""

TALL_WAVE = 0.30
"""A split product runs the tall tile (128x32) if it fills at most so much of that one's wave, whole."""
WIDE_WAVE = 0.66
"""It runs the wide one (32x128) if it fills more than this of its wave, and at most all."""

WIDE_TAIL, SQUARE_TAIL = 0.55, 0.20
"""What the smallest last wave of 32x128 or 128x32 and of 64x64 tiles counts as, in waves; more blocks add in
proportion."""
TALL_COST = 1.3
"""What the tall tile counts as against the wide one where the reduction is whole."""
WIDE_COST_64_LANES, WIDE_COST = 0.93, 0.997
"""What the wide tile counts as against the square one on SMs of 64 FP32 lanes, and of more: its threads hold 4x4
elements and ask shared memory for twice as much, which is as fast for 64 lanes as for 128."""

_USUAL_SHARED_BYTES = 65536.0


def choose_biased(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.float64]:
    """(n, m, threads, split) of each product, one matrix and a bias each: shape (4, kernels)."""
    m, n, k = cols["m"], cols["n"], cols["k"]
    tiles = np.array(
        [(tile.n, tile.m, tile.threads) for tile in fp32_tiles(gpu, batched=False, fused_bias=True)], dtype=np.float64
    )
    blocks = np.ceil(n / tiles[:, :1]) * np.ceil(m / tiles[:, 1:2])
    shared = float(gpu.shared_memory_bytes_per_sm or _USUAL_SHARED_BYTES)
    waves = gpu.sm_count * resident_blocks(*tiles.T[:, :, None], shared_bytes=shared)
    wide_cost = WIDE_COST_64_LANES if gpu.fp32_lanes_per_sm <= 64 else WIDE_COST
    counts = (
        counted(blocks[0], waves[0], WIDE_TAIL) * wide_cost,
        counted(blocks[1], waves[1], SQUARE_TAIL),
        counted(blocks[2], waves[2], WIDE_TAIL) * wide_cost * TALL_COST,
    )
    whole = np.argmin(np.stack(counts), axis=0)

    filled = blocks / waves
    is_split = (filled[1] < 1.0) & (k > SHORT_K)
    fills_wide = (filled[0] > WIDE_WAVE) & (filled[0] <= 1.0)
    kind = np.where(is_split, np.where(filled[2] <= TALL_WAVE, 2, np.where(fills_wide, 0, 1)), whole)
    parts = np.minimum(np.ceil(1.0 / np.take_along_axis(filled, kind[None], axis=0)[0]), np.floor(k / PART_K))
    kept = np.floor(WORKSPACE_BYTES / (cols["out_bytes"] * m * n))
    parts = np.where(kept >= 2.0, np.minimum(parts, kept), parts)
    split = np.where(is_split, np.maximum(parts, 2.0), 1.0)
    return np.concatenate([tiles[kind].T, split[None]])


def counted(blocks: NDArray[np.float64], wave: NDArray[np.float64], tail: float) -> NDArray[np.float64]:
    """What a grid counts as, in blocks: whole waves, and a last one that never counts as little as it holds."""
    whole = np.floor(blocks / wave)
    rest = blocks / wave - whole
    found: NDArray[np.float64] = wave * (whole + np.where(rest > 0.0, tail + (1.0 - tail) * rest, 0.0))
    return found
