"""How kernels line up on the stream, by hand: host and view costs of a made-up runtime are 10 and 2 us."""

from __future__ import annotations

import pytest

from neusight_onnx.errors import NotSupportedError
from neusight_onnx.runtime import KNOWN_RUNTIMES, RUNTIMES, Runtime, Step, get_runtime, stream_time_us

RUNTIME = Runtime(name="made-up", description="", kernel_us=10.0, view_us=2.0, host_spread=1.5)


@pytest.mark.parametrize(
    ("steps", "expected_us"),
    [
        pytest.param([], 0.0, id="nothing"),
        pytest.param([Step(kernel_us=(5.0,))], 15.0, id="one kernel waits for its launch"),
        # launched at 10 and 20, the first runs 10..110, the second 110..210
        pytest.param([Step(kernel_us=(100.0,)), Step(kernel_us=(100.0,))], 210.0, id="long kernels hide the host"),
        # launched at 10, 20, 30: each is done before the next is launched
        pytest.param([Step(kernel_us=(3.0,))] * 3, 33.0, id="short kernels wait for the host"),
        pytest.param([Step(), Step(kernel_us=(5.0,))], 17.0, id="a view delays the launch"),
        pytest.param([Step(kernel_us=(50.0,)), Step(), Step(kernel_us=(5.0,))], 65.0, id="a view behind a long kernel"),
        pytest.param([Step(kernel_us=(4.0,)), Step()], 14.0, id="a view at the end is hidden"),
        # launches at 10, 20, 30, 40
        pytest.param([Step(kernel_us=(3.0,), count=4)], 43.0, id="a loop of short kernels"),
        pytest.param([Step(kernel_us=(30.0,), count=4)], 130.0, id="a loop of long kernels"),
        pytest.param([Step(kernel_us=(3.0, 20.0))], 40.0, id="two kernels of one operator"),
        # runs 10..110, launched at 20 it runs 110..115; the last is launched at 125
        pytest.param(
            [Step(kernel_us=(100.0,)), Step(kernel_us=(5.0,), host_waits=True), Step(kernel_us=(50.0,))],
            175.0,
            id="the host reads a size: the stream runs dry",
        ),
        # 10..15, 25..30, 40..45
        pytest.param([Step(kernel_us=(5.0,), count=3, host_waits=True)], 45.0, id="a loop that reads a size"),
        # 10..40, 40..43 (launched at 20); again launched at 53 and 63: 53..83, 83..86
        pytest.param([Step(kernel_us=(30.0, 3.0), count=2, host_waits=True)], 86.0, id="a longer one"),
    ],
)
def test_stream_time(steps: list[Step], expected_us: float) -> None:
    assert stream_time_us(steps, RUNTIME) == pytest.approx(expected_us)


def test_a_slower_host() -> None:
    # launches at 20 and 40, a view at 44, a launch at 64
    steps = [Step(kernel_us=(3.0,)), Step(kernel_us=(3.0,)), Step(), Step(kernel_us=(3.0,))]
    assert stream_time_us(steps, RUNTIME, host_factor=2.0) == pytest.approx(67.0)


def test_a_loop_is_its_body_repeated() -> None:
    for duration in (1.0, 9.0, 10.0, 11.0, 300.0):
        repeated = stream_time_us([Step(kernel_us=(duration,))] * 7, RUNTIME)
        assert stream_time_us([Step(kernel_us=(duration,), count=7)], RUNTIME) == pytest.approx(repeated)


@pytest.mark.parametrize("name", [name for name in KNOWN_RUNTIMES if name not in RUNTIMES] + ["tvm"])
def test_a_runtime_without_a_model_is_refused(name: str) -> None:
    with pytest.raises(NotSupportedError, match=f"'{name}'.*supported now: .*eager"):
        get_runtime(name)
