"""Products of 8 bits and less on the shipped predictors: what formats of one peak take, and what their data must not
leave in them (conversions, a timer's events, a framework's own kernels)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import Gemm
from neusight_onnx.laws.catalog import apply_law
from neusight_onnx.laws.tensor_gemm.law import TENSOR_GEMM
from neusight_onnx.laws.tensor_gemm.memory import weight_copies
from neusight_onnx.predictor import predict

PRIORS = {constant.name: constant.prior for constant in TENSOR_GEMM.constants}
BF16, FP8, INT8, INT4 = DataType.BFLOAT16, DataType.FLOAT8E4M3FN, DataType.INT8, DataType.INT4


def product(m: int, n: int, k: int, dtype: DataType, weights: DataType | None = None) -> Gemm:
    """A linear layer's product whose operands are stored as they are multiplied, but for ``weights``; 16 bits out."""
    return Gemm(m=m, n=n, k=k, dtype=dtype, b_dtype=weights, output_dtype=BF16, b_is_weight=True, transpose_b=True)


def times(kernels: list[Gemm], gpu: str | GpuSpec) -> list[float]:
    spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
    return [prediction.latency_us for prediction in predict(kernels, spec)]


@pytest.mark.parametrize("gpu", ["l40s", "l4", "h100-sxm", "b200-sxm", "rtx-6000-ada"])
@pytest.mark.parametrize(("n", "k"), [(8192, 8192), (1024, 16384)])
def test_long_fp8_products_keep_their_rate(gpu: str, n: int, k: int) -> None:
    """SGLang's kernel halves its rate on an L40S from 16,384 rows on, which no other framework's does."""
    four, sixteen = times([product(rows, n, k, FP8) for rows in (4096, 16384)], gpu)
    assert 3.0 < sixteen / four < 4.8


@pytest.mark.parametrize("gpu", ["l40s", "h100-sxm", "b200-sxm", "l4"])
def test_fp8_and_int8_of_one_peak_are_alike(gpu: str) -> None:
    """Operands of both are quantised by the layer before: what differs is the energy of a FLOP, .65 to .5."""
    fp8, int8 = times([product(8192, 8192, 8192, dtype) for dtype in (FP8, INT8)], gpu)
    assert 0.85 < fp8 / int8 < 1.4


@pytest.mark.parametrize("gpu", ["l40s", "h100-sxm", "a100-sxm-80gb"])
@pytest.mark.parametrize("weights", [INT8, INT4])
def test_narrow_weights_are_no_quicker_where_the_pipe_decides(gpu: str, weights: DataType) -> None:
    """They are multiplied in 16 bits; what was timed by one run each didn't feel the power limit, a model does."""
    wide, narrow = times([product(8192, 8192, 8192, BF16), product(8192, 8192, 8192, BF16, weights)], gpu)
    assert narrow / wide > 0.95


@pytest.mark.parametrize("dtype", [FP8, INT8])
@pytest.mark.parametrize("m", [1, 16, 128, 512, 2048, 8192])
def test_a_5090_is_quicker_than_a_4090(dtype: DataType, m: int) -> None:
    """A fifth more units and 1.8 times the bandwidth; both are GeForce cards of one kind of instructions."""
    for n, k in ((4096, 4096), (4096, 14336), (11008, 4096)):
        newer, older = (times([product(m, n, k, dtype)], gpu)[0] for gpu in ("rtx-5090", "rtx-4090"))
        assert newer < older, (n, k)


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "l40s"])
@pytest.mark.parametrize(
    ("dtype", "weights"),
    [
        pytest.param(INT8, None, id="int8"),
        pytest.param(BF16, INT8, id="weights-of-8-bits"),
        pytest.param(BF16, INT4, id="weights-of-4-bits"),
    ],
)
def test_a_lone_runs_events_are_in_no_prediction(gpu: str, dtype: DataType, weights: DataType | None) -> None:
    """Small products take as long as 16-bit ones, replayed: an A100's events add 6 us to rows of one run each."""
    shapes = [(16, 128, 128), (16, 256, 256), (64, 512, 256)]
    wide = times([product(*shape, BF16) for shape in shapes], gpu)
    narrow = times([product(*shape, dtype, weights) for shape in shapes], gpu)
    assert all(after < before + 3.0 for before, after in zip(wide, narrow, strict=True))


def test_a_scale_a_tensor_takes_a_kernel_more() -> None:
    """That looks for the greatest value: 7 us, and the activations' bytes, at .38 of the DRAM's peak beyond an H100's
    L2 (8,192 x 16,384: 212 us measured); a converted operand takes neither."""
    gpu = load_gpu("h100-sxm")
    small = replace(product(16, 256, 256, FP8), a_dtype=BF16)
    large = replace(product(8192, 512, 16384, FP8), a_dtype=BF16)
    for kernel, expected_us in ((small, 7.0), (large, 212.0)):
        pair = (kernel, replace(kernel, tensor_scale=True))
        row, tensor = apply_law(TENSOR_GEMM, pair, gpu, PRIORS).result.latency_us
        assert tensor - row == pytest.approx(expected_us, rel=0.08)
    alone = (product(16, 256, 256, FP8), replace(product(16, 256, 256, FP8), tensor_scale=True))
    assert np.ptp(apply_law(TENSOR_GEMM, alone, gpu, PRIORS).result.latency_us) == 0.0


def test_conversions_are_in_no_feature() -> None:
    """A product behind a layer that quantises is the one that was measured behind kernels that do."""
    gpu = load_gpu("h100-sxm")
    converted = replace(product(256, 4096, 4096, FP8), a_dtype=BF16, tensor_scale=True)
    found = apply_law(TENSOR_GEMM, (converted, product(256, 4096, 4096, FP8)), gpu, PRIORS).features
    same = [name for name in TENSOR_GEMM.feature_names if name not in ("log_total_over_l2", "log_intensity_over_ridge")]
    columns = [TENSOR_GEMM.feature_names.index(name) for name in same if name != "log_copies_over_l2"]
    np.testing.assert_allclose(found[0, columns], found[1, columns], rtol=1e-5)


@pytest.mark.parametrize(
    ("mib", "copies", "warm"),
    [
        pytest.param(16, 5, True, id="five-copies"),
        pytest.param(21, 5, False, id="five-don't-fit"),
        pytest.param(24, 4, True, id="four-fill-it"),
        pytest.param(28, 4, False, id="four-don't-fit"),
        pytest.param(48, 2, True, id="two-fill-it"),
        pytest.param(64, 2, False, id="two-don't-fit"),
        pytest.param(96, 1, True, id="one-fills-it"),
        pytest.param(112, 1, False, id="one-doesn't-fit"),
    ],
)
def test_replays_fill_the_l2_with_weights(mib: int, copies: int, warm: bool) -> None:
    """An L40S has 96 MiB of L2: TensorRT-LLM's rows read at twice DRAM's rate where copies just fill it, else at it."""
    gpu = load_gpu("l40s")
    kernel = replace(product(16, mib * 256, 4096, FP8), repeated=True, burst=True)
    filled, count = weight_copies(TENSOR_GEMM.columns([kernel]), gpu)
    assert filled.tolist() == [True]
    assert count.tolist() == [copies]
    dram_us = mib * 2**20 / gpu.memory_bytes_per_s * 1e6
    (time_us,) = apply_law(TENSOR_GEMM, (kernel,), gpu, PRIORS).result.latency_us
    assert bool(time_us < dram_us) == warm
    # a layer of a model finds none of its weights there
    (cold_us,) = apply_law(TENSOR_GEMM, (replace(kernel, repeated=False),), gpu, PRIORS).result.latency_us
    assert cold_us > dram_us


def test_int8_of_few_rows_spreads_over_the_sms() -> None:
    """TensorRT-LLM's kernel of up to four rows: 128 columns of 65,536 in 14 us on an A100, the events' 6 taken off; two
    tiles of 64 columns would take ten times that, as those of 16 rows do."""
    gpu = load_gpu("a100-sxm-80gb")
    few, more = apply_law(
        TENSOR_GEMM, (product(1, 128, 65536, INT8), product(16, 128, 65536, INT8)), gpu, PRIORS
    ).result.latency_us
    assert few < 25.0
    assert more > 2.0 * few
