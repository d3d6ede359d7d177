"""The clock that a power limit leaves: worked out by hand, and what it makes of GPUs measured and not measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import changed_gpu, load_gpu
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.kernels import Gemm
from neusight_onnx.laws.clock import energy_at, level_under_limit, power_level
from neusight_onnx.predictor import load_predictors, predict

LONG = Gemm(m=16384, n=8192, k=8192, dtype=DataType.FLOAT16, b_is_weight=True, transpose_b=True)


@pytest.mark.parametrize(
    ("name", "watts"),
    [
        pytest.param("t4", 0.085 * 320, id="GDDR6: in proportion"),
        pytest.param("rtx-pro-6000-max-q", 0.7 * 0.085 * 1792, id="GDDR7: less for each GB/s"),
        pytest.param("a100-sxm-80gb", 1.3 * 2039**0.5, id="HBM2e: 59 W by the root"),
        pytest.param("h200-sxm", 1.3 * 4800**0.5, id="HBM3e: 90 W"),
        pytest.param("mi300x", 0.2 * 750, id="AMD: a share of the limit"),
        pytest.param("jetson-agx-orin-64gb", 0.2 * 60, id="LPDDR: the same"),
    ],
)
def test_power_that_is_gone_before_arithmetic(name: str, watts: float) -> None:
    assert idle_w(load_gpu(name)) == pytest.approx(watts)


def test_a_card_never_rests_at_more_than_half_of_its_limit() -> None:
    assert idle_w(replace(load_gpu("l4"), power_w=40.0)) == 20.0


@pytest.mark.parametrize(
    ("budget_share", "top", "level"),
    [
        pytest.param(4.0, 1.0, 1.0, id="power to spare"),
        # the root of 1.6 of it, far below the boost clock
        pytest.param(0.5, 1.0, 0.648, id="half of what the boost clock takes"),
        pytest.param(0.1, 1.0, 0.237, id="a tenth"),
        pytest.param(1.0, 1.11, 1.0, id="a card that may go beyond"),
        pytest.param(4.0, 1.11, 1.11, id="and does"),
    ],
)
def test_level(budget_share: float, top: float, level: float) -> None:
    assert power_level(np.array([budget_share]), sharpness=200.0, top=top)[0] == pytest.approx(level, abs=0.001)


@pytest.mark.parametrize("norm", [2.0, 4.0])
@pytest.mark.parametrize(
    ("level", "waits_s"),
    [
        pytest.param(0.4, (), id="nothing to wait for"),
        pytest.param(0.4, (0.5,), id="waits for less than it computes"),
        pytest.param(0.6, (4.0, 0.1), id="waits for more"),
        pytest.param(0.9, (1.0,), id="for as much"),
    ],
)
def test_level_of_a_kernel_that_waits(level: float, waits_s: tuple[float, ...], norm: float) -> None:
    """The energy that makes it draw its limit at a level, worked out from the level, gives the level."""
    whole_s = ((1.0 / level) ** norm + sum(wait**norm for wait in waits_s)) ** (1.0 / norm)
    limit_s = whole_s / level**0.6
    found = level_under_limit(np.ones(1), np.array([limit_s]), [np.array([wait]) for wait in waits_s], norm=norm)
    assert found[0] == pytest.approx(level, rel=2e-3)


def test_energy_goes_with_the_clock() -> None:
    assert energy_at(1.4e9) == 1.0
    assert energy_at(2.8e9) == pytest.approx(2.0**0.6)


def tflops(name: str) -> float:
    """Sustained TFLOP/s of a long product on a shipped GPU, by the shipped predictors."""
    (found,) = predict([LONG], load_gpu(name))
    return LONG.flops / found.latency_us / 1e6


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        # median of the longest on real values (SGLang, 15 ms and more, which no burst hides)
        pytest.param("a100-sxm-80gb", 249, id="A100"),
        pytest.param("h100-sxm", 703, id="H100"),
        pytest.param("l40s", 190, id="L40S"),
        pytest.param("b200-sxm", 1390, id="B200"),
    ],
)
def test_long_products_run_as_measured(name: str, measured: float) -> None:
    assert tflops(name) == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        # the public table of maximum achievable matmul FLOPS (stas00/ml-engineering, as remembered) has 271 on SXM and
        # 253 on PCIe, in products of half a millisecond
        pytest.param("a100-pcie-80gb", 0.7 * 250, 253, id="A100 PCIe: less than in short bursts"),
        pytest.param("gh200", 660, 821, id="GH200: the same table has 821"),
        # no kernel of these was measured: what exponents of the energy from 0.5 to 2 make of them, with and without a
        # floor, where all energies are fitted anew to the kernels that were
        pytest.param("h100-pcie", 380, 520, id="H100 PCIe"),
        pytest.param("h100-nvl", 410, 560, id="H100 NVL"),
        pytest.param("a30", 85, 135, id="A30"),
        pytest.param("a10", 50, 85, id="A10"),
        pytest.param("l4", 0.33 * 121, 0.7 * 121, id="L4"),
        pytest.param("rtx-6000-ada", 140, 200, id="RTX 6000 Ada"),
    ],
)
def test_sustained_rates_are_plausible(name: str, low: float, high: float) -> None:
    assert low <= tflops(name) <= high


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        pytest.param("a100-sxm-80gb", "a100-pcie-80gb", id="400 W, 300 W"),
        pytest.param("a100-pcie-80gb", "a100-pcie-40gb", id="300 W, 250 W"),
        pytest.param("h100-sxm", "h100-nvl", id="700 W, 400 W"),
        pytest.param("h200-sxm", "h200-nvl", id="700 W, 600 W"),
        pytest.param("h100-nvl", "h100-pcie", id="400 W for 132 SMs, 350 W for 114"),
        pytest.param("l40s", "rtx-6000-ada", id="350 W, 300 W"),
    ],
)
def test_more_power_is_more_speed(faster: str, slower: str) -> None:
    assert tflops(faster) > tflops(slower)


def test_faster_memory_costs_a_long_product_little() -> None:
    """H200 is H100 with memory 1.43 times as fast: 15 W of 625 for arithmetic, so 1.5 % of the clock."""
    assert 0.97 <= tflops("h200-sxm") / tflops("h100-sxm") <= 1.03


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(["l4", "a10", "a30", "h100-pcie", "h20", "b300-sxm", "rtx-pro-6000-server", "t4", "mi300x"]),
    power_w=st.floats(40.0, 1200.0),
    more=st.floats(1.0, 3.0),
    m=st.sampled_from([64, 1000, 8192]),
)
def test_no_product_is_slower_with_more_power(name: str, power_w: float, more: float, m: int) -> None:
    """By the law not at all; as shipped by what a GPU near a measured one loses of that one's residual."""
    spec = load_gpu(name)
    kernel = replace(LONG, m=m)
    shipped = load_predictors(data_folder("predictors"))
    laws = {key: replace(predictor, gpu_vectors=()) for key, predictor in shipped.items()}
    for predictors, slower in ((laws, 1.001), (shipped, 1.05)):
        (less,), (found,) = (
            predict([kernel], replace(spec, power_w=watts), predictors=predictors)
            for watts in (power_w, power_w * more)
        )
        assert found.latency_us <= less.latency_us * slower


def test_more_bandwidth_alone_draws_no_more_power() -> None:
    """A T4's 27 W are those of its memory; a what-if changes the bandwidth, and a file may state the power itself."""
    t4 = load_gpu("t4")
    assert idle_w(changed_gpu(t4, {"mem_bw_gbs": 480.0}, "--what-if")) == pytest.approx(idle_w(t4))
    assert idle_w(changed_gpu(t4, {"mem_bw_gbs": 480.0, "idle_power_w": 20.0}, "--what-if")) == 20.0
    assert idle_w(replace(t4, memory_bytes_per_s=400e9)) == pytest.approx(0.085 * 400)


@pytest.mark.parametrize("factor", [1.1, 1.5, 2.0, 4.0])
def test_more_bandwidth_slows_no_long_product(factor: float) -> None:
    before = load_gpu("l4")
    after = changed_gpu(before, {"mem_bw_gbs": 300.0 * factor}, "--what-if")
    (slow,), (quick,) = predict([LONG], before), predict([LONG], after)
    assert quick.latency_us <= 1.001 * slow.latency_us


@pytest.mark.parametrize("changes", [{"idle_power_w": 70.0}, {"idle_power_w": 60.0, "tdp_w": 50.0}])
def test_a_card_with_nothing_to_do_is_below_its_limit(changes: dict[str, float]) -> None:
    with pytest.raises(SpecError, match=r"'idle_power_w' is .*, but the power limit 'tdp_w' is"):
        changed_gpu(load_gpu("t4"), changes, "--set")
