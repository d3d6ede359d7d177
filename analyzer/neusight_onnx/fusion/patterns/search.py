"""How a rule looks for its subgraph: an indexed graph, and the trail of the nodes that an attempt has walked over.

Each rule starts at an anchor, an operator that is rare in its subgraph, looks up and down from there, and either
finds everything or says why not. Nothing but the subgraph may use its inner values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isclose

import numpy as np

from neusight_onnx.fusion.known_shapes import Shape, known_shapes
from neusight_onnx.graph.model import Attribute, Graph, Node, Value, file_name
from neusight_onnx.runtime import Runtime

EVERYWHERE = frozenset({"eager", "compiled", "onnxruntime", "tensorrt"})
COMPILERS = frozenset({"compiled", "onnxruntime", "tensorrt"})
BUT_ORT = frozenset({"eager", "compiled", "tensorrt"})
"""Formulas that ONNX Runtime's optimiser leaves as they are written."""
OWN = "neusight"
"""Domain of operators that stand only in recognised graphs, where ai.onnx has none that fits."""
LONGEST_CHAIN = 16
"""Steps that a rule walks along equal operators: no real subgraph has as many, and time stays linear in the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The operator that replaces ``nodes``; the last of them in the graph's order writes its output."""

    nodes: tuple[Node, ...]
    op_type: str
    inputs: tuple[str, ...]
    output: str
    domain: str = ""
    version: int | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One rule: ``find`` is asked at every node whose operator is in ``anchors``, if the runtime is in ``runtimes``.

    ``name`` is what a release that doesn't have the rule yet is said to lack (:class:`~neusight_onnx.releases.Change`).
    """

    name: str
    anchors: tuple[str, ...]
    runtimes: frozenset[str]
    find: Callable[[Search, Node], Match | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a rule said of an anchor: the nodes that it merged, or why it did not."""

    rule: str
    node: str
    merged: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(slots=True)
class Search:
    """The graph, indexed: who makes and who uses a value, which values must stay, which nodes are merged already.

    ``executor``: whose rules search, ``runtime`` its name. ``fixed``: the file fixes all sizes of its inputs.
    """

    graph: Graph
    values: Mapping[str, Value]
    producers: dict[str, Node]
    consumers: dict[str, list[Node]]
    kept: frozenset[str]
    executor: Runtime
    fixed: bool = True
    taken: set[str] = field(default_factory=set)
    known: dict[str, Shape] | None = None

    @property
    def runtime(self) -> str:
        return self.executor.name

    def shape(self, name: str) -> tuple[int, ...] | None:
        value = self.values.get(name)
        return None if value is None else value.shape

    def number(self, name: str) -> float | None:
        """The value of a known scalar (or tensor of one element)."""
        value = self.values.get(name)
        if value is None or value.data is None or value.data.size != 1:
            return None
        if not (np.issubdtype(value.data.dtype, np.number) or value.data.dtype.kind == "V"):
            return None
        return float(value.data.reshape(-1)[0])

    def is_number(self, name: str, wanted: float) -> bool:
        found = self.number(name)
        # float16 constants hold three digits
        return found is not None and isclose(found, wanted, rel_tol=2e-3)

    def is_constant(self, name: str) -> bool:
        value = self.values.get(name)
        return value is not None and value.is_constant

    def knows(self, node: Node) -> bool:
        """Whether the release that searches takes a Pow of this version for part of a formula."""
        newest = self.executor.newest_pow
        return newest is None or node.version <= newest

    def known_shape(self, name: str) -> Shape | None:
        """Sizes and symbols that a runtime which knows no sizes before the run knows of a value; None: not its rank."""
        if self.known is None:
            self.known = known_shapes(self.graph, self.values)
        return self.known.get(name)

    def is_transparent(self, node: Node) -> bool:
        """Whether a node passes its input on: Identity, Dropout without a mask, a Cast to the same type."""
        if node.domain:
            return False
        if node.op_type == "Identity":
            return True
        if node.op_type == "Cast":
            source, target = self.values.get(node.inputs[0]), self.values.get(node.outputs[0])
            return source is not None and target is not None and source.dtype is target.dtype
        return False

    def is_float_cast(self, node: Node) -> bool:
        if node.domain or node.op_type != "Cast":
            return False
        source, target = self.values.get(node.inputs[0]), self.values.get(node.outputs[0])
        known = source is not None and target is not None and source.dtype is not None and target.dtype is not None
        return known and source.dtype.is_float and target.dtype.is_float  # type: ignore[union-attr]  # known says so


@dataclass(slots=True)
class Trail:
    """The nodes that an attempt has walked over, in the order of walking.

    ``casts``: casts between floating-point types are part of the subgraph, too.
    """

    search: Search
    casts: bool = False
    nodes: dict[str, Node] = field(default_factory=dict)

    def _passes(self, node: Node) -> bool:
        return self.search.is_transparent(node) or (self.casts and self.search.is_float_cast(node))

    def add(self, *nodes: Node) -> None:
        self.nodes.update((node.name, node) for node in nodes)

    def root(self, name: str) -> str:
        """The value behind transparent nodes, which join the trail."""
        for _ in range(LONGEST_CHAIN):
            node = self.search.producers.get(name)
            if node is None or not self._passes(node):
                break
            self.add(node)
            name = node.inputs[0]
        return name

    def up(self, name: str, *op_types: str) -> Node | None:
        """The node that makes a value (behind transparent ones), if it is one of ``op_types``."""
        node = self.search.producers.get(self.root(name))
        if node is None or node.domain or node.op_type not in op_types:
            return None
        self.add(node)
        return node

    def down(self, name: str, *op_types: str) -> Node | None:
        """The only user of a value (transparent ones skipped), if it is one of ``op_types``."""
        for _ in range(LONGEST_CHAIN):
            users = self.search.consumers.get(name, ())
            if len(users) != 1 or name in self.search.kept:
                return None
            node = users[0]
            if node.domain == "" and node.op_type in op_types:
                self.add(node)
                return node
            if not self._passes(node):
                return None
            self.add(node)
            name = node.outputs[0]
        return None

    def other(self, node: Node, *names: str) -> str | None:
        """The input of a binary node that isn't one of ``names`` (compared behind transparent nodes)."""
        if len(node.inputs) != 2:
            return None
        first, second = node.inputs
        mine = {self.root(name) for name in names}
        if self.root(first) in mine:
            return second
        if self.root(second) in mine:
            return first
        return None

    def finish(
        self,
        op_type: str,
        inputs: tuple[str, ...],
        output: str,
        *,
        domain: str = "",
        version: int | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Match | str:
        """The match, if nothing outside uses an inner value; transparent nodes that others use, too, stay outside."""
        search = self.search
        inputs = tuple([self.root(name) for name in inputs])
        nodes = dict(self.nodes)
        for node in reversed(tuple(nodes.values())):
            if self._passes(node) and output not in node.outputs and self._leaks(node, nodes):
                del nodes[node.name]
        for node in nodes.values():
            if node.name in search.taken:
                return f"{file_name(node.name)} is part of another kernel"
            if output not in node.outputs and self._leaks(node, nodes):
                return f"the value of {file_name(node.name)} is used elsewhere, too"
        return Match(
            nodes=tuple(nodes.values()),
            op_type=op_type,
            inputs=inputs,
            output=output,
            domain=domain,
            version=version,
            attributes=attributes or {},
        )

    def _leaks(self, node: Node, nodes: Mapping[str, Node]) -> bool:
        return any(
            name in self.search.kept or any(user.name not in nodes for user in self.search.consumers.get(name, ()))
            for name in node.outputs
            if name
        )
