"""What the precision of a run is called where the file quantised its products."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

from check_cases import rounded
from neusight_onnx import analyze, compare, diff, sweep
from neusight_onnx.checks import Target, check
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.report.comparison_machine import comparison_to_json
from neusight_onnx.report.comparison_words import heads, lines, same_for_all
from neusight_onnx.report.machine import to_json
from neusight_onnx.report.markdown import to_markdown
from neusight_onnx.report.precision_words import narrow_formats, precision_text
from neusight_onnx.report.sweep_machine import sweep_to_csv, sweep_to_json
from neusight_onnx.report.sweep_words import settings


@pytest.mark.parametrize(
    ("precision", "products", "expected"),
    [
        ("fp32", ["float32"], "fp32"),
        ("tf32", ["uint8", "tfloat32"], "int8 as stored, rest tf32"),
        ("fp16", ["float8e4m3fn", "int8"], "fp8 and int8 as stored, rest fp16"),
        ("int8", ["int8"], "int8"),
    ],
)
def test_what_it_is_called(precision: str, products: list[str], expected: str) -> None:
    assert precision_text(precision, narrow_formats(products)) == expected


@pytest.mark.parametrize(("runtime", "expected"), [("tensorrt", "int8 as stored, rest fp32"), ("onnxruntime", "tf32")])
def test_a_report_says_so(runtime: str, expected: str) -> None:
    """ONNX Runtime multiplies such a file in floats on a GPU."""
    model = read_model_bytes(rounded()().SerializeToString(), label="q.onnx")
    report = analyze(model, gpu="l4", batch=2, runtime=runtime)
    assert f"inference, {expected}, {runtime}" in to_markdown(report)


@pytest.mark.parametrize(
    ("model", "precision", "expected"),
    [
        # one linear layer of 2 x 2,048 x 1,000 beside 4.1 GMAC of convolutions, which stay in bfloat16
        ("resnet50", "fp8", "fp8 in 0.1 % of products' FLOPs"),
        ("bert_base", "fp8", "fp8"),
        ("resnet50", "fp16", "fp16"),
    ],
)
def test_a_format_of_few_layers_is_told_with_its_share(model: str, precision: str, expected: str) -> None:
    path = Path(__file__).parents[1] / "examples" / f"{model}.onnx"
    report = analyze(path, gpu="h100", precision=precision, runtime="eager")
    assert f"inference, {expected}, eager" in to_markdown(report)


def test_a_format_that_only_weights_are_stored_in() -> None:
    path = Path(__file__).parents[1] / "examples" / "bert_base.onnx"
    report = analyze(path, gpu="h100", precision="fp8", runtime="onnxruntime")
    assert "inference, fp8 stored, products in bfloat16, onnxruntime" in to_markdown(report)


@pytest.mark.parametrize("precision", ["auto", "fp16"])
@pytest.mark.parametrize("runtime", ["eager", "onnxruntime"])
@pytest.mark.parametrize("has_floats", [False, True])
def test_a_file_of_integers_alone_has_no_rest(precision: str, runtime: str, has_floats: bool) -> None:
    """Scales are constants: nothing of a run is of floats, unless a node computes some."""
    nodes = [make_node("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], ["q"])]
    nodes += [make_node("DequantizeLinear", ["q", "s", "z"], ["y"])] if has_floats else []
    weights = [
        from_array(np.float32(0.1), "s"),
        from_array(np.uint8(128), "z"),
        from_array(np.zeros((32, 16, 1, 1), np.uint8), "w"),
    ]
    result = ("y", TensorProto.FLOAT) if has_floats else ("q", TensorProto.UINT8)
    inputs = [make_tensor_value_info("x", TensorProto.UINT8, ["n", 16, 56, 56])]
    outputs = [make_tensor_value_info(*result, ["n", 32, 56, 56])]
    graph = make_graph(nodes, "of_integers", inputs, outputs, weights)
    made = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    model = read_model_bytes(made.SerializeToString(), label="q.onnx")
    report = analyze(model, gpu="l4", batch=2, runtime=runtime, precision=precision)
    rest = "fp32" if precision == "auto" else "fp16"
    said = f"int8 as stored, rest {rest}" if has_floats else "int8"
    assert f"inference, {said}, {runtime}" in to_markdown(report)
    as_stored = "precision int8: as stored in the model, which has no floats for --precision to change"
    assert (as_stored in report.assumptions) is not has_floats
    compared = compare(model, gpus=["l4"], batch=2, runtimes=[runtime], precisions=["auto", precision])
    assert {case.precision for case in compared.cases} == ({"fp32", rest} if has_floats else {"int8"})


def of_operators() -> Model:
    """A quantised convolution as ONNX Runtime's QOperator format has it, a Relu in FP32 in front."""
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        make_node("QLinearConv", ["q", "s", "z", "w", "s", "z", "s", "z"], ["y"], pads=[1] * 4),
    ]
    weights = [
        from_array(np.float32(0.1), "s"),
        from_array(np.uint8(128), "z"),
        from_array(np.zeros((32, 16, 3, 3), np.uint8), "w"),
    ]
    inputs = [make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16, 56, 56])]
    outputs = [make_tensor_value_info("y", TensorProto.UINT8, ["n", 32, 56, 56])]
    graph = make_graph(nodes, "of_operators", inputs, outputs, weights)
    model = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    return read_model_bytes(model.SerializeToString(), label="q.onnx")


def test_products_on_the_host_are_told() -> None:
    """The CUDA provider has no QLinearConv: the CPU multiplies int8 while the GPU waits. All commands say so alike."""
    model, said = of_operators(), "int8 as stored, rest fp32"
    report = analyze(model, gpu="l4", batch=2)
    assert report.settings.product_formats == ("int8",)
    assert f"inference, {said}, onnxruntime" in to_markdown(report)
    assert json.loads(to_json(report))["settings"]["product_formats"] == ["int8"]
    compared = compare(model, gpus=["l4"], batch=2)
    assert same_for_all(compared)[0] == said
    assert json.loads(comparison_to_json(compared))["cases"][0]["product_formats"] == ["int8"]
    swept = sweep(model, gpu="l4", batch=[2, 4])
    assert settings(swept)[0] == said
    assert json.loads(sweep_to_json(swept))["product_formats"] == ["int8"]
    assert sweep_to_csv(swept).splitlines()[1].startswith("l4,fp32,int8,onnxruntime,")
    checked = check([Target(name="t", model=model, gpu="l4", bindings=make_bindings({"n": 2}))])
    assert checked.targets[0].product_formats == ("int8",)
    assert diff(report, report).old.product_formats == ("int8",)


def test_tables_say_so() -> None:
    """A heading of what all cases share; a column where one runtime multiplies as stored and the other in floats."""
    model = read_model_bytes(rounded()().SerializeToString(), label="q.onnx")
    quantised = compare(model, gpus=["l4", "t4"], batch=2, runtimes=["tensorrt"])
    assert same_for_all(quantised)[0] == "int8 as stored, rest fp32"
    assert ("precision", "left") not in heads(quantised)
    both = compare(model, gpus=["l4"], batch=2, runtimes=["tensorrt", "onnxruntime"])
    assert heads(both)[1] == ("precision", "left")
    assert {line[1] for line in lines(both)} == {"int8+fp32", "tf32"}
    assert settings(sweep(model, gpu="l4", batch=[2, 4], runtime="tensorrt"))[0] == "int8 as stored, rest fp32"
