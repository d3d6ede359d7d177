"""How the intervals of kernels combine: by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neusight_onnx import analyze
from neusight_onnx.gpu import load_gpu
from neusight_onnx.predictor import Prediction
from neusight_onnx.predictor.intervals import half_widths
from neusight_onnx.predictor.manifest import Widths
from neusight_onnx.similarity import distance, gpu_vector, remoteness
from neusight_onnx.uncertainty import Share, cancelling, combined_us


def prediction(level_share: float, *, method: str = "learned", spread_us: float = 10.0) -> Prediction:
    return Prediction(
        latency_us=100.0,
        low_us=100.0 - spread_us,
        high_us=100.0 + 2 * spread_us,
        tile_count=1,
        wave_count=1,
        utilization=0.5,
        bound="memory",
        method=method,
        predictor=method,
        level_share=level_share,
    )


def several(count: int, level_share: float, method: str = "learned", kernel_class: str = "pooling") -> list[Share]:
    """So many different kernels of one class, each once."""
    return [
        Share(prediction=prediction(level_share, method=method), kernel_class=kernel_class, count=1)
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param(several(4, 1.0), 1.0, id="one level: nothing cancels"),
        pytest.param(several(4, 0.0), 0.5, id="four errors of their own: a half"),
        # .9^.6 = .9387, .9^.8 = .9192: (4 x 6.13)^2 + 4 x 8.08^2 = 29.35^2 of 40; 1.2^.6 = 1.1156, 1.2^.8 = 1.1570:
        # (4 x 11.56)^2 + 4 x 15.70^2 = 55.90^2 of 80
        pytest.param(several(4, 0.36), (0.7338, 0.6987), id="both: squares add, of variances in log"),
        pytest.param(
            [Share(prediction=prediction(0.0), kernel_class="gemm", count=24)], 1.0, id="24 layers of one kernel"
        ),
        pytest.param(
            [*several(1, 1.0, "analytic"), replace(several(1, 1.0, "analytic")[0], kernel_class="gather")],
            0.5**0.5,
            id="analytic: a level for each class",
        ),
        pytest.param(
            [*several(1, 1.0, kernel_class="gemm"), *several(1, 1.0, kernel_class="conv")],
            1.0,
            id="products and convolutions: one level",
        ),
        pytest.param(
            [*several(1, 1.0, kernel_class="gemm"), *several(1, 1.0, kernel_class="softmax")],
            0.5**0.5,
            id="products and softmax: two levels",
        ),
        pytest.param([], 1.0, id="nothing"),
    ],
)
def test_what_is_left_where_errors_cancel(shares: list[Share], expected: float | tuple[float, float]) -> None:
    left = cancelling(shares)
    low, high = expected if isinstance(expected, tuple) else (expected, expected)
    assert left.low == pytest.approx(low, rel=1e-3)
    assert left.high == pytest.approx(high, rel=1e-3)


def test_host_and_kernels_are_independent() -> None:
    """Kernels 15 us less to 20 us more, the host 8 us less to 15 us more: 3-4-5 triangles."""
    low, high = combined_us(100.0, kernels=(85.0, 120.0), host=(92.0, 115.0), both=(77.0, 135.0))
    assert low == pytest.approx(100.0 - 17.0)
    assert high == pytest.approx(100.0 + 25.0)


@pytest.mark.parametrize(
    ("kernels", "host", "width"),
    [(100.0, 100.0, 10.0), (100.0, 50.0, 10.0), (50.0, 100.0, 10.0), (100.0, 97.0, 10.0)],
    ids=["as long", "kernels longer", "host longer", "kernels a little longer"],
)
def test_the_longer_of_host_and_kernels(kernels: float, host: float, width: float) -> None:
    """Beside a tenth of draws of both, within 1.5 % of the time."""
    middle = max(kernels, host)
    low, high = combined_us(
        middle,
        kernels=(max(kernels - width, host), max(kernels + width, host)),
        host=(max(kernels, host - width), max(kernels, host + width)),
        both=(middle - width, middle + width),
    )
    drawn = np.random.default_rng(0).normal(size=(2, 100_000)) * (width / 1.2816) + [[kernels], [host]]
    longer = drawn.max(axis=0)
    assert low == pytest.approx(np.quantile(longer, 0.1), rel=0.015)
    assert high == pytest.approx(np.quantile(longer, 0.9), rel=0.003)


def test_a_run_gets_shorter_where_both_do() -> None:
    """Compiled BERT, whose host takes a little longer than its kernels: a faster one alone hardly gains."""
    model = Path(__file__).parent.parent / "examples" / "bert_base.onnx"
    run = {"gpu": "a100", "precision": "fp16", "batch": 1, "dims": {"sequence": 128}, "runtime": "compiled"}
    by_launches, captured = (analyze(model, cuda_graph=graph, **run).totals for graph in (False, True))
    assert 0 < by_launches.overhead_ms < 0.1 * by_launches.latency_ms
    least_ms = 0.37 * (captured.latency_ms - captured.latency_low_ms)
    assert by_launches.latency_ms - by_launches.latency_low_ms > least_ms


WIDTHS = Widths(
    seen=0.03, unseen=0.2, law=0.3, seen_level_share=0.0, unseen_level_share=0.64, session=0.04, throttled_session=0.4
)


OTHERS = replace(WIDTHS, deployment=0.12, beyond=0.24)


@pytest.mark.parametrize(
    ("widths", "gpu", "near", "inside", "remote", "doubt", "width", "level_share"),
    [
        pytest.param(WIDTHS, "v100-pcie-32gb", 1.0, 1.0, 1.0, None, 0.05, 0.64, id="seen: shapes .03, sessions .04"),
        pytest.param(WIDTHS, "t4", 1.0, 1.0, 1.0, None, 0.4011, 0.9944, id="seen, throttled"),
        # .2^2 and another session's .04^2, of which .64 x .2^2 + .04^2 are common
        pytest.param(WIDTHS, "h100-sxm", 0.0, 1.0, 1.0, None, 0.2040, 0.6538, id="unseen"),
        pytest.param(WIDTHS, "h100-sxm", 0.0, 1.0, 1.5, None, 0.3027, 0.6463, id="unseen and remote"),
        pytest.param(WIDTHS, "h100-sxm", 0.0, 0.0, 1.0, None, 0.3027, 0.64, id="a shape for the law alone"),
        pytest.param(
            WIDTHS, "h100-sxm", 0.0, 1.0, 1.0, 0.1170, 0.2531, 0.7753, id="unseen, constants that no GPU shows"
        ),
        pytest.param(WIDTHS, "v100-pcie-32gb", 1.0, 1.0, 1.0, 0.1170, 0.05, 0.64, id="seen: nothing to doubt"),
        pytest.param(OTHERS, "v100-pcie-32gb", 1.0, 1.0, 1.0, None, 0.1237, 0.9412, id="seen: another deployment .12"),
        pytest.param(OTHERS, "t4", 1.0, 1.0, 1.0, None, 0.4011, 0.9944, id="seen: the larger of both"),
        # .24^2 common and the .03^2 that each has by itself are more than .2^2 + .12^2
        pytest.param(OTHERS, "h100-sxm", 0.0, 1.0, 1.0, None, 0.2419, 0.9846, id="unseen: more in common than errs"),
        pytest.param(
            replace(OTHERS, beyond=0.15), "h100-sxm", 0.0, 1.0, 1.0, None, 0.2332, 0.7353, id="unseen: left-out rows"
        ),
    ],
)
def test_half_widths(
    widths: Widths,
    gpu: str,
    near: float,
    inside: float,
    remote: float,
    doubt: float | None,
    width: float,
    level_share: float,
) -> None:
    spread = half_widths(
        widths, load_gpu(gpu), near, np.array([inside]), remote, None if doubt is None else np.array([doubt])
    )
    assert spread.width[0] == pytest.approx(width, rel=1e-3)
    assert spread.level_share[0] == pytest.approx(level_share, rel=1e-3)


def test_what_no_kernel_shows_widens_the_interval_on_a_measured_gpu() -> None:
    """.05 of a shape that was seen and 1.2816 x .1 of an energy that wasn't."""
    spread = half_widths(WIDTHS, load_gpu("v100-pcie-32gb"), 1.0, np.ones(1), 1.0, np.ones(1), np.array([0.1]))
    assert spread.width[0] == pytest.approx(np.hypot(0.05, 0.12816), rel=1e-3)


def test_a_stranger_is_more_remote_than_the_trained_are_to_each_other() -> None:
    trained = [gpu_vector(load_gpu(name)) for name in ("v100-pcie-32gb", "t4", "p100-pcie-16gb")]
    l4 = load_gpu("l4")
    nearest = min(distance(gpu_vector(l4), other) for other in trained)
    farthest = max(min(distance(one, other) for other in trained if other is not one) for one in trained)
    assert remoteness(l4, trained) == pytest.approx((nearest / farthest) ** 0.5)
    assert remoteness(l4, trained) > 1.2
    assert remoteness(load_gpu("t4"), trained) == 1.0
    assert remoteness(l4, trained[:1]) == 1.0
