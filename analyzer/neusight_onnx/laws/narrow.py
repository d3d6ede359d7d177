"""Elementwise, normalization and softmax kernels in 16 and 8 bits: the FP32 laws at their bytes, and what those hide.

The constants are those of the FP32 predictors. Three things differ, seen in fp16 and bf16 layers of vLLM (A100, H100,
RTX 4090; kernels' own times, so that small ones show, too):

- L2. What was just written is still there for whoever reads it next, and what is written needs DRAM only beyond what
  the L2 can hold back: ``read (1 - exp(-x / knee)) + max(write - share L2, 0)`` bytes go through DRAM, x being what is
  read over the L2 that an SM reaches. FP32 kernels of the training data are mostly too large to show either.
- ``access`` "element": a thread loads one element of 2 bytes at a time, in a loop over its row, as vLLM's kernels did
  until 2024. The SMs then wait for loads in flight: every iteration takes a load's latency, and the rest overlaps it
  badly (a p-norm near the sum; in norms, whose passes wait for each other, the sum). Such kernels take twice what their
  bytes do.
- ``access`` "vector", and RMS normalization: rows are read by up to 1,024 threads, 16 bytes each. PyTorch's layer
  normalization loads 8 bytes a thread in 16 bits, half of FP32's, and overlaps as badly as single elements do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Elementwise, Kernel, Normalization
from neusight_onnx.laws import elementwise, normalization, pytorch_softmax, softmax
from neusight_onnx.laws.bandwidth import (
    capability,
    dram_bytes_per_s,
    is_amd,
    l2_bytes_per_s,
    l2_miss_fraction,
    p_norm,
)
from neusight_onnx.laws.base import Column, Columns, Constants, Law, LawResult
from neusight_onnx.laws.block_wait import SOFTMAX_LONG_SHARPNESS, is_long_softmax
from neusight_onnx.laws.generated import SHARPNESS, row_stream

# Fitted together to the fp16 and bf16 layers of vLLM that take 5 us and more: norms, activations, rotary embeddings and
# additions on A100-80GB and H100 (Vidur), norms and activations on RTX 4090 (LLMServingSim). Mean errors: 6-13 %; of a
# GPU that is left out, with the constants of the two others, 8-16 % (A100, H100). Apart from FP32's on purpose: those
# predictors see no other kernels than FP32's.

LAUNCH_US = 2.2
"""Start and drain of a kernel. The smallest layers take 1-2 us on H100, 1.9-2.2 us on RTX 4090."""

READ_KNEE = 0.25
WRITE_SHARE = 0.40
"""Of the L2 (see the module's docstring). Without them additions are 22 % too slow on H100, norms of a running model
2.4 times on RTX 4090."""

ELEMENT_CYCLES = 925.0
"""An iteration of a loop that loads two operands of 2 bytes, computes SiLU and stores. A lone row of 28 iterations
takes 22 us on A100, 15 us on H100: 1,060 cycles each."""
ELEMENT_PASS_CYCLES = 485.0
"""The same of a pass over a row that is summed or scaled, and of a turn of rotary embeddings. A lone row of 16
iterations takes 8 us on A100, 6 us on H100: 550 cycles each."""
UNROLLED = 4.5
"""How many iterations over a single operand are in flight: GELU's lone row of 10 iterations takes 2 us."""
ROTARY_OPERATIONS = 26.0
"""Integer operations an element of rotary embeddings, which divide their index by the heads' size."""
ELEMENT_SHARPNESS = 1.63
"""Of the soft maximum where loads are short: they overlap badly."""
BLOCK_THREADS = 1024.0
ROTARY_THREADS = 512.0
"""Most threads of a row's block in vLLM's kernels."""
REDUCTION_CYCLES = 1000.0
"""Two block reductions between the passes of a normalization: what is left of a lone row on RTX 4090 (1.9 us)."""
VECTOR_BYTES = 16.0

DOUBT_LOG_SD = 0.12
"""Standard deviation (log) of what these kernels err beyond FP32's: the mean errors above."""

PLAYED_LOG_SD, PLAYED_ELSEWHERE_LOG_SD = 0.15, 0.35
"""What is doubted beyond that of rows of softmax whose kernel was played and not measured: medians of its measured like
in 32 bits are up to 24 % off (``benchmarks/softmax_check.py``). On AMD's GPUs nothing was launched or played, and rows
of fewer, larger blocks take an MI210 up to four times what their bytes do: a judgement."""

_POWER = 8.0
"""Of vectorised kernels, as in the FP32 law of elementwise kernels."""

EXTRA_COLUMNS = ("read", "write", "by_element", "by_vector", "rows", "row_elements", "operands", "element_size")


def _reached_l2_bytes(gpu: GpuSpec) -> float:
    """The L2 that an SM reaches: half of it on A100 and H100, whose halves copy what the other one holds."""
    halves = capability(gpu) in (8.0, 9.0)
    return gpu.l2_bytes / (2.0 if halves else 1.0)


def through_dram(read: Column, write: Column, gpu: GpuSpec) -> Column:
    """Bytes that go through DRAM."""
    missed = read * -np.expm1(-read / (READ_KNEE * max(_reached_l2_bytes(gpu), 1.0)))
    return np.asarray(missed + np.maximum(write - WRITE_SHARE * gpu.l2_bytes, 0.0), dtype=np.float64)


def ideal_us(flops: Column, bytes_: Column, gpu: GpuSpec) -> Column:
    """The physical ceiling: FLOPs at the vector peak, and the bytes that the L2 can't hold at DRAM's peak."""
    compute = flops / gpu.peak_flops_per_s["fp32"]
    memory = np.maximum(bytes_ - gpu.l2_bytes, 0.0) / gpu.memory_bytes_per_s
    return np.maximum(np.maximum(compute, memory), bytes_ / (2.0 * l2_bytes_per_s(gpu))) * 1e6 + 1e-6


def _doubt(base: LawResult) -> Column:
    known = 0.0 if base.doubt_log_sd is None else base.doubt_log_sd
    return np.asarray(np.hypot(known, np.full_like(base.latency_us, DOUBT_LOG_SD)), dtype=np.float64)


def _extra(kernels: Sequence[Kernel]) -> dict[str, Column]:
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Elementwise | Normalization)
        if isinstance(kernel, Elementwise):
            shape = kernel.output.shape
            count, per_row, operands = shape[0] if shape else 1, prod(shape[1:]), len(kernel.inputs)
            size = kernel.output.dtype.bits / 8
        else:
            count, per_row, operands, size = kernel.rows, kernel.cols, 1, kernel.dtype.bits / 8
        wide = isinstance(kernel, Normalization) and kernel.method == "rms"
        rows.append(
            (
                kernel.read_bytes,
                kernel.write_bytes,
                kernel.access == "element",
                kernel.access == "vector" or (wide and not kernel.access),
                count,
                per_row,
                operands,
                size,
            )
        )
    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(EXTRA_COLUMNS))
    return {name: table[:, i] for i, name in enumerate(EXTRA_COLUMNS)}


def _with_extra(columns: Callable[[Sequence[Kernel]], Columns]) -> Callable[[Sequence[Kernel]], Columns]:
    return lambda kernels: {**columns(kernels), **_extra(kernels)}


def _row_waves(columns: Columns, gpu: GpuSpec, threads: NDArray[np.float64]) -> Column:
    """How many times the blocks of ``threads`` that the SMs hold, a row each, go round."""
    resident = gpu.sm_count * np.maximum(gpu.max_threads_per_sm // threads, 1.0)
    return np.asarray(columns["rows"] / resident, dtype=np.float64)


def _row_time_us(columns: Columns, gpu: GpuSpec, threads: NDArray[np.float64], cycles: Column) -> Column:
    """Rows of ``cycles`` each, worked through by as many blocks of ``threads`` as the SMs hold."""
    waves = np.maximum(_row_waves(columns, gpu, threads), 1.0)
    return np.asarray(waves * cycles / gpu.clock_hz * 1e6, dtype=np.float64)


def _whole_waves(waves: Column) -> Column:
    """Waves as they take time: whole ones as long as blocks run in step, which they do less the more there are.

    Norms of 4,096 columns on A100 (216 rows a wave) take 5, 8, 11, 16, 20 us for 1, 2, 3, 4, 5 waves begun.
    """
    begun = np.maximum(np.ceil(waves), 1.0)
    return np.asarray(np.maximum(waves + (begun - waves) / begun, 1.0), dtype=np.float64)


def elementwise_estimate(columns: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law of the module's docstring for elementwise kernels."""
    n, per_row = columns["elements"], columns["row_elements"]
    by_element = columns["by_element"] > 0
    indexed = columns["indexed"] > 0
    base = elementwise.estimate(columns, gpu, constants)
    rate = dram_bytes_per_s(gpu, constants)
    reload = columns["reload_bytes"]
    missed = through_dram(columns["read"], columns["write"], gpu)
    memory = (missed + reload * l2_miss_fraction(columns["reload_distance_bytes"], gpu)) / rate * 1e6
    l2 = (columns["read"] + columns["write"] + reload) / l2_bytes_per_s(gpu) * 1e6
    lanes = gpu.sm_count * elementwise.integer_lanes_per_sm(gpu) * gpu.clock_hz
    compute = np.where(by_element & indexed, n * ROTARY_OPERATIONS / lanes * 1e6, base.parts_us["compute"])

    # pairs of elements a thread in rotary embeddings, one element in the others
    threads = np.clip(np.where(indexed, per_row / 2.0, per_row), 1.0, np.where(indexed, ROTARY_THREADS, BLOCK_THREADS))
    iterations = np.ceil(per_row / np.where(indexed, 2.0, 1.0) / threads)
    cycles = np.where(indexed, ELEMENT_PASS_CYCLES, ELEMENT_CYCLES / np.where(columns["operands"] > 1, 1.0, UNROLLED))
    latency = np.where(by_element, _row_time_us(columns, gpu, threads, iterations * cycles), 0.0)

    parts = (memory, l2, compute, latency)
    total = LAUNCH_US + np.where(by_element, p_norm(parts, ELEMENT_SHARPNESS), p_norm(parts, _POWER))
    ideal = ideal_us(columns["flops"], columns["read"] + columns["write"], gpu)
    return LawResult(
        latency_us=np.maximum(total, ideal),
        ideal_us=ideal,
        parts_us={
            "memory": memory,
            "l2": l2,
            "compute": compute,
            "latency": latency,
            "launch": np.full_like(n, LAUNCH_US),
        },
        tile=base.tile,
        tile_count=base.tile_count,
        wave_count=base.wave_count,
        doubt_log_sd=_doubt(base),
    )


def normalization_estimate(columns: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law of the module's docstring for normalizations: PyTorch's by the FP32 law's latencies, others by rows."""
    base = normalization.estimate(columns, gpu, constants)
    by_element = columns["by_element"] > 0
    blocks = by_element | (columns["by_vector"] > 0)
    two_kernels = columns["two_kernels"] > 0
    per_row = (columns["per_row"] > 0) | two_kernels
    ratio = np.maximum(normalization.reread_ratio(columns, gpu), 1e-9)
    again = columns["body_bytes"] / (1.0 + (constants["reread_half"] / ratio) ** constants["reread_sharpness"])
    again = np.where(per_row, again, 0.0)
    rate = dram_bytes_per_s(gpu, constants)
    memory = (through_dram(columns["read"], columns["write"], gpu) + again) / rate * 1e6
    passes = np.where(per_row, columns["body_bytes"], 0.0)
    l2 = (columns["read"] + columns["write"] + passes) / l2_bytes_per_s(gpu) * 1e6

    vector = np.where(by_element, 1.0, VECTOR_BYTES / columns["element_size"])
    threads = np.clip(np.ceil(columns["cols"] / vector), 32.0, BLOCK_THREADS)
    iterations = np.ceil(columns["cols"] / vector / threads)
    cycles = REDUCTION_CYCLES + 2.0 * iterations * ELEMENT_PASS_CYCLES
    rows_us = _row_time_us(columns, gpu, threads, cycles)
    in_step_us = _whole_waves(_row_waves(columns, gpu, threads)) * cycles / gpu.clock_hz * 1e6
    latency = np.where(blocks, np.where(by_element, in_step_us, rows_us), base.parts_us["latency"])

    generated = columns["generated"] > 0
    size = columns["element_bytes"]
    streamed = row_stream(columns["rows"], columns["cols"], size, columns["read"], columns["write"], gpu)
    missed = through_dram(columns["read"], columns["write"], gpu)
    memory = np.where(generated, (missed + streamed.again_bytes) / rate * 1e6, memory)
    l2 = np.where(generated, streamed.l2_us, l2)
    latency = np.where(generated, streamed.latency_us, latency)

    parts = (memory, l2, base.parts_us["compute"], latency)
    launches = LAUNCH_US * np.where(two_kernels, 3.0, 1.0)
    waits = (by_element | (per_row & ~blocks)) & ~generated
    # a pass over a row begins when the one before has ended in all threads: what DRAM takes comes on top of the L2's
    apart = memory + np.maximum.reduce((l2, base.parts_us["compute"], latency))
    soft = np.where(by_element, apart, p_norm(parts, ELEMENT_SHARPNESS))
    sharp = p_norm(parts, constants["sharpness"])
    sharp = np.where(generated, p_norm(parts, SHARPNESS), sharp)
    ideal = ideal_us(columns["flops"], columns["read"] + columns["write"], gpu)
    return LawResult(
        latency_us=np.maximum(launches + np.where(waits, soft, sharp), ideal),
        ideal_us=ideal,
        parts_us={
            "memory": memory,
            "l2": l2,
            "compute": base.parts_us["compute"],
            "latency": latency,
            "launch": launches,
        },
        tile=base.tile,
        tile_count=base.tile_count,
        wave_count=base.wave_count,
        doubt_log_sd=_doubt(base),
    )


def _softmax_columns(kernels: Sequence[Kernel]) -> Columns:
    """Those of the FP32 law, and of which kernels ``block_wait`` and ``pytorch_softmax`` have the time on the SMs."""
    found = {
        "played": [is_long_softmax(kernel) for kernel in kernels],
        "pytorch": [pytorch_softmax.is_played(kernel) for kernel in kernels],
    }
    return {**softmax.columns(kernels), **{name: np.asarray(of, dtype=np.float64) for name, of in found.items()}}


def softmax_estimate(columns: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The FP32 law of softmax with what the L2 holds back; no softmax in 16 bits was measured.

    The FP32 law's cycles of a block contain what DRAM made the measured ones wait, in twice the bytes. What ONNX
    Runtime's wait in 16 bits, and how that joins the bytes, is ``block_wait``'s, not here.
    """
    base = softmax.estimate(columns, gpu, constants)
    read, write = columns["read_bytes"], columns["write_bytes"]
    rate = dram_bytes_per_s(gpu, constants)
    counted = (read + write) * l2_miss_fraction(read + write, gpu) / rate * 1e6
    memory = np.maximum(base.parts_us["memory"] - counted, 0.0) + through_dram(read, write, gpu) / rate * 1e6
    pytorch = (columns["pytorch"] > 0) & (not is_amd(gpu))  # nothing of these releases was launched there
    played = (columns["played"] > 0) | pytorch
    kept = pytorch & (columns["cols"] <= pytorch_softmax.REGISTER_COLUMNS)
    memory = np.where(kept, through_dram(read, write, gpu) / rate * 1e6, memory)
    doubted = PLAYED_ELSEWHERE_LOG_SD if is_amd(gpu) else PLAYED_LOG_SD
    latency = np.where(played, 0.0, base.parts_us["latency"])
    if pytorch.any():
        latency = np.where(pytorch, pytorch_softmax.rows_us(columns["rows"], columns["cols"], gpu), latency)
    sharpness = np.where(columns["generated"] > 0, SHARPNESS, constants["sharpness"])
    in_passes = pytorch & (columns["cols"] > pytorch_softmax.LONGEST_WARP_ROW)
    sharpness = np.where(in_passes, SOFTMAX_LONG_SHARPNESS, sharpness)
    parts = (memory, base.parts_us["l2"], base.parts_us["compute"], latency)
    total = LAUNCH_US + p_norm(parts, sharpness)
    ideal = ideal_us(columns["flops"], read + write, gpu)
    return LawResult(
        latency_us=np.maximum(total, ideal),
        ideal_us=ideal,
        parts_us={**base.parts_us, "memory": memory, "latency": latency, "launch": np.full_like(read, LAUNCH_US)},
        tile=base.tile,
        tile_count=base.tile_count,
        wave_count=base.wave_count,
        doubt_log_sd=np.hypot(_doubt(base), np.where(played, doubted, 0.0)),
        unmeasured=played,
    )


NARROW_LAWS: Mapping[str, Law] = {
    law.kernel_class: law
    for law in (
        replace(
            elementwise.ELEMENTWISE,
            columns=_with_extra(elementwise.ELEMENTWISE.columns),
            estimate=elementwise_estimate,
        ),
        replace(
            normalization.NORMALIZATION,
            columns=_with_extra(normalization.NORMALIZATION.columns),
            estimate=normalization_estimate,
        ),
        replace(softmax.SOFTMAX, columns=_softmax_columns, estimate=softmax_estimate),
    )
}
"""By kernel class."""
