"""Recurrent layers and attention."""

from __future__ import annotations

from onnx import TensorProto

from lowering_cases.case import F16, INT32, INT64, Case, ew, moved
from neusight_onnx.kernels import Attention, Gemm, Recurrent, Reduction, Softmax

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
        name="cuDNN writes both directions beside each other: what joins them moves nothing",
        nodes='g = GRU<hidden_size=8, direction="bidirectional">(x, w, r)\nt = Transpose<perm=[0,2,1,3]>(g)\n'
        "j = Reshape(t, rows)\ny = Relu(j)",
        inputs={"x": (5, 2, 4)},
        weights={"w": (2, 24, 4), "r": (2, 24, 8)},
        constants={"rows": [0, 0, -1]},
        expected=[ew("relu", read=4 * 5 * 2 * 16, written=4 * 5 * 2 * 16)],
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
