"""Groups of options that commands share, as one parameter each.

A command asks for a group by a parameter whose type is a dataclass; each field is an option, or a group again. On the
command line the options stand where the parameter does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

Command = Callable[..., None]


def with_groups(command: Command) -> Command:
    """``command`` as typer reads it: its groups replaced by their options, which make the groups again in a call."""
    hints = get_type_hints(command, include_extras=True)
    options: dict[str, Parameter] = {}
    for name, parameter in signature(command).parameters.items():
        if is_dataclass(hints[name]):
            _spread(hints[name], options)
        else:
            _add(options, name, hints[name], parameter.default)

    def spread(**given: Any) -> None:
        command(
            **{
                name: _made(hint, given) if is_dataclass(hint) else given[name]
                for name, hint in hints.items()
                if name != "return"
            }
        )

    spread.__name__, spread.__doc__, spread.__module__ = command.__name__, command.__doc__, command.__module__
    spread.__annotations__ = {name: parameter.annotation for name, parameter in options.items()}
    vars(spread)["__signature__"] = Signature(list(options.values()))
    return spread


def _spread(group: Any, options: dict[str, Parameter]) -> None:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        if is_dataclass(hints[field.name]):
            _spread(hints[field.name], options)
        else:
            _add(options, field.name, hints[field.name], Parameter.empty if field.default is MISSING else field.default)


def _add(options: dict[str, Parameter], name: str, hint: Any, default: Any) -> None:
    assert name not in options, f"two options are called {name}"
    options[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _made(group: Any, given: Mapping[str, Any]) -> Any:
    hints = get_type_hints(group, include_extras=True)
    return group(
        **{
            field.name: _made(hints[field.name], given) if is_dataclass(hints[field.name]) else given[field.name]
            for field in fields(group)
        }
    )
