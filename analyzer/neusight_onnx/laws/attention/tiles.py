"""Tiles of queries and keys: FlashAttention 2's and FlashInfer's, by their sources."""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.laws.attention import mma_fp8
from neusight_onnx.laws.attention.kernel_choice import FLASH2, is_prompt_in_8_bits
from neusight_onnx.laws.attention.rates import SHARED_BYTES, shared_bytes_of
from neusight_onnx.laws.bandwidth import capability, is_amd
from neusight_onnx.laws.base import Column, Columns

WARPS = 4.0
"""Warps of mma's blocks: each has rows of queries of its own and reads all keys; with FlashInfer's tile of 16 rows each
has keys of its own."""

RESIDENT_BLOCKS = 2.0
"""Blocks that hide each other's prologues: two on an SM with mma, and with tcgen05 in decoding. WGMMA's kernels fill an
SM's registers with one, prompts and encoders on tcgen05 its tensor memory: 128 columns each for scores and output of
two tiles are all 512 that there are (PTX ISA; FlashAttention 4's ``tmem_total``)."""

FLASH2_HEADS = np.array([32.0, 64.0, 96.0, 128.0, 192.0, 256.0])
"""Widths of heads that FlashAttention 2 has kernels for; others are padded (HEADDIM_SWITCH of its sources)."""


def flash2_tiles(cols: Columns, rows: Column, gpu: GpuSpec) -> tuple[Column, Column, Column, Column]:
    """Queries and keys of FlashAttention 2's tile, warps of a block, and how many times four of them are on an SM.

    Where keys stand in pages, as under the masks that were measured, or are cut into parts: those of
    ``run_mha_fwd_splitkv_dispatch``. Others have a tile for each head (``run_mha_fwd_hdim*``). A block holds its
    queries, a tile of keys and one of values in shared memory.
    """
    d = FLASH2_HEADS[np.minimum(np.searchsorted(FLASH2_HEADS, cols["d"]), FLASH2_HEADS.size - 1)]
    # Composable Kernel's blocks on AMD are not known: taken to leave room for a second one
    shared = np.inf if is_amd(gpu) else shared_bytes_of(gpu)
    causal = cols["causal"] > 0
    paged = causal & (FLASH2 not in cols) | (rows <= 64) & (cols["t"] > cols["s"])
    paged_k = np.where(d <= 64, 256.0, np.where(d <= 128, 128.0, 64.0))
    small = 8.0 < capability(gpu) < 9.0
    square = small & causal & (d > 64) & (d <= 128)
    whole_k = np.where(d <= 64, 128.0, np.where((d == 128) & small & ~causal, 32.0, 64.0))
    # heads of 256: 128 queries where they fit, but not where two blocks of 64 do
    fewer = (d == 256) & ((shared < 2 * 256 * 256) | (shared >= 4 * 256 * 192))
    tile_q = np.where(paged | fewer | square, 64.0, 128.0)
    tile_k = np.where(paged, paged_k, whole_k)
    warps = np.where((d > 128) & (tile_q == 128.0), 2.0 * WARPS, WARPS)
    block = cols["query_bytes"] * d * (tile_q + 2.0 * tile_k)
    blocks = np.maximum(np.floor(shared / (block + mma_fp8.RESERVED_BYTES)), 1.0)
    return tile_q, tile_k, warps, np.minimum(blocks * warps / WARPS, RESIDENT_BLOCKS)


def flashinfer_tiles(cols: Columns, rows: Column, gpu: GpuSpec) -> tuple[Column, Column]:
    """Queries and keys of FlashInfer's tile: by packed rows (FA2DetermineCtaTileQ), as many fragments of 16 keys as
    registers and, with two blocks an SM, shared memory hold beside the queries."""
    d, stored = cols["d"], cols["kv_bytes"]
    tile_q = np.where((rows > 64) & (d < 256), 128.0, np.where(rows > 16, 64.0, 16.0))
    fragment = 16.0 * np.where(tile_q == 16.0, WARPS, 1.0)
    shared = gpu.shared_memory_bytes_per_sm or SHARED_BYTES
    queries, keys = tile_q * d * cols["query_bytes"], fragment * (d + cols["v"]) * stored
    of_block = np.where(shared >= RESIDENT_BLOCKS * (queries + keys), shared / RESIDENT_BLOCKS, shared)
    most = np.where(tile_q == 128.0, 4.0, 8.0)
    fragments = np.clip((of_block - queries) / keys, 1.0, most)
    return tile_q, fragment * 2.0 ** np.floor(np.log2(fragments))


def padded_widths(cols: Columns, gpu: GpuSpec) -> tuple[Column, Column]:
    """Widths that heads are padded to, of queries and keys, and of values: whole fragments of the pipe, powers of two
    in TensorRT-LLM's on WGMMA (an H100 takes the same for 192 as for 256)."""

    def padded(name: str) -> Column:
        fragments = 32.0 * np.ceil(cols[name] / 32.0)
        powers = 2.0 ** np.ceil(np.log2(np.maximum(cols[name], 64.0)))
        found: Column = np.where(is_prompt_in_8_bits(cols) & (instructions(gpu) == "wgmma"), powers, fragments)
        return found

    return padded("d"), padded("v")
