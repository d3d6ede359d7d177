"""Pairs of QuantizeLinear and DequantizeLinear: what folds, into which kernel, with which bytes; what doesn't."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.fusion.quantization.at_run_time import dequantized_at_run_time
from neusight_onnx.fusion.quantization.fold import fold_quantization
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.kernels import Conv, Elementwise, GatherScatter, Gemm, Kernel, Movement, NodeWork, TensorSpec
from neusight_onnx.lowering import lower
from neusight_onnx.runtime import RUNTIMES as RUNTIMES_BY_NAME

RUNTIMES = ("eager", "compiled", "onnxruntime", "tensorrt")
U8, I8, I32, I4, F8 = (
    TensorProto.UINT8,
    TensorProto.INT8,
    TensorProto.INT32,
    TensorProto.INT4,
    TensorProto.FLOAT8E4M3FN,
)
SCALES = {"s": (), "s2": (), "cs": (8,), "zu": (), "zi": (), "cz": (8,)}
TYPES = {"x": U8, "x2": U8, "w": I8, "b": I32, "zu": U8, "zi": I8, "cz": I8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Nodes, and the kernels that they become in every runtime."""

    nodes: str
    inputs: dict[str, tuple[int, ...]]
    kernels: tuple[Kernel, ...]
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, object] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    opset: int = 21


IMAGE = {"x": (2, 4, 6, 6)}
FILTERS = {"w": (8, 4, 3, 3), "b": (8,)}


def conv(epilogue: tuple[str, ...], output: DataType | None = None, extra: int = 32 + 32 + 8) -> Conv:
    """``extra``: 8 biases of int32, 8 scales of float32, 8 zero points of int8."""
    return Conv(
        n=2,
        c=4,
        k=8,
        spatial=(6, 6),
        out=(4, 4),
        filter=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        dtype=DataType.UINT8,
        weight_dtype=DataType.INT8,
        output_dtype=output,
        epilogue=epilogue,
        extra_read_bytes=extra,
    )


def pointwise(operation: str, *operands: TensorSpec, to: TensorSpec) -> Elementwise:
    return Elementwise(operations=(operation,), inputs=operands, output=to)


def spec(dtype: DataType, *shape: int) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape)


CASES = {
    "conv with scales a channel and an int32 bias": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear<axis=0>(w, cs, cz)
            bf = DequantizeLinear<axis=0>(b, cs)
            c = Conv(xf, wf, bf)
            y = QuantizeLinear(c, s2, zu)
        """,
        inputs=IMAGE,
        weights={**FILTERS, **SCALES},
        kernels=(conv(("broadcast_add", "requantize")),),
    ),
    "conv with an activation": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear<axis=0>(w, cs, cz)
            bf = DequantizeLinear<axis=0>(b, cs)
            c = Conv(xf, wf, bf)
            r = Relu(c)
            y = QuantizeLinear(r, s2, zu)
        """,
        inputs=IMAGE,
        weights={**FILTERS, **SCALES},
        kernels=(conv(("broadcast_add", "relu", "requantize")),),
    ),
    "conv that writes floats": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear<axis=0>(w, cs, cz)
            y = Conv(xf, wf)
        """,
        inputs=IMAGE,
        weights={**FILTERS, **SCALES},
        kernels=(conv(("dequantize",), DataType.FLOAT32, 40),),
    ),
    "conv with a quantised residual sum": Case(  # TensorRT's developer guide: its second input is INT8 then
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear<axis=0>(w, cs, cz)
            c = Conv(xf, wf)
            rf = DequantizeLinear(residual, s2, zu)
            a = Add(c, rf)
            r = Relu(a)
            y = QuantizeLinear(r, s2, zu)
        """,
        inputs={**IMAGE, "residual": (2, 8, 4, 4)},
        types={"residual": U8},
        weights={**FILTERS, **SCALES},
        kernels=(conv(("add", "relu", "requantize"), extra=40),),
    ),
    "conv with a quantised residual sum that writes floats": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear<axis=0>(w, cs, cz)
            rf = DequantizeLinear(residual, s2, zu)
            c = Conv(xf, wf)
            y = Add(rf, c)
        """,
        inputs={**IMAGE, "residual": (2, 8, 4, 4)},
        types={"residual": U8},
        weights={**FILTERS, **SCALES},
        kernels=(conv(("broadcast_add", "dequantize"), DataType.FLOAT32, 40 + 2 * 8 * 16),),
    ),
    "weights quantised when the model is loaded": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            wq = QuantizeLinear<axis=0>(wfloat, cs, cz)
            wf = DequantizeLinear<axis=0>(wq, cs, cz)
            c = Conv(xf, wf)
            y = QuantizeLinear(c, s2, zu)
        """,
        inputs=IMAGE,
        weights={"wfloat": (8, 4, 3, 3), **SCALES},
        kernels=(conv(("requantize",), extra=40),),
    ),
    "matmul of two activations": Case(
        nodes="""
            qf = DequantizeLinear(x, s, zu)
            kf = DequantizeLinear(x2, s, zu)
            p = MatMul(qf, kf)
            y = QuantizeLinear(p, s2, zu)
        """,
        inputs={"x": (2, 3, 4, 5), "x2": (2, 3, 5, 6)},
        weights=SCALES,
        kernels=(Gemm(batch=6, m=4, n=6, k=5, dtype=DataType.UINT8, epilogue=("requantize",)),),
    ),
    "linear with an activation": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear<axis=1>(w, cs, cz)
            p = MatMul(xf, wf)
            a = Add(p, bias)
            r = Relu(a)
            y = QuantizeLinear(r, s2, zi)
        """,
        inputs={"x": (3, 16)},
        weights={"w": (16, 8), "bias": (8,), **SCALES},
        kernels=(
            Gemm(
                m=3,
                n=8,
                k=16,
                b_is_weight=True,
                dtype=DataType.UINT8,
                b_dtype=DataType.INT8,
                output_dtype=DataType.INT8,
                epilogue=("broadcast_add", "relu", "requantize"),
                extra_read_bytes=32 + 8 + 32,  # scales, zero points, 8 biases of float32
            ),
        ),
    ),
    "gemm with a transposed weight": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear(w, s, zi)
            g = Gemm<transB=1>(xf, wf)
            y = QuantizeLinear(g, s2, zu)
        """,
        inputs={"x": (3, 16)},
        weights={"w": (8, 16), **SCALES},
        kernels=(
            Gemm(
                m=3,
                n=8,
                k=16,
                transpose_b=True,
                b_is_weight=True,
                dtype=DataType.UINT8,
                b_dtype=DataType.INT8,
                epilogue=("requantize",),
            ),
        ),
    ),
    "float8 on both sides": Case(
        nodes="""
            xf = DequantizeLinear(x, s)
            wf = DequantizeLinear(w, s2)
            y = MatMul(xf, wf)
        """,
        inputs={"x": (4, 32)},
        weights={"w": (32, 8), **SCALES},
        types={"x": F8, "w": F8},
        kernels=(
            Gemm(
                m=4,
                n=8,
                k=32,
                b_is_weight=True,
                dtype=DataType.FLOAT8E4M3FN,
                output_dtype=DataType.FLOAT32,
                epilogue=("dequantize",),
            ),
        ),
    ),
    "int4 weights in blocks": Case(
        nodes="""
            wf = DequantizeLinear<axis=0, block_size=16>(w, blocks, zeros)
            y = MatMul(x, wf)
        """,
        inputs={"x": (2, 3, 64)},
        weights={"w": (64, 8), "blocks": (4, 8), "zeros": (4, 8)},
        types={"x": TensorProto.FLOAT, "w": I4, "zeros": I4},
        kernels=(
            Gemm(
                m=6,
                n=8,
                k=64,
                b_is_weight=True,
                dtype=DataType.FLOAT32,
                b_dtype=DataType.INT4,
                extra_read_bytes=4 * 32 + 16,  # 32 scales of float32, 32 zero points of half a byte
            ),
        ),
    ),
    "int4 weights that are transposed": Case(
        nodes="""
            wf = DequantizeLinear<axis=1, block_size=16>(w, blocks)
            t = Transpose<perm=[1, 0]>(wf)
            y = MatMul(x, t)
        """,
        inputs={"x": (6, 64)},
        weights={"w": (8, 64), "blocks": (8, 4)},
        types={"x": TensorProto.FLOAT, "w": I4},
        kernels=(
            Gemm(m=6, n=8, k=64, b_is_weight=True, dtype=DataType.FLOAT32, b_dtype=DataType.INT4, extra_read_bytes=128),
        ),
    ),
    "a weight and a bias that are shared through Identity": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear<axis=0>(w, cs, cz)
            wi = Identity(wf)
            bf = DequantizeLinear<axis=0>(b, cs)
            bi = Identity(bf)
            c = Conv(xf, wi, bi)
            y = QuantizeLinear(c, s2, zu)
        """,
        inputs=IMAGE,
        weights={**FILTERS, **SCALES},
        kernels=(conv(("broadcast_add", "requantize")),),
    ),
    "the shape of a dequantised value needs no values": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            n = Shape(xf)
            r = Relu(xf)
            q = QuantizeLinear(r, s, zu)
            y = Reshape(q, n)
        """,
        inputs={"x": (3, 5)},
        weights=SCALES,
        kernels=(pointwise("relu", spec(DataType.UINT8, 3, 5), to=spec(DataType.UINT8, 3, 5)),),
    ),
    "pointwise": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            zf = DequantizeLinear(x2, s2, zu)
            a = Add(xf, zf)
            y = QuantizeLinear(a, s, zu)
        """,
        inputs={"x": (3, 5), "x2": (3, 5)},
        weights=SCALES,
        kernels=(
            pointwise("add", spec(DataType.UINT8, 3, 5), spec(DataType.UINT8, 3, 5), to=spec(DataType.UINT8, 3, 5)),
        ),
    ),
    "concat": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            zf = DequantizeLinear(x2, s2, zu)
            a = Concat<axis=0>(xf, zf)
            y = QuantizeLinear(a, s, zu)
        """,
        inputs={"x": (3, 5), "x2": (3, 5)},
        weights=SCALES,
        kernels=(Movement(operation="concat", dtype=DataType.UINT8, shape=(6, 5), read=30, written=30, run=15),),
    ),
    "a view between equal scales is no kernel": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            r = Reshape(xf, shape)
            y = QuantizeLinear(r, s, zu)
        """,
        inputs={"x": (3, 5)},
        weights=SCALES,
        constants={"shape": [5, 3]},
        kernels=(),
    ),
    "a view between different scales is two": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            r = Reshape(xf, shape)
            y = QuantizeLinear(r, half, zu)
        """,
        inputs={"x": (3, 5)},
        weights=SCALES,
        constants={"shape": [5, 3], "half": 0.5},
        kernels=(
            pointwise("dequantize", spec(DataType.UINT8, 3, 5), to=spec(DataType.FLOAT32, 3, 5)),
            pointwise("quantize", spec(DataType.FLOAT32, 5, 3), to=spec(DataType.UINT8, 5, 3)),
        ),
    ),
    "a float operand leaves the pair apart": Case(
        nodes="""
            xf = DequantizeLinear(x, s, zu)
            y = MatMul(xf, weight)
        """,
        inputs={"x": (3, 16)},
        weights={"weight": (16, 8), **SCALES},
        kernels=(
            pointwise("dequantize", spec(DataType.UINT8, 3, 16), to=spec(DataType.FLOAT32, 3, 16)),
            Gemm(m=3, n=8, k=16, b_is_weight=True, dtype=DataType.FLOAT32),
        ),
    ),
    "a quantised constant without a partner is dequantised in every run": Case(
        nodes="""
            wf = DequantizeLinear<axis=1>(w, rows, rowzeros)
            y = Mul(x, wf)
        """,
        inputs={"x": (600, 16)},
        weights={"w": (600, 16), "rows": (16,), "rowzeros": (16,)},
        types={"x": TensorProto.FLOAT, "rowzeros": I8},
        kernels=(
            Elementwise(
                operations=("dequantize",),
                inputs=(spec(DataType.INT8, 600, 16), spec(DataType.FLOAT32, 16), spec(DataType.INT8, 16)),
                output=spec(DataType.FLOAT32, 600, 16),
            ),
            pointwise(
                "mul",
                spec(DataType.FLOAT32, 600, 16),
                spec(DataType.FLOAT32, 600, 16),
                to=spec(DataType.FLOAT32, 600, 16),
            ),
        ),
    ),
    "rows of a quantised table": Case(
        nodes="""
            wf = DequantizeLinear<axis=0>(w, rows)
            y = Gather(wf, ids)
        """,
        inputs={"ids": (7,)},
        weights={"w": (600, 16), "rows": (600,)},
        types={"ids": TensorProto.INT64},
        kernels=(
            GatherScatter(
                operation="embedding",
                moved=7 * 16,
                run=16,
                dtype=DataType.UINT8,
                index_count=7,
                index_dtype=DataType.INT64,
            ),
            Elementwise(
                operations=("dequantize",),
                inputs=(spec(DataType.UINT8, 7, 16), spec(DataType.FLOAT32, 7)),
                output=spec(DataType.FLOAT32, 7, 16),
            ),
        ),
    ),
}


def works_of(case: Case, runtime: str) -> tuple[NodeWork, ...]:
    graph = inferred(
        case.nodes,
        case.inputs,
        weights=case.weights,
        constants=case.constants,
        types={**TYPES, **case.types},
        opset=case.opset,
    )
    return lower(fold_quantization(recognise(graph, runtime=runtime)), runtime=runtime)


def stored_plainly(kernel: Kernel) -> Kernel:
    """Without what only a runtime with strided tensors says of a weight's storage."""
    return replace(kernel, transpose_b=False) if isinstance(kernel, Gemm) else kernel


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_pairs_become(case: Case, runtime: str) -> None:
    works = works_of(case, runtime)
    if runtime == "onnxruntime":  # where a view is an output of the graph, it is a copy
        works = tuple(work for work in works if work.op_type != "Reshape")
    kernels = [kernel for work in works for kernel in work.kernels]
    assert [stored_plainly(kernel) for kernel in kernels] == [stored_plainly(kernel) for kernel in case.kernels]


@pytest.mark.parametrize(
    ("nodes", "weights", "dtype"),
    [
        # a scale of each channel, or column, that is summed can't be taken out of a sum of integers
        pytest.param("Conv(xf, wf)", "x axis=1", DataType.FLOAT32, id="channels of an image"),
        pytest.param("Conv(xf, wf)", "x", DataType.INT8, id="one scale"),
        pytest.param("Conv(xf, wf)", "w axis=0", DataType.INT8, id="filters"),
        pytest.param("Conv(xf, wf)", "w axis=1", DataType.FLOAT32, id="channels of filters"),
        pytest.param("ConvTranspose(xf, wf)", "w axis=1", DataType.INT8, id="channels that a transposed one writes"),
        pytest.param("ConvTranspose(xf, wf)", "w axis=0", DataType.FLOAT32, id="channels that it reads"),
        pytest.param("MatMul(xf, wf)", "w axis=-1", DataType.INT8, id="columns"),
        pytest.param("MatMul(xf, wf)", "w axis=-2", DataType.FLOAT32, id="rows of the right operand"),
        pytest.param("MatMul(xf, wf)", "x axis=2", DataType.INT8, id="rows of the left one"),
        pytest.param("MatMul(xf, wf)", "x axis=3", DataType.FLOAT32, id="columns of the left one"),
    ],
)
def test_scales_of_what_is_summed_keep_a_product_in_floats(nodes: str, weights: str, dtype: DataType) -> None:
    """All sizes are 8; ``weights``: which operand has eight scales, and along what."""
    operand, _, axis = weights.partition(" ")

    def dequantised(name: str) -> str:
        many = name == operand and axis
        return f"{name}f = DequantizeLinear{f'<{axis}>' if many else ''}({name}, {'cs, cz' if many else 's, zi'})"

    graph = inferred(
        f"{dequantised('x')}\n{dequantised('w')}\ny = {nodes}",
        {"x": (8, 8, 8, 8)},
        weights={"w": (8, 8, 8, 8), **SCALES},
        types={**TYPES, "x": I8},
        opset=21,
    )
    kernels = [kernel for work in lower(fold_quantization(graph), runtime="tensorrt") for kernel in work.kernels]
    assert [kernel.dtype for kernel in kernels if isinstance(kernel, Conv | Gemm)] == [dtype]


BLOCK = """
    xf = DequantizeLinear(x, s, zi)
    wf = DequantizeLinear(w, s, zi)
    c = Conv(xf, wf)
"""


@pytest.mark.parametrize(
    ("behind", "runtime", "expected"),
    [
        ("y = Relu(c)", "tensorrt", [("dequantize", "relu")]),
        ("y = Relu(c)", "eager", [("dequantize",), ("relu",)]),
        ("y = Mish(c)", "tensorrt", [("dequantize",), ("mish",)]),
        # a sum with floats gives floats, which a kernel of its own quantises
        ("a = Add(f, c)\nr = Relu(a)\ny = QuantizeLinear(r, s, zi)", "tensorrt",
         [("dequantize", "add", "relu"), ("quantize",)]),
        ("f8 = QuantizeLinear(f, s, zi)\nff = DequantizeLinear(f8, s, zi)\na = Add(ff, c)\nr = Relu(a)\n"
         "y = QuantizeLinear(r, s, zi)", "tensorrt", [("quantize",), ("add", "relu", "requantize")]),
        # the residual is made behind the convolution, and read there
        ("f1 = Abs(f)\nf8 = QuantizeLinear(f1, s, zi)\nff = DequantizeLinear(f8, s, zi)\ny = Add(ff, c)", "eager",
         [("abs",), ("quantize",), ("broadcast_add", "dequantize")]),
    ],
)  # fmt: skip
def test_behind_a_quantised_convolution(behind: str, runtime: str, expected: list[tuple[str, ...]]) -> None:
    graph = inferred(
        BLOCK + behind,
        {"x": (2, 4, 6, 6), "f": (2, 8, 6, 6)},
        weights={"w": (8, 4, 1, 1), **SCALES},
        types={"x": I8, "w": I8, "zi": I8},
        opset=21,
    )
    works = lower(fused_graph(graph, RUNTIMES_BY_NAME[runtime]), runtime=runtime)
    kernels = [kernel for work in works for kernel in work.kernels]
    steps = [
        kernel.operations if isinstance(kernel, Elementwise) else getattr(kernel, "epilogue", ()) for kernel in kernels
    ]
    assert steps == expected


def test_bytes_of_a_weight_only_product() -> None:
    """x 6 x 64 floats, 512 weights of half a byte, 128 bytes of scales and 16 of zero points; 6 x 8 floats written."""
    (work,) = [work for work in works_of(CASES["int4 weights in blocks"], "onnxruntime") if work.kernels]
    (kernel,) = work.kernels
    assert kernel.read_bytes == 6 * 64 * 4 + 256 + 128 + 16
    assert kernel.write_bytes == 6 * 8 * 4
    assert kernel.macs == 6 * 8 * 64


BLOCKS = "d = DequantizeLinear<axis=0, block_size=32>(w, s)"
BLOCKED = {"w": (64, 8), "s": (2, 8)}
FOUR_BITS = {"w": TensorProto.INT4}


@pytest.mark.parametrize(
    ("nodes", "weights", "types", "apart"),
    [
        # the graph of onnxruntime-gpu 1.31's CUDA provider, prepared on stand-ins for CUDA's libraries
        pytest.param(f"{BLOCKS}\ny = MatMul(x, d)", BLOCKED, FOUR_BITS, 0, id="blocks of 32 rows"),
        pytest.param(f"{BLOCKS}\ny = Gemm(x, d)", BLOCKED, FOUR_BITS, 0, id="Gemm"),
        pytest.param(
            f"{BLOCKS}\na = MatMul(x, d)\ny = Add(a, bias)", {**BLOCKED, "bias": (8,)}, FOUR_BITS, 0, id="bias"
        ),
        pytest.param(f"{BLOCKS}\ny = MatMul(x, d)\nz = MatMul(x, d)", BLOCKED, FOUR_BITS, 2, id="two readers"),
        pytest.param(
            "d = DequantizeLinear<axis=0, block_size=8>(w, s)\ny = MatMul(x, d)",
            {"w": (64, 8), "s": (8, 8)},
            FOUR_BITS,
            1,
            id="blocks of 8 rows",
        ),
        pytest.param(
            "d = DequantizeLinear<axis=1, block_size=4>(w, s)\ny = MatMul(x, d)",
            {"w": (64, 8), "s": (64, 2)},
            FOUR_BITS,
            1,
            id="blocks of columns",
        ),
        pytest.param(
            "d = DequantizeLinear<axis=1>(w, s)\ny = MatMul(x, d)",
            {"w": (64, 8), "s": (8,)},
            {"w": TensorProto.INT8},
            0,
            id="int8, a scale a column",
        ),
        pytest.param(
            "d = DequantizeLinear<axis=0>(w, s)\ny = MatMul(x, d)",
            {"w": (64, 8), "s": (64,)},
            {"w": TensorProto.INT8},
            1,
            id="int8, a scale a row",
        ),
        pytest.param(
            "d = DequantizeLinear<axis=0>(w, s)\nt = Transpose(d)\ny = MatMul(x, t)",
            {"w": (8, 64), "s": (8,)},
            {"w": TensorProto.INT8},
            0,
            id="transposed",
        ),
        pytest.param(
            "d = DequantizeLinear<axis=1, block_size=32>(w, s)\nt = Transpose(d)\ny = MatMul(x, t)",
            {"w": (8, 64), "s": (8, 2)},
            FOUR_BITS,
            1,
            id="transposed blocks",
        ),
        pytest.param(
            "d = DequantizeLinear<axis=1, block_size=32>(w, s)\ny = Gemm<transB=1>(x, d)",
            {"w": (8, 64), "s": (8, 2)},
            FOUR_BITS,
            1,
            id="Gemm that transposes",
        ),
        pytest.param(
            "d = DequantizeLinear<axis=1>(w, s)\ny = MatMul(x, d)",
            {"w": (64, 8), "s": (8,)},
            {"w": TensorProto.FLOAT8E4M3FN},
            1,
            id="float8",
        ),
        pytest.param(
            "q = QuantizeLinear(x, r, z)\ne = DequantizeLinear(q, r, z)\n"
            "d = DequantizeLinear<axis=1>(w, s)\ny = MatMul(e, d)",
            {"w": (64, 8), "s": (8,), "r": (), "z": ()},
            {"w": TensorProto.INT8, "z": TensorProto.INT8},
            3,
            id="activations, too",
        ),
    ],
)
def test_onnxruntime_reads_small_weights_as_they_are(
    nodes: str, weights: dict[str, tuple[int, ...]], types: dict[str, int], apart: int
) -> None:
    outputs = ["y", "z"] if "\nz = " in nodes else ["y"]
    graph = inferred(nodes, {"x": (6, 64)}, weights=weights, types=types, opset=23, outputs=outputs)
    works = lower(fused_graph(graph, RUNTIMES_BY_NAME["onnxruntime"]), runtime="onnxruntime")
    assert sum(work.op_type in ("QuantizeLinear", "DequantizeLinear") for work in works if work.kernels) == apart
    products = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Gemm)]
    assert all((kernel.b_dtype is not None) == (not apart) for kernel in products)


DYNAMIC = """
    xq, xs, xz = DynamicQuantizeLinear(x)
    p = MatMulInteger(xq, w, xz, zi)
    f = Cast<to=1>(p)
    ss = Mul(xs, cs)
    m = Mul(f, ss)
    y = Add(m, bias)
"""
"""As ONNX Runtime's dynamic quantiser writes a product with a bias, one scale a column."""


def dynamic_kernels(nodes: str, *, outputs: tuple[str, ...] = ("y",)) -> list[tuple[str, ...]]:
    """The nodes that have kernels, by the operators that each stands for."""
    graph = inferred(
        nodes,
        {"x": (2, 3, 16)},
        weights={"w": (16, 8), "bias": (8,), "wide": (16, 8), **SCALES},
        types={"w": I8, "zi": I8},
        outputs=list(outputs),
    )
    works = lower(fold_quantization(recognise(graph, runtime="eager")), runtime="eager")
    return [tuple(op_type for _, op_type in work.origins) for work in works if work.kernels]


def test_a_dynamically_quantised_product_dequantises_its_sums() -> None:
    """x is read for its range and to be quantised; the product reads 96 + 128 bytes, 8 scales and 8 biases."""
    graph = inferred(
        DYNAMIC,
        {"x": (2, 3, 16)},
        weights={"w": (16, 8), "bias": (8,), **SCALES},
        types={"w": I8, "zi": I8},
    )
    works = lower(fold_quantization(recognise(graph, runtime="eager")), runtime="eager")
    *before, (kernel,) = [work.kernels for work in works if work.kernels]
    assert [type(each).__name__ for kernels in before for each in kernels] == ["Reduction", "Elementwise"]
    assert isinstance(kernel, Gemm)
    assert (kernel.m, kernel.n, kernel.k) == (6, 8, 16)
    assert (kernel.dtype, kernel.b_dtype, kernel.output_dtype) == (DataType.UINT8, DataType.INT8, DataType.FLOAT32)
    assert kernel.epilogue == ("bias", "dequantize")
    assert kernel.read_bytes == 96 + 128 + 4 * 8 + 4 * 8
    assert kernel.write_bytes == 4 * 48


PRODUCT = ("MatMulInteger", "Cast", "Mul", "Mul", "Add")
DYNAMIC_NODES = {
    "a bias": (DYNAMIC, ("y",), {frozenset(PRODUCT)}),
    "a scale that is made elsewhere": (
        DYNAMIC.replace("ss = Mul(xs, cs)", "ss = Sqrt(cs)").replace("y = Add(m, bias)", "y = Relu(m)"),
        ("y",),
        {frozenset({"Sqrt"}), frozenset({"MatMulInteger", "Cast", "Mul"}), frozenset({"Relu"})},
    ),
    "sums that are given out": (
        DYNAMIC,
        ("p", "y"),
        {frozenset({"MatMulInteger"}), frozenset({"Cast"}), frozenset({"Mul"}), frozenset({"Add"})},
    ),
    "a product that is given out is not biased in the kernel": (
        DYNAMIC,
        ("m", "y"),
        {frozenset({"MatMulInteger", "Cast", "Mul"}), frozenset({"Add"})},
    ),
    "a factor for every element is no scale": (
        DYNAMIC.replace("m = Mul(f, ss)", "m = Mul(f, e)").replace("ss = Mul(xs, cs)", "e = MatMul(x, wide)"),
        ("y",),
        {
            frozenset({"MatMulInteger"}),
            frozenset({"Cast"}),
            frozenset({"MatMul"}),
            frozenset({"Mul"}),
            frozenset({"Add"}),
        },
    ),
}


@pytest.mark.parametrize(("nodes", "outputs", "expected"), DYNAMIC_NODES.values(), ids=DYNAMIC_NODES.keys())
def test_what_folds_into_a_product_of_integers(
    nodes: str, outputs: tuple[str, ...], expected: set[frozenset[str]]
) -> None:
    found = {frozenset(origins) for origins in dynamic_kernels(nodes, outputs=outputs)}
    assert found - {frozenset({"DynamicQuantizeLinear"})} == expected


def test_a_dynamically_quantised_convolution_folds_too() -> None:
    """144 bytes of x, 288 of filters, 8 biases; scales and zero points are single numbers."""
    graph = inferred(
        """
            xq, xs, xz = DynamicQuantizeLinear(x)
            p = ConvInteger(xq, w, xz, zi)
            f = Cast<to=1>(p)
            ss = Mul(xs, s)
            m = Mul(f, ss)
            y = Add(m, bias)
        """,
        {"x": (1, 4, 6, 6)},
        weights={"w": (8, 4, 3, 3), "bias": (1, 8, 1, 1), **SCALES},
        types={"w": I8, "zi": I8},
    )
    works = lower(fold_quantization(recognise(graph, runtime="eager")), runtime="eager")
    (kernel,) = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Conv)]
    assert works[-1].kernels == (kernel,)
    assert (kernel.dtype, kernel.weight_dtype, kernel.output_dtype) == (DataType.UINT8, DataType.INT8, DataType.FLOAT32)
    assert kernel.epilogue == ("bias", "dequantize")
    assert (kernel.read_bytes, kernel.write_bytes) == (144 + 288 + 4 * 8, 4 * 128)


def test_inspect_counts_what_is_dequantised_in_every_run() -> None:
    """A constant of 128 elements that the graph also gives out, dequantised: 128 FLOPs beside the product's 2 x 384."""
    nodes = "wf = DequantizeLinear(w, s, zi)\np = MatMul(x, wf)\ny = Relu(p)"
    graph = inferred(nodes, {"x": (3, 16)}, weights={"w": (16, 8), **SCALES}, types={"w": I8, "zi": I8}, opset=21)
    before = lower(graph, runtime="eager")
    late = lower(dequantized_at_run_time(graph), runtime="eager")
    assert [sum(kernel.flops for kernel in work.kernels) for work in before] == [0, 768, 24]
    assert [sum(kernel.flops for kernel in work.kernels) for work in late] == [128, 768, 24]


def test_a_kernel_names_all_that_it_swallowed() -> None:
    works = works_of(CASES["conv with an activation"], "tensorrt")
    (work,) = [work for work in works if work.kernels]
    assert [op_type for _, op_type in work.origins] == [
        "DequantizeLinear",
        "DequantizeLinear",
        "DequantizeLinear",
        "Relu",
        "QuantizeLinear",
        "Conv",
    ]


def test_a_value_may_be_dequantised_for_several() -> None:
    """The shared DequantizeLinear vanishes, for both of its users fold; the weight's stays small in both."""
    graph = inferred(
        """
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear(w, s, zi)
            one = MatMul(xf, wf)
            q1 = QuantizeLinear(one, s, zu)
            two = MatMul(xf, wf)
            q2 = QuantizeLinear(two, s, zu)
        """,
        {"x": (3, 16)},
        weights={"w": (16, 8), **SCALES},
        types=TYPES,
        outputs=["q1", "q2"],
        opset=21,
    )
    folded = fold_quantization(recognise(graph, runtime="eager"))
    assert [node.op_type for node in folded.graph.nodes] == ["QuantizedMatMul", "QuantizedMatMul"]
    assert not {"xf", "wf", "one", "two"} & set(folded.values)


def test_what_the_graph_gives_out_stays_in_floating_point() -> None:
    graph = inferred(
        """
            xf = DequantizeLinear(x, s, zu)
            wf = DequantizeLinear(w, s, zi)
            p = MatMul(xf, wf)
            y = QuantizeLinear(p, s, zu)
        """,
        {"x": (3, 16)},
        weights={"w": (16, 8), **SCALES},
        types=TYPES,
        outputs=["p", "y", "xf"],
        opset=21,
    )
    folded = fold_quantization(recognise(graph, runtime="eager"))
    assert [node.op_type for node in folded.graph.nodes] == ["DequantizeLinear", "QuantizedMatMul", "QuantizeLinear"]


def test_a_graph_without_pairs_comes_back_as_it_is() -> None:
    graph = inferred("y = Relu(x)", {"x": (3,)})
    assert fold_quantization(graph) is graph


def test_a_pair_in_a_branch_folds_there() -> None:
    graph = inferred(
        """
            y = If (c) <
                then_branch = g1 () => (int8[N] t) { xf = DequantizeLinear(x, s)
                    r = Relu(xf)
                    t = QuantizeLinear(r, s, zi) },
                else_branch = g2 () => (int8[N] e) { e = Identity(x) }>
        """.replace("\n", " "),
        {"x": (3,), "c": ()},
        weights={"s": (), "zi": ()},
        types={"x": I8, "c": TensorProto.BOOL, "zi": I8},
    )
    (body,) = [body for (_, name), body in fold_quantization(graph).bodies.items() if name == "then_branch"]
    assert [node.op_type for node in body.graph.nodes] == ["Relu"]
