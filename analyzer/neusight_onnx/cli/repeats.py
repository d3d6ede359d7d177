"""An option that takes one value is given once: typer would silently take the last one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import typer

_LISTS_OF_COMPARE = ("--precision", "--runtime")


class _Command(Protocol):
    params: list[_Parameter]


class _Parameter(Protocol):
    name: str
    opts: list[str]
    multiple: bool

    def add_to_parser(self, parser: object, context: object) -> None: ...
    def consume_value(self, context: object, given: Mapping[str, object]) -> object: ...


def refuse_repeats(command: object) -> None:
    """Has a command of the command line, or all in a group, refuse a second value of an option that takes one."""
    inner = cast("Mapping[str, object] | None", getattr(command, "commands", None))
    for each in inner.values() if inner is not None else ():
        refuse_repeats(each)
    for parameter in cast("_Command", command).params:
        # arguments and flags have none, or several, by what they are
        single = getattr(parameter, "is_flag", None) is False and not parameter.multiple
        if single:
            _take_once(parameter)


def _take_once(option: _Parameter) -> None:
    add_to_parser, consume_value = option.add_to_parser, option.consume_value

    def collect(parser: object, context: object) -> None:
        # the parser keeps all values of an option that may be repeated, of others the last
        option.multiple = True
        try:
            add_to_parser(parser, context)
        finally:
            option.multiple = False

    def take(context: object, given: Mapping[str, object]) -> object:
        values = given.get(option.name)
        if not isinstance(values, list):
            return consume_value(context, given)
        if len(dict.fromkeys(values)) > 1:
            name = option.opts[-1]
            several = ", or use compare for several" if name in _LISTS_OF_COMPARE else ""
            shown = ", ".join(str(value)[:40] for value in values)
            raise typer.BadParameter(f"it is given {len(values)} times ({shown}); give one{several}")
        return consume_value(context, {**given, option.name: values[-1]})

    option.add_to_parser = collect  # type: ignore[method-assign]  # typer makes options itself: no class to derive
    option.consume_value = take  # type: ignore[method-assign]  # as above
