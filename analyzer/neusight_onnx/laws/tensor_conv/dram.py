"""The rate at which convolutions on matrix units stream their tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import is_amd, memory_family
from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.tensor_gemm.memory import stream_gain

_RESIDENT_FILL = 0.92
"""Share of L2 up to which tensors stay, as weights of products do on an L40S."""

_RESIDENT_SHARPNESS = 4.0
"""How sharply that ends as tensors outgrow L2: they leave it line by line, not all at once."""


def dram_rate(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants) -> NDArray[np.float64]:
    """Bytes/s from DRAM, or from L2 where the operands still lie there from the kernel (or repetition) before."""
    fill = (cols["read_bytes"] + cols["write_bytes"]) / gpu.l2_bytes
    resident = 1.0 / (1.0 + (fill / _RESIDENT_FILL) ** _RESIDENT_SHARPNESS)
    found: NDArray[np.float64] = stream_rate(gpu, c) * c["resident_gain"] ** resident
    return found


def stream_rate(gpu: GpuSpec, c: Constants) -> float:
    """Bytes/s of what comes from DRAM."""
    efficiency = memory_family(gpu).fraction if is_amd(gpu) else c["dram_efficiency"]
    return efficiency * stream_gain(gpu) * gpu.memory_bytes_per_s


def cold_bytes(cols: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Bytes of filters that come from DRAM whatever L2 could hold.

    In a model the other layers' filters have been there since, as with the weights of products (``Gemm.repeated``), so
    that L2 holds of them what it holds of all; what is repeated to be measured, a burst, finds its own. A gradient of
    the filters writes them.
    """
    lost = (1.0 - cols["burst"]) * (1.0 - cols["kept_in_l2"])
    found: NDArray[np.float64] = cols["weight_bytes"] * (1.0 - cols["weight"]) * lost
    return found
