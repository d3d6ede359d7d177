"""What a model is made of: inputs, symbols, operators, parameters, work, and the shape of every value; no GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from neusight_onnx import __version__
from neusight_onnx.collection import no_collection
from neusight_onnx.fusion.patterns.search import OWN
from neusight_onnx.fusion.quantization.at_run_time import dequantized_at_run_time
from neusight_onnx.graph.batch_dimension import find_batch
from neusight_onnx.graph.bindings import Bindings, BoundInputs, make_bindings, named_as_in
from neusight_onnx.graph.model import Array, Graph, InferredGraph, Initializer, Model, Value, file_name
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.shapes import Memo, any_of, at_expected_sizes, bind_and_infer, with_told_counts
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering import lower, operator_table
from neusight_onnx.lowering.branches import Cost, choose_branches, decisions_said
from neusight_onnx.memory import parameter_summary
from neusight_onnx.report.model import (
    InputSummary,
    Inspection,
    NestedInts,
    Symbol,
    UnsupportedNode,
    ValueFacts,
    ValueSummary,
)
from neusight_onnx.report.operators import Operator
from neusight_onnx.report.quantities import scaled

__all__ = ["Inspection", "external_files", "inspect_model", "known_operators"]

_MOST_ELEMENTS = 16
"""Larger contents are not shown: sizes, axes and the like are small."""


def inspect_model(
    model: str | Path | Model,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, Array] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    batch: int | None = None,
) -> Inspection:
    """What ``model`` (a path, or what :func:`read_model` gave) is made of, with its symbolic dims bound.

    ``dims``, ``shapes``, ``values``, ``trip_counts`` and ``batch`` are those of :func:`analyze`. FLOPs and
    multiply-adds are those of the nodes one by one, before a runtime merges any, at expected sizes, constants that
    are dequantised included, and of an If whose condition isn't known those of the branch with more FLOPs; the
    values' shapes are bounds where they depend on data. Raises a :class:`~neusight_onnx.errors.NeusightError` for
    an unreadable model and for bindings that contradict it.
    """
    loaded = model if isinstance(model, Model) else read_model(model)
    bindings = named_as_in(loaded, make_bindings(dims, shapes, values, trip_counts, batch))
    memo = Memo(graph=loaded.graph)
    with no_collection():
        bindings = with_told_counts(loaded, bindings, memo)
        bound, inferred = bind_and_infer(loaded, bindings, memo)
        expected = at_expected_sizes(loaded, bindings, bound, inferred)
        work = lower(dequantized_at_run_time(expected), runtime="eager")
    parameter_count, weight_bytes = parameter_summary(loaded)
    operators = Counter(_operators(loaded.graph))
    unsupported: dict[str, UnsupportedNode] = {}
    for item in work:
        if item.unsupported is not None:
            name = file_name(item.node)
            unsupported.setdefault(name, UnsupportedNode(node=name, op_type=item.op_type, reason=item.unsupported))
    choice = choose_branches(work, [_work_of(item) for item in work])
    chosen = decisions_said(choice.decisions, inferred.deciders, _written_flops, counted="branch", other="would be")
    kernels = [
        (item.count, kernel)
        for place, item in enumerate(work)
        if place not in choice.left_out
        for kernel in item.kernels
    ]
    return Inspection(
        tool_version=__version__,
        path=loaded.path,
        sha256=loaded.sha256,
        byte_count=loaded.byte_count,
        ir_version=loaded.ir_version,
        producer=loaded.producer,
        opsets=dict(loaded.opsets),
        node_count=operators.total(),
        operators=dict(operators.most_common()),
        parameter_count=parameter_count,
        weight_bytes=weight_bytes,
        symbols=_symbols(loaded, bindings, bound),
        inputs=tuple(_inputs(inferred)),
        outputs=tuple(_outputs(inferred)),
        macs=sum(count * kernel.macs for count, kernel in kernels),
        flops=sum(count * kernel.flops for count, kernel in kernels),
        partial=bool(unsupported),
        unsupported=tuple(unsupported.values()),
        values=_facts_of(inferred),
        bodies=dict(_bodies(inferred)),
        assumptions=tuple(dict.fromkeys([*inferred.assumptions, *expected.assumptions, *chosen])),
        warnings=(*loaded.warnings, *inferred.warnings),
    )


def _work_of(work: NodeWork) -> Cost:
    """FLOPs, and where there are none the bytes moved."""
    return (
        float(work.count * sum(kernel.flops for kernel in work.kernels)),
        float(work.count * sum(kernel.read_bytes + kernel.write_bytes for kernel in work.kernels)),
    )


def _written_flops(cost: Cost) -> str:
    return scaled(int(cost[0]) if cost else 0, "FLOP")


def external_files(model: Model) -> tuple[str, ...]:
    """The files that hold the model's weights outside of it, as the model names them, whether they are there or not."""
    tensors = _initializers(model.graph)
    return tuple(dict.fromkeys(tensor.external for tensor in tensors if tensor.external is not None))


def _initializers(graph: Graph) -> Iterator[Initializer]:
    yield from graph.initializers.values()
    for node in graph.nodes:
        for attribute in node.attributes.values():
            for member in attribute if isinstance(attribute, tuple) else (attribute,):
                if isinstance(member, Initializer):
                    yield member
                elif isinstance(member, Graph):
                    yield from _initializers(member)


def known_operators() -> tuple[Operator, ...]:
    """Every operator that a file can hold and that is decided: kernels, free or unsupported; ai.onnx first."""
    return tuple(
        Operator(domain=domain, op_type=op_type, kernel_class=kernel_class, note=note)
        for domain, op_type, kernel_class, note in operator_table()
        if domain != OWN
    )


def _operators(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        yield f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        for attribute in node.attributes.values():
            for body in attribute if isinstance(attribute, tuple) else (attribute,):
                if isinstance(body, Graph):
                    yield from _operators(body)


def _symbols(model: Model, bindings: Bindings, bound: BoundInputs) -> tuple[Symbol, ...]:
    given = set(bindings.dims)
    if bindings.batch is not None:
        batch = find_batch(model, "the batch", bindings.batch)
        given.update(batch.symbols or (batch.name,))
    for declared in model.graph.inputs:
        if declared.name in bindings.shapes or declared.name in bindings.values:
            given.update(dim for dim in declared.shape or () if isinstance(dim, str))
    return tuple(Symbol(name=name, size=size, given=name in given) for name, size in bound.symbols.items())


def _inputs(inferred: InferredGraph) -> Iterator[InputSummary]:
    for declared in inferred.graph.inputs:
        value = inferred.values.get(declared.name)
        yield InputSummary(
            name=declared.name,
            kind=declared.kind,
            dtype=None if declared.dtype is None else declared.dtype.label,
            declared=declared.shape,
            shape=None if value is None else value.shape,
        )


def _outputs(inferred: InferredGraph) -> Iterator[ValueSummary]:
    for declared in inferred.graph.outputs:
        value = inferred.values.get(declared.name)
        dtype = declared.dtype if value is None or value.dtype is None else value.dtype
        yield ValueSummary(
            name=declared.name,
            dtype=None if dtype is None else dtype.label,
            shape=None if value is None else value.shape,
        )


def _own_values(inferred: InferredGraph) -> dict[str, Value]:
    """Every value that this graph itself defines, in the order of definition."""
    graph = inferred.graph
    names = [declared.name for declared in graph.inputs]
    names += graph.initializers
    names += [name for node in graph.nodes for name in node.outputs if name]
    unknown = Value(dtype=None, shape=None)
    return {name: inferred.values.get(name, unknown) for name in names}


def _facts_of(inferred: InferredGraph) -> dict[str, ValueFacts]:
    return {name: _facts(value) for name, value in _own_values(inferred).items()}


def _bodies(inferred: InferredGraph) -> Iterator[tuple[str, Mapping[str, ValueFacts]]]:
    for (node, attribute), _ in _first_bodies(inferred):
        yield from _trips(_kept(inferred, node, attribute), f"{node}.{attribute}")


def _first_bodies(inferred: InferredGraph) -> Iterator[tuple[tuple[str, str], InferredGraph]]:
    """The bodies without those of further trips."""
    further = {(node, key) for node, kept in inferred.repeats.items() for key, _ in kept[1:]}
    return ((key, body) for key, body in inferred.bodies.items() if key not in further)


def _kept(inferred: InferredGraph, node: str, attribute: str) -> list[InferredGraph]:
    """A body as it is in each kind of trip."""
    kept = inferred.repeats.get(node, ((attribute, 1),))
    return [inferred.bodies[(node, key)] for key, _ in kept]


def _trips(trips: Sequence[InferredGraph], place: str) -> Iterator[tuple[str, Mapping[str, ValueFacts]]]:
    """The values of a body, and of the bodies in it; where trips differ, what holds for any of them."""
    columns = [_own_values(body) for body in trips]
    names = list(columns[0])
    found = {}
    for name, values in zip(names, zip(*(column.values() for column in columns), strict=True), strict=True):
        found[name] = _facts(any_of(values))
    yield place, found
    inner: dict[str, list[InferredGraph]] = {}
    for trip in trips:
        for position, node in enumerate(trip.graph.nodes):
            shown = trips[0].graph.nodes[position].name
            for attribute in node.attributes:
                if (node.name, attribute) in trip.bodies:
                    inner.setdefault(f"{place}/{shown}.{attribute}", []).extend(_kept(trip, node.name, attribute))
    for key, bodies in inner.items():
        yield from _trips(bodies, key)


def _facts(value: Value) -> ValueFacts:
    return ValueFacts(
        kind=value.kind,
        dtype=None if value.dtype is None else value.dtype.label,
        shape=value.shape,
        is_bound=value.is_bound or value.length_low is not None,
        value=_content(value),
        elements=None if value.elements is None else tuple(_facts(element) for element in value.elements),
    )


def _content(value: Value) -> NestedInts | None:
    data = value.data
    if data is None or value.data_low is not None or value.is_bound or data.size > _MOST_ELEMENTS:
        return None
    if not (np.issubdtype(data.dtype, np.integer) or data.dtype == np.bool_):
        return None
    content: NestedInts = data.tolist()
    return content
