"""Sizes that a model leaves free: defaults, and what heads and weights tell."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bound_models import GROUPED, with_inputs
from models import graph, model, value
from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.graph.bindings import Bindings, bind_inputs
from neusight_onnx.graph.dimension_roles import DEFAULT_LENGTHS, is_batch_symbol
from neusight_onnx.graph.model import Array, Model
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer

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
