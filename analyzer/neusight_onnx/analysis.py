"""The steps in order: read, infer, recognise, lower, predict, assemble.

Not named after its function: a module `analyze` would hide `neusight_onnx.analyze`, the function.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from neusight_onnx import __version__
from neusight_onnx.batch import batch_of
from neusight_onnx.collection import no_collection
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError, ModelError, SpecError
from neusight_onnx.gpu import GpuSpec, checked_gpu, load_gpu
from neusight_onnx.graph.batch_dimension import Batch, find_batch
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import Array, InferredGraph, Model, Notice, file_name
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import Conv, Gemm, NodeWork
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.memory import (
    STANDING_ASSUMPTIONS,
    RunMemory,
    in_one_buffer,
    kept_in_l2,
    largest_batch,
    memory_on,
    parameter_summary,
    run_memory,
    with_more_weights,
)
from neusight_onnx.precision import AUTO, Precision, in_tf32, resolve, said_of_missing_tf32, takes_tf32
from neusight_onnx.predictor import Predictors, predict
from neusight_onnx.release_effects import changes_met
from neusight_onnx.releases import Change, release_text
from neusight_onnx.report.model import (
    HostSummary,
    LargestBatch,
    MemoryEstimate,
    ModelSummary,
    Report,
    Settings,
    Totals,
    TrainingSummary,
    UnsupportedNode,
)
from neusight_onnx.report.peak import beyond_peak
from neusight_onnx.report.precision_words import stored_formats
from neusight_onnx.runnable import quantised_for_others, require_runnable, require_units
from neusight_onnx.runtime import Runtime, default_runtime, get_runtime, stream_time_us

if TYPE_CHECKING:
    from neusight_onnx.backward import Trained, Training

from neusight_onnx.assembly import (
    Placed,
    bound_shares,
    counted_works,
    host_us_of,
    joined_views,
    kernel_facts,
    kernel_rows,
    make_coverage,
    make_totals,
    quickest,
    stream_steps,
    timeline_spans,
    unsupported_nodes,
    value_summaries,
    with_predictions,
)
from neusight_onnx.assumptions import (
    of_a_newer_release,
    of_clocks,
    of_copies,
    of_experts,
    of_fp32_beside_tf32,
    of_layouts,
    of_little_narrowed,
    of_pipes,
    of_precision,
    of_quantization,
    of_sums,
    of_tactics,
    of_the_batch,
    of_the_chip,
    of_the_gpu,
    of_the_host,
    of_the_l2,
    of_the_last_release,
    of_the_release,
    of_the_run,
    of_the_runtime,
    of_the_stored_precision,
    other_types,
    own_warnings,
    range_of_branches,
    share_by_data,
)
from neusight_onnx.preparation import PreparedModel, every_work, fusion_of, infer_shapes, prepare


def analyze(
    model: str | Path | Model,
    *,
    gpu: str | Path | GpuSpec,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, Array] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    batch: int | None = None,
    precision: str = "auto",
    runtime: str | None = None,
    cuda_graph: bool = False,
    include_io: bool = False,
    channels_last: bool = False,
    memory_timeline: bool = False,
    with_largest_batch: bool = False,
    timeline: bool = False,
    explain_fusion: bool = False,
    training: Training | None = None,
) -> Report:
    """Predicts how fast ``model`` runs on ``gpu``.

    ``model``: a path, or what :func:`read_model` gave. ``gpu``: a name, an alias, a TOML file or a spec.
    ``dims`` binds symbols, ``batch`` the batch, whatever the model calls it, ``shapes`` whole inputs, ``values`` inputs
    on whose value shapes depend, ``trip_counts`` loops (by node name). ``runtime``: what executes it, "onnxruntime"
    where none is given (a step of training: "eager"). ``cuda_graph``: the run is replayed as a CUDA graph;
    ``include_io``: inputs come from the host and outputs go back. ``channels_last``: images and filters lie as
    (n, h, w, c), which ``runtime`` has to take ("eager" and "compiled" do: PyTorch's memory format).
    ``memory_timeline``: the report's memory has the bytes alive after each
    node; ``with_largest_batch``: and the largest batch that fits (the model is read anew for 3 to 8 sizes). Raises a
    :class:`~neusight_onnx.errors.NeusightError` for whatever the user can mend: an unreadable model, an unknown GPU,
    contradicting bindings, a precision or runtime without a model.
    ``timeline``: the report has the spans of the run; ``explain_fusion``: and why rules of the runtime didn't merge
    what they could have. ``training``: a step of training in place of a run of inference, made with
    :func:`~neusight_onnx.backward.make_training`.
    """
    runtime = runtime or default_runtime(training=training is not None)
    get_runtime(runtime, channels_last=channels_last)
    if not isinstance(gpu, str | Path | GpuSpec):
        raise SpecError(f"gpu is {gpu!r}; give a name, the path of a TOML file or a GpuSpec")
    if not isinstance(model, str | Path | Model):
        raise ModelError(
            f"model is a {type(model).__name__}; give the path of an ONNX file or what read_model returned"
        )
    spec = checked_gpu(gpu) if isinstance(gpu, GpuSpec) else load_gpu(gpu)
    loaded = model if isinstance(model, Model) else read_model(model)
    bindings = make_bindings(dims, shapes, values, trip_counts, batch)
    resolved = resolve(precision, stored_precision(loaded))
    require_runnable(loaded, resolved, runtime, spec)
    prepared = prepare(
        infer_shapes(loaded, bindings),
        precision=resolved,
        runtime=runtime,
        cuda_graph=cuda_graph,
        include_io=include_io,
        channels_last=channels_last,
        memory_timeline=memory_timeline,
        explain_fusion=explain_fusion,
        training=training,
    )
    report = predict_report(prepared, spec, asked_precision=precision, timeline=timeline)
    if with_largest_batch:
        found = find_largest_batch(prepared, spec)
        memory = replace(report.totals.memory, largest_batch=found)
        report = replace(report, totals=replace(report.totals, memory=memory))
    return report


def predict_report(prepared: PreparedModel, spec: GpuSpec, *, asked_precision: str, timeline: bool = False) -> Report:
    """The last step: the kernels' times on ``spec``, and the report of all.

    ``asked_precision``: what the user wrote ("auto"). ``timeline``: with the spans of the run.
    """
    with no_collection():
        asked, prepared = prepared, as_built(prepared, spec)
        run = run_on(prepared, spec)
        placed = _placed(every_work(prepared, run.works), spec, run.memory)
        executed = precision_on(prepared, spec)
        report = _assemble(
            prepared.shaped.model,
            prepared.graph,
            placed,
            spec,
            prepared.runtime,
            _settings(prepared, executed),
            executed,
            asked_precision,
            memory_on(run.memory, spec),
            sized_by_data(prepared.shaped.inferred),
            (*prepared.said, *run.said, *of_the_l2(placed, run.memory, spec)),
            prepared.trained,
            changes_met(asked, lambda other: run_on(other, spec).works),
        )
        counted = counted_works(prepared.graph, placed).works
        fusion = fusion_of(prepared, [item.work for item in counted])
        report = replace(report, fusion=fusion, host=_host(counted, prepared, spec, report.totals))
        if prepared.trained is not None:
            report = replace(report, training=_training(prepared.trained, prepared.memory))
        report = replace(report, assumptions=(*report.assumptions, *beyond_peak(report)))
        if not timeline:
            return report
        return replace(report, timeline=tuple(timeline_spans(counted, prepared.runtime)))


MOST_DOUBLINGS = 10
"""The batch from which on the host no longer takes longer is looked for up to so many times twice the batch at hand."""


class OtherBatches:
    """A prepared model at other sizes of its batch, all else as it was; each is inferred and lowered anew."""

    def __init__(self, prepared: PreparedModel) -> None:
        """BindingError where the model has no batch that can be varied."""
        self.prepared = prepared
        self.batch: Batch = find_batch(prepared.shaped.model, "the largest batch")

    def at(self, size: int) -> PreparedModel:
        """BindingError or ModelError where the model can't have this size."""
        prepared = self.prepared
        bindings = prepared.shaped.bindings
        dims = {name: bound for name, bound in bindings.dims.items() if name not in self.batch.symbols}
        return prepare(
            infer_shapes(prepared.shaped.model, replace(bindings, dims=dims, batch=size), prepared.shaped.memo),
            precision=prepared.precision,
            runtime=prepared.runtime.label,
            cuda_graph=prepared.runtime.captured,
            include_io=prepared.include_io,
            channels_last=prepared.runtime.channels_last,
            training=None if prepared.trained is None else prepared.trained.plan,
            others=prepared.others,
        )


def _host(
    counted: Sequence[Placed],
    prepared: PreparedModel,
    spec: GpuSpec,
    totals: Totals,
    predictors: Predictors | None = None,
) -> HostSummary:
    """Whether the host or the GPU takes longer, and from which batch on the GPU does: of the doublings of the batch,
    the first at which it is predicted to."""
    host_ms = host_us_of(counted, prepared.runtime) / 1e3
    if host_ms <= totals.kernel_ms:
        return HostSummary(host_ms=host_ms, is_bound=False)
    return HostSummary(host_ms=host_ms, is_bound=True, free_from_batch=_free_from(prepared, spec, totals, predictors))


def _free_from(
    prepared: PreparedModel, spec: GpuSpec, totals: Totals, predictors: Predictors | None = None
) -> int | None:
    """The first doubling of the batch at which the kernels take at least as long as the host; None where none does,
    or where the model has no batch to vary."""

    def is_free(doublings: int) -> bool:
        size = totals.batch_size << doublings
        other = as_built(batches.at(size), spec, predictors)
        bound = other.shaped.bound
        if batch_of(other.graph, bound.symbols, bound.batch)[0] != size:
            raise BindingError("what counts as samples isn't the batch")
        counted = _counted(other, spec, predictors)
        return host_us_of(counted, other.runtime) <= sum(item.latency_us for item in counted)

    try:
        batches = OtherBatches(prepared)
        first = bisect_left(range(1, MOST_DOUBLINGS + 1), x=True, key=is_free) + 1
    except (BindingError, ModelError):
        return None
    return totals.batch_size << first if first <= MOST_DOUBLINGS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A prediction in short. ``bound_shares``: of the latency, by what bounds it ("host": the GPU waits for it), the
    largest first, or before it "host" where the host takes longer than the kernels. ``unsupported``: the nodes that
    count as nothing. ``assumptions``: what stands in for what the model doesn't say (sizes, trips, branches); those
    that hold for every prediction are in a report only. ``precision``: what the model was computed in, which hangs on
    the GPU where none was asked for. ``host``: whether the host takes longer than the GPU, where that was asked for.
    ``stored_formats``: of 8 and 4 bits that products run in, whatever the rest is computed in. ``warnings``: that what
    was asked for is hardly what was predicted. ``share_at_bounds``: of the kernels' time, what goes to sizes that data
    decide and that are counted at the most that they can be; asked for as ``host`` is."""

    totals: Totals
    bound_shares: Mapping[str, float]
    unsupported: tuple[UnsupportedNode, ...]
    precision: str
    host_ms: float
    stored_formats: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    host: HostSummary | None = None
    warnings: tuple[Notice, ...] = ()
    share_at_bounds: float = 0.0


def predict_totals(prepared: PreparedModel, spec: GpuSpec, *, predictors: Predictors | None = None) -> Totals:
    """The totals of :func:`predict_report` alone, without a row for each kernel, in a third of the time or less.

    ``predictors``: default the shipped ones.
    """
    return predict_outcome(prepared, spec, predictors=predictors).totals


def predict_outcome(
    prepared: PreparedModel, spec: GpuSpec, *, predictors: Predictors | None = None, with_host: bool = False
) -> Outcome:
    """As :func:`predict_totals`, with what bounds the latency and what is not in it.

    ``with_host``: and the host, and what bounds make of it.
    """
    with no_collection():
        prepared = as_built(prepared, spec, predictors)
        run = run_on(prepared, spec, predictors)
        placed = _placed(joined_views(run.works), spec, run.memory, predictors)
        executed = precision_on(prepared, spec)
        decided = counted_works(prepared.graph, placed)
        counted = decided.works
        unsupported = unsupported_nodes(placed)
        totals = make_totals(
            prepared.graph,
            counted,
            kernel_facts(counted),
            prepared.runtime,
            _settings(prepared, executed),
            bool(unsupported),
            memory_on(run.memory, spec),
            prepared.trained,
        )
        host_us = host_us_of(counted, prepared.runtime)
        said = (
            *of_the_gpu(spec),
            *prepared.graph.assumptions,
            *decided.said,
            *range_of_branches(decided, totals, prepared.runtime),
            *of_the_batch(prepared.graph, _settings(prepared, executed)),
            *of_the_run(prepared),
            # what was done unasked, under a name that can't be asked for
            *(
                of_the_stored_precision(_settings(prepared, executed), AUTO, prepared.runtime)
                if executed.by_cudnn
                else ()
            ),
            *of_the_last_release(prepared.runtime, spec),
            *of_the_chip(prepared.runtime, spec),
            # why fewer bits may be slower
            *(of_precision(executed, prepared.runtime, run.works) if executed.weights is not None else ()),
            *run.said,
        )
        return Outcome(
            totals=totals,
            bound_shares=bound_shares(counted, totals, host_us),
            unsupported=unsupported,
            assumptions=tuple(dict.fromkeys(said)),
            precision=executed.name,
            stored_formats=_formats_of_products(run.works),
            host_ms=host_us / 1e3,
            host=_host(counted, prepared, spec, totals, predictors) if with_host else None,
            warnings=tuple(of_little_narrowed(executed, prepared.runtime, run.works)),
            share_at_bounds=_share_at_bounds(counted, prepared.shaped.expected) if with_host else 0.0,
        )


def _share_at_bounds(counted: Sequence[Placed], expected: InferredGraph) -> float:
    bounded = sized_by_data(expected)
    every_us = sum(item.latency_us for item in counted)
    if not bounded or not every_us:
        return 0.0
    at_bounds = (item for item in counted if not bounded.isdisjoint(_names(item.work)))
    return sum(item.latency_us for item in at_bounds) / every_us


def _names(work: NodeWork) -> tuple[str, ...]:
    return tuple(name for name, _ in work.origins) or (file_name(work.node),)


def _formats_of_products(works: Sequence[NodeWork]) -> tuple[str, ...]:
    products = (kernel for work in works for kernel in work.kernels if isinstance(kernel, Gemm | Conv))
    return stored_formats({kernel_dtype(kernel).label for kernel in products})


def find_largest_batch(prepared: PreparedModel, spec: GpuSpec) -> LargestBatch:
    """The largest batch that fits on ``spec``, the other sizes being those of ``prepared``.

    Each size tried is inferred and lowered anew. BindingError where the model has no batch that can be varied.
    """
    batches = OtherBatches(prepared)

    @cache
    def measure(size: int) -> MemoryEstimate:
        return memory_on(run_on(batches.at(size), spec).memory, spec)

    name = batches.batch.name
    try:
        start, known = 1, measure(1)  # whatever was asked for: around the answer, sizes may fit and not fit in turns
    except (BindingError, ModelError):  # the model doesn't allow 1
        start = prepared.shaped.bound.symbols.get(name, 1)
        known = memory_on(run_on(prepared, spec).memory, spec)
    found = largest_batch(measure, name, start, known)
    if known.cache_sharing != "once":
        return found
    shared = largest_batch(lambda size: in_one_buffer(measure(size)), name, start, in_one_buffer(known))
    return replace(found, size_in_one_buffer=shared.size)


def _settings(prepared: PreparedModel, executed: Precision) -> Settings:
    dims = dict(prepared.shaped.bound.symbols)
    return Settings(
        mode="inference" if prepared.trained is None else "training",
        precision=executed.name,
        runtime=prepared.runtime.label,
        runtime_release=release_text(prepared.runtime.described_release),
        dims=dims,
        cuda_graph=prepared.runtime.captured,
        include_io=prepared.include_io,
        channels_last=prepared.runtime.channels_last,
        batch=prepared.shaped.bound.batch,
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


def precision_on(prepared: PreparedModel, spec: GpuSpec) -> Precision:
    """What the model is computed in on a GPU: float32 may be multiplied in TF32 by a runtime that does so unasked."""
    if prepared.work_in_tf32 is None or not takes_tf32(spec):
        return prepared.precision
    return in_tf32(prepared.precision, by_cudnn=prepared.runtime.tf32 == "cudnn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is executed on a GPU, where that isn't the same on all: the work, its memory, and what there is to say."""

    works: Sequence[NodeWork]
    memory: RunMemory
    said: tuple[str, ...] = ()


def run_on(prepared: PreparedModel, spec: GpuSpec, predictors: Predictors | None = None) -> Run:
    """The work as it is executed on a GPU, where the runtime's kernels aren't those of all GPUs.

    NotSupportedError where it has products that the GPU has no units for.

    ``predictors``: what an engine's builder is taken to find when it times a layer's kernels; default the shipped ones.
    """
    works: Sequence[NodeWork] = prepared.work
    if prepared.work_in_tf32 is not None and takes_tf32(spec):
        works = prepared.work_in_tf32
    memory = prepared.memory
    said: tuple[str, ...] = ()
    if prepared.tactics is not None:
        from neusight_onnx.tactics import choose

        chosen = choose(prepared.tactics, works, spec, predictors=predictors)
        if any(new.kernels != old.kernels for new, old in zip(chosen.works, works, strict=True)):
            # what lies between layers hangs on the formats that they got here
            timeline = memory.found.timeline is not None
            memory = run_memory(prepared.graph, chosen.works, prepared.runtime.name, timeline=timeline)
            memory = with_more_weights(memory, chosen.more_weight_bytes)
        works, said = chosen.works, of_tactics(prepared.tactics, chosen)
    elif prepared.runtime.times_kernels:
        from neusight_onnx.tactics import in_quickest_order

        works, fp32_count = in_quickest_order(prepared.graph, works, spec, predictors=predictors)
        if fp32_count:
            timeline = memory.found.timeline is not None
            memory = run_memory(prepared.graph, works, prepared.runtime.name, timeline=timeline)
            said = (of_fp32_beside_tf32(fp32_count, works),)
    least = prepared.runtime.attention_capability
    if least is not None and spec.compute_capability is not None and spec.compute_capability < least:
        from neusight_onnx.fusion.engine_attention import by_parts

        works = tuple(by_parts(work) for work in works)
    if prepared.runtime.calls_attention and prepared.trained is None:
        from neusight_onnx.lowering.attention.formula import by_formula_on

        works = by_formula_on(works, prepared.runtime, spec.compute_capability)
    require_units(works, prepared.runtime, spec)
    if prepared.work_in_tf32 is not None and (missing := said_of_missing_tf32(spec, prepared.runtime.name)):
        said = (*said, missing)
    return Run(works=works, memory=memory, said=said)


def as_built(prepared: PreparedModel, spec: GpuSpec, predictors: Predictors | None = None) -> PreparedModel:
    """What an engine's builder makes of a model on a GPU: all of it in float32 where a flag allows 16 bits and what
    converts between them outweighs what they save, which :func:`run_on` decides for convolutions and linear layers."""
    full = prepared.in_full
    if full is None or _run_us(full, spec, predictors) >= _run_us(prepared, spec, predictors):
        return prepared
    multiplied = full.work_in_tf32 if takes_tf32(spec) else None
    stored = _formats_of_products(full.work)
    stays = f"all but what the file stores in {' and '.join(stored)} stays" if stored else "the whole engine stays"
    return replace(
        full,
        precision=prepared.precision,
        work=full.work if multiplied is None else multiplied,
        work_in_tf32=None,
        said=(
            *full.said,
            f"{stays} in float32, which is quicker than {prepared.precision.name} there, what converts "
            "operands included: a builder that times both takes the quicker",
        ),
    )


def _counted(prepared: PreparedModel, spec: GpuSpec, predictors: Predictors | None) -> Sequence[Placed]:
    """What is executed, operators in a row that launch nothing being one."""
    run = run_on(prepared, spec, predictors)
    return counted_works(prepared.graph, _placed(joined_views(run.works), spec, run.memory, predictors)).works


def _run_us(prepared: PreparedModel, spec: GpuSpec, predictors: Predictors | None) -> float:
    counted = _counted(prepared, spec, predictors)
    steps = stream_steps(counted, lambda prediction: prediction.latency_us, prepared.runtime)
    return stream_time_us(steps, prepared.runtime)


def _placed(
    work: Sequence[NodeWork], spec: GpuSpec, memory: RunMemory, predictors: Predictors | None = None
) -> list[Placed]:
    kernels = [kernel for item in work for kernel in item.kernels]
    others = [kernel for item in work for way in item.alternatives for kernel in way]
    kept = kept_in_l2(memory, spec)
    predictions = predict([*kernels, *others], spec, predictors=predictors, kept_in_l2=kept)
    placed = with_predictions(work, predictions[: len(kernels)])
    return quickest(placed, predictions[len(kernels) :]) if others else placed


def _assemble(
    model: Model,
    inferred: InferredGraph,
    placed: Sequence[Placed],
    spec: GpuSpec,
    runtime: Runtime,
    settings: Settings,
    precision: Precision,
    asked_precision: str,
    memory: MemoryEstimate,
    by_data: frozenset[str],
    said: Sequence[str],
    trained: Trained | None,
    met: tuple[Change, ...] | None,
) -> Report:
    counted = counted_works(inferred, placed)
    facts = kernel_facts(counted.works)
    rows = tuple(kernel_rows(counted.works, facts))
    unsupported = unsupported_nodes(placed)
    totals = make_totals(inferred, counted.works, facts, runtime, settings, bool(unsupported), memory, trained)
    coverage = make_coverage(placed, counted.left_out, rows, by_data)
    parameter_count, weight_bytes = parameter_summary(model)
    of_runtime = tuple(of_the_runtime(settings, asked_precision, runtime, spec))
    of_memory = [f"memory: {text}" for text in memory.assumptions]
    of_formats = tuple(of_precision(precision, runtime, [item.work for item in placed]))
    of_predictors, of_power = tuple(other_types(rows)), tuple(of_clocks(counted.works, spec))
    narrowed = tuple(of_little_narrowed(precision, runtime, [item.work for item in placed]))
    tf32 = of_formats if precision.products is DataType.TFLOAT32 else ()
    of_order = tuple(of_layouts(counted.works, runtime, spec))
    order = () if runtime.channels_last else of_order
    undone = runtime.undone(training=trained is not None)
    unmet = () if met is None else of_the_release(runtime, (change for change in undone if change not in met))
    standing = (*unmet, *of_runtime, *of_memory[:STANDING_ASSUMPTIONS], *tf32, *of_predictors, *of_power, *order)
    assumptions = [
        *of_the_gpu(spec),
        *inferred.assumptions,
        *counted.said,
        *share_by_data(coverage),
        *range_of_branches(counted, totals, runtime),
        *of_the_batch(inferred, settings),
        *of_a_newer_release(runtime),
        *of_the_last_release(runtime, spec),
        *of_the_chip(runtime, spec),
        *of_the_release(runtime, undone),
        *said,
        *of_the_stored_precision(settings, asked_precision, runtime),
        *of_runtime,
        *of_memory,
        *of_formats,
        *of_predictors,
        *of_quantization(placed, runtime),
        *filter(None, [quantised_for_others(model.graph, runtime.name)]),
        *of_the_host(placed, runtime, spec),
        *of_copies(placed, spec),
        *of_pipes(placed, spec),
        *of_order,
        *of_sums(counted.works, runtime, spec),
        *of_experts(counted.works),
        *of_power,
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
            inputs=value_summaries(inferred, [declared.name for declared in model.graph.inputs]),
            outputs=value_summaries(inferred, [declared.name for declared in model.graph.outputs]),
        ),
        gpu=spec,
        settings=settings,
        totals=totals,
        coverage=coverage,
        kernels=rows,
        unsupported=unsupported,
        assumptions=tuple(dict.fromkeys(assumptions)),
        warnings=(*model.warnings, *inferred.warnings, *own_warnings(totals, unsupported, spec), *narrowed),
        standing=frozenset(standing),
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
