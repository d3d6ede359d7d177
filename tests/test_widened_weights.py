"""Weights of few bits that ONNX Runtime widens before products of many rows."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from models import external_tensor
from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Gemm, NodeWork
from neusight_onnx.lowering.widened_weights import with_widened_weights
from neusight_onnx.report.model import Report
from neusight_onnx.runtime import RUNTIMES

COLUMNS = 4096


def _report(
    tmp_path: Path, rows: int, *, bits: int = 4, block: int = 32, columns: int = COLUMNS, runtime: str = "onnxruntime"
) -> Report:
    path = tmp_path / "narrow.onnx"
    blocks, per_block = COLUMNS // block, block * bits // 8
    sizes = f"K = {COLUMNS}, N = {columns}, bits = {bits}, block_size = {block}"
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float16[{rows}, {COLUMNS}] x, uint8[{columns}, {blocks}, {per_block}] w, float16[{columns * blocks}] s)
        => (float16[{rows}, {columns}] y)
        {{ y = com.microsoft.MatMulNBits<{sizes}>(x, w, s) }}""")
    onnx.save(model, path)
    return analyze(path, gpu="a100", runtime=runtime)


def _classes(report: Report) -> list[str]:
    return [kernel.kernel_class for kernel in report.kernels]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("rows", "widened"), [(1, False), (16, False), (17, True), (512, True)])
def test_more_than_16_rows_multiply_weights_that_a_kernel_widened(
    tmp_path: Path, rows: int, bits: int, widened: bool
) -> None:
    report = _report(tmp_path, rows, bits=bits)

    assert _classes(report) == (["elementwise", "gemm"] if widened else ["gemm"])
    if widened:
        widening = report.kernels[0]
        assert widening.read_bytes == COLUMNS * COLUMNS * bits // 8
        assert widening.write_bytes == COLUMNS * COLUMNS * 2
        assert report.kernels[1].read_bytes > COLUMNS * COLUMNS * 2  # and reads them as they are then
        assert report.totals.memory.workspace_bytes >= COLUMNS * COLUMNS * 2


@pytest.mark.parametrize(("rows", "widened"), [(16, False), (17, True)])
def test_int4w_asked_for_is_widened_as_a_file_that_stores_it(tmp_path: Path, rows: int, widened: bool) -> None:
    path = tmp_path / "wide.onnx"
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float16[{rows}, {COLUMNS}] x) => (float16[{rows}, {COLUMNS}] y)
        <float16[{COLUMNS}, {COLUMNS}] w = {{0}}>
        {{ y = MatMul(x, w) }}""")
    model.graph.initializer[0].CopyFrom(external_tensor("w", (COLUMNS, COLUMNS), "wide.data", onnx.TensorProto.FLOAT16))
    onnx.save(model, path)
    asked, stored = (
        analyze(path, gpu="a100", precision="int4w"),
        _report(tmp_path, rows, block=256),
    )  # few scales: int4w counts none

    assert _classes(asked) == _classes(stored) == (["elementwise", "gemm"] if widened else ["gemm"])
    assert [kernel.write_bytes for kernel in asked.kernels] == [kernel.write_bytes for kernel in stored.kernels]
    assert asked.totals.memory.workspace_bytes == stored.totals.memory.workspace_bytes
    assert asked.totals.latency_ms == pytest.approx(stored.totals.latency_ms, rel=0.01)


def test_columns_that_are_no_multiple_of_eight_are_widened_for_a_row_too(tmp_path: Path) -> None:
    assert _classes(_report(tmp_path, 1, columns=4095)) == ["elementwise", "gemm"]


def test_the_step_at_17_rows_costs_what_writing_and_reading_the_weights_does(tmp_path: Path) -> None:
    few, more = _report(tmp_path, 16).totals.latency_ms, _report(tmp_path, 17).totals.latency_ms
    assert few is not None
    assert more is not None
    moved_ms = COLUMNS * COLUMNS * 2 / 1935e9 * 1e3  # written once to the A100's memory, in ms

    assert more - few > moved_ms


def _work(kernel: Gemm) -> NodeWork:
    return NodeWork(node="n", op_type="MatMulNBits", kernels=(kernel,))


@pytest.mark.parametrize("runtime", ["eager", "compiled", "tensorrt"])
def test_other_runtimes_widen_inside_the_product(runtime: str) -> None:
    work = _work(Gemm(m=512, n=64, k=64, b_is_weight=True, dtype=DataType.FLOAT16, b_dtype=DataType.UINT4))

    assert with_widened_weights([work], RUNTIMES[runtime]) == (work,)


@pytest.mark.parametrize(
    "kernel",
    [
        Gemm(m=512, n=64, k=64, b_is_weight=True, dtype=DataType.FLOAT16),
        Gemm(m=512, n=64, k=64, b_is_weight=True, dtype=DataType.INT8, b_dtype=DataType.UINT8),
        Gemm(m=512, n=64, k=64, b_is_weight=True, dtype=DataType.FLOAT16, b_dtype=DataType.FLOAT8E4M3FN),
        Gemm(batch=8, m=512, n=64, k=64, b_is_weight=True, dtype=DataType.FLOAT16, b_dtype=DataType.UINT4),
    ],
    ids=["16 bits", "integers both", "FP8 weights", "experts"],
)
def test_only_single_products_of_floats_with_integer_weights_are_widened(kernel: Gemm) -> None:
    assert with_widened_weights([_work(kernel)], RUNTIMES["onnxruntime"]) == (_work(kernel),)
