"""EmbeddingBag, exported as a loop over its bags."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

from neusight_onnx import analyze
from neusight_onnx.backward import Training
from neusight_onnx.report.model import Report

BAG = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[{indices}] x, int64[8] offsets) => (float[a, b] y)
<float[100, 16] w = {{}}, int64 bags = {{8}}, bool go = {{1}}, int64[1] first = {{0}}, int64[9] ends = {{0}}>
{{
  y = Loop(bags, go) <body = b (int64 i, bool c) => (bool c2, float[d] row) {{
    start = Gather(offsets, i)
    end = Gather(ends, i)
    s = Unsqueeze(start, first)
    e = Unsqueeze(end, first)
    few = Slice(x, s, e, first)
    rows = Gather(w, few)
    {reduced}
    c2 = Identity(c)
  }}>
}}"""


def analyzed(
    folder: Path,
    runtime: str,
    *,
    reduced: str = "row = ReduceSum<keepdims=0>(rows, first)",
    training: Training | None = None,
) -> Report:
    model = parser.parse_model(BAG.format(indices=24, reduced=reduced).replace("= {}", "= {0}"))
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "w")
    weight.CopyFrom(onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [100, 16], [0.0] * 1600))
    ends = next(tensor for tensor in model.graph.initializer if tensor.name == "ends")
    ends.CopyFrom(onnx.helper.make_tensor("ends", onnx.TensorProto.INT64, [9], list(range(0, 27, 3))))
    path = folder / "m.onnx"
    onnx.save(model, path)
    return analyze(path, gpu="a100", runtime=runtime, training=training)


@pytest.mark.parametrize("runtime", ["eager", "compiled"])
@pytest.mark.parametrize(
    ("reduced", "operation"),
    [
        ("row = ReduceSum<keepdims=0>(rows, first)", "sum"),
        ("row = ReduceMean<keepdims=0, axes=[0]>(rows)", "mean"),
        ("row = ReduceMax<keepdims=0, axes=[0]>(rows)", "max"),
    ],
)
def test_pytorch_launches_one_kernel(tmp_path: Path, runtime: str, reduced: str, operation: str) -> None:
    """8 bags of 24 indices: 8 x 16 results, of 3 rows each; 24 indices of 8 bytes are read."""
    (row,) = analyzed(tmp_path, runtime, reduced=reduced).kernels
    assert (row.kernel_class, row.count) == ("reduction", 1)
    assert row.dims["operation"] == operation
    assert (row.dims["outputs"], row.dims["reduced"]) == (128, 3)
    assert (row.read_bytes, row.write_bytes) == (128 * 3 * 4 + 24 * 8, 128 * 4)


@pytest.mark.parametrize(
    ("reduced", "expected"),
    [
        ("row = ReduceSum<keepdims=0>(rows, first)", ["sort", "fill", "scatter_add"]),
        ("row = ReduceMean<keepdims=0, axes=[0]>(rows)", ["sort", "fill", "scatter_add"]),
        ("row = ReduceMax<keepdims=0, axes=[0]>(rows)", ["fill", "scatter_add"]),
    ],
    ids=["sum", "mean", "max"],
)
def test_its_weight_is_trained(tmp_path: Path, reduced: str, expected: list[str]) -> None:
    """24 indices are sorted, but for a maximum, which adds the 8 x 16 gradients where they came from."""
    report = analyzed(tmp_path, "eager", reduced=reduced, training=Training(optimizer="none", loss="none"))
    assert report.training is not None
    assert report.training.trained_parameter_count == 1600
    backward = [row.dims for row in report.kernels if row.phase == "backward"]
    assert sorted(str(dims["operation"]) for dims in backward) == sorted(expected)
    (added,) = [dims for dims in backward if dims["operation"] == "scatter_add"]
    assert added["moved"] == (128 if expected[0] == "fill" else 24 * 16)


@pytest.mark.parametrize(
    ("runtime", "reduced"),
    [
        ("onnxruntime", "row = ReduceSum<keepdims=0>(rows, first)"),
        ("eager", "scaled = Mul(rows, rows)\n row = ReduceSum<keepdims=0>(scaled, first)"),
    ],
    ids=["another runtime", "rows that are changed"],
)
def test_what_runs_the_loop(tmp_path: Path, runtime: str, reduced: str) -> None:
    assert any(row.count == 8 for row in analyzed(tmp_path, runtime, reduced=reduced).kernels)


def test_onnxruntime_waits_for_the_ends_of_each_bag(tmp_path: Path) -> None:
    """The Slice reads where a bag begins on the host, from what a Gather made on the GPU; at its bound it keeps all."""
    copies = [row for row in analyzed(tmp_path, "onnxruntime").kernels if row.kernel_class == "transfer"]
    assert [(row.op_types, row.count) for row in copies] == [(("Slice",), 8)]
