"""Models that break other analysers, each through the whole analysis: shapes, multiply-adds, kernels, what is said.

Every case stands for a kind of fault. Multiply-adds and bytes are worked out by hand beside the case.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from models import external_tensor, graph, model, node, tensor, value
from neusight_onnx import analyze
from neusight_onnx.cli import main
from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.report.model import Report

OPSETS = '"" : {opset}, "com.microsoft" : 1, "acme" : 1'
STANDING = ("precision ", "runtime ", "inputs are on the GPU")
"""Beginnings of the assumptions that every report has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``outputs``: shapes in order; ``classes``: those of the kernels; ``says``: parts of assumptions and warnings."""

    text: str
    outputs: tuple[tuple[int, ...] | None, ...]
    classes: tuple[str, ...]
    macs: int = 0
    read_bytes: int | None = None
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    types: Mapping[str, int] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    opset: int = 18
    says: tuple[str, ...] = ()
    partial: bool = False


def written(case: Case, folder: Path) -> Path:
    """The case as a file; weights are zeros."""
    proto = parser.parse_model(f"<ir_version: 9, opset_import: [{OPSETS.format(opset=case.opset)}]>\n{case.text}")
    for name, shape in case.weights.items():
        dtype = case.types.get(name, TensorProto.FLOAT)
        array = np.zeros(shape, helper.tensor_dtype_to_np_dtype(dtype))
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    path = folder / "case.onnx"
    onnx.save(proto, path)
    return path


def said(report: Report) -> list[str]:
    """What a report says of this model, not of every one."""
    texts = [text for text in report.assumptions if not text.startswith(STANDING)]
    return [*texts, *(notice.message for notice in report.warnings)]


CASES = {
    # n * cin * h * w * cout * r * s = 64 * 256 * 8 * 4
    "transposed convolution counts its input's grid": Case(
        text="g (float[1, 64, 16, 16] x) => (float[a, b, c, d] y) "
        "{ y = ConvTranspose<strides = [2, 2], kernel_shape = [2, 2]>(x, w) }",
        weights={"w": (64, 8, 2, 2)},
        outputs=((1, 8, 32, 32),),
        classes=("conv",),
        macs=64 * 256 * 8 * 4,
    ),
    # 10 steps x 4 gates x 32 x (16 + 32) x 2 samples
    "LSTM with empty inputs, its size derived from R": Case(
        text="g (float[10, 2, 16] x) => (float[a] y) { y, h, c = LSTM(x, w, r, , , h0) }",
        weights={"w": (1, 128, 16), "r": (1, 128, 32), "h0": (1, 2, 32)},
        outputs=((10, 1, 2, 32),),
        classes=("gemm", "recurrent"),
        macs=10 * 4 * 32 * (16 + 32) * 2,
    ),
    "a shape through Shape, Gather and Concat": Case(
        text="""g (float[B, S, 64] x) => (float[a, b, c, d] y)
          <int64[1] z = {0}, int64[1] one = {1}, int64[2] t = {4, 16}> {
            s = Shape(x)  b = Gather(s, z)  n = Gather(s, one)  t1 = Concat<axis = 0>(b, n, t)
            r = Reshape(x, t1)  y = Transpose<perm = [0, 2, 1, 3]>(r)
        }""",
        outputs=((2, 4, 5, 16),),
        classes=(),
        dims={"B": 2, "S": 5},
    ),
    "If: both branches are costed, the worst is shown": Case(
        text="""g (float[2, 4] x, bool c) => (float[a, b] y) <int64[1] z = {0}, int64[1] two = {2}, int64[1] ax = {1}> {
            t = If (c) <then_branch = t () => (float[2, 4] p) { p = Relu(x) },
                        else_branch = e () => (float[2, 2] q) { q = Slice(x, z, two, ax) }>
            y = Relu(t)
        }""",
        outputs=((2, 4),),
        classes=("elementwise", "elementwise"),
        says=("the larger of [2, 4] and [2, 2]", "the slower branch 'then'", "'else' would take 0 us"),
    ),
    "Loop: rank kept, five runs": Case(
        text="""g (float[4, 32] x) => (float[a, b] y) <int64 n = {5}, bool go = {1}> {
            y = Loop(n, go, x) <body = b (int64 i, bool c, float[4, 32] h) => (bool c2, float[4, 32] h2)
              { c2 = Identity(c)  h2 = MatMul(h, w) }>
        }""",
        weights={"w": (32, 32)},
        outputs=((4, 32),),
        classes=("gemm",),
        macs=5 * 4 * 32 * 32,
    ),
    "NonZero is bounded and goes on": Case(
        text="g (float[8, 8] x) => (float[k] y) { n = NonZero(x)  t = Transpose(n)  y = GatherND(x, t) }",
        outputs=((64,),),
        classes=("sort", "gather_scatter"),
        says=("at most 64 columns",),
    ),
    "NonMaxSuppression is bounded": Case(
        text="""g (float[1, 100, 4] b, float[1, 3, 100] s) => (int32[a, d] y) <int64 most = {10}> {
            i = NonMaxSuppression(b, s, most)  y = Cast<to = 6>(i) }""",
        outputs=((30, 3),),
        classes=("sort", "movement"),
        says=("at most 30 rows: 1 images, 3 classes, 10 boxes each",),
    ),
    # 10 rows x 256 x 128; reads 10 * 128 floats, 16,384 bytes of weights, 1024 scales of float32; Relu 10 * 256 floats
    "weights of 4 bits": Case(
        text="""g (float[B, S, 128] x) => (float[a, b, c] y)
          { m = com.microsoft.MatMulNBits<K = 128, N = 256, bits = 4, block_size = 32>(x, w, s)  y = Relu(m) }""",
        weights={"w": (256, 4, 16), "s": (1024,)},
        types={"w": TensorProto.UINT8},
        outputs=((2, 5, 256),),
        classes=("gemm", "elementwise"),
        macs=10 * 256 * 128,
        read_bytes=5120 + 16_384 + 4096 + 10_240,
        dims={"B": 2, "S": 5},
    ),
    # 8 heads, 1 query, 128 keys, 64 + 64
    "grouped queries over a cache": Case(
        text="""g (float[B, S, 512] q, float[B, S, 128] k, float[B, 2, P, 64] c, int32[B] l, int32 t)
          => (float[a] o, float[b] pk, float[d] pv)
          { o, pk, pv = com.microsoft.GroupQueryAttention<num_heads = 8, kv_num_heads = 2>(q, k, k, c, c, l, t) }""",
        outputs=((1, 1, 512), (1, 2, 128, 64), (1, 2, 128, 64)),
        classes=("attention",),
        macs=8 * 128 * (64 + 64),
        dims={"B": 1, "S": 1, "P": 127},
    ),
    # 2 samples x 4 heads x 16 x 16 pairs x (16 + 16)
    "Attention and RMSNormalization of opset 23": Case(
        text="""g (float[B, S, 64] x) => (float[a] y)
          { n = RMSNormalization(x, w)  y = Attention<q_num_heads = 4, kv_num_heads = 4>(n, n, n) }""",
        weights={"w": (64,)},
        outputs=((2, 16, 64),),
        classes=("normalization", "attention"),
        macs=2 * 4 * 16 * 16 * 32,
        dims={"B": 2, "S": 16},
        opset=23,
    ),
    "an unknown operator; what follows it has no shape": Case(
        text="g (float[4, 8] x) => (float[a, b] y) { m = acme.MyOp(x)  y = MatMul(m, w) }",
        weights={"w": (8, 16)},
        outputs=(None,),
        classes=(),
        partial=True,
        says=("2 nodes are not supported",),
    ),
    # 4 x 16 x 8
    "an unknown operator whose output is declared": Case(
        text="g (float[4, 8] x) => (float[a, b] y) <float[4, 8] m> { m = acme.MyOp(x)  y = MatMul(m, w) }",
        weights={"w": (8, 16)},
        outputs=((4, 16),),
        classes=("gemm",),
        macs=4 * 16 * 8,
        partial=True,
        says=("1 node is not supported",),
    ),
    # 8 x 3 x 5 x 4
    "einsum with an ellipsis that broadcasts": Case(
        text="""g (float[8, 3, 4] x, float[1, 4, 5] w) => (float[a] y)
          { y = Einsum<equation = "...ij,...jk->...ik">(x, w) }""",
        outputs=((8, 3, 5),),
        classes=("gemm",),
        macs=480,
    ),
    # 16 x 4 x 2 x 8
    "matmul with the batch on its right": Case(
        text="g (float[4, 8] x, float[16, 8, 2] w) => (float[a] y) { y = MatMul(x, w) }",
        outputs=((16, 4, 2),),
        classes=("gemm",),
        macs=1024,
    ),
    "no nodes": Case(
        text="g (float[1] x) => (float[1] x) { }",
        outputs=((1,),),
        classes=(),
        says=("no nodes",),
    ),
    # 4 x 32 x 64
    "declared shapes that are wrong": Case(
        text="g (float[4, 64] x) => (float[a, b] y) <float[1, 1] h> { h = MatMul(x, w)  y = Relu(h) }",
        weights={"w": (64, 32)},
        outputs=((4, 32),),
        classes=("gemm", "elementwise"),
        macs=4 * 32 * 64,
        says=("'h' is declared as [1, 1] but its shape is [4, 32]",),
    ),
    # 32 x 64 places x 16 x 9; reads 1,024 + 4,608 bytes and no scale
    "quantised convolution": Case(
        text="""g (uint8[1, 16, 8, 8] x) => (uint8[a] y)
          <float s = {0.1}, uint8 z = {0}, int8 wz = {0}>
          { y = QLinearConv<pads = [1, 1, 1, 1]>(x, s, z, w, s, wz, s, z) }""",
        weights={"w": (32, 16, 3, 3)},
        types={"w": TensorProto.INT8},
        outputs=((1, 32, 8, 8),),
        classes=("conv",),
        macs=294_912,
        read_bytes=1024 + 4608,
    ),
    # sum of both products: 4 * 8 * 8 twice
    "tied weights are read by both and stored once": Case(
        text="g (float[4, 8] x) => (float[a, b] y) { t = Transpose(w)  h = MatMul(x, w)  y = MatMul(h, t) }",
        weights={"w": (8, 8)},
        outputs=((4, 8),),
        classes=("gemm", "gemm"),
        macs=512,
    ),
    "bfloat16": Case(
        text="g (bfloat16[4, 8] x, bfloat16[8, 2] w) => (bfloat16[a, b] y) { y = MatMul(x, w) }",
        outputs=((4, 2),),
        classes=("gemm",),
        macs=64,
    ),
    # 3 x 6 x 64; reads 3 * 64 floats, 384 weights of 4 bits, 24 scales of float32
    "int4 weights in blocks": Case(
        text="""g (float[3, 64] x) => (float[a, b] y)
          { f = DequantizeLinear<axis = 0, block_size = 16>(w, s)  y = MatMul(x, f) }""",
        weights={"w": (64, 6), "s": (4, 6)},
        types={"w": TensorProto.INT4},
        outputs=((3, 6),),
        classes=("gemm",),
        macs=3 * 6 * 64,
        read_bytes=768 + 192 + 96,
        opset=21,
    ),
    # the same with one byte a weight
    "float8 weights in blocks": Case(
        text="""g (float[3, 64] x) => (float[a, b] y)
          { f = DequantizeLinear<axis = 0, block_size = 16>(w, s)  y = MatMul(x, f) }""",
        weights={"w": (64, 6), "s": (4, 6)},
        types={"w": TensorProto.FLOAT8E4M3FN},
        outputs=((3, 6),),
        classes=("gemm",),
        macs=3 * 6 * 64,
        read_bytes=768 + 384 + 96,
        opset=21,
    ),
    "QLinearAdd and QLinearConcat": Case(
        text="""g (uint8[2, 8] x, uint8[2, 8] z) => (uint8[a, b] y) <float s = {0.1}, uint8 o = {0}> {
            h = com.microsoft.QLinearAdd(x, s, o, z, s, o, s, o)
            y = com.microsoft.QLinearConcat<axis = 1>(s, o, h, s, o, x, s, o)
        }""",
        outputs=((2, 16),),
        classes=("elementwise", "movement"),
        read_bytes=16 + 16 + 32,
    ),
    # 2 x 8 x 8 outputs x (4 / 2) x 9 x 6 filters, stride 2: SAME keeps ceil(15 / 2) = 8
    "convolution: SAME, stride, dilation, groups, no kernel_shape": Case(
        text="""g (float[2, 4, 15, 15] x) => (float[a] y)
          { y = Conv<auto_pad = "SAME_UPPER", strides = [2, 2], dilations = [2, 2], group = 2>(x, w) }""",
        weights={"w": (6, 2, 3, 3)},
        outputs=((2, 6, 8, 8),),
        classes=("conv",),
        macs=2 * 64 * 6 * 2 * 9,
    ),
    "depthwise convolution": Case(
        text="g (float[1, 8, 9, 9] x) => (float[a] y) { y = Conv<group = 8>(x, w) }",
        weights={"w": (8, 1, 3, 3)},
        outputs=((1, 8, 7, 7),),
        classes=("conv",),
        macs=49 * 8 * 9,
    ),
    # 6 places x 8 filters x 4 channels x 5, and 5 * 6 * 7 places x 3 filters x 2 channels x 8
    "one- and three-dimensional convolution": Case(
        text="""g (float[1, 4, 20] x, float[1, 2, 6, 7, 8] u) => (float[a] y, float[b] z)
          { y = Conv<strides = [3]>(x, w)  z = Conv(u, v) }""",
        weights={"w": (8, 4, 5), "v": (3, 2, 2, 2, 2)},
        outputs=((1, 8, 6), (1, 3, 5, 6, 7)),
        classes=("conv", "conv"),
        macs=6 * 8 * 4 * 5 + 210 * 3 * 2 * 8,
    ),
    "Gemm without C, transposed": Case(
        text="g (float[8, 4] x) => (float[a, b] y) { y = Gemm<transA = 1, transB = 1>(x, w) }",
        weights={"w": (2, 8)},
        outputs=((4, 2),),
        classes=("gemm",),
        macs=4 * 2 * 8,
    ),
    "sequences and optionals": Case(
        text="""g (float[2, 3] x, float[4, 3] z) => (float[a, b] y) {
            s = SequenceConstruct(x, z)
            o = Optional(s)
            q = OptionalGetElement(o)
            y = ConcatFromSequence<axis = 0>(q)
        }""",
        outputs=((6, 3),),
        classes=("movement",),
    ),
    "Slice with steps, negative steps and INT_MAX ends; Squeeze without axes": Case(
        text="""g (float[10, 9, 1] x) => (float[a, b] y)
          <int64[2] s = {1, -1}, int64[2] e = {9223372036854775807, -9223372036854775808}, int64[2] ax = {0, 1},
           int64[2] k = {3, -2}>
          { c = Slice(x, s, e, ax, k)  q = Squeeze(c)  y = Relu(q) }""",
        outputs=((3, 5),),
        classes=("movement", "elementwise"),
    ),
    "Range and Expand from a shape": Case(
        text="""g (float[B, S] x) => (int64[a, b] y, float[c, d] r)
          <int64 i = {1}, int64 zero = {0}, int64 one = {1}>
          { r = Relu(x)  s = Shape(x)  n = Gather(s, i)  p = Range(zero, n, one)  y = Expand(p, s) }""",
        outputs=((3, 7), (3, 7)),
        classes=("elementwise",),
        dims={"B": 3, "S": 7},
    ),
    # 3.6 GB of zeros, which nobody must write down
    "a huge constant": Case(
        text="""g (float[1] x) => (float[a, b] y) <int64[2] shape = {30000, 30000}>
          { big = ConstantOfShape(shape)  y = Mul(big, x) }""",
        outputs=((30_000, 30_000),),
        classes=("elementwise",),
    ),
    # the branch that is taken holds its own weight
    "weights in the branches of an If": Case(
        text="""g (float[4, 8] x) => (float[a, b] y) <bool c = {1}> {
            y = If (c) <then_branch = t () => (float[4, 2] p) <float[8, 2] tw = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}>
                          { p = MatMul(x, tw) },
                        else_branch = e () => (float[4, 2] q) <float[8, 2] ew = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}>
                          { q = MatMul(x, ew) }>
        }""",
        outputs=((4, 2),),
        classes=("gemm",),
        macs=64,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_case(case: Case, tmp_path: Path) -> None:
    report = analyze(written(case, tmp_path), gpu="a100", dims=case.dims, precision="fp32", runtime="eager")
    assert tuple(output.shape for output in report.model.outputs) == case.outputs
    assert tuple(kernel.kernel_class for kernel in report.kernels) == case.classes
    assert report.totals.macs == case.macs
    assert case.read_bytes is None or report.totals.read_bytes == case.read_bytes
    assert report.totals.partial == case.partial
    for part in case.says:
        assert any(part in text for text in said(report)), said(report)
    assert 0 <= report.totals.latency_ms < 1e4
    assert all(kernel.latency_us > 0 for kernel in report.kernels)


def test_the_unknown_operator_and_what_hangs_on_it(tmp_path: Path) -> None:
    path = written(CASES["an unknown operator; what follows it has no shape"], tmp_path)
    report = analyze(path, gpu="a100")
    assert [(node.op_type, node.reason) for node in report.unsupported] == [
        ("MyOp", "no lowering for acme::MyOp"),
        ("MatMul", "shape unknown because of MyOp_0"),
    ]
    told = analyze(path, gpu="a100", shapes={"m": (4, 8)})
    assert [node.op_type for node in told.unsupported] == ["MyOp"]
    assert told.totals.macs == 4 * 16 * 8


def test_tied_weights_count_once(tmp_path: Path) -> None:
    report = analyze(written(CASES["tied weights are read by both and stored once"], tmp_path), gpu="a100")
    assert (report.model.parameter_count, report.model.weight_bytes) == (64, 256)


# --- Files ------------------------------------------------------------------------------------------------------------


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def product(names: tuple[str, ...] = ("n", "n", "n")) -> onnx.ModelProto:
    """x (4, 32) times w (32, 32), as often as there are names."""
    nodes = [node("MatMul", f"h{index} w", f"h{index + 1}", name) for index, name in enumerate(names)]
    weight = tensor("w", np.zeros((32, 32), np.float32))
    return model(graph(nodes, [value("h0", (4, 32))], [value(f"h{len(names)}", None)], [weight]))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("n", "n", "n"), id="duplicate"),
        pytest.param(("", "", ""), id="empty"),
        pytest.param(("a b/c\u00e9\u4e2d", "a\nb", "n" * 5000), id="odd"),
    ],
)
def test_names_become_distinct_and_stay(names: tuple[str, ...], tmp_path: Path) -> None:
    first, second = (analyze(saved(product(names), tmp_path), gpu="a100") for _ in range(2))
    assert [kernel.nodes for kernel in first.kernels] == [kernel.nodes for kernel in second.kernels]
    assert len({kernel.nodes for kernel in first.kernels}) == len({kernel.id for kernel in first.kernels}) == 3
    warned = {notice.code for notice in first.warnings}
    assert ("duplicate-node-name" in warned) == (names[0] == names[1] != "")


def test_nodes_out_of_order_are_sorted(tmp_path: Path) -> None:
    proto = product()
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    report = analyze(saved(proto, tmp_path), gpu="a100")
    assert report.totals.macs == 3 * 4 * 32 * 32
    assert "unsorted-nodes" in {notice.code for notice in report.warnings}


def test_a_missing_weight_file_stops_nothing(tmp_path: Path) -> None:
    proto = product()
    proto.graph.initializer[0].CopyFrom(external_tensor("w", (32, 32), "weights.bin"))
    report = analyze(saved(proto, tmp_path), gpu="a100")
    assert report.totals.macs == 3 * 4 * 32 * 32
    (warning,) = [notice for notice in report.warnings if notice.code == "external-data-missing"]
    assert "weights.bin" in warning.message
    assert "4,096 bytes" in warning.message


def test_every_initializer_external_small_integers_are_read(tmp_path: Path) -> None:
    """The target of a Reshape stands in the file beside the weight; the weight itself is behind the file's end."""
    (tmp_path / "data.bin").write_bytes(b"\0" * 64 + np.array([4, 8, 4], np.int64).tobytes())
    proto = model(
        graph(
            [node("MatMul", "x w", "h"), node("Reshape", "h t", "y")],
            [value("x", ("B", 16))],
            [value("y", None)],
            [
                external_tensor("w", (16, 32), "data.bin", offset=1 << 20, length=2048),
                external_tensor("t", (3,), "data.bin", TensorProto.INT64, offset=64, length=24),
            ],
        )
    )
    report = analyze(saved(proto, tmp_path), gpu="a100", dims={"B": 4})
    assert report.model.outputs[0].shape == (4, 8, 4)


def test_initializers_listed_as_inputs_are_weights(tmp_path: Path) -> None:
    proto = product()
    proto.graph.input.append(value("w", (32, 32)))
    report = analyze(saved(proto, tmp_path), gpu="a100")
    assert [each.name for each in report.model.inputs] == ["h0"]
    assert report.kernels[0].dims["b_is_weight"] == 1


def test_newer_versions_are_named(tmp_path: Path) -> None:
    proto = model(
        graph([node("Relu", "x", "y")], [value("x", (2,))], [value("y", None)]), opsets={"": 99}, ir_version=99
    )
    report = analyze(saved(proto, tmp_path), gpu="a100")
    newest = onnx.defs.onnx_opset_version()
    (opset,) = [notice.message for notice in report.warnings if notice.code == "opset-newer"]
    assert "99" in opset
    assert str(newest) in opset
    assert "ir-version-newer" in {notice.code for notice in report.warnings}
    assert len(report.kernels) == 1


def test_minus_one_dims_are_open(tmp_path: Path) -> None:
    proto = product()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    report = analyze(saved(proto, tmp_path), gpu="a100")
    assert report.model.inputs[0].shape == (1, 32)
    assert any("h0" in text for text in said(report))
    assert analyze(saved(proto, tmp_path), gpu="a100", shapes={"h0": (4, 32)}).totals.macs == 3 * 4 * 32 * 32


def test_a_symbol_of_two_sizes(tmp_path: Path) -> None:
    proto = model(graph([node("Add", "a b", "y")], [value("a", ("N", 4)), value("b", ("N", 4))], [value("y", None)]))
    with pytest.raises(BindingError, match=r"b=3x4 makes 'N' 3, but --shape a=2x4 made it 2.* do not broadcast"):
        analyze(saved(proto, tmp_path), gpu="a100", shapes={"a": (2, 4), "b": (3, 4)})


def test_a_symbol_of_two_sizes_where_the_graph_does_not_mind(tmp_path: Path) -> None:
    shown = [value("a", ("N", 4)), value("b", ("N", 4))]
    proto = model(graph([node("Concat", "a b", "y", axis=0)], shown, [value("y", None)]))
    report = analyze(saved(proto, tmp_path), gpu="a100", shapes={"a": (2, 4), "b": (3, 4)})
    assert report.model.outputs[0].shape == (5, 4)
    assert [notice.code for notice in report.warnings] == ["symbol-contradiction"]


def test_a_baked_in_reshape_forces_a_dim_that_is_declared_free(tmp_path: Path) -> None:
    target = tensor("t", np.array([8, 4], np.int64))
    proto = model(graph([node("Reshape", "x t", "y")], [value("x", ("N", 4))], [value("y", None)], [target]))
    with pytest.raises(ModelError, match=r"Reshape.*\[3, 4\]") as error:
        analyze(saved(proto, tmp_path), gpu="a100", dims={"N": 3})
    assert "\n" not in str(error.value)
    assert analyze(saved(proto, tmp_path), gpu="a100", dims={"N": 8}).model.outputs[0].shape == (8, 4)


def test_functions_nested_twice_keep_their_trail(tmp_path: Path) -> None:
    """pkg.Block calls pkg.Lin, which multiplies and adds: Block/Lin/MatMul, a linear layer for the runtime."""
    proto = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18, "pkg" : 1]>
        g (float[4, 8] x) => (float[a, b] y) { y = pkg.Block (x, w, v) }
        <domain: "pkg", opset_import: ["" : 18, "pkg" : 1]>
        Block (x, w, v) => (y) { h = pkg.Lin (x, w, v)  y = Relu (h) }
        <domain: "pkg", opset_import: ["" : 18]>
        Lin (x, w, v) => (y) { h = MatMul (x, w)  y = Add (h, v) }"""
    )
    for name, shape in (("w", (8, 2)), ("v", (2,))):
        proto.graph.initializer.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
    proto.graph.node[0].name = "Block"
    report = analyze(saved(proto, tmp_path), gpu="a100", runtime="eager")
    assert [kernel.kernel_class for kernel in report.kernels] == ["gemm", "elementwise"]
    assert all(name.startswith("Block/Lin") for name in report.kernels[0].nodes)
    assert report.kernels[1].nodes[0].startswith("Block/Relu")


def test_a_chain_of_20_000_nodes(tmp_path: Path) -> None:
    nodes = [node("Relu", f"v{index}", f"v{index + 1}") for index in range(20_000)]
    report = analyze(saved(model(graph(nodes, [value("v0", (4,))], [value("v20000", None)])), tmp_path), gpu="a100")
    assert len(report.kernels) == 20_000


def test_data_that_would_leave_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(np.array([2, 2], np.int64).tobytes())
    inner = tmp_path / "inner"
    inner.mkdir()
    target = external_tensor("t", (2,), "../secret.bin", TensorProto.INT64)
    proto = model(graph([node("Reshape", "x t", "y")], [value("x", (4,))], [value("y", None)], [target]))
    with pytest.raises(ModelError, match="not inside the model's folder"):
        analyze(saved(proto, inner), gpu="a100")


def refusing(content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "broken.onnx"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(refusing(b"this is text\n" * 40), id="text"),
        pytest.param(refusing(product().SerializeToString()[:-900]), id="truncated"),
        pytest.param(refusing(b""), id="empty"),
        pytest.param(lambda folder: folder, id="folder"),
    ],
)
def test_what_is_no_model_is_one_line(
    write: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(write(tmp_path)), "--gpu", "a100"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1


# --- What the user says of open sizes ---------------------------------------------------------------------------------


OPEN = """g (float[N, C] x, int64 step, int64[2] target, int64[3] fixed) => (float[a, b] y, int64[k] r) {
    y = Reshape(x, target)
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    r = Range(zero, step, one)
}"""


@pytest.mark.parametrize(
    ("arguments", "outputs"),
    [
        pytest.param(["--shape", "x=6x4", "--value", "target=[8,3]", "--value", "step=5"], [[8, 3], [5]], id="shape"),
        pytest.param(
            ["--dim", "N=6,C=4", "--value", "target=[-1,2]", "--value", "step=16000"], [[12, 2], [16000]], id="dims"
        ),
        pytest.param(
            ["--shape", "x=6x4", "--shape", "step=scalar", "--value", "step=5", "--value", "target=[24,1]"],
            [[24, 1], [5]],
            id="scalar",
        ),
        pytest.param(
            ["--shape", "x=6x4", "--shape", "fixed=3", "--value", "step=1", "--value", "target=[4,6]"],
            [[4, 6], [1]],
            id="an input that is static already",
        ),
    ],
)
def test_bindings_from_the_command_line(
    arguments: list[str], outputs: list[list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(Case(text=OPEN, outputs=(), classes=()), tmp_path)
    assert main(["inspect", str(path), "--values", "--format", "json", *arguments]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [shown["values"][name]["shape"] for name in ("y", "r")] == outputs


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["--dim", "M=3"], "M", id="no such symbol"),
        pytest.param(["--shape", "x=6"], "1 dimensions, the model declares 2", id="rank"),
        pytest.param(["--shape", "fixed=4"], "fixed", id="another size than the file's"),
        pytest.param(["--shape", "step=1"], "step", id="a scalar is no vector"),
        pytest.param(["--shape", "x=6x-4"], "x=6x-4", id="negative"),
        pytest.param(["--dim", "N=6", "--shape", "x=7x4"], "N", id="contradiction"),
        pytest.param(["--value", "target=[1,2,3]"], "target", id="a value of another shape"),
        pytest.param(["--value", "nothing=3"], "nothing", id="no such input"),
        pytest.param(["--trip-count", "nothing=3"], "nothing", id="no such loop"),
    ],
)
def test_bindings_are_checked_at_the_door(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(Case(text=OPEN, outputs=(), classes=()), tmp_path)
    assert main(["inspect", str(path), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert err.count("\n") == 1


LOOP = """g (float[4, 32] x, int64 n, bool go) => (float[a, b] y) {
    y = Loop(n, go, x) <body = b (int64 i, bool c, float[4, 32] h) => (bool c2, float[4, 32] h2)
      { c2 = Identity(c)  h2 = MatMul(h, w) }>
}"""
SCAN = """g (float[T, 32] x, float[1, 32] s) => (float[a, b] y, float[c, d] z) {
    y, z = Scan<num_scan_inputs = 1, body = b (float[1, 32] h, float[32] e) => (float[1, 32] h2, float[1, 32] o)
      { h2 = MatMul(h, w)  o = Identity(h2) }>(s, x)
}"""


@pytest.mark.parametrize(
    ("text", "bound", "trips", "says"),
    [
        pytest.param(LOOP, {}, 1, "taken to run once", id="assumed"),
        pytest.param(LOOP, {"trip_counts": {"Loop_0": 7}}, 7, None, id="--trip-count"),
        pytest.param(LOOP, {"values": {"n": np.array(3), "go": np.array(True)}}, 3, None, id="--value"),
        pytest.param(SCAN, {"dims": {"T": 9}}, 9, None, id="a bound dim"),
    ],
)
def test_trips(text: str, bound: dict[str, object], trips: int, says: str | None, tmp_path: Path) -> None:
    case = Case(text=text, outputs=(), classes=(), weights={"w": (32, 32)})
    report = analyze(written(case, tmp_path), gpu="a100", **bound)
    rows = 4 if text is LOOP else 1
    assert report.totals.macs == trips * rows * 32 * 32
    assert [kernel.count for kernel in report.kernels if kernel.kernel_class == "gemm"] == [trips]
    assert any("taken to run once" in line for line in said(report)) == (says is not None)


HEADS = "float16[1, 4, 3, 8] q, float16[1, 2, {keys}, 8] k, float16[1, 2, {keys}, 8] v"


@pytest.mark.parametrize(
    ("inputs", "node", "pairs"),
    [
        pytest.param(HEADS.format(keys=5), "y = Attention(q, k, v)", 15, id="every key"),
        # queries stand at 0, 1, 2, whatever number of keys there is
        pytest.param(HEADS.format(keys=5), "y = Attention<is_causal = 1>(q, k, v)", 1 + 2 + 3, id="causal"),
        # queries stand behind 5 keys of the cache
        pytest.param(
            HEADS.format(keys=3) + ", float16[1, 2, 5, 8] pk, float16[1, 2, 5, 8] pv",
            "y, nk, nv = Attention<is_causal = 1>(q, k, v, , pk, pv)",
            6 + 7 + 8,
            id="causal behind a cache",
        ),
        # queries stand at the end of a cache of which so many keys are filled: at most all
        pytest.param(
            HEADS.format(keys=8) + ", int64[1] n",
            "y = Attention<is_causal = 1>(q, k, v, , , , n)",
            6 + 7 + 8,
            id="causal in a filled cache",
        ),
        pytest.param(
            HEADS.format(keys=3) + ", float16[1, 2, 5, 8] pk, float16[1, 2, 5, 8] pv",
            "y, nk, nv = Attention<is_causal = 1, left_window_size = 3>(q, k, v, , pk, pv)",
            4 + 4 + 4,
            id="a window behind",
        ),
    ],
)
def test_pairs_of_attention(inputs: str, node: str, pairs: int, tmp_path: Path) -> None:
    """4 heads, two a key head, in 16 bits; each pair is 8 multiply-adds for its score and 8 for its value."""
    opset = 23 if "window" not in node and "int64" not in inputs else onnx.defs.onnx_opset_version()
    case = Case(text=f"g ({inputs}) => (float16[a, b, c, d] y) {{ {node} }}", outputs=(), classes=(), opset=opset)
    report = analyze(written(case, tmp_path), gpu="a100")
    assert report.totals.macs == 4 * pairs * 16
    assert report.model.outputs[0].shape == (1, 4, 3, 8)


@pytest.mark.parametrize(("cell", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_cells_in_both_directions(cell: str, gates: int, tmp_path: Path) -> None:
    """5 steps of 2 samples: (4 + 3) inputs a gate, 3 gates wide, twice."""
    case = Case(
        text="g (float[5, 2, 4] x) => (float[a] y) "
        f'{{ y = {cell}<hidden_size = 3, direction = "bidirectional">(x, w, r) }}',
        weights={"w": (2, 3 * gates, 4), "r": (2, 3 * gates, 3)},
        outputs=(),
        classes=(),
    )
    report = analyze(written(case, tmp_path), gpu="a100", runtime="eager")
    assert report.totals.macs == 2 * 5 * 2 * gates * 3 * (4 + 3)
    assert report.model.outputs[0].shape == (5, 2, 2, 3)
