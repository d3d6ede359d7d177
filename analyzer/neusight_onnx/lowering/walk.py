"""From a graph to the work of each of its nodes, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from neusight_onnx.errors import shown
from neusight_onnx.graph.every_run import MOST_SHAPE_NUMBERS, is_computed
from neusight_onnx.graph.model import Graph, InferredGraph, Node, Value, file_name
from neusight_onnx.graph.names import option
from neusight_onnx.graph.signatures import first_version
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.context import LAZY_VIEWS, NodeContext
from neusight_onnx.lowering.free_works import FreeWorks
from neusight_onnx.lowering.known_on_gpu import Known, where_known
from neusight_onnx.lowering.provider_parts import by_provider
from neusight_onnx.lowering.refused import PLUGIN_REASON, is_plugin
from neusight_onnx.lowering.registry import RULES, Free, Kernels, Unsupported
from neusight_onnx.lowering.views import AS_EXPORTED, Layout, Order
from neusight_onnx.runtime import Runtime, as_runtime
from neusight_onnx.strides import channels_last_strides, is_contiguous

CONSTANT = "computed once when the model is loaded"
ON_HOST = "shape arithmetic on the host"
UNKNOWN_HERE = "its shape is not known"
"""How the reason of a node begins whose own shape can't be told, though all is known of its inputs."""
BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
UNKNOWN_BECAUSE = "shape unknown because of "
"""How the reason of a node begins that can't be lowered because of another one; that node's name follows."""
EMPTY = "its result has no elements"


_Answers: TypeAlias = "dict[tuple[object, ...], Kernels | Free | Unsupported]"
"""What rules have said in this pass, by the form of the node and the identities of its values (which live on)."""

_FROM_VALUES = frozenset({"", "com.microsoft", "neusight"})
"""Domains whose rules look at nothing but their node, its values and how they lie, and whether a result is given out:
an output of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """What runs the graph, and what has been found so far. ``given``: the outputs of the graph and of its bodies."""

    runtime: Runtime
    order: Order
    free: FreeWorks
    works: list[NodeWork] = field(default_factory=list)
    strides: dict[str, tuple[int, ...]] = field(default_factory=dict)
    answers: _Answers = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    known_on_gpu: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """The work of every node, and the strides (in elements) of the values that aren't contiguous, bodies included.

    ``known``: where what follows from sizes alone is computed.
    """

    works: tuple[NodeWork, ...]
    strides: Mapping[str, tuple[int, ...]]
    known: Known


def lower(graph: InferredGraph, *, runtime: Runtime | str) -> tuple[NodeWork, ...]:
    """The work of every node in order; the nodes of a body follow the node that it belongs to.

    ``runtime``: or what ``--runtime`` calls it. In a body ``count`` is the product of the
    trip counts around it; ``branch`` holds "node/then" or "node/else" for each If around it of which either branch may
    run, the outer one first. Nodes that are known not to run are free, with the reason and a count of 0. Where the
    trips of a loop differ in size, its nodes appear several times, under other names, with the file's nodes as origins.
    """
    return lower_laid_out(graph, runtime=runtime).works


def lower_laid_out(
    graph: InferredGraph, *, runtime: Runtime | str, order: Order = AS_EXPORTED, free: FreeWorks | None = None
) -> Lowered:
    """As :func:`lower`, with where each value lies: names of values are unique in a model.

    ``free``: shared between the sizes of a model.
    """
    given = _images(graph, order.ranks) if order.given else {}
    executor = as_runtime(runtime)
    known = where_known(graph) if executor.computes_shapes else Known()
    run = _Pass(
        runtime=executor,
        order=order,
        free=FreeWorks() if free is None else free,
        known_on_gpu=known.on_gpu,
    )
    run.strides.update((name, layout.strides) for name, layout in given.items())
    _lower(graph, run, given, 1, ())
    return Lowered(works=tuple(run.works), strides=run.strides, known=known)


_LOSES_ORDER = frozenset({"Einsum", "Gemm", "MatMul", "Transpose"})


def _images(graph: InferredGraph, ranks: frozenset[int]) -> dict[str, Layout]:
    """The inputs (n, c, *spatial) that convolutions are made of, as they lie channels last; caches and masks aren't."""
    sources: dict[str, str] = {}
    for declared in graph.graph.inputs:
        value = graph.values.get(declared.name)
        if value is not None and value.shape is not None and value.dtype is not None and value.dtype.is_float:
            sources[declared.name] = declared.name
    found: dict[str, Layout] = {}
    for node in graph.graph.nodes:
        source = next((sources[name] for name in node.inputs if name in sources), None)
        if source is None:
            continue
        shape = graph.values[source].shape or ()
        if node.op_type in ("Conv", "ConvTranspose") and node.inputs[0] in sources:
            source = sources[node.inputs[0]]
            shape = graph.values[source].shape or ()
            if len(shape) in ranks and not is_contiguous(shape, channels_last_strides(shape)):
                found[source] = Layout(strides=channels_last_strides(shape))
        elif node.op_type not in _LOSES_ORDER:
            for name in node.outputs:
                value = graph.values.get(name)
                if value is not None and value.shape is not None and len(value.shape) == len(shape):
                    sources[name] = source
    return found


def _lower(graph: InferredGraph, run: _Pass, outer: Mapping[str, Layout], count: int, branch: tuple[str, ...]) -> None:
    layouts = dict(outer)
    works = run.works
    run.given.update(declared.name for declared in graph.graph.outputs)
    find = graph.values.get
    read: frozenset[str] | None = None
    for node in graph.graph.nodes:
        outputs = tuple([find(name) if name else None for name in node.outputs])
        if node.op_type == "Dropout" and not node.domain and len(outputs) == 2:
            # exporters name the mask at inference, too, where most often nothing reads it
            read = _read_in(graph.graph) if read is None else read
            outputs = outputs if node.outputs[1] in read else outputs[:1]
        reason = _before_the_run(outputs, run.runtime.name)
        if reason is CONSTANT and run.runtime.computes_constants and is_computed(node, outputs, run.computed):
            reason = None
        if reason is ON_HOST and node.name in run.known_on_gpu:
            reason = None
        if reason is not None:
            works.append(run.free.of(node, reason, count, branch))
        else:
            inputs = tuple([find(name) if name else None for name in node.inputs])
            works.append(_work(node, inputs, outputs, graph, run, layouts, count, branch))
        if (node.op_type in BODIES and not node.domain) or works[-1].unsupported is not None:
            _lower_bodies(node, graph, run, layouts, count, branch)
    run.strides.update((name, layout.strides) for name, layout in layouts.items() if name not in outer)


def _read_in(graph: Graph) -> frozenset[str]:
    """The values that a graph, or a body in it, reads or gives."""
    read = {name for node in _all_nodes(graph) for name in node.inputs}
    for owner in (graph, *_all_bodies(graph)):
        read.update(declared.name for declared in owner.outputs)
    return frozenset(read)


def _all_bodies(graph: Graph) -> Iterator[Graph]:
    for node in graph.nodes:
        for value in node.attributes.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Graph):
                    yield inner
                    yield from _all_bodies(inner)


def _before_the_run(outputs: tuple[Value | None, ...], runtime: str) -> str | None:
    """Why a node has nothing to do at run time, if all of its outputs are constants or known numbers."""
    constant = known = bool(outputs)
    most = MOST_SHAPE_NUMBERS if runtime in LAZY_VIEWS else None
    for value in outputs:
        if value is not None:
            constant = constant and value.is_constant
            known = known and value.data is not None and (most is None or value.data.size <= most)
            if not (constant or known):
                return None
    return CONSTANT if constant else ON_HOST


def _origins(node: Node) -> tuple[tuple[str, str], ...]:
    if not node.origins:
        return ((node.name, node.op_type),)
    return tuple([(origin.name, origin.op_type) for origin in node.origins])


def _lower_bodies(
    node: Node,
    graph: InferredGraph,
    run: _Pass,
    layouts: Mapping[str, Layout],
    count: int,
    branch: tuple[str, ...],
) -> None:
    """The nodes of a node's bodies: their work, or why they never run, or that nothing is known of them."""
    is_open = node.op_type == "If" and all((node.name, name) in graph.bodies for name in ("then_branch", "else_branch"))
    trips = graph.trip_counts.get(node.name)
    for attribute, declared in node.attributes.items():
        for inner in declared if isinstance(declared, tuple) else (declared,):
            if not isinstance(inner, Graph):
                continue
            reason = graph.idle.get((node.name, attribute))
            if reason is not None:
                run.works.extend(_idle(inner, reason, branch))
            elif (node.name, attribute) not in graph.bodies:
                run.works.extend(_unseen(inner, file_name(node.name), branch))
            else:
                mark = (*branch, f"{node.name}/{attribute.partition('_')[0]}") if is_open else branch
                whole = ((attribute, 1 if trips is None else trips.count),)
                for key, times in graph.repeats.get(node.name, whole):
                    _lower(graph.bodies[(node.name, key)], run, layouts, count * times, mark)


def _all_nodes(graph: Graph) -> Iterator[Node]:
    yield from graph.nodes
    for body in _all_bodies(graph):
        yield from body.nodes


def _idle(graph: Graph, reason: str, branch: tuple[str, ...]) -> Iterator[NodeWork]:
    for node in _all_nodes(graph):
        yield NodeWork(
            node=node.name, op_type=node.op_type, origins=_origins(node), free=reason, count=0, branch=branch
        )


def _unseen(graph: Graph, owner: str, branch: tuple[str, ...]) -> Iterator[NodeWork]:
    for node in _all_nodes(graph):
        yield NodeWork(
            node=node.name,
            op_type=node.op_type,
            origins=_origins(node),
            unsupported=f"{UNKNOWN_BECAUSE}{owner}",
            branch=branch,
        )


def _work(
    node: Node,
    inputs: tuple[Value | None, ...],
    outputs: tuple[Value | None, ...],
    graph: InferredGraph,
    run: _Pass,
    layouts: dict[str, Layout],
    count: int,
    branch: tuple[str, ...],
) -> NodeWork:
    origins = _origins(node)
    outcome = _known_outcome(node, inputs, outputs, graph, run, layouts)
    match outcome:
        case Kernels(kernels=kernels, layouts=written, host_waits=host_waits, repeats=repeats):
            if written:
                _remember(node, written, layouts)
            paid = [layout for name in node.inputs if (layout := layouts.get(name)) is not None]
            if paid and any(getattr(kernel, "operation", None) == "copy" for kernel in kernels):
                origins = _joined(origins, paid)
            return NodeWork(
                node=node.name,
                op_type=node.op_type,
                origins=origins,
                kernels=kernels,
                count=count * repeats,
                branch=branch,
                host_operation=True,
                host_waits=host_waits,
            )
        case Free(reason=reason, host=host, layouts=written):
            if written:
                _remember(node, written, layouts)
            return NodeWork(
                node=node.name,
                op_type=node.op_type,
                origins=origins,
                free=reason,
                count=count,
                branch=branch,
                host_operation=host,
            )
        case Unsupported(reason=reason):
            return NodeWork(
                node=node.name, op_type=node.op_type, origins=origins, unsupported=reason, count=count, branch=branch
            )
        case _:
            assert_never(outcome)


def _known_outcome(
    node: Node,
    inputs: tuple[Value | None, ...],
    outputs: tuple[Value | None, ...],
    graph: InferredGraph,
    run: _Pass,
    layouts: Mapping[str, Layout],
) -> Kernels | Free | Unsupported:
    """As :func:`_outcome`; what a rule said of such a node with the same values stands, for models repeat themselves.

    Only where the rule can't have seen more than these: no operand or result lies in an order that nodes made, whose
    names it keeps, no result is an output of the graph, and it is no gradient, which follows the graph.
    """
    given = [layouts.get(name) for name in node.inputs] if layouts else ()
    is_apart = node.domain not in _FROM_VALUES or not run.given.isdisjoint(node.outputs)
    if is_apart or any(layout is not None and layout.origins for layout in given):
        return _outcome(node, inputs, outputs, graph, run, layouts)
    attributes = node.attributes
    key = (
        node.op_type,
        node.domain,
        node.version,
        *attributes,
        *map(id, attributes.values()),
        *map(id, inputs),
        None,
        *map(id, outputs),
        *(None if layout is None else layout.strides for layout in given),
    )
    known = run.answers.get(key)
    if known is None:
        known = _outcome(node, inputs, outputs, graph, run, layouts)
        if not isinstance(known, Unsupported) and not any(layout and layout.origins for layout in known.layouts):
            run.answers[key] = known
    return known


def _unknown_here(node: Node, graph: InferredGraph) -> str:
    """Why the node itself has no shape, and which option gives one."""
    decider = graph.deciders.get(node.name)
    if decider is not None:
        hint = option("--value", decider, "...")
        return f"{UNKNOWN_HERE}: it is read from the input '{shown(decider)}'; {hint} gives it"
    name = next((name for name in node.outputs if name), node.name)
    return f"{UNKNOWN_HERE}: it depends on data; {option('--shape', name, 'AxB')} gives it"


def _outcome(
    node: Node,
    inputs: tuple[Value | None, ...],
    outputs: tuple[Value | None, ...],
    graph: InferredGraph,
    run: _Pass,
    layouts: Mapping[str, Layout],
) -> Kernels | Free | Unsupported:
    rule = RULES.get((node.domain, node.op_type))
    if rule is None:
        if is_plugin(node.domain, node.op_type):
            return Unsupported(reason=PLUGIN_REASON)
        if not node.domain and first_version("", node.op_type) is None:
            return Unsupported(reason=f"ONNX has no operator {node.op_type}")
        return Unsupported(reason=f"no lowering for {node.domain or 'ai.onnx'}::{node.op_type}")
    context = NodeContext(node, inputs, outputs, run.runtime, layouts, graph, run.order)
    if not rule.needs_shapes:
        return _executed(context, rule.function(context))
    for value, name in zip((*inputs, *outputs[:1]), (*node.inputs, *node.outputs[:1]), strict=True):
        if name and (value is None or value.shape is None):
            cause = node.name if value is None else value.unknown_because or node.name
            return Unsupported(reason=_unknown_here(node, graph) if cause == node.name else f"{UNKNOWN_BECAUSE}{cause}")
    outcome = _executed(context, rule.function(context))
    if isinstance(outcome, Kernels) and (not outcome.kernels or _is_empty(outputs)):
        return Free(reason=EMPTY, host=True)
    return outcome


def _executed(context: NodeContext, outcome: Kernels | Free | Unsupported) -> Kernels | Free | Unsupported:
    return by_provider(context, outcome) if context.executor.elementwise == "onnxruntime" else outcome


def _is_empty(outputs: tuple[Value | None, ...]) -> bool:
    """Whether no output has elements, the shapes being known."""
    present = [value for value in outputs if value is not None and value.shape is not None]
    return bool(present) and all(0 in value.shape for value in present if value.shape is not None)


def _remember(node: Node, written: tuple[Layout | None, ...], layouts: dict[str, Layout]) -> None:
    layouts.update(
        (name, layout) for name, layout in zip(node.outputs, written, strict=False) if name and layout is not None
    )


def _joined(origins: tuple[tuple[str, str], ...], paid: list[Layout]) -> tuple[tuple[str, str], ...]:
    """``origins``, and the views that made a copy necessary, each once."""
    joined = dict.fromkeys(origins)
    joined.update(dict.fromkeys((origin.name, origin.op_type) for layout in paid for origin in layout.origins))
    return tuple(joined)
