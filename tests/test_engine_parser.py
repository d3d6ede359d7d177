"""What TensorRT's parser refuses and takes, as it answers to the standard's single-node tests."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import get_runtime

HEADS = {"q": (1, 4, 8, 16), "k": (1, 4, 8, 16), "v": (1, 4, 8, 16)}
IMAGE = {"x": (1, 3, 16, 16)}
SIZES = {"s": [1, 3, 8, 8]}
Row = tuple[str, dict[str, tuple[int, ...]], dict[str, object], int]

REFUSED: dict[str, tuple[Row, str]] = {
    "AffineGrid": (("y = AffineGrid(x, s)", {"x": (1, 2, 3)}, SIZES, TensorProto.FLOAT), "AffineGrid"),
    "an operator on bits": (("y = BitwiseAnd(x, x)", IMAGE, {}, TensorProto.INT32), "BitwiseAnd"),
    "DFT": (("y = DFT(x)", {"x": (1, 8, 1)}, {}, TensorProto.FLOAT), "DFT"),
    "another domain": (
        ("y = com.microsoft.FastGelu(x)", IMAGE, {}, TensorProto.FLOAT),
        "com.microsoft::FastGelu",
    ),
    "a type": (("y = Add(x, x)", IMAGE, {}, TensorProto.INT16), "Add of int16"),
    "text": (("y = Cast<to=8>(x)", IMAGE, {}, TensorProto.FLOAT), "Cast of string"),
    "a type in a view": (("y = Flatten(x)", IMAGE, {}, TensorProto.INT16), "Flatten of int16"),
    "arithmetic on bytes": (("y = Add(x, x)", IMAGE, {}, TensorProto.UINT8), "Add of uint8"),
    "present keys": (("y, pk, pv = Attention(q, k, v)", HEADS, {}, TensorProto.FLOAT), "past or present"),
    "past keys": (("y = Attention(q, k, v, , q, q)", HEADS, {}, TensorProto.FLOAT), "past or present"),
    "softcap": (("y = Attention<softcap=9.0>(q, k, v)", HEADS, {}, TensorProto.FLOAT), "softcap"),
    "causal and a mask": (
        ("y = Attention<is_causal=1>(q, k, v, m)", {**HEADS, "m": (8, 8)}, {}, TensorProto.FLOAT),
        "is_causal and a mask",
    ),
    "wide values": (
        ("y = Attention(q, k, v)", {**HEADS, "v": (1, 4, 8, 32)}, {}, TensorProto.FLOAT),
        "values of another width",
    ),
    "dilated pooling": (
        ("y = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x)", IMAGE, {}, TensorProto.FLOAT),
        "MaxPool with dilations",
    ),
    "places of maxima": (("y, i = MaxPool<kernel_shape=[2,2]>(x)", IMAGE, {}, TensorProto.FLOAT), "more than one"),
    "a norm of powers of 3": (
        ("y = LpPool<kernel_shape=[2,2], p=3>(x)", IMAGE, {}, TensorProto.FLOAT),
        "LpPool of a norm but 1 and 2",
    ),
    "modulo of floats": (("y = Mod(x, x)", IMAGE, {}, TensorProto.FLOAT), "Mod of floats"),
    "many of a TopK": (("y, i = TopK(x, k)", {"x": (1, 8400)}, {"k": [3841]}, TensorProto.FLOAT), "TopK of 3,841"),
    "antialias": (
        ('y = Resize<mode="linear", antialias=1>(x, , , s)', IMAGE, SIZES, TensorProto.FLOAT),
        "antialias",
    ),
    "sums in ScatterND": (
        (
            'y = ScatterND<reduction="add">(x, i, u)',
            {**IMAGE, "u": (1, 3, 16, 16)},
            {"i": [[0]]},
            TensorProto.FLOAT,
        ),
        "ScatterND with a reduction",
    ),
}

TAKEN: dict[str, Row] = {
    "LpPool": ("y = LpPool<kernel_shape=[2,2]>(x)", IMAGE, {}, TensorProto.FLOAT),
    "GlobalLpPool": ("y = GlobalLpPool(x)", IMAGE, {}, TensorProto.FLOAT),
    "LpNormalization": ("y = LpNormalization(x)", IMAGE, {}, TensorProto.FLOAT),
    "RandomNormalLike": ("y = RandomNormalLike(x)", IMAGE, {}, TensorProto.FLOAT),
    "causal attention": ("y = Attention<is_causal=1>(q, k, v)", HEADS, {}, TensorProto.FLOAT),
    "masked attention": ("y = Attention(q, k, v, m)", {**HEADS, "m": (8, 8)}, {}, TensorProto.FLOAT),
    "an image of bytes": ("y = Cast<to=1>(x)", IMAGE, {}, TensorProto.UINT8),
    "arithmetic on constant bytes": (
        "b = Add(i, i)\nf = Cast<to=1>(b)\ny = Add(x, f)",
        IMAGE,
        {"i": np.ones((16, 16), np.uint8)},
        TensorProto.FLOAT,
    ),
    "resizing": ('y = Resize<mode="cubic">(x, , , s)', IMAGE, SIZES, TensorProto.FLOAT),
}


def unsupported(row: Row) -> list[str]:
    nodes, inputs, constants, dtype = row
    types = dict.fromkeys(inputs, dtype)
    graph = inferred(nodes, inputs, constants=constants, types=types, opset=23)
    works = works_of(graph, get_runtime("tensorrt"))
    return [work.unsupported for work in works if work.unsupported is not None]


@pytest.mark.parametrize(("row", "lacking"), REFUSED.values(), ids=REFUSED)
def test_what_the_parser_lacks_is_refused(row: Row, lacking: str) -> None:
    (reason,) = unsupported(row)
    assert reason.startswith("TensorRT's parser has no ")
    assert lacking in reason


WITHOUT_KERNELS = {
    "of a constant": ("w = BitwiseNot(i)\nf = Cast<to=1>(w)\ny = Add(x, f)", np.ones((16, 16), np.int32), "BitwiseNot"),
    "of sizes": ("s = Shape(x)\nt = BitwiseAnd(s, i)\ny = Reshape(x, t)", [31, 31, 31, 31], "BitwiseAnd"),
    "a type of a constant": ("f = Cast<to=1>(i)\ny = Add(x, f)", np.ones((16, 16), np.int16), "Cast of int16"),
}


@pytest.mark.parametrize(("nodes", "held", "lacking"), WITHOUT_KERNELS.values(), ids=WITHOUT_KERNELS)
def test_what_launches_nothing_is_refused_too(nodes: str, held: object, lacking: str) -> None:
    (reason,) = unsupported((nodes, IMAGE, {"i": held}, TensorProto.FLOAT))
    assert lacking in reason


@pytest.mark.parametrize("row", TAKEN.values(), ids=TAKEN)
def test_what_the_parser_has_is_taken(row: Row) -> None:
    assert unsupported(row) == []


DYNAMIC = {
    "MatMulInteger": (
        """
        q, s, z = DynamicQuantizeLinear(x)
        i = MatMulInteger(q, w, z)
        f = Cast<to=1>(i)
        y = Mul(f, s)
        """,
        (4, 64),
        (64, 8),
    ),
    "ConvInteger": (
        """
        q, s, z = DynamicQuantizeLinear(x)
        i = ConvInteger(q, w, z)
        f = Cast<to=1>(i)
        y = Mul(f, s)
        """,
        (1, 4, 8, 8),
        (8, 4, 3, 3),
    ),
}


@pytest.mark.parametrize("operator", DYNAMIC)
def test_merging_hides_no_refused_operator(operator: str) -> None:
    """The parser reads the file's nodes: that a product takes the Cast and the Mul behind it along changes nothing."""
    nodes, x, w = DYNAMIC[operator]
    graph = inferred(nodes, {"x": x}, constants={"w": np.ones(w, np.int8)}, opset=17)
    runtime = get_runtime("tensorrt")
    works = works_of(fused_graph(graph, runtime), runtime, parsed=graph)
    reasons = [work.unsupported for work in works if work.unsupported is not None]
    assert any(f"no {operator}" in reason for reason in reasons)
    assert any("no DynamicQuantizeLinear" in reason for reason in reasons)
    assert not any(work.kernels for work in works if any(op_type == operator for _, op_type in work.origins))
    found = {work.at_fault[1] for work in works if work.unsupported is not None}
    assert found == {"DynamicQuantizeLinear", operator}  # no name of what was merged, which no list has
