"""The nodes of a file as they stand in it, and what the model calls them: for what is told of the user's own file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neusight_onnx.graph.functions import Places
from neusight_onnx.graph.raw import FunctionKey, RawGraph, RawNode
from neusight_onnx.graph.read import opened_model, read_places


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """A node of the file. ``label`` is its name there, perhaps empty; ``names`` are those of the model's nodes that
    came from it: one, or one for each call of the function that it stands in. ``bodies`` by the attribute's name."""

    label: str
    op_type: str
    outputs: tuple[str, ...]
    names: tuple[str, ...]
    bodies: Mapping[str, tuple[SourceGraph, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGraph:
    """A graph, body or function of the file, nodes in the file's order.

    ``values``: what the model calls the values that its nodes make; empty for functions, and for bodies inside of them
    that are built more than once.
    """

    name: str
    nodes: tuple[SourceNode, ...]
    outputs: frozenset[str]
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file. ``owners``: of a node of the model inside a function or body, the node that calls or holds it."""

    graph: SourceGraph
    functions: Mapping[FunctionKey, SourceGraph]
    owners: Mapping[str, str]


def read_source(path: str | Path) -> Source:
    """The nodes of the file ``path``; raises ModelError as :func:`~neusight_onnx.graph.read.read_model` does."""
    with opened_model(Path(path)) as buffer:
        raw, places = read_places(buffer, Path(path))
        graph = _graph(raw.graph, places, {})
        made = {name: name for node in graph.nodes for name in node.outputs if name}
        return Source(
            graph=SourceGraph(name=graph.name, nodes=graph.nodes, outputs=graph.outputs, values=made),
            functions={
                key: SourceGraph(
                    name=function.name,
                    nodes=tuple(_node(node, places) for node in function.nodes),
                    outputs=frozenset(function.outputs),
                    values={},
                )
                for key, function in raw.functions.items()
            },
            owners=places.owners,
        )


def _graph(raw: RawGraph, places: Places, values: Mapping[str, str]) -> SourceGraph:
    return SourceGraph(
        name=raw.name,
        nodes=tuple(_node(node, places) for node in raw.nodes),
        outputs=frozenset(declared.name for declared in raw.outputs),
        values=values,
    )


def _node(raw: RawNode, places: Places) -> SourceNode:
    bodies: dict[str, tuple[SourceGraph, ...]] = {}
    if not raw.plain:
        for name, value in raw.attributes.items():
            graphs = (value,) if isinstance(value, RawGraph) else value if isinstance(value, tuple) else ()
            found = [_body(graph, places) for graph in graphs if isinstance(graph, RawGraph)]
            if found:
                bodies[name] = tuple(found)
    return SourceNode(
        label=raw.name,
        op_type=raw.op_type,
        outputs=raw.outputs,
        names=tuple(places.nodes.get(id(raw), ())),
        bodies=bodies,
    )


def _body(raw: RawGraph, places: Places) -> SourceGraph:
    built = places.values.get(id(raw), [])
    return _graph(raw, places, built[0] if len(built) == 1 else {})
