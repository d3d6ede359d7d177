"""Our rules for ONNX Runtime against its own optimiser, which runs here without a GPU (the CPU provider's passes)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from benchmarks.fusion_ort import compare, optimised
from graphs import inferred, split, value_info
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.preparation import infer_shapes
from neusight_onnx.runtime import RUNTIMES
from test_patterns import LAYER, MATCHING, NUMBERS, RMS_DIVIDED, WEIGHTS

pytestmark = pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 31),
    reason=f"our rules are those of ONNX Runtime 1.31 on, here is {onnxruntime.__version__}, which optimises otherwise",
)

INTEGERS: dict[str, object] = {
    "groups": [0, 4, -1],
    "back": [2, 8, 4, 4],
    "last": [-1],
    "n0": [0],
    "n1": [1],
    "n3": [3],
    "i1": np.int64(1),
    "pads": [0, 1, 0, 2, 1, 0],
    "twice": [1, 2, 1],
    "none": [],
    "heads": [2, 4, 8, 8],
    "apart": [2, 4, 8, 2, 4],
    "longer": [8, 8, 8, 1],
    "ahead": [1, 8, 8, 8],
    "other": [16, 4, 8],
    "flat": [1, 512],
}
OWN_WEIGHTS = {"positions": (8, 8, 8), "eight_a": (8,), "eight_b": (8,), "nine_a": (9, 1), "nine_b": (9, 1)}
SINGLE = {"unit": 1.0, "nothing": 0.0}
"""Scales and shifts of one element of three dimensions, as torch.onnx writes them where a layer has none."""
EXAMPLES = Path(__file__).parent.parent / "examples"


def as_file(nodes: str, inputs: dict[str, tuple[int, ...]], folder: Path) -> Path:
    """The model of a row; a Relu behind it, since some rules leave an output of the graph alone."""
    listed = split(f"{nodes}\nz = Relu(y)")
    for node in listed:
        if node.op_type == "BatchNormalization" and any(item.name == "training_mode" for item in node.attribute):
            node.output.extend(["running_mean", "running_variance"])
    used = {name for node in listed for name in node.input}
    numbers = NUMBERS | INTEGERS
    constants = [
        numpy_helper.from_array(np.asarray(value, np.float32 if isinstance(value, float) else np.int64), name)
        for name, value in numbers.items()
        if name in used
    ]
    constants += [
        numpy_helper.from_array(np.zeros(shape, np.float32), name)
        for name, shape in (WEIGHTS | OWN_WEIGHTS).items()
        if name in used
    ]
    constants += [
        numpy_helper.from_array(np.full((1, 1, 1), value, np.float32), name)
        for name, value in SINGLE.items()
        if name in used
    ]
    graph = helper.make_graph(
        listed,
        "graph",
        [value_info(name, shape, onnx.TensorProto.FLOAT) for name, shape in inputs.items()],
        [value_info("z", None, onnx.TensorProto.FLOAT)],
        constants,
    )
    path = folder / "row.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize(
    ("nodes", "inputs", "runtimes"),
    [pytest.param(row[1], row[2], row[4], id=row[0]) for row in MATCHING if not row[0].startswith("attention")],
)
def test_our_rules_are_its(
    nodes: str, inputs: dict[str, tuple[int, ...]], runtimes: tuple[str, ...], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    written = optimised(as_file(nodes, inputs, tmp_path), work)
    left = [node.op_type for node in written.graph.node if node.op_type not in ("Reshape", "Relu")]
    is_merged = len(left) == 1 and left != ["InstanceNormalization"]  # of a group's, what isn't times 1 and plus 0
    assert is_merged == ("onnxruntime" in runtimes), left


T = "a = Transpose<perm=[2, 0, 1]>(x)\n"
BACK = "\ny = Transpose<perm=[1, 2, 0]>(b)"
MOVED = {
    # one Transpose less, or as many as before
    "over a function to its inverse": T + "b = Relu(a)" + BACK,
    "not over a function alone": T + "y = Relu(a)",
    "over two functions, one of which leads to another": T + "b = Exp(a)\nc = Sigmoid(b)\ny = MatMul(c, b)",
    "of two addends": T + "c = Transpose<perm=[2, 0, 1]>(x2)\ny = Add(a, c)",
    "of two addends in different orders": T + "c = Transpose<perm=[1, 0, 2]>(x2)\nb = Add(a, c)" + BACK,
    "of one addend of two": T + "b = Add(a, x2)" + BACK,
    "over a constant vector": T + "b = Mul(a, cgamma)" + BACK,
    "over a number": T + "b = Mul(a, half)" + BACK,
    "two in a row": T + "y = Transpose<perm=[0, 2, 1]>(a)",
    "of parts of a Concat": T + "c = Transpose<perm=[2, 0, 1]>(x2)\ny = Concat<axis=1>(a, c)",
    "over a softmax": T + "b = Softmax<axis=0>(a)" + BACK,
    "over a reduction": T + "y = ReduceMax<axes=[0], keepdims=0>(a)",
    "over a reduction that keeps its dimension": T + "y = ReduceMean<axes=[1], keepdims=1>(a)",
    "over a sum": T + "y = ReduceSum<keepdims=0>(a, n0)",
    "over a sum of everything": T + "y = ReduceSum<keepdims=0>(a, none)",
    "over a sum of nothing": T + "b = ReduceSum<keepdims=0, noop_with_empty_axes=1>(a)" + BACK,
    "over an index of the largest": T + "b = ArgMax<axis=1, keepdims=0>(a)\ny = Cast<to=1>(b)",
    "over a slice of one": T + "y = Slice(a, n0, n1, n0)",
    "not over a slice of three": T + "y = Slice(a, n0, n3, n0)",
    "over a slice of three without axes": T + "b = Slice(a, n0, n3)" + BACK,
    "over one index": T + "y = Gather<axis=0>(a, i1)",
    "not over a list of indices": T + "b = Gather<axis=0>(a, n1)" + BACK,
    "over parts": T + "b, c = Split<axis=1>(a)\nd = Add(b, c)\ny = Transpose<perm=[1, 2, 0]>(d)",
    "parts whose ends follow from sizes": "a = Exp(x)\nn = Shape(a)\nl = Gather(n, n1)\nm = Sub(l, n3)\n"
    "b = Slice(a, n0, m, n1)\nc = Slice(a, m, l, n1)\ny = Concat<axis=1>(c, b)",
    "over padding": T + "b = Pad(a, pads)" + BACK,
    "over copies": T + "b = Tile(a, twice)" + BACK,
    "over a new dimension": T + "b = Unsqueeze(a, n1)\ny = Transpose<perm=[2, 1, 3, 0]>(b)",
    "over a dimension that goes": "b = Unsqueeze(x, n0)\nc = Transpose<perm=[0, 3, 1, 2]>(b)\nd = Squeeze(c, n0)\n"
    "y = Transpose<perm=[1, 2, 0]>(d)",
    "over a dimension that is taken apart": "a = Transpose<perm=[0, 2, 1]>(x)\nb = Reshape(a, heads)\nc = Exp(b)\n"
    "y = Transpose<perm=[0, 1, 3, 2]>(c)",
    "over two that are": "a = Transpose<perm=[0, 2, 1]>(x)\nb = Reshape(a, apart)\n"
    "y = Transpose<perm=[0, 1, 3, 4, 2]>(b)",
    "over one in front": "a = Transpose<perm=[0, 2, 1]>(x)\nb = Reshape(a, ahead)\ny = Transpose<perm=[0, 1, 3, 2]>(b)",
    "not over one behind": "a = Transpose<perm=[0, 2, 1]>(x)\nb = Reshape(a, longer)\n"
    "y = Transpose<perm=[0, 2, 1, 3]>(b)",
    "not over dimensions that are put together": "a = Transpose<perm=[0, 2, 1]>(x)\nb = Reshape(a, other)\n"
    "y = Transpose<perm=[0, 2, 1]>(b)",
    "over a dimension that is taken apart, and read elsewhere": "a = Transpose<perm=[0, 2, 1]>(x)\n"
    "b = Reshape(a, heads)\nc = Exp(b)\nd = Exp(a)\ne = Reshape(d, heads)\ny = Add(c, e)",
    # into products
    "into two products": "a = Transpose<perm=[0, 2, 1]>(x)\nb = MatMul(a, x2)\nc = MatMul(x2, a)\ny = MatMul(b, c)",
    "into a product, and read elsewhere": "a = Transpose<perm=[0, 2, 1]>(x)\nb = Exp(a)\ny = MatMul(a, b)",
    "rows in front of the batch into a product": "a = Transpose<perm=[1, 0, 2]>(x)\nb = Mul(a, half)\n"
    "y = MatMul(b, x2)",
    "columns in front of the batch into a product": "a = Transpose<perm=[1, 0, 2]>(x2)\ny = MatMul(x, a)",
    "rows behind the batch into a product": "a = Transpose<perm=[1, 2, 0]>(x2)\ny = MatMul(x, a)",
    "not a batch behind its rows": "a = Transpose<perm=[2, 0, 1]>(x2)\ny = MatMul(x, a)",
    "not rows in front of the batch for an operand without one": "a = Transpose<perm=[1, 0, 2]>(x)\n"
    "g = Gather<axis=0>(x2, i1)\ny = MatMul(a, g)",
    "a scale that follows from sizes into a product": "n = Shape(x)\nl = Gather(n, i1)\nf = Cast<to=1>(l)\n"
    "r = Sqrt(f)\na = Mul(x, r)\ny = MatMul(a, x2)",
    "twice into one product": "a = Transpose<perm=[0, 2, 1]>(x)\ny = MatMul(a, a)",
    "a scale and a Transpose into two products": "s = Mul(half, x)\na = Transpose<perm=[0, 2, 1]>(s)\n"
    "b = MatMul(a, x2)\nc = MatMul(x2, a)\ny = MatMul(b, c)",
    "a scale into two products": "a = Mul(x, half)\nb = MatMul(a, x2)\nc = MatMul(x2, a)\ny = MatMul(b, c)",
    # into a normalization
    "a sum with a constant": "a = Exp(x)\nb = Add(a, positions)\ny = LayerNormalization(b, eights)",
    "a sum with a constant first": "a = Exp(x)\nb = Add(positions, a)\ny = LayerNormalization(b, eights)",
    # what is redundant
    "the same twice": "a = Exp(x)\nb = Exp(x)\nc = Add(a, half)\nd = Add(b, half)\ny = MatMul(c, d)",
    "the same twice by equal constants of eight": "a = Exp(x)\nb = Mul(a, eight_a)\nc = Mul(a, eight_b)\n"
    "y = MatMul(b, c)",
    "not by equal constants of nine": "a = Exp(x)\nf = Reshape(a, flat)\nb = Mul(f, nine_a)\nc = Mul(f, nine_b)\n"
    "n = Neg(b)\ny = Sub(c, n)",
    "a cast to its own type": "a = Exp(x)\nb = Cast<to=1>(a)\ny = Transpose<perm=[1, 0, 2]>(b)",
    "a cast of an input to its own type": "a = Cast<to=1>(x)\ny = Exp(a)",
    "one times": "a = Exp(x)\nb = Mul(one, a)\nc = Mul(b, one)\ny = Div(c, one)",
    "one times an input": "a = Mul(one, x)\ny = Exp(a)",
    "a sum with zero": "a = Exp(x)\nb = Add(a, zero)\nc = Sub(b, zero)\ny = Add(zero, c)",
    "zero less": "a = Exp(x)\nb = Sub(zero, a)\ny = Div(one, b)",
    "a swish of a scaled argument": "a = Mul(x, root2)\nb = Sigmoid(a)\ny = Mul(x, b)",
}


LESS = "l = Less(x, half)\nn = Not(l)\n"
NEGATED = {
    "a negated condition": LESS + "y = Where(n, x, half)",
    "a negated condition of two": LESS + "a = Where(n, x, half)\nb = Where(n, half, x)\ny = Add(a, b)",
    "not one that is read elsewhere": LESS + "a = Where(n, x, half)\nb = Cast<to=1>(n)\ny = Add(a, b)",
}


@pytest.mark.parametrize("nodes", (MOVED | NEGATED).values(), ids=(MOVED | NEGATED).keys())
def test_nodes_move_and_go_as_it_has_them(nodes: str, tmp_path: Path) -> None:
    """As many nodes of each operator; those that are gone are named by others."""
    inputs = {name: (8, 8, 8) for name in ("x", "x2") if name in nodes}
    path = as_file(nodes, inputs, tmp_path)
    compared = compare(path)
    assert not compared.differences
    graph = fused_graph(infer_shapes(read_model(path), Bindings()).expected, RUNTIMES["onnxruntime"])
    origins = {origin.name for node in graph.graph.nodes for origin in node.origins} | {
        node.name for node in graph.graph.nodes if not node.origins
    }
    assert origins == {node.name for node in read_model(path).graph.nodes}


def test_a_sum_behind_moved_transposes_joins_a_normalization_at_an_open_batch(tmp_path: Path) -> None:
    """What the file says of a sum's sizes holds for the sum in the other order, too (``PermuteDims``)."""
    nodes = "".join(f"e{at} = Exp(x{at})\nt{at} = Transpose<perm=[0, 2, 1]>(e{at})\n" for at in range(3))
    nodes += "p = Add(t0, t1)\nf = Relu(p)\nq = Add(p, t2)\nb = Transpose<perm=[0, 2, 1]>(q)\n"
    nodes += "n = LayerNormalization(b, eights)\ng = Transpose<perm=[0, 2, 1]>(f)\nz = Mul(n, g)"
    rows, columns = ("batch", 4, 8), ("batch", 8, 4)
    inner = dict.fromkeys(("e0", "e1", "e2", "b"), rows) | dict.fromkeys(("t0", "t1", "t2", "p", "q"), columns)
    graph = helper.make_graph(
        split(nodes),
        "graph",
        [value_info(f"x{at}", rows, onnx.TensorProto.FLOAT) for at in range(3)],
        [value_info("z", None, onnx.TensorProto.FLOAT)],
        [numpy_helper.from_array(np.ones(8, np.float32), "eights")],
        value_info=[value_info(name, shape, onnx.TensorProto.FLOAT) for name, shape in inner.items()],
    )
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    compared = compare(path)
    assert not compared.differences
    assert compared.ours["SkipLayerNormalization"] == 1


OPEN_MODELS = {
    # nn.MultiheadAttention, whose three parts TorchScript takes behind an Unsqueeze, a Transpose and a Squeeze
    "a new dimension of 1 that goes is no gain": """
    (float[batch, s, 24] x) => (y) {
        n = Shape(x)
        zero = Constant<value = int64[1] {0}>()
        one = Constant<value = int64[1] {1}>()
        two = Constant<value = int64[1] {2}>()
        rows = Slice(n, zero, one)
        columns = Slice(n, one, two)
        ends = Constant<value = int64[2] {3, 8}>()
        target = Concat<axis = 0>(columns, rows, ends)
        r = Reshape(x, target)
        behind = Constant<value = int64[1] {-2}>()
        u = Unsqueeze(r, zero)
        t = Transpose<perm = [3, 1, 2, 0, 4]>(u)
        q = Squeeze(t, behind)
        first = Constant<value = int64 {0}>()
        second = Constant<value = int64 {1}>()
        a = Gather<axis = 0>(q, first)
        b = Gather<axis = 0>(q, second)
        y = Mul(a, b)
    }""",
    "expanded to ones": """
    (float[batch, s, 8] x) => (y) {
        r = Relu(x)
        ones = Constant<value = int64[2] {1, 1}>()
        e = Expand(r, ones)
        y = Exp(e)
    }""",
    "expanded to the size that is known": """
    (float[batch, s, 8] x) => (y) {
        r = Relu(x)
        l = Less(r, x)
        to = Constant<value = int64[3] {1, 1, 8}>()
        e = Expand(l, to)
        y = Where(e, r, x)
    }""",
    "expanded to a size that may be its own": """
    (float[batch, s, 8] x) => (y) {
        r = Relu(x)
        to = Constant<value = int64[3] {1, 16, 8}>()
        e = Expand(r, to)
        y = Exp(e)
    }""",
    "expanded to more dimensions": """
    (float[batch, s, 8] x) => (y) {
        r = Relu(x)
        ones = Constant<value = int64[4] {1, 1, 1, 1}>()
        e = Expand(r, ones)
        y = Exp(e)
    }""",
    "expanded to the shape of what has fixed sizes": """
    (float[2, 4, 8] x) => (y) {
        r = Relu(x)
        n = Shape(x)
        e = Expand(r, n)
        y = Exp(e)
    }""",
    # squeeze of an open size: the branches differ in rank, so that nothing behind them has one
    "no rank behind branches": """
    (float[batch, s, 8] x, float[batch, s] z) => (y) {
        t = Transpose<perm = [0, 2, 1]>(x)
        one = Constant<value = int64[1] {1}>()
        n = Shape<start = 1, end = 2>(z)
        is_one = Equal(n, one)
        f = If (is_one) <
            then_branch = then () => (float[b] g) { g = Squeeze(z, one) },
            else_branch = other () => (float[b, c] h) { h = Identity(z) }
        >
        m = Max(f, z)
        u = Unsqueeze(m, one)
        w = Mul(t, u)
        v = Exp(w)
        y = Transpose<perm = [0, 2, 1]>(v)
    }""",
    "parts of what is reshaped as another tensor is": """
    (float[batch, 16] x) => (y, v) {
        zero = Constant<value = int64[1] {0}>()
        first = Constant<value = int64 {0}>()
        second = Constant<value = int64 {1}>()
        n = Shape(x)
        rows = Gather(n, first)
        u = Unsqueeze(rows, zero)
        ends = Constant<value = int64[2] {2, 8}>()
        target = Concat<axis = 0>(u, ends)
        r = Reshape(x, target)
        e = Exp(x)
        v = Reshape(e, target)
        a = Gather<axis = 1>(r, first)
        b = Gather<axis = 1>(r, second)
        y = Mul(a, b)
    }""",
    "parts along an open dimension": """
    (float[batch, 8] x) => (y) {
        first = Constant<value = int64 {0}>()
        second = Constant<value = int64 {1}>()
        a = Gather(x, first)
        b = Gather(x, second)
        y = Mul(a, b)
    }""",
}
"""Where the optimiser doesn't know sizes, or not even ranks, or knows that they are 1."""


@pytest.mark.parametrize("text", OPEN_MODELS.values(), ids=OPEN_MODELS.keys())
def test_open_sizes_are_known_as_it_knows_them(text: str, tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    onnx.save(onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 17]> open ' + text), path)
    assert not compare(path).differences


INVERTED = {
    "times an inverse": "r = Sqrt(x)\ni = Div(one, r)\ny = Mul(x2, i)",
    "an inverse times": "r = Sqrt(x)\ni = Div(one, r)\ny = Mul(i, x2)",
    "an inverse that others read": "r = Sqrt(x)\ni = Div(one, r)\nm = Mul(i, x2)\ny = Add(m, i)",
    "an inverse times itself": "r = Sqrt(x)\ni = Div(one, r)\ny = Mul(i, i)",
    "two inverses": "r = Sqrt(x)\ni = Div(one, r)\ne = Exp(x2)\nj = Div(one, e)\ny = Mul(i, j)",
    "another number": "r = Sqrt(x)\ni = Div(two, r)\ny = Mul(i, x2)",
}
RMS_OF_KEYS = (
    "t = Transpose<perm=[0, 2, 1, 3]>(x)\n"
    + RMS_DIVIDED.replace("(x, ", "(t, ").replace("y = ", "k = ")
    + "\nu = Transpose<perm=[0, 1, 3, 2]>(k)\ny = MatMul(x2, u)"
)


@pytest.mark.parametrize("nodes", INVERTED.values(), ids=INVERTED.keys())
def test_factors_are_divided_as_it_divides_them(nodes: str, tmp_path: Path) -> None:
    inputs = {name: (8, 8, 8) for name in ("x", "x2") if f"({name}" in nodes or f" {name})" in nodes}
    assert not compare(as_file(nodes, inputs, tmp_path)).differences


def test_transposes_move_through_the_formula_of_an_rms_normalization(tmp_path: Path) -> None:
    """Normalized keys of an attention: before it merges such formulas, so that this one stays."""
    compared = compare(as_file(RMS_OF_KEYS, {"x": (2, 4, 8, 16), "x2": (2, 8, 4, 16)}, tmp_path))
    assert not compared.differences
    assert "RMSNormalization" not in compared.ours


GIVEN = {
    "a scale that is an input": RMS_DIVIDED.replace("gamma", "g"),
    "a scale that is made": RMS_DIVIDED.replace("gamma", "h").replace("p = ", "h = Exp(g)\n    p = ", 1),
    "scale and shift that are inputs": LAYER.replace("gamma", "g").replace("shift", "g"),
    "a shift that is made": LAYER.replace("shift", "h").replace("m = ", "h = Exp(g)\n    m = ", 1),
}
"""Normalizations by parameters that aren't constant."""


@pytest.mark.parametrize("size", [(16,), (1, 16), (2, 1, 16)])
@pytest.mark.parametrize("nodes", GIVEN.values(), ids=GIVEN.keys())
def test_parameters_of_normalizations_are_vectors_of_any_source(
    nodes: str, size: tuple[int, ...], tmp_path: Path
) -> None:
    assert not compare(as_file(nodes, {"x": (2, 8, 16), "g": size}, tmp_path)).differences


CONVOLVED = {
    "a frozen normalization": "c = Conv(x, k)\nm = Mul(c, by_channel)\ny = Add(m, by_channel)",
    "an addend, then a factor, then an addend": "c = Conv(x, k)\na = Add(c, by_channel)\nm = Mul(a, by_channel)\n"
    "y = Add(m, by_channel)",
    "not a factor in front": "c = Conv(x, k)\nm = Mul(by_channel, c)\ny = Exp(m)",
    "not an addend in front": "c = Conv(x, k)\nm = Mul(c, by_channel)\ny = Add(by_channel, m)",
    "a factor by channel, then one by row": "c = Conv(x, k)\nm = Mul(c, by_channel)\ny = Mul(m, by_row)",
    "a factor, and read elsewhere": "c = Conv(x, k)\nm = Mul(c, by_channel)\na = Add(m, by_channel)\ny = Sub(m, a)",
    "a normalization behind a transposed one": "c = ConvTranspose(x, k)\ny = BatchNormalization(c, v4, v4, v4, v4)",
    "a Relu before a Clip": "c = Conv(x, k)\nr = Relu(c)\ny = Clip(r, zero, one)",
    "not a Relu that is read elsewhere": "c = Conv(x, k)\nr = Relu(c)\nm = Clip(r, zero, one)\ny = Sub(r, m)",
    "zeros around": "p = Pad(x, one_row)\ny = Conv(p, k)",
    "not zeros around by an empty name": 'p = Pad(x, one_row, "")\ny = Conv(p, k)',
    "zeros around that are said": "p = Pad(x, one_row, zero)\ny = Conv<pads=[1, 1, 1, 1]>(p, k)",
    "not ones around": "p = Pad(x, one_row, one)\ny = Conv(p, k)",
    "not a row less": "p = Pad(x, a_row_less)\ny = Conv(p, k)",
    "not what is reflected": 'p = Pad<mode="reflect">(x, one_row)\ny = Conv(p, k)',
    "not before sizes that find themselves": 'p = Pad(x, one_row)\ny = Conv<auto_pad="SAME_UPPER">(p, k)',
    "not for two": "p = Pad(x, one_row)\nc = Conv(p, k)\nd = Conv<dilations=[2, 2], pads=[1, 1, 1, 1]>(p, k)\n"
    "y = Sub(c, d)",
    "not for one of two": "p = Pad(x, one_row)\nc = Conv(p, k)\nr = Exp(p)\nd = Conv(r, k)\ny = Sub(c, d)",
    "zeros around a mean": "p = Pad(x, one_row)\ny = AveragePool<kernel_shape=[3, 3]>(p)",
    "not a mean that pads itself": "p = Pad(x, one_row)\ny = AveragePool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(p)",
    "not a mean that rounds up": "p = Pad(x, one_row)\ny = AveragePool<kernel_shape=[3, 3], ceil_mode=1>(p)",
    "not a maximum": "p = Pad(x, one_row)\ny = MaxPool<kernel_shape=[3, 3]>(p)",
}


@pytest.mark.parametrize("nodes", CONVOLVED.values(), ids=CONVOLVED.keys())
def test_convolutions_take_in_what_its_take_in(nodes: str, tmp_path: Path) -> None:
    constants: dict[str, NDArray[np.float32] | NDArray[np.int64]] = {
        "k": np.ones((4, 4, 3, 3), np.float32),
        "v4": np.ones(4, np.float32),
        "by_channel": np.full((1, 4, 1, 1), 2, np.float32),
        "by_row": np.full((1, 1, 6, 1), 2, np.float32),
        "one_row": np.array([0, 0, 0, 0, 0, 0, 1, 1]),
        "a_row_less": np.array([0, 0, -1, 0, 0, 0, 1, 1]),
        "zero": np.array(0, np.float32),
        "one": np.array(1, np.float32),
    }
    listed = split(f"{nodes}\nz = Relu(y)")
    for node in listed:
        if node.op_type == "BatchNormalization" and any(item.name == "training_mode" for item in node.attribute):
            node.output.extend(["running_mean", "running_variance"])
    used = {name for node in listed for name in node.input}
    graph = helper.make_graph(
        listed,
        "graph",
        [value_info("x", (1, 4, 8, 8), onnx.TensorProto.FLOAT)],
        [value_info("z", None, onnx.TensorProto.FLOAT)],
        [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used],
    )
    path = tmp_path / "row.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    compared = compare(path)
    assert not compared.differences
    graph_of_ours = fused_graph(infer_shapes(read_model(path), Bindings()).expected, RUNTIMES["onnxruntime"])
    output = graph_of_ours.values["z"].shape
    assert output is not None
    assert all(
        graph_of_ours.values[name].shape is not None for node in graph_of_ours.graph.nodes for name in node.outputs
    )


UNKNOWN = {
    "an operand of an unknown operator": (T + "u = acme.Foo(x)\nb = Concat<axis=1>(a, a, u)" + BACK, ["Concat"]),
    "an unknown operand that is transposed": (
        "u = acme.Foo(x)\nc = Transpose<perm=[2, 0, 1]>(u)\n" + T + "b = Concat<axis=1>(a, c)" + BACK,
        ["Concat"],
    ),
    "a result whose sizes a run tells": (T + "n = NonZero(x)\nb = Pad(a, n, , n1)" + BACK, ["Pad"]),
}


@pytest.mark.parametrize(("nodes", "stays"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_a_transpose_stays_before_what_has_no_shape(nodes: str, stays: list[str]) -> None:
    graph = inferred(nodes, {"x": (8, 8, 8)}, constants={"n1": np.array([1])}, opset=18)
    fused = fused_graph(graph, RUNTIMES["onnxruntime"]).graph.nodes
    makers = {name: node for node in fused for name in node.outputs}
    found = [node for node in fused if node.op_type in stays]
    assert [node.op_type for node in found] == stays
    assert all(makers[node.inputs[0]].op_type == "Transpose" for node in found)


def test_a_mask_of_dropout_that_nobody_reads_is_not_transposed() -> None:
    graph = inferred(T + "b, mask = Dropout(a)" + BACK, {"x": (8, 8, 8)})
    fused = fused_graph(graph, RUNTIMES["onnxruntime"]).graph.nodes
    assert [node.op_type for node in fused] == ["Dropout", "Identity"]


@pytest.mark.parametrize("name", ["resnet50", "bert_base"])
def test_the_examples_have_the_operators_that_it_writes(name: str) -> None:
    """But for what shapes are computed with, and where positions are cut from a table."""
    compared = compare(EXAMPLES / f"{name}.onnx")
    assert not compared.differences
    assert compared.ours.total() < compared.before.total()
