"""Weights in files beside a model: there, absent, short, elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from models import external_tensor, graph, linear, model
from neusight_onnx.errors import ModelError
from neusight_onnx.graph.read import read_model
from read_models import codes, read, saved


def test_missing_external_data_is_one_warning(tmp_path: Path) -> None:
    proto = linear(external_tensor("w", [4, 3], "weights/w.bin"))
    proto.graph.initializer.append(external_tensor("v", [1000], "weights/w.bin", offset=48))
    got = read_model(saved(tmp_path, proto))
    assert (got.graph.initializers["w"].missing, got.graph.initializers["w"].external) == (True, "weights/w.bin")
    assert codes(got) == ["external-data-missing"]
    assert "'weights/w.bin'" in got.warnings[0].message
    assert "4,048 bytes" in got.warnings[0].message


def test_small_external_tensors_are_read_and_big_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 400 + np.array([4, 8, 8]).tobytes())
    proto = linear(external_tensor("w", [4, 25], "w.bin", offset=0, length=400))
    proto.graph.initializer.append(external_tensor("s", [3], "w.bin", TensorProto.INT64, offset=400, length=24))
    got = read_model(saved(tmp_path, proto))
    s = got.graph.initializers["s"]
    assert s.data is not None
    assert s.data.tolist() == [4, 8, 8]
    assert not s.missing
    assert got.graph.initializers["w"].data is None
    assert not got.graph.initializers["w"].missing
    assert got.warnings == ()


def test_short_external_data(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 47)
    got = read_model(saved(tmp_path, linear(external_tensor("w", [4, 3], "w.bin"))))
    assert codes(got) == ["external-data-short"]
    assert got.graph.initializers["w"].missing
    assert "47 bytes" in got.warnings[0].message
    assert "48" in got.warnings[0].message


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../outside.bin",
        "sub/../../outside.bin",
        "..",
        "C:/w.bin",
        "..\\w.bin",
        "\\\\host\\w.bin",
        "a\0b",
        "",
    ],
    ids=repr,
)
def test_external_data_must_stay_in_the_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(b"\0" * 48)
    path = saved(folder, linear(external_tensor("w", [4, 3], location)))
    with pytest.raises(ModelError, match=r"'w'.*not inside the model's folder"):
        read_model(path)


@pytest.mark.parametrize("link_folder", [False, True], ids=["file", "folder"])
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, link_folder: bool) -> None:
    folder, outside = tmp_path / "model", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "w.bin").write_bytes(np.arange(3).tobytes())
    (folder / "link").symlink_to(outside if link_folder else outside / "w.bin")
    weight = external_tensor("w", [3], "link/w.bin" if link_folder else "link", TensorProto.INT64)
    with pytest.raises(ModelError, match="leads by a link out of the model's folder; it was not opened"):
        read_model(saved(folder, linear(weight)))


def test_a_model_that_is_a_link_has_its_data_beside_its_target(tmp_path: Path) -> None:
    """The cache of Hugging Face: snapshots/…/model.onnx and its data are links into blobs/."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    (blobs / "1234").write_bytes(np.array([1, 2, 3]).tobytes())
    proto = model(graph([], initializers=[external_tensor("s", [3], "m.data", TensorProto.INT64)]))
    (blobs / "5678").write_bytes(proto.SerializeToString())
    (snapshot / "m.onnx").symlink_to("../blobs/5678")
    (snapshot / "m.data").symlink_to("../blobs/1234")
    s = read_model(snapshot / "m.onnx").graph.initializers["s"]
    assert s.data is not None
    assert s.data.tolist() == [1, 2, 3]


def test_a_pipe_is_no_external_data(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.bin")
    proto = model(graph([], initializers=[external_tensor("s", [3], "w.bin", TensorProto.INT64)]))
    assert codes(read_model(saved(tmp_path, proto))) == ["external-data-missing"]


def test_an_external_file_that_can_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.bin").write_bytes(np.array([1, 2, 3]).tobytes())
    proto = model(graph([], initializers=[external_tensor("s", [3], "s.bin", TensorProto.INT64)]))
    path = saved(tmp_path, proto)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("builtins.open", refuse)
    got = read_model(path)
    assert codes(got) == ["external-data-missing"]
    assert got.graph.initializers["s"].missing


def test_external_data_of_a_model_in_memory_is_missing() -> None:
    assert codes(read(linear(external_tensor("w", [4, 3], "w.bin")))) == ["external-data-missing"]
