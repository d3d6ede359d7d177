"""Tensors that a library transposes around a convolution, since its kernels know another order of dimensions.

NVIDIA's kernels of implicit GEMM read (n, *spatial, c): what they read of tensors that lie as (n, c, *spatial) is
transposed before by kernels of the library's own, and since Ampere what they write as well, but forward in TF32. AMD's
library has kernels for both orders; these are for its assembled ones.
"""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import capability, is_amd
from neusight_onnx.laws.base import Column, Columns, Constants
from neusight_onnx.laws.tensor_conv.dram import dram_rate

NHWC_ALONE = 8.0
"""Compute capability from which cuDNN's 16-bit kernels of implicit GEMM know one order, ``*_nhwckrsc_nhwc_*``,
``*_nhwc_tn_v1`` and CUTLASS's ``*_nhwc_align8``. Below it they write the one that is asked for: ``*_nhwc2nchw_tn_v1``
are in its cubins for 7.5, in none for 8.0 and 8.6 (cuDNN 9.1, ``cuobjdump -symbols``), which have
``nhwcToNchwKernel``."""

WRITES_EITHER_BYTES = 4.0
"""Bytes of elements (TF32) whose forward kernels write either order from Ampere on. Names in cuDNN 9.10's library are
``sm80_xmma_fprop_implicit_gemm_tf32f32_*_nhwckrsc_nchw_*`` (30, and 29 for sm86) beside ``*_nhwckrsc_nhwc_*`` and
CUTLASS's ``*_tf32_*_nhwc_align4``. None of TF32 reads (n, c, *spatial) but three of weights' gradients: the
``*_nchwkcrs_nchw_*`` are those of FP32 that isn't rounded (``*_f32f32_f32f32_f32_*``)."""


def transposes_us(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """What a convolution reads beside weights into (n, *spatial, c) order, and what it writes back, where the library
    has to."""
    if is_amd(gpu):
        launches_us, issue_us, memory_us = miopen_transposes_us(cols, gpu, c)
        return launches_us + np.hypot(issue_us, memory_us)
    rate = dram_rate(cols, gpu, c) / c["dram_efficiency"] * c["transpose_efficiency"]
    both = 2.0 * c["step_us"] + 1e6 * 2.0 * cols["ordered_bytes"] / rate
    read = (1.0 + cols["weight"]) * c["step_us"] + 1e6 * 2.0 * cols["transposed_bytes"] / rate
    is_forward = (cols["data"] == 0) & (cols["weight"] == 0)
    writes_either = (capability(gpu) < NHWC_ALONE) | (is_forward & (cols["bytes"] == WRITES_EITHER_BYTES))
    return np.where(cols["channels_last"] > 0, 0.0, np.where(writes_either, read, both))


def miopen_transposes_us(cols: Columns, gpu: GpuSpec, c: Constants) -> tuple[Column, Column, Column]:
    """Of AMD's transposes the launches, the instructions and the bytes, in us; zeros over (n, *spatial, c)."""
    moved = 2.0 * (cols["ordered_bytes"] + cols["weight_bytes"])
    lanes = gpu.sm_count * gpu.fp32_lanes_per_sm * gpu.clock_hz
    issue_us = 1e6 * moved / cols["bytes"] * c["transpose_operations"] / lanes
    memory_us = 1e6 * moved / dram_rate(cols, gpu, c)
    lies = cols["channels_last"] == 0
    # the weight as well, by a launch of its own
    return np.where(lies, 3.0 * c["step_us"], 0.0), np.where(lies, issue_us, 0.0), np.where(lies, memory_us, 0.0)
