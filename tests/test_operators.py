"""Every operator has a decision, and the list of them in docs/ is the one that the command prints."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from onnx import defs
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_state

from neusight_onnx.cli import main
from neusight_onnx.inspection import known_operators
from neusight_onnx.kernels import KERNEL_CLASSES
from neusight_onnx.report.layout import Canvas
from neusight_onnx.report.operators import operators_to_json, operators_to_terminal
from test_report_machine import SCHEMA, documented_keys, keys_of

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"
DECIDED = {(each.domain, each.op_type): each for each in known_operators()}

# Operators of com.microsoft that optimisers, quantisers, Optimum and onnxruntime-genai write into files: none of these
# may be unsupported.
WRITTEN_BY_TOOLS = """
    Attention BiasAdd BiasDropout BiasGelu BiasSplitGelu BiasSoftmax CausalConvWithState DecoderMaskedMultiHeadAttention
    DecoderMaskedSelfAttention DynamicQuantizeLSTM DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv
    FusedGemm FusedMatMul GatherBlockQuantized Gelu GemmFastGelu GroupNorm GroupQueryAttention
    LongformerAttention MatMulBnb4 MatMulInteger16 MatMulIntegerToFloat MatMulNBits MoE MultiHeadAttention NhwcConv
    NhwcMaxPool PackedAttention PackedMultiHeadAttention QAttention QEmbedLayerNormalization QGemm QLinearAdd
    QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean
    QLinearSigmoid QLinearSoftmax QLinearWhere QMoE QuickGelu RelativePositionBias RotaryEmbedding
    SkipGroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization SparseAttention
""".replace("", "").split()


def test_every_operator_that_onnx_knows_is_decided() -> None:
    """Of all domains and versions. A new release of onnx that brings an operator fails here until it has a rule."""
    known = {(schema.domain, schema.name) for schema in defs.get_all_schemas_with_history()}
    assert len(known) > 220
    assert known - set(DECIDED) == set(), "write their rules in lowering/, or their reasons in lowering/refused.py"


def test_every_operator_that_onnxruntime_knows_is_decided() -> None:
    known = {(schema.domain, schema.name) for schema in onnxruntime_state.get_all_operator_schema()}
    assert len({name for domain, name in known if domain == "com.microsoft"}) > 100
    assert known - set(DECIDED) == set(), "write their rules in lowering/, or their reasons in lowering/refused.py"


@pytest.mark.parametrize("name", WRITTEN_BY_TOOLS)
def test_what_tools_write_is_supported(name: str) -> None:
    assert DECIDED["com.microsoft", name].kernel_class != "unsupported"


def test_simplified_layer_normalization_stands_in_either_domain() -> None:
    assert {DECIDED[domain, "SimplifiedLayerNormalization"].kernel_class for domain in ("", "com.microsoft")} == {
        "normalization"
    }


def test_what_has_no_kernel_says_why() -> None:
    silent = [each for each in known_operators() if each.kernel_class in ("free", "unsupported") and not each.note]
    assert silent == []


def test_of_the_standards_operators_none_is_unsupported() -> None:
    standard = {(schema.domain, schema.name) for schema in defs.get_all_schemas_with_history()}
    refused = {name for name in standard if DECIDED[name].kernel_class == "unsupported"}
    assert refused == set()


def test_classes_are_those_of_reports() -> None:
    classes = {each.kernel_class for each in known_operators()}
    assert classes <= {*KERNEL_CLASSES.values(), "free", "depends", "unsupported"}


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operators", "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    if os.environ.get("NEUSIGHT_UPDATE_GOLDEN"):
        PAGE.write_text(printed, "utf-8")
    assert PAGE.read_text("utf-8") == printed, "NEUSIGHT_UPDATE_GOLDEN=1 writes it anew"


def test_json_is_documented_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operators", "--format", "json"]) == 0
    printed = capsys.readouterr().out
    assert printed == operators_to_json(known_operators())
    document = json.loads(printed)
    assert {"domain": "", "op_type": "Abs", "kernel_class": "elementwise", "note": ""} in document["operators"]
    assert len(document["operators"]) == len(DECIDED)
    _, _, section = SCHEMA.read_text("utf-8").partition("`neusight-onnx operators --format json` prints")
    assert keys_of(document, "", set()) == set(documented_keys(section.partition("\n`neusight-onnx")[0]))


def test_the_terminal_names_every_operator() -> None:
    text = operators_to_terminal(known_operators(), Canvas(width=80))
    assert all(len(line) <= 80 for line in text.splitlines())
    first_words = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert {each.op_type for each in known_operators()} <= first_words


def test_recognised_operators_are_not_shown() -> None:
    """They stand in no file: a domain of our own."""
    assert not any(each.domain == "neusight" for each in known_operators())
