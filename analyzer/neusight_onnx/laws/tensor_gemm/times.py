"""The competing times of a product, and how they join."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import unpacked_weights
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.elementwise import integer_lanes_per_sm
from neusight_onnx.laws.matrix_unit_power import pipe_seconds
from neusight_onnx.laws.matrix_units import (
    CDNA3_CLOCKS,
    PIPES,
    asynchronous,
    clocks_over_cdna,
    exposed_shares,
    peaks,
    rate_share,
)
from neusight_onnx.laws.tensor_gemm.memory import (
    FILLED,
    RESIDENT_FILL,
    kept_share,
    l2_bytes_held,
    stream_gain,
    weight_copies,
)

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

VECTOR_ROWS = 4.0
"""Rows up to which INT8 products are a kernel of vector lanes whose threads share k (TensorRT-LLM): 128 columns of
65,536 take an A100 20-28 us, with 16 rows 146."""
VECTOR_SHARE = 1.0 / 16.0
VECTOR_COLUMNS = 2.0
"""Columns of one of its blocks (as its source is remembered): 128 columns go to 64 SMs. As two tiles of 64 that the L2
feeds they would take an A100 58 us instead of the 14 that it takes (less what a lone run's events add)."""
VECTOR_BLOCK_CYCLES = 200.0
"""Of a block, however short: 65,536 columns of 128 take an A100 40 us and an L40S 23, 303 and 231 blocks an SM."""
DOT_PRODUCTS = 4.0
"""Multiply-adds of 8 bits a lane and clock (``dp4a``)."""

GREATEST_US = 7.0
GREATEST_PASSES: Mapping[str, float] = {"HBM": 2.6, "GDDR": 1.2}
"""The kernel that looks for the greatest value of a tensor, before another scales by it: TensorRT-LLM's, measured
alone (quantize.parquet). The smallest take 6-7 us on H100 and L40S, 7-8.5 on B200; beyond the L2 it reads at .38 of the
DRAM's peak on H100, .36-.41 on B200 and .84 on L40S."""
RESIDENT_ELEMENTS = 32768.0
"""Elements of the output whose tiles an SM works on at once, eight blocks at most."""

STREAM_NORM = 4.0
"""Power of the norm that joins the rates of DRAM and of the compute units that load from it."""
SUM_BYTES_PER_CLOCK = 16.0
"""Bytes a clock and compute unit that AMD's kernels write and read of the parts of a split reduction, after its blocks
have ended. An MI308X multiplies 384 x 384 x 7,168 in 16 bits in 30 us by 8 parts, of which pipe, floor and a second
launch explain 25. In 8 bits aiter's assembled kernels add in place: their parts cost no more."""

_INT8 = float(PIPES.index("int8"))


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
    sms = float(gpu.sm_count)
    peak = peaks(gpu, cols["pipe"])
    grid_n, grid_m = np.ceil(n / t1), np.ceil(m / t2)
    blocks = b * grid_n * grid_m * z
    kz = np.ceil(k / z)
    occupancy = np.clip(RESIDENT_ELEMENTS / (t1 * t2), 1.0, 8.0)
    per_sm = np.ceil(blocks / sms)
    smallness = 32.0 * (1.0 / t1 + 1.0 / t2)
    # loads and issue slots of a small tile are hidden the better the slower the pipe is
    exposed = exposed_shares(gpu, cols["pipe"], cols["multiplied_bytes"])
    base = c["pipe_overhead"] * np.where(cols["multiplied_bytes"] < 2.0, c["narrow_overhead"], 1.0)
    steady = base * (1.0 + exposed * c["tile_overhead"] * smallness ** c["tile_exponent"])
    steady = steady * (1.0 + c["unpack_overhead"] * cols["unpacks"])
    # the steps of k around the loop are bytes: formats half as wide take twice as many elements a step
    around = c["epilogue_k"] * rate_share(gpu, cols["pipe"], cols["multiplied_bytes"])
    if is_amd(gpu):
        clocks = clocks_over_cdna(gpu, peak, cols["multiplied_bytes"]) / CDNA3_CLOCKS
        steady, around = 1.0 + clocks * (steady - 1.0), around * clocks
    steps = kz + around * 2.0 / cols["multiplied_bytes"]
    full_s = per_sm * 2.0 * t1 * t2 * steps * sms / peak * steady

    a_all, b_all = cols["a_bytes"] * b * m * k, cols["b_bytes"] * b * k * n
    output = cols["write_bytes"]
    entry = (a_all + b_all) / b
    waves = np.maximum(np.ceil(blocks / (sms * occupancy)), 1.0)
    latency_s = waves * kz * cols["multiplied_bytes"] * step_ns(gpu, c) * 1e-9
    on_lanes = (cols["pipe"] == _INT8) & (m <= VECTOR_ROWS) & (not is_amd(gpu))
    lane_blocks = b * np.ceil(n / VECTOR_COLUMNS)
    lane_rounds = np.ceil(lane_blocks / sms)
    lane_s = lane_rounds * VECTOR_COLUMNS * m * k / (DOT_PRODUCTS * integer_lanes_per_sm(gpu) * gpu.clock_hz)
    full_s = np.where(on_lanes, lane_s, full_s)
    block_s = k * step_ns(gpu, c) * 1e-9 * VECTOR_SHARE + lane_rounds * VECTOR_BLOCK_CYCLES / gpu.clock_hz
    latency_s = np.where(on_lanes, block_s, latency_s)
    few = unpacked_weights.on_lanes(tile, c)
    if unpacked_weights.unpacks(c):
        full_s = np.where(few, unpacked_weights.lanes_s(cols, gpu), full_s)
        latency_s = np.where(few, unpacked_weights.column_s(cols, gpu, c), latency_s)
    wave_blocks = np.minimum(sms * occupancy, blocks)
    wave_n = np.clip(np.sqrt(wave_blocks * t2 / t1), 1.0, grid_n)
    wave_m = np.clip(wave_blocks / wave_n, 1.0, grid_m)
    wave_n = np.clip(wave_blocks / wave_m, 1.0, grid_n)
    entries = np.maximum(wave_blocks / (wave_n * wave_m), 1.0)
    # a last round of fewer blocks fetches less
    rounds = blocks / wave_blocks
    beyond = beyond_measured(cols) | few
    columns_of_wave = np.where(beyond, np.minimum(wave_n * t1, n), wave_n * t1)
    rows_of_wave = np.where(beyond, np.minimum(wave_m * t2, m), wave_m * t2)
    reload = rounds * entries * kz * (columns_of_wave * cols["b_bytes"] + rows_of_wave * cols["a_bytes"])
    unique = a_all + b_all + output
    spill = c["reload_knee"] * entry / gpu.l2_bytes
    extra = np.maximum(reload - unique, 0.0) * spill / (1.0 + spill)
    dram = c["dram_efficiency"] * stream_gain(gpu) * gpu.memory_bytes_per_s
    if is_amd(gpu):
        fetched = np.minimum(blocks, sms) * c.get("cu_stream_bytes_per_clock", np.inf) * gpu.clock_hz
        dram = (dram**-STREAM_NORM + fetched**-STREAM_NORM) ** (-1.0 / STREAM_NORM)
    l2 = np.maximum(dram, c["l2_stream_bytes_per_clock"] * sms * gpu.clock_hz)
    held = l2_bytes_held(gpu)
    beside = cols["beside_bytes"]
    kept = kept_share(unique + beside, held)
    filled, copies = weight_copies(cols, gpu)
    converted = cols["converted_bytes"]
    # what was converted has just been written, whatever it was converted from
    rotated = cols["rotated"] * (converted == 0.0)
    scales = beside * cols["unpacks"]
    others = unique + beside + (copies - 1.0) * (b_all + scales + rotated * a_all)
    kept_a = np.where(rotated > 0.0, kept_share(others, held), kept)
    kept_b = cols["repeated"] * kept_share(others, np.where(filled, FILLED / RESIDENT_FILL, 1.0) * held)
    kept_b = np.maximum(kept_b, cols["kept_in_l2"])
    memory_s = (b_all + scales) * (kept_b / l2 + (1.0 - kept_b) / dram) + a_all * (kept_a / l2 + (1.0 - kept_a) / dram)
    memory_s = memory_s + (output + beside - scales) * (kept / l2 + (1.0 - kept) / dram)
    partial = np.where(z > 1.0, 4.0 * b * m * n * z, 0.0)
    summed_s = np.zeros(blocks.shape)
    if is_amd(gpu):
        added = np.where(cols["multiplied_bytes"] < 2.0, 0.0, 2.0 * partial)
        partial, summed_s = np.zeros(blocks.shape), added / (SUM_BYTES_PER_CLOCK * sms * gpu.clock_hz)
    memory_s = memory_s + (extra + partial) / dram
    # an SM that has one tile more than others loads for longer, too
    side_n, side_m = t1 * cols["b_bytes"], t2 * cols["a_bytes"]
    shared = CLUSTER_SHARE * np.maximum(side_n, side_m) if asynchronous(gpu) else 0.0
    panels = kz * (side_n + side_m - shared)
    row = kz * (VECTOR_COLUMNS * cols["b_bytes"] + m * cols["a_bytes"])
    panels_of_sm = np.where(on_lanes, lane_rounds * row, per_sm * panels)
    panels_of_sm = np.where(few, per_sm * kz * (t1 * cols["b_bytes"] + m * cols["a_bytes"]), panels_of_sm)
    l2_s = panels_of_sm / (c["l2_bytes_per_clock"] * gpu.clock_hz)
    waits_s = (memory_s, l2_s, latency_s)
    pipe_s, level = pipe_seconds(cols, gpu, c, flops=2.0 * b * m * n * k, boost_s=full_s, waits_s=waits_s)
    moved = b * m * k * (converted + cols["a_bytes"])
    near = kept_share(moved + cols["rotated"] * (copies - 1.0) * (b_all + b * m * k * converted), held)
    near_s, far_s = near / np.maximum(gpu.memory_bytes_per_s, l2), (1.0 - near) / gpu.memory_bytes_per_s
    convert_s = np.where(converted > 0, c["convert_us"] * 1e-6 + c["convert_passes"] * moved * (near_s + far_s), 0.0)
    passes = GREATEST_PASSES["HBM" if gpu.memory_type.upper().startswith("HBM") else "GDDR"]
    searched_s = GREATEST_US * 1e-6 + b * m * k * converted * (near_s + passes * far_s)
    convert_s = convert_s + np.where(cols["tensor_scale"] > 0, searched_s, 0.0)
    slowness = np.full(blocks.shape, (1.7e9 / gpu.clock_hz) ** FLOOR_EXPONENT)
    return {
        "compute": pipe_s,
        "memory": memory_s,
        "l2": l2_s,
        "latency": latency_s,
        "convert": convert_s + np.zeros_like(blocks),
        "summed": summed_s,
        "blocks": blocks,
        "per_sm": per_sm,
        "occupancy": occupancy,
        "kz": kz,
        "level": level,
        "norm": np.where(few, c.get("norm_of_lanes", c["norm"]), c["norm"]),
        "slowness": slowness,
        "split_slowness": slowness if unpacked_weights.unpacks(c) else np.ones(blocks.shape),
    }


def beyond_measured(cols: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Products in 16 bits of fewer columns or longer reductions than were measured. Their tiles read no more than the
    operands have; what constants were fitted to reads whole tiles, as convolutions' products do."""
    if "bias" not in cols:
        return np.zeros(cols["n"].shape, dtype=np.bool_)
    apart = (cols["k"] > LONGEST_MEASURED) | (cols["n"] < FEWEST_MEASURED)
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
