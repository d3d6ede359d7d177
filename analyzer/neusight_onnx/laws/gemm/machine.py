"""What the law of matrix products takes from a GPU: its library's FP32 pipe, and the clock that its power leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.laws.base import Column, Constants
from neusight_onnx.laws.clock import ENERGY_EXPONENT, energy_at, power_level
from neusight_onnx.laws.gemm.constants import CONSTANTS

# energy of an operation by process (nm) against 16 nm, at one clock. 12 nm is TSMC's 16 nm with another name for its
# libraries; 7 nm and 5 nm from TSMC's stated power savings (halved twice, taken at three quarters of their word); 8 nm
# is Samsung's 10 nm class: A10 sustains about 14 TFLOP/s of FP32 at 150 W. On matrix units the fit of ``laws/clock.py``
# finds 1.02 times this in 8 nm (RTX 3090 and A6000) and .97 in 12 nm (T4 and V100)
_PROCESS_NM = np.array([3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 12.0, 16.0, 28.0])
_PROCESS_ENERGY = np.array([0.28, 0.34, 0.36, 0.47, 0.50, 0.65, 1.0, 1.0, 1.8])
# matrix cores spend less per FLOP than vector lanes (no operand fetch per FMA): MI100 holds its clock at 300 W
_MATRIX_ENERGY = 0.5
GA100_CAPABILITY, GA100_NM = 8.0, 7.0
"""NVIDIA's die of compute capability 8.0, whose energy is a constant of its own: in another process (``--set``) it has
as much more or less as the process says."""
ENERGY_LOG_SD_PER_HALVING = 0.2
"""How well the energy of another process is known (log), for each time it halves against the measured 16/12 nm: the
foundry's figures are for a core of its own, and a power-limited GPU of 7 or 5 nm was not measured."""
LIMIT_SHARPNESS = 20.0
"""Power of the smooth minimum of the clocks that the power limit and the maker allow."""
ISSUE_LOG_SD = 0.05
"""How well ``issue_overhead`` is known (log): public SGEMM figures of H100, RTX 3090 and RTX A6000 lie within 5 %."""


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
    is_volta_library: bool
    single_issue: bool
    schedulers: float
    pairs_blocks: bool
    opens_pages: bool
    process_nm: float
    energy_scale: float
    is_ga100: bool
    arithmetic_w: float


def machine(gpu: GpuSpec) -> Machine:
    """The FP32 view of a GPU: AMD's matrix cores where it has them, else the vector lanes."""
    capability = gpu.compute_capability
    matrix_flops_per_s = gpu.fp32_matrix_flops_per_s
    is_matrix = matrix_flops_per_s is not None
    is_ga100 = capability == GA100_CAPABILITY
    return Machine(
        flops_per_s=gpu.peak_flops_per_s["fp32"] if matrix_flops_per_s is None else matrix_flops_per_s,
        sm_count=float(gpu.sm_count),
        clock_hz=gpu.clock_hz,
        bytes_per_s=gpu.memory_bytes_per_s,
        l2_bytes=float(gpu.l2_bytes),
        is_matrix=is_matrix,
        is_pascal_library=capability is not None and capability < 7.0,
        is_volta_library=capability is not None and 7.0 <= capability < 8.0,
        # Pascal's 128 lanes are fed by dual issue; 64-lane SMs issue an FMA every second clock
        single_issue=capability is not None and capability >= 7.0 and gpu.fp32_lanes_per_sm >= 128,
        # of an SM: a P100's has two (white paper), all others' four
        schedulers=2.0 if capability == 6.0 else 4.0,
        pairs_blocks=capability is not None and capability >= 7.0,
        # Pascal's L2 asks DRAM for 32 bytes; GDDR has few banks to open pages in, HBM many
        opens_pages=capability is not None and capability < 7.0 and gpu.memory_type.upper().startswith("GDDR"),
        process_nm=gpu.process_nm,
        energy_scale=process_energy(gpu.process_nm)
        * (_MATRIX_ENERGY if is_matrix else 1.0)
        / (process_energy(GA100_NM) if is_ga100 else 1.0),
        is_ga100=is_ga100,
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
    return power_level(_budget_share(unit, constants, pipe_share, tile_energy), sharpness=LIMIT_SHARPNESS)


def _budget_share(
    unit: Machine, constants: Constants, pipe_share: NDArray[np.float64], tile_energy: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Power that is left for arithmetic over what it takes at the boost clock."""
    pj = constants["energy_pj"] * (constants["energy_7nm"] if unit.is_ga100 else 1.0) * unit.energy_scale
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


def doubt(unit: Machine, level: Column, compute_share: Column) -> Column:
    """Standard deviation (log) of a time from the energy of a process and the issue rate that no measured GPU shows.

    A clock under the power limit follows the energy; one that is held does not: its slope, as a share of the one far
    below the limit, is 1 - level^20, from the smooth minimum of ``clock_level``.
    """
    halvings = abs(np.log2(unit.energy_scale if unit.is_ga100 else process_energy(unit.process_nm)))
    energy = ENERGY_LOG_SD_PER_HALVING * halvings * (1.0 - level**LIMIT_SHARPNESS) / (1.0 + ENERGY_EXPONENT)
    issue = ISSUE_LOG_SD if unit.single_issue else 0.0
    found: Column = np.hypot(energy, issue) * np.minimum(compute_share, 1.0)
    return found
