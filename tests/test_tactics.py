"""What an engine's builder keeps in 16 bits: the choice by time, what lies between layers, what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product as combinations
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import Conv, Elementwise, Gemm, Pooling
from neusight_onnx.precision import FORMATS
from neusight_onnx.predictor import predict
from neusight_onnx.preparation import PreparedModel, infer_shapes, prepare
from neusight_onnx.tactics import Layer, Tactics, _Costs, _fastest, choose

EXAMPLES = Path(__file__).parents[1] / "examples"


def prepared(model: str, precision: str, runtime: str = "tensorrt", **dims: int) -> PreparedModel:
    shaped = infer_shapes(read_model(EXAMPLES / f"{model}.onnx"), Bindings(dims=dims))
    return prepare(shaped, precision=FORMATS[precision], runtime=runtime)


@st.composite
def trees(draw: st.DrawFn) -> list[_Costs]:
    """Up to six layers, each reading from one before it or from none."""
    us = st.integers(0, 9).map(float)
    return [
        _Costs(
            us=(draw(us), draw(us), draw(us | st.just(inf))),
            convert_us=(draw(us), draw(us)),
            source=draw(st.none() | st.integers(0, at - 1)) if at else None,
        )
        for at in range(draw(st.integers(1, 6)))
    ]


def total(costs: list[_Costs], forms: Sequence[int]) -> float:
    """What layers take in forms 0 (16 bits), 1 (narrow) and 2 (reads the narrow format, writes 16 bits)."""
    taken = 0.0
    for cost, own in zip(costs, forms, strict=True):
        taken += cost.us[own]
        if cost.source is not None and (own > 0) != (forms[cost.source] == 1):
            taken += cost.convert_us[own > 0]
    return taken


@settings(deadline=None)
@given(trees())
def test_no_other_choice_takes_less(costs: list[_Costs]) -> None:
    least = min(total(costs, forms) for forms in combinations(range(3), repeat=len(costs)))
    assert total(costs, _fastest(costs)) == least


def test_layers_behind_convolutions_pay_for_what_converts() -> None:
    tactics = prepared("resnet50", "int8", batch=1).tactics
    assert tactics is not None
    kinds = [type(layer.narrow[0][-1]) for layer in tactics.layers]
    assert (kinds.count(Conv), kinds.count(Pooling), kinds.count(Gemm)) == (53, 2, 1)
    assert tactics.layers[0].source is None
    assert {layer.source for layer in tactics.layers[1:]} >= {0, 1}
    # the stem's 64 channels of 112 x 112, read by the pool behind it
    pool = tactics.layers[1]
    assert isinstance(pool.narrows, Elementwise)
    assert isinstance(pool.widens, Elementwise)
    elements = 64 * 112 * 112
    assert (pool.source, pool.narrows.operations, pool.widens.operations) == (0, ("quantize",), ("dequantize",))
    assert (pool.narrows.read_bytes, pool.narrows.write_bytes) == (2 * elements, elements)
    assert (pool.widens.read_bytes, pool.widens.write_bytes) == (elements, 2 * elements)


def test_a_convolution_in_int8_writes_16_bits_for_a_layer_that_stays_there() -> None:
    """The second 3x3 layer as if it was far slower in int8: the one before it writes what it reads, the one behind it
    reads what is quantised by a kernel, as no layer in 16 bits writes int8."""
    found = prepared("resnet50", "int8", batch=8)
    assert found.tactics is not None
    layers = list(found.tactics.layers)
    names = [found.work[layer.at].node for layer in layers]
    at = names.index("stage1.1.spatial.relu")
    layers[at] = replace(layers[at], narrow=tuple(9 * way for way in layers[at].narrow), between=())
    chosen = choose(replace(found.tactics, layers=tuple(layers)), found.work, load_gpu("l40s"))
    before, slow, behind = (chosen.works[layers[place].at].kernels for place in (at - 1, at, at + 1))
    assert [(kernel.dtype, kernel.output_dtype) for kernel in before if isinstance(kernel, Conv)] == [
        (DataType.INT8, DataType.FLOAT16)
    ]
    assert [type(kernel) for kernel in slow] == [Conv]
    assert (slow, *layers[at].wide[1:]) == layers[at].wide
    assert [type(kernel) for kernel in behind] == [Elementwise, Conv]
    # 8 images of 64 channels of 56 x 56, in int8 read and in 16 bits written
    assert before[-1].write_bytes == 2 * 8 * 64 * 56 * 56
    assert chosen.wide_count == 1


def test_a_product_hands_on_16_bits() -> None:
    tactics = prepared("bert_base", "int8", batch=1, sequence=128).tactics
    assert tactics is not None
    behind = [layer for layer in tactics.layers if layer.source is not None]
    # of twelve blocks the second product of the feed-forward layer reads the first one's result, the rest norms'
    assert len(behind) == 12
    assert all(layer.narrows is not None and layer.widens is None for layer in behind)


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("runtime", ["tensorrt", "onnxruntime"])
def test_no_choice_without_a_narrow_format(precision: str, runtime: str) -> None:
    found = prepared("bert_base", precision, runtime, batch=1, sequence=128)
    assert found.tactics is None
    assert prepared("bert_base", "int8", "onnxruntime", batch=1, sequence=128).tactics is None


def test_choices_are_those_of_the_predicted_times() -> None:
    gpu = load_gpu("a100")
    slow = Gemm(m=8, n=64, k=64, dtype=DataType.FLOAT16, b_is_weight=True)
    fast = Gemm(m=4096, n=8192, k=8192, dtype=DataType.FLOAT16, b_is_weight=True)
    layers = tuple(
        Layer(
            at=at,
            wide=((kernel,),),
            narrow=((Gemm(m=kernel.m, n=kernel.n, k=kernel.k, dtype=DataType.INT8, b_is_weight=True),),),
            weight=f"w{at}",
        )
        for at, kernel in enumerate((slow, fast))
    )
    works = tuple(work for work in prepared("bert_base", "int8", batch=1, sequence=128).work if work.kernels)[:2]
    chosen = choose(Tactics(layers=layers, format_label="int8", wide_label="float16"), works, gpu)
    for layer, work in zip(layers, chosen.works, strict=True):
        narrow, wide = (predict(way, gpu)[0].latency_us for (way,) in (layer.narrow, layer.wide))
        assert (work.kernels,) == (layer.narrow if narrow < wide else layer.wide)
    assert (chosen.works[1].kernels,) == layers[1].narrow
    assert (chosen.count, chosen.wide_count) == (2, 1)
    assert chosen.wide_weight_bytes == 64 * 64


@pytest.mark.parametrize(("gpu", "precision"), [("a100", "int8"), ("t4", "int8"), ("h100", "fp8")])
@pytest.mark.parametrize("batch", [1, 16])
def test_a_format_that_is_asked_for_slows_nothing_down(gpu: str, precision: str, batch: int) -> None:
    def run(name: str) -> float:
        dims = {"batch": batch, "sequence": 128}
        report = analyze(
            EXAMPLES / "bert_base.onnx", gpu=gpu, dims=dims, precision=name, runtime="tensorrt", cuda_graph=True
        )
        return report.totals.kernel_ms

    # fp8 runs beside bfloat16, whose vector kernels take as long as float16's
    assert run(precision) <= run("fp16") * (1 + 1e-6)


@pytest.mark.parametrize("batch", [1, 64])
def test_weights_of_4_bits_are_the_files_whatever_the_rows(batch: int) -> None:
    def weights(precision: str) -> int:
        dims = {"batch": batch, "sequence": 128}
        report = analyze(EXAMPLES / "bert_base.onnx", gpu="h100", dims=dims, precision=precision, runtime="tensorrt")
        return report.totals.memory.weight_bytes

    # 12 layers of 12 x 768 x 768, and the pooler, take half a byte a weight in place of two
    linear = 12 * 12 * 768 * 768 + 768 * 768
    assert weights("fp16") - weights("int4w") == pytest.approx(1.5 * linear, rel=0.001)


def test_reports_say_how_many_layers_stayed() -> None:
    model = EXAMPLES / "bert_base.onnx"
    # products of 32 rows, whose reductions INT8's kernels don't split, on an H200; of 128 on an A100
    few, more = {"batch": 8, "sequence": 4}, {"batch": 1, "sequence": 128}
    wide = analyze(model, gpu="h200", dims=few, precision="fp16", runtime="tensorrt")
    kept = analyze(model, gpu="h200", dims=few, precision="int8", runtime="tensorrt")
    mixed = analyze(model, gpu="a100", dims=more, precision="int8", runtime="tensorrt")
    assert any(text.startswith("all 49 convolutions and linear layers") for text in kept.assumptions)
    assert not any(text.startswith("int8: ") for text in kept.assumptions)
    # weights of layers that stay take two bytes
    assert kept.totals.memory.weight_bytes == wide.totals.memory.weight_bytes
    assert mixed.totals.memory.weight_bytes < wide.totals.memory.weight_bytes
    counts = {row.dtype for row in mixed.kernels if row.kernel_class == "gemm"}
    assert counts == {"int8", "float16"}
    assert any(" of 49 convolutions and linear layers" in text for text in mixed.assumptions)
    assert any(text.startswith("int8: ") for text in mixed.assumptions)
