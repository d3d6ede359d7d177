"""Tiles of queries and keys, by the libraries' sources.

kBlockM and kBlockN of FlashAttention 2 and 3 (with paged keys); FlashInfer's; two tiles of 128 in a block of
FlashAttention 4; 128 x 256 of TensorRT-LLM's on WGMMA (fmha_v2, two groups of 64 rows).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.laws.attention import memory_efficient, mma_fp8, xqa
from neusight_onnx.laws.attention.kernel_choice import (
    MEMORY_EFFICIENT,
    XQA,
    follows_a_mask,
    has_narrow_keys,
    is_composable_kernel_of_onnxruntime,
    is_flash3_in_fp8,
    is_mma_in_fp8,
    is_prompt_in_8_bits,
    split_kernel_keys,
    unit_of,
)
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

FEW_QUERIES = 64.0
"""Rows of packed queries up to which FlashAttention 3's kernels of ``FEW_QUERIES_HEADS`` have a tile of so many, by one
group of warps, so that no other's products hide its softmax."""

FLASH3_HEADS = np.array([64.0, 96.0, 128.0, 192.0, 256.0])
FEW_QUERIES_HEADS = (64.0, 128.0)
FLASH3_KEYS = np.array([128.0, 128.0, 128.0, 96.0, 80.0])
FLASH3_UNMASKED_KEYS = np.array([192.0, 144.0, 176.0, 112.0, 80.0])
FLASH3_FP8_KEYS = np.array([160.0, 128.0, 160.0, 160.0, 128.0])
FLASH3_FEW_KEYS = np.array([192.0, 128.0, 128.0, 96.0, 80.0])
FLASH3_FEW_FP8_KEYS = np.array([128.0, 128.0, 96.0, 160.0, 128.0])
"""Widths of heads that FlashAttention 3 has kernels for, and keys of their tiles: in 16 bits with a mask, without one,
in 8 bits, and with few queries. Launches of vLLM's (0.12, keys in pages of 16) on stand-ins for an H100
(``benchmarks/evidence/attention_kernels.md``); 112 by what ``_tile_size_fwd_sm90`` of FlashAttention 4 says."""


class Tiles(NamedTuple):
    """For each kernel ``queries`` x ``keys`` pairs of a step, ``warps`` of a block, and its blocks ``resident`` on an
    SM."""

    queries: Column
    keys: Column
    warps: Column
    resident: Column


def tiles_of(
    cols: Columns, gpu: GpuSpec, rows: Column, packed: NDArray[np.bool_], in_split_kernel: NDArray[np.bool_]
) -> Tiles:
    """What the library that runs takes for ``rows`` of queries, ``packed`` or not; ``in_split_kernel``: FlashAttention
    2's kernel for parts of keys."""
    unit = unit_of(cols, gpu)
    if XQA in cols:
        same = np.ones(rows.shape)
        return Tiles(xqa.rows_of(rows), xqa.STEP_KEYS * same, xqa.WARPS * same, same)
    if MEMORY_EFFICIENT in cols:
        build = memory_efficient.build_of(cols, gpu)
        resident = memory_efficient.resident_blocks(cols, gpu, shared_bytes_of(gpu), mma_fp8.RESERVED_BYTES)
        return Tiles(build["queries"], build["keys"], build["warps"], resident)
    if unit == "mma":
        return _mma_tiles(cols, rows, gpu, in_split_kernel)
    warps = np.full(rows.shape, WARPS)
    if unit == "wgmma":
        queries, keys = _wgmma_tiles(cols, rows, gpu)
        return Tiles(queries, keys, warps, np.ones(rows.shape))
    few = np.where(rows <= 16, 16.0, np.where(rows <= 32, 32.0, 64.0))
    queries = np.where(packed & (rows <= 64), few, np.where(rows <= 128, 128.0, 256.0))
    resident = np.where(queries < 128.0, RESIDENT_BLOCKS, 1.0)
    return Tiles(queries, np.where(cols["d"] > 128, 64.0, 128.0), warps, resident)


def _mma_tiles(cols: Columns, rows: Column, gpu: GpuSpec, in_split_kernel: NDArray[np.bool_]) -> Tiles:
    """FlashAttention 2's, FlashInfer's where keys are stored in fewer bits, TensorRT-LLM's of prompts in FP8."""
    narrow, queries8 = has_narrow_keys(cols), is_mma_in_fp8(cols, gpu)
    if is_amd(gpu):
        queries, keys, warps, resident = _matrix_core_tiles(cols, rows, gpu)
    else:
        queries, keys, warps, resident = _flash2_tiles(cols, gpu, in_split_kernel)
    flashinfer_queries, flashinfer_keys = _flashinfer_tiles(cols, rows, gpu)
    queries = np.where(narrow, flashinfer_queries, queries)
    keys = np.where(narrow, flashinfer_keys, keys)
    resident = np.where(narrow, RESIDENT_BLOCKS, resident)
    return Tiles(
        queries=np.where(queries8, mma_fp8.of_kernel(cols, "queries"), queries),
        keys=np.where(queries8, mma_fp8.of_kernel(cols, "keys"), keys),
        warps=np.where(narrow | queries8, WARPS, warps),
        resident=np.where(queries8, mma_fp8.resident_blocks(cols, shared_bytes_of(gpu)), resident),
    )


def _wgmma_tiles(cols: Columns, rows: Column, gpu: GpuSpec) -> tuple[Column, Column]:
    """Queries and keys of the tiles of FlashAttention 3, and of TensorRT-LLM's for prompts in 8 bits."""
    d, prompt8, in_fp8 = cols["d"], is_prompt_in_8_bits(cols), is_flash3_in_fp8(cols, gpu)
    kernel = np.minimum(np.searchsorted(FLASH3_HEADS, d), FLASH3_HEADS.size - 1)
    few = (rows <= FEW_QUERIES) & np.isin(FLASH3_HEADS[kernel], FEW_QUERIES_HEADS) & ~prompt8
    queries = np.where((d <= 96) & ~prompt8, 192.0, 128.0)
    masked = np.where(few, FLASH3_FEW_KEYS[kernel], FLASH3_KEYS[kernel])
    keys = np.where(follows_a_mask(cols), masked, FLASH3_UNMASKED_KEYS[kernel])
    keys = np.where(in_fp8, np.where(few, FLASH3_FEW_FP8_KEYS[kernel], FLASH3_FP8_KEYS[kernel]), keys)
    return np.where(few, FEW_QUERIES, queries), np.where(prompt8, np.where(d <= 128, 256.0, 128.0), keys)


def _flash2_tiles(
    cols: Columns, gpu: GpuSpec, in_split_kernel: NDArray[np.bool_]
) -> tuple[Column, Column, Column, Column]:
    """Queries and keys of FlashAttention 2's tile, warps of a block, and how many times four of them are on an SM.

    Its kernel for parts has those of ``run_mha_fwd_splitkv_dispatch``, the other those of its head
    (``run_mha_fwd_hdim*``). PyTorch calls a step of one query not causal, ONNX Runtime does. A block holds its
    queries, a tile of keys and one of values in shared memory.
    """
    d = FLASH2_HEADS[np.minimum(np.searchsorted(FLASH2_HEADS, cols["d"]), FLASH2_HEADS.size - 1)]
    shared = shared_bytes_of(gpu)
    causal = (cols["causal"] > 0) & ((cols["s"] > 1) | (cols["by_pytorch"] == 0))
    small = 8.0 < capability(gpu) < 9.0
    square = small & causal & (d > 64) & (d <= 128)
    whole_k = np.where(d <= 64, 128.0, np.where((d == 128) & small & ~causal, 32.0, 64.0))
    # heads of 256: 128 queries where they fit, but not where two blocks of 64 do
    fewer = (d == 256) & ((shared < 2 * 256 * 256) | (shared >= 4 * 256 * 192))
    tile_q = np.where(in_split_kernel | fewer | square, 64.0, 128.0)
    tile_k = np.where(in_split_kernel, split_kernel_keys(d), whole_k)
    warps = np.where((d > 128) & (tile_q == 128.0), 2.0 * WARPS, WARPS)
    block = cols["query_bytes"] * d * (tile_q + 2.0 * tile_k)
    blocks = np.maximum(np.floor(shared / (block + mma_fp8.RESERVED_BYTES)), 1.0)
    return tile_q, tile_k, warps, np.minimum(blocks * warps / WARPS, RESIDENT_BLOCKS)


def _matrix_core_tiles(cols: Columns, rows: Column, gpu: GpuSpec) -> tuple[Column, Column, Column, Column]:
    """The same on AMD's matrix cores: Composable Kernel's for prompts, and for few rows as many as an instruction has.

    Its prompts have 128 queries by 64 keys for heads of up to 64 and by 128 for wider ones, four waves, and two blocks
    on a compute unit up to heads of 128 (``FmhaFwdTileSize`` and ``kBlockPerCu`` of flash-attn 2.8.3's source
    distribution; flash-attn's Triton kernels for CDNA are tuned among the same). For parts of keys it has tiles of 64
    rows, four instructions of 16; AOTriton, which PyTorch calls, has tiles from 16 rows on (as remembered). ONNX
    Runtime calls the kernels of prompts for one query as well.
    """
    few = np.where(rows <= 16.0, 16.0, np.where(rows <= 32.0, 32.0, 64.0))
    takes_few = (rows <= FEW_QUERIES) & ~is_composable_kernel_of_onnxruntime(cols, gpu)
    tile_q = np.where(takes_few, few, 128.0)
    tile_k = np.where(cols["d"] <= 64.0, 64.0, 128.0)
    resident = np.where(cols["d"] <= 128.0, RESIDENT_BLOCKS, 1.0)
    return tile_q, tile_k, np.full(rows.shape, WARPS), resident


def _flashinfer_tiles(cols: Columns, rows: Column, gpu: GpuSpec) -> tuple[Column, Column]:
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
