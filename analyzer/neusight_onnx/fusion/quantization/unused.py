"""What folding leaves without users goes, and the nodes that stand for it say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neusight_onnx.fusion.patterns.search import LONGEST_CHAIN
from neusight_onnx.fusion.quantization.folding import DOMAINS, Folding
from neusight_onnx.graph.model import Node, Origin, Value


def _with_idle(node: Node, idle: Mapping[str, Node]) -> tuple[Origin, ...]:
    """The node's origins, and what it read that is left out and that no other node accounts for."""
    extra: list[Node] = []
    waiting = [name for name in node.inputs if name in idle]
    while waiting:
        extra.append(idle[waiting.pop()])
        waiting += [name for name in extra[-1].inputs[:1] if name in idle]
    if not extra:
        return node.origins
    own = node.stands_for
    more = [origin for item in extra for origin in item.stands_for]
    return tuple(dict.fromkeys((*own, *more)))


def without_unused(nodes: list[Node], folding: Folding) -> list[Node]:
    """Leaves out each DequantizeLinear (and Identity) whose users were all folded; forgets values that are gone.

    What is known before the run uses nothing in it: Shape of a dequantised value is Shape of the quantised one.
    """
    used = set(folding.kept)
    dropped: dict[str, str] = {}
    idle: dict[str, Node] = {}
    left = []
    for node in reversed(nodes):
        is_idle = node.op_type == "Identity" and not node.domain
        is_idle |= node.op_type == "DequantizeLinear" and node.domain in DOMAINS
        if is_idle and used.isdisjoint(node.outputs) and folding.consumers.get(node.outputs[0]):
            dropped[node.outputs[0]] = node.inputs[0]
            idle[node.outputs[0]] = node
            continue
        left.append(node)
        if not all(_is_known(folding.values.get(name)) for name in node.outputs if name):
            used.update(node.inputs)
    left.reverse()
    if dropped:
        claimed = {origin.name for node in left for origin in node.origins}
        idle = {name: node for name, node in idle.items() if node.name not in claimed}
        left = [
            replace(
                node,
                inputs=tuple(_source(name, dropped) for name in node.inputs),
                origins=_with_idle(node, idle),
            )
            if not dropped.keys().isdisjoint(node.inputs)
            else node
            for node in left
        ]
    written = {name for node in left for name in node.outputs}
    gone = folding.gone | set(folding.replaced)
    for name, node in folding.producers.items():
        if name not in written and (node.name in gone or name in dropped):
            folding.values.pop(name, None)
    return left


def _is_known(value: Value | None) -> bool:
    return value is not None and value.data is not None


def _source(name: str, dropped: Mapping[str, str]) -> str:
    for _ in range(LONGEST_CHAIN):
        if name not in dropped:
            break
        name = dropped[name]
    return name
