"""From the works of a graph to those of a step of training: forward, loss, backward, optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from neusight_onnx.backward.loss import Loss, loss_of
from neusight_onnx.backward.optimizer import (
    OptimizerMemory,
    is_fused,
    optimizer_memory,
    optimizer_works,
    zeroed_gradients,
)
from neusight_onnx.backward.plan import Training
from neusight_onnx.backward.recompute import Segments, segments_of
from neusight_onnx.backward.steps import Backward, Made, Parameter, Step
from neusight_onnx.backward.walk import backward
from neusight_onnx.graph.model import InferredGraph, made_name
from neusight_onnx.kernels import Elementwise, NodeWork, TensorSpec
from neusight_onnx.runtime import Runtime, as_runtime

LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A step of training. ``works``: all that runs, in order; ``steps``: the run backwards, the loss's first.

    ``held``: gradients are there before the run forward, and are added to.
    """

    plan: Training
    works: tuple[NodeWork, ...]
    steps: tuple[Step, ...]
    parameters: tuple[Parameter, ...]
    losses: tuple[str, ...]
    optimizer: OptimizerMemory
    segments: Segments
    held: bool
    said: tuple[str, ...]

    @property
    def parameter_count(self) -> int:
        return sum(parameter.spec.element_count for parameter in self.parameters)


def train(
    graph: InferredGraph,
    works: Sequence[NodeWork],
    strides: Mapping[str, tuple[int, ...]],
    plan: Training,
    runtime: Runtime | str,
    *,
    merged: Sequence[NodeWork] | None = None,
) -> Trained:
    """``graph`` in its form for training, lowered to ``works``; raises TrainingError where nothing is trained.

    ``merged``: what a compiler makes of the works; it does the same to the run backwards.
    """
    runtime = as_runtime(runtime)
    found = backward(graph, works, strides, plan, runtime)
    specs = {name: _spec(graph, name) for name in found.losses}
    losses = {name: loss_of(plan.loss, spec) for name, spec in specs.items()}
    start = _start(found, losses, specs)
    repeats = plan.grad_accumulation
    steps = (start, *found.steps)
    behind = [_loss_work(name, losses[name], specs[name]) for name in found.losses if losses[name].forward]
    segments = segments_of(graph, works, plan.recompute).reached(step.work.node for step in steps)
    forward = works if merged is None else merged
    run = [*forward, *behind, *_run_backwards(steps, forward, segments, graph, fused=merged is not None)]
    if repeats > 1:
        run = [replace(work, count=work.count * repeats) for work in run]
    # zeros stay in memory, and what is there is added to
    zeroed = plan.optimizer != "none" and not runtime.frees_gradients
    additions = repeats if plan.gradients_held or zeroed else repeats - 1
    if additions:
        run += [_addition(parameter, additions) for parameter in found.parameters]
    run += optimizer_works(plan.optimizer, found.parameters, foreach=runtime.foreach_optimizer)
    if zeroed:
        run += zeroed_gradients(found.parameters)
    return Trained(
        plan=plan,
        works=tuple(run),
        steps=steps,
        parameters=found.parameters,
        losses=found.losses,
        optimizer=optimizer_memory(plan.optimizer, found.parameters, foreach=runtime.foreach_optimizer),
        segments=segments,
        held=additions > 0,
        said=(*found.said, *segments.said, *_said(plan, found, runtime, zeroed=zeroed, merged=merged is not None)),
    )


def _run_backwards(
    steps: Sequence[Step], works: Sequence[NodeWork], segments: Segments, graph: InferredGraph, *, fused: bool
) -> Iterator[NodeWork]:
    """The works of the steps; before the first of a segment, that segment's run forward."""
    again: list[list[NodeWork]] = [[] for _ in segments.all]
    for work in works:
        place = segments.place.get(work.node)
        if place is not None and (work.kernels or work.host_operation):
            again[place].append(replace(work, phase="backward"))
    begun: set[int] = set()

    def ahead(step: Step) -> Sequence[NodeWork]:
        place = segments.place.get(step.work.node)
        if place is None or place in begun:
            return ()
        begun.add(place)
        return again[place]

    if fused:
        from neusight_onnx.backward.fused import fused_backward

        yield from fused_backward(steps, graph, ahead)
        return
    for step in steps:
        yield from ahead(step)
        if step.work.op_type != LOSS or step.work.kernels:
            yield step.work


def _spec(graph: InferredGraph, name: str) -> TensorSpec:
    value = graph.values[name]
    assert value.shape is not None, "what has no shape has no gradient"
    assert value.dtype is not None, "what has no type has no gradient"
    return TensorSpec(dtype=value.dtype, shape=value.shape)


def _loss_work(name: str, loss: Loss, spec: TensorSpec) -> NodeWork:
    return NodeWork(node=made_name(LOSS, ""), op_type=LOSS, origins=(), kernels=loss.forward, host_operation=True)


def _start(found: Backward, losses: Mapping[str, Loss], specs: Mapping[str, TensorSpec]) -> Step:
    """Where gradients start: the losses' own, one step for all results."""
    kernels = tuple(kernel for name in found.losses for kernel in losses[name].backward)
    return Step(
        work=NodeWork(
            node=made_name(LOSS, ""),
            op_type=LOSS,
            origins=(),
            kernels=kernels,
            free=None if kernels else "the gradient of the results is there already",
            host_operation=bool(kernels),
            phase="backward",
        ),
        reads=(),
        makes=tuple(Made(name=name, byte_count=specs[name].byte_count) for name in found.losses),
        saved=(),
        kept_bytes=sum(loss.kept_bytes for loss in losses.values()),
    )


def _addition(parameter: Parameter, count: int) -> NodeWork:
    """A parameter's gradient is added to the one that is there."""
    spec = parameter.spec
    kernel = Elementwise(operations=("add",), inputs=(spec, spec), output=spec)
    return NodeWork(
        node=parameter.name,
        op_type="AccumulateGrad",
        origins=(),
        kernels=(kernel,),
        count=count,
        host_operation=True,
        phase="backward",
    )


def _said(plan: Training, found: Backward, runtime: Runtime, *, zeroed: bool, merged: bool) -> Iterator[str]:
    if merged:
        yield (
            "training: pointwise kernels of the run backwards are merged as torch.compile does it; the optimizer "
            "runs as it does without"
        )
    cleared = "filled with zeros, and added to" if zeroed else "cleared by set_to_none"
    host = (
        "the host's time for gradients is that of autograd's engine, for the optimizer that of its Python code"
        if runtime.operator_software
        else "the host's time in the optimizer's Python code and for autograd's thread is that of any other operator"
    )
    yield f"training: what PyTorch's autograd executes, gradients {cleared}; {host}"
    if plan.optimizer == "none":
        yield "training: no optimizer (--optimizer none)"
    else:
        over = "foreach kernels over all parameters" if runtime.foreach_optimizer else "kernels of each parameter alone"
        how = (
            "one kernel over all parameters (fused=True)" if is_fused(plan.optimizer) else f"{over} (PyTorch's default)"
        )
        yield f"training: {plan.optimizer} as {how}"
    if any(parameter.spec.dtype.bits < 32 for parameter in found.parameters):
        yield (
            "training: parameters and gradients are kept in the narrower format, master weights and states of the "
            "optimizer in float32"
        )
    if plan.grad_accumulation > 1:
        yield (
            f"training: {plan.grad_accumulation:,} runs forward and backward, then one step of the optimizer; all "
            "samples count"
        )
