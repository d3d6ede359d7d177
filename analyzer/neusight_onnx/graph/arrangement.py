"""The nodes of one raw graph in topological order, and what the graph takes from around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from neusight_onnx.errors import ModelError, shown
from neusight_onnx.graph.raw import RawFunction, RawGraph, RawNode, Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """The nodes of one graph in topological order, and the names that it takes from outside."""

    nodes: list[RawNode]
    captures: tuple[str, ...]
    moved: bool


def arrange(known: dict[int, Arranged], graph: RawGraph | RawFunction, inputs: list[str], where: str) -> Arranged:
    """Sorts the nodes of ``graph`` if they need it (ties as in the file) and finds what it captures from outside.

    ``known``: what was arranged before, by the ``id`` of the raw graph; filled here. Raises ModelError for a cycle and
    for a value assigned twice.
    """
    done = known.get(id(graph))
    if done is not None:
        return done
    seen = set(inputs)
    outputs: list[str]
    if isinstance(graph, RawGraph):
        seen.update(graph.initializers)
        outputs = [output.name for output in graph.outputs]
    else:
        outputs = graph.outputs
    if "" in seen or "" in outputs:
        raise ModelError(f"declares an input or output without a name{where}")
    seen.add("")
    missed: dict[str, None] = {}
    reads: list[tuple[str, ...]] = []
    for node in graph.nodes:
        read = node.inputs if node.plain else _reads(known, node, where)
        reads.append(read)
        for name in read:
            if name not in seen:
                missed[name] = None
        for name in node.outputs:
            if name in seen:
                if name == "":
                    continue
                raise ModelError(
                    f"assigns the value {shown(name)!r} twice, the second time in node "
                    f"{shown(node.name or node.op_type)!r}{where}; every value may have one source only"
                )
            seen.add(name)
    produced_late = {name for name in missed if name in seen}
    nodes = graph.nodes
    if produced_late:
        nodes = _sorted(graph.nodes, reads, where)
    captures = tuple(name for name in missed if name not in produced_late)
    captures += tuple(name for name in dict.fromkeys(outputs) if name not in seen and name not in missed)
    result = Arranged(nodes=nodes, captures=captures, moved=bool(produced_late))
    known[id(graph)] = result
    return result


def _reads(known: dict[int, Arranged], node: RawNode, where: str) -> tuple[str, ...]:
    """What a node reads, with what its subgraphs take from around it."""
    names = dict.fromkeys(node.inputs)
    for body in raw_bodies(node):
        inputs = [declared.name for declared in body.inputs]
        names.update(dict.fromkeys(arrange(known, body, inputs, where).captures))
    return tuple(names)


def _sorted(nodes: list[RawNode], reads: list[tuple[str, ...]], where: str) -> list[RawNode]:
    """Depth first from each node in the file's order, without recursion."""
    producer = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    new, open_, done = 0, 1, 2
    state = bytearray(len(nodes))
    order: list[RawNode] = []
    for root in range(len(nodes)):
        if state[root] != new:
            continue
        state[root] = open_
        stack = [(root, iter(reads[root]))]
        while stack:
            index, pending = stack[-1]
            for name in pending:
                before = producer.get(name)
                if before is None or state[before] == done:
                    continue
                if state[before] == open_:
                    node = nodes[before]
                    raise ModelError(
                        f"has a cycle through the value {shown(name)!r} of node "
                        f"{shown(node.name or node.op_type)!r}{where}; a graph must be free of cycles"
                    )
                state[before] = open_
                stack.append((before, iter(reads[before])))
                break
            else:
                state[index] = done
                order.append(nodes[index])
                stack.pop()
    return order


def with_bodies(nodes: Sequence[RawNode]) -> Iterator[RawNode]:
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        if not node.plain:
            for body in raw_bodies(node):
                pending.extend(body.nodes)


def raw_bodies(node: RawNode) -> Iterator[RawGraph]:
    for value in node.attributes.values():
        if isinstance(value, RawGraph):
            yield value
        elif isinstance(value, tuple) and not isinstance(value, Reference):
            yield from (body for body in value if isinstance(body, RawGraph))
