"""The kernels before a product that convert its left operand to the type that is multiplied."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.tensor_gemm.memory import kept_share, l2_bytes_held, weight_copies

GREATEST_US = 7.0
GREATEST_PASSES: Mapping[str, float] = {"HBM": 2.6, "GDDR": 1.2}
"""The kernel that looks for the greatest value of a tensor, before another scales by it: TensorRT-LLM's, measured
alone (quantize.parquet). The smallest take 6-7 us on H100 and L40S, 7-8.5 on B200; beyond the L2 it reads at .38 of the
DRAM's peak on H100, .36-.41 on B200 and .84 on L40S."""


def convert_s(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, l2_bytes_per_s: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Time of the conversion, and of the search for the greatest value where a tensor has one scale, in s."""
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    converted = cols["converted_bytes"]
    moved = b * m * k * (converted + cols["a_bytes"])
    _, copies = weight_copies(cols, gpu)
    between = cols["rotated"] * (copies - 1.0) * (cols["b_bytes"] * b * k * n + b * m * k * converted)
    near = kept_share(moved + between, l2_bytes_held(gpu))
    near_s, far_s = near / np.maximum(gpu.memory_bytes_per_s, l2_bytes_per_s), (1.0 - near) / gpu.memory_bytes_per_s
    convert = c["convert_us"] * 1e-6 + c["convert_passes"] * moved * (near_s + far_s)
    passes = GREATEST_PASSES["HBM" if gpu.memory_type.upper().startswith("HBM") else "GDDR"]
    search = GREATEST_US * 1e-6 + b * m * k * converted * (near_s + passes * far_s)
    found: NDArray[np.float64] = np.where(converted > 0, convert, 0.0)
    return found + np.where(cols["tensor_scale"] > 0, search, 0.0)
