"""The stand-ins for weights that a benchmark's graph lacks."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def test_weights_that_are_there_stay_in_the_folder_of_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No link: onnx and ONNX Runtime refuse weights that lie elsewhere."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    pytest.importorskip("onnxruntime")
    given, made = tmp_path / "given", tmp_path / "made"
    given.mkdir()
    made.mkdir()
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(4,), data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights")
    (given / "weights").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    graph = helper.make_graph([], "g", [], [], [tensor])
    (given / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    model = onnx.load(import_module("fusion_ort").with_weights(given / "m.onnx", made))
    assert numpy_helper.to_array(model.graph.initializer[0]).tolist() == [0, 1, 2, 3]


def test_a_causal_mask_without_data_is_lower_triangular(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    pytest.importorskip("onnxruntime")
    constants = []
    for name, kind, dims, offset, length in (
        ("weight", TensorProto.FLOAT, (4,), 0, 16),
        ("mask", TensorProto.BOOL, (1, 1, 3, 3), 16, 9),
        ("flags", TensorProto.BOOL, (1, 2, 3, 3), 25, 18),
    ):
        tensor = TensorProto(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "weights"), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)
        constants.append(tensor)
    given, made = tmp_path / "given", tmp_path / "made"
    given.mkdir()
    made.mkdir()
    graph = helper.make_graph([], "g", [], [], constants)
    (given / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    model = onnx.load(import_module("fusion_ort").with_weights(given / "m.onnx", made))
    weight, mask, flags = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    assert mask.tolist() == [[np.tri(3, dtype=bool).tolist()]]
    assert not weight.any()
    assert not flags.any()
