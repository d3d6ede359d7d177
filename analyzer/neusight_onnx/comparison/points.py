"""One model on one GPU at many sizes: where throughput flattens, what fits, what is fast enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from neusight_onnx import __version__
from neusight_onnx.checks.limits import MEDIAN, UPPER
from neusight_onnx.collection import no_collection
from neusight_onnx.comparison.assumed import assumed_by_all, widened_at_some
from neusight_onnx.comparison.grid import bindings_at, combinations, size_lists, with_batch_named
from neusight_onnx.errors import ComparisonError, ModelError, OptionError, shown
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.dimension_roles import is_batch_symbol
from neusight_onnx.graph.model import Array, Model, Notice
from neusight_onnx.graph.shapes import Memo
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.outcome import Outcome, predict_outcome
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import AtOtherSizes, PreparedModel, infer_shapes, prepare
from neusight_onnx.report.model import FITS
from neusight_onnx.report.quantities import counted, dims_text
from neusight_onnx.report.sweep import KNEE_SHARE, Point, Series, Sweep
from neusight_onnx.runnable import require_runnable
from neusight_onnx.runtime import default_runtime, get_runtime
from neusight_onnx.workbench import Workbench

if TYPE_CHECKING:
    from neusight_onnx.backward import Training


def sweep(
    model: str | Path | Model,
    *,
    gpu: str | Path | GpuSpec,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, Array] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    batch: int | Sequence[int] | None = None,
    precision: str = "auto",
    runtime: str | None = None,
    cuda_graph: bool = False,
    include_io: bool = False,
    channels_last: bool = False,
    max_latency_ms: float | None = None,
    at: str = UPPER,
    training: Training | None = None,
) -> Sweep:
    """Predicts every combination of the sizes of ``dims``: the figures of :func:`~neusight_onnx.analyze` at each.

    ``batch``: sizes of the dim that is the batch, whatever the model calls it.
    ``runtime``: "onnxruntime" where none is given. ``training``: steps of training in place of runs of inference, in
    "eager" where no runtime is given.

    At most :data:`~neusight_onnx.comparison.grid.MOST_CASES` points. Sizes that the model refuses (more positions than
    its table has) are points with a reason. Raises a NeusightError as ``analyze`` does, that of the first point where
    the model refuses all; ComparisonError where no dim has several sizes.
    """
    runtime = runtime or default_runtime(training=training is not None)
    runtime_model = get_runtime(runtime, channels_last=channels_last)
    asked = size_lists(dims, batch)
    _check(asked, max_latency_ms, at)
    bench = Workbench()
    spec, read = bench.gpu(gpu), bench.model(model)
    lists, batch_name = with_batch_named(read, asked)
    varied = tuple(name for name, sizes in lists.items() if len(sizes) > 1)
    resolved = resolve(precision, stored_precision(read))
    require_runnable(read, resolved, runtime, spec, in_training=training is not None)
    memo = Memo(graph=read.graph)
    others = AtOtherSizes()
    found = _Found(varied=varied, precision=resolved.name, warnings=dict.fromkeys(read.warnings))
    with no_collection():
        for sizes in combinations(lists):
            bindings = bindings_at(sizes, batch_name, shapes, values, trip_counts)
            chosen = {name: sizes[name] for name in varied}
            try:
                shaped = infer_shapes(read, bindings, memo)
            except ModelError as fault:
                found.refuse(chosen, fault)
                continue
            prepared = prepare(
                shaped,
                precision=resolved,
                runtime=runtime,
                training=training,
                cuda_graph=cuda_graph,
                include_io=include_io,
                channels_last=channels_last,
                others=others,
            )
            found.add(chosen, prepared, predict_outcome(prepared, spec))
    fixed = found.require_one(lists)
    axis, axis_is_batch = _axis(varied, batch_name)
    series = tuple(_series(found.points, axis, max_latency_ms, at, is_batch=axis_is_batch))
    return Sweep(
        tool_version=__version__,
        model_path=read.path,
        model_sha256=read.sha256,
        gpu=spec,
        precision=found.precision,
        product_formats=found.product_formats,
        runtime=runtime_model.label,
        mode="inference" if training is None else "training",
        cuda_graph=all(found.captured),
        include_io=include_io,
        channels_last=channels_last,
        dims=fixed,
        derived=tuple(name for name in found.derived if name not in fixed),
        axis=axis,
        axis_is_batch=axis_is_batch,
        varied=varied,
        max_latency_ms=max_latency_ms,
        at=at,
        points=tuple(found.points),
        series=series,
        assumptions=assumed_by_all(found.assumptions, found.settings),
        warnings=(
            *found.warnings,
            *widened_at_some({(runtime,): found.widens}),
            *_unjudged(found.points, series),
        ),
    )


def _unjudged(points: Sequence[Point], series: Sequence[Series]) -> Iterator[Notice]:
    """That what was looked for isn't known where nodes count as nothing."""
    if any(each.not_judged for each in series):
        nodes = counted(max(point.unsupported_count for point in points), "node")
        yield Notice(
            code="unsupported",
            message=f"{nodes} not supported and counted as nothing: latencies are lower bounds, by which neither a "
            "knee nor what is in time can be judged",
        )


def _axis(varied: Sequence[str], batch_name: str | None) -> tuple[str, bool]:
    """The dim that a series runs along, and whether it is the batch: that if it varies, else the last that does."""
    batch = next((name for name in varied if name == batch_name or is_batch_symbol(name)), None)
    return (varied[-1], False) if batch is None else (batch, True)


def _check(asked: Mapping[str, Sequence[int]], max_latency_ms: float | None, at: str) -> None:
    """ComparisonError for what can't be swept; too many points are refused before the file is read."""
    if all(len(sizes) == 1 for sizes in asked.values()):
        raise ComparisonError(
            "there is nothing to sweep; give --batch several sizes, such as 1..64*2, or a --dim, such as seq=128,512"
        )
    if max_latency_ms is not None and not isinstance(max_latency_ms, int | float):
        raise OptionError(f"max_latency_ms is {shown(repr(max_latency_ms))}; give milliseconds, a number such as 5.0")
    if max_latency_ms is not None and not 0 < max_latency_ms < inf:
        raise ComparisonError(f"max_latency_ms is {max_latency_ms!r}; give milliseconds above 0")
    if at not in (UPPER, MEDIAN):
        raise ComparisonError(f"at {str(at)[:40]!a}: choose {UPPER} or {MEDIAN}")
    combinations(asked)


@dataclass(slots=True, kw_only=True)
class _Found:
    """What the points of a sweep have said so far.

    ``fixed``: the sizes that are the same at all points that the model takes, None before the first; ``derived``: the
    symbols that aren't among those that ``varied``. ``precision`` and ``product_formats`` are the last point's.
    """

    varied: tuple[str, ...]
    precision: str
    warnings: dict[Notice, None]
    product_formats: tuple[str, ...] = ()
    points: list[Point] = field(default_factory=list)
    captured: list[bool] = field(default_factory=list)
    assumptions: list[tuple[str, ...]] = field(default_factory=list)
    settings: list[tuple[str, ...]] = field(default_factory=list)
    widens: set[bool] = field(default_factory=set)
    fixed: dict[str, int] | None = None
    derived: dict[str, None] = field(default_factory=dict)
    first_fault: ModelError | None = None

    def refuse(self, chosen: Mapping[str, int], fault: ModelError) -> None:
        """A point that the model can't have."""
        self.first_fault = self.first_fault or fault
        self.points.append(
            Point(dims=chosen, totals=None, bound_shares={}, unsupported_count=0, refused=str(fault)),
        )

    def require_one(self, lists: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """The sizes that are the same at all points; ModelError where the model takes none of them."""
        if self.fixed is not None:
            return self.fixed
        assert self.first_fault is not None
        first = dims_text({name: sizes[0] for name, sizes in lists.items() if name in self.varied})
        raise ModelError(f"the model refuses all of these sizes; with {first}: {self.first_fault}")

    def add(self, chosen: Mapping[str, int], prepared: PreparedModel, outcome: Outcome) -> None:
        self.captured.append(prepared.runtime.captured)
        self.precision, self.product_formats = outcome.precision, outcome.product_formats
        self.assumptions.append(outcome.assumptions)
        self.settings.append(("", "", "", *(f"{name}={chosen[name]}" for name in self.varied)))
        self.widens.add(outcome.widens)
        self.warnings |= dict.fromkeys((*prepared.graph.warnings, *outcome.warnings))
        bound = prepared.shaped.bound.symbols
        # what follows from a dim that varies ("total" from "past") is one of several sizes, too
        before = bound if self.fixed is None else self.fixed
        self.derived |= dict.fromkeys(name for name in bound if name not in self.varied)
        self.fixed = {
            name: size for name, size in before.items() if name not in self.varied and bound.get(name) == size
        }
        self.points.append(
            Point(
                dims=chosen,
                totals=outcome.totals,
                bound_shares=outcome.bound_shares,
                unsupported_count=len(outcome.unsupported),
            )
        )


def _series(
    points: Sequence[Point], axis: str, max_latency_ms: float | None, at: str, *, is_batch: bool
) -> Iterator[Series]:
    """The points that differ along ``axis`` alone, by what they have in common."""
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, point in enumerate(points):
        others = tuple((name, size) for name, size in point.dims.items() if name != axis)
        groups.setdefault(others, []).append(index)
    for others, members in groups.items():
        members.sort(key=lambda index: points[index].dims[axis])
        along = _Along(axis=axis, max_latency_ms=max_latency_ms, at=at)
        for index in members:
            along.look_at(points[index])
        yield along.series(dict(others), members, is_batch=is_batch)


@dataclass(slots=True, kw_only=True)
class _Along:
    """What of the points of a series fits, and is fast enough, by their sizes along its axis.

    ``costed``: sizes that fit whose time is known, with their throughput; ``partial``: those that are slower than is
    known, of which ``maybe_in_time`` may be fast enough.
    """

    axis: str
    max_latency_ms: float | None
    at: str
    fits: list[int] = field(default_factory=list)
    costed: list[tuple[int, float]] = field(default_factory=list)
    in_time: list[int] = field(default_factory=list)
    partial: list[int] = field(default_factory=list)
    maybe_in_time: list[int] = field(default_factory=list)

    def look_at(self, point: Point) -> None:
        totals, size = point.totals, point.dims[self.axis]
        if totals is None or totals.memory.verdict != FITS:
            return
        self.fits.append(size)
        if not point.is_costed:
            self.partial.append(size)
            self.maybe_in_time += [size] if self.max_latency_ms is not None else []
            return
        self.costed.append((size, totals.throughput_per_s))
        judged_ms = totals.latency_high_ms if self.at == UPPER else totals.latency_ms
        if totals.partial:
            self.partial.append(size)
        if self.max_latency_ms is not None and judged_ms <= self.max_latency_ms:
            (self.maybe_in_time if totals.partial else self.in_time).append(size)

    def series(self, others: dict[str, int], members: Sequence[int], *, is_batch: bool) -> Series:
        """``others``: the sizes that its points share; ``members``: their places among all."""
        best = max((throughput for _, throughput in self.costed), default=0.0)
        knee = next((size for size, throughput in self.costed if throughput >= KNEE_SHARE * best), None)
        not_judged = ["knee"] if is_batch and self.partial else []
        # larger ones count that may be in time: smaller ones change nothing
        if max(self.maybe_in_time, default=0) > max(self.in_time, default=0):
            not_judged.append("largest_in_time")
        return Series(
            dims=others,
            points=tuple(members),
            knee=knee if is_batch and not self.partial else None,
            largest_that_fits=max(self.fits, default=None),
            largest_in_time=None if "largest_in_time" in not_judged else max(self.in_time, default=None),
            not_judged=tuple(not_judged),
        )
