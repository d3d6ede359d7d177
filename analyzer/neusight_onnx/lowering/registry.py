"""The table of rules: one operator, one rule; a second claim on the same operator is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from neusight_onnx.kernels import Kernel
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.views import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The node becomes ``kernels``, in order; ``layouts`` are those of its outputs that aren't contiguous.

    ``host_waits``: how large its result is must be known before what follows can be launched. ``repeats``: how often
    the kernels run one after another, each time waited for where ``host_waits``.
    """

    kernels: tuple[Kernel, ...]
    layouts: tuple[Layout | None, ...] = ()
    host_waits: bool = False
    repeats: int = 1


HOST_ALONE = frozenset({"text is handled on the host", "images are decoded on the host"})
"""Reasons of nodes that cost no kernel and yet time, of the CPU, which isn't counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """The node costs no kernel. ``host``: a runtime that interprets the graph still spends host time on it."""

    reason: str
    host: bool = False
    layouts: tuple[Layout | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """There is no model of the node's cost, and why."""

    reason: str


Outcome: TypeAlias = Kernels | Free | Unsupported
Function: TypeAlias = Callable[[NodeContext], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one operator is lowered.

    ``kernel_class`` is what the operators' table shows: a kernel class of the report, "free", "unsupported", or
    "depends" (on attributes, versions or runtimes; or several classes).
    ``needs_shapes``: the rule can't answer before the shapes of the node's tensors are known.
    """

    domain: str
    op_type: str
    kernel_class: str
    note: str
    needs_shapes: bool
    function: Function


RULES: dict[tuple[str, str], Rule] = {}


def lowers(
    *op_types: str, domain: str = "", gives: str, note: str = "", needs_shapes: bool = True
) -> Callable[[Function], Function]:
    """Registers the decorated function as the rule of ``op_types`` in ``domain``.

    Raises:
        ValueError: one of the operators has a rule already.
    """

    def register(function: Function) -> Function:
        for op_type in op_types:
            key = (domain, op_type)
            if key in RULES:
                raise ValueError(f"{domain or 'ai.onnx'}::{op_type} has a rule already, in {RULES[key].function}")
            RULES[key] = Rule(
                domain=domain,
                op_type=op_type,
                kernel_class=gives,
                note=note,
                needs_shapes=needs_shapes,
                function=function,
            )
        return function

    return register


def operator_table() -> list[tuple[str, str, str, str]]:
    """(domain, operator, kernel class or "free", "depends" or "unsupported", note) of all with a rule, sorted."""
    return sorted((rule.domain, rule.op_type, rule.kernel_class, rule.note) for rule in RULES.values())
