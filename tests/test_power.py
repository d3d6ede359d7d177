"""Which cards can hold their boost clock under full load."""

from __future__ import annotations

import pytest

from neusight_onnx.gpu import load_gpu
from neusight_onnx.power import holds_clock


@pytest.mark.parametrize(
    ("gpu", "holds"),
    [
        # W over GFLOP/s of FP32 against the need of the process
        pytest.param("p4", False, id="16 nm: 75 over 5,704 is .0131 of .0150"),
        pytest.param("t4", False, id="12 nm: 70 over 8,141 is .0086"),
        pytest.param("v100-pcie-32gb", True, id="12 nm: 250 over 14,130 is .0177"),
        pytest.param("a100-pcie-40gb", False, id="7 nm: 250 over 19,490 is .0128 of .0133, as its long products show"),
        pytest.param("a100-pcie-80gb", True, id="7 nm: 300 over 19,490 is .0154"),
        pytest.param("mi100", True, id="AMD's 7 nm: 300 over 23,070 is .0130 of .0080"),
        pytest.param("rtx-3090", False, id="8 nm: 350 over 35,580 is .0098 of .0104"),
        pytest.param("h100-sxm", True, id="5 nm: 700 over 66,910 is .0105 of .0058"),
        pytest.param("l4", False, id="5 nm: 72 over 30,290 is .0024"),
    ],
)
def test_cards_that_hold_their_clock(gpu: str, holds: bool) -> None:
    assert holds_clock(load_gpu(gpu)) is holds
