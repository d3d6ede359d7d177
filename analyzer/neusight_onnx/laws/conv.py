"""The law of convolutions: the cheapest of the algorithms that libraries have for one.

Input (n, c, *spatial), weight (k, c / g, *filter), output (n, k, *out). Gradients are convolutions of their own
(``kernels.Conv.implicit_gemm``): that of the input is one with c and k, input and output changed places, that of the
weight reduces over positions, which blocks share out. On NVIDIA they have a law of their own (:mod:`.conv_gradient`);
elsewhere forward constants stand for them. The algorithms:

- implicit GEMM: per group, ``(n prod(out), c / g prod(filter)) @ (c / g prod(filter), k / g)``, the law of matrix
  products on those sizes with the convolution's own bytes (its input is read once, not once a filter tap);
- fused Winograd F(2x2, 3x3): 16 products of (n out / 4, c) @ (c, k) in one kernel, 2.25 times fewer multiply-adds. A
  block makes 32 channels of 32 tiles of 2x2 outputs; libraries have the block shapes of ``fused_shapes`` (images x
  rows x columns of tiles), and the grids that were recorded follow from them exactly;
- Winograd F(4x4, 3x3) in steps: filter, input and output are transformed by kernels of their own, 36 products of
  (n out / 16, c) @ (c, k) between them, 4 times fewer multiply-adds. Images are padded to a multiple of 16, as the
  recorded grids show. MIOpen's FP32 choices have fused Winograd only;
- a kernel per output element, of convolutions in groups alone: a depthwise one has no reduction over channels that a
  GEMM could use. Elsewhere a thread would go through all channels by itself: of dense convolutions that it would do
  soonest (few outputs), MI50, MI100 and MI210 take twice to three times as long (MIOpen's find database, 7,000 rows),
  and what kernels are called on P4, P100, V100, T4 and A100 is implicit GEMM or Winograd (NeuSight's).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Conv, Kernel
from neusight_onnx.laws.base import Column, Columns, Constant, Constants, Law, LawResult
from neusight_onnx.laws.elementwise import integer_lanes_per_sm
from neusight_onnx.laws.gemm.constants import CONSTANTS as PRODUCT_CONSTANTS
from neusight_onnx.laws.gemm.machine import doubt, machine, process_energy
from neusight_onnx.laws.gemm.tiles import choose_from
from neusight_onnx.laws.gemm.times import join as joined_product
from neusight_onnx.laws.gemm.times import times as product_times
from neusight_onnx.tiling import DEEP_SPLITS, candidates, convolution_tiles, fp32_tiles, winograd_tiles

WINOGRAD_SAVING = 4.0
"""Multiply-adds of a direct 3x3 convolution over those of Winograd F(4x4, 3x3): 144 over 36."""

FUSED_SHAPES = ((1, 4, 8), (4, 4, 2), (2, 4, 4), (2, 2, 8), (4, 1, 8), (4, 2, 4))
"""Images x rows x columns of 2x2 output tiles in a block of fused Winograd, from kernel names (``tile148``, …)."""
FUSED_TILES = 32.0
FUSED_CHANNELS = 32.0
"""Tiles and output channels of such a block of 256 threads."""
KIND_LOG_SD = 0.15
"""How well implicit GEMM carries over to filters and strides that the FP32 training data lack (all 3x3, stride 1), in
log, beside the law's own error there: 80 % of 115 such rows of DeepBench (1x1, 5x5, 7x7, strides of 2; V100 and T4, an
older cuDNN) lie within 0.21-0.32 of the prediction, of the measured kind within 0.21."""
GRADIENT_LOG_SD = {"data": 0.4, "weight": 0.7}
"""The same for gradients of input and weight where no row is fitted: by this law 80 % of DeepBench's (V100 and T4) lie
within 0.5-0.6 and 0.8-1.0 of the prediction, log."""
ELEMENT_LOG_SD = 0.4
"""The same for a kernel per output element, which no FP32 training row shows: its efficiency is good to a factor of one
and a half. A judgement."""
PLAIN_BLOCKS = 0.5
"""Blocks an SM up to which NVIDIA's 1x1 filters have their reduction split, as the plain products that they are: cuDNN
hands those of few tiles to cuBLAS (its algorithm GEMM), whose FP32 products split. DeepBench's 1x1 rows, of .65 tiles
an SM and more, take as long as tiles that are not split (T4 and V100: 14-15 % off, 20-24 with splits); of fewer tiles
nothing was measured. MIOpen's aren't split at any size (26-30 % off, 41-62 with splits)."""
STAGED_IMAGES = 16
"""Winograd in steps pads the batch to a multiple of so many images."""

_OF_PRODUCTS = ("throttle_ms", "spill_knee", "reload_efficiency", "row_fade", "row_ns", "fetch_gain", "camping")
"""Constants of operands with a layout, which a convolution's gathered one has not, and of what it has its own for."""

CONSTANTS: tuple[Constant, ...] = (
    # a product's constants: convolutions say little about them that products don't say better, so they move less
    *(
        replace(constant, prior_log_sd=constant.prior_log_sd / 3.0)
        for constant in PRODUCT_CONSTANTS
        if constant.name not in _OF_PRODUCTS
    ),
    Constant(
        name="reload_knee",
        prior=4.0,
        prior_log_sd=0.4 / 3.0,
        source="operands of one batch entry over L2 bytes at which waves reload them, inverse; prior: study of the "
        "shared FP32 measurements; fitted here",
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
        name="fused_overhead",
        prior=1.3,
        prior_log_sd=0.15,
        source="fused Winograd: additions of the transforms beside the multiply-adds; fitted",
    ),
    Constant(
        name="staged_overhead",
        prior=1.05,
        prior_log_sd=0.1,
        source="Winograd in steps: its products against plain ones; fitted",
    ),
    Constant(
        name="transform_efficiency",
        prior=0.6,
        prior_log_sd=0.3,
        source="Winograd in steps: share of the DRAM peak at which transforms read tensors and write them four "
        "(input, filter) or read nine quarters of them (output); fitted",
    ),
    Constant(
        name="step_us",
        prior=3.0,
        prior_log_sd=0.3,
        source="each further kernel of an algorithm of several: start and drain; fitted",
    ),
    Constant(
        name="amd_lanes_overhead",
        prior=1.5,
        prior_log_sd=0.0,
        source="implicit GEMM on AMD GPUs without FP32 matrix cores, against the same law on NVIDIA: median over the "
        "2-D forward rows of the MI50 in MIOpen's find database; one GPU, not fitted here",
    ),
    Constant(
        name="amd_volume_overhead",
        prior=2.2,
        prior_log_sd=0.0,
        source="3-D convolutions on AMD: medians over MIOpen's forward rows are 2.3 (MI100) and 2.2 (MI210) times the "
        "law; not fitted here",
    ),
    Constant(
        name="element_efficiency",
        prior=0.12,
        prior_log_sd=0.0,
        source="taps a lane and clock of a kernel per output element: about eight instructions (two loads, address and "
        "bound arithmetic) an FMA, most of them for integer lanes, of which GA10x, Ada and Hopper have no more than "
        "those before; not fitted, no depthwise rows in the FP32 data",
    ),
)

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

_SHAPE_COLUMNS = tuple(f"fused_{a}{b}{c}" for a, b, c in FUSED_SHAPES)

_COLUMNS = (
    *("batch", "c", "k", "out", "groups", "taps", "b", "m", "n", "k_depth", "read_bytes", "write_bytes", "flops"),
    *("bytes", "winograd", *_SHAPE_COLUMNS, "staged_rows", "input_elements", "output_elements", "weight_elements"),
    *("macs", "side", "rank", "one_tap", "whole_image", "weight_gradient", "gradient_log_sd"),
)

ALGORITHMS = ("direct", "fused", "staged", "element")


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Conv kernels as columns: their implicit GEMM (b, m, n, k_depth), Winograd's blocks and rows, bytes and sizes."""
    rows = []
    for kernel in kernels:
        assert isinstance(kernel, Conv)
        groups, taps = kernel.groups, prod(kernel.filter)
        # the gradient of the input reads what the forward pass wrote, and writes what it read
        back = kernel.direction == "data"
        c, k = (kernel.k, kernel.c) if back else (kernel.c, kernel.k)
        source_grid, grid = (kernel.out, kernel.spatial) if back else (kernel.spatial, kernel.out)
        out, spatial = prod(grid), prod(source_grid)
        if kernel.direction != "forward":
            _, m, n, depth = kernel.implicit_gemm
        elif kernel.transposed:
            m, n, depth = kernel.n * spatial, k // groups * taps, c // groups
        else:
            # fewer than four channels are padded to four: loads are of 16 bytes
            m, n, depth = kernel.n * out, k // groups, max(c // groups, min(4, c)) * taps
        winograd = (
            kernel.filter == (3, 3)
            and kernel.strides == (1, 1)
            and kernel.dilations == (1, 1)
            and groups == 1
            and not kernel.transposed
            and kernel.direction != "weight"
            and not kernel.channels_last
        )
        fused, staged_rows = _winograd_sizes(kernel.n, grid) if winograd else ((1,) * len(FUSED_SHAPES), 1)
        rows.append(
            (
                kernel.n,
                c,
                k,
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
                *fused,
                staged_rows,
                kernel.n * c * spatial,
                kernel.n * k * out,
                k * (c // groups) * taps,
                kernel.macs,
                grid[-1],
                len(grid),
                kernel.direction != "weight" and taps == 1,
                _covers(kernel),
                kernel.direction == "weight",
                GRADIENT_LOG_SD.get(kernel.direction, 0.0),
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


def _covers(kernel: Conv) -> bool:
    """Whether the filter covers the whole image (VGG's 7x7 over 7x7): an image as it lies is a row of a product.

    Nothing unfolds or overlaps, so that NVIDIA's are products of the library's menu and as deep as a linear layer's
    are, whose reductions it splits: cuDNN has an algorithm that multiplies the unfolded matrix (GEMM, by NVIDIA's API
    reference), and ONNX Runtime times all of them (``cudnn_conv_algo_search``, EXHAUSTIVE unasked). No such convolution
    was measured alone.
    """
    return (
        kernel.direction == "forward"
        and kernel.groups == 1
        and prod(kernel.out) == 1
        and kernel.filter == kernel.spatial
    )


def fused_shapes(gpu: GpuSpec) -> int:
    """How many of ``FUSED_SHAPES``, from the first on, the GPU's library has: what kernel names show.

    Pascal ran all six, Volta and Turing the first only, Ampere the first two (and its kernels run on later GPUs).
    AMD's fused kernels are others; they fit odd sizes as well as the best of the six.
    """
    capability = gpu.compute_capability
    if capability is None or capability < 7.0:
        return len(FUSED_SHAPES)
    return 1 if capability < 8.0 else 2


def fused_blocks(cols: Columns, gpu: GpuSpec) -> Column:
    """Spatial blocks of fused Winograd in the best of the shapes that the GPU's library has."""
    found: Column = np.minimum.reduce([cols[name] for name in _SHAPE_COLUMNS[: fused_shapes(gpu)]])
    return found


def _winograd_sizes(n: int, out: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Spatial blocks of fused Winograd in each shape, and rows of the products of Winograd in steps."""
    height, width = out
    images = ceil(n / STAGED_IMAGES) * STAGED_IMAGES
    return (
        tuple(ceil(n / a) * ceil(ceil(height / 2) / b) * ceil(ceil(width / 2) / c) for a, b, c in FUSED_SHAPES),
        images * ceil(height / 4) * ceil(width / 4),
    )


def direct_product(cols: Columns) -> dict[str, Column]:
    """Implicit GEMM as the columns of the gemm law.

    The input operand counts a filter tap's worth of bytes an element only once: neighbouring taps hit in cache. It is
    the left one, but the right one of the weight's gradient.
    """
    size, right = cols["bytes"], cols["weight_gradient"] > 0
    return {
        "b": cols["b"],
        "m": cols["m"],
        "n": cols["n"],
        "k": cols["k_depth"],
        "a_bytes": size / np.where(right, 1.0, cols["taps"]),
        "b_bytes": size / np.where(right, cols["taps"], 1.0),
        "out_bytes": size,
        "read_bytes": cols["read_bytes"],
        "write_bytes": cols["write_bytes"],
        "flops": cols["flops"],
        "bias": np.zeros_like(size),
    }


def fused_product(cols: Columns, blocks: Column) -> dict[str, Column]:
    """Fused Winograd as one product of 16 rows a tile: a block of 32 tiles and 32 channels is a tile of 512 x 32.

    A block of 4 x 8 tiles reads 10 x 18 inputs a channel and makes 16 of each 2x2 tile from them; filters come
    transformed, 16 for 9.
    """
    size = cols["bytes"]
    return {
        "b": np.ones_like(size),
        "m": blocks * FUSED_TILES * 16.0,
        "n": cols["k"],
        "k": cols["c"],
        "a_bytes": size * (10.0 * 18.0 / FUSED_TILES) / 16.0,
        "b_bytes": size * 16.0,
        "out_bytes": size,
        "read_bytes": cols["read_bytes"] + size * cols["weight_elements"] * (16.0 - 9.0) / 9.0,
        "write_bytes": cols["write_bytes"],
        "flops": cols["flops"],
        "bias": np.zeros_like(size),
    }


def staged_product(cols: Columns) -> dict[str, Column]:
    """The 36 products of Winograd in steps."""
    size, rows, c, k = cols["bytes"], cols["staged_rows"], cols["c"], cols["k"]
    return {
        "b": np.full_like(size, 36.0),
        "m": rows,
        "n": k,
        "k": c,
        "a_bytes": size,
        "b_bytes": size,
        "out_bytes": size,
        "read_bytes": 36.0 * size * (rows * c + c * k),
        "write_bytes": 36.0 * size * rows * k,
        "flops": 72.0 * rows * c * k,
        "bias": np.zeros_like(size),
    }


FUSED_TILE = np.array([[FUSED_CHANNELS], [FUSED_TILES * 16.0], [256.0], [1.0]])
_FUSED_OCCUPANCY = 2.0  # 16,384 accumulators a block, of the 32,768 that an SM holds beside everything else


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of the algorithms in us, shape (len(ALGORITHMS), kernels), inf where one isn't possible, and parts."""

    all_us: Column
    direct: Mapping[str, Column]
    fused: Mapping[str, Column]
    staged: Mapping[str, Column]
    transforms_us: Column
    traffic_us: Column


def _algorithms(cols: Columns, gpu: GpuSpec, c: Constants) -> Times:
    unit = machine(gpu)
    constants = c
    direct_tile, staged_tile = tile_of(cols, "direct"), tile_of(cols, "staged")
    direct = product_times(direct_product(cols), unit, constants, direct_tile)
    direct["compute"] = direct["compute"] * c["direct_overhead"]
    amd = gpu.vendor == "AMD"
    if amd:
        volume = np.where(cols["rank"] > 2, c["amd_volume_overhead"], 1.0)
        direct["compute"] = direct["compute"] * volume * (1.0 if unit.is_matrix else c["amd_lanes_overhead"])
    direct_us = joined_product(direct, constants, direct_tile[3])

    fused, fused_us = fused_times(cols, gpu, c)

    staged = product_times(staged_product(cols), unit, constants, staged_tile)
    staged["compute"] = staged["compute"] * c["staged_overhead"]
    size, rows = cols["bytes"], cols["staged_rows"]
    transformed = (
        cols["input_elements"]
        + cols["output_elements"]
        + 36.0 * rows * (cols["c"] + cols["k"])
        + (36.0 + 9.0) * cols["c"] * cols["k"]
    )
    transforms_us = 1e6 * size * transformed / (c["transform_efficiency"] * unit.bytes_per_s) + 3.0 * c["step_us"]
    staged_us = joined_product(staged, constants, staged_tile[3]) + transforms_us

    element_us, traffic_us = element_times(cols, gpu, c, c["element_efficiency"])
    possible = cols["winograd"] > 0
    return Times(
        all_us=np.stack(
            [
                direct_us,
                np.where(possible, fused_us, np.inf),
                np.where(possible & (not amd), staged_us, np.inf),
                np.where(cols["groups"] > 1.0, element_us, np.inf),
            ]
        ),
        direct=direct,
        fused=fused,
        staged=staged,
        transforms_us=transforms_us,
        traffic_us=traffic_us,
    )


def fused_times(cols: Columns, gpu: GpuSpec, c: Constants) -> tuple[dict[str, Column], Column]:
    """Fused Winograd: its parts in s, and its time in us."""
    unit = machine(gpu)
    # AMD's kernels are written for the vector lanes
    lanes = replace(
        unit,
        flops_per_s=gpu.peak_flops_per_s["fp32"],
        is_matrix=False,
        energy_scale=process_energy(unit.process_nm),
    )
    tile = np.broadcast_to(FUSED_TILE, (4, cols["k"].size))
    fused = product_times(fused_product(cols, fused_blocks(cols, gpu)), lanes, c, tile)
    fused["compute"] = fused["compute"] * c["fused_overhead"]
    return fused, joined_product(fused, c, np.ones_like(cols["k"])) + c["step_us"]


def element_times(cols: Columns, gpu: GpuSpec, c: Constants, efficiency: Column | float) -> tuple[Column, Column]:
    """A kernel of a thread an element, ``efficiency`` multiply-adds a lane and clock: its time, and DRAM's, in us."""
    traffic = (cols["read_bytes"] + cols["write_bytes"]) / (c["dram_efficiency"] * machine(gpu).bytes_per_s)
    lanes_per_s = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
    arithmetic = cols["macs"] / (lanes_per_s * efficiency)
    joined = (traffic ** c["norm"] + arithmetic ** c["norm"]) ** (1.0 / c["norm"])
    return c["floor_us"] + 1e6 * joined, 1e6 * traffic


TILE = ("n", "m", "threads", "split")


def tile_of(cols: Columns, kind: str) -> NDArray[np.float64]:
    return np.stack([cols[f"{kind}_{name}"] for name in TILE])


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Columns with the chosen tiles of implicit GEMM and of Winograd's products in them."""
    found = dict(cols)
    for kind, tiles, product in (
        ("direct", convolution_tiles(gpu), direct_product(cols)),
        ("staged", winograd_tiles(gpu), staged_product(cols)),
    ):
        tile = choose_from(candidates(tiles, split=False), product, gpu, constants)
        if kind == "direct" and np.any(cols["weight_gradient"]):
            shared_out = choose_from(candidates(tiles, split=True), product, gpu, constants)
            tile = np.where(cols["weight_gradient"] > 0, shared_out, tile)
        if kind == "direct" and gpu.vendor == "NVIDIA":
            one_tap, whole = cols["one_tap"] > 0.0, cols["whole_image"] > 0.0
            if np.any(one_tap):
                menu = candidates(tiles, split=True)
                tile = np.where(one_tap, choose_from(menu, product, gpu, constants, split_blocks=PLAIN_BLOCKS), tile)
            if np.any(whole):
                menu = candidates(fp32_tiles(gpu, batched=False, fused_bias=False), split=True, splits=DEEP_SPLITS)
                tile = np.where(whole, choose_from(menu, product, gpu, constants), tile)
        found |= {f"{kind}_{name}": tile[i] for i, name in enumerate(TILE)}
    return found


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline, with Winograd's multiply-adds where it applies: a 3x3 convolution may beat the direct FLOP count."""
    unit = machine(gpu)
    flops = cols["flops"] / np.where(cols["winograd"] > 0, WINOGRAD_SAVING, 1.0)
    memory = (cols["read_bytes"] + cols["write_bytes"]) / unit.bytes_per_s
    return 1e6 * np.maximum(flops / unit.flops_per_s, memory)


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer: the quickest of the algorithms."""
    if "direct_n" not in cols:
        cols = pin(cols, gpu, constants)
    times = _algorithms(cols, gpu, constants)
    return answered(
        times,
        cols,
        gpu,
        constants,
        latency_us=times.all_us.min(axis=0),
        ideal_us=ideal_us(cols, gpu),
        kind_log_sd=np.hypot(cols["gradient_log_sd"], np.where(cols["winograd"] > 0, 0.0, KIND_LOG_SD)),
        element_log_sd=np.hypot(cols["gradient_log_sd"], ELEMENT_LOG_SD),
    )


def answered(
    times: Times,
    cols: Columns,
    gpu: GpuSpec,
    constants: Constants,
    *,
    latency_us: Column,
    ideal_us: Column,
    kind_log_sd: Column,
    element_log_sd: Column,
) -> LawResult:
    """The answer from the algorithms' times, with the tile and the parts of the quickest one.

    ``kind_log_sd``: doubt (log) beside that of clocks, ``element_log_sd`` that of a kernel per output element.
    """
    best = np.argmin(times.all_us, axis=0)
    unit = machine(gpu)
    threads = 256.0
    count = latency_us.size
    tiles = np.stack(
        [
            tile_of(cols, "direct"),
            np.broadcast_to(FUSED_TILE, (4, count)),
            tile_of(cols, "staged"),
            np.broadcast_to(np.array([[1.0], [threads], [threads], [1.0]]), (4, count)),
        ]
    )
    blocks = np.stack(
        [
            times.direct["blocks"],
            times.fused["blocks"],
            times.staged["blocks"],
            np.ceil(cols["output_elements"] / threads),
        ]
    )
    resident = np.stack(
        [
            times.direct["occupancy"],
            np.full(count, _FUSED_OCCUPANCY),
            times.staged["occupancy"],
            np.full(count, max(gpu.max_threads_per_sm / threads, 1.0)),
        ]
    )
    zero = np.zeros(count)
    compute = 1e6 * np.stack([times.direct["compute"], times.fused["compute"], times.staged["compute"], zero])
    memory = np.stack(
        [
            1e6 * times.direct["memory"],
            1e6 * times.fused["memory"],
            1e6 * times.staged["memory"] + times.transforms_us,
            times.traffic_us,
        ]
    )
    l2 = 1e6 * np.stack([times.direct["l2"], times.fused["l2"], times.staged["l2"], zero])
    level = np.stack([times.direct["level"], times.fused["level"], times.staged["level"], np.ones(count)])
    every = np.arange(count)
    element = ALGORITHMS.index("element")
    tile = tiles[best, :, every].T
    blocks = blocks[best, every]
    return LawResult(
        latency_us=latency_us,
        ideal_us=ideal_us,
        parts_us={
            "compute": np.where(best == element, times.all_us[element] - constants["floor_us"], compute[best, every]),
            "memory": memory[best, every],
            "l2": l2[best, every],
            "launch": np.full(count, constants["floor_us"]),
        },
        tile={"n": tile[0], "m": tile[1], "threads": tile[2], "split_k": tile[3]},
        tile_count=blocks,
        wave_count=np.maximum(np.ceil(blocks / (unit.sm_count * resident[best, every])), 1.0),
        doubt_log_sd=np.hypot(
            doubt(unit, level[best, every], compute[best, every] / latency_us),
            np.where(best == element, element_log_sd, kind_log_sd),
        ),
    )


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features)."""
    if "direct_n" not in cols:
        cols = pin(cols, gpu, constants)
    unit = machine(gpu)
    times = _algorithms(cols, gpu, constants)
    direct, fused, staged = times.direct, times.fused, times.staged
    base, fused_us, staged_us, element_us = times.all_us
    per_sm = direct["blocks"] / unit.sm_count
    fused_per_sm = fused["blocks"] / (unit.sm_count * _FUSED_OCCUPANCY)
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


CONV = Law(
    kernel_class="conv",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
)
