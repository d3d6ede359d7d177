"""Where TensorRT rounds: QuantizeLinear as early, DequantizeLinear as late as operators that hand elements on allow.

Its developer guide ("Working with Quantized Types") says that the builder delays dequantisation and advances
quantisation over what commutes with them. Engines of TensorRT for RTX 1.7, built for compute capabilities 7.5 to 12.0,
show which operators these are (``benchmarks/trt_quantized.py``). Here a pair is written where the rounding happens;
what then stands between pairs of one scale :func:`~neusight_onnx.fusion.quantization.fold.fold_quantization` makes an
operator on the quantised type. Scales that are one constant move, those of channels and blocks stay.

A rounding moves to the product that makes a value, which writes it in few bits. Where a generated kernel makes it, a
copy, a concatenation or what else stands between is in that kernel, and the rounding stays: its bytes are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from neusight_onnx.fusion.patterns.search import LONGEST_CHAIN, OWN
from neusight_onnx.fusion.quantization.pairs import Pair, has_one_scale, is_rounding, rounding
from neusight_onnx.fusion.quantization.products import ACTIVATIONS, PRODUCTS
from neusight_onnx.graph.model import InferredGraph, Node, Value, kept_values, made_name

COMMUTING = frozenset(
    {"DepthToSpace", "Expand", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze"}
    | {"Tile", "Transpose", "Unsqueeze"}
)
"""Operators that give elements of their first operand. Concat gives those of all, Resize those of the nearest places,
Pad zeros besides."""

Key = tuple[object, ...]
"""What two QuantizeLinear or DequantizeLinear have in common that round alike: type, scale, zero point."""


@dataclass(frozen=True, slots=True)
class _Index:
    values: dict[str, Value]
    makers: Mapping[str, Node]
    readers: Mapping[str, list[Node]]
    kept: frozenset[str]


def with_moved_quantization(graph: InferredGraph) -> InferredGraph:
    """``graph`` with them where TensorRT's builder has them, in bodies of control flow, too; the same graph where
    nothing is quantised."""
    bodies = {key: with_moved_quantization(body) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    nodes = graph.graph.nodes
    if not any(is_rounding(node, "QuantizeLinear") for node in nodes):
        return graph
    values = dict(graph.values)
    kept = kept_values(graph)
    nodes = tuple(_once(nodes, values, kept))
    nodes = tuple(_earlier(nodes, values, kept))
    nodes = tuple(_later(nodes, values, kept))
    return replace(graph, graph=replace(graph.graph, nodes=nodes), values=values)


def _indexed(nodes: Iterable[Node], values: dict[str, Value], kept: frozenset[str]) -> _Index:
    makers: dict[str, Node] = {}
    readers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        makers.update((name, node) for name in node.outputs if name)
        for name in dict.fromkeys(node.inputs):
            readers[name].append(node)
    return _Index(values, makers, readers, kept)


def _key_of(node: Node, values: Mapping[str, Value]) -> Key | None:
    """How a QuantizeLinear or DequantizeLinear rounds, where one constant scale says it all."""
    if not has_one_scale(node, values):
        return None
    stored = values.get(node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0])
    if stored is None or stored.dtype is None:
        return None
    known = [values[name].data for name in node.inputs[1:] if name]
    # a zero point that is left out is 0, the only one that an engine takes
    numbers = [name if data is None else data.item() for name, data in zip(node.inputs[1:], known, strict=False)]
    return (stored.dtype, *numbers[:1], *(number for number in numbers[1:] if number))


def _moved(node: Node, values: Mapping[str, Value]) -> tuple[str, ...]:
    """The operands whose elements a node hands on as they are; () for what computes."""
    if node.domain or not node.inputs:
        return ()
    if node.op_type == "Concat":
        return node.inputs
    if node.op_type == "MaxPool" and any(node.outputs[1:]):
        return ()
    if node.op_type in ("Resize", "Upsample"):
        return node.inputs[:1] if node.attributes.get("mode", "nearest") == "nearest" else ()
    if node.op_type == "Pad" and node.attributes.get("mode", "constant") == "constant":
        filled = values.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        is_zero = filled is None or (filled.data is not None and not filled.data.any())
        return node.inputs[:1] if is_zero and not node.attributes.get("value") else ()
    return node.inputs[:1] if node.op_type in COMMUTING else ()


def _once(nodes: Iterable[Node], values: dict[str, Value], kept: frozenset[str]) -> list[Node]:
    """One QuantizeLinear for all that round a value alike: quantisers write one in front of each product."""
    first: dict[tuple[str, Key], Node] = {}
    same: dict[str, str] = {}
    gone: list[tuple[str, Node]] = []
    found: list[Node] = []
    for node in nodes:
        inputs = tuple(same.get(name, name) for name in node.inputs)
        if inputs != node.inputs:
            node = replace(node, inputs=inputs)
        key = _key_of(node, values) if is_rounding(node, "QuantizeLinear") else None
        if key is not None:
            other = first.setdefault((node.inputs[0], key), node)
            if other is not node and node.outputs[0] not in kept:
                same[node.outputs[0]] = other.outputs[0]
                values.pop(node.outputs[0])
                gone.append((other.outputs[0], node))
                continue
        found.append(node)
    return _accounted(found, gone)


def _accounted(nodes: Iterable[Node], gone: Iterable[tuple[str, Node]]) -> list[Node]:
    """``nodes``, of which the first that reads a value, or else makes it, stands for the nodes that are ``gone``."""
    found = list(nodes)
    heirs: dict[str, int] = {}
    for place, node in enumerate(found):
        for name in node.inputs:
            heirs.setdefault(name, place)
    for place, node in enumerate(found):
        for name in node.outputs:
            heirs.setdefault(name, place)
    for name, node in gone:
        heir = found[heirs[name]]
        found[heirs[name]] = replace(heir, origins=tuple(dict.fromkeys((*heir.stands_for, *node.stands_for))))
    return found


# --- Earlier ----------------------------------------------------------------------------------------------------------


def _earlier(nodes: Iterable[Node], values: dict[str, Value], kept: frozenset[str]) -> list[Node]:
    """Pairs right behind the products whose results are all rounded by one QuantizeLinear, behind what commutes."""
    nodes = list(nodes)
    index = _indexed(nodes, values, kept)
    wanted: dict[str, tuple[Key, Node]] = {}
    for node in reversed(nodes):
        for name in node.outputs:
            found = _rounded_by_all(index, name, wanted)
            if found is not None:
                wanted[name] = found
    placed: list[Node] = []
    for node in nodes:
        placed.append(node)
        if len(node.outputs) != 1 or node.outputs[0] not in wanted:
            continue
        name = node.outputs[0]
        readers = index.readers[name]
        if all(is_rounding(reader, "QuantizeLinear") for reader in readers) or not _is_of_product(index, name):
            continue
        like = wanted[name][1]
        before = made_name(name, "before rounding")
        placed[-1] = replace(node, outputs=(before,))
        pair = Pair(rounding=like, stored=values[like.outputs[0]])
        values[before] = values[name]
        placed += rounding(before, name, pair, values)
    return placed


def _rounded_by_all(index: _Index, name: str, wanted: Mapping[str, tuple[Key, Node]]) -> tuple[Key, Node] | None:
    """The QuantizeLinear, and how it rounds, that all readers of a value come to; None where one computes."""
    readers = index.readers.get(name, ())
    if name in index.kept or not readers:
        return None
    found: tuple[Key, Node] | None = None
    for reader in readers:
        if is_rounding(reader, "QuantizeLinear") and reader.inputs[0] == name:
            key = _key_of(reader, index.values)
            given = [] if key is None else [(key, reader)]
        elif name in _moved(reader, index.values):
            given = [wanted[output] for output in reader.outputs if output in wanted]
            given = given if len(given) == sum(map(bool, reader.outputs)) else []
        else:
            given = []
        if not given or any(each[0] != (found or given[0])[0] for each in given):
            return None
        found = found or given[0]
    return found


def _is_of_product(index: _Index, name: str) -> bool:
    """Whether a product of quantised operands makes a value, with a quantised residual and an activation at most: then
    it rounds, too."""
    node = index.makers.get(name)
    for _ in range(LONGEST_CHAIN):
        if node is None or (name in index.kept):
            return False
        if node.op_type in PRODUCTS and node.domain in ("", OWN):
            return all(_dequantizer(index, operand) is not None for operand in node.inputs[:2])
        if node.domain:
            return False
        if node.op_type in ACTIVATIONS:
            name = node.inputs[0]
        elif node.op_type == "Add" and (quantised := [each for each in node.inputs if _dequantizer(index, each)]):
            name = next((each for each in node.inputs if each not in quantised), "")
        else:
            return False
        if len(index.readers.get(name, ())) != 1:
            return False
        node = index.makers.get(name)
    return False


def _dequantizer(index: _Index, name: str) -> Node | None:
    node = index.makers.get(name)
    return node if node is not None and is_rounding(node, "DequantizeLinear") else None


# --- Later ------------------------------------------------------------------------------------------------------------


def _later(nodes: Iterable[Node], values: dict[str, Value], kept: frozenset[str]) -> list[Node]:
    """Pairs behind what hands dequantised elements on, so that it has the quantised type; a QuantizeLinear of what was
    dequantised alike is nothing."""
    dequantised: dict[str, tuple[Key, Node]] = {}
    stored: dict[str, str] = {}
    gone: list[tuple[str, Node]] = []
    found: list[Node] = []
    for node in nodes:
        inputs = tuple(stored.get(name, name) for name in node.inputs)
        node = node if inputs == node.inputs else replace(node, inputs=inputs)
        if is_rounding(node, "QuantizeLinear") and node.inputs[0] in dequantised and node.outputs[0] not in kept:
            key, pair = dequantised[node.inputs[0]]
            if key == _key_of(node, values):
                stored[node.outputs[0]] = pair.inputs[0]
                gone.append((pair.inputs[0], node))
                continue
        found.append(node)
        if is_rounding(node, "DequantizeLinear"):
            key_of = _key_of(node, values)
            if key_of is not None and not values[node.inputs[0]].is_constant:
                dequantised[node.outputs[0]] = (key_of, node)
            continue
        moved = [dequantised.get(name) for name in _moved(node, values)]
        if not moved or moved[0] is None or any(each is None or each[0] != moved[0][0] for each in moved):
            continue
        key, pair = moved[0]
        found.pop()
        for name in [name for name in node.outputs if name]:
            before = made_name(name, "before rounding")
            values[before] = values[name]
            node = replace(node, outputs=tuple(before if each == name else each for each in node.outputs))
            pairs = rounding(before, name, Pair(rounding=pair, stored=values[pair.inputs[0]]), values)
            dequantised[name] = (key, pairs[1])
            found += pairs
        found.insert(len(found) - 2 * sum(map(bool, node.outputs)), node)
    return _without_unread(found, gone, kept)


def _without_unread(nodes: list[Node], gone: list[tuple[str, Node]], kept: frozenset[str]) -> list[Node]:
    """``nodes`` without each DequantizeLinear that nothing reads any more, if another node can stand for it."""
    read = {name for node in nodes for name in node.inputs} | kept
    idle = {node.name: node for node in nodes if is_rounding(node, "DequantizeLinear") and node.outputs[0] not in read}
    others = [node for node in nodes if node.name not in idle]
    present = {name for node in others for name in (*node.inputs, *node.outputs)}
    idle = {name: node for name, node in idle.items() if node.inputs[0] in present}
    gone += [(node.inputs[0], node) for node in idle.values()]
    return _accounted([node for node in nodes if node.name not in idle], gone)
