"""What resizing takes beside its bytes: PyTorch's kernels by thread and plane, an engine's by vectors of channels."""

from __future__ import annotations

from math import prod

import pytest

from graphs import inferred
from neusight_onnx import load_gpu
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Movement
from neusight_onnx.laws.analytic.estimate import analytic_estimate
from neusight_onnx.laws.resizing import resize_us
from neusight_onnx.lowering.layouts import with_layouts
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import get_runtime

HALF, FLOAT = DataType.FLOAT16, DataType.FLOAT32
A100 = load_gpu("a100-sxm-40gb")  # 108 SMs, 1.41 GHz


def resized(*shape: int, taps: int, dtype: DataType = FLOAT, run: int = 1, library: str = "") -> Movement:
    size = dtype.bytes_of(prod(shape))
    return Movement(
        operation="resize", dtype=dtype, shape=shape, read=size // 4, written=size, taps=taps, run=run, library=library
    )


@pytest.mark.parametrize(
    ("kernel", "issued", "waited"),
    [
        # 6,400 places: 7 blocks of 1,024, a block an SM, each thread 2,048 planes of 22.8 instructions, 128 lanes
        pytest.param(resized(8, 256, 80, 80, taps=4), 1024 * 2048 * 22.8 / 128, 2048 * 400, id="small images"),
        pytest.param(
            resized(8, 256, 80, 80, taps=4, dtype=HALF), 1024 * 2048 * 29.5 / 128, 2048 * 400, id="in 16 bits"
        ),
        # 160,000 places: 157 blocks, two on some SMs
        pytest.param(resized(1, 64, 400, 400, taps=16), 2 * 1024 * 64 * 81.7 / 128, 2 * 64 * 400, id="large, cubic"),
        # 65,536 places of 8 neighbours: 128 blocks of 512
        pytest.param(resized(1, 64, 16, 64, 64, taps=8), 2 * 512 * 64 * 76.0 / 128, 2 * 64 * 400, id="volumes"),
        # 110,592 places: 216 blocks of 512, two on every SM, which holds four at once
        pytest.param(resized(1, 64, 110_592, taps=2), 2 * 512 * 64 * 11.8 / 128, 64 * 400, id="lines"),
        pytest.param(resized(8, 256, 80, 80, taps=1), 13_107_200 * 43.75 / 128 / 108, 0, id="nearest"),
        pytest.param(resized(8, 256, 80, 80, taps=1, run=256), 13_107_200 * 135 / 128 / 108, 0, id="nearest, NHWC"),
        pytest.param(resized(8, 256, 80, 80, taps=4, run=256), 13_107_200 * 206 / 128 / 108, 0, id="linear, NHWC"),
        # 64 integer lanes
        pytest.param(
            resized(8, 256, 80, 80, taps=4, run=256, library="own"), 13_107_200 / 4 * 70 / 64 / 108, 0, id="engine"
        ),
        pytest.param(
            resized(8, 256, 80, 80, taps=4, run=256, library="own", dtype=HALF),
            13_107_200 / 8 * 70 / 64 / 108,
            0,
            id="engine, in 16 bits",
        ),
        pytest.param(resized(8, 256, 80, 80, taps=4, library="own"), 0, 0, id="made for its shape"),
    ],
)
def test_cycles(kernel: Movement, issued: float, waited: float) -> None:
    assert resize_us(kernel, A100) == pytest.approx((issued / 1410, waited / 1410))


def test_few_places_occupy_few_sms() -> None:
    """As many bytes: 2,048 planes of 80 x 80, and 32 of 640 x 640."""
    small, large = analytic_estimate(
        [resized(8, 256, 80, 80, taps=4), resized(1, 32, 640, 640, taps=4)], A100
    ).latency_us
    assert small > 8 * large


@pytest.mark.parametrize(
    ("runtime", "nodes", "expected"),
    [
        ("eager", 'y = Resize<mode="linear">(x, , s)', {"taps": 4, "run": 1, "library": ""}),
        ("eager", 'y = Resize<mode="nearest">(x, , s)', {"taps": 1, "run": 1, "library": ""}),
        ("onnxruntime", 'y = Resize<mode="cubic">(x, , s)', {"taps": 16, "run": 1, "library": "onnxruntime"}),
        ("tensorrt", 'y = Resize<mode="linear">(x, , s)', {"taps": 4, "run": 64, "library": "own"}),
    ],
)
def test_whose_kernel_it_is(runtime: str, nodes: str, expected: dict[str, object]) -> None:
    graph = inferred(nodes, inputs={"x": (2, 64, 10, 10)}, constants={"s": [1.0, 1.0, 2.0, 2.0]})
    (work,) = with_layouts(works_of(graph, get_runtime(runtime)), get_runtime(runtime))
    assert {name: getattr(work.kernels[-1], name) for name in expected} == expected


@pytest.mark.parametrize(("channels", "run"), [(64, 64), (8, 1)])
def test_channels_last_has_a_kernel_for_many_channels(channels: int, run: int) -> None:
    runtime = get_runtime("eager", channels_last=True)
    graph = inferred(
        'a = Conv(x, w)\ny = Resize<mode="linear">(a, , s)',
        inputs={"x": (2, 64, 10, 10)},
        weights={"w": (channels, 64, 1, 1)},
        constants={"s": [1.0, 1.0, 2.0, 2.0]},
    )
    (kernel,) = [
        kernel
        for work in works_of(graph, runtime)
        for kernel in work.kernels
        if isinstance(kernel, Movement) and kernel.operation == "resize"
    ]
    assert kernel.run == run
