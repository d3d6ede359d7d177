"""The law of matrix products on matrix units (tensor cores, matrix cores): 16-bit floats, 8-bit, 4-bit.

``(b, m, k) @ (b, k, n) -> (b, m, n)``. As in the law of FP32 products, tiles of the output are spread over SMs and the
times of the pipe, of DRAM and of L2 compete (p-norm); the tile and the split of the reduction are those of the menu
with the smallest time. What differs: the pipe is the number format's own dense peak, its clock is what the power limit
leaves it; a block whose tile leaves the pipe idle waits for the loads of its steps of k; operands that are stored in
another type than they are multiplied in are converted (activations by a kernel before, weights inside); and what L2
still holds isn't read from DRAM: activations and output that fit beside the weights, of weights only those that the
last repetition left there.

GPUs that fetch tiles and issue products by units of their own (:func:`asynchronous`) have constants of their own where
that tells: what a launch takes, how well loads stream, how much of them is hidden behind the products.

Everything is vectorised over kernels; inside, arrays have shape (candidates, kernels).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.kernels import Conv, Gemm, Kernel
from neusight_onnx.laws import gemv, unpacked_weights
from neusight_onnx.laws.bandwidth import GDDR6X, capability, is_amd, memory_family, p_norm
from neusight_onnx.laws.base import Column, Columns, Constant, Constants, Law, LawResult
from neusight_onnx.laws.clock import (
    ENERGY_EXPONENT,
    EXPONENT_SPREAD,
    below,
    energy_at,
    idle_w,
    level_under_limit,
)
from neusight_onnx.laws.elementwise import integer_lanes_per_sm
from neusight_onnx.laws.gemm import process_energy
from neusight_onnx.laws.tiled import cheapest, pinned_tile, with_tile
from neusight_onnx.tiling import DEEP_MATRIX_UNIT_SPLITS, matrix_unit_candidates, matrix_unit_tiles

_STUDY = "prior: study of the shared tensor-core measurements; fitted here"

CONSTANTS: tuple[Constant, ...] = (
    Constant(
        name="floor_us",
        prior=2.8,
        prior_log_sd=0.3,
        source="the smallest products, replayed in a CUDA graph, take 1.6-2.5 us, those of 4096 x 4096 and a few rows "
        "3-4 us more than their bytes; fitted",
    ),
    Constant(
        name="floor_us_async",
        prior=2.8,
        prior_log_sd=0.3,
        source="the same on Hopper and data-centre Blackwell: 1.7-2.5 us for the smallest; fitted",
    ),
    Constant(name="pipe_overhead", prior=1.05, prior_log_sd=0.05, source=_STUDY),
    Constant(
        name="narrow_overhead",
        prior=1.2,
        prior_log_sd=0.2,
        source="the same beside it for products of 8 bits and less: cuBLASLt's largest in FP8, less the kernels that "
        "convert, reach .7-.78 of the peak on B200 and H100, where 16-bit ones reach .76-.94; fitted",
    ),
    Constant(name="tile_overhead", prior=0.14, prior_log_sd=0.4, source=_STUDY),
    Constant(name="tile_exponent", prior=1.5, prior_log_sd=0.2, source=_STUDY),
    Constant(
        name="step_ns",
        prior=0.7,
        prior_log_sd=0.7,
        source="a byte of k that a block goes through, however little it multiplies: what loads in flight leave of the "
        "memory's latency. FP8 products of a few tiles take .7 (B200, H100) to 1.1 ns (L40S), INT8 ones 2 ns; fitted",
    ),
    Constant(
        name="epilogue_k",
        prior=120.0,
        prior_log_sd=0.3,
        source="prologue and epilogue of a tile, as steps of k: 110-130 over the generations; " + _STUDY,
    ),
    Constant(
        name="energy_pj",
        prior=2.8,
        prior_log_sd=0.2,
        source="board energy of a 16-bit FLOP on real values by mma instructions in 16 nm at 1.4 GHz, so that an A100 "
        "sustains 250-270 of 312 TFLOP/s at 400 W; fitted",
    ),
    Constant(
        name="throttle_ms",
        prior=0.5,
        prior_log_sd=0.5,
        source="measured by a few repetitions, shorter kernels run at the boost clock: the same products by two "
        "frameworks, one with weights that switch little, take equally long below it and up to 1.4 times above; fitted",
    ),
    Constant(name="dram_efficiency", prior=0.82, prior_log_sd=0.07, source=_STUDY),
    Constant(
        name="dram_efficiency_async",
        prior=0.82,
        prior_log_sd=0.07,
        source="the same where a unit of its own fetches tiles; fitted",
    ),
    Constant(name="reload_knee", prior=1.0, prior_log_sd=0.5, source="as the FP32 law's; fitted"),
    Constant(
        name="l2_bytes_per_clock",
        prior=64.0,
        prior_log_sd=0.2,
        source="bytes an SM gets from L2 in a clock: 64 by design; hardly identified, so its prior is tight",
    ),
    Constant(
        name="l2_stream_bytes_per_clock",
        prior=12.0,
        prior_log_sd=0.3,
        source="bytes a clock and SM of operands that L2 still holds, where that is more than DRAM brings: activations "
        "of few columns 12 on A100, 6-8 on L40S, 17 on H100; weights of few rows 8 on L40S; fitted",
    ),
    Constant(name="norm", prior=4.0, prior_log_sd=0.6, source="power of the norm that joins competing times; fitted"),
    Constant(
        name="norm_async",
        prior=4.0,
        prior_log_sd=0.6,
        source="the same where loads and products are issued apart, so that they hide each other better; fitted",
    ),
    Constant(name="split_us", prior=1.5, prior_log_sd=0.4, source="a second kernel adds the parts of a split; fitted"),
    Constant(
        name="convert_us",
        prior=2.0,
        prior_log_sd=0.5,
        source="launch of the kernel that converts the activations; " + _STUDY,
    ),
    Constant(
        name="convert_passes",
        prior=1.5,
        prior_log_sd=0.3,
        source="times that the activations' bytes (read as stored, written as multiplied) are moved; " + _STUDY,
    ),
    Constant(
        name="unpack_overhead",
        prior=0.3,
        prior_log_sd=0.5,
        source="of weights that are stored narrower than multiplied: added share of the pipe's time; fitted",
    ),
)

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

PIPES: tuple[str, ...] = ("fp16", "bf16", "fp8", "int8", "fp4", "tf32", "fp16_accumulate", "fp32")
"""Pipes of matrix units, in the order of the code that columns hold: ``fp16_accumulate`` is FP16 that accumulates in
FP16, ``fp32`` AMD's, of vector lanes on a GPU without matrix cores."""

_PIPE_OF: dict[DataType, str] = {
    DataType.FLOAT16: "fp16",
    DataType.BFLOAT16: "bf16",
    DataType.FLOAT8E4M3FN: "fp8",
    DataType.FLOAT8E4M3FNUZ: "fp8",
    DataType.FLOAT8E5M2: "fp8",
    DataType.FLOAT8E5M2FNUZ: "fp8",
    DataType.INT8: "int8",
    DataType.UINT8: "int8",
    DataType.FLOAT4E2M1: "fp4",
    DataType.TFLOAT32: "tf32",
}

WEIGHT_COPIES = 5.0
"""The measured replays go round so many copies of the weights (study of the data): what they leave in L2 is reused.
The output is the same in every product, and so are the activations, but in SGLang's rows (``Gemm.rotated``)."""

RESIDENT_FILL, RESIDENT_SHARPNESS = 0.9, 24.0
"""Share of L2 up to which operands stay, and how sharply that ends: an L40S reads 16 MB of weights (five copies: 80 MB
of 96) at two to three times its DRAM rate, 20 MB at none; writes 80 MB of output at twice that rate, 96 MB at none."""

FEWEST_MEASURED, LONGEST_MEASURED = 32.0, 65536.0
"""Fewest columns and longest reduction that were measured in 16 bits: one row by both takes 8 us on H100, as with 16
parts. Longer reductions are split further, as FP32's are: 16 blocks would read 8 columns of 1,048,576 at a twentieth of
DRAM's rate, where DeepBench's 8 rows of 500,000 by 512 columns, in FP16 on a V100, take 658 us: .87 of it."""

FILLING_PIPES = ("fp8", "fp4")
FILLED = 1.04
"""Pipes whose trained kernels (TensorRT-LLM's) go round as many copies of the weights as the L2 has room for, begun
ones counted and ``WEIGHT_COPIES`` at most, and the share of the L2 up to which these stay: in FP8 and in 16 bits an
L40S reads weights of 24, 32, 48 and 96 MiB (4, 3, 2 and 1 times 96) at 1.4-1.9 TB/s, of 25, 50 and 100 at 1.0, of
28-30, 36-42, 56-84 and 112 MiB at .7; of 16-18 (5 times) at 2.0, of 20 at 1.0, of 21 at .7."""

PARTITIONED_FILL = 0.75
"""Of that where L2 is two partitions that each serve half of the SMs (:func:`partitioned`): activations stream faster
than DRAM up to 26 MB of an A100's 40, 40 of an H100's 50, 95 of a B200's 126."""

CLUSTER_SHARE = 0.5
"""Part of the larger of a tile's two operands that a block doesn't fetch itself where blocks of a cluster multicast
(Hopper) or two SMs multiply as one (``cta_group::2`` of Blackwell): clusters of two share it (CUTLASS's default for
both). Without it L2 would hold B200's 256x256 tiles below what they reach."""

FULL_RATE = 500.0
"""16-bit multiply-adds a clock and SM of pipes that hide nothing of a small tile's loads (L40S; 512 by design)."""

EXPOSED_EXPONENT = 2.0
"""How fast the exposed share falls with the pipe's rate: GeForce cards, whose rate is half, show a quarter of it or
less (LLM layers on RTX 3090 and 4090: products of 128 rows and more run at one rate, whatever the tile)."""

GDDR6X_GAIN = 1.07
"""DRAM rate of GDDR6X against the fitted share of the peak: products of few rows stream weights at .93-.94 of it on RTX
4090 and .87-.93 on RTX 3090, against .79-.89 on cards with HBM and .835 on L40S. GDDR7 is taken to be alike, as it is
for streaming kernels."""

AMD_OVERHEAD = 1.4
"""Time of AMD's matrix cores over that at their peak where nothing of a kernel class was measured on them: the largest
bf16 products reach .51-.60 of it on MI300X, MI325X (stas00/ml-engineering, maximum achievable matmul FLOPS), less than
a tile's overheads explain. Products have a fitted constant instead."""

FLOOR_EXPONENT = 0.75
"""Part of the floor goes with the clock (instructions), part doesn't (memory latency): the smallest products take an
A100 (1.41 GHz) 1.4 times what they take an L40S (2.52 GHz) in 16 bits, 1.7-2 times in INT8 and with narrow weights."""

SERIAL_PIPES = ("int8",)
"""Pipes whose trained kernels don't split k among blocks: products of few tiles take a time in proportion to k however
few they are (TensorRT-LLM's INT8, of CUTLASS)."""

VECTOR_ROWS = 4.0
"""Rows up to which INT8 products are a kernel of vector lanes whose threads share k (TensorRT-LLM): 128 columns of
65,536 take an A100 20-28 us, with 16 rows 146."""
VECTOR_SHARE = 1.0 / 16.0
VECTOR_COLUMNS = 2.0
"""Columns of one of its blocks (as its source is remembered): 128 columns go to 64 SMs. As two tiles of 64 that the L2
feeds they would take an A100 58 us instead of the 14 that it takes (less what a lone run's events add)."""
VECTOR_BLOCK_CYCLES = 200.0
"""Of a block, however short: 65,536 columns of 128 take an A100 40 us and an L40S 23, 303 and 231 blocks an SM."""
DOT_PRODUCTS = 4.0
"""Multiply-adds of 8 bits a lane and clock (``dp4a``)."""

GREATEST_US = 7.0
GREATEST_PASSES: Mapping[str, float] = {"HBM": 2.6, "GDDR": 1.2}
"""The kernel that looks for the greatest value of a tensor, before another scales by it: TensorRT-LLM's, measured
alone (quantize.parquet). The smallest take 6-7 us on H100 and L40S, 7-8.5 on B200; beyond the L2 it reads at .38 of the
DRAM's peak on H100, .36-.41 on B200 and .84 on L40S."""

_CHUNK = 128
"""Kernels at once: some 200 candidates of them fill the cache of a core and no more."""
RESIDENT_ELEMENTS = 32768.0

# how much less energy a FLOP takes than by mma instructions, which fetch operands from registers: WGMMA reads shared
# memory once for a warp group, tcgen05 keeps accumulators in a memory of its own. From the largest rates of the public
# table of maximum achievable matmul FLOPS (stas00/ml-engineering): A100 271, H100 794, B200 1745 TFLOP/s, and as those
# three GPUs' products on real values say
_WGMMA_ENERGY = 0.80
_TCGEN05_ENERGY = 0.64
# mma in TSMC's 4N takes more than the process lets expect: L40S sustains .52-.55 of 362 TFLOP/s at 350 W (SGLang and
# TensorRT-LLM, products of more than 3 ms), RTX 4090's largest LLM layers agree
_MMA_4N_ENERGY = 1.37
# and of a narrower format, per FLOP: half the bits move; TF32, of which no kernel was measured, as FP8 the other way.
# Sums in FP16 are taken for no cheaper: the multipliers are the same, nothing was measured. So an RTX 3090 at twice its
# rate has the clock of an RTX A6000, the same die at that rate, at the 3090's power
_FORMAT_ENERGY = {
    "fp16": 1.0,
    "bf16": 1.0,
    "fp8": 0.65,
    "int8": 0.5,
    "fp4": 0.3,
    "tf32": 1.0 / 0.65,
    "fp16_accumulate": 1.0,
    "fp32": 1.0 / 0.65**2,
}


def batch_and_rows(kernel: Gemm) -> tuple[int, int]:
    """A batch that shares its right operand is one product of b m rows, which is what libraries are handed."""
    batch, m = kernel.batch, kernel.m
    if batch > 1 and kernel.b_batch == 1 and kernel.a_batch in (None, batch) and not kernel.transpose_a:
        return 1, batch * m
    return batch, m


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Gemm kernels as columns: sizes, bytes an element as multiplied and as stored, and the pipe's number."""
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Gemm)
        batch, m = batch_and_rows(kernel)
        multiplied = kernel.dtype.bits / 8
        a_stored = (kernel.a_dtype or kernel.dtype).bits / 8
        b_stored = (kernel.b_dtype or kernel.dtype).bits / 8
        rows.append(
            (
                batch,
                m,
                kernel.n,
                kernel.k,
                min(multiplied, a_stored),
                b_stored,
                (kernel.output_dtype or kernel.dtype).bits / 8,
                multiplied,
                a_stored if a_stored > multiplied else 0.0,
                float(kernel.tensor_scale and a_stored > multiplied),
                float(b_stored < multiplied),
                kernel.read_bytes,
                kernel.write_bytes,
                kernel.flops,
                float(PIPES.index(pipe_of_product(kernel))),
                float(kernel.repeated or not kernel.b_is_weight),
                kernel.kept_in_l2 if kernel.b_is_weight else 0.0,
                float(kernel.rotated),
                float(kernel.burst),
                kernel.activity,
                kernel.beside_read_bytes,
                float("bias" in kernel.epilogue),
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


_COLUMNS = (
    "b",
    "m",
    "n",
    "k",
    "a_bytes",
    "b_bytes",
    "out_bytes",
    "multiplied_bytes",
    "converted_bytes",
    "tensor_scale",
    "unpacks",
    "read_bytes",
    "write_bytes",
    "flops",
    "pipe",
    "repeated",
    "kept_in_l2",
    "rotated",
    "burst",
    "activity",
    "beside_bytes",
    "bias",
)


def serves(gpu: GpuSpec, dtype: DataType) -> bool:
    """Whether the GPU has a matrix unit for the number format: NVIDIA's since Volta, AMD's CDNA.

    Pascal's 8-bit dot products and GCN's packed halves are instructions of vector lanes, with peaks of their own.
    """
    capability = gpu.compute_capability
    has_unit = "fp32_matrix" in gpu.peak_flops_per_s if capability is None else capability >= 7.0
    return has_unit and _PIPE_OF.get(dtype, "") in gpu.peak_flops_per_s


def pipe_of(dtype: DataType) -> str:
    """The pipe that a number format is multiplied by; the 16-bit one for a format without its own."""
    return _PIPE_OF.get(dtype, "fp16")


def pipe_of_product(kernel: Gemm | Conv) -> str:
    """The pipe of a product or convolution: its number format's, or that of FP16 sums."""
    if kernel.dtype is DataType.FLOAT32:
        return "fp32"
    is_half = kernel.dtype is DataType.FLOAT16 and kernel.accumulator is DataType.FLOAT16
    return "fp16_accumulate" if is_half else pipe_of(kernel.dtype)


def exposed_share(gpu: GpuSpec) -> float:
    """How much of a small tile's loads and issue slots 16-bit products expose, 0..1: the slower the pipe, the less."""
    rate = gpu.peak_flops_per_s.get("fp16", np.inf) / (2.0 * gpu.sm_count * gpu.clock_hz)
    return float(min(1.0, rate / FULL_RATE) ** EXPOSED_EXPONENT)


def exposed_shares(
    gpu: GpuSpec, pipe: NDArray[np.float64], element_bytes: NDArray[np.float64]
) -> NDArray[np.float64] | float:
    """The same by each kernel's pipe: GeForce cards halve 16-bit products, 8-bit integers run at full rate. AMD's FP32
    kernels expose all: :func:`clocks_over_cdna` says how much that is."""
    if is_amd(gpu):
        return np.where(pipe == PIPES.index("fp32"), 1.0, exposed_share(gpu))
    found: NDArray[np.float64] = rate_share(gpu, pipe, element_bytes) ** EXPOSED_EXPONENT
    return found


def rate_share(gpu: GpuSpec, pipe: NDArray[np.float64], element_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rate of each kernel's pipe over that of an SM that isn't halved, 0..1, a format of 1 byte having twice the rate.

    What a tile does before and behind its loop takes as many clocks on a halved pipe, so fewer steps of k in its time.
    LLM layers of n = 4096, time over that at the peak, from the shortest to the longest k: RTX 3090 (960 to 14,336)
    1.22 to 1.07, RTX 4090 (4,096 to 14,336) 1.09 to 1.03, half of what a full rate's steps would make of it. AMD has
    one kind of compute unit a generation: 1.
    """
    if is_amd(gpu):
        return np.ones_like(element_bytes)
    rate = peaks(gpu, pipe) / (2.0 * gpu.sm_count * gpu.clock_hz) * element_bytes / 2.0
    found: NDArray[np.float64] = np.minimum(rate / FULL_RATE, 1.0)
    return found


CDNA_RATE = 512.0
"""16-bit multiply-adds a clock and compute unit of CDNA and CDNA2 (AMD CDNA white paper); CDNA3 has twice, CDNA4 four
times as many."""
CDNA_LDS_BYTES = 65536.0
"""LDS of a compute unit until CDNA3. CDNA4's is larger and reads twice the bytes a clock (AMD CDNA 4 white paper)."""


def rate_over_cdna(gpu: GpuSpec, peak: NDArray[np.float64], element_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """An AMD GPU's multiply-adds a clock and compute unit against CDNA's in 16 bits, at ``peak`` FLOP/s; a format of 1
    byte has twice the rate of one of 2."""
    found: NDArray[np.float64] = peak / (2.0 * gpu.sm_count * gpu.clock_hz) * element_bytes / 2.0 / CDNA_RATE
    return found


def clocks_over_cdna(
    gpu: GpuSpec, peak: NDArray[np.float64], element_bytes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What an AMD GPU's kernels do beside matrix instructions, as a part of these' time, against CDNA.

    It takes as many clocks on a compute unit whose matrix cores are faster, so a larger part of their time. CDNA3's
    matrix cores are twice as fast as CDNA2's and its LDS is not: its largest products in 16 bits reach .51-.60 of the
    peak (``_AMD_PRIORS``), where those of rocBLAS behind 1x1 convolutions reach .53-.71 of MI100's and MI210's and
    MIOpen's assembled convolutions .75-.89 (find database).
    """
    wide = (gpu.shared_memory_bytes_per_sm or 0) > CDNA_LDS_BYTES
    return rate_over_cdna(gpu, peak, element_bytes) / (2.0 if wide else 1.0)


CDNA3_CLOCKS = 2.0
"""The same of CDNA3, whose products are those that were measured."""


def asynchronous(gpu: GpuSpec) -> bool:
    """Whether tiles are fetched and products issued by units of their own: TMA with WGMMA (Hopper) or tcgen05
    (data-centre Blackwell). All others issue both from the warps that hold the result."""
    return instructions(gpu) != "mma"


SYNCHRONOUS_BEFORE = 8.0
SYNCHRONOUS_STEP_NS = 4.4
"""As ``step_ns`` where a block's next operands go through registers, one step of 64 bytes in flight: before Ampere,
which brought copies from memory to shared memory that many steps can have under way (``cp.async``). 280 ns a step are
430 clocks of a V100, whose DRAM answers in some 400 (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", 2018). DeepBench's 16-bit products of up to 700 rows, which no predictor is trained on: a V100's
21.2 % off without it, 14.8 with, a T4's 15.5 and 12.7, either card's best value serving the other."""


def step_ns(gpu: GpuSpec, c: Constants) -> float:
    """Time of a byte of k that a block goes through, however little it multiplies."""
    before = not is_amd(gpu) and (gpu.compute_capability or 0.0) < SYNCHRONOUS_BEFORE
    if unpacked_weights.unpacks(c):
        step = 1e9 * c["unpack_step_cycles"] / gpu.clock_hz / unpacked_weights.STEP_BYTES
    else:
        step = c["step_ns"]
    return max(SYNCHRONOUS_STEP_NS, step) if before else step


def partitioned(gpu: GpuSpec) -> bool:
    """Whether L2 is two partitions: NVIDIA's dies with HBM since Ampere (A100 white paper)."""
    return gpu.memory_type.upper().startswith("HBM") and (gpu.compute_capability or 0.0) >= 8.0


def l2_bytes_held(gpu: GpuSpec) -> float:
    """Bytes of L2 up to which data that are used again and again stay there; half of them do at that size."""
    return RESIDENT_FILL * (PARTITIONED_FILL if partitioned(gpu) else 1.0) * gpu.l2_bytes


def own_constants(gpu: GpuSpec, constants: Constants) -> Constants:
    """The constants with those that asynchronous GPUs have of their own in their places.

    Loads hide behind the products of a slow pipe nearly as well as behind asynchronous ones: the norm of other GPUs
    lies between the two, by :func:`exposed_share`. ``norm_of_lanes``: that of kernels on vector lanes, which
    issue their loads themselves and whose rate isn't halved.
    """
    of_lanes = {"norm_of_lanes": constants["norm"]}
    if not asynchronous(gpu):
        norm, hidden = constants["norm"], 1.0 - exposed_share(gpu)
        return {**constants, **of_lanes, "norm": norm ** (1.0 - hidden) * constants.get("norm_async", norm) ** hidden}
    return {**{name: constants.get(f"{name}_async", value) for name, value in constants.items()}, **of_lanes}


def stream_gain(gpu: GpuSpec) -> float:
    """DRAM rate of the GPU's kind of memory against the fitted share of its peak."""
    return GDDR6X_GAIN if memory_family(gpu) is GDDR6X else 1.0


def peaks(gpu: GpuSpec, pipe: Column) -> Column:
    """Dense FLOP/s of each kernel's pipe; a format that the GPU lacks runs on the 16-bit one, else on vector lanes."""
    peaks = gpu.peak_flops_per_s
    wider = peaks.get("fp16", peaks.get("bf16", peaks["fp32"]))
    own = {
        **peaks,
        "fp16_accumulate": gpu.fp16_accumulate_flops_per_s or wider,
        "fp32": peaks.get("fp32_matrix", peaks["fp32"]),
    }
    found: Column = np.array([own.get(name, wider) for name in PIPES])[pipe.astype(np.int64)]
    return found


def unit_energy(gpu: GpuSpec, pipe: Column) -> Column:
    """Energy of a FLOP against a 16-bit one by mma instructions in 16 nm."""
    used = instructions(gpu)
    unit = 1.0
    if gpu.compute_capability is None or used == "wgmma":
        unit = _WGMMA_ENERGY
    elif used == "tcgen05":
        unit = _TCGEN05_ENERGY
    elif gpu.process_nm <= 5.0:
        unit = _MMA_4N_ENERGY
    found: Column = np.array([_FORMAT_ENERGY[name] for name in PIPES])[pipe.astype(np.int64)]
    return found * unit * process_energy(gpu.process_nm)


LIMIT_SHARPNESS = 12.0
"""Power of the smooth minimum of the clocks that the power limit and the maker allow."""

MEASURED_NM = (4.0, 5.0, 7.0)
MEASURED_MMA = 8.9
ENERGY_LOG_SD = 0.2
"""Processes of the power-limited GPUs whose products in 16 bits were measured on real values, and how well the energy
of others is known (log): 12 nm by operands that are zero, 8 nm by layers with unknown weights, others by foundries.
Of mma in 5 nm Ada's is the last that was measured. On GeForce and workstation Blackwell (12.x) it is taken for the
same, and GDDR7 for as hungry as GDDR6, which its makers call twice as thrifty a bit (as remembered): at half of the
idle power an RTX PRO 6000's long products would be 8 % quicker."""

BATCH_LOG_SD = 0.11
"""How far off (log) products in a batch are in common by a law that plain ones were fitted to: no batch was measured in
16 bits and less. FP32's law, fitted to NeuSight's linear layers alone, errs on its products in a batch of 200 us and
more by +.06 (A100), +.04 (P100), -.19 (P4), +.01 (T4) and +.14 (V100), weighted by time; the mean square."""

GEFORCE_BOOST = 1.11
"""Clock that GeForce cards reach over the boost clock that their makers state, while the power limit allows. From LLM
layers in 16 bits on RTX 3090 and 4090: the largest products reach 1.06 and 1.00 of the stated peak, where no other card
passes .97 of its own. The middle of the two: one comes out 6 % too quick, the other 4 % too slow."""


def top_clock(gpu: GpuSpec) -> float:
    """The highest clock over the stated boost clock: above 1 for GeForce cards.

    They are told by their halved rate of 16-bit products with sums in FP32 (``GpuSpec.halves_fp32_sums``).
    """
    return GEFORCE_BOOST if gpu.halves_fp32_sums else 1.0


def sustained_share(gpu: GpuSpec, pipe_name: str) -> float:
    """Sustained over boost clock while a pipe is fully busy, by the expected energy of a FLOP."""
    pipe = np.array([float(PIPES.index(pipe_name))])
    constants = {constant.name: constant.prior for constant in CONSTANTS}
    second = np.ones(1)
    return float(sustained_level(gpu, constants, peaks(gpu, pipe) * unit_energy(gpu, pipe), second, ())[0])


MEASURED_LEVEL = 0.7
"""Sustained over boost clock in 16 bits of the GPUs whose products tell the energies, their mean: A100 .84, H100 .75,
B200 .65, L40S .55. An L4's limit leaves it .39 by the law. Figures of whole models on L4s, as remembered,
showed that there is doubt to state; the times don't follow them."""


def clock_doubt(gpu: GpuSpec, level: NDArray[np.float64], compute_share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation (log) of a time from the energy of a process that no power-limited GPU shows, and from a
    clock lower than those of GPUs that show one.

    A clock under the power limit follows the energy, one that is held does not. Where it is l times lower than
    ``MEASURED_LEVEL``, power is 1.6 ln(l) lower in log, which makes a clock 1.6 / (1 + e) as far down if the exponent
    is e.
    """
    slope = 1.0 + ENERGY_EXPONENT
    is_measured = gpu.process_nm in MEASURED_NM and (asynchronous(gpu) or capability(gpu) <= MEASURED_MMA)
    unknown = 0.0 if is_measured else ENERGY_LOG_SD / slope
    under = 1.0 - np.minimum(level, 1.0) ** LIMIT_SHARPNESS
    below = np.log(np.maximum(MEASURED_LEVEL / level, 1.0)) * EXPONENT_SPREAD / slope
    found: NDArray[np.float64] = np.hypot(unknown * under, below) * np.minimum(compute_share, 1.0)
    return found


def clock_had(
    seconds: NDArray[np.float64], level: NDArray[np.float64], burst: NDArray[np.float64], gpu: GpuSpec, c: Constants
) -> NDArray[np.float64]:
    """Clock over boost clock of what takes ``seconds`` on the pipe at the boost clock: the sustained ``level``.

    What was measured by a few repetitions, a ``burst``, is over before the limit acts where kernels are short.
    """
    long = seconds * 1e3 / (seconds * 1e3 + c["throttle_ms"])
    in_burst = level**long * top_clock(gpu) ** (1.0 - long)
    return np.where(burst > 0, in_burst, level)


def pipe_seconds(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    *,
    flops: NDArray[np.float64],
    boost_s: NDArray[np.float64],
    waits_s: Sequence[NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Time on the pipe at the clock that it has, and the sustained clock over the boost clock.

    ``boost_s``: the time at the boost clock; ``waits_s``: times that compete with it. Power is energy over the time of
    the whole kernel, their p-norm: SMs that wait, for memory or for others' last tiles, take none for arithmetic.
    """
    energy = unit_energy(gpu, cols["pipe"]) * cols["activity"]
    level = sustained_level(gpu, c, flops * energy, boost_s, waits_s)
    return boost_s / clock_had(boost_s, level, cols["burst"], gpu, c), level


def sustained_level(
    gpu: GpuSpec,
    c: Constants,
    energy_flops: NDArray[np.float64],
    boost_s: NDArray[np.float64],
    waits_s: Sequence[NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Sustained over boost clock of kernels on matrix units, up to :func:`top_clock`.

    ``energy_flops``: what takes as much energy as so many 16-bit FLOPs by mma in 16 nm; ``boost_s``: time at the boost
    clock of what goes with the clock; ``waits_s``: times that compete with it and don't.
    """
    limit_s = c["energy_pj"] * 1e-12 * energy_at(gpu.clock_hz) * energy_flops / (gpu.power_w - idle_w(gpu))
    level = level_under_limit(boost_s, limit_s, waits_s, norm=c["norm"])
    return below(level, sharpness=LIMIT_SHARPNESS, top=top_clock(gpu))


def times(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """Competing times in s and what they are made of; ``tile`` is (n, m, threads, split) of any common shape.

    ``c``: :func:`own_constants` of the GPU.
    """
    t1, t2, _, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    sms = float(gpu.sm_count)
    peak = peaks(gpu, cols["pipe"])
    grid_n, grid_m = np.ceil(n / t1), np.ceil(m / t2)
    blocks = b * grid_n * grid_m * z
    kz = np.ceil(k / z)
    occupancy = np.clip(RESIDENT_ELEMENTS / (t1 * t2), 1.0, 8.0)
    per_sm = np.ceil(blocks / sms)
    smallness = 32.0 * (1.0 / t1 + 1.0 / t2)
    # loads and issue slots of a small tile are hidden the better the slower the pipe is
    exposed = exposed_shares(gpu, cols["pipe"], cols["multiplied_bytes"])
    base = c["pipe_overhead"] * np.where(cols["multiplied_bytes"] < 2.0, c["narrow_overhead"], 1.0)
    steady = base * (1.0 + exposed * c["tile_overhead"] * smallness ** c["tile_exponent"])
    steady = steady * (1.0 + c["unpack_overhead"] * cols["unpacks"])
    # the steps of k around the loop are bytes: formats half as wide take twice as many elements a step
    around = c["epilogue_k"] * rate_share(gpu, cols["pipe"], cols["multiplied_bytes"])
    if is_amd(gpu):
        clocks = clocks_over_cdna(gpu, peak, cols["multiplied_bytes"]) / CDNA3_CLOCKS
        steady, around = 1.0 + clocks * (steady - 1.0), around * clocks
    steps = kz + around * 2.0 / cols["multiplied_bytes"]
    full_s = per_sm * 2.0 * t1 * t2 * steps * sms / peak * steady

    a_all, b_all = cols["a_bytes"] * b * m * k, cols["b_bytes"] * b * k * n
    output = cols["write_bytes"]
    entry = (a_all + b_all) / b
    waves = np.maximum(np.ceil(blocks / (sms * occupancy)), 1.0)
    latency_s = waves * kz * cols["multiplied_bytes"] * step_ns(gpu, c) * 1e-9
    on_lanes = (cols["pipe"] == _INT8) & (m <= VECTOR_ROWS) & (not is_amd(gpu))
    lane_blocks = b * np.ceil(n / VECTOR_COLUMNS)
    lane_rounds = np.ceil(lane_blocks / sms)
    lane_s = lane_rounds * VECTOR_COLUMNS * m * k / (DOT_PRODUCTS * integer_lanes_per_sm(gpu) * gpu.clock_hz)
    full_s = np.where(on_lanes, lane_s, full_s)
    block_s = k * step_ns(gpu, c) * 1e-9 * VECTOR_SHARE + lane_rounds * VECTOR_BLOCK_CYCLES / gpu.clock_hz
    latency_s = np.where(on_lanes, block_s, latency_s)
    few = unpacked_weights.on_lanes(cols, c)
    if unpacked_weights.unpacks(c):
        # of many columns matrix units are quicker
        full_s = np.where(few, np.minimum(unpacked_weights.lanes_s(cols, gpu), full_s), full_s)
        latency_s = np.where(few, unpacked_weights.column_s(cols, gpu, c), latency_s)
    wave_blocks = np.minimum(sms * occupancy, blocks)
    wave_n = np.clip(np.sqrt(wave_blocks * t2 / t1), 1.0, grid_n)
    wave_m = np.clip(wave_blocks / wave_n, 1.0, grid_m)
    wave_n = np.clip(wave_blocks / wave_m, 1.0, grid_n)
    entries = np.maximum(wave_blocks / (wave_n * wave_m), 1.0)
    # a last round of fewer blocks fetches less
    rounds = blocks / wave_blocks
    beyond = beyond_measured(cols)
    columns_of_wave = np.where(beyond, np.minimum(wave_n * t1, n), wave_n * t1)
    rows_of_wave = np.where(beyond, np.minimum(wave_m * t2, m), wave_m * t2)
    reload = rounds * entries * kz * (columns_of_wave * cols["b_bytes"] + rows_of_wave * cols["a_bytes"])
    unique = a_all + b_all + output
    spill = c["reload_knee"] * entry / gpu.l2_bytes
    extra = np.maximum(reload - unique, 0.0) * spill / (1.0 + spill)
    dram = c["dram_efficiency"] * stream_gain(gpu) * gpu.memory_bytes_per_s
    l2 = np.maximum(dram, c["l2_stream_bytes_per_clock"] * sms * gpu.clock_hz)
    held = l2_bytes_held(gpu)
    beside = cols["beside_bytes"]
    kept = _kept(unique + beside, held)
    filled, copies = _copies(cols, gpu)
    converted = cols["converted_bytes"]
    # what was converted has just been written, whatever it was converted from
    rotated = cols["rotated"] * (converted == 0.0)
    scales = beside * cols["unpacks"]
    others = unique + beside + (copies - 1.0) * (b_all + scales + rotated * a_all)
    kept_a = np.where(rotated > 0.0, _kept(others, held), kept)
    kept_b = cols["repeated"] * _kept(others, np.where(filled, FILLED / RESIDENT_FILL, 1.0) * held)
    kept_b = np.maximum(kept_b, cols["kept_in_l2"])
    memory_s = (b_all + scales) * (kept_b / l2 + (1.0 - kept_b) / dram) + a_all * (kept_a / l2 + (1.0 - kept_a) / dram)
    memory_s = memory_s + (output + beside - scales) * (kept / l2 + (1.0 - kept) / dram)
    memory_s = memory_s + (extra + np.where(z > 1.0, 4.0 * b * m * n * z, 0.0)) / dram
    # an SM that has one tile more than others loads for longer, too
    side_n, side_m = t1 * cols["b_bytes"], t2 * cols["a_bytes"]
    shared = CLUSTER_SHARE * np.maximum(side_n, side_m) if asynchronous(gpu) else 0.0
    panels = kz * (side_n + side_m - shared)
    row = kz * (VECTOR_COLUMNS * cols["b_bytes"] + m * cols["a_bytes"])
    panels_of_sm = np.where(on_lanes, lane_rounds * row, per_sm * panels)
    panels_of_sm = np.where(few, (a_all + b_all) / sms, panels_of_sm)
    l2_s = panels_of_sm / (c["l2_bytes_per_clock"] * gpu.clock_hz)
    waits_s = (memory_s, l2_s, latency_s)
    pipe_s, level = pipe_seconds(cols, gpu, c, flops=2.0 * b * m * n * k, boost_s=full_s, waits_s=waits_s)
    moved = b * m * k * (converted + cols["a_bytes"])
    near = _kept(moved + cols["rotated"] * (copies - 1.0) * (b_all + b * m * k * converted), held)
    near_s, far_s = near / np.maximum(gpu.memory_bytes_per_s, l2), (1.0 - near) / gpu.memory_bytes_per_s
    convert_s = np.where(converted > 0, c["convert_us"] * 1e-6 + c["convert_passes"] * moved * (near_s + far_s), 0.0)
    passes = GREATEST_PASSES["HBM" if gpu.memory_type.upper().startswith("HBM") else "GDDR"]
    searched_s = GREATEST_US * 1e-6 + b * m * k * converted * (near_s + passes * far_s)
    convert_s = convert_s + np.where(cols["tensor_scale"] > 0, searched_s, 0.0)
    slowness = np.full(blocks.shape, (1.7e9 / gpu.clock_hz) ** FLOOR_EXPONENT)
    return {
        "compute": pipe_s,
        "memory": memory_s,
        "l2": l2_s,
        "latency": latency_s,
        "convert": convert_s + np.zeros_like(blocks),
        "blocks": blocks,
        "per_sm": per_sm,
        "occupancy": occupancy,
        "kz": kz,
        "level": level,
        "norm": np.where(few, c.get("norm_of_lanes", c["norm"]), c["norm"]),
        "slowness": slowness,
        "split_slowness": slowness if unpacked_weights.unpacks(c) else np.ones(blocks.shape),
    }


def beyond_measured(cols: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Products in 16 bits of fewer columns or longer reductions than were measured. Their tiles read no more than the
    operands have; what constants were fitted to reads whole tiles, as convolutions' products do."""
    if "bias" not in cols:
        return np.zeros(cols["n"].shape, dtype=np.bool_)
    apart = (cols["k"] > LONGEST_MEASURED) | (cols["n"] < FEWEST_MEASURED)
    found: NDArray[np.bool_] = apart & (cols["multiplied_bytes"] == 2.0)
    return found


def _copies(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether the measured replays of each product's format fill the L2 with copies of its weights, and how many."""
    filled: NDArray[np.bool_] = _FILLING[cols["pipe"].astype(np.int64)]
    fitting = np.ceil(gpu.l2_bytes / (cols["b"] * cols["n"] * cols["k"] * cols["b_bytes"]))
    return filled, np.where(filled, np.clip(fitting, 1.0, WEIGHT_COPIES), WEIGHT_COPIES)


def _kept(bytes_: NDArray[np.float64], held: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Share of operands that are still in L2 when so many bytes pass between two uses; 0..1."""
    kept: NDArray[np.float64] = 1.0 / (1.0 + (bytes_ / held) ** RESIDENT_SHARPNESS)
    return kept


_PARTS = ("compute", "memory", "l2", "latency")


def join(parts: Mapping[str, NDArray[np.float64]], c: Constants, split_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Latency in us: floor, p-norm of the competing times, the sum of a split, the conversion before."""
    power = parts["norm"]
    largest = np.maximum.reduce([parts[name] for name in _PARTS])
    total = sum((parts[name] / largest) ** power for name in _PARTS)
    joined: NDArray[np.float64] = c["floor_us"] * parts["slowness"] + 1e6 * (
        largest * total ** (1.0 / power) + parts["convert"]
    )
    return joined + np.where(split_k > 1.0, c["split_us"] * parts["split_slowness"], 0.0)


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """The columns with the tile fixed: that of the menu with the smallest time; a split only where the format's kernels
    have one."""
    c = own_constants(gpu, constants)
    amd = is_amd(gpu)

    def cost(part: Mapping[str, NDArray[np.float64]], tile: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = times(part, gpu, c, tile)
        # a part of a split has something to do, and splits are for grids that leave SMs idle
        useless = (tile[3] > 1.0) & ((parts["kz"] < 64.0) | (parts["blocks"] > 4.0 * gpu.sm_count))
        missing = (tile[3] > 1.0) & _SERIAL[part["pipe"].astype(np.int64)] & (not amd)
        if unpacked_weights.unpacks(c):
            most = np.where(unpacked_weights.on_lanes(part, c), 1.0, unpacked_weights.MOST_PARTS)
            missing = missing | (tile[3] > most)
        return np.where(useless | missing, np.inf, join(parts, c, tile[3]))

    tiles = matrix_unit_tiles(gpu)
    tile = cheapest(matrix_unit_candidates(tiles), cols, cost, chunk=_CHUNK)
    long = np.flatnonzero((cols["k"] > LONGEST_MEASURED) & (cols["multiplied_bytes"] == 2.0) & (not amd))
    if long.size:
        deep = matrix_unit_candidates(tiles, splits=DEEP_MATRIX_UNIT_SPLITS)
        part = {name: column[long] for name, column in cols.items()}
        tile[:, long] = cheapest(deep, part, cost, chunk=_CHUNK)
    return with_tile(cols, tile)


_SERIAL = np.array([name in SERIAL_PIPES for name in PIPES])
_FILLING = np.array([name in FILLING_PIPES for name in PIPES])
_INT8 = float(PIPES.index("int8"))


def _pinned(cols: Columns, gpu: GpuSpec, constants: Constants) -> NDArray[np.float64]:
    pinned = pinned_tile(cols)
    if pinned is None:
        pinned = pinned_tile(pin(cols, gpu, constants))
        assert pinned is not None
    return pinned


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline: FLOPs at the dense peak of the pipe (at the highest clock), unique bytes at the peak of DRAM, whichever
    takes longer.

    Bytes that the L2 can hold needn't come from DRAM, so only what exceeds it counts, and weights that it has lost
    since they were last used.
    """
    compute = cols["flops"] / (peaks(gpu, cols["pipe"]) * top_clock(gpu))
    beyond = np.maximum(cols["read_bytes"] + cols["write_bytes"] - gpu.l2_bytes, 0.0)
    cold = (
        (1.0 - np.maximum(cols["repeated"], cols["kept_in_l2"])) * cols["b_bytes"] * cols["b"] * cols["n"] * cols["k"]
    )
    memory = np.maximum(beyond, cold) / gpu.memory_bytes_per_s
    return 1e6 * np.maximum(compute, memory)


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer; ``cols`` may carry a pinned tile."""
    tile = _pinned(cols, gpu, constants)
    c = own_constants(gpu, constants)
    dot = gemv.is_dot(cols, gpu)
    tile = np.where(dot, gemv.tiles(cols), tile)
    parts = times(cols, gpu, c, tile)
    latency = join(parts, c, tile[3])
    if dot.any():
        streams = gemv.stream_s(cols, gpu, c, parts["blocks"])
        streamed = c["floor_us"] * parts["slowness"] + 1e6 * p_norm(streams, c["norm"])
        streamed = streamed + np.where(tile[3] > 1.0, c["split_us"], 0.0)
        latency = np.where(dot, streamed, latency)
        parts = parts | {name: np.where(dot, 0.0, parts[name]) for name in ("compute", "latency")}
        parts["memory"], parts["l2"] = (
            np.where(dot, stream, parts[name]) for name, stream in zip(("memory", "l2"), streams, strict=True)
        )
    return LawResult(
        latency_us=latency,
        ideal_us=ideal_us(cols, gpu),
        parts_us={
            "compute": 1e6 * parts["compute"],
            "memory": 1e6 * (parts["memory"] + parts["convert"]),
            "l2": 1e6 * parts["l2"],
            "latency": 1e6 * parts["latency"],
            "launch": np.full(latency.shape, c["floor_us"]),
        },
        tile={"n": tile[0], "m": tile[1], "threads": tile[2], "split_k": tile[3]},
        tile_count=parts["blocks"],
        wave_count=np.maximum(np.ceil(parts["blocks"] / (gpu.sm_count * parts["occupancy"])), 1.0),
        doubt_log_sd=np.hypot(
            clock_doubt(gpu, parts["level"], 1e6 * parts["compute"] / latency),
            np.where(dot, gemv.DOUBT_LOG_SD, np.where(cols["b"] > 1.0, BATCH_LOG_SD, 0.0)),
        ),
        unmeasured=dot,
    )


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features).

    Those of the kernel as it would be measured, which is what the residual was trained on: in bursts.
    """
    tile = np.stack([result.tile["n"], result.tile["m"], result.tile["threads"], result.tile["split_k"]])
    c = own_constants(gpu, constants)
    parts = times({**cols, "burst": np.ones_like(cols["burst"])}, gpu, c, tile)
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
        np.log((unique + (_copies(cols, gpu)[1] - 1.0) * rotating) / gpu.l2_bytes),
        small / np.ceil(small),
        np.log(ridge),
        np.log(latency_us / 1e3),
    )
    return np.stack(values, axis=1).astype(np.float32)


TENSOR_GEMM = Law(
    kernel_class="gemm",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
)

UNPACKED_GEMM = replace(TENSOR_GEMM, constants=unpacked_weights.constants_of(CONSTANTS))
"""The same law where weights are stored in fewer bits than they are multiplied in, on NVIDIA's GPUs."""

_AMD_PRIORS: Mapping[str, Constant] = {
    constant.name: constant
    for constant in (
        Constant(
            name="pipe_overhead",
            prior=1.5,
            prior_log_sd=0.2,
            source="AMD's matrix cores: the largest bf16 products reach .51-.60 of their peak on MI300X and MI325X "
            "(stas00/ml-engineering, maximum achievable matmul FLOPS), less than a tile's overheads explain; fitted",
        ),
        Constant(
            name="dram_efficiency",
            prior=0.68,
            prior_log_sd=0.1,
            source="tuned products of few rows get 3.5 TB/s of 5.3 on MI300X and MI308X; fitted",
        ),
        Constant(
            name="floor_us", prior=4.0, prior_log_sd=0.3, source="the smallest tuned products take 4-5 us; fitted"
        ),
        Constant(name="tile_overhead", prior=0.2, prior_log_sd=0.5, source="as NVIDIA's, less certain; fitted"),
    )
}


def amd_constants(constants: Sequence[Constant]) -> tuple[Constant, ...]:
    """Constants with what is expected of AMD's matrix cores and libraries."""
    return tuple(_AMD_PRIORS.get(constant.name, constant) for constant in constants)


TENSOR_GEMM_AMD = replace(TENSOR_GEMM, constants=amd_constants(CONSTANTS))
"""The same law for AMD: priors of its libraries, fitted on its kernels."""
