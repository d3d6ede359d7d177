"""Precisions as runtimes make them: which operators stay in float32, which casts run, what a GPU refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import onnx.parser
import pytest
from onnx import helper

from graphs import inferred, read_graph
from neusight_onnx import analyze, compare, load_gpu
from neusight_onnx.assumptions.formats import of_precision
from neusight_onnx.checks.limits import Limits
from neusight_onnx.checks.run import check
from neusight_onnx.checks.subject import Target
from neusight_onnx.comparison.what_if import Question, variants
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import NotSupportedError
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    Gemm,
    Movement,
    NodeWork,
    Pooling,
    Recurrent,
    Softmax,
    TensorSpec,
)
from neusight_onnx.lowering import lower
from neusight_onnx.lowering.autocast import autocast
from neusight_onnx.lowering.conversion import converted
from neusight_onnx.lowering.few_bit_weights import with_weights
from neusight_onnx.lowering.products import with_products
from neusight_onnx.precision import FORMATS, PRECISIONS, as_quantised, refusal, resolve
from neusight_onnx.predictor import predict
from neusight_onnx.runtime import get_runtime

FP16, BF16, FP32, TF32 = DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.TFLOAT32


def kinds(graph: InferredGraph) -> list[str]:
    """Operators in order, with the type of what each gives; casts with what they read."""
    short = {FP32: "32", FP16: "16", BF16: "b16", DataType.INT64: "i"}
    found = []
    for node in graph.graph.nodes:
        dtype = graph.values[node.outputs[0]].dtype
        of = f"({node.inputs[0]})" if node.op_type == "Cast" else ""
        found.append(f"{node.op_type}{of}:{short.get(dtype, '?') if dtype else '?'}")
    return found


GRAPHS = {
    "a product and its activation": (
        "m = MatMul(x, w)\ny = Relu(m)",
        {"x": (4, 8)},
        {"w": (8, 2)},
        ["Cast(x):16", "Cast(w):16", "MatMul:16", "Relu:16"],
    ),
    "a normalization takes float32": (
        "m = MatMul(x, w)\nn = LayerNormalization(m, s, b)\ny = MatMul(n, v)",
        {"x": (4, 8)},
        {"w": (8, 8), "v": (8, 2), "s": (8,), "b": (8,)},
        [
            "Cast(x):16",
            "Cast(w):16",
            "MatMul:16",
            "Cast(m):32",
            "LayerNormalization:32",
            "Cast(n):16",
            "Cast(v):16",
            "MatMul:16",
        ],
    ),
    "an activation is cast for each that needs it, a weight once": (
        "p = MatMul(x, w)\nq = MatMul(x, w)\ny = Add(p, q)",
        {"x": (4, 8)},
        {"w": (8, 2)},
        ["Cast(x):16", "Cast(w):16", "MatMul:16", "Cast(x):16", "MatMul:16", "Add:16"],
    ),
    "a sum with a parameter is float32, without a cast": (
        "m = MatMul(x, w)\ny = Add(m, e)",
        {"x": (4, 8)},
        {"w": (8, 2), "e": (4, 2)},
        ["Cast(x):16", "Cast(w):16", "MatMul:16", "Add:32"],
    ),
    "an exporter's number of one element doesn't": (
        "m = MatMul(x, w)\ny = Mul(m, val_3)",
        {"x": (4, 8)},
        {"w": (8, 2), "val_3": (1,)},
        ["Cast(x):16", "Cast(w):16", "MatMul:16", "Mul:16"],
    ),
    "a number promotes nothing": (
        "m = MatMul(x, w)\nc = Constant<value_float = 2.0>()\ny = Mul(m, c)",
        {"x": (4, 8)},
        {"w": (8, 2)},
        ["Cast(x):16", "Cast(w):16", "MatMul:16", "Constant:32", "Mul:16"],
    ),
    "softmax reads 16 bits and writes 32": (
        "m = MatMul(x, w)\ny = Softmax(m)",
        {"x": (4, 8)},
        {"w": (8, 2)},
        ["Cast(x):16", "Cast(w):16", "MatMul:16", "Softmax:32"],
    ),
    "a power takes float32, a mean follows": (
        "m = MatMul(x, w)\na = ReduceMean(m)\nc = Constant<value_float = 2.0>()\ny = Pow(a, c)",
        {"x": (4, 8)},
        {"w": (8, 2)},
        ["Cast(x):16", "Cast(w):16", "MatMul:16", "ReduceMean:16", "Constant:32", "Cast(a):32", "Pow:32"],
    ),
    "a number over a tensor is a reciprocal": (
        "m = MatMul(x, w)\nc = Constant<value_float = 2.0>()\ny = Div(c, m)",
        {"x": (4, 8)},
        {"w": (8, 2)},
        ["Cast(x):16", "Cast(w):16", "MatMul:16", "Constant:32", "Cast(m):32", "Div:32"],
    ),
    "batch normalization follows its input, not its parameters": (
        "m = Conv(x, w)\ny = BatchNormalization(m, s, b, e, v)",
        {"x": (1, 3, 8, 8)},
        {"w": (4, 3, 3, 3), "s": (4,), "b": (4,), "e": (4,), "v": (4,)},
        ["Cast(x):16", "Cast(w):16", "Conv:16", "BatchNormalization:16"],
    ),
    "before the first product all is float32": (
        "a = Relu(x)\ny = MatMul(a, w)",
        {"x": (4, 8)},
        {"w": (8, 2)},
        ["Relu:32", "Cast(a):16", "Cast(w):16", "MatMul:16"],
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_autocast_in_eager_mode(name: str) -> None:
    nodes, inputs, weights, expected = GRAPHS[name]
    assert kinds(autocast(inferred(nodes, inputs, weights=weights), FP16, runtime="eager")) == expected


BLOCK = """
    m = Conv(x, w)
    i = Softmax(m)
    c = Conv(i, v)
    n = BatchNormalization(c, s, b, e, f)
    a = Add(n, i)
    y = Relu(a)
"""
"""A residual block whose shortcut is in float32."""


@pytest.mark.parametrize(
    ("nodes", "outputs", "expected"),
    [
        pytest.param(BLOCK, ["y"], ["Add:16", "Relu:16"], id="a residual block's sum is in place"),
        pytest.param(BLOCK.replace("Add(n, i)", "Add(i, n)"), ["y"], ["Add:32", "Relu:32"], id="shortcut first"),
        pytest.param(BLOCK.replace("Relu(a)", "Neg(a)"), ["y"], ["Add:32", "Neg:32"], id="no activation behind"),
        pytest.param(BLOCK, ["y", "n"], ["Add:32", "Relu:32"], id="the first operand is needed"),
        pytest.param(BLOCK, ["y", "a"], ["Add:32", "Relu:32"], id="the sum is needed"),
        pytest.param(
            BLOCK.replace("a = Add(n, i)", "t = Resize(i, , k)\na = Add(n, t)"),
            ["y"],
            ["Resize:32", "Add:32", "Relu:32"],
            id="levels of a pyramid",
        ),
        pytest.param(
            BLOCK.replace("n = BatchNormalization(c, s, b, e, f)", "n = Neg(c)"),
            ["y"],
            ["Add:32", "Relu:32"],
            id="no normalization before",
        ),
    ],
)
def test_a_residual_sum_keeps_the_type_of_what_it_is_written_into(
    nodes: str, outputs: list[str], expected: list[str]
) -> None:
    graph = inferred(
        nodes,
        {"x": (1, 4, 8, 8)},
        weights={"w": (4, 4, 1, 1), "v": (4, 4, 1, 1), **dict.fromkeys("sbef", (4,))},
        constants={"k": [1.0, 1.0, 1.0, 1.0]} if "k)" in nodes else {},
        outputs=outputs,
    )
    assert kinds(autocast(graph, FP16, runtime="eager"))[-len(expected) :] == expected


def test_addcmul_takes_the_widest_type_by_a_cast() -> None:
    graph = inferred(
        "m = MatMul(x, w)\np = Mul(a, m)\nv = Mul(p, one)\ny = Add(b, v)",
        {"x": (4, 8)},
        weights={"w": (8, 2), "a": (2,), "b": (2,)},
        constants={"one": 1.0},
    )
    made = autocast(fused_graph(graph, get_runtime("eager")), FP16, runtime="eager")
    assert kinds(made) == ["Cast(x):16", "Cast(w):16", "MatMul:16", "Cast(m):32", "Addcmul:32"]


def test_a_learned_scale_of_one_element_promotes() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Mul", ["m", "stem.act.scale"], ["y"])]
    graph = inferred(nodes, {"x": (4, 8)}, weights={"w": (8, 2), "stem.act.scale": (1,)})
    assert kinds(autocast(graph, FP16, runtime="eager")) == ["Cast(x):16", "Cast(w):16", "MatMul:16", "Mul:32"]


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("eager", ["Cast(x):16", "Cast(w):16", "Conv:16", "Cast(m):32", "Resize:32"]),
        ("compiled", ["Cast(x):16", "Cast(w):16", "Conv:16", "Resize:16"]),
    ],
)
def test_resizing_takes_float32_but_in_a_trace(runtime: str, expected: list[str]) -> None:
    graph = inferred(
        'm = Conv(x, w)\ny = Resize<mode = "nearest">(m, , k)',
        {"x": (1, 3, 8, 8)},
        weights={"w": (4, 3, 3, 3)},
        constants={"k": [1.0, 1.0, 2.0, 2.0]},
    )
    assert kinds(autocast(graph, FP16, runtime=runtime)) == expected


@pytest.mark.parametrize(
    ("in_training", "expected"),
    [
        pytest.param(
            False, ["Cast(x):16", "Cast(w):16", "MatMul:16", "Cast(x):16", "MatMul:16", "Add:16"], id="inference"
        ),
        pytest.param(True, ["Cast(x):16", "Cast(w):16", "MatMul:16", "MatMul:16", "Add:16"], id="training"),
    ],
)
def test_a_compiler_casts_an_activation_once_only_in_training(in_training: bool, expected: list[str]) -> None:
    nodes, inputs, weights, _ = GRAPHS["an activation is cast for each that needs it, a weight once"]
    made = autocast(inferred(nodes, inputs, weights=weights), FP16, runtime="compiled", in_training=in_training)
    assert kinds(made) == expected


def test_a_compiler_casts_a_mask_once_for_all_attention() -> None:
    made = autocast(
        inferred(
            "a = Attention(x, x, x, m)\ny = Attention(a, a, a, m)",
            {"x": (1, 2, 4, 8), "m": (1, 1, 4, 4)},
        ),
        FP16,
        runtime="compiled",
    )
    assert kinds(made).count("Cast(m):16") == 1


def test_softmax_of_bfloat16_has_a_cast_before_it() -> None:
    nodes, inputs, weights, _ = GRAPHS["softmax reads 16 bits and writes 32"]
    made = autocast(inferred(nodes, inputs, weights=weights), BF16, runtime="eager")
    assert kinds(made) == ["Cast(x):b16", "Cast(w):b16", "MatMul:b16", "Cast(m):32", "Softmax:32"]


def test_what_the_casts_move_and_what_is_said() -> None:
    made = autocast(
        inferred("m = MatMul(x, w)\ny = Softmax(m)", {"x": (4, 8)}, weights={"w": (8, 2)}), FP16, runtime="eager"
    )
    works = lower(made, runtime="eager")
    first, second, product, softmax = [work.kernels[0] for work in works]
    assert isinstance(first, Movement)
    assert (first.operation, first.read_bytes, first.write_bytes) == ("cast", 4 * 32, 2 * 32)
    assert isinstance(second, Movement)
    assert (second.read_bytes, second.write_bytes) == (4 * 16, 2 * 16)
    assert isinstance(product, Gemm)
    assert (product.dtype, product.read_bytes, product.write_bytes) == (FP16, 2 * (32 + 16), 2 * 8)
    assert isinstance(softmax, Softmax)
    assert (softmax.read_bytes, softmax.write_bytes) == (2 * 8, 4 * 8)
    # the file's nodes stand for the casts that they need
    names = [work.origins[0][1] for work in works]
    assert names == ["MatMul", "MatMul", "MatMul", "Softmax"]
    assert "once each (1 cast; --precision fp16-model has them stored in 16 bits)" in made.assumptions[-1]
    assert "1 cast of activations" in made.assumptions[-1]
    assert "1 Softmax" in made.assumptions[-1]


CONVERTED = {
    "inputs and outputs keep their types": (
        "m = MatMul(x, w)\ny = Softmax(m)",
        {"x": (4, 8)},
        {"w": (8, 2)},
        ["Cast(x):16", "MatMul:16", "Softmax:16", "Cast(y):32"],
        ["Cast(x):16", "MatMul:16", "Softmax:16", "Cast(y):32"],
    ),
    "the block list is ONNX Runtime's": (
        "m = MatMul(x, w)\nk = Max(m, z)\ny = Relu(k)",
        {"x": (4, 8)},
        {"w": (8, 2), "z": (2,)},
        ["Cast(x):16", "MatMul:16", "Cast(m):32", "Max:32", "Cast(k\0float32):16", "Relu:16", "Cast(y):32"],
        ["Cast(x):16", "MatMul:16", "Max:16", "Relu:16", "Cast(y):32"],
    ),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_conversion_of_the_file(name: str) -> None:
    nodes, inputs, weights, in_onnxruntime, in_tensorrt = CONVERTED[name]
    graph = inferred(nodes, inputs, weights=weights)
    made = converted(graph, FP16, runtime="onnxruntime")
    assert kinds(made) == in_onnxruntime
    assert made.graph.initializers["w"].dtype is FP16
    assert made.values["x"].dtype is FP32
    assert made.values[made.graph.outputs[0].name].dtype is FP32
    assert kinds(converted(graph, FP16, runtime="tensorrt", by_flag=True)) == in_tensorrt


@pytest.mark.parametrize(
    ("outputs", "casts"),
    [
        pytest.param(["logits", "present"], {(2, 1, 8), (2, 4, 16)}, id="tokens and logits"),
        pytest.param(["logits"], {(2, 1, 8), (2, 3, 8), (2, 4, 8), (2, 4, 16)}, id="no cache: nothing goes on with it"),
    ],
)
def test_keys_and_values_of_earlier_tokens_are_converted_with_the_weights(
    outputs: list[str], casts: set[tuple[int, ...]]
) -> None:
    """As ONNX Runtime's own tools convert decoders (``keep_io_types=False``), the encoder's keys and values, too."""
    decoder = read_graph(
        """
        k = MatMul(x, w)
        present = Concat<axis = 1>(past, k)
        m = Add(present, past_encoder)
        logits = MatMul(m, v)
        """,
        {"x": (2, 1, 8), "past": (2, 3, 8), "past_encoder": (2, 4, 8)},
        weights={"w": (8, 8), "v": (8, 16)},
        outputs=outputs,
    )
    report = analyze(decoder, gpu="t4", precision="fp16", runtime="onnxruntime")
    assert {kernel.dims["shape"] for kernel in report.kernels if kernel.dims.get("operation") == "cast"} == casts
    said = any("but for keys and values of earlier tokens" in text for text in report.assumptions)
    assert said == ("present" in outputs)


def test_conversion_of_a_file_that_is_quantised_for_tensorrt() -> None:
    """Model Optimizer's block list has Celu, the builder's flag none."""
    graph = inferred(
        "m = MatMul(x, w)\nk = Celu(m)\nl = Max(k, z)\ny = Relu(l)", {"x": (4, 8)}, weights={"w": (8, 2), "z": (2,)}
    )
    ends = ["Max:16", "Relu:16", "Cast(y):32"]
    by_flag, in_file = (converted(graph, FP16, runtime="tensorrt", by_flag=flag) for flag in (True, False))
    assert kinds(by_flag) == ["Cast(x):16", "MatMul:16", "Celu:16", *ends]
    assert kinds(in_file) == ["Cast(x):16", "MatMul:16", "Cast(m):32", "Celu:32", "Cast(k\0float32):16", *ends]
    assert "by TensorRT's builder flag" in by_flag.assumptions[-1]
    assert "as NVIDIA's Model Optimizer's" in in_file.assumptions[-1]
    assert "in float32 by its block list: 1 Celu" in in_file.assumptions[-1]


def test_bodies_are_recast_and_hand_on_float32() -> None:
    body = (
        "y = If(c) <then_branch = t () => (float[4, 2] a) { a = MatMul(x, w) },"
        " else_branch = e () => (float[4, 2] b) { b = Relu(z) }>"
    )
    graph = inferred(
        body,
        {"x": (4, 8), "z": (4, 2), "c": ()},
        weights={"w": (8, 2)},
        types={"c": 9},
    )
    made = autocast(graph, FP16, runtime="eager")
    (taken,) = [inner for key, inner in made.bodies.items() if key[1] == "then_branch"]
    assert kinds(taken) == ["Cast(x):16", "Cast(w):16", "MatMul:16", "Cast(a):32"]
    assert taken.values[taken.graph.outputs[0].name].dtype is FP32
    assert made.values["y"].dtype is FP32


def product(**changes: object) -> NodeWork:
    kernel = Gemm(m=4, n=16, k=32, dtype=FP16, b_is_weight=True)
    return NodeWork(node="p", op_type="MatMul", kernels=(kernel,))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("int8", ["quantize 256 -> 128", "int8 128+512 -> 128"]),
        ("fp8", ["float8e4m3fn 256+512 -> 128"]),
        ("fp4", ["float4e2m1 256+256 -> 128"]),
        # a scale of 2 bytes and half a byte of zero point for each 128 weights
        ("int4w", ["float16 266+256 -> 128"]),
    ],
)
def test_linear_layers(name: str, expected: list[str]) -> None:
    precision = FORMATS[name]
    (work,) = with_products((product(),), precision.products, precision.weights)
    said = []
    for kernel in work.kernels:
        if isinstance(kernel, Gemm):
            stored = kernel.b_dtype or kernel.dtype
            weight_bytes = stored.bytes_of(32 * 16)
            said.append(
                f"{kernel.dtype.label} {kernel.read_bytes - weight_bytes}+{weight_bytes} -> {kernel.write_bytes}"
            )
        else:
            assert isinstance(kernel, Elementwise)
            said.append(f"{kernel.operations[0]} {kernel.read_bytes} -> {kernel.write_bytes}")
    assert said == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Gemm(m=4, n=16, k=32, dtype=DataType.INT8, output_dtype=FP16, b_is_weight=True), ["linear layers, whose"]),
        (
            Gemm(m=4, n=16, k=32, dtype=FP16, b_dtype=DataType.INT4, b_is_weight=True),
            ["1 product keeps the weights that the file stores quantised", "no other product has constant weights"],
        ),
        (Gemm(batch=2, m=4, n=4, k=4, dtype=FP16), ["no other product has constant weights"]),
    ],
    ids=["changed", "stored in 4 bits", "no weights"],
)
def test_what_int8_changes_is_said(kernel: Gemm, expected: list[str]) -> None:
    work = NodeWork(node="p", op_type="MatMul", kernels=(kernel,))
    said = list(of_precision(FORMATS["int8"], get_runtime("eager"), [work]))
    assert len(said) == len(expected)
    assert all(text.startswith(f"int8: {start}") for text, start in zip(said, expected, strict=True))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # weights alone, inside the product
        ("fp8", [(256 + 512, 128)]),
        ("fp4", [(256 + 256, 128)]),
        # and a scale of 2 bytes and half a byte of zero point for each 128 weights
        ("int4w", [(256 + 256 + 10, 128)]),
    ],
)
def test_linear_layers_whose_operands_are_widened(name: str, expected: list[tuple[int, int]]) -> None:
    precision = FORMATS[name]
    (work,) = with_products((product(),), precision.products, precision.weights, how="widened")
    assert [(kernel.read_bytes, kernel.write_bytes) for kernel in work.kernels] == expected
    assert isinstance(work.kernels[-1], Gemm)
    assert work.kernels[-1].dtype is FP16


RESNET = "examples/resnet50.onnx"


def test_int8_of_onnxruntime_is_a_file_of_pairs() -> None:
    """Its CUDA provider has no INT8 convolution: kernels that round stand around those of the types in the file."""
    plain, int8, fp16 = (analyze(RESNET, gpu="l4", batch=32, precision=name) for name in ("auto", "int8", "fp16"))
    assert int8.totals.latency_ms > plain.totals.latency_ms > fp16.totals.latency_ms
    # float32: those that cuDNN runs by Winograd's algorithm, which TF32 hasn't, where that is quicker
    assert {row.dtype for row in int8.kernels if row.kernel_class == "conv"} == {"tf32", "float32"}
    assert not any(notice.code == "little_narrowed" for notice in int8.warnings)


def test_what_a_file_quantises_is_not_quantised_again(tmp_path: Path) -> None:
    path = tmp_path / "pairs.onnx"
    onnx.save(
        onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["": 17]>
            pairs (float[8, 64, 56, 56] x, float[64, 64, 3, 3] w) => (float[8, 64, 54, 54] y)
            <float s = {0.1}, int8 z = {0}>
            { q = QuantizeLinear(x, s, z)
              d = DequantizeLinear(q, s, z)
              y = Conv(d, w) }"""),
        path,
    )
    stored, int8 = (analyze(path, gpu="l4", precision=name) for name in ("auto", "int8"))
    assert int8.totals.latency_ms == stored.totals.latency_ms


@pytest.mark.parametrize(("runtime", "name"), [("onnxruntime", "int4w"), ("onnxruntime", "fp8"), ("eager", "int8")])
def test_a_format_that_concerns_hardly_anything_is_warned_of(runtime: str, name: str) -> None:
    plain = FORMATS[name].plain
    assert plain is not None
    expected = (
        f"{name} in {runtime} concerns 1 of 54 products and convolutions, 0.1 % of their FLOPs: what is predicted is"
    )
    for warnings in (
        analyze(RESNET, gpu="l4", precision=name, runtime=runtime).warnings,
        compare(RESNET, gpus=["l4"], precisions=(name,), runtimes=(runtime,)).warnings,
    ):
        assert [notice.message for notice in warnings if notice.code == "little_narrowed"] == [
            f"{expected} {plain.label}"
        ]


def test_what_if_and_check_warn_of_it_too() -> None:
    said = "fp8 in onnxruntime concerns 1 of 54 products and convolutions, 0.1 % of their FLOPs: what is predicted is"
    base = Question(gpu=load_gpu("l4"), precision="auto", runtime="onnxruntime", bindings=Bindings())
    wider, narrower = variants(read_model(RESNET), base, ["precision=fp16", "precision=fp8"])
    assert not wider.warnings
    assert [notice.message.startswith(f"precision=fp8: {said}") for notice in narrower.warnings] == [True]
    for name, expected in (("fp16", []), ("fp8", [True])):
        verdict = check([Target(name="t", model=RESNET, gpu="l4", precision=name)])
        found = [finding.message.startswith(said) for finding in verdict.findings if finding.code == "NSX407"]
        assert found == expected


@pytest.mark.parametrize(("operation", "bits"), [("max", 8), ("global_average", 8), ("lp", 16), ("region", 16)])
def test_calibrated_engines_pool_int8(operation: str, bits: int) -> None:
    source, result = (TensorSpec(dtype=FP16, shape=(1, 4, side, side)) for side in (8, 4))
    pool = Pooling(operation=operation, input=source, output=result, window=4)
    works = (NodeWork(node="p", op_type="MaxPool", kernels=(pool,)),)
    (work,) = with_products(works, DataType.INT8, DataType.INT8, how="calibrated")
    assert (work.kernels[0].read_bytes, work.kernels[0].write_bytes) == (256 * bits // 8, 64 * bits // 8)
    assert with_products(works, None, DataType.INT4, how="calibrated") == works


def test_other_products_stay() -> None:
    work = NodeWork(node="p", op_type="MatMul", kernels=(Gemm(batch=2, m=4, n=4, k=4, dtype=FP16),))
    assert with_products((work,), DataType.INT8, DataType.INT8) == (work,)


def test_tf32_multiplies_and_leaves_memory_alone() -> None:
    conv = Conv(n=1, c=3, k=4, spatial=(8, 8), out=(6, 6), filter=(3, 3), strides=(1, 1), dilations=(1, 1), dtype=FP32)
    (work,) = with_products((NodeWork(node="c", op_type="Conv", kernels=(conv,)),), DataType.TFLOAT32, None)
    assert isinstance(work.kernels[0], Conv)
    assert work.kernels[0].dtype is DataType.TFLOAT32
    assert (work.kernels[0].read_bytes, work.kernels[0].write_bytes) == (conv.read_bytes, conv.write_bytes)


def test_depthwise_windows_are_no_products_of_tf32() -> None:
    shape = {"n": 1, "spatial": (8, 8), "out": (6, 6), "filter": (3, 3), "strides": (1, 1), "dilations": (1, 1)}
    for c, k, groups, dtype in ((4, 4, 4, FP32), (4, 8, 4, FP32), (8, 8, 4, TF32), (1, 4, 1, TF32)):
        conv = Conv(c=c, k=k, groups=groups, dtype=FP32, **shape)  # type: ignore[arg-type]  # a table
        (work,) = with_products((NodeWork(node="c", op_type="Conv", kernels=(conv,)),), TF32, None)
        assert work.kernels == (replace(conv, dtype=dtype),)


def test_weights_of_linear_layers_are_stored_narrow() -> None:
    graph = inferred(
        "m = MatMul(x, w)\nk = MatMul(m, v)\ny = Add(k, v)", {"x": (4, 8)}, weights={"w": (8, 4), "v": (4, 4)}
    )
    made = with_weights(graph, DataType.INT4)
    assert made.graph.initializers["w"].byte_count == 16
    # another operator reads it as it is
    assert made.graph.initializers["v"].byte_count == 64


MERGED = {
    "an activation behind it": ("m = MatMul(x, w)\ny = Relu(m)", "WithEpilogue"),
    "a residual behind it": ("m = MatMul(x, w)\ny = Add(m, x)", "WithEpilogue"),
    "two of one input": ("a = MatMul(x, w)\nb = MatMul(x, v)\ny = MatMul(a, b)", "SharedLinear"),
    "two of one input, with biases": (
        "a = MatMul(x, w)\nc = Add(a, p)\nb = MatMul(x, v)\nd = Add(b, p)\ny = MatMul(c, d)",
        "SharedLinear",
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_weights_of_merged_products_are_stored_narrow(case: str) -> None:
    body, merged = MERGED[case]
    graph = inferred(body, {"x": (8, 8)}, weights={"w": (8, 8), "v": (8, 8), "p": (8,)})
    fused = fused_graph(graph, get_runtime("tensorrt"))
    assert merged in [node.op_type for node in fused.graph.nodes]
    made = with_weights(fused, DataType.INT4)
    read = {name for node in made.graph.nodes for name in node.inputs}
    narrow = {name: made.graph.initializers[name].byte_count for name in ("w", "v") if name in read}
    assert narrow == dict.fromkeys(narrow, 64 // 2)
    assert narrow
    # a bias stays as it was
    assert made.graph.initializers["p"].byte_count == 32


@pytest.mark.parametrize(
    ("asked", "stored", "plain", "mixed"),
    [
        ("auto", FP16, None, False),
        ("fp16", FP32, FP16, True),
        ("fp16", FP16, FP16, False),
        ("bf16", FP16, BF16, False),
        ("fp16-model", FP32, FP16, False),
        ("fp32", FP16, FP32, False),
    ],
)
def test_what_a_precision_means(asked: str, stored: DataType, plain: DataType | None, mixed: bool) -> None:
    found = resolve(asked, stored)
    assert (found.plain, found.mixed) == (plain, mixed)


@pytest.mark.parametrize(
    ("asked", "stored", "how", "plain"),
    [
        # NVIDIA's Model Optimizer: float16, but beside weights that the file stores in bfloat16
        ("fp8", FP32, "calibrated", FP16),
        ("fp8", FP16, "calibrated", FP16),
        ("fp8", BF16, "calibrated", BF16),
        ("fp4", FP32, "calibrated", FP16),
        ("int8", FP32, "calibrated", FP16),
        ("int4w", FP32, "calibrated", FP16),
        # PyTorch's frameworks, and ONNX Runtime's operators
        ("fp8", FP32, "converted", BF16),
        ("fp8", FP32, "widened", BF16),
        # a file of QuantizeLinear and DequantizeLinear, whose floats stay
        ("int8", FP32, "widened", None),
    ],
)
def test_what_quantisers_leave(asked: str, stored: DataType, how: str, plain: DataType | None) -> None:
    assert as_quantised(resolve(asked, stored), stored, how).plain is plain


@pytest.mark.parametrize(("runtime", "rest"), [("tensorrt", "float16"), ("compiled", "bfloat16")])
def test_what_fp8_leaves_of_a_model(runtime: str, rest: str) -> None:
    report = analyze("examples/bert_base.onnx", gpu="h100", dims={"batch": 2}, precision="fp8", runtime=runtime)
    found = {row.dtype for row in report.kernels if row.kernel_class == "normalization"}
    assert found == {rest}
    assert any(f"everything else runs in {rest}" in text for text in report.assumptions)


def test_an_unknown_precision_names_the_known_ones() -> None:
    with pytest.raises(NotSupportedError, match="unknown precision 'fp17'; choose from auto, fp32"):
        resolve("fp17", FP32)


REFUSED = {
    "v100-sxm2-32gb": {"tf32", "bf16", "bf16-model", "fp8", "fp4"},
    "t4": {"tf32", "bf16", "bf16-model", "fp8", "fp4"},
    "p100-pcie-16gb": {"tf32", "bf16", "bf16-model", "int8", "fp8", "fp4"},
    "a100-sxm-80gb": {"fp8", "fp4"},
    "h100-sxm": {"fp4"},
    "l40s": {"fp4"},
    "b200-sxm": set(),
    "b300-sxm": {"int8"},  # sources disagree about its rate
    "rtx-5090": set(),
    "mi300x": {"fp4"},
}


@pytest.mark.parametrize("gpu", REFUSED)
def test_a_gpu_without_units_refuses(gpu: str) -> None:
    spec = load_gpu(gpu)
    assert {name for name in FORMATS if refusal(FORMATS[name], spec) is not None} == REFUSED[gpu]


@pytest.mark.parametrize("precision", [name for name in PRECISIONS if name not in ("fp4",)])
def test_every_precision_gives_a_report(precision: str) -> None:
    for runtime in ("eager", "compiled"):
        report = analyze("examples/bert_base.onnx", gpu="h100", dims={"batch": 2}, precision=precision, runtime=runtime)
        assert report.totals.latency_ms > 0
        assert report.settings.precision == ("fp32" if precision == "auto" else precision)
        assert report.coverage.node_count == 424


@pytest.mark.parametrize("dtype", [FP32, DataType.TFLOAT32, FP16, BF16, DataType.INT8, DataType.FLOAT8E4M3FN])
@pytest.mark.parametrize("gpu", ["p100", "v100", "a100", "h100", "rtx-5090", "mi100", "mi300x"])
def test_every_product_has_a_time(dtype: DataType, gpu: str) -> None:
    """Whatever a precision or a file makes of products, on GPUs with and without the units."""
    kernels = [
        Gemm(m=64, n=64, k=64, dtype=dtype, b_is_weight=True),
        Gemm(batch=4, m=64, n=64, k=64, dtype=dtype),
        Conv(n=1, c=64, k=64, spatial=(8, 8), out=(8, 8), filter=(1, 1), strides=(1, 1), dilations=(1, 1), dtype=dtype),
        Attention(b=1, h=4, g=4, s=64, t=64, d=64, v=64, dtype=dtype),
        Recurrent(cell="lstm", steps=8, directions=1, b=4, h=64, gates=4, dtype=dtype),
    ]
    assert all(found.latency_us > 0 for found in predict(kernels, load_gpu(gpu)))


def test_memory_follows_the_types() -> None:
    def weights(precision: str) -> int:
        return analyze(
            "examples/bert_base.onnx", gpu="h100", dims={"batch": 1}, precision=precision, runtime="eager"
        ).totals.memory.weight_bytes

    whole = weights("fp32")
    assert weights("fp16") == pytest.approx(whole, rel=1e-6)  # but the scales inside what is one kernel there
    assert weights("fp16-model") == pytest.approx(whole / 2, rel=0.001)
    # 85.0 M of the 109.5 M parameters are weights of linear layers (12 layers of 12 x 768 x 768, and the pooler)
    linear = 12 * 12 * 768 * 768 + 768 * 768
    assert weights("int8") == pytest.approx(whole / 2 - linear, rel=0.001)
    # a scale of 2 bytes and half a byte of zero point for each 128 weights
    assert weights("int4w") == pytest.approx(whole / 2 - 1.5 * linear + 2.5 * linear / 128, rel=0.001)


def test_autocast_keeps_its_copies_of_weights_for_the_run() -> None:
    def activations(runtime: str) -> int:
        found = analyze("examples/bert_base.onnx", gpu="h100", dims={"batch": 1}, precision="fp16", runtime=runtime)
        return found.totals.memory.activation_bytes

    assert activations("eager") > 2 * 85_000_000
    assert activations("compiled") < 50_000_000


def test_analyze_refuses_what_the_gpu_cannot_run() -> None:
    with pytest.raises(NotSupportedError, match=r"precision bf16 on v100-.*: the GPU has no bfloat16 units; use fp16"):
        analyze("examples/resnet50.onnx", gpu="v100", precision="bf16")


def test_compare_leaves_out_what_a_gpu_cannot_run() -> None:
    found = compare(
        "examples/resnet50.onnx", gpus=["a100", "h100"], dims={"batch": 1}, precisions=["fp16-model", "fp8"]
    )
    assert sorted((case.gpu.name, case.precision) for case in found.cases) == [
        ("a100-sxm-80gb", "fp16-model"),
        ("h100-sxm", "fp16-model"),
        ("h100-sxm", "fp8"),
    ]
    assert [notice.message for notice in found.warnings if notice.code == "precision"] == [
        "left out: precision fp8 on a100-sxm-80gb: the GPU has no FP8 units; use int8 or fp16 on it, or take a GPU "
        "since Ada or Hopper (NVIDIA) or CDNA 3 (AMD)"
    ]
    with pytest.raises(NotSupportedError, match="fp8 on a100"):
        compare("examples/resnet50.onnx", gpus=["a100"], dims={"batch": 1}, precisions=["fp8"])


def test_check_finds_what_a_gpu_cannot_run() -> None:
    limits = Limits(max_latency_ms=100.0, texts={"max-latency": "100ms"})
    target = Target(name="t", model="examples/resnet50.onnx", gpu="v100", precision="tf32", limits=limits)
    verdict = check([target])
    assert {"NSX108", "NSX406"} <= {finding.code for finding in verdict.findings if finding.severity.value == "error"}
    assert verdict.targets[0].not_predicted is not None


@pytest.mark.parametrize(
    ("gpu", "precision", "codes"),
    [
        ("h100-sxm", "fp4", {"NSX405"}),
        ("l4", "fp4", {"NSX405"}),
        ("mi300x", "fp4", {"NSX405"}),
        ("a100", "fp8", {"NSX402"}),
        ("t4", "fp8", {"NSX402"}),
        ("v100", "bf16", {"NSX401"}),
        ("p100", "int8", {"NSX406"}),
    ],
)
@pytest.mark.parametrize("runtime", ["onnxruntime", "eager", "compiled", "tensorrt"])
def test_no_precision_that_a_gpu_refuses_passes(gpu: str, precision: str, codes: set[str], runtime: str) -> None:
    target = Target(name="t", model="examples/resnet50.onnx", gpu=gpu, precision=precision, runtime=runtime)
    verdict = check([target])
    assert verdict.targets[0].not_predicted is not None
    told = {"NSX401", "NSX402", "NSX405", "NSX406"}
    assert told & {finding.code for finding in verdict.findings if finding.severity.value == "error"} == codes


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    """Two experts of eight for one token; 64 Mi weights, external data that isn't there."""
    path = tmp_path / "mixture.onnx"
    node = helper.make_node("MoE", ["x", "p", "w1", "", "w2"], ["y"], name="moe", domain="com.microsoft", k=2)
    half = onnx.TensorProto.FLOAT16
    x, p, y = (helper.make_tensor_value_info(name, half, [1, n]) for name, n in (("x", 1024), ("p", 8), ("y", 1024)))
    graph = helper.make_graph([node], "mixture", [x, p], [y])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    for name, shape in (("w1", (8, 4096, 1024)), ("w2", (8, 1024, 4096))):
        tensor = onnx.TensorProto(name=name, data_type=half, dims=shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="absent.data")
        model.graph.initializer.append(tensor)
    onnx.save(model, path)
    return path


def test_int4w_of_onnxruntime_packs_experts(mixture: Path) -> None:
    plain, packed = (analyze(mixture, gpu="h200", precision=name) for name in ("auto", "int4w"))
    assert plain.totals.memory is not None
    assert packed.totals.memory is not None
    assert plain.totals.memory.weight_bytes == 2**27
    assert (
        packed.totals.memory.weight_bytes == 2**25 + 2**26 // 128 * 5 // 2
    )  # scales and zero points of 128 weights each
    assert packed.totals.latency_ms < plain.totals.latency_ms
    assert not any(notice.code == "little_narrowed" for notice in packed.warnings)


def test_packed_experts_are_not_joined_in_every_run(mixture: Path) -> None:
    """MoE copies each expert's fc1 and fc3 together; QMoE's are stored so."""
    model = onnx.load(mixture, load_external_data=False)
    beside = model.graph.initializer.add()
    beside.CopyFrom(model.graph.initializer[0])
    beside.name = "w3"
    model.graph.node[0].input.extend(["", "w3"])
    onnx.save(model, mixture)
    plain, packed = (analyze(mixture, gpu="h200", precision=name) for name in ("auto", "int4w"))
    copies = [sum(row.count for row in report.kernels if row.kernel_class == "movement") for report in (plain, packed)]
    assert copies == [16, 0]


@pytest.mark.parametrize(("name", "runtime"), [("fp8", "onnxruntime"), ("int4w", "compiled"), ("fp8", "compiled")])
def test_experts_that_stay_wide_are_warned_of(mixture: Path, name: str, runtime: str) -> None:
    report = analyze(mixture, gpu="h200", precision=name, runtime=runtime)
    assert report.totals.memory is not None
    assert report.totals.memory.weight_bytes == 2**27
    assert any(notice.code == "little_narrowed" for notice in report.warnings)
