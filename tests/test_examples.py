"""The example models are what their script writes, and real models: onnx's checker and onnxruntime take them."""

from __future__ import annotations

import importlib.util
import sys
from math import prod
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_models", EXAMPLES / "make_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def shipped(name: str) -> onnx.ModelProto:
    return onnx.load(str(EXAMPLES / f"{name}.onnx"), load_external_data=False)


def dims(value: onnx.ValueInfoProto) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


# Parameters: 25,557,032 of ResNet-50 and 2 x 26,560 running statistics; 109,482,240 of BERT base with its pooler.
# Nodes: 1 + 16 x 3 + 4 convolutions, as many normalizations, 1 + 16 x 3 ReLUs, 16 additions, 4 others;
# 12 x 34 nodes of a layer (4 x 3 projections with their transposes, …), 16 around them.
FACTS = [
    ("resnet50", 25_557_032 + 53_120, {"Conv": 53, "BatchNormalization": 53, "Relu": 49, "Add": 16, "Gemm": 1}),
    ("bert_base", 109_482_240, {"MatMul": 12 * 8, "Softmax": 12, "LayerNormalization": 25, "Erf": 12, "Gather": 5}),
]


@pytest.mark.parametrize(("name", "parameter_count", "op_counts"), FACTS, ids=[row[0] for row in FACTS])
def test_example_is_the_model_it_says(name: str, parameter_count: int, op_counts: dict[str, int]) -> None:
    model = shipped(name)
    external = onnx.TensorProto.EXTERNAL
    weights = [tensor for tensor in model.graph.initializer if tensor.data_location == external]
    assert sum(prod(tensor.dims) for tensor in weights) == parameter_count
    op_types = [node.op_type for node in model.graph.node]
    assert {op_type: op_types.count(op_type) for op_type in op_counts} == op_counts
    assert (EXAMPLES / f"{name}.onnx").stat().st_size < 200_000
    assert not (EXAMPLES / f"{name}.weights").exists()


def test_free_dims() -> None:
    assert [dims(value) for value in shipped("resnet50").graph.input] == [["batch", 3, 224, 224]]
    assert [dims(value) for value in shipped("bert_base").graph.input] == [["batch", "sequence"]] * 3


@pytest.mark.parametrize("name", ["resnet50", "bert_base"])
def test_script_writes_the_shipped_file(name: str, script: ModuleType) -> None:
    made = script.MODELS[name]()
    assert made == shipped(name)
    script.check(made)


def test_every_example_is_written_by_the_script(script: ModuleType) -> None:
    assert {path.stem for path in EXAMPLES.glob("*.onnx")} == set(script.MODELS)


def test_resnet50_runs(tmp_path: Path) -> None:
    """With a file of zeros for weights, onnxruntime gives logits of zero for each image."""
    (tmp_path / "resnet50.onnx").write_bytes((EXAMPLES / "resnet50.onnx").read_bytes())
    with (tmp_path / "resnet50.weights").open("wb") as weights:
        weights.truncate(4 * (25_557_032 + 53_120))
    session = onnxruntime.InferenceSession(str(tmp_path / "resnet50.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"images": np.zeros((2, 3, 224, 224), np.float32)})
    assert logits.shape == (2, 1000)
    assert not logits.any()
