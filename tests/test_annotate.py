"""The annotated model and the overlay for Model Explorer: what they say, and that nothing else of the file changes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from models import external_tensor, function, graph, linear, model, node, tensor, value, varint
from neusight_onnx.annotation import PREFIX, Annotation, annotation_of, write_annotated
from neusight_onnx.cli import main
from neusight_onnx.report.model_explorer import to_model_explorer

ROOT = Path(__file__).parents[1]


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return tensor(name, np.ones(shape, np.float32))


def called_twice() -> onnx.ModelProto:
    """A function of two nodes, called twice, and a node beside it."""
    body = function("Lin", "x w", "y", [node("MatMul", "x w", "t", "mm"), node("Relu", "t", "y", "act")])
    return model(
        graph(
            [
                node("Lin", "x w", "a", "first", domain="local"),
                node("Lin", "a w", "b", "second", domain="local"),
                node("Sigmoid", "b", "y", "end"),
            ],
            [value("x", ("batch", 64))],
            [value("y", ("batch", 64))],
            [weight("w", 64, 64)],
        ),
        [body],
        {"": 17, "local": 1},
    )


def with_branches_and_a_loop() -> onnx.ModelProto:
    """An If whose condition is an input, its branches with nodes of one name; a Loop of 3 trips; a nameless node."""
    then = graph([node("MatMul", "x w", "a", "n"), node("Relu", "a", "then_out", "r")], [], [value("then_out", None)])
    other = graph([node("Relu", "x", "else_out", "n")], [], [value("else_out", None)])
    body = graph(
        [node("Identity", "c", "c_out", "keep"), node("Exp", "s", "s_out", "step")],
        [value("i", (), onnx.TensorProto.INT64), value("c", (), onnx.TensorProto.BOOL), value("s", (8, 64))],
        [value("c_out", (), onnx.TensorProto.BOOL), value("s_out", (8, 64))],
    )
    return model(
        graph(
            [
                node("If", "cond", "z", "choose", then_branch=then, else_branch=other),
                node("Tanh", "z", "t"),
                node("Loop", "trips - t", "y", "repeat", body=body),
            ],
            [value("x", (8, 64)), value("cond", (), onnx.TensorProto.BOOL)],
            [value("y", (8, 64))],
            [weight("w", 64, 64), tensor("trips", np.array(3, np.int64))],
            name="main",
        )
    )


def annotated(proto: onnx.ModelProto, folder: Path, **options: Any) -> tuple[Annotation, onnx.ModelProto]:
    path = folder / "m.onnx"
    onnx.save(proto, path)
    annotation = annotation_of(path, gpu="a100", **options)
    buffer = io.BytesIO()
    write_annotated(annotation, buffer)
    return annotation, onnx.load_model_from_string(buffer.getvalue())


def notes(item: Any) -> dict[str, str]:
    return {
        entry.key.removeprefix(PREFIX): entry.value for entry in item.metadata_props if entry.key.startswith(PREFIX)
    }


def stripped(proto: onnx.ModelProto) -> bytes:
    """The model without what ``annotate`` writes: metadata of ours, value_info, types of inputs and outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)

    def clean(item: Any) -> None:
        kept = [entry for entry in item.metadata_props if not entry.key.startswith(PREFIX)]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)

    def walk(nodes: Any) -> None:
        for each in nodes:
            clean(each)
            for attribute in each.attribute:
                for body in [attribute.g, *attribute.graphs]:
                    del body.value_info[:]
                    walk(body.node)

    clean(copy)
    del copy.graph.value_info[:]
    for declared in [*copy.graph.input, *copy.graph.output]:
        declared.ClearField("type")
    walk(copy.graph.node)
    for each in copy.functions:
        walk(each.node)
    return copy.SerializeToString(deterministic=True)


MODELS = {"linear": linear, "function": called_twice, "control flow": with_branches_and_a_loop}


@pytest.mark.parametrize("name", MODELS)
def test_the_file_is_valid_the_same_else_and_adds_up(name: str, tmp_path: Path) -> None:
    original = MODELS[name]()
    annotation, found = annotated(original, tmp_path)
    onnx.checker.check_model(found, full_check=True)
    assert stripped(found) == stripped(original)
    times = [float(notes(each)["latency_us"]) for each in found.graph.node if "latency_us" in notes(each)]
    assert sum(times) == pytest.approx(annotation.report.totals.kernel_ms * 1e3, rel=1e-4)
    for each in found.graph.node:
        said = notes(each)
        assert said, each.name
        assert ("latency_us" in said) == ("kernel_class" in said) == ("bound" in said)
        assert "latency_us" in said or {"free", "unsupported", "fused_into"} & set(said), each.name


def test_annotating_twice_is_annotating_once(tmp_path: Path) -> None:
    original = with_branches_and_a_loop()
    original.graph.node[1].metadata_props.add(key="mine", value="stays")
    _, first = annotated(original, tmp_path)
    _, second = annotated(first, tmp_path)
    assert second.SerializeToString(deterministic=True) == first.SerializeToString(deterministic=True)
    assert [entry.value for entry in first.graph.node[1].metadata_props if entry.key == "mine"] == ["stays"]


def test_shapes_are_those_of_the_analysis(tmp_path: Path) -> None:
    _, found = annotated(called_twice(), tmp_path, dims={"batch": 8})
    shapes = {
        each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim]
        for each in [*found.graph.value_info, *found.graph.input, *found.graph.output]
    }
    assert shapes == {"a": [8, 64], "b": [8, 64], "x": [8, 64], "y": [8, 64]}
    assert notes(found)["dims"] == "batch=8"
    assert notes(found)["gpu"] == "NVIDIA A100 SXM4 80 GB"


def test_a_size_that_depends_on_data_is_left_open(tmp_path: Path) -> None:
    proto = model(
        graph(
            [node("NonZero", "x", "where", "nz"), node("Cast", "where", "y", "cast", to=onnx.TensorProto.FLOAT)],
            [value("x", (4, 8))],
            [value("y", (2, None))],
        )
    )
    _, found = annotated(proto, tmp_path)
    (info,) = found.graph.value_info
    first, second = info.type.tensor_type.shape.dim
    assert first.dim_value == 2
    assert not second.HasField("dim_value")
    assert not second.HasField("dim_param")


def test_a_call_carries_its_function_and_the_function_all_calls(tmp_path: Path) -> None:
    annotation, found = annotated(called_twice(), tmp_path, dims={"batch": 8})
    times = {row.nodes: row.latency_us for row in annotation.report.kernels}
    first, second, end = (notes(each) for each in found.graph.node)
    expected = times[("first/mm",)] + times[("first/act",)]
    assert float(first["latency_us"]) == pytest.approx(expected, rel=1e-4)
    assert first["kernel_class"] == "gemm, elementwise"
    assert second["latency_us"] == first["latency_us"]
    assert end["kernel_class"] == "elementwise"
    product, activation = (notes(each) for each in found.functions[0].node)
    assert product["calls"] == "2"
    assert float(product["latency_us"]) == pytest.approx(2 * times[("first/mm",)], rel=1e-4)
    assert activation["kernel_class"] == "elementwise"


def test_a_body_carries_its_trips_and_the_loop_its_body(tmp_path: Path) -> None:
    annotation, found = annotated(with_branches_and_a_loop(), tmp_path)
    choose, _, repeat = found.graph.node
    step = next(row for row in annotation.report.kernels if row.nodes == ("step",))
    assert step.count == 3
    assert notes(repeat.attribute[0].g.node[1])["runs"] == "3"
    assert float(notes(repeat)["latency_us"]) == pytest.approx(step.latency_us, rel=1e-4)
    then, other = (attribute.g for attribute in choose.attribute)
    if then.node[0].op_type != "MatMul":
        then, other = other, then
    assert notes(then.node[0])["kernel_class"] == "gemm"
    assert notes(other.node[0]) == {"free": "the other branch of its If is counted"}
    assert [info.name for info in then.value_info] == ["a"]


def test_the_first_of_fused_nodes_carries_the_kernel(tmp_path: Path) -> None:
    nodes = [node("Exp", "x", "a", "e"), node("Neg", "a", "b", "n"), node("Sqrt", "b", "y", "s")]
    proto = model(graph(nodes, [value("x", (1024, 1024))], [value("y", (1024, 1024))]))
    annotation, found = annotated(proto, tmp_path, runtime="compiled")
    assert [row.nodes for row in annotation.report.kernels] == [("e", "n", "s")]
    first, *others = (notes(each) for each in found.graph.node)
    assert first["fuses"] == "n, s"
    assert float(first["latency_us"]) == pytest.approx(annotation.report.kernels[0].latency_us, rel=1e-4)
    assert others == [{"fused_into": "e"}, {"fused_into": "e"}]


def test_an_unsupported_node_says_why(tmp_path: Path) -> None:
    nodes = [node("Mystery", "x", "a", "m", domain="odd"), node("Relu", "x", "y", "r")]
    proto = model(graph(nodes, [value("x", (4, 4))], [value("y", (4, 4))]), opsets={"": 17, "odd": 1})
    _, found = annotated(proto, tmp_path)
    assert set(notes(found.graph.node[0])) == {"unsupported"}
    assert notes(found)["partial"] == "true"


def test_a_large_model_is_copied_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        # a sparse file: the small model, and behind it a second piece of its graph, a gigabyte of zeros as a weight
        size = 10**9
        head = onnx.TensorProto(name="unused", data_type=onnx.TensorProto.UINT8, dims=[size]).SerializeToString()
        raw = b"\x4a" + varint(size)
        piece = b"\x2a" + varint(len(head) + len(raw) + size) + head + raw
        file.write(linear().SerializeToString())
        file.write(b"\x3a" + varint(len(piece) + size) + piece)
        file.seek(size - 1, os.SEEK_CUR)
        file.write(b"\0")
    out = tmp_path / "out.onnx"
    code = (
        "import re, sys; from pathlib import Path; from neusight_onnx.cli import main;"
        "code = main(sys.argv[1:]);"
        # not ru_maxrss: that holds what the process that started this one took, too
        "print(code, int(re.search(r'VmHWM:\\s*([0-9]+)', Path('/proc/self/status').read_text())[1]) // 1024)"
    )
    command = ["annotate", str(path), "--gpu", "a100", "-o", str(out)]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    exit_code, mebibytes = map(int, done.stdout.split())
    assert exit_code == 0, done.stderr
    assert mebibytes < 400
    assert out.stat().st_size > size


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose weight is in an external file beside it, and a folder to write to."""
    (tmp_path / "w.bin").write_bytes(bytes(64 * 64 * 4))
    nodes = [node("MatMul", "x w", "a", "mm"), node("Relu", "a", "y", "act")]
    weights = [external_tensor("w", [64, 64], "w.bin")]
    proto = model(graph(nodes, [value("x", ("batch", 64))], [value("y", ("batch", 64))], weights))
    onnx.save(proto, tmp_path / "m.onnx")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def annotate(*arguments: str) -> int:
    return main(["annotate", "m.onnx", "--gpu", "a100", *arguments])


def test_external_weights_stay_where_they_are(folder: Path) -> None:
    before = (folder / "w.bin").stat()
    assert annotate("-o", "out.onnx") == 0
    onnx.checker.check_model(folder / "out.onnx")
    assert {
        entry.key: entry.value
        for entry in onnx.load("out.onnx", load_external_data=False).graph.initializer[0].external_data
    } == {"location": "w.bin"}
    assert (folder / "w.bin").stat() == before
    assert sorted(os.listdir(folder)) == ["elsewhere", "m.onnx", "out.onnx", "w.bin"]


def test_the_same_folder_by_another_name_will_do(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    alias = tmp_path_factory.mktemp("links") / "alias"
    alias.symlink_to(folder)
    assert annotate("-o", str(alias / "out.onnx")) == 0
    onnx.checker.check_model(folder / "out.onnx")


def test_weights_that_are_not_there_bind_to_no_folder(folder: Path) -> None:
    (folder / "w.bin").unlink()
    assert annotate("-o", "elsewhere/out.onnx") == 0


def test_the_model_is_replaced_only_if_told_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "m.onnx").read_bytes()
    assert annotate("-o", "m.onnx") == 2
    assert "--force" in capsys.readouterr().err
    assert (folder / "m.onnx").read_bytes() == before
    assert annotate("-o", "m.onnx", "--force") == 0
    assert b"neusight.latency_us" in (folder / "m.onnx").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["-o", "elsewhere/out.onnx"], "would not find the weights", id="weights out of reach"),
        pytest.param(["-o", "w.bin"], "a file of the model's weights", id="over the weights"),
        pytest.param(["-o", "w.bin", "--force"], "a file of the model's weights", id="over the weights by force"),
        pytest.param(["-o", "nowhere/out.onnx"], "does not exist", id="no such folder"),
        pytest.param(["-o", "elsewhere"], "is a folder", id="a folder"),
        pytest.param(["-o", "-"], "annotate writes a file", id="standard output"),
        pytest.param(["-o", ""], "-o is empty", id="empty"),
        pytest.param([], "missing option", id="no output"),
        pytest.param(["-o", "out.onnx", "--dim", "btch=2"], "btch", id="unknown dim"),
        pytest.param(["-o", "out.onnx", "--runtime", "openvino"], "openvino", id="runtime"),
    ],
)
def test_misuse_is_one_line(arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir(folder))
    assert annotate(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert sorted(os.listdir(folder)) == before


# --- Model Explorer ---------------------------------------------------------------------------------------------------


def overlay(proto: onnx.ModelProto, folder: Path) -> dict[str, Any]:
    annotation, _ = annotated(proto, folder)

    def latency_us(each: Any) -> float | None:
        cost = annotation.cost_of(each)
        return cost.latency_us if cost is not None and cost.kernel_classes else None

    return dict(json.loads(to_model_explorer(annotation.source, latency_us, title="t")))


@pytest.mark.parametrize("name", MODELS)
def test_the_overlay_has_the_keys_of_node_data(name: str, tmp_path: Path) -> None:
    """GraphNodeData of ai-edge-model-explorer 0.1.34 (node_data_builder.py): results, name, gradient with both ends."""
    for data in overlay(MODELS[name](), tmp_path).values():
        assert set(data) == {"name", "results", "gradient"}
        assert [item["stop"] for item in data["gradient"]] == sorted(item["stop"] for item in data["gradient"])
        assert (data["gradient"][0]["stop"], data["gradient"][-1]["stop"]) == (0, 1)
        assert all(set(item) == {"stop", "bgColor"} for item in data["gradient"])
        assert all(set(result) == {"value"} and result["value"] > 0 for result in data["results"].values())


def test_ids_are_those_of_the_onnx_adapter(tmp_path: Path) -> None:
    """As model-explorer-onnx 0.4.2 named the nodes of these two models."""
    data = overlay(with_branches_and_a_loop(), tmp_path)
    assert set(data) == {"main", "repeat/body"}
    ids = set(data["main"]["results"])
    assert ids == {"choose", "choose/then_branch/n", "choose/then_branch/r", "node", "repeat"}
    assert set(data["repeat/body"]["results"]) == {"step"}
    data = overlay(called_twice(), tmp_path)
    assert set(data) == {"g", "[function]local::Lin"}
    assert set(data["g"]["results"]) == {"first", "second", "end"}
    assert set(data["[function]local::Lin"]["results"]) == {"mm", "act"}


def test_names_that_repeat_are_numbered(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("Relu", "a", "b", "n"), node("Relu", "b", "c"), node("Relu", "c", "y", "n")]
    proto = model(graph(nodes, [value("x", (64, 64))], [value("y", (64, 64))], name=""))
    data = overlay(proto, tmp_path)
    assert list(data) == ["<main>"]
    assert list(data["<main>"]["results"]) == ["node", "n", "node_1", "n_1"]


def test_the_command_writes_the_overlay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "m.onnx", "--gpu", "a100", "--format", "model-explorer"]) == 0
    data = json.loads(capsys.readouterr().out)
    (only,) = data.values()
    assert only["name"] == "latency on NVIDIA A100 SXM4 80 GB in us, predicted"
    assert main(["analyze", "m.onnx", "--gpu", "a100", "--format", "model-explorer", "-o", "w.bin"]) == 2
