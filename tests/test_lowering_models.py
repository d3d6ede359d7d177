"""Whole models: kernels of a layer against what PyTorch was measured to execute, and coverage."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from neusight_onnx.fusion.loops import merge_loops
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.shapes import infer
from neusight_onnx.kernels import Elementwise, Gemm, Kernel, Movement, NodeWork, Normalization, Softmax
from neusight_onnx.lowering import lower, lower_laid_out

SHARED = Path(os.environ.get("NEUSIGHT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
MODELS = SHARED / "models"

pytestmark = pytest.mark.skipif(
    not MODELS.is_dir(), reason=f"no models in {MODELS}; NEUSIGHT_SHARED names their folder"
)


def works(path: Path, runtime: str, dims: dict[str, int]) -> tuple[NodeWork, ...]:
    graph = infer(read_model(path), Bindings(dims=dims))
    return lower(recognise(graph, runtime=runtime), runtime=runtime)


def word(kernel: Kernel) -> str:
    match kernel:
        case Gemm(b_is_weight=True):
            return "linear"
        case Gemm():
            return "bmm"
        case Elementwise(operations=operations):
            return "+".join(operations)
        case Softmax():
            return "softmax"
        case Normalization():
            return "norm"
        case Movement(operation=operation):
            return operation
        case _:
            return type(kernel).__name__.lower()


BERT = "linear linear linear copy copy bmm div add softmax copy bmm copy linear add norm linear gelu linear add norm"
GPT = (
    "norm linear copy copy bmm div where softmax copy bmm copy linear add norm linear "
    "mul pow_scalar mul add mul tanh add mul linear add"
)
OPT = "norm linear mul linear linear copy copy copy bmm add max softmax bmm copy linear add norm linear relu linear add"


@pytest.mark.parametrize(
    ("file", "layer", "dims", "expected"),
    [
        ("bert_large.onnx", r"layer\.1/", {"batch": 2, "seq": 32}, BERT),
        ("gpt2_large.onnx", r"h\.1/", {"batch": 2, "seq": 32}, GPT),
        ("opt_1.3b.onnx", r"layers\.1/", {"batch": 2, "seq": 32}, OPT),
        ("bert_large.onnx", r"layer\.1/", {"batch": 1, "seq": 32}, BERT.replace("copy ", "")),
    ],
    ids=["bert", "gpt2", "opt", "bert, one sample: heads stay views"],
)
def test_kernels_of_a_layer_in_eager(file: str, layer: str, dims: dict[str, int], expected: str) -> None:
    """Measured: 17, 22 and 21 kernels a layer, and 3 more copies hidden in the matrix products of the first two."""
    found = works(MODELS / "neusight" / file, "eager", dims)
    kernels = [word(kernel) for work in found if re.search(layer, work.node) for kernel in work.kernels]
    if dims["batch"] == 1:
        # merging the heads behind the last product still moves elements
        assert kernels.count("copy") == 1
        kernels.remove("copy")
    assert " ".join(kernels) == expected


@pytest.mark.parametrize(
    ("file", "layer", "expected"),
    [
        (
            "bert_large.onnx",
            r"layer\.1/",
            "linear linear linear add+copy add+copy bmm softmax add+copy bmm copy "
            "linear norm linear add+gelu linear norm",
        ),
        (
            "gpt2_large.onnx",
            r"h\.1/",
            "norm linear add+copy add+copy bmm softmax add+copy bmm copy linear norm linear add+gelu_tanh linear",
        ),
        (
            "opt_1.3b.onnx",
            r"layers\.1/",
            "norm linear linear linear add+mul+copy add+copy add+copy bmm softmax bmm copy "
            "linear norm linear add+relu linear",
        ),
    ],
    ids=["bert", "gpt2", "opt"],
)
def test_kernels_of_a_compiled_layer(file: str, layer: str, expected: str) -> None:
    """Biases go to pointwise users, copies compute them; residual sums, scale, mask and softmax are one kernel each."""
    graph = infer(read_model(MODELS / "neusight" / file), Bindings(dims={"batch": 2, "seq": 32}))
    recognised = recognise(graph, runtime="compiled")
    lowered = lower_laid_out(recognised, runtime="compiled")
    found = merge_loops(recognised, lowered.works, lowered.strides)
    kernels = [word(kernel) for work in found if re.search(layer, work.node) for kernel in work.kernels]
    assert " ".join(kernels) == expected


@pytest.mark.parametrize(
    "file", ["neusight/gpt3_xl.onnx", "timm/wide_resnet50_2.onnx", "timm/vit_base_patch16_224.onnx"]
)
def test_compiled_moves_fewer_bytes_for_the_same_products(file: str) -> None:
    graph = infer(read_model(MODELS / file), Bindings())
    recognised = recognise(graph, runtime="compiled")
    lowered = lower_laid_out(recognised, runtime="compiled")
    merged = merge_loops(recognised, lowered.works, lowered.strides)
    before, after = ([kernel for work in given for kernel in work.kernels] for given in (lowered.works, merged))
    assert sum(kernel.macs for kernel in before) == sum(kernel.macs for kernel in after)
    assert sum(kernel.read_bytes + kernel.write_bytes for kernel in after) < sum(
        kernel.read_bytes + kernel.write_bytes for kernel in before
    )
    assert len(after) < len(before)
    assert {name for work in lowered.works if work.kernels for name, _ in work.origins} <= {
        name for work in merged if work.kernels for name, _ in work.origins
    }


def test_decompositions_give_what_single_operators_give() -> None:
    """The same model at opset 13, LayerNormalization written out, and at opset 17."""
    folder = MODELS / "e2e_nlp"
    dims = {"batch": 2, "seq": 32}
    old, new = (
        Counter(word(kernel) for work in works(folder / name, "eager", dims) for kernel in work.kernels)
        for name in ("bert_large_qa_op13.onnx", "bert_large_qa.onnx")
    )
    assert old == new


@pytest.mark.parametrize("runtime", ["eager", "compiled", "onnxruntime", "tensorrt"])
def test_small_models_are_covered(runtime: str) -> None:
    """Whatever is unsupported is so because of a shape, or is not an operator of ONNX."""
    folders = ("onnx_simple", "onnx_pytorch-operator", "neusight_mini", "ort_optimised", "quantised", "sklearn")
    reasons = Counter(
        work.unsupported
        for folder in folders
        for path in sorted((MODELS / folder).glob("*.onnx"))
        for work in works(path, runtime, {})
        if work.unsupported
    )
    assert set(reasons) <= {"the graph of its gradient is not in the model"}


def test_small_models_compile() -> None:
    """Every node keeps its place and has one outcome; what several nodes became names nodes of the model."""
    for folder in ("onnx_simple", "onnx_pytorch-operator", "onnx_pytorch-converted", "neusight_mini", "quantised"):
        for path in sorted((MODELS / folder).glob("*.onnx")):
            recognised = recognise(infer(read_model(path), Bindings()), runtime="compiled")
            lowered = lower_laid_out(recognised, runtime="compiled")
            merged = merge_loops(recognised, lowered.works, lowered.strides)
            assert [work.node for work in merged] == [work.node for work in lowered.works], path
            names = {name for work in lowered.works for name, _ in work.origins}
            for work in merged:
                outcomes = (bool(work.kernels), work.free is not None, work.unsupported is not None)
                assert sum(outcomes) == 1, (path, work)
                assert names.issuperset(name for name, _ in work.origins), (path, work)


@pytest.mark.parametrize(
    ("file", "published_gmacs"),
    [
        ("resnext50_32x4d.onnx", 4.26),
        ("vgg16.onnx", 15.47),
        ("vit_base_patch16_224.onnx", 17.58),
        ("efficientnet_b0.onnx", 0.39),
        ("convnext_tiny.onnx", 4.47),
        ("inception_v3.onnx", 5.73),
        ("pvt_v2_b2.onnx", 4.05),
    ],
)
def test_macs_of_known_models(file: str, published_gmacs: float) -> None:
    """Multiply-adds as timm states them (EfficientNet: its paper), two digits; they count small operators, too."""
    macs = sum(kernel.macs for work in works(MODELS / "timm" / file, "eager", {"batch": 1}) for kernel in work.kernels)
    assert macs / 1e9 == pytest.approx(published_gmacs, rel=0.03)
