"""Features of the residual of convolutions on matrix units: dimensionless, nothing that identifies a GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import matrix_units
from neusight_onnx.laws.base import Columns, Constants, LawResult
from neusight_onnx.laws.tensor_conv.direct import element_us
from neusight_onnx.laws.tensor_conv.estimate import estimate
from neusight_onnx.laws.tensor_conv.image_products import images_us
from neusight_onnx.laws.tensor_conv.implicit_gemm import joined_us
from neusight_onnx.laws.tensor_conv.miopen_lanes import lanes_us, winograd_us
from neusight_onnx.laws.tensor_conv.miopen_solvers import assembled_times, compiled_slower, compiled_us, stated_slower
from neusight_onnx.laws.tensor_conv.tiles import with_tiles
from neusight_onnx.laws.tensor_conv.transposes import transposes_us
from neusight_onnx.laws.tensor_gemm.constants import own_constants

FEATURES: tuple[str, ...] = (
    "log_memory_over_pipe",
    "log_l2_over_pipe",
    "log_element_over_product",
    "log_images_over_product",
    "log_transposes_over_time",
    "log_floor_over_time",
    "log_tile_n",
    "log_tile_m",
    "log_split_k",
    "log_blocks_per_sm",
    "wave_fraction",
    "n_fill",
    "m_fill",
    "depth_fill",
    "log_k_per_split",
    "log_total_over_l2",
    "log_intensity_over_ridge",
    "log_taps",
    "log_stride",
    "log_dilation",
    "log_groups",
    "log_c",
    "log_k",
    "log_batch",
    "log_out",
    "log_side",
    "log_m",
    "log_n",
    "log_depth",
    "c_mod_8",
    "c_mod_32",
    "k_mod_8",
    "k_mod_32",
    "out_mod_4",
    "is_data",
    "is_weight",
    "is_volume",
    "big_wave_fraction",
    "small_wave_fraction",
    "log_time_ms",
)


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features).

    Those of the kernel as it would be measured, which is what the residual was trained on: in bursts.
    """
    cols, tile, image_tile = with_tiles(cols, gpu, constants)
    if not np.all(cols["burst"]):
        cols = {**cols, "burst": np.ones_like(cols["burst"])}
        result = estimate(cols, gpu, constants)
    constants = own_constants(gpu, constants)
    t1, t2, _, z = tile
    parts = assembled_times(cols, gpu, constants, tile)
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    product = joined_us(parts, constants)
    pipe = parts["compute"]
    per_sm = parts["blocks"] / gpu.sm_count
    unique = cols["read_bytes"] + cols["write_bytes"]
    ridge = matrix_units.peaks(gpu, cols["pipe"]) / gpu.memory_bytes_per_s
    big = b * np.ceil(n / 128.0) * np.ceil(m / 256.0) / gpu.sm_count
    small = b * np.ceil(n / 64.0) * np.ceil(m / 64.0) / gpu.sm_count
    transposes = transposes_us(cols, gpu, constants)
    values = (
        np.log(parts["memory"] / pipe),
        np.log(parts["l2"] / pipe),
        np.clip(np.log(element_us(cols, gpu, constants) / product), -5.0, 5.0),
        np.clip(np.log(images_us(cols, gpu, constants, image_tile) / product), -5.0, 5.0),
        np.log1p(transposes / product),
        np.log(constants["floor_us"] / result.latency_us),
        np.log(t1),
        np.log(t2),
        np.log(z),
        np.log(per_sm),
        per_sm / np.ceil(per_sm),
        n / (np.ceil(n / t1) * t1),
        m / (np.ceil(m / t2) * t2),
        cols["depth"] / k,
        np.log(parts["kz"]),
        np.log(unique / gpu.l2_bytes),
        np.log(cols["flops"] / unique / ridge),
        np.log(cols["taps"]),
        np.log(cols["stride"]),
        np.log(cols["dilation"]),
        np.log(cols["groups"]),
        np.log(cols["c_each"]),
        np.log(cols["k_each"]),
        np.log(cols["batch"]),
        np.log(cols["out"]),
        np.log(cols["side"]),
        np.log(m),
        np.log(n),
        np.log(cols["depth"]),
        np.mod(cols["c_each"], 8),
        np.mod(cols["c_each"], 32),
        np.mod(cols["k_each"], 8),
        np.mod(cols["k_each"], 32),
        np.mod(cols["side"], 4),
        cols["data"],
        cols["weight"],
        cols["rank"] > 2,
        big / np.ceil(big),
        small / np.ceil(small),
        np.log(result.latency_us / 1e3),
    )
    return np.stack(values, axis=1).astype(np.float32)


AMD_FEATURES: tuple[str, ...] = (*FEATURES, "log_compiled_over_product", "log_stated_slower", "log_compiled_slower")
"""Features of the residual on AMD."""


FP32_AMD_FEATURES: tuple[str, ...] = (*AMD_FEATURES, "log_lanes_over_product", "log_winograd_over_product")
"""Features of the residual in FP32 on AMD."""


def fp32_amd_features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """``amd_features``, with how kernels on vector lanes compare, as ``FP32_AMD_FEATURES``."""
    cols, tile, _ = with_tiles(cols, gpu, constants)
    product = joined_us(assembled_times(cols, gpu, constants, tile), constants)
    own = (
        np.clip(np.log(lanes_us(cols, gpu, constants, tile) / product), -5.0, 5.0),
        np.clip(np.log(winograd_us(cols, gpu, constants, tile) / product), -5.0, 5.0),
    )
    return np.hstack([amd_features(cols, gpu, constants, result), np.stack(own, axis=1).astype(np.float32)])


def amd_features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """``features``, with how the compiled kernels compare and how slow bfloat16's instructions are against float16's,
    those of the data sheet and of the compiled kernels, as ``AMD_FEATURES``.

    By rates rather than by name: where a GPU multiplies both alike, both are the same kernels.
    """
    cols, tile, _ = with_tiles(cols, gpu, constants)
    parts = assembled_times(cols, gpu, constants, tile)
    own = (
        np.log(compiled_us(cols, gpu, constants, tile) / joined_us(parts, constants)),
        np.log(stated_slower(cols, gpu)),
        np.log(stated_slower(cols, gpu) * compiled_slower(cols, gpu)),
    )
    return np.hstack([features(cols, gpu, constants, result), np.stack(own, axis=1).astype(np.float32)])
