"""Bad input through the command line: exit code 2, one line on standard error, nothing written, no traceback."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from neusight_onnx.cli import main

GPU_FILE = """
vendor = "NVIDIA"
compute_capability = 9.0
architecture = "Roadrunner"
process_nm = 5
sm_count = 100
fp32_lanes_per_sm = 128
boost_mhz = 2000
warp_size = 32
max_threads_per_sm = 1536
l2_mb = 50
memory_gb = 24
memory_type = "GDDR7"
memory_bandwidth_gb_s = 1000
tdp_w = 300
fp32_tflops = 51.2
"""


def linear_model(path: Path) -> Path:
    """x (batch, 64) times a weight (64, 32)."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="/fc/MatMul")],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32])],
        [helper.make_tensor("w", TensorProto.FLOAT, [64, 32], bytes(4 * 64 * 32), raw=True)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def external_model(path: Path, weights: str, *, there: bool) -> None:
    """The same with its weight in a file of its own."""
    model = onnx.load(linear_model(path))
    onnx.save(model, path, save_as_external_data=True, location=weights, size_threshold=0)
    if not there:
        (path.parent / weights).unlink()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one good model, one good GPU file and everything that can be wrong with a file."""
    model = linear_model(tmp_path / "good.onnx")
    data = model.read_bytes()
    (tmp_path / "truncated.onnx").write_bytes(data[: len(data) // 2])
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "text.onnx").write_text("this is no protobuf\n" * 100)
    (tmp_path / "zeros.onnx").write_bytes(bytes(4096))
    (tmp_path / "odd\nname.onnx").write_bytes(b"\x1b[31m")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "gpu.toml").write_text(GPU_FILE)
    (tmp_path / "unknown_key.toml").write_text(GPU_FILE + "colour = 3\n")
    (tmp_path / "negative.toml").write_text(GPU_FILE.replace("sm_count = 100", "sm_count = -100"))
    (tmp_path / "missing_key.toml").write_text(GPU_FILE.replace("sm_count = 100", ""))
    (tmp_path / "no_toml.toml").write_text("sm_count = = 3\n")
    (tmp_path / "read_only.json").write_text("old")
    (tmp_path / "symbolic.onnx").symlink_to("good.onnx")
    (tmp_path / "hard.onnx").hardlink_to(model)
    external_model(tmp_path / "external.onnx", "weights.bin", there=True)
    external_model(tmp_path / "absent_weights.onnx", "absent.bin", there=False)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "external.onnx").symlink_to("../external.onnx")
    return tmp_path


def analyze(*more: str, model: str = "good.onnx", gpu: str = "a100") -> Callable[[Path], list[str]]:
    return lambda folder: ["analyze", str(folder / model), "--gpu", gpu, *(text.format(folder=folder) for text in more)]


def gpu_file(name: str) -> Callable[[Path], list[str]]:
    return lambda folder: ["analyze", str(folder / "good.onnx"), "--gpu", str(folder / name)]


def inspect(*more: str, model: str = "good.onnx") -> Callable[[Path], list[str]]:
    return lambda folder: ["inspect", str(folder / model), *more]


def plain(*arguments: str) -> Callable[[Path], list[str]]:
    return lambda folder: list(arguments)


# (arguments, what the line must say: what is wrong, and where or what would do)
CASES = {
    "not a model": (analyze(model="text.onnx"), ["text.onnx"]),
    "zero bytes only": (analyze(model="zeros.onnx"), ["zeros.onnx"]),
    "truncated": (analyze(model="truncated.onnx"), ["truncated.onnx"]),
    "empty file": (analyze(model="empty.onnx"), ["empty.onnx", "empty"]),
    "a folder": (analyze(model="folder.onnx"), ["folder.onnx", "is a folder"]),
    "no such file": (analyze(model="absent.onnx"), ["absent.onnx"]),
    "line break in the name": (analyze(model="odd\nname.onnx"), ["odd\\nname.onnx"]),
    "escape sequence in the name": (analyze(model="\x1b[31mabsent.onnx"), ["x1b[31mabsent.onnx"]),
    "a name too long": (inspect(model="a" * 5000), ["aaa"]),
    "inspect: not a model": (inspect(model="text.onnx"), ["text.onnx"]),
    "inspect: truncated": (inspect(model="truncated.onnx"), ["truncated.onnx"]),
    "unknown GPU": (analyze(gpu="a1000"), ["unknown GPU", "a1000", "a100"]),
    "empty GPU": (analyze(gpu=""), ["GPU"]),
    "gpus: unknown": (plain("gpus", "h10"), ["unknown GPU", "h10", "h100"]),
    "GPU file absent": (gpu_file("absent.toml"), ["absent.toml"]),
    "GPU file no TOML": (gpu_file("no_toml.toml"), ["no_toml.toml", "line 1"]),
    "GPU file unknown key": (gpu_file("unknown_key.toml"), ["unknown_key.toml", "colour"]),
    "GPU file negative": (gpu_file("negative.toml"), ["negative.toml", "sm_count", "-100"]),
    "GPU file missing key": (gpu_file("missing_key.toml"), ["missing_key.toml", "sm_count"]),
    "unknown dim": (analyze("--dim", "bath=8"), ["bath", "batch"]),
    "dim without a size": (analyze("--dim", "batch"), ["--dim", "batch", "NAME=SIZE"]),
    "zero dim": (analyze("--dim", "batch=0"), ["batch=0", "positive"]),
    "negative dim": (analyze("--dim", "batch=-8"), ["batch=-8", "positive"]),
    "dim no number": (analyze("--dim", "batch=eight"), ["batch=eight", "number"]),
    "huge dim": (analyze("--dim", "batch=99999999999999999999999"), ["batch=9999"]),
    "dim twice in one": (analyze("--dim", "batch=8,batch=4"), ["batch", "twice"]),
    "dim twice": (analyze("--dim", "batch=8", "--dim", "batch=4"), ["batch", "twice"]),
    "dim and shape contradict": (analyze("--dim", "batch=8", "--shape", "x=4x64"), ["batch", "8", "4"]),
    "shape twice": (analyze("--shape", "x=8x64", "--shape", "x=4x64"), ["x", "twice"]),
    "shape against the model": (analyze("--shape", "x=8x63"), ["63", "64"]),
    "shape of another rank": (analyze("--shape", "x=8"), ["x=8", "2"]),
    "shape of an unknown input": (analyze("--shape", "z=8x64"), ["z", "inputs: x"]),
    "zero in a shape": (inspect("--shape", "x=0x64"), ["positive"]),
    "shapes in one, one unknown": (analyze("--shape", "x=8x64,z=2x1"), ["z", "inputs: x"]),
    "shapes in one, one twice": (analyze("--shape", "x=8x64,x=4x64"), ["x", "twice"]),
    "values in one, one unknown": (analyze("--value", "n=3,m=[1,2]"), ["n", "inputs: x"]),
    "value of an unknown input": (analyze("--value", "n=3"), ["n", "inputs: x"]),
    "value no number": (analyze("--value", "x=abc"), ["abc"]),
    "trip count of no loop": (analyze("--trip-count", "/fc/MatMul=3"), ["Loop"]),
    "precision without units": (analyze("--precision", "fp4"), ["fp4 on", "no FP4 units"]),
    "a graph where nothing shows it": (
        analyze("--format", "model-explorer", "--cuda-graph"),
        ["--cuda-graph", "model-explorer"],
    ),
    "unknown runtime": (analyze("--runtime", "openvino"), ["openvino", "tensorrt", "eager"]),
    "output is a folder": (analyze("-o", "{folder}"), ["is a folder", "-o"]),
    "output folder absent": (analyze("-o", "{folder}/absent/report.json"), ["absent", "does not exist"]),
    "output under a file": (analyze("-o", "{folder}/good.onnx/report.json"), ["good.onnx is not a folder"]),
    "output name too long": (analyze("-o", "{folder}/" + "a" * 300), ["can't write", "-o"]),
    "output is the model": (
        analyze("-o", "{folder}/good.onnx"),
        ["-o is the model itself", "good.onnx", "another file"],
    ),
    "inspect: output is the model": (inspect("-o", "good.onnx"), ["-o is the model itself"]),
    "output is the model in other words": (analyze("-o", "folder.onnx/../good.onnx"), ["-o is the model itself"]),
    "output links to the model": (analyze("-o", "{folder}/symbolic.onnx"), ["-o is the model itself"]),
    "output is another link to the model": (analyze("-o", "{folder}/hard.onnx"), ["-o is the model itself"]),
    "model links to the output": (
        analyze("-o", "{folder}/good.onnx", model="symbolic.onnx"),
        ["-o is the model itself"],
    ),
    "output is the GPU file": (analyze("-o", "gpu.toml", gpu="./gpu.toml"), ["-o is the GPU file itself", "gpu.toml"]),
    "output is the weights": (
        analyze("-o", "{folder}/weights.bin", model="external.onnx"),
        ["-o is a file of the model's weights", "weights.bin"],
    ),
    "inspect: output is the weights": (
        inspect("-o", "weights.bin", model="external.onnx"),
        ["-o is a file of the model's weights"],
    ),
    "output is the weights beside the linked model": (
        analyze("-o", "weights.bin", model="linked/external.onnx"),
        ["-o is a file of the model's weights"],
    ),
    "output would be the weights": (
        analyze("-o", "absent.bin", model="absent_weights.onnx"),
        ["-o is a file of the model's weights"],
    ),
    "output is empty": (analyze("-o", ""), ["-o is empty"]),
    "inspect: output is empty": (inspect("-o", ""), ["-o is empty"]),
    "model is empty": (plain("analyze", "", "--gpu", "a100"), ["the model's path is empty"]),
    "inspect: model is empty": (plain("inspect", ""), ["the model's path is empty"]),
    "predictors: data is empty": (plain("predictors", "evaluate", ""), ["is empty", "folder"]),
    "bad format": (analyze("--format", "yaml"), ["--format", "yaml", "markdown"]),
    "bad precision": (analyze("--precision", "fp12"), ["--precision", "fp12", "bf16"]),
    "bad runtime": (analyze("--runtime", "jax"), ["--runtime", "jax", "eager"]),
    "precision twice": (analyze("--precision", "fp16", "--precision", "fp32"), ["--precision", "2 times", "compare"]),
    "runtime twice": (analyze("--runtime", "eager", "--runtime=compiled"), ["--runtime", "2 times", "compare"]),
    "format twice": (analyze("--format", "json", "--format", "csv"), ["--format", "2 times (json, csv)"]),
    "output twice": (analyze("-o", "a.json", "--output", "b.json"), ["--output", "2 times (a.json, b.json)"]),
    "inspect: format twice": (inspect("--format", "json", "--format", "rich"), ["--format", "2 times"]),
    "check: runtime twice": (
        plain("check", "good.onnx", "--gpu", "t4", "--runtime", "eager", "--runtime", "compiled"),
        ["--runtime", "2 times"],
    ),
    "predictors: format twice": (plain("predictors", "list", "--format", "json", "--format", "rich"), ["2 times"]),
    "bad top": (analyze("--top", "many"), ["--top", "many"]),
    "negative top": (analyze("--top", "-1"), ["--top", "-1"]),
    "no model": (plain("analyze", "--gpu", "a100"), ["MODEL", "--help"]),
    "no GPU": (lambda folder: ["analyze", str(folder / "good.onnx")], ["--gpu", "--help"]),
    "option without a value": (plain("analyze", "x.onnx", "--gpu"), ["--gpu", "--help"]),
    "unknown option": (analyze("--fast"), ["--fast", "--help"]),
    "unknown option with a line break": (analyze("--fa\nst"), ["--fa", "--help"]),
    "unknown command": (plain("analyse"), ["analyse", "--help"]),
    "two models": (plain("analyze", "a.onnx", "b.onnx", "--gpu", "a100"), ["b.onnx", "--help"]),
    "predictors: unknown command": (plain("predictors", "train"), ["train", "--help"]),
    "predictors: no data": (plain("predictors", "evaluate"), ["DATA", "--help"]),
    "predictors: data absent": (
        lambda folder: ["predictors", "evaluate", str(folder / "absent")],
        ["absent does not exist"],
    ),
    "predictors: data is a file": (
        lambda folder: ["predictors", "evaluate", str(folder / "good.onnx")],
        ["good.onnx is a file"],
    ),
    "predictors: no data in it": (
        lambda folder: ["predictors", "evaluate", str(folder / "folder.onnx")],
        ["folder.onnx has none of"],
    ),
}


def content(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(("arguments", "said"), CASES.values(), ids=CASES.keys())
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: Callable[[Path], list[str]],
    said: list[str],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    before = content(folder)
    assert main(arguments(folder)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert "Traceback" not in err
    for text in said:
        assert text in err
    assert content(folder) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads and writes whatever the mode says")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(analyze(model="secret.onnx"), ["secret.onnx can't be read: permission denied"], id="model"),
        pytest.param(gpu_file("secret.toml"), ["secret.toml", "permission"], id="GPU file"),
        pytest.param(analyze("-o", "{folder}/closed/x.json"), ["closed", "no permission"], id="output folder"),
        pytest.param(analyze("-o", "{folder}/read_only.json"), ["read_only.json", "read-only"], id="output file"),
    ],
)
def test_no_permission(
    arguments: Callable[[Path], list[str]], said: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("secret.onnx", "secret.toml"):
        (folder / name).write_bytes(b"x")
        (folder / name).chmod(0)
    (folder / "read_only.json").chmod(stat.S_IRUSR)
    (folder / "closed").mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    assert main(arguments(folder)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for text in said:
        assert text in err.lower()
    assert (folder / "read_only.json").read_text() == "old"


LONG = "x" * 300 + ".onnx"
"""A name that no file system takes: to look whether it is there is refused, and not answered."""

UNSEEN = {
    "check": (["check", LONG, "--gpu", "t4"], "name too long"),
    "check, configured": (["check", LONG], "has no target with the model"),
    "check in a closed folder": (["check", "closed/m.onnx", "--gpu", "t4"], "permission denied"),
    "analyze": (["analyze", LONG, "--gpu", "t4"], "name too long"),
    "diff": (["diff", LONG, "good.onnx"], "name too long"),
    "diff in a closed folder": (["diff", "closed/m.onnx", "good.onnx"], "permission denied"),
    "-o": (["analyze", "good.onnx", "--gpu", "t4", "-o", "to_closed.json"], "permission denied"),
    "predictors evaluate": (["predictors", "evaluate", "closed/data"], "closed/data"),
}


@pytest.fixture
def closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, as the working directory, with one in it that can't be looked into, by root neither."""
    monkeypatch.chdir(folder)
    (folder / "closed").mkdir()
    (folder / "to_closed.json").symlink_to("closed/x.json")
    looked_up = os.stat

    def refused(path: str | Path, **options: object) -> os.stat_result:
        if isinstance(path, str | os.PathLike) and "closed" in os.path.realpath(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return looked_up(path, **options)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(os, "stat", refused)
    return folder


@pytest.mark.parametrize(("arguments", "said"), UNSEEN.values(), ids=UNSEEN.keys())
def test_what_cannot_be_looked_at(
    arguments: list[str], said: str, closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments == ["check", LONG]:
        (closed / "neusight.toml").write_text('[[target]]\nmodel = "good.onnx"\ngpu = "t4"\n')
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line.lower()


@pytest.mark.parametrize("model", [LONG, "closed/m.onnx"], ids=["long", "closed"])
def test_other_targets_are_judged_beside_one_that_cannot_be_looked_at(
    model: str, closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = "".join(
        f'[[target]]\nmodel = "{each}"\ngpu = "t4"\ndims = {{ batch = 1 }}\n' for each in (model, "good.onnx")
    )
    (closed / "neusight.toml").write_text(targets)
    assert main(["check", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {finding["code"] for finding in found["findings"]} == {"NSX207"}
    assert [target["passed"] for target in found["targets"]] == [False, True]


def test_long_lists_are_no_files(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpus, prices = ",".join(["t4", "l4"] * 100), ",".join(["t4=1/h", "l4=2/h"] * 50)
    assert main(["compare", "good.onnx", "--gpu", gpus, "--price", prices, "--dim", "batch=1", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cases"]) == 2


GONE = {
    "SARIF": (["check", "{model}", "--gpu", "t4", "--dim", "batch=1", "--format", "sarif"], ""),
    "GitHub": (["check", "{model}", "--gpu", "t4", "--dim", "batch=1", "--format", "github"], ""),
    "a file beside": (["analyze", "{model}", "--gpu", "t4", "-o", "x.json"], "the working directory is gone"),
    "a model beside": (["annotate", "{model}", "--gpu", "t4", "-o", "x.onnx"], "the working directory is gone"),
    "a model that isn't there": (["check", "x.onnx", "--gpu", "t4"], "x.onnx does not exist"),
}


@pytest.mark.parametrize(("arguments", "said"), GONE.values(), ids=GONE.keys())
def test_without_a_working_directory(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code = main([text.format(model=folder / "good.onnx") for text in arguments])
    err = capsys.readouterr().err
    assert code == (2 if said else 0)
    assert said in err
    assert err.count("\n") == (1 if said else 0)


LISTS = [
    ("sweep", ["--precision", "fp32,fp16"], "--precision 'fp32,fp16': 'sweep' takes one"),
    ("sweep", ["--precision=fp32,fp16"], "--precision 'fp32,fp16': 'sweep' takes one"),
    ("analyze", ["--runtime", "eager,tensorrt"], "--runtime 'eager,tensorrt': 'analyze' takes one"),
]


@pytest.mark.parametrize(("command", "options", "said"), LISTS, ids=[" ".join((row[0], *row[1])) for row in LISTS])
def test_a_list_where_one_is_taken_names_the_command_for_it(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, options: list[str], said: str
) -> None:
    assert main([command, str(folder / "good.onnx"), "--gpu", "t4", "--dim", "batch=1", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {said}; 'neusight-onnx compare' takes several")


@pytest.mark.parametrize(
    "command", [["check"], ["check", "--format", "github"], ["check", "--format", "markdown"], ["inspect"]]
)
def test_names_without_end_are_shortened(command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load(folder / "good.onnx")
    model.graph.node[0].name = "m" * 20_000
    model.graph.node[0].domain = "own"
    model.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(model, folder / "long.onnx")
    gpu = ["--gpu", "t4"] if command[0] == "check" else []
    main([*command[:1], str(folder / "long.onnx"), *gpu, "--dim", "batch=1", *command[1:]])
    out = capsys.readouterr().out
    assert "m" * 40 in out
    assert out.count("m") < 2_000


def test_training_asked_for_by_its_name_is_told_the_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "model.onnx", "--gpu", "h100", "--training"]) == 2
    assert "'--mode training'" in capsys.readouterr().err
    assert main(["inspect", "model.onnx", "--training"]) == 2
    assert "--mode" not in capsys.readouterr().err
