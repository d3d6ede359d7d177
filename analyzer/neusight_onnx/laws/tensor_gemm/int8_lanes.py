"""INT8 products of few rows on vector lanes, whose threads share k."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.elementwise import integer_lanes_per_sm
from neusight_onnx.laws.matrix_units import PIPES

VECTOR_ROWS = 4.0
"""Rows up to which INT8 products are a kernel of vector lanes whose threads share k (TensorRT-LLM): 128 columns of
65,536 take an A100 20-28 us, with 16 rows 146."""
VECTOR_SHARE = 1.0 / 16.0
VECTOR_COLUMNS = 2.0
"""Columns of one of its blocks (as its source is remembered): 128 columns go to 64 SMs. As two tiles of 64 that the L2
feeds they would take an A100 58 us instead of the 14 that it takes (less what a lone run's events add)."""
VECTOR_BLOCK_CYCLES = 200.0
"""Of a block, however short: 65,536 columns of 128 take an A100 40 us and an L40S 23, 303 and 231 blocks an SM."""
DOT_PRODUCTS = 4.0
"""Multiply-adds of 8 bits a lane and clock (``dp4a``)."""

_INT8 = float(PIPES.index("int8"))


def on_lanes(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.bool_]:
    """Which products are this kernel."""
    found: NDArray[np.bool_] = (cols["pipe"] == _INT8) & (cols["m"] <= VECTOR_ROWS) & (not is_amd(gpu))
    return found


def rounds(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.float64]:
    """Blocks that the busiest SM works through."""
    blocks = cols["b"] * np.ceil(cols["n"] / VECTOR_COLUMNS)
    found: NDArray[np.float64] = np.ceil(blocks / float(gpu.sm_count))
    return found


def multiplied_s(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.float64]:
    """Time of the lanes' instructions at the boost clock, in s."""
    work = rounds(cols, gpu) * VECTOR_COLUMNS * cols["m"] * cols["k"]
    found: NDArray[np.float64] = work / (DOT_PRODUCTS * integer_lanes_per_sm(gpu) * gpu.clock_hz)
    return found


def latency_s(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, step_ns: float) -> NDArray[np.float64]:
    """Time of the blocks of an SM however little they multiply, in s; ``step_ns``: of a byte of k in a tile's block."""
    steps = cols["k"] * step_ns * 1e-9 * VECTOR_SHARE
    found: NDArray[np.float64] = steps + rounds(cols, gpu) * VECTOR_BLOCK_CYCLES / gpu.clock_hz
    return found


def fetched_bytes(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, kz: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Bytes that the busiest SM takes from L2; ``kz``: the k of a block."""
    row = kz * (VECTOR_COLUMNS * cols["b_bytes"] + cols["m"] * cols["a_bytes"])
    found: NDArray[np.float64] = rounds(cols, gpu) * row
    return found
