"""What FP16 products accumulate in, by runtime, and what a report says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Elementwise, Gemm, Kernel, NodeWork, TensorSpec
from neusight_onnx.lowering.accumulators import with_accumulators
from neusight_onnx.runtime import KNOWN_RUNTIMES, RUNTIMES, get_runtime

FP16 = DataType.FLOAT16
PRODUCT = Gemm(m=64, n=64, k=64, dtype=FP16)
CONVOLUTION = Conv(
    n=1, c=64, k=64, spatial=(8, 8), out=(8, 8), filter=(3, 3), strides=(1, 1), dilations=(1, 1), dtype=FP16
)
SUM = Elementwise(operations=("add",), inputs=(), output=TensorSpec(dtype=FP16, shape=(4,)))
RESNET = Path(__file__).parent.parent / "examples" / "resnet50.onnx"


@pytest.mark.parametrize(
    ("kernel", "marked"),
    [
        pytest.param(PRODUCT, True, id="product"),
        pytest.param(CONVOLUTION, True, id="convolution"),
        pytest.param(replace(PRODUCT, dtype=DataType.BFLOAT16), False, id="bfloat16"),
        pytest.param(replace(PRODUCT, output_dtype=DataType.FLOAT32), False, id="writes-float32"),
        pytest.param(replace(PRODUCT, b_dtype=DataType.INT4), False, id="narrow-weights"),
        pytest.param(replace(CONVOLUTION, dtype=DataType.INT8), False, id="int8"),
        pytest.param(SUM, False, id="pointwise"),
    ],
)
def test_what_tensorrt_may_sum_in_fp16(kernel: Kernel, marked: bool) -> None:
    work = NodeWork(node="a", op_type="X", kernels=(SUM, kernel), alternatives=((kernel, SUM),))
    changes: dict[str, Any] = {"accumulator": FP16} if marked else {}
    expected = replace(kernel, **changes)
    (found,) = with_accumulators((work,), RUNTIMES["tensorrt"])
    assert found == replace(work, kernels=(SUM, expected), alternatives=((expected, SUM),))


@pytest.mark.parametrize("runtime", [name for name in KNOWN_RUNTIMES if name != "tensorrt"])
def test_other_runtimes_sum_in_fp32(runtime: str) -> None:
    work = NodeWork(node="a", op_type="X", kernels=(PRODUCT, CONVOLUTION))
    assert with_accumulators((work,), get_runtime(runtime)) == (work,)


@pytest.mark.parametrize(
    ("gpu", "precision", "runtime", "said"),
    [
        pytest.param(
            "rtx-3090", "fp16", "tensorrt", "at 142 TFLOP/s on this GPU where sums in float32 have 71", id="geforce"
        ),
        pytest.param("rtx-a6000", "fp16", "tensorrt", "", id="full-rate"),
        pytest.param("rtx-3090", "bf16", "tensorrt", "", id="bf16"),
        pytest.param(
            "rtx-4090", "fp8", "tensorrt", "at 330 TFLOP/s on this GPU where sums in float32 have 165", id="beside-fp8"
        ),
        pytest.param("rtx-3090", "fp16", "onnxruntime", "", id="onnxruntime"),
    ],
)
def test_the_report_says_so_where_it_matters(gpu: str, precision: str, runtime: str, said: str) -> None:
    report = analyze(RESNET, gpu=gpu, batch=32, precision=precision, runtime=runtime)
    found = [text for text in report.assumptions if "accumulate in float16" in text]
    assert bool(found) is bool(said)
    assert all(said in text for text in found)
    assert all(0.0 < row.utilization <= 1.0 for row in report.kernels)


def test_a_geforce_card_is_faster_by_its_rate_where_products_bound_it() -> None:
    """ResNet-50 of 64 images on an RTX 3090, by TensorRT in FP16 and in BF16, which has FP32 sums alone: between what
    memory and launches leave and twice."""
    times = {
        precision: analyze(RESNET, gpu="rtx-3090", batch=64, precision=precision, runtime="tensorrt").totals.latency_ms
        for precision in ("fp16", "bf16")
    }
    assert 1.2 < times["bf16"] / times["fp16"] < 2.0
