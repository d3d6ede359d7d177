"""Convolutions on matrix cores of AMD: MIOpen's solvers, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Any

import numpy as np
import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Conv, Direction
from neusight_onnx.laws.catalog import apply_law, features_elsewhere, law_of
from neusight_onnx.laws.tensor_conv import implicit_gemm
from neusight_onnx.laws.tensor_conv.columns import columns as conv_columns
from neusight_onnx.laws.tensor_conv.estimate import algorithms_us, estimate
from neusight_onnx.laws.tensor_conv.miopen_issue import back_us
from neusight_onnx.laws.tensor_conv.miopen_solvers import compiled_us, counterpart, has_first_bf16, is_first_bf16
from neusight_onnx.laws.tensor_conv.tiles import pin, with_tiles
from neusight_onnx.laws.tensor_conv.transposes import transposes_us
from neusight_onnx.predictor import predict
from tensor_conv_cases import AMD_PRIORS, BASE, BF16, FP16, PLAIN


@pytest.mark.parametrize("direction", ["forward", "data", "weight"])
def test_assembled_kernels_of_amd_have_both_tensors_transposed(direction: Direction) -> None:
    """256 images: 154 M elements of input and output, either gradient's, and 74 k of the weight, read and written once
    by 15 lane operations each: 4.6e9 on 104 x 64 lanes of 1.7 GHz are 409 us beside DRAM's 444 at .848 of 1,638 GB/s.

    Both together move 1,020 GB/s, as convolutions that were measured in both orders do.
    """
    mi210 = load_gpu("mi210")
    exported = replace(BASE, n=256, channels_last=False, direction=direction)
    elements = 2 * (256 * 3136 * (64 + 128) + 64 * 128 * 9)
    lanes_s, dram_s = elements * 15.0 / (104 * 64 * 1.7e9), 2 * elements / (0.848 * 1638e9)
    expected = 3 * 5.0 + 1e6 * hypot(lanes_s, dram_s)
    assert 2e-3 * elements / (expected - 15.0) == pytest.approx(1020, abs=10)
    found = transposes_us(conv_columns((exported,)), mi210, AMD_PRIORS)
    assert found.tolist() == pytest.approx([expected], rel=2e-3)
    last = conv_columns((replace(exported, channels_last=True),))
    assert not transposes_us(last, mi210, AMD_PRIORS)


def test_compiled_kernels_of_amd_need_no_transposes() -> None:
    """1x1 with 16 channels: transposes take longer than the product, and a compiled kernel none of them."""
    mi210 = load_gpu("mi210")
    thin = replace(BASE, n=256, c=16, k=16, filter=(1, 1), channels_last=False)
    columns = conv_columns((thin, replace(thin, channels_last=True)))
    tile = with_tiles(columns, mi210, AMD_PRIORS)[1]
    compiled = compiled_us(columns, mi210, AMD_PRIORS, tile)
    times = estimate(columns, mi210, AMD_PRIORS).latency_us
    assert times[0] == pytest.approx(compiled[0], rel=0.055)
    assert times[1] < times[0] < times[1] + transposes_us(columns, mi210, AMD_PRIORS)[0]


@pytest.mark.parametrize(
    ("gpu", "overhead", "ratio"),
    [
        # matrix instructions of 1 and others of .4 beside them; of 2, and .4 as before
        pytest.param("mi100", 1.4, 2.4 / 1.4, id="cdna"),
        pytest.param("mi210", 1.4, 2.4 / 1.4, id="cdna2"),
        pytest.param("mi300x", 1.4, 1.0, id="cdna3"),
    ],
)
def test_compiled_kernels_multiply_bfloat16_by_the_first_instructions(gpu: str, overhead: float, ratio: float) -> None:
    spec = load_gpu(gpu)
    constants = {**AMD_PRIORS, **PLAIN, "compiled_overhead": overhead, "norm": 3.0, "floor_us": 0.0, "step_us": 0.0}
    kernel = replace(BASE, n=256, c=512, k=512)
    columns = conv_columns((kernel, replace(kernel, dtype=BF16)))
    compiled = compiled_us(columns, spec, constants, np.array([[128.0], [128.0], [256.0], [1.0]]))
    assert compiled[1] / compiled[0] == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize(
    "change",
    [
        # 5 x 20 taps of one channel: 100 steps of k, not four times as many and none for a tap begun
        pytest.param({"c": 1, "filter": (5, 20)}, id="forward"),
        # columns of the weight's gradient: three channels of 49 taps, not four
        pytest.param({"c": 3, "k": 4096, "filter": (7, 7), "direction": "weight"}, id="weight"),
    ],
)
def test_compiled_kernels_pad_no_channels(change: dict[str, object]) -> None:
    mi210 = load_gpu("mi210")
    constants = {**AMD_PRIORS, "tap_channels": 8.0}
    kernel = replace(BASE, n=64, **change)  # type: ignore[arg-type]  # a table
    columns = conv_columns((kernel,))
    tile = np.array([[64.0], [64.0], [256.0], [1.0]])
    found = compiled_us(columns, mi210, constants, tile)[0]
    # the same sizes as a product without taps or padding
    _, _, n, k = kernel.implicit_gemm
    plain = {**columns, "n": np.array([float(n)]), "k": np.array([float(k)]), "padded": np.ones(1)}
    bare = compiled_us(plain, mi210, {**constants, "tap_channels": 0.0}, tile)[0]
    assert found == pytest.approx(bare, rel=1e-6)
    assert (
        implicit_gemm.times(columns, mi210, constants, tile)["compute"][0]
        > 1.2 * implicit_gemm.times(plain, mi210, {**constants, "tap_channels": 0.0}, tile)["compute"][0]
    ), "the assembled one pads"


@pytest.mark.parametrize(
    ("change", "compiled", "assembled"),
    [
        pytest.param({}, 1.5, 1.0, id="forward"),
        pytest.param({"direction": "data"}, 1.5 * 1.2, 1.0, id="input"),
        pytest.param({"filter": (1, 1)}, 1.0, 1.0, id="one tap has no addresses"),
    ],
)
def test_addresses_of_taps_are_beside_the_product_of_assembled_kernels(
    change: dict[str, object], compiled: float, assembled: float
) -> None:
    """A product of 512 channels in and out, which nothing but its matrix instructions binds."""
    mi210 = load_gpu("mi210")
    columns = conv_columns((replace(BASE, n=256, c=512, k=512, **change),))  # type: ignore[arg-type]  # a table
    tile = np.array([[128.0], [128.0], [256.0], [1.0]])
    beside = {"floor_us": 0.0, "step_us": 0.0, "norm": 50.0, "fetch_operations": 0.0, "step_ns": 0.0}
    plain = {**AMD_PRIORS, **PLAIN, **beside, "compiled_overhead": 1.0, "data_overhead": 1.0, "idle_loss": 0.0}
    addressed = {**plain, "index_overhead": 1.5, "data_overhead": 1.2}

    def compiled_time(constants: dict[str, float]) -> float:
        return float(compiled_us(columns, mi210, constants, tile)[0])

    def assembled_time(constants: dict[str, float]) -> float:
        return float(implicit_gemm.times(columns, mi210, constants, tile)["compute"][0])

    assert compiled_time(addressed) / compiled_time(plain) == pytest.approx(compiled, rel=0.01)
    assert assembled_time(addressed) / assembled_time(plain) == pytest.approx(assembled)


@pytest.mark.parametrize(
    ("gpu", "other", "dtype", "shown_by"),
    [
        pytest.param("mi210", "mi100", BF16, FP16, id="assembled kernels here alone"),
        pytest.param("mi100", "mi210", BF16, FP16, id="there alone"),
        pytest.param("mi250x", "mi210", BF16, BF16, id="on both"),
        pytest.param("mi210", "mi100", FP16, FP16, id="float16"),
    ],
)
def test_which_format_shows_on_another_gpu_what_the_law_leaves(
    gpu: str, other: str, dtype: DataType, shown_by: DataType
) -> None:
    kernel = replace(BASE, dtype=dtype)
    found = counterpart(kernel, load_gpu(gpu), load_gpu(other))
    assert found == replace(kernel, dtype=shown_by)
    law = law_of("conv", "matrix+amd")
    assert law is not None
    shown = apply_law(law, (replace(kernel, dtype=shown_by),), load_gpu(other), AMD_PRIORS).features
    elsewhere = features_elsewhere(law, (kernel,), load_gpu(gpu), load_gpu(other), AMD_PRIORS)
    assert elsewhere.tolist() == shown.tolist()


def test_an_mi210s_bfloat16_shows_an_mi100s_gradients_of_weights() -> None:
    kernel = replace(BASE, dtype=BF16, direction="weight")
    assert counterpart(kernel, load_gpu("mi100"), load_gpu("mi210")) == kernel
    assert counterpart(kernel, load_gpu("mi210"), load_gpu("mi100")) == replace(kernel, dtype=FP16)


def test_amd_multiplies_image_by_image_in_three_dimensions() -> None:
    """16 images whose taps are gathered: a call, and an image a product's launch, a gather's launch and its elements.

    64 x 27 x 512 elements an image of two bytes, read and written at .2 of 1,638 GB/s, are 10.8 us.
    """
    mi210 = load_gpu("mi210")
    kernel = replace(
        BASE, n=16, spatial=(8, 8, 8), out=(8, 8, 8), filter=(3, 3, 3), strides=(1,) * 3, dilations=(1,) * 3
    )
    columns = conv_columns((kernel,))
    assert [columns[name][0] for name in ("images", "image_b", "image_m", "image_n", "image_k")] == [
        16,
        1,
        512,
        128,
        64 * 27,
    ]
    gather = 1e6 * 2 * 2 * 64 * 27 * 512 / (0.2 * mi210.memory_bytes_per_s)
    least = 38 + 16 * (8 + 22 + gather)
    found = estimate(columns, mi210, AMD_PRIORS).latency_us[0]
    assert least < found < 1.5 * least
    # where each tap is the input itself, all images are one batched product
    plain = conv_columns((replace(kernel, filter=(1, 1, 1)),))
    assert [plain[name][0] for name in ("images", "image_b", "gathered")] == [1, 16, 0]


def test_a_series_of_products_waits_for_one_call_less() -> None:
    """Gradients of weights over three axes: a product an image. One alone shows the call (38 us); those of two images
    the series (14), and twice what an image takes, as the find database's do."""
    mi210 = load_gpu("mi210")
    kernel = replace(
        BASE,
        spatial=(1, 14, 14),
        out=(1, 14, 14),
        filter=(1, 1, 1),
        strides=(1,) * 3,
        dilations=(1,) * 3,
        direction="weight",
    )
    counts = (1, 2, 4)
    one, two, four = estimate(
        conv_columns([replace(kernel, n=count) for count in counts]), mi210, AMD_PRIORS
    ).latency_us
    each = (four - two) / 2
    assert two - 2 * each == pytest.approx(14.0, rel=1e-6)
    assert one - each == pytest.approx(38.0, rel=1e-6)


def test_an_images_product_converts_no_sums() -> None:
    """64 x 128 weights over 3,136 positions are a tile or two, whose reduction is split: by its own launch, not by that
    of a gradient whose sums are zeroed before and converted after."""
    mi210 = load_gpu("mi210")
    kernel = replace(
        BASE,
        n=8,
        spatial=(1, 56, 56),
        out=(1, 56, 56),
        filter=(1, 1, 1),
        strides=(1,) * 3,
        dilations=(1,) * 3,
        direction="weight",
    )
    columns = pin(conv_columns((kernel,)), mi210, AMD_PRIORS)
    assert columns["image_split_k"][0] > 1
    found, dearer = (
        estimate(columns, mi210, {**AMD_PRIORS, "image_split_us": split_us}).latency_us[0] for split_us in (5.0, 6.0)
    )
    assert dearer - found == pytest.approx(8.0, rel=1e-6), "one of each image's"
    assert estimate(columns, mi210, {**AMD_PRIORS, "split_us": 99.0}).latency_us[0] == pytest.approx(found)


@pytest.mark.parametrize("groups", [1, 4])
def test_assembled_kernels_of_amd_take_no_groups(groups: int) -> None:
    """What lies as (n, h, w, c) has an assembled kernel, which is quicker than the compiled one, unless in groups."""
    mi210 = load_gpu("mi210")
    columns = conv_columns((replace(BASE, n=256, c=512, k=512, groups=groups),))
    columns, tile, images = with_tiles(columns, mi210, AMD_PRIORS)
    times, parts = algorithms_us(columns, mi210, AMD_PRIORS, tile, images)
    compiled = compiled_us(columns, mi210, AMD_PRIORS, tile)[0]
    assembled = implicit_gemm.joined_us(parts, AMD_PRIORS)[0]
    assert assembled < compiled
    assert times[0, 0] == pytest.approx(assembled if groups == 1 else compiled)


@pytest.mark.parametrize(
    ("direction", "operations"),
    [
        # nine taps of six operations and an element's 40, and 20 an element read or written
        pytest.param("forward", 9 * 6.0 + 40.0, id="forward"),
        # four times as many a tap; a filter's elements are nine a channel
        pytest.param("weight", 9 * 4 * 6.0 + 9 * 40.0 / (8 * 112 * 112), id="weight"),
    ],
)
def test_depthwise_convolutions_on_amd_are_bound_by_instructions(direction: Direction, operations: float) -> None:
    """An output's instructions, at stride 1 as many inputs as outputs, on 104 x 64 lanes of 1.7 GHz."""
    mi210 = load_gpu("mi210")
    kernel = replace(BASE, n=8, c=64, k=64, groups=64, spatial=(112, 112), out=(112, 112), direction=direction)
    columns, tile, images = with_tiles(conv_columns((kernel,)), mi210, AMD_PRIORS)
    times, _ = algorithms_us(columns, mi210, AMD_PRIORS, tile, images)
    outputs = 8 * 64 * 112 * 112
    instructions = outputs * operations + 20.0 * (2 * outputs + 64 * 9)
    lanes_us = 1e6 * instructions / (104 * 64 * 1.7e9)
    dram_us = 1e6 * 2 * (2 * outputs + 64 * 9) / (0.848 * 1638e9)
    norm = AMD_PRIORS["norm"]
    expected = AMD_PRIORS["floor_us"] + (lanes_us**norm + dram_us**norm) ** (1 / norm)
    assert times[2, 0] == pytest.approx(expected, rel=0.01)


def test_launches_of_amd_follow_the_clock() -> None:
    """A call of 38 us at 1.7 GHz takes an MI100 (1,502 MHz) 43, and a gather of 22 us 24.9."""
    kernel = replace(
        BASE, n=1, spatial=(8, 8, 8), out=(8, 8, 8), filter=(3, 3, 3), strides=(1,) * 3, dilations=(1,) * 3
    )
    spec = load_gpu("mi100")
    slow, fast = {**AMD_PRIORS, "call_us": 38.0, "gather_us": 22.0}, {**AMD_PRIORS, "call_us": 0.0, "gather_us": 0.0}
    columns = conv_columns((kernel,))
    apart = [estimate(columns, spec, c).latency_us[0] for c in (slow, fast)]
    assert apart[0] - apart[1] == pytest.approx((38 + 22) * 1700 / 1502, rel=1e-6)


@pytest.mark.parametrize(
    ("gpu", "dtype", "clocks"),
    [
        # 184.6 TFLOP/s of 120 compute units at 1.502 GHz are 512 multiply-adds a clock
        pytest.param("mi100", FP16, 1.0, id="cdna"),
        pytest.param("mi100", BF16, 0.5, id="first-bfloat16"),
        pytest.param("mi210", BF16, 1.0, id="cdna2"),
        pytest.param("mi300x", FP16, 2.0, id="cdna3"),
        # four times the rate, of an LDS that reads twice as fast
        pytest.param("mi355x", FP16, 2.0, id="cdna4"),
    ],
)
def test_what_stands_beside_matrix_instructions_takes_its_clocks(gpu: str, dtype: DataType, clocks: float) -> None:
    """A tenth of the matrix instructions' time on CDNA, of faster ones a larger part."""
    spec, tile = load_gpu(gpu), np.array([[128.0], [128.0], [256.0], [1.0]])
    columns = conv_columns((replace(BASE, dtype=dtype),))
    plain = {**AMD_PRIORS, **PLAIN, "data_overhead": 1.0}
    bare, beside = (
        implicit_gemm.times(columns, spec, {**plain, "pipe_overhead": overhead}, tile)["compute"][0]
        for overhead in (1.0, 1.1)
    )
    assert beside / bare == pytest.approx(1.0 + 0.1 * clocks, rel=0.01)


def test_convolutions_that_multiply_little_are_bound_by_lanes_on_amd() -> None:
    """MI210 and MI100 have 104 x 1.7 and 120 x 1.502 GHz of compute units, and move 1x1 convolutions alike, whatever
    their memory: 257 MB at 20 lane operations an element are 227-230 us, and fetching tiles and launches come on top;
    DRAM alone would take 247 and 185."""
    kernel = replace(BASE, n=256, c=128, k=32, filter=(1, 1))
    columns = conv_columns((kernel,))
    moved = kernel.read_bytes + kernel.write_bytes
    found = {gpu: estimate(columns, load_gpu(gpu), AMD_PRIORS).latency_us[0] for gpu in ("mi100", "mi210")}
    assert found["mi100"] == pytest.approx(found["mi210"], rel=0.12), "their memory's rates are 1.33 apart"
    assert 1e-3 * moved / found["mi210"] < 1000 < 0.848 * 1638


@pytest.mark.parametrize(
    ("filter_", "launches", "zeroed"),
    [
        # four places in the stride, each with taps of its own; all of the input meets some
        pytest.param((3, 3), 3, False, id="taps-cover-the-stride"),
        # one tap leaves three quarters of the input's gradient zero
        pytest.param((1, 1), 0, True, id="one-tap"),
    ],
)
def test_gradients_of_strided_inputs_on_amd(filter_: tuple[int, int], launches: int, zeroed: bool) -> None:
    spec = load_gpu("mi210")
    kernel = replace(BASE, n=256, out=(28, 28), strides=(2, 2), filter=filter_, direction="data")
    columns = conv_columns((kernel,))
    source, _, _ = kernel.operand_bytes
    expected = launches * 5.0 + (5.0 + 2e6 * source / (0.848 * spec.memory_bytes_per_s) if zeroed else 0.0)
    assert back_us(columns, spec, AMD_PRIORS)[0] == pytest.approx(expected, rel=2e-3)
    forward = conv_columns((replace(kernel, direction="forward"),))
    assert back_us(forward, spec, AMD_PRIORS)[0] == 0.0


def test_gradients_of_few_weights_are_split_among_compute_units_on_amd() -> None:
    """64 x 64 weights of one tap over 802,816 positions are a tile or two; sixteen parts would leave five of six
    compute units idle."""
    kernel = replace(BASE, n=256, k=64, filter=(1, 1), direction="weight")
    columns = pin(conv_columns((kernel,)), load_gpu("mi210"), AMD_PRIORS)
    assert columns["split_k"][0] >= 48


@pytest.mark.parametrize(
    ("gpu", "dtype", "changes", "taken"),
    [
        pytest.param("mi100", BF16, {}, True, id="whole"),
        pytest.param("mi100", BF16, {"n": 9, "out": (7, 7), "spatial": (7, 7)}, False, id="441-positions"),
        pytest.param("mi100", BF16, {"c": 3}, False, id="three-channels"),
        pytest.param("mi100", BF16, {"c": 3, "direction": "forward"}, True, id="forward-pads"),
        pytest.param("mi100", FP16, {"c": 3}, True, id="float16-has-others"),
        pytest.param("mi210", BF16, {"c": 3}, True, id="so-has-cdna2"),
        pytest.param("mi210", BF16, {"groups": 4}, False, id="no-groups-on-cdna2"),
        pytest.param("mi210", FP16, {"groups": 4}, True, id="groups-in-float16"),
        pytest.param("mi300x", BF16, {"groups": 4}, True, id="groups-on-cdna3"),
    ],
)
def test_gradients_of_inputs_that_no_product_takes(
    gpu: str, dtype: DataType, changes: dict[str, Any], taken: bool
) -> None:
    spec = load_gpu(gpu)
    kernel = replace(replace(BASE, direction="data", dtype=dtype), **changes)
    columns, tile, images = with_tiles(conv_columns((kernel,)), spec, AMD_PRIORS)
    times, _ = algorithms_us(columns, spec, AMD_PRIORS, tile, images)
    assert bool(np.isfinite(times[0, 0])) is taken
    assert bool(np.isfinite(times[2, 0])) is not taken, "a kernel on vector lanes stands in"
    assert np.isfinite(estimate(columns, spec, AMD_PRIORS).latency_us).all()


@pytest.mark.parametrize(
    ("gpu", "slow"),
    [
        pytest.param("mi100", True, id="cdna"),
        pytest.param("mi210", False, id="cdna2"),
        pytest.param("mi300x", False, id="cdna3"),
        pytest.param("v100", False, id="nvidia-without-bfloat16"),
    ],
)
def test_which_gpus_have_the_first_bfloat16_alone(gpu: str, slow: bool) -> None:
    """Half of float16's peak on the data sheet: MIOpen has no assembled kernels then, and compiled ones answer."""
    spec = load_gpu(gpu)
    assert has_first_bf16(spec) is slow
    if spec.compute_capability is None:
        kernel = replace(BASE, n=256, c=512, k=512, dtype=BF16)
        columns = conv_columns((kernel,))
        tile = with_tiles(columns, spec, AMD_PRIORS)[1]
        compiled = compiled_us(columns, spec, AMD_PRIORS, tile)[0]
        found = estimate(columns, spec, AMD_PRIORS).latency_us[0]
        assert bool(found == pytest.approx(compiled, rel=0.05)) is slow
        assert found < compiled * 1.05


@pytest.mark.parametrize(
    ("gpu", "process_nm", "first"),
    [
        pytest.param("mi100", 7.0, True, id="cdna"),
        pytest.param("mi210", 6.0, True, id="cdna2"),
        pytest.param("mi300x", 5.0, False, id="cdna3"),
        pytest.param("rx-7900-xtx", 5.0, False, id="rdna3"),
        pytest.param("rx-7900-xtx", 6.0, False, id="rdna3 in 6 nm, as Navi 33"),
    ],
)
def test_which_gpus_have_compiled_kernels_with_the_first_bfloat16(gpu: str, process_nm: float, first: bool) -> None:
    spec = replace(load_gpu(gpu), process_nm=process_nm)
    columns = conv_columns((replace(BASE, dtype=BF16), replace(BASE, dtype=DataType.FLOAT16)))
    assert is_first_bf16(columns, spec).tolist() == [first, False]


@pytest.mark.parametrize(
    ("change", "bound"),
    [
        pytest.param({"n": 8, "spatial": (4, 4), "out": (4, 4)}, "latency", id="few-pixels"),
        pytest.param(
            {"n": 8, "c": 512, "k": 256, "spatial": (16, 16), "out": (32, 32), "filter": (4, 4), "strides": (2, 2)}
            | {"transposed": True},
            "latency",
            id="a-launch-for-each-place-in-the-stride",
        ),
        pytest.param(
            {"n": 8, "spatial": (1, 14, 14), "out": (1, 14, 14), "filter": (1, 3, 3)}
            | {"strides": (1, 1, 1), "dilations": (1, 1, 1)},
            "latency",
            id="a-gather-an-image",
        ),
        pytest.param(
            {"n": 1, "spatial": (32, 32, 32), "out": (32, 32, 32), "filter": (3, 3, 3)}
            | {"strides": (1, 1, 1), "dilations": (1, 1, 1)},
            "issue",
            id="a-large-gather",
        ),
    ],
)
def test_what_amd_does_beside_a_product_has_a_name(change: dict[str, Any], bound: str) -> None:
    """8 images of 512 x 16 x 16 read 4 MB, 2 us of an MI210's DRAM, by five launches; each is one kernel's floor."""
    kernel = Conv(
        **{"n": 1, "c": 64, "k": 64, "spatial": (1, 1), "out": (1, 1), "filter": (3, 3), "strides": (1, 1)}
        | {"dilations": (1, 1), "dtype": DataType.FLOAT16}
        | change
    )
    (found,) = predict([kernel], load_gpu("mi300x" if kernel.transposed else "mi210"))
    assert found.bound == bound


@pytest.mark.parametrize("gpu", ["mi300x", "mi355x"])
@pytest.mark.parametrize("dtype", [DataType.FLOAT16, DataType.BFLOAT16])
@pytest.mark.parametrize("depth", [1, 16])
def test_three_axes_in_16_bits_have_implicit_gemm_from_cdna3_on(gpu: str, dtype: DataType, depth: int) -> None:
    """Of depth 1 it is the product of two axes, at no more addresses than the law's 1.3 over three axes says; FP32's,
    of twice the bytes at a lower rate, takes no less."""
    taps = min(depth, 3)
    volume = Conv(
        **{"n": 8, "c": 64, "k": 64, "spatial": (depth, 56, 56), "out": (depth, 56, 56), "filter": (taps, 3, 3)},
        strides=(1, 1, 1),
        dilations=(1, 1, 1),
        dtype=dtype,
    )
    wide = replace(volume, dtype=DataType.FLOAT32)
    found, in_32 = predict([volume, wide], load_gpu(gpu))
    assert found.latency_us < in_32.latency_us
    if depth == 1:
        plain = replace(
            volume, spatial=(56, 56), out=(56, 56), filter=(3, 3), strides=(1, 1), dilations=(1, 1), dtype=dtype
        )
        (flat,) = predict([plain], load_gpu(gpu))
        assert 0.99 < found.latency_us / flat.latency_us < 1.3
        assert found.high_us / found.low_us > 1.1 * flat.high_us / flat.low_us
