"""Device memory of a run: weights, live activations, library workspace, the driver's context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import Declared, Graph, InferredGraph, Initializer, Model, Node, Value
from neusight_onnx.kernels import Gemm, NodeWork, Recurrent
from neusight_onnx.report.model import MemoryEstimate

CONTEXT_BYTES = 500_000_000
"""CUDA context and loaded kernels: public figures lie between 300 and 700 MB (driver, GPU and libraries decide); this
is their middle, so the error is at most 200 MB. The same is assumed for AMD's HIP, for which no figure was found."""

WORKSPACE_BYTES = (2 * 4096 + 8 * 16) * 1024
"""cuBLAS workspace of a handle and stream in PyTorch: CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 (PyTorch's documentation,
"CUDA semantics", section "cuBLAS workspaces"). Convolutions: cuDNN's implicit GEMM, the default for most shapes, needs
none; where cuDNN picks another algorithm its workspace is not counted here."""

HOPPER_WORKSPACE_BYTES = 32 * 1024 * 1024
"""From compute capability 9.0 on NVIDIA recommends 32 MiB (cuBLAS documentation, cublasSetWorkspace), and PyTorch
follows."""

_NO_VIEWS = frozenset({"Constant", "ConstantOfShape", "Range", "Shape", "Size", "SequenceEmpty", "SequenceLength"})
"""Operators that may be free but whose output is never the memory of their input."""


def estimate_memory(graph: InferredGraph, work: Sequence[NodeWork], gpu: GpuSpec, runtime: str) -> MemoryEstimate:
    """Peak device memory of running ``graph``, whose nodes became ``work`` (found by node name; bodies included).

    Activations: a value lives from its node to its last reader; inputs and outputs of the model live throughout.
    What a free node hands on (a view) is its input's memory; so is what a merged node's kernel keeps to itself. Values
    that only the host needs (shapes) take none.
    Weights: constants that some kernel reads, at their true bit width, once each; constants folded at load time count
    like weights. A body of control flow is run once at its node's place: its activations are freed between iterations.
    Values of unknown shape count nothing. ``runtime``: every runtime is assumed to free values at their last use; only
    what it makes a kernel differs, which ``work`` says.
    """
    del runtime  # part of the contract: runtimes with their own memory planning will differ here
    state = _State(work={item.node: item for item in work})
    for name in _names(graph.graph.inputs):
        # The caller holds the inputs until the end: one reference that nobody gives back.
        state.allocate(name, _value_bytes(graph.values.get(name)), extra_references=1)
    _run(graph, state)
    weight_bytes = sum(size for size, used in zip(state.sizes, state.read_as_weight, strict=True) if used)
    uses_cublas = any(isinstance(kernel, Gemm | Recurrent) for item in work for kernel in item.kernels)
    newer = gpu.vendor.lower() == "nvidia" and (gpu.compute_capability or 0.0) >= 9.0
    workspace_bytes = 0 if not uses_cublas else HOPPER_WORKSPACE_BYTES if newer else WORKSPACE_BYTES
    peak_bytes = weight_bytes + state.peak_bytes + workspace_bytes + CONTEXT_BYTES
    return MemoryEstimate(
        peak_bytes=peak_bytes,
        weight_bytes=weight_bytes,
        activation_bytes=state.peak_bytes,
        workspace_bytes=workspace_bytes,
        context_bytes=CONTEXT_BYTES,
        fits=peak_bytes <= gpu.memory_bytes,
    )


@dataclass(slots=True, kw_only=True)
class _State:
    """Storages (pieces of memory) by index, and which storage each value lies in; names are unique in the model.

    ``uses``: how many nodes still read a value. ``references``: the same for a storage, over all values in it.
    """

    work: Mapping[str, NodeWork]
    storage_of: dict[str, int] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    references: list[int] = field(default_factory=list)
    is_weight: list[bool] = field(default_factory=list)
    read_as_weight: list[bool] = field(default_factory=list)
    live_bytes: int = 0
    peak_bytes: int = 0

    def allocate(self, name: str, size: int, *, extra_references: int = 0, weight: bool = False) -> int:
        """New memory for the value ``name``; a weight's counts only once a kernel reads it."""
        storage = len(self.sizes)
        self.sizes.append(size)
        self.references.append(extra_references)
        self.is_weight.append(weight)
        self.read_as_weight.append(False)
        if not weight:
            self.live_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self.place(name, storage)
        return storage

    def place(self, name: str, storage: int) -> None:
        self.storage_of[name] = storage
        self.references[storage] += self.uses.get(name, 0)

    def release(self, storage: int, count: int = 1) -> None:
        self.references[storage] -= count
        if self.references[storage] == 0 and not self.is_weight[storage]:
            self.live_bytes -= self.sizes[storage]


def _run(graph: InferredGraph, state: _State) -> None:
    """Goes through the nodes in order, taking and giving back memory; the graph's inputs have their storage already."""
    nodes = [node for node in graph.graph.nodes if not _is_host_work(node, graph, state)]
    reads = [_reads(node) for node in nodes]
    for names in reads:
        for name in names:
            state.uses[name] = state.uses.get(name, 0) + 1
            # Inputs and values of outer graphs were placed before their readers in here were counted.
            if name in state.storage_of:
                state.references[state.storage_of[name]] += 1
    for name in _names(graph.graph.outputs):
        state.uses[name] = state.uses.get(name, 0) + 1
        if name in state.storage_of:
            state.references[state.storage_of[name]] += 1
    for name, initializer in graph.graph.initializers.items():
        if name not in state.storage_of:
            state.allocate(name, initializer.byte_count, weight=True)
    values = graph.values
    for node, names in zip(nodes, reads, strict=True):
        item = state.work.get(node.name)
        bodies = [body for attribute in node.attributes if (body := graph.bodies.get((node.name, attribute)))]
        merged = item is not None and item.merged_into is not None
        if item is None or item.free is None or merged:
            for name in names:
                storage = state.storage_of.get(name)
                if storage is not None and state.is_weight[storage]:
                    state.read_as_weight[storage] = True
        # A node with bodies costs nothing itself, yet its bodies do, and what they return is memory of its own.
        if item is not None and item.free is not None and not item.written and not bodies:
            _hand_on(node, names, values, state)
        else:
            # A loop fills its stacked outputs while it runs; an If has its outputs when the branch is through.
            if node.op_type == "If":
                for body in bodies:
                    _run_body(node, body, state)
            for name in node.outputs:
                if name:
                    state.allocate(name, _value_bytes(values.get(name)))
            if node.op_type != "If":
                for body in bodies:
                    _run_body(node, body, state)
        for name in node.outputs:
            # Nobody reads it: gone with the node.
            if name and name in state.storage_of and not state.uses.get(name):
                storage = state.storage_of[name]
                if state.references[storage] == 0:
                    state.release(storage, 0)
        for name in names:
            storage = state.storage_of.get(name)
            if storage is not None:
                state.release(storage)


def _is_host_work(node: Node, graph: InferredGraph, state: _State) -> bool:
    """Whether a node only makes small values that are known beforehand: most nodes of an exported graph do."""
    item = state.work.get(node.name)
    if item is None or item.free is None or item.merged_into is not None:
        return False
    values = graph.values
    for name in node.outputs:
        value = values.get(name)
        if value is None or value.data is None:
            return False
    return True


def _hand_on(node: Node, names: Sequence[str], values: Mapping[str, Value], state: _State) -> None:
    """Outputs of a free node: constants, values on the host, or views of the first input that has memory."""
    source = next((state.storage_of[name] for name in names if name in state.storage_of), None)
    for name in node.outputs:
        value = values.get(name)
        if not name or value is None:
            continue
        size = _value_bytes(value)
        if value.is_constant:
            # Folded when the model is loaded. The same number of bytes as the weight it comes from: that weight, moved.
            same = source is not None and state.is_weight[source] and state.sizes[source] == size
            if same and source is not None:
                state.place(name, source)
            else:
                state.allocate(name, size, weight=True)
        elif node.op_type not in _NO_VIEWS and value.data is None and source is not None:
            state.place(name, source)


def _run_body(node: Node, body: InferredGraph, state: _State) -> None:
    """One iteration of a body, or one branch; what it leaves is freed, for the node's own outputs hold it."""
    inputs = _names(body.graph.inputs)
    for index, name in enumerate(inputs):
        # Loop: (trip count, condition, carried …), Scan: (states …, sequences …): node and body agree on the order.
        # What has no equal outside (a slice of a scanned sequence) is new memory.
        given = state.storage_of.get(node.inputs[index]) if index < len(node.inputs) else None
        size = _value_bytes(body.values.get(name))
        if given is not None and state.sizes[given] == size:
            state.place(name, given)
        else:
            given = state.allocate(name, size)
        state.references[given] += 1
    _run(body, state)
    for name in (*inputs, *_names(body.graph.outputs)):
        storage = state.storage_of.get(name)
        if storage is not None:
            state.release(storage)


def _names(declared: Sequence[Declared]) -> list[str]:
    return [value.name for value in declared]


def _reads(node: Node) -> tuple[str, ...]:
    """What a node reads, once each, with what its bodies take from around them."""
    names = dict.fromkeys(name for name in node.inputs if name)
    for body in _bodies(node):
        names.update(dict.fromkeys(_captures(body)))
    return tuple(names)


def _bodies(node: Node) -> Iterator[Graph]:
    for value in node.attributes.values():
        if isinstance(value, Graph):
            yield value
        elif isinstance(value, tuple):
            yield from (body for body in value if isinstance(body, Graph))


def _captures(graph: Graph) -> set[str]:
    read = set(_names(graph.outputs))
    own = {*_names(graph.inputs), *graph.initializers}
    for node in graph.nodes:
        read.update(_reads(node))
        own.update(node.outputs)
    return read - own


def _value_bytes(value: Value | None) -> int:
    """Bytes of a value on the device; 0 if its shape is unknown or it holds strings."""
    if value is None:
        return 0
    if value.elements is not None:
        return sum(_value_bytes(element) for element in value.elements)
    if value.shape is None or value.dtype is None or value.dtype is DataType.STRING:
        return 0
    return value.dtype.bytes_of(value.element_count)


def parameter_summary(model: Model) -> tuple[int, int]:
    """(number of parameters, their bytes): initializers and constants of all graphs, a shared one once.

    Not counted, for it is not learned: int64 (indices, shapes), bool (masks) and string tensors, int32 tensors of at
    most 8 elements, and single numbers written as Constant nodes (scale factors, epsilons).
    """
    count = size = 0
    seen: set[int] = set()
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        tensors = [tensor for tensor in graph.initializers.values() if _is_parameter(tensor)]
        for node in graph.nodes:
            if node.op_type == "Constant" and node.domain == "":
                tensors.extend(_constant(node))
            pending.extend(_bodies(node))
        for tensor in tensors:
            # The body of a function that is called twice holds the same tensor twice; small ones are alike by chance.
            if tensor.data is None and id(tensor) in seen:
                continue
            seen.add(id(tensor))
            count += tensor.element_count
            size += tensor.byte_count
    return count, size


def _constant(node: Node) -> Iterator[Initializer]:
    for name in ("value", "sparse_value"):
        tensor = node.attributes.get(name)
        if isinstance(tensor, Initializer) and tensor.element_count > 1 and _is_parameter(tensor):
            yield tensor


def _is_parameter(tensor: Initializer) -> bool:
    if tensor.dtype in (DataType.INT64, DataType.BOOL, DataType.STRING):
        return False
    return tensor.dtype is not DataType.INT32 or tensor.element_count > 8
