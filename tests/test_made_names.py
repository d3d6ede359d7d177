"""Nodes and values that are made beside the file's own have names that no file can have."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from graphs import split, value_info
from neusight_onnx import analyze
from neusight_onnx.backward import Training, make_training
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import InferredGraph, file_name, made_name
from neusight_onnx.graph.read import read_model, read_model_bytes
from neusight_onnx.kernels import Kernel
from neusight_onnx.precision import FORMATS
from neusight_onnx.preparation import infer_shapes, prepare
from neusight_onnx.report.machine import to_json

TEXT = """
h = MatMul(x, w)
a = Add(h, b)
i = MatMul(x, w)
c = Add(i, b)
t = Transpose <perm = [1, 0]> (a)
r = Relu(t)
u = Transpose <perm = [1, 0]> (r)
s = Softmax(c)
d = Dropout(s)
j = Concat <axis = 0> (u, d)
n = BatchNormalization(j, k, k, k, k)
g = MatMul(n, v)
y = ReduceMean <axes = [1]> (g)
p = Relu(q)
o = Sigmoid(p)
"""
"""``p`` and ``o`` are a chain of another size and type of its own, which takes on the names of what is made."""

CASES = {
    "eager in 16 bits": ("eager", "fp16", None),
    "compiled": ("compiled", "fp32", None),
    "compiled in 16 bits": ("compiled", "bf16", None),
    "onnxruntime": ("onnxruntime", "fp32", None),
    "onnxruntime in 16 bits": ("onnxruntime", "fp16", None),
    "tensorrt": ("tensorrt", "fp32", None),
    "tensorrt in 16 bits": ("tensorrt", "fp16", None),
    "training": ("eager", "fp32", make_training(dropout=0.1)),
    "training, compiled": ("compiled", "fp16", make_training(dropout=0.1)),
}
OF_LOOPS = tuple(
    name
    for own in ("s", "y", "a", "c", "j")
    for name in (made_name(own, "statistics"), f"{own} statistics", made_name(own, "before bias"), f"{own} before bias")
)


def model(renamed: dict[str, str]) -> bytes:
    nodes = split(TEXT)
    for node in nodes:
        name = f"node {node.output[0]}"
        node.name = renamed.get(name, name)
        for field in (node.input, node.output):
            own = [renamed.get(name, name) for name in field]
            del field[:]
            field.extend(own)
    graph = helper.make_graph(
        nodes,
        "graph",
        [value_info("x", (64, 32), onnx.TensorProto.FLOAT), value_info("q", (7, 5, 3), onnx.TensorProto.FLOAT)],
        [
            value_info("y", None, onnx.TensorProto.FLOAT),
            value_info(renamed.get("o", "o"), None, onnx.TensorProto.FLOAT),
        ],
        [
            helper.make_tensor(name, onnx.TensorProto.FLOAT, shape, [0.0] * size)
            for name, shape, size in (("w", (32, 16), 512), ("b", (16,), 16), ("k", (16,), 16), ("v", (16, 8), 128))
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def executed(
    content: bytes, runtime: str, precision: str, training: Training | None
) -> tuple[InferredGraph, list[Kernel]]:
    """The graph as it is executed, and all kernels."""
    shaped = infer_shapes(read_model_bytes(content), Bindings())
    made = prepare(shaped, precision=FORMATS[precision], runtime=runtime, training=training)
    return made.graph, [kernel for work in made.work for kernel in work.kernels]


def names(graph: InferredGraph) -> set[str]:
    return set(graph.values) | {node.name for node in graph.graph.nodes}


@pytest.mark.parametrize("case", CASES)
def test_a_file_with_the_names_that_are_made_runs_the_same_kernels(case: str) -> None:
    graph, kernels = executed(model({}), *CASES[case])
    given = names(infer_shapes(read_model_bytes(model({})), Bindings()).inferred)
    made = sorted(names(graph) - given)
    assert all(file_name(name) in given for name in made)
    clashing = [*made, *(f"{file_name(name)}/{name.partition(chr(0))[2]}" for name in made), *OF_LOOPS]
    for first, second in zip(clashing, [*clashing[1:], clashing[0]], strict=True):
        for renamed in ({"p": first, "o": second}, {"node p": first, "node o": second}):
            assert executed(model(renamed), *CASES[case])[1] == kernels, renamed


@pytest.mark.parametrize("case", ["onnxruntime in 16 bits", "tensorrt", "training"])
def test_something_is_made(case: str) -> None:
    """The test above has something to tell apart."""
    graph, _ = executed(model({}), *CASES[case])
    assert any(file_name(name) != name for name in names(graph))


def test_nul_in_a_file_is_written_as_an_escape(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model({"p": "x\0float16", "node p": "\0"}))
    read = read_model(path)
    assert [(node.name, node.outputs) for node in read.graph.nodes if node.inputs == ("q",)] == [
        ("\\x00", ("x\\x00float16",))
    ]
    assert "\\x00" in {name for kernel in analyze(path, gpu="a100").kernels for name in kernel.nodes}


@pytest.mark.parametrize("case", CASES)
def test_reports_name_the_nodes_of_the_file(case: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model({}))
    runtime, precision, training = CASES[case]
    report = analyze(
        path,
        gpu="a100",
        runtime=runtime,
        precision=precision,
        training=training,
        explain_fusion=True,
        memory_timeline=True,
        timeline=True,
    )
    assert "\\u0000" not in to_json(report)
    given = {node.name for node in read_model(path).graph.nodes}
    kernels = [kernel for kernel in report.kernels if kernel.phase != "optimizer"]
    assert {name for kernel in kernels for name in kernel.nodes} <= given | {"loss"}
    assert {tensor.node for tensor in report.totals.memory.peak_tensors} <= given | {None, "loss", "optimizer"}
