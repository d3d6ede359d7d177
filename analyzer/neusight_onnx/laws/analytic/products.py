"""Products, convolutions, attention and recurrent layers."""

from __future__ import annotations

from math import ceil, prod

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Attention, Conv, Gemm, Recurrent
from neusight_onnx.laws.analytic.pipes import VECTOR_EFFICIENCY, pipe_flops_per_s, vector_flops_per_s
from neusight_onnx.laws.analytic.work import Work
from neusight_onnx.laws.bandwidth import dram_bytes_per_s, is_amd

CONV_EFFICIENCY = 0.55
"""Convolutions against products of the same size: FP32 3x3 ones reach .6-.8 of peak without Winograd, few-channel
ones .2-.35."""
AMD_VECTOR_DRAM = 0.68
"""Share of DRAM's peak that a product of one row or column reaches on AMD's GPUs: that of tuned products of few rows on
MI300X and MI308X (``laws/tensor_gemm/``); on the others nothing was measured."""
ATTENTION_EFFICIENCY = 0.55
"""Fused attention on matrix cores: FlashAttention-2 reports .5-.73 of peak on A100, .35-.5 on H100 (Dao 2023),
FlashAttention-3 up to .75 on H100 (Shah et al. 2024)."""
ATTENTION_VECTOR_EFFICIENCY = 0.45
"""The same on FP32 lanes: memory-efficient attention runs at about half of what a plain FP32 product reaches."""

RECURRENT_STEP_US = 20.0
"""Serial time of a step beyond its bytes and FLOPs: LSTM of 256 units takes 11 us a step at batch 1-4 on a GTX 1080 Ti
and 25-30 at batch 16-32 on 1080 Ti and V100 (DeepBench)."""
RECURRENT_DRAM_EFFICIENCY = 0.85
"""Recurrent weights read again each step: 4,096 units in FP32 take 400 us on a V100, 332 at the copy rate."""
RECURRENT_COMPUTE_EFFICIENCY = 0.45
"""The same at batch 128: 2,048 units take 372 us a step, 537 MFLOP with the input product: about .2-.45 of peak."""

TILES: tuple[tuple[int, int, float], ...] = (
    (256, 128, 1.0),
    (128, 128, 1.0),
    (128, 64, 0.87),
    (64, 64, 0.75),
    (64, 32, 0.55),
    (32, 32, 0.40),
    (16, 16, 0.20),
)
"""(rows, columns, efficiency) of the tiles that GEMM libraries choose from; smaller tiles re-use less of what they
load: with x = 16 (1/rows + 1/columns), time grows about as 1 + x^1.2 (law of FP32 products)."""
SPLITS = (1, 2, 4, 8, 16)
"""Ways to cut the reduction among blocks."""


def _tiled_us(batch: float, m: float, n: float, k: float, rate: float, gpu: GpuSpec) -> tuple[float, float, float]:
    """(us, tiles, waves) of ``batch`` products by the fastest tile; ``rate`` is FLOP/s of the whole GPU."""
    best = (float("inf"), 1.0, 1.0)
    for rows, cols, efficiency in TILES:
        per_grid = batch * ceil(m / rows) * ceil(n / cols)
        for split in SPLITS:
            if split > 1 and (k / split < 64 or per_grid * split > 4 * gpu.sm_count):
                continue
            tiles = per_grid * split
            waves = ceil(tiles / gpu.sm_count)
            depth = k / split + 64.0  # prologue and epilogue of a tile, about two K steps
            us = waves * 2.0 * rows * cols * depth / (rate / gpu.sm_count * efficiency) * 1e6
            us += 2.0 if split > 1 else 0.0  # the sum of the partial results, a kernel's launch
            best = min(best, (us, float(tiles), float(waves)))
    return best


def gemm_work(kernel: Gemm, gpu: GpuSpec) -> Work:
    peak, share = pipe_flops_per_s(gpu, kernel.dtype, kernel.accumulator)
    if 0 in (kernel.batch, kernel.m, kernel.n):
        return Work(bytes=kernel.read_bytes)
    us, tiles, waves = _tiled_us(kernel.batch, kernel.m, kernel.n, kernel.k, peak * share, gpu)
    streamed = 0.95
    if 1 in (kernel.m, kernel.n):
        # a matrix and a vector: a kernel of its own in BLAS libraries (gemv), on vector lanes, without tiles
        us = min(us, kernel.flops / (VECTOR_EFFICIENCY * vector_flops_per_s(gpu, kernel.dtype)) * 1e6)
        if is_amd(gpu):
            streamed = AMD_VECTOR_DRAM * gpu.memory_bytes_per_s / dram_bytes_per_s(gpu, {})
    return Work(
        bytes=kernel.read_bytes + kernel.write_bytes,
        compute_us=us,
        memory_efficiency=streamed,
        tile_count=tiles,
        wave_count=waves,
    )


def conv_work(kernel: Conv, gpu: GpuSpec) -> Work:
    peak, share = pipe_flops_per_s(gpu, kernel.dtype, kernel.accumulator)
    bytes_ = float(kernel.read_bytes + kernel.write_bytes)
    grid = prod(kernel.spatial) if kernel.transposed else prod(kernel.out)
    if 0 in (kernel.n, kernel.c, kernel.k, grid):
        return Work(bytes=bytes_)
    depth = kernel.c // kernel.groups * prod(kernel.filter)
    per_group = kernel.k // kernel.groups
    if kernel.groups > 1 and per_group * (kernel.c // kernel.groups) < 64:
        # depthwise and its like: vector lanes; each tap is a load from L1 beside its multiply-add
        rate = 0.25 * vector_flops_per_s(gpu, kernel.dtype)
        return Work(bytes=bytes_, compute_us=2.0 * kernel.macs / rate * 1e6, memory_efficiency=0.8)
    rate = peak * share * CONV_EFFICIENCY / VECTOR_EFFICIENCY
    product = (kernel.groups, kernel.n * grid, per_group, depth)
    if kernel.direction != "forward":
        product = kernel.implicit_gemm
    us, tiles, waves = _tiled_us(*product, rate, gpu)
    return Work(bytes=bytes_, compute_us=us, memory_efficiency=0.9, tile_count=tiles, wave_count=waves)


def attention_work(kernel: Attention, gpu: GpuSpec) -> Work:
    peak, _ = pipe_flops_per_s(gpu, kernel.dtype)
    on_lanes = peak <= gpu.peak_flops_per_s["fp32"]
    rate = peak * (ATTENTION_VECTOR_EFFICIENCY if on_lanes else ATTENTION_EFFICIENCY)
    # a tile holds 64 queries; decoding packs the query heads that share a key head into 16 rows
    rows = kernel.s * max(1, kernel.h // max(kernel.g, 1)) if kernel.s < 16 else kernel.s
    tile_rows = 16 if rows <= 16 else 64
    padding = ceil(max(rows, 1) / tile_rows) * tile_rows / max(rows, 1)
    products = 2.0 * kernel.macs / rate * padding
    # one exponential a pair: special-function units, 16 a clock and SM
    exponentials = kernel.b * kernel.h * kernel.pair_count / (16.0 * gpu.sm_count * gpu.clock_hz)
    blocks = kernel.b * kernel.h * ceil(max(kernel.s, 1) / 64)
    waves = max(1.0, ceil(blocks / gpu.sm_count))
    # long rows of keys are split among blocks when there are few; else the last wave is partly empty
    uneven = waves * gpu.sm_count / blocks if blocks >= gpu.sm_count else 1.0
    steps = ceil(max(kernel.t, 1) / 64) / max(1.0, gpu.sm_count / max(blocks, 1))
    return Work(
        bytes=kernel.read_bytes + kernel.write_bytes,
        compute_us=(products + 0.5 * exponentials) * uneven * 1e6,
        serial_us=(3000.0 + 1000.0 * steps) / gpu.clock_hz * 1e6,  # softmax between two dependent products, a K step
        memory_efficiency=0.9,
        launches=2 if blocks < gpu.sm_count and kernel.t > 1024 else 1,
        tile_count=float(max(blocks, 1)),
        wave_count=waves,
    )


def recurrent_work(kernel: Recurrent, gpu: GpuSpec) -> Work:
    peak, share = pipe_flops_per_s(gpu, kernel.dtype)
    weights = float((kernel.weight_dtype or kernel.dtype).bytes_of(kernel.gates * kernel.h * kernel.h))
    steps = kernel.steps * kernel.directions
    if not steps or not kernel.b or not kernel.h:
        return Work(bytes=kernel.read_bytes)
    rate = peak * min(share, RECURRENT_COMPUTE_EFFICIENCY)
    flops_us = max(kernel.b, 16) / kernel.b * 2.0 * kernel.macs / rate * 1e6
    held = kernel.directions * weights
    return Work(
        bytes=steps * weights + kernel.read_bytes + kernel.write_bytes,
        working_set=held,
        compute_us=flops_us,
        memory_efficiency=RECURRENT_DRAM_EFFICIENCY,
        # directions run side by side where the library can; each step waits for the one before
        fixed_us=kernel.steps * RECURRENT_STEP_US,
        tile_count=float(steps),
        wave_count=float(steps),
    )
