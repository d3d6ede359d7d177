"""What a loop compiler makes of eager kernels: PyTorch's Inductor in its default mode, as of PyTorch 2.9.

It works on the kernels that lowering gave to each node, in two steps that mirror Inductor's own:

1. *Inlining.* A pointwise value isn't computed where it is defined but where it is used, through any view. It is
   written to memory only where it must be (a library or the caller reads it) or where computing it again is dear.
2. *Scheduling.* Kernels that write such buffers, and reductions, merge with the kernels that read them, if both run
   over the same elements in the same order and no third kernel stands between them. A reduction's kernel also takes
   the pointwise work over its rows before and after it, and other reductions over the same rows.

Products, convolutions, sorts, scans, fused attention and what has no rule here stay library calls: nothing merges
with them. Views are index arithmetic. A copy that a library needs (dense matrices) computes what it copies. A softmax
or a normalization is a reduction, which leaves statistics, and pointwise work. A concatenation is a loop over its
result, or no kernel: what makes a part writes it at its place in the result, and what lies elsewhere is copied.

First every node is looked at (:mod:`.survey`: a loop, a reduction or a call, :mod:`.plans`); then :mod:`.inlining` and
:mod:`.scheduling` are the steps, which work on the loops and groups of :mod:`.loop`; :mod:`.emission` says what came of
them. What reductions have of their own is in :mod:`.row_kernels`.

Engines compile chains by the same two steps, with their own choice where Inductor has a fixed rule (``engine``).

Where the rules come from: the thresholds are documented options of ``torch._inductor.config``; the behaviour is that
of its public sources (``ir.StorageBox``, ``ir.ConcatKernel``, ``lowering.cat``, ``scheduler.Scheduler``,
``fx_passes/post_grad.py``, ``kernel/conv.py``), and of the kernels that 2.9.1 generates for models
(``benchmarks/fusion_inductor.py``).
Left out on purpose: fusion of kernels that only share an input (Inductor asks for equal offsets, so that parts of one
product don't count) and splitting of long reductions. What it replaces before:
:mod:`neusight_onnx.fusion.compiled_attention`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neusight_onnx.fusion.loops.emission import Emission
from neusight_onnx.fusion.loops.inlining import Inlining
from neusight_onnx.fusion.loops.scheduling import Schedule
from neusight_onnx.fusion.loops.survey import surveyed
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import NodeWork


def merge_loops(
    graph: InferredGraph,
    works: Sequence[NodeWork],
    strides: Mapping[str, tuple[int, ...]],
    *,
    engine: bool = False,
) -> tuple[NodeWork, ...]:
    """``works`` of ``graph`` with what a compiler merges in one node's work, each body on its own.

    ``strides`` are those of values that aren't contiguous, in elements. The work of a merged kernel stands at the last
    of its nodes and lists all of them as origins; the others are free with the reason. Linear in the graph's size.
    ``engine``: an inference engine compiles, which keeps biases in products, has libraries write parts of a
    concatenation, too, and doesn't compute a value anew where that moves more bytes than to write it once.
    """
    places = {work.node: place for place, work in enumerate(works)}
    result = list(works)
    pending = [graph]
    while pending:
        current = pending.pop()
        pending.extend(current.bodies.values())
        own = {node.name: works[places[node.name]] for node in current.graph.nodes if node.name in places}
        for work in _merged(current, own, strides, engine=engine):
            result[places[work.node]] = work
    return tuple(result)


def _merged(
    graph: InferredGraph,
    works: Mapping[str, NodeWork],
    strides: Mapping[str, tuple[int, ...]],
    *,
    engine: bool,
) -> list[NodeWork]:
    """The work of every node that changes, of one graph without its bodies."""
    looked = surveyed(graph, works, strides, engine=engine)
    schedule = Schedule(looked)
    inlined = Inlining(looked, schedule)
    nodes = [node for node in graph.graph.nodes if node.name in works]
    for node in nodes:
        plan = looked.plans.get(node.name)
        if plan is not None:
            inlined.build(node, plan)
    return Emission(looked, schedule, inlined).works(nodes)
