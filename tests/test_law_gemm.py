"""The law of matrix products: sizes, tiles, power and bounds, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Gemm
from neusight_onnx.laws.gemm.estimate import ideal_us
from neusight_onnx.laws.gemm.features import alignment
from neusight_onnx.laws.gemm.law import GEMM
from neusight_onnx.laws.gemm.machine import Machine, clock_level, machine
from neusight_onnx.laws.gemm.tiles import choose
from neusight_onnx.laws.tiled import resident_blocks
from neusight_onnx.predictor import predict
from neusight_onnx.tiling import DEEP_SPLITS, candidates, convolution_tiles, fp32_tiles

FP32 = DataType.FLOAT32
PRIORS = {constant.name: constant.prior for constant in GEMM.constants}

# without overheads: the pipe at its peak, so that times are plain arithmetic
PLAIN = {
    **PRIORS,
    "floor_us": 2.0,
    "pipe_overhead": 1.0,
    "tile_overhead": 0.0,
    "latency_warps": 0.0,
    "epilogue_k": 0.0,
    "issue_overhead": 0.0,
    "energy_pj": 1.0,
}


def linear(m: int, n: int, k: int) -> Gemm:
    return Gemm(m=m, n=n, k=k, dtype=FP32, b_is_weight=True, transpose_b=True, epilogue=("bias",))


@pytest.mark.parametrize(
    ("kernel", "batch", "m", "read_bytes"),
    [
        pytest.param(Gemm(batch=3, m=5, n=7, k=11, dtype=FP32), 3, 5, 4 * 3 * (55 + 77), id="batched"),
        pytest.param(Gemm(batch=3, m=5, n=7, k=11, b_batch=1, dtype=FP32), 1, 15, 4 * (165 + 77), id="shared-right"),
        pytest.param(Gemm(batch=3, m=5, n=7, k=11, a_batch=1, dtype=FP32), 3, 5, 4 * (55 + 231), id="shared-left"),
        pytest.param(linear(5, 7, 11), 1, 5, 4 * (55 + 77 + 7), id="linear-with-bias"),
    ],
)
def test_columns(kernel: Gemm, batch: int, m: int, read_bytes: int) -> None:
    columns = GEMM.columns((kernel,))
    assert columns["b"].tolist() == [batch]
    assert columns["m"].tolist() == [m]
    assert columns["read_bytes"].tolist() == [read_bytes]


def test_pipe_time_of_whole_tiles() -> None:
    """108 SMs, 216 tiles of 128 x 128: each SM computes two, 2 x 2 x 128^2 x 4096 FLOP at peak / 108."""
    a100 = load_gpu("a100-pcie-40gb")
    columns = GEMM.columns((linear(128 * 12, 128 * 18, 4096),))
    pinned = {
        **columns,
        "tile_n": np.array([128.0]),
        "tile_m": np.array([128.0]),
        "tile_threads": np.array([256.0]),
        "split_k": np.array([1.0]),
    }
    result = GEMM.estimate(pinned, a100, PLAIN)
    flops = 2 * 1536 * 2304 * 4096
    assert result.tile_count.tolist() == [216]
    # two tiles of 16,384 accumulators are resident on an SM: one wave of 216
    assert result.wave_count.tolist() == [1]
    assert result.parts_us["compute"][0] == pytest.approx(1e6 * flops / a100.peak_flops_per_s["fp32"], rel=1e-3)


def test_one_tile_more_costs_a_wave() -> None:
    """109 tiles on 108 SMs take as long as 216."""
    a100 = load_gpu("a100-pcie-40gb")
    tile = {"tile_n": 128.0, "tile_m": 128.0, "tile_threads": 256.0, "split_k": 1.0}
    columns = GEMM.columns(tuple(linear(128 * rows, 128, 4096) for rows in (108, 109, 216)))
    pinned = {**columns, **{name: np.full(3, value) for name, value in tile.items()}}
    one, two, full = GEMM.estimate(pinned, a100, PLAIN).parts_us["compute"]
    assert two == pytest.approx(2 * one, rel=2e-3)
    assert two == pytest.approx(full, rel=1e-9)


@pytest.mark.parametrize(
    ("peak_tflops", "clock_ghz", "level"),
    [
        # 80 W for arithmetic at 10 pJ and 1.4 GHz: 8 TFLOP/s; power goes with the clock to 1.6
        pytest.param(4.0, 1.4, 1.0, id="power-to-spare"),
        pytest.param(16.0, 1.4, 0.5**0.625, id="half"),
        pytest.param(64.0, 1.4, 0.125**0.625, id="an-eighth"),
        # a FLOP takes 2^.6 of it at twice the clock
        pytest.param(16.0, 2.8, (0.5 / 2**0.6) ** 0.625, id="a-higher-clock"),
    ],
)
def test_clock_level(peak_tflops: float, clock_ghz: float, level: float) -> None:
    unit = Machine(
        flops_per_s=peak_tflops * 1e12,
        sm_count=10.0,
        clock_hz=clock_ghz * 1e9,
        bytes_per_s=1e12,
        l2_bytes=1e6,
        is_matrix=False,
        single_issue=False,
        is_ga100=False,
        is_pascal_library=False,
        is_volta_library=False,
        schedulers=4.0,
        pairs_blocks=False,
        opens_pages=False,
        process_nm=16.0,
        energy_scale=1.0,
        arithmetic_w=80.0,
    )
    found = clock_level(unit, {"energy_pj": 10.0}, np.array([1.0]), np.array([1.0]))
    assert found[0] == pytest.approx(level, rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "level"),
    [
        # the limit less 51, 57 and 59 W at rest over 15.3 pJ x 0.73 x 1.004 x 19.49 TFLOP/s at full load: .909, 1.111
        # and 1.561 of what the boost clock takes; to the power of 1 / 1.6, and (1 + share^-20)^(-1/20) of it
        pytest.param("a100-pcie-40gb", 0.930, id="250-W"),
        pytest.param("a100-pcie-80gb", 0.988, id="300-W"),
        pytest.param("a100-sxm-80gb", 1.0, id="400-W"),
    ],
)
def test_the_clock_of_a_measured_process_follows_the_power_limit(gpu: str, level: float) -> None:
    constants = {"energy_pj": 15.3, "energy_7nm": 0.73}
    found = clock_level(machine(load_gpu(gpu)), constants, np.array([1.0]), np.array([1.0]))
    assert found[0] == pytest.approx(level, abs=0.002)


@pytest.mark.parametrize(
    ("gpu", "doubt"),
    [
        pytest.param("a100-sxm-80gb", 0.0, id="holds-its-clock"),
        pytest.param("t4", 0.0, id="power-limited-in-a-measured-process"),
        pytest.param("h100-sxm", 0.05, id="single-issue"),
        # 5 nm: an energy of 0.36 is 1.47 halvings, 0.2 each, of which a clock feels 1 / 1.6; and single issue
        pytest.param("l4", np.hypot(0.2 * 1.474 / 1.6, 0.05), id="power-limited-in-another-process"),
    ],
)
def test_doubt_about_what_no_measured_gpu_shows(gpu: str, doubt: float) -> None:
    columns = GEMM.columns((linear(8192, 4096, 4096),))
    found = GEMM.estimate(columns, load_gpu(gpu), PRIORS).doubt_log_sd
    assert found is not None
    assert found[0] == pytest.approx(doubt, abs=0.012)


@pytest.mark.parametrize(
    ("gpu", "single_issue"),
    [
        pytest.param("p4", False, id="128-lanes-dual-issue"),
        pytest.param("t4", False, id="64-lanes-turing"),
        pytest.param("a100-sxm-80gb", False, id="64-lanes-ampere"),
        pytest.param("a10", True, id="128-lanes-ga10x"),
        pytest.param("l4", True, id="128-lanes-ada"),
        pytest.param("h100-sxm", True, id="128-lanes-hopper"),
        pytest.param("mi100", False, id="amd"),
    ],
)
def test_single_issue(gpu: str, single_issue: bool) -> None:
    assert machine(load_gpu(gpu)).single_issue is single_issue


@pytest.mark.parametrize(
    ("gpu", "batched", "fused_bias", "tiles"),
    [
        ("p4", True, False, [(128, 64)]),
        ("p4", False, False, [(128, 128), (128, 64), (32, 32)]),
        ("p4", False, True, [(32, 128), (64, 64), (128, 32)]),
        ("p100-pcie-16gb", False, True, [(32, 128), (64, 64), (128, 32)]),
        ("v100-pcie-32gb", True, False, [(64, 64), (32, 128), (128, 32)]),
        ("h100-sxm", True, False, [(128, 128)]),
        ("l4", False, True, [(128, 64), (128, 32), (32, 128), (64, 32), (32, 32)]),
        ("l4", False, False, [(128, 64), (128, 32), (32, 128), (64, 32), (32, 32)]),
    ],
)
def test_menu(gpu: str, batched: bool, fused_bias: bool, tiles: list[tuple[int, int]]) -> None:
    menu = fp32_tiles(load_gpu(gpu), batched=batched, fused_bias=fused_bias)
    assert [(tile.n, tile.m) for tile in menu] == tiles


@pytest.mark.parametrize(
    ("gpu", "tile", "in_an_engine"),
    [
        pytest.param("p4", (128, 64), (128, 64), id="no engine of today"),
        pytest.param("t4", (128, 32), (32, 32), id="turing"),
        pytest.param("a100", (128, 128), (32, 32), id="ampere"),
        pytest.param("mi300x", (16, 16), (16, 16), id="AMD has its own"),
    ],
)
def test_an_engine_has_small_tiles_for_a_batch(gpu: str, tile: tuple[int, int], in_an_engine: tuple[int, int]) -> None:
    """8,192 products of 9 x 9, as a recommender's features interact: none of cuBLAS's tiles is as small."""
    tiny = Gemm(batch=8192, m=9, n=9, k=128, dtype=FP32)
    large = replace(tiny, batch=8, m=4096, n=4096, k=1024)
    columns = GEMM.columns((tiny, replace(tiny, any_tile=True), large, replace(large, any_tile=True)))
    spec = load_gpu(gpu)
    found = choose(columns, spec, PRIORS)
    assert [tuple(found[:2, i]) for i in (0, 1)] == [tile, in_an_engine]
    times = GEMM.estimate(columns, spec, PRIORS).latency_us
    assert bool(times[1] < times[0] / 3) is (in_an_engine != tile)
    assert times[3] <= times[2]  # its builder has the tiles of cuBLAS, too


def test_a_bias_decides_which_library_runs_on_pascal() -> None:
    p4 = load_gpu("p4")
    plain = Gemm(m=4096, n=4096, k=1024, dtype=FP32, b_is_weight=True, transpose_b=True)
    tile = choose(GEMM.columns((plain, linear(4096, 4096, 1024))), p4, PRIORS)
    assert tile[:2, 0].tolist() == [128, 128]
    assert tile[:2, 1].tolist() == [64, 64]


@pytest.mark.parametrize(
    ("gpu", "m", "n", "k", "tile"),
    [
        # Waves hold 80 wide, 160 square or 80 tall blocks on a P4, 224, 392 and 224 on a P100. 4,096 blocks of either
        # kind: 51 wide waves and .2 (.55 + .45 x .2) count as 4,131, times .997; 25 square ones and .6 (.2 + .8 x .6)
        # as 4,109
        pytest.param("p4", 4096, 4096, 1024, (64, 64, 1), id="square-fills-its-wave"),
        # the same: 18.29 wide waves count as 4,184, times .93; 10.45 square ones as 4,139
        pytest.param("p100-pcie-16gb", 4096, 4096, 1024, (32, 128, 1), id="wide-is-quicker-on-64-lanes"),
        # 200 blocks: 2.5 wide waves count as 222, times .997; 1.25 square ones as 224
        pytest.param("p4", 1280, 640, 1024, (32, 128, 1), id="square-leaves-a-tail"),
        # 300 blocks: 3.75 wide waves count as 311, 1.875 square ones as 304
        pytest.param("p4", 1280, 960, 1024, (64, 64, 1), id="fuller-tail"),
        # 300 square blocks are .77 of a wave: 1 / .77 rounded up are two parts
        pytest.param("p100-pcie-16gb", 1280, 960, 1024, (64, 64, 2), id="split-fills-the-wave"),
        # 100 square blocks of 160; 100 wide and 100 tall ones are more than a wave of theirs
        pytest.param("p4", 640, 640, 1024, (64, 64, 2), id="split-square"),
        # 60 wide blocks are .75 of a wave, 64 square ones .4, 64 tall ones .8
        pytest.param("p4", 512, 480, 1024, (32, 128, 2), id="split-wide"),
        # 8 tall blocks are a tenth of a wave; 1 MiB holds eight parts of 64 x 512 elements
        pytest.param("p4", 64, 512, 4096, (128, 32, 8), id="split-tall-within-the-workspace"),
        # 6 tall blocks: 14 parts would fill the wave, 448 / 64 steps make seven
        pytest.param("p4", 64, 300, 448, (128, 32, 7), id="parts-keep-64-steps"),
        # a short reduction stays whole: .05 of a square wave counts as 38, .2 of a wide one as 51
        pytest.param("p4", 64, 512, 256, (64, 64, 1), id="short"),
    ],
)
def test_pascal_chooses_by_waves(gpu: str, m: int, n: int, k: int, tile: tuple[int, int, int]) -> None:
    chosen = choose(GEMM.columns((linear(m, n, k),)), load_gpu(gpu), PRIORS)
    assert tuple(chosen[[0, 1, 3], 0].tolist()) == tile


def test_pascals_choice_needs_no_shared_memory_in_the_spec() -> None:
    """150 and 135 square blocks: 96 KB an SM make waves of 160; without a source it is 64 KB, and waves of 140."""
    p4 = load_gpu("p4")
    columns = GEMM.columns((linear(640, 960, 1024), linear(576, 960, 1024)))
    assert choose(columns, p4, PRIORS)[3].tolist() == [2, 2]
    assert choose(columns, replace(p4, shared_memory_bytes_per_sm=None), PRIORS)[3].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("tile", "shared_kb", "blocks"),
    [
        # registers: 64 K over threads x 128 (8x8 elements each) or x 64 (4x4)
        pytest.param((64, 64, 64), None, 8, id="square"),
        pytest.param((32, 128, 256), None, 4, id="wide"),
        pytest.param((128, 64, 128), None, 4, id="128x64"),
        pytest.param((128, 128, 256), None, 2, id="128x128"),
        # 16 steps of 128 elements and 1 KiB: 9 KiB
        pytest.param((64, 64, 64), 64, 7, id="square-by-shared-memory"),
        pytest.param((64, 64, 64), 96, 8, id="square-with-enough"),
        pytest.param((256, 256, 512), None, 1, id="at-least-one"),
    ],
)
def test_resident_blocks(tile: tuple[int, int, int], shared_kb: int | None, blocks: int) -> None:
    sizes = (np.array([float(size)]) for size in tile)
    shared = float("inf") if shared_kb is None else 1024.0 * shared_kb
    assert resident_blocks(*sizes, shared_bytes=shared).tolist() == [blocks]


@pytest.mark.parametrize(
    ("gpu", "k", "stored", "factor"),
    [
        # 4 k bytes a row: 64 KiB is nothing, 128 KiB costs 1 + 6 (2 - 1), 256 and more 1 + 6 (4 - 1) for that operand
        pytest.param("mi100", 16384, True, 1.0, id="64-kib"),
        pytest.param("mi100", 32768, True, 7.0, id="128-kib"),
        pytest.param("mi210", 65536, True, 19.0, id="256-kib"),
        pytest.param("mi210", 131072, True, 19.0, id="512-kib"),
        pytest.param("mi210", 65536 + 32, True, 1.0, id="odd"),
        # weights stored along n: only the left half of what a square tile reads camps
        pytest.param("mi100", 32768, False, 4.0, id="one-operand"),
        pytest.param("v100-pcie-32gb", 32768, True, 1.0, id="nvidia"),
    ],
)
def test_far_rows_meet_in_few_channels(gpu: str, k: int, stored: bool, factor: float) -> None:
    spec = load_gpu(gpu)
    kernel = Gemm(m=4096, n=4096, k=k, dtype=FP32, b_is_weight=True, transpose_b=stored, epilogue=("bias",))
    pinned = {
        **GEMM.columns((kernel,)),
        **{name: np.array([64.0]) for name in ("tile_n", "tile_m", "tile_threads")},
        "split_k": np.array([1.0]),
    }
    plain = 64 * 64 * k * 4 * (64 + 64) / (32.0 * spec.sm_count * spec.clock_hz)
    assert GEMM.estimate(pinned, spec, PRIORS).parts_us["l2"][0] == pytest.approx(1e6 * plain * factor)


@pytest.mark.parametrize(
    ("gpu", "stored", "rate"),
    [
        # stored (n, k): 32 bytes of a row at a time, a share of 0.17 of the DRAM peak; stored (k, n): 0.7 as streams
        pytest.param("p4", True, 0.17, id="along-k"),
        pytest.param("p4", False, 0.7, id="along-n"),
    ],
)
def test_strips_read_the_weights_again(gpu: str, stored: bool, rate: float) -> None:
    """P4: 20 SMs x 8 blocks of 64 x 64 are 160 tiles, one strip of 10,240 columns; ten strips, each reads all weights.

    They are 40 MiB, twenty times the L2: r = 2 x 20 for the knee of 2, of which r^2 / (1 + r^2) is read again. Rows of
    4 KiB along k open a page of GDDR5 for each 32 bytes when they are first read: a share of 0.23.
    """
    spec = load_gpu(gpu)
    kernel = Gemm(m=640, n=10240, k=1024, dtype=FP32, b_is_weight=True, transpose_b=stored, epilogue=("bias",))
    pinned = {
        **GEMM.columns((kernel,)),
        **{name: np.array([64.0]) for name in ("tile_n", "tile_m", "tile_threads")},
        "split_k": np.array([1.0]),
    }
    weights = 4 * 10240 * 1024
    once = 4 * (640 * 1024 + 640 * 10240 + 10240) + weights + 0.5 * 4 * 640 * 10240
    again = 9 * weights * 1600 / 1601
    along_k = 4 * 640 * 1024 + (weights if stored else 0)
    found = GEMM.estimate(pinned, spec, PRIORS).parts_us["memory"][0]
    moved = (once - along_k) / 0.7 + along_k / 0.23 + again / rate
    assert found == pytest.approx(1e6 * moved / spec.memory_bytes_per_s)


def test_strips_share_the_weights_while_in_step() -> None:
    """P4, 16 columns of 64: ten strips in flight of twenty. In step they read the weights once more, apart 19 times.

    A step of k is 4 (1,024 + 10 x 64) bytes wide; blocks are apart by the root of 1,024 steps over 60 times the L2.
    """
    spec = load_gpu("p4")
    pinned = {
        **GEMM.columns((linear(1280, 1024, 1024),)),
        **{name: np.array([64.0]) for name in ("tile_n", "tile_m", "tile_threads")},
        "split_k": np.array([1.0]),
    }
    deep = (1024 * 4 * (1024 + 640) / (60.0 * spec.l2_bytes)) ** 0.5
    weights = 4 * 1024 * 1024
    spill = (2 * weights / spec.l2_bytes) ** 2
    again = weights * spill / (1 + spill) * (1 + deep / (1 + deep) * 18)
    along_k = 4 * 1280 * 1024 + weights
    streamed = 4 * (1280 * 1024 + 1024) + 0.5 * 4 * 1280 * 1024
    found = GEMM.estimate(pinned, spec, PRIORS).parts_us["memory"][0]
    moved = streamed / 0.7 + along_k / 0.23 + again / 0.17
    assert found == pytest.approx(1e6 * moved / spec.memory_bytes_per_s)


@pytest.mark.parametrize(
    ("gpu", "k", "share"),
    [
        # rows of 512 bytes: four in a page of 2 KiB; of 4 KiB: a page for each 32 bytes; HBM has banks enough
        pytest.param("p4", 128, 0.7, id="short"),
        pytest.param("p4", 384, 0.23 * 4 / 3, id="of-1536-bytes"),
        pytest.param("p4", 1024, 0.23, id="long"),
        pytest.param("p100-pcie-16gb", 1024, 0.7, id="hbm"),
    ],
)
def test_rows_of_a_batch_open_pages(gpu: str, k: int, share: float) -> None:
    """64 entries of 64 rows and 64 columns: nothing is read twice, the left operand lies along k."""
    spec = load_gpu(gpu)
    columns = GEMM.columns((Gemm(batch=64, m=64, n=64, k=k, dtype=FP32),))
    operand, output = 64 * 4 * 64 * k, 64 * 4 * 64 * 64
    found = GEMM.estimate(columns, spec, PRIORS).parts_us["memory"][0]
    assert found == pytest.approx(1e6 * ((operand + output) / 0.7 + operand / share) / spec.memory_bytes_per_s)


@pytest.mark.parametrize(
    ("batch", "turns"), [(80, 2), (160, 4), (240, 4), (320, 4), (400, 6), (480, 8), (640, 8), (720, 10)]
)
def test_blocks_of_two_warps_share_schedulers(batch: int, turns: int) -> None:
    """A V100's 80 SMs with 1 to 9 blocks of 64x64 each: two of an SM's four schedulers work on a pair of blocks."""
    v100 = load_gpu("v100-pcie-32gb")
    columns = GEMM.columns((Gemm(batch=batch, m=64, n=64, k=4096, dtype=FP32),))
    tile = {"tile_n": 64.0, "tile_m": 64.0, "tile_threads": 64.0, "split_k": 1.0}
    pinned = {**columns, **{name: np.array([value]) for name, value in tile.items()}}
    one = 2 * 64 * 64 * 4096 / (v100.peak_flops_per_s["fp32"] / 80)
    assert GEMM.estimate(pinned, v100, PLAIN).parts_us["compute"][0] == pytest.approx(1e6 * turns * one, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "batch", "m", "n", "tile"),
    [
        # blocks for each of a V100's 80 SMs: few run the tile that fills all schedulers, then the one that pads least
        pytest.param("v100-pcie-32gb", 24, 64, 64, (128, 32), id="volta-few"),
        pytest.param("v100-pcie-32gb", 160, 64, 64, (64, 64), id="volta-some"),
        pytest.param("v100-pcie-32gb", 4096, 128, 32, (32, 128), id="volta-narrow"),
        pytest.param("v100-pcie-32gb", 4096, 64, 64, (64, 64), id="volta-square"),
        pytest.param("t4", 24, 128, 128, (64, 64), id="turing-few"),
        pytest.param("t4", 4096, 128, 128, (128, 64), id="turing-many"),
        pytest.param("t4", 4096, 32, 128, (128, 32), id="turing-flat"),
        pytest.param("t4", 4096, 64, 64, (64, 64), id="turing-square"),
    ],
)
def test_a_batch_on_volta_and_turing_fills_waves(gpu: str, batch: int, m: int, n: int, tile: tuple[int, int]) -> None:
    """Tiles that the kernels' names show for such grids."""
    chosen = choose(GEMM.columns((Gemm(batch=batch, m=m, n=n, k=256, dtype=FP32),)), load_gpu(gpu), PRIORS)
    assert tuple(chosen[:2, 0]) == tile


@pytest.mark.parametrize(("stored", "rows"), [(True, 128), (False, 64)], ids=["both-along-k", "left-along-k"])
def test_rows_longer_than_a_page_wait(stored: bool, rows: int) -> None:
    """P4, 1,600 tiles of 64 x 64, 2,048 times eight steps: rows of 64 KiB count half of 9 ns, spread over 20 SMs."""
    kernel = Gemm(m=640, n=10240, k=16384, dtype=FP32, b_is_weight=True, transpose_b=stored, epilogue=("bias",))
    pinned = {
        **GEMM.columns((kernel,)),
        **{name: np.array([64.0]) for name in ("tile_n", "tile_m", "tile_threads")},
        "split_k": np.array([1.0]),
    }
    found = GEMM.estimate(pinned, load_gpu("p4"), PRIORS).parts_us["drift"][0]
    assert found == pytest.approx(1600 * 2048 * rows * 0.5 * 9e-3 / 20)


@pytest.mark.parametrize(
    ("size", "power"),
    [(1, 0), (12, 2), (196, 2), (1000, 3), (1024, 3), (50257, 0), (65536, 3)],
)
def test_alignment(size: int, power: int) -> None:
    assert alignment(np.array([float(size)])).tolist() == [power]


def test_candidates_are_all_tiles_in_all_splits() -> None:
    tiles = fp32_tiles(load_gpu("l4"), batched=False, fused_bias=True)
    assert candidates(tiles, split=True).shape == (4, 5 * 9)
    assert candidates(tiles, split=True, splits=DEEP_SPLITS)[3].max() == 144
    assert candidates(tiles, split=False)[3].tolist() == [1.0] * 5
    assert len(convolution_tiles(load_gpu("mi100"))) == 10


def test_a_deep_narrow_product_is_split() -> None:
    """One output tile on 108 SMs: a single block would leave 107 idle."""
    a100 = load_gpu("a100-pcie-40gb")
    columns = GEMM.columns((linear(32, 32, 65536), linear(8192, 8192, 1024)))
    chosen = choose(columns, a100, PRIORS)
    assert chosen[3].tolist()[0] > 1
    assert chosen[3].tolist()[1] == 1


@pytest.mark.parametrize(
    ("kernel", "gpu", "tile", "blocks"),
    [
        # 8 KiB of the matrix a block: 16 outputs of 128 steps, half an output of 4,096 steps
        pytest.param(Gemm(batch=4, m=1, n=32, k=128, dtype=FP32), "a100-pcie-40gb", (16, 1, 1), 8, id="row"),
        pytest.param(Gemm(batch=4, m=32, n=1, k=128, dtype=FP32), "a100-pcie-40gb", (1, 16, 1), 8, id="column"),
        pytest.param(Gemm(m=1, n=4096, k=4096, dtype=FP32), "t4", (1, 1, 2), 8192, id="long"),
    ],
)
def test_vectors_are_streamed(kernel: Gemm, gpu: str, tile: tuple[int, int, int], blocks: int) -> None:
    result = GEMM.estimate(GEMM.columns((kernel,)), load_gpu(gpu), PRIORS)
    assert tuple(int(result.tile[name][0]) for name in ("n", "m", "split_k")) == tile
    assert result.tile_count.tolist() == [blocks]
    assert result.unmeasured is not None
    assert result.unmeasured.tolist() == [True]


def test_a_long_vector_product_takes_its_bytes() -> None:
    """64 MiB at .923 of 900 GB/s, and the launch."""
    result = GEMM.estimate(GEMM.columns((Gemm(m=1, n=4096, k=4096, dtype=FP32),)), load_gpu("v100-pcie-32gb"), PRIORS)
    assert result.latency_us[0] == pytest.approx(2.5 + 4 * 4096 * 4098 / (0.923 * 900e9) * 1e6, rel=0.01)


@pytest.mark.parametrize(
    ("kernel", "gpu"),
    [
        pytest.param(linear(1, 4096, 4096), "a100-pcie-40gb", id="bias"),
        pytest.param(Gemm(m=2, n=4096, k=4096, dtype=FP32), "a100-pcie-40gb", id="two-rows"),
        pytest.param(Gemm(batch=2, m=1, n=64, k=64, b_batch=1, dtype=FP32), "a100-pcie-40gb", id="shared-right"),
        pytest.param(Gemm(m=1, n=4096, k=4096, dtype=FP32), "mi210", id="amd"),
    ],
)
def test_other_products_have_tiles(kernel: Gemm, gpu: str) -> None:
    result = GEMM.estimate(GEMM.columns((kernel,)), load_gpu(gpu), PRIORS)
    assert result.unmeasured is not None
    assert result.unmeasured.tolist() == [False]
    assert result.tile["n"][0] >= 16


def test_ideal_is_the_roofline() -> None:
    """2^31 FLOP at 19.49 TFLOP/s against 12 MiB at 1555 GB/s; then one of little reuse."""
    a100 = load_gpu("a100-pcie-40gb")
    square = Gemm(m=1024, n=1024, k=1024, dtype=FP32)
    thin = Gemm(m=1, n=4096, k=4096, dtype=FP32)
    found = ideal_us(GEMM.columns((square, thin)), a100)
    peak, rate = a100.peak_flops_per_s["fp32"], a100.memory_bytes_per_s
    assert found.tolist() == pytest.approx([1e6 * 2**31 / peak, 1e6 * 4 * (4096 + 4096**2 + 4096) / rate])


@pytest.mark.parametrize("gpu", ["p4", "t4", "a100-sxm-80gb", "h100-sxm", "l4", "rtx-4090", "mi210", "b200-sxm"])
@settings(max_examples=25, deadline=None)
@given(
    batch=st.sampled_from([1, 2, 64, 4096]),
    m=st.integers(1, 5000),
    n=st.integers(1, 5000),
    k=st.integers(1, 20000),
)
def test_any_shape_has_a_finite_time_above_the_floor(gpu: str, batch: int, m: int, n: int, k: int) -> None:
    spec = load_gpu(gpu)
    columns = GEMM.pin(GEMM.columns((Gemm(batch=batch, m=m, n=n, k=k, dtype=FP32),)), spec, PRIORS)
    result = GEMM.estimate(columns, spec, PRIORS)
    assert np.isfinite(result.latency_us[0])
    assert result.latency_us[0] > PRIORS["floor_us"]
    found = GEMM.features(columns, spec, PRIORS, result)
    assert found.shape == (1, len(GEMM.feature_names))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()


def test_fewer_rows_than_the_tile_is_high_look_like_a_full_one() -> None:
    """They take the same blocks: nothing but what is read and written tells trees 3, 4, 8 or 31 rows from 64."""
    spec = load_gpu("t4")
    columns = GEMM.columns([linear(m, 1024, 1024) for m in (3, 4, 8, 31, 64, 65)])
    tile = {"tile_n": 64.0, "tile_m": 64.0, "tile_threads": 64.0, "split_k": 1.0}
    pinned = {**columns, **{name: np.full(6, value) for name, value in tile.items()}}
    found = GEMM.features(pinned, spec, PRIORS, GEMM.estimate(pinned, spec, PRIORS))
    of_rows = {"log_m", "m_alignment", "m_fill", "m_fill_of_64", "m_fill_of_128", "log_blocks_per_sm"}
    few = found[:, [name in of_rows for name in GEMM.feature_names]]
    assert (few[:4] == few[4]).all()
    assert (few[4] != few[5]).all()
    ridge = found[:, GEMM.feature_names.index("log_intensity_over_ridge")]
    assert np.ptp(ridge[:5]) < 0.2  # the operands' bytes; the products' rows would make it 3


def test_pinning_does_not_change_the_answer() -> None:
    spec = load_gpu("t4")
    columns = GEMM.columns((linear(512, 768, 3072), Gemm(batch=12, m=128, n=64, k=128, dtype=FP32)))
    free = GEMM.estimate(columns, spec, PRIORS)
    pinned = GEMM.estimate(GEMM.pin(columns, spec, PRIORS), spec, PRIORS)
    assert pinned.latency_us.tolist() == free.latency_us.tolist()


@pytest.mark.parametrize(
    ("gpu", "low", "high"),
    [
        # public SGEMM figures (TF32 off): A100 17-19, H100 SXM about 50, RTX 4090 50-56, A10 about 14 TFLOP/s
        pytest.param("a100-sxm-80gb", 15.5, 19.5, id="a100"),
        pytest.param("h100-sxm", 42.0, 55.0, id="h100"),
        pytest.param("rtx-4090", 44.0, 60.0, id="rtx-4090"),
        pytest.param("a10", 11.0, 17.0, id="a10"),
    ],
)
def test_rates_of_a_large_product(gpu: str, low: float, high: float) -> None:
    kernel = linear(8192, 4096, 4096)
    spec = load_gpu(gpu)
    time_us = GEMM.estimate(GEMM.columns((kernel,)), spec, PRIORS).latency_us[0]
    assert low < 2 * 8192 * 4096 * 4096 / time_us / 1e6 < high


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("gpu", ["mi100", "mi210", "mi300x"])
def test_amd_shares_out_a_long_reduction_of_few_outputs(gpu: str, batch: int) -> None:
    """16 tiles of 16 x 16 would leave most compute units idle for 65,536 steps."""
    few = GEMM.columns((Gemm(batch=batch, m=64, n=64, k=65536, dtype=FP32),))
    assert choose(few, load_gpu(gpu), PRIORS)[3] > 1
    # a tile for each compute unit leaves three of its four SIMDs idle
    spec = load_gpu(gpu)
    tiles = GEMM.columns((Gemm(batch=batch, m=1, n=16 * spec.sm_count, k=16384, dtype=FP32),))
    assert choose(tiles, spec, PRIORS)[3] > 1
    # the least that was measured fills them without
    measured = GEMM.columns((Gemm(batch=batch, m=512, n=768, k=65536, dtype=FP32),))
    assert choose(measured, load_gpu(gpu), PRIORS)[3] == 1


@pytest.mark.parametrize("dtype", [FP32, DataType.FLOAT16], ids=lambda dtype: dtype.label)
def test_a_product_of_two_vectors_streams_on_amd(dtype: DataType) -> None:
    spec, count = load_gpu("mi300x"), 10**8
    (found,) = predict((Gemm(m=1, n=1, k=count, dtype=dtype),), spec)
    assert found.bound == "memory"
    assert found.latency_us < 2e6 * 2 * count * dtype.bits / 8 / spec.memory_bytes_per_s


@pytest.mark.parametrize(
    ("gpu", "k", "reaches"),
    [
        pytest.param("a100-pcie-40gb", 1024, False, id="measured"),
        pytest.param("a100-pcie-40gb", 4096, True, id="a-longer-reduction-than-any-that-was-measured"),
        pytest.param("h100-sxm", 1024, True, id="tiles-of-a-later-library"),
        pytest.param("t4", 1024, False, id="measured-tiles-of-turing"),
        pytest.param("t4", 4096, True, id="longer-on-turing"),
    ],
)
def test_how_sure_a_batch_of_two_is(gpu: str, k: int, reaches: bool) -> None:
    """64 x 64 fill no tile of an A100's batches, which were measured up to 1,025 deep; beyond, and on a later GPU, the
    interval reaches what two plain products take, one after the other."""
    one = Gemm(m=64, n=64, k=k, dtype=FP32)
    single, two = predict([one, replace(one, batch=2)], load_gpu(gpu))
    assert two.latency_us > 5 * single.latency_us
    assert (two.low_us < 2 * single.latency_us) is reaches
    assert two.high_us < 1.6 * two.latency_us


def test_a_batch_that_fills_the_gpu_is_as_sure_as_before() -> None:
    """768 blocks of 128 x 128 with 64 columns: measured on an A100 at 2,048 deep."""
    kernel = Gemm(batch=96, m=2048, n=64, k=2048, dtype=FP32)
    (found,) = predict([kernel], load_gpu("a100-pcie-40gb"))
    assert found.low_us > 0.8 * found.latency_us
