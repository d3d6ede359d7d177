"""The law of products on matrix units: sizes, tiles, power, conversions and bounds, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernel_formats import measured_format, predictor_label
from neusight_onnx.kernels import Gemm
from neusight_onnx.laws import matrix_units
from neusight_onnx.laws.bandwidth import has_partitioned_l2
from neusight_onnx.laws.catalog import apply_law, law_of
from neusight_onnx.laws.gemm.law import GEMM
from neusight_onnx.laws.matrix_unit_power import clock_doubt, format_doubt, sustained_share, top_clock, unit_energy
from neusight_onnx.laws.tensor_gemm.constants import own_constants
from neusight_onnx.laws.tensor_gemm.law import TENSOR_GEMM, TENSOR_GEMM_AMD, UNPACKED_GEMM
from neusight_onnx.laws.tensor_gemm.memory import stream_gain
from neusight_onnx.laws.tensor_gemm.times import times as times_of
from neusight_onnx.laws.unpacked_weights import LANES_TILE
from neusight_onnx.predictor import load_predictors, predict
from neusight_onnx.tiling import matrix_unit_tiles

FP16, BF16, FP8, INT8 = DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT8E4M3FN, DataType.INT8
INT4, FP4 = DataType.INT4, DataType.FLOAT4E2M1
PRIORS = {constant.name: constant.prior for constant in TENSOR_GEMM.constants}

# without overheads and without a power limit: the pipe at its peak, so that times are plain arithmetic
PLAIN = {
    **PRIORS,
    "pipe_overhead": 1.0,
    "narrow_overhead": 1.0,
    "tile_overhead": 0.0,
    "step_ns": 1e-9,
    "epilogue_k": 0.0,
    "energy_pj": 1e-6,
}


def linear(m: int, n: int, k: int, dtype: DataType = BF16, **stored: DataType) -> Gemm:
    return replace(Gemm(m=m, n=n, k=k, dtype=dtype, b_is_weight=True, transpose_b=True), **stored)


@pytest.mark.parametrize(
    ("kernel", "label"),
    [
        pytest.param(linear(8, 8, 8, DataType.FLOAT32), "float32", id="fp32"),
        pytest.param(linear(8, 8, 8, FP16), "bfloat16", id="fp16-as-bf16"),
        pytest.param(linear(8, 8, 8, DataType.UINT8, b_dtype=INT8), "int8", id="uint8-by-int8"),
        pytest.param(linear(8, 8, 8, DataType.FLOAT8E5M2), "float8e4m3fn", id="e5m2"),
        pytest.param(linear(8, 8, 8, FP8, a_dtype=BF16), "float8e4m3fn", id="fp8-with-conversion"),
        pytest.param(linear(8, 8, 8, FP16, b_dtype=INT8), "bfloat16+int8", id="w8a16"),
        pytest.param(linear(8, 8, 8, FP16, b_dtype=DataType.UINT4), "bfloat16+int4", id="w4a16"),
        pytest.param(linear(8, 8, 8, FP16, b_dtype=DataType.UINT2), "bfloat16+int4", id="w2a16"),
        pytest.param(linear(8, 8, 8, FP4), "float4e2m1", id="fp4"),
        pytest.param(linear(8, 8, 8, DataType.FLOAT32, b_dtype=INT4), "float32", id="w4-beside-fp32"),
        pytest.param(linear(8, 8, 8, DataType.INT16), "int16", id="int16-has-none"),
    ],
)
def test_the_predictor_of_a_product(kernel: Gemm, label: str) -> None:
    assert predictor_label(kernel) == label


def test_formats_share_a_pipe() -> None:
    assert measured_format(FP16) == "bfloat16"
    assert measured_format(DataType.FLOAT64) == "float64"
    assert law_of("gemm", "float32") is GEMM
    assert law_of("gemm", "bfloat16") is TENSOR_GEMM
    assert law_of("gemm", "bfloat16+int4") is UNPACKED_GEMM
    assert law_of("pooling", "bfloat16") is None


@pytest.mark.parametrize(
    ("gpu", "dtype", "has"),
    [
        pytest.param("v100-pcie-32gb", FP16, True, id="volta-fp16"),
        pytest.param("v100-pcie-32gb", BF16, False, id="volta-bf16"),
        pytest.param("a100-sxm-80gb", FP8, False, id="ampere-fp8"),
        pytest.param("a100-sxm-80gb", INT8, True, id="ampere-int8"),
        pytest.param("h100-sxm", FP4, False, id="hopper-fp4"),
        pytest.param("b200-sxm", FP4, True, id="blackwell-fp4"),
        pytest.param("p100-pcie-16gb", FP16, False, id="pascal"),
        pytest.param("p4", INT8, False, id="dot-products-of-pascal"),
        pytest.param("v100-pcie-32gb", INT8, False, id="dot-products-of-volta"),
        pytest.param("mi50", FP16, False, id="packed-halves-of-gcn"),
        pytest.param("mi210", FP16, True, id="cdna2"),
        pytest.param("a100-sxm-80gb", DataType.INT16, False, id="no-pipe"),
    ],
)
def test_who_has_the_pipe(gpu: str, dtype: DataType, has: bool) -> None:
    assert matrix_units.serves(load_gpu(gpu), dtype) is has


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(linear(2, 3, 5), {"a_bytes": 2, "b_bytes": 2, "converted_bytes": 0, "unpacks": 0}, id="bf16"),
        pytest.param(
            linear(2, 3, 5, FP8, a_dtype=BF16, output_dtype=BF16),
            {"a_bytes": 1, "b_bytes": 1, "converted_bytes": 2, "unpacks": 0, "out_bytes": 2},
            id="fp8-converts-activations",
        ),
        pytest.param(
            linear(2, 3, 5, BF16, b_dtype=INT4),
            {"a_bytes": 2, "b_bytes": 0.5, "converted_bytes": 0, "unpacks": 1, "multiplied_bytes": 2},
            id="w4-unpacks-weights",
        ),
        pytest.param(Gemm(batch=4, m=2, n=3, k=5, b_batch=1, dtype=BF16), {"b": 1, "m": 8}, id="shared-right-operand"),
        pytest.param(Gemm(batch=4, m=2, n=3, k=5, dtype=BF16), {"b": 4, "m": 2}, id="batched"),
    ],
)
def test_columns(kernel: Gemm, expected: dict[str, float]) -> None:
    columns = TENSOR_GEMM.columns((kernel,))
    assert {name: columns[name][0] for name in expected} == expected


def pinned(kernel: Gemm, n: int, m: int, split: int = 1) -> dict[str, np.ndarray]:
    tile = {"tile_n": n, "tile_m": m, "tile_threads": 256, "split_k": split}
    return {**TENSOR_GEMM.columns((kernel,)), **{name: np.array([float(value)]) for name, value in tile.items()}}


@pytest.mark.parametrize(
    ("gpu", "dtype", "pipe"),
    [
        pytest.param("a100-sxm-80gb", BF16, 312e12, id="a100-bf16"),
        pytest.param("a100-sxm-80gb", INT8, 624e12, id="a100-int8"),
        pytest.param("a100-sxm-80gb", FP16, 312e12, id="a100-fp16"),
    ],
)
def test_pipe_time_of_whole_tiles(gpu: str, dtype: DataType, pipe: float) -> None:
    """108 SMs, 216 tiles: two each, so that the time is FLOPs over the dense peak."""
    spec = load_gpu(gpu)
    result = TENSOR_GEMM.estimate(pinned(linear(128 * 12, 256 * 18, 8192, dtype), 256, 128), spec, PLAIN)
    assert result.tile_count.tolist() == [216]
    assert result.parts_us["compute"][0] == pytest.approx(1e6 * 2 * 1536 * 4608 * 8192 / pipe, rel=1e-6)


@pytest.mark.parametrize(
    ("gpu", "dtype", "faster"),
    [
        pytest.param("rtx-3090", FP16, 2.0, id="geforce"),
        pytest.param("rtx-3090", BF16, 1.0, id="bfloat16-has-no-such-sums"),
        pytest.param("rtx-a6000", FP16, 1.0, id="the-same-die-at-the-full-rate"),
        pytest.param("a100-sxm-80gb", FP16, 1.0, id="data-centre"),
    ],
)
def test_sums_in_fp16_have_a_rate_of_their_own(gpu: str, dtype: DataType, faster: float) -> None:
    spec, plain = load_gpu(gpu), linear(128 * 12, 256 * 18, 8192, dtype)
    times = [
        TENSOR_GEMM.estimate(pinned(kernel, 256, 128), spec, PLAIN).parts_us["compute"][0]
        for kernel in (plain, replace(plain, accumulator=FP16))
    ]
    assert times[0] / times[1] == pytest.approx(faster, rel=1e-6)


def test_twice_the_rate_takes_its_power() -> None:
    """An RTX 3090's FP16 sums at 350 W have the clock of FP32 sums on a card of its SMs at the full rate, not twice the
    rate at the clock of the halved one."""
    spec = load_gpu("rtx-3090")
    whole = replace(spec, peak_flops_per_s={**spec.peak_flops_per_s, "fp16": 142e12}, power_w=250.0)
    limited = replace(spec, power_w=250.0)
    assert sustained_share(limited, "fp16_accumulate") == pytest.approx(
        min(sustained_share(whole, "fp16"), 1.0), rel=0.02
    )
    assert sustained_share(limited, "fp16_accumulate") < 0.95 < sustained_share(limited, "fp16")


def test_one_tile_more_costs_a_round() -> None:
    """109 tiles on 108 SMs take as long as 216."""
    spec = load_gpu("a100-sxm-80gb")
    one, two, full = (
        TENSOR_GEMM.estimate(pinned(linear(128 * rows, 256, 4096), 256, 128), spec, PLAIN).parts_us["compute"][0]
        for rows in (108, 109, 216)
    )
    assert two == pytest.approx(2 * one, rel=1e-9)
    assert full == pytest.approx(two, rel=1e-9)


def test_power_limits_the_clock() -> None:
    """An L4 (72 W for 121 TFLOP/s) is far from its peak, an A100 (400 W for 312) is not; an L4 with power is."""
    kernel = linear(8192, 8192, 8192)
    l4 = load_gpu("l4")
    shares = []
    for spec in (l4, load_gpu("a100-sxm-80gb"), replace(l4, power_w=720.0)):
        result = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), spec, PRIORS)
        shares.append(result.ideal_us[0] / result.latency_us[0])
    # 72 W less 25.5 W at rest, over what 121 TFLOP/s at 2.04 GHz take: 2.8 pJ x .36 x 1.37 x 1.457^.6; to 1 / 1.6
    budget = (72 - 0.085 * 300.1) / (2.8 * 0.36 * 1.37 * (2.04 / 1.4) ** 0.6 * 121)
    assert shares[0] == pytest.approx(budget**0.625, rel=0.06)
    assert 0.75 < shares[1] < 0.85
    assert 0.8 < shares[2] < 0.95


def test_a_burst_is_over_before_the_limit_acts() -> None:
    """On an L40S a product of 40 us keeps its clock when it is measured, one of 50 ms doesn't; in a model neither does,
    and on operands that switch nothing both do."""
    spec = load_gpu("l40s")
    short, long = linear(1024, 2048, 2048), linear(16384, 16384, 16384)
    steady, burst, still = (
        TENSOR_GEMM.estimate(
            TENSOR_GEMM.columns(tuple(replace(kernel, burst=is_burst, activity=activity) for kernel in (short, long))),
            spec,
            PRIORS,
        ).parts_us["compute"]
        for is_burst, activity in ((False, 1.0), (True, 1.0), (False, 1e-6))
    )
    assert burst[0] < 1.1 * still[0]
    assert steady[0] > 1.2 * still[0]
    assert burst[1] == pytest.approx(steady[1], rel=0.02)
    assert steady[1] > 1.4 * still[1]


def test_waiting_takes_no_power() -> None:
    """On a T4 a kernel that waits for DRAM keeps its clock; one that half waits loses what it doesn't need; one that
    computes takes longer."""
    spec = load_gpu("t4")
    tile = np.array([[128.0], [64.0], [256.0], [1.0]])
    kernels = (linear(16, 16384, 16384, FP16), linear(64, 16384, 16384, FP16), linear(8192, 8192, 8192, FP16))
    streams, mixed, computes = (
        times_of(TENSOR_GEMM.columns((kernel,)), spec, own_constants(spec, PRIORS), tile) for kernel in kernels
    )
    assert streams["level"][0] > 0.99
    assert 0.7 < mixed["level"][0] < 0.85
    assert mixed["compute"][0] < 0.5 * mixed["memory"][0]
    assert computes["level"][0] < 0.43


@pytest.mark.parametrize("name", ["t4", "l4", "h100-sxm", "rtx-pro-6000-max-q"])
@pytest.mark.parametrize("rows", [16, 64, 256, 4096])
def test_a_higher_boost_clock_slows_nothing(name: str, rows: int) -> None:
    """What the power limit leaves is the same, whatever clock the maker states, also where memory is waited for."""
    spec = load_gpu(name)
    peaks = {pipe: 1.25 * peak for pipe, peak in spec.peak_flops_per_s.items()}
    quicker = replace(spec, clock_hz=1.25 * spec.clock_hz, peak_flops_per_s=peaks)
    cols = TENSOR_GEMM.columns((linear(rows, 28672, 8192, FP16),))
    before, after = (TENSOR_GEMM.estimate(cols, gpu, PRIORS).latency_us[0] for gpu in (spec, quicker))
    assert after <= 1.005 * before


@pytest.mark.parametrize("name", ["t4", "a10", "jetson-agx-orin-64gb", "rtx-4060", "h20"])
@pytest.mark.parametrize("rows", [1, 64, 256, 4096])
def test_more_sms_slow_nothing(name: str, rows: int) -> None:
    """The last round of tiles is emptier, which takes no bytes and no bandwidth."""
    spec = load_gpu(name)
    cols = TENSOR_GEMM.columns((linear(rows, 28672, 8192, FP16), linear(rows, 4096, 4096, FP16)))
    times = []
    for factor in (1.0, 1.1, 1.25, 1.5):
        sms = round(factor * spec.sm_count)
        peaks = {pipe: peak * sms / spec.sm_count for pipe, peak in spec.peak_flops_per_s.items()}
        gpu = replace(spec, sm_count=sms, peak_flops_per_s=peaks)
        times.append(TENSOR_GEMM.estimate(cols, gpu, PRIORS).latency_us)
    assert all(np.all(after <= 1.03 * before) for before, after in pairwise(times))


def test_energy_of_unmeasured_processes_is_doubted() -> None:
    """T4 is under its limit, no other GPU in 12 nm was on real values, at .38 of its boost clock; an A100's energy and
    clock are known; a V100 is nearer to its limit than to its doubt; L4's process is known, its .40 of the boost clock
    no measured GPU's."""
    kernel = linear(8192, 8192, 8192, FP16)
    doubts = []
    for name in ("t4", "a100-sxm-80gb", "v100-sxm2-32gb", "l4"):
        found = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), load_gpu(name), PRIORS).doubt_log_sd
        assert found is not None
        doubts.append(float(found[0]))
    # of a kernel that only computes: energies .2 off and an exponent .6 off, over the slope of 1.6
    whole = [np.hypot(0.2 / 1.6, np.log(0.7 / 0.38) * 0.375), np.log(0.7 / 0.40) * 0.375]
    assert 0.75 * whole[0] < doubts[0] < 1.05 * whole[0]
    assert doubts[1] == 0.0
    assert 0.0 < doubts[2] < 0.125
    assert 0.75 * whole[1] < doubts[3] < 1.05 * whole[1]


@pytest.mark.parametrize(
    ("gpu", "doubt"),
    [
        pytest.param("rtx-pro-6000", 0.2 / 1.6, id="blackwells-mma"),
        pytest.param("rtx-5090", 0.2 / 1.6, id="geforce-blackwell"),
        pytest.param("rtx-6000-ada", 0.0, id="ada"),
        pytest.param("b300-sxm", 0.0, id="tcgen05"),
        pytest.param("a40", 0.2 / 1.6, id="8-nm"),
    ],
)
def test_energy_of_unmeasured_matrix_units_is_doubted(gpu: str, doubt: float) -> None:
    """A kernel that only computes, at .7 of the boost clock: a smooth limit of power 12 leaves .986 of the doubt."""
    found = clock_doubt(load_gpu(gpu), np.array([0.7]), np.ones(1))
    assert found[0] == pytest.approx(doubt * (1.0 - 0.7**12))


@pytest.mark.parametrize(
    ("name", "level", "doubt"),
    [
        pytest.param("int8", 0.5, 0.25 / 1.6, id="int8"),
        pytest.param("tf32", 0.5, 0.25 / 1.6, id="tf32"),
        pytest.param("fp8", 0.5, 0.0, id="fp8, which was measured"),
        pytest.param("int8", 1.0, 0.0, id="a clock that is held"),
    ],
)
def test_energy_of_formats_that_no_limited_kernel_shows_is_doubted(name: str, level: float, doubt: float) -> None:
    pipe = np.array([float(matrix_units.PIPES.index(name))])
    found = format_doubt(load_gpu("l40s"), pipe, np.array([level]), np.ones(1))
    assert found[0] == pytest.approx(doubt, rel=1e-3)


def test_energy_of_int8_is_the_middle_of_what_published_energies_allow() -> None:
    """A tenth to a half of it arithmetic, which takes .16; what moves a half, or what FP8's .65 leaves beside .55."""
    l4 = load_gpu("l4")
    int8, fp8, fp16 = (
        unit_energy(l4, np.array([float(matrix_units.PIPES.index(name))]))[0] for name in ("int8", "fp8", "fp16")
    )
    found = [(1.0 - part) / 2 + 0.16 * part for part in (0.1, 0.5)]
    found += [fp8 / fp16 - (0.55 - 0.16) * part for part in (0.1, 0.5)]
    assert int8 / fp16 == pytest.approx((min(found) * max(found)) ** 0.5, rel=0.02)


def test_the_law_tells_of_energies_that_no_kernel_shows() -> None:
    """An L4's limit takes most of the clock, of products that compute all the time."""
    kernels = (linear(8192, 8192, 8192, INT8), linear(8192, 8192, 8192, BF16))
    found = TENSOR_GEMM.estimate(TENSOR_GEMM.columns(kernels), load_gpu("l4"), PRIORS).untold_log_sd
    assert found is not None
    assert 0.8 * 0.25 / 1.6 < found[0] <= 0.25 / 1.6
    assert found[1] == 0.0


def test_results_in_8_bits_take_half_around_a_tiles_loop() -> None:
    """100 steps of two bytes beside 4096 of one: 4296 over 4196."""
    constants = {**PRIORS, "epilogue_k": 100.0, "energy_pj": 1e-9}
    tile, a100 = np.array([[128.0], [128.0], [256.0], [1.0]]), load_gpu("a100")
    wide, narrow = (
        times_of(TENSOR_GEMM.columns((linear(4096, 4096, 4096, INT8, output_dtype=out),)), a100, constants, tile)
        for out in (BF16, None)
    )
    assert wide["compute"][0] / narrow["compute"][0] == pytest.approx(4296 / 4196)


def test_conversion_adds_a_kernel() -> None:
    """1024 x 4096 activations: 1.5 x (2 + 1) bytes each at 3.35 TB/s, and a launch of 2 us."""
    spec = load_gpu("h100-sxm")
    plain, converting = (
        TENSOR_GEMM.estimate(pinned(kernel, 128, 128), spec, PRIORS).latency_us[0]
        for kernel in (
            linear(1024, 4096, 4096, FP8, output_dtype=BF16),
            linear(1024, 4096, 4096, FP8, a_dtype=BF16, output_dtype=BF16),
        )
    )
    assert converting - plain == pytest.approx(2.0 + 1e6 * 1.5 * 1024 * 4096 * 3 / 3.35e12, rel=1e-6)


def test_narrow_weights_are_read_faster() -> None:
    """A few rows are bound by the weights: 4 bits take a quarter of the bytes of 16."""
    spec = load_gpu("a100-sxm-80gb")
    wide, narrow = (
        TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), spec, PRIORS)
        for kernel in (linear(1, 16384, 16384), linear(1, 16384, 16384, b_dtype=INT4))
    )
    assert narrow.parts_us["memory"][0] < 0.3 * wide.parts_us["memory"][0]
    assert narrow.latency_us[0] < 0.6 * wide.latency_us[0]


def memory_us(kernel: Gemm, gpu: str, n: int = 64, m: int = 16) -> float:
    """Time of the bytes of a product in one tile size, from DRAM or from L2, in us."""
    parts_us = TENSOR_GEMM.estimate(pinned(kernel, n, m), load_gpu(gpu), PRIORS).parts_us
    return float(max(parts_us["memory"][0], parts_us["kept"][0]))


# rate of what an L40S's L2 holds over its DRAM's: 12 bytes a clock on 142 SMs at 2.52 GHz against .82 of 864 GB/s
L40S_GAIN = 12 * 142 * 2.52e9 / (0.82 * 864e9)


def test_what_fits_l2_is_not_read_from_dram_if_a_kernel_is_repeated() -> None:
    """142 tiles, one an SM. Five copies of 9 MB fit an L40S's 96 MB, of 74 MB they don't: 8 times the bytes take 8
    times the gain as long. In a model other layers have been there since."""
    small, large, in_model = (
        memory_us(linear(1, 142 * 64, k, repeated=repeated), "l40s")
        for k, repeated in ((512, True), (4096, True), (512, False))
    )
    assert large / small == pytest.approx(8 * L40S_GAIN, rel=0.02)
    assert in_model / small == pytest.approx(L40S_GAIN, rel=0.02)


@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
def test_weights_that_the_run_before_left_in_l2(share: float) -> None:
    """142 tiles of 64 x 512 weights, 9 MB, hardly anything else; what is no weight was written since."""
    cold, kept, warm = (
        memory_us(linear(1, 142 * 64, 512, repeated=repeated, kept_in_l2=at), "l40s")
        for repeated, at in ((False, 0.0), (False, share), (True, 0.0))
    )
    assert kept == pytest.approx(share * warm + (1.0 - share) * cold, rel=1e-6)
    made = replace(linear(1, 142 * 64, 512), b_is_weight=False)
    assert memory_us(replace(made, kept_in_l2=share), "l40s") == memory_us(made, "l40s")


def test_activations_and_output_that_fit_l2_come_from_it_in_a_model_too() -> None:
    """142 tiles of 64 x 128 in one column: 18 MB of activations, hardly any weights; eight times as many don't fit."""
    few, many = (memory_us(linear(142 * 128 * times, 64, 512), "l40s", 64, 128) for times in (1, 8))
    assert many / few == pytest.approx(8 * L40S_GAIN, rel=0.02)


@pytest.mark.parametrize(
    ("m", "gain"),
    [
        # 36,352 x 512 elements of 2 bytes, 37 MB, and 4.7 MB of output: one fits .9 of 100.7 MB, five don't
        pytest.param(142 * 256, L40S_GAIN, id="five copies leave L2"),
        pytest.param(142 * 64, 1.0, id="five copies fit"),
        pytest.param(142 * 128 * 8, 1.0, id="one doesn't fit either"),
    ],
)
def test_activations_of_which_each_repetition_takes_another_copy(m: int, gain: float) -> None:
    """64 columns: the activations are nearly all that moves, and the output of an eighth stays the same one."""
    kernel = linear(m, 64, 512, repeated=True)
    same, other = (memory_us(replace(kernel, rotated=rotated), "l40s", 64, 128) for rotated in (False, True))
    output = 64 / (512 + 64)
    expected = 1.0 if gain == 1.0 else (1.0 - output) * gain + output
    assert other / same == pytest.approx(expected, rel=0.02)


def test_what_a_product_reads_beside_its_operands_takes_their_time() -> None:
    """A product of 64 columns that is added to as many bytes, and weights of 4 bits with a scale for 32 each."""
    plain = linear(8192 * 64, 64, 64)
    added = memory_us(replace(plain, epilogue=("add",)), "a100-sxm-80gb") / memory_us(plain, "a100-sxm-80gb")
    assert added == pytest.approx(3 / 2, rel=0.01)
    narrow = linear(1, 32768, 32768, b_dtype=INT4)
    scaled = replace(narrow, extra_read_bytes=32768 * 32768 * 2 // 32)
    assert memory_us(scaled, "a100-sxm-80gb") / memory_us(narrow, "a100-sxm-80gb") == pytest.approx(9 / 8, rel=0.01)


@pytest.mark.parametrize(
    ("name", "pipe", "element_bytes", "share"),
    [
        # 256 multiply-adds a clock and SM, of 500; FP8 has 512, of 1,000; INT8 isn't halved
        pytest.param("rtx-4090", "fp16", 2.0, 0.512, id="halved"),
        pytest.param("rtx-4090", "fp8", 1.0, 0.512, id="halved-fp8"),
        pytest.param("rtx-4090", "int8", 1.0, 1.0, id="int8-is-whole"),
        pytest.param("l40s", "fp16", 2.0, 1.0, id="full-rate"),
        pytest.param("h100", "bf16", 2.0, 1.0, id="four-times-the-rate"),
        pytest.param("mi100", "bf16", 2.0, 1.0, id="amd-has-no-halved-cards"),
    ],
)
def test_what_is_around_a_loop_is_fewer_steps_of_a_halved_pipe(
    name: str, pipe: str, element_bytes: float, share: float
) -> None:
    code = np.array([float(matrix_units.PIPES.index(pipe))])
    found = matrix_units.rate_share(load_gpu(name), code, np.array([element_bytes]))
    assert found[0] == pytest.approx(share, abs=5e-4)


def test_a_short_reduction_on_a_halved_pipe() -> None:
    """2,048 x 4,096 of k = 64 and 120 steps around each tile: (64 + .512 x 120) / 64 of the loop's time on a 4090."""
    spec = load_gpu("rtx-4090")
    constants = {**PRIORS, "epilogue_k": 120.0}
    cols = TENSOR_GEMM.columns((linear(2048, 4096, 64),))
    tile = np.array([[128.0], [128.0], [256.0], [1.0]])
    with_ends = times_of(cols, spec, {**constants, "energy_pj": 1e-6}, tile)["compute"][0]
    without = times_of(cols, spec, {**constants, "epilogue_k": 0.0, "energy_pj": 1e-6}, tile)["compute"][0]
    assert with_ends / without == pytest.approx((64 + 0.512 * 120) / 64, rel=0.01)


@pytest.mark.parametrize(
    ("name", "gain"),
    [
        # 12 bytes a clock and SM over .82 of the DRAM rate (times 1.11 with GDDR6X), never below 1
        pytest.param("l40s", 6.06, id="slow DRAM"),
        pytest.param("rtx-4090", 4.22, id="a faster DRAM"),
        pytest.param("a100-sxm-80gb", 1.093, id="DRAM that nearly keeps up with L2"),
        pytest.param("b200-sxm", 1.0, id="HBM3e"),
    ],
)
def test_l2_is_no_slower_than_dram(name: str, gain: float) -> None:
    """64 columns of 256 weights for each SM: warm against cold."""
    sms = load_gpu(name).sm_count
    warm, cold = (memory_us(linear(1, sms * 64, 256, repeated=repeated), name) for repeated in (True, False))
    assert cold / warm == pytest.approx(gain, rel=0.01)


@pytest.mark.parametrize(
    ("n", "repeated", "kept", "ideal_us"),
    [
        # 4,096 x 4,096 weights of 2 bytes, 33.6 MB, at 864 GB/s: 38.8 us; the FLOPs of one row take .1
        pytest.param(4096, False, 0.0, 38.84, id="cold weights"),
        pytest.param(4096, False, 0.75, 38.84 / 4, id="a quarter of them cold"),
        pytest.param(4096, True, 0.0, 0.0927, id="weights that L2 holds"),
        # 134.2 MB: what exceeds 100.7 MB of L2, whatever else it holds
        pytest.param(16384, True, 0.0, 38.9, id="beyond L2"),
        pytest.param(16384, False, 0.0, 155.34, id="all of them cold"),
    ],
)
def test_the_roofline_of_cold_weights(n: int, repeated: bool, kept: float, ideal_us: float) -> None:
    columns = TENSOR_GEMM.columns((linear(1, n, 4096, repeated=repeated, kept_in_l2=kept),))
    assert TENSOR_GEMM.estimate(columns, load_gpu("l40s"), PRIORS).ideal_us[0] == pytest.approx(ideal_us, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "asynchronous", "partitioned"),
    [
        ("a100-sxm-80gb", False, True),
        ("l40s", False, False),
        ("h100-sxm", True, True),
        ("b200-sxm", True, True),
        ("v100", False, False),
        ("mi300x", False, False),
    ],
)
def test_generations_of_units(name: str, asynchronous: bool, partitioned: bool) -> None:
    spec = load_gpu(name)
    assert matrix_units.asynchronous(spec) is asynchronous
    assert has_partitioned_l2(spec) is partitioned
    own = own_constants(spec, {**PRIORS, "norm": 3.0, "norm_async": 5.0, "step_ns": 0.7})
    assert own["norm"] == pytest.approx(5.0 if asynchronous else 3.0, rel=0.02)
    assert own["step_ns"] == 0.7


def test_slow_pipes_hide_loads_as_asynchronous_ones_do() -> None:
    """An RTX 4090's pipe leaves .366 of them exposed: the norm is 3^.366 x 5^.634."""
    own = own_constants(load_gpu("rtx-4090"), {**PRIORS, "norm": 3.0, "norm_async": 5.0})
    assert own["norm"] == pytest.approx(3.0**0.366 * 5.0**0.634, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "panel"),
    [
        # bytes of a step of k that a block of 256 x 128 fetches: two bytes of each row and column, and half of the
        # longer side where blocks share it
        pytest.param("a100-sxm-80gb", 2 * (256 + 128), id="each block its own"),
        pytest.param("h100-sxm", 2 * (128 + 128), id="multicast in a cluster"),
        pytest.param("b200-sxm", 2 * (128 + 128), id="two SMs as one"),
    ],
)
def test_blocks_of_a_cluster_share_what_they_fetch(gpu: str, panel: int) -> None:
    spec = load_gpu(gpu)
    result = TENSOR_GEMM.estimate(pinned(linear(128, 256 * spec.sm_count, 4096), 256, 128), spec, PRIORS)
    rate = PRIORS["l2_bytes_per_clock"] * spec.clock_hz
    assert result.parts_us["l2"][0] == pytest.approx(1e6 * 4096 * panel / rate, rel=1e-9)


@pytest.mark.parametrize(
    ("dtype", "m", "gpu", "time_us"),
    [
        # .7 ns a byte of k, unsplit: 65,536 bytes take 46 us on any GPU
        pytest.param(INT8, 16, "l40s", 45.9, id="int8-ada"),
        pytest.param(INT8, 16, "a100-sxm-80gb", 45.9, id="int8-ampere"),
        # and the one block that each SM has: 200 cycles at 1.41 GHz
        pytest.param(INT8, 4, "a100-sxm-80gb", 45.9 / 16 + 0.14, id="int8-few-rows-on-vector-lanes"),
    ],
)
def test_formats_whose_kernels_do_not_split_the_reduction(dtype: DataType, m: int, gpu: str, time_us: float) -> None:
    spec = load_gpu(gpu)
    kernel = linear(m, 128, 65536, dtype, output_dtype=BF16)
    result = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), spec, PRIORS)
    assert result.tile["split_k"][0] == 1
    assert result.parts_us["latency"][0] == pytest.approx(time_us, rel=2e-3)


UNPACKED = {constant.name: constant.prior for constant in UNPACKED_GEMM.constants}


LANES = (LANES_TILE.n, LANES_TILE.m)


@pytest.mark.parametrize(
    ("m", "tile", "gpu", "time_us"),
    [
        # 64 steps of 64 of k, 400 clocks each
        pytest.param(16, (64, 16), "a100-sxm-80gb", 64 * 400 / 1410, id="tiles"),
        pytest.param(16, (64, 16), "l40s", 64 * 400 / 2520, id="tiles-by-the-clock"),
        pytest.param(8, (64, 16), "l40s", 64 * 400 / 2520, id="tiles-of-few-rows"),
        # 3.1 clocks an element of k
        pytest.param(15, LANES, "a100-sxm-80gb", 4096 * 3.1 / 1410, id="matrix-vector"),
        pytest.param(1, LANES, "l40s", 4096 * 3.1 / 2520, id="matrix-vector-by-the-clock"),
    ],
)
def test_blocks_that_unpack_weights_take_clocks(m: int, tile: tuple[int, int], gpu: str, time_us: float) -> None:
    cols = pinned(linear(m, 64, 4096, b_dtype=INT4), *tile)
    parts = TENSOR_GEMM.estimate(cols, load_gpu(gpu), UNPACKED).parts_us
    assert parts["latency"][0] == pytest.approx(time_us, rel=1e-3)


@pytest.mark.parametrize(("m", "parts"), [(8, 4), (16, 4), (64, 4)])
def test_how_far_reductions_over_unpacked_weights_are_split(m: int, parts: int) -> None:
    cols = TENSOR_GEMM.columns((linear(m, 128, 65536, b_dtype=INT8),))
    assert TENSOR_GEMM.estimate(cols, load_gpu("l40s"), UNPACKED).tile["split_k"][0] == parts
    plain = TENSOR_GEMM.columns((linear(m, 128, 65536),))
    assert TENSOR_GEMM.estimate(plain, load_gpu("l40s"), PRIORS).tile["split_k"][0] > 4


@pytest.mark.parametrize(
    ("m", "k", "lanes"),
    [
        pytest.param(1, 2048, True, id="short"),
        pytest.param(1, 65536, False, id="long"),  # 144 us on lanes
        pytest.param(16, 1024, False, id="no-kernel-for-16-rows"),
    ],
)
def test_few_rows_by_unpacked_weights_take_lanes_or_matrix_units(m: int, k: int, lanes: bool) -> None:
    cols = TENSOR_GEMM.columns((linear(m, 1024, k, b_dtype=INT8),))
    tile = TENSOR_GEMM.estimate(cols, load_gpu("a100-sxm-80gb"), UNPACKED).tile
    assert ((tile["n"][0], tile["m"][0]) == LANES) == lanes
    assert tile["split_k"][0] == 1 or not lanes


@pytest.mark.parametrize("gpu", ["t4", "a100-sxm-80gb", "rtx-5090", "h100-sxm", "b200-sxm"])
def test_fewer_rows_by_unpacked_weights_take_no_longer(gpu: str) -> None:
    rows, shapes = (1, 2, 4, 8, 15, 16), ((1024, 1024), (4096, 4096), (8192, 28672), (28672, 8192), (128, 65536))
    kernels = tuple(linear(m, n, k, FP16, b_dtype=INT4) for n, k in shapes for m in rows)
    found = TENSOR_GEMM.estimate(TENSOR_GEMM.columns(kernels), load_gpu(gpu), UNPACKED).latency_us
    times_us = found.reshape(len(shapes), len(rows))
    assert (times_us[:, :-1] <= 1.001 * times_us[:, 1:]).all()


def test_blocks_of_lanes_fetch_all_rows() -> None:
    """4,096 columns are 2,048 blocks, 19 on the busiest of an A100's 108 SMs: two columns of half a byte and eight rows
    of two bytes an element of k, at the rate of an SM."""
    cols = pinned(linear(8, 4096, 4096, b_dtype=INT4), *LANES)
    found = TENSOR_GEMM.estimate(cols, load_gpu("a100-sxm-80gb"), UNPACKED).parts_us["l2"][0]
    expected = 19 * 4096 * (2 * 0.5 + 8 * 2) / (UNPACKED["l2_bytes_per_clock"] * 1410)
    assert found == pytest.approx(expected, rel=1e-3)


def test_many_columns_of_few_rows_are_multiplied_by_the_quicker_units() -> None:
    """15 rows: the lanes' 16 instructions a weight, 256 a clock and SM of an A100, would take 441 us."""
    kernel = linear(15, 65536, 16384, b_dtype=INT4)
    compute_us = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), load_gpu("a100-sxm-80gb"), UNPACKED).parts_us
    assert compute_us["compute"][0] < 441.0
    few = linear(1, 65536, 16384, b_dtype=INT4)
    compute_us = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((few,)), load_gpu("a100-sxm-80gb"), UNPACKED).parts_us
    # two instructions a weight
    assert compute_us["compute"][0] == pytest.approx(65536 * 16384 * 2 / (256 * 108 * 1410), rel=2e-2)


@pytest.mark.parametrize(
    ("gpu", "dtype", "step_ns"),
    [
        pytest.param("v100", FP16, 4.4, id="volta"),
        pytest.param("t4", FP16, 4.4, id="turing"),
        pytest.param("a100-sxm-80gb", FP16, 0.7, id="copies-under-way"),
        pytest.param("h100-sxm", FP16, 0.7, id="hopper"),
        pytest.param("mi100", FP16, 0.7, id="amd"),
    ],
)
def test_a_step_waits_for_memory_before_asynchronous_copies(gpu: str, dtype: DataType, step_ns: float) -> None:
    """A block of 16 rows and 64 columns goes through 4,096 steps of 2 bytes."""
    constants = {**PRIORS, "step_ns": 0.7}
    parts = TENSOR_GEMM.estimate(pinned(linear(16, 64, 4096, dtype), 64, 16), load_gpu(gpu), constants).parts_us
    assert parts["latency"][0] == pytest.approx(4096 * 2 * step_ns * 1e-3, rel=1e-6)


@pytest.mark.parametrize(
    ("gpu", "m", "n", "k", "measured_us"),
    [
        # DeepBench in FP16, which no predictor is trained on
        pytest.param("v100", 128, 2048, 2048, 31, id="v100"),
        pytest.param("v100", 700, 1024, 512, 18, id="v100-more-rows"),
        pytest.param("t4", 16, 2560, 2560, 57, id="t4"),
        pytest.param("t4", 32, 3072, 1024, 33, id="t4-short"),
    ],
)
def test_products_of_few_tiles_before_ampere(gpu: str, m: int, n: int, k: int, measured_us: float) -> None:
    kernel = replace(linear(m, n, k, FP16), repeated=True, burst=True)
    (found,) = predict((kernel,), load_gpu(gpu))
    assert found.latency_us == pytest.approx(measured_us, rel=0.2)


def test_a_product_of_two_vectors_takes_their_bytes() -> None:
    """32 MiB at .9 or so of 3,350 GB/s: 11 us; the launch, and the kernel that adds up."""
    (dot,) = predict((Gemm(m=1, n=1, k=2**23, dtype=FP16),), load_gpu("h100-sxm"))
    assert 11.0 < dot.latency_us < 18.0
    assert dot.bound == "memory"


@pytest.mark.parametrize(
    ("kernel", "gpu"),
    [
        pytest.param(Gemm(m=1, n=1, k=4096, dtype=FP16, epilogue=("bias",)), "h100-sxm", id="bias"),
        pytest.param(Gemm(m=1, n=32, k=4096, dtype=FP16), "h100-sxm", id="row"),
        pytest.param(linear(1, 1, 4096, FP16, b_dtype=INT4), "h100-sxm", id="narrow-weight"),
        pytest.param(Gemm(m=1, n=32, k=4096, dtype=FP16), "mi300x", id="amd"),
    ],
)
def test_other_products_in_16_bits_have_tiles(kernel: Gemm, gpu: str) -> None:
    result = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), load_gpu(gpu), PRIORS)
    assert result.unmeasured is not None
    assert result.unmeasured.tolist() == [False]
    assert result.tile["n"][0] >= 16


@pytest.mark.parametrize(
    ("gpu", "m", "n", "k", "low_us", "high_us"),
    [
        # DeepBench in FP16, 512 MB in 658 and 673 us; within 15 %
        pytest.param("v100", 8, 512, 500_000, 559, 757, id="deepbench-8"),
        pytest.param("v100", 16, 512, 500_000, 572, 774, id="deepbench-16"),
        # 18.9 MB take 5.6 us at DRAM's peak, 9.3 on A100; a quarter of that rate
        pytest.param("h100-sxm", 1, 8, 2**20, 5.6, 22.4, id="h100"),
        pytest.param("a100-sxm-80gb", 1, 8, 2**20, 9.3, 37.2, id="a100"),
    ],
)
def test_long_reductions_of_few_outputs(gpu: str, m: int, n: int, k: int, low_us: float, high_us: float) -> None:
    kernel = replace(linear(m, n, k, FP16), repeated=m > 1, burst=m > 1)
    (found,) = predict((kernel,), load_gpu(gpu))
    assert low_us < found.latency_us < high_us
    assert found.tile["split_k"] > 16


@pytest.mark.parametrize(
    ("dtype", "gpu"), [(BF16, "a100-sxm-80gb"), (FP8, "h100-sxm"), (FP8, "l40s")], ids=["bf16", "fp8-hopper", "fp8-ada"]
)
def test_products_of_cublaslt_split_the_reduction_of_few_tiles(dtype: DataType, gpu: str) -> None:
    kernel = linear(16, 128, 65536, dtype, output_dtype=BF16)
    result = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), load_gpu(gpu), PRIORS)
    assert result.tile["split_k"][0] >= 8


@pytest.mark.parametrize(
    ("gpu", "edge"),
    [("a100-sxm-80gb", 256), ("h100-sxm", 256), ("b200-sxm", 256), ("rtx-5090", 256), ("mi300x", 256)],
)
def test_menus(gpu: str, edge: int) -> None:
    tiles = matrix_unit_tiles(load_gpu(gpu))
    assert max(tile.n for tile in tiles) == edge
    assert len({(tile.n, tile.m) for tile in tiles}) == len(tiles)


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        pytest.param(Gemm(batch=65536, m=16, n=16, k=16, dtype=FP16), (16, 16), id="batch-of-16"),
        pytest.param(Gemm(batch=65536, m=32, n=32, k=16, dtype=BF16), (32, 32), id="batch-of-32"),
        pytest.param(Gemm(batch=65536, m=64, n=64, k=16, dtype=FP16), (64, 64), id="batch-that-fills-64"),
        pytest.param(Gemm(m=1_048_576, n=16, k=16, dtype=FP16), (16, 16), id="few-columns"),
        pytest.param(Gemm(m=1_048_576, n=32, k=16, dtype=FP16), (64, 256), id="as-measured"),
        pytest.param(Gemm(batch=65536, m=16, n=16, k=16, dtype=INT8), (64, 16), id="8-bits-have-none"),
        pytest.param(Gemm(batch=65536, m=16, n=16, k=16, dtype=FP16, b_dtype=INT8), (64, 16), id="unpacked-weights"),
    ],
)
def test_small_tiles(kernel: Gemm, tile: tuple[int, int]) -> None:
    result = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), load_gpu("a100-sxm-80gb"), PRIORS)
    assert (result.tile["n"][0], result.tile["m"][0]) == tile


@pytest.mark.parametrize(
    ("gpu", "threads", "cycles"),
    [
        # an SM holds 2,048 threads and 32 blocks, 1,024 and 16, 1,536 and 16, 1,536 and 24
        ("a100-sxm-80gb", 32, 2800 / 32),
        ("a100-sxm-80gb", 128, 2800 / 16),
        ("t4", 32, 2800 / 16),
        ("t4", 128, 2800 / 8),
        ("rtx-3090", 32, 2800 / 16),
        ("rtx-4090", 32, 2800 / 24),
        ("h100-sxm", 32, 2800 / 32),
    ],
)
def test_blocks_of_a_batch_live_for_a_while(gpu: str, threads: int, cycles: float) -> None:
    spec = load_gpu(gpu)
    kernel = Gemm(batch=1000 * spec.sm_count, m=16, n=16, k=1, dtype=FP16)
    columns = {**pinned(kernel, 16, 16), "tile_threads": np.array([float(threads)])}
    compute_us = TENSOR_GEMM.estimate(columns, spec, PLAIN).parts_us["compute"][0]
    # beside it a step of k: 256 multiply-adds, of which an SM does 256 to 2,048 a clock
    assert cycles < compute_us * top_clock(spec) * spec.clock_hz / 1e9 < cycles + 2


def test_products_in_small_tiles_are_less_sure() -> None:
    spec = load_gpu("a100-sxm-80gb")

    def doubt(kernel: Gemm) -> float:
        return float(TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), spec, PRIORS).doubt_log_sd[0])

    small, filled = (Gemm(batch=65536, m=side, n=side, k=16, dtype=FP16) for side in (16, 64))
    assert doubt(small) > 2.0 * doubt(filled) > 0.0


def test_small_tiles_reach_the_rate_of_mma_on_hopper() -> None:
    spec = load_gpu("h100-sxm")

    def compute_us(k: int) -> float:
        kernel = Gemm(batch=spec.sm_count, m=16, n=16, k=k, dtype=FP16)
        return float(TENSOR_GEMM.estimate(pinned(kernel, 16, 16), spec, PLAIN).parts_us["compute"][0])

    at_peak_us = 2e6 * spec.sm_count * 16 * 16 * 32768 / spec.peak_flops_per_s["fp16"]
    assert at_peak_us / (compute_us(65536) - compute_us(32768)) == pytest.approx(0.629, rel=0.001)


@settings(max_examples=150, deadline=None)
@given(
    m=st.integers(1, 50_000),
    n=st.integers(1, 70_000),
    k=st.integers(1, 70_000),
    batch=st.integers(1, 64),
    gpu=st.sampled_from(
        ["v100-pcie-32gb", "t4", "a100-sxm-80gb", "l40s", "rtx-4090", "h100-sxm", "b200-sxm", "mi300x"]
    ),
    dtype=st.sampled_from([FP16, BF16, FP8, INT8]),
)
def test_every_product_has_a_finite_time(m: int, n: int, k: int, batch: int, gpu: str, dtype: DataType) -> None:
    kernel = Gemm(batch=batch, m=m, n=n, k=k, dtype=dtype)
    answer = apply_law(TENSOR_GEMM, (kernel,), load_gpu(gpu), PRIORS)
    assert np.isfinite(answer.features).all()
    assert answer.features.shape == (1, len(TENSOR_GEMM.feature_names))
    assert answer.result.latency_us[0] > 0
    # its own parts compete: no one of them takes longer than all
    assert answer.result.latency_us[0] >= 0.98 * answer.result.parts_us["compute"][0]


@pytest.mark.parametrize(
    ("name", "top"),
    [
        ("rtx-4090", 1.11),
        ("rtx-3070", 1.11),
        ("rtx-5090", 1.11),
        ("rtx-2080-ti", 1.11),
        ("a10g", 1.0),
        ("titan-rtx", 1.0),
        ("rtx-a6000", 1.0),
        ("l40s", 1.0),
        ("h100", 1.0),
        ("h20", 1.0),
        ("v100", 1.0),
        ("mi300x", 1.0),
    ],
)
def test_geforce_cards_run_above_their_stated_clock(name: str, top: float) -> None:
    assert top_clock(load_gpu(name)) == top


@pytest.mark.parametrize(
    ("name", "share"),
    [
        # 165.2 TFLOP/s / (2 x 128 SMs x 2.52 GHz) = 256 multiply-adds a clock and SM, of 500: .512 to 1.5
        pytest.param("rtx-4090", 0.3665, id="half the rate, a third exposed"),
        pytest.param("l40s", 1.0, id="full rate"),
        pytest.param("a100", 1.0, id="twice the rate"),
    ],
)
def test_slow_pipes_hide_loads(name: str, share: float) -> None:
    assert matrix_units.exposed_share(load_gpu(name)) == pytest.approx(share, abs=5e-4)


def test_a_tile_on_a_halved_pipe_exposes_what_one_of_twice_the_sides_does() -> None:
    """64 x 64 at half the rate, 128 x 128 at the full one: the same loads in the time of the products."""
    spec = load_gpu("rtx-4090")
    whole = replace(spec, peak_flops_per_s={**spec.peak_flops_per_s, "bf16": 1000.0 * spec.sm_count * spec.clock_hz})
    halved = replace(spec, peak_flops_per_s={**spec.peak_flops_per_s, "bf16": 500.0 * spec.sm_count * spec.clock_hz})
    constants = {**PRIORS, "epilogue_k": 0.0, "energy_pj": 1e-6, "pipe_overhead": 1.0}
    cols = TENSOR_GEMM.columns((linear(128 * 128, 128 * 128, 4096),))

    def over_peak(gpu: GpuSpec, side: float) -> float:
        compute = times_of(cols, gpu, constants, np.array([[side], [side], [256.0], [1.0]]))["compute"][0]
        return float(compute * gpu.peak_flops_per_s["bf16"] * top_clock(gpu))

    assert over_peak(halved, 64.0) == pytest.approx(over_peak(whole, 128.0), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "pipe", "element_bytes", "share"),
    [
        pytest.param("rtx-2080-ti", "fp16", 2.0, 0.366, id="sums in FP32 at half the rate"),
        # 215.2 TOP/s / (2 x 68 SMs x 1.545 GHz) = 1,024 multiply-adds of half the size: 512 of two bytes
        pytest.param("rtx-2080-ti", "int8", 1.0, 1.0, id="integers at the full one"),
        pytest.param("titan-rtx", "fp16", 2.0, 1.0, id="full rate"),
    ],
)
def test_loads_are_exposed_by_pipe(name: str, pipe: str, element_bytes: float, share: float) -> None:
    pipes, sizes = np.array([float(matrix_units.PIPES.index(pipe))]), np.array([element_bytes])
    assert matrix_units.exposed_shares(load_gpu(name), pipes, sizes) == pytest.approx(share, abs=5e-3)


@pytest.mark.parametrize(
    ("name", "gain"),
    [("rtx-3090", 1.11), ("rtx-5090", 1.11), ("rtx-a6000", 1.11), ("l40s", 1.0), ("h100", 1.0), ("mi300x", 1.0)],
)
def test_gddr_without_ecc_streams_nearer_to_its_peak(name: str, gain: float) -> None:
    assert stream_gain(load_gpu(name)) == gain


@pytest.mark.parametrize(
    ("name", "share"),
    [
        # an anchor of .8 loses .25 / 19.4375 ns a byte: 1 / (1 + .25 x a channel's rate / 19.4375)
        pytest.param("a100-sxm-40gb", 0.80, id="HBM2, the anchor"),
        pytest.param("v100-pcie-32gb", 1 / (1 + 0.25 * 14.0625 / 19.4375), id="HBM2, slower channels"),
        pytest.param("a100-sxm-80gb", 1 / (1 + 0.25 * 25.4875 / 19.4375), id="HBM2e, faster ones"),
        pytest.param("h100-sxm", 1 / (1 + 20.9375 / 19.4375), id="HBM3, half as wide, an anchor of its own"),
        pytest.param("b200-sxm", 1 / (1 + 31.25 / 19.4375), id="HBM3e"),
        pytest.param("a40", 0.6, id="GDDR6 with ECC"),
        pytest.param("rtx-4090", 0.6, id="GDDR6X, before its gain"),
        pytest.param("t4", 0.6, id="GDDR6 of Turing"),
    ],
)
def test_operands_stream_at_the_share_of_their_kind_of_memory(name: str, share: float) -> None:
    constants = {**PRIORS, "dram_efficiency": 0.8, "dram_efficiency_async": 0.5, "dram_efficiency_gddr": 0.6}
    assert own_constants(load_gpu(name), constants)["dram_efficiency"] == pytest.approx(share, abs=2e-3)


def test_amd_has_one_share_whatever_its_memory() -> None:
    constants = {constant.name: constant.prior for constant in TENSOR_GEMM_AMD.constants}
    for name in ("mi210", "mi300x", "mi325x"):
        assert own_constants(load_gpu(name), constants)["dram_efficiency"] == constants["dram_efficiency"]


@pytest.mark.parametrize(
    ("name", "energy"),
    [
        pytest.param("rtx-a6000", 0.65, id="8 nm, mma"),
        pytest.param("l4", 0.36 * 1.37, id="5 nm family, Ada's mma"),
        pytest.param("rtx-5090", 0.36 * 1.37**0.5, id="5 nm family, later mma halved"),
        pytest.param("rtx-pro-6000-workstation", 0.36 * 1.37**0.5, id="5 nm family, later mma"),
        pytest.param("a100", 0.5, id="7 nm, mma"),
        pytest.param("h100", 0.36 * 0.8, id="5 nm family, WGMMA"),
        pytest.param("v100", 1.0, id="12 nm"),
    ],
)
def test_energy_of_a_flop(name: str, energy: float) -> None:
    pipe = np.array([float(matrix_units.PIPES.index("bf16"))])
    assert unit_energy(load_gpu(name), pipe)[0] == pytest.approx(energy)


@pytest.mark.parametrize(
    ("gpu", "m", "n", "k", "measured_us"),
    [
        pytest.param("rtx-4090", 2032, 28672, 4096, 2896.0, id="4090, compute"),
        pytest.param("rtx-4090", 1, 128256, 4096, 1097.0, id="4090, DRAM"),
        pytest.param("rtx-3090", 1024, 14336, 4096, 1848.0, id="3090, compute"),
        pytest.param("rtx-a6000", 1024, 14336, 4096, 1170.0, id="A6000, compute"),
    ],
)
def test_llm_layers_on_cards_with_gddr(gpu: str, m: int, n: int, k: int, measured_us: float) -> None:
    """Medians of LLMServingSim's profiles, of GPUs on which no constant is fitted: RTX 4090's in a running model."""
    spec = load_gpu(gpu)
    constants = load_predictors(data_folder("predictors"))["gemm", "bfloat16"].constants
    kernel = linear(m, n, k, burst=gpu != "rtx-4090")
    found = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), spec, constants).latency_us[0]
    assert found == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize(
    ("gpu", "clocks"),
    [("mi100", 0.5), ("mi210", 0.5), ("mi300x", 1.0), ("mi308x", 1.0), ("mi355x", 1.0), ("a100", 1.0)],
)
def test_overheads_of_amds_products_take_their_clocks(gpu: str, clocks: float) -> None:
    """They were measured on CDNA3, whose matrix cores are twice as fast as CDNA's: there they are half as much of the
    time. CDNA4's are twice as fast again, and so is its LDS."""
    spec = load_gpu(gpu)
    constants = {constant.name: constant.prior for constant in TENSOR_GEMM_AMD.constants}
    constants |= {"tile_overhead": 0.0, "epilogue_k": 1e-9, "energy_pj": 1e-9}
    columns = TENSOR_GEMM.columns((Gemm(m=8192, n=8192, k=8192, dtype=FP16),))
    tile = np.array([[256.0], [128.0], [256.0], [1.0]])
    bare, beside = (
        times_of(columns, spec, {**constants, "pipe_overhead": overhead}, tile)["compute"][0] for overhead in (1.0, 1.6)
    )
    assert beside / bare == pytest.approx(1.0 + 0.6 * clocks, rel=0.01)


AMD_PRIORS = {constant.name: constant.prior for constant in TENSOR_GEMM_AMD.constants}


def test_a_kernel_that_was_measured_unsplit_adds_up_the_whole_reduction() -> None:
    """16 columns of 65,536 are a tile or two of an MI300X: a library splits them, a kernel that can't doesn't."""
    split, whole = (
        TENSOR_GEMM_AMD.estimate(
            TENSOR_GEMM_AMD.columns((linear(16, 128, 65536, unsplit=unsplit),)), load_gpu("mi300x"), AMD_PRIORS
        )
        for unsplit in (False, True)
    )
    assert split.tile["split_k"][0] >= 8
    assert whole.tile["split_k"][0] == 1
    assert whole.latency_us[0] > 2.0 * split.latency_us[0]


def test_a_compute_unit_loads_at_a_rate_of_its_own() -> None:
    """One row by 1.07 GB of weights. 80 units x 22 bytes x 2.1 GHz are 3.70 TB/s beside DRAM's .82 x 5.3 = 4.35: 3.33
    together (fourth powers); 304 leave DRAM's 4.35."""
    columns = TENSOR_GEMM_AMD.columns((linear(1, 65536, 8192),))
    tile = np.array([[64.0], [16.0], [256.0], [1.0]])
    few, many = (
        65536 * 8192 * 2 / times_of(columns, load_gpu(name), AMD_PRIORS, tile)["memory"][0]
        for name in ("mi308x", "mi300x")
    )
    assert few == pytest.approx((3.696e12**-4 + 4.346e12**-4) ** -0.25, rel=0.01)
    assert many == pytest.approx(4.346e12, rel=0.02)


def test_parts_of_a_split_are_written_and_read_again_on_amd() -> None:
    """8 parts of 384 x 384 FP32 numbers are 4.7 MB, twice at 80 x 16 bytes x 2.1 GHz: 3.5 us; none in 8 bits."""
    tile = np.array([[128.0], [128.0], [256.0], [8.0]])
    for dtype, us in ((BF16, 3.51), (INT8, 0.0)):
        columns = TENSOR_GEMM_AMD.columns((linear(384, 384, 7168, dtype),))
        found = times_of(columns, load_gpu("mi308x"), AMD_PRIORS, tile)["summed"][0]
        assert 1e6 * found == pytest.approx(us, rel=0.01, abs=1e-9)


@pytest.mark.parametrize("rows", [1, 16])
def test_decoding_streams_weights_at_three_quarters_of_mi300xs_memory(rows: int) -> None:
    """A 70B model's widest layer in 16 bits: 940 MB. 70-80 % of 5.3 TB/s is what decoding reaches."""
    (found,) = predict([linear(rows, 57344, 8192)], load_gpu("mi300x"))
    assert 0.68 < 57344 * 8192 * 2 / 5.3e12 / (found.latency_us * 1e-6) < 0.82


# --- few rows by weights of few bits, on vector lanes -----------------------------------------------------------------


def _by_4_bits(m: int, n: int, k: int) -> Gemm:
    return Gemm(m=m, n=n, k=k, dtype=DataType.FLOAT16, b_dtype=DataType.UINT4, b_is_weight=True)


@pytest.mark.parametrize("m", [1, 8])
@pytest.mark.parametrize("size", [(4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)])
def test_more_bandwidth_decodes_faster_on_one_die(size: tuple[int, int], m: int) -> None:
    """AD102: 864, 960 and 1,008 GB/s."""
    us = [
        predict([_by_4_bits(m, *size)], load_gpu(name))[0].latency_us for name in ("l40s", "rtx-6000-ada", "rtx-4090")
    ]
    assert us == sorted(us, reverse=True)


def test_lanes_do_not_slow_down_with_matrix_units() -> None:
    spec = load_gpu("l40s")
    full = spec.peak_flops_per_s["fp16"]
    halved = replace(spec, peak_flops_per_s={**spec.peak_flops_per_s, "fp16": full / 2, "bf16": full / 2})

    def us(gpu: GpuSpec, m: int) -> float:
        return predict([_by_4_bits(m, 4096, 4096)], gpu)[0].latency_us

    assert us(halved, 8) == pytest.approx(us(spec, 8), rel=0.01)
    assert us(halved, 512) > 1.15 * us(spec, 512)


@pytest.mark.parametrize(("kept", "bound"), [(1.0, "l2"), (0.0, "memory")])
def test_weights_that_l2_keeps_are_not_bound_by_dram(kept: float, bound: str) -> None:
    """32 MiB of an L40S's 96."""
    kernel = Gemm(m=1, n=4096, k=4096, dtype=FP16, b_is_weight=True, kept_in_l2=kept)
    (found,) = predict((kernel,), load_gpu("l40s"))
    assert found.bound == bound


def test_batches_that_were_measured_unsplit_are_of_slower_kernels() -> None:
    """composable_kernel's; a model's batches have no such kernels."""
    batch = Gemm(batch=16, m=4096, n=8192, k=8192, dtype=BF16)
    tile = np.array([[256.0], [256.0], [256.0], [1.0]])
    measured, of_model = (
        times_of(TENSOR_GEMM_AMD.columns((kernel,)), load_gpu("mi308x"), AMD_PRIORS, tile)["compute"][0]
        for kernel in (replace(batch, unsplit=True), batch)
    )
    assert measured / of_model == pytest.approx(1.25, rel=0.01)


@pytest.mark.parametrize(
    ("dtype", "side", "loads"),
    [
        # 4 waves read 4 x 256 elements of 2 bytes, 512 are written: 3,072 bytes, 24 clocks at 128 beside 64 of products
        pytest.param(BF16, 256.0, 0.375, id="16 bits"),
        # 4 x 128 and 256: 12 of 16 clocks
        pytest.param(BF16, 128.0, 0.75, id="half the sides"),
        pytest.param(INT8, 256.0, 0.1875, id="shuffled weights, half of it"),
    ],
)
def test_tiles_loads_go_through_lds(dtype: DataType, side: float, loads: float) -> None:
    constants = {**AMD_PRIORS, "pipe_overhead": 1.0, "narrow_overhead": 1.0, "epilogue_k": 1e-9, "energy_pj": 1e-9}
    columns = TENSOR_GEMM_AMD.columns((linear(8192, 8192, 8192, dtype),))
    tile = np.array([[side], [side], [256.0], [1.0]])
    with_loads, without = (
        times_of(columns, load_gpu("mi308x"), {**constants, "tile_overhead": overhead}, tile)["compute"][0]
        for overhead in (AMD_PRIORS["tile_overhead"], 0.0)
    )
    assert with_loads / without == pytest.approx(1.0 + loads, rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "tile", "rounds"),
    [
        # 256x224: 32 x 37 = 1,184 tiles on 304 units, 4 rounds for 3.9; of 256x256 it would be 4 for 3.4
        pytest.param("mi300x", (256, 224), 4, id="a side that fills the last round"),
        # 256x256: 1,024 tiles on 80 units, 13 rounds for 12.8
        pytest.param("mi308x", (256, 256), 13, id="the largest, where it is full"),
    ],
)
def test_sides_of_amds_tiles_fill_the_last_round(gpu: str, tile: tuple[int, int], rounds: int) -> None:
    spec = load_gpu(gpu)
    result = TENSOR_GEMM_AMD.estimate(
        TENSOR_GEMM_AMD.columns((Gemm(m=8192, n=8192, k=8192, dtype=FP16),)), spec, AMD_PRIORS
    )
    assert (result.tile["n"][0], result.tile["m"][0]) == tile
    assert np.ceil(result.tile_count[0] / spec.sm_count) == rounds


@pytest.mark.parametrize(
    ("n", "measured_us"), [pytest.param(1024, 345.3, id="hipBLASLt"), pytest.param(2048, 694.0, id="aiter")]
)
def test_an_mi308xs_largest_products_reach_half_of_its_peak(n: int, measured_us: float) -> None:
    """Two rows of aiter's tuning (dsv4_bf16_tuned_gemm), .54 of the peak, which no power limit holds."""
    constants = load_predictors(data_folder("predictors"))["gemm", "matrix+amd"].constants
    kernel = linear(7680, n, 4096, burst=True)
    found = TENSOR_GEMM_AMD.estimate(TENSOR_GEMM_AMD.columns((kernel,)), load_gpu("mi308x"), constants).latency_us[0]
    assert found == pytest.approx(measured_us, rel=0.15)
