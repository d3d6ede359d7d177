"""Blocks of ONNX Runtime's row kernels that wait for their own loads and reductions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Elementwise, Kernel, Normalization, Softmax, TensorSpec
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


# cycles that a row takes an SM of 1,024 and of 2,048 threads, as benchmarks/block_wait.py plays the machine code
PLAYED: list[tuple[Kernel, float, float]] = [
    (softmax(48), 139, 98),
    (softmax(128), 260, 171),
    (softmax(200), 575, 373),
    (softmax(384), 1263, 764),
    (softmax(1024), 2864, 1645),
    (softmax(2048), 1663, 1093),
    (layer(384), 613, 425),
    (layer(1024), 1252, 851),
    (layer(4096), 4591, 3042),
    (layer(384, DataType.FLOAT32), 539, 487),
    (layer(1024, DataType.FLOAT32), 973, 876),
    (layer(384, at_once=1, added=True), 960, 513),
]


@pytest.mark.parametrize(("kernel", "few", "many"), PLAYED)
def test_rows_take_what_the_machine_code_does_when_played(kernel: Kernel, few: float, many: float) -> None:
    assert isinstance(kernel, Softmax | Normalization)
    for most, played in ((1024, few), (2048, many)):
        gpu = replace(load_gpu("a100-sxm-40gb"), max_threads_per_sm=most)
        issue = issue_us([kernel], gpu)
        assert issue is not None
        bound, _ = with_waits([kernel], gpu, issue)
        cycles = bound[0] * 1e-6 * gpu.clock_hz * gpu.sm_count / kernel.rows
        assert cycles == pytest.approx(played, rel=0.12)


def test_a_block_by_itself_takes_its_own_time() -> None:
    """155 instructions for each of 16 warps, four a clock, and 1,750 cycles: however few rows there are."""
    (one,) = with_waits([softmax(384, rows=1)], T4, np.array([620.0 / T4.sm_count / T4.clock_hz * 1e6]))[1]
    (many,) = with_waits([softmax(384, rows=80)], T4, np.array([80 * 620.0 / T4.sm_count / T4.clock_hz * 1e6]))[1]
    assert one == many == pytest.approx(2370.0 / T4.clock_hz * 1e6)


def test_few_threads_an_sm_cost_attention_more() -> None:
    """A T4 holds two of the blocks where a V100 holds four: predictions feel it."""
    t4, v100 = (predict([softmax(384)], gpu)[0] for gpu in (T4, V100))
    cycles = [found.latency_us * 1e-6 * gpu.clock_hz * gpu.sm_count / 73_728 for found, gpu in ((t4, T4), (v100, V100))]
    assert cycles[0] > 1.5 * cycles[1]
    assert t4.bound == "latency"


def test_other_kernels_wait_for_nothing() -> None:
    ours = softmax(384)
    spec = TensorSpec(dtype=HALF, shape=(16, 384))
    for kernel in (
        replace(ours, by_block=False),
        replace(ours, library=""),
        layer(768, at_once=1, added=True),
        layer(1024, added=True),
        replace(layer(1024), library=""),
        Elementwise(operations=("relu",), inputs=(spec,), output=spec, library="onnxruntime"),
    ):
        assert block_of(kernel) is None, kernel
