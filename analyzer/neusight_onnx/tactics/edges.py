"""Who makes what a layer reads, and who reads what it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph, Node, Value
from neusight_onnx.kernels import (
    Movement,
    NodeWork,
)


@dataclass(frozen=True, slots=True)
class Edges:
    """Who makes and who reads each value of a graph, bodies included; ``inputs`` and ``outputs``: of each node;
    ``values``: those of the graph itself."""

    works: Sequence[NodeWork]
    places: Mapping[str, int]
    made_by: Mapping[str, str]
    read_by: Mapping[str, Sequence[str]]
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    entering: frozenset[str]
    leaving: frozenset[str]
    values: Mapping[str, Value]

    @classmethod
    def of(cls, graph: InferredGraph, works: Sequence[NodeWork], places: Mapping[str, int]) -> Edges:
        nodes: list[Node] = []
        leaving: set[str] = set()
        pending = [graph]
        while pending:
            part = pending.pop()
            pending += part.bodies.values()
            nodes += part.graph.nodes
            leaving.update(declared.name for declared in part.graph.outputs)
        read_by: dict[str, list[str]] = {}
        for node in nodes:
            for name in node.inputs:
                read_by.setdefault(name, []).append(node.name)
        return cls(
            works=works,
            places=places,
            made_by={name: node.name for node in nodes for name in node.outputs},
            read_by=read_by,
            inputs={node.name: node.inputs for node in nodes},
            outputs={node.name: node.outputs for node in nodes},
            entering=frozenset(declared.name for declared in graph.graph.inputs),
            leaving=frozenset(leaving),
            values=graph.values,
        )

    def source(self, at: int, index: Mapping[int, int]) -> int | None:
        """The layer before place ``at`` whose result is what stands there reads first, through nodes that move nothing;
        ``index``: the layers' places."""
        names = self.inputs.get(self.works[at].node, ())
        while names:
            node = self.made_by.get(names[0])
            place = None if node is None else self.places.get(node)
            if node is None or place is None:
                return None
            if place in index:
                return index[place] if place < at else None
            if not self._is_view(place):
                return None
            names = self.inputs.get(node, ())
        return None

    def feeds_layers_alone(self, at: int, index: Mapping[int, int]) -> bool:
        """Whether all that reads the result of what stands at ``at`` are layers whose source it is."""
        pending = list(self.outputs.get(self.works[at].node, ()))
        while pending:
            name = pending.pop()
            if name in self.leaving:
                return False
            for reader in self.read_by.get(name, ()):
                place = self.places.get(reader)
                if place is None or self.inputs[reader].index(name) or self.inputs[reader].count(name) > 1:
                    return False
                if place in index:
                    continue
                if not self._is_view(place):
                    return False
                pending += self.outputs[reader]
        return True

    def is_border(self, at: int) -> bool:
        """Whether what stands at ``at`` is a kernel that converts a float32 input of the model to 16 bits, or back to
        a float32 output."""
        work = self.works[at]
        if work.op_type != "Cast" or len(work.kernels) != 1 or not isinstance(work.kernels[0], Movement):
            return False
        (read, *_), (written, *_) = self.inputs[work.node], self.outputs[work.node]
        if read in self.entering:
            return self._is_full(read) and self._is_wide(written)
        return written in self.leaving and self._is_wide(read) and self._is_full(written)

    def _is_full(self, name: str) -> bool:
        return name in self.values and self.values[name].dtype is DataType.FLOAT32

    def _is_wide(self, name: str) -> bool:
        return name in self.values and self.values[name].dtype in (DataType.FLOAT16, DataType.BFLOAT16)

    def _is_view(self, at: int) -> bool:
        return not self.works[at].kernels and self.works[at].merged_into is None
