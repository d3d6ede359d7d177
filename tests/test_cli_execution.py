"""How a model is executed: the same options in every command that costs one, through the groups of the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import pytest
import typer

from models import graph, model, node, value
from neusight_onnx.annotation import annotation_of
from neusight_onnx.backward import make_training
from neusight_onnx.cli import main
from neusight_onnx.cli.app import command_line
from neusight_onnx.cli.groups import with_groups

ROOT = Path(__file__).parents[1]
BERT = str(ROOT / "examples" / "bert_base.onnx")

COSTING = ("analyze", "annotate", "check", "compare", "diff", "sweep")
SIZES = {"--batch", "--dim", "--shape", "--value", "--trip-count"}
EXECUTION = {"--precision", "--runtime", "--cuda-graph", "--include-io", "--mode", "--optimizer", "--loss"} | {
    "--recompute",
    "--grad-accumulation",
    "--freeze",
    "--dropout",
}


def options_of(name: str) -> set[str]:
    command: Any = typer.main.get_group(command_line()).commands[name]
    return {text for parameter in command.params for text in parameter.opts}


def test_a_command_that_takes_a_gpu_has_all_of_them() -> None:
    group: Any = typer.main.get_group(command_line())
    assert tuple(sorted(name for name in group.commands if "--gpu" in options_of(name))) == COSTING
    for name in COSTING:
        assert options_of(name) >= SIZES | EXECUTION, name
    assert options_of("inspect") >= SIZES


# --- the mechanism ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Inner:
    depth: Annotated[int, typer.Option("--depth")] = 3


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: Annotated[str, typer.Option("--name")]
    inner: Inner


def test_groups_are_options_where_they_stand_and_groups_again_in_the_call() -> None:
    seen: list[object] = []

    def command(
        first: Annotated[str, typer.Argument()],
        outer: Outer,
        last: Annotated[bool, typer.Option("--last")] = False,
    ) -> None:
        """What it does."""
        seen.extend((first, outer, last))

    app = typer.Typer()
    app.command()(with_groups(command))
    made: Any = typer.main.get_command(app)
    assert [parameter.name for parameter in made.params if not parameter.name.endswith("completion")] == [
        "first",
        "name",
        "depth",
        "last",
    ]
    assert made.help == "What it does."
    made.main(["a", "--name", "b", "--depth", "5"], standalone_mode=False)
    assert seen == ["a", Outer(name="b", inner=Inner(depth=5)), False]


def test_one_name_for_two_options_is_refused() -> None:
    def command(depth: Annotated[int, typer.Option("--depth")], inner: Inner) -> None: ...

    with pytest.raises(AssertionError, match="two options are called depth"):
        with_groups(command)


# --- what each command makes of them ----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small products: the host takes longer than the GPU."""
    nodes = [node("MatMul", "x w", "a", "mm"), node("Relu", "a", "y", "act")]
    weight = onnx.numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    proto = model(graph(nodes, [value("x", ("batch", 64))], [value("y", ("batch", 64))], [weight]))
    onnx.save(proto, tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "m.onnx"


def latency(capsys: pytest.CaptureFixture[str], *arguments: str) -> float:
    assert main(["analyze", "m.onnx", "--gpu", "t4", "--batch", "1", "--format", "json", *arguments]) == 0
    return float(json.loads(capsys.readouterr().out)["totals"]["latency_ms"])


RUNS = {
    "a CUDA graph": (["--cuda-graph"], "onnxruntime in a CUDA graph"),
    "copies": (["--include-io"], "with copies of inputs and outputs"),
    "training": (["--mode", "training"], "training"),
}


@pytest.mark.parametrize(("options", "said"), RUNS.values(), ids=RUNS)
def test_every_command_costs_that_run_and_says_so(
    options: list[str], said: str, small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    wanted = latency(capsys, *options)
    assert wanted != latency(capsys)
    assert main(["check", "m.onnx", "--gpu", "t4", "--batch", "1", "--format", "json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["targets"][0]["latency_ms"] == wanted
    assert main(["diff", "m.onnx", "m.onnx", "--gpu", "t4", "--format", "json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["new"]["latency_ms"] == found["old"]["latency_ms"] == wanted
    assert main(["sweep", "m.onnx", "--gpu", "t4", "--batch", "1,2", "--format", "json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["points"][0]["latency_ms"] == wanted
    assert main(["compare", "m.onnx", "--gpu", "t4", "--format", "json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["cases"][0]["latency_ms"] == wanted
    assert main(["annotate", "m.onnx", "--gpu", "t4", "-o", "out.onnx", *options]) == 0
    notes = {entry.key: entry.value for entry in onnx.load("out.onnx").metadata_props}
    assert float(notes["neusight.latency_ms"]) == pytest.approx(wanted, rel=1e-4)
    capsys.readouterr()
    for command in (
        ["check", "m.onnx", "--batch", "1"],
        ["diff", "m.onnx", "m.onnx"],
        ["sweep", "m.onnx", "--batch", "1,2"],
    ):
        assert main([*command, "--gpu", "t4", *options]) == 0
        assert said in " ".join(capsys.readouterr().out.replace("·", " ").split())


def test_a_graph_that_can_not_be_captured_is_not_said_to_be(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In eager mode the host waits for NonZero's size."""
    nodes = [node("NonZero", "x", "i"), node("Cast", "i", "f", to=onnx.TensorProto.FLOAT), node("Relu", "f", "y")]
    onnx.save(model(graph(nodes, [value("x", ("batch", 64))], [onnx.ValueInfoProto(name="y")])), "waits.onnx")
    options = ["--gpu", "t4", "--runtime", "eager", "--cuda-graph", "--format", "json"]
    for command, batch in (("check", "1"), ("compare", "1,2"), ("sweep", "1,2")):
        main([command, "waits.onnx", "--batch", batch, *options])
        found = json.loads(capsys.readouterr().out)
        said = found["targets"][0] if command == "check" else found
        assert said["cuda_graph"] is False
        assert any(line.startswith("no CUDA graph: the host waits") for line in said["assumptions"])


def test_a_target_of_a_configuration_is_run_so(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = latency(capsys, "--cuda-graph", "--include-io")
    Path("neusight.toml").write_text(
        '[[target]]\nmodel = "m.onnx"\ngpu = "t4"\nbatch = 1\ncuda-graph = true\ninclude-io = true\n'
        '[[target]]\nmodel = "m.onnx"\nname = "plain"\ngpu = "t4"\nbatch = 1\n'
    )
    assert main(["check", "--format", "json"]) == 0
    first, plain = json.loads(capsys.readouterr().out)["targets"]
    assert (first["cuda_graph"], first["include_io"], first["latency_ms"]) == (True, True, wanted)
    assert (plain["cuda_graph"], plain["include_io"], plain["latency_ms"]) == (False, False, latency(capsys))


MISUSED = {
    "a switch that is none": ('cuda-graph = "on"', "'cuda-graph' is 'on'; write true or false"),
    "a batch that is none": ("batch = 0", "'batch' is 0; give a whole number such as 8"),
}


@pytest.mark.parametrize(("line", "message"), MISUSED.values(), ids=MISUSED)
def test_a_configuration_s_slip_is_one_line(
    line: str, message: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("neusight.toml").write_text(f'[[target]]\nmodel = "m.onnx"\ngpu = "t4"\n{line}\n')
    assert main(["check"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--cuda-graph", "--include-io"])
def test_how_a_target_is_run_needs_a_model(option: str, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", option]) == 2
    assert f"{option} needs a MODEL and a --gpu" in capsys.readouterr().err


def test_nodes_of_a_step_of_training_have_their_kernels_backwards() -> None:
    forward = annotation_of(BERT, gpu="a100", runtime="eager", batch=2)
    step = annotation_of(BERT, gpu="a100", training=make_training(), batch=2)
    names = [each.names[0] for each in step.source.graph.nodes]
    times = {name: step.costs[name].latency_us for name in names if name in step.costs}
    alone = {name: forward.costs[name].latency_us for name in names if name in forward.costs}
    down = next(name for name in names if name.endswith("feed_forward.down.matmul"))
    assert times[down] > 2.5 * alone[down], "a product has two more of its size backwards"
    others = sum(row.latency_us for row in step.report.kernels if row.nodes[0] not in times)
    assert sum(times.values()) + others == pytest.approx(step.report.totals.kernel_ms * 1e3)
