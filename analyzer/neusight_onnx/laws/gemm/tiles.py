"""The choice among tiles and splits: the menu's quickest, and what is known of the library up to Turing."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Column, Columns, Constants
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


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Columns with the chosen tile in them."""
    return with_tile(cols, choose(cols, gpu, constants))
