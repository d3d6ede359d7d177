"""Latencies as node data for Google's Model Explorer: an overlay that colours the nodes of the graph.

Model Explorer has no reader for ONNX of its own; its ONNX adapter is the package ``model-explorer-onnx``. Names are
those that its version 0.4.2 gives: the main graph bears its name in the file; a body of a Loop or Scan is a graph of
its own ("node/attribute"), the branches of an If lie in the graph around it ("node/attribute/name"), a function is
"[function]domain::name". A node without a name is "node", and of several with one name all but the first have a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from neusight_onnx.graph.source import Source, SourceGraph, SourceNode
from neusight_onnx.report.json_text import Json, json_text, rounded

_GRADIENT = ((0.0, "#f1f5fb"), (0.15, "#a9c9f5"), (0.5, "#f5b942"), (1.0, "#d9372c"))
"""From the least to the most of the overlay's values: pale, blue, amber, red; times are mostly small."""


@dataclass(slots=True, kw_only=True)
class _Ids:
    """Names given so far in a graph; ``counts`` number those that repeat, and are shared with its bodies."""

    counts: Counter[str]
    used: set[str] = field(default_factory=set)

    def of(self, node: SourceNode) -> str:
        found = name = node.label or "node"
        while found in self.used:
            self.counts[name] += 1
            found = f"{name}_{self.counts[name]}"
        self.used.add(found)
        return found


def to_model_explorer(source: Source, latency_us: Callable[[SourceNode], float | None], *, title: str) -> str:
    """JSON text of the overlay: microseconds by graph and node; nodes without a latency are left out."""
    graphs: dict[str, dict[str, Json]] = {}
    main = source.graph.name or "<main>"
    _collect(source.graph, main, "", _Ids(counts=Counter()), latency_us, graphs, nested=True)
    for (domain, name, overload), function in source.functions.items():
        identifier = f"[function]{domain}::{name}" + (f"::{overload}" if overload else "")
        _collect(function, identifier, "", _Ids(counts=Counter()), latency_us, graphs, nested=False)
    return json_text({name: _overlay(results, title) for name, results in graphs.items() if results or name == main})


def _collect(
    graph: SourceGraph,
    graph_id: str,
    within: str,
    ids: _Ids,
    latency_us: Callable[[SourceNode], float | None],
    graphs: dict[str, dict[str, Json]],
    *,
    nested: bool,
) -> None:
    """Adds the nodes of ``graph`` to ``graphs``; ``within`` goes before their ids, ``nested``: so do their bodies."""
    results = graphs.setdefault(graph_id, {})
    for node in graph.nodes:
        node_id = within + ids.of(node)
        value = latency_us(node)
        if value is not None:
            results[node_id] = {"value": rounded(value)}
        for attribute, bodies in node.bodies.items() if nested else ():
            for body in bodies:
                inner = _Ids(counts=ids.counts)
                place = f"{node_id}/{attribute}"
                if node.op_type == "If":
                    _collect(body, graph_id, f"{place}/", inner, latency_us, graphs, nested=True)
                else:
                    _collect(body, place, "", inner, latency_us, graphs, nested=True)


def _overlay(results: Mapping[str, Json], title: str) -> dict[str, Json]:
    return {
        "name": title,
        "results": dict(results),
        "gradient": [{"stop": stop, "bgColor": colour} for stop, colour in _GRADIENT],
    }
