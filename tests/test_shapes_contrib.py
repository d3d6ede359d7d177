"""Contrib operators (com.microsoft) against ONNX Runtime's CPU kernels: what runs has the shape that was inferred."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from neusight_onnx.errors import ModelError
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer

pytestmark = pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 31),
    reason=f"the operators are those of ONNX Runtime 1.31; here is {onnxruntime.__version__}, which lacks some",
)

NCHWC = "com.microsoft.nchwc"
F, U8, I8, I32, I64, B = np.float32, np.uint8, np.int8, np.int32, np.int64, np.bool_
Array = np.ndarray[Any, Any]


def f(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(F)


def zeros(dtype: Any, *shape: int) -> Array:
    return np.zeros(shape, dtype)


ONE = np.array(0.5, F)
Z8 = np.array(3, U8)


@dataclass(frozen=True)
class Case:
    """A node with its inputs (None: absent) and how many outputs it has (None among ``outputs``: left out)."""

    op: str
    inputs: tuple[Array | None, ...]
    outputs: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = "com.microsoft"
    absent: tuple[int, ...] = ()


CASES = {
    "gelu": Case("Gelu", (f(2, 3, 8),)),
    "quick gelu": Case("QuickGelu", (f(2, 3, 8),)),
    "fast gelu with bias": Case("FastGelu", (f(2, 3, 8), f(8))),
    "bias gelu": Case("BiasGelu", (f(2, 3, 8), f(8))),
    "fused matmul, both transposed": Case(
        "FusedMatMul", (f(2, 5, 3), f(2, 4, 5)), attributes={"transA": 1, "transB": 1}
    ),
    "fused matmul, batch moved": Case("FusedMatMul", (f(4, 2, 5), f(2, 5, 3)), attributes={"transBatchA": 1}),
    "fused gemm": Case("FusedGemm", (f(3, 4), f(5, 4), f(5)), attributes={"transB": 1, "activation": "Relu"}),
    "fused conv": Case(
        "FusedConv",
        (f(1, 4, 9, 9), f(6, 2, 3, 3), f(6)),
        attributes={"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1], "activation": "Relu"},
    ),
    "nhwc max pool": Case(
        "NhwcMaxPool", (zeros(U8, 1, 9, 7, 4),), attributes={"kernel_shape": [3, 3], "strides": [2, 2]}
    ),
    # 16 channels are whole blocks of any vector width
    "blocked conv": Case(
        "Conv",
        (f(1, 16, 9, 7), f(32, 16, 3, 3), f(32), f(1, 32, 5, 3)),
        attributes={"strides": [2, 2], "pads": [1, 1, 1, 0], "activation": "Relu"},
        domain=NCHWC,
    ),
    "blocked conv of an image": Case(
        "Conv", (f(1, 3, 9, 7), f(16, 3, 3, 3)), attributes={"auto_pad": "SAME_UPPER"}, domain=NCHWC
    ),
    "blocked conv, depthwise": Case(
        "Conv", (f(2, 16, 9, 7), f(16, 1, 3, 3)), attributes={"group": 16, "dilations": [2, 2]}, domain=NCHWC
    ),
    "blocked max pool": Case(
        "MaxPool",
        (f(1, 16, 8, 7),),
        attributes={"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        domain=NCHWC,
    ),
    "blocked average pool": Case(
        "AveragePool", (f(1, 16, 8, 7),), attributes={"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, domain=NCHWC
    ),
    "blocked global average pool": Case("GlobalAveragePool", (f(2, 16, 8, 7),), domain=NCHWC),
    "blocked global max pool": Case("GlobalMaxPool", (f(2, 16, 8, 7),), domain=NCHWC),
    "blocked upsample": Case("Upsample", (f(1, 16, 4, 5),), attributes={"scales": [1, 1, 2, 3]}, domain=NCHWC),
    # 12 channels are padded to 16 both in blocks of 8 and of 16
    "into blocks": Case("ReorderInput", (f(2, 12, 4, 5),), domain=NCHWC),
    "into blocks, channels last": Case(
        "ReorderInput", (f(2, 4, 5, 12),), attributes={"channels_last": 1}, domain=NCHWC
    ),
    "out of blocks": Case("ReorderOutput", (f(2, 16, 4, 5),), attributes={"channels": 12}, domain=NCHWC),
    "out of blocks, channels last": Case(
        "ReorderOutput", (f(2, 16, 4, 5),), attributes={"channels": 12, "channels_last": 1}, domain=NCHWC
    ),
    "tokens": Case(
        "Tokenizer",
        (np.array([["a b", "c"], ["d e f", ""]]),),
        attributes={"mark": 0, "mincharnum": 1, "pad_value": "#", "separators": [" "]},
    ),
    "attention": Case("Attention", (f(2, 6, 16), f(16, 48), f(48)), attributes={"num_heads": 4}),
    "attention with past": Case(
        "Attention",
        (f(2, 6, 16), f(16, 48), f(48), None, f(2, 2, 4, 5, 4)),
        2,
        {"num_heads": 4, "unidirectional": 1},
    ),
    "attention, other value width": Case(
        "Attention",
        (f(2, 6, 16), f(16, 16 + 16 + 24), f(56)),
        attributes={"num_heads": 4, "qkv_hidden_sizes": [16, 16, 24]},
    ),
    "multi-head attention": Case(
        "MultiHeadAttention", (f(2, 6, 16), f(2, 9, 16), f(2, 9, 24)), attributes={"num_heads": 4}
    ),
    "multi-head attention, cache": Case(
        "MultiHeadAttention",
        (f(2, 1, 16), f(2, 1, 16), f(2, 1, 16), None, None, None, f(2, 4, 7, 4), f(2, 4, 7, 4)),
        3,
        {"num_heads": 4},
    ),
    "multi-head attention, cross with heads split": Case(
        "MultiHeadAttention", (f(2, 6, 16), f(2, 4, 9, 4), f(2, 4, 9, 4)), attributes={"num_heads": 4}
    ),
    "group query attention": Case(
        "GroupQueryAttention",
        (
            *(f(1, 3, 32), f(1, 3, 16), f(1, 3, 16), f(1, 2, 5, 8), f(1, 2, 5, 8)),
            *(np.array([7], I32), np.array(8, I32)),
        ),
        3,
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "group query attention, buffer longer than the total": Case(
        "GroupQueryAttention",
        (
            *(f(1, 1, 32), f(1, 1, 16), f(1, 1, 16), f(1, 2, 12, 8), f(1, 2, 12, 8)),
            *(np.array([7], I32), np.array(8, I32)),
        ),
        3,
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "group query attention, packed": Case(
        "GroupQueryAttention",
        (f(1, 3, 64), None, None, None, None, np.array([2], I32), np.array(3, I32)),
        3,
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "rotary embedding": Case(
        "RotaryEmbedding", (f(2, 4, 3, 8), np.arange(6).reshape(2, 3).astype(I64) % 3, f(10, 4), f(10, 4))
    ),
    "skip layer norm": Case("SkipLayerNormalization", (f(2, 3, 8), f(2, 3, 8), f(8), f(8)), 4, absent=(1, 2)),
    "skip rms norm": Case("SkipSimplifiedLayerNormalization", (f(2, 3, 8), f(2, 3, 8), f(8)), 4, absent=(1, 2)),
    "rms norm": Case("SimplifiedLayerNormalization", (f(2, 3, 8), f(8)), domain=""),
    "embed layer norm": Case(
        "EmbedLayerNormalization",
        (zeros(I32, 2, 5), zeros(I32, 2, 5), f(30, 8), f(20, 8), f(2, 8), f(8), f(8), np.ones((2, 5), I32)),
        3,
    ),
    "embed layer norm without segments": Case(
        "EmbedLayerNormalization", (zeros(I32, 2, 5), None, f(30, 8), f(20, 8), None, f(8), f(8)), 2
    ),
    "matmul with 4-bit weights": Case(
        "MatMulNBits",
        (f(2, 3, 64), zeros(U8, 10, 2, 16), f(20)),
        attributes={"K": 64, "N": 10, "bits": 4, "block_size": 32},
    ),
    "matmul with 8-bit weights": Case(
        "MatMulNBits",
        (f(3, 64), zeros(U8, 10, 2, 32), f(20)),
        attributes={"K": 64, "N": 10, "bits": 8, "block_size": 32},
    ),
    "matmul with nf4 weights": Case(
        "MatMulBnb4",
        (f(2, 64), zeros(U8, 64 * 10 // 2), f(20)),
        attributes={"K": 64, "N": 10, "block_size": 32, "quant_type": 1},
    ),
    "dynamic quantize matmul": Case("DynamicQuantizeMatMul", (f(2, 3, 8), zeros(U8, 8, 5), ONE, Z8)),
    "matmul integer to float": Case("MatMulIntegerToFloat", (zeros(U8, 2, 3, 8), zeros(U8, 8, 5), ONE, ONE, Z8, Z8)),
    "matmul integer": Case("MatMulInteger", (zeros(U8, 2, 3, 8), zeros(U8, 8, 5), Z8, Z8), domain=""),
    "quantised add": Case("QLinearAdd", (zeros(U8, 2, 1, 8), ONE, Z8, zeros(U8, 3, 8), ONE, Z8, ONE, Z8)),
    "quantised mul": Case("QLinearMul", (zeros(U8, 2, 3, 8), ONE, Z8, zeros(U8, 8), ONE, Z8, ONE, Z8)),
    "quantised sigmoid": Case("QLinearSigmoid", (zeros(U8, 2, 3), ONE, Z8, ONE, Z8)),
    "quantised leaky relu": Case("QLinearLeakyRelu", (zeros(U8, 2, 3), ONE, Z8, ONE, Z8)),
    "quantised softmax": Case(
        "QLinearSoftmax", (zeros(U8, 2, 3), ONE, Z8, ONE, Z8), attributes={"axis": -1, "opset": 13}
    ),
    "quantised concat": Case(
        "QLinearConcat",
        (ONE, Z8, zeros(U8, 2, 3), ONE, Z8, zeros(U8, 2, 4), ONE, Z8),
        attributes={"axis": 1},
    ),
    "quantised average pool": Case(
        "QLinearAveragePool",
        (zeros(U8, 1, 3, 8, 8), ONE, Z8, ONE, Z8),
        attributes={"kernel_shape": [3, 3], "strides": [2, 2]},
    ),
    "quantised average pool, channels last": Case(
        "QLinearAveragePool",
        (zeros(U8, 1, 8, 8, 3), ONE, Z8, ONE, Z8),
        attributes={"kernel_shape": [3, 3], "channels_last": 1},
    ),
    "quantised global pool": Case("QLinearGlobalAveragePool", (zeros(U8, 1, 3, 8, 8), ONE, Z8, ONE, Z8)),
    "quantised where": Case(
        "QLinearWhere",
        (zeros(B, 2, 1), zeros(U8, 1, 4), ONE, Z8, zeros(U8, 2, 4), ONE, Z8, ONE, Z8),
    ),
    "quantised gemm": Case(
        "QGemm", (zeros(U8, 3, 4), ONE, Z8, zeros(U8, 5, 4), ONE, Z8, None, ONE, Z8), attributes={"transB": 1}
    ),
    "quantised gemm to float": Case("QGemm", (zeros(U8, 3, 4), ONE, Z8, zeros(U8, 4, 5), ONE, Z8)),
    "quantised conv, channels last": Case(
        "QLinearConv",
        (zeros(U8, 1, 8, 8, 4), ONE, Z8, zeros(U8, 6, 4, 3, 3), ONE, Z8, ONE, Z8),
        attributes={"channels_last": 1, "pads": [1, 1, 1, 1]},
    ),
    "quantised attention": Case(
        "QAttention",
        (zeros(U8, 2, 6, 16), zeros(U8, 16, 48), f(48), ONE, ONE, None, Z8, Z8),
        attributes={"num_heads": 4},
    ),
    "dynamic quantize lstm": Case(
        "DynamicQuantizeLSTM",
        (
            *(f(5, 2, 3), zeros(U8, 2, 3, 16), zeros(U8, 2, 4, 16), None, None, None, None, None),
            *(zeros(F, 2) + 0.1, zeros(U8, 2), zeros(F, 2) + 0.1, zeros(U8, 2)),
        ),
        3,
        {"hidden_size": 4, "direction": "bidirectional"},
    ),
    "quantize": Case("QuantizeLinear", (f(2, 3), ONE, Z8)),
    "dequantize": Case("DequantizeLinear", (zeros(I8, 2, 3), ONE, np.array(0, I8))),
    "trilu": Case("Trilu", (f(2, 3, 4),)),
    "grid sample": Case("GridSample", (f(1, 2, 5, 5), f(1, 3, 4, 2))),
    "gather nd": Case("GatherND", (f(4, 5, 6), zeros(I64, 3, 2))),
    "expand dims": Case("ExpandDims", (f(2, 3), np.array(-1, I32))),
    "range": Case("Range", (np.array(2, I64), np.array(11, I64), np.array(4, I64))),
    "pad": Case("Pad", (f(2, 3), np.array([0, 1, 2, 3], I64))),
    "unique": Case("Unique", (np.array([2, 1, 2, 2], F),), 3),
    "inverse": Case("Inverse", (np.eye(3, dtype=F)[None],)),
    "n-gram block": Case("NGramRepeatBlock", (zeros(I64, 2, 6), f(2, 30)), attributes={"ngram_size": 3}),
    "murmur hash": Case("MurmurHash3", (zeros(I32, 2, 3),)),
    "crop and resize": Case("CropAndResize", (f(1, 2, 8, 8), f(3, 4), zeros(I32, 3), np.array([4, 5], I32))),
    "distances": Case("CDist", (f(3, 4), f(5, 4)), attributes={"metric": "euclidean"}),
    "mixture of experts": Case(
        "MoE", (f(6, 8), f(6, 2), f(2, 16, 8), None, f(2, 8, 16)), attributes={"k": 1, "activation_type": "relu"}
    ),
    "gather of 4-bit rows": Case(
        "GatherBlockQuantized",
        (zeros(U8, 10, 16), zeros(I64, 2, 3), f(10, 2)),
        attributes={"block_size": 16, "bits": 4, "gather_axis": 0, "quantize_axis": 1},
    ),
    "causal conv": Case("CausalConvWithState", (f(2, 4, 9), f(4, 1, 3), f(4), f(2, 4, 2)), 2),
    "linear attention": Case(
        "LinearAttention",
        (f(1, 3, 8), f(1, 3, 8), f(1, 3, 12)),
        2,
        {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"},
    ),
    "gated delta net": Case(
        "GatedDeltaNet",
        (f(6, 2, 8), f(6, 2, 8), f(6, 4, 12), None, f(6, 4), f(6, 4), f(2, 4, 12, 8)),
        2,
    ),
    "packed gated delta net": Case("GatedDeltaNet", (f(6, 80), *[None] * 3, f(6, 4), f(6, 4), f(2, 4, 12, 8)), 2),
    "gated delta net of samples": Case(
        "GatedDeltaNet",
        (f(2, 3, 2, 8), f(2, 3, 2, 8), f(2, 3, 4, 12), None, f(2, 3, 4), f(2, 3, 4), f(2, 4, 12, 8)),
        2,
    ),
    "decoder masked attention": Case(
        "DecoderMaskedMultiHeadAttention",
        (
            *(f(1, 1, 16), f(1, 1, 16), f(1, 1, 16), None, None, f(1, 4, 7, 4), f(1, 4, 7, 4), np.array([3], I32)),
            *(np.array([1], I32), None),
        ),
        3,
        {"num_heads": 4, "past_present_share_buffer": 1},
    ),
    "dynamic time warping": Case("DynamicTimeWarping", (f(1, 4, 5),)),
}


def _model(case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
    names = ["" if array is None else f"x{index}" for index, array in enumerate(case.inputs)]
    feeds = {name: array for name, array in zip(names, case.inputs, strict=True) if array is not None}
    outputs = ["" if index in case.absent else f"y{index}" for index in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, "node", domain=case.domain, **case.attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_value_info(name, onnx.TypeProto()) for name in outputs if name]
    graph = helper.make_graph([node], "g", inputs, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid(NCHWC, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_like_the_runtime(case: Case) -> None:
    model, feeds = _model(case)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    content = {name: array for name, array in feeds.items() if array.dtype.kind in "iu" and array.size <= 16}
    result = infer(read_model_bytes(model.SerializeToString()), Bindings(values=content))
    for output, array in zip(session.get_outputs(), expected, strict=True):
        value = result.values[output.name]
        assert value.shape is not None, output.name
        assert value.dtype is not None
        assert value.dtype.label.replace("string", "object") == str(array.dtype), output.name
        if value.is_bound:
            assert all(a >= b for a, b in zip(value.shape, array.shape, strict=True)), (value.shape, array.shape)
        else:
            assert value.shape == array.shape, output.name


def _narrow(
    b: tuple[int, ...] = (10, 2, 16), scales: tuple[int, ...] = (20,), zeros_: Array | None = None, **changed: int
) -> Case:
    attributes = {"K": 64, "N": 10, "bits": 4, "block_size": 32, **changed}
    return Case("MatMulNBits", (f(3, 64), zeros(U8, *b), f(*scales), zeros_), attributes=attributes)


def _mixture(k: int) -> Case:
    operands = (f(3, 16), f(3, 8), f(8, 32, 16), None, f(8, 16, 32))
    return Case("MoE", operands, attributes={"k": k, "activation_type": "relu"})


def _experts(fc1_rows: int, bits: int = 4, **attributes: Any) -> Case:
    """QMoE of 8 experts, 16 -> fc1_rows, 32 -> 16."""
    operands = (f(3, 16), f(3, 8), zeros(U8, 8, fc1_rows, 2 * bits), f(8, fc1_rows), None)
    operands += (zeros(U8, 8, 16, 4 * bits), f(8, 16))
    return Case("QMoE", operands, attributes={"k": 2, "expert_weight_bits": bits, **attributes})


MALFORMED = {
    "experts with an activation that isn't": (
        _experts(32, activation_type="foo"),
        "its activation_type is 'foo', none of",
    ),
    "an activation in capitals": (_experts(32, activation_type="RELU"), "its activation_type is 'RELU', none of"),
    "a gate without a gated activation": (
        _experts(64),
        "fc1 has 1 times the weights of its fc2, not 8,192 .* to 4,096",
    ),
    "a gated activation without a gate": (
        _experts(32, activation_type="swiglu", swiglu_fusion=1),
        "fc1 has 2 times the weights of its fc2",
    ),
    "experts of 5 bits": (_experts(32, bits=5), "its weights have 5 bits, not 2, 3, 4, 8"),
    "5 bits": (_narrow((10, 2, 20), bits=5), "its bits are 5"),
    "3 bits": (_narrow((10, 2, 12), bits=3), "its bits are 3"),
    "a block of 7": (_narrow((10, 10, 4), (100,), block_size=7), "its block_size is 7"),
    "a block of 48": (_narrow((10, 2, 24), block_size=48), "its block_size is 48"),
    "half the weights": (_narrow((10, 2, 8)), r"\[10, 2, 8\] is not \[10, 2, 16\]"),
    "weights of two dimensions": (_narrow((10, 32)), r"\[10, 32\] is not \[10, 2, 16\]"),
    "a scale short": (_narrow(scales=(19,)), r"\[19\] is not \[20\] or \[10, 2\]"),
    "scales across": (_narrow(scales=(2, 10)), r"\[2, 10\] is not \[20\] or \[10, 2\]"),
    "zero points unpacked": (_narrow(zeros_=zeros(U8, 20)), r"\[20\] is not \[10\] or \[10, 1\]"),
    "nine of eight experts": (_mixture(9), "its k is 9, not 1 to its 8 experts"),
    "no expert": (_mixture(0), "its k is 0"),
}


@pytest.mark.parametrize(("case", "said"), MALFORMED.values(), ids=MALFORMED.keys())
def test_what_the_runtime_refuses_is_refused(case: Case, said: str) -> None:
    model, feeds = _model(case)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"]).run(None, feeds)
    with pytest.raises(ModelError, match=said) as caught:
        infer(read_model_bytes(model.SerializeToString()), Bindings())
    assert f"{case.op} node" in str(caught.value)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_experts_of_few_bits(bits: int) -> None:
    test_like_the_runtime(_experts(32, bits))
    test_like_the_runtime(_experts(64, bits, activation_type="swiglu", swiglu_fusion=1))


@pytest.mark.parametrize("zero_points", [zeros(U8, 10), zeros(U8, 10, 1), f(20), f(10, 2)], ids=lambda z: str(z.shape))
def test_zero_points_are_packed_or_of_the_scales_type(zero_points: Array) -> None:
    test_like_the_runtime(_narrow(zeros_=zero_points))
