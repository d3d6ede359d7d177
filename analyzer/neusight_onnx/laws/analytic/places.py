"""Lookups, scatters, and what moves elements to other places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, prod

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import GatherScatter, Movement
from neusight_onnx.laws.analytic.pipes import vector_flops_per_s
from neusight_onnx.laws.analytic.work import SECTOR_BYTES, VECTOR_BITS, Work
from neusight_onnx.laws.elementwise import index_instructions, index_us, integer_lanes_per_sm
from neusight_onnx.laws.narrow import WRITE_SHARE
from neusight_onnx.laws.resizing import resize_us

GATHER_EFFICIENCY = 0.65
"""Embedding kernels in models take 1.3-3 times what their bytes would at the copy rate. Those that copy 16 bytes at a
time are copies, as far as is measured: on an RTX 4090 33 MB take 10 us, three times DRAM's rate (the rows of that
profile repeat, and what it writes stays in L2)."""
GATHER_ACCESS = {"": 70.0, "element": 125.0, "vector": 10.0}
"""Integer operations an element of lookups. By element: PyTorch's index_select until 2.7 takes 1.9-2.1 clocks of an SM
an element in fp16 (A100, H100), whatever the sizes. 16 bytes at a time: hidden."""
INDEX_OPERATIONS = 70.0
"""Integer operations an element of kernels that compute an offset an element (the elementwise law's constant, of GPUs
before Volta and of AMD); of PyTorch's kernels that divide by sizes without preparing it, on all GPUs."""
PERMUTE_COST = 1.2
STRIDED_PERMUTE_COST = 1.6
"""Copies that permute, against a plain copy: the two before a MatMul in PyTorch's attention (queries keep their
innermost run, keys lose it) take 1.9-2.8 plain copies together."""


def gather_scatter_work(kernel: GatherScatter, gpu: GpuSpec) -> Work:
    element = kernel.dtype.bits / 8
    run_bytes = max(kernel.run, 1) * element
    rounding = ceil(run_bytes / SECTOR_BYTES) * SECTOR_BYTES / run_bytes
    moved = kernel.moved * element
    base = kernel.base.byte_count if kernel.base else 0
    scattered = moved * (1.0 + rounding) + kernel.index_dtype.bytes_of(kernel.index_count)
    lane_rate = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
    operations = 0.0 if kernel.library else GATHER_ACCESS[kernel.access]
    # what one index takes of the first dimension lies together: it is copied
    efficiency = GATHER_EFFICIENCY if kernel.moved > kernel.run and kernel.access != "vector" else 1.0
    if kernel.operation == "embedding":
        # nothing has read the table before; what is written stays in L2 for whoever reads it next
        read = scattered - moved
        written = max(moved - WRITE_SHARE * gpu.l2_bytes, 0.0)
        return Work(
            bytes=(read + written) / efficiency,
            compute_us=kernel.moved * operations / lane_rate * 1e6,
            tile_count=max(1.0, ceil(kernel.moved / 512)),
        )
    return Work(
        bytes=scattered / efficiency + 2.0 * base,
        compute_us=kernel.moved * operations / lane_rate * 1e6,
        working_set=moved * 2.0 + 2.0 * base,
        launches=2 if kernel.base else 1,
        tile_count=max(1.0, ceil(kernel.moved / 512)),
    )


def movement_work(kernel: Movement, gpu: GpuSpec) -> Work:
    elements = prod(kernel.shape)
    written = kernel.written / max(kernel.dtype.bits / 8, 0.125)
    count = max(elements, written)
    lane_rate = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
    cost, compute_us, serial_us = 1.0, 1e6 * kernel.flops / vector_flops_per_s(gpu, kernel.dtype), 0.0
    if kernel.permutation is not None:
        rank = len(kernel.permutation)
        if kernel.permutation != tuple(range(rank)):
            cost = PERMUTE_COST if kernel.permutation[-1] == rank - 1 else STRIDED_PERMUTE_COST
            if not kernel.library:
                instructions = index_instructions(_permuted_dimensions(kernel.shape, kernel.permutation), 2.0)
                compute_us += float(index_us(np.asarray(count), np.asarray(instructions), INDEX_OPERATIONS, gpu))
    elif kernel.operation == "resize" and kernel.taps:
        issued_us, serial_us = resize_us(kernel, gpu)
        compute_us += issued_us
    elif kernel.operation not in ("copy", "cast", "fill"):
        compute_us += 1e6 * count * _place_operations(kernel) / lane_rate
    return Work(
        bytes=float(kernel.read + kernel.written),
        compute_us=compute_us,
        serial_us=serial_us,
        memory_efficiency=1.0 / cost,
        tile_count=max(1.0, ceil(count / 512)),
    )


def _permuted_dimensions(shape: Sequence[int], permutation: Sequence[int]) -> int:
    """Dimensions that are left when those merge which stay neighbours, and those of one element go."""
    axes = [axis for axis in permutation if shape[axis] != 1]
    left = [axis for axis in range(len(shape)) if shape[axis] != 1]
    follows = dict(pairwise(left))
    return max(1, len(axes) - sum(follows.get(a) == b for a, b in pairwise(axes)))


def _place_operations(kernel: Movement) -> float:
    """Integer operations an element for finding its place in the source: once a vector where runs are whole vectors.

    What other libraries' kernels take is not PyTorch's (:mod:`neusight_onnx.laws.issue`).
    """
    if kernel.library:
        return 0.0
    run_bits = kernel.run * kernel.dtype.bits
    return INDEX_OPERATIONS * (kernel.dtype.bits / VECTOR_BITS if run_bits % VECTOR_BITS == 0 else 1.0)
