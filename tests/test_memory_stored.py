"""Memory of what layers hand on in 8 bits: graphs built by hand, bytes worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.execution import run_on
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import Declared, Graph, InferredGraph, Node, Value
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import (
    Conv,
    Elementwise,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Pooling,
    TensorSpec,
)
from neusight_onnx.memory import run_memory
from neusight_onnx.memory.stored import as_stored
from neusight_onnx.precision import FORMATS
from neusight_onnx.preparation import infer_shapes, prepare
from neusight_onnx.tactics import BETWEEN, NARROW, WIDE, at_the_borders, find_tactics

EXAMPLES = Path(__file__).parents[1] / "examples"
F16, I8, F8 = DataType.FLOAT16, DataType.INT8, DataType.FLOAT8E4M3FN
SHAPE = (1, 4, 5, 5)
"""100 elements: 200 bytes in 16 bits, 100 in 8."""
SPEC = TensorSpec(dtype=F16, shape=SHAPE)

CONV = Conv(n=1, c=4, k=4, spatial=(5, 5), out=(5, 5), filter=(1, 1), strides=(1, 1), dilations=(1, 1), dtype=I8)
INDEX = 4 * (25 + 4)
"""Workspace of a convolution: an index for each place of the output and for each channel of the 1 x 1 filter."""

GEMM = Gemm(m=10, n=10, k=10, dtype=I8, output_dtype=F16)
POOL = Pooling(operation="max", input=replace(SPEC, dtype=I8), output=replace(SPEC, dtype=I8), window=1)
RELU = Elementwise(operations=("relu",), inputs=(SPEC,), output=SPEC)
NORM = Normalization(method="layer", rows=10, cols=10, dtype=F16)
COPY = Movement(operation="copy", dtype=F16, shape=(100,), read=200, written=200)


def build(
    *nodes: Node, outputs: Sequence[str] = ("y",), bodies: dict[tuple[str, str], InferredGraph] | None = None
) -> InferredGraph:
    """x comes in; every value has 100 elements of float16."""
    names = {"x", *(name for node in nodes for name in (*node.inputs, *node.outputs))}
    return InferredGraph(
        graph=Graph(
            name="g",
            nodes=nodes,
            inputs=(Declared(name="x"),),
            outputs=tuple(Declared(name=name) for name in outputs),
            initializers={},
            declared={},
        ),
        values={name: Value(dtype=F16, shape=SHAPE) for name in names},
        bodies=bodies or {},
    )


def op(name: str, inputs: str, outputs: str) -> Node:
    return Node(name=name, op_type="Op", inputs=tuple(inputs.split()), outputs=tuple(outputs.split()))


def work(name: str, *kernels: Kernel, parts: tuple[str, ...] = ()) -> NodeWork:
    return NodeWork(node=name, op_type="Op", kernels=kernels, free=None if kernels else "a view", parts=parts)


CHAIN = build(op("1", "x", "a"), op("2", "a", "b"), op("3", "b", "c"), op("4", "c", "y"))
"""While 2 runs x, a, b are there, while 3 runs x, b, c, while 4 runs x, c, y."""


@pytest.mark.parametrize(
    ("kernels", "dtypes", "peak_bytes"),
    [
        # x, c, y: what goes out has 16 bits, whatever the kernel would write
        pytest.param((CONV, CONV, CONV, CONV), (I8, I8, I8, F16), 200 + 100 + 200 + INDEX, id="convolutions"),
        # x, b, c while 3 runs, more than x, c, y while 4 does
        pytest.param((CONV, POOL, CONV, RELU), (I8, I8, I8, F16), 200 + 100 + 100 + INDEX, id="pooling"),
        # x, b, c of products that read 8 bits and write 16
        pytest.param((GEMM, GEMM, GEMM, GEMM), (F16, F16, F16, F16), 600, id="products that write 16 bits"),
        # a, b in 8 bits; x, b, c
        pytest.param(
            (replace(GEMM, output_dtype=I8), replace(GEMM, output_dtype=I8), GEMM, GEMM),
            (I8, I8, F16, F16),
            600,
            id="products that write 8 bits",
        ),
        pytest.param(
            (
                replace(NORM, output_dtype=F8),
                replace(RELU, output=replace(SPEC, dtype=F8)),
                replace(GEMM, dtype=F8),
                GEMM,
            ),
            (F8, F8, F16, F16),
            600,
            id="norms and pointwise in FP8",
        ),
        # a layer that stays in 16 bits: x, b, c
        pytest.param((CONV, replace(CONV, dtype=F16), CONV, CONV), (I8, F16, I8, F16), 500 + INDEX, id="mixed"),
        pytest.param((replace(CONV, output_dtype=F16), CONV, CONV, CONV), (F16, I8, I8, F16), 500 + INDEX, id="wide"),
        pytest.param((COPY, COPY, COPY, COPY), (F16, F16, F16, F16), 600, id="no layer with a choice"),
    ],
)
def test_values_take_what_their_kernels_write(
    kernels: tuple[Kernel, ...], dtypes: tuple[DataType, ...], peak_bytes: int
) -> None:
    works = [work(str(at + 1), kernel) for at, kernel in enumerate(kernels)]
    found = as_stored(CHAIN, {item.node: item for item in works})
    assert tuple(found.values[name].dtype for name in "abcy") == dtypes
    assert (found is CHAIN) == (set(dtypes) == {F16})
    assert run_memory(CHAIN, works, "eager").found.peak_bytes == peak_bytes


def test_views_and_joined_results_follow_their_parts() -> None:
    graph = build(
        op("1", "x", "a"), op("2", "x", "b"), op("3", "b", "v"), op("4", "a v", "joined"), op("5", "joined", "y")
    )
    both = [work("1", CONV), work("2", CONV), work("3"), work("4", COPY, parts=("a", "v")), work("5", CONV)]
    both[3] = replace(both[3], kernels=(), free="its parts lie there", written=True)
    values = as_stored(graph, {item.node: item for item in both}).values
    assert [values[name].dtype for name in ("a", "b", "v", "joined")] == [I8, I8, I8, I8]
    one = [both[0], work("2", COPY), *both[2:]]
    values = as_stored(graph, {item.node: item for item in one}).values
    assert [values[name].dtype for name in ("a", "b", "v", "joined")] == [I8, F16, F16, F16]


def test_bodies_read_what_lies_outside_and_hand_out_16_bits() -> None:
    body = build(op("b1", "a", "inside"), op("b2", "inside", "out"), outputs=("out",))
    graph = build(op("1", "x", "a"), op("loop", "a", "y"), bodies={("loop", "body"): body})
    works = {item.node: item for item in (work("1", CONV), work("b1", CONV), work("b2", CONV))}
    found = as_stored(graph, works).bodies["loop", "body"].values
    assert [found[name].dtype for name in ("a", "inside", "out")] == [I8, I8, F16]


def test_int8_begins_behind_a_kernel_that_quantises_and_ends_where_16_bits_are_read() -> None:
    """x is quantised for 1, a view of it for 6; the results of 3 (read by a function), 5 (behind a view, by one) and 6
    (which goes out) have 16 bits, those of 1 and 2 (read by a convolution, and moved) 8."""
    graph = build(
        op("1", "x", "a"),
        op("2", "a", "b"),
        op("moved", "b", "m"),
        op("3", "m", "c"),
        op("relu", "c", "d"),
        op("5", "d", "e"),
        op("view", "e", "v"),
        op("relu2", "v", "f"),
        op("image", "x", "i"),
        op("6", "i", "y"),
    )
    names = ("1", "2", "3", "5", "6")
    rest = [work("moved", COPY), work("relu", RELU), work("view"), work("relu2", RELU), work("image")]
    wide = [*(work(name, replace(CONV, dtype=F16)) for name in names), *rest]
    found = at_the_borders(graph, [*(work(name, CONV) for name in names), *rest], wide)
    quantise = Elementwise(operations=("quantize",), inputs=(SPEC,), output=replace(SPEC, dtype=I8))
    widened = replace(CONV, output_dtype=F16)
    assert [item.kernels for item in found[:5]] == [
        (quantise, CONV),
        (CONV,),
        (widened,),
        (widened,),
        (quantise, widened),
    ]
    assert list(found[5:]) == rest
    tactics = find_tactics(graph, found, wide, products=I8, may_stay_full=False)
    assert tactics is not None
    assert [NARROW in layer.ways for layer in tactics.layers] == [True, True, False, False, False]
    assert all(BETWEEN in layer.ways for layer in tactics.layers)


def test_an_engine_in_int8_holds_half_the_activations() -> None:
    """ResNet-50's first block, batch 2: the image in float32 as the file has it, three results of 56 x 56, of 256, 256
    and 64 channels."""
    memory = analyze(
        EXAMPLES / "resnet50.onnx", gpu="l40s", dims={"batch": 2}, precision="int8", runtime="tensorrt"
    ).totals.memory
    assert memory.peak_node == "stage1.0.relu"
    assert memory.activation_bytes == 2 * (3 * 224 * 224 * 4 + (256 + 256 + 64) * 56 * 56)


def test_the_page_says_what_an_engine_holds() -> None:
    page = (EXAMPLES.parent / "docs" / "memory.md").read_text("utf-8")
    said = re.search(r"ResNet-50, 8 images: (\S+) MB of activations in FP16, (\S+) in\s+INT8", page)
    assert said is not None
    for precision, megabytes in zip(("fp16", "int8"), said.groups(), strict=True):
        report = analyze(EXAMPLES / "resnet50.onnx", gpu="a100", batch=8, precision=precision, runtime="tensorrt")
        assert f"{report.totals.memory.activation_bytes / 1e6:.1f}" == megabytes


def test_layers_that_stay_in_16_bits_on_a_gpu_hand_on_16_bits_there() -> None:
    shaped = infer_shapes(read_model(EXAMPLES / "resnet50.onnx"), Bindings(dims={"batch": 2}))
    narrow, wide = (prepare(shaped, precision=FORMATS[name], runtime="tensorrt") for name in ("int8", "fp16-model"))
    assert narrow.tactics is not None
    # as if each layer in int8 took nine kernels; the image and the classes are float32's in either case
    slow = [
        replace(layer, ways={WIDE: layer.ways[WIDE], NARROW: tuple(9 * way for way in layer.ways[NARROW])})
        if layer.is_narrowable
        else layer
        for layer in narrow.tactics.layers
    ]
    there = replace(narrow, tactics=replace(narrow.tactics, layers=tuple(slow)))
    kept, chosen = run_on(there, load_gpu("l40s")).memory, run_on(narrow, load_gpu("l40s")).memory
    image = 2 * 3 * 224 * 224
    assert kept.found.peak_bytes == wide.memory.found.peak_bytes + image * (4 - 2)
    assert sum(kept.weights) == sum(wide.memory.weights)
    assert chosen.found.peak_bytes < 0.6 * kept.found.peak_bytes
