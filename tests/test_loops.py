"""What a loop compiler merges: kernels worked out by hand from Inductor's documented rules."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper, parser

from graphs import inferred
from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.compiled_attention import replace_attention
from neusight_onnx.fusion.loops import merge_loops
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer
from neusight_onnx.kernels import (
    GENERATED,
    Attention,
    Conv,
    Elementwise,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Pooling,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.autocast import autocast
from neusight_onnx.lowering.views import Order

F16, F32, I64, BOOL = DataType.FLOAT16, DataType.FLOAT32, DataType.INT64, DataType.BOOL
Shape = tuple[int, ...]


def compiled(graph: InferredGraph) -> tuple[NodeWork, ...]:
    recognised = recognise(graph, runtime="compiled")
    lowered = lower_laid_out(recognised, runtime="compiled")
    return merge_loops(recognised, lowered.works, lowered.strides)


def spec(*shape: int, dtype: DataType = F32) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape)


def loop(operations: str, inputs: list[TensorSpec], output: TensorSpec, *more: TensorSpec) -> Elementwise:
    return Elementwise(
        operations=tuple(operations.split()), inputs=tuple(inputs), output=output, extra_outputs=more, generated=True
    )


def statistics(
    rows: int, cols: int, fused: str = "", extra: tuple[TensorSpec, ...] = (), *, inner: int = 1
) -> Reduction:
    """Maximum and sum of each row of a softmax, written for a kernel that runs in another order."""
    return Reduction(
        operation="softmax",
        outputs=rows,
        reduced=cols,
        inner=inner,
        dtype=F32,
        output=spec(2, rows),
        fused=tuple(fused.split()),
        extra_inputs=extra,
    )


def softmax(rows: int, cols: int, fused: str = "", extra: tuple[TensorSpec, ...] = (), inner: int = 1) -> Softmax:
    return Softmax(
        rows=rows, cols=cols, inner=inner, dtype=F32, fused=tuple(fused.split()), extra_inputs=extra, generated=True
    )


def layer_norm(
    rows: int,
    cols: int,
    fused: str = "",
    extra: tuple[TensorSpec, ...] = (),
    written: tuple[TensorSpec, ...] = (),
) -> Normalization:
    return Normalization(
        generated=True,
        method="layer",
        rows=rows,
        cols=cols,
        parameter_count=2 * cols,
        dtype=F32,
        fused=tuple(fused.split()),
        extra_inputs=extra,
        extra_outputs=written,
    )


def join(part: TensorSpec, run: int = 1) -> Movement:
    size = part.byte_count
    return Movement(
        operation="concat", dtype=F32, shape=part.shape, read=size, written=size, run=run, library=GENERATED
    )


def product(m: int, n: int, k: int, *epilogue: str) -> Gemm:
    return Gemm(m=m, n=n, k=k, transpose_b=True, b_is_weight=True, dtype=F32, epilogue=epilogue)


def copy(shape: Shape, permutation: Shape) -> Movement:
    size = 4 * spec(*shape).element_count
    return Movement(
        operation="copy",
        dtype=F32,
        shape=shape,
        permutation=permutation,
        read=size,
        written=size,
        library=GENERATED,
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """``expected``: kernels in order. ``inputs``, ``weights``: shapes; ``constants``: values; ``types`` but float32."""

    nodes: str
    inputs: Mapping[str, Shape]
    expected: list[Kernel]
    weights: Mapping[str, Shape] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    types: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[str, ...] | None = None


A, B = spec(8, 16), spec(16)
HALF = spec(8, 8)
ROW = {"x": (8, 16)}
ROWS = {"x": (8, 16), "z": (8, 16)}
FIVE = dict.fromkeys("abcde", (8, 16))
SUM_OF_FIVE = """s1 = Add(a, b)
                 s2 = Add(s1, c)
                 s3 = Add(s2, d)
                 s = Add(s3, e)"""
HALVES = {"start": [0], "half": [8], "end": [16], "axis": [1]}
NORM = {"gamma": (16,), "beta": (16,)}

CASES = {
    "a chain is one kernel; a broadcast vector is read as it is, a number not at all": Case(
        nodes="p = Mul(x, x)\nq = Add(p, b)\nr = Div(q, c)\ny = Relu(r)",
        inputs=ROW,
        weights={"b": (16,)},
        constants={"c": 2.0},
        expected=[loop("mul add div relu", [A, B], A)],
    ),
    "a value used twice in one kernel is computed once": Case(
        nodes="t = Tanh(x)\nu = Sigmoid(t)\ny = Add(t, u)",
        inputs=ROW,
        expected=[loop("tanh sigmoid add", [A], A)],
    ),
    "a number that is not known is read": Case(
        nodes="m = ReduceMax<keepdims=0>(x)\ny = Div(z, m)",
        inputs={"x": (2, 4), "z": (8, 16)},
        expected=[
            Reduction(operation="max", outputs=1, reduced=8, dtype=F32, output=spec()),
            loop("div", [A], A),
        ],
    ),
    "a reduction of fewer than eight elements is computed where it is used": Case(
        nodes="s = ReduceSum<keepdims=0>(x, second)\ny = ReduceMean<axes=[2,3],keepdims=0>(s)",
        inputs={"x": (2, 2, 8, 16, 16)},
        constants={"second": [1]},
        expected=[
            Reduction(
                operation="mean",
                outputs=16,
                reduced=256,
                dtype=F32,
                output=spec(2, 8),
                fused=("add",),
                extra_inputs=(spec(16 * 256),),
            )
        ],
    ),
    "a reduction of fewer than eight elements computes its operand as often": Case(
        nodes="a = Relu(x)\ny = ReduceMean<axes=[1],keepdims=0>(a)",
        inputs={"x": (8, 3, 16)},
        expected=[loop("relu add add div", [spec(8, 3, 16)], A)],
    ),
    "an output on the way is written by the same kernel": Case(
        nodes="s = Add(x, z)\ny = Relu(s)",
        inputs=ROWS,
        outputs=("s", "y"),
        expected=[loop("add relu", [A, A], A, A)],
    ),
    "libraries read from memory, pointwise results are never fused into them": Case(
        nodes="s = Add(x, z)\nt = Relu(s)\np = MatMul(t, v)\nq = MatMul(t, w)\ny = Add(p, q)",
        inputs=ROWS,
        weights={"v": (16, 32), "w": (16, 32)},
        expected=[
            loop("add relu", [A, A], A),
            product(8, 32, 16),
            product(8, 32, 16),
            loop("add", [spec(8, 32), spec(8, 32)], spec(8, 32)),
        ],
    ),
    "up to four reads: computed again by each user": Case(
        nodes="s = Add(x, z)\nu = Softmax<axis=1>(s)\nv = Softmax<axis=0>(s)",
        inputs=ROWS,
        outputs=("u", "v"),
        # along the other axis rows don't lie one after the other: what a row has in common is written, and read again
        expected=[
            softmax(8, 16, "add", (A,)),
            statistics(16, 8, "add", (A,), inner=16),
            loop("add sub exp div", [A, A, B, B], A),
        ],
    ),
    "five reads: written by the first user's kernel, read by the second": Case(
        nodes=SUM_OF_FIVE + "\nu = Softmax<axis=1>(s)\nv = Softmax<axis=0>(s)",
        inputs=FIVE,
        outputs=("u", "v"),
        expected=[
            Softmax(
                rows=8,
                cols=16,
                dtype=F32,
                fused=("add",) * 4,
                extra_inputs=(A,) * 4,
                extra_outputs=(A,),
                generated=True,
            ),
            statistics(16, 8, inner=16),
            loop("sub exp div", [A, B, B], A),
        ],
    ),
    "a kernel does not merge with its producer around a library call": Case(
        nodes=SUM_OF_FIVE + "\np = MatMul(s, w)\ny = Sub(p, s)",
        inputs=FIVE,
        weights={"w": (16, 16)},
        expected=[loop("add add add add", [A] * 5, A), product(8, 16, 16), loop("sub", [A, A], A)],
    ),
    "it does where nothing that it waits for comes later": Case(
        nodes=SUM_OF_FIVE + "\np = MatMul(s, w)\nt = Sub(z, s)\ny = Add(p, t)",
        inputs={**FIVE, "z": (8, 16)},
        weights={"w": (16, 16)},
        outputs=("y", "t"),
        expected=[product(8, 16, 16), loop("add add add add sub", [A] * 6, A, A), loop("add", [A, A], A)],
    ),
    "scale and mask before a softmax, a product after it": Case(
        nodes="s = Mul(x, c)\nm = Add(s, mask)\np = Softmax<axis=-1>(m)\ny = Mul(p, z)",
        inputs={"x": (2, 4, 8, 16), "mask": (2, 1, 1, 16), "z": (2, 4, 8, 16)},
        constants={"c": 0.125},
        expected=[softmax(64, 16, "mul add mul", (spec(2, 1, 1, 16), spec(2, 4, 8, 16)))],
    ),
    "a mask that is computed once is computed in the softmax": Case(
        nodes="n = Not(keep)\nm = Where(n, low, x)\ny = Softmax<axis=-1>(m)",
        inputs={"x": (2, 8, 16), "keep": (8, 16)},
        types={"keep": TensorProto.BOOL},
        constants={"low": -1e9},
        # the recognised masked softmax keeps its selection; the mask itself must be in memory
        expected=[
            loop("not", [spec(8, 16, dtype=BOOL)], spec(8, 16, dtype=BOOL)),
            softmax(16, 16, "where", (spec(8, 16, dtype=BOOL),)),
        ],
    ),
    "a residual of two reads is added in the normalization and again later": Case(
        nodes="""s = Add(x, z)
                 n = LayerNormalization<axis=-1>(s, gamma, beta)
                 p = MatMul(n, w)
                 y = Add(p, s)""",
        inputs=ROWS,
        weights={**NORM, "w": (16, 16)},
        expected=[layer_norm(8, 16, "add", (A,)), product(8, 16, 16), loop("add add", [A, A, A], A)],
    ),
    "one of five reads is written by the normalization": Case(
        nodes=SUM_OF_FIVE
        + """
                 n = LayerNormalization<axis=-1>(s, gamma, beta)
                 p = MatMul(n, w)
                 y = Add(p, s)""",
        inputs=FIVE,
        weights={**NORM, "w": (16, 16)},
        expected=[
            layer_norm(8, 16, "add add add add", (A,) * 4, (A,)),
            product(8, 16, 16),
            loop("add", [A, A], A),
        ],
    ),
    "two normalizations over the same rows": Case(
        nodes="n = LayerNormalization<axis=-1>(x, gamma, beta)\ny = LayerNormalization<axis=-1>(n, gamma, beta)",
        inputs=ROW,
        weights=NORM,
        expected=[layer_norm(8, 16, "layer")],
    ),
    "a mean and what is done to its rows": Case(
        nodes="m = ReduceMean<axes=[1]>(x)\ny = Sub(x, m)",
        inputs=ROW,
        expected=[Reduction(operation="mean", outputs=8, reduced=16, dtype=F32, output=A, fused=("sub",))],
    ),
    "a mean, its square root, both small": Case(
        nodes="q = Mul(x, x)\nm = ReduceMean<axes=[1]>(q)\ny = Sqrt(m)",
        inputs=ROW,
        expected=[
            Reduction(
                operation="mean",
                outputs=8,
                reduced=16,
                dtype=F32,
                output=spec(8, 1),
                fused=("mul",),
                epilogue=("sqrt",),
            )
        ],
    ),
    "a statistic of rows and its use: what is one number a row stands apart": Case(
        nodes="""q = Mul(x, x)
                 m = ReduceMean<axes=[1]>(q)
                 e = Add(m, epsilon)
                 s = Exp(e)
                 h = Div(x, s)
                 y = Relu(h)""",
        inputs=ROW,
        outputs=("y", "s"),
        constants={"epsilon": 1e-5},
        expected=[
            Reduction(
                operation="mean",
                outputs=8,
                reduced=16,
                dtype=F32,
                output=A,
                fused=("mul", "div", "relu"),
                epilogue=("add", "exp"),
                extra_outputs=(spec(8, 1),),
            )
        ],
    ),
    "a mean over the first axis is no statistic of rows": Case(
        nodes="m = ReduceMean<axes=[0]>(x)\ny = Sub(x, m)",
        inputs=ROW,
        expected=[
            Reduction(operation="mean", outputs=16, reduced=8, inner=16, dtype=F32, output=spec(1, 16)),
            loop("sub", [A, spec(1, 16)], A),
        ],
    ),
    "scans stay library calls": Case(
        nodes="s = Add(x, z)\nc = CumSum(s, axis)\ny = Relu(c)",
        inputs=ROWS,
        constants={"axis": 1},
        expected=[
            loop("add", [A, A], A),
            Reduction(operation="cumsum", outputs=8, reduced=16, dtype=F32, output=A),
            loop("relu", [A], A),
        ],
    ),
    "the bias of a product goes to pointwise users": Case(
        nodes="p = MatMul(x, w)\nh = Add(p, b)\ny = Tanh(h)",
        inputs=ROW,
        weights={"w": (16, 32), "b": (32,)},
        expected=[product(8, 32, 16), loop("add tanh", [spec(8, 32), spec(32)], spec(8, 32))],
    ),
    "it stays where a reduction uses the result, too": Case(
        nodes="p = MatMul(x, w)\nh = Add(p, b)\ny = Softmax<axis=-1>(h)",
        inputs=ROW,
        weights={"w": (16, 32), "b": (32,)},
        expected=[product(8, 32, 16, "bias"), softmax(8, 32)],
    ),
    "convolution, batch normalization, activation": Case(
        nodes="""c = Conv<kernel_shape=[1, 1]>(x, w, b)
                 n = BatchNormalization(c, scale, shift, mean, variance)
                 y = Relu(n)""",
        inputs={"x": (2, 3, 5, 5)},
        weights={"w": (4, 3, 1, 1), **dict.fromkeys(("b", "scale", "shift", "mean", "variance"), (4,))},
        expected=[
            Conv(
                n=2,
                c=3,
                k=4,
                spatial=(5, 5),
                out=(5, 5),
                filter=(1, 1),
                strides=(1, 1),
                dilations=(1, 1),
                dtype=F32,
            ),
            loop("add sub mul mul add relu", [spec(2, 4, 5, 5), *[spec(4, 1, 1)] * 5], spec(2, 4, 5, 5)),
        ],
    ),
    "batch normalization alone stays what it is, but generated": Case(
        nodes="y = BatchNormalization(x, scale, shift, mean, variance)",
        inputs={"x": (2, 4, 5, 5)},
        weights=dict.fromkeys(("scale", "shift", "mean", "variance"), (4,)),
        expected=[Normalization(method="batch", rows=8, cols=25, parameter_count=16, dtype=F32, generated=True)],
    ),
    "a copy before a product computes what it copies": Case(
        nodes="""s = Mul(x, c)
                 t = Transpose<perm=[0, 2, 1, 3]>(s)
                 u = Transpose<perm=[0, 2, 3, 1]>(z)
                 y = MatMul(t, u)""",
        inputs={"x": (2, 8, 4, 16), "z": (2, 8, 4, 16)},
        constants={"c": 0.25},
        expected=[
            loop("mul copy", [spec(2, 8, 4, 16)], spec(2, 4, 8, 16)),
            copy((2, 8, 4, 16), (0, 2, 3, 1)),
            Gemm(batch=8, m=8, n=8, k=16, dtype=F32),
        ],
    ),
    "views are index arithmetic, in reductions, too": Case(
        nodes="t = Transpose<perm=[1, 0]>(x)\ns = Add(t, z)\ny = Softmax<axis=-1>(s)",
        inputs={"x": (16, 8), "z": (8, 16)},
        expected=[softmax(8, 16, "add", (A,))],
    ),
    "a concatenation that pointwise work uses is part of its loop": Case(
        nodes="""l = Slice(x, start, half, axis)
                 r = Slice(x, half, end, axis)
                 n = Neg(r)
                 t = Concat<axis=1>(n, l)
                 a = Mul(t, s)
                 b = Mul(x, c)
                 y = Add(a, b)""",
        inputs={"x": (8, 16), "s": (8, 16), "c": (8, 16)},
        constants=HALVES,
        expected=[loop("neg concat mul mul add", [A] * 3, A)],
    ),
    "parts that would all be copied are computed in one loop over the result": Case(
        nodes="c = Cos(p)\nn = Mul(k, c)\ny = Concat<axis=1>(old, n)",
        inputs={"old": (4, 7, 16), "k": (4, 1, 16), "p": (16,)},
        expected=[loop("cos mul concat", [spec(4, 7, 16), spec(4, 1, 16), B], spec(4, 8, 16))],
    ),
    "products write themselves at their places, once; more than eight parts are copied one by one": Case(
        nodes="""p = MatMul(x, v)
                 q = MatMul(x, w)
                 y = Concat<axis=1>(p, q)
                 z = Concat<axis=0>(p, p, p, p, p, p, p, p, p)""",
        inputs=ROW,
        weights={"v": (16, 16), "w": (16, 16)},
        outputs=("y", "z"),
        expected=[
            product(8, 16, 16),
            product(8, 16, 16),
            *[join(A, run=128)] * 9,
        ],
    ),
    "a value whose layout a library call has settled is copied": Case(
        nodes="r = Relu(x)\np = MatMul(r, w)\ns = Tanh(p)\ny = Concat<axis=1>(r, s)",
        inputs=ROW,
        weights={"w": (16, 16)},
        # with the part that is computed: in one loop
        expected=[loop("relu", [A], A), product(8, 16, 16), loop("tanh concat", [A, A], spec(8, 32))],
    ),
    "half of a pointwise value needs half of its operands": Case(
        nodes="s = Add(x, z)\nl = Slice(s, start, half, axis)\ny = Relu(l)",
        inputs=ROWS,
        constants=HALVES,
        expected=[loop("add relu", [spec(64), spec(64)], spec(8, 8))],
    ),
    "embeddings, their sum and its normalization": Case(
        nodes="""w = Gather(words, ids)
                 p = Gather(places, at)
                 s = Add(w, p)
                 y = LayerNormalization<axis=-1>(s, gamma, beta)""",
        inputs={"ids": (2, 4), "at": (1, 4)},
        types={"ids": TensorProto.INT64, "at": TensorProto.INT64},
        weights={"words": (100, 16), "places": (4, 16), **NORM},
        expected=[layer_norm(8, 16, "gather gather add", (spec(8, 1, dtype=I64), spec(4, 16), spec(4, 1, dtype=I64)))],
    ),
    "a cast in between": Case(
        nodes="k = Greater(x, z)\nf = Cast<to=1>(k)\ny = Mul(x, f)",
        inputs=ROWS,
        expected=[loop("gt cast mul", [A, A], A)],
    ),
    "what nothing uses is dropped": Case(
        nodes="d = Exp(x)\ne = Tanh(d)\ny = Relu(x)",
        inputs=ROW,
        expected=[loop("relu", [A], A)],
    ),
    "nine reads are written, and the kernel that reads them merges": Case(
        nodes="s = Sum(" + ", ".join(f"i{index}" for index in range(9)) + ")\ny = Relu(s)",
        inputs={f"i{index}": (8, 16) for index in range(9)},
        expected=[loop("add " * 8 + "relu", [A] * 9, A)],
    ),
    "resizing is a loop, and what is made from one load is made anew in it": Case(
        nodes='r = Relu(x)\nu = Resize<mode="nearest">(r, , scales)\ny = Relu(u)',
        inputs={"x": (1, 2, 4, 4)},
        constants={"scales": [1.0, 1.0, 2.0, 2.0]},
        expected=[loop("relu copy relu", [spec(1, 2, 4, 4)], spec(1, 2, 8, 8))],
    ),
    "what is made from two is written first": Case(
        nodes='s = Add(x, z)\nu = Resize<mode="linear">(s, , scales)\ny = Relu(u)',
        inputs={"x": (1, 2, 4, 4), "z": (1, 2, 4, 4)},
        constants={"scales": [1.0, 1.0, 2.0, 2.0]},
        expected=[
            loop("add", [spec(1, 2, 4, 4)] * 2, spec(1, 2, 4, 4)),
            loop("copy mul " * 4 + "relu", [spec(1, 2, 4, 4)], spec(1, 2, 8, 8)),
        ],
    ),
    "an interpolation that runs apart from its user leaves two values": Case(
        nodes="""u = Resize<mode="linear">(x, , scales)
                 t = Transpose<perm=[0,2,3,1]>(u)
                 y = Softmax(t)""",
        inputs={"x": (1, 2, 4, 4)},
        constants={"scales": [1.0, 1.0, 3.0, 3.0]},
        expected=[
            loop("copy mul " * 4, [spec(1, 2, 4, 4)], spec(1, 2, 12, 12), spec(1, 2, 12, 12)),
            softmax(144, 2, "add", (spec(1, 2, 12, 12),)),
        ],
    ),
    "of twice the size one, the result": Case(
        nodes="""u = Resize<mode="linear">(x, , scales)
                 t = Transpose<perm=[0,2,3,1]>(u)
                 y = Softmax(t)""",
        inputs={"x": (1, 2, 4, 4)},
        constants={"scales": [1.0, 1.0, 2.0, 2.0]},
        expected=[
            Movement(
                operation="resize",
                dtype=F32,
                shape=(1, 2, 8, 8),
                read=128,
                written=512,
                flops_per_element=6,
                taps=4,
                library=GENERATED,
            ),
            softmax(64, 2),
        ],
    ),
    "in 16 bits its last step reads the operand again": Case(
        nodes="""c = Cast<to=10>(x)
                 u = Resize<mode="linear">(c, , scales)
                 t = Transpose<perm=[0,2,3,1]>(u)
                 y = Concat<axis=1>(t, row)
                 z = Relu(y)""",
        inputs={"x": (1, 2, 4, 4)},
        constants={"scales": [1.0, 1.0, 2.0, 2.0]},
        weights={"row": (1, 1, 8, 2)},
        types={"row": TensorProto.FLOAT16},
        outputs=("z",),
        expected=[
            loop("cast " + "copy mul " * 4, [spec(1, 2, 4, 4)], spec(1, 2, 8, 8), spec(1, 2, 8, 8)),
            loop(
                "add concat relu",
                [spec(1, 2, 4, 4), *[spec(1, 2, 8, 8)] * 2, spec(1, 1, 8, 2, dtype=F16)],
                spec(1, 9, 8, 2, dtype=F16),
            ),
        ],
    ),
    "cubic interpolation leaves its result, which is FP32 until it is used": Case(
        nodes="""c = Cast<to=10>(x)
                 u = Resize<mode="cubic">(c, , scales)
                 t = Transpose<perm=[0,2,3,1]>(u)
                 y = Concat<axis=1>(t, row)
                 z = Relu(y)""",
        inputs={"x": (1, 2, 4, 4)},
        constants={"scales": [1.0, 1.0, 2.0, 2.0]},
        weights={"row": (1, 1, 8, 2)},
        types={"row": TensorProto.FLOAT16},
        outputs=("z",),
        expected=[
            loop("cast " + "copy mul " * 16, [spec(1, 2, 4, 4)], spec(1, 2, 8, 8)),
            loop("cast concat relu", [spec(1, 2, 8, 8), spec(1, 1, 8, 2, dtype=F16)], spec(1, 9, 8, 2, dtype=F16)),
        ],
    ),
    "resizing alone": Case(
        nodes='y = Resize<mode="nearest">(x, , scales)',
        inputs={"x": (1, 2, 4, 4)},
        constants={"scales": [1.0, 1.0, 2.0, 2.0]},
        expected=[
            Movement(
                operation="resize", dtype=F32, shape=(1, 2, 8, 8), read=128, written=512, taps=1, library=GENERATED
            )
        ],
    ),
    "a small window is a loop, too": Case(
        nodes="s = Add(x, z)\np = MaxPool<kernel_shape=[2,2], strides=[2,2]>(s)\ny = Relu(p)",
        inputs={"x": (1, 2, 4, 4), "z": (1, 2, 4, 4)},
        expected=[
            loop("add", [spec(1, 2, 4, 4)] * 2, spec(1, 2, 4, 4)),
            loop("where max " * 4 + "relu", [spec(1, 2, 4, 4)], spec(1, 2, 2, 2)),
        ],
    ),
    "what is pooled for two, which takes six loads, is pooled once": Case(
        nodes="p = AveragePool<kernel_shape=[2,3]>(x)\na = Relu(p)\nb = Exp(p)\ny = Concat<axis=1>(a, b)",
        inputs={"x": (1, 2, 4, 4)},
        expected=[
            loop("where add " * 6, [spec(1, 2, 4, 4)], spec(1, 2, 3, 2)),
            loop("relu exp concat", [spec(1, 2, 3, 2)], spec(1, 4, 3, 2)),
        ],
    ),
    "of a normalization that is used in part, the rest is computed for that part": Case(
        nodes="""s = Add(x, z)
                 n = LayerNormalization<axis=-1>(s, gamma, beta)
                 l = Slice(n, start, half, axis)
                 y = Relu(l)""",
        inputs=ROWS,
        constants=HALVES,
        weights=NORM,
        # as Inductor 2.9 has it: mean and variance of each row, then half of both operands again
        expected=[
            Reduction(
                operation="layer",
                outputs=8,
                reduced=16,
                dtype=F32,
                output=spec(2, 8),
                fused=("add",),
                extra_inputs=(A,),
            ),
            loop(
                "add sub mul mul add relu",
                [spec(64), spec(64), spec(8, 1), spec(8, 1), spec(16), spec(16)],
                spec(8, 8),
            ),
        ],
    ),
    "few long rows are reduced in two kernels, and what is done with them runs apart": Case(
        nodes="y = Softmax<axis=-1>(x)",
        inputs={"x": (4, 20000)},
        expected=[
            Reduction(operation="softmax", outputs=4, reduced=20000, dtype=F32, output=spec(2, 4)),
            Reduction(operation="softmax", outputs=4, reduced=3, dtype=F32, output=spec(2, 4)),
            loop("sub exp div", [spec(4, 20000), spec(4, 1), spec(4, 1)], spec(4, 20000)),
        ],
    ),
    "average pooling of a whole image is a mean": Case(
        nodes="r = Relu(x)\ny = GlobalAveragePool(r)",
        inputs={"x": (2, 4, 8, 8)},
        expected=[
            Reduction(operation="mean", outputs=8, reduced=64, dtype=F32, output=spec(2, 4, 1, 1), fused=("relu",))
        ],
    ),
    "a large window is a call": Case(
        nodes="p = MaxPool<kernel_shape=[4,7]>(x)\ny = Relu(p)",
        inputs={"x": (1, 2, 8, 8)},
        expected=[
            Pooling(operation="max", input=spec(1, 2, 8, 8), output=spec(1, 2, 5, 2), window=28),
            loop("relu", [spec(1, 2, 5, 2)], spec(1, 2, 5, 2)),
        ],
    ),
}


def graph_of(case: Case) -> InferredGraph:
    return inferred(
        case.nodes,
        case.inputs,
        weights=case.weights,
        constants=case.constants,
        types=case.types,
        outputs=case.outputs,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_kernels(case: Case) -> None:
    works = compiled(graph_of(case))
    assert [without_moves(kernel) for work in works for kernel in work.kernels] == case.expected


def without_moves(kernel: Kernel) -> Kernel:
    """The kernel but for what it does to places, which ``test_moves`` looks at."""
    return replace(kernel, moves=()) if getattr(kernel, "moves", ()) else kernel


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "a copy before a product computes what it copies", [[copy((2, 8, 4, 16), (0, 2, 1, 3))]], id="copy"
        ),
        pytest.param(
            "embeddings, their sum and its normalization",
            [["embedding", "embedding"]],
            id="look-ups before a normalization",
        ),
        pytest.param(
            "views are index arithmetic, in reductions, too", [[copy((8, 16), (1, 0))]], id="orders that differ"
        ),
        pytest.param("a chain is one kernel; a broadcast vector is read as it is, a number not at all", [], id="none"),
    ],
)
def test_moves(name: str, expected: list[list[object]]) -> None:
    """A kernel lists what it does to the places of elements, each as it would be by itself."""
    works = compiled(graph_of(CASES[name]))
    found = [moves for work in works for kernel in work.kernels if (moves := getattr(kernel, "moves", ()))]
    named = [[move if isinstance(move, Movement) else move.operation for move in moves] for moves in found]
    assert named == expected
    assert all(move.library == GENERATED for moves in found for move in moves)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_node_is_accounted_for_once(case: Case) -> None:
    graph = graph_of(case)
    works = compiled(graph)
    recognised = recognise(graph, runtime="compiled").graph.nodes
    assert [work.node for work in works] == [node.name for node in recognised]
    assert all((work.kernels != ()) + (work.free is not None) == 1 for work in works)
    carried = {name for work in works if work.kernels for name, _ in work.origins}
    for work in works:
        assert (work.free or "").startswith("merged into") <= carried.issuperset(name for name, _ in work.origins)


def test_the_last_node_carries_the_kernel_and_names_all() -> None:
    works = {
        work.op_type: work for work in compiled(graph_of(CASES["an output on the way is written by the same kernel"]))
    }
    assert [op_type for _, op_type in works["Relu"].origins] == ["Add", "Relu"]
    assert works["Add"].free == f"merged into the kernel of {works['Relu'].node}"
    assert works["Add"].merged_into == works["Relu"].node
    assert works["Add"].written
    assert not works["Relu"].written


HEADS = """q = Transpose<perm=[0, 2, 1, 3]>(a)
k = Transpose<perm=[0, 2, 3, 1]>(b)
v = Transpose<perm=[0, 2, 1, 3]>(c)
"""
TWICE = HEADS.replace("k = Transpose<perm=[0, 2, 3, 1]>(b)", "h = Transpose<perm=[0, 2, 1, 3]>(b)\nk = SWAP(h)")
TWICE = TWICE.replace("SWAP", "Transpose<perm=[0, 1, 3, 2]>")
HALVED = HEADS.replace("perm=[0, 2, 1, 3]>(c)", "perm=[2, 1, 0, 3]>(c)")
DIV, MUL = "s = Div(p, number)\n", "s = Mul(p, number)\n"
MASK = DIV.replace("s =", "t =") + "s = Add(t, mask)\n"
PLAIN = "s = Identity(p)\n"
ATTENTION = [
    # batch, before, scale, whether PyTorch 2.9 has a pattern (what 2.9.1 makes of each)
    pytest.param(2, HEADS, DIV, True, id="permuted and divided"),
    pytest.param(2, TWICE, DIV, True, id="keys transposed apart"),
    pytest.param(2, HEADS, MUL, False, id="multiplied, with copies"),
    pytest.param(1, HEADS, MUL, True, id="multiplied, without copies"),
    pytest.param(2, HALVED, DIV, False, id="values permuted otherwise"),
    pytest.param(1, HEADS, MASK, True, id="masked"),
    pytest.param(2, HEADS, MASK, True, id="divided and masked, with copies"),
    pytest.param(1, HEADS, MASK.replace("Div", "Mul"), False, id="multiplied and masked"),
    pytest.param(1, HEADS, PLAIN, False, id="not scaled"),
]


@pytest.mark.parametrize(("batch", "before", "scale", "replaced"), ATTENTION)
def test_attention_is_replaced_where_a_pattern_exists(batch: int, before: str, scale: str, replaced: bool) -> None:
    graph = inferred(
        before + "p = MatMul(q, k)\n" + scale + "w = Softmax<axis=-1>(s)\ny = MatMul(w, v)",
        {
            **dict.fromkeys("ab", (batch, 8, 4, 16)),
            "c": (8, 4, batch, 16) if before is HALVED else (batch, 8, 4, 16),
            "mask": (1, 1, 1, 8),
        },
        constants={"number": 4.0},
    )
    found = replace_attention(recognise(graph, runtime="compiled"))
    lowered = lower_laid_out(found, runtime="compiled")
    works = merge_loops(found, lowered.works, lowered.strides)
    kernels = [kernel for work in works for kernel in work.kernels]
    if replaced:
        mask = spec(1, 1, 1, 8) if scale is MASK else None
        assert kernels == [Attention(b=batch, h=4, g=4, s=8, t=8, d=16, v=16, mask=mask, dtype=F32)]
        added = {"Add"} if scale is MASK else set()
        assert {op_type for _, op_type in works[-1].origins} == {"MatMul", "Softmax", scale[4:7], *added}
    else:
        assert not any(isinstance(kernel, Attention) for kernel in kernels)
        assert sum(isinstance(kernel, Gemm) for kernel in kernels) == 2


def test_attention_whose_weights_are_an_output_stays() -> None:
    nodes = HEADS + "p = MatMul(q, k)\n" + DIV + "w = Softmax<axis=-1>(s)\ny = MatMul(w, v)"
    graph = inferred(nodes, dict.fromkeys("abc", (2, 8, 4, 16)), constants={"number": 4.0}, outputs=("w", "y"))
    found = recognise(graph, runtime="compiled")
    assert replace_attention(found) is found


BODY = """<ir_version: 9, opset_import: ["": 17]>
g (float[8, 16] x, bool stop) => (float[8, 16] y) {
  a = Relu(x)
  trips = Constant<value_int = 5>()
  b = Loop(trips, stop, a) <body = g (int64 i, bool c, float[8, 16] s) => (bool c2, float[8, 16] s2) {
    c2 = Identity(c)
    u = Add(s, a)
    s2 = Tanh(u)
  }>
  y = Relu(b)
}"""


def test_nothing_merges_across_a_body() -> None:
    graph = infer(read_model_bytes(parser.parse_model(BODY).SerializeToString()), Bindings())
    found = [(kernel, work.count) for work in compiled(graph) for kernel in work.kernels]
    assert found == [(loop("relu", [A], A), 1), (loop("add tanh", [A, A], A), 5), (loop("relu", [A], A), 1)]


def test_a_long_chain_takes_linear_time_and_few_kernels() -> None:
    """A value of 29 operations and a read is inlined, one more is written; 64 written values are one kernel."""

    def chain(length: int) -> tuple[int, float]:
        names = ["x", *(f"v{index}" for index in range(length))]
        nodes = "\n".join(f"{after} = Relu({before})" for before, after in pairwise(names))
        graph = inferred(nodes, {"x": (8, 16)})
        lowered = lower_laid_out(graph, runtime="compiled")
        start = time.process_time()
        works = merge_loops(graph, lowered.works, lowered.strides)
        return sum(len(work.kernels) for work in works), time.process_time() - start

    assert chain(30 * 64)[0] == 1
    assert chain(30 * 64 + 1)[0] == 2
    short, long = chain(1000)[1], chain(8000)[1]
    assert long < 40 * max(short, 1e-3)


TRANSFORMER = """<ir_version: 9, opset_import: ["": 17]>
g (float[4, 64, 128] x) => (float[4, 64, 128] y)
{
  p = MatMul(x, w)
  h = Add(p, b)
  t = Tanh(h)
  q = MatMul(t, v)
  s = Add(q, x)
  y = LayerNormalization<axis = -1>(s, gamma, beta)
}"""


def test_compiled_is_not_slower_than_eager_and_counts_the_same_nodes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = parser.parse_model(TRANSFORMER)
    for name, shape in {"w": (128, 128), "v": (128, 128), "b": (128,), "gamma": (128,), "beta": (128,)}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
    path.write_bytes(model.SerializeToString())
    eager, merged = (analyze(path, gpu="a100", runtime=runtime) for runtime in ("eager", "compiled"))
    assert len(eager.kernels) == 5
    assert len(merged.kernels) == 4
    assert merged.totals.kernel_ms < eager.totals.kernel_ms
    assert merged.totals.latency_ms < eager.totals.latency_ms
    assert merged.coverage.node_count == eager.coverage.node_count == 6
    assert merged.coverage.kernel_node_count == eager.coverage.kernel_node_count == 6
    assert merged.totals.macs == eager.totals.macs
    assert merged.totals.memory.weight_bytes == eager.totals.memory.weight_bytes


def test_between_batch_norm_and_silu_float32_lies_in_memory_and_channels_last_is_read_again() -> None:
    """Squeeze and excitation as Inductor 2.9 compiles it under autocast: batch norm writes FP32, as SiLU computes in it
    and takes it twice; the mean over an image whose channels lie together reads that, and so does the product."""
    image = (8, 64, 14, 14)
    graph = inferred(
        """c = Conv(x, w)
           b = BatchNormalization(c, s, t, m, v)
           g = Sigmoid(b)
           a = Mul(b, g)
           p = GlobalAveragePool(a)
           y = Mul(a, p)""",
        {"x": (8, 3, 14, 14)},
        weights={"w": (64, 3, 1, 1), **dict.fromkeys("stmv", (64,))},
    )
    cast = autocast(recognise(graph, runtime="compiled"), DataType.FLOAT16, runtime="compiled")
    lowered = lower_laid_out(cast, runtime="compiled", order=Order(ranks=frozenset({4})))
    kernels = [kernel for work in merge_loops(cast, lowered.works, lowered.strides) for kernel in work.kernels]
    written, mean, product = kernels[-3:]
    assert isinstance(written, Elementwise)
    assert isinstance(mean, Reduction)
    assert isinstance(product, Elementwise)
    assert (written.operations, written.output) == (("sub", "mul", "mul", "add"), spec(*image))
    assert (mean.operation, mean.fused, mean.dtype, mean.extra_inputs) == ("mean", ("silu",), F32, ())
    assert product.operations == ("silu", "mul")
    assert product.inputs[0] == spec(*image)


@pytest.mark.parametrize(("to", "stored"), [("1", F32), ("7", DataType.FLOAT16)], ids=["to float32", "to int64"])
def test_what_is_cast_up_lies_in_memory_as_it_was_computed(to: str, stored: DataType) -> None:
    """A value of 16 bits with five reads and two users is written; ELU computed it in FP32, as a cast to it wants.

    A cast to integers is no second conversion between floating-point types, however many bytes it writes.
    """
    graph = inferred(
        f"""s = Sum(a, b, c, d, e)
            f = Elu(s)
            g = Transpose <perm = [1, 0]> (f)
            h = Cast <to = {to}> (f)
            y = ReduceMax <axes = [0], keepdims = 0> (h)
            z = Softmax(g)""",
        dict.fromkeys("abcde", (64, 32)),
        types=dict.fromkeys("abcde", TensorProto.FLOAT16),
        outputs=["y", "z"],
    )
    (written,) = [
        kernel
        for work in compiled(graph)
        for kernel in work.kernels
        if isinstance(kernel, Elementwise) and "elu" in kernel.operations
    ]
    assert written.output == spec(64, 32, dtype=stored)
