"""``check`` and ``explain`` on the command line, and every command that docs/gate-a-pull-request.md shows."""

from __future__ import annotations

import json
import os
import re
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import onnx
import pytest

from models import decoder, external_tensor, linear
from neusight_onnx.checks import explained
from neusight_onnx.cli import main
from neusight_onnx.report.rules import rules_to_markdown

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "gate-a-pull-request.md"
PAGE = ROOT / "docs" / "checks.md"
INTRODUCTION = """# Checks

What `neusight-onnx check` looks for. A code never changes its meaning and is never given again; the first digit is the
topic: 1 limits, 2 the file, 3 shapes, 4 number formats, 5 operators, 6 numerics, 9 the check itself. An error and a
warning fail a check, a note does not (`--fail-on` sets the line). `neusight-onnx explain CODE` prints what stands
below; [gate-a-pull-request.md](gate-a-pull-request.md) says how to use it.

"""


def test_the_page_of_checks_is_what_the_code_says() -> None:
    """NEUSIGHT_UPDATE_GOLDEN=1 pytest tests/test_cli_check.py writes it anew."""
    page = INTRODUCTION + rules_to_markdown(explained())
    if os.environ.get("NEUSIGHT_UPDATE_GOLDEN"):
        PAGE.write_text(page, "utf-8")
    assert PAGE.read_text("utf-8") == page


# --- the guide --------------------------------------------------------------------------------------------------------


def guide_commands() -> list[tuple[str, int]]:
    """(command, exit code) of every line in the guide that is one of ours."""
    # blocks alternate with prose; those of a language (toml, yaml) are no commands
    blocks = re.split(r"^```", GUIDE.read_text("utf-8"), flags=re.MULTILINE)[1::2]
    lines = [line for block in blocks if block.startswith("\n") for line in block.splitlines() if line]
    found = []
    for line in lines:
        assert line.startswith("neusight-onnx "), line
        command, _, comment = line.partition("  #")
        expected = re.search(r"exit code (\d)", comment)
        found.append((command.strip(), int(expected[1]) if expected else 0))
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the guide describes it: the examples, and its neusight.toml."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    found = re.search(r"^```toml\n(.*?)^```", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    (tmp_path / "neusight.toml").write_text(found[1], "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("command", "code"), guide_commands(), ids=[command[14:90] for command, _ in guide_commands()])
def test_commands_of_the_guide(command: str, code: int, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = shlex.split(command)[1:]
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert err == ""
    if "-o" in arguments:
        assert out == ""
        assert (project / arguments[arguments.index("-o") + 1]).stat().st_size > 500
    else:
        assert out


def test_the_python_of_the_guide_runs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    exec(compile(found[1], str(GUIDE), "exec"), {})
    assert capsys.readouterr().out == (
        "False [('NSX201', ('l4', 'a100')), ('NSX301', ('l4', 'a100')), ('NSX109', ('a100',))]\n"
    )


def test_the_guide_names_every_key_and_limit() -> None:
    from neusight_onnx.checks.config import TARGET_KEYS, TOP_KEYS

    text = GUIDE.read_text("utf-8")
    for key in {*TARGET_KEYS, *TOP_KEYS} - {"target"}:
        assert f"`{key}`" in text or f"\n{key} =" in text, key


# --- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(linear(), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


GOOD = ["check", "m.onnx", "--gpu", "t4", "--dim", "batch=2"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        pytest.param([], 0, id="sound"),
        pytest.param(["--max-latency", "1s", "--max-memory", "fits", "--max-unsupported", "0"], 0, id="limits kept"),
        pytest.param(["--max-latency", "1us"], 1, id="limit missed"),
        pytest.param(["--max-latency", "1us", "--allow", "NSX101=a test"], 0, id="allowed"),
        pytest.param(["--allow", "NSX101=a test"], 0, id="unused allowance"),
        pytest.param(["--allow", "NSX101=a test", "--fail-on", "note"], 1, id="unused allowance, strict"),
        pytest.param(["--precision", "fp16"], 0, id="half precision"),
        pytest.param(["--precision", "bf16"], 1, id="no such units"),
    ],
)
def test_exit_code(more: list[str], code: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GOOD, *more]) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("passed: 1 target" if code == 0 else "failed: 1 of 1 target")


@pytest.mark.parametrize("form", ["rich", "json", "junit", "sarif", "markdown", "github"])
def test_formats(form: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*GOOD, "--gpu", "a100", "--max-latency", "1us", "--format", form]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert "NSX101" in out
    if form in ("json", "sarif"):
        json.loads(out)
    if form == "junit":
        assert len(ElementTree.fromstring(out.encode())) == 2
    assert main([*command, "-o", "report.txt"]) == 1
    assert capsys.readouterr().out == ""
    written = (folder / "report.txt").read_text("utf-8")
    if form == "junit":
        written, out = (re.sub(r"timestamp=\S+", "", text) for text in (written, out))
    assert written == out


# (arguments, what the line must say)
MISUSE = {
    "wrong unit": ([*GOOD, "--max-latency", "20mss"], ["--max-latency '20mss'", "'mss' is no unit", "20ms"]),
    "limit twice": ([*GOOD, "--max-latency", "1ms", "--max-latency", "2ms"], ["--max-latency is given twice"]),
    "zero": ([*GOOD, "--min-throughput", "0/s"], ["above zero"]),
    "at": ([*GOOD, "--at", "mean"], ["--at 'mean'", "upper or median"]),
    "no reason": ([*GOOD, "--allow", "NSX101"], ["NSX101 has no reason"]),
    "a code of another topic": ([*GOOD, "--allow", "NSX000=x"], ["'NSX000' is no code of a check: `neusight"]),
    "no code": ([*GOOD, "--allow", "NSX11=x"], ["'NSX11' is no code", "nearest are"]),
    "a code begun": ([*GOOD, "--allow", "nsx2=x"], ["nearest are NSX201, NSX202, NSX203"]),
    "unknown GPU": (["check", "m.onnx", "--gpu", "a1000"], ["unknown GPU", "a100"]),
    "unknown dim": (["check", "m.onnx", "--gpu", "t4", "--dim", "bach=2"], ["bach", "batch"]),
    "no model": (["check", "absent.onnx", "--gpu", "t4"], ["absent.onnx does not exist"]),
    "model is empty": (["check", "", "--gpu", "t4"], ["path is empty"]),
    "no model at all": (["check", "text.onnx", "--gpu", "t4"], ["text.onnx", "text file"]),
    "nothing": (["check"], ["give a MODEL and a --gpu"]),
    "no GPU": (["check", "m.onnx"], ["give a --gpu"]),
    "neither model nor GPU": (["check", "absent.onnx"], ["absent.onnx does not exist"]),
    "GPU alone": (["check", "--gpu", "t4"], ["--gpu without a MODEL"]),
    "no configuration": (["check", "--config", "absent.toml"], ["absent.toml does not exist"]),
    "unknown key": (["check", "--config", "key.toml"], ["unknown key 'max-latancy'", "'max-latency'"]),
    "model of a target": (["check", "--config", "model.toml"], ["target 'gone on t4'", "gone.onnx does not exist"]),
    "GPU of all targets": (["check", "--config", "gpu.toml"], ["target 'm.onnx on t400'", "unknown GPU 't400'"]),
    "no precision": ([*GOOD, "--precision", "int9"], ["'int9'"]),
    "runtime": ([*GOOD, "--runtime", "openvino"], ["openvino", "tensorrt", "eager"]),
    "format": ([*GOOD, "--format", "xml"], ["--format", "xml", "junit"]),
    "output is the model": ([*GOOD, "-o", "m.onnx"], ["-o is a model itself"]),
    "output is the weights": (
        ["check", "external.onnx", "--gpu", "t4", "-o", "w.bin"],
        ["-o is a file of the model's weights"],
    ),
    "output is the configuration": (["check", "--config", "model.toml", "-o", "model.toml"], ["gone.onnx"]),
    "output is the configuration, all well": (
        ["check", "--config", "good.toml", "-o", "good.toml"],
        ["-o is the configuration itself"],
    ),
    "explain what is no code": (["explain", "NSX100"], ["'NSX100' is no code"]),
}


@pytest.mark.parametrize(("arguments", "says"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_is_one_line(
    arguments: list[str], says: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "text.onnx").write_text("no model\n" * 9)
    onnx.save(linear(external_tensor("w", [4, 3], "w.bin")), folder / "external.onnx")
    (folder / "key.toml").write_text('max-latancy = "1ms"')
    (folder / "model.toml").write_text('[[target]]\nname = "gone"\nmodel = "gone.onnx"\ngpu = ["t4", "l4"]')
    (folder / "gpu.toml").write_text('[[target]]\nmodel = "m.onnx"\ngpu = ["t400", "t500"]\ndims = { batch = 2 }')
    (folder / "good.toml").write_text('[[target]]\nmodel = "m.onnx"\ngpu = "t4"\ndims = { batch = 2 }')
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for text in says:
        assert text in err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("bad", ["gone.onnx", "cut.onnx"])
def test_a_report_is_written_beside_a_model_that_cannot_be_read(bad: str, folder: Path) -> None:
    (folder / "cut.onnx").write_bytes(linear().SerializeToString()[:-9])
    targets = [f'[[target]]\nmodel = "{model}"\ngpu = "t4"\ndims = {{ batch = 2 }}' for model in ("m.onnx", bad)]
    (folder / "both.toml").write_text("\n".join(targets))
    assert main(["check", "--config", "both.toml", "--format", "junit", "-o", "report.xml"]) == 1
    sound, unread = ElementTree.parse(folder / "report.xml").getroot()
    assert sound.get("failures") == "0"
    assert [failure.get("type") for failure in unread.iter("failure")] == ["NSX207"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ('gpu = "t400"\ndims = { batch = 2 }', "unknown GPU 't400'"),
        ('gpu = "t4"\ndims = { bach = 2 }', "bach"),
        ('gpu = "t4"\nprecision = "fp33"', "unknown precision 'fp33'"),
        ('gpu = "t4"\nruntime = "jax"', "jax"),
    ],
    ids=["GPU", "dim", "precision", "runtime"],
)
def test_a_report_is_written_beside_a_target_that_cannot_be_meant(
    wrong: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code says that the question must change, and standard error which target's."""
    targets = ['gpu = "l4"\ndims = { batch = 2 }', wrong]
    text = "\n".join(f'[[target]]\nname = "{at}"\nmodel = "m.onnx"\n{rest}' for at, rest in enumerate(targets))
    (folder / "both.toml").write_text(text)
    assert main(["check", "--config", "both.toml", "--format", "json", "-o", "report.json"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: both.toml: target '1': ")
    assert says in line
    written = json.loads((folder / "report.json").read_text())
    judged, mistaken = written["targets"]
    assert (judged["name"], mistaken["name"], mistaken["passed"], written["passed"]) == ("0", "1", False, False)
    assert says in mistaken["not_predicted"]
    assert set(mistaken) == set(judged)
    assert mistaken["latency_ms"] is None
    assert [finding["targets"] for finding in written["findings"] if finding["code"] == "NSX902"] == [["1"]]


@pytest.mark.parametrize("form", ["rich", "junit", "markdown", "github", "sarif"])
def test_the_file_of_a_mistaken_target_is_named_once(
    form: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = 'model = "m.onnx"\ndims = { batch = 2 }'
    targets = [f'[[target]]\nname = "{gpu}"\ngpu = "{gpu}"\n{rest}' for gpu in ("l4", "t400")]
    (folder / "both.toml").write_text("\n".join(targets))
    assert main(["check", "--config", "both.toml", "--format", form]) == 2
    text = capsys.readouterr().out
    assert "target 't400': unknown GPU" in " ".join(text.split()).replace("\\", "")
    assert not re.search(r"both.toml\W+both.toml", text)


@pytest.mark.parametrize("form", ["rich", "junit", "markdown"])
def test_throughput_is_in_the_units_of_limits(form: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(decoder(), folder / "decoder.onnx")
    sizes = "past_sequence_length=7,sequence_length=1"
    asked = ["decoder.onnx", "--gpu", "t4", "--batch", "2", "--dim", sizes, "--min-throughput", "1tokens/s"]
    assert main(["check", *asked, "--format", form]) in (0, 1)
    assert re.search(r"\d/s[^;]*, 1 new token each: [\d,]+ tokens/s", " ".join(capsys.readouterr().out.split()))


def test_explain_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines() if line.startswith("NSX")] == [
        rule.code for rule in explained()
    ]
    assert main(["explain", "nsx303"]) == 0
    assert "NSX303 dim declared free but baked in (warning)" in capsys.readouterr().out
    assert main(["explain", "NSX303,nsx109", "NSX303", "--format", "json"]) == 0
    assert [rule["code"] for rule in json.loads(capsys.readouterr().out)["rules"]] == ["NSX303", "NSX109"]
    assert main(["explain", "NSX303", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"][0]["code"] == "NSX303"


def test_a_configuration_in_the_folder_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text('[tool.neusight]\nmax-latency = "1us"\n')
    assert main(GOOD) == 1
    assert "by pyproject.toml" in capsys.readouterr().out


@pytest.mark.parametrize("by", [".git", "GITHUB_WORKSPACE"])
def test_annotations_have_paths_from_the_root(
    by: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    if by == ".git":
        (folder.parent / ".git").mkdir()
    else:
        monkeypatch.setenv(by, str(folder.parent))
    assert main([*GOOD, "--max-latency", "1ns", "--format", "github"]) == 1
    assert f"file={folder.name}/m.onnx," in capsys.readouterr().out


def test_annotations_from_outside_have_paths_from_the_root_of_the_configuration(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    (folder / ".git").mkdir()
    (folder / "ci").mkdir()
    config = folder / "ci" / "x.toml"
    config.write_text('max-latency = "1ns"\n[[target]]\nmodel = "../m.onnx"\ngpu = "t4"\n')
    monkeypatch.chdir(folder.anchor)
    assert main(["check", "--config", str(config), "--format", "github"]) == 1
    assert "file=m.onnx," in capsys.readouterr().out
