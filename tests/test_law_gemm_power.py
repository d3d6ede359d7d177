"""Which cards can hold their boost clock under full load."""

from __future__ import annotations

import pytest

from neusight_onnx.gpu import load_gpu
from neusight_onnx.laws.gemm.machine import holds_clock


@pytest.mark.parametrize(
    ("gpu", "holds"),
    [
        # W beside what the card takes idle, against 15.3 pJ by process and clock for 1 / 1.05 of the peak's FLOP/s
        pytest.param("p4", False, id="16 nm: 59 W, and 15.3 x .87 x 5.43 T are 72"),
        pytest.param("t4", False, id="12 nm: 43 W, and 15.3 x 1.08 x 7.75 T are 128"),
        pytest.param("v100-pcie-32gb", True, id="12 nm: 211 W, and 15.3 x .99 x 13.5 T are 204"),
        pytest.param(
            "a100-pcie-40gb", False, id="7 nm: 199 W, and 11.2 x 1.00 x 18.6 T are 208, as its long products show"
        ),
        pytest.param("a100-pcie-80gb", True, id="7 nm: 243 W of 208"),
        pytest.param("mi100", True, id="matrix cores of 7 nm: 240 W, and 3.83 x 1.04 x 35.5 T are 142"),
        pytest.param("rtx-3090", False, id="8 nm: 270 W, and 9.95 x 1.12 x 33.9 T are 378"),
        pytest.param("rtx-3080", False, id="8 nm: 255 W, and 9.95 x 1.13 x 28.4 T are 318"),
        pytest.param("h100-sxm", True, id="5 nm: 625 W, and 5.51 x 1.23 x 63.7 T are 432"),
        pytest.param("rtx-4090", False, id="5 nm: 364 W, and 5.51 x 1.42 x 78.6 T are 616"),
        pytest.param("l4", False, id="5 nm: 47 W, and 5.51 x 1.25 x 28.9 T are 199"),
    ],
)
def test_cards_that_hold_their_clock(gpu: str, holds: bool) -> None:
    assert holds_clock(load_gpu(gpu)) is holds
