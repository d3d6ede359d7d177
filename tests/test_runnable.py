"""Models that a runtime doesn't run on a GPU: refused with the reason before anything is predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from check_cases import dequantized
from models import graph, model, node, tensor, value
from neusight_onnx import analyze, compare, read_model
from neusight_onnx.checks import check
from neusight_onnx.checks.subject import Target
from neusight_onnx.errors import NotSupportedError
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.runnable import narrow_floats


@pytest.fixture
def fp8_file(tmp_path: Path) -> Path:
    path = tmp_path / "fp8.onnx"
    onnx.save(dequantized(TensorProto.FLOAT8E4M3FN)(), path)
    return path


@pytest.mark.parametrize(("gpu", "runs"), [("a100", False), ("t4", False), ("l4", True), ("h100", True)])
def test_an_engine_of_a_file_with_fp8(fp8_file: Path, gpu: str, runs: bool) -> None:
    """As for ``--precision fp8``: TensorRT builds it where the GPU has units for it alone."""
    sizes = {"batch": 8}
    if runs:
        assert analyze(fp8_file, gpu=gpu, dims=sizes, runtime="tensorrt").totals.latency_ms
        return
    with pytest.raises(NotSupportedError, match=r"the file stores FP8, for which the GPU has no units.*since Ada or"):
        analyze(fp8_file, gpu=gpu, dims=sizes, runtime="tensorrt")
    assert analyze(fp8_file, gpu=gpu, dims=sizes, runtime="onnxruntime").totals.latency_ms


def test_compare_leaves_it_out(fp8_file: Path) -> None:
    found = compare(fp8_file, gpus=["a100", "l4"], dims={"batch": 8}, runtimes=["tensorrt"])
    assert [case.gpu.name for case in found.cases] == ["l4"]
    assert any("the file stores FP8" in notice.message for notice in found.warnings)


def test_a_release_before_fp8(fp8_file: Path) -> None:
    with pytest.raises(NotSupportedError, match=r"tensorrt@8.6 in precision fp8: .*; take tensorrt@9.0 or later$"):
        analyze(fp8_file, gpu="h100", dims={"batch": 8}, runtime="tensorrt@8.6")


def test_formats_of_conversions_count(tmp_path: Path) -> None:
    """A Cast names its type; a file may hold no constant of it."""
    main = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E5M2)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT8E5M2, [4])],
    )
    path = tmp_path / "cast.onnx"
    onnx.save(helper.make_model(main, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path)
    assert narrow_floats(read_model(path).graph) == {"fp8"}


@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_products_of_fp8_need_units(fp8_file: Path, runtime: str) -> None:
    """``torch._scaled_mm`` refuses a GPU without them; ONNX Runtime widens both operands, which runs everywhere."""
    with pytest.raises(
        NotSupportedError, match=rf"runtime {runtime} on a100.*1 node multiplies float8.*--runtime onnx"
    ):
        analyze(fp8_file, gpu="a100", dims={"batch": 8}, runtime=runtime)
    found = compare(fp8_file, gpus=["a100", "l4"], dims={"batch": 8}, runtimes=[runtime, "onnxruntime"])
    cases = {(case.gpu.name, case.runtime) for case in found.cases}
    assert cases == {("l4", runtime), ("l4", "onnxruntime"), ("a100-sxm-80gb", "onnxruntime")}
    assert any("left out: runtime" in notice.message for notice in found.warnings)
    with pytest.raises(NotSupportedError, match="has no FP8 units"):
        compare(fp8_file, gpus=["a100", "t4"], dims={"batch": 8}, runtimes=[runtime])


def test_no_gpu_by_nvidia_multiplies_fnuz(tmp_path: Path) -> None:
    """``torch._scaled_mm`` takes these formats on AMD's CDNA 3 alone."""
    path = tmp_path / "fnuz.onnx"
    onnx.save(dequantized(TensorProto.FLOAT8E4M3FNUZ)(), path)
    with pytest.raises(NotSupportedError, match="the GPU has no FNUZ units"):
        analyze(path, gpu="h100", batch=2, runtime="eager")
    assert analyze(path, gpu="mi300x", batch=2, runtime="eager").totals.latency_ms


DYNAMIC = [
    node("DynamicQuantizeLinear", "x", "q s z"),
    node("MatMulInteger", "q w", "i"),
    node("Cast", "i", "f", to=1),
    node("Mul", "f s", "y"),
]


def test_no_engine_is_built_of_operators_that_multiply_what_is_quantised() -> None:
    """As of pairs with a zero point: nothing is predicted, in place of a lower bound without any product."""
    ints = [tensor("w", np.ones((4, 8), np.int8))]
    read = read_model_bytes(model(graph(DYNAMIC, [value("x", ["n", 4])], [value("y", None)], ints)).SerializeToString())
    with pytest.raises(
        NotSupportedError, match=r"no DynamicQuantizeLinear .* and 1 more of quantisation.*quantize_static"
    ):
        analyze(read, gpu="l4", batch=8, runtime="tensorrt")
    (left_out,) = compare(read, gpus=["l4"], runtimes=("tensorrt", "onnxruntime"), batch=8).warnings
    assert left_out.message.startswith("left out: runtime tensorrt: TensorRT's parser has no DynamicQuantizeLinear")
    verdict = check([Target(name="t", model=read, gpu="l4", runtime="tensorrt", batch=8)])
    assert {finding.code for finding in verdict.findings} == {"NSX506"}
    assert all("QuantFormat.QDQ" in finding.fix for finding in verdict.findings)
    assert verdict.targets[0].totals is None
