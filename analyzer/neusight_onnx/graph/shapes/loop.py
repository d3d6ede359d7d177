"""Loop: trip by trip where its sizes change or its condition decides, one inference for all trips where they don't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError, shown
from neusight_onnx.graph.model import Graph, InferredGraph, TripCount, Value
from neusight_onnx.graph.names import option
from neusight_onnx.graph.shapes.bodies import (
    any_of,
    keep_groups,
    keep_trips,
    known_array,
    known_integer,
    node_count,
    outputs_of,
    stacked,
    without_content,
)
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.registry import rule
from neusight_onnx.graph.shapes.sequence import greatest

_I64 = DataType.INT64
_EAGER_NODES = 5_000
_UNROLLED_NODES = 20_000
"""Node inferences (body nodes x trips) up to which a loop is unrolled at once, or because nothing else is exact.

Both are a budget of time: an inference takes some 10 us, so these are 50 ms and 0.2 s.
"""

_STRETCHES = 16
"""Of a loop that is too long to unroll: each has the sizes of its middle. What grows linearly is summed exactly, what
grows as the square of the trip within 1 / (4 x 16^2), a thousandth."""

_MAX_TRIPS = 1 << 31
"""A maximum trip count from here on is an exporter's way to say "no maximum"."""

IDLE = "its loop runs 0 times"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What came of running a loop's body for all its trips: shapes only, of course.

    ``history``: the carried values after each trip, or only those at the end, if no trip differs or they were not
    followed. ``scans`` holds, for each scan output, the greatest of the slices. ``sure``: so many trips happen if the
    loop starts and its maximum allows; the condition of the last of them isn't known. ``is_ended``: the condition is
    known to have ended the loop. ``bodies``: each trip, if they were followed one by one.
    """

    trips: int
    history: list[list[Value]]
    scans: list[Value]
    sure: int
    is_ended: bool = False
    bodies: tuple[InferredGraph, ...] = ()


@rule("Loop", intervals=True)
def _loop(ctx: NodeContext) -> Sequence[Value]:
    """maximum trips, condition, carried values -> carried values, and scan outputs with a dimension for the trips."""
    node, session = ctx.node, ctx.session
    graph = ctx.graph_attribute("body")
    # what is carried changes from trip to trip, also where the first trip's is a constant
    initial = [replace(given(ctx, index), is_constant=False) for index in range(2, len(ctx.inputs))]
    if len(graph.inputs) != len(initial) + 2 or len(graph.outputs) <= len(initial):
        raise ctx.error(
            f"its body has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs for {len(initial)} carried "
            "values"
        )
    limit = ctx.inputs[0] if ctx.has(0) else None
    least, most = _limits(limit)
    start = known_integer(ctx.inputs[1]) if ctx.has(1) else 1
    told = session.trip_count(node.name)
    if told:
        _check_told(ctx, told, most if least == most else None, start)
    body = _Body(ctx=ctx, graph=graph, attribute="body", certain=told != 0 and start != 0 and most != 0)
    low: int | None = None
    if told is not None:
        run = _run_loop(body, initial, told, obeys_condition=False)
        low, source = told, "--trip-count"
    elif start == 0 or most == 0:
        run = _run_loop(body, initial, 0, obeys_condition=True)
        source = "its condition is false from the start" if start == 0 else "its maximum is 0"
    elif limit is not None and most is not None and most < _MAX_TRIPS:
        run = _run_loop(body, initial, most, obeys_condition=True)
        source = "constant" if limit.is_constant else "computed from shapes"
        if run.is_ended:
            source = "its condition, evaluated"
    elif (counted := _count_by_condition(body, initial)) is not None:
        run, source = counted, "its condition, evaluated"
    else:
        return _unknown_trips(body, initial, most, starts=limit is None and start == 1, starts_if_allowed=start == 1)
    if low is None:
        low = 0 if start is None else min(run.sure, run.trips if limit is None else least)
    if run.bodies:
        keep_trips(ctx, "body", run.bodies)
    if run.trips == 0:
        session.leave_out(node, "body", IDLE)
    if low < run.trips:
        session.assume(
            f"Loop '{shown(node.name)}' runs at most {run.trips} times: when it ends depends on data; "
            f"{_hint(ctx)} changes it"
        )
        source = f"at most, {source}"
    session.keep_trip_count(node, TripCount(count=run.trips, source=source))
    possible = [*([initial] if low == 0 else []), *run.history[max(low, 1) - 1 :]] if low < run.trips else []
    carried = [any_of(column) for column in zip(*possible, strict=True)] if possible else run.history[-1]
    return [*carried, *(stacked(value, run.trips, low, 0) for value in run.scans)]


def given(ctx: NodeContext, index: int) -> Value:
    """An input; one that is absent is an empty optional."""
    value = ctx.inputs[index]
    return Value(dtype=None, shape=None, kind="optional", elements=()) if value is None else value


def _limits(limit: Value | None) -> tuple[int, int | None]:
    """(least, most) of the maximum trip count; 0 and None where it isn't known."""
    if limit is None or limit.data is None or limit.data.size != 1:
        return 0, None
    low = limit.data if limit.data_low is None else limit.data_low
    return max(int(low.ravel()[0]), 0), max(int(limit.data.ravel()[0]), 0)


def _check_told(ctx: NodeContext, told: int, most: int | None, start: int | None) -> None:
    """A trip count from the user must be possible."""
    said = option("--trip-count", ctx.node.name, told)
    if start == 0:
        raise BindingError(f"{said}: this Loop never runs, its condition is false from the start; leave it out")
    if most is not None and told > most:
        raise BindingError(f"{said}: this Loop runs at most {most} times by its maximum trip count; give that or fewer")


def _hint(ctx: NodeContext) -> str:
    """The options that say how often the loop runs."""
    said = option("--trip-count", ctx.node.name, "N")
    unknown = [index for index in (0, 1) if ctx.has(index) and known_array(ctx.inputs[index]) is None]
    if not unknown:
        return said
    deciders = [ctx.session.deciding_input(ctx.node, ctx.node.inputs[index]) for index in unknown]
    if None in deciders:
        return said
    values = [option("--value", name, "N") for name in dict.fromkeys(deciders) if name is not None]
    return f"{said} or {' '.join(values)}"


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
_SOME_TRIP = Value(dtype=_I64, shape=())


def _counter(trip: int) -> Value:
    return Value(dtype=_I64, shape=(), data=np.array(trip, np.int64))


def _any_counter(trips: int) -> Value:
    """The counter in any trip, as an interval."""
    return Value(dtype=_I64, shape=(), data=np.array(max(trips - 1, 0), np.int64), data_low=np.array(0, np.int64))


def _run_loop(body: _Body, initial: list[Value], trips: int, *, obeys_condition: bool) -> _Run:
    """At most so many trips; fewer if ``obeys_condition`` and the condition is known to end it."""
    if trips == 0:
        outputs = outputs_of(body.infer(_counter(0), _TRUE, initial))
        return _Run(trips=0, history=[initial], scans=outputs[len(initial) + 1 :], sure=0)
    count = max(node_count(body.graph), 1)
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
        f"{ctx.node.op_type} '{shown(ctx.node.name)}' is one of too many loops to follow: its first trip stands for all"
    )
    condition, *outputs = outputs_of(body.infer(_any_counter(trips), _TRUE, initial))
    carried = [without_content(value) for value in outputs[: len(initial)]]
    return _Run(trips=trips, history=[carried], scans=outputs[len(initial) :], sure=_sure(condition, trips))


def _sure(condition: Value, trips: int) -> int:
    """How many trips surely happen if the condition is this after each."""
    return trips if known_integer(condition) == 1 else 1


def _count_by_condition(body: _Body, initial: list[Value]) -> _Run | None:
    """No maximum is known: trip by trip until the condition is known to end it; None if it doesn't within reason."""
    count = max(node_count(body.graph), 1)
    allowed = max(_EAGER_NODES // count, 1)
    if not body.ctx.session.affords(allowed * count):
        return None
    condition, *_ = outputs_of(body.infer(_counter(0), _TRUE, initial))
    if condition is _TRUE or (condition.is_constant and known_integer(condition) == 1):
        return None  # handed through, or a constant: it never ends the loop
    run = _unroll(body, initial, allowed, obeys_condition=True)
    return run if run.is_ended else None


def _unroll(body: _Body, initial: list[Value], trips: int, *, obeys_condition: bool) -> _Run:
    """Trip by trip, each with what the one before hands on."""
    carried = initial
    history: list[list[Value]] = []
    slices: list[list[Value]] = []
    bodies: list[InferredGraph] = []
    sure = 0
    is_certain = True
    is_ended = False
    for trip in range(trips):
        inferred = body.infer(_counter(trip), _TRUE, carried)
        bodies.append(inferred)
        condition, *outputs = outputs_of(inferred)
        # a copy of a constant that the trip after this one may replace
        carried = [replace(v, is_constant=False) if v.is_constant else v for v in outputs[: len(initial)]]
        history.append(carried)
        slices.append(outputs[len(initial) :])
        sure += is_certain
        goes_on = known_integer(condition)
        if goes_on is None:
            is_certain = False
        elif goes_on == 0 and obeys_condition:
            is_ended = True
            break
    scans = [greatest(column) for column in zip(*slices, strict=True)]
    return _Run(trips=len(bodies), history=history, scans=scans, sure=sure, is_ended=is_ended, bodies=tuple(bodies))


def _is_same(before: Value, after: Value) -> bool:
    """Whether a carried value has exactly the content that it had before the trip, as far as that is known."""
    return after.data is not None and before.data is not None and known_array(any_of([before, after])) is not None


def _steady(body: _Body, initial: list[Value], trips: int) -> _Run | None:
    """One inference for every trip, with the counter as an interval; None if sizes may change from trip to trip."""
    _, *outputs = outputs_of(body.infer(_counter(0), _TRUE, initial))
    entering = []
    for before, after in zip(initial, outputs[: len(initial)], strict=True):
        if before.shape != after.shape or before.kind != "tensor" or after.is_bound:
            return None
        entering.append(before if _is_same(before, after) else without_content(before))
    condition, *outputs = outputs_of(body.infer(_any_counter(trips), _TRUE, entering))
    if any(value.shape is None or value.is_bound for value in outputs):
        return None
    if any(out.shape != into.shape for out, into in zip(outputs, entering, strict=False)):
        return None
    carried = [
        into if _is_same(into, out) else without_content(out) for into, out in zip(entering, outputs, strict=False)
    ]
    return _Run(trips=trips, history=[carried], scans=outputs[len(initial) :], sure=_sure(condition, trips))


def _extrapolated(body: _Body, initial: list[Value], trips: int) -> _Run:
    """Too many trips to unroll, and sizes change: what one trip adds, each trip is taken to add."""
    ctx = body.ctx
    condition, *first = outputs_of(body.infer(_counter(0), _TRUE, initial))
    one = first[: len(initial)]
    _, *second = outputs_of(body.infer(_counter(1), _TRUE, one))
    two = second[: len(initial)]

    def after(count: int) -> list[Value]:
        result = []
        for start, x, y in zip(initial, one, two, strict=True):
            if start.shape is None or x.shape is None or y.shape is None or len(x.shape) != len(y.shape):
                result.append(without_content(y))
                continue
            sizes = tuple(a + max(b - a, 0) * max(count - 1, 0) for a, b in zip(x.shape, y.shape, strict=True))
            low = tuple(min(sizes_) for sizes_ in zip(x.shape, sizes, strict=True))
            result.append(
                Value(dtype=x.dtype, shape=sizes, is_bound=sizes != low, shape_low=low if sizes != low else None)
            )
        return result

    ctx.session.assume(
        f"{ctx.node.op_type} '{shown(ctx.node.name)}': sizes change from trip to trip, too many ({trips}) to follow "
        "each; every trip is taken to add what the second adds"
    )
    stretches = _STRETCHES if ctx.session.affords(_STRETCHES * node_count(body.graph)) else 1
    ends = [trips * index // stretches for index in range(stretches + 1)]
    groups = []
    for begin, end in pairwise(ends):
        middle = (begin + end) // 2
        entering = initial if middle == 0 else [replace(v, is_bound=False, shape_low=None) for v in after(middle)]
        groups.append((end - begin, body.infer(_any_counter(trips), _TRUE, entering)))
    keep_groups(ctx, body.attribute, groups)
    outputs = outputs_of(groups[-1][1])
    scans = [
        greatest([value, other])
        for value, other in zip(outputs[len(initial) + 1 :], first[len(initial) :], strict=True)
    ]
    return _Run(trips=trips, history=[after(trips)], scans=scans, sure=_sure(condition, trips))


def _unknown_trips(
    body: _Body, initial: list[Value], most: int | None, *, starts: bool, starts_if_allowed: bool
) -> list[Value]:
    """How often depends on data, and nothing bounds it: one trip is taken, and only what no trip changes is exact.

    What a trip changes lies between what it was and what one trip makes of it. More trips may make more of it, so this
    is no bound, which is said. ``starts``: there is a first trip for sure; ``starts_if_allowed``: if its maximum, of
    which ``most`` is too large for one that is meant, allows it.
    """
    ctx = body.ctx
    first = body.infer(_counter(0), _TRUE, initial)
    _, *once = outputs_of(first)
    entering = [
        before if _is_same(before, after) else without_content(after if starts else before)
        for before, after in zip(initial, once, strict=False)
    ]
    other = body.infer(_SOME_TRIP, _TRUE, entering)
    condition, *again = outputs_of(other)
    if _unknown_shapes(other) > _unknown_shapes(first):
        ctx.session.keep_bodies(ctx.node, body.attribute, [(1, first)])
    carried = [_changed_by_trips(*values) for values in zip(initial, once, entering, again, strict=False)]
    scans = [
        stacked(value if later.shape is None else any_of([value, later]), 1, 0, 0)
        for value, later in zip(once[len(initial) :], again[len(initial) :], strict=True)
    ]
    unlimited = f" (its maximum of {most:,} stands for none)" if most is not None else ""
    why = f"how often depends on data{unlimited}"
    if most is not None and starts_if_allowed and known_integer(condition) == 1:
        why = f"its condition never ends it, and {most:,} trips are taken to stand for no maximum"
    changes = any(value.is_bound or value.length_low is not None for value in (*carried, *scans))
    grows = "; what grows with every trip may be larger" if changes else ""
    ctx.session.assume(f"Loop '{shown(ctx.node.name)}' is taken to run once: {why}{grows}; {_hint(ctx)} changes it")
    ctx.session.keep_trip_count(ctx.node, TripCount(count=1, source="assumed"))
    return [*carried, *scans]


def _changed_by_trips(before: Value, once: Value, entering: Value, again: Value) -> Value:
    """What a carried value can be after any number of trips, as far as one trip from ``before`` and one from
    ``entering`` (which stands for any trip) tell."""
    keeps_shape = entering.kind == "tensor" and entering.shape is not None and again.shape == entering.shape
    if keeps_shape and not again.is_bound:
        if _is_same(entering, again):
            return entering
        if before.shape == once.shape == again.shape:
            return any_of([before, once]) if not _is_same(before, once) else any_of([before, once, again])
        return without_content(entering)
    known = [value for value in (before, once, again) if value.kind != "tensor" or value.shape is not None]
    if not known:
        return once
    if before.kind != "tensor":
        return any_of(known)
    joined = any_of(known)
    if joined.shape is None or joined.is_bound:
        return joined
    return replace(joined, data=None, data_low=None, is_bound=True, shape_low=(0,) * len(joined.shape))


def _unknown_shapes(body: InferredGraph) -> int:
    own = sum(body.values[name].shape is None for node in body.graph.nodes for name in node.outputs if name)
    return own + sum(map(_unknown_shapes, body.bodies.values()))
