"""The law of convolutions: which matrix product it is, which algorithm wins, what bounds it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import Conv, Gemm
from neusight_onnx.laws.conv.algorithms import ALGORITHMS, algorithm_times, pin
from neusight_onnx.laws.conv.columns import columns as columns_of
from neusight_onnx.laws.conv.columns import fused_blocks
from neusight_onnx.laws.conv.constants import CONSTANTS, PLAIN_BLOCKS
from neusight_onnx.laws.conv.estimate import estimate, ideal_us
from neusight_onnx.laws.conv.features import FEATURES, features
from neusight_onnx.laws.gemm.law import GEMM
from neusight_onnx.predictor import predict

FP32 = DataType.FLOAT32
PRIORS = {constant.name: constant.prior for constant in CONSTANTS}

BASE = Conv(
    n=2,
    c=64,
    k=128,
    spatial=(56, 56),
    out=(56, 56),
    filter=(3, 3),
    strides=(1, 1),
    dilations=(1, 1),
    dtype=FP32,
)


@pytest.mark.parametrize(
    ("kernel", "groups", "m", "n", "depth", "winograd"),
    [
        pytest.param(BASE, 1, 2 * 3136, 128, 576, 1, id="3x3"),
        pytest.param(replace(BASE, strides=(2, 2), out=(28, 28)), 1, 2 * 784, 128, 576, 0, id="strided"),
        pytest.param(replace(BASE, dilations=(2, 2)), 1, 2 * 3136, 128, 576, 0, id="dilated"),
        pytest.param(replace(BASE, filter=(1, 1)), 1, 2 * 3136, 128, 64, 0, id="1x1"),
        pytest.param(replace(BASE, groups=4), 4, 2 * 3136, 32, 144, 0, id="grouped"),
        pytest.param(replace(BASE, k=64, groups=64), 64, 2 * 3136, 1, 36, 0, id="depthwise-padded-to-4"),
        pytest.param(replace(BASE, c=3), 1, 2 * 3136, 128, 27, 1, id="rgb"),
        pytest.param(
            replace(BASE, transposed=True, out=(58, 58)), 1, 2 * 3136, 128 * 9, 64, 0, id="transposed-input-grid"
        ),
        pytest.param(
            replace(BASE, direction="data", strides=(2, 2), out=(28, 28)), 1, 2 * 3136, 64, 288, 0, id="strided-data"
        ),
        pytest.param(replace(BASE, direction="data"), 1, 2 * 3136, 64, 1152, 1, id="data-has-winograd"),
        pytest.param(replace(BASE, direction="weight"), 1, 128, 576, 2 * 3136, 0, id="weight"),
        pytest.param(
            Conv(n=1, c=8, k=16, spatial=(100,), out=(98,), filter=(3,), strides=(1,), dilations=(1,), dtype=FP32),
            1,
            98,
            16,
            24,
            0,
            id="1-d",
        ),
        pytest.param(
            Conv(
                n=1,
                c=8,
                k=16,
                spatial=(8, 8, 8),
                out=(6, 6, 6),
                filter=(3, 3, 3),
                strides=(1, 1, 1),
                dilations=(1, 1, 1),
                dtype=FP32,
            ),
            1,
            216,
            16,
            216,
            0,
            id="3-d",
        ),
    ],
)
def test_implicit_product(kernel: Conv, groups: int, m: int, n: int, depth: int, winograd: int) -> None:
    columns = columns_of((kernel,))
    found = {name: columns[name].tolist() for name in ("b", "m", "n", "k_depth", "winograd")}
    assert found == {"b": [groups], "m": [m], "n": [n], "k_depth": [depth], "winograd": [winograd]}


def test_ideal_counts_winograd() -> None:
    """3x3 may do with 36/144 of the multiply-adds, 5x5 may not: the roofline follows."""
    a100 = load_gpu("a100-pcie-80gb")
    wide = replace(BASE, n=64)
    other = replace(BASE, n=64, filter=(5, 5))
    found = ideal_us(columns_of((wide, other)), a100)
    peak = a100.peak_flops_per_s["fp32"]
    macs = 64 * 3136 * 64 * 128
    assert found.tolist() == pytest.approx([1e6 * 2 * 9 * macs / 4 / peak, 1e6 * 2 * 25 * macs / peak])


@pytest.mark.parametrize(
    ("gpu", "n", "k", "side", "blocks", "rows"),
    [
        # grids that a profiler recorded for these shapes: fused Winograd's x * y * z over ceil(k / 32) blocks of
        # channels; rows of Winograd in steps as the only multiple of 16 images that fits grids of 32, 64, 128 rows
        pytest.param("p4", 40, 112, 48, 160 * 6 * 3 // 4, 48 * 144, id="tile148"),
        pytest.param("p4", 14, 107, 13, 28 * 4 * 1 // 4, 16 * 16, id="tile228"),
        pytest.param("p4", 24, 56, 21, 24 * 3 * 3 // 2, 32 * 36, id="tile244"),
        pytest.param("p100-pcie-16gb", 1, 1862, 14, 59 * 2 * 1 // 59, 16 * 16, id="one-image"),
        pytest.param("t4", 42, 16, 51, 42 * 7 * 4, 48 * 169, id="turing-has-one-shape"),
        pytest.param("a100-pcie-80gb", 17, 153, 16, 85 * 2 * 1 // 5, 32 * 16, id="ampere"),
        pytest.param("a100-pcie-80gb", 37, 595, 17, 10 * 3 * 5, 48 * 25, id="37-images-are-48"),
    ],
)
def test_winograd_sizes_are_those_of_recorded_grids(
    gpu: str, n: int, k: int, side: int, blocks: int, rows: int
) -> None:
    kernel = replace(BASE, n=n, k=k, spatial=(side, side), out=(side, side))
    columns = columns_of((kernel,))
    assert fused_blocks(columns, load_gpu(gpu)).tolist() == [blocks]
    assert columns["staged_rows"].tolist() == [rows]


def best_algorithm(kernel: Conv, gpu: GpuSpec) -> str:
    columns = pin(columns_of((kernel,)), gpu, PRIORS)
    return ALGORITHMS[int(np.argmin(algorithm_times(columns, gpu, PRIORS).all_us[:, 0]))]


@pytest.mark.parametrize(
    ("gpu", "change", "algorithm"),
    [
        pytest.param("a100-pcie-80gb", {"n": 64, "c": 512, "k": 512}, "staged", id="many-channels-many-images"),
        pytest.param("a100-pcie-80gb", {"n": 1, "c": 512, "k": 64}, "fused", id="one-image-would-be-padded-to-16"),
        pytest.param("a100-pcie-80gb", {"n": 64, "c": 3, "k": 64}, "direct", id="rgb"),
        pytest.param("a100-pcie-80gb", {"n": 64, "c": 512, "k": 512, "filter": (1, 1)}, "direct", id="1x1"),
        pytest.param("a100-pcie-80gb", {"n": 64, "groups": 64, "k": 64}, "element", id="depthwise"),
        pytest.param("mi210", {"n": 64, "c": 512, "k": 512}, "fused", id="miopen-has-no-steps"),
        # a thread an output would take the floor and no more: measured ones take twice to three times as long
        pytest.param(
            "a100-pcie-80gb",
            {"n": 1, "c": 1152, "k": 48, "filter": (1, 1), "spatial": (1, 1), "out": (1, 1)},
            "direct",
            id="squeeze-and-excite",
        ),
        pytest.param("mi100", {"n": 1, "c": 32, "k": 32, "spatial": (7, 7), "out": (7, 7)}, "direct", id="few-outputs"),
    ],
)
def test_the_cheapest_algorithm(gpu: str, change: dict[str, object], algorithm: str) -> None:
    assert best_algorithm(replace(BASE, **change), load_gpu(gpu)) == algorithm  # type: ignore[arg-type]  # a table


@pytest.mark.parametrize(
    ("gpu", "n", "window", "splits"),
    [
        # 49 positions an image and 512 channels: 8 tiles of 64 x 64 an image, of V100's 80 SMs
        pytest.param("v100", 1, (1, 1), True, id="few tiles"),
        pytest.param("v100", 16, (1, 1), False, id="more than half of the SMs have one"),
        pytest.param("v100", 1, (3, 3), False, id="no plain product"),
        pytest.param("mi100", 1, (1, 1), False, id="MIOpen"),
    ],
)
def test_reductions_of_1x1_filters_are_split_where_tiles_are_few(
    gpu: str, n: int, window: tuple[int, int], splits: bool
) -> None:
    spec = load_gpu(gpu)
    kernel = replace(BASE, n=n, c=2048, k=512, spatial=(7, 7), out=(7, 7), filter=window)
    pinned = pin(columns_of((kernel,)), spec, PRIORS)
    assert (pinned["direct_split"][0] > 1) == splits
    blocks = algorithm_times(pinned, spec, PRIORS).direct["blocks"][0]
    assert not splits or blocks <= PLAIN_BLOCKS * spec.sm_count


def test_a_1x1_convolution_costs_its_product_and_overhead() -> None:
    a100 = load_gpu("a100-pcie-80gb")
    kernel = replace(BASE, n=64, c=512, k=512, filter=(1, 1))
    product = Gemm(m=64 * 3136, n=512, k=512, dtype=FP32)
    constants = {constant.name: constant.prior for constant in GEMM.constants} | PRIORS
    product_us = GEMM.estimate(GEMM.columns((product,)), a100, constants).latency_us[0]
    found = estimate(columns_of((kernel,)), a100, PRIORS).latency_us[0]
    assert 1.0 < found / product_us < 1.3


def test_depthwise_is_near_its_bytes_and_no_tile_of_a_product() -> None:
    """A kernel per output element beats a product whose tile is 32 wide for one column."""
    a100 = load_gpu("a100-pcie-80gb")
    kernel = replace(BASE, n=32, c=256, k=256, groups=256)
    columns = columns_of((kernel,))
    result = estimate(columns, a100, PRIORS)
    assert result.tile["m"].tolist() == [256]
    assert result.tile_count.tolist() == [32 * 256 * 3136 / 256]
    assert result.latency_us[0] < 4 * ideal_us(columns, a100)[0]


def test_a_kernel_per_element_has_no_use_for_more_fp32_lanes() -> None:
    """Seven of its eight instructions a tap load or compute addresses: GA10x, Ada and Hopper have twice the FP32 lanes
    of an SM, and as many others."""
    h100 = load_gpu("h100-sxm")
    peaks = {**h100.peak_flops_per_s, "fp32": h100.peak_flops_per_s["fp32"] / 2}
    halved = replace(h100, fp32_lanes_per_sm=64, peak_flops_per_s=peaks)
    kernel = replace(BASE, n=64, groups=64, k=64, filter=(7, 7))
    element = ALGORITHMS.index("element")
    ours, theirs = (
        algorithm_times(pin(columns_of((kernel,)), gpu, PRIORS), gpu, PRIORS).all_us[element, 0]
        for gpu in (h100, halved)
    )
    assert ours == pytest.approx(theirs)


@pytest.mark.parametrize("gpu", ["p4", "t4", "a100-sxm-80gb", "h100-sxm", "mi210"])
def test_features_are_finite(gpu: str) -> None:
    spec = load_gpu(gpu)
    kernels = (BASE, replace(BASE, groups=64, k=64), replace(BASE, c=3), replace(BASE, filter=(7, 7)))
    columns = pin(columns_of(kernels), spec, PRIORS)
    result = estimate(columns, spec, PRIORS)
    found = features(columns, spec, PRIORS, result)
    assert found.shape == (4, len(FEATURES))
    assert np.isfinite(found).all()
    assert (result.latency_us > 0).all()


def test_pinning_does_not_change_the_answer() -> None:
    spec = load_gpu("v100-pcie-32gb")
    columns = columns_of((BASE, replace(BASE, n=64, c=512, k=512)))
    free = estimate(columns, spec, PRIORS)
    pinned = estimate(pin(columns, spec, PRIORS), spec, PRIORS)
    assert pinned.latency_us.tolist() == free.latency_us.tolist()


def test_the_gradient_of_the_input_is_a_convolution_the_other_way() -> None:
    """Unit strides: c and k, input and output change places, and nothing else."""
    forward = replace(BASE, n=8, c=96, k=128, filter=(5, 5), spatial=(60, 60), out=(56, 56))
    back = replace(forward, c=128, k=96, spatial=(56, 56), out=(60, 60), direction="forward")
    a100 = load_gpu("a100-pcie-80gb")
    found = columns_of((replace(forward, direction="data"), back))
    assert all(
        column[0] == column[1]
        for name, column in found.items()
        if name not in ("k_depth", "flops", "macs", "gradient_log_sd")
    )
    # the rim of the input meets fewer taps: 128 x 25 x 56^2 / 60^2
    assert found["k_depth"].tolist() == [2788, 128 * 25]
    times = estimate(found, a100, PRIORS).latency_us
    assert times[0] == pytest.approx(times[1] * 2788 / 3200, rel=0.05)


def test_the_gradient_of_the_weight_shares_positions_out() -> None:
    """128 x 576 results are 5 x 1 tiles of 128 x 128: too few for 108 SMs, unless each is cut along 8 x 3136 positions.

    One wave of tiles that each do an SM's share at best: 2 x 25,088 x 128 x 576 FLOPs are 190 us at the peak.
    """
    a100 = load_gpu("a100-pcie-80gb")
    kernel = replace(BASE, n=8, direction="weight")
    result = estimate(columns_of((kernel,)), a100, PRIORS)
    assert result.tile["split_k"][0] >= 8
    assert 1.0 < result.latency_us[0] / (1e6 * kernel.flops / a100.peak_flops_per_s["fp32"]) < 3.0


@pytest.mark.parametrize("gpu", ["t4", "v100-sxm2-32gb", "a100-pcie-80gb", "rtx-5090"])
@pytest.mark.parametrize("n", [1, 4, 32])
def test_a_filter_over_the_whole_image_is_a_linear_layer(gpu: str, n: int) -> None:
    """VGG's first linear layer as timm and Paddle write it: 512 x 7 x 7 to 4,096, about twice what its bytes take."""
    spec = load_gpu(gpu)
    layer = replace(BASE, n=n, c=512, k=4096, spatial=(7, 7), out=(1, 1), filter=(7, 7))
    product = Gemm(m=n, n=4096, k=25088, dtype=layer.dtype, b_is_weight=True, epilogue=("bias",))
    convolved, linear = predict([layer, product], spec)
    assert convolved.latency_us == pytest.approx(linear.latency_us, rel=0.3)
