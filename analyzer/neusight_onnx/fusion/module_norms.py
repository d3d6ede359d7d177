"""RMS normalizations that a graph writes out, as PyTorch's modules compute them in a model of 16 bits.

Modules widen to float32 before the square and cast back behind the root (``LlamaRMSNorm`` of transformers:
``hidden_states.to(torch.float32)``; Meta's ``RMSNorm``: ``self._norm(x.float()).type_as(x)``), which a file that was
exported in float32 doesn't show: casts to the type that there is leave no trace.
"""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.fusion.patterns.normalizations import rms_norm
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.fusion.patterns.search import Match, Pattern, Search
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.runtime import Runtime

BY_FORMULA = "by_formula"
"""The attribute of an RMSNormalization that is computed operator by operator."""


def with_module_norms(graph: InferredGraph, *, runtime: Runtime | str) -> InferredGraph:
    """``graph``, made 16-bit from end to end, with RMS normalizations as operators that say so, and an assumption."""
    found = recognise(graph, runtime=runtime, rules=RULES)
    if not (count := _count(found)):
        return graph
    said = (
        f"{count:,} RMS {'normalization' if count == 1 else 'normalizations'} that the graph writes out: in float32 "
        "between two casts, as modules of models in 16 bits compute them"
    )
    return replace(found, assumptions=(*found.assumptions, said))


def _count(graph: InferredGraph) -> int:
    own = sum(BY_FORMULA in node.attributes for node in graph.graph.nodes if node.op_type == "RMSNormalization")
    return own + sum(_count(body) for body in graph.bodies.values())


def _by_formula(search: Search, anchor: Node) -> Match | str:
    found = rms_norm(search, anchor)
    return found if isinstance(found, str) else replace(found, attributes={**found.attributes, BY_FORMULA: 1})


RULES = (
    Pattern(
        name="RMS normalization of a module",
        anchors=("ReduceMean",),
        runtimes=frozenset({"eager"}),
        find=_by_formula,
    ),
)
