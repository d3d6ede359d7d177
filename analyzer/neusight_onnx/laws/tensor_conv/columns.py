"""Convolutions as columns: each kernel's implicit product, padded and as it is, its bytes, and what else a library's
choice of a kernel depends on: a first layer over images, groups that share a tile, one product an image, strides."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, gcd, prod

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Kernel
from neusight_onnx.laws import matrix_units
from neusight_onnx.laws.base import Column
from neusight_onnx.laws.tensor_conv.winograd import passes, winograd_saving

_COLUMNS = (
    *("b", "m", "n", "k", "depth", "a_bytes", "b_bytes", "bytes", "pipe", "read_bytes", "write_bytes", "flops"),
    *("taps", "stride", "dilation", "groups", "c_each", "k_each", "batch", "out", "side", "data", "weight"),
    *("taps_met", "padded", "image_m", "image_n", "image_k", "image_b", "images", "gathered", "as_it_lies"),
    *(
        "rank",
        "channels_last",
        "transposed_bytes",
        "ordered_bytes",
        "weight_bytes",
        "macs",
        "outputs",
        "kept_in_l2",
        "burst",
        "activity",
    ),
    *("first_depth", "back_launches", "zeroed_bytes", "divides", "loaded", "packed_b", "packed_depth"),
    *("winograd_saving", "lanes_divide", "a_together", "b_together", "result_bytes"),
    *("passes", "pass_pieces", "assembled_3x3", "by_cudnn7"),
)


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Conv kernels as columns: the implicit product, padded and as it is, bytes, and what describes the shape."""
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Conv)
        b, m, n, k = kernel.implicit_gemm
        element = kernel.dtype.bits / 8
        taps = prod(kernel.filter)
        direction = kernel.direction
        is_weight = direction == "weight"
        # the channels that a tap reduces over (of the weight's gradient those that stand beside taps in its columns)
        inner = (n if is_weight else k) / max(_taps_met(kernel, taps), 1.0)
        padded = _padded(max(round(inner), 1), element) / max(inner, 1e-9)
        source, weight, result = kernel.operand_bytes
        # a stride beyond the filter skips input, whose channels lie together
        met = prod(min(1.0, side / step) for side, step in zip(kernel.filter, kernel.strides, strict=True))
        untouched = 0.0 if direction == "data" or kernel.transposed else source * (1.0 - met)
        rows.append(
            (
                b,
                max(m, 1),
                max(n * (padded if is_weight else 1.0), 1.0),
                max(k * (1.0 if is_weight else padded), 1.0),
                max(k, 1),
                # neighbouring taps hit in cache: DRAM gives an element of the input once
                element if is_weight else element / taps,
                element / taps if is_weight else element,
                element,
                float(matrix_units.PIPES.index(matrix_units.pipe_of_product(kernel))),
                max(kernel.read_bytes - untouched, 1.0),
                kernel.write_bytes,
                max(kernel.flops, 1),
                taps,
                prod(kernel.strides),
                prod(kernel.dilations),
                kernel.groups,
                max(kernel.c // kernel.groups, 1),
                max(kernel.k // kernel.groups, 1),
                max(kernel.n, 1),
                max(prod(kernel.out), 1),
                max(kernel.out[-1], 1),
                _goes_back(kernel),
                is_weight,
                max(_taps_met(kernel, taps), 1.0),
                padded,
                *_image_product(kernel),
                _as_it_lies(kernel),
                len(kernel.out),
                kernel.channels_last,
                {"forward": source, "data": result, "weight": source + result}[direction],
                source + result,
                weight,
                kernel.macs,
                max((source if direction == "data" else weight if is_weight else result) / element, 1.0),
                kernel.kept_in_l2,
                kernel.burst,
                kernel.activity,
                _first_depth(kernel),
                float(prod(kernel.strides)) if _goes_back(kernel) and taps > 1 else 1.0,
                (result if kernel.transposed else source) if _goes_back(kernel) and met < 1.0 else 0.0,
                _divides(kernel),
                1.0,
                *_packed(kernel),
                winograd_saving(kernel),
                _lanes_divide(kernel),
                *_together(kernel),
                (kernel.output_dtype or kernel.dtype).bits / 8,
                *passes(kernel),
                _assembled_3x3(kernel),
                kernel.by_cudnn7,
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


_PIPE_PADDING = 16.0
"""Bytes of channels that a load and a matrix instruction take at once: channels are padded to a multiple of it."""


def _padded(channels: int, element_bytes: float) -> int:
    """Channels as the kernel multiplies them: whole loads of 16 bytes, or a quarter of one for an image's three."""
    whole = int(_PIPE_PADDING / element_bytes)
    few = max(whole // 2, 1)
    return few if channels <= few else ceil(channels / whole) * whole


FIRST_LAYER = 7.5
"""Compute capability from which cuDNN 9.1 has kernels for the first layer of a network over images,
``sm75_xmma_fprop_image_first_layer_*_hmma_k64c4r7s7_stride2x2_tile16x64x64`` and their like for sm80 and sm90: 16, 32
or 64 filters of 3x3 and 7x7 taps, stride 2, four channels (names of kernels, as profilers print them)."""
_FIRST_CHANNELS, _FIRST_FILTERS, _FIRST_SIDES = 4, 64, (3, 7)
_INSTRUCTION_DEPTH = 8
"""Depth of the instructions in those kernels (``tensor1688``: 16x8x8)."""


def _first_depth(kernel: Conv) -> float:
    """The reduction of such a kernel, which holds a patch of the image in shared memory: a filter's row is one run of
    its taps' channels, so that no tap begins anew. 0 where there is none.

    Of INT8 only 3x3 is named (``ampere_first_layer_filter3x3_imma_fwd``); that channels are padded to four, not to
    eight, holds for any (TensorRT's format kCHW4), and 7x7 is taken to be alike.
    """
    is_image = kernel.c <= _FIRST_CHANNELS and kernel.k <= _FIRST_FILTERS and kernel.groups == 1
    is_forward = kernel.direction == "forward" and not kernel.transposed and kernel.dtype.bits <= 16
    if not (is_image and is_forward and kernel.strides == (2, 2) and kernel.dilations == (1, 1)):
        return 0.0
    if kernel.filter not in [(side, side) for side in _FIRST_SIDES]:
        return 0.0
    rows, columns = kernel.filter
    return float(rows * ceil(columns * _FIRST_CHANNELS / _INSTRUCTION_DEPTH) * _INSTRUCTION_DEPTH)


PACKED_SIDE = 64
"""Channels in and out of the tiles, 64 x 64 x 64, in which cuDNN 9.1 packs groups. Its kernels
``sm{70,75,80}_xmma_{fprop,dgrad}_*`` for FP16, BF16 and TF32, which later GPUs run as well, have forms ``_g2_`` to
``_g16_``: 2 to 16 groups of 32 to 4 channels a tile."""
_PACKED_INSTRUCTION_DEPTH = 16
_PACKED_DEPTHS = {count: max(PACKED_SIDE // count, _PACKED_INSTRUCTION_DEPTH) for count in (2, 4, 8, 16)}
"""Groups in a tile -> depth that its instructions multiply of the 64 channels of a step. Blocks on the diagonal, of a
group's channels and at least of the 16 that m16n8k16 takes at once (PTX ISA, mma), so that groups of 8 and of 4
multiply zeros beside them."""
_PACKED_INT8 = (2,)
"""Groups in a tile of INT8, whose m16n8k32 takes a group's 32 channels at once: TensorRT's library has the form
``_g2_`` alone, for sm80 and on (``sm80_xmma_fprop_implicit_gemm_i8i8_i8i32_f32_*_tilesize64x64x64_*_g2_tensor16x8x32``,
TensorRT for RTX 1.7; its ``_g4_`` for sm90, in tiles twice as wide, shares as much)."""
PACKED_INT8_SINCE = 8.0
_PACKED_LEAST = 4


def _packed(kernel: Conv) -> tuple[float, float]:
    """Tiles' worth of groups where a library packs them, and the depth that a tile multiplies: zeros where it doesn't.

    A group fills its share of a tile at best; more channels than 32 have tiles of their own, fewer than 4 kernels on
    vector lanes.
    """
    _, _, n, k = kernel.implicit_gemm
    taps = max(_taps_met(kernel, prod(kernel.filter)), 1.0)
    width = max(n, k / taps)
    if kernel.groups == 1 or kernel.direction == "weight" or len(kernel.out) > 2 or width < _PACKED_LEAST:
        return 0.0, 0.0
    if kernel.dtype.bits < 16 and (kernel.dtype is not DataType.INT8 or kernel.direction != "forward"):
        return 0.0, 0.0
    counts = _PACKED_INT8 if kernel.dtype is DataType.INT8 else _PACKED_DEPTHS
    fitting = [count for count in counts if PACKED_SIDE // count >= width]
    if not fitting:
        return 0.0, 0.0
    count = max(fitting)
    return float(ceil(kernel.groups / count)), _PACKED_DEPTHS[count] * taps


def _image_product(kernel: Conv) -> tuple[float, ...]:
    """(m, n, k, b) of the product for one image, how many of them there are, and the taps' elements gathered for one.

    Where each tap is the input itself, forward and the gradient of the input are one product with a batch of images.
    """
    taps, groups = prod(kernel.filter), kernel.groups
    c, k, out = kernel.c // groups, kernel.k // groups, prod(kernel.out)
    direction = kernel.direction
    if kernel.transposed:
        c, k, out = k, c, prod(kernel.spatial)
    m, n, depth = (out, k, c * taps)
    if direction == "weight":
        m, n, depth = k, c * taps, out
    elif _goes_back(kernel):
        m, n, depth = out, c * taps, k
    plain = taps == 1 and prod(kernel.strides) == 1
    gathered = 0.0 if plain else float(groups * c * taps * out)
    batched = plain and direction != "weight"
    entries, images = (groups * kernel.n, 1) if batched else (groups, kernel.n)
    return float(max(m, 1)), float(max(n, 1)), float(max(depth, 1)), float(entries), float(images), gathered


def _as_it_lies(kernel: Conv) -> float:
    """Whether NVIDIA's library has a product of (k, c) by (c, positions) for it where it lies as (n, c, *spatial): 2
    where an image's positions are whole vectors of 16 bytes, 1 where they aren't, 0 if not at all.

    cuDNN 9.1 has an engine ``Conv1x1AsGemm`` for it (forward and the input's gradient), which calls the library of
    products; that takes any alignment on matrix units since cuBLAS 11. For Volta and Turing it has kernels besides,
    ``*_filter1x1_stg8_interior_nchw_nn_v1``, which load and store whole vectors.
    """
    plain = prod(kernel.filter) == 1 and prod(kernel.strides) == 1 and kernel.groups == 1
    if not plain or kernel.direction == "weight" or kernel.channels_last:
        return 0.0
    return 2.0 if prod(kernel.out) * kernel.dtype.bits % 128 == 0 else 1.0


def _goes_back(kernel: Conv) -> bool:
    """Whether it works from an output's grid to an input's: a gradient of the input, or forward if transposed."""
    return kernel.direction != "weight" and (kernel.direction == "data") != kernel.transposed


def _divides(kernel: Conv) -> bool:
    """Whether the kernel in HIP for an input's gradient takes it, which pads nothing (MIOpen's
    ``ConvHipImplicitGemmBwdDataV4R1Xdlops``): positions by 16, channels by 8.

    It is the only one of implicit GEMM for bfloat16 on an MI100, and none of the 1,521 convolutions there whose
    positions aren't a multiple of 16 has it, of others .7 (find database; channels below 8: none of 1,038).
    """
    positions = kernel.n * prod(kernel.spatial if kernel.transposed else kernel.out)
    return not (positions % 16 or kernel.c // kernel.groups % 8 or kernel.k // kernel.groups % 8)


def _together(kernel: Conv) -> tuple[float, float]:
    """Elements of rows and of columns of the product that one load of up to 16 bytes brings, tensors as they lie.

    Rows are positions of the input or of the output's gradient, of the weight's gradient its filters; columns are
    filters, the input's channels, or channels and taps. An input meets taps whose positions aren't aligned, and
    channels of a filter lie its taps apart. Over (n, *spatial, c) channels lie together everywhere.
    """
    taps = prod(kernel.filter)
    whole = max(128 // kernel.dtype.bits, 1)
    c, k = kernel.c // kernel.groups, kernel.k // kernel.groups
    if kernel.transposed:
        c, k = k, c
    back, weight = _goes_back(kernel), kernel.direction == "weight"
    if kernel.channels_last:
        rows, columns = k if back or weight else c, c
    else:
        plain = taps == 1 and prod(kernel.strides) == 1
        positions = prod(kernel.out)
        rows = positions if plain or weight else 1
        columns = (positions if plain else 1) if weight else (c if taps == 1 else 1) if back else c * taps
    return float(gcd(rows, whole)), float(gcd(columns, whole))


def _lanes_divide(kernel: Conv) -> bool:
    """Whether MIOpen's FP32 kernels on vector lanes take a convolution over three axes, which pad nothing
    (``ConvHipImplicitGemmV4R4Fwd``, ``BwdDataV1R1``, ``V4R4WrW``): rows and columns of the product by 32, its depth by
    4, no groups. Of 48,000 such in the find database none of those that don't divide has one, of others .17 to .49.
    Nor has any gradient of weights over two axes: all 610 on lanes divide, 5,400 of 8,000 of an MI50's do.
    """
    taps, positions = prod(kernel.filter), kernel.n * prod(kernel.out)
    c, k = kernel.c, kernel.k
    rows, columns, depth = {
        "forward": (k, positions, c * taps),
        "data": (c, positions, k),
        "weight": (k, c * taps, positions),
    }[kernel.direction]
    return kernel.groups == 1 and not (rows % 32 or columns % 32 or depth % 4)


def _assembled_3x3(kernel: Conv) -> bool:
    """Whether MIOpen's kernel for gradients of 3x3 weights that is assembled for lanes takes it (``ConvAsmBwdWrW3x3``):
    stride 1, an output as large as the input, and of groups those whose channels divide by 4. All 958 of the find
    database are such, none of the same GPUs' 61 depthwise ones.
    """
    c, k = kernel.c // kernel.groups, kernel.k // kernel.groups
    same = kernel.filter == (3, 3) and prod((*kernel.strides, *kernel.dilations)) == 1 and kernel.spatial == kernel.out
    return same and (kernel.groups == 1 or c % 4 == k % 4 == 0)


def _taps_met(kernel: Conv, taps: int) -> float:
    """Taps that a result meets: all of them, but of the gradient of a strided input its share."""
    if kernel.direction == "weight":
        return float(taps)
    if not _goes_back(kernel):
        return float(taps)
    channels = (kernel.c if kernel.transposed else kernel.k) // kernel.groups
    return kernel.implicit_gemm[3] / max(channels, 1)
