"""Matrix units (tensor cores, matrix cores): which number formats a GPU has them for, and how fast their pipes are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.kernels import Conv, Gemm
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Column

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


def serves(gpu: GpuSpec, dtype: DataType) -> bool:
    """Whether the GPU has a matrix unit for the number format: NVIDIA's since Volta, AMD's CDNA.

    Pascal's and Volta's 8-bit dot products and GCN's packed halves are instructions of vector lanes, with peaks of
    their own.
    """
    pipe = _PIPE_OF.get(dtype, "")
    return gpu.has_matrix_units and pipe in gpu.peak_flops_per_s and not (pipe == "int8" and gpu.int8_on_lanes)


def pipe_of(dtype: DataType) -> str:
    """The pipe that a number format is multiplied by; the 16-bit one for a format without its own."""
    return _PIPE_OF.get(dtype, "fp16")


def pipe_of_product(kernel: Gemm | Conv) -> str:
    """The pipe of a product or convolution: its number format's, or that of FP16 sums."""
    if kernel.dtype is DataType.FLOAT32:
        return "fp32"
    is_half = kernel.dtype is DataType.FLOAT16 and kernel.accumulator is DataType.FLOAT16
    return "fp16_accumulate" if is_half else pipe_of(kernel.dtype)


def peaks(gpu: GpuSpec, pipe: Column) -> Column:
    """Dense FLOP/s of each kernel's pipe; a format that the GPU lacks runs on the 16-bit one, else on vector lanes."""
    peaks = gpu.peak_flops_per_s
    wider = peaks.get("fp16", peaks.get("bf16", peaks["fp32"]))
    own = {
        **peaks,
        "fp16_accumulate": gpu.fp16_accumulate_flops_per_s or wider,
        "fp32": gpu.fp32_matrix_flops_per_s or peaks["fp32"],
    }
    found: Column = np.array([own.get(name, wider) for name in PIPES])[pipe.astype(np.int64)]
    return found


def asynchronous(gpu: GpuSpec) -> bool:
    """Whether tiles are fetched and products issued by units of their own: TMA with WGMMA (Hopper) or tcgen05
    (data-centre Blackwell). All others issue both from the warps that hold the result."""
    return instructions(gpu) != "mma"


FULL_RATE = 500.0
"""16-bit multiply-adds a clock and SM of pipes that hide nothing of a small tile's loads (L40S; 512 by design)."""

EXPOSED_EXPONENT = 1.5
"""How fast the exposed share falls with the pipe's rate: as with a tile's size (``tile_exponent`` of the laws, 1.5 in
all formats). Either way it is loads over products: a tile of 64x64 on a halved pipe, as GeForce cards have it, loads as
many bytes in the time of its products as one of 128x128 on a whole one, and exposes as little, .35 of what it would."""


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
    AMD has one kind of compute unit a generation: 1.
    """
    if is_amd(gpu):
        return np.ones_like(element_bytes)
    rate = peaks(gpu, pipe) / (2.0 * gpu.sm_count * gpu.clock_hz) * element_bytes / 2.0
    found: NDArray[np.float64] = np.minimum(rate / FULL_RATE, 1.0)
    return found


_WRITTEN_BYTES = 2.0
"""Bytes of an element that nearly all measured products write, whatever they multiply."""


def around_share(gpu: GpuSpec, result_bytes: NDArray[np.float64]) -> NDArray[np.float64] | float:
    """Time of what a tile does before and behind its loop, over that of a tile whose results have 16 bits, at most 1.

    It is the results' bytes that take it: products in 8 bits that write 16 take as long around their loop as those in
    16 bits (fitted to each: 123 and 119 steps of 2 bytes in INT8 and FP8, 134 in bfloat16). Kernels that are
    taken to write 8 bits are DeepBench's INT8 convolutions on a T4, which no predictor is trained on: those of 32
    channels and more with several tiles an SM took .76-.85 of the time with all of it (five of six), .92-.97 with half
    of it and of what beginning a tap takes; a quarter would fit them best. Wider results weren't measured, nor any
    narrower on AMD.
    """
    return 1.0 if is_amd(gpu) else np.minimum(result_bytes / _WRITTEN_BYTES, 1.0)


AMD_OVERHEAD = 1.33
"""Time of CDNA3's matrix cores over that at their peak beside what tiles load, where nothing of a kernel class was
measured on them: as fitted to products (``pipe_overhead`` of ``gemm_matrix_amd``)."""


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
