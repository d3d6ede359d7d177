"""The law of convolutions on matrix units: products, padding, bytes, transposes and tiles, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernel_formats import predictor_label
from neusight_onnx.kernels import Conv, Direction
from neusight_onnx.laws.base import with_fixed
from neusight_onnx.laws.catalog import apply_law, law_of
from neusight_onnx.laws.conv.law import CONV
from neusight_onnx.laws.tensor_conv import implicit_gemm
from neusight_onnx.laws.tensor_conv.columns import columns as conv_columns
from neusight_onnx.laws.tensor_conv.estimate import estimate, ideal_us
from neusight_onnx.laws.tensor_conv.image_products import images_us
from neusight_onnx.laws.tensor_conv.law import TENSOR_CONV, TENSOR_CONV_AMD, TENSOR_CONV_WEIGHT_AMD
from neusight_onnx.laws.tensor_conv.tiles import pin
from neusight_onnx.laws.tensor_conv.transposes import transposes_us
from neusight_onnx.laws.tensor_gemm.constants import own_constants
from neusight_onnx.predictor import predict
from neusight_onnx.tiling import matrix_unit_convolution_tiles
from tensor_conv_cases import AMD_PRIORS, BASE, FP8, FP16, INT8, PLAIN, PRIORS, TF32


def test_convolutions_have_the_constants_of_asynchronous_units_where_products_do() -> None:
    """A Hopper GPU takes its own launch and DRAM rate, an A100 the others; AMD's law has none of them."""
    own = {**PRIORS, "floor_us_async": 20.0}
    kernel = replace(BASE, n=1, spatial=(8, 8), out=(8, 8))
    columns = conv_columns((kernel,))
    longer = {
        gpu: estimate(columns, load_gpu(gpu), own).latency_us[0]
        - estimate(columns, load_gpu(gpu), PRIORS).latency_us[0]
        for gpu in ("a100-sxm-80gb", "h100-sxm")
    }
    assert longer["a100-sxm-80gb"] == 0.0
    assert longer["h100-sxm"] == pytest.approx((20.0 - 2.8) * (1.7 / 1.98) ** 0.5, rel=0.02)
    assert not any(name.endswith("_async") for name in AMD_PRIORS)


@pytest.mark.parametrize(
    ("kernel", "b", "m", "n", "k"),
    [
        pytest.param(BASE, 1, 8 * 3136, 128, 576, id="forward"),
        # three channels are four, half a load of 16 bytes: 4 x 49
        pytest.param(replace(BASE, c=3, filter=(7, 7), strides=(2, 2), out=(28, 28)), 1, 6272, 128, 196, id="stem"),
        pytest.param(replace(BASE, c=20), 1, 8 * 3136, 128, 24 * 9, id="20-channels-are-24"),
        pytest.param(replace(BASE, c=20, dtype=INT8), 1, 8 * 3136, 128, 32 * 9, id="20-channels-of-int8-are-32"),
        pytest.param(replace(BASE, c=6, dtype=TF32), 1, 8 * 3136, 128, 8 * 9, id="6-channels-of-tf32-are-8"),
        pytest.param(replace(BASE, groups=4), 4, 8 * 3136, 32, 144, id="grouped"),
        pytest.param(replace(BASE, direction="data"), 1, 8 * 3136, 64, 128 * 9, id="data"),
        pytest.param(
            replace(BASE, direction="data", strides=(2, 2), out=(28, 28)), 1, 8 * 3136, 64, 288, id="strided-data"
        ),
        # columns are taps of 3 channels, padded to 4
        pytest.param(replace(BASE, c=3, direction="weight"), 1, 128, 36, 8 * 3136, id="weight"),
        pytest.param(
            replace(BASE, spatial=(8, 8, 8), out=(8, 8, 8), filter=(3, 3, 3), strides=(1,) * 3, dilations=(1,) * 3),
            1,
            8 * 512,
            128,
            64 * 27,
            id="3-d",
        ),
    ],
)
def test_the_product_as_it_is_multiplied(kernel: Conv, b: int, m: int, n: int, k: int) -> None:
    columns = conv_columns((kernel,))
    assert {name: columns[name].tolist() for name in ("b", "m", "n", "k")} == {"b": [b], "m": [m], "n": [n], "k": [k]}


@pytest.mark.parametrize(
    ("change", "bytes_"),
    [
        pytest.param({}, 2 * 8 * 64 * 3136, id="all-of-it"),
        pytest.param({"filter": (1, 1), "strides": (2, 2), "out": (28, 28)}, 2 * 8 * 64 * 784, id="every-fourth"),
        pytest.param({"strides": (2, 2), "out": (28, 28)}, 2 * 8 * 64 * 3136, id="windows-that-overlap"),
        pytest.param({"filter": (1, 3), "strides": (2, 2), "out": (28, 28)}, 2 * 8 * 64 * 1568, id="every-other-row"),
    ],
)
def test_a_stride_beyond_the_filter_skips_input(change: dict[str, object], bytes_: int) -> None:
    kernel = replace(BASE, **change)  # type: ignore[arg-type]  # a table
    weights = 2 * 64 * 128 * kernel.filter[0] * kernel.filter[1]
    assert conv_columns((kernel,))["read_bytes"].tolist() == [bytes_ + weights]


def test_the_pipe_takes_whole_tiles() -> None:
    """128 channels of 8 x 3136 positions on an A100: 196 tiles of 128 x 128 are two rounds of 108 SMs.

    Two tiles of 128 x 128 x 576 multiply-adds at 1/108 of 312 TFLOP/s: 13.1 us; no other tile does better.
    """
    a100 = load_gpu("a100-sxm-80gb")
    tile = np.array([[128.0], [128.0], [256.0], [1.0]])
    parts = implicit_gemm.times(conv_columns((BASE,)), a100, PLAIN, tile)
    assert parts["blocks"].tolist() == [196]
    assert 1e6 * parts["compute"][0] == pytest.approx(1e6 * 2 * 2 * 128 * 128 * 576 * 108 / 312e12, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "changes", "splits"),
    [
        pytest.param("v100", {}, True, id="volta"),
        pytest.param("v100", {"direction": "data"}, True, id="volta-data"),
        pytest.param("v100", {"by_cudnn7": True}, True, id="volta-with-cudnn-7"),
        pytest.param("t4", {}, True, id="turing"),
        pytest.param("t4", {"direction": "data"}, True, id="turing-data"),
        pytest.param("t4", {"by_cudnn7": True}, False, id="turing-with-cudnn-7"),
        pytest.param("t4", {"by_cudnn7": True, "direction": "data"}, False, id="turing-data-with-cudnn-7"),
        pytest.param("t4", {"direction": "weight", "n": 64, "c": 64, "k": 64}, True, id="turing-weight"),
        pytest.param("a100", {}, True, id="ampere"),
        pytest.param("t4", {"dtype": INT8}, False, id="int8-on-turing"),
        pytest.param("a100", {"dtype": INT8}, True, id="int8-on-ampere"),
        pytest.param("mi300x", {"dtype": INT8}, True, id="int8-on-amd"),
    ],
)
def test_which_kernels_split_a_reduction(gpu: str, changes: dict[str, Any], splits: bool) -> None:
    kernel = replace(BASE, **{"n": 1, "c": 512, "k": 512, "spatial": (7, 7), "out": (7, 7), **changes})
    constants = {**(AMD_PRIORS if gpu == "mi300x" else PRIORS), "split_us": 0.1}
    split = pin(conv_columns((kernel,)), load_gpu(gpu), constants)["split_k"][0]
    assert bool(split > 1.0) is splits


def test_a_reduction_in_one_piece_takes_a_time_in_proportion() -> None:
    """One 128x128 tile on a T4: 4 x 512 x 9 steps of k at 1/40 of 65.1 TFLOP/s take four times those of 512 x 9."""
    measured = replace(BASE, n=1, k=128, spatial=(7, 7), out=(7, 7), by_cudnn7=True)
    short, long = (replace(measured, c=c) for c in (512, 2048))
    columns = conv_columns((short, long))
    parts = estimate(columns, load_gpu("t4"), PLAIN).parts_us["compute"]
    assert parts[0] == pytest.approx(1e6 * 2 * 128 * 128 * 512 * 9 * 40 / 65.1e12, rel=1e-2)
    assert parts[1] / parts[0] == pytest.approx(4.0, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "tiles", "depth"),
    [
        # 32 groups of 4 channels are 2 x 16, each of the tile's 16 multiplied by 16 a tap
        pytest.param({"c": 128, "groups": 32}, 2, 16 * 9, id="four-channels"),
        pytest.param({"c": 256, "k": 256, "groups": 32}, 4, 16 * 9, id="eight-channels"),
        pytest.param({"c": 512, "k": 512, "groups": 32}, 8, 16 * 9, id="sixteen-channels"),
        pytest.param({"c": 1024, "k": 1024, "groups": 32}, 16, 32 * 9, id="two-groups-of-32"),
        pytest.param({"c": 144, "k": 144, "groups": 6}, 3, 32 * 9, id="24-channels-are-32"),
        pytest.param({"c": 128, "groups": 32, "filter": (1, 1)}, 2, 16, id="one-tap"),
        pytest.param({"c": 128, "groups": 32, "direction": "data"}, 2, 16 * 9, id="data"),
        pytest.param({"c": 128, "groups": 32, "dtype": TF32}, 2, 16 * 9, id="tf32"),
        pytest.param({"c": 128, "groups": 32, "direction": "weight"}, 0, 0, id="weight"),
        pytest.param({"c": 1024, "k": 1024, "groups": 32, "dtype": INT8}, 16, 32 * 9, id="two-groups-of-32-in-int8"),
        # no form of INT8 has more than two groups, whatever their width
        pytest.param({"c": 128, "groups": 32, "dtype": INT8}, 16, 32 * 9, id="four-channels-in-int8"),
        pytest.param({"c": 1024, "k": 1024, "groups": 32, "dtype": FP8}, 0, 0, id="fp8"),
        pytest.param({"c": 128, "groups": 2}, 0, 0, id="64-channels-have-their-own-tile"),
        pytest.param({"c": 128, "groups": 128}, 0, 0, id="depthwise"),
        pytest.param({}, 0, 0, id="no-groups"),
    ],
)
def test_groups_that_share_a_tile(changes: dict[str, Any], tiles: int, depth: int) -> None:
    columns = conv_columns((replace(BASE, **changes),))
    assert (columns["packed_b"][0], columns["packed_depth"][0]) == (tiles, depth)


def test_a_tile_of_groups_multiplies_blocks_and_loads_all_its_channels() -> None:
    """32 groups of 16 channels of 8 x 3136 positions on an A100: 8 x 392 tiles of 64 x 64, at most 30 an SM.

    Each multiplies 64 x 64 x 16 a tap, as 32 instructions of m16n8k16, and loads 64 x 64 inputs and 64 x 16 weights.
    """
    a100 = load_gpu("a100-sxm-80gb")
    kernel = replace(BASE, c=512, k=512, groups=32)
    pinned = pin(conv_columns((kernel,)), a100, PLAIN)
    assert (pinned["tile_n"][0], pinned["tile_m"][0], pinned["split_k"][0]) == (64, 64, 1)
    parts = implicit_gemm.times(pinned, a100, PLAIN, np.array([[64.0], [64.0], [128.0], [1.0]]))
    assert parts["blocks"].tolist() == [8 * 392]
    taps = 9 * 30
    assert 1e6 * parts["compute"][0] == pytest.approx(1e6 * taps * 32 * 2 * 16 * 8 * 16 * 108 / 312e12, rel=1e-3)
    loaded = taps * (64 * 64 + 64 * 16) * 2
    assert parts["l2"][0] == pytest.approx(loaded / (PLAIN["l2_bytes_per_clock"] * a100.clock_hz), rel=1e-6)
    # as many operations as the convolution has, whatever zeros are multiplied beside
    product = pinned["b"] * pinned["m"] * pinned["n"] * pinned["depth"]
    assert product[0] == pytest.approx(kernel.macs)


@pytest.mark.parametrize("gpu", ["v100", "t4", "a100", "h100", "rtx-4090"])
@pytest.mark.parametrize("width", [4, 8, 16, 32])
def test_packed_groups_are_no_slower_than_tiles_of_their_own(gpu: str, width: int) -> None:
    spec, kernel = load_gpu(gpu), replace(BASE, c=32 * width, k=32 * width, groups=32, spatial=(14, 14), out=(14, 14))
    columns = conv_columns((kernel,))
    alone = {**columns, "packed_b": np.zeros(1)}
    times = [estimate(cols, spec, PRIORS).latency_us[0] for cols in (columns, alone)]
    assert times[0] <= times[1]


@pytest.mark.parametrize(("gpu", "packs"), [("t4", False), ("a100", True), ("l40s", True)])
def test_groups_share_a_tile_of_int8_from_ampere_on(gpu: str, packs: bool) -> None:
    """32 groups of 32 channels over 32 images of 7 x 7: a group of its own fills half of a tile of 64 x 64."""
    kernel = replace(BASE, n=32, c=1024, k=1024, groups=32, spatial=(7, 7), out=(7, 7), dtype=INT8)
    pinned = pin(conv_columns((kernel,)), load_gpu(gpu), PRIORS)
    assert pinned["b"][0] == (16 if packs else 32)


STEM = replace(BASE, c=3, k=64, spatial=(224, 224), out=(112, 112), filter=(7, 7), strides=(2, 2))


@pytest.mark.parametrize(
    ("gpu", "changes", "depth"),
    [
        # a row of seven taps of four channels is 28, padded to 32; a row of three 12, padded to 16
        pytest.param("t4", {}, 7 * 32, id="seven-taps"),
        pytest.param("a100", {"dtype": INT8}, 7 * 32, id="eight-bits"),
        pytest.param("h100", {"filter": (3, 3), "k": 32}, 3 * 16, id="three-taps"),
        # further taps cost the channels that the constant says, here 5 for FP16
        pytest.param("v100", {}, 49 * 4 + 48 * 5, id="not-on-volta"),
        pytest.param("t4", {"strides": (1, 1)}, 49 * 4 + 48 * 5, id="stride-of-one"),
        pytest.param("t4", {"filter": (5, 5)}, 25 * 4 + 24 * 5, id="five-taps"),
        pytest.param("t4", {"k": 96}, 49 * 4 + 48 * 5, id="more-filters"),
        pytest.param("t4", {"c": 8}, 49 * 8 + 48 * 5, id="more-channels"),
    ],
)
def test_the_first_layer_over_images_begins_no_tap_anew(gpu: str, changes: dict[str, Any], depth: int) -> None:
    kernel = replace(STEM, **changes)
    tile = np.array([[64.0], [128.0], [256.0], [1.0]])
    constants = {**PLAIN, "tap_channels": 5.0}
    assert implicit_gemm.times(conv_columns((kernel,)), load_gpu(gpu), constants, tile)["kz"] == pytest.approx(depth)


@pytest.mark.parametrize(
    ("gpu", "overhead"),
    [
        pytest.param("l40s", 1.3, id="full-rate"),
        # 256 multiply-adds a clock and SM, of 500: .512 to 1.5 of it shows
        pytest.param("rtx-4090", 1.0 + 0.3 * 0.366, id="halved-rate"),
    ],
)
def test_addresses_hide_behind_a_slow_pipe(gpu: str, overhead: float) -> None:
    spec = load_gpu(gpu)
    tile = np.array([[128.0], [128.0], [256.0], [1.0]])
    cols = conv_columns((BASE,))
    plain = implicit_gemm.times(cols, spec, PLAIN, tile)["compute"][0]
    addressed = implicit_gemm.times(cols, spec, {**PLAIN, "index_overhead": 1.3}, tile)["compute"][0]
    assert addressed / plain == pytest.approx(overhead, rel=1e-3)


def test_a_weights_gradient_takes_as_long_as_forward_where_nothing_splits_it() -> None:
    """Of one tap and tile, its overhead is its own constant, whatever addresses take forward."""
    spec = load_gpu("v100-sxm2-32gb")
    tile = np.array([[128.0], [128.0], [256.0], [1.0]])
    cols = conv_columns((replace(BASE, filter=(1, 1), direction="weight"),))

    def compute(**constants: float) -> float:
        return float(implicit_gemm.times(cols, spec, {**PLAIN, **constants}, tile)["compute"][0])

    plain = compute(weight_overhead=1.0)
    assert compute(weight_overhead=1.3) / plain == pytest.approx(1.3, rel=1e-3)
    assert compute(weight_overhead=1.0, index_overhead=1.5, data_overhead=1.5) == plain


@pytest.mark.parametrize(
    ("gpu", "direction", "split_us"),
    [
        pytest.param("t4", "weight", 12.0, id="turing"),
        pytest.param("v100-sxm2-32gb", "weight", 12.0, id="volta"),
        pytest.param("v100-sxm2-32gb", "data", 3.0, id="another direction"),
        pytest.param("a100-sxm-80gb", "weight", 3.0, id="one kernel adds since Ampere"),
    ],
)
def test_sums_of_split_gradients_of_weights_are_zeroed_and_converted(
    gpu: str, direction: Direction, split_us: float
) -> None:
    tile = np.array([[128.0], [64.0], [128.0], [4.0]])
    constants = {**PLAIN, "sums_us": 12.0, "split_us": 3.0}
    cols = conv_columns((replace(BASE, direction=direction),))
    split, whole = (
        implicit_gemm.times(cols, load_gpu(gpu), constants, tile * [[1.0], [1.0], [1.0], [share]])["launch"][0]
        for share in (1.0, 0.25)
    )
    assert split - whole == pytest.approx(split_us)


def test_convolutions_stream_as_products_do() -> None:
    """400 MB through GDDR6X: the fitted share of the peak, and 11 % more."""
    spec = load_gpu("rtx-4090")
    kernel = replace(BASE, n=256, c=64, k=64, filter=(1, 1))
    cols = conv_columns((kernel,))
    constants = {**PLAIN, "idle_loss": 0.0, "reload_knee": 0.0, "resident_gain": 1.0, "dram_efficiency_gddr": 0.8}
    constants = own_constants(spec, constants)
    memory = implicit_gemm.times(cols, spec, constants, np.array([[64.0], [128.0], [128.0], [1.0]]))["memory"][0]
    assert memory == pytest.approx((kernel.read_bytes + kernel.write_bytes) / (0.8 * 1.11 * 1008e9), rel=1e-6)


@pytest.mark.parametrize(
    ("gpu", "widest", "narrowest"),
    [
        pytest.param("v100", 128, 16, id="volta"),
        pytest.param("t4", 256, 16, id="turing"),
        pytest.param("a100", 256, 16, id="ampere"),
        pytest.param("h100", 256, 16, id="hopper"),
        pytest.param("mi300x", 256, 32, id="cdna3"),
    ],
)
def test_tiles_of_an_architecture(gpu: str, widest: int, narrowest: int) -> None:
    spec = load_gpu(gpu)
    few = replace(BASE, k=16, n=64)
    own = AMD_PRIORS if spec.compute_capability is None else PRIORS
    columns = pin(conv_columns((few, replace(BASE, k=1024, n=256))), spec, own)
    assert columns["tile_n"][0] == narrowest
    assert columns["tile_n"][1] <= widest


@pytest.mark.parametrize(
    ("gpu", "changes", "is_first"),
    [
        pytest.param("v100", {"by_cudnn7": True}, True, id="volta-with-cudnn-7"),
        pytest.param("t4", {"by_cudnn7": True}, True, id="turing-with-cudnn-7"),
        pytest.param("t4", {"dtype": INT8}, True, id="int8-on-turing"),
        pytest.param("t4", {}, False, id="turing"),
        pytest.param("a100", {"by_cudnn7": True}, False, id="cudnn-7-knows-no-ampere"),
    ],
)
def test_which_convolutions_have_three_kernels(gpu: str, changes: dict[str, Any], is_first: bool) -> None:
    few = replace(BASE, **{"k": 16, "spatial": (7, 7), "out": (7, 7), **changes})
    beside = replace(few, by_cudnn7=not few.by_cudnn7)  # each kernel of a batch by its own library
    columns = pin(conv_columns((few, beside)), load_gpu(gpu), PRIORS)
    tile = (columns["tile_n"][0], columns["tile_m"][0])
    assert (tile in {(128, 256), (64, 256), (128, 128)}) is is_first


@pytest.mark.parametrize(("gpu", "alone"), [("t4", True), ("v100-pcie-32gb", True), ("a100-sxm-80gb", False)])
@pytest.mark.parametrize("direction", ["forward", "data", "weight"])
def test_the_law_stands_alone_for_kernels_that_came_after_the_measured_ones(
    gpu: str, alone: bool, direction: Direction
) -> None:
    """The rows of T4 and V100 are cuDNN 7's: what the trees learnt of them says nothing of what runs there since."""
    kernel = replace(BASE, dtype=FP16, direction=direction)
    kernels = (kernel, replace(kernel, by_cudnn7=True), replace(kernel, dtype=INT8))
    unmeasured = estimate(conv_columns(kernels), load_gpu(gpu), PRIORS).unmeasured
    assert unmeasured is not None
    assert unmeasured.tolist() == [alone, False, False]


def test_fewer_positions_take_no_longer_on_turing_than_on_less_of_a_later_gpu() -> None:
    """256 channels of 3x3 taps over 7x7: an A2 has a fourth of a T4's SMs, and four in seven of its bandwidth."""
    kernel = replace(BASE, n=1, c=256, k=256, spatial=(7, 7), out=(7, 7))
    turing, ampere = (predict((kernel,), load_gpu(gpu))[0].latency_us for gpu in ("t4", "a2"))
    assert turing < ampere


@pytest.mark.parametrize(
    ("gpu", "tile"),
    [
        # 32 output channels, 9 x 32 columns: Turing has one kernel, Volta's smallest is 64 x 64, Ampere's narrower
        pytest.param("t4", (256, 128), id="turing"),
        pytest.param("v100", (64, 64), id="volta"),
    ],
)
def test_tiles_of_a_gradient_of_the_weight(gpu: str, tile: tuple[int, int]) -> None:
    kernel = replace(BASE, c=32, k=32, direction="weight", by_cudnn7=True)
    columns = pin(conv_columns((kernel, replace(kernel, direction="data"))), load_gpu(gpu), PRIORS)
    assert (columns["tile_n"][0], columns["tile_m"][0]) == tile
    assert (columns["tile_n"][1], columns["tile_m"][1]) == (64, 256)


@pytest.mark.parametrize(
    ("gpu", "direction", "channels", "launches"),
    [
        pytest.param("a100-sxm-80gb", "forward", 64 + 128, 2, id="since-ampere-both"),
        pytest.param("a100-sxm-80gb", "data", 64 + 128, 2, id="of-the-data-gradient-too"),
        pytest.param("a100-sxm-80gb", "weight", 64 + 128, 2, id="the-weight-gradient-reads-both"),
        pytest.param("v100", "forward", 64, 1, id="before-the-input"),
        pytest.param("v100", "data", 128, 1, id="before-the-gradient-of-the-output"),
        pytest.param("v100", "weight", 64 + 128, 2, id="before-both"),
    ],
)
def test_what_is_transposed(gpu: str, direction: Direction, channels: int, launches: int) -> None:
    """256 images: input 103 MB, output 206 MB, read and written once at .7 of DRAM's peak; a launch of 2 us each.

    They are far larger than the L2. Where tensors lie channels last, there are none.
    """
    spec = load_gpu(gpu)
    exported = replace(BASE, n=256, channels_last=False, direction=direction)
    moved = 2 * 2 * 256 * 3136 * channels
    expected = launches * 2.0 + 1e6 * moved / (0.7 * spec.memory_bytes_per_s)
    found = transposes_us(conv_columns((exported,)), spec, PRIORS)
    assert found.tolist() == pytest.approx([expected], rel=2e-3)
    assert not transposes_us(conv_columns((replace(exported, channels_last=True),)), spec, PRIORS)
    times = estimate(conv_columns((exported, replace(exported, channels_last=True))), spec, PRIORS).latency_us
    assert times[0] - times[1] == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    ("gpu", "changes", "expected"),
    [
        pytest.param("a100", {}, 2.0, id="whole-vectors"),
        pytest.param("a100", {"spatial": (7, 7), "out": (7, 7)}, 1.0, id="49-positions"),
        pytest.param("a100", {"filter": (3, 3)}, 0.0, id="3x3"),
        pytest.param("a100", {"strides": (2, 2), "out": (28, 28)}, 0.0, id="strided"),
        pytest.param("a100", {"groups": 2}, 0.0, id="grouped"),
        pytest.param("a100", {"direction": "data"}, 2.0, id="data-gradient"),
        pytest.param("a100", {"direction": "weight"}, 0.0, id="weight-gradient"),
        pytest.param("a100", {"channels_last": True}, 0.0, id="channels-last"),
        pytest.param("a100", {"dtype": TF32}, 2.0, id="tf32"),
        pytest.param("v100", {}, 2.0, id="volta-whole-vectors"),
        pytest.param("v100", {"spatial": (7, 7), "out": (7, 7)}, 1.0, id="volta-has-none-for-49-positions"),
    ],
)
def test_one_tap_is_a_product_of_tensors_as_they_lie(gpu: str, changes: dict[str, Any], expected: float) -> None:
    spec = load_gpu(gpu)
    kernel = replace(BASE, filter=(1, 1), channels_last=False)
    kernel = replace(kernel, **changes)
    cols = pin(conv_columns((kernel,)), spec, PRIORS)
    assert cols["as_it_lies"].tolist() == [expected]
    tile = np.stack([cols[f"image_{name}"] for name in ("tile_n", "tile_m", "tile_threads", "split_k")])
    product = images_us(cols, spec, PRIORS, tile)
    needed = 1.0 if gpu == "a100" else 2.0
    assert bool(np.isfinite(product[0])) == (expected >= needed)


_TILE = np.array([[128.0], [128.0], [256.0], [1.0]])


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        pytest.param({}, 576 + 100, id="16 bits"),
        pytest.param({"dtype": INT8, "output_dtype": FP16}, 576 + 200, id="int8 that writes 16"),
        pytest.param({"dtype": INT8}, 576 + 100, id="int8 that writes 8: half as long"),
        pytest.param({"dtype": INT8, "output_dtype": DataType.FLOAT32}, 576 + 200, id="32 weren't measured"),
        pytest.param({"dtype": TF32}, 576 + 50, id="tf32, which writes 32"),
    ],
)
def test_what_is_around_a_tiles_loop_follows_the_bytes_that_are_written(changes: dict[str, Any], steps: int) -> None:
    """100 steps of k in 16 bits, of 576: the time over that of k alone."""
    columns, a100 = conv_columns((replace(BASE, **changes),)), load_gpu("a100")
    whole, loop = (
        implicit_gemm.times(columns, a100, {**PLAIN, "epilogue_k": around}, _TILE)["compute"][0]
        for around in (100.0, 0.0)
    )
    assert whole / loop == pytest.approx(steps / 576)


@pytest.mark.parametrize(
    ("dtype", "steps"),
    [pytest.param(FP16, 80, id="16 bits"), pytest.param(INT8, 80, id="8"), pytest.param(TF32, 40, id="32")],
)
def test_a_tap_begins_with_as_many_channels_in_8_bits_as_in_16(dtype: DataType, steps: int) -> None:
    """8 further taps of 10 channels in 16 bits beside 9 x 64."""
    columns, a100 = conv_columns((replace(BASE, dtype=dtype),)), load_gpu("a100")
    whole, loop = (
        implicit_gemm.times(columns, a100, {**PLAIN, "tap_channels": begun}, _TILE)["compute"][0]
        for begun in (10.0, 0.0)
    )
    assert whole / loop == pytest.approx(1.0 + steps / 576)


@pytest.mark.parametrize(
    ("c", "k", "spatial", "side", "stride", "measured_us"),
    [
        pytest.param(64, 128, (112, 112), 3, 1, 53.0, id="64-to-128"),
        pytest.param(128, 256, (56, 56), 3, 1, 57.0, id="128-to-256"),
        pytest.param(128, 128, (40, 175), 3, 1, 57.0, id="128-to-128"),
        pytest.param(64, 128, (80, 350), 5, 2, 81.0, id="5x5"),
    ],
)
def test_int8_convolutions_of_several_tiles_an_sm(
    c: int, k: int, spatial: tuple[int, int], side: int, stride: int, measured_us: float
) -> None:
    """DeepBench's, two images on a T4 with zeros, which no predictor is trained on: 1.18 to 1.32 times too long as long
    as INT8 took around a loop what 16-bit results do."""
    kernel = Conv(
        n=2,
        c=c,
        k=k,
        spatial=spatial,
        out=(-(-spatial[0] // stride), -(-spatial[1] // stride)),
        filter=(side, side),
        strides=(stride, stride),
        dilations=(1, 1),
        channels_last=True,
        dtype=INT8,
        burst=True,
        activity=0.68**2,
    )
    assert predict((kernel,), load_gpu("t4"))[0].latency_us == pytest.approx(measured_us, rel=0.12)


def test_a_product_of_tensors_as_they_lie_reads_weights_once() -> None:
    """256 images of 64 channels, 128 filters of one tap at 56 x 56: 103 + 206 MB at .82 of 2,039 GB/s."""
    a100 = load_gpu("a100-sxm-80gb")
    kernel = replace(BASE, n=256, filter=(1, 1), channels_last=False)
    constants = {**PLAIN, "idle_loss": 0.0, "reload_knee": 0.0, "resident_gain": 1.0, "choice_norm": 60.0}
    found = estimate(conv_columns((kernel,)), a100, constants)
    share = own_constants(a100, constants)["dram_efficiency"]
    assert share == pytest.approx(0.82, abs=1e-3)
    assert found.parts_us["memory"][0] == pytest.approx(
        1e6 * (kernel.read_bytes + kernel.write_bytes) / (share * a100.memory_bytes_per_s),
        rel=1e-6,
    )
    assert found.latency_us[0] == pytest.approx(found.parts_us["memory"][0] + constants["floor_us"], rel=0.1)


@pytest.mark.parametrize(
    ("direction", "channels", "launches"),
    [
        pytest.param("forward", 64, 1, id="what-it-reads"),
        pytest.param("data", 64 + 128, 2, id="both-of-the-data-gradient"),
        pytest.param("weight", 64 + 128, 2, id="both-of-the-weight-gradient"),
    ],
)
def test_tf32_writes_either_order_forward(direction: Direction, channels: int, launches: int) -> None:
    """256 images in 4 bytes: 206 MB of input, 411 of output, at .7 of DRAM's peak; a launch of 2 us each."""
    h100 = load_gpu("h100-sxm")
    exported = replace(BASE, n=256, dtype=TF32, channels_last=False, direction=direction)
    expected = launches * 2.0 + 1e6 * 2 * 4 * 256 * 3136 * channels / (0.7 * h100.memory_bytes_per_s)
    columns = conv_columns((exported, replace(exported, channels_last=True)))
    assert transposes_us(columns, h100, PRIORS).tolist() == pytest.approx([expected, 0.0], rel=2e-3)


@pytest.mark.parametrize(
    ("change", "bound"),
    [
        pytest.param({"c": 128, "k": 128, "spatial": (512, 512), "out": (512, 512), "n": 1}, "compute", id="3x3"),
        pytest.param(
            {"c": 512, "spatial": (128, 128), "out": (64, 64), "filter": (1, 1), "strides": (2, 2)}, "memory", id="1x1"
        ),
    ],
)
def test_what_bounds_a_kernel_behind_transposes(change: dict[str, Any], bound: str) -> None:
    """An H100's product of 512 x 512 positions takes longer than its transposes, if not than these and its bytes."""
    kernel = replace(BASE, channels_last=False, **change)
    parts = estimate(conv_columns((kernel,)), load_gpu("h100-sxm"), PRIORS).parts_us
    assert max(("compute", "memory", "l2"), key=lambda name: parts[name][0]) == bound


@pytest.mark.parametrize(
    ("kernel", "label"),
    [
        pytest.param(BASE, "float16", id="forward"),
        pytest.param(replace(BASE, direction="data"), "float16", id="data"),
        pytest.param(replace(BASE, direction="weight"), "float16/weight", id="weight"),
        pytest.param(replace(BASE, dtype=DataType.FLOAT32, direction="weight"), "float32/weight", id="fp32-weight"),
        pytest.param(replace(BASE, dtype=DataType.FLOAT32, direction="data"), "float32/data", id="fp32-data"),
        pytest.param(replace(BASE, dtype=INT8), "int8", id="int8"),
    ],
)
def test_the_label_of_a_convolution(kernel: Conv, label: str) -> None:
    assert predictor_label(kernel) == label


def test_laws_by_label() -> None:
    assert law_of("conv", "float32") is CONV
    assert law_of("conv", "matrix") is TENSOR_CONV
    assert law_of("conv", "matrix+amd") is TENSOR_CONV_AMD
    assert law_of("conv", "matrix/weight+amd") is TENSOR_CONV_WEIGHT_AMD


@pytest.mark.parametrize("gpu", ["v100", "t4", "a100", "rtx-4090", "h100", "b200", "mi50", "mi100", "mi300x"])
def test_every_shape_has_a_time_above_the_roofline_of_its_pipe(gpu: str) -> None:
    """Finite and positive for whatever occurs, gradients, one image, one channel and nothing at all among it."""
    kernels = [
        replace(BASE, **change)  # type: ignore[arg-type]  # a table
        for change in (
            {},
            {"n": 1, "c": 1, "k": 1},
            {"groups": 64, "k": 64},
            {"groups": 32},
            {"transposed": True, "out": (58, 58)},
            {"spatial": (112, 112), "strides": (2, 2)},
            {"spatial": (1, 1), "out": (1, 1)},
            {"n": 0},
            {"spatial": (56,), "out": (56,), "filter": (3,), "strides": (1,), "dilations": (1,)},
        )
    ]
    every = [replace(kernel, direction=way) for kernel in kernels for way in ("forward", "data", "weight")]
    spec = load_gpu(gpu)
    law = TENSOR_CONV_AMD if spec.compute_capability is None else TENSOR_CONV
    constants = {constant.name: constant.prior for constant in law.constants}
    answer = apply_law(law, every, spec, constants)
    assert np.all(np.isfinite(answer.result.latency_us))
    assert np.all(answer.result.latency_us > 0)
    assert np.all(np.isfinite(answer.features))
    assert answer.features.shape == (len(every), len(law.feature_names))


def test_products_bring_their_constants() -> None:
    law = with_fixed(TENSOR_CONV, {"floor_us": 3.5, "convert_us": 9.0})
    fixed = {constant.name: (constant.prior, constant.prior_log_sd) for constant in law.constants}
    assert fixed["floor_us"] == (3.5, 0.0)
    assert fixed["index_overhead"] == (1.15, 0.2)
    assert "convert_us" not in fixed


def test_ideal_is_the_direct_convolution_at_the_peak() -> None:
    """256 x 3136 positions, 128 channels of 576: 1.18e11 FLOP at 312 TFLOP/s are 379 us.

    1x1 with 64 channels is bound by bytes: 309 MB less the 42 that the L2 holds at 2,039 GB/s are 131 us.
    """
    wide = replace(BASE, n=256)
    found = ideal_us(conv_columns((wide, replace(wide, filter=(1, 1)))), load_gpu("a100"))
    bytes_ = 2 * (256 * 3136 * (64 + 128) + 64 * 128) - 40 * 2**20
    assert found.tolist() == pytest.approx([1e6 * 2 * 256 * 3136 * 128 * 576 / 312e12, 1e6 * bytes_ / 2039e9], rel=1e-3)


@pytest.mark.parametrize(
    ("burst", "direction", "kept", "filters_us", "least_us"),
    [
        # 512 x 512 x 9 filters of 2 bytes at .82 of 2,039 GB/s; the roofline: at all of it. 0.23 GFLOP take .74 us
        pytest.param(False, "forward", 0.0, 2.822, 2.314, id="other layers have been there since"),
        pytest.param(False, "data", 0.0, 2.822, 2.314, id="and in the backward pass"),
        # four times that rate (``resident_gain``), nothing exceeds L2
        pytest.param(True, "forward", 0.0, 2.822 / 4, 0.741, id="repeated"),
        pytest.param(False, "forward", 1.0, 2.822 / 4, 0.741, id="the run before left them"),
        pytest.param(False, "forward", 0.5, 2.822 * 5 / 8, 1.157, id="it left half of them"),
        pytest.param(False, "weight", 0.0, 2.822 / 4, 0.741, id="a gradient writes them"),
    ],
)
def test_filters_come_from_dram_in_a_model(
    burst: bool, direction: Direction, kept: float, filters_us: float, least_us: float
) -> None:
    """One image of 512 channels over 7x7, read and written at four times the rate: .015 us."""
    kernel = replace(BASE, n=1, c=512, k=512, spatial=(7, 7), out=(7, 7), direction=direction)
    kernel = replace(kernel, burst=burst, kept_in_l2=kept)
    cols, gpu = conv_columns((kernel,)), load_gpu("a100")
    whole = np.array([[128.0], [128.0], [256.0], [1.0]])
    memory_us = 1e6 * implicit_gemm.times(cols, gpu, own_constants(gpu, PRIORS), whole)["memory"][0]
    assert memory_us == pytest.approx(filters_us + 0.015, rel=0.01)
    assert ideal_us(cols, gpu)[0] == pytest.approx(least_us, rel=2e-3)


@pytest.mark.parametrize("gpu", ["mi100", "mi300x"])
def test_amds_convolutions_have_the_menu_that_their_predictors_were_trained_with(gpu: str) -> None:
    """Tiles of hipBLASLt's products are none of MIOpen's kernels of convolutions."""
    sizes = {(tile.n, tile.m) for tile in matrix_unit_convolution_tiles(load_gpu(gpu))}
    assert (64, 256) in sizes
    assert not sizes & {(256, 256), (256, 32)}


FEW = replace(BASE, n=256, c=16, k=16, channels_last=True)


@pytest.mark.parametrize(
    ("gpu", "kernel", "channels"),
    [
        pytest.param("rtx-3090", FEW, 16, id="ampere"),
        pytest.param("t4", FEW, 16, id="turing"),
        pytest.param("v100-sxm2-32gb", FEW, 16, id="volta"),
        pytest.param("rtx-3090", replace(FEW, dtype=TF32), 16, id="tf32"),
        pytest.param("rtx-3090", replace(FEW, k=17), 32, id="17 fill no more of three such tiles than of one of 32"),
        pytest.param("t4", replace(FEW, by_cudnn7=True), 64, id="cudnn 7's are 64 wide"),
        pytest.param("rtx-3090", replace(FEW, dtype=DataType.BFLOAT16), 32, id="bfloat16"),
        pytest.param("rtx-3090", replace(FEW, dtype=INT8), 32, id="int8"),
        pytest.param("rtx-3090", replace(FEW, direction="data"), 32, id="gradient"),
        pytest.param("rtx-3090", replace(FEW, c=160, k=160, groups=4), 64, id="groups"),
    ],
)
def test_sixteen_channels_have_a_tile_of_their_own(gpu: str, kernel: Conv, channels: int) -> None:
    """As wide as the names of cuDNN's kernels say: ``indexed_wo_smem`` of FP16 and TF32, forward, one group."""
    assert pin(conv_columns((kernel,)), load_gpu(gpu), PRIORS)["tile_n"].tolist() == [channels]


def test_sixteen_channels_take_less_than_thirty_two() -> None:
    """A tile of 16 multiplies half of what one of 32 does; nothing else is less, and the pipe is part of the time."""
    gpu = load_gpu("rtx-3090")
    few, wide = (estimate(conv_columns((kernel,)), gpu, PRIORS).latency_us[0] for kernel in (FEW, replace(FEW, k=17)))
    assert few < 0.8 * wide
