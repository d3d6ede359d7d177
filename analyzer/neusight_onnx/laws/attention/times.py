"""The competing times of fused attention, and what stands beside them, in seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention import memory_efficient, mma_fp8
from neusight_onnx.laws.attention.columns import GIVEN_BYTES
from neusight_onnx.laws.attention.kernel_choice import (
    MEMORY_EFFICIENT,
    has_narrow_keys,
    is_flash3_in_fp8,
    is_mma_in_fp8,
    is_prompt_in_8_bits,
    unit_of,
)
from neusight_onnx.laws.attention.rates import (
    SHARED_BYTES_PER_CLOCK,
    exponentials_per_clock,
    has_partitioned_l2,
    instruction_rates,
    pipe_indices,
    stream_fraction,
)
from neusight_onnx.laws.attention.schedule import FEW_QUERIES
from neusight_onnx.laws.attention.tiles import RESIDENT_BLOCKS, WARPS, padded_widths
from neusight_onnx.laws.bandwidth import is_amd, l2_bytes_per_s
from neusight_onnx.laws.base import Column, Columns, Constants
from neusight_onnx.laws.gemm import process_energy
from neusight_onnx.laws.tensor_gemm import AMD_OVERHEAD, clock_had, sustained_level, unit_energy

CACHE_THREADS = (128.0, 512.0)
"""Least and most threads of a block that writes a token to the cache: one an element (vLLM's reshape_and_cache_flash);
with fewer than 128, blocks start no faster."""

UNOVERLAPPED_HEAD = 192.0
"""Widest head whose softmax FlashAttention 3 in FP8 hides behind products where keys are in pages (its tiles)."""

L2_SHARPNESS = 8.0
"""How sharply DRAM takes over where what repetitions touch exceeds L2."""

LAST_BLOCKS = 0.95
"""Of the longest block's steps, what SMs wait for it (``_last_steps``)."""


def times(cols: Columns, gpu: GpuSpec, c: Constants) -> dict[str, Column]:
    """Competing times in s and what they are made of; ``cols`` are pinned."""
    unit, sms, clock = unit_of(cols, gpu), float(gpu.sm_count), gpu.clock_hz
    peak, narrow = instruction_rates(cols, gpu), has_narrow_keys(cols)
    tile_q, tile_k, blocks, longest = (cols[name] for name in ("tile_q", "tile_k", "blocks", "longest"))
    # bytes a clock and SM from L2: what its port takes, and its share of what the L2 gives all that work
    l2_rate = c["l2_bytes_per_clock"] * clock
    l2_share = np.minimum(l2_rate, l2_bytes_per_s(gpu) / np.minimum(blocks, sms)) / clock
    overhead = c["pipe_overhead_tcgen05" if unit == "tcgen05" else "pipe_overhead"]
    if is_amd(gpu):
        overhead = max(overhead, AMD_OVERHEAD)
    width_d, width_v = padded_widths(cols, gpu)
    if MEMORY_EFFICIENT in cols:
        width_v = memory_efficient.build_of(cols, gpu)["width_v"]
    width = width_d + width_v
    pairs = tile_q * tile_k
    products = overhead * 2.0 * pairs * width * sms * clock / peak
    vector = c["vector_instructions_tcgen05" if unit == "tcgen05" else "vector_instructions"]
    softmax = c["exp_overhead"] * pairs * (1.0 / exponentials_per_clock(gpu) + vector / gpu.fp32_lanes_per_sm)
    exposed = np.full(pairs.shape, c[f"exposed_{unit}"])
    spilled = np.zeros(pairs.shape)
    if unit == "mma":
        queries8 = is_mma_in_fp8(cols, gpu)
        converted = narrow * np.where(tile_q > 16.0, WARPS, 1.0) * width
        softmax = softmax + c["convert_instructions"] * converted * tile_k / gpu.fp32_lanes_per_sm
        # from shared memory each warp loads all keys and values, but with FlashInfer's tile of 16 rows, of which it has
        # its own: beside the products, but in FP8 before them; AMD's overhead has its kernels' loads
        loading = np.where(narrow & (tile_q == 16.0), 1.0, cols["warps"])
        loaded = loading * tile_k * width * cols["kv_bytes"] / SHARED_BYTES_PER_CLOCK
        if MEMORY_EFFICIENT in cols:
            softmax = memory_efficient.issue_cycles(cols, gpu)
            loaded = memory_efficient.loaded_bytes(cols, gpu) / SHARED_BYTES_PER_CLOCK
        apart = queries8 | is_amd(gpu)
        products = np.where(apart, products, p_norm((products, loaded), c["norm"]))
        of_fp8 = pairs * c["pack_cycles"] + loaded + mma_fp8.vector_cycles(cols, gpu, width_v)
        softmax = softmax + queries8 * of_fp8
        spilled = queries8 * mma_fp8.spilled_bytes(cols, gpu) / l2_share
    if unit == "wgmma":
        alone_in_fp8 = is_flash3_in_fp8(cols, gpu) & (cols["d"] > UNOVERLAPPED_HEAD)
        exposed = np.where(alone_in_fp8 | (tile_q == FEW_QUERIES), 1.0, exposed)
    overlapped = np.maximum(products, softmax) + exposed * np.minimum(products, softmax)
    if unit == "wgmma":
        # warps of their own load and transpose
        transposed = is_flash3_in_fp8(cols, gpu) * c["producer_cycles"] * tile_k * width_v
        overlapped = p_norm((overlapped, transposed), c["norm"])
    step = p_norm((overlapped, spilled), c["norm"]) + c["step_cycles"]
    # alone on its SM, a block of mma hides nothing behind another
    alone = (products + softmax + spilled if unit == "mma" else overlapped) + c["step_latency_cycles"]
    step = np.where((unit == "mma") & (cols["resident"] < RESIDENT_BLOCKS), alone, step)
    start = np.where(narrow & (unit == "mma"), c["block_cycles_flashinfer"], c["block_cycles"])
    # two tiles of 128 on tcgen05 are stored by warps of their own
    stored_rows = np.minimum(np.minimum(tile_q, cols["rows"]), 128.0 if unit == "tcgen05" else np.inf)
    block = start + c["row_cycles"] * stored_rows * width / 256.0
    per_sm = np.maximum(blocks / sms, 1.0)
    steps = cols["steps"] / blocks
    per_block = block / cols["resident"]
    # where blocks are alike, SMs wait for the last round's
    rounds = np.ceil(per_sm)
    work = rounds * steps
    if unit == "mma":
        uneven = blocks / sms * steps + _last_steps(steps, longest)
        work = np.where(is_mma_in_fp8(cols, gpu), work, np.maximum(work, uneven))
    at_boost = (work * step + rounds * per_block) / clock
    latency = (longest * alone + block) / clock

    keys, io, past = cols["seen_bytes"], cols["io_bytes"], cols["past_bytes"]
    # what is written to the cache is read from it
    given = np.maximum(cols["query_bytes"], GIVEN_BYTES)
    fresh = cols["cache_bytes"] * given / (given + cols["kv_bytes"])
    held = c["l2_fill"] * (c["l2_partitioned"] if has_partitioned_l2(gpu) else 1.0) * gpu.l2_bytes
    miss = 1.0 / (1.0 + ((keys + io + fresh) / held) ** -L2_SHARPNESS)
    rate = gpu.memory_bytes_per_s * c["dram_efficiency"] * stream_fraction(gpu)
    memory = ((keys + io - past) * miss + past) / rate
    if unit == "mma":
        memory = memory + (keys - past) * (1.0 - miss) / (c["l2_stream_mma"] * l2_bytes_per_s(gpu))
    panels = per_sm * steps * tile_k * cols["kv_bytes"] * (cols["d"] + cols["v"])
    l2 = (panels + cols["mask_reads"] / sms) / l2_rate
    # energy in FLOPs by mma in 16 nm
    of_products = unit_energy(gpu, pipe_indices(cols, gpu))
    if MEMORY_EFFICIENT in cols:
        of_products = of_products * memory_efficient.energy_share(cols, gpu)
    energy = 2.0 * width * of_products + c["softmax_flops"] * process_energy(gpu.process_nm)
    level = sustained_level(gpu, c, cols["steps"] * pairs * energy, at_boost, (latency, memory, l2))
    compute = at_boost / clock_had(at_boost, level, cols["burst"], gpu, c)
    first = (io + keys / longest) * (miss / rate + (1.0 - miss) / (l2_rate * np.minimum(sms, blocks)))
    slowness = 1.7e9 / clock
    parts = cols["split_k"]
    rows_added = narrow * cols["b"] * cols["h"] * cols["s"] * c["merge_cycles"] / (sms * clock)
    # on tcgen05 two parts take as long to add as 32
    added = 1e-6 * c["split_us"] * slowness + (unit != "tcgen05") * parts * c["split_cycles"] / clock
    if unit == "mma":
        flash2 = 1e-6 * c["split_us_mma"] * slowness + parts * c["split_cycles_mma"] / clock
        added = np.where(narrow, added + rows_added, flash2)
    copied = (cols["packed"] > 0) & (cols["b"] > 1) & (cols["g"] > 1) & ~narrow & (unit == "mma")
    return {
        "compute": compute,
        "latency": latency,
        "memory": memory,
        "l2": l2,
        "products": products,
        "softmax": softmax,
        "floor": np.full(blocks.shape, c["floor_cycles"] / clock),
        # memory's share of the time has them already
        "beside": c["io_exposed"] * np.minimum(first, compute) * compute / (compute + memory)
        + _cache_s(cols, gpu, c, miss / rate)
        + np.where(cols["added"] > 0, added, 0.0)
        + np.where(copied, 1e-6 * c["regroup_us"] * slowness, 0.0),
    }


def _last_steps(steps: Column, longest: Column) -> Column:
    """Steps that SMs wait for the last blocks, beyond their share of all steps; ``steps``: a block's on average.

    Under a causal mask blocks start from the first queries to the last (``m_block = blockIdx.x`` of FlashAttention 2),
    so that the longest come last. Simulated (two places an SM, each next block to the first that is free; 2 to 128
    blocks a head, 72 to 142 SMs, 1 to 20 blocks an SM): .96 of the longest on average, .75 with two blocks a head.
    Blocks that are alike leave nothing of this.
    """
    unlike = np.clip(2.0 * (1.0 - steps / longest), 0.0, 1.0)
    found: Column = LAST_BLOCKS * np.sqrt(unlike) * longest
    return found


def _cache_s(cols: Columns, gpu: GpuSpec, c: Constants, dram_s_per_byte: Column) -> Column:
    """Time of the kernel that writes keys and values to a cache, in s; of prompts in 8 bits of TensorRT-LLM's, which
    prepares queries as well."""
    written, narrow, queries8 = cols["cache_bytes"], has_narrow_keys(cols), cols["query_bytes"] < 2.0
    cycles_per_s = gpu.sm_count * gpu.clock_hz
    given = np.maximum(cols["query_bytes"], GIVEN_BYTES)
    tokens = written / (given + cols["kv_bytes"]) / (cols["g"] * (cols["d"] + cols["v"]))
    threads = np.clip(cols["g"] * cols["d"], *CACHE_THREADS)
    life = np.where(narrow, c["cache_block_cycles_narrow"], c["cache_block_cycles"])
    writing = tokens * threads / gpu.max_threads_per_sm * life / cycles_per_s
    preparing = written / (c["prepare_bytes_per_clock"] * cycles_per_s)
    streaming = c["cache_passes"] * dram_s_per_byte * written
    taken = np.hypot(np.where(queries8, preparing, writing), streaming)
    windowed = is_prompt_in_8_bits(cols) & (cols["windowed"] > 0)
    taken = taken + windowed * cols["b"] * cols["h"] * cols["s"] * c["prepare_window_cycles"] / cycles_per_s
    launch = 1e-6 * np.where(queries8, c["prepare_us"], c["cache_us"]) * 1.7e9 / gpu.clock_hz
    found: Column = np.where(written > 0, launch + taken, 0.0)
    return found


def p_norm(values: Sequence[Column], power: float) -> Column:
    """p-norm over ``values``, of which none is negative."""
    largest = np.maximum.reduce(values)
    found: Column = largest * np.sum([(value / largest) ** power for value in values], axis=0) ** (1.0 / power)
    return found
