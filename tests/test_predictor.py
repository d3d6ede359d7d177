"""What predict() promises: physics as a floor, order, equal kernels equal, and a manifest that fits its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neusight_onnx import analyze
from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import NotSupportedError, PredictorError
from neusight_onnx.gpu import GpuSpec, available_gpus, load_gpu
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    Normalization,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.predictor import (
    Estimate,
    Predictor,
    estimate,
    list_predictors,
    load_predictors,
    predict,
    predictor_for,
)
from neusight_onnx.similarity import (
    FAMILIAR_DISTANCE,
    carried_over,
    distance,
    gpu_vector,
    gpu_weight,
    shape_weight,
)

FP32, FP16, INT64, BOOL = DataType.FLOAT32, DataType.FLOAT16, DataType.INT64, DataType.BOOL
FP64 = DataType.FLOAT64


def tensor(*shape: int, dtype: DataType = FP32) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape)


def convolution(**changes: Any) -> Conv:
    sizes: dict[str, Any] = {"n": 8, "c": 64, "k": 64, "spatial": (56, 56), "out": (56, 56), "filter": (3, 3)}
    return Conv(**{**sizes, "strides": (1, 1), "dilations": (1, 1), "dtype": FP32, **changes})


LEARNED: list[Kernel] = [
    Gemm(m=512, n=768, k=3072, dtype=FP32, b_is_weight=True, epilogue=("bias",)),
    Gemm(batch=96, m=128, n=128, k=64, dtype=FP32),
    convolution(),
    convolution(filter=(1, 1)),
    convolution(groups=64),
    Elementwise(operations=("add",), inputs=(tensor(64, 1024), tensor(64, 1024)), output=tensor(64, 1024)),
    Elementwise(operations=("gelu",), inputs=(tensor(8192, 4096),), output=tensor(8192, 4096)),
    Softmax(rows=4096, cols=512, dtype=FP32),
    Normalization(method="layer", rows=4096, cols=1024, parameter_count=2048, dtype=FP32),
]
HALF = Gemm(m=512, n=768, k=3072, dtype=FP16)
ANALYTIC: list[Kernel] = [
    Pooling(operation="max", input=tensor(8, 64, 112, 112), output=tensor(8, 64, 56, 56), window=9),
    Reduction(operation="mean", outputs=512, reduced=1024, dtype=FP32, output=tensor(512)),
    Movement(operation="transpose", dtype=FP32, shape=(64, 512), permutation=(1, 0), read=131072, written=131072),
    GatherScatter(operation="gather", moved=768 * 128, run=768, dtype=FP32, index_count=128, index_dtype=INT64),
    Attention(b=1, h=12, g=12, s=128, t=128, d=64, v=64, dtype=FP32),
]


@pytest.mark.parametrize("gpu", ["p4", "t4", "a100-pcie-40gb", "h100-sxm", "l4", "mi210", "rtx-4090"])
def test_every_prediction_keeps_to_physics(gpu: str) -> None:
    found = predict([*LEARNED, *ANALYTIC, HALF], load_gpu(gpu))
    methods = ["learned"] * len(LEARNED) + ["analytic"] * len(ANALYTIC)
    # a P4 has no matrix unit, and multiplies halves on the FP32 lanes that were measured
    assert [prediction.method for prediction in found] == [*methods, "learned"]
    for prediction in found:
        assert 0.0 < prediction.low_us <= prediction.latency_us <= prediction.high_us < np.inf
        assert 0.0 < prediction.utilization <= 1.0
        assert prediction.tile_count >= 1
        assert prediction.wave_count >= 1
        assert prediction.bound in {"compute", "issue", "memory", "l2", "latency", "floor"}


@pytest.mark.parametrize(
    ("kernel", "gpu", "bound"),
    [
        pytest.param(
            Movement(operation="copy", dtype=FP32, shape=(1, 12, 128, 64), read=393_216, written=393_216),
            "t4",
            "floor",
            id="DRAM at its peak would need 2.5 us of 2.6, but the L2 holds it",
        ),
        pytest.param(
            Elementwise(operations=("add",), inputs=(tensor(64, 768), tensor(64, 768)), output=tensor(64, 768)),
            "a100",
            "floor",
            id="600 KB",
        ),
        pytest.param(
            Elementwise(operations=("add",), inputs=(tensor(8, 1 << 22),) * 2, output=tensor(8, 1 << 22)),
            "a100",
            "memory",
            id="400 MB",
        ),
        pytest.param(Gemm(m=8192, n=8192, k=8192, dtype=FP32), "a100", "compute", id="1.1 TFLOP"),
        pytest.param(
            convolution(n=1, c=128, k=128, spatial=(56, 56), out=(28, 28), strides=(2, 2)),
            "a100",
            "latency",
            id="a thread an element: 100 us, of which the floor is 2.5 and the lanes need 12",
        ),
        pytest.param(
            replace(convolution(n=16, c=64, k=64, spatial=(56, 56), out=(56, 56)), dtype=FP16, channels_last=True),
            "l4",
            "compute",
            id="105 us: DRAM would need 43 and the units 31, but ten times the bandwidth saves 1",
        ),
        pytest.param(
            Gemm(m=1, n=14336, k=4096, dtype=FP16, b_dtype=DataType.UINT4, transpose_b=True, b_is_weight=True),
            "mi300x",
            "issue",
            id="a row by weights of 4 bits: 19 us, of which the matrix cores need .1",
        ),
        pytest.param(
            Elementwise(
                operations=("add", "gelu"),
                inputs=(tensor(1024, 3072), tensor(3072)),
                output=tensor(1024, 3072),
                library="onnxruntime",
            ),
            "h100",
            "issue",
            id="element by element: the lanes need 7 % of the time",
        ),
    ],
)
def test_bounds(kernel: Kernel, gpu: str, bound: str) -> None:
    (found,) = predict([kernel], load_gpu(gpu))
    assert found.bound == bound


def test_no_prediction_beats_the_roofline() -> None:
    """2 x 512 x 768 x 3072 FLOP (and a bias of 512 x 768) can't take less than at the peak rate."""
    for gpu in available_gpus():
        rates = gpu.peak_flops_per_s
        peak = max(rates["fp32"], rates.get("fp32_matrix", 0.0))
        assert predict(LEARNED[:1], gpu)[0].latency_us >= 1e6 * 2 * 512 * 768 * 3072 / peak


@pytest.mark.parametrize(
    ("kernel", "gpu", "predictor"),
    [
        pytest.param(HALF, "v100-pcie-32gb", "gemm_bf16", id="fp16-on-volta"),
        pytest.param(replace(HALF, dtype=DataType.BFLOAT16), "v100-pcie-32gb", "analytic", id="bf16-on-volta"),
        pytest.param(replace(HALF, dtype=DataType.BFLOAT16), "h200-sxm", "gemm_bf16", id="bf16-on-h200"),
        pytest.param(replace(HALF, dtype=DataType.INT8), "t4", "gemm_int8", id="int8-on-turing"),
        pytest.param(replace(HALF, dtype=DataType.FLOAT8E4M3FN), "a100-sxm-80gb", "analytic", id="fp8-on-ampere"),
        pytest.param(replace(HALF, dtype=DataType.FLOAT8E4M3FN), "rtx-4090", "gemm_fp8", id="fp8-on-ada"),
        pytest.param(replace(HALF, b_dtype=DataType.UINT4), "l4", "gemm_w4a16", id="weights-of-4-bits"),
        pytest.param(replace(HALF, dtype=FP32, b_dtype=DataType.UINT4), "l4", "gemm_fp32", id="beside-fp32"),
        pytest.param(replace(HALF, dtype=DataType.FLOAT4E2M1), "rtx-5090", "gemm_fp4", id="fp4-on-blackwell"),
        pytest.param(replace(HALF, dtype=DataType.INT16), "h100-sxm", "analytic", id="int16"),
    ],
)
def test_which_predictor_a_product_has(kernel: Gemm, gpu: str, predictor: str) -> None:
    (found,) = predict([kernel], load_gpu(gpu))
    assert found.predictor == predictor


CONV16 = convolution(dtype=FP16, channels_last=True)


@pytest.mark.parametrize("gpu", ["p4", "t4", "p100-pcie-16gb", "v100-pcie-32gb", "a100-pcie-40gb", "mi100", "mi210"])
def test_small_kernels_take_a_launch_and_not_what_the_host_took(gpu: str) -> None:
    """Launch and drain, 2 us: what was measured of kernels that small is the host, which slowed down on the T4."""
    shapes = [tensor(64), tensor(1, 4096), tensor(16, 512)]
    kernels = [
        Elementwise(operations=(name,), inputs=(shape,) * count, output=shape)
        for shape in shapes
        for name, count in (("add", 2), ("mul", 1), ("relu", 1), ("gelu", 1))
    ]
    assert all(1.9 < found.latency_us < 2.4 for found in predict(kernels, load_gpu(gpu)))


@pytest.mark.parametrize(
    ("kernel", "gpu", "predictor"),
    [
        pytest.param(CONV16, "rtx-3090", "conv_matrix", id="fp16"),
        pytest.param(replace(CONV16, dtype=DataType.BFLOAT16), "rtx-4090", "conv_matrix", id="bf16"),
        pytest.param(replace(CONV16, dtype=DataType.INT8), "l4", "conv_matrix", id="int8"),
        pytest.param(replace(CONV16, dtype=DataType.TFLOAT32), "a100", "conv_matrix", id="tf32"),
        pytest.param(replace(CONV16, direction="data"), "t4", "conv_matrix", id="data"),
        pytest.param(replace(CONV16, direction="weight"), "t4", "conv_matrix_weight", id="weight"),
        pytest.param(replace(CONV16, dtype=DataType.BFLOAT16), "v100", "analytic", id="bf16-on-volta"),
        pytest.param(replace(CONV16, dtype=DataType.TFLOAT32), "t4", "analytic", id="tf32-on-turing"),
        pytest.param(CONV16, "p100-pcie-16gb", "conv_fp32", id="fp16-on-pascal"),
        pytest.param(HALF, "p4", "gemm_fp32", id="product-on-pascal"),
        pytest.param(HALF, "mi50", "analytic", id="packed-halves"),
        pytest.param(replace(CONV16, dtype=FP32, direction="weight"), "a100", "conv_fp32_weight", id="fp32-weight"),
        pytest.param(replace(CONV16, dtype=FP32, direction="data"), "t4", "conv_fp32_data", id="fp32-data"),
        pytest.param(replace(CONV16, direction="data"), "p4", "conv_fp32_data", id="fp16-data-on-fp32-lanes"),
        pytest.param(replace(CONV16, direction="weight"), "mi50", "conv_fp32", id="packed-halves-of-gradients"),
        pytest.param(replace(CONV16, dtype=FP32, direction="data"), "rx-7900-xtx", "conv_fp32", id="fp32-data-on-rdna"),
        pytest.param(replace(CONV16, dtype=FP64, direction="data"), "v100", "analytic", id="fp64-data"),
        pytest.param(CONV16, "mi50", "conv_fp32_amd", id="packed-halves-of-convolutions"),
        pytest.param(replace(CONV16, direction="data"), "mi50", "conv_fp32_amd", id="packed-halves-of-data"),
        pytest.param(replace(CONV16, direction="weight"), "mi50", "conv_fp32", id="packed-halves-of-weight"),
        pytest.param(replace(CONV16, dtype=FP32), "mi50", "conv_fp32_amd", id="fp32-on-amd-without-matrix-cores"),
        pytest.param(replace(CONV16, dtype=FP32, direction="data"), "mi210", "conv_fp32_amd", id="fp32-data-on-cdna2"),
        pytest.param(
            replace(CONV16, dtype=FP32, direction="weight"), "mi300x", "conv_fp32_weight_amd", id="fp32-weight-on-cdna3"
        ),
        pytest.param(replace(CONV16, dtype=FP32), "rx-7900-xtx", "conv_fp32", id="fp32-on-rdna"),
        pytest.param(CONV16, "rx-7900-xtx", "conv_fp32", id="fp16-on-rdna"),
        pytest.param(replace(CONV16, dtype=DataType.BFLOAT16), "rx-7900-xtx", "analytic", id="bf16-on-rdna"),
        pytest.param(CONV16, "mi210", "conv_matrix_amd", id="fp16-on-cdna2"),
        pytest.param(replace(CONV16, direction="weight"), "mi100", "conv_matrix_weight_amd", id="weight-on-cdna"),
        pytest.param(replace(CONV16, dtype=DataType.BFLOAT16), "mi100", "conv_matrix_amd", id="bf16-on-cdna"),
        pytest.param(replace(CONV16, dtype=DataType.BFLOAT16), "mi210", "conv_matrix_amd", id="bf16-on-cdna2"),
        pytest.param(replace(CONV16, dtype=DataType.BFLOAT16), "mi300x", "conv_matrix_amd", id="bf16-on-cdna3"),
        pytest.param(HALF, "mi300x", "gemm_matrix_amd", id="product-on-cdna3"),
        pytest.param(replace(HALF, dtype=DataType.INT8), "mi210", "gemm_matrix_amd", id="int8-product-on-cdna2"),
        pytest.param(replace(HALF, b_dtype=DataType.UINT4), "mi300x", "gemm_matrix_amd", id="weights-of-4-bits-on-amd"),
        pytest.param(replace(HALF, dtype=FP32), "mi210", "gemm_fp32", id="fp32-on-amd"),
    ],
)
def test_which_predictor_serves_matrix_units(kernel: Kernel, gpu: str, predictor: str) -> None:
    (found,) = predict([kernel], load_gpu(gpu))
    assert found.predictor == predictor


@pytest.mark.parametrize("gpu", ["a10", "a100", "rtx-4080", "rtx-4090", "h20", "h100-sxm", "mi300x"])
@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(convolution(n=32, c=3, k=768, spatial=(224, 224), out=(14, 14), filter=(16, 16)), id="patches"),
        pytest.param(convolution(n=32, c=128, k=128, spatial=(28, 28), out=(28, 28)), id="winograd"),
        pytest.param(convolution(n=1, c=480, k=20, spatial=(1, 1), out=(1, 1), filter=(1, 1)), id="one-position"),
        pytest.param(Gemm(m=1, n=1000, k=2048, b_is_weight=True, transpose_b=True, dtype=FP32), id="vector"),
        pytest.param(Gemm(batch=384, m=197, n=197, k=64, dtype=FP32), id="attention"),
        # an RTX 4080 states 48.7 TFLOP/s in TF32 and has 48.74 in FP32
        pytest.param(Recurrent(cell="gru", steps=30, directions=1, b=256, h=2048, gates=3, dtype=FP32), id="recurrent"),
    ],
)
def test_tf32_is_a_permission(kernel: Conv | Gemm | Recurrent, gpu: str) -> None:
    """A library that may multiply TF32 takes no longer than one that may not: FP32's kernels are still there."""
    narrow, wide = predict([replace(kernel, dtype=DataType.TFLOAT32), kernel], load_gpu(gpu))
    assert narrow.latency_us <= wide.latency_us


@pytest.mark.parametrize(("size", "asked"), [(4096, ["gemm_bf16"]), (128, ["gemm_bf16", "gemm_fp32"])])
def test_fp32_is_asked_where_its_peak_may_be_quicker(
    size: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FP32's trees are the largest that are shipped: most runs in TF32 need none of them."""
    names: list[str] = []

    def noted(kernels: Sequence[Kernel], gpu: GpuSpec, predictor: Predictor) -> Estimate:
        names.append(predictor.name)
        return estimate(kernels, gpu, predictor)

    monkeypatch.setattr("neusight_onnx.predictor.predictions.estimate", noted)
    predict([Gemm(m=size, n=size, k=size, dtype=DataType.TFLOAT32)], load_gpu("a100"))
    assert names == asked


@pytest.mark.parametrize("gpu", ["t4", "v100", "a100", "a10", "rtx-4090", "h20", "h100-sxm", "b200"])
@pytest.mark.parametrize(("c", "side", "window"), [(144, 56, 3), (128, 56, 3), (672, 14, 5), (128, 56, 7)])
def test_depthwise_windows_in_16_bits_are_those_in_32(c: int, side: int, window: int, gpu: str) -> None:
    """A thread an output does the same instructions, on half the bytes: it is no slower, whatever two laws say."""
    wide = convolution(
        n=256, c=c, k=c, groups=c, spatial=(side, side), out=(side, side), filter=(window, window), dtype=FP32
    )
    in_32, in_16 = predict([wide, replace(wide, dtype=FP16)], load_gpu(gpu))
    assert 0.4 < in_16.latency_us / in_32.latency_us < 1.0 + 1e-9


@pytest.mark.parametrize("gpu", ["p4", "p40", "p100-sxm2-16gb", "gtx-1080-ti"])
@pytest.mark.parametrize(
    ("m", "least"), [(16384, 0.65), (1, 0.5)], ids=["many rows: the same arithmetic", "one row: half the bytes"]
)
def test_halves_on_fp32_lanes_save_bytes_only(gpu: str, m: int, least: float) -> None:
    wide, half = predict(
        [Gemm(m=m, n=4096, k=4096, b_is_weight=True, dtype=dtype) for dtype in (FP32, FP16)], load_gpu(gpu)
    )
    assert least <= half.latency_us / wide.latency_us <= 1.0
    # no such product was measured: the interval is no narrower than that of the one that was
    assert half.high_us / half.latency_us >= (1 - 1e-9) * wide.high_us / wide.latency_us
    assert half.low_us <= half.latency_us


def test_gradients_in_fp32_have_the_interval_of_gpus_left_out_where_they_were_not_measured() -> None:
    """An A100's forward convolutions were measured, gradients on V100, T4, P100 and 1080 Ti alone: e^(+-.5)."""
    forward = convolution()
    kernels = (forward, replace(forward, direction="data"), replace(forward, direction="weight"))
    found = predict(kernels, load_gpu("a100-pcie-40gb"))
    assert [prediction.predictor for prediction in found] == ["conv_fp32", "conv_fp32_data", "conv_fp32_weight"]
    width = [np.log(prediction.high_us / prediction.latency_us) for prediction in found]
    assert width[0] < 0.3
    assert all(0.45 < of_gradient < 0.6 for of_gradient in width[1:])
    # one like those that were measured, on one of those GPUs
    measured = replace(forward, n=16, c=128, k=256, spatial=(28, 28), out=(28, 28), filter=(3, 3), direction="weight")
    (seen,) = predict((measured,), load_gpu("t4"))
    assert np.log(seen.high_us / seen.latency_us) < min(width[1:]) - 0.04


def test_a_gradient_without_a_predictor_of_its_own_has_the_law_of_forward_convolutions() -> None:
    shipped = load_predictors(data_folder("predictors"))
    rest = {key: found for key, found in shipped.items() if key[1] not in ("float32/data", "float32/weight")}
    found = predictor_for(convolution(direction="weight"), load_gpu("v100"), rest)
    assert found is not None
    assert (found.name, found.gpu_vectors) == ("conv_fp32", ())


def test_a_format_that_was_not_measured_has_the_law_alone() -> None:
    """A T4's trees saw FP16: of INT8 they say nothing, and the interval is that of a GPU that was not measured.

    What the law gets wrong of INT8 it gets wrong of all kernels: it doesn't cancel over a model.
    """
    t4 = load_gpu("t4")
    half, eight = predict([CONV16, replace(CONV16, dtype=DataType.INT8)], t4)
    measured = predictor_for(CONV16, t4, load_predictors(data_folder("predictors")))
    alone = predictor_for(replace(CONV16, dtype=DataType.INT8), t4, load_predictors(data_folder("predictors")))
    assert measured is not None
    assert measured.gpu_vectors
    assert alone is not None
    assert not alone.gpu_vectors
    assert np.log(eight.high_us / eight.latency_us) > np.log(half.high_us / half.latency_us)
    assert half.level_share < 0.45 < 0.49 < eight.level_share


def test_order_and_equal_kernels() -> None:
    gpu = load_gpu("v100-pcie-32gb")
    kernels = [LEARNED[3], HALF, LEARNED[0], LEARNED[3], LEARNED[0]]
    found = predict(kernels, gpu)
    assert found == tuple(predict([kernel], gpu)[0] for kernel in kernels)
    assert found[0] == found[3]
    assert found[2] == found[4]
    assert predict([], gpu) == ()


@pytest.mark.parametrize(
    ("kernel", "label"),
    [
        pytest.param(Elementwise(operations=("cast",), inputs=(tensor(4, dtype=INT64),), output=tensor(4)), "float32"),
        pytest.param(
            Elementwise(operations=("equal",), inputs=(tensor(4),) * 2, output=tensor(4, dtype=BOOL)), "float32"
        ),
        pytest.param(
            Elementwise(operations=("add",), inputs=(tensor(4, dtype=INT64),) * 2, output=tensor(4, dtype=INT64)),
            "int64",
        ),
        pytest.param(HALF, "float16"),
    ],
    ids=["cast-to-float", "compare", "integers", "half"],
)
def test_kernel_dtype(kernel: Kernel, label: str) -> None:
    assert kernel_dtype(kernel).label == label


def test_a_wider_interval_on_an_unseen_gpu() -> None:
    def width(gpu: str) -> float:
        found = predict(LEARNED[:1], load_gpu(gpu))[0]
        return found.high_us / found.latency_us

    assert width("a100-pcie-40gb") < width("a100-sxm-80gb") < width("h100-sxm")


# --- distance


def test_distance_tells_relatives_from_strangers() -> None:
    vectors = {gpu.name: gpu_vector(gpu) for gpu in available_gpus()}
    a100 = vectors["a100-pcie-40gb"]
    assert distance(a100, a100) == 0.0
    same_die = [distance(a100, vectors[name]) for name in ("a100-sxm-80gb", "a100-pcie-80gb", "a100-sxm-40gb")]
    others = [distance(a100, vectors[name]) for name in ("v100-pcie-32gb", "h100-sxm", "a10", "t4", "mi210")]
    assert max(same_die) < 0.6 * FAMILIAR_DISTANCE
    assert min(others) > 1.5 * FAMILIAR_DISTANCE


def test_the_rate_of_matrix_units_tells_their_gpus_apart() -> None:
    """An RTX 4090 is an L40S whose 16-bit products run at half the rate a clock and SM: log 2 more between them."""
    l40s, geforce = load_gpu("l40s"), load_gpu("rtx-4090")
    usual = distance(gpu_vector(l40s), gpu_vector(geforce))
    apart = distance(gpu_vector(l40s, matrix_units=True), gpu_vector(geforce, matrix_units=True))
    ratio = (362 / (142 * 2.52)) / (165.2 / (128 * 2.52))
    assert apart**2 - usual**2 == pytest.approx(log(ratio) ** 2, rel=1e-6)
    assert gpu_weight(geforce, [gpu_vector(l40s, matrix_units=True)]) < 0.05 < gpu_weight(geforce, [gpu_vector(l40s)])


def test_gpu_weight_is_one_on_a_trained_gpu_and_zero_without_any() -> None:
    t4, h100 = load_gpu("t4"), load_gpu("h100-sxm")
    assert gpu_weight(t4, [gpu_vector(t4), gpu_vector(h100)]) == 1.0
    assert gpu_weight(t4, []) == 0.0


@pytest.mark.parametrize(
    ("row", "weight"),
    [
        pytest.param([0.0, 5.0, 4.5], 1.0, id="inside"),
        pytest.param([1.0, 10.0, 4.0], 1.0, id="on-the-edge"),
        # a quarter of the range of 10 outside: 1/e
        pytest.param([0.5, 12.5, 5.0], np.exp(-1.0), id="above"),
        pytest.param([-0.125, 11.25, 5.0], np.exp(-1.0), id="two-features-add-up"),
        pytest.param([0.5, 5.0, 9.0], 1.0, id="a tile of another menu"),
    ],
)
def test_shape_weight(row: list[float], weight: float) -> None:
    low, high = np.array([0.0, 0.0, 4.0]), np.array([1.0, 10.0, 5.0])
    found = shape_weight(np.array([row], dtype=np.float32), low, high, ["log_m", "log_k", "log_tile_n"])
    assert found[0] == pytest.approx(weight, rel=1e-6)


def test_a_remainder_is_no_size() -> None:
    """Of k 0 and 32 of 64 were measured, of n none: 48 is half of the range outside, and as partial a tile as 32."""
    low, high = np.array([0.0, 0.0]), np.array([32.0, 0.0])
    features = np.array([[48.0, 0.0], [48.0, 16.0], [32.0, 0.0]], dtype=np.float32)
    names = ["k_mod_64", "n_mod_128"]
    assert shape_weight(features, low, high, names).tolist() == pytest.approx([np.exp(-4.0), 0.0, 1.0])
    assert shape_weight(features, low, high, names, any_remainder=True).tolist() == pytest.approx([1.0, 0.0, 1.0])


@pytest.mark.parametrize("gpu", ["b200-sxm", "h100-sxm", "a100-sxm-80gb", "l40s"])
@pytest.mark.parametrize("side", [64, 128])
def test_tiny_products_follow_their_depth(gpu: str, side: int) -> None:
    """Depths in steps of 16, of which every fourth leaves 48 of 64, which no measured product does."""
    found = predict([Gemm(m=side, n=side, k=k, dtype=FP16) for k in range(32, 272, 16)], load_gpu(gpu))
    assert all(0.9 < after.latency_us / before.latency_us < 1.15 for before, after in pairwise(found))
    assert all(before.low_us < after.high_us and after.low_us < before.high_us for before, after in pairwise(found))
    width = [answer.high_us / answer.low_us for answer in found]
    assert min(width[1], width[5]) > 1.1 * width[2]  # 48 and 112, beside 64


def test_a_near_gpu_gets_what_its_neighbour_shows() -> None:
    """Trees that know GPUs by their ridge alone: log 2 for a ridge of 3, log 3 for 2; the neighbour's ridge is 3."""

    def trees(features: NDArray[np.float32]) -> NDArray[np.float64]:
        asked.append(len(features))
        return np.where(features[:, 1] > 2.5, log(2), log(3))

    def inside(features: NDArray[np.float32]) -> NDArray[np.float64]:
        return features[:, 0] * 1.0

    asked: list[int] = []

    features = np.array([[1.0, 2.0], [0.5, 2.0]], dtype=np.float32)
    neighbour = np.array([[1.0, 3.0], [0.5, 3.0]], dtype=np.float32)

    def applied(near: float, unseen_weight: float) -> list[float]:
        found = carried_over(trees, inside, features, near, unseen_weight, lambda: neighbour)
        assert found.inside.tolist() == pytest.approx([1.0, 0.5])
        return found.correction.tolist()

    assert applied(1.0, 0.0) == pytest.approx([log(3), log(3) / 2])  # a trained GPU has its own
    assert applied(0.0, 0.25) == pytest.approx([log(3) / 4, log(3) / 8])
    assert applied(0.75, 0.0) == pytest.approx([0.75 * log(2), 0.75 * log(2) / 2])
    assert applied(0.75, 0.5)[0] == pytest.approx(0.75 * log(2) + 0.25 * 0.5 * log(3))
    asked.clear()
    assert applied(0.0, 0.0) == [0.0, 0.0]
    assert not asked, "trees without weight aren't loaded"


def test_a_gpu_with_faster_memory_only_is_hardly_slower() -> None:
    products = [
        Gemm(m=m, n=4096, k=4096, dtype=DataType.FLOAT8E4M3FN, transpose_b=True, b_is_weight=True) for m in (64, 512)
    ]
    h100, h200 = (predict(products, load_gpu(name)) for name in ("h100-sxm", "h200-sxm"))
    for before, after in zip(h100, h200, strict=True):
        assert after.latency_us < 1.04 * before.latency_us  # its memory takes 15 W more of the same power


def test_a_vector_product_takes_no_residual() -> None:
    predictor = load_predictors(data_folder("predictors"))["gemm", "float32"]
    kernels = tuple(Gemm(m=rows, n=256, k=256, dtype=DataType.FLOAT32) for rows in (1, 256))
    found = estimate(kernels, load_gpu("a100-pcie-40gb"), predictor)
    assert found.latency_us[0] == found.law.latency_us[0]
    assert found.latency_us[1] != found.law.latency_us[1]


# --- manifest


def test_the_list_needs_no_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    infos = list_predictors()
    assert {(info.kernel_class, info.dtype) for info in infos} >= {
        (name, "float32") for name in ("gemm", "conv", "elementwise", "softmax", "normalization")
    }
    for info in infos:
        assert info.gpus
        assert info.row_count > 100
        assert info.new_shapes_percent is not None
        assert 0 < info.new_shapes_percent < 50
        if len(info.gpus) > 1:
            assert info.leave_one_gpu_out_percent is not None
            assert info.new_shapes_percent < info.leave_one_gpu_out_percent < 50
            assert {row.protocol for row in info.held_out} >= {"leave_one_gpu_out", "new_shapes"}


def test_all_predictors_are_small() -> None:
    assert sum(path.stat().st_size for path in data_folder("predictors").iterdir()) < 60e6


def _no_schema(manifest: dict[str, Any]) -> None:
    manifest["schema_version"] = 99


def _other_features(manifest: dict[str, Any]) -> None:
    manifest["predictors"][0]["features"].reverse()


def _other_constants(manifest: dict[str, Any]) -> None:
    manifest["predictors"][0]["constants"].popitem()


def _no_interval(manifest: dict[str, Any]) -> None:
    del manifest["predictors"][0]["interval"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(_no_schema, "schema version 99", id="schema"),
        pytest.param(_other_features, "another law", id="features"),
        pytest.param(_other_constants, "another law", id="constants"),
        pytest.param(_no_interval, "'interval'", id="missing-key"),
    ],
)
def test_a_manifest_that_does_not_fit(change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path) -> None:
    manifest = json.loads((data_folder("predictors") / "manifest.json").read_text())
    change(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(PredictorError, match=message) as caught:
        load_predictors(tmp_path)
    assert "make predictors" in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff\xfe", b'{"schema_version": 1'])
def test_a_manifest_that_cannot_be_read(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    for read in (load_predictors, list_predictors):
        with pytest.raises(PredictorError, match="make predictors"):
            read(tmp_path)


@pytest.mark.parametrize("fault", ["changed", "missing"])
def test_a_file_that_is_not_the_manifests(fault: str, tmp_path: Path) -> None:
    folder = tmp_path / "predictors"
    shutil.copytree(data_folder("predictors"), folder)
    shipped = load_predictors(folder)["softmax", "float32"]
    if fault == "changed":
        shipped.path.write_bytes(shipped.path.read_bytes() + b"\0")
    else:
        shipped.path.unlink()
    with pytest.raises(PredictorError, match="make predictors"):
        estimate([LEARNED[7]], load_gpu("t4"), shipped)


def test_a_class_without_predictor_is_analytic() -> None:
    assert {found.method for found in predict(LEARNED, load_gpu("t4"), predictors={})} == {"analytic"}


DATASHEET = """
vendor = "NVIDIA"
architecture = "Hopper"
compute_capability = 9.0
process_nm = 5
sm_count = 132
fp32_lanes_per_sm = 128
boost_mhz = 1500
warp_size = 32
max_threads_per_sm = 2048
l2_mb = 50
memory_gb = 96
memory_type = "HBM3"
memory_bandwidth_gb_s = 2400
tdp_w = 450
fp32_tflops = 50.7
fp16_tflops = 750
"""
"""What a datasheet of a GPU that nobody has says, and nothing else."""


@pytest.mark.parametrize(
    ("kernel", "measured"),
    [
        pytest.param(Gemm(m=2048, n=3072, k=768, dtype=FP32, b_is_weight=True), "a100-pcie-40gb", id="gemm"),
        pytest.param(Gemm(m=2048, n=3072, k=768, dtype=FP16, b_is_weight=True), "h100-sxm", id="gemm in fp16"),
        pytest.param(convolution(), "a100-pcie-80gb", id="conv"),
        pytest.param(
            Elementwise(operations=("add",), inputs=(tensor(4096, 1024),) * 2, output=tensor(4096, 1024)),
            "a100-pcie-40gb",
            id="add",
        ),
        pytest.param(Softmax(rows=4096, cols=512, dtype=FP32), "a100-pcie-40gb", id="softmax"),
    ],
)
def test_a_datasheet_is_enough_and_makes_the_interval_wider(kernel: Kernel, measured: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(DATASHEET)
    (own,) = predict([kernel], load_gpu(path))
    (known,) = predict([kernel], load_gpu(measured))
    assert own.method == known.method == "learned"
    assert own.predictor == known.predictor
    assert own.high_us / own.low_us > known.high_us / known.low_us


def test_a_gpu_without_bf16_keeps_the_predictor_for_fp16(tmp_path: Path) -> None:
    """Both formats have one predictor; kernels of both at once must not decide for each other."""
    path = tmp_path / "mine.toml"
    path.write_text(DATASHEET)
    kernels = [Gemm(m=2048, n=3072, k=768, dtype=dtype, b_is_weight=True) for dtype in (DataType.BFLOAT16, FP16)]
    assert [found.method for found in predict(kernels, load_gpu(path))] == ["analytic", "learned"]


@pytest.mark.parametrize("precision", ["bf16", "tf32", "fp8", "int8"])
def test_a_precision_without_a_peak_is_refused(precision: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(DATASHEET)
    model = Path(__file__).parent.parent / "examples" / "bert_base.onnx"
    with pytest.raises(NotSupportedError, match=f"precision {precision} on mine: no rate of its .* is stated; give "):
        analyze(model, gpu=path, precision=precision)


@pytest.mark.parametrize(
    ("operation", "source", "target", "expected_us"),
    [
        # 16,384^2 elements: 1.342 GB, 805 MB, and so on; an H100 reaches .87-.91 of 3.35 TB/s in its best such kernels
        ("quantize", FP32, DataType.INT8, 451.0),
        ("quantize", FP16, DataType.INT8, 270.0),
        ("quantize", DataType.BFLOAT16, DataType.FLOAT8E4M3FN, 270.0),
        ("dequantize", DataType.INT8, FP32, 451.0),
        ("dequantize", DataType.UINT8, FP16, 270.0),
    ],
)
def test_quantisers_take_their_bytes(operation: str, source: DataType, target: DataType, expected_us: float) -> None:
    shape = (16_384, 16_384)
    kernel = Elementwise(
        operations=(operation,), inputs=(tensor(*shape, dtype=source),), output=tensor(*shape, dtype=target)
    )
    (found,) = predict([kernel], load_gpu("h100-sxm"))
    assert found.method == "learned"
    assert found.latency_us == pytest.approx(expected_us, rel=0.05)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "t4", "mi300x"])
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({"m": 0, "n": 8, "k": 8}, id="no-rows"),
        pytest.param({"m": 8, "n": 8, "k": 0}, id="sums-of-nothing"),
        pytest.param({"batch": 0, "m": 8, "n": 8, "k": 8}, id="no-products"),
    ],
)
def test_products_of_nothing_take_a_launch(sizes: dict[str, int], gpu: str) -> None:
    """Beside one that isn't empty, whose time they don't change."""
    full = Gemm(m=512, n=512, k=512, dtype=FP16)
    empty, beside = predict([Gemm(**sizes, dtype=FP16), full], load_gpu(gpu))
    assert empty.method == "analytic"
    assert 1.0 < empty.latency_us < 4.0
    assert beside == predict([full], load_gpu(gpu))[0]


@pytest.mark.parametrize("taps", [(1, 1), (3, 3)])
@pytest.mark.parametrize("direction", ["forward", "data", "weight"])
def test_float16_slows_no_convolution_of_rdna(taps: tuple[int, int], direction: str) -> None:
    whole = replace(CONV16, dtype=FP32, filter=taps, direction=direction)
    (slow,), (quick,) = (predict([kernel], load_gpu("rx-7900-xtx")) for kernel in (whole, replace(whole, dtype=FP16)))
    assert quick.latency_us <= slow.latency_us
