"""What ONNX Runtime merges where a file leaves sizes open: graphs that wheels of onnxruntime-gpu prepare."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphs import read_graph
from neusight_onnx import analyze
from neusight_onnx.fusion.known_shapes import with_named_shapes
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.graph.shapes import infer
from neusight_onnx.runtime import get_runtime

Shape = tuple[int | str, ...]
SIZES = {"b": 2, "h": 4, "s": 8, "t": 8, "n": 2, "m": 8}
TOKENS: Shape = ("b", "s", 16)
SCORES: Shape = ("b", "h", "s", "t")
WEIGHTS = {"w": (16, 16), "v": (16,), "g": (16,), "e": (16,)}
NUMBERS = {"root": 2**0.5, "one": 1.0, "half": 0.5}

SUM = "p = MatMul(x, w)\na = Add({bias})\nq = Add(a, r)\ny = LayerNormalization(q, g, e)"
LAST, FIRST = SUM.format(bias="p, v"), SUM.format(bias="v, p")
GELU = "d = Div(a, root)\nf = Erf(d)\nu = Add(f, one)\nl = Mul(a, u)\ny = Mul(l, half)"
WIDE = "p = MatMul(x, w)\na = Add(v, p)\n" + GELU
COMPUTED = "c = Shape(z)\nx1 = Reshape(x, c)\np = MatMul(x1, w)\na = Add(v, p)\n" + GELU
PARTS = ["MatMul", "Add", "Add", "LayerNormalization"]


def merged(
    nodes: str,
    inputs: dict[str, Shape],
    release: str,
    prepared: Callable[[InferredGraph], InferredGraph] = lambda graph: graph,
) -> list[str]:
    """Operators that a release makes of a graph, without those that shapes are computed with."""
    used = {name.strip(")") for name in nodes.replace("(", " ").replace(",", " ").split()}
    model = read_graph(
        nodes,
        inputs,  # type: ignore[arg-type]  # symbols are sizes, too
        weights={name: shape for name, shape in WEIGHTS.items() if name in used},
        constants={name: value for name, value in NUMBERS.items() if name in used},
    )
    symbols = {dim for shape in inputs.values() for dim in shape if isinstance(dim, str)}
    graph = infer(model, make_bindings({name: SIZES[name] for name in symbols}, None, None, None))
    fused = fused_graph(prepared(graph), get_runtime(release))
    return [node.op_type for node in fused.graph.nodes if node.op_type not in ("Shape", "Reshape", "Relu")]


@pytest.mark.parametrize(
    ("nodes", "other", "release", "expected"),
    [
        pytest.param(LAST, TOKENS, "1.13", PARTS, id="1.13 joins none"),
        pytest.param(LAST, TOKENS, "1.14", ["MatMul", "SkipLayerNormalization"], id="1.14, the bias behind"),
        pytest.param(FIRST, TOKENS, "1.14", ["MatMul", "Add", "SkipLayerNormalization"], id="1.14, the bias in front"),
        pytest.param(FIRST, TOKENS, "1.23", ["MatMul", "Add", "SkipLayerNormalization"], id="1.23, the bias in front"),
        pytest.param(FIRST, TOKENS, "1.31", ["MatMul", "SkipLayerNormalization"], id="1.31, the bias in front"),
        pytest.param(FIRST, ("n", "m", 16), "1.31", PARTS, id="sizes of other names"),
    ],
)
def test_a_sum_joins_its_normalization_where_symbols_are_the_same(
    nodes: str, other: Shape, release: str, expected: list[str]
) -> None:
    assert merged(nodes, {"x": TOKENS, "r": other}, f"onnxruntime@{release}") == expected


@pytest.mark.parametrize(
    ("nodes", "release", "expected"),
    [
        pytest.param(WIDE, "1.11", ["MatMul", "BiasGelu"], id="1.11 knows the width"),
        pytest.param(COMPUTED, "1.14", ["MatMul", "Add", "Gelu"], id="1.14 knows none behind a computed shape"),
        pytest.param(COMPUTED, "1.17", ["MatMul", "BiasGelu"], id="1.17 does"),
    ],
)
def test_a_bias_joins_gelu_where_the_width_is_known(nodes: str, release: str, expected: list[str]) -> None:
    inputs = {"x": TOKENS, **({"z": TOKENS} if nodes is COMPUTED else {})}
    assert merged(nodes, inputs, f"onnxruntime@{release}") == expected


@pytest.mark.parametrize(
    ("scores", "mask", "joins"),
    [
        pytest.param(SCORES, SCORES, True, id="one shape"),
        pytest.param(SCORES, ("b", 1, 1, "t"), True, id="of a sequence"),
        pytest.param(SCORES, ("s", "t"), True, id="of all sequences"),
        pytest.param(SCORES, (1, 1, "s", "t"), True, id="of all sequences, 1 in front"),
        pytest.param(SCORES, (1, "h", "s", "t"), True, id="of heads"),
        pytest.param(SCORES, ("b", 1, "s", "t"), False, id="of a sequence, by queries"),
        pytest.param(SCORES, (1, "h", 1, "t"), False, id="of heads, of all queries"),
        pytest.param(SCORES, ("n", 1, 1, "t"), False, id="sizes of other names"),
        pytest.param((2, 4, 8, 8), (2, 1, 8, 8), False, id="fixed, of a sequence, by queries"),
        pytest.param((2, 4, 8, 8), (1, 4, 1, 8), False, id="fixed, of heads, of all queries"),
        pytest.param((2, 4, 8, 8), (2, 1, 1, 8), True, id="fixed, of a sequence"),
        pytest.param((2, 4, 8, 8), (4, 8, 8), True, id="fixed, of heads"),
    ],
)
def test_a_mask_joins_softmax_where_it_repeats_in_one_place(scores: Shape, mask: Shape, joins: bool) -> None:
    found = merged("k = Relu(m)\na = Add(x, k)\ny = Softmax<axis=-1>(a)", {"x": scores, "m": mask}, "onnxruntime@1.31")
    assert found == (["BiasSoftmax"] if joins else ["Add", "Softmax"])


RESHAPED = "c = Shape(z)\nx1 = Reshape(x, c)\nt = MatMul(x1, w)\np = MatMul(t, w)\n"


@pytest.mark.parametrize(
    ("nodes", "before", "converted"),
    [
        pytest.param(
            RESHAPED + "q = Add(p, t)\ny = LayerNormalization(q, g, e)",
            ["MatMul", "MatMul", "Add", "LayerNormalization"],
            ["MatMul", "MatMul", "SkipLayerNormalization"],
            id="behind one Reshape",
        ),
        pytest.param(
            RESHAPED
            + "d = Shape(k)\nx2 = Reshape(x, d)\nt2 = MatMul(x2, w)\nq = Add(p, t2)\ny = LayerNormalization(q, g, e)",
            ["MatMul", "MatMul", "MatMul", "Add", "LayerNormalization"],
            ["MatMul", "MatMul", "MatMul", "Add", "LayerNormalization"],
            id="behind two, whose sizes have names of their own",
        ),
    ],
)
def test_the_float16_converter_names_what_it_infers(nodes: str, before: list[str], converted: list[str]) -> None:
    """A layer of NVIDIA's BERT that onnxruntime.transformers.float16 converted has one sum less in 1.31 on stand-ins:
    what comes from one Reshape has the same names."""
    inputs = {name: TOKENS for name in "xzk" if name == "x" or f"({name})" in nodes}
    assert merged(nodes, inputs, "onnxruntime") == before
    assert merged(nodes, inputs, "onnxruntime", with_named_shapes) == converted


def test_shapes_are_named_where_a_file_is_converted() -> None:
    model = read_graph(
        RESHAPED + "q = Add(p, t)\ny = LayerNormalization(q, g, e)", {"x": TOKENS, "z": TOKENS}, weights=WEIGHTS
    )  # type: ignore[arg-type]  # symbols are sizes, too
    kernels = {
        precision: [kernel.op_types for kernel in analyze(model, gpu="a100", precision=precision).kernels]
        for precision in ("fp32", "fp16", "fp16-model")
    }
    joined = ("Add", "LayerNormalization")
    assert {precision: joined in found for precision, found in kernels.items()} == {
        "fp32": False,
        "fp16": True,
        "fp16-model": False,
    }
