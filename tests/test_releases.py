"""Runtimes as they were at earlier releases: ``--runtime NAME@RELEASE``."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphs import inferred
from neusight_onnx import analyze, compare, diff, read_model
from neusight_onnx.backward import make_training, train
from neusight_onnx.checks.config import read_config
from neusight_onnx.cli import main
from neusight_onnx.compatibility import last_release, misfit, not_compiled_for, not_made_for
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import NotSupportedError
from neusight_onnx.execution import run_on
from neusight_onnx.fusion.called_attention import with_called_attention
from neusight_onnx.fusion.engine_rules import ENGINE_RULES
from neusight_onnx.fusion.patterns.registry import PATTERNS, recognise
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.kernels import Elementwise, Gemm, Softmax
from neusight_onnx.lowering import lower, lower_laid_out
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.outcome import predict_totals
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import PreparedModel, infer_shapes, prepare, works_of
from neusight_onnx.release_effects import changes_met
from neusight_onnx.releases import Change, History, is_before, parse_release, release_text
from neusight_onnx.report.machine import to_json
from neusight_onnx.runtime import RUNTIMES, Runtime, get_runtime

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "releases.md"
BERT = ROOT / "examples" / "bert_base.onnx"
PLAN = make_training()
EXAMPLES = {"bert_base.onnx": {"batch": 2, "sequence": 64}, "resnet50.onnx": {"batch": 2}}
CHANGES = [(name, change) for name, runtime in RUNTIMES.items() for change in runtime.history.changes]


@pytest.mark.parametrize(
    ("text", "since", "expected"),
    [
        ("1.8", (1, 9), True),
        ("1.8.2", (1, 9), True),
        ("1.9", (1, 9), False),
        ("1.9.0", (1, 9), False),
        ("1.10", (1, 9), False),
        ("1", (1, 9), False),
        ("1.9", (1, 9, 1), False),
        ("1.9.0", (1, 9, 1), True),
        ("2.0", (1, 9), False),
    ],
)
def test_order_of_releases(text: str, since: tuple[int, ...], expected: bool) -> None:
    """What a release leaves out is the newest: 1.9 is the last 1.9, 1 the last 1."""
    assert is_before(parse_release(text, ""), since) is expected


@pytest.mark.parametrize("text", ["", "x", "1.", ".9", "1.9+cu117", "-1", "1.9.0.0.0", "\uff11.9", "99999", "1 9"])
@pytest.mark.parametrize("name", RUNTIMES)
def test_what_is_no_release_is_refused(name: str, text: str) -> None:
    with pytest.raises(NotSupportedError, match=f"runtime {name}: .* is no release; write its numbers, such as @1.9"):
        get_runtime(f"{name}@{text}")


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_range_of_releases(name: str) -> None:
    """Before the first: refused, the range named. The newest: as without one. Newer: taken as the newest, and said."""
    history = RUNTIMES[name].history
    first, newest = release_text(history.first), release_text(history.newest)
    assert get_runtime(f"{name}@{first}").release == history.first
    with pytest.raises(NotSupportedError, match=f"before {first}; take one from {name}@{first} to {name}@{newest}$"):
        get_runtime(f"{name}@0.1")
    today = get_runtime(f"{name}@{newest}")
    assert replace(today, release=None) == RUNTIMES[name]
    newer = get_runtime(f"{name}@99.1")
    assert newer.newer == (99, 1)
    assert replace(newer, newer=None) == today
    assert newer.label == f"{name}@{newest}"
    said = analyze(BERT, gpu="t4", dims={"batch": 1, "sequence": 8}, runtime=f"{name}@99.1").assumptions
    assert f"{name} 99.1 is newer than what is known: taken as {newest}, the newest release that is" in said


@pytest.mark.parametrize(
    ("called", "said"),
    [
        ("torchscript@99.1", "torchscript 99.1 is newer than what is known: taken as 2.9, the newest release that is"),
        (
            "onnxruntime@1.32",
            "onnxruntime 1.32: which files it reads is known, but what it executes is not: taken as 1.31, the newest "
            "release that is",
        ),
    ],
)
def test_what_is_said_of_a_newer_release(called: str, said: str) -> None:
    assert said in analyze(BERT, gpu="t4", dims={"batch": 1, "sequence": 8}, runtime=called).assumptions


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[f"{name} {change.what}" for name, change in CHANGES])
def test_a_change(name: str, change: Change) -> None:
    """Each is within the history, names rules that the runtime has, and makes the release before it another one."""
    newest = RUNTIMES[name]
    assert newest.history.first < change.since <= newest.history.newest
    assert is_before(change.last_before, change.since)
    assert not is_before(change.last_before, newest.history.first)
    rules = {rule.name for rule in (*PATTERNS, *ENGINE_RULES) if name in rule.runtimes}
    assert change.lacks | change.had <= rules, f"no rule of {name}: {sorted((change.lacks | change.had) - rules)}"
    assert all((change.what, change.before, change.source))
    before = get_runtime(f"{name}@{release_text(change.last_before)}")
    since = get_runtime(f"{name}@{release_text(change.since)}")
    assert (change.before in before.earlier(training=True)) is not change.only_widens
    assert change.before not in since.earlier(training=True)
    assert change.lacks <= before.lacks
    assert not change.lacks & since.lacks
    assert change.had <= since.lacks
    assert not change.had & before.lacks
    assert any(getattr(before, field) != getattr(since, field) for field in change.fields) is bool(change.fields)


def test_changes_are_undone_from_the_newest_on() -> None:
    """A field that changed twice is what it was at first before both; a rule that came later is lacking until then."""
    first = Change(since=(1, 2), what="b", before="a", source="-", fields={"view_us": 1.0}, lacks=frozenset({"x"}))
    second = Change(since=(1, 4), what="c", before="b", source="-", fields={"view_us": 2.0}, lacks=frozenset({"y"}))
    history = History(project="P", first=(1, 0), newest=(1, 5), changes=(first, second))
    assert list(history.after((1, 1))) == [second, first]
    assert list(history.after((1, 2, 3))) == [second]
    assert list(history.after((1, 4))) == []
    described = Runtime(name="made-up", description="", kernel_us=1.0, view_us=3.0, host_spread=1.5, history=history)
    assert replace(described, release=(1, 1)).earlier(training=False) == ("a", "b")
    assert replace(described, release=(1, 3)).earlier(training=False) == ("b",)
    assert described.earlier(training=True) == ()


def test_what_an_older_change_overrules_is_not_said() -> None:
    """1.9 had no kernel behind the deviations, which 1.12 and 1.13 had; a report that said both contradicted itself."""
    old = get_runtime("onnxruntime@1.9").earlier(training=False)
    assert [text for text in old if "casts to FP32" in text] == [
        "a normalization that casts to FP32 in between runs as it is written"
    ]
    assert [text for text in old if text.startswith("attention operators")] == [
        "attention operators of com.microsoft run by parts"
    ]
    between = get_runtime("onnxruntime@1.13").earlier(training=False)
    assert "a normalization that casts to FP32 in between is one kernel behind the deviations from the mean" in between
    assert "FP32 products are IEEE FP32" in (older := get_runtime("eager@1.6").earlier(training=False))
    assert "FP32 products take TF32 units where there are some" not in older


# runtime, GPU, what is said (None: it runs)
ON_GPUS = [
    ("tensorrt@8.6", "p100", None),
    ("tensorrt@10.0", "p100", "takes no GPU of compute capability 6.0; take tensorrt@8.6 or earlier"),
    ("tensorrt@10.4", "v100-pcie-16gb", None),
    ("tensorrt@10.5", "v100-pcie-16gb", "capability 7.0; take tensorrt@10.4 or earlier"),
    ("tensorrt@11", "t4", None),
    ("tensorrt@7.0", "a100-pcie-40gb", "capability 8.0; take tensorrt@7.1 or later"),
    ("tensorrt@8.4", "h100-sxm", "capability 9.0; take tensorrt@8.5 or later"),
    ("tensorrt@8.4", "rtx-4090", "capability 8.9; take tensorrt@8.5 or later"),
    ("tensorrt@10.7", "b200", "capability 10.0; take tensorrt@10.8 or later"),
    ("tensorrt", "b200", None),
    ("tensorrt", "p4", None),
    ("eager@1.12", "h100-sxm", "capability 9.0; take eager@1.13 or later"),
    ("eager@1.12", "rtx-4090", None),
    ("eager@1.12", "mi100", None),
    ("compiled@2.5", "rtx-5090", "capability 12.0; take compiled@2.6 or later"),
    ("compiled@2.4", "p4", "takes GPUs of compute capability 7.0 and later, this one has 6.1"),
    ("compiled", "p4", "takes GPUs of compute capability 7.0 and later, this one has 6.1"),
]


@pytest.mark.parametrize(("runtime", "gpu", "said"), ON_GPUS, ids=[f"{row[0]} {row[1]}" for row in ON_GPUS])
def test_which_gpus_a_release_takes(runtime: str, gpu: str, said: str | None) -> None:
    found = not_made_for(runtime, load_gpu(gpu))
    assert (found is None) is (said is None)
    assert said is None or said in str(found)


@pytest.mark.parametrize(
    ("runtime", "precision", "since"),
    [
        ("tensorrt@8.6", "bf16", "9.0"),
        ("tensorrt@8.6", "bf16-model", "9.0"),
        ("tensorrt@8.6", "fp8", "9.0"),
        ("tensorrt@9.0", "fp8", None),
        ("tensorrt@9.3", "int4w", "10.0"),
        ("tensorrt@8.6", "int4w", "10.0"),
        ("tensorrt@10.7", "fp4", "10.8"),
        ("tensorrt@10.8", "fp4", None),
        ("tensorrt@7.0", "fp16", None),
        ("tensorrt@7.1", "int8", None),
        ("tensorrt", "fp4", None),
        ("onnxruntime@1.9", "bf16", None),
    ],
)
def test_which_number_formats_a_release_has(runtime: str, precision: str, since: str | None) -> None:
    found = not_made_for(runtime, load_gpu("t4"), precision)
    assert (found is None) is (since is None)
    assert since is None or str(found).endswith(f"doesn't compute in it; take tensorrt@{since} or later")


@pytest.mark.parametrize(
    ("runtime", "gpu", "remedy"),
    [
        ("onnxruntime@1.6", "a100", "take onnxruntime@1.7 or later"),
        ("onnxruntime@1.7", "a100", None),
        ("onnxruntime@1.6", "t4", None),
        ("onnxruntime@1.9", "h100", None),
        ("onnxruntime@1.9", "b200-sxm", "take onnxruntime@1.19 or later"),
        ("onnxruntime@1.18", "rtx-5090", "take onnxruntime@1.19 or later"),
        ("onnxruntime@1.19", "b200-sxm", None),
        ("onnxruntime", "b200-sxm", None),
    ],
)
def test_which_gpus_a_release_of_onnxruntime_takes(runtime: str, gpu: str, remedy: str | None) -> None:
    found = misfit(runtime, load_gpu(gpu), "fp32")
    assert (None if found is None else found.remedy) == remedy


@pytest.mark.parametrize(
    ("runtime", "gpu", "said"),
    [
        ("onnxruntime@1.9", "h100", "up to 8.0; for 9.0 the driver compiles them"),
        ("onnxruntime@1.19", "b200-sxm", "up to 8.0; for 10.0 the driver compiles them"),
        ("onnxruntime@1.21", "h100", None),
        ("onnxruntime@1.21", "rtx-5090", "up to 9.0; for 12.0 the driver compiles them"),
        ("onnxruntime@1.26", "b200-sxm", "up to 9.0; for 10.0 the driver compiles them"),
        ("onnxruntime@1.28", "b200-sxm", None),
        ("onnxruntime@1.9", "l4", None),  # machine code of 8.0 runs on 8.9
        ("onnxruntime", "rtx-5090", None),
        ("onnxruntime", "b200-sxm", "none for 10.0: a build of your own"),
        ("onnxruntime", "v100", "none for 7.0: a build of your own"),
        ("onnxruntime", "mi300x", None),
        ("tensorrt", "b200-sxm", None),
    ],
)
def test_what_a_release_is_not_compiled_for_is_said(runtime: str, gpu: str, said: str | None) -> None:
    found = not_compiled_for(get_runtime(runtime), load_gpu(gpu))
    assert (found is None) is (said is None)
    assert said is None or said in str(found)


def test_the_release_that_would_do_takes_gpu_and_format() -> None:
    """Hopper came with 8.5, bfloat16 with 9.0; no release has both FP8 and Pascal."""
    found = misfit("tensorrt@8.4", load_gpu("h100"), "bf16")
    assert found is not None
    assert found.remedy == "take tensorrt@9.0 or later"
    found = misfit("tensorrt@8.6", load_gpu("p100"), "bf16")
    assert found is not None
    assert found.remedy == "no release of it does both: take another precision, runtime or GPU"


def test_a_number_format_that_a_release_lacks_is_refused_and_left_out() -> None:
    sizes = {"batch": 1, "sequence": 16}
    with pytest.raises(
        NotSupportedError, match=r"^runtime tensorrt@8.2 in precision bf16: this release doesn't compute"
    ):
        analyze(BERT, gpu="a100", dims=sizes, precision="bf16", runtime="tensorrt@8.2")
    both = compare(BERT, gpus=["a100"], dims=sizes, precisions=["bf16", "fp16"], runtimes=["tensorrt@8.2"])
    assert [case.precision for case in both.cases] == ["fp16"]
    assert any("left out: runtime tensorrt@8.2 in precision bf16" in notice.message for notice in both.warnings)


def test_check_names_the_release_that_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "check.json"
    options = ["--gpu", "v100", "--runtime", "tensorrt@10.5", "--dim", "batch=1,sequence=8"]
    assert main(["check", str(BERT), *options, "--format", "json", "-o", str(path)]) == 1
    (finding,) = [found for found in json.loads(path.read_text())["findings"] if found["code"] == "NSX507"]
    assert finding["fix"] == "take tensorrt@10.4 or earlier"
    assert finding["message"].endswith("this release takes no GPU of compute capability 7.0")


def test_the_last_release_for_a_gpu_is_said_without_asking() -> None:
    """Not by -v alone: a V100 is in many data centres, and today's TensorRT doesn't run on it."""
    report = analyze(BERT, gpu="v100", dims={"batch": 1, "sequence": 8}, runtime="tensorrt")
    assert any("(--runtime tensorrt@10.4)" in text for text in report.assumptions if text not in report.standing)
    case = compare(BERT, gpus=["v100"], dims={"batch": 1, "sequence": 8}, runtimes=["tensorrt"])
    assert any("(--runtime tensorrt@10.4)" in text for text in case.assumptions)


@pytest.mark.parametrize(
    ("gpu", "last"), [("p4", "8.6"), ("v100-pcie-16gb", "10.4"), ("t4", None), ("b200", None), ("mi300x", None)]
)
def test_the_last_release_for_a_gpu(gpu: str, last: str | None) -> None:
    """TensorRT alone has dropped GPUs that it took; without a release it is predicted there, and the last one named."""
    found = last_release(get_runtime("tensorrt"), load_gpu(gpu))
    assert (found is None) is (last is None)
    assert last is None or f"--runtime tensorrt@{last})" in str(found)


SCALED = """
s = Mul(q, scale)
r = Mul(t, scale)
p = MatMul(s, r)
w = Softmax<axis=-1>(p)
y = MatMul(w, v)
"""
HEADS = (2, 4, 16, 8)


def test_attention_before_pytorch_had_an_operator_for_it() -> None:
    """What the exporter writes of ``scaled_dot_product_attention`` is one kernel from 2.0 on, and as written before."""
    graph = inferred(SCALED, {"q": HEADS, "t": (2, 4, 8, 16), "v": HEADS}, constants={"scale": 0.6})
    assert [node.op_type for node in recognise(graph, runtime="eager").graph.nodes] == ["ScaledDotProductAttention"]
    assert [node.op_type for node in recognise(graph, runtime="eager@2.0").graph.nodes] == ["ScaledDotProductAttention"]
    assert recognise(graph, runtime="eager@1.13") is graph
    operator = inferred(
        "y = Attention<is_causal=1>(q, k, v, mask)", {"q": HEADS, "k": HEADS, "v": HEADS} | {"mask": (16, 16)}, opset=23
    )
    kinds = [type(kernel).__name__ for work in lower(operator, runtime="eager@1.13") for kernel in work.kernels]
    assert kinds == ["Gemm", "Elementwise", "Elementwise", "Elementwise", "Softmax", "Gemm"]
    assert [len(work.kernels) for work in lower(operator, runtime="eager")] == [1]


@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_attention_of_five_dimensions(runtime: str) -> None:
    """By its formula: in 16 bits before 2.5, then in FP32, with zeros where a row has no key."""
    heads = (2, 4, 3, 16, 8)
    nodes = "t = Transpose<perm=[0,1,2,4,3]>(k)\np = MatMul(q, t)\nw = Softmax<axis=-1>(p)\ny = MatMul(w, v)"
    graph = inferred(nodes, dict.fromkeys("qkv", heads), types=dict.fromkeys("qkv", 10))
    for release, dtype in (("2.4", DataType.FLOAT16), ("2.5", DataType.FLOAT32)):
        called = with_called_attention(graph, runtime=f"{runtime}@{release}", autocast=False)
        (work,) = [work for work in lower(called, runtime=f"{runtime}@{release}") if "Scaled" in work.op_type]
        products = [kernel for kernel in work.kernels if isinstance(kernel, Gemm)]
        assert [(kernel.batch, kernel.m, kernel.n, kernel.k) for kernel in products] == [
            (24, 16, 16, 8),
            (24, 16, 8, 16),
        ]
        (softmax,) = [kernel for kernel in work.kernels if isinstance(kernel, Softmax)]
        assert {kernel.dtype for kernel in (*products, softmax)} == {dtype}
        others = [
            operation for kernel in work.kernels if isinstance(kernel, Elementwise) for operation in kernel.operations
        ]
        operations = [*others, *softmax.fused]
        assert operations.count("mul") == 2
        assert operations.count("where") == (dtype is DataType.FLOAT32)


@pytest.mark.parametrize(
    ("runtime", "precision", "marked"),
    [
        pytest.param("tensorrt@7.0", "fp16", {True}, id="cudnn 7.6"),
        pytest.param("tensorrt@7.0", "int8", {False}, id="int8 has no others"),
        pytest.param("tensorrt@7.1", "fp16", {False}, id="cudnn 8.0"),
        pytest.param("onnxruntime@1.4", "fp16", {True}, id="onnxruntime, cudnn 7.6"),
        pytest.param("onnxruntime@1.5", "fp16", {False}, id="onnxruntime, cudnn 8.0"),
    ],
)
def test_convolutions_before_cudnn_8(runtime: str, precision: str, marked: set[bool]) -> None:
    model = str(Path(__file__).parents[1] / "examples" / "resnet50.onnx")
    report = analyze(model, gpu="t4", batch=8, runtime=runtime, precision=precision)
    wanted = "int8" if precision == "int8" else "float16"
    found = {
        bool(row.dims.get("by_cudnn7")) for row in report.kernels if row.kernel_class == "conv" and row.dtype == wanted
    }
    assert found == marked
    assert any("cuDNN 7's kernels" in text for text in report.assumptions) is (True in marked or precision == "int8")


def test_tensorrt_before_it_merged_attention() -> None:
    """One kernel each of 12 layers on a T4 from 8.6 on; two products and a softmax before, as ever on a V100."""
    sizes = {"batch": 8, "sequence": 128}
    classes = {
        (gpu, runtime): Counter(
            row.kernel_class for row in analyze(BERT, gpu=gpu, dims=sizes, precision="fp16", runtime=runtime).kernels
        )
        for gpu in ("t4", "v100-pcie-16gb")
        for runtime in ("tensorrt@8.5", "tensorrt@8.6")
    }
    assert classes["t4", "tensorrt@8.6"]["attention"] == 12
    assert classes["t4", "tensorrt@8.6"]["softmax"] == 0
    for case in (("t4", "tensorrt@8.5"), ("v100-pcie-16gb", "tensorrt@8.5"), ("v100-pcie-16gb", "tensorrt@8.6")):
        assert (classes[case]["attention"], classes[case]["softmax"]) == (0, 12)


@pytest.mark.parametrize(
    ("activation", "merged_before"),
    [
        ("r = Relu(c)", True),
        ("r = Sigmoid(c)", False),
        ("s = Sigmoid(c)\nr = Mul(c, s)", False),
        ("r = Tanh(c)", False),
    ],
    ids=["Relu", "Sigmoid", "SiLU", "Tanh"],
)
def test_what_tensorrt_merged_into_convolutions(activation: str, merged_before: bool) -> None:
    graph = inferred(
        f"c = Conv(x, w)\n{activation}\ny = MaxPool<kernel_shape=[2,2]>(r)",
        {"x": (1, 8, 16, 16)},
        weights={"w": (8, 8, 3, 3)},
    )
    for release, merged in (("8.6", merged_before), ("10.0", True)):
        runtime = get_runtime(f"tensorrt@{release}")
        works = works_of(fused_graph(graph, runtime), runtime)
        kinds = [type(kernel).__name__ for work in works for kernel in work.kernels]
        assert kinds == ["Conv", *([] if merged else ["Elementwise"]), "Pooling"]


@pytest.mark.parametrize(
    ("release", "precision"), [("1.6", "fp32"), ("1.7", "tf32"), ("1.11", "tf32"), ("1.12", "fp32"), ("2.9", "fp32")]
)
def test_tf32_in_eager_mode(release: str, precision: str) -> None:
    report = analyze(BERT, gpu="a100", dims={"batch": 1, "sequence": 8}, runtime=f"eager@{release}")
    assert report.settings.precision == precision


def test_a_step_of_training_in_tf32_unasked_is_a_whole_step() -> None:
    """The same kernels as where TF32 is asked for, of the run backwards and of the optimizer, too."""
    dims = {"batch": 1, "sequence": 8}
    unasked, asked = (
        analyze(BERT, gpu="a100", dims=dims, runtime="eager@1.11", training=make_training(), precision=precision)
        for precision in ("auto", "tf32")
    )
    assert unasked.settings.precision == "tf32"
    assert [row.kernel_class for row in unasked.kernels] == [row.kernel_class for row in asked.kernels]
    assert unasked.totals.latency_ms == asked.totals.latency_ms


LINEAR = "t = MatMul(x, w)\ny = Add(t, b)"
NORM = "y = LayerNormalization(x, s, b)"
HEADS_OF_ONE = "h = Transpose<perm=[0, 2, 1, 3]>(x)\ny = MatMul(h, z)"
RMS = "y = RMSNormalization(x, s)"
MASKED = "y = Attention(q, k, v, mask)"
VECTORS = {"s": [1.0] * 16, "b": [0.0] * 16}
WEIGHTS = {"w": [[0.5] * 16] * 16, "b": [0.0] * 16}
BIASED, ADDED = "Gemm+bias", "Gemm+add"
# what stands in the file, sizes of its inputs, constants, runtime: kernels. Launches of torch 1.13.1, 2.0.1, 2.1.2,
# 2.4.1 and 2.9.1 on stand-ins for CUDA's libraries; operators of 1.8.1, 1.9.1, 1.10.2, 1.11.0, 1.12.1
KERNELS_OF_RELEASES: list[tuple[str, dict[str, tuple[int, ...]], dict[str, list[object]], str, list[str]]] = [
    (LINEAR, {"x": (8, 16)}, WEIGHTS, "eager@1.11", ["Movement", ADDED]),
    (LINEAR, {"x": (2, 8, 16)}, WEIGHTS, "eager@1.11", ["Gemm", "Elementwise"]),
    (LINEAR, {"x": (8, 16)}, WEIGHTS, "eager@1.12", [BIASED]),
    (LINEAR, {"x": (2, 8, 16)}, WEIGHTS, "eager@1.12", [BIASED]),
    (LINEAR, {"x": (2, 4, 4, 16)}, WEIGHTS, "eager@1.12", ["Gemm", "Elementwise"]),
    (LINEAR, {"x": (2, 4, 4, 16)}, WEIGHTS, "eager@2.0", ["Gemm", "Elementwise"]),
    (LINEAR, {"x": (2, 4, 4, 16)}, WEIGHTS, "eager@2.1", [BIASED]),
    (LINEAR, {"x": (2, 4, 4, 16)}, WEIGHTS, "compiled@2.0", [BIASED]),
    (LINEAR, {"x": (8, 16)}, WEIGHTS, "onnxruntime", ["Movement", ADDED]),
    (NORM, {"x": (8, 16)}, VECTORS, "eager@1.10", ["Reduction", "Normalization"]),
    (NORM, {"x": (8, 16)}, VECTORS, "eager@1.11", ["Normalization"]),
    (HEADS_OF_ONE, {"x": (1, 8, 4, 16), "z": (1, 4, 16, 8)}, {}, "eager@1.8", ["Movement", "Gemm"]),
    (HEADS_OF_ONE, {"x": (1, 8, 4, 16), "z": (1, 4, 16, 8)}, {}, "eager@1.9", ["Gemm"]),
    (HEADS_OF_ONE, {"x": (2, 8, 4, 16), "z": (2, 4, 16, 8)}, {}, "eager@1.9", ["Movement", "Gemm"]),
    (RMS, {"x": (8, 16)}, {"s": VECTORS["s"]}, "eager@2.9", ["Normalization"]),
    (
        RMS,
        {"x": (8, 16)},
        {"s": VECTORS["s"]},
        "eager@2.8",
        ["Elementwise", "Reduction", *["Elementwise"] * 4],
    ),
    (MASKED, dict.fromkeys("qkv", HEADS) | {"mask": (16, 16)}, {}, "eager@2.1", ["Attention"]),
    (
        MASKED,
        dict.fromkeys("qkv", HEADS) | {"mask": (16, 16)},
        {},
        "eager@2.0",
        ["Elementwise", "Elementwise", "Gemm", "Elementwise", "Softmax", "Gemm"],
    ),
    (
        MASKED,
        dict.fromkeys("qkv", HEADS) | {"mask": (16, 16)},
        {},
        "compiled@2.0",
        ["Elementwise", "Elementwise", "Gemm", "Softmax", "Gemm"],
    ),
    ("y = Attention(q, k, v)", dict.fromkeys("qkv", HEADS), {}, "eager@2.0", ["Attention"]),
]


@pytest.mark.parametrize(
    ("text", "inputs", "constants", "runtime", "kernels"),
    KERNELS_OF_RELEASES,
    ids=[f"{row[0].split('(')[0].split('<')[0]} {next(iter(row[1].values()))} {row[3]}" for row in KERNELS_OF_RELEASES],
)
def test_kernels_of_a_release(
    text: str,
    inputs: dict[str, tuple[int, ...]],
    constants: dict[str, list[object]],
    runtime: str,
    kernels: list[str],
) -> None:
    graph = recognise(inferred(text, inputs, constants=constants, opset=23), runtime=runtime)
    found = [kernel for work in lower(graph, runtime=runtime) for kernel in work.kernels]
    assert [
        "+".join((type(kernel).__name__, *(kernel.epilogue if isinstance(kernel, Gemm) else ()))) for kernel in found
    ] == kernels


def test_reports_say_which_release() -> None:
    sizes = {"batch": 1, "sequence": 128}
    model = read_model(BERT)
    today = analyze(model, gpu="t4", dims=sizes, precision="fp16", runtime="eager")
    old = analyze(model, gpu="t4", dims=sizes, precision="fp16", runtime="eager@1.13")
    assert (today.settings.runtime, today.settings.runtime_release) == ("eager", "2.9")
    assert (old.settings.runtime, old.settings.runtime_release) == ("eager@1.13", "1.13")
    assert Counter(row.kernel_class for row in today.kernels)["attention"] == 12
    assert Counter(row.kernel_class for row in old.kernels)["attention"] == 0
    assert any(text.startswith("runtime eager: ") and "as of release 2.9" in text for text in today.assumptions)
    said = (
        "eager@1.13, otherwise than later releases: attention is computed as it is written, in products and a softmax"
    )
    assert said in old.assumptions
    assert said not in old.standing
    both = compare(
        model, gpus=["t4"], dims=sizes, precisions=["fp16"], runtimes=["eager@1.13", "eager", "eager@1.13.1"]
    )
    assert {case.runtime for case in both.cases} == {"eager", "eager@1.13", "eager@1.13.1"}
    assert next(case for case in both.cases if case.runtime == "eager@1.13").totals == old.totals


def test_training_at_a_release() -> None:
    """Gradients of attention follow what the release runs forward."""
    reports = [
        analyze(BERT, gpu="a100", dims={"batch": 4, "sequence": 128}, precision="bf16", runtime=runtime, training=PLAN)
        for runtime in ("eager", "eager@1.13", "eager@1.10")
    ]
    attentions = [any(row.kernel_class == "attention" for row in report.kernels) for report in reports]
    assert attentions == [True, False, False]
    latencies = [report.totals.latency_ms for report in reports]
    assert latencies == sorted(latencies)
    assert latencies[0] < latencies[1] < latencies[2]


@pytest.mark.parametrize("optimizer", ["adamw", "momentum", "none"])
def test_the_optimizer_before_foreach_was_the_default(optimizer: str) -> None:
    """A kernel for each operation and parameter, zeros in every gradient, which the next step adds to."""
    nodes = "h = MatMul(x, w)\nr = Relu(h)\ny = MatMul(r, v)"
    graph = inferred(nodes, {"x": (4, 8)}, weights={"w": (8, 16), "v": (16, 16)})
    plan = make_training(optimizer=optimizer, loss="none")
    counts: dict[str, Counter[str]] = {}
    for runtime in ("eager@2.0", "eager@1.13"):
        lowered = lower_laid_out(graph, runtime=runtime)
        trained = train(graph, lowered.works, lowered.strides, plan, runtime)
        stepping = [work for work in trained.works if work.phase == "optimizer" or work.op_type == "AccumulateGrad"]
        counts[runtime] = sum((Counter({work.node: work.count}) for work in stepping), Counter())
        assert trained.held is (optimizer != "none" and runtime == "eager@1.13")
    passes = {"adamw": "mul lerp mul addcmul sqrt div add addcdiv", "momentum": "mul add add", "none": ""}[optimizer]
    assert counts["eager@2.0"] == Counter(f"optimizer/{name}" for name in passes.split())
    alone = Counter(f"optimizer/{name}" for name in passes.replace("lerp", "mul add").split())
    zeroed = Counter({"optimizer/zero_grad": 2, "w": 1, "v": 1}) if passes else Counter()
    assert counts["eager@1.13"] == Counter({name: 2 * count for name, count in alone.items()}) + zeroed


@pytest.mark.parametrize(
    "command",
    [
        ["analyze", str(BERT), "--gpu", "t4"],
        ["sweep", str(BERT), "--gpu", "t4", "--batch", "1,2"],
        ["check", str(BERT), "--gpu", "t4"],
        ["compare", str(BERT), "--gpu", "t4"],
        ["diff", str(BERT), str(BERT), "--gpu", "t4"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_takes_a_release_and_says_it(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--dim", "sequence=16"] if command[0] == "sweep" else ["--dim", "batch=1,sequence=16"]
    code = main([*command, *sizes, "--runtime", "onnxruntime@1.9", "--format", "json"])
    out = capsys.readouterr().out
    assert code in (0, 1)
    found = json.loads(out)
    part = {
        "analyze": lambda: found["settings"],
        "sweep": lambda: found,
        "check": lambda: found["targets"][0],
        "compare": lambda: found["cases"][0],
        "diff": lambda: found["new"],
    }[command[0]]()
    assert (part["runtime"], part["runtime_release"]) == ("onnxruntime@1.9", "1.9")
    assert main([*command, *sizes, "--runtime", "onnxruntime@1.9"]) == code
    assert "onnxruntime@1.9" in capsys.readouterr().out
    assert main([*command, *sizes, "--runtime", "onnxruntime@1.x"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_report_of_another_release_is_compared_with_a_note(tmp_path: Path) -> None:
    """One that an earlier state of this tool wrote, whose newest release was an earlier one."""
    report = json.loads(to_json(analyze(BERT, gpu="t4", dims={"batch": 1, "sequence": 8}, runtime="eager")))
    new = tmp_path / "new.json"
    new.write_text(json.dumps(report), encoding="utf-8")
    old = tmp_path / "old.json"
    for release, said in (("2.8", ["the release of eager that is assumed differs: 2.8, now 2.9"]), (None, [])):
        settings = {**report["settings"], "runtime_release": release}
        if release is None:  # from before reports said it
            del settings["runtime_release"]
        old.write_text(json.dumps({**report, "settings": settings}), encoding="utf-8")
        assert [note for note in diff(old, new).notes if "release" in note] == said


@pytest.mark.parametrize("precision", ["auto", "fp16", "int8"])
@pytest.mark.parametrize("name", RUNTIMES)
def test_every_release_costs_every_example(name: str, precision: str) -> None:
    """Around each change; the work that is done (multiply-adds) is that of today. The first release, which differs in
    all changes, has a report in every precision, the others in one: what it says beside totals hangs on the release."""
    history = RUNTIMES[name].history
    releases = sorted({history.first, *(change.last_before for change in history.changes)})
    for path, dims in EXAMPLES.items():
        model = read_model(ROOT / "examples" / path)
        shaped = infer_shapes(model, make_bindings(dims))
        computed = resolve(precision, stored_precision(model))
        today = analyze(model, gpu="t4", dims=dims, precision=precision, runtime=name).totals
        for release in releases:
            runtime = f"{name}@{release_text(release)}"
            if precision == "auto" or release == history.first:
                totals = analyze(model, gpu="t4", dims=dims, precision=precision, runtime=runtime).totals
            else:
                totals = predict_totals(prepare(shaped, precision=computed, runtime=runtime), load_gpu("t4"))
            assert totals.macs == today.macs
            assert 0.5 * today.latency_ms < totals.latency_ms < 5 * today.latency_ms


def test_a_target_names_a_release(tmp_path: Path) -> None:
    file = tmp_path / "neusight.toml"
    text = '[[target]]\nmodel = "m.onnx"\ngpu = "t4"\nruntime = "{}"\n'
    file.write_text(text.format("tensorrt@8.2"), encoding="utf-8")
    (target,) = read_config(file).targets
    assert target.runtime == "tensorrt@8.2"
    file.write_text(text.format("tensorrt@6"), encoding="utf-8")
    (unknown,) = read_config(file).targets  # the check says so of that target, and judges the others
    with pytest.raises(NotSupportedError, match=r"take one from tensorrt@7.0 to tensorrt@11.0"):
        get_runtime(unknown.runtime)


# --- the page ---------------------------------------------------------------------------------------------------------


def _tables() -> str:
    lines: list[str] = []
    for name, runtime in RUNTIMES.items():
        history = runtime.history
        first, newest = release_text(history.first), release_text(history.newest)
        lines += [f"## `{name}`", "", f"{history.project} {first} to {newest}.", ""]
        if history.changes:
            lines += ["| from | since then | before | known from |", "|---|---|---|---|"]
            lines += [
                f"| {release_text(change.since)} | {change.what} | {change.before} | {change.source} |"
                for change in sorted(history.changes, key=lambda change: change.since)
            ]
        else:
            lines.append("Nothing is known to have changed.")
        lines.append("")
    return "\n".join(lines)


def test_the_page_of_releases_is_what_the_code_says() -> None:
    """NEUSIGHT_UPDATE_GOLDEN=1 pytest tests/test_releases.py writes it anew."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition("<!-- releases -->\n")
    shown, end, behind = rest.partition("<!-- /releases -->\n")
    assert begin
    assert end
    if os.environ.get("NEUSIGHT_UPDATE_GOLDEN"):
        PAGE.write_text(f"{before}{begin}{_tables()}{end}{behind}", encoding="utf-8")
        return
    assert shown == _tables(), "NEUSIGHT_UPDATE_GOLDEN=1 writes it anew"


# model, precision, runtime, what is said of the model, what is not (but by -v)
MET = [
    (
        "resnet50.onnx",
        "auto",
        "onnxruntime@1.9",
        ("sum and Relu behind a convolution in FP32 are part of it", "Relu behind a convolution in FP32 is part of it"),
        ("HardSwish is two kernels", "x * sigmoid(x) is two kernels"),
    ),
    (
        "bert_base.onnx",
        "fp16",
        "tensorrt@8.0",
        ("attention is two products and a softmax, scaled and masked, on every GPU",),
        ("activations other than Relu, Clip and Gelu behind a convolution are kernels of their own",),
    ),
    (
        "bert_base.onnx",
        "auto",
        "eager@1.9",
        ("FP32 products take TF32 units where there are some",),
        ("an RMS normalization is computed by its formula, in six kernels",),
    ),
]


@pytest.mark.parametrize(("model", "precision", "runtime", "met", "unmet"), MET, ids=[row[2] for row in MET])
def test_what_of_a_release_a_model_meets(
    model: str, precision: str, runtime: str, met: tuple[str, ...], unmet: tuple[str, ...]
) -> None:
    """A sentence for each change; those that change nothing of this model are said with -v alone."""
    report = analyze(ROOT / "examples" / model, gpu="a100", precision=precision, runtime=runtime)
    prefix = f"{runtime}, otherwise than later releases: "
    own = [text.removeprefix(prefix) for text in report.assumptions if text not in report.standing]
    assert set(met) <= set(own)
    assert not set(unmet) & set(own)
    assert {prefix + text for text in unmet} <= report.standing


def test_changes_that_hide_each_other_are_both_met() -> None:
    """Attention under PyTorch 1.13: of 2.0's operator and 2.1's masks neither alone changes masked attention back."""
    report = analyze(BERT, gpu="a100", precision="fp16", runtime="eager@1.13")
    own = [text for text in report.assumptions if text not in report.standing]
    assert any("as it is written, in products and a softmax" in text for text in own)
    assert any("attention with a mask is computed by its formula" in text for text in own)


def tried_one_by_one(prepared: PreparedModel) -> list[Change]:
    """The changes that are met, each tried from both sides: what :func:`changes_met` answers with fewer tries."""

    def executed(runtime: Runtime) -> list[object]:
        tried = prepare(prepared.shaped, precision=prepared.precision, runtime=runtime)
        return [(work.kernels, work.alternatives, work.count) for work in run_on(tried, load_gpu("a100")).works]

    runtime = prepared.runtime
    changes = runtime.undone(training=False)
    then, now = executed(runtime), executed(runtime.undoing(()))
    return [
        change
        for change in changes
        if executed(runtime.undoing(other for other in runtime.history.after(runtime.release) if other is not change))
        != then
        or executed(runtime.undoing((change,))) != now
    ]


@pytest.mark.parametrize(
    ("runtime", "most"),
    [("onnxruntime@1.7", 10), ("onnxruntime@1.18", 3), ("eager@1.8", 13), ("compiled@2.0", 2), ("tensorrt@8.4", 4)],
)
@pytest.mark.parametrize("model", EXAMPLES)
def test_only_what_was_asked_of_a_runtime_is_tried(
    model: str, runtime: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``most``: times that the model is prepared anew; each change tried twice would be 33, 11, 19, 5 and 5."""
    loaded = read_model(ROOT / "examples" / model)
    shaped = infer_shapes(loaded, make_bindings(EXAMPLES[model]))
    prepared = prepare(shaped, precision=resolve("auto", stored_precision(loaded)), runtime=runtime)
    tries = []

    def counted(*arguments: Any, **options: Any) -> PreparedModel:
        tries.append(options["runtime"].label)
        return prepare(*arguments, **options)

    monkeypatch.setattr("neusight_onnx.release_effects.prepare", counted)
    met = changes_met(prepared, lambda other: run_on(other, load_gpu("a100")).works)
    assert met is not None
    assert list(met) == tried_one_by_one(prepared)
    assert len(tries) <= most
