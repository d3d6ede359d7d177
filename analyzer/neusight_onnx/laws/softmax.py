"""Softmax: one warp a row up to 1,024 columns, one block a row above, strided rows where the axis is not the last.

The law (us)::

    T = launch + (Td^p + Tl^p + Tc^p + Ts^p)^(1/p)
    Tl = bytes, re-reads among them, / L2 rate
    Tc = elements x FLOP equivalents of an element / FP32 peak
    Ts = what a block takes that DRAM doesn't see, by the kernel
    warp kernel (cols <= 1024)  Td = bytes / DRAM rate: the row stays in registers, read once and written once
    block kernel                Td = (read (1 + 2 m) + written) / DRAM rate: three passes over the row (maximum, sum,
                                result); a re-read misses with m = 1 / (1 + (x0/x)^s), x = rows that are resident on
                                an SM x their bytes / L1 (Volta and later), or rows resident on the GPU / L2 (else)
                                Ts = waves x (fixed + vector iterations + tail iterations) / clock
    spatial kernel (inner > 1)  three passes that go through L2, coalesced along the inner axis
    generated kernel            the law of :mod:`neusight_onnx.laws.generated`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Kernel, Softmax
from neusight_onnx.laws.bandwidth import (
    DRAM_CONSTANTS,
    capability,
    dram_bytes_per_s,
    is_amd,
    l2_bytes_per_s,
    l2_miss_fraction,
    p_norm,
    reuse,
    stream_doubt_log_sd,
    stream_ideal_us,
)
from neusight_onnx.laws.base import Column, Columns, Constant, Constants, Law, LawResult
from neusight_onnx.laws.elementwise import fused_cost
from neusight_onnx.laws.generated import SHARPNESS, row_stream

LONGEST_WARP_ROW = 1024.0
"""Longest row that PyTorch's persistent softmax takes (``softmax_warp_forward``); the data switch there."""

LAUNCH_US = 2.0

LONE_BLOCK = 0.4
"""A block that has the SM to itself takes this share of the cycles that it takes among others: as in LayerNorm, whose
lone row takes 3,000 of a wave's 8,000 cycles."""

LINE_BYTES = 128
"""Cache line of L1 and L2 on NVIDIA and CDNA GPUs."""

_LAW_SOURCE = "fitted to FP32 softmax kernels of five NVIDIA GPUs"

CONSTANTS: tuple[Constant, ...] = (
    *DRAM_CONSTANTS,
    Constant(
        name="launch_us",
        prior=LAUNCH_US,
        prior_log_sd=0.0,
        source="as for elementwise kernels; event timing can't tell it from host time",
    ),
    Constant(name="reread_half_l1", prior=0.75, prior_log_sd=0.3, source=_LAW_SOURCE),
    Constant(name="reread_half_l2", prior=0.75, prior_log_sd=0.3, source=_LAW_SOURCE),
    Constant(name="reread_sharpness", prior=6.0, prior_log_sd=0.3, source=_LAW_SOURCE),
    Constant(name="sharpness", prior=5.0, prior_log_sd=0.2, source=_LAW_SOURCE + ": of the soft maximum of the times"),
    Constant(name="block_cycles", prior=8900.0, prior_log_sd=0.3, source=_LAW_SOURCE + ": two block reductions"),
    Constant(name="vector_cycles", prior=1600.0, prior_log_sd=0.3, source=_LAW_SOURCE + ": three loads of 16 bytes"),
    Constant(name="tail_cycles", prior=1750.0, prior_log_sd=0.3, source=_LAW_SOURCE + ": three loads of 4 bytes"),
    Constant(
        name="pascal_cycles", prior=1.3, prior_log_sd=0.2, source=_LAW_SOURCE + ": Pascal's longer load latency, ratio"
    ),
    Constant(
        name="amd_cycles",
        prior=1.0,
        prior_log_sd=0.4,
        source="the same for AMD's compute units, block of 1,024 threads",
    ),
    Constant(
        name="misaligned",
        prior=1.08,
        prior_log_sd=0.04,
        source="DRAM time of the warp kernel where rows do not start on a 128-byte line, ratio: 1.04 (P100, P4), "
        "1.12-1.16 (T4, V100)",
    ),
    Constant(
        name="warp_cost",
        prior=30.0,
        prior_log_sd=0.4,
        source="FLOP equivalents an element: exp, two warp reductions; hidden behind DRAM in FP32 on all measured GPUs",
    ),
)

COLUMN_NAMES: tuple[str, ...] = (
    "rows",
    "cols",
    "inner",
    "element_bytes",
    "read_bytes",
    "write_bytes",
    "reload_bytes",
    "reload_distance_bytes",
    "flops",
    "fused_cost",
    "generated",
)

FEATURE_NAMES: tuple[str, ...] = (
    "log_memory_share",
    "log_latency_share",
    "log_cols_over_warp",
    "log_vector_fill",
    "tail_share",
    "on_line",
    "whole_vectors",
    "log_reread_ratio",
    "log_working_set_over_l2",
    "log_waves",
    "wave_fraction",
    "log_time_over_launch",
    "block_kernel",
    "log_ridge",
    "log_clock_bytes_per_sm",
)


def columns(kernels: Sequence[Kernel]) -> Columns:
    """Columns of softmax kernels; ``rows`` counts every independent row, ``fused_cost`` is in FLOPs an element."""
    table = np.zeros((len(kernels), len(COLUMN_NAMES)), dtype=np.float64)
    for index, kernel in enumerate(kernels):
        assert isinstance(kernel, Softmax)
        reload, distance = operand_reload(kernel)
        table[index] = (
            kernel.rows,
            kernel.cols,
            kernel.inner,
            kernel.dtype.bits / 8,
            kernel.read_bytes,
            kernel.write_bytes,
            reload,
            distance,
            kernel.flops,
            fused_cost(kernel.fused),
            kernel.is_streamed,
        )
    return {name: table[:, index] for index, name in enumerate(COLUMN_NAMES)}


def operand_reload(kernel: Softmax) -> tuple[float, float]:
    """(bytes re-read, bytes that pass between two reads) of the broadcast operand that is re-read the most.

    A mask of fewer elements than the scores is read again for every head: a mask of r rows once every r rows.
    """
    n = kernel.rows * kernel.cols
    full = [spec for spec in (*kernel.extra_inputs, *kernel.extra_outputs) if spec.element_count == n]
    streamed = 2 * kernel.dtype.bits / 8 + sum(spec.dtype.bits / 8 for spec in full)
    best = (0.0, 0.0)
    for spec in kernel.extra_inputs:
        if kernel.cols < spec.element_count < n:
            size = spec.dtype.bits / 8
            best = max(best, ((n - spec.element_count) * size, spec.element_count * (streamed + size)))
    return best


def block_threads(columns: Columns, gpu: GpuSpec) -> Column:
    """Threads of the block kernel: the power of two, 32..512, that loads a row in two vectors of 16 bytes or fewer a
    thread, what is beyond whole pairs of vectors left out; AMD always 1,024.

    Matches the block size of every measured row.
    """
    if is_amd(gpu):
        return np.full_like(columns["cols"], 1024.0)
    pairs = columns["cols"] // vector_columns(columns, gpu) // 2.0
    return np.clip(2.0 ** np.ceil(np.log2(np.maximum(pairs, 1.0))), 32.0, 512.0)


def vector_columns(columns: Columns, gpu: GpuSpec) -> Column:
    """Columns that a thread loads at once: 16 bytes; AMD's 16 bits as the measured 32, for want of measurements."""
    if is_amd(gpu):
        return np.full_like(columns["cols"], 4.0)
    return np.maximum(16.0 // np.maximum(columns["element_bytes"], 1.0), 1.0)


def l1_bytes(gpu: GpuSpec) -> float:
    """L1 capacity of an SM that re-reads can hit; the spec's, else by generation.

    NVIDIA tuning guides: unified L1 and shared memory of 128 KB (Volta), 96 KB (Turing), 192 KB (GA100), 256 KB
    (Hopper, Blackwell), 128 KB (GA10x, Ada, consumer Blackwell).
    """
    if gpu.l1_bytes_per_sm:
        return float(gpu.l1_bytes_per_sm)
    version = capability(gpu)
    kilobytes = 128.0
    if version == 7.5:
        kilobytes = 96.0
    elif version == 8.0:
        kilobytes = 192.0
    elif 9.0 <= version < 12.0:
        kilobytes = 256.0
    return kilobytes * 1024.0


def held_in_shared_memory(columns: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether the block kernel keeps its row in shared memory (``cunn_SoftMaxForwardSmem``) and reads it once.

    Seen in the AMD data (PyTorch 2.4) exactly where rows are whole vectors of 16 bytes and fit; PyTorch 2.1, with
    which the NVIDIA GPUs were measured, does not have that kernel in use.
    """
    row_bytes = columns["cols"] * columns["element_bytes"]
    limit = float(gpu.shared_memory_bytes_per_sm or 65536)
    whole = np.mod(row_bytes, 16) == 0
    return np.asarray(whole & (row_bytes <= limit) & is_amd(gpu))


def reread_ratio(columns: Columns, gpu: GpuSpec) -> tuple[Column, bool]:
    """(bytes of resident rows over the cache that a re-read could hit, whether that cache is L1)."""
    threads = block_threads(columns, gpu)
    per_sm = np.floor(np.maximum(gpu.max_threads_per_sm / threads, 1.0))
    row_bytes = columns["cols"] * columns["element_bytes"]
    if not is_amd(gpu) and capability(gpu) >= 7.0:
        resident = np.minimum(np.ceil(columns["rows"] / gpu.sm_count), per_sm)
        return resident * row_bytes / l1_bytes(gpu), True
    resident = np.minimum(columns["rows"], per_sm * gpu.sm_count)
    return resident * row_bytes / max(gpu.l2_bytes, 1), False


def estimate(columns: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law of the module's docstring on one GPU."""
    rows, cols = columns["rows"], columns["cols"]
    dram = dram_bytes_per_s(gpu, constants)
    unique = columns["read_bytes"] + columns["write_bytes"]
    body = columns["read_bytes"]  # a pass over the row reads its mask, too
    l2_miss = l2_miss_fraction(unique, gpu)

    spatial = columns["inner"] > 1
    block = ~spatial & (cols > LONGEST_WARP_ROW)
    ratio, in_l1 = reread_ratio(columns, gpu)
    half = constants["reread_half_l1" if in_l1 else "reread_half_l2"]
    missed = 1.0 / (1.0 + (half / np.maximum(ratio, 1e-9)) ** constants["reread_sharpness"])
    # a strided softmax keeps nothing: its re-reads hit L2 as far as the rows in flight fit
    in_flight = np.minimum(body, gpu.sm_count * gpu.max_threads_per_sm * cols * columns["element_bytes"])
    held = held_in_shared_memory(columns, gpu)
    missed = np.where(held, 0.0, missed)
    reread = np.where(block, 2.0 * missed, np.where(spatial, 2.0 * l2_miss_fraction(in_flight, gpu), 0.0))
    through = np.where(block | spatial, 2.0, 0.0)
    # small tensors: unique bytes come from L2 as in every streaming kernel, re-reads anyway
    on_line = np.mod(cols * columns["element_bytes"], LINE_BYTES) == 0
    apart = np.where(block | spatial | on_line, 1.0, constants["misaligned"])
    reload = columns["reload_bytes"]
    reloaded = reload * l2_miss_fraction(columns["reload_distance_bytes"], gpu)
    memory = ((unique + body * reread) * l2_miss * apart + reloaded) / dram * 1e6
    l2 = (unique + reload + body * np.where(spatial, through, reread)) / l2_bytes_per_s(gpu) * 1e6

    threads = np.where(block, block_threads(columns, gpu), 128.0)
    rows_per_block = np.where(block, 1.0, np.where(spatial, 128.0, 4.0))
    blocks = np.maximum(np.ceil(rows / rows_per_block), 1.0)
    resident = gpu.sm_count * np.maximum(np.floor(gpu.max_threads_per_sm / threads), 1.0)
    latency = np.where(
        block,
        _block_us(cols, vector_columns(columns, gpu), threads, blocks / resident, held, gpu, constants),
        _serial_us(cols, spatial, gpu, constants),
    )
    cost = constants["warp_cost"] + columns["fused_cost"]
    compute = rows * cols * cost / gpu.peak_flops_per_s["fp32"] * 1e6

    generated = columns["generated"] > 0
    streamed = row_stream(rows, cols, columns["element_bytes"], columns["read_bytes"], columns["write_bytes"], gpu)
    memory = np.where(generated, (unique * l2_miss + reloaded + streamed.again_bytes) / dram * 1e6, memory)
    l2 = np.where(generated, streamed.l2_us + reload / l2_bytes_per_s(gpu) * 1e6, l2)
    latency = np.where(generated, streamed.latency_us, latency)

    ideal = stream_ideal_us(columns["flops"], unique, gpu.peak_flops_per_s["fp32"], gpu)
    parts = (memory, l2, compute, latency)
    soft = np.where(generated, p_norm(parts, SHARPNESS), p_norm(parts, constants["sharpness"]))
    total = constants["launch_us"] + soft
    in_l2 = np.maximum(total, ideal)
    reused = reuse(unique, in_l2, constants["launch_us"], dram, gpu)
    return LawResult(
        latency_us=np.maximum(in_l2, reused.memory_us),
        ideal_us=ideal,
        parts_us={
            "memory": memory,
            "l2": l2,
            "compute": compute,
            "latency": latency,
            "launch": np.full_like(rows, constants["launch_us"]),
        },
        tile={"rows": rows_per_block, "cols": cols},
        tile_count=blocks,
        wave_count=np.ceil(blocks / resident),
        doubt_log_sd=stream_doubt_log_sd(gpu, memory, l2, total),
        reuse=reused,
    )


def _block_us(
    cols: Column,
    lanes: Column,
    threads: Column,
    waves: Column,
    held: NDArray[np.bool_],
    gpu: GpuSpec,
    constants: Constants,
) -> Column:
    """Serial time of the block kernel: loads of ``lanes`` columns a thread, then a tail of one column a thread.

    Rows that are ``held`` in shared memory are whole vectors and have no tail.
    """
    vectors = np.where(held, np.ceil(cols / lanes / threads), np.floor(cols / lanes / threads))
    tail = np.ceil(np.maximum(cols - vectors * lanes * threads, 0.0) / threads)
    cycles = constants["vector_cycles"] * vectors + constants["tail_cycles"] * tail
    if is_amd(gpu):
        cycles = cycles * constants["amd_cycles"]
    elif capability(gpu) < 7.0:
        cycles = cycles * constants["pascal_cycles"]
    return np.maximum(waves, LONE_BLOCK) * (constants["block_cycles"] + cycles) / gpu.clock_hz * 1e6


def _serial_us(cols: Column, spatial: NDArray[np.bool_], gpu: GpuSpec, constants: Constants) -> Column:
    """Serial time of one row: a warp holds it in registers; a strided row is walked three times by a thread.

    A walk keeps four loads in flight, so that a pass costs a quarter of a tail iteration a column.
    """
    walked = cols * constants["tail_cycles"] / 4.0 / 3.0
    held = constants["vector_cycles"] * np.ones_like(cols)
    return np.asarray(np.where(spatial, np.minimum(walked, 2e6), held) / gpu.clock_hz * 1e6, dtype=np.float64)


def features(columns: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Inputs of the residual model, (n, len(FEATURE_NAMES)); ratios only."""
    rows, cols = columns["rows"], columns["cols"]
    body = np.maximum(result.latency_us, 1e-3)
    block = ((columns["inner"] <= 1) & (cols > LONGEST_WARP_ROW)).astype(np.float64)
    threads = block_threads(columns, gpu)
    a_turn = vector_columns(columns, gpu) * threads
    vectors = np.floor(cols / a_turn)
    ratio, _ = reread_ratio(columns, gpu)
    waves = result.tile_count / (gpu.sm_count * max(1.0, gpu.max_threads_per_sm / 512.0))
    ones = np.ones_like(rows)
    table = (
        np.log(result.parts_us["memory"] / body + 1e-3),
        np.log(result.parts_us["latency"] / body + 1e-3),
        np.log(np.maximum(cols, 1.0) / LONGEST_WARP_ROW),
        np.log(np.maximum(cols, 1.0) / 2.0 ** np.ceil(np.log2(np.maximum(cols, 1.0)))),
        block * (cols - vectors * a_turn) / np.maximum(cols, 1.0),
        (np.mod(cols * columns["element_bytes"], LINE_BYTES) == 0).astype(np.float64),
        (np.mod(cols * columns["element_bytes"], 16) == 0).astype(np.float64),
        np.log(ratio + 1e-6),
        np.log((columns["read_bytes"] + columns["write_bytes"]) / max(gpu.l2_bytes, 1) + 1e-6),
        np.log(waves + 1e-6),
        np.minimum(waves / np.ceil(np.maximum(waves, 1e-9)), 1.0),
        np.log(body / constants["launch_us"]),
        block,
        ones * np.log(gpu.peak_flops_per_s["fp32"] / gpu.memory_bytes_per_s),
        ones * np.log(gpu.memory_bytes_per_s / (gpu.sm_count * gpu.clock_hz)),
    )
    return np.stack(table, axis=1).astype(np.float32)


SOFTMAX = Law(
    kernel_class="softmax",
    constants=CONSTANTS,
    feature_names=FEATURE_NAMES,
    columns=columns,
    estimate=estimate,
    features=features,
)
