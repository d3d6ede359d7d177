"""What operators become: dims, work and traffic, worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper

from graphs import inferred, split
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Movement,
    Normalization,
    Opaque,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    Sort,
)
from neusight_onnx.lowering import lower, operator_table
from neusight_onnx.lowering.registry import RULES, lowers

INT8, UINT8, INT32, INT64, BOOL, STRING, F16 = (
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
    TensorProto.FLOAT16,
)
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Nodes, and the kernels of the last one: (class, what its fields or figures must be)."""

    name: str
    nodes: str
    inputs: Shapes
    expected: list[tuple[type, dict[str, object]]]
    weights: Shapes = field(default_factory=dict)
    constants: dict[str, object] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    opset: int = 17
    runtime: str = "eager"


def ew(*operations: str, read: int, written: int) -> tuple[type, dict[str, object]]:
    return Elementwise, {"operations": operations, "read_bytes": read, "write_bytes": written}


def moved(operation: str, read: int, written: int) -> tuple[type, dict[str, object]]:
    return Movement, {"operation": operation, "read_bytes": read, "write_bytes": written}


MATMUL = [
    Case(
        name="batch folds into m",
        nodes="y = MatMul(x, w)",
        inputs={"x": (2, 8, 16)},
        weights={"w": (16, 32)},
        expected=[(Gemm, {"batch": 1, "m": 16, "n": 32, "k": 16, "b_is_weight": True, "transpose_b": True})],
    ),
    Case(
        name="right operand of rank 2 that is computed",
        nodes="y = MatMul(x, z)",
        inputs={"x": (2, 8, 16), "z": (16, 32)},
        expected=[(Gemm, {"batch": 1, "m": 16, "b_is_weight": False, "transpose_b": False})],
    ),
    Case(
        name="both batched",
        nodes="y = MatMul(x, z)",
        inputs={"x": (2, 3, 8, 16), "z": (2, 3, 16, 4)},
        expected=[(Gemm, {"batch": 6, "m": 8, "n": 4, "k": 16, "a_batch": None, "b_batch": None})],
    ),
    Case(
        name="left operand shared",
        nodes="y = MatMul(x, z)",
        inputs={"x": (4, 2), "z": (16, 2, 8)},
        expected=[
            (Gemm, {"batch": 16, "a_batch": 1, "m": 4, "n": 8, "k": 2, "macs": 1024, "read_bytes": 4 * (8 + 256)})
        ],
    ),
    Case(
        name="right operand shared by a batch of one",
        nodes="y = MatMul(x, z)",
        inputs={"x": (5, 4, 2), "z": (1, 2, 8)},
        expected=[(Gemm, {"batch": 5, "a_batch": None, "b_batch": 1})],
    ),
    Case(
        name="vector times matrix",
        nodes="y = MatMul(x, z)",
        inputs={"x": (16,), "z": (16, 4)},
        expected=[(Gemm, {"m": 1, "n": 4, "k": 16})],
    ),
    Case(
        name="batch times vector",
        nodes="y = MatMul(x, z)",
        inputs={"x": (3, 5, 16), "z": (16,)},
        expected=[(Gemm, {"m": 15, "n": 1, "k": 16})],
    ),
    Case(
        name="half precision",
        nodes="y = MatMul(x, z)",
        inputs={"x": (4, 8), "z": (8, 2)},
        types={"x": F16, "z": F16},
        expected=[(Gemm, {"dtype": DataType.FLOAT16, "read_bytes": 2 * 48, "write_bytes": 16})],
    ),
]
GEMM = [
    Case(
        name="bias",
        nodes="y = Gemm(x, w, b)",
        inputs={"x": (4, 8)},
        weights={"w": (8, 3), "b": (3,)},
        expected=[(Gemm, {"m": 4, "n": 3, "k": 8, "epilogue": ("bias",), "read_bytes": 4 * (32 + 24 + 3)})],
    ),
    Case(
        name="transposed weight, no C",
        nodes="y = Gemm<transB=1>(x, w)",
        inputs={"x": (4, 8)},
        weights={"w": (3, 8)},
        expected=[(Gemm, {"m": 4, "n": 3, "k": 8, "epilogue": (), "transpose_b": True, "flops": 2 * 96})],
    ),
    Case(
        name="transposed A",
        nodes="y = Gemm<transA=1>(x, w)",
        inputs={"x": (8, 4)},
        weights={"w": (8, 3)},
        expected=[(Gemm, {"m": 4, "n": 3, "k": 8, "transpose_a": True})],
    ),
    Case(
        name="full C",
        nodes="y = Gemm(x, w, c)",
        inputs={"x": (4, 8), "c": (4, 3)},
        weights={"w": (8, 3)},
        expected=[(Gemm, {"epilogue": ("add",), "read_bytes": 4 * (32 + 24 + 12)})],
    ),
    Case(
        name="C of one column",
        nodes="y = Gemm(x, w, c)",
        inputs={"x": (4, 8), "c": (4, 1)},
        weights={"w": (8, 3)},
        expected=[(Gemm, {"epilogue": ("broadcast_add",), "read_bytes": 4 * (32 + 24 + 4)})],
    ),
    Case(
        name="beta of 0 drops C",
        nodes="y = Gemm<beta=0.0>(x, w, c)",
        inputs={"x": (4, 8), "c": (4, 3)},
        weights={"w": (8, 3)},
        expected=[(Gemm, {"epilogue": ()})],
    ),
]
EINSUM = [
    Case(
        name="matrix product",
        nodes='y = Einsum<equation="ij,jk->ik">(a, b)',
        inputs={"a": (3, 4), "b": (4, 5)},
        expected=[(Gemm, {"batch": 1, "m": 3, "n": 5, "k": 4})],
    ),
    Case(
        name="ellipsis that broadcasts",
        nodes='y = Einsum<equation="...ij,...jk->...ik">(a, b)',
        inputs={"a": (8, 3, 4), "b": (1, 4, 5)},
        expected=[(Gemm, {"macs": 480})],
    ),
    Case(
        name="attention scores",
        nodes='y = Einsum<equation="bhsd,bhtd->bhst">(a, b)',
        inputs={"a": (2, 3, 5, 7), "b": (2, 3, 6, 7)},
        expected=[(Gemm, {"batch": 6, "m": 5, "n": 6, "k": 7, "transpose_b": True})],
    ),
    Case(
        name="two letters are summed",
        nodes='y = Einsum<equation="bij,ijo->bo">(a, b)',
        inputs={"a": (2, 3, 4), "b": (3, 4, 5)},
        expected=[(Gemm, {"m": 2, "n": 5, "k": 12})],
    ),
    Case(
        name="a letter of one operand is summed first",
        nodes='y = Einsum<equation="ijq,jk->ik">(a, b)',
        inputs={"a": (3, 4, 6), "b": (4, 5)},
        expected=[(Reduction, {"outputs": 12, "reduced": 6}), (Gemm, {"m": 3, "n": 5, "k": 4})],
    ),
    Case(
        name="outer product",
        nodes='y = Einsum<equation="i,j->ij">(a, b)',
        inputs={"a": (3,), "b": (4,)},
        expected=[ew("mul", read=28, written=48)],
    ),
    Case(
        name="pointwise product",
        nodes='y = Einsum<equation="bi,bi->bi">(a, b)',
        inputs={"a": (3, 4), "b": (3, 4)},
        expected=[ew("mul", read=96, written=48)],
    ),
    Case(
        name="sum",
        nodes='y = Einsum<equation="ij->i">(a)',
        inputs={"a": (3, 4)},
        expected=[(Reduction, {"outputs": 3, "reduced": 4})],
    ),
    Case(
        name="three operands from left to right",
        nodes='y = Einsum<equation="ij,jk,kl->il">(a, b, c)',
        inputs={"a": (2, 3), "b": (3, 4), "c": (4, 5)},
        expected=[(Gemm, {"m": 2, "n": 4, "k": 3}), (Gemm, {"m": 2, "n": 5, "k": 4})],
    ),
    Case(
        name="implicit output in alphabetical order",
        nodes='y = Einsum<equation="ij,jk">(a, b)',
        inputs={"a": (2, 3), "b": (3, 4)},
        expected=[(Gemm, {"m": 2, "n": 4, "k": 3})],
    ),
]
CONV = [
    Case(
        name="2-D without bias",
        nodes="y = Conv<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x, w)",
        inputs={"x": (2, 3, 8, 8)},
        weights={"w": (4, 3, 3, 3)},
        expected=[(Conv, {"out": (4, 4), "macs": 2 * 16 * 4 * 27, "epilogue": ()})],
    ),
    Case(
        name="the bias is a kernel of its own in eager",
        nodes="y = Conv(x, w, b)",
        inputs={"x": (1, 3, 4, 4)},
        weights={"w": (4, 3, 3, 3), "b": (4,)},
        expected=[(Conv, {"out": (2, 2), "epilogue": ()}), ew("add", read=4 * (16 + 4), written=64)],
    ),
    Case(
        name="and an epilogue elsewhere",
        nodes="y = Conv(x, w, b)",
        inputs={"x": (1, 3, 4, 4)},
        weights={"w": (4, 3, 3, 3), "b": (4,)},
        runtime="tensorrt",
        expected=[(Conv, {"epilogue": ("bias",), "read_bytes": 4 * (48 + 108 + 4), "write_bytes": 64})],
    ),
    Case(
        name="grouped",
        nodes="y = Conv<group=2>(x, w)",
        inputs={"x": (1, 8, 5, 5)},
        weights={"w": (6, 4, 3, 3)},
        expected=[(Conv, {"groups": 2, "macs": 9 * 6 * 4 * 9})],
    ),
    Case(
        name="depthwise with multiplier",
        nodes="y = Conv<group=4>(x, w)",
        inputs={"x": (1, 4, 5, 5)},
        weights={"w": (8, 1, 3, 3)},
        expected=[(Conv, {"c": 4, "k": 8, "groups": 4, "macs": 9 * 8 * 9})],
    ),
    Case(
        name="dilated 1-D",
        nodes="y = Conv<dilations=[2]>(x, w)",
        inputs={"x": (2, 3, 10)},
        weights={"w": (4, 3, 3)},
        expected=[(Conv, {"out": (6,), "dilations": (2,), "macs": 2 * 6 * 4 * 9})],
    ),
    Case(
        name="3-D",
        nodes="y = Conv(x, w)",
        inputs={"x": (1, 2, 4, 4, 4)},
        weights={"w": (3, 2, 2, 2, 2)},
        expected=[(Conv, {"out": (3, 3, 3), "macs": 27 * 3 * 2 * 8})],
    ),
    Case(
        name="auto_pad SAME with a stride",
        nodes='y = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)',
        inputs={"x": (1, 3, 7, 7)},
        weights={"w": (4, 3, 3, 3)},
        expected=[(Conv, {"out": (4, 4), "macs": 16 * 4 * 27})],
    ),
    Case(
        name="transposed",
        nodes="y = ConvTranspose<strides=[2,2], kernel_shape=[2,2]>(x, w)",
        inputs={"x": (1, 16, 16, 16)},
        weights={"w": (16, 8, 2, 2)},
        expected=[(Conv, {"k": 8, "out": (32, 32), "macs": 256 * 16 * 8 * 4, "transposed": True})],
    ),
    Case(
        name="transposed and grouped",
        nodes="y = ConvTranspose<group=2>(x, w)",
        inputs={"x": (1, 4, 5)},
        weights={"w": (4, 3, 3)},
        expected=[(Conv, {"k": 6, "macs": 5 * 4 * 3 * 3})],
    ),
    Case(
        name="int8",
        nodes="y = QLinearConv<pads=[1,1,1,1]>(x, xs, xz, w, ws, wz, ys, yz, b)",
        inputs={"x": (1, 16, 8, 8)},
        weights={"w": (32, 16, 3, 3), "ws": (32,), "b": (32,)},
        constants={"xs": 0.1, "ys": 0.1},
        types={"x": UINT8, "w": INT8, "xz": UINT8, "wz": INT8, "yz": UINT8, "b": INT32},
        expected=[
            (
                Conv,
                {
                    "macs": 294912,
                    "dtype": DataType.UINT8,
                    "weight_dtype": DataType.INT8,
                    "read_bytes": 1024 + 32 * 144 + 128 + 128,
                    "write_bytes": 2048,
                },
            )
        ],
    ),
]
ELEMENTWISE = [
    Case(name="relu", nodes="y = Relu(x)", inputs={"x": (4, 4)}, expected=[ew("relu", read=64, written=64)]),
    Case(
        name="a scalar is no traffic",
        nodes="y = Mul(x, s)",
        inputs={"x": (4, 4)},
        constants={"s": 2.0},
        expected=[ew("mul", read=64, written=64)],
    ),
    Case(
        name="broadcast on both sides",
        nodes="y = Add(x, z)",
        inputs={"x": (4, 1), "z": (1, 8)},
        expected=[ew("add", read=48, written=128)],
    ),
    Case(
        name="comparison writes bytes",
        nodes="y = Greater(x, z)",
        inputs={"x": (4, 4), "z": (4, 4)},
        expected=[ew("gt", read=128, written=16)],
    ),
    Case(
        name="where with a broadcast condition",
        nodes="y = Where(c, x, s)",
        inputs={"c": (1, 4), "x": (4, 4)},
        constants={"s": 0.0},
        types={"c": BOOL},
        expected=[ew("where", read=68, written=64)],
    ),
    Case(
        name="square",
        nodes="y = Pow(x, p)",
        inputs={"x": (4,)},
        constants={"p": 2.0},
        expected=[ew("pow_scalar", read=16, written=16)],
    ),
    Case(
        name="root",
        nodes="y = Pow(x, p)",
        inputs={"x": (4,)},
        constants={"p": 0.5},
        expected=[ew("sqrt", read=16, written=16)],
    ),
    Case(
        name="general power",
        nodes="y = Pow(x, p)",
        inputs={"x": (4,), "p": (4,)},
        expected=[ew("pow", read=32, written=16)],
    ),
    Case(
        name="expanded operand is read once",
        nodes="e = Expand(z, shape)\ny = Add(x, e)",
        inputs={"x": (8, 4), "z": (1, 4)},
        constants={"shape": [8, 4]},
        expected=[ew("add", read=128 + 16, written=128)],
    ),
    Case(
        name="sum of three: two kernels in eager",
        nodes="y = Sum(x, z, u)",
        inputs={"x": (4,), "z": (4,), "u": (4,)},
        expected=[ew("add", read=32, written=16)] * 2,
    ),
    Case(
        name="sum of three: one elsewhere",
        nodes="y = Sum(x, z, u)",
        inputs={"x": (4,), "z": (4,), "u": (4,)},
        runtime="tensorrt",
        expected=[ew("add", "add", read=48, written=16)],
    ),
    Case(
        name="cast",
        nodes="y = Cast<to=10>(x)",
        inputs={"x": (8,)},
        expected=[moved("cast", 32, 16)],
    ),
    Case(
        name="gelu",
        nodes='y = Gelu<approximate="tanh">(x)',
        inputs={"x": (8,)},
        opset=20,
        expected=[ew("gelu_tanh", read=32, written=32)],
    ),
    Case(
        name="bias and gelu",
        nodes="y = com.microsoft.BiasGelu(x, b)",
        inputs={"x": (4, 8)},
        weights={"b": (8,)},
        expected=[ew("add", "gelu", read=128 + 32, written=128)],
    ),
]
NORMS = [
    Case(
        name="layer",
        nodes="y = LayerNormalization<axis=-1>(x, g, b)",
        inputs={"x": (2, 3, 8)},
        weights={"g": (8,), "b": (8,)},
        expected=[(Normalization, {"method": "layer", "rows": 6, "cols": 8, "parameter_count": 16})],
    ),
    Case(
        name="layer over two axes",
        nodes="y = LayerNormalization<axis=1>(x, g)",
        inputs={"x": (2, 3, 8)},
        weights={"g": (3, 8)},
        expected=[(Normalization, {"rows": 2, "cols": 24, "parameter_count": 24})],
    ),
    Case(
        # as torch 2.9.1 launches LeViT on stand-ins: its own kernel, not cuDNN's, behind two of the running statistics
        name="batch normalization of features, eager",
        nodes="y = BatchNormalization(x, s, b, m, v)",
        inputs={"x": (8, 16)},
        weights=dict.fromkeys("sbmv", (16,)),
        expected=[
            moved("copy", 4 * 16, 4 * 16),
            ew("rsqrt", read=4 * 16, written=4 * 16),
            (Normalization, {"rows": 128, "cols": 1}),
        ],
    ),
    Case(
        name="batch",
        nodes="y = BatchNormalization(x, s, b, m, v)",
        inputs={"x": (2, 3, 4, 4)},
        weights={"s": (3,), "b": (3,), "m": (3,), "v": (3,)},
        expected=[
            (Normalization, {"method": "batch", "rows": 6, "cols": 16, "parameter_count": 12, "write_bytes": 384})
        ],
    ),
    # a row for each channel; 6 operations an element: mean, variance, scale, shift; 3 means and 3 variances are written
    Case(
        name="batch in training",
        nodes="y, rm, rv = BatchNormalization<training_mode=1>(x, s, b, m, v)",
        inputs={"x": (2, 3, 4, 4)},
        weights={"s": (3,), "b": (3,), "m": (3,), "v": (3,)},
        expected=[
            (
                Normalization,
                {
                    "method": "batch",
                    "rows": 3,
                    "cols": 32,
                    "fused": ("statistics",),
                    "flops": 6 * 96,
                    "read_bytes": 4 * (96 + 12),
                    "write_bytes": 4 * (96 + 6),
                },
            )
        ],
    ),
    Case(
        name="batch of opset 9, whose other outputs say nothing",
        nodes="y, a, c, d, e = BatchNormalization(x, s, b, m, v)",
        inputs={"x": (2, 3, 4, 4)},
        weights={"s": (3,), "b": (3,), "m": (3,), "v": (3,)},
        opset=9,
        expected=[(Normalization, {"method": "batch", "rows": 6, "fused": (), "write_bytes": 384})],
    ),
    # (1, 2, 4, 6) products of queries and keys are written, too
    Case(
        name="attention that gives its products",
        nodes="y, , , qk = Attention(q, k, k)",
        inputs={"q": (1, 2, 4, 8), "k": (1, 2, 6, 8)},
        opset=23,
        expected=[(Attention, {"read_bytes": 4 * (64 + 2 * 96), "write_bytes": 4 * (64 + 48)})],
    ),
    # 10 steps of 2 x 32, and the last hidden and cell state of 2 x 32 each
    Case(
        name="lstm with its last states",
        nodes="y, yh, yc = LSTM<hidden_size=32>(x, w, r)",
        inputs={"x": (10, 2, 16)},
        weights={"w": (1, 128, 16), "r": (1, 128, 32)},
        expected=[(Gemm, {}), (Recurrent, {"write_bytes": 4 * (640 + 2 * 64)})],
    ),
    Case(
        name="dropout in training with its mask",
        nodes="y, m = Dropout(x, r, t)",
        inputs={"x": (4, 8)},
        constants={"r": 0.5, "t": np.array(True)},
        expected=[(Elementwise, {"read_bytes": 128, "write_bytes": 128 + 32})],
    ),
    # the values are the input's own; the mask holds 1 byte for each
    Case(
        name="dropout at inference with a mask that is read",
        nodes="y, m = Dropout(x)",
        inputs={"x": (4, 8)},
        expected=[(Movement, {"read_bytes": 0, "write_bytes": 32})],
    ),
    # without views the values are written, too
    Case(
        name="dropout at inference with a mask that is read, without views",
        nodes="y, m = Dropout(x)",
        inputs={"x": (4, 8)},
        runtime="onnxruntime",
        expected=[
            (Movement, {"read_bytes": 128, "write_bytes": 128}),
            (Movement, {"read_bytes": 0, "write_bytes": 32}),
        ],
    ),
    Case(
        name="layer normalization with its statistics",
        nodes="y, mean, inv = LayerNormalization(x, s)",
        inputs={"x": (4, 8)},
        weights={"s": (8,)},
        expected=[(Normalization, {"write_bytes": 4 * (32 + 2 * 4)})],
    ),
    Case(
        name="instance",
        nodes="y = InstanceNormalization(x, s, b)",
        inputs={"x": (2, 3, 4, 4)},
        weights={"s": (3,), "b": (3,)},
        expected=[(Normalization, {"method": "instance", "rows": 6, "cols": 16, "parameter_count": 6})],
    ),
    Case(
        name="group",
        nodes="y = GroupNormalization<num_groups=2>(x, s, b)",
        inputs={"x": (2, 6, 4, 4)},
        weights={"s": (6,), "b": (6,)},
        opset=21,
        expected=[(Normalization, {"method": "group", "rows": 4, "cols": 48})],
    ),
    Case(
        name="RMS",
        nodes="y = RMSNormalization<axis=-1>(x, g)",
        inputs={"x": (2, 3, 8)},
        weights={"g": (8,)},
        opset=23,
        expected=[(Normalization, {"method": "rms", "rows": 6, "cols": 8, "flops": 4 * 48})],
    ),
    Case(
        name="skip",
        nodes="y, m, v, s = com.microsoft.SkipLayerNormalization(x, z, g, b)",
        inputs={"x": (2, 3, 8), "z": (2, 3, 8)},
        weights={"g": (8,), "b": (8,)},
        expected=[(Normalization, {"fused": ("add",), "read_bytes": 4 * (48 + 48 + 16)})],
    ),
    Case(
        name="softmax over the last axis",
        nodes="y = Softmax<axis=-1>(x)",
        inputs={"x": (2, 3, 8)},
        expected=[(Softmax, {"rows": 6, "cols": 8, "inner": 1})],
    ),
    Case(
        name="softmax over channels",
        nodes="y = Softmax<axis=1>(x)",
        inputs={"x": (2, 3, 8)},
        expected=[(Softmax, {"rows": 16, "cols": 3, "inner": 8})],
    ),
    Case(
        name="softmax of opset 11 flattens",
        nodes="y = Softmax<axis=1>(x)",
        inputs={"x": (2, 3, 8)},
        opset=11,
        expected=[(Softmax, {"rows": 2, "cols": 24, "inner": 1})],
    ),
]
REDUCTIONS = [
    Case(
        name="mean over the last axis",
        nodes="y = ReduceMean<axes=[-1]>(x)",
        inputs={"x": (2, 3, 8)},
        expected=[(Reduction, {"operation": "mean", "outputs": 6, "reduced": 8, "inner": 1, "write_bytes": 24})],
    ),
    Case(
        name="sum over a middle axis, axes as input",
        nodes="y = ReduceSum<keepdims=0>(x, a)",
        inputs={"x": (2, 3, 8)},
        constants={"a": [1]},
        expected=[(Reduction, {"outputs": 16, "reduced": 3, "inner": 8})],
    ),
    Case(
        name="over everything",
        nodes="y = ReduceMax<keepdims=0>(x)",
        inputs={"x": (2, 3)},
        expected=[(Reduction, {"outputs": 1, "reduced": 6})],
    ),
    Case(
        name="argmax",
        nodes="y = ArgMax<axis=1, keepdims=0>(x)",
        inputs={"x": (2, 3, 8)},
        expected=[(Reduction, {"operation": "argmax", "outputs": 16, "reduced": 3, "write_bytes": 128})],
    ),
    Case(
        name="cumulative sum",
        nodes="y = CumSum(x, a)",
        inputs={"x": (2, 8)},
        constants={"a": 1},
        expected=[(Reduction, {"outputs": 2, "reduced": 8, "write_bytes": 64})],
    ),
    Case(
        name="max pooling writes indices in eager",
        nodes="y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)",
        inputs={"x": (1, 2, 4, 4)},
        expected=[(Pooling, {"window": 4, "read_bytes": 128, "write_bytes": 8 * (4 + 8)})],
    ),
    Case(
        name="max pooling elsewhere does not",
        nodes="y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)",
        inputs={"x": (1, 2, 4, 4)},
        runtime="onnxruntime",
        expected=[(Pooling, {"write_bytes": 32})],
    ),
    Case(
        name="global average",
        nodes="y = GlobalAveragePool(x)",
        inputs={"x": (1, 2, 4, 4)},
        expected=[(Pooling, {"operation": "global_average", "window": 16, "flops": 32})],
    ),
    Case(
        name="top k",
        nodes="y, i = TopK<axis=-1>(x, k)",
        inputs={"x": (3, 16)},
        constants={"k": [4]},
        expected=[(Sort, {"rows": 3, "cols": 16, "kept": 4, "output_bytes": 12 * (4 + 8)})],
    ),
    Case(
        name="non-zero at its bound",
        nodes="y = NonZero(x)",
        inputs={"x": (4, 16)},
        expected=[(Sort, {"operation": "nonzero", "cols": 64, "kept": 64})],
    ),
]
MOVEMENTS = [
    Case(
        name="concat",
        nodes="y = Concat<axis=1>(x, z)",
        inputs={"x": (2, 3), "z": (2, 5)},
        expected=[moved("concat", 64, 64)],
    ),
    Case(
        name="slice",
        nodes="y = Slice(x, s, e, a)",
        inputs={"x": (4, 8)},
        constants={"s": [1], "e": [5], "a": [1]},
        runtime="onnxruntime",
        expected=[moved("slice", 64, 64)],
    ),
    Case(
        name="slice of what lies together",
        nodes="y = Slice(x, s, e)",
        inputs={"x": (4, 8)},
        constants={"s": [1], "e": [3]},
        runtime="onnxruntime",
        expected=[moved("copy", 64, 64)],
    ),
    Case(
        name="slice of every other row",
        nodes="y = Slice(x, s, e, a, t)",
        inputs={"x": (4, 8)},
        constants={"s": [0], "e": [4], "a": [0], "t": [2]},
        runtime="onnxruntime",
        expected=[moved("slice", 64, 64)],
    ),
    Case(
        name="slice backwards",
        nodes="y = Slice(x, s, e, a, t)",
        inputs={"x": (4, 8)},
        constants={"s": [-1], "e": [-100], "a": [0], "t": [-1]},
        expected=[moved("flip", 128, 128)],
    ),
    Case(
        name="pad: a fill and a copy in eager",
        nodes="y = Pad(x, p)",
        inputs={"x": (4, 8)},
        constants={"p": [0, 1, 0, 1]},
        expected=[moved("fill", 0, 160), moved("copy", 128, 128)],
    ),
    Case(
        name="pad: one kernel elsewhere",
        nodes="y = Pad(x, p)",
        inputs={"x": (4, 8)},
        constants={"p": [0, 1, 0, 1]},
        runtime="onnxruntime",
        expected=[moved("pad", 128, 160)],
    ),
    Case(
        name="gradient of pointwise operators: a fill of ones, two products, a sum where a value is used twice",
        nodes="""c = Add(a, b)
                 d = Mul(c, a)
                 da, db = ai.onnx.preview.training.Gradient<xs=["a", "b"], y="d">(a, b)""",
        inputs={"a": (4, 8), "b": (4, 8)},
        expected=[
            moved("fill", 0, 128),
            ew("mul", read=256, written=128),
            ew("mul", read=256, written=128),
            ew("add", read=256, written=128),
        ],
    ),
    Case(
        name="gradient of a matrix product: (m, n) @ (n, k) and (k, m) @ (m, n)",
        nodes="""y = MatMul(x, w)
                 dx, dw = ai.onnx.preview.training.Gradient<xs=["x", "w"], y="y">(x, w)""",
        inputs={"x": (4, 8), "w": (8, 3)},
        expected=[
            moved("fill", 0, 48),
            (Gemm, {"m": 4, "n": 8, "k": 3, "transpose_b": True, "macs": 96}),
            (Gemm, {"m": 8, "n": 3, "k": 4, "transpose_a": True, "macs": 96}),
        ],
    ),
    Case(
        name="tile",
        nodes="y = Tile(x, r)",
        inputs={"x": (4, 8)},
        constants={"r": [1, 3]},
        expected=[moved("tile", 128, 384)],
    ),
    Case(
        name="transpose",
        nodes="y = Transpose<perm=[1,0]>(x)",
        inputs={"x": (4, 8)},
        runtime="onnxruntime",
        expected=[(Movement, {"operation": "transpose", "shape": (4, 8), "permutation": (1, 0), "read_bytes": 128})],
    ),
    Case(
        name="pixel shuffle",
        nodes='y = DepthToSpace<blocksize=2, mode="CRD">(x)',
        inputs={"x": (1, 8, 3, 3)},
        expected=[(Movement, {"shape": (1, 2, 2, 2, 3, 3), "permutation": (0, 1, 4, 2, 5, 3), "read_bytes": 288})],
    ),
    Case(
        name="nearest resize",
        nodes='y = Resize<mode="nearest">(x, roi, scales)',
        inputs={"x": (1, 2, 3, 3)},
        constants={"scales": [1.0, 1.0, 2.0, 2.0], "roi": []},
        expected=[(Movement, {"operation": "resize", "read_bytes": 72, "write_bytes": 288, "flops": 0})],
    ),
    Case(
        name="embedding",
        nodes="y = Gather(w, i)",
        inputs={"i": (2, 3)},
        weights={"w": (100, 8)},
        types={"i": INT64},
        expected=[
            (
                GatherScatter,
                {"operation": "embedding", "moved": 48, "run": 8, "read_bytes": 192 + 48, "write_bytes": 192},
            )
        ],
    ),
    Case(
        name="gather elements",
        nodes="y = GatherElements<axis=1>(x, i)",
        inputs={"x": (3, 8), "i": (3, 2)},
        types={"i": INT64},
        expected=[(GatherScatter, {"moved": 6, "run": 1, "index_count": 6})],
    ),
    Case(
        name="gather n-d",
        nodes="y = GatherND(x, i)",
        inputs={"x": (3, 4, 8), "i": (5, 2)},
        types={"i": INT64},
        expected=[(GatherScatter, {"moved": 40, "run": 8, "index_count": 10})],
    ),
    Case(
        name="scatter n-d copies its base",
        nodes="y = ScatterND(x, i, u)",
        inputs={"x": (10, 8), "i": (3, 1), "u": (3, 8)},
        types={"i": INT64},
        expected=[(GatherScatter, {"moved": 24, "run": 8, "read_bytes": 96 + 24 + 320, "write_bytes": 96 + 320})],
    ),
]
RECURRENT = [
    Case(
        name="lstm",
        nodes="y = LSTM<hidden_size=32>(x, w, r)",
        inputs={"x": (10, 2, 16)},
        weights={"w": (1, 128, 16), "r": (1, 128, 32)},
        expected=[
            (Gemm, {"batch": 1, "m": 20, "n": 128, "k": 16}),
            (Recurrent, {"cell": "lstm", "steps": 10, "b": 2, "h": 32, "gates": 4, "macs": 10 * 2 * 128 * 32}),
        ],
    ),
    Case(
        name="gru in both directions",
        nodes='y = GRU<hidden_size=8, direction="bidirectional">(x, w, r, b)',
        inputs={"x": (5, 3, 4)},
        weights={"w": (2, 24, 4), "r": (2, 24, 8), "b": (2, 48)},
        expected=[
            (Gemm, {"batch": 2, "a_batch": 1, "m": 15, "n": 24, "k": 4, "epilogue": ("bias",)}),
            (Recurrent, {"directions": 2, "gates": 3, "macs": 5 * 2 * 3 * 24 * 8}),
        ],
    ),
]
ATTENTION = [
    Case(
        name="grouped queries, causal",
        nodes="y = Attention<is_causal=1>(q, k, v)",
        inputs={"q": (2, 8, 4, 16), "k": (2, 2, 4, 16), "v": (2, 2, 4, 16)},
        types=dict.fromkeys("qkv", F16),
        opset=23,
        expected=[(Attention, {"h": 8, "g": 2, "s": 4, "t": 4, "d": 16, "pair_count": 10, "macs": 16 * 10 * 32})],
    ),
    Case(
        # as onnxruntime-gpu 1.31.1 launches on stand-ins: cublasGemmStridedBatchedEx m=7 n=16 k=8 batch=4, a softmax
        name="FP32 with grouped queries, onnxruntime",
        nodes="y = Attention(q, k, v)",
        inputs={"q": (2, 8, 4, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 8)},
        opset=23,
        runtime="onnxruntime",
        expected=[
            (Gemm, {"batch": 4, "m": 16, "n": 7, "k": 8}),
            (Softmax, {"rows": 64, "cols": 7, "generated": False}),
            (Gemm, {"batch": 4, "m": 16, "n": 8, "k": 7}),
        ],
    ),
    Case(
        name="FP32 with grouped queries and a cache, onnxruntime",
        nodes="y, pk, pv = Attention(q, k, v, , ck, cv)",
        inputs={"q": (1, 4, 1, 8), "k": (1, 2, 1, 8), "v": (1, 2, 1, 8), "ck": (1, 2, 6, 8), "cv": (1, 2, 6, 8)},
        opset=23,
        runtime="onnxruntime",
        expected=[
            ew("add", read=4, written=4),
            moved("transpose", 4 * 2 * 8, 4 * 2 * 8),
            moved("transpose", 4 * 2 * 8, 4 * 2 * 8),
            moved("concat", 4 * 2 * 2 * 7 * 8, 4 * 2 * 2 * 7 * 8),
            (Gemm, {"batch": 2, "m": 2, "n": 7, "k": 8}),
            (Softmax, {"rows": 4, "cols": 7}),
            (Gemm, {"batch": 2, "m": 2, "n": 8, "k": 7}),
        ],
    ),
    Case(
        # as torch 2.9.1 launches with enable_gqa on stand-ins: keys and values repeated, the safe softmax's four
        name="FP32 with grouped queries, eager",
        nodes="y = Attention(q, k, v)",
        inputs={"q": (2, 8, 4, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 8)},
        opset=23,
        expected=[
            ew("mul", read=4 * 2 * 8 * 4 * 8, written=4 * 2 * 8 * 4 * 8),
            moved("expand", 4 * 2 * 2 * 7 * 8, 4 * 2 * 8 * 7 * 8),
            moved("expand", 4 * 2 * 2 * 7 * 8, 4 * 2 * 8 * 7 * 8),
            ew("mul", read=4 * 2 * 8 * 7 * 8, written=4 * 2 * 8 * 7 * 8),
            (Gemm, {"batch": 16, "m": 4, "n": 7, "k": 8}),
            (Softmax, {"rows": 64, "cols": 7, "generated": False}),
            ew("eq", read=4 * 64 * 7, written=64 * 7),
            (Reduction, {"operation": "and", "outputs": 64, "reduced": 7}),
            moved("fill", 0, 4),
            ew("where", read=64 + 4 * 64 * 7, written=4 * 64 * 7),
            (Gemm, {"batch": 16, "m": 4, "n": 8, "k": 7}),
        ],
    ),
    Case(
        name="three dimensions and heads as attributes",
        nodes="y = Attention<q_num_heads=4, kv_num_heads=2>(q, k, v)",
        inputs={"q": (2, 6, 64), "k": (2, 7, 32), "v": (2, 7, 32)},
        types=dict.fromkeys("qkv", F16),
        opset=23,
        expected=[(Attention, {"b": 2, "h": 4, "g": 2, "s": 6, "t": 7, "d": 16, "v": 16, "pair_count": 42})],
    ),
    Case(
        name="cache",
        nodes="y, pk, pv = Attention(q, k, v, m, ck, cv)",
        inputs={
            "q": (1, 4, 1, 8),
            "k": (1, 4, 1, 8),
            "v": (1, 4, 1, 8),
            "m": (1, 128),
            "ck": (1, 4, 127, 8),
            "cv": (1, 4, 127, 8),
        },
        opset=23,
        expected=[(Attention, {"s": 1, "t": 128, "cache_write_elements": 2 * 4 * 128 * 8})],
    ),
    Case(
        name="grouped queries with a cache of 127",
        nodes="y, pk, pv = com.microsoft.GroupQueryAttention<num_heads=8, kv_num_heads=2>(q, k, v, ck, cv, s, t)",
        inputs={
            "q": (1, 1, 512),
            "k": (1, 1, 128),
            "v": (1, 1, 128),
            "ck": (1, 2, 127, 64),
            "cv": (1, 2, 127, 64),
            "s": (1,),
        },
        constants={"t": 128},
        types={"s": INT32},
        expected=[(Attention, {"h": 8, "g": 2, "s": 1, "t": 128, "d": 64, "macs": 8 * 128 * 128})],
    ),
    Case(
        name="grouped queries with a cache of four bits",
        nodes="y, pk, pv = com.microsoft.GroupQueryAttention"
        "<num_heads=8, kv_num_heads=2, kv_cache_bit_width=4>(q, k, v, ck, cv, s, t)",
        inputs={
            "q": (1, 1, 512),
            "k": (1, 1, 128),
            "v": (1, 1, 128),
            "ck": (1, 2, 127, 32),
            "cv": (1, 2, 127, 32),
            "s": (1,),
        },
        constants={"t": 128},
        types={"s": INT32, "ck": TensorProto.UINT8, "cv": TensorProto.UINT8},
        # queries in FP32; 2 heads of 64 and 128 keys and values, half a byte each
        expected=[(Attention, {"t": 128, "d": 64, "read_bytes": 4 * 512 + 2 * 128 * 64 * 2 // 2})],
    ),
    *(
        Case(
            name=f"grouped queries that keep a window of 128, {total - 1} before",
            nodes="y, pk, pv = com.microsoft.GroupQueryAttention"
            "<num_heads=8, kv_num_heads=2, local_window_size=128, sliding_window_cache=1>(q, k, v, ck, cv, s, t)",
            inputs={
                "q": (1, 1, 512),
                "k": (1, 1, 128),
                "v": (1, 1, 128),
                "ck": (1, 2, 128, 64),
                "cv": (1, 2, 128, 64),
                "s": (1,),
            },
            constants={"t": total},
            types={"s": INT32},
            expected=[(Attention, {"s": 1, "t": t, "window": 128})],
        )
        for total, t in ((1_000, 129), (20, 20))
    ),
    Case(
        name="rotary",
        nodes="y = RotaryEmbedding(x, c, s, p)",
        inputs={"x": (2, 4, 6, 8), "p": (2, 6)},
        weights={"c": (100, 4), "s": (100, 4)},
        types={"p": INT64},
        opset=23,
        expected=[ew("mul", "mul", "add", read=4 * 384 + 2 * 4 * 48 + 96, written=4 * 384)],
    ),
]
QUANTISED = [
    Case(
        name="4-bit weights",
        nodes="y = com.microsoft.MatMulNBits<K=128, N=256, bits=4, block_size=32>(x, w, s)",
        inputs={"x": (2, 5, 128)},
        weights={"w": (256, 4, 16), "s": (1024,)},
        types={"w": UINT8},
        expected=[
            (
                Gemm,
                {
                    "m": 10,
                    "n": 256,
                    "k": 128,
                    "b_dtype": DataType.UINT4,
                    "read_bytes": 10 * 128 * 4 + 16384 + 4096,
                },
            )
        ],
    ),
    Case(
        name="int8 product",
        nodes="y = MatMulInteger(x, w)",
        inputs={"x": (2, 4, 8)},
        weights={"w": (8, 16)},
        types={"x": UINT8, "w": INT8},
        expected=[
            (
                Gemm,
                {"m": 8, "dtype": DataType.UINT8, "b_dtype": DataType.INT8, "read_bytes": 64 + 128, "write_bytes": 512},
            )
        ],
    ),
    Case(
        name="quantize",
        nodes="y = QuantizeLinear(x, s, z)",
        inputs={"x": (4, 8)},
        constants={"s": 0.1},
        weights={"z": ()},
        types={"z": INT8},
        expected=[ew("quantize", read=128, written=32)],
    ),
    Case(
        name="dequantize along an axis",
        nodes="y = DequantizeLinear<axis=0>(x, s)",
        inputs={"x": (4, 8)},
        weights={"s": (4,)},
        types={"x": INT8},
        expected=[ew("dequantize", read=32 + 16, written=128)],
    ),
    Case(
        name="dynamic: range, then quantize",
        nodes="y, s, z = DynamicQuantizeLinear(x)",
        inputs={"x": (4, 8)},
        expected=[(Reduction, {"operation": "minmax", "reduced": 32}), ew("quantize", read=128, written=32)],
    ),
]
OTHERS = [
    Case(
        name="stft",
        nodes="y = STFT(x, step, w)",
        inputs={"x": (1, 64, 1)},
        constants={"step": 16},
        weights={"w": (16,)},
        expected=[(Opaque, {"operation": "fft", "operation_count": 5 * 4 * 16 * 4})],
    ),
    Case(
        name="linear classifier",
        nodes="l, y = ai.onnx.ml.LinearClassifier<classlabels_ints=[0,1,2], intercepts=[0.0,0.0,0.0],"
        " coefficients=[1.0,1.0,1.0,1.0,1.0,1.0]>(x)",
        inputs={"x": (5, 2)},
        expected=[(Gemm, {"m": 5, "n": 3, "k": 2, "epilogue": ("bias",)}), ew("argmax", read=60, written=40)],
    ),
]
FAMILIES = {
    "matmul": MATMUL,
    "gemm": GEMM,
    "einsum": EINSUM,
    "conv": CONV,
    "elementwise": ELEMENTWISE,
    "normalization": NORMS,
    "reduction": REDUCTIONS,
    "movement": MOVEMENTS,
    "recurrent": RECURRENT,
    "attention": ATTENTION,
    "quantised": QUANTISED,
    "others": OTHERS,
}
CASES = [(f"{family}: {case.name}", case) for family, cases in FAMILIES.items() for case in cases]


@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[name for name, _ in CASES])
def test_kernels_of_an_operator(case: Case) -> None:
    weights = dict(case.weights)
    for name in ("xz", "wz", "yz"):
        if name in case.nodes:
            weights.setdefault(name, ())
    graph = inferred(
        case.nodes, case.inputs, weights=weights, constants=case.constants, types=case.types, opset=case.opset
    )
    work = lower(graph, runtime=case.runtime)[-1]
    assert work.unsupported is None
    found = [
        (type(kernel), {name: getattr(kernel, name) for name in facts})
        for kernel, (_, facts) in zip(work.kernels, case.expected, strict=False)
    ]
    assert found == case.expected
    assert len(work.kernels) == len(case.expected)
    assert work.host_operation


FREE = [
    ("reshape", "y = Reshape(x, s)", {"x": (4, 8)}, {"s": [32]}, "eager", "no element moves", True),
    ("flatten", "y = Flatten(x)", {"x": (4, 8, 2)}, {}, "tensorrt", "no element moves", True),
    ("transpose is a view", "y = Transpose<perm=[1,0]>(x)", {"x": (4, 8)}, {}, "eager", "view", True),
    ("transpose of ones", "y = Transpose<perm=[1,0]>(x)", {"x": (1, 8)}, {}, "tensorrt", "size 1", True),
    ("slice is a view", "y = Slice(x, s, e)", {"x": (4, 8)}, {"s": [1], "e": [3]}, "eager", "view", True),
    ("whole slice", "y = Slice(x, s, e)", {"x": (4, 8)}, {"s": [0], "e": [9]}, "tensorrt", "keeps", True),
    ("split is views", "y, z = Split<axis=1>(x)", {"x": (4, 8)}, {}, "compiled", "view", True),
    ("expand is a view", "y = Expand(x, s)", {"x": (1, 8)}, {"s": [4, 8]}, "eager", "view", True),
    ("one index is a view", "y = Gather(x, i)", {"x": (4, 8)}, {"i": 2}, "eager", "view", True),
    ("identity", "y = Identity(x)", {"x": (4,)}, {}, "eager", "passes", False),
    ("dropout", "y = Dropout(x)", {"x": (4,)}, {}, "eager", "dropout", True),
    ("cast to the same type", "y = Cast<to=1>(x)", {"x": (4,)}, {}, "tensorrt", "type stays", True),
    ("shape", "y = Shape(x)", {"x": (4, 8)}, {}, "eager", "host", False),
    ("shape arithmetic", "s = Shape(x)\ny = Mul(s, two)", {"x": (4, 8)}, {"two": [2]}, "eager", "host", False),
    ("constants", "y = Add(a, b)", {"x": (1,)}, {"a": [1.0], "b": [2.0]}, "eager", "loaded", False),
    ("nothing to do", "e = Slice(x, a, a)\ny = Relu(e)", {"x": (4, 8)}, {"a": [0]}, "eager", "no elements", True),
]


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "runtime", "reason", "host"),
    [row[1:] for row in FREE],
    ids=[row[0] for row in FREE],
)
def test_free_nodes_say_why(
    nodes: str, inputs: Shapes, constants: dict[str, object], runtime: str, reason: str, host: bool
) -> None:
    work = lower(inferred(nodes, inputs, constants=constants), runtime=runtime)[-1]
    assert work.free is not None
    assert reason in work.free
    assert work.host_operation == host
    assert work.kernels == ()


@pytest.mark.parametrize(
    ("length", "runtime", "written"),
    [
        pytest.param(128, "eager", None, id="what may describe a shape"),
        pytest.param(129, "eager", 129 * 4, id="a tensor, as PyTorch fills a mask"),
        pytest.param(129, "tensorrt", None, id="folded by a compiler"),
    ],
)
def test_a_tensor_that_follows_from_shapes_is_filled_in_every_run(
    length: int, runtime: str, written: int | None
) -> None:
    work = lower(inferred("s = Shape(x)\nm = ConstantOfShape(s)\ny = Add(x, m)", {"x": (length,)}), runtime=runtime)[1]
    assert work.op_type == "ConstantOfShape"
    assert [kernel.write_bytes for kernel in work.kernels] == ([] if written is None else [written])


def test_unknown_operator_and_its_cascade() -> None:
    works = lower(inferred("m = acme.MyOp(x)\ny = Relu(m)", {"x": (4, 8)}), runtime="eager")
    assert works[0].unsupported == "no lowering for acme::MyOp"
    assert works[1].unsupported == f"shape unknown because of {works[0].node}"


def test_second_claim_is_refused() -> None:
    with pytest.raises(ValueError, match="Relu has a rule already"):
        lowers("Relu", gives="elementwise")(RULES["", "Relu"].function)


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml"])
def test_every_operator_of_the_standard_has_a_rule(domain: str) -> None:
    known = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == domain}
    assert known - {name for there, name, _, _ in operator_table() if there == domain} == set()


def test_operator_table_names_kernel_classes() -> None:
    table = operator_table()
    assert [row[:2] for row in table] == sorted({row[:2] for row in table})
    assert {row[2] for row in table} <= {*KERNEL_CLASSES.values(), "free", "depends", "unsupported"}


# --- Control flow -----------------------------------------------------------------------------------------------------


def branches() -> str:
    return (
        "z = If (flag) < then_branch = yes () => (float[4,4] a) { a = MatMul(x, x) },"
        " else_branch = no () => (float[4,4] b) { b = Relu(x) } >"
    )


def test_if_lists_both_branches() -> None:
    graph = inferred(split(branches()), {"x": (4, 4), "flag": ()}, types={"flag": BOOL})
    works = lower(graph, runtime="eager")
    name = works[0].node
    assert works[0].free == "the nodes of its body stand for it"
    assert [(work.op_type, work.branch) for work in works[1:]] == [
        ("MatMul", (f"{name}/then",)),
        ("Relu", (f"{name}/else",)),
    ]


def test_if_with_a_known_condition_runs_one() -> None:
    graph = inferred(split(branches()), {"x": (4, 4)}, constants={"flag": False})
    works = lower(graph, runtime="eager")
    assert [(work.op_type, work.count, work.free) for work in works[1:]] == [
        ("MatMul", 0, "its branch is not taken"),
        ("Relu", 1, None),
    ]


def loop_node(name: str, trips: str, body: list[onnx.NodeProto]) -> onnx.NodeProto:
    graph = helper.make_graph(
        [*body, helper.make_node("Identity", [f"{name}_go"], [f"{name}_on"])],
        f"{name}_body",
        [
            helper.make_tensor_value_info(f"{name}_i", TensorProto.INT64, ()),
            helper.make_tensor_value_info(f"{name}_go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info(f"{name}_s", TensorProto.FLOAT, (4, 4)),
        ],
        [
            helper.make_tensor_value_info(f"{name}_on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info(f"{name}_t", TensorProto.FLOAT, (4, 4)),
        ],
    )
    return helper.make_node("Loop", [trips, "", "x"], [f"{name}_out"], name=name, body=graph)


def test_loops_multiply() -> None:
    inner = loop_node("inner", "three", [helper.make_node("MatMul", ["inner_s", "w"], ["inner_t"], name="product")])
    outer = loop_node("outer", "five", [inner, helper.make_node("Relu", ["inner_out"], ["outer_t"], name="relu")])
    graph = inferred([outer], {"x": (4, 4)}, weights={"w": (4, 4)}, constants={"five": 5, "three": 3})
    counts = {work.node: work.count for work in lower(graph, runtime="eager")}
    assert counts["outer"] == 1
    assert counts["inner"] == counts["relu"] == 5
    assert counts["product"] == 15


def test_works_follow_the_graph() -> None:
    graph = inferred("a = Relu(x)\nb = Tanh(a)\ny = Neg(b)", {"x": (4,)})
    works = lower(graph, runtime="eager")
    assert [work.op_type for work in works] == ["Relu", "Tanh", "Neg"]
    assert all(first.node != second.node for first, second in pairwise(works))


@pytest.mark.parametrize(
    ("reader", "outputs", "kernels"),
    [("n = Not(m)", ["n", "y"], 1), ("n = Neg(y)", ["n"], 0), ("n = Neg(y)", ["n", "m"], 1)],
    ids=["another node reads it", "nothing reads it", "it is an output"],
)
def test_a_dropout_mask_is_written_where_something_reads_it(reader: str, outputs: list[str], kernels: int) -> None:
    graph = inferred(
        f"""
        y, m = Dropout(x)
        {reader}
    """,
        {"x": (4, 8)},
        outputs=outputs,
    )
    assert len(lower(graph, runtime="eager")[0].kernels) == kernels


@pytest.mark.parametrize(
    ("nodes", "written"),
    [
        ("y = TensorScatter(x, u)", 2 * 8 * 4),
        ("c = Neg(x)\ny = TensorScatter(c, u)", 2 * 8 * 4 + 2 * 16 * 8 * 4),
        ("c = TensorScatter(x, u)\ny = Neg(c)", 2 * 8 * 4 + 2 * 16 * 8 * 4),
    ],
    ids=["the caller's buffer", "a computed one", "not given back"],
)
def test_a_cache_that_is_bound_is_written_in_place(nodes: str, written: int) -> None:
    graph = inferred(nodes, {"x": (2, 16, 8), "u": (2, 1, 8)}, opset=24)
    (work,) = (work for work in lower(graph, runtime="onnxruntime") if work.op_type == "TensorScatter")
    assert work.kernels[0].write_bytes == written
