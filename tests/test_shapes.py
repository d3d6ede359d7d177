"""Shape inference on small models written out as text; expected shapes are worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from neusight_onnx.errors import ModelError
from shape_texts import inferred, shape


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
