"""The estimate of the law of products on matrix units, and its roofline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import is_amd, p_norm
from neusight_onnx.laws.base import Column, Columns, Constants, LawResult
from neusight_onnx.laws.gemm import gemv
from neusight_onnx.laws.matrix_unit_power import clock_doubt, format_doubt, top_clock
from neusight_onnx.laws.matrix_units import peaks
from neusight_onnx.laws.tensor_gemm import unaligned
from neusight_onnx.laws.tensor_gemm.constants import own_constants
from neusight_onnx.laws.tensor_gemm.tiles import tile_of
from neusight_onnx.laws.tensor_gemm.times import FEWEST_OF_WGMMA, join, times
from neusight_onnx.laws.tiled import TILE_COLUMNS

BATCH_LOG_SD = 0.11
"""How far off (log) products in a batch are in common by a law that plain ones were fitted to: no batch was measured in
16 bits and less. FP32's law, fitted to NeuSight's linear layers alone, errs on its products in a batch of 200 us and
more by +.06 (A100), +.04 (P100), -.19 (P4), +.01 (T4) and +.14 (V100), weighted by time; the mean square."""

SMALL_TILE_LOG_SD = 0.25
"""The same of a product in tiles below 64x64, none of which was measured: 39 million rows by 8 columns of 8 take an RTX
3090 1.4 times as long where a block lives 2,800 clocks (``BLOCK_LIFE_CYCLES``) as where it lives half of that."""


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline: FLOPs at the dense peak of the pipe (at the highest clock), unique bytes at the peak of DRAM, whichever
    takes longer.

    Bytes that the L2 can hold needn't come from DRAM, so only what exceeds it counts, and weights that it has lost
    since they were last used.
    """
    compute = cols["flops"] / (peaks(gpu, cols["pipe"]) * top_clock(gpu))
    beyond = np.maximum(cols["read_bytes"] + cols["write_bytes"] - gpu.l2_bytes, 0.0)
    cold = (
        (1.0 - np.maximum(cols["repeated"], cols["kept_in_l2"])) * cols["b_bytes"] * cols["b"] * cols["n"] * cols["k"]
    )
    memory = np.maximum(beyond, cold) / gpu.memory_bytes_per_s
    return 1e6 * np.maximum(compute, memory)


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer; ``cols`` may carry a pinned tile."""
    found = _as_stored(cols, gpu, constants)
    copied = (cols["copied_rows"] > 0.0) & unaligned.is_unaligned(cols, gpu)
    return _with_copies(cols, gpu, constants, found, copied) if copied.any() else found


def _with_copies(
    cols: Columns, gpu: GpuSpec, constants: Constants, found: LawResult, copied: NDArray[np.bool_]
) -> LawResult:
    """``found`` with the products on padded copies of their operands that a compiler takes for quicker."""
    bare = {name: column for name, column in unaligned.aligned(cols).items() if name not in TILE_COLUMNS}
    padded = _as_stored(bare, gpu, constants)
    copies = unaligned.copies_us(cols, padded.parts_us["launch"], gpu.memory_bytes_per_s)
    latency = padded.latency_us + copies
    taken = copied & (found.latency_us > unaligned.COPIES_QUICKER * latency)

    def either(one: Column, other: Column) -> Column:
        return np.where(taken, one, other)

    parts = {**padded.parts_us, "memory": padded.parts_us["memory"] + copies}
    return replace(
        found,
        latency_us=either(latency, found.latency_us),
        parts_us={name: either(part, found.parts_us[name]) for name, part in parts.items()},
        tile={name: either(value, found.tile[name]) for name, value in padded.tile.items()},
        tile_count=either(padded.tile_count, found.tile_count),
        wave_count=either(padded.wave_count, found.wave_count),
    )


def _as_stored(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer for operands as they lie in memory."""
    tile = tile_of(cols, gpu, constants)
    c = own_constants(gpu, constants)
    dot = gemv.is_dot(cols, gpu)
    tile = np.where(dot, gemv.tiles(cols), tile)
    parts = times(cols, gpu, c, tile)
    latency = join(parts, c, tile[3])
    if dot.any():
        streams = gemv.stream_s(cols, gpu, c, parts["blocks"])
        streamed = c["floor_us"] * parts["slowness"] + 1e6 * p_norm(streams, c["norm"])
        streamed = streamed + np.where(tile[3] > 1.0, c["split_us"], 0.0)
        latency = np.where(dot, streamed, latency)
        parts = parts | {name: np.where(dot, 0.0, parts[name]) for name in ("compute", "latency")}
        parts["memory"], parts["l2"] = (
            np.where(dot, stream, parts[name]) for name, stream in zip(("memory", "l2"), streams, strict=True)
        )
    compute_share = 1e6 * parts["compute"] / latency
    # operands that L2 holds stream from there: no DRAM would make that quicker
    streamed_s, held_s = parts["memory"] + parts["convert"], np.where(dot, 0.0, parts["held"])
    by_l2 = held_s > 0.5 * streamed_s
    return LawResult(
        latency_us=latency,
        ideal_us=ideal_us(cols, gpu),
        parts_us={
            "compute": 1e6 * parts["compute"],
            "memory": 1e6 * np.where(by_l2, streamed_s - held_s, streamed_s),
            "kept": 1e6 * np.where(by_l2, streamed_s, 0.0),
            "l2": 1e6 * parts["l2"],
            "latency": 1e6 * parts["latency"],
            "launch": np.full(latency.shape, c["floor_us"]),
        },
        tile={"n": tile[0], "m": tile[1], "threads": tile[2], "split_k": tile[3]},
        tile_count=parts["blocks"],
        wave_count=np.maximum(np.ceil(parts["blocks"] / (gpu.sm_count * parts["occupancy"])), 1.0),
        doubt_log_sd=np.hypot(
            clock_doubt(gpu, parts["level"], compute_share),
            np.where(dot, gemv.DOUBT_LOG_SD, _unmeasured_log_sd(cols, tile, gpu)),
        ),
        untold_log_sd=np.hypot(
            format_doubt(gpu, cols["pipe"], parts["level"], compute_share),
            unaligned.doubt_log_sd(cols, gpu, compute_share),
        ),
        unmeasured=dot,
    )


def _unmeasured_log_sd(cols: Columns, tile: NDArray[np.float64], gpu: GpuSpec) -> Column:
    """How far off (log) products may be for what of them wasn't measured: a batch, and NVIDIA's small tiles."""
    small = (np.maximum(tile[0], tile[1]) < FEWEST_OF_WGMMA) & (not is_amd(gpu))
    found: Column = np.where(small, SMALL_TILE_LOG_SD, np.where(cols["b"] > 1.0, BATCH_LOG_SD, 0.0))
    return found
