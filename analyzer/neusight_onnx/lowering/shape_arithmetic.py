"""Shape arithmetic that ONNX Runtime's executor still walks in every run, on the host.

A file whose sizes are open computes shapes by operators: Shape, Gather, Unsqueeze, Concat in front of a Reshape. Its
optimiser (ReshapeFusion) makes one constant of most such Concats, with 0 for a size that the Reshape's own input has
and -1 for one other; the rest it executes on the CPU. Where the file fixes all sizes, all of it is folded when the
model is loaded. Beside the files that the optimiser writes we keep 27 such nodes where it keeps 17 (BERT), 780 and 648
(GPT-2 with a cache), 280 and 199 (DeBERTa): it folds some more by other passes.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from neusight_onnx.graph.model import Graph, InferredGraph, kept_values
from neusight_onnx.graph.reshape_targets import becomes_constant
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.free_works import FreeWorks
from neusight_onnx.lowering.known_on_gpu import has_open_sizes
from neusight_onnx.lowering.walk import ON_HOST


@dataclass(slots=True)
class Folded:
    """What needs no computing once the targets of Reshapes are constants, for the same graph at other sizes.

    It hangs on the graph, on the nodes that compute shapes, and on constants.
    """

    graph: Graph | None = None
    computed: Set[str] = frozenset()
    folded: Set[str] = frozenset()

    def of(self, graph: InferredGraph, computed: Set[str]) -> Set[str]:
        """The nodes of ``computed`` in ``graph`` that are folded."""
        if self.graph is not graph.graph or graph.bodies or self.computed != computed:
            self.folded = _folded(graph, computed)
            self.graph, self.computed = graph.graph, computed
        return self.folded


def with_host_arithmetic(
    graph: InferredGraph,
    works: Sequence[NodeWork],
    free: FreeWorks | None = None,
    before: Folded | None = None,
) -> tuple[NodeWork, ...]:
    """``works`` with what is computed of shapes in every run marked as the host's: an operator without a kernel.

    ``free``, ``before``: shared between the sizes of a model.
    """
    if not has_open_sizes(graph):
        return tuple(works)
    computed = {work.node for work in works if work.free == ON_HOST}
    left = computed - (Folded() if before is None else before).of(graph, computed)
    pending = [*graph.bodies.values()]
    while pending:
        body = pending.pop()
        pending.extend(body.bodies.values())
        left -= _folded(body, computed)
    marked = (FreeWorks() if free is None else free).on_the_host
    return tuple([marked(work) if work.node in left else work for work in works])


def _folded(graph: InferredGraph, computed: Set[str]) -> set[str]:
    """The nodes of ``computed`` that nothing needs once the targets of Reshapes are constants."""
    nodes = graph.graph.nodes
    own = [node for node in nodes if node.name in computed]
    producers = {name: node for node in own for name in node.outputs if name}
    readers: dict[str, list[str]] = {name: [] for name in ("", *producers)}
    for node in nodes:
        for name in node.inputs:
            if name in producers:
                readers[name].append(node.name)
    kept = kept_values(graph)
    folded: set[str] = set()
    for node in nodes:
        if node.op_type == "Reshape" and not node.domain and len(node.inputs) > 1:
            target = producers.get(node.inputs[1])
            if target is not None and target.op_type == "Concat" and target.name in computed:
                read_once = len(readers[node.inputs[1]]) == 1 and node.inputs[1] not in kept
                if read_once and becomes_constant(target, node.inputs[0], producers, graph.values):
                    folded.add(target.name)
    for node in reversed(own):
        if node.name in folded or not kept.isdisjoint(node.outputs):
            continue
        if all(folded.issuperset(readers[name]) for name in node.outputs):
            folded.add(node.name)
    return folded
