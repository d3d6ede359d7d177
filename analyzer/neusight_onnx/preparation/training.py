"""What a step of training asks of preparation: the graph in its form for it, and the works of the whole step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neusight_onnx.errors import NotSupportedError, OptionError, shown
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.context import LAZY_VIEWS
from neusight_onnx.lowering.own_kernels import with_own_kernels
from neusight_onnx.lowering.placement import place
from neusight_onnx.precision import Precision
from neusight_onnx.preparation.works import laid_out, works_of
from neusight_onnx.runnable import untrained
from neusight_onnx.runtime import Runtime

if TYPE_CHECKING:
    from neusight_onnx.backward import Trained, Training


def step_of_training(
    fused: InferredGraph, plan: Training, precision: Precision, runtime: Runtime
) -> tuple[InferredGraph, tuple[NodeWork, ...], Trained]:
    """A step of training of a graph in its form for it: the graph with what is assumed, its run forward, all of it."""
    from neusight_onnx.backward import train

    lowered = laid_out(fused, runtime, training=True)
    works = with_own_kernels(place(fused, lowered.works, runtime, known=lowered.known), runtime)
    merged = works_of(fused, runtime, training=True) if runtime.pointwise == "chains" else None
    trained = train(fused, works, lowered.strides, plan, runtime, merged=merged)
    if precision.products is not None:
        from neusight_onnx.lowering.products import with_products

        trained = replace(trained, works=tuple(with_products(trained.works, precision.products, None)))
    executed = works if merged is None else merged
    return replace(fused, assumptions=(*fused.assumptions, *trained.said)), executed, trained


def in_form_for_training(fused: InferredGraph, plan: Training) -> InferredGraph:
    from neusight_onnx.backward import as_trained

    form = as_trained(fused, plan)
    return replace(form.graph, assumptions=(*form.graph.assumptions, *form.said))


def require_training(plan: Training, precision: Precision, runtime: Runtime, include_io: bool) -> None:
    """Raises NotSupportedError for what there is no model of in training, OptionError for what is no plan of it."""
    from neusight_onnx.backward import Training

    if not isinstance(plan, Training):
        raise OptionError(
            f"training is {shown(repr(plan))}; give a plan, such as "
            "neusight_onnx.backward.make_training(optimizer='adamw')"
        )
    if include_io:
        raise NotSupportedError("copies of inputs and outputs are counted at inference only; leave out --include-io")
    if runtime.name not in LAZY_VIEWS or runtime.captured:
        if runtime.captured:
            raise NotSupportedError("training has no model in a CUDA graph; leave out --cuda-graph")
        supported = ", ".join(sorted(LAZY_VIEWS))
        raise NotSupportedError(
            f"training has no model in runtime '{runtime.name}'; supported now: --runtime {supported}"
        )
    if (reason := untrained(precision)) is not None:
        raise NotSupportedError(reason)
