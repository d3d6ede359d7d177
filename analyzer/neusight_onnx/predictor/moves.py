"""What a compiler's kernel takes for the places that it reads from: lookups and reorderings, fused or by themselves.

A loop over elements that a compiler writes streams as pointwise kernels do; what its accesses take beside (sectors
that are read for a part of them, strided reads) stays, whatever else it computes. So::

    T = T(pointwise kernel of its operands) + sum of (T(move) - T(plain copy of as many bytes))

the moves and copies by the analytic law, whose interval that part of the kernel's time keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from typing import TypeGuard

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import (
    GENERATED,
    Elementwise,
    GatherScatter,
    Kernel,
    Move,
    Movement,
    Normalization,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.predictor.estimates import analytic_answer
from neusight_onnx.predictor.prediction import Prediction

NEGLIGIBLE = 0.01
"""Share of a move's time beyond a copy's up to which it is a copy."""


def has_moves(kernel: Kernel) -> TypeGuard[Move | Elementwise | Softmax | Normalization | Reduction]:
    """Whether a kernel is a loop of a compiler's that finds elements at other places than their own."""
    if isinstance(kernel, Elementwise | Softmax | Normalization | Reduction):
        return bool(kernel.moves)
    return isinstance(kernel, Movement | GatherScatter) and kernel.library == GENERATED


def without_moves(kernel: Move | Elementwise | Softmax | Normalization | Reduction) -> Kernel:
    """The kernel that streams the same operands in the order of its elements."""
    if isinstance(kernel, Elementwise | Softmax | Normalization | Reduction):
        return replace(kernel, moves=())
    output = _of_bytes(kernel, kernel.write_bytes)
    inputs = [_of_bytes(kernel, kernel.read_bytes)] if kernel.read_bytes else []
    if isinstance(kernel, GatherScatter):
        indices = TensorSpec(dtype=kernel.index_dtype, shape=(kernel.index_count,))
        inputs = [_of_bytes(kernel, kernel.read_bytes - indices.byte_count), indices]
    return Elementwise(operations=(kernel.operation,), inputs=tuple(inputs), output=output, generated=True)


def _of_bytes(kernel: Move, byte_count: int) -> TensorSpec:
    return TensorSpec(dtype=kernel.dtype, shape=(byte_count * 8 // kernel.dtype.bits,))


def with_moves(kernels: Sequence[Kernel], streamed: Sequence[Prediction], gpu: GpuSpec) -> list[Prediction]:
    """Predictions of kernels that have moves from those of ``without_moves``."""
    moves = [_moves_of(kernel) for kernel in kernels]
    distinct = list(dict.fromkeys(move for own in moves for move in own))
    moved = analytic_answer(distinct, gpu).latency_us.tolist()
    copied = analytic_answer([_copy_of(move) for move in distinct], gpu).latency_us.tolist()
    times = {move: (of_move, of_copy) for move, of_move, of_copy in zip(distinct, moved, copied, strict=True)}
    return [
        _with_excess(found, [_share_of(kernel, move, *times[move]) for move in own])
        for kernel, found, own in zip(kernels, streamed, moves, strict=True)
    ]


def _moves_of(kernel: Kernel) -> tuple[Move, ...]:
    if isinstance(kernel, Movement | GatherScatter):
        return (kernel,)
    return kernel.moves if isinstance(kernel, Elementwise | Softmax | Normalization | Reduction) else ()


def _copy_of(move: Move) -> Movement:
    elements = move.write_bytes * 8 // move.dtype.bits
    return Movement(
        operation="copy", dtype=move.dtype, shape=(elements,), read=move.read_bytes, written=move.write_bytes
    )


def _share_of(kernel: Kernel, move: Move, moved_us: float, copied_us: float) -> tuple[float, float]:
    """(time of a move, of that what a copy doesn't take) in a kernel, which may want a part of its result only."""
    match kernel:
        case Elementwise():
            wanted = kernel.output.element_count
        case Reduction():
            wanted = kernel.outputs * kernel.reduced
        case Softmax() | Normalization():
            wanted = kernel.rows * kernel.cols
        case _:
            return moved_us, max(moved_us - copied_us, 0.0)
    share = min(1.0, wanted / max(move.write_bytes * 8 // move.dtype.bits, 1))
    return share * moved_us, share * max(moved_us - copied_us, 0.0)


def _with_excess(found: Prediction, shares: Sequence[tuple[float, float]]) -> Prediction:
    from neusight_onnx.laws.analytic.estimate import HALF_WIDTH_LOG, LEVEL_SHARE

    irregular = [(moved, excess) for moved, excess in shares if excess > NEGLIGIBLE * moved]
    if not irregular:
        return found
    excess_us = sum(excess for _, excess in irregular)
    latency_us = found.latency_us + excess_us
    share = min(1.0, sum(moved for moved, _ in irregular) / latency_us)
    down, up = log(found.latency_us / found.low_us), log(found.high_us / found.latency_us)
    down += share * max(HALF_WIDTH_LOG - down, 0.0)
    up += share * max(HALF_WIDTH_LOG - up, 0.0)
    is_analytic = excess_us > found.latency_us
    return replace(
        found,
        latency_us=latency_us,
        low_us=latency_us * exp(-down),
        high_us=latency_us * exp(up),
        utilization=found.utilization * found.latency_us / latency_us,
        level_share=found.level_share + share * (LEVEL_SHARE - found.level_share),
        method="analytic" if is_analytic else found.method,
        predictor="analytic" if is_analytic else found.predictor,
    )
