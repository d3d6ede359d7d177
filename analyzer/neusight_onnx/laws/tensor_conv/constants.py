"""The constants of the law of convolutions on matrix units: priors, and what is fitted; NVIDIA's GPUs and AMD's."""

from __future__ import annotations

from collections.abc import Mapping

from neusight_onnx.laws.base import Constant
from neusight_onnx.laws.tensor_gemm.constants import CONSTANTS as OF_PRODUCTS
from neusight_onnx.laws.tensor_gemm.constants import amd_constants

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
    *(constant for constant in OF_PRODUCTS if constant.name not in _UNUSED),
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
        prior=1.15,
        prior_log_sd=0.05,
        source="the weight's gradient against a plain product, as index_overhead: the largest take as long as forward "
        "passes (DeepBench, 3x3 of 128 channels and more: .9-1.1 times on V100, 1.0-1.2 on T4); fitted",
    ),
    Constant(
        name="sums_us",
        prior=10.0,
        prior_log_sd=0.4,
        source="of a gradient of weights whose reduction is split, on Volta and Turing: FP32 sums are zeroed before "
        "and converted after, by a kernel each, as AMD's; fitted",
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
            name="index_overhead",
            prior=1.15,
            prior_log_sd=0.2,
            source="pipe time of compiled kernels whose filter has several taps, for their addresses; assembled ones "
            "have theirs beside the matrix instructions; fitted",
        ),
        Constant(
            name="data_overhead",
            prior=1.1,
            prior_log_sd=0.2,
            source="the gradient of the input against the forward pass of the same product, of compiled kernels; "
            "fitted",
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
        name="idle_loss",
        prior=0.3,
        prior_log_sd=0.5,
        source="power of the share of compute units that are busy, over all rounds of tiles, by which DRAM slows; "
        "fitted",
    ),
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
        prior_log_sd=0.0,
        source="the same of kernels in HIP that multiply bfloat16 by CDNA's first instructions, which take half "
        "as much of k at once (v_mfma_f32_32x32x4bf16, CDNA ISA; float16's are 32x32x8): twice as many steps",
    ),
    Constant(
        name="series_us",
        prior=14.0,
        prior_log_sd=0.3,
        source="the same where a product an image follows the first: beyond what an image takes in a long series, "
        "1x1 gradients of weights over three axes show 50 us (MI100) and 44 (MI210) for one image, 15-19 and 13-16 for "
        "two and four; fitted",
    ),
    Constant(
        name="image_split_us",
        prior=5.0,
        prior_log_sd=0.3,
        source="of an image's product whose reduction is split: nothing is converted after, as it adds to what the "
        "image before left; gradients of weights of 4,000-60,000 channel pairs over 800-3,200 positions take 15-25 us "
        "an image, which no tile takes unsplit; fitted",
    ),
    Constant(
        name="address_overhead",
        prior=1.0,
        prior_log_sd=0.3,
        source="address clocks of loads that bring few elements, over four addresses a clock and compute unit; fitted",
    ),
    Constant(
        name="serial_ns",
        prior=500.0,
        prior_log_sd=0.5,
        source="of a kernel an element, a channel that its threads reduce and a row of the filter, one after the "
        "other: 1x1 gradients of inputs take 300-600 ns a channel whatever their size, as a load takes from L2 or "
        "DRAM; fitted",
    ),
    Constant(
        name="weight_taps",
        prior=4.0,
        prior_log_sd=0.3,
        source="lane operations of a tap in a depthwise weight's gradient over those of other directions: both "
        "operands are loaded and bounded, a sum goes through a block; 24-55 a tap are measured, 6-13 in other "
        "directions; fitted",
    ),
    Constant(name="tap_step", prior=1.5, prior_log_sd=0.5, source="the same where a filter has several taps; fitted"),
    Constant(name="data_step", prior=1.5, prior_log_sd=0.5, source="and of the input's gradient then; fitted"),
    Constant(
        name="transpose_operations",
        prior=15.0,
        prior_log_sd=0.2,
        source="lane operations an element read or written of the kernels that transpose, beside DRAM: convolutions "
        "that are in the find database in both orders, with assembled kernels in both, take 8-11 us and what moves at "
        "860-940 GB/s (MI100) or 1,010-1,070 (MI210) longer in (n, c, h, w); fitted",
    ),
    Constant(
        name="gather_efficiency",
        prior=0.2,
        prior_log_sd=0.5,
        source="share of DRAM's peak at which taps are gathered, each read and written once: 130-170 GB/s are written "
        "for large images, in the ratio of MI100's and MI210's memory; fitted",
    ),
)

_FP32_AMD_ONLY = (
    Constant(
        name="lanes_overhead",
        prior=1.4,
        prior_log_sd=0.3,
        source="pipe time of compiled kernels on vector lanes over the assembled ones' on matrix cores; fitted",
    ),
    Constant(
        name="winograd_overhead",
        prior=1.2,
        prior_log_sd=0.3,
        source="the same of Winograd's, whose largest reach 1.6-1.75 of the lanes' peak by direct FLOPs on MI50, MI100 "
        "and MI210, .71-.78 of what they multiply; fitted",
    ),
)

_NOT_ON_AMD = ("sums_us", "dram_efficiency", "transpose_efficiency", "gather_operations")

AMD_CONSTANTS: tuple[Constant, ...] = (
    *(
        _AMD_PRIORS.get(constant.name, constant)
        for constant in amd_constants(CONSTANTS)
        if not constant.name.endswith("_async") and constant.name not in _NOT_ON_AMD
    ),
    *_AMD_ONLY,
)

_OF_LOADS = ("address_overhead", "serial_ns")
"""What doesn't lower the error of FP32 on a GPU left out (21.4 % with and without): loads of four bytes need half as
many addresses, and no direct kernel stands in for a missing product."""

_WEIGHT_AMD_PRIORS: Mapping[str, Constant] = {
    constant.name: constant
    for constant in (
        Constant(
            name="move_operations",
            prior=10.0,
            prior_log_sd=0.5,
            source="lane operations an element of input, weight or output of compiled kernels, beside the addresses "
            "of their loads, which are counted apart; fitted",
        ),
        Constant(
            name="first_waiting",
            prior=2.0,
            prior_log_sd=0.5,
            source="as forward, by instructions of half the depth; fitted, as few splits leave longer reductions",
        ),
    )
}

_WEIGHT_AMD_ONLY = (
    Constant(
        name="zero_us",
        prior=7.0,
        prior_log_sd=0.3,
        source="launch of the kernel that zeroes sums: assembled gradients in float16, which have it alone beside "
        "them, take 12.5 us at least, MLIR's, unsplit and without it, 4.5; fitted",
    ),
    Constant(
        name="cast_us",
        prior=12.0,
        prior_log_sd=0.5,
        source="launch of the kernel that converts sums: assembled gradients of 10,000 to 600,000 weights take 9-22 us "
        "longer in bfloat16, which are converted, than the same in float16, which aren't (MI210); fitted",
    ),
    Constant(
        name="assembled_operations",
        prior=8.0,
        prior_log_sd=0.7,
        source="the same of assembled kernels over (n, *spatial, c), whose loads bring 16 bytes: convolutions that lie "
        "so move 1,000 GB/s on an MI100 and 1,430 on an MI210, .82 and .87 of DRAM's peak; fitted",
    ),
    Constant(
        name="assembled_norm",
        prior=4.0,
        prior_log_sd=0.5,
        source="how far the longest of an assembled kernel's competing times hides the others: the largest of 3x3 and "
        "128 channels take 1.04-1.1 of the product's time at the peak beside transposes, 1x1 ones 1.15; fitted",
    ),
    Constant(
        name="hip_norm",
        prior=3.0,
        prior_log_sd=0.5,
        source="the same of kernels in HIP, whose loads hide less than those of the library of products; fitted",
    ),
    Constant(
        name="mlir_norm",
        prior=1.2,
        prior_log_sd=0.2,
        source="and of those that MLIR makes, whose times nearly add up: 1.05 on an MI100, 1.19 on an MI210, each by "
        "its own rows; fitted",
    ),
    Constant(
        name="mlir_overhead",
        prior=1.2,
        prior_log_sd=0.1,
        source="compiled_overhead of those: 1.15 and 1.24 by the same rows; fitted",
    ),
    Constant(
        name="mlir_address",
        prior=0.45,
        prior_log_sd=0.3,
        source="address_overhead of those: .39 and .38 by the same rows, where HIP's are .7-1.1; fitted",
    ),
    Constant(
        name="mlir_operations",
        prior=3.0,
        prior_log_sd=0.5,
        source="move_operations of those: 4.5 and 2.4 by the same rows; fitted",
    ),
    Constant(
        name="direct_overhead",
        prior=2.4,
        prior_log_sd=0.3,
        source="of 1x1 gradients by kernels on vector lanes, lane operations a multiply-add: at most 4.8 T a second on "
        "an MI100 in bfloat16, .42 of its lanes' clocks; fitted",
    ),
    Constant(
        name="position_ns",
        prior=0.75,
        prior_log_sd=0.5,
        source="and a position of an image, however few channels it has: 102 us for 96,800 positions of 64 by 16 "
        "channels; fitted",
    ),
)

_NOT_OF_WEIGHT = ("serial_ns", "split_us")
"""No direct kernel stands in for a missing product, and what a split takes is told apart: zeros and conversion."""

WEIGHT_AMD_CONSTANTS: tuple[Constant, ...] = (
    *(
        _WEIGHT_AMD_PRIORS.get(constant.name, constant)
        for constant in AMD_CONSTANTS
        if constant.name not in _NOT_OF_WEIGHT
    ),
    *_WEIGHT_AMD_ONLY,
)

FP32_AMD_CONSTANTS: tuple[Constant, ...] = (
    *(constant for constant in AMD_CONSTANTS if constant.name not in _OF_LOADS),
    *_FP32_AMD_ONLY,
)

_FP32_WEIGHT_AMD_ONLY = (
    Constant(
        name="passes_us",
        prior=25.0,
        prior_log_sd=0.3,
        source="launches of Winograd in several passes beyond its products': the smallest take 35-50 us; fitted",
    ),
    Constant(
        name="pass_operations",
        prior=110.0,
        prior_log_sd=0.5,
        source="and lane operations an element of transformed pieces, input, result and weights: lanes, not DRAM, tell "
        "how MI50, MI100 and MI210 differ; fitted",
    ),
    Constant(
        name="direct_norm",
        prior=4.0,
        prior_log_sd=0.3,
        source="how softly operations and positions of kernels assembled for lanes compete; fitted",
    ),
    Constant(
        name="square_overhead",
        prior=1.5,
        prior_log_sd=0.3,
        source="of gradients of 3x3 weights by assembled kernels on lanes, lane operations a multiply-add; fitted",
    ),
    Constant(
        name="lanes_step_ns",
        prior=40.0,
        prior_log_sd=0.7,
        source="as step_ns, of compiled kernels on lanes: 210-330 ns a position of 4 bytes (MI100, MI210); fitted",
    ),
)

_BY_COMPILER = ("hip_norm", "mlir_norm", "mlir_overhead", "mlir_address", "mlir_operations")
"""What tells compiled kernels in HIP and those that MLIR makes apart, in 16 bits."""

_NOT_OF_FP32_WEIGHT = ("cast_us", "assembled_norm", *_BY_COMPILER)
"""Nothing is converted in FP32; 16 bits' rules of splits weren't tried with it."""

FP32_WEIGHT_AMD_CONSTANTS: tuple[Constant, ...] = (
    *(constant for constant in WEIGHT_AMD_CONSTANTS if constant.name not in _NOT_OF_FP32_WEIGHT),
    *_FP32_AMD_ONLY,
    *_FP32_WEIGHT_AMD_ONLY,
)
