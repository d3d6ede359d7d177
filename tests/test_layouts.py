"""The order of a convolution's tensors: what a runtime makes of a model's, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Elementwise, NodeWork, Pooling, TensorSpec
from neusight_onnx.lowering.layouts import is_reordered, with_layouts
from neusight_onnx.runtime import RUNTIMES

HALF = Conv(
    n=2,
    c=128,
    k=128,
    spatial=(14, 14),
    out=(14, 14),
    filter=(3, 3),
    strides=(1, 1),
    dilations=(1, 1),
    dtype=DataType.FLOAT16,
)
SUM = Elementwise(operations=("add",), inputs=(), output=TensorSpec(dtype=DataType.FLOAT16, shape=(4,)))


@pytest.mark.parametrize(
    ("runtime", "dtype", "last"),
    [
        pytest.param("eager", DataType.FLOAT16, False, id="eager-keeps-the-models-order"),
        pytest.param("onnxruntime", DataType.FLOAT16, False, id="prefer-nhwc-is-off"),
        pytest.param("compiled", DataType.BFLOAT16, False, id="what-inductor-reorders-was-lowered-so"),
        pytest.param("tensorrt", DataType.INT8, True, id="tensorrt-has-its-own"),
        pytest.param("tensorrt", DataType.FLOAT32, False, id="fp32-stays"),
        pytest.param("compiled", DataType.TFLOAT32, False, id="tf32-reads-either"),
    ],
)
def test_the_order_that_a_runtime_gives(runtime: str, dtype: DataType, last: bool) -> None:
    work = NodeWork(node="a", op_type="Conv", kernels=(SUM, replace(HALF, dtype=dtype)))
    other = NodeWork(node="b", op_type="Add", kernels=(SUM,))
    found = with_layouts((work, other), RUNTIMES[runtime])
    assert found == (replace(work, kernels=(SUM, replace(HALF, dtype=dtype, channels_last=last))), other)


# by hand, in units of HALF's multiply-adds: c x k x filter / groups; weights 1.358, .725, .783, .823
@pytest.mark.parametrize(
    ("convolutions", "training", "reordered"),
    [
        pytest.param([HALF, replace(HALF, c=3)], False, True, id="usual"),
        # 1.358 / 2 + .823 = 1.502 of 1.5; with a quarter in groups .823 + 1.358 / 4 = 1.163 of 1.25
        pytest.param([HALF, replace(HALF, groups=2)], False, False, id="a-third-in-groups"),
        pytest.param([HALF, replace(HALF, groups=4)], False, True, id="a-fifth-in-groups"),
        pytest.param([HALF, replace(HALF, groups=128)], False, True, id="depthwise"),
        pytest.param([HALF, replace(HALF, k=64)], False, True, id="half-as-many-channels-out"),
        pytest.param([replace(HALF, c=64, k=64), replace(HALF, c=3, k=64)], False, True, id="all-have-few-channels"),
        pytest.param([], False, False, id="none"),
        pytest.param([HALF, replace(HALF, groups=32)], True, False, id="training-groups-of-four-channels"),
        pytest.param([HALF, replace(HALF, groups=128)], True, True, id="training-depthwise"),
        pytest.param([HALF, replace(HALF, k=64)], True, False, id="training-half-as-many-channels-out"),
        pytest.param([HALF, replace(HALF, k=64, filter=(1, 1))], True, True, id="training-but-1x1"),
        # the weight of a transposed one is (in, out, ...): 128 x 64 is not half as many
        pytest.param([HALF, replace(HALF, k=64, transposed=True)], True, True, id="training-transposed"),
        pytest.param(
            [replace(HALF, c=64, k=64), replace(HALF, c=3, k=64)], True, False, id="training-all-have-few-channels"
        ),
    ],
)
def test_when_inductor_reorders(convolutions: list[Conv], training: bool, reordered: bool) -> None:
    assert is_reordered(convolutions, training=training) is reordered


@pytest.mark.parametrize(
    ("runtime", "operation", "dtype", "access"),
    [
        ("tensorrt", "max", DataType.FLOAT16, "vector"),
        ("tensorrt", "global_average", DataType.INT8, "vector"),
        ("tensorrt", "max", DataType.FLOAT32, "vector"),
        ("tensorrt", "max", DataType.FLOAT64, ""),
        ("tensorrt", "region", DataType.FLOAT16, ""),
        ("compiled", "max", DataType.FLOAT16, ""),
        ("onnxruntime", "max", DataType.FLOAT16, ""),
    ],
)
def test_engines_pool_vectors_of_channels(runtime: str, operation: str, dtype: DataType, access: str) -> None:
    source, result = (TensorSpec(dtype=dtype, shape=(1, 64, side, side)) for side in (8, 4))
    pool = Pooling(operation=operation, input=source, output=result, window=4)
    (work,) = with_layouts((NodeWork(node="p", op_type="MaxPool", kernels=(pool,)),), RUNTIMES[runtime])
    assert work.kernels == (replace(pool, access=access),)
