"""Convolutions as columns: their implicit GEMM, bytes and sizes, and the products of Winograd's algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Conv, Kernel
from neusight_onnx.laws.base import Column, Columns
from neusight_onnx.laws.conv.constants import FUSED_SHAPES, FUSED_TILES, GRADIENT_LOG_SD, STAGED_IMAGES

_SHAPE_COLUMNS = tuple(f"fused_{a}{b}{c}" for a, b, c in FUSED_SHAPES)

_COLUMNS = (
    *("batch", "c", "k", "out", "groups", "taps", "b", "m", "n", "k_depth", "read_bytes", "write_bytes", "flops"),
    *("bytes", "winograd", *_SHAPE_COLUMNS, "staged_rows", "input_elements", "output_elements", "weight_elements"),
    *("macs", "side", "rank", "one_tap", "whole_image", "weight_gradient", "gradient_log_sd"),
)


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Conv kernels as columns: their implicit GEMM (b, m, n, k_depth), Winograd's blocks and rows, bytes and sizes."""
    rows = []
    for kernel in kernels:
        assert isinstance(kernel, Conv)
        groups, taps = kernel.groups, prod(kernel.filter)
        # the gradient of the input reads what the forward pass wrote, and writes what it read
        back = kernel.direction == "data"
        c, k = (kernel.k, kernel.c) if back else (kernel.c, kernel.k)
        source_grid, grid = (kernel.out, kernel.spatial) if back else (kernel.spatial, kernel.out)
        out, spatial = prod(grid), prod(source_grid)
        if kernel.direction != "forward":
            _, m, n, depth = kernel.implicit_gemm
        elif kernel.transposed:
            m, n, depth = kernel.n * spatial, k // groups * taps, c // groups
        else:
            # fewer than four channels are padded to four: loads are of 16 bytes
            m, n, depth = kernel.n * out, k // groups, max(c // groups, min(4, c)) * taps
        winograd = (
            kernel.filter == (3, 3)
            and kernel.strides == (1, 1)
            and kernel.dilations == (1, 1)
            and groups == 1
            and not kernel.transposed
            and kernel.direction != "weight"
            and not kernel.channels_last
        )
        fused, staged_rows = _winograd_sizes(kernel.n, grid) if winograd else ((1,) * len(FUSED_SHAPES), 1)
        rows.append(
            (
                kernel.n,
                c,
                k,
                out,
                groups,
                taps,
                groups,
                m,
                max(n, 1),
                max(depth, 1),
                kernel.read_bytes,
                kernel.write_bytes,
                kernel.flops,
                kernel.dtype.bits / 8,
                winograd,
                *fused,
                staged_rows,
                kernel.n * c * spatial,
                kernel.n * k * out,
                k * (c // groups) * taps,
                kernel.macs,
                grid[-1],
                len(grid),
                kernel.direction != "weight" and taps == 1,
                _covers(kernel),
                kernel.direction == "weight",
                GRADIENT_LOG_SD.get(kernel.direction, 0.0),
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


def _covers(kernel: Conv) -> bool:
    """Whether the filter covers the whole image (VGG's 7x7 over 7x7): an image as it lies is a row of a product.

    Nothing unfolds or overlaps, so that NVIDIA's are products of the library's menu and as deep as a linear layer's
    are, whose reductions it splits: cuDNN has an algorithm that multiplies the unfolded matrix (GEMM, by NVIDIA's API
    reference), and ONNX Runtime times all of them (``cudnn_conv_algo_search``, EXHAUSTIVE unasked). No such convolution
    was measured alone.
    """
    return (
        kernel.direction == "forward"
        and kernel.groups == 1
        and prod(kernel.out) == 1
        and kernel.filter == kernel.spatial
    )


def fused_shapes(gpu: GpuSpec) -> int:
    """How many of ``FUSED_SHAPES``, from the first on, the GPU's library has: what kernel names show.

    Pascal ran all six, Volta and Turing the first only, Ampere the first two (and its kernels run on later GPUs).
    AMD's fused kernels are others; they fit odd sizes as well as the best of the six.
    """
    capability = gpu.compute_capability
    if capability is None or capability < 7.0:
        return len(FUSED_SHAPES)
    return 1 if capability < 8.0 else 2


def fused_blocks(cols: Columns, gpu: GpuSpec) -> Column:
    """Spatial blocks of fused Winograd in the best of the shapes that the GPU's library has."""
    found: Column = np.minimum.reduce([cols[name] for name in _SHAPE_COLUMNS[: fused_shapes(gpu)]])
    return found


def _winograd_sizes(n: int, out: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Spatial blocks of fused Winograd in each shape, and rows of the products of Winograd in steps."""
    height, width = out
    images = ceil(n / STAGED_IMAGES) * STAGED_IMAGES
    return (
        tuple(ceil(n / a) * ceil(ceil(height / 2) / b) * ceil(ceil(width / 2) / c) for a, b, c in FUSED_SHAPES),
        images * ceil(height / 4) * ceil(width / 4),
    )


def direct_product(cols: Columns) -> dict[str, Column]:
    """Implicit GEMM as the columns of the gemm law.

    The input operand counts a filter tap's worth of bytes an element only once: neighbouring taps hit in cache. It is
    the left one, but the right one of the weight's gradient.
    """
    size, right = cols["bytes"], cols["weight_gradient"] > 0
    return {
        "b": cols["b"],
        "m": cols["m"],
        "n": cols["n"],
        "k": cols["k_depth"],
        "a_bytes": size / np.where(right, 1.0, cols["taps"]),
        "b_bytes": size / np.where(right, cols["taps"], 1.0),
        "out_bytes": size,
        "read_bytes": cols["read_bytes"],
        "write_bytes": cols["write_bytes"],
        "flops": cols["flops"],
        "bias": np.zeros_like(size),
    }


def fused_product(cols: Columns, blocks: Column) -> dict[str, Column]:
    """Fused Winograd as one product of 16 rows a tile: a block of 32 tiles and 32 channels is a tile of 512 x 32.

    A block of 4 x 8 tiles reads 10 x 18 inputs a channel and makes 16 of each 2x2 tile from them; filters come
    transformed, 16 for 9.
    """
    size = cols["bytes"]
    return {
        "b": np.ones_like(size),
        "m": blocks * FUSED_TILES * 16.0,
        "n": cols["k"],
        "k": cols["c"],
        "a_bytes": size * (10.0 * 18.0 / FUSED_TILES) / 16.0,
        "b_bytes": size * 16.0,
        "out_bytes": size,
        "read_bytes": cols["read_bytes"] + size * cols["weight_elements"] * (16.0 - 9.0) / 9.0,
        "write_bytes": cols["write_bytes"],
        "flops": cols["flops"],
        "bias": np.zeros_like(size),
    }


def staged_product(cols: Columns) -> dict[str, Column]:
    """The 36 products of Winograd in steps."""
    size, rows, c, k = cols["bytes"], cols["staged_rows"], cols["c"], cols["k"]
    return {
        "b": np.full_like(size, 36.0),
        "m": rows,
        "n": k,
        "k": c,
        "a_bytes": size,
        "b_bytes": size,
        "out_bytes": size,
        "read_bytes": 36.0 * size * (rows * c + c * k),
        "write_bytes": 36.0 * size * rows * k,
        "flops": 72.0 * rows * c * k,
        "bias": np.zeros_like(size),
    }
