"""Products of matrices, and their quantised kin."""

from __future__ import annotations

from lowering_cases.case import F16, INT8, UINT8, Case, ew, moved
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Gemm, Reduction

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
        name="bias of one column: copied to the rows first in eager",
        nodes="y = Gemm(x, w, b)",
        inputs={"x": (4, 8)},
        weights={"w": (8, 1), "b": (1,)},
        expected=[moved("copy", read=4, written=16), (Gemm, {"n": 1, "epilogue": ("add",)})],
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
