"""What the host takes for an operator of PyTorch's eager mode: the software in front of its launches, by its kind.

Modules, argument parsing, dispatcher, allocator, and what an operator does before it launches: measured with PyTorch
2.9.1 on stand-ins for CUDA's libraries, where a launch takes nothing, on one machine (``benchmarks/host_time.py run``;
``benchmarks/results/host_time.md`` has the figures, and 1.5.1's beside them). How servers compare to it is
:data:`SERVER`; ``benchmarks/evidence/host_time.md`` says what all this rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Reduction,
)
from neusight_onnx.runtime import SCRIPTED_SOFTWARE, Runtime

FORWARD_US: Mapping[str, float] = {
    "linear": 8.7,
    "matmul": 5.1,
    "conv": 12.1,
    "batch normalization": 12.1,
    "layer normalization": 8.5,
    "group normalization": 15.2,
    "instance normalization": 20.0,
    "normalization": 15.2,
    "elementwise": 3.0,
    "where": 3.9,
    "softmax": 3.1,
    "reduction": 3.2,
    "movement": 4.0,
    "embedding": 6.7,
    "gather_scatter": 3.5,
    "pooling": 4.8,
    "resize": 3.6,
    "attention": 6.1,
    "sort": 5.4,
    "lstm": 32.8,
    "recurrent": 26.7,
}
"""Us of a call, the mean of its kind; others, which weren't measured, are taken as "elementwise"."""

AROUND_US: Mapping[str, float] = {"linear": 24.0, "conv": 6.0}
"""What a model's code takes beside its operators (containers, dropouts, the forward of blocks and their arithmetic),
which no graph shows: medians of 11 models made of linear layers (10 to 44) and of 7 made of convolutions (4 to 8)."""

IN_A_ROW_US = 2.0
"""The same for each of such layers where a model calls one after the other: 1.1 in ``nn.Sequential``, 2.0 by a forward
of four calls; of convolutions 1.9 there, 4.5 in VGG-16."""

RECORDING = 1.45
"""How many times what stands above a run forward takes that records for the one backwards (six models: 1.4 to 1.5)."""

BACKWARD_US: Mapping[str, float] = {
    "linear": 13.7,
    "matmul": 18.6,
    "conv": 22.2,
    "batch normalization": 18.0,
    "layer normalization": 15.7,
    "group normalization": 30.8,
    "instance normalization": 23.4,
    "normalization": 15.7,
    "elementwise": 6.4,
    "where": 8.3,
    "reduction": 8.5,
}
"""Of autograd's engine, which runs no Python: of a product, else of a call with all gradients that it leaves."""

BACKWARD_VIEW_US = 3.3

OPTIMIZER_US = 1.0
"""Of an operation of the optimizer's foreach step, a tensor, as lists of them are made in Python; an operation takes at
least what a pointwise operator does."""

SERVER = prod((1.6, 1.8, 3.2, 3.6, 3.9, 4.3)) ** (1 / 6)
"""How many times that machine's servers take, 2.9: geometric mean of the hosts of event-timed kernels (MI210, MI100,
A100, T4, P4, V100), by how much longer LayerNorm takes than an addition behind the host. Recent hosts are faster."""

EACH = frozenset({"linear", "matmul", "elementwise", "reduction", "movement", "embedding", "gather_scatter", "resize"})
"""Kinds of which each kernel is a call; other kernels of a kind that follow one another are those of one call."""


ONE_CALL: Mapping[str, str] = {
    "GroupNormalization": "group normalization",
    "InstanceNormalization": "instance normalization",
    "Where": "where",
    "LSTM": "lstm",
    "GRU": "recurrent",
    "RNN": "recurrent",
}
"""Kinds of operators whose kernels, of several classes, are one call's."""

ONE_CALL_BACKWARD = {operator: kind for operator, kind in ONE_CALL.items() if kind in BACKWARD_US}


def operator_host_us(work: NodeWork, runtime: Runtime) -> tuple[float, ...]:
    """What the host takes up to the launch of each of a work's kernels, or for a view; (): as the runtime has it."""
    if not runtime.operator_software:
        return ()
    if not work.kernels:
        return (SERVER * BACKWARD_VIEW_US,) if work.phase == "backward" else ()
    if work.phase == "optimizer":
        software_us = max(OPTIMIZER_US * work.tensors_each, FORWARD_US["elementwise"])
        return (runtime.kernel_us + SERVER * software_us,) * len(work.kernels)
    of_layer = any(isinstance(kernel, Gemm) and kernel.is_linear for kernel in work.kernels)
    of_batch_norm = any(isinstance(kernel, Normalization) and kernel.method == "batch" for kernel in work.kernels)
    found = []
    before = ""
    calls = ONE_CALL if work.phase == "forward" else ONE_CALL_BACKWARD
    for kernel in work.kernels:
        kind = calls.get(work.op_type) or kind_of(kernel)
        if of_batch_norm and _is_of_channels(kernel):
            kind = "batch normalization"
        if of_layer and kind == "matmul":  # the gradient of its weights
            kind = "linear"
        same_call = kind == before and kind not in EACH
        software_us = 0.0 if same_call else call_us(kind, runtime, phase=work.phase)
        found.append(runtime.kernel_us + software_us)
        before = kind
    return tuple(found)


def _is_of_channels(kernel: Kernel) -> bool:
    """Whether a kernel makes statistics or sums of a batch normalization's channels, in the call that applies them."""
    return isinstance(kernel, Reduction) or (isinstance(kernel, Elementwise) and kernel.output.element_count > 1)


def call_us(kind: str, runtime: Runtime, *, phase: str = "forward") -> float:
    """What a server takes for a call beside its launches, with the model's code around it."""
    if phase == "backward":
        return SERVER * BACKWARD_US.get(kind, BACKWARD_US["elementwise"])
    around_us = AROUND_US.get(kind, 0.0)
    if runtime.layers_in_a_row:
        around_us = min(around_us, IN_A_ROW_US)
    software_us = FORWARD_US.get(kind, FORWARD_US["elementwise"]) + around_us
    software_us *= SCRIPTED_SOFTWARE if runtime.scripted else 1.0
    return SERVER * software_us * (RECORDING if runtime.records_gradients else 1.0)


def kind_of(kernel: Kernel) -> str:
    """What a kernel's call is among :data:`FORWARD_US`: its class, or a part of it."""
    match kernel:
        case Gemm(is_linear=is_linear):
            return "linear" if is_linear else "matmul"
        case Normalization(method="batch"):
            return "batch normalization"
        case Normalization(method="layer" | "rms"):
            return "layer normalization"
        case GatherScatter(operation="embedding"):
            return "embedding"
        case Movement(operation="resize"):
            return "resize"
    return KERNEL_CLASSES[type(kernel)]


def is_a_row(graph: InferredGraph) -> bool:
    """Whether each operator reads the one before it and nothing else that a run makes, as in ``nn.Sequential``.

    What is known beforehand (weights, sizes) doesn't count, in whatever type autocast gives it.
    """
    if graph.bodies:
        return False
    readers: Counter[str] = Counter()
    for node in graph.graph.nodes:
        read = {name for name in node.inputs if name and _is_made(graph, name)}
        if len(read) > 1:
            return False
        if any(_is_made(graph, name) for name in node.outputs):
            readers.update(read)
    return all(count == 1 for count in readers.values())


def _is_made(graph: InferredGraph, name: str) -> bool:
    """Whether a run makes a value, or is given it."""
    value = graph.values.get(name)
    return value is not None and not value.is_constant and not value.is_cast_weight and value.data is None
