"""The competing times of a product, and how they join."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import mma_share
from neusight_onnx.laws import unpacked_weights
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.block_wait import most_blocks
from neusight_onnx.laws.matrix_unit_power import pipe_seconds
from neusight_onnx.laws.matrix_units import (
    CDNA3_CLOCKS,
    around_share,
    asynchronous,
    clocks_over_cdna,
    exposed_shares,
    peaks,
    rate_share,
)
from neusight_onnx.laws.tensor_gemm import int8_lanes, unaligned
from neusight_onnx.laws.tensor_gemm.conversion import convert_s
from neusight_onnx.laws.tensor_gemm.memory import operands_s, reloaded_bytes, split_sums, stream_rates
from neusight_onnx.laws.tiled import Grid, grid_of

FEWEST_MEASURED, LONGEST_MEASURED = 32.0, 65536.0
"""Fewest columns and longest reduction that were measured in 16 bits: one row by both takes 8 us on H100, as with 16
parts. Longer reductions are split further, as FP32's are: 16 blocks would read 8 columns of 1,048,576 at a twentieth of
DRAM's rate, where DeepBench's 8 rows of 500,000 by 512 columns, in FP16 on a V100, take 658 us: .87 of it."""

CLUSTER_SHARE = 0.5
"""Part of the larger of a tile's two operands that a block doesn't fetch itself where blocks of a cluster multicast
(Hopper) or two SMs multiply as one (``cta_group::2`` of Blackwell): clusters of two share it (CUTLASS's default for
both). Without it L2 would hold B200's 256x256 tiles below what they reach."""

FLOOR_EXPONENT = 0.75
"""Part of the floor goes with the clock (instructions), part doesn't (memory latency): the smallest products take an
A100 (1.41 GHz) 1.4 times what they take an L40S (2.52 GHz) in 16 bits, 1.7-2 times in INT8 and with narrow weights."""

FEWEST_OF_WGMMA = 64.0
"""Rows of the smallest product that a warp group's instructions have (PTX ISA, ``wgmma.mma_async``)."""

RESIDENT_ELEMENTS = 32768.0
"""Elements of the output whose tiles an SM works on at once, eight blocks at most."""

BLOCK_LIFE_CYCLES = 2800.0
"""Clocks from a block's start to its end at least: an SM that holds ``r`` blocks spends ``1/r`` of it on each.

TensorRT-LLM's shortest blocks have 128 threads: of a row by 8,192 to 65,536 columns of 128 or 256 in INT8 each one more
takes an SM of an A100 175-180 clocks and one of an L40S 233, which hold 16 and 12: 2,790 to 2,880. It is taken to hold
for blocks of other sizes, and for products that weren't measured, in batches and of few columns; constants were fitted
to the others without it.

What grows with the tile, ``epilogue_k``, gives a block of 64x64 540 (A100) to 1,100 clocks of an SM. NeuSight's batches
of short reductions take as many in FP32: 1,660 a block of 4,096 elements (V100), 2,440-2,810 of 8,192 (P100),
2,600-3,110 of 16,384 (A100)."""

SYNCHRONOUS_BEFORE = 8.0
SYNCHRONOUS_STEP_NS = 4.4
"""As ``step_ns`` where a block's next operands go through registers, one step of 64 bytes in flight: before Ampere,
which brought copies from memory to shared memory that many steps can have under way (``cp.async``). 280 ns a step are
430 clocks of a V100, whose DRAM answers in some 400 (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", 2018). DeepBench's 16-bit products of up to 700 rows, which no predictor is trained on: a V100's
21.2 % off without it, 14.8 with, a T4's 15.5 and 12.7, either card's best value serving the other."""


def step_ns(gpu: GpuSpec, c: Constants) -> float:
    """Time of a byte of k that a block goes through, however little it multiplies."""
    before = not is_amd(gpu) and (gpu.compute_capability or 0.0) < SYNCHRONOUS_BEFORE
    if unpacked_weights.unpacks(c):
        step = 1e9 * c["unpack_step_cycles"] / gpu.clock_hz / unpacked_weights.STEP_BYTES
    else:
        step = c["step_ns"]
    return max(SYNCHRONOUS_STEP_NS, step) if before else step


def times(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """Competing times in s and what they are made of; ``tile`` is (n, m, threads, split) of any common shape.

    ``c``: :func:`own_constants` of the GPU.
    """
    t1, t2, _, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    occupancy = np.clip(RESIDENT_ELEMENTS / (t1 * t2), 1.0, 8.0)
    grid = grid_of(cols, tile, sm_count=float(gpu.sm_count), occupancy=occupancy)
    kz = np.ceil(k / z)
    on_lanes, few = int8_lanes.on_lanes(cols, gpu), unpacked_weights.on_lanes(tile, c)
    full_s = np.where(on_lanes, int8_lanes.multiplied_s(cols, gpu), _multiplied_s(cols, gpu, c, tile, grid, kz))
    step = step_ns(gpu, c)
    full_s = unaligned.with_loads(cols, gpu, c, tile, grid, kz, full_s)
    singly = unaligned.through_registers(cols, gpu)
    latency_s = (
        grid.waves * kz * cols["multiplied_bytes"] * np.where(singly, max(SYNCHRONOUS_STEP_NS, step), step) * 1e-9
    )
    latency_s = np.where(on_lanes, int8_lanes.latency_s(cols, gpu, step), latency_s)
    if unpacked_weights.unpacks(c):
        full_s = np.where(few, unpacked_weights.lanes_s(cols, gpu), full_s)
        latency_s = np.where(few, unpacked_weights.column_s(cols, gpu, c), latency_s)
    dram, l2 = stream_rates(gpu, c, grid.blocks)
    again = reloaded_bytes(cols, gpu, c, tile, grid, kz, whole_tiles=~(beyond_measured(cols) | few))
    partial, summed_s = split_sums(cols, gpu, z)
    missed_s, held_s = operands_s(cols, gpu, dram, l2)
    memory_s = missed_s + held_s + (again + partial) / dram
    fetched = np.where(on_lanes, int8_lanes.fetched_bytes(cols, gpu, kz), _fetched_bytes(cols, gpu, tile, grid, kz))
    fetched = np.where(few, grid.per_sm * kz * (t1 * cols["b_bytes"] + m * cols["a_bytes"]), fetched)
    l2_s = fetched / (c["l2_bytes_per_clock"] * gpu.clock_hz)
    waits_s = (memory_s, l2_s, latency_s)
    pipe_s, level = pipe_seconds(cols, gpu, c, flops=2.0 * b * m * n * k, boost_s=full_s, waits_s=waits_s)
    blocks = grid.blocks
    slowness = np.full(blocks.shape, (1.7e9 / gpu.clock_hz) ** FLOOR_EXPONENT)
    return {
        "compute": pipe_s,
        "memory": memory_s,
        "held": held_s + np.zeros_like(memory_s),
        "l2": l2_s,
        "latency": latency_s,
        "convert": convert_s(cols, gpu, c, l2) + np.zeros_like(blocks),
        "summed": summed_s + np.zeros_like(blocks),
        "blocks": blocks,
        "per_sm": grid.per_sm,
        "occupancy": occupancy,
        "kz": kz,
        "level": level,
        "norm": np.where(few | unaligned.is_unaligned(cols, gpu), c.get("norm_of_lanes", c["norm"]), c["norm"]),
        "slowness": slowness,
        "split_slowness": slowness if unpacked_weights.unpacks(c) else np.ones(blocks.shape),
    }


def _multiplied_s(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    grid: Grid,
    kz: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Time of the pipe at the boost clock in s, with what of a tile's loads and issue slots it doesn't hide."""
    t1, t2, threads, _ = tile
    peak = peaks(gpu, cols["pipe"])
    smallness = 32.0 * (1.0 / t1 + 1.0 / t2)
    # loads and issue slots of a small tile are hidden the better the slower the pipe is
    exposed = exposed_shares(gpu, cols["pipe"], cols["multiplied_bytes"])
    base = c["pipe_overhead"] * np.where(cols["multiplied_bytes"] < 2.0, c["narrow_overhead"], 1.0)
    loads = c["tile_overhead"] * np.where(cols["multiplied_bytes"] < 2.0, c.get("shuffled_share", 1.0), 1.0)
    steady = base * (1.0 + exposed * loads * smallness ** c["tile_exponent"])
    steady = steady * (1.0 + c["unpack_overhead"] * cols["unpacks"])
    if "batched_overhead" in c:
        # batches that were measured unsplit are of kernels that no model's batches have
        measured = (cols["unsplit"] > 0.0) & batched(cols)
        steady = steady * np.where(measured, c["batched_overhead"], 1.0)
    # tiles below what WGMMA and tcgen05 multiply are of the kernels of before, whose instructions reach less
    before = (np.maximum(t1, t2) < FEWEST_OF_WGMMA) | unaligned.by_warps(cols, gpu)
    steady = np.where(before, steady / mma_share(gpu), steady)
    # the steps of k around the loop are bytes: formats half as wide take twice as many elements a step
    around = c["epilogue_k"] * rate_share(gpu, cols["pipe"], cols["multiplied_bytes"])
    around = around * around_share(gpu, cols["out_bytes"])
    if is_amd(gpu):
        clocks = clocks_over_cdna(gpu, peak, cols["multiplied_bytes"]) / CDNA3_CLOCKS
        steady, around = 1.0 + clocks * (steady - 1.0), around * clocks
    else:
        per_clock = peak / (2.0 * gpu.sm_count * gpu.clock_hz)
        least = block_cycles(gpu, threads) / steady * per_clock / (t1 * t2) * cols["multiplied_bytes"] / 2.0
        around = np.where(batched(cols) | few_columns(cols), np.maximum(around, least), around)
    steps = kz + around * 2.0 / cols["multiplied_bytes"]
    found: NDArray[np.float64] = grid.per_sm * 2.0 * t1 * t2 * steps * float(gpu.sm_count) / peak * steady
    return found


def block_cycles(gpu: GpuSpec, threads: NDArray[np.float64]) -> NDArray[np.float64]:
    """Clocks that an NVIDIA SM spends on each block at least."""
    found: NDArray[np.float64] = BLOCK_LIFE_CYCLES / np.clip(gpu.max_threads_per_sm // threads, 1.0, most_blocks(gpu))
    return found


def _fetched_bytes(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    tile: NDArray[np.float64],
    grid: Grid,
    kz: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Bytes that the busiest SM takes from L2: one that has a tile more than others loads for longer, too."""
    t1, t2, _, _ = tile
    side_n, side_m = t1 * cols["b_bytes"], t2 * cols["a_bytes"]
    multicast = asynchronous(gpu) & ~unaligned.is_unaligned(cols, gpu)
    shared = np.where(multicast, CLUSTER_SHARE * np.maximum(side_n, side_m), 0.0)
    found: NDArray[np.float64] = grid.per_sm * (kz * (side_n + side_m - shared))
    return found


def batched(cols: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Products in a batch, of which none was measured on NVIDIA's matrix units."""
    found: NDArray[np.bool_] = cols["b"] > 1.0
    return found


def few_columns(cols: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Products of fewer columns than were measured."""
    found: NDArray[np.bool_] = cols["n"] < FEWEST_MEASURED
    return found


def beyond_measured(cols: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Products in 16 bits of fewer columns or longer reductions than were measured. Their tiles read no more than the
    operands have; what constants were fitted to reads whole tiles, as convolutions' products do."""
    if "bias" not in cols:
        return np.zeros(cols["n"].shape, dtype=np.bool_)
    apart = (cols["k"] > LONGEST_MEASURED) | few_columns(cols)
    found: NDArray[np.bool_] = apart & (cols["multiplied_bytes"] == 2.0)
    return found


_PARTS = ("compute", "memory", "l2", "latency")


def join(parts: Mapping[str, NDArray[np.float64]], c: Constants, split_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Latency in us: floor, p-norm of the competing times, the conversion before, the sum of a split behind."""
    power = parts["norm"]
    largest = np.maximum.reduce([parts[name] for name in _PARTS])
    total = sum((parts[name] / largest) ** power for name in _PARTS)
    joined: NDArray[np.float64] = c["floor_us"] * parts["slowness"] + 1e6 * (
        largest * total ** (1.0 / power) + parts["convert"] + parts["summed"]
    )
    return joined + np.where(split_k > 1.0, c["split_us"] * parts["split_slowness"], 0.0)
