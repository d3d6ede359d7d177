"""Dimensionless features of the residual of matrix products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Columns, Constants, LawResult
from neusight_onnx.laws.gemm.machine import machine
from neusight_onnx.laws.gemm.times import times

FEATURES: tuple[str, ...] = (
    "log_memory_over_pipe",
    "log_l2_over_pipe",
    "log_shared_over_pipe",
    "log_drift_over_pipe",
    "log_floor_over_time",
    "log_tile_n",
    "log_tile_m",
    "log_split_k",
    "log_blocks_per_sm",
    "wave_fraction",
    "log_resident_waves",
    "n_fill",
    "m_fill",
    "log_k_per_split",
    "log_entry_over_l2",
    "log_total_over_l2",
    "log_intensity_over_ridge",
    "log_batch",
    "log_m",
    "log_n",
    "log_k",
    "m_alignment",
    "n_alignment",
    "k_alignment",
    "n_fill_of_128",
    "m_fill_of_128",
    "n_fill_of_64",
    "m_fill_of_64",
    "batched",
    "bias",
    "log_time_ms",
)


def alignment(sizes: Column) -> Column:
    """Log2 of the largest power of two that divides a size, at most 3: vector loads want 4, a sector holds 8.

    Three sizes of larger ones are those of real models, as good as a session's name: with them trees made a T4's
    products of 32 rows 1.3 to 1.5 times the law, where measured kernels take what the law says.
    """
    whole = sizes.astype(np.int64)
    found: Column = np.minimum(np.log2((whole & -whole).astype(np.float64)), 3.0)
    return found


def _fill(sizes: Column, tile: Column | float) -> Column:
    """Share of the tiles' elements that are in the output."""
    found: Column = sizes / (np.ceil(sizes / tile) * tile)
    return found


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features).

    Fewer rows than the tile is high take the same blocks, with the same FMAs, as so many, and have their features.
    Training has 16 linear layers of fewer than 8 rows and 469 of fewer than 32, out of 39,813: trees that tell 4 rows
    from 8 say what they found in other shapes.
    """
    unit = machine(gpu)
    tile = np.stack([result.tile["n"], result.tile["m"], result.tile["threads"], result.tile["split_k"]])
    parts = times(cols, unit, constants, tile)
    t1, t2, _, z = tile
    b, n, k = cols["b"], cols["n"], cols["k"]
    m = np.maximum(cols["m"], t2)
    pipe = parts["compute"]
    blocks_per_sm = parts["blocks"] / unit.sm_count
    unique = cols["read_bytes"] + cols["write_bytes"]
    values = (
        np.log(parts["memory"] / pipe),
        np.log(parts["l2"] / pipe),
        np.log(parts["shared"] / pipe),
        np.log(parts["drift"] / pipe + 1e-6),
        np.log(constants["floor_us"] / result.latency_us),
        np.log(t1),
        np.log(t2),
        np.log(z),
        np.log(blocks_per_sm),
        blocks_per_sm / np.ceil(blocks_per_sm),
        np.log(blocks_per_sm / parts["occupancy"]),
        _fill(n, t1),
        _fill(m, t2),
        np.log(parts["kz"]),
        np.log(parts["entry"] / unit.l2_bytes),
        np.log(unique / unit.l2_bytes),
        np.log(cols["flops"] * m / cols["m"] / unique / (unit.flops_per_s / unit.bytes_per_s)),
        np.log(b),
        np.log(m),
        np.log(n),
        np.log(k),
        alignment(m),
        alignment(n),
        alignment(k),
        _fill(n, 128.0),
        _fill(m, 128.0),
        _fill(n, 64.0),
        _fill(m, 64.0),
        (b > 1).astype(np.float64),
        cols["bias"],
        np.log(result.latency_us / 1e3),
    )
    return np.stack(values, axis=1).astype(np.float32)
