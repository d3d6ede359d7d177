"""What an engine's builder keeps in 16 bits: the choice by time, what lies between layers, what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product as combinations
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphs import split, value_info
from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import Conv, Elementwise, Gemm, Movement, Pooling, TensorSpec
from neusight_onnx.precision import FORMATS
from neusight_onnx.predictor import predict
from neusight_onnx.preparation import PreparedModel, infer_shapes, prepare
from neusight_onnx.report.model import Report
from neusight_onnx.tactics import FORMS, NARROW, WIDE, Form, Layer, Tactics, choose
from neusight_onnx.tactics.choice import _Costs, _fastest

EXAMPLES = Path(__file__).parents[1] / "examples"


def prepared(model: str, precision: str, runtime: str = "tensorrt", **dims: int) -> PreparedModel:
    shaped = infer_shapes(read_model(EXAMPLES / f"{model}.onnx"), Bindings(dims=dims))
    return prepare(shaped, precision=FORMATS[precision], runtime=runtime)


@st.composite
def trees(draw: st.DrawFn) -> list[_Costs]:
    """Up to six layers of one form or more, each reading from one before it or from none."""
    us = st.integers(0, 9).map(float)
    return [
        _Costs(
            us={form: draw(us) for form in draw(st.sets(st.sampled_from(FORMS), min_size=1).map(sorted_forms))},
            convert_us=draw(st.dictionaries(st.tuples(BITS, BITS), us)),
            source=draw(st.none() | st.integers(0, at - 1)) if at else None,
        )
        for at in range(draw(st.integers(1, 6)))
    ]


BITS = st.sampled_from((8, 16, 32))


def sorted_forms(forms: set[Form]) -> list[Form]:
    return sorted(forms, key=FORMS.index)


def total(costs: list[_Costs], forms: Sequence[Form]) -> float:
    """What layers take in ``forms``."""
    taken = 0.0
    for cost, own in zip(costs, forms, strict=True):
        taken += cost.us[own]
        if cost.source is not None:
            taken += cost.convert_us.get((forms[cost.source].writes, own.reads), 0.0)
    return taken


@settings(deadline=None)
@given(trees())
def test_no_other_choice_takes_less(costs: list[_Costs]) -> None:
    least = min(total(costs, forms) for forms in combinations(*(cost.us for cost in costs)))
    assert total(costs, _fastest(costs)) == least


def test_layers_behind_convolutions_pay_for_what_converts() -> None:
    tactics = prepared("resnet50", "int8", batch=1).tactics
    assert tactics is not None
    enters, *layers, leaves = tactics.layers  # the first and the last convert the model's input and output
    kinds = [type(layer.ways[WIDE][0][-1]) for layer in layers]
    assert (kinds.count(Conv), kinds.count(Pooling), kinds.count(Gemm)) == (53, 2, 1)
    assert all(layer.is_narrowable for layer in layers)
    assert (enters.source, layers[0].source, leaves.source) == (None, 0, len(layers))
    assert {layer.source for layer in layers[1:]} >= {1, 2}
    # the stem's 64 channels of 112 x 112, read by the pool behind it
    pool = layers[1]
    narrows, widens = pool.conversions[16, 8], pool.conversions[8, 16]
    assert isinstance(narrows, Elementwise)
    assert isinstance(widens, Elementwise)
    elements = 64 * 112 * 112
    assert (pool.source, narrows.operations, widens.operations) == (1, ("quantize",), ("dequantize",))
    assert (narrows.read_bytes, narrows.write_bytes) == (2 * elements, elements)
    assert (widens.read_bytes, widens.write_bytes) == (elements, 2 * elements)


def test_inputs_and_outputs_keep_their_types_beside_int8() -> None:
    """The flag allows the builder's layers a type; what the caller hands in and gets stays float32. One kernel reads
    that and writes int8."""
    reports = [
        analyze(EXAMPLES / "resnet50.onnx", gpu="t4", batch=8, runtime="tensorrt", precision=precision, include_io=True)
        for precision in ("fp16", "int8")
    ]
    copied = [
        [(kernel.nodes, kernel.read_bytes) for kernel in report.kernels if kernel.op_types == ("Copy",)]
        for report in reports
    ]
    assert copied[0] == copied[1] == [(("(inputs)",), 4 * 8 * 3 * 224 * 224), (("(outputs)",), 4 * 8 * 1000)]
    enters = next(kernel for kernel in reports[1].kernels if kernel.op_types != ("Copy",))
    elements = 8 * 3 * 224 * 224
    assert (enters.read_bytes, enters.write_bytes) == (4 * elements, elements)


@pytest.mark.parametrize("precision", ["int4w", "fp8", "fp4"])
def test_inputs_and_outputs_keep_their_types_in_a_quantised_file(precision: str) -> None:
    """Four and eight bits are the file's, which TensorRT takes the types of inputs and outputs from, too."""
    report = analyze(
        EXAMPLES / "resnet50.onnx", gpu="rtx-5090", batch=8, runtime="tensorrt", precision=precision, include_io=True
    )
    copied = [kernel.read_bytes for kernel in report.kernels if kernel.op_types == ("Copy",)]
    assert copied == [4 * 8 * 3 * 224 * 224, 4 * 8 * 1000]
    assert any("inputs and outputs keep their types" in text for text in report.assumptions)


def test_a_convolution_in_int8_writes_16_bits_for_a_layer_that_stays_there() -> None:
    """The second 3x3 layer as if it was far slower in int8: the one before it writes what it reads, the one behind it
    reads what is quantised by a kernel, as no layer in 16 bits writes int8."""
    found = prepared("resnet50", "int8", batch=8)
    assert found.tactics is not None
    layers = list(found.tactics.layers)
    names = [found.work[layer.at].node for layer in layers]
    at = names.index("stage1.1.spatial.relu")
    wide, narrow = layers[at].ways[WIDE], layers[at].ways[NARROW]
    layers[at] = replace(layers[at], ways={WIDE: wide, NARROW: tuple(9 * way for way in narrow)})
    chosen = choose(replace(found.tactics, layers=tuple(layers)), found.work, load_gpu("l40s"))
    before, slow, behind = (chosen.works[layers[place].at].kernels for place in (at - 1, at, at + 1))
    assert [(kernel.dtype, kernel.output_dtype) for kernel in before if isinstance(kernel, Conv)] == [
        (DataType.INT8, DataType.FLOAT16)
    ]
    assert [type(kernel) for kernel in slow] == [Conv]
    assert (slow, *wide[1:]) == wide
    assert [type(kernel) for kernel in behind] == [Elementwise, Conv]
    # 8 images of 64 channels of 56 x 56, in int8 read and in 16 bits written
    assert before[-1].write_bytes == 2 * 8 * 64 * 56 * 56
    assert chosen.wide_count == 1


def test_a_product_hands_on_16_bits() -> None:
    tactics = prepared("bert_base", "int8", batch=1, sequence=128).tactics
    assert tactics is not None
    behind = [layer for layer in tactics.layers if layer.source is not None and layer.is_narrowable]
    # of twelve blocks the second product of the feed-forward layer reads the first one's result, the rest norms'
    assert len(behind) == 12
    assert all((16, 8) in layer.conversions and (8, 16) not in layer.conversions for layer in behind)


@pytest.mark.parametrize(
    ("precision", "runtime"),
    [("fp32", "tensorrt"), ("fp16-model", "tensorrt")]  # as stored; a strongly typed network
    + [(precision, "onnxruntime") for precision in ("fp16", "fp32", "int8")],
)
def test_no_choice_without_a_flag(precision: str, runtime: str) -> None:
    assert prepared("bert_base", precision, runtime, batch=1, sequence=128).tactics is None


def saved(path: Path, nodes: str, shape: tuple[int, ...], **weights: tuple[int, ...]) -> Path:
    """A model from ``x`` of ``shape`` to ``y`` of the same."""
    ends = [value_info(name, shape, TensorProto.FLOAT) for name in ("x", "y")]
    zeros = [numpy_helper.from_array(np.zeros(sizes, np.float32), name) for name, sizes in weights.items()]
    graph = helper.make_graph(split(nodes), "model", ends[:1], ends[1:], zeros)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
    return path


GATES = """
    mean = GlobalAveragePool(x)
    few = Conv(mean, down)
    seen = Relu(few)
    many = Conv(seen, up)
    gate = Sigmoid(many)
    y = Mul(x, gate)
"""
"""Squeeze and excitation."""


def test_a_layer_stays_in_float32_where_that_is_quicker(tmp_path: Path) -> None:
    """Convolutions on matrix units of .1 TFLOP/s take longer than on the lanes, which have 8.

    Poolings in front save enough in 16 bits that the engine as a whole is quicker with them.
    """
    pool = "MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>"
    nodes = f"first = {pool}(x)\nfront = {pool}(first)" + GATES.replace("(x", "(front")
    model = saved(tmp_path / "gates.onnx", nodes, (1, 1152, 28, 28), down=(48, 1152, 1, 1), up=(1152, 48, 1, 1))
    t4 = load_gpu("t4")
    slow = replace(t4, peak_flops_per_s={**t4.peak_flops_per_s, "fp16": 1e11})

    def run(gpu: GpuSpec, precision: str) -> Report:
        return analyze(model, gpu=gpu, precision=precision, runtime="tensorrt")

    half = run(slow, "fp16")
    assert half.totals.kernel_ms < run(slow, "fp16-model").totals.kernel_ms
    conversions = [row.latency_us for row in half.kernels if "cast" in str(row.dims)]
    assert len(conversions) == 4  # of the input, the output, and on both sides of what is in float32
    assert half.totals.kernel_ms <= run(slow, "fp32").totals.kernel_ms + sum(conversions) / 1e3
    assert run(slow, "int8").totals.kernel_ms <= half.totals.kernel_ms
    kinds = [(row.kernel_class, row.dtype, row.dims.get("operations", "")) for row in half.kernels]
    at = kinds.index(("conv", "float32", ""))
    # what makes the operand hands on 16 bits, which a kernel converts
    assert kinds[at - 1][0] == "elementwise"
    assert "cast" in kinds[at - 1][2]
    assert any(
        "convolutions and linear layers that could be float16 stay in float32" in said for said in half.assumptions
    )
    assert {row.dtype for row in run(t4, "fp16").kernels if row.kernel_class == "conv"} == {"float16"}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_an_engine_stays_in_float32_where_conversions_outweigh(tmp_path: Path, precision: str) -> None:
    """A max pooling alone, between an input and an output in float32; two linear layers save more than casts take."""
    pool = saved(tmp_path / "p.onnx", "y = MaxPool<kernel_shape=[5,5], pads=[2,2,2,2]>(x)", (8, 256, 20, 20))
    linear = saved(tmp_path / "l.onnx", "h = MatMul(x, w)\ny = MatMul(h, w)", (4096, 4096), w=(4096, 4096))
    alone, as_stored = (analyze(pool, gpu="a100", runtime="tensorrt", precision=p) for p in (precision, "auto"))
    assert alone.totals.latency_ms == as_stored.totals.latency_ms
    assert {kernel.dtype for kernel in alone.kernels} == {"float32"}
    assert alone.settings.precision == precision
    said = f"the whole engine stays in float32, which is quicker than {precision} there"
    assert any(text.startswith(said) for text in alone.assumptions)
    layers = analyze(linear, gpu="a100", runtime="tensorrt", precision=precision)
    assert not any(text.startswith(said) for text in layers.assumptions)


def test_an_engine_in_float32_is_not_whole_where_the_file_stores_fewer_bits(tmp_path: Path) -> None:
    nodes = """
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        p = QuantizeLinear(w, s, z)
        v = DequantizeLinear(p, s, z)
        y = Conv<pads=[1,1,1,1]>(d, v)
    """
    path = saved(tmp_path / "q.onnx", nodes, (8, 256, 64, 64), w=(256, 256, 3, 3))
    proto = onnx.load(path)
    zero = helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0])
    proto.graph.initializer.extend([numpy_helper.from_array(np.float32(1.0), "s"), zero])
    onnx.save(proto, path)
    report = analyze(path, gpu="l4", runtime="tensorrt", precision="fp16")
    assert {kernel.dtype for kernel in report.kernels if kernel.kernel_class == "conv"} == {"float8e4m3fn"}
    said = "all but what the file stores in fp8 stays in float32, which is quicker than fp16 there"
    assert any(text.startswith(said) for text in report.assumptions)
    assert not any("whole engine" in text for text in report.assumptions)


def test_nothing_converts_between_layers_in_float32_nor_before_them(tmp_path: Path) -> None:
    """Both convolutions of a chain as if they were far slower in 16 bits."""
    nodes = "a = Conv(x, v)\ny = Conv(a, w)"
    path = saved(tmp_path / "chain.onnx", nodes, (1, 64, 14, 14), v=(64, 64, 1, 1), w=(64, 64, 1, 1))
    found = prepare(infer_shapes(read_model(path), Bindings()), precision=FORMATS["fp16"], runtime="tensorrt")
    assert [len(work.kernels) for work in found.work] == [1, 1, 1, 1]  # a Cast, both, a Cast
    assert found.tactics is not None

    huge = TensorSpec(dtype=DataType.FLOAT16, shape=(1 << 24,))

    def slowed(layer: Layer) -> Layer:
        slow = Elementwise(operations=("erf",), inputs=(huge,), output=huge)
        return replace(layer, ways={**layer.ways, WIDE: tuple((*way, slow) for way in layer.ways[WIDE])})

    layers = tuple(slowed(layer) if WIDE in layer.ways else layer for layer in found.tactics.layers)
    chosen = choose(replace(found.tactics, layers=layers), found.work, load_gpu("t4"))
    kernels = [kernel for work in chosen.works for kernel in work.kernels]
    assert [(type(kernel), kernel.dtype) for kernel in kernels if isinstance(kernel, Conv)] == [
        (Conv, DataType.FLOAT32),
        (Conv, DataType.FLOAT32),
    ]
    assert len(kernels) == 2
    assert [work.free is None for work in chosen.works] == [False, True, True, False]
    # two filters of 64 x 64, in four bytes in place of two
    assert (chosen.full_count, chosen.full_choices, chosen.more_weight_bytes) == (2, 2, 2 * 2 * 64 * 64)
    # the second one alone: a kernel converts what it reads; what it writes, the caller's float32, none
    entry, first, second, leaving = found.tactics.layers
    layers = (entry, replace(first, ways={WIDE: first.ways[WIDE]}), slowed(second), leaving)
    chosen = choose(replace(found.tactics, layers=layers), found.work, load_gpu("t4"))
    assert [tuple(map(type, work.kernels)) for work in chosen.works] == [
        (Movement,),
        (Conv,),
        (Elementwise, Conv),
        (),
    ]


def test_choices_are_those_of_the_predicted_times() -> None:
    gpu = load_gpu("a100")
    slow = Gemm(m=8, n=64, k=64, dtype=DataType.FLOAT16, b_is_weight=True)
    fast = Gemm(m=4096, n=8192, k=8192, dtype=DataType.FLOAT16, b_is_weight=True)
    layers = tuple(
        Layer(
            at=at,
            ways={WIDE: ((kernel,),), NARROW: ((replace(kernel, dtype=DataType.INT8),),)},
            weight=f"w{at}",
        )
        for at, kernel in enumerate((slow, fast))
    )
    works = tuple(work for work in prepared("bert_base", "int8", batch=1, sequence=128).work if work.kernels)[:2]
    chosen = choose(Tactics(layers=layers, format_label="int8", wide_label="float16"), works, gpu)
    for layer, work in zip(layers, chosen.works, strict=True):
        wide, narrow = (predict(way, gpu)[0].latency_us for (way,) in layer.ways.values())
        assert (work.kernels,) == layer.ways[NARROW if narrow < wide else WIDE]
    assert (chosen.works[1].kernels,) == layers[1].ways[NARROW]
    assert (chosen.count, chosen.wide_count) == (2, 1)
    assert chosen.more_weight_bytes == 64 * 64


@pytest.mark.parametrize(("gpu", "precision"), [("a100", "int8"), ("t4", "int8"), ("h100", "fp8")])
@pytest.mark.parametrize("batch", [1, 16])
def test_a_format_that_is_asked_for_slows_nothing_down(gpu: str, precision: str, batch: int) -> None:
    def run(name: str) -> float:
        dims = {"batch": batch, "sequence": 128}
        report = analyze(
            EXAMPLES / "bert_base.onnx", gpu=gpu, dims=dims, precision=name, runtime="tensorrt", cuda_graph=True
        )
        return report.totals.kernel_ms

    assert run(precision) <= run("fp16") * (1 + 1e-6)


@pytest.mark.parametrize("batch", [1, 64])
def test_weights_of_4_bits_are_the_files_whatever_the_rows(batch: int) -> None:
    def weights(precision: str) -> int:
        dims = {"batch": batch, "sequence": 128}
        report = analyze(EXAMPLES / "bert_base.onnx", gpu="h100", dims=dims, precision=precision, runtime="tensorrt")
        return report.totals.memory.weight_bytes

    # 12 layers of 12 x 768 x 768, and the pooler, take half a byte a weight in place of two
    linear = 12 * 12 * 768 * 768 + 768 * 768
    # a scale in float16 and a zero point of 4 bits for each 128 weights
    assert weights("fp16") - weights("int4w") == pytest.approx((1.5 - 2.5 / 128) * linear, rel=0.001)


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
