"""``neusight.toml``, or ``[tool.neusight]`` of a ``pyproject.toml``: targets with their limits, and what is allowed."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neusight_onnx.checks.limits import LIMIT_KEYS, Limits, parse_limits
from neusight_onnx.checks.registry import known_code
from neusight_onnx.checks.subject import Target
from neusight_onnx.errors import BindingError, CheckError, NotSupportedError, TrainingError
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.precision import AUTO
from neusight_onnx.regular_files import read_at_most
from neusight_onnx.report.verdict import Severity
from neusight_onnx.runtime import default_runtime, get_runtime

if TYPE_CHECKING:
    from neusight_onnx.backward import Training

CONFIG_NAME = "neusight.toml"
PROJECT_NAME = "pyproject.toml"

TARGET_KEYS = (
    "name",
    "model",
    "gpu",
    "precision",
    "runtime",
    "training",
    "cuda-graph",
    "include-io",
    "channels-last",
    "batch",
    "dims",
    "shapes",
    "values",
    "trip-counts",
    "allow",
    *LIMIT_KEYS,
)
TRAINING_KEYS = ("optimizer", "loss", "recompute", "grad-accumulation", "freeze", "dropout")
TOP_KEYS = ("target", "allow", "fail-on", *LIMIT_KEYS)

NEVER_ALLOWED = frozenset({"NSX902"})

_MAX_FILE_BYTES = 1 << 20
_MAX_TARGETS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a configuration file says. ``limits`` and ``allow`` are for every target; the targets have them already."""

    path: Path
    limits: Limits
    allow: tuple[tuple[str, str], ...]
    fail_on: Severity | None
    targets: tuple[Target, ...]


def find_config(folder: Path) -> Path | None:
    """The configuration of ``folder``; CheckError if it has two."""
    own, project = folder / CONFIG_NAME, folder / PROJECT_NAME
    # a project that has nothing to do with this may have a file that nothing here can read
    in_project = _mentions(project) and _project_table(_load(project)) is not None
    has_own = os.path.isfile(own)  # False, too, where the folder can't be looked into
    if has_own and in_project:
        raise CheckError(f"both {CONFIG_NAME} and [tool.neusight] of {PROJECT_NAME} are here; keep one of them")
    return own if has_own else project if in_project else None


def read_config(path: Path) -> Config:
    """The configuration in ``path``; paths in it are relative to its folder. CheckError for what can't be meant."""
    table = _load(path)
    where = str(path)
    if path.name == PROJECT_NAME:
        inner = _project_table(table)
        if inner is None:
            raise CheckError(f"{where} has no [tool.neusight]; add it, or give a {CONFIG_NAME}")
        table = inner
    _check_keys(table, TOP_KEYS, where)
    limits = parse_limits(_limit_table(table, where), f"{where}: ")
    allow = _allowances(table.get("allow", {}), where)
    targets = table.get("target", [])
    if not isinstance(targets, list) or not all(isinstance(item, dict) for item in targets):
        raise CheckError(f"{where}: 'target' is no list of tables; write each as [[target]]")
    if len(targets) > _MAX_TARGETS:
        raise CheckError(f"{where}: more than {_MAX_TARGETS:,} targets; split it into several files")
    _check_apart(targets, where)
    made = [target for number, item in enumerate(targets, 1) for target in _targets(item, path, number, limits, allow)]
    return Config(path=path, limits=limits, allow=allow, fail_on=_fail_on(table, where), targets=named_apart(made))


def parse_allowance(text: str) -> tuple[str, str]:
    """``"NSX201=the weights are in the registry"`` -> (code, reason); CheckError without a reason."""
    code, _, reason = text.partition("=")
    code = _allowable(known_code(code, "--allow"), "--allow")
    return code, _reason(reason, f"--allow {code}")


def named_apart(targets: Sequence[Target]) -> tuple[Target, ...]:
    """The targets, those that share a name numbered."""
    seen: dict[str, int] = {}
    named = []
    for target in targets:
        count = seen[target.name] = seen.get(target.name, 0) + 1
        named.append(target if count == 1 else replace(target, name=f"{target.name} ({count})"))
    return tuple(named)


_KEYS = {"dim": "dims", "shape": "shapes", "value": "values", "trip-count": "trip-counts"}
_OPTION = re.compile(rf"--({'|'.join((*_KEYS, *TARGET_KEYS, *TRAINING_KEYS))})(?![\w-])( ?)")


def in_words_of_a_file(text: str) -> str:
    """A message about options as one about a configuration's keys: ``--dim batch=0`` is ``dims batch=0``."""
    return _OPTION.sub(lambda found: f"{_KEYS.get(found[1], found[1])}{found[2]}", text)


def merged_allowances(*groups: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Allowances of several places; where two give reasons for one code, the later place's stands."""
    merged: dict[str, str] = {}
    for group in groups:
        merged.update(group)
    return tuple(merged.items())


# --- reading ----------------------------------------------------------------------------------------------------------

_Table = Mapping[str, Any]


def _load(path: Path) -> _Table:
    try:
        content = read_at_most(path, _MAX_FILE_BYTES)
    except FileNotFoundError:
        raise CheckError(f"{path} does not exist; give a {CONFIG_NAME}") from None
    except IsADirectoryError:
        raise CheckError(f"{path} is a folder; give the {CONFIG_NAME} in it") from None
    except (OSError, ValueError) as error:
        raise CheckError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise CheckError(f"{path} is larger than 1 MB, so no configuration; give another file")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise CheckError(f"{path} is not a text in UTF-8; write it as TOML") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError: a key that is given twice, too
        raise CheckError(f"{path} is not TOML ({' '.join(str(error).split())[:200]}); correct it there") from None


def _mentions(path: Path) -> bool:
    try:
        return b"neusight" in read_at_most(path, _MAX_FILE_BYTES)
    except OSError:
        return False


def _project_table(table: _Table) -> _Table | None:
    tool = table.get("tool")
    inner = tool.get("neusight") if isinstance(tool, dict) else None
    if inner is not None and not isinstance(inner, dict):
        raise CheckError(f"{PROJECT_NAME}: tool.neusight is no table; write it as [tool.neusight]")
    return inner


def _check_keys(table: _Table, known: Sequence[str], where: str) -> None:
    for key in table:
        if key in TOP_KEYS and key not in known and known is TARGET_KEYS:
            raise CheckError(f"{where}: {key!a} is for all targets; write it above the first [[target]]")
        if key in TARGET_KEYS and key not in known and known is TOP_KEYS:
            raise CheckError(f"{where}: {key!a} is a target's; write it below a [[target]]")
        if key not in known:
            from difflib import get_close_matches  # only on this way out

            near = get_close_matches(key[:60].replace("_", "-").lower(), known, n=1, cutoff=0.6)
            hint = f"'{near[0]}' is the nearest that is known" if near else f"known are {', '.join(known)}"
            raise CheckError(f"{where}: unknown key {key[:60]!a}: {hint}")


def _limit_table(table: _Table, where: str) -> dict[str, str | int | float]:
    limits: dict[str, str | int | float] = {}
    for key in LIMIT_KEYS:
        if key in table:
            value = table[key]
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise CheckError(f"{where}: '{key}' is no limit; write it as a text such as \"20ms\" or a number")
            limits[key] = value
    return limits


def _allowances(table: object, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(table, dict):
        raise CheckError(f"{where}: 'allow' is no table; write NSX201 = \"the reason\" under [allow]")
    found: list[tuple[str, str]] = []
    for key, reason in table.items():
        code = _allowable(known_code(key, f"{where}: allow"), f"{where}: allow")
        if any(code == other for other, _ in found):
            raise CheckError(f"{where}: allow names {code} twice; keep one")
        found.append((code, _reason(reason, f"{where}: allow {code}")))
    return tuple(found)


def _allowable(code: str, where: str) -> str:
    """The code; CheckError for what is no finding of a target that is judged."""
    if code in NEVER_ALLOWED:
        raise CheckError(f"{where}: {code} can't be allowed; `neusight-onnx explain {code}` says what it stands for")
    return code


def _reason(reason: object, where: str) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise CheckError(f'{where} has no reason; write why it is fine, such as {where.rpartition(" ")[2]}="..."')
    return " ".join(reason.split())


def _fail_on(table: _Table, where: str) -> Severity | None:
    text = table.get("fail-on")
    if text is None:
        return None
    if text not in tuple(Severity):
        raise CheckError(f"{where}: 'fail-on' is {_as_written(text)}; choose {', '.join(Severity)}")
    return Severity(text)


def _targets(
    table: _Table, file: Path, number: int, limits: Limits, allow: tuple[tuple[str, str], ...]
) -> list[Target]:
    """The targets of the table with this number in ``file``: one for each of its GPUs."""
    folder, where = file.parent, f"{file}: target {number}"
    _check_keys(table, TARGET_KEYS, where)
    name = _text(table, "name", where, default="")
    if "name" in table and not name.strip():
        raise CheckError(f"{where}: 'name' is {name!a}; give one line of text, or leave it out")
    if name:
        where = f"{where} ('{name}')"
    model = _text(table, "model", where)
    gpus = _gpus(table.get("gpu"), where)
    own = parse_limits(_limit_table(table, where), f"{where}: ")
    training = _training(table, where)
    unsaid = default_runtime(training=training is not None)
    try:
        bindings = make_bindings(
            _sizes(table, "dims", where),
            _shapes(table, where),
            _bindings(table, "values", where),
            _sizes(table, "trip-counts", where),
            _batch(table, where),
        )
    except BindingError as error:
        raise CheckError(f"{where}: {error}") from None
    path = folder / model
    return [
        Target(
            name=_target_name(name or path.name, gpu, several=len(gpus) > 1 or not name),
            written_in=file,
            model=path,
            gpu=folder / gpu if gpu.lower().endswith(".toml") else gpu,
            precision=_text(table, "precision", where, default=AUTO),
            runtime=_runtime(table, unsaid, where),
            training=training,
            cuda_graph=_switch(table, "cuda-graph", where),
            include_io=_switch(table, "include-io", where),
            channels_last=_switch(table, "channels-last", where),
            bindings=bindings,
            limits=own.over(limits),
            allow=(allowed := merged_allowances(allow, _allowances(table.get("allow", {}), where))),
            allow_written=allowed,
        )
        for gpu in gpus
    ]


def _runtime(table: _Table, default: str, where: str) -> str:
    """A runtime as ``--runtime`` has it, by the name that it goes by from then on; as it is written where there is none
    such, which is for the check to say of that target."""
    called = _text(table, "runtime", where, default=default)
    try:
        return get_runtime(called).label
    except NotSupportedError:
        return called


def _training(table: _Table, where: str) -> Training | None:
    """``training = true``, or a table of the options of training; None at inference."""
    value = table.get("training", False)
    if value is False:
        return None
    if value is not True and not isinstance(value, dict):
        raise CheckError(
            f"{where}: 'training' is {_as_written(value)}; write true, or a table such as {{ dropout = 0.1 }}"
        )
    given = value if isinstance(value, dict) else {}
    _check_keys(given, TRAINING_KEYS, f"{where}: training")
    freeze = given.get("freeze", [])
    patterns = [freeze] if isinstance(freeze, str) else freeze
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise CheckError(f"{where}: training: 'freeze' is {_as_written(freeze)}; give a pattern, or a list of patterns")
    count = given.get("grad-accumulation", 1)
    if not _is_whole(count):
        raise CheckError(f"{where}: training: 'grad-accumulation' is {_as_written(count)}; give a number such as 4")
    dropout = given.get("dropout")
    if isinstance(dropout, bool) or not isinstance(dropout, int | float | str | None):
        raise CheckError(f"{where}: training: 'dropout' is {_as_written(dropout)}; give a rate such as 0.1, or \"off\"")
    from neusight_onnx.backward import make_training

    texts = {key: str(given[key]) for key in ("optimizer", "loss", "recompute") if key in given}
    try:
        return make_training(**texts, grad_accumulation=count, freeze=patterns, dropout=dropout)
    except TrainingError as error:
        raise CheckError(f"{where}: training: {error}") from None


def _check_apart(tables: Sequence[_Table], where: str) -> None:
    """Refuses targets that are one another's copy, or have a name that another has, too."""
    names: dict[str, int] = {}
    for number, table in enumerate(tables, 1):
        name = table.get("name")
        if isinstance(name, str) and (first := names.setdefault(name, number)) != number:
            raise CheckError(f"{where}: target {number} is named {name[:60]!a} as target {first} is; name them apart")
    contents = [{key: value for key, value in table.items() if key != "name"} for table in tables]
    for number, content in enumerate(contents):
        if content in contents[:number]:
            copied = contents.index(content) + 1
            raise CheckError(f"{where}: target {number + 1} checks what target {copied} does; remove one of them")


def _gpus(value: object, where: str) -> list[str]:
    if value is None:
        raise CheckError(f"{where}: 'gpu' is missing; give a GPU's name, or a list of names")
    listed = value if isinstance(value, list) else [value]
    names = [gpu for gpu in listed if isinstance(gpu, str) and gpu]
    if not names or len(names) != len(listed):
        raise CheckError(f"{where}: 'gpu' is {_as_written(value)}; give a GPU's name, or a list of names")
    for gpu in names:
        if "," in gpu and not gpu.lower().endswith(".toml"):
            several = ", ".join(f'"{name.strip()}"' for name in gpu.split(","))
            raise CheckError(f"{where}: 'gpu' is {_as_written(gpu)}, which is one name; write a list, [{several}]")
    return list(dict.fromkeys(names))


def _target_name(name: str, gpu: str, *, several: bool) -> str:
    return f"{name} on {gpu}" if several else name


def _bindings(table: _Table, key: str, where: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise CheckError(f"{where}: '{key}' is no table; write {key} = {{ NAME = ... }}")
    return value


def _sizes(table: _Table, key: str, where: str) -> Mapping[str, Any]:
    sizes = _bindings(table, key, where)
    for name, size in sizes.items():
        if not _is_whole(size):
            raise CheckError(f"{where}: {key}: {name[:60]!a} is {_as_written(size)}; give a whole number such as 8")
    return sizes


def _batch(table: _Table, where: str) -> int | None:
    size = table.get("batch")
    if size is not None and (not _is_whole(size) or size < 1):
        raise CheckError(f"{where}: 'batch' is {_as_written(size)}; give a whole number such as 8")
    return None if size is None else int(size)


def _switch(table: _Table, key: str, where: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise CheckError(f"{where}: '{key}' is {_as_written(value)}; write true or false")
    return value


def _shapes(table: _Table, where: str) -> Mapping[str, Any]:
    shapes = _bindings(table, "shapes", where)
    for name, shape in shapes.items():
        if not isinstance(shape, list) or not all(map(_is_whole, shape)):
            raise CheckError(
                f"{where}: shapes: {name[:60]!a} is {_as_written(shape)}; give a list of whole numbers such as "
                "[1, 3, 224, 224]"
            )
    return shapes


def _is_whole(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool)


def _as_written(value: object) -> str:
    """A value of the file in TOML's words, or nearly: "true", not Python's "True"."""
    return str(value).lower() if isinstance(value, bool) else f"{value!a:.60}"


def _text(table: _Table, key: str, where: str, *, default: str | None = None) -> str:
    value = table.get(key, default)
    if value is None:
        raise CheckError(f"{where}: '{key}' is missing")
    if not isinstance(value, str) or not value.isprintable() or (default is None and not value):
        raise CheckError(f"{where}: '{key}' is {_as_written(value)}; give one line of text")
    return value
