"""Where TensorRT rounds: QuantizeLinear in front of, DequantizeLinear behind what hands elements on.

Each row is a graph that TensorRT for RTX 1.7 was asked about (``benchmarks/trt_quantized.py``): two INT8 convolutions
of 2 x 4 x 6 x 6 numbers, what stands behind them, and an INT8 convolution that reads it.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import KERNEL_CLASSES, Conv, Kernel
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import get_runtime

I8 = TensorProto.INT8
TYPES = {"x": I8, "w": I8, "v": I8, "z": I8}
SCALES = {"s": 0.5, "same": 0.5, "s2": 0.25, "s3": 0.125}
HEAD = """
    xd = DequantizeLinear(x, s, z)
    wd = DequantizeLinear<axis=0>(w, cs)
    c = Conv<pads=[1, 1, 1, 1]>(xd, wd)
    a = Relu(c)
"""
SECOND = """
    vd = DequantizeLinear<axis=0>(v, cs)
    d = Conv<pads=[1, 1, 1, 1]>(xd, vd)
    b = Swish(d)
"""


def pair(source: str, target: str, scale: str = "s") -> str:
    return f"{target}q = QuantizeLinear({source}, {scale}, z)\n{target} = DequantizeLinear({target}q, {scale}, z)\n"


INTEGERS, FLOATS = "conv int8 -> int8", "conv int8 -> float32"
N = 2 * 4 * 6 * 6
POOL = "MaxPool<kernel_shape=[2, 2], strides=[2, 2]>"
READ = "y = Conv<pads=[1, 1, 1, 1]>(q, wd)"

MOVED = {
    "maxima, rounded behind": (
        f"p = {POOL}(a)\n{pair('p', 'q')}{READ}",
        [INTEGERS, f"pooling {N} -> {N // 4}", FLOATS],
    ),
    "maxima, rounded before": (
        f"{pair('a', 'p')}q = {POOL}(p)\n{READ}",
        [INTEGERS, f"pooling {N} -> {N // 4}", FLOATS],
    ),
    "nearest places": (
        f'p = Resize<mode="nearest">(a, , grow)\n{pair("p", "q")}{READ}',
        [INTEGERS, f"movement {N} -> {4 * N}", FLOATS],
    ),
    "places between": (
        f'p = Resize<mode="linear">(a, , grow)\n{pair("p", "q")}{READ}',
        [FLOATS, f"movement {4 * N} -> {4 * N}", FLOATS],
    ),
    "parts in floats are written by what rounds them": (
        f"m = Concat<axis=0>(a, b)\n{pair('m', 'q')}{READ}",
        [INTEGERS, INTEGERS, FLOATS],
    ),
    "parts rounded alike": (
        f"{pair('a', 'aa')}{pair('b', 'bb', 'same')}q = Concat<axis=0>(aa, bb)\n{READ}",
        [INTEGERS, INTEGERS, FLOATS],
    ),
    "parts rounded otherwise are rounded anew": (
        f"{pair('a', 'aa')}{pair('b', 'bb', 's2')}m = Concat<axis=0>(aa, bb)\n{pair('m', 'q', 's3')}{READ}",
        [INTEGERS, INTEGERS, f"elementwise {2 * N} -> {2 * N}", FLOATS],
    ),
    "a part that others read stays": (
        f"m = Concat<axis=0>(a, b)\n{pair('m', 'q')}{READ}\nt = Sin(a)",
        [FLOATS, INTEGERS, f"elementwise {5 * N} -> {2 * N}", FLOATS, f"elementwise {4 * N} -> {4 * N}"],
    ),
    "a slice": (
        f"p = Slice(a, zero, one, zero)\n{pair('p', 'q')}{READ}",
        [INTEGERS, f"movement {N // 2} -> {N // 2}", FLOATS],
    ),
    "a split between": (
        f"{pair('a', 'p')}l, r = Split<axis=1, num_outputs=2>(p)\nm = Concat<axis=1>(r, l)\n{pair('m', 'q')}{READ}",
        [INTEGERS, f"movement {N} -> {N}", FLOATS],
    ),
    "views": (
        f"p = Reshape(a, flat)\n{pair('p', 'r')}q = Reshape(r, shape)\n{READ}",
        [INTEGERS, FLOATS],
    ),
    "zeros around": (
        f"p = Pad(a, around)\n{pair('p', 'q')}y = Conv(q, wd)",
        [INTEGERS, f"movement {N} -> {N * 64 // 36}", FLOATS],
    ),
    "two readers that round alike": (
        f"{pair('a', 'q')}{pair('a', 'r', 'same')}{READ}\nt = Conv(r, wd)",
        [INTEGERS, FLOATS, FLOATS],
    ),
    "a mean is computed": (
        f"p = AveragePool<kernel_shape=[2, 2], strides=[2, 2]>(a)\n{pair('p', 'q')}{READ}",
        [FLOATS, f"pooling {4 * N} -> {N}", f"elementwise {N} -> {N // 4}", FLOATS],
    ),
}


def said(kernel: Kernel) -> str:
    if isinstance(kernel, Conv):
        assert kernel.dtype is DataType.INT8
        return INTEGERS if "requantize" in kernel.epilogue else FLOATS
    return f"{KERNEL_CLASSES[type(kernel)]} {kernel.read_bytes:.0f} -> {kernel.write_bytes:.0f}"


def graph_of(nodes: str) -> InferredGraph:
    return inferred(
        HEAD + (SECOND if "(a, b)" in nodes or "vd)" in nodes or "bb" in nodes else "") + nodes,
        {"x": (2, 4, 6, 6)},
        weights={"w": (4, 4, 3, 3), "v": (4, 4, 3, 3), "cs": (4,)},
        constants={
            **{name: np.float32(value) for name, value in SCALES.items()},
            "z": np.int8(0),
            "grow": np.array([1, 1, 2, 2], np.float32),
            "zero": [0],
            "one": [1],
            "flat": [2, 4, 36],
            "shape": [2, 4, 6, 6],
            "around": [0, 0, 1, 1, 0, 0, 1, 1],
        },
        types=TYPES,
        opset=24,
        outputs=("y", "t") if "\nt =" in nodes else ("y",),
    )


def kernels(nodes: str) -> list[str]:
    graph, runtime = graph_of(nodes), get_runtime("tensorrt")
    works = works_of(fused_graph(graph, runtime), runtime, parsed=graph)
    return [said(kernel) for work in works for kernel in work.kernels]


@pytest.mark.parametrize(("nodes", "expected"), MOVED.values(), ids=MOVED)
def test_where_an_engine_rounds(nodes: str, expected: list[str]) -> None:
    assert kernels(nodes) == expected


def test_every_node_of_the_file_is_in_a_kernel() -> None:
    nodes = f"{pair('a', 'r')}{pair('a', 'u', 'same')}p = {POOL}(r)\n{pair('p', 'q')}{READ}\nt = Conv(u, wd)"
    graph = graph_of(nodes)
    runtime = get_runtime("tensorrt")
    works = works_of(fused_graph(graph, runtime), runtime, parsed=graph)
    named = {name for work in works for name in (work.node, *(name for name, _ in work.origins))}
    assert {node.name for node in graph.graph.nodes} <= named


UNREAD = {
    "a dequantised input": "e = DequantizeLinear(x, s, z)\n",
    "a dequantised weight": "e = DequantizeLinear(v, s, z)\n",
    "an input rounded as it was": "e = DequantizeLinear(x, s, z)\nf = QuantizeLinear(e, s, z)\n",
}


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
def test_what_nothing_reads_changes_nothing(unread: str) -> None:
    assert kernels(f"{unread}{pair('a', 'q')}{READ}")[-2:] == [INTEGERS, FLOATS]
