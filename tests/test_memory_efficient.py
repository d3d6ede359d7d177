"""Attention as PyTorch and ONNX Runtime run it: which kernel on which GPU, the memory-efficient one by its parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import Attention, TensorSpec
from neusight_onnx.laws.attention import memory_efficient
from neusight_onnx.laws.attention.kernel_choice import FLASH2, MEMORY_EFFICIENT, NEWEST, kernel_of
from neusight_onnx.laws.attention.law import ATTENTION, EFFICIENT_ATTENTION, FLASH2_ATTENTION
from neusight_onnx.laws.attention.times import times
from neusight_onnx.predictor.predictions import predict
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import RUNTIMES

BF16, FP16, FP8, FP32 = DataType.BFLOAT16, DataType.FLOAT16, DataType.FLOAT8E4M3FN, DataType.FLOAT32
PRIORS = {constant.name: constant.prior for constant in ATTENTION.constants}


def of(d: int = 64, *, mask: bool = False, dtype: DataType = FP16, v: int | None = None, **more: object) -> Attention:
    """(4, 16, 2048, d) x (4, 16, 2048, d) by PyTorch."""
    spec = TensorSpec(dtype=dtype, shape=(4, 1, 2048, 2048)) if mask else None
    kernel = Attention(b=4, h=16, g=16, s=2048, t=2048, d=d, v=v or d, mask=spec, dtype=dtype, library="pytorch")
    return replace(kernel, **more)


# as launched by torch 2.9.1 on stand-ins for CUDA's libraries
@pytest.mark.parametrize(
    ("kernel", "gpu", "used"),
    [
        pytest.param(of(), "t4", MEMORY_EFFICIENT, id="turing"),
        pytest.param(of(mask=True), "v100-sxm2-16gb", MEMORY_EFFICIENT, id="volta"),
        pytest.param(of(), "a100-sxm-80gb", NEWEST, id="flash2-is-the-newest"),
        pytest.param(of(mask=True), "a100-sxm-80gb", MEMORY_EFFICIENT, id="flash2-takes-no-mask"),
        pytest.param(of(dtype=FP32), "a100-sxm-80gb", MEMORY_EFFICIENT, id="flash2-takes-no-fp32"),
        pytest.param(of(v=32), "a100-sxm-80gb", MEMORY_EFFICIENT, id="other-values"),
        pytest.param(of(512), "a100-sxm-80gb", MEMORY_EFFICIENT, id="wide-heads"),
        pytest.param(of(256), "rtx-5090", NEWEST, id="geforce"),
        pytest.param(of(), "h100-sxm", FLASH2, id="hopper"),
        pytest.param(of(dtype=BF16), "b200-sxm", FLASH2, id="blackwell"),
        pytest.param(of(mask=True), "h100-sxm", MEMORY_EFFICIENT, id="hopper-with-a-mask"),
        pytest.param(of(library=""), "h100-sxm", NEWEST, id="an-engine"),
        pytest.param(of(library="onnxruntime"), "h100-sxm", FLASH2, id="onnxruntime-has-no-flash3"),
        pytest.param(of(library="onnxruntime"), "t4", NEWEST, id="onnxruntime-has-tensorrts-on-turing"),
        pytest.param(of(kv_dtype=FP8), "h100-sxm", NEWEST, id="an-8-bit-cache"),
        pytest.param(of(dtype=FP32), "p100-pcie-16gb", MEMORY_EFFICIENT, id="pascal"),
        pytest.param(of(), "p100-pcie-16gb", NEWEST, id="no-matrix-unit"),
        pytest.param(of(mask=True), "mi300x", NEWEST, id="amd"),
    ],
)
def test_which_kernel_a_library_runs(kernel: Attention, gpu: str, used: str) -> None:
    assert kernel_of(kernel, load_gpu(gpu)) == used


@pytest.mark.parametrize(
    ("d", "dtype", "gpu", "tile", "resident"),
    [
        (32, FP16, "a100-sxm-80gb", (64, 64), 4),
        (64, FP16, "h100-sxm", (64, 64), 4),
        (80, FP16, "a100-sxm-80gb", (64, 128), 2),
        (128, FP16, "l40s", (64, 128), 1),  # 52 KB of shared memory, of 100
        (256, FP16, "a100-sxm-80gb", (32, 128), 3),
        (64, FP32, "a100-sxm-80gb", (64, 64), 3),
        (128, FP32, "a100-sxm-80gb", (64, 128), 1),
        (64, FP16, "t4", (64, 64), 3),
        (128, FP16, "t4", (32, 128), 2),
        (128, FP32, "t4", (32, 128), 2),
        (128, FP16, "v100-sxm2-16gb", (32, 128), 3),
    ],
)
def test_tiles_and_blocks_are_those_that_were_launched(
    d: int, dtype: DataType, gpu: str, tile: tuple[int, int], resident: int
) -> None:
    law, spec = EFFICIENT_ATTENTION, load_gpu(gpu)
    assert law.pin is not None
    chosen = law.pin(law.columns((of(d, dtype=dtype, mask=True),)), spec, PRIORS)
    assert (chosen["tile_q"][0], chosen["tile_k"][0]) == tile
    assert chosen["resident"][0] == resident


# as launched by onnxruntime-gpu 1.31.1: AttentionKernel<..., 64, 64, 64>, <..., 32, 128, 128>, <..., 32, 128, 1024>
@pytest.mark.parametrize(
    ("d", "dtype", "queries", "shared_bytes"),
    [
        (64, FP16, 64, 18944),
        (80, FP16, 32, 42496),
        (128, FP16, 32, 42496),
        (256, FP16, 32, 51200),
        (64, FP32, 64, 36352),
        (128, FP32, 32, 67584),
        (256, FP32, 32, 76288),
    ],
)
def test_onnxruntimes_tiles_have_fewer_queries(d: int, dtype: DataType, queries: int, shared_bytes: int) -> None:
    columns = ATTENTION.columns((of(d, dtype=dtype, mask=True, library="onnxruntime"),))
    build = memory_efficient.build_of(columns, load_gpu("a100-sxm-80gb"))
    assert (build["queries"][0], build["warps"][0], build["shared_bytes"][0]) == (queries, 4, shared_bytes)


@pytest.mark.parametrize("d", [64, 128])
def test_one_query_takes_a_tiles_products_at_the_rate_of_the_matrix_unit(d: int) -> None:
    """FP32 on an RTX 4090, whose TF32 has half an L4's rate a clock and SM: 16 serial steps of a tile, three times."""
    rtx, l4 = load_gpu("rtx-4090"), load_gpu("l4")
    kernel = of(d, dtype=FP32, b=1, s=1, library="onnxruntime")
    law = EFFICIENT_ATTENTION

    def products_cycles(gpu: GpuSpec) -> float:
        assert law.pin is not None
        pinned = law.pin(law.columns((kernel,)), gpu, PRIORS)
        assert pinned["split_k"][0] == 1
        return float(times(pinned, gpu, {**PRIORS, "pipe_overhead": 1.0})["products"][0])

    # 256 and 512 dense FLOPs a clock and SM: 82.6 TFLOP/s of 128 SMs (Ada white paper), 60 of 58 (L4's data sheet)
    assert products_cycles(rtx) / products_cycles(l4) == pytest.approx(2.0, rel=0.03)
    tile = {64: 64 * 64, 128: 32 * 128}[d]
    assert products_cycles(rtx) >= 3 * 2 * tile * 2 * d / 256 * 0.97
    assert predict((kernel,), rtx)[0].latency_us > predict((replace(kernel, dtype=FP16),), rtx)[0].latency_us


@pytest.mark.parametrize(("dtype", "share"), [(FP16, 0.512), (FP32, 1.0)])
def test_nothing_is_halved_on_vector_lanes(dtype: DataType, share: float) -> None:
    """A fifth more of the products' time; an RTX 2080 Ti halves 16 bits with sums in FP32, and has no TF32."""
    gpu, law = load_gpu("rtx-2080-ti"), EFFICIENT_ATTENTION
    pinned = law.pin(law.columns((of(dtype=dtype),)), gpu, PRIORS) if law.pin else {}
    plain, longer = (
        times(pinned, gpu, {**PRIORS, "norm": 60.0, "pipe_overhead": overhead})["products"][0]
        for overhead in (1.0, 1.2)
    )
    assert longer / plain == pytest.approx(1.0 + 0.2 * share, rel=1e-3)


def test_instructions_of_a_step_are_issued_by_four_schedulers() -> None:
    """As counted for 64 x 64 in 16 bits on Ampere: 1,024 and 25 for each 32 of the width, a mask 220; four warps."""
    columns = ATTENTION.columns((of(64), of(64, mask=True), of(32)))
    cycles = memory_efficient.issue_cycles(columns, load_gpu("a100-sxm-80gb"))
    assert cycles.tolist() == [1074.0, 1294.0, 1049.0]


def test_fp32_is_three_products_in_tf32_or_runs_on_vector_lanes() -> None:
    columns = ATTENTION.columns((of(dtype=FP32),))
    a100, t4 = load_gpu("a100-sxm-80gb"), load_gpu("t4")
    assert memory_efficient.rate(columns, a100)[0] == pytest.approx(a100.peak_flops_per_s["tf32"] / 3)
    assert memory_efficient.rate(columns, t4)[0] == t4.peak_flops_per_s["fp32"]


def test_flash2_reaches_on_hopper_what_mma_does() -> None:
    """Nothing but products: FLOPs over 62.9 % of the peak, on all SMs alike (4 * 16 * 16 blocks of 128 on 128 SMs)."""
    plain = {**PRIORS, "pipe_overhead": 1.0, "exp_overhead": 1e-12, "step_cycles": 0.0, "energy_pj": 1e-6}
    plain |= {"block_cycles": 0.0, "row_cycles": 0.0, "step_latency_cycles": 0.0}
    gpu = replace(load_gpu("h100-sxm"), sm_count=128)
    kernel = of(128)
    law = FLASH2_ATTENTION
    found = law.estimate(law.columns((kernel,)), gpu, plain)
    expected = 1e6 * 2 * kernel.macs / (0.629 * gpu.peak_flops_per_s["fp16"])
    # 128 x 64 pairs are multiplied in 1,628 clocks while four warps load 64 x 256 halves in 1,024: norm 4
    assert found.parts_us["compute"][0] == pytest.approx((1 + (1024 / 1628) ** 4) ** 0.25 * expected, rel=0.01)


@pytest.mark.parametrize("gpu", ["t4", "v100-sxm2-16gb", "a100-sxm-80gb", "h100-sxm", "b200-sxm", "rtx-5090"])
def test_a_mask_slows_attention_down_and_no_time_beats_the_hardware(gpu: str) -> None:
    kernels = (of(), of(mask=True), of(128, mask=True), of(dtype=FP32), of(256, dtype=FP32))
    plain, masked, *others = predict(kernels, load_gpu(gpu))
    assert plain.latency_us < masked.latency_us
    assert all(0 < answer.utilization <= 1 for answer in (plain, masked, *others))
    assert all(answer.low_us <= answer.latency_us <= answer.high_us for answer in (plain, masked, *others))
    assert masked.method == "analytic"  # no kernel of its kind was measured


def test_measured_kernels_are_predicted_as_they_were() -> None:
    plain, engine = predict((of(), of(library="")), load_gpu("a100-sxm-80gb"))
    assert plain.latency_us == engine.latency_us


@pytest.mark.parametrize(
    ("runtime", "library"),
    [("eager", "pytorch"), ("compiled", "pytorch"), ("onnxruntime", "onnxruntime"), ("tensorrt", "")],
)
def test_runtimes_say_whose_attention_it_is(runtime: str, library: str) -> None:
    graph = inferred(
        "y = Attention(q, k, v)",
        dict.fromkeys("qkv", (2, 8, 64, 64)),
        types=dict.fromkeys("qkv", TensorProto.BFLOAT16),
        opset=23,
    )
    (work,) = works_of(graph, RUNTIMES[runtime])
    assert [kernel.library for kernel in work.kernels if isinstance(kernel, Attention)] == [library]
    assert np.isfinite(predict(work.kernels, load_gpu("h100-sxm"))[0].latency_us)


def test_dropout_takes_instructions_of_every_pair() -> None:
    """21 of a thread for each of its 32 pairs (of a warp's 32 x 32), whatever the mask."""
    gpu = load_gpu("a100")
    cycles = [
        memory_efficient.issue_cycles(EFFICIENT_ATTENTION.columns((of(mask=True, dropout=drops),)), gpu)[0]
        for drops in (False, True)
    ]
    assert cycles[1] - cycles[0] == 32 * 21 * 4 / 4
