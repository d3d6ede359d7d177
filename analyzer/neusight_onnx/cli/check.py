"""``check`` and ``explain``: may this model ship, and what does a code mean."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neusight_onnx.cli.execution import Execution
from neusight_onnx.cli.files import canvas_for, gpu_file, model_path, read_guarded, several_gpus, target_path
from neusight_onnx.cli.formats import DEFAULT_FORMAT, format_for
from neusight_onnx.cli.limits import LimitOptions
from neusight_onnx.cli.options import GpusOption, ListFormat, OutputOption, Precision
from neusight_onnx.cli.output import check_target, emit
from neusight_onnx.cli.progress import working
from neusight_onnx.cli.sizes import Sizes
from neusight_onnx.errors import CheckError, ModelError

if TYPE_CHECKING:
    from neusight_onnx.checks.subject import Target
    from neusight_onnx.graph.model import Model
    from neusight_onnx.report.check_words import Checkout
    from neusight_onnx.report.verdict import Verdict

_FOUND_WANTING_EXIT_CODE = 1

CHECK_EXAMPLES = """\
Examples:

\b
  neusight-onnx check model.onnx --gpu l4 --gpu a100 --max-latency 40ms
  neusight-onnx check model.onnx --gpu t4 --format junit -o check.xml
  neusight-onnx check --config neusight.toml
"""
EXPLAIN_EXAMPLES = """\
Examples:

\b
  neusight-onnx explain NSX101
  neusight-onnx explain NSX109 NSX301
  neusight-onnx explain --format markdown
"""


class CheckFormat(StrEnum):
    RICH = "rich"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"
    MARKDOWN = "markdown"
    GITHUB = "github"


class FailOn(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


def check_command(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="The ONNX file; without it, the targets of neusight.toml."),
    ] = None,
    gpu: GpusOption = None,
    *,
    sizes: Sizes,
    execution: Execution,
    limits: LimitOptions,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="CODE=REASON", help='A finding that is fine: NSX201="weights come later".'),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option("--fail-on", help="The mildest finding that fails the check.", show_default="warning"),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Limits, targets and what is allowed.",
            show_default="neusight.toml, or pyproject.toml with [tool.neusight]",
        ),
    ] = None,
    asked_format: Annotated[
        CheckFormat | None, typer.Option("--format", help="How to report.", show_default=DEFAULT_FORMAT)
    ] = None,
    output: OutputOption = None,
) -> None:
    """Check MODEL against limits and for what breaks or slows it. The exit code is 1 if it is found wanting."""
    target = target_path(output)
    check_format = format_for(asked_format, target, CheckFormat)
    path = None if model is None else model_path(model)
    with working("checking" if path is None else f"checking {path.name}"):
        from neusight_onnx.checks import check
        from neusight_onnx.checks.plan import make_plan
        from neusight_onnx.report.verdict import Severity

        plan = make_plan(
            model=path,
            gpus=several_gpus(gpu),
            bindings=sizes.bindings(),
            precision=None if execution.precision is Precision.AUTO else execution.precision.value,
            runtime=execution.runtime,
            cuda_graph=execution.run.cuda_graph,
            include_io=execution.run.include_io,
            channels_last=execution.run.channels_last,
            training=execution.run.training.plan(),
            limits=limits.written(),
            allow=tuple(allow or ()),
            fail_on=None if fail_on is None else Severity(fail_on.value),
            config=config,
        )
        if plan.config is not None:
            check_target(target, (plan.config, "the configuration itself"))
        models: dict[Path, Path | Model] = {}
        targets = [_guarded(each, target, models) for each in plan.targets]
        verdict = check(targets, fail_on=plan.fail_on, config=plan.config)
    emit(_report(verdict, check_format, target), target)
    _refuse_mistakes(verdict)
    if not verdict.passed:
        raise typer.Exit(_FOUND_WANTING_EXIT_CODE)


def _refuse_mistakes(verdict: Verdict) -> None:
    """CheckError for targets that can't be judged, since what was asked of them is a slip."""
    from neusight_onnx.report.quantities import counted

    mistaken = [target.mistake for target in verdict.mistaken]
    if mistaken:
        others = f" (and {counted(len(mistaken) - 1, 'target')} more, as the report says)" if mistaken[1:] else ""
        raise CheckError(mistaken[0] + others)


def _guarded(checked: Target, output: Path | None, models: dict[Path, Path | Model]) -> Target:
    """The target, its model read (once, into ``models``) where a file will be written that must not be its weights."""
    if output is None or not isinstance(checked.model, Path):
        return checked
    files = gpu_file(str(checked.gpu)) if isinstance(checked.gpu, str | Path) else []
    check_target(output, (checked.model, "a model itself"), *((file, "a GPU file itself") for file in files))
    if checked.model not in models:
        try:
            models[checked.model] = read_guarded(checked.model, output)
        except ModelError:
            models[checked.model] = checked.model  # the check says why, and of which target
    return replace(checked, model=models[checked.model])


def _report(verdict: Verdict, check_format: CheckFormat, output: Path | None) -> str:
    match check_format:
        case CheckFormat.JSON:
            from neusight_onnx.report.check_json import verdict_to_json

            return verdict_to_json(verdict)
        case CheckFormat.JUNIT:
            from neusight_onnx.report.junit import verdict_to_junit

            return verdict_to_junit(verdict, made_at=datetime.now(UTC))
        case CheckFormat.SARIF:
            from neusight_onnx.report.sarif import verdict_to_sarif

            return verdict_to_sarif(verdict, _checkout(verdict.config))
        case CheckFormat.MARKDOWN:
            from neusight_onnx.report.check_markdown import verdict_to_markdown

            return verdict_to_markdown(verdict)
        case CheckFormat.GITHUB:
            from neusight_onnx.report.github import verdict_to_github

            return verdict_to_github(verdict, _checkout(verdict.config))
        case CheckFormat.RICH:
            from neusight_onnx.report.check_terminal import verdict_to_terminal

            return verdict_to_terminal(verdict, canvas_for(output))


def _checkout(config: str | None) -> Checkout | None:
    """The repository that the working directory lies in, else ``config``: GitHub's workspace, else where a .git is;
    None outside of any, and where the working directory is gone."""
    from neusight_onnx.report.check_words import Checkout

    try:
        folder = Path.cwd()
    except OSError:
        return None
    workspace = os.environ.get("GITHUB_WORKSPACE")
    for start in (folder, *(() if config is None else [(folder / config).resolve().parent])):
        above = (start, *start.parents)
        if workspace and (root := Path(workspace).resolve()) in above:
            return Checkout(root=root, folder=folder)
        found = next((each for each in above if os.path.exists(each / ".git")), None)
        if found is not None:
            return Checkout(root=found, folder=folder)
    return None


def explain_command(
    codes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CODE...]", help="A finding's code, such as NSX101, or several; without, all of them."),
    ] = None,
    list_format: Annotated[ListFormat, typer.Option("--format", help="How to print it.")] = ListFormat.RICH,
) -> None:
    """Say what a finding of 'check' means and what would do."""
    from neusight_onnx.checks import explained
    from neusight_onnx.report.rules import rules_to_json, rules_to_markdown, rules_to_terminal

    found = explained(*(code for text in codes or () for code in text.split(",")))
    match list_format:
        case ListFormat.JSON:
            emit(rules_to_json(found), None)
        case ListFormat.MARKDOWN:
            emit(rules_to_markdown(found), None)
        case ListFormat.RICH:
            emit(rules_to_terminal(found, canvas_for(None), in_full=bool(codes)), None)
