"""The comparison with TensorRT's engines, as far as it needs none: a builder's list is read, both sides are matched."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

LAYERS = """Layers:
Name: __myl_AddMean_myl0_0, LayerType: kgen, Inputs: [ { Name: x, Dimensions: [2,4] }], Outputs: [ { Name: y }], \
TacticName: t, StreamId: 0, Metadata: [ONNX Layer: /ln/Add][ONNX Layer: /ln/Mean][ONNX Layer: /ln/Add]
Name: signal_0, LayerType: signal, Inputs: [], Outputs: [], TacticName: , StreamId: 0, Metadata:
Name: /q/MatMul+/k/MatMul_myl0_1, LayerType: gemm, Inputs: [], Outputs: [], TacticName: t, StreamId: 0, \
Metadata: [ONNX Layer: /q/MatMul][ONNX Layer: /k/MatMul]

I/O Tensors:
Name: x, LayerType: no layer, Metadata: [ONNX Layer: /x]
"""


@pytest.fixture(scope="module")
def fusion_trt() -> ModuleType:
    """The program, which finds its neighbours beside it."""
    sys.path.append(str(BENCHMARKS))
    specification = importlib.util.spec_from_file_location("benchmark_of_engines", BENCHMARKS / "fusion_trt.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    sys.path.remove(str(BENCHMARKS))
    return module


def test_layers_are_read_from_the_builders_list(fusion_trt: ModuleType) -> None:
    """Kernels alone, each node once, and nothing of what stands behind the list."""
    found = fusion_trt.layers_of(LAYERS)
    assert [(layer.kind, layer.nodes) for layer in found] == [
        ("kgen", ("/ln/Add", "/ln/Mean")),
        ("gemm", ("/q/MatMul", "/k/MatMul")),
    ]


def test_kernels_with_nodes_in_common_are_told_together(fusion_trt: ModuleType) -> None:
    """a b | c beside a | b c hang together by b; d stands alone on both sides."""
    theirs = [frozenset("ab"), frozenset("c"), frozenset("d"), frozenset()]
    ours = [frozenset("a"), frozenset("bc"), frozenset("d")]
    found = sorted(fusion_trt._together(theirs, ours), key=lambda pair: len(pair[0]))
    assert [tuple(len(side) for side in pair) for pair in found] == [(1, 1), (2, 2)]


def test_the_copy_that_both_sides_get(fusion_trt: ModuleType, tmp_path: Path) -> None:
    """Sizes are bound, FP32 is FP16, a weight that was never written has values, a scale of Resize stays FP32."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 3, 1, 1])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="nowhere.bin")
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("Resize", ["c", "", "scales"], ["r"]),
            helper.make_node("Mul", ["r", "big"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4, None, None])],
        [
            weight,
            numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"),
            numpy_helper.from_array(np.float32(-3e38), "big"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    fusion_trt.prepared(tmp_path / "m.onnx", tmp_path / "copy.onnx", {"height": 16}, half=True)
    copy = onnx.load(tmp_path / "copy.onnx")
    (given,) = copy.graph.input
    assert [dim.dim_value for dim in given.type.tensor_type.shape.dim] == [2, 3, 16, 8]
    assert given.type.tensor_type.elem_type == TensorProto.FLOAT16
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in copy.graph.initializer}
    assert arrays["w"].dtype == np.float16
    assert np.count_nonzero(arrays["w"]) == 12
    assert arrays["scales"].dtype == np.float32
    assert arrays["big"] == np.float16(-65504)
    assert len({node.name for node in copy.graph.node} - {""}) == 3
