"""``--batch``: the batch by what it is, not by what the model calls it; in the library and in every command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto

from models import graph, model, node, value
from neusight_onnx import analyze, compare, sweep
from neusight_onnx.cli import main
from neusight_onnx.errors import BindingError
from neusight_onnx.graph.batch_dimension import Batch, find_batch
from neusight_onnx.graph.bindings import Bindings, bind_inputs
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model_bytes

INT = TensorProto.INT64


def with_inputs(*inputs: onnx.ValueInfoProto) -> Model:
    proto = model(graph([node("Identity", inputs[0].name, "y")], list(inputs), [onnx.ValueInfoProto(name="y")]))
    return read_model_bytes(proto.SerializeToString())


# what the inputs declare; where the batch is; the shapes with a batch of 8
FOUND: dict[str, tuple[list[onnx.ValueInfoProto], Batch, list[tuple[int, ...]]]] = {
    "a symbol that is named so": (
        [value("x", ["batch", 3, 224, 224])],
        Batch(symbols=("batch",)),
        [(8, 3, 224, 224)],
    ),
    "not in front": ([value("x", ["time", "n", 64])], Batch(symbols=("n",)), [(128, 8, 64)]),
    "no name": ([value("x", [None, 3, 224, 224])], Batch(inputs=("x",)), [(8, 3, 224, 224)]),
    "0 for a free dimension": ([value("x", [0, 3, 8, 8])], Batch(inputs=("x",)), [(8, 3, 8, 8)]),
    "an exporter's names": (
        [value("x", ["s0", 3]), value("z", ["s1", 4])],
        Batch(symbols=("s0", "s1")),
        [(8, 3), (8, 4)],
    ),
    "one other name": ([value("x", ["boxes", 4])], Batch(symbols=("boxes",)), [(8, 4)]),
    "named in one, nameless in another": (
        [value("x", ["batch", 4]), value("z", [None, 4])],
        Batch(symbols=("batch",), inputs=("z",)),
        [(8, 4), (8, 4)],
    ),
    "a formula over it": (
        [value("x", ["2*batch", 3]), value("z", ["batch", 2])],
        Batch(symbols=("batch",)),
        [(16, 3), (8, 2)],
    ),
    "fixed at that size": ([value("x", [8, 3, 8, 8])], Batch(), [(8, 3, 8, 8)]),
    "beside lengths": (
        [value("ids", ["batch", "seq"], INT), value("mask", ["batch", "seq"], INT)],
        Batch(symbols=("batch",)),
        [(8, 128), (8, 128)],
    ),
}


@pytest.mark.parametrize(("inputs", "batch", "shapes"), FOUND.values(), ids=FOUND)
def test_what_the_batch_is(inputs: list[onnx.ValueInfoProto], batch: Batch, shapes: Sequence[tuple[int, ...]]) -> None:
    read = with_inputs(*inputs)
    assert find_batch(read, "asked", 8) == batch
    bound = bind_inputs(read, Bindings(batch=8))
    assert [bound.values[each.name].shape for each in inputs] == list(shapes)
    assert bound.symbols[batch.name] == 8
    assert bound.batch == 8
    assert not [line for line in bound.assumptions if not line.startswith(("seq", "time"))]


REFUSED = {
    "which of two": (
        [value("x", ["boxes", 4]), value("p", ["points", 3])],
        Bindings(batch=8),
        "--batch 8: the batch could be boxes (of x) or points (of p); say which, --dim boxes=N",
    ),
    "fixed at another size": (
        [value("x", [1, 3, 8, 8])],
        Bindings(batch=8),
        "--batch 8: the file fixes the first dimension of its inputs (x is 1x3x8x8); "
        "export the model with a symbolic one",
    ),
    "none": (
        [value("ids", ["seq"], INT)],
        Bindings(batch=8),
        "--batch 8: no dimension of the inputs looks like a batch; its symbols: seq; --dim binds what has a name",
    ),
    "no size": ([value("x", ["batch", 3])], Bindings(batch=0), "--batch 0: a size must be positive, not 0"),
    "another --dim": (
        [value("x", ["batch", 3])],
        Bindings(batch=8, dims={"batch": 4}),
        "--batch 8 makes 'batch' 8, but --dim batch=4 made it 4; give one size",
    ),
    "another --shape": (
        [value("x", [None, 3])],
        Bindings(batch=8, shapes={"x": (4, 3)}),
        "--batch 8: --shape x says 4x3; give one size",
    ),
    "--dim of a batch without a name": (
        [value("x", [None, 3])],
        Bindings(dims={"batch": 8}),
        "--dim batch: the model has no symbol of this name; it has no symbols; "
        "--batch binds the batch, whatever its name",
    ),
}


@pytest.mark.parametrize(("inputs", "bindings", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_batch(inputs: list[onnx.ValueInfoProto], bindings: Bindings, message: str) -> None:
    with pytest.raises(BindingError) as caught:
        bind_inputs(with_inputs(*inputs), bindings)
    assert str(caught.value) == message


HINTS = {
    "a batch without a name": ([value("x", [None, 3])], "--batch N"),
    "another dimension without one": ([value("x", [1, None, 3])], "--shape x=1x128x3 with other sizes"),
    "several could be the batch": (
        [value("x", [None, 3]), value("b", ["boxes", 4]), value("p", ["points", 3])],
        "--shape x=1x3 with other sizes",
    ),
}


@pytest.mark.parametrize(("inputs", "option"), HINTS.values(), ids=HINTS)
def test_a_default_names_the_option_that_changes_it(inputs: list[onnx.ValueInfoProto], option: str) -> None:
    (line,) = [line for line in bind_inputs(with_inputs(*inputs), Bindings()).assumptions if line.startswith("x = ")]
    assert line.endswith(f"{option} changes it)")


# --- in every command -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Products of a batch that is named, has an exporter's name, or none."""
    for name, first in (("named", "batch"), ("odd", "s77"), ("nameless", None)):
        nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "y")]
        inputs = [value("x", [first, 64]), value("w", [64, 64])]
        onnx.save(model(graph(nodes, inputs, [onnx.ValueInfoProto(name="y")])), tmp_path / f"{name}.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "dim"), [("named", "batch"), ("odd", "s77"), ("nameless", "batch")])
def test_a_run_counts_as_many_samples(name: str, dim: str, folder: Path) -> None:
    path = folder / f"{name}.onnx"
    report = analyze(path, gpu="t4", batch=32)
    assert report.totals.batch_size == 32
    assert dict(report.settings.dims) == {dim: 32}
    assert report.settings.batch == 32
    assert not [line for line in report.assumptions if "samples a run" in line], "nothing was guessed"
    whole = analyze(path, gpu="t4", shapes={"x": (32, 64)})
    assert report.totals.latency_ms == whole.totals.latency_ms


@pytest.mark.parametrize("name", ["named", "odd", "nameless"])
def test_the_largest_batch_needs_no_name(name: str, folder: Path) -> None:
    found = analyze(folder / f"{name}.onnx", gpu="t4", batch=32, with_largest_batch=True).totals.memory.largest_batch
    assert found is not None
    assert found.size > 1_000_000


def spoken(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(list(arguments)) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("name", "dim"), [("named", "batch"), ("odd", "s77"), ("nameless", "batch")])
def test_several_sizes(name: str, dim: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(folder / f"{name}.onnx")
    found = spoken(capsys, "sweep", path, "--gpu", "t4", "--batch", "1,8..32*2", "--format", "json")
    assert [point["dims"] for point in found["points"]] == [{dim: size} for size in (1, 8, 16, 32)]
    assert (found["axis"], found["axis_is_batch"], found["varied"]) == (dim, True, [dim])
    cases = spoken(capsys, "compare", path, "--gpu", "t4", "--gpu", "l4", "--batch", "1,8", "--format", "json")
    assert sorted((case["gpu"], case["dims"][dim], case["batch_size"]) for case in cases["cases"]) == [
        ("l4", 1, 1),
        ("l4", 8, 8),
        ("t4", 1, 1),
        ("t4", 8, 8),
    ]


def test_diff_binds_each_model_by_its_own_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = spoken(capsys, "diff", "named.onnx", "odd.onnx", "--gpu", "t4", "--batch", "16", "--format", "json")
    assert (found["old"]["dims"], found["new"]["dims"]) == ({"batch": 16}, {"s77": 16})
    assert found["kernels"] == []


def test_the_other_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = spoken(capsys, "inspect", "nameless.onnx", "--batch", "16", "--format", "json")
    assert found["inputs"][0]["shape"] == [16, 64]
    assert main(["annotate", "nameless.onnx", "--gpu", "t4", "--batch", "16", "-o", "out.onnx"]) == 0
    assert [dim.dim_value for dim in onnx.load("out.onnx").graph.input[0].type.tensor_type.shape.dim] == [16, 64]
    found = spoken(capsys, "check", "nameless.onnx", "--gpu", "t4", "--batch", "16", "--format", "json")
    assert found["targets"][0]["batch_size"] == 16
    Path("neusight.toml").write_text('[[target]]\nmodel = "odd.onnx"\ngpu = "t4"\nbatch = 16\n')
    found = spoken(capsys, "check", "--format", "json")
    assert found["targets"][0]["batch_size"] == 16
    found = spoken(
        capsys, "analyze", "odd.onnx", "--gpu", "t4", "--batch", "8", "--what-if", "batch=16", "--format", "json"
    )
    assert (found["totals"]["batch_size"], found["what_if"][0]["batch_size"]) == (8, 16)
    other = ["analyze", "named.onnx", "--gpu", "t4", "--dim", "batch=8", "--what-if", "batch=16", "--format", "json"]
    assert spoken(capsys, *other)["what_if"][0]["batch_size"] == 16


MISUSED = {
    "several": (["analyze", "named.onnx", "--gpu", "t4", "--batch", "1,8"], "give one size; sweep and compare take"),
    "a range": (["inspect", "named.onnx", "--batch", "1..8"], "give one size; sweep and compare take several"),
    "no number": (["analyze", "named.onnx", "--gpu", "t4", "--batch", "big"], "--batch big: 'big' is no whole number"),
    "below one": (["analyze", "named.onnx", "--gpu", "t4", "--batch", "0"], "--batch 0: a size must be positive"),
    "twice": (["analyze", "named.onnx", "--gpu", "t4", "--batch", "1", "--batch", "2"], "is given 2 times"),
    "of both": (
        ["sweep", "named.onnx", "--gpu", "t4", "--batch", "1,8", "--dim", "batch=2"],
        "--batch and --dim batch are sizes of the batch both; keep one of them",
    ),
    "no list": (["sweep", "named.onnx", "--gpu", "t4", "--batch", "1,x"], "--batch 1,x: 'x' is no whole number"),
    "one size": (["sweep", "named.onnx", "--gpu", "t4", "--batch", "8"], "there is nothing to sweep; give --batch"),
    "of reports": (["diff", "a.json", "b.json", "--batch", "8"], "two reports are compared as they are"),
    "of a configuration": (["check", "--batch", "8"], "--batch needs a MODEL and a --gpu"),
}


@pytest.mark.parametrize(("arguments", "message"), MISUSED.values(), ids=MISUSED)
def test_misuse_is_one_line(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.json", "b.json"):
        Path(name).write_text("{}")
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_the_library_takes_one_size_or_several(folder: Path) -> None:
    path = folder / "odd.onnx"
    assert len(sweep(path, gpu="t4", batch=(1, 2)).points) == 2
    assert [case.totals.batch_size for case in compare(path, gpus=["t4"], batch=4).cases] == [4]
