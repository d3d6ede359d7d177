"""A prediction in short, for those who ask for many: the totals and what bounds them, without a row for each kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neusight_onnx.assembly import (
    Placed,
    bound_shares,
    counted_works,
    host_us_of,
    joined_views,
    kernel_facts,
    make_totals,
    sized_by_data,
    unsupported_nodes,
)
from neusight_onnx.assumptions.formats import of_little_narrowed, of_precision, of_widened_weights
from neusight_onnx.assumptions.run import (
    of_the_batch,
    of_the_chip,
    of_the_gpu,
    of_the_last_release,
    of_the_provider,
    of_the_run,
    of_the_stored_precision,
)
from neusight_onnx.assumptions.totals import range_of_branches
from neusight_onnx.collection import no_collection
from neusight_onnx.dtypes import DataType
from neusight_onnx.execution import as_built, placed_on, precision_on, run_on, settings_of
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import InferredGraph, Notice, file_name
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.widened_weights import widened_products
from neusight_onnx.memory import kept_in_l2, memory_on
from neusight_onnx.other_batches import host_of
from neusight_onnx.padding_gain import PaddingGain, padding_gain
from neusight_onnx.precision import AUTO
from neusight_onnx.predictor import Predictors
from neusight_onnx.preparation import PreparedModel
from neusight_onnx.readable import unread_notices
from neusight_onnx.report.model import HostSummary, Totals, UnsupportedNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A prediction in short. ``bound_shares``: of the latency, by what bounds it ("host": the GPU waits for it), the
    largest first, or before it "host" where the host takes longer than the kernels. ``unsupported``: the nodes that
    count as nothing. ``assumptions``: what stands in for what the model doesn't say (sizes, trips, branches); those
    that hold for every prediction are in a report only. ``precision``: what the model was computed in, which hangs on
    the GPU where none was asked for. ``host``: whether the host takes longer than the GPU, where that was asked for.
    ``product_formats``: of 8 and 4 bits that products run in, whatever the rest is computed in. ``warnings``: that
    what was asked for is hardly what was predicted, or can't be run. ``share_at_bounds``: of the kernels' time,
    what goes to sizes that data decide and that are counted at the most that they can be; asked for as ``host`` is.
    ``padding``: what padded rows of products would save, asked for as ``host`` is.
    ``widens``: whether kernels widen weights of few bits before products of many rows."""

    totals: Totals
    bound_shares: Mapping[str, float]
    unsupported: tuple[UnsupportedNode, ...]
    precision: str
    host_ms: float
    product_formats: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    host: HostSummary | None = None
    warnings: tuple[Notice, ...] = ()
    share_at_bounds: float = 0.0
    padding: PaddingGain | None = None
    widens: bool = False


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
        placed = placed_on(joined_views(run.works), spec, run.memory, predictors)
        executed = precision_on(prepared, spec)
        settings = settings_of(prepared, executed, run.works)
        decided = counted_works(prepared.graph, placed)
        counted = decided.works
        unsupported = unsupported_nodes(placed)
        totals = make_totals(
            prepared.graph,
            counted,
            kernel_facts(counted),
            prepared.runtime,
            settings,
            bool(unsupported),
            memory_on(run.memory, spec),
            prepared.trained,
            spec,
        )
        host_us = host_us_of(counted, prepared.runtime)
        said = (
            *of_the_gpu(spec),
            *prepared.graph.assumptions,
            *decided.said,
            *range_of_branches(decided, totals, prepared.runtime),
            *of_the_batch(prepared.graph, settings),
            *of_the_run(prepared),
            # what was done unasked, under a name that can't be asked for
            *(of_the_stored_precision(settings, AUTO, prepared.runtime) if executed.by_cudnn else ()),
            *of_the_last_release(prepared.runtime, spec),
            *of_the_provider(prepared.runtime, spec),
            *of_the_chip(prepared.runtime, spec),
            # why fewer bits may be slower
            *(of_precision(executed, prepared.runtime, run.works) if executed.weights is not None else ()),
            *of_widened_weights(executed, prepared.runtime, run.works),
            *run.said,
        )
        return Outcome(
            totals=totals,
            bound_shares=bound_shares(counted, totals, host_us),
            unsupported=unsupported,
            assumptions=tuple(dict.fromkeys(said)),
            precision=settings.precision,
            product_formats=settings.product_formats,
            host_ms=host_us / 1e3,
            host=host_of(counted, prepared, spec, totals, predictors) if with_host else None,
            warnings=(
                *of_little_narrowed(executed, prepared.runtime, run.works),
                *unread_notices(prepared.shaped.model, prepared.runtime),
            ),
            # products of 8 bits that a runtime lacks are widened for any number of rows
            widens=executed.products in (None, DataType.TFLOAT32) and widened_products(run.works, prepared.runtime) > 0,
            share_at_bounds=_share_at_bounds(counted, prepared.shaped.expected) if with_host else 0.0,
            padding=padding_gain(counted, spec, kept_in_l2=kept_in_l2(run.memory, spec), predictors=predictors)
            if with_host
            else None,
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
