"""What each node of the user's file costs: for the annotated model and for overlays of graph viewers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from neusight_onnx.analysis import predict_report
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import GpuSpec, checked_gpu, load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import Array, InferredGraph, Value, file_name
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.rewrite import Notes, TensorType, write_notes
from neusight_onnx.graph.source import Source, SourceGraph, SourceNode, read_source
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.branches import NOT_COUNTED
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import every_work, infer_shapes, prepare
from neusight_onnx.report.model import KernelRow, Report
from neusight_onnx.report.precision_words import precision_of
from neusight_onnx.report.quantities import printable, shorten
from neusight_onnx.runnable import require_runnable
from neusight_onnx.runtime import default_runtime, get_runtime

if TYPE_CHECKING:
    from neusight_onnx.backward import Training

PREFIX = "neusight."
"""Begins every key that is written into a model."""

_MOST_NAME = 200
_MOST_NAMES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCost:
    """What one node of the file costs in one run of the model.

    ``latency_us`` is the time of its kernels and of those of all nodes inside of it (the function that it calls, its
    bodies), so that the nodes of the main graph add up to the kernels' time. A kernel of several nodes counts for the
    first of them, which has the others in ``fuses``; they name it in ``fused_into``. ``kernel_classes``, ``bound``
    (that of the longest kernel), FLOPs and bytes are of the same kernels. ``run_count``: runs of its own kernels
    together. ``reason``: why it has no kernel; ``is_supported`` False: it counts as nothing. ``calls``: how often the
    function that it stands in is called.
    """

    latency_us: float
    low_us: float
    high_us: float
    kernel_classes: tuple[str, ...]
    bound: str | None
    flops: int
    byte_count: int
    run_count: int
    fuses: tuple[str, ...] = ()
    fused_into: str | None = None
    reason: str | None = None
    is_supported: bool = True
    calls: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An analysis told node by node. ``source``: the file; ``inferred``: its values, bound and inferred."""

    path: Path
    source: Source
    report: Report
    inferred: InferredGraph
    costs: Mapping[str, NodeCost]

    def cost_of(self, node: SourceNode) -> NodeCost | None:
        """The cost of a node of the file, over all calls of the function that it stands in; None if it is never run."""
        found = [self.costs[name] for name in node.names if name in self.costs]
        return _over_calls(found) if found else None


def annotation_of(
    path: str | Path,
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
    training: Training | None = None,
) -> Annotation:
    """Analyses the model file ``path`` as :func:`~neusight_onnx.analyze` does, and tells it node by node.

    Copies of inputs and outputs, the loss and the optimizer's step are in the totals and in no node.

    Raises a :class:`~neusight_onnx.errors.NeusightError` for whatever the user can mend.
    """
    runtime = runtime or default_runtime(training=training is not None)
    get_runtime(runtime, channels_last=channels_last)
    if not isinstance(gpu, str | Path | GpuSpec):
        raise SpecError(f"gpu is {gpu!r}; give a name, the path of a TOML file or a GpuSpec")
    spec = checked_gpu(gpu) if isinstance(gpu, GpuSpec) else load_gpu(gpu)
    model = read_model(path)
    resolved = resolve(precision, stored_precision(model))
    require_runnable(model, resolved, runtime, spec, in_training=training is not None)
    shaped = infer_shapes(model, make_bindings(dims, shapes, values, trip_counts, batch))
    prepared = prepare(
        shaped,
        precision=resolved,
        runtime=runtime,
        cuda_graph=cuda_graph,
        include_io=include_io,
        channels_last=channels_last,
        training=training,
    )
    report = predict_report(prepared, spec, asked_precision=precision)
    source = read_source(path)
    return Annotation(
        path=Path(path),
        source=source,
        report=report,
        inferred=shaped.inferred,
        costs=_costs(report.kernels, every_work(prepared, prepared.work), source.owners),
    )


def write_annotated(annotation: Annotation, file: BinaryIO) -> None:
    """Writes the model's file to ``file``, with the costs as metadata of its nodes and the types of its values."""
    bodies = _bodies(annotation.source.graph, annotation.inferred)
    notes = Notes(
        prefix=PREFIX,
        of_model=_model_notes(annotation.report),
        of_node=lambda node: node_notes(annotation.cost_of(node), annotation.report.totals.latency_ms * 1e3),
        of_graph=lambda graph: _types(graph, annotation, bodies),
    )
    write_notes(annotation.path, annotation.source, notes, file)


# --- costs ------------------------------------------------------------------------------------------------------------


def _costs(rows: Sequence[KernelRow], work: Sequence[NodeWork], owners: Mapping[str, str]) -> dict[str, NodeCost]:
    own: dict[str, list[KernelRow]] = {}
    fused: dict[str, str] = {}
    fuses: dict[str, dict[str, None]] = {}
    for row in rows:
        first, *others = (file_name(name) for name in row.nodes)
        own.setdefault(first, []).append(row)
        for other in others:
            if other != first:
                fused.setdefault(other, first)
                fuses.setdefault(first, {})[other] = None
    reasons: dict[str, tuple[str, bool]] = {}
    for item in work:
        reason = item.unsupported or item.free or NOT_COUNTED
        for name in [name for name, _ in item.origins] or [item.node]:
            reasons.setdefault(file_name(name), (reason, item.unsupported is None))
    inside: dict[str, list[KernelRow]] = {name: list(found) for name, found in own.items()}
    for name, found in own.items():
        owner = owners.get(name)
        while owner is not None:
            inside.setdefault(owner, []).extend(found)
            owner = owners.get(owner)
    return {
        name: _cost(
            inside.get(name, ()),
            run_count=sum(row.count for row in own.get(name, ())),
            fuses=tuple(fuses.get(name, ())),
            fused_into=None if name in inside else fused.get(name),
            reason=None if name in inside or name in fused else reasons[name][0],
            is_supported=name in inside or name in fused or reasons[name][1],
        )
        for name in {**inside, **fused, **reasons}
    }


def _cost(
    rows: Sequence[KernelRow],
    *,
    run_count: int,
    fuses: tuple[str, ...],
    fused_into: str | None,
    reason: str | None,
    is_supported: bool,
) -> NodeCost:
    bounds: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        bounds[row.bound] += row.latency_us
    return NodeCost(
        latency_us=sum(row.latency_us for row in rows),
        low_us=sum(row.latency_low_us for row in rows),
        high_us=sum(row.latency_high_us for row in rows),
        kernel_classes=tuple(dict.fromkeys(row.kernel_class for row in rows)),
        bound=max(bounds, key=lambda bound: bounds[bound], default=None),
        flops=sum(row.flops for row in rows),
        byte_count=sum(row.read_bytes + row.write_bytes for row in rows),
        run_count=run_count,
        fuses=fuses,
        fused_into=fused_into,
        reason=reason,
        is_supported=is_supported,
    )


def _over_calls(costs: Sequence[NodeCost]) -> NodeCost:
    """One node of a function over all its calls."""
    first = costs[0]
    if len(costs) == 1:
        return first
    bounds: defaultdict[str, float] = defaultdict(float)
    for cost in costs:
        if cost.bound is not None:
            bounds[cost.bound] += cost.latency_us
    timed = any(cost.kernel_classes for cost in costs)
    return NodeCost(
        latency_us=sum(cost.latency_us for cost in costs),
        low_us=sum(cost.low_us for cost in costs),
        high_us=sum(cost.high_us for cost in costs),
        kernel_classes=tuple(dict.fromkeys(name for cost in costs for name in cost.kernel_classes)),
        bound=max(bounds, key=lambda bound: bounds[bound], default=None),
        flops=sum(cost.flops for cost in costs),
        byte_count=sum(cost.byte_count for cost in costs),
        run_count=sum(cost.run_count for cost in costs),
        fuses=first.fuses,
        fused_into=None if timed else first.fused_into,
        reason=None if timed else first.reason,
        is_supported=all(cost.is_supported for cost in costs),
        calls=len(costs),
    )


# --- as notes in the file ---------------------------------------------------------------------------------------------


def node_notes(cost: NodeCost | None, total_us: float) -> dict[str, str]:
    """Keys (without their prefix) and texts for a node; nothing for one that is never run."""
    if cost is None:
        return {}
    notes: dict[str, str] = {}
    if cost.kernel_classes:
        notes["kernel_class"] = ", ".join(cost.kernel_classes)
        notes["latency_us"] = _number(cost.latency_us)
        notes["latency_low_us"] = _number(cost.low_us)
        notes["latency_high_us"] = _number(cost.high_us)
        notes["latency_share"] = _number(cost.latency_us / total_us if total_us else 0.0)
        notes["bound"] = cost.bound or ""
        notes["flops"] = str(cost.flops)
        notes["bytes"] = str(cost.byte_count)
    if cost.run_count > 1:
        notes["runs"] = str(cost.run_count)
    if cost.calls > 1:
        notes["calls"] = str(cost.calls)
    if cost.fuses:
        more = f", and {len(cost.fuses) - _MOST_NAMES:,} more" if len(cost.fuses) > _MOST_NAMES else ""
        notes["fuses"] = ", ".join(map(_name, cost.fuses[:_MOST_NAMES])) + more
    if cost.fused_into is not None:
        notes["fused_into"] = _name(cost.fused_into)
    if cost.reason is not None:
        notes["free" if cost.is_supported else "unsupported"] = printable(shorten(cost.reason, 500))
    return notes


def _model_notes(report: Report) -> dict[str, str]:
    totals, settings = report.totals, report.settings
    return {
        "version": report.tool_version,
        "gpu": report.gpu.label,
        "precision": precision_of(report),
        "mode": settings.mode,
        "runtime": settings.runtime,
        "runtime_release": settings.runtime_release or "",
        "cuda_graph": str(settings.cuda_graph).lower(),
        "include_io": str(settings.include_io).lower(),
        "channels_last": str(settings.channels_last).lower(),
        "dims": " ".join(f"{_name(name)}={size}" for name, size in settings.dims.items()),
        "latency_ms": _number(totals.latency_ms),
        "latency_low_ms": _number(totals.latency_low_ms),
        "latency_high_ms": _number(totals.latency_high_ms),
        "interval": _number(totals.interval),
        "kernel_ms": _number(totals.kernel_ms),
        "overhead_ms": _number(totals.overhead_ms),
        "peak_memory_bytes": str(totals.memory.peak_bytes),
        "partial": str(totals.partial).lower(),
    }


def _number(value: float) -> str:
    return f"{value:.6g}"


def _name(name: str) -> str:
    return printable(shorten(name, _MOST_NAME))


# --- types ------------------------------------------------------------------------------------------------------------


def _bodies(graph: SourceGraph, inferred: InferredGraph) -> dict[int, InferredGraph]:
    """The inferred body of each body of the file, by the ``id`` of that, where there is exactly one."""
    found: dict[int, InferredGraph] = {}
    for node in graph.nodes:
        for attribute, bodies in node.bodies.items():
            if len(node.names) != 1 or len(bodies) != 1 or len(inferred.repeats.get(node.names[0], ())) > 1:
                continue
            body = inferred.bodies.get((node.names[0], attribute))
            if body is not None:
                found[id(bodies[0])] = body
                found.update(_bodies(bodies[0], body))
    return found


def _types(graph: SourceGraph, annotation: Annotation, bodies: Mapping[int, InferredGraph]) -> dict[str, TensorType]:
    is_main = graph is annotation.source.graph
    inferred = annotation.inferred if is_main else bodies.get(id(graph))
    if inferred is None:
        return {}
    names = {node_output: graph.values.get(node_output) for node in graph.nodes for node_output in node.outputs}
    if is_main:
        names.update({declared.name: declared.name for declared in inferred.graph.inputs})
    types: dict[str, TensorType] = {}
    for name, own in names.items():
        value = inferred.values.get(own) if name and own else None
        known = None if value is None else _type(value)
        if known is not None and (is_main or name not in graph.outputs):
            types[name] = known
    return types


def _type(value: Value) -> TensorType | None:
    """What is certain of a value; None where its element type or rank is not known, and for sequences and the like."""
    if value.kind != "tensor" or value.dtype is None or value.shape is None:
        return None
    if not value.is_bound:
        return TensorType(dtype=value.dtype, shape=value.shape)
    low = value.shape_low or (-1,) * len(value.shape)
    sizes = tuple(most if most == least else None for most, least in zip(value.shape, low, strict=True))
    return TensorType(dtype=value.dtype, shape=sizes)
