"""Implicit GEMM: a convolution as ``(b, m, k) @ (b, k, n) -> (b, m, n)`` on matrix units, for given tiles.

As the law of products on matrix units, with the convolution's own bytes: its input comes from DRAM once, and from L2
once a filter tap.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import matrix_unit_power, matrix_units
from neusight_onnx.laws.bandwidth import capability, is_amd
from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.tensor_conv.columns import FIRST_LAYER
from neusight_onnx.laws.tensor_conv.dram import cold_bytes, dram_rate, stream_rate
from neusight_onnx.laws.tensor_conv.miopen_issue import (
    address_s,
    back_us,
    lane_issue_s,
    lasting_steps,
    step_waits_s,
    sums_us,
)
from neusight_onnx.laws.tensor_gemm.times import RESIDENT_ELEMENTS
from neusight_onnx.laws.tiled import Grid, grid_of, wave_of

PARTS = ("compute", "memory", "l2", "issue")

_FLOOR_EXPONENT = 0.5
"""Part of the floor goes with the clock (instructions), part doesn't (memory latency)."""


def times(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    *,
    slower: NDArray[np.float64] | float = 1.0,
    waiting: NDArray[np.float64] | float = 1.0,
    addressing: NDArray[np.float64] | float = 1.0,
    address_overhead: float = 0.0,
    sums: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Competing times of implicit GEMM in s; ``tile`` is (n, m, threads, split) of any common shape.

    "waits": what of "issue" is waiting for loads.

    ``slower``: time of the matrix instructions that the kernel has over that of the format's fastest. ``waiting``: how
    long its steps wait for loads, over those of others. ``addressing``: on AMD, pipe time over that of a kernel whose
    addresses of taps take none. ``address_overhead``: there, address clocks of its loads over those of tensors as they
    lie; 0 where loads are whole. ``sums``: kernels beside a gradient of weights, of which 2 zero and convert sums in
    FP32, 1 zeroes the result; None: 2 where the reduction is split, and what they move isn't counted.
    """
    t1, t2, _, z = tile
    cols = {**cols, "k": _depth(cols, gpu, c)}
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    occupancy = np.clip(RESIDENT_ELEMENTS / (t1 * t2), 1.0, 8.0)
    grid = grid_of(cols, tile, sm_count=float(gpu.sm_count), occupancy=occupancy)
    kz = k / z
    peak = matrix_units.peaks(gpu, cols["pipe"]) / slower
    full_s = _multiplied_s(cols, gpu, c, tile, grid, kz, peak=peak, addressing=addressing)
    summing = np.where(z > 1.0, 2.0, 0.0) if sums is None else sums
    # both kernels beside it: sums in FP32; the zeroing one alone: what is added is in the result's own format
    added = np.where(summing > 1.0, 4.0, summing * cols["bytes"])
    memory_s = _memory_s(cols, gpu, c, tile, grid, kz, partial=added * b * m * n * z)
    l2_s = grid.per_sm * (kz * (t1 + t2 * cols["loaded"]) * cols["bytes"]) / (c["l2_bytes_per_clock"] * gpu.clock_hz)
    issue_s = waits_s = np.zeros_like(l2_s)
    if is_amd(gpu):
        steps = lasting_steps(cols, gpu, peak, grid.waves * kz * waiting)
        issue_s = lane_issue_s(cols, gpu, c, grid.per_sm * kz * (t1 + t2), steps)
        waits_s = step_waits_s(cols, c, steps)
    if address_overhead > 0.0:
        # MIOpen has compiled kernels of sizes that divide the product: what lies beyond it in a tile isn't loaded
        columns, rows = grid.per_sm * kz * n / grid.n, grid.per_sm * kz * m / grid.m
        issue_s = issue_s + address_overhead * address_s(cols, gpu, columns, rows)
    flops, others_s = 2.0 * b * m * n * cols["depth"], (memory_s, l2_s, issue_s)
    pipe_s, level = matrix_unit_power.pipe_seconds(cols, gpu, c, flops=flops, boost_s=full_s, waits_s=others_s)
    return {
        "compute": pipe_s,
        "memory": memory_s,
        "l2": l2_s,
        "issue": issue_s,
        "waits": waits_s,
        "blocks": grid.blocks,
        "occupancy": occupancy,
        "kz": kz,
        "level": level,
        "launch": _launch_us(cols, gpu, c, summing, sums) + np.zeros_like(grid.blocks),
    }


def _depth(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants) -> NDArray[np.float64]:
    """The reduction of the product that is multiplied, with what beginning a tap takes.

    On NVIDIA as many channels in 8 bits as in 16, so half of the time: a step of k holds twice as many, and addresses
    are those of steps. Convolutions in INT8 on a T4 show it (:func:`~neusight_onnx.laws.matrix_units.around_share`).
    """
    # in the weight's gradient taps lie along n, whose tiles they don't change; MIOpen's threads keep their tap along k
    kept = cols["weight"] if is_amd(gpu) else 0.0
    channels = c["tap_channels"] * (2.0 / cols["bytes"] if is_amd(gpu) else np.minimum(2.0 / cols["bytes"], 1.0))
    begun = channels * (cols["taps_met"] - 1.0) * (1.0 - kept)
    k: NDArray[np.float64] = cols["k"] * (1.0 + begun / np.where(cols["weight"] > 0, cols["n"], cols["k"]))
    if (gpu.compute_capability or 0.0) >= FIRST_LAYER:
        k = np.where(cols["first_depth"] > 0.0, cols["first_depth"], k)
    return k


def _multiplied_s(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    grid: Grid,
    kz: NDArray[np.float64],
    *,
    peak: NDArray[np.float64],
    addressing: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Time of the pipe at the boost clock in s, with what of a tile's integer operations and loads it doesn't hide.

    ``peak``: FLOP/s of the matrix instructions that the kernel has. ``addressing``: as :func:`times` has it.
    """
    t1, t2, _, _ = tile
    sms, amd = float(gpu.sm_count), is_amd(gpu)
    in_flight = np.clip(grid.blocks / sms, 1.0, grid.occupancy) * t1 * t2 / 8192.0
    smallness = 32.0 * (1.0 / t1 + 1.0 / t2)
    exposed = matrix_units.exposed_shares(gpu, cols["pipe"], cols["bytes"])
    kind = c["weight_overhead"] ** cols["weight"] * addressing
    if not amd:
        kind = np.where(cols["weight"] > 0, kind, c["index_overhead"] * c["data_overhead"] ** cols["data"])
    kind = kind * np.where(cols["rank"] > 2.0, c["volume_overhead"], 1.0)
    # integer operations and loads, in the shadow of a halved pipe's instructions as far as those of tiles are
    kind = 1.0 + exposed * (kind - 1.0)
    steady = c["pipe_overhead"] * kind * (1.0 + exposed * c["tile_overhead"] * smallness ** c["tile_exponent"])
    around = c["epilogue_k"] * matrix_units.rate_share(gpu, cols["pipe"], cols["bytes"]) * 2.0 / cols["bytes"]
    around = around * matrix_units.around_share(gpu, cols["result_bytes"])
    beside = steady - 1.0 + exposed * c["latency_warps"] / in_flight
    clocks = matrix_units.clocks_over_cdna(gpu, peak, cols["bytes"]) if amd else 1.0
    steps = kz * (1.0 + clocks * beside) + around * clocks * (1.0 + beside)
    found: NDArray[np.float64] = grid.per_sm * 2.0 * t1 * t2 * steps * sms / peak
    return found


def _memory_s(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    grid: Grid,
    kz: NDArray[np.float64],
    *,
    partial: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Time of DRAM in s: every tensor once, what waves read again, and so many bytes ``partial`` to a reduction."""
    t1, t2, _, _ = tile
    amd = is_amd(gpu)
    unique, cold = cols["read_bytes"] + cols["write_bytes"], cold_bytes(cols)
    idle = (grid.blocks / (float(gpu.sm_count) * grid.per_sm)) ** c["idle_loss"] if amd else 1.0
    rate = dram_rate(cols, gpu, c) * idle
    wave = wave_of(grid, tile)
    # a last round of fewer blocks fetches less
    rounds = grid.waves if amd else grid.blocks / wave.blocks
    reload = rounds * wave.entries * kz * (wave.n * t1 * cols["b_bytes"] + wave.m * t2 * cols["a_bytes"])
    entry = cols["a_bytes"] * cols["m"] * cols["k"] + cols["b_bytes"] * cols["n"] * cols["k"]
    spill = c["reload_knee"] * entry / gpu.l2_bytes
    extra = np.maximum(reload - unique, 0.0) * spill / (1.0 + spill)
    found: NDArray[np.float64] = cold / stream_rate(gpu, c) + (unique - cold + extra + partial) / rate
    return found


def _launch_us(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    summing: NDArray[np.float64],
    sums: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """What launches take in us: the kernel's, those of ``summing`` kernels beside it, those that put a result back."""
    amd = is_amd(gpu)
    floor_us = c["floor_us"] * (1.0 if amd else (1.7e9 / gpu.clock_hz) ** _FLOOR_EXPONENT)
    found: NDArray[np.float64] = floor_us + _beside_us(cols, gpu, c, summing)
    found = found + (0.0 if sums is None else sums_us(cols, gpu, c, sums))
    return found + (back_us(cols, gpu, c) if amd else 0.0)


def _beside_us(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, kernels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Launches in us of the kernels beside a product, of which the first zeroes sums and a second converts them.

    MIOpen's conversion is the longer one (``cast_us``); where nothing tells the two apart they share ``split_us``.
    """
    if "zero_us" in c:
        # FP32 has nothing to convert
        return np.minimum(kernels, 1.0) * c["zero_us"] + np.where(kernels > 1.0, c.get("cast_us", 0.0), 0.0)
    summed = (cols["weight"] > 0) & _zeroes_and_converts(gpu)
    both: NDArray[np.float64] = np.where(summed, c["sums_us"] if not is_amd(gpu) else 0.0, c["split_us"])
    return kernels / 2.0 * both


_ONE_KERNEL_ADDS = 8.0
"""Compute capability from which one kernel of cuDNN's adds up what the parts of a split reduction gave
(``sm80_xmma_*_execute_split_k_kernel``; :func:`.tiles._serial`)."""


def _zeroes_and_converts(gpu: GpuSpec) -> bool:
    """Whether NVIDIA's split gradients of weights are sums in FP32, which a kernel zeroes before and another converts
    after: those for Volta and Turing (``scalePackedTensor_kernel`` and ``convertTensor_kernel`` in profiles, as
    remembered)."""
    return not is_amd(gpu) and capability(gpu) < _ONE_KERNEL_ADDS


def joined_us(parts: Mapping[str, NDArray[np.float64]], c: Constants) -> NDArray[np.float64]:
    """Implicit GEMM in us: launch, and the p-norm of the competing times; a ``norm`` among the parts is its own."""
    times = [parts[name] for name in PARTS]
    largest = np.maximum.reduce(times)
    norm = parts.get("norm", np.array(c["norm"]))
    total = sum((time / largest) ** norm for time in times)
    joined: NDArray[np.float64] = parts["launch"] + 1e6 * largest * total ** (1.0 / norm)
    return joined
