"""The steps in order: read, infer, recognise, lower, predict, assemble.

Not named after its function: a module `analyze` would hide `neusight_onnx.analyze`, the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from neusight_onnx import __version__
from neusight_onnx.assembly import (
    Counted,
    Placed,
    counted_works,
    kernel_facts,
    kernel_rows,
    make_coverage,
    make_totals,
    sized_by_data,
    timeline_spans,
    unsupported_nodes,
    value_summaries,
)
from neusight_onnx.assumptions.execution import (
    of_clocks,
    of_copies,
    of_experts,
    of_layouts,
    of_pipes,
    of_sums,
    of_the_host,
    of_the_l2,
)
from neusight_onnx.assumptions.formats import (
    of_little_narrowed,
    of_permitted_fp32,
    of_precision,
    of_quantization,
    of_widened_weights,
    other_types,
)
from neusight_onnx.assumptions.run import (
    of_a_newer_release,
    of_the_batch,
    of_the_caches,
    of_the_chip,
    of_the_gpu,
    of_the_last_release,
    of_the_provider,
    of_the_release,
    of_the_runtime,
    of_the_stored_precision,
)
from neusight_onnx.assumptions.totals import own_warnings, range_of_branches, share_by_data
from neusight_onnx.collection import no_collection
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import ModelError, SpecError
from neusight_onnx.execution import Run, as_built, placed_on, precision_on, run_on, settings_of
from neusight_onnx.gpu import GpuSpec, checked_gpu, load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import Array, Model
from neusight_onnx.graph.read import read_model
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.memory import STANDING_ASSUMPTIONS, RunMemory, memory_on, parameter_summary
from neusight_onnx.other_batches import find_largest_batch, host_of
from neusight_onnx.precision import Precision, resolve
from neusight_onnx.preparation import PreparedModel, every_work, fusion_of, infer_shapes, prepare
from neusight_onnx.readable import unread_notices
from neusight_onnx.release_effects import changes_met
from neusight_onnx.releases import Change
from neusight_onnx.report.model import (
    Coverage,
    KernelRow,
    MemoryEstimate,
    ModelSummary,
    Report,
    Settings,
    Totals,
    TrainingSummary,
    UnsupportedNode,
)
from neusight_onnx.report.peak import beyond_peak
from neusight_onnx.runnable import quantised_for_others, require_runnable
from neusight_onnx.runtime import default_runtime, get_runtime

if TYPE_CHECKING:
    from neusight_onnx.backward import Trained, Training


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
    get_runtime(runtime, cuda_graph=cuda_graph, channels_last=channels_last)
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
    require_runnable(loaded, resolved, runtime, spec, in_training=training is not None)
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
        predicted = _predicted(prepared, spec, run)
        met = changes_met(asked, lambda other: run_on(other, spec).works)
        report = _assemble(predicted, asked_precision, met)
        counted = predicted.counted.works
        fusion = fusion_of(prepared, [item.work for item in counted])
        report = replace(report, fusion=fusion, host=host_of(counted, prepared, spec, report.totals))
        if prepared.trained is not None:
            report = replace(report, training=_training(prepared.trained, prepared.memory))
        report = replace(report, assumptions=(*report.assumptions, *beyond_peak(report)))
        if not timeline:
            return report
        return replace(report, timeline=tuple(timeline_spans(counted, prepared.runtime)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Predicted:
    """A run on a GPU with its figures. ``placed``: every node; ``counted``: those that a run executes, by its branches.
    ``precision``: what it is computed in there."""

    prepared: PreparedModel
    spec: GpuSpec
    run: Run
    placed: Sequence[Placed]
    counted: Counted
    precision: Precision
    settings: Settings
    rows: tuple[KernelRow, ...]
    memory: MemoryEstimate
    totals: Totals
    coverage: Coverage
    unsupported: tuple[UnsupportedNode, ...]


def _predicted(prepared: PreparedModel, spec: GpuSpec, run: Run) -> _Predicted:
    placed = placed_on(every_work(prepared, run.works), spec, run.memory)
    precision = precision_on(prepared, spec)
    settings = settings_of(prepared, precision, run.works)
    counted = counted_works(prepared.graph, placed)
    facts = kernel_facts(counted.works)
    rows = tuple(kernel_rows(counted.works, facts))
    memory = memory_on(run.memory, spec)
    unsupported = unsupported_nodes(placed)
    by_data = sized_by_data(prepared.shaped.inferred)
    return _Predicted(
        prepared=prepared,
        spec=spec,
        run=run,
        placed=placed,
        counted=counted,
        precision=precision,
        settings=settings,
        rows=rows,
        memory=memory,
        totals=make_totals(
            prepared.graph,
            counted.works,
            facts,
            prepared.runtime,
            settings,
            bool(unsupported),
            memory,
            prepared.trained,
            spec,
        ),
        coverage=make_coverage(placed, counted.left_out, rows, by_data),
        unsupported=unsupported,
    )


def _assemble(found: _Predicted, asked_precision: str, met: tuple[Change, ...] | None) -> Report:
    """``met``: what later releases changed that the model meets, as :func:`changes_met` gives it."""
    prepared, spec = found.prepared, found.spec
    model, inferred = prepared.shaped.model, prepared.graph
    parameter_count, weight_bytes = parameter_summary(model)
    assumptions, standing = _assumed(found, asked_precision, met)
    narrowed = of_little_narrowed(found.precision, prepared.runtime, [item.work for item in found.placed])
    return Report(
        tool_version=__version__,
        model=ModelSummary(
            path=model.path,
            sha256=model.sha256,
            ir_version=model.ir_version,
            opsets=dict(model.opsets),
            node_count=found.coverage.node_count,
            parameter_count=parameter_count,
            weight_bytes=weight_bytes,
            inputs=value_summaries(inferred, [declared.name for declared in model.graph.inputs]),
            outputs=value_summaries(inferred, [declared.name for declared in model.graph.outputs]),
        ),
        gpu=spec,
        settings=found.settings,
        totals=found.totals,
        coverage=found.coverage,
        kernels=found.rows,
        unsupported=found.unsupported,
        assumptions=tuple(dict.fromkeys(assumptions)),
        warnings=(
            *model.warnings,
            *inferred.warnings,
            *own_warnings(found.totals, found.unsupported, spec),
            *narrowed,
            *unread_notices(model, prepared.runtime),
        ),
        standing=frozenset(standing),
    )


def _assumed(
    found: _Predicted, asked_precision: str, met: tuple[Change, ...] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """What a report says that it assumes, in order; and what of it holds for every such run."""
    prepared, spec, settings = found.prepared, found.spec, found.settings
    placed, counted = found.placed, found.counted
    runtime, inferred = prepared.runtime, prepared.graph
    of_runtime = tuple(of_the_runtime(settings, asked_precision, runtime, spec))
    of_memory = [f"memory: {text}" for text in found.memory.assumptions]
    of_formats = tuple(of_precision(found.precision, runtime, [item.work for item in placed]))
    of_predictors, of_power = tuple(other_types(found.rows)), tuple(of_clocks(counted.works, spec))
    tf32 = of_formats if found.precision.products is DataType.TFLOAT32 else ()
    of_order = tuple(of_layouts(counted.works, runtime, spec))
    order = () if runtime.channels_last else of_order
    undone = runtime.undone(training=prepared.trained is not None)
    unmet = () if met is None else of_the_release(runtime, (change for change in undone if change not in met))
    standing = (*unmet, *of_runtime, *of_memory[:STANDING_ASSUMPTIONS], *tf32, *of_predictors, *of_power, *order)
    every = (
        *of_the_gpu(spec),
        *inferred.assumptions,
        *counted.said,
        *share_by_data(found.coverage),
        *range_of_branches(counted, found.totals, runtime),
        *of_the_batch(inferred, settings),
        *of_a_newer_release(runtime),
        *of_the_last_release(runtime, spec),
        *of_the_provider(runtime, spec),
        *of_the_chip(runtime, spec),
        *of_the_release(runtime, undone),
        *prepared.said,
        *found.run.said,
        *of_the_l2(placed, found.run.memory, spec),
        *of_the_stored_precision(settings, asked_precision, runtime),
        *of_runtime,
        *of_the_caches(settings, found.run.memory),
        *of_memory,
        *of_formats,
        *of_permitted_fp32(counted.works),
        *of_predictors,
        *of_widened_weights(found.precision, runtime, [item.work for item in placed]),
        *of_quantization(placed, runtime),
        *filter(None, [quantised_for_others(prepared.shaped.model.graph, runtime.name)]),
        *of_the_host(placed, runtime, spec),
        *of_copies(placed, spec),
        *of_pipes(placed, spec),
        *of_order,
        *of_sums(counted.works, runtime, spec),
        *of_experts(counted.works),
        *of_power,
    )
    return every, standing


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
