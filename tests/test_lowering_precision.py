"""What-if precisions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Gemm
from neusight_onnx.lowering import as_precision, lower, stored_precision

HALF = {"x": TensorProto.FLOAT16, "w": TensorProto.FLOAT16}


def test_half_becomes_single_and_its_casts_free() -> None:
    graph = inferred("m = MatMul(x, w)\ny = Cast<to=1>(m)", {"x": (4, 8)}, weights={"w": (8, 2)}, types=HALF)
    single = as_precision(graph, DataType.FLOAT32)
    product, cast = lower(single, runtime="tensorrt")
    assert isinstance(product.kernels[0], Gemm)
    assert product.kernels[0].read_bytes == 4 * 48
    assert cast.free == "the type stays the same"
    assert single.graph.initializers["w"].dtype is DataType.FLOAT32
    # the graph that was given is as it was
    assert graph.values["x"].dtype is DataType.FLOAT16
    assert lower(graph, runtime="tensorrt")[1].kernels


def test_single_becomes_half() -> None:
    graph = as_precision(inferred("y = Relu(x)", {"x": (4,)}), DataType.BFLOAT16)
    (work,) = lower(graph, runtime="eager")
    assert work.kernels[0].read_bytes == 8


def test_integers_and_data_stay() -> None:
    graph = inferred("s = Shape(x)\ny = Reshape(x, s)", {"x": (4, 2)})
    changed = as_precision(graph, DataType.FLOAT16)
    assert changed.values["s"].dtype is DataType.INT64
    data = changed.values["s"].data
    assert data is not None
    assert np.array_equal(data, [4, 2])


def test_nothing_to_change() -> None:
    graph = inferred("y = Relu(x)", {"x": (4,)})
    assert as_precision(graph, DataType.FLOAT32) is graph


def test_only_plain_types_can_be_asked_for() -> None:
    with pytest.raises(ValueError, match="int8 is not a plain"):
        as_precision(inferred("y = Relu(x)", {"x": (4,)}), DataType.INT8)


@pytest.mark.parametrize(
    ("types", "weights", "expected"),
    [
        ({}, {"w": (8, 2)}, DataType.FLOAT32),
        (HALF, {"w": (8, 2)}, DataType.FLOAT16),
        ({"x": TensorProto.FLOAT16}, {}, DataType.FLOAT16),
        ({"x": TensorProto.INT64}, {}, DataType.FLOAT32),
        ({"v": TensorProto.FLOAT16}, {"w": (8, 2), "v": (33,)}, DataType.FLOAT16),
        ({"v": TensorProto.FLOAT16}, {"w": (8, 2), "v": (31,)}, DataType.FLOAT32),
    ],
    ids=["single", "half", "by the inputs", "no float at all", "more bytes in half", "more bytes in single"],
)
def test_stored_precision(types: dict[str, int], weights: dict[str, tuple[int, ...]], expected: DataType) -> None:
    nodes = "y = Identity(x)\n" + "\n".join(f"{name}2 = Identity({name})" for name in weights)
    graph = inferred(nodes, {"x": (4, 8)}, weights=weights, types=types, outputs=["y"])
    assert stored_precision(graph) is expected
