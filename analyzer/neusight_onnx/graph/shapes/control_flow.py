"""If, Loop, Scan, SequenceMap: their bodies are inferred with what flows in, and see the values around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError
from neusight_onnx.graph.model import Array, Graph, InferredGraph, TripCount, Value
from neusight_onnx.graph.shapes.context import NodeContext, UnknownShape
from neusight_onnx.graph.shapes.registry import rule
from neusight_onnx.graph.shapes.sequence import greatest, sequence_of
from neusight_onnx.graph.wire import shown

_I64 = DataType.INT64
_EAGER_NODES = 5_000
_UNROLLED_NODES = 20_000
"""Node inferences (body nodes x trips) up to which a loop is unrolled at once, or because nothing else is exact.

Both are a budget of time: an inference takes some 10 us, so these are 50 ms and 0.2 s.
"""

_MAX_TRIPS = 1 << 31
"""A maximum trip count from here on is an exporter's way to say "no maximum"."""


def _known(value: Value | None) -> Array | None:
    """The content of a value if it is exact."""
    return None if value is None or value.data_low is not None else value.data


def _scalar(value: Value | None) -> int | None:
    data = _known(value)
    return None if data is None or data.size != 1 else int(data.ravel()[0])


def _outputs(body: InferredGraph) -> list[Value]:
    unknown = Value(dtype=None, shape=None, unknown_because=body.graph.name)
    return [body.values.get(output.name, unknown) for output in body.graph.outputs]


def _node_count(graph: Graph) -> int:
    """Nodes of a graph and of the bodies in it."""
    count = 0
    pending = [graph]
    while pending:
        current = pending.pop()
        count += len(current.nodes)
        for node in current.nodes:
            for attribute in node.attributes.values():
                if isinstance(attribute, Graph):
                    pending.append(attribute)
                elif isinstance(attribute, tuple):
                    pending.extend(item for item in attribute if isinstance(item, Graph))
    return count


# --- If ---------------------------------------------------------------------------------------------------------------


@rule("If", intervals=True)
def _if(ctx: NodeContext) -> Sequence[Value]:
    """The branch that is taken, if the condition is known or the sizes fit only one; else the larger of both."""
    node = ctx.node
    condition = _scalar(ctx.inputs[0] if ctx.inputs else None)
    results = {}
    faults = {}
    for attribute, branch in (("then_branch", True), ("else_branch", False)):
        taken = condition is None or bool(condition) is branch
        before = ctx.session.faults()
        body = ctx.session.infer_body(
            node,
            attribute,
            ctx.graph_attribute(attribute),
            {},
            certain=taken and condition is not None,
            taken=taken,
        )
        outputs = _outputs(body)
        if len(outputs) < len(node.outputs):
            raise ctx.error(f"its {attribute} has {len(outputs)} outputs, the node {len(node.outputs)}")
        results[branch] = outputs
        faults[branch] = ctx.session.faults() - before
    if condition is None and (faults[True] == 0) != (faults[False] == 0):
        # a model that runs takes the branch that accepts its sizes
        refused, fitting = ("then", False) if faults[True] else ("else", True)
        ctx.session.drop_body(node, f"{refused}_branch", faults[not fitting])
        ctx.session.assume(
            f"If '{node.name}': its {refused}-branch does not accept these sizes, so the other one is taken"
        )
        condition = int(fitting)
    if condition is not None:
        return [_not_constant(value, ctx) for value in results[bool(condition)]]
    return [
        _either(ctx, name, then, otherwise)
        for name, then, otherwise in zip(node.outputs, results[True], results[False], strict=False)
    ]


def _not_constant(value: Value, ctx: NodeContext) -> Value:
    return replace(value, is_constant=False) if value.is_constant and not ctx.constant else value


def _either(ctx: NodeContext, name: str, then: Value, otherwise: Value) -> Value:
    """What comes out of one branch or the other."""
    if then.kind != otherwise.kind or then.kind != "tensor":
        members = [*(then.elements or ()), *(otherwise.elements or ())]
        if then.kind == "sequence" and members:
            return replace(greatest(members), kind="sequence", elements=None)
        return replace(then, is_constant=False)
    if then.shape is None or otherwise.shape is None:
        known = otherwise if then.shape is None else then
        if known.shape is None:
            return replace(known, is_constant=False)
        ctx.session.assume(f"If '{name}': only one branch's shape is known, it stands for both")
        return replace(
            known, data=None, data_low=None, is_bound=True, shape_low=(0,) * len(known.shape), is_constant=False
        )
    if then.shape == otherwise.shape and not then.is_bound and not otherwise.is_bound:
        if then.data is not None and otherwise.data is not None:
            return _joined_content(then, otherwise)
        return replace(then, data=None, data_low=None, is_constant=False)
    ctx.session.assume(
        f"If '{name}': its condition depends on data, so its shape is the larger of {list(then.shape)} and "
        f"{list(otherwise.shape)}"
    )
    if len(then.shape) == len(otherwise.shape):
        return replace(greatest([then, otherwise]), is_constant=False)
    larger = then if then.element_count >= otherwise.element_count else otherwise
    assert larger.shape is not None
    return Value(dtype=larger.dtype, shape=larger.shape, is_bound=True, shape_low=(0,) * len(larger.shape))


def _joined_content(then: Value, otherwise: Value) -> Value:
    assert then.data is not None
    assert otherwise.data is not None
    highs = (then.data, otherwise.data)
    lows = (
        then.data if then.data_low is None else then.data_low,
        otherwise.data if otherwise.data_low is None else otherwise.data_low,
    )
    if all(np.array_equal(item, highs[0]) for item in (*highs, *lows)):
        return replace(then, is_constant=False)
    if then.dtype is None or not (then.dtype.is_integer or then.dtype is DataType.BOOL):
        return replace(then, data=None, data_low=None, is_constant=False)
    return replace(then, data=np.maximum(*highs), data_low=np.minimum(*lows), is_constant=False)


# --- Loop -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What came of running a loop's body for all its trips: shapes only, of course.

    ``scans`` holds, for each scan output, the greatest of the slices. ``is_certain``: the condition stayed known;
    ``is_ended``: it is known to have ended the loop. ``bodies``: each trip, if they were followed one by one.
    """

    trips: int
    carried: list[Value]
    scans: list[Value]
    is_certain: bool
    is_ended: bool = False
    bodies: tuple[InferredGraph, ...] = ()


@rule("Loop", intervals=True)
def _loop(ctx: NodeContext) -> Sequence[Value]:
    """maximum trips, condition, carried values -> carried values, and scan outputs with a dimension for the trips."""
    node, session = ctx.node, ctx.session
    graph = ctx.graph_attribute("body")
    # what is carried changes from trip to trip, also where the first trip's is a constant
    initial = [replace(_given(ctx, index), is_constant=False) for index in range(2, len(ctx.inputs))]
    if len(graph.inputs) != len(initial) + 2 or len(graph.outputs) <= len(initial):
        raise ctx.error(
            f"its body has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs for {len(initial)} carried "
            "values"
        )
    limit = ctx.inputs[0] if ctx.has(0) else None
    most = None if limit is None or limit.data is None else int(limit.data.ravel()[0])
    start = _scalar(ctx.inputs[1]) if ctx.has(1) else 1
    told = session.trip_count(node.name)
    if told is not None and limit is not None and limit.data_low is None and most is not None and told > max(most, 0):
        raise BindingError(
            f"--trip-count {shown(node.name)}={told}: this Loop runs at most {max(most, 0)} times by its maximum trip "
            "count; give that or fewer"
        )
    body = _Body(ctx=ctx, graph=graph, attribute="body", certain=told != 0 and start != 0 and most != 0)
    is_exact = True
    if told is not None:
        run = _run_loop(body, initial, told, obeys_condition=False)
        source = "--trip-count"
    elif start == 0:
        run = _run_loop(body, initial, 0, obeys_condition=True)
        source = "its condition is false from the start"
    elif limit is not None and most is not None and most < _MAX_TRIPS:
        run = _run_loop(body, initial, max(most, 0), obeys_condition=True)
        source = "constant" if limit.is_constant else "computed from shapes"
        is_exact = run.is_certain and limit.data_low is None and start is not None
        if is_exact and run.trips < most:
            source = "its condition, evaluated"
    else:
        counted = _count_by_condition(body, initial)
        source = "its condition, evaluated"
        if counted is not None:
            run = counted
            is_exact = run.is_certain and limit is None and start is not None
        else:
            run = _unroll(body, initial, 1, obeys_condition=False)
            source = "assumed"
            unlimited = f" (its maximum of {most} stands for none)" if most is not None and most >= _MAX_TRIPS else ""
            session.assume(
                f"Loop '{node.name}' is taken to run once: how often depends on data{unlimited}; "
                f"--trip-count {node.name}=N changes it"
            )
    if not is_exact:
        session.assume(
            f"Loop '{node.name}' runs at most {run.trips} times: when it ends depends on data; "
            f"--trip-count {node.name}=N changes it"
        )
        source = f"at most, {source}"
    session.keep_trip_count(node, TripCount(count=run.trips, source=source))
    if run.bodies:
        _keep_middle(body, run.bodies)
    carried = (
        run.carried
        if is_exact
        else [_may_stop_early(first, last) for first, last in zip(initial, run.carried, strict=True)]
    )
    scans = [_stacked(value, run.trips, run.trips if is_exact else 0, 0) for value in run.scans]
    return [_not_constant(value, ctx) for value in (*carried, *scans)]


def _given(ctx: NodeContext, index: int) -> Value:
    value = ctx.inputs[index]
    return Value(dtype=None, shape=None, kind="optional", elements=()) if value is None else value


def _may_stop_early(first: Value, last: Value) -> Value:
    """The loop may end after any trip: from the initial to the last size."""
    if first.kind != "tensor" or last.kind != "tensor":
        return last
    if first.shape == last.shape and not last.is_bound:
        return replace(last, data=None, data_low=None)
    joined = greatest([first, last])
    return last if joined.shape is None else joined


def _stacked(value: Value, trips: int, low_trips: int, axis: int) -> Value:
    """Slices of one shape put side by side along a new axis."""
    if value.shape is None:
        return value
    place = axis if axis >= 0 else axis + len(value.shape) + 1
    shape = (*value.shape[:place], trips, *value.shape[place:])
    floor = (value.shape_low or (0,) * len(value.shape)) if value.is_bound else value.shape
    low = (*floor[:place], low_trips, *floor[place:])
    is_bound = low != shape
    return Value(dtype=value.dtype, shape=shape, is_bound=is_bound, shape_low=low if is_bound else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """A loop's body, ready to be inferred for one trip or for any."""

    ctx: NodeContext
    graph: Graph
    attribute: str
    certain: bool

    def infer(self, counter: Value, condition: Value, carried: Sequence[Value]) -> InferredGraph:
        names = [declared.name for declared in self.graph.inputs]
        inputs = dict(zip(names, (counter, condition, *carried), strict=True))
        return self.ctx.session.infer_body(self.ctx.node, self.attribute, self.graph, inputs, certain=self.certain)


_TRUE = Value(dtype=DataType.BOOL, shape=(), data=np.array(True))


def _counter(trip: int) -> Value:
    return Value(dtype=_I64, shape=(), data=np.array(trip, np.int64))


def _any_counter(trips: int) -> Value:
    """The counter in any trip, as an interval."""
    return Value(dtype=_I64, shape=(), data=np.array(max(trips - 1, 0), np.int64), data_low=np.array(0, np.int64))


def _run_loop(body: _Body, initial: list[Value], trips: int, *, obeys_condition: bool) -> _Run:
    """At most so many trips; fewer if ``obeys_condition`` and the condition is known to end it."""
    if trips == 0:
        outputs = _outputs(body.infer(_counter(0), _TRUE, initial))
        return _Run(trips=0, carried=initial, scans=outputs[len(initial) + 1 :], is_certain=True)
    count = max(_node_count(body.graph), 1)
    affords = body.ctx.session.affords
    if not affords(3 * count):
        return _first_trip(body, initial, trips)
    if trips * count <= _EAGER_NODES and affords(trips * count):
        return _unroll(body, initial, trips, obeys_condition=obeys_condition)
    steady = _steady(body, initial, trips)
    if steady is not None:
        return steady
    if trips * count <= _UNROLLED_NODES and affords(trips * count):
        return _unroll(body, initial, trips, obeys_condition=obeys_condition)
    return _extrapolated(body, initial, trips)


def _first_trip(body: _Body, initial: list[Value], trips: int) -> _Run:
    """Loops within loops beyond our budget: the first trip stands for all."""
    ctx = body.ctx
    ctx.session.assume(
        f"{ctx.node.op_type} '{ctx.node.name}' is one of too many loops to follow: its first trip stands for all"
    )
    condition, *outputs = _outputs(body.infer(_any_counter(trips), _TRUE, initial))
    carried = [replace(value, data=None, data_low=None) for value in outputs[: len(initial)]]
    return _Run(trips=trips, carried=carried, scans=outputs[len(initial) :], is_certain=_scalar(condition) == 1)


def _count_by_condition(body: _Body, initial: list[Value]) -> _Run | None:
    """No maximum is known: trip by trip until the condition is known to end it; None if it doesn't within reason."""
    count = max(_node_count(body.graph), 1)
    allowed = max(_EAGER_NODES // count, 1)
    if not body.ctx.session.affords(allowed * count):
        return None
    condition, *_ = _outputs(body.infer(_counter(0), _TRUE, initial))
    if condition is _TRUE or (condition.is_constant and _scalar(condition) == 1):
        return None  # handed through, or a constant: it never ends the loop
    run = _unroll(body, initial, allowed, obeys_condition=True)
    return run if run.is_ended else None


def _unroll(body: _Body, initial: list[Value], trips: int, *, obeys_condition: bool) -> _Run:
    """Trip by trip, each with what the one before hands on."""
    carried = initial
    slices: list[list[Value]] = []
    bodies: list[InferredGraph] = []
    is_certain = True
    is_ended = False
    for trip in range(trips):
        inferred = body.infer(_counter(trip), _TRUE, carried)
        bodies.append(inferred)
        condition, *outputs = _outputs(inferred)
        carried = outputs[: len(initial)]
        slices.append(outputs[len(initial) :])
        goes_on = _scalar(condition)
        if goes_on is None:
            is_certain = False
        elif goes_on == 0 and obeys_condition:
            is_ended = True
            break
    scans = [greatest(column) for column in zip(*slices, strict=True)]
    return _Run(
        trips=len(bodies),
        carried=carried,
        scans=scans,
        is_certain=is_certain,
        is_ended=is_ended,
        bodies=tuple(bodies),
    )


def _keep_middle(body: _Body, bodies: Sequence[InferredGraph]) -> None:
    """Record the body of the middle trip: where sizes grow from trip to trip, it stands for their average."""
    middle = bodies[len(bodies) // 2]
    ctx = body.ctx
    ctx.session.keep_body(ctx.node, body.attribute, middle)
    if len(bodies) > 1 and _sizes(bodies[0]) != _sizes(bodies[-1]):
        ctx.session.assume(
            f"{ctx.node.op_type} '{ctx.node.name}': sizes change from trip to trip; those of trip "
            f"{len(bodies) // 2 + 1} of {len(bodies)} stand for the average"
        )


def _sizes(body: InferredGraph) -> list[tuple[int, ...] | None]:
    return [
        body.values[name].shape if name in body.values else None
        for node in body.graph.nodes
        for name in node.outputs
        if name
    ]


def _steady(body: _Body, initial: list[Value], trips: int) -> _Run | None:
    """One inference for every trip, with the counter as an interval; None if sizes may change from trip to trip."""
    condition, *outputs = _outputs(body.infer(_counter(0), _TRUE, initial))
    after_one = outputs[: len(initial)]
    entering = []
    for before, after in zip(initial, after_one, strict=True):
        if before.shape != after.shape or before.kind != "tensor" or after.is_bound:
            return None
        is_same = before.data is None or (
            after.data is not None and before.data_low is None and np.array_equal(before.data, after.data)
        )
        entering.append(before if is_same else replace(before, data=None, data_low=None))
    inferred = body.infer(_any_counter(trips), _TRUE, entering)
    condition, *outputs = _outputs(inferred)
    if any(value.shape is None or value.is_bound for value in outputs):
        return None
    if any(out.shape != into.shape for out, into in zip(outputs, entering, strict=False)):
        return None
    goes_on = _scalar(condition)
    return _Run(
        trips=trips,
        carried=[replace(value, data=None, data_low=None) for value in outputs[: len(initial)]],
        scans=outputs[len(initial) :],
        is_certain=goes_on == 1,
    )


def _extrapolated(body: _Body, initial: list[Value], trips: int) -> _Run:
    """Too many trips to unroll, and sizes change: what one trip adds, each trip is taken to add."""
    ctx = body.ctx
    condition, *first = _outputs(body.infer(_counter(0), _TRUE, initial))
    one = first[: len(initial)]
    _, *second = _outputs(body.infer(_counter(1), _TRUE, one))
    two = second[: len(initial)]

    def after(count: int) -> list[Value]:
        result = []
        for start, x, y in zip(initial, one, two, strict=True):
            if start.shape is None or x.shape is None or y.shape is None or len(x.shape) != len(y.shape):
                result.append(y)
                continue
            sizes = tuple(a + max(b - a, 0) * max(count - 1, 0) for a, b in zip(x.shape, y.shape, strict=True))
            low = tuple(min(sizes_) for sizes_ in zip(x.shape, sizes, strict=True))
            result.append(
                Value(dtype=x.dtype, shape=sizes, is_bound=sizes != low, shape_low=low if sizes != low else None)
            )
        return result

    ctx.session.assume(
        f"{ctx.node.op_type} '{ctx.node.name}': sizes change from trip to trip, too many ({trips}) to follow each; "
        "every trip is taken to add what the second adds"
    )
    middle = _any_counter(trips)
    inferred = body.infer(middle, _TRUE, [replace(v, is_bound=False, shape_low=None) for v in after(trips // 2)])
    ctx.session.keep_body(ctx.node, body.attribute, inferred)
    outputs = _outputs(inferred)
    scans = [
        greatest([value, other])
        for value, other in zip(outputs[len(initial) + 1 :], first[len(initial) :], strict=True)
    ]
    return _Run(trips=trips, carried=after(trips), scans=scans, is_certain=_scalar(condition) == 1)


# --- Scan -------------------------------------------------------------------------------------------------------------


@rule("Scan", intervals=True)
def _scan(ctx: NodeContext) -> Sequence[Value]:
    """states and scanned inputs -> last states and stacked outputs; opset 8 has a batch before each scanned axis."""
    graph = ctx.graph_attribute("body")
    scanned_count = ctx.integer("num_scan_inputs", 1)
    has_batch = ctx.node.version < 9
    values = [_given(ctx, index) for index in range(1 if has_batch else 0, len(ctx.inputs))]
    state_count = len(values) - scanned_count
    if state_count < 0 or len(graph.inputs) != len(values) or len(graph.outputs) < state_count:
        raise ctx.error(f"its body has {len(graph.inputs)} inputs for {len(values)} values")
    states, scanned = values[:state_count], values[state_count:]
    axes = ctx.integer_list("scan_input_axes") or (0,) * scanned_count
    batch: int | None = None
    if has_batch:
        axes = (0,) * scanned_count
        if values and values[0].shape:
            batch = values[0].shape[0]
        states = [_without(value, 0) for value in states]
        scanned = [_without(value, 0) for value in scanned]

    trips: int | None = None
    low_trips: int | None = None
    slices = []
    for value, axis in zip(scanned, axes, strict=True):
        if value.shape is None:
            raise UnknownShape(value.unknown_because)
        place = ctx.axis(axis, len(value.shape))
        size = value.shape[place]
        low = (value.shape_low or (0,) * len(value.shape))[place] if value.is_bound else size
        if trips is not None and trips != size and not value.is_bound:
            ctx.require(False, f"its scanned inputs differ in length: {ctx.shown()}")
        trips = size if trips is None else max(trips, size)
        low_trips = low if low_trips is None else max(low_trips, low)
        slices.append(_without(value, place))
    trips, low_trips = trips or 0, low_trips or 0
    source = f"the length of '{next((name for name in ctx.node.inputs[-scanned_count:]), '')}'"
    ctx.session.keep_trip_count(ctx.node, TripCount(count=trips, source=source))

    names = [declared.name for declared in graph.inputs]
    before = states
    entering = [replace(value, data=None, data_low=None) for value in states]
    outputs: list[Value] = []
    for _ in range(3):  # states keep their shape by the standard; a first trip may still change them
        inputs: Mapping[str, Value] = dict(zip(names, (*entering, *slices), strict=True))
        outputs = _outputs(ctx.session.infer_body(ctx.node, "body", graph, inputs, certain=trips > 0))
        after = outputs[:state_count]
        steady = all(a.shape == b.shape or a.shape is None for a, b in zip(after, entering, strict=True))
        if steady or not ctx.session.affords(len(graph.nodes)):
            break
        entering = [replace(value, data=None, data_low=None) for value in after]
    output_axes = ctx.integer_list("scan_output_axes") or (0,) * (len(outputs) - state_count)
    last = before if trips == 0 else [replace(value, data=None, data_low=None) for value in outputs[:state_count]]
    stacked = [
        _stacked(value, trips, low_trips, axis) for value, axis in zip(outputs[state_count:], output_axes, strict=True)
    ]
    results = [*last, *stacked]
    if batch is not None:
        results = [_with(value, 0, batch) for value in results]
    return [_not_constant(value, ctx) for value in results]


def _without(value: Value, place: int) -> Value:
    """One slice along an axis."""
    if value.shape is None:
        return value
    low = None if value.shape_low is None else value.shape_low[:place] + value.shape_low[place + 1 :]
    shape = value.shape[:place] + value.shape[place + 1 :]
    is_bound = value.is_bound and low != shape
    return replace(value, shape=shape, data=None, data_low=None, is_bound=is_bound, shape_low=low if is_bound else None)


def _with(value: Value, place: int, size: int) -> Value:
    if value.shape is None:
        return value
    low = None if value.shape_low is None else (*value.shape_low[:place], size, *value.shape_low[place:])
    return replace(value, shape=(*value.shape[:place], size, *value.shape[place:]), shape_low=low, data=None)


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
        ctx.session.assume(f"SequenceMap '{ctx.node.name}' is taken to run once: its sequence's length is not known")
    ctx.session.keep_trip_count(ctx.node, trips)
    columns: list[list[Value]] = [[] for _ in ctx.node.outputs]
    seen: dict[tuple[object, ...], list[Value]] = {}
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
            body = ctx.session.infer_body(ctx.node, "body", graph, dict(zip(names, inputs, strict=True)), certain=True)
            seen[key] = _outputs(body)
        for column, value in zip(columns, seen[key], strict=False):
            column.append(value)
    if members is None:
        return [replace(column[0], kind="sequence", elements=None, data=None) for column in columns]
    return [sequence_of(column) for column in columns]
