"""Memory of a step of training, in bytes worked out by hand (float32, 4 bytes an element)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from graphs import inferred
from neusight_onnx.backward import make_training
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise
from neusight_onnx.lowering.precision import as_precision
from neusight_onnx.memory import run_memory
from training_graphs import FIRST, TWO_LAYERS, W, X, trained

LAYER = FIRST + "y = Relu (h)"

NET = (
    "c = Conv <pads=[1,1,1,1]> (x, w)\nn = BatchNormalization (c, s, b, m, v)\nr = Relu (n)\ny = GlobalAveragePool (r)"
)
MODELS: dict[str, tuple[str, tuple[int, ...], Mapping[str, tuple[int, ...]], int, int]] = {
    # nodes, input, weights, trained parameters, bytes kept of the run forward (inputs left out)
    "a layer": (LAYER, (4, 8), W, 128, 64 * 4),  # relu's result
    "two layers": (
        TWO_LAYERS,
        (4, 8),
        {"w": (16, 8), "b": (16,), "w2": (2, 16), "b2": (2,)},
        128 + 16 + 32 + 2,
        64 * 4,  # relu's result is the second layer's operand, too
    ),
    "a convolution": (
        NET,
        (2, 3, 8, 8),
        {"w": (4, 3, 3, 3), "s": (4,), "b": (4,), "m": (4,), "v": (4,)},
        108 + 4 + 4,
        2 * 512 * 4 + 2 * 4 * 4,  # the convolution's result, relu's, mean and deviation of four channels
    ),
}

STATES = {"none": 0, "sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "adamw-fused": 2}


@pytest.mark.parametrize("optimizer", STATES)
@pytest.mark.parametrize(("nodes", "shape", "weights", "count", "kept"), MODELS.values(), ids=MODELS)
def test_bytes_by_hand(
    optimizer: str, nodes: str, shape: tuple[int, ...], weights: Mapping[str, tuple[int, ...]], count: int, kept: int
) -> None:
    plan = make_training(optimizer=optimizer, loss="none")
    form, works, result = trained(inferred(nodes, {"x": shape}, weights=weights), plan)
    assert result.parameter_count == count
    assert result.optimizer.state_bytes == STATES[optimizer] * 4 * count
    assert result.optimizer.master_bytes == 0
    memory = run_memory(form, works, "eager", trained=result)
    assert sum(tensor.byte_count for tensor in memory.saved) == kept
    storages = zip(memory.found.kinds, memory.found.sizes, strict=True)
    sizes = [(kind, size) for kind, size in storages if kind in ("gradient", "optimizer")]
    assert sum(size for kind, size in sizes if kind == "gradient") == 4 * count
    assert sum(size for kind, size in sizes if kind == "optimizer") == STATES[optimizer] * 4 * count


def test_mixed_precision_has_master_weights() -> None:
    """float16 weights and gradients; in float32 a copy of the weights and both states: 2 + 2 + 4 + 8 bytes each."""
    graph = as_precision(inferred(LAYER, X, weights=W), DataType.FLOAT16)
    result = trained(graph, make_training(optimizer="adam", loss="none"))[2]
    assert [parameter.spec.byte_count for parameter in result.parameters] == [2 * 128]
    assert result.optimizer.master_bytes == 4 * 128
    assert result.optimizer.state_bytes == 8 * 128


def test_the_peak_of_two_layers() -> None:
    """By hand. Alive at the worst moment, the second layer's gradients being made: x (4 x 8), relu's result (4 x 16)
    that is kept, y (4 x 2) that the caller holds, its gradient, and those that are made: a's (4 x 16), w2's, b2's."""
    graph = inferred(TWO_LAYERS, X, weights={"w": (16, 8), "b": (16,), "w2": (2, 16), "b2": (2,)})
    form, works, result = trained(graph)
    peak = run_memory(form, works, "eager", trained=result).found
    second = 4 * (32 + 64 + 8 + 8 + 64 + 32 + 2)
    # relu's: h's gradient beside a's; y's has gone
    relu = 4 * (32 + 64 + 8 + 64 + 64 + 32 + 2)
    # the first layer's: h's gradient, w's and b's beside; a and its gradient have gone
    first = 4 * (32 + 8 + 64 + 32 + 2 + 128 + 16)
    assert peak.peak_bytes == max(second, relu, first)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param("ReduceMean <axes=[2,3], keepdims=0> (c)", (2, 8, 1, 1), id="gone"),
        pytest.param("ReduceMean <axes=[2,3]> (c)", (2, 8, 1, 1), id="kept"),
        pytest.param("ReduceL1 <axes=[0,3], keepdims=0> (c)", (1, 8, 8, 1), id="equal sizes on both sides"),
    ],
)
def test_a_mean_repeats_its_gradient_along_what_was_reduced(node: str, expected: tuple[int, ...]) -> None:
    """x (2, 3, 8, 8) -> 8 filters of 3x3: sizes alone don't tell which axis of a (2, 8, 8, 8) is gone."""
    graph = inferred(f"c = Conv <pads=[1,1,1,1]> (x, w)\ny = {node}", {"x": (2, 3, 8, 8)}, weights={"w": (8, 3, 3, 3)})
    result = trained(graph)[2]
    found = {
        kernel.inputs[-1].shape
        for work in result.works
        if work.phase == "backward" and work.op_type.startswith("Reduce")
        for kernel in work.kernels
        if isinstance(kernel, Elementwise)
    }
    assert found - {(2, 8, 8, 8)} == {expected}  # but the whole input
