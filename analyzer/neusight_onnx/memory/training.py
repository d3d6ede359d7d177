"""Which tensors are alive when in a step of training: the run forward, what it leaves behind, the run backwards.

Autograd keeps of each node what its gradient needs, and no more: those values stay until their gradient has been made.
Gradients of activations come and go; those of parameters stay until the optimizer has run, as its states always do.
Autocast's context ends with the loss: of its copies of weights those stay that a gradient needs, until it is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from neusight_onnx.backward import Trained
from neusight_onnx.backward.recompute import Segments
from neusight_onnx.backward.steps import Made, Step
from neusight_onnx.graph.model import InferredGraph, file_name, readable_name
from neusight_onnx.kernels import NodeWork
from neusight_onnx.memory.caches import CachePair
from neusight_onnx.memory.liveness import Liveness, end, run_nodes, started
from neusight_onnx.memory.policy import Policy
from neusight_onnx.memory.workspace import scratch_backwards
from neusight_onnx.report.model import MemoryPoint, SavedTensor

OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """``saved``: what the run forward leaves for the run backwards beside weights and inputs, each piece of memory
    once, at the node that needs it first, in the order of the run forward."""

    found: Liveness
    saved: tuple[SavedTensor, ...]


def training_tensors(
    graph: InferredGraph,
    works: Sequence[NodeWork],
    trained: Trained,
    policy: Policy,
    caches: Sequence[CachePair] = (),
    *,
    timeline: bool = False,
) -> TrainingMemory:
    """Walks ``graph``, whose nodes became ``works``, forward, then the steps of ``trained``, once each: linear in both.

    The loss's own memory is that of the first step.
    """
    segments = trained.segments
    plain = [step for step in trained.steps if step.work.node not in segments.place]
    kept = Counter(name for step in plain for name in step.saved)
    kept.update(name for segment in segments.all for name in segment.inputs)
    behind = {step.work.node: step.kept_bytes for step in plain if step.kept_bytes}
    forward = {work.node: work for work in works}
    walk = started(graph, forward, policy, caches, timeline=timeline, kept=kept, left_behind=behind)
    memory = trained.optimizer
    if memory.state_bytes:
        walk.allocate("states of the optimizer", memory.state_bytes, "optimizer", OPTIMIZER, extra_references=1)
    if memory.master_bytes:
        walk.allocate("master weights", memory.master_bytes, "optimizer", OPTIMIZER, extra_references=1)
    gradients = _Gradients(walk=walk, parameters=frozenset(parameter.name for parameter in trained.parameters))
    if trained.held:
        for parameter in trained.parameters:
            gradients.hold(parameter.name, parameter.spec.byte_count)
    run_nodes(graph, walk)
    first = trained.steps[0]
    if first.kept_bytes:
        walk.behind[first.work.node] = walk.allocate(
            first.work.node, first.kept_bytes, "saved", first.work.node, extra_references=1
        )
        walk.note_peak(first.work.node, 0, 0, 0)
    walk.leave_autocast()
    saved = (*_saved(plain, walk), *_kept_inputs(segments, walk))
    again = _Again(graph=graph, walk=walk, trained=trained)
    for index, step in enumerate(trained.steps):
        again.before(index)
        _backwards(step, walk, gradients)
        again.behind(index)
    if memory.temporary_bytes:
        scratch = walk.allocate("", memory.temporary_bytes, "workspace", OPTIMIZER, extra_references=1)
        walk.note_peak(OPTIMIZER, 0, 0, 0)
        walk.release(scratch)
    end(graph, walk)
    return TrainingMemory(found=walk, saved=saved)


@dataclass(slots=True, kw_only=True)
class _Gradients:
    """Storages of the gradients that exist, by value. A parameter's stays; ``held``: it was there before the run."""

    walk: Liveness
    parameters: frozenset[str]
    places: dict[str, int] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)

    def hold(self, name: str, byte_count: int) -> None:
        """A parameter's gradient that is there from the step before."""
        self.places[name] = self._new(name, byte_count, "gradient")
        self.held.add(name)

    def make(self, made: Made, node: str) -> int | None:
        """A gradient that a step makes; the storage of one that is only added to another, and gone then."""
        if made.added or made.name in self.held:
            return None if made.shares is not None else self._new(made.name, made.byte_count, "activation", node)
        before = None if made.shares is None else self.places.get(made.shares)
        if before is not None and made.name not in self.parameters:
            self.walk.references[before] += 1
            self.places[made.name] = before
        else:
            kind = "gradient" if made.name in self.parameters else "activation"
            self.places[made.name] = self._new(made.name, made.byte_count, kind, node)
        return None

    def drop(self, name: str) -> None:
        """The gradient of a value whose own node has used it."""
        if name not in self.parameters and name in self.places:
            self.walk.release(self.places.pop(name))

    def _new(self, name: str, byte_count: int, kind: str, node: str | None = None) -> int:
        return self.walk.allocate(f"gradient of {file_name(name)}", byte_count, kind, node, extra_references=1)


@dataclass(slots=True, kw_only=True)
class _Again:
    """Segments that run forward again: when, and what they keep then."""

    graph: InferredGraph
    walk: Liveness
    trained: Trained
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    steps: dict[int, list[Step]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ends: dict[int, int] = {}
        for index, step in enumerate(self.trained.steps):
            place = self.trained.segments.place.get(step.work.node)
            if place is not None:
                if place not in ends:
                    self.first[index] = place
                ends[place] = index
                self.steps.setdefault(place, []).append(step)
        self.last = {index: place for place, index in ends.items()}

    def before(self, index: int) -> None:
        """Runs a segment forward again, if this is the first of its steps."""
        place = self.first.get(index)
        if place is None:
            return
        walk, segment, steps = self.walk, self.trained.segments.all[place], self.steps[place]
        kept = Counter(name for step in steps for name in step.saved)
        walk.left_behind = {step.work.node: step.kept_bytes for step in steps if step.kept_bytes}
        made = [name for node in segment.nodes for name in node.outputs if name]
        results = {name: walk.places[name] for name in made if name in walk.results and name in walk.places}
        for name in made:
            walk.uses[name] = kept[name]
        own = frozenset(made)
        for name, count in kept.items():
            if name not in own:
                for storage in walk.places.get(name, ()):
                    walk.references[storage] += count
        graph = self.graph
        run_nodes(replace(graph, graph=replace(graph.graph, nodes=segment.nodes, outputs=())), walk)
        walk.leave_autocast()  # checkpoint enters a context of its own around what it runs again
        walk.places.update(results)

    def behind(self, index: int) -> None:
        """Lets a segment's inputs go, if this was the last of its steps."""
        place = self.last.get(index)
        if place is not None:
            for name in self.trained.segments.all[place].inputs:
                for storage in self.walk.places.get(name, ()):
                    self.walk.release(storage)


def _kept_inputs(segments: Segments, walk: Liveness) -> tuple[SavedTensor, ...]:
    """What is kept for the segments: each of their inputs, unless it is one of the model."""
    found: dict[int, SavedTensor] = {}
    for segment in segments.all:
        node = file_name(segment.nodes[0].name)
        for name in segment.inputs:
            for storage in walk.places.get(name, ()):
                size = walk.sizes[storage]
                if size and walk.kinds[storage] not in ("weight", "input", "cache"):
                    found.setdefault(storage, SavedTensor(node=node, name=file_name(name), byte_count=size))
    return tuple(found.values())


def _backwards(step: Step, walk: Liveness, gradients: _Gradients) -> None:
    """One step: its gradients and its scratch take memory, then what it needed goes."""
    node = step.work.node
    passing = [storage for made in step.makes if (storage := gradients.make(made, node)) is not None]
    scratch = scratch_backwards(step.work.kernels, [made.byte_count for made in step.makes if made.shares is None])
    if scratch.expected:
        passing.append(walk.allocate("", scratch.expected, "workspace", node, extra_references=1))
    walk.note_peak(node, 0, scratch.low - scratch.expected, scratch.high - scratch.expected)
    peak = walk.live_bytes
    for storage in passing:
        walk.release(storage)
    for name in step.reads:
        gradients.drop(name)
    for name in step.saved:
        for storage in walk.places.get(name, ()):
            walk.release(storage)
    if node in walk.behind:
        walk.release(walk.behind.pop(node))
    if walk.timeline is not None:
        point = MemoryPoint(node=f"{readable_name(node)} (backward)", live_bytes=walk.live_bytes, peak_bytes=peak)
        walk.timeline.append(point)


def _saved(steps: Sequence[Step], walk: Liveness) -> tuple[SavedTensor, ...]:
    found: list[SavedTensor] = []
    seen: set[int] = set()
    for step in reversed(steps):
        node = file_name(step.work.node)
        storages = [
            (storage, file_name(name))
            for name in step.saved
            for storage in walk.places.get(name, ())
            if walk.kinds[storage] not in ("weight", "input", "cache")
        ]
        if step.work.node in walk.behind:
            storages.append((walk.behind[step.work.node], ""))
        for storage, name in storages:
            if storage not in seen and walk.sizes[storage]:
                seen.add(storage)
                found.append(SavedTensor(node=file_name(node), name=name, byte_count=walk.sizes[storage]))
    return tuple(found)
