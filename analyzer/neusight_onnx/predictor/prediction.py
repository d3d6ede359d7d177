"""The time of one kernel on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One kernel on one GPU.

    ``latency_us`` is the time on the GPU (no host time), at least the physical ceiling and above zero; the
    interval holds the truth in ``interval`` of cases. ``utilization`` is ideal time / latency, in (0, 1].
    ``bound``: "compute", "issue", "memory", "l2", "latency", "floor", "pcie", "cpu". ``method``: "learned" (fitted on
    measurements of this kernel class and dtype) or "analytic" (a stated efficiency). ``predictor``: the name in the
    manifest, or "analytic".
    ``level_share``: share of the interval's variance that kernels of its class in a run have in common, 0..1.
    ``in_fp32``: the kernel may multiply TF32, and FP32's is the quicker one.
    """

    latency_us: float
    low_us: float
    high_us: float
    tile: Mapping[str, int] = field(default_factory=dict)
    tile_count: int
    wave_count: int
    utilization: float
    bound: str
    method: str
    predictor: str
    level_share: float
    in_fp32: bool = False
