"""The rules of a runtime, in order: a graph as its file has it, and as the runtime executes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from neusight_onnx.fusion.patterns.registry import PATTERNS, Index, recognise_and_say
from neusight_onnx.fusion.patterns.search import Verdict
from neusight_onnx.fusion.quantization.fold import fold_quantization
from neusight_onnx.fusion.redundant import Redundant, without_unread
from neusight_onnx.fusion.same_graphs import SameGraphs
from neusight_onnx.fusion.transposes.optimizer import Moves, with_moved_transposes
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedBefore:
    """What rules leave for other sizes of a model, for one runtime: graphs of each step, and what hangs on no sizes.

    ``formulas``, ``late`` and ``engine``: the graphs that named formulas and the engine's own rules search.
    """

    graphs: SameGraphs = field(default_factory=SameGraphs)
    redundant: Redundant = field(default_factory=Redundant)
    early_moves: Moves = field(default_factory=Moves)
    moves: Moves = field(default_factory=Moves)
    formulas: Index = field(default_factory=Index)
    late: Index = field(default_factory=Index)
    engine: Index = field(default_factory=Index)


def fused_graph(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    """``graph`` with each subgraph that ``runtime`` executes as one kernel replaced by one node."""
    return fused_and_said(graph, runtime, explained=False)[0]


def fusion_verdicts(graph: InferredGraph, runtime: Runtime) -> tuple[Verdict, ...]:
    """What each rule of ``runtime`` said wherever it could have applied, in the main graph: merged, or why not."""
    return fused_and_said(graph, runtime, explained=True)[1]


def fused_and_said(
    graph: InferredGraph, runtime: Runtime, *, explained: bool, before: FusedBefore | None = None
) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    """:func:`fused_graph`, and :func:`fusion_verdicts` where ``explained``, at once.

    Constant nodes, two in five of an exporter's, stand in front: no rule asks for them, but for the facts of their
    values, so that rules walk over the others alone. ``before``: shared between the same model's sizes.
    """
    before = FusedBefore() if before is None else before
    nodes = graph.graph.nodes
    constants = tuple([node for node in nodes if node.op_type == "Constant" and not node.domain])
    if not constants:
        fused, said = _fused(graph, runtime, before, explained=explained)
        return before.graphs.of("all", fused), said
    others = tuple([node for node in nodes if node.op_type != "Constant" or node.domain])
    rest = replace(graph, graph=replace(graph.graph, nodes=others))
    fused, said = _fused(rest, runtime, before, explained=explained)
    whole = replace(fused, graph=replace(fused.graph, nodes=(*constants, *fused.graph.nodes)))
    return before.graphs.of("all", whole), said


def _fused(
    graph: InferredGraph, runtime: Runtime, before: FusedBefore, *, explained: bool
) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    name = runtime.name
    read = _with_pairs(_with_folded_pads(_without_redundant(graph, runtime, before.redundant), runtime), runtime)
    read = _moved_before_formulas(before.graphs.of("read", read), runtime, before.early_moves)
    rules = _EARLY if runtime.rewrites else PATTERNS
    fused, said = recognise_and_say(read, runtime=runtime, rules=rules, explained=explained, index=before.formulas)
    fused = _quantised(fused, runtime)
    if name == "eager":
        return fused, said
    if name == "compiled":
        from neusight_onnx.fusion.compiled_attention import replace_attention

        return replace_attention(fused), said
    from neusight_onnx.fusion.engine_rules import ENGINE_RULES
    from neusight_onnx.fusion.epilogues import fuse_epilogues

    fused = apart = _taken_apart(fused, runtime, before)
    if runtime.rewrites:
        fused, later = recognise_and_say(apart, runtime=runtime, rules=_LATE, explained=explained, index=before.late)
        fused, said = before.graphs.of("late", fused), (*said, *later)
    fused, of_engine = recognise_and_say(
        fused, runtime=runtime, rules=ENGINE_RULES, explained=explained, index=before.engine
    )
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
    from neusight_onnx.fusion.quantization.moves import with_moved_quantization

    return fold_quantization(with_moved_quantization(graph), generated=True)


def _without_redundant(graph: InferredGraph, runtime: Runtime, redundant: Redundant) -> InferredGraph:
    return redundant.without(graph, neutral=runtime.drops_neutral) if runtime.rewrites else graph


def _with_pairs(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    """For the runtime that folds no pairs but writes some anew: ONNX Runtime."""
    if runtime.folds_quantization:
        return graph
    from neusight_onnx.fusion.quantization.pairs import with_pairs_of_their_own

    return with_pairs_of_their_own(graph)


def _with_folded_pads(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    if runtime.name in ("eager", "compiled"):
        return graph
    from neusight_onnx.fusion.pads import with_folded_pads

    return with_folded_pads(graph, runtime)


_LATE = tuple(rule for rule in PATTERNS if rule.name == "RMS normalization")
_EARLY = tuple(rule for rule in PATTERNS if rule not in _LATE)
"""ONNX Runtime merges RMS normalizations on level 2, behind its moves of Transposes, whatever the opset."""

FORMULAS_FIRST = 17
"""From this opset on ONNX Runtime merges the formula of a normalization before it moves Transposes (on level 1, into
the standard's operator): before, only if its dimension is still the last one behind the move."""


def _moved_before_formulas(graph: InferredGraph, runtime: Runtime, moves: Moves) -> InferredGraph:
    opset = max((node.version for node in graph.graph.nodes if not node.domain), default=FORMULAS_FIRST)
    if not runtime.rewrites or opset >= FORMULAS_FIRST:
        return graph
    return with_moved_transposes(graph, moves)


def _taken_apart(graph: InferredGraph, runtime: Runtime, before: FusedBefore) -> InferredGraph:
    if not runtime.rewrites:
        return graph
    from neusight_onnx.fusion.splits import taken_apart

    apart = taken_apart(graph)
    if apart is not graph and runtime.splits_gathers:
        graph = apart
    return with_moved_transposes(before.graphs.of("apart", graph), before.moves)
