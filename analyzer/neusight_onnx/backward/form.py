"""The graph as training runs it: batch normalization by batch statistics, dropout where it drops something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from neusight_onnx.backward.plan import DROPOUT_KINDS, Dropout, Training
from neusight_onnx.backward.recurrent_weights import REORDERED, with_held_weights
from neusight_onnx.backward.registry import has_gradient, is_differentiable
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.folded_norms import STATISTICS_VERSION, unfolded
from neusight_onnx.graph.model import InferredGraph, Node, Notice, Origin, Value, made_name
from neusight_onnx.lowering.attention.standard import DROPS

OWN = "neusight"
_KINDS = {
    "attention": "behind the softmax of attention",
    "residual": "at the end of residual branches",
    "embedding": "behind the embeddings",
    "inside": "within attention",
}
_CALLS = frozenset({("", "Attention"), (OWN, "ScaledDotProductAttention")})
"""Operators that are one call of attention, which drops weights itself."""
PRODUCTS = frozenset({"MatMul", "Linear", "Gemm"})
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast", "Transpose"})
LAZY = VIEWS | {"Slice", "Split", "Expand", REORDERED}
SOFTMAXES = frozenset({"Softmax", "MaskedSoftmax"})
NORMS = frozenset({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The graph that is trained, and what was assumed to make it so."""

    graph: InferredGraph
    said: tuple[str, ...]


def as_trained(graph: InferredGraph, plan: Training) -> Form:
    """``graph`` (recognised) as training runs it forward; bodies of control flow stay as they are."""
    said: list[str] = []
    warnings: list[Notice] = []
    graph, folded = unfolded(graph)
    if folded:
        said.append(
            f"training: {_count(folded, 'convolution')} got a batch normalization back that the export folded into "
            f"{'it' if folded == 1 else 'them'} (the exporter named the weights, no module does)"
        )
    graph = with_held_weights(graph)
    nodes = list(graph.graph.nodes)
    norms = 0
    for index, node in enumerate(nodes):
        if node.op_type == "BatchNormalization" and not node.domain:
            attributes = {**node.attributes, "training_mode": 1}
            version = max(node.version, STATISTICS_VERSION)
            nodes[index] = replace(node, attributes=attributes, version=version, outputs=node.outputs[:1])
            norms += 1
    if norms:
        said.append(
            f"training: {norms:,} batch {'normalization takes' if norms == 1 else 'normalizations take'} the "
            "statistics of the batch, as in training mode"
        )
    values = dict(graph.values)
    for name in _computed_weights(nodes, graph):
        values[name] = replace(values[name], is_constant=False)
    plan_dropout = plan.dropout
    if plan_dropout is not None and plan_dropout.is_off:
        said.append("training: no dropout (--dropout off)")
    else:
        nodes, kept = _own_dropout(nodes, values, graph, by_file=plan_dropout is None)
        if kept:
            said.append(f"training: dropout runs at the {_places(kept)} where the file has Dropout nodes")
        elif plan_dropout is None:
            said.append(
                "training: no dropout, for the file has no Dropout nodes (--dropout 0.1 puts it where models have it)"
            )
    if plan_dropout is not None and not plan_dropout.is_off:
        found = dropout_places(replace(graph, graph=replace(graph.graph, nodes=tuple(nodes))))
        places = [name for name, kind in found.items() if getattr(plan_dropout, kind)]
        counts = Counter(found[name] for name in places)
        if plan_dropout.attention:
            calls = [index for index, node in enumerate(nodes) if (node.domain, node.op_type) in _CALLS]
            for index in calls:
                nodes[index] = replace(nodes[index], attributes={**nodes[index].attributes, DROPS: 1})
            counts.update({"inside": len(calls)} if calls else {})
        if counts:
            where = ", ".join(f"{count:,} {_KINDS[kind]}" for kind, count in counts.items())
            said.append(f"training: dropout is put where the file has none: {where} (--dropout)")
        if not kept:
            warnings += _without_place(plan_dropout, counts)
        nodes = list(_inserted(nodes, frozenset(places), values))
    warned = (*graph.warnings, *warnings)
    changed = replace(graph, graph=replace(graph.graph, nodes=tuple(nodes)), values=values, warnings=warned)
    return Form(graph=changed, said=tuple(said))


def _without_place(dropout: Dropout, counts: Mapping[str, int]) -> Iterator[Notice]:
    """Warns of kinds of dropout that were asked for and that no place was found for."""
    lacking = [
        kind
        for kind in DROPOUT_KINDS
        if getattr(dropout, kind) and not counts.get(kind) and not (kind == "attention" and counts.get("inside"))
    ]
    if lacking:
        where = " or ".join(_KINDS[kind] for kind in lacking)
        yield Notice(code="dropout-without-place", message=f"--dropout: no place was found {where}")


def _computed_weights(nodes: Iterable[Node], graph: InferredGraph) -> list[str]:
    """Values that inference computes once from weights, and training in every run: the weights change.

    Only what is computed from a matrix: tables of positions, scales and masks are made of vectors and numbers. Views
    cost nothing either way and stay as they are.
    """
    derived = {
        name
        for name, tensor in graph.graph.initializers.items()
        if is_differentiable(tensor.dtype) and sum(size > 1 for size in tensor.shape) > 1
    }
    changed: dict[str, None] = {}
    for node in nodes:
        if derived.isdisjoint(node.inputs) or not has_gradient(node.domain, node.op_type):
            continue
        for name in node.outputs:
            value = graph.values.get(name)
            if value is not None and value.is_constant and value.data is None and is_differentiable(value.dtype):
                derived.add(name)
                if node.op_type not in LAZY or not changed.keys().isdisjoint(node.inputs):
                    changed[name] = None
    return list(changed)


def _places(count: int) -> str:
    return _count(count, "place")


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _own_dropout(
    nodes: Iterable[Node], values: dict[str, Value], graph: InferredGraph, *, by_file: bool
) -> tuple[list[Node], int]:
    """The file's Dropout nodes as training runs them; one whose own rate is known to be 0 stays idle."""
    found = []
    count = 0
    for node in nodes:
        if node.op_type != "Dropout" or node.domain or (by_file and _own_rate(node, graph) == 0.0):
            found.append(node)
            continue
        found.append(_dropout(node.name, node.inputs[0], node.outputs[0], values, node.stands_for))
        count += 1
    return found, count


def _own_rate(node: Node, graph: InferredGraph) -> float | None:
    written = node.attributes.get("ratio")
    if isinstance(written, float | int):
        return float(written)
    if len(node.inputs) > 1 and (value := graph.values.get(node.inputs[1])) is not None and value.data is not None:
        return float(value.data.reshape(-1)[0].item())
    return None


def _dropout(name: str, source: str, target: str, values: dict[str, Value], origins: tuple[Origin, ...]) -> Node:
    """A Dropout that writes its mask; the value of the mask is made known."""
    mask = made_name(target, "mask")
    values[mask] = Value(dtype=DataType.BOOL, shape=values[source].shape)
    return Node(
        name=name, op_type="Dropout", domain=OWN, version=1, inputs=(source,), outputs=(target, mask), origins=origins
    )


def _inserted(nodes: Iterable[Node], places: frozenset[str], values: dict[str, Value]) -> Iterator[Node]:
    """``nodes`` with a Dropout behind each value of ``places``, which all later readers take the result of."""
    renamed: dict[str, str] = {}
    for node in nodes:
        if renamed and not renamed.keys().isdisjoint(node.inputs):
            node = replace(node, inputs=tuple(renamed.get(name, name) for name in node.inputs))
        yield node
        for name in node.outputs:
            if name in places:
                dropped = made_name(name, "dropped")
                values[dropped] = values[name]
                renamed[name] = dropped
                yield _dropout(made_name(node.name, "dropout"), name, dropped, values, node.stands_for)


def dropout_places(graph: InferredGraph) -> dict[str, str]:
    """The values behind which models drop elements, by their kind, in the graph's order.

    The weights of attention: a Softmax whose only reader is a product. A branch of a residual sum: what its last
    product (a linear layer) gives. The embeddings: the sum of rows of tables, with the normalization behind them.
    None where a Dropout stands already, and none for a result of the graph.
    """
    nodes = graph.graph.nodes
    makers = {name: node for node in nodes for name in node.outputs if name}
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    results = {declared.name for declared in graph.graph.outputs}
    tables = _embedded(graph)
    found: dict[str, str] = {}
    for node in nodes:
        for name in node.outputs[:1]:
            following = readers.get(name, [])
            if name in results or not following or any(other.op_type == "Dropout" for other in following):
                continue
            if node.op_type in SOFTMAXES and len(_shape(graph, name)) >= 3 and _only_product(name, readers):
                found[name] = "attention"
            elif node.op_type in PRODUCTS and _is_branch(name, graph, makers, readers):
                found[name] = "residual"
            elif name in tables and any(_leaves(other, tables) for other in following):
                found[name] = "embedding"
    return found


def _shape(graph: InferredGraph, name: str) -> tuple[int, ...]:
    value = graph.values.get(name)
    return () if value is None or value.shape is None else value.shape


def _ends(name: str, readers: dict[str, list[Node]]) -> list[tuple[Node, str]]:
    """Who reads a value behind views, and the name that each of them reads."""
    found: list[tuple[Node, str]] = []
    pending = [name]
    while pending:
        current = pending.pop()
        for node in readers.get(current, []):
            if node.op_type in VIEWS and node.inputs[0] == current:
                pending += node.outputs
            else:
                found.append((node, current))
    return found


def _only_product(name: str, readers: dict[str, list[Node]]) -> bool:
    ends = _ends(name, readers)
    return len(ends) == 1 and ends[0][0].op_type == "MatMul"


def _is_branch(name: str, graph: InferredGraph, makers: dict[str, Node], readers: dict[str, list[Node]]) -> bool:
    """Whether a linear layer's result goes nowhere but into a sum with an activation of the same shape."""
    product = makers[name]
    weight = graph.values.get(product.inputs[1])
    ends = _ends(name, readers)
    if weight is None or not weight.is_constant or len(ends) != 1:
        return False
    node, read = ends[0]
    if node.op_type != "Add" or node.domain or len(node.inputs) != 2:
        return False
    other = node.inputs[1] if node.inputs[0] == read else node.inputs[0]
    value = graph.values.get(other)
    if value is None or value.is_constant or other not in makers or other == read:
        return False
    return value.shape == graph.values[read].shape


def _embedded(graph: InferredGraph) -> frozenset[str]:
    """Values that are rows of tables, their sums, and the normalization behind those."""
    uses = Counter(name for node in graph.graph.nodes for name in dict.fromkeys(node.inputs))
    found: set[str] = set()
    for node in graph.graph.nodes:
        if node.op_type == "Gather" and not node.domain:
            table = graph.values.get(node.inputs[0])
            places = graph.values.get(node.inputs[1])
            is_table = table is not None and table.is_constant and table.dtype is not None and table.dtype.is_float
            many = places is not None and places.shape is not None and places.element_count > 1
            if is_table and many and len(_shape(graph, node.inputs[0])) == 2:
                found.update(node.outputs)
        elif (node.op_type == "Add" and found.issuperset(node.inputs)) or (
            node.op_type in NORMS and node.inputs[0] in found and uses[node.inputs[0]] == 1
        ):
            found.update(node.outputs[:1])
    return frozenset(found)


def _leaves(node: Node, tables: frozenset[str]) -> bool:
    return not any(name in tables for name in node.outputs)
