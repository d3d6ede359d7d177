"""What a measured GPU says of one that is like it: on a GPU that is no better in any figure, nothing is quicker.

The residual of a measured GPU fades with the distance to it (``similarity``), in whatever direction that lies: where
the law is too slow for the measured GPU, a better one would come out slower for being farther away, and where it is too
quick, a worse one quicker. So a GPU takes no longer than one that has the lower figure of it and of the measured GPU
each (:func:`worse_of`), which is nearer, or is the measured one; no longer than itself with less of the figures that
take it away from the nearest measured one (:func:`lessened`); and no less than a measured GPU that surpasses it, or
less by no more than the share that one lacks (:func:`share_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.gpu.spec import plain_architecture
from neusight_onnx.laws.bandwidth import dram_bytes_per_s, l2_bytes_per_s
from neusight_onnx.laws.gemm.machine import process_energy
from neusight_onnx.similarity import gpu_vector

_KIND = 3
"""First quantities of a GPU's vector: vendor, compute capability, lanes."""
_ROUNDED = 1e-4
"""As manifests round them."""
_LESS = 0.99
"""A figure that is no more than a hundredth above a measured GPU's takes it nowhere."""
LATER_GENERATION = 1.1
"""How much longer a later generation's SM may take for a kernel than the measured one of the same lanes and threads:
its latencies aren't known. A judgement."""
LEAST_SHARE = 0.8
"""A measured GPU with a figure below this share of another's says nothing of it: no residual is as large."""


def _generation(gpu: GpuSpec) -> tuple[object, ...]:
    """What decides which kernels a library runs, and how an SM executes them."""
    of_sm = gpu.fp32_lanes_per_sm, gpu.warp_size, gpu.max_threads_per_sm
    return gpu.vendor, plain_architecture(gpu.architecture), gpu.compute_capability, gpu.memory_type[:3], of_sm


def alike(gpu: GpuSpec, measured: GpuSpec) -> bool:
    """Whether two GPUs are of one generation and multiply the same number formats: they differ in figures alone."""
    return _generation(gpu) == _generation(measured) and _peaks(gpu).keys() == _peaks(measured).keys()


def _peaks(gpu: GpuSpec) -> dict[str, float]:
    """Peak rates by pipe, with that of matrix cores which a file doesn't state."""
    matrix = gpu.fp32_matrix_flops_per_s
    return {**gpu.peak_flops_per_s, **({} if matrix is None else {"fp32_matrix": matrix})}


def _cycles_per_s(gpu: GpuSpec) -> float:
    return gpu.sm_count * gpu.clock_hz


def share_of(gpu: GpuSpec, other: GpuSpec) -> float:
    """The least of a GPU's figures over those of one that is alike, at most 1: on the other nothing is quicker by more
    than that."""
    figures = (
        (gpu.sm_count, other.sm_count),
        (gpu.clock_hz, other.clock_hz),
        (gpu.memory_bytes_per_s, other.memory_bytes_per_s),
        (dram_bytes_per_s(gpu, {}), dram_bytes_per_s(other, {})),
        (gpu.l2_bytes, other.l2_bytes),
        (l2_bytes_per_s(gpu), l2_bytes_per_s(other)),
        (gpu.power_w, other.power_w),
        (process_energy(other.process_nm), process_energy(gpu.process_nm)),
        (gpu.shared_memory_bytes_per_sm or 1, other.shared_memory_bytes_per_sm or 1),
        *((peak, _peaks(other)[pipe]) for pipe, peak in _peaks(gpu).items()),
    )
    return min(1.0, *(ours / theirs for ours, theirs in figures))


def worse_of(gpu: GpuSpec, measured: GpuSpec) -> GpuSpec:
    """A GPU with the lower one of every figure of two that are alike: nothing is slower on either.

    Rates of a pipe and of the L2 are those for an SM and clock. Power is the limit that is stated: faster memory takes
    more of it, but can be run as slowly as the other's.
    """
    source = min(gpu, measured, key=lambda one: one.memory_bytes_per_s)
    sm_count, clock_hz = min(gpu.sm_count, measured.sm_count), min(gpu.clock_hz, measured.clock_hz)

    def lower(ours: float, theirs: float) -> float:
        return sm_count * clock_hz * min(ours / _cycles_per_s(gpu), theirs / _cycles_per_s(measured))

    return replace(
        source,
        name=f"{gpu.name} beside {measured.name}",
        sm_count=sm_count,
        clock_hz=clock_hz,
        inline_ecc=int(gpu.has_inline_ecc or measured.has_inline_ecc),
        l2_bytes=min(gpu.l2_bytes, measured.l2_bytes),
        l2_bytes_per_s=lower(l2_bytes_per_s(gpu), l2_bytes_per_s(measured)),
        power_w=min(gpu.power_w, measured.power_w),
        process_nm=max(gpu.process_nm, measured.process_nm),
        shared_memory_bytes_per_sm=_lower(gpu.shared_memory_bytes_per_sm, measured.shared_memory_bytes_per_sm),
        register_bytes_per_sm=_lower(gpu.register_bytes_per_sm, measured.register_bytes_per_sm),
        peak_flops_per_s={pipe: lower(peak, _peaks(measured)[pipe]) for pipe, peak in _peaks(gpu).items()},
    )


def runs_kernels_of(gpu: GpuSpec, measured: GpuSpec) -> bool:
    """Whether a GPU is of a later generation than a measured one, whose kernels by mma instructions it runs unchanged,
    on SMs of as many lanes and threads: as consumer Blackwell does Ada's."""
    of_sm = (
        (one.vendor, one.fp32_lanes_per_sm, one.warp_size, one.max_threads_per_sm, instructions(one))
        for one in (gpu, measured)
    )
    later = (gpu.compute_capability or 0.0) > (measured.compute_capability or 0.0)
    return later and next(of_sm) == next(of_sm) and instructions(gpu) == "mma"


def before(gpu: GpuSpec, measured: GpuSpec) -> GpuSpec:
    """The GPU with the lower one of every figure, of the measured one's generation (:func:`runs_kernels_of`)."""
    common = _peaks(gpu).keys() & _peaks(measured).keys()
    ours, theirs = (
        replace(one, peak_flops_per_s={pipe: peak for pipe, peak in _peaks(one).items() if pipe in common})
        for one in (gpu, measured)
    )
    return replace(
        worse_of(ours, theirs),
        architecture=measured.architecture,
        compute_capability=measured.compute_capability,
        memory_type=measured.memory_type,
    )


def lessened(gpu: GpuSpec, measured: GpuSpec, nearness: Callable[[GpuSpec], float]) -> list[GpuSpec]:
    """The GPU with less of one figure or several of which it has more than a measured one: nothing is slower on the GPU
    itself. Those that ``nearness`` (``similarity.gpu_weight``) says more of, figure by figure.

    Units and clock are compared as they are, and take the rates that they make along; the size of the L2 for an SM,
    memory's rate and power for an FP32 FLOP/s, as ``similarity.gpu_vector`` does.
    """
    found = [(gpu, nearness(gpu))]
    for lowered in (_fewer_units, _lower_clock, _smaller_l2, _slower_memory, _less_power):
        for other, weight in tuple(found):
            less = lowered(other, measured)
            if less is not None and (nearer := nearness(less)) > weight:
                found.append((less, nearer))
    return [replace(other, name=f"{gpu.name} beside {measured.name}") for other, _ in found[1:]]


def _fewer_units(gpu: GpuSpec, measured: GpuSpec) -> GpuSpec | None:
    share = measured.sm_count / gpu.sm_count
    return replace(_scaled(gpu, share), sm_count=measured.sm_count) if share < _LESS else None


def _lower_clock(gpu: GpuSpec, measured: GpuSpec) -> GpuSpec | None:
    share = measured.clock_hz / gpu.clock_hz
    return replace(_scaled(gpu, share), clock_hz=measured.clock_hz) if share < _LESS else None


def _smaller_l2(gpu: GpuSpec, measured: GpuSpec) -> GpuSpec | None:
    size = measured.l2_bytes * gpu.sm_count // measured.sm_count
    return replace(gpu, l2_bytes=size) if size < _LESS * gpu.l2_bytes else None


def _slower_memory(gpu: GpuSpec, measured: GpuSpec) -> GpuSpec | None:
    """With as much power left for arithmetic: what slower memory leaves of the limit would make products quicker."""
    rate = _arithmetic(gpu, measured) * measured.memory_bytes_per_s
    if rate >= _LESS * gpu.memory_bytes_per_s:
        return None
    return replace(gpu, memory_bytes_per_s=rate, idle_power_w=idle_w(gpu))


def _less_power(gpu: GpuSpec, measured: GpuSpec) -> GpuSpec | None:
    power_w = _arithmetic(gpu, measured) * measured.power_w
    return replace(gpu, power_w=power_w) if power_w < _LESS * gpu.power_w else None


def _arithmetic(gpu: GpuSpec, other: GpuSpec) -> float:
    return gpu.peak_flops_per_s["fp32"] / other.peak_flops_per_s["fp32"]


def _scaled(gpu: GpuSpec, factor: float) -> GpuSpec:
    """A GPU whose rates of arithmetic, and of the L2 where stated, are so many times as high."""
    return replace(
        gpu,
        peak_flops_per_s={pipe: factor * peak for pipe, peak in gpu.peak_flops_per_s.items()},
        l2_bytes_per_s=gpu.l2_bytes_per_s and factor * gpu.l2_bytes_per_s,
    )


def _lower(ours: int | None, theirs: int | None) -> int | None:
    return min((figure for figure in (ours, theirs) if figure is not None), default=None)


def alike_of(
    gpu: GpuSpec, names: Sequence[str], vectors: Sequence[Sequence[float]], spec_of: Callable[[str], GpuSpec | None]
) -> list[GpuSpec]:
    """The measured GPUs that one is alike.

    ``names`` and ``vectors`` (``similarity.gpu_vector``) are the measured ones'; ``spec_of`` reads one, and only those
    of the same instruction set and lanes are read.
    """
    kind = gpu_vector(gpu)[:_KIND]
    close = [
        name for name, vector in zip(names, vectors, strict=False) if np.allclose(vector[:_KIND], kind, atol=_ROUNDED)
    ]
    return [spec for name in close if (spec := spec_of(name)) is not None and alike(gpu, spec)]
