"""Batch normalizations that an export folded into convolutions: PyTorch runs them, other runtimes don't."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from neusight_onnx import analyze
from neusight_onnx.graph.read import read_model_bytes


def model(weight: str, bias: str | None) -> bytes:
    """x (2, 4, 8, 8) -> Conv (8 filters of 3x3) -> Relu."""
    shapes = {weight: [8, 4, 3, 3]} | ({bias: [8]} if bias else {})
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", *shapes], ["c"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["y"], name="relu"),
        ],
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 4, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 8, 8, 8])],
        [
            helper.make_tensor(name, onnx.TensorProto.FLOAT, shape, b"\0" * 4 * _count(shape), raw=True)
            for name, shape in shapes.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def _count(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


FOLDED = ("onnx::Conv_12", "onnx::Conv_13")


@pytest.mark.parametrize(
    ("names", "runtime", "expected", "said_count"),
    [
        pytest.param(FOLDED, "eager", ["conv", "normalization", "elementwise"], 1, id="the exporter's names"),
        pytest.param(
            ("conv.weight", "conv.weight_bias"),
            "eager",
            ["conv", "normalization", "elementwise"],
            1,
            id="dynamo's name",
        ),
        pytest.param(
            ("conv.weight", "other.weight_bias"), "eager", ["conv", "elementwise", "elementwise"], 0, id="of no filter"
        ),
        pytest.param(
            ("conv.weight", "conv.bias"), "eager", ["conv", "elementwise", "elementwise"], 0, id="a module's names"
        ),
        pytest.param(
            (FOLDED[0], "conv.bias"), "eager", ["conv", "elementwise", "elementwise"], 0, id="a module's bias"
        ),
        pytest.param((FOLDED[0], None), "eager", ["conv", "elementwise"], 0, id="no bias"),
        # it has image and filter channels last first
        pytest.param(FOLDED, "compiled", ["movement", "movement", "conv", "elementwise"], 1, id="a compiler merges it"),
        pytest.param(FOLDED, "tensorrt", ["conv"], 0, id="an engine folds it"),
    ],
)
def test_kernels(names: tuple[str, str | None], runtime: str, expected: list[str], said_count: int) -> None:
    report = analyze(read_model_bytes(model(*names)), gpu="a100", runtime=runtime)
    assert [row.kernel_class for row in report.kernels] == expected
    said = [text for text in report.assumptions if "folded into" in text]
    assert len(said) == said_count
    # every kernel is of a node that the file has
    assert {name for row in report.kernels for name in row.nodes} == {"conv", "relu"}
    assert report.coverage.node_count == 2


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        pytest.param("eager", ["conv", "normalization"] * 2, id="PyTorch runs both"),
        pytest.param("tensorrt", ["conv", "conv"], id="an engine folds both"),
    ],
)
def test_equal_biases_are_one_tensor_and_identities(runtime: str, expected: list[str]) -> None:
    """What torch.onnx writes of a model that was never trained: all biases are zeros, one of them is stored."""
    shape = [4, 4, 1, 1]
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["onnx::Conv_13"], ["onnx::Conv_16"], name="equal"),
            helper.make_node("Conv", ["x", "onnx::Conv_12", "onnx::Conv_13"], ["a"], name="first"),
            helper.make_node("Conv", ["a", "onnx::Conv_15", "onnx::Conv_16"], ["y"], name="second"),
        ],
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 4, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 4, 8, 8])],
        [
            helper.make_tensor("onnx::Conv_12", onnx.TensorProto.FLOAT, shape, [1.0] * 16),
            helper.make_tensor("onnx::Conv_13", onnx.TensorProto.FLOAT, [4], [0.0] * 4),
            helper.make_tensor("onnx::Conv_15", onnx.TensorProto.FLOAT, shape, [2.0] * 16),
        ],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    report = analyze(read_model_bytes(data), gpu="a100", runtime=runtime)
    assert [row.kernel_class for row in report.kernels] == expected
