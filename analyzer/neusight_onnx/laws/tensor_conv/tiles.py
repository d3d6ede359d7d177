"""Tiles of implicit GEMM and of an image's product: those of the architecture's menu with the smallest time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import matrix_units
from neusight_onnx.laws.bandwidth import capability, is_amd
from neusight_onnx.laws.base import Column, Columns, Constants
from neusight_onnx.laws.tensor_conv import miopen_splits
from neusight_onnx.laws.tensor_conv.columns import PACKED_INT8_SINCE, PACKED_SIDE
from neusight_onnx.laws.tensor_conv.image_products import image_columns, image_constants
from neusight_onnx.laws.tensor_conv.implicit_gemm import joined_us, times
from neusight_onnx.laws.tensor_conv.miopen_lanes import (
    dynamic_times,
    has_lanes,
    has_matrix_cores,
    lanes_times,
    winograd_times,
)
from neusight_onnx.laws.tensor_conv.miopen_passes import passes_times
from neusight_onnx.laws.tensor_conv.miopen_solvers import (
    assembled_times,
    compiled_times,
    has_own_splits,
    hip_times,
    lying_times,
    mlir_times,
    reads_as_they_lie,
)
from neusight_onnx.laws.tensor_conv.solver_tiles import (
    COMPILED_TILE,
    DYNAMIC_TILE,
    HIP_TILE,
    LANES_TILE,
    LYING_TILE,
    MLIR_TILE,
    PASSES_TILE,
    WINOGRAD_TILE,
)
from neusight_onnx.laws.tensor_gemm.constants import own_constants
from neusight_onnx.tiling import (
    MATRIX_CORE_SMALL_TILES,
    MATRIX_CORE_WEIGHT_SPLITS,
    NARROWEST_CONVOLUTION,
    Tile,
    matrix_unit_candidates,
    matrix_unit_convolution_tiles,
    matrix_unit_weight_gradient_tiles,
)

TILE = ("tile_n", "tile_m", "tile_threads", "split_k")
IMAGE_TILE = tuple(f"image_{name}" for name in TILE)

_CHUNK = 128

TimesOf = Callable[..., dict[str, NDArray[np.float64]]]


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """The columns with the tiles fixed: those of the menu with the smallest time."""
    tiles, of_weight = matrix_unit_convolution_tiles(gpu), matrix_unit_weight_gradient_tiles(gpu)
    menu = matrix_unit_candidates(tiles)
    constants = own_constants(gpu, constants)
    tile = _choice(cols, gpu, constants, menu)
    first = _has_first_alone(cols, gpu)
    if np.any(first):
        few = matrix_unit_candidates(matrix_unit_convolution_tiles(gpu, first=True))
        tile = np.where(first, _choice(cols, gpu, constants, few), tile)
    narrow = _has_narrowest(cols, gpu) & ~first
    if np.any(narrow):
        more = matrix_unit_candidates((*tiles, NARROWEST_CONVOLUTION))
        tile = np.where(narrow, _choice(cols, gpu, constants, more), tile)
    if is_amd(gpu) and np.any(cols["weight"]):
        if has_own_splits(constants):
            filled = matrix_unit_candidates(tiles, splits=miopen_splits.ROUNDS)
            split = _choice(cols, gpu, constants, filled, of=assembled_times, splits=miopen_splits.filling)
        else:
            deep = matrix_unit_candidates(tiles, splits=MATRIX_CORE_WEIGHT_SPLITS)
            split = _choice(cols, gpu, constants, deep, of=assembled_times)
        tile = np.where(cols["weight"] > 0, split, tile)
    elif of_weight != tiles and np.any(cols["weight"]):
        tile = np.where(cols["weight"] > 0, _choice(cols, gpu, constants, matrix_unit_candidates(of_weight)), tile)
    found = {**cols, **dict(zip(TILE, tile, strict=True))}
    if is_amd(gpu):
        found |= _of_other_solvers(cols, gpu, constants)
    if not is_amd(gpu) and np.any(cols["packed_b"]):
        found = _with_packed(found, gpu, constants)
    if is_amd(gpu) or np.any(cols["as_it_lies"]):
        images = _choice(image_columns(cols, gpu), gpu, image_constants(gpu, constants), menu)
        found |= dict(zip(IMAGE_TILE, images, strict=True))
    else:
        found |= {name: found[of] for name, of in zip(IMAGE_TILE, TILE, strict=True)}
    return found


def _of_other_solvers(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Tiles of MIOpen's solvers beside assembled kernels of (n, *spatial, c), as columns: each has the best of its own.

    The best of assembled kernels can be a bad one for the others, which wait for other things: more of the same work,
    or of compute units, would then take longer. Gradients of weights: no kernel of implicit GEMM on lanes splits the
    reduction over positions, nor Winograd in one kernel; ``ConvHipImplicitGemmV4R4WrW`` takes 210 to 330 ns a position
    on MI100 and MI210 whether a block or two are on a compute unit or one on sixteen (find database).
    """
    tiles = matrix_unit_convolution_tiles(gpu)
    menu = matrix_unit_candidates(tiles)
    if has_own_splits(constants):
        unsplit = matrix_unit_candidates(tiles, splits=(1,))
        small = matrix_unit_candidates((*tiles, *MATRIX_CORE_SMALL_TILES), splits=(1,))
        hip = _choice(cols, gpu, constants, unsplit, of=hip_times, splits=miopen_splits.of_images)
        mlir = _choice(cols, gpu, constants, small, of=mlir_times, splits=miopen_splits.of_mlir)
        return dict(zip(HIP_TILE, hip, strict=True)) | dict(zip(MLIR_TILE, mlir, strict=True))
    deep = matrix_unit_candidates(tiles, splits=MATRIX_CORE_WEIGHT_SPLITS)
    whole = matrix_unit_candidates(tiles, splits=(1,))

    def best(times_of: TimesOf, of_weight: NDArray[np.float64], *, by_image: bool = False) -> NDArray[np.float64]:
        if not np.any(cols["weight"]):
            return _choice(cols, gpu, constants, menu, of=times_of)
        found = _choice(cols, gpu, constants, of_weight, of=times_of, by_image=by_image)
        if np.all(cols["weight"]):
            return found
        return np.where(cols["weight"] > 0, found, _choice(cols, gpu, constants, menu, of=times_of))

    chosen = {COMPILED_TILE: best(compiled_times, deep, by_image=True)}
    if np.any(reads_as_they_lie(cols, gpu)):
        chosen[LYING_TILE] = _choice(cols, gpu, constants, menu, of=lying_times)
    if "lanes_overhead" in constants and np.any(has_lanes(cols, gpu)):
        chosen[LANES_TILE] = best(lanes_times, whole)
        if np.any(cols["weight"]) and not has_matrix_cores(gpu):
            chosen[DYNAMIC_TILE] = best(dynamic_times, whole)
        chosen[WINOGRAD_TILE] = best(winograd_times, whole)
    if "passes_us" in constants and np.any(cols["passes"]):
        chosen[PASSES_TILE] = _choice(cols, gpu, constants, menu, of=passes_times)
    return {name: column for names, own in chosen.items() for name, column in zip(names, own, strict=True)}


_TURING = 7.5
_LATER = 8.0
"""Compute capability of Turing, and that from which all kernels are of the later kind."""


def _has_first_alone(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Which convolutions have only the kernels that NVIDIA's library had first for Volta's and Turing's matrix units:
    those measured with cuDNN 7, and those in 8 bits, for which cuDNN 9.10 has no others there."""
    found: NDArray[np.bool_] = _is_early(gpu) & ((cols["by_cudnn7"] > 0.0) | (cols["bytes"] < 2.0))
    return found


def _has_narrowest(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Which convolutions have a kernel in tiles of 16 channels that leaves less of a tile empty than 32 do."""
    if is_amd(gpu):
        return np.zeros(cols["n"].shape, dtype=np.bool_)
    names = ("fp16", "fp16_accumulate", *(("tf32",) if capability(gpu) >= _LATER else ()))
    in_format = np.isin(cols["pipe"], [matrix_units.PIPES.index(name) for name in names])
    is_forward = (cols["data"] == 0.0) & (cols["weight"] == 0.0) & (cols["groups"] == 1.0) & (cols["rank"] <= 2.0)
    found: NDArray[np.bool_] = in_format & is_forward & (np.mod(np.ceil(cols["n"] / NARROWEST_CONVOLUTION.n), 2.0) == 1)
    return found


def is_of_later_kernels(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Which convolutions run, on Volta's and Turing's matrix units, kernels that came after those that were measured
    there: the law stands alone for them, though the GPU was measured."""
    found: NDArray[np.bool_] = _is_early(gpu) & ~_has_first_alone(cols, gpu)
    return found


def _is_early(gpu: GpuSpec) -> bool:
    return gpu.compute_capability is not None and gpu.compute_capability < _LATER


def _serial(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether no kernel of NVIDIA's splits the reduction among blocks, for each convolution.

    Turing's first don't but for the weight's gradient, in 16 bits nor in 8: cuDNN's Volta kernels have forms for it
    (``volta_s884cudnn_fp16_256x64_ldg8_splitK_relu_*``, ``*_splitK_dgrad_*``), its first for Turing none
    (``turing_s1688cudnn_*``, ``turing_h1688cudnn_*``, ``turing_*_i8816cudnn_*``; cuDNN 9.1's library of compiled
    engines). T4's times with cuDNN 7.6 show it (DeepBench): an element of the reduction takes 26-28 ns, as a tile of
    128x128 does at the clock it holds, whether 4, 7, 13 or 16 tiles share the 40 SMs (784 x 128 x 20,800 in 549 us,
    where a V100 takes 102), and in INT8 512 channels of 3x3 taps over 7x7 positions 93 us, for one image as for two.
    From Ampere on kernels of all formats have forms that split
    (``sm80_xmma_fprop_implicit_gemm_*_execute_split_k_kernel``, of FP16, BF16, TF32 and INT8), and those that cuDNN 9
    has for Turing in FP16 as well (``sm75_xmma_{fprop,dgrad}_implicit_gemm_f16f16_*_execute_split_k_kernel``, of every
    size of tile). None of them was measured: they are taken to follow the law of Ampere's.
    """
    if not (gpu.compute_capability is not None and gpu.compute_capability >= _TURING):
        return np.zeros(cols["weight"].shape, dtype=np.bool_)
    found: NDArray[np.bool_] = _has_first_alone(cols, gpu) & (cols["weight"] == 0.0)
    return found


_PACKED_TILES = (Tile(n=PACKED_SIDE, m=PACKED_SIDE, threads=128),)


def _with_packed(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Columns with tiles, where groups are packed in tiles with the product that this makes of them if it is quicker.

    A tile loads all its channels of the input, of which each output meets its own group's.
    """
    packs = cols["packed_b"] > 0.0
    if (gpu.compute_capability or 0.0) < PACKED_INT8_SINCE:
        packs &= cols["bytes"] > 1.0
    b, k = np.where(packs, cols["packed_b"], cols["b"]), np.where(packs, cols["packed_depth"], cols["k"])
    n = np.where(packs, float(PACKED_SIDE), cols["n"])
    loaded = np.where(packs, PACKED_SIDE * cols["taps_met"] / k, 1.0)
    packed = {
        **cols,
        "b": b,
        "n": n,
        "k": k,
        "depth": cols["b"] * cols["n"] * cols["depth"] / (b * n),
        "a_bytes": cols["a_bytes"] * loaded,
        "loaded": loaded,
    }
    tile = _choice(packed, gpu, constants, matrix_unit_candidates(_PACKED_TILES))
    plain_us = joined_us(times(cols, gpu, constants, np.stack([cols[name] for name in TILE])), constants)
    packed_us = joined_us(times(packed, gpu, constants, tile), constants)
    taken = packs & (packed_us < plain_us)
    packed |= dict(zip(TILE, tile, strict=True))
    return {name: np.where(taken, packed[name], column) for name, column in cols.items()}


def _choice(
    cols: Columns,
    gpu: GpuSpec,
    constants: Constants,
    menu: NDArray[np.float64],
    *,
    of: TimesOf = times,
    by_image: bool = False,
    splits: Callable[[Columns, GpuSpec, NDArray[np.float64]], NDArray[np.float64]] | None = None,
) -> NDArray[np.float64]:
    """The best of ``menu``, shape (4, candidates), for each kernel: shape (4, kernels).

    ``of``: the times of the kernels that have such tiles. ``by_image``: they split the reduction between images only,
    as MIOpen's compiled gradients of weights do (``GemmKBlocks`` divides n, as remembered): of 9,370 that its
    ``V4R4Xdlops`` has in the find database 3 % are of one to three images, which a sixth of all are. ``splits``: the
    parts of the reduction that they have with each tile, in place of the menu's (:mod:`.miopen_splits`).
    """
    size = cols["m"].size
    chosen = np.empty((4, size))
    for start in range(0, size, _CHUNK):
        rows = slice(start, start + _CHUNK)
        part = {name: column[None, rows] for name, column in cols.items()}
        tile = menu[:, :, None]
        if splits is not None:
            tile = np.stack(np.broadcast_arrays(*tile[:3], splits(part, gpu, tile)))
        parts = of(part, gpu, constants, tile)
        costs = joined_us(parts, constants)
        if splits is None:
            crowded = parts["blocks"] > 4.0 * gpu.sm_count
            useless = (tile[3] > 1.0) & ((parts["kz"] < 64.0) | crowded | _serial(part, gpu))
            if by_image:
                useless |= tile[3] > cols["batch"][rows]
            costs = np.where(useless, np.inf, costs)
        best = np.argmin(costs, axis=0)
        chosen[:, rows] = np.broadcast_to(tile, (4, *costs.shape))[:, best, np.arange(best.size)]
    return chosen


def with_tiles(
    cols: Columns, gpu: GpuSpec, constants: Constants
) -> tuple[Columns, NDArray[np.float64], NDArray[np.float64]]:
    """Columns with tiles in them, and those of implicit GEMM and of an image's product, shape (4, kernels)."""
    if "tile_n" not in cols:
        cols = pin(cols, gpu, constants)
    return cols, np.stack([cols[name] for name in TILE]), np.stack([cols[name] for name in IMAGE_TILE])
