"""What is alive when, against a simulation that looks at every value again at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Declared, Graph, InferredGraph, Initializer, Node, Value
from neusight_onnx.kernels import Elementwise, Movement, NodeWork, TensorSpec
from neusight_onnx.memory.liveness import Liveness, live_tensors
from neusight_onnx.memory.policy import POLICIES

COPY = Movement(operation="copy", dtype=DataType.INT8, shape=(1,), read=1, written=1)
SPEC = TensorSpec(dtype=DataType.INT8, shape=(1,))
ADD = Elementwise(operations=("add",), inputs=(SPEC, SPEC), output=SPEC)


@dataclass(frozen=True)
class Step:
    """One node: reads values by number, makes one value. ``kind``: "copy", "add" (may work in place), "view" (of its
    first operand), "inner" (computed by its readers, takes no memory)."""

    kind: str
    reads: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Plan:
    """Values 0 ... inputs - 1 are inputs, then one value a step; ``weights`` are inputs that are weights instead."""

    input_sizes: tuple[int, ...]
    weights: frozenset[int]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    input_sizes = tuple(draw(st.lists(st.integers(1, 50), min_size=1, max_size=4)))
    sizes = list(input_sizes)
    steps = []
    for _ in range(draw(st.integers(1, 14))):
        reads = tuple(draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3, unique=True)))
        kind = draw(st.sampled_from(["copy", "add", "add", "view", "inner"]))
        # few sizes, so that operands of the same size are common
        size = sizes[reads[0]] if kind != "copy" else draw(st.sampled_from([1, 7, 20, 20, 50]))
        sizes.append(size)
        steps.append(Step(kind, reads, size))
    outputs = tuple(draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3, unique=True)))
    weights = frozenset(draw(st.lists(st.integers(1, max(len(input_sizes) - 1, 1)), max_size=1)))
    return Plan(input_sizes, frozenset(at for at in weights if at < len(input_sizes)), tuple(steps), outputs)


def simulated(plan: Plan, *, in_place: bool) -> tuple[int, int, list[int]]:
    """(peak, peak where results go in place, bytes alive after each step) by definition, in quadratic time.

    A piece of memory is named after the value it was made for. It is alive at a step if it was made by then and some
    value in it is an output, or is read at that step or later; an input always is.
    """
    count = len(plan.input_sizes)
    behind: list[frozenset[int]] = [frozenset([at]) for at in range(count)]
    sizes = dict(enumerate(plan.input_sizes))
    made: dict[int, int] = dict.fromkeys(range(count), -1)

    def last_use(piece: int) -> int:
        """The last step that reads a value in a piece; the number of steps for outputs."""
        if piece < count or any(piece in behind[at] for at in plan.outputs if at < len(behind)):
            return len(plan.steps)
        reads = [
            index
            for index, step in enumerate(plan.steps)
            if any(at < len(behind) and piece in behind[at] for at in step.reads)
        ]
        return max(reads, default=made[piece])

    def later(piece: int, index: int) -> bool:
        """Whether anything needs a piece after step ``index``, its future views among them (all values are known)."""
        return last_use(piece) > index

    # where each value lies, step by step; a piece is taken over only if nothing needs it later, which views decide:
    # so find the views first, as if nothing were in place, and take over afterwards
    for index, step in enumerate(plan.steps):
        if step.kind == "view":
            behind.append(behind[step.reads[0]])
        elif step.kind == "inner":
            behind.append(frozenset().union(*(behind[at] for at in step.reads)))
        else:
            piece = count + index
            behind.append(frozenset([piece]))
            sizes[piece] = step.size
            made[piece] = index
    savings = [0] * len(plan.steps)
    for index, step in enumerate(plan.steps):
        if step.kind != "add":
            continue
        candidates = [piece for at in step.reads for piece in behind[at]]
        fitting = [p for p in candidates if p >= count and sizes[p] == step.size and not later(p, index)]
        if not fitting:
            continue
        savings[index] = step.size
        if in_place:
            own, taken = count + index, fitting[0]
            behind = [frozenset(taken if piece == own else piece for piece in pieces) for pieces in behind]
            savings[index] = 0
    pieces = {piece for place in behind for piece in place} | set(range(count))
    real = [piece for piece in pieces if piece not in plan.weights]
    during = [
        sum(sizes[piece] for piece in real if made[piece] <= index <= last_use(piece))
        for index in range(len(plan.steps))
    ]
    after = [
        sum(sizes[piece] for piece in real if made[piece] <= index < last_use(piece))
        for index in range(len(plan.steps))
    ]
    start = sum(sizes[piece] for piece in range(count) if piece not in plan.weights)
    low = max(start, *(bytes_ - saving for bytes_, saving in zip(during, savings, strict=True)))
    return max(start, *during), low, after


def walked(plan: Plan, runtime: str) -> Liveness:
    count = len(plan.input_sizes)
    names = [f"v{at}" for at in range(count + len(plan.steps))]
    sizes = [*plan.input_sizes, *(step.size for step in plan.steps)]
    nodes = [
        Node(
            name=f"n{index}",
            op_type="Op",
            inputs=tuple(names[at] for at in step.reads),
            outputs=(names[count + index],),
        )
        for index, step in enumerate(plan.steps)
    ]
    works = {}
    for index, step in enumerate(plan.steps):
        inner = step.kind == "inner"
        works[f"n{index}"] = NodeWork(
            node=f"n{index}",
            op_type="Op",
            kernels={"copy": (COPY,), "add": (ADD,)}.get(step.kind, ()),
            free="merged" if inner else "a view" if step.kind == "view" else None,
            merged_into=f"n{len(plan.steps) - 1}" if inner else None,
        )
    graph = InferredGraph(
        graph=Graph(
            name="g",
            nodes=tuple(nodes),
            inputs=tuple(Declared(name=names[at]) for at in range(count) if at not in plan.weights),
            outputs=tuple(Declared(name=names[at]) for at in plan.outputs),
            initializers={
                names[at]: Initializer(name=names[at], dtype=DataType.INT8, shape=(sizes[at],)) for at in plan.weights
            },
            declared={},
        ),
        values={name: Value(dtype=DataType.INT8, shape=(size,)) for name, size in zip(names, sizes, strict=True)},
    )
    return live_tensors(graph, works, POLICIES[runtime], timeline=True)


@settings(max_examples=400, deadline=None)
@given(plans())
def test_as_a_simulation_by_definition_has_it(plan: Plan) -> None:
    peak, low, after = simulated(plan, in_place=False)
    found = walked(plan, "eager")
    assert found.peak_bytes == peak
    assert found.low_peak_bytes == low
    assert found.timeline is not None
    assert [point.live_bytes for point in found.timeline] == after
    assert max(point.peak_bytes for point in found.timeline) <= peak
    alive = found.alive_at_peak()
    assert sum(tensor.byte_count for tensor in alive) == peak
    assert [tensor.byte_count for tensor in alive] == sorted((t.byte_count for t in alive), reverse=True)


@settings(max_examples=400, deadline=None)
@given(plans())
def test_in_place_as_a_simulation_by_definition_has_it(plan: Plan) -> None:
    peak, _, after = simulated(plan, in_place=True)
    found = walked(plan, "compiled")
    assert found.peak_bytes == peak
    assert found.timeline is not None
    assert [point.live_bytes for point in found.timeline] == after


def chain(*steps: tuple[str, Sequence[int], int], outputs: tuple[int, ...] = (-1,), x: int = 10) -> Plan:
    made = tuple(Step(kind, tuple(reads), size) for kind, reads, size in steps)
    return Plan((x,), frozenset(), made, tuple(at % (len(made) + 1) for at in outputs))


@pytest.mark.parametrize(
    ("plan", "eager", "compiled"),
    [
        # x 10, a, b: b may have the place of a
        pytest.param(chain(("copy", [0], 20), ("add", [1], 20)), 50, 30, id="in place"),
        # a is an input's place: never
        pytest.param(chain(("add", [0], 10), ("copy", [1], 5)), 25, 25, id="an input is the caller's"),
        # x 10, a 20, b 20 while a is read later
        pytest.param(chain(("copy", [0], 20), ("add", [1], 20), ("copy", [1, 2], 1)), 51, 51, id="read again"),
        # a view of a is read later
        pytest.param(
            chain(("copy", [0], 20), ("view", [1], 20), ("add", [1], 20), ("copy", [2, 3], 1)), 51, 51, id="a view"
        ),
        # a is inside the kernel that reads it: x must live until then
        pytest.param(
            chain(("copy", [0], 20), ("inner", [1], 20), ("copy", [0], 7), ("copy", [2, 3], 1)), 38, 38, id="inner"
        ),
        # other sizes can't go in place
        pytest.param(chain(("copy", [0], 20), ("copy", [1], 5), ("add", [2], 5)), 35, 35, id="another size"),
    ],
)
def test_by_hand(plan: Plan, eager: int, compiled: int) -> None:
    assert (walked(plan, "eager").peak_bytes, walked(plan, "compiled").peak_bytes) == (eager, compiled)
    assert (simulated(plan, in_place=False)[0], simulated(plan, in_place=True)[0]) == (eager, compiled)
