"""The run backwards as a compiler runs it: pointwise kernels that follow each other through a gradient become one.

What ``torch.compile`` does to the graph of the run backwards: chains of pointwise operations, and those before and
behind the row kernels of softmax and normalizations, are one generated kernel each, which writes only the gradients
that others read; a copy into another order is a matter of where such a kernel writes. Products, convolutions and what
goes through indices stay kernels of libraries. A gradient is read once, by the node that made its value, so that a
chain can only be broken by a kernel of a library that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from neusight_onnx.backward.steps import Step
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Elementwise, Kernel, Movement, NodeWork, Normalization, Reduction, Softmax, TensorSpec


@dataclass(slots=True, eq=False)
class _Group:
    """A generated kernel in the making. ``core``: the row kernel in it. ``buffers``: gradients that it could write."""

    work: NodeWork
    operations: list[str] = field(default_factory=list)
    reads: dict[str, TensorSpec] = field(default_factory=dict)
    buffers: list[int] = field(default_factory=list)
    origins: dict[tuple[str, str], None] = field(default_factory=dict)
    core: Softmax | Normalization | None = None


@dataclass(slots=True)
class _Fusing:
    """Buffers by number: ``specs``, the group that makes it (None: it is there), how many values still wait for it."""

    graph: InferredGraph
    specs: list[TensorSpec] = field(default_factory=list)
    makers: list[_Group | None] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    open: dict[_Group, None] = field(default_factory=dict)
    fresh: set[int] = field(default_factory=set)
    done: list[NodeWork] = field(default_factory=list)

    def new(self, spec: TensorSpec, maker: _Group | None) -> int:
        self.specs.append(spec)
        self.makers.append(maker)
        self.waiting.append(1)
        if maker is not None:
            maker.buffers.append(len(self.specs) - 1)
        return len(self.specs) - 1

    def spec(self, name: str) -> TensorSpec | None:
        value = self.graph.values.get(name)
        if value is None or value.shape is None or value.dtype is None or value.element_count == 1:
            return None
        return TensorSpec(dtype=value.dtype, shape=value.shape)

    def launch(self, group: _Group) -> None:
        """Emits a group's kernel; it writes what somebody still waits for."""
        if group not in self.open:
            return
        del self.open[group]
        written = [buffer for buffer in group.buffers if self.waiting[buffer] > 0]
        for buffer in group.buffers:
            self.makers[buffer] = None
        self.fresh.update(written)
        if not written:
            return
        first, *others = (self.specs[buffer] for buffer in written)
        kernel: Kernel
        if group.core is None:
            kernel = Elementwise(
                operations=tuple(group.operations),
                inputs=tuple(group.reads.values()),
                output=first,
                extra_outputs=tuple(others),
                generated=True,
            )
        else:
            kernel = replace(
                group.core,
                fused=(*group.core.fused, *group.operations),
                extra_inputs=(*group.core.extra_inputs, *group.reads.values()),
                extra_outputs=tuple(others),
            )
        self.done.append(replace(group.work, kernels=(kernel,), free=None, origins=tuple(group.origins)))

    def flush(self) -> None:
        for group in list(self.open):
            self.launch(group)

    def need(self, buffer: int) -> None:
        """Makes sure that a buffer is written."""
        maker = self.makers[buffer]
        if maker is not None:
            self.launch(maker)

    def start(self, step: Step) -> _Group:
        group = _Group(work=step.work)
        self.open[group] = None
        return group

    def joined(self, step: Step, arrived: Sequence[int]) -> _Group:
        """The group that a pointwise step goes on with: that of its gradient, or a new one that reads it."""
        makers = {self.makers[buffer] for buffer in arrived}
        group = next(iter(makers)) if len(makers) == 1 else None
        if group is None:
            group = self.start(step)
            for buffer in arrived:
                self.need(buffer)
                group.reads[f"\0{buffer}"] = self.specs[buffer]
        group.origins.update(dict.fromkeys(step.work.origins))
        return group


def fused_backward(
    steps: Sequence[Step], graph: InferredGraph, ahead: Callable[[Step], Sequence[NodeWork]]
) -> Iterator[NodeWork]:
    """The works of the run backwards, in order. ``ahead``: what runs right before a step."""
    state = _Fusing(graph=graph)
    for step in steps:
        before = ahead(step)
        if before:
            state.flush()
            state.done += before
        _fuse(step, state)
    state.flush()
    yield from state.done


def _fuse(step: Step, state: _Fusing) -> None:
    arrived = list(dict.fromkeys(state.places[name] for name in step.reads if name in state.places))
    added = sum(made.added for made in step.makes)
    kernels = step.work.kernels
    main = kernels[: len(kernels) - added] if added else kernels
    made = _made(step, main, arrived, state)
    for name in step.reads:
        if name in state.places:
            state.waiting[state.places[name]] -= 1
    for item in step.makes:
        buffer = made[item.name]
        if not item.added:
            state.places[item.name] = buffer
            continue
        before = state.places[item.name]
        state.places[item.name] = _sum(step, before, buffer, state)


def _sum(step: Step, before: int, buffer: int, state: _Fusing) -> int:
    """A gradient is added to one that is there: by the group that makes one of both, if nobody needed that yet."""
    maker = state.makers[before]
    if maker is None:
        maker = state.makers[buffer] or state.start(step)
    for place in (before, buffer):
        if state.makers[place] is not maker:
            state.need(place)
            maker.reads[f"\0{place}"] = state.specs[place]
        state.waiting[place] -= 1
    maker.origins.update(dict.fromkeys(step.work.origins))
    maker.operations.append("add")
    return state.new(state.specs[before], maker)


def _made(step: Step, main: Sequence[Kernel], arrived: Sequence[int], state: _Fusing) -> Mapping[str, int]:
    """The buffers of the gradients that a step makes, by value; what has to run for them has been put in order."""
    specs = {made.name: spec for made in step.makes if (spec := _spec(made.name, state)) is not None}
    rows = [kernel for kernel in main if isinstance(kernel, Softmax | Normalization)]
    sums = [kernel for kernel in main if isinstance(kernel, Reduction)]
    pointwise = [kernel for kernel in main if isinstance(kernel, Elementwise)]
    if not main:
        found: dict[str, int] = {}
        for made in step.makes:
            source = state.places.get(made.shares) if made.shares is not None else next(iter(arrived), None)
            if source is None:
                found[made.name] = state.new(specs[made.name], None)
                continue
            state.waiting[source] += 1
            found[made.name] = source
        return found
    if len(pointwise) == len(main):
        return _pointwise(step, pointwise, arrived, specs, state)
    if len(pointwise) + len(sums) == len(main) and pointwise:
        return _summed(step, pointwise, sums, arrived, specs, state)
    if len(rows) == 1 and isinstance(rows[0], Softmax):
        group = state.joined(step, arrived) if arrived else state.start(step)
        if group.core is not None or not arrived:
            for buffer in arrived:
                state.need(buffer)
            group = state.start(step) if group.core is not None else group
        _drop_read(group, arrived)
        group.core = rows[0]
        group.origins.update(dict.fromkeys(step.work.origins))
        return {name: state.new(spec, group) for name, spec in specs.items()}
    if len(rows) == 1 and len(arrived) == 1 and sums and isinstance(rows[0], Normalization):
        maker = state.makers[arrived[0]]
        if rows[0].method == "batch" and maker is not None and maker.core is None and state.waiting[arrived[0]] == 1:
            return _computed_twice(step, maker, arrived[0], rows[0], main, specs, state)
    for buffer in arrived:
        state.need(buffer)
    if len(rows) == 1:
        others = tuple(kernel for kernel in main if kernel is not rows[0] and not _is_copy(kernel))
        if others:
            state.done.append(replace(step.work, kernels=others))
        group = state.start(step)
        group.core = rows[0]
        group.origins.update(dict.fromkeys(step.work.origins))
        whole = max(specs.values(), key=lambda spec: spec.element_count, default=None)
        return {name: state.new(spec, group if spec is whole else None) for name, spec in specs.items()}
    written_so = state.fresh.issuperset(arrived)
    left = tuple(kernel for kernel in main if not (written_so and _is_copy(kernel)))
    if left:
        state.done.append(replace(step.work, kernels=left))
    return {name: state.new(spec, None) for name, spec in specs.items()}


def _pointwise(
    step: Step,
    kernels: Sequence[Elementwise],
    arrived: Sequence[int],
    specs: Mapping[str, TensorSpec],
    state: _Fusing,
) -> Mapping[str, int]:
    group = state.joined(step, arrived)
    group.operations += [name for kernel in kernels for name in kernel.operations]
    for name in step.saved:
        spec = state.spec(name)
        if spec is not None:
            group.reads[name] = spec
    return {name: state.new(spec, group) for name, spec in specs.items()}


def _summed(
    step: Step,
    pointwise: Sequence[Elementwise],
    sums: Sequence[Reduction],
    arrived: Sequence[int],
    specs: Mapping[str, TensorSpec],
    state: _Fusing,
) -> Mapping[str, int]:
    """Operands that were broadcast: their sums read the gradient and compute what is summed themselves."""
    for buffer in arrived:
        state.need(buffer)
    saved = tuple(spec for name in step.saved if (spec := state.spec(name)) is not None)
    operations = tuple(name for kernel in pointwise for name in kernel.operations)
    turned = tuple(replace(kernel, fused=operations, extra_inputs=saved) for kernel in sums)
    state.done.append(replace(step.work, kernels=turned))
    small = {kernel.output.element_count for kernel in sums}
    full = {name: spec for name, spec in specs.items() if spec.element_count not in small}
    found = {name: state.new(spec, None) for name, spec in specs.items() if name not in full}
    return {**found, **(_pointwise(step, pointwise[:1], arrived, full, state) if full else {})}


def _computed_twice(
    step: Step,
    group: _Group,
    arrived: int,
    norm: Normalization,
    main: Sequence[Kernel],
    specs: Mapping[str, TensorSpec],
    state: _Fusing,
) -> Mapping[str, int]:
    """A batch normalization whose gradient is pointwise work (a Relu's): its sums and its pass both compute that.

    So TorchInductor writes it: both read what the pointwise work reads, and nobody writes its result.
    """
    gradient = state.specs[arrived]
    reads, operations = tuple(group.reads.values()), tuple(group.operations)

    def without(inputs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        place = next(place for place, spec in enumerate(inputs) if spec.element_count == gradient.element_count)
        return (*inputs[:place], *inputs[place + 1 :])

    before: list[Kernel] = []
    for kernel in main:
        if isinstance(kernel, Reduction) and kernel.extra_inputs:
            inputs = (*without(kernel.extra_inputs), *reads)
            before.append(replace(kernel, fused=(*operations, *kernel.fused), extra_inputs=inputs))
        elif kernel is not norm and not _is_copy(kernel):
            before.append(kernel)
    state.done.append(replace(step.work, kernels=tuple(before)))
    group.core = replace(norm, extra_inputs=without(norm.extra_inputs))
    group.work = step.work
    group.origins.update(dict.fromkeys(step.work.origins))
    whole = max(specs.values(), key=lambda spec: spec.element_count, default=None)
    return {name: state.new(spec, group if spec is whole else None) for name, spec in specs.items()}


def _drop_read(group: _Group, arrived: Sequence[int]) -> None:
    """A row kernel reads its gradient by itself: one read of that size is not counted again."""
    for key in [f"\0{buffer}" for buffer in arrived] + [key for key in group.reads if key.startswith("\0")]:
        if group.reads.pop(key, None) is not None:
            return


def _is_copy(kernel: Kernel) -> bool:
    return isinstance(kernel, Movement) and kernel.operation == "copy"


def _spec(name: str, state: _Fusing) -> TensorSpec | None:
    value = state.graph.values.get(name)
    if value is None or value.shape is None or value.dtype is None:
        return None
    return TensorSpec(dtype=value.dtype, shape=value.shape)
