"""Sorting and selecting: how many results there are is often known only afterwards (costed at the bound)."""

from __future__ import annotations

from math import prod

from neusight_onnx.kernels import Sort
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


def _written(context: NodeContext) -> int:
    return sum(context.out(index).byte_count for index in range(len(context.outputs)) if context.has_output(index))


@lowers("TopK", gives="sort")
def top_k(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    axis = context.integer("axis", -1) % max(len(shape), 1)
    cols = shape[axis] if shape else 1
    kernel = Sort(
        operation="topk",
        rows=prod(shape) // cols if cols else 0,
        cols=cols,
        kept=context.out().shape[axis] if shape else 1,
        dtype=context.dtype(0),
        output_bytes=_written(context),
    )
    return Kernels(kernels=(*context.contiguous(0), kernel))


@lowers("NonZero", gives="sort", note="costed at its bound: every element")
def non_zero(context: NodeContext) -> Outcome:
    source, out = context.spec(0), context.out()
    kernel = Sort(
        operation="nonzero",
        rows=1,
        cols=source.element_count,
        kept=out.shape[-1] if out.shape else 0,
        dtype=source.dtype,
        output_bytes=out.byte_count,
    )
    return Kernels(kernels=(kernel,), host_waits=True)


@lowers("Unique", gives="sort", note="costed at its bound: every element differs")
@lowers("Unique", domain="com.microsoft", gives="sort")
def unique(context: NodeContext) -> Outcome:
    source = context.spec(0)
    kernel = Sort(
        operation="unique",
        rows=1,
        cols=source.element_count,
        kept=source.element_count,
        dtype=source.dtype,
        output_bytes=_written(context),
    )
    return Kernels(kernels=(kernel,), host_waits=True)


CANDIDATES_A_BOX = 10
"""Boxes above the score's threshold for each one that is kept, as judged: detectors are trained to give an object so
many. YOLOX's SimOTA takes the 10 best predictions, the assigner of YOLOv8 ``topk=10``, ATSS 9 anchors a level."""


@lowers("NonMaxSuppression", gives="sort", note="costed at its bound, where it isn't told how many boxes are kept")
def suppression(context: NodeContext) -> Outcome:
    """boxes (n, boxes, 4), scores (n, classes, boxes): a problem for each sample and class.

    Which boxes pass the threshold of the scores is known from how many are kept alone, where the user tells that.
    """
    n, classes, boxes = context.shape(1)
    result = context.outputs[0]
    kept = context.out().shape[0]
    threshold = context.number(4) if context.has(4) else 0.0
    filters = threshold is None or threshold > 0.0
    candidates = min(n * classes * boxes, CANDIDATES_A_BOX * kept)
    kernel = Sort(
        operation="nms",
        rows=n * classes,
        cols=boxes,
        kept=kept,
        dtype=context.dtype(1),
        output_bytes=context.out().byte_count,
        candidates=candidates if filters and result is not None and not result.is_bound else None,
    )
    return Kernels(kernels=(kernel,), host_waits=True)
