"""Direct convolution on vector lanes: a thread for each output element, or for eight channels of it.

For depthwise convolutions and their like, whose reduction is too short for a matrix unit. Integer arithmetic for
addresses bounds it, the issue of instructions where a thread has several channels, or DRAM.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import capability, is_amd
from neusight_onnx.laws.base import Column, Columns, Constants
from neusight_onnx.laws.elementwise import integer_lanes_per_sm
from neusight_onnx.laws.issue import ISSUE_LANES
from neusight_onnx.laws.tensor_conv.dram import dram_rate
from neusight_onnx.laws.tensor_conv.miopen_lanes import has_matrix_cores
from neusight_onnx.laws.tensor_conv.miopen_solvers import has_first_bf16, has_no_product, lacks_half

SHORT_REDUCTION = 64.0
"""Channels of input times output of a group from which on no library has a kernel on vector lanes."""

THREAD_CHANNELS = 8.0
CHANNEL_OPERATIONS = 4.0
"""Channels of a depthwise convolution over (n, h, w, c) that a thread computes, and instructions that each takes a
tap: its weight is loaded and widened, its input widened, multiplied and added. The place of the result, and of each
tap its bounds, its address and one load of 16 bytes, are the thread's: eight halves are the widest load (CUDA C++
Programming Guide, device memory accesses), and what NVIDIA's open kernels take at once (CUTLASS, 128 bits over those of
an element). The 8 bits of an engine, packed by 4 or 32 channels (``kCHW4``, ``kCHW32`` of its formats), are taken to be
no worse.

None of the four is one of the integer lanes'. Widening is 16-bit arithmetic (HADD2.F32: 64 lanes an SM and clock at
least, CUDA C++ Programming Guide, throughput of native arithmetic instructions), the multiply-add is the FP32 lanes'
(FFMA), as in PyTorch's ``conv_depthwise2d_forward_kernel``, whose machine code for compute capability 7.5 to 9.0 has
for a tap 2 loads, 2 widenings, 1 multiply-add and 5.6 integer instructions (PyTorch 2.9, windows of 5x5 less those of
3x3). So the issue of instructions binds the thread of several channels, 4.75 / 128 of a clock a tap and channel, before
the widenings do, 2 / 64, and the integer lanes, 0.75 / 64. The thread of one element has more integer instructions than
lanes for them: 5.6 / 64 a tap beside 10.6 / 128 to be issued."""


def by_channels(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Depthwise convolutions whose threads have several channels: forward, in 16 and 8 bits as whole vectors lie."""
    if is_amd(gpu):
        return np.zeros(cols["groups"].shape, dtype=np.bool_)
    depthwise = (cols["groups"] > 1) & (cols["c_each"] == 1) & (cols["k_each"] == 1) & (cols["weight"] == 0)
    found: NDArray[np.bool_] = (
        depthwise & (cols["channels_last"] > 0) & (cols["bytes"] <= 2) & (np.mod(cols["groups"], THREAD_CHANNELS) == 0)
    )
    return found


def element_us(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """A kernel per output element, or one per eight channels of it: its instructions, or DRAM."""
    traffic = (cols["read_bytes"] + cols["write_bytes"]) / dram_rate(cols, gpu, c)
    wide = by_channels(cols, gpu)
    shared = np.where(wide, THREAD_CHANNELS, 1.0)
    integer = integer_lanes_per_sm(gpu)
    issue = ISSUE_LANES if capability(gpu) >= 7.0 else integer
    of_tap = c["tap_operations"] / shared + np.where(wide, CHANNEL_OPERATIONS, 0.0)
    if is_amd(gpu):
        of_tap = of_tap * np.where(cols["weight"] > 0, c["weight_taps"], 1.0)
    instructions = cols["macs"] * of_tap + cols["outputs"] * c["element_operations"] / shared
    if is_amd(gpu):
        # what bounds the other kernels there: 55-85 operations an element moved, whatever the stride
        instructions = instructions + (cols["read_bytes"] + cols["write_bytes"]) / cols["bytes"] * c["move_operations"]
    work = instructions / np.where(wide, issue, integer) / (gpu.sm_count * gpu.clock_hz)
    norm = c["norm"]
    serial = _serial_s(cols, c) if is_amd(gpu) else np.zeros_like(work)
    joined = c["floor_us"] + 1e6 * (traffic**norm + work**norm + serial**norm) ** (1.0 / norm)
    few = (cols["groups"] > 1) & (cols["c_each"] * cols["k_each"] < SHORT_REDUCTION)
    if is_amd(gpu):
        few = (few | has_no_product(cols, gpu)) & (cols["rank"] <= 2)
    found = np.where(few, joined, np.inf)
    return np.minimum(found, _assembled_weight_us(cols, gpu, c)) if "position_ns" in c else found


def _assembled_weight_us(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """AMD's gradient of 1x1 weights on vector lanes over tensors as they lie, in us; infinite where it isn't taken.

    MIOpen's ``ConvAsmBwdWrW1x1``, which has 1,431 of an MI100's gradients in bfloat16 and 779 in float16, most of few
    images, and half of an MI50's in FP32: nothing is transposed before it nor converted after. A stride reads lines of
    which it takes a part. In FP32 ``ConvAsmBwdWrW3x3`` does the same for 3x3 weights (591 rows of an MI50 and 367 of an
    MI100 in the find database, none of an MI210).
    """
    overhead = np.where(cols["taps"] > 1.0, c.get("square_overhead", 1.0), c["direct_overhead"])
    lanes_s = overhead * cols["macs"] / (gpu.sm_count * gpu.fp32_lanes_per_sm * gpu.clock_hz)
    steps_s = 1e-9 * c["position_ns"] * cols["batch"] * cols["out"] * cols["stride"]
    norm = c.get("direct_norm", c["norm"])
    joined: Column = c["floor_us"] + 1e6 * (lanes_s**norm + steps_s**norm) ** (1.0 / norm)
    taken = (cols["taps"] == 1.0) & (cols["groups"] == 1.0)
    if "square_overhead" in c and (not has_matrix_cores(gpu) or has_first_bf16(gpu)):
        taken = taken | (cols["assembled_3x3"] > 0)
    has = (cols["weight"] > 0) & taken & (cols["rank"] <= 2.0)
    has = has & (cols["channels_last"] == 0.0) & ~lacks_half(cols, gpu)
    return np.where(has, joined, np.inf)


def _serial_s(cols: Columns, c: Constants) -> Column:
    """Time in s that a thread of AMD's takes for its channels and rows of the filter, one after the other, in 16 bits.

    None for the weight's gradient, whose sums many threads share.
    """
    # one axis is a row
    rows = np.where(cols["rank"] > 1.0, cols["taps_met"] ** (1.0 / cols["rank"]), 1.0)
    steps = cols["macs"] / cols["outputs"] / cols["taps_met"] * rows
    found: Column = np.where(cols["weight"] > 0, 0.0, 1e-9 * c.get("serial_ns", 0.0) * steps)
    return found
