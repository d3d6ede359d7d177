"""Analytic estimates: the work of each kernel, and the time that it takes on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import assert_never

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    HostWork,
    Kernel,
    Movement,
    Normalization,
    Opaque,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    Sort,
    StateSteps,
    Transfer,
)
from neusight_onnx.laws.analytic.pipes import pipe_flops_per_s, vector_flops_per_s
from neusight_onnx.laws.analytic.places import gather_scatter_work, movement_work
from neusight_onnx.laws.analytic.products import attention_work, conv_work, gemm_work, recurrent_work
from neusight_onnx.laws.analytic.rows import pooling_work, reduction_work
from neusight_onnx.laws.analytic.sorting import sort_work
from neusight_onnx.laws.analytic.work import Work
from neusight_onnx.laws.bandwidth import (
    dram_bytes_per_s,
    l2_bytes_per_s,
    l2_miss_fraction,
    p_norm,
    reuse,
    stream_ideal_us,
)
from neusight_onnx.laws.base import Law, LawResult, Reuse
from neusight_onnx.laws.elementwise import ELEMENTWISE
from neusight_onnx.laws.host import PCIE_EFFICIENCY, TRANSFER_US, host_us, link_bytes_per_s
from neusight_onnx.laws.normalization import NORMALIZATION
from neusight_onnx.laws.softmax import SOFTMAX
from neusight_onnx.laws.state_steps import state_steps_us

HALF_WIDTH_LOG = log(2.0)
"""80 % interval of an analytic estimate in log: x/÷ 2. A judgement, no calibration stands behind it."""

LEVEL_SHARE = 0.5
"""Share of that interval's variance that kernels of one class have in common (their stated efficiency); a judgement."""

LAUNCH_US = 2.0
"""As the laws of measured classes: start and drain of a kernel."""

SHARPNESS = 4.0
"""Of the soft maximum: between the additive end (1) and the hard one; GEMM and LayerNorm fits give 4 to 7."""

OPAQUE_EFFICIENCY = 0.10
"""Unknown arithmetic on vector lanes: irregular kernels (FFT butterflies, tree walks) reach 5-20 % of peak."""


def analytic_estimate(kernels: Sequence[Kernel], gpu: GpuSpec) -> LawResult:
    """Estimates kernels of any class and dtype on ``gpu``; entries are in the order of ``kernels``.

    Elementwise, softmax and normalization kernels go through their laws with prior constants. Every time is above
    zero and not below the roofline.
    """
    n = len(kernels)
    latency, ideal = np.zeros(n), np.zeros(n)
    tiles, waves = np.ones(n), np.ones(n)
    parts = {name: np.zeros(n) for name in ("memory", "l2", "compute", "latency", "launch")}
    reused = Reuse(memory_us=np.zeros(n), less=np.ones(n), more=np.ones(n))
    for law, kind in ((ELEMENTWISE, Elementwise), (SOFTMAX, Softmax), (NORMALIZATION, Normalization)):
        rows = [i for i, kernel in enumerate(kernels) if isinstance(kernel, kind)]
        if not rows:
            continue
        result = _by_law(law, [kernels[i] for i in rows], gpu)
        latency[rows], ideal[rows] = result.latency_us, result.ideal_us
        tiles[rows], waves[rows] = result.tile_count, result.wave_count
        _put(reused, rows, result.reuse)
        for name, column in result.parts_us.items():
            parts[name][rows] = column
    dram = dram_bytes_per_s(gpu, {})
    for i, kernel in enumerate(kernels):
        if isinstance(kernel, (Elementwise, Softmax, Normalization)):
            continue
        work = kernel_work(kernel, gpu)
        through = float(work.bytes)
        held = through if work.working_set is None else work.working_set
        miss = float(l2_miss_fraction(np.array([held]), gpu)[0])
        parts["memory"][i] = through * miss / (dram * work.memory_efficiency) * 1e6
        parts["l2"][i] = through / l2_bytes_per_s(gpu) * 1e6
        parts["compute"][i] = work.compute_us
        parts["latency"][i] = work.serial_us
        parts["launch"][i] = work.launches * LAUNCH_US + work.fixed_us
        tiles[i], waves[i] = max(work.tile_count, 1.0), work.waves(gpu)
        ideal[i] = _ideal_us(kernel, gpu)
        terms = tuple(parts[name][i : i + 1] for name in ("memory", "l2", "compute", "latency"))
        latency[i] = max(parts["launch"][i] + float(p_norm(terms, SHARPNESS)[0]), ideal[i])
        if not isinstance(kernel, Transfer) and not _is_embedding(kernel):
            bytes_ = np.array([kernel.read_bytes + kernel.write_bytes], dtype=np.float64)
            rate = dram * work.memory_efficiency
            _put(reused, [i], reuse(bytes_, latency[i : i + 1], parts["launch"][i : i + 1], rate, gpu))
    return LawResult(
        latency_us=np.maximum(latency, reused.memory_us),
        ideal_us=ideal,
        parts_us=parts,
        tile_count=tiles,
        wave_count=waves,
        reuse=reused,
    )


def _put(reused: Reuse, rows: list[int], found: Reuse | None) -> None:
    if found is not None:
        reused.memory_us[rows], reused.less[rows], reused.more[rows] = found.memory_us, found.less, found.more


def _is_embedding(kernel: Kernel) -> bool:
    return isinstance(kernel, GatherScatter) and kernel.operation == "embedding"


def _by_law(law: Law, kernels: Sequence[Kernel], gpu: GpuSpec) -> LawResult:
    priors = {constant.name: constant.prior for constant in law.constants}
    return law.estimate(law.columns(kernels), gpu, priors)


def _ideal_us(kernel: Kernel, gpu: GpuSpec) -> float:
    """Roofline of the pipe that the kernel's arithmetic runs on, DRAM's share of it as for every kernel that streams:
    what the L2 can't hold. Convolutions may save up to 2.25x by Winograd.

    A copy's is PCIe, or shared memory, at its nominal rate.
    """
    flops, peak = float(kernel.flops), gpu.peak_flops_per_s["fp32"]
    match kernel:
        case Gemm():
            peak = pipe_flops_per_s(gpu, kernel.dtype, kernel.accumulator)[0]
        case Conv():
            peak = pipe_flops_per_s(gpu, kernel.dtype, kernel.accumulator)[0]
            flops /= 2.25  # F(2x2, 3x3): 16 multiplications for 36
        case Attention():
            flops, peak = 2.0 * kernel.macs, pipe_flops_per_s(gpu, kernel.dtype)[0]
        case Recurrent():
            peak = pipe_flops_per_s(gpu, kernel.dtype)[0]
        case GatherScatter(operation="embedding"):
            through = kernel.read_bytes + max(kernel.write_bytes - gpu.l2_bytes, 0)
            return max(through / gpu.memory_bytes_per_s * 1e6, 1e-6)
        case Transfer():
            return max(kernel.byte_count / link_bytes_per_s(gpu) * 1e6, 1e-6)
        case _:
            pass
    bytes_ = np.array([kernel.read_bytes + kernel.write_bytes], dtype=np.float64)
    return float(stream_ideal_us(np.array([flops]), bytes_, peak, gpu)[0])


def kernel_work(kernel: Kernel, gpu: GpuSpec) -> Work:
    """What one kernel asks of ``gpu``; classes with a law of their own are charged by their bytes and FLOPs."""
    match kernel:
        case Gemm():
            return gemm_work(kernel, gpu)
        case Conv():
            return conv_work(kernel, gpu)
        case Reduction():
            return reduction_work(kernel, gpu)
        case Pooling():
            return pooling_work(kernel, gpu)
        case Attention():
            return attention_work(kernel, gpu)
        case GatherScatter():
            return gather_scatter_work(kernel, gpu)
        case Movement():
            return movement_work(kernel, gpu)
        case Sort():
            return sort_work(kernel, gpu)
        case Recurrent():
            return recurrent_work(kernel, gpu)
        case Opaque(state_steps=StateSteps() as steps):
            return Work(bytes=kernel.read + kernel.written, serial_us=state_steps_us(steps, gpu))
        case Opaque():
            rate = OPAQUE_EFFICIENCY * vector_flops_per_s(gpu, kernel.dtype)
            return Work(bytes=kernel.read + kernel.written, compute_us=kernel.operation_count / rate * 1e6)
        case Transfer():
            rate = PCIE_EFFICIENCY * link_bytes_per_s(gpu)
            waiting_us = TRANSFER_US if kernel.is_waited_for else 0.0
            return Work(bytes=0.0, serial_us=kernel.byte_count / rate * 1e6, fixed_us=waiting_us)
        case HostWork():
            return Work(bytes=0.0, serial_us=host_us(kernel, gpu))
        case Elementwise() | Softmax() | Normalization():
            rate = vector_flops_per_s(gpu, DataType.FLOAT32)
            return Work(bytes=kernel.read_bytes + kernel.write_bytes, compute_us=kernel.flops / rate * 1e6)
        case _:
            assert_never(kernel)
