"""How the intervals of kernels combine: by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx.gpu import load_gpu
from neusight_onnx.predictor import Prediction, Widths, half_widths
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


def several(count: int, level_share: float, method: str = "learned") -> list[Share]:
    """So many different kernels of one class, each once."""
    return [
        Share(prediction=prediction(level_share, method=method), kernel_class="pooling", count=1) for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param(several(4, 1.0), 1.0, id="one level: nothing cancels"),
        pytest.param(several(4, 0.0), 0.5, id="four errors of their own: a half"),
        pytest.param(several(4, 0.36), (0.36 + 0.64 / 4) ** 0.5, id="both: squares add"),
        pytest.param(
            [Share(prediction=prediction(0.0), kernel_class="gemm", count=24)], 1.0, id="24 layers of one kernel"
        ),
        pytest.param(
            [*several(1, 1.0, "analytic"), replace(several(1, 1.0, "analytic")[0], kernel_class="gather")],
            0.5**0.5,
            id="analytic: a level for each class",
        ),
        pytest.param([], 1.0, id="nothing"),
    ],
)
def test_what_is_left_where_errors_cancel(shares: list[Share], expected: float) -> None:
    left = cancelling(shares)
    assert left.low == pytest.approx(expected)
    assert left.high == pytest.approx(expected)


def test_host_and_kernels_are_independent() -> None:
    """Kernels 30 us less to 40 us more, half of it left; the host 8 us less to 15 us more: 3-4-5 triangles."""
    left = cancelling(several(4, 0.0))
    low, high = combined_us(100.0, kernels=(70.0, 140.0), host=(92.0, 115.0), left=left)
    assert low == pytest.approx(100.0 - 17.0)
    assert high == pytest.approx(100.0 + 25.0)


WIDTHS = Widths(
    seen=0.03, unseen=0.2, law=0.3, seen_level_share=0.0, unseen_level_share=0.64, session=0.04, throttled_session=0.4
)


@pytest.mark.parametrize(
    ("gpu", "near", "inside", "remote", "doubt", "width", "level_share"),
    [
        pytest.param("v100-pcie-32gb", 1.0, 1.0, 1.0, None, 0.05, 0.64, id="seen: shapes .03, sessions .04"),
        pytest.param("t4", 1.0, 1.0, 1.0, None, 0.4011, 0.9944, id="seen, throttled"),
        pytest.param("h100-sxm", 0.0, 1.0, 1.0, None, 0.2, 0.64, id="unseen"),
        pytest.param("h100-sxm", 0.0, 1.0, 1.5, None, 0.3, 0.64, id="unseen and remote"),
        pytest.param("h100-sxm", 0.0, 0.0, 1.0, None, 0.3, 0.64, id="a shape for the law alone"),
        pytest.param("h100-sxm", 0.0, 1.0, 1.0, 0.1170, 0.25, 0.7696, id="unseen, constants that no GPU shows"),
        pytest.param("v100-pcie-32gb", 1.0, 1.0, 1.0, 0.1170, 0.05, 0.64, id="seen: nothing to doubt"),
    ],
)
def test_half_widths(
    gpu: str, near: float, inside: float, remote: float, doubt: float | None, width: float, level_share: float
) -> None:
    spread = half_widths(
        WIDTHS, load_gpu(gpu), near, np.array([inside]), remote, None if doubt is None else np.array([doubt])
    )
    assert spread.width[0] == pytest.approx(width, rel=1e-3)
    assert spread.level_share[0] == pytest.approx(level_share, rel=1e-3)


def test_a_stranger_is_more_remote_than_the_trained_are_to_each_other() -> None:
    trained = [gpu_vector(load_gpu(name)) for name in ("v100-pcie-32gb", "t4", "p100-pcie-16gb")]
    l4 = load_gpu("l4")
    nearest = min(distance(gpu_vector(l4), other) for other in trained)
    farthest = max(min(distance(one, other) for other in trained if other is not one) for one in trained)
    assert remoteness(l4, trained) == pytest.approx((nearest / farthest) ** 0.5)
    assert remoteness(l4, trained) > 1.2
    assert remoteness(load_gpu("t4"), trained) == 1.0
    assert remoteness(l4, trained[:1]) == 1.0
