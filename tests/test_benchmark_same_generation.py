"""The rules of ``benchmarks/same_generation.py``: what a card's rows say of the figures, on rows that the law made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.same_generation import (
    NEUTRAL,
    SHIPPED,
    Card,
    Figures,
    between_models,
    derived,
    law_alone,
    law_with,
    scatter_percent,
)
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Gemm
from neusight_onnx.laws import matrix_unit_power
from neusight_onnx.laws.tensor_gemm.constants import CONSTANTS

PRIORS = {constant.name: constant.prior for constant in CONSTANTS}
KERNELS = tuple(
    Gemm(m=m, n=n, k=k, dtype=DataType.BFLOAT16, b_is_weight=True, transpose_b=True)
    for m in (1, 4, 16, 128, 200, 256, 512, 700, 1024, 2048, 16_384)
    for n, k in ((4096, 1024), (4096, 4096), (4096, 16_384), (28_672, 4096), (32_768, 8192))
)


def card(gpu: str, figures: Figures) -> Card:
    """A card whose rows are the law's own with such figures."""
    empty = np.zeros(len(KERNELS))
    index = np.arange(len(KERNELS))
    made = Card(gpu=load_gpu(gpu), kernels=KERNELS, measured_us=empty, rows_us=empty, kernel_of=index)
    with law_with(figures):
        times = law_alone(made, PRIORS).latency_us
    return replace(made, measured_us=times, rows_us=times)


@pytest.mark.parametrize(
    ("name", "value", "tolerance"),
    [
        pytest.param("bare_gddr", 1.12, 0.03, id="bare_gddr"),
        pytest.param("energy_4n", 1.6, 0.03, id="energy"),
        pytest.param("boost", 1.2, 0.07, id="boost"),
    ],
)
def test_rules_find_the_figures_that_made_the_rows(name: str, value: float, tolerance: float) -> None:
    figures = replace(SHIPPED, **{name: value})
    found = derived([card("rtx-3090", figures)], card("l40s", figures), PRIORS)
    assert getattr(found, name) == pytest.approx(value, abs=tolerance)


def test_a_figure_that_no_other_card_shows_corrects_nothing() -> None:
    """An A40 has GDDR6 with ECC and no halved rate; an A6000's memory has no ECC, which tells of others' without."""
    with_ecc, without = (derived([card(gpu, SHIPPED)], card("l40s", SHIPPED), PRIORS) for gpu in ("a40", "rtx-a6000"))
    assert with_ecc == replace(NEUTRAL, energy_4n=with_ecc.energy_4n)
    assert without == replace(NEUTRAL, energy_4n=without.energy_4n, bare_gddr=without.bare_gddr)
    assert without.bare_gddr > 1.0


def test_the_law_is_as_before_afterwards() -> None:
    before = matrix_unit_power.GEFORCE_BOOST
    with law_with(replace(SHIPPED, boost=2.0)):
        assert matrix_unit_power.GEFORCE_BOOST == 2.0
    assert before == matrix_unit_power.GEFORCE_BOOST


def test_scatter_is_of_rows_of_one_product() -> None:
    made = card("rtx-3090", SHIPPED)
    rows = np.array([10.0, 11.0, 50.0, 50.0, 70.0])
    of = np.array([0, 0, 1, 1, 2])
    pairs, percent = scatter_percent(replace(made, rows_us=rows, kernel_of=of))
    assert pairs == 2
    assert percent == pytest.approx(100 * np.log(1.1) / 2 / np.sqrt(2))


def test_profiles_of_models_with_the_same_attention_are_compared() -> None:
    rows = [
        ("a6000", "q_proj", 1, 64.0, "meta-llama/Llama-3.1-8B", 0.110),
        ("a6000", "q_proj", 1, 64.0, "microsoft/Phi-mini-MoE-instruct", 0.100),
        ("a6000", "q_proj", 1, 128.0, "microsoft/Phi-mini-MoE-instruct", 0.200),  # no other model
        ("a6000", "gate_proj", 1, 64.0, "meta-llama/Llama-3.1-8B", 0.5),  # of another size in each
        ("a6000", "gate_proj", 1, 64.0, "microsoft/Phi-mini-MoE-instruct", 0.1),
        ("h100", "k_proj", 1, 1.0, "meta-llama/Llama-3.1-8B", 0.004),  # below 5 us
        ("h100", "k_proj", 1, 1.0, "mistralai/Mixtral-8x7B-v0.1", 0.003),
    ]
    names = ("gpu", "layer", "tp", "tokens", "model", "latency_ms")
    table = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    found = between_models(table)
    assert list(found) == ["a6000"]
    assert found["a6000"] == pytest.approx([np.log(1.1)])
