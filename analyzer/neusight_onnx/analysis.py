"""The steps in order: read, infer, recognise, lower, predict, assemble.

Not named after its function: a module `analyze` would hide `neusight_onnx.analyze`, the function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from neusight_onnx import __version__
from neusight_onnx.batch import batch_of
from neusight_onnx.collection import no_collection
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError, ModelError, NotSupportedError, SpecError
from neusight_onnx.fusion.runtimes import fused_graph, fusion_verdicts
from neusight_onnx.fusion.savings import savings
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.graph.bindings import Bindings, BoundInputs, is_batch_symbol, make_bindings, named_as_in
from neusight_onnx.graph.model import Array, InferredGraph, Model, Notice, file_name
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.shapes import Memo, at_expected_sizes, bind_and_infer
from neusight_onnx.kernels import KERNEL_CLASSES, Conv, Kernel, NodeWork, TensorSpec, kernel_dtype
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.branches import NOT_COUNTED, Cost, choose_branches, decisions_said
from neusight_onnx.lowering.context import LAZY_VIEWS
from neusight_onnx.lowering.layouts import WIDEST_ORDERED_BITS, with_layouts
from neusight_onnx.lowering.placement import boundary_copies, place
from neusight_onnx.lowering.precision import as_precision, stored_precision
from neusight_onnx.memory import RunMemory, largest_batch, memory_on, parameter_summary, run_memory
from neusight_onnx.precision import AUTO, Precision, require, resolve
from neusight_onnx.predictor import Prediction, Predictors, predict
from neusight_onnx.report.model import (
    TIGHT,
    Coverage,
    FusionSummary,
    HostSummary,
    KernelRow,
    LargestBatch,
    MemoryEstimate,
    ModelSummary,
    NearMiss,
    Report,
    Settings,
    TimelineSpan,
    Totals,
    TrainingSummary,
    UnsupportedNode,
    ValueSummary,
)
from neusight_onnx.report.quantities import capacity, percent
from neusight_onnx.runtime import Runtime, Step, get_runtime, host_time_us, stream_launches, stream_time_us
from neusight_onnx.uncertainty import Share, cancelling, combined_us

if TYPE_CHECKING:
    from neusight_onnx.backward import Trained, Training

INTERVAL = 0.8
"""Share of cases meant to lie within the interval of a latency."""

INTERVAL_METHOD = (
    "each kernel's interval is that of GPUs left out of the fit, narrower on a measured GPU; what kernels err with "
    "their GPU adds up, what each errs by itself partly cancels; the host is taken to be up to {host_spread:g} times "
    "faster or slower"
)


def analyze(
    model: str | Path | Model,
    *,
    gpu: str | Path | GpuSpec,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, Array] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    precision: str = "auto",
    runtime: str = "eager",
    cuda_graph: bool = False,
    include_io: bool = False,
    memory_timeline: bool = False,
    with_largest_batch: bool = False,
    timeline: bool = False,
    explain_fusion: bool = False,
    training: Training | None = None,
) -> Report:
    """Predicts how fast ``model`` runs on ``gpu``.

    ``model``: a path, or what :func:`read_model` gave. ``gpu``: a name, an alias, a TOML file or a spec.
    ``dims`` binds symbols, ``shapes`` whole inputs, ``values`` inputs on whose value shapes depend,
    ``trip_counts`` loops (by node name). ``cuda_graph``: the run is replayed as a CUDA graph; ``include_io``: inputs
    come from the host and outputs go back. ``memory_timeline``: the report's memory has the bytes alive after each
    node; ``with_largest_batch``: and the largest batch that fits (the model is read anew for 3 to 8 sizes). Raises a
    :class:`~neusight_onnx.errors.NeusightError` for whatever the user can mend: an unreadable model, an unknown GPU,
    contradicting bindings, a precision or runtime without a model.
    ``timeline``: the report has the spans of the run; ``explain_fusion``: and why rules of the runtime didn't merge
    what they could have. ``training``: a step of training in place of a run of inference, made with
    :func:`~neusight_onnx.backward.make_training`.
    """
    get_runtime(runtime)
    if not isinstance(gpu, str | Path | GpuSpec):
        raise SpecError(f"gpu is {gpu!r}; give a name, the path of a TOML file or a GpuSpec")
    if not isinstance(model, str | Path | Model):
        raise ModelError(
            f"model is a {type(model).__name__}; give the path of an ONNX file or what read_model returned"
        )
    spec = gpu if isinstance(gpu, GpuSpec) else load_gpu(gpu)
    loaded = model if isinstance(model, Model) else read_model(model)
    bindings = make_bindings(dims, shapes, values, trip_counts)
    resolved = resolve(precision, stored_precision(loaded))
    require(resolved, spec)
    prepared = prepare(
        infer_shapes(loaded, bindings),
        precision=resolved,
        runtime=runtime,
        cuda_graph=cuda_graph,
        include_io=include_io,
        memory_timeline=memory_timeline,
        explain_fusion=explain_fusion,
        training=training,
    )
    report = predict_report(prepared, spec, asked_precision=precision, timeline=timeline)
    if with_largest_batch:
        found = find_largest_batch(prepared, bindings, spec)
        memory = replace(report.totals.memory, largest_batch=found)
        report = replace(report, totals=replace(report.totals, memory=memory))
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedModel:
    """A model with its dims bound and its shapes inferred: the same for every precision, runtime and GPU.

    ``inferred`` holds bounds where shapes depend on data, ``expected`` the sizes that costs are counted with.
    """

    model: Model
    bound: BoundInputs
    inferred: InferredGraph
    expected: InferredGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A shaped model as a runtime executes it: patterns recognised, every node lowered; the same for every GPU.

    ``include_io``: the work has the copies of inputs and outputs. ``said``: why there is no CUDA graph, if one was
    asked for that can't be.
    """

    shaped: ShapedModel
    precision: Precision
    graph: InferredGraph
    work: tuple[NodeWork, ...]
    runtime: Runtime
    memory: RunMemory
    fusion: FusionSummary
    include_io: bool = False
    said: tuple[str, ...] = ()
    trained: Trained | None = None


def infer_shapes(model: Model, bindings: Bindings, memo: Memo | None = None) -> ShapedModel:
    """The first step of :func:`analyze`, to be shared between analyses of one model at the same sizes.

    ``memo``: one of ``model.graph``, to be shared between analyses at other sizes: nodes whose inputs are what they
    were at one of them are not inferred again.
    """
    bindings = named_as_in(model, bindings)
    with no_collection():
        bound, inferred = bind_and_infer(model, bindings, memo)
        expected = at_expected_sizes(model, bindings, bound, inferred)
    return ShapedModel(model=model, bound=bound, inferred=inferred, expected=expected)


def prepare(
    shaped: ShapedModel,
    *,
    precision: Precision,
    runtime: str,
    cuda_graph: bool = False,
    include_io: bool = False,
    memory_timeline: bool = False,
    explain_fusion: bool = False,
    training: Training | None = None,
) -> PreparedModel:
    """The second step: what ``runtime`` executes in ``precision``.

    ``cuda_graph``: replayed as a graph, where that is possible; ``include_io``: with the copies of inputs and outputs
    from and to the host. ``memory_timeline``: keep the bytes alive after each node; ``explain_fusion``: and why rules
    of the runtime that could have merged nodes didn't. ``training``: a step of training, not
    inference; raises TrainingError where the model has nothing to train.
    """
    runtime_model = get_runtime(runtime, cuda_graph=cuda_graph)
    if training is not None:
        _require_training(precision, runtime_model, include_io)
    in_pytorch = runtime in ("eager", "compiled")
    with no_collection():
        # converters change the file before anything is recognised in it; autocast sees the operators that run
        graph = _before_recognition(shaped.expected, precision, runtime, in_pytorch)
        called = graph
        if in_pytorch and precision.name not in ("fp32", "tf32"):
            from neusight_onnx.fusion.called_attention import with_called_attention

            narrow = precision.mixed and precision.plain is not None
            called = with_called_attention(graph, runtime=runtime, autocast=narrow)
        recognised = fused_graph(called, runtime_model)
        if training is not None:
            recognised = _in_training(recognised, training)
        if precision.mixed and in_pytorch and precision.plain is not None:
            from neusight_onnx.lowering.recast import autocast

            recognised = autocast(recognised, precision.plain, runtime=runtime)
        trained = None
        if training is None:
            work = works_of(recognised, runtime_model)
        else:
            recognised, work, trained = _step_of_training(recognised, training, precision, runtime_model)
        if precision.products is not None or precision.weights is not None:
            from neusight_onnx.lowering.recast import with_products, with_weights

            # an engine is built with scales from calibration; PyTorch and ONNX Runtime find them in every run
            calibrated = runtime == "tensorrt"
            work = tuple(with_products(work, precision.products, precision.weights, calibrated=calibrated))
            if precision.weights is not None:
                convolutions = calibrated and precision.products is DataType.INT8
                recognised = with_weights(recognised, precision.weights, convolutions=convolutions)
        work = with_layouts(work, runtime_model)
        if trained is not None:
            trained = replace(trained, works=with_layouts(trained.works, runtime_model))
        memory = run_memory(recognised, work, runtime, timeline=memory_timeline, trained=trained)
        fusion = _fusion(graph, work, runtime_model, explained=explain_fusion)
        said: tuple[str, ...] = ()
        if cuda_graph and (reason := _uncapturable(recognised, work, runtime_model)):
            runtime_model = get_runtime(runtime)
            said = (f"no CUDA graph: {reason}",)
        if include_io:
            before, behind = boundary_copies(recognised)
            work = (*([before] if before else []), *work, *([behind] if behind else []))
    return PreparedModel(
        shaped=shaped,
        precision=precision,
        graph=recognised,
        work=work if trained is None else trained.works,
        runtime=runtime_model,
        memory=memory,
        include_io=include_io,
        said=said,
        fusion=fusion,
        trained=trained,
    )


def _uncapturable(graph: InferredGraph, work: Sequence[NodeWork], runtime: Runtime) -> str | None:
    """Why a run can't be captured as a CUDA graph: the host decides something in the middle of it."""
    waited = next((item.node for item in work if item.kernels and item.host_waits), None)
    if waited is not None:
        return f"the host waits for {file_name(waited)} in the middle of the run"
    if graph.bodies and runtime.fallback != "none":
        owner = file_name(next(iter(graph.bodies))[0])
        return f"{owner} is control flow, whose branches and trips the host decides"
    return None


def _fusion(unfused: InferredGraph, work: Sequence[NodeWork], runtime: Runtime, *, explained: bool) -> FusionSummary:
    saved = savings(unfused, work, lazy=runtime.name in LAZY_VIEWS)
    near = None
    if explained:
        near = tuple(
            NearMiss(rule=verdict.rule, node=file_name(verdict.node), reason=verdict.reason)
            for verdict in fusion_verdicts(unfused, runtime)
            if verdict.reason is not None
        )
    return FusionSummary(
        fused_kernel_count=saved.fused_count,
        fused_node_count=saved.node_count,
        saved_kernel_count=saved.kernel_count,
        saved_bytes=saved.byte_count,
        near_misses=near,
    )


def works_of(fused: InferredGraph, runtime: Runtime) -> tuple[NodeWork, ...]:
    """The work of every node of a graph that was fused for ``runtime``."""
    lowered = lower_laid_out(fused, runtime=runtime.name)
    works = place(fused, lowered.works, runtime)
    if runtime.pointwise != "chains":
        return works
    from neusight_onnx.fusion.loops import merge_loops

    return merge_loops(fused, works, lowered.strides, peels_biases=not runtime.products)


def _step_of_training(
    fused: InferredGraph, plan: Training, precision: Precision, runtime: Runtime
) -> tuple[InferredGraph, tuple[NodeWork, ...], Trained]:
    """A step of training of a graph in its form for it: the graph with what is assumed, its run forward, all of it."""
    from neusight_onnx.backward import train

    lowered = lower_laid_out(fused, runtime=runtime.name)
    works = place(fused, lowered.works, runtime)
    merged = works_of(fused, runtime) if runtime.pointwise == "chains" else None
    trained = train(fused, works, lowered.strides, plan, runtime.name, merged=merged)
    if precision.products is not None:
        from neusight_onnx.lowering.recast import with_products

        trained = replace(trained, works=tuple(with_products(trained.works, precision.products, None)))
    executed = works if merged is None else merged
    return replace(fused, assumptions=(*fused.assumptions, *trained.said)), executed, trained


def _in_training(fused: InferredGraph, plan: Training) -> InferredGraph:
    from neusight_onnx.backward import as_trained

    form = as_trained(fused, plan)
    return replace(form.graph, assumptions=(*form.graph.assumptions, *form.said))


def _require_training(precision: Precision, runtime: Runtime, include_io: bool) -> None:
    """Raises NotSupportedError for what there is no model of in training."""
    if include_io:
        raise NotSupportedError("copies of inputs and outputs are counted at inference only; leave out --include-io")
    if runtime.name not in LAZY_VIEWS or runtime.captured:
        asked = "a CUDA graph" if runtime.captured else f"runtime '{runtime.name}'"
        supported = ", ".join(sorted(LAZY_VIEWS))
        raise NotSupportedError(f"training has no model in {asked}; supported now: --runtime {supported}")
    if precision.weights is not None:
        raise NotSupportedError(f"training in {precision.name} has no model; supported now: fp32, tf32, fp16, bf16")


def _before_recognition(graph: InferredGraph, precision: Precision, runtime: str, in_pytorch: bool) -> InferredGraph:
    if precision.plain is None:
        return graph
    if precision.mixed and in_pytorch:
        return as_precision(graph, DataType.FLOAT32)
    if precision.mixed or (precision.weights is not None and not in_pytorch):
        from neusight_onnx.lowering.recast import converted

        return converted(graph, precision.plain, runtime=runtime)
    return as_precision(graph, precision.plain)


def predict_report(prepared: PreparedModel, spec: GpuSpec, *, asked_precision: str, timeline: bool = False) -> Report:
    """The last step: the kernels' times on ``spec``, and the report of all.

    ``asked_precision``: what the user wrote ("auto"). ``timeline``: with the spans of the run.
    """
    with no_collection():
        placed = _placed(works_on(prepared, spec), spec)
        report = _assemble(
            prepared.shaped.model,
            prepared.graph,
            placed,
            spec,
            prepared.runtime,
            _settings(prepared),
            prepared.precision,
            asked_precision,
            memory_on(prepared.memory, spec),
            sized_by_data(prepared.shaped.inferred),
            prepared.said,
            prepared.trained,
        )
        counted = _counted(prepared.graph, placed).works
        report = replace(report, fusion=prepared.fusion, host=_host(counted, prepared, spec, report.totals))
        if prepared.trained is not None:
            report = replace(report, training=_training(prepared.trained, prepared.memory))
        if not timeline:
            return report
        return replace(report, timeline=tuple(_timeline(counted, prepared.runtime)))


MOST_BATCH = 1 << 16


def _host(counted: Sequence[_Placed], prepared: PreparedModel, spec: GpuSpec, totals: Totals) -> HostSummary:
    """Whether the host or the GPU takes longer, and from which batch on the GPU does.

    By scaling, not by analysing other batches: a kernel whose tiles fill the GPU takes as many times longer as the
    batch is larger, one that fills a part of it only from where it would be full.
    """
    runtime = prepared.runtime
    host_us = host_time_us(_steps(counted, lambda prediction: prediction.latency_us), runtime)
    kernel_us = totals.kernel_ms * 1e3
    is_bound = host_us > kernel_us
    has_batch = any(is_batch_symbol(name) for name in prepared.shaped.bound.symbols)
    if not is_bound or not has_batch:
        return HostSummary(host_ms=host_us / 1e3, is_bound=is_bound)
    kernels = [
        (item.work.count * prediction.latency_us, min(1.0, prediction.tile_count / spec.sm_count))
        for item in counted
        for prediction in item.predictions
    ]
    factor = 2
    while factor * totals.batch_size <= MOST_BATCH:
        if sum(time_us * max(1.0, factor * filled) for time_us, filled in kernels) >= host_us:
            return HostSummary(host_ms=host_us / 1e3, is_bound=True, free_from_batch=factor * totals.batch_size)
        factor *= 2
    return HostSummary(host_ms=host_us / 1e3, is_bound=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A prediction in short. ``bound_shares``: of the latency, by what bounds it ("host": the GPU waits for it), the
    largest first. ``unsupported``: the nodes that count as nothing. ``assumptions``: what stands in for what the model
    doesn't say (sizes, trips, branches); those that hold for every prediction are in a report only."""

    totals: Totals
    bound_shares: Mapping[str, float]
    unsupported: tuple[UnsupportedNode, ...]
    assumptions: tuple[str, ...] = ()


def predict_totals(prepared: PreparedModel, spec: GpuSpec, *, predictors: Predictors | None = None) -> Totals:
    """The totals of :func:`predict_report` alone, without a row for each kernel, in a third of the time or less.

    ``predictors``: default the shipped ones.
    """
    return predict_outcome(prepared, spec, predictors=predictors).totals


def predict_outcome(prepared: PreparedModel, spec: GpuSpec, *, predictors: Predictors | None = None) -> Outcome:
    """As :func:`predict_totals`, with what bounds the latency and what is not in it."""
    with no_collection():
        # most nodes of an exported graph are free for host and GPU: without a branch to decide, nothing asks for them
        work = [
            item
            for item in works_on(prepared, spec)
            if item.kernels or item.host_operation or item.branch or item.unsupported is not None
        ]
        placed = _placed(work, spec, predictors)
        decided = _counted(prepared.graph, placed)
        counted = decided.works
        unsupported = _unsupported(placed)
        totals = _totals(
            prepared.graph,
            counted,
            _facts(counted),
            prepared.runtime,
            _settings(prepared),
            bool(unsupported),
            memory_on(prepared.memory, spec),
            prepared.trained,
        )
        said = (
            *prepared.graph.assumptions,
            *decided.said,
            *_range_of_branches(decided, totals, prepared.runtime),
            *_of_the_batch(prepared.graph, prepared.shaped.bound.symbols),
            *_of_the_run(prepared),
        )
        return Outcome(
            totals=totals,
            bound_shares=_bound_shares(counted, totals),
            unsupported=unsupported,
            assumptions=tuple(dict.fromkeys(said)),
        )


def _of_the_batch(inferred: InferredGraph, symbols: Mapping[str, int]) -> Iterator[str]:
    _, guessed = batch_of(inferred, symbols)
    if guessed is not None:
        yield guessed


def _of_the_run(prepared: PreparedModel) -> Iterator[str]:
    """What was asked for and is not the default: a short report has it among its assumptions."""
    yield from prepared.said
    if prepared.runtime.captured:
        yield "runs are replayed as CUDA graphs (--cuda-graph)"
    if prepared.include_io:
        yield "inputs are copied from the host and outputs back, over PCIe (--include-io)"


def _bound_shares(counted: Sequence[_Placed], totals: Totals) -> Mapping[str, float]:
    spent_us: dict[str, float] = {}
    for item in counted:
        for prediction in item.predictions:
            time_us = item.work.count * prediction.latency_us
            spent_us[prediction.bound] = spent_us.get(prediction.bound, 0.0) + time_us
    if totals.overhead_ms > 0:
        spent_us["host"] = totals.overhead_ms * 1e3
    total_us = totals.latency_ms * 1e3
    largest_first = sorted(spent_us.items(), key=lambda entry: -entry[1])
    return {bound: part_us / total_us for bound, part_us in largest_first} if total_us else {}


def batch_symbol(prepared: PreparedModel) -> str:
    """The symbolic dim that is named as a batch; BindingError if the model has none."""
    symbols = prepared.shaped.bound.symbols
    for name in symbols:
        if is_batch_symbol(name):
            return name
    others = ", ".join(f"'{name}'" for name in symbols)
    raise BindingError(
        "the largest batch: no symbolic dim of the inputs is named as a batch "
        + (f"(there are {others}); name one of them so" if others else "(all sizes are fixed); export it with one")
    )


def find_largest_batch(
    prepared: PreparedModel, bindings: Bindings, spec: GpuSpec, *, symbol: str | None = None
) -> LargestBatch:
    """The largest batch (or size of ``symbol``) that fits on ``spec``, the other sizes being those of ``prepared``.

    ``bindings`` are those that the model was prepared with. Each size tried is inferred and lowered anew.
    """
    name = batch_symbol(prepared) if symbol is None else symbol
    symbols = prepared.shaped.bound.symbols

    def measure(size: int) -> MemoryEstimate:
        rebound = replace(bindings, dims={**bindings.dims, name: size})
        shaped = infer_shapes(prepared.shaped.model, rebound)
        plan = None if prepared.trained is None else prepared.trained.plan
        found = prepare(shaped, precision=prepared.precision, runtime=prepared.runtime.name, training=plan)
        return memory_on(found.memory, spec)

    return largest_batch(measure, name, symbols[name], memory_on(prepared.memory, spec))


def _settings(prepared: PreparedModel) -> Settings:
    dims = dict(prepared.shaped.bound.symbols)
    return Settings(
        mode="inference" if prepared.trained is None else "training",
        precision=prepared.precision.name,
        runtime=prepared.runtime.name,
        dims=dims,
        cuda_graph=prepared.runtime.captured,
        include_io=prepared.include_io,
    )


def _training(trained: Trained, memory: RunMemory) -> TrainingSummary:
    plan = trained.plan
    return TrainingSummary(
        optimizer=plan.optimizer,
        loss=plan.loss,
        recompute=plan.recompute,
        grad_accumulation=plan.grad_accumulation,
        dropout=None
        if plan.dropout is None
        else {kind: getattr(plan.dropout, kind) for kind in ("attention", "residual", "embedding")},
        freeze=plan.freeze,
        trained_parameter_count=trained.parameter_count,
        gradient_bytes=sum(parameter.spec.byte_count for parameter in trained.parameters),
        optimizer_state_bytes=trained.optimizer.state_bytes,
        master_weight_bytes=trained.optimizer.master_bytes,
        saved_bytes=sum(tensor.byte_count for tensor in memory.saved),
        saved=memory.saved,
    )


def works_on(prepared: PreparedModel, spec: GpuSpec) -> Sequence[NodeWork]:
    """The work as it is executed on a GPU, where the runtime's kernels aren't those of all GPUs."""
    runtime = prepared.runtime
    least = runtime.attention_capability
    if least is None or spec.compute_capability is None or spec.compute_capability >= least:
        return prepared.work
    from neusight_onnx.fusion.attention import by_parts

    return tuple(by_parts(work) for work in prepared.work)


def _placed(work: Sequence[NodeWork], spec: GpuSpec, predictors: Predictors | None = None) -> list[_Placed]:
    kernels = [kernel for item in work for kernel in item.kernels]
    return _place(work, predict(kernels, spec, predictors=predictors))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A node's work with the predictions of its kernels."""

    work: NodeWork
    predictions: tuple[Prediction, ...]

    @property
    def latency_us(self) -> float:
        return self.work.count * sum(prediction.latency_us for prediction in self.predictions)


def _place(work: Sequence[NodeWork], predictions: Sequence[Prediction]) -> list[_Placed]:
    placed = []
    start = 0
    for item in work:
        end = start + len(item.kernels)
        placed.append(_Placed(work=item, predictions=tuple(predictions[start:end])))
        start = end
    return placed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """What is executed, of all nodes: without the faster branch of every If whose condition isn't known.

    ``said``: those decisions. ``faster``: what would be executed if every such If took its faster branch; None
    if there is none.
    """

    works: tuple[_Placed, ...]
    left_out: frozenset[int] = frozenset()
    said: tuple[str, ...] = ()
    faster: tuple[_Placed, ...] | None = None


def _counted(inferred: InferredGraph, placed: Sequence[_Placed]) -> _Counted:
    if not any(item.work.branch for item in placed):
        return _Counted(works=tuple(placed))
    works = [item.work for item in placed]
    # where no kernel makes a difference, what the host has to go through does
    costs = [(item.latency_us, float(item.work.count * item.work.host_operation)) for item in placed]
    slower, faster = choose_branches(works, costs), choose_branches(works, costs, least=True)

    def without(left_out: frozenset[int]) -> tuple[_Placed, ...]:
        return tuple(item for at, item in enumerate(placed) if at not in left_out)

    def shown(cost: Cost) -> str:
        return f"{cost[0] if cost else 0.0:.3g} us"

    said = decisions_said(
        [decision for decision in slower.decisions if any(cost and cost[0] for cost in decision.costs.values())],
        inferred.deciders,
        shown,
        counted="the slower branch",
        other="would take",
    )
    return _Counted(
        works=without(slower.left_out), left_out=slower.left_out, said=tuple(said), faster=without(faster.left_out)
    )


def _assemble(
    model: Model,
    inferred: InferredGraph,
    placed: Sequence[_Placed],
    spec: GpuSpec,
    runtime: Runtime,
    settings: Settings,
    precision: Precision,
    asked_precision: str,
    memory: MemoryEstimate,
    by_data: frozenset[str],
    said: Sequence[str],
    trained: Trained | None,
) -> Report:
    counted = _counted(inferred, placed)
    facts = _facts(counted.works)
    rows = tuple(_rows(counted.works, facts))
    unsupported = _unsupported(placed)
    totals = _totals(inferred, counted.works, facts, runtime, settings, bool(unsupported), memory, trained)
    coverage = _coverage(placed, counted.left_out, rows, by_data)
    parameter_count, weight_bytes = parameter_summary(model)
    assumptions = [
        *inferred.assumptions,
        *counted.said,
        *_share_by_data(coverage),
        *_range_of_branches(counted, totals, runtime),
        *_of_the_batch(inferred, settings.dims),
        *said,
        *_standing_assumptions(settings, asked_precision, runtime),
        *(f"memory: {text}" for text in memory.assumptions),
        *_of_precision(precision, runtime),
        *_other_types(rows),
        *_of_layouts(counted.works, spec),
    ]
    return Report(
        tool_version=__version__,
        model=ModelSummary(
            path=model.path,
            sha256=model.sha256,
            ir_version=model.ir_version,
            opsets=dict(model.opsets),
            node_count=coverage.node_count,
            parameter_count=parameter_count,
            weight_bytes=weight_bytes,
            inputs=_summaries(inferred, [declared.name for declared in model.graph.inputs]),
            outputs=_summaries(inferred, [declared.name for declared in model.graph.outputs]),
        ),
        gpu=spec,
        settings=settings,
        totals=totals,
        coverage=coverage,
        kernels=rows,
        unsupported=unsupported,
        assumptions=tuple(dict.fromkeys(assumptions)),
        warnings=(*model.warnings, *inferred.warnings, *_own_warnings(totals, unsupported, spec)),
    )


def sized_by_data(inferred: InferredGraph) -> frozenset[str]:
    """The file's nodes, those of bodies included, that have an input or output whose shape depends on data."""
    found: set[str] = set()
    pending = [inferred]
    while pending:
        graph = pending.pop()
        pending += graph.bodies.values()
        values = graph.values
        bounded = {name for name in values if values[name].is_bound}
        if bounded:
            for node in graph.graph.nodes:
                if not bounded.isdisjoint(node.outputs) or not bounded.isdisjoint(node.inputs):
                    found.update([origin.name for origin in node.origins] or [file_name(node.name)])
    return frozenset(found)


def _share_by_data(coverage: Coverage) -> Iterator[str]:
    if coverage.data_dependent_share > 0:
        yield (
            f"{percent(coverage.data_dependent_share)} of the kernels' time goes to tensors whose shape depends on "
            "data: counted at the greatest that it can be, or as is stated here"
        )


def _range_of_branches(counted: _Counted, totals: Totals, runtime: Runtime) -> Iterator[str]:
    """The latency if every undecided If took its faster branch, beside the one that is shown."""
    if counted.faster is None or not counted.said:
        return
    least_ms = stream_time_us(_steps(counted.faster, lambda prediction: prediction.latency_us), runtime) / 1e3
    yield (
        f"if every If whose condition is not known took its faster branch, the latency would be {least_ms:.3g} ms, "
        f"not {totals.latency_ms:.3g} ms"
    )


def _standing_assumptions(settings: Settings, asked: str, runtime: Runtime) -> Iterator[str]:
    stored = "as stored in the model" if asked == AUTO else "as asked; the file may store another"
    yield f"precision {settings.precision} ({stored}; --precision changes it)"
    if runtime.captured:
        yield (
            f"runtime {runtime.name}: {runtime.description}, replayed as a CUDA graph: {runtime.graph_us:g} us of host "
            "time in all (--no-cuda-graph changes it); capturing it is not counted"
        )
    else:
        yield (
            f"runtime {runtime.name}: {runtime.description}; {runtime.kernel_us:g} us of host time a kernel, "
            f"{runtime.view_us:g} us an operator without one (--runtime changes it)"
        )
    if settings.include_io:
        yield "inputs are copied from the host and outputs back, over PCIe, before and after everything else"
    else:
        yield "inputs are on the GPU already; copies from and to the host are not counted"
    yield from _said_of_engines(runtime, settings.precision)


def _said_of_engines(runtime: Runtime, precision: str) -> Iterator[str]:
    if runtime.fallback == "none":
        return
    yield "loading, optimising and building the model are not counted, nor is the first run"
    if runtime.tf32 and precision == "fp32":
        yield (
            f"{runtime.name} takes TF32 for products of FP32 where the GPU has it, unless it is told not to: as "
            "asked, this is IEEE FP32"
        )


def _of_precision(precision: Precision, runtime: Runtime) -> Iterator[str]:
    """What a precision changes; autocast and converters say themselves what they did."""
    plain, name = precision.plain, precision.name
    if precision.products is DataType.TFLOAT32:
        yield (
            "products, convolutions, attention and recurrent layers of float32 multiply TF32; no kernel in it was "
            "measured: its products rest on the law of 16-bit ones with the TF32 peak"
        )
    elif precision.weights is not None and plain is not None:
        how = (
            f"weights are stored as {precision.weights.label} beside activations in {plain.label}"
            if precision.products is None
            else f"weights are stored as {precision.weights.label}, activations are converted to "
            f"{precision.products.label} before each product"
        )
        if runtime.name == "tensorrt" and precision.products is not None:
            what = "convolutions and linear layers" if precision.products is DataType.INT8 else "linear layers"
            yield (
                f"{name}: {what} with constant weights multiply {precision.products.label}, with scales from "
                f"calibration (or QuantizeLinear nodes), each activation quantised by the layer that makes it; "
                f"everything else runs in {plain.label}"
            )
        else:
            yield f"{name}: linear layers, whose weights are constants: {how}; everything else runs in {plain.label}"
    elif plain is not None and plain.bits == 16 and not precision.mixed:
        yield f"{name}: the whole model in {plain.label}, weights stored so; nothing stays in float32"


def _other_types(rows: Sequence[KernelRow]) -> Iterator[str]:
    """Names the types other than float32 that kernels compute in, and what predicts them."""
    others = [row for row in rows if row.dtype != DataType.FLOAT32.label and row.flops]
    found = Counter((row.dtype, row.predictor) for row in others if row.method == "learned")
    by_type: dict[str, list[str]] = {}
    for (dtype, predictor), count in found.most_common():
        by_type.setdefault(dtype, []).append(f"{predictor} ({count})")
    if by_type:
        said = "; ".join(f"{dtype} by {', '.join(names)}" for dtype, names in by_type.items())
        yield f"what predicts kernels in other types than float32 (docs/precision.md): {said}"
    if analytic := Counter(row.dtype for row in others if row.method != "learned"):
        named = ", ".join(f"{dtype} ({count})" for dtype, count in analytic.items())
        yield f"kernels without a predictor, by an analytic estimate of stated efficiency: {named}"


def _of_layouts(works: Sequence[_Placed], spec: GpuSpec) -> Iterator[str]:
    """That a library transposes around convolutions on matrix units, where it does."""
    kernels = [kernel for item in works for kernel in item.work.kernels if isinstance(kernel, Conv)]
    as_exported = [
        kernel for kernel in kernels if kernel.dtype.bits <= WIDEST_ORDERED_BITS and not kernel.channels_last
    ]
    if not as_exported or spec.compute_capability is None:
        return
    from neusight_onnx.laws.tensor_gemm import serves

    if any(serves(spec, kernel.dtype) for kernel in as_exported):
        yield (
            "convolutions of 16 and 8 bits find their tensors as the model has them, (n, c, h, w): the library's "
            "transpose of what they read is in their times (a model in channels-last order has none)"
        )


def _own_warnings(totals: Totals, unsupported: Sequence[UnsupportedNode], spec: GpuSpec) -> Iterator[Notice]:
    if totals.partial:
        count = len(unsupported)
        yield Notice(
            code="partial",
            message=f"{count:,} {'node is' if count == 1 else 'nodes are'} not supported and counted as nothing: "
            "the totals are a lower bound",
        )
    memory = totals.memory
    if not memory.fits:
        yield Notice(
            code="memory",
            message=f"needs about {capacity(memory.peak_bytes)}, {spec.name} has {capacity(memory.available_bytes)}: "
            "it does not fit",
        )
    elif memory.verdict == TIGHT:
        yield Notice(
            code="memory_tight",
            message=f"may need up to {capacity(memory.high_bytes)}, {spec.name} has "
            f"{capacity(memory.available_bytes)} and a process can't have all of it: it is tight",
        )


def _summaries(inferred: InferredGraph, names: Sequence[str]) -> tuple[ValueSummary, ...]:
    summaries = []
    for name in names:
        value = inferred.values.get(name)
        dtype = value.dtype.label if value and value.dtype else None
        summaries.append(ValueSummary(name=name, dtype=dtype, shape=value.shape if value else None))
    return tuple(summaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What a report says of a kernel wherever it occurs: made once for equal kernels."""

    kernel_class: str
    dtype: str
    dims: Mapping[str, int | str | tuple[int, ...]]
    flops: int
    macs: int
    read_bytes: int
    write_bytes: int


def _facts(placed: Sequence[_Placed]) -> dict[Kernel, _Facts]:
    facts: dict[Kernel, _Facts] = {}
    for item in placed:
        for kernel in item.work.kernels:
            if kernel not in facts:
                facts[kernel] = _Facts(
                    kernel_class=KERNEL_CLASSES[type(kernel)],
                    dtype=kernel_dtype(kernel).label,
                    dims=kernel_dims(kernel),
                    flops=kernel.flops,
                    macs=kernel.macs,
                    read_bytes=kernel.read_bytes,
                    write_bytes=kernel.write_bytes,
                )
    return facts


def _rows(counted: Sequence[_Placed], facts: Mapping[Kernel, _Facts]) -> Iterator[KernelRow]:
    for position, item in enumerate(counted):
        work = item.work
        names = tuple(name for name, _ in work.origins) or (work.node,)
        op_types = tuple(dict.fromkeys(op_type for _, op_type in work.origins)) or (work.op_type,)
        for index, (kernel, prediction) in enumerate(zip(work.kernels, item.predictions, strict=True)):
            known = facts[kernel]
            yield KernelRow(
                id=f"{position}.{index}",
                phase=work.phase,
                kernel_class=known.kernel_class,
                op_types=op_types,
                nodes=names,
                dtype=known.dtype,
                dims=known.dims,
                count=work.count,
                flops=work.count * known.flops,
                read_bytes=work.count * known.read_bytes,
                write_bytes=work.count * known.write_bytes,
                tile=prediction.tile,
                tile_count=prediction.tile_count,
                wave_count=prediction.wave_count,
                utilization=prediction.utilization,
                bound=prediction.bound,
                latency_us=work.count * prediction.latency_us,
                latency_low_us=work.count * prediction.low_us,
                latency_high_us=work.count * prediction.high_us,
                predictor=prediction.predictor,
                method=prediction.method,
            )


def kernel_dims(kernel: Kernel) -> dict[str, int | str | tuple[int, ...]]:
    """The dims that name a kernel in a report: its integers, strings and shapes, without what is at its default."""
    dims: dict[str, int | str | tuple[int, ...]] = {}
    for item in fields(kernel):
        value = getattr(kernel, item.name)
        if value is None or isinstance(value, DataType) or value == item.default:
            continue
        if isinstance(value, TensorSpec):
            dims[item.name] = value.shape
        elif isinstance(value, bool):
            dims[item.name] = int(value)
        elif isinstance(value, int | str):
            dims[item.name] = value
        elif isinstance(value, tuple):
            if all(isinstance(member, int) for member in value):
                dims[item.name] = value
            elif all(isinstance(member, str) for member in value):
                dims[item.name] = ",".join(value)
            else:
                for index, member in enumerate(value):
                    dims[f"{item.name}_{index}"] = member.shape
    return dims


def _timeline(counted: Sequence[_Placed], runtime: Runtime) -> Iterator[TimelineSpan]:
    """The spans of the run; a kernel's id is that of its row."""
    executed = [(position, item.work) for position, item in enumerate(counted) if _is_executed(item)]
    for launch in stream_launches(_steps(counted, lambda prediction: prediction.latency_us), runtime):
        position, work = executed[launch.step]
        yield TimelineSpan(
            node=work.origins[0][0] if work.origins else work.node,
            op_type=work.origins[0][1] if work.origins else work.op_type,
            kernel_id=None if launch.kernel is None else f"{position}.{launch.kernel}",
            run_count=launch.run_count,
            host_start_us=launch.host_start_us,
            host_us=launch.host_us,
            gpu_start_us=launch.gpu_start_us,
            gpu_us=launch.gpu_us,
        )


def _is_executed(item: _Placed) -> bool:
    return bool(item.predictions) or item.work.host_operation


def _steps(counted: Sequence[_Placed], pick: Callable[[Prediction], float]) -> Iterator[Step]:
    for item in counted:
        if _is_executed(item):
            yield Step(
                kernel_us=tuple(pick(prediction) for prediction in item.predictions),
                count=item.work.count,
                host_waits=item.work.host_waits,
            )


def _totals(
    inferred: InferredGraph,
    counted: Sequence[_Placed],
    facts: Mapping[Kernel, _Facts],
    runtime: Runtime,
    settings: Settings,
    partial: bool,
    memory: MemoryEstimate,
    trained: Trained | None,
) -> Totals:
    def stream(pick: Callable[[Prediction], float], host_factor: float = 1.0) -> float:
        return stream_time_us(_steps(counted, pick), runtime, host_factor=host_factor)

    kernel_us = sum(item.latency_us for item in counted)
    latency_us = stream(lambda prediction: prediction.latency_us)
    low_us, high_us = combined_us(
        latency_us,
        kernels=(stream(lambda prediction: prediction.low_us), stream(lambda prediction: prediction.high_us)),
        host=(
            stream(lambda prediction: prediction.latency_us, 1 / runtime.host_spread),
            stream(lambda prediction: prediction.latency_us, runtime.host_spread),
        ),
        left=cancelling(
            Share(prediction=prediction, kernel_class=facts[kernel].kernel_class, count=item.work.count)
            for item in counted
            for kernel, prediction in zip(item.work.kernels, item.predictions, strict=True)
        ),
    )
    batch_size, _ = batch_of(inferred, settings.dims)
    samples = batch_size * (1 if trained is None else trained.plan.grad_accumulation)
    executed = [(item.work.count, facts[kernel]) for item in counted for kernel in item.work.kernels]
    return Totals(
        latency_ms=latency_us / 1e3,
        latency_low_ms=low_us / 1e3,
        latency_high_ms=high_us / 1e3,
        interval=INTERVAL,
        kernel_ms=kernel_us / 1e3,
        overhead_ms=(latency_us - kernel_us) / 1e3,
        throughput_per_s=samples / latency_us * 1e6 if latency_us else 0.0,
        batch_size=batch_size,
        flops=sum(count * known.flops for count, known in executed),
        macs=sum(count * known.macs for count, known in executed),
        read_bytes=sum(count * known.read_bytes for count, known in executed),
        write_bytes=sum(count * known.write_bytes for count, known in executed),
        phases=_phases(counted, runtime, latency_us),
        memory=memory,
        partial=partial,
        interval_method=INTERVAL_METHOD.format(host_spread=runtime.host_spread),
    )


def _phases(counted: Sequence[_Placed], runtime: Runtime, latency_us: float) -> Mapping[str, float]:
    """Milliseconds of each phase: what the latency grows by when it follows those before it."""
    found = {"forward_ms": latency_us / 1e3, "backward_ms": 0.0, "optimizer_ms": 0.0}
    if all(item.work.phase == "forward" for item in counted):
        return found
    before_us = 0.0
    so_far: list[_Placed] = []
    for phase in ("forward", "backward", "optimizer"):
        so_far += [item for item in counted if item.work.phase == phase]
        until_us = stream_time_us(_steps(so_far, lambda prediction: prediction.latency_us), runtime)
        found[f"{phase}_ms"] = (until_us - before_us) / 1e3
        before_us = until_us
    return found


def _unsupported(placed: Sequence[_Placed]) -> tuple[UnsupportedNode, ...]:
    """Each node of the file once, also where a loop's trips have works of their own."""
    found: dict[str, UnsupportedNode] = {}
    for item in placed:
        work = item.work
        if work.unsupported is not None:
            name = file_name(work.node)
            found.setdefault(name, UnsupportedNode(node=name, op_type=work.op_type, reason=work.unsupported))
    return tuple(found.values())


_STATES = ("free", "kernel", "unsupported")
"""A node of the file may be several works: a view that a later copy names again, the trips of a loop that differ. It
has the last of these states that any of them has."""


def _coverage(
    placed: Sequence[_Placed], left_out: frozenset[int], rows: Sequence[KernelRow], by_data: frozenset[str]
) -> Coverage:
    states: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for at, item in enumerate(placed):
        work = item.work
        if work.is_boundary or (work.phase != "forward" and work.unsupported is None) or work.op_type == "loss":
            continue  # the file's nodes are those of the run forward
        reason = work.free or ""
        state = 0
        if work.unsupported is not None:
            state = 2
        elif at in left_out:
            reason = work.free or NOT_COUNTED
        elif work.kernels:
            state = 1
        for name, _ in work.origins or ((work.node, work.op_type),):
            if state > states.get(name, -1):
                states[name] = state
                reasons[name] = reason
    counts = Counter(_STATES[state] for state in states.values())
    kernel_us = sum(row.latency_us for row in rows)
    share = dict.fromkeys(("learned", "analytic", "unsupported"), 0.0)
    for row in rows:
        share[row.method] += row.latency_us / kernel_us if kernel_us else 0.0
    by_data_us = sum(row.latency_us for row in rows if not by_data.isdisjoint(row.nodes)) if by_data else 0.0
    return Coverage(
        node_count=len(states),
        kernel_node_count=counts["kernel"],
        free_node_count=counts["free"],
        unsupported_node_count=counts["unsupported"],
        latency_share=share,
        data_dependent_share=by_data_us / kernel_us if kernel_us else 0.0,
        free_reasons=dict(Counter(reasons[name] for name, state in states.items() if state == 0)),
    )
