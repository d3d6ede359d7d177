"""Which convolutions of an engine in TF32 run in FP32, what transposes between them included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from graphs import split, value_info
from neusight_onnx import analyze
from neusight_onnx.report.model import Report
from neusight_onnx.tactics.orders import _Edge, _least

THREE_BY_THREE = "kernel_shape = [3, 3], pads = [1, 1, 1, 1]"
ALONE = f"y = Conv<{THREE_BY_THREE}>(x, w)"
# a product of 1x1 gains most from TF32, a filter of 3x3 most from Winograd's algorithm
BETWEEN = f"""
    a = Conv<{THREE_BY_THREE}>(x, w)
    p = MaxPool<{THREE_BY_THREE}>(a)
    b = Conv(p, v)
    y = Conv<{THREE_BY_THREE}>(b, w)
"""


def run(tmp_path: Path, nodes: str, precision: str, gpu: str, channels: int = 256, side: int = 64) -> Report:
    shape = (8, channels, side, side)
    ends = [value_info(name, shape, onnx.TensorProto.FLOAT) for name in ("x", "y")]
    weights = {"w": (channels, channels, 3, 3), "v": (channels, channels, 1, 1)}
    zeros = [numpy_helper.from_array(np.zeros(sizes, np.float32), name) for name, sizes in weights.items()]
    graph = helper.make_graph(split(nodes), "model", ends[:1], ends[1:], zeros)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
    return analyze(path, gpu=gpu, runtime="tensorrt", precision=precision)


@pytest.mark.parametrize("nodes", [pytest.param(ALONE, id="alone"), pytest.param(BETWEEN, id="between")])
@pytest.mark.parametrize("gpu", ["rtx-4090", "l4", "rtx-3090", "a100", "rtx-5090"])
@pytest.mark.parametrize(("channels", "side"), [(256, 64), (512, 14)])
def test_permission_to_multiply_tf32_slows_nothing_down(
    tmp_path: Path, nodes: str, gpu: str, channels: int, side: int
) -> None:
    in_tf32, in_fp32 = (
        run(tmp_path, nodes, precision, gpu, channels, side).totals.latency_ms for precision in ("tf32", "fp32")
    )
    assert in_tf32 <= in_fp32


def test_winograds_kernel_runs_where_it_is_quicker_and_the_report_says_so(tmp_path: Path) -> None:
    report = run(tmp_path, ALONE, "tf32", "rtx-4090")
    assert [kernel.dtype for kernel in report.kernels] == ["float32"]
    assert any("1 of 1 convolutions that may multiply TF32 run in FP32" in text for text in report.assumptions)
    report = run(tmp_path, ALONE, "tf32", "h100")
    assert [kernel.dtype for kernel in report.kernels] == ["tf32"]
    assert not any("that may multiply TF32" in text for text in report.assumptions)


def test_tensors_are_transposed_between_layers_that_differ(tmp_path: Path) -> None:
    """Pooling works in either order, so that one transpose stands in front of it or behind, another behind the 1x1."""
    report = run(tmp_path, BETWEEN, "tf32", "rtx-4090", channels=512, side=14)
    rows = [(kernel.kernel_class, kernel.dtype) for kernel in report.kernels]
    assert [dtype for kind, dtype in rows if kind == "conv"] == ["float32", "tf32", "float32"]
    moved = [kernel for kernel in report.kernels if kernel.kernel_class == "movement"]
    assert [kernel.read_bytes for kernel in moved] == 2 * [4 * 8 * 512 * 14 * 14]


@given(st.data())
def test_no_engine_in_one_order_takes_less(data: st.DataObject) -> None:
    us = st.integers(0, 9).map(float)
    own = {at: (data.draw(us), data.draw(us)) for at in range(data.draw(st.integers(1, 7)))}
    place = st.sampled_from(sorted(own))
    edges = [
        _Edge(maker=maker, reader=reader, shape=(1, 8, 4, 4), us=data.draw(us))
        for maker, reader in data.draw(st.lists(st.tuples(place, place), max_size=9))
        if maker != reader
    ]
    firsts = _least(own, edges)
    taken = sum(times[firsts[at]] for at, times in own.items())
    taken += sum(edge.us for edge in edges if firsts[edge.maker] != firsts[edge.reader])
    assert taken <= min(sum(times[order] for times in own.values()) for order in (False, True))
