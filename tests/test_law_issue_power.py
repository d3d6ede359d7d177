"""The clock that a power limit leaves to kernels that issue many instructions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx import load_gpu
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.kernels import Elementwise, TensorSpec
from neusight_onnx.laws.clock import ENERGY_EXPONENT
from neusight_onnx.laws.issue import SHARPNESS, instructions_per_us
from neusight_onnx.laws.issue_power import clock_levels, instruction_j
from neusight_onnx.predictor import predict


@pytest.mark.parametrize(
    ("gpu", "level"),
    [
        pytest.param("t4", 0.32, id="43 W of 268 W"),
        pytest.param("v100-sxm2-32gb", 0.66, id="261 of 506 W"),
        pytest.param("h100-sxm", 1.0, id="625 W, more than issuing takes"),
    ],
)
def test_a_power_limit_takes_the_clock_of_what_is_only_issued(gpu: str, level: float) -> None:
    spec, issue = load_gpu(gpu), np.array([100.0])
    instructions = issue * instructions_per_us(spec)
    found = clock_levels(instructions, issue, np.zeros(1), spec, sharpness=SHARPNESS)
    assert found == pytest.approx([level], abs=0.02)
    watts = instructions * instruction_j(spec) * found**ENERGY_EXPONENT / (1e-6 * issue / found)
    assert watts <= spec.power_w - idle_w(spec)
    if level < 1.0:  # just what the limit leaves
        assert watts == pytest.approx([spec.power_w - idle_w(spec)], rel=0.01)


def test_bytes_that_a_kernel_waits_for_leave_it_the_clock() -> None:
    gpu, issue = load_gpu("t4"), np.array([100.0, 100.0, 0.0])
    found = clock_levels(
        issue * instructions_per_us(gpu), issue, np.array([500.0, 2000.0, 100.0]), gpu, sharpness=SHARPNESS
    )
    assert found[0] < found[1] == pytest.approx(1.0, abs=0.01)
    assert found[2] == 1.0


def test_a_power_limit_is_felt_in_predictions() -> None:
    """A mask that is added to scores takes a T4 longer than its bytes, but not with three times the power."""
    scores, mask = (TensorSpec(dtype=DataType.FLOAT16, shape=shape) for shape in ((16, 16, 384, 384), (16, 1, 1, 384)))
    add = Elementwise(operations=("add",), inputs=(scores, mask), output=scores, library="onnxruntime")
    gpu = load_gpu("t4")
    limited, free, ours = (
        predict([kernel], card)[0].latency_us
        for kernel, card in (
            (add, gpu),
            (add, replace(gpu, power_w=3.0 * gpu.power_w)),
            (replace(add, library=""), gpu),
        )
    )
    assert limited > 1.1 * free
    assert free == pytest.approx(ours, rel=0.001)  # bytes alone
