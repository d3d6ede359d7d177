"""AMD: what MIOpen's kernels of implicit GEMM spend beside the product: instructions of vector lanes that fetch and
store, waits of their steps for loads, launches and zeros of a strided input's gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import matrix_units
from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.tensor_conv.dram import dram_rate, stream_rate


def lasting_steps(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, peak: NDArray[np.float64], k: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Elements of k that blocks go through one after the other, as many at once as on CDNA.

    Kernels take so much of k at once that its products hide its loads: faster matrix cores, deeper steps (tiles of CK
    and hipBLASLt are 64 deep for CDNA3 where CDNA's were 32, names of kernels as remembered).
    """
    found: NDArray[np.float64] = k / np.maximum(matrix_units.rate_over_cdna(gpu, peak, cols["bytes"]), 1.0)
    return found


def lane_issue_s(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    fetched: NDArray[np.float64],
    steps: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Time in s that MIOpen's kernels take to fetch and store by instructions of vector lanes, at the clock: elements
    that a compute unit fetches into tiles (``fetched``), those that are moved at all, and ``steps`` of k that blocks go
    through one after the other.

    Convolutions that multiply little move 820-890 GB/s on MI100 and on MI210, which have as many lanes times clock but
    1,229 and 1,638 GB/s of DRAM: it isn't memory that bounds them.
    """
    lanes = gpu.fp32_lanes_per_sm * gpu.clock_hz
    moved = (cols["read_bytes"] + cols["write_bytes"]) / cols["bytes"]
    elements_s = (fetched * c["fetch_operations"] + moved / gpu.sm_count * c["move_operations"]) / lanes
    found: NDArray[np.float64] = elements_s + step_waits_s(cols, c, steps)
    return found


def step_waits_s(
    cols: Mapping[str, NDArray[np.float64]], c: Constants, steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of that the time in s in which steps of k wait for their loads."""
    tap = np.where(cols["taps_met"] > 1.0, c["tap_step"] * c["data_step"] ** cols["data"], 1.0)
    found: NDArray[np.float64] = steps * cols["bytes"] * c["step_ns"] * tap * 1e-9
    return found


_ADDRESSES_PER_CLOCK = 4.0
"""Addresses that a compute unit's memory pipe takes a clock, so that a wave's load takes 16 clocks however few bytes a
lane asks for (texture units of GCN's white paper, as remembered); the constant beside it says how far that holds."""


def address_s(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    b_fetched: NDArray[np.float64],
    a_fetched: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Time in s of the addresses of loads, of elements of columns and rows that a compute unit fetches into tiles.

    A load brings as many elements as lie together and aligned (:func:`.columns._together`), up to 16 bytes.
    """
    addresses = b_fetched / cols["b_together"] + a_fetched / cols["a_together"]
    found: NDArray[np.float64] = addresses / (_ADDRESSES_PER_CLOCK * gpu.clock_hz)
    return found


def back_us(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants) -> NDArray[np.float64]:
    """What a gradient of a strided input has beside its product, in us: a launch for each place in the stride, whose
    taps are others; where the stride skips input, zeros that are written before by a kernel of its own, and lines of
    which the product writes a part."""
    zeroed = cols["zeroed_bytes"]
    zeros_us = np.where(zeroed > 0.0, c["step_us"] + 2e6 * zeroed / dram_rate(cols, gpu, c), 0.0)
    found: NDArray[np.float64] = (cols["back_launches"] - 1.0) * c["step_us"] + zeros_us
    return found


def sums_us(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, kernels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What kernels beside a gradient of weights move, in us: one of two writes zeros in FP32, the other reads sums and
    writes 16 bits; one alone writes zeros in 16 bits."""
    moved = np.where(kernels == 2.0, 4.0 + 4.0 + cols["bytes"], kernels * cols["bytes"])
    found: NDArray[np.float64] = 1e6 * moved * cols["weight_bytes"] / cols["bytes"] / stream_rate(gpu, c)
    return found
