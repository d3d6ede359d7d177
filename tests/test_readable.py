"""What an earlier release of ONNX Runtime doesn't read of a file: said by check, and warned of by what predicts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto

from models import graph, model, node, tensor, value
from neusight_onnx import analyze, compare
from neusight_onnx.checks import Target, check
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.signatures import signature_of
from neusight_onnx.readable import unread
from neusight_onnx.releases.onnxruntime_files import FIRST_RELEASES, IR_VERSIONS, OPSETS, OPSETS_ML, newest_read
from neusight_onnx.releases.onnxruntime_forms import attributes_since, newer_forms
from neusight_onnx.report.verdict import Severity
from neusight_onnx.runtime import get_runtime

INSTALLED = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
known = pytest.mark.skipif(max(OPSETS) < INSTALLED, reason="the tables end before the release that is installed")


def written(*nodes: NodeProto, opset: int = 12, opset_ml: int = 1, ir_version: int = 7) -> ModelProto:
    last = nodes[-1].output[0]
    main = graph(nodes, [value("x", [4, 32])], [value(last, [4, 32])], [tensor("w", np.zeros((32, 1, 16), np.uint8))])
    opsets = {"": opset, "ai.onnx.ml": opset_ml, "com.microsoft": 1}
    return model(main, opsets=opsets, ir_version=ir_version)


def read(proto: ModelProto) -> Model:
    return read_model_bytes(proto.SerializeToString(), label="case.onnx")


RELU = node("Relu", "x", "y", "act")
GELU = node("QuickGelu", "x", "g", "gelu", domain="com.microsoft")
GELU_AGAIN = node("QuickGelu", "g", "h", "gelu2", domain="com.microsoft")
OWN = node("Gelu", "x", "y", "own", domain="com.microsoft")
SCALED = node("MultiHeadAttention", "x x x", "y", "heads", domain="com.microsoft", num_heads=4, scale=0.5)
ELEVEN = node("MatMulNBits", "x w w w w", "y", "few", domain="com.microsoft", K=1, N=1, bits=4, block_size=16)
NORM = node("SimplifiedLayerNormalization", "x w", "y", "norm")


@pytest.mark.parametrize(
    ("proto", "runtime", "says"),
    [
        pytest.param(written(RELU), "onnxruntime@1.4", [], id="of its time"),
        pytest.param(written(RELU, opset=13), "onnxruntime@1.5.2", ["up to 12, the file imports 13"], id="opset"),
        pytest.param(written(RELU, opset=13), "onnxruntime@1.6", [], id="opset of its release"),
        pytest.param(written(RELU, opset=24), "onnxruntime@1.23", ["up to 23, the file imports 24"], id="left out"),
        pytest.param(written(RELU, opset=24), "onnxruntime@1.24.0", [], id="two at once"),
        pytest.param(written(RELU, ir_version=10), "onnxruntime@1.17", ["up to 9, the file has 10"], id="ir"),
        pytest.param(written(RELU, ir_version=10), "onnxruntime@1.18", [], id="ir of its release"),
        pytest.param(
            written(GELU, GELU_AGAIN),
            "onnxruntime@1.13",
            ["no QuickGelu, which came with 1.14 (2 nodes)"],
            id="operator",
        ),
        pytest.param(written(GELU), "onnxruntime@1.14", [], id="operator of its release"),
        pytest.param(written(OWN), "onnxruntime@1.4", [], id="operator there from the first"),
        pytest.param(written(NORM), "onnxruntime@1.5", ["came with 1.6 (1 node)"], id="own in ONNX's domain"),
        pytest.param(
            written(SCALED),
            "onnxruntime@1.14",
            ["no attribute scale of MultiHeadAttention, which came with 1.15"],
            id="form",
        ),
        pytest.param(written(SCALED), "onnxruntime@1.15", [], id="form of its release"),
        pytest.param(written(SCALED), "onnxruntime@1.13", ["no MultiHeadAttention"], id="neither operator nor form"),
        pytest.param(
            written(ELEVEN),
            "onnxruntime@1.17",
            ["MatMulNBits with 3 to 4 inputs: one of 5 inputs came with 1.18 (1 node)"],
            id="inputs",
        ),
        pytest.param(written(ELEVEN), "onnxruntime@1.18", [], id="inputs of its release"),
        pytest.param(
            written(RELU, opset_ml=3), "onnxruntime@1.10", ["ai.onnx.ml up to 2, the file imports 3"], id="ml"
        ),
        pytest.param(written(RELU, opset_ml=3), "onnxruntime@1.11", [], id="ml of its release"),
        pytest.param(written(RELU, opset=13, ir_version=8), "onnxruntime@1.4", ["up to 12", "up to 7"], id="both"),
        pytest.param(written(RELU, opset=999), "onnxruntime", [], id="no release"),
        pytest.param(written(RELU, opset=999), "onnxruntime@1.99", [], id="newer than known"),
        pytest.param(written(RELU, opset=28), "onnxruntime@1.32", [], id="read by one that is run as an earlier one"),
        pytest.param(
            written(RELU, opset=29),
            "onnxruntime@1.32.1",
            ["onnxruntime@1.32.1 reads opsets of ai.onnx up to 28, the file imports 29"],
            id="not read by one that is run as an earlier one",
        ),
        pytest.param(written(RELU, opset=20), "onnxruntime@1", [], id="the newest of its line"),
        pytest.param(written(RELU, opset=20), "tensorrt@8.6", [], id="another runtime"),
    ],
)
def test_what_a_release_does_not_read(proto: ModelProto, runtime: str, says: list[str]) -> None:
    found = [each.message for each in unread(read(proto), get_runtime(runtime))]
    assert len(found) == len(says), found
    assert all(text in message for text, message in zip(says, found, strict=True)), found


@pytest.mark.parametrize(
    ("proto", "fix"),
    [
        (written(RELU, opset=17), "take --runtime onnxruntime@1.12 or later, or export the model with opset 12 or an"),
        (written(RELU, opset=99), "export the model with opset 12 or an older one"),
        (written(GELU), "take --runtime onnxruntime@1.14 or later, or export the model without the operator"),
    ],
    ids=["a release", "none", "operator"],
)
def test_the_fix_names_the_first_release_that_would_do(proto: ModelProto, fix: str) -> None:
    (found,) = unread(read(proto), get_runtime("onnxruntime@1.4"))
    assert found.fix.startswith(fix)


def test_check_fails_what_its_release_refuses() -> None:
    found = {}
    for runtime in ("onnxruntime@1.13", "onnxruntime@1.14", "onnxruntime"):
        verdict = check([Target(name="case", model=read(written(GELU)), gpu="v100-sxm2-16gb", runtime=runtime)])
        found[runtime] = [
            (each.severity, each.node) for each in verdict.findings if each.code == "NSX213" and not verdict.passed
        ]
    assert found == {"onnxruntime@1.13": [(Severity.ERROR, "gelu")], "onnxruntime@1.14": [], "onnxruntime": []}


def _analysed(case: Model) -> list[str]:
    return [each.code for each in analyze(case, gpu="t4", runtime="onnxruntime@1.13").warnings]


def _compared(case: Model) -> list[str]:
    return [each.code for each in compare(case, gpus=["t4", "l4"], runtimes=["onnxruntime@1.13"]).warnings]


@pytest.mark.parametrize("warned", [_analysed, _compared], ids=["analyze", "compare"])
def test_predictions_warn_once(warned: Callable[[Model], list[str]]) -> None:
    assert warned(read(written(GELU))).count("newer-than-release") == 1
    assert "newer-than-release" not in warned(read(written(RELU)))


def _refused(proto: ModelProto) -> str:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's, of several kinds
        return str(error)
    return ""


@known
def test_versions_are_those_that_the_installed_release_reads() -> None:
    opset, ir_version = newest_read(OPSETS, INSTALLED), newest_read(IR_VERSIONS, INSTALLED)
    opset_ml = newest_read(OPSETS_ML, INSTALLED)
    assert not _refused(written(RELU, opset=opset, opset_ml=opset_ml, ir_version=ir_version))
    assert "opset" in _refused(written(RELU, opset_ml=opset_ml + 1)).lower()
    assert "opset" in _refused(written(RELU, opset=opset + 1)).lower()
    assert "IR version" in _refused(written(RELU, ir_version=ir_version + 1))


@known
def test_operators_are_those_that_the_installed_release_has() -> None:
    wrong = [
        name
        for (domain, name), since in FIRST_RELEASES.items()
        if domain
        and (since <= INSTALLED) is ("is not a registered" in _refused(written(node(name, "x", "y", domain=domain))))
    ]
    assert not wrong


@known
def test_forms_are_those_that_the_installed_release_has() -> None:
    """Every attribute of the table is known, or came later; none that is known is said to come later."""
    wrong = []
    for (op_type, name), since in attributes_since().items():
        signature = signature_of("com.microsoft", op_type, 1)
        assert signature is not None, op_type
        proto = node(op_type, "x " * signature.least_inputs, "y", domain="com.microsoft", **{name: 1})
        refused = f"Unrecognized attribute: {name} for operator {op_type}" in _refused(written(proto))
        if refused is (since <= INSTALLED) or refused is not bool(
            list(newer_forms(read(written(proto)).graph.nodes[0], INSTALLED))
        ):
            wrong.append(f"{op_type}.{name}")
    assert not wrong
