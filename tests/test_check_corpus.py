"""Dims that are free in name only: what ``check`` says of real models beside what ONNX Runtime does with them.

Models whose inputs have a fixed leading 1 are declared to have a free batch there. If ONNX Runtime can't run them with
two samples, or an output stays as it was, the dim is baked in, and only then must it be found.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper

from neusight_onnx.checks import Target, check
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model_bytes

SHARED = Path(os.environ.get("NEUSIGHT_SHARED", Path(__file__).parents[2] / "shared")) / "models"
MOST_BYTES = 3_000_000


def freed(path: Path) -> ModelProto | None:
    """The model with a free batch; None if it has one already, or no fixed one."""
    proto = onnx.load(path, load_external_data=False)
    weights = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    if not inputs or any(not value.type.HasField("tensor_type") for value in inputs):
        return None
    dims = [value.type.tensor_type.shape.dim for value in inputs]
    if any(dim.dim_param or not dim.dim_value for shape in dims for dim in shape):
        return None
    if not all(len(shape) < 2 or shape[0].dim_value == 1 for shape in dims) or all(len(shape) < 2 for shape in dims):
        return None
    for value in (*inputs, *proto.graph.output):
        shape = value.type.tensor_type.shape.dim
        if len(shape) >= (2 if value in inputs else 1) and shape[0].dim_value == 1:
            shape[0].dim_param = "batch"
    del proto.graph.value_info[:]
    return proto


def files() -> Iterator[Path]:
    if (SHARED / "index.csv").is_file():
        with (SHARED / "index.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                path = SHARED / row["file"]
                if path.is_file() and path.stat().st_size <= MOST_BYTES and "graphonly" not in row["file"]:
                    yield path


def shapes(proto: ModelProto, batch: int) -> list[tuple[int, ...]]:
    """Shapes of the outputs that declare a batch, as ONNX Runtime gives them for zeros."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    types = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    feeds = {
        value.name: np.zeros(
            [batch if size == "batch" else size for size in value.shape],
            helper.tensor_dtype_to_np_dtype(types[value.name]),
        )
        for value in session.get_inputs()
    }
    outputs = zip(proto.graph.output, session.run(None, feeds), strict=True)
    return [found.shape for value, found in outputs if declares_batch(value)]


def declares_batch(value: onnx.ValueInfoProto) -> bool:
    dims = value.type.tensor_type.shape.dim
    return bool(dims) and dims[0].dim_param == "batch"


RUNTIME_FAULTS = (
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
    onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,
)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared folder of real models (NEUSIGHT_SHARED)")
def test_baked_in_batches_are_those_that_onnxruntime_can_not_run() -> None:
    agreed = {True: 0, False: 0}
    wrong = []
    for path in files():
        proto = freed(path)
        if proto is None:
            continue
        try:
            one = shapes(proto, 1)
        except (*RUNTIME_FAULTS, onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented):
            continue  # operators that it lacks, or weights that aren't there
        try:
            baked = any(first == second for first, second in zip(one, shapes(proto, 2), strict=True))
        except RUNTIME_FAULTS:
            baked = True
        model = read_model_bytes(proto.SerializeToString(), label=path.name)
        verdict = check([Target(name="x", model=model, gpu="t4", bindings=make_bindings({"batch": 1}))])
        found = any(finding.code == "NSX303" for finding in verdict.findings)
        if found is baked:
            agreed[baked] += 1
        else:
            wrong.append((path.name, baked, found))
    assert wrong == []
    assert agreed[True] >= 5
    assert agreed[False] >= 10
