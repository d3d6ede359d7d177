"""The law of matrix products: tiles over SMs, each limited by its pipe, memory, caches and the card's power.

``(b, m, k) @ (b, k, n) -> (b, m, n)``. A library covers the output with tiles; each SM works through its share of
them. Times of the pipe, of DRAM, of L2 and of shared memory compete (p-norm); a floor is added. The tile is the one
of the architecture's menu with the smallest time; one row or column has kernels without tiles (``laws/gemv.py``).
Everything is vectorised over kernels; inside, arrays have shape (candidates, kernels).

What the measured GPUs don't identify (``issue_overhead``, the energies of processes below 12 nm, matrix cores' energy)
was set by hand so that SGEMM rates agree with public ones *as remembered* (H100, RTX 3090, RTX 4090, RTX A6000, A10);
no document was opened for them. Single-kernel rates, no model's latency. Until such GPUs are measured their predictions
rest on that, and ``doubt`` widens their interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.kernels import Gemm, Kernel
from neusight_onnx.laws import gemv
from neusight_onnx.laws.bandwidth import p_norm
from neusight_onnx.laws.base import Column, Columns, Constant, Constants, Law, LawResult
from neusight_onnx.laws.clock import ENERGY_EXPONENT, energy_at, power_level
from neusight_onnx.laws.pascal_gemm import choose_biased
from neusight_onnx.laws.tiled import cheapest, pinned_tile, resident_blocks, with_tile
from neusight_onnx.tiling import DEEP_SPLITS, candidates, fp32_tiles

CONSTANTS: tuple[Constant, ...] = (
    Constant(
        name="floor_us",
        prior=2.5,
        prior_log_sd=0.0,
        source="an elementwise kernel's start and drain (2 us), and the prologue and epilogue of a tile, 0.5 us: a "
        "trip to DRAM and two barriers; not fitted: event-timed data can't tell it from host time",
    ),
    Constant(
        name="pipe_overhead",
        prior=1.05,
        prior_log_sd=0.05,
        source="hand-tuned SGEMM reaches 0.95 of the FP32 peak of an SM; fitted",
    ),
    Constant(
        name="tile_overhead",
        prior=0.10,
        prior_log_sd=0.5,
        source="prior: study of the shared FP32 measurements; fitted here",
    ),
    Constant(
        name="tile_exponent",
        prior=1.5,
        prior_log_sd=0.3,
        source="prior: study of the shared FP32 measurements; fitted here",
    ),
    Constant(
        name="latency_warps",
        prior=1.5,
        prior_log_sd=0.5,
        source="an SM needs several warps in flight to hide the latency of its FMAs and loads; prior: study of the "
        "shared FP32 measurements; fitted here",
    ),
    Constant(
        name="epilogue_k",
        prior=25.0,
        prior_log_sd=0.5,
        source="prologue and epilogue of a tile, as steps of k; prior: study of the shared FP32 measurements; fitted "
        "here",
    ),
    Constant(
        name="issue_overhead",
        prior=0.20,
        prior_log_sd=0.0,
        source="not fitted, no such GPU in the data: an 8x8 register tile issues 4 LDS.128 for 64 FMA (0.0625), "
        "global loads, barriers and addresses about 0.05, register bank conflicts about 0.08; SMs with 128 "
        "lanes and single issue (cc 8.6 and later) lose these slots; H100 SGEMM then reaches 0.79 of its "
        "peak, public figures are 0.75-0.80",
    ),
    Constant(
        name="energy_pj",
        prior=15.3,
        prior_log_sd=0.12,
        source="board energy of one FP32 FLOP in 16/12 nm at 1.4 GHz: a P4 has 59 W for 4.6-4.8 TFLOP/s at .92 GHz "
        "(12.5 pJ, times 1.52^.6), a T4 43 W for 3.8-4.1 at .77 (10.9 pJ, times 1.81^.6); fitted",
    ),
    Constant(
        name="energy_7nm",
        prior=0.73,
        prior_log_sd=0.2,
        source="the same on NVIDIA's 7 nm die against 16/12 nm, with its 40 MB of L2 and five stacks of HBM; prior: "
        "halfway (in log) between the foundry's 0.5 and data sheets (FP32 a W: V100 SXM2 52 GFLOP/s, A100 SXM4 49); "
        "fitted: products that keep the lanes of an A100 with 250 W busy are 5-11 % slower in 30 ms than in 1 ms, "
        "others are not, and none on a P100",
    ),
    Constant(
        name="throttle_ms",
        prior=0.2,
        prior_log_sd=0.5,
        source="prior: study of the shared FP32 measurements; fitted here: shorter kernels on an idle card run at "
        "the boost clock",
    ),
    Constant(
        name="small_tile_energy",
        prior=0.10,
        prior_log_sd=0.4,
        source="small tiles move more bytes per FLOP; prior: study of the shared FP32 measurements; fitted here",
    ),
    Constant(
        name="dram_efficiency",
        prior=0.70,
        prior_log_sd=0.15,
        source="streams reach 0.75-0.9 of the DRAM peak, tiles less; fitted",
    ),
    Constant(
        name="spill_knee",
        prior=2.0,
        prior_log_sd=0.4,
        source="an operand that passes between two uses, over L2 bytes, at which half of it is read again, inverse; "
        "prior: half of L2 is free for it; fitted",
    ),
    Constant(
        name="reload_efficiency",
        prior=0.17,
        prior_log_sd=0.2,
        source="share of the DRAM peak that an operand stored along k gets when strips of tiles read it again, 32 "
        "bytes of a row at a time (Pascal): P4 and P100 linear layers with 64x64 and 32x128 tiles move 0.13-0.18 of "
        "it; fitted",
    ),
    Constant(
        name="row_fade",
        prior=0.2,
        prior_log_sd=0.3,
        source="reload_efficiency is that of rows of 4 KiB and falls with this power of their length: long rows share "
        "fewer of DRAM's pages. Strips of 64x64 tiles on a P4 move .27 of the peak at k = 150, .17 at 1,500, .12 at "
        "6,000, .10 at 30,000; fitted",
    ),
    Constant(
        name="row_ns",
        prior=9.0,
        prior_log_sd=0.2,
        source="Pascal: what an SM waits for each row of a tile in eight steps of k where rows outgrow a page: at "
        "k > 16,384 an SM of the P100 and one of the P4 (32x128 tiles) run 45-50 GFLOP/s, whatever the grid and the "
        "DRAM; fitted",
    ),
    Constant(
        name="fetch_gain",
        prior=2.0,
        prior_log_sd=0.4,
        source="from Volta on L2 fetches 64 bytes from DRAM where 32 are asked for (CUDA's L2 fetch granularity), "
        "which serves the next step along k, too: blocks that drifted apart lose less; fitted",
    ),
    Constant(
        name="l2_bytes_per_clock",
        prior=32.0,
        prior_log_sd=0.3,
        source="bytes an SM gets from L2 in a clock: 64 by design, half is sustained; fitted",
    ),
    Constant(
        name="camping",
        prior=6.0,
        prior_log_sd=0.5,
        source="AMD: rows of an operand stored along k that lie multiples of 128 KiB apart slow L2, as if they met in "
        "few of its channels: linear layers of MI210 and MI100 run at 13 and 22 TFLOP/s with k = 32,768, at 12 and 10 "
        "with 65,536, at 29-33 with 12,288 and 30,522. How much longer L2 takes at 128 KiB, three times that from 256 "
        "KiB on; fitted",
    ),
    Constant(
        name="shared_efficiency",
        prior=1.0,
        prior_log_sd=0.15,
        source="shared memory gives 128 bytes a clock and SM; broadcasts halve the 4 (1/r + 1/c) bytes an FMA of an "
        "r x c register tile needs",
    ),
    Constant(
        name="drift_span",
        prior=60.0,
        prior_log_sd=0.3,
        source="blocks of a wave drift apart by one such part of the reduction: P4 (2 MB of L2) loses its reuse from "
        "k = 2,000 on, V100 (6 MB) from 30,000; fitted",
    ),
    Constant(
        name="drift_efficiency",
        prior=0.5,
        prior_log_sd=0.3,
        source="share of the DRAM peak that unshared panels get: rows of 32 bytes, far apart; P4 and P100; fitted",
    ),
    Constant(
        name="norm",
        prior=5.0,
        prior_log_sd=0.2,
        source="power of the norm that joins competing times; prior: study of the shared FP32 measurements; fitted "
        "here",
    ),
    Constant(
        name="split_us",
        prior=6.0,
        prior_log_sd=0.4,
        source="a second kernel adds the parts of a split reduction; fitted",
    ),
    Constant(
        name="matrix_overhead",
        prior=1.30,
        prior_log_sd=0.1,
        source="AMD's FP32 matrix cores reach 0.70-0.75 of their peak in MI100 and MI210 data; fitted",
    ),
)

FEATURES: tuple[str, ...] = (
    "log_memory_over_pipe",
    "log_l2_over_pipe",
    "log_shared_over_pipe",
    "log_drift_over_pipe",
    "log_floor_over_time",
    "log_tile_n",
    "log_tile_m",
    "log_split_k",
    "log_blocks_per_sm",
    "wave_fraction",
    "log_resident_waves",
    "n_fill",
    "m_fill",
    "log_k_per_split",
    "log_entry_over_l2",
    "log_total_over_l2",
    "log_intensity_over_ridge",
    "log_batch",
    "log_m",
    "log_n",
    "log_k",
    "m_alignment",
    "n_alignment",
    "k_alignment",
    "n_fill_of_128",
    "m_fill_of_128",
    "n_fill_of_64",
    "m_fill_of_64",
    "batched",
    "bias",
    "log_time_ms",
)

# energy of an operation by process (nm) against 16 nm, at one clock. 12 nm is TSMC's 16 nm with another name for its
# libraries; 7 nm and 5 nm from TSMC's stated power savings (halved twice, taken at three quarters of their word); 8 nm
# is Samsung's 10 nm class: A10 sustains about 14 TFLOP/s of FP32 at 150 W. On matrix units the fit of ``laws/clock.py``
# finds 1.02 times this in 8 nm (RTX 3090 and A6000) and .97 in 12 nm (T4 and V100)
_PROCESS_NM = np.array([3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 12.0, 16.0, 28.0])
_PROCESS_ENERGY = np.array([0.28, 0.34, 0.36, 0.47, 0.50, 0.65, 1.0, 1.0, 1.8])
# matrix cores spend less per FLOP than vector lanes (no operand fetch per FMA): MI100 holds its clock at 300 W
_MATRIX_ENERGY = 0.5
ENERGY_LOG_SD_PER_HALVING = 0.2
"""How well the energy of another process is known (log), for each time it halves against the measured 16/12 nm: the
foundry's figures are for a core of its own, and a power-limited GPU of 7 or 5 nm was not measured."""
_LIMIT_SHARPNESS = 20.0
"""Power of the smooth minimum of the clocks that the power limit and the maker allow."""
ISSUE_LOG_SD = 0.05
"""How well ``issue_overhead`` is known (log): public SGEMM figures of H100, RTX 3090 and RTX A6000 lie within 5 %."""
# elements of accumulators that fit the registers of an AMD CU beside everything else
_RESIDENT_ELEMENTS = 32768.0
_MOST_RESIDENT = 16.0
# memory of a GPU is mapped in pages of 64 KiB at least (of 2 MiB where an allocation is as large)
_PAGE_BYTES = 65536.0
_CHUNK = 4096


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Gemm kernels as columns: b, m, n, k, bytes of one entry's operands, of all unique ones and of the output, layout.

    A batch that shares its right operand is one product of b m rows, which is what libraries are handed.
    """
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Gemm)
        batch, m = kernel.batch, kernel.m
        shares_b = kernel.b_batch == 1 and kernel.a_batch in (None, batch)
        if batch > 1 and shares_b and not kernel.transpose_a:
            batch, m = 1, batch * m
        a_bits = (kernel.a_dtype or kernel.dtype).bits
        b_bits = (kernel.b_dtype or kernel.dtype).bits
        out_bits = (kernel.output_dtype or kernel.dtype).bits
        rows.append(
            (
                batch,
                m,
                kernel.n,
                kernel.k,
                a_bits / 8,
                b_bits / 8,
                out_bits / 8,
                kernel.read_bytes,
                kernel.write_bytes,
                kernel.flops,
                "bias" in kernel.epilogue,
                not kernel.transpose_a,
                kernel.transpose_b,
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


_COLUMNS = (
    *("b", "m", "n", "k", "a_bytes", "b_bytes", "out_bytes", "read_bytes", "write_bytes", "flops", "bias"),
    *("left_along_k", "right_along_k"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the law takes from a GPU: rates of the FP32 pipe that its library uses, and the SM around it."""

    flops_per_s: float
    sm_count: float
    clock_hz: float
    bytes_per_s: float
    l2_bytes: float
    is_matrix: bool
    is_pascal_library: bool
    single_issue: bool
    process_nm: float
    energy_scale: float
    is_measured_7nm: bool
    arithmetic_w: float


def machine(gpu: GpuSpec) -> Machine:
    """The FP32 view of a GPU: AMD's matrix cores where it has them, else the vector lanes."""
    capability = gpu.compute_capability
    matrix_flops_per_s = gpu.fp32_matrix_flops_per_s
    is_matrix = matrix_flops_per_s is not None
    return Machine(
        flops_per_s=gpu.peak_flops_per_s["fp32"] if matrix_flops_per_s is None else matrix_flops_per_s,
        sm_count=float(gpu.sm_count),
        clock_hz=gpu.clock_hz,
        bytes_per_s=gpu.memory_bytes_per_s,
        l2_bytes=float(gpu.l2_bytes),
        is_matrix=is_matrix,
        is_pascal_library=capability is not None and capability < 7.0,
        # Pascal's 128 lanes are fed by dual issue; 64-lane SMs issue an FMA every second clock
        single_issue=capability is not None and capability >= 7.0 and gpu.fp32_lanes_per_sm >= 128,
        process_nm=gpu.process_nm,
        energy_scale=process_energy(gpu.process_nm) * (_MATRIX_ENERGY if is_matrix else 1.0),
        is_measured_7nm=capability is not None and gpu.process_nm == 7.0,
        arithmetic_w=gpu.power_w - idle_w(gpu),
    )


def process_energy(process_nm: float) -> float:
    """Energy of an operation against 16 nm."""
    return float(np.exp(np.interp(np.log(process_nm), np.log(_PROCESS_NM), np.log(_PROCESS_ENERGY))))


def clock_level(
    unit: Machine, constants: Constants, pipe_share: NDArray[np.float64], tile_energy: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sustained clock over boost clock, in (0, 1], for work that keeps ``pipe_share`` of the peak busy.

    Power = idle + energy x FLOP/s, by the rule of :func:`~neusight_onnx.laws.clock.power_level`.
    """
    return power_level(_budget_share(unit, constants, pipe_share, tile_energy), sharpness=_LIMIT_SHARPNESS)


def _budget_share(
    unit: Machine, constants: Constants, pipe_share: NDArray[np.float64], tile_energy: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Power that is left for arithmetic over what it takes at the boost clock."""
    pj = constants["energy_pj"] * (constants["energy_7nm"] if unit.is_measured_7nm else unit.energy_scale)
    at_boost_w = pj * 1e-12 * energy_at(unit.clock_hz) * unit.flops_per_s * pipe_share * tile_energy
    return unit.arithmetic_w / at_boost_w


def holds_clock(gpu: GpuSpec) -> bool:
    """Whether the power limit leaves the boost clock to large products in FP32; where it doesn't, the clock follows how
    warm a card is, and sessions differ by more.

    By the law's priors, since what they are fitted to is weighed by the answer.
    """
    unit = machine(gpu)
    constants = {constant.name: constant.prior for constant in CONSTANTS}
    overhead = constants["matrix_overhead"] if unit.is_matrix else constants["pipe_overhead"]
    return bool(_budget_share(unit, constants, np.array(1.0 / overhead), np.array(1.0)) >= 1.0)


def times(
    cols: Mapping[str, NDArray[np.float64]],
    unit: Machine,
    c: Constants,
    tile: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """Competing times in s and what they are made of; ``tile`` is (n, m, threads, split) of any common shape."""
    t1, t2, threads, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    grid_n, grid_m = np.ceil(n / t1), np.ceil(m / t2)
    blocks = b * grid_n * grid_m * z
    kz = np.ceil(k / z)
    per_sm = np.ceil(blocks / unit.sm_count)
    occupancy = _occupancy(unit, tile)
    # elements in flight on an SM, in units of eight warps of 8x8 register tiles
    warps = np.clip(blocks / unit.sm_count, 1.0, occupancy) * t1 * t2 / 2048.0
    smallness = 16.0 * (1.0 / t1 + 1.0 / t2)
    base = c["matrix_overhead"] if unit.is_matrix else c["pipe_overhead"]
    issue = 1.0 + c["issue_overhead"] if unit.single_issue else 1.0
    steady = base * issue * (1.0 + c["tile_overhead"] * smallness ** c["tile_exponent"])
    full_s = per_sm * 2.0 * t1 * t2 * (kz + c["epilogue_k"]) * unit.sm_count / unit.flops_per_s
    full_s = full_s * (steady + c["latency_warps"] / warps)
    tile_energy = 1.0 + c["small_tile_energy"] * np.maximum(4.0 * smallness - 1.0, 0.0)
    level = clock_level(unit, c, 1.0 / steady, tile_energy)
    long = full_s * 1e3 / (full_s * 1e3 + c["throttle_ms"])
    pipe_s = full_s / level**long

    entry = cols["a_bytes"] * m * k + cols["b_bytes"] * k * n
    resident = unit.sm_count * occupancy
    memory_s, drift_s = _dram_s(cols, unit, c, tile, blocks=blocks, resident=resident)
    if unit.is_pascal_library and "left_along_k" in cols:
        # assembled kernels run in the grid's order. The compiled ones, which only a plain product without bias runs,
        # walk squares (grids of 4 x 10 x 4 for 20 x 8 tiles), as those of later GPUs seem to
        strips = (b > 1.0) | (cols["bias"] > 0.0)
        strip_memory_s, strip_drift_s = _strip_dram_s(cols, unit, c, tile, blocks=blocks, resident=resident)
        memory_s = np.where(strips, strip_memory_s, memory_s)
        drift_s = np.where(strips, strip_drift_s, drift_s)
    right, left = t1 * cols["b_bytes"], t2 * cols["a_bytes"]
    if unit.is_matrix and "left_along_k" in cols:
        right = right * (1.0 + c["camping"] * cols["right_along_k"] * _camped(k * cols["b_bytes"]))
        left = left * (1.0 + c["camping"] * cols["left_along_k"] * _camped(k * cols["a_bytes"]))
    panels = blocks * kz * (right + left)
    l2_s = panels / (c["l2_bytes_per_clock"] * np.minimum(blocks, unit.sm_count) * unit.clock_hz)
    # bytes that register tiles read from shared memory: 4 (1/r + 1/c) an FMA, halved by broadcasts
    side = np.sqrt(t1 * t2 / threads)
    shared_s = per_sm * t1 * t2 * kz * 0.5 * cols["a_bytes"] * (2.0 / side) / (128.0 * unit.clock_hz)
    shared_s = shared_s / c["shared_efficiency"] / level**long
    if unit.is_matrix:
        shared_s = shared_s * 0.25  # a matrix instruction reads each operand once for four lanes
    return {
        "compute": pipe_s,
        "memory": memory_s,
        "l2": l2_s,
        "shared": shared_s,
        "drift": drift_s,
        "blocks": blocks,
        "per_sm": per_sm,
        "occupancy": occupancy,
        "level": level,
        "entry": entry + np.zeros_like(blocks),
        "steady": steady,
        "kz": kz,
    }


def _occupancy(unit: Machine, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Blocks of a tile that an SM holds at once."""
    t1, t2, threads, _ = tile
    blocks = _RESIDENT_ELEMENTS / (t1 * t2) if unit.is_matrix else resident_blocks(t1, t2, threads)
    found: NDArray[np.float64] = np.clip(blocks, 1.0, _MOST_RESIDENT)
    return found


def _camped(stride_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How badly rows so far apart share a cache's channels: 0 up to multiples of 64 KiB, 1 at 128, 3 from 256 on."""
    whole = stride_bytes.astype(np.int64)
    found: NDArray[np.float64] = np.minimum((whole & -whole) / 65536.0, 4.0) - 1.0
    return np.maximum(found, 0.0)


def _dram_s(
    cols: Mapping[str, NDArray[np.float64]],
    unit: Machine,
    c: Constants,
    tile: NDArray[np.float64],
    *,
    blocks: NDArray[np.float64],
    resident: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in s of DRAM: of what waves of ``resident`` blocks must read, and of what blocks that drift apart read."""
    t1, t2, _, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    grid_n, grid_m = np.ceil(n / t1), np.ceil(m / t2)
    kz = np.ceil(k / z)
    wave_blocks = np.minimum(resident, blocks)
    # a wave covers a nearly square patch of the output (or several entries)
    wave_n = np.clip(np.sqrt(wave_blocks * t2 / t1), 1.0, grid_n)
    wave_m = np.clip(wave_blocks / wave_n, 1.0, grid_m)
    wave_n = np.clip(wave_blocks / wave_m, 1.0, grid_n)
    entries = np.maximum(wave_blocks / (wave_n * wave_m), 1.0)
    unique, once = cols["read_bytes"] + cols["write_bytes"], _once_bytes(cols, z)
    # blocks of a wave drift apart along k by a share of it; once the steps between them no longer fit L2 at once,
    # each block reads its panels from DRAM by itself
    step_bytes = entries * (wave_n * t1 * cols["b_bytes"] + wave_m * t2 * cols["a_bytes"])
    deep = kz * step_bytes / (c["drift_span"] * unit.l2_bytes)
    whole = c["dram_efficiency"]
    if "left_along_k" not in cols:
        # a convolution's product, whose left operand is gathered, has no layout to tell apart
        entry = cols["a_bytes"] * m * k + cols["b_bytes"] * k * n
        waves = np.maximum(np.ceil(blocks / resident), 1.0)
        spill = c["reload_knee"] * entry / unit.l2_bytes
        again = np.maximum(waves * kz * step_bytes - unique, 0.0) * spill / (1.0 + spill)
        panels = blocks * kz * (t1 * cols["b_bytes"] + t2 * cols["a_bytes"])
        drift = panels / c["drift_efficiency"] * deep**2 / (1.0 + deep**2)
        return (once + again) / (whole * unit.bytes_per_s), drift / unit.bytes_per_s
    # each row of waves reads the right operand anew unless L2 still holds it, each wave of it its rows of the left
    right, left = cols["b_bytes"] * k * n, cols["a_bytes"] * k * np.minimum(wave_m * t2, m)
    spill_right, spill_left = (_spill(c["spill_knee"] * size * entries / unit.l2_bytes) for size in (right, left))
    extra_right = b * right * np.maximum(grid_m / wave_m - 1.0, 0.0) * spill_right
    extra_left = b * cols["a_bytes"] * k * m * np.maximum(grid_n / wave_n - 1.0, 0.0) * spill_left
    # an operand stored along k is read 32 bytes of a row at a time, one stored along n or m in long runs
    again, apart = np.minimum(c["reload_efficiency"], whole), np.minimum(c["drift_efficiency"], whole)
    if not unit.is_pascal_library:
        again, apart = whole, np.minimum(c["drift_efficiency"] * c["fetch_gain"], whole)
    right_k, left_k = cols["right_along_k"] > 0.0, cols["left_along_k"] > 0.0
    memory = once / whole + extra_right / np.where(right_k, again, whole) + extra_left / np.where(left_k, again, whole)
    alone = t1 * cols["b_bytes"] / np.where(right_k, apart, whole) + t2 * cols["a_bytes"] / np.where(
        left_k, apart, whole
    )
    return memory / unit.bytes_per_s, blocks * kz * alone * deep / (1.0 + deep) / unit.bytes_per_s


def _once_bytes(cols: Mapping[str, NDArray[np.float64]], split: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes that DRAM moves if every operand is read once: with a bias, and the parts of a split reduction."""
    output = cols["write_bytes"]
    found: NDArray[np.float64] = cols["read_bytes"] + output + 0.5 * cols["bias"] * output
    return found + np.where(split > 1.0, 2.0 * split * output, 0.0)


def _strip_dram_s(
    cols: Mapping[str, NDArray[np.float64]],
    unit: Machine,
    c: Constants,
    tile: NDArray[np.float64],
    *,
    blocks: NDArray[np.float64],
    resident: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in s of DRAM, and of rows longer than a page, where blocks run in the grid's order, n first.

    A strip of the output, one tile high, reads the whole right operand. Strips that are in flight together share it
    while they are in step; a strip that is in flight in part never is. Blocks drift apart like random walks, by the
    root of the steps. So on a P4 the tile of 128 rows moves half of what that of 64 moves, and is 1.8 times as fast.
    """
    t1, t2, _, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    grid_n, grid_m, kz = np.ceil(n / t1), np.ceil(m / t2), np.ceil(k / z)
    wave_n = np.minimum(np.minimum(resident, blocks), grid_n)
    strips = np.clip(np.floor(resident / wave_n), 1.0, grid_m)
    entries = np.clip(np.floor(resident / (grid_n * grid_m)), 1.0, b)
    step_bytes = entries * (wave_n * t1 * cols["b_bytes"] + strips * t2 * cols["a_bytes"])
    deep = np.sqrt(kz * step_bytes / (c["drift_span"] * unit.l2_bytes))
    apart = deep / (1.0 + deep)
    right = cols["b_bytes"] * k * n
    in_step, alone = grid_m / strips - 1.0, grid_m - 1.0
    again = b * right * _spill(c["spill_knee"] * right * entries / unit.l2_bytes)
    again = again * np.maximum(in_step + apart * (alone - in_step), 0.0)
    # an operand stored along k is read 32 bytes of a row at a time, one stored along n in long runs
    whole = c["dram_efficiency"]
    rows = np.minimum(c["reload_efficiency"] * (k * cols["b_bytes"] / 4096.0) ** -c["row_fade"], whole)
    memory = _once_bytes(cols, z) / whole + again / np.where(cols["right_along_k"] > 0.0, rows, whole)
    pages = (kz * cols["b_bytes"] / _PAGE_BYTES) ** 2
    along_k = t1 * cols["right_along_k"] + t2 * cols["left_along_k"]
    waits = blocks * (kz / 8.0) * along_k * pages / (1.0 + pages) / np.minimum(unit.sm_count, blocks)
    return memory / unit.bytes_per_s, 1e-9 * c["row_ns"] * waits


def _spill(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of re-read bytes that L2 no longer holds, from what passes between two uses over L2's size."""
    share: NDArray[np.float64] = ratio**2 / (1.0 + ratio**2)
    return share


_PARTS = ("compute", "memory", "l2", "shared", "drift")


def join(parts: Mapping[str, NDArray[np.float64]], c: Constants, split_k: NDArray[np.float64]) -> NDArray[np.float64]:
    power = c["norm"]
    largest = np.maximum.reduce([parts[name] for name in _PARTS])
    total = sum((parts[name] / largest) ** power for name in _PARTS)
    joined: NDArray[np.float64] = c["floor_us"] + 1e6 * largest * total ** (1.0 / power)
    return joined + np.where(split_k > 1.0, c["split_us"], 0.0)


def choose(cols: Columns, gpu: GpuSpec, constants: Constants) -> NDArray[np.float64]:
    """The tile that the library chooses: (n, m, threads, split) of each kernel, shape (4, kernels).

    The menu's with the smallest time; of Pascal's products with a bias the rules are known.
    """
    is_pascal = machine(gpu).is_pascal_library
    batched, biased = cols["b"] > 1, cols["bias"] > 0
    chosen = np.empty((4, batched.size))
    for is_batched, has_bias in ((False, False), (False, True), (True, False), (True, True)):
        rows = np.flatnonzero((batched == is_batched) & (biased == has_bias))
        part = {name: column[rows] for name, column in cols.items()}
        if has_bias and not is_batched and is_pascal:
            chosen[:, rows] = choose_biased(part, gpu)
            continue
        split = not is_batched and gpu.vendor == "NVIDIA"
        tiles = fp32_tiles(gpu, batched=is_batched, fused_bias=has_bias)
        menu = candidates(tiles, split=split, splits=DEEP_SPLITS)
        chosen[:, rows] = choose_from(menu, part, gpu, constants)
    return chosen


SPLIT_BLOCKS = 6.0
"""Blocks an SM up to which reductions are split."""


def choose_from(
    menu: NDArray[np.float64], cols: Columns, gpu: GpuSpec, constants: Constants, *, split_blocks: float = SPLIT_BLOCKS
) -> NDArray[np.float64]:
    """The best of ``menu``, shape (4, candidates), for each kernel: shape (4, kernels). ``split_blocks``: blocks an SM
    that a split may make. A column "overhead", where there is one: pipe time over that of a product."""
    unit = machine(gpu)

    def cost(part: Mapping[str, NDArray[np.float64]], tile: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = times(part, unit, constants, tile)
        if "overhead" in part:
            parts["compute"] = parts["compute"] * part["overhead"]
        # a split is there to fill the machine, and each part keeps a useful depth
        useless = (tile[3] > 1) & ((parts["blocks"] > split_blocks * unit.sm_count) | (parts["kz"] < 64))
        return np.where(useless, np.inf, join(parts, constants, tile[3]))

    return cheapest(menu, cols, cost, chunk=_CHUNK)


def pin(cols: Columns, gpu: GpuSpec, constants: Constants) -> dict[str, Column]:
    """Columns with the chosen tile in them."""
    return with_tile(cols, choose(cols, gpu, constants))


def _pinned(cols: Columns, gpu: GpuSpec, constants: Constants) -> NDArray[np.float64]:
    pinned = pinned_tile(cols)
    return choose(cols, gpu, constants) if pinned is None else pinned


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline: FLOPs at the peak of the pipe, unique bytes at the peak of DRAM, whichever takes longer."""
    unit = machine(gpu)
    compute = cols["flops"] / unit.flops_per_s
    memory = (cols["read_bytes"] + cols["write_bytes"]) / unit.bytes_per_s
    return 1e6 * np.maximum(compute, memory)


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer; ``cols`` may carry a pinned tile."""
    unit = machine(gpu)
    tile = _pinned(cols, gpu, constants)
    vector = gemv.is_vector(cols, gpu)
    tile = np.where(vector, gemv.tiles(cols), tile)
    parts = times(cols, unit, constants, tile)
    latency = join(parts, constants, tile[3])
    if vector.any():
        streams = gemv.stream_s(cols, gpu, constants, parts["blocks"])
        streamed = constants["floor_us"] + p_norm((1e6 * streams[0], 1e6 * streams[1]), constants["norm"])
        latency = np.where(vector, streamed, latency)
        parts = parts | {name: np.where(vector, 0.0, parts[name]) for name in ("compute", "shared", "drift")}
        parts["memory"], parts["l2"] = (
            np.where(vector, stream, parts[name]) for name, stream in zip(("memory", "l2"), streams, strict=True)
        )
    return LawResult(
        latency_us=latency,
        ideal_us=ideal_us(cols, gpu),
        parts_us={
            "compute": 1e6 * parts["compute"],
            "memory": 1e6 * parts["memory"],
            "l2": 1e6 * parts["l2"],
            "shared": 1e6 * parts["shared"],
            "drift": 1e6 * parts["drift"],
            "launch": np.full(latency.shape, constants["floor_us"]),
        },
        tile={"n": tile[0], "m": tile[1], "threads": tile[2], "split_k": tile[3]},
        tile_count=parts["blocks"],
        wave_count=np.maximum(np.ceil(parts["blocks"] / (unit.sm_count * parts["occupancy"])), 1.0),
        doubt_log_sd=np.where(vector, gemv.DOUBT_LOG_SD, doubt(unit, parts["level"], 1e6 * parts["compute"] / latency)),
        unmeasured=vector,
    )


def doubt(unit: Machine, level: Column, compute_share: Column) -> Column:
    """Standard deviation (log) of a time from the energy of a process and the issue rate that no measured GPU shows.

    A clock under the power limit follows the energy; one that is held does not: its slope, as a share of the one far
    below the limit, is 1 - level^20, from the smooth minimum of ``clock_level``.
    """
    halvings = 0.0 if unit.is_measured_7nm else abs(np.log2(process_energy(unit.process_nm)))
    energy = ENERGY_LOG_SD_PER_HALVING * halvings * (1.0 - level**_LIMIT_SHARPNESS) / (1.0 + ENERGY_EXPONENT)
    issue = ISSUE_LOG_SD if unit.single_issue else 0.0
    found: Column = np.hypot(energy, issue) * np.minimum(compute_share, 1.0)
    return found


def alignment(sizes: Column) -> Column:
    """Log2 of the largest power of two that divides a size, at most 12: vector loads want 4, strides of 4 KiB clash."""
    whole = sizes.astype(np.int64)
    found: Column = np.minimum(np.log2((whole & -whole).astype(np.float64)), 12.0)
    return found


def _fill(sizes: Column, tile: Column | float) -> Column:
    """Share of the tiles' elements that are in the output."""
    found: Column = sizes / (np.ceil(sizes / tile) * tile)
    return found


def features(cols: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Dimensionless features of the residual, in the order of ``FEATURES``, shape (kernels, features)."""
    unit = machine(gpu)
    tile = np.stack([result.tile["n"], result.tile["m"], result.tile["threads"], result.tile["split_k"]])
    parts = times(cols, unit, constants, tile)
    t1, t2, _, z = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    pipe = parts["compute"]
    blocks_per_sm = parts["blocks"] / unit.sm_count
    unique = cols["read_bytes"] + cols["write_bytes"]
    values = (
        np.log(parts["memory"] / pipe),
        np.log(parts["l2"] / pipe),
        np.log(parts["shared"] / pipe),
        np.log(parts["drift"] / pipe + 1e-6),
        np.log(constants["floor_us"] / result.latency_us),
        np.log(t1),
        np.log(t2),
        np.log(z),
        np.log(blocks_per_sm),
        blocks_per_sm / np.ceil(blocks_per_sm),
        np.log(blocks_per_sm / parts["occupancy"]),
        _fill(n, t1),
        _fill(m, t2),
        np.log(parts["kz"]),
        np.log(parts["entry"] / unit.l2_bytes),
        np.log(unique / unit.l2_bytes),
        np.log(cols["flops"] / unique / (unit.flops_per_s / unit.bytes_per_s)),
        np.log(b),
        np.log(m),
        np.log(n),
        np.log(k),
        alignment(m),
        alignment(n),
        alignment(k),
        _fill(n, 128.0),
        _fill(m, 128.0),
        _fill(n, 64.0),
        _fill(m, 64.0),
        (b > 1).astype(np.float64),
        cols["bias"],
        np.log(result.latency_us / 1e3),
    )
    return np.stack(values, axis=1).astype(np.float32)


GEMM = Law(
    kernel_class="gemm",
    constants=CONSTANTS,
    feature_names=FEATURES,
    columns=columns,
    estimate=estimate,
    features=features,
    pin=pin,
)
