"""Which tensors are alive when: one walk over the nodes in the order in which they run.

A *storage* is a piece of memory; views share one. A value that a fused kernel keeps to itself has none: who reads it
reads what it is computed from, so that it stands for the storages behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.bodies import reads_of
from neusight_onnx.graph.model import Declared, InferredGraph, Node, Value, file_name, readable_name
from neusight_onnx.kernels import Elementwise, NodeWork, Softmax
from neusight_onnx.lowering.precision import KEPT_FOR_THE_RUN
from neusight_onnx.memory.caches import CachePair
from neusight_onnx.memory.order import demand_order
from neusight_onnx.memory.policy import Policy
from neusight_onnx.memory.workspace import NONE, scratch_of
from neusight_onnx.report.model import LiveTensor, MemoryPoint

_NO_VIEWS = frozenset({"Constant", "ConstantOfShape", "Range", "Shape", "Size", "SequenceEmpty", "SequenceLength"})
"""Operators that may be free but whose output is never the memory of their input."""

_TABLES = {
    "Gather": (0,),
    "GatherBlockQuantized": (0, 2, 3),
    "GatherElements": (0,),
    "GatherND": (0,),
    "EmbedLayerNormalization": (2, 3, 4),
    "QEmbedLayerNormalization": (2, 3, 4),
}
"""Inputs of which an operator reads the rows that it looks up."""

_IN_PLACE = (Elementwise, Softmax)
"""Kernels that read each element before they write at its place, so that both may be one (a row is read first)."""


@dataclass(slots=True, kw_only=True)
class Liveness:
    """What the walk found.

    Storages by number: ``names``, ``kinds`` (as in LiveTensor, or "weight"), ``sizes`` in bytes, ``makers`` (node or
    None). ``requests``: number + 1 where memory is taken, negative where it is given back, weights left out.
    ``peak_bytes``: the most bytes alive at once, scratch among them, reached after ``peak_place`` requests while
    ``peak_node`` ran. ``low_peak_bytes``: the same where results go in place, caches are shared and scratch is at its
    low end; ``high_peak_bytes``: where scratch is at its high end.
    ``unknown_count``: values of unknown shape, which count nothing.
    ``read_weights``: storages that some kernel reads, ``whole_weights`` those of which it isn't rows of a table.
    In training, ``left_behind`` are the bytes that a node leaves for the run backwards beside its results, and
    ``behind`` the storages that they have got. ``cached``: storages that autocast's cache holds.
    ``runs``: after how many requests which node ran, ``points``: the same of each point of the timeline, at its most
    and after it; both where memory is handed over, which settles only at the end what was free meanwhile.
    """

    works: Mapping[str, NodeWork]
    policy: Policy
    shared: Mapping[str, CachePair]
    results: frozenset[str]
    timeline: list[MemoryPoint] | None = None
    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    makers: list[str | None] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    references: list[int] = field(default_factory=list)
    places: dict[str, tuple[int, ...]] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    held: dict[str, list[int]] = field(default_factory=dict)
    read_weights: set[int] = field(default_factory=set)
    whole_weights: set[int] = field(default_factory=set)
    live_bytes: int = 0
    saved_bytes: int = 0
    peak_bytes: int = 0
    low_peak_bytes: int = 0
    high_peak_bytes: int = 0
    peak_place: int = 0
    peak_node: str | None = None
    unknown_count: int = 0
    left_of_past: dict[str, int] = field(default_factory=dict)
    dead: dict[tuple[object, object], list[tuple[int, int]]] = field(default_factory=dict)
    shapes: dict[int, tuple[object, object]] = field(default_factory=dict)
    runs: list[tuple[int, str | None]] = field(default_factory=list)
    points: list[tuple[int, int]] = field(default_factory=list)
    left_behind: Mapping[str, int] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    cached: list[int] = field(default_factory=list)

    def allocate(self, name: str, size: int, kind: str, maker: str | None, *, extra_references: int = 0) -> int:
        """New memory for the value ``name``; a weight's counts only once a kernel reads it."""
        storage = len(self.sizes)
        self.names.append(name)
        self.kinds.append(kind)
        self.sizes.append(size)
        self.makers.append(maker)
        self.references.append(extra_references)
        if kind != "weight":
            self.live_bytes += size
            self.requests.append(storage + 1)
        self.place(name, (storage,))
        return storage

    def place(self, name: str, storages: tuple[int, ...]) -> None:
        self.places[name] = storages
        count = self.uses.get(name)
        if count:
            for storage in storages:
                self.references[storage] += count

    def release(self, storage: int, count: int = 1) -> None:
        self.references[storage] -= count
        if self.references[storage] == 0 and self.kinds[storage] != "weight":
            self.live_bytes -= self.sizes[storage]
            shape = self.shapes.get(storage)
            if shape is not None:
                self.dead.setdefault(shape, []).append((storage, len(self.requests)))
            self.requests.append(-storage - 1)

    def leave_autocast(self) -> None:
        """Its context ends: what its cache held, and nothing else needs, is gone."""
        for storage in self.cached:
            self.release(storage)
        self.cached.clear()

    def revive(self, name: str, value: Value | None) -> bool:
        """Gives ``name`` the memory of the value of its shape and type that died last, as if that had not been given
        back; False where there is none."""
        key = _shape_key(value)
        waiting = None if key is None else self.dead.get(key)
        if not waiting:
            return False
        storage, place = waiting.pop()
        self.requests[place] = 0
        self.live_bytes += self.sizes[storage]
        self.place(name, (storage,))
        return True

    def settle(self) -> None:
        """Finds the peak and the timeline anew where memory was handed over: it was not free meanwhile."""
        changes = [
            (self.sizes[request - 1] if request > 0 else -self.sizes[-request - 1]) if request else 0
            for request in self.requests
        ]
        live_bytes = [0, *accumulate(changes)]
        self.peak_bytes = 0
        for place, node in self.runs:
            if live_bytes[place] > self.peak_bytes:
                self.peak_bytes, self.peak_place, self.peak_node = live_bytes[place], place, _made_by(node)
        self.peak_place = sum(map(bool, self.requests[: self.peak_place]))
        self.requests = [request for request in self.requests if request]
        self.high_peak_bytes = max(self.high_peak_bytes, self.peak_bytes)
        if self.timeline is not None:
            self.timeline = [
                replace(point, live_bytes=live_bytes[after], peak_bytes=live_bytes[most])
                for point, (most, after) in zip(self.timeline, self.points, strict=True)
            ]

    def note_peak(self, node: str | None, saving: int, low: int, high: int) -> None:
        """Notes the bytes alive while ``node`` runs. Scratch is alive already with its expected size; ``low`` and
        ``high`` are what the ends differ by; ``saving`` is what a result in place would not need."""
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes
            self.peak_place = len(self.requests)
            self.peak_node = _made_by(node)
        if self.policy.hands_over:
            self.runs.append((len(self.requests), node))
        self.low_peak_bytes = max(self.low_peak_bytes, self.live_bytes - self.saved_bytes - saving + low)
        self.high_peak_bytes = max(self.high_peak_bytes, self.live_bytes + high)

    def weight_sizes(self) -> list[int]:
        """Bytes of each weight that some kernel reads."""
        return [self.sizes[storage] for storage in sorted(self.read_weights)]

    def whole_weight_bytes(self) -> int:
        """Bytes of the weights that are read from one end to the other, tables that rows are looked up in left out."""
        return sum(self.sizes[storage] for storage in self.whole_weights)

    def alive_at_peak(self) -> list[LiveTensor]:
        """What is alive when the peak is reached, weights left out, largest first."""
        alive: dict[int, None] = {}
        for request in self.requests[: self.peak_place]:
            if request > 0:
                alive[request - 1] = None
            else:
                del alive[-request - 1]
        tensors = [
            LiveTensor(
                name=readable_name(self.names[at]),
                kind=self.kinds[at],
                byte_count=self.sizes[at],
                node=_made_by(self.makers[at]),
            )
            for at in alive
        ]
        return sorted(tensors, key=lambda tensor: -tensor.byte_count)


def _made_by(maker: str | None) -> str | None:
    return None if maker is None else file_name(maker)


def live_tensors(
    graph: InferredGraph,
    works: Mapping[str, NodeWork],
    policy: Policy,
    caches: Sequence[CachePair] = (),
    *,
    timeline: bool = False,
) -> Liveness:
    """Walks ``graph``, whose nodes became ``works`` (by node name; bodies included), once. Linear in its size.

    A value lives from its node to its last reader; inputs and outputs of the model live throughout. A body of control
    flow runs once at its node's place, on top of what lives outside: one iteration's memory is the next one's.
    """
    walk = started(graph, works, policy, caches, timeline=timeline)
    run_nodes(graph, walk)
    end(graph, walk)
    return walk


def started(
    graph: InferredGraph,
    works: Mapping[str, NodeWork],
    policy: Policy,
    caches: Sequence[CachePair] = (),
    *,
    timeline: bool = False,
    kept: Mapping[str, int] | None = None,
    left_behind: Mapping[str, int] | None = None,
) -> Liveness:
    """A walk before the first node: the model's inputs are there. ``kept``: values that are held once more for each
    time that they are counted."""
    values = graph.values
    past_bytes: dict[str, int] = {}
    for pair in caches:
        size = value_bytes(values.get(pair.past))
        if pair.shared:
            size = max(size, value_bytes(values.get(pair.present)))
        past_bytes[pair.past] = max(past_bytes.get(pair.past, 0), size)
    walk = Liveness(
        works=works,
        policy=policy,
        shared={pair.present: pair for pair in caches},
        results=frozenset(_names(graph.graph.outputs)),
        left_of_past=dict(past_bytes),
        timeline=[] if timeline else None,
        uses=dict(kept or {}),
        left_behind=left_behind or {},
    )
    for name in _names(graph.graph.inputs):
        kind = "cache" if name in past_bytes else "input"
        size = past_bytes[name] if name in past_bytes else value_bytes(values.get(name))
        # The caller holds the inputs until the end: one reference that nobody gives back.
        walk.allocate(name, size, kind, None, extra_references=1)
    walk.note_peak(None, 0, 0, 0)
    return walk


def end(graph: InferredGraph, walk: Liveness) -> None:
    """What is settled when all has run: which storages are results, and the peak."""
    values, policy = graph.values, walk.policy
    for name in _names(graph.graph.outputs):
        kind = "cache" if name in walk.shared else "output"
        for storage in walk.places.get(name, ()):
            if walk.kinds[storage] == "activation":
                walk.kinds[storage] = kind
    if policy.hands_over:
        walk.settle()
    walk.unknown_count = sum(value.shape is None and value.elements is None for value in values.values())


def run_nodes(graph: InferredGraph, walk: Liveness) -> None:
    """Goes through the nodes in order, taking and giving back memory; the graph's inputs have their storage already."""
    values, works = graph.values, walk.works
    every = graph.graph.nodes
    reading = [reads_of(node) for node in every]
    # What only makes shapes has a place in the order, too.
    order: Iterable[int] = demand_order(every, reading) if walk.policy.demand_order else range(len(every))
    order = [index for index in order if not _is_host_work(every[index], values, works)]
    nodes, reads = [every[index] for index in order], [reading[index] for index in order]
    uses, places = walk.uses, walk.places
    for names in (*reads, _names(graph.graph.outputs)):
        for name in names:
            uses[name] = uses.get(name, 0) + 1
            # Inputs and values of outer graphs were placed before their readers in here were counted.
            for storage in places.get(name, ()):
                walk.references[storage] += 1
    for name, initializer in graph.graph.initializers.items():
        if name not in places:
            walk.allocate(name, initializer.byte_count, "weight", None)
    for node, names in zip(nodes, reads, strict=True):
        item = works.get(node.name)
        bodies = (
            [body for attribute in _keys(node, graph) if (body := graph.bodies.get((node.name, attribute)))]
            if graph.bodies
            else []
        )
        merged = item.merged_into if item is not None else None
        if item is None or item.free is None or merged is not None:
            tables = {node.inputs[place] for place in _TABLES.get(node.op_type, ()) if place < len(node.inputs)}
            for name in names:
                for storage in places.get(name, ()):
                    if walk.kinds[storage] == "weight":
                        walk.read_weights.add(storage)
                        if name not in tables:
                            walk.whole_weights.add(storage)
        # A node with bodies costs nothing itself, yet its bodies do, and what they return is memory of its own.
        peak, most = walk.live_bytes, len(walk.requests)
        if item is None or item.free is None or item.written or bodies:
            peak = _execute(node, item, names, bodies, values, walk)
            most = walk.runs[-1][0] if walk.policy.hands_over else most
        elif merged is not None:
            _stand_for(node, names, walk)
        else:
            _hand_on(node, names, values, walk)
        for name in node.outputs:
            # Nobody reads it: gone with the node.
            if name and not uses.get(name):
                for storage in places.get(name, ()):
                    if walk.references[storage] == 0:
                        walk.release(storage, 0)
        keeps = item is not None and item.written and merged is not None
        for name in names:
            for storage in places.get(name, ()):
                if keeps and merged is not None:
                    # Another node's kernel does this one's work, and reads then.
                    walk.held.setdefault(merged, []).append(storage)
                else:
                    walk.release(storage)
        for storage in walk.held.pop(node.name, ()):
            walk.release(storage)
        if walk.timeline is not None:
            walk.timeline.append(
                MemoryPoint(node=readable_name(node.name), live_bytes=walk.live_bytes, peak_bytes=peak)
            )
            walk.points.append((most, len(walk.requests)))


def _execute(
    node: Node,
    item: NodeWork | None,
    names: Sequence[str],
    bodies: Sequence[InferredGraph],
    values: Mapping[str, Value],
    walk: Liveness,
) -> int:
    """A node that runs: its results take memory, in place where that is legal, and its scratch for a while.

    Gives the bytes alive while it runs.
    """
    if bodies and node.op_type == "If":
        # It has its outputs when the branch is through; a loop fills its stacked outputs while it runs.
        for body in bodies:
            _run_body(node, body, walk)
    saving = 0
    in_place = walk.policy.in_place
    for name in node.outputs:
        if not name:
            continue
        size = value_bytes(values.get(name))
        pair = walk.shared.get(name)
        if pair is not None and pair.past in walk.places:
            if pair.shared:
                walk.place(name, walk.places[pair.past])
                continue
            less = min(size, walk.left_of_past[pair.past])
            walk.left_of_past[pair.past] -= less
            walk.saved_bytes += less
        if item is not None and item.parts:
            _join(name, size, node, item.parts, walk)
            continue
        target = None if item is None or saving else _place_of_operand(item, names, size, walk)
        # Where memory is handed over by plan, that of the model's outputs is the caller's.
        planned = walk.policy.hands_over and name not in walk.results
        if target is not None:
            if (in_place is None or node.op_type in in_place) and (planned or not walk.policy.hands_over):
                walk.place(name, (target,))
                continue
            saving = size
        if planned and walk.revive(name, values.get(name)):
            continue
        kept = KEPT_FOR_THE_RUN in node.attributes
        storage = walk.allocate(name, size, "activation", node.name, extra_references=int(kept))
        if kept:
            walk.cached.append(storage)
        if planned and (key := _shape_key(values.get(name))) is not None:
            walk.shapes[storage] = key
    if bodies and node.op_type != "If":
        for body in bodies:
            _run_body(node, body, walk)
    if node.name in walk.left_behind:
        size = walk.left_behind[node.name]
        walk.behind[node.name] = walk.allocate(node.name, size, "saved", node.name, extra_references=1)
    scratch = NONE if item is None else scratch_of(item)
    if scratch.expected:
        needed = walk.allocate("", scratch.expected, "workspace", node.name, extra_references=1)
    walk.note_peak(node.name, saving, scratch.low - scratch.expected, scratch.high - scratch.expected)
    peak = walk.live_bytes
    if scratch.expected:
        walk.release(needed)
    return peak


def _join(name: str, size: int, node: Node, parts: Sequence[str], walk: Liveness) -> None:
    """A result that some of its parts lie in already: their memory, and what the others need."""
    storages = tuple(dict.fromkeys(storage for part in parts for storage in walk.places.get(part, ())))
    rest = size - sum(walk.sizes[storage] for storage in storages)
    if rest > 0:
        own = walk.allocate(name, rest, "activation", node.name)
        walk.references[own] = 0
        storages = (*storages, own)
    walk.place(name, storages)


def _place_of_operand(item: NodeWork, names: Sequence[str], size: int, walk: Liveness) -> int | None:
    """The operand whose memory the result may take: of the same size, an activation, read by nobody later."""
    if not size or len(item.kernels) != 1 or not isinstance(item.kernels[0], _IN_PLACE):
        return None
    own: dict[int, int] = {}
    for name in names:
        for storage in walk.places.get(name, ()):
            own[storage] = own.get(storage, 0) + 1
    for storage, count in own.items():
        if walk.sizes[storage] == size and walk.references[storage] == count and walk.kinds[storage] == "activation":
            return storage
    return None


def _is_host_work(node: Node, values: Mapping[str, Value], works: Mapping[str, NodeWork]) -> bool:
    """Whether a node only makes small values that are known beforehand: most nodes of an exported graph do."""
    item = works.get(node.name)
    if item is None or item.free is None or item.merged_into is not None:
        return False
    for name in node.outputs:
        value = values.get(name)
        if value is None or value.data is None:
            return False
    return True


def _stand_for(node: Node, names: Iterable[str], walk: Liveness) -> None:
    """The results of a node whose work others' kernels do: they are what they are computed from."""
    behind = tuple(dict.fromkeys(storage for name in names for storage in walk.places.get(name, ())))
    for name in node.outputs:
        if name:
            walk.place(name, behind)


def _hand_on(node: Node, names: Sequence[str], values: Mapping[str, Value], walk: Liveness) -> None:
    """Outputs of a free node: constants, values on the host, or views of the first input that has memory."""
    source = next((walk.places[name] for name in names if name in walk.places), None)
    for name in node.outputs:
        value = values.get(name)
        if not name or value is None:
            continue
        size = value_bytes(value)
        if value.is_constant and (source is None or not _is_activation(source, walk)):
            if name in walk.places:
                continue  # made once, also where each trip of a loop has a body of its own
            # Folded when the model is loaded. The same number of bytes as the weight it comes from: that weight, moved.
            same = source is not None and len(source) == 1 and walk.kinds[source[0]] == "weight"
            if same and source is not None and walk.sizes[source[0]] == size:
                walk.place(name, source)
            else:
                walk.allocate(name, size, "weight", None)
        elif node.op_type not in _NO_VIEWS and value.data is None and source is not None:
            walk.place(name, source)


def _is_activation(storages: Sequence[int], walk: Liveness) -> bool:
    """Whether a value is computed in the run, though of parameters alone (PyTorch's)."""
    return any(walk.kinds[storage] == "activation" for storage in storages)


def _keys(node: Node, graph: InferredGraph) -> Iterator[str]:
    """The attributes of a node, and the names under which bodies of further trips stand."""
    yield from node.attributes
    yield from (key for key, _ in graph.repeats.get(node.name, ())[1:])


def _run_body(node: Node, body: InferredGraph, walk: Liveness) -> None:
    """One iteration of a body, or one branch; what it leaves is freed, for the node's own outputs hold it."""
    inputs = _names(body.graph.inputs)
    for index, name in enumerate(inputs):
        # Loop: (trip count, condition, carried …), Scan: (states …, sequences …): node and body agree on the order.
        # What has no equal outside (a slice of a scanned sequence) is new memory.
        given = walk.places.get(node.inputs[index]) if index < len(node.inputs) else None
        size = value_bytes(body.values.get(name))
        if given is not None and sum(walk.sizes[storage] for storage in given) == size:
            walk.place(name, given)
        else:
            given = (walk.allocate(name, size, "activation", node.name),)
        for storage in given:
            walk.references[storage] += 1
    walk.note_peak(node.name, 0, 0, 0)
    run_nodes(body, walk)
    for name in (*inputs, *_names(body.graph.outputs)):
        for storage in walk.places.get(name, ()):
            walk.release(storage)


def _shape_key(value: Value | None) -> tuple[object, object] | None:
    """What two values must have in common to follow each other in the same memory."""
    return None if value is None or value.shape is None or value.dtype is None else (value.shape, value.dtype.bits)


def _names(declared: Sequence[Declared]) -> list[str]:
    return [value.name for value in declared]


def value_bytes(value: Value | None) -> int:
    """Bytes of a value on the device; 0 if its shape is unknown or it holds strings."""
    if value is None:
        return 0
    if value.elements is not None:
        return sum(value_bytes(element) for element in value.elements)
    if value.shape is None or value.dtype is None or value.dtype is DataType.STRING:
        return 0
    return value.dtype.bytes_of(value.element_count)
