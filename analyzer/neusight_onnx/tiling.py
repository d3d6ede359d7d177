"""Which output tiles a library has for a matrix product on an architecture, and what a tiling makes of a problem.

Letters: ``(b, m, k) @ (b, k, n) -> (b, m, n)``; a tile covers ``tile_n`` columns and ``tile_m`` rows of the output,
``split_k`` blocks share one tile's reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """An output tile and the threads of its block: ``n`` x ``m`` elements, each thread holds n m / threads."""

    n: int
    m: int
    threads: int


# Tiles as (n, m, threads): what the profiler saw in the training data (kernel names `*_sgemm_AxB_*` and their block
# sizes: a block of 128x64 has 128 threads of 8x8 elements, 32x128 and the "sliced" kernels 256 of 4x4). cuBLAS is
# column-major: the first number runs along n.
_T128X128 = Tile(n=128, m=128, threads=256)
_T128X64 = Tile(n=128, m=64, threads=128)
_T128X32 = Tile(n=128, m=32, threads=256)
_T64X64 = Tile(n=64, m=64, threads=64)
_T64X32 = Tile(n=64, m=32, threads=256)
_T32X128 = Tile(n=32, m=128, threads=256)
_T32X32 = Tile(n=32, m=32, threads=128)

# AMD's Tensile macro tiles (names `MTAxBxK`), four waves of 64 lanes a block; small tiles one wave a 16x16 of output
_MATRIX_CORE_TILES = tuple(
    Tile(n=n, m=m, threads=min(256, max(64, n * m // 16)))
    for n, m in (
        (128, 128),
        (128, 96),
        (96, 96),
        (64, 128),
        (128, 64),
        (64, 64),
        (64, 32),
        (32, 32),
        (64, 16),
        (16, 16),
    )
)

_SPLITS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_DEEP = (24, 32, 48, 64, 96, 144)
DEEP_SPLITS = (*_SPLITS, *_DEEP)
"""Splits of FP32 products' reductions: grids of linear layers of few tiles show up to 144 (14 x 34 x 35,909, A100)."""


# FP32 tiles of a batch in an engine, with the threads of their warps: TensorRT for RTX 1.7 names these sizes, and three
# larger, for sm70 and sm80 alike (`sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_*`)
_ENGINE_FP32 = tuple(
    Tile(n=n, m=m, threads=threads)
    for n, m, threads in (
        (128, 128, 128),
        (128, 64, 128),
        (64, 128, 128),
        (128, 32, 128),
        (32, 128, 64),
        (64, 64, 128),
        (64, 32, 64),
        (32, 64, 64),
        (32, 32, 64),
    )
)


def fp32_tiles(gpu: GpuSpec, *, batched: bool, fused_bias: bool, any_tile: bool = False) -> tuple[Tile, ...]:
    """FP32 tiles that the vendor's library chooses from: the batched product's menu is smaller than the plain one's.

    Keyed by compute capability. Ampere's menu stands for every later architecture: cuBLAS runs its Ampere FP32
    kernels on Ada and Hopper too. ``fused_bias``: a plain product that adds a bias is another library's (cuBLASLt
    instead of cuBLAS), which on Pascal has smaller tiles. ``any_tile``: a batch has those of an engine, too.

    From Ampere on cuBLAS has one tile for a batch, however small its products: all 18,869 of an A100's batches ran
    ``ampere_sgemm_128x128_nn`` (17 x 3 x 759 among them; those of up to 32 rows and columns that show more than a
    launch are predicted within 6 %).
    """
    capability = gpu.compute_capability
    if capability is None:
        return _MATRIX_CORE_TILES
    if batched:
        if capability < 7.0:
            return (_T128X64,)
        own = _ENGINE_FP32 if any_tile else ()
        if capability < 7.5:
            return (_T64X64, _T32X128, _T128X32, *own)
        if capability < 8.0:
            return (_T128X64, _T64X64, _T128X32, *own)
        return (_T128X128, *own)
    if capability < 7.0:
        return (_T32X128, _T64X64, _T128X32) if fused_bias else (_T128X128, _T128X64, _T32X32)
    if capability < 8.0:
        return (_T128X128, _T128X64, _T128X32, _T32X128, _T64X32, _T32X32)
    return (_T128X64, _T128X32, _T32X128, _T64X32, _T32X32)


def convolution_tiles(gpu: GpuSpec) -> tuple[Tile, ...]:
    """FP32 tiles of the implicit GEMM of convolutions (kernel names `*_scudnn_AxB_*`, one menu for all of NVIDIA).

    The first number of the name runs along output positions, the second along channels, as recorded grids show.
    """
    if gpu.vendor == "AMD":
        return _MATRIX_CORE_TILES
    return (_T128X128, Tile(n=64, m=128, threads=128), Tile(n=32, m=128, threads=64))


def strided_gradient_tiles(gpu: GpuSpec) -> tuple[Tile, ...]:
    """The same of strided gradients of the input: 64 channels at least (5x10 taps of 32 channels reach .17 of the peak
    on P100 and 1080 Ti, 5x5 ones of 64 .42-.44, of 256 .56-.61: DeepBench)."""
    return tuple(tile for tile in convolution_tiles(gpu) if tile.n >= 64)


def weight_gradient_tiles(gpu: GpuSpec, *, one_tap: bool) -> tuple[Tile, ...]:
    """FP32 tiles of a convolution's gradient of its weight: 128 input channels and taps by 32 to 128 output channels,
    turned round for ``one_tap`` (1x1).

    DeepBench's 5x10 taps of 32 channels for 32 reach .55-.62 of the peak on V100, P100 and 1080 Ti, so that 32 channels
    fill a tile; its 1x1 of 64 for 256 take .59-.70 of the time of 256 for 64 on V100, T4 and 1080 Ti (P100: 1.3 times).
    """
    sizes = ((128, 128), (128, 64), (128, 32))
    tiles = tuple(Tile(n=n, m=m, threads=n * m // 64) for n, m in sizes)
    return tuple(Tile(n=tile.m, m=tile.n, threads=tile.threads) for tile in tiles) if one_tap else tiles


def winograd_tiles(gpu: GpuSpec) -> tuple[Tile, ...]:
    """FP32 tiles of the products inside Winograd in steps (`*_sgemm_AxB_nn` with a grid of 36; A along positions)."""
    capability = gpu.compute_capability
    if capability is None:
        return _MATRIX_CORE_TILES
    if capability < 7.5:
        return (_T64X64, _T128X32, Tile(n=32, m=128, threads=256))
    if capability < 8.0:
        return (Tile(n=64, m=128, threads=128), _T64X64, Tile(n=32, m=128, threads=256))
    return (_T128X128,)


# Tiles as (n, m) of products on matrix units, from the names of cuBLAS's kernels (`*_s16816gemm_*_AxB_*` of Ampere,
# `nvjet_*_AxB_*` of Hopper and Blackwell) and of CUTLASS's; the weights' side is the first number. The edges that new
# instructions allow in steps of 8 are thinned to steps that change the number of waves
_MMA: tuple[tuple[int, int], ...] = (
    (256, 128),
    (128, 256),
    (128, 128),
    (256, 64),
    (64, 256),
    (128, 64),
    (64, 128),
    (64, 64),
    (128, 32),
    (64, 32),
    (64, 16),
)
_WGMMA = tuple((n, m) for n in (64, 128, 192, 256) for m in (16, 32, 64, 96, 128, 192, 256) if n * m <= 256 * 192)
_TCGEN05 = tuple((n, m) for n in (64, 128, 256) for m in (16, 32, 64, 96, 128, 192, 256))
_MATRIX_UNIT_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
DEEP_MATRIX_UNIT_SPLITS = (*_MATRIX_UNIT_SPLITS, *_DEEP)
"""Of products whose reduction is longer than any that was measured on matrix units, as FP32's are split."""
MATRIX_CORE_WEIGHT_SPLITS = (*_MATRIX_UNIT_SPLITS, 24, 32, 48, 64, 96, 128, 256)
"""Of MIOpen's FP32 gradients of weights, whose reductions over positions are split until compute units are busy
(``gemm_k_global_split``): with 16 parts at most, those of few weights come out a third too slow (find database)."""
MATRIX_CORE_SMALL_TILES = tuple(
    Tile(n=n, m=m, threads=128)
    for n, m in ((16, 16), (16, 32), (32, 16), (16, 64), (64, 16), (16, 128), (128, 16), (32, 32))
)
"""Tiles that MLIR's kernels for matrix cores have beside those of convolutions: sides begin at the 16 of an instruction
(rocMLIR, as remembered)."""


# the same of AMD's matrix cores: macro tiles of hipBLASLt (`MTAxBxK`) and block tiles of composable_kernel's products,
# as their sources are remembered; four waves of 64 lanes a block. 8192 x 8192 are 3.4 tiles of 256x256 for each of an
# MI300X's compute units and 3.9 of 256x224: sides in steps of 32 fill the last round
_MATRIX_CORE_PRODUCTS = (
    (256, 256),
    *((256, side) for side in (224, 192, 160, 96)),
    *((side, 256) for side in (224, 192, 160, 96)),
    (256, 128),
    (128, 256),
    (128, 128),
    (256, 64),
    (128, 64),
    (64, 128),
    (64, 64),
    (256, 32),
    (128, 32),
    (64, 32),
    (32, 64),
    (32, 32),
    (256, 16),
    (128, 16),
    (64, 16),
    (16, 16),
)


def matrix_unit_tiles(gpu: GpuSpec) -> tuple[Tile, ...]:
    """Tiles of products on matrix units, by instruction: mma (before Hopper, and GeForce after), WGMMA, tcgen05.

    AMD's matrix cores have a menu of their own.
    """
    if gpu.vendor == "AMD":
        return tuple(Tile(n=n, m=m, threads=256) for n, m in _MATRIX_CORE_PRODUCTS)
    sizes = {"mma": _MMA, "wgmma": _WGMMA, "tcgen05": _TCGEN05}[instructions(gpu)]
    return tuple(Tile(n=n, m=m, threads=256 if n * m >= 128 * 128 else 128) for n, m in sizes)


_SMALL_MMA = (Tile(n=32, m=32, threads=128), Tile(n=16, m=16, threads=32))


def small_matrix_unit_tiles(gpu: GpuSpec) -> tuple[Tile, ...]:
    """Tiles in 16 bits that NVIDIA's library has beside :func:`matrix_unit_tiles`. The law takes them where nothing was
    measured: its constants were fitted to products of 32 columns and more, none in a batch, in the larger ones.

    They are those below 64x64 in the names of cuBLASLt 12.8: ``sm80_xmma_gemm_f16f16_*_tilesize32x32x64_*`` and
    ``cutlass_{70,75,80}_wmma_tensorop_*_s161616gemm_*_{16x16,32x32}_*`` (FP16; bfloat16 from Ampere on). None is
    oblong, and formats of 8 bits have none. Hopper's own begin at 64x64 (``sm90_xmma_*``); as it runs Ampere's FP32
    kernels (:func:`fp32_tiles`), it and what followed are taken to run these.
    """
    return _SMALL_MMA if gpu.vendor == "NVIDIA" else ()


# the same of convolutions, (channels, positions): cuDNN 7's kernels of Volta and Turing are of three sizes
# (`volta_fp16_s884cudnn_fp16_256x64_ldg8_*`, 256x128, 128x128, positions first), as are those in INT8 to this day
# (`turing_int8_i8816cudnn_int8_*`). Later ones have smaller and narrower tiles (CUTLASS's;
# `sm80_xmma_fprop_implicit_gemm_*_tilesize64x64x64`), and cuDNN 9 the same for older GPUs in FP16: so many sizes are in
# the names of `sm75_xmma_{fprop,dgrad}_implicit_gemm_f16f16_*` in 9.10's library of compiled engines, the first eight
# in those for sm70, too, or in `volta_*`
_FEW_CONVOLUTIONS = ((128, 256), (64, 256), (128, 128))
_VOLTA_CONVOLUTIONS = (*_FEW_CONVOLUTIONS, (128, 64), (64, 128), (64, 64), (32, 128), (32, 64))
_TURING_CONVOLUTIONS = (*_VOLTA_CONVOLUTIONS, (256, 128), (256, 64), (32, 256))
# Gradients of weights, (taps of input channels, output channels): a T4's times rise with what a tile of 256 x 128
# leaves empty (32 or 64 output channels take 4-8 times a V100's, 128 and more 2-3 times), a V100's with that of 64 x 64
_TURING_WEIGHT = ((256, 128),)
_VOLTA_WEIGHT = (*_FEW_CONVOLUTIONS, (128, 64), (64, 64))
_NARROW = ((32, 256), (32, 128), (32, 64))
NARROWEST_CONVOLUTION = Tile(n=16, m=128, threads=128)
"""The tile of `sm{70,75,80}_xmma_fprop_implicit_gemm_indexed_wo_smem_*_tilesize128x16x64_*_g1_*` in cuDNN 9.10's
library of compiled engines: forward alone, one group, in FP16 and from Ampere on in TF32, its operands from L2 without
shared memory. None of it was measured."""


def matrix_unit_convolution_tiles(gpu: GpuSpec, *, first: bool = False) -> tuple[Tile, ...]:
    """Tiles of convolutions on matrix units: those of products with 32 positions or more, and some for few channels.

    AMD's convolutions, whose kernels are MIOpen's own, have the menu of mma. ``first``: of the kernels that NVIDIA's
    library had first for Volta and Turing; it makes no difference on others.
    """
    capability = gpu.compute_capability
    products = _MMA if gpu.vendor == "AMD" else [(tile.n, tile.m) for tile in matrix_unit_tiles(gpu)]
    sizes = [(n, m) for n, m in products if m >= 32]
    sizes += _NARROW
    if capability is not None and capability < 8.0:
        today = _VOLTA_CONVOLUTIONS if capability < 7.5 else _TURING_CONVOLUTIONS
        sizes = list(_FEW_CONVOLUTIONS if first else today)
    return tuple(Tile(n=n, m=m, threads=256 if n * m >= 128 * 128 else 128) for n, m in sizes)


def matrix_unit_weight_gradient_tiles(gpu: GpuSpec) -> tuple[Tile, ...]:
    """Tiles of a convolution's gradient of its weight on matrix units."""
    capability = gpu.compute_capability
    if capability is None or capability >= 8.0:
        return matrix_unit_convolution_tiles(gpu)
    sizes = _VOLTA_WEIGHT if capability < 7.5 else _TURING_WEIGHT
    return tuple(Tile(n=n, m=m, threads=256 if n * m >= 128 * 128 else 128) for n, m in sizes)


@cache
def matrix_unit_candidates(
    tiles: tuple[Tile, ...], *, splits: tuple[int, ...] = _MATRIX_UNIT_SPLITS
) -> NDArray[np.float64]:
    """All (n, m, threads, split_k) of a menu of matrix-unit tiles, shape (4, candidates)."""
    return np.array([(t.n, t.m, t.threads, z) for t in tiles for z in splits], dtype=np.float64).T


@cache
def candidates(tiles: tuple[Tile, ...], *, split: bool, splits: tuple[int, ...] = _SPLITS) -> NDArray[np.float64]:
    """All (n, m, threads, split_k) of a menu, shape (4, candidates): with ``split`` every tile in all of ``splits``."""
    found = splits if split else (1,)
    return np.array([(tile.n, tile.m, tile.threads, z) for tile in tiles for z in found], dtype=np.float64).T
