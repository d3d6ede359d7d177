"""A convolution as plain products of images.

On AMD a product an image, with the taps gathered (im2col) or scattered (col2im) by a kernel of its own where the filter
has several: the only one that MIOpen has for three spatial axes. On NVIDIA, for a filter of one tap, a batch of
products of (k, c) by (c, positions) on tensors as they lie.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import capability, is_amd
from neusight_onnx.laws.base import Column, Columns, Constants
from neusight_onnx.laws.tensor_conv.implicit_gemm import joined_us, times
from neusight_onnx.laws.tensor_conv.transposes import NHWC_ALONE


def images_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> Column:
    """All images one after the other: their products, and the gathering of their taps; on NVIDIA the batch of products
    on tensors as they lie."""
    if not is_amd(gpu):
        allowed = cols["as_it_lies"] > (1.0 if capability(gpu) < NHWC_ALONE else 0.0)
        if not np.any(allowed):
            return np.full(cols["m"].shape, np.inf)
        return np.where(allowed, joined_us(image_times(cols, gpu, c, tile), c), np.inf)
    one = joined_us(image_times(cols, gpu, c, tile), image_constants(gpu, c))
    called, gather, moved = _around_us(cols, gpu, c)
    return called + cols["images"] * (one + gather + moved)


def _around_us(cols: Columns, gpu: GpuSpec, c: Constants) -> tuple[Column, Column, Column]:
    """On AMD, in us: the call, and of an image the launch that gathers its taps and what that one moves."""
    gathered = cols["gathered"]
    moved_us = 1e6 * 2.0 * gathered * cols["bytes"] / (c["gather_efficiency"] * gpu.memory_bytes_per_s)
    gather_us = np.where(gathered > 0, c["gather_us"] * launch_slowness(gpu), 0.0)
    called_us = np.where(cols["images"] > 1.0, c["series_us"], c["call_us"]) * launch_slowness(gpu)
    return called_us, gather_us, moved_us


def between_us(cols: Columns, gpu: GpuSpec, c: Constants) -> tuple[Column, Column]:
    """On AMD, in us: what all images take beside their products and one launch, and what their gathers move: the call
    and launches, during which nothing is near its limit, and bytes."""
    called_us, gather_us, moved_us = _around_us(cols, gpu, c)
    launches_us = (cols["images"] - 1.0) * c["image_us"] * launch_slowness(gpu)
    return called_us + launches_us + cols["images"] * gather_us, cols["images"] * moved_us


def image_times(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    return times(image_columns(cols, gpu), gpu, image_constants(gpu, c), tile)


def image_columns(cols: Columns, gpu: GpuSpec) -> dict[str, NDArray[np.float64]]:
    """As :func:`_image`; NVIDIA's batch shares the weights, which are read once."""
    found = _image(cols)
    if is_amd(gpu):
        return found
    return {**found, **{name: cols[name] for name in ("read_bytes", "write_bytes", "weight_bytes")}}


def image_constants(gpu: GpuSpec, c: Constants) -> dict[str, float]:
    """Constants of an image's product: a plain one."""
    plain = {**c, "index_overhead": 1.0}
    if not is_amd(gpu):
        return plain
    # products are assembled kernels, too; nothing of theirs is converted
    moves = c.get("assembled_operations", c["move_operations"])
    plain.pop("zero_us", None)
    return {
        **plain,
        "floor_us": c["image_us"] * launch_slowness(gpu),
        "split_us": c["image_split_us"],
        "move_operations": moves,
    }


def _image(cols: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """The product of one image, as the columns of implicit GEMM."""
    return plain_product(cols, cols["image_b"], cols["image_m"], cols["image_n"], cols["image_k"])


def plain_product(
    cols: Mapping[str, NDArray[np.float64]],
    b: NDArray[np.float64],
    m: NDArray[np.float64],
    n: NDArray[np.float64],
    k: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """``b`` products of (m, k) by (k, n) on elements of a convolution, as the columns of implicit GEMM."""
    element = cols["bytes"]
    zero = np.zeros_like(m)
    return {
        "b": b,
        "m": m,
        "n": n,
        "k": k,
        "a_bytes": element,
        "b_bytes": element,
        "bytes": element,
        "result_bytes": cols["result_bytes"],
        "pipe": cols["pipe"],
        "read_bytes": b * element * k * (m + n),
        "write_bytes": b * element * m * n,
        "depth": k,
        "taps_met": zero + 1.0,
        "data": zero,
        "weight": zero,
        "rank": zero + 2.0,
        "first_depth": zero,
        "loaded": zero + 1.0,
        "back_launches": zero + 1.0,
        "zeroed_bytes": zero,
        "weight_bytes": zero,
        "kept_in_l2": cols["kept_in_l2"],
        "burst": cols["burst"],
        "activity": cols["activity"],
        "by_cudnn7": cols["by_cudnn7"],
    }


def launch_slowness(gpu: GpuSpec) -> float:
    """Time of a launch on AMD against one at 1.7 GHz: command processors run at the GPU's clock.

    The smallest FP32 kernels take an MI100 16 us and an MI210 14, the ratio of their clocks (NeuSight's data).
    """
    return 1.7e9 / gpu.clock_hz
