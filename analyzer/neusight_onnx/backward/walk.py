"""The run backwards: nodes in reverse, each with the kernels of its gradient, from the loss to the parameters."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from neusight_onnx.backward import by_kernel, pointwise, products, rows, structure
from neusight_onnx.backward.freezing import Frozen, Readers, readers_of, said_of
from neusight_onnx.backward.plan import Training
from neusight_onnx.backward.recurrent_weights import RECURRENT
from neusight_onnx.backward.registry import (
    INPUTS,
    RULES,
    SILENT,
    BackwardContext,
    Derivative,
    Flow,
    Unknown,
    has_gradient,
    is_differentiable,
)
from neusight_onnx.backward.rolls import rolls_of
from neusight_onnx.errors import TrainingError, shown
from neusight_onnx.graph.bodies import reads_of
from neusight_onnx.graph.model import InferredGraph, Node, Value, file_name
from neusight_onnx.kernels import Elementwise, Kernel, NodeWork, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.views import Layout
from neusight_onnx.runtime import Runtime, as_runtime

FAMILIES = (pointwise, products, rows, structure)
"""The modules that hold rules: importing them fills the table."""

BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})

_NORMS = ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization")
_ONE_NUMBER = {
    **dict.fromkeys(_NORMS, (1, 2)),
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "Linear"), (2,)),
    "PRelu": (1,),
}
"""Inputs that are parameters of one element, if they have one; elsewhere a single number is a constant of the
program, but for one that has a module's name."""
_OF_A_MODULE = re.compile(r"\w+(\.\w+)+")
"""Names of weights as PyTorch's exporters keep them, of those below the model itself; the constants that they write are
called otherwise (onnx::Mul_12, /head/Constant_output_0, val_7)."""
_VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})

_ALL_RESULTS = BODIES | RECURRENT | {"Split"}
"""Operators of which every result is computed from what is trained; of others the first."""

_PREPARATION = frozenset({"Add", "Sub", "Mul", "Div"})
_MOVING = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Resize", "Slice", "Split"}
    | {"Squeeze", "Transpose", "Unsqueeze", "Upsample"}
)
_WAVES = frozenset({"Sin", "Cos"})
_VECTOR, _MATRIX = 1, 2
"""How many dimensions above 1 the parameters behind a value have at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A weight that is trained."""

    name: str
    spec: TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A gradient that a step leaves for a value. ``shares``: the value whose gradient's memory it is, if any.
    ``added``: there was one already, to which this one is added."""

    name: str
    byte_count: int
    shares: str | None = None
    added: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The gradient of one node. ``reads``: values whose gradients end here. ``saved``: values kept for it from the run
    forward; ``kept_bytes``: what else is."""

    work: NodeWork
    reads: tuple[str, ...]
    makes: tuple[Made, ...]
    saved: tuple[str, ...]
    kept_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """``steps`` in the order of the run backwards; the parameters that a gradient reaches, in the file's order.
    ``losses``: the results that the loss is taken of. ``said``: what was assumed."""

    steps: tuple[Step, ...]
    parameters: tuple[Parameter, ...]
    losses: tuple[str, ...]
    said: tuple[str, ...]


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
    meant = _meant(graph, plan.freeze)
    frozen = frozenset(name for each in meant for name in each.names)
    blocked: list[Node] = []
    needing = _needing(graph, frozen, blocked)
    losses = _loss_values(graph, needing)
    if not losses:
        raise TrainingError(_nothing(graph, frozen, blocked))
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
        for name, tensor in _initializers(graph).items()
        if name in walk.strides
    ]
    if not reached:
        raise TrainingError(_nothing(graph, frozen, blocked))
    said = [
        *_said_of_losses(graph, losses, plan),
        *_said_of_parameters(graph, reached, frozen),
        *_said_of_patterns(graph, meant, reached),
        *_said_of_others(graph, walk),
        *_said_of_blocked(blocked),
    ]
    return Backward(steps=tuple(walk.steps), parameters=tuple(reached), losses=losses, said=tuple(said))


def _initializers(graph: InferredGraph) -> dict[str, TensorSpec]:
    """Floating-point constants that the file holds, by name, in the number format that they are used in."""
    found = {}
    for name, tensor in graph.graph.initializers.items():
        value = graph.values.get(name)
        dtype = tensor.dtype if value is None or value.dtype is None else value.dtype
        if is_differentiable(dtype):
            found[name] = TensorSpec(dtype=dtype, shape=tensor.shape)
    return found


def _meant(graph: InferredGraph, patterns: Sequence[str]) -> list[Frozen]:
    """What each of ``patterns`` freezes; TrainingError for one that names nothing which training would change."""
    if not patterns:
        return []
    names = list(_initializers(graph))
    needing = _needing(graph, frozenset(), [])
    trained = [name for name in names if name in needing]
    readers = readers_of(graph, names)
    found = []
    for pattern in patterns:
        meant = readers.meant_by(pattern, names)
        if needing.keys().isdisjoint(meant.names):
            what = _no_parameter(pattern, meant.names, trained, readers)
            raise TrainingError(f"--freeze {shown(pattern)!r} matches {what}")
        found.append(meant)
    return found


def _no_parameter(pattern: str, matched: Sequence[str], trained: Sequence[str], readers: Readers) -> str:
    """What a pattern matches instead of a parameter, and what would do."""
    what = f"only what is never trained ({_quoted(matched)})" if matched else "no parameter"
    for wider in (f"{pattern}*", f"*{pattern}*"):
        count = len(readers.meant_by(wider, trained).names)
        if count:
            return f"{what}; {shown(wider)!r} matches {count:,}"
    return f"{what}; there are {_quoted(trained)}"


def _quoted(names: Sequence[str]) -> str:
    some = ", ".join(f"'{shown(name)}'" for name in names[:3])
    return f"{some} and {len(names) - 3:,} more" if len(names) > 3 else some or "none"


@dataclass(slots=True, kw_only=True)
class _Singles:
    """Parameters of one element. ``views``: by the name of a view of one (or its own), the parameter."""

    views: dict[str, str]

    def read_by(self, node: Node) -> Iterator[str]:
        """What a node reads as a parameter: the value and what it is a view of."""
        if node.op_type in _VIEWS and node.inputs[0] in self.views:
            self.views[node.outputs[0]] = self.views[node.inputs[0]]
        for index in _ONE_NUMBER.get(node.op_type, ()):
            name = node.inputs[index] if index < len(node.inputs) else ""
            if name in self.views:
                yield from (name, self.views[name])


def _needing(graph: InferredGraph, frozen: frozenset[str], blocked: list[Node]) -> dict[str, int]:
    """The values that depend on a parameter, and how many dimensions the parameters behind them have at most.

    ``blocked`` gets the nodes behind which a gradient would be wanted and isn't.
    """
    found: dict[str, int] = {}
    singles = _Singles(views={})
    for name, spec in _initializers(graph).items():
        if name in frozen:
            continue
        dimensions = sum(size > 1 for size in spec.shape)
        if dimensions or _OF_A_MODULE.fullmatch(name):
            found[name] = min(max(dimensions, _VECTOR), _MATRIX)
        else:
            singles.views[name] = name
    initial = frozenset(found)
    prepared = _prepared(graph)
    for node in graph.graph.nodes:
        if singles.views:
            found.update(dict.fromkeys(singles.read_by(node), _VECTOR))
        inputs = [(index, name) for index, name in enumerate(_read_by(node)) if name in found]
        if not inputs:
            continue
        if not has_gradient(node.domain, node.op_type):
            if node.op_type not in SILENT and any(name not in initial for _, name in inputs):
                blocked.append(node)
            continue
        passing = INPUTS.get((node.domain, node.op_type))
        weights = [found[name] for index, name in inputs if passing is None or index in passing]
        if not weights:
            continue
        most = max(weights)
        if node.op_type in _WAVES and most == _VECTOR:
            continue
        vectors_only = all(name in initial and found[name] == _VECTOR for _, name in inputs)
        if node.op_type in _PREPARATION and not node.domain and vectors_only and len(inputs) < len(node.inputs):
            other = next(name for name in node.inputs if name not in found)
            value = graph.values.get(other)
            if other in prepared and value is not None and not value.is_constant:
                continue
        for name in node.outputs if node.op_type in _ALL_RESULTS else node.outputs[:1]:
            value = graph.values.get(name)
            if value is not None and is_differentiable(value.dtype) and value.shape is not None:
                found[name] = most
    return found


def _prepared(graph: InferredGraph) -> frozenset[str]:
    """Values that are still inputs of the graph: whole numbers, and floats that were moved, added to or multiplied."""
    computed: set[str] = set()
    floats = {declared.name for declared in graph.graph.inputs if is_differentiable(declared.dtype)}
    for node in graph.graph.nodes:
        if not computed.isdisjoint(node.inputs) or (
            node.op_type not in _PREPARATION | _MOVING and not floats.isdisjoint(node.inputs)
        ):
            computed.update(node.outputs)
        elif not floats.isdisjoint(node.inputs):
            floats.update(node.outputs)
    return frozenset(graph.values.keys() - computed)


def _not_trained(graph: InferredGraph, needing: Mapping[str, int], reached: Container[str]) -> list[str]:
    """Weights that PyTorch might train, but for single numbers that no module names, and that no gradient reaches."""
    read: set[str] = set()
    for node in reversed(graph.graph.nodes):
        if not has_gradient(node.domain, node.op_type) or (node.op_type in _VIEWS and read.isdisjoint(node.outputs)):
            continue
        passing = INPUTS.get((node.domain, node.op_type))
        read.update(name for index, name in enumerate(_read_by(node)) if passing is None or index in passing)
    return [name for name in _initializers(graph) if name in needing and name in read and name not in reached]


def _read_by(node: Node) -> tuple[str, ...]:
    """The inputs of a node in their places, and behind them what its bodies take from around them."""
    if node.op_type not in BODIES:
        return node.inputs
    return (*node.inputs, *(name for name in reads_of(node) if name not in node.inputs))


def _loss_values(graph: InferredGraph, needing: Mapping[str, int]) -> tuple[str, ...]:
    """The results that nothing else is made of; else the first.

    States and caches are read by the nodes behind them, as they are or before they were packed.
    """
    makers = {name: node for node in graph.graph.nodes for name in node.outputs if name}
    readers: dict[str, int] = {}
    for node in graph.graph.nodes:
        for name in dict.fromkeys(node.inputs):
            readers[name] = readers.get(name, 0) + 1
    names = [declared.name for declared in graph.graph.outputs if declared.name in needing]
    last = tuple(dict.fromkeys(name for name in names if not _is_read_on(name, makers, readers)))
    return last or tuple(dict.fromkeys(names[:1]))


_PACKING = frozenset({"Concat", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze", "Cast"})
_PACKED_STEPS = 8


def _is_read_on(name: str, makers: Mapping[str, Node], readers: Mapping[str, int]) -> bool:
    """Whether nodes read a result, or all that it was packed from. The last state of a recurrent layer counts as read:
    it is for the caller's next run."""
    if readers.get(name, 0):
        return True
    pending, seen = [(name, 0)], 0
    while pending:
        current, depth = pending.pop()
        node = makers.get(current)
        is_state = node is not None and node.op_type in RECURRENT and current in node.outputs[1:]
        if is_state or (depth and readers.get(current, 0) > 1):
            seen += 1
            continue
        if node is None or node.op_type not in _PACKING or node.domain or depth == _PACKED_STEPS:
            return False
        sources = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        pending += [(source, depth + 1) for source in sources]
    return seen > 0


def _nothing(graph: InferredGraph, frozen: frozenset[str], blocked: Sequence[Node]) -> str:
    if blocked:
        node = blocked[-1]
        return (
            f"there is nothing to train: no gradient reaches a parameter, for none passes {node.op_type} "
            f"'{shown(file_name(node.name))}'"
        )
    if frozen:
        return "there is nothing to train: --freeze leaves no parameter that the results depend on"
    left = _not_trained(graph, _needing(graph, frozen, []), ())
    if left:
        return f"there is nothing to train: {_quoted(left)} {_not_said(left)}"
    return (
        "there is nothing to train: the results depend on no floating-point weight of more than one element (weights "
        "that are stored as integers are not trained)"
    )


def _said_of_losses(graph: InferredGraph, losses: Sequence[str], plan: Training) -> Iterator[str]:
    named = ", ".join(f"'{shown(name)}'" for name in losses)
    if plan.loss == "none":
        yield f"training: no loss; the gradient of {named} is there already (--loss none)"
    else:
        yield f"training: the loss ({plan.loss}) is taken of {named}"
    others = [
        declared.name
        for declared in graph.graph.outputs
        if declared.name not in losses and declared.name in graph.values
    ]
    if others:
        yield f"training: no gradient starts at {', '.join(f'{shown(name)!r}' for name in others[:3])}" + (
            f" and {len(others) - 3} more results" if len(others) > 3 else ""
        )


def _said_of_parameters(graph: InferredGraph, reached: Sequence[Parameter], frozen: frozenset[str]) -> Iterator[str]:
    count = sum(parameter.spec.element_count for parameter in reached)
    weights = _initializers(graph)
    held = sum(spec.element_count for spec in weights.values())
    still = sum(spec.element_count for name, spec in weights.items() if name in frozen)
    known = frozen.union(parameter.name for parameter in reached)
    single = sum(spec.element_count == 1 and name not in known for name, spec in weights.items())
    text = f"training: {count:,} of {held:,} floating-point weights are trained"
    text += f", {still:,} are frozen" if frozen else ""
    text += f", {single:,} {'is a single number' if single == 1 else 'are single numbers'}" if single else ""
    yield text + " (--freeze leaves some as they are)"


def _said_of_patterns(graph: InferredGraph, meant: Sequence[Frozen], reached: Sequence[Parameter]) -> Iterator[str]:
    """What --freeze means otherwise than by name, and what it leaves trained of what its nodes read."""
    trained = {parameter.name for parameter in reached}
    elements = {name: spec.element_count for name, spec in _initializers(graph).items()} if meant else {}
    for each in meant:
        yield from said_of(replace(each, left=tuple(name for name in each.left if name in trained)), elements)


def _said_of_others(graph: InferredGraph, walk: _Walk) -> Iterator[str]:
    """The weights that a derivative asks for and that have none."""
    left = _not_trained(graph, walk.needing, walk.strides.keys())
    if left:
        yield f"training: {_quoted(left)} {_not_said(left)}"


def _not_said(left: Sequence[str]) -> str:
    verb = "is" if len(left) == 1 else "are"
    return f"{verb} not trained (what prepares an input, makes positions, or no result depends on)"


def _said_of_blocked(blocked: Sequence[Node]) -> Iterator[str]:
    if blocked:
        named = ", ".join(f"{node.op_type} '{shown(file_name(node.name))}'" for node in blocked[:3])
        more = f" and {len(blocked) - 3:,} more" if len(blocked) > 3 else ""
        yield f"training: no gradient passes {named}{more}"


def _backward_of(node: Node, walk: _Walk) -> None:
    """The step of one node, if its result has a gradient and something before it needs one."""
    arrived = frozenset(index for index, name in enumerate(node.outputs) if name in walk.strides)
    if not arrived:
        return
    passing = INPUTS.get((node.domain, node.op_type))
    needs = frozenset(
        index
        for index, name in enumerate(_read_by(node))
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
    origins = work.origins
    match found:
        case Unknown(reason=reason):
            unsupported = None if work.unsupported is not None else f"in training: {reason}"
            walk.steps.append(
                Step(
                    work=NodeWork(
                        node=node.name,
                        op_type=node.op_type,
                        origins=origins,
                        unsupported=unsupported,
                        free=None if unsupported else "nothing is known of the node itself",
                        count=work.count,
                        branch=work.branch,
                        phase="backward",
                    ),
                    reads=reads,
                    makes=tuple(_make(node, {index: Flow() for index in needs}, walk)[0]),
                    saved=(),
                    kept_bytes=0,
                )
            )
        case Derivative(kernels=kernels, flows=flows, saved=saved, kept_bytes=kept_bytes):
            made, sums = _make(node, flows, walk)
            launched = (*kernels, *sums)
            walk.steps.append(
                Step(
                    work=NodeWork(
                        node=node.name,
                        op_type=node.op_type,
                        origins=origins,
                        kernels=launched,
                        free=None if launched else "its gradient is the result's, or a view of it",
                        count=work.count,
                        branch=work.branch,
                        host_operation=not _is_before_the_run(node, walk.graph),
                        phase="backward",
                    ),
                    reads=reads,
                    makes=tuple(made),
                    saved=tuple(name for name in saved if name),
                    kept_bytes=kept_bytes,
                )
            )
        case _:
            assert_never(found)


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
        name = _read_by(node)[index]
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
