"""What a model is made of: inputs, symbols, operators, parameters, work, and the shape of every value; no GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from neusight_onnx import __version__
from neusight_onnx.collection import no_collection
from neusight_onnx.fusion.patterns import OWN
from neusight_onnx.graph.bindings import Bindings, BoundInputs, make_bindings
from neusight_onnx.graph.model import Array, Graph, InferredGraph, Initializer, Model, Value
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.shapes import at_expected_sizes, bind_and_infer
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering import lower, operator_table
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
) -> Inspection:
    """What ``model`` (a path, or what :func:`read_model` gave) is made of, with its symbolic dims bound.

    ``dims``, ``shapes``, ``values`` and ``trip_counts`` are those of :func:`analyze`. FLOPs and multiply-adds are those
    of the nodes one by one, before a runtime merges any, at expected sizes, and of an If whose condition isn't known
    those of the branch with more FLOPs; the values' shapes are bounds where they depend on data. Raises a
    :class:`~neusight_onnx.errors.NeusightError` for an unreadable model and for bindings that contradict it.
    """
    loaded = model if isinstance(model, Model) else read_model(model)
    bindings = make_bindings(dims, shapes, values, trip_counts)
    with no_collection():
        bound, inferred = bind_and_infer(loaded, bindings)
        expected = at_expected_sizes(loaded, bindings, bound, inferred)
        work = lower(expected, runtime="eager")
    parameter_count, weight_bytes = parameter_summary(loaded)
    operators = Counter(_operators(loaded.graph))
    unsupported = tuple(
        UnsupportedNode(node=item.node, op_type=item.op_type, reason=item.unsupported)
        for item in work
        if item.unsupported is not None
    )
    counted, chosen = _larger_branches(work)
    kernels = [(item.count, kernel) for item in counted for kernel in item.kernels]
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
        unsupported=unsupported,
        values=_facts_of(inferred),
        bodies=dict(_bodies(inferred)),
        assumptions=tuple(dict.fromkeys([*inferred.assumptions, *expected.assumptions, *chosen])),
        warnings=(*loaded.warnings, *inferred.warnings),
    )


def _larger_branches(works: Sequence[NodeWork]) -> tuple[list[NodeWork], list[str]]:
    """``works`` with the branch of more FLOPs of every If whose condition isn't known, innermost first; and which."""
    kept = list(works)
    said: list[str] = []
    while depth := max((len(work.branch) for work in kept), default=0):
        flops: dict[str, dict[str, int]] = {}
        for work in kept:
            if len(work.branch) == depth:
                node, _, name = work.branch[-1].rpartition("/")
                branches = flops.setdefault(node, {"then": 0, "else": 0})
                branches[name] += work.count * sum(kernel.flops for kernel in work.kernels)
        larger = {f"{node}/{max(branches, key=lambda name: branches[name])}" for node, branches in flops.items()}
        for node, branches in flops.items():
            name, other = ("then", "else") if f"{node}/then" in larger else ("else", "then")
            if branches[name]:
                said.append(
                    f"If '{node}': its condition is not known before the run; branch '{name}' "
                    f"({scaled(branches[name], 'FLOP')}) is counted, "
                    f"'{other}' would be {scaled(branches[other], 'FLOP')}"
                )
        kept = [
            replace(work, branch=work.branch[:-1]) if len(work.branch) == depth else work
            for work in kept
            if len(work.branch) < depth or work.branch[-1] in larger
        ]
    return kept, said


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


def _facts_of(inferred: InferredGraph) -> dict[str, ValueFacts]:
    """Every value that this graph itself defines, in the order of definition."""
    graph = inferred.graph
    names = [declared.name for declared in graph.inputs]
    names += graph.initializers
    names += [name for node in graph.nodes for name in node.outputs if name]
    unknown = Value(dtype=None, shape=None)
    return {name: _facts(inferred.values.get(name, unknown)) for name in names}


def _bodies(inferred: InferredGraph, trail: str = "") -> Iterator[tuple[str, Mapping[str, ValueFacts]]]:
    for (node, attribute), body in inferred.bodies.items():
        place = f"{trail}{node}.{attribute}"
        yield place, _facts_of(body)
        yield from _bodies(body, f"{place}/")


def _facts(value: Value) -> ValueFacts:
    return ValueFacts(
        kind=value.kind,
        dtype=None if value.dtype is None else value.dtype.label,
        shape=value.shape,
        is_bound=value.is_bound,
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
