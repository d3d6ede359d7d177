"""Kernels without a predictor: the roofline with stated efficiencies, launch and serial time.

For every kernel::

    T = launches * 2 us + (Tm^4 + Tl^4 + Tc^4 + Ts^4)^(1/4)

with Tm the bytes that go through DRAM, Tl those that go through L2, Tc the arithmetic, Ts what can't be done in
parallel. Each efficiency has its source or derivation beside it. Such an estimate is good to about a factor of two:
``HALF_WIDTH_LOG`` is its 80 % interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log, log2, prod
from typing import assert_never

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    HostWork,
    Kernel,
    Movement,
    Normalization,
    Opaque,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    Sort,
    StateSteps,
    Transfer,
)
from neusight_onnx.laws.bandwidth import (
    dram_bytes_per_s,
    is_amd,
    l2_bytes_per_s,
    l2_miss_fraction,
    p_norm,
    reuse,
    stream_ideal_us,
)
from neusight_onnx.laws.base import Law, LawResult, Reuse
from neusight_onnx.laws.elementwise import (
    ELEMENTWISE,
    float64_flops_per_s,
    fused_cost,
    index_instructions,
    index_us,
    integer_lanes_per_sm,
)
from neusight_onnx.laws.host import PCIE_EFFICIENCY, TRANSFER_US, host_us, link_bytes_per_s
from neusight_onnx.laws.issue import CUMSUM_BLOCK, LIBRARY, summed_before, sums_all_before
from neusight_onnx.laws.narrow import WRITE_SHARE
from neusight_onnx.laws.normalization import NORMALIZATION
from neusight_onnx.laws.resizing import resize_us
from neusight_onnx.laws.softmax import SOFTMAX
from neusight_onnx.laws.state_steps import state_steps_us

HALF_WIDTH_LOG = log(2.0)
"""80 % interval of an analytic estimate in log: x/÷ 2. A judgement, no calibration stands behind it."""

LEVEL_SHARE = 0.5
"""Share of that interval's variance that kernels of one class have in common (their stated efficiency); a judgement."""

LAUNCH_US = 2.0
"""As the laws of measured classes: start and drain of a kernel."""

SHARPNESS = 4.0
"""Of the soft maximum: between the additive end (1) and the hard one; GEMM and LayerNorm fits give 4 to 7."""

PIPE_FALLBACK: dict[DataType, tuple[str, ...]] = {
    DataType.TFLOAT32: ("tf32", "fp32"),
    DataType.FLOAT16: ("fp16", "fp32"),
    DataType.BFLOAT16: ("bf16", "fp32"),
    DataType.INT8: ("int8", "fp16", "fp32"),
    DataType.UINT8: ("int8", "fp16", "fp32"),
    DataType.INT4: ("int8", "fp16", "fp32"),
    DataType.UINT4: ("int8", "fp16", "fp32"),
    DataType.FLOAT8E4M3FN: ("fp8", "fp16", "fp32"),
    DataType.FLOAT8E4M3FNUZ: ("fp8", "fp16", "fp32"),
    DataType.FLOAT8E5M2: ("fp8", "fp16", "fp32"),
    DataType.FLOAT8E5M2FNUZ: ("fp8", "fp16", "fp32"),
    DataType.FLOAT4E2M1: ("fp4", "fp8", "fp16", "fp32"),
}
"""Matrix pipe of a dtype, and the next wider ones where the GPU lacks it (operands are converted on the way in)."""

MATRIX_EFFICIENCY = {"nvidia": 0.75, "amd": 0.52}
"""Large dense products on matrix cores: .78-.87 of peak are the best ones on A100, H100, B200; .51-.60 on MI300X and
MI325X (maxima of bf16 products, stas00/ml-engineering). A typical shape stays a little below the best."""
VECTOR_EFFICIENCY = 0.80
"""Large FP32 products on vector lanes: .75-.90 of peak on A100, V100, P100 while the clock holds."""
CONV_EFFICIENCY = 0.55
"""Convolutions against products of the same size: FP32 3x3 ones reach .6-.8 of peak without Winograd, few-channel
ones .2-.35."""
AMD_VECTOR_DRAM = 0.68
"""Share of DRAM's peak that a product of one row or column reaches on AMD's GPUs: that of tuned products of few rows on
MI300X and MI308X (``laws/tensor_gemm/``); on the others nothing was measured."""
ATTENTION_EFFICIENCY = 0.55
"""Fused attention on matrix cores: FlashAttention-2 reports .5-.73 of peak on A100, .35-.5 on H100 (Dao 2023),
FlashAttention-3 up to .75 on H100 (Shah et al. 2024)."""
ATTENTION_VECTOR_EFFICIENCY = 0.45
"""The same on FP32 lanes: memory-efficient attention runs at about half of what a plain FP32 product reaches."""

GATHER_EFFICIENCY = 0.65
"""Embedding kernels in models take 1.3-3 times what their bytes would at the copy rate. Those that copy 16 bytes at a
time are copies, as far as is measured: on an RTX 4090 33 MB take 10 us, three times DRAM's rate (the rows of that
profile repeat, and what it writes stays in L2)."""
SECTOR_BYTES = 32
"""Unit of DRAM and L2 traffic on NVIDIA GPUs (CUDA best practices guide); AMD's is 64, used alike here."""
GATHER_ACCESS = {"": 70.0, "element": 125.0, "vector": 10.0}
"""Integer operations an element of lookups. By element: PyTorch's index_select until 2.6 takes 1.9-2.1 clocks of an SM
an element in fp16 (A100, H100), whatever the sizes. 16 bytes at a time: hidden."""
INDEX_OPERATIONS = 70.0
"""Integer operations an element of kernels that compute an offset an element (the elementwise law's constant, of GPUs
before Volta and of AMD); of PyTorch's kernels that divide by sizes without preparing it, on all GPUs."""
VECTOR_BITS = 128
"""What a thread copies at once where runs are whole vectors (PyTorch's ``CatArrayBatchedCopy_vectorized``, copies of
slices by elements that its iterator merges to a row)."""
PERMUTE_COST = 1.2
STRIDED_PERMUTE_COST = 1.6
"""Copies that permute, against a plain copy: the two before a MatMul in PyTorch's attention (queries keep their
innermost run, keys lose it) take 1.9-2.8 plain copies together."""
REDUCTION_EFFICIENCY = 0.90
"""Against an elementwise kernel: NVIDIA's reductions come near the copy rate; the tail of the tree costs the rest."""
SCAN_EFFICIENCY = 0.50
"""Cumulative sums: PyTorch scans a row in a block, synchronising between chunks."""
SCAN_THREADS, SCAN_AT_ONCE = 512, 4.0
"""Threads of such a block, and elements that each takes at once."""
SUMMED_STEP_CYCLES = 4.0 + 200.0 / 16.0
"""A step of a thread that sums all before its element (ONNX Runtime's ``_CumSumKernel``): an addition that waits for
the one before, and a sixteenth of a load that hits L2, since so many are asked for at once (its machine code)."""
BLOCK_REDUCTION_US = 3.0
"""Serial part of a reduction in a block: load latency plus a tree, about 4-7 kcycles (row law of LayerNorm: 6,900)."""
SERIAL_ITERATION_CYCLES = 600.0
"""One more loop iteration of a block that waits for DRAM (row law of LayerNorm: 620 cycles)."""
BLOCK_A_ROW = frozenset({"channel_moments"})
"""Reductions with a block of 512 threads for each row, whose threads load an element at a time: the statistics of
PyTorch's own batch normalization in row-major order (``batch_norm_collect_statistics_kernel``: Welford's division
stands between two loads)."""
POOL_OPERATIONS = 8.0
POOL_OUTPUT_OPERATIONS = 60.0
"""Integer and compare operations of a pooling kernel: bounds, offset, load, compare for each tap; four integer
divisions of about 15 instructions for each output."""
POOL_COMPARED_BITS = 32
"""Bits of elements that an instruction compares or adds in a pooling kernel that takes 16 bytes of channels at once,
whose place and bounds it works out once a vector: two of 16 (``__hmax2``, ``__hadd2``); 8-bit ones are taken to be
widened for it."""
SORT_BITS_PER_PASS = 8
"""Digits of a radix pass (CUB's default)."""
OVERLAP_OPERATIONS = 30.0
"""Issue slots x 2 of one intersection over union of two boxes: four min/max, two areas, a division."""
SUPPRESSED_STEP_CYCLES = 120.0
"""A step of ONNX Runtime's walk over a box that is suppressed already: a bit in shared memory (it has a bit a box:
launches of 1.31.1) and barriers of its one block of 1,024 threads. One that is kept reads its row of the mask as well.
An estimate."""
TOP_K_BLOCK = 256
"""Threads of the one block that ONNX Runtime's ``RadixTopK`` gives a row (launches of 1.31.1)."""
TOP_K_BLOCKS_PER_SM = 6
"""Blocks that a streaming multiprocessor holds: of 1,536 threads, as most have."""
TOP_K_SWEEPS = 3
"""Loops over the row beside one for each byte of the key: signs are counted, then what passes, then it is written (the
machine code of 1.31.1: seven loops for float32, four of them with a histogram in shared memory, none unrolled)."""
TOP_K_STEP_CYCLES = 300.0
"""One iteration: a load that hits the L2 (190 to 270 cycles: micro-benchmarks of V100 to H100) and what depends on it.
What misses waits as ``SERIAL_ITERATION_CYCLES`` says."""
TOP_K_CUT_KEPT, TOP_K_CUT_COLUMNS = 256, 4096
"""Rows of more columns are cut among blocks where no more are kept and keys are float32 or float16 (``hybrid_topk``,
``smallk_topk``; launches of 1.31.1: 4,096 and 4,608 columns, 256 and 300 kept). Of a million columns one block keeps
64, many keep 16: not followed."""
SORT_SMALL = 1024
"""Rows that PyTorch sorts within a block's shared memory in one pass."""
RECURRENT_STEP_US = 20.0
"""Serial time of a step beyond its bytes and FLOPs: LSTM of 256 units takes 11 us a step at batch 1-4 on a GTX 1080 Ti
and 25-30 at batch 16-32 on 1080 Ti and V100 (DeepBench)."""
RECURRENT_DRAM_EFFICIENCY = 0.85
"""Recurrent weights read again each step: 4,096 units in FP32 take 400 us on a V100, 332 at the copy rate."""
RECURRENT_COMPUTE_EFFICIENCY = 0.45
"""The same at batch 128: 2,048 units take 372 us a step, 537 MFLOP with the input product: about .2-.45 of peak."""
OPAQUE_EFFICIENCY = 0.10
"""Unknown arithmetic on vector lanes: irregular kernels (FFT butterflies, tree walks) reach 5-20 % of peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a kernel asks of a GPU, efficiencies included; times in us.

    ``bytes`` go through L2, and through DRAM as far as ``working_set`` (default: ``bytes``) exceeds L2;
    ``memory_efficiency`` is relative to an elementwise kernel; ``compute_us`` and ``serial_us`` are final,
    ``fixed_us`` adds to everything else.
    """

    bytes: float
    compute_us: float = 0.0
    serial_us: float = 0.0
    fixed_us: float = 0.0
    memory_efficiency: float = 1.0
    working_set: float | None = None
    launches: int = 1
    tile_count: float = 1.0
    wave_count: float = 1.0


def pipe_flops_per_s(gpu: GpuSpec, dtype: DataType, accumulator: DataType | None = None) -> tuple[float, float]:
    """(peak FLOP/s, achievable share) of the pipe that multiplies matrices of ``dtype`` and sums in ``accumulator``.

    FP32 means IEEE FP32: matrix cores where AMD has them, vector lanes on NVIDIA (TF32 is a precision of its own).
    """
    if dtype is DataType.FLOAT64:
        return float64_flops_per_s(gpu), VECTOR_EFFICIENCY
    matrix = MATRIX_EFFICIENCY["amd" if is_amd(gpu) else "nvidia"]
    if dtype is DataType.FLOAT32 and gpu.fp32_matrix_flops_per_s is not None:
        return gpu.fp32_matrix_flops_per_s, matrix
    if dtype is DataType.FLOAT16 and accumulator is dtype and gpu.fp16_accumulate_flops_per_s is not None:
        return gpu.fp16_accumulate_flops_per_s, matrix
    for pipe in PIPE_FALLBACK.get(dtype, ("fp32",)):
        if pipe in gpu.peak_flops_per_s:
            return gpu.peak_flops_per_s[pipe], VECTOR_EFFICIENCY if pipe == "fp32" else matrix
    return gpu.peak_flops_per_s["fp32"], VECTOR_EFFICIENCY


def vector_flops_per_s(gpu: GpuSpec, dtype: DataType) -> float:
    """Peak of the vector lanes: FP32's for every type but FP64."""
    return float64_flops_per_s(gpu) if dtype is DataType.FLOAT64 else gpu.peak_flops_per_s["fp32"]


def analytic_estimate(kernels: Sequence[Kernel], gpu: GpuSpec) -> LawResult:
    """Estimates kernels of any class and dtype on ``gpu``; entries are in the order of ``kernels``.

    Elementwise, softmax and normalization kernels go through their laws with prior constants. Every time is above
    zero and not below the roofline.
    """
    n = len(kernels)
    latency, ideal = np.zeros(n), np.zeros(n)
    tiles, waves = np.ones(n), np.ones(n)
    parts = {name: np.zeros(n) for name in ("memory", "l2", "compute", "latency", "launch")}
    reused = Reuse(memory_us=np.zeros(n), less=np.ones(n), more=np.ones(n))
    for law, kind in ((ELEMENTWISE, Elementwise), (SOFTMAX, Softmax), (NORMALIZATION, Normalization)):
        rows = [i for i, kernel in enumerate(kernels) if isinstance(kernel, kind)]
        if not rows:
            continue
        result = _by_law(law, [kernels[i] for i in rows], gpu)
        latency[rows], ideal[rows] = result.latency_us, result.ideal_us
        tiles[rows], waves[rows] = result.tile_count, result.wave_count
        _put(reused, rows, result.reuse)
        for name, column in result.parts_us.items():
            parts[name][rows] = column
    dram = dram_bytes_per_s(gpu, {})
    for i, kernel in enumerate(kernels):
        if isinstance(kernel, (Elementwise, Softmax, Normalization)):
            continue
        work = kernel_work(kernel, gpu)
        through = float(work.bytes)
        held = through if work.working_set is None else work.working_set
        miss = float(l2_miss_fraction(np.array([held]), gpu)[0])
        parts["memory"][i] = through * miss / (dram * work.memory_efficiency) * 1e6
        parts["l2"][i] = through / l2_bytes_per_s(gpu) * 1e6
        parts["compute"][i] = work.compute_us
        parts["latency"][i] = work.serial_us
        parts["launch"][i] = work.launches * LAUNCH_US + work.fixed_us
        tiles[i], waves[i] = max(work.tile_count, 1.0), max(work.wave_count, 1.0)
        ideal[i] = _ideal_us(kernel, gpu)
        terms = tuple(parts[name][i : i + 1] for name in ("memory", "l2", "compute", "latency"))
        latency[i] = max(parts["launch"][i] + float(p_norm(terms, SHARPNESS)[0]), ideal[i])
        if not isinstance(kernel, Transfer) and not _is_embedding(kernel):
            bytes_ = np.array([kernel.read_bytes + kernel.write_bytes], dtype=np.float64)
            rate = dram * work.memory_efficiency
            _put(reused, [i], reuse(bytes_, latency[i : i + 1], parts["launch"][i : i + 1], rate, gpu))
    return LawResult(
        latency_us=np.maximum(latency, reused.memory_us),
        ideal_us=ideal,
        parts_us=parts,
        tile_count=tiles,
        wave_count=waves,
        reuse=reused,
    )


def _put(reused: Reuse, rows: list[int], found: Reuse | None) -> None:
    if found is not None:
        reused.memory_us[rows], reused.less[rows], reused.more[rows] = found.memory_us, found.less, found.more


def _is_embedding(kernel: Kernel) -> bool:
    return isinstance(kernel, GatherScatter) and kernel.operation == "embedding"


def _by_law(law: Law, kernels: Sequence[Kernel], gpu: GpuSpec) -> LawResult:
    priors = {constant.name: constant.prior for constant in law.constants}
    return law.estimate(law.columns(kernels), gpu, priors)


def _ideal_us(kernel: Kernel, gpu: GpuSpec) -> float:
    """Roofline of the pipe that the kernel's arithmetic runs on, DRAM's share of it as for every kernel that streams:
    what the L2 can't hold. Convolutions may save up to 2.25x by Winograd.

    A copy's is PCIe, or shared memory, at its nominal rate.
    """
    flops, peak = float(kernel.flops), gpu.peak_flops_per_s["fp32"]
    match kernel:
        case Gemm():
            peak = pipe_flops_per_s(gpu, kernel.dtype, kernel.accumulator)[0]
        case Conv():
            peak = pipe_flops_per_s(gpu, kernel.dtype, kernel.accumulator)[0]
            flops /= 2.25  # F(2x2, 3x3): 16 multiplications for 36
        case Attention():
            flops, peak = 2.0 * kernel.macs, pipe_flops_per_s(gpu, kernel.dtype)[0]
        case Recurrent():
            peak = pipe_flops_per_s(gpu, kernel.dtype)[0]
        case GatherScatter(operation="embedding"):
            through = kernel.read_bytes + max(kernel.write_bytes - gpu.l2_bytes, 0)
            return max(through / gpu.memory_bytes_per_s * 1e6, 1e-6)
        case Transfer():
            return max(kernel.byte_count / link_bytes_per_s(gpu) * 1e6, 1e-6)
        case _:
            pass
    bytes_ = np.array([kernel.read_bytes + kernel.write_bytes], dtype=np.float64)
    return float(stream_ideal_us(np.array([flops]), bytes_, peak, gpu)[0])


def kernel_work(kernel: Kernel, gpu: GpuSpec) -> Work:
    """What one kernel asks of ``gpu``; classes with a law of their own are charged by their bytes and FLOPs."""
    match kernel:
        case Gemm():
            return _gemm(kernel, gpu)
        case Conv():
            return _conv(kernel, gpu)
        case Reduction():
            return _reduction(kernel, gpu)
        case Pooling():
            return _pooling(kernel, gpu)
        case Attention():
            return _attention(kernel, gpu)
        case GatherScatter():
            return _gather_scatter(kernel, gpu)
        case Movement():
            return _movement(kernel, gpu)
        case Sort():
            return _sort(kernel, gpu)
        case Recurrent():
            return _recurrent(kernel, gpu)
        case Opaque(state_steps=StateSteps() as steps):
            return Work(bytes=kernel.read + kernel.written, serial_us=state_steps_us(steps, gpu))
        case Opaque():
            rate = OPAQUE_EFFICIENCY * vector_flops_per_s(gpu, kernel.dtype)
            return Work(bytes=kernel.read + kernel.written, compute_us=kernel.operation_count / rate * 1e6)
        case Transfer():
            rate = PCIE_EFFICIENCY * link_bytes_per_s(gpu)
            waiting_us = TRANSFER_US if kernel.is_waited_for else 0.0
            return Work(bytes=0.0, serial_us=kernel.byte_count / rate * 1e6, fixed_us=waiting_us)
        case HostWork():
            return Work(bytes=0.0, serial_us=host_us(kernel, gpu))
        case Elementwise() | Softmax() | Normalization():
            rate = vector_flops_per_s(gpu, DataType.FLOAT32)
            return Work(bytes=kernel.read_bytes + kernel.write_bytes, compute_us=kernel.flops / rate * 1e6)
        case _:
            assert_never(kernel)


TILES: tuple[tuple[int, int, float], ...] = (
    (256, 128, 1.0),
    (128, 128, 1.0),
    (128, 64, 0.87),
    (64, 64, 0.75),
    (64, 32, 0.55),
    (32, 32, 0.40),
    (16, 16, 0.20),
)
"""(rows, columns, efficiency) of the tiles that GEMM libraries choose from; smaller tiles re-use less of what they
load: with x = 16 (1/rows + 1/columns), time grows about as 1 + x^1.2 (law of FP32 products)."""
SPLITS = (1, 2, 4, 8, 16)
"""Ways to cut the reduction among blocks."""


def _tiled_us(batch: float, m: float, n: float, k: float, rate: float, gpu: GpuSpec) -> tuple[float, float, float]:
    """(us, tiles, waves) of ``batch`` products by the fastest tile; ``rate`` is FLOP/s of the whole GPU."""
    best = (float("inf"), 1.0, 1.0)
    for rows, cols, efficiency in TILES:
        per_grid = batch * ceil(m / rows) * ceil(n / cols)
        for split in SPLITS:
            if split > 1 and (k / split < 64 or per_grid * split > 4 * gpu.sm_count):
                continue
            tiles = per_grid * split
            waves = ceil(tiles / gpu.sm_count)
            depth = k / split + 64.0  # prologue and epilogue of a tile, about two K steps
            us = waves * 2.0 * rows * cols * depth / (rate / gpu.sm_count * efficiency) * 1e6
            us += 2.0 if split > 1 else 0.0  # the sum of the partial results, a kernel's launch
            best = min(best, (us, float(tiles), float(waves)))
    return best


def _gemm(kernel: Gemm, gpu: GpuSpec) -> Work:
    peak, share = pipe_flops_per_s(gpu, kernel.dtype, kernel.accumulator)
    if 0 in (kernel.batch, kernel.m, kernel.n):
        return Work(bytes=kernel.read_bytes)
    us, tiles, waves = _tiled_us(kernel.batch, kernel.m, kernel.n, kernel.k, peak * share, gpu)
    streamed = 0.95
    if 1 in (kernel.m, kernel.n):
        # a matrix and a vector: a kernel of its own in BLAS libraries (gemv), on vector lanes, without tiles
        us = min(us, kernel.flops / (VECTOR_EFFICIENCY * vector_flops_per_s(gpu, kernel.dtype)) * 1e6)
        if is_amd(gpu):
            streamed = AMD_VECTOR_DRAM * gpu.memory_bytes_per_s / dram_bytes_per_s(gpu, {})
    return Work(
        bytes=kernel.read_bytes + kernel.write_bytes,
        compute_us=us,
        memory_efficiency=streamed,
        tile_count=tiles,
        wave_count=waves,
    )


def _conv(kernel: Conv, gpu: GpuSpec) -> Work:
    peak, share = pipe_flops_per_s(gpu, kernel.dtype, kernel.accumulator)
    bytes_ = float(kernel.read_bytes + kernel.write_bytes)
    grid = prod(kernel.spatial) if kernel.transposed else prod(kernel.out)
    if 0 in (kernel.n, kernel.c, kernel.k, grid):
        return Work(bytes=bytes_)
    depth = kernel.c // kernel.groups * prod(kernel.filter)
    per_group = kernel.k // kernel.groups
    if kernel.groups > 1 and per_group * (kernel.c // kernel.groups) < 64:
        # depthwise and its like: vector lanes; each tap is a load from L1 beside its multiply-add
        rate = 0.25 * vector_flops_per_s(gpu, kernel.dtype)
        return Work(bytes=bytes_, compute_us=2.0 * kernel.macs / rate * 1e6, memory_efficiency=0.8)
    rate = peak * share * CONV_EFFICIENCY / VECTOR_EFFICIENCY
    product = (kernel.groups, kernel.n * grid, per_group, depth)
    if kernel.direction != "forward":
        product = kernel.implicit_gemm
    us, tiles, waves = _tiled_us(*product, rate, gpu)
    return Work(bytes=bytes_, compute_us=us, memory_efficiency=0.9, tile_count=tiles, wave_count=waves)


def _summed_before(kernel: Reduction, gpu: GpuSpec) -> Work:
    """A cumulative sum whose threads each sum all before their element: what its loads ask of L2, and the longest.

    Threads side by side sum the same elements (``inner`` = 1) or neighbours, step by step, so that a block asks L2 for
    as many as lie together, the rest is L1's. Blocks run in order: those at work read one stretch of the tensor.
    Instructions, which decide mostly, are :mod:`neusight_onnx.laws.issue`'s.
    """
    element, count = kernel.dtype.bits / 8, kernel.outputs * kernel.reduced
    asked = max(min(kernel.inner, CUMSUM_BLOCK) * element, SECTOR_BYTES)
    again = ceil(count / CUMSUM_BLOCK) * summed_before(kernel) * asked
    stretch = kernel.reduced * kernel.inner
    at_work = ceil(gpu.sm_count * gpu.max_threads_per_sm / max(stretch, 1)) * stretch
    return Work(
        bytes=again + kernel.read_bytes + kernel.write_bytes,
        working_set=min(count, at_work) * element * 2.0,
        serial_us=kernel.reduced * SUMMED_STEP_CYCLES / gpu.clock_hz * 1e6,
        tile_count=float(max(ceil(count / CUMSUM_BLOCK), 1)),
        wave_count=max(1.0, ceil(count / (gpu.sm_count * gpu.max_threads_per_sm))),
    )


def _reduction(kernel: Reduction, gpu: GpuSpec) -> Work:
    if sums_all_before(kernel):
        return _summed_before(kernel, gpu)
    bytes_ = float(kernel.read_bytes + kernel.write_bytes)
    elements = kernel.outputs * kernel.reduced
    scan = kernel.operation.startswith("cum")
    threads = gpu.sm_count * gpu.max_threads_per_sm
    # a scan has a block a row; a reduction cuts long rows among blocks
    by_block = scan or kernel.operation in BLOCK_A_ROW
    in_block, at_once = SCAN_THREADS, 1.0 if kernel.operation in BLOCK_A_ROW else SCAN_AT_ONCE
    if scan and kernel.library == LIBRARY:
        in_block, at_once = CUMSUM_BLOCK, 1.0
    lanes = min(threads, max(kernel.outputs, 1) * in_block) if by_block else min(threads, max(elements / 4.0, 1.0))
    iterations = elements / (at_once * lanes)
    serial = BLOCK_REDUCTION_US + iterations * SERIAL_ITERATION_CYCLES / gpu.clock_hz * 1e6
    few = kernel.outputs < gpu.sm_count and kernel.reduced > 4096 and not by_block
    cost = elements * (10.0 + fused_cost(kernel.fused)) + kernel.outputs * fused_cost(kernel.epilogue)
    return Work(
        bytes=bytes_,
        compute_us=cost / vector_flops_per_s(gpu, kernel.dtype) * 1e6,
        serial_us=serial,
        memory_efficiency=SCAN_EFFICIENCY if scan else REDUCTION_EFFICIENCY,
        launches=2 if few else 1,  # partial results of several blocks meet again
        tile_count=float(max(kernel.outputs, 1)),
        wave_count=max(1.0, ceil(kernel.outputs * in_block / threads)),
    )


def _pooling(kernel: Pooling, gpu: GpuSpec) -> Work:
    outputs = kernel.output.element_count
    lane_rate = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
    operations = outputs * (kernel.window * POOL_OPERATIONS + POOL_OUTPUT_OPERATIONS)
    if kernel.access == "vector":
        operations *= kernel.input.dtype.bits / VECTOR_BITS
        operations += outputs * kernel.window * max(kernel.input.dtype.bits, 16) / POOL_COMPARED_BITS
    # few outputs with a large window (global pooling) are reduced by a warp each
    serial = BLOCK_REDUCTION_US if kernel.window > 64 else 0.0
    return Work(
        bytes=kernel.read_bytes + kernel.write_bytes,
        compute_us=operations / lane_rate * 1e6,
        serial_us=serial,
        memory_efficiency=REDUCTION_EFFICIENCY,
        tile_count=max(1.0, ceil(outputs / 256)),
    )


def _attention(kernel: Attention, gpu: GpuSpec) -> Work:
    peak, _ = pipe_flops_per_s(gpu, kernel.dtype)
    on_lanes = peak <= gpu.peak_flops_per_s["fp32"]
    rate = peak * (ATTENTION_VECTOR_EFFICIENCY if on_lanes else ATTENTION_EFFICIENCY)
    # a tile holds 64 queries; decoding packs the query heads that share a key head into 16 rows
    rows = kernel.s * max(1, kernel.h // max(kernel.g, 1)) if kernel.s < 16 else kernel.s
    tile_rows = 16 if rows <= 16 else 64
    padding = ceil(max(rows, 1) / tile_rows) * tile_rows / max(rows, 1)
    products = 2.0 * kernel.macs / rate * padding
    # one exponential a pair: special-function units, 16 a clock and SM
    exponentials = kernel.b * kernel.h * kernel.pair_count / (16.0 * gpu.sm_count * gpu.clock_hz)
    blocks = kernel.b * kernel.h * ceil(max(kernel.s, 1) / 64)
    waves = max(1.0, ceil(blocks / gpu.sm_count))
    # long rows of keys are split among blocks when there are few; else the last wave is partly empty
    uneven = waves * gpu.sm_count / blocks if blocks >= gpu.sm_count else 1.0
    steps = ceil(max(kernel.t, 1) / 64) / max(1.0, gpu.sm_count / max(blocks, 1))
    return Work(
        bytes=kernel.read_bytes + kernel.write_bytes,
        compute_us=(products + 0.5 * exponentials) * uneven * 1e6,
        serial_us=(3000.0 + 1000.0 * steps) / gpu.clock_hz * 1e6,  # softmax between two dependent products, a K step
        memory_efficiency=0.9,
        launches=2 if blocks < gpu.sm_count and kernel.t > 1024 else 1,
        tile_count=float(max(blocks, 1)),
        wave_count=waves,
    )


def _gather_scatter(kernel: GatherScatter, gpu: GpuSpec) -> Work:
    element = kernel.dtype.bits / 8
    run_bytes = max(kernel.run, 1) * element
    rounding = ceil(run_bytes / SECTOR_BYTES) * SECTOR_BYTES / run_bytes
    moved = kernel.moved * element
    base = kernel.base.byte_count if kernel.base else 0
    scattered = moved * (1.0 + rounding) + kernel.index_dtype.bytes_of(kernel.index_count)
    lane_rate = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
    operations = 0.0 if kernel.library else GATHER_ACCESS[kernel.access]
    # what one index takes of the first dimension lies together: it is copied
    efficiency = GATHER_EFFICIENCY if kernel.moved > kernel.run and kernel.access != "vector" else 1.0
    if kernel.operation == "embedding":
        # nothing has read the table before; what is written stays in L2 for whoever reads it next
        read = scattered - moved
        written = max(moved - WRITE_SHARE * gpu.l2_bytes, 0.0)
        return Work(
            bytes=(read + written) / efficiency,
            compute_us=kernel.moved * operations / lane_rate * 1e6,
            tile_count=max(1.0, ceil(kernel.moved / 512)),
        )
    return Work(
        bytes=scattered / efficiency + 2.0 * base,
        compute_us=kernel.moved * operations / lane_rate * 1e6,
        working_set=moved * 2.0 + 2.0 * base,
        launches=2 if kernel.base else 1,
        tile_count=max(1.0, ceil(kernel.moved / 512)),
    )


def _movement(kernel: Movement, gpu: GpuSpec) -> Work:
    elements = prod(kernel.shape)
    written = kernel.written / max(kernel.dtype.bits / 8, 0.125)
    count = max(elements, written)
    lane_rate = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
    cost, compute_us, serial_us = 1.0, 1e6 * kernel.flops / vector_flops_per_s(gpu, kernel.dtype), 0.0
    if kernel.permutation is not None:
        rank = len(kernel.permutation)
        if kernel.permutation != tuple(range(rank)):
            cost = PERMUTE_COST if kernel.permutation[-1] == rank - 1 else STRIDED_PERMUTE_COST
            if not kernel.library:
                instructions = index_instructions(_permuted_dimensions(kernel.shape, kernel.permutation), 2.0)
                compute_us += float(index_us(np.asarray(count), np.asarray(instructions), INDEX_OPERATIONS, gpu))
    elif kernel.operation == "resize" and kernel.taps:
        issued_us, serial_us = resize_us(kernel, gpu)
        compute_us += issued_us
    elif kernel.operation not in ("copy", "cast", "fill"):
        compute_us += 1e6 * count * _place_operations(kernel) / lane_rate
    return Work(
        bytes=float(kernel.read + kernel.written),
        compute_us=compute_us,
        serial_us=serial_us,
        memory_efficiency=1.0 / cost,
        tile_count=max(1.0, ceil(count / 512)),
    )


def _permuted_dimensions(shape: Sequence[int], permutation: Sequence[int]) -> int:
    """Dimensions that are left when those merge which stay neighbours, and those of one element go."""
    axes = [axis for axis in permutation if shape[axis] != 1]
    left = [axis for axis in range(len(shape)) if shape[axis] != 1]
    follows = dict(pairwise(left))
    return max(1, len(axes) - sum(follows.get(a) == b for a, b in pairwise(axes)))


def _place_operations(kernel: Movement) -> float:
    """Integer operations an element for finding its place in the source: once a vector where runs are whole vectors.

    What other libraries' kernels take is not PyTorch's (:mod:`neusight_onnx.laws.issue`).
    """
    if kernel.library:
        return 0.0
    run_bits = kernel.run * kernel.dtype.bits
    return INDEX_OPERATIONS * (kernel.dtype.bits / VECTOR_BITS if run_bits % VECTOR_BITS == 0 else 1.0)


def _sort(kernel: Sort, gpu: GpuSpec) -> Work:
    key = kernel.dtype.bits / 8
    elements = float(kernel.rows * kernel.cols)
    pair = key + 8.0  # PyTorch and ONNX sort with 64-bit indices
    if _has_a_block_a_row(kernel):
        return _top_k_by_one_block(kernel, gpu)
    selects = 0 < kernel.kept < kernel.cols // 4 and kernel.operation == "topk"
    if kernel.cols <= SORT_SMALL and kernel.operation != "nms" and not selects:
        stages = log2(max(kernel.cols, 2)) ** 2 / 2.0  # bitonic network in shared memory
        lane_rate = gpu.sm_count * gpu.fp32_lanes_per_sm * gpu.clock_hz
        return Work(
            bytes=elements * key + kernel.output_bytes,
            compute_us=elements * stages * 20.0 / lane_rate * 1e6,
            serial_us=stages * 100.0 / gpu.clock_hz * 1e6,
            tile_count=float(max(kernel.rows, 1)),
        )
    passes = max(1, ceil(kernel.dtype.bits / SORT_BITS_PER_PASS))
    if kernel.operation == "nms":
        candidates = float(kernel.rows * kernel.cols if kernel.candidates is None else kernel.candidates)
        longest = min(float(kernel.cols), candidates)
        pairs = candidates * longest / 2.0
        pairwise = pairs * OVERLAP_OPERATIONS / vector_flops_per_s(gpu, kernel.dtype) * 1e6
        # suppression walks the candidates in order, one bit mask of 64 a step
        walk, sorts = longest * SERIAL_ITERATION_CYCLES, passes + 1
        if kernel.library == "onnxruntime":  # it sorts in kernels of their own
            kept, sorts = min(float(kernel.kept), longest), 0
            walk = kept * SERIAL_ITERATION_CYCLES + (longest - kept) * SUPPRESSED_STEP_CYCLES
        return Work(
            bytes=elements * 2.0 * pair * min(sorts, passes) + kernel.output_bytes,
            compute_us=pairwise,
            serial_us=walk / gpu.clock_hz * 1e6,
            memory_efficiency=0.6,
            launches=sorts + 2,
            tile_count=max(1.0, ceil(elements / 64)),
        )
    if kernel.operation == "nonzero":
        passes = 1  # one prefix sum over flags
    # selection reads the keys a pass and moves nothing; a sort reads and writes keys and indices
    bytes_ = elements * key * passes if selects else elements * 2.0 * pair * passes
    return Work(
        bytes=bytes_ + kernel.output_bytes,
        memory_efficiency=0.6,  # scattered writes of a radix pass; CUB reports 60-70 % of the copy rate
        working_set=elements * pair * 2.0,
        serial_us=passes * BLOCK_REDUCTION_US,
        launches=passes + 2 if kernel.cols > SORT_SMALL else 2,
        tile_count=max(1.0, ceil(elements / 4096)),
    )


def _has_a_block_a_row(kernel: Sort) -> bool:
    if kernel.library != "onnxruntime" or kernel.operation != "topk" or kernel.cols <= TOP_K_BLOCK:
        return False
    is_cut = kernel.kept <= TOP_K_CUT_KEPT and kernel.cols > TOP_K_CUT_COLUMNS
    return not is_cut or kernel.dtype not in (DataType.FLOAT32, DataType.FLOAT16)


def _top_k_by_one_block(kernel: Sort, gpu: GpuSpec) -> Work:
    """``RadixTopK``: a block walks its row once for each byte of the key and a few times more, an element a thread."""
    key = kernel.dtype.bits / 8
    bytes_ = kernel.rows * kernel.cols * key
    sweeps = ceil(key) + TOP_K_SWEEPS
    missed = float(l2_miss_fraction(np.array([bytes_]), gpu)[0])
    step = TOP_K_STEP_CYCLES + missed * (SERIAL_ITERATION_CYCLES - TOP_K_STEP_CYCLES)
    walk_us = sweeps * ceil(kernel.cols / TOP_K_BLOCK) * step / gpu.clock_hz * 1e6
    waves = ceil(kernel.rows / (gpu.sm_count * TOP_K_BLOCKS_PER_SM))
    return Work(
        bytes=sweeps * bytes_ + kernel.output_bytes,
        working_set=bytes_,
        serial_us=waves * (walk_us + ceil(key) * BLOCK_REDUCTION_US),  # behind each digit its counts are walked
        tile_count=float(max(kernel.rows, 1)),
        wave_count=float(max(waves, 1)),
    )


def _recurrent(kernel: Recurrent, gpu: GpuSpec) -> Work:
    peak, share = pipe_flops_per_s(gpu, kernel.dtype)
    weights = float((kernel.weight_dtype or kernel.dtype).bytes_of(kernel.gates * kernel.h * kernel.h))
    steps = kernel.steps * kernel.directions
    if not steps or not kernel.b or not kernel.h:
        return Work(bytes=kernel.read_bytes)
    rate = peak * min(share, RECURRENT_COMPUTE_EFFICIENCY)
    flops_us = max(kernel.b, 16) / kernel.b * 2.0 * kernel.macs / rate * 1e6
    held = kernel.directions * weights
    return Work(
        bytes=steps * weights + kernel.read_bytes + kernel.write_bytes,
        working_set=held,
        compute_us=flops_us,
        memory_efficiency=RECURRENT_DRAM_EFFICIENCY,
        # directions run side by side where the library can; each step waits for the one before
        fixed_us=kernel.steps * RECURRENT_STEP_US,
        tile_count=float(steps),
        wave_count=float(steps),
    )
