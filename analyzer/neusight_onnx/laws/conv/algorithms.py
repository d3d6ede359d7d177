"""The algorithms' tiles and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Columns, Constants
from neusight_onnx.laws.conv.columns import direct_product, fused_blocks, fused_product, staged_product
from neusight_onnx.laws.conv.constants import FUSED_CHANNELS, FUSED_TILES, PLAIN_BLOCKS
from neusight_onnx.laws.elementwise import integer_lanes_per_sm
from neusight_onnx.laws.gemm.machine import machine, process_energy
from neusight_onnx.laws.gemm.tiles import choose_from
from neusight_onnx.laws.gemm.times import join as joined_product
from neusight_onnx.laws.gemm.times import times as product_times
from neusight_onnx.tiling import DEEP_SPLITS, candidates, convolution_tiles, fp32_tiles, winograd_tiles

ALGORITHMS = ("direct", "fused", "staged", "element")

FUSED_TILE = np.array([[FUSED_CHANNELS], [FUSED_TILES * 16.0], [256.0], [1.0]])
FUSED_OCCUPANCY = 2.0  # 16,384 accumulators a block, of the 32,768 that an SM holds beside everything else


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of the algorithms in us, shape (len(ALGORITHMS), kernels), inf where one isn't possible, and parts."""

    all_us: Column
    direct: Mapping[str, Column]
    fused: Mapping[str, Column]
    staged: Mapping[str, Column]
    transforms_us: Column
    traffic_us: Column


def algorithm_times(cols: Columns, gpu: GpuSpec, c: Constants) -> Times:
    unit = machine(gpu)
    constants = c
    direct_tile, staged_tile = tile_of(cols, "direct"), tile_of(cols, "staged")
    direct = product_times(direct_product(cols), unit, constants, direct_tile)
    direct["compute"] = direct["compute"] * c["direct_overhead"]
    amd = gpu.vendor == "AMD"
    if amd:
        volume = np.where(cols["rank"] > 2, c["amd_volume_overhead"], 1.0)
        direct["compute"] = direct["compute"] * volume * (1.0 if unit.is_matrix else c["amd_lanes_overhead"])
    direct_us = joined_product(direct, constants, direct_tile[3])

    fused, fused_us = fused_times(cols, gpu, c)

    staged = product_times(staged_product(cols), unit, constants, staged_tile)
    staged["compute"] = staged["compute"] * c["staged_overhead"]
    size, rows = cols["bytes"], cols["staged_rows"]
    transformed = (
        cols["input_elements"]
        + cols["output_elements"]
        + 36.0 * rows * (cols["c"] + cols["k"])
        + (36.0 + 9.0) * cols["c"] * cols["k"]
    )
    transforms_us = 1e6 * size * transformed / (c["transform_efficiency"] * unit.bytes_per_s) + 3.0 * c["step_us"]
    staged_us = joined_product(staged, constants, staged_tile[3]) + transforms_us

    element_us, traffic_us = element_times(cols, gpu, c, c["element_efficiency"])
    possible = cols["winograd"] > 0
    return Times(
        all_us=np.stack(
            [
                direct_us,
                np.where(possible, fused_us, np.inf),
                np.where(possible & (not amd), staged_us, np.inf),
                np.where(cols["groups"] > 1.0, element_us, np.inf),
            ]
        ),
        direct=direct,
        fused=fused,
        staged=staged,
        transforms_us=transforms_us,
        traffic_us=traffic_us,
    )


def fused_times(cols: Columns, gpu: GpuSpec, c: Constants) -> tuple[dict[str, Column], Column]:
    """Fused Winograd: its parts in s, and its time in us."""
    unit = machine(gpu)
    # AMD's kernels are written for the vector lanes
    lanes = replace(
        unit,
        flops_per_s=gpu.peak_flops_per_s["fp32"],
        is_matrix=False,
        energy_scale=process_energy(unit.process_nm) if unit.is_matrix else unit.energy_scale,
    )
    tile = np.broadcast_to(FUSED_TILE, (4, cols["k"].size))
    fused = product_times(fused_product(cols, fused_blocks(cols, gpu)), lanes, c, tile)
    fused["compute"] = fused["compute"] * c["fused_overhead"]
    return fused, joined_product(fused, c, np.ones_like(cols["k"])) + c["step_us"]


def element_times(cols: Columns, gpu: GpuSpec, c: Constants, efficiency: Column | float) -> tuple[Column, Column]:
    """A kernel of a thread an element, ``efficiency`` multiply-adds a lane and clock: its time, and DRAM's, in us."""
    traffic = (cols["read_bytes"] + cols["write_bytes"]) / (c["dram_efficiency"] * machine(gpu).bytes_per_s)
    lanes_per_s = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
    arithmetic = cols["macs"] / (lanes_per_s * efficiency)
    joined = (traffic ** c["norm"] + arithmetic ** c["norm"]) ** (1.0 / c["norm"])
    return c["floor_us"] + 1e6 * joined, 1e6 * traffic


TILE = ("n", "m", "threads", "split")


def tile_of(cols: Columns, kind: str) -> NDArray[np.float64]:
    return np.stack([cols[f"{kind}_{name}"] for name in TILE])


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Columns with the chosen tiles of implicit GEMM and of Winograd's products in them."""
    found = dict(cols)
    for kind, tiles, product in (
        ("direct", convolution_tiles(gpu), direct_product(cols)),
        ("staged", winograd_tiles(gpu), staged_product(cols)),
    ):
        tile = choose_from(candidates(tiles, split=False), product, gpu, constants)
        if kind == "direct" and np.any(cols["weight_gradient"]):
            shared_out = choose_from(candidates(tiles, split=True), product, gpu, constants)
            tile = np.where(cols["weight_gradient"] > 0, shared_out, tile)
        if kind == "direct" and gpu.vendor == "NVIDIA":
            one_tap, whole = cols["one_tap"] > 0.0, cols["whole_image"] > 0.0
            if np.any(one_tap):
                menu = candidates(tiles, split=True)
                tile = np.where(one_tap, choose_from(menu, product, gpu, constants, split_blocks=PLAIN_BLOCKS), tile)
            if np.any(whole):
                menu = candidates(fp32_tiles(gpu, batched=False, fused_bias=False), split=True, splits=DEEP_SPLITS)
                tile = np.where(whole, choose_from(menu, product, gpu, constants), tile)
        found |= {f"{kind}_{name}": tile[i] for i, name in enumerate(TILE)}
    return found
