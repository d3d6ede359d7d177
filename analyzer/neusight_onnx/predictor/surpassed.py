"""Measured GPUs that another one surpasses, on which nothing can be slower.

The residual of a measured GPU is lost on one that differs from it (``similarity``), though it be better in all figures:
where the law is too slow for the measured GPU, the better one would come out slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.similarity import gpu_vector

_KIND = 3
"""First quantities of a GPU's vector: vendor, compute capability, lanes."""
_ROUNDED = 1e-4
"""As manifests round them."""
LEAST_SHARE = 0.8
"""A GPU with a figure below this share of the measured one's isn't compared: no residual is as large."""


def _generation(gpu: GpuSpec) -> tuple[object, ...]:
    """What decides which kernels a library runs, and how an SM executes them."""
    of_sm = gpu.fp32_lanes_per_sm, gpu.warp_size, gpu.max_threads_per_sm
    return gpu.vendor, gpu.architecture, gpu.compute_capability, gpu.memory_type[:4], of_sm


def share_of(gpu: GpuSpec, measured: GpuSpec) -> float:
    """The least of a GPU's figures over a measured one's, at most 1; 0 where their generations differ.

    Rates, capacities, SMs and the power that sustains them, all in total: a GPU with every figure at least as large can
    leave the rest idle, and one with none below a share of them is slower by that share at most.
    """
    peaks, theirs = gpu.peak_flops_per_s, measured.peak_flops_per_s
    if _generation(gpu) != _generation(measured) or not theirs.keys() <= peaks.keys():
        return 0.0
    figures = (
        (gpu.sm_count, measured.sm_count),
        (gpu.clock_hz, measured.clock_hz),
        (gpu.memory_bytes_per_s, measured.memory_bytes_per_s),
        (gpu.l2_bytes, measured.l2_bytes),
        (gpu.power_w, measured.power_w),
        (gpu.shared_memory_bytes_per_sm or 1, measured.shared_memory_bytes_per_sm or 1),
        *((peaks[name], theirs[name]) for name in theirs),
    )
    return min(1.0, *(ours / other for ours, other in figures))


def most_surpassed(
    gpu: GpuSpec, names: Sequence[str], vectors: Sequence[Sequence[float]], spec_of: Callable[[str], GpuSpec | None]
) -> tuple[GpuSpec, float] | None:
    """The measured GPU that a GPU surpasses the most nearly, with its share; None where it comes near none.

    ``names`` and ``vectors`` (``similarity.gpu_vector``) are the measured ones'; ``spec_of`` reads one, and only those
    of the same instruction set and lanes are read.
    """
    kind = gpu_vector(gpu)[:_KIND]
    alike = [
        name for name, vector in zip(names, vectors, strict=False) if np.allclose(vector[:_KIND], kind, atol=_ROUNDED)
    ]
    found = [(share_of(gpu, spec), spec) for name in alike if (spec := spec_of(name)) is not None]
    share, best = max(found, key=lambda pair: pair[0], default=(0.0, gpu))
    return (best, share) if share >= LEAST_SHARE else None
