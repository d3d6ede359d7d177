"""What the precision of a run is called where the file quantised its products."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_cases import rounded
from neusight_onnx import analyze, compare, sweep
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.report.comparison_words import heads, lines, same_for_all
from neusight_onnx.report.markdown import to_markdown
from neusight_onnx.report.precision_words import precision_text, stored_formats
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
    assert precision_text(precision, stored_formats(products)) == expected


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
