"""Kernels of single functions in eager mode, as PyTorch 2.9 launches them on stand-ins for CUDA's libraries."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.called_attention import with_called_attention
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.kernels import KERNEL_CLASSES, Elementwise, Kernel, Movement
from neusight_onnx.lowering import lower
from neusight_onnx.lowering.autocast import autocast

HALF = TensorProto.FLOAT16


def launched(
    nodes: str,
    inputs: dict[str, tuple[int, ...]],
    runtime: str,
    *,
    types: dict[str, int] | None = None,
    constants: dict[str, list[int]] | None = None,
    weights: dict[str, tuple[int, ...]] | None = None,
    opset: int = 17,
) -> list[str]:
    """What the last node launches."""
    graph = inferred(nodes, inputs, types=types or {}, constants=constants or {}, weights=weights or {}, opset=opset)
    graph = recognise(with_called_attention(graph, runtime=runtime, autocast=False), runtime=runtime)
    return [_named(kernel) for kernel in lower(graph, runtime=runtime)[-1].kernels]


def _named(kernel: Kernel) -> str:
    if isinstance(kernel, Movement):
        return f"{kernel.operation} {kernel.read} -> {kernel.written}"
    return " ".join(kernel.operations) if isinstance(kernel, Elementwise) else KERNEL_CLASSES[type(kernel)]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((4, 8, 5), ["concat 1920 -> 1920"]), ((2, 2, 8, 5, 2), ["concat 1280 -> 1280"] * 3)],
    ids=["one kernel", "five dimensions: a copy each"],
)
def test_concatenations(shape: tuple[int, ...], expected: list[str]) -> None:
    """CatArrayBatchedCopy for tensors of up to four dimensions, else direct_copy_kernel_cuda for each."""
    nodes, shapes = "y = Concat <axis = 1> (a, b, c)", dict.fromkeys("abc", shape)
    assert launched(nodes, shapes, "eager") == expected
    assert len(launched(nodes, shapes, "compiled")) == 1


def test_concatenations_of_two_types() -> None:
    """Autocast hands a convolution's 16 bits and 32 bits to cat, which copies each: its kernel is for one type."""
    graph = inferred("h = Conv (x, w)\ny = Concat <axis = 1> (h, x)", {"x": (1, 4, 5, 5)}, weights={"w": (4, 4, 1, 1)})
    kernels = lower(autocast(graph, DataType.FLOAT16, runtime="eager"), runtime="eager")[-1].kernels
    assert [_named(kernel) for kernel in kernels] == ["concat 200 -> 400", "concat 400 -> 400"]


@pytest.mark.parametrize(
    ("pads", "eager", "other"),
    [
        ([0, 0, 0, 0], ["copy 128 -> 128"], ["copy 128 -> 128"]),
        ([0, 0, 0, 1], ["fill 0 -> 160", "copy 128 -> 128"], ["pad 128 -> 160"]),
    ],
    ids=["nothing: a clone, a copy", "a column: a fill and a copy"],
)
def test_padding(pads: list[int], eager: list[str], other: list[str]) -> None:
    for runtime, expected in (("eager", eager), ("onnxruntime", other)):
        assert launched("y = Pad (x, pads)", {"x": (8, 4)}, runtime, constants={"pads": pads}) == expected


@pytest.mark.parametrize(
    ("before", "shape", "expected"),
    [
        pytest.param("", (2, 7, 32), ["gemm"], id="rows follow each other: addmm"),
        pytest.param(
            "x = Transpose <perm = [0, 2, 1]> (f)\n", (2, 32, 7), ["gemm", "add"], id="rows lie across: the bias apart"
        ),
        pytest.param("x = Transpose <perm = [1, 0]> (f)\n", (32, 7), ["gemm"], id="two dimensions: addmm takes them"),
    ],
)
def test_linear_layers(before: str, shape: tuple[int, ...], expected: list[str]) -> None:
    nodes = before + "p = MatMul (x, w)\ny = Add (p, bias)"
    kernels = launched(nodes, {"f" if before else "x": shape}, "eager", weights={"w": (32, 48), "bias": (48,)})
    assert [kernel for kernel in kernels if not kernel.startswith("copy")] == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(64, ["attention"]), (49, ["fill 0 -> 21952", "copy 19208 -> 19208", "attention"])],
    ids=["rows of 64", "rows of 49, padded to 56"],
)
def test_masks_of_attention(tokens: int, expected: list[str]) -> None:
    """Relative positions of 4 heads in 16 bits: 4 x 49 x 49 of them lie in rows of 56."""
    shapes = dict.fromkeys("qv", (8, 4, tokens, 32)) | {"k": (8, 4, 32, tokens), "m": (1, 4, tokens, tokens)}
    nodes = "p = MatMul (q, k)\ns = Add (p, m)\nw = Softmax <axis = -1> (s)\ny = MatMul (w, v)"
    assert launched(nodes, shapes, "eager", types=dict.fromkeys(shapes, HALF)) == expected
    assert launched(nodes, shapes, "compiled", types=dict.fromkeys(shapes, HALF)) == ["attention"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param(HALF, ["fill 0 -> 21952", "copy 19208 -> 19208", "attention"], id="16 bits"),
        pytest.param(TensorProto.FLOAT, ["fill 0 -> 43904", "copy 38416 -> 38416", "attention"], id="32 bits"),
    ],
)
def test_masks_of_attention_that_the_file_calls(kind: int, expected: list[str]) -> None:
    shapes = dict.fromkeys("qkv", (8, 4, 49, 32)) | {"m": (1, 4, 49, 49)}
    assert (
        launched("y = Attention (q, k, v, m)", shapes, "eager", types=dict.fromkeys(shapes, kind), opset=23) == expected
    )
