"""The law of fused attention on matrix units: prefill, decoding and encoders, in 16 and 8 bits.

``(b, h, s, d) x (b, g, t, d) -> (b, h, s, v)``, g key-value heads shared by h / g query heads each. A block of threads
holds a tile of queries and walks over tiles of keys (a *step* each): two products on the matrix pipe, an exponential a
pair in between. Queries of the heads that share keys may stand in one tile (*packed*). What competes (p-norm):

- *compute*: all steps over all SMs, the softmax partly hidden behind the products (with mma by another block of the SM,
  where shared memory holds two); blocks have a prologue and an epilogue; a causal mask or a window leaves out the tiles
  that nobody looks at.
- *latency*: the block with the most steps, one after the other.
- *memory*: queries, keys, values and output through DRAM, as far as L2 doesn't hold them; with mma, keys and values
  from L2 as far as it does.
- *l2*: keys and values are fetched again by every tile of queries.

Beside them stand the floor of a launch, the loads before a block's first step and its stores after the last, the second
kernel that adds parts where rows of keys are split among blocks, and the kernel that appends keys and values to a
cache.

Which kernels run follows from the instructions: FlashAttention 2 on mma (Ampere, Ada, GeForce), FlashAttention 3 on
WGMMA (Hopper), TensorRT-LLM's and FlashAttention 4 on tcgen05 (data-centre Blackwell). PyTorch and ONNX Runtime have
FlashAttention 2 on all of them, and CUTLASS's memory-efficient attention where it can't run: laws of their own with the
same constants (``FLASH2_ATTENTION``, ``EFFICIENT_ATTENTION``; ``memory_efficient``). Where keys are stored in fewer
bits than queries, mma runs FlashInfer's, whose warps unpack them in registers; Hopper and Blackwell multiply in FP8,
which FlashAttention 3 transposes values for. Queries of 8 bits have TensorRT-LLM's kernels (``attention_fp8`` for
mma's). Everything is vectorised over kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.kernels import Attention, Kernel
from neusight_onnx.laws import attention_fp8, memory_efficient
from neusight_onnx.laws.bandwidth import capability, channel_share, is_amd, l2_bytes_per_s, memory_family
from neusight_onnx.laws.base import Column, Columns, Constant, Constants, Law, LawResult
from neusight_onnx.laws.gemm import process_energy
from neusight_onnx.laws.memory_efficient import FLASH2, MEMORY_EFFICIENT, MMA_SHARE
from neusight_onnx.laws.tensor_gemm import AMD_OVERHEAD, PIPES, clock_had, sustained_level, unit_energy

STREAM_FRACTIONS = {
    "pascal_turing": 0.751,
    "gddr6": 0.80,
    "gddr6x": 0.90,
    "lpddr": 0.80,
    "amd": 0.848,
    "amd_cdna3": 0.80,
}
"""Share of the DRAM peak that streams get, by memory family: with these the law was fitted. They are its own, since
kernels in 16 and 8 bits (quantise kernels, streamed weights: L40S .76-.84, RTX 3090 and 4090 .85-.94) have set some."""


def stream_fraction(gpu: GpuSpec) -> float:
    """Share of the DRAM peak that streams get; of HBM what its channels deliver (``bandwidth.channel_share``)."""
    family = memory_family(gpu)
    return channel_share(gpu, family.fraction) if family.by_channel else STREAM_FRACTIONS[family.name]


_FITTED = "study of the shared attention measurements (A100, H100, L40S, B200); fitted"

CONSTANTS: tuple[Constant, ...] = (
    Constant(
        name="floor_cycles",
        prior=9000.0,
        prior_log_sd=0.2,
        source="launch and drain: the smallest kernels, replayed in a CUDA graph, take 5-11 us, 12,000 to 16,000 "
        "cycles, less a block with one step; fitted",
    ),
    Constant(
        name="pipe_overhead",
        prior=1.2,
        prior_log_sd=0.1,
        source="time of a step's products over that at the dense peak: FlashAttention 2 reaches up to .73 of A100's "
        "(Dao 2023), 3 up to .75 of H100's (Shah et al. 2024), with the softmax in it; fitted",
    ),
    Constant(
        name="pipe_overhead_tcgen05",
        prior=1.1,
        prior_log_sd=0.1,
        source="the same where products are issued by one thread and run beside everything else; fitted",
    ),
    Constant(
        name="exp_overhead",
        prior=1.0,
        prior_log_sd=0.2,
        source="time of the softmax over that of its exponentials and vector instructions at their peaks: polynomials "
        "on vector lanes take some of the exponentials; fitted",
    ),
    Constant(
        name="vector_instructions",
        prior=6.0,
        prior_log_sd=0.3,
        source="a pair: scale, maximum, difference, sum, conversion, and a share of the output's rescaling; fitted",
    ),
    Constant(
        name="vector_instructions_tcgen05",
        prior=4.0,
        prior_log_sd=0.3,
        source="the same where two values are scaled or added by one instruction and a maximum takes three (PTX ISA: "
        "fma.f32x2, max with three inputs, sm_100); fitted",
    ),
    Constant(
        name="exposed_mma",
        prior=0.6,
        prior_log_sd=0.2,
        source="share of the shorter of products and softmax that isn't hidden behind the other: only another block's "
        "on the same SM hides it; fitted",
    ),
    Constant(
        name="exposed_wgmma",
        prior=0.35,
        prior_log_sd=0.2,
        source="two warp groups take turns: .50 of the peak with heads of 64, .66 with 128, .75 with 256 (Shah et al. "
        "2024: FP16, forward, 16k) leave .43, .33 and next to nothing",
    ),
    Constant(
        name="exposed_tcgen05",
        prior=0.2,
        prior_log_sd=0.3,
        source="products and softmax are different warps': about .7 of the peak with heads of 128 (FlashAttention 4); "
        "fitted",
    ),
    Constant(name="step_cycles", prior=200.0, prior_log_sd=0.5, source="barriers and loop of a step; " + _FITTED),
    Constant(
        name="step_latency_cycles",
        prior=500.0,
        prior_log_sd=0.5,
        source="what a step waits for where its block is alone on an SM; " + _FITTED,
    ),
    Constant(
        name="block_cycles",
        prior=4000.0,
        prior_log_sd=0.4,
        source="first load, last store, scheduling of a block: blocks of one step take 2,300-6,000 cycles; fitted",
    ),
    Constant(
        name="block_cycles_flashinfer",
        prior=7000.0,
        prior_log_sd=0.4,
        source="of FlashInfer's blocks, which look up their work, their pages and the page table one after the other: "
        "four reads more, of 750 cycles; fitted",
    ),
    Constant(
        name="row_cycles",
        prior=30.0,
        prior_log_sd=0.4,
        source="the same for each row of its tile with heads of 128: rows are loaded and stored; fitted",
    ),
    Constant(
        name="io_exposed",
        prior=0.5,
        prior_log_sd=0.4,
        source="share of the time of queries, output and each block's first keys that no step hides; fitted",
    ),
    Constant(
        name="convert_instructions",
        prior=3.0,
        prior_log_sd=0.4,
        source="an element of keys and values stored in fewer bits: unpacked by every warp that multiplies it; fitted",
    ),
    Constant(
        name="producer_cycles",
        prior=0.15,
        prior_log_sd=0.4,
        source="FlashAttention 3 in FP8: cycles of the warp group that loads, an element of values, which it "
        "transposes in shared memory (WGMMA takes 8-bit operands in one order only); no prior knowledge; fitted",
    ),
    Constant(
        name="pack_cycles",
        prior=1.0 / 32.0,
        prior_log_sd=0.5,
        source="mma with queries of 8 bits: cycles of an SM to convert a probability to them: 16 conversions a clock "
        "(CUDA C++ Programming Guide, all other type conversions), each of two values (PTX ISA: cvt to e4m3x2); fitted",
    ),
    Constant(
        name="energy_pj",
        prior=2.4,
        prior_log_sd=0.2,
        source="board energy of a 16-bit FLOP by mma in 16 nm: 2.96 in the law of products on random values, less as "
        "half of the products have probabilities, positive and mostly small, and switch less; fitted",
    ),
    Constant(
        name="softmax_flops",
        prior=57.0,
        prior_log_sd=0.5,
        source="FLOPs of 16-bit products by mma that take as much energy as a pair's softmax: seven vector "
        "instructions at the 12 pJ an FP32 FLOP and two FLOPs of the FP32 law, over 2.96; fitted",
    ),
    Constant(
        name="throttle_ms",
        prior=0.45,
        prior_log_sd=0.0,
        source="measured by a few repetitions, shorter kernels run at the boost clock: as fitted to 16-bit products",
    ),
    Constant(
        name="dram_efficiency",
        prior=0.97,
        prior_log_sd=0.05,
        source="against an elementwise kernel: keys are read in whole rows; fitted",
    ),
    Constant(
        name="l2_fill",
        prior=0.95,
        prior_log_sd=0.1,
        source="share of L2 up to which repetitions find their data in it: L40S's knee; fitted",
    ),
    Constant(
        name="l2_partitioned",
        prior=0.6,
        prior_log_sd=0.2,
        source="the same where L2 is two partitions that each serve half of the SMs, so that data stand in both (A100 "
        "white paper); fitted",
    ),
    Constant(
        name="l2_bytes_per_clock",
        prior=40.0,
        prior_log_sd=0.3,
        source="bytes of keys and values that an SM gets in a clock, of 64 by design; " + _FITTED,
    ),
    Constant(
        name="l2_stream_mma",
        prior=0.5,
        prior_log_sd=0.3,
        source="share of the L2's measured bandwidth at which mma's kernels stream keys that it holds, two blocks an "
        "SM that each wait for their tile: an L40S decodes at 2.4-3 TB/s in 16 and 8 bits alike; fitted",
    ),
    Constant(name="norm", prior=4.0, prior_log_sd=0.3, source="power of the norm that joins competing times; fitted"),
    Constant(
        name="split_us",
        prior=2.0,
        prior_log_sd=0.3,
        source="at 1.7 GHz: the kernel that adds the parts of split keys; fitted",
    ),
    Constant(
        name="split_us_mma",
        prior=4.0,
        prior_log_sd=0.5,
        source="the same of FlashAttention 2, whose part kernel differs from the plain one: 12.5 -> 18 us from one "
        "part to two on A100; fitted",
    ),
    Constant(name="split_cycles", prior=100.0, prior_log_sd=0.5, source="the same for each part; fitted"),
    Constant(
        name="split_cycles_mma",
        prior=300.0,
        prior_log_sd=0.5,
        source="of FlashAttention 2, which adds parts one by one; fitted",
    ),
    Constant(
        name="merge_cycles",
        prior=500.0,
        prior_log_sd=0.5,
        source="of FlashInfer's kernel that adds them: cycles of an SM for each row, two or three reads one after the "
        "other by a block, some four or five of which are on an SM; fitted",
    ),
    Constant(
        name="regroup_us",
        prior=3.0,
        prior_log_sd=0.5,
        source="at 1.7 GHz: FlashAttention 2 packs by two copies, of queries and output, where neither the batch nor "
        "the number of key heads is one; fitted",
    ),
    Constant(
        name="cache_us",
        prior=2.5,
        prior_log_sd=0.3,
        source="at 1.7 GHz: launch of the kernel that writes the cache; 2-3 us between releases with and without",
    ),
    Constant(
        name="cache_passes",
        prior=1.2,
        prior_log_sd=0.2,
        source="bytes it moves in DRAM over those read and written; fitted",
    ),
    Constant(
        name="cache_block_cycles",
        prior=3000.0,
        prior_log_sd=0.3,
        source="life of its block, which writes a token's keys and values: releases with and without it differ by "
        "1.6-2.9 us (H100), .8-1.9 (B200) times the rounds of blocks, for 128 to 1,024 elements a token; fitted",
    ),
    Constant(
        name="cache_block_cycles_narrow",
        prior=6000.0,
        prior_log_sd=0.3,
        source="the same where it converts to 8 bits, too: 2.7-4.2 us (H100), 2.8-5 (B200); fitted",
    ),
    Constant(
        name="prepare_us",
        prior=4.0,
        prior_log_sd=0.5,
        source="at 1.7 GHz: TensorRT-LLM's kernel before the attention (splitting, rotating, converting): its smallest "
        "rows in 16 bits take 2-7 us more than vLLM's; fitted",
    ),
    Constant(
        name="prepare_bytes_per_clock",
        prior=15.0,
        prior_log_sd=0.3,
        source="bytes that its SMs move in a clock each: 14 on B200, 18 on H100; fitted",
    ),
    Constant(
        name="prepare_window_cycles",
        prior=40.0,
        prior_log_sd=0.5,
        source="what its rows with a window take more, in cycles of an SM for each token and head: 64 heads of 16,384 "
        "tokens take a B200 440 us where vLLM's, by the same kernel of attention, take 260; no prior knowledge; fitted",
    ),
)

_COLUMNS = (
    "b",
    "h",
    "g",
    "s",
    "t",
    "d",
    "v",
    "causal",
    "window",
    "windowed",
    "query_bytes",
    "kv_bytes",
    "seen_bytes",
    "past_bytes",
    "io_bytes",
    "cache_bytes",
    "mask_reads",
    "read_bytes",
    "write_bytes",
    "flops",
    "pipe",
    "burst",
    "mask_bytes",
    "by_onnxruntime",
)

FEATURES: tuple[str, ...] = (
    "log_memory_over_compute",
    "log_l2_over_compute",
    "log_latency_over_compute",
    "log_floor_over_time",
    "log_softmax_over_products",
    "log_blocks_per_sm",
    "wave_fraction",
    "log_heads_per_group",
    "log_rows",
    "log_split_k",
    "log_steps",
    "log_b",
    "log_g",
    "log_h",
    "log_s",
    "log_t",
    "head_dim",
    "head_dim_fill",
    "causal",
    "log_window_over_t",
    "log_keys_over_l2",
    "log_total_over_l2",
    "log_cache_share",
    "narrow_keys",
)

_PIPE_OF: dict[DataType, str] = {
    DataType.FLOAT16: "fp16",
    DataType.BFLOAT16: "bf16",
    DataType.FLOAT8E4M3FN: "fp8",
    DataType.FLOAT8E4M3FNUZ: "fp8",
    DataType.FLOAT8E5M2: "fp8",
    DataType.FLOAT8E5M2FNUZ: "fp8",
    DataType.FLOAT32: "tf32",
    DataType.TFLOAT32: "tf32",
}

EXPONENTIALS_PER_CLOCK = 16.0
"""Of an SM's special-function units: 16 results a clock (CUDA C++ Programming Guide, throughput of arithmetic
instructions, 8.0 to 10.x), which FlashAttention 3 (Shah et al. 2024) names as the limit next to the products. CDNA's
transcendentals run at a quarter of the rate of its 64 lanes (AMD CDNA 3 ISA), which is the same."""

QUICK_EXPONENTIALS_PER_CLOCK = 32.0
"""The same of Blackwell Ultra (compute capability 10.3), whose special-function units NVIDIA doubled for attention (as
remembered); FlashAttention 4 computes no exponential by polynomials there ("fast hardware ex2", ``is_sm103`` in
``flash_fwd_sm100.py``). Nothing was measured."""

SHARED_BYTES = 100.0 * 1024.0
"""Shared memory of an SM where the spec states none: that of compute capability 8.6, 8.9 and 12.x (CUDA C++ Programming
Guide, technical specifications)."""

CACHE_THREADS = (128.0, 512.0)
"""Least and most threads of a block that writes a token to the cache: one an element (vLLM's reshape_and_cache_flash);
with fewer than 128, blocks start no faster."""

GIVEN_BYTES = 2.0
"""Least bytes of an element that a cache's kernel is given: a product's output in 16 bits, also where queries, keys and
values are converted to 8 (TensorRT-LLM's preprocessing)."""

WARPS = 4.0
"""Warps of mma's blocks: each has rows of queries of its own and reads all keys; with FlashInfer's tile of 16 rows each
has keys of its own."""

LEAST_PART_BYTES = 512.0
"""Keys times bytes of an element that a part has at least in TensorRT-LLM's decoding on tcgen05: a B200 takes 6.5 us up
to 256 keys in 16 bits and up to 512 in 8, and 8.4 from the double on."""

LEAST_CHUNK = 128.0
"""Keys that a part of FlashInfer's has at least (its scheduler)."""

BLOCK_NORM = 8.0
"""Power of the norm that joins a block's steps with those of all: where every SM has one block the two are the same."""

UNOVERLAPPED_HEAD = 192.0
"""Widest head whose softmax FlashAttention 3 in FP8 hides behind products where keys are in pages (its tiles)."""

L2_SHARPNESS = 8.0
"""How sharply DRAM takes over where what repetitions touch exceeds L2."""

LAST_BLOCKS = 0.95
"""Of the longest block's steps, what SMs wait for it (``_last_steps``)."""

RESIDENT_BLOCKS = 2.0
"""Blocks that hide each other's prologues: two on an SM with mma, and with tcgen05 in decoding. WGMMA's kernels fill an
SM's registers with one, prompts and encoders on tcgen05 its tensor memory: 128 columns each for scores and output of
two tiles are all 512 that there are (PTX ISA; FlashAttention 4's ``tmem_total``)."""

OTHER_KERNELS_LOG_SD = 0.3
"""Doubt (log) where other kernels run than were measured: FlashAttention 2 needs Ampere (its README), Volta and Turing
have CUTLASS's memory-efficient attention, AMD's GPUs Composable Kernel's. A judgement."""

OTHER_PIPE_LOG_SD = 0.15
"""The same where FlashAttention 2 was measured on other GPUs' mma instructions only. A judgement."""

FEW_QUERIES, FEW_QUERIES_HEAD = 64.0, 128.0
"""Rows of packed queries up to which FlashAttention 3 in 16 bits has a tile of 64 instead of 128 rows where heads are
this wide (``use_one_mma_wg`` of its sources, as remembered). An H100 decodes from its L2 in 1.2 us a step of 64 KB of
keys and values with heads of 128 and in 2.3 with heads of 256 (128 sequences and key heads): with 128 rows these were
.93 and .48 of the pipe's peak, so that the first are 64. One group of warps has such a tile, so that no other's
products hide its softmax. Where DRAM binds it hardly tells (an H100 left out decodes 13.2 % off, 12.3 with 128 rows),
but on an H20, whose pipe is slow, it does: with 128 rows DRAM would idle for four fifths of the time."""

FLASH3_HEADS = np.array([64.0, 96.0, 128.0, 192.0, 256.0])
FLASH3_UNMASKED_KEYS = np.array([192.0, 144.0, 176.0, 112.0, 80.0])
"""Widths of heads that FlashAttention 3 has kernels for, and keys of their tiles without a mask (its ``tile_size.h``;
what ``_tile_size_fwd_sm90`` of FlashAttention 4 says of them)."""

FLASH2_HEADS = np.array([32.0, 64.0, 96.0, 128.0, 192.0, 256.0])
"""Widths of heads that FlashAttention 2 has kernels for; others are padded (HEADDIM_SWITCH of its sources)."""

SHARED_BYTES_PER_CLOCK = 128.0
"""Of an SM: 32 banks of four bytes (CUDA C++ Programming Guide)."""

MOST_SPLITS = 128
SPLIT_EFFICIENCY = 0.85
"""FlashAttention 2 takes the least number of parts that comes within 85 % of the best filling of two blocks an SM, 128
at most, and one part from .8 of such a round on (num_splits_heuristic of its sources)."""
SPLIT_BELOW = 0.8


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Attention kernels as columns: sizes, bytes an element of queries and keys, bytes by what they are.

    ``seen_bytes`` are the keys and values that are read, ``past_bytes`` those of them that a cache held before and that
    L2 has lost since; ``io_bytes`` queries, output and what else is read or written once; ``mask_reads`` what all heads
    read of a mask.
    """
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Attention)
        query, stored = kernel.dtype.bits / 8, (kernel.kv_dtype or kernel.dtype).bits / 8
        # an empty tensor still launches a kernel: that of one element
        b, h, g, s, t, d, v = (
            max(size, 1) for size in (kernel.b, kernel.h, kernel.g, kernel.s, kernel.t, kernel.d, kernel.v)
        )
        keys = max(kernel.seen_keys, 1)
        seen = stored * b * g * keys * (d + v)
        mask = kernel.mask.byte_count if kernel.mask else 0
        # one that has a value a pair is read again by every head; one that has a value a key is nothing beside the keys
        reads = (
            b * h * s * keys * kernel.mask.dtype.bits / 8 if kernel.mask and kernel.mask.element_count >= s * t else 0.0
        )
        extra = sum(spec.byte_count for spec in kernel.extra_outputs)
        past = 0.0 if kernel.past_in_l2 else max(1.0 - s / keys, 0.0) * (1.0 - kernel.kept_in_l2)
        rows.append(
            (
                b,
                h,
                g,
                s,
                t,
                d,
                v,
                float(kernel.causal),
                min(kernel.window or t, t),
                float(kernel.window is not None),
                query,
                stored,
                seen,
                past * seen,
                query * b * h * s * (d + v) + mask + extra,
                kernel.cache_write_elements * (max(query, GIVEN_BYTES) + stored),
                reads,
                kernel.read_bytes,
                kernel.write_bytes,
                2.0 * kernel.macs,
                float(PIPES.index(_PIPE_OF[kernel.dtype])),
                float(kernel.burst),
                mask,
                float(kernel.library == "onnxruntime"),
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


def _columns_of(used: str) -> Callable[[Sequence[Kernel]], dict[str, Column]]:
    """Columns of kernels that are all ``FLASH2``, or all ``MEMORY_EFFICIENT``: a column of that name says so."""

    def found(kernels: Sequence[Kernel]) -> dict[str, Column]:
        return {**columns(kernels), used: np.ones(len(kernels))}

    return found


def _unit(cols: Columns, gpu: GpuSpec) -> str:
    """The instruction that the kernels are written in."""
    return "mma" if FLASH2 in cols or MEMORY_EFFICIENT in cols else instructions(gpu)


def _doubt_log_sd(cols: Columns, gpu: GpuSpec) -> float:
    """Standard deviation (log) that no left-out GPU shows."""
    if MEMORY_EFFICIENT in cols:
        return OTHER_KERNELS_LOG_SD
    if FLASH2 in cols:
        return OTHER_PIPE_LOG_SD
    return OTHER_KERNELS_LOG_SD if gpu.compute_capability is None or gpu.compute_capability < 8.0 else 0.0


def _partitioned(gpu: GpuSpec) -> bool:
    """Whether L2 is two partitions: NVIDIA's dies with HBM since Ampere."""
    return gpu.memory_type.upper().startswith("HBM") and (gpu.compute_capability or 0.0) >= 8.0


def _narrow(cols: Columns) -> NDArray[np.bool_]:
    """Whether keys are stored in fewer bits than queries."""
    found: NDArray[np.bool_] = cols["kv_bytes"] < cols["query_bytes"]
    return found


def _prompt8(cols: Columns) -> NDArray[np.bool_]:
    """Whether queries are in 8 bits with no keys before them, which was measured with TensorRT-LLM's kernels of
    prompts: they don't pack."""
    found: NDArray[np.bool_] = (cols["query_bytes"] < 2.0) & (cols["t"] <= cols["s"])
    return found


def _flash3_fp8(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether FlashAttention 3 multiplies in FP8."""
    found: NDArray[np.bool_] = (cols["kv_bytes"] < 2.0) & ~_prompt8(cols) & (instructions(gpu) == "wgmma")
    return found


def _mma_fp8(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether TensorRT-LLM's kernels of prompts in FP8 run on mma, which need compute capability 8.9."""
    prompt = (cols["query_bytes"] < 2.0) & (_prompt8(cols) | (cols["s"] > 1))
    found: NDArray[np.bool_] = prompt & (instructions(gpu) == "mma") & (capability(gpu) >= 8.9)
    return found


def _pipes(cols: Columns, gpu: GpuSpec) -> Column:
    """Each kernel's pipe: with keys in 8 bits Hopper and Blackwell convert the queries, others the keys."""
    if instructions(gpu) == "mma":
        return cols["pipe"]
    return np.where(_narrow(cols), float(PIPES.index("fp8")), cols["pipe"])


def _rates(cols: Columns, gpu: GpuSpec) -> Column:
    """FLOP/s that the instructions which the kernels are written in reach at most."""
    peaks = _peaks(cols, gpu)
    return peaks if _unit(cols, gpu) == instructions(gpu) else peaks * MMA_SHARE[instructions(gpu)]


def _peaks(cols: Columns, gpu: GpuSpec) -> Column:
    """Dense FLOP/s of each kernel's pipe; a format that the GPU lacks runs on the 16-bit one, else on vector lanes."""
    if MEMORY_EFFICIENT in cols:
        return memory_efficient.rate(cols, gpu)
    peaks = gpu.peak_flops_per_s
    wider = peaks.get("fp16", peaks.get("bf16", peaks["fp32"]))
    found: Column = np.array([peaks.get(name, wider) for name in PIPES])[_pipes(cols, gpu).astype(np.int64)]
    return found


def _shared_bytes(gpu: GpuSpec) -> float:
    """Shared memory of an SM."""
    return float(gpu.shared_memory_bytes_per_sm or SHARED_BYTES)


def _flash2_tiles(cols: Columns, rows: Column, gpu: GpuSpec) -> tuple[Column, Column, Column, Column]:
    """Queries and keys of FlashAttention 2's tile, warps of a block, and how many times four of them are on an SM.

    Where keys stand in pages, as under the masks that were measured, or are cut into parts: those of
    ``run_mha_fwd_splitkv_dispatch``. Others have a tile for each head (``run_mha_fwd_hdim*``). A block holds its
    queries, a tile of keys and one of values in shared memory.
    """
    d = FLASH2_HEADS[np.minimum(np.searchsorted(FLASH2_HEADS, cols["d"]), FLASH2_HEADS.size - 1)]
    # Composable Kernel's blocks on AMD are not known: taken to leave room for a second one
    shared = np.inf if is_amd(gpu) else _shared_bytes(gpu)
    causal = cols["causal"] > 0
    paged = causal & (FLASH2 not in cols) | (rows <= 64) & (cols["t"] > cols["s"])
    paged_k = np.where(d <= 64, 256.0, np.where(d <= 128, 128.0, 64.0))
    small = 8.0 < capability(gpu) < 9.0
    square = small & causal & (d > 64) & (d <= 128)
    whole_k = np.where(d <= 64, 128.0, np.where((d == 128) & small & ~causal, 32.0, 64.0))
    # heads of 256: 128 queries where they fit, but not where two blocks of 64 do
    fewer = (d == 256) & ((shared < 2 * 256 * 256) | (shared >= 4 * 256 * 192))
    tile_q = np.where(paged | fewer | square, 64.0, 128.0)
    tile_k = np.where(paged, paged_k, whole_k)
    warps = np.where((d > 128) & (tile_q == 128.0), 2.0 * WARPS, WARPS)
    block = cols["query_bytes"] * d * (tile_q + 2.0 * tile_k)
    blocks = np.maximum(np.floor(shared / (block + attention_fp8.RESERVED_BYTES)), 1.0)
    return tile_q, tile_k, warps, np.minimum(blocks * warps / WARPS, RESIDENT_BLOCKS)


def _exponentials_per_clock(gpu: GpuSpec) -> float:
    """Results a clock of an SM's special-function units."""
    is_ultra = not is_amd(gpu) and 10.3 <= capability(gpu) < 11.0
    return QUICK_EXPONENTIALS_PER_CLOCK if is_ultra else EXPONENTIALS_PER_CLOCK


def _last_steps(steps: Column, longest: Column) -> Column:
    """Steps that SMs wait for the last blocks, beyond their share of all steps; ``steps``: a block's on average.

    Under a causal mask blocks start from the first queries to the last (``m_block = blockIdx.x`` of FlashAttention 2),
    so that the longest come last. Simulated (two places an SM, each next block to the first that is free; 2 to 128
    blocks a head, 72 to 142 SMs, 1 to 20 blocks an SM): .96 of the longest on average, .75 with two blocks a head.
    Blocks that are alike leave nothing of this.
    """
    unlike = np.clip(2.0 * (1.0 - steps / longest), 0.0, 1.0)
    found: Column = LAST_BLOCKS * np.sqrt(unlike) * longest
    return found


def _flash2_splits(blocks: Column, steps: Column, slots: float) -> Column:
    """Parts that FlashAttention 2 cuts rows of ``steps`` tiles of keys into, for ``blocks`` on ``slots`` places."""
    parts = np.arange(1.0, MOST_SPLITS + 1.0)[:, None]
    rounds = blocks * parts / slots
    fewer = np.ceil(steps / np.maximum(parts - 1.0, 1.0))
    allowed = (parts == 1.0) | ((parts <= steps) & (np.ceil(steps / parts) != fewer))
    filling = np.where(allowed, rounds / np.ceil(rounds), 0.0)
    first = np.argmax(filling >= SPLIT_EFFICIENCY * filling.max(axis=0), axis=0) + 1.0
    return np.where(blocks >= SPLIT_BELOW * slots, 1.0, first)


def _flashinfer_tiles(cols: Columns, rows: Column, gpu: GpuSpec) -> tuple[Column, Column]:
    """Queries and keys of FlashInfer's tile: by packed rows (FA2DetermineCtaTileQ), as many fragments of 16 keys as
    registers and, with two blocks an SM, shared memory hold beside the queries."""
    d, stored = cols["d"], cols["kv_bytes"]
    tile_q = np.where((rows > 64) & (d < 256), 128.0, np.where(rows > 16, 64.0, 16.0))
    fragment = 16.0 * np.where(tile_q == 16.0, WARPS, 1.0)
    shared = gpu.shared_memory_bytes_per_sm or SHARED_BYTES
    queries, keys = tile_q * d * cols["query_bytes"], fragment * (d + cols["v"]) * stored
    of_block = np.where(shared >= RESIDENT_BLOCKS * (queries + keys), shared / RESIDENT_BLOCKS, shared)
    most = np.where(tile_q == 128.0, 4.0, 8.0)
    fragments = np.clip((of_block - queries) / keys, 1.0, most)
    return tile_q, fragment * 2.0 ** np.floor(np.log2(fragments))


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """The columns with what a library chooses: tile, packing, parts, and the steps and blocks that follow."""
    return {**cols, **_choose(cols, gpu)}


def _choose(cols: Columns, gpu: GpuSpec) -> dict[str, Column]:
    unit, sms = _unit(cols, gpu), float(gpu.sm_count)
    b, h, g, s, t, d = (cols[name] for name in ("b", "h", "g", "s", "t", "d"))
    causal, shared = cols["causal"] > 0, h / g
    prompt8 = _prompt8(cols)
    if unit == "wgmma":
        packed = np.ones(s.shape, dtype=np.bool_)
    elif unit == "tcgen05":
        packed = s == 1
    else:
        packed = _narrow(cols) | ((s == 1) & (cols["windowed"] == 0))
    packed = packed & ~prompt8 & (MEMORY_EFFICIENT not in cols)
    rows = np.where(packed, s * shared, s)
    heads = np.where(packed, g, h)
    # tiles by the libraries' sources: kBlockM and kBlockN of FlashAttention 2 and 3 (with paged keys), two tiles of 128
    # in a block of FlashAttention 4; 128 x 256 of TensorRT-LLM's on WGMMA (fmha_v2, two groups of 64 rows)
    tile_k = np.where(d > 128, 64.0, 128.0)
    resident = np.full(s.shape, RESIDENT_BLOCKS if unit == "mma" else 1.0)
    warps = np.full(s.shape, WARPS)
    if unit == "mma":
        queries8 = _mma_fp8(cols, gpu)
        tile_q, tile_k, warps, resident = _flash2_tiles(cols, rows, gpu)
        flashinfer_q, flashinfer_k = _flashinfer_tiles(cols, rows, gpu)
        tile_q = np.where(_narrow(cols), flashinfer_q, tile_q)
        tile_k = np.where(_narrow(cols), flashinfer_k, tile_k)
        tile_q = np.where(queries8, attention_fp8.of_kernel(cols, "queries"), tile_q)
        tile_k = np.where(queries8, attention_fp8.of_kernel(cols, "keys"), tile_k)
        warps = np.where(_narrow(cols) | queries8, WARPS, warps)
        resident = np.where(_narrow(cols), RESIDENT_BLOCKS, resident)
        resident = np.where(queries8, attention_fp8.resident_blocks(cols, _shared_bytes(gpu)), resident)
        if MEMORY_EFFICIENT in cols:
            build = memory_efficient.build_of(cols, gpu)
            tile_q, tile_k, warps = build["queries"], build["keys"], build["warps"]
            resident = memory_efficient.resident_blocks(cols, gpu, _shared_bytes(gpu), attention_fp8.RESERVED_BYTES)
    elif unit == "wgmma":
        tile_q = np.where((d <= 96) & (rows > 128) & ~prompt8, 192.0, 128.0)
        few = (rows <= FEW_QUERIES) & (d == FEW_QUERIES_HEAD) & (cols["kv_bytes"] == 2.0)
        tile_q = np.where(few, FEW_QUERIES, tile_q)
        tile_k = np.where((d > 128) & (d <= 192), 96.0, tile_k)
        tile_k = np.where(causal, tile_k, FLASH3_UNMASKED_KEYS[np.searchsorted(FLASH3_HEADS, np.minimum(d, 256.0))])
        narrower = ((d > 64) & (d <= 96)) | (d > 192)
        tile_k = np.where(_flash3_fp8(cols, gpu), np.where(narrower, 128.0, 160.0), tile_k)
        tile_k = np.where(prompt8, np.where(d <= 128, 256.0, 128.0), tile_k)
    else:
        few = np.where(rows <= 16, 16.0, np.where(rows <= 32, 32.0, 64.0))
        tile_q = np.where(packed & (rows <= 64), few, np.where(rows <= 128, 128.0, 256.0))
        resident = np.where(tile_q < 128.0, RESIDENT_BLOCKS, resident)
    tiles = np.ceil(rows / tile_q)
    # keys that a tile of queries goes through: with a mask the j-th of n sees those up to its last query's
    tokens = np.where(packed, tile_q / shared, tile_q)
    before = np.maximum(t - s, 0.0)
    reach = np.minimum(np.where(cols["window"] < t, cols["window"] + np.minimum(tokens, s) - 1.0, t), t)
    growing = np.where(tiles == 1.0, (before + s <= reach) * 1.0, np.clip((reach - before) / tokens, 0.0, tiles))
    rising = np.where(tiles == 1.0, growing * s, tokens * growing * (growing + 1.0) / 2.0)
    masked = np.minimum(growing * before + rising + (tiles - growing) * reach, tiles * reach)
    keys = np.where(causal, masked, tiles * reach)
    # a window begins anywhere in a tile of keys; FlashAttention 3 takes a tile more where it begins with one: 128 of
    # many keys take an H100 1.17 times what 128 keys do
    every = np.ceil(t / tile_k)
    hidden = np.maximum(np.floor((t - reach - (unit == "wgmma")) / tile_k), 0.0)
    straddling = np.where(reach < t, np.ceil((reach - 1.0) / tile_k) + 1.0, every)
    longest = np.where(tiles == 1.0, every - hidden, straddling)
    per_head = np.where(tiles == 1.0, longest, keys / tile_k + np.where(causal, 0.5 * tiles, 0.0))
    if unit == "tcgen05":
        # the lower half of two tiles of 128 goes through 128 keys less
        per_head = per_head - np.where(causal & (tile_q == 256.0), 0.5 * 128.0 / tile_k * tiles, 0.0)
    blocks = b * heads * tiles
    if unit == "mma":
        parts = np.where(packed & (s * shared <= tile_q), _flash2_splits(blocks, longest, RESIDENT_BLOCKS * sms), 1.0)
        # FlashInfer's fill two blocks an SM, of prompts as well
        chunks = np.clip(np.floor(RESIDENT_BLOCKS * sms / blocks), 1.0, np.ceil(reach / LEAST_CHUNK))
        parts = np.where(_narrow(cols), chunks, parts)
        # in a CUDA graph its decoding adds parts even where it is one (DecodePlan)
        added = (parts > 1.0) | (_narrow(cols) & (s == 1) & (blocks < RESIDENT_BLOCKS * sms))
    else:
        # FlashAttention 3 counts parts by all keys, also those that a window hides: an H100 takes the second kernel's
        # time more for 128 of many keys than for 128 keys
        spanned = np.ceil(t / tile_k) if unit == "wgmma" else np.floor(reach * cols["kv_bytes"] / LEAST_PART_BYTES)
        fits = np.maximum(np.minimum(np.floor(sms / blocks), np.minimum(spanned, MOST_SPLITS)), 1.0)
        splits = ((packed & (rows <= 128)) | ~causal) & (blocks < SPLIT_BELOW * sms)
        parts = np.where(splits, fits, 1.0)
        added = parts > 1.0
    return {
        "rows": rows,
        "packed": packed * 1.0,
        "tile_q": tile_q,
        "tile_k": tile_k,
        "split_k": parts,
        "added": added * 1.0,
        "steps": b * heads * np.maximum(per_head, tiles),
        # a window's keys lie in one of the parts
        "longest": np.where((unit == "wgmma") & (cols["window"] < t), longest, np.ceil(longest / parts)),
        "blocks": blocks * parts,
        "resident": resident,
        "warps": warps,
    }


def _widths(cols: Columns, gpu: GpuSpec) -> tuple[Column, Column]:
    """Widths that heads are padded to, of queries and keys, and of values: whole fragments of the pipe, powers of two
    in TensorRT-LLM's on WGMMA (an H100 takes the same for 192 as for 256)."""

    def padded(name: str) -> Column:
        fragments = 32.0 * np.ceil(cols[name] / 32.0)
        powers = 2.0 ** np.ceil(np.log2(np.maximum(cols[name], 64.0)))
        found: Column = np.where(_prompt8(cols) & (instructions(gpu) == "wgmma"), powers, fragments)
        return found

    return padded("d"), padded("v")


def times(cols: Columns, gpu: GpuSpec, c: Constants) -> dict[str, Column]:
    """Competing times in s and what they are made of; ``cols`` are pinned."""
    unit, sms, clock = _unit(cols, gpu), float(gpu.sm_count), gpu.clock_hz
    peak, narrow = _rates(cols, gpu), _narrow(cols)
    tile_q, tile_k, blocks, longest = (cols[name] for name in ("tile_q", "tile_k", "blocks", "longest"))
    # bytes a clock and SM from L2: what its port takes, and its share of what the L2 gives all that work
    l2_rate = c["l2_bytes_per_clock"] * clock
    l2_share = np.minimum(l2_rate, l2_bytes_per_s(gpu) / np.minimum(blocks, sms)) / clock
    overhead = c["pipe_overhead_tcgen05" if unit == "tcgen05" else "pipe_overhead"]
    if is_amd(gpu):
        overhead = max(overhead, AMD_OVERHEAD)
    width_d, width_v = _widths(cols, gpu)
    if MEMORY_EFFICIENT in cols:
        width_v = memory_efficient.build_of(cols, gpu)["width_v"]
    width = width_d + width_v
    pairs = tile_q * tile_k
    products = overhead * 2.0 * pairs * width * sms * clock / peak
    vector = c["vector_instructions_tcgen05" if unit == "tcgen05" else "vector_instructions"]
    softmax = c["exp_overhead"] * pairs * (1.0 / _exponentials_per_clock(gpu) + vector / gpu.fp32_lanes_per_sm)
    exposed = np.full(pairs.shape, c[f"exposed_{unit}"])
    spilled = np.zeros(pairs.shape)
    if unit == "mma":
        queries8 = _mma_fp8(cols, gpu)
        converted = narrow * np.where(tile_q > 16.0, WARPS, 1.0) * width
        softmax = softmax + c["convert_instructions"] * converted * tile_k / gpu.fp32_lanes_per_sm
        # from shared memory each warp loads all keys and values, but with FlashInfer's tile of 16 rows, of which it has
        # its own: beside the products, but in FP8 before them; AMD's overhead has its kernels' loads
        loading = np.where(narrow & (tile_q == 16.0), 1.0, cols["warps"])
        loaded = loading * tile_k * width * cols["kv_bytes"] / SHARED_BYTES_PER_CLOCK
        if MEMORY_EFFICIENT in cols:
            softmax = memory_efficient.issue_cycles(cols, gpu)
            loaded = memory_efficient.loaded_bytes(cols, gpu) / SHARED_BYTES_PER_CLOCK
        apart = queries8 | is_amd(gpu)
        products = np.where(apart, products, _norm((products, loaded), c["norm"]))
        of_fp8 = pairs * c["pack_cycles"] + loaded + attention_fp8.vector_cycles(cols, gpu, width_v)
        softmax = softmax + queries8 * of_fp8
        spilled = queries8 * attention_fp8.spilled_bytes(cols, gpu) / l2_share
    if unit == "wgmma":
        alone_in_fp8 = _flash3_fp8(cols, gpu) & (cols["d"] > UNOVERLAPPED_HEAD)
        exposed = np.where(alone_in_fp8 | (tile_q == FEW_QUERIES), 1.0, exposed)
    overlapped = np.maximum(products, softmax) + exposed * np.minimum(products, softmax)
    if unit == "wgmma":
        # warps of their own load and transpose
        transposed = _flash3_fp8(cols, gpu) * c["producer_cycles"] * tile_k * width_v
        overlapped = _norm((overlapped, transposed), c["norm"])
    step = _norm((overlapped, spilled), c["norm"]) + c["step_cycles"]
    # alone on its SM, a block of mma hides nothing behind another
    alone = (products + softmax + spilled if unit == "mma" else overlapped) + c["step_latency_cycles"]
    step = np.where((unit == "mma") & (cols["resident"] < RESIDENT_BLOCKS), alone, step)
    start = np.where(narrow & (unit == "mma"), c["block_cycles_flashinfer"], c["block_cycles"])
    # two tiles of 128 on tcgen05 are stored by warps of their own
    stored_rows = np.minimum(np.minimum(tile_q, cols["rows"]), 128.0 if unit == "tcgen05" else np.inf)
    block = start + c["row_cycles"] * stored_rows * width / 256.0
    per_sm = np.maximum(blocks / sms, 1.0)
    steps = cols["steps"] / blocks
    per_block = block / cols["resident"]
    # where blocks are alike, SMs wait for the last round's
    rounds = np.ceil(per_sm)
    work = rounds * steps
    if unit == "mma":
        uneven = blocks / sms * steps + _last_steps(steps, longest)
        work = np.where(_mma_fp8(cols, gpu), work, np.maximum(work, uneven))
    at_boost = (work * step + rounds * per_block) / clock
    latency = (longest * alone + block) / clock

    keys, io, past = cols["seen_bytes"], cols["io_bytes"], cols["past_bytes"]
    # what is written to the cache is read from it
    given = np.maximum(cols["query_bytes"], GIVEN_BYTES)
    fresh = cols["cache_bytes"] * given / (given + cols["kv_bytes"])
    held = c["l2_fill"] * (c["l2_partitioned"] if _partitioned(gpu) else 1.0) * gpu.l2_bytes
    miss = 1.0 / (1.0 + ((keys + io + fresh) / held) ** -L2_SHARPNESS)
    rate = gpu.memory_bytes_per_s * c["dram_efficiency"] * stream_fraction(gpu)
    memory = ((keys + io - past) * miss + past) / rate
    if unit == "mma":
        memory = memory + (keys - past) * (1.0 - miss) / (c["l2_stream_mma"] * l2_bytes_per_s(gpu))
    panels = per_sm * steps * tile_k * cols["kv_bytes"] * (cols["d"] + cols["v"])
    l2 = (panels + cols["mask_reads"] / sms) / l2_rate
    # energy in FLOPs by mma in 16 nm
    of_products = unit_energy(gpu, _pipes(cols, gpu))
    if MEMORY_EFFICIENT in cols:
        of_products = of_products * memory_efficient.energy_share(cols, gpu)
    energy = 2.0 * width * of_products + c["softmax_flops"] * process_energy(gpu.process_nm)
    level = sustained_level(gpu, c, cols["steps"] * pairs * energy, at_boost, (latency, memory, l2))
    compute = at_boost / clock_had(at_boost, level, cols["burst"], gpu, c)
    first = (io + keys / longest) * (miss / rate + (1.0 - miss) / (l2_rate * np.minimum(sms, blocks)))
    slowness = 1.7e9 / clock
    parts = cols["split_k"]
    rows_added = narrow * cols["b"] * cols["h"] * cols["s"] * c["merge_cycles"] / (sms * clock)
    # on tcgen05 two parts take as long to add as 32
    added = 1e-6 * c["split_us"] * slowness + (unit != "tcgen05") * parts * c["split_cycles"] / clock
    if unit == "mma":
        flash2 = 1e-6 * c["split_us_mma"] * slowness + parts * c["split_cycles_mma"] / clock
        added = np.where(narrow, added + rows_added, flash2)
    copied = (cols["packed"] > 0) & (cols["b"] > 1) & (cols["g"] > 1) & ~narrow & (unit == "mma")
    return {
        "compute": compute,
        "latency": latency,
        "memory": memory,
        "l2": l2,
        "products": products,
        "softmax": softmax,
        "floor": np.full(blocks.shape, c["floor_cycles"] / clock),
        # memory's share of the time has them already
        "beside": c["io_exposed"] * np.minimum(first, compute) * compute / (compute + memory)
        + _cache_s(cols, gpu, c, miss / rate)
        + np.where(cols["added"] > 0, added, 0.0)
        + np.where(copied, 1e-6 * c["regroup_us"] * slowness, 0.0),
    }


def _cache_s(cols: Columns, gpu: GpuSpec, c: Constants, dram_s_per_byte: Column) -> Column:
    """Time of the kernel that writes keys and values to a cache, in s; of prompts in 8 bits of TensorRT-LLM's, which
    prepares queries as well."""
    written, narrow, queries8 = cols["cache_bytes"], _narrow(cols), cols["query_bytes"] < 2.0
    cycles_per_s = gpu.sm_count * gpu.clock_hz
    given = np.maximum(cols["query_bytes"], GIVEN_BYTES)
    tokens = written / (given + cols["kv_bytes"]) / (cols["g"] * (cols["d"] + cols["v"]))
    threads = np.clip(cols["g"] * cols["d"], *CACHE_THREADS)
    life = np.where(narrow, c["cache_block_cycles_narrow"], c["cache_block_cycles"])
    writing = tokens * threads / gpu.max_threads_per_sm * life / cycles_per_s
    preparing = written / (c["prepare_bytes_per_clock"] * cycles_per_s)
    streaming = c["cache_passes"] * dram_s_per_byte * written
    taken = np.hypot(np.where(queries8, preparing, writing), streaming)
    windowed = _prompt8(cols) & (cols["windowed"] > 0)
    taken = taken + windowed * cols["b"] * cols["h"] * cols["s"] * c["prepare_window_cycles"] / cycles_per_s
    launch = 1e-6 * np.where(queries8, c["prepare_us"], c["cache_us"]) * 1.7e9 / gpu.clock_hz
    found: Column = np.where(written > 0, launch + taken, 0.0)
    return found


def _norm(values: Sequence[Column], power: float) -> Column:
    """p-norm over ``values``, of which none is negative."""
    largest = np.maximum.reduce(values)
    found: Column = largest * np.sum([(value / largest) ** power for value in values], axis=0) ** (1.0 / power)
    return found


_PARTS = ("compute", "latency", "memory", "l2")


def _join(parts: Mapping[str, Column], c: Constants) -> Column:
    """Latency in us: floor, p-norm of the competing times, what stands beside them."""
    busy = _norm((parts["compute"], parts["latency"]), BLOCK_NORM)
    competing = _norm((busy, parts["memory"], parts["l2"]), c["norm"])
    joined: Column = 1e6 * (parts["floor"] + competing + parts["beside"])
    return joined


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline: FLOPs at the dense peak of the pipe, unique bytes at the peak of DRAM, whichever takes longer.

    Bytes that the L2 can hold needn't come from DRAM, so only what exceeds it counts, and keys that it has lost since.
    """
    compute = cols["flops"] / _peaks(cols, gpu)
    beyond = np.maximum(cols["read_bytes"] + cols["write_bytes"] - gpu.l2_bytes, 0.0)
    memory = np.maximum(beyond, cols["past_bytes"]) / gpu.memory_bytes_per_s
    return 1e6 * np.maximum(compute, memory)


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer; ``cols`` may be pinned."""
    if "blocks" not in cols:
        cols = pin(cols, gpu, constants)
    parts = times(cols, gpu, constants)
    latency = _join(parts, constants)
    return LawResult(
        latency_us=latency,
        ideal_us=ideal_us(cols, gpu),
        parts_us={**{name: 1e6 * parts[name] for name in _PARTS}, "launch": 1e6 * parts["floor"]},
        tile={"queries": cols["tile_q"], "keys": cols["tile_k"], "split_k": cols["split_k"]},
        tile_count=cols["blocks"],
        wave_count=np.maximum(np.ceil(cols["blocks"] / gpu.sm_count), 1.0),
        doubt_log_sd=np.full(latency.shape, _doubt_log_sd(cols, gpu)),
    )


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features).

    Those of the kernel as it would be measured, which is what the residual was trained on: in bursts.
    """
    if "blocks" not in cols:
        cols = pin(cols, gpu, constants)
    parts = times({**cols, "burst": np.ones_like(cols["burst"])}, gpu, constants)
    latency_us = _join(parts, constants)
    compute = parts["compute"]
    per_sm = cols["blocks"] / gpu.sm_count
    total = cols["seen_bytes"] + cols["io_bytes"]
    values = (
        np.log(np.maximum(parts["memory"], 1e-9) / compute),
        np.log(parts["l2"] / compute),
        np.log(parts["latency"] / compute),
        np.log(1e6 * parts["floor"] / latency_us),
        np.log(parts["softmax"] / parts["products"]),
        np.log(per_sm),
        per_sm / np.ceil(per_sm),
        np.log(cols["h"] / cols["g"]),
        np.log(cols["rows"]),
        np.log(cols["split_k"]),
        np.log(cols["steps"]),
        np.log(cols["b"]),
        np.log(cols["g"]),
        np.log(cols["h"]),
        np.log(cols["s"]),
        np.log(cols["t"]),
        cols["d"],
        cols["d"] / (32.0 * np.ceil(cols["d"] / 32.0)),
        cols["causal"],
        np.log(cols["window"] / cols["t"]),
        np.log(cols["seen_bytes"] / gpu.l2_bytes),
        np.log(total / gpu.l2_bytes),
        np.log(1e-3 + cols["cache_bytes"] / total),
        cols["kv_bytes"] / cols["query_bytes"],
    )
    return np.stack(values, axis=1).astype(np.float32)


ATTENTION = Law(
    kernel_class="attention",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
)

FLASH2_ATTENTION = replace(ATTENTION, columns=_columns_of(FLASH2))
"""FlashAttention 2 where the newest kernels are others."""

EFFICIENT_ATTENTION = replace(ATTENTION, columns=_columns_of(MEMORY_EFFICIENT))
"""CUTLASS's memory-efficient attention."""
