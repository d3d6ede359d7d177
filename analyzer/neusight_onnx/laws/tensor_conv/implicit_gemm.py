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
from neusight_onnx.laws.tensor_conv.miopen_issue import address_s, back_us, lane_issue_s, lasting_steps, sums_us
from neusight_onnx.laws.tensor_gemm.times import RESIDENT_ELEMENTS

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

    ``slower``: time of the matrix instructions that the kernel has over that of the format's fastest. ``waiting``: how
    long its steps wait for loads, over those of others. ``addressing``: on AMD, pipe time over that of a kernel whose
    addresses of taps take none. ``address_overhead``: there, address clocks of its loads over those of tensors as they
    lie; 0 where loads are whole. ``sums``: kernels beside a gradient of weights, of which 2 zero and convert sums in
    FP32, 1 zeroes the result; None: 2 where the reduction is split, and what they move isn't counted.
    """
    t1, t2, _, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    # in the weight's gradient taps lie along n, whose tiles they don't change; MIOpen's threads keep their tap along k
    kept = cols["weight"] if is_amd(gpu) else 0.0
    begun = c["tap_channels"] * 2.0 / cols["bytes"] * (cols["taps_met"] - 1.0) * (1.0 - kept)
    k = k * (1.0 + begun / np.where(cols["weight"] > 0, n, k))
    if (gpu.compute_capability or 0.0) >= FIRST_LAYER:
        k = np.where(cols["first_depth"] > 0.0, cols["first_depth"], k)
    sms = float(gpu.sm_count)
    peak = matrix_units.peaks(gpu, cols["pipe"]) / slower
    blocks = b * np.ceil(n / t1) * np.ceil(m / t2) * z
    kz = k / z
    occupancy = np.clip(RESIDENT_ELEMENTS / (t1 * t2), 1.0, 8.0)
    per_sm = np.ceil(blocks / sms)
    in_flight = np.clip(blocks / sms, 1.0, occupancy) * t1 * t2 / 8192.0
    smallness = 32.0 * (1.0 / t1 + 1.0 / t2)
    exposed = matrix_units.exposed_shares(gpu, cols["pipe"], cols["bytes"])
    amd = is_amd(gpu)
    kind = c["weight_overhead"] ** cols["weight"] * addressing
    if not amd:
        kind = np.where(cols["weight"] > 0, kind, c["index_overhead"] * c["data_overhead"] ** cols["data"])
    kind = kind * np.where(cols["rank"] > 2.0, c["volume_overhead"], 1.0)
    # integer operations and loads, in the shadow of a halved pipe's instructions as far as those of tiles are
    kind = 1.0 + exposed * (kind - 1.0)
    steady = c["pipe_overhead"] * kind * (1.0 + exposed * c["tile_overhead"] * smallness ** c["tile_exponent"])
    around = c["epilogue_k"] * matrix_units.rate_share(gpu, cols["pipe"], cols["bytes"]) * 2.0 / cols["bytes"]
    beside = steady - 1.0 + exposed * c["latency_warps"] / in_flight
    clocks = matrix_units.clocks_over_cdna(gpu, peak, cols["bytes"]) if amd else 1.0
    steps = kz * (1.0 + clocks * beside) + around * clocks * (1.0 + beside)
    full_s = per_sm * 2.0 * t1 * t2 * steps * sms / peak

    unique = cols["read_bytes"] + cols["write_bytes"]
    rate = dram_rate(cols, gpu, c) * ((blocks / (sms * per_sm)) ** c["idle_loss"] if amd else 1.0)
    entry = cols["a_bytes"] * m * k + cols["b_bytes"] * n * k
    waves = np.maximum(np.ceil(blocks / (sms * occupancy)), 1.0)
    wave_blocks = np.minimum(sms * occupancy, blocks)
    grid_n, grid_m = np.ceil(n / t1), np.ceil(m / t2)
    wave_n = np.clip(np.sqrt(wave_blocks * t2 / t1), 1.0, grid_n)
    wave_m = np.clip(wave_blocks / wave_n, 1.0, grid_m)
    wave_n = np.clip(wave_blocks / wave_m, 1.0, grid_n)
    entries = np.maximum(wave_blocks / (wave_n * wave_m), 1.0)
    # a last round of fewer blocks fetches less
    rounds = waves if amd else blocks / wave_blocks
    reload = rounds * entries * kz * (wave_n * t1 * cols["b_bytes"] + wave_m * t2 * cols["a_bytes"])
    spill = c["reload_knee"] * entry / gpu.l2_bytes
    extra = np.maximum(reload - unique, 0.0) * spill / (1.0 + spill)
    cold = cold_bytes(cols)
    beside = np.where(z > 1.0, 2.0, 0.0) if sums is None else sums
    partial = 2.0 * beside * b * m * n * z
    memory_s = cold / stream_rate(gpu, c) + (unique - cold + extra + partial) / rate
    panels = kz * (t1 + t2 * cols["loaded"]) * cols["bytes"]
    l2_s = per_sm * panels / (c["l2_bytes_per_clock"] * gpu.clock_hz)
    flops = 2.0 * b * m * n * cols["depth"]
    issue_s = (
        lane_issue_s(cols, gpu, c, per_sm * kz * (t1 + t2), lasting_steps(cols, gpu, peak, waves * kz * waiting))
        if amd
        else np.zeros_like(l2_s)
    )
    if address_overhead > 0.0:
        # MIOpen has compiled kernels of sizes that divide the product: what lies beyond it in a tile isn't loaded
        issue_s = issue_s + address_overhead * address_s(cols, gpu, per_sm * kz * n / grid_n, per_sm * kz * m / grid_m)
    waits_s = (memory_s, l2_s, issue_s)
    pipe_s, level = matrix_unit_power.pipe_seconds(cols, gpu, c, flops=flops, boost_s=full_s, waits_s=waits_s)
    summed = (cols["weight"] > 0) & _zeroes_and_converts(gpu)
    split_us = np.where(summed, c["sums_us"] if not amd else 0.0, c["split_us"])
    return {
        "compute": pipe_s,
        "memory": memory_s,
        "l2": l2_s,
        "issue": issue_s,
        "blocks": blocks,
        "occupancy": occupancy,
        "kz": kz,
        "level": level,
        "launch": np.full(blocks.shape, c["floor_us"] * (1.0 if amd else (1.7e9 / gpu.clock_hz) ** _FLOOR_EXPONENT))
        + beside / 2.0 * split_us
        + (0.0 if sums is None else sums_us(cols, gpu, c, sums))
        + (back_us(cols, gpu, c) if amd else 0.0),
    }


_ONE_KERNEL_ADDS = 8.0
"""Compute capability from which one kernel of cuDNN's adds up what the parts of a split reduction gave
(``sm80_xmma_*_execute_split_k_kernel``; :func:`.tiles._serial`)."""


def _zeroes_and_converts(gpu: GpuSpec) -> bool:
    """Whether NVIDIA's split gradients of weights are sums in FP32, which a kernel zeroes before and another converts
    after: those for Volta and Turing (``scalePackedTensor_kernel`` and ``convertTensor_kernel`` in profiles, as
    remembered)."""
    return not is_amd(gpu) and capability(gpu) < _ONE_KERNEL_ADDS


def joined_us(parts: Mapping[str, NDArray[np.float64]], c: Constants) -> NDArray[np.float64]:
    """Implicit GEMM in us: launch, and the p-norm of the competing times."""
    times = [parts[name] for name in PARTS]
    largest = np.maximum.reduce(times)
    total = sum((time / largest) ** c["norm"] for time in times)
    joined: NDArray[np.float64] = parts["launch"] + 1e6 * largest * total ** (1.0 / c["norm"])
    return joined
