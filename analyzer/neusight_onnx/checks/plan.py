"""From what a command line says, and a configuration, to the targets that are checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from neusight_onnx.checks.config import (
    CONFIG_NAME,
    Config,
    find_config,
    merged_allowances,
    parse_allowance,
    read_config,
)
from neusight_onnx.checks.limits import Limits, given_once, parse_limits
from neusight_onnx.checks.subject import Target
from neusight_onnx.errors import CheckError, ModelError
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.report.verdict import Severity
from neusight_onnx.runtime import default_runtime, get_runtime

if TYPE_CHECKING:
    from neusight_onnx.backward import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to check, and how strictly; ``config`` is the file that took part in it."""

    targets: tuple[Target, ...]
    fail_on: Severity
    config: Path | None


def make_plan(
    *,
    model: Path | None,
    gpus: Sequence[str],
    bindings: Bindings,
    precision: str | None,
    runtime: str | None,
    training: Training | None = None,
    cuda_graph: bool = False,
    include_io: bool = False,
    channels_last: bool = False,
    limits: Mapping[str, Sequence[str]],
    allow: Sequence[str],
    fail_on: Severity | None,
    config: str | None,
    folder: Path = Path(),
) -> Plan:
    """The targets of the options, or else those of the configuration, with the options' limits and allowances over it.

    ``limits`` maps the names of :data:`~neusight_onnx.checks.limits.LIMIT_KEYS` to what each option was given.
    The configuration is ``config``, or the one in ``folder`` if there is one. Its limits and allowances count for a
    model and GPU of the options, too. Raises CheckError for options that don't go together.
    """
    given = {name: text for name, texts in limits.items() for text in given_once(f"--{name}", tuple(texts))}
    own = parse_limits(given, "--")
    allowed = merged_allowances([parse_allowance(text) for text in _apart(allow)])
    path = Path(config) if config is not None else find_config(folder)
    read = None if path is None else read_config(path)
    targets: Sequence[Target]
    if model is not None and gpus:
        targets = [
            Target(
                name=model.name if len(gpus) == 1 else f"{model.name} on {gpu}",
                model=model,
                gpu=gpu,
                precision=precision or "auto",
                runtime=get_runtime(runtime or default_runtime(training=training is not None)).label,
                training=training,
                cuda_graph=cuda_graph,
                include_io=include_io,
                channels_last=channels_last,
                bindings=bindings,
                limits=own.over(read.limits if read else Limits()),
                allow=merged_allowances(read.allow if read else (), allowed),
                allow_written=read.allow if read else (),
            )
            for gpu in dict.fromkeys(gpus)
        ]
    else:
        of_a_target: dict[str, object] = {
            "--batch": bindings.batch,
            "--dim": bindings.dims,
            "--shape": bindings.shapes,
            "--value": bindings.values,
            "--trip-count": bindings.trip_counts,
            "--precision": precision,
            "--runtime": runtime,
            "--cuda-graph": cuda_graph,
            "--include-io": include_io,
            "--channels-last": channels_last,
            "--mode training": training,
        }
        _refuse_alone(gpus, of_a_target)
        targets = [
            replace(target, limits=own.over(target.limits), allow=merged_allowances(target.allow, allowed))
            for target in _configured(read, model)
        ]
    missing = [target for target in targets if isinstance(target.model, Path) and _is_missing(target.model)]
    if missing and len(missing) == len(targets):  # else those that are there are judged, and NSX207 says the rest
        first = missing[0]
        file = "" if first.written_in is None else f"{first.written_in}: "
        where = f"{file}target '{first.name}': " if len(targets) > 1 or model is None else ""
        raise ModelError(f"{where}{first.model} does not exist; check the path")
    return Plan(targets=tuple(targets), fail_on=fail_on or (read and read.fail_on) or Severity.WARNING, config=path)


def _is_missing(path: Path) -> bool:
    """Whether nothing is there. What can't be looked at may be there: who reads it says why not."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:
        return False
    return False


def _apart(allow: Sequence[str]) -> Sequence[str]:
    """The allowances; CheckError where two of them give a code different reasons."""
    reasons: dict[str, str] = {}
    for text in allow:
        code, reason = parse_allowance(text)
        if reasons.setdefault(code, reason) != reason:
            raise CheckError(f"--allow gives {code} two reasons; keep one")
    return allow


def _refuse_alone(gpus: Sequence[str], given: Mapping[str, object]) -> None:
    """The options that say what a target is need a MODEL and a --gpu: a configuration's targets have their own."""
    if gpus:
        raise CheckError("--gpu without a MODEL: give the .onnx file, too")
    for option, value in given.items():
        if value:
            raise CheckError(f"{option} needs a MODEL and a --gpu; the targets of a {CONFIG_NAME} have their own")


def _configured(config: Config | None, model: Path | None) -> Sequence[Target]:
    """The configuration's targets; those of one model if it is named."""
    if model is not None and _is_missing(model):
        raise ModelError(f"{model} does not exist; check the path")
    if config is None:
        if model is not None:
            raise CheckError(f"give a --gpu, or a target with this model in a {CONFIG_NAME}")
        raise CheckError(
            f"give a MODEL and a --gpu; there is no {CONFIG_NAME} here, nor [tool.neusight] in pyproject.toml"
        )
    targets = config.targets
    if model is not None:
        real = os.path.realpath(model)
        targets = tuple(each for each in targets if os.path.realpath(str(each.model)) == real)
        if not targets:
            raise CheckError(f"give a --gpu: {config.path} has no target with the model {model}")
    if not targets:
        raise CheckError(f"{config.path} has no targets; add one as [[target]], or give a MODEL and a --gpu")
    return targets
