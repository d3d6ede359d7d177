"""From kernels' predictions to the parts of a report: rows, totals, coverage, the timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from neusight_onnx.batch import batch_of
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import InferredGraph, file_name
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import KERNEL_CLASSES, Kernel, NodeWork, TensorSpec
from neusight_onnx.lowering.branches import NOT_COUNTED, Cost, choose_branches, decisions_said
from neusight_onnx.operator_host import operator_host_us
from neusight_onnx.predictor import Prediction
from neusight_onnx.report.model import (
    Coverage,
    KernelRow,
    MemoryEstimate,
    Settings,
    TimelineSpan,
    Totals,
    UnsupportedNode,
    ValueSummary,
    deciding_first,
)
from neusight_onnx.runtime import Runtime
from neusight_onnx.stream import Step, host_factors, host_time_us, stream_launches, stream_time_us
from neusight_onnx.uncertainty import Share, cancelling, combined_us

if TYPE_CHECKING:
    from neusight_onnx.backward import Trained


INTERVAL = 0.8
"""Share of cases meant to lie within the interval of a latency."""


_MIDDLE_US = attrgetter("latency_us")
"""Which of a prediction's times a stream is made of."""

INTERVAL_METHOD = (
    "each kernel's interval is that of GPUs left out of the fit, narrower on a measured GPU; what the kernels of a run "
    "err alike with their GPU, library and program adds up, what each errs by itself partly cancels; the host is taken "
    "to be up to {faster:g} times faster or {slower}slower"
)


def bound_shares(counted: Sequence[Placed], totals: Totals, host_us: float) -> Mapping[str, float]:
    """Shares of the latency by what bounds it, what decides it first; "host" where the GPU waits for it, which takes
    ``host_us`` by itself."""
    spent_us: dict[str, float] = {}
    for item in counted:
        for prediction in item.predictions:
            time_us = item.work.count * prediction.latency_us
            spent_us[prediction.bound] = spent_us.get(prediction.bound, 0.0) + time_us
    if totals.overhead_ms > 0:
        spent_us["host"] = totals.overhead_ms * 1e3
    total_us = totals.latency_ms * 1e3
    is_host_bound = host_us > totals.kernel_ms * 1e3
    in_order = deciding_first(spent_us, is_host_bound=is_host_bound)
    return {bound: part_us / total_us for bound, part_us in in_order.items()} if total_us else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A node's work with the predictions of its kernels."""

    work: NodeWork
    predictions: tuple[Prediction, ...]

    @property
    def latency_us(self) -> float:
        return self.work.count * sum(prediction.latency_us for prediction in self.predictions)


def joined_views(works: Iterable[NodeWork]) -> list[NodeWork]:
    """What the totals of a run are made of: works that cost something, are not supported or depend on a branch.

    Most nodes of an exported graph are free for host and GPU. Operators in a row that launch nothing are one, the first
    of them, as often as all are.
    """
    found: list[NodeWork] = []
    views: list[NodeWork] = []

    def join() -> None:
        if views:
            first = views[0]
            found.append(
                NodeWork(  # as ``replace`` does it in thrice the time, in front of most kernels
                    node=first.node,
                    op_type=first.op_type,
                    origins=first.origins,
                    free=first.free,
                    count=sum([item.count for item in views]),
                    phase=first.phase,
                    host_operation=True,
                )
                if len(views) > 1
                else first
            )
            views.clear()

    for item in works:
        if item.kernels or item.branch or item.unsupported is not None:
            join()
            found.append(item)
        elif item.host_operation:
            if views and views[0].phase != item.phase:
                join()
            views.append(item)
    join()
    return found


def with_predictions(work: Sequence[NodeWork], predictions: Sequence[Prediction]) -> list[Placed]:
    """Each work with its kernels' predictions, which stand in the works' order."""
    placed = []
    start = 0
    for item in work:
        end = start + len(item.kernels)
        placed.append(Placed(work=item, predictions=tuple(predictions[start:end])))
        start = end
    return placed


def quickest(placed: Sequence[Placed], predictions: Sequence[Prediction]) -> list[Placed]:
    """Each work as it takes the least time; ``predictions`` are those of all alternatives' kernels, in their order."""
    found = []
    start = 0
    for item in placed:
        best = item
        for way in item.work.alternatives:
            end = start + len(way)
            other = Placed(work=replace(item.work, kernels=way), predictions=tuple(predictions[start:end]))
            best = min(best, other, key=lambda one: one.latency_us)
            start = end
        found.append(best)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What is executed, of all nodes: without the faster branch of every If whose condition isn't known.

    ``said``: those decisions. ``faster``: what would be executed if every such If took its faster branch; None
    if there is none.
    """

    works: tuple[Placed, ...]
    left_out: frozenset[int] = frozenset()
    said: tuple[str, ...] = ()
    faster: tuple[Placed, ...] | None = None


def counted_works(inferred: InferredGraph, placed: Sequence[Placed]) -> Counted:
    """Decides every If whose condition is not known for its slower branch, and says so."""
    if not any(item.work.branch for item in placed):
        return Counted(works=tuple(placed))
    works = [item.work for item in placed]
    # where no kernel makes a difference, what the host has to go through does
    costs = [(item.latency_us, float(item.work.count * item.work.host_operation)) for item in placed]
    slower, faster = choose_branches(works, costs), choose_branches(works, costs, least=True)

    def without(left_out: frozenset[int]) -> tuple[Placed, ...]:
        return tuple(item for at, item in enumerate(placed) if at not in left_out)

    def shown(cost: Cost) -> str:
        time_us = cost[0] if cost else 0.0
        return f"{time_us:,.0f} us" if time_us >= 1e3 else f"{time_us:.3g} us"

    said = decisions_said(
        [decision for decision in slower.decisions if any(cost and cost[0] for cost in decision.costs.values())],
        inferred.deciders,
        shown,
        counted="the slower branch",
        other="would take",
    )
    return Counted(
        works=without(slower.left_out), left_out=slower.left_out, said=tuple(said), faster=without(faster.left_out)
    )


def value_summaries(inferred: InferredGraph, names: Sequence[str]) -> tuple[ValueSummary, ...]:
    """Types and shapes of inputs or outputs, as a report names them: of an output that is cast, what a run returns."""
    returned = {file_name(declared.name): declared.name for declared in inferred.graph.outputs}
    summaries = []
    for name in names:
        value = inferred.values.get(returned.get(name, name))
        dtype = value.dtype.label if value and value.dtype else None
        summaries.append(ValueSummary(name=name, dtype=dtype, shape=value.shape if value else None))
    return tuple(summaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """What a report says of a kernel wherever it occurs: made once for equal kernels."""

    kernel_class: str
    dtype: str
    dims: Mapping[str, int | str | tuple[int, ...]]
    flops: int
    macs: int
    read_bytes: int
    write_bytes: int


def kernel_facts(placed: Sequence[Placed]) -> dict[Kernel, KernelFacts]:
    """The facts of every kernel among the works, once for equal ones."""
    facts: dict[Kernel, KernelFacts] = {}
    # layers that repeat share theirs, which are slow to compare
    for kernel in {id(kernel): kernel for item in placed for kernel in item.work.kernels}.values():
        if kernel not in facts:
            facts[kernel] = KernelFacts(
                kernel_class=KERNEL_CLASSES[type(kernel)],
                dtype=kernel_dtype(kernel).label,
                dims=kernel_dims(kernel),
                flops=kernel.flops,
                macs=kernel.macs,
                read_bytes=kernel.read_bytes,
                write_bytes=kernel.write_bytes,
            )
    return facts


def kernel_rows(counted: Sequence[Placed], facts: Mapping[Kernel, KernelFacts]) -> Iterator[KernelRow]:
    """A report's rows, in the order of execution."""
    for position, item in enumerate(counted):
        work = item.work
        names = tuple(name for name, _ in work.origins) or (file_name(work.node),)
        op_types = tuple(dict.fromkeys(op_type for _, op_type in work.origins)) or (work.op_type,)
        for index, (kernel, prediction) in enumerate(zip(work.kernels, item.predictions, strict=True)):
            known = facts[kernel]
            yield KernelRow(
                id=f"{position}.{index}",
                phase=work.phase,
                kernel_class=known.kernel_class,
                op_types=op_types,
                nodes=names,
                dtype=DataType.FLOAT32.label if prediction.in_fp32 else known.dtype,
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
    """The dims that name a kernel in a report: its integers, strings and shapes, without what is at its default.

    Whose kernel it is goes without saying: the runtime's. Fused moves are named by its operations.
    """
    dims: dict[str, int | str | tuple[int, ...]] = {}
    for item in fields(kernel):
        value = getattr(kernel, item.name)
        if item.name in ("library", "moves") or value is None or isinstance(value, DataType) or value == item.default:
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


def timeline_spans(counted: Sequence[Placed], runtime: Runtime) -> Iterator[TimelineSpan]:
    """The spans of the run; a kernel's id is that of its row."""
    executed = [(position, item) for position, item in enumerate(counted) if _is_executed(item)]
    steps = (_step(item, _MIDDLE_US, runtime) for _, item in executed)
    for launch in stream_launches(steps, runtime):
        position, work = executed[launch.step][0], executed[launch.step][1].work
        yield TimelineSpan(
            node=work.origins[0][0] if work.origins else file_name(work.node),
            op_type=work.origins[0][1] if work.origins else work.op_type,
            kernel_id=None if launch.kernel is None else f"{position}.{launch.kernel}",
            run_count=launch.run_count,
            host_start_us=launch.host_start_us,
            host_us=launch.host_us,
            gpu_start_us=launch.gpu_start_us,
            gpu_us=launch.gpu_us,
        )


def _is_executed(item: Placed) -> bool:
    return bool(item.predictions) or item.work.host_operation


def host_us_of(counted: Sequence[Placed], runtime: Runtime) -> float:
    """Microseconds that the host takes to hand over the run, waiting for nothing."""
    return host_time_us(stream_steps(counted, _MIDDLE_US, runtime), runtime)


def _step(item: Placed, pick: Callable[[Prediction], float], runtime: Runtime) -> Step:
    return Step(
        kernel_us=tuple([pick(prediction) for prediction in item.predictions]),
        count=item.work.count,
        host_waits=item.work.host_waits,
        host_us=operator_host_us(item.work, runtime),
    )


def stream_steps(counted: Sequence[Placed], pick: Callable[[Prediction], float], runtime: Runtime) -> Iterator[Step]:
    """The works as steps of the runtime's stream; ``pick``: which of a prediction's times.

    Operators in a row that launch nothing are one step.
    """
    views_us = 0.0
    for item in counted:
        if not item.predictions:
            if item.work.host_operation:
                (each_us,) = operator_host_us(item.work, runtime) or (runtime.view_us,)
                views_us += item.work.count * each_us
            continue
        if views_us:
            yield Step(host_us=(views_us,))
            views_us = 0.0
        yield _step(item, pick, runtime)
    if views_us:
        yield Step(host_us=(views_us,))


def make_totals(
    inferred: InferredGraph,
    counted: Sequence[Placed],
    facts: Mapping[Kernel, KernelFacts],
    runtime: Runtime,
    settings: Settings,
    partial: bool,
    memory: MemoryEstimate,
    trained: Trained | None,
    spec: GpuSpec,
) -> Totals:
    """Latency with its interval, throughput, work, phases and memory of a run."""

    kernel_us = sum(item.latency_us for item in counted)
    steps = list(stream_steps(counted, _MIDDLE_US, runtime))
    latency_us = stream_time_us(steps, runtime)
    faster, slower = host_factors(runtime, spec)
    left = cancelling(
        Share(prediction=prediction, kernel_class=KERNEL_CLASSES[type(kernel)], count=item.work.count)
        for item in counted
        for kernel, prediction in zip(item.work.kernels, item.predictions, strict=True)
    )
    short = list(stream_steps(counted, left.low_us, runtime))
    long = list(stream_steps(counted, left.high_us, runtime))
    low_us, high_us = combined_us(
        latency_us,
        kernels=(stream_time_us(short, runtime), stream_time_us(long, runtime)),
        host=(
            stream_time_us(steps, runtime, host_factor=faster),
            stream_time_us(steps, runtime, host_factor=slower),
        ),
        both=(
            stream_time_us(short, runtime, host_factor=faster),
            stream_time_us(long, runtime, host_factor=slower),
        ),
    )
    batch_size, _ = batch_of(inferred, settings.dims, settings.batch)
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
        interval_method=INTERVAL_METHOD.format(
            faster=runtime.host_spread, slower="" if slower == runtime.host_spread else f"{slower:g} times "
        ),
    )


def _phases(counted: Sequence[Placed], runtime: Runtime, latency_us: float) -> Mapping[str, float]:
    """Milliseconds of each phase: what the latency grows by when it follows those before it."""
    found = {"forward_ms": latency_us / 1e3, "backward_ms": 0.0, "optimizer_ms": 0.0}
    if all(item.work.phase == "forward" for item in counted):
        return found
    before_us = 0.0
    so_far: list[Placed] = []
    for phase in ("forward", "backward", "optimizer"):
        so_far += [item for item in counted if item.work.phase == phase]
        until_us = stream_time_us(stream_steps(so_far, _MIDDLE_US, runtime), runtime)
        found[f"{phase}_ms"] = (until_us - before_us) / 1e3
        before_us = until_us
    return found


def unsupported_nodes(placed: Sequence[Placed]) -> tuple[UnsupportedNode, ...]:
    """Each node of the file once, also where a loop's trips have works of their own."""
    found: dict[str, UnsupportedNode] = {}
    for item in placed:
        work = item.work
        if work.unsupported is not None:
            node, op_type = work.at_fault
            name = file_name(node)
            found.setdefault(name, UnsupportedNode(node=name, op_type=op_type, reason=work.unsupported))
    return tuple(found.values())


_STATES = ("free", "kernel", "unsupported")
"""A node of the file may be several works: a view that a later copy names again, the trips of a loop that differ. It
has the last of these states that any of them has."""


def make_coverage(
    placed: Sequence[Placed], left_out: frozenset[int], rows: Sequence[KernelRow], by_data: frozenset[str]
) -> Coverage:
    """How many nodes have kernels, are free or unsupported, and the shares of the time by what predicts it."""
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
        for name, _ in work.origins or ((file_name(work.node), work.op_type),):
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
