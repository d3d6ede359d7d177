"""Operators of com.microsoft that tools write into files: work and bytes of their kernels, worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx import load_gpu
from neusight_onnx.kernels import Kernel, Opaque
from neusight_onnx.lowering import lower
from neusight_onnx.lowering.placement import ORT_CUDA
from neusight_onnx.lowering.registry import RULES
from neusight_onnx.predictor import predict

U8, I8, I32, I64, F16, F32 = (
    TensorProto.UINT8,
    TensorProto.INT8,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.FLOAT16,
    TensorProto.FLOAT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One node; for each of its kernels (class, multiply-adds, bytes read, bytes written)."""

    node: str
    inputs: dict[str, tuple[int, ...]]
    kernels: list[tuple[str, int, int, int]]
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, object] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)


# 6 tokens of 16, 2 of 4 experts each: scores of float32; 12 choices of int32 sorted by expert, to places and back; 12
# rows by 12 indices; 12 rows added to 6
MOE_BEFORE = [("Softmax", 0, 96, 96), ("Opaque", 0, 48, 96), ("GatherScatter", 0, 4 * (192 + 12), 4 * 192)]
SWIGLU = 'activation_type="swiglu", swiglu_fusion=1'
FP4 = SWIGLU + ', quant_type="fp4"'
GATES_BEHIND = 'activation_type="swiglu", swiglu_fusion=2'
MOE_BEHIND = ("Elementwise", 0, 4 * 192, 4 * 96)
# b=2, s=4, hidden 8, 2 heads of 4; (8 x 8) @ (8 x 24) = 1536; every query sees 4 keys: 2 * 2 * 16 pairs * 4 = 256
PROJECTED = {"w": (8, 24), "wb": (24,)}
# without its bias, which the kernel that puts heads first adds
PROJECTED_APART = [("Gemm", 1536, 4 * (64 + 192), 4 * 192), ("Movement", 0, 4 * (192 + 24), 4 * 192)]
BY_PARTS = [
    ("Gemm", 256, 4 * (64 + 64), 4 * 64),
    ("Softmax", 0, 4 * 64, 4 * 64),
    ("Gemm", 256, 4 * (64 + 64), 4 * 64),
    ("Movement", 0, 4 * 64, 4 * 64),
]
# 6 keys: 4 entries of (4 x 4) @ (4 x 6) and (4 x 6) @ (6 x 4)
OVER_SIX_KEYS = [
    ("Gemm", 384, 4 * (64 + 96), 4 * 96),
    ("Softmax", 0, 4 * 96, 4 * 96),
    ("Gemm", 384, 4 * (96 + 96), 4 * 64),
    ("Movement", 0, 4 * 64, 4 * 64),
]
# in 16 bits 2 heads of 8: (8 x 16) @ (16 x 48) = 6144; 2 * 2 * 16 pairs * 16 = 1024
HALF = {"x": F16, "w": F16, "wb": F16}
HALF_PROJECTED = {"w": (16, 48), "wb": (48,)}
HALF_APART = [("Gemm", 6144, 2 * (128 + 768), 2 * 384), ("Movement", 0, 2 * (384 + 48), 2 * 384)]
CASES = {
    "Attention": Case(
        node="y = com.microsoft.Attention<num_heads=2>(x, w, wb)",
        inputs={"x": (2, 4, 8)},
        weights=PROJECTED,
        kernels=[*PROJECTED_APART, *BY_PARTS],
    ),
    # what causality hides is multiplied, too
    "Attention, causal": Case(
        node="y = com.microsoft.Attention<num_heads=2, unidirectional=1>(x, w, wb)",
        inputs={"x": (2, 4, 8)},
        weights=PROJECTED,
        kernels=[*PROJECTED_APART, *BY_PARTS],
    ),
    # 3 keys in the cache, 7 in all; present (2, 2, 2, 7, 4) is written from both
    "Attention with a cache": Case(
        node="y, present = com.microsoft.Attention<num_heads=2>(x, w, wb, , past)",
        inputs={"x": (2, 4, 8), "past": (2, 2, 2, 3, 4)},
        weights=PROJECTED,
        kernels=[
            *PROJECTED_APART,
            ("Movement", 0, 4 * 224, 4 * 224),
            ("Gemm", 448, 4 * (64 + 112), 4 * 112),
            ("Softmax", 0, 4 * 112, 4 * 112),
            ("Gemm", 448, 4 * (112 + 112), 4 * 64),
            ("Movement", 0, 4 * 64, 4 * 64),
        ],
    ),
    "Attention in 16 bits": Case(
        node="y = com.microsoft.Attention<num_heads=2>(x, w, wb)",
        inputs={"x": (2, 4, 16)},
        weights=HALF_PROJECTED,
        types=HALF,
        kernels=[*HALF_APART, ("Attention", 1024, 2 * 3 * 128, 2 * 128)],
    ),
    "Attention in 16 bits, lengths of rows": Case(
        node="y = com.microsoft.Attention<num_heads=2>(x, w, wb, m)",
        inputs={"x": (2, 4, 16), "m": (2,)},
        weights=HALF_PROJECTED,
        types={**HALF, "m": I32},
        kernels=[*HALF_APART, ("Attention", 1024, 2 * 3 * 128, 2 * 128)],
    ),
    # a mask of keys, which the softmax reads
    "Attention in 16 bits, a mask": Case(
        node="y = com.microsoft.Attention<num_heads=2>(x, w, wb, m)",
        inputs={"x": (2, 4, 16), "m": (2, 4)},
        weights=HALF_PROJECTED,
        types={**HALF, "m": I32},
        kernels=[
            *HALF_APART,
            ("Gemm", 512, 2 * (128 + 128), 2 * 64),
            ("Softmax", 0, 2 * 64 + 4 * 8, 2 * 64),
            ("Gemm", 512, 2 * (64 + 128), 2 * 128),
            ("Movement", 0, 2 * 128, 2 * 128),
        ],
    ),
    # in FP32 from 256 queries on, where nothing says which keys are there or (3 b + 2,) lengths do
    "Attention over 256 tokens": Case(
        node="y = com.microsoft.Attention<num_heads=1>(x, w, wb, m)",
        inputs={"x": (1, 256, 8), "m": (5,)},
        weights=PROJECTED,
        types={"m": I32},
        kernels=[
            ("Gemm", 256 * 192, 4 * (2048 + 192), 4 * 6144),
            ("Movement", 0, 4 * (6144 + 24), 4 * 6144),
            ("Attention", 256 * 256 * 16, 4 * 6144, 4 * 2048),
        ],
    ),
    "MultiHeadAttention over other keys": Case(
        node="y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v)",
        inputs={"q": (2, 4, 8), "k": (2, 6, 8), "v": (2, 6, 8)},
        kernels=[
            ("Movement", 0, 4 * 64, 4 * 64),
            ("Movement", 0, 4 * 96, 4 * 96),
            ("Movement", 0, 4 * 96, 4 * 96),
            *OVER_SIX_KEYS,
        ],
    ),
    # the bias of 24 is added to queries, keys and values as their heads are put first
    "MultiHeadAttention with a bias": Case(
        node="y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, b)",
        inputs={"q": (2, 4, 8), "k": (2, 6, 8), "v": (2, 6, 8)},
        weights={"b": (24,)},
        kernels=[
            ("Movement", 0, 4 * 72, 4 * 64),
            ("Movement", 0, 4 * 104, 4 * 96),
            ("Movement", 0, 4 * 104, 4 * 96),
            *OVER_SIX_KEYS,
        ],
    ),
    # heads of 8 in 16 bits: one kernel, which adds (2, 2, 4, 6) to the scores; 2 * 2 * 24 pairs * 16
    "MultiHeadAttention in 16 bits": Case(
        node="y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, b, , r)",
        inputs={"q": (2, 4, 16), "k": (2, 6, 16), "v": (2, 6, 16), "r": (2, 2, 4, 6)},
        weights={"b": (48,)},
        types={"q": F16, "k": F16, "v": F16, "r": F16, "b": F16},
        kernels=[
            ("Elementwise", 0, 2 * (128 + 16), 2 * 128),
            ("Elementwise", 0, 2 * (192 + 16), 2 * 192),
            ("Elementwise", 0, 2 * (192 + 16), 2 * 192),
            ("Attention", 1536, 2 * (128 + 192 + 192 + 96), 2 * 128),
        ],
    ),
    # queries, keys and values of 4 tokens in one operand
    "MultiHeadAttention of packed operands": Case(
        node="y = com.microsoft.MultiHeadAttention<num_heads=2>(q)",
        inputs={"q": (2, 4, 2, 3, 4)},
        kernels=[("Movement", 0, 4 * 192, 4 * 192), *BY_PARTS],
    ),
    # two sequences of 3 tokens each
    "PackedAttention": Case(
        node="y = com.microsoft.PackedAttention<num_heads=2>(x, w, wb, offsets, lengths)",
        inputs={"x": (6, 8), "offsets": (2, 4), "lengths": (3,)},
        weights=PROJECTED,
        types={"offsets": I32, "lengths": I32},
        kernels=[
            ("Gemm", 6 * 8 * 24, 4 * (48 + 192 + 24), 4 * 144),
            ("Attention", 2 * 2 * 9 * 8, 4 * 3 * 48, 4 * 48),
        ],
    ),
    # one new token after 5
    "DecoderMaskedMultiHeadAttention": Case(
        node="y = com.microsoft.DecoderMaskedMultiHeadAttention<num_heads=2>(q, k, v, , , pk, pv)",
        inputs={"q": (2, 1, 8), "k": (2, 1, 8), "v": (2, 1, 8), "pk": (2, 2, 5, 4), "pv": (2, 2, 5, 4)},
        kernels=[("Attention", 2 * 2 * 6 * 8, 4 * (16 + 96 + 96), 4 * 16)],
    ),
    # lengths; 3 tokens' queries, keys and values written apart, the latter behind the cache; 4 query heads over 2 key
    # heads, 3 tokens after 5, causal: 6 + 7 + 8 pairs
    "GroupQueryAttention": Case(
        node="y, nk, nv = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(q, k, v, pk, pv, n, t)",
        inputs={"q": (1, 3, 32), "k": (1, 3, 16), "v": (1, 3, 16), "pk": (1, 2, 5, 8), "pv": (1, 2, 5, 8), "n": (1,)},
        constants={"t": 8},
        types={"n": I32, "t": I32},
        kernels=[
            ("Elementwise", 0, 4, 4),
            ("Movement", 0, 4 * (96 + 48 + 48), 4 * (96 + 48 + 48)),
            ("Attention", 4 * 21 * 16, 4 * (96 + 128 + 128), 4 * 96),
        ],
    ),
    # uint8 tokens and int8 weights; sums are written as floats
    "QAttention": Case(
        node="y = com.microsoft.QAttention<num_heads=2>(x, w, wb, s, ws, , z, wz)",
        inputs={"x": (2, 4, 8)},
        weights={"w": (8, 24), "wb": (24,), "s": (), "ws": (), "z": (), "wz": ()},
        types={"x": U8, "w": I8, "z": U8, "wz": I8},
        kernels=[("Gemm", 1536, 64 + 192 + 4 * 24, 4 * 192), ("Attention", 512, 4 * 3 * 64, 4 * 64)],
    ),
    # x, and for 8 positions rows of 2 cosines and 2 sines
    "RotaryEmbedding": Case(
        node="y = com.microsoft.RotaryEmbedding(x, p, c, s)",
        inputs={"x": (2, 2, 4, 4), "p": (2, 4)},
        weights={"c": (16, 2), "s": (16, 2)},
        types={"p": I64},
        kernels=[("Elementwise", 0, 4 * 64 + 2 * 4 * 16 + 8 * 8, 4 * 64)],
    ),
    "SkipSimplifiedLayerNormalization": Case(
        node="y, , , t = com.microsoft.SkipSimplifiedLayerNormalization(x, skip, g)",
        inputs={"x": (2, 4, 8), "skip": (2, 4, 8)},
        weights={"g": (8,)},
        kernels=[("Normalization", 0, 4 * (64 + 64 + 8), 4 * (64 + 64))],
    ),
    "FastGelu with a bias": Case(
        node="y = com.microsoft.FastGelu(x, b)",
        inputs={"x": (4, 8)},
        weights={"b": (8,)},
        kernels=[("Elementwise", 0, 4 * 40, 4 * 32)],
    ),
    "BiasSplitGelu": Case(
        node="y = com.microsoft.BiasSplitGelu(x, b)",
        inputs={"x": (2, 4, 8)},
        weights={"b": (8,)},
        kernels=[("Elementwise", 0, 4 * 72, 4 * 32)],
    ),
    # (2, 3, 5) @ (2, 4, 5)^T
    "FusedMatMul": Case(
        node="y = com.microsoft.FusedMatMul<alpha=0.5, transB=1>(a, b)",
        inputs={"a": (2, 3, 5), "b": (2, 4, 5)},
        kernels=[("Gemm", 2 * 3 * 4 * 5, 4 * (30 + 40), 4 * 24)],
    ),
    "FusedGemm": Case(
        node='y = com.microsoft.FusedGemm<activation="Relu", transA=1>(a, b, c)',
        inputs={"a": (5, 3)},
        weights={"b": (5, 4), "c": (4,)},
        kernels=[("Gemm", 3 * 4 * 5, 4 * (15 + 20 + 4), 4 * 12)],
    ),
    # the sum z is read, too
    "FusedConv with a sum": Case(
        node='y = com.microsoft.FusedConv<activation="Relu">(x, w, b, z)',
        inputs={"x": (1, 4, 6, 6), "z": (1, 8, 4, 4)},
        weights={"w": (8, 4, 3, 3), "b": (8,)},
        kernels=[("Conv", 16 * 8 * 36, 4 * (144 + 288 + 8 + 128), 4 * 128)],
    ),
    "NhwcConv": Case(
        node="y = com.microsoft.NhwcConv<pads=[1, 1, 1, 1]>(x, w)",
        inputs={"x": (1, 6, 6, 4)},
        weights={"w": (8, 4, 3, 3)},
        kernels=[("Conv", 36 * 8 * 36, 4 * (144 + 288), 4 * 288)],
    ),
    # 64 x 6 weights of half a byte, a scale for each block of 32
    "MatMulBnb4": Case(
        node="y = com.microsoft.MatMulBnb4<K=64, N=6, block_size=32, quant_type=1>(x, w, s)",
        inputs={"x": (3, 64)},
        weights={"w": (192,), "s": (12,)},
        types={"w": U8},
        kernels=[("Gemm", 3 * 64 * 6, 4 * 192 + 192 + 48, 4 * 18)],
    ),
    # 6 tokens choose 2 of 4 experts: 12 rows, 3 an expert, 16 -> 32 -> 16; scores before, rows by expert, sums behind
    "MoE": Case(
        node='y = com.microsoft.MoE<k=2, activation_type="gelu">(x, p, w1, , w2)',
        inputs={"x": (6, 16), "p": (6, 4)},
        weights={"w1": (4, 32, 16), "w2": (4, 16, 32)},
        kernels=[
            *MOE_BEFORE,
            ("Gemm", 12 * 16 * 32, 4 * (12 * 16 + 4 * 512), 4 * 12 * 32),
            ("Gemm", 12 * 32 * 16, 4 * (12 * 32 + 4 * 512), 4 * 12 * 16),
            MOE_BEHIND,
        ],
    ),
    # 5 tokens of 2 experts each are 10 rows on 4 experts, in one product; biases of 32 and 16 an expert
    "MoE, rows that do not divide": Case(
        node='y = com.microsoft.MoE<k=2, activation_type="gelu">(x, p, w1, b1, w2, b2)',
        inputs={"x": (5, 16), "p": (5, 4)},
        weights={"w1": (4, 32, 16), "b1": (4, 32), "w2": (4, 16, 32), "b2": (4, 16)},
        kernels=[
            ("Softmax", 0, 80, 80),
            ("Opaque", 0, 40, 80),
            ("GatherScatter", 0, 4 * (160 + 10), 4 * 160),
            ("Gemm", 10 * 16 * 32, 4 * (10 * 16 + 4 * 512 + 128), 4 * 10 * 32),
            ("Gemm", 10 * 32 * 16, 4 * (10 * 32 + 4 * 512 + 64), 4 * 10 * 16),
            ("Elementwise", 0, 4 * 160, 4 * 80),
        ],
    ),
    # 4 tokens take 2 of 16 experts each: 16 (1 - (7/8)^4) = 6.6 experts are read, not 8, for 8 rows
    "MoE of a few tokens": Case(
        node='y = com.microsoft.MoE<k=2, activation_type="gelu">(x, p, w1, , w2)',
        inputs={"x": (4, 16), "p": (4, 16)},
        weights={"w1": (16, 32, 16), "w2": (16, 16, 32)},
        kernels=[
            ("Softmax", 0, 256, 256),
            ("Opaque", 0, 32, 64),
            ("GatherScatter", 0, 4 * (128 + 8), 4 * 128),
            ("Gemm", 8 * 16 * 32, 4 * (8 * 16 + 7 * 512), 4 * 8 * 32),
            ("Gemm", 8 * 32 * 16, 4 * (8 * 32 + 7 * 512), 4 * 8 * 16),
            ("Elementwise", 0, 4 * 128, 4 * 64),
        ],
    ),
    # one token reads exactly those that it chooses
    "MoE of one token": Case(
        node='y = com.microsoft.MoE<k=2, activation_type="gelu">(x, p, w1, , w2)',
        inputs={"x": (1, 16), "p": (1, 16)},
        weights={"w1": (16, 32, 16), "w2": (16, 16, 32)},
        kernels=[
            ("Softmax", 0, 64, 64),
            ("Opaque", 0, 8, 16),
            ("GatherScatter", 0, 4 * (32 + 2), 4 * 32),
            ("Gemm", 2 * 16 * 32, 4 * (2 * 16 + 2 * 512), 4 * 2 * 32),
            ("Gemm", 2 * 32 * 16, 4 * (2 * 32 + 2 * 512), 4 * 2 * 16),
            ("Elementwise", 0, 4 * 32, 4 * 16),
        ],
    ),
    # fc1 holds gate and value, 2 x 32; their product is a kernel of its own
    "MoE with a fused gate": Case(
        node='y = com.microsoft.MoE<k=2, activation_type="swiglu", swiglu_fusion=1>(x, p, w1, , w2)',
        inputs={"x": (6, 16), "p": (6, 4)},
        weights={"w1": (4, 64, 16), "w2": (4, 16, 32)},
        kernels=[
            *MOE_BEFORE,
            ("Gemm", 12 * 16 * 64, 4 * (12 * 16 + 4 * 1024), 4 * 12 * 64),
            ("Elementwise", 0, 4 * 2 * 12 * 32, 4 * 12 * 32),
            ("Gemm", 12 * 32 * 16, 4 * (12 * 32 + 4 * 512), 4 * 12 * 16),
            MOE_BEHIND,
        ],
    ),
    # the gate beside it: each of 4 experts' fc1 and fc3 is copied to the other, 32 x 16 of them
    "MoE with a gate apart": Case(
        node='y = com.microsoft.MoE<k=2, activation_type="silu">(x, p, w1, , w2, , w3)',
        inputs={"x": (6, 16), "p": (6, 4)},
        weights={"w1": (4, 32, 16), "w2": (4, 16, 32), "w3": (4, 32, 16)},
        kernels=[
            *MOE_BEFORE[:2],
            *[("Movement", 0, 4 * 512, 4 * 512)] * 8,
            MOE_BEFORE[2],
            ("Gemm", 12 * 16 * 64, 4 * (12 * 16 + 4 * 1024), 4 * 12 * 64),
            ("Elementwise", 0, 4 * 2 * 12 * 32, 4 * 12 * 32),
            ("Gemm", 12 * 32 * 16, 4 * (12 * 32 + 4 * 512), 4 * 12 * 16),
            MOE_BEHIND,
        ],
    ),
    # the same with weights of 4 bits, and a scale for each of their rows
    "QMoE": Case(
        node="y = com.microsoft.QMoE<k=2, expert_weight_bits=4>(x, p, w1, s1, , w2, s2)",
        inputs={"x": (6, 16), "p": (6, 4)},
        weights={"w1": (4, 32, 8), "s1": (4, 32), "w2": (4, 16, 16), "s2": (4, 16)},
        types={"w1": U8, "w2": U8},
        kernels=[
            *MOE_BEFORE,
            ("Gemm", 12 * 16 * 32, 4 * 12 * 16 + 4 * 256 + 4 * 128, 4 * 12 * 32),
            ("Gemm", 12 * 32 * 16, 4 * 12 * 32 + 4 * 256 + 4 * 64, 4 * 12 * 16),
            MOE_BEHIND,
        ],
    ),
    # 2 bits: weights of (4, 32, 16 / 4) bytes; zero points of a byte for 4 rows
    "QMoE of two bits with zero points": Case(
        node="y = com.microsoft.QMoE<k=2, expert_weight_bits=2>(x, p, w1, s1, , w2, s2, , , , , z1, z2)",
        inputs={"x": (6, 16), "p": (6, 4)},
        weights={"w1": (4, 32, 4), "s1": (4, 32), "w2": (4, 16, 8), "s2": (4, 16), "z1": (4, 8), "z2": (4, 4)},
        types={"w1": U8, "w2": U8, "z1": U8, "z2": U8},
        kernels=[
            *MOE_BEFORE,
            ("Gemm", 12 * 16 * 32, 4 * 12 * 16 + 4 * 128 + 4 * 128 + 32, 4 * 12 * 32),
            ("Gemm", 12 * 32 * 16, 4 * 12 * 32 + 4 * 128 + 4 * 64 + 16, 4 * 12 * 16),
            MOE_BEHIND,
        ],
    ),
    # 3 bits: rows of 16 x 3 / 8 and 32 x 3 / 8 bytes; no type has so many, so that as many weights of 4 are read
    "QMoE of three bits": Case(
        node='y = com.microsoft.QMoE<k=2, expert_weight_bits=3, activation_type="swiglu", swiglu_fusion=1>'
        "(x, p, w1, s1, , w2, s2)",
        inputs={"x": (6, 16), "p": (6, 4)},
        weights={"w1": (4, 64, 6), "s1": (4, 64), "w2": (4, 16, 12), "s2": (4, 16)},
        types={"w1": U8, "w2": U8},
        kernels=[
            *MOE_BEFORE,
            ("Gemm", 12 * 16 * 64, 4 * 12 * 16 + 4 * 512 + 4 * 256, 4 * 12 * 64),
            ("Elementwise", 0, 4 * 2 * 12 * 32, 4 * 12 * 32),
            ("Gemm", 12 * 32 * 16, 4 * 12 * 32 + 4 * 256 + 4 * 64, 4 * 12 * 16),
            MOE_BEHIND,
        ],
    ),
    # and with weights of float8, which are not packed
    "QMoE of float8": Case(
        node='y = com.microsoft.QMoE<k=2, quant_type="fp8">(x, p, w1, s1, , w2, s2)',
        inputs={"x": (6, 16), "p": (6, 4)},
        weights={"w1": (4, 32, 16), "s1": (4, 1, 1), "w2": (4, 16, 32), "s2": (4, 1, 1)},
        types={"w1": TensorProto.FLOAT8E4M3FN, "w2": TensorProto.FLOAT8E4M3FN},
        kernels=[
            *MOE_BEFORE,
            ("Gemm", 12 * 16 * 32, 4 * 12 * 16 + 4 * 512 + 16, 4 * 12 * 32),
            ("Gemm", 12 * 32 * 16, 4 * 12 * 32 + 4 * 512 + 16, 4 * 12 * 16),
            MOE_BEHIND,
        ],
    ),
    # 6 rows of 64 weights, a block of 32: 4 bits are 32 bytes a row, 2 scales a row, zero points a byte a row
    "MatMulNBits of 4 bits": Case(
        node="y = com.microsoft.MatMulNBits<K=64, N=6, bits=4, block_size=32>(x, w, s, z)",
        inputs={"x": (3, 64)},
        weights={"w": (6, 2, 16), "s": (6, 2), "z": (6, 1)},
        types={"w": U8, "z": U8},
        kernels=[("Gemm", 3 * 64 * 6, 4 * 192 + 192 + 4 * 12 + 6, 4 * 18)],
    ),
    "MatMulNBits of 8 bits with a bias": Case(
        node="y = com.microsoft.MatMulNBits<K=64, N=6, bits=8, block_size=16>(x, w, s, , , b)",
        inputs={"x": (2, 3, 64)},
        weights={"w": (6, 4, 16), "s": (6, 4), "b": (6,)},
        types={"w": U8},
        kernels=[("Gemm", 6 * 64 * 6, 4 * 384 + 384 + 4 * 24 + 4 * 6, 4 * 36)],
    ),
    "MatMulNBits of 2 bits": Case(
        node="y = com.microsoft.MatMulNBits<K=64, N=6, bits=2, block_size=32>(x, w, s)",
        inputs={"x": (3, 64)},
        weights={"w": (6, 2, 8), "s": (6, 2)},
        types={"w": U8},
        kernels=[("Gemm", 3 * 64 * 6, 4 * 192 + 96 + 4 * 12, 4 * 18)],
    ),
    # 40 weights take two blocks of 32, the second one padded
    "MatMulNBits of a width that is no multiple of the block": Case(
        node="y = com.microsoft.MatMulNBits<K=40, N=6, bits=4, block_size=32>(x, w, s)",
        inputs={"x": (3, 40)},
        weights={"w": (6, 2, 16), "s": (6, 2)},
        types={"w": U8},
        kernels=[("Gemm", 3 * 40 * 6, 4 * 120 + 192 + 4 * 12, 4 * 18)],
    ),
    # two sequences of one new token behind 5 and 7 in blocks of 4: 6 on average and itself, 7 keys of 2 heads of 8
    "PagedAttention": Case(
        node="y, , = com.microsoft.PagedAttention<num_heads=4, kv_num_heads=2>(q, k, v, pk, pv, offsets, past, table)",
        inputs={"q": (2, 32), "k": (2, 16), "v": (2, 16), "pk": (9, 4, 2, 8), "pv": (9, 4, 2, 8), "table": (2, 3)},
        constants={"offsets": np.array([0, 1, 2], np.int32), "past": np.array([5, 7], np.int32)},
        types={"table": I32},
        kernels=[("Attention", 2 * 4 * 7 * 16, 4 * (64 + 2 * 2 * 7 * 16), 4 * (64 + 64))],
    ),
    # where the past is an input, every row of the table is taken to be full: 3 blocks of 4
    "PagedAttention of unknown lengths": Case(
        node="y, , = com.microsoft.PagedAttention<num_heads=4, kv_num_heads=2>(q, k, v, pk, pv, offsets, past, table)",
        inputs={
            "q": (2, 32),
            "k": (2, 16),
            "v": (2, 16),
            "pk": (9, 4, 2, 8),
            "pv": (9, 4, 2, 8),
            "table": (2, 3),
            "offsets": (3,),
            "past": (2,),
        },
        types={"table": I32, "offsets": I32, "past": I32},
        kernels=[("Attention", 2 * 4 * 12 * 16, 4 * (64 + 2 * 2 * 12 * 16), 4 * (64 + 64))],
    ),
    # 4 blocks of 4 are 8 tokens for each of both, though the table has room for 12
    "PagedAttention with fewer blocks than its table has room for": Case(
        node="y, , = com.microsoft.PagedAttention<num_heads=4, kv_num_heads=2>(q, k, v, pk, pv, offsets, past, table)",
        inputs={
            "q": (2, 32),
            "k": (2, 16),
            "v": (2, 16),
            "pk": (4, 4, 2, 8),
            "pv": (4, 4, 2, 8),
            "table": (2, 3),
            "offsets": (3,),
            "past": (2,),
        },
        types={"table": I32, "offsets": I32, "past": I32},
        kernels=[("Attention", 2 * 4 * 8 * 16, 4 * (64 + 2 * 2 * 8 * 16), 4 * (64 + 64))],
    ),
    # the products of queries and keys, (1, 4, 3, 8), are written besides
    "GroupQueryAttention that gives its products": Case(
        node="y, nk, nv, qk = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2, qk_output=1>"
        "(q, k, v, pk, pv, n, t)",
        inputs={"q": (1, 3, 32), "k": (1, 3, 16), "v": (1, 3, 16), "pk": (1, 2, 5, 8), "pv": (1, 2, 5, 8), "n": (1,)},
        constants={"t": 8},
        types={"n": I32, "t": I32},
        kernels=[
            ("Elementwise", 0, 4, 4),
            ("Movement", 0, 4 * (96 + 48 + 48), 4 * (96 + 48 + 48)),
            ("Attention", 4 * 21 * 16, 4 * (96 + 128 + 128), 4 * (96 + 4 * 3 * 8)),
        ],
    ),
    "DecoderAttention without caches": Case(
        node="y = com.microsoft.DecoderAttention<num_heads=2>(q, k, w, kw, b, , , , t, f, f, f)",
        inputs={"q": (3, 2, 8), "k": (5, 2, 8)},
        weights={"w": (8, 8), "kw": (8, 16), "b": (24,)},
        constants={"t": np.array([True]), "f": np.array([False])},
        kernels=[
            ("Gemm", 6 * 8 * 8, 4 * (48 + 64 + 8), 4 * 48),
            ("Gemm", 10 * 8 * 16, 4 * (80 + 128 + 16), 4 * 160),
            ("Attention", 2 * 2 * 15 * 8, 4 * (48 + 80 + 80), 4 * 48),
        ],
    ),
    "QLinearConv of channels with scales of their own": Case(
        node="y = QLinearConv(x, s, z, w, ws, wz, s, z, b)",
        inputs={"x": (1, 4, 6, 6)},
        weights={"w": (8, 4, 3, 3), "b": (8,), "s": (), "z": (), "ws": (8,), "wz": (8,)},
        types={"x": U8, "z": U8, "w": I8, "wz": I8, "b": I32},
        kernels=[("Conv", 16 * 8 * 36, 144 + 288 + 32 + 8 + 32, 128)],
    ),
    # int32 sums of 4 columns are read as a bias; the result is uint8
    "QGemm": Case(
        node="y = com.microsoft.QGemm<transB=1>(a, s, z, b, bs, bz, c, s, z)",
        inputs={"a": (3, 5)},
        weights={"b": (4, 5), "s": (), "z": (), "bs": (4,), "bz": (4,), "c": (4,)},
        types={"a": U8, "z": U8, "b": I8, "bz": I8, "c": I32},
        kernels=[("Gemm", 60, 15 + 20 + 16 + 4 + 16, 12)],
    ),
    # its input's range, its quantised form, the product
    "DynamicQuantizeMatMul": Case(
        node="y = com.microsoft.DynamicQuantizeMatMul(x, w, s)",
        inputs={"x": (3, 5)},
        weights={"w": (5, 4), "s": ()},
        types={"w": I8},
        kernels=[("Reduction", 0, 60, 8), ("Elementwise", 0, 60, 15), ("Gemm", 60, 15 + 20, 48)],
    ),
    "MatMulIntegerToFloat": Case(
        node="y = com.microsoft.MatMulIntegerToFloat(x, w, s, ws)",
        inputs={"x": (3, 5)},
        weights={"w": (5, 4), "s": (), "ws": (4,)},
        types={"x": U8, "w": I8},
        kernels=[("Gemm", 60, 15 + 20 + 16, 48)],
    ),
    # 5 steps of 2 samples: (10, 4) @ (4, 12) in integers, then 5 steps of (2, 3) @ (3, 12); 12 gates a sample are
    # handed on, and both last states of 6 are written
    "DynamicQuantizeLSTM": Case(
        node="y, h, c = com.microsoft.DynamicQuantizeLSTM<hidden_size=3>(x, w, r, , , , , , ws, wz, rs, rz)",
        inputs={"x": (5, 2, 4)},
        weights={"w": (1, 4, 12), "r": (1, 3, 12), "ws": (1,), "wz": (1,), "rs": (1,), "rz": (1,)},
        types={"w": I8, "r": I8, "wz": I8, "rz": I8},
        kernels=[
            ("Gemm", 10 * 4 * 12, 4 * 40 + 48, 4 * 120),
            ("Recurrent", 5 * 2 * 3 * 12, 36 + 4 * 120, 4 * 30 + 4 * 12),
        ],
    ),
    # 5 rows of 16 weights of 4 bits, gathered, then widened with 5 scales of float32
    "GatherBlockQuantized": Case(
        node="y = com.microsoft.GatherBlockQuantized<block_size=16, bits=4>(w, i, s)",
        inputs={"i": (5,)},
        weights={"w": (100, 16), "s": (100, 1)},
        types={"w": TensorProto.UINT4, "i": I64},
        kernels=[("GatherScatter", 0, 40 + 40, 40), ("Elementwise", 0, 40 + 20, 320)],
    ),
    # 2 samples of 8 channels over 6 steps, 4 taps each; the state is 3 steps long
    "CausalConvWithState": Case(
        node="y, t = com.microsoft.CausalConvWithState(x, w, b, past)",
        inputs={"x": (2, 8, 6), "past": (2, 8, 3)},
        weights={"w": (8, 1, 4), "b": (8,)},
        kernels=[("Conv", 2 * 8 * 6 * 4, 4 * (96 + 32 + 8 + 48), 4 * (96 + 48))],
    ),
    # three tables give a row of 8 for each of 8 tokens; two sums and the normalization in one kernel
    "EmbedLayerNormalization": Case(
        node="y, m = com.microsoft.EmbedLayerNormalization(ids, seg, words, places, kinds, g, s)",
        inputs={"ids": (2, 4), "seg": (2, 4)},
        weights={"words": (100, 8), "places": (16, 8), "kinds": (2, 8), "g": (8,), "s": (8,)},
        types={"ids": I32, "seg": I32},
        kernels=[("GatherScatter", 0, 256 + 32, 256)] * 3
        + [("Normalization", 0, 4 * (64 + 16) + 2 * 256, 256 + 4 * 2)],
    ),
    # 16 of 8 channels by 3 x 3 at 4 x 4 places, a bias, a sum of which the output's size is read, an activation
    "Conv on blocks of channels": Case(
        node='y = com.microsoft.nchwc.Conv<pads=[1, 1, 1, 1], activation="Relu">(x, w, b, z)',
        inputs={"x": (1, 8, 4, 4), "z": (1, 16, 4, 4)},
        weights={"w": (16, 8, 3, 3), "b": (16,)},
        kernels=[("Conv", 16 * 16 * 8 * 9, 4 * (128 + 1152 + 16 + 256), 4 * 256)],
    ),
    "GlobalMaxPool on blocks of channels": Case(
        node="y = com.microsoft.nchwc.GlobalMaxPool(x)",
        inputs={"x": (2, 8, 5, 5)},
        kernels=[("Pooling", 0, 4 * 400, 4 * 16)],
    ),
    # nothing moves on a GPU, whose elements have no blocks
    "ReorderOutput": Case(
        node="y = com.microsoft.nchwc.ReorderOutput<channels=12>(x)", inputs={"x": (2, 16, 4, 5)}, kernels=[]
    ),
    "ReorderInput, channels last": Case(
        node="y = com.microsoft.nchwc.ReorderInput<channels_last=1>(x)",
        inputs={"x": (2, 4, 5, 16)},
        kernels=[("Movement", 0, 4 * 640, 4 * 640)],
    ),
    "QLinearAdd": Case(
        node="y = com.microsoft.QLinearAdd(a, s, z, b, s, z, s, z)",
        inputs={"a": (4, 8), "b": (8,)},
        weights={"s": (), "z": ()},
        types={"a": U8, "b": U8, "z": U8},
        kernels=[("Elementwise", 0, 40, 32)],
    ),
    "QLinearGlobalAveragePool": Case(
        node="y = com.microsoft.QLinearGlobalAveragePool(x, s, z, s, z)",
        inputs={"x": (2, 8, 5, 5)},
        weights={"s": (), "z": ()},
        types={"x": U8, "z": U8},
        kernels=[("Pooling", 0, 400, 16)],
    ),
}


def figures(kernel: Kernel) -> tuple[str, int, int, int]:
    return type(kernel).__name__, kernel.macs, kernel.read_bytes, kernel.write_bytes


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_an_operator_becomes(case: Case) -> None:
    graph = inferred(case.node, case.inputs, weights=case.weights, constants=case.constants, types=case.types, opset=21)
    work = lower(graph, runtime="onnxruntime")[-1]
    assert work.unsupported is None
    assert [figures(kernel) for kernel in work.kernels] == case.kernels


@pytest.mark.parametrize(
    ("tokens", "experts", "k", "hidden", "inner", "bits", "attributes", "kernels"),
    [
        (1, 8, 2, 1024, 512, 4, SWIGLU, "Softmax Gemm Gemm"),
        (1, 32, 8, 1024, 512, 8, SWIGLU, "Softmax Gemm Gemm"),
        (1, 64, 8, 1024, 512, 4, SWIGLU, "Softmax Opaque Gemm Gemm"),
        (4, 8, 2, 1024, 512, 4, SWIGLU, "Softmax Opaque Gemm Gemm"),
        (5, 8, 2, 1024, 512, 4, SWIGLU, "Softmax Opaque GatherScatter Gemm Elementwise Gemm Elementwise"),
        (1, 8, 2, 512, 256, 4, SWIGLU, "Softmax Gemm Gemm Elementwise"),
        (1, 8, 2, 256, 512, 4, SWIGLU, "Softmax GatherScatter Gemm Elementwise Gemm Elementwise"),
        (1, 8, 2, 1024, 512, 4, GATES_BEHIND, "Softmax GatherScatter Gemm Elementwise Gemm"),
        (1, 8, 2, 1024, 512, 4, 'activation_type="silu"', "Softmax GatherScatter Gemm Gemm"),
        (1, 8, 2, 1024, 512, 4, FP4, "Softmax Opaque Gemm Gemm Elementwise"),
        (64, 8, 2, 1024, 512, 4, FP4, "Softmax Opaque GatherScatter Gemm Elementwise Gemm Elementwise"),
        (1, 8, 2, 1024, 512, 0, SWIGLU, "Softmax Opaque GatherScatter Gemm Elementwise Gemm Elementwise"),
        (257, 8, 2, 1024, 512, 4, SWIGLU, "Softmax Opaque*3 GatherScatter Gemm Elementwise Gemm Elementwise"),
        (257, 8, 2, 1024, 512, 0, 'activation_type="relu"', "Softmax Opaque*3 GatherScatter Gemm Gemm Elementwise"),
    ],
)
def test_kernels_of_a_mixture_are_those_that_onnxruntime_launches(
    tokens: int, experts: int, k: int, hidden: int, inner: int, bits: int, attributes: str, kernels: str
) -> None:
    """onnxruntime-gpu 1.31.1's, of the same node in float16 on stand-ins of an H100 (of MoE, without Hopper's own)."""
    wide = 2 * inner if "swiglu" in attributes else inner
    kept = bits or 8  # columns are stored in bytes
    sizes = {
        "x": (tokens, hidden),
        "p": (tokens, experts),
        "w1": (experts, wide, hidden * kept // 8),
        "w2": (experts, hidden, inner * kept // 8),
    }
    types = dict.fromkeys(sizes, F16)
    operands, node = "x, p, w1, , w2", "MoE"
    if bits:
        sizes |= {"s1": (experts, wide, hidden // 32), "s2": (experts, hidden, inner // 32)}
        types |= {"w1": U8, "w2": U8, "s1": F16, "s2": F16}
        operands, node = "x, p, w1, s1, , w2, s2", "QMoE"
        attributes += f", expert_weight_bits={bits}, block_size=32"
    graph = inferred(f"y = com.microsoft.{node}<k={k}, {attributes}>({operands})", sizes, types=types)
    (work,) = lower(graph, runtime="onnxruntime")
    wanted = [name for part in kernels.split() for name in [part.partition("*")[0]] * int(part.partition("*")[2] or 1)]
    assert [type(kernel).__name__ for kernel in work.kernels] == wanted


MIXTURE = {"x": (6, 16), "p": (6, 4), "w1": (4, 32, 16), "w2": (4, 16, 32), "w3": (4, 32, 16), "w13": (4, 64, 16)}
REFUSED = [
    # node, runtime, what it is refused for
    ('MoE<activation_type="geglu", swiglu_fusion=1>(x, p, w13, , w2)', "onnxruntime", "MoE with the activation geglu"),
    ('QMoE<activation_type="relu2">(x, p, b1, s1, , b2, s2)', "onnxruntime", "QMoE with the activation relu2"),
    ('QMoE<activation_type="relu2">(x, p, b1, s1, , b2, s2)', "eager", None),
    ("QMoE(x, p, b1, s1, , b2, s2, , b3, s3)", "onnxruntime", "QMoE with fc3_experts_weights, but for FP8 in blocks"),
    ("QMoE(x, p, b1, s1, , b2, s2, , b3, s3)", "onnxruntime@1.30", "QMoE with fc3_experts_weights: they"),
    ("QMoE(x, p, b1, s1, , b2, s2, , b3, s3)", "onnxruntime@1.26", None),
    ("QMoE(x, p, b1, s1, , b2, s2)", "onnxruntime", None),
    ('QMoE<quant_type="fp8", block_size=16>(x, p, e1, s1, , e2, s2, , e3, s3)', "onnxruntime", None),
    ('QMoE<quant_type="fp8", block_size=16>(x, p, e1, s1, , e2, s2, , e3, s3)', "onnxruntime@1.29", "QMoE with fc3"),
    ('QMoE<quant_type="fp8">(x, p, e1, s1, , e2, s2, , e3, s3)', "onnxruntime", "QMoE with fc3"),
    ('MoE<activation_type="silu">(x, p, w1, , w2, , w3)', "onnxruntime", None),
]


@pytest.mark.parametrize(("node", "runtime", "refused"), REFUSED, ids=[f"{node} {name}" for node, name, _ in REFUSED])
def test_mixtures_that_onnxruntime_refuses(node: str, runtime: str, refused: str | None) -> None:
    """They have no time: a session of such a model isn't made."""
    in_bytes = {f"b{i}": (*MIXTURE[f"w{i}"][:2], MIXTURE[f"w{i}"][2] // 2) for i in (1, 2, 3)}
    in_floats = {f"e{i}": MIXTURE[f"w{i}"] for i in (1, 2, 3)}
    scales = {f"s{i}": MIXTURE[f"w{i}"][:2] for i in (1, 2, 3)}
    types = {**dict.fromkeys(in_bytes, U8), **dict.fromkeys(in_floats, TensorProto.FLOAT8E4M3FN)}
    sizes = {**MIXTURE, **in_bytes, **in_floats, **scales}
    graph = inferred(f"y = com.microsoft.{node}", sizes, types=types)
    (work,) = lower(graph, runtime=runtime)
    if refused is None:
        assert work.unsupported is None
        assert work.kernels
    else:
        assert (work.unsupported or "").startswith(f"ONNX Runtime's CUDA provider takes no {refused}")
        assert not work.kernels


@pytest.mark.parametrize("gpu", ["b200", "mi300x", "h100"])
def test_more_tokens_take_a_mixture_no_less(gpu: str) -> None:
    """Experts with a row more wait for nothing: rows that divide evenly aren't cheaper than fewer that don't."""

    def latency_us(tokens: int) -> float:
        sizes = {"x": (tokens, 2048), "p": (tokens, 64), "w1": (64, 2816, 2048), "w2": (64, 2048, 1408)}
        graph = inferred(
            'y = com.microsoft.MoE<k=6, activation_type="swiglu", swiglu_fusion=1>(x, p, w1, , w2)',
            sizes,
            types=dict.fromkeys(sizes, TensorProto.FLOAT16),
        )
        (work,) = lower(graph, runtime="onnxruntime")
        return sum(prediction.latency_us for prediction in predict(work.kernels, load_gpu(gpu)))

    found = [latency_us(tokens) for tokens in (8, 16, 28, 32, 48, 60, 64, 127, 128, 192)]
    assert all(more >= 0.998 * fewer for fewer, more in pairwise(found))


def _linear(tokens: int, heads: int = 16, d: int = 128, rule: str = "gated_delta") -> Opaque:
    sizes: dict[str, tuple[int, ...]] = dict.fromkeys(("q", "k", "v"), (1, tokens, heads * d))
    sizes |= {"s": (1, heads, d, d), "g": (1, tokens, heads), "b": (1, tokens, heads)}
    operands = f"q, k, v, s, {'g' if 'gated' in rule else ''}, {'b' if 'delta' in rule else ''}"
    node = f'y, t = com.microsoft.LinearAttention<q_num_heads={heads}, kv_num_heads={heads}, update_rule="{rule}">'
    graph = inferred(f"{node}({operands})", sizes, types=dict.fromkeys(sizes, F16))
    (kernel,) = lower(graph, runtime="onnxruntime")[-1].kernels
    assert isinstance(kernel, Opaque)
    return kernel


@pytest.mark.parametrize(("rule", "each"), [("linear", 4), ("gated", 5), ("delta", 6), ("gated_delta", 7)])
def test_work_of_linear_attention(rule: str, each: int) -> None:
    """A multiply-add an element to update and to read; a product to decay, a multiply-add to read before."""
    assert _linear(9, rule=rule).flops == 9 * 16 * 128 * 128 * each


def test_work_of_a_packed_gated_delta_net() -> None:
    """6 tokens of 2 samples: queries and keys of 2 heads of 8, values of 4 of 12, whose states are all read."""
    sizes = {"x": (6, 80), "g": (6, 4), "b": (6, 4), "s": (2, 4, 12, 8)}
    graph = inferred("y, t = com.microsoft.GatedDeltaNet(x, , , , g, b, s)", sizes)
    (kernel,) = lower(graph, runtime="onnxruntime")[-1].kernels
    assert kernel.flops == 6 * 4 * 12 * 8 * 7
    assert isinstance(kernel, Opaque)
    assert kernel.state_steps is not None
    assert (kernel.state_steps.states, kernel.state_steps.steps) == (8, 3)


@pytest.mark.parametrize(
    ("rule", "d", "heads", "cycles"),
    [
        # played: of 17 tokens those of 9 taken away, a block alone on its SM
        ("linear", 128, 16, 44388 - 24108),
        ("gated", 128, 16, 48111 - 26079),
        ("delta", 128, 16, 49369 - 26745),
        ("gated_delta", 128, 16, 53738 - 29058),
        ("gated_delta", 64, 16, 50734 - 27390),
        ("gated_delta", 128, 99, 3 * (19759 - 10726)),  # four blocks a head are three an SM of 132
    ],
)
def test_tokens_of_linear_attention_wait_for_each_other(rule: str, d: int, heads: int, cycles: float) -> None:
    """Cycles of 8 tokens in ONNX Runtime's machine code (benchmarks/block_wait.py), at an H100's clock."""
    gpu = load_gpu("h100")
    kernels = [_linear(tokens, heads, d, rule) for tokens in (2009, 2017)]
    before, after = (prediction.latency_us for prediction in predict(kernels, gpu))
    assert (after - before) * gpu.clock_hz / 1e6 == pytest.approx(cycles, rel=0.07)


def test_a_gated_delta_net_takes_many_tokens_by_chunks() -> None:
    """From 32 tokens on 64 at once, which takes less time than as many one after the other."""

    def kernel_of(tokens: int) -> Opaque:
        sizes: dict[str, tuple[int, ...]] = dict.fromkeys(("q", "k", "v"), (tokens, 32, 128))
        sizes |= {"g": (tokens, 32), "b": (tokens, 32), "s": (1, 32, 128, 128)}
        types = dict.fromkeys(("q", "k", "v"), F16)
        graph = inferred("y, t = com.microsoft.GatedDeltaNet(q, k, v, , g, b, s)", sizes, types=types)
        (kernel,) = lower(graph, runtime="onnxruntime")[-1].kernels
        assert isinstance(kernel, Opaque)
        return kernel

    few, many = kernel_of(17), kernel_of(64)
    assert few.state_steps is not None
    assert many.state_steps is not None
    assert (few.state_steps.spread, many.state_steps.spread) == ("warps", "chunks")
    one_by_one = replace(many, state_steps=replace(many.state_steps, spread="warps"))
    by_chunks, by_tokens = (item.latency_us for item in predict([many, one_by_one], load_gpu("h100")))
    assert by_chunks < by_tokens / 2


OF_THE_CPU = """
AttnLSTM BifurcationDetector CDist ConvStateReplay CropAndResize DequantizeBFP DynamicQuantizeLSTM
DynamicQuantizeMatMul EPContext ExpandDims FusedGemm FusedMatMulActivation GatedDeltaNetStateReplay GatherND
GatherPacked GemmFastGelu HyperConnectionLowRankMix IsAllFinite Mamba2Verify MatMulFpQ4 MatMulInteger16
MatMulIntegerToFloat MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv MatMulPacked MaxpoolWithMask
MoEGroupRouter MoEPacked MulInteger MurmurHash3 NhwcFusedConv NhwcMaxPool PackedSparseAttentionIndexerMerge
Pad QEmbedLayerNormalization QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv
QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax
QLinearWhere QuantizeBFP RMSNormRotary Range ReduceSumInteger RouterGateUpProj SampleOp
SimplifiedLayerNormalization Snpe SparseToDenseMatMul SpeculativePrefixCommit SwiGLU Tokenizer
TorchEmbedding Trilu Unique WordConvEmbedding
"""
"""Operators with a rule that ONNX Runtime's CUDA provider has no kernel for."""


def test_where_each_operator_runs_is_decided() -> None:
    """One that is forgotten in ``ORT_CUDA`` would be computed by the CPU, between copies, in the default runtime."""
    undecided = {name for domain, name in RULES if domain == "com.microsoft"} - ORT_CUDA["com.microsoft"]
    assert undecided == set(OF_THE_CPU.split())
