"""What a library chooses for a kernel: tile, packing, parts, and the steps and blocks that follow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention import xqa
from neusight_onnx.laws.attention.kernel_choice import (
    FEW_ROWS,
    FLASH2,
    FULL,
    MEMORY_EFFICIENT,
    PLACES,
    XQA,
    has_narrow_keys,
    is_flash2_of_library,
    is_prompt_in_8_bits,
    keeps_heads_apart,
    split_kernel_keys,
    unit_of,
)
from neusight_onnx.laws.attention.tiles import RESIDENT_BLOCKS, tiles_of
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Column, Columns, Constants

LEAST_PART_BYTES = 512.0
"""Keys times bytes of an element that a part has at least in TensorRT-LLM's decoding on tcgen05: a B200 takes 6.5 us up
to 256 keys in 16 bits and up to 512 in 8, and 8.4 from the double on."""

LEAST_CHUNK = 128.0
"""Keys that a part of FlashInfer's has at least (its scheduler)."""

MOST_SPLITS = 128
SPLIT_EFFICIENCY = 0.85
"""FlashAttention 2 takes the least number of parts that comes within 85 % of the best filling of two blocks an SM (in
ONNX Runtime of one), 128 at most, and one part from ``FULL`` of such a round on (num_splits_heuristic of its
sources)."""

FEW_STEPS = 4.0
"""Tiles of keys up to which FlashAttention 3 cuts none (its ``num_splits_heuristic``)."""

PART_MARGIN = 1.1
"""Steps that FlashAttention 3 counts for each when it shares them out to SMs (its ``prepare_varlen_num_blocks``, as
remembered; FlashAttention 4's ``prepare_scheduler.py`` has as many on up to 140 SMs)."""


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """The columns with what a library chooses.

    ``rows`` of queries of a head, ``packed`` with those of the heads that share its keys; ``tile_q`` x ``tile_k`` pairs
    of a step, ``split_k`` parts that keys are cut into, which a second kernel adds (``added``); ``steps`` of all blocks
    and of the ``longest``; ``blocks``, their ``warps``, and how many are ``resident`` on an SM.
    """
    unit = unit_of(cols, gpu)
    h, g, s, t = (cols[name] for name in ("h", "g", "s", "t"))
    packed = _packs(cols, gpu, unit)
    rows = np.where(packed, s * (h / g), s)
    cut, in_split_kernel = _library_parts(cols, gpu, packed, rows)
    tile = tiles_of(cols, gpu, rows, packed, in_split_kernel)
    tiles = np.ceil(rows / tile.queries)
    reach, keys = _keys_met(cols, np.where(packed, tile.queries / (h / g), tile.queries), tiles)
    longest, per_head = _steps(cols, unit, tile.queries, tile.keys, tiles, reach, keys)
    heads = cols["b"] * np.where(packed, g, h)
    blocks = heads * tiles
    if XQA in cols:
        parts = xqa.parts_of(blocks, np.ceil(t / tile.keys), gpu)
        added = parts > 1.0
    elif unit == "mma":
        parts, added = _mma_parts(cols, gpu, blocks, longest, reach, packed)
        by_library = is_flash2_of_library(cols, gpu) & (cols["kv_bytes"] == 2.0)
        parts, added = np.where(by_library, cut, parts), np.where(by_library, cut > 1.0, added)
    elif unit == "wgmma":
        parts, added = _flash3_parts(cols, gpu, blocks, tile.queries, tile.keys)
    else:
        parts = _parts(cols, gpu, blocks, reach, packed & (rows <= 128))
        added = parts > 1.0
    return {
        **cols,
        "rows": rows,
        "packed": packed * 1.0,
        "tile_q": tile.queries,
        "tile_k": tile.keys,
        "split_k": parts,
        "added": added * 1.0,
        "steps": heads * np.maximum(per_head, tiles),
        "longest": np.ceil(longest / parts),
        "blocks": blocks * parts,
        "resident": tile.resident,
        "warps": tile.warps,
    }


def _packs(cols: Columns, gpu: GpuSpec, unit: str) -> NDArray[np.bool_]:
    """Whether queries of the heads that share keys stand in one tile."""
    one = cols["s"] == 1
    if XQA in cols:
        return np.ones(one.shape, dtype=np.bool_)
    if unit == "wgmma":
        packs = np.ones(one.shape, dtype=np.bool_)
    elif unit == "tcgen05":
        packs = one
    else:
        packs = has_narrow_keys(cols) | (one & (cols["windowed"] == 0) & ~keeps_heads_apart(cols, gpu))
    found: NDArray[np.bool_] = packs & ~is_prompt_in_8_bits(cols) & (MEMORY_EFFICIENT not in cols)
    return found


def _keys_met(cols: Columns, tokens: Column, tiles: Column) -> tuple[Column, Column]:
    """Most keys that a tile of ``tokens`` queries goes through, and those of all ``tiles`` of a head.

    With a mask the j-th of n tiles sees those up to its last query's.
    """
    s, t, window = cols["s"], cols["t"], cols["window"]
    before = np.maximum(t - s, 0.0)
    reach = np.minimum(np.where(window < t, window + np.minimum(tokens, s) - 1.0, t), t)
    growing = np.where(tiles == 1.0, (before + s <= reach) * 1.0, np.clip((reach - before) / tokens, 0.0, tiles))
    rising = np.where(tiles == 1.0, growing * s, tokens * growing * (growing + 1.0) / 2.0)
    masked = np.minimum(growing * before + rising + (tiles - growing) * reach, tiles * reach)
    return reach, np.where(cols["causal"] > 0, masked, tiles * reach)


def _steps(
    cols: Columns, unit: str, tile_q: Column, tile_k: Column, tiles: Column, reach: Column, keys: Column
) -> tuple[Column, Column]:
    """Steps of the longest block before keys are cut into parts, and of all ``tiles`` of a head.

    A window begins anywhere in a tile of keys; FlashAttention 3 takes a tile more where it begins with one: 128 of
    many keys take an H100 1.17 times what 128 keys do.
    """
    t, causal = cols["t"], cols["causal"] > 0
    every = np.ceil(t / tile_k)
    hidden = np.maximum(np.floor((t - reach - (unit == "wgmma")) / tile_k), 0.0)
    straddling = np.where(reach < t, np.ceil((reach - 1.0) / tile_k) + 1.0, every)
    longest = np.where(tiles == 1.0, every - hidden, straddling)
    per_head = np.where(tiles == 1.0, longest, keys / tile_k + np.where(causal, 0.5 * tiles, 0.0))
    if unit == "tcgen05":
        # the lower half of two tiles of 128 goes through 128 keys less
        per_head = per_head - np.where(causal & (tile_q == 256.0), 0.5 * 128.0 / tile_k * tiles, 0.0)
    return longest, per_head


def _is_cut(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether a library's FlashAttention 2 may cut keys into parts: in 16 bits and one piece, all weights kept."""
    found: NDArray[np.bool_] = (cols["dropout"] + cols["in_pages"] == 0) & (cols["kv_bytes"] == 2.0)
    return found & is_flash2_of_library(cols, gpu)


def _library_parts(
    cols: Columns, gpu: GpuSpec, packed: NDArray[np.bool_], rows: Column
) -> tuple[Column, NDArray[np.bool_]]:
    """Parts that PyTorch's and ONNX Runtime's FlashAttention 2 cut keys into, of prompts as well, and whether its
    kernel for parts runs; others' keys stand in pages, as under the masks that were measured, which takes it, too.
    Keys that stand in one piece don't: a causal mask leaves a prompt the tile it has without.

    Both count tiles of 64 queries (``set_params_splitkv``); where ONNX Runtime's writes the cache it counts key heads,
    and takes that kernel for one part, too.
    """
    appends = cols["appends"] > 0
    heads = cols["b"] * np.where(packed | appends, cols["g"], cols["h"])
    seen = np.where(cols["window"] < cols["t"], np.minimum(cols["window"] + cols["s"] - 1.0, cols["t"]), cols["t"])
    places = np.where(cols["by_onnxruntime"] > 0, PLACES["onnxruntime"], PLACES["pytorch"]) * float(gpu.sm_count)
    tiles, steps = np.ceil(rows / FEW_ROWS), np.ceil(seen / split_kernel_keys(cols["d"]))
    parts = np.where(_is_cut(cols, gpu), _flash2_splits(heads * tiles, steps, places), 1.0)
    paged = (cols["causal"] > 0) & (FLASH2 not in cols) | (rows <= FEW_ROWS) & (cols["t"] > cols["s"])
    in_one_piece = ((cols["by_onnxruntime"] + cols["by_pytorch"]) > 0) & (cols["kv_bytes"] == 2.0)
    return parts, (parts > 1.0) | appends | (cols["in_pages"] > 0) | (paged & ~in_one_piece)


def _mma_parts(
    cols: Columns, gpu: GpuSpec, blocks: Column, longest: Column, reach: Column, packed: NDArray[np.bool_]
) -> tuple[Column, NDArray[np.bool_]]:
    """Parts that mma's kernels cut keys into, and whether a second kernel adds them; ``packed``: the heads of one query
    that share keys, in one tile or several."""
    slots, narrow = RESIDENT_BLOCKS * float(gpu.sm_count), has_narrow_keys(cols)
    chosen = _ck_splits(blocks, longest, slots) if is_amd(gpu) else _flash2_splits(blocks, longest, slots)
    parts = np.where(packed, chosen, 1.0)
    # FlashInfer's fill two blocks an SM, of prompts as well
    chunks = np.clip(np.floor(slots / blocks), 1.0, np.ceil(reach / LEAST_CHUNK))
    parts = np.where(narrow, chunks, parts)
    # in a CUDA graph its decoding adds parts even where it is one (DecodePlan)
    return parts, (parts > 1.0) | (narrow & (cols["s"] == 1) & (blocks < slots))


def _parts(cols: Columns, gpu: GpuSpec, blocks: Column, reach: Column, few: NDArray[np.bool_]) -> Column:
    """Parts that kernels on tcgen05 cut keys into; ``few``: packed queries, 128 of them at most."""
    sms = float(gpu.sm_count)
    most = np.minimum(np.floor(reach * cols["kv_bytes"] / LEAST_PART_BYTES), MOST_SPLITS)
    fits = np.maximum(np.minimum(np.floor(sms / blocks), most), 1.0)
    splits = (few | (cols["causal"] == 0)) & (blocks < FULL * sms)
    return np.where(splits, fits, 1.0)


def _flash3_parts(
    cols: Columns, gpu: GpuSpec, blocks: Column, tile_q: Column, tile_k: Column
) -> tuple[Column, NDArray[np.bool_]]:
    """Parts that FlashAttention 3 cuts keys into, and whether its second kernel is launched.

    The host allows as many as fill the SMs once with one sequence, as if all others were short, and launches the second
    kernel where that is more than one. A kernel on the GPU then shares the steps of all sequences out to the SMs
    (``num_splits_heuristic``, ``get_num_splits``, ``prepare_varlen_num_blocks`` of its sources; what vLLM launches on
    stand-ins agrees: ``benchmarks/evidence/attention_kernels.md``).
    """
    sms = float(gpu.sm_count)
    seen = np.where(cols["window"] < cols["t"], np.minimum(cols["window"] + tile_q, cols["t"]), cols["t"])
    loaded, steps = np.ceil(seen / tile_k), np.ceil(cols["t"] / tile_k)
    every = np.arange(1.0, MOST_SPLITS + 1.0)[:, None]
    cut = (loaded > FEW_STEPS) & ~is_prompt_in_8_bits(cols)
    allowed = every <= np.minimum(loaded, sms)
    most = np.where(cut, _first_filling(blocks / cols["b"], every, allowed, sms), 1.0)
    of_sm = np.ceil(PART_MARGIN * blocks * steps / sms)
    return np.clip(np.ceil(steps / of_sm), 1.0, most), most > 1.0


def _flash2_splits(blocks: Column, steps: Column, slots: Column | float) -> Column:
    """Parts that FlashAttention 2 cuts rows of ``steps`` tiles of keys into, for ``blocks`` on ``slots`` places."""
    parts = np.arange(1.0, MOST_SPLITS + 1.0)[:, None]
    fewer = np.ceil(steps / np.maximum(parts - 1.0, 1.0))
    allowed = (parts == 1.0) | ((parts <= steps) & (np.ceil(steps / parts) != fewer))
    return _first_filling(blocks, parts, allowed, slots)


def _ck_splits(blocks: Column, steps: Column, slots: float) -> Column:
    """The same of Composable Kernel on AMD's GPUs, which looks at no keys: a part more of no keys is as good.

    So ``num_splits_heuristic`` of its fused attention's example, as flash-attn 2.8.3's source distribution holds it
    (``example/ck_tile/01_fmha/fmha_fwd.cpp``); what is added here are the parts that have keys. Nothing was measured.
    """
    parts = np.arange(1.0, MOST_SPLITS + 1.0)[:, None]
    return np.minimum(_first_filling(blocks, parts, np.ones(parts.shape, dtype=np.bool_), slots), steps)


def _first_filling(blocks: Column, parts: Column, allowed: NDArray[np.bool_], slots: Column | float) -> Column:
    """The least of the ``allowed`` numbers of ``parts`` that comes near the best filling of ``slots`` places; one where
    ``blocks`` fill them."""
    rounds = blocks * parts / slots
    filling = np.where(allowed, rounds / np.ceil(rounds), 0.0)
    first = np.argmax(filling >= SPLIT_EFFICIENCY * filling.max(axis=0), axis=0) + 1.0
    return np.where(blocks >= FULL * slots, 1.0, first)
