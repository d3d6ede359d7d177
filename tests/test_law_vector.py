"""Laws of elementwise, softmax and normalization kernels, with prior constants, on a GPU of round numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, available_gpus, load_gpu
from neusight_onnx.gpu.changes import changed_gpu
from neusight_onnx.kernels import Elementwise, Kernel, Movement, Normalization, Softmax, TensorSpec
from neusight_onnx.laws.bandwidth import (
    MEMORY_FAMILIES,
    achieved_fraction,
    channel_gb_s,
    dram_doubt_log_sd,
    l2_bytes_per_s,
    l2_doubt_log_sd,
    l2_miss_fraction,
    memory_family,
    p_norm,
    reuse,
    stream_ideal_us,
)
from neusight_onnx.laws.base import Law, LawResult
from neusight_onnx.laws.elementwise import (
    ELEMENTWISE,
    broadcast_reload,
    integer_lanes_per_sm,
    iterated_dimensions,
    needs_index_arithmetic,
    operation_cost,
)
from neusight_onnx.laws.normalization import NORMALIZATION
from neusight_onnx.laws.softmax import SOFTMAX, block_threads, l1_bytes, operand_reload
from neusight_onnx.predictor import predict

FP32 = DataType.FLOAT32
FP16 = DataType.FLOAT16

# 100 SMs x 64 lanes x 2 x 1.5625 GHz = 20 TFLOP/s; 1 TB/s of GDDR6X, of which .90 is reached; 4 MiB of L2 at 10 TB/s
ROUND = GpuSpec(
    name="round",
    label="Round numbers",
    vendor="NVIDIA",
    architecture="Ampere",
    compute_capability=8.0,
    process_nm=7.0,
    sm_count=100,
    fp32_lanes_per_sm=64,
    clock_hz=1.5625e9,
    warp_size=32,
    memory_bytes=40 * 10**9,
    memory_type="GDDR6X",
    memory_bytes_per_s=1e12,
    l2_bytes=4 * 2**20,
    l1_bytes_per_sm=192 * 1024,
    shared_memory_bytes_per_sm=164 * 1024,
    register_bytes_per_sm=256 * 1024,
    max_threads_per_sm=2048,
    power_w=250.0,
    peak_flops_per_s={"fp32": 20e12, "tf32": 150e12, "fp16": 300e12, "bf16": 300e12, "int8": 600e12},
    l2_bytes_per_s=10e12,
)
LARGE_L2 = replace(ROUND, l2_bytes=96 * 2**20)


def tensor(*shape: int, dtype: DataType = FP32) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape)


def elementwise(operation: str, output: TensorSpec, *inputs: TensorSpec) -> Elementwise:
    return Elementwise(operations=(operation,), inputs=inputs, output=output)


def layer(rows: int, cols: int, method: str = "layer") -> Normalization:
    return Normalization(method=method, rows=rows, cols=cols, parameter_count=2 * cols, dtype=FP32)


LAW_OF: dict[type, Law] = {Elementwise: ELEMENTWISE, Softmax: SOFTMAX, Normalization: NORMALIZATION}


def run(kernels: Sequence[Kernel], gpu: GpuSpec) -> LawResult:
    law = LAW_OF[type(kernels[0])]
    priors = {constant.name: constant.prior for constant in law.constants}
    return law.estimate(law.columns(kernels), gpu, priors)


SQUARE = tensor(4096, 4096)  # 64 MiB
LARGE = tensor(65536, 4096)
HEADS = tensor(4, 8, 1024, 1024)  # 134.2 MB
MASK = tensor(4, 1, 1024, 1024)  # 16.8 MB


@pytest.mark.parametrize(
    ("kernel", "gpu", "expected_us"),
    [
        # 3 x 67.109 MB / .9 TB/s = 223.70, and 2 of launch
        pytest.param(elementwise("add", SQUARE, SQUARE, SQUARE), ROUND, 225.70, id="add"),
        # 2 x 67.109 MB / .9 TB/s = 149.13
        pytest.param(elementwise("relu", SQUARE, SQUARE), ROUND, 151.13, id="relu"),
        # half the bytes
        pytest.param(
            elementwise("relu", tensor(4096, 4096, dtype=FP16), tensor(4096, 4096, dtype=FP16)),
            ROUND,
            76.57,
            id="relu fp16",
        ),
        # 16.777 M elements x (10 + 90) FLOPs / 20 TFLOP/s = 83.9 is hidden behind 149.13 of DRAM: .563^8 / 8 = .0013
        pytest.param(elementwise("pow", SQUARE, SQUARE), ROUND, 151.32, id="general power"),
        # the mask is read again for every head: 3 accesses x 134.2 MB = 402.7 MB: 447.4; index arithmetic over three
        # dimensions is 33.55 M x 51.1 / (100 x 128 x 1.5625 GHz) = 85.7
        pytest.param(elementwise("add", HEADS, HEADS, MASK), ROUND, 449.4, id="mask read for every head"),
        # 12.6 MB pass between two reads: L2 of 96 MiB holds them; 285.2 MB: 316.9
        pytest.param(elementwise("add", HEADS, HEADS, MASK), LARGE_L2, 318.9, id="mask held by a large L2"),
        # one warp a row: read once, written once, 2 x 268.4 MB / .9 TB/s = 596.5
        pytest.param(Softmax(rows=65536, cols=1024, dtype=FP32), ROUND, 598.5, id="softmax in a warp"),
        # 4 blocks of 512 threads an SM hold 64 KiB of 192: x = 1/3, m = 1/(1 + 2.25^6) = .0076; DRAM
        # (2 + .0153) x 268.4 MB / .9 TB/s = 601.1; 40.96 waves x 12,100 cycles = 317.2; 5-norm 605.9
        pytest.param(Softmax(rows=16384, cols=4096, dtype=FP32), ROUND, 608.0, id="softmax in a block"),
        # 1,600 rows in flight are 6.55 MB: x = 1.5625, m = 1/(1 + .3904^3.3) = .957; (536.9 + .957 x 268.4) MB:
        # 882.0; 3,000 + 2 x 500 + 655.36 rows an SM x (500 + 2 x 40) = 384,109 cycles: 245.8; 4.1-norm 883.1
        pytest.param(layer(65536, 1024), ROUND, 885.1, id="layer norm, second read misses L2"),
        # 96 MiB of L2 hold the rows in flight: 536.9 MB: 596.5; 4.1-norm with 245.8 and 100.7 of arithmetic: 600.4
        pytest.param(layer(65536, 1024), LARGE_L2, 602.4, id="layer norm, second read hits L2"),
        # one row: 3,000 + 2 x 500 + .01 x 580 cycles = 2.56, and 2 of launch
        pytest.param(layer(1, 1024), ROUND, 4.56, id="layer norm of one row"),
        # a block by itself: .4 of 8,900 + 1 x 1,600 (2,048 columns, 256 threads, two vectors: 3,200) cycles = 3.10
        pytest.param(Softmax(rows=1, cols=2048, dtype=FP32), ROUND, 5.10, id="softmax of one long row"),
        # a scale and shift a channel: as relu
        pytest.param(
            Normalization(method="batch", rows=4096, cols=4096, parameter_count=256, dtype=FP32),
            ROUND,
            151.1,
            id="batch norm at inference",
        ),
        # statistics, then apply: 3 accesses x 67.1 MB = 223.7; 3 launches; 40,587 cycles = 26.0
        pytest.param(layer(4096, 4096, "group"), ROUND, 229.7, id="group norm"),
    ],
)
def test_large_kernels_by_hand(kernel: Kernel, gpu: GpuSpec, expected_us: float) -> None:
    assert run([kernel], gpu).latency_us[0] == pytest.approx(expected_us, rel=3e-3)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        # 4 x 1024 x 1024 x 4 bytes are read 7 times more; between two reads pass 1024 x 1024 x (4 + 4 + 4) bytes
        pytest.param(elementwise("add", HEADS, HEADS, MASK), (117440512.0, 12582912.0), id="mask over heads"),
        # a causal mask repeats over batch and heads: 31 more reads
        pytest.param(
            elementwise("add", HEADS, HEADS, tensor(1024, 1024)), (130023424.0, 12582912.0), id="mask over everything"
        ),
        pytest.param(elementwise("add", HEADS, HEADS, HEADS), (0.0, 0.0), id="nothing broadcast"),
        pytest.param(elementwise("add", HEADS, HEADS, tensor(1)), (0.0, 0.0), id="scalar"),
        # a bias over rows: 4096 - 1 more reads of 16 KiB, one row of 4096 x 12 bytes apart: any L2 holds it
        pytest.param(elementwise("add", SQUARE, SQUARE, tensor(4096)), (4095.0 * 16384, 49152.0), id="bias a column"),
        pytest.param(elementwise("mul", SQUARE, SQUARE, tensor(4096, 1)), (0.0, 0.0), id="in a register for its row"),
    ],
)
def test_what_a_broadcast_operand_is_read_again(kernel: Elementwise, expected: tuple[float, float]) -> None:
    assert broadcast_reload(kernel) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(elementwise("add", SQUARE, SQUARE, SQUARE), False, id="same shapes"),
        pytest.param(elementwise("add", SQUARE, SQUARE), False, id="with a scalar"),
        pytest.param(elementwise("add", SQUARE, SQUARE, tensor(4096)), True, id="broadcast"),
        pytest.param(elementwise("where", SQUARE, tensor(4096, 4096, dtype=DataType.BOOL), SQUARE), True, id="where"),
    ],
)
def test_kernels_that_compute_offsets(kernel: Elementwise, expected: bool) -> None:
    assert needs_index_arithmetic(kernel) is expected


@pytest.mark.parametrize(
    ("gpu", "family", "lanes"),
    [
        ("p4", "pascal_turing", 128),
        ("p100-pcie-16gb", "pascal_turing", 64),
        ("t4", "pascal_turing", 64),
        ("v100-pcie-32gb", "hbm", 64),
        ("a100-sxm-80gb", "hbm", 64),
        ("h100-sxm", "hbm", 64),
        ("b200-sxm", "hbm", 128),
        ("l4", "gddr6", 64),
        ("a10", "gddr6", 64),
        ("rtx-3070", "gddr6_bare", 64),
        ("rtx-2080-ti", "gddr6_bare", 64),
        ("rtx-a6000", "gddr6_bare", 64),
        ("rtx-4090", "gddr6x", 64),
        ("rtx-5090", "gddr6x", 128),
        ("jetson-agx-orin-64gb", "lpddr", 64),
        ("mi210", "amd", 64),
        ("mi300x", "amd_cdna3", 64),
    ],
)
def test_memory_family_and_integer_lanes(gpu: str, family: str, lanes: int) -> None:
    spec = load_gpu(gpu)
    assert memory_family(spec).name == family
    assert memory_family(replace(spec, name="another", label="name")).name == family
    assert integer_lanes_per_sm(spec) == lanes


def test_ecc_is_what_a_file_states_else_that_of_its_kind() -> None:
    """GeForce cards, whose FP16 is halved, have none; --set turns it off and on."""
    l4, rtx_3070 = load_gpu("l4"), load_gpu("rtx-3070")
    assert replace(l4, inline_ecc=None).has_inline_ecc
    assert not rtx_3070.has_inline_ecc
    assert not load_gpu("h100-sxm").has_inline_ecc
    assert achieved_fraction(changed_gpu(l4, {"inline_ecc": 0}, "set"), {}) == 0.9
    assert achieved_fraction(changed_gpu(rtx_3070, {"inline_ecc": 1}, "set"), {}) == 0.75


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        # a channel's loss: (1 / .893 - 1) / 19.44 = 6.164 ms a GB; V100: 897 GB/s over 64 channels, 14.02: 1 / 1.0864
        pytest.param("v100-pcie-32gb", 0.9205, id="HBM2, measured .923"),
        pytest.param("a100-pcie-40gb", 0.893, id="HBM2 of the A100, measured .893"),
        # 2,039 over 80: 25.49, 1 / 1.1571
        pytest.param("a100-sxm-80gb", 0.8642, id="HBM2e: not in training"),
        # 3,350 over 5,120 bits in channels of 32: 20.94, 1 / 1.1291
        pytest.param("h100-sxm", 0.8857, id="HBM3, channels of half the width: not in training"),
        # 2,000 over 5,120 bits in channels of 64: 25.0, 1 / 1.1541
        pytest.param("h100-pcie", 0.8665, id="the same die with HBM2e"),
        # 8,000 over 256: 31.25, 1 / 1.1926
        pytest.param("b200-sxm", 0.8385, id="HBM3e"),
        pytest.param("p100-pcie-16gb", 0.751, id="before Volta: no better than GDDR"),
        pytest.param("l4", 0.750, id="GDDR6 with ECC, as T4 and P4"),
        pytest.param("rtx-3060", 0.900, id="GDDR6 without ECC"),
    ],
)
def test_the_share_of_dram_bandwidth_that_streams_get(gpu: str, expected: float) -> None:
    assert achieved_fraction(load_gpu(gpu), {}) == pytest.approx(expected, abs=2e-4)


def test_a_bus_of_unknown_width_has_the_usual_channels_of_its_memory() -> None:
    """HBM2E at 3.2 Gbit/s a pin: 64 bits deliver 25.6 GB/s; HBM3 at 5.2: 32 bits deliver 20.8."""
    a100, h100 = (replace(load_gpu(gpu), memory_bus_bits=None) for gpu in ("a100-sxm-80gb", "h100-sxm"))
    assert channel_gb_s(a100) == pytest.approx(25.6)
    assert channel_gb_s(h100) == pytest.approx(20.8)


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [("p100-pcie-16gb", 0.0), ("mi100", 0.0), ("h100-sxm", 0.03), ("l4", 0.08), ("rtx-2070", 0.08), ("b200-sxm", 0.03)],
)
def test_a_memory_that_training_data_shows_little_of_is_doubted(gpu: str, expected: float) -> None:
    spec = load_gpu(gpu)
    assert dram_doubt_log_sd(spec) == expected
    for kernel in (elementwise("relu", LARGE, LARGE), Softmax(rows=262144, cols=1024, dtype=FP32), layer(262144, 1024)):
        doubt = run([kernel], spec).doubt_log_sd
        assert doubt is not None
        assert 0.5 * expected <= doubt[0] <= expected


def test_an_l2_of_unstated_rate_widens_the_interval_of_what_it_bounds() -> None:
    """An H20's file without its L2's rate, which is that of an H100 with two thirds more SMs."""
    stated = load_gpu("h20")
    bare = replace(stated, l2_bytes_per_s=None)
    tensor = TensorSpec(dtype=FP32, shape=(1024, 1024))  # 12 MB of an L2 of 60
    kernel = Elementwise(operations=("add",), inputs=(tensor, tensor), output=tensor)

    def width(gpu: GpuSpec) -> float:
        (found,) = predict([kernel], gpu)
        return found.high_us / found.low_us

    assert width(bare) > 1.1 * width(stated)
    assert l2_doubt_log_sd(bare) == pytest.approx(np.std(np.log([33.7, 8815e9 / 78 / 1.83e9])), abs=0.01)
    assert l2_doubt_log_sd(load_gpu("rtx-4090")) > l2_doubt_log_sd(stated) == 0.0


@pytest.mark.parametrize(
    ("gpu", "expected_tb_s"),
    [
        pytest.param("v100-pcie-32gb", 20 * 80 * 1.38e-3, id="NVIDIA's, per SM"),
        pytest.param("mi210", 20 * 104 * 1.7e-3, id="CDNA2 as NVIDIA's"),
        # eight dies of 2 KB a clock
        pytest.param("mi300x", 0.6 * 8 * 2048 * 2.1e-3, id="CDNA3, by its dies"),
        # 80 units of 64 bytes a clock
        pytest.param("mi308x", 0.6 * 80 * 64 * 2.1e-3, id="CDNA3, by its few units"),
    ],
)
def test_the_rate_of_an_l2(gpu: str, expected_tb_s: float) -> None:
    assert l2_bytes_per_s(load_gpu(gpu)) / 1e12 == pytest.approx(expected_tb_s, rel=0.01)


def test_an_l2_is_quicker_than_the_memory_behind_it() -> None:
    few = replace(ROUND, sm_count=10, l2_bytes_per_s=None)  # 10 x 20 bytes x 1.5625 GHz: .3 TB/s, memory has 1
    assert l2_bytes_per_s(few) == pytest.approx(1.2e12)


def test_an_l2_that_nobody_measured_is_doubted() -> None:
    assert l2_doubt_log_sd(load_gpu("mi300x")) >= 0.3 > l2_doubt_log_sd(load_gpu("rtx-4090")) > 0.0


def test_rows_of_softmax_that_start_off_a_cache_line_read_more() -> None:
    """1,000 FP32 columns are 31.25 lines, 992 are 31: a warp's row touches one line more than it has."""
    aligned, off = (Softmax(rows=262144, cols=cols, dtype=FP32) for cols in (992, 1000))
    memory = [run([kernel], ROUND).parts_us["memory"][0] / kernel.cols for kernel in (aligned, off)]
    assert memory[1] / memory[0] == pytest.approx(1.08)


@pytest.mark.parametrize(("capability", "factor"), [(6.1, 2.0), (7.0, 1.0), (8.0, 1.0)])
def test_pascals_blocks_of_softmax_wait_longer(capability: float, factor: float) -> None:
    """Each load takes Pascal's constant times as many cycles, and no other generation's."""
    cols, gpu = (
        SOFTMAX.columns([Softmax(rows=16384, cols=4096, dtype=FP32)]),
        replace(ROUND, compute_capability=capability),
    )
    constants = {constant.name: constant.prior for constant in SOFTMAX.constants} | {"block_cycles": 0.0}
    twice = {**constants, "pascal_cycles": 2 * constants["pascal_cycles"]}
    found = [SOFTMAX.estimate(cols, gpu, used).parts_us["latency"][0] for used in (constants, twice)]
    assert found[1] / found[0] == pytest.approx(factor)


@pytest.mark.parametrize(("capability", "kilobytes"), [(7.0, 128), (7.5, 96), (8.0, 192), (8.6, 128), (9.0, 256)])
def test_the_l1_of_a_generation_where_a_file_states_none(capability: float, kilobytes: int) -> None:
    bare = replace(ROUND, l1_bytes_per_sm=None, compute_capability=capability)
    assert l1_bytes(bare) == kilobytes * 1024
    assert l1_bytes(replace(bare, l1_bytes_per_sm=7)) == 7


def test_families_stay_below_the_data_sheet() -> None:
    names = [family.name for family in MEMORY_FAMILIES]
    assert len(set(names)) == len(names)
    assert all(0.5 < family.fraction < 1.0 and family.source for family in MEMORY_FAMILIES)


@pytest.mark.parametrize(
    ("megabytes", "expected"),
    [
        pytest.param(1.0, 0.0, id="fits"),
        # half of the bytes miss at .8 of the capacity: .8 x 4.194304 MB
        pytest.param(3.3554432, 0.5, id="knee"),
        pytest.param(40.0, 1.0, id="streams"),
    ],
)
def test_l2_misses(megabytes: float, expected: float) -> None:
    assert l2_miss_fraction(np.array([megabytes * 1e6]), ROUND)[0] == pytest.approx(expected, abs=1e-6)


def test_the_soft_maximum() -> None:
    # (3^2 + 4^2)^(1/2), and no overflow for huge terms
    assert p_norm((np.array([3.0, 1e200]), np.array([4.0, 0.0])), 2.0) == pytest.approx([5.0, 1e200])


@pytest.mark.parametrize(
    ("cols", "dtype", "expected"),
    [
        # measured in FP32: 128 up to 1,031 columns, 256 from 1,033 up to 2,053, 512 from 2,065 on
        (1025, FP32, 128),
        (1031, FP32, 128),
        (1033, FP32, 256),
        (2048, FP32, 256),
        (2053, FP32, 256),
        (2065, FP32, 512),
        (100000, FP32, 512),
        (100, FP32, 32),
        # launched by ONNX Runtime 1.31.1 in FP16
        (1032, FP16, 64),
        (1500, FP16, 128),
        (2049, FP16, 128),
        (4096, FP16, 256),
        (6144, FP16, 512),
    ],
)
def test_softmax_block_size(cols: int, dtype: DataType, expected: int) -> None:
    kernel = Softmax(rows=1, cols=cols, dtype=dtype)
    assert block_threads(SOFTMAX.columns([kernel]), ROUND)[0] == expected
    assert block_threads(SOFTMAX.columns([kernel]), load_gpu("mi100"))[0] == 1024


def test_rows_off_a_cache_line_cost_more() -> None:
    aligned, apart = run([layer(65536, 1024), layer(65536, 1020)], ROUND).latency_us
    assert apart > 1.03 * aligned  # though it has fewer bytes


def test_long_rows_of_softmax_are_read_again() -> None:
    # 16,384 columns: 4 rows of 64 KiB overflow an L1 of 192 KiB: the maximum, the sum and the result read DRAM
    kernels = [Softmax(rows=16384, cols=4096, dtype=FP32), Softmax(rows=4096, cols=16384, dtype=FP32)]
    short, long = run(kernels, ROUND).latency_us
    assert 1.5 < long / short < 2.1


SIZES = (0, 1, 7, 1000, 1024, 4096, 65537)
ODD: dict[str, list[Kernel]] = {
    "elementwise": [
        *(elementwise("gelu", tensor(rows, cols), tensor(rows, cols)) for rows in SIZES for cols in SIZES),
        elementwise("add", tensor(), tensor(), tensor()),
        elementwise("pow", tensor(2**16, 2**16), tensor(2**16, 2**16), tensor(2**16, 2**16)),
        elementwise("add", tensor(0, 8, 16, 16), tensor(0, 8, 16, 16), tensor(1, 1, 16, 16)),
        elementwise("mul", *(tensor(1 << 20, dtype=DataType.INT64),) * 3),
        elementwise("mul", *(tensor(1 << 20, dtype=DataType.FLOAT64),) * 3),
        Elementwise(operations=(), inputs=(), output=tensor(3)),
    ],
    "softmax": [
        *(Softmax(rows=rows, cols=cols, dtype=FP32) for rows in SIZES for cols in SIZES),
        Softmax(rows=1, cols=2**30, dtype=FP32),
        Softmax(rows=2**26, cols=2, inner=2**20, dtype=FP16),
        Softmax(rows=1024, cols=512, inner=64, dtype=FP32, fused=("mul", "add"), extra_inputs=(tensor(512, 512),)),
    ],
    "normalization": [
        *(
            Normalization(method=method, rows=rows, cols=cols, parameter_count=cols, dtype=FP32)
            for rows in SIZES
            for cols in SIZES
            for method in ("layer", "rms", "batch", "group", "instance", "lp", "local_response")
        ),
        layer(1, 2**30),
        layer(2**28, 4),
    ],
}


@pytest.mark.parametrize("kind", sorted(ODD))
def test_every_size_on_every_gpu_is_sane(kind: str) -> None:
    kernels = ODD[kind]
    law = LAW_OF[type(kernels[0])]
    priors = {constant.name: constant.prior for constant in law.constants}
    columns = law.columns(kernels)
    with np.errstate(all="raise", under="ignore"):
        for gpu in available_gpus():
            result = law.estimate(columns, gpu, priors)
            features = law.features(columns, gpu, priors, result)
            assert np.all(np.isfinite(result.latency_us)), gpu.name
            assert np.all(result.latency_us >= result.ideal_us), gpu.name
            assert np.all(result.latency_us >= 1.9), gpu.name
            assert np.all(result.ideal_us > 0), gpu.name
            assert np.all(result.tile_count >= 1), gpu.name
            assert np.all(result.wave_count >= 0), gpu.name
            assert all(part.shape == result.latency_us.shape for part in result.parts_us.values())
            assert features.dtype == np.float32
            assert features.shape == (len(kernels), len(law.feature_names))
            assert np.all(np.isfinite(features)), gpu.name


BIG = tensor(2**14, 1024)
FUSED = Elementwise(
    operations=("add", "gelu", "mul"), inputs=(BIG, tensor(1024), BIG), output=BIG, extra_outputs=(BIG,), generated=True
)


def test_a_generated_kernel_pays_for_what_it_does() -> None:
    """Add and mul 2 each, gelu 60; loads, index and store once (8) where nothing hides them; five streams of which the
    vector is one."""
    assert operation_cost(FUSED) == 64
    assert operation_cost(replace(FUSED, operations=("add", "mul"))) == 12
    for name in ("relu", "gelu", "silu"):
        alone = replace(FUSED, operations=(name,))
        assert operation_cost(alone) == operation_cost(replace(alone, generated=False))
    assert not needs_index_arithmetic(FUSED)
    assert needs_index_arithmetic(replace(FUSED, generated=False))
    columns = ELEMENTWISE.columns([FUSED])
    assert columns["streams"][0] == 5
    assert columns["write_bytes"][0] == 2 * BIG.byte_count


def test_parts_of_a_generated_kernels_output_are_no_broadcast() -> None:
    """A concatenation reads (8, 1, 64) once; an addition reads it for every one of 16 rows."""
    kernel = elementwise("concat", tensor(8, 16, 64), tensor(8, 1, 64), tensor(8, 15, 64))
    part = replace(kernel, inputs=(tensor(8, 15, 64),), generated=True)
    assert broadcast_reload(part) == (0.0, 0.0)
    assert broadcast_reload(replace(part, inputs=(tensor(8, 1, 64),)))[0] == 4 * 15 * 8 * 64


def test_a_mask_is_read_for_every_head() -> None:
    """16 queries of 4 heads see one mask of (16, 16) booleans: 3 more times, 256 (4 + 4 + 1) bytes apart."""
    mask = tensor(16, 16, dtype=DataType.BOOL)
    assert operand_reload(Softmax(rows=64, cols=16, dtype=FP32, extra_inputs=(mask,))) == (768.0, 2304.0)
    assert operand_reload(Softmax(rows=64, cols=16, dtype=FP32, extra_inputs=(tensor(16),))) == (0.0, 0.0)
    assert operand_reload(Softmax(rows=64, cols=16, dtype=FP32, extra_inputs=(tensor(64, 16),))) == (0.0, 0.0)


@pytest.mark.parametrize("gpu", ["p100-pcie-16gb", "a100-pcie-40gb", "h100-sxm", "mi210"])
def test_a_fused_softmax_costs_more_than_a_plain_one_and_less_than_its_parts(gpu: str) -> None:
    scores = tensor(64 * 512, 512)
    parts = [
        elementwise("div", scores, scores),
        elementwise("add", scores, scores, tensor(1, 512)),
        Softmax(rows=64 * 512, cols=512, dtype=FP32),
    ]
    whole = Softmax(rows=64 * 512, cols=512, dtype=FP32, fused=("div", "add"), extra_inputs=(tensor(1, 512),))
    spec = load_gpu(gpu)
    apart = [run([part], spec).latency_us[0] for part in parts]
    assert apart[2] < run([whole], spec).latency_us[0] < sum(apart) / 2


GROWING: dict[str, list[Kernel]] = {
    "elementwise": [elementwise("add", *(tensor(2**k, 1024),) * 3) for k in range(20)],
    "softmax in a warp": [Softmax(rows=2**k, cols=512, dtype=FP32) for k in range(20)],
    "softmax in a block": [Softmax(rows=2**k, cols=2048, dtype=FP32) for k in range(20)],
    "strided softmax": [Softmax(rows=2**k, cols=64, inner=64, dtype=FP32) for k in range(6, 20)],
    "layer norm": [layer(2**k, 1024) for k in range(20)],
    "group norm": [layer(2**k, 4096, "group") for k in range(16)],
}


STREAMED = {
    # 4 bytes an element at 900 GB/s, read and written once; 0.001 us of scale and shift
    "short rows": (Normalization(method="layer", rows=10**7, cols=100, dtype=FP32, generated=True), 8888.9),
    "RMS": (Normalization(method="rms", rows=10**6, cols=1000, dtype=FP32, generated=True), 8888.9),
    "softmax": (Softmax(rows=10**6, cols=1000, dtype=FP32, generated=True), 8888.9),
    "softmax of more than a warp holds": (Softmax(rows=10**6, cols=1025, dtype=FP32, generated=True), 9111.1),
    # 200 rows of 80 kB in flight are four times the L2: once more through DRAM
    "rows that stay nowhere": (Softmax(rows=10**5, cols=20_000, dtype=FP32, generated=True), 26_666.7),
}


@pytest.mark.parametrize("name", STREAMED)
def test_generated_rows_are_read_once(name: str) -> None:
    kernel, expected_us = STREAMED[name]
    found = run([kernel], ROUND)
    assert found.parts_us["memory"][0] == pytest.approx(expected_us, rel=1e-4)
    assert found.latency_us[0] == pytest.approx(expected_us, rel=0.01)


@pytest.mark.parametrize(
    ("cols", "row_cycles"),
    [
        pytest.param(384, 500.0, id="three-warps-load"),
        pytest.param(256, 500.0 * 0.81, id="two"),
        pytest.param(96, 500.0 * 0.62, id="one"),
    ],
)
def test_warps_without_columns_cost_less(cols: int, row_cycles: float) -> None:
    """3,000 cycles, 500 of the load, and 10,000 rows an SM of so many and 40 for the load; 1.5625 GHz."""
    found = run([layer(1_000_000, cols)], ROUND).parts_us["latency"][0]
    assert found == pytest.approx((3500.0 + 10_000 * (row_cycles + 40.0)) / 1562.5)


def test_a_lone_generated_row_takes_its_latency() -> None:
    """3,000 cycles of 1.5625 GHz; 32 kB are 16 bytes for each of 1,024 threads, twice: one step of 500 cycles more."""
    short = Normalization(method="layer", rows=1, cols=1024, dtype=FP32, generated=True)
    long = Normalization(method="layer", rows=1, cols=8192, dtype=FP32, generated=True)
    assert run([short, long], ROUND).parts_us["latency"].tolist() == pytest.approx([1.92, 2.24])


@pytest.mark.parametrize(
    ("library", "expected_us"),
    [
        # two dimensions of 7 + 3, beside them 4 + 3 x 5.7: 41.1 instructions, 128 lanes of an SM a clock
        pytest.param("", 205.5, id="PyTorch's kernel"),
        pytest.param("onnxruntime", 50.0, id="another library's: the addition's 10 FLOPs"),
    ],
)
def test_only_pytorch_finds_operands_so(library: str, expected_us: float) -> None:
    """1e8 elements; 100 SMs x 128 lanes x 1.5625 GHz = 2e13 instructions/s and FLOP/s."""
    whole, vector = TensorSpec(dtype=FP16, shape=(10**5, 1000)), TensorSpec(dtype=FP16, shape=(1000,))
    kernel = Elementwise(operations=("add",), inputs=(whole, vector), output=whole, library=library)
    assert run([kernel], ROUND).parts_us["compute"][0] == pytest.approx(expected_us)


def test_broadcasting_before_volta_takes_integer_lanes() -> None:
    """1e8 elements x 70 operations; an SM of compute capability 6.0 with 64 lanes for both."""
    whole, vector = TensorSpec(dtype=FP32, shape=(10**5, 1000)), TensorSpec(dtype=FP32, shape=(1000,))
    kernel = Elementwise(operations=("add",), inputs=(whole, vector), output=whole)
    assert run([kernel], replace(ROUND, compute_capability=6.0)).parts_us["compute"][0] == pytest.approx(700.0)


@pytest.mark.parametrize(
    ("shapes", "dimensions"),
    [
        pytest.param([(2, 3, 4, 5), (3, 1, 1)], 3, id="bias-of-channels"),
        pytest.param([(2, 3, 4, 5), (5,)], 2, id="bias-of-the-last"),
        pytest.param([(2, 3, 4, 5), (2, 3, 1, 1)], 2, id="scale-of-each-image-and-channel"),
        pytest.param([(2, 3, 4, 5), (2, 1, 4, 5)], 3, id="mask-of-all-heads"),
        pytest.param([(2, 1, 4, 5), (1, 1, 4, 5)], 2, id="sizes-of-one-don't-count"),
        pytest.param([(2, 1, 4, 1), (1, 3, 1, 5)], 4, id="outer-product"),
        pytest.param([(2, 3), (2, 3)], 1, id="whole"),
    ],
)
def test_dimensions_that_an_iterator_goes_through(shapes: list[tuple[int, ...]], dimensions: int) -> None:
    output = tuple(np.broadcast_shapes(*shapes))
    kernel = elementwise("add", tensor(*output), *(tensor(*shape) for shape in shapes))
    assert iterated_dimensions(kernel) == dimensions


@pytest.mark.parametrize("kind", sorted(GROWING))
@pytest.mark.parametrize("gpu", ["p4", "v100-pcie-32gb", "h100-sxm", "l4", "rtx-4090", "b200-sxm", "mi210", "mi300x"])
def test_more_rows_never_take_less(kind: str, gpu: str) -> None:
    latency = run(GROWING[kind], load_gpu(gpu)).latency_us
    assert np.all(np.diff(latency) >= -1e-9)
    assert latency[-1] > 4 * latency[0]


@pytest.mark.parametrize("law", [ELEMENTWISE, SOFTMAX, NORMALIZATION], ids=lambda law: law.kernel_class)
def test_constants_and_features_are_declared_once(law: Law) -> None:
    names = [constant.name for constant in law.constants]
    assert len(set(names)) == len(names)
    assert len(set(law.feature_names)) == len(law.feature_names)
    assert all(constant.source and constant.prior > 0 and constant.prior_log_sd >= 0 for constant in law.constants)


@pytest.mark.parametrize("kind", ["elementwise", "softmax", "normalization"])
def test_the_name_of_a_gpu_changes_nothing(kind: str) -> None:
    spec = load_gpu("a100-pcie-40gb")
    other = replace(spec, name="x", label="y", aliases=(), sources=())
    assert run(ODD[kind], spec).latency_us.tolist() == run(ODD[kind], other).latency_us.tolist()


@pytest.mark.parametrize(
    ("bytes_", "ideal_us", "assumed_us"),
    [
        # L4: 48 MiB of L2, 300 GB/s. At the L2's rate (58 SMs x 2.04 GHz x 17 bytes = 2,011 GB/s, twice that) .261 us;
        # 1 - exp(-3 x 1 / 48) = .0606 of 1 MiB is assumed to miss: .212 us
        (2**20, 0.2607, 0.2118),
        # 16 MiB fit; 1 - exp(-1) = .632 are assumed to miss
        (2**24, 4.171, 35.35),
        # .99 of 75 MiB and more: DRAM
        (2**28, 894.78, 894.78),
    ],
    ids=["the L2's rate", "a third of the L2", "DRAM"],
)
def test_what_fits_the_l2_is_not_held_to_dram(bytes_: int, ideal_us: float, assumed_us: float) -> None:
    l4, column = load_gpu("l4"), np.array([float(bytes_)])
    assert stream_ideal_us(np.zeros(1), column, 1e12, l4)[0] == pytest.approx(ideal_us, rel=0.002)
    found = reuse(column, np.zeros(1) + ideal_us, 2.0, 0.75 * 300e9, l4)
    assert found.memory_us[0] == pytest.approx(assumed_us, rel=0.002)
    assert found.less[0] == pytest.approx(ideal_us / max(ideal_us, assumed_us), rel=0.002)
    assert found.more[0] == pytest.approx((2.0 + assumed_us / 0.75) / max(ideal_us, assumed_us), rel=0.002)


@pytest.mark.parametrize("kind", ["learned", "analytic"])
def test_what_is_assumed_of_the_l2_is_doubted(kind: str) -> None:
    """24 MiB on an L40S, whose L2 of 96 MiB holds them: 3 x 24 / 96 leaves exp(-.75), 13.3 of 25.2 MB miss, 15.4 us."""
    spec = TensorSpec(dtype=DataType.FLOAT32, shape=(2, 1024, 1024))
    kernel: Kernel = Elementwise(operations=("add",), inputs=(spec, spec), output=spec)
    if kind == "analytic":
        half = 3 * 2**22
        kernel = Movement(operation="copy", dtype=FP32, shape=(half // 4,), read=half, written=half)
    found = predict((kernel,), load_gpu("l40s"))[0]
    assert found.method == kind
    assert found.latency_us == pytest.approx(15.37, rel=0.01)
    assert found.bound == "memory"
    assert found.low_us < 7.0  # 4.1 us by the L2, and the launch
    assert found.high_us > 2.0 + 13.3e6 / 864e3 / 0.75
    assert found.utilization == pytest.approx(2.07 / 15.37, rel=0.02)  # twice the L2's 6,083 GB/s
    assert found.level_share > 0.9
