"""The law of convolutions on matrix units (tensor cores, matrix cores): 16-bit floats, TF32, 8-bit.

Input (n, c, *spatial), weight (k, c / g, *filter), output (n, k, *out); gradients are the products of
``kernels.Conv.implicit_gemm``. Three kinds of kernel compete, and their soft minimum is what a library takes:

- implicit GEMM, ``(b, m, k) @ (b, k, n) -> (b, m, n)`` with a group an entry of the batch: the law of products on
  matrix units, with the convolution's own bytes (its input comes from DRAM once, and from L2 once a filter tap), tiles
  that are narrow where channels are few, and channels padded to what a matrix instruction and a load of 16 bytes take;
  NVIDIA's library packs groups of few channels in one tile;
- on AMD, a product an image of the batch, with the taps gathered (im2col) or scattered (col2im) by a kernel of its own
  where the filter has several: the only one that MIOpen has for three spatial axes. On NVIDIA the same for a filter of
  one tap in 16 and 8 bits, a batch of products of (k, c) by (c, positions) on tensors as they lie;
- a kernel per output element on vector lanes, for depthwise convolutions and their like, whose reduction is too short
  for a matrix unit. Integer arithmetic for addresses bounds it, or DRAM.

NVIDIA's kernels of implicit GEMM read (n, *spatial, c): what they read of tensors that lie as (n, c, *spatial) is
transposed before by kernels of the library's own, and since Ampere what they write as well. AMD's library has kernels
for both.

Everything is vectorised over kernels; inside, arrays have shape (candidates, kernels).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Conv, Kernel
from neusight_onnx.laws import tensor_gemm
from neusight_onnx.laws.bandwidth import memory_family
from neusight_onnx.laws.base import Column, Columns, Constant, Constants, Law, LawResult
from neusight_onnx.laws.elementwise import integer_lanes_per_sm
from neusight_onnx.tiling import (
    MATRIX_CORE_WEIGHT_SPLITS,
    Tile,
    matrix_unit_candidates,
    matrix_unit_convolution_tiles,
    matrix_unit_weight_gradient_tiles,
)

_UNUSED = (
    "convert_us",
    "convert_passes",
    "unpack_overhead",
    "narrow_overhead",
    "step_ns",
    "l2_stream_bytes_per_clock",
)

CONSTANTS: tuple[Constant, ...] = (
    # products are measured better than convolutions; on GPUs by NVIDIA these are those that products gave
    *(constant for constant in tensor_gemm.CONSTANTS if constant.name not in _UNUSED),
    Constant(
        name="latency_warps",
        prior=0.3,
        prior_log_sd=0.5,
        source="share of a full SM's time that is added where one 128x64 tile alone is on it; fitted",
    ),
    Constant(
        name="resident_gain",
        prior=4.0,
        prior_log_sd=0.3,
        source="rate of filters that L2 still holds, over the DRAM rate; as products of few rows on an L40S; fitted",
    ),
    Constant(
        name="index_overhead",
        prior=1.15,
        prior_log_sd=0.2,
        source="implicit GEMM against a plain product: addresses of taps, bounds; the FP32 law's prior; fitted",
    ),
    Constant(
        name="tap_channels",
        prior=8.0,
        prior_log_sd=0.5,
        source="steps of k that a further tap of the filter costs, its addresses anew and a chunk of channels begun, "
        "which is most where channels are few; fitted",
    ),
    Constant(
        name="data_overhead",
        prior=1.1,
        prior_log_sd=0.2,
        source="the gradient of the input against the forward pass of the same product; fitted",
    ),
    Constant(
        name="weight_overhead",
        prior=1.2,
        prior_log_sd=0.2,
        source="the gradient of the weight against the forward pass of the same product; fitted",
    ),
    Constant(
        name="volume_overhead",
        prior=1.3,
        prior_log_sd=0.3,
        source="implicit GEMM over three spatial axes against two: a third division an address; no row shows it",
    ),
    Constant(
        name="call_us",
        prior=38.0,
        prior_log_sd=0.3,
        source="a call of AMD's library of products from the one of convolutions: the smallest take 40-60 us; fitted",
    ),
    Constant(name="image_us", prior=8.0, prior_log_sd=0.4, source="launch of a product an image beyond it; fitted"),
    Constant(
        name="gather_us",
        prior=22.0,
        prior_log_sd=0.4,
        source="launch of the kernel that gathers an image's taps: such convolutions take 28-40 us an image; fitted",
    ),
    Constant(
        name="gather_operations",
        prior=170.0,
        prior_log_sd=0.4,
        source="lane operations an element that is gathered: 110 GB/s on an MI210 for large images; fitted",
    ),
    Constant(
        name="transpose_efficiency",
        prior=0.7,
        prior_log_sd=0.2,
        source="share of DRAM's peak at which the library transposes input and output, each read and written once: a "
        "tiled transpose comes near a copy; no public row shows it, fitted where own measurements do",
    ),
    Constant(name="step_us", prior=2.0, prior_log_sd=0.3, source="launch of such a kernel, as the floor of others"),
    Constant(
        name="tap_operations",
        prior=6.0,
        prior_log_sd=0.4,
        source="integer operations a tap of a kernel per output element: two bounds, an address, loads; fitted where "
        "depthwise rows are",
    ),
    Constant(
        name="element_operations",
        prior=40.0,
        prior_log_sd=0.4,
        source="and an output element: three divisions for its place; fitted where depthwise rows are",
    ),
    Constant(
        name="choice_norm",
        prior=6.0,
        prior_log_sd=0.0,
        source="a library's choice between kernels is not exact: soft minimum, as the FP32 law's",
    ),
)

_PIPE_PADDING = 16.0
"""Bytes of channels that a load and a matrix instruction take at once: channels are padded to a multiple of it."""

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

_COLUMNS = (
    *("b", "m", "n", "k", "depth", "a_bytes", "b_bytes", "bytes", "pipe", "read_bytes", "write_bytes", "flops"),
    *("taps", "stride", "dilation", "groups", "c_each", "k_each", "batch", "out", "side", "data", "weight"),
    *("taps_met", "padded", "image_m", "image_n", "image_k", "image_b", "images", "gathered", "as_it_lies"),
    *("rank", "channels_last", "transposed_bytes", "ordered_bytes", "macs", "outputs", "burst", "activity"),
    *("first_depth", "back_launches", "zeroed_bytes", "divides", "loaded", "packed_b", "packed_depth"),
)


def _padded(channels: int, element_bytes: float) -> int:
    """Channels as the kernel multiplies them: whole loads of 16 bytes, or a quarter of one for an image's three."""
    whole = int(_PIPE_PADDING / element_bytes)
    few = max(whole // 2, 1)
    return few if channels <= few else ceil(channels / whole) * whole


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Conv kernels as columns: the implicit product, padded and as it is, bytes, and what describes the shape."""
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Conv)
        b, m, n, k = kernel.implicit_gemm
        element = kernel.dtype.bits / 8
        taps = prod(kernel.filter)
        direction = kernel.direction
        is_weight = direction == "weight"
        # the channels that a tap reduces over (of the weight's gradient those that stand beside taps in its columns)
        inner = (n if is_weight else k) / max(_taps_met(kernel, taps), 1.0)
        padded = _padded(max(round(inner), 1), element) / max(inner, 1e-9)
        source, weight, result = kernel.operand_bytes
        # a stride beyond the filter skips input, whose channels lie together
        met = prod(min(1.0, side / step) for side, step in zip(kernel.filter, kernel.strides, strict=True))
        untouched = 0.0 if direction == "data" or kernel.transposed else source * (1.0 - met)
        rows.append(
            (
                b,
                max(m, 1),
                max(n * (padded if is_weight else 1.0), 1.0),
                max(k * (1.0 if is_weight else padded), 1.0),
                max(k, 1),
                # neighbouring taps hit in cache: DRAM gives an element of the input once
                element if is_weight else element / taps,
                element / taps if is_weight else element,
                element,
                float(tensor_gemm.PIPES.index(tensor_gemm.pipe_of_product(kernel))),
                max(kernel.read_bytes - untouched, 1.0),
                kernel.write_bytes,
                max(kernel.flops, 1),
                taps,
                prod(kernel.strides),
                prod(kernel.dilations),
                kernel.groups,
                max(kernel.c // kernel.groups, 1),
                max(kernel.k // kernel.groups, 1),
                max(kernel.n, 1),
                max(prod(kernel.out), 1),
                max(kernel.out[-1], 1),
                _goes_back(kernel),
                is_weight,
                max(_taps_met(kernel, taps), 1.0),
                padded,
                *_image_product(kernel),
                _as_it_lies(kernel),
                len(kernel.out),
                kernel.channels_last,
                {"forward": source, "data": result, "weight": source + result}[direction],
                source + result,
                kernel.macs,
                max((source if direction == "data" else weight if is_weight else result) / element, 1.0),
                kernel.burst,
                kernel.activity,
                _first_depth(kernel),
                float(prod(kernel.strides)) if _goes_back(kernel) and taps > 1 else 1.0,
                (result if kernel.transposed else source) if _goes_back(kernel) and met < 1.0 else 0.0,
                _divides(kernel),
                1.0,
                *_packed(kernel),
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


FIRST_LAYER = 7.5
"""Compute capability from which cuDNN 9.1 has kernels for the first layer of a network over images,
``sm75_xmma_fprop_image_first_layer_*_hmma_k64c4r7s7_stride2x2_tile16x64x64`` and their like for sm80 and sm90: 16, 32
or 64 filters of 3x3 and 7x7 taps, stride 2, four channels (``strings`` of its library of compiled engines)."""
_FIRST_CHANNELS, _FIRST_FILTERS, _FIRST_SIDES = 4, 64, (3, 7)
_INSTRUCTION_DEPTH = 8
"""Depth of the instructions in those kernels (``tensor1688``: 16x8x8)."""


def _first_depth(kernel: Conv) -> float:
    """The reduction of such a kernel, which holds a patch of the image in shared memory: a filter's row is one run of
    its taps' channels, so that no tap begins anew. 0 where there is none.

    Of INT8 only 3x3 is named (``ampere_first_layer_filter3x3_imma_fwd``); that channels are padded to four, not to
    eight, holds for any (TensorRT's format kCHW4), and 7x7 is taken to be alike.
    """
    is_image = kernel.c <= _FIRST_CHANNELS and kernel.k <= _FIRST_FILTERS and kernel.groups == 1
    is_forward = kernel.direction == "forward" and not kernel.transposed and kernel.dtype.bits <= 16
    if not (is_image and is_forward and kernel.strides == (2, 2) and kernel.dilations == (1, 1)):
        return 0.0
    if kernel.filter not in [(side, side) for side in _FIRST_SIDES]:
        return 0.0
    rows, columns = kernel.filter
    return float(rows * ceil(columns * _FIRST_CHANNELS / _INSTRUCTION_DEPTH) * _INSTRUCTION_DEPTH)


PACKED_SIDE = 64
"""Channels in and out of the tiles, 64 x 64 x 64, in which cuDNN 9.1 packs groups. Its kernels
``sm{70,75,80}_xmma_{fprop,dgrad}_*`` for FP16, BF16 and TF32, which later GPUs run as well, have forms ``_g2_`` to
``_g16_``: 2 to 16 groups of 32 to 4 channels a tile."""
_PACKED_DEPTHS = {2: 32, 4: 16, 8: 16, 16: 16}
"""Groups in a tile -> depth that its instructions multiply of the 64 channels of a step. Their cubins have 64 of
m16n8k16 for two groups and 32 for more, where 128 are the whole tile: blocks on the diagonal of 32 and of 16 channels,
so that groups of 8 and of 4 multiply zeros beside them."""
_PACKED_INT8 = (2,)
"""Groups in a tile of INT8, whose m16n8k32 takes a group's 32 channels at once: TensorRT's library has the form
``_g2_`` alone, for sm80 and on (``sm80_xmma_fprop_implicit_gemm_i8i8_i8i32_f32_*_tilesize64x64x64_*_g2_tensor16x8x32``,
TensorRT for RTX 1.7; its ``_g4_`` for sm90, in tiles twice as wide, shares as much)."""
_PACKED_INT8_SINCE = 8.0
_PACKED_LEAST = 4


def _packed(kernel: Conv) -> tuple[float, float]:
    """Tiles' worth of groups where a library packs them, and the depth that a tile multiplies: zeros where it doesn't.

    A group fills its share of a tile at best; more channels than 32 have tiles of their own, fewer than 4 kernels on
    vector lanes.
    """
    _, _, n, k = kernel.implicit_gemm
    taps = max(_taps_met(kernel, prod(kernel.filter)), 1.0)
    width = max(n, k / taps)
    if kernel.groups == 1 or kernel.direction == "weight" or len(kernel.out) > 2 or width < _PACKED_LEAST:
        return 0.0, 0.0
    if kernel.dtype.bits < 16 and (kernel.dtype is not DataType.INT8 or kernel.direction != "forward"):
        return 0.0, 0.0
    counts = _PACKED_INT8 if kernel.dtype is DataType.INT8 else _PACKED_DEPTHS
    fitting = [count for count in counts if PACKED_SIDE // count >= width]
    if not fitting:
        return 0.0, 0.0
    count = max(fitting)
    return float(ceil(kernel.groups / count)), _PACKED_DEPTHS[count] * taps


def _image_product(kernel: Conv) -> tuple[float, ...]:
    """(m, n, k, b) of the product for one image, how many of them there are, and the taps' elements gathered for one.

    Where each tap is the input itself, forward and the gradient of the input are one product with a batch of images.
    """
    taps, groups = prod(kernel.filter), kernel.groups
    c, k, out = kernel.c // groups, kernel.k // groups, prod(kernel.out)
    direction = kernel.direction
    if kernel.transposed:
        c, k, out = k, c, prod(kernel.spatial)
    m, n, depth = (out, k, c * taps)
    if direction == "weight":
        m, n, depth = k, c * taps, out
    elif _goes_back(kernel):
        m, n, depth = out, c * taps, k
    plain = taps == 1 and prod(kernel.strides) == 1
    gathered = 0.0 if plain else float(groups * c * taps * out)
    batched = plain and direction != "weight"
    entries, images = (groups * kernel.n, 1) if batched else (groups, kernel.n)
    return float(max(m, 1)), float(max(n, 1)), float(max(depth, 1)), float(entries), float(images), gathered


def _as_it_lies(kernel: Conv) -> float:
    """Whether NVIDIA's library has a product of (k, c) by (c, positions) for it where it lies as (n, c, *spatial): 2
    where an image's positions are whole vectors of 16 bytes, 1 where they aren't, 0 if not at all.

    cuDNN 9.1 has an engine ``Conv1x1AsGemm`` for it (forward and the input's gradient), which calls the library of
    products; that takes any alignment on matrix units since cuBLAS 11. For Volta and Turing it has kernels besides,
    ``*_filter1x1_stg8_interior_nchw_nn_v1``, which load and store whole vectors.
    """
    plain = prod(kernel.filter) == 1 and prod(kernel.strides) == 1 and kernel.groups == 1
    narrow = kernel.dtype.bits <= 8 * WIDEST_TRANSPOSED_BYTES
    if not (plain and narrow) or kernel.direction == "weight" or kernel.channels_last:
        return 0.0
    return 2.0 if prod(kernel.out) * kernel.dtype.bits % 128 == 0 else 1.0


def _goes_back(kernel: Conv) -> bool:
    """Whether it works from an output's grid to an input's: a gradient of the input, or forward if transposed."""
    return kernel.direction != "weight" and (kernel.direction == "data") != kernel.transposed


def _divides(kernel: Conv) -> bool:
    """Whether the kernel in HIP for an input's gradient takes it, which pads nothing (MIOpen's
    ``ConvHipImplicitGemmBwdDataV4R1Xdlops``): positions by 16, channels by 8.

    It is the only one of implicit GEMM for bfloat16 on an MI100, and none of the 1,521 convolutions there whose
    positions aren't a multiple of 16 has it, of others .7 (find database; channels below 8: none of 1,038).
    """
    positions = kernel.n * prod(kernel.spatial if kernel.transposed else kernel.out)
    return not (positions % 16 or kernel.c // kernel.groups % 8 or kernel.k // kernel.groups % 8)


def _taps_met(kernel: Conv, taps: int) -> float:
    """Taps that a result meets: all of them, but of the gradient of a strided input its share."""
    if kernel.direction == "weight":
        return float(taps)
    if not _goes_back(kernel):
        return float(taps)
    channels = (kernel.c if kernel.transposed else kernel.k) // kernel.groups
    return kernel.implicit_gemm[3] / max(channels, 1)


def serves(gpu: GpuSpec, dtype: DataType) -> bool:
    """Whether the GPU has a matrix unit for convolutions of the number format."""
    return tensor_gemm.serves(gpu, dtype)


_CHUNK = 128
_PARTS = ("compute", "memory", "l2", "issue")


def _times(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    *,
    slower: NDArray[np.float64] | float = 1.0,
    waiting: NDArray[np.float64] | float = 1.0,
) -> dict[str, NDArray[np.float64]]:
    """Competing times of implicit GEMM in s; ``tile`` is (n, m, threads, split) of any common shape.

    ``slower``: time of the matrix instructions that the kernel has over that of the format's fastest. ``waiting``: how
    long its steps wait for loads, over those of others.
    """
    t1, t2, _, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    # in the weight's gradient taps lie along n, whose tiles they don't change; MIOpen's threads keep their tap along k
    kept = cols["weight"] if gpu.compute_capability is None else 0.0
    begun = c["tap_channels"] * 2.0 / cols["bytes"] * (cols["taps_met"] - 1.0) * (1.0 - kept)
    k = k * (1.0 + begun / np.where(cols["weight"] > 0, n, k))
    if (gpu.compute_capability or 0.0) >= FIRST_LAYER:
        k = np.where(cols["first_depth"] > 0.0, cols["first_depth"], k)
    sms = float(gpu.sm_count)
    peak = tensor_gemm.peaks(gpu, cols["pipe"]) / slower
    blocks = b * np.ceil(n / t1) * np.ceil(m / t2) * z
    kz = k / z
    occupancy = np.clip(tensor_gemm.RESIDENT_ELEMENTS / (t1 * t2), 1.0, 8.0)
    per_sm = np.ceil(blocks / sms)
    in_flight = np.clip(blocks / sms, 1.0, occupancy) * t1 * t2 / 8192.0
    smallness = 32.0 * (1.0 / t1 + 1.0 / t2)
    exposed = tensor_gemm.exposed_shares(gpu, cols["pipe"], cols["bytes"])
    amd = gpu.compute_capability is None
    kind = c["index_overhead"] * c["data_overhead"] ** cols["data"] * c["weight_overhead"] ** cols["weight"]
    if amd:
        # a filter of one tap has no addresses of its own to make
        kind = np.where(cols["taps_met"] > 1.0, kind, c["weight_overhead"] ** cols["weight"])
    kind = kind * np.where(cols["rank"] > 2.0, c["volume_overhead"], 1.0)
    # integer operations and loads, in the shadow of a halved pipe's instructions as far as those of tiles are
    kind = 1.0 + exposed * (kind - 1.0)
    steady = c["pipe_overhead"] * kind * (1.0 + exposed * c["tile_overhead"] * smallness ** c["tile_exponent"])
    around = c["epilogue_k"] * tensor_gemm.rate_share(gpu, cols["pipe"], cols["bytes"]) * 2.0 / cols["bytes"]
    beside = steady - 1.0 + exposed * c["latency_warps"] / in_flight
    clocks = tensor_gemm.clocks_over_cdna(gpu, peak, cols["bytes"]) if amd else 1.0
    steps = kz * (1.0 + clocks * beside) + around * clocks * (1.0 + beside)
    full_s = per_sm * 2.0 * t1 * t2 * steps * sms / peak

    unique = cols["read_bytes"] + cols["write_bytes"]
    rate = _dram_rate(cols, gpu, c) * (blocks / (sms * per_sm)) ** c["idle_loss"]
    entry = cols["a_bytes"] * m * k + cols["b_bytes"] * n * k
    waves = np.maximum(np.ceil(blocks / (sms * occupancy)), 1.0)
    wave_blocks = np.minimum(sms * occupancy, blocks)
    grid_n, grid_m = np.ceil(n / t1), np.ceil(m / t2)
    wave_n = np.clip(np.sqrt(wave_blocks * t2 / t1), 1.0, grid_n)
    wave_m = np.clip(wave_blocks / wave_n, 1.0, grid_m)
    wave_n = np.clip(wave_blocks / wave_m, 1.0, grid_n)
    entries = np.maximum(wave_blocks / (wave_n * wave_m), 1.0)
    reload = waves * entries * kz * (wave_n * t1 * cols["b_bytes"] + wave_m * t2 * cols["a_bytes"])
    spill = c["reload_knee"] * entry / gpu.l2_bytes
    extra = np.maximum(reload - unique, 0.0) * spill / (1.0 + spill)
    memory_s = (unique + extra + np.where(z > 1.0, 4.0 * b * m * n * z, 0.0)) / rate
    panels = kz * (t1 + t2 * cols["loaded"]) * cols["bytes"]
    l2_s = per_sm * panels / (c["l2_bytes_per_clock"] * gpu.clock_hz)
    flops = 2.0 * b * m * n * cols["depth"]
    issue_s = (
        _issue_s(cols, gpu, c, per_sm * kz * (t1 + t2), _steps(cols, gpu, peak, waves * kz * waiting))
        if amd
        else np.zeros_like(l2_s)
    )
    waits_s = (memory_s, l2_s, issue_s)
    pipe_s, level = tensor_gemm.pipe_seconds(cols, gpu, c, flops=flops, boost_s=full_s, waits_s=waits_s)
    return {
        "compute": pipe_s,
        "memory": memory_s,
        "l2": l2_s,
        "issue": issue_s,
        "blocks": blocks,
        "occupancy": occupancy,
        "kz": kz,
        "level": level,
        "launch": np.full(blocks.shape, c["floor_us"] * (1.0 if amd else (1.7e9 / gpu.clock_hz) ** _FLOOR_EXPONENT))
        + np.where(z > 1.0, c["split_us"], 0.0)
        + (_back_us(cols, gpu, c) if amd else 0.0),
    }


def _steps(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, peak: NDArray[np.float64], k: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Elements of k that blocks go through one after the other, as many at once as on CDNA.

    Kernels take so much of k at once that its products hide its loads: faster matrix cores, deeper steps (tiles of CK
    and hipBLASLt are 64 deep for CDNA3 where CDNA's were 32, names of kernels as remembered).
    """
    found: NDArray[np.float64] = k / np.maximum(tensor_gemm.rate_over_cdna(gpu, peak, cols["bytes"]), 1.0)
    return found


def _issue_s(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    fetched: NDArray[np.float64],
    steps: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Time in s that MIOpen's kernels take to fetch and store by instructions of vector lanes, at the clock: elements
    that a compute unit fetches into tiles (``fetched``), those that are moved at all, and ``steps`` of k that blocks go
    through one after the other.

    Convolutions that multiply little move 820-890 GB/s on MI100 and on MI210, which have as many lanes times clock but
    1,229 and 1,638 GB/s of DRAM: it isn't memory that bounds them.
    """
    lanes = gpu.fp32_lanes_per_sm * gpu.clock_hz
    moved = (cols["read_bytes"] + cols["write_bytes"]) / cols["bytes"]
    elements_s = (fetched * c["fetch_operations"] + moved / gpu.sm_count * c["move_operations"]) / lanes
    tap = np.where(cols["taps_met"] > 1.0, c["tap_step"] * c["data_step"] ** cols["data"], 1.0)
    found: NDArray[np.float64] = elements_s + steps * cols["bytes"] * c["step_ns"] * tap * 1e-9
    return found


def _back_us(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants) -> NDArray[np.float64]:
    """What a gradient of a strided input has beside its product, in us: a launch for each place in the stride, whose
    taps are others; where the stride skips input, zeros that are written before by a kernel of its own, and lines of
    which the product writes a part."""
    zeroed = cols["zeroed_bytes"]
    zeros_us = np.where(zeroed > 0.0, c["step_us"] + 2e6 * zeroed / _dram_rate(cols, gpu, c), 0.0)
    found: NDArray[np.float64] = (cols["back_launches"] - 1.0) * c["step_us"] + zeros_us
    return found


def has_first_bf16(gpu: GpuSpec) -> bool:
    """Whether an AMD GPU has CDNA's first instructions for bfloat16, at half the rate of float16 (MI100).

    MIOpen's assembled kernels, and those that MLIR makes, want the later ones (``v_mfma_f32_*_bf16_1k``): no solver of
    either kind is among the MI100's 20,000 convolutions in bfloat16, while they run most of its float16 and of the
    MI210's bfloat16 (find database).
    """
    peaks = gpu.peak_flops_per_s
    return gpu.compute_capability is None and peaks.get("bf16", 0.0) < peaks.get("fp16", 0.0)


_FIRST_BF16_RATE = 0.5
"""MIOpen's compiled kernels multiply bfloat16 by CDNA's first instructions on CDNA2, too, at half the rate of float16:
there 1x1 convolutions that the same solver runs in both take 1.2-1.4 times as long, those of assembled kernels 1.0."""


def _compiled_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Implicit GEMM by kernels that a compiler made, which read tensors as they lie, in us. AMD's library has them.

    Channels and taps are one dimension to them, so that neither is padded or begun anew. Their other instructions take
    ``compiled_overhead`` times as long as float16's matrix instructions, with which they compete, and no longer where
    those are slower.
    """
    along = cols["weight"] > 0
    merged = {
        **cols,
        "n": np.where(along, cols["n"] / cols["padded"], cols["n"]),
        "k": np.where(along, cols["k"], cols["k"] / cols["padded"]),
    }
    own = {**c, "tap_channels": 0.0, "pipe_overhead": c["pipe_overhead"] * c["compiled_overhead"]}
    # MLIR makes none for bfloat16 there; what is left, in HIP, has fewer loads in flight
    waiting = np.where(_is_first_bf16(cols, gpu), c["first_waiting"], 1.0)
    return _joined_us(_times(merged, gpu, own, tile, slower=_compiled_slower(cols, gpu), waiting=waiting), c)


def _has_no_product(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Gradients of inputs that no kernel of implicit GEMM on an AMD GPU takes (:func:`_divides`)."""
    alone = _is_first_bf16(cols, gpu) & has_first_bf16(gpu)
    found: NDArray[np.bool_] = alone & (cols["data"] > 0) & (cols["divides"] == 0)
    return found


def _is_first_bf16(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether compiled kernels multiply by CDNA's first instructions for bfloat16."""
    found: NDArray[np.bool_] = np.equal(cols["pipe"], tensor_gemm.PIPES.index("bf16")) & (gpu.process_nm >= _CDNA2_NM)
    return found


def _stated_slower(cols: Columns, gpu: GpuSpec) -> NDArray[np.float64]:
    """Time of bfloat16's fastest matrix instructions over float16's; 1 for other formats."""
    peaks = gpu.peak_flops_per_s
    bf16 = np.equal(cols["pipe"], tensor_gemm.PIPES.index("bf16")) & ("bf16" in peaks and "fp16" in peaks)
    found: NDArray[np.float64] = np.where(bf16, peaks.get("fp16", 1.0) / peaks.get("bf16", 1.0), 1.0)
    return found


def _compiled_slower(cols: Columns, gpu: GpuSpec) -> NDArray[np.float64]:
    """Time of the matrix instructions of compiled kernels over that of the format's fastest."""
    slower = np.maximum(1.0 / _FIRST_BF16_RATE / _stated_slower(cols, gpu), 1.0)
    found: NDArray[np.float64] = np.where(_is_first_bf16(cols, gpu), slower, 1.0)
    return found


_CDNA2_NM = 6.0
"""Process of CDNA2, of which no later GPU of AMD's with matrix units is made."""


def _dram_rate(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants) -> NDArray[np.float64]:
    """Bytes/s from DRAM, or from L2 where the operands still lie there from the kernel (or repetition) before."""
    fill = (cols["read_bytes"] + cols["write_bytes"]) / gpu.l2_bytes
    resident = 1.0 / (1.0 + (fill / _RESIDENT_FILL) ** _RESIDENT_SHARPNESS)
    efficiency = memory_family(gpu).fraction if gpu.compute_capability is None else c["dram_efficiency"]
    rate = efficiency * tensor_gemm.stream_gain(gpu) * gpu.memory_bytes_per_s
    found: NDArray[np.float64] = rate * c["resident_gain"] ** resident
    return found


_FLOOR_EXPONENT = 0.5
"""Part of the floor goes with the clock (instructions), part doesn't (memory latency)."""

_RESIDENT_FILL = 0.92
"""Share of L2 up to which tensors stay, as weights of products do on an L40S."""
_RESIDENT_SHARPNESS = 4.0
"""How sharply that ends as tensors outgrow L2: they leave it line by line, not all at once."""


def _joined_us(parts: Mapping[str, NDArray[np.float64]], c: Constants) -> NDArray[np.float64]:
    """Implicit GEMM in us: launch, and the p-norm of the competing times."""
    times = [parts[name] for name in _PARTS]
    largest = np.maximum.reduce(times)
    total = sum((time / largest) ** c["norm"] for time in times)
    joined: NDArray[np.float64] = parts["launch"] + 1e6 * largest * total ** (1.0 / c["norm"])
    return joined


def _image(cols: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """The product of one image, as the columns of implicit GEMM."""
    m, n, k, element = cols["image_m"], cols["image_n"], cols["image_k"], cols["bytes"]
    zero = np.zeros_like(m)
    return {
        "b": cols["image_b"],
        "m": m,
        "n": n,
        "k": k,
        "a_bytes": element,
        "b_bytes": element,
        "bytes": element,
        "pipe": cols["pipe"],
        "read_bytes": cols["image_b"] * element * k * (m + n),
        "write_bytes": cols["image_b"] * element * m * n,
        "depth": k,
        "taps_met": zero + 1.0,
        "data": zero,
        "weight": zero,
        "rank": zero + 2.0,
        "first_depth": zero,
        "loaded": zero + 1.0,
        "back_launches": zero + 1.0,
        "zeroed_bytes": zero,
        "burst": cols["burst"],
        "activity": cols["activity"],
    }


def _images_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> Column:
    """All images one after the other: their products, and the gathering of their taps; on NVIDIA the batch of products
    on tensors as they lie."""
    if gpu.compute_capability is not None:
        allowed = cols["as_it_lies"] > (1.0 if gpu.compute_capability < NHWC_ALONE else 0.0)
        if not np.any(allowed):
            return np.full(cols["m"].shape, np.inf)
        return np.where(allowed, _joined_us(_image_times(cols, gpu, c, tile), c), np.inf)
    one = _joined_us(_image_times(cols, gpu, c, tile), _image_constants(gpu, c))
    gathered = cols["gathered"]
    moved_s = 2.0 * gathered * cols["bytes"] / (c["gather_efficiency"] * gpu.memory_bytes_per_s)
    gather = np.where(gathered > 0, c["gather_us"] * _launch_slowness(gpu) + 1e6 * moved_s, 0.0)
    return c["call_us"] * _launch_slowness(gpu) + cols["images"] * (one + gather)


def _launch_slowness(gpu: GpuSpec) -> float:
    """Time of a launch on AMD against one at 1.7 GHz: command processors run at the GPU's clock.

    The smallest FP32 kernels take an MI100 16 us and an MI210 14, the ratio of their clocks (NeuSight's data).
    """
    return 1.7e9 / gpu.clock_hz


def _image_times(
    cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    return _times(_image_columns(cols, gpu), gpu, _image_constants(gpu, c), tile)


def _image_columns(cols: Columns, gpu: GpuSpec) -> dict[str, NDArray[np.float64]]:
    """As :func:`_image`; NVIDIA's batch shares the weights, which are read once."""
    found = _image(cols)
    if gpu.compute_capability is None:
        return found
    return {**found, "read_bytes": cols["read_bytes"], "write_bytes": cols["write_bytes"]}


def _image_constants(gpu: GpuSpec, c: Constants) -> dict[str, float]:
    """Constants of an image's product: a plain one."""
    plain = {**c, "index_overhead": 1.0}
    if gpu.compute_capability is not None:
        return plain
    return {**plain, "floor_us": c["image_us"] * _launch_slowness(gpu)}


WIDEST_TRANSPOSED_BYTES = 2.0
"""Wider elements (TF32) have kernels that read (n, c, *spatial): cuDNN's names end in nchwkcrs_nchw."""


NHWC_ALONE = 8.0
"""Compute capability from which cuDNN's 16-bit kernels of implicit GEMM know one order, ``*_nhwckrsc_nhwc_*``,
``*_nhwc_tn_v1`` and CUTLASS's ``*_nhwc_align8``. Below it they write the one that is asked for: ``*_nhwc2nchw_tn_v1``
are in its cubins for 7.5, in none for 8.0 and 8.6 (cuDNN 9.1, ``cuobjdump -symbols``), which have
``nhwcToNchwKernel``."""


def _transposes_us(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """What a convolution reads beside weights into (n, *spatial, c) order, and what it writes back, where the library
    has to."""
    if gpu.compute_capability is None:
        moved = 2.0 * cols["ordered_bytes"]
        lanes = gpu.sm_count * gpu.fp32_lanes_per_sm * gpu.clock_hz
        issue_s = moved / cols["bytes"] * c["transpose_operations"] / lanes
        # the weight as well, by a launch of its own
        us = 3.0 * c["step_us"] + 1e6 * np.maximum(issue_s, moved / _dram_rate(cols, gpu, c))
        return np.where(cols["channels_last"] > 0, 0.0, us)
    rate = _dram_rate(cols, gpu, c) / c["dram_efficiency"] * c["transpose_efficiency"]
    both = 2.0 * c["step_us"] + 1e6 * 2.0 * cols["ordered_bytes"] / rate
    us = both
    if gpu.compute_capability < NHWC_ALONE:
        us = (1.0 + cols["weight"]) * c["step_us"] + 1e6 * 2.0 * cols["transposed_bytes"] / rate
    as_they_lie = (cols["channels_last"] > 0) | (cols["bytes"] > WIDEST_TRANSPOSED_BYTES)
    return np.where(as_they_lie, 0.0, us)


SHORT_REDUCTION = 64.0
"""Channels of input times output of a group from which on no library has a kernel on vector lanes."""


THREAD_CHANNELS = 8.0
CHANNEL_OPERATIONS = 4.0
"""Channels of a depthwise convolution over (n, h, w, c) that a thread computes, and lane operations that each takes a
tap: its weight is loaded and widened, its input widened, multiplied and added. The place of the result, and of each
tap its bounds, its address and one load of 16 bytes, are the thread's. So does NVIDIA's kernel for 16 bits that
TensorRT for RTX 1.7 holds as text and compiles when it is used (``depthwise_conv_fp16_nhwc``, eight elements a thread);
the 8 bits of an engine, packed by 4 or 32 channels (``kCHW4``, ``kCHW32`` of its formats), are taken to be no worse."""


def _by_channels(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Depthwise convolutions whose threads have several channels: forward, in 16 and 8 bits as whole vectors lie."""
    if gpu.compute_capability is None:
        return np.zeros(cols["groups"].shape, dtype=np.bool_)
    depthwise = (cols["groups"] > 1) & (cols["c_each"] == 1) & (cols["k_each"] == 1) & (cols["weight"] == 0)
    found: NDArray[np.bool_] = (
        depthwise & (cols["channels_last"] > 0) & (cols["bytes"] <= 2) & (np.mod(cols["groups"], THREAD_CHANNELS) == 0)
    )
    return found


def _element_us(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """A kernel per output element, or one per eight channels of it: index arithmetic of each tap, or DRAM."""
    traffic = (cols["read_bytes"] + cols["write_bytes"]) / _dram_rate(cols, gpu, c)
    lanes = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
    wide = _by_channels(cols, gpu)
    shared = np.where(wide, THREAD_CHANNELS, 1.0)
    of_tap = c["tap_operations"] / shared + np.where(wide, CHANNEL_OPERATIONS, 0.0)
    work = cols["macs"] * of_tap + cols["outputs"] * c["element_operations"] / shared
    norm = c["norm"]
    joined = c["floor_us"] + 1e6 * (traffic**norm + (work / lanes) ** norm) ** (1.0 / norm)
    few = (cols["groups"] > 1) & (cols["c_each"] * cols["k_each"] < SHORT_REDUCTION)
    if gpu.compute_capability is None:
        few = (few | _has_no_product(cols, gpu)) & (cols["rank"] <= 2)
    return np.where(few, joined, np.inf)


_TILE = ("tile_n", "tile_m", "tile_threads", "split_k")
_IMAGE_TILE = tuple(f"image_{name}" for name in _TILE)


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """The columns with the tiles fixed: those of the menu with the smallest time."""
    tiles, of_weight = matrix_unit_convolution_tiles(gpu), matrix_unit_weight_gradient_tiles(gpu)
    menu = matrix_unit_candidates(tiles)
    constants = tensor_gemm.own_constants(gpu, constants)
    tile = _choice(cols, gpu, constants, menu)
    if gpu.compute_capability is None and np.any(cols["weight"]):
        deep = matrix_unit_candidates(tiles, splits=MATRIX_CORE_WEIGHT_SPLITS)
        tile = np.where(cols["weight"] > 0, _choice(cols, gpu, constants, deep), tile)
    elif of_weight != tiles and np.any(cols["weight"]):
        tile = np.where(cols["weight"] > 0, _choice(cols, gpu, constants, matrix_unit_candidates(of_weight)), tile)
    found = {**cols, **dict(zip(_TILE, tile, strict=True))}
    if gpu.compute_capability is not None and np.any(cols["packed_b"]):
        found = _with_packed(found, gpu, constants)
    if gpu.compute_capability is None or np.any(cols["as_it_lies"]):
        images = _choice(_image_columns(cols, gpu), gpu, _image_constants(gpu, constants), menu)
        found |= dict(zip(_IMAGE_TILE, images, strict=True))
    else:
        found |= {name: found[of] for name, of in zip(_IMAGE_TILE, _TILE, strict=True)}
    return found


UNSPLIT = (7.5, 8.0)
"""Compute capabilities (from, below) whose kernels of convolutions and their input's gradients don't split the
reduction."""


def _serial(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether no kernel of NVIDIA's splits the reduction among blocks, for each convolution.

    Turing's don't but for the weight's gradient, in 16 bits nor in 8: cuDNN's Volta kernels have forms for it
    (``volta_s884cudnn_fp16_256x64_ldg8_splitK_relu_*``, ``*_splitK_dgrad_*``), those for Turing none
    (``turing_s1688cudnn_*``, ``turing_h1688cudnn_*``, ``turing_*_i8816cudnn_*``; cuDNN 9.1's library of compiled
    engines). T4's times show it (DeepBench): an element of the reduction takes 26-28 ns whether 4, 7, 13 or 16 tiles
    share the 40 SMs (784 x 128 x 20,800 in 549 us, where a V100 takes 102), and in INT8 512 channels of 3x3 taps over
    7x7 positions 93 us, for one image as for two. From Ampere on kernels of all formats have forms that split
    (``sm80_xmma_fprop_implicit_gemm_*_execute_split_k_kernel``, of FP16, BF16, TF32 and INT8). cuDNN 9 has such for
    Turing's FP16, too, which nothing here measured.
    """
    capability = gpu.compute_capability
    if capability is None or not UNSPLIT[0] <= capability < UNSPLIT[1]:
        return np.zeros(cols["weight"].shape, dtype=np.bool_)
    whole: NDArray[np.bool_] = cols["weight"] == 0.0
    return whole


_PACKED_TILES = (Tile(n=PACKED_SIDE, m=PACKED_SIDE, threads=128),)


def _with_packed(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Columns with tiles, where groups are packed in tiles with the product that this makes of them if it is quicker.

    A tile loads all its channels of the input, of which each output meets its own group's.
    """
    packs = cols["packed_b"] > 0.0
    if (gpu.compute_capability or 0.0) < _PACKED_INT8_SINCE:
        packs &= cols["bytes"] > 1.0
    b, k = np.where(packs, cols["packed_b"], cols["b"]), np.where(packs, cols["packed_depth"], cols["k"])
    n = np.where(packs, float(PACKED_SIDE), cols["n"])
    loaded = np.where(packs, PACKED_SIDE * cols["taps_met"] / k, 1.0)
    packed = {
        **cols,
        "b": b,
        "n": n,
        "k": k,
        "depth": cols["b"] * cols["n"] * cols["depth"] / (b * n),
        "a_bytes": cols["a_bytes"] * loaded,
        "loaded": loaded,
    }
    tile = _choice(packed, gpu, constants, matrix_unit_candidates(_PACKED_TILES))
    plain_us = _joined_us(_times(cols, gpu, constants, np.stack([cols[name] for name in _TILE])), constants)
    packed_us = _joined_us(_times(packed, gpu, constants, tile), constants)
    taken = packs & (packed_us < plain_us)
    packed |= dict(zip(_TILE, tile, strict=True))
    return {name: np.where(taken, packed[name], column) for name, column in cols.items()}


def _choice(cols: Columns, gpu: GpuSpec, constants: Constants, menu: NDArray[np.float64]) -> NDArray[np.float64]:
    """The best of ``menu``, shape (4, candidates), for each kernel: shape (4, kernels)."""
    size = cols["m"].size
    chosen = np.empty((4, size))
    tile = menu[:, :, None]
    for start in range(0, size, _CHUNK):
        rows = slice(start, start + _CHUNK)
        parts = _times({name: column[None, rows] for name, column in cols.items()}, gpu, constants, tile)
        serial = _serial({"weight": cols["weight"][rows]}, gpu)
        useless = (tile[3] > 1.0) & ((parts["kz"] < 64.0) | (parts["blocks"] > 4.0 * gpu.sm_count) | serial)
        best = np.argmin(np.where(useless, np.inf, _joined_us(parts, constants)), axis=0)
        chosen[:, rows] = menu[:, best]
    return chosen


def _tiles(
    cols: Columns, gpu: GpuSpec, constants: Constants
) -> tuple[Columns, NDArray[np.float64], NDArray[np.float64]]:
    """Columns with tiles in them, and those of implicit GEMM and of an image's product, shape (4, kernels)."""
    if "tile_n" not in cols:
        cols = pin(cols, gpu, constants)
    return cols, np.stack([cols[name] for name in _TILE]), np.stack([cols[name] for name in _IMAGE_TILE])


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline: FLOPs at the dense peak of the pipe, what exceeds L2 at the peak of DRAM, whichever takes longer.

    Winograd's saving isn't in it: its transforms run on vector lanes and keep matrix units waiting. Of 250,000 measured
    convolutions a handful is faster than the direct one at the peak, by 8 % at most.
    """
    memory = np.maximum(cols["read_bytes"] + cols["write_bytes"] - gpu.l2_bytes, 0.0) / gpu.memory_bytes_per_s
    return 1e6 * np.maximum(cols["flops"] / tensor_gemm.peaks(gpu, cols["pipe"]), memory)


def _algorithms_us(
    cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64], image_tile: NDArray[np.float64]
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Times of implicit GEMM, of a product an image and of a kernel an element, (3, kernels); the first one's parts."""
    parts = _times(cols, gpu, c, tile)
    product = _joined_us(parts, c) + _transposes_us(cols, gpu, c)
    if gpu.compute_capability is None:
        compiled = _compiled_us(cols, gpu, c, tile)
        bf16 = np.equal(cols["pipe"], tensor_gemm.PIPES.index("bf16"))
        if has_first_bf16(gpu):
            product = np.where(bf16, compiled, np.minimum(product, compiled))
            product = np.where(_has_no_product(cols, gpu), np.inf, product)
        else:
            # no compiled kernel is among the MI210's gradients of inputs in bfloat16
            product = np.where(bf16 & (cols["data"] > 0), product, np.minimum(product, compiled))
        product = np.where(cols["rank"] > 2.0, np.inf, product)
    return np.stack([product, _images_us(cols, gpu, c, image_tile), _element_us(cols, gpu, c)]), parts


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer; ``cols`` may carry pinned tiles."""
    cols, tile, image_tile = _tiles(cols, gpu, constants)
    constants = tensor_gemm.own_constants(gpu, constants)
    times, parts = _algorithms_us(cols, gpu, constants, tile, image_tile)
    least = times.min(axis=0)
    weights = (least / times) ** constants["choice_norm"]
    latency = (weights * np.where(np.isfinite(times), times, 0.0)).sum(axis=0) / weights.sum(axis=0)
    best = np.argmin(times, axis=0)
    by_image, by_element = best == 1, best == 2
    image = _image_times(cols, gpu, constants, image_tile)
    image_launch = image["launch"]
    if gpu.compute_capability is None:
        image_launch = constants["call_us"] + cols["images"] * constants["image_us"]
    threads = 256.0
    shown = np.where(by_image, image_tile, tile)
    blocks = np.where(by_image, cols["images"] * image["blocks"], parts["blocks"])
    of_thread = np.where(_by_channels(cols, gpu), THREAD_CHANNELS, 1.0)
    blocks = np.where(by_element, np.ceil(cols["outputs"] / of_thread / threads), blocks)
    resident = np.where(by_image, image["occupancy"], parts["occupancy"])
    resident = np.where(by_element, max(gpu.max_threads_per_sm / threads, 1.0), resident)
    traffic = 1e6 * (cols["read_bytes"] + cols["write_bytes"]) / _dram_rate(cols, gpu, constants)

    def part(name: str) -> NDArray[np.float64]:
        return 1e6 * np.where(by_image, cols["images"] * image[name], parts[name])

    return LawResult(
        latency_us=latency,
        ideal_us=ideal_us(cols, gpu),
        parts_us={
            "compute": np.where(by_element, times[2] - constants["floor_us"], part("compute")),
            "memory": np.where(
                by_element, traffic, part("memory") + np.where(by_image, 0.0, _transposes_us(cols, gpu, constants))
            ),
            "l2": np.where(by_element, 0.0, part("l2")),
            "launch": np.where(by_image, image_launch, parts["launch"]),
        },
        tile={
            "n": np.where(by_element, 1.0, shown[0]),
            "m": np.where(by_element, threads, shown[1]),
            "threads": np.where(by_element, threads, shown[2]),
            "split_k": np.where(by_element, 1.0, shown[3]),
        },
        tile_count=blocks,
        wave_count=np.maximum(np.ceil(blocks / (gpu.sm_count * resident)), 1.0),
        doubt_log_sd=tensor_gemm.clock_doubt(gpu, parts["level"], 1e6 * parts["compute"] / latency),
    )


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features).

    Those of the kernel as it would be measured, which is what the residual was trained on: in bursts.
    """
    cols, tile, image_tile = _tiles(cols, gpu, constants)
    if not np.all(cols["burst"]):
        cols = {**cols, "burst": np.ones_like(cols["burst"])}
        result = estimate(cols, gpu, constants)
    constants = tensor_gemm.own_constants(gpu, constants)
    t1, t2, _, z = tile
    parts = _times(cols, gpu, constants, tile)
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    product = _joined_us(parts, constants)
    pipe = parts["compute"]
    per_sm = parts["blocks"] / gpu.sm_count
    unique = cols["read_bytes"] + cols["write_bytes"]
    ridge = tensor_gemm.peaks(gpu, cols["pipe"]) / gpu.memory_bytes_per_s
    big = b * np.ceil(n / 128.0) * np.ceil(m / 256.0) / gpu.sm_count
    small = b * np.ceil(n / 64.0) * np.ceil(m / 64.0) / gpu.sm_count
    transposes = _transposes_us(cols, gpu, constants)
    values = (
        np.log(parts["memory"] / pipe),
        np.log(parts["l2"] / pipe),
        np.clip(np.log(_element_us(cols, gpu, constants) / product), -5.0, 5.0),
        np.clip(np.log(_images_us(cols, gpu, constants, image_tile) / product), -5.0, 5.0),
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


def amd_features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """``features``, with how the compiled kernels compare and how slow bfloat16's instructions are against float16's,
    those of the data sheet and of the compiled kernels, as ``AMD_FEATURES``.

    By rates rather than by name: where a GPU multiplies both alike, both are the same kernels.
    """
    cols, tile, _ = _tiles(cols, gpu, constants)
    parts = _times(cols, gpu, constants, tile)
    own = (
        np.log(_compiled_us(cols, gpu, constants, tile) / _joined_us(parts, constants)),
        np.log(_stated_slower(cols, gpu)),
        np.log(_stated_slower(cols, gpu) * _compiled_slower(cols, gpu)),
    )
    return np.hstack([features(cols, gpu, constants, result), np.stack(own, axis=1).astype(np.float32)])


TENSOR_CONV = Law(
    kernel_class="conv",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
    constants_of=("gemm", DataType.BFLOAT16.label),
)


_AMD_PRIORS: Mapping[str, Constant] = {
    constant.name: constant
    for constant in (
        Constant(
            name="split_us",
            prior=10.0,
            prior_log_sd=0.4,
            source="of a split reduction, FP32 sums (the find database's workspace of 4 bytes an output) are zeroed "
            "before and converted after, by a kernel each; fitted",
        ),
        Constant(
            name="step_us",
            prior=5.0,
            prior_log_sd=0.3,
            source="launch of a kernel that transposes a tensor, as the floor of others; fitted",
        ),
        Constant(
            name="weight_overhead",
            prior=1.0,
            prior_log_sd=0.2,
            source="the largest gradients of weights reach as much of the peak as forward passes; fitted",
        ),
        Constant(
            name="pipe_overhead",
            prior=1.1,
            prior_log_sd=0.1,
            source="the largest convolutions reach .75-.89 of the peak on MI100 and MI210; fitted",
        ),
    )
}

_AMD_ONLY = (
    Constant(
        name="compiled_overhead",
        prior=1.4,
        prior_log_sd=0.3,
        source="pipe time of kernels in HIP that read (n, c, *spatial) as it lies, over the assembled ones'; fitted",
    ),
    Constant(
        name="fetch_operations",
        prior=1.0,
        prior_log_sd=0.5,
        source="lane operations an element that a block fetches into its tile: a load and a store to LDS, of up to 16 "
        "bytes each, and an address; fitted",
    ),
    Constant(
        name="move_operations",
        prior=20.0,
        prior_log_sd=0.5,
        source="and an element of input, weight or output: with those of tiles, 25-28 where convolutions move 820-890 "
        "GB/s; fitted",
    ),
    Constant(
        name="step_ns",
        prior=3.0,
        prior_log_sd=0.7,
        source="a byte of k that a block goes through, however little it multiplies: latency of the loads before; "
        "four times what NVIDIA's products show, as few loads are in flight; fitted",
    ),
    Constant(
        name="first_waiting",
        prior=2.0,
        prior_log_sd=0.5,
        source="the same of kernels in HIP that multiply bfloat16 by CDNA's first instructions: an MI100's are fitted "
        "with three times float16's; fitted",
    ),
    Constant(name="tap_step", prior=1.5, prior_log_sd=0.5, source="the same where a filter has several taps; fitted"),
    Constant(name="data_step", prior=1.5, prior_log_sd=0.5, source="and of the input's gradient then; fitted"),
    Constant(
        name="transpose_operations",
        prior=20.0,
        prior_log_sd=0.5,
        source="lane operations an element read or written of the kernels that transpose, as those of convolutions",
    ),
    Constant(
        name="gather_efficiency",
        prior=0.2,
        prior_log_sd=0.5,
        source="share of DRAM's peak at which taps are gathered, each read and written once: 130-170 GB/s are written "
        "for large images, in the ratio of MI100's and MI210's memory; fitted",
    ),
)

_NOT_ON_AMD = ("dram_efficiency", "transpose_efficiency", "gather_operations")

TENSOR_CONV_AMD = replace(
    TENSOR_CONV,
    constants=(
        *(
            _AMD_PRIORS.get(constant.name, constant)
            for constant in tensor_gemm.amd_constants(CONSTANTS)
            if not constant.name.endswith("_async") and constant.name not in _NOT_ON_AMD
        ),
        *_AMD_ONLY,
    ),
    feature_names=AMD_FEATURES,
    features=amd_features,
    constants_of=None,
)
"""The same law for AMD."""


def with_products(constants: Mapping[str, float]) -> Law:
    """The law with the constants of products as given, so that only those of convolutions are fitted."""
    fixed = tuple(
        replace(constant, prior=constants[constant.name], prior_log_sd=0.0) if constant.name in constants else constant
        for constant in CONSTANTS
    )
    return replace(TENSOR_CONV, constants=fixed)
