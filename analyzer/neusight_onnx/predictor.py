"""Predicts kernels: law x exp(weight x residual). The only module that imports onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One kernel on one GPU.

    ``latency_us`` is the time on the GPU (no host time), at least the physical ceiling and above zero; the
    interval holds the truth in ``interval`` of cases. ``utilization`` is ideal time / latency, in (0, 1].
    ``bound``: "compute", "memory", "l2", "latency", "launch". ``method``: "learned" (fitted on measurements of this
    kernel class and dtype) or "analytic" (a stated efficiency). ``predictor``: the name in the manifest, or "analytic".
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


def predict(kernels: Sequence[Kernel], gpu: GpuSpec) -> tuple[Prediction, ...]:
    """Predicts each kernel, in order; one call of onnxruntime per kernel class, equal kernels predicted once."""
    raise NotImplementedError
