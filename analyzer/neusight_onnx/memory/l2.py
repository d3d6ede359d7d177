"""What L2 holds of a run's weights when the next run begins, as where requests follow each other."""

from __future__ import annotations

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.memory.estimate import RunMemory

SHARPNESS = 6.0
"""How fast weights leave L2 as a run outgrows it. Replayed products lose theirs within a tenth of its size
(``laws.tensor_gemm.memory.RESIDENT_SHARPNESS``); what a run touches is known to a factor of 1.35 (standard deviation):
an allocator may hand out other memory than was just given back. Of a logistic curve with that spread this is the
slope."""


def run_bytes(run: RunMemory) -> int:
    """Bytes of memory that a run touches: what passes through L2 between two uses of a weight.

    Weights but for tables, of which a run looks up rows, and what is alive at the peak: activations, inputs, caches and
    scratch. Memory that is given back is handed out again, so that a run has no more addresses than that.
    """
    return run.touched_weight_bytes + run.found.peak_bytes


def kept_in_l2(run: RunMemory, gpu: GpuSpec) -> float:
    """Share of the weights that a run finds in L2 where the run before left them, 0..1; grows with the L2.

    Replayed products whose weights take turns say how much of an L2 holds such data (NVIDIA L40S, A100, H100, B200:
    ``laws.tensor_gemm.memory``). An AMD GPU's is private to a die of several, and nothing was measured: 0.
    """
    from neusight_onnx.laws.bandwidth import is_amd
    from neusight_onnx.laws.tensor_gemm.memory import l2_bytes_held

    if is_amd(gpu):
        return 0.0
    return float(1.0 / (1.0 + (run_bytes(run) / l2_bytes_held(gpu)) ** SHARPNESS))
