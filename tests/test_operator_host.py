"""What the host takes for operators of eager mode, by hand from the figures of one machine and the server's factor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import onnx.parser
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx import analyze
from neusight_onnx.backward import Training, make_training
from neusight_onnx.backward.optimizer import optimizer_works
from neusight_onnx.backward.products import by_left
from neusight_onnx.backward.steps import Parameter
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Gemm, NodeWork, Normalization, Reduction, TensorSpec
from neusight_onnx.lowering import lower
from neusight_onnx.lowering.autocast import autocast
from neusight_onnx.operator_host import SERVER, call_us, is_a_row, operator_host_us
from neusight_onnx.runtime import get_runtime
from neusight_onnx.stream import Step, host_time_us, stream_launches, stream_time_us

EAGER = get_runtime("eager")
EXAMPLES = Path(__file__).parent.parent / "examples"
BERT, RESNET = EXAMPLES / "bert_base.onnx", EXAMPLES / "resnet50.onnx"
BF16, FP32 = DataType.BFLOAT16, DataType.FLOAT32
LAUNCH = 5.0
IMAGE = {"x": (1, 8, 6, 6)}


def test_how_much_slower_servers_are() -> None:
    """Six hosts of event-timed kernels, 1.6 to 4.3 times: the spread of the interval takes all of them in."""
    assert pytest.approx(2.87, abs=0.01) == SERVER
    assert SERVER / EAGER.host_spread < 1.6
    assert SERVER * EAGER.host_spread > 4.3


@pytest.mark.parametrize(
    ("nodes", "inputs", "weights", "software_us"),
    [
        pytest.param("y = Add (x, x)", IMAGE, {}, 3.0, id="pointwise"),
        pytest.param(
            "y = MatMul (x, w)", {"x": (2, 8)}, {"w": (8, 8)}, 8.7 + 24.0, id="a linear layer and its module's code"
        ),
        pytest.param("y = MatMul (x, x)", {"x": (2, 8, 8)}, {}, 5.1, id="a product of two results"),
        pytest.param("y = Conv (x, w)", IMAGE, {"w": (8, 8, 1, 1)}, 12.1 + 6.0, id="a convolution"),
        pytest.param("y = Softmax <axis = -1> (x)", IMAGE, {}, 3.1, id="softmax"),
        pytest.param("y = LayerNormalization (x, w)", {"x": (2, 8)}, {"w": (8,)}, 8.5, id="layer normalization"),
        pytest.param("y = BatchNormalization (x, w, w, w, w)", IMAGE, {"w": (8,)}, 12.1, id="batch normalization"),
        pytest.param("y = ReduceMean <axes = [1]> (x)", IMAGE, {}, 3.2, id="a mean"),
        pytest.param("y = MaxPool <kernel_shape = [2, 2]> (x)", IMAGE, {}, 4.8, id="pooling"),
        pytest.param("y = Concat <axis = 1> (x, x)", IMAGE, {}, 4.0, id="a copy"),
        pytest.param("y = Erf (x)", IMAGE, {}, 3.0, id="a function"),
    ],
)
def test_an_operator_forward(
    nodes: str, inputs: dict[str, tuple[int, ...]], weights: dict[str, tuple[int, ...]], software_us: float
) -> None:
    graph = recognise(inferred(nodes, inputs, weights=weights, opset=17), runtime="eager")
    work = lower(graph, runtime="eager")[-1]
    assert operator_host_us(work, EAGER) == pytest.approx([LAUNCH + SERVER * software_us])
    recording = replace(EAGER, records_gradients=True)
    assert operator_host_us(work, recording) == pytest.approx([LAUNCH + 1.45 * SERVER * software_us])


@pytest.mark.parametrize(
    ("nodes", "software_us", "launches"),
    [
        pytest.param("y = GroupNormalization <num_groups = 2> (x, w, w)", 15.2, 3, id="group normalization"),
        pytest.param("y = InstanceNormalization (x, w, w)", 20.0, 3, id="instance normalization"),
        pytest.param("y = Where (c, number, x)", 3.9, 2, id="a place that is filled"),
        pytest.param("y = LSTM <hidden_size = 4> (t, wl, rl)", 32.8, 2, id="a recurrent layer, one call of cuDNN"),
        pytest.param("y = GRU <hidden_size = 4> (t, wg, rg)", 26.7, 2, id="another"),
    ],
)
def test_kernels_of_one_call(nodes: str, software_us: float, launches: int) -> None:
    graph = inferred(
        nodes,
        {**IMAGE, "c": (6, 6), "t": (5, 2, 8)},
        weights={"w": (8,), "wl": (1, 16, 8), "rl": (1, 16, 4), "wg": (1, 12, 8), "rg": (1, 12, 4)},
        constants={"number": 0.0},
        types={"c": TensorProto.BOOL},
        opset=21,
    )
    work = lower(graph, runtime="eager")[-1]
    expected = [LAUNCH + SERVER * software_us, *[LAUNCH] * (launches - 1)]
    assert operator_host_us(work, EAGER) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("nodes", "around_us"),
    [
        pytest.param("a = Gemm (x, w)\nb = Relu (a)\ny = Gemm (b, w)", 2.0, id="one after the other"),
        pytest.param("a = Gemm (x, w)\nb = Relu (a)\nc = Gemm (b, w)\ny = Add (a, c)", 24.0, id="a residual"),
    ],
)
def test_code_around_layers_in_a_row(nodes: str, around_us: float) -> None:
    """A call of nn.Sequential is next to nothing beside the code of a block."""
    graph = inferred(nodes, {"x": (2, 8)}, weights={"w": (8, 8)})
    runtime = replace(EAGER, layers_in_a_row=is_a_row(graph))
    assert call_us("linear", runtime) == pytest.approx(SERVER * (8.7 + around_us))


def test_a_perceptron_is_a_row(tmp_path: Path) -> None:
    """Two layers and what is between: 10.7 + 3 + 10.7 us on the machine that was measured, and three launches."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
        g (float[2, 8] x) => (float[2, 8] y) <float[8, 8] w = {NUMBERS}>
        { a = MatMul (x, w) b = Relu (a) y = MatMul (b, w) }"""
    path = tmp_path / "perceptron.onnx"
    onnx.save(onnx.parser.parse_model(text.replace("NUMBERS", ", ".join(["0.5"] * 64))), path)
    report = analyze(path, gpu="a100", runtime="eager")
    kernels_us = sum(kernel.latency_us * kernel.count for kernel in report.kernels)
    assert 1e3 * report.totals.latency_ms < kernels_us + 3 * LAUNCH + SERVER * 24.4 + 1


@pytest.mark.parametrize("recording", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("runtime", ["eager", "torchscript"])
@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param("a = MatMul (x, w)\nb = Relu (a)\ny = MatMul (b, v)", id="products one after the other"),
        pytest.param("a = MatMul (x, w)\nb = Add (a, c)\ny = MatMul (b, v)", id="linear layers"),
        pytest.param("y = Gemm <transB = 1> (x, w, c)", id="a general product"),
        pytest.param("a = MatMul (x, w)\nb = MatMul (x, w)\ny = Add (a, b)", id="a weight that is cast once"),
        pytest.param("a = LayerNormalization (x, c)\nb = MatMul (a, w)\ny = Add (b, x)", id="a residual"),
        pytest.param("a = MatMul (x, w)\ny = MatMul (a, x)", id="a product of two results"),
        pytest.param("a = Conv (i, f)\nb = Relu (a)\ny = Conv (b, f)", id="convolutions one after the other"),
    ],
)
def test_autocast_takes_its_casts_time_and_no_other(nodes: str, runtime: str, recording: bool) -> None:
    """The host calls the same layers by the same code, whatever type their weights are cast to."""
    plain = recognise(
        inferred(
            nodes,
            {"x": (8, 8), "i": (1, 8, 6, 6)},
            weights={"w": (8, 8), "v": (8, 8), "c": (8,), "f": (8, 8, 1, 1)},
            opset=17,
        ),
        runtime="eager",
    )
    assert _host_us(autocast(plain, BF16, runtime="eager"), runtime, recording) == pytest.approx(
        _host_us(plain, runtime, recording)
    )


def _host_us(graph: InferredGraph, name: str, recording: bool) -> float:
    """The host's time for all operators but casts."""
    runtime = replace(get_runtime(name), records_gradients=recording, layers_in_a_row=is_a_row(graph))
    works = [work for work in lower(graph, runtime="eager") if work.op_type != "Cast"]
    return sum(sum(operator_host_us(work, runtime)) for work in works)


def test_a_gradient_of_a_cast_weights_layer_is_a_linear_layers() -> None:
    of_input = by_left(Gemm(m=2, n=8, k=8, b_is_cast_weight=True, dtype=BF16), False)
    of_weight = Gemm(m=8, n=8, k=2, dtype=BF16)
    assert operator_host_us(_backward(of_input, of_weight), EAGER) == pytest.approx([LAUNCH + SERVER * 13.7] * 2)


@pytest.mark.parametrize(
    ("runtime", "training"),
    [("eager", None), ("torchscript", None), ("eager", make_training(optimizer="adamw"))],
    ids=["eager", "torchscript", "training"],
)
def test_a_whole_model_takes_the_host_longer_by_autocast(runtime: str, training: Training | None) -> None:
    """BERT base: 73 linear layers, and casts of their weights and of what they read on top."""
    latencies = {
        precision: analyze(
            BERT, gpu="h100", batch=1, dims={"sequence": 32}, runtime=runtime, precision=precision, training=training
        ).totals.latency_ms
        for precision in ("bf16", "bf16-model")
    }
    assert latencies["bf16"] > 1.2 * latencies["bf16-model"]


def test_a_module_is_one_operator() -> None:
    """GELU as exporters write it, five nodes, is one kernel and one call; what isn't recognised is five."""
    nodes = "a = Div (x, r)\nb = Erf (a)\nc = Add (b, o)\nd = Mul (x, c)\ny = Mul (d, h)"
    graph = inferred(nodes, {"x": (2, 8)}, constants={"r": 2.0**0.5, "o": 1.0, "h": 0.5})
    one = [work for work in lower(recognise(graph, runtime="eager"), runtime="eager") if work.kernels]
    apart = [work for work in lower(graph, runtime="eager") if work.kernels]
    assert len(one) == 1
    assert operator_host_us(one[0], EAGER) == pytest.approx([LAUNCH + SERVER * 3.0])
    assert sum(sum(operator_host_us(work, EAGER)) for work in apart) == pytest.approx(5 * (LAUNCH + SERVER * 3.0))


def _backward(*kernels: Gemm | Normalization | Reduction) -> NodeWork:
    return NodeWork(node="n", op_type="Gemm", kernels=kernels, phase="backward")


def test_autograd() -> None:
    """Each product is a call (both of a linear layer's are as quick), a normalization's two kernels are one, and a
    view's gradient takes the engine's time without a kernel."""
    of_input, of_weight = Gemm(m=2, n=8, k=8, b_is_weight=True, dtype=FP32), Gemm(m=8, n=8, k=2, dtype=FP32)
    assert operator_host_us(_backward(of_input, of_weight), EAGER) == pytest.approx([LAUNCH + SERVER * 13.7] * 2)
    assert operator_host_us(_backward(of_weight), EAGER) == pytest.approx([LAUNCH + SERVER * 18.6])
    norm = Normalization(method="layer", rows=2, cols=8, dtype=FP32, backward=True)
    assert operator_host_us(_backward(norm, norm), EAGER) == pytest.approx([LAUNCH + SERVER * 15.7, LAUNCH])
    view = NodeWork(node="n", op_type="Reshape", free="a view", host_operation=True, phase="backward")
    assert operator_host_us(view, EAGER) == pytest.approx([SERVER * 3.3])
    assert operator_host_us(replace(view, phase="forward"), EAGER) == ()
    assert EAGER.view_us == pytest.approx(1.1 * SERVER, rel=0.02)


def test_a_batch_normalization_in_training_is_one_call_beside_its_modules_count() -> None:
    """Of features: the count of runs, then in one call statistics, what becomes of them, and the pass over elements."""
    graph = inferred(
        "y = BatchNormalization <training_mode = 1> (x, w, w, w, w)", {"x": (4, 8)}, weights={"w": (8,)}, opset=15
    )
    (work,) = lower(graph, runtime="eager")
    assert operator_host_us(work, EAGER) == pytest.approx(
        [LAUNCH + SERVER * 3.0, LAUNCH + SERVER * 12.1, LAUNCH, LAUNCH]
    )


@pytest.mark.parametrize("foreach", [True, False])
def test_the_optimizer_takes_its_time_by_tensors(foreach: bool) -> None:
    """SGD with momentum over 90 tensors: three operations, of 1 us a tensor, however many launches they are; of one
    tensor after the other pointwise operators."""
    parameters = [Parameter(name=f"p{i}", spec=TensorSpec(dtype=FP32, shape=(2_000_000,))) for i in range(90)]
    works = list(optimizer_works("momentum", parameters, foreach=foreach))
    launches = sum(work.count for work in works)
    assert launches == (3 * 9 if foreach else 3 * 90)
    host_us = sum(work.count * sum(operator_host_us(work, EAGER)) for work in works)
    assert host_us == pytest.approx(launches * LAUNCH + SERVER * 3 * 90 * (1.0 if foreach else 3.0))


def test_other_runtimes_have_one_time_for_all() -> None:
    work = lower(inferred("y = Add (x, x)", IMAGE), runtime="compiled")[-1]
    assert all(operator_host_us(work, get_runtime(name)) == () for name in ("compiled", "onnxruntime", "tensorrt"))


def test_the_stream_waits_for_each_operator() -> None:
    """Launched at 30, 35 and, behind a view of 2, 47: each kernel of 3 us has ended before the next."""
    steps = [
        Step(kernel_us=(3.0, 3.0), host_us=(30.0, 5.0)),
        Step(host_us=(2.0,)),
        Step(kernel_us=(3.0,), host_us=(10.0,)),
    ]
    assert stream_time_us(steps, EAGER) == pytest.approx(50.0)
    assert stream_time_us(steps, EAGER, host_factor=2.0) == pytest.approx(97.0)
    assert host_time_us(steps, EAGER) == pytest.approx(47.0)
    assert [(span.host_start_us, span.host_us) for span in stream_launches(steps, EAGER)] == [
        (0.0, 30.0),
        (30.0, 5.0),
        (35.0, 2.0),
        (37.0, 10.0),
    ]
    # the host waits: launched at 30 and 35; the second run's first launch is 30 us behind the end, at 38
    again = [Step(kernel_us=(3.0, 3.0), host_us=(30.0, 5.0), count=2, host_waits=True)]
    assert stream_time_us(again, EAGER) == pytest.approx(76.0)
    assert max(each.gpu_start_us + each.gpu_us for each in stream_launches(again, EAGER)) == pytest.approx(76.0)


def test_small_batches_are_the_hosts_and_large_ones_the_gpus() -> None:
    """ResNet-50: 174 kernels on a server take PyTorch 4 to 7 ms; the host hides behind images in dozens."""
    small = analyze(RESNET, gpu="a100", runtime="eager", batch=1)
    assert 4.0 < small.totals.latency_ms < 7.0
    assert small.totals.latency_ms > 3 * small.totals.kernel_ms
    large = analyze(RESNET, gpu="a100", runtime="eager", batch=64)
    assert large.totals.overhead_ms < 0.01 * large.totals.latency_ms


def test_torchscript_runs_eager_modes_kernels_with_less_software() -> None:
    graph = recognise(inferred("y = Add (x, x)", IMAGE, weights={}, opset=17), runtime="eager")
    scripted = get_runtime("torchscript")
    assert operator_host_us(lower(graph, runtime="eager")[-1], scripted) == pytest.approx([LAUNCH + 0.4 * SERVER * 3.0])
    assert scripted.view_us == pytest.approx(0.4 * EAGER.view_us)
    eager, without_python = (analyze(RESNET, gpu="a100", batch=1, runtime=name) for name in ("eager", "torchscript"))
    assert [row.latency_us for row in eager.kernels] == [row.latency_us for row in without_python.kernels]
    assert 0.4 < without_python.totals.latency_ms / eager.totals.latency_ms < 0.7
    assert without_python.settings.runtime == "torchscript"


def test_torchscript_has_eager_modes_releases() -> None:
    old = get_runtime("torchscript@1.10")
    assert old.label == "torchscript@1.10"
    assert old.lacks == get_runtime("eager@1.10").lacks
    assert old.undoing(()).label == "torchscript@1.10"
