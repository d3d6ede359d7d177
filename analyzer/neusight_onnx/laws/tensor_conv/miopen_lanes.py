"""AMD: the kernels of MIOpen that multiply on vector lanes, which FP32 alone has beside those of matrix cores.

A GPU without matrix cores has no others, in 16 bits either, and for three axes none multiplies FP32 on matrix cores.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import matrix_units
from neusight_onnx.laws.base import Columns, Constants
from neusight_onnx.laws.tensor_conv.implicit_gemm import joined_us, times
from neusight_onnx.laws.tensor_conv.solver_tiles import DYNAMIC_TILE, LANES_TILE, WINOGRAD_TILE, own_tile
from neusight_onnx.laws.tensor_conv.winograd import OUTPUTS

Times = dict[str, NDArray[np.float64]]


def is_fp32(cols: Columns) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.equal(cols["pipe"], matrix_units.PIPES.index("fp32"))
    return found


def has_lanes(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether kernels on vector lanes take a convolution: in FP32, and in any format on GCN, which has no other units.

    At FP32's rate there, too: float16's take .77-.87 of float32's time (:mod:`neusight_onnx.predictor.choice`).
    """
    return is_fp32(cols) | (gpu.warp_size == _GCN_WAVE and not has_matrix_cores(gpu))


def has_matrix_cores(gpu: GpuSpec) -> bool:
    """Whether an AMD GPU has CDNA's matrix cores, which take FP32 as well."""
    return gpu.fp32_matrix_flops_per_s is not None


_GCN_WAVE = 64


def lanes_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Implicit GEMM on vector lanes, in us: compiled kernels, whose channels and taps are one dimension, and GCN's
    assembled ones for the weight's gradient.

    Infinite where there is none.
    """
    found = joined_us(lanes_times(cols, gpu, c, own_tile(cols, LANES_TILE, tile)), c)
    if DYNAMIC_TILE[0] in cols:
        dynamic = joined_us(dynamic_times(cols, gpu, c, own_tile(cols, DYNAMIC_TILE, tile)), c)
        divides = np.mod(cols["batch"] * cols["out"], _DYNAMIC_POSITIONS) == 0.0
        found = np.where(divides & (cols["weight"] > 0), np.minimum(found, dynamic), found)
    pads_nothing = (cols["rank"] > 2.0) | (cols["weight"] > 0)
    return np.where(pads_nothing & (cols["lanes_divide"] == 0.0), np.inf, found)


_DYNAMIC_POSITIONS = 32.0
"""Positions of all images that MIOpen's assembled kernels on GCN's lanes divide
(``ConvAsmImplicitGemmV4R1DynamicWrw``): 479 of an MI50's 481 in the find database."""


def winograd_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Winograd on vector lanes, in us; infinite where there is none."""
    found = joined_us(winograd_times(cols, gpu, c, own_tile(cols, WINOGRAD_TILE, tile)), c)
    return np.where(cols["winograd_saving"] > 0.0, found, np.inf)


def lanes_times(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]
) -> Times:
    """Competing times in s of compiled kernels on vector lanes."""
    if "lanes_step_ns" in c:
        c = {**c, "step_ns": c["lanes_step_ns"], "tap_step": 1.0}
    return _on_lanes(cols, gpu, c, tile, overhead=c["lanes_overhead"], saving=np.ones_like(cols["k"]))


def dynamic_times(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]
) -> Times:
    """The same of assembled ones, ``ConvAsmImplicitGemmV4R1DynamicWrw``, which is for GCN alone (gfx900 and gfx906 in
    MIOpen's source, as remembered): overheads are those of kernels assembled for matrix cores."""
    return _on_lanes(cols, gpu, c, tile, overhead=1.0, saving=np.ones_like(cols["k"]))


def winograd_times(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]
) -> Times:
    """The same of Winograd's, did they take all."""
    saving = cols["winograd_saving"]
    # images are padded to whole pieces, of which the saving of weights knows
    padded = np.where(cols["weight"] > 0, 1.0, (np.ceil(cols["side"] / OUTPUTS) * OUTPUTS / cols["side"]) ** 2)
    saved = np.where(saving > 0.0, saving / padded, 1.0)
    return _on_lanes(cols, gpu, c, tile, overhead=c["winograd_overhead"], saving=saved)


def _on_lanes(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    *,
    overhead: float,
    saving: NDArray[np.float64],
) -> Times:
    along = cols["weight"] > 0
    merged = {
        **cols,
        "n": np.where(along, cols["n"] / cols["padded"], cols["n"]),
        "k": np.where(along, cols["k"], cols["k"] / cols["padded"]) / saving,
    }
    slower = overhead * matrix_units.peaks(gpu, cols["pipe"]) / gpu.peak_flops_per_s["fp32"]
    return times(merged, gpu, {**c, "tap_channels": 0.0}, tile, slower=slower)
