"""What-if precisions: the same graph with other floating-point types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Declared, Graph, InferredGraph, Initializer, Model, Value

PLAIN = frozenset({DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32})
"""Types that a what-if replaces; float64 and 8-bit floats are chosen on purpose and stay."""

KEPT_FOR_THE_RUN = "kept for the run"
"""Attribute of a Cast whose result autocast's cache holds until the run ends, in training the run forward."""


def as_precision(graph: InferredGraph, dtype: DataType) -> InferredGraph:
    """The graph as if its float16, bfloat16 and float32 values, weights included, were of ``dtype``.

    Known data is kept. Casts between such types become casts to the same type, so free. A graph that has no other
    type comes back as it is.
    """
    if dtype not in PLAIN:
        raise ValueError(f"{dtype.label} is not a plain floating-point type")
    # equal values are mostly one object, so that a look at each object once is enough to see that nothing changes
    distinct = {id(value): value for value in graph.values.values()}
    if not any(_changes(value.dtype, dtype) or value.elements is not None for value in distinct.values()):
        return graph
    memo: dict[int, Value] = {}
    values = {name: _value(value, dtype, memo) for name, value in graph.values.items()}
    if not memo:
        return graph
    return replace(
        graph,
        graph=_graph(graph.graph, dtype),
        values=values,
        bodies={key: as_precision(body, dtype) for key, body in graph.bodies.items()},
    )


def _changes(found: DataType | None, dtype: DataType) -> bool:
    return found in PLAIN and found is not dtype


def _value(value: Value, dtype: DataType, memo: dict[int, Value]) -> Value:
    inner = value.elements
    if not _changes(value.dtype, dtype) and inner is None:
        return value
    known = memo.get(id(value))
    if known is None:
        known = replace(
            value,
            dtype=dtype if _changes(value.dtype, dtype) else value.dtype,
            elements=None if inner is None else tuple(_value(item, dtype, memo) for item in inner),
        )
        memo[id(value)] = known
    return known


def _graph(graph: Graph, dtype: DataType) -> Graph:
    def declared(item: Declared) -> Declared:
        return replace(item, dtype=dtype) if _changes(item.dtype, dtype) else item

    def initializer(item: Initializer) -> Initializer:
        return replace(item, dtype=dtype) if _changes(item.dtype, dtype) else item

    return replace(
        graph,
        inputs=tuple(map(declared, graph.inputs)),
        outputs=tuple(map(declared, graph.outputs)),
        initializers={name: initializer(item) for name, item in graph.initializers.items()},
        declared={name: declared(item) for name, item in graph.declared.items()},
    )


def stored_precision(source: InferredGraph | Model) -> DataType:
    """The plain float type, or float64, that most bytes of weights are stored as; without any, that of the inputs; else
    float32."""
    graph = source.graph
    for found in (_weights(graph), ((item.dtype, 1) for item in graph.inputs)):
        total: Counter[DataType] = Counter()
        for dtype, size in found:
            if dtype is not None and (dtype in PLAIN or dtype is DataType.FLOAT64):
                total[dtype] += size
        if total:
            return total.most_common(1)[0][0]
    return DataType.FLOAT32


def _weights(graph: Graph) -> Iterable[tuple[DataType, int]]:
    return ((item.dtype, item.byte_count) for item in graph.initializers.values())
