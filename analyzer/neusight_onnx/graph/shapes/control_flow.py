"""If, Scan, SequenceMap: their bodies are inferred with what flows in, and see the values around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from neusight_onnx.errors import BindingError, shown
from neusight_onnx.graph.model import InferredGraph, TripCount, Value
from neusight_onnx.graph.names import option
from neusight_onnx.graph.shapes.bodies import any_of, keep_trips, known_integer, outputs_of, stacked, without_content
from neusight_onnx.graph.shapes.context import NodeContext, UnknownShape
from neusight_onnx.graph.shapes.loop import IDLE, given
from neusight_onnx.graph.shapes.registry import rule
from neusight_onnx.graph.shapes.sequence import sequence_of

NOT_TAKEN = "its branch is not taken"

# --- If ---------------------------------------------------------------------------------------------------------------


@rule("If", intervals=True)
def _if(ctx: NodeContext) -> Sequence[Value]:
    """The branch that is taken, if the condition is known or the sizes fit only one; else what either may give."""
    node, session = ctx.node, ctx.session
    choice = ctx.inputs[0] if ctx.inputs else None
    if choice is not None and choice.shape is not None and not choice.is_bound:
        ctx.require(choice.element_count == 1, f"its condition has the shape {list(choice.shape)}, not one element")
    condition = known_integer(choice)
    results: dict[str, list[Value]] = {}
    faults: dict[str, int] = {}
    for attribute in ("then_branch", "else_branch"):
        graph = ctx.graph_attribute(attribute)
        if len(graph.outputs) < len(node.outputs):
            raise ctx.error(f"its {attribute} has {len(graph.outputs)} outputs, the node {len(node.outputs)}")
        if condition is not None and bool(condition) is not (attribute == "then_branch"):
            session.leave_out(node, attribute, NOT_TAKEN)
            continue
        before = session.faults()
        results[attribute] = outputs_of(session.infer_body(node, attribute, graph, {}, certain=condition is not None))
        faults[attribute] = session.faults() - before
    if len(results) == 2 and min(faults.values()) == 0 < max(faults.values()):
        # a model that runs takes the branch that accepts its sizes
        refused = max(faults, key=faults.__getitem__)
        session.leave_out(node, refused, "its branch does not accept these sizes", faults[refused])
        session.assume(
            f"If '{shown(node.name)}': its {refused.partition('_')[0]}-branch does not accept these sizes, so the "
            "other one is taken"
        )
        del results[refused]
    if len(results) == 1:
        return [_not_constant(value, ctx) for value in next(iter(results.values()))]
    decider = session.deciding_input(node, node.inputs[0]) if node.inputs and node.inputs[0] else None
    return [
        _either(ctx, name, then, otherwise, decider)
        for name, then, otherwise in zip(node.outputs, results["then_branch"], results["else_branch"], strict=False)
    ]


def _not_constant(value: Value, ctx: NodeContext) -> Value:
    return replace(value, is_constant=False) if value.is_constant and not ctx.constant else value


def _either(ctx: NodeContext, name: str, then: Value, otherwise: Value, decider: str | None) -> Value:
    """What comes out of one branch or the other."""
    if then.kind == otherwise.kind == "tensor" and (then.shape is None or otherwise.shape is None):
        known = otherwise if then.shape is None else then
        if known.shape is None:
            return replace(known, is_constant=False)
        size = "x".join(map(str, known.shape)) or "scalar"
        ctx.session.assume(
            f"If '{shown(name)}': only one branch's shape is known, {list(known.shape)}; the cost behind it is that of "
            f"this one, {option('--shape', name, size)} with another size changes it"
        )
        unknown = replace(known, shape=None, data=None, data_low=None, unknown_because=ctx.node.name)
        if ctx.session.guesses(name, known.shape):
            unknown = replace(known, data=None, data_low=None)
        return replace(unknown, is_constant=False, is_bound=False, shape_low=None)
    joined = any_of([then, otherwise])
    if then.kind == otherwise.kind == "tensor" and then.shape != otherwise.shape:
        assert then.shape is not None
        assert otherwise.shape is not None
        hint = "" if decider is None else f"; {option('--value', decider, '...')} decides it"
        ctx.session.assume(
            f"If '{shown(name)}': its condition depends on data, so its shape is the larger of {list(then.shape)} and "
            f"{list(otherwise.shape)}{hint}"
        )
    return joined


# --- Scan -------------------------------------------------------------------------------------------------------------


@rule("Scan", intervals=True)
def _scan(ctx: NodeContext) -> Sequence[Value]:
    """states and scanned inputs -> last states and stacked outputs; opset 8 has a batch before each scanned axis.

    In opset 8 the body runs for each step of each batch element, and sees neither dimension.
    """
    graph = ctx.graph_attribute("body")
    scanned_count = ctx.integer("num_scan_inputs", 1)
    has_batch = ctx.node.version < 9
    values = [given(ctx, index) for index in range(1 if has_batch else 0, len(ctx.inputs))]
    state_count = len(values) - scanned_count
    if state_count < 0 or scanned_count < 1 or len(graph.inputs) != len(values) or len(graph.outputs) < state_count:
        raise ctx.error(f"its body has {len(graph.inputs)} inputs for {len(values)} values")
    batch: tuple[int, int] | None = None
    if has_batch:
        if values[0].shape:
            batch = (_least(values[0])[0], values[0].shape[0])
        values = [_without(value, 0) for value in values]
    states, scanned = values[:state_count], values[state_count:]
    axes = () if has_batch else ctx.integer_list("scan_input_axes") or ()
    low_trips, trips, slices = _scanned(ctx, scanned, axes or (0,) * scanned_count)
    low_batch, batch_size = batch or (1, 1)
    source = f"the length of '{ctx.node.inputs[-scanned_count]}'"
    if has_batch:
        source = f"the batch times {source}"
    ctx.session.keep_trip_count(ctx.node, TripCount(count=trips * batch_size, source=source))

    names = [declared.name for declared in graph.inputs]
    entering = [without_content(value) for value in states]
    outputs: list[Value] = []
    for _ in range(3):  # states keep their shape by the standard; a first trip may still change them
        inputs: Mapping[str, Value] = dict(zip(names, (*entering, *slices), strict=True))
        certain = trips * batch_size > 0
        outputs = outputs_of(ctx.session.infer_body(ctx.node, "body", graph, inputs, certain=certain))
        after = outputs[:state_count]
        steady = all(a.shape == b.shape or a.shape is None for a, b in zip(after, entering, strict=True))
        if steady or not ctx.session.affords(len(graph.nodes)):
            break
        entering = [without_content(value) for value in after]
    if trips * batch_size == 0:
        ctx.session.leave_out(ctx.node, "body", IDLE)
    output_axes = () if has_batch else ctx.integer_list("scan_output_axes") or ()
    output_axes = output_axes or (0,) * (len(outputs) - state_count)
    last = states if trips == 0 else [without_content(value) for value in outputs[:state_count]]
    results = [
        *last,
        *(
            stacked(value, trips, low_trips, axis)
            for value, axis in zip(outputs[state_count:], output_axes, strict=True)
        ),
    ]
    if batch is not None:
        results = [stacked(value, batch_size, low_batch, 0) for value in results]
    return [_not_constant(value, ctx) for value in results]


def _least(value: Value) -> tuple[int, ...]:
    """The least that each dimension can be."""
    assert value.shape is not None
    return (value.shape_low or (0,) * len(value.shape)) if value.is_bound else value.shape


def _scanned(ctx: NodeContext, scanned: Sequence[Value], axes: Sequence[int]) -> tuple[int, int, list[Value]]:
    """(least, most) steps, and a slice of each scanned value."""
    low_trips = trips = None
    slices = []
    for value, axis in zip(scanned, axes, strict=True):
        if value.shape is None:
            raise UnknownShape(value.unknown_because)
        place = ctx.axis(axis, len(value.shape))
        size = value.shape[place]
        low = _least(value)[place]
        if trips is not None and low_trips is not None:
            # all have the same length: it lies within each one's bounds
            if max(low, low_trips) > min(size, trips):
                ctx.require(False, f"its scanned inputs differ in length: {ctx.shown()}")
            low, size = max(low, low_trips), min(size, trips)
        low_trips, trips = low, max(size, low)
        slices.append(_without(value, place))
    told = ctx.session.trip_count(ctx.node.name)
    least, most = low_trips or 0, trips or 0
    if told is not None:
        if not least <= told <= most:
            length = f"{most}" if least == most else f"between {least} and {most}"
            raise BindingError(
                f"{option('--trip-count', ctx.node.name, told)}: this Scan runs once a slice, and the length of what "
                f"it scans is {length}; bind that instead"
            )
        least = most = told
    return least, most, slices


def _without(value: Value, place: int) -> Value:
    """One slice along an axis."""
    if value.shape is None:
        return value
    low = None if value.shape_low is None else value.shape_low[:place] + value.shape_low[place + 1 :]
    shape = value.shape[:place] + value.shape[place + 1 :]
    is_bound = value.is_bound and low != shape
    return replace(value, shape=shape, data=None, data_low=None, is_bound=is_bound, shape_low=low if is_bound else None)


# --- SequenceMap ------------------------------------------------------------------------------------------------------


@rule("SequenceMap", intervals=True)
def _sequence_map(ctx: NodeContext) -> Sequence[Value]:
    """The body for each member of the first sequence; other sequences go along, tensors are the same for all."""
    graph = ctx.graph_attribute("body")
    names = [declared.name for declared in graph.inputs]
    values = [ctx.value(index) for index in range(len(ctx.inputs))]
    if len(names) != len(values):
        raise ctx.error(f"its body has {len(names)} inputs for {len(values)} values")
    members = values[0].elements
    count = 1 if members is None else len(members)
    trips = TripCount(count=count, source="assumed" if members is None else "the length of its sequence")
    if members is None:
        ctx.session.assume(
            f"SequenceMap '{shown(ctx.node.name)}' is taken to run once: its sequence's length is not known"
        )
    ctx.session.keep_trip_count(ctx.node, trips)
    columns: list[list[Value]] = [[] for _ in ctx.node.outputs]
    seen: dict[tuple[object, ...], InferredGraph] = {}
    bodies: list[InferredGraph] = []
    for index in range(count):
        inputs = [
            (
                value.elements[index]
                if value.elements is not None and index < len(value.elements)
                else replace(value, kind="tensor", elements=None)
            )
            if value.kind == "sequence"
            else value
            for value in values
        ]
        key = tuple((value.dtype, value.shape, value.is_bound, id(value.data)) for value in inputs)
        if key not in seen and seen and not ctx.session.affords(len(graph.nodes)):
            raise UnknownShape(None)
        if key not in seen:
            seen[key] = ctx.session.infer_body(
                ctx.node, "body", graph, dict(zip(names, inputs, strict=True)), certain=True
            )
        bodies.append(seen[key])
        for column, value in zip(columns, outputs_of(seen[key]), strict=False):
            column.append(value)
    if bodies:
        keep_trips(ctx, "body", bodies)
    else:
        ctx.session.leave_out(ctx.node, "body", IDLE)
    if members is None:
        return [replace(sequence_of(column), length_low=0) for column in columns]
    if values[0].length_low is not None and count:
        ctx.session.assume(
            f"SequenceMap '{shown(ctx.node.name)}' runs at most {count} times, once a member of its sequence"
        )
        return [replace(sequence_of(column), length_low=values[0].length_low) for column in columns]
    return [sequence_of(column) for column in columns]
