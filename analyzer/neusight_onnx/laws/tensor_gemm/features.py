"""Features of the residual of products on matrix units: dimensionless, nothing that identifies a GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Columns, Constants, LawResult
from neusight_onnx.laws.matrix_units import peaks
from neusight_onnx.laws.tensor_gemm import unaligned
from neusight_onnx.laws.tensor_gemm.constants import own_constants
from neusight_onnx.laws.tensor_gemm.memory import weight_copies
from neusight_onnx.laws.tensor_gemm.tiles import tile_of
from neusight_onnx.laws.tensor_gemm.times import join, times
from neusight_onnx.laws.tiled import TILE_COLUMNS

FEATURES: tuple[str, ...] = (
    "log_memory_over_pipe",
    "log_l2_over_pipe",
    "log_latency_over_pipe",
    "log_floor_over_time",
    "log_tile_n",
    "log_tile_m",
    "log_split_k",
    "log_blocks_per_sm",
    "wave_fraction",
    "n_fill",
    "m_fill",
    "log_k_per_split",
    "log_weights_over_l2",
    "log_total_over_l2",
    "log_intensity_over_ridge",
    "log_batch",
    "log_m",
    "log_n",
    "log_k",
    "m_mod_2",
    "m_mod_16",
    "m_mod_64",
    "n_mod_128",
    "k_mod_64",
    "big_wave_fraction",
    "log_big_blocks_per_sm",
    "log_copies_over_l2",
    "small_wave_fraction",
    "log_ridge",
    "log_time_ms",
)


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features).

    Those of the kernel as it would be measured, which is what the residual was trained on: in bursts, with rows of
    whole vectors and in the tile of those.
    """
    tile = np.stack([result.tile["n"], result.tile["m"], result.tile["threads"], result.tile["split_k"]])
    apart = unaligned.is_unaligned(cols, gpu)
    if apart.any():
        whole = {name: column for name, column in unaligned.aligned(cols).items() if name not in TILE_COLUMNS}
        tile = np.where(apart, tile_of(whole, gpu, constants), tile)
    c = own_constants(gpu, constants)
    parts = times({**unaligned.aligned(cols), "burst": np.ones_like(cols["burst"])}, gpu, c, tile)
    # the product's own: those whose operands a layer before converted are no others than the measured ones
    latency_us = join({**parts, "convert": np.zeros_like(parts["convert"])}, c, tile[3])
    t1, t2, _, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    pipe = parts["compute"]
    blocks_per_sm = parts["blocks"] / gpu.sm_count
    unique = cols["read_bytes"] + cols["write_bytes"]
    rotating = b * k * (n * cols["b_bytes"] + cols["rotated"] * m * cols["a_bytes"])
    ridge = peaks(gpu, cols["pipe"]) / gpu.memory_bytes_per_s
    big = b * np.ceil(n / 128.0) * np.ceil(m / 256.0) / gpu.sm_count
    small = b * np.ceil(n / 128.0) * np.ceil(m / 64.0) / gpu.sm_count
    values = (
        np.log(parts["memory"] / pipe),
        np.log(parts["l2"] / pipe),
        np.log(parts["latency"] / pipe),
        np.log(c["floor_us"] / latency_us),
        np.log(t1),
        np.log(t2),
        np.log(z),
        np.log(blocks_per_sm),
        blocks_per_sm / np.ceil(blocks_per_sm),
        n / (np.ceil(n / t1) * t1),
        m / (np.ceil(m / t2) * t2),
        np.log(parts["kz"]),
        np.log(b * n * k * cols["b_bytes"] / gpu.l2_bytes),
        np.log(unique / gpu.l2_bytes),
        np.log(cols["flops"] / unique / ridge),
        np.log(b),
        np.log(m),
        np.log(n),
        np.log(k),
        np.mod(m, 2),
        np.mod(m, 16),
        np.mod(m, 64),
        np.mod(n, 128),
        np.mod(k, 64),
        big / np.ceil(big),
        np.log(big),
        np.log((unique + (weight_copies(cols, gpu)[1] - 1.0) * rotating) / gpu.l2_bytes),
        small / np.ceil(small),
        np.log(ridge),
        np.log(latency_us / 1e3),
    )
    return np.stack(values, axis=1).astype(np.float32)
