"""Kernels that run beside fused attention's own: adding parts, copying queries, writing the cache; in seconds."""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention import xqa
from neusight_onnx.laws.attention.columns import GIVEN_BYTES
from neusight_onnx.laws.attention.kernel_choice import (
    CUDNN,
    XQA,
    follows_a_mask,
    has_narrow_keys,
    is_flash2_of_library,
    is_prompt_in_8_bits,
    unit_of,
)
from neusight_onnx.laws.bandwidth import l2_bytes_per_s
from neusight_onnx.laws.base import Column, Columns, Constants

SUM_BYTES = 4.0
"""An element of a part's result: FP32."""

CACHE_THREADS = (128.0, 512.0)
"""Least and most threads of a block that writes a token to the cache: one an element (vLLM's reshape_and_cache_flash);
with fewer than 128, blocks start no faster."""


def parts_s(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """Time of the kernel that adds parts, in s; ``cols`` are pinned.

    Parts are written in FP32 and read again, from L2: of prompts that are many bytes.
    """
    if XQA in cols:
        return xqa.merge_s(cols, gpu, c)
    unit, clock, parts, narrow = unit_of(cols, gpu), gpu.clock_hz, cols["split_k"], has_narrow_keys(cols)
    slowness = 1.7e9 / clock
    # on tcgen05 two parts take as long to add as 32
    added = 1e-6 * c["split_us"] * slowness + (unit != "tcgen05") * parts * c["split_cycles"] / clock
    if unit == "mma":
        rows_added = narrow * cols["b"] * cols["h"] * cols["s"] * c["merge_cycles"] / (float(gpu.sm_count) * clock)
        flash2 = 1e-6 * c["split_us_mma"] * slowness + parts * c["split_cycles_mma"] / clock
        sums = parts * cols["b"] * cols["h"] * cols["s"] * cols["v"]
        flash2 = flash2 + (cols["s"] > 1) * 2.0 * SUM_BYTES * sums / l2_bytes_per_s(gpu)
        added = np.where(narrow, added + rows_added, flash2)
    some = (cols["added"] > 0) & ((parts > 1.0) | (unit != "wgmma"))
    return np.where(some, added, 0.0)


def idle_launch_s(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """Time of FlashAttention 3's kernels that neither attend nor add, in s.

    The kernel that adds parts is launched wherever one sequence might have had several. Where it isn't, kernels that
    follow a schedule made for all layers (those with a cache, so with a mask) leave a counter, which a fill resets.
    Those without a mask have a kernel before that makes the schedule (``prepare_varlen_num_blocks``).
    """
    follows = follows_a_mask(cols)
    idle = (cols["split_k"] == 1.0) & ((cols["added"] > 0) | follows)
    launches = (1.0 * idle + 1.0 * ~follows) * ~is_prompt_in_8_bits(cols)
    found = launches * 1e-6 * c["idle_launch_us"] * (1.7e9 / gpu.clock_hz)
    return found if unit_of(cols, gpu) == "wgmma" and CUDNN not in cols else np.zeros(found.shape)


def regroup_s(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """Time of FlashAttention 2's copies that pack queries and unpack the output, in s; ``cols`` are pinned. PyTorch's
    launches none."""
    packed = (cols["packed"] > 0) & (cols["b"] > 1) & (cols["g"] > 1) & ~is_flash2_of_library(cols, gpu)
    copied = packed & ~has_narrow_keys(cols) & (unit_of(cols, gpu) == "mma")
    return np.where(copied, 1e-6 * c["regroup_us"] * (1.7e9 / gpu.clock_hz), 0.0)


def cache_s(cols: Columns, gpu: GpuSpec, c: Constants, dram_s_per_byte: Column) -> Column:
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
    launch = 1e-6 * np.where(queries8, c["prepare_us"] * (1.7e9 / gpu.clock_hz), c["cache_us"])
    found: Column = np.where(written > 0, launch + taken, 0.0)
    return found
