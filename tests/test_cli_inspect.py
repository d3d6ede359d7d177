"""``inspect``: figures of small models worked out by hand, as JSON and for readers, and every JSON key documented."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper, parser

from neusight_onnx import inspect_model
from neusight_onnx.cli import main
from test_report_machine import SCHEMA, documented_keys, keys_of


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x (batch, seq, 64) -> MatMul with w (64, 32) -> y; its leading dims made one by shape arithmetic -> Reshape;
    NonZero (its size depends on data); a Loop of 3 rounds of x + x; an operator that nobody knows."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="same"),
            helper.make_node("Add", ["carried", "carried"], ["doubled"], name="double"),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("doubled", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="/fc/MatMul"),
        helper.make_node("Shape", ["y"], ["sizes"], name="/Shape"),
        helper.make_node("Gather", ["sizes", "last"], ["width"], name="/Gather"),
        helper.make_node("Concat", ["minus_one", "width"], ["target"], name="/Concat", axis=0),
        helper.make_node("Reshape", ["y", "target"], ["flat"], name="/Reshape"),
        helper.make_node("NonZero", ["flat"], ["where"], name="/NonZero"),
        helper.make_node("Loop", ["rounds", "", "flat"], ["grown"], name="/Loop", body=body),
        helper.make_node("Mystery", ["flat"], ["odd"], name="/Mystery", domain="my.domain"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "seq", 64])],
        [
            helper.make_tensor_value_info("grown", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("where", TensorProto.INT64, None),
            helper.make_tensor_value_info("odd", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor("w", TensorProto.FLOAT, [64, 32], [0.0] * (64 * 32)),
            helper.make_tensor("last", TensorProto.INT64, [1], [2]),
            helper.make_tensor("minus_one", TensorProto.INT64, [1], [-1]),
            helper.make_tensor("rounds", TensorProto.INT64, [], [3]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def inspected(model: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main(["inspect", str(model), "--format", "json", *more]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


VALUES = {
    "x": {"dtype": "float32", "shape": [2, 5, 64]},
    "w": {"dtype": "float32", "shape": [64, 32]},
    "last": {"dtype": "int64", "shape": [1], "value": [2]},
    "y": {"dtype": "float32", "shape": [2, 5, 32]},
    "sizes": {"dtype": "int64", "shape": [3], "value": [2, 5, 32]},
    "width": {"dtype": "int64", "shape": [1], "value": [32]},
    "target": {"dtype": "int64", "shape": [2], "value": [-1, 32]},
    "flat": {"dtype": "float32", "shape": [10, 32]},
    "where": {"dtype": "int64", "shape": [2, 320], "bound": True},
    "grown": {"dtype": "float32", "shape": [10, 32]},
    "odd": {"dtype": "float32", "shape": None},
}


@pytest.mark.parametrize("options", [["--dim", "batch=2,seq=5"], ["--shape", "x=2x5x64"]], ids=["dim", "shape"])
def test_values(options: list[str], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = inspected(model, capsys, "--values", *options)["values"]
    assert {name: values[name] for name in VALUES} == VALUES


def test_bodies(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = inspected(model, capsys, "--values", "--dim", "batch=2,seq=5")["bodies"]
    assert list(bodies) == ["/Loop.body"]
    assert bodies["/Loop.body"]["doubled"] == {"dtype": "float32", "shape": [10, 32]}


def test_without_values_there_are_none(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not {"values", "bodies"} & set(inspected(model, capsys))


def test_figures(model: Path) -> None:
    found = inspect_model(model, dims={"batch": 2, "seq": 5})
    assert found.macs == 2 * 5 * 64 * 32
    # the product, three rounds of one addition an element, and NonZero, which counts as sorting 320 elements: 9 steps
    assert found.flops == 2 * found.macs + 3 * 10 * 32 + 320 * 9
    assert found.node_count == 10
    assert found.operators["Add"] == 1
    assert found.operators["my.domain::Mystery"] == 1
    assert found.partial
    assert [node.node for node in found.unsupported] == ["/Mystery"]
    assert found.opsets == {"": 17, "my.domain": 1}


@pytest.mark.parametrize(
    ("options", "symbols"),
    [
        pytest.param(
            [],
            {"batch": {"size": 1, "source": "default"}, "seq": {"size": 128, "source": "default"}},
            id="nothing given",
        ),
        pytest.param(
            ["--dim", "seq=7"],
            {"batch": {"size": 1, "source": "default"}, "seq": {"size": 7, "source": "given"}},
            id="one given",
        ),
        pytest.param(
            ["--shape", "x=3x7x64"],
            {"batch": {"size": 3, "source": "given"}, "seq": {"size": 7, "source": "given"}},
            id="by the input's shape",
        ),
    ],
)
def test_symbols(options: list[str], symbols: dict[str, Any], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspected(model, capsys, *options)
    assert found["symbols"] == symbols
    assumed = {name for name in symbols if any(str(line).startswith(f"{name} = ") for line in found["assumptions"])}
    assert assumed == {name for name, facts in symbols.items() if facts["source"] == "default"}


def test_reader_sees_the_same(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model), "--dim", "batch=2,seq=5", "--values"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for pattern in (
        r"Nodes +10 of 10 operators",
        r"Work +at least 20.5 kMAC, 44.8 kFLOP a run",
        r"x +float32 +batch x seq x 64 +2x5x64",
        r"where +int64 +at most 2x320",
        r"Mystery: no lowering for .*Mystery\s+\(1\s+node, first /Mystery\)",
        r"Values of /Loop.body",
    ):
        assert re.search(pattern, text), pattern


def test_every_key_is_documented_and_every_documented_key_exists(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = inspected(model, capsys, "--values")
    text = SCHEMA.read_text(encoding="utf-8").partition("# The machine-readable inspection")[2]
    text = text.partition("# The other commands")[0]
    documented = documented_keys(text)
    maps = {path for path, kind in documented.items() if kind.startswith("map")} | {"model.opsets"}
    lists = {"inputs[].declared", "inputs[].shape", "outputs[].shape"}
    # this model gives no cause for a warning
    of_warnings = {"warnings[].code", "warnings[].message", "warnings[].node"}
    assert (keys_of(found, "", maps | lists) - {"warnings"}) | of_warnings == set(documented)


def test_a_python_caller_may_give_a_path_or_a_model(model: Path) -> None:
    from neusight_onnx import read_model

    assert inspect_model(str(model)) == inspect_model(read_model(str(model)))


def test_work_that_nobody_can_know_is_no_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], name="/Relu")],
        "shapeless",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    path = tmp_path / "shapeless.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"Work +unknown: see 'Not supported'$", text, re.MULTILINE)
    assert main(["analyze", str(path), "--gpu", "a100"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"Latency +unknown: nothing could be costed$", text, re.MULTILINE)
    assert "--shape x=" in text


def test_of_branches_within_branches_the_one_with_more_work_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = """<ir_version: 9, opset_import: ["" : 18]>
        g (bool c, bool d, float[8, 8] x) => (float[a, b] y) {
          [outer] y = If(c) <
            then_branch = t () => (float[a, b] p) {
              h = Relu(x)
              [inner] p = If(d) <then_branch = tt () => (float[a, b] r) { r = MatMul(h, h) },
                                 else_branch = te () => (float[a, b] s) { s = Tanh(h) }>
            },
            else_branch = e () => (float[a, b] q) { i = MatMul(x, x)  q = Neg(i) }>
        }"""
    onnx.save(parser.parse_model(text), path)
    found = inspect_model(path)
    # a product of 8 x 8 x 8 is 512 multiply-adds; then: 64 (Relu) + max(1,024, 64 x 6); else: 1,024 + 64
    assert (found.macs, found.flops) == (512, 1024 + 64)
    unknown = "its condition is not known before the run; branch 'then'"
    assert [line for line in found.assumptions if unknown in line] == [
        f"If 'inner': {unknown} (1.02 kFLOP) is counted, 'else' would be 384 FLOP; --value d=... decides it",
        f"If 'outer': {unknown} (1.09 kFLOP) is counted, 'else' would be 1.09 kFLOP; --value c=... decides it",
    ]
