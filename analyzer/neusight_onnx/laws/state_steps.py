"""How long ONNX Runtime's kernels of linear attention take for the tokens that follow each other in a block.

A block keeps its part of a state in registers and takes one token after the other: loads its key, value and query,
reduces over the state's rows, updates. Most of a token's cycles are waits, so that ``n`` blocks an SM, of which it
holds ``r``, take for a token::

    Tt = ((n i)^p + (a max(1, n / r))^p)^(1/p)

with ``i`` issue slots and ``a`` cycles of a block alone. Both are played from the machine code of onnxruntime-gpu
1.31.1 for compute capability 8.0 (``benchmarks/block_wait.py --only LinearAttention GatedDeltaNet``; 1, 9 and 17
tokens), as those of ``block_wait.py``, with its latency of DRAM that is idle. Nobody measured these kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import StateSteps
from neusight_onnx.laws.block_wait import SHARPNESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Of a token in a block: cycles ``alone`` and ``issue`` slots, how many blocks an SM holds, and the columns of a
    state that a block has (0: all)."""

    alone: float
    issue: float
    resident: int
    columns: int = 0


COLUMNS = Step(alone=2540.0, issue=390.0, resident=3, columns=32)
"""Blocks of 256 threads, states of 64 or 128 rows, the rule without decay or delta, 16 bits (32 bits: 2,480 cycles,
436 slots; 64 rows with both: 2,920 cycles for 3,090)."""
DECAY, DELTA = (240.0, 60.0), (310.0, 115.0)
"""What a decay and a delta add to the cycles and the slots."""
WARPS = Step(alone=1550.0, issue=266.0, resident=4, columns=8)
"""GatedDeltaNet's blocks of 256 threads, a warp a column: decay and delta, 128 rows, 16 bits."""
CHUNK = 64
CHUNKS = Step(alone=22_200.0 / CHUNK, issue=0.0, resident=1, columns=64)
"""GatedDeltaNet's chunks of tokens, of states of (128, 128) in 16 bits: matrix units, which the player doesn't know.
Counted are the 5,547 instructions of the kernel's code, once a chunk, of 16 warps on four schedulers; waits at its 26
barriers and loops are left out. A block takes 161,280 bytes of shared memory."""
STATES_ALONE, STATES_ISSUE, STATES_RESIDENT = 73.0, 8.1, 4
"""A block a state, for each of its rows: 96 of them take 6,970 cycles and 780 slots."""


def state_steps_us(steps: StateSteps, gpu: GpuSpec) -> float:
    """All tokens, us; the slowest SM's."""
    step = _step(steps)
    blocks = steps.states * (ceil(steps.v / step.columns) if step.columns else 1)
    each = max(1.0, blocks / gpu.sm_count)
    waits = step.alone * max(1.0, each / step.resident)
    cycles: float = ((each * step.issue) ** SHARPNESS + waits**SHARPNESS) ** (1 / SHARPNESS)
    tokens = ceil(steps.steps / CHUNK) * CHUNK if steps.spread == "chunks" else steps.steps
    return tokens * cycles / gpu.clock_hz * 1e6


def _step(steps: StateSteps) -> Step:
    if steps.spread in ("warps", "chunks"):
        return WARPS if steps.spread == "warps" else CHUNKS
    if steps.spread == "states":
        return Step(alone=STATES_ALONE * steps.d, issue=STATES_ISSUE * steps.d, resident=STATES_RESIDENT)
    alone = COLUMNS.alone + DECAY[0] * steps.gated + DELTA[0] * steps.delta
    issue = COLUMNS.issue + DECAY[1] * steps.gated + DELTA[1] * steps.delta
    return Step(alone=alone, issue=issue, resident=COLUMNS.resident, columns=COLUMNS.columns)
