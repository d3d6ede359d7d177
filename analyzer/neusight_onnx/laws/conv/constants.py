"""Constants of the law of convolutions, with their priors and sources, and how far it carries."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.laws.base import Constant
from neusight_onnx.laws.gemm.constants import CONSTANTS as PRODUCT_CONSTANTS

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
