"""What ONNX Runtime and TensorRT make of small graphs: kernels before and after, by hand, and why not more."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from graphs import inferred, split, value_info
from neusight_onnx.analysis import analyze
from neusight_onnx.assembly import Placed, quickest
from neusight_onnx.cli.app import run
from neusight_onnx.comparison.cases import compare
from neusight_onnx.comparison.points import sweep
from neusight_onnx.comparison.what_if import Question, variants
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.alternatives import with_alternatives
from neusight_onnx.fusion.engine_rules import ENGINE_RULES
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.fusion.runtimes import fused_graph, fusion_verdicts
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.graph.read import read_model, read_model_bytes
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    HostWork,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Softmax,
    TensorSpec,
    Transfer,
)
from neusight_onnx.lowering.walk import ON_HOST
from neusight_onnx.precision import resolve
from neusight_onnx.predictor import Prediction, predict
from neusight_onnx.preparation import PreparedModel, infer_shapes, prepare, works_of
from neusight_onnx.report.model import HostSummary
from neusight_onnx.runtime import RUNTIMES

RESNET = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
IMAGE = {"x": (2, 3, 8, 8)}
CONV_RELU = """
c = Conv(x, w, b)
n = BatchNormalization(c, k, k, k, k)
r = Relu(n)
d = Conv(r, w2)
s = Add(d, r)
y = Relu(s)
"""
CONV_WEIGHTS = {"w": (4, 3, 1, 1), "b": (4,), "k": (4,), "w2": (4, 4, 1, 1)}
TOKENS = {"x": (2, 6, 16)}
FEED_FORWARD = """
m = MatMul(x, w)
a = Add(m, b)
g = Gelu(a)
p = MatMul(g, v)
q = Add(p, c)
s = Add(q, x)
y = LayerNormalization(s, scale, shift)
"""
WEIGHTS = {"w": (16, 32), "b": (32,), "v": (32, 16), "c": (16,), "scale": (16,), "shift": (16,)}
HEADS = {"q": (2, 4, 6, 16), "k": (2, 4, 6, 16), "v": (2, 4, 6, 16), "mask": (2, 1, 1, 6)}
ATTENTION = """
t = Transpose<perm=[0,1,3,2]>(k)
p = MatMul(q, t)
s = Div(p, root)
a = Add(s, mask)
p2 = Softmax<axis=-1>(a)
y = MatMul(p2, v)
"""
HALF = dict.fromkeys((*HEADS, "root"), 10)


ALL_WEIGHTS = {True: CONV_WEIGHTS, False: WEIGHTS}


def built(
    nodes: str, inputs: dict[str, tuple[int, ...]], *, half: bool = False, outputs: list[str] | None = None
) -> InferredGraph:
    used = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    number = np.float16 if half else np.float32
    return inferred(
        nodes,
        {name: shape for name, shape in inputs.items() if name in used},
        weights={name: shape for name, shape in ALL_WEIGHTS[inputs is IMAGE].items() if name in used - set(inputs)},
        outputs=outputs,
        constants={"root": number(2.8)} if "root" in used else {},
        types=HALF if half else None,
        opset=20,
    )


def shown(graph: InferredGraph, runtime: str) -> list[str]:
    """The kernels, in order: class, and what is fused into it."""
    found = []
    for work in works_of(fused_graph(graph, RUNTIMES[runtime]), RUNTIMES[runtime]):
        for kernel in work.kernels:
            match kernel:
                case Gemm() | Conv():
                    extra = kernel.epilogue
                case Elementwise():
                    extra = kernel.operations
                case Softmax() | Normalization():
                    extra = kernel.fused
                case _:
                    extra = (getattr(kernel, "operation", ""),)
            found.append(" ".join((KERNEL_CLASSES[type(kernel)], *filter(None, extra))))
    return found


@pytest.mark.parametrize(
    ("nodes", "inputs", "half", "runtime", "expected"),
    [
        pytest.param(
            CONV_RELU,
            IMAGE,
            False,
            "eager",
            [
                "conv",
                "elementwise add",
                "normalization",
                "elementwise relu",
                "conv",
                "elementwise add",
                "elementwise relu",
            ],
            id="convolutions, eager",
        ),
        # the normalization is in the weights; cuDNN's convolution has neither bias nor activation
        pytest.param(
            CONV_RELU,
            IMAGE,
            False,
            "onnxruntime",
            ["conv", "elementwise add", "elementwise relu", "conv", "elementwise add", "elementwise relu"],
            id="convolutions, onnxruntime",
        ),
        pytest.param(
            CONV_RELU, IMAGE, False, "tensorrt", ["conv bias relu", "conv add relu"], id="convolutions, tensorrt"
        ),
        # all sizes are fixed, so that both biases go into Gemm, which spreads them first
        pytest.param(
            FEED_FORWARD,
            TOKENS,
            False,
            "onnxruntime",
            ["movement bias", "gemm add", "elementwise gelu", "movement bias", "gemm add", "normalization add"],
            id="feed-forward, onnxruntime",
        ),
        pytest.param(
            FEED_FORWARD,
            TOKENS,
            False,
            "tensorrt",
            ["gemm bias gelu", "gemm", "normalization add add"],
            id="feed-forward, tensorrt: nothing but the normalization reads the sum",
        ),
        pytest.param(
            FEED_FORWARD + "z = Add(y, s)\n",
            TOKENS,
            False,
            "tensorrt",
            ["gemm bias gelu", "gemm bias add", "normalization add"],
            id="feed-forward, tensorrt: the sum goes on, too",
        ),
        pytest.param(
            ATTENTION,
            HEADS,
            False,
            "onnxruntime",
            ["gemm", "softmax add", "gemm"],
            id="attention, onnxruntime: scale and transposition in the product, the mask in the softmax",
        ),
        pytest.param(
            ATTENTION, HEADS, False, "tensorrt", ["gemm", "softmax div add", "gemm"], id="attention, tensorrt in FP32"
        ),
        pytest.param(ATTENTION, HEADS, True, "tensorrt", ["attention"], id="attention, tensorrt in FP16"),
        pytest.param(
            ATTENTION.replace("Add(s, mask)", "Add(mask, s)"),
            HEADS | {"mask": (2, 4, 6, 6)},
            True,
            "tensorrt",
            ["attention"],
            id="attention, tensorrt: what is added is each head's own",
        ),
        pytest.param(
            ATTENTION.replace("Add(s, mask)", "Add(s, exped)").replace("a =", "exped = Exp(mask)\na ="),
            HEADS | {"mask": (2, 4, 6, 6)},
            True,
            "tensorrt",
            ["elementwise exp", "attention"],
            id="attention, tensorrt: what is added is computed",
        ),
        pytest.param(
            ATTENTION.replace("MatMul(p2, v)", "MatMul(c2, v)").replace(
                "y =", "c1 = Cast<to=10>(p2)\nc2 = Cast<to=10>(c1)\ny ="
            ),
            HEADS,
            True,
            "tensorrt",
            ["attention"],
            id="attention, tensorrt: casts that change nothing",
        ),
        pytest.param(
            ATTENTION.replace("Softmax<axis=-1>(a)", "Softmax<axis=-1>(c1)")
            .replace("p2 =", "c1 = Cast<to=1>(a)\np2 =")
            .replace("y = MatMul(p2, v)", "c2 = Cast<to=10>(p2)\ny = MatMul(c2, v)"),
            HEADS,
            True,
            "tensorrt",
            ["attention"],
            id="attention, tensorrt: the softmax in FP32, the scores scaled and masked before",
        ),
    ],
)
def test_kernels(nodes: str, inputs: dict[str, tuple[int, ...]], half: bool, runtime: str, expected: list[str]) -> None:
    graph = built(nodes, inputs, half=half)
    assert shown(graph, runtime) == expected
    origins = {origin.name for node in fused_graph(graph, RUNTIMES[runtime]).graph.nodes for origin in node.origins}
    named = origins | {node.name for node in fused_graph(graph, RUNTIMES[runtime]).graph.nodes}
    assert {node.name for node in graph.graph.nodes} <= named


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs", "runtime", "rule", "words"),
    [
        pytest.param(
            "c = Conv(x, w)\nr = Relu(c)\ny = Add(r, c)",
            IMAGE,
            None,
            "tensorrt",
            "epilogue of a product",
            "is used elsewhere",
            id="a convolution's result with two readers",
        ),
        pytest.param(
            "c = Conv(x, w)\ny = Relu(c)",
            IMAGE,
            ["y", "c"],
            "tensorrt",
            "epilogue of a product",
            "is used elsewhere",
            id="a convolution's result that is asked for",
        ),
        pytest.param(
            "c = Conv(x, w)\ny = Softplus(c)",
            IMAGE,
            None,
            "tensorrt",
            "epilogue of a product",
            "no kernel that applies Softplus",
            id="an activation that convolutions don't have",
        ),
        pytest.param(
            "c = Conv(x, w)\nd = Conv(x, w)\ne = Conv(x, w)\ns = Add(c, d)\ny = Add(s, e)",
            IMAGE,
            None,
            "tensorrt",
            "epilogue of a product",
            "one tensor at most",
            id="two residual sums",
        ),
        pytest.param(
            ATTENTION, HEADS, None, "tensorrt", "attention in one kernel", "16 and 8 bits only", id="attention in FP32"
        ),
        pytest.param(
            "s = Add(x, x)\nr = Relu(s)\nt = Add(s, r)\ny = LayerNormalization(t, scale, shift)",
            TOKENS,
            ["y", "t"],
            "onnxruntime",
            "sum and layer normalization",
            "used elsewhere",
            id="a sum that is read twice",
        ),
        pytest.param(
            "m = MatMul(x, w)\ny = Gelu(m)",
            TOKENS,
            None,
            "onnxruntime",
            "bias and GELU",
            "nothing is added",
            id="GELU without a bias",
        ),
    ],
)
def test_refusals_say_why(
    nodes: str,
    inputs: dict[str, tuple[int, ...]],
    outputs: list[str] | None,
    runtime: str,
    rule: str,
    words: str,
) -> None:
    said = fusion_verdicts(built(nodes, inputs, outputs=outputs), RUNTIMES[runtime])
    reasons = [verdict.reason or "" for verdict in said if verdict.rule == rule]
    assert any(words in reason for reason in reasons), said


PACKED = """
t = Transpose<perm=[2,0,3,1,4]>(x)
a, b, c = Split<axis=0, num_outputs=3>(t)
q = Reshape(a, heads)
k = Reshape(b, heads)
v = Reshape(c, heads)
s = Mul(q, scale)
u = Transpose<perm=[0,1,3,2]>(k)
p = MatMul(s, u)
w = Softmax<axis=-1>(p)
o = MatMul(w, v)
"""
"""Queries, keys and values out of one tensor, as timm's vision transformers have it."""


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(PACKED, ["attention"], id="split"),
        pytest.param(
            PACKED.replace("a, b, c = Split<axis=0, num_outputs=3>(t)\n", "")
            .replace("Reshape(a, heads)", "Gather(t, i0)")
            .replace("Reshape(b, heads)", "Gather(t, i1)")
            .replace("Reshape(c, heads)", "Gather(t, i2)"),
            ["attention"],
            id="indexed",
        ),
        # as exporters write the scale of their own attention: from the size of a head, on both factors
        pytest.param(
            PACKED.replace("s = Mul(q, scale)", "z = Shape<start=-1>(q)\ns = Mul(q, scale)").replace(
                "p = MatMul(s, u)", "e = Mul(u, scale)\np = MatMul(s, e)"
            ),
            ["attention"],
            id="split, PyTorch's own attention",
        ),
        # the Transpose's result is a tensor of its own: the three lie in it
        pytest.param(
            PACKED.replace("(x)\n", "(x)\nr = Relu(t)\n"),
            ["elementwise transpose relu", "attention"],
            id="read by others",
        ),
        # elements of a head are not next to each other, which fused attention asks for
        pytest.param(
            PACKED.replace("perm=[2,0,3,1,4]", "perm=[2,0,3,4,1]"),
            ["movement transpose", "attention"],
            id="heads that are not dense",
        ),
    ],
)
def test_fused_attention_reads_by_strides(nodes: str, expected: list[str]) -> None:
    """x is (batch, tokens, 3, heads, 16)."""
    graph = inferred(
        nodes,
        {"x": (2, 16, 3, 4, 16)},
        constants={"scale": np.float16(0.35), "heads": [2, 4, 16, 16], **{f"i{i}": np.int64(i) for i in range(3)}},
        types={"x": 10},
        outputs=["o", *(["r"] if "r =" in nodes else [])],
        opset=20,
    )
    assert shown(graph, "tensorrt") == expected


BIASED = PACKED.replace("(x)\n", "(r)\n").replace(
    "t = ", "m = MatMul(x, l)\nf = Add(m, vector)\nr = Reshape(f, packed)\nt = ", 1
)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(BIASED, ["gemm", *["elementwise add"] * 3, "attention"], id="attention alone reads it"),
        pytest.param(
            BIASED + "z = Relu(f)\n", ["gemm bias", "attention", "elementwise relu"], id="something else does, too"
        ),
    ],
)
def test_the_bias_of_queries_keys_and_values_is_added_behind_their_product(nodes: str, expected: list[str]) -> None:
    """A kernel for each of the three parts; x is (batch, tokens, 64)."""
    graph = inferred(
        nodes,
        {"x": (2, 16, 64)},
        weights={"l": (64, 192), "vector": (192,)},
        constants={"scale": np.float16(0.35), "heads": [2, 4, 16, 16], "packed": [2, 16, 3, 4, 16]},
        types={"x": 10, "l": 10, "vector": 10},
        outputs=["o", *(["z"] if "z =" in nodes else [])],
        opset=20,
    )
    assert sorted(shown(graph, "tensorrt")) == sorted(expected)


def test_open_sizes_keep_a_bias_apart() -> None:
    """MatMulAddFusion asks for fixed sizes: with an open batch, whatever it is bound to, the bias stays a kernel."""
    graph = inferred("m = MatMul(x, w)\ny = Add(m, b)", TOKENS, weights={"w": (16, 32), "b": (32,)})
    (declared,) = graph.graph.inputs
    opened = replace(graph, graph=replace(graph.graph, inputs=(replace(declared, shape=("batch", 6, 16)),)))
    assert shown(graph, "onnxruntime") == ["movement bias", "gemm add"]
    assert shown(opened, "onnxruntime") == ["gemm", "elementwise add"]
    assert shown(opened, "tensorrt") == ["gemm bias"]
    (reason,) = [item.reason for item in fusion_verdicts(opened, RUNTIMES["onnxruntime"]) if item.rule == "linear"]
    assert reason == "of more than two dimensions, and the file leaves sizes open: MatMulAddFusion asks for fixed ones"


def test_linear_layers_of_one_input_are_one_product() -> None:
    """(2 x 6, 16) by three (16, 8): n = 24; biases are added where the parts are read, here in one sum."""
    nodes = "\n".join(f"m{i} = MatMul(x, w{i})\na{i} = Add(m{i}, b{i})" for i in range(3))
    graph = inferred(
        f"{nodes}\ny = Sum(a0, a1, a2)",
        TOKENS,
        weights={f"w{i}": (16, 8) for i in range(3)} | {f"b{i}": (8,) for i in range(3)},
    )
    runtime = RUNTIMES["tensorrt"]
    product, *rest = [kernel for work in works_of(fused_graph(graph, runtime), runtime) for kernel in work.kernels]
    assert product == Gemm(m=12, n=24, k=16, b_is_weight=True, dtype=DataType.FLOAT32)
    assert [getattr(kernel, "operations", ()) for kernel in rest] == [("add",) * 5]


@pytest.mark.parametrize(
    ("gpu", "runtime", "asked", "executed"),
    [
        ("a100", "onnxruntime", "auto", "tf32"),
        ("a100", "tensorrt", "auto", "tf32"),
        ("a100", "onnxruntime", "fp32", "fp32"),
        ("a100", "onnxruntime", "tf32", "tf32"),
        ("a100", "onnxruntime", "fp16", "fp16"),
        ("t4", "onnxruntime", "auto", "fp32"),
        # no library of NVIDIA's runs there
        ("mi300x", "onnxruntime", "auto", "fp32"),
    ],
)
def test_runtimes_that_multiply_float32_in_tf32_unasked(gpu: str, runtime: str, asked: str, executed: str) -> None:
    report = analyze(RESNET, gpu=gpu, dims={"batch": 2}, runtime=runtime, precision=asked)
    assert report.settings.precision == executed
    products = {row.dtype for row in report.kernels if row.kernel_class in ("conv", "gemm")}
    assert products == {{"fp32": "float32", "fp16": "float16"}.get(executed, executed)}
    said = [text for text in report.assumptions if "unasked" in text]
    assert len(said) == (executed == "tf32" and asked == "auto")
    if executed == "tf32":
        explicit = analyze(RESNET, gpu=gpu, dims={"batch": 2}, runtime=runtime, precision="tf32")
        assert report.totals.latency_ms == explicit.totals.latency_ms
        assert {row.dtype for row in report.kernels if row.kernel_class == "elementwise"} <= {"float32"}


def test_what_is_executed_alike_is_compared_once() -> None:
    """auto is tf32 on an A100 and fp32 on a T4, which has no TF32."""
    found = compare(RESNET, gpus=["a100", "t4"], precisions=["auto", "fp32", "tf32"], dims={"batch": 1})
    cases = sorted((case.gpu.name, case.precision) for case in found.cases)
    assert cases == [("a100-sxm-80gb", "fp32"), ("a100-sxm-80gb", "tf32"), ("t4", "fp32")]
    assert "precision" in found.varied


INTEGERS = {
    name: np.array(value, np.int64)
    for name, value in {
        "i0": 0,
        "i1": 1,
        "i2": 2,
        "n0": [0],
        "four": [4],
        "last": [-1],
        "most": [2**62],
        "five": [5],
    }.items()
}
HALVES = """
a = Slice(x, n0, four, last)
b = Slice(x, {start}, most, last)
n = Neg(b)
r = Concat<axis=-1>(n, a)
y = Mul(r, x)
"""
APART = {
    # (2, 6, 3, 4, 8) as (3, 2, 4, 6, 8): one copy of all 1,152 numbers, 384 a part; the Transpose comes last
    "queries, keys and values by index": (
        """
        t = Transpose<perm=[2, 0, 3, 1, 4]>(x)
        q = Gather<axis=0>(t, i0)
        k = Gather<axis=0>(t, i1)
        v = Gather<axis=0>(t, i2)
        s = Add(q, k)
        y = Mul(s, v)
        """,
        (2, 6, 3, 4, 8),
        [("Split", 4 * 1152), ("Add", 4 * 384), ("Mul", 4 * 384), ("Transpose", 4 * 384)],
    ),
    "the same by a Split": (
        """
        t = Transpose<perm=[2, 0, 3, 1, 4]>(x)
        q, k, v = Split<axis=0>(t)
        s = Add(q, k)
        y = Mul(s, v)
        """,
        (2, 6, 3, 4, 8),
        [("Split", 4 * 1152), ("Add", 4 * 384), ("Mul", 4 * 384), ("Transpose", 4 * 384)],
    ),
    "halves of what is read whole as well": (
        HALVES.format(start="four"),
        (2, 3, 8),
        [("Split", 4 * 48), ("Neg", 4 * 24), ("Concat", 4 * 48), ("Mul", 4 * 48)],
    ),
    "a gap": (
        HALVES.format(start="five").replace("y = Mul(r, x)", "y = Relu(r)"),
        (2, 3, 8),
        [("Slice", 4 * 24), ("Slice", 4 * 18), ("Neg", 4 * 18), ("Concat", 4 * 42), ("Relu", 4 * 42)],
    ),
}


@pytest.mark.parametrize(("nodes", "shape", "expected"), APART.values(), ids=APART.keys())
def test_what_takes_a_tensor_apart(nodes: str, shape: tuple[int, ...], expected: list[tuple[str, int]]) -> None:
    graph = inferred(nodes, {"x": shape}, constants=INTEGERS)
    fused = fused_graph(graph, RUNTIMES["onnxruntime"])
    works = [work for work in works_of(fused, RUNTIMES["onnxruntime"]) if work.kernels]
    assert [(work.op_type, sum(kernel.write_bytes for kernel in work.kernels)) for work in works] == expected
    for node in fused.graph.nodes:
        if node.op_type == "Transpose":
            before, behind = fused.values[node.inputs[0]].shape, fused.values[node.outputs[0]].shape
            assert before is not None
            assert tuple(before[place] for place in cast("tuple[int, ...]", node.attributes["perm"])) == behind


def test_parts_of_what_has_no_known_size_stay_apart(tmp_path: Path) -> None:
    """ONNX Runtime knows no sizes behind a Reshape to two computed numbers, unless the file fixes all sizes."""
    text = TO_HEADS.format(rows=BOTH, target="m1, minus, four").replace("y = Reshape", "h = Reshape")
    text += "".join(f"\np{at} = Gather<axis=2>(h, i{at})" for at in range(4))
    text += "\na = Add(p0, p1)\nc = Add(p2, p3)\ny = Add(a, c)"
    for shape, expected in ((["batch", "tokens", 16], ["Gather"] * 4), ([2, 3, 16], ["Split"])):
        works = prepared_for_ort(text, shape, tmp_path).work
        assert [work.op_type for work in works if work.kernels and work.op_type in ("Gather", "Split")] == expected


TO_HEADS = """
s = Shape(x)
b = Gather(s, i0)
n = Gather(s, i1)
b1 = Unsqueeze(b, axes)
n1 = Unsqueeze(n, axes)
{rows}
t = Concat<axis=0>({target})
y = Reshape(x, t)
"""


def prepared_for_ort(nodes: str, shape: list[object], folder: Path) -> PreparedModel:
    """A model of one input x at a batch of 2 and 3 tokens."""
    integers = {"i0": 0, "i1": 1, "i2": 2, "i3": 3, "axes": [0], "four": [4], "eight": [8], "minus": [-1]}
    constants = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in integers.items()]
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(split(nodes), "g", [declared], [output], constants)
    path = folder / "heads.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    dims = {"batch": 2, "tokens": 3} if "batch" in shape else {}
    shaped = infer_shapes(read_model(path), make_bindings(dims, None, None, None))
    return prepare(shaped, precision=resolve("auto", DataType.FLOAT32), runtime="onnxruntime")


BOTH = "m = Mul(b, n)\nm1 = Unsqueeze(m, axes)"


@pytest.mark.parametrize(
    ("rows", "target", "open_sizes", "executed"),
    [
        ("r = Sqrt(x)", "b1, n1, four, four", True, []),
        ("r = Sqrt(x)", "b1, n1, four, four", False, []),
        # n is no size of the first place; one such number is found by -1
        ("r = Sqrt(x)", "n1, four, eight", True, []),
        (BOTH, "m1, four, four", True, []),
        (BOTH, "m1, minus, four", True, ["Shape", "Gather", "Gather", "Mul", "Unsqueeze", "Concat"]),
    ],
    ids=["sizes of the input", "fixed sizes", "one other size", "one number", "two numbers"],
)
def test_shape_arithmetic_that_a_run_executes(
    rows: str, target: str, open_sizes: bool, executed: list[str], tmp_path: Path
) -> None:
    text = TO_HEADS.format(rows=rows, target=target)
    works = prepared_for_ort(text, ["batch", "tokens", 16] if open_sizes else [2, 3, 16], tmp_path).work
    found = [work.op_type for work in works if work.free == ON_HOST and work.host_operation]
    assert found == executed


UNIQUE = "a = Relu(x)\nd = Det(a)\ne = Relu(d)\ny = Det(a)"


@pytest.mark.parametrize(
    ("left", "on_host"), [(TensorProto.UINT8, True), (TensorProto.INT8, False)], ids=["uint8", "int8"]
)
def test_products_of_integers_have_a_kernel_for_int8_alone(left: int, on_host: bool) -> None:
    graph = inferred(
        "y = MatMulInteger(x, w)", {"x": (3, 4)}, weights={"w": (4, 5)}, types={"x": left, "w": TensorProto.INT8}
    )
    work = works_of(graph, RUNTIMES["onnxruntime"])[-1]
    found = [type(kernel).__name__ for kernel in work.kernels]
    assert found == (["Transfer", "HostWork", "Transfer"] if on_host else ["Gemm"])


@pytest.mark.parametrize(
    ("text", "shape", "kind", "opset", "on_host"),
    [
        ("y = MaxPool<kernel_shape = [2, 2]>(x)", (1, 3, 8, 8), TensorProto.FLOAT, 21, False),
        ("y = MaxPool<kernel_shape = [2, 2]>(x)", (1, 3, 8, 8), TensorProto.FLOAT, 22, True),
        ("y = Pad(x, places)", (4,), TensorProto.FLOAT, 17, False),
        ("y = Pad(x, places)", (4,), TensorProto.INT64, 17, True),
        ("y = ArgMax<axis = 1>(x)", (4, 8), TensorProto.FLOAT, 17, False),
        ("y = ArgMax<axis = 1, select_last_index = 1>(x)", (4, 8), TensorProto.FLOAT, 17, True),
        ("y = GridSample(x, grid)", (1, 2, 4, 4), TensorProto.FLOAT, 17, False),
        ("y = GridSample(x, grid)", (1, 2, 4, 4), TensorProto.FLOAT16, 17, True),
        ('y = ConvTranspose<auto_pad = "SAME_UPPER">(x, w)', (1, 2, 4, 4), TensorProto.FLOAT, 17, True),
        ("y = ConvTranspose(x, w)", (1, 2, 4, 4), TensorProto.FLOAT, 17, False),
    ],
)
def test_onnx_runtime_has_kernels_by_version_type_and_form(
    text: str, shape: tuple[int, ...], kind: int, opset: int, on_host: bool
) -> None:
    """As onnxruntime-gpu 1.31.1 places these nodes (benchmarks/cuda_standin.py)."""
    graph = inferred(
        text,
        {"x": shape},
        weights={"w": (2, 2, 3, 3), "grid": (1, 4, 4, 2)},
        constants={"places": np.array([1, 1], np.int64)},
        types={"x": kind, "grid": kind},
        opset=opset,
    )
    kernels = works_of(graph, RUNTIMES["onnxruntime"])[-1].kernels
    assert any(isinstance(kernel, HostWork) for kernel in kernels) == on_host


@pytest.mark.parametrize(("kind", "on_host"), [(TensorProto.FLOAT16, False), (TensorProto.FLOAT, True)])
def test_grouped_queries_have_a_kernel_in_16_bits_alone(kind: int, on_host: bool) -> None:
    graph = inferred(
        "y, nk, nv = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(q, k, v, pk, pv, n, t)",
        {"q": (1, 3, 32), "k": (1, 3, 16), "v": (1, 3, 16), "pk": (1, 2, 5, 8), "pv": (1, 2, 5, 8), "n": (1,)},
        constants={"t": np.array(8, np.int32)},
        types=dict.fromkeys(("q", "k", "v", "pk", "pv"), kind) | {"n": TensorProto.INT32},
    )
    kernels = works_of(graph, RUNTIMES["onnxruntime"])[-1].kernels
    assert any(isinstance(kernel, HostWork) for kernel in kernels) == on_host


def test_what_a_convolution_on_the_host_takes() -> None:
    """Its MACs are counted, at the rate of a server's cores, four times more or less."""
    graph = inferred(
        "y = QLinearConv<pads=[1, 1, 1, 1]>(x, s, z, w, s, z, s, z)",
        {"x": (32, 64, 56, 56)},
        weights={"w": (64, 64, 3, 3), "s": (), "z": ()},
        types=dict.fromkeys(("x", "w", "z"), TensorProto.UINT8),
    )
    (work,) = works_of(graph, RUNTIMES["onnxruntime"])
    (kernel,) = (kernel for kernel in work.kernels if isinstance(kernel, HostWork))
    assert kernel.macs == 32 * 64 * 56 * 56 * 64 * 9
    (found,) = predict([kernel], load_gpu("l4"))
    assert 0.5 * 2 * kernel.macs / found.latency_us * 1e6 < 3e12 < 2 * 2 * kernel.macs / found.latency_us * 1e6
    assert found.high_us == pytest.approx(4 * found.latency_us)
    assert found.low_us == pytest.approx(found.latency_us / 4)


def test_biases_of_quantised_models_are_dequantised_on_the_host() -> None:
    """The provider dequantises bytes, not the INT32 of a bias: 2,048 floats are copied to the GPU in every run."""
    graph = inferred(
        "d = DequantizeLinear(b, scale)\ny = Add(x, d)",
        {"x": (3, 2048)},
        weights={"b": (2048,)},
        constants={"scale": np.float32(0.5)},
        types={"b": TensorProto.INT32},
    )
    runtime = RUNTIMES["onnxruntime"]
    work = works_of(fused_graph(graph, runtime), runtime)[0]
    assert [type(kernel).__name__ for kernel in work.kernels] == ["HostWork", "Transfer"]
    assert isinstance(work.kernels[-1], Transfer)
    assert work.kernels[-1].byte_count == 4 * 2048


def test_a_mask_of_open_size_joins_the_softmax_where_the_file_shows_one_shape(tmp_path: Path) -> None:
    text = "s = Add(x, m)\ny = Softmax<axis = -1>(s)"
    for mask, merged in ((["batch", "tokens"], True), (["batch", 1], False), (["batch", "others"], False)):
        graph = helper.make_graph(
            split(text),
            "g",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens"]),
                helper.make_tensor_value_info("m", TensorProto.FLOAT, mask),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )
        path = tmp_path / "model.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        sizes = make_bindings(
            dict.fromkeys({"batch", "tokens", *(item for item in mask if isinstance(item, str))}, 6), None, None, None
        )
        shaped = infer_shapes(read_model(path), sizes)
        found = [node.op_type for node in fused_graph(shaped.expected, RUNTIMES["onnxruntime"]).graph.nodes]
        assert found == (["BiasSoftmax"] if merged else ["Add", "Softmax"])


@pytest.mark.parametrize("width", [1024, 1025])
def test_softmax_with_a_mask_is_over_the_last_dimension(width: int) -> None:
    """(2, 4, 6, width) is 48 rows, whatever ``axis`` was counted from; a warp holds 1,024 elements of one."""
    sizes = {"x": (2, 4, 6, width), "m": (2, 1, 1, width)}
    graph = fused_graph(inferred("s = Add(x, m)\ny = Softmax<axis = -1>(s)", sizes), RUNTIMES["onnxruntime"])
    *before, softmax = [kernel for work in works_of(graph, RUNTIMES["onnxruntime"]) for kernel in work.kernels]
    assert isinstance(softmax, Softmax)
    assert (softmax.rows, softmax.cols, softmax.fused) == (48, width, ("add",) if width == 1024 else ())
    assert [kernel.operations for kernel in before if isinstance(kernel, Elementwise)] == [("add",)] * (width > 1024)
    mask = TensorSpec(dtype=DataType.FLOAT32, shape=sizes["m"])
    assert mask in (softmax.extra_inputs or cast(Elementwise, before[0]).inputs)


def test_an_operator_without_a_kernel_runs_on_the_host() -> None:
    """(3, 4, 4) floats are copied to the host once, for both of the operators that read them; the results come back."""
    graph = inferred(UNIQUE, {"x": (3, 4, 4)}, outputs=["e", "y"])
    works = works_of(fused_graph(graph, RUNTIMES["onnxruntime"]), RUNTIMES["onnxruntime"])
    found = {work.node: [type(kernel).__name__ for kernel in work.kernels] for work in works}
    names = [node.name for node in graph.graph.nodes]
    assert [found[name] for name in names] == [
        ["Elementwise"],
        ["Transfer", "HostWork", "Transfer"],
        ["Elementwise"],
        ["HostWork", "Transfer"],
    ]
    first = next(work for work in works if work.node == names[1])
    assert [kernel.byte_count for kernel in first.kernels if isinstance(kernel, Transfer)] == [4 * 48, 4 * 3]
    assert first.host_waits


@pytest.mark.parametrize(
    ("nodes", "copied", "runtime"),
    [
        # n in 0 .. 4, made by a kernel; two ranges read it
        ("n = ArgMax<keepdims=0>(v)\na = Range(zero, n, one)\ny = Range(n, five, one)", [1, 0], "onnxruntime"),
        ("n = ArgMax<keepdims=1>(v)\nm = Squeeze(n)\ny = Range(zero, m, one)", [1], "onnxruntime"),
        ("n = ArgMax<keepdims=0>(v)\ny = Range(zero, n, one)", [0], "eager"),
        # fed, computed from a shape, or known
        ("y = Range(zero, fed, one)", [0], "onnxruntime"),
        ("y = Range(zero, five, one)", [0], "onnxruntime"),
    ],
    ids=["once", "behind a view", "another runtime", "fed", "known"],
)
def test_sizes_that_kernels_make_are_copied_to_the_host(nodes: str, copied: list[int], runtime: str) -> None:
    """ONNX Runtime's Range reads its numbers on the host: a MemcpyToHost each, for which the host waits."""
    graph = inferred(
        nodes,
        {"v": (5,), "fed": ()},
        constants={"zero": np.array(0), "one": np.array(1), "five": np.array(5)},
        types={"fed": TensorProto.INT64},
        outputs=["y"] if "a =" not in nodes else ["a", "y"],
    )
    works = works_of(fused_graph(graph, RUNTIMES[runtime]), RUNTIMES[runtime])
    ranges = [work for work in works if work.op_type == "Range"]
    found = [[kernel for kernel in work.kernels if isinstance(kernel, Transfer)] for work in ranges]
    assert [len(kernels) for kernels in found] == copied
    assert all(kernel.byte_count == 8 and kernel.direction == "to_host" for kernels in found for kernel in kernels)
    assert [work.host_waits for work in ranges] == [bool(count) for count in copied]


def test_tensorrt_refuses_what_its_parser_lacks() -> None:
    graph = inferred(UNIQUE, {"x": (3, 4, 4)}, outputs=["e", "y"])
    works = works_of(fused_graph(graph, RUNTIMES["tensorrt"]), RUNTIMES["tensorrt"])
    reasons = [work.unsupported for work in works if work.unsupported]
    assert len(reasons) == 2
    assert all("TensorRT's parser has no Det" in reason for reason in reasons)


def test_copies_at_the_boundary_are_counted_where_they_are_asked_for() -> None:
    """Without: two kernels. With: 4 x 16 floats in before, as many out behind; the nodes stay four."""
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    bare = analyze(path, gpu="t4", dims={"batch": 2}, runtime="onnxruntime")
    copied = analyze(path, gpu="t4", dims={"batch": 2}, runtime="onnxruntime", include_io=True)
    moved = [row for row in copied.kernels if row.kernel_class == "transfer"]
    assert [(row.nodes, row.read_bytes) for row in moved] == [
        (("(inputs)",), 2 * 3 * 224 * 224 * 4),
        (("(outputs)",), 2 * 1000 * 4),
    ]
    assert copied.coverage == replace(bare.coverage, latency_share=copied.coverage.latency_share)
    assert copied.totals.latency_ms > bare.totals.latency_ms
    assert copied.settings.include_io
    assert not bare.settings.include_io


def test_a_captured_run_launches_once() -> None:
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    sizes = {"batch": 1}
    plain = analyze(path, gpu="h100", dims=sizes, runtime="onnxruntime")
    captured = analyze(path, gpu="h100", dims=sizes, runtime="onnxruntime", cuda_graph=True)
    assert plain.host.is_bound
    assert plain.host.free_from_batch is not None
    assert not captured.host.is_bound
    assert captured.totals.overhead_ms == pytest.approx(RUNTIMES["onnxruntime"].graph_us / 1e3)
    assert captured.totals.kernel_ms == pytest.approx(plain.totals.kernel_ms)


@pytest.mark.parametrize(
    ("name", "sizes", "runtime", "precision"),
    [
        pytest.param(
            "bert_base.onnx", {"batch": 1, "sequence": 16}, "onnxruntime", "auto", id="kernels that fill little"
        ),
        pytest.param("bert_base.onnx", {"batch": 3, "sequence": 128}, "eager", "fp16", id="doublings of 3"),
        pytest.param("resnet50.onnx", {"batch": 1}, "onnxruntime", "auto", id="convolutions"),
    ],
)
def test_the_batch_that_frees_the_gpu_of_the_host_does(
    name: str, sizes: dict[str, int], runtime: str, precision: str
) -> None:
    """Small kernels take hardly longer at a larger batch: scaled by their tiles they fell short 4 to 12 times."""
    path = Path(__file__).parent.parent / "examples" / name

    def bound(batch: int) -> HostSummary:
        report = analyze(path, gpu="b200", dims={**sizes, "batch": batch}, runtime=runtime, precision=precision)
        return report.host

    said = bound(sizes["batch"])
    assert said.is_bound
    assert said.free_from_batch is not None
    assert not bound(said.free_from_batch).is_bound
    before = bound(said.free_from_batch // 2)
    assert before.is_bound
    assert before.free_from_batch == said.free_from_batch


def test_no_batch_to_vary_frees_nothing() -> None:
    """A batch that --shape fixes can't be varied: none is named."""
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    report = analyze(path, gpu="b200", shapes={"images": (1, 3, 224, 224)}, runtime="onnxruntime")
    assert report.host.is_bound
    assert report.host.free_from_batch is None


def test_onnxruntime_runs_quantised_pairs_one_by_one() -> None:
    """Its CUDA provider has no kernels between the pairs: it dequantises, multiplies in FP32, and quantises again."""
    nodes = """
        a = QuantizeLinear(x, s, z)
        b = DequantizeLinear(a, s, z)
        w = DequantizeLinear(wq, s, z)
        m = MatMul(b, w)
        c = QuantizeLinear(m, s, z)
        y = DequantizeLinear(c, s, z)
    """
    graph = inferred(
        nodes,
        {"x": (6, 16)},
        constants={"s": np.float32(0.1), "z": np.int8(0), "wq": np.zeros((16, 8), np.int8)},
    )
    assert shown(graph, "onnxruntime") == [
        "elementwise quantize",
        "elementwise dequantize",
        "elementwise dequantize",
        "gemm",
        "elementwise quantize",
        "elementwise dequantize",
    ]
    # TensorRT multiplies integers; the pairs at the ends stay
    assert shown(graph, "tensorrt") == ["elementwise quantize", "gemm requantize", "elementwise dequantize"]


PARTS = ["gemm", "softmax div add", "gemm"]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        pytest.param({"q": (2, 4, 6, 26), "k": (2, 4, 6, 26), "v": (2, 4, 6, 26)}, PARTS, id="26, no multiple of 8"),
        pytest.param({"q": (2, 4, 6, 256), "k": (2, 4, 6, 256), "v": (2, 4, 6, 256)}, ["attention"], id="256"),
        pytest.param({"q": (2, 4, 6, 264), "k": (2, 4, 6, 264), "v": (2, 4, 6, 264)}, PARTS, id="264"),
        pytest.param({"q": (2, 4, 6, 8), "k": (2, 4, 6, 8), "v": (2, 4, 6, 8)}, PARTS, id="8"),
        pytest.param({"v": (2, 4, 6, 32)}, PARTS, id="values of another width"),
        pytest.param(
            {"q": (1, 1, 6, 16), "k": (1, 1, 6, 16), "v": (1, 1, 6, 16), "mask": (1, 1, 1, 6)},
            PARTS,
            id="one head in all",
        ),
    ],
)
def test_heads_that_the_fused_kernel_takes(shapes: dict[str, tuple[int, ...]], expected: list[str]) -> None:
    """Multiples of 8 by TensorRT's guide; the rest as engines of TensorRT for RTX 1.7 have it."""
    assert shown(built(ATTENTION, HEADS | shapes, half=True), "tensorrt") == expected


WINDOWS = """
t = Transpose<perm=[0,1,3,2]>(k)
p = MatMul(q, t)
b = Add(p, bias)
r = Reshape(b, windows)
a = Add(r, mask)
g = Reshape(a, heads)
w = Softmax<axis=-1>(g)
y = MatMul(w, v)
"""
"""Attention of shifted windows, as Swin has it: a bias of each head, a mask of each window."""
NO_NUMBERS = """
t = Transpose<perm=[0,1,3,2]>(k)
p = MatMul(q, t)
s = Mul(p, root)
a = Add(s, mask)
w = Softmax<axis=-1>(a)
n = IsNaN(w)
z = Where(n, zero, w)
y = MatMul(z, v)
"""
"""Rows without any key become zeros, as PyTorch's newer exporter writes it."""


@pytest.mark.parametrize(
    ("nodes", "shapes", "expected"),
    [
        pytest.param(WINDOWS, {}, ["attention"], id="windows"),
        pytest.param(
            WINDOWS.replace("(b, windows)", "(b, swapped)").replace("Add(r, mask)", "Relu(r)"),
            {},
            ["gemm", "softmax add relu", "gemm"],
            id="windows, a Reshape that takes rows apart",
        ),
        pytest.param(NO_NUMBERS, {"mask": (4, 1, 1, 6)}, ["attention"], id="rows without keys"),
        pytest.param(
            NO_NUMBERS.replace("n = IsNaN(w)\nz = Where(n, zero, w)", "n = Greater(mask, zero)\nz = Where(n, w, zero)"),
            {"mask": (4, 1, 1, 6)},
            ["attention"],
            id="weights that are selected",
        ),
        pytest.param(
            NO_NUMBERS.replace("n = IsNaN(w)\nz = Where(n, zero, w)", "z = Relu(w)"),
            {"mask": (4, 1, 1, 6)},
            ["gemm", "softmax mul add relu", "gemm"],
            id="weights that something computes with",
        ),
        pytest.param(
            WINDOWS.replace(
                "r = Reshape(b, windows)\na = Add(r, mask)\ng = Reshape(a, heads)", "g = Clip(b, zero, root)"
            ),
            {},
            ["attention"],
            id="scores within limits",
        ),
    ],
)
def test_what_lies_between_the_products_of_attention(
    nodes: str, shapes: dict[str, tuple[int, ...]], expected: list[str]
) -> None:
    inputs = dict.fromkeys(("q", "k", "v"), (4, 3, 6, 16)) | {"bias": (1, 3, 6, 6), "mask": (2, 1, 6, 6)} | shapes
    constants = {
        "windows": [2, 2, 3, 6, 6],
        "swapped": [4, 3, 36],
        "heads": [4, 3, 6, 6],
        "zero": np.float16(0),
        "root": np.float16(0.25),
    }
    used = set(re.findall(r"\w+", nodes))
    graph = inferred(
        nodes,
        {name: shape for name, shape in inputs.items() if name in used},
        constants={name: value for name, value in constants.items() if name in used},
        types=dict.fromkeys(inputs, 10),
        outputs=["y"],
        opset=20,
    )
    assert shown(graph, "tensorrt") == expected


def test_pytorchs_own_attention_in_fp32_is_by_parts() -> None:
    """There are fused kernels in 16 and 8 bits only, whatever the exporter's formula was."""
    nodes = "s = Mul(q, root)\nt = Transpose<perm=[0,1,3,2]>(k)\ne = Mul(t, root)\np = MatMul(s, e)\n"
    nodes += "p2 = Softmax<axis=-1>(p)\ny = MatMul(p2, v)"
    assert shown(built(nodes, HEADS), "tensorrt") == ["movement transpose", "gemm", "softmax mul", "gemm"]
    assert shown(built(nodes, HEADS, half=True), "tensorrt") == ["attention"]


def test_attention_over_five_dimensions() -> None:
    """Windows as a dimension of their own, as NesT has them."""
    nodes = ATTENTION.replace("[0,1,3,2]", "[0,1,2,4,3]")
    shapes = dict.fromkeys(("q", "k", "v"), (2, 4, 5, 6, 16)) | {"mask": (2, 1, 1, 1, 6)}
    assert shown(built(nodes, shapes, half=True), "tensorrt") == ["attention"]


def test_a_product_swaps_behind_the_batch_only_after_it_moved_the_batch() -> None:
    """(5, 6, 4) -> (5, 4, 6) -> (4, 5, 6): both attributes together would read (6, 4, 5)."""
    nodes = "s = Transpose<perm=[0,2,1]>(a)\nt = Transpose<perm=[1,0,2]>(s)\ny = MatMul(t, b)"
    shapes = {"a": (5, 6, 4), "b": (4, 6, 7)}
    (swap, product) = recognise(inferred(nodes, shapes), runtime="onnxruntime", rules=ENGINE_RULES).graph.nodes
    assert (swap.op_type, product.inputs, product.attributes) == ("Transpose", ("s", "b"), {"transBatchA": 1})
    turned = "s = Transpose<perm=[1,0,2]>(a)\nt = Transpose<perm=[0,2,1]>(s)\ny = MatMul(t, b)"
    (product,) = recognise(
        inferred(turned, {"a": (5, 4, 6), "b": (4, 5, 7)}), runtime="onnxruntime", rules=ENGINE_RULES
    ).graph.nodes
    assert (product.inputs, product.attributes) == (("a", "b"), {"transA": 1, "transBatchA": 1})


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        pytest.param("y = Sigmoid(c)", ["conv sigmoid"], id="sigmoid"),
        pytest.param("y = Tanh(c)", ["conv tanh"], id="tanh"),
        pytest.param("y = HardSwish(c)", ["conv hardswish"], id="hard swish"),
        pytest.param("y = HardSigmoid(c)", ["conv hardsigmoid"], id="hard sigmoid"),
        pytest.param("y = Elu(c)", ["conv elu"], id="elu"),
        pytest.param("s = Sigmoid(c)\ny = Mul(c, s)", ["conv silu"], id="SiLU"),
        pytest.param("y = Softplus(c)", ["conv", "elementwise softplus"], id="softplus"),
        pytest.param("y = Mish(c)", ["conv", "elementwise mish"], id="mish"),
        pytest.param("a = Add(c, x)\nt = Sigmoid(a)\ny = Mul(a, t)", ["conv add silu"], id="a sum, then SiLU"),
        pytest.param("r = Relu(c)\ny = Add(r, x)", ["conv relu add"], id="ReLU, then a sum"),
        pytest.param("h = HardSwish(c)\ny = Add(h, x)", ["conv hardswish add"], id="hard swish, then a sum"),
        pytest.param(
            "h = HardSwish(c)\nm = ReduceMean<keepdims=1>(h, places)\ng = Conv(m, w)\ny = Mul(h, g)",
            ["conv", "reduction mean", "conv", "elementwise hardswish mul"],
            id="squeeze and excitation",
        ),
        pytest.param(
            "h = Relu(c)\nm = ReduceMean<keepdims=1>(h, places)\ng = Conv(m, w)\ny = Mul(h, g)",
            ["conv relu", "reduction mean", "conv", "elementwise mul"],
            id="squeeze and excitation, ReLU",
        ),
    ],
)
def test_what_a_convolution_applies_in_tensorrt(behind: str, expected: list[str]) -> None:
    graph = inferred(
        f"c = Conv(x, w)\n{behind}",
        {"x": (2, 4, 8, 8)},
        weights={"w": (4, 4, 1, 1)},
        constants={"places": [2, 3]} if "places" in behind else {},
        outputs=["y"],
        opset=22,
    )
    assert shown(graph, "tensorrt") == expected


@pytest.mark.parametrize(
    ("nodes", "half", "expected"),
    [
        pytest.param("", True, ["normalization", "conv"], id="in 16 bits"),
        pytest.param(
            "",
            False,
            ["normalization", "movement transpose", "conv"],
            id="in FP32, whose kernels read the file's order",
        ),
        pytest.param(
            "\nz = Relu(t)",
            True,
            ["normalization", "conv", "elementwise transpose relu"],
            id="read by others",
        ),
    ],
)
def test_channels_that_a_convolution_wants_last_lie_so(nodes: str, half: bool, expected: list[str]) -> None:
    """A normalization over channels, in the order of its own, in front of a convolution."""
    graph = inferred(
        f"n = LayerNormalization(x, g)\nt = Transpose<perm=[0,3,1,2]>(n)\ny = Conv(t, w){nodes}",
        {"x": (2, 8, 8, 16)},
        weights={"g": (16,), "w": (4, 16, 1, 1)},
        types=dict.fromkeys(("x", "g", "w"), 10) if half else None,
        outputs=["y", *(["z"] if nodes else [])],
        opset=22,
    )
    assert sorted(shown(graph, "tensorrt")) == sorted(expected)


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        pytest.param("y = Gelu(m)", ["gemm gelu"], id="GELU"),
        pytest.param("y = HardSwish(m)", ["gemm hardswish"], id="hard swish"),
        pytest.param("y = LeakyRelu(m)", ["gemm leaky_relu"], id="leaky ReLU"),
        pytest.param("r = Relu(m)\ny = Add(r, x)", ["gemm relu add"], id="ReLU, then a sum"),
        pytest.param("y = Tanh(m)", ["gemm", "elementwise tanh"], id="tanh"),
        pytest.param("y = Sigmoid(m)", ["gemm", "elementwise sigmoid"], id="sigmoid"),
        pytest.param("s = Sigmoid(m)\ny = Mul(m, s)", ["gemm", "elementwise silu"], id="SiLU"),
    ],
)
def test_what_a_product_applies_in_tensorrt(behind: str, expected: list[str]) -> None:
    graph = inferred(f"m = MatMul(x, w)\n{behind}", {"x": (2, 4, 16)}, weights={"w": (16, 16)}, outputs=["y"], opset=22)
    assert shown(graph, "tensorrt") == expected


def test_a_what_if_keeps_or_changes_the_graph() -> None:
    """Beside a captured run: the same under more bandwidth (captured, too), and launched kernel by kernel."""
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    base = Question(
        gpu=load_gpu("h100"),
        precision="fp32",
        runtime="onnxruntime",
        bindings=make_bindings({"batch": 1}, None, None, None),
        cuda_graph=True,
    )
    faster, launched = variants(read_model(path), base, ["gpu.memory_bandwidth_gb_s=4800", "cuda_graph=off"])
    graph_ms = RUNTIMES["onnxruntime"].graph_us / 1e3
    assert faster.totals.overhead_ms == pytest.approx(graph_ms)
    assert launched.totals.overhead_ms > 10 * graph_ms


def test_verbose_says_why_nothing_was_merged(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    assert run(["analyze", str(path), "--gpu", "t4", "--runtime", "tensorrt", "-v"]) == 0
    said = capsys.readouterr().err
    assert "not merged by 'epilogue of a product'" not in said  # every one of its activations is in a convolution
    assert "not merged by 'constant into convolution': stage1.0.add and 15 other nodes" in said


@pytest.mark.parametrize(
    ("gpu", "classes"),
    [
        pytest.param("t4", ["attention"], id="Turing"),
        pytest.param("v100", ["gemm", "softmax", "gemm"], id="Volta"),
    ],
)
def test_fused_attention_has_kernels_since_turing(gpu: str, classes: list[str], tmp_path: Path) -> None:
    model = tmp_path / "attention.onnx"
    heads, mask = (8, 12, 128, 64), (8, 1, 1, 128)  # TensorRT takes fewer tokens by parts, where that is quicker
    inputs = {"q": heads, "k": heads, "v": heads, "mask": mask}
    onnx.save(
        helper.make_model(
            helper.make_graph(
                split(ATTENTION),
                "attention",
                [value_info(name, shape, TensorProto.FLOAT16) for name, shape in inputs.items()],
                [value_info("y", heads, TensorProto.FLOAT16)],
                [numpy_helper.from_array(np.float16(2.8), "root")],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=9,
        ),
        model,
    )
    report = analyze(model, gpu=gpu, runtime="tensorrt")
    assert [row.kernel_class for row in report.kernels] == classes
    assert all(len(row.nodes) >= 5 for row in report.kernels)
    first = report.kernels[0].dims
    if gpu == "v100":  # scores: 2 x 4 heads, 6 queries, 6 keys, heads of 16
        assert [first[name] for name in ("batch", "m", "n", "k")] == [96, 128, 128, 64]


def test_a_sweep_and_a_comparison_of_captured_runs() -> None:
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    swept = sweep(path, gpu="h100", dims={"batch": (1, 2)}, runtime="onnxruntime", cuda_graph=True)
    beside = compare(path, gpus=["h100"], dims={"batch": (1, 2)}, runtimes=["onnxruntime"], cuda_graph=True)
    graph_ms = RUNTIMES["onnxruntime"].graph_us / 1e3
    for totals in (*(point.totals for point in swept.points), *(case.totals for case in beside.cases)):
        assert totals is not None
        assert totals.overhead_ms == pytest.approx(graph_ms)
    for found in (swept, beside):
        assert "runs are replayed as CUDA graphs (--cuda-graph)" in found.assumptions


@pytest.mark.parametrize(
    ("nodes", "runtime", "words"),
    [
        pytest.param("d = Det(x)\ny = Relu(d)", "onnxruntime", "the host waits for Det_0", id="an operator on the CPU"),
        pytest.param("d = Det(x)\ny = Relu(d)", "eager", None, id="that has a kernel elsewhere"),
        pytest.param("n = NonZero(x)\ny = Cast<to=1>(n)", "eager", "the host waits for NonZero_0", id="a size"),
    ],
)
def test_what_can_not_be_captured(nodes: str, runtime: str, words: str | None, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    graph = helper.make_graph(
        split(nodes),
        "graph",
        [value_info("x", (3, 4, 4), TensorProto.FLOAT)],
        [value_info("y", None, TensorProto.FLOAT)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    report = analyze(path, gpu="t4", runtime=runtime, cuda_graph=True)
    said = [text for text in report.assumptions if text.startswith("no CUDA graph: ")]
    assert report.settings.cuda_graph == (words is None)
    assert [words in text for text in said if words] == ([True] if words else [])


@pytest.mark.parametrize(
    ("nodes", "runtime", "expected"),
    [
        pytest.param("y = Add(x, s)", "onnxruntime", [(False, "onnxruntime")], id="ONNX Runtime's"),
        pytest.param("y = Where(k, x, x)", "onnxruntime", [(False, "onnxruntime")], id="a selection of its own"),
        pytest.param("y = Add(x, s)", "eager", [(False, "")], id="PyTorch's"),
        pytest.param("y = Add(x, s)", "compiled", [(True, "")], id="generated by Inductor"),
        pytest.param("y = Add(x, s)", "tensorrt", [(True, "")], id="generated by TensorRT"),
    ],
)
def test_whose_kernel_goes_over_elements(nodes: str, runtime: str, expected: list[tuple[bool, str]]) -> None:
    """x (2, 6, 16), s (16): generated for the shape, or a library's."""
    shapes = {"x": (2, 6, 16), "s": (16,), "k": (2, 6, 16)}
    used = nodes.partition("(")[2].rstrip(")").split(", ")
    graph = inferred(nodes, {name: shapes[name] for name in dict.fromkeys(used)}, types={"k": 9})
    works = works_of(fused_graph(graph, RUNTIMES[runtime]), RUNTIMES[runtime])
    kernels = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Elementwise)]
    assert [(kernel.generated, kernel.library) for kernel in kernels] == expected


@pytest.mark.parametrize(
    ("nodes", "runtime", "expected"),
    [
        # (2, 6, 16) and (2, 4, 16) along the tokens: 96 and 64 elements at a time, which 32 divides
        pytest.param("y = Concat<axis=1>(x, z)", "eager", (32, ""), id="PyTorch's concatenation"),
        pytest.param("t = Transpose<perm=[0,2,1]>(w)\ny = Concat<axis=1>(x, t)", "eager", (1, ""), id="of a view"),
        pytest.param("y = Concat<axis=1>(x, z)", "onnxruntime", (32, "onnxruntime"), id="ONNX Runtime's concatenation"),
        pytest.param("y = Concat<axis=1>(x, z)", "tensorrt", (32, "own"), id="TensorRT's concatenation"),
        pytest.param("y = Concat<axis=1>(x, z)", "compiled", (32, "own"), id="Inductor's concatenation"),
        pytest.param("y = Expand(u, shape)", "onnxruntime", (1, "onnxruntime"), id="ONNX Runtime's Expand"),
        pytest.param("y = Gather(x, places)", "eager", (96, ""), id="PyTorch's look-up"),
        pytest.param("y = Gather(x, places)", "onnxruntime", (96, "onnxruntime"), id="ONNX Runtime's look-up"),
        pytest.param("y = GatherElements(x, places)", "onnxruntime", (1, ""), id="ONNX Runtime's, of elements"),
        pytest.param("y = Gather(x, places)", "tensorrt", (96, "own"), id="TensorRT's look-up"),
    ],
)
def test_whose_kernel_copies(nodes: str, runtime: str, expected: tuple[int, str]) -> None:
    """Elements that stay together, and whose kernel it is where not PyTorch's."""
    shapes = {"x": (2, 6, 16), "z": (2, 4, 16), "w": (2, 16, 4), "u": (1, 6, 1)}
    used = {name: shape for name, shape in shapes.items() if f"({name}" in nodes or f" {name})" in nodes}
    used |= {"places": (2, 3, 5)} if "Elements" in nodes else {"places": (4,)} if "places" in nodes else {}
    constants = {"shape": [2, 6, 16]} if "shape" in nodes else {}
    graph = inferred(nodes, used, constants=constants, types={"places": TensorProto.INT64})
    works = works_of(fused_graph(graph, RUNTIMES[runtime]), RUNTIMES[runtime])
    (kernel,) = [kernel for work in works for kernel in work.kernels]
    match kernel:
        case Movement() | GatherScatter():
            assert (kernel.run, kernel.library) == expected
        case Elementwise():
            assert kernel.generated
            assert expected[1] == "own"
        case _:
            pytest.fail(f"{kernel} copies nothing")


@pytest.mark.parametrize(
    ("runtime", "generated"), [("eager", False), ("compiled", True), ("onnxruntime", False), ("tensorrt", True)]
)
@pytest.mark.parametrize("operator", ["LayerNormalization", "Softmax"])
@pytest.mark.parametrize("before", ["", "r = Relu(x)\n"], ids=["alone", "with others"])
def test_compilers_write_kernels_over_rows(operator: str, before: str, runtime: str, generated: bool) -> None:
    operands = "r" if before else "x"
    operands += ", scale" if operator == "LayerNormalization" else ""
    graph = inferred(
        f"{before}y = {operator}({operands})", TOKENS, weights={"scale": (16,)} if "scale" in operands else {}
    )
    works = works_of(fused_graph(graph, RUNTIMES[runtime]), RUNTIMES[runtime])
    found = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Normalization | Softmax)]
    assert [kernel.generated for kernel in found] == [generated]


JOINED = {
    "a library writes at its place": ("p = MatMul(x, w)\ny = Concat<axis=-1>(p, x)", ["Gemm", "Movement 384"]),
    "but at one place only": ("p = MatMul(x, w)\ny = Concat<axis=-1>(p, p)", ["Gemm", "Movement 384"]),
    "one reader computes it from its parts": (
        "n = Neg(x)\nr = Concat<axis=-1>(n, x)\ny = Relu(r)",
        ["Elementwise"],
    ),
    "however many they are": (
        "".join(f"n{at} = Neg(x{at})\n" for at in range(3))
        + f"r = Concat<axis=-1>({', '.join(f'x{at}' for at in range(12))}, n0, n1, n2)\ny = Relu(r)",
        ["Elementwise"],
    ),
    "special functions aren't computed for every element that they are broadcast to": (
        "c = Cos(p)\ny = Mul(large, c)",
        ["Elementwise", "Elementwise"],
    ),
    "cheap ones are": ("c = Cos(p)\ny = Mul(x, c)", ["Elementwise"]),
}


@pytest.mark.parametrize(("nodes", "expected"), JOINED.values(), ids=JOINED.keys())
def test_what_engines_write_in_place_or_compute_anew(nodes: str, expected: list[str]) -> None:
    """x (6, 16), 384 bytes; large (4096, 1024) times a vector: 25 million FLOPs of cosines against 6,144."""
    shapes = {"x": (6, 16)} | {f"x{at}": (6, 16) for at in range(12)}
    shapes |= {"large": (4096, 1024), "p": (1024,) if "large" in nodes else (16,)}
    used = {
        name: shape for name, shape in shapes.items() if f"{name} =" not in nodes and re.search(rf"\b{name}\b", nodes)
    }
    graph = inferred(nodes, used, weights={"w": (16, 16)} if "w)" in nodes else {})
    works = works_of(fused_graph(graph, RUNTIMES["tensorrt"]), RUNTIMES["tensorrt"])
    found = [kernel for work in works for kernel in work.kernels]
    names = [f"Movement {item.written}" if isinstance(item, Movement) else type(item).__name__ for item in found]
    assert names == expected


DECODE = """
<ir_version: 8, opset_import: ["" : 17]>
decode (float[32, 32, 511, 128] past, float[32, 32, 1, 128] key, float[1, 128] angle) => (float[32, 32, 512, 128] y)
{
  c = Cos(angle)
  s = Sin(angle)
  a = Mul(key, c)
  b = Mul(key, s)
  n = Add(a, b)
  y = Concat<axis=2>(past, n)
}
"""


@pytest.mark.parametrize("gpu", ["v100", "t4", "a100", "h100", "rtx-4090"])
def test_engines_do_not_compute_a_rotary_key_for_the_whole_cache(gpu: str) -> None:
    """More fusion isn't slower: cosines of one position, which 511 others don't ask for."""
    model = read_model_bytes(parser.parse_model(DECODE).SerializeToString())
    reports = {runtime: analyze(model, gpu=gpu, precision="fp32", runtime=runtime) for runtime in RUNTIMES}
    times = {runtime: report.totals.kernel_ms for runtime, report in reports.items()}
    assert times["tensorrt"] < times["onnxruntime"]
    # Inductor's one loop does, under a mask: PyTorch 2.9 generates one loop over the result's elements
    (joined,) = reports["compiled"].kernels
    assert dict(joined.dims)["operations"] == "cos,sin,mul,mul,add,concat"


BIASED = Gemm(m=128, n=768, k=3072, b_is_weight=True, dtype=DataType.FLOAT32, epilogue=("bias", "gelu", "add"))
RESULT = TensorSpec(dtype=DataType.FLOAT32, shape=(128, 768))
WAYS = {
    "a product and its epilogue in two kernels": (
        "m = MatMul(x, w)\nb = Add(m, v)\ng = Gelu(b)\ny = Add(g, z)",
        [
            (
                replace(BIASED, epilogue=()),
                Elementwise(
                    operations=("add", "gelu", "add"),
                    inputs=(RESULT, TensorSpec(dtype=DataType.FLOAT32, shape=(768,)), RESULT),
                    output=RESULT,
                    generated=True,
                ),
            )
        ],
    ),
    "products of one operand one by one": (
        "q = MatMul(x, w)\nk = MatMul(x, u)\ny = Mul(q, k)",
        [(replace(BIASED, epilogue=()), replace(BIASED, epilogue=()))],
    ),
    "a product without an epilogue is what it is": ("y = MatMul(x, w)", []),
}


@pytest.mark.parametrize(("nodes", "expected"), WAYS.values(), ids=WAYS.keys())
def test_what_an_engine_times(nodes: str, expected: list[tuple[Kernel, ...]]) -> None:
    weights = {"w": (3072, 768), "u": (3072, 768), "v": (768,)}
    used = {name: shape for name, shape in weights.items() if re.search(rf"\b{name}\b", nodes)}
    inputs = {"x": (128, 3072), **({"z": (128, 768)} if "z)" in nodes else {})}
    graph = fused_graph(inferred(nodes, inputs, weights=used, opset=20), RUNTIMES["tensorrt"])
    works = with_alternatives(graph, works_of(graph, RUNTIMES["tensorrt"]), RUNTIMES["tensorrt"])
    assert [way for work in works for way in work.alternatives] == expected
    others = with_alternatives(graph, works, RUNTIMES["compiled"])
    assert others == works


def test_the_quickest_way_is_run() -> None:
    """Of 5 us, 2 + 2 us and 3 + 3 us the second; of equal times the first."""

    def of(*times_us: float) -> tuple[Prediction, ...]:
        return tuple(replace(predicted, latency_us=time_us) for time_us in times_us)

    (predicted,) = predict([BIASED], load_gpu("t4"))
    apart = (replace(BIASED, epilogue=()), replace(BIASED, epilogue=()))
    work = NodeWork(node="y", op_type="Gemm", kernels=(BIASED,), alternatives=(apart, apart))
    (chosen,) = quickest([Placed(work=work, predictions=of(5.0))], of(2.0, 2.0, 3.0, 3.0))
    assert (chosen.work.kernels, chosen.latency_us) == (apart, 4.0)
    (kept,) = quickest([Placed(work=work, predictions=of(4.0))], of(2.0, 2.0, 3.0, 3.0))
    assert kept.work.kernels == (BIASED,)


@pytest.mark.parametrize("gpu", ["p4", "p100", "gtx-1080-ti", "t4", "v100"])
def test_an_engine_is_not_slower_than_operators_one_by_one(gpu: str) -> None:
    bert = RESNET.with_name("bert_base.onnx")
    times = {
        runtime: analyze(bert, gpu=gpu, precision="fp32", runtime=runtime).totals.kernel_ms
        for runtime in ("onnxruntime", "tensorrt")
    }
    assert times["tensorrt"] < times["onnxruntime"]


@pytest.mark.parametrize("clash", ["add0/bias", "add1/bias"])
def test_a_node_that_is_called_as_a_bias_would_be_changes_nothing(clash: str) -> None:
    """Linear layers of one input, taken apart into their product and biases, which merge with what is behind."""
    text = "h = MatMul(x, w)\na = Add(h, b)\ni = MatMul(x, w)\nc = Add(i, b)\ne = Relu(a)\nf = Tanh(c)\ny = Add(e, f)"
    found = []
    for name in ("relu", clash):
        nodes = split(text)
        for node, own in zip(nodes, ("mm0", "add0", "mm1", "add1", name, "tanh", "sum"), strict=True):
            node.name = own
        graph = inferred(nodes, TOKENS, weights={"w": (16, 32), "b": (32,)})
        works = works_of(fused_graph(graph, RUNTIMES["tensorrt"]), RUNTIMES["tensorrt"])
        found.append([kernel for work in works for kernel in work.kernels])
    assert found[0] == found[1]
    assert [type(kernel) for kernel in found[0]] == [Gemm, Elementwise]
