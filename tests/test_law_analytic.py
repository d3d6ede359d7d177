"""Analytic estimates on a GPU of round numbers; figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, available_gpus, load_gpu
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    HostWork,
    Kernel,
    Movement,
    Normalization,
    Opaque,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    Sort,
    TensorSpec,
    Transfer,
    TreeWalk,
)
from neusight_onnx.laws.analytic.estimate import HALF_WIDTH_LOG, analytic_estimate, kernel_work
from neusight_onnx.laws.analytic.pipes import pipe_flops_per_s, vector_flops_per_s

FP32 = DataType.FLOAT32
FP16 = DataType.FLOAT16
INT64 = DataType.INT64

# 100 SMs x 64 lanes x 2 x 1.5625 GHz = 20 TFLOP/s; 1 TB/s of GDDR6X, of which .90 is reached; 4 MiB of L2 at 10 TB/s;
# integer lanes: 100 x 64 x 1.5625 GHz = 10 T/s
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

MIB = 2**20


def move(operation: str, shape: tuple[int, ...], permutation: tuple[int, ...] | None = None) -> Movement:
    size = int(np.prod(shape)) * 4
    read = 0 if operation == "fill" else size
    return Movement(operation=operation, dtype=FP32, shape=shape, permutation=permutation, read=read, written=size)


def gather(run: int) -> GatherScatter:
    count = 16 * MIB // run
    return GatherScatter(operation="gather", moved=16 * MIB, run=run, dtype=FP32, index_count=count, index_dtype=INT64)


def _walk(rows: int, trees: int, depth: int) -> HostWork:
    """Down full binary trees, without what is read and written besides."""
    walk = TreeWalk(rows=rows, trees=trees, depth=depth, nodes=trees * (2**depth - 1))
    return HostWork(operation="trees", operation_count=1, dtype=FP32, read=walk.read_bytes, written=0, walk=walk)


@pytest.mark.parametrize(
    ("kernel", "expected_us"),
    [
        # 2 x 67.1 MB / .9 TB/s = 149.1, and 2 of launch
        pytest.param(move("copy", (4096, 4096)), 151.1, id="copy"),
        pytest.param(move("fill", (4096, 4096)), 76.6, id="fill only writes"),
        # 149.1 x 1.2 = 179.0; offsets over 4 dimensions 16.78 M x 51.4 / 20 T/s = 43.1; 4-norm 179.1
        pytest.param(move("transpose", (64, 64, 64, 64), (0, 2, 1, 3)), 181.1, id="permute that keeps its runs"),
        # 149.1 x 1.6 = 238.6; the first two dimensions are one: 16.78 M x 42.4 / 20 T/s = 35.6 of offsets
        pytest.param(move("transpose", (64, 64, 64, 64), (0, 1, 3, 2)), 240.6, id="permute that loses its runs"),
        pytest.param(move("transpose", (64, 64, 64, 64), (0, 1, 2, 3)), 151.1, id="no permutation is a copy"),
        # 268.4 MB / (.9 x .9 TB/s) = 331.4; 34.5 serial and 33.6 of arithmetic vanish in the 4-norm
        pytest.param(
            Reduction(
                operation="sum",
                outputs=8192,
                reduced=8192,
                dtype=FP32,
                output=TensorSpec(dtype=FP32, shape=(8192,)),
            ),
            333.4,
            id="sum of rows",
        ),
        # (67.1 + 67.1 + 8 x 16,384 index) MB / (.65 x .9 TB/s) = 229.6; offsets 117.4; 4-norm 233.5
        pytest.param(gather(1024), 235.5, id="gather of whole rows"),
        # of what is written .4 x 4.2 MB stays in L2: (67.1 + .1 + 65.4) MB / .585 TB/s = 226.8; 4-norm 230.8
        pytest.param(replace(gather(1024), operation="embedding"), 232.8, id="embedding"),
        # the same at the copy rate: 147.4, offsets 16.8
        pytest.param(replace(gather(1024), operation="embedding", access="vector"), 149.4, id="embedding by vectors"),
        # a sector of 32 bytes for each 4: (8 x 67.1 + 67.1 + 134.2 of indices) MB / .585 TB/s = 1,262
        pytest.param(gather(1), 1264.0, id="gather of single elements"),
        # tiles of 128 x 128: 1,024 on 100 SMs are 11 waves; 2 x 128 x 128 x (4,096 + 64) / 2.25 TFLOP/s an SM = 60.6
        pytest.param(Gemm(m=4096, n=4096, k=4096, dtype=FP16), 668.5, id="fp16 product"),
        # 2 x 4,096 x 4,096 bytes of weights / (.95 x .9 TB/s) = 39.26, less than 1 % for arithmetic
        pytest.param(Gemm(m=1, n=4096, k=4096, dtype=FP16), 41.4, id="matrix-vector product"),
        # 10 steps of 20 us and 2 of launch; weights of 4.19 MB miss L2 by .936: 47.8 MB x .936 / .765 TB/s = 58.5;
        # 335.5 MFLOP / (.45 x 20 TFLOP/s) = 37.3; 4-norm 60.8
        pytest.param(
            Recurrent(cell="lstm", steps=10, directions=1, b=16, h=512, gates=4, dtype=FP32), 262.8, id="lstm"
        ),
        # keys and values of 8 x 8 heads x 4,096 x 2 x 128 x 2 bytes = 134.2 MB / (.9 x .9 TB/s) = 165.7
        pytest.param(
            Attention(b=8, h=32, g=8, s=1, t=4096, d=128, v=128, dtype=FP16), 167.9, id="decoding reads the cache"
        ),
        # radix sort: 4 passes x 2 x 12 bytes x 16.78 M = 1,610.6 MB, 201.3 MB written: / (.6 x .9 TB/s) = 3,355.4;
        # 6 launches
        pytest.param(
            Sort(operation="sort", rows=16, cols=MIB, kept=MIB, dtype=FP32, output_bytes=16 * MIB * 12),
            3367.4,
            id="radix sort",
        ),
        # 2 GFLOP at a tenth of 20 TFLOP/s
        pytest.param(
            Opaque(operation="fft", operation_count=2 * 10**9, dtype=FP32, read=8, written=8), 1002.0, id="opaque"
        ),
        # PCIe 4.0 x16 where nothing is said: .6 x 31.52 GB/s; 18.912 MB take 1 ms; 8 us and 2 of launch
        pytest.param(Transfer(direction="to_host", dtype=FP32, byte_count=18_912_000), 1010.0, id="copy to the host"),
        # 20 MFLOP at 20 GFLOP/s and 10 MB at 10 GB/s, 2 of launch
        pytest.param(
            HostWork(operation="det", operation_count=20_000_000, dtype=FP32, read=6_000_000, written=4_000_000),
            2002.0,
            id="work of the host",
        ),
        # 3 GOP of products at 3 TOP/s, the other 20 MFLOP at 20 GFLOP/s
        pytest.param(
            HostWork(
                operation="qlinearconv",
                operation_count=3_020_000_000,
                dtype=DataType.UINT8,
                read=0,
                written=0,
                mac_count=1_500_000_000,
            ),
            2002.0,
            id="products of 8 bits on the host",
        ),
        pytest.param(
            HostWork(operation="conv", operation_count=10**9, dtype=FP32, read=0, written=0, mac_count=500_000_000),
            1002.0,
            id="products of floats on the host",
        ),
        # 500 trees of 9 nodes down to the leaf, 4.1 MB: 4,500 x 5.56 ns on 6 cores and 5 us; 2 of launch
        pytest.param(_walk(1, 500, 9), 11.2, id="a row walks down trees"),
        pytest.param(_walk(10, 500, 9), 252.1, id="few rows by one thread"),
        pytest.param(_walk(100, 500, 9), 423.9, id="many rows"),
        pytest.param(_walk(1, 50, 9), 4.475, id="few trees by one thread"),
        # 16 x 16.4 million nodes, 8.1 times as far
        pytest.param(_walk(1, 500, 15), 62.6, id="trees that no cache holds"),
    ],
)
def test_by_hand(kernel: Kernel, expected_us: float) -> None:
    assert analytic_estimate([kernel], ROUND).latency_us[0] == pytest.approx(expected_us, rel=4e-3)


def test_attention_at_half_of_the_matrix_pipe() -> None:
    # 2 x 2 x 32 x 4,096^2 x 128 x 2 = 2 x 137.4 GFLOP x 4 = 1,099.5 GFLOP / (.55 x 300 TFLOP/s) = 6,664 us; half of the
    # exponentials, 32 x 8 x ... on 16 units an SM, adds up to a third; waves are full
    kernel = Attention(b=4, h=32, g=32, s=4096, t=4096, d=128, v=128, dtype=FP16)
    us = analytic_estimate([kernel], ROUND).latency_us[0]
    assert 2.0 * kernel.macs == pytest.approx(1.0995e12, rel=1e-3)
    assert 6664 < us < 1.35 * 6664


@pytest.mark.parametrize(
    ("gpu", "dtype", "pipe"),
    [
        ("a100-sxm-80gb", DataType.FLOAT16, "fp16"),
        ("a100-sxm-80gb", DataType.BFLOAT16, "bf16"),
        ("a100-sxm-80gb", DataType.FLOAT32, "fp32"),
        ("a100-sxm-80gb", DataType.FLOAT8E4M3FN, "fp16"),
        ("a100-sxm-80gb", DataType.INT8, "int8"),
        ("h100-sxm", DataType.FLOAT8E4M3FN, "fp8"),
        ("h100-sxm", DataType.FLOAT4E2M1, "fp8"),
        ("b200-sxm", DataType.FLOAT4E2M1, "fp4"),
        ("t4", DataType.BFLOAT16, "fp32"),
        ("t4", DataType.FLOAT16, "fp16"),
        ("v100-pcie-32gb", DataType.INT8, "int8"),
        ("p100-pcie-16gb", DataType.INT8, "fp32"),
        ("p4", DataType.FLOAT16, "fp32"),
        ("mi210", DataType.FLOAT32, "fp32_matrix"),
        ("mi210", DataType.INT64, "fp32"),
    ],
)
def test_which_pipe_multiplies_a_dtype(gpu: str, dtype: DataType, pipe: str) -> None:
    spec = load_gpu(gpu)
    peak, share = pipe_flops_per_s(spec, dtype)
    assert peak == spec.peak_flops_per_s[pipe]
    assert 0.4 < share < 0.9


@pytest.mark.parametrize(
    ("gpu", "lanes_tflops", "products_tflops"),
    [
        # data sheets; a 64th of 30 TFLOP/s on the L4
        pytest.param("l4", 0.47, 0.47, id="l4"),
        pytest.param("v100-sxm2-16gb", 7.8, 7.8, id="v100"),
        pytest.param("a100-sxm-80gb", 9.7, 19.5, id="a100"),
        pytest.param("a30", 5.2, 10.3, id="a30"),
        pytest.param("h100-sxm", 34.0, 67.0, id="h100"),
        pytest.param("b200-sxm", 40.0, 40.0, id="b200"),
        pytest.param("mi100", 11.5, 11.5, id="mi100"),
        pytest.param("mi210", 22.6, 45.3, id="mi210"),
        pytest.param("mi300x", 81.7, 163.4, id="mi300x"),
        pytest.param("mi355x", 78.6, 78.6, id="mi355x"),
    ],
)
def test_double_precision_runs_at_the_die_s_rate(gpu: str, lanes_tflops: float, products_tflops: float) -> None:
    spec = load_gpu(gpu)
    assert vector_flops_per_s(spec, DataType.FLOAT64) == pytest.approx(1e12 * lanes_tflops, rel=0.02)
    assert pipe_flops_per_s(spec, DataType.FLOAT64)[0] == pytest.approx(1e12 * products_tflops, rel=0.02)


def _of_each_class(n: int, dtype: DataType) -> list[Kernel]:
    spec = TensorSpec(dtype=dtype, shape=(n, n))
    size = spec.byte_count
    return [
        Gemm(m=n, n=n, k=n, dtype=dtype),
        Gemm(batch=n, m=1, n=n, k=0, dtype=dtype),
        Conv(n=n, c=n, k=n, spatial=(n, n), out=(n, n), filter=(3, 3), strides=(1, 1), dilations=(1, 1), dtype=dtype),
        Conv(
            n=n,
            c=n,
            k=n,
            groups=max(n, 1),
            spatial=(n,),
            out=(n,),
            filter=(3,),
            strides=(1,),
            dilations=(1,),
            dtype=dtype,
        ),
        Conv(
            n=n,
            c=n,
            k=n,
            spatial=(n, n),
            out=(2 * n, 2 * n),
            filter=(2, 2),
            strides=(2, 2),
            dilations=(1, 1),
            transposed=True,
            dtype=dtype,
        ),
        Elementwise(operations=("gelu",), inputs=(spec,), output=spec),
        Softmax(rows=n, cols=n, dtype=dtype),
        Normalization(method="rms", rows=n, cols=n, dtype=dtype),
        *(
            Reduction(operation=name, outputs=n, reduced=n, inner=inner, dtype=dtype, output=spec)
            for name in ("sum", "cumsum", "argmax")
            for inner in (1, 64)
        ),
        Reduction(operation="sum", outputs=1, reduced=n * n, dtype=dtype, output=TensorSpec(dtype=dtype, shape=())),
        Pooling(operation="max", input=spec, output=spec, window=9),
        Pooling(operation="max", input=spec, output=spec, window=9, access="vector"),
        Transfer(direction="to_device", dtype=dtype, byte_count=size),
        HostWork(operation="unique", operation_count=n, dtype=dtype, read=size, written=size),
        Pooling(operation="global_average", input=spec, output=TensorSpec(dtype=dtype, shape=(n, 1)), window=n),
        Attention(b=1, h=n, g=max(n // 4, 1), s=n, t=n, d=64, v=64, causal=True, dtype=dtype),
        Attention(b=n, h=8, g=8, s=1, t=n, d=64, v=64, dtype=dtype, cache_write_elements=n),
        GatherScatter(operation="gather", moved=n * n, run=1, dtype=dtype, index_count=n, index_dtype=INT64),
        GatherScatter(operation="scatter", moved=n, run=n, dtype=dtype, index_count=n, index_dtype=INT64, base=spec),
        *(
            Movement(operation=name, dtype=dtype, shape=(n, n), read=size, written=size, flops_per_element=flops)
            for name, flops in (("copy", 0), ("concat", 0), ("cast", 0), ("resize", 7), ("expand", 0), ("slice", 0))
        ),
        Movement(operation="transpose", dtype=dtype, shape=(n, n), permutation=(1, 0), read=size, written=size),
        *(
            Sort(operation=name, rows=rows, cols=n, kept=min(n, 5), dtype=dtype, output_bytes=12 * n)
            for name in ("topk", "sort", "nonzero", "unique", "nms")
            for rows in (1, n)
        ),
        Recurrent(cell="gru", steps=n, directions=2, b=n, h=n, gates=3, dtype=dtype),
        Opaque(operation="trees", operation_count=n * n, dtype=dtype, read=size, written=size),
    ]


TYPES = [
    DataType.FLOAT32,
    DataType.FLOAT16,
    DataType.BFLOAT16,
    DataType.FLOAT64,
    DataType.INT8,
    DataType.INT4,
    DataType.INT64,
    DataType.BOOL,
    DataType.FLOAT8E4M3FN,
    DataType.FLOAT4E2M1,
]


@pytest.mark.parametrize(
    ("rows", "cols", "kept", "dtype", "blocks"),
    [
        # launches of ONNX Runtime 1.31.1
        pytest.param(1, 672_000, 300, FP32, 1, id="a block takes the row"),
        pytest.param(16, 8400, 300, FP32, 16, id="each row"),
        pytest.param(1, 4096, 5, FP32, 1, id="a short row, few kept"),
        pytest.param(1, 8400, 10, DataType.INT64, 1, id="integers"),
        pytest.param(1, 8400, 10, FP32, 3, id="cut among blocks"),
        pytest.param(1, 200_000, 256, DataType.FLOAT16, 49, id="cut, many kept"),
    ],
)
def test_the_blocks_of_onnxruntimes_top_k(rows: int, cols: int, kept: int, dtype: DataType, blocks: int) -> None:
    own = Sort(operation="topk", rows=rows, cols=cols, kept=kept, dtype=dtype, output_bytes=12, library="onnxruntime")
    gpu = load_gpu("l4")
    result = analytic_estimate([own], gpu)
    assert result.tile_count[0] == blocks
    if blocks != rows:
        return
    # three loops more than bytes of a key, each of iterations of 300 cycles for 256 columns; 3 us a byte
    digits = dtype.bits // 8
    serial_us = (digits + 3) * -(-cols // 256) * 300 / gpu.clock_hz * 1e6 + 3.0 * digits
    assert result.latency_us[0] == pytest.approx(serial_us + 2.0, rel=0.05)


def top_k(rows: int, cols: int, kept: int, library: str, dtype: DataType = FP32) -> Sort:
    written = rows * kept * (dtype.bits // 8 + 8)
    return Sort(operation="topk", rows=rows, cols=cols, kept=kept, dtype=dtype, output_bytes=written, library=library)


@pytest.mark.parametrize("name", ["a100-pcie-40gb", "t4", "h100-sxm", "mi300x", "rtx-4090"])
@pytest.mark.parametrize("library", ["", "onnxruntime"])
@pytest.mark.parametrize("rows", [1, 64, 4096])
def test_a_router_takes_no_less_for_more_experts(rows: int, library: str, name: str) -> None:
    """Scores of 2 to 256 experts, of which 1 to 64 are kept: no step down, nor up by more than twice."""
    gpu = load_gpu(name)
    for kept in (1, 2, 8):
        kernels = [top_k(rows, cols, kept, library) for cols in range(max(kept, 2), 257)]
        times = analytic_estimate(kernels, gpu).latency_us
        assert np.all(times[1:] >= times[:-1] * 0.999)
        assert np.all(times[1:] <= times[:-1] * 2.0)
    for cols in (64, 128, 256):
        times = analytic_estimate([top_k(rows, cols, kept, library) for kept in range(2, 65)], gpu).latency_us
        assert np.all(times[1:] >= times[:-1] * 0.999)
        assert np.all(times[1:] <= times[:-1] * 1.1)


@pytest.mark.parametrize(
    ("kernel", "cycles", "launches"),
    [
        # a sign, 8 bits of exponent and 6 that tell 64 floats apart are 8 digits of 2 bits; two loops write
        pytest.param(top_k(1, 64, 1, ""), 10 * 300, 1, id="PyTorch's, the largest"),
        # 8 are sorted by a network of 6 steps in a second kernel
        pytest.param(top_k(1, 64, 8, ""), 10 * 300 + 6 * 100, 2, id="PyTorch's, eight"),
        pytest.param(top_k(1, 64, 8, "", DataType.FLOAT16), 8 * 300 + 6 * 100, 2, id="in 16 bits"),
        # 64 indices of 64 bits have nothing in common that is known
        pytest.param(top_k(1, 64, 8, "", DataType.INT64), 34 * 300 + 6 * 100, 2, id="integers"),
        # twice as long as a block has threads
        pytest.param(top_k(1, 2048, 1, ""), 12 * 2 * 300, 1, id="a longer row"),
        # 64 elements: 21 steps of a network, however few are kept
        pytest.param(top_k(1, 64, 1, "onnxruntime"), 21 * 100, 1, id="ONNX Runtime's"),
        pytest.param(top_k(1, 64, 60, "onnxruntime"), 21 * 100, 1, id="nearly all"),
    ],
)
def test_a_block_selects_from_a_short_row(kernel: Sort, cycles: float, launches: int) -> None:
    gpu = load_gpu("a100-pcie-40gb")
    result = analytic_estimate([kernel], gpu)
    assert result.parts_us["latency"][0] == pytest.approx(1e6 * cycles / gpu.clock_hz)
    assert result.parts_us["launch"][0] == 2.0 * launches
    assert result.latency_us[0] == pytest.approx(2.0 * launches + 1e6 * cycles / gpu.clock_hz, rel=0.02)


def test_the_sample_has_every_class() -> None:
    assert {type(kernel) for kernel in _of_each_class(8, FP32)} == set(KERNEL_CLASSES)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.label)
def test_never_below_the_roofline_never_zero_on_any_gpu(dtype: DataType) -> None:
    kernels = [kernel for n in (0, 1, 3, 257, 4096) for kernel in _of_each_class(n, dtype)]
    moved = np.array([kernel.read_bytes + kernel.write_bytes for kernel in kernels], dtype=np.float64)
    with np.errstate(all="raise", under="ignore"):
        for gpu in available_gpus():
            result = analytic_estimate(kernels, gpu)
            assert np.all(np.isfinite(result.latency_us)), gpu.name
            assert np.all(result.latency_us >= 1.99), gpu.name
            assert np.all(result.latency_us >= result.ideal_us), gpu.name
            assert np.all(result.latency_us * gpu.memory_bytes_per_s * 1.000001 >= (moved - gpu.l2_bytes) * 1e6), (
                gpu.name
            )
            assert all(np.all(part >= 0) for part in result.parts_us.values()), gpu.name


@pytest.mark.parametrize("gpu", ["l4", "l40s", "rtx-4090", "rtx-5090"])
def test_what_the_l2_holds_is_not_held_to_drams_roof(gpu: str) -> None:
    """A transpose within a large L2 takes about as long as an addition of the same bytes, not what DRAM's roof says of
    all of them (an L4's in BERT: 21 us beside 6.7)."""
    spec = load_gpu(gpu)
    shape = (8, 128, 12, 64)
    tensor = TensorSpec(dtype=FP32, shape=shape)
    added = Elementwise(operations=("add",), inputs=(tensor,), output=tensor)
    turned = move("transpose", shape, (0, 2, 1, 3))
    turned_us, added_us = analytic_estimate([turned, added], spec).latency_us
    assert turned_us < (turned.read + turned.written) / spec.memory_bytes_per_s * 1e6
    assert turned_us < 1.5 * added_us


@pytest.mark.parametrize("gpu", ["t4", "a100-sxm-80gb", "l4", "h100-sxm", "b200-sxm", "mi300x"])
def test_more_work_never_takes_less(gpu: str) -> None:
    spec = load_gpu(gpu)
    sizes = (64, 256, 1024, 4096)
    latency = np.stack([analytic_estimate(_of_each_class(n, FP16), spec).latency_us for n in sizes])
    names = [type(kernel).__name__ for kernel in _of_each_class(64, FP16)]
    for column, name in enumerate(names):
        assert np.all(np.diff(latency[:, column]) >= -1e-6), name


def test_order_is_kept_and_classes_do_not_disturb_each_other() -> None:
    kernels = _of_each_class(257, FP32)
    together = analytic_estimate(kernels, ROUND).latency_us.tolist()
    apart = [float(analytic_estimate([kernel], ROUND).latency_us[0]) for kernel in kernels]
    assert together == pytest.approx(apart, rel=1e-12)


def test_nothing_gives_nothing() -> None:
    assert analytic_estimate([], ROUND).latency_us.shape == (0,)


@pytest.mark.parametrize(
    ("run", "library", "expected_us"),
    [
        pytest.param(1, "", 469.8, id="each element: 70 operations"),
        pytest.param(128, "", 58.7, id="runs of 256 bytes: 70 for 8 elements"),
        pytest.param(12, "", 469.8, id="runs of 24 bytes, which are no whole vectors"),
        pytest.param(1, "own", 0.0, id="made for the shape"),
    ],
)
def test_copies_find_places_by_element_or_vector(run: int, library: str, expected_us: float) -> None:
    """2^26 elements of 2 bytes; 100 SMs x 64 integer lanes x 1.5625 GHz = 1e13 operations/s."""
    size = 2 * 64 * MIB
    kernel = Movement(
        operation="concat", dtype=FP16, shape=(1024, 512, 128), read=size, written=size, run=run, library=library
    )
    assert analytic_estimate([kernel], ROUND).parts_us["compute"][0] == pytest.approx(expected_us, rel=1e-3)


@pytest.mark.parametrize(
    ("library", "expected_us"),
    [
        pytest.param("", 117.4, id="PyTorch's: 70 operations"),
        pytest.param("own", 0.0, id="made for the shape"),
    ],
)
def test_lookups_find_places(library: str, expected_us: float) -> None:
    """2^24 elements at 1e13 operations/s."""
    kernel = replace(gather(1024), library=library)
    assert analytic_estimate([kernel], ROUND).parts_us["compute"][0] == pytest.approx(expected_us, rel=1e-3)


def test_what_one_index_takes_is_copied() -> None:
    """16 MiB numbers in one piece, as copied; in pieces of 4 KiB at .65 of that rate."""
    whole, pieces, copied = (
        analytic_estimate([kernel], ROUND).parts_us["memory"][0]
        for kernel in (gather(16 * MIB), gather(1024), move("copy", (4096, 4096)))
    )
    assert whole == pytest.approx(copied, rel=1e-3)
    assert pieces == pytest.approx(copied / 0.65, rel=2e-3)


def test_narrow_types_move_fewer_bytes() -> None:
    shape = (4096, 4096)
    wide, half, quarter = (
        analytic_estimate(
            [
                Movement(
                    operation="copy",
                    dtype=dtype,
                    shape=shape,
                    read=dtype.bytes_of(16 * MIB),
                    written=dtype.bytes_of(16 * MIB),
                )
            ],
            ROUND,
        ).latency_us[0]
        for dtype in (FP32, FP16, DataType.INT8)
    )
    # less the 2 us of launch
    assert wide - 2 == pytest.approx(2 * (half - 2), rel=1e-3)
    assert wide - 2 == pytest.approx(4 * (quarter - 2), rel=2e-3)


def test_the_interval_is_wide() -> None:
    assert np.exp(HALF_WIDTH_LOG) == pytest.approx(2.0)


@pytest.mark.parametrize(("bits", "dtype"), [(32, FP32), (16, FP16), (8, DataType.INT8)])
def test_pooling_of_vectors_is_bound_by_its_bytes(bits: int, dtype: DataType) -> None:
    source, result = (TensorSpec(dtype=dtype, shape=(128, 64, side, side)) for side in (112, 56))
    by_element = Pooling(operation="max", input=source, output=result, window=9)
    gpu = load_gpu("a100")
    found = analytic_estimate([by_element, replace(by_element, access="vector")], gpu)
    # 25.7 M outputs: 9 taps of 8 operations and 60, at 108 SMs x 64 lanes x 1.41 GHz; a vector of 128 bits shares them,
    # and half an instruction compares an element, a whole one if it has 32 bits
    lanes = 108 * 64 * 1.41e9
    outputs = 128 * 64 * 56 * 56
    expected = [outputs * 132 / lanes, outputs * (132 * bits / 128 + (9 if bits > 16 else 4.5)) / lanes]
    np.testing.assert_allclose(found.parts_us["compute"], np.array(expected) * 1e6)
    assert found.latency_us[1] < 1.35 * found.ideal_us[1]


@pytest.mark.parametrize("gpu", ["mi50", "rx-7900-xtx"])
@pytest.mark.parametrize("stored", [None, DataType.UINT4])
def test_a_row_streams_its_matrix(gpu: str, stored: DataType | None) -> None:
    spec = load_gpu(gpu)
    kernel = Gemm(m=1, n=128256, k=4096, dtype=FP16, b_dtype=stored, b_is_weight=True)
    found = analytic_estimate([kernel], spec)
    bytes_us = (kernel.read_bytes + kernel.write_bytes) / spec.memory_bytes_per_s * 1e6
    assert found.latency_us[0] == pytest.approx(bytes_us / 0.68, rel=0.02)


@pytest.mark.parametrize(("gpu", "factor"), [("a100", 1.0), ("jetson-agx-orin-64gb", 5.0)])
def test_the_cpu_of_a_chip_multiplies_less(gpu: str, factor: float) -> None:
    kernel = HostWork(operation="conv", operation_count=2 * 10**12, mac_count=10**12, dtype=FP32, read=0, written=0)
    # 2 TFLOP at 1 TFLOP/s
    assert kernel_work(kernel, load_gpu(gpu)).serial_us == pytest.approx(2e6 * factor)


@pytest.mark.parametrize(("tiles", "waves"), [(100, 1), (1200, 1), (1201, 2), (200_000, 167)])
def test_many_tiles_take_many_waves(tiles: int, waves: int) -> None:
    """Copies: blocks of 128 threads with 4 elements each, 12 at once on an SM of 1,536 threads, 100 SMs."""
    size = 512 * tiles
    copied = Movement(operation="copy", dtype=FP16, shape=(size,), read=2 * size, written=2 * size)
    result = analytic_estimate((copied,), replace(ROUND, max_threads_per_sm=1536))
    assert (result.tile_count.tolist(), result.wave_count.tolist()) == ([tiles], [waves])
