"""What a runtime executes of a model: shapes inferred, patterns merged, every node lowered; the same for every GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from neusight_onnx.collection import no_collection
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import NotSupportedError, OptionError, shown
from neusight_onnx.fusion.folded_norms import with_folded_norms
from neusight_onnx.fusion.patterns.search import Verdict
from neusight_onnx.fusion.runtimes import FusedBefore, fused_and_said
from neusight_onnx.graph.bindings import Bindings, BoundInputs, named_as_in
from neusight_onnx.graph.dimension_roles import is_called_cache
from neusight_onnx.graph.model import InferredGraph, Model, Node, file_name
from neusight_onnx.graph.shapes import Memo, at_expected_sizes, bind_and_infer, with_told_counts
from neusight_onnx.kernels import Elementwise, Kernel, Movement, NodeWork, Transfer
from neusight_onnx.lowering import Lowered, lower_laid_out
from neusight_onnx.lowering.context import LAZY_VIEWS
from neusight_onnx.lowering.free_works import FreeWorks
from neusight_onnx.lowering.known_numbers import known_apart, works_of_known
from neusight_onnx.lowering.layouts import order_of, with_layouts
from neusight_onnx.lowering.own_kernels import with_own_kernels
from neusight_onnx.lowering.placement import boundary_copies, place
from neusight_onnx.lowering.precision import as_precision, stored_precision
from neusight_onnx.lowering.shape_arithmetic import Folded, with_host_arithmetic
from neusight_onnx.lowering.widened_weights import with_widened_weights
from neusight_onnx.memory import RunMemory, run_memory, with_more_weights
from neusight_onnx.memory.caches import cache_pairs
from neusight_onnx.operator_host import is_a_row
from neusight_onnx.precision import AUTO, Precision, as_quantised, keeps_fp32, resolve
from neusight_onnx.report.model import (
    FusionSummary,
    NearMiss,
)
from neusight_onnx.runnable import untrained
from neusight_onnx.runtime import Runtime, get_runtime

if TYPE_CHECKING:
    from neusight_onnx.backward import Trained, Training
    from neusight_onnx.tactics import Tactics


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedModel:
    """A model with its dims bound and its shapes inferred: the same for every precision, runtime and GPU.

    ``bindings`` are what the user bound, ``bound`` what became of the inputs. ``inferred`` holds bounds where shapes
    depend on data, ``expected`` the sizes that costs are counted with. ``memo``: for inferring it at other sizes.
    """

    model: Model
    bindings: Bindings
    bound: BoundInputs
    inferred: InferredGraph
    expected: InferredGraph
    memo: Memo


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOtherSizes:
    """What preparing a model leaves for its other sizes: what doesn't hang on them. Of one model and one way to run
    it."""

    fused: FusedBefore = field(default_factory=FusedBefore)
    free: FreeWorks = field(default_factory=FreeWorks)
    folded: Folded = field(default_factory=Folded)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A shaped model as a runtime executes it: patterns recognised, every node lowered; the same for every GPU.

    ``include_io``: the work has the copies of inputs and outputs. ``said``: why there is no CUDA graph, if one was
    asked for that can't be. ``tactics``: the layers that an engine's builder may keep in a wider type on a GPU where
    the one that was asked for is slower; None where it has no choice. ``unfused``: before anything was merged;
    ``merged``: what became of it by the runtime's rules, before a builder chooses among ways. ``near_misses``: None
    where nobody asked.
    ``in_full``: the model in the float32 of its file, where a flag allowed an engine's builder 16 bits beside it and
    what converts between them takes a share worth a second look.
    ``known``: nodes that give numbers alone, which neither the graphs nor the work hold
    (:mod:`~neusight_onnx.lowering.known_numbers`). ``others``: for preparing the model in the same way at other sizes.
    """

    shaped: ShapedModel
    precision: Precision
    graph: InferredGraph
    work: tuple[NodeWork, ...]
    runtime: Runtime
    memory: RunMemory
    merged: tuple[NodeWork, ...]
    near_misses: tuple[NearMiss, ...] | None
    unfused: InferredGraph
    include_io: bool = False
    said: tuple[str, ...] = ()
    trained: Trained | None = None
    work_in_tf32: tuple[NodeWork, ...] | None = None
    tactics: Tactics | None = None
    in_full: PreparedModel | None = None
    known: tuple[Node, ...] = ()
    others: AtOtherSizes = field(default_factory=AtOtherSizes)


def every_work(prepared: PreparedModel, works: Sequence[NodeWork]) -> list[NodeWork]:
    """``works`` of a prepared model with those of the nodes that it has apart, in front: one for each node at least."""
    return [*works_of_known(prepared.known), *works]


def infer_shapes(model: Model, bindings: Bindings, memo: Memo | None = None) -> ShapedModel:
    """The first step of :func:`analyze`, to be shared between analyses of one model at the same sizes.

    ``memo``: one of ``model.graph``, to be shared between analyses at other sizes: nodes whose inputs are what they
    were at one of them are not inferred again.
    """
    bindings = named_as_in(model, bindings)
    memo = memo or Memo(graph=model.graph)
    with no_collection():
        bindings = with_told_counts(model, bindings, memo)
        bound, inferred = bind_and_infer(model, bindings, memo)
        expected = at_expected_sizes(model, bindings, bound, inferred)
    return ShapedModel(model=model, bindings=bindings, bound=bound, inferred=inferred, expected=expected, memo=memo)


def prepare(
    shaped: ShapedModel,
    *,
    precision: Precision,
    runtime: str | Runtime,
    cuda_graph: bool = False,
    include_io: bool = False,
    channels_last: bool = False,
    memory_timeline: bool = False,
    explain_fusion: bool = False,
    training: Training | None = None,
    others: AtOtherSizes | None = None,
    memory: RunMemory | None = None,
) -> PreparedModel:
    """The second step: what ``runtime`` (what ``--runtime`` calls it, or the thing itself) executes in ``precision``.

    ``cuda_graph``: replayed as a graph, where that is possible; ``include_io``: with the copies of inputs and outputs
    from and to the host. ``channels_last``: images and filters lie as (n, *spatial, c), as PyTorch's
    ``memory_format=torch.channels_last`` has it. ``memory_timeline``: keep the bytes alive after each node;
    ``explain_fusion``: and why rules of the runtime that could have merged nodes didn't. ``training``: a step of
    training, not inference; raises TrainingError where the model has nothing to train. ``others``: shared between
    sizes of the model that are prepared alike. ``memory``: stands for what the run needs, where its work alone matters.
    """
    others = AtOtherSizes() if others is None else others
    runtime_model = (
        runtime
        if isinstance(runtime, Runtime)
        else get_runtime(runtime, cuda_graph=cuda_graph, channels_last=channels_last)
    )
    if training is not None:
        _require_training(training, precision, runtime_model, include_io)
        runtime_model = runtime_model.run_with(records_gradients=True)
    if precision.weights is not None:
        precision = as_quantised(precision, stored_precision(shaped.model), runtime_model.narrow_products)
    with no_collection():
        # converters change the file before anything is recognised in it; autocast sees the operators that run
        graph, known = (shaped.expected, ()) if training is not None else known_apart(shaped.expected)
        graph = _as_parsed(graph, precision, runtime_model, in_training=training is not None)
        recognised, verdicts = _recognised(
            graph, precision, runtime_model, training, explained=explain_fusion, before=others.fused
        )
        if runtime_model.operator_software and is_a_row(recognised):
            runtime_model = runtime_model.run_with(layers_in_a_row=True)
        trained = None
        if training is None:
            work = works_of(recognised, runtime_model, others=others, parsed=graph)
        else:
            recognised, work, trained = _step_of_training(recognised, training, precision, runtime_model)
        recognised, ways, scale_bytes = _ways(recognised, work, trained, precision, runtime_model)
        if memory is None:
            memory = run_memory(recognised, ways.work, runtime_model.name, timeline=memory_timeline, trained=trained)
            memory = with_more_weights(memory, scale_bytes)
        merged = ways.work
        ways = _by_engine(recognised, ways, runtime_model)
        said: tuple[str, ...] = ()
        if runtime_model.captured and (reason := _uncapturable(recognised, ways.work, runtime_model)):
            runtime_model = runtime_model.run_with(captured=False)
            said = (f"no CUDA graph: {reason}",)
        if include_io:
            ways = ways.each(partial(_with_boundary_copies, recognised))
        tactics = _tactics(recognised, ways, precision, runtime_model)
        in_full = None
        if _allows_by_flags(precision, runtime_model) and precision.mixed and _casts_count(ways.work):
            in_full = prepare(
                shaped,
                precision=resolve(AUTO, DataType.FLOAT32),
                runtime=runtime_model,
                include_io=include_io,
                memory_timeline=memory_timeline,
                explain_fusion=explain_fusion,
            )
    return PreparedModel(
        shaped=shaped,
        precision=precision,
        graph=recognised,
        work=ways.work if trained is None else trained.works,
        work_in_tf32=ways.in_tf32,
        runtime=runtime_model,
        memory=memory,
        include_io=include_io,
        said=said,
        merged=merged,
        near_misses=_near_misses(verdicts) if explain_fusion else None,
        unfused=graph,
        trained=trained,
        tactics=tactics,
        in_full=in_full,
        known=known,
        others=others,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """The work of a model, and what else may be executed in its place; None where there is no such way.

    ``in_tf32``: on GPUs with units for it, where the runtime multiplies float32 there by itself. ``wide``: its products
    in the type that they have without the few bits that were asked for, where a builder takes what is quicker.
    """

    work: tuple[NodeWork, ...]
    in_tf32: tuple[NodeWork, ...] | None
    wide: tuple[NodeWork, ...] | None

    def each(self, change: Callable[[tuple[NodeWork, ...]], tuple[NodeWork, ...]]) -> _Ways:
        """All of them changed alike."""
        return _Ways(
            work=change(self.work),
            in_tf32=None if self.in_tf32 is None else change(self.in_tf32),
            wide=None if self.wide is None else change(self.wide),
        )


def _ways(
    graph: InferredGraph,
    work: Sequence[NodeWork],
    trained: Trained | None,
    precision: Precision,
    runtime: Runtime,
) -> tuple[InferredGraph, _Ways, int]:
    """``work`` in the bits and layouts that it is executed in: the graph with its weights so, the ways, and the bytes
    of scales."""
    wide = None
    scale_bytes = 0
    if precision.products is not None or precision.weights is not None:
        if _is_chosen_by_time(precision, runtime):
            wide = with_layouts(work, runtime)
        graph, work, scale_bytes = _with_narrow_products(graph, work, precision, runtime)
    in_tf32 = _in_tf32(work if trained is None else trained.works, precision, runtime)
    work = with_layouts(work, runtime)
    if wide is not None and precision.products is DataType.INT8:
        from neusight_onnx.tactics import at_the_borders

        work = at_the_borders(graph, work, wide)
    return graph, _Ways(work=tuple(work), in_tf32=in_tf32, wide=wide), scale_bytes


def _tactics(graph: InferredGraph, ways: _Ways, precision: Precision, runtime: Runtime) -> Tactics | None:
    """The layers that an engine's builder may keep in a wider type; None where it has no choice."""
    flags = _allows_by_flags(precision, runtime)
    if not flags and ways.wide is None:
        return None
    from neusight_onnx.tactics import find_tactics

    wide = ways.work if ways.wide is None else ways.wide
    return find_tactics(graph, ways.work, wide, products=precision.products, may_stay_full=flags)


def _in_pytorch(runtime: Runtime) -> bool:
    return runtime.name in ("eager", "compiled")


def _as_parsed(graph: InferredGraph, precision: Precision, runtime: Runtime, *, in_training: bool) -> InferredGraph:
    """The graph that the runtime is given: modules as PyTorch has them, converted to ``precision``; nothing merged."""
    if _in_pytorch(runtime):
        from neusight_onnx.fusion.embedding_bags import with_embedding_bags

        graph = with_embedding_bags(graph)
    graph = _before_recognition(graph, precision, runtime)
    narrow_model = precision.plain is not None and precision.plain.bits < DataType.FLOAT32.bits
    if runtime.name == "eager" and narrow_model and not precision.mixed and not in_training:
        from neusight_onnx.fusion.module_norms import with_module_norms

        graph = with_module_norms(graph, runtime=runtime)
    return graph


def _recognised(
    parsed: InferredGraph,
    precision: Precision,
    runtime: Runtime,
    training: Training | None,
    *,
    explained: bool,
    before: FusedBefore,
) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    """What the runtime executes as one stands together, in the form for ``training`` if that is asked for, each node
    in the type that autocast gives it; and what the rules said, where that is to be ``explained``."""
    called = parsed
    if runtime.calls_attention and precision.name not in ("fp32", "tf32"):
        from neusight_onnx.fusion.called_attention import with_called_attention

        called = with_called_attention(
            parsed, runtime=runtime, autocast=precision.mixed and precision.plain is not None
        )
    recognised, verdicts = fused_and_said(called, runtime, explained=explained, before=before)
    if training is not None:
        recognised = _in_training(recognised, training)
    elif _in_pytorch(runtime):
        recognised = with_folded_norms(recognised)
        if runtime.name == "eager":
            from neusight_onnx.fusion.truth_masks import with_truth_masks

            recognised = with_truth_masks(recognised)
    if precision.mixed and _in_pytorch(runtime) and precision.plain is not None:
        from neusight_onnx.lowering.autocast import autocast

        recognised = autocast(recognised, precision.plain, runtime=runtime.name, in_training=training is not None)
    return recognised, verdicts


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
    launched = _as_launched(lowered, runtime)
    if precision.weights is None:
        return graph, launched, 0
    from neusight_onnx.lowering.few_bit_weights import narrowed_count, with_weights

    convolutions = how != "converted" and precision.products is DataType.INT8
    stored = with_weights(graph, precision.weights, convolutions=convolutions, experts=packs)
    return stored, launched, group_bytes(narrowed_count(graph, stored), precision.weights)


def _by_engine(graph: InferredGraph, ways: _Ways, runtime: Runtime) -> _Ways:
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
    if runtime.sums_fp16:
        from neusight_onnx.lowering.accumulators import with_accumulators

        ways = ways.each(lambda work: tuple(with_accumulators(work, runtime)))
    return ways


def _with_boundary_copies(graph: InferredGraph, work: Sequence[NodeWork]) -> tuple[NodeWork, ...]:
    before, behind = boundary_copies(graph)
    return (*([before] if before else []), *work, *([behind] if behind else []))


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


def _casts_count(work: Sequence[NodeWork]) -> bool:
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


def _allows_by_flags(precision: Precision, runtime: Runtime) -> bool:
    """Whether an engine's builder was allowed 16 bits, or int8 and these, by flags, beside the float32 of the file."""
    if not runtime.times_kernels or runtime.narrow_products != "calibrated":
        return False
    return precision.mixed or (precision.products is DataType.INT8 and precision.weights is not None)


def _is_copy(kernel: Kernel) -> bool:
    return isinstance(kernel, Transfer)


def _uncapturable(graph: InferredGraph, work: Sequence[NodeWork], runtime: Runtime) -> str | None:
    """Why a run can't be captured as a CUDA graph: the host decides something in the middle of it."""
    waited = next((item.node for item in work if item.kernels and item.host_waits), None)
    if waited is not None:
        return f"the host waits for {file_name(waited)} in the middle of the run"
    copied = next((item.node for item in work if not item.is_boundary and any(map(_is_copy, item.kernels))), None)
    if copied is not None:  # onnxruntime-gpu 1.31.1 refuses such a session, and takes shapes that are the CPU's alone
        return f"what the host computes of sizes for {file_name(copied)} is copied in the middle of the run"
    if graph.bodies and runtime.fallback != "none":
        owner = file_name(next(iter(graph.bodies))[0])
        return f"{owner} is control flow, whose branches and trips the host decides"
    undecided = next((node for node in graph.graph.nodes if node.op_type == "If"), None)
    if undecided is not None:
        return f"the host waits for the condition of {file_name(undecided.name)}"
    return None


def why_uncaptured(prepared: PreparedModel) -> str | None:
    """Why a run can't be captured as a CUDA graph, asked for or not; None where it can."""
    return _uncapturable(prepared.graph, prepared.work, prepared.runtime)


def _near_misses(verdicts: Sequence[Verdict]) -> tuple[NearMiss, ...]:
    """Where a rule looked and didn't merge; not where it did so from another of the formula's nodes (a normalization
    has two means)."""
    merged = {(verdict.rule, name) for verdict in verdicts for name in verdict.merged}
    return tuple(
        NearMiss(rule=verdict.rule, node=file_name(verdict.node), reason=verdict.reason)
        for verdict in verdicts
        if verdict.reason is not None and (verdict.rule, verdict.node) not in merged
    )


def fusion_of(prepared: PreparedModel, executed: Sequence[NodeWork]) -> FusionSummary:
    """What fusion saves of a run: where an engine's builder chooses among ways to do the work, by what it chose."""
    from neusight_onnx.fusion.savings import savings

    works = executed if prepared.runtime.times_kernels else prepared.merged
    saved = savings(prepared.unfused, works, lazy=prepared.runtime.name in LAZY_VIEWS)
    return FusionSummary(
        fused_kernel_count=saved.fused_count,
        fused_node_count=saved.node_count,
        saved_kernel_count=saved.kernel_count,
        saved_bytes=saved.byte_count,
        near_misses=prepared.near_misses,
    )


def _laid_out(fused: InferredGraph, runtime: Runtime, *, training: bool, free: FreeWorks | None = None) -> Lowered:
    return lower_laid_out(fused, runtime=runtime, order=order_of(fused, runtime, training=training), free=free)


def works_of(
    fused: InferredGraph,
    runtime: Runtime,
    *,
    training: bool = False,
    others: AtOtherSizes | None = None,
    parsed: InferredGraph | None = None,
) -> tuple[NodeWork, ...]:
    """The work of every node of a graph that was fused for ``runtime``; ``training``: as the run forward of a step.

    ``others``: shared between the sizes of a model. ``parsed``: the graph before anything in it was merged.
    """
    others = AtOtherSizes() if others is None else others
    lowered = _laid_out(fused, runtime, training=training, free=others.free)
    works = place(fused, lowered.works, runtime, known=lowered.known, parsed=parsed)
    if runtime.computes_shapes:
        works = with_host_arithmetic(fused, works, others.free, others.folded)
    if runtime.pointwise == "chains":
        from neusight_onnx.fusion.loops import merge_loops

        works = merge_loops(fused, works, lowered.strides, engine=bool(runtime.products))
    return _as_launched(works, runtime)


def _as_launched(works: Sequence[NodeWork], runtime: Runtime) -> tuple[NodeWork, ...]:
    """``works`` by the kernels that ``runtime`` has for them; those that are so already stay."""
    return with_own_kernels(with_widened_weights(works, runtime), runtime)


def _step_of_training(
    fused: InferredGraph, plan: Training, precision: Precision, runtime: Runtime
) -> tuple[InferredGraph, tuple[NodeWork, ...], Trained]:
    """A step of training of a graph in its form for it: the graph with what is assumed, its run forward, all of it."""
    from neusight_onnx.backward import train

    lowered = _laid_out(fused, runtime, training=True)
    works = with_own_kernels(place(fused, lowered.works, runtime, known=lowered.known), runtime)
    merged = works_of(fused, runtime, training=True) if runtime.pointwise == "chains" else None
    trained = train(fused, works, lowered.strides, plan, runtime, merged=merged)
    if precision.products is not None:
        from neusight_onnx.lowering.products import with_products

        trained = replace(trained, works=tuple(with_products(trained.works, precision.products, None)))
    executed = works if merged is None else merged
    return replace(fused, assumptions=(*fused.assumptions, *trained.said)), executed, trained


def _cache_names(graph: InferredGraph) -> frozenset[str]:
    """The inputs and outputs that hold keys and values of earlier tokens, an encoder's among them.

    ONNX Runtime's own tools convert them along with the weights: ``convert_to_onnx`` of its Llama and Phi-2
    (``keep_io_types=False``), those of GPT-2 and T5 keep logits at most (``onnxruntime.transformers.models`` of 1.32).
    """
    pairs = cache_pairs(graph)
    if not pairs:
        return frozenset()
    read = (declared.name for declared in graph.graph.inputs if is_called_cache(declared.name))
    return frozenset(read).union(*((pair.past, pair.present) for pair in pairs))


def _in_training(fused: InferredGraph, plan: Training) -> InferredGraph:
    from neusight_onnx.backward import as_trained

    form = as_trained(fused, plan)
    return replace(form.graph, assumptions=(*form.graph.assumptions, *form.said))


def _require_training(plan: Training, precision: Precision, runtime: Runtime, include_io: bool) -> None:
    """Raises NotSupportedError for what there is no model of in training, OptionError for what is no plan of it."""
    from neusight_onnx.backward import Training

    if not isinstance(plan, Training):
        raise OptionError(
            f"training is {shown(repr(plan))}; give a plan, such as "
            "neusight_onnx.backward.make_training(optimizer='adamw')"
        )
    if include_io:
        raise NotSupportedError("copies of inputs and outputs are counted at inference only; leave out --include-io")
    if runtime.name not in LAZY_VIEWS or runtime.captured:
        if runtime.captured:
            raise NotSupportedError("training has no model in a CUDA graph; leave out --cuda-graph")
        supported = ", ".join(sorted(LAZY_VIEWS))
        raise NotSupportedError(
            f"training has no model in runtime '{runtime.name}'; supported now: --runtime {supported}"
        )
    if (reason := untrained(precision)) is not None:
        raise NotSupportedError(reason)


def _before_recognition(graph: InferredGraph, precision: Precision, runtime: Runtime) -> InferredGraph:
    if precision.plain is None:
        return graph
    in_pytorch = _in_pytorch(runtime)
    if precision.mixed and in_pytorch:
        return as_precision(graph, DataType.FLOAT32)
    if precision.mixed or (precision.weights is not None and not in_pytorch):
        from neusight_onnx.lowering.conversion import converted

        # TensorRT takes the types of inputs and outputs from the file, which its quantiser leaves as they are (Model
        # Optimizer's ``direct_io_types`` is False by default); who stores weights in few bits for ONNX Runtime has a
        # decoder's file in 16 bits from end to end, its cache included
        keeps_io = precision.mixed or runtime.name == "tensorrt"
        by_flag = _allows_by_flags(precision, runtime)
        caches = _cache_names(graph) if runtime.name == "onnxruntime" else frozenset()
        return converted(
            graph, precision.plain, runtime=runtime.name, keeps_io=keeps_io, caches=caches, by_flag=by_flag
        )
    return as_precision(graph, precision.plain)
