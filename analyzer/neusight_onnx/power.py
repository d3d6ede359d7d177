"""Whether a card can hold its boost clock: where it can't, what it does depends on how warm it is."""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec

FULL_POWER_W_PER_GFLOPS = {16: 0.0150, 12: 0.0150, 8: 0.0104, 7: 0.0080, 5: 0.0058}
"""W that a GFLOP/s of FP32 peak takes at full load, by process (nm): a card with less can't hold its boost clock.

P4 (0.013) and T4 (0.009) don't hold theirs, V100 (0.018) and P100 (0.026) do. Below 12 nm: 12.8 pJ times the
energies by process of the law of matrix products, over the 0.8 of the limit that arithmetic has: coarser than that law,
which says how far a clock falls.
"""
NVIDIA_7NM_W_PER_GFLOPS = 0.0133
"""The same of NVIDIA's 7 nm die, which that law was fitted to: an A100 with 250 W (0.0128) slows down under long
products, one with 300 W (0.0154) should not."""


def holds_clock(gpu: GpuSpec) -> bool:
    """Whether the power limit allows the boost clock while all FP32 lanes work."""
    nodes = sorted(FULL_POWER_W_PER_GFLOPS)
    need = float(np.interp(gpu.process_nm, nodes, [FULL_POWER_W_PER_GFLOPS[node] for node in nodes]))
    if gpu.compute_capability is not None and gpu.process_nm == 7.0:
        need = NVIDIA_7NM_W_PER_GFLOPS
    return gpu.power_w / (gpu.peak_flops_per_s["fp32"] / 1e9) >= need
