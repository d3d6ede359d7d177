"""Products on matrix units whose rows are no whole vectors of 16 bytes, by the instructions that load them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Gemm, NodeWork
from neusight_onnx.laws.catalog import apply_law
from neusight_onnx.laws.tensor_gemm.law import TENSOR_GEMM
from neusight_onnx.laws.tensor_gemm.unaligned import vectors
from neusight_onnx.lowering.row_padding import with_row_padding
from neusight_onnx.predictor import predict
from neusight_onnx.runtime import get_runtime

FP16, TF32, INT8 = DataType.FLOAT16, DataType.TFLOAT32, DataType.INT8
PRIORS = {constant.name: constant.prior for constant in TENSOR_GEMM.constants}
GPUS = ("v100-pcie-32gb", "t4", "a100-sxm-80gb", "l40s", "rtx-4090", "h100-sxm", "b200-sxm")


def product(m: int, n: int, k: int, dtype: DataType = FP16, **fields: object) -> Gemm:
    return replace(Gemm(m=m, n=n, k=k, dtype=dtype), **fields)


def law_us(kernel: Gemm, gpu: str) -> float:
    return float(apply_law(TENSOR_GEMM, [kernel], load_gpu(gpu), PRIORS).result.latency_us[0])


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(product(64, 64, 64), (16, 16), id="whole"),
        pytest.param(product(64, 64, 65), (2, 16), id="rows-of-the-left"),
        pytest.param(product(64, 64, 65, transpose_a=True, transpose_b=False), (16, 16), id="depth-in-no-row"),
        pytest.param(product(64, 50_257, 768), (2, 2), id="columns"),
        pytest.param(product(64, 50_257, 768, transpose_b=True), (16, 2), id="columns-of-the-result-alone"),
        pytest.param(product(65, 64, 64), (16, 16), id="any-number-of-rows"),
        pytest.param(product(65, 64, 64, transpose_a=True), (2, 16), id="rows-that-lie-along"),
        pytest.param(product(64, 66, 64), (4, 4), id="even"),
        pytest.param(product(64, 68, 64), (8, 8), id="fours"),
        pytest.param(product(64, 68, 64, TF32), (16, 16), id="tf32-fours"),
        pytest.param(product(64, 65, 64, TF32), (4, 4), id="tf32-odd"),
        pytest.param(product(64, 65, 64, INT8), (16, 16), id="bits-that-callers-pad"),
        pytest.param(product(64, 65, 64, b_dtype=DataType.INT4), (16, 16), id="packed-weights"),
        pytest.param(product(64, 65, 64, row_padding="stored"), (16, 16), id="padded"),
        pytest.param(product(1, 50_257, 768), (16, 16), id="one-row"),
        pytest.param(product(64, 1, 765), (16, 16), id="one-column"),
    ],
)
def test_bytes_that_lie_together(kernel: Gemm, expected: tuple[float, float]) -> None:
    assert vectors(kernel, kernel.m) == expected


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("dtype", [FP16, TF32])
def test_unaligned_products_take_longer(gpu: str, dtype: DataType) -> None:
    spec = load_gpu(gpu)
    if dtype is TF32 and "tf32" not in spec.peak_flops_per_s:
        pytest.skip("has no TF32")
    sizes = [4096, 4097, 4104]
    whole, odd, padded = (answer for answer in predict([product(size, size, size, dtype) for size in sizes], spec))
    assert whole.latency_us < odd.latency_us > padded.latency_us
    assert odd.high_us / odd.latency_us > 1.05 * padded.high_us / padded.latency_us


@pytest.mark.parametrize(
    ("gpu", "least", "most"),
    [
        # by hand, 256x128: 16-bit products 32 clocks a step of k; loads 384 elements by two passes of 32 lanes, 24
        # (less 1.5 of whole vectors), fragments 16
        pytest.param("a100-sxm-80gb", 1.2, 1.7, id="ampere"),
        # the same loads beside products that take 16 clocks by WGMMA and 25 by mma
        pytest.param("h100-sxm", 2.0, 3.0, id="hopper"),
        # products take four times as many clocks, loads by 16 lanes twice as many
        pytest.param("rtx-3090", 1.0, 1.3, id="halved-pipe"),
    ],
)
def test_how_much_longer_odd_rows_take(gpu: str, least: float, most: float) -> None:
    ratio = law_us(product(4097, 4097, 4097), gpu) / law_us(product(4097, 4097, 4097, row_padding="stored"), gpu)
    assert least < ratio < most


def test_even_rows_are_hoppers_own_kernels_and_no_blackwells() -> None:
    ratios = {
        gpu: law_us(product(4098, 4098, 4098), gpu) / law_us(product(4098, 4098, 4098, row_padding="stored"), gpu)
        for gpu in ("h100-sxm", "b200-sxm")
    }
    assert ratios["h100-sxm"] < 1.3
    assert ratios["b200-sxm"] > 2.0


@pytest.mark.parametrize("gpu", GPUS)
def test_few_rows_stream_weights_as_fast(gpu: str) -> None:
    row, padded = (predict([product(1, n, 768)], load_gpu(gpu))[0].latency_us for n in (50_257, 50_264))
    assert row == pytest.approx(padded, rel=0.03)


def test_who_pads() -> None:
    odd = product(1024, 50_257, 768, b_is_weight=True)
    spec = load_gpu("h100-sxm")
    times = {}
    for name in ("eager", "onnxruntime", "compiled", "tensorrt"):
        written = NodeWork(node="x", op_type="MatMul", kernels=(odd,))
        (work,) = with_row_padding([written], get_runtime(name).row_padding)
        times[name] = predict(work.kernels, spec)[0].latency_us
    assert times["eager"] == times["onnxruntime"] > 1.1 * times["compiled"] > 1.1 * times["tensorrt"]


@pytest.mark.parametrize(("release", "wants"), [("1.5", True), ("1.6", False)])
def test_matrix_units_of_cublas_10_wanted_eights(release: str, wants: bool) -> None:
    """What that makes of a product: ``test_matrix_units_wanted_eights``."""
    assert get_runtime(f"eager@{release}").units_want_eights is wants


def test_copies_that_save_nothing_are_not_made() -> None:
    few = product(16, 50_257, 768)
    plain, copied = predict([few, replace(few, row_padding="copied")], load_gpu("a100-sxm-80gb"))
    assert copied.latency_us == plain.latency_us


@pytest.mark.parametrize("gpu", GPUS)
def test_padded_rows_are_never_slower(gpu: str) -> None:
    """The trees' residual is that of the padded product, its tile among its features."""
    sizes = [(m, n, k) for m in (2, 16, 256, 1000) for n in (257, 1000, 4097) for k in (197, 768, 4096)]
    bare = [product(*each) for each in sizes]
    padded = [replace(kernel, row_padding="stored") for kernel in bare]
    spec = load_gpu(gpu)
    for size, slow, quick in zip(sizes, predict(bare, spec), predict(padded, spec), strict=True):
        assert slow.latency_us > 0.999 * quick.latency_us, size
