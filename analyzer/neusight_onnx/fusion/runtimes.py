"""The rules of a runtime, in order: a graph as its file has it, and as the runtime executes it."""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.fusion.patterns.registry import recognise_and_say
from neusight_onnx.fusion.patterns.search import Verdict
from neusight_onnx.fusion.quantization import fold_quantization
from neusight_onnx.fusion.redundant import Redundant, without_redundant, without_unread
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.runtime import Runtime


def fused_graph(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    """``graph`` with each subgraph that ``runtime`` executes as one kernel replaced by one node."""
    return fused_and_said(graph, runtime, explained=False)[0]


def fusion_verdicts(graph: InferredGraph, runtime: Runtime) -> tuple[Verdict, ...]:
    """What each rule of ``runtime`` said wherever it could have applied, in the main graph: merged, or why not."""
    return fused_and_said(graph, runtime, explained=True)[1]


def fused_and_said(
    graph: InferredGraph, runtime: Runtime, *, explained: bool, redundant: Redundant | None = None
) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    """:func:`fused_graph`, and :func:`fusion_verdicts` where ``explained``, at once.

    Constant nodes, two in five of an exporter's, stand in front: no rule asks for them, but for the facts of their
    values, so that rules walk over the others alone. ``redundant``: shared between the same model's sizes.
    """
    nodes = graph.graph.nodes
    constants = tuple([node for node in nodes if node.op_type == "Constant" and not node.domain])
    if not constants:
        return _fused(graph, runtime, redundant, explained=explained)
    others = tuple([node for node in nodes if node.op_type != "Constant" or node.domain])
    rest = replace(graph, graph=replace(graph.graph, nodes=others))
    fused, said = _fused(rest, runtime, redundant, explained=explained)
    return replace(fused, graph=replace(fused.graph, nodes=(*constants, *fused.graph.nodes))), said


def _fused(
    graph: InferredGraph, runtime: Runtime, redundant: Redundant | None, *, explained: bool
) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    name = runtime.name
    read = _with_pairs(_with_folded_pads(_without_redundant(graph, runtime, redundant), runtime), runtime)
    read = _moved_before_formulas(read, runtime)
    fused, said = recognise_and_say(read, runtime=runtime, explained=explained)
    fused = _quantised(fused, runtime)
    if name == "eager":
        return fused, said
    if name == "compiled":
        from neusight_onnx.fusion.compiled_attention import replace_attention

        return replace_attention(fused), said
    from neusight_onnx.fusion.engine_rules import ENGINE_RULES
    from neusight_onnx.fusion.epilogues import fuse_epilogues

    apart = _taken_apart(fused, runtime)
    fused, of_engine = recognise_and_say(apart, runtime=runtime, rules=ENGINE_RULES, explained=explained)
    of_attention: tuple[Verdict, ...] = ()
    if runtime.rewrites:
        fused = without_unread(fused, apart)
    if runtime.attention == "one kernel":
        from neusight_onnx.fusion.engine_attention import fuse_attention

        fused, of_attention = fuse_attention(fused)
    fused, of_epilogues = fuse_epilogues(fused, runtime)
    if runtime.rewrites:
        from neusight_onnx.fusion.in_place import with_writes_in_place

        fused = with_writes_in_place(fused)
    if runtime.conv_layout.startswith("nhwc"):
        from neusight_onnx.fusion.channel_order import read_channels_last

        fused = read_channels_last(fused)
    return fused, (*said, *of_engine, *of_attention, *of_epilogues)


def _quantised(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    """Pairs of quantisation folded into kernels that compute in few bits, where there are none into those that read
    small weights alone."""
    if runtime.name != "tensorrt":
        return fold_quantization(graph, only_weights=not runtime.folds_quantization)
    from neusight_onnx.fusion.quantization_moves import with_moved_quantization

    return fold_quantization(with_moved_quantization(graph), generated=True)


def _without_redundant(graph: InferredGraph, runtime: Runtime, redundant: Redundant | None) -> InferredGraph:
    if not runtime.rewrites:
        return graph
    neutral = runtime.drops_neutral
    return without_redundant(graph, neutral=neutral) if redundant is None else redundant.without(graph, neutral=neutral)


def _with_pairs(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    """For the runtime that folds no pairs but writes some anew: ONNX Runtime."""
    if runtime.folds_quantization:
        return graph
    from neusight_onnx.fusion.quantization_pairs import with_pairs_of_their_own

    return with_pairs_of_their_own(graph)


def _with_folded_pads(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    if runtime.name in ("eager", "compiled"):
        return graph
    from neusight_onnx.fusion.pads import with_folded_pads

    return with_folded_pads(graph, runtime)


FORMULAS_FIRST = 17
"""From this opset on ONNX Runtime merges the formula of a normalization before it moves Transposes (on level 1, into
the standard's operator): before, only if its dimension is still the last one behind the move."""


def _moved_before_formulas(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    opset = max((node.version for node in graph.graph.nodes if not node.domain), default=FORMULAS_FIRST)
    if not runtime.rewrites or opset >= FORMULAS_FIRST:
        return graph
    from neusight_onnx.fusion.transposes.optimizer import with_moved_transposes

    return with_moved_transposes(graph)


def _taken_apart(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    if not runtime.rewrites:
        return graph
    from neusight_onnx.fusion.splits import taken_apart
    from neusight_onnx.fusion.transposes.optimizer import with_moved_transposes

    return with_moved_transposes(taken_apart(graph) if runtime.splits_gathers else graph)
