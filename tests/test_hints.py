"""What is said where a shape isn't known, or where a file or an option is odd: the cause, and what would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.graph.binding_text import parse_dim
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model, read_model_bytes
from neusight_onnx.inspection import Inspection, inspect_model


def model(text: str, opset: int = 21) -> Model:
    header = f'<ir_version: 10, opset_import: ["" : {opset}, "acme" : 1]>\n'
    return read_model_bytes(parser.parse_model(header + text).SerializeToString())


def said(result: Inspection) -> list[str]:
    return [
        *(f"{item.op_type}: {item.reason}" for item in result.unsupported),
        *result.assumptions,
        *(notice.message for notice in result.warnings),
    ]


@dataclass(frozen=True)
class Case:
    """``says``: the beginning and the end of a sentence of the inspection. ``shapes``: of values, None: not known."""

    text: str
    says: tuple[str, str]
    shapes: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    bound: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21


UNKNOWN = """g (float[B, 8] x) => (float[M, N] c)
  <float[B, Q, 8] a, float[8, 1] w = {0, 0, 0, 0, 0, 0, 0, 0}> { a = acme.Foo(x)  c = MatMul(a, w) }"""
IF = """g (bool c, float[2] x) => (float[n] y) {
    y = If(c) <then_branch = t () => (float[n] o) { o = acme.Foo(x) },
                else_branch = e () => (float[2] p) { p = Relu(x) }>
    z = Relu(y)
}"""
CASES = {
    "a Reshape to an input": Case(
        "g (float[2, 12] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }",
        ("Reshape 'y': its size is read from the input 's', at most [24, 24]", "; --value s=... gives it"),
        {"y": (24, 24)},
    ),
    "a Pad by an input: how much is open": Case(
        "g (float[50] v, int64[2] p) => (float[a] z) { y = Pad(v, p)  z = Relu(y) }",
        ("Pad: its shape is not known: it is read from the input 'p'", "; --value p=... gives it"),
        {"y": None, "z": None},
    ),
    "a Pad by an input that is given": Case(
        "g (float[50] v, int64[2] p) => (float[a] z) { y = Pad(v, p)  z = Relu(y) }",
        ("", ""),
        {"y": (53,), "z": (53,)},
        {"values": {"p": np.array([1, 2])}},
    ),
    "a symbol that only an unknown operator has": Case(
        UNKNOWN, ("Q = 128 (default, only what Foo 'Foo_0' gives has it", "; --dim Q=N changes it)"), {"c": (1, 128, 1)}
    ),
    "that symbol, given": Case(
        UNKNOWN, ("Foo: no lowering for acme::Foo", ""), {"a": (2, 7, 8), "c": (2, 7, 1)}, {"dims": {"B": 2, "Q": 7}}
    ),
    "nothing says what an unknown operator gives": Case(
        "g (float[2, 8] x) => (float[M, N] c) { a = acme.Foo(x)  c = Relu(a) }",
        ("Foo 'Foo_0': what shape an unknown operator gives is not known; --shape a=AxB gives it", "is counted"),
        {"a": None, "c": None},
    ),
    "nothing says what several of them give": Case(
        "g (float[2, 8] x) => (float[M, N] d) { a = acme.Foo(x)  b = acme.Foo(x)  d = Add(a, b) }",
        (
            "Foo 'Foo_0' and 1 more: what shape an unknown operator gives is not known; --shape a=AxB",
            "each needs its own",
        ),
        {"a": None, "b": None},
    ),
    "a branch that is not known limits nothing": Case(
        IF,
        ("If 'y': only one branch's shape is known, [2]; the cost behind it is that of this one, --shape y=2", "it"),
        {"y": None, "z": None},
    ),
    "what an unknown branch costs": Case(
        IF,
        (
            "If 'If_0': its condition is not known",
            "'then' would be at least 0 FLOP, for not all of it is supported; --value c=... decides it",
        ),
    ),
    "a dimension that may be 1 may be dropped": Case(
        """g (float[4] x, bool[1] b) => (float[a] y) { c = Compress<axis = 0>(x, b)  y = Squeeze(c) }""",
        ("Squeeze 'y': its rank depends on data", "is kept"),
        {"y": (1,)},
    ),
    "a declared 0 that the model needs": Case(
        "g (float[0, 5] e) => (float[5, 0] y) <int64[2] t = {5, 0}> { y = Reshape<allowzero = 1>(e, t) }",
        ("a dimension that an input declares as 0 is taken as 0, for the model does not accept another size: ", ""),
        {"e": (0, 5), "y": (5, 0)},
    ),
    "a declared 0 that is free": Case(
        "g (float[0, 5] e) => (float[n, 5] y) { y = Relu(e) }",
        (
            "e = 1x5 (dimension 0 is a default, the model leaves it free; it declares [0, 5], where 0 is read as free",
            "it)",
        ),
        {"y": (1, 5)},
    ),
    "a declared 0 that the user confirms": Case(
        "g (float[0, 5] e) => (float[n, 5] y) { y = Relu(e) }",
        ("", ""),
        {"y": (0, 5)},
        {"shapes": {"e": (0, 5)}},
    ),
    "an operator that the opset has not": Case(
        "g (float[2] x) => (float[2] y) { y = Gelu(x) }",
        ("Gelu came with opset 20, the model imports 13 ('Gelu_0' is the first)", "runtimes refuse it"),
        opset=13,
    ),
    "an opset below the first": Case(
        "g (float[2] x) => (float[2] y) { y = Relu(x) }",
        ("the model imports an opset of ai.onnx that is below 1", ""),
        {"y": (2,)},
        opset=0,
    ),
    "the user gives a value the shape that it has": Case(
        "g (float[2] x) => (float[2] y) { z = Relu(x)  y = Relu(z) }", ("", ""), {"z": (2,)}, {"shapes": {"z": (2,)}}
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_said(case: Case) -> None:
    result = inspect_model(model(case.text, case.opset), **case.bound)
    begin, end = case.says
    sentences = said(result)
    assert not begin or any(text.startswith(begin) and text.endswith(end) for text in sentences), sentences
    for name, shape in case.shapes.items():
        assert result.values[name].shape == shape, name


REFUSED = {
    "a value has another shape": (
        "g (float[2] x) => (float[2] y) { z = Relu(x)  y = Relu(z) }",
        {"shapes": {"z": (9, 9)}},
        r"--shape z=9x9: its shape follows from the inputs, it is \[2\]",
    ),
    "a value that there is not": (
        "g (float[2] x) => (float[2] y) { mid = Relu(x)  y = Relu(mid) }",
        {"shapes": {"mit": (2,)}},
        "--shape mit: the model has no input or value of this name; its inputs: x; its values: mid, y$",
    ),
    "a symbol that there is not": (UNKNOWN, {"dims": {"Z": 1}}, "no symbol of this name; its symbols: B, Q$"),
    "an equation that gives what it has not": (
        'g (float[3, 3] x) => (float[a, b] y) { y = Einsum<equation = "ab,bc->ad">(x, x) }',
        {},
        "the output of its equation ab,bc->ad has 'd', which no operand has",
    ),
}


@pytest.mark.parametrize(("text", "bound", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(text: str, bound: dict[str, Any], message: str) -> None:
    with pytest.raises((BindingError, ModelError), match=message):
        inspect_model(model(text), **bound)


def test_a_comma_in_a_symbol() -> None:
    with pytest.raises(BindingError, match=r"and \\x2c for a comma within a name"):
        parse_dim("a,b=2")
    assert parse_dim(r"a\x2cb=2") == {r"a\x2cb": 2}


def test_a_node_that_is_renamed_is_named() -> None:
    notices = model("g (float[2] x) => (float[2] y) { [n] z = Relu(x)  [n] y = Relu(z) }").warnings
    (notice,) = notices
    assert notice.message == (
        "1 node bears a name that another has, 'n' first; a number was added to tell them apart: it is called 'n_1'"
    )


def test_external_data_that_is_a_folder(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["w"], ["y"])], "g", [], [onnx.ValueInfoProto(name="y")], [tensor]
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    (tmp_path / "weights").mkdir()
    messages = [notice.message for notice in read_model(path).warnings]
    assert messages == [
        "external data 'weights' is a folder, no file (1 tensor, 16 bytes); analysed from their types and shapes"
    ]
