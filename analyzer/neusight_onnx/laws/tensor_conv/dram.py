"""The rate at which convolutions on matrix units stream their tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import tensor_gemm
from neusight_onnx.laws.bandwidth import is_amd, memory_family
from neusight_onnx.laws.base import Constants

_RESIDENT_FILL = 0.92
"""Share of L2 up to which tensors stay, as weights of products do on an L40S."""

_RESIDENT_SHARPNESS = 4.0
"""How sharply that ends as tensors outgrow L2: they leave it line by line, not all at once."""


def dram_rate(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants) -> NDArray[np.float64]:
    """Bytes/s from DRAM, or from L2 where the operands still lie there from the kernel (or repetition) before."""
    fill = (cols["read_bytes"] + cols["write_bytes"]) / gpu.l2_bytes
    resident = 1.0 / (1.0 + (fill / _RESIDENT_FILL) ** _RESIDENT_SHARPNESS)
    efficiency = memory_family(gpu).fraction if is_amd(gpu) else c["dram_efficiency"]
    rate = efficiency * tensor_gemm.stream_gain(gpu) * gpu.memory_bytes_per_s
    found: NDArray[np.float64] = rate * c["resident_gain"] ** resident
    return found
