"""Which kernel NVIDIA's library runs on Volta and Turing for a batch of products: its tile.

``(b, m, k) @ (b, k, n)``, FP32. It counts waves of blocks, padding and all, and not what a tile costs: the 64x64 one
leaves half of an SM's schedulers idle where there is one block for each (:mod:`.times`), and is run all the same. The
rule has the form of Pascal's with a bias (:func:`.pascal.counted`); its figures were read off kernel names and grids of
one GPU each, not off times. They name the tile of 93 % of a V100's 17,693 batches of random sizes and 97 % of a T4's
19,597, where the quickest by the law is that of 51 and 75 %. No document describes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.gemm.pascal import counted
from neusight_onnx.laws.tiled import resident_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A tile that is chosen from: ``tail``: what the smallest last wave counts as, in waves; ``cost``: what an element
    of its output counts as."""

    n: int
    m: int
    threads: int
    tail: float
    cost: float


VOLTA = (
    Choice(n=64, m=64, threads=64, tail=0.30, cost=1.0),
    Choice(n=32, m=128, threads=256, tail=0.95, cost=0.999),
    Choice(n=128, m=32, threads=256, tail=0.0, cost=2.63),
)
TURING = (
    Choice(n=64, m=64, threads=64, tail=0.0, cost=1.0),
    Choice(n=128, m=32, threads=256, tail=0.37, cost=0.94),
    Choice(n=128, m=64, threads=128, tail=0.19, cost=0.80),
)


def choose_batched(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.float64]:
    """(n, m, threads, split) of each batch of products, whose reductions are never split: shape (4, kernels)."""
    menu = TURING if (gpu.compute_capability or 0.0) >= 7.5 else VOLTA
    tiles = np.array([(tile.n, tile.m, tile.threads) for tile in menu], dtype=np.float64)
    waves = gpu.sm_count * resident_blocks(*tiles.T)
    costs = [
        counted(cols["b"] * np.ceil(cols["n"] / tile.n) * np.ceil(cols["m"] / tile.m), wave, tile.tail)
        * (tile.cost * tile.n * tile.m)
        for tile, wave in zip(menu, waves, strict=True)
    ]
    chosen = tiles[np.argmin(np.stack(costs), axis=0)]
    return np.concatenate([chosen.T, np.ones((1, len(chosen)))])
