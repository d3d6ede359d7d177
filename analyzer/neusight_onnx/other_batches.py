"""A model at other sizes of its batch: the largest that fits, and the one from which on the GPU doesn't wait."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from neusight_onnx.assembly import Placed, host_us_of
from neusight_onnx.batch import batch_of
from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.execution import as_built, counted_on, run_on
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.batch_dimension import Batch, find_batch
from neusight_onnx.memory import RunMemory, in_two_buffers, kept_in_l2, largest_batch, memory_on
from neusight_onnx.predictor import Predictors
from neusight_onnx.preparation import PreparedModel, infer_shapes, prepare
from neusight_onnx.report.model import HostSummary, LargestBatch, MemoryEstimate, Totals

MOST_DOUBLINGS = 10
"""The batch from which on the host no longer takes longer is looked for up to so many times twice the batch at hand."""
NEGLIGIBLE_SHARE = 1e-3
"""A run that finds no more of its weights in L2 says it for larger batches, too, which hold more."""


class OtherBatches:
    """A prepared model at other sizes of its batch, all else as it was; each is inferred and lowered anew."""

    def __init__(self, prepared: PreparedModel) -> None:
        """BindingError where the model has no batch that can be varied."""
        self.prepared = prepared
        self.batch: Batch = find_batch(prepared.shaped.model, "the largest batch")

    def at(self, size: int, memory: RunMemory | None = None) -> PreparedModel:
        """BindingError or ModelError where the model can't have this size. ``memory``: stands for what a run of that
        size needs, where its work alone matters."""
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
            memory=memory,
        )


def host_of(
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
    memory = None
    if not prepared.include_io and kept_in_l2(prepared.memory, spec) < NEGLIGIBLE_SHARE:
        memory = prepared.memory

    def is_free(doublings: int) -> bool:
        size = totals.batch_size << doublings
        other = as_built(batches.at(size, memory), spec, predictors)
        bound = other.shaped.bound
        if batch_of(other.graph, bound.symbols, bound.batch)[0] != size:
            raise BindingError("what counts as samples isn't the batch")
        counted = counted_on(other, spec, predictors)
        return host_us_of(counted, other.runtime) <= sum(item.latency_us for item in counted)

    try:
        batches = OtherBatches(prepared)
        first = bisect_left(range(1, MOST_DOUBLINGS + 1), x=True, key=is_free) + 1
    except (BindingError, ModelError):
        return None
    return totals.batch_size << first if first <= MOST_DOUBLINGS else None


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
    apart = largest_batch(lambda size: in_two_buffers(measure(size)), name, start, in_two_buffers(known))
    return replace(found, size_in_one_buffer=found.size, size_in_two_buffers=apart.size)
