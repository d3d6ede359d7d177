"""What the user says of a size that data decide, carried to the node that decides it.

How many boxes a detector keeps has a name at its outputs (``num_dets``) or at a value behind the suppression. To size
that value alone would leave everything before it at the greatest that is possible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.graph.bindings import Bindings, bind_inputs
from neusight_onnx.graph.dimension_roles import DEFAULT_LENGTHS, places_of
from neusight_onnx.graph.model import InferredGraph, Model, Node, Value
from neusight_onnx.graph.shapes.engine import walk_model
from neusight_onnx.graph.shapes.memo import Memo
from neusight_onnx.graph.shapes.notices import computed_sizes

_COUNTING = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators of ONNX whose output is as long as their input's content says."""

_TOLD = "TopK"
"""An operator whose output is as long as an input says, which may be made of what another node counts."""

MOST_TRIED = 8
"""Counting nodes behind one size that are tried, each by a walk over the graph: the nearest ones."""


def with_told_counts(model: Model, bindings: Bindings, memo: Memo) -> Bindings:
    """``bindings`` with the shape of the counting node's output for each told size that it decides.

    Told are a ``--dim`` whose symbol no input has, and a ``--shape`` for a value behind a counting node. The nearest
    node whose count gives just that size is taken; where none does, nothing is added. Model and bindings are judged by
    :func:`~neusight_onnx.graph.shapes.bind_and_infer`, which follows: what is wrong with them is not said here.
    """
    graph = model.graph
    inputs = {declared.name for declared in graph.inputs}
    makers = {output: node for node in graph.nodes for output in node.outputs if output}
    symbols = bindings.dims.keys() - places_of(graph.inputs)
    shapes = {
        name: shape
        for name, shape in bindings.shapes.items()
        if name not in inputs and name in makers and makers[name].op_type not in _COUNTING
    }
    if not (symbols or shapes) or not any(_counts(node) or _is_told(node) for node in graph.nodes):
        return bindings
    rest = replace(bindings, shapes={name: shape for name, shape in bindings.shapes.items() if name not in shapes})
    bounds = _walked(model, rest, memo)
    if bounds is None:
        return bindings
    told = dict(bindings.shapes)
    for symbol, sizes in computed_sizes(graph, symbols, bounds.values, bounds=True).items():
        size = bindings.dims[symbol]
        for output, shape in _possible(makers, bounds.values, tuple(sizes.values()), size):
            found = _walked(model, replace(rest, shapes={**rest.shapes, output: shape}), memo)
            if found is not None and size in computed_sizes(graph, {symbol}, found.values).get(symbol, ()):
                told[output] = shape
                break
    for name, wanted in shapes.items():
        value = bounds.values.get(name)
        place = None if value is None else _free_axis(value)
        if place is None or len(wanted) <= place:
            continue
        for output, shape in _possible(makers, bounds.values, (name,), wanted[place]):
            found = _walked(model, replace(rest, shapes={**rest.shapes, output: shape}), memo)
            if found is not None and found.values[name].shape == wanted and not found.values[name].is_bound:
                told[output] = shape
                break
    return bindings if told == bindings.shapes else replace(bindings, shapes=told)


def _counts(node: Node) -> bool:
    return node.op_type in _COUNTING and not node.domain


def _is_told(node: Node) -> bool:
    return node.op_type == _TOLD and not node.domain


def _walked(model: Model, bindings: Bindings, memo: Memo) -> InferredGraph | None:
    with suppress(ModelError, BindingError):
        bound = bind_inputs(model, bindings, DEFAULT_LENGTHS[0])
        return walk_model(model, bindings, bound, memo=memo)[1]
    return None


def _free_axis(value: Value) -> int | None:
    """The one axis of a value that data decide; None where there are none or several."""
    if not value.is_bound or value.shape is None or value.shape_low is None:
        return None
    free = [axis for axis, (low, high) in enumerate(zip(value.shape_low, value.shape, strict=True)) if low != high]
    return free[0] if len(free) == 1 else None


def _possible(
    makers: Mapping[str, Node], values: Mapping[str, Value], names: tuple[str, ...], size: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The outputs of the nearest counting nodes that ``names`` are made from, and their shape with ``size``; behind
    them those of nodes that are told a count, which decide it where none of the others does."""
    seen = set(names)
    told: list[tuple[str, tuple[int, ...]]] = []
    pending = deque(names)
    tried = 0
    while pending and tried < MOST_TRIED:
        name = pending.popleft()
        node = makers.get(name)
        if node is None:
            continue
        if _counts(node) or _is_told(node):
            value = values.get(name)
            place = None if value is None else _free_axis(value)
            if value is not None and value.shape is not None and place is not None and size <= value.shape[place]:
                found = name, (*value.shape[:place], size, *value.shape[place + 1 :])
                if _is_told(node):
                    told.append(found)
                else:
                    tried += 1
                    yield found
        for source in node.inputs:
            if source and source not in seen:
                seen.add(source)
                pending.append(source)
    yield from told[:MOST_TRIED]
