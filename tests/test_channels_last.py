"""Images and filters channels last: which operators keep that order, who copies, and what each command makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from graphs import inferred
from models import graph, model, node, value
from neusight_onnx import NeusightError, analyze, compare, sweep
from neusight_onnx.backward import make_training
from neusight_onnx.cli import main
from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import Conv, Kernel, Movement, Reduction
from neusight_onnx.laws.conv import columns as conv_columns
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.views import Order
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import get_runtime
from neusight_onnx.strides import channels_last_strides, contiguous_strides, suggests_channels_last

GIVEN = Order(ranks=frozenset({4, 5}), given=True)
LAST, FIRST = "channels last", "row-major"

# Recorded with PyTorch 2.14: the strides of results of float16 tensors on a (fake) CUDA device, where x (2, 64, 8, 10)
# and the filters lie channels last, z of the same shape in row-major order.
KEPT: dict[str, tuple[str, str]] = {
    "convolution": ("y = Conv (x, w)", LAST),
    "of a tensor in row-major order": ("y = Conv (z, w)", LAST),
    "1x1, of one in row-major order": ("y = Conv (z, w1)", LAST),
    "depthwise, of one in row-major order": ("y = Conv <group = 64> (z, wd)", LAST),
    "of a slice of channels": ("a = Slice (x, zero, half, one)\ny = Conv (a, wh)", LAST),
    "transposed": ("y = ConvTranspose (z, wt)", LAST),
    "batch normalization": ("y = BatchNormalization (x, s, s, s, s)", LAST),
    "group normalization": ("y = GroupNormalization <num_groups = 8> (x, s, s)", FIRST),
    "instance normalization": ("y = InstanceNormalization (x, s, s)", FIRST),
    "local response normalization": ("y = LRN <size = 5> (x)", LAST),
    "maximum of windows": ("y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)", LAST),
    "average of windows": ("y = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)", LAST),
    "upsampled": ('y = Resize <mode = "nearest"> (x, , , sizes)', LAST),
    "padded by a constant": ("y = Pad (x, pads)", LAST),
    "padded by a reflection": ('y = Pad <mode = "reflect"> (x, pads)', FIRST),
    "concatenated": ("y = Concat <axis = 1> (x, x)", LAST),
    "concatenated with the other order": ("y = Concat <axis = 1> (x, z)", FIRST),
    "slices concatenated": ("a, b = Split <axis = 1, num_outputs = 2> (x)\ny = Concat <axis = 1> (a, b)", LAST),
    "activation": ("y = Relu (x)", LAST),
    "activation of a slice": ("a = Slice (x, zero, half, one)\ny = Relu (a)", LAST),
    "sum, the first operand decides": ("y = Add (x, z)", LAST),
    "sum, the first operand decides for row-major": ("y = Add (z, x)", FIRST),
    "scaled by channel": ("g = GlobalAveragePool (x)\ny = Mul (x, g)", LAST),
    "scaled by channel, the scale first": ("g = GlobalAveragePool (x)\ny = Mul (g, x)", LAST),
    "cast": ("y = Cast <to = 1> (x)", LAST),
    "softmax over channels": ("y = Softmax <axis = 1> (x)", FIRST),
    "rearranged": ("y = DepthToSpace <blocksize = 2> (x)", FIRST),
    "reshaped to one vector a sample": ("y = Flatten <axis = 1> (x)", FIRST),
}
WEIGHTS = {
    "w": (32, 64, 3, 3),
    "w1": (32, 64, 1, 1),
    "wd": (64, 1, 3, 3),
    "wh": (16, 32, 3, 3),
    "wt": (64, 32, 2, 2),
    "s": (64,),
}
CONSTANTS: dict[str, object] = {
    "zero": [0],
    "half": [32],
    "one": [1],
    "sizes": [2, 64, 16, 20],
    "pads": [0, 0, 1, 1, 0, 0, 1, 1],
}


def laid_out(nodes: str, opset: int = 21) -> InferredGraph:
    """``nodes`` of an image x, which a convolution reads, and of z, which lies in row-major order."""
    whole = f"{nodes}\nimage = Conv (x, w)\nz = Reshape (flat, shape)"
    head, *others = whole.splitlines()[::-1]
    ordered = "\n".join((head, *others[::-1]))
    return inferred(
        ordered,
        {"x": (2, 64, 8, 10), "flat": (2, 5120)},
        weights=WEIGHTS,
        constants={**CONSTANTS, "shape": [2, 64, 8, 10]},
        types=dict.fromkeys(("x", "flat", *WEIGHTS), onnx.TensorProto.FLOAT16),
        opset=opset,
    )


@pytest.mark.parametrize(("nodes", "order"), KEPT.values(), ids=KEPT)
def test_operators_keep_the_order_that_pytorch_keeps(nodes: str, order: str) -> None:
    found = laid_out(nodes)
    shape = found.values["y"].shape
    assert shape is not None
    strides = lower_laid_out(found, runtime="eager", order=GIVEN).strides.get("y", contiguous_strides(shape))
    assert strides == (channels_last_strides(shape) if order == LAST else contiguous_strides(shape))


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        pytest.param((2, 64, 8, 10), (5120, 1, 640, 64), True, id="dense"),
        pytest.param((2, 32, 8, 10), (5120, 1, 640, 64), True, id="a slice of channels"),
        pytest.param((2, 64, 8, 10), (5120, 80, 10, 1), False, id="row-major"),
        # the weights of nn.Conv2d(64, 32, 1) and of a depthwise one after .to(memory_format=torch.channels_last)
        pytest.param((32, 64, 1, 1), (64, 1, 64, 64), True, id="1x1 filters"),
        pytest.param((64, 1, 3, 3), (9, 1, 3, 1), True, id="depthwise filters"),
        pytest.param((32, 64, 1, 1), (64, 1, 1, 1), False, id="1x1 filters as they were"),
        pytest.param((4, 1, 1, 1), (1, 1, 1, 1), False, id="nothing but samples"),
        pytest.param((2, 64, 8, 10), (64, 1, 0, 0), False, id="repeated over an image"),
        pytest.param((2, 3, 4, 5, 6), (360, 1, 90, 18, 3), True, id="a volume"),
        pytest.param((2, 3, 4), (12, 1, 3), False, id="a line has no such order"),
    ],
)
def test_what_pytorch_takes_for_channels_last(shape: tuple[int, ...], strides: tuple[int, ...], expected: bool) -> None:
    assert suggests_channels_last(shape, strides) is expected


def kernels_of(found: InferredGraph, runtime: str, *, channels_last: bool) -> list[Kernel]:
    works = works_of(found, get_runtime(runtime, channels_last=channels_last))
    return [kernel for work in works for kernel in work.kernels]


def copies(kernels: list[Kernel]) -> list[tuple[int, ...]]:
    return [kernel.shape for kernel in kernels if isinstance(kernel, Movement) and kernel.operation == "copy"]


TOKENS = "h = Conv (x, w)\nt = Flatten <axis = 1> (h)\nr = Reshape (t, back)\ny = Conv (r, w2)"
FEW: dict[str, tuple[str, list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    # what is copied in row-major order, and channels last: sizes in the order that they lie in
    "convolutions in a row": ("h = Conv (x, w)\ny = Conv (h, w2)", [], []),
    "a slice of channels": (
        "h = Conv (x, w)\na = Slice (h, zero, two, one)\ny = Conv (a, w3)",
        [(2, 2, 6, 6)],
        [(2, 6, 6, 2)],
    ),
    "to tokens: positions before channels": (
        "h = Conv (x, w)\nf = Reshape (h, pos)\nt = Transpose <perm = [0, 2, 1]> (f)\ny = Softmax (t)",
        [(2, 4, 36)],
        [],
    ),
    "one vector a sample, and back": (TOKENS, [], [(2, 6, 6, 4), (2, 4, 6, 6)]),
    "group normalization": (
        "h = Conv (x, w)\ng = GroupNormalization <num_groups = 2> (h, s, s)\ny = Conv (g, w2)",
        [],
        [(2, 6, 6, 4), (2, 4, 6, 6)],
    ),
}


@pytest.mark.parametrize(("nodes", "before", "behind"), FEW.values(), ids=FEW)
def test_who_needs_another_order_copies(
    nodes: str, before: list[tuple[int, ...]], behind: list[tuple[int, ...]]
) -> None:
    found = inferred(
        nodes,
        {"x": (2, 3, 8, 8)},
        weights={"w": (4, 3, 3, 3), "w2": (4, 4, 3, 3), "w3": (4, 2, 3, 3), "s": (4,)},
        constants={"zero": [0], "two": [2], "one": [1], "pos": [2, 4, 36], "back": [2, 4, 6, 6]},
        opset=21,
    )
    assert copies(kernels_of(found, "eager", channels_last=False)) == before
    kernels = kernels_of(found, "eager", channels_last=True)
    assert copies(kernels) == behind
    assert all(kernel.channels_last for kernel in kernels if isinstance(kernel, Conv))


def test_only_what_convolutions_are_made_of_is_an_image() -> None:
    """A cache (batch, heads, tokens, size) stays as it is: a product's operand copies nothing."""
    found = inferred(
        "h = Conv (x, w)\nk = Transpose <perm = [0, 1, 3, 2]> (cache)\ny = MatMul (q, k)",
        {"x": (2, 3, 8, 8), "q": (2, 4, 1, 16), "cache": (2, 4, 7, 16)},
        weights={"w": (4, 3, 3, 3)},
    )
    strides = lower_laid_out(found, runtime="eager", order=GIVEN).strides
    assert strides["x"] == (192, 1, 24, 3)
    assert "cache" not in strides
    assert "q" not in strides


def test_a_sum_over_positions_takes_channels_side_by_side() -> None:
    found = inferred(
        "h = Conv (x, w)\ny = ReduceMean <axes = [2, 3]> (h)",
        {"x": (2, 3, 8, 8)},
        weights={"w": (4, 3, 3, 3)},
        opset=17,
    )
    inner = [
        [kernel.inner for kernel in kernels_of(found, "eager", channels_last=last) if isinstance(kernel, Reduction)]
        for last in (False, True)
    ]
    assert inner == [[1], [4]]


# --- compiled ---------------------------------------------------------------------------------------------------------

TWO = "h = Conv (x, w)\nr = Relu (h)\ny = Conv (r, w2)"


def test_inductor_copies_what_does_not_lie_as_it_wants() -> None:
    """The image and both filters in every run (``require_channels_last`` in its kernel/conv.py), no activation."""
    weights = {"w": (128, 3, 3, 3), "w2": (128, 128, 3, 3)}
    found = inferred(TWO, {"x": (2, 3, 16, 16)}, weights=weights)
    kernels = kernels_of(found, "compiled", channels_last=False)
    assert copies(kernels) == [(2, 3, 16, 16), (128, 3, 3, 3), (128, 128, 3, 3)]
    assert all(kernel.channels_last for kernel in kernels if isinstance(kernel, Conv))
    assert copies(kernels_of(found, "compiled", channels_last=True)) == []


def test_inductor_leaves_groups_as_they_are_unless_asked() -> None:
    found = inferred("y = Conv <group = 4> (x, w)", {"x": (2, 128, 16, 16)}, weights={"w": (128, 32, 3, 3)})
    for asked in (False, True):
        (kernel,) = kernels_of(found, "compiled", channels_last=asked)
        assert isinstance(kernel, Conv)
        assert kernel.channels_last is asked


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behind", "copied"),
    [
        pytest.param("n = BatchNormalization (h, s, s, s, s)\nr = Relu (n)", 0, id="all keep the order"),
        # its input, and the convolution's behind it; backwards what that gives pooling, and what the first gets
        pytest.param("r = GroupNormalization <num_groups = 2> (h, s, s)", 4, id="a group normalization doesn't"),
    ],
)
def test_gradients_lie_as_values_do(behind: str, copied: int, tmp_path: Path) -> None:
    nodes = f"h = Conv (x, w)\n{behind}\np = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)\nc = Conv (p, w2)"
    found = inferred(
        f"{nodes}\ny = GlobalAveragePool (c)",
        {"x": (2, 3, 16, 16)},
        weights={"w": (4, 3, 3, 3), "w2": (8, 4, 3, 3), "s": (4,)},
        opset=21,
    )
    from neusight_onnx.backward import as_trained, train

    plan = make_training(optimizer="none", loss="none")
    form = as_trained(found, plan).graph
    lowered = lower_laid_out(form, runtime="eager", order=GIVEN)
    works = train(form, lowered.works, lowered.strides, plan, "eager").works
    assert len(copies([kernel for work in works for kernel in work.kernels])) == copied


# --- the law ----------------------------------------------------------------------------------------------------------


def test_fp32_channels_last_is_direct() -> None:
    """cuDNN's and MIOpen's Winograd kernels in FP32 read (n, c, h, w) alone."""
    sizes = {"n": 8, "c": 64, "k": 64, "spatial": (28, 28), "out": (28, 28), "filter": (3, 3)}
    first, last = (
        Conv(**sizes, strides=(1, 1), dilations=(1, 1), dtype=DataType.FLOAT32, channels_last=order)  # type: ignore[arg-type]  # sizes are of their types
        for order in (False, True)
    )
    assert conv_columns.columns((first, last))["winograd"].tolist() == [1.0, 0.0]


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    weight = onnx.numpy_helper.from_array(np.zeros((64, 64, 3, 3), np.float16), "w")
    nodes = [node("Conv", "x w", "h", "first"), node("Relu", "h", "y", "act")]
    half = onnx.TensorProto.FLOAT16
    proto = model(
        graph(nodes, [value("x", ["batch", 64, 56, 56], half)], [value("y", ["batch", 64, 54, 54], half)], [weight])
    )
    onnx.save(proto, tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "m.onnx"


RESNET = Path(__file__).parents[1] / "examples" / "resnet50.onnx"


@pytest.mark.parametrize(
    ("gpu", "runtime", "precision", "said"),
    [
        ("t4", "compiled", "fp32", True),
        ("a100", "compiled", "auto", False),  # TF32
        ("t4", "compiled", "fp16", False),
        ("t4", "eager", "fp32", False),
    ],
)
def test_that_the_compilers_order_loses_winograd_is_said(gpu: str, runtime: str, precision: str, said: bool) -> None:
    report = analyze(RESNET, gpu=gpu, batch=8, runtime=runtime, precision=precision)
    assert any("no Winograd algorithm in that order" in text for text in report.assumptions) is said


ASKED = ["--runtime", "eager", "--channels-last"]


def test_every_command_costs_it_and_says_so(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = analyze(image, gpu="a100", batch=64, runtime="eager")
    wanted = analyze(image, gpu="a100", batch=64, runtime="eager", channels_last=True)
    assert wanted.totals.latency_ms < plain.totals.latency_ms, "nothing is transposed"
    assert any(text.startswith("images and filters lie channels last") for text in wanted.assumptions)
    assert any(text.endswith("order has none: --channels-last)") for text in plain.assumptions)
    latency_ms = pytest.approx(wanted.totals.latency_ms, rel=1e-4)
    at = ["--gpu", "a100", "--batch", "64", *ASKED]
    for command in (["analyze", "m.onnx"], ["compare", "m.onnx"], ["check", "m.onnx"], ["diff", "m.onnx", "m.onnx"]):
        assert main([*command, *at, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        of = {"analyze": "settings", "compare": "cases", "check": "targets", "diff": "new"}[command[0]]
        part = found[of] if isinstance(found[of], dict) else found[of][0]
        assert (found if command[0] == "compare" else part)["channels_last"] is True
        assert (found["totals"] if command[0] == "analyze" else part)["latency_ms"] == latency_ms
        assert main([*command, *at]) == 0
        assert "channels last" in " ".join(capsys.readouterr().out.split())
    assert main(["sweep", "m.onnx", "--gpu", "a100", "--batch", "64,128", *ASKED, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["channels_last"] is True
    assert found["points"][0]["latency_ms"] == latency_ms
    assert main(["annotate", "m.onnx", *at, "-o", "out.onnx"]) == 0
    notes = {entry.key: entry.value for entry in onnx.load("out.onnx").metadata_props}
    assert notes["neusight.channels_last"] == "true"
    assert float(notes["neusight.latency_ms"]) == latency_ms
    capsys.readouterr()
    changed = ["--runtime", "eager", "--what-if", "channels_last=on"]
    assert main(["analyze", "m.onnx", *at[:4], *changed, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["what_if"][0]["latency_ms"] == latency_ms
    Path("neusight.toml").write_text(
        '[[target]]\nmodel = "m.onnx"\ngpu = "a100"\nbatch = 64\nruntime = "eager"\nchannels-last = true\n'
    )
    assert main(["check", "--format", "json"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert (target["channels_last"], target["latency_ms"]) == (True, latency_ms)


def test_it_is_kept_where_other_batches_are_tried(image: Path) -> None:
    found = sweep(image, gpu="a100", batch=[32, 64], runtime="eager", channels_last=True)
    alone = analyze(image, gpu="a100", batch=64, runtime="eager", channels_last=True, with_largest_batch=True)
    totals = found.points[1].totals
    assert totals is not None
    assert totals.latency_ms == pytest.approx(alone.totals.latency_ms)
    assert alone.totals.memory.largest_batch is not None


@pytest.mark.parametrize("runtime", ["onnxruntime", "tensorrt"])
def test_a_runtime_with_its_own_order_refuses_it(runtime: str, image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = f"{runtime} lays them out itself; leave --channels-last out, or take runtime compiled or eager"
    for command in (["analyze", "m.onnx"], ["check", "m.onnx"], ["annotate", "m.onnx", "-o", "o.onnx"]):
        assert main([*command, "--gpu", "a100", "--batch", "8", "--runtime", runtime, "--channels-last"]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    with pytest.raises(NeusightError, match="channels last"):
        compare(image, gpus=["a100"], batch=8, runtimes=["eager", runtime], channels_last=True)
    changed = f"runtime={runtime},channels_last=on"
    assert main(["analyze", "m.onnx", "--gpu", "a100", "--batch", "8", "--what-if", changed]) == 2
    assert message in capsys.readouterr().err


def test_it_needs_no_convolution(tmp_path: Path) -> None:
    bert = read_model(Path(__file__).parents[1] / "examples" / "bert_base.onnx")
    totals = [
        analyze(bert, gpu="a100", batch=2, runtime="eager", channels_last=last).totals.latency_ms
        for last in (False, True)
    ]
    assert totals[0] == totals[1]
