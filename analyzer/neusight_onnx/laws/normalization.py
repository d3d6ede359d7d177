"""Normalization: two passes over each row by one block, or one pass where statistics are given.

The law (us)::

    T = launches + (Td^p + Tl^p + Tc^p + Ts^p)^(1/p)
    Tl = bytes, the second read among them, / L2 rate
    Tc = elements x FLOP equivalents of an element / FP32 peak
    layer, rms, lp      Td = (read (1 + m) + written) / DRAM rate: the second read misses with
                        m = 1 / (1 + (x0/x)^s), x = rows resident on the GPU x their bytes / L2
                        Ts = (start + step x loads + rows an SM x (row + iteration x loads)) / clock, loads =
                        ceil(cols / 512), 128 threads a row (AMD twice as many): the latency of one row, and what an
                        SM needs for each row that it works through
    group, instance     statistics (read), then scale and shift (read and write): the second read misses as if the
                        whole tensor stood between them; two more launches. Where all SMs share the rows (``is_split``)
                        and it is less: the loads of a block in place of a row's, of as many blocks as the GPU holds,
                        and a second start, for the wait that joins their sums
    batch               scale and shift a channel: one pass, as an elementwise kernel; where it makes its statistics
                        itself ("statistics" in ``fused``), as group normalization
    local response      one pass, its window in cache

Rows of generated kernels: the law of :mod:`neusight_onnx.laws.generated`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Kernel, Normalization
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

ROW_METHODS = frozenset({"layer", "rms", "lp"})
TWO_KERNEL_METHODS = frozenset({"group", "instance"})

_LAW_SOURCE = "fitted to FP32 LayerNorm kernels of seven GPUs"

CONSTANTS: tuple[Constant, ...] = (
    *DRAM_CONSTANTS,
    Constant(
        name="launch_us",
        prior=2.0,
        prior_log_sd=0.0,
        source="as for elementwise kernels; event timing can't tell it from host time",
    ),
    Constant(name="reread_half", prior=0.61, prior_log_sd=0.3, source=_LAW_SOURCE),
    Constant(name="reread_sharpness", prior=3.3, prior_log_sd=0.3, source=_LAW_SOURCE),
    Constant(name="sharpness", prior=4.1, prior_log_sd=0.2, source=_LAW_SOURCE + ": of the soft maximum of the times"),
    Constant(
        name="start_cycles",
        prior=3000.0,
        prior_log_sd=0.3,
        source="latency of one row by itself: two loads from DRAM (400-600 cycles each), two block reductions, a store",
    ),
    Constant(
        name="row_cycles",
        prior=500.0,
        prior_log_sd=0.3,
        source="cycles of an SM a row: 16 rows of 260-420 columns an SM take 5.6 us (V100), 7.4 us (A100)",
    ),
    Constant(
        name="amd_row_cycles",
        prior=2.0,
        prior_log_sd=0.3,
        source="the same on AMD, ratio: .66-.70 us a row and compute unit on MI100 and MI210",
    ),
    Constant(
        name="iteration_cycles",
        prior=40.0,
        prior_log_sd=0.3,
        source=_LAW_SOURCE + ": cycles of an SM for a block's load of 512 columns",
    ),
    Constant(
        name="pascal_iteration",
        prior=9.0,
        prior_log_sd=0.3,
        source=_LAW_SOURCE + ": the same on Pascal, ratio; only the P100 (large bandwidth an SM) shows it",
    ),
    Constant(
        name="misaligned",
        prior=1.06,
        prior_log_sd=0.03,
        source="DRAM time of rows that do not start on a 128-byte line, ratio: 1.00 (V100, P4, MI100), 1.05-1.10 "
        "(P100, T4, A100), 1.1-1.2 (MI210)",
    ),
    Constant(
        name="compute_cost",
        prior=30.0,
        prior_log_sd=0.3,
        source="FLOP equivalents an element: Welford's update and its division, scale and shift; DRAM hides it in FP32",
    ),
)

SPLIT_DOUBT_LOG_SD = 0.3
"""Of rows that all SMs share, none of which was timed (a judgement)."""
PASSED_ON_BYTES = 16
"""An element of instances in parts: in FP32 the input and that without its mean, each written and read."""

COLUMN_NAMES: tuple[str, ...] = (
    "rows",
    "cols",
    "element_bytes",
    "read_bytes",
    "write_bytes",
    "body_bytes",
    "flops",
    "fused_cost",
    "per_row",
    "two_kernels",
    "generated",
    "split",
)

FEATURE_NAMES: tuple[str, ...] = (
    "log_memory_share",
    "log_latency_share",
    "log_cols",
    "log_iteration_fill",
    "on_line",
    "log_reread_ratio",
    "log_working_set_over_l2",
    "log_waves",
    "wave_fraction",
    "log_time_over_launch",
    "log_ridge",
    "log_clock_bytes_per_sm",
)

STEP_CYCLES = 500.0
"""Latency of one more load of a block that waits for DRAM (400-600 cycles: micro-benchmarks of Jia et al.)."""

WARP_LOAD_COLUMNS = 128.0
"""Columns that a warp of such a block loads at once."""
LOADING_WARPS, IDLE_SHARE = 3.0, 0.19
"""Rows of 260 columns, the shortest in the training data, keep three of a block's four warps loading. One that has
nothing to load executes 150 instructions in place of 420 (PyTorch's ``vectorized_layer_norm_kernel`` as NVRTC 12.9
compiles it for 8.6: no statistics of its own, nothing to merge but its neighbours' result, nothing to write), .19 of
the 1,410 of such a row."""

LINE_BYTES = 128
"""Cache line of L1 and L2 on NVIDIA and CDNA GPUs."""
VECTOR = 4.0
"""Columns that a thread loads at once (16 bytes of FP32)."""


def row_threads(gpu: GpuSpec) -> float:
    """Threads of a row's block in PyTorch's vectorised LayerNorm: 32 x 4, AMD 64 x 4 (block sizes in the data)."""
    return 256.0 if is_amd(gpu) else 128.0


def resident_rows(gpu: GpuSpec) -> float:
    """Rows in flight on the whole GPU, one block each."""
    return gpu.sm_count * max(1.0, gpu.max_threads_per_sm // row_threads(gpu))


def columns(kernels: Sequence[Kernel]) -> Columns:
    """Columns of normalization kernels; ``body_bytes`` are the input's, without parameters and residuals."""
    table = np.zeros((len(kernels), len(COLUMN_NAMES)), dtype=np.float64)
    for index, kernel in enumerate(kernels):
        assert isinstance(kernel, Normalization)
        table[index] = (
            kernel.rows,
            kernel.cols,
            kernel.dtype.bits / 8,
            kernel.read_bytes,
            kernel.write_bytes,
            # backwards, both the input and the result's gradient are gone through twice
            PASSED_ON_BYTES * kernel.rows * kernel.cols
            if kernel.is_split and kernel.method == "instance"
            else kernel.dtype.bytes_of(kernel.rows * kernel.cols) * (2 if kernel.backward else 1),
            kernel.flops,
            fused_cost([name for name in kernel.fused if name != "statistics"]),
            kernel.method in ROW_METHODS,
            kernel.method in TWO_KERNEL_METHODS or "statistics" in kernel.fused,
            kernel.is_streamed,
            kernel.is_split,
        )
    return {name: table[:, index] for index, name in enumerate(COLUMN_NAMES)}


def starts_on_line(columns: Columns) -> NDArray[np.bool_]:
    """Whether every row starts on a cache line: else a warp's load touches one line more than it needs."""
    return np.asarray(np.mod(columns["cols"] * columns["element_bytes"], LINE_BYTES) == 0)


def reread_ratio(columns: Columns, gpu: GpuSpec) -> Column:
    """Bytes of the rows in flight (all, where the passes are two kernels) over L2."""
    resident = np.minimum(columns["rows"], resident_rows(gpu))
    resident = np.where(columns["two_kernels"] > 0, columns["rows"], resident)
    return np.asarray(resident * columns["cols"] * columns["element_bytes"] / max(gpu.l2_bytes, 1), dtype=np.float64)


def estimate(columns: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law of the module's docstring on one GPU."""
    rows, cols = columns["rows"], columns["cols"]
    per_row, two_kernels = columns["per_row"] > 0, columns["two_kernels"] > 0
    dram = dram_bytes_per_s(gpu, constants)
    unique = columns["read_bytes"] + columns["write_bytes"]
    ratio = np.maximum(reread_ratio(columns, gpu), 1e-9)
    missed = 1.0 / (1.0 + (constants["reread_half"] / ratio) ** constants["reread_sharpness"])
    passes = np.where(per_row | two_kernels, 1.0, 0.0)
    l2_miss = l2_miss_fraction(unique, gpu)
    apart = np.where(per_row & ~starts_on_line(columns), constants["misaligned"], 1.0)
    memory = (unique + columns["body_bytes"] * passes * missed) * l2_miss * apart / dram * 1e6
    l2 = (unique + columns["body_bytes"] * passes) / l2_bytes_per_s(gpu) * 1e6

    loads = np.ceil(cols / (VECTOR * row_threads(gpu)))
    row: Column | float = constants["row_cycles"]
    iteration = constants["iteration_cycles"]
    if is_amd(gpu):
        row *= constants["amd_row_cycles"]
    else:
        row = row * (1.0 - IDLE_SHARE * np.maximum(LOADING_WARPS - np.ceil(cols / WARP_LOAD_COLUMNS), 0.0))
        if capability(gpu) < 7.0:
            iteration *= constants["pascal_iteration"]
    cycles = constants["start_cycles"] + STEP_CYCLES * loads + rows / gpu.sm_count * (row + iteration * loads)
    # All SMs share groups in an engine (TensorRT for RTX 1.7.1, compute capability 8.6 and 12.0): its one kernel has
    # two counters a group, set to 0 before, and 192 partial sums for each SM of the GPU that it is built for, of 32 to
    # 1,024 groups of 2,560 to 2 million elements; instances of 262,144 elements have 20 and 8 parts each. In ONNX
    # Runtime's GroupNorm (groupNormNHWCSum, public source, a plugin of TensorRT's once) blocks take stretches of pixels
    # and add to the sums of their group.
    split = columns["split"] > 0
    shares = np.where(split, np.clip(resident_rows(gpu) / np.maximum(rows, 1.0), 1.0, np.maximum(loads, 1.0)), 1.0)
    shared = 2.0 * constants["start_cycles"] + STEP_CYCLES * loads / shares
    shared = shared + rows / gpu.sm_count * (row * shares + iteration * loads)
    shares = np.where(shared < cycles, shares, 1.0)
    cycles = np.where(split, np.minimum(cycles, shared), cycles)
    latency = np.where(per_row | two_kernels, cycles, 0.0) / gpu.clock_hz * 1e6

    cost = np.where(per_row | two_kernels, constants["compute_cost"], 10.0) + columns["fused_cost"]
    compute = rows * cols * cost / gpu.peak_flops_per_s["fp32"] * 1e6
    launches = constants["launch_us"] * np.where(two_kernels, 3.0, 1.0)

    generated = columns["generated"] > 0
    streamed = row_stream(rows, cols, columns["element_bytes"], columns["read_bytes"], columns["write_bytes"], gpu)
    memory = np.where(generated, (unique * l2_miss + streamed.again_bytes) / dram * 1e6, memory)
    l2 = np.where(generated, streamed.l2_us, l2)
    latency = np.where(generated, streamed.latency_us, latency)

    ideal = stream_ideal_us(columns["flops"], unique, gpu.peak_flops_per_s["fp32"], gpu)
    parts = (memory, l2, compute, latency)
    total = launches + np.where(generated, p_norm(parts, SHARPNESS), p_norm(parts, constants["sharpness"]))
    iteration_columns = VECTOR * row_threads(gpu)
    blocks = np.where(per_row | two_kernels, rows, np.ceil(rows * cols / iteration_columns))
    blocks = np.maximum(blocks * shares, 1.0)
    in_l2 = np.maximum(total, ideal)
    reused = reuse(unique, in_l2, launches, dram, gpu)
    return LawResult(
        latency_us=np.maximum(in_l2, reused.memory_us),
        ideal_us=ideal,
        parts_us={"memory": memory, "l2": l2, "compute": compute, "latency": latency, "launch": launches},
        tile={"rows": np.ones_like(rows), "cols": np.where(per_row | two_kernels, cols, iteration_columns)},
        tile_count=blocks,
        wave_count=np.ceil(blocks / resident_rows(gpu)),
        doubt_log_sd=np.hypot(stream_doubt_log_sd(gpu, memory, l2, total), np.where(split, SPLIT_DOUBT_LOG_SD, 0.0)),
        reuse=reused,
    )


def features(columns: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Inputs of the residual model, (n, len(FEATURE_NAMES)); ratios only."""
    rows, cols = columns["rows"], columns["cols"]
    body = np.maximum(result.latency_us, 1e-3)
    waves = rows / resident_rows(gpu)
    iteration_columns = VECTOR * row_threads(gpu)
    ones = np.ones_like(rows)
    table = (
        np.log(result.parts_us["memory"] / body + 1e-3),
        np.log(result.parts_us["latency"] / body + 1e-3),
        np.log(np.maximum(cols, 1.0)),
        np.log(np.maximum(cols, 1.0) / (iteration_columns * np.ceil(np.maximum(cols, 1.0) / iteration_columns))),
        starts_on_line(columns).astype(np.float64),
        np.log(reread_ratio(columns, gpu) + 1e-6),
        np.log((columns["read_bytes"] + columns["write_bytes"]) / max(gpu.l2_bytes, 1) + 1e-6),
        np.log(waves + 1e-6),
        np.minimum(waves / np.ceil(np.maximum(waves, 1e-9)), 1.0),
        np.log(body / constants["launch_us"]),
        ones * np.log(gpu.peak_flops_per_s["fp32"] / gpu.memory_bytes_per_s),
        ones * np.log(gpu.memory_bytes_per_s / (gpu.sm_count * gpu.clock_hz)),
    )
    return np.stack(table, axis=1).astype(np.float32)


NORMALIZATION = Law(
    kernel_class="normalization",
    constants=CONSTANTS,
    feature_names=FEATURE_NAMES,
    columns=columns,
    estimate=estimate,
    features=features,
)
