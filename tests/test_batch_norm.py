"""Batch normalization in training: whose kernels run, and how many blocks a channel has.

What is expected is what PyTorch 2.9.1 launches for ``nn.BatchNorm2d`` and ``nn.BatchNorm1d`` on stand-ins for CUDA's
libraries, and what TorchInductor writes there.
"""

from __future__ import annotations

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx import analyze
from neusight_onnx.backward import as_trained, make_training, train
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Elementwise, Kernel, Movement, Normalization, Reduction, TensorSpec
from neusight_onnx.laws.analytic.estimate import analytic_estimate
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.views import Order

FP32, FP16, BF16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
CHANNELS = 64
IMAGES = (8, CHANNELS, 56, 56)
COLUMNS = 8 * 56 * 56
LAST = Order(ranks=frozenset({4, 5}), given=True)
FIRST = Order()

COUNTED, UPDATED = "counted", "updated"
ONE = [COUNTED, f"one {CHANNELS}x{COLUMNS}"]
SPLIT = [COUNTED, f"moments {CHANNELS} of {COLUMNS}", "applied"]
OWN_SPLIT = [COUNTED, f"moments {CHANNELS} of {COLUMNS}", UPDATED, "applied"]
OWN_ONE = [COUNTED, f"channel_moments {CHANNELS} of {COLUMNS}", UPDATED, "applied"]
WRITTEN = [COUNTED, f"moments {CHANNELS} of {COLUMNS}", f"sum_parts {CHANNELS} of 64", "applied"]
BACK_ONE = [f"one backward {CHANNELS}x{COLUMNS}"]
BACK_SPLIT = [f"norm_parameters {CHANNELS} of {COLUMNS}", "applied backward"]
BACK_WRITTEN = [BACK_SPLIT[0], *[f"sum_parts {CHANNELS} of 64"] * 2, BACK_SPLIT[1]]

CASES: dict[str, tuple[str, int, int, Order, list[str], list[str]]] = {
    # runtime, type of images and of parameters, order, forward, backward
    "cuDNN, row-major": ("eager", FP32, FP32, FIRST, ONE, BACK_ONE),
    "cuDNN's persistent kernels": ("eager", FP32, FP32, LAST, SPLIT, BACK_SPLIT),
    "autocast in float16 stays cuDNN's": ("eager", FP16, FP32, FIRST, ONE, BACK_ONE),
    "parameters in float16 don't": ("eager", FP16, FP16, FIRST, OWN_ONE, BACK_ONE),
    "bfloat16 is PyTorch's, a block a channel": ("eager", BF16, FP32, FIRST, OWN_ONE, BACK_ONE),
    "bfloat16, rows split among blocks": ("eager", BF16, FP32, LAST, OWN_SPLIT, BACK_SPLIT),
    "written by Inductor": ("compiled", BF16, FP32, FIRST, WRITTEN, BACK_WRITTEN),
    "written by Inductor, channels last": ("compiled", FP32, FP32, LAST, WRITTEN, BACK_WRITTEN),
}


def shown(kernel: Kernel) -> str:
    match kernel:
        case Elementwise():
            return COUNTED if kernel.output.dtype is DataType.INT64 else UPDATED
        case Reduction():
            return f"{kernel.operation} {kernel.outputs} of {kernel.reduced}"
        case Normalization(fused=()):
            return f"applied{' backward' * kernel.backward}"
        case Normalization():
            return f"one {'backward ' * kernel.backward}{kernel.rows}x{kernel.cols}"
        case _:
            return type(kernel).__name__


def both(
    shape: tuple[int, ...], images: int, parameters: int, order: Order, runtime: str
) -> tuple[list[Kernel], list[Kernel]]:
    """Kernels of a batch normalization behind a product or a convolution, forward and backward.

    Left out: copies of a gradient that comes in the other order, the result being nobody's operand.
    """
    product = "Conv" if len(shape) == 4 else "MatMul"
    weight = (shape[1], shape[1], *(1 for _ in shape[2:]))
    vectors = dict.fromkeys("sbmv", (shape[1],))
    graph = inferred(
        f"h = {product} (x, w)\ny = BatchNormalization (h, s, b, m, v)",
        {"x": shape},
        weights={"w": weight, **vectors},
        types={"x": images, "w": images, **dict.fromkeys("sbmv", parameters)},
        opset=15,
    )
    plan = make_training(optimizer="none", loss="none")
    form = as_trained(graph, plan).graph
    lowered = lower_laid_out(form, runtime=runtime, order=order)
    result = train(form, lowered.works, lowered.strides, plan, runtime)
    forward = [work for work in lowered.works if work.op_type == "BatchNormalization"]
    backward = [step.work for step in result.steps if step.work.op_type == "BatchNormalization"]
    return (
        [kernel for work in forward for kernel in work.kernels],
        [kernel for work in backward for kernel in work.kernels if not isinstance(kernel, Movement)],
    )


@pytest.mark.parametrize(("runtime", "images", "parameters", "order", "forward", "backward"), CASES.values(), ids=CASES)
def test_kernels(
    runtime: str, images: int, parameters: int, order: Order, forward: list[str], backward: list[str]
) -> None:
    found = both(IMAGES, images, parameters, order, runtime)
    assert ([shown(kernel) for kernel in found[0]], [shown(kernel) for kernel in found[1]]) == (forward, backward)


def test_features_without_positions_are_pytorchs_and_split() -> None:
    forward, backward = both((256, 512), FP32, FP32, FIRST, "eager")
    assert [shown(kernel) for kernel in forward] == [COUNTED, "moments 512 of 256", UPDATED, "applied"]
    assert [shown(kernel) for kernel in backward] == ["norm_parameters 512 of 256", "applied backward"]


def test_many_channels_need_no_second_kernel_of_a_compiler() -> None:
    forward, _ = both((8, 2048, 7, 7), BF16, FP32, FIRST, "compiled")
    assert [shown(kernel) for kernel in forward] == [COUNTED, "moments 2048 of 392", "applied"]


def test_a_compiler_computes_the_gradient_of_relu_in_both_kernels() -> None:
    """Each reads the input, the gradient that arrives and Relu's result; only the input's gradient is written."""
    graph = inferred(
        "h = Conv (x, w)\nn = BatchNormalization (h, s, b, m, v)\nr = Relu (n)\ny = Conv (r, w)",
        {"x": IMAGES},
        weights={"w": (CHANNELS, CHANNELS, 1, 1), **dict.fromkeys("sbmv", (CHANNELS,))},
        opset=15,
    )
    plan = make_training(optimizer="none", loss="none")
    form = as_trained(graph, plan).graph
    lowered = lower_laid_out(form, runtime="compiled")
    works = train(form, lowered.works, lowered.strides, plan, "compiled", merged=lowered.works).works
    kernels = [kernel for work in works if work.phase == "backward" for kernel in work.kernels]
    assert not any(isinstance(kernel, Elementwise) and kernel.output.shape == IMAGES for kernel in kernels)
    (sums,) = (kernel for kernel in kernels if isinstance(kernel, Reduction) and kernel.operation == "norm_parameters")
    (applied,) = (kernel for kernel in kernels if isinstance(kernel, Normalization))
    image = 4 * CHANNELS * COLUMNS
    assert sums.read_bytes == 3 * image
    assert applied.read_bytes == pytest.approx(3 * image, rel=0.001)
    assert applied.write_bytes == image


def test_few_elements_that_lie_apart_are_reduced_in_one() -> None:
    forward, _ = both((2, 64, 8, 8), FP32, FP32, LAST, "compiled")
    assert [shown(kernel) for kernel in forward] == [COUNTED, "moments 64 of 128", "applied"]


def test_a_block_a_channel_waits_and_split_rows_stream() -> None:
    """64 channels of 3,211,264 elements, 411 MB: 6,272 loads of 600 cycles at 1.98 GHz are 1.9 ms, DRAM takes 0.14."""

    def moments(operation: str) -> Reduction:
        output = TensorSpec(dtype=DataType.FLOAT32, shape=(64, 2))
        return Reduction(operation=operation, outputs=64, reduced=3_211_264, dtype=DataType.BFLOAT16, output=output)

    waits, streams = analytic_estimate(
        [moments("channel_moments"), moments("moments")], load_gpu("h100-sxm")
    ).latency_us
    assert waits == pytest.approx(1900, rel=0.05)
    assert 123 < streams < 200


@pytest.mark.parametrize(("runtime", "channels_last"), [("eager", True), ("compiled", False), ("compiled", True)])
def test_few_channels_take_what_many_take_of_the_same_bytes(runtime: str, channels_last: bool) -> None:
    """Forward and backward of 64 x 112 x 112 and 2,048 x 14 x 28 take the same, by their bytes."""
    gpu = load_gpu("a100")
    times = []
    for shape in ((64, 64, 112, 112), (64, 2048, 14, 28)):
        forward, backward = both(shape, BF16, FP32, LAST if channels_last else FIRST, runtime)
        times.append(analytic_estimate([*forward, *backward], gpu).latency_us.sum())
    assert times[0] == pytest.approx(times[1], rel=0.1)


def test_channels_last_trains_quicker_by_its_batch_normalizations() -> None:
    """ResNet-50: in row-major order a block goes through all of a channel's elements."""
    options = {"gpu": "a100", "dims": {"batch": 64}, "precision": "bf16", "training": make_training(optimizer="none")}
    seconds = []
    for channels_last in (False, True):
        report = analyze("examples/resnet50.onnx", channels_last=channels_last, **options)
        norms = [kernel for kernel in report.kernels if "BatchNormalization" in kernel.op_types]
        seconds.append(sum(kernel.latency_us * kernel.count for kernel in norms))
    assert seconds[1] < 0.75 * seconds[0]
