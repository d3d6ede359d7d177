"""The clock of matrix units under the power limit: the energy of a FLOP by instruction and format, and what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.laws.bandwidth import capability
from neusight_onnx.laws.base import Column, Constants
from neusight_onnx.laws.clock import ENERGY_EXPONENT, EXPONENT_SPREAD, below, energy_at, level_under_limit
from neusight_onnx.laws.gemm.machine import process_energy
from neusight_onnx.laws.matrix_units import PIPES, asynchronous, peaks
from neusight_onnx.laws.tensor_gemm.constants import CONSTANTS

# how much less energy a FLOP takes than by mma instructions, which fetch operands from registers: WGMMA reads shared
# memory once for a warp group, tcgen05 keeps accumulators in a memory of its own. From the largest rates of the public
# table of maximum achievable matmul FLOPS (stas00/ml-engineering): A100 271, H100 794, B200 1745 TFLOP/s, and as those
# three GPUs' products on real values say
_WGMMA_ENERGY = 0.80
_TCGEN05_ENERGY = 0.64
# Ada's mma, in TSMC's 4N, takes more than the process lets expect: L40S sustains .52-.55 of 362 TFLOP/s at 350 W
# (SGLang and TensorRT-LLM, products of more than 3 ms), RTX 4090's largest LLM layers agree. It goes with the
# generation, so that another process (``--set``) takes it along
_ADA_MMA_ENERGY = 1.37
# and of later mma (GeForce and workstation Blackwell), of which no kernel was measured, this part of it in log. Of five
# dies with mma four take what their process says (V100 and T4 .97, A100 1, GA102 1.02) and Ada's doesn't, by one card;
# whether the next die in its process does is as likely as not, so the middle
_LATER_MMA_SHARE = 0.5
# and of other formats, per FLOP: FP8 and FP4 as kernels show, INT8 the middle of what FORMAT_LOG_SD says; TF32, of
# which no kernel was measured, as FP8 the other way. Sums in FP16 are taken for no cheaper: the multipliers are the
# same, nothing was measured. So an RTX 3090 at twice its rate has the clock of an RTX A6000, the same die at that rate,
# at the 3090's power
_FORMAT_ENERGY = {
    "fp16": 1.0,
    "bf16": 1.0,
    "fp8": 0.65,
    "int8": 0.45,
    "fp4": 0.3,
    "tf32": 1.0 / 0.65,
    "fp16_accumulate": 1.0,
    "fp32": 1.0 / 0.65**2,
}


def unit_energy(gpu: GpuSpec, pipe: Column) -> Column:
    """Energy of a FLOP against a 16-bit one by mma instructions in 16 nm."""
    used = instructions(gpu)
    unit = 1.0
    if gpu.compute_capability is None or used == "wgmma":
        unit = _WGMMA_ENERGY
    elif used == "tcgen05":
        unit = _TCGEN05_ENERGY
    elif capability(gpu) >= MEASURED_MMA:
        unit = _ADA_MMA_ENERGY ** (1.0 if capability(gpu) <= MEASURED_MMA else _LATER_MMA_SHARE)
    found: Column = np.array([_FORMAT_ENERGY[name] for name in PIPES])[pipe.astype(np.int64)]
    return found * unit * process_energy(gpu.process_nm)


FORMAT_LOG_SD = {"int8": 0.25, "tf32": 0.25}
"""How well the energy is known (log, over 16 bits') of formats that no kernel shows under a power limit.

INT8: what moves halves, what multiplies and adds takes .16 (Horowitz, "Computing's energy problem", ISSCC 2014, 45 nm:
.3 for 2.0 pJ a multiply-add; Dally, "Hardware for deep learning", Hot Chips 2023: IMMA 160 pJ for 1,024 operations,
HMMA 110 for 128; both as remembered): with a tenth to a half of a FLOP's energy in it .47 to .33. FP8 takes .65, more
than halves of all, as kernels show; if its arithmetic takes .55 (a multiplier of 8 bits, a sum in FP32), an INT8 one
that moves as much takes .61 to .46. The middle of .33 and .61 is .45. TF32 moves twice the bits of FP16 and multiplies
as many: 1 to 2. An L40S's INT8 products of 10 to 28 ms, single runs, hold .78 of the peak as shorter ones do: no limit
acts in them."""

LIMIT_SHARPNESS = 12.0
"""Power of the smooth minimum of the clocks that the power limit and the maker allow."""

MEASURED_NM = (4.0, 5.0, 7.0)
MEASURED_MMA = 8.9
ENERGY_LOG_SD = 0.2
"""Processes of the power-limited GPUs whose products in 16 bits were measured on real values, and how well the energy
of others is known (log): 12 nm by operands that are zero, 8 nm by layers with unknown weights, others by foundries.
Of mma in 5 nm Ada's is the last that was measured. GeForce and workstation Blackwell (12.x) lie between it and what
the process says (``_LATER_MMA_SHARE``), of which either end is .16 away."""

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


def format_doubt(
    gpu: GpuSpec, pipe: Column, level: NDArray[np.float64], compute_share: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Standard deviation (log) of a time under the power limit from the energy of formats (``FORMAT_LOG_SD``); that a
    GPU was measured makes it no smaller."""
    energy = np.array([FORMAT_LOG_SD.get(name, 0.0) for name in PIPES])[pipe.astype(np.int64)]
    under = 1.0 - np.minimum(level / top_clock(gpu), 1.0) ** LIMIT_SHARPNESS
    found: NDArray[np.float64] = energy / (1.0 + ENERGY_EXPONENT) * under * np.minimum(compute_share, 1.0)
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
