"""Softmax of long rows by PyTorch since 2.7, in 16 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx import load_gpu
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Softmax
from neusight_onnx.laws.pytorch_softmax import rows_us
from neusight_onnx.lowering import lower
from neusight_onnx.predictor import predict

ROWS = 100_000


@pytest.mark.parametrize(
    ("cols", "some", "many"),
    [  # cycles a row of an SM of 1,536 and 2,048 threads, torch 2.9.1's code for 8.0 played (sm_player.py)
        (1025, 486, 486),
        (1500, 581, 581),
        (2000, 675, 675),
        (2048, 681, 681),
        (2049, 2889, 1791),
        (3000, 3266, 2119),
        (4096, 3879, 2608),
        (8192, 6762, 6762),
        (12_288, 7101, 4898),
        (24_576, 13_571, 9680),
    ],
)
def test_rows_take_what_the_machine_code_does_when_played(cols: int, some: float, many: float) -> None:
    for most, played in ((1536, some), (2048, many)):
        gpu = replace(load_gpu("a100-sxm-40gb"), max_threads_per_sm=most)
        (found,) = rows_us(np.array([float(ROWS)]), np.array([float(cols)]), gpu)
        assert found * 1e-6 * gpu.clock_hz * gpu.sm_count / ROWS == pytest.approx(played, rel=0.13)


def test_a_warp_reads_its_row_once() -> None:
    """Before 2.7 a block read it three times; beyond 2,048 columns a block of 1,024 threads is the kernel's cliff."""
    kernel = Softmax(rows=ROWS, cols=2000, dtype=DataType.FLOAT16, library="pytorch")
    h200 = load_gpu("h200-sxm")

    def latency_us(cols: int, library: str = "pytorch") -> float:
        return predict([replace(kernel, cols=cols, library=library)], h200)[0].latency_us

    assert latency_us(2000) < 0.6 * latency_us(2000, library="")
    assert latency_us(1024) == latency_us(1024, library="")
    assert latency_us(1025) < latency_us(2000) < latency_us(2048) < 1.05 * latency_us(2000)
    assert 2 < latency_us(2049) / latency_us(2048) < 3.5
    amd = load_gpu("mi300x")
    assert predict([kernel], amd)[0].latency_us == predict([replace(kernel, library="")], amd)[0].latency_us


@pytest.mark.parametrize(("runtime", "library"), [("eager", "pytorch"), ("eager@2.6", ""), ("tensorrt", "")])
def test_which_runtime_has_it(runtime: str, library: str) -> None:
    graph = inferred("y = Softmax(x)", {"x": (64, 2000)}, types={"x": TensorProto.FLOAT16})
    (work,) = lower(graph, runtime=runtime)
    (kernel,) = work.kernels
    assert isinstance(kernel, Softmax)
    assert kernel.library == library
