"""The law of gradients of FP32 convolutions on NVIDIA: the cheapest of the algorithms that cuDNN has for one.

Input (n, c, *spatial), weight (k, c / g, *filter), output (n, k, *out). The algorithms are those of forward
convolutions (:mod:`.conv`). Constants that products have, too, are the FP32 products' (``gemm_fp32``), which 138,000
rows tell; those of convolutions are fitted on gradients. What gradients have of their own:

- the input's gradient is a forward pass with c and k changed places. Where a stride leaves inputs out of every filter
  (1x1, stride 2), zeros are written first, and the product goes over the outputs and reads and writes lines of memory
  that hold such zeros. Few input channels have a kernel of a thread an element;
- the weight's gradient, ``(k, n prod(out)) @ (n prod(out), c / g prod(filter))``, has its reduction shared out until
  SMs are busy, however few weights there are;
- Winograd in steps has tiles of 4x4 outputs: for 3x3 filters F(4x4, 3x3), 36 products, for 5x5 ones F(4x4, 5x5), 64.
  cuDNN's list of algorithms has both (``WINOGRAD_NONFUSED``, which DeepBench's sheets name for both forward). In the
  weight's gradient the products reduce over tiles, which no blocks share out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Conv, Kernel
from neusight_onnx.laws.base import Column, Columns, Constant, Constants, Law, LawResult
from neusight_onnx.laws.conv.algorithms import TILE, Times, element_times, fused_times, tile_of
from neusight_onnx.laws.conv.columns import columns as forward_columns
from neusight_onnx.laws.conv.columns import direct_product, staged_product
from neusight_onnx.laws.conv.constants import CONSTANTS as FORWARD_CONSTANTS
from neusight_onnx.laws.conv.constants import ELEMENT_LOG_SD, PLAIN_BLOCKS, STAGED_IMAGES
from neusight_onnx.laws.conv.estimate import answered
from neusight_onnx.laws.gemm.machine import machine
from neusight_onnx.laws.gemm.tiles import SPLIT_BLOCKS, choose_from
from neusight_onnx.laws.gemm.times import join as joined_product
from neusight_onnx.laws.gemm.times import times as product_times
from neusight_onnx.tiling import (
    DEEP_SPLITS,
    candidates,
    convolution_tiles,
    strided_gradient_tiles,
    weight_gradient_tiles,
    winograd_tiles,
)

_OWN = (
    Constant(
        name="strided_overhead",
        prior=1.3,
        prior_log_sd=0.3,
        source="pipe time of a strided gradient of the input over a forward pass of the same product; fitted",
    ),
    Constant(
        name="weight_overhead",
        prior=1.15,
        prior_log_sd=0.2,
        source="the same of the weight's gradient; the law of matrix units' prior; fitted",
    ),
    Constant(
        name="one_tap_overhead",
        prior=1.3,
        prior_log_sd=0.2,
        source="and of 1x1 filters beside it: V100, T4, P100 and 1080 Ti reach .25-.58 of the peak by them, .48-.90 by "
        "5x5 ones (DeepBench); fitted",
    ),
    Constant(
        name="few_efficiency",
        prior=0.2,
        prior_log_sd=0.3,
        source="multiply-adds a lane and clock of the kernel for the gradient of few input channels: one channel under "
        "5x20 taps takes a P100 .18; fitted",
    ),
)

_UNUSED = ("amd_lanes_overhead", "amd_volume_overhead", "matrix_overhead")

CONSTANTS: tuple[Constant, ...] = (*(each for each in FORWARD_CONSTANTS if each.name not in _UNUSED), *_OWN)

FEW_CHANNELS = 4
"""Input channels below which there is a kernel of a thread an element for their gradient: 1 and 3 have it on P100 and
1080 Ti, 16 and more don't."""
_STAGED_SIDE = 4
"""Outputs along a side of a Winograd tile."""
_STAGED_FILTERS = ((3, 3), (5, 5))

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
    "log_split_k",
    "log_blocks_per_sm",
    "wave_fraction",
    "n_fill",
    "m_fill",
    "log_staged_blocks_per_sm",
    "log_c",
    "log_k",
    "log_taps",
    "log_batch",
    "log_out",
    "log_depth",
    "strided",
    "log_intensity_over_ridge",
    "log_time_ms",
)

_COLUMNS = (
    *("staged", "staged_rows", "products", "strided", "rows", "depth", "zeroed_bytes", "few"),
    *("one_tap_weight", "unmeasured"),
)


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Gradients as columns: those of :mod:`.conv`, of which "staged_rows" is anew, and what gradients add."""
    own = [_own_columns(kernel) for kernel in kernels]
    table = np.array(own, dtype=np.float64).reshape(len(own), len(_COLUMNS))
    return {**forward_columns(kernels), **{name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}}


def _own_columns(kernel: Kernel) -> tuple[float, ...]:
    assert isinstance(kernel, Conv)
    taps, stride = prod(kernel.filter), prod(kernel.strides)
    of_data = kernel.direction == "data" and not kernel.transposed
    plain = stride == 1 and prod(kernel.dilations) == 1 and kernel.groups == 1 and not kernel.transposed
    staged = plain and kernel.filter in _STAGED_FILTERS and not kernel.channels_last
    grid = kernel.spatial if of_data else kernel.out
    # in the weight's gradient tiles are what is reduced over, and no images are padded (DeepBench's take twice as long
    # for 16 as for 8)
    whole = 1 if kernel.direction == "weight" else STAGED_IMAGES
    tiles = ceil(kernel.n / whole) * whole * prod(ceil(side / _STAGED_SIDE) for side in grid)
    rows, depth = _strided_product(kernel) if of_data and stride > 1 else (1.0, 1.0)
    skips = any(side < step for side, step in zip(kernel.filter, kernel.strides, strict=True))
    measured = kernel.groups == 1 and len(kernel.out) == 2 and prod(kernel.dilations) == 1 and not kernel.transposed
    return (
        staged,
        tiles if staged else 1,
        prod(side + _STAGED_SIDE - 1 for side in kernel.filter) if staged else 1,
        of_data and stride > 1,
        rows,
        depth,
        kernel.operand_bytes[0] if of_data and skips else 0.0,
        of_data and kernel.groups == 1 and kernel.c < FEW_CHANNELS,
        kernel.direction == "weight" and taps == 1,
        not measured,
    )


def _strided_product(kernel: Conv) -> tuple[float, float]:
    """Rows and depth of a strided gradient of the input: every input with the taps that meet it on average, or along an
    axis whose stride is beyond the filter every output, padding included, with its taps one by one."""
    rows, depth = float(kernel.n), float(kernel.k // kernel.groups)
    for spatial, out, side, step in zip(kernel.spatial, kernel.out, kernel.filter, kernel.strides, strict=True):
        if side < step:
            rows *= out * side
        else:
            rows *= spatial
            depth *= max(side * out / spatial, 1.0) if spatial else 1.0
    return max(rows, 1.0), max(depth, 1.0)


def _direct(cols: Columns, c: Constants) -> dict[str, Column]:
    """Implicit GEMM as the columns of the gemm law, and its pipe time over that of a product."""
    strided, zeroed = cols["strided"] > 0, cols["zeroed_bytes"]
    overhead = np.where(cols["weight_gradient"] > 0, c["weight_overhead"], 1.0)
    overhead = overhead * np.where(cols["one_tap_weight"] > 0, c["one_tap_overhead"], 1.0)
    overhead = overhead * np.where(strided, c["strided_overhead"], 1.0)
    return {
        **direct_product(cols),
        "m": np.where(strided, cols["rows"], cols["m"]),
        "k": np.where(strided, cols["depth"], cols["k_depth"]),
        # a line of memory holds inputs that a filter meets and zeros beside them
        "read_bytes": cols["read_bytes"] + zeroed,
        "overhead": c["direct_overhead"] * overhead,
    }


def _staged(cols: Columns) -> dict[str, Column]:
    """The products of Winograd in steps: (tiles, c) @ (c, k), or (c, tiles) @ (tiles, k) for the weight's gradient."""
    of_weight = cols["weight_gradient"] > 0
    size, products, rows, c, k = cols["bytes"], cols["products"], cols["staged_rows"], cols["c"], cols["k"]
    m, depth = np.where(of_weight, c, rows), np.where(of_weight, rows, c)
    return {
        **staged_product(cols),
        "b": products,
        "m": m,
        "k": depth,
        "read_bytes": products * size * depth * (m + k),
        "write_bytes": products * size * m * k,
        "flops": 2.0 * products * m * depth * k,
    }


def _algorithms(cols: Columns, gpu: GpuSpec, c: Constants) -> Times:
    unit = machine(gpu)
    rate = unit.bytes_per_s
    direct_tile, staged_tile = tile_of(cols, "direct"), tile_of(cols, "staged")
    product = _direct(cols, c)
    direct = product_times(product, unit, c, direct_tile)
    direct["compute"] = direct["compute"] * product["overhead"]
    zeroed = cols["zeroed_bytes"]
    fill_us = np.where(zeroed > 0, c["step_us"] + 1e6 * zeroed / (c["dram_efficiency"] * rate), 0.0)

    staged = product_times(_staged(cols), unit, c, staged_tile)
    staged["compute"] = staged["compute"] * c["staged_overhead"]
    transformed = (
        cols["input_elements"]
        + cols["output_elements"]
        + cols["products"] * cols["staged_rows"] * (cols["c"] + cols["k"])
        + (cols["products"] + cols["taps"]) * cols["c"] * cols["k"]
    )
    transforms_us = 1e6 * cols["bytes"] * transformed / (c["transform_efficiency"] * rate) + 3.0 * c["step_us"]

    fused, fused_us = fused_times(cols, gpu, c)
    few = cols["few"] > 0
    element_us, traffic_us = element_times(cols, gpu, c, np.where(few, c["few_efficiency"], c["element_efficiency"]))
    return Times(
        all_us=np.stack(
            [
                joined_product(direct, c, direct_tile[3]) + fill_us,
                np.where(cols["winograd"] > 0, fused_us, np.inf),
                np.where(cols["staged"] > 0, joined_product(staged, c, staged_tile[3]) + transforms_us, np.inf),
                np.where(few | (cols["groups"] > 1.0), element_us, np.inf),
            ]
        ),
        direct=direct,
        fused=fused,
        staged=staged,
        transforms_us=transforms_us,
        traffic_us=traffic_us,
    )


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Columns with the chosen tiles of implicit GEMM and of Winograd's products in them."""
    product = _direct(cols, constants)
    of_weight, one_tap = cols["weight_gradient"] > 0, cols["taps"] == 1
    menus = (
        (~of_weight & one_tap, candidates(convolution_tiles(gpu), split=True), PLAIN_BLOCKS),
        (~of_weight & ~one_tap & (cols["strided"] == 0), candidates(convolution_tiles(gpu), split=False), None),
        (~of_weight & ~one_tap & (cols["strided"] > 0), candidates(strided_gradient_tiles(gpu), split=False), None),
        *(
            (
                of_weight & (one_tap == plain),
                candidates(weight_gradient_tiles(gpu, one_tap=plain), split=True, splits=DEEP_SPLITS),
                SPLIT_BLOCKS,
            )
            for plain in (True, False)
        ),
    )
    tile = np.ones((4, cols["k"].size))
    for mask, menu, split_blocks in menus:
        rows = np.flatnonzero(mask)
        if rows.size:
            part = {name: column[rows] for name, column in product.items()}
            tile[:, rows] = choose_from(menu, part, gpu, constants, split_blocks=split_blocks or SPLIT_BLOCKS)
    staged = choose_from(candidates(winograd_tiles(gpu), split=False), _staged(cols), gpu, constants)
    chosen = {f"direct_{name}": tile[i] for i, name in enumerate(TILE)}
    return {**cols, **chosen, **{f"staged_{name}": staged[i] for i, name in enumerate(TILE)}}


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline, with Winograd's multiply-adds where it applies."""
    unit = machine(gpu)
    saving = np.where(cols["staged"] > 0, cols["taps"] * _STAGED_SIDE**2 / cols["products"], 1.0)
    memory = (cols["read_bytes"] + cols["write_bytes"]) / unit.bytes_per_s
    found: Column = 1e6 * np.maximum(cols["flops"] / saving / unit.flops_per_s, memory)
    return found


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer; ``cols`` may carry pinned tiles."""
    if "direct_n" not in cols:
        cols = pin(cols, gpu, constants)
    unmeasured = cols["unmeasured"] > 0
    doubt = np.where(unmeasured, cols["gradient_log_sd"], 0.0)
    times = _algorithms(cols, gpu, constants)
    answer = answered(
        times,
        cols,
        gpu,
        constants,
        # the quickest alone: a mean that leans to it may fall where the others grow
        latency_us=times.all_us.min(axis=0),
        ideal_us=ideal_us(cols, gpu),
        kind_log_sd=doubt,
        element_log_sd=np.hypot(doubt, np.where(unmeasured, ELEMENT_LOG_SD, 0.0)),
    )
    return replace(answer, unmeasured=unmeasured)


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features)."""
    if "direct_n" not in cols:
        cols = pin(cols, gpu, constants)
    unit = machine(gpu)
    times, product = _algorithms(cols, gpu, constants), _direct(cols, constants)
    direct_us, fused_us, staged_us, element_us = times.all_us
    per_sm = times.direct["blocks"] / unit.sm_count
    tile_n, tile_m = cols["direct_n"], cols["direct_m"]
    unique = cols["read_bytes"] + cols["write_bytes"]
    values = (
        np.log(1e6 * times.direct["memory"] / direct_us),
        np.minimum(np.log(fused_us / direct_us), 5.0),
        np.minimum(np.log(staged_us / direct_us), 5.0),
        np.minimum(np.log(element_us / direct_us), 5.0),
        np.log(times.transforms_us / (times.transforms_us + 1e6 * times.staged["compute"])),
        np.log(1e6 * times.direct["compute"] / direct_us),
        np.log(1e6 * times.direct["l2"] / direct_us),
        np.log(constants["floor_us"] / result.latency_us),
        np.log(tile_n),
        np.log(tile_m),
        np.log(cols["direct_split"]),
        np.log(per_sm),
        per_sm / np.ceil(per_sm),
        product["n"] / (np.ceil(product["n"] / tile_n) * tile_n),
        product["m"] / (np.ceil(product["m"] / tile_m) * tile_m),
        np.log(times.staged["blocks"] / unit.sm_count),
        np.log(cols["c"]),
        np.log(cols["k"]),
        np.log(cols["taps"]),
        np.log(cols["batch"]),
        np.log(cols["out"]),
        np.log(product["k"]),
        cols["strided"],
        np.log(cols["flops"] / unique / (unit.flops_per_s / unit.bytes_per_s)),
        np.log(result.latency_us / 1e3),
    )
    return np.stack(values, axis=1).astype(np.float32)


CONV_GRADIENT = Law(
    kernel_class="conv",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
    constants_of=("gemm", "float32"),
)
