"""TF32 that PyTorch has cuDNN multiply unasked: in convolutions and recurrent layers, and in no other product."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from graphs import inferred, read_graph
from neusight_onnx import analyze, compare
from neusight_onnx.backward import make_training
from neusight_onnx.checks.limits import Limits
from neusight_onnx.checks.run import check
from neusight_onnx.checks.subject import Target
from neusight_onnx.cli import main
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.kernels import Attention, Conv, Gemm, Recurrent
from neusight_onnx.lowering.products import with_products
from neusight_onnx.preparation import works_of
from neusight_onnx.report.model import Report
from neusight_onnx.report.peak import beyond_peak
from neusight_onnx.runtime import get_runtime

RESNET = "examples/resnet50.onnx"
BERT = "examples/bert_base.onnx"
IMAGES = {"x": (2, 8, 16, 16)}
SEQUENCES = {"x": (5, 2, 8)}
GRU = {"w": (1, 48, 8), "r": (1, 48, 16)}


def types_of_products(report: Report) -> dict[str, set[str]]:
    """By kernel class."""
    classes = ("conv", "gemm", "recurrent", "attention")
    return {
        name: found for name in classes if (found := {row.dtype for row in report.kernels if row.kernel_class == name})
    }


# operators, inputs, weights, whether the products multiply TF32
BY_CUDNN = [
    pytest.param("y = Conv(x, w)", IMAGES, {"w": (8, 8, 3, 3)}, True, id="convolution"),
    pytest.param("y = Conv(x, w)", {"x": (2, 8, 16)}, {"w": (8, 8, 3)}, True, id="of one axis"),
    pytest.param("y = Conv(x, w)", {"x": (2, 8, 8, 8, 8)}, {"w": (8, 8, 3, 3, 3)}, True, id="of three axes"),
    pytest.param("y = Conv<group=2>(x, w)", IMAGES, {"w": (8, 4, 3, 3)}, True, id="in groups"),
    pytest.param("y = ConvTranspose(x, w)", IMAGES, {"w": (8, 8, 3, 3)}, True, id="transposed"),
    # a kernel of PyTorch's own
    pytest.param("y = Conv<group=8>(x, w)", IMAGES, {"w": (8, 1, 3, 3)}, False, id="depthwise"),
    # torchvision's: columns, then a product of cuBLAS
    pytest.param(
        "y = DeformConv(x, w, o)", IMAGES | {"o": (2, 18, 14, 14)}, {"w": (8, 8, 3, 3)}, False, id="deformable"
    ),
    pytest.param("y, h = GRU<hidden_size=16>(x, w, r)", SEQUENCES, GRU, True, id="recurrent"),
    pytest.param("y = MatMul(x, w)", SEQUENCES, {"w": (8, 8)}, False, id="linear layer"),
]


@pytest.mark.parametrize(("nodes", "inputs", "weights", "in_tf32"), BY_CUDNN)
@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_what_cudnn_computes(
    nodes: str, inputs: dict[str, tuple[int, ...]], weights: dict[str, tuple[int, ...]], *, in_tf32: bool, runtime: str
) -> None:
    described = get_runtime(runtime)
    works = works_of(fused_graph(inferred(nodes, inputs, weights=weights, opset=19), described), described)
    narrowed = with_products(works, DataType.TFLOAT32, None, by_cudnn=True)
    products = [
        kernel.dtype
        for work in narrowed
        for kernel in work.kernels
        if isinstance(kernel, Attention | Conv | Gemm | Recurrent)
    ]
    assert products
    assert set(products) == {DataType.TFLOAT32 if in_tf32 else DataType.FLOAT32}


@pytest.mark.parametrize(
    ("gpu", "runtime", "asked", "executed", "convolutions", "linear"),
    [
        pytest.param("a100", "eager", "auto", "tf32-cudnn", "tf32", "float32", id="by default"),
        pytest.param(
            "rtx-5090", "compiled", "auto", "tf32-cudnn", "tf32 float32", "float32", id="compiled"
        ),  # some are quicker in FP32
        pytest.param("a100", "eager@1.12", "auto", "tf32-cudnn", "tf32", "float32", id="since 1.12"),
        pytest.param("a100", "eager@1.11", "auto", "tf32", "tf32", "tf32", id="all products before"),
        pytest.param("a100", "eager@1.6", "auto", "fp32", "float32", "float32", id="none before 1.7"),
        pytest.param("a100", "compiled", "fp32", "fp32", "float32", "float32", id="FP32 asked"),
        pytest.param("a100", "eager", "tf32", "tf32", "tf32", "tf32", id="TF32 asked"),
        pytest.param("a100", "eager", "fp16", "fp16", "float16", "float16", id="autocast"),
        pytest.param("t4", "eager", "auto", "fp32", "float32", "float32", id="no such units"),
        pytest.param("mi300x", "eager", "auto", "fp32", "float32", "float32", id="no library of AMD's does"),
    ],
)
def test_convolutions_and_linear_layers(
    gpu: str, runtime: str, asked: str, executed: str, convolutions: str, linear: str
) -> None:
    report = analyze(RESNET, gpu=gpu, dims={"batch": 2}, runtime=runtime, precision=asked)
    assert report.settings.precision == executed
    assert types_of_products(report) == {"conv": set(convolutions.split()), "gemm": {linear}}
    said = [text for text in report.assumptions if "unasked" in text]
    assert len(said) == (asked == "auto" and "tf32" in convolutions)
    told_not_to = [text for text in report.assumptions if "unless it is told not to" in text]
    assert len(told_not_to) == (asked == "fp32")


@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_a_model_without_convolutions_is_in_fp32(runtime: str) -> None:
    report = analyze(BERT, gpu="a100", dims={"batch": 1, "sequence": 8}, runtime=runtime)
    assert report.settings.precision == "fp32"
    assert set().union(*types_of_products(report).values()) == {"float32"}
    assert not any("TF32" in text for text in report.assumptions)


@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_gradients_of_convolutions(runtime: str) -> None:
    """Both operands' gradients are cuDNN's as well; bytes and memory are those of FP32."""
    unasked, in_fp32 = (
        analyze(RESNET, gpu="a100", dims={"batch": 2}, runtime=runtime, training=make_training(), precision=precision)
        for precision in ("auto", "fp32")
    )
    assert {row.phase for row in unasked.kernels if row.dtype == "tf32"} == {"forward", "backward"}
    assert types_of_products(unasked) == {"conv": {"tf32"}, "gemm": {"float32"}}
    assert unasked.totals.kernel_ms < in_fp32.totals.kernel_ms, "the GPU's time: in eager mode the host is slower"
    assert unasked.totals.memory.peak_bytes == in_fp32.totals.memory.peak_bytes
    for field in ("read_bytes", "write_bytes", "flops"):
        assert getattr(unasked.totals, field) == getattr(in_fp32.totals, field)


def test_each_is_a_case_of_its_own() -> None:
    found = compare(RESNET, gpus=["a100"], runtimes=["eager"], precisions=["auto", "fp32", "tf32"], dims={"batch": 64})
    latencies = {case.precision: case.totals.latency_ms for case in found.cases}
    assert list(latencies) == ["tf32", "tf32-cudnn", "fp32"]
    assert latencies["tf32"] < latencies["tf32-cudnn"] < latencies["fp32"]
    assert sum("precision tf32-cudnn: float32 as stored" in text for text in found.assumptions) == 1


def test_check_names_what_is_executed() -> None:
    limits = Limits(max_latency_ms=100.0, texts={"max-latency": "100ms"})
    targets = [Target(name=gpu, model=RESNET, gpu=gpu, runtime="eager", limits=limits) for gpu in ("a100", "t4")]
    verdict = check(targets)
    assert [target.precision for target in verdict.targets] == ["tf32-cudnn", "fp32"]


def test_a_change_of_the_runtime_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["analyze", RESNET, "--gpu", "a100", "--batch", "2", "--format", "json", "--what-if", "runtime=eager"]
    assert main(asked) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["precision"] == "tf32"
    assert [changed["precision"] for changed in document["what_if"]] == ["tf32-cudnn"]


def test_it_cannot_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", RESNET, "--gpu", "a100", "--precision", "tf32-cudnn"]) == 2
    assert "tf32-cudnn" in capsys.readouterr().err


def in_fp32() -> Report:
    """A convolution that may multiply TF32, which FP32's Winograd does sooner."""
    model = read_graph("y = Conv<pads=[1, 1, 1, 1]>(x, w)", {"x": (8, 256, 128, 128)}, weights={"w": (256, 256, 3, 3)})
    return analyze(model, gpu="rtx-3090", runtime="eager")


def test_what_runs_in_fp32_is_named_so() -> None:
    """TF32 is a permission: where Winograd's kernel in FP32 is quicker, the report has it by that name."""
    report = in_fp32()
    (row,) = report.kernels
    assert report.settings.precision == "tf32-cudnn"
    assert (row.predictor, row.dtype) == ("conv_fp32", "float32")
    said = "\n".join(report.assumptions)
    assert "1 of 1 kernel that may multiply TF32 runs in FP32 and is shown as float32" in said


@pytest.mark.parametrize(
    ("share", "others_ms", "begins"),
    [(1.25, 0.0, "125 % of FP32 peak"), (1.25, 9.0, "1 kernel shows 125 %"), (0.9, 0.0, "")],
)
def test_kernels_beyond_their_peak_are_named(share: float, others_ms: float, begins: str) -> None:
    """Of the whole run where it is, else those of its kernels that are; ``others_ms``: what the rest of it takes."""
    report = in_fp32()
    latency_us = report.totals.flops / (share * report.gpu.peak_flops_per_s["fp32"]) * 1e6
    totals = replace(report.totals, latency_ms=latency_us / 1e3 + others_ms)
    played = replace(report, kernels=(replace(report.kernels[0], latency_us=latency_us),), totals=totals)
    said = list(beyond_peak(played))
    assert len(said) == bool(begins)
    assert all(text.startswith(begins) and "of which Winograd's algorithm needs a part" in text for text in said)
