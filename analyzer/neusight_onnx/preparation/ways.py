"""The bits and layouts that work is executed in, and what an engine's builder may choose in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Elementwise, Movement, NodeWork
from neusight_onnx.lowering.layouts import with_layouts
from neusight_onnx.precision import Precision, is_of_pairs, keeps_fp32
from neusight_onnx.preparation.works import as_launched
from neusight_onnx.runtime import Runtime

if TYPE_CHECKING:
    from neusight_onnx.backward import Trained
    from neusight_onnx.tactics import Tactics


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The work of a model, and what else may be executed in its place; None where there is no such way.

    ``in_tf32``: on GPUs with units for it, where the runtime multiplies float32 there by itself. ``wide``: its products
    in the type that they have without the few bits that were asked for, where a builder takes what is quicker.
    """

    work: tuple[NodeWork, ...]
    in_tf32: tuple[NodeWork, ...] | None
    wide: tuple[NodeWork, ...] | None

    def each(self, change: Callable[[tuple[NodeWork, ...]], tuple[NodeWork, ...]]) -> Ways:
        """All of them changed alike."""
        return Ways(
            work=change(self.work),
            in_tf32=None if self.in_tf32 is None else change(self.in_tf32),
            wide=None if self.wide is None else change(self.wide),
        )


def ways_of(
    graph: InferredGraph,
    work: Sequence[NodeWork],
    trained: Trained | None,
    precision: Precision,
    runtime: Runtime,
) -> tuple[InferredGraph, Ways, int]:
    """``work`` in the bits and layouts that it is executed in: the graph with its weights so, the ways, and the bytes
    of scales."""
    wide = None
    scale_bytes = 0
    narrows = precision.products is not None or precision.weights is not None
    if narrows and not is_of_pairs(precision, runtime.narrow_products):
        if _is_chosen_by_time(precision, runtime):
            wide = with_layouts(work, runtime)
        graph, work, scale_bytes = _with_narrow_products(graph, work, precision, runtime)
    in_tf32 = _in_tf32(work if trained is None else trained.works, precision, runtime)
    work = with_layouts(work, runtime)
    if wide is not None and precision.products is DataType.INT8:
        from neusight_onnx.tactics import at_the_borders

        work = at_the_borders(graph, work, wide)
    return graph, Ways(work=tuple(work), in_tf32=in_tf32, wide=wide), scale_bytes


def tactics_of(graph: InferredGraph, ways: Ways, precision: Precision, runtime: Runtime) -> Tactics | None:
    """The layers that an engine's builder may keep in a wider type; None where it has no choice."""
    flags = allows_by_flags(precision, runtime)
    if not flags and ways.wide is None:
        return None
    from neusight_onnx.tactics import find_tactics

    wide = ways.work if ways.wide is None else ways.wide
    return find_tactics(graph, ways.work, wide, products=precision.products, may_stay_full=flags)


def _is_chosen_by_time(precision: Precision, runtime: Runtime) -> bool:
    """Whether an engine's builder multiplies narrow only where that is quicker.

    Weights alone in few bits are the file's, and one engine serves all sizes: nothing to choose by time.
    """
    return runtime.narrow_products == "calibrated" and precision.products is not None and precision.weights is not None


def _with_narrow_products(
    graph: InferredGraph, work: Sequence[NodeWork], precision: Precision, runtime: Runtime
) -> tuple[InferredGraph, tuple[NodeWork, ...], int]:
    """Products in the few bits of ``precision``: the graph with its weights so, the work, and the bytes of scales."""
    from neusight_onnx.lowering.products import group_bytes, with_products

    how = runtime.narrow_products
    kept = _behind_dequantize(graph) if how == "widened" else frozenset()
    packs = runtime.packs_experts and precision.products is None
    lowered = with_products(work, precision.products, precision.weights, how=how, kept=kept, packs_experts=packs)
    launched = as_launched(lowered, runtime)
    if precision.weights is None:
        return graph, launched, 0
    from neusight_onnx.lowering.few_bit_weights import narrowed_count, with_weights

    convolutions = how != "converted" and precision.products is DataType.INT8
    stored = with_weights(graph, precision.weights, convolutions=convolutions, experts=packs)
    return stored, launched, group_bytes(narrowed_count(graph, stored), precision.weights)


def by_engine(graph: InferredGraph, ways: Ways, runtime: Runtime) -> Ways:
    """``ways`` with what an engine's builder chooses of each kernel beyond the runtime's rules."""
    if runtime.times_kernels:
        from neusight_onnx.fusion.alternatives import with_alternatives
        from neusight_onnx.lowering.engine_tiles import with_engine_tiles

        ways = ways.each(lambda work: tuple(with_alternatives(graph, work, runtime)))
        ways = ways.each(with_engine_tiles)
    if runtime.has_cudnn7:
        from neusight_onnx.lowering.cudnn7 import with_first_kernels

        ways = ways.each(with_first_kernels)
    if runtime.units_want_eights:
        from neusight_onnx.lowering.eights import with_units_for_eights

        ways = replace(ways, work=tuple(with_units_for_eights(ways.work, runtime)))
    if runtime.row_padding:
        from neusight_onnx.lowering.row_padding import with_row_padding

        ways = ways.each(lambda work: with_row_padding(work, runtime.row_padding))
    if runtime.sums_fp16:
        from neusight_onnx.lowering.accumulators import with_accumulators

        ways = ways.each(lambda work: tuple(with_accumulators(work, runtime)))
    return ways


def _behind_dequantize(graph: InferredGraph) -> frozenset[str]:
    """The nodes that read what the file stores or computes in few bits, which nobody quantises again."""
    nodes = graph.graph.nodes
    wide = {name for node in nodes if node.op_type == "DequantizeLinear" for name in node.outputs}
    return frozenset(node.name for node in nodes if any(name in wide for name in node.inputs)) if wide else frozenset()


def _in_tf32(work: Sequence[NodeWork], precision: Precision, runtime: Runtime) -> tuple[NodeWork, ...] | None:
    """All of the work, a step of training's as well, where the GPU has TF32 units and the runtime multiplies float32
    there by itself; None where it is the same."""
    if runtime.tf32 == "none" or keeps_fp32(precision):
        return None
    from neusight_onnx.lowering.products import with_products

    narrowed = with_products(work, DataType.TFLOAT32, None, by_cudnn=runtime.tf32 == "cudnn")
    return None if narrowed == tuple(work) else with_layouts(narrowed, runtime)


_CASTS_BYTES = 0.01
"""Share of a run's bytes that casts have at least where an engine wholly in float32 is looked at: what it saves."""


def casts_count(work: Sequence[NodeWork]) -> bool:
    """Whether casts move enough that an engine without them could be quicker: a look takes as long as all before it."""
    moved, cast = 0.0, 0.0
    for item in work:
        for kernel in item.kernels:
            size = (kernel.read_bytes + kernel.write_bytes) * item.count
            moved += size
            if isinstance(kernel, Elementwise):
                cast += size if kernel.operations == ("cast",) else 0
            elif isinstance(kernel, Movement):
                cast += size if kernel.operation == "cast" else 0
    return cast >= _CASTS_BYTES * moved > 0


def allows_by_flags(precision: Precision, runtime: Runtime) -> bool:
    """Whether an engine's builder was allowed 16 bits, or int8 and these, by flags, beside the float32 of the file."""
    if not runtime.times_kernels or runtime.narrow_products != "calibrated":
        return False
    return precision.mixed or (precision.products is DataType.INT8 and precision.weights is not None)
