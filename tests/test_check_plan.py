"""Limits as texts, the configuration, and how options and configuration make targets."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from models import linear
from neusight_onnx.checks import check
from neusight_onnx.checks.config import TARGET_KEYS, TRAINING_KEYS, find_config, in_words_of_a_file, read_config
from neusight_onnx.checks.limits import LIMIT_KEYS, Limits, parse_limits
from neusight_onnx.checks.plan import Plan, make_plan
from neusight_onnx.errors import CheckError, ModelError, NotSupportedError
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.report.verdict import Severity

# (key, text, field, value)
WRITTEN = [
    ("max-latency", "20ms", "max_latency_ms", 20.0),
    ("max-latency", "20 ms", "max_latency_ms", 20.0),
    ("max-latency", "800us", "max_latency_ms", 0.8),
    ("max-latency", "800µs", "max_latency_ms", 0.8),
    ("max-latency", "1.5s", "max_latency_ms", 1500.0),
    ("max-latency", "1.5S", "max_latency_ms", 1500.0),
    ("max-latency", "2e-3s", "max_latency_ms", 2.0),
    ("max-latency", ".5ms", "max_latency_ms", 0.5),
    ("min-throughput", "500/s", "min_throughput_per_s", 500.0),
    ("min-throughput", "600/min", "min_throughput_per_s", 10.0),
    ("min-throughput", "100 tokens/s", "min_tokens_per_s", 100.0),
    ("min-throughput", "600tok/min", "min_tokens_per_s", 10.0),
    ("max-memory", "14GiB", "max_memory_bytes", 14 * 2**30),
    ("max-memory", "14 gib", "max_memory_bytes", 14 * 2**30),
    ("max-memory", "1.5GB", "max_memory_bytes", 1_500_000_000),
    ("max-memory", "fits", "memory_fits", True),
    ("max-unsupported", "0", "max_unsupported", 0),
    ("max-unsupported", 3, "max_unsupported", 3),
    ("max-parameters", "7B", "max_parameters", 7_000_000_000),
    ("max-parameters", "25.6M", "max_parameters", 25_600_000),
    ("max-parameters", 25_600_000, "max_parameters", 25_600_000),
    ("max-parameters", "25_600_000", "max_parameters", 25_600_000),
    ("at", "median", "at", "median"),
]


@pytest.mark.parametrize(("key", "text", "name", "value"), WRITTEN, ids=[f"{row[0]} {row[1]}" for row in WRITTEN])
def test_limits(key: str, text: str | int, name: str, value: object) -> None:
    limits = parse_limits({key: text}, "--")
    assert getattr(limits, name) == value
    assert limits.texts == ({} if key == "at" else {key: str(text)})


# (key, text, what the line must say)
WRONG = [
    ("max-latency", "20mss", "'mss' is no unit here; write 20ms"),
    ("max-latency", "20", "a unit is missing; write 20ms"),
    ("max-latency", "ms", "does not begin with a number"),
    ("max-latency", "", "does not begin with a number"),
    ("max-latency", "0ms", "not a finite number above zero"),
    ("max-latency", "-5ms", "not a finite number above zero"),
    ("max-latency", "1e999ms", "not a finite number above zero"),
    ("max-latency", "1e308s", "not a finite number above zero"),
    ("max-latency", "infms", "does not begin with a number"),
    ("max-latency", "20GiB", "'GiB' is no unit here"),
    ("max-latency", "9" * 500 + "ms", "does not begin with a number"),
    ("min-throughput", "500", "a unit is missing; write 500/s"),
    ("min-throughput", "500ms", "'ms' is no unit here; write 500/s"),
    ("min-throughput", "0/s", "not a finite number above zero"),
    ("max-memory", "14GIBB", "'GIBB' is no unit here; write 14GiB"),
    ("max-memory", "fit", "does not begin with a number; write 14GiB, 14000MB or fits"),
    ("max-unsupported", "-1", "not a whole number from zero"),
    ("max-unsupported", "1.5", "not a whole number from zero"),
    ("max-unsupported", "none", "does not begin with a number"),
    ("max-parameters", "7X", "'X' is no unit here"),
    ("at", "mean", "choose upper or median"),
    ("max-power", "300W", "no such limit; known are max-latency"),
]


@pytest.mark.parametrize(("key", "text", "says"), WRONG, ids=[f"{row[0]} {row[1][:12]}" for row in WRONG])
def test_limits_that_cannot_be_meant(key: str, text: str, says: str) -> None:
    with pytest.raises(CheckError) as caught:
        parse_limits({key: text}, "--")
    assert str(caught.value).startswith(f"--{key}")
    assert says in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_limits_over_others() -> None:
    base = parse_limits({"max-latency": "20ms", "max-memory": "fits", "at": "median"}, "")
    over = parse_limits({"max-memory": "1GiB", "max-unsupported": 0}, "").over(base)
    assert over == Limits(
        max_latency_ms=20.0,
        max_memory_bytes=2**30,
        max_unsupported=0,
        at="median",
        texts={"max-latency": "20ms", "max-memory": "1GiB", "max-unsupported": "0"},
    )
    assert parse_limits({"max-memory": "fits"}, "").over(over).max_memory_bytes is None


# --- the configuration ------------------------------------------------------------------------------------------------

WHOLE = """
fail-on = "error"
max-memory = "fits"
at = "median"

[allow]
NSX201 = "fetched  when deployed"

[[target]]
name = "small"
model = "models/m.onnx"
gpu = "t4"
precision = "fp32"
runtime = "compiled"
dims = { batch = 8 }
max-latency = "20ms"
at = "upper"
allow = { NSX301 = "any" }

[[target]]
model = "models/m.onnx"
gpu = ["a100", "own.toml"]
max-memory = "1GiB"
shapes = { x = [2, 4] }
"""


def written(folder: Path, text: str, name: str = "neusight.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_whole_configuration(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, WHOLE))
    small, first, second = config.targets
    assert config.fail_on is Severity.ERROR
    assert (small.name, first.name, second.name) == ("small", "m.onnx on a100", "m.onnx on own.toml")
    assert small.model == first.model == tmp_path / "models" / "m.onnx"
    assert (small.gpu, first.gpu, second.gpu) == ("t4", "a100", tmp_path / "own.toml")
    assert (small.precision, small.runtime, first.runtime) == ("fp32", "compiled", "onnxruntime")
    assert small.bindings.dims == {"batch": 8}
    assert first.bindings.shapes == {"x": (2, 4)}
    assert (small.limits.max_latency_ms, small.limits.memory_fits, small.limits.judged_at) == (20.0, True, "upper")
    assert (first.limits.max_latency_ms, first.limits.max_memory_bytes, first.limits.judged_at) == (
        None,
        2**30,
        "median",
    )
    assert small.allow == (("NSX201", "fetched when deployed"), ("NSX301", "any"))
    assert second.allow == (("NSX201", "fetched when deployed"),)


def test_the_same_in_pyproject(tmp_path: Path) -> None:
    inner = WHOLE.replace("[allow]", "[tool.neusight.allow]").replace("[[target]]", "[[tool.neusight.target]]")
    path = written(tmp_path, f"[project]\nname = 'x'\n[tool.neusight]\n{inner}", "pyproject.toml")
    assert find_config(tmp_path) == path
    assert read_config(path).targets == read_config(written(tmp_path, WHOLE)).targets


TARGET = '[[target]]\nmodel = "m.onnx"\ngpu = "t4"\n'

# (text, what the line must say)
BAD = {
    "no TOML": ("max-latency = = 3", ["not TOML", "line 1"]),
    "a key twice": ('max-latency = "1ms"\nmax-latency = "2ms"', ["not TOML", "Cannot overwrite a value"]),
    "unknown key": ('max-latancy = "1ms"', ["unknown key 'max-latancy'", "'max-latency' is the nearest"]),
    "underscores": ('max_latency = "1ms"', ["unknown key 'max_latency'", "'max-latency' is the nearest"]),
    "targets": ("[[targets]]", ["unknown key 'targets'", "'target' is the nearest"]),
    "key of a target in the file": ("batch = 8\n" + TARGET, ["'batch' is a target's", "below a [[target]]"]),
    "key of the file in a target": (TARGET + 'fail-on = "note"', ["target 1", "'fail-on' is for all targets"]),
    "unknown key of a target": (TARGET + "gpus = 1", ["target 1", "unknown key 'gpus'", "'gpu' is the nearest"]),
    "nothing near": (TARGET + "zzzz = 1", ["unknown key 'zzzz'", "known are name, model"]),
    "far from any": (TARGET + "price = 1", ["unknown key 'price'", "known are name, model"]),
    "a target that is no table": ("target = 3", ["'target' is no list of tables", "[[target]]"]),
    "a key of nothing": ("price = 3\n", ["unknown key 'price'", "known are"]),
    "no model": ('[[target]]\ngpu = "t4"', ["target 1", "'model' is missing"]),
    "a dim that is true": (TARGET + "dims = { b = true }", ["target 1", "dims: 'b' is true; give a whole number"]),
    "trips that are none": (TARGET + "trip-counts = { l = 2.5 }", ["trip-counts: 'l' is 2.5; give a whole number"]),
    "a shape as text": (TARGET + 'shapes = { x = "1x3" }', ["target 1", "shapes: 'x' is '1x3'; give a list of whole"]),
    "a shape of texts": (TARGET + 'shapes = { x = [1, "n"] }', ["target 1", "give a list of whole numbers"]),
    "no GPU": ('[[target]]\nmodel = "m.onnx"', ["target 1", "'gpu' is missing"]),
    "a GPU that is none": ('[[target]]\nname = "a"\nmodel = "m.onnx"\ngpu = [3]', ["target 1 ('a')", "'gpu' is [3]"]),
    "a list in one text": (
        '[[target]]\nmodel = "m.onnx"\ngpu = "l4, t4"',
        ["'gpu' is 'l4, t4', which is one name", 'write a list, ["l4", "t4"]'],
    ),
    "no list of GPUs": ('[[target]]\nmodel = "m.onnx"\ngpu = []', ["'gpu' is []"]),
    "a name of blanks": (TARGET + 'name = " "', ["target 1: 'name' is ' '", "leave it out"]),
    "an empty name": (TARGET + 'name = ""', ["target 1: 'name' is ''", "leave it out"]),
    "a name twice": (
        f'{TARGET}name = "a"\n{TARGET}name = "a"\nprecision = "fp16"',
        ["target 2 is named 'a' as target 1 is", "name them apart"],
    ),
    "a target twice": (
        f'{TARGET}name = "a"\n{TARGET}dims = {{ b = 2 }}\n{TARGET}',
        ["target 3 checks what target 1 does", "remove one"],
    ),
    "precision": (TARGET + "precision = 16", ["'precision' is 16", "one line of text"]),
    "runtime": (TARGET + "runtime = true", ["'runtime' is true", "one line of text"]),
    "a wrong unit": (TARGET + 'max-latency = "20mss"', ["target 1: max-latency", "'mss'"]),
    "a limit that is no text": ("max-latency = true", ["'max-latency' is no limit"]),
    "a dim that is no number": (
        TARGET + 'dims = { batch = "8" }',
        ["target 1", "dims: 'batch' is '8'", "whole number"],
    ),
    "dims that are no table": (TARGET + "dims = 3", ["'dims' is no table"]),
    "allow without a reason": ('[allow]\nNSX201 = ""', ["allow NSX201 has no reason"]),
    "allow what is no code": ('[allow]\nNSX2 = "x"', ["'NSX2' is no code"]),
    "allow twice": ('[allow]\nNSX201 = "x"\nnsx201 = "y"', ["NSX201 twice"]),
    "allow that is no table": ("allow = 3", ["'allow' is no table"]),
    "fail-on": ('fail-on = "all"', ["'fail-on' is 'all'", "error, warning, note"]),
}


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD.keys())
def test_bad_configurations(text: str, says: list[str], tmp_path: Path) -> None:
    with pytest.raises(CheckError) as caught:
        read_config(written(tmp_path, text))
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "neusight.toml"))
    assert message.isprintable()
    for part in says:
        assert part in message


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge.toml").write_bytes(b"#" * (2 << 20))
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'neusight'\n")
    for name, says in {
        "absent.toml": "does not exist",
        "binary.toml": "not a text in UTF-8",
        "huge.toml": "larger than 1 MB",
        "": "is a folder",
        "pyproject.toml": r"no \[tool.neusight\]",
        "a\0b.toml": "can't be read",
    }.items():
        with pytest.raises(CheckError, match=says):
            read_config(tmp_path / name)


def test_where_a_configuration_is_found(tmp_path: Path) -> None:
    assert find_config(tmp_path) is None
    project = written(tmp_path, "[tool.other]\n", "pyproject.toml")
    assert find_config(tmp_path) is None
    written(tmp_path, "this is = = no TOML, and none of our business", "pyproject.toml")
    assert find_config(tmp_path) is None
    for text, says in {
        "[tool.neusight]\nthis is = = no TOML": "is not TOML",
        "tool.neusight = 3": "tool.neusight is no table",
        '[[tool.neusight]]\nmax-latency = "1ms"': "tool.neusight is no table",
    }.items():
        written(tmp_path, text, "pyproject.toml")
        with pytest.raises(CheckError, match=says):
            find_config(tmp_path)
    written(tmp_path, "[tool.neusight]\n", "pyproject.toml")
    assert find_config(tmp_path) == project
    written(tmp_path, "")
    with pytest.raises(CheckError, match="keep one of them"):
        find_config(tmp_path)
    project.unlink()
    assert find_config(tmp_path) == tmp_path / "neusight.toml"


# --- the plan ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    onnx.save(linear(), tmp_path / "models" / "m.onnx")
    return tmp_path


def plan(folder: Path, model: str | None = None, *gpus: str, allow: tuple[str, ...] = (), **changes: object) -> Plan:
    options: dict[str, object] = {
        "bindings": Bindings(),
        "precision": None,
        "runtime": None,
        "limits": {},
        "fail_on": None,
        "config": None,
        **changes,
    }
    path = None if model is None else folder / model
    return make_plan(model=path, gpus=gpus, allow=allow, folder=folder, **options)


def test_options_alone(folder: Path) -> None:
    made = plan(folder, "models/m.onnx", "t4", "a100", "t4", limits={"max-latency": ("20ms", "20ms")})
    assert [target.name for target in made.targets] == ["m.onnx on t4", "m.onnx on a100"]
    assert all(target.limits.max_latency_ms == 20.0 for target in made.targets)
    assert (made.fail_on, made.config) == (Severity.WARNING, None)


def test_a_configuration_alone(folder: Path) -> None:
    written(folder, WHOLE)
    made = plan(folder)
    assert [target.name for target in made.targets] == ["small", "m.onnx on a100", "m.onnx on own.toml"]
    assert (made.fail_on, made.config) == (Severity.ERROR, folder / "neusight.toml")


def test_options_over_a_configuration(folder: Path) -> None:
    written(folder, WHOLE)
    made = plan(
        folder,
        limits={"max-latency": ("5ms",)},
        allow=("NSX301=whatever",),
        fail_on=Severity.NOTE,
    )
    assert {target.limits.max_latency_ms for target in made.targets} == {5.0}
    assert made.targets[0].allow == (("NSX201", "fetched when deployed"), ("NSX301", "whatever"))
    assert made.fail_on is Severity.NOTE


def test_a_model_and_gpu_under_the_limits_of_a_configuration(folder: Path) -> None:
    written(folder, WHOLE)
    (target,) = plan(folder, "models/m.onnx", "l4", limits={"at": ("upper",)}).targets
    assert (target.limits.memory_fits, target.limits.at, target.limits.max_latency_ms) == (True, "upper", None)
    assert target.allow == (("NSX201", "fetched when deployed"),)


def test_a_model_of_a_configuration(folder: Path) -> None:
    onnx.save(linear(), folder / "other.onnx")
    written(folder, WHOLE + '[[target]]\nmodel = "other.onnx"\ngpu = "l4"\n')
    assert [target.name for target in plan(folder, "other.onnx").targets] == ["other.onnx on l4"]
    assert len(plan(folder, "models/../models/m.onnx").targets) == 3


# (what is given, what the line must say)
MISUSE = {
    "nothing": ({}, "give a MODEL and a --gpu; there is no neusight.toml here"),
    "a GPU alone": ({"gpus": ("t4",)}, "--gpu without a MODEL"),
    "a model alone": ({"model": "models/m.onnx"}, "give a --gpu"),
    "a dim alone": ({"bindings": Bindings(dims={"batch": 2})}, "--dim needs a MODEL and a --gpu"),
    "a precision alone": ({"precision": "fp32"}, "--precision needs a MODEL"),
    "two limits": (
        {"model": "models/m.onnx", "gpus": ("t4",), "limits": {"max-latency": ("20ms", "30ms")}},
        "--max-latency is given twice, as '20ms' and '30ms'; keep one",
    ),
    "two kinds of memory": (
        {"model": "models/m.onnx", "gpus": ("t4",), "limits": {"max-memory": ("fits", "1GiB")}},
        "--max-memory is given twice",
    ),
    "no reason": ({"allow": ("NSX201",)}, "--allow NSX201 has no reason; write why it is fine, such as NSX201="),
    "an empty reason": ({"allow": ("NSX201= ",)}, "--allow NSX201 has no reason"),
    "a mistake": ({"allow": ("NSX902=a",)}, "NSX902 can't be allowed"),
    "two reasons": ({"allow": ("NSX201=a", "NSX201=b")}, "--allow gives NSX201 two reasons"),
    "no such code": ({"allow": ("NSX21=a",)}, "'NSX21' is no code of a check"),
    "no such configuration": ({"config": "absent.toml"}, "absent.toml does not exist"),
}


@pytest.mark.parametrize(("given", "says"), MISUSE.values(), ids=MISUSE.keys())
def test_options_that_do_not_go_together(given: dict[str, object], says: str, folder: Path) -> None:
    arguments = dict(given)
    model, gpus, allow = arguments.pop("model", None), arguments.pop("gpus", ()), arguments.pop("allow", ())
    with pytest.raises(CheckError) as caught:
        plan(folder, model, *gpus, allow=allow, **arguments)
    assert says in str(caught.value)


def test_a_configuration_without_what_is_asked_for(folder: Path) -> None:
    written(folder, "")
    with pytest.raises(CheckError, match=r"neusight.toml has no targets; add one as \[\[target\]\]"):
        plan(folder)
    written(folder, TARGET)
    with pytest.raises(CheckError, match=r"give a --gpu: .*neusight.toml has no target with the model .*m.onnx"):
        plan(folder, "models/m.onnx")
    with pytest.raises(ModelError, match=r"^.*neusight.toml: target 'm.onnx on t4': .*m.onnx does not exist"):
        plan(folder)


def test_keys_are_the_options() -> None:
    assert set(LIMIT_KEYS) == {"max-latency", "min-throughput", "max-memory", "max-unsupported", "max-parameters", "at"}


@pytest.mark.parametrize("key", [*TARGET_KEYS, *TRAINING_KEYS])
def test_messages_about_a_file_name_its_keys(key: str) -> None:
    assert in_words_of_a_file(f"leave --{key} out (--{key}=2)") == f"leave {key} out ({key}=2)"
    assert in_words_of_a_file(f"--{key}-more, --no-{key}") == f"--{key}-more, --no-{key}"


def test_an_order_that_a_runtime_does_not_take_is_refused_in_words_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "neusight.toml").write_text(
        f'[[target]]\nmodel = "{Path(__file__).parents[1]}/examples/resnet50.onnx"\ngpu = "t4"\nchannels-last = true\n',
        encoding="utf-8",
    )
    with pytest.raises(NotSupportedError, match=r"leave channels-last out, or take runtime compiled or eager$"):
        check(read_config(tmp_path / "neusight.toml").targets)
