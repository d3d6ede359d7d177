"""The choice among tiles and splits: the menu's quickest, and what is known of the library up to Turing."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Column, Columns, Constants, LawResult
from neusight_onnx.laws.gemm.machine import machine
from neusight_onnx.laws.gemm.pascal import choose_biased
from neusight_onnx.laws.gemm.times import join, times
from neusight_onnx.laws.gemm.volta import choose_batched
from neusight_onnx.laws.tiled import cheapest, with_tile
from neusight_onnx.tiling import DEEP_SPLITS, candidates, fp32_tiles

_CHUNK = 4096


def choose(cols: Columns, gpu: GpuSpec, constants: Constants) -> NDArray[np.float64]:
    """The tile that the library chooses: (n, m, threads, split) of each kernel, shape (4, kernels).

    The menu's with the smallest time; of Pascal's products with a bias and of Volta's and Turing's batches the rules
    are known.
    """
    unit = machine(gpu)
    batched, biased, free = cols["b"] > 1, cols["bias"] > 0, cols["any_tile"] > 0
    idle = _leaves_units_idle(cols, gpu)
    chosen = np.empty((4, batched.size))
    for is_batched, has_bias, any_tile, is_idle in product((False, True), repeat=4):
        rows = np.flatnonzero((batched == is_batched) & (biased == has_bias) & (free == any_tile) & (idle == is_idle))
        if not rows.size:
            continue
        part = {name: column[rows] for name, column in cols.items()}
        if has_bias and not is_batched and unit.is_pascal_library:
            chosen[:, rows] = choose_biased(part, gpu)
            continue
        if is_batched and not any_tile and unit.is_volta_library:
            chosen[:, rows] = choose_batched(part, gpu)
            continue
        split = is_idle if is_amd(gpu) else not is_batched
        tiles = fp32_tiles(gpu, batched=is_batched, fused_bias=has_bias, any_tile=any_tile)
        menu = candidates(tiles, split=split, splits=DEEP_SPLITS)
        chosen[:, rows] = choose_from(menu, part, gpu, constants)
    return chosen


_SIMDS = 4.0  # of a compute unit (AMD's CDNA and GCN)


def _leaves_units_idle(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether it is AMD's and leaves SIMDs, four a compute unit, without a block of the menu's smallest tile.

    Tensile then shares out the reduction (``GlobalSplitU``, GSU in the names of rocBLAS's kernels, SGEMM's among them),
    in a batch, too. No measured product is so small: the least is 512 x 768.
    """
    if not is_amd(gpu):
        return np.zeros(cols["b"].shape, dtype=np.bool_)
    n, m, _, _ = candidates(fp32_tiles(gpu, batched=False, fused_bias=False), split=False)
    tiles = np.ceil(cols["n"] / n.min()) * np.ceil(cols["m"] / m.min())
    found: NDArray[np.bool_] = cols["b"] * tiles < _SIMDS * gpu.sm_count
    return found


SPLIT_BLOCKS = 6.0
"""Blocks an SM up to which reductions are split."""


def choose_from(
    menu: NDArray[np.float64], cols: Columns, gpu: GpuSpec, constants: Constants, *, split_blocks: float = SPLIT_BLOCKS
) -> NDArray[np.float64]:
    """The best of ``menu``, shape (4, candidates), for each kernel: shape (4, kernels). ``split_blocks``: blocks an SM
    that a split may make. A column "overhead", where there is one: pipe time over that of a product."""
    unit = machine(gpu)

    def cost(part: Mapping[str, NDArray[np.float64]], tile: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = times(part, unit, constants, tile)
        if "overhead" in part:
            parts["compute"] = parts["compute"] * part["overhead"]
        # a split is there to fill the machine, and each part keeps a useful depth
        useless = (tile[3] > 1) & ((parts["blocks"] > split_blocks * unit.sm_count) | (parts["kz"] < 64))
        return np.where(useless, np.inf, join(parts, constants, tile[3]))

    return cheapest(menu, cols, cost, chunk=_CHUNK)


_DEEPEST_IDLE = 1025.0
"""The longest reduction of a batch that leaves SMs without a block, on all five measured GPUs (NeuSight's data)."""
_ONE_TILE = 8.0
"""Compute capability from which a batch has one tile, as far as an A100 shows (``tiling.fp32_tiles``)."""


def quicker_shares(
    cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What the plain product's quickest tile would take of a batch, over its latency, at most 1: what isn't known of a
    GPU that was not measured, and what isn't of any.

    Of 93,000 measured batches of two and more, on P4, P100, V100, T4 and A100, none splits or slices its reduction, and
    an A100's have one tile even where each is alone on an SM: 2 x 45 x 42 x 942 take 262 us, and a single product of
    36 x 31 x 478 no more than a launch. Another architecture from Ampere on may have smaller tiles. Longer reductions
    that leave SMs idle might be split; how far is told by steps of two beyond what was measured.
    """
    latency_us = result.latency_us
    unseen, untold = np.ones_like(latency_us), np.ones_like(latency_us)
    if is_amd(gpu):
        return unseen, untold
    tiles = fp32_tiles(gpu, batched=False, fused_bias=False)

    def share(rows: NDArray[np.bool_], *, split: bool) -> NDArray[np.float64]:
        part = {name: column[rows] for name, column in cols.items()}
        tile = choose_from(candidates(tiles, split=split, splits=DEEP_SPLITS), part, gpu, constants)
        quick_us = join(times(part, machine(gpu), constants, tile), constants, tile[3])
        return np.minimum(quick_us / latency_us[rows], 1.0)

    batched = cols["b"] > 1
    deep = batched & (cols["k"] > _DEEPEST_IDLE) & (result.tile_count < gpu.sm_count)
    if deep.any():
        untold[deep] = share(deep, split=True) ** np.minimum(np.log2(cols["k"][deep] / _DEEPEST_IDLE), 1.0)
    if batched.any() and (gpu.compute_capability or 0.0) >= _ONE_TILE:
        unseen[batched] = share(batched, split=False)
    return unseen, untold


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Columns with the chosen tile in them."""
    return with_tile(cols, choose(cols, gpu, constants))
