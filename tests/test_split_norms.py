"""Normalizations whose few long rows all SMs share: groups and long instances in engines, ONNX Runtime's GroupNorm."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from graphs import inferred
from neusight_onnx import load_gpu
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Kernel, Normalization
from neusight_onnx.laws.bandwidth import l2_bytes_per_s
from neusight_onnx.lowering import lower
from neusight_onnx.predictor import Prediction, predict

H100 = load_gpu("h100-sxm")
GROUPS = "y = GroupNormalization<num_groups=4>(x, s, b)"
INSTANCES = "y = InstanceNormalization(x, s, b)"


def _group(rows: int, cols: int, *, is_split: bool) -> Normalization:
    return Normalization(method="group", rows=rows, cols=cols, dtype=DataType.FLOAT32, is_split=is_split)


def _predicted(kernel: Kernel) -> Prediction:
    return predict([kernel], H100)[0]


@pytest.mark.parametrize(
    ("nodes", "side", "runtime", "is_split"),
    [
        pytest.param(GROUPS, 8, "tensorrt", True, id="groups in an engine"),
        pytest.param(GROUPS, 8, "compiled", False, id="groups that a compiler wrote"),
        pytest.param(INSTANCES, 224, "tensorrt", True, id="long instances in an engine"),
        pytest.param(INSTANCES, 182, "tensorrt", False, id="shorter ones"),
        pytest.param(INSTANCES, 224, "onnxruntime", False, id="cuDNN's batch normalization"),
    ],
)
def test_which_rows_are_shared(nodes: str, side: int, runtime: str, *, is_split: bool) -> None:
    graph = inferred(nodes, {"x": (1, 8, side, side)}, weights={"s": (8,), "b": (8,)}, opset=21)
    norms = [kernel for work in lower(graph, runtime=runtime) for kernel in work.kernels]
    assert [kernel.is_split for kernel in norms if isinstance(kernel, Normalization)] == [is_split]


def test_few_groups_take_as_long_as_many() -> None:
    """A block a group of 2 million elements waits for 4,096 loads of 500 cycles: 1.1 ms where all SMs need .28."""
    few, many = (_predicted(_group(rows, 2**26 // rows, is_split=True)).latency_us for rows in (32, 1024))
    assert few == pytest.approx(many, rel=0.02)
    assert _predicted(_group(32, 2**21, is_split=False)).latency_us > 3.5 * few


@pytest.mark.parametrize("cols", [64, 640, 2560, 10_240, 65_536])
def test_sharing_is_left_where_it_costs(cols: int) -> None:
    apart, shared = (_predicted(_group(64, cols, is_split=is_split)).latency_us for is_split in (False, True))
    assert shared <= apart


def test_no_shared_rows_were_timed() -> None:
    sure, unsure = (_predicted(_group(1024, 65_536, is_split=is_split)) for is_split in (False, True))
    assert unsure.high_us / unsure.low_us > 1.5 * sure.high_us / sure.low_us


def test_instances_in_parts_pass_floats_on() -> None:
    """16 bits in and out, and between the three kernels 16 bytes an element."""
    shape = (32, 512 * 512)
    kernel = Normalization(
        method="instance", rows=shape[0], cols=shape[1], dtype=DataType.FLOAT16, generated=True, is_split=True
    )
    least_us = (2 + 2 + 16) * prod(shape) / l2_bytes_per_s(H100) * 1e6
    assert least_us < _predicted(kernel).latency_us
    assert _predicted(replace(kernel, method="group")).latency_us < 0.8 * _predicted(kernel).latency_us
