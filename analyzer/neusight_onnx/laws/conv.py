"""The law of convolutions: the cheapest of implicit GEMM, Winograd and a kernel per output element.

Input (n, c, *spatial), weight (k, c / g, *filter), output (n, k, *out). Implicit GEMM is, per group,
``(n prod(out), c / g prod(filter)) @ (c / g prod(filter), k / g)``: the law of matrix products on those sizes, with
the convolution's own bytes (its input is read once, not once a filter tap). Winograd F(2x2, 3x3) is 16 products of
(n out / 4, c) @ (c, k): 2.25 times fewer multiply-adds and transforms around them. A depthwise convolution has no
reduction over channels that a GEMM could use; its kernel computes each output element on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Conv, Kernel
from neusight_onnx.laws import gemm
from neusight_onnx.laws.base import Column, Columns, Constant, Constants, Law, LawResult
from neusight_onnx.tiling import candidates, convolution_tiles

WINOGRAD_SAVING = 2.25
"""Multiply-adds of a direct 3x3 convolution over those of Winograd F(2x2, 3x3): 36 over 16."""

CONSTANTS: tuple[Constant, ...] = (
    # a product's constants: convolutions say little about them that products don't say better, so they move less
    *(
        replace(constant, prior_log_sd=constant.prior_log_sd / 3.0)
        for constant in gemm.CONSTANTS
        if constant.name not in ("plain_overhead", "throttle_ms")
    ),
    Constant(
        name="throttle_ms",
        prior=2.0,
        prior_log_sd=0.7,
        source="convolutions of a few ms ran near the boost clock on a T4 in the shared measurements; fitted",
    ),
    Constant(
        name="direct_overhead",
        prior=1.15,
        prior_log_sd=0.05,
        source="index arithmetic and unaligned loads of implicit GEMM against a plain product; fitted",
    ),
    Constant(
        name="winograd_overhead",
        prior=1.4,
        prior_log_sd=0.15,
        source="transforms and the smaller products' lower rate, from a study of the shared measurements; fitted",
    ),
    Constant(
        name="transform_share",
        prior=0.5,
        prior_log_sd=0.2,
        source="share of the transformed tensors (four times input and output) that goes through DRAM; fitted",
    ),
    Constant(
        name="choice_norm",
        prior=6.0,
        prior_log_sd=0.0,
        source="a library's choice between algorithms is not exact: soft minimum, not fitted",
    ),
    Constant(
        name="element_efficiency",
        prior=0.12,
        prior_log_sd=0.0,
        source="share of the FMA peak of a kernel per output element: about eight instructions (two loads, address "
        "and bound arithmetic) an FMA; not fitted, no depthwise rows in the FP32 data",
    ),
)

FEATURES: tuple[str, ...] = (
    "log_memory_over_direct",
    "log_winograd_over_direct",
    "log_element_over_direct",
    "log_compute_over_direct",
    "log_l2_over_direct",
    "log_floor_over_time",
    "log_tile_n",
    "log_tile_m",
    "log_blocks_per_sm",
    "wave_fraction",
    "n_fill",
    "m_fill",
    "log_c",
    "log_k",
    "log_batch",
    "log_out",
    "log_rows",
    "log_depth",
    "c_mod_4",
    "c_mod_32",
    "k_mod_4",
    "k_mod_32",
    "out_mod_2",
    "log_total_over_l2",
    "log_intensity_over_ridge",
    "log_time_ms",
)

_COLUMNS = (
    *("batch", "c", "k", "out", "groups", "taps", "b", "m", "n", "k_depth", "read_bytes", "write_bytes", "flops"),
    *("bytes", "winograd", "winograd_rows", "input_elements", "output_elements", "weight_elements", "macs"),
)

DIRECT, WINOGRAD, ELEMENT = 0.0, 1.0, 2.0


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Conv kernels as columns: their implicit GEMM (b, m, n, k_depth), Winograd's rows, bytes and sizes."""
    rows = []
    for kernel in kernels:
        assert isinstance(kernel, Conv)
        groups, taps = kernel.groups, prod(kernel.filter)
        out, spatial = prod(kernel.out), prod(kernel.spatial)
        if kernel.transposed:
            m, n, depth = kernel.n * spatial, kernel.k // groups * taps, kernel.c // groups
        else:
            # fewer than four channels are padded to four: loads are of 16 bytes
            m, n, depth = kernel.n * out, kernel.k // groups, max(kernel.c // groups, min(4, kernel.c)) * taps
        winograd = (
            kernel.filter == (3, 3)
            and kernel.strides == (1, 1)
            and kernel.dilations == (1, 1)
            and groups == 1
            and not kernel.transposed
        )
        winograd_m = kernel.n * prod((side + 1) // 2 for side in kernel.out)
        rows.append(
            (
                kernel.n,
                kernel.c,
                kernel.k,
                out,
                groups,
                taps,
                groups,
                m,
                max(n, 1),
                max(depth, 1),
                kernel.read_bytes,
                kernel.write_bytes,
                kernel.flops,
                kernel.dtype.bits / 8,
                winograd,
                winograd_m,
                kernel.n * kernel.c * spatial,
                kernel.n * kernel.k * out,
                kernel.k * (kernel.c // groups) * taps,
                kernel.macs,
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


def _product(cols: Mapping[str, NDArray[np.float64]], *, winograd: bool) -> dict[str, NDArray[np.float64]]:
    """The matrix product that an algorithm makes of the convolution, as the columns of the gemm law.

    The input operand counts a filter tap's worth of bytes an element only once: neighbouring taps hit in cache.
    """
    size, taps = cols["bytes"], cols["taps"]
    return {
        "b": np.full_like(cols["b"], 16.0) if winograd else cols["b"],
        "m": cols["winograd_rows"] if winograd else cols["m"],
        "n": cols["k"] if winograd else cols["n"],
        "k": cols["c"] if winograd else cols["k_depth"],
        "a_bytes": size if winograd else size / taps,
        "b_bytes": size,
        "out_bytes": size,
        "read_bytes": cols["read_bytes"],
        "write_bytes": cols["write_bytes"],
        "flops": cols["flops"],
        "bias": np.zeros_like(cols["b"]),
    }


def _algorithms(
    cols: Columns, gpu: GpuSpec, c: Constants, direct_tile: NDArray[np.float64], winograd_tile: NDArray[np.float64]
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """Times in us of the algorithms by name, and the parts of the direct one in s."""
    unit = gemm.machine(gpu)
    constants = {**c, "plain_overhead": 1.0}
    direct = gemm.times(_product(cols, winograd=False), unit, constants, direct_tile)
    direct["compute"] = direct["compute"] * c["direct_overhead"]
    direct_us = gemm.join(direct, constants, direct_tile[3])
    product = gemm.times(_product(cols, winograd=True), unit, constants, winograd_tile)
    product["compute"] = product["compute"] * c["winograd_overhead"]
    transformed = 4.0 * cols["bytes"] * (cols["input_elements"] + cols["output_elements"])
    product["memory"] = product["memory"] + c["transform_share"] * 2.0 * transformed / (
        c["dram_efficiency"] * unit.bytes_per_s
    )
    winograd_us = gemm.join(product, constants, winograd_tile[3])
    traffic = (cols["read_bytes"] + cols["write_bytes"]) / (c["dram_efficiency"] * unit.bytes_per_s)
    arithmetic = 2.0 * cols["macs"] / (gpu.peak_flops_per_s["fp32"] * c["element_efficiency"])
    element_us = c["floor_us"] + 1e6 * (traffic ** c["norm"] + arithmetic ** c["norm"]) ** (1.0 / c["norm"])
    times_us = {
        "direct": direct_us,
        "winograd": np.where(cols["winograd"] > 0, winograd_us, np.inf),
        "element": element_us,
    }
    return times_us, direct


def _tiles(cols: Columns, gpu: GpuSpec, constants: Constants) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if "direct_n" in cols:
        return tuple(  # type: ignore[return-value]  # two of them
            np.stack([cols[f"{kind}_{name}"] for name in ("n", "m", "threads", "split")])
            for kind in ("direct", "winograd")
        )
    menu = candidates(convolution_tiles(gpu), split=False)
    gemm_constants = {**constants, "plain_overhead": 1.0}
    direct = gemm.choose_from(menu, _product(cols, winograd=False), gpu, gemm_constants)
    winograd = gemm.choose_from(menu, _product(cols, winograd=True), gpu, gemm_constants)
    return direct, winograd


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Columns with the chosen tiles of both algorithms in them."""
    direct, winograd = _tiles(cols, gpu, constants)
    found = dict(cols)
    for kind, tile in (("direct", direct), ("winograd", winograd)):
        found |= {f"{kind}_{name}": tile[i] for i, name in enumerate(("n", "m", "threads", "split"))}
    return found


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline, with Winograd's multiply-adds where it applies: a 3x3 convolution may beat the direct FLOP count."""
    unit = gemm.machine(gpu)
    flops = cols["flops"] / np.where(cols["winograd"] > 0, WINOGRAD_SAVING, 1.0)
    memory = (cols["read_bytes"] + cols["write_bytes"]) / unit.bytes_per_s
    return 1e6 * np.maximum(flops / unit.flops_per_s, memory)


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer: soft minimum of the algorithms, since a library's heuristic does not always pick the best."""
    direct_tile, winograd_tile = _tiles(cols, gpu, constants)
    times_us, direct = _algorithms(cols, gpu, constants, direct_tile, winograd_tile)
    stacked = np.stack([times_us["direct"], times_us["winograd"], times_us["element"]])
    power = constants["choice_norm"]
    least = stacked.min(axis=0)
    # averaged over the algorithms of a like speed, so that two equal ones take as long as one
    weights = (least / stacked) ** power
    latency = (weights * np.where(np.isfinite(stacked), stacked, 0.0)).sum(axis=0) / weights.sum(axis=0)
    best = np.argmin(stacked, axis=0)
    unit = gemm.machine(gpu)
    tile = np.where(best == 1, winograd_tile, direct_tile)
    blocks = np.where(
        best == 1,
        16.0 * np.ceil(cols["k"] / tile[0]) * np.ceil(cols["winograd_rows"] / tile[1]),
        direct["blocks"],
    )
    is_element = best == 2
    threads = 256.0
    tile = np.where(is_element, np.array([[1.0], [threads], [threads], [1.0]]), tile)
    blocks = np.where(is_element, np.ceil(cols["output_elements"] / threads), blocks)
    resident = np.where(is_element, np.maximum(gpu.max_threads_per_sm / threads, 1.0), direct["occupancy"])
    return LawResult(
        latency_us=latency,
        ideal_us=ideal_us(cols, gpu),
        parts_us={
            "compute": np.where(is_element, 0.0, latency - constants["floor_us"]),
            "memory": 1e6 * direct["memory"],
            "l2": 1e6 * direct["l2"],
            "launch": np.full(latency.shape, constants["floor_us"]),
        },
        tile={"n": tile[0], "m": tile[1], "threads": tile[2], "split_k": tile[3]},
        tile_count=blocks,
        wave_count=np.maximum(np.ceil(blocks / (unit.sm_count * resident)), 1.0),
        doubt_log_sd=gemm.doubt(unit, direct["level"], np.where(is_element, 0.0, 1e6 * direct["compute"] / latency)),
    )


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features)."""
    unit = gemm.machine(gpu)
    direct_tile, winograd_tile = _tiles(cols, gpu, constants)
    times_us, direct = _algorithms(cols, gpu, constants, direct_tile, winograd_tile)
    base = times_us["direct"]
    blocks_per_sm = direct["blocks"] / unit.sm_count
    unique = cols["read_bytes"] + cols["write_bytes"]
    t1, t2 = direct_tile[0], direct_tile[1]
    values = (
        np.log(1e6 * direct["memory"] / base),
        np.minimum(np.log(times_us["winograd"] / base), 5.0),
        np.log(times_us["element"] / base),
        np.log(1e6 * direct["compute"] / base),
        np.log(1e6 * direct["l2"] / base),
        np.log(constants["floor_us"] / result.latency_us),
        np.log(t1),
        np.log(t2),
        np.log(blocks_per_sm),
        blocks_per_sm / np.ceil(blocks_per_sm),
        cols["n"] / (np.ceil(cols["n"] / t1) * t1),
        cols["m"] / (np.ceil(cols["m"] / t2) * t2),
        np.log(cols["c"]),
        np.log(cols["k"]),
        np.log(cols["batch"]),
        np.log(cols["out"]),
        np.log(cols["m"]),
        np.log(cols["k_depth"]),
        np.mod(cols["c"], 4),
        np.mod(cols["c"], 32),
        np.mod(cols["k"], 4),
        np.mod(cols["k"], 32),
        np.mod(np.round(np.sqrt(cols["out"])), 2),
        np.log(unique / unit.l2_bytes),
        np.log(cols["flops"] / unique / (unit.flops_per_s / unit.bytes_per_s)),
        np.log(result.latency_us / 1e3),
    )
    return np.stack(values, axis=1).astype(np.float32)


CONV = Law(
    kernel_class="conv",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
)
