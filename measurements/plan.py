"""In which order cases are measured, so that whatever time allows for is the most informative part. No torch here.

Cases fall into strata: class and kind of kernel, precision, layout, direction. Inside a stratum the order is greedy
farthest-point: first the case nearest to the middle of its sizes (in log2), then always the one that is farthest from
all that were chosen, so that the space of sizes is covered before anything is repeated nearby. Strata take turns in
proportion to their weights: the i-th choice of a stratum of weight w comes at (i + 1/2) / w. What a file holds already
counts as chosen, so that a run goes on where the last one ended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

from measurements.cases import Case
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    Normalization,
    Pooling,
    Reduction,
    Softmax,
)

WEIGHTS = {"conv": 2.0, "gemm": 1.0, "attention": 1.0}
"""Turns of a stratum by class; others have ``USUAL_WEIGHT``. Convolutions on tensor cores are what public data lack."""
USUAL_WEIGHT = 0.5
TF32_WEIGHT = {"gemm": 2.0, "attention": 2.0}
"""Factor for TF32, of which there are no public kernels at all; of convolutions there are as few in fp16."""
FP32_WEIGHT = {"elementwise": 0.3, "softmax": 0.3, "normalization": 0.3}
"""Factor for FP32 where five GPUs' kernels are public, of the rest there are none."""
BF16_WEIGHT = 0.3
"""Factor for bf16: it runs fp16's kernels at their rate, a few cases show whether that holds."""


def kind(kernel: Kernel) -> str:
    """What a kernel is called among those of its class that behave alike."""
    match kernel:
        case Conv():
            return _kind_of_conv(kernel)
        case Gemm():
            return "linear" if kernel.b_is_weight else "batched" if kernel.batch > 1 else "product"
        case Attention():
            return "decode" if kernel.s == 1 else "causal" if kernel.causal else "full"
        case Elementwise():
            full = sum(spec.shape == kernel.output.shape for spec in kernel.inputs)
            broadcast = " broadcast" if full < len(kernel.inputs) else ""
            return f"{kernel.operations[0]}{' scalar' if len(kernel.inputs) == 1 else ''}{broadcast}"
        case Normalization():
            return kernel.method
        case Reduction():
            return f"{kernel.operation}{' strided' if kernel.inner > 1 else ''}"
        case Pooling() | Movement() | GatherScatter():
            return kernel.operation
        case _:
            return ""


def _kind_of_conv(kernel: Conv) -> str:
    strided = " strided" if any(stride > 1 for stride in kernel.strides) else ""
    if kernel.groups > 1:
        name = "depthwise" if kernel.c == kernel.groups else "grouped"
        return f"{name} {prod(kernel.filter)}{strided}"
    if kernel.c <= 4:
        return "stem"
    taps = prod(kernel.filter)
    return f"{'1x1' if taps == 1 else '3x3' if taps == 9 else 'large'}{strided}"


def stratum(case: Case) -> tuple[str, ...]:
    """What a case has in common with those that it is ordered among."""
    kernel = case.kernel
    direction = kernel.direction if isinstance(kernel, Conv) else ""
    return KERNEL_CLASSES[type(kernel)], kind(kernel), case.precision, case.layout, direction


def weight(name: Sequence[str]) -> float:
    """Turns of a stratum."""
    kernel_class, precision = name[0], name[2]
    factors = {"tf32": TF32_WEIGHT.get(kernel_class, 1.0), "fp32": FP32_WEIGHT.get(kernel_class, 1.0)}
    factor = {**factors, "bf16": BF16_WEIGHT}.get(precision, 1.0)
    return factor * WEIGHTS.get(kernel_class, USUAL_WEIGHT)


def coordinates(kernel: Kernel) -> tuple[float, ...]:
    """Where a kernel lies among those of its stratum: log2 of its sizes."""
    match kernel:
        case Conv():
            groups = kernel.groups
            sizes: tuple[float, ...] = (kernel.n * prod(kernel.out), kernel.c / groups, kernel.k / groups, groups)
        case Gemm():
            sizes = (kernel.batch, kernel.m, kernel.n, kernel.k)
        case Attention():
            sizes = (kernel.b * kernel.h, kernel.h / kernel.g, kernel.s, kernel.t, kernel.d)
        case Softmax() | Normalization():
            sizes = (kernel.rows, kernel.cols)
        case Reduction():
            sizes = (kernel.outputs, kernel.reduced)
        case GatherScatter():
            sizes = (kernel.index_count, kernel.run)
        case _:
            sizes = (kernel.read_bytes, kernel.write_bytes)
    return tuple(log2(max(size, 1.0)) for size in sizes)


def ordered(cases: Sequence[Case], done: Collection[tuple[str, str, str]] = ()) -> list[Case]:
    """The cases that are not ``done``, the most informative ones first; the same order every time."""
    strata: dict[tuple[str, ...], list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.key):
        strata.setdefault(stratum(case), []).append(case)
    turns: list[tuple[float, tuple[str, ...], Case]] = []
    for name, members in sorted(strata.items()):
        chosen = [i for i, case in enumerate(members) if case.key in done]
        points = np.array([coordinates(case.kernel) for case in members], dtype=np.float64)
        for turn, i in enumerate(_farthest_first(points, chosen), start=len(chosen)):
            turns.append(((turn + 0.5) / weight(name), name, members[i]))
    return [case for _, _, case in sorted(turns, key=lambda turn: turn[:2])]


def _farthest_first(points: NDArray[np.float64], chosen: Sequence[int]) -> list[int]:
    """Indices of the points that are not in ``chosen``, each the farthest from all before it."""
    left = np.ones(len(points), dtype=np.bool_)
    left[list(chosen)] = False
    gap = np.full(len(points), np.inf)
    for i in chosen:
        gap = np.minimum(gap, np.linalg.norm(points - points[i], axis=1))
    order: list[int] = []
    while left.any():
        if not order and not chosen:
            middle = np.linalg.norm(points - np.median(points, axis=0), axis=1)
            pick = int(np.argmin(middle))
        else:
            pick = int(np.argmax(np.where(left, gap, -1.0)))
        order.append(pick)
        left[pick] = False
        gap = np.minimum(gap, np.linalg.norm(points - points[pick], axis=1))
    return order
