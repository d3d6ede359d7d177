"""Features of the residual: dimensionless, nothing that identifies a GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Columns, Constants, LawResult
from neusight_onnx.laws.conv.algorithms import FUSED_OCCUPANCY, algorithm_times, pin
from neusight_onnx.laws.conv.columns import fused_blocks
from neusight_onnx.laws.conv.constants import FUSED_TILES, STAGED_IMAGES
from neusight_onnx.laws.gemm.machine import machine

FEATURES: tuple[str, ...] = (
    "log_memory_over_direct",
    "log_fused_over_direct",
    "log_staged_over_direct",
    "log_element_over_direct",
    "log_transforms_over_staged",
    "log_compute_over_direct",
    "log_l2_over_direct",
    "log_floor_over_time",
    "log_tile_n",
    "log_tile_m",
    "log_blocks_per_sm",
    "wave_fraction",
    "n_fill",
    "m_fill",
    "log_fused_blocks_per_sm",
    "fused_wave_fraction",
    "fused_fill",
    "log_staged_blocks_per_sm",
    "staged_wave_fraction",
    "staged_fill",
    "batch_fill",
    "log_c",
    "log_k",
    "log_batch",
    "log_out",
    "log_rows",
    "log_depth",
    "c_mod_4",
    "k_mod_4",
    "out_mod_2",
    "out_mod_4",
    "log_total_over_l2",
    "log_staged_over_l2",
    "log_intensity_over_ridge",
    "log_time_ms",
)


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features)."""
    if "direct_n" not in cols:
        cols = pin(cols, gpu, constants)
    unit = machine(gpu)
    times = algorithm_times(cols, gpu, constants)
    direct, fused, staged = times.direct, times.fused, times.staged
    base, fused_us, staged_us, element_us = times.all_us
    per_sm = direct["blocks"] / unit.sm_count
    fused_per_sm = fused["blocks"] / (unit.sm_count * FUSED_OCCUPANCY)
    staged_per_sm = staged["blocks"] / (unit.sm_count * staged["occupancy"])
    unique = cols["read_bytes"] + cols["write_bytes"]
    t1, t2 = cols["direct_n"], cols["direct_m"]
    s1, s2 = cols["staged_n"], cols["staged_m"]
    rows = cols["staged_rows"]
    workspace = 36.0 * cols["bytes"] * rows * (cols["c"] + cols["k"])
    outputs = np.where(cols["winograd"] > 0, cols["batch"] * cols["out"], 1.0)
    values = (
        np.log(1e6 * direct["memory"] / base),
        np.minimum(np.log(fused_us / base), 5.0),
        np.minimum(np.log(staged_us / base), 5.0),
        np.minimum(np.log(element_us / base), 5.0),
        np.log(times.transforms_us / (times.transforms_us + 1e6 * staged["compute"])),
        np.log(1e6 * direct["compute"] / base),
        np.log(1e6 * direct["l2"] / base),
        np.log(constants["floor_us"] / result.latency_us),
        np.log(t1),
        np.log(t2),
        np.log(per_sm),
        per_sm / np.ceil(per_sm),
        cols["n"] / (np.ceil(cols["n"] / t1) * t1),
        cols["m"] / (np.ceil(cols["m"] / t2) * t2),
        np.log(fused_per_sm),
        fused_per_sm / np.ceil(fused_per_sm),
        outputs / 4.0 / (fused_blocks(cols, gpu) * FUSED_TILES),
        np.log(staged_per_sm),
        staged_per_sm / np.ceil(staged_per_sm),
        outputs / 16.0 * cols["k"] / (np.ceil(rows / s2) * s2 * np.ceil(cols["k"] / s1) * s1),
        cols["batch"] / (np.ceil(cols["batch"] / STAGED_IMAGES) * STAGED_IMAGES),
        np.log(cols["c"]),
        np.log(cols["k"]),
        np.log(cols["batch"]),
        np.log(cols["out"]),
        np.log(cols["m"]),
        np.log(cols["k_depth"]),
        np.mod(cols["c"], 4),
        np.mod(cols["k"], 4),
        np.mod(cols["side"], 2),
        np.mod(cols["side"], 4),
        np.log(unique / unit.l2_bytes),
        np.log(workspace / unit.l2_bytes),
        np.log(cols["flops"] / unique / (unit.flops_per_s / unit.bytes_per_s)),
        np.log(result.latency_us / 1e3),
    )
    return np.stack(values, axis=1).astype(np.float32)
