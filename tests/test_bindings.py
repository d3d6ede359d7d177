"""Bindings: what users write, what it must agree with, and the defaults for what a model leaves free."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models import graph, model, node, tensor, value
from neusight_onnx import analyze
from neusight_onnx.cli.bindings import parse_bindings
from neusight_onnx.errors import BindingError, ModelError, NeusightError
from neusight_onnx.graph.binding_text import parse_dim, parse_shape, parse_trip_count, parse_value
from neusight_onnx.graph.bindings import Bindings, bind_inputs
from neusight_onnx.graph.dimension_roles import DEFAULT_LENGTHS, is_batch_symbol
from neusight_onnx.graph.model import Array, Model
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer
from neusight_onnx.memory.caches import cache_pairs


def with_inputs(*inputs: onnx.ValueInfoProto, nodes: list[onnx.NodeProto] | None = None) -> Model:
    return read_model_bytes(model(graph(nodes or [], inputs)).SerializeToString())


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


# --- defaults ---------------------------------------------------------------------------------------------------------

INT = TensorProto.INT64
DEFAULTS: list[tuple[str, list[onnx.ValueInfoProto], dict[str, tuple[int, ...]]]] = [
    ("tokens", [value("ids", ["batch", "seq"], INT)], {"ids": (1, 128)}),
    (
        "names-of-torch",
        [value("ids", ["s10", "s11"], INT), value("m", ["s86", "s12"], INT)],
        {"ids": (1, 128), "m": (1, 128)},
    ),
    ("names-of-tf2onnx", [value("ids", ["unk__0", "unk__1"], INT)], {"ids": (1, 128)}),
    ("image", [value("x", ["N", 3, "H", "W"])], {"x": (1, 3, 224, 224)}),
    ("image-channels-last", [value("x", [None, None, None, 3])], {"x": (1, 224, 224, 3)}),
    ("image-without-names", [value("x", [-1, None, None, None])], {"x": (1, 3, 224, 224)}),
    ("zero-is-free", [value("x", [0, 3, 0, 0])], {"x": (1, 3, 224, 224)}),
    ("audio", [value("wave", ["batch", "samples"])], {"wave": (1, 16000)}),
    ("table", [value("x", ["n_samples", 4])], {"x": (1, 4)}),
    ("vector", [value("x", ["N"])], {"x": (1,)}),
    ("time-first", [value("x", ["seq_len", 576])], {"x": (128, 576)}),
    ("state", [value("state", [2, None, 128])], {"state": (2, 1, 128)}),
    (
        "decoding-step",
        [
            value("input_ids", ["batch", "seq"], INT),
            value("attention_mask", ["batch", "total"], INT),
            value("past_0_k", ["batch", 4, "past", 32]),
        ],
        {"input_ids": (1, 1), "attention_mask": (1, 128), "past_0_k": (1, 4, 127, 32)},
    ),
    (
        "formula",
        [
            value("input_ids", ["batch", "sequence_length"], INT),
            value("attention_mask", ["batch", "past_sequence_length + sequence_length"], INT),
            value("past", [2, "batch", 12, "past_sequence_length", 64]),
        ],
        {"input_ids": (1, 1), "attention_mask": (1, 128), "past": (2, 1, 12, 127, 64)},
    ),
    (
        "buffer-for-the-cache",
        [
            value("input_ids", ["batch", "seq"], INT),
            value("past_0_k", ["batch", 4, "max_length", 32]),
        ],
        {"input_ids": (1, 1), "past_0_k": (1, 4, 128, 32)},
    ),
    (
        "buffer-of-fixed-length",
        [
            value("input_ids", ["batch", "seq"], INT),
            value("key_cache_0", ["batch", 4, 2048, 32]),
        ],
        {"input_ids": (1, 1), "key_cache_0": (1, 4, 2048, 32)},
    ),
    (
        "no-cache-but-images",
        [
            value("input_ids", ["batch", "seq"], INT),
            value("pixels", ["batch", 3, 224, 224]),
        ],
        {"input_ids": (1, 128), "pixels": (1, 3, 224, 224)},
    ),
    (
        "decoder-behind-an-encoder",
        [
            value("encoder_attention_mask", ["batch", "encoder_sequence_length"], INT),
            value("input_ids", ["batch", "decoder_sequence_length"], INT),
            value("past.0.decoder.key", ["batch", 8, "past_decoder_sequence_length", 64]),
            value("past.0.encoder.key", ["batch", 8, "encoder_sequence_length", 64]),
        ],
        {
            "encoder_attention_mask": (1, 128),
            "input_ids": (1, 1),
            "past.0.decoder.key": (1, 8, 127, 64),
            "past.0.encoder.key": (1, 8, 128, 64),
        },
    ),
    (
        "decoder-behind-an-encoder-made-up",
        [
            value("encoder_hidden_states", ["s0", "s1", 512]),
            value("input_ids", ["s2", "s3"], INT),
            value("past.self.0.keys", ["s4", 8, "s5", 64]),
            value("past.cross.0.keys", ["s6", 8, "s7", 64]),
        ],
        {
            "encoder_hidden_states": (1, 128, 512),
            "input_ids": (1, 1),
            "past.self.0.keys": (1, 8, 127, 64),
            "past.cross.0.keys": (1, 8, 128, 64),
        },
    ),
    (
        "sizes-written-as-names",
        [value("input_ids", ["s1", "s2"], INT), value("past_k", ["s1", "8", "s3", "64"])],
        {"input_ids": (1, 1), "past_k": (1, 8, 127, 64)},
    ),
    (
        "formula-of-nothing-known",
        [value("hidden", ["batch", "encoder_sequence_length / 2", 384])],
        {"hidden": (1, 128, 384)},
    ),
]


@pytest.mark.parametrize(("inputs", "expected"), [row[1:] for row in DEFAULTS], ids=[row[0] for row in DEFAULTS])
def test_defaults(inputs: list[onnx.ValueInfoProto], expected: dict[str, tuple[int, ...]]) -> None:
    got = bind_inputs(with_inputs(*inputs), Bindings())
    assert {name: known.shape for name, known in got.values.items()} == expected
    assert got.assumptions


def test_each_default_says_how_to_change_it() -> None:
    got = bind_inputs(
        with_inputs(value("ids", ["b", "seq"], INT), value("x", [None, 3, None, 8])), Bindings(dims={"b": 2})
    )
    assert got.assumptions == (
        "seq = 128 (default, the model leaves it free; --dim seq=N changes it)",
        "x = 1x3x224x8 (dimensions 0, 2 are defaults, the model leaves them free; "
        "--shape x=1x3x224x8 with other sizes changes it)",
    )


CACHE = [
    value("input_ids", ["s1", "s2"], INT),
    value("attention_mask", ["s3", "s4"], INT),
    value("past_k", ["s5", 4, "s6", 32]),
    value("past_v", ["s7", 4, "s8", 32]),
]
"""As torch exports a model with a cache: a symbol of its own for each dimension."""


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ({}, ((1, 1), (1, 128), (1, 4, 127, 32), (1, 4, 127, 32))),
        ({"s1": 8}, ((8, 1), (8, 128), (8, 4, 127, 32), (8, 4, 127, 32))),
        ({"s2": 5, "s6": 10}, ((1, 5), (1, 15), (1, 4, 10, 32), (1, 4, 10, 32))),
        ({"s4": 100}, ((1, 1), (1, 100), (1, 4, 99, 32), (1, 4, 99, 32))),
    ],
    ids=str,
)
def test_free_symbols_follow_what_is_bound(dims: dict[str, int], expected: tuple[tuple[int, ...], ...]) -> None:
    got = bind_inputs(with_inputs(*CACHE), Bindings(dims=dims))
    assert tuple(known.shape for known in got.values.values()) == expected


def test_a_mask_is_as_long_as_the_sequence() -> None:
    read = with_inputs(value("ids", ["s1", "s2"], INT), value("attention_mask", ["s3", "s4"], INT))
    assert bind_inputs(read, Bindings(dims={"s2": 40})).values["attention_mask"].shape == (1, 40)


def test_other_default_lengths() -> None:
    read = with_inputs(value("ids", ["batch", "seq"], INT), value("wave", ["batch", "time"]))
    second = bind_inputs(read, Bindings(), DEFAULT_LENGTHS[1])
    assert [known.shape for known in second.values.values()] == [(1, 64), (1, 512)]
    assert second.has_default_length
    assert second.assumptions[1] == "seq = 64 (default, the model leaves it free; --dim seq=N changes it)"
    assert not bind_inputs(read, Bindings(dims={"seq": 1, "time": 2})).has_default_length


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        pytest.param(Bindings(dims={"past": 10, "seq": 3}), {"past": 10, "seq": 3, "past + seq": 13}, id="parts"),
        pytest.param(
            Bindings(dims={"past + seq": 64, "seq": 4}), {"past": 60, "seq": 4, "past + seq": 64}, id="solved"
        ),
        pytest.param(
            Bindings(shapes={"mask": (1, 64)}, dims={"past": 60}),
            {"past": 60, "seq": 4, "past + seq": 64},
            id="solved-from-a-shape",
        ),
    ],
)
def test_formulas(bindings: Bindings, expected: dict[str, int]) -> None:
    read = with_inputs(
        value("ids", [1, "seq"], INT), value("mask", [1, "past + seq"], INT), value("past_k", [1, 2, "past", 8])
    )
    assert bind_inputs(read, bindings).symbols == expected


def test_a_formula_that_contradicts_its_parts() -> None:
    read = with_inputs(value("ids", ["seq"], INT), value("mask", ["2*seq"], INT))
    with pytest.raises(BindingError, match=r"--dim 2\*seq=5 makes '2\*seq' 5, but its formula gives 6"):
        bind_inputs(read, Bindings(dims={"2*seq": 5, "seq": 3}))


@pytest.mark.parametrize("formula", ["seq - 200", "seq // (seq - 128)"])
def test_a_formula_without_a_size(formula: str) -> None:
    read = with_inputs(value("ids", ["seq"], INT), value("mask", [formula], INT))
    with pytest.raises(BindingError, match=r"can't be had from seq = 128"):
        bind_inputs(read, Bindings())


@pytest.mark.parametrize(
    "formula", ["__import__('os')", "seq.real", "seq[0]", "seq ** seq", "seq if seq else 1", "(" * 200]
)
def test_what_is_no_formula_is_a_name(formula: str) -> None:
    got = bind_inputs(with_inputs(value("ids", ["seq", formula], INT)), Bindings(dims={formula: 7}))
    assert got.values["ids"].shape == (got.symbols["seq"], 7)


def test_an_input_without_a_shape() -> None:
    got = bind_inputs(with_inputs(value("x", None)), Bindings())
    assert got.values["x"].shape is None
    assert [notice.code for notice in got.warnings] == ["input-shape-unknown"]
    assert "--shape x=" in got.warnings[0].message
    given = bind_inputs(with_inputs(value("x", None)), Bindings(shapes={"x": (2, 3)}))
    assert given.values["x"].shape == (2, 3)
    assert given.warnings == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("batch", True),
        ("batch_size", True),
        ("N", True),
        ("B", True),
        ("decoder_batch", True),
        ("batch_sequence", False),
        ("seq", False),
        ("unk__0", False),
        ("nodes", False),
    ],
)
def test_batch_symbols(name: str, expected: bool) -> None:
    assert is_batch_symbol(name) is expected


def test_arrays_given_in_python_are_taken_as_they_are() -> None:
    given: Array = np.array([[1, 2]], np.int64)
    got = bind_inputs(with_inputs(value("x", ["a", 2], INT)), Bindings(values={"x": given}))
    assert got.values["x"].shape == (1, 2)
    assert given.flags.writeable


# --- sizes of heads ---------------------------------------------------------------------------------------------------

GROUPED = "GroupQueryAttention"
HEADS = [
    ("packed", GROUPED, "? ? past_k past_v lengths total", {"num_heads": 6, "kv_num_heads": 2}, 640, 64),
    ("apart", GROUPED, "k v past_k past_v lengths total", {"num_heads": 6, "kv_num_heads": 2}, 384, 64),
    (
        "four bits",
        GROUPED,
        "? ? past_k past_v lengths total",
        {"num_heads": 6, "kv_num_heads": 2, "kv_cache_bit_width": 4},
        640,
        32,
    ),
    ("many", "MultiHeadAttention", "k v ? ? ? past_k past_v", {"num_heads": 6}, 384, 64),
    ("indivisible", GROUPED, "? ? past_k past_v lengths total", {"num_heads": 6, "kv_num_heads": 2}, 641, 1),
]


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "by the weight"])
@pytest.mark.parametrize("row", HEADS, ids=[row[0] for row in HEADS])
def test_heads_of_a_cache_are_those_of_its_queries(
    row: tuple[str, str, str, dict[str, int], int, int], declared: bool
) -> None:
    """As ONNX Runtime GenAI's builder writes a cache, whose last dimension is a symbol."""
    _, operator, others, attributes, width, expected = row
    past = [value(name, ["batch", 2, "past", "kv_cache_dim"]) for name in ("past_k", "past_v")]
    hidden = value("hidden", ["batch", "seq", 32])
    inputs = ["q", *(name.replace("?", "") for name in others.split())]
    nodes = [
        helper.make_node("MatMul", ["hidden", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["q"]),
        helper.make_node(operator, inputs, ["y"], domain="com.microsoft", **attributes),
    ]
    weights = [
        numpy_helper.from_array(np.zeros(shape, np.float32), name)
        for name, shape in (("weight", (32, width)), ("bias", (width,)))
    ]
    rest = [value(name, [1, 1, 1]) for name in inputs if name and name != "q" and not name.startswith("past")]
    made = graph(nodes, [hidden, *rest, *past], initializers=weights)
    if declared:
        made.value_info.append(value("q", ["batch", "seq", width]))
    got = bind_inputs(read_model_bytes(model(made).SerializeToString()), Bindings())
    assert got.values["past_k"].shape == (1, 2, 127, expected)
    given = bind_inputs(read_model_bytes(model(made).SerializeToString()), Bindings(dims={"kv_cache_dim": 5}))
    assert given.values["past_k"].shape == (1, 2, 127, 5)


@pytest.mark.parametrize(("dims", "kept"), [({}, 32), ({"past": 500, "seq": 3}, 32), ({"sliding": 40}, 40)], ids=str)
def test_layers_with_a_window_keep_no_more(dims: dict[str, int], kept: int) -> None:
    """Their cache has a length of its own, which doesn't grow (ContribOperators.md, sliding_window_cache)."""
    attributes = {"num_heads": 6, "kv_num_heads": 2, "local_window_size": 32, "sliding_window_cache": 1}
    past = [value(name, [1, 2, "sliding", 64]) for name in ("past_k", "past_v")]
    inputs = ["q", "", "", "past_k", "past_v", "lengths", "total"]
    outputs = ["y", "present_k", "present_v"]
    nodes = [helper.make_node(GROUPED, inputs, outputs, domain="com.microsoft", **attributes)]
    rest = [value("q", [1, "seq", 640]), value("lengths", [1], INT), value("total", [], INT)]
    others = [value("other_past", [1, 2, "past", 64]), value("attention_mask", [1, "total_length"], INT)]
    made = graph(nodes, [*rest, *past, *others], [onnx.ValueInfoProto(name=name) for name in outputs])
    loaded = read_model_bytes(model(made, opsets={"": 17, "com.microsoft": 1}).SerializeToString())
    result = infer(loaded, Bindings(dims=dims))
    assert result.values["past_k"].shape == result.values["present_k"].shape == (1, 2, kept, 64)
    assert result.values["attention_mask"].shape == (1, dims.get("past", 127) + dims.get("seq", 1))


# --- sizes that weights tell ------------------------------------------------------------------------------------------


def encoder(rows: int, shape: list[str | int]) -> Model:
    """As Whisper's: two convolutions, the second of stride 2, then a table of positions is added."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1]),
        helper.make_node("Conv", ["c1", "w2"], ["c2"], pads=[1, 1], strides=[2]),
        helper.make_node("Transpose", ["c2"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Add", ["t", "positions"], ["y"]),
    ]
    sizes = {"w1": (4, 10, 3), "w2": (4, 4, 3), "positions": (rows, 4)}
    weights = [numpy_helper.from_array(np.zeros(size, np.float32), name) for name, size in sizes.items()]
    made = graph(nodes, [value("x", shape)], [onnx.ValueInfoProto(name="y")], initializers=weights)
    return read_model_bytes(model(made).SerializeToString())


@pytest.mark.parametrize(
    ("rows", "length", "said"), [(1500, 3000, True), (64, 128, False), (32, 64, False), (50, 100, True)]
)
def test_a_table_of_positions_tells_a_length(rows: int, length: int, said: bool) -> None:
    """Only where no default fits: 128 or 64 are taken where they do."""
    result = infer(encoder(rows, ["batch", 10, "frames"]), Bindings())
    assert result.values["x"].shape == (1, 10, length)
    assert any("fits the table of weights" in text for text in result.assumptions) is said


def test_what_the_user_bound_is_not_changed_by_a_table() -> None:
    with pytest.raises(ModelError, match="positions"):
        infer(encoder(1500, ["batch", 10, "frames"]), Bindings(dims={"frames": 100}))


def test_a_convolution_tells_its_channels() -> None:
    """Optimum leaves the bins of a spectrogram free."""
    result = infer(encoder(64, ["batch", "feature_size", "frames"]), Bindings())
    assert result.values["x"].shape == (1, 10, 128)
    assert any(text.startswith("feature_size = 10 (default: the channels of a conv") for text in result.assumptions)


# --- branches that read a cache ---------------------------------------------------------------------------------------


def merged(condition: str = "use_cache_branch") -> Model:
    """As Optimum merges a first step and those behind it: the past is joined, or the new keys are all."""
    past, key = value("past_key", ["batch", 2, "past", 8]), value("k", ["batch", 2, "seq", 8])
    flag = value("use_cache_branch", [1], TensorProto.BOOL)
    bodies = {
        "then_branch": graph(
            [node("Concat", "past_key k", "joined", axis=2)], outputs=[onnx.ValueInfoProto(name="joined")]
        ),
        "else_branch": graph([node("Identity", "k", "alone")], outputs=[onnx.ValueInfoProto(name="alone")]),
    }
    nodes = [helper.make_node("If", [condition], ["present"], **bodies)]
    if condition == "flat":
        nodes.insert(0, helper.make_node("Squeeze", ["use_cache_branch"], ["flat"]))
    made = graph(nodes, [past, key, flag], [onnx.ValueInfoProto(name="present")])
    return read_model_bytes(model(made).SerializeToString())


@pytest.mark.parametrize("condition", ["use_cache_branch", "flat"])
@pytest.mark.parametrize(
    ("bindings", "present", "taken"),
    [
        (Bindings(), (1, 2, 128, 8), 1),
        (Bindings(dims={"past": 0, "seq": 5}), (1, 2, 5, 8), 0),
        (Bindings(dims={"past": 7, "seq": 5}), (1, 2, 12, 8), 1),
        (Bindings(dims={"past": 7, "seq": 5}, values={"use_cache_branch": np.array([False])}), (1, 2, 5, 8), None),
    ],
    ids=["a step", "an empty cache", "a cache", "the user's"],
)
def test_a_past_says_which_branch_runs(
    bindings: Bindings, present: tuple[int, ...], taken: int | None, condition: str
) -> None:
    result = infer(merged(condition), bindings)
    assert (result.values["present"].shape, result.values["present"].is_bound) == (present, False)
    said = [text for text in result.assumptions if text.startswith("use_cache_branch")]
    assert [text.split(" (")[0] for text in said] == ([] if taken is None else [f"use_cache_branch = {taken}"])
    assert all(f"--value use_cache_branch=[{1 - (taken or 0)}]" in text.replace("'", "") for text in said)


def test_a_merged_decoder_keeps_a_cache() -> None:
    (pair,) = cache_pairs(infer(merged(), Bindings()))
    assert (pair.past, pair.present, pair.new_tokens) == ("past_key", "present", 1)


@pytest.mark.parametrize(
    ("op_type", "inputs"), [("If", []), ("Cast", []), ("MatMul", ["q"])], ids=["no condition", "no source", "no weight"]
)
def test_a_missing_operand_is_said_where_defaults_look_at_nodes(op_type: str, inputs: list[str]) -> None:
    """Sizes are completed before anyone has counted the nodes' inputs."""
    past = [value(name, ["batch", 2, "past", "kv_cache_dim"]) for name in ("past_k", "past_v")]
    flag, query = value("use_cache_branch", [1], TensorProto.BOOL), value("q", ["batch", "seq", 32])
    bodies = {
        "then_branch": graph([node("Identity", "past_k", "a")], outputs=[onnx.ValueInfoProto(name="a")]),
        "else_branch": graph([node("Identity", "q", "e")], outputs=[onnx.ValueInfoProto(name="e")]),
    }
    faulty = helper.make_node(op_type, inputs, ["made"], **(bodies if op_type == "If" else {}), name="faulty")
    if op_type == "Cast":
        faulty.attribute.append(helper.make_attribute("to", TensorProto.BOOL))
    reader = helper.make_node("If", ["made"], ["present"], **bodies)
    if op_type == "MatMul":
        attended = ["made", "q", "q", "past_k", "past_v", "lengths", "total"]
        reader = helper.make_node("GroupQueryAttention", attended, ["present"], domain="com.microsoft", num_heads=4)
    lengths = [value("lengths", [1], TensorProto.INT32), value("total", [], TensorProto.INT32)]
    made = graph([faulty, reader], [query, flag, *past, *lengths], [onnx.ValueInfoProto(name="present")])
    loaded = read_model_bytes(model(made, opsets={"": 17, "com.microsoft": 1}).SerializeToString())
    with pytest.raises(ModelError, match=r"faulty.*needs"):
        infer(loaded, Bindings())


# --- sizes of 0 -------------------------------------------------------------------------------------------------------


def cached() -> Model:
    """Keys of ``seq`` tokens behind those of a cache; the scores of the new tokens on all of them."""
    past = value("past_key", ["batch", 2, "past", 8])
    key, query = value("k", ["batch", 2, "seq", 8]), value("q", ["batch", 2, "seq", 8])
    nodes = [
        node("Concat", "past_key k", "present", axis=2),
        node("Transpose", "present", "turned", perm=[0, 1, 3, 2]),
        node("MatMul", "q turned", "scores"),
    ]
    return read_model_bytes(
        model(
            graph(nodes, [past, key, query], [onnx.ValueInfoProto(name=name) for name in ("present", "scores")])
        ).SerializeToString()
    )


@pytest.mark.parametrize(
    ("bindings", "present", "scores"),
    [
        (Bindings(dims={"past": 0, "seq": 5}), (1, 2, 5, 8), (1, 2, 5, 5)),
        (Bindings(shapes={"past_key": (3, 2, 0, 8)}, dims={"seq": 5}), (3, 2, 5, 8), (3, 2, 5, 5)),
        (Bindings(dims={"past": 7, "seq": 5}), (1, 2, 12, 8), (1, 2, 5, 12)),
    ],
    ids=["an empty cache", "an empty cache by its shape", "a cache"],
)
def test_a_cache_may_be_empty(bindings: Bindings, present: tuple[int, ...], scores: tuple[int, ...]) -> None:
    """A prefill: nothing was computed before."""
    result = infer(cached(), bindings)
    assert (result.values["present"].shape, result.values["scores"].shape) == (present, scores)


@pytest.mark.parametrize(
    ("bindings", "says"),
    [
        (Bindings(dims={"batch": 0}), "--dim batch=0: a size must be positive, not 0; only the length of what a cache"),
        (Bindings(dims={"seq": 0}), "--dim seq=0: a size must be positive, not 0"),
        (Bindings(shapes={"k": (1, 2, 0, 8)}), "--shape k=1x2x0x8: a size must be positive, not 0"),
        (Bindings(shapes={"past_key": (0, 2, 0, 8)}), "--shape past_key=0x2x0x8: a size must be positive, not 0"),
    ],
    ids=["batch", "sequence", "sequence by shape", "batch by shape"],
)
def test_nothing_else_may_be_empty(bindings: Bindings, says: str) -> None:
    with pytest.raises(BindingError) as caught:
        infer(cached(), bindings)
    assert str(caught.value).startswith(says)


def test_an_empty_cache_that_leaves_nothing_to_compute_is_refused() -> None:
    nodes = [node("Relu", "past_key", "y")]
    cache = value("past_key", [1, 2, "past", 8])
    lone = read_model_bytes(model(graph(nodes, [cache], [onnx.ValueInfoProto(name="y")])).SerializeToString())
    with pytest.raises(BindingError, match=r"with 'past_key' empty, the output 'y' \[1, 2, 0, 8\] has no elements"):
        infer(lone, Bindings(dims={"past": 0}))


def test_the_past_is_what_the_total_leaves() -> None:
    past = value("past_key", ["batch", 2, "past_length", 8])
    mask = value("attention_mask", ["batch", "total_length"], TensorProto.INT64)
    ids = value("input_ids", ["batch", "sequence"], TensorProto.INT64)
    got = bind_inputs(with_inputs(past, mask, ids), Bindings(dims={"total_length": 16, "sequence": 16}))
    assert got.symbols["past_length"] == 0


def test_fewer_tokens_in_all_than_new_ones_are_refused() -> None:
    past = value("past_key", ["batch", 2, "past_length", 8])
    mask = value("attention_mask", ["batch", "total_length"], TensorProto.INT64)
    ids = value("input_ids", ["batch", "sequence"], TensorProto.INT64)
    model = with_inputs(past, mask, ids)
    with pytest.raises(BindingError, match=r"total_length = 16 counts past and new tokens, but sequence = 17 are new"):
        bind_inputs(model, Bindings(dims={"total_length": 16, "sequence": 17}))
    longer = bind_inputs(model, Bindings(dims={"total_length": 16, "sequence": 1, "past_length": 3}))
    assert longer.symbols["total_length"] == 16  # a mask over a buffer that isn't full


@pytest.mark.parametrize(
    ("dims", "new"),
    [
        pytest.param({"total_length": 2048, "past_length": 0}, 2048, id="a prompt"),
        pytest.param({"total_length": 2048, "past_length": 2000}, 48, id="a part of it"),
        pytest.param({"total_length": 2048, "past_length": 4096}, 1, id="a buffer of the greatest length"),
        pytest.param({"total_length": 2048}, 1, id="decoding"),
    ],
)
def test_new_tokens_are_what_past_and_total_leave(dims: dict[str, int], new: int) -> None:
    past = value("past_key", ["batch", 2, "past_length", 8])
    mask = value("attention_mask", ["batch", "total_length"], TensorProto.INT64)
    ids = value("input_ids", ["batch", "sequence"], TensorProto.INT64)
    got = bind_inputs(with_inputs(past, mask, ids), Bindings(dims=dims))
    assert got.symbols["sequence"] == new


@pytest.mark.parametrize(
    ("symbol", "changed_by"), [("unk__12", "--batch N"), ("s77", "--batch N"), ("batch", "--dim batch=N")]
)
def test_a_default_says_an_option_that_the_next_export_has_too(symbol: str, changed_by: str) -> None:
    got = bind_inputs(with_inputs(value("x", [symbol, 3, 8, 8])), Bindings())
    assert got.assumptions == (f"{symbol} = 1 (default, the model leaves it free; {changed_by} changes it)",)


def appending(op_type: str, *others: onnx.ValueInfoProto) -> Model:
    """One operator that appends to a cache, whose length alone outputs have, if no other input does."""
    queries, keys = value("q", ["batch", "seq", 32]), [value(name, ["batch", "seq", 16]) for name in "kv"]
    caches = [value(name, ["batch", 2, "past", 8]) for name in ("pk", "pv")]
    presents = [value(name, ["batch", 2, "total", 8]) for name in ("nk", "nv")]
    ms = "com.microsoft"
    match op_type:
        case "Attention":
            nodes = [node(op_type, "q k v - pk pv", "y nk nv", q_num_heads=4, kv_num_heads=2)]
            inputs = [queries, *keys, *caches]
        case "GroupQueryAttention":
            lengths = value("lengths", ["batch"], TensorProto.INT32), value("tot", [1], TensorProto.INT32)
            given = "q k v pk pv lengths tot"
            nodes = [node(op_type, given, "y nk nv", "attention", ms, num_heads=4, kv_num_heads=2)]
            inputs = [queries, *keys, *caches, *lengths]
        case "If":
            news = [value(name, ["batch", 2, "seq", 8]) for name in "kv"]
            bodies = {
                "then_branch": [node("Concat", "pk k", "tk", axis=2), node("Concat", "pv v", "tv", axis=2)],
                "else_branch": [node("Identity", "k", "ek"), node("Identity", "v", "ev")],
            }
            branches = {
                name: graph(body, outputs=[onnx.ValueInfoProto(name=item.output[0]) for item in body])
                for name, body in bodies.items()
            }
            nodes = [helper.make_node("If", ["reads_past"], ["nk", "nv"], **branches), node("Relu", "q", "y")]
            inputs = [queries, *news, *caches, value("reads_past", [], TensorProto.BOOL)]
        case _:
            news = [value(name, ["batch", 2, "seq", 8]) for name in "kv"]
            nodes = [node("Concat", "pk k", "nk", axis=2), node("Concat", "pv v", "nv", axis=2), node("Relu", "q", "y")]
            inputs = [queries, *news, *caches]
    made = graph(nodes, [*inputs, *others], [value("y", ["batch", "seq", 32]), *presents])
    made = model(made, opsets={"": 23, ms: 1})
    return read_model_bytes(made.SerializeToString())


def test_caches_that_grow_alike_are_said_once() -> None:
    """Two layers of a decoder, whose total is an input that nobody gave."""
    inputs = [
        *(value(name, ["b", 1, width]) for name, width in (("q", 32), ("k", 16), ("v", 16))),
        *(value(name, ["b", 2, 64, 8]) for name in ("pk", "pv")),
        value("lengths", ["b"], TensorProto.INT32),
        value("tot", [1], TensorProto.INT32),
    ]
    given, ms = "k v pk pv lengths tot", "com.microsoft"
    layers = [
        node(GROUPED, f"{query} {given}", f"{result} {result}k {result}v", name, ms, num_heads=4, kv_num_heads=2)
        for name, query, result in (("first", "q", "y"), ("second", "y", "z"))
    ]
    made = model(graph(layers, inputs, [value("z", ["b", 1, 32])]), opsets={"": 23, ms: 1})
    said = [
        text for text in infer(read_model_bytes(made.SerializeToString()), Bindings()).assumptions if "grows" in text
    ]
    assert len(said) == 1
    assert "a cache of 64 grows to 65 (total_sequence_length 'tot' is an input" in said[0]


@pytest.mark.parametrize("op_type", ["Attention", "GroupQueryAttention", "Concat", "If"])
@pytest.mark.parametrize(
    ("dims", "past", "new"),
    [
        ({"total": 4096}, 4095, 1),
        ({"total": 4096, "seq": 96}, 4000, 96),
        ({"total": 4096, "past": 0}, 0, 4096),
    ],
    ids=["decoding", "a part of a prompt", "a prompt"],
)
def test_a_total_that_outputs_alone_have_is_past_and_new(
    op_type: str, dims: dict[str, int], past: int, new: int
) -> None:
    result = infer(appending(op_type), Bindings(dims=dims))
    shapes = {name: result.values[name].shape for name in ("q", "pk", "nk")}
    assert shapes == {"q": (1, new, 32), "pk": (1, 2, past, 8), "nk": (1, 2, 4096, 8)}
    assert not [notice for notice in result.warnings if notice.code == "dim-contradiction"]


@pytest.mark.parametrize(
    ("dims", "total", "past", "new"),
    [({}, 8192, 8191, 1), ({"past": 0}, 8192, 0, 8192), ({"past": 8192}, 4000, 8192, 1)],
    ids=["decoding", "a prompt", "a buffer of the greatest length"],
)
def test_a_total_that_is_a_value_is_past_and_new(dims: dict[str, int], total: int, past: int, new: int) -> None:
    bindings = Bindings(dims=dims, values={"tot": np.array([total])})
    result = infer(appending("GroupQueryAttention"), bindings)
    assert (result.values["q"].shape, result.values["pk"].shape) == ((1, new, 32), (1, 2, past, 8))


@pytest.mark.parametrize(
    ("past", "values", "said"),
    [(4096, {"tot": np.array([200])}, []), (300, {}, ["dim-contradiction"])],
    ids=["a buffer of the greatest length", "no buffer"],
)
def test_a_buffer_contradicts_no_total(past: int, values: dict[str, Array], said: list[str]) -> None:
    """ONNX Runtime GenAI binds past and present to one, and its files call its length total_sequence_length."""
    mask = value("mask", ["batch", "total"], TensorProto.INT64)
    made = appending("GroupQueryAttention", mask)
    result = infer(made, Bindings(dims={"past": past, "total": 200}, values=values))
    assert [notice.code for notice in result.warnings] == said


@pytest.mark.parametrize(
    ("dims", "total", "message"),
    [
        ({}, -3, "tot = -3 counts past and new tokens, but seq = 1 are new alone"),
        ({"past": 0, "seq": 1}, 8192, "total_sequence_length is 8192, but its cache holds 0 and 1 are new"),
        ({"past": 7, "seq": 9}, 8, "tot = 8 counts past and new tokens, but seq = 9 are new alone"),
    ],
    ids=["none", "more than there are", "fewer than the new ones"],
)
def test_a_total_that_past_and_new_tokens_are_not_is_refused(dims: dict[str, int], total: int, message: str) -> None:
    with pytest.raises(NeusightError, match=message):
        infer(appending("GroupQueryAttention"), Bindings(dims=dims, values={"tot": np.array([total])}))


def test_a_dim_that_nothing_takes_is_refused() -> None:
    with pytest.raises(
        BindingError, match=r"--dim total=10: no input has this .* makes it 13 in 'nk'; .* symbols: past"
    ):
        infer(appending("Attention"), Bindings(dims={"total": 10, "past": 11, "seq": 2}))
    x, y = value("x", ["batch", 4]), value("y", [2, "found"], TensorProto.INT64)
    found = read_model_bytes(model(graph([node("NonZero", "x", "y")], [x], [y])).SerializeToString())
    with pytest.raises(BindingError, match=r"--dim found=3: .* the data decide it, 4 at most in 'y'; --shape y="):
        infer(found, Bindings(dims={"found": 3}))
    assert infer(found, Bindings(dims={"found": 3}, shapes={"y": (2, 3)})).values["y"].shape == (2, 3)


def test_a_past_beyond_the_positions_names_them() -> None:
    """GPT-2's mask of 1,024 x 1,024 is sliced to past and new tokens."""
    weights = [
        tensor("mask", np.ones((1, 1, 1024, 1024), bool)),
        tensor("lowest", np.float32(-1e9)),
        tensor("zero", np.array([0])),
        tensor("axis", np.array([3])),
        tensor("rows", np.array([2])),
        tensor("one", np.array([1])),
    ]
    nodes = [
        node("MatMul", "q past_key", "scores"),
        node("Shape", "scores", "total", start=3),
        node("Slice", "mask zero total axis", "columns"),
        node("Slice", "columns zero one rows", "row"),
        node("Where", "row scores lowest", "y"),
    ]
    inputs = [value("q", ["batch", 2, 1, 8]), value("past_key", ["batch", 2, 8, "length"])]
    made = graph(nodes, inputs, [value("y", ["batch", 2, 1, "length"])], weights)
    read = read_model_bytes(model(made).SerializeToString())
    assert infer(read, Bindings(dims={"length": 1024})).values["y"].shape == (1, 2, 1, 1024)
    with pytest.raises(
        BindingError, match=r"--dim length=1025: the model has 1,024 positions \('mask' masks no more\)"
    ):
        infer(read, Bindings(dims={"length": 1025}))


def paged(block: int | str = 16) -> Model:
    """Sequences whose new tokens are packed, with a cache in blocks; "batch_1" counts offsets."""
    tokens = [value("q", ["tokens", 32]), value("k", ["tokens", 16]), value("v", ["tokens", 16])]
    caches = [value(name, ["blocks", block, 2, 8]) for name in ("pk", "pv")]
    i32 = TensorProto.INT32
    lengths = [
        value("offsets", ["batch_1"], i32),
        value("past", ["batch"], i32),
        value("table", ["batch", "most"], i32),
    ]
    attention = node(
        "PagedAttention",
        "q k v pk pv offsets past table",
        "y nk nv",
        "attention",
        "com.microsoft",
        num_heads=4,
        kv_num_heads=2,
    )
    made = graph([attention], [*tokens, *caches, *lengths], [value("y", ["tokens", 32])])
    return read_model_bytes(model(made, opsets={"": 17, "com.microsoft": 1}).SerializeToString())


@pytest.mark.parametrize(
    ("bindings", "sizes"),
    [
        # a new token each; room for 128 tokens in blocks of 16 each
        pytest.param(Bindings(), (1, 1, 2, 8, 8), id="one sequence"),
        pytest.param(Bindings(batch=64), (64, 64, 65, 8, 512), id="many"),
        pytest.param(Bindings(batch=4, dims={"most": 100, "tokens": 40}), (4, 40, 5, 100, 400), id="longer ones"),
        pytest.param(Bindings(batch=4, dims={"blocks": 10}), (4, 4, 5, 8, 10), id="a smaller cache"),
    ],
)
def test_sizes_of_a_paged_cache_follow_from_the_batch(bindings: Bindings, sizes: tuple[int, ...]) -> None:
    got = bind_inputs(paged(), bindings)
    assert tuple(got.symbols[name] for name in ("batch", "tokens", "batch_1", "most", "blocks")) == sizes


@pytest.mark.parametrize(
    ("dims", "sizes"),
    [
        # as ONNX Runtime GenAI writes it: blocks of 256 tokens unless the builder is told otherwise
        pytest.param({}, (256, 1, 3), id="as built by default"),
        pytest.param({"length": 16}, (16, 8, 24), id="shorter blocks, more of them"),
    ],
)
def test_blocks_of_a_free_length_have_room_for_as_many_tokens(dims: dict[str, int], sizes: tuple[int, ...]) -> None:
    got = bind_inputs(paged("length"), Bindings(batch=3, dims=dims))
    assert tuple(got.symbols[name] for name in ("length", "most", "blocks")) == sizes


def test_offsets_of_sequences_are_not_samples() -> None:
    assert analyze(paged(), gpu="h100", dims={"batch_1": 65, "batch": 64}).totals.batch_size == 64


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        pytest.param(Bindings(batch=4, dims={"batch_1": 4}), "its 4 sequences have 5 offsets, not 4", id="offsets"),
        pytest.param(Bindings(batch=4, dims={"tokens": 3}), "4 sequences have a new token each at least", id="tokens"),
        pytest.param(Bindings(batch=4, dims={"blocks": 3}), "4 sequences need a block each at least", id="blocks"),
        pytest.param(
            # 2,001 tokens take 126 blocks of 16, 301 take 19
            Bindings(batch=2, dims={"most": 126, "blocks": 144}, values={"past": np.array([2000, 300])}),
            "its sequences take 145 blocks of 16, its cache has 144",
            id="blocks of known lengths",
        ),
        pytest.param(
            Bindings(batch=2, values={"past": np.array([200, 3])}), "takes 13 blocks, its table has 8", id="table"
        ),
        pytest.param(Bindings(values={"past": np.array([-3])}), "a sequence has -3 past tokens", id="lengths"),
    ],
)
def test_a_paged_cache_that_does_not_hold_its_sequences_is_refused(bindings: Bindings, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        infer(paged(), bindings)


@pytest.mark.parametrize(("past", "said"), [(7, []), (0, ["dim-contradiction"])], ids=["left empty", "made"])
def test_what_a_branch_leaves_empty_contradicts_no_name(past: int, said: list[str]) -> None:
    """With a past an encoder's keys come back empty, whatever the file names their dims; without one they do not."""
    flag, key = value("use_cache_branch", [1], TensorProto.BOOL), value("k", ["batch", 2, "seq", 8])
    cache = value("past_key", ["batch", 2, "past", 8])
    nothing = helper.make_node("Constant", [], ["nothing"], value=numpy_helper.from_array(np.zeros((0, 2, 1, 8), "f4")))
    then = [node("Concat", "past_key k", "joined", axis=2), nothing]
    other = [node("Identity", "k", "alone"), node("Concat", "k k", "twice", axis=0)]
    bodies = {
        "then_branch": graph(then, outputs=[onnx.ValueInfoProto(name=name) for name in ("joined", "nothing")]),
        "else_branch": graph(other, outputs=[onnx.ValueInfoProto(name=name) for name in ("alone", "twice")]),
    }
    outputs = [onnx.ValueInfoProto(name="present"), value("of_encoder", ["batch", 2, "seq", 8])]
    made = graph(
        [helper.make_node("If", ["use_cache_branch"], ["present", "of_encoder"], **bodies)], [cache, key, flag]
    )
    made.output.extend(outputs)
    read = read_model_bytes(model(made).SerializeToString())
    result = infer(read, Bindings(dims={"batch": 4, "past": past, "seq": 5}))
    assert [notice.code for notice in result.warnings if notice.code == "dim-contradiction"] == said


def test_a_negative_size_names_the_default_that_it_comes_of() -> None:
    """128 samples hold no frame of 1,024: (128 - 1024) // 256 + 1 = -3."""
    nodes = [node("STFT", "signal step window", "frames", "stft")]
    signal = value("signal", ["batch", "len", 1])
    weights = [tensor("step", np.array(256)), tensor("window", np.zeros(1024, np.float32))]
    read = read_model_bytes(
        model(graph(nodes, [signal], [value("frames", None)], weights), opsets={"": 17}).SerializeToString()
    )
    with pytest.raises(
        ModelError, match=r"negative: \[1, -3, 513, 2\]; taken were len = 128 \(default; --dim len=N\)$"
    ):
        infer(read)
    with pytest.raises(ModelError, match=r"negative: \[1, -2, 513, 2\]$"):
        infer(read, Bindings(dims={"len": 256}))
    assert infer(read, Bindings(dims={"len": 4096})).values["frames"].shape == (1, 13, 513, 2)
