"""Attention between pairs of quantisation under TensorRT, as TensorRT for RTX 1.7 builds it (fusion_trt.md)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.kernels import KERNEL_CLASSES, Attention
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import get_runtime

HEADS = {"q": (2, 12, 128, 64), "k": (2, 12, 64, 128), "v": (2, 12, 128, 64), "mask": (2, 1, 1, 128)}
SCORES = """
    qd = DequantizeLinear(q, s, z)
    kd = DequantizeLinear(k, s, z)
    vd = DequantizeLinear(v, s, z)
    p = MatMul(qd, kd)
"""
WEIGHTS = """
    wq = QuantizeLinear(w, s, z)
    wd = DequantizeLinear(wq, s, z)
    y = MatMul(wd, vd)
"""
ROUNDED = """
    pq = QuantizeLinear(p, s, z)
    c = DequantizeLinear(pq, s, z)
    w = Softmax<axis=-1>(c)
"""
CASES = {
    "scaled": ("c = Mul(p, eighth)\nw = Softmax<axis=-1>(c)", ["attention"]),
    "scaled and masked": ("c = Mul(p, eighth)\na = Add(c, mask)\nw = Softmax<axis=-1>(a)", ["attention"]),
    "as they are": ("w = Softmax<axis=-1>(p)", ["attention"]),
    "scores that are rounded": (ROUNDED, ["gemm", "softmax", "gemm"]),
}


@pytest.mark.parametrize(
    ("kind", "multiplied"), [(TensorProto.INT8, "float16"), (TensorProto.FLOAT8E4M3FN, "float8e4m3fn")]
)
@pytest.mark.parametrize(("between", "expected"), CASES.values(), ids=CASES)
def test_attention_between_pairs(between: str, expected: list[str], kind: int, multiplied: str) -> None:
    half = TensorProto.FLOAT16
    graph = inferred(
        SCORES + between + WEIGHTS,
        {name: shape for name, shape in HEADS.items() if name != "mask" or "mask" in between},
        weights={"z": ()},
        constants={"s": np.float16(0.02), "eighth": np.float16(0.125)},
        types={**dict.fromkeys("qkvz", kind), "mask": half},
        opset=21,
    )
    runtime = get_runtime("tensorrt")
    works = works_of(fused_graph(graph, runtime), runtime, parsed=graph)
    kernels = [kernel for work in works for kernel in work.kernels]
    assert [KERNEL_CLASSES[type(kernel)] for kernel in kernels] == expected
    assert all(kernel.dtype.label == multiplied for kernel in kernels if isinstance(kernel, Attention))
