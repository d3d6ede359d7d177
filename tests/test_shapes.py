"""Shape inference on small models written out as text; expected shapes are worked out by hand."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper, parser

from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import InferredGraph, Value
from neusight_onnx.graph.read import read_model, read_model_bytes
from neusight_onnx.graph.shapes import infer
from neusight_onnx.graph.shapes.registry import RULES, rule

OPSETS = '"" : {opset}, "com.microsoft" : 1, "ai.onnx.ml" : 3, "my.custom" : 1'


def inferred(text: str, opset: int = 18, **bound: Any) -> InferredGraph:
    """The inference of ``g (inputs) => (outputs) <initializers> { nodes }`` with the keywords as bindings."""
    header = f"<ir_version: 9, opset_import: [{OPSETS.format(opset=opset)}]>\n"
    model = parser.parse_model(header + text)
    if "values" in bound:
        bound["values"] = {name: np.array(value) for name, value in bound["values"].items()}
    return infer(read_model_bytes(model.SerializeToString()), Bindings(**bound))


def shape(result: InferredGraph, name: str) -> tuple[int, ...] | None:
    return result.values[name].shape


@dataclass(frozen=True)
class Case:
    """``dims``, ``values``: bindings; ``data``: content that must be known besides."""

    text: str
    expected: Mapping[str, tuple[int, ...]]
    opset: int = 18
    dims: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)


EXACT = {
    "reshape to what Shape, Gather and Concat compute": Case(
        """g (float[B, S, 64] x)
           => (float[a, b, c, d] y) <int64 i = {1}, int64[1] z = {0}, int64[1] t = {4}, int64[1] h = {16}> {
             s = Shape(x)
             n = Gather(s, i)
             n1 = Unsqueeze(n, z)
             b = Gather(s, z)
             target = Concat<axis = 0>(b, t, n1, h)
             y = Reshape(x, target)
        }""",
        {"y": (2, 4, 5, 16)},
        dims={"B": 2, "S": 5},
        data={"target": [2, 4, 5, 16]},
    ),
    "reshape: 0 copies, -1 is the rest": Case(
        "g (float[6, 4, 2] x) => (float[a, b] y) <int64[2] t = {0, -1}> { y = Reshape(x, t) }", {"y": (6, 8)}
    ),
    "reshape: with allowzero 0 is 0": Case(
        "g (float[N, 2] x) => (float[a] y) <int64[2] t = {0, 4}, int64[1] z = {0}, int64[2] m = {0, 2}> "
        "{ e = Slice(x, z, z)  y = Reshape<allowzero = 1>(e, t) }",
        {"e": (0, 2), "y": (0, 4)},
        dims={"N": 3},
    ),
    "reshape before opset 5 has its target as an attribute": Case(
        "g (float[2, 6] x) => (float[a, b] y) { y = Reshape<shape = [3, -1]>(x) }", {"y": (3, 4)}, opset=4
    ),
    "integer division truncates towards zero": Case(
        """g (float[7] x) => (int64 q) <int64[1] two = {-2}> { s = Shape(x)  q = Div(s, two) }""",
        {"q": (1,)},
        data={"q": [-3]},
    ),
    "slice: steps, negative steps, ends beyond the axis": Case(
        """g (float[10, 9, 8] x) => (float[a, b, c] y)
           <int64[3] s = {1, -1, 2}, int64[3] e = {9223372036854775807, -9223372036854775808, 6},
            int64[3] ax = {0, 1, 2}, int64[3] k = {3, -2, 1}>
           { y = Slice(x, s, e, ax, k) }""",
        {"y": (3, 5, 4)},
    ),
    "slice before opset 10 has attributes": Case(
        "g (float[10, 9] x) => (float[a, b] y) { y = Slice<starts = [2, 0], ends = [100, -1], axes = [0, 1]>(x) }",
        {"y": (8, 8)},
        opset=9,
    ),
    "squeeze without axes drops every 1": Case(
        "g (float[1, 3, 1, 2] x) => (float[a, b] y) { y = Squeeze(x) }", {"y": (3, 2)}
    ),
    "squeeze before opset 13 has axes as an attribute": Case(
        "g (float[1, 3, 1] x) => (float[a, b] y) { y = Squeeze<axes = [-1]>(x) }", {"y": (1, 3)}, opset=11
    ),
    "unsqueeze counts axes in the result": Case(
        "g (float[3, 4] x) => (float[a, b, c, d] y) <int64[2] ax = {0, -1}> { y = Unsqueeze(x, ax) }",
        {"y": (1, 3, 4, 1)},
    ),
    "range and expand from a shape": Case(
        """g (int64[B, S] x) => (int64[a, b] y) <int64 i = {1}, int64 zero = {0}, int64 one = {1}> {
             s = Shape(x)
             n = Gather(s, i)
             r = Range(zero, n, one)
             y = Expand(r, s)
        }""",
        {"r": (7,), "y": (3, 7)},
        dims={"B": 3, "S": 7},
        data={"r": list(range(7))},
    ),
    "range of floats rounds up": Case(
        "g (float[1] x) => (float[a] y) <float s = {0.0}, float l = {1.0}, float d = {0.3}> { y = Range(s, l, d) }",
        {"y": (4,)},
    ),
    "where and equal on shapes": Case(
        """g (float[B, 4] x) => (float[a, b] y) <int64[2] w = {-1, 4}, int64[2] ones = {1, 1}, int64[2] m = {-1, -1}> {
             isopen = Equal(w, m)
             t = Where(isopen, ones, w)
             y = Expand(x, t)
        }""",
        {"y": (6, 4)},
        dims={"B": 6},
        data={"t": [1, 4]},
    ),
    "split: sizes, equal parts, num_outputs with a rest": Case(
        """g (float[2, 10] x) => (float[2, a] a1) <int64[2] parts = {3, 7}> {
             a1, a2 = Split<axis = 1>(x, parts)
             b1, b2, b3 = Split<axis = 1, num_outputs = 3>(x)
        }""",
        {"a1": (2, 3), "a2": (2, 7), "b1": (2, 4), "b2": (2, 4), "b3": (2, 2)},
    ),
    "concat before opset 4 joins axis 1": Case(
        "g (float[2, 3] x, float[2, 4] z) => (float[a, b] y) { y = Concat(x, z) }", {"y": (2, 7)}, opset=1
    ),
    "reductions: axes as an attribute, as an input, keepdims, none": Case(
        """g (float[2, 3, 4] x) => (float[a] m) <int64[1] last = {-1}, int64[0] none = {}> {
             m = ReduceSum<keepdims = 0>(x, last)
             k = ReduceMax(x, last)
             all = ReduceMean<keepdims = 0>(x)
             same = ReduceSum<noop_with_empty_axes = 1>(x, none)
        }""",
        {"m": (2, 3), "k": (2, 3, 1), "all": (), "same": (2, 3, 4)},
    ),
    "reductions before opset 13": Case(
        "g (float[2, 3, 4] x) => (float[a] m) { m = ReduceSum<axes = [0, 2], keepdims = 0>(x) }", {"m": (3,)}, opset=11
    ),
    "gather on any axis, scalar index drops it": Case(
        "g (float[5, 6, 7] x, int64[2, 3] i) => (float[a] y) <int64 k = {2}> "
        "{ y = Gather<axis = 1>(x, i)  z = Gather<axis = -1>(x, k) }",
        {"y": (5, 2, 3, 7), "z": (5, 6)},
    ),
    "gather nd with batch dimensions": Case(
        "g (float[2, 5, 6, 7] x, int64[2, 3, 2] i) => (float[a] y) { y = GatherND<batch_dims = 1>(x, i) }",
        {"y": (2, 3, 7)},
    ),
    "pad, with axes since opset 18": Case(
        "g (float[2, 3, 4] x) => (float[a, b, c] y) <int64[2] p = {1, -2}, int64[1] ax = {2}> { y = Pad(x, p, , ax) }",
        {"y": (2, 3, 3)},
    ),
    "tile, top-k, one-hot, cumulative sum": Case(
        """g (float[2, 3] x, int64[4, 5] i) => (float[a] y)
           <int64[2] r = {2, 3}, int64[1] k = {2}, int64 depth = {9}, float[2] v = {0.0, 1.0}, int64 ax = {1}> {
             y = Tile(x, r)
             t, ti = TopK<axis = 1>(x, k)
             o = OneHot<axis = 1>(i, depth, v)
             c = CumSum(x, ax)
        }""",
        {"y": (4, 9), "t": (2, 2), "ti": (2, 2), "o": (4, 9, 5), "c": (2, 3)},
    ),
    # 2·in - 1 = 15 places, 3 wide: 14 + 3 - 2·1 + 1 = 16 per axis
    "transposed convolution with output padding": Case(
        """g (float[1, 4, 8, 8] x, float[4, 8, 3, 3] w) => (float[a, b, c, d] y) {
             y = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]>(x, w)
             s = ConvTranspose<strides = [2, 2], auto_pad = "SAME_UPPER">(x, w)
             o = ConvTranspose<strides = [2, 2], output_shape = [17, 18]>(x, w)
        }""",
        {"y": (1, 8, 16, 16), "s": (1, 8, 16, 16), "o": (1, 8, 17, 18)},
    ),
    # SAME: ceil(11 / 2) = 6 whatever the dilation; VALID with dilation 2: reach 5, (11 - 5) // 2 + 1 = 4
    "convolution: SAME and VALID with stride and dilation, groups, no kernel_shape": Case(
        """g (float[2, 6, 11, 11] x, float[8, 3, 3, 3] w) => (float[a, b, c, d] y) {
             y = Conv<auto_pad = "SAME_LOWER", strides = [2, 2], dilations = [2, 2], group = 2>(x, w)
             v = Conv<auto_pad = "VALID", strides = [2, 2], dilations = [2, 2], group = 2>(x, w)
             n = Conv<group = 2, pads = [0, 1, 2, 3]>(x, w)
        }""",
        {"y": (2, 8, 6, 6), "v": (2, 8, 4, 4), "n": (2, 8, 11, 13)},
    ),
    "one- and three-dimensional convolution": Case(
        """g (float[1, 4, 20] x, float[8, 4, 5] w, float[1, 2, 6, 7, 8] u, float[3, 2, 2, 2, 2] v) => (float[a] y) {
             y = Conv<strides = [3]>(x, w)
             z = Conv(u, v)
        }""",
        {"y": (1, 8, 6), "z": (1, 3, 5, 6, 7)},
    ),
    # (7 - 3) / 2 = 2 remainder 0: ceil and floor agree; 8: floor 3, ceil 4, and its start 6 < 8 + 0 stays
    "pooling rounds up with ceil_mode, unless the window starts in the padding": Case(
        """g (float[1, 1, 8] x, float[1, 1, 3] z) => (float[a] y) {
             y = MaxPool<kernel_shape = [3], strides = [2], ceil_mode = 1>(x)
             q, qi = MaxPool<kernel_shape = [3], strides = [2]>(x)
             p = AveragePool<kernel_shape = [1], strides = [3], pads = [0, 1], ceil_mode = 1>(z)
             m = GlobalAveragePool(x)
        }""",
        {"y": (1, 1, 4), "q": (1, 1, 3), "qi": (1, 1, 3), "p": (1, 1, 1), "m": (1, 1, 1)},
    ),
    "resize by scales, by sizes, along axes with the aspect kept": Case(
        """g (float[1, 3, 10, 20] x) => (float[a] y)
           <float[4] s = {1.0, 1.0, 0.55, 2.5}, int64[4] z = {1, 3, 7, 7}, int64[2] w = {7, 7}> {
             y = Resize(x, , s)
             e = Resize(x, , , z)
             k = Resize<axes = [2, 3], keep_aspect_ratio_policy = "not_larger">(x, , , w)
        }""",
        {"y": (1, 3, 5, 50), "e": (1, 3, 7, 7), "k": (1, 3, 4, 7)},
    ),
    "resize before opset 11 and upsample": Case(
        "g (float[1, 1, 4, 4] x) => (float[a] y) <float[4] s = {1.0, 1.0, 2.0, 1.5}> { y = Resize(x, s) }",
        {"y": (1, 1, 8, 6)},
        opset=10,
    ),
    "upsample with scales as an attribute": Case(
        "g (float[1, 1, 4, 4] x) => (float[a] y) { y = Upsample<scales = [1.0, 1.0, 2.0, 1.5]>(x) }",
        {"y": (1, 1, 8, 6)},
        opset=7,
    ),
    "matmul: batch on the right, vectors, broadcast batches": Case(
        """g (float[4, 8] x, float[16, 8, 2] r, float[8] v, float[3, 1, 5, 8] q) => (float[a] y) {
             y = MatMul(x, r)
             d = MatMul(v, v)
             l = MatMul(v, r)
             b = MatMul(q, r)
        }""",
        {"y": (16, 4, 2), "d": (), "l": (16, 2), "b": (3, 16, 5, 2)},
    ),
    "gemm without C, operands transposed": Case(
        "g (float[8, 4] a, float[2, 8] b) => (float[m, n] y) { y = Gemm<transA = 1, transB = 1>(a, b) }", {"y": (4, 2)}
    ),
    "einsum with an ellipsis that broadcasts, and without an output": Case(
        """g (float[8, 3, 4] x, float[1, 4, 5] w, float[2, 3] p, float[3, 4] q) => (float[a] y) {
             y = Einsum<equation = "...ij,...jk->...ik">(x, w)
             i = Einsum<equation = "ij,jk">(p, q)
             t = Einsum<equation = "ij->ji">(p)
        }""",
        {"y": (8, 3, 5), "i": (2, 4), "t": (3, 2)},
    ),
    "lstm with an empty optional input, both directions, batch first": Case(
        """g (float[10, 2, 16] x, float[1, 128, 16] w, float[1, 128, 32] r, float[2, 128, 16] w2, float[2, 128, 32] r2)
           => (float[a] y) {
             y, h, c = LSTM<hidden_size = 32>(x, w, r)
             z, zh = LSTM<hidden_size = 32, direction = "bidirectional", layout = 1>(x, w2, r2)
        }""",
        {"y": (10, 1, 2, 32), "h": (1, 2, 32), "c": (1, 2, 32), "z": (10, 2, 2, 32), "zh": (10, 2, 32)},
    ),
    "gru without hidden_size takes it from the recurrence": Case(
        "g (float[5, 2, 4] x, float[1, 18, 4] w, float[1, 18, 6] r) => (float[a] y) { y, h = GRU(x, w, r) }",
        {"y": (5, 1, 2, 6), "h": (1, 2, 6)},
    ),
    "layer normalization also gives mean and deviation": Case(
        "g (float[2, 3, 4] x, float[3, 4] s) => (float[a] y) { y, m, d = LayerNormalization<axis = 1>(x, s) }",
        {"y": (2, 3, 4), "m": (2, 1, 1), "d": (2, 1, 1)},
    ),
    "attention and RMS normalization of opset 23": Case(
        """g (float[B, S, 64] x, float[64] w) => (float[a, b, c] y) {
             n = RMSNormalization(x, w)
             y, k, v = Attention<q_num_heads = 4, kv_num_heads = 4, is_causal = 1>(n, n, n)
        }""",
        {"n": (2, 16, 64), "y": (2, 16, 64), "k": (2, 4, 16, 16), "v": (2, 4, 16, 16)},
        opset=23,
        dims={"B": 2, "S": 16},
    ),
    "attention in four dimensions with a cache and grouped heads": Case(
        """g (float[1, 8, 3, 16] q, float[1, 2, 3, 16] k, float[1, 2, 3, 24] v, float[1, 2, 5, 16] pk,
              float[1, 2, 5, 24] pv)
           => (float[a] y) { y, nk, nv, qk = Attention(q, k, v, , pk, pv) }""",
        {"y": (1, 8, 3, 24), "nk": (1, 2, 8, 16), "nv": (1, 2, 8, 24), "qk": (1, 8, 3, 8)},
        opset=23,
    ),
    "quantised convolution": Case(
        """g (uint8[1, 8, 10, 10] x, int8[32, 8, 3, 3] w, float s, uint8 z, int8 wz) => (uint8[a] y)
           { y = QLinearConv(x, s, z, w, s, wz, s, z) }""",
        {"y": (1, 32, 8, 8)},
    ),
    "depth to space, space to depth, trilu, cast": Case(
        """g (float[1, 8, 2, 3] x) => (float[a] y) {
             y = DepthToSpace<blocksize = 2>(x)
             s = SpaceToDepth<blocksize = 2>(y)
             t = Trilu(x)
             c = Cast<to = 7>(x)
        }""",
        {"y": (1, 2, 4, 6), "s": (1, 8, 2, 3), "t": (1, 8, 2, 3), "c": (1, 8, 2, 3)},
    ),
    # frames (100 - 16) // 8 + 1 = 11, bins 16 // 2 + 1 = 9
    "short-time Fourier transform": Case(
        "g (float[2, 100, 1] x) => (float[a] y) <int64 step = {8}, int64 width = {16}> { y = STFT(x, step, , width) }",
        {"y": (2, 11, 9, 2)},
    ),
    "a shape that an input's value decides": Case(
        "g (float[12] x, int64[2] t) => (float[a, b] y) { y = Reshape(x, t) }", {"y": (3, 4)}, values={"t": [3, -1]}
    ),
    "non-zero of known content": Case(
        "g (float[1] x) => (int64[a, b] y) <int64[5] c = {0, 3, 0, 1, 2}> { y = NonZero(c) }",
        {"y": (1, 3)},
        data={"y": [[1, 3, 4]]},
    ),
    "sequences: construct, insert, at, split, concatenate": Case(
        """g (float[2, 3] x, float[4, 3] z) => (float[a, b] y) <int64 one = {1}, int64 two = {2}> {
             s = SequenceConstruct(x, z)
             i = SequenceInsert(s, x, one)
             m = SequenceAt(i, two)
             n = SequenceLength(i)
             y = ConcatFromSequence<axis = 0>(i)
             parts = SplitToSequence<axis = 1>(x, two)
             last = SequenceAt(parts, one)
        }""",
        {"m": (4, 3), "n": (), "y": (8, 3), "last": (2, 1)},
        data={"n": 3},
    ),
    "classifier and zip map": Case(
        """g (float[5, 4] x) => (float[a] p) {
             l, p = ai.onnx.ml.LinearClassifier<classlabels_ints = [0, 1, 2], coefficients = [0.0, 0.0, 0.0, 0.0]>(x)
             s = ai.onnx.ml.Scaler<offset = [0.0], scale = [1.0]>(x)
        }""",
        {"l": (5,), "p": (5, 3), "s": (5, 4)},
    ),
    "contrib operators that no CPU runs": Case(
        """g (float[2, 6, 16] x, float[32] b, float[2, 6, 32] wide, float[12, 16] t, float[16, 48] w, float[48] wb,
              int32[2] lengths, int32[2, 6] offsets, float[2, 8, 8, 4] image, float[4] c, float[32, 4] table,
              float[6, 4, 3, 3] k)
           => (float[a] y) <int64 q = {5}, int64 u = {7}> {
             y = com.microsoft.BiasSplitGelu(wide, b)
             pa = com.microsoft.PackedAttention<num_heads = 4>(t, w, wb, offsets, lengths)
             rp, off, cum, most = com.microsoft.RemovePadding(x, lengths)
             back = com.microsoft.RestorePadding(t, offsets)
             gn = com.microsoft.GroupNorm<groups = 2, channels_last = 1, activation = 0>(image, c, c)
             rel = com.microsoft.RelativePositionBias<max_distance = 9>(table, q, u)
             nc = com.microsoft.NhwcConv<pads = [1, 1, 1, 1]>(image, k)
             bs = com.microsoft.BiasSoftmax<axis = 2, is_inner_broadcast = 0>(x, x)
        }""",
        {
            **{"y": (2, 6, 16), "pa": (12, 16), "rp": (12, 16), "off": (2, 6), "cum": (3,), "most": (1,)},
            **{"back": (2, 6, 16), "gn": (2, 8, 8, 4), "rel": (1, 4, 5, 7), "nc": (2, 8, 8, 6), "bs": (2, 6, 16)},
        },
    ),
    "group query attention: a cache of 127 and one token make 128": Case(
        """g (float[B, S, 512] q, float[B, S, 128] kv, float[B, 2, P, 64] pk, int32[B] lengths, int32 total)
           => (float[a] o) {
             o, k, v = com.microsoft.GroupQueryAttention<num_heads = 8, kv_num_heads = 2>
                 (q, kv, kv, pk, pk, lengths, total)
        }""",
        {"o": (1, 1, 512), "k": (1, 2, 128, 64), "v": (1, 2, 128, 64)},
        dims={"B": 1, "S": 1, "P": 127},
    ),
    "4-bit weights: the output's width is an attribute": Case(
        """g (float[B, S, 128] x, uint8[256, 4, 16] w, float[1024] s) => (float[a] y)
           { y = com.microsoft.MatMulNBits<K = 128, N = 256, bits = 4, block_size = 32>(x, w, s)  z = Relu(y) }""",
        {"y": (2, 5, 256), "z": (2, 5, 256)},
        dims={"B": 2, "S": 5},
    ),
}


ROTATED = """g (float[1, 1, 64] q, float[1, 1, 16] kv, float[1, 1, P, 16] pk, int32[1] lengths, float[32, 8] c)
    => (float[a] o) <int32 total = {TOTAL}> {
        o, k, v = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 1, do_rotary = 1>
            (q, kv, kv, pk, pk, lengths, total, c, c)
    }"""


@pytest.mark.parametrize(("past", "total", "runs"), [(31, 32, True), (32, 33, False), (64, 32, True), (64, 33, False)])
def test_a_table_of_rotations_has_a_row_for_each_token(past: int, total: int, runs: bool) -> None:
    """As ONNX Runtime: "cos_cache dimension 0 shall not be less than total_sequence_length". A past that is longer than
    the tokens is a buffer."""
    text = ROTATED.replace("TOTAL", str(total))
    if runs:
        inferred(text, dims={"P": past})
        return
    with pytest.raises(ModelError, match=f"has 32 positions, fewer than the {total} tokens"):
        inferred(text, dims={"P": past})


@pytest.mark.parametrize("case", EXACT.values(), ids=EXACT.keys())
def test_exact_shapes(case: Case) -> None:
    result = inferred(case.text, case.opset, dims=case.dims, values=case.values)
    found = {name: shape(result, name) for name in case.expected}
    assert found == case.expected
    for name, content in case.data.items():
        value = result.values[name]
        assert value.data is not None, name
        assert value.data.tolist() == content
        assert value.data_low is None


# --- sizes that depend on data ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundCase:
    """``expected``: name -> (greatest shape, least shape); equal where exact. ``says``: parts of the assumptions."""

    text: str
    expected: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    says: tuple[str, ...] = ()
    bindings: Mapping[str, Any] = field(default_factory=dict)


BOUNDED = {
    "non-zero, and what is made of it": BoundCase(
        """g (float[4, 16] x, float[64, 8] rows, float[8, 3] w) => (int64[a, b] nz)
           <int64[1] one = {1}, int64[2] t = {-1, 4}> {
             nz = NonZero(x)
             tr = Transpose(nz)
             first, second = Split<axis = 1, num_outputs = 2>(tr)
             flat = Squeeze(first, one)
             taken = Gather<axis = 0>(rows, flat)
             y = MatMul(taken, w)
             back = Add(y, y)
             shaped = Reshape(taken, t)
        }""",
        {
            "nz": ((2, 64), (2, 0)),
            "tr": ((64, 2), (0, 2)),
            "flat": ((64,), (0,)),
            "taken": ((64, 8), (0, 8)),
            "y": ((64, 3), (0, 3)),
            "back": ((64, 3), (0, 3)),
            "shaped": ((128, 4), (0, 4)),
        },
        ("NonZero 'nz': at most 64 columns, its input has 64 elements",),
    ),
    "a bound through Shape, arithmetic and Range": BoundCase(
        """g (float[10] x) => (int64[a] r) <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 twenty = {20}> {
             nz = NonZero(x)
             s = Shape(nz)
             k = Gather(s, one)
             double = Mul(k, two)
             r = Range(zero, double, one)
             rest = Sub(twenty, k)
             q = Range(zero, rest, one)
             late = Range(k, twenty, one)
             e = Expand(zero, s)
        }""",
        {
            "r": ((20,), (0,)),
            "q": ((20,), (10,)),  # 20 - k with k from 0 to 10
            "late": ((20,), (10,)),
            "e": ((1, 10), (1, 0)),
        },
    ),
    "a bound dimension cancels in a reshape, by its size, by 0 or by -1": BoundCase(
        """g (float[10] x, float[10, 6, 4] rows) => (float[a] y)
           <int64[1] m = {-1}, int64[1] one = {1}, int64[3] z = {0, -1, 2}, int64[3] t = {-1, 3, 8}> {
             nz = NonZero(x)
             flat = Reshape(nz, m)
             taken = Gather(rows, flat)
             s = Shape(nz)
             k = Gather(s, one)
             target = Concat<axis = 0>(k, m)
             y = Reshape(taken, target)
             copied = Reshape(taken, z)
             rest = Reshape(taken, t)
        }""",
        {"y": ((10, 24), (0, 24)), "copied": ((10, 12, 2), (0, 12, 2)), "rest": ((10, 3, 8), (0, 3, 8))},
    ),
    "a running count caps what a router chooses": BoundCase(
        """g (int64[2, 10] expert, float[20, 8] tokens) => (float[a, b] taken)
           <int64 depth = {4}, int64[2] levels = {0, 1}, int64 axis = {-2}, int64 limit = {3}, int64 one = {1},
            int64[1] flat = {-1}, int64[1] last = {2}> {
             chosen = OneHot<axis = -1>(expert, depth, levels)
             running = CumSum(chosen, axis)
             fits = LessOrEqual(running, limit)
             number = Cast<to = 7>(fits)
             mask = Mul(chosen, number)
             mine = Gather<axis = 2>(mask, one)
             line = Reshape(mine, flat)
             nz = NonZero(line)
             index = Squeeze(nz)
             taken = Gather<axis = 0>(tokens, index)
             below = Less(running, limit)
             fewer = Cast<to = 7>(below)
             tighter = Mul(fewer, chosen)
             all = NonZero(tighter)
             others = Unsqueeze(expert, last)
             unrelated = Mul(number, others)
             loose = NonZero(unrelated)
        }""",
        {
            # at most 3 of 10 tokens of each of 2 sequences
            "nz": ((1, 6), (1, 0)),
            "taken": ((6, 8), (0, 8)),
            # below 3: at most 2 of each of 2 sequences and 4 experts
            "all": ((3, 16), (3, 0)),
            # the running count is not one of these elements: nothing caps them
            "loose": ((3, 80), (3, 0)),
        },
        ("at most 6 columns: a running count caps",),
    ),
    "a line of a softmax adds up to 1: few of its elements are above a share": BoundCase(
        """g (float[5, 40] x) => (int64[a, b] nz)
           <float quarter = {0.25}, int64[1] one = {1}, int64[1] end = {99}, int64[1] flat = {-1}, float none = {0}> {
             p = Softmax<axis = 1>(x)
             q = Slice(p, one, end, one)
             r = Reshape(q, flat)
             high = Greater(r, quarter)
             nz = NonZero(high)
             least = LessOrEqual(quarter, p)
             other = NonZero(least)
             columns = Softmax<axis = 0>(x)
             above = GreaterOrEqual(columns, quarter)
             third = NonZero(above)
             below = Less(p, quarter)
             loose = NonZero(below)
             any = Greater(p, none)
             all = NonZero(any)
        }""",
        {
            # 4 of each of 5 lines, or of each of 40 columns
            "nz": ((1, 20), (1, 0)),
            "other": ((2, 20), (2, 0)),
            "third": ((2, 160), (2, 0)),
            "loose": ((2, 200), (2, 0)),
            "all": ((2, 200), (2, 0)),
        },
        ("NonZero 'nz': at most 20 columns: each line of a softmax adds up to 1, so at most 4 pass 0.25",),
    ),
    "an exact operand decides what a bound broadcasts to": BoundCase(
        "g (float[10] x, float[4] z) => (float[a] y) { nz = NonZero(x)  c = Cast<to = 1>(nz)  y = Add(c, z) }",
        {"y": ((1, 4), (1, 4))},
    ),
    "a bound joined to something exact": BoundCase(
        "g (float[10] x, int64[1, 3] z) => (int64[a, b] y) { nz = NonZero(x)  y = Concat<axis = 1>(nz, z) }",
        {"y": ((1, 13), (1, 3))},
    ),
    "non-maximum suppression": BoundCase(
        """g (float[2, 50, 4] boxes, float[2, 3, 50] scores) => (int64[a, b] y) <int64 most = {5}>
           { y = NonMaxSuppression(boxes, scores, most) }""",
        {"y": ((30, 3), (0, 3))},  # 2 images, 3 classes, 5 boxes
        ("at most 30 rows",),
    ),
    "non-maximum suppression keeps no more boxes than there are": BoundCase(
        """g (float[1, 7, 4] boxes, float[1, 3, 7] scores) => (int64[a, b] y) <int64 most = {100}>
           { y = NonMaxSuppression(boxes, scores, most) }""",
        {"y": ((21, 3), (0, 3))},
    ),
    "unique, compress": BoundCase(
        """g (float[3, 4] x, bool[2] c) => (float[a] y) {
             y, i, inv, n = Unique(x)
             k = Compress<axis = 1>(x, c)
        }""",
        {"y": ((12,), (1,)), "i": ((12,), (1,)), "inv": ((12,), (12,)), "n": ((12,), (1,)), "k": ((3, 2), (3, 0))},
    ),
    "top-k, slice and split with sizes that aren't known": BoundCase(
        """g (float[3, 9] x, int64[1] k, int64[2] parts) => (float[a] y) <int64[1] z = {0}, int64[1] one = {1}> {
             y, i = TopK(x, k)
             s = Slice(x, z, k, one)
             a1, a2 = Split<axis = 1>(x, parts)
        }""",
        {"y": ((3, 9), (3, 0)), "s": ((3, 9), (3, 0)), "a1": ((3, 9), (3, 0)), "a2": ((3, 9), (3, 0))},
        ("k depends on data",),
    ),
    "if with a condition from data: the larger branch": BoundCase(
        """g (bool c, float[2, 4] x) => (float[a, b] y) {
             y = If(c) <then_branch = t () => (float[a, b] p) { p = Concat<axis = 0>(x, x) },
                        else_branch = e () => (float[a, b] q) { q = Identity(x) }>
        }""",
        {"y": ((4, 4), (2, 4))},
        ("If 'y': its condition depends on data",),
    ),
}


@pytest.mark.parametrize("case", BOUNDED.values(), ids=BOUNDED.keys())
def test_bounds(case: BoundCase) -> None:
    result = inferred(case.text, **case.bindings)
    for name, (high, low) in case.expected.items():
        value = result.values[name]
        assert value.shape == high, name
        assert value.is_bound is (high != low), name
        assert (value.shape_low if value.is_bound else value.shape) == low, name
    for text in case.says:
        assert any(text in assumption for assumption in result.assumptions), result.assumptions


def test_the_user_may_say_how_large_something_is_that_depends_on_data() -> None:
    text = "g (float[10] x) => (int64[a] y) <int64[1] m = {-1}> { nz = NonZero(x)  y = Reshape(nz, m) }"
    result = inferred(text, shapes={"nz": (1, 4)})
    assert shape(result, "y") == (4,)
    assert not result.values["y"].is_bound
    with pytest.raises(BindingError, match="at most"):
        inferred(text, shapes={"nz": (1, 11)})


COUNTED = """g (float[6] x, float[6, 4] rows) => (float[a, b] y)
    <int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64[1] i = {{1}}, int64[1] m = {{-1}},
     int64[1] six = {{6}}, float[6] given = {{{given}}}> {{
        nz = NonZero({source})
        s = Shape(nz)
        k = Gather(s, one)
        k1 = Gather(s, i)
        flat = Reshape(nz, m)
        y = Gather<axis = 0>(rows, flat)
        half = Div(k, two)
        r = Range(zero, half, one)
        tail = Slice(rows, k1, six)
        head = Slice(rows, i, k1)
    }}"""


def test_a_bound_contains_every_run() -> None:
    """For every number of non-zero elements the true shapes lie between both ends."""
    zeros = ", ".join(["0.0"] * 6)
    bounds = inferred(COUNTED.format(source="x", given=zeros))
    for count in range(7):
        content = ", ".join("1.0" if index < count else "0.0" for index in range(6))
        known = inferred(COUNTED.format(source="given", given=content))
        assert shape(known, "tail") == (6 - count, 4)
        for name in ("nz", "flat", "y", "r", "tail", "head"):
            true, bound = known.values[name], bounds.values[name]
            assert true.shape is not None
            assert bound.shape is not None
            assert not true.is_bound
            assert bound.is_bound
            assert bound.shape_low is not None
            ends = zip(bound.shape_low, true.shape, bound.shape, strict=True)
            assert all(low <= size <= high for low, size, high in ends), (name, count)


# --- control flow -----------------------------------------------------------------------------------------------------

LOOP = """g (float[4, 32] x, float[32, 32] w, int64 n) => (float[4, 32] y) <int64 m = {{{trips}}}, bool go = {{1}}> {{
    y, stacked = Loop({limit}, go, x) <body = b (int64 i, bool c, float[4, 32] v)
       => (bool c2, float[4, 32] v2, float[4, 32] slice) {{
        c2 = Identity(c)
        v2 = MatMul(v, w)
        slice = Identity(v2)
    }}>
}}"""


def loop_text(limit: str, trips: int = 5) -> str:
    return LOOP.format(trips=trips, limit=limit)


def node_name(result: InferredGraph, op_type: str) -> str:
    return next(node.name for node in result.graph.nodes if node.op_type == op_type)


def test_loop_with_a_constant_trip_count() -> None:
    result = inferred(loop_text("m"))
    assert shape(result, "y") == (4, 32)
    assert shape(result, "stacked") == (5, 4, 32)
    name = node_name(result, "Loop")
    assert result.trip_counts[name].count == 5
    assert result.trip_counts[name].source == "constant"
    body = result.bodies[(name, "body")]
    assert shape(body, "v2") == (4, 32)
    assert shape(body, "w") == (32, 32), "bodies see the values around them"


def test_a_trip_count_beyond_the_maximum_is_refused() -> None:
    with pytest.raises(BindingError, match="runs at most 5 times"):
        inferred(loop_text("m"), trip_counts={node_name(inferred(loop_text("m")), "Loop"): 7})


def test_a_declared_size_of_0_is_free_and_not_stale() -> None:
    result = inferred("g (float[0, 256] x) => (float[a, b] y) { y = Relu(x) }")
    assert shape(result, "y") == (1, 256)
    assert not result.warnings


def test_loop_whose_trip_count_is_an_input() -> None:
    unknown = inferred(loop_text("n"))
    name = node_name(unknown, "Loop")
    assert unknown.trip_counts[name].count == 1
    assert any(f"--trip-count {name}=N" in text for text in unknown.assumptions)
    assert shape(unknown, "stacked") == (1, 4, 32)
    told = inferred(loop_text("n"), trip_counts={name: 7})
    assert (told.trip_counts[name].count, told.trip_counts[name].source) == (7, "--trip-count")
    assert shape(told, "stacked") == (7, 4, 32)
    given = inferred(loop_text("n"), values={"n": 3})
    assert shape(given, "stacked") == (3, 4, 32)


def test_a_long_loop_is_not_unrolled() -> None:
    start = time.perf_counter()
    result = inferred(loop_text("m", 2_000_000_000))
    assert shape(result, "stacked") == (2_000_000_000, 4, 32)
    assert time.perf_counter() - start < 1


GROWING = """g (float[2, 3] x) => (float[a, b] y) <int64 m = {{{trips}}}, bool go = {{1}}> {{
    y, sizes = Loop(m, go, x) <body = b (int64 i, bool c, float[p, q] v) => (bool c2, float[p, q] v2, int64[r] s) {{
        c2 = Identity(c)
        v2 = Concat<axis = 0>(v, x)
        s = Shape(v2)
    }}>
}}"""


def test_a_loop_that_grows_is_unrolled() -> None:
    result = inferred(GROWING.format(trips=6))
    assert shape(result, "y") == (14, 3)  # 2 + 6 x 2 rows
    assert not result.values["y"].is_bound
    assert shape(result, "sizes") == (6, 2)
    name = node_name(result, "Loop")
    assert [count for _, count in result.repeats[name]] == [1] * 6
    rows = []
    for key, _ in result.repeats[name]:
        body = result.bodies[(name, key)]
        assert shape(body, body.graph.outputs[2].name) == (2,)
        rows.append(shape(body, body.graph.outputs[1].name))
    assert rows == [(4, 3), (6, 3), (8, 3), (10, 3), (12, 3), (14, 3)], "every trip has its own sizes"


def test_a_loop_that_grows_for_long_is_extrapolated() -> None:
    result = inferred(GROWING.format(trips=1_000_000))
    assert shape(result, "y") == (2_000_002, 3)
    assert result.values["y"].is_bound


def test_loop_ended_by_its_condition() -> None:
    text = """g (float[2] x)
       => (float[a, b] y) <int64 m = {100}, bool go = {1}, int64 zero = {0}, int64 one = {1}, int64 four = {4}> {
        k, y = Loop(m, go, zero) <body = b (int64 i, bool c, int64 v) => (bool c2, int64 v2, float[2] s) {
            v2 = Add(v, one)
            c2 = Less(v2, four)
            s = Identity(x)
        }>
    }"""
    result = inferred(text)
    assert shape(result, "y") == (4, 2)
    assert not result.values["y"].is_bound
    assert result.trip_counts[node_name(result, "Loop")].count == 4


def test_a_while_loop_over_constants_is_counted() -> None:
    # k = 0, 2, 4, ... while k + 2 < 12: six trips
    text = """g (float[3, 8] x) => (float[a, b, c] rows)
       <int64 start = {0}, int64 step = {2}, int64 limit = {12}, bool go = {1}> {
         k, rows = Loop(, go, start) <body = b (int64 i, bool c, int64 n) => (bool more, int64 next, float[p, q] row) {
           next = Add(n, step)
           more = Less(next, limit)
           row = Relu(x)
         }>
    }"""
    result = inferred(text)
    assert shape(result, "rows") == (6, 3, 8)
    assert int(result.values["k"].data) == 12
    assert not result.bodies[(node_name(result, "Loop"), "body")].values["next"].is_constant


def test_loop_that_data_may_end_early() -> None:
    text = """g (float[2] x) => (float[a, b] y) <int64 m = {9}, bool go = {1}> {
        y = Loop(m, go) <body = b (int64 i, bool c) => (bool c2, float[2] s) {
            top = ReduceMax<keepdims = 0>(x)
            c2 = Cast<to = 9>(top)
            s = Identity(x)
        }>
    }"""
    result = inferred(text)
    assert shape(result, "y") == (9, 2)
    assert result.values["y"].is_bound
    assert result.values["y"].shape_low == (1, 2), "the first trip happens for sure"
    assert any("at most 9 times" in text for text in result.assumptions)


def test_if_with_a_known_condition_takes_its_branch_and_says_so_of_the_other() -> None:
    text = """g (float[2, 4] x) => (float[a] y) <int64 two = {2}> {
        s = Shape(x)
        n = Size(s)
        c = Equal(n, two)
        y = If(c) <then_branch = t () => (float[a] p) { p = Transpose(x) },
                   else_branch = e () => (float[a] q) { ax = Constant<value_ints = [0]>()  q = Squeeze(x, ax) }>
    }"""
    result = inferred(text)  # the other branch is invalid for these sizes: it never runs
    assert shape(result, "y") == (4, 2)
    assert not result.values["y"].is_bound
    name = node_name(result, "If")
    assert set(result.bodies) == {(name, "then_branch")}
    assert result.idle == {(name, "else_branch"): "its branch is not taken"}


def test_a_condition_of_bounded_size_refuses_nothing() -> None:
    """EmbeddingBag in a Loop compares offsets[i] with offsets[i + 1]: one element each, which only a run knows."""
    text = """g (int64[1] i, int64[1] j, int64[9] offsets, float[4, 2] x) => (float[a, b] y) {
        o = Slice(offsets, i, j)
        e = Equal(o, o)
        y = If(e) <then_branch = t () => (float[4, 2] p) { p = Relu(x) },
                   else_branch = f () => (float[4, 2] q) { q = Neg(x) }>
    }"""
    assert shape(inferred(text), "y") == (4, 2)


def test_scan_over_two_axes() -> None:
    text = """g (float[3] s0, float[7, 3] x) => (float[3] last) {
        last, ys = Scan<num_scan_inputs = 1, body = b (float[3] s, float[3] xi) => (float[3] s2, float[3, 1] o) {
            s2 = Add(s, xi)
            shape = Constant<value_ints = [3, 1]>()
            o = Reshape(s2, shape)
        }, scan_output_axes = [1]>(s0, x)
    }"""
    result = inferred(text)
    assert shape(result, "last") == (3,)
    assert shape(result, "ys") == (3, 7, 1)
    assert result.trip_counts[node_name(result, "Scan")].count == 7


def test_loops_within_loops_take_bounded_time() -> None:
    """Ten loops, each in the body of the one before, 100 trips each: 10^20 trips in all."""

    def body(depth: int) -> onnx.GraphProto:
        inner = (
            [helper.make_node("Loop", ["m", "go", f"v{depth}"], [f"w{depth}"], body=body(depth + 1))]
            if depth < 10
            else [helper.make_node("Relu", [f"v{depth}"], [f"w{depth}"])]
        )
        keep = helper.make_node("Identity", [f"c{depth}"], [f"d{depth}"])
        tensor, scalar = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL
        return helper.make_graph(
            [*inner, keep],
            f"body{depth}",
            [
                helper.make_tensor_value_info(f"i{depth}", onnx.TensorProto.INT64, []),
                helper.make_tensor_value_info(f"c{depth}", scalar, []),
                helper.make_tensor_value_info(f"v{depth}", tensor, [2]),
            ],
            [
                helper.make_tensor_value_info(f"d{depth}", scalar, []),
                helper.make_tensor_value_info(f"w{depth}", tensor, [2]),
            ],
        )

    graph = helper.make_graph(
        [helper.make_node("Loop", ["m", "go", "x"], ["y"], body=body(1))],
        "outer",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
        [helper.make_tensor("m", onnx.TensorProto.INT64, [], [100]), helper.make_tensor("go", 9, [], [True])],
    )
    start = time.process_time()
    result = infer(read_model_bytes(helper.make_model(graph).SerializeToString()), Bindings())
    assert shape(result, "y") == (2,)
    assert time.process_time() - start < 10


# --- what can't be told, or contradicts -------------------------------------------------------------------------------


def test_an_unknown_operator_names_itself_to_all_that_follows() -> None:
    text = """g (float[2, 8] x, float[8, 4] w) => (float[a, b] y) {
        m = my.custom.MyOp(x)
        r = Relu(m)
        y = MatMul(r, w)
        other = Relu(x)
    }"""
    result = inferred(text)
    name = node_name(result, "MyOp")
    for value in ("m", "r", "y"):
        assert shape(result, value) is None
        assert result.values[value].unknown_because == name
    assert shape(result, "other") == (2, 8)
    told = inferred(text, shapes={"m": (2, 8)})
    assert shape(told, "y") == (2, 4)


def test_an_unknown_operator_has_the_shape_that_the_file_declares() -> None:
    text = """g (float[B, 8] x, float[8, 4] w) => (float[B, 4] y)
       <float[B, 8] m> { m = my.custom.MyOp(x)  y = MatMul(m, w) }"""
    assert shape(inferred(text, dims={"B": 3}), "y") == (3, 4)


def test_stale_value_info_is_named_and_not_believed() -> None:
    text = (
        """g (float[4, 16] x, float[16, 32] w) => (float[4, 32] y) <float[9, 9] a> { a = MatMul(x, w)  y = Relu(a) }"""
    )
    result = inferred(text)
    assert shape(result, "a") == (4, 32)
    (warning,) = [notice for notice in result.warnings if notice.code == "stale-value-info"]
    assert "'a'" in warning.message
    assert "[9, 9]" in warning.message
    assert "[4, 32]" in warning.message
    assert not warning.details


def test_stale_value_infos_are_counted() -> None:
    """One line however many there are; the others are details, which -v says."""
    text = """g (float[4, 16] x, float[16, 32] w) => (float[4, 32] y)
        <float[9, 9] a, float[8, 8] b, float[7, 7] c> { a = MatMul(x, w)  b = Relu(a)  c = Relu(b)  y = Relu(c) }"""
    (warning,) = [notice for notice in inferred(text).warnings if notice.code == "stale-value-info"]
    assert warning.message.startswith("'a' is declared as [9, 9] but its shape is [4, 32], and 2 more are: ")
    assert [detail.split(" is declared")[0] for detail in warning.details] == ["'b'", "'c'"]


PRESENT = """g (float[batch, past, 8] cache, float[batch, new, 8] key, float[batch, total] mask)
    => (float[batch, total, 8] present, float[batch] count) <int64[1] axes = {1}> {
    present = Concat<axis = 1>(cache, key)  count = ReduceSum<keepdims = 0>(mask, axes) }"""


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        pytest.param({}, (), id="all left open"),
        pytest.param({"past": 3, "new": 4}, (), id="the sum left open"),
        pytest.param({"past": 3, "new": 4, "total": 7}, (), id="the sum"),
        pytest.param(
            {"past": 3, "new": 4, "total": 5}, ("'total' is 5", "7 in 'present'", "--dim total=7"), id="another size"
        ),
    ],
)
def test_sizes_that_contradict_each_other_are_named(dims: dict[str, int], said: tuple[str, ...]) -> None:
    """No operator refuses them: the mask is only summed over."""
    found = [notice.message for notice in inferred(PRESENT, dims=dims).warnings if notice.code == "dim-contradiction"]
    assert len(found) == bool(said)
    assert all(text in found[0] for text in said)


FAULTS = {
    "baked-in reshape": (
        "g (float[B, 8] x) => (float[a] y) <int64[2] t = {3, 8}> { y = Reshape(x, t) }",
        {"dims": {"B": 4}},
        ("Reshape", "'x' [4, 8]", "[3, 8]", "baked in"),
    ),
    "matmul": (
        "g (float[B, 8] x, float[9, 4] w) => (float[a] y) { y = MatMul(x, w) }",
        {},
        ("MatMul", "8 is not 9", "x [1, 8]", "w [9, 4]"),
    ),
    "broadcast": (
        "g (float[B, 8] x, float[3, 8] z) => (float[a] y) { y = Add(x, z) }",
        {"dims": {"B": 2}},
        ("Add", "x [2, 8]", "z [3, 8]", "broadcast"),
    ),
    "concat": (
        "g (float[2, 8] x, float[3, 9] z) => (float[a] y) { y = Concat<axis = 0>(x, z) }",
        {},
        ("Concat", "x [2, 8]", "z [3, 9]"),
    ),
    "axis": (
        "g (float[2] x) => (float[a] y) { y = Softmax<axis = 0>(x)  z = ArgMax<axis = 3>(x) }",
        {},
        ("ArgMax", "axis 3"),
    ),
    "window": (
        "g (float[1, 1, 2] x, float[1, 1, 5] w) => (float[a] y) { y = Conv(x, w) }",
        {},
        ("Conv", "window of 5"),
    ),
    "channels": (
        "g (float[1, 3, 9] x, float[8, 4, 3] w) => (float[a] y) { y = Conv(x, w) }",
        {},
        ("Conv", "3 channels"),
    ),
    "too large": (
        "g (float[1] x) => (float[a] y) <int64[3] t = {4000000000, 4000000000, 4000000000}> { y = Expand(x, t) }",
        {},
        ("Expand", "2^60"),
    ),
    "negative size": (
        "g (float[3] x) => (float[a] y) <int64[2] p = {-2, -2}> { y = Pad(x, p) }",
        {},
        ("Pad", "negative"),
    ),
    "index outside": (
        "g (float[3, 2] x) => (int64 y) <int64 i = {5}> { s = Shape(x)  y = Gather(s, i) }",
        {},
        ("Gather", "x"),
    ),
    "positions beyond a table": (
        """g (float[a] x) => (float[a, 2] y) <float[4, 2] table = {0, 0, 0, 0, 0, 0, 0, 0}, int64 zero = {0},
           int64 one = {1}, int64[1] first = {0}> {
             s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)  y = Gather(table, where) }""",
        {"dims": {"a": 5}},
        ("Gather", "indices are 0 to 4, but axis 0 has 4", "table [4, 2]"),
    ),
    "positions beyond a table, too many to carry": (
        """g (float[a] x) => (float[1, a, 2] y) <float[4, 2] table = {0, 0, 0, 0, 0, 0, 0, 0}, int64 zero = {0},
           int64 one = {1}, int64[1] first = {0}> {
             s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)  row = Unsqueeze(where, first)
             narrow = Cast<to = 6>(row)  y = Gather(table, narrow) }""",
        {"dims": {"a": 100_000}},
        ("Gather", "indices are 0 to 99999, but axis 0 has 4"),
    ),
    "positions behind a cache, too many to carry": (
        """g (float[a] x, float[5000, 2] table) => (float[1, a, 2] y) <int64 zero = {0}, int64 one = {1},
           int64 past = {100}, int64[2] row = {1, -1}> {
             s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)  behind = Add(where, past)
             rows = Reshape(behind, row)  y = Gather(table, rows) }""",
        {"dims": {"a": 4950}},
        ("Gather", "indices are 100 to 5049, but axis 0 has 5000"),
    ),
    "positions of several samples, too many to carry": (
        """g (float[b, a] x, float[64, 2] table) => (float[b, a, 2] y) <int64 zero = {0}, int64 one = {1}> {
             s = Shape(x)  n = Gather(s, one)  where = Range(zero, n, one)  rows = Expand(where, s)
             y = Gather(table, rows) }""",
        {"dims": {"a": 65, "b": 64}},
        ("Gather", "indices are 0 to 64, but axis 0 has 64"),
    ),
    "before a table": (
        "g (float[4, 2] x, int64[1] i) => (float[1, 2] y) <int64[1] j = {-5}> { y = Gather(x, j) }",
        {},
        ("Gather", "indices are -5 to -5, but axis 0 has 4"),
    ),
    "what is new for a cache has no dimensions": (
        "g (float[2, 64, 8] past, float new) => (float[a, b, c] y) { y = TensorScatter(past, new) }",
        {},
        ("TensorScatter", "one rank, 2 or more"),
    ),
    "missing input": ("g (float[3] x) => (float[a] y) { y = MatMul(x) }", {}, ("MatMul", "has 1 input, needs 2")),
}


@pytest.mark.parametrize(("text", "bindings", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_contradictions_name_the_node_and_the_shapes(
    text: str, bindings: dict[str, Any], says: tuple[str, ...]
) -> None:
    with pytest.raises(ModelError) as caught:
        inferred(text, **bindings)
    for part in says:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("length", "formula"),
    [
        (4900, "i = Add(where, past)"),
        (5100, "i = Sub(where, past)"),
        (5001, "mirror = Sub(last, where)  i = Add(where, mirror)"),  # no two are the greatest at one place
    ],
    ids=["behind", "before", "of two that vary"],
)
def test_positions_within_a_table_are_taken(length: int, formula: str) -> None:
    text = f"""g (float[a] x, float[5001, 2] table) => (float[a, 2] y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64 past = {{100}}, int64 last = {{5000}}> {{
          s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)  {formula}  y = Gather(table, i) }}"""
    assert inferred(text, dims={"a": length}).values["y"].shape == (length, 2)


def test_other_integers_of_the_shape_of_positions_have_not_their_range() -> None:
    """Equal values are made one object; 5,100 positions and 5,100 zeros (types of tokens) are not equal."""
    text = """g (float[a] x, float[8, 2] table) => (float[a, 2] y) <int64 zero = {0}, int64 one = {1}> {
          s = Shape(x)  n = Gather(s, zero)  where = Range(zero, n, one)
          types = ConstantOfShape<value = int64[1] {0}>(s)  y = Gather(table, types) }"""
    assert inferred(text, dims={"a": 5100}).values["y"].shape == (5100, 2)


def test_another_default_length_is_tried_where_the_first_contradicts_the_model() -> None:
    text = """g (int64[batch, seq] ids, float[9, 4] table, float[1, 77, 4] positions) => (float[a] y)
        <int64[1] zero = {0}, int64[1] one = {1}> {
        words = Gather(table, ids)
        s = Shape(ids)
        n = Gather(s, one)
        places = Slice(positions, zero, n, one)
        y = Add(words, places)
    }"""
    result = inferred(text)
    assert shape(result, "y") == (1, 64, 4)
    assert any("does not fit" in assumption and "[1, 128, 4]" in assumption for assumption in result.assumptions)
    with pytest.raises(ModelError, match="broadcast"):
        inferred(text, dims={"seq": 128})


# --- what is constant, and what is carried ----------------------------------------------------------------------------


def test_constants_stay_constant_and_random_numbers_do_not() -> None:
    text = """g (float[2, 3] x) => (float[a] y) <float[3] w = {1.0, 2.0, 3.0}, int64[2] t = {2, 3}> {
        a = Add(w, w)
        b = Expand(a, t)
        r = RandomNormal<shape = [3]>()
        c = Add(a, r)
        s = Shape(x)
        y = Add(x, b)
    }"""
    values = inferred(text).values
    constant = {name for name in ("a", "b", "r", "c", "s", "y") if values[name].is_constant}
    assert constant == {"a", "b"}


def test_a_huge_constant_is_never_made() -> None:
    text = """g (float[1] x) => (float[a, b] y) <int64[2] t = {30000, 30000}, int64[2] ones = {1, 1}> {
        y = ConstantOfShape(t)
        e = Expand(x, t)
        z = Add(y, e)
        k = Tile(z, ones)
    }"""
    tracemalloc.start()
    result = inferred(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shape(result, "k") == (30000, 30000)
    assert result.values["y"].data is None
    assert peak < 20e6


def _seconds_of_chain(length: int) -> float:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", onnx.TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info(f"v{length}", onnx.TensorProto.FLOAT, [2, 3])],
    )
    model = read_model_bytes(helper.make_model(graph).SerializeToString())
    start = time.process_time()
    result = infer(model, Bindings())
    assert shape(result, f"v{length}") == (2, 3)
    return time.process_time() - start


def test_a_long_chain_takes_linear_time_and_no_recursion() -> None:
    _seconds_of_chain(2_000)
    short = sorted(_seconds_of_chain(2_000) for _ in range(5))[2]
    long = min(_seconds_of_chain(20_000) for _ in range(3))
    assert long < 20 * max(short, 0.01)


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_operator_of_the_installed_onnx_has_a_rule() -> None:
    missing = {
        (schema.domain, schema.name) for schema in defs.get_all_schemas() if (schema.domain, schema.name) not in RULES
    }
    assert not missing, "onnx's own inference stands in for these; write their rules"


def test_a_second_claim_on_an_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="two shape rules"):
        rule("Conv")(lambda ctx: ())


def test_an_operator_without_a_rule_is_inferred_by_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Conv", "Split"):
        monkeypatch.delitem(RULES, ("", name))
    text = """g (float[2, 4, 9] x, float[6, 4, 3] w) => (float[a] y) <int64[2] parts = {2, 4}> {
        y = Conv<strides = [2]>(x, w)
        p, q = Split<axis = 1>(y, parts)
    }"""
    result = inferred(text)
    assert [shape(result, name) for name in ("y", "p", "q")] == [(2, 6, 4), (2, 2, 4), (2, 4, 4)]


# --- recorded truth, where the shared models are ----------------------------------------------------------------------

SHARED = Path(os.environ.get("NEUSIGHT_SHARED", Path(__file__).parent.parent.parent / "shared"))
RECORDED = sorted((SHARED / "models" / "truth").glob("*.json"), key=lambda path: path.stat().st_size)[:100]


@pytest.mark.skipif(not RECORDED, reason="the shared models are not there")
def test_recorded_shapes_of_real_models() -> None:
    """The 100 smallest recordings; benchmarks/frontend.py judges all."""
    faults = []
    for path in RECORDED:
        truth = json.loads(path.read_text())
        shapes = {name: tuple(item["shape"]) for name, item in truth["inputs"].items()}
        values = {
            name: np.array(item["value"], item["dtype"]).reshape(item["shape"])
            for name, item in truth["inputs"].items()
            if item["dtype"].startswith(("int", "bool")) and np.size(item.get("value", range(99))) <= 16
        }
        result = infer(read_model(SHARED / "models" / truth["model"]), Bindings(shapes=shapes, values=values))
        for name, item in truth["values"].items():
            if "shape" not in item:
                continue
            value = result.values.get(name, Value(dtype=None, shape=None))
            expected = tuple(item["shape"])
            fits = value.shape == expected or (
                value.is_bound
                and value.shape is not None
                and all(a >= b for a, b in zip(value.shape, expected, strict=True))
            )
            if not fits:
                faults.append(f"{path.name} {name}: {value.shape} is {expected}")
    assert not faults, "\n".join(faults)
