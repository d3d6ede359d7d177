"""Recognised subgraphs: each rule with graphs that match and graphs that must not."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx import helper

from graphs import inferred, split
from neusight_onnx.fusion.patterns.registry import PATTERNS, explain, recognise
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Attention
from neusight_onnx.lowering import lower

RUNTIMES = ("eager", "compiled", "onnxruntime", "tensorrt")
BUT_ORT = ("eager", "compiled", "tensorrt")
X = {"x": (2, 8, 16)}
IMAGE = {"x": (2, 8, 4, 4)}
NUMBERS: dict[str, object] = {
    "root2": 1.4142135,
    "half": 0.5,
    "minus_half": -0.5,
    "one": 1.0,
    "two": 2.0,
    "three": 3.0,
    "six": 6.0,
    "sixth": 1.0 / 6.0,
    "zero": 0.0,
    "beta": 0.7978846,
    "kappa": 0.044715,
    "eps": 1e-5,
    "eight": 8.0,
    "halfroot2": 0.70710678,
}

ADDCMUL = "p = Mul(gain, x)\nv = Mul(p, one)\ny = Add(shift, v)"
GELU = "d = Div(x, root2)\ne = Erf(d)\na = Add(e, one)\nm = Mul(x, a)\ny = Mul(m, half)"
GELU_LATE = "d = Div(x, root2)\ne = Erf(d)\na = Add(one, e)\nm = Mul(half, a)\ny = Mul(x, m)"
GELU_HALVED = "d = Div(x, root2)\ne = Erf(d)\na = Add(e, one)\nm = Mul(x, half)\ny = Mul(m, a)"
GELU_EARLY = "d = Mul(x, halfroot2)\ne = Erf(d)\na = Add(e, one)\nm = Mul(x, half)\ny = Mul(m, a)"
TANH_MUL = """
    s = Mul(x, x)
    c = Mul(x, s)
    k = Mul(kappa, c)
    i = Add(x, k)
    b = Mul(beta, i)
    t = Tanh(b)
    a = Add(one, t)
    m = Mul(x, a)
    y = Mul(half, m)
"""
TANH_OF_FACTORS = """
    h = Mul(x, half)
    b = Mul(beta, x)
    k = Mul(kappa, x)
    q = Mul(k, x)
    i = Add(one, q)
    p = Mul(b, i)
    t = Tanh(p)
    a = Add(one, t)
    y = Mul(h, a)
"""
OF_A_SUM = TANH_OF_FACTORS.replace("(x", "(u").replace(" x)", " u)").replace("h = ", "u = Add(x, x)\n    h = ", 1)
TANH_POW = """
    h = Mul(x, half)
    c = Pow(x, three)
    k = Mul(c, kappa)
    i = Add(x, k)
    b = Mul(i, beta)
    t = Tanh(b)
    a = Add(t, one)
    y = Mul(h, a)
"""
LAYER = """
    m = ReduceMean<axes=[-1]>(x)
    d = Sub(x, m)
    p = Pow(d, two)
    v = ReduceMean<axes=[-1]>(p)
    e = Add(v, eps)
    r = Sqrt(e)
    n = Div(d, r)
    s = Mul(n, gamma)
    y = Add(s, shift)
"""
RMS = """
    p = Pow(x, two)
    v = ReduceMean<axes=[-1]>(p)
    e = Add(v, eps)
    r = Sqrt(e)
    i = Reciprocal(r)
    n = Mul(x, i)
    y = Mul(gamma, n)
"""
RMS_DIVIDED = """
    p = Pow(x, two)
    v = ReduceMean<axes=[-1]>(p)
    e = Add(v, eps)
    r = Sqrt(e)
    n = Div(x, r)
    y = Mul(gamma, n)
"""
RMS_POWER = """
    p = Pow(x, two)
    v = ReduceMean<axes=[-1]>(p)
    e = Add(v, eps)
    i = Pow(e, minus_half)
    n = Mul(x, i)
    y = Mul(n, gamma)
"""
GROUP = """
    f = Reshape(x, groups)
    n = InstanceNormalization(f, ones, zeros)
    b = Reshape(n, back)
    s = Mul(b, cgamma)
    y = Add(s, cshift)
"""
GROUP_WITHOUT_SHIFT = GROUP.replace("cshift", "nothing")
GROUP_WITHOUT_BOTH = GROUP_WITHOUT_SHIFT.replace("cgamma", "unit")
SDPA = """
    qs = Mul(q, half)
    ks = Mul(k, half)
    p = MatMul(qs, ks)
    w1 = Softmax<axis=-1>(p)
    y = MatMul(w1, v)
"""
SWAPPED = """
    k3 = Reshape(keys, joined)
    k3t = Transpose<perm=[0, 2, 1]>(k3)
    kt = Reshape(k3t, apart)
    p = MatMul(q, kt)
    w1 = Softmax<axis=-1>(p)
    y = MatMul(w1, v)
"""
"""torchlib's scaled_dot_product_attention of keys (b, h, t, d), its scale being 1."""
SWAPPED_SHAPES = {"q": (2, 4, 5, 8), "keys": (2, 4, 6, 8), "v": (2, 4, 6, 8)}
ATTENDED = {"q": (2, 4, 5, 8), "k": (2, 4, 8, 6), "v": (2, 4, 6, 8)}
BATCH = """
    m = ReduceMean<axes=[0, 2, 3], keepdims=0>(x)
    k = ReduceMean<axes=[0, 2, 3]>(x)
    d = Sub(x, k)
    q = Mul(d, d)
    v = ReduceMean<axes=[0, 2, 3], keepdims=0>(q)
    y = BatchNormalization<training_mode=1>(x, eights, eights, m, v)
"""
WEIGHTS = {
    "gamma": (16,),
    "shift": (16,),
    "gamma2": (1, 16),
    "gammas": (8, 16),
    "gain": (16,),
    "w": (16, 32),
    "bias": (32,),
    "bias2": (1, 32),
    "cgamma": (8, 1, 1),
    "cshift": (8, 1, 1),
    "ones": (4,),
    "zeros": (4,),
    "eights": (8,),
    "w3": (2, 16, 32),
    "filters": (5, 8, 1, 1),
    "five": (5,),
}

MATCHING: list[tuple[str, str, dict[str, tuple[int, ...]], str, tuple[str, ...]]] = [
    # name, nodes, inputs, the one operator that is left, runtimes
    ("gelu as TorchScript writes it", GELU, X, "Gelu", RUNTIMES),
    ("gelu as dynamo writes it", GELU_LATE, X, "Gelu", BUT_ORT),
    ("gelu, x halved first", GELU_EARLY, X, "Gelu", BUT_ORT),
    ("gelu across identities", GELU.replace("e = Erf(d)", "i = Identity(d)\ne = Erf(i)"), X, "Gelu", RUNTIMES),
    ("gelu by tanh, cube by mul", TANH_MUL, X, "Gelu", BUT_ORT),
    ("gelu by tanh of factors", TANH_OF_FACTORS, X, "Gelu", ("compiled", "onnxruntime", "tensorrt")),
    ("gelu by tanh, cube by pow", TANH_POW, X, "Gelu", ("compiled", "onnxruntime", "tensorrt")),
    ("layer normalization", LAYER, X, "LayerNormalization", RUNTIMES),
    (
        "squared by mul",
        LAYER.replace("Pow(d, two)", "Mul(d, d)"),
        X,
        "LayerNormalization",
        ("compiled", "tensorrt"),
    ),
    ("without scale", LAYER[: LAYER.index("s = ")].replace("n = ", "y = "), X, "LayerNormalization", BUT_ORT),
    ("shift first", LAYER.replace("Add(s, shift)", "Add(shift, s)"), X, "LayerNormalization", RUNTIMES),
    (
        "the deviation taken twice",
        LAYER.replace("n = Div(d, r)", "d2 = Sub(x, m)\nn = Div(d2, r)"),
        X,
        "LayerNormalization",
        RUNTIMES,
    ),
    (
        "layer normalization, the root a power",
        LAYER.replace("Sqrt(e)", "Pow(e, half)"),
        X,
        "LayerNormalization",
        BUT_ORT,
    ),
    (
        "layer normalization by an inverse power",
        LAYER.replace("r = Sqrt(e)\n    n = Div(d, r)", "r = Pow(e, minus_half)\n    n = Mul(d, r)"),
        X,
        "LayerNormalization",
        BUT_ORT,
    ),
    (
        "layer normalization by a reciprocal",
        LAYER.replace("n = Div(d, r)", "i = Reciprocal(r)\n    n = Mul(d, i)"),
        X,
        "LayerNormalization",
        BUT_ORT,
    ),
    (
        "layer normalization by one over the root",
        LAYER.replace("n = Div(d, r)", "i = Div(one, r)\n    n = Mul(d, i)"),
        X,
        "LayerNormalization",
        RUNTIMES,
    ),
    (
        "layer normalization, scale and shift of two dimensions",
        LAYER.replace("gamma", "gamma2").replace("shift", "gamma2"),
        X,
        "LayerNormalization",
        BUT_ORT,
    ),
    (
        "layer normalization over two axes",
        LAYER.replace("[-1]", "[-2, -1]").replace("gamma", "gammas").replace("shift", "gammas"),
        X,
        "LayerNormalization",
        BUT_ORT,
    ),
    ("RMS normalization by an inverse power", RMS_POWER, X, "RMSNormalization", ("compiled", "tensorrt")),
    (
        "RMS normalization, the root a power",
        RMS_DIVIDED.replace("Sqrt(e)", "Pow(e, half)"),
        X,
        "RMSNormalization",
        ("compiled", "tensorrt"),
    ),
    (
        "RMS normalization by one over the root",
        RMS.replace("Reciprocal(r)", "Div(one, r)"),
        X,
        "RMSNormalization",
        ("compiled", "onnxruntime", "tensorrt"),
    ),
    (
        "RMS normalization without scale",
        RMS_DIVIDED[: RMS_DIVIDED.index("y = ")].replace("n = ", "y = "),
        X,
        "RMSNormalization",
        ("compiled", "tensorrt"),
    ),
    (
        "RMS normalization, the scale of two dimensions",
        RMS_DIVIDED.replace("gamma", "gamma2"),
        X,
        "RMSNormalization",
        ("compiled", "tensorrt"),
    ),
    ("RMS normalization", RMS, X, "RMSNormalization", ("compiled", "tensorrt")),
    ("RMS normalization by division", RMS_DIVIDED, X, "RMSNormalization", ("compiled", "onnxruntime", "tensorrt")),
    ("gelu, x halved first, divided", GELU_HALVED, X, "Gelu", RUNTIMES),
    ("group normalization", GROUP, IMAGE, "GroupNormalization", BUT_ORT),
    ("batch normalization in training", BATCH, IMAGE, "BatchNormalization", ("eager", "compiled")),
    ("group normalization without a shift", GROUP_WITHOUT_SHIFT, IMAGE, "GroupNormalization", BUT_ORT),
    ("group normalization without parameters", GROUP_WITHOUT_BOTH, IMAGE, "GroupNormalization", BUT_ORT),
    ("silu", "s = Sigmoid(x)\ny = Mul(x, s)", X, "Swish", RUNTIMES),
    ("silu, other order", "s = Sigmoid(x)\ny = Mul(s, x)", X, "Swish", RUNTIMES),
    ("glu", "a, b = Split<axis=2>(x)\ns = Sigmoid(b)\ny = Mul(a, s)", X, "Glu", BUT_ORT),
    ("hardswish by gate", "s = HardSigmoid<alpha=0.16666667, beta=0.5>(x)\ny = Mul(x, s)", X, "HardSwish", BUT_ORT),
    (
        "hardswish by clip",
        "a = Add(x, three)\nc = Clip(a, zero, six)\nm = Mul(x, c)\ny = Div(m, six)",
        X,
        "HardSwish",
        BUT_ORT,
    ),
    (
        "hardswish by clip, divided first",
        "a = Add(x, three)\nc = Clip(a, zero, six)\nd = Div(c, six)\ny = Mul(d, x)",
        X,
        "HardSwish",
        BUT_ORT,
    ),
    ("hardsigmoid by clip", "a = Add(x, three)\nc = Clip(a, zero, six)\ny = Div(c, six)", X, "HardSigmoid", BUT_ORT),
    ("mish", "s = Softplus(x)\nt = Tanh(s)\ny = Mul(x, t)", X, "Mish", BUT_ORT),
    ("mish by parts", "e = Exp(x)\na = Add(e, one)\nl = Log(a)\nt = Tanh(l)\ny = Mul(x, t)", X, "Mish", BUT_ORT),
    ("softplus", "e = Exp(x)\na = Add(e, one)\ny = Log(a)", X, "Softplus", BUT_ORT),
    ("log-softmax", "s = Softmax<axis=-1>(x)\ny = Log(s)", X, "LogSoftmax", BUT_ORT),
    ("rsqrt by reciprocal", "s = Sqrt(x)\ny = Reciprocal(s)", X, "Rsqrt", BUT_ORT),
    ("rsqrt by division", "s = Sqrt(x)\ny = Div(one, s)", X, "Rsqrt", BUT_ORT),
    ("addcmul as TorchScript writes it", ADDCMUL, X, "Addcmul", ("eager",)),
    ("addcmul as dynamo writes it", "v = Mul(one, gain)\np = Mul(v, x)\ny = Add(shift, p)", X, "Addcmul", ("eager",)),
    ("linear", "m = MatMul(x, w)\ny = Add(bias, m)", X, "Linear", RUNTIMES),
    ("linear, bias of rank 2", "m = MatMul(x, w)\ny = Add(m, bias2)", X, "Linear", BUT_ORT),
    ("attention", SDPA, ATTENDED, "ScaledDotProductAttention", BUT_ORT),
    (
        "attention with a mask, rows without a key guarded",
        SDPA.replace("Softmax<axis=-1>(p)", "Softmax<axis=-1>(r)")
        .replace("w1 =", "r = Add(p, mask)\nw1 =")
        .replace("y = MatMul(w1, v)", "n = IsNaN(w1)\nw2 = Where(n, zero, w1)\ny = MatMul(w2, v)"),
        ATTENDED | {"mask": (2, 1, 5, 6)},
        "ScaledDotProductAttention",
        BUT_ORT,
    ),
    (
        "scale, mask, softmax",
        "s = Div(x, eight)\na = Add(s, mask)\ny = Softmax<axis=-1>(a)",
        X | {"mask": (2, 1, 16)},
        "MaskedSoftmax",
        ("compiled", "tensorrt"),
    ),
    (
        "softmax by parts",
        "m = ReduceMax<axes=[-1]>(x)\nd = Sub(x, m)\ne = Exp(d)\ns = ReduceSum(e, last)\ny = Div(e, s)",
        X,
        "Softmax",
        ("compiled", "tensorrt"),
    ),
    (
        "convolution and batch normalization",
        "c = Conv<kernel_shape=[1,1]>(x, filters)\ny = BatchNormalization(c, five, five, five, five)",
        IMAGE,
        "Conv",
        ("onnxruntime", "tensorrt"),
    ),
]


def build(nodes: str, inputs: dict[str, tuple[int, ...]], outputs: list[str] | None = None) -> InferredGraph:
    used = {name for node in split(nodes) for name in node.input}
    constants = NUMBERS | {"groups": [0, 4, -1], "back": [2, 8, 4, 4], "last": [-1]}
    constants |= {"joined": [-1, 6, 8], "apart": [2, 4, 8, 6], "unit": [[[1.0]]], "nothing": [[[0.0]]]}
    return inferred(
        nodes,
        inputs,
        constants={name: value for name, value in constants.items() if name in used},
        weights={name: shape for name, shape in WEIGHTS.items() if name in used},
        outputs=outputs,
    )


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    ("nodes", "inputs", "op_type", "runtimes"), [row[1:] for row in MATCHING], ids=[row[0] for row in MATCHING]
)
def test_matches(
    nodes: str, inputs: dict[str, tuple[int, ...]], op_type: str, runtimes: tuple[str, ...], runtime: str
) -> None:
    graph = build(nodes, inputs)
    found = recognise(graph, runtime=runtime).graph.nodes
    merged = [node for node in found if node.op_type == op_type and len(node.origins) > 1]
    if runtime not in runtimes:
        assert not merged
        return
    (only,) = found
    assert only.op_type == op_type
    assert {origin.name for origin in only.origins} == {node.name for node in graph.graph.nodes}
    assert only.outputs == ("y",)
    (work,) = lower(recognise(graph, runtime=runtime), runtime=runtime)
    assert work.kernels
    assert len(work.origins) == len(graph.graph.nodes)


MASKED_SWAP = SWAPPED.replace("Softmax<axis=-1>(p)", "Softmax<axis=-1>(r)").replace(
    "w1 =", "r = Add(p, mask)\n    w1 ="
)
SCALED_SWAP = SWAPPED.replace("MatMul(q, kt)", "MatMul(qs, ks)").replace(
    "p =", "qs = Mul(q, half)\n    ks = Mul(kt, half)\n    p ="
)


@pytest.mark.parametrize("nodes", [SWAPPED, MASKED_SWAP, SCALED_SWAP], ids=["scale of 1", "with a mask", "scaled"])
@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_attention_whose_keys_torchlib_transposes(nodes: str, runtime: str) -> None:
    """PyTorch's kernel reads keys as they lie: what is left of the two Reshapes is a view.

    In eager mode a mask of six keys is laid out in eights by two kernels before it (``MASK_STEP`` of
    ``lowering/attention/pytorch_operands.py``).
    """
    graph = build(nodes, SWAPPED_SHAPES | ({"mask": (2, 1, 5, 6)} if "mask" in nodes else {}))
    found = recognise(graph, runtime=runtime)
    assert [node.op_type for node in found.graph.nodes] == ["Transpose", "ScaledDotProductAttention"]
    works = lower(found, runtime=runtime)
    padded = 2 if runtime == "eager" and "mask" in nodes else 0
    assert [len(work.kernels) for work in works] == [0, padded + 1]
    assert isinstance(works[1].kernels[-1], Attention)


def test_a_query_that_a_vector_scales_is_not_part_of_attention() -> None:
    """A factor for each channel (TimesFM's) is no scale of the product: its Mul stays and makes the query."""
    nodes = SWAPPED.replace("MatMul(q, kt)", "MatMul(qs, kt)").replace("p =", "qs = Mul(q, eights)\n    p =")
    found = recognise(build(nodes, SWAPPED_SHAPES), runtime="eager")
    assert sorted(node.op_type for node in found.graph.nodes) == ["Mul", "ScaledDotProductAttention", "Transpose"]
    made = {name for node in found.graph.nodes for name in node.outputs}
    (attention,) = [node for node in found.graph.nodes if node.op_type == "ScaledDotProductAttention"]
    assert attention.inputs[0] == "qs"
    assert "qs" in made


def test_transposed_keys_that_others_read_stay() -> None:
    found = recognise(build(SWAPPED, SWAPPED_SHAPES, ["y", "k3t"]), runtime="eager")
    assert [node.op_type for node in found.graph.nodes][:3] == ["Reshape", "Transpose", "Reshape"]


def test_a_sum_is_no_factor_of_gelu() -> None:
    """What GELU is taken of may be a sum (of a product and its bias), as 1 + 0.044715 x^2 is."""
    found = recognise(build(OF_A_SUM, X), runtime="tensorrt").graph.nodes
    assert [(node.op_type, node.inputs) for node in found] == [("Add", ("x", "x")), ("Gelu", ("u",))]


SLICE = """
    s = Shape(x)
    n = Gather<axis=0>(s, first)
    r = Range(one, n, one)
    i = Unsqueeze(r, last)
    y = ScatterND(x, i, u)
"""


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        # 599 rows of 8 floats read and written; a compiled loop reads all of x, too, and writes all of it
        ("eager", [("Movement", 4 * 599 * 8, 4 * 599 * 8)]),
        ("compiled", [("Elementwise", 4 * (600 + 599) * 8, 4 * 600 * 8)]),
    ],
)
def test_an_assignment_to_a_slice(runtime: str, expected: list[tuple[str, int, int]]) -> None:
    """x[1:] = u, as exporters write it; in a graph that other runtimes run, the indices are real."""
    constants = {"first": np.int64(0), "one": np.int64(1), "last": [-1]}
    graph = inferred(SLICE, {"x": (600, 8), "u": (599, 8)}, constants=constants)
    works = lower(recognise(graph, runtime=runtime), runtime=runtime)
    found = [kernel for work in works for kernel in work.kernels]
    assert [(type(kernel).__name__, kernel.read_bytes, kernel.write_bytes) for kernel in found] == expected
    assert {name for name, _ in works[-1].origins} >= {"Range_2", "Unsqueeze_3", "ScatterND_4"}
    others = lower(recognise(graph, runtime="onnxruntime"), runtime="onnxruntime")
    assert "GatherScatter" in [type(kernel).__name__ for work in others for kernel in work.kernels]


REFUSED: list[tuple[str, str, dict[str, tuple[int, ...]], list[str] | None, str, str]] = [
    # name, nodes, inputs, outputs, rule, words of its reason
    (
        "scattered",
        "i = Cast<to=7>(f)\ny = ScatterND(x, i, z)",
        X | {"f": (1, 1), "z": (1, 8, 16)},
        None,
        "assignment to a slice",
        "no ranges",
    ),
    ("erf of another scale", GELU.replace("root2", "two"), X, None, "GELU", "root of 2"),
    ("1 is missing", GELU.replace("Add(e, one)", "Add(e, two)"), X, None, "GELU", "1 is not added"),
    ("times another value", GELU.replace("Mul(x, a)", "Mul(z, a)"), X | {"z": (2, 8, 16)}, None, "GELU", "half"),
    ("inner value is an output", GELU, X, ["y", "e"], "GELU", "1 is not added"),
    ("inner value is used elsewhere", GELU + "\nz = Relu(d)", X, ["y", "z"], "GELU", "used elsewhere"),
    ("cube by pow in eager", TANH_POW, X, None, "GELU by tanh", "pow"),
    ("factors in eager", TANH_OF_FACTORS, X, None, "GELU by tanh", "product of three"),
    ("another kappa", TANH_MUL.replace("kappa", "half"), X, None, "GELU by tanh", "cubic"),
    ("mean over the first axis", LAYER.replace("[-1]", "[1]"), X, None, "layer normalization", "last axes"),
    ("two different means", LAYER.replace("[-1]", "[1]", 1), X, None, "layer normalization", "different axes"),
    ("no epsilon", LAYER.replace("Sqrt(e)", "Sqrt(v)"), X, None, "layer normalization", "epsilon"),
    ("mean is used elsewhere", LAYER, X, ["y", "m"], "layer normalization", "used elsewhere"),
    ("another value is divided", LAYER.replace("Div(d, r)", "Div(x, r)"), X, None, "layer normalization", "another"),
    ("squared by mul in eager", LAYER.replace("Pow(d, two)", "Mul(d, d)"), X, None, "layer normalization", "Pow"),
    (
        "given statistics",
        "y = BatchNormalization(x, eights, eights, eights, eights)",
        IMAGE,
        None,
        "batch normalization by its own statistics",
        "given statistics",
    ),
    (
        "statistics of another value",
        BATCH.replace("Sub(x, k)", "Sub(z, k)"),
        IMAGE | {"z": IMAGE["x"]},
        None,
        "batch normalization by its own statistics",
        "another value",
    ),
    ("not a mean of squares", "y = ReduceMean<axes=[-1]>(x)", X, None, "layer normalization", "squares"),
    ("gate of another value", "s = Sigmoid(x)\ny = Mul(z, s)", X | {"z": (2, 8, 16)}, None, "SiLU", "another"),
    ("gate is used elsewhere", "s = Sigmoid(x)\ny = Mul(x, s)", X, ["y", "s"], "SiLU", "not only"),
    ("a product and a sum", ADDCMUL.replace("Mul(p, one)", "Identity(p)"), X, None, "addcmul", "nothing is multiplied"),
    ("a product scaled by 2", ADDCMUL.replace("one", "two"), X, None, "addcmul", "nothing is multiplied by 1"),
    ("one value multiplied by 1", "v = Mul(x, one)\ny = Add(v, shift)", X, None, "addcmul", "is no product"),
    ("a product that others read", ADDCMUL + "\nz = Relu(p)", X, ["y", "z"], "addcmul", "used elsewhere"),
    ("halves in the other order", "a, b = Split<axis=2>(x)\ns = Sigmoid(a)\ny = Mul(b, s)", X, None, "GLU", "second"),
    ("another slope", "s = HardSigmoid<alpha=0.2>(x)\ny = Mul(x, s)", X, None, "HardSwish", "1/6"),
    ("relu6", "y = Clip(x, zero, six)", X, None, "HardSwish by clip", "3"),
    ("clip to 1", "a = Add(x, three)\nc = Clip(a, zero, one)\ny = Div(c, six)", X, None, "HardSwish by clip", "0"),
    ("tanh alone", "y = Tanh(x)", X, None, "Mish", "softplus"),
    ("log of a sum", "a = Add(x, one)\ny = Log(a)", X, None, "Softplus", "exp"),
    ("softmax is an output", "s = Softmax<axis=-1>(x)\ny = Log(s)", X, ["s", "y"], "LogSoftmax", "logarithm"),
    ("root divides another value", "s = Sqrt(x)\ny = Div(two, s)", X, None, "rsqrt", "than 1"),
    ("weight is no constant", "m = MatMul(x, z)\ny = Add(m, bias)", X | {"z": (16, 32)}, None, "linear", "constant"),
    ("weight of rank 3", "m = MatMul(x, w3)\ny = Add(m, bias)", X, None, "linear", "constant matrix"),
    ("what is added is no constant", "m = MatMul(x, w)\ny = Add(m, z)", X | {"z": (32,)}, None, "linear", "constant"),
    ("a residual is added", "m = MatMul(x, w)\ny = Add(m, z)", X | {"z": (2, 8, 32)}, None, "linear", "constant"),
    ("product is used elsewhere", "m = MatMul(x, w)\ny = Add(m, bias)", X, ["y", "m"], "linear", "nothing is added"),
    (
        "one factor is scaled",
        SDPA.replace("MatMul(qs, ks)", "MatMul(qs, k)"),
        ATTENDED,
        None,
        "scaled dot-product attention",
        "writes itself",
    ),
    (
        "factors are scaled differently",
        SDPA.replace("Mul(k, half)", "Mul(k, two)"),
        ATTENDED,
        None,
        "scaled dot-product attention",
        "differently",
    ),
    (
        "weights are an output",
        SDPA,
        ATTENDED,
        ["y", "w1"],
        "scaled dot-product attention",
        "not only multiplied",
    ),
    ("no keys", "y = Softmax<axis=-1>(x)", X, None, "keys transposed between Reshapes", "over a product"),
    (
        "keys come transposed",
        SDPA,
        ATTENDED,
        None,
        "keys transposed between Reshapes",
        "between two Reshapes",
    ),
    (
        "not reshaped back",
        "f = Reshape(x, groups)\ny = InstanceNormalization(f, ones, zeros)",
        IMAGE,
        None,
        "group normalization",
        "reshaped back",
    ),
]


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs", "rule", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refusals_say_why(
    nodes: str, inputs: dict[str, tuple[int, ...]], outputs: list[str] | None, rule: str, words: str
) -> None:
    graph = build(nodes, inputs, outputs)
    reasons = [item.reason for item in explain(graph, runtime="eager") if item.rule == rule]
    assert reasons
    assert all(reason is not None for reason in reasons)
    assert any(words in (reason or "") for reason in reasons), reasons


def test_every_rule_has_rows() -> None:
    matched = set()
    for _, nodes, inputs, _, runtimes in MATCHING:
        matched |= {item.rule for item in explain(build(nodes, inputs), runtime=runtimes[-1]) if item.merged}
    own_tests = {"assignment to a slice", "keys transposed between Reshapes", "a range of places gathered"}
    assert matched == {pattern.name for pattern in PATTERNS} - own_tests
    refused = {row[4] for row in REFUSED}
    assert refused >= {pattern.name for pattern in PATTERNS if "eager" in pattern.runtimes}


def test_values_outside_stay_and_inner_ones_go() -> None:
    graph = recognise(build(GELU, X), runtime="eager")
    assert "x" in graph.values
    assert "y" in graph.values
    assert not {"d", "e", "a", "m"} & set(graph.values)


def test_a_graph_without_matches_comes_back_as_it_is() -> None:
    graph = build("y = Relu(x)", X)
    assert recognise(graph, runtime="eager") is graph


def test_values_that_a_body_uses_are_not_inner() -> None:
    text = """
        s = Sigmoid(x)
        y = Mul(x, s)
        z = If (flag) <
            then_branch = yes () => (float[2,8,16] a) { a = Relu(s) },
            else_branch = no () => (float[2,8,16] b) { b = Neg(s) }
        >
    """
    nodes = split("s = Sigmoid(x)\ny = Mul(x, s)")
    nodes += split(" ".join(text.strip().splitlines()[2:]))
    graph = inferred(nodes, X | {"flag": ()}, types={"flag": 9}, outputs=["y", "z"])
    assert [node.op_type for node in recognise(graph, runtime="eager").graph.nodes] == ["Sigmoid", "Mul", "If"]


def test_bodies_are_searched_too() -> None:
    nodes = split(
        "z = If (flag) < then_branch = yes () => (float[2,8,16] a) { s = Sigmoid(x) a = Mul(x, s) },"
        " else_branch = no () => (float[2,8,16] b) { b = Neg(x) } >"
    )
    graph = recognise(inferred(nodes, X | {"flag": ()}, types={"flag": 9}), runtime="eager")
    assert [node.op_type for node in graph.bodies[graph.graph.nodes[0].name, "then_branch"].graph.nodes] == ["Swish"]


def test_time_is_linear_in_the_graph() -> None:
    """Chains of operators at which rules start, and that they walk along: ten times the nodes, ten times the steps."""

    def steps(count: int) -> int:
        taken = 0

        def counted(frame: object, event: str, _: object) -> None:
            nonlocal taken
            taken += event == "call"

        kinds = ("Identity", "Identity", "Tanh", "Sigmoid")
        nodes = [helper.make_node(kinds[index % 4], [f"v{index}"], [f"v{index + 1}"]) for index in range(count)]
        graph = inferred(nodes, {"v0": (4,)})
        sys.setprofile(counted)
        try:
            lower(recognise(graph, runtime="compiled"), runtime="compiled")
        finally:
            sys.setprofile(None)
        return taken

    assert steps(4000) < 11 * steps(400)
