"""Whether a card can hold its boost clock: where it can't, what it does depends on how warm it is."""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec

FULL_POWER_W_PER_GFLOPS = {16: 0.0150, 12: 0.0150, 7: 0.0085}
"""W that a GFLOP/s of FP32 peak takes at full load, by process (nm): a card with less can't hold its boost clock."""


def holds_clock(gpu: GpuSpec) -> bool:
    """Whether the power limit allows the boost clock while all FP32 lanes work."""
    nodes = sorted(FULL_POWER_W_PER_GFLOPS)
    need = float(np.interp(gpu.process_nm, nodes, [FULL_POWER_W_PER_GFLOPS[node] for node in nodes]))
    return gpu.power_w / (gpu.peak_flops_per_s["fp32"] / 1e9) >= need
