"""Reductions, cumulative sums and where the largest element is."""

from __future__ import annotations

from math import prod

from neusight_onnx.kernels import Reduction
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.elementwise import alias
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers

REDUCE = {
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceLogSum": "logsum",
    "ReduceLogSumExp": "logsumexp",
    "ReduceMax": "max",
    "ReduceMean": "mean",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceSum": "sum",
    "ReduceSumSquare": "sumsquare",
}


def reduction(context: NodeContext, operation: str, axes: tuple[int, ...]) -> Kernels:
    """``inner``: how many kept elements lie between neighbours along the last reduced axis."""
    shape = context.shape(0)
    rank = len(shape)
    chosen = {axis % rank for axis in axes} if rank else set()
    reduced = prod(size for axis, size in enumerate(shape) if axis in chosen)
    kept = prod(size for axis, size in enumerate(shape) if axis not in chosen)
    last = max((axis for axis in chosen if shape[axis] != 1), default=rank - 1)
    inner = prod(shape[last + 1 :])
    if context.layout(0) is not None and context.runtime == "eager":
        # PyTorch's kernel takes it as it lies, where a compiled one is made for it: so many elements lie between
        # neighbours along the reduced axis that lies innermost
        inner = min((stride for axis in chosen if (stride := context.strides(0)[axis]) and shape[axis] != 1), default=1)
    kernel = Reduction(
        operation=operation,
        outputs=kept,
        reduced=reduced,
        inner=max(inner, 1),
        dtype=context.dtype(0),
        output=context.out(),
    )
    return Kernels(kernels=(kernel,))


@lowers(*REDUCE, gives="reduction")
def reduce(context: NodeContext) -> Outcome:
    axes = reduced_axes(context)
    if axes is None:
        return alias(context, "no axes to reduce")
    return reduction(context, REDUCE[context.node.op_type], axes)


def reduced_axes(context: NodeContext) -> tuple[int, ...] | None:
    """The axes that a Reduce… reduces, as the node says them; None if it reduces none."""
    axes = context.integers("axes")
    if axes is None and context.has(1):
        axes = context.ints(1)
        if axes is None:
            axes = _axes_from_shapes(context)
    if axes:
        return tuple(axes)
    return None if context.integer("noop_with_empty_axes", 0) else tuple(range(len(context.shape(0))))


def _axes_from_shapes(context: NodeContext) -> tuple[int, ...]:
    """The reduced axes where only the shapes tell them: those that are gone, or 1 where they weren't."""
    before, after = context.shape(0), context.out().shape
    if len(before) == len(after):
        return tuple(axis for axis, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    place = len(after) - 1
    gone = []
    for axis in range(len(before) - 1, -1, -1):
        if place >= 0 and before[axis] == after[place]:
            place -= 1
        else:
            gone.append(axis)
    return tuple(gone)


@lowers("ArgMax", "ArgMin", gives="reduction")
def arg(context: NodeContext) -> Outcome:
    return reduction(context, context.node.op_type.lower(), (context.integer("axis", 0),))


@lowers("CumSum", "CumProd", gives="reduction")
def cumulative(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    axes = context.ints(1)
    axis = (axes[0] if axes else -1) % max(len(shape), 1)
    length = shape[axis] if shape else 1
    kernel = Reduction(
        operation=context.node.op_type.lower(),
        outputs=prod(shape) // length if length else 0,
        reduced=length,
        inner=max(prod(shape[axis + 1 :]), 1),
        dtype=context.dtype(0),
        output=context.out(),
    )
    return Kernels(kernels=(kernel,))


@lowers("ReduceSumInteger", domain="com.microsoft", gives="reduction")
def reduce_sum_integer(context: NodeContext) -> Outcome:
    return reduction(context, "sum", context.integers("axes") or tuple(range(len(context.shape(0)))))


@lowers("QLinearReduceMean", domain="com.microsoft", gives="reduction")
def quantised_mean(context: NodeContext) -> Outcome:
    return reduction(context, "mean", context.integers("axes") or tuple(range(len(context.shape(0)))))
