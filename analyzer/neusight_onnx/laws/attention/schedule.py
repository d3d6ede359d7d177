"""What a library chooses for a kernel: tile, packing, parts, and the steps and blocks that follow."""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention import memory_efficient, mma_fp8
from neusight_onnx.laws.attention.kernel_choice import (
    MEMORY_EFFICIENT,
    has_narrow_keys,
    is_flash3_in_fp8,
    is_mma_in_fp8,
    is_prompt_in_8_bits,
    unit_of,
)
from neusight_onnx.laws.attention.rates import shared_bytes_of
from neusight_onnx.laws.attention.tiles import RESIDENT_BLOCKS, WARPS, flash2_tiles, flashinfer_tiles
from neusight_onnx.laws.base import Column, Columns, Constants

LEAST_PART_BYTES = 512.0
"""Keys times bytes of an element that a part has at least in TensorRT-LLM's decoding on tcgen05: a B200 takes 6.5 us up
to 256 keys in 16 bits and up to 512 in 8, and 8.4 from the double on."""

LEAST_CHUNK = 128.0
"""Keys that a part of FlashInfer's has at least (its scheduler)."""

FEW_QUERIES, FEW_QUERIES_HEAD = 64.0, 128.0
"""Rows of packed queries up to which FlashAttention 3 in 16 bits has a tile of 64 instead of 128 rows where heads are
this wide (``use_one_mma_wg`` of its sources, as remembered). An H100 decodes from its L2 in 1.2 us a step of 64 KB of
keys and values with heads of 128 and in 2.3 with heads of 256 (128 sequences and key heads): with 128 rows these were
.93 and .48 of the pipe's peak, so that the first are 64. One group of warps has such a tile, so that no other's
products hide its softmax. Where DRAM binds it hardly tells (an H100 left out decodes 13.2 % off, 12.3 with 128 rows),
but on an H20, whose pipe is slow, it does: with 128 rows DRAM would idle for four fifths of the time."""

FLASH3_HEADS = np.array([64.0, 96.0, 128.0, 192.0, 256.0])
FLASH3_UNMASKED_KEYS = np.array([192.0, 144.0, 176.0, 112.0, 80.0])
"""Widths of heads that FlashAttention 3 has kernels for, and keys of their tiles without a mask (its ``tile_size.h``;
what ``_tile_size_fwd_sm90`` of FlashAttention 4 says of them)."""

MOST_SPLITS = 128
SPLIT_EFFICIENCY = 0.85
"""FlashAttention 2 takes the least number of parts that comes within 85 % of the best filling of two blocks an SM, 128
at most, and one part from .8 of such a round on (num_splits_heuristic of its sources)."""
SPLIT_BELOW = 0.8


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """The columns with what a library chooses: tile, packing, parts, and the steps and blocks that follow."""
    return {**cols, **_choose(cols, gpu)}


def _choose(cols: Columns, gpu: GpuSpec) -> dict[str, Column]:
    unit, sms = unit_of(cols, gpu), float(gpu.sm_count)
    b, h, g, s, t, d = (cols[name] for name in ("b", "h", "g", "s", "t", "d"))
    causal, shared = cols["causal"] > 0, h / g
    prompt8 = is_prompt_in_8_bits(cols)
    if unit == "wgmma":
        packed = np.ones(s.shape, dtype=np.bool_)
    elif unit == "tcgen05":
        packed = s == 1
    else:
        packed = has_narrow_keys(cols) | ((s == 1) & (cols["windowed"] == 0))
    packed = packed & ~prompt8 & (MEMORY_EFFICIENT not in cols)
    rows = np.where(packed, s * shared, s)
    heads = np.where(packed, g, h)
    # tiles by the libraries' sources: kBlockM and kBlockN of FlashAttention 2 and 3 (with paged keys), two tiles of 128
    # in a block of FlashAttention 4; 128 x 256 of TensorRT-LLM's on WGMMA (fmha_v2, two groups of 64 rows)
    tile_k = np.where(d > 128, 64.0, 128.0)
    resident = np.full(s.shape, RESIDENT_BLOCKS if unit == "mma" else 1.0)
    warps = np.full(s.shape, WARPS)
    if unit == "mma":
        queries8 = is_mma_in_fp8(cols, gpu)
        tile_q, tile_k, warps, resident = flash2_tiles(cols, rows, gpu)
        flashinfer_q, flashinfer_k = flashinfer_tiles(cols, rows, gpu)
        tile_q = np.where(has_narrow_keys(cols), flashinfer_q, tile_q)
        tile_k = np.where(has_narrow_keys(cols), flashinfer_k, tile_k)
        tile_q = np.where(queries8, mma_fp8.of_kernel(cols, "queries"), tile_q)
        tile_k = np.where(queries8, mma_fp8.of_kernel(cols, "keys"), tile_k)
        warps = np.where(has_narrow_keys(cols) | queries8, WARPS, warps)
        resident = np.where(has_narrow_keys(cols), RESIDENT_BLOCKS, resident)
        resident = np.where(queries8, mma_fp8.resident_blocks(cols, shared_bytes_of(gpu)), resident)
        if MEMORY_EFFICIENT in cols:
            build = memory_efficient.build_of(cols, gpu)
            tile_q, tile_k, warps = build["queries"], build["keys"], build["warps"]
            resident = memory_efficient.resident_blocks(cols, gpu, shared_bytes_of(gpu), mma_fp8.RESERVED_BYTES)
    elif unit == "wgmma":
        tile_q = np.where((d <= 96) & (rows > 128) & ~prompt8, 192.0, 128.0)
        few = (rows <= FEW_QUERIES) & (d == FEW_QUERIES_HEAD) & (cols["kv_bytes"] == 2.0)
        tile_q = np.where(few, FEW_QUERIES, tile_q)
        tile_k = np.where((d > 128) & (d <= 192), 96.0, tile_k)
        tile_k = np.where(causal, tile_k, FLASH3_UNMASKED_KEYS[np.searchsorted(FLASH3_HEADS, np.minimum(d, 256.0))])
        narrower = ((d > 64) & (d <= 96)) | (d > 192)
        tile_k = np.where(is_flash3_in_fp8(cols, gpu), np.where(narrower, 128.0, 160.0), tile_k)
        tile_k = np.where(prompt8, np.where(d <= 128, 256.0, 128.0), tile_k)
    else:
        few = np.where(rows <= 16, 16.0, np.where(rows <= 32, 32.0, 64.0))
        tile_q = np.where(packed & (rows <= 64), few, np.where(rows <= 128, 128.0, 256.0))
        resident = np.where(tile_q < 128.0, RESIDENT_BLOCKS, resident)
    tiles = np.ceil(rows / tile_q)
    # keys that a tile of queries goes through: with a mask the j-th of n sees those up to its last query's
    tokens = np.where(packed, tile_q / shared, tile_q)
    before = np.maximum(t - s, 0.0)
    reach = np.minimum(np.where(cols["window"] < t, cols["window"] + np.minimum(tokens, s) - 1.0, t), t)
    growing = np.where(tiles == 1.0, (before + s <= reach) * 1.0, np.clip((reach - before) / tokens, 0.0, tiles))
    rising = np.where(tiles == 1.0, growing * s, tokens * growing * (growing + 1.0) / 2.0)
    masked = np.minimum(growing * before + rising + (tiles - growing) * reach, tiles * reach)
    keys = np.where(causal, masked, tiles * reach)
    # a window begins anywhere in a tile of keys; FlashAttention 3 takes a tile more where it begins with one: 128 of
    # many keys take an H100 1.17 times what 128 keys do
    every = np.ceil(t / tile_k)
    hidden = np.maximum(np.floor((t - reach - (unit == "wgmma")) / tile_k), 0.0)
    straddling = np.where(reach < t, np.ceil((reach - 1.0) / tile_k) + 1.0, every)
    longest = np.where(tiles == 1.0, every - hidden, straddling)
    per_head = np.where(tiles == 1.0, longest, keys / tile_k + np.where(causal, 0.5 * tiles, 0.0))
    if unit == "tcgen05":
        # the lower half of two tiles of 128 goes through 128 keys less
        per_head = per_head - np.where(causal & (tile_q == 256.0), 0.5 * 128.0 / tile_k * tiles, 0.0)
    blocks = b * heads * tiles
    if unit == "mma":
        parts = np.where(packed & (s * shared <= tile_q), _flash2_splits(blocks, longest, RESIDENT_BLOCKS * sms), 1.0)
        # FlashInfer's fill two blocks an SM, of prompts as well
        chunks = np.clip(np.floor(RESIDENT_BLOCKS * sms / blocks), 1.0, np.ceil(reach / LEAST_CHUNK))
        parts = np.where(has_narrow_keys(cols), chunks, parts)
        # in a CUDA graph its decoding adds parts even where it is one (DecodePlan)
        added = (parts > 1.0) | (has_narrow_keys(cols) & (s == 1) & (blocks < RESIDENT_BLOCKS * sms))
    else:
        # FlashAttention 3 counts parts by all keys, also those that a window hides: an H100 takes the second kernel's
        # time more for 128 of many keys than for 128 keys
        spanned = np.ceil(t / tile_k) if unit == "wgmma" else np.floor(reach * cols["kv_bytes"] / LEAST_PART_BYTES)
        fits = np.maximum(np.minimum(np.floor(sms / blocks), np.minimum(spanned, MOST_SPLITS)), 1.0)
        splits = ((packed & (rows <= 128)) | ~causal) & (blocks < SPLIT_BELOW * sms)
        parts = np.where(splits, fits, 1.0)
        added = parts > 1.0
    return {
        "rows": rows,
        "packed": packed * 1.0,
        "tile_q": tile_q,
        "tile_k": tile_k,
        "split_k": parts,
        "added": added * 1.0,
        "steps": b * heads * np.maximum(per_head, tiles),
        # a window's keys lie in one of the parts
        "longest": np.where((unit == "wgmma") & (cols["window"] < t), longest, np.ceil(longest / parts)),
        "blocks": blocks * parts,
        "resident": resident,
        "warps": warps,
    }


def _flash2_splits(blocks: Column, steps: Column, slots: float) -> Column:
    """Parts that FlashAttention 2 cuts rows of ``steps`` tiles of keys into, for ``blocks`` on ``slots`` places."""
    parts = np.arange(1.0, MOST_SPLITS + 1.0)[:, None]
    rounds = blocks * parts / slots
    fewer = np.ceil(steps / np.maximum(parts - 1.0, 1.0))
    allowed = (parts == 1.0) | ((parts <= steps) & (np.ceil(steps / parts) != fewer))
    filling = np.where(allowed, rounds / np.ceil(rounds), 0.0)
    first = np.argmax(filling >= SPLIT_EFFICIENCY * filling.max(axis=0), axis=0) + 1.0
    return np.where(blocks >= SPLIT_BELOW * slots, 1.0, first)
