"""The commands of ``neusight-onnx``, and what becomes of errors. A command's module is imported when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Protocol

import typer

from neusight_onnx import __version__
from neusight_onnx.cli.groups import with_groups
from neusight_onnx.cli.output import emit
from neusight_onnx.cli.repeats import refuse_repeats
from neusight_onnx.cli.verbosity import Verbosity, add_verbosity, own_verbosity, verbosity
from neusight_onnx.errors import NeusightError
from neusight_onnx.report.quantities import printable

PROGRAM = "neusight-onnx"
_MISUSE_EXIT_CODE = 2
_INTERRUPTED_EXIT_CODE = 130
"""128 + SIGINT, as a shell reports it."""

# typer raises the exceptions of click: of the package in older releases, of a copy of its own in newer ones.
_click_exceptions = importlib.import_module(typer.BadParameter.__module__)


class _ClickError(Protocol):
    def format_message(self) -> str: ...


def _show_version(wanted: bool) -> None:
    if wanted:
        emit(f"{PROGRAM} {__version__}\n", None)
        raise typer.Exit


def neusight_onnx(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Predicts how fast an ONNX model runs on a GPU you do not have."""
    if context.invoked_subcommand is None:
        emit(context.get_help() + "\n", None)


_CLI = "neusight_onnx.cli"
# In the order of the help: a command's module, its function there, and the examples of its help.
_COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "analyze": (f"{_CLI}.analyze", "analyze_command", "EXAMPLES"),
    "inspect": (f"{_CLI}.inspect", "inspect_command", "EXAMPLES"),
    "annotate": (f"{_CLI}.annotate", "annotate_command", "EXAMPLES"),
    "check": (f"{_CLI}.check", "check_command", "CHECK_EXAMPLES"),
    "explain": (f"{_CLI}.check", "explain_command", "EXPLAIN_EXAMPLES"),
    "compare": (f"{_CLI}.compare", "compare_command", "EXAMPLES"),
    "diff": (f"{_CLI}.diff", "diff_command", "EXAMPLES"),
    "sweep": (f"{_CLI}.sweep", "sweep_command", "EXAMPLES"),
    "operators": (f"{_CLI}.lists", "operators_command", "OPERATORS_EXAMPLES"),
    "gpus": (f"{_CLI}.lists", "gpus_command", "GPUS_EXAMPLES"),
}
_PREDICTORS = "predictors"


def command_line(only: str | None = None) -> typer.Typer:
    """The command line, or the part that runs the command ``only``: a cold start needn't load and build the others."""
    app = typer.Typer(
        name=PROGRAM,
        # adds --install-completion and --show-completion; the shell that runs is found out only when they are used
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(neusight_onnx)
    for name, (module, function, examples) in _COMMANDS.items():
        if only in (None, name):
            home = importlib.import_module(module)
            app.command(name, epilog=getattr(home, examples))(with_groups(getattr(home, function)))
    if only in (None, _PREDICTORS):
        from neusight_onnx.cli import predictors

        group = typer.Typer(rich_markup_mode=None, help="What predicts the kernels' times, and how well it does.")
        group.callback(invoke_without_command=True)(predictors.predictors)
        group.command("list", epilog=predictors.LIST_EXAMPLES)(predictors.list_command)
        group.command("evaluate", epilog=predictors.EVALUATE_EXAMPLES)(predictors.evaluate_command)
        app.add_typer(group, name=_PREDICTORS)
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Parses, runs and returns the exit code; what a user can mend becomes one line on standard error."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    asked = given[0] if given and given[0] in (*_COMMANDS, _PREDICTORS, "--version") else None
    command = typer.main.get_command(command_line(asked))
    add_verbosity(command)
    refuse_repeats(command)
    with own_verbosity():
        try:
            result = command.main(args=given, prog_name=PROGRAM, standalone_mode=False)
        except NeusightError as error:
            return _complain(_error_message(error), error.exit_code)
        except _click_exceptions.ClickException as error:
            return _complain(_list_where_one_is_taken(error, given) or _usage_message(error), _MISUSE_EXIT_CODE)
        except (typer.Abort, KeyboardInterrupt):
            return _INTERRUPTED_EXIT_CODE
        return result if isinstance(result, int) else 0


def _error_message(error: NeusightError) -> str:
    """What is wrong; with ``-v`` also the error's stable code and what was behind it."""
    if verbosity() is not Verbosity.VERBOSE:
        return str(error)
    behind = f"; behind it: {type(error.__cause__).__name__}: {error.__cause__}" if error.__cause__ is not None else ""
    return f"{error} [{error.code}{behind}]"


def _usage_message(error: _ClickError) -> str:
    """One line of what typer would print as several, with where to read on."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else PROGRAM
    has_mode = context is not None and any("--mode" in option.opts for option in context.command.params)
    if has_mode and getattr(error, "option_name", None) == "--training":
        return f"{message[:1].lower()}{message[1:]}; '--mode training' predicts a step of training"
    return f"{message[:1].lower()}{message[1:]}; '{command} --help' shows what it takes"


def _list_where_one_is_taken(error: _ClickError, given: Sequence[str]) -> str | None:
    """That an option takes one, and which command takes several, where a list was given to it; None of other slips."""
    names = getattr(getattr(error, "param", None), "opts", ())
    option = next((name for name in ("--precision", "--runtime") if name in names), None)
    if option is None:
        return None
    behind = [after for before, after in pairwise(given) if before == option]
    written = [*behind, *(text.removeprefix(f"{option}=") for text in given if text.startswith(f"{option}="))]
    several = next((text for text in written if "," in text), None)
    if several is None:
        return None
    return (
        f"{option} {several[:60]!a}: '{given[0]}' takes one; '{PROGRAM} compare' takes several, and sizes as --batch "
        "1,2,4"
    )


def _complain(message: str, exit_code: int) -> int:
    if sys.stderr is not None:
        print(f"error: {printable(message)}", file=sys.stderr)
    return exit_code
