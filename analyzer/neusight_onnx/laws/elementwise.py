"""Elementwise kernels: DRAM and L2 streams, arithmetic and index arithmetic compete; the largest wins, softly.

The law, with n output elements (times in us)::

    T = launch + (Td^p + Tl^p + Tc^p + Tb^p)^(1/p)
    Td = (unique bytes that miss L2 + bytes re-read for broadcasting that miss L2) / DRAM rate
    Tl = all bytes / L2 rate
    Tc = n * cost of the operations / FP32 peak
    Tb = n * instructions / issue slots              (broadcasting and where: PyTorch's kernel is not vectorised)
       = n * index operations / integer lanes        (the same before Volta and on AMD)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Elementwise, Kernel, TensorSpec
from neusight_onnx.laws.bandwidth import (
    DRAM_CONSTANTS,
    capability,
    dram_bytes_per_s,
    is_amd,
    l2_bytes_per_s,
    l2_miss_fraction,
    p_norm,
    reuse,
    stream_doubt_log_sd,
    stream_ideal_us,
)
from neusight_onnx.laws.base import Column, Columns, Constant, Constants, Law, LawResult
from neusight_onnx.laws.issue import ISSUE_LANES

OPERATION_COST: dict[str, float] = {
    "exp": 16.0,
    "exp2": 12.0,
    "expm1": 40.0,
    "log": 24.0,
    "log1p": 40.0,
    "sqrt": 16.0,
    "rsqrt": 12.0,
    "reciprocal": 16.0,
    "div": 16.0,
    "mod": 40.0,
    "fmod": 40.0,
    "remainder": 40.0,
    "tanh": 40.0,
    "sigmoid": 36.0,
    "erf": 50.0,
    "gelu": 60.0,
    "gelu_tanh": 56.0,
    "silu": 40.0,
    "mish": 90.0,
    "softplus": 60.0,
    "elu": 44.0,
    "selu": 44.0,
    "celu": 44.0,
    "sin": 60.0,
    "cos": 60.0,
    "tan": 80.0,
    "asin": 50.0,
    "acos": 50.0,
    "atan": 50.0,
    "sinh": 60.0,
    "cosh": 60.0,
    "asinh": 70.0,
    "acosh": 70.0,
    "atanh": 70.0,
    "gelu_backward": 75.0,
    "gelu_tanh_backward": 75.0,
    "silu_backward": 50.0,
    "mish_backward": 110.0,
    "softplus_backward": 30.0,
}
"""FP32 issue slots x 2 (FLOP equivalents) an element. From instruction counts of CUDA's single-precision math (a range
reduction and a polynomial of 8-12 multiply-adds; a special-function instruction runs at a quarter of the lanes' rate).
Upper bounds hold them: tanh and gelu stream at DRAM speed on every measured GPU, the A100 (12.5 FLOP a byte) included,
which allows up to 80. Backward forms: the same functions and the multiply-adds of their derivatives. Others cost
``SIMPLE_COST``."""

SIMPLE_COST = 10.0
"""Load, convert, operate, store and their share of address arithmetic, 5 issue slots; never binding in the data."""

FUSED_COST = 2.0
"""A simple operation between others of a fused kernel: one issue slot."""

POWER_OPERATIONS = frozenset({"pow"})
INDEXED_OPERATIONS = frozenset({"where"})
WIDE_INTEGER_COST = 3.0
"""64-bit integer arithmetic takes about three 32-bit instructions an operation (GPUs have no 64-bit integer lanes)."""

DIMENSION_INSTRUCTIONS, OPERAND_DIMENSION_INSTRUCTIONS = 7.0, 1.0
"""Instructions an element of PyTorch's broadcasting kernel (``elementwise_kernel`` with an ``OffsetCalculator``) for a
dimension of the iteration: a division by multiplying, the remainder, whether it was the last one; and a multiply-add
for each operand, the result among them."""
KERNEL_INSTRUCTIONS, OPERAND_INSTRUCTIONS = 4.0, 5.7
"""The same beside the dimensions: the bound; an address of 64 bits, an access, a conversion for each operand. Counted
in what NVRTC 12.9 makes of that kernel for compute capability 7.5 to 8.9: 51 instructions an element of a sum over
three dimensions, 42 of a copy (16 and 32 bits alike). Uniform registers add a third on 9.0, left out."""

_POWER = 8.0
"""Sharpness of the soft maximum over the competing times; 6 to 10 fit the measured kernels alike."""

CONSTANTS: tuple[Constant, ...] = (
    *DRAM_CONSTANTS,
    Constant(
        name="launch_us",
        prior=2.0,
        prior_log_sd=0.0,
        source="start and drain of a kernel, not fitted: event timing can't tell it from host time. Two trips to DRAM "
        "of 0.3-0.4 us each (400-600 cycles: micro-benchmarks of Jia et al. 2018; one for arguments and code, one for "
        "data) and about 1 us between start and end of an empty kernel, as profilers show it",
    ),
    Constant(
        name="two_stream_nvidia",
        prior=1.0,
        prior_log_sd=0.03,
        source="DRAM rate of one input and one output against two inputs: .96 (P100, T4) to 1.02 (A100)",
    ),
    Constant(
        name="two_stream_amd",
        prior=1.05,
        prior_log_sd=0.05,
        source="the same on AMD: 1.04 (MI100), 1.11 (MI210)",
    ),
    Constant(
        name="power_cost_amd",
        prior=370.0,
        prior_log_sd=0.2,
        source="FLOP equivalents of powf in ROCm: MI100 and MI210 run pow at .63 and .42 of DRAM peak",
    ),
    Constant(
        name="power_scalar_cost_pascal",
        prior=155.0,
        prior_log_sd=0.2,
        source="FLOP equivalents of pow(x, scalar) on Pascal: P100 .65 of DRAM peak against .74 for mul",
    ),
    Constant(
        name="power_cost",
        prior=90.0,
        prior_log_sd=0.3,
        source="FLOP equivalents of powf on NVIDIA else: A100 .873 of DRAM peak against .894 for mul",
    ),
    Constant(
        name="index_operations",
        prior=70.0,
        prior_log_sd=0.3,
        source="integer operations an element of PyTorch's broadcasting kernel on Pascal and AMD: 1.2x slower than "
        "DRAM on P100, hidden behind DRAM on P4; since Volta instructions are counted",
    ),
)

FEATURE_NAMES: tuple[str, ...] = (
    "log_dram_share",
    "log_compute_share",
    "log_l2_share",
    "log_index_share",
    "log_working_set_over_l2",
    "log_tiles_per_sm",
    "log_time_over_launch",
    "streams",
    "log_cost",
    "is_power",
    "scalar_power",
    "log_ridge",
    "log_l2_over_dram",
)


def integer_lanes_per_sm(gpu: GpuSpec) -> float:
    """32-bit integer lanes of an SM: 64 from Volta to Hopper whatever the FP32 lanes, all lanes else.

    NVIDIA's white papers: GV100, TU102, GA100, GA102, AD102 and GH100 have 64 INT32 lanes an SM; Pascal and consumer
    Blackwell share all their lanes between the two.
    """
    version = capability(gpu)
    if is_amd(gpu) or version < 7.0 or version >= 10.0:
        return float(gpu.fp32_lanes_per_sm)
    return min(64.0, float(gpu.fp32_lanes_per_sm))


_WIDE_LANES = ("cdna2", "cdna3", "cdna4")
_FLOAT64_MATRIX_RATES: Mapping[float | str, float] = {8.0: 2.0, 9.0: 2.0, "cdna2": 2.0, "cdna3": 2.0}
"""Compute capabilities and generations whose matrix units multiply FP64 quicker than their lanes, and how much: A100
19.5 for 9.7 TFLOP/s, A30 10.3 for 5.2, H100 SXM 67 for 34, MI210 45.3 for 22.6, MI300X 163.4 for 81.7 (their makers'
data sheets). B200's (40 for 40) and MI355X's (78.6 for 78.6) are no quicker, V100 and MI100 have none. H800 and H20 are
cut to 1 TFLOP/s, which no file says."""


def float64_matrix_flops_per_s(gpu: GpuSpec) -> float:
    """FP64 peak of products: that of matrix units where they are quicker than vector lanes."""
    generation = gpu.amd_generation if is_amd(gpu) else capability(gpu)
    return float64_flops_per_s(gpu) * _FLOAT64_MATRIX_RATES.get(generation, 1.0)


def float64_flops_per_s(gpu: GpuSpec) -> float:
    """FP64 vector peak: half of FP32 on the big dies (P100, V100, A100, H100, B200, CDNA), 1/32 or 1/64 elsewhere.

    CUDA programming guide, throughput of native arithmetic instructions by compute capability. Lanes of CDNA2 and later
    are 64 bits wide (MI210 22.6 TFLOP/s of both formats, MI300X 81.7, MI355X 78.6: AMD's data sheets, whose FP32 counts
    packed instructions).
    """
    fp32 = gpu.peak_flops_per_s["fp32"]
    if is_amd(gpu) and gpu.amd_generation.startswith(_WIDE_LANES):
        return fp32
    if is_amd(gpu):
        return fp32 / 2.0 if gpu.amd_generation.startswith(("cdna", "gcn")) else fp32 / 32.0
    version = capability(gpu)
    if version in (6.0, 7.0, 8.0, 9.0, 10.0):
        return fp32 / 2.0
    return fp32 / 32.0 if version < 8.0 else fp32 / 64.0


def broadcast_reload(kernel: Elementwise) -> tuple[float, float]:
    """(bytes re-read, bytes that pass between two reads) of the broadcast operand that is re-read the most.

    An operand that lacks axis j is read again for every step along j; in between, everything inside j streams by.
    Only its innermost such axis counts: further out the same bytes come back less often. Where that axis has
    nothing inside, the element is still in a register and what is re-read further out is one part in its size.
    """
    output = kernel.output.shape
    n = kernel.output.element_count
    tensors = (*kernel.inputs, kernel.output, *kernel.extra_outputs)
    streamed = sum(spec.dtype.bits / 8 for spec in tensors if spec.element_count == n)
    best = (0.0, 0.0)
    for spec in kernel.inputs:
        shape = (1,) * (len(output) - len(spec.shape)) + spec.shape
        if len(shape) != len(output) or not 1 < spec.element_count < n:
            continue
        if kernel.generated and any(own not in (1, size) for own, size in zip(shape, output, strict=True)):
            continue  # a part of the output, or read through another shape: once
        repeated = [axis for axis, (own, size) in enumerate(zip(shape, output, strict=True)) if own == 1 < size]
        inner = prod(output[repeated[-1] + 1 :]) if repeated else 1
        if inner > 1:
            reread = float(spec.byte_count) * (prod(output[axis] for axis in repeated) - 1)
            best = max(best, (reread, inner * (streamed + spec.dtype.bits / 8)))
    return best


def needs_index_arithmetic(kernel: Elementwise) -> bool:
    """Whether PyTorch takes its unvectorised kernel, which computes an offset for every element and operand.

    A generated kernel divides by constants, which takes a few integer operations: hidden behind its loads. What another
    library's takes isn't this law's (:mod:`neusight_onnx.laws.issue`).
    """
    if kernel.generated or kernel.library:
        return False
    if any(name in INDEXED_OPERATIONS for name in kernel.operations):
        return True
    n = kernel.output.element_count
    return any(1 < spec.element_count < n for spec in kernel.inputs)


def iterated_dimensions(kernel: Elementwise) -> int:
    """Dimensions that PyTorch's iterator goes through, at least 1: neighbours merge unless an operand repeats along one
    of them only (a bias of channels in (n, c, h, w) leaves three: n, c, and h and w together)."""
    output = kernel.output.shape
    operands = [(1,) * (len(output) - len(spec.shape)) + spec.shape for spec in kernel.inputs]
    patterns = [
        tuple(shape[axis] == 1 for shape in operands if len(shape) == len(output))
        for axis, size in enumerate(output)
        if size != 1
    ]
    return max(1, len(patterns) - sum(a == b for a, b in pairwise(patterns)))


def index_instructions(dimensions: float, operands: float) -> float:
    """Instructions an element of PyTorch's kernel that finds each operand's offset; the result is an operand."""
    each = DIMENSION_INSTRUCTIONS + OPERAND_DIMENSION_INSTRUCTIONS * operands
    return dimensions * each + KERNEL_INSTRUCTIONS + OPERAND_INSTRUCTIONS * operands


def operation_cost(kernel: Elementwise) -> float:
    """FLOP equivalents an element of all operations but pow, whose cost differs between GPUs."""
    names = [name for name in kernel.operations if name not in POWER_OPERATIONS]
    if kernel.generated:
        # a library's kernel of one special function is costed without loads and stores beside it, which no measured
        # kernel shows; so is this, or merging would make it slower
        special = any(name in OPERATION_COST for name in names)
        cost = fused_cost(names) + (0.0 if special else SIMPLE_COST - FUSED_COST)
    else:
        cost = sum(OPERATION_COST.get(name, SIMPLE_COST) for name in names)
    wide = kernel.output.dtype in (DataType.INT64, DataType.UINT64)
    return max(cost, SIMPLE_COST) * (WIDE_INTEGER_COST if wide else 1.0)


def fused_cost(operations: Sequence[str]) -> float:
    """FLOP equivalents an element of operations on values that are in registers: no load, no store, no address."""
    return sum(OPERATION_COST.get(name, FUSED_COST) for name in operations)


def columns(kernels: Sequence[Kernel]) -> Columns:
    """Columns of elementwise kernels; bytes are unique unless their name says otherwise."""
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Elementwise)
        n = kernel.output.element_count
        reload, distance = broadcast_reload(kernel)
        powers = sum(name in POWER_OPERATIONS for name in kernel.operations)
        tensors = sum(_is_tensor(spec, n) for spec in kernel.inputs)
        wide = any(spec.dtype is DataType.FLOAT64 for spec in (*kernel.inputs, kernel.output, *kernel.extra_outputs))
        rows.append(
            (
                float(n),
                float(kernel.read_bytes),
                float(kernel.write_bytes),
                float(kernel.flops),
                reload,
                distance,
                operation_cost(kernel),
                float(powers),
                float(powers > 0 and tensors < 2),
                float(needs_index_arithmetic(kernel)),
                float(1 + tensors + len(kernel.extra_outputs)),
                float(wide),
                index_instructions(iterated_dimensions(kernel), 1.0 + len(kernel.inputs)),
            )
        )
    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(COLUMN_NAMES))
    return {name: table[:, index] for index, name in enumerate(COLUMN_NAMES)}


COLUMN_NAMES: tuple[str, ...] = (
    "elements",
    "read_bytes",
    "write_bytes",
    "flops",
    "reload_bytes",
    "reload_distance_bytes",
    "cost",
    "powers",
    "scalar_power",
    "indexed",
    "streams",
    "float64",
    "index_instructions",
)


def _is_tensor(spec: TensorSpec, output_elements: int) -> bool:
    return spec.element_count > 1 or output_elements == 1


def estimate(columns: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law of the module's docstring on one GPU."""
    n = columns["elements"]
    unique = columns["read_bytes"] + columns["write_bytes"]
    reload = columns["reload_bytes"]
    dram = dram_bytes_per_s(gpu, constants)
    two = constants["two_stream_amd" if is_amd(gpu) else "two_stream_nvidia"]
    rate = np.minimum(np.where(columns["streams"] <= 2.0, dram * two, dram), gpu.memory_bytes_per_s)
    missed = unique * l2_miss_fraction(unique, gpu) + reload * l2_miss_fraction(columns["reload_distance_bytes"], gpu)
    memory = missed / rate * 1e6
    l2 = (unique + reload) / l2_bytes_per_s(gpu) * 1e6

    peak = np.where(columns["float64"] > 0, float64_flops_per_s(gpu), gpu.peak_flops_per_s["fp32"])
    cost = columns["cost"] + columns["powers"] * power_cost(columns["scalar_power"], gpu, constants)
    compute = n * cost / peak * 1e6
    index = _index_us(columns, gpu, constants)

    ideal = stream_ideal_us(columns["flops"], unique, gpu.peak_flops_per_s["fp32"], gpu)
    in_l2 = np.maximum(constants["launch_us"] + p_norm((memory, l2, compute, index), _POWER), ideal)
    reused = reuse(unique, in_l2, constants["launch_us"], dram, gpu)
    latency = np.maximum(in_l2, reused.memory_us)
    per_tile = 1024.0 if is_amd(gpu) else 512.0  # four elements for each of 256 (ROCm) or 128 (CUDA) threads
    tiles = np.maximum(np.ceil(n / per_tile), 1.0)
    resident = gpu.sm_count * max(1.0, gpu.max_threads_per_sm / (per_tile / 4.0))
    return LawResult(
        latency_us=latency,
        ideal_us=ideal,
        parts_us={
            "memory": memory,
            "l2": l2,
            "compute": np.maximum(compute, index),
            "launch": np.full_like(n, constants["launch_us"]),
        },
        tile={"elements": np.full_like(n, per_tile)},
        tile_count=tiles,
        wave_count=np.ceil(tiles / resident),
        doubt_log_sd=stream_doubt_log_sd(gpu, memory, l2, latency),
        reuse=reused,
    )


def index_us(elements: Column, instructions: Column, operations: Column | float, gpu: GpuSpec) -> Column:
    """Time of PyTorch's kernel for finding operands' places: ``instructions`` an element where an SM issues 128 lanes'
    a clock, ``operations`` of the integer lanes on older and other GPUs."""
    if is_amd(gpu) or capability(gpu) < 7.0:
        work = np.asarray(operations / integer_lanes_per_sm(gpu), dtype=np.float64)
    else:
        work = instructions / ISSUE_LANES
    return np.asarray(elements * work / (gpu.sm_count * gpu.clock_hz) * 1e6, dtype=np.float64)


def _index_us(columns: Columns, gpu: GpuSpec, constants: Constants) -> Column:
    """Time for finding operands that broadcast."""
    indexed = columns["indexed"]
    n = columns["elements"]
    return index_us(n, indexed * columns["index_instructions"], indexed * constants["index_operations"], gpu)


def power_cost(scalar: Column, gpu: GpuSpec, constants: Constants) -> Column:
    """FLOP equivalents of one general pow; with a scalar exponent Pascal takes a dearer path."""
    if is_amd(gpu):
        return np.full_like(scalar, constants["power_cost_amd"])
    if capability(gpu) < 7.0:
        return np.where(scalar > 0, constants["power_scalar_cost_pascal"], SIMPLE_COST)
    return np.full_like(scalar, constants["power_cost"])


def features(columns: Columns, gpu: GpuSpec, constants: Constants, result: LawResult) -> NDArray[np.float32]:
    """Inputs of the residual model, (n, len(FEATURE_NAMES)); ratios only."""
    body = np.maximum(result.latency_us, 1e-3)
    unique = columns["read_bytes"] + columns["write_bytes"]
    n = columns["elements"]
    index = _index_us(columns, gpu, constants)
    ones = np.ones_like(n)
    table = (
        np.log(result.parts_us["memory"] / body + 1e-3),
        np.log(result.parts_us["compute"] / body + 1e-3),
        np.log(result.parts_us["l2"] / body + 1e-3),
        np.log(index / body + 1e-3),
        np.log(unique / max(gpu.l2_bytes, 1) + 1e-6),
        np.log(result.tile_count / gpu.sm_count),
        np.log(body / constants["launch_us"]),
        columns["streams"],
        np.log(columns["cost"]),
        (columns["powers"] > 0).astype(np.float64),
        columns["scalar_power"],
        ones * np.log(gpu.peak_flops_per_s["fp32"] / gpu.memory_bytes_per_s),
        ones * np.log(l2_bytes_per_s(gpu) / gpu.memory_bytes_per_s),
    )
    return np.stack(table, axis=1).astype(np.float32)


ELEMENTWISE = Law(
    kernel_class="elementwise",
    constants=CONSTANTS,
    feature_names=FEATURE_NAMES,
    columns=columns,
    estimate=estimate,
    features=features,
)
