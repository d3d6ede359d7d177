"""Sizes of models that keep keys and values: branches that read a cache, empty and paged ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bound_models import GROUPED, with_inputs
from models import graph, model, node, tensor, value
from neusight_onnx import analyze
from neusight_onnx.errors import BindingError, ModelError, NeusightError
from neusight_onnx.graph.bindings import Bindings, bind_inputs
from neusight_onnx.graph.model import Array, Model
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer
from neusight_onnx.memory.caches import cache_pairs

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
