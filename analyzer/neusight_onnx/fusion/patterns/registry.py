"""Subgraphs that a runtime executes as one kernel, though exporters write them as several operators.

The rules stand in the modules beside this one, by what they recognise; ``PATTERNS`` lists them, in the order in which
they are asked. A graph is searched once, in linear time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from neusight_onnx.fusion.patterns.activations import (
    clipped,
    gelu_erf,
    gelu_tanh,
    glu,
    hard_swish,
    mish,
    softplus,
    swish,
)
from neusight_onnx.fusion.patterns.added_products import addcmul
from neusight_onnx.fusion.patterns.normalizations import batch_statistics, group_norm, layer_norm, rms_norm, rsqrt
from neusight_onnx.fusion.patterns.products import conv_batch_norm, linear
from neusight_onnx.fusion.patterns.search import BUT_ORT, COMPILERS, EVERYWHERE, Match, Pattern, Search, Verdict
from neusight_onnx.fusion.patterns.slices import gathered_range, slice_assignment
from neusight_onnx.fusion.patterns.softmax import attention, log_softmax, masked_softmax, swapped_keys, written_softmax
from neusight_onnx.graph.every_run import is_computed
from neusight_onnx.graph.model import Graph, InferredGraph, Node, Origin, kept_values
from neusight_onnx.runtime import Runtime, as_runtime

PATTERNS: tuple[Pattern, ...] = (
    Pattern(name="linear", anchors=("MatMul",), runtimes=EVERYWHERE, find=linear),
    Pattern(name="layer normalization", anchors=("ReduceMean",), runtimes=EVERYWHERE, find=layer_norm),
    # Hugging Face's RMSNorm is a module of its own formula: several kernels in eager mode.
    Pattern(name="RMS normalization", anchors=("ReduceMean",), runtimes=COMPILERS, find=rms_norm),
    Pattern(
        name="group normalization",
        anchors=("InstanceNormalization",),
        runtimes=BUT_ORT,
        find=group_norm,
    ),
    Pattern(
        name="batch normalization by its own statistics",
        anchors=("BatchNormalization",),
        runtimes=frozenset({"eager", "compiled"}),
        find=batch_statistics,
    ),
    Pattern(name="GELU", anchors=("Erf",), runtimes=EVERYWHERE, find=gelu_erf),
    Pattern(name="GELU by tanh", anchors=("Tanh",), runtimes=EVERYWHERE, find=gelu_tanh),
    Pattern(name="Mish", anchors=("Tanh",), runtimes=BUT_ORT, find=mish),
    Pattern(name="GLU", anchors=("Sigmoid",), runtimes=BUT_ORT, find=glu),
    Pattern(name="SiLU", anchors=("Sigmoid",), runtimes=EVERYWHERE, find=swish),
    Pattern(name="HardSwish", anchors=("HardSigmoid",), runtimes=BUT_ORT, find=hard_swish),
    Pattern(name="HardSwish by clip", anchors=("Clip",), runtimes=BUT_ORT, find=clipped),
    Pattern(name="Softplus", anchors=("Log",), runtimes=BUT_ORT, find=softplus),
    Pattern(name="LogSoftmax", anchors=("Softmax",), runtimes=BUT_ORT, find=log_softmax),
    Pattern(
        name="keys transposed between Reshapes",
        anchors=("Softmax",),
        runtimes=frozenset({"eager", "compiled"}),
        find=swapped_keys,
    ),
    # onnxruntime fuses attention in another tool, which writes its own operators into the file.
    Pattern(
        name="scaled dot-product attention",
        anchors=("Softmax",),
        runtimes=BUT_ORT,
        find=attention,
    ),
    # In eager mode scale, mask and softmax are kernels of their own.
    Pattern(
        name="masked softmax", anchors=("Softmax",), runtimes=frozenset({"compiled", "tensorrt"}), find=masked_softmax
    ),
    Pattern(
        name="softmax by parts", anchors=("Exp",), runtimes=frozenset({"compiled", "tensorrt"}), find=written_softmax
    ),
    Pattern(
        name="assignment to a slice",
        anchors=("ScatterND",),
        runtimes=frozenset({"eager", "compiled"}),
        find=slice_assignment,
    ),
    Pattern(
        name="a range of places gathered", anchors=("Gather",), runtimes=frozenset({"onnxruntime"}), find=gathered_range
    ),
    Pattern(name="rsqrt", anchors=("Sqrt",), runtimes=BUT_ORT, find=rsqrt),
    # A compiler takes the sum and the products into one loop, however they are written.
    Pattern(name="addcmul", anchors=("Mul",), runtimes=frozenset({"eager"}), find=addcmul),
    # PyTorch in eager mode runs the two apart; engines fold one into the other when they load the model.
    Pattern(
        name="batch normalization into convolution",
        anchors=("BatchNormalization",),
        runtimes=frozenset({"onnxruntime", "tensorrt"}),
        find=conv_batch_norm,
    ),
)
"""In order: a rule takes its nodes from the rules after it, so those that need more of the graph stand first."""


def recognise(graph: InferredGraph, *, runtime: Runtime | str, rules: tuple[Pattern, ...] = PATTERNS) -> InferredGraph:
    """``graph`` with each recognised subgraph replaced by one node, in bodies of control flow, too.

    The new node stands where the last node of the subgraph stood, has its name, and lists all of them as origins.
    Facts of values stay; those of inner values are dropped. A graph without matches comes back as it is.
    """
    return recognise_and_say(graph, runtime=runtime, rules=rules, explained=False)[0]


def recognise_and_say(
    graph: InferredGraph,
    *,
    runtime: Runtime | str,
    rules: tuple[Pattern, ...] = PATTERNS,
    explained: bool,
    index: Index | None = None,
) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    """:func:`recognise`, and where ``explained`` :func:`explain`, in one search.

    ``index``: shared between the sizes of a model.
    """
    runtime = as_runtime(runtime)
    matches, said = _search(graph, runtime, rules, explained=explained, index=index)
    verdicts = tuple(said)
    bodies = {key: recognise(body, runtime=runtime, rules=rules) for key, body in graph.bodies.items()}
    if not matches and all(bodies[key] is body for key, body in graph.bodies.items()):
        return graph, verdicts
    if not matches:
        return replace(graph, bodies=bodies), verdicts
    replaced = {match.output: match for match in matches}
    gone = {node.name for match in matches for node in match.nodes}
    values = dict(graph.values)
    nodes: list[Node] = []
    for node in graph.graph.nodes:
        if node.name not in gone:
            nodes.append(node)
            continue
        match = next((replaced[name] for name in node.outputs if name in replaced), None)
        if match is None:
            for name in node.outputs:
                values.pop(name, None)
            continue
        nodes.append(_replacement(match, node))
    return replace(graph, graph=replace(graph.graph, nodes=tuple(nodes)), values=values, bodies=bodies), verdicts


def explain(
    graph: InferredGraph, *, runtime: Runtime | str, rules: tuple[Pattern, ...] = PATTERNS
) -> tuple[Verdict, ...]:
    """What each rule said at each of its anchors in this graph (not in bodies), in the graph's order."""
    return tuple(_search(graph, as_runtime(runtime), rules, explained=True)[1])


def _replacement(match: Match, last: Node) -> Node:
    origins: list[Origin] = []
    for node in sorted(match.nodes, key=lambda node: node.name == last.name):
        origins.extend(node.stands_for)
    return Node(
        name=last.name,
        op_type=match.op_type,
        domain=match.domain,
        version=last.version if match.version is None else match.version,
        inputs=match.inputs,
        outputs=(match.output,),
        attributes=match.attributes,
        origins=tuple(dict.fromkeys(origins)),
    )


def _search(
    graph: InferredGraph,
    runtime: Runtime,
    patterns: tuple[Pattern, ...],
    *,
    explained: bool,
    index: Index | None = None,
) -> tuple[list[Match], list[Verdict]]:
    rules = [pattern for pattern in patterns if runtime.name in pattern.runtimes]
    wanted = {anchor for rule in rules for anchor in rule.anchors}
    anchors: dict[str, list[tuple[int, Node]]] = defaultdict(list)
    computed: set[str] | None = set() if runtime.computes_constants else None
    for place, node in enumerate(graph.graph.nodes):
        is_wanted = node.op_type in wanted and not node.domain
        if not is_wanted and computed is None:
            continue  # most
        value = graph.values.get(node.outputs[0]) if node.outputs else None
        is_run = value is None or not (value.is_constant or value.data is not None)
        if not is_run and computed is not None:
            is_run = is_computed(node, [graph.values.get(name) for name in node.outputs], computed)
        if is_run and is_wanted:
            anchors[node.op_type].append((place, node))
    if not anchors:
        return [], []
    search = (Index() if index is None else index).search(graph, runtime)
    matches: list[Match] = []
    verdicts: list[tuple[int, Verdict]] = []
    for rule in rules:
        for place, node in (item for anchor in rule.anchors for item in anchors.get(anchor, ())):
            if node.name in search.taken:
                continue
            found = rule.find(search, node)
            # asked where it matters only: what is never asked of a release can't change what it does (release_effects)
            if (explained or isinstance(found, Match)) and rule.name in runtime.lacks:
                break
            if isinstance(found, Match):
                matches.append(found)
                search.taken.update(inner.name for inner in found.nodes)
            if explained:
                merged = tuple(inner.name for inner in found.nodes) if isinstance(found, Match) else ()
                reason = None if isinstance(found, Match) else found
                verdicts.append((place, Verdict(rule=rule.name, node=node.name, merged=merged, reason=reason)))
    return matches, [verdict for _, verdict in sorted(verdicts, key=lambda item: item[0])]


@dataclass(slots=True)
class Index:
    """Who makes and who reads a value of a graph, which hangs on no sizes."""

    graph: Graph | None = None
    producers: dict[str, Node] = field(default_factory=dict)
    consumers: dict[str, list[Node]] = field(default_factory=dict)

    def search(self, graph: InferredGraph, runtime: Runtime) -> Search:
        """A search of ``graph``, which is indexed unless it is the one before with other sizes."""
        if self.graph is not graph.graph:
            self._read(graph.graph)
        return Search(
            graph=graph.graph,
            values=graph.values,
            producers=self.producers,
            consumers=self.consumers,
            kept=kept_values(graph),
            executor=runtime,
            fixed=all(isinstance(size, int) for declared in graph.graph.inputs for size in declared.shape or ()),
        )

    def _read(self, graph: Graph) -> None:
        producers: dict[str, Node] = {}
        consumers: dict[str, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for name in node.outputs:
                producers[name] = node
            for name in dict.fromkeys(node.inputs) if len(node.inputs) > 1 else node.inputs:
                consumers[name].append(node)
        self.graph, self.producers, self.consumers = graph, producers, consumers
