"""What lookups and reorderings take stays in the kernels that compilers merge them into."""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import Any

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.gpu import load_gpu
from neusight_onnx.predictor import Prediction, predict
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import RUNTIMES

ROWS, IMAGES = (4096, 4096), (16, 64, 56, 56)
MOVES: dict[str, tuple[str, dict[str, tuple[int, ...]], dict[str, object]]] = {
    "Gather of rows": ("Gather(x, i)", {"x": (32000, 2048), "i": (4096,)}, {}),
    "Gather of columns": ("Gather<axis=1>(x, i)", {"x": ROWS, "i": (2048,)}, {}),
    "GatherElements": ("GatherElements<axis=1>(x, i)", {"x": ROWS, "i": ROWS}, {}),
    "GatherND": ("GatherND(x, i)", {"x": ROWS, "i": (4096, 1)}, {}),
    "Concat": ("Concat<axis=1>(x, z)", {"x": (4096, 1024), "z": (4096, 3072)}, {}),
    "Transpose": ("Transpose<perm=[1, 0]>(x)", {"x": ROWS}, {}),
    "Transpose of heads": ("Transpose<perm=[0, 2, 1, 3]>(x)", {"x": (16, 1024, 16, 64)}, {}),
    "Slice": ("Slice(x, start, end, axis)", {"x": ROWS}, {"start": [0], "end": [2048], "axis": [1]}),
    "Pad": ("Pad(x, p)", {"x": IMAGES}, {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
    "Expand": ("Expand(x, s)", {"x": (1, 4096)}, {"s": [4096, 4096]}),
    "Tile": ("Tile(x, s)", {"x": ROWS}, {"s": [2, 1]}),
    "DepthToSpace": ("DepthToSpace<blocksize=2>(x)", {"x": IMAGES}, {}),
    "Resize": ('Resize<mode="nearest">(x, , f)', {"x": IMAGES}, {"f": [1.0, 1.0, 2.0, 2.0]}),
}


def types_of(inputs: Iterable[str]) -> dict[str, int]:
    return {name: TensorProto.INT64 if name == "i" else TensorProto.FLOAT16 for name in inputs}


def run(nodes: str, inputs: dict[str, tuple[int, ...]], constants: Any, runtime: str, name: str) -> list[Prediction]:
    graph = inferred(nodes, inputs, constants=constants, types=types_of(inputs))
    works = works_of(fused_graph(graph, RUNTIMES[runtime]), RUNTIMES[runtime])
    return list(predict([kernel for work in works for kernel in work.kernels], load_gpu(name)))


@pytest.mark.parametrize("name", ["a100-pcie-40gb", "rtx-4090", "t4", "mi300x"])
@pytest.mark.parametrize("runtime", ["compiled", "tensorrt"])
@pytest.mark.parametrize("move", MOVES)
def test_a_function_behind_a_move_makes_it_no_quicker(move: str, runtime: str, name: str) -> None:
    """Nor does it take longer than both kernels apart."""
    if runtime == "tensorrt" and name == "mi300x":
        pytest.skip("TensorRT is NVIDIA's")
    nodes, inputs, constants = MOVES[move]
    moved = inferred(f"y = {nodes}", inputs, constants=constants, types=types_of(inputs)).values["y"]
    assert moved.shape is not None
    alone = sum(answer.latency_us for answer in run(f"y = {nodes}", inputs, constants, runtime, name))
    fused = sum(answer.latency_us for answer in run(f"t = {nodes}\ny = Relu(t)", inputs, constants, runtime, name))
    if move.startswith("Gather"):
        assert fused == pytest.approx(alone, rel=0.02)
    (apart,) = run("y = Relu(x)", {"x": moved.shape}, {}, runtime, name)
    assert 0.99 * alone <= fused <= alone + 1.01 * apart.latency_us


@pytest.mark.parametrize("runtime", ["compiled", "tensorrt"])
def test_a_fused_lookup_keeps_its_doubt(runtime: str) -> None:
    """Columns by index: a sector each, which nobody measured in a compiler's kernel."""
    nodes, inputs, constants = MOVES["Gather of columns"]
    (answer,) = run(f"t = {nodes}\ny = Relu(t)", inputs, constants, runtime, "a100-pcie-40gb")
    assert log(answer.high_us / answer.latency_us) > 0.5
    assert answer.method == "analytic"


@pytest.mark.parametrize("name", ["a100-pcie-40gb", "mi300x"])
def test_a_cast_into_another_order_is_no_quicker_than_the_order_alone(name: str) -> None:
    """What a matrix product wants dense: FP32 cast to FP16 reads twice the bytes."""
    nodes = "t = Transpose<perm=[0, 2, 1, 3]>({})\ny = MatMul(t, z)"
    shapes = {"x": (8, 16, 512, 64), "z": (8, 512, 64, 64)}
    types = dict.fromkeys("xz", TensorProto.FLOAT16)
    runtime = RUNTIMES["compiled"]

    def first(text: str, of: dict[str, int]) -> Prediction:
        works = works_of(fused_graph(inferred(text, shapes, types=of), runtime), runtime)
        return predict([kernel for work in works for kernel in work.kernels], load_gpu(name))[0]

    same = first(nodes.format("x"), types)
    cast = first("h = Cast<to=10>(x)\n" + nodes.format("h"), types | {"x": TensorProto.FLOAT})
    assert cast.latency_us > same.latency_us
