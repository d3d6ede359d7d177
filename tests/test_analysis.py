"""What ``analyze`` makes of a graph beyond its kernels: branches, coverage, what is unsupported, the sums."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from models import decoder, graph, model, node, tensor, value
from neusight_onnx import analyze, compare, load_gpu, read_model
from neusight_onnx.analysis import predict_report
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import ModelError, NeusightError, NotSupportedError
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.outcome import predict_totals
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import infer_shapes, prepare
from neusight_onnx.report.html.page import to_html
from neusight_onnx.report.markdown import to_markdown
from neusight_onnx.report.model import Report
from neusight_onnx.report.terminal import to_terminal

F16 = onnx.TensorProto.FLOAT16

HEADER = '<ir_version: 9, opset_import: ["" : 18, "acme" : 1, "com.microsoft" : 1]>\n'


def analyzed(folder: Path, text: str, *, gpu: str | GpuSpec = "a100", **settings: str) -> Report:
    path = folder / "m.onnx"
    onnx.save(parser.parse_model(HEADER + text), path)
    return analyze(path, gpu=gpu, **settings)


def test_of_two_branches_the_slower_is_counted_and_both_are_said(tmp_path: Path) -> None:
    report = analyzed(
        tmp_path,
        """g (bool c, float[512, 512] x) => (float[a, b] y) {
             y = If(c) <then_branch = t () => (float[a, b] p) { p = Relu(x) },
                        else_branch = e () => (float[a, b] q) { h = MatMul(x, x)  q = MatMul(h, x) }>
        }""",
    )
    assert [kernel.kernel_class for kernel in report.kernels] == ["gemm", "gemm"]
    said = [text for text in report.assumptions if "slower branch 'else'" in text and "'then' would take" in text]
    assert len(said) == 1
    assert report.totals.flops == 2 * 2 * 512**3
    # a branch that isn't counted is not in kernels, yet its nodes are accounted for
    coverage = report.coverage
    assert (coverage.node_count, coverage.kernel_node_count, coverage.free_node_count) == (4, 2, 2)
    assert coverage.free_reasons["the other branch of its If is counted"] == 1


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("same = Equal(rate, wanted)  c = Identity(same)", "--value rate=... decides it"),
        ("m = ReduceMax<keepdims = 0>(x)  c = Greater(m, zero)", None),
    ],
    ids=["a small integer input decides", "data decide"],
)
def test_what_would_decide_a_branch_is_said(tmp_path: Path, condition: str, hint: str | None) -> None:
    report = analyzed(
        tmp_path,
        f"""g (int64 rate, float[512, 512] x) => (float[a, b] y) <int64 wanted = {{16000}}, float zero = {{0}}> {{
             {condition}
             y = If(c) <then_branch = t () => (float[a, b] p) {{ p = Relu(x) }},
                        else_branch = e () => (float[a, b] q) {{ q = MatMul(x, x) }}>
        }}""",
    )
    (said,) = (text for text in report.assumptions if "slower branch" in text)
    assert ("decides it" in said) is (hint is not None)
    assert hint is None or hint in said


def test_branches_within_branches_are_decided_from_within(tmp_path: Path) -> None:
    report = analyzed(
        tmp_path,
        """g (bool c, bool d, float[512, 512] x) => (float[a, b] y) {
             y = If(c) <
               then_branch = t () => (float[a, b] p) {
                 p = If(d) <then_branch = tt () => (float[a, b] r) { r = MatMul(x, x) },
                            else_branch = te () => (float[a, b] s) { s = Relu(x) }>
               },
               else_branch = e () => (float[a, b] q) { q = Relu(x) }>
        }""",
    )
    assert [kernel.kernel_class for kernel in report.kernels] == ["gemm"]
    assert sum("slower branch" in text for text in report.assumptions) == 2


def test_a_loop_counts_its_body_as_often_as_it_runs(tmp_path: Path) -> None:
    text = """g (float[64, 64] x) => (float[64, 64] y) <int64 trips = {5}, bool go = {1}> {
         y = Loop(trips, go, x) <body = b (int64 i, bool c, float[64, 64] h) => (bool c2, float[64, 64] h2)
           { c2 = Identity(c)  h2 = MatMul(h, h) }>
    }"""
    report = analyzed(tmp_path, text)
    (kernel,) = report.kernels
    assert kernel.count == 5
    assert report.totals.macs == 5 * 64**3
    assert report.totals.kernel_ms == pytest.approx(kernel.latency_us / 1e3)


def test_an_unknown_operator_makes_the_totals_partial(tmp_path: Path) -> None:
    text = "g (float[8, 8] x) => (float[8, 8] y) { h = acme.MyOp(x)  r = Relu(x)  y = MatMul(h, r) }"
    report = analyzed(tmp_path, text)
    first = report.unsupported[0]
    assert (first.op_type, first.reason) == ("MyOp", "no lowering for acme::MyOp")
    assert report.totals.partial
    assert "partial" in {notice.code for notice in report.warnings}
    assert report.coverage.unsupported_node_count == len(report.unsupported)


def test_a_model_without_nodes_takes_no_time(tmp_path: Path) -> None:
    report = analyzed(tmp_path, "g (float[2, 2] x) => (float[2, 2] x) { }")
    assert report.totals.latency_ms == 0
    assert report.kernels == ()


def test_weights_of_branches_are_in_memory(tmp_path: Path) -> None:
    text = """g (bool c, float[8, 64] x) => (float[a, b] y) <float[64, 64] w> {
         y = If(c) <then_branch = t () => (float[a, b] p) { p = MatMul(x, w) },
                    else_branch = e () => (float[a, b] q) { q = Relu(x) }>
    }"""
    report = analyzed(tmp_path, text.replace("<float[64, 64] w>", "<float[64, 64] w = {" + "0," * 4095 + "0}>"))
    assert report.model.weight_bytes == report.totals.memory.weight_bytes == 4 * 64 * 64


def test_what_waits_for_the_host_is_as_uncertain_as_the_host(tmp_path: Path) -> None:
    chain = "\n".join(f"h{i + 1} = Relu(h{i})" for i in range(40))
    totals = analyzed(tmp_path, f"g (float[8] h0) => (float[8] h40) {{ {chain} }}").totals
    assert totals.overhead_ms > totals.kernel_ms
    assert totals.latency_low_ms < totals.latency_ms / 1.3
    assert totals.latency_high_ms > totals.latency_ms * 1.3


@pytest.mark.parametrize(
    ("inputs", "batch_size", "says"),
    [
        ("float[batch, 3] x", 7, None),
        ("float[tb, 3] x", 7, "tb, the first dimension of 'x'; no dimension is named as a batch"),
        ("float[sequence_length, 3] x", 1, "1; no dimension is named as a batch, nor sequence_length, the first"),
        ("float[time, 3] x", 1, "1; no dimension is named as a batch, nor time, the first"),
        ("float[sequence_length, batch, 3] x", 7, None),
        ("float[256, 256] x", 256, "256, the first dimension of 'x'; no dimension is named as a batch"),
        ("float[8, 128, 784] x", 8, "8, the first dimension of 'x'"),
        ("float[1, 784] x", 1, None),
        ("float[6, 3, 8, 8] x", 6, "6, the first dimension of 'x'"),
        ("int64[5, 16] x", 5, "5, the first dimension of 'x'"),
        ("float[16] x", 1, None),
    ],
)
def test_batch_size(tmp_path: Path, inputs: str, batch_size: int, says: str | None) -> None:
    """A batch has the size 7, everything else another; what is no name of a batch is stated."""
    path = tmp_path / "g.onnx"
    onnx.save(parser.parse_model(HEADER + f"g ({inputs}) => (float[a] y) {{ y = Neg(x) }}"), path)
    report = analyze(path, gpu="t4", dims={name: 7 for name in ("batch", "tb") if f"{name}," in inputs})
    assert report.totals.batch_size == batch_size
    said = [text.removeprefix("samples a run: ") for text in report.assumptions if text.startswith("samples a run")]
    assert [text.startswith(says or "") for text in said] == [True] * (says is not None)


def test_samples_that_no_output_keeps_are_none(tmp_path: Path) -> None:
    """The first dimension is summed over."""
    report = analyzed(tmp_path, "g (float[32, 784] x) => (float[a] y) { y = ReduceSum<keepdims = 0>(x) }")
    assert report.totals.batch_size == 1
    assert any("the output lacks the first dimension of 'x', 32" in text for text in report.assumptions)


def test_what_runs_nothing_has_no_throughput(tmp_path: Path) -> None:
    """No rate of 0 a second, which a limit would have to refuse."""
    empty = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    onnx.save(empty, tmp_path / "empty.onnx")
    report = analyze(tmp_path / "empty.onnx", gpu="t4")
    for text in (to_terminal(report, width=80, colour=False), to_markdown(report)):
        assert "none: nothing runs" in text
        assert "samples/s" not in text


def test_what_runs_no_kernel_has_no_throughput(tmp_path: Path) -> None:
    """The host's time for a view is no measure of a GPU: 1,250,000 samples/s, of which it sees none."""
    report = analyzed(tmp_path, "g (float[4, 2, 3] x) => (float[4, 6] y) { y = Flatten(x) }", runtime="eager")
    assert report.totals.latency_ms > 0
    assert "none: no kernel runs" in to_html(report)
    for text in (to_terminal(report, width=80, colour=False), to_markdown(report)):
        assert "none: no kernel runs" in text
        assert "samples/s" not in text
        assert "FLOP/s" not in text


def test_types_without_predictors_are_named(tmp_path: Path) -> None:
    report = analyzed(tmp_path, "g (int8[8, 8] x) => (int32[8, 8] y) { y = MatMulInteger(x, x) }", gpu="p4")
    assert any("int8 (1)" in text and "analytic" in text for text in report.assumptions)


def test_types_of_matrix_units_are_named(tmp_path: Path) -> None:
    report = analyzed(tmp_path, "g (int8[8, 8] x) => (int32[8, 8] y) { y = MatMulInteger(x, x) }")
    assert [row.predictor for row in report.kernels] == ["gemm_int8"]
    assert any(text.endswith("int8 by gemm_int8 (1)") for text in report.assumptions)


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ("t4", "70 W sustain 38.6 % of the boost clock in float16"),
        ("l4", "72 W sustain 39.0 % of the boost clock in float16"),
        ("h20", ""),
        ("p100-pcie-16gb", ""),
    ],
    ids=["T4", "L4", "holds its clock", "no matrix units"],
)
def test_a_power_limit_is_named(tmp_path: Path, gpu: str, said: str) -> None:
    report = analyzed(tmp_path, "g (float16[8, 8] x) => (float16[8, 8] y) { y = MatMul(x, x) }", gpu=gpu)
    found = [text for text in report.assumptions if "of the boost clock" in text]
    assert len(found) == bool(said)
    assert all(said in text for text in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dims": {"n": 2.5}}, "the size of 'n' is 2.5; give an integer"),
        ({"dims": {"n": True}}, "the size of 'n' is True"),
        ({"dims": {"n": "8"}}, "the size of 'n' is '8'"),
        ({"shapes": {"x": "8x8"}}, "give a tuple of integers"),
        ({"values": {"x": "abc"}}, "give numbers"),
        ({"gpu": 5}, "gpu is 5; give a name"),
    ],
    ids=["fraction", "bool", "text", "shape as text", "value as text", "gpu"],
)
def test_wrong_types_are_refused(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(HEADER + "g (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }"), path)
    with pytest.raises(NeusightError, match=message):
        analyze(path, **{"gpu": "a100", **arguments})


def test_a_protobuf_is_refused() -> None:
    with pytest.raises(ModelError, match="model is a ModelProto; give the path"):
        analyze(onnx.ModelProto(), gpu="a100")  # type: ignore[arg-type]  # what a user might try


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "fp8"}, "precision fp8 on a100-sxm-80gb: the GPU has no FP8 units; use int8 or fp16 on it"),
        ({"precision": "fp12"}, "unknown precision 'fp12'"),
        ({"runtime": "openvino"}, "unknown runtime 'openvino'; supported now: compiled, eager, onnxruntime, tensorrt"),
    ],
    ids=["precision without units", "no precision", "no runtime"],
)
def test_what_has_no_model_is_refused(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(NotSupportedError, match=message):
        analyzed(tmp_path, "g (float[2, 2] x) => (float[2, 2] y) { y = Relu(x) }", **settings)


@pytest.mark.parametrize(
    ("gpu", "precision", "advice"),
    [
        ("v100", "fp8", "use fp16 or fp32 on it"),
        ("p4", "fp4", "use int8 or fp32 on it"),
        ("h100", "fp4", "use fp8 or int8 on it"),
        ("mi300x", "fp4", r"a GPU since Blackwell \(NVIDIA\) or CDNA 4 \(AMD\)"),
        ("mi210", "fp8", r"a GPU since Ada or Hopper \(NVIDIA\) or CDNA 3 \(AMD\)"),
        ("b300-sxm", "int8", "no rate of its INT8 units is stated; give int8_tops in a GPU file, or use fp8 or fp16"),
    ],
)
def test_a_refusal_names_what_the_gpu_has(tmp_path: Path, gpu: str, precision: str, advice: str) -> None:
    with pytest.raises(NotSupportedError, match=f"precision {precision} on .*{advice}"):
        analyzed(tmp_path, "g (float[2, 2] x) => (float[2, 2] y) { y = Relu(x) }", gpu=gpu, precision=precision)


def without_peaks(*names: str) -> GpuSpec:
    """An A100 whose file leaves peaks out."""
    gpu = load_gpu("a100-sxm-80gb")
    return replace(
        gpu, peak_flops_per_s={pipe: rate for pipe, rate in gpu.peak_flops_per_s.items() if pipe not in names}
    )


LINEAR = "g (float[64, 64] x, float[64, 64] w) => (float[64, 64] y) { y = MatMul(x, w) }"


def test_a_format_that_the_file_leaves_out_is_not_one_that_the_gpu_lacks(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="no rate of its TF32 units is stated; give tf32_tflops in a GPU file"):
        analyzed(tmp_path, LINEAR, gpu=without_peaks("tf32"), precision="tf32")


TF32_UNSAID = [
    ("left out", without_peaks("tf32"), "onnxruntime", "auto", True),
    ("stated", "a100-sxm-80gb", "onnxruntime", "auto", False),
    ("FP32 asked for", without_peaks("tf32"), "onnxruntime", "fp32", False),
    ("PyTorch's products stay in FP32", without_peaks("tf32"), "eager", "auto", False),
    ("a generation without it", "t4", "onnxruntime", "auto", False),
    ("AMD, which nothing narrows unasked", "mi300x", "onnxruntime", "auto", False),
]


@pytest.mark.parametrize(
    ("gpu", "runtime", "precision", "expected"), [row[1:] for row in TF32_UNSAID], ids=[row[0] for row in TF32_UNSAID]
)
def test_auto_says_that_a_gpu_file_leaves_tf32_out(
    tmp_path: Path, gpu: str | GpuSpec, runtime: str, precision: str, expected: bool
) -> None:
    report = analyzed(tmp_path, LINEAR, gpu=gpu, runtime=runtime, precision=precision)
    assert any("states no tf32_tflops" in text for text in report.assumptions) is expected


DOUBLES = "g (double[8, 64] x, double[64, 64] w) => (double[8, 64] y) { y = MatMul(x, w) }"


def test_a_model_in_float64_is_called_so(tmp_path: Path) -> None:
    assert analyzed(tmp_path, DOUBLES).settings.precision == "fp64"
    narrowed = analyzed(tmp_path, DOUBLES, precision="fp16")
    assert "fp16: 1 node stays in float64, as the file has it" in narrowed.assumptions
    with pytest.raises(NotSupportedError, match="unknown precision 'fp64'"):
        analyzed(tmp_path, DOUBLES, precision="fp64")


def linear(*weights: onnx.TensorProto, operator: onnx.NodeProto) -> Model:
    """A row of 256 numbers in float16 by a matrix of 256 x 512."""
    row, result = value("x", [1, 256], F16), value("y", [1, 512], F16)
    built = model(graph([operator], [row], [result], weights), opsets={"": 18, "com.microsoft": 1})
    return read_model_bytes(built.SerializeToString())


def test_weights_asked_for_in_four_bits_are_those_of_a_file_that_stores_them() -> None:
    """131,072 weights: 65,536 bytes, and for each group of 128 a scale of 2 bytes and a zero point of half of one."""
    wide = linear(tensor("w", np.zeros((256, 512), np.float16)), operator=node("MatMul", "x w", "y"))
    packed = linear(
        tensor("w", np.zeros((512, 2, 64), np.uint8)),
        tensor("scales", np.zeros((512, 2), np.float16)),
        tensor("zeros", np.zeros((512, 1), np.uint8)),
        operator=node(
            "MatMulNBits", "x w scales zeros", "y", domain="com.microsoft", K=256, N=512, bits=4, block_size=128
        ),
    )
    asked = analyze(wide, gpu="a100", runtime="onnxruntime", precision="int4w")
    stored = analyze(packed, gpu="a100", runtime="onnxruntime")
    assert asked.totals.memory.weight_bytes == stored.totals.memory.weight_bytes == 65_536 + 1_024 * 5 // 2
    read = [[kernel.read_bytes for kernel in each.kernels if kernel.kernel_class == "gemm"] for each in (asked, stored)]
    assert read[0] == read[1] == [65_536 + 1_024 * 5 // 2 + 256 * 2]
    assert asked.model.parameter_count == stored.model.parameter_count == 131_072


DETERMINANT = "g (float[8, 64, 64] x) => (float[8] d) { d = Det(x) }"


@pytest.mark.parametrize(
    ("gpu", "precision", "reason"),
    [
        ("rtx-3090", "bf16-model", "the peak is at the boost clock that is stated, which GeForce cards pass"),
        ("rtx-a6000", "bf16-model", None),
        ("rtx-3090", "fp32", None),
    ],
)
def test_more_than_the_peak_is_explained(gpu: str, precision: str, reason: str | None) -> None:
    weight = tensor("w", np.zeros((8192, 8192), np.float32))
    made = graph([node("MatMul", "x w", "y")], [value("x", [8192, 8192])], [value("y", [8192, 8192])], [weight])
    wide = read_model_bytes(model(made).SerializeToString())
    report = analyze(wide, gpu=gpu, precision=precision, runtime="eager")
    said = [text for text in report.assumptions if " peak: " in text]
    shown = report.totals.flops / report.totals.latency_ms * 1e3 / report.gpu.peak_flops_per_s[precision[:4]]
    assert (shown > 1) is (reason is not None)
    assert len(said) == (reason is not None)
    assert all(str(reason) in text for text in said)


def test_convolutions_beyond_the_peak_name_their_algorithm() -> None:
    weight = tensor("w", np.zeros((512, 512, 3, 3), np.float32))
    made = graph(
        [node("Conv", "x w", "y", pads=[1, 1, 1, 1])],
        [value("x", [32, 512, 56, 56])],
        [value("y", None)],
        [weight],
    )
    report = analyze(read_model_bytes(model(made).SerializeToString()), gpu="p100")
    (said,) = [text for text in report.assumptions if " of FP32 peak: " in text]
    assert "Winograd's algorithm" in said


def test_work_of_the_cpu_and_copies_are_told_with_their_rates(tmp_path: Path) -> None:
    report = analyzed(tmp_path, DETERMINANT, runtime="onnxruntime")
    assert [(kernel.kernel_class, kernel.bound) for kernel in report.kernels] == [
        ("transfer", "pcie"),
        ("host", "cpu"),
        ("transfer", "pcie"),
    ]
    there = report.kernels[0]
    # a link of 16 lanes of PCIe 4.0 at .6 of 31.5 GB/s, over the 8 us of a copy's start and the 2 of any kernel's
    assert there.latency_us == pytest.approx(10 + 8 * 64 * 64 * 4 / (0.6 * 31.52e9) * 1e6, rel=0.01)
    assert there.utilization == pytest.approx(8 * 64 * 64 * 4 / 31.52e9 * 1e6 / there.latency_us, rel=0.01)
    said = "\n".join(report.assumptions)
    assert (
        "operators without a GPU kernel in onnxruntime run on the CPU while the GPU waits: Det; the CPU is taken"
        in said
    )
    assert "copies between host and GPU run at 18.9 GB/s, 60.0 % of its PCIe link" in said


@pytest.mark.parametrize(
    ("gpu", "runtime", "says"), [("mi300x", "onnxruntime", 1), ("mi300x", "eager", 0), ("h100", "onnxruntime", 0)]
)
def test_which_provider_is_meant_on_amd_stands_in_every_report(gpu: str, runtime: str, says: int) -> None:
    """Beside the latencies of a table as well, not among what holds for every run."""
    read = read_model_bytes(decoder().SerializeToString())
    report = analyze(read, gpu=gpu, runtime=runtime)
    for assumptions in (report.assumptions, compare(read, gpus=(gpu, "l4"), runtimes=runtime).assumptions):
        said = [text for text in assumptions if "MIGraphX" in text]
        assert len(said) == says
        assert report.standing.isdisjoint(said)


def test_kernels_on_amd_have_no_names_of_nvidias() -> None:
    report = analyze(read_model_bytes(decoder().SerializeToString()), gpu="mi300x")
    asked = [row.dims for row in report.kernels if row.kernel_class == "attention"]
    assert asked
    assert not any("variants" in dims for dims in asked)


def test_a_chip_copies_within_its_memory(tmp_path: Path) -> None:
    report = analyzed(tmp_path, DETERMINANT, gpu="jetson-agx-orin-64gb", runtime="onnxruntime")
    there, work, _ = report.kernels
    assert there.bound == "memory"
    # 204.8 GB/s, read and written, at .6
    assert there.latency_us == pytest.approx(10 + 8 * 64 * 64 * 4 / (0.6 * 102.4e9) * 1e6, rel=0.01)
    said = "\n".join(report.assumptions)
    assert "copies between host and GPU run at 61.4 GB/s, 60.0 % of what the memory that they share allows" in said
    assert "0.2 TFLOP/s in those of floats" in said
    assert "as eight cores of such a chip do" in said
    assert "as fast as a server's" in said
    assert "PCIe" not in said
    on_a_card = analyzed(tmp_path, DETERMINANT, gpu="a100", runtime="onnxruntime")
    assert on_a_card.kernels[1].latency_us == pytest.approx(work.latency_us)  # no products
    assert "as fast as a server's" not in "\n".join(on_a_card.assumptions)


def test_a_chips_slow_host_is_within_the_interval(tmp_path: Path) -> None:
    tanhs = "\n".join(f"v{i} = Tanh (v{i - 1})" for i in range(1, 40))
    text = f"g (float[8] v0) => (float[8] v39) {{ {tanhs} }}"
    chip, card = (
        analyzed(tmp_path, text, gpu=name, runtime="eager").totals for name in ("jetson-agx-orin-64gb", "a100")
    )
    # the host bounds both: 1.9 times as long, and twice that
    assert card.latency_high_ms == pytest.approx(1.9 * card.latency_ms, rel=0.05)
    assert chip.latency_high_ms == pytest.approx(3.8 * chip.latency_ms, rel=0.05)
    assert chip.latency_low_ms == pytest.approx(chip.latency_ms / 1.9, rel=0.05)
    assert "up to 1.9 times faster or 3.8 times slower" in chip.interval_method
    assert "up to 1.9 times faster or slower" in card.interval_method


def test_a_link_that_the_gpu_file_leaves_out_is_said_to_be_taken(tmp_path: Path) -> None:
    spec = replace(load_gpu("a100"), pcie_generation=None, pcie_lane_count=None)
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(HEADER + DETERMINANT), path)
    said = analyze(path, gpu=spec, runtime="onnxruntime").assumptions
    assert any("60.0 % of its PCIe link (4.0 x16 is taken: its file states none)" in text for text in said)


def test_products_at_the_rate_of_other_units_are_said(tmp_path: Path) -> None:
    text = "g (float16[64, 64] x, float16[64, 64] w) => (float16[64, 64] y) { y = MatMul(x, w) }"
    wanting = replace(
        load_gpu("a100"),
        peak_flops_per_s={name: rate for name, rate in load_gpu("a100").peak_flops_per_s.items() if name != "fp16"},
    )
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(HEADER + text), path)
    line = "products in float16 (1): a100-sxm-80gb states no rate of fp16 units, that of fp32 stands in"
    assert line in analyze(path, gpu=wanting).assumptions
    assert line not in analyze(path, gpu="a100").assumptions


def test_a_formula_that_was_merged_is_no_near_miss(tmp_path: Path) -> None:
    """A normalization has two means; the rule looks at both and merges all from the second."""
    text = """g (float[8, 4] x) => (float[8, 4] y)
        <float two = {2}, float eps = {0.00001}, float[4] gamma = {1, 1, 1, 1}, float[4] shift = {0, 0, 0, 0}> {
        m = ReduceMean<axes: ints = [-1]>(x)  d = Sub(x, m)  p = Pow(d, two)  v = ReduceMean<axes: ints = [-1]>(p)
        e = Add(v, eps)  r = Sqrt(e)  n = Div(d, r)  s = Mul(n, gamma)  y = Add(s, shift)
    }"""
    path = tmp_path / "m.onnx"
    for told in (text, text.replace("Pow(d, two)", "Pow(d, eps)")):
        onnx.save(parser.parse_model(HEADER.replace("18", "17") + told), path)
        report = analyze(path, gpu="a100", explain_fusion=True)
        rules = [miss.rule for miss in report.fusion.near_misses]
        assert ("layer normalization" in rules) == (told is not text)


def test_attention_that_is_called_is_no_near_miss() -> None:
    """PyTorch calls one operator in 16 bits: its products and softmax were no more to be merged."""
    bert = Path(__file__).parents[1] / "examples" / "bert_base.onnx"
    found = {
        precision: analyze(bert, gpu="a100", runtime="compiled", precision=precision, explain_fusion=True).fusion
        for precision in ("fp32", "fp16")
    }
    missed = {name: {miss.rule for miss in fusion.near_misses} for name, fusion in found.items()}
    assert "LogSoftmax" in missed["fp32"]
    assert not missed["fp16"] & {"LogSoftmax", "scaled dot-product attention"}


def test_a_quantised_graph_in_floats_is_said_to_be_one(tmp_path: Path) -> None:
    text = """g (float[64, 64] x, int8[64, 64] w) => (float[64, 64] y) <float s = {0.1}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  v = DequantizeLinear(w, s, z)  y = MatMul(d, v)
    }"""
    line = (
        "onnxruntime folds QuantizeLinear and DequantizeLinear on a GPU for weights alone at most: 3 kernels of their "
        "own, products in floats"
    )
    assert any(text.startswith(line) for text in analyzed(tmp_path, text, runtime="onnxruntime").assumptions)
    assert not any("weights alone" in text for text in analyzed(tmp_path, text, runtime="tensorrt").assumptions)


def test_a_branch_that_data_decide_is_in_no_cuda_graph(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = """g (bool c, float[8, 8] x) => (float[8, 8] y) {
        y = If(c) <then_branch = t () => (float[8, 8] p) { p = Relu(x) },
                   else_branch = e () => (float[8, 8] q) { q = Tanh(x) }> }"""
    onnx.save(parser.parse_model(HEADER + text), path)
    for runtime in ("eager", "compiled", "onnxruntime", "tensorrt"):
        report = analyze(path, gpu="a100", runtime=runtime, cuda_graph=True)
        assert not report.settings.cuda_graph
        assert any(text.startswith("no CUDA graph: ") for text in report.assumptions)


def test_a_half_precision_model_runs_as_it_is_stored(tmp_path: Path) -> None:
    text = "g (float16[2, 2] x) => (float16[2, 2] y) { y = Relu(x) }"
    report = analyzed(tmp_path, text)
    assert (report.settings.precision, report.kernels[0].dtype) == ("fp16", "float16")
    assert "precision fp16 (as stored in the model; --precision changes it)" in report.assumptions
    assert analyzed(tmp_path, text, precision="fp32").kernels[0].dtype == "float32"


FITTING = """g (bool c, float[N, 8] x) => (float[a, b] y) <int64[2] wide = {2, 16}, int64[2] long = {8, 4}> {
     y = If(c) <then_branch = t () => (float[a, b] p) { h = Reshape(x, wide)  p = Relu(h) },
                else_branch = e () => (float[a, b] q) { k = Reshape(x, long)  q = Tanh(k) }>
}"""


def test_of_two_branches_that_accept_the_sizes_both_are_costed(tmp_path: Path) -> None:
    """4 rows of 8 are 32 elements, as (2, 16) and (8, 4): either may run."""
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(HEADER + FITTING), path)
    both = analyze(path, gpu="a100", dims={"N": 4})
    assert any("slower branch" in text for text in both.assumptions)
    assert not both.totals.partial


def test_a_branch_that_refuses_the_sizes_is_not_taken(tmp_path: Path) -> None:
    """24 elements are (3, 8), not (2, 16): only the other branch can run, and nothing of it is partial."""
    path = tmp_path / "m.onnx"
    text = FITTING.replace("long = {8, 4}", "long = {3, 8}")
    onnx.save(parser.parse_model(HEADER + text), path)
    report = analyze(path, gpu="a100", dims={"N": 3})
    assert [kernel.op_types for kernel in report.kernels] == [("Tanh",)]
    assert not report.totals.partial
    assert any("its then-branch does not accept these sizes" in text for text in report.assumptions)
    assert report.model.outputs[0].shape == (3, 8)


def test_steps_shared_between_gpus_give_what_analyze_gives() -> None:
    path = Path(__file__).parents[1] / "examples" / "resnet50.onnx"
    shaped = infer_shapes(read_model(path), Bindings(dims={"batch": 2}))
    for runtime in ("eager", "compiled"):
        prepared = prepare(shaped, precision=resolve("auto", DataType.FLOAT32), runtime=runtime)
        for gpu in ("t4", "a100"):
            whole = analyze(path, gpu=gpu, dims={"batch": 2}, runtime=runtime)
            assert predict_report(prepared, load_gpu(gpu), asked_precision="auto") == whole
            assert predict_totals(prepared, load_gpu(gpu)) == whole.totals


def test_the_share_of_what_depends_on_data_is_reported() -> None:
    """Of two products alike but for where their rows come from, one has rows whose number depends on data."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[256] chosen, float[256, 512] x, float[512, 512] w) => (float[a, b] y, float[c, d] z)
        <int64[1] flat = {-1}> {
          places = NonZero(chosen)
          rows = Reshape(places, flat)
          mine = Gather<axis = 0>(x, rows)
          y = MatMul(mine, w)
          z = MatMul(x, w)
    }"""
    model = read_model_bytes(parser.parse_model(text).SerializeToString())
    report = analyze(model, gpu="a100")
    free_of_data = report.kernels[-1]
    assert free_of_data.kernel_class == "gemm"
    by_data = sum(row.latency_us for row in report.kernels if row is not free_of_data)
    share = by_data / sum(row.latency_us for row in report.kernels)
    assert 0.5 < share < 1
    assert report.coverage.data_dependent_share == pytest.approx(share)
    assert any("of the kernels' time goes to tensors whose shape depends on data" in a for a in report.assumptions)


def test_how_tokens_choose_experts_is_said(tmp_path: Path) -> None:
    text = """g (float[6, 16] x, float[6, 4] p, float[4, 32, 16] w1, float[4, 16, 32] w2) => (float[6, 16] y) {
        h = com.microsoft.MoE <k = 2> (x, p, w1, , w2)
        y = com.microsoft.MoE <k = 2> (h, p, w1, , w2)
    }"""
    report = analyzed(tmp_path, text)
    assert [said for said in report.assumptions if said.startswith("2 mixtures of experts: each token chooses")]
    dense = analyzed(tmp_path, "g (float[6, 16] x, float[16, 16] w) => (float[6, 16] y) { y = MatMul(x, w) }")
    assert not [said for said in dense.assumptions if "expert" in said]


@pytest.mark.parametrize(
    ("runtime", "precision", "returned"),
    [
        ("onnxruntime", "fp16", "float32"),
        ("tensorrt", "bf16", "float32"),
        ("onnxruntime", "fp16-model", "float16"),
        ("eager", "fp16", "float16"),
    ],
)
def test_outputs_have_the_type_that_a_run_returns(runtime: str, precision: str, returned: str) -> None:
    report = analyze("examples/resnet50.onnx", gpu="a100", batch=1, runtime=runtime, precision=precision)
    assert [(output.name, output.dtype) for output in report.model.outputs] == [("logits", returned)]
