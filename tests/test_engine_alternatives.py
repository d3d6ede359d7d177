"""What an engine's builder times: other kernels for the same work, of which the quickest is run."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_graphs import RESNET
from graphs import inferred, split
from neusight_onnx.analysis import analyze
from neusight_onnx.assembly import Placed, quickest
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.alternatives import with_alternatives
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Elementwise, Gemm, Kernel, NodeWork, TensorSpec
from neusight_onnx.predictor import Prediction, predict
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import RUNTIMES

PRODUCT = Gemm(m=128, n=768, k=3072, b_is_weight=True, dtype=DataType.FLOAT32, epilogue=("bias", "gelu", "add"))
RESULT = TensorSpec(dtype=DataType.FLOAT32, shape=(128, 768))
WAYS = {
    "a product and its epilogue in two kernels": (
        "m = MatMul(x, w)\nb = Add(m, v)\ng = Gelu(b)\ny = Add(g, z)",
        [
            (
                replace(PRODUCT, epilogue=()),
                Elementwise(
                    operations=("add", "gelu", "add"),
                    inputs=(RESULT, TensorSpec(dtype=DataType.FLOAT32, shape=(768,)), RESULT),
                    output=RESULT,
                    generated=True,
                ),
            )
        ],
    ),
    "products of one operand one by one": (
        "q = MatMul(x, w)\nk = MatMul(x, u)\ny = Mul(q, k)",
        [(replace(PRODUCT, epilogue=()), replace(PRODUCT, epilogue=()))],
    ),
    "a product without an epilogue is what it is": ("y = MatMul(x, w)", []),
}


@pytest.mark.parametrize(("nodes", "expected"), WAYS.values(), ids=WAYS.keys())
def test_what_an_engine_times(nodes: str, expected: list[tuple[Kernel, ...]]) -> None:
    weights = {"w": (3072, 768), "u": (3072, 768), "v": (768,)}
    used = {name: shape for name, shape in weights.items() if re.search(rf"\b{name}\b", nodes)}
    inputs = {"x": (128, 3072), **({"z": (128, 768)} if "z)" in nodes else {})}
    graph = fused_graph(inferred(nodes, inputs, weights=used, opset=20), RUNTIMES["tensorrt"])
    works = with_alternatives(graph, works_of(graph, RUNTIMES["tensorrt"]), RUNTIMES["tensorrt"])
    assert [way for work in works for way in work.alternatives] == expected
    others = with_alternatives(graph, works, RUNTIMES["compiled"])
    assert others == works


@pytest.mark.parametrize(
    ("runtime", "precision", "marked"),
    [
        pytest.param("tensorrt", "fp32", {"batch": True, "linear": False}, id="its-own-kernels"),
        pytest.param("tensorrt", "fp16", {"batch": False, "linear": False}, id="matrix-units-have-them-anyway"),
        pytest.param("onnxruntime", "fp32", {"batch": False, "linear": False}, id="cublas"),
        pytest.param("eager", "fp32", {"batch": False, "linear": False}, id="cublas-by-pytorch"),
    ],
)
def test_which_products_run_in_an_engines_tiles(
    runtime: str, precision: str, marked: dict[str, bool], tmp_path: Path
) -> None:
    """A batch of products of activations, and a linear layer, in FP32."""
    path = tmp_path / "model.onnx"
    nodes = "batch = MatMul(x, y)\nlinear = MatMul(batch, w)"
    make = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    inputs = [make("x", shape=[64, 9, 128]), make("y", shape=[64, 128, 16])]
    weight = numpy_helper.from_array(np.ones((16, 4), np.float32), "w")
    graph = helper.make_graph(split(nodes), "model", inputs, [make("linear", shape=[64, 9, 4])], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    report = analyze(path, gpu="l4", runtime=runtime, precision=precision)
    products = [kernel for kernel in report.kernels if kernel.kernel_class == "gemm"]
    assert [bool(kernel.dims.get("any_tile")) for kernel in products] == list(marked.values())


def test_the_quickest_way_is_run() -> None:
    """Of 5 us, 2 + 2 us and 3 + 3 us the second; of equal times the first."""

    def of(*times_us: float) -> tuple[Prediction, ...]:
        return tuple(replace(predicted, latency_us=time_us) for time_us in times_us)

    (predicted,) = predict([PRODUCT], load_gpu("t4"))
    apart = (replace(PRODUCT, epilogue=()), replace(PRODUCT, epilogue=()))
    work = NodeWork(node="y", op_type="Gemm", kernels=(PRODUCT,), alternatives=(apart, apart))
    (chosen,) = quickest([Placed(work=work, predictions=of(5.0))], of(2.0, 2.0, 3.0, 3.0))
    assert (chosen.work.kernels, chosen.latency_us) == (apart, 4.0)
    (kept,) = quickest([Placed(work=work, predictions=of(4.0))], of(2.0, 2.0, 3.0, 3.0))
    assert kept.work.kernels == (PRODUCT,)


@pytest.mark.parametrize("gpu", ["p4", "p100", "gtx-1080-ti", "t4", "v100"])
def test_an_engine_is_not_slower_than_operators_one_by_one(gpu: str) -> None:
    bert = RESNET.with_name("bert_base.onnx")
    times = {
        runtime: analyze(bert, gpu=gpu, precision="fp32", runtime=runtime).totals.kernel_ms
        for runtime in ("onnxruntime", "tensorrt")
    }
    assert times["tensorrt"] < times["onnxruntime"]
