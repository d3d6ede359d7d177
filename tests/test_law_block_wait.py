"""Blocks of ONNX Runtime's row kernels that wait for their own loads and reductions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import Elementwise, Normalization, Softmax, TensorSpec
from neusight_onnx.laws.block_wait import block_of, with_waits
from neusight_onnx.laws.issue import issue_us
from neusight_onnx.predictor import predict

HALF = DataType.FLOAT16
T4, V100 = load_gpu("t4"), load_gpu("v100-pcie-16gb")
MASK = TensorSpec(dtype=DataType.INT32, shape=(16, 384))


def softmax(keys: int, *, masked: bool = True, rows: int = 73_728) -> Softmax:
    mask = (replace(MASK, shape=(16, keys)),) if masked else ()
    return Softmax(
        rows=rows,
        cols=keys,
        dtype=HALF,
        fused=("add",) * len(mask),
        extra_inputs=mask,
        by_block=True,
        library="onnxruntime",
    )


def long_softmax(cols: int, rows: int = 50_000) -> Softmax:
    """Not attention's: a block a row from 1,025 columns on."""
    return Softmax(rows=rows, cols=cols, dtype=HALF, library="onnxruntime")


def layer(cols: int, dtype: DataType = HALF, *, at_once: int = 0, added: bool = False) -> Normalization:
    return Normalization(
        method="layer",
        rows=50_000,
        cols=cols,
        dtype=dtype,
        fused=("add",) if added else (),
        library="onnxruntime",
        at_once=at_once,
    )


# cycles that a row takes an SM of 1,024, 1,536 and 2,048 threads, as benchmarks/block_wait.py plays the machine code
PLAYED: list[tuple[Softmax | Normalization, float, float, float]] = [
    (softmax(16), 50, 50, 50),
    (softmax(128), 215, 174, 167),
    (softmax(200), 492, 393, 368),
    (softmax(384), 1058, 786, 720),
    (softmax(512), 1034, 761, 665),
    (softmax(1024), 2495, 2495, 1469),
    (softmax(2048), 1669, 1286, 1090),
    (softmax(255, masked=False), 404, 297, 275),
    (long_softmax(1500), 946, 769, 744),
    (long_softmax(2000), 1333, 1032, 974),
    (long_softmax(2048), 897, 821, 821),
    (long_softmax(2049), 923, 840, 833),
    (long_softmax(4096), 1897, 1637, 1595),
    (long_softmax(6144), 4502, 3542, 3122),
    (long_softmax(8192), 4174, 3629, 3275),
    (layer(384), 473, 382, 377),
    (layer(1024), 963, 742, 730),
    (layer(4096), 3459, 2512, 2452),
    (layer(4096, DataType.FLOAT32), 1996, 1859, 1859),
    (layer(384, DataType.FLOAT32), 386, 368, 368),
    (layer(1024, DataType.FLOAT32), 647, 596, 596),
    (layer(384, at_once=1, added=True), 791, 527, 474),
    (layer(768, at_once=1, added=True), 1058, 746, 620),
    (layer(1024, at_once=1, added=True), 1287, 890, 706),
]


@pytest.mark.parametrize(("kernel", "few", "some", "many"), PLAYED)
def test_rows_take_what_the_machine_code_does_when_played(
    kernel: Softmax | Normalization, few: float, some: float, many: float
) -> None:
    for most, played in ((1024, few), (1536, some), (2048, many)):
        gpu = replace(load_gpu("a100-sxm-40gb"), max_threads_per_sm=most)
        cycles = _bound_us(kernel, gpu) * 1e-6 * gpu.clock_hz * gpu.sm_count / kernel.rows
        assert cycles == pytest.approx(played, rel=0.12)


def test_a_block_by_itself_takes_its_own_time() -> None:
    """155 instructions for each of 16 warps, four a clock, and 1,340 cycles: however few rows there are."""
    (one,) = with_waits([softmax(384, rows=1)], T4, np.array([620.0 / T4.sm_count / T4.clock_hz * 1e6]))[1]
    (many,) = with_waits([softmax(384, rows=80)], T4, np.array([80 * 620.0 / T4.sm_count / T4.clock_hz * 1e6]))[1]
    assert one == many == pytest.approx(1960.0 / T4.clock_hz * 1e6)


@pytest.mark.parametrize("name", ["t4", "a10", "h200-sxm", "rtx-5090", "mi300x"])
@pytest.mark.parametrize(
    "kernel", [softmax(384), softmax(2048), long_softmax(2000), layer(1024), layer(384, at_once=1, added=True)]
)
def test_more_rows_take_no_less_and_a_better_gpu_no_more(kernel: Softmax | Normalization, name: str) -> None:
    gpu = load_gpu(name)
    rows = [1, 7, gpu.sm_count, gpu.sm_count + 1, *(gpu.sm_count * held for held in (2, 3, 5, 16, 33, 500))]
    times = [_bound_us(replace(kernel, rows=count), gpu) for count in rows]
    assert times == sorted(times)
    for better in (
        replace(gpu, sm_count=gpu.sm_count + 1),
        replace(gpu, clock_hz=gpu.clock_hz * 1.1),
        replace(gpu, max_threads_per_sm=gpu.max_threads_per_sm + 512),
    ):
        quicker = [_bound_us(replace(kernel, rows=count), better) for count in rows]
        assert all(after <= before * (1 + 1e-9) for after, before in zip(quicker, times, strict=True))


def _bound_us(kernel: Softmax | Normalization, gpu: GpuSpec) -> float:
    issue = issue_us([kernel], gpu)
    assert issue is not None
    return float(with_waits([kernel], gpu, issue)[0][0])


def test_few_threads_an_sm_cost_attention_more() -> None:
    """A T4 holds two of the blocks where a V100 holds four: predictions feel it."""
    t4, v100 = (predict([softmax(384)], gpu)[0] for gpu in (T4, V100))
    cycles = [found.latency_us * 1e-6 * gpu.clock_hz * gpu.sm_count / 73_728 for found, gpu in ((t4, T4), (v100, V100))]
    assert cycles[0] > 1.3 * cycles[1]
    assert t4.bound == "latency"


def test_other_kernels_wait_for_nothing() -> None:
    ours = softmax(384)
    spec = TensorSpec(dtype=HALF, shape=(16, 384))
    for kernel in (
        replace(ours, by_block=False),
        replace(ours, library=""),
        layer(768, at_once=4, added=True),
        layer(1024, added=True),
        replace(layer(1024), library=""),
        Elementwise(operations=("relu",), inputs=(spec,), output=spec, library="onnxruntime"),
    ):
        assert block_of(kernel) is None, kernel


@pytest.mark.parametrize("name", ["t4", "v100-pcie-16gb", "a100", "l40s", "h200-sxm", "rtx-5090", "mi300x"])
def test_long_rows_of_softmax_have_no_cliff(name: str) -> None:
    """More columns take more time as long as rows end in whole turns of the block; those that don't, with a tail of
    single elements, little more than their share."""
    gpu = load_gpu(name)

    def latency_us(cols: int) -> float:
        return predict([long_softmax(cols, rows=100_000)], gpu)[0].latency_us

    whole = [latency_us(cols) for cols in (2048, 4096, 8192, 16_384)]
    assert whole == sorted(whole)
    for cols in (2048, 4096, 8192):
        assert latency_us(cols) <= latency_us(cols + 1) < 1.1 * latency_us(cols)
        assert latency_us(cols) < latency_us(cols + cols // 4) < 1.75 * latency_us(cols)
        assert latency_us(cols - 48) < 1.3 * latency_us(cols)


def test_long_rows_of_softmax_are_issued_or_moved() -> None:
    """16 blocks of 128 threads hide what each waits: on an H200 instructions bind, on an L40S bytes."""
    h200, l40s = (predict([long_softmax(2048, 100_000)], load_gpu(name))[0] for name in ("h200-sxm", "l40s"))
    assert (h200.bound, l40s.bound) == ("issue", "memory")
    assert 2 < h200.latency_us / (100_000 * 2048 * 4 / 4.8e6) < 3.5
