"""Instructions of ONNX Runtime's kernels, and what issuing them takes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx import load_gpu
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import (
    Elementwise,
    GatherScatter,
    Kernel,
    Movement,
    Normalization,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.laws.bandwidth import l2_bytes_per_s
from neusight_onnx.laws.issue import instructions_of, issue_us, merged, with_issue
from neusight_onnx.lowering.own_kernels import with_own_kernels
from neusight_onnx.lowering.walk import lower
from neusight_onnx.predictor import predict
from neusight_onnx.runtime import RUNTIMES, get_runtime

HALF, FLOAT = DataType.FLOAT16, DataType.FLOAT32
A100, H100 = load_gpu("a100-sxm-40gb"), load_gpu("h100-sxm")
ORT = "onnxruntime"


def spec(*shape: int, dtype: DataType = HALF) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape)


def pointwise(*operations: str, inputs: tuple[TensorSpec, ...], dtype: DataType = HALF) -> Elementwise:
    """Of the first input's shape; operands of other formats keep theirs."""
    whole = max(inputs, key=lambda operand: operand.element_count)
    return Elementwise(operations=operations, inputs=inputs, output=replace(whole, dtype=dtype), library=ORT)


def moved(operation: str, *shape: int, dtype: DataType = HALF, permutation: tuple[int, ...] | None = None) -> Movement:
    size = dtype.bytes_of(int(np.prod(shape)))
    return Movement(
        operation=operation,
        dtype=dtype,
        shape=shape,
        permutation=permutation,
        read=size,
        written=size,
        run=shape[-1],
        library=ORT,
    )


X, MASK, SCORES, VECTOR = spec(16, 384, 1024), spec(16, 1, 1, 384), spec(16, 16, 384, 384), spec(1024)
N = 16 * 384 * 1024


# Counts of benchmarks/ort_instructions.py for onnxruntime-gpu 1.31.1, compute capability 8.0 and 9.0, an element.
def attention_softmax(cols: int, *operands: TensorSpec) -> Softmax:
    """The softmax between attention's products, with what says which keys are there."""
    fused = ("add",) * len(operands)
    return Softmax(rows=6144, cols=cols, dtype=HALF, library=ORT, fused=fused, extra_inputs=operands, by_block=True)


@pytest.mark.parametrize(
    ("kernel", "elements", "ampere", "hopper"),
    [
        pytest.param(pointwise("add", inputs=(X, X)), N, 16.5, 17.0, id="sum"),
        pytest.param(pointwise("relu", inputs=(X,)), N, 16.5, 18.75, id="unary"),
        pytest.param(pointwise("add", inputs=(X, VECTOR)), N, 24.0, 27.5, id="bias on the right"),
        pytest.param(pointwise("add", inputs=(VECTOR, X)), N, 42.0, 52.0, id="bias on the left"),
        pytest.param(pointwise("add", inputs=(SCORES, MASK)), 6 * N, 50.25, 63.0, id="mask"),
        pytest.param(
            pointwise("mul", inputs=(spec(16, 384, 1), spec(1, 1, 1024), X)), N, 45.25, 58.5, id="two that broadcast"
        ),
        pytest.param(pointwise("div", inputs=(X,)), N, 27.75, 29.0, id="division"),
        pytest.param(pointwise("erf", inputs=(X,)), N, 47.25, 50.0, id="erf"),
        pytest.param(pointwise("add", "gelu", inputs=(X, VECTOR)), N, 36.0, 37.0, id="BiasGelu"),
        pytest.param(
            pointwise("gelu_tanh", inputs=(spec(16, 384, 1024, dtype=FLOAT),), dtype=FLOAT),
            N,
            41.0,
            45.0,
            id="FastGelu",
        ),
        pytest.param(pointwise("where", inputs=(X, X, X)), N, 20.0, 21.75, id="where"),
        pytest.param(pointwise("where", inputs=(SCORES, MASK, SCORES)), 6 * N, 62.0, 71.5, id="where, broadcast"),
        pytest.param(moved("transpose", 16, 384, 16, 64, permutation=(0, 2, 1, 3)), N, 7.88, 8.25, id="heads apart"),
        pytest.param(moved("transpose", 16, 384, 16, 64, permutation=(0, 2, 3, 1)), N, 36.5, 41.25, id="tiles"),
        pytest.param(
            moved("transpose", 8, 196, 3, 16, 64, permutation=(2, 0, 3, 1, 4)),
            8 * 196 * 3072,
            58.0,
            77.0,
            id="any order",
        ),
        pytest.param(moved("transpose", 16, 384, 1024, permutation=(0, 1, 2)), N, 0.0, 0.0, id="a copy"),
        pytest.param(moved("slice", 16, 384, 1024), N, 34.25, 44.5, id="slice"),
        pytest.param(moved("concat", 16, 384, 1024), N, 29.75, 35.5, id="concat"),
        pytest.param(moved("transpose", 8, 20, 2500, permutation=(0, 2, 1)), 400_000, 59.05, 66.7, id="cut tiles"),
        pytest.param(moved("transpose", 1024, 1024, permutation=(1, 0)), 1 << 20, 30.5, 33.5, id="matrix"),
        pytest.param(
            moved("transpose", 1024, 1024, dtype=FLOAT, permutation=(1, 0)), 1 << 20, 0.0, 0.0, id="matrix by cuBLAS"
        ),
        pytest.param(
            moved("transpose", 1024, 1024, dtype=DataType.INT64, permutation=(1, 0)), 1 << 20, 34.0, 44.0, id="integers"
        ),
        pytest.param(
            moved("transpose", 16, 384, 16, 16, 4, permutation=(0, 2, 1, 3, 4)), N, 7.88, 8.25, id="rows of two sizes"
        ),
        pytest.param(pointwise("add", inputs=(spec(1, 64, 3136), spec(64, 1))), 200_704, 19.0, 21.75, id="one image"),
        pytest.param(moved("bias", 6144, 1024), N, 92.0, 99.0, id="bias of Gemm"),
        pytest.param(moved("cast", 16, 384, 1024), N, 16.5, 18.75, id="cast"),
        pytest.param(moved("copy", 16, 384, 1024), N, 0.0, 0.0, id="copied by the driver"),
        *(
            pytest.param(
                replace(moved("resize", 8, 64, 112, 112), taps=taps), 6_422_528, *counted, id=f"resize, {taps}"
            )
            for taps, counted in ((1, (42.0, 53.0)), (4, (92.5, 95.0)), (16, (200.5, 195.5)))
        ),
        pytest.param(
            GatherScatter(
                operation="embedding",
                moved=N,
                run=1024,
                dtype=HALF,
                index_count=6144,
                index_dtype=DataType.INT64,
                library=ORT,
            ),
            N,
            43.0,
            50.0,
            id="gather",
        ),
        *(
            pytest.param(
                Softmax(rows=6144, cols=cols, dtype=HALF, library=ORT), 6144 * cols, each, each, id=f"row {cols}"
            )
            for cols, each in ((32, 74.0), (64, 52.75), (128, 42.1), (384, 41.2), (512, 34.5), (1024, 33.25))
        ),
        *(
            pytest.param(
                Softmax(rows=6144, cols=cols, dtype=dtype, library=ORT),
                6144,
                row * 128,
                row * 128,
                id=f"{dtype} {cols}",
            )
            for dtype, cols, row in (  # issue slots of a row, four schedulers' (benchmarks/block_wait.py)
                (HALF, 1500, 737),
                (HALF, 2000, 965),
                (HALF, 2048, 823),
                (HALF, 2049, 838),
                (HALF, 4096, 1603),
                (HALF, 6144, 2876),
                (HALF, 8192, 3164),
                (DataType.FLOAT32, 1032, 666),
                (DataType.FLOAT32, 1500, 846),
                (DataType.FLOAT32, 2048, 933),
                (DataType.FLOAT32, 8192, 2944),
            )
        ),
        *(
            pytest.param(attention_softmax(cols, *operands), 6144 * cols, ampere, hopper, id=f"attention {cols}")
            for cols, operands, ampere, hopper in (
                (128, [spec(16, 128)], 160.75, 185.25),
                (384, [spec(16, 384)], 209.75, 240.2),
                (2048, [spec(16, 2048)], 61.5, 69.1),
                (128, [spec(16)], 112.75, 127.75),
                (128, [], 116.75, 138.25),
            )
        ),
        *(
            pytest.param(
                Normalization(method="layer", rows=6144, cols=cols, dtype=dtype, library=ORT), 6144 * cols, each, each
            )
            for cols, dtype, each in (
                (384, HALF, 124.0),
                (1024, HALF, 86.3),
                (4096, HALF, 69.4),
                (384, FLOAT, 114.7),
                (1024, FLOAT, 72.0),
                (4096, FLOAT, 53.45),
            )
        ),
        pytest.param(
            Normalization(method="layer", rows=6144, cols=1024, dtype=HALF, fused=("add",), library=ORT),
            N,
            27.3,
            29.75,
            id="SkipLayerNormalization",
        ),
        pytest.param(
            Reduction(operation="mean", outputs=6144, reduced=1024, dtype=HALF, output=spec(6144), library=ORT),
            N,
            42.8,
            41.2,
            id="mean of rows",
        ),
        pytest.param(
            Reduction(operation="mean", outputs=6144, reduced=64, inner=8, dtype=HALF, output=spec(6144), library=ORT),
            1,
            0.0,
            0.0,
            id="mean of columns: cuDNN's",
        ),
        *(
            pytest.param(
                Reduction(
                    operation="cumsum", outputs=64, reduced=cols, dtype=dtype, output=spec(64, cols), library=ORT
                ),
                64 * cols,
                ampere,
                hopper,
                id=f"cumulative sum of {cols} in {dtype.label}",
            )
            for cols, dtype, ampere, hopper in (
                (600, FLOAT, 1370.0, 1262.0),
                (600, DataType.INT32, 1228.0, 1099.0),
                (600, DataType.INT64, 120.1, 124.9),  # scanned, by a block a row
                (20, DataType.INT64, 1576.0, 1547.2),
            )
        ),
    ],
)
def test_counts(kernel: Kernel, elements: int, ampere: float, hopper: float) -> None:
    each = [instructions_of(kernel, hopper=recent) / elements for recent in (False, True)]
    assert each == pytest.approx([ampere, hopper], rel=0.05)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(replace(pointwise("add", inputs=(X, VECTOR)), library=""), id="PyTorch's sum"),
        pytest.param(replace(moved("concat", 16, 384, 64), library="own"), id="made for its shape"),
        pytest.param(Softmax(rows=64, cols=64, dtype=HALF), id="PyTorch's softmax"),
    ],
)
def test_other_kernels_have_no_counts(kernel: Kernel) -> None:
    assert instructions_of(kernel, hopper=False) == 0.0
    assert issue_us([kernel], A100) is None


@pytest.mark.parametrize(
    ("gpu", "lanes"),
    [
        pytest.param("a100-sxm-40gb", 128, id="four schedulers"),
        pytest.param("p100-pcie-16gb", 64, id="Pascal's 64 lanes"),
        pytest.param("p4", 128, id="Pascal's 128 lanes"),
        pytest.param("mi210", 64, id="a compute unit's lanes"),
    ],
)
def test_time_of_issuing(gpu: str, lanes: int) -> None:
    """16.5 instructions an element over lanes x SMs x clock."""
    card = load_gpu(gpu)
    found = issue_us([pointwise("add", inputs=(X, X))], card)
    assert found is not None
    assert found[0] == pytest.approx(N * 16.5 / (lanes * card.sm_count * card.clock_hz) * 1e6)


def test_it_competes_with_the_rest_of_the_time() -> None:
    """2 us of start beside: far below, equal (2 ** (1 / 8) of either), far above."""
    found = with_issue(np.full(3, 102.0), np.full(3, 2.0), np.array([10.0, 100.0, 1000.0]))
    assert found == pytest.approx([102.0, 2.0 + 100.0 * 2**0.125, 1002.0], rel=1e-6)


@pytest.mark.parametrize(
    ("shape", "permutation", "sizes", "order"),
    [
        pytest.param((2, 3, 4, 5), (0, 2, 3, 1), (2, 3, 20), (0, 2, 1), id="neighbours merge"),
        pytest.param((2, 3, 4, 5), (0, 1, 2, 3), (120,), (0,), id="none moves"),
        pytest.param((2, 3, 1, 5), (0, 2, 1, 3), (30,), (0,), id="one of one element"),
        pytest.param((2, 3, 4, 5), (3, 2, 1, 0), (2, 3, 4, 5), (3, 2, 1, 0), id="all turn"),
        pytest.param((2, 3, 4), (2, 0, 1), (6, 4), (1, 0), id="the last to the front"),
        pytest.param((2, 0, 4), (1, 0, 2), (2, 0, 4), (1, 0, 2), id="none at all"),
        pytest.param((1, 1), (1, 0), (), (), id="a single element"),
    ],
)
def test_merged(
    shape: tuple[int, ...], permutation: tuple[int, ...], sizes: tuple[int, ...], order: tuple[int, ...]
) -> None:
    assert merged(shape, permutation) == (sizes, order)


# Counts of benchmarks/ort_instructions.py as above, of what is lowered from the operator.
@pytest.mark.parametrize(
    ("shape", "axis", "parts", "ampere", "hopper"),
    [
        pytest.param((16, 384, 3072), 2, (1024, 1024, 1024), 10.0, 9.97, id="equal parts of rows, by 16 bytes"),
        pytest.param((16, 384, 3072), 2, (1024, 1536, 512), 9.78, 9.75, id="unequal ones alike"),
        pytest.param((16, 384, 56), 2, (28, 28), 17.84, 17.91, id="by 8 bytes"),
        pytest.param((16, 384, 2049), 2, (683, 683, 683), 72.1, 67.0, id="by 2 bytes"),
        pytest.param((16, 384, 3840), 2, (768,) * 5, 30.25, 37.25, id="five parts of rows"),
        pytest.param((16, 3, 384, 64), 1, (1, 1, 1), 30.25, 37.25, id="equal parts across"),
        pytest.param((8, 64, 56, 56), 1, (16, 48), 43.75, 51.25, id="unequal parts across"),
    ],
)
def test_splits(shape: tuple[int, ...], axis: int, parts: tuple[int, ...], ampere: float, hopper: float) -> None:
    outputs = [f"y{place}" for place in range(len(parts))]
    found = _instructions(f"{', '.join(outputs)} = Split<axis={axis}>(x, sizes)", shape, outputs, sizes=list(parts))
    assert [each / prod(shape) for each in found] == pytest.approx([ampere, hopper], rel=0.13)


@pytest.mark.parametrize(
    ("ends", "axes", "ampere"),
    [
        pytest.param([8], [0], 0.0, id="the first ones: copied"),
        pytest.param([1, 10], [0, 1], 0.0, id="of one row: copied"),
        pytest.param([1, 1, 512], [0, 1, 2], 0.0, id="a part of one row: copied"),
        pytest.param([512], [2], 34.25, id="a part of each row"),
        pytest.param([8, 1], [0, 1], 34.25, id="a row of each"),
    ],
)
def test_slices(ends: list[int], axes: list[int], ampere: float) -> None:
    size = dict(zip(axes, ends, strict=True))
    count = prod(size.get(axis, whole) for axis, whole in enumerate((16, 384, 1024)))
    found = _instructions(
        "y = Slice(x, starts, ends, axes)", (16, 384, 1024), ["y"], starts=[0] * len(ends), ends=ends, axes=axes
    )
    assert found[0] / count == pytest.approx(ampere, rel=0.01)


def _instructions(nodes: str, shape: tuple[int, ...], outputs: list[str], **constants: list[int]) -> list[float]:
    """Of compute capability 8.0 and 9.0, of a graph in 16 bits by ONNX Runtime."""
    runtime = RUNTIMES["onnxruntime"]
    graph = inferred(nodes, {"x": shape}, outputs=outputs, types={"x": TensorProto.FLOAT16}, constants=constants)
    works = with_own_kernels(lower(graph, runtime="onnxruntime"), runtime)
    kernels = [kernel for work in works for kernel in work.kernels]
    return [sum(instructions_of(kernel, hopper=recent) for kernel in kernels) for recent in (False, True)]


def _us(kernel: Kernel, gpu: GpuSpec) -> float:
    return predict([kernel], gpu)[0].latency_us


@pytest.mark.parametrize("gpu", ["t4", "a100-sxm-40gb", "h100-sxm", "b200-sxm"])
def test_predictions_are_not_quicker_than_issuing(gpu: str) -> None:
    kernels = [
        pointwise("add", inputs=(SCORES, MASK)),
        pointwise("tanh", inputs=(X,)),
        moved("transpose", 16, 384, 16, 63, permutation=(0, 2, 1, 3)),
        Softmax(rows=98_304, cols=384, dtype=HALF, library=ORT),
        Normalization(method="layer", rows=6144, cols=1024, dtype=HALF, library=ORT),
    ]
    card = load_gpu(gpu)
    issue = issue_us(kernels, card)
    assert issue is not None
    for kernel, prediction, least in zip(kernels, predict(kernels, card), issue, strict=True):
        assert prediction.latency_us > least, kernel
        assert prediction.low_us <= prediction.latency_us <= prediction.high_us
        assert prediction.latency_us >= 0.999 * _us(replace(kernel, library="own"), card)


def test_a_mask_costs_an_h100_more_than_its_bytes() -> None:
    """63 instructions for each of 37.7 million elements take longer than 151 MB do."""
    masked, whole = pointwise("add", inputs=(SCORES, MASK)), pointwise("add", inputs=(SCORES, SCORES))
    assert _us(masked, H100) > 1.1 * _us(whole, H100) * 151.0 / 226.5


@pytest.mark.parametrize("dims", [1, 2, 4, 8])
def test_it_grows_with_the_elements_and_falls_with_the_clock(dims: int) -> None:
    kernel = pointwise("add", inputs=(spec(dims, 16, 384, 384), spec(dims, 1, 1, 384)))
    larger = pointwise("add", inputs=(spec(2 * dims, 16, 384, 384), spec(2 * dims, 1, 1, 384)))
    assert _us(larger, H100) > _us(kernel, H100)
    assert _us(kernel, replace(H100, clock_hz=0.5 * H100.clock_hz)) > 1.3 * _us(kernel, H100)


def _cumulative_us(runtime: str, of: int, length: int, gpu: GpuSpec, channels: int = 9) -> float:
    graph = inferred("y = CumSum(x, a)", {"x": (1, length, channels)}, types={"x": of}, constants={"a": 1})
    works = with_own_kernels(lower(graph, runtime=runtime), RUNTIMES[runtime])
    return sum(_us(kernel, gpu) for work in works for kernel in work.kernels)


@pytest.mark.parametrize(
    ("runtime", "of", "growth"),
    [
        pytest.param("onnxruntime", TensorProto.FLOAT, 4.0, id="each sums all before it"),
        pytest.param("onnxruntime", TensorProto.INT64, 2.0, id="a block scans"),
        pytest.param("eager", TensorProto.FLOAT, 2.0, id="PyTorch scans"),
    ],
)
def test_twice_as_long_a_cumulative_sum(runtime: str, of: int, growth: float) -> None:
    short, long = (_cumulative_us(runtime, of, length, A100) for length in (120_000, 240_000))
    assert long / short == pytest.approx(growth, rel=0.1)


def test_a_vocoders_phase_by_hand() -> None:
    """9 x 240,000 x 240,001 / 2 steps of 4.14 instructions, 128 lanes x 108 SMs x 1.41 GHz issued."""
    least = 9 * 240_000 * 240_001 / 2 * 4.14 / (128 * 108 * 1.41e3)
    assert least < _cumulative_us("onnxruntime", TensorProto.FLOAT, 240_000, A100) < 1.5 * least


def test_neighbours_of_a_cumulative_sum_share_what_they_load() -> None:
    """As many steps: of rows a block's threads load the same, of 256 columns each its own, L2's 4 bytes a step."""
    apart, together = (_cumulative_us("onnxruntime", TensorProto.FLOAT, 4096, A100, n) for n in (256, 8))
    assert 1e6 * 4 * 4096 * 4097 / 2 * 256 / l2_bytes_per_s(A100) < apart
    assert apart > 1.2 * 32 * together


def test_attention_by_parts_has_a_softmax_by_block() -> None:
    nodes = "y = com.microsoft.Attention<num_heads=2>(x, w, b)"
    graph = inferred(nodes, {"x": (2, 100, 64)}, weights={"w": (64, 192), "b": (192,)})
    works = with_own_kernels(lower(graph, runtime="onnxruntime"), RUNTIMES["onnxruntime"])
    (found,) = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Softmax)]
    assert instructions_of(found, hopper=False) == 2 * 2 * 100 * 128 * 120


@pytest.mark.parametrize(
    ("at_once", "cols", "counted"),
    [
        # instructions an element that releases 1.12 and 1.15 were seen to take in 16 bits, code for 8.0
        (1, 384, 132.8),
        (1, 768, 82.9),
        (1, 1536, 55.6),
        (1, 4096, 37.2),
        (4, 384, 42.0),
        (4, 768, 41.4),
        (4, 1024, 41.4),
        (4, 1536, 56.6),
    ],
)
def test_early_skip_normalizations(at_once: int, cols: int, counted: float) -> None:
    kernel = Normalization(method="layer", rows=64, cols=cols, dtype=HALF, fused=("add",), library=ORT, at_once=at_once)
    assert instructions_of(kernel, hopper=False) / (64 * cols) == pytest.approx(counted, rel=0.04)


@pytest.mark.parametrize(
    ("release", "at_once"), [("1.11", 1), ("1.12", 1), ("1.13", 4), ("1.15", 4), ("1.16", 0), ("1.31", 0)]
)
def test_what_a_thread_normalizes_at_once_hangs_on_the_release(release: str, at_once: int) -> None:
    nodes = "y = com.microsoft.SkipLayerNormalization(x, r, g, b)"
    graph = inferred(nodes, {"x": (2, 100, 64), "r": (2, 100, 64)}, weights={"g": (64,), "b": (64,)})
    runtime = get_runtime(f"onnxruntime@{release}")
    works = with_own_kernels(lower(graph, runtime="onnxruntime"), runtime)
    (found,) = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Normalization)]
    assert found.at_once == at_once
