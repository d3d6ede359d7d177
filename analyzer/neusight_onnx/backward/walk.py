"""The run backwards: nodes in reverse, each with the kernels of its gradient, from the loss to the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from neusight_onnx.backward import by_kernel, pointwise, products, rows, structure
from neusight_onnx.backward.loss_values import loss_values
from neusight_onnx.backward.parameters import BODIES, frozen_by, initializers, read_by, values_needing
from neusight_onnx.backward.plan import Training
from neusight_onnx.backward.registry import INPUTS, RULES, BackwardContext, Derivative, Flow, Unknown, has_gradient
from neusight_onnx.backward.rolls import rolls_of
from neusight_onnx.backward.said import assumed, why_nothing
from neusight_onnx.backward.steps import Backward, Made, Parameter, Step
from neusight_onnx.errors import TrainingError
from neusight_onnx.graph.model import InferredGraph, Node, Value
from neusight_onnx.kernels import Elementwise, Kernel, NodeWork, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.views import Layout
from neusight_onnx.runtime import Runtime, as_runtime

FAMILIES = (pointwise, products, rows, structure)
"""The modules that hold rules: importing them fills the table."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    graph: InferredGraph
    works: Mapping[str, NodeWork]
    layouts: Mapping[str, Layout]
    runtime: Runtime
    plan: Training
    needing: Mapping[str, int]
    rolls: Mapping[str, str | None]
    strides: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


def backward(
    graph: InferredGraph,
    works: Sequence[NodeWork],
    strides: Mapping[str, tuple[int, ...]],
    plan: Training,
    runtime: Runtime | str,
) -> Backward:
    """The steps for ``graph`` (in its form for training), whose nodes became ``works``.

    Raises TrainingError where no gradient reaches a parameter.
    """
    patterns = frozen_by(graph, plan.freeze)
    frozen = frozenset(name for each in patterns for name in each.names)
    blocked: list[Node] = []
    needing = values_needing(graph, frozen, blocked)
    losses = loss_values(graph, needing)
    if not losses:
        raise TrainingError(why_nothing(graph, frozen, blocked))
    walk = _Walk(
        graph=graph,
        works={work.node: work for work in works},
        layouts={name: Layout(strides=value) for name, value in strides.items()},
        runtime=as_runtime(runtime),
        plan=plan,
        needing=needing,
        rolls=rolls_of(graph),
        strides=dict.fromkeys(losses),
    )
    for node in reversed(graph.graph.nodes):
        _backward_of(node, walk)
    reached = [
        Parameter(name=name, spec=TensorSpec(dtype=tensor.dtype, shape=tensor.shape))
        for name, tensor in initializers(graph).items()
        if name in walk.strides
    ]
    if not reached:
        raise TrainingError(why_nothing(graph, frozen, blocked))
    said = assumed(
        graph,
        plan,
        losses=losses,
        frozen=patterns,
        reached=reached,
        needing=needing,
        behind=walk.strides.keys(),
        blocked=blocked,
    )
    return Backward(steps=tuple(walk.steps), parameters=tuple(reached), losses=losses, said=said)


def _backward_of(node: Node, walk: _Walk) -> None:
    """The step of one node, if its result has a gradient and something before it needs one."""
    arrived = frozenset(index for index, name in enumerate(node.outputs) if name in walk.strides)
    if not arrived:
        return
    passing = INPUTS.get((node.domain, node.op_type))
    needs = frozenset(
        index
        for index, name in enumerate(read_by(node))
        if name in walk.needing and (passing is None or index in passing)
    )
    if not needs or not has_gradient(node.domain, node.op_type):
        return
    work = walk.works[node.name]
    other = walk.rolls.get(node.name, "")
    if work.count == 0 or other is None:
        return
    reads = tuple(node.outputs[index] for index in sorted(arrived))
    if other:
        reads = (*reads, other)
    found = _derivative(node, work, needs, arrived, walk)
    match found:
        case Unknown(reason=reason):
            made, _ = _make(node, {index: Flow() for index in needs}, walk)
            step = Step(work=_unknown_work(node, work, reason), reads=reads, makes=tuple(made), saved=(), kept_bytes=0)
        case Derivative(kernels=kernels, flows=flows, saved=saved, kept_bytes=kept_bytes):
            made, sums = _make(node, flows, walk)
            step = Step(
                work=_launched_work(node, work, (*kernels, *sums), by_host=not _is_before_the_run(node, walk.graph)),
                reads=reads,
                makes=tuple(made),
                saved=tuple(name for name in saved if name),
                kept_bytes=kept_bytes,
            )
        case _:
            assert_never(found)
    walk.steps.append(step)


def _unknown_work(node: Node, forward: NodeWork, reason: str) -> NodeWork:
    """The work backwards of a node whose gradient is not known."""
    unsupported = None if forward.unsupported is not None else f"in training: {reason}"
    return NodeWork(
        node=node.name,
        op_type=node.op_type,
        origins=forward.origins,
        unsupported=unsupported,
        free=None if unsupported else "nothing is known of the node itself",
        count=forward.count,
        branch=forward.branch,
        phase="backward",
    )


def _launched_work(node: Node, forward: NodeWork, launched: tuple[Kernel, ...], *, by_host: bool) -> NodeWork:
    """The work backwards of a node, of the kernels ``launched``."""
    return NodeWork(
        node=node.name,
        op_type=node.op_type,
        origins=forward.origins,
        kernels=launched,
        free=None if launched else "its gradient is the result's, or a view of it",
        count=forward.count,
        branch=forward.branch,
        host_operation=by_host,
        phase="backward",
    )


def _is_before_the_run(node: Node, graph: InferredGraph) -> bool:
    """Whether a node only makes a constant: exporters fold what a module does to its weights."""
    return all((value := graph.values.get(name)) is None or value.is_constant for name in node.outputs if name)


def _derivative(
    node: Node, work: NodeWork, needs: frozenset[int], arrived: frozenset[int], walk: _Walk
) -> Derivative | Unknown:
    values = walk.graph.values
    if work.unsupported is not None:
        return Unknown(reason=work.unsupported)
    if node.op_type in BODIES and not node.domain:
        return Unknown(reason=f"gradients through the body of {node.op_type} are not modelled yet")
    inputs = tuple(values.get(name) if name else None for name in node.inputs)
    outputs = tuple(values.get(name) if name else None for name in node.outputs)
    if any(_is_unknown(value, name) for value, name in zip(inputs, node.inputs, strict=True)):
        return Unknown(reason="the shape of an input is not known")
    context = BackwardContext(
        forward=NodeContext(node, inputs, outputs, walk.runtime, walk.layouts, walk.graph),
        kernels=work.kernels,
        needs=needs,
        arrived=arrived,
        strides={index: walk.strides[node.outputs[index]] for index in arrived},
    )
    if node.name in walk.rolls:
        return structure.rolled(context)
    rule = RULES.get((node.domain, node.op_type))
    return by_kernel.by_kernels(context) if rule is None else rule(context)


def _is_unknown(value: Value | None, name: str) -> bool:
    return bool(name) and (value is None or value.shape is None)


def _make(node: Node, flows: Mapping[int, Flow], walk: _Walk) -> tuple[list[Made], list[Kernel]]:
    """The gradients that a step leaves, and the additions to those that were there already."""
    made: list[Made] = []
    sums: list[Kernel] = []
    for index, flow in sorted(flows.items()):
        name = read_by(node)[index]
        value = walk.graph.values[name]
        assert value.shape is not None, "a value without a shape has no gradient"
        assert value.dtype is not None, "a value with a gradient has a type"
        spec = TensorSpec(dtype=value.dtype, shape=value.shape)
        added = name in walk.strides
        if added:
            sums.append(Elementwise(operations=("add",), inputs=(spec, spec), output=spec))
            walk.strides[name] = flow.strides if flow.strides == walk.strides[name] else None
        else:
            walk.strides[name] = flow.strides
        shares = None if flow.shares is None or added else node.outputs[flow.shares]
        made.append(Made(name=name, byte_count=spec.byte_count, shares=shares, added=added))
    return made, sums
