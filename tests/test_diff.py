"""``diff``: what differs between two models or two saved reports, what doesn't compare, and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from models import decoder, external_tensor, graph, linear, model, node, tensor, value
from neusight_onnx import analyze, diff
from neusight_onnx.backward import make_training
from neusight_onnx.cli import main
from neusight_onnx.comparison.changes import is_report, parse_limit
from neusight_onnx.errors import ComparisonError, OptionError
from neusight_onnx.report.difference import KernelChange
from neusight_onnx.report.difference_machine import difference_to_json
from neusight_onnx.report.difference_terminal import difference_to_terminal
from neusight_onnx.report.difference_words import kernel_dims, totals
from neusight_onnx.report.layout import Canvas
from neusight_onnx.report.machine import to_json
from test_report_machine import SCHEMA, documented_keys, keys_of


def deeper() -> onnx.ModelProto:
    """:func:`models.linear` with a Sigmoid and an unknown operator behind it."""
    return model(
        graph(
            [
                node("MatMul", "x w", "xw", "fc/MatMul"),
                node("Add", "xw b", "pre", "fc/Add"),
                node("Sigmoid", "pre", "s", "act"),
                node("Mystery", "s", "y", "odd", "own"),
            ],
            [value("x", ["batch", 4])],
            [value("y", ["batch", 3])],
            [tensor("w", np.zeros((4, 3), np.float32)), tensor("b", np.zeros(3, np.float32))],
        ),
        opsets={"": 17, "own": 1},
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """old.onnx and new.onnx, and reports of them on a T4 with a batch of 2."""
    onnx.save(linear(), tmp_path / "old.onnx")
    onnx.save(deeper(), tmp_path / "new.onnx")
    monkeypatch.chdir(tmp_path)
    for name in ("old", "new"):
        report = analyze(f"{name}.onnx", gpu="t4", dims={"batch": 2})
        (tmp_path / f"{name}.json").write_text(to_json(report))
    return tmp_path


DIMS = {"batch": 2}


def test_what_differs(folder: Path) -> None:
    """The old model has ReLU, the new one Sigmoid at the node of that name; product and addition stay."""
    found = diff("old.onnx", "new.onnx", gpu="t4", dims=DIMS)
    old, new = (analyze(name, gpu="t4", dims=DIMS) for name in ("old.onnx", "new.onnx"))
    assert found.old.latency_ms == pytest.approx(old.totals.latency_ms, rel=1e-5)
    assert found.growth == pytest.approx(new.totals.latency_ms / old.totals.latency_ms - 1, rel=1e-3, abs=1e-5)
    (item,) = found.kernels
    assert (item.status, item.nodes, item.old_count, item.new_count) == ("changed", ("act",), 1, 1)
    assert item.old_dims == {**item.dims, "operations": "relu"} != item.dims
    assert item.delta_us == item.new_us - item.old_us
    ((op_type, _, count),) = found.new_unsupported
    assert (op_type, count) == ("Mystery", 1)
    assert found.gone_unsupported == ()
    for side, report in ((found.old, old), (found.new, new)):
        assert sum(side.classes.values()) + side.overhead_ms == pytest.approx(report.totals.latency_ms, rel=1e-4)


@pytest.mark.parametrize(
    ("old", "new"),
    [("old.json", "new.json"), ("old.json", "new.onnx"), ("old.onnx", "new.json")],
    ids=["reports", "report and model", "model and report"],
)
def test_reports_and_models_compare_alike(old: str, new: str, folder: Path) -> None:
    settings = {} if is_report(old) and is_report(new) else {"gpu": "t4", "dims": DIMS}
    here = json.loads(difference_to_json(diff(old, new, **settings)))
    models = json.loads(difference_to_json(diff("old.onnx", "new.onnx", gpu="t4", dims=DIMS)))
    for found in (here, models):
        for side in ("old", "new"):
            del found[side]["source"]
        found["notes"] = [note.partition(" has ")[2] for note in found["notes"]]
    assert here == models


@pytest.mark.parametrize("name", ["old", "new"])
def test_nothing_differs_from_itself(name: str, folder: Path) -> None:
    found = diff(f"{name}.onnx", f"{name}.json", gpu="t4", dims=DIMS, limit=0.0)
    assert found.kernels == found.new_unsupported == found.gone_unsupported == ()
    assert found.growth == 0
    assert not found.failed
    assert "as fast as before" in difference_to_terminal(found, Canvas(width=80))


def test_a_count_is_a_change(folder: Path) -> None:
    """Two equal ReLU where there was one: twice the runs, twice the time."""
    doubled = linear()
    doubled.graph.node.append(onnx.helper.make_node("Relu", ["y"], ["z"], name="again"))
    doubled.graph.output[0].name = "z"
    onnx.save(doubled, folder / "doubled.onnx")
    (item,) = diff("old.onnx", "doubled.onnx", gpu="t4", dims=DIMS).kernels
    assert (item.status, item.old_count, item.new_count) == ("changed", 1, 2)
    assert item.new_us == pytest.approx(2 * item.old_us)


def test_a_kernel_that_moves_is_gone_and_new(folder: Path) -> None:
    """ReLU at another node than the Sigmoid that comes: one goes, one comes."""
    moved = deeper()
    moved.graph.node[2].name = "elsewhere"
    onnx.save(moved, folder / "moved.onnx")
    found = diff("old.onnx", "moved.onnx", gpu="t4", dims=DIMS)
    by_nodes = {(item.status, item.nodes): item for item in found.kernels}
    assert set(by_nodes) == {("gone", ("act",)), ("new", ("elsewhere",))}
    gone, came = by_nodes["gone", ("act",)], by_nodes["new", ("elsewhere",)]
    assert (gone.old_count, gone.new_count, came.old_count, came.new_count) == (1, 0, 0, 1)
    assert gone.delta_us == -gone.old_us < 0 < came.delta_us


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({"n": 4}, {"n": 4}, "n=4, was fp32", id="type"),
        pytest.param({"n": 2, "k": 1}, {"n": 4, "k": 1}, "n=4 k=1, was n=2 fp32", id="dim"),
        pytest.param({"n": 4}, {"n": 4, "epilogue": "bias"}, "n=4 epilogue=bias, was without epilogue fp32", id="more"),
        pytest.param({"n": 4, "b_is_weight": 1}, {"n": 4}, "n=4, was weight on the right fp32", id="no weight now"),
        pytest.param(
            {"n": 4},
            {"n": 4, "b_is_weight": 1, "transpose_b": 1},
            "n=4 weight on the right transpose_b, was without weight on the right without transpose_b fp32",
            id="a weight now",
        ),
        pytest.param({"n": 4, "epilogue": "bias"}, {"n": 4}, "n=4, was epilogue=bias fp32", id="less"),
    ],
)
def test_what_a_form_was(old: dict[str, object], new: dict[str, object], expected: str) -> None:
    item = KernelChange(
        status="changed",
        kernel_class="gemm",
        dtype="fp16",
        dims=new,
        nodes=("a",),
        old_count=1,
        new_count=1,
        old_us=2.0,
        new_us=1.0,
        old_dtype="fp32",
        old_dims=old,
    )
    assert kernel_dims(item) == expected


def edited(folder: Path, change: Mapping[str, object]) -> Path:
    """old.json with keys set by path ("totals.latency_ms")."""
    document = json.loads((folder / "old.json").read_text())
    for path, item in change.items():
        place = document
        *parents, last = path.split(".")
        for parent in parents:
            place = place[int(parent)] if parent.isdigit() else place[parent]
        if item is None:
            del place[last]
        else:
            place[last] = item
    (folder / "edited.json").write_text(json.dumps(document))
    return folder / "edited.json"


def lasting(folder: Path, latency_ms: float) -> Path:
    """old.json with all its times in proportion, so that its latency is ``latency_ms``."""
    document = json.loads((folder / "old.json").read_text())
    totals = document["totals"]
    factor = latency_ms / totals["latency_ms"]
    for times in (totals, *document["kernels"]):
        for key in times.keys() & {"latency_ms", "latency_low_ms", "latency_high_ms", "overhead_ms", "latency_us"}:
            times[key] *= factor
    (folder / "lasting.json").write_text(json.dumps(document))
    return folder / "lasting.json"


@pytest.mark.parametrize(
    ("latency_ms", "limit", "failed"),
    [(1.04, 0.05, False), (1.06, 0.05, True), (1.0, 0.0, False), (1.001, 0.0, True), (0.5, 0.05, False)],
    ids=["within", "over", "equal", "any growth", "faster"],
)
def test_limit(latency_ms: float, limit: float, failed: bool, folder: Path) -> None:
    old = lasting(folder, 1.0).rename(folder / "base.json")
    assert diff(old, lasting(folder, latency_ms), limit=limit).failed is failed


LOST = {
    "faster without a node": ("new.onnx", 5.0, True, "1 node counts as nothing, and did not before"),
    "over without a node": ("new.onnx", 0.0001, True, "over the 5 % allowed"),
    "as incomplete as before": ("both", 5.0, False, "within the 5 % allowed"),
    "nothing costed": ("nothing.onnx", 5.0, True, "nothing of nothing.onnx could be costed"),
    "nothing costed before": ("nothing", 5.0, True, "nothing of nothing.json could be costed"),
}


@pytest.mark.parametrize(("new", "old_ms", "failed", "says"), LOST.values(), ids=LOST.keys())
def test_what_is_not_costed_is_not_judged(new: str, old_ms: float, failed: bool, says: str, folder: Path) -> None:
    """A model that got faster by nodes that count as nothing is no faster model."""
    unknown = graph([node("Mystery", "x", "y", "odd", "own")], [value("x", ["batch", 4])], [value("y", ["batch", 3])])
    onnx.save(model(unknown, opsets={"": 17, "own": 1}), folder / "nothing.onnx")
    (folder / "nothing.json").write_text(to_json(analyze("nothing.onnx", gpu="t4", dims={"batch": 2})))
    old = "nothing.json" if new == "nothing" else lasting(folder, old_ms)
    if new == "both":
        old, new = "new.json", "new.onnx"
    found = diff(old, "new.onnx" if new == "nothing" else new, gpu="t4", dims=DIMS, limit=0.05)
    assert found.failed is failed
    text = " ".join(difference_to_terminal(found, Canvas(width=120)).split())
    assert says in text
    assert ("can't be judged" in text) is ("counts as" in says or "nothing of" in says)
    assert "faster" not in text or not failed


def test_other_settings_are_noted(folder: Path) -> None:
    found = diff("old.json", edited(folder, {"gpu.name": "a100-sxm-80gb", "settings.runtime": "compiled"}))
    assert found.notes == ("the GPU differs: t4, now a100-sxm-80gb", "the runtime differs: onnxruntime, now compiled")


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("settings.cuda_graph", "runs are replayed as a CUDA graph in edited.json only"),
        ("settings.include_io", "inputs are copied from the host and outputs back in edited.json only"),
    ],
)
def test_what_one_report_has_only_is_noted(key: str, says: str, folder: Path) -> None:
    assert [note.replace(str(folder) + "/", "") for note in diff("old.json", edited(folder, {key: True})).notes] == [
        says
    ]


OTHER_TRAINING: dict[str, tuple[dict[str, object], str]] = {
    "optimizer": ({"optimizer": "adamw"}, "the optimizer of training differs: sgd, now adamw"),
    "loss": ({"loss": "mse"}, "the loss of training differs: none, now mse"),
    "recompute": ({"recompute": "all"}, "what training computes again differs: none, now all"),
    "accumulation": (
        {"grad_accumulation": 4},
        "how many runs a step of training takes differs: 1, now 4",
    ),
    "dropout": (
        {"dropout": "residual=0.1"},
        "the dropout of training differs: as in the file, now attention=0.0, residual=0.1, embedding=0.0",
    ),
    "freeze": ({"freeze": ["b*"]}, "what training freezes differs: nothing, now b*"),
}


@pytest.mark.parametrize(("other", "says"), OTHER_TRAINING.values(), ids=OTHER_TRAINING)
def test_other_training_is_noted(other: dict[str, object], says: str, folder: Path) -> None:
    base: dict[str, object] = {"optimizer": "sgd", "loss": "none"}
    for name, options in (("base.json", base), ("other.json", base | other)):
        plan = make_training(**options)  # type: ignore[arg-type]  # a table's values
        (folder / name).write_text(to_json(analyze("old.onnx", gpu="t4", dims=DIMS, training=plan)))
    assert diff("base.json", "other.json").notes == (says,)


def test_inputs_with_other_names_are_noted(folder: Path) -> None:
    found = diff("old.json", edited(folder, {"model.inputs.0.name": "pixels"}))
    assert found.notes == ("inputs have other names: 'x' is 'pixels' now",)


REFUSED = {
    "newer schema": ({"schema_version": 2}, "has schema version 2, this version of neusight-onnx reads up to 1"),
    "no report": ({"kernels": None}, "no report of analyze"),
    "schema of text": ({"schema_version": "1"}, "no report of analyze"),
    "without a key": ({"totals.latency_ms": None}, "lacks 'latency_ms'"),
    "negative time": ({"totals.latency_ms": -1.0}, "no time"),
    "text for a time": ({"totals.latency_ms": "fast"}, "no time"),
    "a time beyond floats": ({"totals.latency_ms": 10**400}, "no time"),
    "an infinite size": ({"model.inputs.0.shape": [float("inf")]}, "no count"),
    "an infinite dim": ({"settings.dims": {"batch": float("inf")}}, "no count"),
    "bytes beyond 64 bits": ({"totals.memory.peak_bytes": 10**400}, "no count"),
    "not a number in a kernel": ({"kernels.0.dims": {"m": float("nan")}}, "no whole report"),
    "dims are a number": ({"kernels.0.dims": 5}, "5 are no dims"),
    "kernels are a number": ({"kernels": 3}, "no whole report"),
    "kernels are a table": ({"kernels": {}}, "{} is no list of kernels"),
    "kernels are gone": ({"kernels": []}, "its latency is "),
    "no time for kernels": (
        {"totals.latency_ms": 0},
        "its latency is 0, though it has",
    ),
    "a latency that its kernels contradict": (
        {"totals.latency_ms": 0.001, "totals.latency_low_ms": 0.001},
        "its latency is 0.001, though",
    ),
    "an interval beside the latency": ({"totals.latency_high_ms": 1e-6}, "ms lacks its latency"),
    "a time of an age": ({"totals.latency_ms": 1e300}, "no time"),
    "another shape": ({"model.inputs.0.shape": [2, 5]}, "'x' is float32 2x4 in old.json, 'x' is float32 2x5"),
    "another type": ({"model.inputs.0.dtype": "int64"}, "is int64 2x4"),
    "another number": ({"model.inputs": []}, "1 in old.json, 0 in"),
}


@pytest.mark.parametrize(("change", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_reports_that_do_not_compare(change: dict[str, object], says: str, folder: Path) -> None:
    with pytest.raises(ComparisonError, match=re.escape(says)):
        diff("old.json", edited(folder, change))


def test_a_latency_of_null_is_of_a_run_that_was_not_costed(folder: Path) -> None:
    document = json.loads((folder / "old.json").read_text())
    document["totals"]["latency_ms"] = None
    (folder / "edited.json").write_text(json.dumps(document))
    with pytest.raises(ComparisonError, match="latency is null, though it is costed"):
        diff("old.json", "edited.json")


def test_no_text_of_a_report_steers_the_terminal(folder: Path) -> None:
    found = diff("old.json", edited(folder, {"kernels.0.kernel_class": "gemm\x1b[2J\rnone"}))
    lines = difference_to_terminal(found, Canvas(width=80)).splitlines()
    assert all(line.isprintable() for line in lines)
    assert any("\\x1b[2J\\rnone" in line for line in lines)


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0 %", 0.0), ("12.5%", 0.125), (".5%", 0.005)])
def test_limits_as_written(text: str, share: float) -> None:
    assert parse_limit(text) == pytest.approx(share)


def test_json_is_documented_key_by_key(folder: Path) -> None:
    found = diff("old.onnx", "new.onnx", gpu="t4", dims=DIMS, limit=0.05)
    old, new = (replace(side, product_formats=("int8",)) for side in (found.old, found.new))
    found = replace(found, old=old, new=new)
    text = SCHEMA.read_text("utf-8").partition("`neusight-onnx diff OLD NEW --format json` prints")[2]
    documented = documented_keys(text.partition("\n`neusight-onnx")[0])
    maps = {path for path, kind in documented.items() if kind.startswith("map")}
    keys = keys_of(json.loads(difference_to_json(found)), "", maps)
    keys = {
        path.replace("gone_unsupported", "gone_unsupported[]") if path == "gone_unsupported" else path for path in keys
    }
    assert keys - {"gone_unsupported[]"} == {path for path in documented if not path.startswith("gone_unsupported")}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int, folder: Path) -> None:
    found = diff("old.onnx", "new.onnx", gpu="t4", dims=DIMS, limit=0.05)
    for canvas in (Canvas(width=width), Canvas(width=width, plain=True)):
        text = difference_to_terminal(found, canvas)
        assert max(map(len, text.splitlines())) <= width
        assert text.isascii() or not canvas.plain
        assert "Mystery" in text


GOOD = ["diff", "old.onnx", "new.onnx", "--gpu", "t4", "--dim", "batch=2"]


@pytest.mark.parametrize("form", ["rich", "json", "markdown"])
@pytest.mark.parametrize(("more", "code"), [([], 0), (["--fail-over", "1000%"], 0), (["--fail-over", "0%"], 1)])
def test_exit_code(more: list[str], code: int, form: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grown = linear()
    grown.graph.node.append(onnx.helper.make_node("Relu", ["y"], ["z"], name="again"))
    grown.graph.output[0].name = "z"
    onnx.save(grown, folder / "new.onnx")
    assert main([*GOOD, *more, "--format", form]) == code
    out, err = capsys.readouterr()
    assert "again" in out or "act" in out
    assert err == ""


MISUSE = {
    "no GPU": (["diff", "old.onnx", "new.onnx"], ["needs a GPU", "--gpu"]),
    "GPU for reports": (["diff", "old.json", "new.json", "--gpu", "t4"], ["compared as they are"]),
    "no such file": (["diff", "old.json", "absent.json"], ["absent.json does not exist"]),
    "standard input": (["diff", "-", "old.json"], ["standard input ('-') isn't read here"]),
    "a folder": (["diff", ".", "old.json"], [". is a folder"]),
    "no file of a disk": (["diff", "/dev/null", "old.json"], ["/dev/null is no regular file"]),
    "not JSON": (["diff", "old.json", "bad.json"], ["bad.json is not JSON"]),
    "a list": (["diff", "old.json", "list.json"], ["no report of analyze"]),
    "share": ([*GOOD, "--fail-over", "5"], ["--fail-over '5' is no share", "5%"]),
    "negative share": ([*GOOD, "--fail-over", "-5%"], ["is no share"]),
    "other inputs": (["diff", "old.onnx", "other.onnx", "--gpu", "t4"], ["different inputs", "other.onnx"]),
    "output is the old one": ([*GOOD, "-o", "old.onnx"], ["-o is one of the files to compare"]),
    "output is the new report": (["diff", "old.json", "new.json", "-o", "new.json"], ["-o is one of the files"]),
    "output is the weights": (["diff", "old.onnx", "external.onnx", "--gpu", "t4", "-o", "w.bin"], ["weights"]),
}


@pytest.mark.parametrize(("arguments", "says"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_is_one_line(
    arguments: list[str], says: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.json").write_text("{")
    (folder / "list.json").write_text("[1]")
    onnx.save(linear(external_tensor("w", [4, 3], "w.bin")), folder / "external.onnx")
    other = linear()
    other.graph.input.append(value("more", [2]))
    onnx.save(other, folder / "other.onnx")
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for text in says:
        assert text in err


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(OptionError, match="1 is no model and no report"):
        diff(1, 2)  # type: ignore[arg-type]  # wrong on purpose


def test_decoders_are_compared_in_tokens_too(folder: Path) -> None:
    """Two sequences of a new token each."""
    path = folder / "decoder.onnx"
    onnx.save(decoder(), path)
    found = diff(path, path, gpu="l4", batch=2, dims={"total_sequence_length": 2048})
    assert found.old.tokens_per_s == pytest.approx(2 / found.old.latency_ms * 1e3, rel=1e-5)
    rows = {what: (old, new) for what, old, new, _ in totals(found)}
    assert rows["tokens/s"] == rows["samples/s"]
    assert "tokens/s" not in {row[0] for row in totals(diff(folder / "old.onnx", folder / "new.onnx", gpu="l4"))}
