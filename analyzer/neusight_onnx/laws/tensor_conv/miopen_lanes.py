"""AMD, FP32: the kernels of MIOpen that multiply on vector lanes, which FP32 alone has beside those of matrix cores.

A GPU without matrix cores has no others, and for three axes none multiplies on matrix cores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import tensor_gemm
from neusight_onnx.laws.base import Columns, Constants
from neusight_onnx.laws.tensor_conv.implicit_gemm import joined_us, times
from neusight_onnx.laws.tensor_conv.winograd import OUTPUTS


def is_fp32(cols: Columns) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.equal(cols["pipe"], tensor_gemm.PIPES.index("fp32"))
    return found


def lanes_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Implicit GEMM in FP32 on vector lanes, in us: compiled kernels, whose channels and taps are one dimension.

    Infinite where there is none.
    """
    found = _on_lanes_us(cols, gpu, c, tile, overhead=c["lanes_overhead"], saving=np.ones_like(cols["k"]))
    return np.where((cols["rank"] > 2.0) & (cols["lanes_divide"] == 0.0), np.inf, found)


def winograd_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Winograd in FP32 on vector lanes, in us; infinite where there is none."""
    saving = cols["winograd_saving"]
    # images are padded to whole pieces
    padded = (np.ceil(cols["side"] / OUTPUTS) * OUTPUTS / cols["side"]) ** 2
    has = saving > 0.0
    found = _on_lanes_us(
        cols, gpu, c, tile, overhead=c["winograd_overhead"], saving=np.where(has, saving / padded, 1.0)
    )
    return np.where(has, found, np.inf)


def _on_lanes_us(
    cols: Columns,
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    *,
    overhead: float,
    saving: NDArray[np.float64],
) -> NDArray[np.float64]:
    along = cols["weight"] > 0
    merged = {
        **cols,
        "n": np.where(along, cols["n"] / cols["padded"], cols["n"]),
        "k": np.where(along, cols["k"], cols["k"] / cols["padded"]) / saving,
    }
    slower = overhead * tensor_gemm.peaks(gpu, cols["pipe"]) / gpu.peak_flops_per_s["fp32"]
    return joined_us(times(merged, gpu, {**c, "tap_channels": 0.0}, tile, slower=slower), c)
