"""The work of every node of a graph, in the kernels that a runtime has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering import Lowered, lower_laid_out
from neusight_onnx.lowering.free_works import FreeWorks
from neusight_onnx.lowering.layouts import order_of
from neusight_onnx.lowering.own_kernels import with_own_kernels
from neusight_onnx.lowering.placement import place
from neusight_onnx.lowering.shape_arithmetic import with_host_arithmetic
from neusight_onnx.lowering.widened_weights import with_widened_weights
from neusight_onnx.preparation.models import AtOtherSizes
from neusight_onnx.runtime import Runtime

if TYPE_CHECKING:
    pass


def laid_out(fused: InferredGraph, runtime: Runtime, *, training: bool, free: FreeWorks | None = None) -> Lowered:
    return lower_laid_out(fused, runtime=runtime, order=order_of(fused, runtime, training=training), free=free)


def works_of(
    fused: InferredGraph,
    runtime: Runtime,
    *,
    training: bool = False,
    others: AtOtherSizes | None = None,
    parsed: InferredGraph | None = None,
) -> tuple[NodeWork, ...]:
    """The work of every node of a graph that was fused for ``runtime``; ``training``: as the run forward of a step.

    ``others``: shared between the sizes of a model. ``parsed``: the graph before anything in it was merged.
    """
    others = AtOtherSizes() if others is None else others
    lowered = laid_out(fused, runtime, training=training, free=others.free)
    works = place(fused, lowered.works, runtime, known=lowered.known, parsed=parsed)
    if runtime.computes_shapes:
        works = with_host_arithmetic(fused, works, others.free, others.folded)
    if runtime.pointwise == "chains":
        from neusight_onnx.fusion.loops import merge_loops

        works = merge_loops(fused, works, lowered.strides, engine=bool(runtime.products))
    return as_launched(works, runtime)


def as_launched(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` by the kernels that ``runtime`` has for them; those that are so already stay."""
    return with_own_kernels(with_widened_weights(works, runtime), runtime)
