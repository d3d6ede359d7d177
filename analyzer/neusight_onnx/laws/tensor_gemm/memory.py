"""What products read from DRAM, and what L2 keeps of their operands between two uses."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import GDDR6X, has_partitioned_l2, memory_family
from neusight_onnx.laws.matrix_units import PIPES

WEIGHT_COPIES = 5.0
"""The measured replays go round so many copies of the weights (study of the data): what they leave in L2 is reused.
The output is the same in every product, and so are the activations, but in SGLang's rows (``Gemm.rotated``)."""

RESIDENT_FILL, RESIDENT_SHARPNESS = 0.9, 24.0
"""Share of L2 up to which operands stay, and how sharply that ends: an L40S reads 16 MB of weights (five copies: 80 MB
of 96) at two to three times its DRAM rate, 20 MB at none; writes 80 MB of output at twice that rate, 96 MB at none."""

FILLING_PIPES = ("fp8", "fp4")
FILLED = 1.04
"""Pipes whose trained kernels (TensorRT-LLM's) go round as many copies of the weights as the L2 has room for, begun
ones counted and ``WEIGHT_COPIES`` at most, and the share of the L2 up to which these stay: in FP8 and in 16 bits an
L40S reads weights of 24, 32, 48 and 96 MiB (4, 3, 2 and 1 times 96) at 1.4-1.9 TB/s, of 25, 50 and 100 at 1.0, of
28-30, 36-42, 56-84 and 112 MiB at .7; of 16-18 (5 times) at 2.0, of 20 at 1.0, of 21 at .7."""

PARTITIONED_FILL = 0.75
"""Of that where L2 is two partitions that each serve half of the SMs (``has_partitioned_l2``): activations stream
faster than DRAM up to 26 MB of an A100's 40, 40 of an H100's 50, 95 of a B200's 126."""


def l2_bytes_held(gpu: GpuSpec) -> float:
    """Bytes of L2 up to which data that are used again and again stay there; half of them do at that size."""
    return RESIDENT_FILL * (PARTITIONED_FILL if has_partitioned_l2(gpu) else 1.0) * gpu.l2_bytes


_FILLING = np.array([name in FILLING_PIPES for name in PIPES])


def weight_copies(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether the measured replays of each product's format fill the L2 with copies of its weights, and how many."""
    filled: NDArray[np.bool_] = _FILLING[cols["pipe"].astype(np.int64)]
    fitting = np.ceil(gpu.l2_bytes / (cols["b"] * cols["n"] * cols["k"] * cols["b_bytes"]))
    return filled, np.where(filled, np.clip(fitting, 1.0, WEIGHT_COPIES), WEIGHT_COPIES)


def kept_share(bytes_: NDArray[np.float64], held: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Share of operands that are still in L2 when so many bytes pass between two uses; 0..1."""
    kept: NDArray[np.float64] = 1.0 / (1.0 + (bytes_ / held) ** RESIDENT_SHARPNESS)
    return kept


GDDR6X_GAIN = 1.07
"""DRAM rate of GDDR6X against the fitted share of the peak: products of few rows stream weights at .93-.94 of it on RTX
4090 and .87-.93 on RTX 3090, against .79-.89 on cards with HBM and .835 on L40S. GDDR7 is taken to be alike, as it is
for streaming kernels."""


def stream_gain(gpu: GpuSpec) -> float:
    """DRAM rate of the GPU's kind of memory against the fitted share of its peak."""
    return GDDR6X_GAIN if memory_family(gpu) is GDDR6X else 1.0
