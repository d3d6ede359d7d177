"""The clock at which kernels of many instructions run where a power limit binds: issuing takes energy, too.

An instruction is taken for an FP32 FMA, two FLOPs of the law of FP32 products, which P4 and T4 ran under their limits:
fetch, operands and result are the same. What is counted (``laws/issue.py``) are mostly integer additions, products and
address arithmetic, which take no less (GPUJoule's measured energies of a lane's instruction on a K40, *as remembered*:
FFMA .05 nJ, IADD .07, AND .06, IMAD .15; scaled to 16 nm and 1.4 GHz its FFMA is 39 pJ, where the law has 31). As for
products, a kernel's clock is the one at which its energy over its time is the limit less idle power
(``laws/clock.py``). No kernel of so many instructions was measured under a limit.
"""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.laws.base import Column
from neusight_onnx.laws.clock import below, energy_at, level_under_limit
from neusight_onnx.laws.gemm.constants import CONSTANTS
from neusight_onnx.laws.gemm.machine import LIMIT_SHARPNESS, machine, process_energy

FLOPS = 2.0
"""Of an FMA."""


def instruction_j(gpu: GpuSpec) -> float:
    """Energy of an instruction at the boost clock, in J a lane."""
    constants = {constant.name: constant.prior for constant in CONSTANTS}
    unit = machine(gpu)
    scale = constants["energy_7nm"] * unit.energy_scale if unit.is_ga100 else process_energy(gpu.process_nm)
    return FLOPS * constants["energy_pj"] * 1e-12 * scale * energy_at(gpu.clock_hz)


def clock_levels(instructions: Column, boost_us: Column, body_us: Column, gpu: GpuSpec, *, sharpness: float) -> Column:
    """Sustained clock over boost clock, in (0, 1], of kernels that issue so many instructions, a lane each.

    ``boost_us``: what goes with the clock takes so long at the boost clock; ``body_us``: bytes, which don't.
    """
    counted = instructions > 0.0
    limit_s = np.where(counted, instructions, 1.0) * instruction_j(gpu) / (gpu.power_w - idle_w(gpu))
    boost_s, body_s = (np.where(counted, 1e-6 * part, 1.0) for part in (boost_us, body_us))
    level = level_under_limit(boost_s, limit_s, (body_s,), norm=sharpness)
    return np.where(counted, below(level, sharpness=LIMIT_SHARPNESS), 1.0)
