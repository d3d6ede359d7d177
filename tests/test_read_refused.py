"""Model files that are odd but sound, and those that are refused."""

from __future__ import annotations

import gc
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto

from models import external_tensor, function, graph, linear, model, nested_ifs, node, number, part, tensor, value
from neusight_onnx.errors import ModelError
from neusight_onnx.graph.model import Graph
from neusight_onnx.graph.read import read_model, read_model_bytes
from read_models import codes, doubling, read, saved

# --- odd but sound ----------------------------------------------------------------------------------------------------


def test_stripped_weights() -> None:
    proto = linear(TensorProto(name="w", dims=[4, 3], data_type=TensorProto.FLOAT))
    got = read(proto)
    assert codes(got) == ["weights-stripped"]
    assert "48 bytes" in got.warnings[0].message
    assert got.graph.initializers["w"].missing


def test_of_initializers_with_one_name_the_last_counts() -> None:
    proto = model(graph([], initializers=[tensor("w", np.array([1])), tensor("w", np.array([2, 3]))]))
    got = read(proto)
    assert got.graph.initializers["w"].shape == (2,)
    assert codes(got) == ["duplicate-initializer"]


@pytest.mark.parametrize(
    ("ir_version", "opsets", "expected"),
    [
        pytest.param(8, {"": 17, "ai.onnx.ml": 3}, [], id="known"),
        pytest.param(onnx.IR_VERSION, {"": onnx.defs.onnx_opset_version()}, [], id="newest"),
        pytest.param(99, {"": 17}, ["ir-version-newer"], id="ir"),
        pytest.param(8, {"": 99}, ["opset-newer"], id="opset"),
        pytest.param(8, {"": 17, "ai.onnx.ml": 99}, ["opset-newer"], id="ml"),
        pytest.param(8, {"": 17, "acme": 99}, [], id="foreign"),
        pytest.param(8, {"": 17, "com.microsoft": 99}, ["opset-newer"], id="ONNX Runtime"),
        pytest.param(8, {"com.microsoft": 1}, ["opset-missing"], id="missing"),
        pytest.param(2, {"com.microsoft": 1}, [], id="missing-before-ir-3"),
    ],
)
def test_versions(ir_version: int, opsets: dict[str, int], expected: list[str]) -> None:
    got = read(model(graph([node("Relu", "x", "y")], [value("x")]), opsets=opsets, ir_version=ir_version))
    assert codes(got) == expected
    newest = onnx.defs.onnx_opset_version()
    wanted = 1 if ir_version == 2 else newest if expected == ["opset-missing"] else opsets[""]
    assert got.graph.nodes[0].version == wanted


def test_warnings_name_what_was_found_and_what_is_known() -> None:
    got = read(model(graph([]), opsets={"": 99}, ir_version=98))
    assert f"98, newer than {onnx.IR_VERSION}" in got.warnings[0].message
    assert f"99 of ai.onnx, newer than {onnx.defs.onnx_opset_version()}" in got.warnings[1].message


def test_an_empty_graph_is_a_model() -> None:
    assert read(model(graph([]))).graph.nodes == ()


def test_names_that_are_no_utf8_stay_apart() -> None:
    def relu(output: bytes) -> bytes:
        return part(1, part(1, b"x") + part(2, output) + part(4, b"Relu"))

    main = relu(b"\xff") + relu(b"\xfe") + part(11, value("x").SerializeToString())
    got = read_model_bytes(number(1, 8) + part(8, number(2, 17)) + part(7, main))
    assert [n.outputs for n in got.graph.nodes] == [("\\xff",), ("\\xfe",)]


# --- what is refused --------------------------------------------------------------------------------------------------

FILES: list[tuple[str, bytes, str]] = [
    ("no-bytes", b"", "is empty"),
    ("text", b"hello, this is no model at all\n" * 3, "is a text file"),
    ("text-beyond-ascii", ("▎░ the true latency, in µs\n" * 60).encode()[:1500], "is a text file"),
    ("text-cut-in-a-character", ("a" + "é" * 600).encode(), "is a text file"),
    ("text-of-latin-1", "# Größe\n".encode("latin-1") * 20, "begins like none"),
    ("program", b"\x7fELF\x02\x01\x01" + b"\0" * 40, "program or library"),
    ("picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "picture"),
    ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n", "git lfs pull"),
    ("html", b"\n<!DOCTYPE html><html></html>", "is a web page"),
    ("gzip", gzip.compress(b"model"), "gzip; unpack it"),
    ("zip", b"PK\x03\x04" + b"\0" * 40, "zip archive"),
    ("ort", b"\x20\0\0\0ORTM" + b"\0" * 40, "ORT format"),
    ("safetensors", b"\x50\0\0\0\0\0\0\0" + b'{"w":{"dtype":"F32"}}', "safetensors"),
    ("pickle", b"\x80\x02}q\x00.", "pickle"),
    ("no-graph", number(1, 8) + part(8, number(2, 17)), "no graph"),
    ("zeros", b"\0" * 100, "begins like none"),
    ("noise", bytes(range(1, 200)) * 3, "begins like none"),
    ("damaged", number(1, 8) + bytes(range(1, 200)), "damaged"),
    ("length-2-63", b"\x08\x08\x3a" + b"\xff" * 8 + b"\x7f", "cut short"),
    ("endless-varint", b"\x08" + b"\xff" * 20, "more than 10 bytes"),
    ("truncated", linear().SerializeToString()[:-20], "cut short"),
    ("empty-graph-alone", b"\x3a\x00", "neither an IR version"),
]


@pytest.mark.parametrize(("content", "complaint"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_files_that_are_no_model(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=complaint) as caught:
        read_model(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        pytest.param(lambda path: None, "does not exist", id="absent"),
        pytest.param(lambda path: path.mkdir(), "is a folder", id="folder"),
        pytest.param(lambda path: os.mkfifo(path), "no regular file", id="pipe"),
        pytest.param(lambda path: path.symlink_to(path), "can't be read", id="link-to-itself"),
    ],
)
def test_paths_that_are_no_file(tmp_path: Path, prepare: Callable[[Path], None], complaint: str) -> None:
    path = tmp_path / "m.onnx"
    prepare(path)
    with pytest.raises(ModelError, match=complaint):
        read_model(path)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param([], "is a folder; there is no .onnx file in it", id="none"),
        pytest.param(["config.json", "onnx/model.onnx"], "give the .onnx file in it, onnx/model.onnx", id="one"),
        pytest.param(
            ["b.ONNX", "a.onnx", "a.onnx_data"], "give one of the .onnx files in it: a.onnx, b.ONNX", id="two"
        ),
        pytest.param([f"{n}.onnx" for n in range(9)], "0.onnx, 1.onnx, 2.onnx, 3.onnx and 5 more", id="many"),
        pytest.param(["a/b/deep.onnx"], "there is no .onnx file in it", id="deeper"),
    ],
)
def test_a_folder_is_told_its_models(files: list[str], said: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ModelError) as caught:
        read_model(tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["model.onnx.data", "model.onnx_data", "model.onnx_data_1"])
def test_weights_that_lie_beside_a_model(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(bytes(64))
    with pytest.raises(ModelError, match="is the weights of a model"):
        read_model(tmp_path / name)
    (tmp_path / name).write_bytes(linear().SerializeToString())  # whatever it is called
    assert read_model(tmp_path / name).graph.nodes


@pytest.mark.parametrize("address", ["https://example.org/model.onnx", "s3://bucket/model.onnx"])
def test_an_address_is_no_path(address: str) -> None:
    with pytest.raises(ModelError, match="is an address; download the file"):
        read_model(address)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = saved(tmp_path, linear())
    path.chmod(0)
    with pytest.raises(ModelError, match="permission denied"):
        read_model(path)


def bad_weight(**facts: object) -> Callable[[], bytes]:
    return lambda: linear(TensorProto(name="w", **facts)).SerializeToString()  # type: ignore[arg-type]  # a table


CONTRADICTIONS: list[tuple[str, Callable[[], bytes], str]] = [
    ("too-few-bytes", bad_weight(dims=[4, 3], data_type=1, raw_data=b"\0" * 47), "needs 48 bytes and has 47"),
    ("too-few-floats", bad_weight(dims=[3], data_type=1, float_data=[1.0, 2.0]), "another number of elements"),
    ("too-few-of-many", bad_weight(dims=[300], data_type=1, float_data=[1.0, 2.0]), "another number of elements"),
    ("too-few-integers", bad_weight(dims=[9], data_type=7, int64_data=[1]), "another number of elements"),
    ("negative-dim", bad_weight(dims=[-4, 3], data_type=1, raw_data=b"\0" * 48), "negative dimension"),
    ("dim-2-62", bad_weight(dims=[2**62, 4], data_type=1, raw_data=b"\0"), "impossible size"),
    ("dim-2-62-times-0", bad_weight(dims=[2**62, 0], data_type=1), "impossible size"),
    ("rank-100", bad_weight(dims=[1] * 100, data_type=1, raw_data=b"\0" * 4), "more than 64 dimensions"),
    ("rank-a-million", bad_weight(dims=[1] * 1_000_000, data_type=1), "dimensions"),
    ("unknown-type", bad_weight(dims=[1], data_type=77, raw_data=b"\0"), "unknown element type 77"),
    ("strings-as-bytes", bad_weight(dims=[1], data_type=8, raw_data=b"\0"), "raw bytes"),
    (
        "external-offset",
        lambda: linear(external_tensor("w", [4, 3], "w.bin", offset="-1")).SerializeToString(),
        "impossible offset '-1'",
    ),
    (
        "external-length",
        lambda: linear(external_tensor("w", [4, 3], "w.bin", length=40)).SerializeToString(),
        "needs 48 bytes and its external data has 40",
    ),
    (
        "cycle",
        lambda: model(graph([node("Relu", "a", "b"), node("Relu", "b", "a")])).SerializeToString(),
        "has a cycle",
    ),
    ("self-loop", lambda: model(graph([node("Relu", "a", "a")])).SerializeToString(), "has a cycle"),
    (
        "assigned-twice",
        lambda: model(
            graph([node("Relu", "x", "a", "first"), node("Exp", "x", "a", "second")], [value("x")])
        ).SerializeToString(),
        "assigns the value 'a' twice, the second time in node 'second'",
    ),
    (
        "assigns-an-input",
        lambda: model(graph([node("Relu", "x", "x")], [value("x")])).SerializeToString(),
        "assigns the value 'x' twice",
    ),
    (
        "reads-nothing",
        lambda: model(graph([node("Relu", "nowhere", "y", "act")])).SerializeToString(),
        "node 'act' reads the value 'nowhere'",
    ),
    (
        "returns-nothing",
        lambda: model(graph([], [], [value("nowhere")])).SerializeToString(),
        "the graph returns the value 'nowhere'",
    ),
    (
        "branch-reads-nothing",
        lambda: model(
            graph(
                [
                    node(
                        "If", "c", "y", "if", then_branch=graph([node("Relu", "nowhere", "o", "act")], [], [value("o")])
                    )
                ],
                [value("c")],
            )
        ).SerializeToString(),
        "'nowhere'",
    ),
    ("bomb-of-fields", lambda: number(1, 8) + part(7, number(99, 1) * 2_500_000), "looks like a bomb"),
    (
        "bomb-of-a-name",
        lambda: model(graph([node("Relu", "x", "y", "n" * 70_000)], [value("x")])).SerializeToString(),
        "has a name of 70,000 bytes, 'n{40}'; it looks like a bomb",
    ),
    ("output-without-name", lambda: model(graph([], [], [value("")])).SerializeToString(), "without a name"),
    ("input-twice", lambda: model(graph([], [value("x"), value("x")])).SerializeToString(), "an input twice"),
    ("subgraphs-1000-deep", lambda: nested_ifs(1000), "more than 64 deep"),
    ("functions-double", lambda: doubling(40).SerializeToString(), "it looks like a bomb"),
    (
        "recursion",
        lambda: model(
            graph([node("F", "x", "y", domain="local")], [value("x")]),
            [
                function("F", "x", "y", [node("G", "x", "y", domain="local")]),
                function("G", "x", "y", [node("F", "x", "y", domain="local")]),
            ],
            {"": 17, "local": 1},
        ).SerializeToString(),
        "a function that calls itself: 'F'",
    ),
    (
        "too-many-inputs",
        lambda: model(
            graph([node("F", "x x", "y", "call", domain="local")], [value("x")]),
            [function("F", "x", "y", [node("Relu", "x", "y")])],
            {"": 17, "local": 1},
        ).SerializeToString(),
        "with 2 inputs and 1 outputs in node 'call'; it has 1 and 1",
    ),
    (
        "function-returns-nothing",
        lambda: model(
            graph([node("F", "x", "y", domain="local")], [value("x")]),
            [function("F", "x", "nowhere", [])],
            {"": 17, "local": 1},
        ).SerializeToString(),
        "'nowhere', which nothing produces",
    ),
]


@pytest.mark.parametrize(
    ("build", "complaint"), [row[1:] for row in CONTRADICTIONS], ids=[row[0] for row in CONTRADICTIONS]
)
def test_models_that_contradict_themselves(build: Callable[[], bytes], complaint: str) -> None:
    content = build()
    with pytest.raises(ModelError, match=complaint) as caught:
        read_model_bytes(content)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_long_and_ugly_names_are_cut_in_messages() -> None:
    name = "a\n\x1b[31m" + "x" * 1_000_000
    with pytest.raises(ModelError) as caught:
        read(model(graph([node("Relu", "gone", "y", name)])))
    message = str(caught.value)
    assert len(message) < 300
    assert message.isprintable()


def test_subgraphs_60_deep_are_read() -> None:
    inner: object = read_model_bytes(nested_ifs(60)).graph
    depth = 0
    while isinstance(inner, Graph) and inner.nodes[0].op_type == "If":
        inner = inner.nodes[0].attributes["then_branch"]
        depth += 1
    assert depth == 60


def test_a_model_cut_anywhere_is_refused_or_read() -> None:
    """Each prefix is refused in one line, unless it happens to end at a field of the file's top level."""
    content = doubling(2).SerializeToString()
    messages = []
    for length in range(1, len(content)):
        try:
            read_model_bytes(content[:length])
        except ModelError as error:
            messages.append(str(error))
    assert len(messages) > len(content) - 10
    assert not any("\n" in message for message in messages)


def test_garbage_collection_is_on_again() -> None:
    assert gc.isenabled()
    read(linear())
    assert gc.isenabled()
    with pytest.raises(ModelError):
        read_model_bytes(b"\0")
    assert gc.isenabled()
