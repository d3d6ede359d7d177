"""What fused attention reads from DRAM and what from L2."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention.columns import GIVEN_BYTES
from neusight_onnx.laws.attention.kernel_choice import unit_of
from neusight_onnx.laws.attention.rates import stream_fraction
from neusight_onnx.laws.bandwidth import has_partitioned_l2, l2_bytes_per_s
from neusight_onnx.laws.base import Column, Columns, Constants

L2_SHARPNESS = 8.0
"""How sharply DRAM takes over where what repetitions touch exceeds L2."""


class Dram(NamedTuple):
    """Share of the bytes that L2 has lost (``miss``), DRAM's ``bytes_per_s``, and the ``time_s`` of all bytes."""

    miss: Column
    bytes_per_s: float
    time_s: Column


def dram_of(cols: Columns, gpu: GpuSpec, c: Constants) -> Dram:
    """Queries, keys, values and output through DRAM; with mma, what L2 holds of keys and values from there."""
    keys, io, past = cols["seen_bytes"], cols["io_bytes"], cols["past_bytes"]
    # what is written to the cache is read from it
    given = np.maximum(cols["query_bytes"], GIVEN_BYTES)
    fresh = cols["cache_bytes"] * given / (given + cols["kv_bytes"])
    held = c["l2_fill"] * (c["l2_partitioned"] if has_partitioned_l2(gpu) else 1.0) * gpu.l2_bytes
    miss = 1.0 / (1.0 + ((keys + io + fresh) / held) ** -L2_SHARPNESS)
    unit = unit_of(cols, gpu)
    share = c["dram_efficiency"] * stream_fraction(gpu) if unit == "mma" else c["dram_reads"]
    rate = gpu.memory_bytes_per_s * share
    time_s = ((keys + io - past) * miss + past) / rate
    if unit == "mma":
        time_s = time_s + (keys - past) * (1.0 - miss) / (c["l2_stream_mma"] * l2_bytes_per_s(gpu))
    return Dram(miss, rate, time_s)
