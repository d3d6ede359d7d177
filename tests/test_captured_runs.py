"""Runs captured in a CUDA graph, and the batch from which the GPU doesn't wait for the host."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from graphs import split, value_info
from neusight_onnx.analysis import analyze
from neusight_onnx.comparison.cases import compare
from neusight_onnx.comparison.points import sweep
from neusight_onnx.report.model import HostSummary
from neusight_onnx.runtime import RUNTIMES


def test_a_captured_run_launches_once() -> None:
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    sizes = {"batch": 1}
    plain = analyze(path, gpu="h100", dims=sizes, runtime="onnxruntime")
    captured = analyze(path, gpu="h100", dims=sizes, runtime="onnxruntime", cuda_graph=True)
    assert plain.host.is_bound
    assert plain.host.free_from_batch is not None
    assert not captured.host.is_bound
    assert captured.totals.overhead_ms == pytest.approx(RUNTIMES["onnxruntime"].graph_us / 1e3)
    assert captured.totals.kernel_ms == pytest.approx(plain.totals.kernel_ms)


@pytest.mark.parametrize(
    ("name", "sizes", "runtime", "precision"),
    [
        pytest.param(
            "bert_base.onnx", {"batch": 1, "sequence": 16}, "onnxruntime", "auto", id="kernels that fill little"
        ),
        pytest.param("bert_base.onnx", {"batch": 3, "sequence": 128}, "eager", "fp16", id="doublings of 3"),
        pytest.param("resnet50.onnx", {"batch": 1}, "onnxruntime", "auto", id="convolutions"),
    ],
)
def test_the_batch_that_frees_the_gpu_of_the_host_does(
    name: str, sizes: dict[str, int], runtime: str, precision: str
) -> None:
    """Small kernels take hardly longer at a larger batch: scaled by their tiles they fell short 4 to 12 times."""
    path = Path(__file__).parent.parent / "examples" / name

    def bound(batch: int) -> HostSummary:
        report = analyze(path, gpu="b200", dims={**sizes, "batch": batch}, runtime=runtime, precision=precision)
        return report.host

    said = bound(sizes["batch"])
    assert said.is_bound
    assert said.free_from_batch is not None
    assert not bound(said.free_from_batch).is_bound
    before = bound(said.free_from_batch // 2)
    assert before.is_bound
    assert before.free_from_batch == said.free_from_batch


def test_no_batch_to_vary_frees_nothing() -> None:
    """A batch that --shape fixes can't be varied: none is named."""
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    report = analyze(path, gpu="b200", shapes={"images": (1, 3, 224, 224)}, runtime="onnxruntime")
    assert report.host.is_bound
    assert report.host.free_from_batch is None


def test_a_sweep_and_a_comparison_of_captured_runs() -> None:
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    swept = sweep(path, gpu="h100", dims={"batch": (1, 2)}, runtime="onnxruntime", cuda_graph=True)
    beside = compare(path, gpus=["h100"], dims={"batch": (1, 2)}, runtimes=["onnxruntime"], cuda_graph=True)
    graph_ms = RUNTIMES["onnxruntime"].graph_us / 1e3
    for totals in (*(point.totals for point in swept.points), *(case.totals for case in beside.cases)):
        assert totals is not None
        assert totals.overhead_ms == pytest.approx(graph_ms)
    for found in (swept, beside):
        assert "runs are replayed as CUDA graphs (--cuda-graph)" in found.assumptions


@pytest.mark.parametrize(
    ("nodes", "runtime", "words"),
    [
        pytest.param("d = Det(x)\ny = Relu(d)", "onnxruntime", "the host waits for Det_0", id="an operator on the CPU"),
        pytest.param("d = Det(x)\ny = Relu(d)", "eager", None, id="that has a kernel elsewhere"),
        pytest.param("n = NonZero(x)\ny = Cast<to=1>(n)", "eager", "the host waits for NonZero_0", id="a size"),
    ],
)
def test_what_can_not_be_captured(nodes: str, runtime: str, words: str | None, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    graph = helper.make_graph(
        split(nodes),
        "graph",
        [value_info("x", (3, 4, 4), TensorProto.FLOAT)],
        [value_info("y", None, TensorProto.FLOAT)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    report = analyze(path, gpu="t4", runtime=runtime, cuda_graph=True)
    said = [text for text in report.assumptions if text.startswith("no CUDA graph: ")]
    assert report.settings.cuda_graph == (words is None)
    assert [words in text for text in said if words] == ([True] if words else [])
