"""Where ONNX Runtime rounds that a quantised file doesn't: a DequantizeLinear for each reader, pairs around movements.

Its optimiser prepares such files for the passes of its CPU provider that fold pairs (EnsureUniqueDQForNodeUnit and
QDQPropagationTransformer, level 1). The CUDA provider folds none, so that what was added runs. Seen in the graphs of
onnxruntime-gpu 1.31.1 on stand-ins for CUDA's libraries (``benchmarks/cuda_standin.py``), one small graph a rule.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from neusight_onnx.graph.model import InferredGraph, Node, Value, kept_values, made_name

PASSED = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that a pair with one constant scale is written on the other side of, too. Flatten, Gather, Split and
Concat aren't among them."""
_DOMAINS = ("", "com.microsoft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """How a tensor is rounded: operands and attributes of its QuantizeLinear and DequantizeLinear.

    ``rounding``: the node of the file that the pair repeats. ``stored``: a value of the quantised type.
    """

    rounding: Node
    stored: Value


def with_pairs_of_their_own(graph: InferredGraph) -> InferredGraph:
    """``graph`` with them, in bodies of control flow, too; the same graph where nothing is dequantised."""
    bodies = {key: with_pairs_of_their_own(body) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    if not any(is_rounding(node, "DequantizeLinear") for node in graph.graph.nodes):
        return graph
    values = dict(graph.values)
    kept = kept_values(graph)
    nodes = _before_movements(graph.graph.nodes, values, kept)
    nodes = _behind_movements(nodes, values)
    nodes = _one_for_each_reader(nodes, values, kept)
    return replace(graph, graph=replace(graph.graph, nodes=tuple(nodes)), values=values)


def is_rounding(node: Node, op_type: str) -> bool:
    """Whether a node is a QuantizeLinear or DequantizeLinear, as ``op_type`` says."""
    return node.op_type == op_type and node.domain in _DOMAINS


def has_one_scale(node: Node, values: Mapping[str, Value]) -> bool:
    """Whether a QuantizeLinear or DequantizeLinear has one scale, which is a constant as is its zero point."""
    given = [values.get(name) for name in node.inputs[1:] if name]
    return all(
        value is not None and value.is_constant and value.shape is not None and value.element_count == 1
        for value in given
    )


def _passes(node: Node) -> bool:
    return node.op_type in PASSED and not node.domain


def _before_movements(nodes: Iterable[Node], values: dict[str, Value], kept: frozenset[str]) -> list[Node]:
    """Pairs in front of what moves elements to a QuantizeLinear, its only reader, and on towards where they are made.

    Not where the elements come from a DequantizeLinear or have other readers.
    """
    nodes = list(nodes)
    reads = Counter(name for node in nodes for name in node.inputs if name)
    dequantised = {node.outputs[0] for node in nodes if is_rounding(node, "DequantizeLinear")}
    rounded: dict[str, Pair] = {}
    found: list[Node] = []
    for node in reversed(nodes):
        if is_rounding(node, "QuantizeLinear") and has_one_scale(node, values):
            rounded[node.inputs[0]] = Pair(rounding=node, stored=values[node.outputs[0]])
        source = node.inputs[0] if node.inputs else ""
        pair = rounded.get(node.outputs[0]) if _passes(node) else None
        alone = all(reads[name] == 1 and name not in kept for name in (source, *node.outputs[:1]))
        if pair is None or not alone or source in dequantised or values[source].is_constant:
            found.append(node)
            continue
        behind = made_name(source, "rounded before")
        found.append(replace(node, inputs=(behind, *node.inputs[1:])))
        found += reversed(rounding(source, behind, pair, values))
        rounded[source] = pair
    found.reverse()
    return found


def _behind_movements(nodes: Iterable[Node], values: dict[str, Value]) -> list[Node]:
    """Pairs behind what moves dequantised elements, unless a QuantizeLinear is there, and on towards their readers."""
    nodes = list(nodes)
    quantised = {node.inputs[0] for node in nodes if is_rounding(node, "QuantizeLinear")}
    dequantised: dict[str, Pair] = {}
    found: list[Node] = []
    for node in nodes:
        if is_rounding(node, "DequantizeLinear"):
            stored = values[node.inputs[0]]
            if not stored.is_constant and has_one_scale(node, values):
                dequantised[node.outputs[0]] = Pair(rounding=node, stored=stored)
        pair = dequantised.get(node.inputs[0]) if _passes(node) else None
        if pair is None or node.outputs[0] in quantised or len(node.outputs) > 1:
            found.append(node)
            continue
        written = node.outputs[0]
        before = made_name(written, "before rounding")
        values[before] = values[written]
        found.append(replace(node, outputs=(before,)))
        found += rounding(before, written, pair, values)
        dequantised[written] = pair
    return found


def rounding(source: str, target: str, pair: Pair, values: dict[str, Value]) -> list[Node]:
    """``target`` is ``source`` rounded as by ``pair``: a QuantizeLinear and a DequantizeLinear."""
    between = made_name(target, "quantised")
    values[target] = values[source]
    values[between] = replace(values[source], dtype=pair.stored.dtype, data=None, data_low=None)
    like = pair.rounding
    ends = (("QuantizeLinear", source, between), ("DequantizeLinear", between, target))
    return [
        replace(
            like,
            name=made_name(like.name, op_type, target),
            op_type=op_type,
            inputs=(read, *like.inputs[1:]),
            outputs=(written,),
            origins=like.stands_for,
        )
        for op_type, read, written in ends
    ]


def _one_for_each_reader(nodes: Iterable[Node], values: dict[str, Value], kept: frozenset[str]) -> list[Node]:
    """The first reader, or whoever takes the value out of the graph, keeps the DequantizeLinear of the file.

    Identities, by which exporters share a bias of several convolutions, are gone before: each of their readers is one.
    """
    nodes = list(nodes)
    own = {node.outputs[0]: node for node in nodes if is_rounding(node, "DequantizeLinear")}
    copies: defaultdict[str, list[Node]] = defaultdict(list)
    taken = set(kept)
    shared: dict[str, str] = {}
    places: dict[str, int] = {}
    read: list[Node] = []
    for node in nodes:
        source = shared.get(node.inputs[0], node.inputs[0]) if node.inputs else ""
        if node.op_type == "Identity" and not node.domain and source in own and node.outputs[0] not in kept:
            shared[node.outputs[0]] = source
            of_file = places[own[source].name]
            read[of_file] = replace(read[of_file], origins=(*read[of_file].stands_for, *node.stands_for))
            continue
        inputs = [shared.get(name, name) for name in node.inputs]
        for place, name in enumerate(inputs):
            if name not in own:
                continue
            if name not in taken:
                taken.add(name)
                continue
            inputs[place] = made_name(name, "again", str(len(copies[name])))
            values[inputs[place]] = values[name]
            copies[name].append(
                replace(
                    own[name],
                    name=made_name(own[name].name, "again", str(len(copies[name]))),
                    outputs=(inputs[place],),
                    origins=own[name].stands_for,
                )
            )
        places[node.name] = len(read)
        read.append(node if inputs == list(node.inputs) else replace(node, inputs=tuple(inputs)))
    return [each for node in read for each in (node, *(copies.get(node.outputs[0], ()) if node.outputs else ()))]
