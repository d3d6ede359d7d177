"""A step of training for tests: its works, and kernels in a word and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from onnx import TensorProto

from graphs import inferred
from neusight_onnx.backward import Trained, Training, as_trained, train
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Pooling,
    Reduction,
    Softmax,
)
from neusight_onnx.lowering import lower_laid_out

BARE = Training(optimizer="none", loss="none")


def trained(graph: InferredGraph, plan: Training = BARE) -> tuple[InferredGraph, Sequence[NodeWork], Trained]:
    form = as_trained(recognise(graph, runtime="eager"), plan).graph
    lowered = lower_laid_out(form, runtime="eager")
    return form, lowered.works, train(form, lowered.works, lowered.strides, plan, "eager")


def shown(kernel: Kernel) -> str:
    """A kernel in a word and its sizes."""
    match kernel:
        case Gemm():
            flags = "".join(name for name, is_set in (("A", kernel.transpose_a), ("B", kernel.transpose_b)) if is_set)
            return f"gemm {kernel.batch}x{kernel.m}x{kernel.n}x{kernel.k}{flags and ' ' + flags}"
        case Conv():
            return f"conv {kernel.direction}"
        case Elementwise():
            reads = [spec.element_count for spec in kernel.inputs]
            return f"{'+'.join(kernel.operations)} {reads} -> {kernel.output.element_count}"
        case Reduction():
            return f"{kernel.operation} {kernel.outputs} of {kernel.reduced}"
        case Softmax():
            return f"softmax{' backward' if kernel.backward else ''} {kernel.rows}x{kernel.cols}"
        case Normalization():
            return f"{kernel.method}{' backward' if kernel.backward else ''} {kernel.rows}x{kernel.cols}"
        case Pooling():
            return f"{kernel.operation} {kernel.output.element_count} window {kernel.window}"
        case GatherScatter():
            return f"{kernel.operation} {kernel.moved}"
        case Movement():
            return f"{kernel.operation} {prod(kernel.shape)}"
        case Attention():
            return f"attention{' backward' if kernel.backward else ''} {kernel.macs}"
        case _:
            return type(kernel).__name__.lower()


def backwards(result: Trained) -> dict[str, list[str]]:
    """Kernels of the steps that have some, by operator; nodes of an operator in the order of the run backwards."""
    found: dict[str, list[str]] = {}
    for step in result.steps:
        if step.work.kernels:
            found.setdefault(step.work.op_type, []).extend(shown(kernel) for kernel in step.work.kernels)
    return found


# The first product's result is h (4, 16), which needs a gradient; x doesn't.
FIRST = "h = MatMul (x, w)\n"
X, W = {"x": (4, 8)}, {"w": (8, 16)}

ATTENTION = """
t = Gather (table, ids)
q = MatMul (t, wq)
k = MatMul (t, wk)
v = MatMul (t, wv)
q4 = Reshape (q, heads)
k4 = Reshape (k, heads)
v4 = Reshape (v, heads)
qh = Transpose <perm=[0,2,1,3]> (q4)
kh = Transpose <perm=[0,2,3,1]> (k4)
vh = Transpose <perm=[0,2,1,3]> (v4)
s = MatMul (qh, kh)
d = Div (s, scale)
p = Softmax (d)
a = MatMul (p, vh)
at = Transpose <perm=[0,2,1,3]> (a)
a3 = Reshape (at, joined)
o = MatMul (a3, wo)
y = Add (o, t)
"""


def attention_block() -> InferredGraph:
    """Two sequences of 6 tokens, 2 heads of 4, a table of 10 rows."""
    return inferred(
        ATTENTION,
        {"ids": (2, 6)},
        weights={"table": (10, 8), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (8, 8)},
        constants={"heads": [0, 0, 2, 4], "joined": [0, 0, 8], "scale": [2.0]},
        types={"ids": TensorProto.INT64},
    )


def shown_whole(kernel: Kernel) -> str:
    """With what it writes beside its result, or what is fused into it."""
    if isinstance(kernel, Elementwise) and kernel.extra_outputs:
        return f"{shown(kernel)} + {[spec.element_count for spec in kernel.extra_outputs]}"
    if isinstance(kernel, Softmax) and kernel.fused:
        return f"{shown(kernel)} {'+'.join(kernel.fused)}"
    return shown(kernel)


def parameters(result: Trained) -> set[str]:
    return {parameter.name for parameter in result.parameters}


TWO_LAYERS = "h = Gemm <transB=1> (x, w, b)\na = Relu (h)\ny = Gemm <transB=1> (a, w2, b2)"
