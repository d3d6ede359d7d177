"""Bindings: what users write, and what it must agree with."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from bound_models import with_inputs
from models import graph, node, value
from neusight_onnx.cli.bindings import parse_bindings
from neusight_onnx.errors import BindingError
from neusight_onnx.graph.binding_text import parse_dim, parse_shape, parse_trip_count, parse_value
from neusight_onnx.graph.bindings import Bindings, bind_inputs, named_as_in
from neusight_onnx.graph.model import Model

# --- what users write -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch=8", {"batch": 8}),
        ("batch=8,seq=128", {"batch": 8, "seq": 128}),
        (" batch = 8 , seq = 128 ", {"batch": 8, "seq": 128}),
        ("past + 1=129", {"past + 1": 129}),
        ("a=b=3", {"a=b": 3}),
        ("n=2147483647", {"n": 2**31 - 1}),
        ("n=3,n=3", {"n": 3}),
    ],
    ids=str,
)
def test_dims(text: str, expected: dict[str, int]) -> None:
    assert parse_dim(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=1x3x224x224", ("x", (1, 3, 224, 224))),
        ("x:1x3x224x224", ("x", (1, 3, 224, 224))),
        ("x:0=8X512", ("x:0", (8, 512))),
        ("x=[8,512]", ("x", (8, 512))),
        ("s=scalar", ("s", ())),
        ("v=7", ("v", (7,))),
        ("a=b=7", ("a=b", (7,))),
    ],
    ids=str,
)
def test_shapes(text: str, expected: tuple[str, tuple[int, ...]]) -> None:
    assert parse_shape(text) == expected


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("n=16000", "i", 16000),
        ("n=-3", "i", -3),
        ("n=[1,3,8]", "i", [1, 3, 8]),
        ("n=[[1,2],[3,4]]", "i", [[1, 2], [3, 4]]),
        ("n=[]", "i", []),
        ("n=0.5", "f", 0.5),
        ("n=[1,2.5]", "f", [1.0, 2.5]),
        ("flag=true", "b", True),
        ("flag=True", "b", True),
    ],
    ids=str,
)
def test_values(text: str, kind: str, expected: object) -> None:
    name, array = parse_value(text)
    assert name == text.split("=")[0]
    assert array.dtype.kind == kind
    assert array.tolist() == expected
    assert not array.flags.writeable


def test_trip_counts() -> None:
    assert parse_trip_count("/decoder/Loop=5") == ("/decoder/Loop", 5)
    assert parse_trip_count("a=b=0") == ("a=b", 0)


@pytest.mark.parametrize(
    ("parse", "text", "complaint"),
    [
        (parse_dim, "batch", "write NAME=SIZE"),
        (parse_dim, "=8", "write NAME=SIZE"),
        (parse_dim, "batch=8,", "write NAME=SIZE"),
        (parse_dim, "batch=eight", "'eight' is no whole number"),
        (parse_dim, "batch=1.5", "'1.5' is no whole number"),
        (parse_dim, "batch=1,2", "'2' is no binding.*sweep and compare take several"),
        (parse_dim, "batch=1,2,4,...,64", "sweep and compare take several"),
        (parse_dim, "batch=1..8", "'1..8' is a range, give one size; sweep and compare take several"),
        (parse_dim, "seq=1,a,b=2", "'a' is no binding.*comma within a name"),
        (parse_dim, "batch=-1", "must be positive, not -1"),
        (parse_dim, "batch=-8", "must be positive, not -8"),
        (parse_dim, "batch=2147483648", "more than a dimension can have"),
        (parse_dim, "batch=" + "9" * 400, "is no whole number"),
        (parse_dim, "n=1,n=2", "'n' is given twice"),
        (parse_shape, "x", "write NAME=1x3x224x224"),
        (parse_shape, "x=", "write NAME=1x3x224x224"),
        (parse_shape, "x=1x", "'' is no whole number"),
        (parse_shape, "x=1x-1", "must be positive, not -1"),
        (parse_shape, "x=2000000x2000000x2000", "more than a tensor can have"),
        (parse_value, "n", "write INPUT=16000"),
        (parse_value, "n=abc", "neither a number nor a list"),
        (parse_value, 'n={"a":1}', "neither a number nor a list"),
        (parse_value, 'n="a"', "neither a number nor a list"),
        (parse_value, "n=[[1],[2,3]]", "rows differ"),
        (parse_value, "n=" + "[" * 100_000, "neither a number nor a list"),
        (parse_value, "n=99999999999999999999", "does not fit 64 bits"),
        (parse_value, "n=[" + "0," * 70_000 + "0]", "more than 65,536 elements"),
        (parse_trip_count, "5", "write NODE=5"),
        (parse_trip_count, "n=-1", "from 0 to"),
    ],
    ids=lambda given: given[:24] if isinstance(given, str) else given.__name__,
)
def test_what_can_not_be_read(parse: object, text: str, complaint: str) -> None:
    assert callable(parse)
    with pytest.raises(BindingError, match=complaint) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["ids=8x512", "mask=8x512"], {"ids": (8, 512), "mask": (8, 512)}),
        (["ids=8x512,state=2x1x128"], {"ids": (8, 512), "state": (2, 1, 128)}),
        (["ids=8,512, state=scalar"], {"ids": (8, 512), "state": ()}),
        (["input:0=[8,512],state:0=(2,1)"], {"input:0": (8, 512), "state:0": (2, 1)}),
        (["one,name=8x512"], {"one,name": (8, 512)}),
        (["ids:8,512"], {"ids": (8, 512)}),
    ],
    ids=str,
)
def test_several_shapes(texts: list[str], expected: dict[str, tuple[int, ...]]) -> None:
    assert parse_bindings([], texts, [], []).shapes == expected


def test_several_values_and_trip_counts() -> None:
    found = parse_bindings([], [], ["n=16,sizes=[1,3],flag=true"], ["/outer=3,/inner=4"])
    assert {name: array.tolist() for name, array in found.values.items()} == {"n": 16, "sizes": [1, 3], "flag": True}
    assert found.trip_counts == {"/outer": 3, "/inner": 4}


# --- agreement with the model -----------------------------------------------------------------------------------------


def test_bound_inputs() -> None:
    read = with_inputs(
        value("ids", ["batch", "seq"], TensorProto.INT64), value("mask", ["batch", "seq"]), value("scale", [])
    )
    got = bind_inputs(read, Bindings(dims={"batch": 8}, shapes={"mask": (8, 16)}))
    assert {name: known.shape for name, known in got.values.items()} == {"ids": (8, 16), "mask": (8, 16), "scale": ()}
    assert got.symbols == {"batch": 8, "seq": 16}
    assert got.assumptions == ()
    assert got.warnings == ()


def test_inputs_that_share_a_symbol_but_not_its_size() -> None:
    # encoder and decoder lengths exported under one name: runtimes run it, so each input keeps its shape
    read = with_inputs(
        value("ids", ["batch", "seq"], TensorProto.INT64),
        value("targets", ["batch", "seq"], TensorProto.INT64),
        value("mask", ["batch", "seq"]),
    )
    got = bind_inputs(read, Bindings(shapes={"ids": (2, 9), "targets": (2, 4)}))
    assert {name: known.shape for name, known in got.values.items()} == {
        "ids": (2, 9),
        "targets": (2, 4),
        "mask": (2, 9),
    }
    (warning,) = got.warnings
    assert warning.code == "symbol-contradiction"
    assert warning.message == (
        "--shape targets=2x4 makes 'seq' 4, but --shape ids=2x9 made it 9: each input keeps the shape that it was "
        "given, elsewhere 'seq' is 9"
    )


def test_the_value_of_an_input() -> None:
    read = with_inputs(value("n", ["k"], TensorProto.INT32))
    got = bind_inputs(read, Bindings(values={"n": np.array([1, 3, 8])}))
    data = got.values["n"].data
    assert data is not None
    assert data.dtype == np.int32
    assert data.tolist() == [1, 3, 8]
    assert got.symbols == {"k": 3}


@pytest.mark.parametrize(
    ("bindings", "complaint"),
    [
        (Bindings(dims={"bach": 8}), r"no symbol of this name; its symbols: batch, seq, k$"),
        (Bindings(dims={"sep": 8}), r"no symbol of this name; its symbols: seq, batch, k$"),
        (Bindings(dims={"batch": 0}), "must be positive"),
        (
            Bindings(shapes={"idx": (8, 16)}),
            r"no input or value of this name; its inputs: ids, pair, mask, n; its values: ",
        ),
        (Bindings(shapes={"ids": (8,)}), r"8 has 1 dimensions, the model declares 2: batchxseq"),
        (Bindings(shapes={"ids": (8, -1)}), "must be positive"),
        (Bindings(shapes={"y": (0,)}), "must be positive"),
        (Bindings(shapes={"mask": (8, 16, 3)}), r"dimension 2 is 3, the model fixes it at 4: batchxseqx4"),
        (
            Bindings(dims={"batch": 4}, shapes={"ids": (8, 16)}),
            r"--dim batch=4 makes 'batch' 4, but --shape ids=8x16 made it 8",
        ),
        (Bindings(shapes={"pair": (2, 3)}), r"^--shape pair=2x3 makes 'k' both 2 and 3; give one size$"),
        (Bindings(shapes={"ids": (2**31, 1)}), "more than a dimension can have"),
        (Bindings(dims={"batch": 2**30, "seq": 2**30}), "more than a tensor can have"),
        (Bindings(values={"m": np.array(1)}), "no input of this name"),
        (Bindings(values={"n": np.array([1, 2])}), "has 1 dimensions, the model declares 0"),
        (Bindings(values={"n": np.array(0.5)}), "does not fit the input's type int32"),
        (Bindings(values={"n": np.array(2**40)}), "does not fit the input's type int32"),
        (Bindings(trip_counts={"lop": 3}), r"no Loop or Scan node of this name; its loops: loop$"),
        (Bindings(trip_counts={"neg": 3}), "no Loop or Scan node of this name"),
    ],
    ids=str,
)
def test_what_contradicts_the_model(bindings: Bindings, complaint: str) -> None:
    body = graph(
        [node("Identity", "go", "on")],
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL)],
        [value("on", [], TensorProto.BOOL)],
    )
    read = with_inputs(
        value("ids", ["batch", "seq"], TensorProto.INT64),
        value("mask", ["batch", "seq", 4]),
        value("n", [], TensorProto.INT32),
        value("pair", ["k", "k"]),
        nodes=[helper.make_node("Loop", ["n", ""], [], name="loop", body=body), node("Neg", "ids", "y", "neg")],
    )
    with pytest.raises(BindingError, match=complaint) as caught:
        bind_inputs(read, bindings)
    assert "\n" not in str(caught.value)


def test_a_loop_may_be_bound_and_a_value_that_is_no_input_may_get_a_shape() -> None:
    body = graph(
        [node("Identity", "go", "on")],
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL)],
        [value("on", [], TensorProto.BOOL)],
    )
    loop = helper.make_node("Loop", ["n", ""], [], name="loop", body=body)
    read = with_inputs(
        value("n", [], TensorProto.INT64),
        nodes=[loop, node("MyOp", "n", "mine", domain="custom")],
    )
    got = bind_inputs(read, Bindings(trip_counts={"loop": 3}, shapes={"mine": (4, 5)}))
    assert got.values["n"].shape == ()


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({"box*": (200, 4)}, {"box_1": (200, 4), "box_2": (200, 4)}),
        ({"box_[2-9]": (7, 4)}, {"box_2": (7, 4)}),
        ({"box_?": (200, 4), "box_1": (5, 4)}, {"box_1": (5, 4), "box_2": (200, 4)}),
        ({"b[0]": (3,)}, {"b[0]": (3,)}),
    ],
    ids=["all", "some", "a name by itself comes first", "a name that looks like a pattern"],
)
def test_a_shape_for_each_name_that_a_pattern_matches(
    shapes: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]
) -> None:
    assert named_as_in(_boxes(), Bindings(shapes=shapes)).shapes == expected


def test_patterns_that_match_nothing_or_disagree() -> None:
    found = named_as_in(_boxes(), Bindings(shapes={"boxes*": (200, 4)}))
    with pytest.raises(BindingError, match=r"^--shape boxes\*: the model has no input or value of this name; "):
        bind_inputs(_boxes(), found)
    with pytest.raises(BindingError, match="patterns give 'box_1' twice, and not the same"):
        named_as_in(_boxes(), Bindings(shapes={"box_*": (200, 4), "*_1": (100, 4)}))


def _boxes() -> Model:
    names = ("box_1", "box_2", "b[0]", "b0")
    return with_inputs(value("n", []), nodes=[node("Unknown", "n", name, domain="custom") for name in names])
