"""Features of the residual of fused attention: dimensionless, nothing that identifies a GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention.estimate import joined_us
from neusight_onnx.laws.attention.schedule import pin
from neusight_onnx.laws.attention.times import times
from neusight_onnx.laws.base import Columns, Constants, LawResult

FEATURES: tuple[str, ...] = (
    "log_memory_over_compute",
    "log_l2_over_compute",
    "log_latency_over_compute",
    "log_floor_over_time",
    "log_softmax_over_products",
    "log_blocks_per_sm",
    "wave_fraction",
    "log_heads_per_group",
    "log_rows",
    "log_split_k",
    "log_steps",
    "log_b",
    "log_g",
    "log_h",
    "log_s",
    "log_t",
    "head_dim",
    "head_dim_fill",
    "causal",
    "log_window_over_t",
    "log_keys_over_l2",
    "log_total_over_l2",
    "log_cache_share",
    "narrow_keys",
)


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features).

    Those of the kernel as it would be measured, which is what the residual was trained on: in bursts.
    """
    if "blocks" not in cols:
        cols = pin(cols, gpu, constants)
    parts = times({**cols, "burst": np.ones_like(cols["burst"])}, gpu, constants)
    latency_us = joined_us(parts, constants)
    compute = parts["compute"]
    per_sm = cols["blocks"] / gpu.sm_count
    total = cols["seen_bytes"] + cols["io_bytes"]
    values = (
        np.log(np.maximum(parts["memory"], 1e-9) / compute),
        np.log(parts["l2"] / compute),
        np.log(parts["latency"] / compute),
        np.log(1e6 * parts["floor"] / latency_us),
        np.log(parts["softmax"] / parts["products"]),
        np.log(per_sm),
        per_sm / np.ceil(per_sm),
        np.log(cols["h"] / cols["g"]),
        np.log(cols["rows"]),
        np.log(cols["split_k"]),
        np.log(cols["steps"]),
        np.log(cols["b"]),
        np.log(cols["g"]),
        np.log(cols["h"]),
        np.log(cols["s"]),
        np.log(cols["t"]),
        cols["d"],
        cols["d"] / (32.0 * np.ceil(cols["d"] / 32.0)),
        cols["causal"],
        np.log(cols["window"] / cols["t"]),
        np.log(cols["seen_bytes"] / gpu.l2_bytes),
        np.log(total / gpu.l2_bytes),
        np.log(1e-3 + cols["cache_bytes"] / total),
        cols["kv_bytes"] / cols["query_bytes"],
    )
    return np.stack(values, axis=1).astype(np.float32)
