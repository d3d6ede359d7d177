"""Which weights a step of training trains, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper

from graphs import inferred, split, value_info
from neusight_onnx.backward import Training, make_training
from neusight_onnx.backward.registry import RULES, differentiates
from neusight_onnx.errors import NeusightError, TrainingError
from training_graphs import BARE, FIRST, W, X, backwards, parameters, trained


def test_frozen_weights_have_none() -> None:
    graph = inferred(FIRST + "a = Relu (h)\ny = MatMul (a, w2)", X, weights={**W, "w2": (16, 2)})
    assert parameters(trained(graph)[2]) == {"w", "w2"}
    frozen = trained(graph, make_training(optimizer="none", loss="none", freeze=["w"]))[2]
    assert parameters(frozen) == {"w2"}
    assert backwards(frozen) == {"MatMul": ["gemm 1x2x16x4 A"]}, "nothing before w2 needs a gradient"


WITHOUT_GRADIENT: dict[str, tuple[str, Mapping[str, tuple[int, ...]], set[str]]] = {
    "statistics of a batch normalization": (
        FIRST + "y = BatchNormalization (h, s, b, m, v)",
        {"s": (16,), "b": (16,), "m": (16,), "v": (16,)},
        {"w", "s", "b"},
    ),
    "a number that scales": (FIRST + "y = Mul (h, c)", {"c": (1,)}, {"w"}),
    "what prepares the input": (
        "a = Sub (x, mean)\nb = Div (a, std)\n" + "y = MatMul (b, w)",
        {"mean": (8,), "std": (8,)},
        {"w"},
    ),
    "what scales the input": ("a = Mul (x, g)\ny = MatMul (a, w)", {"g": (8,)}, {"w"}),
    "but not a normalization of it": (
        "s = Mul (x, x)\nm = ReduceMean <axes=[1]> (s)\nd = Sqrt (m)\nn = Div (x, d)\n"
        "a = Mul (n, g)\ny = MatMul (a, w)",
        {"g": (8,)},
        {"g", "w"},
    ),
    "a slope of all channels that the exporter reshapes": (
        FIRST + "t = Unsqueeze (slope, first)\ny = PRelu (h, t)",
        {"slope": (1,)},
        {"slope", "w"},
    ),
    "a bias of one": (FIRST + "m = MatMul (h, w2)\ny = Add (m, b)", {"w2": (16, 1), "b": (1,)}, {"w", "w2", "b"}),
    "a bias of one in a Gemm": (FIRST + "y = Gemm (h, w2, b)", {"w2": (16, 1), "b": (1,)}, {"w", "w2", "b"}),
    "frequencies of rotary positions": (
        "f = Mul (x, freq)\ns = Sin (f)\nh = MatMul (s, w)\ny = Mul (h, s2)\n",
        {"freq": (8,), "s2": (4, 16)},
        {"w", "s2"},
    ),
    "what only makes a mask": (
        FIRST + "c = Greater (h, t)\ny = Where (c, h, zero)",
        {"t": (4, 16), "zero": (1,)},
        {"w"},
    ),
}


@pytest.mark.parametrize(("nodes", "weights", "expected"), WITHOUT_GRADIENT.values(), ids=WITHOUT_GRADIENT)
def test_what_is_trained(nodes: str, weights: Mapping[str, tuple[int, ...]], expected: set[str]) -> None:
    graph = inferred(nodes, X, weights={**W, **weights}, constants={"first": [0]})
    assert parameters(trained(graph)[2]) == expected


def test_a_bias_of_one_channel_is_trained() -> None:
    graph = inferred("y = Conv (x, w, b)", {"x": (2, 3, 8, 8)}, weights={"w": (1, 3, 1, 1), "b": (1,)})
    result = trained(graph)[2]
    assert parameters(result) == {"w", "b"}
    assert backwards(result) == {"Conv": ["conv weight", "sum 1 of 128"]}


def test_a_number_with_a_name_of_a_module_is_trained() -> None:
    """Of a temperature the exporter keeps the name; the constants that it writes have none with a dot."""
    scaled = helper.make_node("Mul", ["h", "head.temperature"], ["y"])
    graph = inferred([*split(FIRST), scaled], X, weights={**W, "head.temperature": (1,)})
    result = trained(graph)[2]
    assert parameters(result) == {"w", "head.temperature"}
    assert backwards(result)["Mul"] == ["mul [64] -> 64", "mul [64, 64] -> 64", "sum 1 of 64"]


def test_weights_without_a_gradient_are_named() -> None:
    graph = inferred("a = Mul (x, g)\nh = MatMul (a, w)\ny = Mul (h, c)", X, weights={**W, "g": (8,), "c": (1,)})
    said = trained(graph)[2].said
    assert any("128 of 137 floating-point weights are trained, 1 is a single number" in text for text in said)
    assert any("'g' is not trained" in text for text in said)


def test_statistics_that_the_exporter_stores_once_are_not_named() -> None:
    """Of equal weights it stores one and has an Identity make the others."""
    nodes = FIRST + "v = Identity (m)\ny = BatchNormalization (h, s, b, m, v)"
    graph = inferred(nodes, X, weights={**W, "s": (16,), "b": (16,), "m": (16,)})
    assert not any("not trained" in text for text in trained(graph)[2].said)


RECURRENT = "y, last, state = LSTM <hidden_size=3> (x, w, r, , , h0, c0)\n"


@pytest.mark.parametrize(
    ("reader", "before"),
    [
        pytest.param("z = Relu (y)", ["recurrent"], id="the results of all steps"),
        pytest.param("z = Relu (last)", ["fill 30", "recurrent"], id="the last state: zeros for the steps' results"),
        pytest.param("z = Relu (state)", ["fill 30", "recurrent"], id="the cell's state"),
    ],
)
def test_a_recurrent_layer_by_its_results_and_of_its_initial_states(reader: str, before: Sequence[str]) -> None:
    """5 steps of 2 sequences, 4 features and 3 hidden ones: the results are 5 x 2 x 3."""
    weights = {"w": (1, 12, 4), "r": (1, 12, 3), "h0": (1, 2, 3), "c0": (1, 2, 3)}
    result = trained(inferred(RECURRENT + reader, {"x": (5, 2, 4)}, weights=weights))[2]
    assert parameters(result) == weights.keys()
    assert backwards(result)["LSTM"] == [*before, "gemm 1x12x4x10 A", "gemm 1x12x3x10 A"]


GATES = """
    i = Slice (u, zero, three)
    rest = Slice (u, three, twelve)
    w = Concat <axis=0> (rest, i)
    w3 = Unsqueeze (w, zero)
    y, last, state = LSTM <hidden_size=3> (x, w3, r)
"""


def test_weights_are_in_the_order_that_the_module_holds_them_in() -> None:
    """An exporter that doesn't fold constants cuts them into gates: 32 launches of its own, real ones are none."""
    graph = inferred(
        GATES,
        {"x": (5, 2, 4)},
        weights={"u": (12, 4), "r": (1, 12, 3)},
        constants={"zero": [0], "three": [3], "twelve": [12]},
    )
    _, works, result = trained(graph)
    assert parameters(result) == {"u", "r"}
    assert backwards(result) == {"LSTM": ["recurrent", "gemm 1x12x4x10 A", "gemm 1x12x3x10 A"]}
    assert [work.op_type for work in works if work.kernels] == ["LSTM"]


def test_a_weight_of_which_a_part_is_left_out_is_cut() -> None:
    graph = inferred(
        "w = Slice (u, zero, twelve)\nw3 = Unsqueeze (w, zero)\ny, last, state = LSTM <hidden_size=3> (x, w3, r)",
        {"x": (5, 2, 4)},
        weights={"u": (20, 4), "r": (1, 12, 3)},
        constants={"zero": [0], "twelve": [12]},
    )
    assert backwards(trained(graph)[2])["Slice"] == ["fill 80", "copy 48"]


def test_a_state_passes_its_gradient_to_the_encoder() -> None:
    """And no loss is taken of the last states that a recurrent layer hands back beside its results."""
    nodes = (
        "a, last, state = LSTM <hidden_size=3> (x, w, r)\ny, h, c = LSTM <hidden_size=3> (x2, w2, r2, , , last, state)"
    )
    weights = {"w": (1, 12, 4), "r": (1, 12, 3), "w2": (1, 12, 4), "r2": (1, 12, 3)}
    graph = inferred(nodes, {"x": (5, 2, 4), "x2": (7, 2, 4)}, weights=weights, outputs=["y", "h", "c"])
    result = trained(graph)[2]
    assert parameters(result) == weights.keys()
    assert result.losses == ("y",)


def test_weights_that_a_body_takes_from_outside_are_not_passed_over() -> None:
    body = helper.make_graph(
        split("row = MatMul (x, w)\non = Identity (go)"),
        "body",
        [value_info("trip", [], TensorProto.INT64), value_info("go", [], TensorProto.BOOL)],
        [value_info("on", [], TensorProto.BOOL), value_info("row", [4, 16], TensorProto.FLOAT)],
    )
    loop = helper.make_node("Loop", ["count", ""], ["rows"], body=body)
    graph = inferred(
        [loop, *split("y = MatMul (rows, w2)")],
        X,
        weights={**W, "w2": (16, 2)},
        constants={"count": np.array(3, np.int64)},
    )
    result = trained(graph)[2]
    assert parameters(result) == {"w", "w2"}
    unsupported = [step.work.unsupported for step in result.steps if step.work.op_type == "Loop"]
    assert unsupported == ["in training: gradients through the body of Loop are not modelled yet"]


def test_a_loss_is_taken_of_what_nothing_else_is_made_of() -> None:
    """Not of keys and values that attention reads, packed into one tensor as exporters do, nor of a hidden state."""
    nodes = """
        k = MatMul (x, wk)
        v = MatMul (x, wv)
        s = Mul (k, v)
        y = Relu (s)
        k1 = Unsqueeze (k, zero)
        v1 = Unsqueeze (v, zero)
        present = Concat <axis=0> (k1, v1)
        reshaped = Reshape (y, flat)
    """
    graph = inferred(
        nodes,
        X,
        weights={"wk": (8, 16), "wv": (8, 16)},
        constants={"zero": [0], "flat": [-1]},
        outputs=["reshaped", "s", "present"],
    )
    assert trained(graph)[2].losses == ("reshaped",)


def test_a_block_without_gradient_is_named() -> None:
    graph = inferred(
        FIRST + "a = ArgMax <axis=1, keepdims=0> (h)\nb = Gather (table, a)\ny = MatMul (b, w2)",
        X,
        weights={**W, "table": (16, 3), "w2": (3, 2)},
    )
    result = trained(graph)[2]
    assert parameters(result) == {"table", "w2"}
    assert any("no gradient passes ArgMax" in text for text in result.said)


NOTHING: dict[str, tuple[str, Mapping[str, tuple[int, ...]], Training, str]] = {
    "no weights": ("y = Relu (x)", {}, BARE, "the results depend on no floating-point weight"),
    "what prepares the input": ("y = Mul (x, g)", {"g": (8,)}, BARE, "'g' is not trained"),
    "all frozen": (FIRST + "y = Relu (h)", W, make_training(freeze=["w*"]), "--freeze leaves no parameter"),
    "behind a choice": (FIRST + "y = ArgMax (h)", W, BARE, "no gradient reaches a parameter, for none passes ArgMax"),
    "a pattern of nothing": (
        FIRST + "y = Mul (h, c)",
        {"c": (1,), **W},
        make_training(freeze=["encoder*"]),
        "'encoder*' matches no parameter; there are 'w'",
    ),
    "the beginning of names": (
        "h = MatMul (x, layer0_w)\ny = Relu (h)",
        {"layer0_w": (8, 16)},
        make_training(freeze=["layer0"]),
        "'layer0' matches no parameter; 'layer0*' matches 1",
    ),
    "the middle of names": (
        "h = MatMul (x, m_layer0_w)\ny = Relu (h)",
        {"m_layer0_w": (8, 16)},
        make_training(freeze=["layer0"]),
        "'layer0' matches no parameter; '*layer0*' matches 1",
    ),
    "a number that is never trained": (
        FIRST + "y = Mul (h, half)",
        {"half": (1,), **W},
        make_training(freeze=["half"]),
        "'half' matches only what is never trained ('half'); there are 'w'",
    ),
}


@pytest.mark.parametrize(("nodes", "weights", "plan", "message"), NOTHING.values(), ids=NOTHING)
def test_nothing_to_train(nodes: str, weights: Mapping[str, tuple[int, ...]], plan: Training, message: str) -> None:
    with pytest.raises(TrainingError, match=re.escape(message)):
        trained(inferred(nodes, X, weights=weights), plan)


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "optimizer": ({"optimizer": "lion"}, "optimizer 'lion' is not known; choose one of adamw"),
    "loss": ({"loss": "hinge"}, "loss 'hinge' is not known"),
    "accumulation": ({"grad_accumulation": 0}, "give a number from 1"),
    "rate": ({"dropout": "1"}, "is no rate"),
    "word": ({"dropout": "some"}, "is no rate"),
    "place": ({"dropout": "head=0.1"}, "'head' is no place; there are attention, residual, embedding"),
    "place twice": ({"dropout": "residual=0.1,residual=0.2"}, "'residual' is given twice"),
    "freeze": ({"freeze": [""]}, "the pattern of frozen parameters is empty"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_plans_that_cant_be_meant(options: dict[str, object], message: str) -> None:
    with pytest.raises(NeusightError, match=message):
        make_training(**options)  # type: ignore[arg-type]  # a table of options


def test_a_second_rule_for_an_operator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gradient of ai\.onnx::Softmax has a rule already"):
        differentiates("Softmax")(RULES["", "Softmax"])
