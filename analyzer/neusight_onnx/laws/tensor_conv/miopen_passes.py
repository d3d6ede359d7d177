"""AMD: gradients of weights by Winograd in several passes: transforms, products, and the transform back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Columns, Constants
from neusight_onnx.laws.tensor_conv.dram import dram_rate
from neusight_onnx.laws.tensor_conv.image_products import image_constants, plain_product
from neusight_onnx.laws.tensor_conv.implicit_gemm import joined_us, times
from neusight_onnx.laws.tensor_conv.solver_tiles import PASSES_TILE, own_tile


def passes_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Winograd in several passes, in us; infinite where there is none.

    Input and result are transformed by a kernel each, on lanes; the library of products multiplies them, on matrix
    cores where there are any; a kernel transforms the weights back (``ConvWinograd3x3MultipassWrW``, as remembered).
    So its largest run, by direct FLOPs, at 1.5 times the lanes' peak on an MI50 and at 2.0 and 1.7 on MI100 and MI210.
    """
    pieces, products = cols["pass_pieces"], cols["passes"]
    c_each, k_each = cols["c_each"], cols["k_each"]
    transformed = products * (pieces * (c_each + k_each) + c_each * k_each)
    moved = transformed + (cols["read_bytes"] + cols["write_bytes"]) / cols["bytes"]
    lanes = gpu.sm_count * gpu.fp32_lanes_per_sm * gpu.clock_hz
    moved_s = np.hypot(moved * c["pass_operations"] / lanes, moved * cols["bytes"] / dram_rate(cols, gpu, c))
    multiplied = joined_us(passes_times(cols, gpu, c, own_tile(cols, PASSES_TILE, tile)), image_constants(gpu, c))
    return np.where(products > 0.0, c["passes_us"] + 1e6 * moved_s + multiplied, np.inf)


def passes_times(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Competing times in s of its products."""
    b, k = np.maximum(cols["passes"], 1.0), np.maximum(cols["pass_pieces"], 1.0)
    product = plain_product(cols, b, cols["k_each"], cols["c_each"], k)
    return times(product, gpu, image_constants(gpu, c), tile)
