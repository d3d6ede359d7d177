"""How kernels line up on the stream, by hand: host and view costs of a made-up runtime are 10 and 2 us."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neusight_onnx import analyze, compare, read_model, sweep
from neusight_onnx.backward import Training
from neusight_onnx.errors import NotSupportedError
from neusight_onnx.runtime import Runtime, get_runtime
from neusight_onnx.stream import Step, host_time_us, stream_launches, stream_time_us

EXAMPLE = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
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


def test_a_captured_run() -> None:
    """One launch, 8 us; then 5, twice 3 and 20 us without a gap, and a view is nothing."""
    captured = replace(RUNTIME, captured=True, graph_us=8.0)
    steps = [Step(kernel_us=(5.0,)), Step(), Step(kernel_us=(3.0,), count=2), Step(kernel_us=(20.0,))]
    assert stream_time_us(steps, captured) == pytest.approx(39.0)
    assert stream_time_us(steps, captured, host_factor=2.0) == pytest.approx(47.0)
    assert host_time_us(steps, captured) == pytest.approx(8.0)
    assert host_time_us(steps, RUNTIME) == pytest.approx(4 * 10.0 + 2.0)
    spans = list(stream_launches(steps, captured))
    assert [(span.gpu_start_us, span.gpu_us) for span in spans] == [(8.0, 5.0), (13.0, 6.0), (19.0, 20.0)]
    assert [span.host_us for span in spans] == [8.0, 0.0, 0.0]


def test_a_slower_host() -> None:
    # launches at 20 and 40, a view at 44, a launch at 64
    steps = [Step(kernel_us=(3.0,)), Step(kernel_us=(3.0,)), Step(), Step(kernel_us=(3.0,))]
    assert stream_time_us(steps, RUNTIME, host_factor=2.0) == pytest.approx(67.0)


def test_a_loop_is_its_body_repeated() -> None:
    for duration in (1.0, 9.0, 10.0, 11.0, 300.0):
        repeated = stream_time_us([Step(kernel_us=(duration,))] * 7, RUNTIME)
        assert stream_time_us([Step(kernel_us=(duration,), count=7)], RUNTIME) == pytest.approx(repeated)


def test_a_runtime_without_a_model_is_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"'tvm'.*supported now: .*eager.*torchscript"):
        get_runtime("tvm")


# --- the spans of a run -----------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.builds(
        Step,
        kernel_us=st.lists(st.floats(0.1, 300.0), max_size=3).map(tuple),
        count=st.sampled_from([1, 1, 1, 2, 7, 40]),
        host_waits=st.sampled_from([False, False, True]),
    ),
    max_size=30,
)


@given(steps=STEPS, view_us=st.sampled_from([0.0, 2.0]), most_runs=st.sampled_from([1, 3, 32, 100]))
def test_the_spans_end_when_the_stream_does(steps: list[Step], view_us: float, most_runs: int) -> None:
    runtime = replace(RUNTIME, view_us=view_us)
    launches = list(stream_launches(steps, runtime, most_runs=most_runs))
    ends = [max(each.host_start_us + each.host_us, each.gpu_start_us + each.gpu_us) for each in launches]
    assert max(ends, default=0.0) == pytest.approx(stream_time_us(steps, runtime))
    host = gpu = 0.0
    for each in launches:
        assert each.host_start_us >= host - 1e-6  # it may have waited
        host = each.host_start_us + each.host_us
        if each.kernel is not None:
            assert each.gpu_start_us >= gpu - 1e-6
            assert each.gpu_start_us >= each.host_start_us + runtime.kernel_us - 1e-6
            gpu = each.gpu_start_us + each.gpu_us
    runs = sum(each.run_count for each in launches if each.kernel is not None)
    assert runs == sum(step.count * len(step.kernel_us) for step in steps)


def test_the_spans_of_a_run_by_hand() -> None:
    # the view costs the host 2 us, each kernel 10; the first kernel runs 12..62, the second is launched at 22
    steps = [Step(), Step(kernel_us=(50.0,)), Step(kernel_us=(3.0,), count=40)]
    spans = [
        (each.step, each.run_count, each.host_start_us, each.host_us, each.gpu_start_us, each.gpu_us)
        for each in stream_launches(steps, RUNTIME)
    ]
    # 40 runs are one span: launched from 12 to 412, the last ends at 415
    assert spans == [(0, 1, 0.0, 2.0, 0.0, 0.0), (1, 1, 2.0, 10.0, 12.0, 50.0), (2, 40, 12.0, 400.0, 62.0, 353.0)]


# --- which runtime, on which GPU --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("training", "expected"), [(None, "onnxruntime"), (Training(), "eager")])
def test_what_executes_a_model_where_nobody_says(training: Training | None, expected: str) -> None:
    model = read_model(EXAMPLE)
    settings = analyze(model, gpu="t4", training=training).settings
    assert settings.runtime == expected
    assert [case.runtime for case in compare(model, gpus=["t4"], training=training).cases] == [expected]
    assert sweep(model, gpu="t4", dims={"batch": (1, 2)}, training=training).runtime == expected


def test_a_runtime_of_another_vendor_is_refused_and_left_out_of_a_comparison() -> None:
    model = read_model(EXAMPLE)
    with pytest.raises(NotSupportedError, match="tensorrt on mi300x: it runs on no GPU by AMD"):
        analyze(model, gpu="mi300x", runtime="tensorrt")
    with pytest.raises(NotSupportedError, match=r"compiled on p4: .* capability 7.0 and later, this one has 6.1"):
        analyze(model, gpu="p4", runtime="compiled")
    for gpu, is_said in (("p4", True), ("v100", True), ("t4", False)):
        said = analyze(model, gpu=gpu, runtime="tensorrt").assumptions
        assert any("(--runtime tensorrt@" in text for text in said) is is_said
    both = compare(model, gpus=["mi300x", "t4"], runtimes=["tensorrt", "onnxruntime"])
    assert {(case.gpu.name, case.runtime) for case in both.cases} == {
        ("mi300x", "onnxruntime"),
        ("t4", "onnxruntime"),
        ("t4", "tensorrt"),
    }
    assert any("left out: runtime tensorrt on mi300x" in notice.message for notice in both.warnings)


@pytest.mark.parametrize(
    ("called", "meant"),
    [
        ("pytorch", "eager"),
        ("torch@1.13", "eager@1.13"),
        ("torch.compile", "compiled"),
        ("inductor@2.5", "compiled@2.5"),
        ("ort", "onnxruntime"),
        ("ORT@1.17", "onnxruntime@1.17"),
        ("trt@8.6", "tensorrt@8.6"),
        ("TensorRT", "tensorrt"),
        ("onnxruntme", "onnxruntime"),
    ],
)
def test_the_runtime_that_is_meant_is_named(called: str, meant: str) -> None:
    with pytest.raises(
        NotSupportedError, match=f"^unknown runtime .*; did you mean '{meant}'\\? supported now: "
    ) as found:
        get_runtime(called)
    assert "\n" not in str(found.value)


def test_a_name_like_none_has_no_hint() -> None:
    with pytest.raises(NotSupportedError, match=r"^unknown runtime 'openvino'; supported now: "):
        get_runtime("openvino")
